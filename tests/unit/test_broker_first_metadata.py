"""What a broker that has just opened its listener says of a cluster that it does not know yet."""

from pathlib import Path
from typing import Any

import pytest

from barnabas.wire.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.wire.kafka.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from support.broker import DataPath


@pytest.fixture
def broker(tmp_path: Path) -> DataPath:
    """A node with the two APIs, and no news yet."""
    path = DataPath(tmp_path)
    path.serve(("metadata", "update_metadata"))
    return path


def update(*topics: str) -> UpdateMetadataRequest:
    """The live broker, and topics of one partition that it leads."""
    end = UpdateMetadataEndpoint(port=9092, host="here", listener="PLAINTEXT")
    state = UpdateMetadataPartitionState(partition_index=0, leader=0, isr=[0], replicas=[0])
    return UpdateMetadataRequest(
        controller_id=0,
        controller_epoch=1,
        live_brokers=[UpdateMetadataBroker(id=0, endpoints=[end])],
        topic_states=[UpdateMetadataTopicState(topic_name=topic, partition_states=[state]) for topic in topics],
    )


def names(answer: Any) -> list[str]:
    return [topic.name for topic in answer.topics if topic.error_code == 0]


def test_metadata_waits_for_the_controllers_first_update(broker: DataPath) -> None:
    """librdkafka takes an answer without brokers for a partial one and does not ask again for minutes."""
    client, controller = broker.connect(), broker.connect()
    client.post(MetadataRequest(topics=[]), 12)
    assert client.answer() is None
    controller.ask(update(), 8)
    answer = client.answer()
    assert (answer.controller_id, [each.node_id for each in answer.brokers]) == (0, [0])
    assert client.ask(MetadataRequest(topics=[]), 12).controller_id == 0


def test_metadata_is_answered_after_a_while_even_without_news(broker: DataPath) -> None:
    """A broker that no controller reaches says what it knows: nothing."""
    client = broker.connect()
    client.post(MetadataRequest(topics=[]), 12)
    broker.timers.advance(10_000)
    assert client.answer().brokers == []


def test_a_broker_with_logs_lists_topics_once_their_partitions_have_come(broker: DataPath) -> None:
    """A new controller sends the live brokers first: a list without topics would say that all were deleted."""
    broker.metadata.expect(["a", "b"])
    client, other, controller = broker.connect(), broker.connect(), broker.connect()
    controller.ask(update(), 8)
    client.post(MetadataRequest(topics=None), 12)
    assert client.answer() is None
    controller.ask(update("a"), 8)
    assert client.answer() is None
    assert names(other.ask(MetadataRequest(topics=[MetadataRequestTopic(name="a")]), 12)) == ["a"]
    other.post(MetadataRequest(topics=[MetadataRequestTopic(name="b")]), 12)
    assert other.answer() is None
    controller.ask(update("b"), 8)
    assert names(client.answer()) == ["a", "b"]
    assert names(other.answer()) == ["b"]


def test_a_topic_that_was_deleted_meanwhile_delays_the_first_answers_only(broker: DataPath) -> None:
    """The logs of a replica that moved away while this broker was down are of no topic any more."""
    broker.metadata.expect(["gone"])
    client, controller = broker.connect(), broker.connect()
    controller.ask(update("a"), 8)
    client.post(MetadataRequest(topics=None), 12)
    assert client.answer() is None
    broker.timers.advance(3000)
    assert names(client.answer()) == ["a"]
    assert names(client.ask(MetadataRequest(topics=None), 12)) == ["a"]
