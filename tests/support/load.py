"""A load whose every acknowledgement is remembered, and what stands in the topic afterwards."""

import logging
import threading
import time
import warnings
from collections import Counter, deque
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from support.record_copies import RAISED_EPOCH, batches_near, by_kind, copies_of, described, keep_logs
from support.waiting import eventually

PARTITIONS = 3
_KEPT_LINES = 1000
_POSITION_LOST = (KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET, KafkaError._LOG_TRUNCATION)


@dataclass
class Load:
    """A producer that writes numbered records until it is stopped, and what was acknowledged."""

    bootstrap: str
    topic: str
    acknowledged: set[int] = field(default_factory=set)
    failed: list[str] = field(default_factory=list)
    sent: int = 0

    def __post_init__(self) -> None:
        self._stop = threading.Event()
        self.client_log: deque[str] = deque(maxlen=_KEPT_LINES)
        """The client's last lines about its producer id, its epoch and the order of its batches."""
        settings = {"acks": "all", "enable.idempotence": True, "linger.ms": 2, "message.timeout.ms": 120_000}
        settings |= {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200, "debug": "eos"}
        self._producer = Producer({"bootstrap.servers": self.bootstrap, **settings}, logger=_logger(self.client_log))
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.acknowledged.add(int(message.value()))
        else:
            self.failed.append(str(error))

    def _run(self) -> None:
        while not self._stop.is_set():
            for _ in range(50):
                self._producer.produce(
                    self.topic, str(self.sent), key=str(self.sent % 101), on_delivery=self._delivered
                )
                self.sent += 1
            self._producer.poll(0.01)
            while len(self._producer) > 20_000:
                self._producer.poll(0.1)

    def goes_on(self, records: int, what: str, *, timeout_s: float = 60) -> float:
        """Wait until this many more are acknowledged; returns the seconds that it took."""
        start, before = time.monotonic(), len(self.acknowledged)
        eventually(lambda: len(self.acknowledged) >= before + records, timeout_s=timeout_s, what=what)
        return time.monotonic() - start

    def finish(self) -> None:
        self._stop.set()
        self._thread.join()
        assert self._producer.flush(120) == 0


def read_all(bootstrap: str, topic: str, partitions: int = PARTITIONS) -> list[tuple[int, int, int]]:
    """Every record as (partition, offset, number)."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "check", "enable.auto.commit": False, "log_level": 0}
    )
    ends = {}
    for partition in range(partitions):
        ends[partition] = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=30)[1]
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    records: list[tuple[int, int, int]] = []
    end = time.monotonic() + 120
    while len(records) < sum(ends.values()):
        assert time.monotonic() < end, f"{topic} could not be read to its end: {len(records)} records of {ends}"
        for message in consumer.consume(5000, 0.5):
            assert message.error() is None, message.error()
            records.append((message.partition(), message.offset(), int(message.value())))
    consumer.close()
    return records


@dataclass
class Reader:
    """A consumer that reads everything from the first offset on while the cluster
    has its faults."""

    bootstrap: str
    topic: str
    partitions: int = PARTITIONS
    records: list[tuple[int, int, int]] = field(default_factory=list)
    """(partition, offset, number), as they came."""
    failed: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._stop = threading.Event()
        settings = {"group.id": "reader", "enable.auto.commit": False, "auto.offset.reset": "error", "log_level": 0}
        settings |= {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200}
        self._consumer = Consumer({"bootstrap.servers": self.bootstrap, **settings})
        self._consumer.assign([TopicPartition(self.topic, partition, 0) for partition in range(self.partitions)])
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            for message in self._consumer.consume(5000, 0.1):
                error = message.error()
                if error is None:
                    self.records.append((message.partition(), message.offset(), int(message.value())))
                elif not error.retriable() and error.code() in _POSITION_LOST:
                    self.failed.append(str(error))

    def finish(self, records: list[tuple[int, int, int]]) -> None:
        """Stop when all of ``records`` were read: each partition in order, nothing left
        out, shown twice or changed."""
        try:
            eventually(lambda: len(self.records) >= len(records), timeout_s=60, what="the reader has read everything")
        finally:
            self._stop.set()
            self._thread.join()
            self._consumer.close()
        assert self.failed == []
        for partition in range(self.partitions):
            seen = [(offset, number) for index, offset, number in self.records if index == partition]
            assert seen == sorted((offset, number) for index, offset, number in records if index == partition)


def assert_exactly_once_in_order(
    load: Load, records: list[tuple[int, int, int]], directory: Path, kept: Path | None = None
) -> None:
    """Each acknowledged number is there, none twice, those of one key in the order of their
    sending.

    The brokers' log dirs are below ``directory``. If the client has sent records again in an epoch
    that it has raised itself, the fault is its own: a warning reports the copies, and they count
    once. Other copies fail the test, with the batches around them. Logs that do not outlive the
    cluster are then copied below ``kept``.
    """
    assert load.acknowledged
    missing = load.acknowledged - {number for _, _, number in records}
    assert not missing, f"{len(missing)} acknowledged records are missing, such as {sorted(missing)[:20]}"
    once = _without_copies_by_the_client(load, sorted(records), directory, kept)
    by_key: dict[int, int] = {}
    for _, _, number in once:
        assert by_key.get(number % 101, -1) < number, "records of one key changed their order"
        by_key[number % 101] = number


def _without_copies_by_the_client(
    load: Load, records: list[tuple[int, int, int]], directory: Path, kept: Path | None
) -> list[tuple[int, int, int]]:
    times = Counter(number for _, _, number in records)
    doubled = {number for number, count in times.items() if count > 1}
    if not doubled:
        return records
    copies = copies_of(doubled, directory, load.topic)
    kinds = by_kind(copies)
    lines = [described(kinds), *(line for line in load.client_log if "PID" in line or "DrainBump" in line)]
    if kinds.keys() - {RAISED_EPOCH} or any(len(found) != times[number] for number, found in copies.items()):
        logs = directory if kept is None else keep_logs(directory, load.topic, kept)
        shown = [copy for number in sorted(doubled)[:5] for copy in copies[number]]
        lines = [*lines, batches_near(shown, directory, load.topic), f"The logs are below {logs}"]
        raise AssertionError("Records stand twice:\n" + "\n".join(lines))
    with warnings.catch_warnings():
        warnings.simplefilter("always")  # a warning must not fail the test
        warnings.warn("The client has sent records twice:\n" + "\n".join(lines), stacklevel=3)
    first = {number: (found[0].partition, found[0].offset) for number, found in copies.items()}
    return [each for each in records if first.get(each[2], each[:2]) == each[:2]]


def _logger(lines: deque[str]) -> logging.Logger:
    """A logger, without a parent, that keeps lines."""

    class Kept(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    logger = logging.Logger("librdkafka", logging.DEBUG)
    logger.addHandler(Kept())
    return logger
