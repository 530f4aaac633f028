"""The systems that are measured, started as their users start them: a whole cluster,
or one server at a time."""

import contextlib
import itertools
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Collection, Iterator
from typing import Any

from barnabas.base.settings import properties_text

ROOT = pathlib.Path(__file__).resolve().parents[1]
SHARED = pathlib.Path(os.environ.get("BARNABAS_SHARED", ROOT.parent / "shared"))
OURS, THEIRS = "barnabas", "apache"
BARNABAS = [sys.executable, "-m", "barnabas"]
APACHE = str(SHARED / "reference/apache")

_TICK = os.sysconf("SC_CLK_TCK")

HAS_LOAD = (SHARED / "measure/load.py").exists()
HAS_REFERENCE = HAS_LOAD and shutil.which("java") is not None


class Running:
    """A cluster that has printed its ready line: its addresses and its processes."""

    def __init__(self, process: subprocess.Popen[str], line: str, seconds: float) -> None:
        self.process = process
        self.seconds = seconds
        self.bootstrap = line.split()[1]
        self.zookeeper = re.search(r"zk=(\S+)", line).group(1)
        pids = re.search(r"pids=(\S+)", line).group(1).split(",")
        self.pids = [int(pid.rpartition(":")[2]) for pid in pids]
        """The coordination server's first where the cluster started one, then the
        brokers' by id."""

    @property
    def broker_pids(self) -> list[int]:
        return self.pids[-len(self.bootstrap.split(",")) :]


def resident_kb(*pids: int) -> int:
    """Memory that these processes hold."""
    found = [pathlib.Path(f"/proc/{pid}/status").read_text() for pid in pids]
    return sum(int(re.search(r"VmRSS:\s+(\d+)", status).group(1)) for status in found)


def cpu_s(pids: Collection[int]) -> float:
    """User and system time of these processes so far."""
    total = 0
    for pid in pids:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total / _TICK


_candidates = itertools.count(20_000 + os.getpid() % 8_000)


def free_ports(count: int) -> list[int]:
    """Free ports, in a row, below those from which the kernel picks; never the same twice."""
    found: list[int] = []
    while len(found) < count:
        port = next(_candidates)
        with contextlib.closing(socket.socket()) as probe:
            try:
                probe.bind(("127.0.0.1", port))
                found.append(port)
            except OSError:
                found.clear()
    return found


def free_port() -> int:
    """One free port."""
    return free_ports(1)[0]


@contextlib.contextmanager
def cluster(system: str, directory: str, *extra: str, brokers: int = 1) -> Iterator[Running]:
    """A coordination server and brokers in one go; stopped at the end."""
    zk_port, port, *_ = free_ports(brokers + 1)
    command = [*BARNABAS, "up", "--data-dir"] if system == OURS else [APACHE, "up", "--dir"]
    command += [directory, "--brokers", str(brokers), "--port", str(port), "--zk-port", str(zk_port), *extra]
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        line = process.stdout.readline()
        if not line.startswith("ready"):
            sys.exit(f"{system} did not come up: {line!r}")
        yield Running(process, line, time.perf_counter() - start)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


class Server:
    """One server of either system, that can be stopped and started again on its data."""

    def __init__(self, command: list[str], port: int, log: pathlib.Path) -> None:
        self.command = command
        self.port = port
        self._log = log
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it listens."""
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        while True:
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            if self.process.poll() is not None:
                sys.exit(f"{self.command} ended with {self.process.returncode}, see {self._log}")
            time.sleep(0.02)

    def stop(self) -> None:
        """Stop it cleanly, and wait for its end."""
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            self.process.wait(60)


@contextlib.contextmanager
def servers(system: str, directory: str, brokers: int, **settings: str) -> Iterator[tuple[str, list[Server]]]:
    """A coordination server, and brokers as processes of their own: the bootstrap
    addresses, and the brokers."""
    root = pathlib.Path(directory)
    zk_port, *ports = free_ports(brokers + 1)
    everyone = [_coordination(system, root, zk_port)]
    everyone += [_broker(system, root, broker, port, zk_port, settings) for broker, port in enumerate(ports)]
    try:
        for server in everyone:
            server.start()
        yield ",".join(f"127.0.0.1:{port}" for port in ports), everyone[1:]
    finally:
        for server in reversed(everyone):
            server.stop()


def _coordination(system: str, root: pathlib.Path, port: int) -> Server:
    if system == OURS:
        config = root / "zoo.cfg"
        settings = {"tickTime": "2000", "dataDir": str(root / "coordination"), "clientPort": str(port)}
        config.write_text(properties_text(settings))
        command = [*BARNABAS, "zookeeper-server-start", str(config)]
    else:
        command = [APACHE, "ensemble", "--servers", "1", "--zk-port", str(port), "--dir", str(root / "coordination")]
    return Server(command, port, root / "coordination.log")


def _broker(system: str, root: pathlib.Path, broker: int, port: int, zk_port: int, settings: dict[str, str]) -> Server:
    properties = {"offsets.topic.replication.factor": "3", **settings}
    if system == OURS:
        properties |= {
            "broker.id": str(broker), "listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "log.dirs": str(root / f"logs-{broker}"), "zookeeper.connect": f"127.0.0.1:{zk_port}",
        }  # fmt: skip
        config = root / f"server{broker}.properties"
        config.write_text(properties_text(properties))
        command = [*BARNABAS, "server-start", str(config)]
    else:
        command = [APACHE, "up", "--brokers", "1", "--first-id", str(broker), "--port", str(port)]
        command += ["--zk", f"127.0.0.1:{zk_port}", "--dir", str(root)]
        for name, value in properties.items():
            command += ["--set", f"{name}={value}"]
    return Server(command, port, root / f"broker-{broker}.log")


def load(running: Running, mb: int, only: str, replicas: int = 1) -> dict[str, dict[str, float]]:
    """The figures named in ``only``, by ../shared/measure/load.py; CPU is that of the brokers."""
    command = [sys.executable, str(SHARED / "measure/load.py"), running.bootstrap, "--mb", str(mb), "--only", only]
    command += ["--rf", str(replicas), "--pids", ",".join(map(str, running.broker_pids))]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def figures_of(found: dict[str, dict[str, float]]) -> dict[str, float]:
    """Those of a load's figures that are compared."""
    units = ("MB/s", "cpu_s_per_GB", "p50", "p99")
    return {
        f"{name} {unit}": values[unit]
        for name, values in found.items()
        if isinstance(values, dict)
        for unit in units
        if unit in values
    }


def admin(bootstrap: str) -> Any:
    """librdkafka's client for administrators."""
    from confluent_kafka.admin import AdminClient

    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})


def create_topics(bootstrap: str, topics: dict[str, int], replicas: int, **config: str) -> None:
    """Topics and how many partitions they have, once there are brokers for all replicas."""
    from confluent_kafka.admin import NewTopic

    client = admin(bootstrap)
    while len(client.list_topics(timeout=10).brokers) < replicas:
        time.sleep(0.1)
    wanted = [NewTopic(name, partitions, replicas, config=config) for name, partitions in topics.items()]
    for made in client.create_topics(wanted, request_timeout=120, operation_timeout=120).values():
        made.result(120)


def fill(bootstrap: str, topic: str, value: bytes, count: int, *, partitions: int | None = None) -> None:
    """Produce a value that many times: to so many partitions in turn, or as librdkafka chooses."""
    from confluent_kafka import Producer

    producer = Producer(
        {"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 5, "batch.size": 1_000_000, "log_level": 0,
         "queue.buffering.max.kbytes": 200_000}
    )  # fmt: skip
    for number in range(count):
        where = {} if partitions is None else {"partition": number % partitions}
        while True:
            try:
                producer.produce(topic, value, **where)
                break
            except BufferError:
                producer.poll(0.05)
        producer.poll(0)
    if producer.flush(300):
        sys.exit(f"{topic} was not filled")


def print_comparison(figures: dict[str, dict[str, float]], *, width: int, digits: int) -> None:
    """A table of the figures by system: ours, Apache's where they were measured, and the ratio."""
    print(f"{'figure':<{width}}{'Barnabas':>12}{'Apache':>12}{'ratio':>8}")
    for name, ours in figures[OURS].items():
        theirs = figures.get(THEIRS, {}).get(name)
        row = f"{name:<{width}}{ours:>12.{digits}g}"
        print(row + (f"{theirs:>12.{digits}g}{ours / theirs:>8.2f}" if theirs else ""))
