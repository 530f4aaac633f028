"""The admin server and the metrics page over HTTP, on a loop inside the test's process."""

import asyncio
import contextlib
import json
import re
import socket
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path

import pytest

from barnabas.base.errors import BarnabasError, ConfigError
from barnabas.base.files import OsFiles
from barnabas.base.tasks import Runner, Task, done_here
from barnabas.coordination.admin.commands import ADMIN_COMMANDS, CHANGING_COMMANDS, answer_command
from barnabas.coordination.admin.server import AdminServer
from barnabas.coordination.core.access import digest_id
from barnabas.coordination.core.connections import Limits
from barnabas.coordination.core.database import Database
from barnabas.coordination.core.processor import Processor
from barnabas.coordination.core.sessions import SessionTracker
from barnabas.coordination.core.znode import DataNode
from barnabas.coordination.quorum.configuration import QuorumConfiguration
from barnabas.coordination.server.access_settings import PROMETHEUS_PROVIDER
from barnabas.coordination.server.four_letter_words import answer
from barnabas.coordination.server.server import CoordinationServer
from barnabas.coordination.server.settings import parse_settings
from barnabas.coordination.server.view import ServerFigures, ServerView
from barnabas.coordination.storage.snapshot import encode_snapshot
from barnabas.coordination.storage.storage import Storage
from barnabas.coordination.zab.figures import QuorumState
from barnabas.coordination.zab.learner_handler import LearnerHandler, LearnerStatistics
from barnabas.net.event_loop import new_event_loop
from barnabas.net.http import HttpResponse
from barnabas.wire.jute.codec import decode
from barnabas.wire.jute.errors import ErrorCode
from barnabas.wire.jute.opcodes import OpCode, WatcherType
from barnabas.wire.jute.records import (
    ACL,
    OPEN_ACL,
    CreateRequest,
    ExistsRequest,
    GetDataRequest,
    GetDataResponse,
    Id,
    SetACLRequest,
    SetDataRequest,
)
from support.broker import ManualClock, ManualTimers
from support.coordination import RawClient
from support.coordination_processor import Harness
from support.metrics import Metrics
from support.slicing import thread_at_once
from support.work import work_of

ON = {"admin.enableServer": "true", "metricsProvider.className": PROMETHEUS_PROVIDER}


def serve(directory: Path, use: Callable[[int, list[int]], None], **texts: str) -> None:
    """Run both servers on this thread's loop while ``use(port, HTTP ports)`` runs on another."""
    names = {
        "dataDir": str(directory),
        "clientPort": "0",
        "clientPortAddress": "127.0.0.1",
        "admin.serverAddress": "127.0.0.1",
        "admin.serverPort": "0",
        "metricsProvider.httpHost": "127.0.0.1",
        "metricsProvider.httpPort": "0",
        **texts,
    }

    async def run() -> None:
        settings = parse_settings(names)
        server = CoordinationServer(settings)
        await server.start()
        admin = AdminServer(settings, server)
        try:
            await admin.start()
            await asyncio.to_thread(use, server.port, admin.ports)
        finally:
            await admin.close()
            await server.close()

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(run())


def get(port: int, path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as response:
        return response.read().decode()


def test_it_is_off_by_default(tmp_path: Path) -> None:
    """No port is open."""
    serve(tmp_path, lambda _port, http_ports: pytest.fail("a port is open") if http_ports else None)


def test_every_command_answers_in_json_under_all_its_names(tmp_path: Path) -> None:
    """The list has a link to each; a session, its ephemerals, its watches and its
    last request are shown."""

    def ask(port: int, http_ports: list[int]) -> None:
        client = RawClient(port)
        client.call(OpCode.CREATE, CreateRequest("/e", b"x", list(OPEN_ACL), 1))
        client.call(OpCode.EXISTS, ExistsRequest("/watched", True))
        session = client.response.session_id
        answers = {}
        for name, (_, others) in ADMIN_COMMANDS.items():
            assert f'href="/commands/{name}"' in get(http_ports[0], "/commands")
            for one in (name, *others.split()):
                data = b"" if name in CHANGING_COMMANDS else None
                answers[name] = json.loads(ask_http(http_ports[0], one, data=data)[2])
                assert answers[name]["command"] == name
        assert answers["dump"]["session_id_to_ephemeral_paths"] == {str(session): ["/e"]}
        assert answers["watches_by_path"]["path_to_session_ids"] == {"/watched": [session]}
        assert answers["watches"]["session_id_to_watched_paths"] == {str(session): ["/watched"]}
        assert answers["server_stats"]["node_count"] == 6  # the root counts twice, as in ZooKeeper
        assert answers["set_trace_mask"]["error"] == "setTraceMask requires long traceMask argument"
        assert answers["leader"]["error"] == "server is not initialized"
        assert answers["voting_view"]["current_config"] == {}
        assert (answers["observers"]["synced_observers"], answers["observers"]["observers"]) == (0, [])
        assert (answers["zabstate"]["voting"], answers["zabstate"]["zabstate"]) == (False, "")
        connections = json.loads(get(http_ports[0], "/commands/connections"))["connections"]
        assert [each["session_id"] for each in connections] == [session]
        assert json.loads(ask_http(http_ports[0], "set_trace_mask?traceMask=7", data=b"")[2])["tracemask"] == 7
        assert json.loads(get(http_ports[0], "/commands/nonsense"))["error"] == "Unknown command: nonsense"
        client.close()

    serve(tmp_path, ask, **ON)


def test_no_command_changes_the_server_by_get(tmp_path: Path) -> None:
    """A link or a picture on a page of another site makes a browser send a GET: 405,
    under each name."""

    def ask(port: int, http_ports: list[int]) -> None:
        RawClient(port).close()
        before = json.loads(get(http_ports[0], "/commands/monitor"))["packets_received"]
        for name in ADMIN_COMMANDS:
            if "reset" in name or name.startswith("set_"):
                assert name in CHANGING_COMMANDS
        for name in CHANGING_COMMANDS:
            for one in (name, *ADMIN_COMMANDS[name][1].split()):
                status, _, body = ask_http(http_ports[0], f"{one}?traceMask=7")
                assert (status, body) == (405, f"{one} is a POST request\n".encode())
        assert json.loads(get(http_ports[0], "/commands/monitor"))["packets_received"] >= before
        assert json.loads(get(http_ports[0], "/commands/get_trace_mask"))["tracemask"] != 7

    serve(tmp_path, ask, **ON)


@pytest.mark.parametrize(
    ("host", "status"),
    [
        *(("evil.example", 421), ("127.0.0.1.evil.example:8080", 421), ("", 421), ("zk.example.evil", 421)),
        *(("127.0.0.1:8080", 200), ("[::1]:8080", 200), ("localhost", 200), ("ZK.example.:8080", 200)),
        (socket.gethostname(), 200),
    ],
)
def test_a_browser_that_asks_by_the_name_of_another_site_is_refused(tmp_path: Path, host: str, status: int) -> None:
    """Its page would read what the server shows (DNS rebinding); the server's own
    names are known."""

    def ask(_port: int, http_ports: list[int]) -> None:
        assert ask_http(http_ports[0], "ruok", headers={"Host": host})[0] == status
        assert ask_http(http_ports[0], "stat_reset", data=b"", headers={"Host": host})[0] == status

    serve(tmp_path, ask, **ON, **{"admin.allowedHosts": "zk.example,other"})


@pytest.mark.parametrize(("origin", "status"), [("http://evil.example", 403), ("null", 403), ("same", 200)])
def test_a_form_on_a_page_of_another_site_changes_nothing(tmp_path: Path, origin: str, status: int) -> None:
    """A browser sends its POST without a question, and names the page's site."""

    def ask(_port: int, http_ports: list[int]) -> None:
        of = f"http://127.0.0.1:{http_ports[0]}" if origin == "same" else origin
        assert ask_http(http_ports[0], "stat_reset", data=b"", headers={"Origin": of})[0] == status
        expected = 403 if status == 403 else 401
        assert ask_http(http_ports[0], "restore", data=b"x", headers={"Origin": of})[0] == expected

    serve(tmp_path, ask, **ON)


def test_no_command_shows_a_secret(tmp_path: Path) -> None:
    """Passwords and digests are hidden, and so are names that are not known."""
    secrets = {
        "DigestAuthenticationProvider.superDigest": "super:geheim=",
        "SASLAuthenticationProvider.superPassword": "geheim",
        "my.own.passwort": "geheim",
    }

    def ask(_port: int, http_ports: list[int]) -> None:
        for name in ADMIN_COMMANDS.keys() - CHANGING_COMMANDS:
            assert "geheim" not in get(http_ports[0], f"/commands/{name}")
        assert "clientPort=0" in get(http_ports[0], "/commands/icfg").replace("\\n", "\n")

    serve(tmp_path, ask, **ON, **secrets)


def test_prometheus_gets_the_figures_of_mntr(tmp_path: Path) -> None:
    """Each with its type; the names are ZooKeeper's."""

    def ask(_port: int, http_ports: list[int]) -> None:
        page = get(http_ports[1], "/metrics")
        known = Metrics(page)  # as the parser of Prometheus reads it
        assert known["znode_count"] == 5
        assert known.kinds["event_loop_slow_place_callbacks"] == "counter"
        assert known["event_loop_slow_callbacks_total"] == sum(
            known.by("place", "event_loop_slow_place_callbacks_total").values()
        )
        assert "# TYPE znode_count gauge\nznode_count 5.0\n" in page
        assert '# TYPE fsynctime summary\nfsynctime{quantile="0.5"} NaN\nfsynctime_count' in page
        assert "# TYPE commit_count counter\ncommit_count 0.0\n" in page
        with pytest.raises(urllib.error.HTTPError, match="404") as refused:
            get(http_ports[1], "/commands")
        refused.value.close()

    serve(tmp_path, ask, **ON)


OWN = [ACL(31, digest_id(b"root:geheim"))]
ROOT = {"Authorization": "digest root:geheim"}
OFTEN = {"admin.rateLimiterIntervalInMS": "0"}


def ask_http(
    port: int, path: str, *, data: bytes | None = None, headers: dict[str, str] | None = None
) -> tuple[int, Mapping[str, str], bytes]:
    """Status, headers and body; a POST with ``data``."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}/commands/{path}", data, headers or {})
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return response.status, response.headers, response.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers, error.read()


def test_a_snapshot_is_streamed_and_restored(tmp_path: Path) -> None:
    """What was written between them is gone, connections are closed, sessions of the snapshot live
    on; a restart has the same."""

    def ask(port: int, http_ports: list[int]) -> None:
        client = RawClient(port)
        client.call(OpCode.CREATE, CreateRequest("/kept", b"1", list(OPEN_ACL), 0))
        client.call(OpCode.CREATE, CreateRequest("/e", b"", list(OPEN_ACL), 1))
        client.call(OpCode.SET_ACL, SetACLRequest("/", OWN, -1))
        status, headers, snapshot = ask_http(http_ports[0], "snapshot?streaming=true", headers=ROOT)
        assert (status, headers["Content-Type"]) == (200, "application/octet-stream")
        assert (headers["last_zxid"], headers["snapshot_size"]) == ("0x4", str(len(snapshot)))
        status, headers, body = ask_http(http_ports[0], "snap?streaming=false", headers=ROOT)
        assert (status, headers["last_zxid"], json.loads(body)) == (200, "0x4", {"command": "snapshot", "error": None})
        assert client.authenticate("digest", b"root:geheim") == 0
        client.call(OpCode.SET_DATA, SetDataRequest("/kept", b"2", -1))
        client.call(OpCode.CREATE, CreateRequest("/later", b"", list(OPEN_ACL), 0))
        status, _, body = ask_http(http_ports[0], "restore", data=snapshot, headers=ROOT)
        assert (status, json.loads(body)) == (200, {"last_zxid": 4, "command": "restore", "error": None})
        with pytest.raises((EOFError, ConnectionResetError)):
            client.receive()
        session = client.response
        again = RawClient(port, session_id=session.session_id, password=session.password)
        assert again.response.session_id == session.session_id
        assert decode(GetDataResponse, again.call(OpCode.GET_DATA, GetDataRequest("/kept", False))[2]).data == b"1"
        assert again.call(OpCode.EXISTS, ExistsRequest("/later", False))[1] == ErrorCode.NO_NODE
        assert again.call(OpCode.SET_DATA, SetDataRequest("/kept", b"3", -1))[0] == 5
        again.close()

    serve(tmp_path, ask, **ON, **OFTEN)

    def look(port: int, _http_ports: list[int]) -> None:
        client = RawClient(port)
        assert decode(GetDataResponse, client.call(OpCode.GET_DATA, GetDataRequest("/kept", False))[2]).data == b"3"
        assert client.call(OpCode.EXISTS, ExistsRequest("/later", False))[1] == ErrorCode.NO_NODE
        client.close()

    serve(tmp_path, look)


def test_the_state_is_for_those_who_have_every_permission_on_the_root(tmp_path: Path) -> None:
    """Read permission alone does not do, nor a wrong password; the super user and an
    address do if the list says so."""
    super_user = {"DigestAuthenticationProvider.superDigest": digest_id(b"boss:pw").id or ""}

    def ask(port: int, http_ports: list[int]) -> None:
        client = RawClient(port)
        acl = [ACL(31, digest_id(b"root:geheim")), ACL(15, digest_id(b"bob:pw")), ACL(16, Id("world", "anyone"))]
        assert client.call(OpCode.SET_ACL, SetACLRequest("/", acl, -1))[1] == 0
        for authorization, expected in (
            (None, 401),
            ("", 401),
            ("digest", 401),
            ("kerberos x", 401),
            ("x509", 401),
            ("digest bob:pw", 200),  # each permission, if not by one entry
            ("digest root:wrong", 403),
            ("ip", 403),
            ("digest root:geheim", 200),
            ("digest boss:pw", 200),
        ):
            headers = {} if authorization is None else {"Authorization": authorization}
            assert ask_http(http_ports[0], "snapshot", headers=headers)[0] == expected, authorization
            if expected != 200:
                assert ask_http(http_ports[0], "restore", data=b"x" * 100_000, headers=headers)[0] == expected
        assert ask_http(http_ports[0], "restore", data=b"no snapshot", headers=ROOT)[0] == 500
        assert ask_http(http_ports[0], "restore", headers=ROOT)[0] == 405
        assert ask_http(http_ports[0], "snapshot", data=b"x", headers=ROOT)[0] == 405
        missing = client.call(OpCode.EXISTS, ExistsRequest("/missing", False))
        assert missing[1] == ErrorCode.NO_NODE  # the connection is still open: nothing was restored
        client.close()

    serve(tmp_path, ask, **ON, **OFTEN, **super_user)


def test_the_state_is_given_once_in_an_interval_and_not_where_it_is_off(tmp_path: Path) -> None:
    """429 before the interval is over, 503 for a command that is off."""

    def ask(_port: int, http_ports: list[int]) -> None:
        anyone = {"Authorization": "digest any:body"}  # the root is open to all
        assert ask_http(http_ports[0], "snapshot", headers=anyone)[0] == 200
        assert ask_http(http_ports[0], "snapshot", headers=anyone)[0] == 429
        status, _, body = ask_http(http_ports[0], "restore", data=b"x", headers=anyone)
        assert (status, json.loads(body)["error"]) == (503, "admin.restore.enabled is false")

    serve(tmp_path, ask, **ON, **{"admin.restore.enabled": "false"})


def test_a_snapshot_may_come_in_chunks_and_is_refused_if_it_is_cut_off(tmp_path: Path) -> None:
    """As clients send what has no known length; one that ends too early changes nothing."""

    def ask(port: int, http_ports: list[int]) -> None:
        client = RawClient(port)
        for number in range(300):
            client.call(OpCode.CREATE, CreateRequest(f"/n{number}", b"x" * 500, list(OPEN_ACL), 0))
        _, _, snapshot = ask_http(http_ports[0], "snapshot", headers=ROOT)
        assert len(snapshot) > 150_000
        head = b"POST /commands/restore HTTP/1.1\r\nAuthorization: digest a:b\r\nExpect: 100-continue\r\n"
        chunked = b"Transfer-Encoding: chunked\r\n\r\n"
        for body, status in (
            (b"Content-Length: 200000\r\n\r\n" + snapshot[:1000], b"400"),
            (b"\r\n", b"400"),
            (chunked + b"zz\r\n", b"400"),
            (chunked + b"1" * 20_000 + b"\r\n", b"400"),
            (chunked + b"%x\r\n%b\r\n0\r\n\r\n" % (len(snapshot) // 2, snapshot[: len(snapshot) // 2]), b"500"),
            (
                chunked
                + b"%x;x=1\r\n%b\r\n" % (7, snapshot[:7])
                + b"%x\r\n%b\r\n0\r\n\r\n" % (len(snapshot) - 7, snapshot[7:]),
                b"200",
            ),
        ):
            with socket.create_connection(("127.0.0.1", http_ports[0]), 60) as raw:
                raw.sendall(head + body)
                raw.shutdown(socket.SHUT_WR)
                answer = b"".join(iter(lambda raw=raw: raw.recv(1 << 16), b""))
            assert answer.removeprefix(b"HTTP/1.1 100 Continue\r\n\r\n").startswith(b"HTTP/1.1 " + status), answer
            if status == b"200":
                client = RawClient(port)
            assert client.call(OpCode.EXISTS, ExistsRequest("/n299", False))[1] == 0
        client.close()

    serve(tmp_path, ask, **ON, **OFTEN)


def test_a_restore_that_fails_after_clients_are_cut_off_stops_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the failure is: the files may be of either state."""

    def fail(_storage: Storage, *_args: object) -> None:
        raise ValueError("a defect")

    monkeypatch.setattr(Storage, "restore", fail)

    async def run() -> None:
        server = CoordinationServer(
            parse_settings({"dataDir": str(tmp_path), "clientPort": "0", "clientPortAddress": "127.0.0.1"})
        )
        await server.start()

        async def parts() -> AsyncIterator[bytes]:
            for part in encode_snapshot(Database()):
                yield part

        try:
            with pytest.raises(ValueError, match="a defect"):
                await server.restore(parts(), 0)
            async with asyncio.timeout(60):
                with pytest.raises(BarnabasError):
                    await server.wait_failed()
        finally:
            await server.close()

    asyncio.run(run())


def test_a_snapshot_that_the_disk_has_no_room_for_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """507 by the length that the request names, before the client sends it.

    In chunks, by what has come. A bad zxid is refused, too."""

    def ask(_port: int, http_ports: list[int]) -> None:
        head = b"POST /commands/restore HTTP/1.1\r\nAuthorization: digest a:b\r\nExpect: 100-continue\r\n"
        for rest, is_awaited in (
            (b"Content-Length: %d\r\n\r\n" % (1 << 50), False),
            (b"Transfer-Encoding: chunked\r\n\r\n10000\r\n" + b"x" * 0x10000, True),
        ):
            with socket.create_connection(("127.0.0.1", http_ports[0]), 60) as raw:
                raw.sendall(head + rest)
                raw.shutdown(socket.SHUT_WR)
                answer = b"".join(iter(lambda raw=raw: raw.recv(1 << 16), b""))
            assert answer.startswith(b"HTTP/1.1 100") == is_awaited
            assert b"HTTP/1.1 507 " in answer
            assert b"the disk has no room" in answer
        assert not list((tmp_path / "version-2").glob("restore*"))

    with monkeypatch.context() as patched:
        patched.setattr(OsFiles, "disk_space", lambda _self, _path: (1 << 40, (128 << 20) + 1000))
        serve(tmp_path, ask, **ON, **OFTEN)

    def send_bad(port: int, http_ports: list[int]) -> None:
        database = Database()
        database.last_zxid = -5
        status, _, body = ask_http(
            http_ports[0], "restore", data=b"".join(encode_snapshot(database)), headers={"Authorization": "digest a:b"}
        )
        assert (status, b"no server can continue" in body) == (500, True)
        RawClient(port).close()

    serve(tmp_path, send_bad, **ON, **OFTEN)


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"POST /commands/ruok HTTP/1.1\r\n\r\n", b"405"),
        (b"PUT /commands/ruok HTTP/1.1\r\n\r\n", b"405"),
        (b"GET / HTTP/1.1\r\n\r\n", b"404"),
        (b"GET /commands/../etc HTTP/1.1\r\n\r\n", b"200"),
        (b"hello\r\n\r\n", b"400"),
        (b"GET http://[ HTTP/1.1\r\n\r\n", b"400"),
        (b"GET /" + b"x" * 20_000 + b" HTTP/1.1\r\n\r\n", b"431"),
    ],
)
def test_what_is_no_request_for_a_command_is_refused(tmp_path: Path, request_bytes: bytes, status: bytes) -> None:
    """With the status of HTTP; the connection ends."""

    def ask(_port: int, http_ports: list[int]) -> None:
        with socket.create_connection(("127.0.0.1", http_ports[0]), 10) as raw:
            raw.sendall(request_bytes)
            assert raw.recv(1000).startswith(b"HTTP/1.1 " + status)

    serve(tmp_path, ask, **ON)


def test_a_client_that_is_slow_loses_its_connection(tmp_path: Path) -> None:
    """A request has a time limit, admin.idleTimeout."""

    def ask(_port: int, http_ports: list[int]) -> None:
        with socket.create_connection(("127.0.0.1", http_ports[0]), 10) as raw:
            raw.sendall(b"GET /comm")
            with contextlib.suppress(ConnectionResetError):
                assert raw.recv(1000) == b""

    serve(tmp_path, ask, **ON, **{"admin.idleTimeout": "50"})


def test_a_port_that_is_taken_ends_the_start_with_its_setting(tmp_path: Path) -> None:
    """The error names the setting and the port."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        with pytest.raises(ConfigError, match=rf"127.0.0.1:{port} \(admin.serverPort\)"):
            serve(tmp_path, lambda *_: None, **ON, **{"admin.serverPort": port})


def member_view(my_id: int, *, is_serving: bool = True) -> ServerView:
    """A member of an ensemble of two voters, of which 2 leads, and the observer 3."""
    lines = {"server.1": "one:2888:3888", "server.2": "two:2888:3888;2182", "server.3": "three:2888:3888:observer"}
    settings = parse_settings(
        {"dataDir": "/data", "clientPort": "2181", "tickTime": "2000", "initLimit": "5", "syncLimit": "5", **lines}
    )
    database = Database()
    database.last_zxid = 0x300000007
    timers = ManualTimers(ManualClock())
    processor = Processor(
        database,
        SessionTracker(2000, 1, 0),
        Limits(min_session_timeout_ms=4000, max_session_timeout_ms=40_000),
        0,
        runner=Runner(timers.clock, timers, thread_at_once),
    )
    observer = LearnerHandler(None, 0, server_id=3, acked_zxid=0x300000000)  # type: ignore[arg-type]  # without a connection
    observer.statistics = LearnerStatistics("10.0.0.3:40000", 900, received=5, sent=6, requests=1)
    observers = [observer] if my_id == 2 else []
    quorum = QuorumState(QuorumConfiguration.parse(lines), my_id, 2, "broadcast", observers)
    mode = {1: "follower", 2: "leader", 3: "observer"}[my_id]
    figures = {"last_proposal_size": 48, "min_proposal_size": 32, "max_proposal_size": 64} if my_id == 2 else {}
    state = ServerFigures(
        mode, my_id, 2181, is_serving=is_serving, now_ms=1000, wall_ms=5000, member=figures, quorum=quorum
    )
    return ServerView(processor, [], settings, state)


def ask(view: ServerView, name: str) -> dict[str, object]:
    """A command's answer, without what all have."""
    found = json.loads(done_here(answer_command(view, name, {}, "/commands")).body)
    assert found.pop("command") in ADMIN_COMMANDS
    assert found.pop("error") is None
    return found


def test_members_show_their_ports_and_a_leader_its_proposals_in_words_too() -> None:
    """conf names the ports of the server's own line; srvr has a line more on a leader."""
    shown = member_view(2).configuration()
    assert (shown["electionPort"], shown["quorumPort"], shown["peerType"]) == (3888, 2888, 0)
    assert done_here(answer(b"srvr", member_view(2))).endswith(b"Proposal sizes last/min/max: 48/32/64\n")
    assert b"Proposal" not in done_here(answer(b"srvr", member_view(1)))


@pytest.mark.parametrize(
    ("opcode", "shown"), [(0, "NA"), (OpCode.CLOSE_SESSION, "CLOS"), (99, "NA"), (245, "NA"), (-2, "NA")]
)
def test_connections_are_listed_whatever_opcode_a_client_has_sent(opcode: int, shown: str) -> None:
    """A client chooses the number: one that this server does not know must not end
    the command for all."""
    harness = Harness()
    client = harness.connect()
    client.send(opcode)
    view = ServerView(harness.processor, [client.connection], member_view(1).settings, member_view(1).state)
    assert [each["last_operation"] for each in ask(view, "connections")["connections"]] == [shown]


def test_members_show_their_leader_voters_and_observers_as_apaches() -> None:
    """The names and forms are those of ZooKeeper 3.9.4's admin server."""
    assert ask(member_view(1), "lead") == {"is_leader": False, "leader_id": 2, "leader_ip": "two"}
    assert ask(member_view(2), "leader") == {"is_leader": True, "leader_id": 2, "leader_ip": "two"}
    assert ask(member_view(1), "observers") == {"synced_observers": 0, "observers": []}
    assert ask(member_view(2), "server_stats")["proposal_stats"] == {
        "last_buffer_size": 48,
        "min_buffer_size": 32,
        "max_buffer_size": 64,
    }
    assert "proposal_stats" not in ask(member_view(1), "server_stats")
    assert ask(member_view(1), "voting_view")["current_config"] == {
        "1": {
            "server_addresses": ["one:2888"],
            "election_addresses": ["one:3888"],
            "client_address": "0.0.0.0:2181",
            "learner_type": "participant",
        },
        "2": {
            "server_addresses": ["two:2888"],
            "election_addresses": ["two:3888"],
            "client_address": "0.0.0.0:2182",
            "learner_type": "participant",
        },
    }


def test_a_leader_counts_the_packets_of_its_observers_until_it_is_asked_to_begin_again() -> None:
    """The time of the connection stays."""
    leader = member_view(2)
    shown = {
        "remote_socket_address": "/10.0.0.3:40000",
        "sid": 3,
        "established": 4900,
        "queued_packets": 0,
        "queued_packets_size": 0,
        "packets_received": 5,
        "packets_sent": 6,
        "requests": 1,
        "last_zxid": 0x300000000,
    }
    assert ask(leader, "obsr") == {"synced_observers": 1, "observers": [shown]}
    assert ask(leader, "orst") == {}
    zero = dict.fromkeys(("packets_received", "packets_sent", "requests"), 0)
    assert ask(leader, "obsr")["observers"] == [{**shown, **zero}]


def test_zabstate_shows_epoch_and_counter_of_the_last_zxid_and_answers_without_service() -> None:
    """An observer has no vote. During an election there is no state."""
    found = ask(member_view(3), "zabstate")
    one_address = found.pop("quorum_address")
    assert isinstance(one_address, dict)
    assert one_address["one"] == "three:2888"
    assert one_address["wildcard_addresses"] == ["0.0.0.0:2888"]
    del found["election_address"]
    assert found == {
        "myid": 3,
        "is_leader": False,
        "client_address": "0.0.0.0:2181",
        "voting": False,
        "last_zxid": "0x300000007",
        "zab_epoch": 3,
        "zab_counter": 7,
        "zabstate": "broadcast",
    }
    assert ask(member_view(1), "zabstate")["voting"] is True
    assert ask(member_view(1, is_serving=False), "zabstate") == {"voting": False, "zabstate": ""}
    refused = json.loads(done_here(answer_command(member_view(1, is_serving=False), "ruok", {}, "/commands")).body)
    assert refused["error"] == "This ZooKeeper instance is not currently serving requests"


def crowded_view(clients: int, watches: int, ephemerals: int) -> ServerView:
    """A server with so many of each, all of one session but for the connections."""
    harness = Harness()
    connected = [harness.connect() for _ in range(clients)]
    processor, client = harness.processor, connected[0].connection
    for number in range(watches):
        processor.watches.add_data(f"/watched/{number * 7919 % watches}", client)
    tree = processor.database.tree
    for number in range(ephemerals):
        path = f"/e{number}"
        tree.put(path, DataNode.new(path, b"", OPEN_ACL, client.session_id, 1, 1))
    settings = parse_settings({"dataDir": "/data", "clientPort": "2181", "4lw.commands.whitelist": "*"})
    state = ServerFigures("standalone", 0, 2181, now_ms=harness.now_ms, wall_ms=harness.wall_ms)
    return ServerView(processor, [each.connection for each in connected], settings, state)


@pytest.mark.parametrize(
    ("shown", "pattern"),
    [
        ("stat", rb"recved=()"),
        ("cons", rb"recved=()"),
        ("dump", rb"\t/e(\d+)\n"),
        ("wchp", rb"(?m)^/watched/(\d+)$"),
        ("wchc", rb"\t/watched/(\d+)\n"),
        ("stats", rb"\"remote_socket_address\"()"),
        ("connections", rb"\"remote_socket_address\"()"),
        ("watches", rb"\"/watched/(\d+)\""),
    ],
)
def test_long_lists_are_shown_in_steps(shown: str, pattern: bytes) -> None:
    """Each step does a small part of the work; what changes between two of them does no harm, and
    what stays is shown once."""
    view = crowded_view(600, 6000, 6000)

    def begin() -> Task[object]:
        # "stats" begins with a word.
        words = answer(shown.encode(), view) if len(shown) == 4 else None
        return words if words is not None else answer_command(view, shown, {}, "/commands")

    steps: list[int] = []
    slices = begin()
    results: list[object] = []

    def step() -> None:
        try:
            next(slices)
        except StopIteration as end:
            results.append(end.value)

    processor = view.processor
    while not results:
        steps.append(work_of(step))
        if len(steps) == 3:
            for number in range(0, 6000, 2):
                processor.watches.remove(f"/watched/{number}", view.connections[0], WatcherType.ANY)
                processor.database.tree.remove(f"/e{number}")
    assert max(steps) < 10_000
    assert len(steps) > 5
    (result,) = results
    found = re.findall(pattern, result.body if isinstance(result, HttpResponse) else result)
    if b"" in found:
        assert len(found) == len(view.connections) == 600
    else:
        assert sorted(int(number) for number in found if int(number) % 2) == list(range(1, 6000, 2))
        assert len(set(found)) == len(found)


def test_watches_of_data_are_counted_without_a_look_at_each() -> None:
    """For wchs and mntr, where no path is watched for its children too."""
    works = []
    for count in (100, 10_000):
        watches = crowded_view(1, count, 0).processor.watches
        works.append(work_of(lambda watches=watches: (len(watches), watches.counts())))
        assert watches.counts() == (1, count, count)
    assert works[0] == works[1]
