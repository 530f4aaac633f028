#!/usr/bin/env python3
"""Exactly once, side by side with Apache Kafka: a copy job on three brokers.

usage: bench/exactly_once.py [--records 100000] [--transaction 750] [--rounds 3] [--pause-ms 0]
           [--alone] [--output json]

The job is librdkafka's: consume, produce, and commit the offsets in one transaction. Each system
runs by itself, and the systems take turns. A round starts a new cluster of three brokers, copies a
third of the records to warm up, then copies all of them. CPU is that of the brokers. With a pause
between transactions, both systems have about the same work in the same time.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from typing import Any

from systems import HAS_REFERENCE, OURS, THEIRS, Running, cluster

_TICK = os.sysconf("SC_CLK_TCK")
_PARTITIONS = 3
_REPLICAS = 3
_VALUE = bytes(range(200))
_SETTINGS = {"min.insync.replicas": "2"}
_CALL_S = 60


def _cpu_s(pids: list[int]) -> float:
    used = 0
    for pid in pids:
        with open(f"/proc/{pid}/stat") as stat:
            used += sum(map(int, stat.read().rpartition(")")[2].split()[11:13]))
    return used / _TICK


def _create(bootstrap: str, *topics: str) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    while len(admin.list_topics(timeout=10).brokers) < _REPLICAS:
        time.sleep(0.1)
    wanted = [NewTopic(topic, _PARTITIONS, _REPLICAS, config=_SETTINGS) for topic in topics]
    for made in admin.create_topics(wanted, operation_timeout=_CALL_S).values():
        made.result(_CALL_S)


def _fill(bootstrap: str, topic: str, records: int) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 20, "log_level": 0})
    for number in range(records):
        while True:
            try:
                producer.produce(topic, _VALUE, partition=number % _PARTITIONS)
                break
            except BufferError:
                producer.poll(0.05)
    if producer.flush(_CALL_S):
        sys.exit("the topic was not filled")


class _CopyJob:
    """Reads one topic, and writes another and its own offsets in transactions."""

    def __init__(self, bootstrap: str, source: str, target: str, in_transaction: int, pause_s: float) -> None:
        from confluent_kafka import Consumer, Producer

        common: dict[str, Any] = {"bootstrap.servers": bootstrap, "log_level": 0}
        self._consumer = Consumer(
            {**common, "group.id": f"copies {source}", "auto.offset.reset": "earliest", "enable.auto.commit": False,
             "isolation.level": "read_committed"}
        )  # fmt: skip
        self._producer = Producer({**common, "transactional.id": f"copies {source}"})
        self._producer.init_transactions(_CALL_S)
        self._consumer.subscribe([source])
        self._target = target
        self._in_transaction = in_transaction
        self._pause_s = pause_s

    def copy(self, records: int) -> list[float]:
        """How long each commit took, in ms."""
        commits_ms = []
        left = records
        while left:
            found = self._consumer.consume(min(self._in_transaction, left), _CALL_S)
            if not found:
                sys.exit("the copy job got no record")
            self._producer.begin_transaction()
            for record in found:
                self._producer.produce(self._target, record.value(), partition=record.partition())
            positions = self._consumer.position(self._consumer.assignment())
            group = self._consumer.consumer_group_metadata()
            self._producer.send_offsets_to_transaction(positions, group, _CALL_S)
            begun = time.perf_counter()
            self._producer.commit_transaction(_CALL_S)
            commits_ms.append((time.perf_counter() - begun) * 1000)
            left -= len(found)
            time.sleep(self._pause_s)
        return commits_ms

    def close(self) -> None:
        self._consumer.close()


def _measure(running: Running, records: int, in_transaction: int, pause_s: float) -> dict[str, float]:
    warm_up = records // 3
    _create(running.bootstrap, "warm-up", "warm-copy", "original", "copy")
    _fill(running.bootstrap, "warm-up", warm_up)
    _fill(running.bootstrap, "original", records)
    job = _CopyJob(running.bootstrap, "warm-up", "warm-copy", in_transaction, 0)
    job.copy(warm_up)
    job.close()
    job = _CopyJob(running.bootstrap, "original", "copy", in_transaction, pause_s)
    job.copy(in_transaction)  # it has joined its group
    cpu_s, begun = _cpu_s(running.broker_pids), time.perf_counter()
    commits_ms = job.copy(records - in_transaction)
    seconds = time.perf_counter() - begun
    cpu_s = _cpu_s(running.broker_pids) - cpu_s
    job.close()
    cuts = statistics.quantiles(commits_ms, n=100)
    return {
        "records/s": (records - in_transaction) / seconds,
        "CPU s of the brokers": cpu_s,
        "commit p50, ms": cuts[49],
        "commit p99, ms": cuts[98],
    }


def _round(system: str, records: int, in_transaction: int, pause_s: float) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as directory, cluster(system, directory, brokers=_REPLICAS) as running:
        return _measure(running, records, in_transaction, pause_s)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=100_000, help="records that a round copies")
    parser.add_argument("--transaction", type=int, default=750, help="records in one transaction")
    parser.add_argument("--pause-ms", type=float, default=0, help="between two transactions")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--alone", action="store_true", help="do not run the reference system")
    parser.add_argument("--output", choices=["text", "json"], default="text")
    arguments = parser.parse_args()
    systems = [OURS, THEIRS] if HAS_REFERENCE and not arguments.alone else [OURS]
    rounds: dict[str, list[dict[str, float]]] = {system: [] for system in systems}
    for number in range(arguments.rounds):
        for system in systems if number % 2 == 0 else reversed(systems):
            found = _round(system, arguments.records, arguments.transaction, arguments.pause_ms / 1000)
            rounds[system].append(found)
            figures = ", ".join(f"{name} {value:.4g}" for name, value in found.items())
            print(f"{system}: {figures}; load {os.getloadavg()[0]:.1f}", file=sys.stderr, flush=True)
    medians = {
        system: {name: statistics.median(each[name] for each in found) for name in found[0]}
        for system, found in rounds.items()
    }
    if arguments.output == "json":
        print(json.dumps(medians, indent=2))
        return 0
    print(f"{'figure':<28}{'Barnabas':>12}{'Apache':>12}{'ratio':>8}")
    for name, ours in medians[OURS].items():
        theirs = medians.get(THEIRS, {}).get(name)
        print(f"{name:<28}{ours:>12.4g}" + (f"{theirs:>12.4g}{ours / theirs:>8.2f}" if theirs else ""))
    return 0


if __name__ == "__main__":
    sys.exit(main())
