"""What clients may do with records, topics and groups: each API asks for Apache's rights, and a
missing one is answered with Apache's error."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from barnabas.base.ids import ZERO_UUID, TopicPartition, Uuid
from barnabas.broker.groups import queries
from barnabas.broker.requests.request import ClientFacts, Request
from barnabas.log.settings import LogConfig
from barnabas.security.acls import CLUSTER_NAME, SUPPORTED_OPERATIONS, AclOperation, ResourceType
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.errors import ErrorCode as E
from barnabas.wire.kafka.frames import encode_request
from barnabas.wire.kafka.messages.delete_groups import DeleteGroupsRequest
from barnabas.wire.kafka.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from barnabas.wire.kafka.messages.describe_groups import DescribeGroupsRequest
from barnabas.wire.kafka.messages.describe_producers import DescribeProducersRequest, TopicRequest
from barnabas.wire.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.wire.kafka.messages.find_coordinator import FindCoordinatorRequest
from barnabas.wire.kafka.messages.heartbeat import HeartbeatRequest
from barnabas.wire.kafka.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas.wire.kafka.messages.leave_group import LeaveGroupRequest, MemberIdentity
from barnabas.wire.kafka.messages.list_groups import ListGroupsRequest
from barnabas.wire.kafka.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas.wire.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.wire.kafka.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.wire.kafka.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from barnabas.wire.kafka.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from barnabas.wire.kafka.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from barnabas.wire.kafka.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.wire.kafka.messages.sync_group import SyncGroupRequest
from support.broker import Wire, batch
from support.rights import IDS, Right, Rights, RightsBroker, errors_of
from support.transaction_coordinators import name_coordinators

READ, WRITE, DELETE, DESCRIBE, CREATE = (
    AclOperation.READ,
    AclOperation.WRITE,
    AclOperation.DELETE,
    AclOperation.DESCRIBE,
    AclOperation.CREATE,
)
TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID = (
    ResourceType.TOPIC,
    ResourceType.GROUP,
    ResourceType.CLUSTER,
    ResourceType.TRANSACTIONAL_ID,
)
TOPIC_DENIED, GROUP_DENIED = E.TOPIC_AUTHORIZATION_FAILED, E.GROUP_AUTHORIZATION_FAILED
CLUSTER_ACTION: Right = (AclOperation.CLUSTER_ACTION, CLUSTER, CLUSTER_NAME)
DENIALS = {
    TOPIC_DENIED,
    GROUP_DENIED,
    E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    E.CLUSTER_AUTHORIZATION_FAILED,
}


class Case(NamedTuple):
    """A request, and the rights that it needs."""

    versions: range
    request: Callable[[int], Any]
    """Makes it for a version."""
    rights: dict[Right, dict[str, E]]
    """The errors of the answer while only this one is missing."""
    alternative: Right | None = None
    """What is enough in the place of all of these."""


def produce(version: int, *topics: str, acks: int = 1, transactional_id: str | None = None, **options: Any) -> Any:
    by_id = version >= 13
    return ProduceRequest(
        acks=acks,
        timeout_ms=1000,
        transactional_id=transactional_id,
        topic_data=[
            TopicProduceData(
                name="" if by_id else topic,
                topic_id=IDS.get(topic, Uuid(bytes([9]) * 16)) if by_id else ZERO_UUID,
                partition_data=[PartitionProduceData(index=0, records=batch(b"v", **options))],
            )
            for topic in topics
        ],
    )


def fetch(version: int, *topics: str, **fields: Any) -> Any:
    by_id = version >= 13
    return FetchRequest(
        max_bytes=1 << 20,
        **{"max_wait_ms": 0, **fields},
        topics=[
            FetchTopic(
                topic="" if by_id else topic,
                topic_id=IDS.get(topic, Uuid(bytes([9]) * 16)) if by_id else ZERO_UUID,
                partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)],
            )
            for topic in topics
        ],
    )


def offset_commit(version: int, *topics: str, group: str = "g") -> Any:
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=-1,
        topics=[
            OffsetCommitRequestTopic(
                name=topic,
                topic_id=IDS.get(topic, Uuid(bytes([9]) * 16)) if version >= 10 else ZERO_UUID,
                partitions=[OffsetCommitRequestPartition(partition_index=0, committed_offset=3, committed_metadata="")],
            )
            for topic in topics
        ],
    )


def offset_fetch(version: int, *topics: str, groups: tuple[str, ...] = ("g",)) -> Any:
    """For all topics if none is named."""
    if version < 8:
        asked = [OffsetFetchRequestTopic(name=topic, partition_indexes=[0]) for topic in topics]
        return OffsetFetchRequest(group_id=groups[0], topics=asked if topics else None)
    named = [
        OffsetFetchRequestTopics(
            name=topic,
            topic_id=IDS.get(topic, Uuid(bytes([9]) * 16)) if version >= 10 else ZERO_UUID,
            partition_indexes=[0],
        )
        for topic in topics
    ]
    return OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=group, topics=named if topics else None) for group in groups]
    )


def offset_for_leader_epoch(_: int) -> Any:
    return OffsetForLeaderEpochRequest(
        topics=[
            OffsetForLeaderTopic(topic=topic, partitions=[OffsetForLeaderPartition(partition=0, leader_epoch=0)])
            for topic in "tu"
        ]
    )


def list_offsets(_: int) -> Any:
    return ListOffsetsRequest(
        replica_id=-1,
        topics=[
            ListOffsetsTopic(name=topic, partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])
            for topic in "tu"
        ],
    )


def delete_records(_: int) -> Any:
    return DeleteRecordsRequest(
        timeout_ms=1000,
        topics=[
            DeleteRecordsTopic(name=topic, partitions=[DeleteRecordsPartition(partition_index=0, offset=0)])
            for topic in "tu"
        ],
    )


def offset_delete(_: int) -> Any:
    return OffsetDeleteRequest(
        group_id="g",
        topics=[
            OffsetDeleteRequestTopic(name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=0)])
            for topic in "tu"
        ],
    )


def metadata(version: int, *topics: str, by_id: bool = False, **fields: Any) -> Any:
    named = [
        MetadataRequestTopic(name=None, topic_id=IDS.get(topic, Uuid(bytes([9]) * 16)))
        if by_id
        else MetadataRequestTopic(name=topic)
        for topic in topics
    ]
    return MetadataRequest(topics=named, **fields)


def find_coordinator(version: int, key_type: int, *keys: str) -> Any:
    if version < 4:
        return FindCoordinatorRequest(key=keys[0], key_type=key_type)
    return FindCoordinatorRequest(coordinator_keys=list(keys), key_type=key_type)


def leave_group(version: int) -> Any:
    if version < 3:
        return LeaveGroupRequest(group_id="g", member_id="m")
    return LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id="m")])


def sync_group(version: int) -> Any:
    named = {"protocol_type": "consumer", "protocol_name": "range"} if version >= 5 else {}
    return SyncGroupRequest(group_id="g", generation_id=1, member_id="m", **named)


def join_group(_: int) -> Any:
    return JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )


T, G, X = (TOPIC, "t"), (GROUP, "g"), (TRANSACTIONAL_ID, "x")

CASES = {
    "Produce": Case(range(3, 14), lambda v: produce(v, "t", "u"), {(WRITE, *T): {"t": TOPIC_DENIED}}),
    "Produce in a transaction": Case(
        range(3, 13),
        lambda v: produce(
            v, "t", "u", transactional_id="x", producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True
        ),
        {(WRITE, *X): dict.fromkeys("tu", E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)},
    ),
    "Fetch": Case(range(4, 18), lambda v: fetch(v, "t", "u"), {(READ, *T): {"t": TOPIC_DENIED}}),
    "Fetch of a follower": Case(
        range(4, 15),
        lambda v: fetch(v, "t", "u", replica_id=1),
        {CLUSTER_ACTION: dict.fromkeys("tu", TOPIC_DENIED)},
    ),
    "ListOffsets": Case(range(1, 10), list_offsets, {(DESCRIBE, *T): {"t": TOPIC_DENIED}}),
    "Metadata": Case(range(14), lambda v: metadata(v, "t", "u"), {(DESCRIBE, *T): {"t": TOPIC_DENIED}}),
    "Metadata by id": Case(
        range(12, 14), lambda v: metadata(v, "t", "u", by_id=True), {(DESCRIBE, *T): {"t": TOPIC_DENIED}}
    ),
    "OffsetForLeaderEpoch": Case(
        range(2, 5), offset_for_leader_epoch, {(DESCRIBE, *T): {"t": TOPIC_DENIED}}, CLUSTER_ACTION
    ),
    "DeleteRecords": Case(range(3), delete_records, {(DELETE, *T): {"t": TOPIC_DENIED}}),
    "DescribeProducers": Case(
        range(1),
        lambda _: DescribeProducersRequest(topics=[TopicRequest(name=t, partition_indexes=[0]) for t in "tu"]),
        {(READ, *T): {"t": TOPIC_DENIED}},
    ),
    "FindCoordinator of a group": Case(
        range(7), lambda v: find_coordinator(v, 0, "g"), {(DESCRIBE, *G): {"g": GROUP_DENIED}}
    ),
    "FindCoordinator of a transactional id": Case(
        range(1, 7),
        lambda v: find_coordinator(v, 1, "x"),
        {(DESCRIBE, *X): {"x": E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}},
    ),
    "FindCoordinator of a share group": Case(
        range(6, 7), lambda v: find_coordinator(v, 2, "s"), {CLUSTER_ACTION: {"s": E.CLUSTER_AUTHORIZATION_FAILED}}
    ),
    "JoinGroup": Case(range(10), join_group, {(READ, *G): {"": GROUP_DENIED}}),
    "SyncGroup": Case(range(6), sync_group, {(READ, *G): {"": GROUP_DENIED}}),
    "Heartbeat": Case(
        range(5),
        lambda _: HeartbeatRequest(group_id="g", generation_id=1, member_id="m"),
        {(READ, *G): {"": GROUP_DENIED}},
    ),
    "LeaveGroup": Case(range(6), leave_group, {(READ, *G): {"": GROUP_DENIED}}),
    "OffsetCommit": Case(
        range(2, 11),
        lambda v: offset_commit(v, "t", "u"),
        {(READ, *G): dict.fromkeys("tu", GROUP_DENIED), (READ, *T): {"t": TOPIC_DENIED}},
    ),
    "OffsetFetch": Case(
        range(2, 8),
        lambda v: offset_fetch(v, "t", "u"),
        {(DESCRIBE, *G): {"": GROUP_DENIED}, (DESCRIBE, *T): {"t": TOPIC_DENIED}},
    ),
    "OffsetFetch without an error of the whole": Case(
        range(1, 2),
        lambda v: offset_fetch(v, "t", "u"),
        {(DESCRIBE, *G): dict.fromkeys("tu", GROUP_DENIED), (DESCRIBE, *T): {"t": TOPIC_DENIED}},
    ),
    "OffsetFetch of several groups": Case(
        range(8, 11),
        lambda v: offset_fetch(v, "t", "u", groups=("g",)),
        {(DESCRIBE, *G): {"g": GROUP_DENIED}, (DESCRIBE, *T): {"t": TOPIC_DENIED}},
    ),
    "OffsetDelete": Case(range(1), offset_delete, {(DELETE, *G): {"": GROUP_DENIED}, (READ, *T): {"t": TOPIC_DENIED}}),
    "DescribeGroups": Case(
        range(7), lambda _: DescribeGroupsRequest(groups=["g"]), {(DESCRIBE, *G): {"g": GROUP_DENIED}}
    ),
    "DeleteGroups": Case(
        range(3), lambda _: DeleteGroupsRequest(groups_names=["g"]), {(DELETE, *G): {"g": GROUP_DENIED}}
    ),
}
MISSING = [(name, right) for name, case in CASES.items() for right in case.rights]


@pytest.fixture
def broker(tmp_path: Path) -> RightsBroker:
    return RightsBroker(tmp_path)


def ask(broker: RightsBroker, message: Any, version: int, wire: Wire | None = None) -> Any:
    """The answer to a request, which may take its turns; None while a member waits for others."""
    if wire is None:
        wire = broker.connect()
    wire.post(message, version)
    if not wire.sent:
        broker.take_turns(wire)
    return wire.answer()


def denials(response: Any) -> dict[str, E]:
    """The errors about rights in an answer, if there is one."""
    if response is None:
        return {}
    return {name: code for name, code in errors_of(response).items() if code in DENIALS}


@pytest.mark.parametrize(("name", "right"), MISSING, ids=lambda each: each if isinstance(each, str) else each[0].name)
def test_a_missing_right_is_answered_with_its_error_in_every_version(
    broker: RightsBroker, name: str, right: Right
) -> None:
    """Every other operation on the same resource is allowed, and everything on all others."""
    case = CASES[name]
    broker.rights.allow_everything()
    broker.rights.deny(right, *([case.alternative] if case.alternative else ()))
    for version in case.versions:
        expected = case.rights[right]
        if name.startswith("FindCoordinator") and version < 4:
            expected = dict.fromkeys([""], *expected.values())
        assert denials(ask(broker, case.request(version), version)) == expected, version


@pytest.mark.parametrize("name", CASES)
def test_these_rights_are_enough_in_every_version(broker: RightsBroker, name: str) -> None:
    """No API asks for more than its rights."""
    case = CASES[name]
    others = [(operation, TOPIC, "u") for operation, kind, _ in case.rights if kind is TOPIC]
    if "transaction" in name:
        others += [(WRITE, TOPIC, "t"), (WRITE, TOPIC, "u")]
    broker.rights.allow(*case.rights, *others)
    for version in case.versions:
        assert denials(ask(broker, case.request(version), version)) == {}, version


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.alternative])
def test_a_followers_right_is_enough_in_every_version(broker: RightsBroker, name: str) -> None:
    """Followers ask for epochs without rights to topics."""
    case = CASES[name]
    broker.rights.allow(case.alternative)
    for version in case.versions:
        assert denials(ask(broker, case.request(version), version)) == {}, version


@pytest.mark.parametrize("name", CASES)
def test_a_client_without_rights_learns_nothing_of_what_exists(tmp_path: Path, name: str) -> None:
    """The answers are byte by byte those of a broker without topics and groups."""
    case = CASES[name]
    brokers = [RightsBroker(tmp_path / str(has_topics), has_topics=has_topics) for has_topics in (True, False)]
    for version in case.versions:
        message = case.request(version)
        if any(getattr(topic, "topic_id", ZERO_UUID) != ZERO_UUID for topic in topics_of(message)):
            continue  # who knows the id of a topic knows that it exists
        sent = []
        for broker in brokers:
            wire = broker.connect()
            wire.post(message, version)
            if not wire.sent:
                broker.take_turns(wire)
            sent.append(wire.sent)
        assert sent[0] == sent[1]
        assert set(errors_of(wire.answer()).values()) <= DENIALS


def topics_of(message: Any) -> list[Any]:
    return getattr(message, "topics", None) or getattr(message, "topic_data", None) or []


@pytest.mark.parametrize("name", CASES)
def test_each_right_is_asked_for_once(broker: RightsBroker, name: str) -> None:
    """However often a request names a resource, and however many readers look at it."""
    case = CASES[name]
    broker.rights.allow_everything()
    version = case.versions[-1]
    message = case.request(version)
    for several in ("topics", "topic_data", "groups", "groups_names", "coordinator_keys"):
        if named := getattr(message, several, None):
            named += named
    ask(broker, message, version)
    assert set(broker.rights.authorizer.asked.values()) == {1}


# Produce


def end_of(broker: RightsBroker, topic: str) -> int:
    return int(broker.replicas.partition(TopicPartition(topic, 0)).log.log_end_offset)


def deliver(wire: Wire, message: Any, version: int, *, number: int = 1) -> None:
    """Hand in a request some times together, as the network does."""
    wire.asked += [(message.API_KEY, version)] * number
    frame = b"".join(bytes(part) for part in encode_request(message, version, 5, "test"))
    data, position = memoryview(bytearray(frame * number)), 0
    while position < len(data) and not wire.is_closed:
        taken = wire.handler.take_from(data, position)
        if taken == position:
            taken = position + len(frame)
            wire.handler.frame(memoryview(bytearray(data[position + 4 : taken])))
        position = taken


@pytest.mark.parametrize("version", range(3, 14))
@pytest.mark.parametrize("topics", ["t", "u", "tu", "ut"])
def test_each_reader_of_produce_appends_to_what_the_client_may_write_to(
    tmp_path: Path, version: int, topics: str
) -> None:
    """The answers are the same byte by byte, whichever reader reads the requests."""
    sent = []
    for is_fast in (True, False):
        broker = RightsBroker(tmp_path / str(is_fast), is_fast=is_fast)
        broker.rights.allow((WRITE, TOPIC, "u"))
        wire = broker.connect()
        for acks in (1, -1):
            for _ in range(2):  # the second may have a template
                deliver(wire, produce(version, *topics, acks=acks), version, number=2)
        sent.append(b"".join(wire.sent))
        assert end_of(broker, "t") == 0
        assert end_of(broker, "u") == (8 if "u" in topics else 0)
    assert sent[0] == sent[1]


@pytest.mark.parametrize("is_fast", [True, False])
def test_a_right_that_is_withdrawn_counts_at_the_next_produce_request(tmp_path: Path, is_fast: bool) -> None:
    """Also where a template has read the requests before it."""
    broker = RightsBroker(tmp_path, is_fast=is_fast)
    broker.rights.allow((WRITE, *T))
    wire = broker.connect()
    deliver(wire, produce(9, "t"), 9, number=3)
    broker.rights.withdraw((WRITE, *T))
    wire.sent.clear()
    deliver(wire, produce(9, "t"), 9)
    assert errors_of(wire.answer()) == {"t": TOPIC_DENIED}
    assert end_of(broker, "t") == 3
    broker.rights.allow((WRITE, *T))
    deliver(wire, produce(9, "t"), 9)
    assert end_of(broker, "t") == 4


@pytest.mark.parametrize("is_fast", [True, False])
def test_a_right_is_asked_for_once_until_rights_change(tmp_path: Path, is_fast: bool) -> None:
    """A producer that sends fast pays for one decision."""
    broker = RightsBroker(tmp_path)
    broker.rights.allow((WRITE, *T))
    wire = broker.connect()
    for _ in range(2):
        broker.rights.withdraw((WRITE, *T))
        broker.rights.allow((WRITE, *T))
        broker.rights.authorizer.asked.clear()
        deliver(wire, produce(9, "t"), 9, number=20)
        deliver(wire, produce(9, "t"), 9)
        assert broker.rights.authorizer.asked == {(WRITE, *T): 1}


def test_each_produce_request_has_its_line_where_what_is_allowed_is_noted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Also where the one before it had the same answer."""
    broker = RightsBroker(tmp_path)
    broker.rights.allow((WRITE, *T))
    wire = broker.connect()
    with caplog.at_level(logging.DEBUG, logger="kafka.authorizer.logger"):
        for _ in range(3):
            deliver(wire, produce(9, "t"), 9)
    assert len([each for each in caplog.messages if "resource = Topic:LITERAL:t" in each]) == 3


def test_what_is_denied_is_asked_for_by_each_request(tmp_path: Path) -> None:
    """So that each has its line in the audit log."""
    broker = RightsBroker(tmp_path)
    wire = broker.connect()
    for _ in range(3):
        deliver(wire, produce(9, "t"), 9, number=5)
    assert broker.rights.authorizer.asked == {(WRITE, *T): 3}


def test_a_sender_does_not_get_the_rights_of_another(tmp_path: Path) -> None:
    """What one may do is kept for itself alone."""
    broker = RightsBroker(tmp_path)
    broker.rights.allow((WRITE, *T))
    ours, theirs = broker.connect(), broker.connect()
    theirs.handler.client.principal = "User:other"
    for _ in range(2):
        deliver(ours, produce(9, "t"), 9)
        assert errors_of(ours.answer()) == {}
        deliver(theirs, produce(9, "t"), 9)
        assert errors_of(theirs.answer()) == {"t": TOPIC_DENIED}
    assert end_of(broker, "t") == 2


@pytest.mark.parametrize("is_fast", [True, False])
@pytest.mark.parametrize("topics", ["t", "ut"])
def test_an_unanswered_request_without_a_right_ends_its_connection(tmp_path: Path, is_fast: bool, topics: str) -> None:
    """With acks=0 there is no other sign."""
    broker = RightsBroker(tmp_path, is_fast=is_fast)
    broker.rights.allow((WRITE, TOPIC, "u"))
    wire = broker.connect()
    deliver(wire, produce(9, *topics, acks=0), 9)
    assert wire.is_closed
    assert wire.sent == []
    assert end_of(broker, "t") == 0


@pytest.mark.parametrize("is_fast", [True, False])
def test_a_request_that_fails_as_a_whole_says_first_which_rights_are_missing(tmp_path: Path, is_fast: bool) -> None:
    """Apache's brokers look at acks after the rights."""
    broker = RightsBroker(tmp_path, is_fast=is_fast)
    broker.rights.allow((WRITE, TOPIC, "u"))
    wire = broker.connect()
    deliver(wire, produce(9, "t", "u", acks=7), 9)
    assert errors_of(wire.answer()) == {"t": TOPIC_DENIED, "u": E.INVALID_REQUIRED_ACKS}


IN_TRANSACTION = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0, "is_transactional": True}


@pytest.mark.parametrize("is_fast", [True, False])
def test_a_transactional_id_counts_where_a_batch_is_transactional(tmp_path: Path, is_fast: bool) -> None:
    """Naming one beside other records needs no right."""
    broker = RightsBroker(tmp_path, is_fast=is_fast)
    broker.rights.allow((WRITE, *T), (WRITE, TOPIC, "u"))
    wire = broker.connect()
    deliver(wire, produce(9, "t", "u", transactional_id="x"), 9)
    assert errors_of(wire.answer()) == {}
    deliver(wire, produce(9, "t", "u", **IN_TRANSACTION), 9)
    assert errors_of(wire.answer()) == dict.fromkeys("tu", E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    deliver(wire, produce(9, "new", **IN_TRANSACTION), 9)
    assert errors_of(wire.answer()) == {"new": E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}
    deliver(wire, produce(9, "t", "u", transactional_id="x", acks=7, **IN_TRANSACTION), 9)
    assert errors_of(wire.answer()) == dict.fromkeys("tu", E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    deliver(wire, produce(9, "t", transactional_id="x", acks=0, **IN_TRANSACTION), 9)
    assert wire.is_closed
    assert (end_of(broker, "t"), end_of(broker, "u")) == (1, 1)


@pytest.mark.parametrize("is_fast", [True, False])
def test_a_transaction_gets_no_partition_that_its_client_may_not_write_to(tmp_path: Path, is_fast: bool) -> None:
    """The coordinator, which adds partitions on behalf of producers, is asked about the others."""
    broker = RightsBroker(tmp_path, is_fast=is_fast)
    broker.coordinators.transaction_version = 2
    name_coordinators(broker.metadata, 0)
    broker.rights.allow((WRITE, *X), (WRITE, TOPIC, "u"))
    wire = broker.connect()
    deliver(wire, produce(12, "t", "u", transactional_id="x", **IN_TRANSACTION), 12)
    ((_, asked),) = broker.coordinators.asked
    assert [topic.name for each in asked.transactions for topic in each.topics] == ["u"]
    broker.coordinators.confirm()
    if not wire.sent:
        broker.take_turns(wire)
    assert errors_of(wire.answer()) == {"t": TOPIC_DENIED}
    assert (end_of(broker, "t"), end_of(broker, "u")) == (0, 1)


@pytest.mark.parametrize("is_fast", [True, False])
def test_an_unknown_topic_id_is_unknown_whatever_the_rights(tmp_path: Path, is_fast: bool) -> None:
    """There is no name to ask for."""
    broker = RightsBroker(tmp_path, is_fast=is_fast)
    wire = broker.connect()
    deliver(wire, produce(13, "t", "missing"), 13)
    assert errors_of(wire.answer()) == {"t": TOPIC_DENIED, "?": E.UNKNOWN_TOPIC_ID}


def test_topics_are_asked_for_in_slices_and_each_record_appended_once(tmp_path: Path) -> None:
    """A transaction with thousands of topics gives way while its rights are looked up."""
    broker = RightsBroker(tmp_path)
    name_coordinators(broker.metadata, 0)
    broker.rights.allow((WRITE, *X), (WRITE, TOPIC, "u"))
    names = [f"n{number}" for number in range(1500)]
    wire = broker.connect()
    deliver(wire, produce(9, "u", *names, transactional_id="x", **IN_TRANSACTION), 9)
    assert not wire.sent
    while not broker.coordinators.asked:
        broker.timers.advance(0)
    broker.coordinators.confirm()
    broker.take_turns(wire)
    assert errors_of(wire.answer()) == dict.fromkeys(names, TOPIC_DENIED)
    assert end_of(broker, "u") == 1


# Fetch


def values(response: Any) -> dict[str, int]:
    """The bytes of records in an answer, by topic."""
    return {topic.topic: len(topic.partitions[0].records or b"") for topic in response.responses}


def test_a_session_learns_at_once_that_a_right_was_withdrawn(broker: RightsBroker) -> None:
    """Also of a partition in which nothing happens."""
    broker.rights.allow((READ, *T), (READ, TOPIC, "u"))
    wire = broker.connect()
    session_id = ask(broker, fetch(12, "t", "u", session_epoch=0), 12, wire).session_id
    assert session_id
    assert ask(broker, fetch(12, session_id=session_id, session_epoch=1), 12, wire).responses == []
    broker.rights.withdraw((READ, *T))
    refused = ask(broker, fetch(12, session_id=session_id, session_epoch=2, max_wait_ms=5000), 12, wire)
    assert errors_of(refused) == {"t": TOPIC_DENIED}
    refused = ask(broker, fetch(12, session_id=session_id, session_epoch=3, max_wait_ms=5000), 12, wire)
    assert errors_of(refused) == {"t": TOPIC_DENIED}


def test_a_session_gets_the_records_of_a_topic_once_the_right_is_given(broker: RightsBroker) -> None:
    """The client need not name the topic again."""
    broker.rights.allow((READ, TOPIC, "u"), (WRITE, TOPIC, "t"))
    ask(broker, produce(9, "t"), 9)
    wire = broker.connect()
    opened = ask(broker, fetch(12, "t", "u", session_epoch=0), 12, wire)
    assert errors_of(opened) == {"t": TOPIC_DENIED}
    broker.rights.allow((READ, *T))
    served = ask(broker, fetch(12, session_id=opened.session_id, session_epoch=1), 12, wire)
    assert errors_of(served) == {}
    assert values(served)["t"] > 0


def test_whoever_continues_a_session_reads_with_its_own_rights(broker: RightsBroker) -> None:
    """A session is found by its number, and numbers can be guessed."""
    broker.rights.allow((READ, *T), (READ, TOPIC, "u"))
    broker.rights.allow((READ, TOPIC, "u"), principal="User:other")
    session_id = ask(broker, fetch(12, "t", "u", session_epoch=0), 12).session_id
    other = broker.connect()
    other.handler.client.principal = "User:other"
    refused = ask(broker, fetch(12, session_id=session_id, session_epoch=1), 12, other)
    assert errors_of(refused) == {"t": TOPIC_DENIED}


def test_records_that_come_while_a_fetch_waits_are_for_readers_with_the_right(broker: RightsBroker) -> None:
    """A fetch of allowed topics waits, and is answered with their records."""
    broker.rights.allow((READ, TOPIC, "u"), (WRITE, TOPIC, "u"), (WRITE, *T))
    wire = broker.connect()
    wire.post(fetch(12, "u", max_wait_ms=5000, min_bytes=1), 12)
    ask(broker, produce(9, "t"), 9)
    broker.timers.advance(0)
    assert not wire.sent
    ask(broker, produce(9, "u"), 9)
    broker.timers.advance(0)
    assert values(wire.answer())["u"] > 0


def test_the_error_of_a_topic_id_that_is_not_known_needs_no_right(broker: RightsBroker) -> None:
    """There is no name to ask for; a follower without its right gets its own error for all."""
    assert errors_of(ask(broker, fetch(13, "t", "missing"), 13)) == {"t": TOPIC_DENIED, "?": E.UNKNOWN_TOPIC_ID}
    refused = ask(broker, fetch(13, "t", "missing", replica_id=1), 13)
    assert errors_of(refused) == {"t": TOPIC_DENIED, "?": TOPIC_DENIED}


def test_a_stranger_that_fetches_as_a_follower_changes_nothing(broker: RightsBroker) -> None:
    """What it claims to have does not count as replicated, and its session pushes no other out."""
    broker.lead("t", epoch=1, replicas=(0, 1), topic_id=IDS["t"])
    broker.rights.allow((WRITE, *T))
    ask(broker, produce(9, "t"), 9)
    request = fetch(12, "t", replica_id=1, session_epoch=0)
    request.topics[0].partitions[0].fetch_offset = 1
    refused = ask(broker, request, 12)
    assert errors_of(refused) == {"t": TOPIC_DENIED}
    partition = broker.replicas.partition(TopicPartition("t", 0))
    assert partition.log.high_watermark == 0
    assert not any(session.privileged for session in broker.fetch_sessions._sessions.values())
    broker.rights.allow(CLUSTER_ACTION)
    assert errors_of(ask(broker, request, 12)) == {}
    assert partition.log.high_watermark == 1


def test_how_a_topic_is_compressed_is_not_told_without_the_right(broker: RightsBroker) -> None:
    """A client too old for zstd gets another error than one that may read."""
    broker.replicas.partition(TopicPartition("t", 0)).log.configure(LogConfig({"compression.type": "zstd"}))
    assert errors_of(ask(broker, fetch(9, "t"), 9)) == {"t": TOPIC_DENIED}
    broker.rights.allow((READ, *T))
    assert errors_of(ask(broker, fetch(9, "t"), 9)) == {"t": E.UNSUPPORTED_COMPRESSION_TYPE}


def test_records_without_the_right_to_delete_them_stay(broker: RightsBroker) -> None:
    """They are below the high watermark, so that a client with the right could."""
    broker.rights.allow((WRITE, *T), (WRITE, TOPIC, "u"), (DELETE, TOPIC, "u"))
    ask(broker, produce(9, "t", "u"), 9)
    request = delete_records(1)
    for topic in request.topics:
        topic.partitions[0].offset = 1
    assert errors_of(ask(broker, request, 1)) == {"t": TOPIC_DENIED}
    starts = [broker.replicas.partition(TopicPartition(topic, 0)).log.log_start_offset for topic in "tu"]
    assert starts == [0, 1]


# Metadata


def names_of(response: Any) -> list[str]:
    return sorted(topic.name for topic in response.topics)


@pytest.mark.parametrize("version", range(1, 14))
def test_all_topics_are_those_that_the_client_may_see(broker: RightsBroker, version: int) -> None:
    """The others are left out without an error."""
    everything = MetadataRequest(topics=None)
    assert names_of(ask(broker, everything, version)) == []
    broker.rights.allow((DESCRIBE, TOPIC, "u"))
    response = ask(broker, everything, version)
    assert names_of(response) == ["u"]
    assert errors_of(response) == {}


def test_a_topic_that_is_denied_by_id_keeps_its_name(broker: RightsBroker) -> None:
    """An id that is not known has an error of its own, as in Apache's brokers."""
    response = ask(broker, metadata(12, "t", "missing", by_id=True), 12)
    assert [topic.name for topic in response.topics] == [None, None]
    assert errors_of(response) == {"t": TOPIC_DENIED, "?": E.UNKNOWN_TOPIC_ID}


@pytest.mark.parametrize("right", [(CREATE, CLUSTER, CLUSTER_NAME), (CREATE, TOPIC, "new")])
def test_a_missing_topic_is_created_for_clients_that_may(broker: RightsBroker, right: Right) -> None:
    """By a right to the cluster or to the topic; seeing it is not enough."""
    broker.rights.allow((DESCRIBE, TOPIC, "new"), (DESCRIBE, TOPIC, "newer"))
    request = metadata(9, "new", "newer")
    assert errors_of(ask(broker, request, 9)) == dict.fromkeys(["new", "newer"], TOPIC_DENIED)
    assert broker.created.names == []
    looked_for = metadata(9, "new", allow_auto_topic_creation=False)
    assert errors_of(ask(broker, looked_for, 9)) == {"new": E.UNKNOWN_TOPIC_OR_PARTITION}
    broker.rights.allow(right)
    response = ask(broker, request, 9)
    assert errors_of(response)["new"] == E.LEADER_NOT_AVAILABLE
    assert errors_of(response)["newer"] == (TOPIC_DENIED if right[1] is TOPIC else E.LEADER_NOT_AVAILABLE)
    assert broker.created.names == (["new"] if right[1] is TOPIC else ["new", "newer"])


def bits(*operations: AclOperation) -> int:
    return sum(1 << operation for operation in operations)


def test_authorized_operations_are_those_of_the_client(broker: RightsBroker) -> None:
    """Of topics, the cluster and groups, for which the request must ask."""
    everything = {"include_topic_authorized_operations": True, "include_cluster_authorized_operations": True}
    broker.rights.allow((READ, *T), (DELETE, *G), (CREATE, CLUSTER, CLUSTER_NAME))
    response = ask(broker, metadata(10, "t", **everything), 10)
    assert response.topics[0].topic_authorized_operations == bits(READ, DESCRIBE)
    assert response.cluster_authorized_operations == 0
    broker.rights.allow((DESCRIBE, CLUSTER, CLUSTER_NAME))
    assert ask(broker, metadata(10, "t", **everything), 10).cluster_authorized_operations == bits(CREATE, DESCRIBE)
    assert ask(broker, metadata(10, "t"), 10).topics[0].topic_authorized_operations == -(1 << 31)
    groups = DescribeGroupsRequest(groups=["g"], include_authorized_operations=True)
    (group,) = ask(broker, groups, 5).groups
    assert group.authorized_operations == bits(DELETE, DESCRIBE)


def test_operations_on_a_topic_that_is_missing_are_given_to_those_who_may_describe_it(broker: RightsBroker) -> None:
    """As on one that is there."""
    broker.rights.allow((DESCRIBE, TOPIC, "new"), (READ, TOPIC, "new"))
    request = metadata(10, "new", allow_auto_topic_creation=False, include_topic_authorized_operations=True)
    (topic,) = ask(broker, request, 10).topics
    assert (topic.error_code, topic.topic_authorized_operations) == (E.UNKNOWN_TOPIC_OR_PARTITION, bits(READ, DESCRIBE))


def test_in_the_first_version_an_empty_list_asks_for_all_topics_that_may_be_described(broker: RightsBroker) -> None:
    """In later versions it asks for none."""
    assert ask(broker, metadata(0), 0).topics == []
    broker.rights.allow((DESCRIBE, *T))
    assert [topic.name for topic in ask(broker, metadata(0), 0).topics] == ["t"]
    assert ask(broker, metadata(1), 1).topics == []


def test_without_an_authorizer_all_operations_are_authorized(tmp_path: Path) -> None:
    """All that there are for the type of the resource."""
    broker = RightsBroker(tmp_path, has_authorizer=False)
    everything = {"include_topic_authorized_operations": True, "include_cluster_authorized_operations": True}
    response = ask(broker, metadata(10, "t", **everything), 10)
    assert response.topics[0].topic_authorized_operations == bits(*SUPPORTED_OPERATIONS[TOPIC])
    assert response.cluster_authorized_operations == bits(*SUPPORTED_OPERATIONS[CLUSTER])
    groups = DescribeGroupsRequest(groups=["g"], include_authorized_operations=True)
    assert ask(broker, groups, 5).groups[0].authorized_operations == bits(*SUPPORTED_OPERATIONS[GROUP])


# Groups


@pytest.mark.parametrize("is_fast", [True, False])
@pytest.mark.parametrize("version", range(2, 11))
def test_each_reader_of_commits_stores_what_the_client_may_read(tmp_path: Path, version: int, is_fast: bool) -> None:
    """Of other topics nothing is stored, and all of a group that it may not read is refused."""
    broker = RightsBroker(tmp_path, is_fast=is_fast)
    broker.rights.allow((READ, *G), (READ, TOPIC, "u"))
    wire = broker.connect()
    for topics in ("t", "u", "tu", "ut"):
        wire.asked.clear()
        deliver(wire, offset_commit(version, *topics), version)
        assert errors_of(wire.answer()) == ({"t": TOPIC_DENIED} if "t" in topics else {})
    (group,) = broker.groups.coordinator.groups()
    assert list(group.offsets.committed) == [TopicPartition("u", 0)]
    deliver(wire, offset_commit(version, "u", group="other"), version)
    assert errors_of(wire.answer()) == {"u": GROUP_DENIED}
    if version >= 10:
        deliver(wire, offset_commit(version, "t", "missing"), version)
        assert errors_of(wire.answer()) == {"t": TOPIC_DENIED, "?": E.UNKNOWN_TOPIC_ID}


def test_an_error_of_the_group_leaves_those_of_denied_topics(broker: RightsBroker) -> None:
    """What is wrong with the group is said of the topics that the client may read."""
    broker.rights.allow((READ, *G), (READ, TOPIC, "u"))
    request = offset_commit(9, "t", "u")
    request.generation_id_or_member_epoch = 5
    assert errors_of(ask(broker, request, 9)) == {"t": TOPIC_DENIED, "u": E.UNKNOWN_MEMBER_ID}


@pytest.mark.parametrize("version", range(2, 11))
def test_all_offsets_of_a_group_are_those_of_topics_that_the_client_may_see(broker: RightsBroker, version: int) -> None:
    """The others are left out without an error."""
    broker.rights.allow((READ, *G), (READ, *T), (READ, TOPIC, "u"))
    assert errors_of(ask(broker, offset_commit(9, "t", "u"), 9)) == {}
    broker.rights.withdraw((READ, *T))
    response = ask(broker, offset_fetch(version), version)
    (group,) = response.groups if version >= 8 else [response]
    assert [topic.topic_id if version >= 10 else topic.name for topic in group.topics] == [
        IDS["u"] if version >= 10 else "u"
    ]
    assert errors_of(response) == {}


def test_denied_offsets_are_not_even_read(broker: RightsBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A denied topic costs no more than its answer."""
    read: list[str] = []
    found = queries._fetch_offset

    def noted(group: Any, key: TopicPartition, require_stable: bool) -> Any:
        read.append(key.topic)
        return found(group, key, require_stable)

    monkeypatch.setattr(queries, "_fetch_offset", noted)
    broker.rights.allow((DESCRIBE, *G), (DESCRIBE, TOPIC, "u"))
    assert errors_of(ask(broker, offset_fetch(9, "t", "u"), 9)) == {"t": TOPIC_DENIED}
    assert read == ["u"]


def test_groups_of_one_request_are_answered_by_their_rights(broker: RightsBroker) -> None:
    """One that is denied names no topics."""
    broker.rights.allow((DESCRIBE, *G), (DESCRIBE, *T))
    response = ask(broker, offset_fetch(8, "t", groups=("g", "other")), 8)
    assert errors_of(response) == {"other": GROUP_DENIED}
    assert [len(group.topics) for group in response.groups] == [1, 0]
    response = ask(broker, find_coordinator(4, 0, "g", "other"), 4)
    assert errors_of(response)["other"] == GROUP_DENIED
    assert errors_of(response).get("g") != GROUP_DENIED


def test_groups_are_listed_for_clients_that_may_see_them(broker: RightsBroker) -> None:
    """All of them by a right to the cluster."""
    for version in range(6):
        assert ask(broker, ListGroupsRequest(), version).groups == []
    broker.rights.allow((READ, GROUP, "*"))
    for version in range(6):
        assert [group.group_id for group in ask(broker, ListGroupsRequest(), version).groups] == ["g"]
    broker.rights.withdraw((READ, GROUP, "*"))
    assert ask(broker, ListGroupsRequest(), 4).groups == []
    broker.rights.allow((DESCRIBE, *G))
    assert len(ask(broker, ListGroupsRequest(), 4).groups) == 1
    broker.rights.withdraw((DESCRIBE, *G))
    broker.rights.allow((DESCRIBE, CLUSTER, CLUSTER_NAME))
    assert len(ask(broker, ListGroupsRequest(), 4).groups) == 1


def test_a_coordinator_that_may_not_be_known_is_not_made(tmp_path: Path) -> None:
    """The request that would create the topic of the offsets is refused before."""
    broker = RightsBroker(tmp_path)
    assert errors_of(ask(broker, find_coordinator(4, 1, "x"), 4)) == {"x": E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}
    assert broker.created.names == []
    broker.rights.allow((DESCRIBE, *X))
    ask(broker, find_coordinator(4, 1, "x"), 4)
    assert broker.created.names == ["__transaction_state"]


def test_a_group_without_the_right_to_delete_it_stays(broker: RightsBroker) -> None:
    """Its offsets, too, whatever else the client may do with it."""
    broker.rights.allow((READ, *G), (READ, *T), (READ, TOPIC, "u"), (DESCRIBE, *G))
    assert errors_of(ask(broker, DeleteGroupsRequest(groups_names=["g", "g"]), 2)) == {"g": GROUP_DENIED}
    assert errors_of(ask(broker, offset_delete(0), 0)) == {"": GROUP_DENIED}
    (group,) = broker.groups.coordinator.groups()
    assert list(group.offsets.committed) == [TopicPartition("u", 0)]


def test_names_are_decided_in_slices() -> None:
    """A request may name a hundred thousand; others have their turn between two."""
    rights = Rights()
    rights.allow((DESCRIBE, *T))
    client = ClientFacts("PLAINTEXT", "127.0.0.1", 1)
    request = Request(ApiKey.METADATA, 9, 1, "c", None, client, 0, lambda *_: None)
    names = ["t", *(f"n{number}" for number in range(99))]
    work = rights.helper.filter_by_authorized(request, DESCRIBE, TOPIC, names)
    turns = list(work)
    assert turns == [None] * len(turns)
    assert len(turns) >= len(names)
