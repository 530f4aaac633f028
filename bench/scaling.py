#!/usr/bin/env python3
"""Processor time for each partition of large topics: does any step cost more the
more partitions there are?

usage: bench/scaling.py [--sizes 1000,5000,20000] [--output json]

Two brokers and a coordination server, log dirs where $TMPDIR is. For each size one topic with two
replicas is made, described, loses one broker and gets it back, has its leaders moved, and is
deleted; a second one with one replica moves from broker to broker. Figures are microseconds of all
servers' processor time for each partition, so other load on the machine hardly changes them.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Callable
from functools import partial

from systems import cpu_s

from barnabas.base.errors import BarnabasError
from barnabas.base.ids import TopicPartition
from barnabas.client.admin.reassignments import alter_reassignments, list_reassignments
from barnabas.client.admin.topics import TopicDescription, create_topic, delete_topics, describe_topics
from barnabas.client.cluster.admin_connection import AdminConnection
from barnabas.testing.processes import ProcessCluster
from barnabas.testing.server_processes import wait_until

_TIMEOUTS = {"request.timeout.ms": "300000", "default.api.timeout.ms": "300000"}
_DESCRIPTIONS = 50
_MOVES_A_REQUEST = 5_000
_until = partial(wait_until, timeout_s=600, pause_s=0.2, ignored=(BarnabasError, OSError))
"""A broker may be away."""


class Bench:
    """One cluster and what it has used."""

    def __init__(self, cluster: ProcessCluster, size: int) -> None:
        self._cluster = cluster
        self._size = size
        self.figures: dict[str, float] = {}

    def _cpu_s(self) -> dict[int, float]:
        found = {}
        for pid in self._cluster.pids.values():
            try:
                found[pid] = cpu_s([pid])
            except OSError:
                continue  # it was killed
        return found

    def measure(self, name: str, work: Callable[[], object], done: Callable[[], bool], count: int = 1) -> None:
        before = self._cpu_s()
        work()
        # Equally often for each size, because the cost of asking grows with it.
        _until(done, name, pause_s=self._size / 2000)
        used_s = sum(used_s - before.get(pid, 0.0) for pid, used_s in self._cpu_s().items())
        self.figures[name] = round(used_s * 1e6 / self._size / count, 1)
        print(f"{self._size} partitions, {name}: {self.figures[name]} us each", file=sys.stderr)


def measure(size: int) -> dict[str, float]:
    """All figures for topics of ``size`` partitions."""
    settings = {"log.segment.delete.delay.ms": "1000", "auto.leader.rebalance.enable": "false"}
    with (
        tempfile.TemporaryDirectory() as directory,
        ProcessCluster(2, settings=settings, data_dir=directory) as cluster,
        AdminConnection(cluster.bootstrap_servers, _TIMEOUTS) as admin,
    ):
        bench = Bench(cluster, size)

        def topic(name: str) -> TopicDescription:
            return describe_topics(admin, [name])[0]

        def in_sync(name: str, replicas: int) -> bool:
            found = topic(name).partitions
            return len(found) == size and all(each.leader is not None and len(each.isr) == replicas for each in found)

        def folders(name: str) -> bool:
            return any(next(cluster.log_dir(broker).glob(f"{name}-*"), None) for broker in range(2))

        bench.measure(
            "creation, two replicas",
            lambda: create_topic(admin, "large", partitions=size, replication_factor=2),
            lambda: in_sync("large", 2),
        )
        bench.measure(
            "metadata", lambda: [topic("large") for _ in range(_DESCRIPTIONS)], lambda: True, count=_DESCRIPTIONS
        )
        controller = admin.describe_cluster().controller_id
        other = 1 - controller
        bench.measure(
            "failover of half of the leaders",
            lambda: cluster.kill_broker(other),
            lambda: all(each.leader == controller for each in topic("large").partitions),
        )
        bench.measure("restart after a kill", lambda: cluster.start_broker(other), lambda: in_sync("large", 2))
        bench.measure("deletion", lambda: delete_topics(admin, ["large"]), lambda: not folders("large"))
        create_topic(admin, "moved", assignment=[[controller]] * size)
        _until(lambda: in_sync("moved", 1), "in sync")

        def move() -> None:
            for first in range(0, size, _MOVES_A_REQUEST):
                some = range(first, min(first + _MOVES_A_REQUEST, size))
                refused = alter_reassignments(admin, {TopicPartition("moved", index): [other] for index in some})
                if refused:
                    raise SystemExit(f"refused: {next(iter(refused.items()))}")

        bench.measure("reassignment of empty replicas", move, lambda: not list_reassignments(admin))
        return bench.figures


def main() -> int:
    """Print a table, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="1000,5000,20000", help="partitions of the topics (default 1000,5000,20000)")
    parser.add_argument("--output", choices=("table", "json"), default="table")
    given = parser.parse_args()
    sizes = [int(text) for text in given.sizes.split(",")]
    found = {size: measure(size) for size in sizes}
    if given.output == "json":
        print(json.dumps(found))
        return 0
    print(f"{'us of CPU for each partition':34}" + "".join(f"{size:>10,}" for size in sizes))
    for name in found[sizes[0]]:
        print(f"{name:34}" + "".join(f"{found[size][name]:>10}" for size in sizes))
    return 0


if __name__ == "__main__":
    sys.exit(main())
