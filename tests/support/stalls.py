"""Operations on a broker beside a producer of one record each millisecond: what it waited, and
what held the event loop.

The longest answer time is the stall. What the broker's threads and the producer waited for a CPU in
that time is explained by the machine's load (see `support.promptness`); the broker itself must not
hold its event loop for 50 ms. It counts that, and logs it.
"""

import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from os import sysconf
from pathlib import Path

from barnabas.client.admin.topics import create_topic
from barnabas.client.cluster.admin_connection import AdminConnection
from barnabas.testing.processes import ProcessCluster
from support.pacer import Pacer, pacing
from support.promptness import stolen_s, waited_for_cpu_s

__all__ = ["TIMEOUTS", "Stalls", "cpu_s", "one_broker"]

LIMIT_MS = 50
TIMEOUTS = {"request.timeout.ms": "120000", "default.api.timeout.ms": "120000"}
_HELD = re.compile(r"held for (\d+) ms by (.*) \(\d+ times, \d+ ms at most; it worked for (\d+) ms")
_COLLECTED = re.compile(r"Collecting garbage of generation \d took (\d+) ms")
_TICK = sysconf("SC_CLK_TCK")


def cpu_s(pid: int) -> float:
    """The processor time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICK


@dataclass
class Stalls:
    """Operations on a cluster, each with what it took and what the producer saw."""

    cluster: ProcessCluster
    pacer: Pacer
    rows: list[str] = field(default_factory=list)
    late: list[str] = field(default_factory=list)
    """Operations beside which the producer waited too long, or that held the event loop."""
    _read: int = 0

    def during(self, name: str, work: Callable[[], object]) -> None:
        """Do something, and note the producer's longest wait."""
        pid = self.cluster.pids["0"]
        # The records since the next line wait from there on.
        waited_before_s = waited_for_cpu_s(pid) + stolen_s()
        self.pacer.since()
        cpu_before_s, began = cpu_s(pid), time.monotonic()
        work()
        took_s = time.monotonic() - began
        seen = self.pacer.since()
        load_ms = (waited_for_cpu_s(pid) + stolen_s() - waited_before_s) * 1000 + seen["waited_ms"]
        self.rows.append(
            f"{name}: stall {seen['max_ms']} ms (p99 {seen['p99_ms']}), CPU {cpu_s(pid) - cpu_before_s:.2f} s, "
            f"took {took_s:.2f} s, load {load_ms:.0f} ms"
        )
        held = self._held(load_ms)
        if seen["errors"] or seen["max_ms"] > LIMIT_MS + load_ms or held:
            self.late.append(f"{self.rows[-1]} {held}")

    def _held(self, load_ms: float) -> list[str]:
        """What held the broker's event loop too long since the last call."""
        log = self.cluster.broker_log(0).read_text()
        new, self._read = log[self._read :], len(log)
        # A thread that holds the interpreter and waits for a CPU is load, too. Work and
        # collections are processor time.
        held = [
            f"{ms} ms, {worked} of them at work: {place}"
            for ms, place, worked in _HELD.findall(new)
            if int(ms) > LIMIT_MS + load_ms or int(worked) > LIMIT_MS
        ]
        return held + [f"{ms} ms: garbage" for ms in _COLLECTED.findall(new) if int(ms) > LIMIT_MS]


@contextmanager
def one_broker(
    tmp_path: Path, settings: Mapping[str, str] | None = None
) -> Iterator[tuple[Stalls, AdminConnection, int]]:
    """A broker with a producer; yields its stalls, an administrator's connection and its port."""
    settings = {"log.segment.delete.delay.ms": "1000", "num.partitions": "1", **(settings or {})}
    with (
        ProcessCluster(1, settings=settings, data_dir=tmp_path) as cluster,
        AdminConnection(cluster.bootstrap_servers, TIMEOUTS) as admin,
    ):
        create_topic(admin, "pace", partitions=1, replication_factor=1)
        port = int(cluster.bootstrap_servers.rpartition(":")[2])
        with pacing(port, "pace") as pacer:
            stalls = Stalls(cluster, pacer)
            stalls.during("calm", lambda: time.sleep(1))
            stalls.late.clear()  # the start was no operation
            yield stalls, admin, port
