"""Three brokers and three replicas: produce with acks=all, failover, many topics, a
rolling restart, catching up."""

import itertools
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import threading
import time

from systems import SHARED, Server, admin, cluster, create_topics, figures_of, fill, load, resident_kb, servers

BROKERS = REPLICAS = 3
_ROLLING_TOPICS, _ROLLING_PARTITIONS = 20, 50
_BODY = bytes(range(256)) * 39


def measure_replicated(system: str, mb: int) -> dict[str, float]:
    """Throughput, latency, CPU and memory of all three brokers, after a warm-up of
    the same kind."""
    figures = {}
    with tempfile.TemporaryDirectory() as directory, cluster(system, directory, brokers=BROKERS) as running:
        figures["RF 3: memory at rest, MB (all)"] = resident_kb(*running.pids) / 1024
        load(running, max(1, mb // 2), "p1kall,latall", REPLICAS)
        found = load(running, mb, "p1kall,latall", REPLICAS)
        figures |= {f"RF 3: {name}": value for name, value in figures_of(found).items()}
        figures["RF 3: memory after the load, MB (all)"] = resident_kb(*running.pids) / 1024
        found = load(running, 1, "topics", REPLICAS)
        figures["RF 3: 200 topics of 5 partitions, s"] = found["create_200x5"]["s"]
    return figures


def measure_failover(system: str) -> dict[str, float]:
    """The longest time without an acknowledgement when a leader's process ends, and
    what was lost or doubled."""
    figures = {}
    for name in ("KILL", "TERM"):
        with tempfile.TemporaryDirectory() as directory, cluster(system, directory, brokers=BROKERS) as running:
            pids = ",".join(f"{broker}:{pid}" for broker, pid in enumerate(running.broker_pids))
            command = [sys.executable, str(SHARED / "measure/failover.py"), running.bootstrap, "--pids", pids]
            done = subprocess.run([*command, "--signal", name], capture_output=True, text=True, check=True)
            found = json.loads(done.stdout)
            figures[f"RF 3: longest gap after {name}, s"] = found["longest_gap_s"]
            figures[f"RF 3: lost or doubled after {name}"] = found["lost"] + found["doubled"]
    return figures


def _wait_for_in_sync(bootstrap: str) -> None:
    """Until every partition has all its replicas in sync."""
    while True:
        found = admin(bootstrap).list_topics(timeout=30).topics.values()
        partitions = [one for topic in found for one in topic.partitions.values()]
        if partitions and all(len(one.isrs) == len(one.replicas) for one in partitions):
            return
        time.sleep(0.1)


class _SteadyProducer:
    """One record after the other with acks=all, in a thread.

    Keeps when each was acknowledged and how long it took."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        from confluent_kafka import Producer

        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0, "log_level": 0,
             "socket.nagle.disable": True, "reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 100}
        )  # fmt: skip
        self._topic = topic
        self._stopped = False
        self.failures = 0
        self.latencies: list[tuple[float, float]] = []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._stopped:
            start = time.perf_counter()
            self._producer.produce(self._topic, b"x" * 100, partition=number % 3, callback=self._delivered)
            self._producer.flush(60)
            end = time.perf_counter()
            self.latencies.append((end, end - start))
            number += 1
            time.sleep(0.002)

    def _delivered(self, error: object, _message: object) -> None:
        self.failures += error is not None

    def p99_ms(self, since: float, until: float) -> float:
        """Of the records acknowledged in that time."""
        taken = [seconds for end, seconds in self.latencies if since <= end < until]
        return statistics.quantiles(taken, n=100)[98] * 1000

    def longest_gap_s(self) -> float:
        """Between two acknowledgements."""
        ends = [end for end, _ in self.latencies]
        return max(later - earlier for earlier, later in itertools.pairwise(ends))

    def stop(self) -> None:
        self._stopped = True
        self._thread.join()


def measure_rolling(system: str) -> dict[str, float]:
    """Each of three brokers stopped cleanly and started again, with 1,000
    partitions, under load."""
    with (
        tempfile.TemporaryDirectory() as directory,
        servers(system, directory, BROKERS) as (bootstrap, brokers),
    ):
        create_topics(bootstrap, {f"t{n}": _ROLLING_PARTITIONS for n in range(_ROLLING_TOPICS)}, REPLICAS)
        _wait_for_in_sync(bootstrap)
        writer = _SteadyProducer(bootstrap, "t0")
        time.sleep(2)
        start = time.perf_counter()
        for broker in brokers:
            broker.stop()
            broker.start()
            _wait_for_in_sync(bootstrap)
        seconds = time.perf_counter() - start
        writer.stop()
        return {
            "RF 3: rolling restart, 1,000 partitions, s": seconds,
            "RF 3: longest gap in that, s": writer.longest_gap_s(),
            "RF 3: records failed in that": writer.failures,
        }


def measure_catch_up(system: str, mb: int) -> dict[str, float]:
    """A broker that comes back behind by ``mb``: how fast it catches up, and what
    writers feel of it."""
    with (
        tempfile.TemporaryDirectory() as directory,
        servers(system, directory, BROKERS) as (bootstrap, brokers),
    ):
        create_topics(bootstrap, {"big": 3, "small": 3}, REPLICAS, **{"min.insync.replicas": "2"})
        _wait_for_in_sync(bootstrap)
        last: Server = brokers[-1]
        last.stop()
        alive = ",".join(bootstrap.split(",")[:-1])
        fill(alive, "big", _BODY, mb * 1_000_000 // len(_BODY))
        writer = _SteadyProducer(alive, "small")
        time.sleep(5)
        start = time.perf_counter()
        last.start()
        _wait_for_in_sync(alive)
        end = time.perf_counter()
        writer.stop()
        return {
            "RF 3: catch-up, MB/s": mb / (end - start),
            "RF 3: p99 of others before it, ms": writer.p99_ms(0, start),
            "RF 3: p99 of others meanwhile, ms": writer.p99_ms(start, end),
            "RF 3: copy of a file that size, MB/s": mb / _copy_s(pathlib.Path(directory), mb),
        }


def _copy_s(directory: pathlib.Path, mb: int) -> float:
    """What the disk does: seconds to write that much, 1 MB at a time."""
    block = bytes(1_000_000)
    start = time.perf_counter()
    with (directory / "copy").open("wb") as out:
        for _ in range(mb):
            out.write(block)
    return time.perf_counter() - start
