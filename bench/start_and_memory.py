#!/usr/bin/env python3
"""Draw the README's picture of start and memory beside Apache Kafka, from figures
measured here and now.

``python bench/start_and_memory.py`` starts each system in turn (a coordination server with one
broker, then with three), as often as ``--runs`` says, and writes the figures to
``docs/pictures/start-and-memory.json`` and the picture beside it; ``--draw`` only draws the figures
again. The time is from the command to its ready line, the best of all runs; memory is what all
servers hold (Pss: pages that several processes share are counted once), measured when each
partition of a topic has got a record.
"""

import argparse
import json
import os
import platform
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from systems import HAS_REFERENCE, OURS, ROOT, THEIRS, Running, cluster

PICTURES = ROOT / "docs" / "pictures"
NAMES = {OURS: "Barnabas", THEIRS: "Apache Kafka 3.9 and ZooKeeper"}
COLORS = {OURS: "#3b7a57", THEIRS: "#9aa5b1"}
PARTITIONS = 30
BAR_PX, LEFT_PX, ROW_PX = 430, 210, 26


def pss_mb(running: Running) -> float:
    """What the servers hold, and the process that watches over them."""
    pids = {running.process.pid, *running.pids}
    rollups = [Path(f"/proc/{pid}/smaps_rollup").read_text() for pid in pids]
    return sum(int(re.search(r"^Pss:\s+(\d+)", each, re.MULTILINE)[1]) for each in rollups) / 1024


def use(running: Running, brokers: int) -> None:
    """A topic with a record in each partition."""
    admin = AdminClient({"bootstrap.servers": running.bootstrap})
    admin.create_topics([NewTopic("used", PARTITIONS, brokers)])["used"].result(60)
    producer = Producer({"bootstrap.servers": running.bootstrap})
    for partition in range(PARTITIONS):
        producer.produce("used", b"record", partition=partition)
    assert producer.flush(60) == 0


def measure(system: str, brokers: int, runs: int) -> dict[str, float]:
    """The best of several starts, and the memory of the last one."""
    seconds, memory = [], 0.0
    for _ in range(runs):
        with (
            tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory,
            cluster(system, directory, brokers=brokers) as running,
        ):
            seconds.append(running.seconds)
            use(running, brokers)
            memory = pss_mb(running)
        print(f"{NAMES[system]}, {brokers} brokers: {seconds[-1]:.2f} s, {memory:.0f} MB", file=sys.stderr, flush=True)
    return {"start_s": round(min(seconds), 2), "memory_mb": round(memory)}


def draw(figures: dict[str, Any]) -> str:
    """Two groups of bars, each to its own scale."""
    parts, y = [], 30
    for what, title, unit in (
        ("start_s", "From the command until clients can work", "s"),
        ("memory_mb", "Memory of all servers", "MB"),
    ):
        parts.append(f'<text x="16" y="{y}" class="title">{title}</text>')
        y += 16
        most = max(each[system][what] for each in figures["clusters"].values() for system in NAMES)
        for brokers, each in figures["clusters"].items():
            for system, name in NAMES.items():
                value = each[system][what]
                width = max(2, BAR_PX * value / most)
                label = f"{brokers} broker{'s' if brokers != '1' else ''}" if system == OURS else ""
                parts.append(f'<text x="16" y="{y + 15}">{label}</text>')
                parts.append(
                    f'<rect x="{LEFT_PX - 120}" y="{y + 2}" width="{width:.0f}" height="18" rx="2" fill="{COLORS[system]}">'
                    f"<title>{name}: {value} {unit}</title></rect>"
                )
                parts.append(f'<text x="{LEFT_PX - 112 + width:.0f}" y="{y + 15}">{value} {unit}</text>')
                y += ROW_PX
            y += 6
        y += 26
    x = 16
    for system, name in NAMES.items():
        parts.append(f'<rect x="{x}" y="{y - 12}" width="12" height="12" rx="2" fill="{COLORS[system]}"/>')
        parts.append(f'<text x="{x + 18}" y="{y - 2}">{name}</text>')
        x += 110
    parts.append(f'<text x="16" y="{y + 20}" class="small">{figures["measured_on"]}</text>')
    style = "text{font:13px system-ui,sans-serif;fill:#24292f}.title{font-weight:600;font-size:14px}.small{font-size:11px;fill:#6b7280}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 660 {y + 34}" role="img" aria-label="Start and memory beside '
        f'Apache Kafka"><style>{style}</style><rect width="100%" height="100%" rx="6" fill="#ffffff"/>{"".join(parts)}</svg>\n'
    )


def main() -> int:
    """Measure and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5, help="starts of each cluster")
    parser.add_argument("--note", default="", help="what else is to be known of this machine")
    parser.add_argument("--draw", action="store_true", help="measure nothing, draw the figures that are there")
    given = parser.parse_args()
    path = PICTURES / "start-and-memory.json"
    if not given.draw:
        if not HAS_REFERENCE:
            sys.exit("the reference systems are not at hand: see bench/run.py --help")
        clusters = {
            str(brokers): {system: measure(system, brokers, given.runs) for system in NAMES} for brokers in (1, 3)
        }
        on = f"{os.cpu_count()} cores, Linux {platform.release().split('-')[0]}, Python {platform.python_version()}"
        on += f"; best start of {given.runs}{given.note and '; ' + given.note}"
        path.write_text(json.dumps({"measured_on": on, "clusters": clusters}, indent=2) + "\n")
    figures = json.loads(path.read_text())
    path.with_suffix(".svg").write_text(draw(figures))
    print(json.dumps(figures["clusters"], indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
