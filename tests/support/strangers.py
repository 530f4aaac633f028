"""Clients that run through everything that happens to a cluster and remember the answers.

A producer remembers what was acknowledged, a group's member each record that it was given, in its
order. Each kind is a program of others: librdkafka, kafka-python, Apache's VerifiableProducer and
VerifiableConsumer. None is ever started again: that is for the test to see, in `failures`.
"""

import gc
import json
import logging
import subprocess
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import kafka
from confluent_kafka import Consumer

from support.load import Load
from support.reference import apache_command
from support.waiting import eventually

LIMIT_S = 120
KAFKA_PYTHON_POLL_MS = 5000
"""For groups of kafka-python 3.0. When a poll times out in the millisecond in which the answer to
its SyncGroup arrives, the member takes itself for joined and never takes its partitions: no poll,
however often, brings it out of that state. Where polls of 200 ms were used, three members in a
hundred stood still on a busy machine."""


class SteadyLoad(Load):
    """An idempotent acks=all producer of librdkafka at some five hundred records a second."""

    def _run(self) -> None:
        while not self._stop.wait(0.02):
            for _ in range(10):
                self._producer.produce(
                    self.topic, str(self.sent), key=str(self.sent % 101), on_delivery=self._delivered
                )
                self.sent += 1
            self._producer.poll(0)


@dataclass
class Member:
    """The only member of a group: what it was given, as (partition, offset, number),
    in this order."""

    bootstrap: str
    topic: str
    group: str
    records: list[tuple[int, int, int]] = field(default_factory=list, repr=False)
    failures: list[str] = field(default_factory=list)
    assignments: int = 0

    def __post_init__(self) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._guarded, name=self.group)
        self._thread.start()

    def _guarded(self) -> None:
        try:
            self._run()
        except Exception as error:  # whatever a client raises ends it, and the test must know
            self.failures.append(repr(error))

    def _run(self) -> None:
        raise NotImplementedError

    def finish(self) -> None:
        """Commit and leave the group."""
        self._stop.set()
        self._thread.join(LIMIT_S)
        assert not self._thread.is_alive(), f"{self.group} does not end"


class LibrdkafkaMember(Member):
    """Commits by itself every second."""

    def _run(self) -> None:
        settings = {"bootstrap.servers": self.bootstrap, "group.id": self.group, "auto.offset.reset": "earliest"}
        settings |= {"auto.commit.interval.ms": 1000, "log_level": 0, "reconnect.backoff.max.ms": 500}
        consumer = Consumer(settings)
        consumer.subscribe([self.topic], on_assign=self._assigned)
        while not self._stop.is_set():
            for message in consumer.consume(500, 0.2):
                if message.error() is None:
                    self.records.append((message.partition(), message.offset(), int(message.value())))
                elif not message.error().retriable():
                    self.failures.append(str(message.error()))
        consumer.close()

    def _assigned(self, *_: object) -> None:
        self.assignments += 1


class KafkaPythonMember(Member):
    """Commits by itself every second."""

    def _run(self) -> None:
        # What it logs has tracebacks, which keep its sockets alive until they
        # complain outside of any test.
        logging.getLogger("kafka").setLevel(logging.CRITICAL + 1)
        consumer = kafka.KafkaConsumer(
            self.topic,
            bootstrap_servers=self.bootstrap.split(","),
            group_id=self.group,
            auto_offset_reset="earliest",
            auto_commit_interval_ms=1000,
            metadata_max_age_ms=5000,
        )
        while not self._stop.is_set():
            try:
                polled = consumer.poll(KAFKA_PYTHON_POLL_MS)
            except kafka.errors.KafkaConnectionError:
                # Now and then it raises what a broker's absence makes it log; the
                # next poll goes on.
                continue
            for messages in polled.values():
                self.records += [(message.partition, message.offset, int(message.value)) for message in messages]
        consumer.close()

    def finish(self) -> None:
        super().finish()
        # The client forgets sockets that could not connect: they complain now, in
        # the test that made them.
        gc.collect()


class JavaTool:
    """A tool of Apache's that prints a line of JSON for everything that happens,
    until it is stopped."""

    def __init__(self, main: str, directory: Path, *args: object, version: str = "3.9.1") -> None:
        self.name = f"{main}-{version}-{id(self)}"
        self.events: list[dict[str, Any]] = []
        self._errors = directory / f"{self.name}.log"
        command = apache_command("tool", "--version", version, f"org.apache.kafka.tools.{main}", *args)
        with self._errors.open("ab") as errors:
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        for line in self._process.stdout:
            if line.startswith("{"):
                self.events.append(json.loads(line))
                self._event(self.events[-1])

    def _event(self, event: dict[str, Any]) -> None:
        raise NotImplementedError

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def finish(self) -> None:
        assert self.is_running, f"the tool ended by itself: see {self._errors}"
        self._process.terminate()
        try:
            self._process.wait(LIMIT_S)
        finally:
            self._process.kill()
            self._thread.join()
            self._process.stdout.close()


class JavaProducer(JavaTool):
    """VerifiableProducer, idempotent; `acknowledged` is partition and offset of each number."""

    def __init__(self, bootstrap: str, topic: str, directory: Path, *, version: str = "3.9.1", rate: int = 300) -> None:
        self.acknowledged: dict[int, tuple[int, int]] = {}
        self.failed: list[dict[str, Any]] = []
        config = directory / "verifiable-producer.properties"
        config.write_text("enable.idempotence=true\nretries=2147483647\ndelivery.timeout.ms=120000\n")
        args = ("--bootstrap-server", bootstrap, "--topic", topic, "--throughput", rate, "--acks", -1)
        super().__init__("VerifiableProducer", directory, *args, "--producer.config", config, version=version)

    def _event(self, event: dict[str, Any]) -> None:
        if event["name"] == "producer_send_success":
            self.acknowledged[int(event["value"])] = (event["partition"], event["offset"])
        elif event["name"] == "producer_send_error":
            self.failed.append(event)


class JavaMember(JavaTool):
    """VerifiableConsumer, which commits after each poll; the same attributes as `Member`."""

    def __init__(self, bootstrap: str, topic: str, group: str, directory: Path, *, version: str = "3.9.1") -> None:
        self.group = group
        self.records: list[tuple[int, int, int]] = []
        self.failures: list[str] = []
        self.assignments = 0
        args = ("--bootstrap-server", bootstrap, "--topic", topic, "--group-id", group, "--verbose")
        more = ("--reset-policy", "earliest", "--session-timeout", 45_000)
        super().__init__("VerifiableConsumer", directory, *args, *more, version=version)

    def _event(self, event: dict[str, Any]) -> None:
        match event["name"]:
            case "record_data":
                self.records.append((event["partition"], event["offset"], int(event["value"])))
            case "partitions_assigned":
                self.assignments += 1
            case "offsets_committed" if not event["success"]:
                self.failures.append(event["error"])


def await_progress(count: int, *clients: Load | JavaProducer | Member | JavaMember) -> None:
    """Every client gets on by ``count`` records from now."""
    targets = [(client, _progress(client) + count) for client in clients]
    for client, target in targets:
        eventually(
            lambda client=client, target=target: _progress(client) >= target,
            timeout_s=LIMIT_S,
            what=f"{client} goes on from {target - count}",
        )


def _progress(client: Load | JavaProducer | Member | JavaMember) -> int:
    return len(client.records if isinstance(client, Member | JavaMember) else client.acknowledged)


def assert_each_once_in_order(member: Member | JavaMember, expected: list[tuple[int, int, int]]) -> None:
    """A group was given all that stands in the topic, nothing twice, each partition
    in its order."""
    by_partition: dict[int, list[tuple[int, int]]] = {}
    for partition, offset, number in member.records:
        by_partition.setdefault(partition, []).append((offset, number))
    wanted: dict[int, list[tuple[int, int]]] = {}
    for partition, offset, number in sorted(expected):
        wanted.setdefault(partition, []).append((offset, number))
    assert wanted
    for partition, records in wanted.items():
        assert by_partition.get(partition, []) == records, f"group {member.group}, partition {partition}"
