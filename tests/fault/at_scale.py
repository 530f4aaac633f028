#!/usr/bin/env python3
"""Trials too large for CI: ``python tests/fault/at_scale.py replicas|catch-up [SIZE]``.

    trial       SIZE     what it does
    replicas    20,000   three brokers and SIZE partitions with three replicas each: made as ten
                         topics, produced to, one broker killed and started again, deleted
    catch-up    5,000    a replica that is SIZE MB behind returns, beside a producer of one record
                         each millisecond

Each step's row has the answer times of producers of one record a millisecond (one at each broker
that stays), the processor time of all servers, and the load: for how long brokers and producers
waited for a CPU, and the time that the host took. The exit status is 1 where something is worse
than promised and load does not explain it.
"""

import argparse
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from barnabas.base.errors import BarnabasError
from barnabas.client import BYTES, Producer
from barnabas.client.admin.topics import TopicDescription, create_topic, delete_topics, describe_topics
from barnabas.client.cluster.admin_connection import AdminConnection
from barnabas.testing.processes import ProcessCluster
from barnabas.testing.server_processes import wait_until
from barnabas.wire.kafka.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.wire.kafka.records.records import Record, build_batch
from support.pacer import Pacer, pacing
from support.promptness import stolen_s, waited_for_cpu_s
from support.raw import ask
from support.stalls import cpu_s

STALL_MS = 50
TOPICS = 10
TIMEOUTS = {"request.timeout.ms": "300000", "default.api.timeout.ms": "300000"}
_HELD = re.compile(r"held for (\d+) ms by (.*) \(\d+ times, \d+ ms at most; it worked for (\d+) ms")
_COLLECTED = re.compile(r"Collecting garbage of generation (\d) took (\d+) ms")
_LOST = re.compile(r".*(?:expired|was removed; registering|silent for).*")
_BATCH_BYTES = 900_000
until = partial(wait_until, timeout_s=1800, pause_s=0.2, ignored=(BarnabasError, OSError))
"""A broker may be away."""


@dataclass
class Trial:
    """A cluster of three with producers, and what its steps cost."""

    cluster: ProcessCluster
    admin: AdminConnection
    pacers: dict[int, Pacer] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    _read: dict[int, int] = field(default_factory=dict)

    def port(self, broker: int) -> int:
        return int(self.cluster.bootstrap_servers.split(",")[broker].rpartition(":")[2])

    def _cpu_s(self) -> dict[int, float]:
        return {pid: cpu_s(pid) for pid in self.cluster.pids.values() if Path(f"/proc/{pid}").exists()}

    def _waited_s(self) -> dict[int, float]:
        pids = [pid for name, pid in self.cluster.pids.items() if name.isdigit() and Path(f"/proc/{pid}").exists()]
        return {0: stolen_s(), **{pid: waited_for_cpu_s(pid) for pid in pids}}

    def during(self, name: str, work: Callable[[], object], *, count: int = 0, aim_ms: float = STALL_MS) -> float:
        """Do something; the worst p99 of the producers in milliseconds."""
        for pacer in self.pacers.values():
            pacer.since()
        cpu_before, waited_s, began = self._cpu_s(), self._waited_s(), time.monotonic()
        work()
        took_s = time.monotonic() - began
        used_s = sum(used - cpu_before.get(pid, 0.0) for pid, used in self._cpu_s().items())
        seen = {broker: pacer.since() for broker, pacer in self.pacers.items()}
        waits_s = sum(after_s - waited_s.get(pid, 0.0) for pid, after_s in self._waited_s().items())
        load_ms = waits_s * 1000 + sum(each["waited_ms"] for each in seen.values())
        stall_ms = max((each["max_ms"] for each in seen.values()), default=0.0)
        p99_ms = max((each["p99_ms"] for each in seen.values()), default=0.0)
        each = f" ({used_s * 1e6 / count:.0f} us each)" if count else ""
        row = (
            f"{name}: stall {stall_ms} ms (p99 {p99_ms}), CPU {used_s:.1f} s{each}, took {took_s:.1f} s, memory "
            f"{self._memory()}, load {load_ms:.0f} ms, load average {os.getloadavg()[0]:.1f}"
        )
        print(row, flush=True)
        bad = [f"producer at {broker}: {each['errors']} errors" for broker, each in seen.items() if each["errors"]]
        if stall_ms > aim_ms + load_ms:
            bad.append(f"a stall of {stall_ms} ms")
        for broker, held_ms, worked_ms, place in self._held():
            print(
                f"    broker {broker} held its loop for {held_ms} ms, {worked_ms} of them at work: {place}", flush=True
            )
            if held_ms > aim_ms + load_ms:
                bad.append(f"broker {broker} held its loop for {held_ms} ms: {place}")
        self.failures += [f"{name}: {each}" for each in bad]
        return p99_ms

    def _memory(self) -> str:
        found = []
        for name, pid in sorted(self.cluster.pids.items()):
            try:
                status = Path(f"/proc/{pid}/status").read_text()
            except OSError:
                continue
            kib = dict(re.findall(r"(VmRSS|VmHWM):\s+(\d+)", status))
            if kib:
                found.append(f"{name} {int(kib['VmRSS']) >> 10} (most {int(kib['VmHWM']) >> 10}) MiB")
        return ", ".join(found)

    def _held(self) -> list[tuple[int, int, int, str]]:
        """What held brokers' event loops since the last call; the worst of each place."""
        worst: dict[tuple[int, str], tuple[int, int]] = {}
        for broker in range(3):
            log = self.cluster.broker_log(broker).read_text()
            new, self._read[broker] = log[self._read.get(broker, 0) :], len(log)
            for ms, place, worked in _HELD.findall(new):
                worst[broker, place] = max((int(ms), int(worked)), worst.get((broker, place), (0, 0)))
            for generation, ms in _COLLECTED.findall(new):
                place = f"collection of garbage of generation {generation}"
                worst[broker, place] = max((int(ms), int(ms)), worst.get((broker, place), (0, 0)))
            for line in _LOST.findall(new):
                self.failures.append(f"broker {broker}: {line}")
        return sorted(((broker, *ms, place) for (broker, place), ms in worst.items()), key=lambda each: -each[1])[:8]

    def topics(self, names: list[str]) -> list[TopicDescription]:
        return describe_topics(self.admin, names)

    def in_sync(self, names: list[str], partitions: int) -> bool:
        return all(
            len(topic.partitions) == partitions and all(len(each.isr) == 3 for each in topic.partitions)
            for topic in self.topics(names)
        )


@contextmanager
def three_brokers(settings: dict[str, str], paced: tuple[int, ...]) -> Iterator[Trial]:
    """A cluster with a producer at each broker of ``paced``."""
    settings = {"log.segment.delete.delay.ms": "1000", **settings}
    with ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="barnabas-scale-"))
        cluster = stack.enter_context(ProcessCluster(3, settings=settings, data_dir=directory))
        others = ",".join(cluster.bootstrap_servers.split(",")[broker] for broker in paced)
        trial = Trial(cluster, stack.enter_context(AdminConnection(others, TIMEOUTS)))
        for broker in paced:
            create_topic(trial.admin, f"pace-{broker}", assignment=[[broker]])
        for broker in paced:
            trial.pacers[broker] = stack.enter_context(pacing(trial.port(broker), f"pace-{broker}"))
        trial.during("calm", lambda: time.sleep(5))
        trial.failures.clear()  # the start was no operation
        yield trial


def a_broker_that_is_not_the_controller(trial: Trial) -> int:
    return max(broker for broker in range(3) if broker != trial.admin.describe_cluster().controller_id)


def replicas(size: int) -> list[str]:
    """Many replicas on each broker."""
    partitions = size // TOPICS
    names = [f"large-{number}" for number in range(TOPICS)]
    batch = bytes(build_batch([Record(0, int(time.time() * 1000), None, b"x" * 100)]))
    with three_brokers({"offsets.topic.replication.factor": "1"}, (0, 1)) as trial:

        def create() -> None:
            for name in names:
                create_topic(trial.admin, name, partitions=partitions, replication_factor=3)
            until(lambda: trial.in_sync(names, partitions), "all replicas are in sync", pause_s=2)

        def produce(leaders: tuple[int, ...]) -> None:
            led: dict[int, list[TopicProduceData]] = {}
            for topic in trial.topics(names):
                for broker in leaders:
                    data = [
                        PartitionProduceData(index=each.partition, records=batch)
                        for each in topic.partitions
                        if each.leader == broker
                    ]
                    led.setdefault(broker, []).append(TopicProduceData(name=topic.name, partition_data=data))
            for broker, data in led.items():
                for one in data:
                    request = ProduceRequest(transactional_id=None, acks=-1, timeout_ms=60_000, topic_data=[one])
                    answer = ask(trial.port(broker), request, 9, timeout_s=120)
                    codes = {each.error_code for topic in answer.responses for each in topic.partition_responses}
                    if codes - {0}:
                        trial.failures.append(f"produce to {one.name} at {broker}: {codes}")

        def kill() -> None:
            trial.cluster.kill_broker(2)
            until(
                lambda: all(each.leader not in (None, 2) for topic in trial.topics(names) for each in topic.partitions),
                "all leaders have moved",
            )

        def restart() -> None:
            trial.cluster.start_broker(2)
            until(lambda: trial.in_sync(names, partitions), "all replicas are in sync", pause_s=2)

        def delete() -> None:
            delete_topics(trial.admin, names)
            folders = [trial.cluster.log_dir(broker) for broker in range(3)]
            until(lambda: not any(next(folder.glob("large-*"), None) for folder in folders), "all is purged", pause_s=2)

        trial.during(f"create {size} x 3 in {TOPICS} topics", create, count=3 * size)
        trial.during("nothing, with all of them, for 20 s", lambda: time.sleep(20))
        trial.during("produce to each, acks=all", lambda: produce((0, 1, 2)), count=3 * size)
        trial.during("one broker killed", kill, count=size // 3)
        trial.during("produce to each, acks=all, two brokers", lambda: produce((0, 1)), count=2 * size)
        trial.during("the broker back, until all are in sync", restart, count=size)
        trial.during("the preferred leaders lead again", lambda: time.sleep(20))
        trial.during("delete and purge all", delete, count=3 * size)
        return trial.failures


def fill(bootstrap: str, topic: str, megabytes: int) -> None:
    """Records that do not compress, 10 KB each."""
    value = os.urandom(10_000)
    settings = {"bootstrap.servers": bootstrap, "acks": "all", "batch.size": _BATCH_BYTES}
    with Producer(settings, serializer=BYTES) as producer:
        for _ in range(megabytes):
            producer.send_many(topic, [value] * 100)
        producer.flush(600)


def catch_up(size: int) -> list[str]:
    """One broker away while megabytes are produced; others' p99 while it copies them."""
    with three_brokers({}, (0, 1)) as trial:
        create_topic(trial.admin, "copied", assignment=[[0, 1, 2], [1, 0, 2]])
        until(lambda: trial.in_sync(["copied"], 2), "in sync")
        trial.cluster.kill_broker(2)
        others = ",".join(trial.cluster.bootstrap_servers.split(",")[:2])
        trial.during(f"{size} MB produced", lambda: fill(others, "copied", size))
        calm_ms = trial.during("calm again", lambda: time.sleep(10))

        def restart() -> None:
            trial.cluster.start_broker(2)
            until(lambda: trial.in_sync(["copied"], 2), "caught up")

        busy_ms = trial.during(f"a replica {size} MB behind returns", restart)
        print(f"p99 {calm_ms} ms calm, {busy_ms} ms during the catch-up (aim: at most doubled)")
        if busy_ms > 2 * calm_ms:
            trial.failures.append(f"p99 of others {calm_ms} ms, then {busy_ms} ms")
        return trial.failures


TRIALS = {"replicas": (replicas, 20_000), "catch-up": (catch_up, 5_000)}


def main() -> int:
    """Run one trial; the exit status is 1 if something was worse than promised."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trial", choices=TRIALS)
    parser.add_argument("size", nargs="?", type=int)
    given = parser.parse_args()
    run, usual = TRIALS[given.trial]
    failures = run(given.size or usual)
    print(*failures or ["all as promised"], sep="\n")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
