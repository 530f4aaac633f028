"""The audit log: which line belongs to which request, and what becomes of those that
are refused."""

import pytest

from barnabas.coordination.core.audit import AuditLog
from barnabas.coordination.core.changes import Change
from barnabas.wire.jute.errors import ErrorCode
from barnabas.wire.jute.frames import encode_multi_request, encode_request
from barnabas.wire.jute.opcodes import OpCode
from barnabas.wire.jute.records import OPEN_ACL, CheckVersionRequest, CreateRequest, DeleteRequest, SetDataRequest
from support.coordination_processor import Client, Harness

OPEN = list(OPEN_ACL)


class Audited(Harness):
    """A processor with an audit log."""

    def __init__(self, **limits: int) -> None:
        self.written: list[str] = []
        self.auditor = AuditLog(self.written.append, "zookeeper")
        super().__init__(auditor=self.auditor, **limits)

    def take(self) -> list[str]:
        """The operations, nodes and results of the lines since the last time."""
        lines, self.written[:] = [line.split("\t")[3:] for line in self.written], []
        return [" ".join(field.partition("=")[2] for field in line) for line in lines]

    @property
    def pending(self) -> int:
        return sum(map(len, self.auditor._pending.values()))


@pytest.fixture
def harness() -> Audited:
    return Audited()


def create(path: str, flags: int = 0) -> CreateRequest:
    return CreateRequest(path, b"", OPEN, flags)


def test_requests_with_the_same_xid_have_a_line_each(harness: Audited) -> None:
    """The client chooses the xid, and so must not be able to hide a request behind another one."""
    client = harness.connect()
    client.call(OpCode.CREATE, create("/secret"))
    harness.take()
    client.receive(bytes(encode_request(5, OpCode.CREATE, create("/innocent")))[4:])
    client.receive(bytes(encode_request(5, OpCode.DELETE, DeleteRequest("/secret", -1)))[4:])
    client.receive(bytes(encode_request(5, OpCode.DELETE, DeleteRequest("/nothing", -1)))[4:])
    harness.sync()
    assert harness.take() == [
        "create /innocent persistent success",
        "delete /secret success",
        "delete /nothing failure",
    ]


def test_a_request_that_is_not_audited_takes_no_line_of_another(harness: Audited) -> None:
    """Reads, the end of the session, and what cannot be decoded."""
    client = harness.connect()
    client.receive(bytes(encode_request(1, OpCode.CREATE, create("/a")))[4:])
    client.receive(bytes(encode_request(1, OpCode.DELETE, None))[4:])
    client.receive(bytes(encode_request(1, OpCode.SET_DATA, SetDataRequest("/a", b"", -1)))[4:])
    client.receive(bytes(encode_request(1, OpCode.CLOSE_SESSION, None))[4:])
    harness.sync()
    assert harness.take() == ["create /a persistent success", "setData /a success"]
    assert not harness.pending


@pytest.mark.parametrize(
    "parts",
    [
        [(OpCode.CREATE, create("/x" * 40, 99))],
        [(OpCode.DELETE, DeleteRequest("/a", -1))] * 4,
        [(OpCode.CREATE, create("/m")), (OpCode.DELETE, DeleteRequest("/nothing", -1))],
        [(OpCode.CHECK, CheckVersionRequest("/nothing", 9))],
    ],
    ids=["a mode that does not exist", "more parts than allowed", "a part that fails", "a check that fails"],
)
def test_a_multi_that_fails_is_one_line_and_leaves_nothing_behind(parts: list[tuple[int, object]]) -> None:
    """Also one that is refused before it is decided: it is not kept until the client
    disconnects."""
    harness = Audited(max_multi_operations=3)
    client = harness.connect()
    for _ in range(3):
        client.call(OpCode.MULTI, parts)
    assert harness.take() == ["multiOperation failure"] * 3
    assert not harness.pending
    harness.processor.disconnected(client.connection)
    assert harness.take() == []


def test_a_refused_multi_among_pending_writes_has_its_own_line(harness: Audited) -> None:
    """The lines of the writes before and after it keep their results."""
    client = harness.connect()
    client.send(OpCode.CREATE, create("/a"))
    client.send(OpCode.MULTI, [(OpCode.CREATE, create("/b", 99))])
    client.send(OpCode.DELETE, DeleteRequest("/nothing", -1))
    harness.sync()
    assert harness.take() == ["multiOperation failure", "create /a persistent success", "delete /nothing failure"]


def test_a_multi_that_succeeds_has_a_line_for_each_part_that_changes_something(harness: Audited) -> None:
    """With the path that a sequential node has; a check changes nothing."""
    client = harness.connect()
    parts = [
        (OpCode.CREATE, create("/a")),
        (OpCode.CHECK, CheckVersionRequest("/a", 0)),
        (OpCode.CREATE, create("/s-", 2)),
    ]
    assert client.call(OpCode.MULTI, parts)[0] == 0
    assert harness.take() == ["create /a persistent success", "create /s-0000000001 persistent_sequential success"]


def test_writes_that_a_read_only_server_refuses_are_failures_at_once() -> None:
    """They go to no leader, and so have no answer to wait for."""
    written: list[str] = []
    harness = Harness(read_only=True, auditor=AuditLog(written.append, "zookeeper"))
    client = Client(harness, read_only=True)
    client.connected()
    assert client.call(OpCode.CREATE, create("/a"))[0] == ErrorCode.NOT_READ_ONLY
    assert [line.split("\t")[3:] for line in written] == [
        ["operation=create", "znode=/a", "znode_type=persistent", "result=failure"]
    ]
    harness.processor.disconnected(client.connection)
    assert len(written) == 1


def test_what_the_leader_does_is_written_although_this_server_cannot_decode_it(harness: Audited) -> None:
    """The line then has what the transaction says."""
    client = harness.connect()
    data = bytes(encode_multi_request(1, [(OpCode.DELETE, DeleteRequest("/a", -1))]))[4:-9]
    harness.auditor.received(client.connection, OpCode.MULTI, data)
    parts = [Change(OpCode.DELETE, "/a"), Change(OpCode.CHECK, "/b")]
    harness.auditor.answered(client.connection, OpCode.MULTI, Change(OpCode.MULTI, parts=parts))
    assert harness.take() == ["delete /a success"]


def test_requests_without_an_answer_at_the_end_of_the_connection_are_written_as_invoked(harness: Audited) -> None:
    """Their client does not know either what became of them."""
    client = harness.connect()
    client.send(OpCode.CREATE, create("/a"))
    harness.processor.disconnected(client.connection)
    harness.sync()
    assert harness.take() == ["create /a persistent invoked"]
    assert not harness.pending


def test_ephemerals_of_a_session_that_ends_are_in_the_audit_log_of_each_member(harness: Audited) -> None:
    """As in ZooKeeper, whose members each remove them; the session's client may have
    been at any of them."""
    client = harness.connect()
    client.call(OpCode.CREATE, create("/e", 1))
    client.call(OpCode.CLOSE_SESSION)
    written: list[str] = []
    member = Harness(read_only=True, auditor=AuditLog(written.append, "zookeeper"))
    member.processor.apply(harness.log, member.now_ms, member.wall_ms)
    assert "/e" not in member.processor.database.tree.nodes
    (line,) = written
    assert line == harness.written[-1]
    assert line.endswith("operation=ephemeralZNodeDeletionOnSessionCloseOrExpire\tznode=/e\tresult=success")
