#!/usr/bin/env python3
"""Measure what a scrape of the metrics page costs a broker with many partitions.

``python bench/scrape.py`` starts a coordination server and a broker, each a process of its own,
creates the topics, and asks for the page again and again while nothing else is asked of the broker.
Prints the processor time that a scrape takes of the broker's event loop (its main thread) and of
all its threads, without what the broker takes in as much time while it is idle; how often a step of
the loop took longer than its budget of 10 ms, by the broker's own count; and last the load of the
machine, by which the figures are to be read.
"""

import argparse
import os
import statistics
import tempfile
import time
import urllib.request
from pathlib import Path

from systems import OURS, cluster, free_port

from barnabas.client.admin import Admin

IDLE_S = 5.0


def create(bootstrap: str, partitions: int, a_topic: int) -> None:
    with Admin({"bootstrap.servers": bootstrap}) as admin:
        for number in range(partitions // a_topic):
            admin.create_topic(f"topic-{number:05}", partitions=a_topic)


def page(url: str) -> str:
    with urllib.request.urlopen(url) as response:
        text: str = response.read().decode()
    return text


def slow_steps(text: str) -> dict[str, float]:
    """How often each place held the loop for longer than its budget."""
    counts = (line.rpartition(" ") for line in text.splitlines() if line.startswith("event_loop_slow_place_callbacks"))
    return {name: float(count) for name, _, count in counts}


class Processor:
    """What the threads of a process have run, in ms, from Linux's schedstat."""

    def __init__(self, pid: int) -> None:
        self._tasks = Path(f"/proc/{pid}/task")
        self._loop = str(pid)

    def ran(self) -> tuple[float, float]:
        """The main thread, and all that there are."""
        each = {task.name: int((task / "schedstat").read_text().split()[0]) / 1e6 for task in self._tasks.iterdir()}
        return each[self._loop], sum(each.values())


def measure(url: str, pid: int, rounds: int) -> dict[str, float]:
    """Figures of one scrape, in ms."""
    processor = Processor(pid)
    began_s, idle = time.monotonic(), processor.ran()
    time.sleep(IDLE_S)
    idle_s = time.monotonic() - began_s
    idle_loop, idle_all = ((now - before) / idle_s for now, before in zip(processor.ran(), idle, strict=True))
    of_loop, of_all, waits_s = [], [], []
    for _ in range(rounds):
        began_s, before = time.monotonic(), processor.ran()
        page(url)
        took_s, now = time.monotonic() - began_s, processor.ran()
        of_loop.append(now[0] - before[0] - idle_loop * took_s)
        of_all.append(now[1] - before[1] - idle_all * took_s)
        waits_s.append(took_s)
    return {
        "the event loop, least": min(of_loop),
        "the event loop, median": statistics.median(of_loop),
        "all threads, median": statistics.median(of_all),
        "idle, in a second": idle_all,
        "until the page is there, median": statistics.median(waits_s) * 1000,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--partitions-of-a-topic", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=50)
    given = parser.parse_args()
    port = free_port()
    overrides = (f"metrics.http.address=127.0.0.1:{port}", "log.segment.bytes=1048576")
    options = [text for each in overrides for text in ("--override", each)]
    with tempfile.TemporaryDirectory() as folder, cluster(OURS, folder, *options) as running:
        create(running.bootstrap, given.partitions, given.partitions_of_a_topic)
        url = f"http://127.0.0.1:{port}/metrics"
        for _ in range(3):
            before = slow_steps(page(url))
        for name, value in measure(url, running.broker_pids[0], given.rounds).items():
            print(f"{name:40} {value:8.2f} ms")
        after = {name: count - before.get(name, 0) for name, count in slow_steps(page(url)).items()}
        print(f"{'steps above 10 ms':40} {sum(after.values()):5.0f}")
        for name, count in after.items():
            if count:
                print(f"    {name} {count:.0f}")
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
