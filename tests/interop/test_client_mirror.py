"""The mirror maker between two clusters of ours, with properties files as the first
clients had them."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from barnabas.base.ids import TopicPartition
from barnabas.client import Admin, Consumer, Producer, Record
from support.servers import BARNABAS, Up, up
from support.waiting import eventually

pytestmark = [pytest.mark.interop]
BOUNCES = int(os.environ.get("BARNABAS_BOUNCES", "2"))
EACH = 10_000
# Older records than log.retention.ms may be deleted at any time.
START_MS = int(time.time() * 1000) - 1_000_000


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """The cluster that is read."""
    with up(tmp_path_factory.mktemp("source")) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """The cluster that is written, where topics get two partitions."""
    with up(tmp_path_factory.mktemp("target"), "--override", "num.partitions=2") as cluster:
        yield cluster


class Mirror:
    """A mirror maker as a process."""

    def __init__(
        self, directory: Path, source: Up, target: Up, group: str, pattern: str, *extra: str, session_ms: int
    ) -> None:
        consumer, producer = directory / "consumer.properties", directory / "producer.properties"
        consumer.write_text(
            f"zookeeper.connect={source.zookeeper}\nzookeeper.connection.timeout.ms=6000\ngroup.id={group}\n"
            "consumer.timeout.ms=5000\n"
            f"session.timeout.ms={session_ms}\n"
        )
        producer.write_text(
            f"metadata.broker.list={target.bootstrap}\nproducer.type=async\ncompression.codec=snappy\n"
            "serializer.class=kafka.serializer.DefaultEncoder\n"
        )
        command = [*BARNABAS, "mirror-maker", "--consumer.config", str(consumer), "--num.streams", "2"]
        command += ["--producer.config", str(producer), f"--whitelist={pattern}", "--topic.refresh.ms", "200"]
        self.process = subprocess.Popen([*command, *extra], stderr=subprocess.PIPE, text=True)

    def kill(self) -> None:
        """As with 9, at any time; a second call does nothing."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.communicate()

    def stop(self) -> str:
        """SIGTERM; what it said."""
        self.process.send_signal(signal.SIGTERM)
        _, errors = self.process.communicate(timeout=60)
        assert self.process.returncode == 0, errors
        return errors


@pytest.fixture
def start(source: Up, target: Up, tmp_path: Path) -> Iterator[Callable[..., Mirror]]:
    """Starts mirrors; none outlives the test."""
    mirrors: list[Mirror] = []

    def new(group: str, pattern: str, *extra: str, session_ms: int = 45_000) -> Mirror:
        mirrors.append(Mirror(tmp_path, source, target, group, pattern, *extra, session_ms=session_ms))
        return mirrors[-1]

    yield new
    for mirror in mirrors:
        mirror.kill()


def fill(cluster: Up, topic: str, count: int, *, partitions: int = 3, first: int = 0) -> None:
    """``count`` records with keys, headers and timestamps, numbered from ``first``."""
    with Admin({"bootstrap.servers": cluster.bootstrap}) as admin:
        admin.create_topic(topic, partitions=partitions, replication_factor=1, if_not_exists=True)
    with Producer({"bootstrap.servers": cluster.bootstrap}) as producer:
        for n in range(first, first + count):
            headers = [("n", b"%d" % n)]
            producer.send(topic, f"value {n}", key=f"key {n % 50}", timestamp_ms=START_MS + n, headers=headers)


def read(cluster: Up, topic: str) -> list[Record]:
    """All records of a topic."""
    with Admin({"bootstrap.servers": cluster.bootstrap}) as admin:
        if topic not in admin.list_topics():
            return []
        (described,) = admin.describe_topics([topic])
        partitions = [TopicPartition(topic, item.partition) for item in described.partitions]
        ends = admin.list_offsets(dict.fromkeys(partitions, -1))
    total = sum(found.offset for found in ends.values())
    properties = {"bootstrap.servers": cluster.bootstrap, "auto.offset.reset": "earliest"}
    with Consumer(properties) as consumer:
        consumer.assign(partitions)
        records: list[Record] = []
        while len(records) < total:
            records += consumer.consume(1000, 1.0)
    return records


def fields(record: Record) -> tuple[object, ...]:
    """What a mirror must keep."""
    return record.key, record.value, record.timestamp_ms, tuple(record.headers)


def test_records_arrive_whole_and_new_topics_are_found(source: Up, target: Up, start: Callable[..., Mirror]) -> None:
    """Other partition counts, equal keys together and in order, a topic made while
    running, a clean stop."""
    fill(source, "first.a", 500)
    fill(source, "other", 5)
    mirror = start("mirror-1", '"first.*"')
    try:
        eventually(lambda: len(read(target, "first.a")) == 500, what="the first topic is mirrored")
        fill(source, "first.b", 300, partitions=1)
        eventually(lambda: len(read(target, "first.b")) == 300, what="the new topic is mirrored")
    finally:
        said = mirror.stop()
    assert "Mirrored a total of 800 messages" in said
    for topic, count in (("first.a", 500), ("first.b", 300)):
        there, here = read(source, topic), read(target, topic)
        assert sorted(map(fields, here)) == sorted(map(fields, there))
        assert len(here) == count
        by_key: dict[bytes, list[Record]] = {}
        for record in here:
            by_key.setdefault(record.key, []).append(record)
        for records in by_key.values():
            assert len({record.partition for record in records}) == 1
            assert [record.timestamp_ms for record in records] == sorted(record.timestamp_ms for record in records)
    with Admin({"bootstrap.servers": target.bootstrap}) as admin:
        assert "other" not in admin.list_topics()
        assert len(admin.describe_topics(["first.a"])[0].partitions) == 2


def test_a_mirror_without_any_topic_waits_for_one(source: Up, target: Up, start: Callable[..., Mirror]) -> None:
    """All topics that it mirrors are deleted: it gives up its subscription, and takes
    the topic that comes again."""
    fill(source, "gone.a", 100)
    mirror = start("mirror-gone", "gone.a", "--offset.commit.interval.ms", "200")
    try:
        eventually(lambda: len(read(target, "gone.a")) == 100, what="the topic is mirrored")
        with Admin({"bootstrap.servers": source.bootstrap}) as admin:
            admin.delete_topics(["gone.a"])
            eventually(lambda: "gone.a" not in admin.list_topics(), what="the topic is gone")
            eventually(lambda: not admin.describe_group("mirror-gone").members, what="the mirror left its group")
        fill(source, "gone.a", 50, first=100)
        eventually(lambda: len(read(target, "gone.a")) == 150, what="the new topic is mirrored")
    finally:
        said = mirror.stop()
    assert "mirrors nothing yet" in said


def test_a_mirror_started_again_goes_on_where_it_stopped(source: Up, target: Up, start: Callable[..., Mirror]) -> None:
    """A clean stop commits what the target has: nothing is copied twice."""
    fill(source, "again", 100)
    mirror = start("mirror-2", "again")
    eventually(lambda: len(read(target, "again")) == 100, what="the topic is mirrored")
    mirror.stop()
    fill(source, "again", 100)
    mirror = start("mirror-2", "again")
    eventually(lambda: len(read(target, "again")) >= 200, what="the rest is mirrored")
    assert "Mirrored a total of 100 messages" in mirror.stop()
    assert len(read(target, "again")) == 200


@pytest.mark.fault
def test_a_mirror_that_is_killed_again_and_again_loses_nothing(
    source: Up, target: Up, start: Callable[..., Mirror], record_property
) -> None:
    """kill -9 once it copies, with more records each time: in the end all are there,
    some perhaps more than once."""
    mirrored: list[int] = []
    for bounce in range(BOUNCES):
        fill(source, "killed", EACH, first=bounce * EACH)
        # A killed mirror's place in the group is free soon.
        mirror = start("mirror-3", "killed", "--offset.commit.interval.ms", "50", session_ms=6000)
        before = len(read(target, "killed"))
        eventually(
            lambda before=before: len(read(target, "killed")) > before, timeout_s=60, what="records are mirrored"
        )
        mirror.kill()
        mirrored.append(len(read(target, "killed")))
    mirror = start("mirror-3", "killed")
    expected = {fields(record) for record in read(source, "killed")}
    assert len(expected) == BOUNCES * EACH
    eventually(
        lambda: {fields(record) for record in read(target, "killed")} == expected,
        timeout_s=60,
        what="everything is mirrored",
    )
    mirror.stop()
    record_property(
        "records, mirrored at each kill and at the end", [len(expected), *mirrored, len(read(target, "killed"))]
    )
