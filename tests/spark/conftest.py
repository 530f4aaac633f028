"""One cluster and one Spark session for all tests of this folder.

The cluster is ``barnabas up``; the environment variable BARNABAS_TEST_BOOTSTRAP names
another to use (Apache's, say).
"""

import importlib.util
import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from support.connector import connector_jars
from support.needs import is_required

collect_ignore_glob = [] if importlib.util.find_spec("pyspark") or is_required() else ["test_*.py"]
# Their packages are not in the lock file: `other_pyspark.py connect`, `polars` and
# `notebook`, trials, bring them.
_OF_TRIALS = {
    "grpc_status": "test_spark_connect.py",
    "polars": "test_lake_readers.py",
    "nbclient": "test_notebook_kernel.py",
}
collect_ignore = [test for package, test in _OF_TRIALS.items() if not importlib.util.find_spec(package)]
collect_ignore += [] if connector_jars() else ["test_spark_connector.py"]
# For a trial: CI has no time for it, and skips nothing.
collect_ignore += [] if os.environ.get("BARNABAS_RIGHTS") else ["test_spark_rights.py"]
_TOPICS = itertools.count()
Record = tuple[bytes | None, bytes | None]


class TestCluster:
    """Topics in, topics out, for tests."""

    __test__ = False

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._admin = AdminClient({"bootstrap.servers": bootstrap})

    def topic(self, partitions: int = 3, config: dict[str, str] | None = None) -> str:
        """A new topic's name."""
        name = f"spark-{os.getpid()}-{next(_TOPICS)}"
        self._admin.create_topics([NewTopic(name, partitions, 1, config=config or {})])[name].result(60)
        return name

    def topics(self) -> set[str]:
        """The names of all topics."""
        return set(self._admin.list_topics(timeout=60).topics)

    def make_again(self, topic: str) -> None:
        """Deletes the topic and makes it again, with one partition."""
        self._admin.delete_topics([topic])[topic].result(60)
        while topic in self._admin.list_topics(timeout=60).topics:
            time.sleep(0.05)
        self._admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(60)

    def delete_records(self, topic: str, before: int) -> None:
        """The first partition begins at this offset afterwards."""
        for future in self._admin.delete_records([TopicPartition(topic, 0, before)]).values():
            future.result(60)

    def add_partitions(self, topic: str, count: int) -> None:
        """The topic has this many partitions afterwards."""
        self._admin.create_partitions([NewPartitions(topic, count)])[topic].result(60)
        while len(self._admin.list_topics(topic, 60).topics[topic].partitions) < count:
            time.sleep(0.05)

    def produce(self, topic: str, records: list[Record], partition: int | None = None, headers: Any = None) -> None:
        """Sends the records and waits until all are acknowledged."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 5, "message.max.bytes": 10_000_000})
        extra = {**({} if partition is None else {"partition": partition}), **({"headers": headers} if headers else {})}
        for key, value in records:
            producer.produce(topic, value, key, **extra)
        assert producer.flush(60) == 0

    def read(self, topic: str) -> list[Any]:
        """All messages of the topic."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "test",
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 20,
            }
        )
        parts = self._admin.list_topics(topic, 60).topics[topic].partitions
        consumer.assign([TopicPartition(topic, each, 0) for each in parts])
        messages, ended = [], 0
        while ended < len(parts):
            message = consumer.poll(30)
            assert message is not None, "the topic did not end"
            if message.error():
                ended += 1
            else:
                messages.append(message)
        consumer.close()
        return messages

    def committed(self, group: str, topic: str, partitions: int) -> list[int]:
        """The group's offsets."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": group})
        found = consumer.committed([TopicPartition(topic, each) for each in range(partitions)], 60)
        consumer.close()
        return [each.offset for each in found]


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestCluster]:
    """A running cluster of one broker."""
    if given := os.environ.get("BARNABAS_TEST_BOOTSTRAP"):
        yield TestCluster(given)
        return
    command = [sys.executable, "-m", "barnabas", "up", "--port", "0", "--zk-port", "0"]
    errors = tmp_path_factory.mktemp("up") / "stderr"
    with errors.open("wb") as stderr:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True)
    assert process.stdout is not None
    line = process.stdout.readline()
    try:
        assert line.startswith("ready "), f"barnabas up: {line}{errors.read_text()}"
        yield TestCluster(line.split()[1])
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)
        process.stdout.close()


@pytest.fixture(scope="session")
def cluster_at() -> Callable[[str], TestCluster]:
    """What tests do with a cluster of others, by its address."""
    return TestCluster


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """A session on two cores."""
    from barnabas.pipelines.spark.session import open_session

    session = open_session("tests", cores=2, conf={"spark.sql.shuffle.partitions": "2"})
    yield session.spark
    session.close()


@pytest.fixture(scope="session")
def barnabas_spark(spark: Any) -> Any:
    """The session that the package's fixtures for flows use; one is enough."""
    return spark


@pytest.fixture
def run_query(tmp_path: Path) -> Callable[..., list[Any]]:
    """Runs a streaming frame with availableNow into memory and gives each micro-batch's rows.

    Spark gives a Python worker 10 s to start. A query that such a worker has ended is started
    again, and as often, as flows are (`barnabas.pipelines.running.restarts`).
    """
    from pyspark.errors import StreamingQueryException

    from barnabas.pipelines.running.restarts import Restarts

    def run(frame: Any, checkpoint: str = "checkpoint") -> list[Any]:
        batches: dict[int, Any] = {}

        def take(batch: Any, number: int) -> None:
            batches[number] = batch.collect()

        writer = frame.writeStream.foreachBatch(take).option("checkpointLocation", str(tmp_path / checkpoint))
        restarts = Restarts()
        while True:
            query = writer.trigger(availableNow=True).start()
            try:
                assert query.awaitTermination(120)
            except StreamingQueryException as error:
                progress = query.lastProgress
                if not restarts.allows_another("", progress["batchId"] if progress else -1, error):
                    raise
            else:
                return list(batches.values())

    return run
