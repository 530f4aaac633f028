"""The same Fetch requests to Apache Kafka 3.9.1 and to Barnabas: codecs that old versions do
not know, and the order."""

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.wire.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from support.needs import needs_reference
from support.raw import ask
from support.reference import apache_cluster
from support.servers import up

pytestmark = [pytest.mark.interop, pytest.mark.java, needs_reference]

TOPICS = {"as_sent": "producer", "zstd": "zstd", "gzip": "gzip"}


@pytest.fixture(scope="module")
def systems(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """The bootstrap addresses of Apache Kafka and of Barnabas, with the same topics and records."""
    with (
        apache_cluster(tmp_path_factory.mktemp("apache")) as apache,
        up(tmp_path_factory.mktemp("barnabas")) as ours,
    ):
        for bootstrap in (apache.bootstrap, ours.bootstrap):
            fill(bootstrap)
        yield apache.bootstrap, ours.bootstrap


def fill(bootstrap: str) -> None:
    """Two partitions of each topic; partition 0 has one zstd batch, partition 1 is empty."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = [NewTopic(topic, 2, 1, config={"compression.type": kind}) for topic, kind in TOPICS.items()]
    for future in admin.create_topics(topics).values():
        future.result(30)
    producer = Producer({"bootstrap.servers": bootstrap, "compression.codec": "zstd", "linger.ms": 50})
    for topic in TOPICS:
        for _ in range(20):
            producer.produce(topic, b"x" * 100, partition=0)
    assert producer.flush(30) == 0


def fetch(bootstrap: str, asked: list[tuple[str, list[int]]], version: int) -> list[tuple[str, list[tuple[Any, ...]]]]:
    """Topics and partitions as answered: index, error, high watermark, whether there
    are records."""
    topics = [
        FetchTopic(
            topic=topic,
            partitions=[FetchPartition(partition=p, fetch_offset=0, partition_max_bytes=1 << 20) for p in partitions],
        )
        for topic, partitions in asked
    ]
    request = FetchRequest(max_wait_ms=100, min_bytes=1, max_bytes=1 << 24, topics=topics)
    response = ask(int(bootstrap.split(":")[1]), request, version)
    return [
        (topic.topic, [(p.partition_index, p.error_code, p.high_watermark, bool(p.records)) for p in topic.partitions])
        for topic in response.responses
    ]


@pytest.mark.parametrize("version", [4, 9, 10, 12])
def test_zstd_topics_are_refused_to_versions_that_do_not_know_the_codec(systems: tuple[str, str], version: int) -> None:
    """It is the topic's compression.type that counts, not what is in the batches,
    and whether there are any."""
    apache, ours = (fetch(system, [(topic, [0, 1]) for topic in TOPICS], version) for system in systems)
    assert ours == apache
    errors = {topic: {partition[1] for partition in partitions} for topic, partitions in ours}
    assert errors == {"as_sent": {0}, "gzip": {0}, "zstd": {76 if version < 10 else 0}}


@pytest.mark.parametrize("version", [4, 12])
@pytest.mark.parametrize(
    "asked",
    [
        [("gzip", [0]), ("as_sent", [0]), ("gzip", [1]), ("as_sent", [1])],
        [("gzip", [1, 0]), ("gzip", [0])],
        [("as_sent", [1, 0])],
    ],
)
def test_an_answer_has_the_order_of_the_request(
    systems: tuple[str, str], version: int, asked: list[tuple[str, list[int]]]
) -> None:
    """A topic that the request names twice is twice in the answer, unless the two
    stand side by side."""
    apache, ours = (fetch(system, asked, version) for system in systems)
    assert ours == apache


def test_unknown_partitions_come_after_the_others(systems: tuple[str, str]) -> None:
    """Whatever their place in the request."""
    asked = [("none", [0]), ("gzip", [0, 7]), ("as_sent", [0])]
    apache, ours = (fetch(system, asked, 12) for system in systems)
    assert ours == apache
