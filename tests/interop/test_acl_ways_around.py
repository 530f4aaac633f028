"""A user with rights of its own tries to get at what belongs to others: through a transaction, a
group of another name, a topic's id, and a topic that would be made."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from barnabas.base.ids import TopicPartition, Uuid
from barnabas.client import Admin, Producer
from barnabas.client.cluster.admin_connection import TRANSACTIONAL_ID
from barnabas.testing import Cluster
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from barnabas.wire.kafka.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from barnabas.wire.kafka.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from barnabas.wire.kafka.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas.wire.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from barnabas.wire.kafka.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from barnabas.wire.kafka.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from barnabas.wire.kafka.records.records import Record, build_batch

pytestmark = [pytest.mark.interop]

EVE = (
    "--allow-principal User:eve --operation Write --topic own",
    "--allow-principal User:eve --operation Read --topic own --group eves",
    "--allow-principal User:eve --operation Write --transactional-id eve-",
)
SECRET = TopicPartition("secret", 0)
BY_NAME, BY_ID, OF_CLIENTS = 12, 13, 3
REFUSED_TOPIC, REFUSED_GROUP = ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.GROUP_AUTHORIZATION_FAILED


@dataclass
class Eve:
    """Her connection, and the identity of her transactional producer."""

    admin: Admin
    secret_id: Uuid
    producer_id: int = -1
    epoch: int = -1

    def begin(self) -> None:
        request = InitProducerIdRequest(transactional_id="eve-", transaction_timeout_ms=60_000)
        connection = self.admin.connection
        connection.find_coordinator("eve-", TRANSACTIONAL_ID)  # makes the topic of transactions, the first time
        answer = connection.retry(
            lambda: connection.send(request, InitProducerIdResponse), lambda each: [each.error_code]
        )
        assert answer.error_code == 0
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch

    def produce(self, version: int, *, is_transactional: bool) -> int:
        """The error of a record for the topic of others, by its name or its id."""
        batch = build_batch(
            [Record(offset=0, timestamp=0, key=None, value=b"x")],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=0 if self.producer_id >= 0 else -1,
            is_transactional=is_transactional,
        )
        named = {"name": "secret"} if version == BY_NAME else {"topic_id": self.secret_id}
        topic = TopicProduceData(**named, partition_data=[PartitionProduceData(index=0, records=batch)])
        transactional_id = "eve-" if is_transactional else None
        request = ProduceRequest(transactional_id=transactional_id, acks=-1, timeout_ms=10_000, topic_data=[topic])
        answer = self.admin.connection.send(request, ProduceResponse, max_version=version)
        return answer.responses[0].partition_responses[0].error_code


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """With a topic and a group of others, and topics that are made when somebody may make them."""
    with Cluster(acls=EVE, settings={"auto.create.topics.enable": "true"}) as running:
        for topic in ("own", "secret"):
            running.create_topic(topic)
        with Producer(running.client_properties("admin")) as producer:
            producer.send("secret", "not for eve")
        with Admin(running.client_properties("admin")) as admin:
            admin.alter_group_offsets("kitchen", {SECRET: 1})
        yield running


@pytest.fixture
def eve(cluster: Cluster) -> Iterator[Eve]:
    """She knows the topic's id; afterwards all is as it was."""
    with Admin(cluster.client_properties("admin")) as admin, Admin(cluster.client_properties("eve")) as own:
        (secret,) = admin.describe_topics(["secret"])
        yield Eve(own, secret.topic_id)
        assert admin.list_offsets({SECRET: -1})[SECRET].offset == 1
        assert admin.group_offsets("kitchen") == {SECRET: 1}
        assert sorted(admin.list_topics()) == ["own", "secret"]


@pytest.mark.parametrize("version", [BY_NAME, BY_ID])
@pytest.mark.parametrize("is_transactional", [False, True])
def test_no_record_gets_into_the_topic_of_others(eve: Eve, version: int, is_transactional: bool) -> None:
    """Plainly or in a transaction of the own, by its name or its id."""
    if is_transactional:
        eve.begin()
    assert eve.produce(version, is_transactional=is_transactional) == REFUSED_TOPIC


def test_a_transaction_takes_the_topic_of_others_not_even_beside_the_own(eve: Eve) -> None:
    """Nothing of that request is added, and a record for it is refused all the same."""
    eve.begin()
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="eve-",
        v3_and_below_producer_id=eve.producer_id,
        v3_and_below_producer_epoch=eve.epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=name, partitions=[0]) for name in ("own", "secret")],
    )
    answer = eve.admin.connection.send(request, AddPartitionsToTxnResponse, max_version=OF_CLIENTS)
    assert {
        topic.name: topic.results_by_partition[0].partition_error_code for topic in answer.results_by_topic_v3_and_below
    } == {"own": ErrorCode.OPERATION_NOT_ATTEMPTED, "secret": REFUSED_TOPIC}
    assert eve.produce(BY_NAME, is_transactional=True) == REFUSED_TOPIC


def test_a_transaction_commits_no_offsets_of_another_group(eve: Eve) -> None:
    """Neither is the group added, nor do offsets of it pass for those of the own group."""
    eve.begin()
    connection = eve.admin.connection

    def add(group: str) -> int:
        request = AddOffsetsToTxnRequest(
            transactional_id="eve-", producer_id=eve.producer_id, producer_epoch=eve.epoch, group_id=group
        )
        return connection.retry(
            lambda: connection.send(request, AddOffsetsToTxnResponse), lambda each: [each.error_code]
        ).error_code

    assert (add("kitchen"), add("eves")) == (REFUSED_GROUP, 0)
    partition = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=0, committed_metadata="")
    request = TxnOffsetCommitRequest(
        transactional_id="eve-",
        group_id="kitchen",
        producer_id=eve.producer_id,
        producer_epoch=eve.epoch,
        topics=[TxnOffsetCommitRequestTopic(name="own", partitions=[partition])],
    )
    answer = connection.send(request, TxnOffsetCommitResponse, max_version=OF_CLIENTS)
    assert answer.topics[0].partitions[0].error_code == REFUSED_GROUP


def test_no_topic_is_made_and_none_deleted_by_its_id(eve: Eve) -> None:
    """Where topics are made for those who may."""
    asked = MetadataRequest(topics=[MetadataRequestTopic(name="new")], allow_auto_topic_creation=True)
    answer = eve.admin.connection.send(asked, MetadataResponse)
    assert [topic.error_code for topic in answer.topics] == [REFUSED_TOPIC]
    deletion = DeleteTopicsRequest(topics=[DeleteTopicState(topic_id=eve.secret_id)], timeout_ms=10_000)
    deleted = eve.admin.connection.send(deletion, DeleteTopicsResponse)
    assert [(topic.name, topic.error_code) for topic in deleted.responses] == [(None, REFUSED_TOPIC)]
