"""The same requests to Apache's broker and to ours where they are refused: codes and
words are equal."""

import time
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from barnabas.wire.kafka.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from barnabas.wire.kafka.messages.create_acls import AclCreation, CreateAclsRequest
from barnabas.wire.kafka.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from barnabas.wire.kafka.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from barnabas.wire.kafka.messages.describe_acls import DescribeAclsRequest
from barnabas.wire.kafka.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from barnabas.wire.kafka.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas.wire.kafka.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.wire.kafka.records.records import Record, build_batch
from support.needs import needs_reference
from support.raw import ask
from support.reference import apache_cluster
from support.servers import up
from support.waiting import eventually

pytestmark = [pytest.mark.interop, pytest.mark.java, needs_reference]


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, int]]:
    """The ports of an Apache broker and of one of ours, both with a topic of one
    partition, ``there``."""
    with (
        apache_cluster(tmp_path_factory.mktemp("apache")) as apache,
        up(tmp_path_factory.mktemp("ours") / "data") as ours,
    ):
        both = tuple(int(cluster.bootstrap.rpartition(":")[2]) for cluster in (apache, ours))
        for port in both:
            create(port, "there")
        yield both


def create(port: int, name: str, configs: dict[str, str] | None = None) -> None:
    """Make a topic of one partition and wait until its leader takes records."""
    entries = [CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()]
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1, configs=entries)
    assert ask(port, CreateTopicsRequest(topics=[topic], timeout_ms=60_000), 5).topics[0].error_code == 0
    eventually(lambda: elect(port, 0, [(name, [0])])[0][1][0][1] == 84, what=f"{name} has a leader")
    # The controller, which was asked, knows of the election before the leader does.
    eventually(lambda: has_topic(port, name), what=f"{name} is led")


def elect(port: int, kind: int, partitions: list[tuple[str, list[int]]]) -> list[tuple[str, list[tuple[Any, ...]]]]:
    topics = [TopicPartitions(topic=topic, partitions=numbers) for topic, numbers in partitions]
    answer = ask(port, ElectLeadersRequest(election_type=kind, topic_partitions=topics, timeout_ms=5000), 2)
    return [
        (topic.topic, [(each.partition_id, each.error_code, each.error_message) for each in topic.partition_result])
        for topic in answer.replica_election_results
    ]


@pytest.mark.parametrize("version", [1, 2, 3])
def test_acl_requests_without_an_authorizer_are_answered_with_security_disabled(
    ports: tuple[int, int], version: int
) -> None:
    """Each creation and each filter gets an answer of its own."""
    acl = {"operation": 3, "permission_type": 3}
    to_create = AclCreation(
        resource_type=2, resource_name="t", resource_pattern_type=3, principal="User:a", host="*", **acl
    )
    filter_ = DeleteAclsFilter(resource_type_filter=2, resource_name_filter="t", **acl)
    for request in (
        DescribeAclsRequest(resource_type_filter=2, resource_name_filter="t", **acl),
        CreateAclsRequest(creations=[to_create, to_create]),
        CreateAclsRequest(creations=[]),
        DeleteAclsRequest(filters=[filter_, filter_]),
    ):
        theirs, ours = (ask(port, request, version) for port in ports)
        assert ours == theirs


@pytest.mark.parametrize(
    "wrong",
    [
        {"num_partitions": 1, "replication_factor": 99},
        {"num_partitions": 0, "replication_factor": 1},
        {"num_partitions": 1, "replication_factor": 1, "configs": [CreatableTopicConfig(name="no.such", value="1")]},
        {"num_partitions": 5, "replication_factor": -1,
         "assignments": [CreatableReplicaAssignment(partition_index=0, broker_ids=[0])]},
    ],
)  # fmt: skip
@pytest.mark.parametrize("validate_only", [False, True])
def test_a_topic_that_exists_is_reported_whatever_else_is_wrong(
    ports: tuple[int, int], wrong: dict[str, Any], validate_only: bool
) -> None:
    """TOPIC_ALREADY_EXISTS stands before all other errors."""
    request = CreateTopicsRequest(
        topics=[CreatableTopic(name="there", **wrong)], timeout_ms=5000, validate_only=validate_only
    )
    answers = [ask(port, request, 5).topics[0] for port in ports]
    theirs, ours = ((answer.error_code, answer.error_message) for answer in answers)
    assert ours == theirs


@pytest.mark.parametrize("kind", [0, 1])
def test_elections_that_cannot_be_held_are_answered_alike(ports: tuple[int, int], kind: int) -> None:
    """A leader that is preferred already, a partition and a topic that do not exist."""
    theirs, ours = (elect(port, kind, [("there", [0, 7]), ("no-such", [0])]) for port in ports)
    assert ours == theirs


def produce(port: int, topic: str, records: list[Record]) -> tuple[Any, ...]:
    data = PartitionProduceData(index=0, records=bytes(build_batch(records)))
    request = ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[TopicProduceData(name=topic, partition_data=[data])])
    answer = ask(port, request, 9).responses[0].partition_responses[0]
    return answer.error_code, answer.error_message, [each.batch_index for each in answer.record_errors]


def test_records_with_a_bad_timestamp_are_rejected_in_the_same_words(ports: tuple[int, int]) -> None:
    """Too far behind the broker's clock, and too far ahead of it; each such record
    is named by its index."""
    now_ms = int(time.time() * 1000)
    for port in ports:
        limits = {"message.timestamp.before.max.ms": "60000", "message.timestamp.after.max.ms": "60000"}
        create(port, "strict", limits)
    for wrong_ms in (now_ms - 600_000, now_ms + 600_000):
        records = [Record(0, now_ms, None, b"v", []), Record(1, wrong_ms, None, b"v", [])]
        theirs, ours = (produce(port, "strict", records) for port in ports)
        assert ours == theirs
        assert ours[1] == "One or more records have been rejected due to invalid timestamp"


def test_records_without_a_key_are_rejected_by_a_compacted_topic_with_the_same_count(ports: tuple[int, int]) -> None:
    """Apache's message names the partition too, which ours does not repeat."""
    for port in ports:
        create(port, "compacted", {"cleanup.policy": "compact"})
    records = [Record(n, int(time.time() * 1000), None, b"v", []) for n in range(5)]
    theirs, ours = (produce(port, "compacted", records) for port in ports)
    assert ours[1].replace("without key'", "without key in topic partition compacted-0'") == theirs[1]
    assert (ours[0], ours[2]) == (theirs[0], theirs[2])


@pytest.mark.parametrize("acks", [-1, 1])
@pytest.mark.parametrize(
    "named",
    [
        [("twice", [0, 0])],
        [("twice", [0]), ("twice", [0])],
        [("twice", [0, 7, 0, 7])],
        [("twice", [0, 0]), ("there", [0]), ("twice", [0])],
    ],
    ids=str,
)
def test_of_a_partition_that_a_produce_request_names_twice_the_last_records_count(
    ports: tuple[int, int], acks: int, named: list[tuple[str, list[int]]]
) -> None:
    """They are appended once, and there is one answer for the partition."""
    seen = []
    for port in ports:
        if not has_topic(port, "twice"):
            create(port, "twice")
        numbers = count(1)
        topics = [
            TopicProduceData(
                name=name,
                partition_data=[
                    PartitionProduceData(index=index, records=records(next(numbers))) for index in partitions
                ],
            )
            for name, partitions in named
        ]
        before = end_offset(port, "twice")
        answer = ask(port, ProduceRequest(acks=acks, timeout_ms=5000, topic_data=topics), 9)
        responses = sorted(
            (topic.name, each.index, each.error_code, each.base_offset - before if topic.name == "twice" else 0)
            for topic in answer.responses
            for each in topic.partition_responses
        )
        seen.append((end_offset(port, "twice") - before, responses))
    theirs, ours = seen
    assert ours == theirs


def produce_in_sequence(port: int, sent: tuple[int, int, int, int]) -> tuple[int, int]:
    """The error code and the base offset of a batch with this producer id, epoch, first sequence
    and number of records."""
    producer_id, epoch, sequence, number = sent
    batch = build_batch(
        [Record(offset, int(time.time() * 1000), None, b"v") for offset in range(number)],
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
    )
    topics = [TopicProduceData(name="numbered", partition_data=[PartitionProduceData(index=0, records=bytes(batch))])]
    answer = ask(port, ProduceRequest(acks=-1, timeout_ms=5000, topic_data=topics), 9).responses[0]
    return answer.partition_responses[0].error_code, answer.partition_responses[0].base_offset


def test_batches_of_idempotent_producers_are_answered_alike(ports: tuple[int, int]) -> None:
    """Retries within the last five batches and beyond, gaps, overlaps, epochs, and sequences that
    go round."""
    for port in ports:
        create(port, "numbered")
    last = (1 << 31) - 1
    sent = [
        *((1, 0, number * 2, 2) for number in range(7)),
        *((1, 0, number * 2, 2) for number in reversed(range(7))),  # retries
        (1, 0, 15, 1),  # a gap
        (1, 0, 13, 1),  # the half of a batch
        (1, 0, 12, 3),  # one and more
        (1, 0, -1, 1),
        (1, 1, 3, 1),  # an epoch that does not begin with 0
        (1, 1, 0, 1),
        (1, 0, 14, 1),  # the epoch before
        (1, 0, 12, 2),
        (1, 1, 0, 1),
        (1, 3, 0, 2),  # an epoch left out
        (1, 3, 2, 1),
        (2, 5, last - 2, 2),  # a producer of which nothing is known
        (2, 5, last, 3),  # goes round
        (2, 5, last, 3),
        (2, 5, last - 2, 2),
        (2, 5, 0, 1),
        (2, 5, 2, 1),
        (2, 5, 2, 1),
        (3, last >> 16, 0, 1),  # the last epoch
        (3, 0, 1, 1),
        (3, last >> 16, 1, 1),
    ]
    theirs, ours = ([produce_in_sequence(port, each) for each in sent] for port in ports)
    assert list(zip(sent, ours, strict=True)) == list(zip(sent, theirs, strict=True))
    assert end_offset(ports[0], "numbered") == end_offset(ports[1], "numbered")


def records(number: int) -> bytearray:
    return build_batch([Record(offset, int(time.time() * 1000), None, b"v") for offset in range(number)])


def has_topic(port: int, name: str) -> bool:
    return end_offset(port, name) >= 0


def end_offset(port: int, topic: str) -> int:
    wanted = ListOffsetsTopic(name=topic, partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])
    answer = ask(port, ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=[wanted]), 5)
    return int(answer.topics[0].partitions[0].offset)


def credential(name: str, mechanism: int = 1, iterations: int = 4096) -> ScramCredentialUpsertion:
    return ScramCredentialUpsertion(
        name=name, mechanism=mechanism, iterations=iterations, salt=b"salt", salted_password=b"p" * 32
    )


def test_scram_credentials_that_cannot_be_altered_are_answered_alike(ports: tuple[int, int]) -> None:
    """Each user has one result; empty names and other wrong entries come before duplicates,
    missing ones and successes."""
    requests = [
        ([credential("")], []),
        ([credential(""), credential("")], [("", 1), ("", 2), ("", 9)]),
        ([credential("good"), credential("", 0, 1)], []),
        ([credential("a", 0), credential("a", 9), credential("b", 1, 4095), credential("c", 2, 16385)], []),
        ([credential("a", 9), credential("a", 1, 1)], [("a", 1)]),
        ([credential("a", 1, 99999), credential("a", 3)], [("a", 7)]),
        ([credential("a"), credential("a")], []),
        ([credential("a")], [("a", 1)]),
        ([credential("a", 1, 1), credential("a", 1, 1)], []),
        ([], [("nobody", 1)]),
        ([credential("a")], [("a", 2)]),
        ([credential("ok"), credential("d"), credential("d"), credential("", 1)], [("gone", 1)]),
        ([credential("ok", 1, 16384), credential("ok", 2)], []),
        ([], [("ok", 1), ("ok", 2)]),
        ([], [("ok", 1)]),
        ([], [("ok", 0)]),
        ([], []),
    ]
    for upsertions, deletions in requests:
        request = AlterUserScramCredentialsRequest(
            upsertions=upsertions,
            deletions=[ScramCredentialDeletion(name=name, mechanism=kind) for name, kind in deletions],
        )
        theirs, ours = (
            [(each.user, each.error_code, each.error_message) for each in ask(port, request, 0).results]
            for port in ports
        )
        assert ours == theirs
