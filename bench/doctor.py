"""How long `barnabas doctor` takes for a cluster of 1,000 topics, and which part takes how long.

    python bench/doctor.py [TOPICS [PARTITIONS]]

Three brokers run in a process of this program; the doctor runs as a user's command does, and its
brokers compete with it for the CPUs. The busy time of the brokers is part of the figure.
"""

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from barnabas.client import Admin
from barnabas.client.cluster.admin_connection import AdminConnection
from barnabas.client.network.deadline import Deadline
from barnabas.doctor.diagnosis import diagnose
from barnabas.doctor.reading.registration import READERS, ClusterReading, Sources
from barnabas.doctor.rules import ALL_RULES
from barnabas.testing import Cluster

_ROUNDS = 3
_AT_ONCE = 8


def main() -> None:
    """Print the parts' times, and the command's."""
    topics, partitions = (int(word) for word in (*sys.argv[1:], *("1000", "3")[len(sys.argv) - 1 :]))
    with Cluster(brokers=3) as cluster:
        began = time.perf_counter()
        _create(cluster, topics, partitions)
        print(f"{topics} topics of {partitions} partitions, 3 replicas: made in {time.perf_counter() - began:.1f} s")
        for _ in range(_ROUNDS):
            _print_parts(cluster)
        for _ in range(_ROUNDS):
            began = time.perf_counter()
            command = [sys.executable, "-m", "barnabas", "doctor", "--bootstrap-server", cluster.bootstrap_servers]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            last = done.stdout.splitlines()[0] if done.stdout else done.stderr
            print(f"the command: {time.perf_counter() - began:.2f} s, status {done.returncode}: {last}")


def _create(cluster: Cluster, topics: int, partitions: int) -> None:
    def create(first: int) -> None:
        with Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
            for number in range(first, topics, _AT_ONCE):
                admin.create_topic(f"topic-{number:05}", partitions=partitions, replication_factor=3)

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        list(pool.map(create, range(_AT_ONCE)))


def _print_parts(cluster: Cluster) -> None:
    with AdminConnection(cluster.bootstrap_servers, {}, Deadline(30)) as connection:
        reading = ClusterReading(Sources(connection))
        times = {}
        for kind in READERS:
            began = time.perf_counter()
            reading.get(kind)
            times[kind.__name__] = time.perf_counter() - began
        began = time.perf_counter()
        diagnosis = diagnose(reading.evidence(), ALL_RULES)
        times["rules"] = time.perf_counter() - began
    shown = ", ".join(f"{name} {seconds * 1000:.0f}" for name, seconds in times.items() if seconds > 0.002)
    print(f"{sum(times.values()):.2f} s, {len(diagnosis.findings)} findings; in ms: {shown}")


if __name__ == "__main__":
    main()
