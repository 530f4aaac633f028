"""What `barnabas top` costs the cluster that it watches: brokers' CPU with it, and without.

``python bench/top.py [--topics N] [--groups N] [--seconds S]`` starts three brokers of ours with
their metrics, makes the topics (of three partitions, two replicas) and groups, and measures the
processor time of all brokers for S seconds alone and S seconds with top in a terminal, at the
default refresh.
"""

import argparse
import json
import os
import pty
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from systems import cpu_s

from barnabas.base.ids import TopicPartition
from barnabas.client import Admin
from support.servers import BARNABAS, up


def prepare(bootstrap: str, topics: int, groups: int) -> None:
    """Make the topics, and groups that are behind."""
    with Admin({"bootstrap.servers": bootstrap}) as admin:
        for number in range(topics):
            admin.create_topic(f"topic-{number:05}", partitions=3, replication_factor=2)
        for number in range(groups):
            admin.alter_group_offsets(f"group-{number:05}", {TopicPartition(f"topic-{number % topics:05}", 0): 0})


def measured(pids: list[int], seconds: float) -> float:
    """The CPU of the processes over so many seconds, in cores."""
    began, before = time.monotonic(), cpu_s(pids)
    time.sleep(seconds)
    return (cpu_s(pids) - before) / (time.monotonic() - began)


def main() -> None:
    """Print one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--topics", type=int, default=10)
    parser.add_argument("--groups", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=60)
    given = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        up(Path(folder) / "data", "--metrics-port", "0", brokers=3) as cluster,
    ):
        prepare(cluster.bootstrap, given.topics, given.groups)
        brokers = [pid for name, pid in cluster.pids.items() if name != "zookeeper"]
        time.sleep(5)  # what the making of topics began has ended
        alone = measured(brokers, given.seconds)
        ours, theirs = pty.openpty()
        threading.Thread(target=_drain, args=(ours,), daemon=True).start()
        top = subprocess.Popen(
            [*BARNABAS, "top", "--bootstrap-server", cluster.bootstrap],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={**os.environ, "TERM": "xterm-256color"},
        )
        time.sleep(10)  # it has started
        own_before = cpu_s([top.pid])
        watched = measured(brokers, given.seconds)
        own = (cpu_s([top.pid]) - own_before) / given.seconds
        top.kill()
        top.wait()
    figures = {
        "topics": given.topics,
        "groups": given.groups,
        "brokers_cpu_alone": round(alone, 4),
        "brokers_cpu_with_top": round(watched, 4),
        "cost": round(watched - alone, 4),
        "cpu_of_top": round(own, 4),
        "load_average": os.getloadavg()[0],
    }
    print(json.dumps(figures))


def _drain(descriptor: int) -> None:
    try:
        while os.read(descriptor, 65_536):
            pass
    except OSError:
        return


if __name__ == "__main__":
    main()
