"""What security costs, beside Apache Kafka: logins by SASL, records over TLS, a storm of failed
logins, and access control lists.

``python bench/security.py [logins] [tls] [storm] [acls] [--rounds N] [--seconds S]``

Brokers have a listener for each kind of security, and run at the same time; they are used in turns.
"""

import argparse
import contextlib
import json
import os
import pathlib
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Self

from acl_costs import measure_many, measure_rights
from systems import APACHE, BARNABAS, HAS_LOAD, HAS_REFERENCE, OURS, THEIRS, Server, cpu_s, free_ports, resident_kb

from barnabas.base.settings import properties_text
from barnabas.security.plain import plain_message
from barnabas.security.scram import SaltedPassword, ScramClient

USER, PASSWORD = "ann", "anns-password"
MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN")
MODULES = "org.apache.kafka.common.security"


class Broker:
    """A broker of either system with one listener for each kind of security."""

    def __init__(self, system: str, directory: pathlib.Path) -> None:
        self.system = system
        self.directory = directory
        self.zk_port, self.port, self.sasl_port, self.tls_port, self.sasl_tls_port = free_ports(5)
        self._servers: list[Server] = []

    def start(self) -> None:
        coordination = self._coordination()
        self._servers = [coordination, Server(self._command(), self.port, self.directory / "broker.log")]
        coordination.start()
        for mechanism in MECHANISMS[:2]:
            command = [*BARNABAS, "configs", "--zookeeper", f"127.0.0.1:{self.zk_port}", "--alter", "--entity-type"]
            command += ["users", "--entity-name", USER, "--add-config", f"{mechanism}=[password={PASSWORD}]"]
            subprocess.run(command, check=True, capture_output=True)
        self._servers[1].start()
        for port in (self.sasl_port, self.tls_port):
            while True:
                with contextlib.suppress(OSError):
                    socket.create_connection(("127.0.0.1", port), 1).close()
                    break
                time.sleep(0.05)

    def stop(self) -> None:
        for server in reversed(self._servers):
            server.stop()

    @property
    def pids(self) -> list[int]:
        """The broker's process, not that of the script that has started it."""
        pid = self._servers[1].process.pid
        children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return [pid] if self.system == OURS else [int(child) for child in children]

    def _coordination(self) -> Server:
        if self.system == OURS:
            config = self.directory / "zoo.cfg"
            texts = {"dataDir": str(self.directory / "coordination"), "clientPort": str(self.zk_port)}
            config.write_text(properties_text(texts))
            command = [*BARNABAS, "zookeeper-server-start", str(config)]
        else:
            command = [APACHE, "ensemble", "--servers", "1", "--zk-port", str(self.zk_port)]
            command += ["--dir", str(self.directory / "coordination")]
        return Server(command, self.zk_port, self.directory / "coordination.log")

    def _command(self) -> list[str]:
        properties = {
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},SASL_PLAINTEXT://127.0.0.1:{self.sasl_port},"
            f"SSL://127.0.0.1:{self.tls_port},SASL_SSL://127.0.0.1:{self.sasl_tls_port}",
            "inter.broker.listener.name": "PLAINTEXT",
            "offsets.topic.replication.factor": "1",
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.directory / "broker.pem"),
            "zookeeper.connect": f"127.0.0.1:{self.zk_port}",
            "broker.id": "0",
        }
        for listener in ("sasl_plaintext", "sasl_ssl"):
            prefix = f"listener.name.{listener}"
            for mechanism in MECHANISMS[:2]:
                properties[f"{prefix}.{mechanism.lower()}.sasl.jaas.config"] = (
                    f"{MODULES}.scram.ScramLoginModule required;"
                )
            properties[f"{prefix}.plain.sasl.jaas.config"] = (
                f'{MODULES}.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
            )
        certificate(self.directory)
        if self.system == OURS:
            config = self.directory / "server.properties"
            config.write_text(properties_text({**properties, "log.dirs": str(self.directory / "logs")}))
            return [*BARNABAS, "server-start", str(config)]
        command = [APACHE, "up", "--brokers", "1", "--port", str(self.port), "--zk", properties["zookeeper.connect"]]
        command += ["--dir", str(self.directory)]
        for name, value in properties.items():
            command += ["--set", f"{name}={value}"]
        return command


def certificate(directory: pathlib.Path) -> None:
    """A key with a certificate that signs itself, in one file, and the certificate alone."""
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-days",
        "2",
    ]
    command += ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    command += ["-keyout", str(directory / "key"), "-out", str(directory / "broker.crt")]
    subprocess.run(command, check=True, capture_output=True)
    (directory / "broker.pem").write_text((directory / "key").read_text() + (directory / "broker.crt").read_text())


# Logins


def _ask(connection: socket.socket, key: int, version: int, body: bytes) -> bytes:
    message = struct.pack(">hhih", key, version, 1, 1) + b"b" + body
    connection.sendall(struct.pack(">i", len(message)) + message)
    return _frame(connection)


def _frame(connection: socket.socket) -> bytes:
    data = b""
    while len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], "big"):
        piece = connection.recv(65536)
        if not piece:
            raise ConnectionError("the broker has closed the connection")
        data += piece
    return data[8:]


def log_in(port: int, mechanism: str, salted: SaltedPassword | None) -> None:
    """One login on a connection of its own."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        _ask(connection, 18, 0, b"")
        _ask(connection, 17, 1, struct.pack(">h", len(mechanism)) + mechanism.encode())

        def say(token: bytes) -> bytes:
            answer = _ask(connection, 36, 0, struct.pack(">i", len(token)) + token)
            code, length = struct.unpack_from(">hh", answer)
            assert code == 0, answer
            return answer[4 + max(length, 0) + 4 :]

        if salted is None:
            say(plain_message(USER, PASSWORD))
            return
        client = ScramClient(mechanism, USER, salted, os.urandom(12).hex())
        client.verify(say(client.final(say(client.first()))))


def measure_logins(brokers: list[Broker], rounds: int, count: int) -> dict[str, dict[str, float]]:
    """Milliseconds of a login, and the broker's CPU for one; the median of rounds, in turns."""
    found: dict[str, dict[str, list[float]]] = {}
    salted = {mechanism: SaltedPassword(mechanism, PASSWORD) for mechanism in MECHANISMS[:2]}
    for number in range(rounds + 1):
        for broker in brokers if number % 2 else reversed(brokers):
            for mechanism in MECHANISMS:
                cpu, start = cpu_s(broker.pids), time.perf_counter()
                for _ in range(count):
                    log_in(broker.sasl_port, mechanism, salted.get(mechanism))
                took_ms = (time.perf_counter() - start) * 1000 / count
                cpu_ms = (cpu_s(broker.pids) - cpu) * 1000 / count
                if number:  # the first round warms up
                    found.setdefault(f"{mechanism} login, ms", {}).setdefault(broker.system, []).append(took_ms)
                    found.setdefault(f"{mechanism} CPU, ms", {}).setdefault(broker.system, []).append(cpu_ms)
    return {name: {system: statistics.median(each) for system, each in by.items()} for name, by in found.items()}


# Records over TLS


def measure_tls(brokers: list[Broker], rounds: int, mb: int) -> dict[str, dict[str, float]]:
    """MB/s of records of 1 KB, produced with acks=1 and consumed, over TLS and without."""
    found: dict[str, dict[str, list[float]]] = {}
    for number in range(rounds + 1):
        for broker in brokers if number % 2 else reversed(brokers):
            for name, port in (("TLS", broker.tls_port), ("PLAINTEXT", broker.port)):
                settings = {"bootstrap.servers": f"127.0.0.1:{port}"}
                if name == "TLS":
                    settings |= {"security.protocol": "SSL", "ssl.ca.location": str(broker.directory / "broker.crt")}
                topic = f"t-{name}-{number}"
                for kind, rate in (
                    ("produce", produce(settings, topic, mb)),
                    ("consume", consume(settings, topic, mb)),
                ):
                    if number:
                        found.setdefault(f"{kind} {name}, MB/s", {}).setdefault(broker.system, []).append(rate)
    return {name: {system: statistics.median(each) for system, each in by.items()} for name, by in found.items()}


def produce(settings: dict[str, str], topic: str, mb: int) -> float:
    from confluent_kafka import Producer

    producer = Producer({**settings, "linger.ms": 5, "acks": "1", "queue.buffering.max.kbytes": 200_000})
    payload = os.urandom(1024)
    producer.produce(topic, payload, partition=0)
    producer.flush(60)
    start = time.perf_counter()
    for _ in range(mb * 1024):
        while True:
            try:
                producer.produce(topic, payload, partition=0)
                break
            except BufferError:
                producer.poll(0.05)
    assert producer.flush(120) == 0
    return mb / (time.perf_counter() - start)


def consume(settings: dict[str, str], topic: str, mb: int) -> float:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({**settings, "group.id": "bench", "enable.auto.commit": "false"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    left, start = mb * 1024 + 1, 0.0
    while left:
        messages = consumer.consume(min(5000, left), 30)
        assert messages, "no records came"
        start = start or time.perf_counter()
        left -= len(messages)
    rate = mb / (time.perf_counter() - start)
    consumer.close()
    return rate


# A storm of failed logins

_STORM = """
import asyncio, os, struct, sys, time
port, rate, seconds = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
def frame(key, version, body):
    message = struct.pack(">hhih", key, version, 1, 1) + b"s" + body
    return struct.pack(">i", len(message)) + message
shake = frame(17, 1, struct.pack(">h", 13) + b"SCRAM-SHA-256")
def auth(token): return frame(36, 0, struct.pack(">i", len(token)) + token)
done = failed = 0
async def attempt(number):
    global done, failed
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        user = b"ann" if number % 2 else b"user-%d" % number
        writer.write(shake)
        await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
        writer.write(auth(b"n,,n=" + user + b",r=abc"))
        answer = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
        nonce = answer[answer.index(b"r="):].split(b",")[0] if b"r=" in answer else b"r=x"
        writer.write(auth(b"c=biws," + nonce + b",p=" + b"A" * 43 + b"="))
        await reader.read(65536)
        writer.close()
        done += 1
    except (OSError, asyncio.IncompleteReadError, ValueError):
        failed += 1
async def main():
    start, number, tasks = time.monotonic(), 0, set()
    while (now := time.monotonic() - start) < seconds:
        while number < now * rate and len(tasks) < 5000:
            task = asyncio.create_task(attempt(number)); number += 1
            tasks.add(task); task.add_done_callback(tasks.discard)
        await asyncio.sleep(0.005)
    took = time.monotonic() - start
    print(f"{number} attempts in {took:.1f} s, {done} answered, {failed} broken off")
    await asyncio.wait(tasks, timeout=10) if tasks else None
asyncio.run(main())
"""


class Others:
    """What another client sees: one record and its acknowledgement after the other."""

    def __init__(self, port: int) -> None:
        from confluent_kafka import Producer

        self._producer = Producer({"bootstrap.servers": f"127.0.0.1:{port}", "linger.ms": 0, "acks": "1"})
        self.took_ms: list[float] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self._stop.is_set():
            start = time.perf_counter()
            self._producer.produce("others", b"x" * 100, partition=0)
            self._producer.flush(30)
            self.took_ms.append((time.perf_counter() - start) * 1000)
            time.sleep(0.005)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


def percentile(values: list[float], part: float) -> float:
    return sorted(values)[int(len(values) * part)]


def measure_storm(broker: Broker, seconds: float, rate: int) -> dict[str, float | str]:
    """p99 of another client before and during a storm, the broker's memory, and its log."""
    with Others(broker.port) as warm:
        time.sleep(3)
    with Others(broker.port) as before:
        time.sleep(min(seconds, 20))
    memory, log = resident_kb(*broker.pids), (broker.directory / "broker.log").stat().st_size
    cpu = cpu_s(broker.pids)
    command = [sys.executable, "-c", _STORM, str(broker.sasl_port), str(rate), str(seconds)]
    attacker = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    time.sleep(1)
    with Others(broker.port) as during:
        said = attacker.communicate()[0].strip()
    used = cpu_s(broker.pids) - cpu
    time.sleep(1)
    assert warm.took_ms
    return {
        "attempts": said,
        "p50 before, ms": percentile(before.took_ms, 0.5),
        "p99 before, ms": percentile(before.took_ms, 0.99),
        "p50 during, ms": percentile(during.took_ms, 0.5),
        "p99 during, ms": percentile(during.took_ms, 0.99),
        "CPU of the broker during, s": used,
        "memory before, MB": memory / 1024,
        "memory grown by, MB": (resident_kb(*broker.pids) - memory) / 1024,
        "log grown by, KB": ((broker.directory / "broker.log").stat().st_size - log) / 1024,
    }


@contextlib.contextmanager
def running(systems: list[str]) -> Iterator[list[Broker]]:
    """Brokers of these systems, beside each other."""
    with tempfile.TemporaryDirectory() as directory:
        brokers = [Broker(system, pathlib.Path(directory, system)) for system in systems]
        try:
            for broker in brokers:
                broker.directory.mkdir()
                broker.start()
            yield brokers
        finally:
            for broker in brokers:
                broker.stop()


def measure_acls(systems: list[str], rounds: int, mb: int, count: int, many: int) -> None:
    """Print what lists cost, with brokers of their own (see `acl_costs`): each part when it is
    done, for together they take long."""
    for system in systems:
        if count and HAS_LOAD:
            show(f"rights, {count} ACLs, {system}", measure_rights(system, rounds, mb, count))
        if many:
            show(f"{many} ACLs, {system}", measure_many(system, many))


def show(what: str, figures: Mapping[str, object]) -> None:
    print(json.dumps({what: {**figures, "load": os.getloadavg()[0]}}, indent=2), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="*", default=["logins", "tls", "storm"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--logins", type=int, default=300)
    parser.add_argument("--mb", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--rate", type=int, default=1000)
    parser.add_argument("--only", choices=(OURS, THEIRS))
    parser.add_argument("--acls", type=int, default=10_000, help="ACLs beside which Produce is measured")
    parser.add_argument("--many-acls", type=int, default=100_000, help="ACLs of one broker; 0 to leave that out")
    given = parser.parse_args()
    systems = [given.only] if given.only else [OURS, THEIRS] if HAS_REFERENCE else [OURS]
    if "acls" in given.what:
        measure_acls(systems, given.rounds, given.mb, given.acls, given.many_acls)
        given.what.remove("acls")
        if not given.what:
            return
    with running(systems) as brokers:
        figures: dict[str, object] = {"load": os.getloadavg()[0]}
        if "logins" in given.what:
            figures |= measure_logins(brokers, given.rounds, given.logins)
        if "tls" in given.what:
            figures |= measure_tls(brokers, given.rounds, given.mb)
        if "storm" in given.what:
            for broker in brokers:
                figures[f"storm, {broker.system}"] = measure_storm(broker, given.seconds, given.rate)
        print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
