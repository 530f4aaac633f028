"""Every broker killed with 9 in turn, under producers and groups of four makes: librdkafka,
kafka-python, aiokafka, Java.

Each make has a topic, one idempotent acks=all producer and one group with one member, which
commits as it reads. A kill takes a leader from every topic and, sooner or later, the coordinator
from every group; no client is started again but the brokers. The trial runs once, then each
make's outcome is looked at.
"""

import asyncio
import gc
import itertools
import subprocess
import threading
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError as AioKafkaError
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaConnectionError as KafkaPythonConnectionError
from kafka.errors import KafkaError as KafkaPythonError

from support.load import PARTITIONS, read_all
from support.needs import missing, needs_reference
from support.reference import apache_command
from support.strangers import KAFKA_PYTHON_POLL_MS
from support.trio import BROKERS, Trio, trio
from support.waiting import eventually

pytestmark = [pytest.mark.interop, pytest.mark.fault, pytest.mark.timeout(600)]
LIMIT_S = 90
PAUSE_S = 0.02
A_TIME = 6
"""Records at a time, so some 300 a second."""


@dataclass
class Client:
    """A producer and a group's member on threads of their own, and the answers that they got."""

    cluster: Trio
    topic: str
    acknowledged: list[int] = field(default_factory=list)
    read: list[tuple[int, int]] = field(default_factory=list)
    """(partition, number), in order."""
    failures: list[str] = field(default_factory=list)
    acknowledged_at: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.sent = 0
        self._stop_producing = threading.Event()
        self._stop_reading = threading.Event()
        self._producing = self._thread(self.produce)
        self._reading = self._thread(self.consume)

    def _thread(self, work: object) -> threading.Thread:
        def guarded() -> None:
            try:
                work()
            except Exception as error:  # whatever ends it is an outcome
                self.failures.append(repr(error))

        thread = threading.Thread(target=guarded, daemon=True)
        thread.start()
        return thread

    @property
    def group(self) -> str:
        return f"group of {self.topic}"

    def produce(self) -> None:
        raise NotImplementedError

    def consume(self) -> None:
        raise NotImplementedError

    def acked(self, number: int) -> None:
        self.acknowledged.append(number)
        self.acknowledged_at.append(time.monotonic())

    def numbers(self) -> Iterator[list[int]]:
        """What to send next, until it is time to stop."""
        while not self._stop_producing.wait(PAUSE_S):
            yield list(range(self.sent, self.sent + A_TIME))
            self.sent += A_TIME

    def stop_producing(self) -> None:
        self._stop_producing.set()
        self._producing.join(LIMIT_S)
        assert not self._producing.is_alive()

    def stop_reading(self) -> None:
        self._stop_reading.set()
        self._reading.join(LIMIT_S)
        assert not self._reading.is_alive()

    @property
    def longest_gap_s(self) -> float:
        times = self.acknowledged_at
        return max((after - before for before, after in itertools.pairwise(times)), default=0.0)


class Librdkafka(Client):
    """confluent-kafka."""

    settings = {"log_level": 0, "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 500}

    def produce(self) -> None:
        options = {"acks": "all", "enable.idempotence": True, "linger.ms": 1, "message.timeout.ms": LIMIT_S * 1000}
        producer = Producer({"bootstrap.servers": self.cluster.bootstrap, **options, **self.settings})
        for numbers in self.numbers():
            for number in numbers:
                producer.produce(
                    self.topic, str(number), partition=number % PARTITIONS, on_delivery=self._delivered(number)
                )
            producer.poll(0)
        assert producer.flush(LIMIT_S) == 0

    def _delivered(self, number: int) -> object:
        return lambda error, _: self.failures.append(str(error)) if error else self.acked(number)

    def consume(self) -> None:
        options = {"group.id": self.group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
        consumer = Consumer({"bootstrap.servers": self.cluster.bootstrap, **options, **self.settings})
        consumer.subscribe([self.topic])
        while not self._stop_reading.is_set():
            messages = [message for message in consumer.consume(500, 0.2) if message.error() is None]
            self.read += [(message.partition(), int(message.value())) for message in messages]
            self._commit(consumer)
        eventually(lambda: self._commit(consumer), timeout_s=LIMIT_S, what="the last commit")
        consumer.close()

    def _commit(self, consumer: Consumer) -> bool:
        try:
            consumer.commit(asynchronous=False)
        except KafkaException as error:  # the coordinator moves, or there is nothing to commit
            return error.args[0].code() == -168
        return True


class KafkaPython(Client):
    """kafka-python."""

    def produce(self) -> None:
        producer = KafkaProducer(
            bootstrap_servers=self.cluster.bootstrap.split(","), acks="all", enable_idempotence=True, linger_ms=1
        )
        for numbers in self.numbers():
            for number in numbers:
                future = producer.send(self.topic, str(number).encode(), partition=number % PARTITIONS)
                future.add_callback(lambda _, number=number: self.acked(number))
                future.add_errback(lambda error: self.failures.append(repr(error)))
        producer.flush(LIMIT_S)
        producer.close()

    def consume(self) -> None:
        consumer = KafkaConsumer(
            self.topic,
            bootstrap_servers=self.cluster.bootstrap.split(","),
            group_id=self.group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            metadata_max_age_ms=5000,
        )
        while not self._stop_reading.is_set():
            try:
                polled = consumer.poll(KAFKA_PYTHON_POLL_MS)
            except KafkaPythonConnectionError:
                # Now and then it raises what a broker's absence makes it log; the
                # next poll goes on.
                continue
            for messages in polled.values():
                self.read += [(message.partition, int(message.value)) for message in messages]
            self._commit(consumer)
        eventually(lambda: self._commit(consumer), timeout_s=LIMIT_S, what="the last commit")
        consumer.close()

    def _commit(self, consumer: KafkaConsumer) -> bool:
        try:
            consumer.commit()
        except KafkaPythonError:  # the coordinator moves
            return False
        return True


class AioKafka(Client):
    """aiokafka."""

    def produce(self) -> None:
        asyncio.run(self._produce())

    async def _produce(self) -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=self.cluster.bootstrap, enable_idempotence=True, request_timeout_ms=LIMIT_S * 1000
        )
        await producer.start()
        waiting = []
        while not self._stop_producing.is_set():
            await asyncio.sleep(PAUSE_S)
            for number in range(self.sent, self.sent + A_TIME):
                future = await producer.send(self.topic, str(number).encode(), partition=number % PARTITIONS)
                future.add_done_callback(lambda done, number=number: self._delivered(number, done))
                waiting.append(future)
            self.sent += A_TIME
        await asyncio.wait(waiting, timeout=LIMIT_S)
        await producer.stop()

    def _delivered(self, number: int, done: "asyncio.Future[object]") -> None:
        if done.exception() is None:
            self.acked(number)
        else:
            self.failures.append(repr(done.exception()))

    def consume(self) -> None:
        asyncio.run(self._consume())

    async def _consume(self) -> None:
        consumer = AIOKafkaConsumer(
            self.topic,
            bootstrap_servers=self.cluster.bootstrap,
            group_id=self.group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            metadata_max_age_ms=5000,
            # The other clients' timeout: a member must outlast a machine that stands still.
            session_timeout_ms=45_000,
        )
        await consumer.start()
        while not self._stop_reading.is_set() or not await self._commit(consumer):
            for messages in (await consumer.getmany(timeout_ms=200)).values():
                self.read += [(message.partition, int(message.value)) for message in messages]
            await self._commit(consumer)
        await consumer.stop()

    async def _commit(self, consumer: AIOKafkaConsumer) -> bool:
        try:
            await consumer.commit()
        except AioKafkaError:  # the coordinator moves
            return False
        return True


class Java(Client):
    """Apache's console producer, which says at its end alone whether all went well,
    and its console consumer."""

    def _start(self, main: str, *args: object) -> "subprocess.Popen[str]":
        where = "--bootstrap-server", self.cluster.bootstrap, "--topic", self.topic
        self.errors = self.cluster.directory / f"{main}.log"
        with self.errors.open("ab") as errors:
            return subprocess.Popen(
                apache_command("tool", main, *where, *args),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )

    def produce(self) -> None:
        process = self._start(
            "kafka.tools.ConsoleProducer",
            *("--producer-property", "enable.idempotence=true", "--producer-property", "acks=all"),
            *("--producer-property", f"delivery.timeout.ms={LIMIT_S * 1000}"),
            *("--message-send-max-retries", 2**31 - 1, "--property", "parse.key=true", "--timeout", 1),
        )
        for numbers in self.numbers():
            process.stdin.write("".join(f"{number % 101}\t{number}\n" for number in numbers))
            process.stdin.flush()
        log = self.errors
        process.communicate(timeout=LIMIT_S)
        if process.returncode or "ERROR" in log.read_text():
            self.failures.append(f"the producer ended with {process.returncode}: {log.read_text()[-500:]}")
        else:
            self.acknowledged = list(range(self.sent))

    def consume(self) -> None:
        process = self._start(
            "org.apache.kafka.tools.consumer.ConsoleConsumer",
            *("--group", self.group, "--from-beginning", "--property", "print.partition=true"),
            *("--consumer-property", "auto.commit.interval.ms=500"),
        )
        reading = threading.Thread(target=self._read, args=(process,), daemon=True)
        reading.start()
        self._stop_reading.wait()
        process.terminate()
        process.wait(LIMIT_S)
        reading.join(LIMIT_S)
        process.stdout.close()
        process.stdin.close()

    def _read(self, process: "subprocess.Popen[str]") -> None:
        for line in process.stdout:
            where, _, number = line.rstrip("\n").rpartition("\t")
            self.read.append((int(where.split("\t")[0].removeprefix("Partition:")), int(number)))


MAKES = {make.__name__: make for make in (Librdkafka, KafkaPython, AioKafka, Java)}


@dataclass
class Outcome:
    """What the trial left behind."""

    client: Client
    stored: list[tuple[int, int, int]]
    """(partition, offset, number)"""
    committed: dict[int, int]


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Outcome]]:
    """Kill each broker once; the clients of each make go on before the next one goes."""
    makes = [make for make in MAKES.values() if make is not Java or not missing(needs_reference.args)]
    with trio(tmp_path_factory.mktemp("failover"), {"offsets.topic.num.partitions": 6}) as cluster:
        for make in makes:
            cluster.create(make.__name__)
        clients = [make(cluster, make.__name__) for make in makes]
        for number in range(BROKERS):
            all_go_on(clients)
            cluster.brokers[number].kill()
            all_go_on(clients)
            cluster.brokers[number].start()
            for topic in ("__consumer_offsets", *(client.topic for client in clients)):
                cluster.wait_until_in_sync(topic)
        for client in clients:
            client.stop_producing()
        outcomes = {}
        for client in clients:
            stored = read_all(cluster.bootstrap, client.topic)
            eventually(
                lambda client=client, stored=stored: len(client.read) >= len(stored) or client.failures,
                timeout_s=LIMIT_S,
                what=f"{client.topic} has read everything",
            )
            client.stop_reading()
            outcomes[client.topic] = Outcome(client, stored, committed(cluster, client))
    yield outcomes
    outcomes.clear()
    del client, clients
    with warnings.catch_warnings():
        # kafka-python leaves sockets to the collector.
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


def all_go_on(clients: list[Client]) -> None:
    """Every client writes and reads."""
    for client in clients:
        before = len(client.read)
        eventually(
            lambda client=client, before=before: len(client.read) > before + 50 or client.failures,
            timeout_s=LIMIT_S,
            what=f"{client.topic} goes on",
        )


def committed(cluster: Trio, client: Client) -> dict[int, int]:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": client.group, "log_level": 0})
    asked = [TopicPartition(client.topic, partition) for partition in range(PARTITIONS)]
    try:
        return {found.partition: found.offset for found in consumer.committed(asked, timeout=LIMIT_S)}
    finally:
        consumer.close()


@pytest.fixture(params=["Librdkafka", "KafkaPython", "AioKafka", pytest.param("Java", marks=needs_reference)])
def outcome(outcomes: dict[str, Outcome], request: pytest.FixtureRequest) -> Outcome:
    return outcomes[request.param]


def test_producers_lose_and_double_nothing_when_brokers_are_killed(outcome: Outcome, record_property) -> None:
    """Every number that was acknowledged stands in the topic once, and nothing failed."""
    client = outcome.client
    record_property("longest gap between acknowledgements, s", round(client.longest_gap_s, 2))
    assert client.failures == []
    assert len(client.acknowledged) > 500
    numbers = Counter(number for _, _, number in outcome.stored)
    assert set(client.acknowledged) <= numbers.keys()
    assert max(numbers.values()) == 1


def test_groups_read_everything_once_and_in_order_when_their_coordinators_are_killed(outcome: Outcome) -> None:
    """The member keeps its place: no record twice, none left out, although each
    broker died once."""
    for partition in range(PARTITIONS):
        stored = [number for index, _, number in sorted(outcome.stored) if index == partition]
        assert [number for index, number in outcome.client.read if index == partition] == stored


def test_groups_keep_their_offsets_when_their_coordinators_are_killed(outcome: Outcome) -> None:
    """What the member committed at its end is what the group has: the end of each partition."""
    ends: dict[int, int] = {}
    for partition, offset, _ in outcome.stored:
        ends[partition] = max(ends.get(partition, 0), offset + 1)
    assert outcome.committed == ends
