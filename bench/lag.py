"""Lag of 1,000 groups at 100 partitions: when all times are known, at what processor time, and how
exact they are beside the records' own timestamps.

    python bench/lag.py [--groups N] [--partitions N] [--samples N] [--apache VERSION]

The cluster is one broker, ours in a process of its own unless ``--apache`` names a version. Records
have timestamps of the last 2 hours, at uneven distances. Each group has an offset of its own at
each partition. While it is measured, groups move. The first sample is compared: for each of the
pairs of group and partition the lag in seconds with what the records' timestamps give. The process
that is measured is ``barnabas lag --metrics-address`` as it is; its figures are its own
``process_cpu_seconds_total``, so that other programs on the machine count little.
"""

import argparse
import contextlib
import json
import random
import re
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from barnabas.base.ids import TopicPartition
from barnabas.client import Admin, Producer
from barnabas.client.admin.groups import alter_group_offsets
from barnabas.client.cluster.admin_connection import AdminConnection
from support.reference import apache_broker
from support.servers import up

TOPIC = "orders"
RECORDS = 2_000
INTERVAL_S = 15.0


def main() -> None:
    """Measure, and print figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--groups", type=int, default=1_000)
    parser.add_argument("--partitions", type=int, default=100)
    parser.add_argument("--samples", type=int, default=4)
    parser.add_argument("--names", default="kafka-lag-exporter")
    parser.add_argument("--apache", metavar="VERSION")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, cluster(Path(folder), given.apache) as bootstrap:
        timestamps = fill(bootstrap, given.partitions)
        offsets = commit(bootstrap, given.groups, given.partitions)
        print(json.dumps(measured(bootstrap, given, timestamps, offsets, Path(folder)), indent=2))


@contextlib.contextmanager
def cluster(folder: Path, version: str | None) -> Iterator[str]:
    """One broker."""
    if version is None:
        with up(folder, brokers=1) as running:
            yield running.bootstrap
    else:
        with apache_broker(folder, version) as bootstrap:
            yield bootstrap


def fill(bootstrap: str, partitions: int) -> dict[int, list[int]]:
    """Records with timestamps that rise unevenly, and what they are."""
    chance = random.Random(7)
    with Admin({"bootstrap.servers": bootstrap}) as admin:
        admin.create_topic(TOPIC, partitions=partitions, replication_factor=1)
    now_ms = int(time.time() * 1000)
    found = {}
    with Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "batch.size": 16_384}) as producer:
        for partition in range(partitions):
            steps = sorted(chance.randrange(7_200_000) for _ in range(RECORDS))
            found[partition] = [now_ms - 7_200_000 + step for step in steps]
            for timestamp_ms in found[partition]:
                producer.send(TOPIC, b"x" * 20, partition=partition, timestamp_ms=timestamp_ms)
    return found


def commit(bootstrap: str, groups: int, partitions: int) -> dict[str, dict[int, int]]:
    """An offset of each group at each partition."""
    chance = random.Random(8)
    wanted = {
        f"group-{number:04}": {partition: chance.randrange(RECORDS) for partition in range(partitions)}
        for number in range(groups)
    }
    with AdminConnection(bootstrap) as connection:
        for group, offsets in wanted.items():
            alter_group_offsets(
                connection, group, {TopicPartition(TOPIC, partition): offset for partition, offset in offsets.items()}
            )
    return wanted


def measured(
    bootstrap: str,
    given: argparse.Namespace,
    timestamps: dict[int, list[int]],
    offsets: dict[str, dict[int, int]],
    folder: Path,
) -> dict[str, object]:
    """The figures of the process."""
    started = time.monotonic()
    command = [sys.executable, "-m", "barnabas", "lag", "--bootstrap-server", bootstrap, "--timeout", "60"]
    command += ["--metrics-address", "127.0.0.1:0", "--interval", str(INTERVAL_S), "--metrics-names", given.names]
    command += ["--history", str(folder / "lag.db")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    stop = threading.Event()
    mover = threading.Thread(target=move, args=(bootstrap, offsets, stop), daemon=True)
    try:
        assert process.stdout is not None
        address = process.stdout.readline().split()[1]
        assert process.stderr is not None
        while "the first sample has" not in process.stderr.readline():
            pass
        known_s = time.monotonic() - started
        threading.Thread(target=process.stderr.read, daemon=True).start()
        page = read(address)
        at_start = figures(page)
        errors = compared(page, timestamps, offsets)
        mover.start()
        begin_s, begin_cpu_s = time.monotonic(), at_start["process_cpu_seconds_total"]
        for _ in range(given.samples):
            time.sleep(INTERVAL_S)  # as Prometheus scrapes
            page = read(address)
        passed_s, at_end = time.monotonic() - begin_s, figures(page)
        return {
            "groups": given.groups,
            "partitions_of_each": given.partitions,
            "cluster": given.apache or "barnabas",
            "all_times_known_s": round(known_s, 2),
            "cpu_of_the_start_s": round(begin_cpu_s, 2),
            "first_sample_s": round(at_start["barnabas_lag_sample_duration_seconds"], 2),
            "cpu_per_second_after": round((at_end["process_cpu_seconds_total"] - begin_cpu_s) / passed_s, 3),
            "sample_s": round(at_end["barnabas_lag_sample_duration_seconds"], 2),
            "memory_mb": round(at_end["process_resident_memory_bytes"] / 1e6),
            "page_mb": round(len(page) / 1e6, 1),
            "history_mb": round((folder / "lag.db").stat().st_size / 1e6, 1),
            "at_first": errors,
            "at_the_end": compared(page, timestamps, dict(sorted(offsets.items())[1::2])),  # of groups that stay
        }
    finally:
        stop.set()
        if mover.is_alive():
            mover.join()
        process.terminate()
        process.wait()


def move(bootstrap: str, offsets: dict[str, dict[int, int]], stop: threading.Event) -> None:
    """A hundred groups commit further each few seconds."""
    chance = random.Random(9)
    with AdminConnection(bootstrap) as connection:
        while not stop.wait(3.0):
            for group in chance.sample(sorted(offsets)[::2], len(offsets) // 10):
                for partition, offset in offsets[group].items():
                    offsets[group][partition] = min(RECORDS, offset + chance.randrange(20))
                places = {TopicPartition(TOPIC, partition): offset for partition, offset in offsets[group].items()}
                alter_group_offsets(connection, group, places)


def read(address: str) -> str:
    """The page."""
    with urllib.request.urlopen(address) as answer:
        return answer.read().decode()


def figures(page: str) -> dict[str, float]:
    """Metrics without labels."""
    return {name: float(value) for name, value in re.findall(r"^(\w+) (\S+)$", page, re.MULTILINE)}


def compared(page: str, timestamps: dict[int, list[int]], offsets: dict[str, dict[int, int]]) -> dict[str, object]:
    """How far the seconds are from the records' own."""
    pattern = r'^kafka_consumergroup_group_lag_seconds\{[^}]*group="([^"]*)",topic="[^"]*",partition="(\d+)"\} (\S+)$'
    errors, relative = [], []
    for group, number, value in re.findall(pattern, page, re.MULTILINE):
        if group not in offsets:
            continue
        times = timestamps[int(number)]
        right_s = (times[-1] - times[offsets[group][int(number)]]) / 1000
        errors.append(abs(float(value) - right_s))
        relative.append(errors[-1] / max(right_s, 1.0))
    errors.sort()
    relative.sort()
    return {
        "pairs_with_a_time": len(errors),
        "error_median_s": round(errors[len(errors) // 2], 3),
        "error_99_percent_s": round(errors[len(errors) * 99 // 100], 3),
        "error_most_s": round(errors[-1], 3),
        "error_of_lag_99_percent": round(relative[len(relative) * 99 // 100], 4),
        "error_of_lag_most": round(relative[-1], 4),
    }


if __name__ == "__main__":
    main()
