"""What a broker that has just opened its listener says of a cluster that it does not know yet."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.base.ids import TopicPartition, Uuid
from barnabas.broker.cluster.steps import Steps, Watch
from barnabas.broker.configuration.config_admin import TOPIC
from barnabas.security.acls import CLUSTER_NAME, AclOperation, ResourceType
from barnabas.wire.kafka.errors import ErrorCode, KafkaError
from barnabas.wire.kafka.messages.alter_configs import AlterConfigsRequest, AlterConfigsResource
from barnabas.wire.kafka.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.wire.kafka.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.wire.kafka.messages.describe_cluster import DescribeClusterRequest
from barnabas.wire.kafka.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from barnabas.wire.kafka.messages.incremental_alter_configs import (
    AlterConfigsResource as IncrementalResource,
)
from barnabas.wire.kafka.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
)
from barnabas.wire.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.wire.kafka.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from support.broker import DataPath
from support.rights import Rights


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
    """librdkafka takes an answer without brokers for a partial one and does not ask
    again for minutes."""
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
    """A new controller sends the live brokers first: a list without topics would say
    that all were deleted."""
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


def test_the_delay_says_nothing_of_topics_that_a_client_has_no_right_to(broker: DataPath) -> None:
    """There, or still to come: by name they are refused at once, by id they wait."""
    rights = Rights()
    rights.allow((AclOperation.DESCRIBE, ResourceType.TOPIC, "b"))
    rights.allow((AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME))
    broker.serve(("metadata", "update_metadata"), auth_helper=rights.helper)
    broker.metadata.expect(["a", "b", "c"])
    known, unknown = Uuid(bytes([1]) * 16), Uuid(bytes([2]) * 16)
    first = update("a")
    first.topic_states[0].topic_id = known
    client, controller = broker.connect(), broker.connect()
    controller.ask(first, 8)
    for name in ("a", "c"):
        (topic,) = client.ask(MetadataRequest(topics=[MetadataRequestTopic(name=name)]), 12).topics
        assert topic.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    for asked in (
        MetadataRequestTopic(name="b"),
        MetadataRequestTopic(name=None, topic_id=known),
        MetadataRequestTopic(name=None, topic_id=unknown),
    ):
        waiting = broker.connect()
        waiting.post(MetadataRequest(topics=[asked]), 12)
        assert waiting.answer() is None


def test_a_list_of_the_cluster_waits_for_the_live_brokers(broker: DataPath) -> None:
    """A cluster without brokers could not have answered."""
    broker.serve(("describe_cluster", "update_metadata"))
    client, controller = broker.connect(), broker.connect()
    client.post(DescribeClusterRequest(), 1)
    assert client.answer() is None
    controller.ask(update(), 8)
    assert [each.broker_id for each in client.answer().brokers] == [0]


@pytest.mark.parametrize(
    ("message", "version"),
    [
        (DescribeConfigsRequest(resources=[DescribeConfigsResource(resource_type=TOPIC, resource_name="b")]), 4),
        (AlterConfigsRequest(resources=[AlterConfigsResource(resource_type=TOPIC, resource_name="b")]), 2),
        (IncrementalAlterConfigsRequest(resources=[IncrementalResource(resource_type=TOPIC, resource_name="b")]), 1),
    ],
    ids=lambda value: type(value).__name__,
)
def test_configurations_of_topics_wait_until_these_are_known(broker: DataPath, message: Any, version: int) -> None:
    """No client asks again after UNKNOWN_TOPIC_OR_PARTITION."""
    begun: list[Any] = []
    apis = ("alter_configs", "describe_configs", "incremental_alter_configs", "update_metadata")
    broker.serve(apis, start=begun.append)
    broker.metadata.expect(["a", "b"])
    client, controller = broker.connect(), broker.connect()
    controller.ask(update("a"), 8)
    client.post(message, version)
    assert not begun
    controller.ask(update("b"), 8)
    assert len(begun) == 1
    begun.pop().close()


def test_any_partition_may_exist_until_the_metadata_is_loaded(broker: DataPath) -> None:
    """Until then reads and writes are answered with NOT_LEADER_OR_FOLLOWER, after which
    every client asks again."""
    metadata, controller = broker.metadata, broker.connect()
    metadata.expect(["a"])
    controller.ask(update(), 8)
    assert metadata.may_have(TopicPartition("b", 0))
    controller.ask(update("a"), 8)
    assert (metadata.may_have(TopicPartition("a", 0)), metadata.may_have(TopicPartition("b", 0))) == (True, False)


class NewController:
    """A controller that has been elected and reads the znodes."""

    is_active = True

    def __init__(self) -> None:
        self.commands = self
        self.context = SimpleNamespace(has_read_znodes=False)

    def await_failover(self) -> Steps[None]:
        yield Watch([])
        self.context.has_read_znodes = True


def test_a_new_controller_plans_topics_when_it_has_read_the_znodes(broker: DataPath) -> None:
    """Before, it knows neither the brokers nor which topics exist."""
    planned: list[bool] = []
    controller = NewController()

    def plan(*_: object) -> None:
        planned.append(controller.context.has_read_znodes)
        raise KafkaError(ErrorCode.POLICY_VIOLATION)

    begun: list[Steps[None]] = []
    topics = SimpleNamespace(existing=list, plan=plan)
    broker.serve(("create_topics",), start=begun.append, controller=controller, topics=topics)
    client = broker.connect()
    asked = CreateTopicsRequest(topics=[CreatableTopic(name="t")], timeout_ms=1000, validate_only=True)
    client.post(asked, 7)
    assert not planned
    for _ in begun.pop():
        assert not planned
    assert planned == [True]
    assert client.answer().topics[0].error_code == ErrorCode.POLICY_VIOLATION


@pytest.mark.parametrize("is_active", [True, False])
def test_controller_requests_wait_for_the_first_update(broker: DataPath, is_active: bool) -> None:
    """A broker that has just started may be elected in the next moment."""
    begun: list[Any] = []
    controller = NewController()
    controller.is_active = False
    broker.serve(("delete_topics", "update_metadata"), start=begun.append, controller=controller)
    client, other = broker.connect(), broker.connect()
    client.post(DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=1000), 6)
    assert (client.answer(), begun) == (None, [])
    controller.is_active = is_active
    other.ask(update(), 8)
    if is_active:
        begun.pop().close()
    else:
        assert client.answer().responses[0].error_code == ErrorCode.NOT_CONTROLLER
    assert (client.answer(), begun) == (None, [])


def test_topics_are_waited_for_although_a_request_gave_up_before_there_were_brokers(broker: DataPath) -> None:
    """The controller may take longer than that client's patience."""
    broker.metadata.expect(["a"])
    early, client, controller = broker.connect(), broker.connect(), broker.connect()
    early.post(MetadataRequest(topics=None), 12)
    broker.timers.advance(10_000)
    assert early.answer().brokers == []
    controller.ask(update(), 8)
    client.post(MetadataRequest(topics=None), 12)
    assert client.answer() is None
    controller.ask(update("a"), 8)
    assert names(client.answer()) == ["a"]


def test_an_answer_that_fails_after_its_wait_is_an_error_for_its_client(
    broker: DataPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request is not left without an answer."""
    broker.serve(("describe_cluster", "update_metadata"))
    client, controller = broker.connect(), broker.connect()

    def fail(_: str) -> None:
        raise KafkaError(ErrorCode.INVALID_REQUEST)

    client.post(DescribeClusterRequest(), 1)
    monkeypatch.setattr(broker.metadata, "describe_brokers", fail)
    controller.ask(update(), 8)
    assert client.answer().error_code == ErrorCode.INVALID_REQUEST


def test_all_requests_that_wait_are_answered_when_the_first_gives_up(broker: DataPath) -> None:
    """One came before the first update, and would wait longer."""
    broker.metadata.expect(["gone"])
    early, client, controller = broker.connect(), broker.connect(), broker.connect()
    early.post(MetadataRequest(topics=None), 12)
    controller.ask(update("a"), 8)
    client.post(MetadataRequest(topics=None), 12)
    broker.timers.advance(3000)
    broker.timers.advance(0)  # the others in the next turn of the loop
    assert names(client.answer()) == ["a"]
    assert names(early.answer()) == ["a"]
