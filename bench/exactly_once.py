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

from systems import HAS_REFERENCE, OURS, THEIRS, Running, cluster, cpu_s, create_topics, fill, print_comparison

_PARTITIONS = 3
_REPLICAS = 3
_VALUE = bytes(range(200))
_TOPICS = ("warm-up", "warm-copy", "original", "copy")
_CALL_S = 60


class _CopyJob:
    """Reads one topic, and writes another and its own offsets in transactions."""

    def __init__(self, bootstrap: str, source: str, target: str, in_transaction: int) -> None:
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

    def copy(self, records: int, pause_s: float = 0) -> list[float]:
        """How long each commit took, in ms. It pauses after each."""
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
            time.sleep(pause_s)
        return commits_ms

    def close(self) -> None:
        self._consumer.close()


def _measure(running: Running, records: int, in_transaction: int, pause_s: float) -> dict[str, float]:
    warm_up = records // 3
    topics = dict.fromkeys(_TOPICS, _PARTITIONS)
    create_topics(running.bootstrap, topics, _REPLICAS, **{"min.insync.replicas": "2"})
    fill(running.bootstrap, "warm-up", _VALUE, warm_up, partitions=_PARTITIONS)
    fill(running.bootstrap, "original", _VALUE, records, partitions=_PARTITIONS)
    job = _CopyJob(running.bootstrap, "warm-up", "warm-copy", in_transaction)
    job.copy(warm_up)
    job.close()
    job = _CopyJob(running.bootstrap, "original", "copy", in_transaction)
    job.copy(in_transaction)  # it has joined its group
    used_s, begun = cpu_s(running.broker_pids), time.perf_counter()
    commits_ms = job.copy(records - in_transaction, pause_s)
    seconds = time.perf_counter() - begun
    used_s = cpu_s(running.broker_pids) - used_s
    job.close()
    cuts = statistics.quantiles(commits_ms, n=100)
    return {
        "records/s": (records - in_transaction) / seconds,
        "CPU s of the brokers": used_s,
        "commit p50, ms": cuts[49],
        "commit p99, ms": cuts[98],
    }


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
            with tempfile.TemporaryDirectory() as directory, cluster(system, directory, brokers=_REPLICAS) as running:
                found = _measure(running, arguments.records, arguments.transaction, arguments.pause_ms / 1000)
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
    print_comparison(medians, width=28, digits=4)
    return 0


if __name__ == "__main__":
    sys.exit(main())
