"""What a broker knows of the cluster, and answers."""

from typing import Any

from barnabas.base.ids import TopicPartition, Uuid
from barnabas.base.tasks import done_here
from barnabas.broker.metadata.cache import MetadataCache
from barnabas.wire.kafka.codec import decode, encode
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.messages.metadata import MetadataResponse
from barnabas.wire.kafka.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)

ID = Uuid(b"0123456789abcdef")


def broker(number: int, *listeners: str) -> UpdateMetadataBroker:
    ends = [UpdateMetadataEndpoint(port=9000 + number, host="h", listener=name) for name in listeners or ("PLAINTEXT",)]
    return UpdateMetadataBroker(id=number, endpoints=ends, rack=f"r{number}")


def partition(index: int, leader: int, **fields: Any) -> UpdateMetadataPartitionState:
    return UpdateMetadataPartitionState(
        partition_index=index, leader=leader, leader_epoch=3, isr=[1, 2], replicas=[1, 2], **fields
    )


def update(*partitions: UpdateMetadataPartitionState, topic: str = "t", brokers: Any = None) -> UpdateMetadataRequest:
    return UpdateMetadataRequest(
        controller_id=1,
        live_brokers=brokers or [broker(1), broker(2)],
        topic_states=[UpdateMetadataTopicState(topic_name=topic, topic_id=ID, partition_states=list(partitions))],
    )


def test_updates_add_up_and_only_name_what_changed() -> None:
    """UpdateMetadata has all brokers and the controller, and partitions one by one."""
    cache = MetadataCache()
    cache.update(update(partition(0, 1), partition(1, 2)))
    cache.update(update(partition(1, 1)))
    assert {index: state.leader for index, state in cache.partitions("t").items()} == {0: 1, 1: 1}
    assert cache.controller_id == 1
    assert cache.topic_name(ID) == "t"
    assert cache.topic_id("t") == ID
    assert cache.partition(TopicPartition("t", 5)) is None
    assert [one.broker_id for one in cache.alive_brokers()] == [1, 2]
    end = cache.leader_endpoint(TopicPartition("t", 0), "PLAINTEXT")
    assert end is not None
    assert end.port == 9001


def test_a_deleted_topic_goes_with_its_id_and_its_partitions_are_reported() -> None:
    """The controller says leader -2; a topic made again under the same name has another id."""
    cache = MetadataCache()
    heard: list[Any] = []
    cache.on_update(lambda changed, deleted: heard.append((changed, deleted)))
    cache.update(update(partition(0, 1), partition(1, 1)))
    assert cache.update(update(partition(0, -2))) == [TopicPartition("t", 0)]
    assert "t" in cache
    cache.update(update(partition(1, -2)))
    assert "t" not in cache
    assert cache.topic_name(ID) is None
    assert heard[-1] == ({"t"}, [TopicPartition("t", 1)])


def test_a_partition_without_a_live_leader_is_described_as_such() -> None:
    """With its epoch and replicas; a leader without the client's listener is an error of
    its own since version 6."""
    cache = MetadataCache()
    cache.update(update(partition(0, -1), partition(1, 2, offline_replicas=[1]), brokers=[broker(2, "OTHER")]))
    topic = done_here(cache.describe_topic("t", "PLAINTEXT", knows_listener_not_found=True))
    assert topic is not None
    errors = [(p.error_code, p.leader_id, p.leader_epoch) for p in topic.partitions]
    assert errors == [(ErrorCode.LEADER_NOT_AVAILABLE, -1, 3), (ErrorCode.LISTENER_NOT_FOUND, -1, 3)]
    assert topic.partitions[1].offline_replicas == [1]
    old = done_here(cache.describe_topic("t", "PLAINTEXT", knows_listener_not_found=False))
    assert old is not None
    assert old.partitions[1].error_code == ErrorCode.LEADER_NOT_AVAILABLE
    assert cache.describe_brokers("PLAINTEXT") == []


def test_answers_are_kept_until_something_in_them_changes() -> None:
    """A topic's own partitions, or the live brokers; other topics' changes leave it alone."""
    cache = MetadataCache()
    cache.update(update(partition(0, 1)))
    first = done_here(cache.describe_topic("t", "PLAINTEXT", knows_listener_not_found=True))
    cache.update(update(partition(0, 1), topic="u"))
    assert done_here(cache.describe_topic("t", "PLAINTEXT", knows_listener_not_found=True)) is first
    cache.update(update(partition(0, 2)))
    second = done_here(cache.describe_topic("t", "PLAINTEXT", knows_listener_not_found=True))
    assert second is not first
    cache.update(UpdateMetadataRequest(controller_id=1, live_brokers=[broker(1)]))
    third = done_here(cache.describe_topic("t", "PLAINTEXT", knows_listener_not_found=True))
    assert third is not None
    assert third.partitions[0].error_code == ErrorCode.LEADER_NOT_AVAILABLE


def test_a_described_topic_travels_in_every_version_of_metadata() -> None:
    """What a version lacks is left out."""
    cache = MetadataCache()
    cache.update(update(partition(0, 1)))
    topic = done_here(cache.describe_topic("t", "PLAINTEXT", knows_listener_not_found=True))
    assert topic is not None
    for version in range(14):
        response = MetadataResponse(brokers=cache.describe_brokers("PLAINTEXT"), controller_id=1, topics=[topic])
        read = decode(MetadataResponse, version, encode(response, version))
        assert read.topics[0].partitions[0].leader_id == 1
        assert read.brokers[1].host == "h"


def test_internal_topics_are_marked() -> None:
    """Clients hide them."""
    cache = MetadataCache()
    cache.update(update(partition(0, 1), topic="__consumer_offsets"))
    topic = done_here(cache.describe_topic("__consumer_offsets", "PLAINTEXT", knows_listener_not_found=True))
    assert topic is not None
    assert topic.is_internal


def test_an_unreachable_broker_is_shown_as_no_leader_until_it_is_reachable_again() -> None:
    """A client that gets no leader asks again at once.

    The broker stays in the list, and others still lead."""
    cache = MetadataCache()
    cache.update(update(partition(0, 1), partition(1, 2)))

    def shown() -> list[tuple[int, int]]:
        topic = done_here(cache.describe_topic("t", "PLAINTEXT", knows_listener_not_found=True))
        assert topic is not None
        return [(entry.error_code, entry.leader_id) for entry in topic.partitions]

    assert shown() == [(0, 1), (0, 2)]
    cache.mark_unreachable(1)
    assert shown() == [(ErrorCode.LEADER_NOT_AVAILABLE, -1), (0, 2)]
    assert [one.node_id for one in cache.describe_brokers("PLAINTEXT")] == [1, 2]
    cache.mark_reachable(1)
    assert shown() == [(0, 1), (0, 2)]
