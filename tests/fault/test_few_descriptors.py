"""A low limit of open files: a broker serves more partitions than it may open files,
or does not start."""

import resource
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from support.servers import BARNABAS, up

pytestmark = [pytest.mark.interop, pytest.mark.fault]
PARTITIONS = 400


def limited(count: int) -> Callable[[], None]:
    """Called in the process before its program.

    The hard limit too, so that the program cannot raise it."""
    return lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (count, count))


def test_a_broker_serves_more_partitions_than_it_may_open_files(tmp_path: Path) -> None:
    """Producers and a consumer of 400 partitions, with 256 descriptors; a restart finds all;
    the log names the limit."""
    for attempt in range(2):
        with up(tmp_path / "data", "--override", "auto.create.topics.enable=false", preexec_fn=limited(256)) as cluster:
            if not attempt:
                admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
                for future in admin.create_topics([NewTopic("wide", num_partitions=PARTITIONS)]).values():
                    future.result(60)
            write(cluster.bootstrap)
            assert read(cluster.bootstrap) == [attempt + 1] * PARTITIONS
            (log,) = [
                path for path in cluster.directory.rglob("*.log") if "limit of open files is 256" in text_of(path)
            ]
            assert "goes offline" not in text_of(log)


def write(bootstrap: str) -> None:
    """A record to each partition, all of them acknowledged."""
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 50})
    errors: list[KafkaError | None] = []
    for partition in range(PARTITIONS):
        producer.produce("wide", b"v", partition=partition, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(60) == 0
    assert errors == [None] * PARTITIONS


def text_of(path: Path) -> str:
    return path.read_text(errors="replace") if path.is_file() and path.stat().st_size < 1 << 20 else ""


def read(bootstrap: str) -> list[int]:
    """How many records each partition has."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none", "enable.partition.eof": True})
    consumer.assign([TopicPartition("wide", partition, 0) for partition in range(PARTITIONS)])
    counts, open_ = [0] * PARTITIONS, set(range(PARTITIONS))
    while open_:
        # One by one: a call for many would wait for more than there are.
        message = consumer.poll(30)
        assert message is not None, f"nothing more comes of {len(open_)} partitions"
        if message.error() is None:
            counts[message.partition()] += 1
        elif message.error().code() == KafkaError._PARTITION_EOF:
            open_.discard(message.partition())
    consumer.close()
    return counts


def test_a_limit_with_which_a_broker_cannot_work_ends_the_start(tmp_path: Path) -> None:
    """The error says what to raise."""
    properties = tmp_path / "server.properties"
    properties.write_text("broker.id=0\nzookeeper.connect=127.0.0.1:1\n")
    done = subprocess.run(
        [*BARNABAS, "server-start", str(properties)],
        preexec_fn=limited(100),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "The limit of open files is 100. A broker needs 128 at least" in done.stderr
    assert "Traceback" not in done.stderr
