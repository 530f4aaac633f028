#!/usr/bin/env python3
"""Figures of Barnabas, side by side with Apache Kafka where the reference systems are at hand.

usage: bench/run.py [--mb 300] [--only load,start,topics,restart,idle] [--alone] [--output json]

Each system runs by itself, one after the other on the same machine, one broker each; the ratio is ours to theirs.
The load programs and the reference systems are looked for in ../shared (or $BARNABAS_SHARED); without them only the
figures that need neither are measured, and the rest is named as not measured.
"""

import argparse
import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).resolve().parents[1]
SHARED = pathlib.Path(os.environ.get("BARNABAS_SHARED", ROOT.parent / "shared"))
OURS, THEIRS = "barnabas", "apache"
BARNABAS = [sys.executable, "-m", "barnabas"]


class Running:
    """A cluster that has printed its ready line: its addresses and its processes."""

    def __init__(self, process: subprocess.Popen[str], line: str, seconds: float) -> None:
        self.process = process
        self.seconds = seconds
        self.bootstrap = line.split()[1]
        pids = re.search(r"pids=(\S+)", line).group(1).split(",")
        self.pids = [int(pid.rpartition(":")[2]) for pid in pids]

    @property
    def broker_pid(self) -> int:
        return self.pids[-1]


def resident_kb(pid: int) -> int:
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", status).group(1))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextlib.contextmanager
def cluster(system: str, directory: str, *extra: str) -> Iterator[Running]:
    port, zk_port = free_port(), free_port()
    if system == OURS:
        command = [
            *BARNABAS,
            "up",
            "--brokers",
            "1",
            "--port",
            str(port),
            "--zk-port",
            str(zk_port),
            "--data-dir",
            directory,
        ]
    else:
        command = [
            str(SHARED / "reference/apache"),
            "up",
            "--port",
            str(port),
            "--zk-port",
            str(zk_port),
            "--dir",
            directory,
        ]
    start = time.perf_counter()
    process = subprocess.Popen([*command, *extra], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        line = process.stdout.readline()
        if not line.startswith("ready"):
            sys.exit(f"{system} did not come up: {line!r}")
        yield Running(process, line, time.perf_counter() - start)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def load(running: Running, mb: int, only: str) -> dict[str, dict[str, float]]:
    command = [sys.executable, str(SHARED / "measure/load.py"), running.bootstrap, "--mb", str(mb), "--only", only]
    done = subprocess.run([*command, "--pids", str(running.broker_pid)], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def measure_load(system: str, mb: int) -> dict[str, float]:
    """Throughput, latency and CPU as librdkafka sees them, after a warm-up of the same kind."""
    figures = {}
    with tempfile.TemporaryDirectory() as directory, cluster(system, directory) as running:
        figures["memory at rest, MB (broker)"] = resident_kb(running.broker_pid) / 1024
        load(running, mb, "p1k,c1k,psmall,lat1")
        found = load(running, mb, "p1k,c1k,psmall,p100,lat1,p1kall,p1klz4,e2e")
        for name, values in found.items():
            if not isinstance(values, dict):
                continue
            for unit, value in values.items():
                if unit in ("MB/s", "cpu_s_per_GB", "p50", "p99"):
                    figures[f"{name} {unit}"] = value
        figures["memory after the load, MB (broker)"] = resident_kb(running.broker_pid) / 1024
    return figures


def first_metadata_s(command: list[str], port: int) -> tuple[float, subprocess.Popen[bytes]]:
    """Seconds from the command to the first Metadata answer that names a broker."""
    from confluent_kafka.admin import AdminClient

    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while True:
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", port), 0.05).close()
            break
        time.sleep(0.005)
    admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{port}", "log_level": 0})
    while not admin.list_topics(timeout=10).brokers:
        time.sleep(0.005)
    return time.perf_counter() - start, process


def measure_start() -> dict[str, float]:
    figures = {}
    with tempfile.TemporaryDirectory() as directory:
        port = free_port()
        command = [*BARNABAS, "up", "--port", str(port), "--zk-port", str(free_port()), "--data-dir", directory]
        seconds, process = first_metadata_s(command, port)
        process.terminate()
        process.wait(30)
    figures["up, first metadata, s"] = seconds
    code = (
        "import time; start = time.perf_counter(); from barnabas.testing import Cluster\n"
        "with Cluster() as cluster: print(time.perf_counter() - start)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    figures["testing.Cluster ready, s"] = float(done.stdout)
    return figures


def measure_topics(system: str) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as directory, cluster(system, directory) as running:
        load(running, 1, "lat1")
        found = load(running, 1, "topics")["create_200x5"]
        return {"200 topics of 5 partitions, s": found["s"], "metadata of 1,000 partitions, ms": found["metadata_ms"]}


def measure_restart() -> dict[str, float]:
    """2,000 partitions with some records each, killed with 9; seconds from start to answering for the last of them."""
    from confluent_kafka import Producer, TopicPartition
    from confluent_kafka.admin import AdminClient, NewTopic

    with tempfile.TemporaryDirectory() as directory:
        port, zk_port = free_port(), free_port()
        command = [*BARNABAS, "up", "--port", str(port), "--zk-port", str(zk_port), "--data-dir", directory]
        _, process = first_metadata_s(command, port)
        admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{port}"})
        topics = [NewTopic(f"t{n}", 50, 1) for n in range(40)]
        for made in admin.create_topics(topics, request_timeout=60).values():
            made.result(60)
        producer = Producer({"bootstrap.servers": f"127.0.0.1:{port}", "linger.ms": 50})
        for n in range(20_000):
            producer.produce(f"t{n % 40}", b"x" * 100, partition=n // 40 % 50)
        producer.flush(60)
        resident = 0
        for pid in children(process.pid):
            resident = max(resident, resident_kb(pid))
            os.kill(pid, signal.SIGKILL)
        process.kill()
        process.wait(30)
        time.sleep(0.5)
        seconds, process = first_metadata_s(command, port)
        start = time.perf_counter()
        admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{port}"})
        from confluent_kafka.admin import OffsetSpec

        asked = {TopicPartition("t39", p): OffsetSpec.latest() for p in range(50)}
        for answer in admin.list_offsets(asked, request_timeout=60).values():
            answer.result(60)
        seconds += time.perf_counter() - start
        process.terminate()
        process.wait(30)
        return {
            "restart of 2,000 partitions after a kill, s": seconds,
            "memory with 2,000 partitions, MB": resident / 1024,
        }


def children(pid: int) -> list[int]:
    found = []
    for path in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
        found += [int(child) for child in path.read_text().split()]
    return found


def measure_idle(system: str) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as directory, cluster(system, directory) as running:
        host, port = running.bootstrap.split(",")[0].split(":")
        load(running, 1, "lat1")
        before = resident_kb(running.broker_pid)
        idle = [socket.create_connection((host, int(port))) for _ in range(1000)]
        # ApiVersions v0, so that each connection has been used once.
        for connection in idle:
            connection.sendall(bytes.fromhex("0000000c" + "0012" + "0000" + "00000001" + "0002" + "6964"))
        for connection in idle:
            connection.recv(4096)
        grown = resident_kb(running.broker_pid) - before
        for connection in idle:
            connection.close()
        return {"1,000 idle connections, MB": grown / 1024}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mb", type=int, default=300, help="megabytes a load figure moves")
    parser.add_argument("--only", default="load,start,topics,restart,idle")
    parser.add_argument("--alone", action="store_true", help="do not run the reference systems")
    parser.add_argument("--output", choices=["text", "json"], default="text")
    arguments = parser.parse_args()
    wanted = arguments.only.split(",")
    has_load = (SHARED / "measure/load.py").exists()
    has_reference = has_load and not arguments.alone and shutil.which("java") is not None
    results: dict[str, dict[str, float]] = {OURS: {}, THEIRS: {}}
    for system in [OURS, THEIRS] if has_reference else [OURS]:
        steps = {
            "load": (lambda system=system: measure_load(system, arguments.mb)) if has_load else None,
            "start": measure_start if system == OURS else None,
            "topics": (lambda system=system: measure_topics(system)) if has_load else None,
            "restart": measure_restart if system == OURS else None,
            "idle": (lambda system=system: measure_idle(system)) if has_load else None,
        }
        for name, step in steps.items():
            if name in wanted and step:
                print(f"{system}: {name} ...", file=sys.stderr, flush=True)
                results[system].update(step())
    if not has_load:
        print("not measured: load, topics, idle (no load programs at ../shared/measure)", file=sys.stderr)
    if arguments.output == "json":
        print(json.dumps(results, indent=2))
        return 0
    print(f"{'figure':<48}{'Barnabas':>12}{'Apache':>12}{'ratio':>8}")
    for name, ours in results[OURS].items():
        theirs = results[THEIRS].get(name)
        row = f"{name:<48}{ours:>12.3g}"
        print(row + (f"{theirs:>12.3g}{ours / theirs:>8.2f}" if theirs else ""))
    return 0


if __name__ == "__main__":
    sys.exit(main())
