"""One broker: produce and consume, start, topics, restart, idle connections."""

import contextlib
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time

from systems import BARNABAS, cluster, figures_of, free_port, load, resident_kb


def measure_load(system: str, mb: int) -> dict[str, float]:
    """Throughput, latency and CPU as librdkafka sees them, after a warm-up of the same kind."""
    figures = {}
    with tempfile.TemporaryDirectory() as directory, cluster(system, directory) as running:
        figures["memory at rest, MB (broker)"] = resident_kb(*running.broker_pids) / 1024
        load(running, mb, "p1k,c1k,psmall,lat1")
        found = load(running, mb, "p1k,c1k,psmall,p100,lat1,p1kall,p1klz4,e2e")
        figures |= figures_of(found)
        figures["memory after the load, MB (broker)"] = resident_kb(*running.broker_pids) / 1024
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
    """2,000 partitions with some records each, killed with 9.

    Seconds from start to answering for the last of them."""
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
        before = resident_kb(*running.broker_pids)
        idle = [socket.create_connection((host, int(port))) for _ in range(1000)]
        # ApiVersions v0, so that each connection has been used once.
        for connection in idle:
            connection.sendall(bytes.fromhex("0000000c" + "0012" + "0000" + "00000001" + "0002" + "6964"))
        for connection in idle:
            connection.recv(4096)
        grown = resident_kb(*running.broker_pids) - before
        for connection in idle:
            connection.close()
        return {"1,000 idle connections, MB": grown / 1024}
