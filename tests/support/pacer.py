"""A producer of one record each millisecond, in a process of its own: what a client sees while a
broker does something else.

``python -m support.pacer PORT TOPIC`` sends a record each millisecond to partition 0, whether or
not the ones before are answered. For each line on its standard input it prints a line of JSON
about the records sent since the last line, once they are all answered: how many, how many
refused, the longest answer time and its percentiles in milliseconds, and for how long this
process waited for a CPU.
"""

import json
import select
import socket
import struct
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from barnabas.wire.kafka.codec import decode
from barnabas.wire.kafka.frames import decode_response_header, encode_request
from barnabas.wire.kafka.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from barnabas.wire.kafka.records.records import Record, build_batch
from support.promptness import waited_for_cpu_s

__all__ = ["Pacer", "pacing"]

_VERSION = 9
_PERIOD_S = 0.001
_MAX_UNANSWERED = 20_000
_CORRELATION_ID_AT = 8
_LENGTH = struct.Struct(">i")
_TESTS = Path(__file__).parents[1]


class Pacer:
    """The process, from outside."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def since(self) -> dict[str, Any]:
        """What became of the records sent since the last call."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        figures: dict[str, Any] = json.loads(self._process.stdout.readline())
        return figures

    def stop(self) -> None:
        """End it, before what it produces to goes away."""
        self._process.kill()
        self._process.wait()


@contextmanager
def pacing(port: int, topic: str) -> Iterator[Pacer]:
    """Produce to partition 0 of a topic during the block; the broker at ``port`` leads it."""
    command = [sys.executable, "-m", "support.pacer", str(port), topic]
    with subprocess.Popen(command, cwd=_TESTS, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Pacer(process)
        finally:
            process.kill()


def _frame(topic: str) -> bytearray:
    batch = build_batch([Record(0, int(time.time() * 1000), None, b"x" * 100)])
    data = [PartitionProduceData(index=0, records=batch)]
    message = ProduceRequest(
        transactional_id=None,
        acks=1,
        timeout_ms=30_000,
        topic_data=[TopicProduceData(name=topic, partition_data=data)],
    )
    return bytearray(b"".join(bytes(part) for part in encode_request(message, _VERSION, 0, "pacer")))


class _Run:
    def __init__(self, port: int, topic: str) -> None:
        self._port = port
        self._frame = _frame(topic)
        self._sent: deque[float] = deque()
        self._received = bytearray()
        self._took: list[tuple[float, float]] = []
        self._errors = 0
        self._waited_s = waited_for_cpu_s("self")
        self._asked: tuple[float, float] | None = None
        self._connection = self._connect()

    def _connect(self) -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self._port), 30)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.settimeout(30)
        return connection

    def run(self) -> None:
        due = time.perf_counter()
        while True:
            now = time.perf_counter()
            if now >= due:
                # Those that this process is late with count from when they were due only if
                # the broker is the reason.
                due = max(due + _PERIOD_S, now)
                if len(self._sent) < _MAX_UNANSWERED:
                    self._sent.append(now)
                    self._connection.sendall(self._frame)
                continue
            readable, _, _ = select.select([self._connection, sys.stdin], [], [], due - now)
            if self._connection in readable:
                self._receive()
            if sys.stdin in readable:
                if not sys.stdin.readline():
                    return
                self._asked = (time.perf_counter(), waited_for_cpu_s("self"))
            if self._asked is not None and not (self._sent and self._sent[0] < self._asked[0]):
                self._report(*self._asked)

    def _receive(self) -> None:
        data = self._connection.recv(1 << 16)
        now = time.perf_counter()
        if not data:
            raise ConnectionError("the broker closed the connection")
        self._received += data
        while len(self._received) >= 4:
            (size,) = _LENGTH.unpack_from(self._received)
            if len(self._received) < 4 + size:
                break
            frame = bytes(self._received[4 : 4 + size])
            del self._received[: 4 + size]
            self._took.append((self._sent[0], (now - self._sent.popleft()) * 1000))
            header = decode_response_header(memoryview(frame), ProduceRequest.API_KEY, _VERSION)
            answer = decode(ProduceResponse, _VERSION, memoryview(frame), header.body_offset)
            self._errors += answer.responses[0].partition_responses[0].error_code != 0

    def _report(self, asked: float, waited_before_s: float) -> None:
        """Records sent since it was asked for count the next time, and so does what
        this process waited since."""
        took_ms = sorted(ms for sent, ms in self._took if sent < asked)
        figures = {
            "answered": len(took_ms),
            "errors": self._errors,
            "max_ms": round(took_ms[-1], 1) if took_ms else 0,
            "p99_ms": round(took_ms[int(len(took_ms) * 0.99)], 1) if took_ms else 0,
            "p50_ms": round(took_ms[len(took_ms) // 2], 2) if took_ms else 0,
            "waited_ms": round((waited_for_cpu_s("self") - self._waited_s) * 1000, 1),
        }
        self._took = [(sent, ms) for sent, ms in self._took if sent >= asked]
        self._errors, self._waited_s, self._asked = 0, waited_before_s, None
        print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    _Run(int(sys.argv[1]), sys.argv[2]).run()
