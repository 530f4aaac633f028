#!/usr/bin/env python3
"""Measure what a scrape of the metrics page costs a broker with many partitions.

``python bench/scrape.py`` starts a cluster of one broker in this process, creates the topics,
and asks for the page again and again while nothing else is asked of the broker. For the threads of
the event loops it counts every callback: the time that they take for a scrape in all, and the
longest of them. Prints both, and last the load of the machine, by which they are to be read.
"""

import argparse
import asyncio
import os
import statistics
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Self

from systems import free_port

from barnabas.client.admin import Admin
from barnabas.testing import Cluster, server_thread


def create(cluster: Cluster, partitions: int, a_topic: int) -> None:
    with Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
        for number in range(partitions // a_topic):
            admin.create_topic(f"topic-{number:05}", partitions=a_topic)


class Steps:
    """The steps of the event loop, by the time of its thread."""

    def __init__(self) -> None:
        self.took_s: list[float] = []

    def __enter__(self) -> Self:
        self._run = asyncio.Handle._run
        took_s = self.took_s

        def run(handle: asyncio.Handle) -> None:
            began_s = time.thread_time()
            self._run(handle)
            took_s.append(time.thread_time() - began_s)

        asyncio.Handle._run = run  # type: ignore[method-assign]  # of asyncio's loop, which the cluster uses here
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.Handle._run = self._run  # type: ignore[method-assign]


def page(url: str) -> float:
    """Seconds until the page is here."""
    began_s = time.monotonic()
    with urllib.request.urlopen(url) as response:
        response.read()
    return time.monotonic() - began_s


def measure(url: str, rounds: int) -> dict[str, float]:
    """Figures of one scrape, in ms: the medians of rounds, and the worst step of all."""
    sums, worst, waits = [], [], []
    for _ in range(rounds):
        with Steps() as steps:
            waits.append(page(url))
        sums.append(sum(steps.took_s))
        worst.append(max(steps.took_s))
    return {
        "the loop's time for a scrape, median": statistics.median(sums),
        "its greatest": max(sums),
        "the longest step, median": statistics.median(worst),
        "its greatest ": max(worst),
        "until the page is there, median": statistics.median(waits),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--partitions-of-a-topic", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=30)
    given = parser.parse_args()
    server_thread._new_event_loop = asyncio.new_event_loop  # whose steps can be counted; uvloop's take no longer
    with tempfile.TemporaryDirectory() as folder:
        port = free_port()
        settings = {"metrics.http.address": f"127.0.0.1:{port}", "log.segment.bytes": "1048576"}
        with Cluster(settings=settings, data_dir=Path(folder)) as cluster:
            create(cluster, given.partitions, given.partitions_of_a_topic)
            url = f"http://127.0.0.1:{port}/metrics"
            for _ in range(3):
                page(url)
            for name, seconds in measure(url, given.rounds).items():
                print(f"{name.strip():40} {seconds * 1000:8.2f} ms")
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
