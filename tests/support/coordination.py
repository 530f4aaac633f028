"""Servers of the ZooKeeper protocol, ours and Apache's, and a client that shows what
is on the wire."""

import contextlib
import os
import select
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from barnabas.wire.jute.codec import encode
from barnabas.wire.jute.frames import (
    decode_connect_response,
    decode_reply_header,
    encode_connect_request,
    encode_multi_request,
    encode_request,
)
from barnabas.wire.jute.opcodes import OpCode, Xid
from barnabas.wire.jute.records import AuthPacket, ConnectRequest, ConnectResponse
from support.apache_ensemble import classpath
from support.ports import free_ports
from support.waiting import eventually


class RawClient:
    """One connection; frames in and out as bytes, events kept in the order of their arrival."""

    def __init__(
        self,
        port: int,
        *,
        session_id: int = 0,
        password: bytes = bytes(16),
        timeout_ms: int = 10_000,
        read_only: bool = False,
    ) -> None:
        """EOFError when the server refuses the connection.

        ``read_only`` accepts a server without a quorum."""
        self.socket = socket.create_connection(("127.0.0.1", port), 60)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.events: list[bytes] = []
        self._xid = 0
        self._buffer = b""
        request = ConnectRequest(0, 0, timeout_ms, session_id, password)
        self.socket.sendall(encode_connect_request(request, read_only))
        self.response: ConnectResponse
        self.response, self.is_read_only = decode_connect_response(self.read_frame())

    def read_frame(self) -> bytes:
        """The next frame; EOFError when the server closed."""
        size = struct.unpack(">i", self._read(4))[0]
        return self._read(size)

    def _read(self, size: int) -> bytes:
        while len(self._buffer) < size:
            data = self.socket.recv(1 << 16)
            if not data:
                raise EOFError
            self._buffer += data
        taken, self._buffer = self._buffer[:size], self._buffer[size:]
        return taken

    def send(self, opcode: int, body: object | None = None) -> int:
        """Send a request, whose body is a record or its bytes; its xid."""
        self._xid += 1
        if opcode in (OpCode.MULTI, OpCode.MULTI_READ) and isinstance(body, list):
            self.socket.sendall(encode_multi_request(self._xid, body, opcode))
        elif isinstance(body, bytes):
            frame = bytearray(encode_request(self._xid, opcode, None)) + body
            struct.pack_into(">i", frame, 0, len(frame) - 4)
            self.socket.sendall(frame)
        else:
            self.socket.sendall(encode_request(self._xid, opcode, body))
        return self._xid

    def receive(self) -> tuple[int, int, int, bytes]:
        """The next reply: xid, zxid, err, body; events before it are kept in `events`."""
        while True:
            frame = self.read_frame()
            xid, zxid, err = decode_reply_header(frame)
            if xid == Xid.WATCHER_EVENT:
                self.events.append(frame[16:])
            else:
                return xid, zxid, err, frame[16:]

    def call(self, opcode: int, body: object | None = None) -> tuple[int, int, bytes]:
        """Send a request and wait for its reply: zxid, err, body."""
        sent = self.send(opcode, body)
        xid, zxid, err, reply = self.receive()
        assert xid == sent, (xid, sent)
        return zxid, err, reply

    def authenticate(self, scheme: str, auth: bytes) -> int:
        """Add an identity; the error of the reply."""
        frame = bytearray(encode_request(Xid.AUTH, OpCode.AUTH, None)) + encode(AuthPacket(0, scheme, auth))
        struct.pack_into(">i", frame, 0, len(frame) - 4)
        self.socket.sendall(frame)
        return self.receive()[2]

    def drain_events(self, wait_s: float = 0.05) -> list[bytes]:
        """All events that came so far; the list starts empty again."""
        while self._buffer or select.select([self.socket], [], [], wait_s)[0]:
            frame = self.read_frame()
            assert decode_reply_header(frame)[0] == Xid.WATCHER_EVENT
            self.events.append(frame[16:])
        events, self.events = self.events, []
        return events

    def close(self) -> None:
        self.socket.close()

    def __del__(self) -> None:
        self.close()  # servers that are killed leave their clients behind


@dataclass
class CoordinationProcess:
    """A server process that can be stopped, killed and started again on the same data."""

    directory: Path
    port: int
    command: list[str]
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def version_dir(self) -> Path:
        return self.directory / "data" / "version-2"

    @property
    def log(self) -> str:
        return (self.directory / "log").read_text()

    def start(self) -> None:
        with (self.directory / "log").open("ab") as log:
            self.process = subprocess.Popen(
                self.command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=self.directory
            )
        eventually(self._answers, timeout_s=60, what=f"a server on port {self.port}, see {self.directory}/log")

    def _answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, f"the server ended: {self.log[-2000:]}"
        with contextlib.suppress(OSError, EOFError):
            # Apache's server answers "ruok" before it takes sessions. Now and then it leaves a word
            # unanswered that comes while it starts, so another one follows soon.
            answer = four_letter_word(self.port, b"srvr", timeout_s=5)
            return b"Mode:" in answer or b"whitelist" in answer
        return False

    def kill(self) -> None:
        assert self.process is not None
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait(60)

    def stop(self) -> int:
        assert self.process is not None
        self.process.terminate()
        return self.process.wait(60)


def four_letter_word(port: int, word: bytes, *, timeout_s: float = 30) -> bytes:
    """What a server says to a four-letter word."""
    with socket.create_connection(("127.0.0.1", port), timeout_s) as asking:
        asking.sendall(word)
        chunks = []
        while data := asking.recv(1 << 16):
            chunks.append(data)
        return b"".join(chunks)


@contextlib.contextmanager
def coordination_server(
    directory: Path, *, apache: bool = False, release: str = "3.8", start: bool = True, **settings: object
) -> Iterator[CoordinationProcess]:
    """A standalone server, ours or Apache's of release 3.8 or 3.9, with its data in
    ``directory/data``."""
    directory.mkdir(parents=True, exist_ok=True)
    (port,) = free_ports(1)
    texts = {
        "tickTime": 2000,
        "dataDir": directory / "data",
        "clientPort": port,
        "maxClientCnxns": 0,
        "4lw.commands.whitelist": "*",
        "admin.enableServer": "false",
        **settings,
    }
    config = directory / "zoo.cfg"
    config.write_text("".join(f"{name}={value}\n" for name, value in texts.items()))
    if apache:
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        command = ["java", "-Xmx256M", "-cp", classpath(release), main, str(config)]
    else:
        command = [sys.executable, "-m", "barnabas", "zookeeper-server-start", str(config)]
    server = CoordinationProcess(directory, port, command)
    try:
        if start:
            server.start()
        yield server
    finally:
        if server.process is not None and server.process.poll() is None:
            server.stop()
