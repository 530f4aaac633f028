"""The coordination server killed, fed with hostile bytes, and on a disk that fails."""

import contextlib
import os
import random
import socket
import struct
import subprocess
import threading
import time
from pathlib import Path

import pytest

from barnabas.wire.jute.codec import decode
from barnabas.wire.jute.errors import ErrorCode
from barnabas.wire.jute.frames import encode_connect_request, encode_request
from barnabas.wire.jute.opcodes import OpCode
from barnabas.wire.jute.records import (
    OPEN_ACL,
    ConnectRequest,
    CreateRequest,
    DeleteRequest,
    GetChildrenRequest,
    GetChildrenResponse,
    GetDataRequest,
    GetDataResponse,
    SetDataRequest,
)
from support.coordination import CoordinationProcess, RawClient, coordination_server, four_letter_word
from support.needs import needs
from support.promptness import PROMISED_S, promptly, read_to_the_end
from support.waiting import eventually

pytestmark = [pytest.mark.interop, pytest.mark.fault]

OPEN = list(OPEN_ACL)
TRIALS = int(os.environ.get("BARNABAS_KILL_TRIALS", "3"))
SEED = 7


class Writer(threading.Thread):
    """Creates nodes and counts one up until the server dies; remembers what was acknowledged."""

    def __init__(self, port: int, name: str) -> None:
        super().__init__(daemon=True)
        self.port = port
        self.prefix = name
        self.created: list[str] = []
        self.version = -1
        self.sent = 0

    def run(self) -> None:
        with contextlib.suppress(OSError, EOFError):
            client = RawClient(self.port)
            assert client.call(OpCode.CREATE, CreateRequest(f"/{self.prefix}", b"", OPEN, 0))[1] == 0
            for number in range(1_000_000):
                path = f"/{self.prefix}/n{number}"
                client.send(OpCode.CREATE, CreateRequest(path, path.encode(), OPEN, 0))
                client.send(OpCode.SET_DATA, SetDataRequest(f"/{self.prefix}", b"%d" % number, number))
                self.sent = number + 1
                assert client.receive()[2] == 0
                self.created.append(path)
                assert client.receive()[2] == 0
                self.version = number + 1


def test_nothing_acknowledged_is_lost_when_the_server_is_killed(tmp_path: Path, record_property) -> None:
    """kill -9 under load, repeatedly: every acknowledged node and version is there
    after the restart."""
    rng = random.Random(SEED)
    acknowledged = 0
    with coordination_server(tmp_path, snapCount=500, preAllocSize=64) as server:
        for trial in range(TRIALS):
            writers = [Writer(server.port, f"t{trial}w{number}") for number in range(3)]
            for writer in writers:
                writer.start()
            eventually(lambda: sum(len(writer.created) for writer in writers) > 100, what="100 nodes acknowledged")  # noqa: B023  # called here
            time.sleep(rng.uniform(0, 0.7))  # the moment of the kill is what varies
            server.kill()
            for writer in writers:
                writer.join(60)
            server.start()
            client = RawClient(server.port)
            for writer in writers:
                acknowledged += check(client, writer)
            client.close()
    record_property("acknowledged", acknowledged)
    record_property("kills, their moments from seed", [TRIALS, SEED])
    assert acknowledged > 100 * TRIALS


def check(client: RawClient, writer: Writer) -> int:
    for path in writer.created:
        _, err, body = client.call(OpCode.GET_DATA, GetDataRequest(path, False))
        assert err == 0, f"{path} was acknowledged and is lost"
        assert decode(GetDataResponse, body).data == path.encode()
    _, err, body = client.call(OpCode.GET_DATA, GetDataRequest(f"/{writer.prefix}", False))
    stat = decode(GetDataResponse, body).stat
    assert writer.version <= stat.version <= writer.sent
    _, _, body = client.call(OpCode.GET_CHILDREN, GetChildrenRequest(f"/{writer.prefix}", False))
    assert len(writer.created) <= len(decode(GetChildrenResponse, body).children) <= writer.sent
    return len(writer.created)


@needs("strace")
@pytest.mark.parametrize("when", ["8+", "8"])
def test_a_failed_sync_stops_the_server_without_an_acknowledgement(tmp_path: Path, when: str) -> None:
    """EIO from fdatasync, always or once: no reply, the process ends with 1 and says why;
    acknowledged writes are there."""
    with coordination_server(tmp_path, start=False) as server:
        plain = list(server.command)
        server.command = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=fdatasync"]
        server.command += ["-e", f"inject=fdatasync:error=EIO:when={when}", *plain]
        server.start()
        client = RawClient(server.port)
        made = 0
        with contextlib.suppress(EOFError, OSError):
            # Four are always on their way, so that there is one to sync after the failure.
            for number in range(100):
                client.send(OpCode.CREATE, CreateRequest(f"/n{number}", b"", OPEN, 0))
                if number > 2:
                    assert client.receive()[2] == 0
                    made += 1
        assert 0 < made < 100
        assert server.process.wait(60) == 1
        assert "cannot be written" in server.log
        server.command = plain
        server.start()
        client = RawClient(server.port)
        for number in range(made):
            assert client.call(OpCode.GET_DATA, GetDataRequest(f"/n{number}", False))[1] == 0


# Hostile bytes

LIMIT = 1_048_575
CONNECT = bytes(encode_connect_request(ConnectRequest(0, 0, 10_000, 0, bytes(16))))


def resident_kb(server: CoordinationProcess) -> int:
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0])


def assert_closed(server: CoordinationProcess, connection: socket.socket, what: object) -> None:
    with promptly(server.process.pid, what):
        read_to_the_end(connection)


def test_frames_of_an_impossible_size_close_the_connection(tmp_path: Path) -> None:
    """Sizes below zero and above the limit, before and after the session; other
    clients are served."""
    with coordination_server(tmp_path) as server:
        healthy = RawClient(server.port)
        healthy.call(OpCode.CREATE, CreateRequest("/a", b"x", OPEN, 0))
        before_kb = resident_kb(server)
        for established in (False, True):
            for size in (-(1 << 31), -1, LIMIT + 1, (1 << 31) - 1):
                with socket.create_connection(("127.0.0.1", server.port)) as hostile:
                    if established:
                        hostile.sendall(CONNECT)
                        assert hostile.recv(100)
                    hostile.sendall(struct.pack(">i", size) + b"x" * 100)
                    assert_closed(server, hostile, (established, size))
                assert healthy.call(OpCode.GET_DATA, GetDataRequest("/a", False))[1] == 0
        for body in (b"", b"\0", b"\0" * 3, b"\xff" * 44, b"\0" * 2000):
            with socket.create_connection(("127.0.0.1", server.port)) as hostile:
                hostile.sendall(struct.pack(">i", len(body)) + body)
                assert_closed(server, hostile, body[:10])
        assert resident_kb(server) - before_kb < 16 * 1024


def test_lengths_inside_of_requests_cost_no_memory(tmp_path: Path) -> None:
    """Counts of 20 million and the like in each field: an error, and the connection
    goes on or is closed."""
    with coordination_server(tmp_path) as server:
        before_kb = resident_kb(server)
        for lie in (-2, -1, 1000, 20_000_000, (1 << 31) - 1):
            count = struct.pack(">i", lie)
            for opcode, head in (
                (OpCode.GET_DATA, b""),
                (OpCode.CREATE, b"\0\0\0\x02/a"),
                (OpCode.CREATE, b"\0\0\0\x02/a\0\0\0\0"),
                (OpCode.SET_WATCHES, bytes(8)),
                (OpCode.SET_ACL, b"\0\0\0\x02/a"),
                (OpCode.MULTI, b"\0\0\0\x01\0\xff\xff\xff\xff"),
            ):
                client = RawClient(server.port)
                _, err, _ = client.call(opcode, head + count)
                assert err < 0, (lie, opcode)
                client.close()
        assert resident_kb(server) - before_kb < 16 * 1024
        assert four_letter_word(server.port, b"ruok") == b"imok"


def test_connections_of_one_address_are_limited_and_silent_ones_closed(tmp_path: Path) -> None:
    """maxClientCnxns and nio.sessionlessCnxnTimeout."""
    with coordination_server(tmp_path, maxClientCnxns=20, **{"nio.sessionlessCnxnTimeout": 1500}) as server:
        silent = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(20)]
        with socket.create_connection(("127.0.0.1", server.port)) as extra:
            assert_closed(server, extra, "one connection too many")
        with promptly(server.process.pid, "closing silent connections", limit_s=1.5 + PROMISED_S):
            for each in silent:
                read_to_the_end(each)
                each.close()
        eventually(lambda: four_letter_word(server.port, b"ruok") == b"imok")


def test_connections_of_all_addresses_are_limited(tmp_path: Path) -> None:
    """maxCnxns; those that are there are served."""
    with coordination_server(tmp_path, maxCnxns=2) as server:
        client, other = RawClient(server.port), RawClient(server.port)
        with socket.create_connection(("127.0.0.2", server.port), source_address=("127.0.0.3", 0)) as extra:
            assert_closed(server, extra, "one connection too many")
        for each in (client, other):
            assert each.call(OpCode.GET_DATA, GetDataRequest("/", False))[1] == 0


def test_a_client_that_does_not_read_its_replies_costs_bounded_memory(tmp_path: Path) -> None:
    """A megabyte per reply, a thousand requests, nothing read."""
    with coordination_server(tmp_path) as server:
        client = RawClient(server.port)
        client.call(OpCode.CREATE, CreateRequest("/big", b"x" * 1_000_000, OPEN, 0))
        before_kb = resident_kb(server)
        client.socket.sendall(bytes(encode_request(1, OpCode.GET_DATA, GetDataRequest("/big", False))) * 1000)
        assert four_letter_word(server.port, b"ruok") == b"imok"
        time.sleep(0.3)  # let it fill what it would fill
        assert resident_kb(server) - before_kb < 64 * 1024
        with RawClient(server.port).socket:
            assert four_letter_word(server.port, b"ruok") == b"imok"
        client.close()


def test_a_tree_of_5000_levels_is_created_restarted_on_and_deleted(tmp_path: Path) -> None:
    """Nothing recurses, in snapshots and logs either, and another client is answered in time."""
    paths = ["/d" * level for level in range(1, 5001)]
    with coordination_server(tmp_path, snapCount=4000) as server:
        assert server.process is not None
        other = RawClient(server.port)
        client = RawClient(server.port)
        client.socket.settimeout(60)
        for kind in (OpCode.CREATE, OpCode.DELETE):
            for start in range(0, len(paths), 50):
                part = paths[start : start + 50] if kind == OpCode.CREATE else paths[::-1][start : start + 50]
                for path in part:
                    create = kind == OpCode.CREATE
                    client.send(kind, CreateRequest(path, b"", OPEN, 0) if create else DeleteRequest(path, -1))
                if start % 1000 == 0:
                    with promptly(server.process.pid, "a read beside it"):
                        assert other.call(OpCode.GET_DATA, GetDataRequest("/", False))[1] == 0
                assert [client.receive()[2] for _ in part] == [0] * len(part)
            server.kill()
            server.start()
            other, client = RawClient(server.port), RawClient(server.port)
            client.socket.settimeout(60)
            expected = 0 if kind == OpCode.CREATE else ErrorCode.NO_NODE
            assert client.call(OpCode.GET_DATA, GetDataRequest(paths[-1], False))[1] == expected
        assert list(server.version_dir.glob("snapshot.[1-9a-f]*"))


# Wrong configurations


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"server.1": "a:1:2", "server.2": "b:1:2"}, "initLimit is not set"),
        ({"tickTime": "soon"}, "tickTime"),
        ({"clientPort": "99999"}, "clientPort"),
        ({"dataDir": "/proc/nowhere"}, "/proc/nowhere"),
        ({"minSessionTimeout": "9000", "maxSessionTimeout": "100"}, "minSessionTimeout"),
    ],
    ids=["ensemble", "number", "port", "directory", "bounds"],
)
def test_an_unusable_configuration_is_explained(tmp_path: Path, change: dict[str, str], said: str) -> None:
    """One line that names the setting, no traceback; the exit status is Apache's 2 for
    what is wrong in the file."""
    with coordination_server(tmp_path, start=False, **change) as server:
        done = subprocess.run(server.command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == (1 if "dataDir" in change else 2)
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_a_port_or_directory_in_use_is_explained(tmp_path: Path) -> None:
    """A second server on the same settings ends at once."""
    with coordination_server(tmp_path) as server:
        done = subprocess.run(server.command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 1
        assert "another server uses the data directory" in done.stderr
        other = [*server.command, "--override", f"dataDir={tmp_path / 'other'}"]
        done = subprocess.run(other, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 1
        assert f"{server.port} (clientPort)" in done.stderr
        assert server.stop() == 0
