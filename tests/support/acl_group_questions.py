"""Requests to the coordinators of groups and transactions, for the matrix of rights.

Members, generations and producer ids are unknown to the coordinators: what is allowed fails there,
and leaves nothing behind.
"""

from barnabas.security.acls import AclOperation
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from barnabas.wire.kafka.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from barnabas.wire.kafka.messages.delete_groups import DeleteGroupsRequest
from barnabas.wire.kafka.messages.describe_groups import DescribeGroupsRequest
from barnabas.wire.kafka.messages.describe_transactions import DescribeTransactionsRequest
from barnabas.wire.kafka.messages.end_txn import EndTxnRequest
from barnabas.wire.kafka.messages.find_coordinator import FindCoordinatorRequest
from barnabas.wire.kafka.messages.heartbeat import HeartbeatRequest
from barnabas.wire.kafka.messages.init_producer_id import InitProducerIdRequest
from barnabas.wire.kafka.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas.wire.kafka.messages.leave_group import LeaveGroupRequest, MemberIdentity
from barnabas.wire.kafka.messages.list_groups import ListGroupsRequest
from barnabas.wire.kafka.messages.list_transactions import ListTransactionsRequest
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
from barnabas.wire.kafka.messages.sync_group import SyncGroupRequest
from barnabas.wire.kafka.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from barnabas.wire.kafka.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from support.acl_record_questions import GIVEN, NAMES, UNKNOWN_ID
from support.acl_rights import Question, cluster, group, topic, transactional_id
from support.acl_sides import FINISHED, GROUPS, RUNNING, TOPICS, Side

GROUP, OTHER_GROUP = GROUPS
TRANSACTION, OTHER_TRANSACTION = FINISHED
_NO_PRODUCER = {"producer_id": 987_654, "producer_epoch": 0}


# Coordinators


def find_a_groups_coordinator(side: Side, version: int) -> FindCoordinatorRequest:
    return _find(version, 0, GROUP, OTHER_GROUP)


def find_a_transactions_coordinator(side: Side, version: int) -> FindCoordinatorRequest:
    return _find(version, 1, TRANSACTION, OTHER_TRANSACTION)


def find_a_share_coordinator(side: Side, version: int) -> FindCoordinatorRequest:
    return _find(version, 2, "group:topic:0", "group:topic:1")


def _find(version: int, kind: int, *keys: str) -> FindCoordinatorRequest:
    if version < 4:
        return FindCoordinatorRequest(key=keys[0], **({"key_type": kind} if version else {}))
    return FindCoordinatorRequest(key_type=kind, coordinator_keys=list(keys))


# Groups


def join(side: Side, version: int) -> JoinGroupRequest:
    # A session timeout that is too short.
    return JoinGroupRequest(
        group_id=GROUP,
        session_timeout_ms=1,
        rebalance_timeout_ms=60_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )


def sync(side: Side, version: int) -> SyncGroupRequest:
    protocol = {"protocol_type": "consumer", "protocol_name": "range"} if version >= 5 else {}
    return SyncGroupRequest(group_id=GROUP, generation_id=9, member_id="stranger", **protocol)


def heartbeat(side: Side, version: int) -> HeartbeatRequest:
    return HeartbeatRequest(group_id=GROUP, generation_id=9, member_id="stranger")


def leave(side: Side, version: int) -> LeaveGroupRequest:
    if version < 3:
        return LeaveGroupRequest(group_id=GROUP, member_id="stranger")
    return LeaveGroupRequest(group_id=GROUP, members=[MemberIdentity(member_id="stranger")])


def describe_groups(side: Side, version: int) -> DescribeGroupsRequest:
    asked = {"include_authorized_operations": True} if version >= 3 else {}
    return DescribeGroupsRequest(groups=[GROUP, OTHER_GROUP, "no-group", "hidden-group"], **asked)


def list_groups(side: Side, version: int) -> ListGroupsRequest:
    return ListGroupsRequest()


def delete_groups(side: Side, version: int) -> DeleteGroupsRequest:
    return DeleteGroupsRequest(groups_names=["doomed", OTHER_GROUP, "no-group", "hidden-group"])


def commit_offsets_by_id(side: Side, version: int) -> OffsetCommitRequest:
    partitions = [
        OffsetCommitRequestPartition(partition_index=number, committed_offset=1, committed_metadata="")
        for number in (0, 7)
    ]
    ids = [*map(side.topic_id, TOPICS), UNKNOWN_ID]
    topics = [OffsetCommitRequestTopic(topic_id=topic_id, partitions=partitions) for topic_id in ids]
    return OffsetCommitRequest(group_id=GROUP, topics=topics)


def commit_offsets(side: Side, version: int) -> OffsetCommitRequest:
    return _commit("")


def commit_offsets_as_a_member(side: Side, version: int) -> OffsetCommitRequest:
    return _commit("stranger")


def _commit(member_id: str) -> OffsetCommitRequest:
    partitions = [
        OffsetCommitRequestPartition(partition_index=number, committed_offset=1, committed_metadata="")
        for number in (0, 7)
    ]
    return OffsetCommitRequest(
        group_id=GROUP,
        generation_id_or_member_epoch=9 if member_id else -1,
        member_id=member_id,
        topics=[OffsetCommitRequestTopic(name=name, partitions=partitions) for name in NAMES],
    )


def fetch_offsets(side: Side, version: int) -> OffsetFetchRequest:
    if version < 8:
        topics = [OffsetFetchRequestTopic(name=name, partition_indexes=[0, 7]) for name in NAMES]
        return OffsetFetchRequest(group_id=GROUP, topics=topics)
    wanted = [OffsetFetchRequestTopics(name=name, partition_indexes=[0, 7]) for name in NAMES]
    return OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=name, topics=wanted) for name in (GROUP, OTHER_GROUP)]
    )


def fetch_offsets_by_id(side: Side, version: int) -> OffsetFetchRequest:
    ids = [*map(side.topic_id, TOPICS), UNKNOWN_ID]
    wanted = [OffsetFetchRequestTopics(topic_id=topic_id, partition_indexes=[0, 7]) for topic_id in ids]
    return OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=name, topics=wanted) for name in (GROUP, OTHER_GROUP)]
    )


def fetch_all_offsets(side: Side, version: int) -> OffsetFetchRequest:
    if version < 8:
        return OffsetFetchRequest(group_id=GROUP, topics=None)
    return OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=name, topics=None) for name in (GROUP, OTHER_GROUP)]
    )


def delete_offsets(side: Side, version: int) -> OffsetDeleteRequest:
    partitions = [OffsetDeleteRequestPartition(partition_index=number) for number in (0, 7)]
    topics = [OffsetDeleteRequestTopic(name=name, partitions=partitions) for name in NAMES]
    return OffsetDeleteRequest(group_id="doomed", topics=topics)


def _have_doomed(side: Side) -> None:
    side.have_group("doomed")


# Transactions


def init_a_transaction(side: Side, version: int) -> InitProducerIdRequest:
    return InitProducerIdRequest(transactional_id=TRANSACTION, transaction_timeout_ms=60_000)


def add_partitions(side: Side, version: int) -> AddPartitionsToTxnRequest:
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=TRANSACTION,
        v3_and_below_producer_id=987_654,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=name, partitions=[0]) for name in NAMES],
    )


def add_known_partitions(side: Side, version: int) -> AddPartitionsToTxnRequest:
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=TRANSACTION,
        v3_and_below_producer_id=987_654,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name="orders", partitions=[0])],
    )


def verify_partitions(side: Side, version: int) -> AddPartitionsToTxnRequest:
    topics = [AddPartitionsToTxnTopic(name=name, partitions=[0]) for name in NAMES]
    return AddPartitionsToTxnRequest(
        transactions=[
            AddPartitionsToTxnTransaction(transactional_id=name, verify_only=True, topics=topics, **_NO_PRODUCER)
            for name in FINISHED
        ]
    )


def add_offsets(side: Side, version: int) -> AddOffsetsToTxnRequest:
    return AddOffsetsToTxnRequest(transactional_id=TRANSACTION, group_id=GROUP, **_NO_PRODUCER)


def end(side: Side, version: int) -> EndTxnRequest:
    return EndTxnRequest(transactional_id=TRANSACTION, committed=True, **_NO_PRODUCER)


def commit_offsets_in_a_transaction(side: Side, version: int) -> TxnOffsetCommitRequest:
    # Of a member, from the version on that has it; below it, of partitions that are not there.
    member = {"generation_id": 9, "member_id": "stranger"} if version >= 3 else {}
    partitions = [
        TxnOffsetCommitRequestPartition(partition_index=number, committed_offset=1, committed_metadata="")
        for number in ((0, 7) if member else (7,))
    ]
    topics = [TxnOffsetCommitRequestTopic(name=name, partitions=partitions) for name in NAMES]
    return TxnOffsetCommitRequest(transactional_id=TRANSACTION, group_id=GROUP, topics=topics, **_NO_PRODUCER, **member)


def describe_transactions(side: Side, version: int) -> DescribeTransactionsRequest:
    return DescribeTransactionsRequest(transactional_ids=[*RUNNING, "none", "hidden-none"])


def list_transactions(side: Side, version: int) -> ListTransactionsRequest:
    return ListTransactionsRequest()


def write_markers(side: Side, version: int) -> WriteTxnMarkersRequest:
    topics = [WritableTxnMarkerTopic(name=name, partition_indexes=[0]) for name in ("missing", "hidden")]
    return WriteTxnMarkersRequest(markers=[WritableTxnMarker(topics=topics, **_NO_PRODUCER)])


_READ, _WRITE, _DESCRIBE, _DELETE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.DELETE
_MEMBER = (group(_READ, GROUP),)
_OFFSETS = (group(_READ, GROUP), topic(_READ, *GIVEN))
_DESCRIBED_OFFSETS = (group(_DESCRIBE, GROUP), topic(_DESCRIBE, *GIVEN))
_TRANSACTION = transactional_id(_WRITE, TRANSACTION)
_ACTION, _ALTER = cluster(AclOperation.CLUSTER_ACTION), cluster(AclOperation.ALTER)

QUESTIONS = (
    Question(ApiKey.FIND_COORDINATOR, find_a_groups_coordinator, (group(_DESCRIBE, GROUP),)),
    Question(
        ApiKey.FIND_COORDINATOR, find_a_transactions_coordinator, (transactional_id(_DESCRIBE, TRANSACTION),), first=1
    ),
    Question(ApiKey.FIND_COORDINATOR, find_a_share_coordinator, (_ACTION,), first=6),
    Question(ApiKey.JOIN_GROUP, join, _MEMBER),
    Question(ApiKey.SYNC_GROUP, sync, _MEMBER),
    Question(ApiKey.HEARTBEAT, heartbeat, _MEMBER),
    Question(ApiKey.LEAVE_GROUP, leave, _MEMBER),
    Question(ApiKey.DESCRIBE_GROUPS, describe_groups, (group(_DESCRIBE, GROUP, "no-group"),)),
    Question(ApiKey.LIST_GROUPS, list_groups, (cluster(_DESCRIBE),)),
    Question(ApiKey.LIST_GROUPS, list_groups, (group(_DESCRIBE, GROUP),)),
    Question(ApiKey.DELETE_GROUPS, delete_groups, (group(_DELETE, "doomed", "no-group"),), prepare=_have_doomed),
    Question(ApiKey.OFFSET_COMMIT, commit_offsets, _OFFSETS, last=9),
    Question(ApiKey.OFFSET_COMMIT, commit_offsets_as_a_member, _OFFSETS, last=9),
    Question(ApiKey.OFFSET_COMMIT, commit_offsets_by_id, _OFFSETS, first=10),
    # Version 1 has no place for a group's error: Apache leaves all partitions out, ours gives each
    # the error.
    Question(ApiKey.OFFSET_FETCH, fetch_offsets, _DESCRIBED_OFFSETS, first=2, last=9),
    Question(ApiKey.OFFSET_FETCH, fetch_offsets_by_id, _DESCRIBED_OFFSETS, first=10),
    Question(ApiKey.OFFSET_FETCH, fetch_all_offsets, _DESCRIBED_OFFSETS, first=2),
    Question(
        ApiKey.OFFSET_DELETE, delete_offsets, (group(_DELETE, "doomed"), topic(_READ, *GIVEN)), prepare=_have_doomed
    ),
    Question(ApiKey.INIT_PRODUCER_ID, init_a_transaction, (_TRANSACTION,)),
    Question(ApiKey.ADD_PARTITIONS_TO_TXN, add_partitions, (_TRANSACTION, topic(_WRITE, *GIVEN)), last=3),
    Question(ApiKey.ADD_PARTITIONS_TO_TXN, add_known_partitions, (_TRANSACTION, topic(_WRITE, "orders")), last=3),
    Question(ApiKey.ADD_PARTITIONS_TO_TXN, verify_partitions, (_ACTION,), first=4),
    Question(ApiKey.ADD_OFFSETS_TO_TXN, add_offsets, (_TRANSACTION, group(_READ, GROUP))),
    Question(ApiKey.END_TXN, end, (_TRANSACTION,)),
    Question(
        ApiKey.TXN_OFFSET_COMMIT,
        commit_offsets_in_a_transaction,
        (_TRANSACTION, group(_READ, GROUP), topic(_READ, *GIVEN)),
    ),
    Question(
        ApiKey.DESCRIBE_TRANSACTIONS,
        describe_transactions,
        (transactional_id(_DESCRIBE, "running", "none"), topic(_DESCRIBE, "orders")),
    ),
    Question(ApiKey.LIST_TRANSACTIONS, list_transactions, (transactional_id(_DESCRIBE, "running"),)),
    Question(ApiKey.WRITE_TXN_MARKERS, write_markers, (_ACTION,)),
    Question(ApiKey.WRITE_TXN_MARKERS, write_markers, (_ALTER,)),
)
