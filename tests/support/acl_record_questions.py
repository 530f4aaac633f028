"""Requests about records and topics' metadata, for the matrix of rights.

Each names a topic that exists and one that does not, with a right, and two such without.
"""

import time

from barnabas.base.ids import Uuid
from barnabas.security.acls import AclOperation
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from barnabas.wire.kafka.messages.describe_producers import DescribeProducersRequest, TopicRequest
from barnabas.wire.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from barnabas.wire.kafka.messages.init_producer_id import InitProducerIdRequest
from barnabas.wire.kafka.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas.wire.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.wire.kafka.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from barnabas.wire.kafka.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.wire.kafka.records.records import Record, build_batch
from support.acl_rights import Question, cluster, topic, transactional_id
from support.acl_sides import TOPICS, Side

GIVEN = ("orders", "missing")
NAMES = ("orders", "secret", "missing", "hidden")
UNKNOWN_ID = Uuid(bytes(15) + b"\x07")
INVALID_NAME = "no topic"
"""Cannot be created: an attempt that is allowed leaves nothing behind."""


# Produce


def produce(side: Side, version: int) -> ProduceRequest:
    return _produce(version, acks=-1)


def produce_by_id(side: Side, version: int) -> ProduceRequest:
    records = bytes(build_batch([Record(0, int(time.time() * 1000), None, b"v")]))
    partitions = [PartitionProduceData(index=index, records=records) for index in (0, 7)]
    ids = [*map(side.topic_id, TOPICS), UNKNOWN_ID]
    data = [TopicProduceData(topic_id=topic_id, partition_data=partitions) for topic_id in ids]
    return ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=data)


def produce_without_an_answer(side: Side, version: int) -> ProduceRequest:
    return _produce(version, acks=0, names=("orders",))


def produce_with_a_producer_id(side: Side, version: int) -> ProduceRequest:
    # A producer id that was never given out, with a sequence that does not begin: not appended.
    return _produce(version, acks=1, producer_id=987_654, producer_epoch=0, base_sequence=5)


def produce_in_a_transaction(side: Side, version: int) -> ProduceRequest:
    return _transactional(version, "payments-café")


def produce_in_a_transaction_without_an_id(side: Side, version: int) -> ProduceRequest:
    return _transactional(version, None)


def _transactional(version: int, transaction: str | None) -> ProduceRequest:
    facts = {"producer_id": 987_654, "producer_epoch": 0, "base_sequence": 0}
    return _produce(version, acks=-1, transaction=transaction, is_transactional=True, **facts)


def _produce(
    version: int, *, acks: int, names: tuple[str, ...] = NAMES, transaction: str | None = None, **batch: int
) -> ProduceRequest:
    records = bytes(build_batch([Record(0, int(time.time() * 1000), None, b"v")], **batch))
    partitions = [PartitionProduceData(index=index, records=records) for index in ((0, 7) if acks == -1 else (0,))]
    data = [TopicProduceData(name=name, partition_data=partitions) for name in names]
    return ProduceRequest(transactional_id=transaction, acks=acks, timeout_ms=30_000, topic_data=data)


def init_a_producer_id(side: Side, version: int) -> InitProducerIdRequest:
    return InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)


# Fetch


def fetch_by_name(side: Side, version: int) -> FetchRequest:
    return _fetch([FetchTopic(topic=name, partitions=_fetched(name)) for name in NAMES])


def fetch_by_id(side: Side, version: int) -> FetchRequest:
    return _fetch(_by_id(side))


def fetch_in_a_session(side: Side, version: int) -> FetchRequest:
    return _fetch(_by_id(side) if version >= 13 else fetch_by_name(side, version).topics, session_epoch=0)


def fetch_as_a_follower(side: Side, version: int) -> FetchRequest:
    """Of a broker that is not a replica."""
    topics = fetch_by_name(side, version).topics if version < 13 else _by_id(side)
    as_replica = {"replica_id": 77} if version < 15 else {"replica_state": ReplicaState(replica_id=77)}
    return _fetch(topics, **as_replica)


def _by_id(side: Side) -> list[FetchTopic]:
    ids = [*map(side.topic_id, TOPICS), UNKNOWN_ID]
    return [FetchTopic(topic_id=topic_id, partitions=_fetched("")) for topic_id in ids]


def _fetched(name: str) -> list[FetchPartition]:
    return [FetchPartition(partition=n, fetch_offset=0, partition_max_bytes=1 << 20) for n in (0, 7)]


def _fetch(topics: list[FetchTopic], **facts: object) -> FetchRequest:
    return FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, topics=topics, **facts)


# Offsets


def list_offsets(side: Side, version: int) -> ListOffsetsRequest:
    partitions = [ListOffsetsPartition(partition_index=number, timestamp=-1) for number in (0, 7)]
    topics = [ListOffsetsTopic(name=name, partitions=partitions) for name in NAMES]
    return ListOffsetsRequest(replica_id=-1, topics=topics)


def ask_for_the_end_of_an_epoch(side: Side, version: int) -> OffsetForLeaderEpochRequest:
    partitions = [OffsetForLeaderPartition(partition=number, leader_epoch=0) for number in (0, 7)]
    topics = [OffsetForLeaderTopic(topic=name, partitions=partitions) for name in NAMES]
    return OffsetForLeaderEpochRequest(replica_id=-1, topics=topics)


def ask_for_the_end_of_an_epoch_as_a_follower(side: Side, version: int) -> OffsetForLeaderEpochRequest:
    request = ask_for_the_end_of_an_epoch(side, version)
    return OffsetForLeaderEpochRequest(replica_id=77, topics=request.topics)


def delete_records(side: Side, version: int) -> DeleteRecordsRequest:
    partitions = [DeleteRecordsPartition(partition_index=number, offset=0) for number in (0, 7)]
    topics = [DeleteRecordsTopic(name=name, partitions=partitions) for name in NAMES]
    return DeleteRecordsRequest(topics=topics, timeout_ms=30_000)


def describe_producers(side: Side, version: int) -> DescribeProducersRequest:
    return DescribeProducersRequest(topics=[TopicRequest(name=name, partition_indexes=[0, 7]) for name in NAMES])


# Metadata


def metadata_of_names(side: Side, version: int) -> MetadataRequest:
    return _metadata(version, NAMES)


def metadata_of_all_topics(side: Side, version: int) -> MetadataRequest:
    topics = None if version else []
    return MetadataRequest(topics=topics, **_asked(version))


def metadata_of_ids(side: Side, version: int) -> MetadataRequest:
    ids = [*map(side.topic_id, TOPICS), UNKNOWN_ID]
    topics = [MetadataRequestTopic(topic_id=topic_id, name=None) for topic_id in ids]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=True, **_asked(version))


def metadata_that_creates_a_topic(side: Side, version: int) -> MetadataRequest:
    return _metadata(version, (INVALID_NAME, "orders"), create=True)


def metadata_that_creates_a_topic_by_the_cluster(side: Side, version: int) -> MetadataRequest:
    return _metadata(version, (INVALID_NAME, "orders"), create=True)


def metadata_without_operations(side: Side, version: int) -> MetadataRequest:
    topics = [MetadataRequestTopic(name=name) for name in NAMES]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=False)


def _metadata(version: int, names: tuple[str, ...], *, create: bool = False) -> MetadataRequest:
    topics = [MetadataRequestTopic(name=name) for name in names]
    flags = {"allow_auto_topic_creation": create} if version >= 4 else {}
    return MetadataRequest(topics=topics, **flags, **_asked(version))


def _asked(version: int) -> dict[str, bool]:
    """Operations as far as the version has them."""
    return {
        name: True
        for name, versions in {
            "include_cluster_authorized_operations": range(8, 11),
            "include_topic_authorized_operations": range(8, 99),
        }.items()
        if version in versions
    }


_WRITE, _READ, _DESCRIBE = AclOperation.WRITE, AclOperation.READ, AclOperation.DESCRIBE
_CREATE, _ACTION = AclOperation.CREATE, cluster(AclOperation.CLUSTER_ACTION)

QUESTIONS = (
    Question(ApiKey.PRODUCE, produce, (topic(_WRITE, *GIVEN),), last=12),
    Question(ApiKey.PRODUCE, produce_by_id, (topic(_WRITE, *GIVEN),), first=13),
    Question(ApiKey.PRODUCE, produce_without_an_answer, (topic(_WRITE, "orders"),), last=12),
    Question(ApiKey.PRODUCE, produce_with_a_producer_id, (topic(_WRITE, *GIVEN),), last=12),
    Question(
        ApiKey.PRODUCE,
        produce_in_a_transaction,
        (topic(_WRITE, *GIVEN), transactional_id(_WRITE, "payments-café")),
        last=12,
    ),
    Question(ApiKey.PRODUCE, produce_in_a_transaction_without_an_id, last=12),
    Question(ApiKey.INIT_PRODUCER_ID, init_a_producer_id, (cluster(AclOperation.IDEMPOTENT_WRITE),)),
    Question(ApiKey.INIT_PRODUCER_ID, init_a_producer_id, (topic(_WRITE, "whatever"),)),
    Question(ApiKey.FETCH, fetch_by_name, (topic(_READ, *GIVEN),), last=12),
    Question(ApiKey.FETCH, fetch_by_id, (topic(_READ, *GIVEN),), first=13),
    Question(ApiKey.FETCH, fetch_in_a_session, (topic(_READ, *GIVEN),), first=7),
    Question(ApiKey.FETCH, fetch_as_a_follower, (_ACTION,)),
    Question(ApiKey.LIST_OFFSETS, list_offsets, (topic(_DESCRIBE, *GIVEN),)),
    Question(ApiKey.OFFSET_FOR_LEADER_EPOCH, ask_for_the_end_of_an_epoch, (topic(_DESCRIBE, *GIVEN),)),
    Question(ApiKey.OFFSET_FOR_LEADER_EPOCH, ask_for_the_end_of_an_epoch_as_a_follower, (_ACTION,)),
    Question(ApiKey.DELETE_RECORDS, delete_records, (topic(AclOperation.DELETE, *GIVEN),)),
    Question(ApiKey.DESCRIBE_PRODUCERS, describe_producers, (topic(_READ, *GIVEN),)),
    Question(ApiKey.METADATA, metadata_of_names, (topic(_DESCRIBE, *GIVEN),)),
    Question(ApiKey.METADATA, metadata_of_names, (topic(_DESCRIBE, *GIVEN), cluster(_DESCRIBE)), first=8, last=10),
    Question(ApiKey.METADATA, metadata_of_all_topics, (topic(_DESCRIBE, *GIVEN),)),
    Question(ApiKey.METADATA, metadata_of_ids, (topic(_DESCRIBE, *GIVEN),), first=12),
    Question(ApiKey.METADATA, metadata_without_operations, (topic(_DESCRIBE, *GIVEN),), first=4),
    Question(
        ApiKey.METADATA,
        metadata_that_creates_a_topic,
        (topic(_DESCRIBE, INVALID_NAME, "orders"), topic(_CREATE, INVALID_NAME)),
    ),
    Question(
        ApiKey.METADATA,
        metadata_that_creates_a_topic_by_the_cluster,
        (topic(_DESCRIBE, INVALID_NAME, "orders"), cluster(_CREATE)),
    ),
)
