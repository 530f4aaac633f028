"""Sessions that move, end, expire, or meet a server without a quorum: ensembles of ours answer as
those of ZooKeeper 3.9.4.

Two members each, the second leads. The same steps are taken with both kinds, one after the other,
and what the servers answer is compared: error codes, and where they close a connection instead.
"""

import signal
from pathlib import Path

import pytest

from barnabas.wire.jute.errors import ErrorCode
from barnabas.wire.jute.opcodes import OpCode
from barnabas.wire.jute.records import (
    OPEN_ACL,
    CreateRequest,
    ExistsRequest,
    GetDataRequest,
    SetDataRequest,
    SyncRequest,
)
from support.coordination import RawClient
from support.ensemble import Ensemble, ensemble, four_letter_word
from support.needs import needs_reference
from support.waiting import eventually

pytestmark = [pytest.mark.interop, pytest.mark.java, needs_reference]

CLOSED = "closed"
_TICK_MS = 500
_PATIENT_MS = 40_000
Story = list[tuple[str, object]]
"""What was done, and what came of it."""


def code(client: RawClient, opcode: OpCode, body: object | None = None) -> object:
    """The error of the reply, or that the connection was closed instead."""
    try:
        return ErrorCode(client.call(opcode, body)[1])
    except (EOFError, ConnectionResetError, BrokenPipeError):
        return CLOSED


def change(client: RawClient) -> object:
    """The answer to a write."""
    return code(client, OpCode.SET_DATA, SetDataRequest("/", b"", -1))


def look(client: RawClient) -> object:
    """The answer to a read."""
    return code(client, OpCode.GET_DATA, GetDataRequest("/", False))


def until_closed(client: RawClient) -> list[object]:
    """The errors of all replies that still come before the server closes the connection."""
    found: list[object] = []
    try:
        while True:
            found.append(ErrorCode(client.receive()[2]))
    except (EOFError, ConnectionResetError):
        return found


def attach(port: int, session: tuple[int, bytes], *, read_only: bool = False) -> tuple[object, RawClient | None]:
    """Connect with a session; what the server says to it, and the connection if it accepts."""
    session_id, password = session
    try:
        client = RawClient(port, session_id=session_id, password=password, read_only=read_only, timeout_ms=_PATIENT_MS)
    except (EOFError, ConnectionResetError):
        return CLOSED, None
    if client.response.session_id == 0:
        return ("no such session", client.response.timeout_ms, until_closed(client)), None
    assert client.response.session_id == session_id
    return ("attached", client.is_read_only), client


def begin(port: int) -> tuple[RawClient, tuple[int, bytes]]:
    """A new session, with its id and password."""
    client = RawClient(port, timeout_ms=_PATIENT_MS)
    return client, (client.response.session_id, client.response.password)


def moved(members: Ensemble, home: int, away: int) -> Story:
    """A session goes from one member to another, while its first connection is still used."""
    ports = {number: member.client_port for number, member in members.members.items()}
    story: Story = []
    first, session = begin(ports[home])
    name = f"/moved-{home}"
    story.append(("create", code(first, OpCode.CREATE, CreateRequest(name, b"", list(OPEN_ACL), 1))))
    story.append(("a wrong password", attach(ports[away], (session[0], bytes(16)))[0]))
    said, second = attach(ports[away], session)
    assert second is not None
    story += [("elsewhere", said), ("read on the new connection", look(second)), ("write on it", change(second))]
    story += [("read on the old connection", look(first)), ("write on it", change(first)), ("and again", look(first))]
    story.append(("the new one goes on", change(second)))
    said, third = attach(ports[away], session)
    assert third is not None
    story += [("at the same member", said), ("the connection before it", until_closed(second))]
    story.append(("close", code(third, OpCode.CLOSE_SESSION)))
    story.append(("after the close", until_closed(third)))
    # A member that learns of the close after it was asked ends the connection instead of answering.
    other, _ = begin(ports[home])
    story.append(("sync", code(other, OpCode.SYNC, SyncRequest("/"))))
    story += [("its session", attach(port, session)[0]) for port in ports.values()]
    story.append(("its ephemeral", code(other, OpCode.EXISTS, ExistsRequest(name, False))))
    other.call(OpCode.CLOSE_SESSION)
    return story


def closed_in_the_middle(members: Ensemble, number: int) -> Story:
    """Requests that follow a close on the same connection."""
    client, session = begin(members.members[number].client_port)
    client.call(OpCode.GET_DATA, GetDataRequest("/", False))
    for opcode, body in (
        (OpCode.SET_DATA, SetDataRequest("/", b"1", -1)),
        (OpCode.CLOSE_SESSION, None),
    ):
        client.send(opcode, body)
    story: Story = [("a write and a close", until_closed(client))]
    story.append(("its session", attach(members.members[number].client_port, session)[0]))
    return story


def expired(members: Ensemble, number: int) -> Story:
    """A session that is not heard for its timeout."""
    port = members.members[number].client_port
    client = RawClient(port, timeout_ms=2 * _TICK_MS)
    session = client.response.session_id, client.response.password
    story: Story = [("silence", until_closed(client))]
    # As in `moved`: the member must have learned of the end before it is asked.
    other, _ = begin(port)
    story.append(("sync", code(other, OpCode.SYNC, SyncRequest("/"))))
    other.call(OpCode.CLOSE_SESSION)
    story.append(("its session", attach(port, session)[0]))
    return story


def without_a_quorum(members: Ensemble) -> Story:
    """The first member is alone and read-only; later it has a leader again.

    Apache's serves new sessions without a quorum only if it keeps them to itself.
    """
    for member in members.members.values():
        member.stop()
        member.settings |= {"localSessionsEnabled": "true", "localSessionsUpgradingEnabled": "true"}
    for member in members.members.values():
        member.start()
    members.until_serving()
    alone, other = members.members[1], members.members[2]
    port = alone.client_port
    client, known = begin(port)
    client.call(OpCode.CREATE, CreateRequest("/global", b"", list(OPEN_ACL), 1))
    client.close()
    other.stop(signal.SIGKILL)
    eventually(lambda: four_letter_word(port, b"isro") == "ro", timeout_s=60, what="it serves reads")
    story: Story = []
    story.append(("a client that does not accept it", attach(port, (0, bytes(16)))[0]))
    reader = RawClient(port, read_only=True, timeout_ms=_PATIENT_MS)
    session = reader.response.session_id, reader.response.password
    story += [("read-only", reader.is_read_only), ("read", look(reader)), ("write", change(reader))]
    story.append(("create", code(reader, OpCode.CREATE, CreateRequest("/ro", b"", list(OPEN_ACL), 1))))
    story.append(("it goes on", look(reader)))
    said, again = attach(port, session, read_only=True)
    assert again is not None
    story += [("its session", said), ("the connection before it", until_closed(reader)), ("read", look(again))]
    story.append(("a session of the ensemble", attach(port, known, read_only=True)[0]))
    other.start()
    members.until_serving()
    story.append(("after the election", until_closed(again)))
    story.append(("a read-only session", attach(port, session, read_only=True)[0]))
    said, back = attach(port, known)
    story.append(("the session of the ensemble", said))
    assert back is not None
    story += [("write", change(back)), ("close", code(back, OpCode.CLOSE_SESSION))]
    return story


def whole_story(directory: Path, apaches: tuple[int, ...]) -> list[Story]:
    """All of the above with one ensemble."""
    directory.mkdir()
    settings = {"tickTime": _TICK_MS, "initLimit": 60, "syncLimit": 60, "maxSessionTimeout": 60_000}
    on = {"readonlymode.enabled": "true"}
    with ensemble(directory, apaches, count=2, release="3.9", **settings, **on) as members:
        members.until_serving()
        eventually(lambda: members.members[2].mode() == "leader", timeout_s=60, what="the second member leads")
        return [
            moved(members, 1, 2),
            moved(members, 2, 1),
            *(step(members, number) for step in (closed_in_the_middle, expired) for number in (1, 2)),
            without_a_quorum(members),
        ]


def test_sessions_move_end_and_meet_read_only_servers_as_with_zookeeper_3_9(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same steps with two of ours and with two of Apache's give the same answers."""
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-Dreadonlymode.enabled=true")
    ours = whole_story(tmp_path / "ours", ())
    apaches = whole_story(tmp_path / "apaches", (1, 2))
    for mine, theirs in zip(ours, apaches, strict=True):
        assert mine == theirs
