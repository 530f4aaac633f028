"""ElectLeaders, reassignments and automatic creation over the wire: versions, answers,
timeouts, other brokers' refusal."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from barnabas.base.ids import TopicPartition
from barnabas.client.admin.elections import ElectionType, elect_leaders
from barnabas.client.admin.reassignments import alter_reassignments, list_reassignments
from barnabas.client.cluster.admin_connection import AdminConnection
from barnabas.testing import Cluster
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from barnabas.wire.kafka.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas.wire.kafka.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from barnabas.wire.kafka.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from barnabas.wire.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from support.knowing import members_known, topic_known
from support.waiting import eventually


@pytest.fixture(scope="module")
def connection() -> Iterator[AdminConnection]:
    with Cluster(2, settings={"auto.leader.rebalance.enable": "false"}) as cluster:
        members_known(cluster.bootstrap_servers, 2)
        with AdminConnection(cluster.bootstrap_servers) as connection:
            yield connection


def create(connection: AdminConnection, name: str, *replicas: list[int]) -> None:
    assignments = [CreatableReplicaAssignment(partition_index=n, broker_ids=ids) for n, ids in enumerate(replicas)]
    topic = CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=assignments)
    request = CreateTopicsRequest(topics=[topic], timeout_ms=30_000)
    answer = connection.send_to_controller(request, CreateTopicsResponse, lambda response: [0])
    assert answer.topics[0].error_code == 0, answer
    servers = ",".join(f"{broker.host}:{broker.port}" for broker in connection.describe_cluster().brokers)
    topic_known(servers, name, len(replicas))


def moved(connection: AdminConnection, topic: str, replicas: list[int]) -> None:
    partition = TopicPartition(topic, 0)
    assert alter_reassignments(connection, {partition: replicas}) == {}
    eventually(lambda: not list_reassignments(connection, [partition]), what="moved")


def elect(connection: AdminConnection, **fields: Any) -> ElectLeadersResponse:
    controller = connection.describe_cluster(fresh=True).controller_id
    max_version = fields.pop("max_version", 2)
    return connection.send(
        ElectLeadersRequest(**fields), ElectLeadersResponse, broker_id=controller, max_version=max_version
    )


def codes(response: ElectLeadersResponse) -> dict[tuple[str, int], int]:
    return {
        (topic.topic, item.partition_id): item.error_code
        for topic in response.replica_election_results
        for item in topic.partition_result
    }


def validate(connection: AdminConnection, topics: list[CreatableTopic]) -> Counter[int]:
    """The errors of a CreateTopics request that creates nothing, counted."""
    request = CreateTopicsRequest(topics=topics, timeout_ms=30_000, validate_only=True)
    answer = connection.send_to_controller(request, CreateTopicsResponse, lambda response: [0])
    return Counter(result.error_code for result in answer.topics)


def test_a_request_that_names_more_topics_than_one_may_is_refused_as_a_whole(connection: AdminConnection) -> None:
    """10,000 are the most."""
    topics = [CreatableTopic(name=f"many-{n}", num_partitions=1, replication_factor=1) for n in range(10_001)]
    assert validate(connection, topics) == {ErrorCode.POLICY_VIOLATION: 10_001}
    assert validate(connection, topics[:2]) == {0: 2}


def test_the_topics_of_a_request_share_its_limit_of_replicas(connection: AdminConnection) -> None:
    """100,000 are the most in all: three topics fit, the fourth does not."""
    topics = [CreatableTopic(name=f"large-{n}", num_partitions=30_000, replication_factor=1) for n in range(4)]
    assert validate(connection, topics) == {0: 3, ErrorCode.INVALID_PARTITIONS: 1}


@pytest.mark.parametrize("version", [0, 1, 2])
def test_every_version_elects_the_preferred_replica(connection: AdminConnection, version: int) -> None:
    """Version 0 knows no other election, whatever its type field would say."""
    topic = f"elected-{version}"
    create(connection, topic, [0, 1])
    moved(connection, topic, [1, 0])
    asked = [TopicPartitions(topic=topic, partitions=[0, 0, 5])]
    response = elect(connection, topic_partitions=asked, max_version=version)
    assert codes(response) == {(topic, 0): 0, (topic, 5): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
    metadata = connection.send(request, MetadataResponse, connection.describe_cluster().controller_id)
    leaders = [one.leader_id for one in metadata.topics[0].partitions]
    assert leaders == [1], "the broker that answers has the new leader in its metadata"


def test_every_broker_answers_for_a_topic_that_it_creates_automatically_with_leader_not_available(
    connection: AdminConnection,
) -> None:
    """As Apache's brokers do: some clients, and their tests, ask again after this error only."""
    for broker in connection.describe_cluster().brokers:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=f"automatic-{broker.id}")])
        metadata = connection.send(request, MetadataResponse, broker.id)
        assert metadata.topics[0].error_code == ErrorCode.LEADER_NOT_AVAILABLE


def test_all_partitions_are_elected_and_only_those_that_needed_it_are_answered(connection: AdminConnection) -> None:
    """With null for the partitions."""
    create(connection, "some", [0, 1], [1, 0])
    moved(connection, "some", [1, 0])
    assert codes(elect(connection, topic_partitions=None)) == {("some", 0): 0}
    assert elect_leaders(connection, ElectionType.PREFERRED) == {}


def test_an_election_that_is_not_seen_in_time_is_said_to_be_late(connection: AdminConnection) -> None:
    """With no time at all, what is done at once may be in time or not; what is not
    needed never waits."""
    create(connection, "late", [0, 1])
    asked = [TopicPartitions(topic="late", partitions=[0])]
    assert codes(elect(connection, topic_partitions=asked, timeout_ms=0)) == {
        ("late", 0): ErrorCode.ELECTION_NOT_NEEDED
    }
    moved(connection, "late", [1, 0])
    answer = codes(elect(connection, topic_partitions=asked, timeout_ms=0))
    assert answer in ({("late", 0): 0}, {("late", 0): ErrorCode.REQUEST_TIMED_OUT})


def test_a_type_of_election_that_is_none_is_refused(connection: AdminConnection) -> None:
    """INVALID_REQUEST, for the whole and for each."""
    asked = [TopicPartitions(topic="none", partitions=[0])]
    response = elect(connection, election_type=7, topic_partitions=asked)
    assert response.error_code == ErrorCode.INVALID_REQUEST
    assert codes(response) == {("none", 0): ErrorCode.INVALID_REQUEST}


def test_brokers_that_are_not_controller_say_so(connection: AdminConnection) -> None:
    """All three APIs; clients then ask who is."""
    cluster = connection.describe_cluster(fresh=True)
    other = next(broker.id for broker in cluster.brokers if broker.id != cluster.controller_id)
    asked = [TopicPartitions(topic="t", partitions=[0])]
    for version, whole in ((0, 0), (2, ErrorCode.NOT_CONTROLLER)):
        request = ElectLeadersRequest(topic_partitions=asked)
        elected = connection.send(request, ElectLeadersResponse, broker_id=other, max_version=version)
        assert (elected.error_code, codes(elected)) == (whole, {("t", 0): ErrorCode.NOT_CONTROLLER})
    for request_type, response_type in (
        (AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse),
        (ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse),
    ):
        response = connection.send(request_type(), response_type, broker_id=other)
        assert response.error_code == ErrorCode.NOT_CONTROLLER
