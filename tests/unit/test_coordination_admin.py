"""The admin server and the metrics page over HTTP, on a loop inside the test's process."""

import asyncio
import contextlib
import json
import socket
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from barnabas.base.errors import ConfigError
from barnabas.coordination.admin.commands import ADMIN_COMMANDS
from barnabas.coordination.admin.server import AdminServer
from barnabas.coordination.server.access_settings import PROMETHEUS_PROVIDER
from barnabas.coordination.server.server import CoordinationServer
from barnabas.coordination.server.settings import parse_settings
from barnabas.wire.jute.opcodes import OpCode
from barnabas.wire.jute.records import OPEN_ACL, CreateRequest, ExistsRequest
from support.coordination import RawClient

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
        admin = AdminServer(settings, server.view)
        try:
            await admin.start()
            await asyncio.to_thread(use, server.port, admin.ports)
        finally:
            await admin.close()
            await server.close()

    asyncio.run(run())


def get(port: int, path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as response:
        return response.read().decode()


def test_it_is_off_by_default(tmp_path: Path) -> None:
    """No port is open."""
    serve(tmp_path, lambda _port, http_ports: pytest.fail("a port is open") if http_ports else None)


def test_every_command_answers_in_json_under_all_its_names(tmp_path: Path) -> None:
    """The list has a link to each; a session, its ephemerals, its watches and its last request are shown."""

    def ask(port: int, http_ports: list[int]) -> None:
        client = RawClient(port)
        client.call(OpCode.CREATE, CreateRequest("/e", b"x", list(OPEN_ACL), 1))
        client.call(OpCode.EXISTS, ExistsRequest("/watched", True))
        session = client.response.session_id
        answers = {}
        for name, (_, others) in ADMIN_COMMANDS.items():
            assert f'href="/commands/{name}"' in get(http_ports[0], "/commands")
            for one in (name, *others.split()):
                answers[name] = json.loads(get(http_ports[0], f"/commands/{one}"))
                assert answers[name]["command"] == name
        assert answers["dump"]["session_id_to_ephemeral_paths"] == {str(session): ["/e"]}
        assert answers["watches_by_path"]["path_to_session_ids"] == {"/watched": [session]}
        assert answers["watches"]["session_id_to_watched_paths"] == {str(session): ["/watched"]}
        assert answers["server_stats"]["node_count"] == 6  # the root counts twice, as in ZooKeeper
        assert answers["set_trace_mask"]["error"]
        connections = json.loads(get(http_ports[0], "/commands/connections"))["connections"]
        assert [each["session_id"] for each in connections] == [session]
        assert json.loads(get(http_ports[0], "/commands/set_trace_mask?traceMask=7"))["tracemask"] == 7
        assert json.loads(get(http_ports[0], "/commands/nonsense"))["error"] == "Unknown command: nonsense"
        client.close()

    serve(tmp_path, ask, **ON)


def test_no_command_shows_a_secret(tmp_path: Path) -> None:
    """Passwords and digests are hidden, and so are names that are not known."""
    secrets = {
        "DigestAuthenticationProvider.superDigest": "super:geheim=",
        "SASLAuthenticationProvider.superPassword": "geheim",
        "my.own.passwort": "geheim",
    }

    def ask(_port: int, http_ports: list[int]) -> None:
        for name in ADMIN_COMMANDS:
            assert "geheim" not in get(http_ports[0], f"/commands/{name}")
        assert "clientPort=0" in get(http_ports[0], "/commands/icfg").replace("\\n", "\n")

    serve(tmp_path, ask, **ON, **secrets)


def test_prometheus_gets_the_figures_of_mntr(tmp_path: Path) -> None:
    """Each with its type; the names are ZooKeeper's."""

    def ask(_port: int, http_ports: list[int]) -> None:
        page = get(http_ports[1], "/metrics")
        assert "# TYPE znode_count gauge\nznode_count 5.0\n" in page
        assert "# TYPE fsynctime summary\nfsynctime_count" in page
        assert "# TYPE commit_count counter\ncommit_count 0.0\n" in page
        with pytest.raises(urllib.error.HTTPError, match="404"):
            get(http_ports[1], "/commands")

    serve(tmp_path, ask, **ON)


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"POST /commands/ruok HTTP/1.1\r\n\r\n", b"405"),
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
