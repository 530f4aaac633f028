"""Well-formed requests about transactions, of an attacker with a plain socket, with lists as long
as requests may be; see `test_hostile_requests`.

Some are a producer's own, in a transaction: all partitions of a wide topic, and the end of a
transaction that has them. ``BARNABAS_PARTITIONS`` is how many these are.
"""

from collections.abc import Callable, Iterator, Sequence
from os import environ
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from barnabas.client.admin.topics import create_topic
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.messages import describe_producers
from barnabas.wire.kafka.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from barnabas.wire.kafka.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from barnabas.wire.kafka.messages.describe_transactions import DescribeTransactionsRequest
from barnabas.wire.kafka.messages.end_txn import EndTxnRequest
from barnabas.wire.kafka.messages.find_coordinator import FindCoordinatorRequest
from barnabas.wire.kafka.messages.init_producer_id import InitProducerIdRequest
from barnabas.wire.kafka.messages.list_transactions import ListTransactionsRequest
from barnabas.wire.kafka.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from barnabas.wire.kafka.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from barnabas.wire.kafka.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from support.long_requests import IS_TRIAL, NAMES, LongRequests
from support.raw import ask
from support.stalls import Stalls, one_broker
from support.waiting import eventually

pytestmark = [pytest.mark.fault]

PARTITIONS = int(environ.get("BARNABAS_PARTITIONS", "300"))
GROUP, TRANSACTION = 0, 1
INDEXES = range(NAMES)
LOOKED_FOR = [f"none-{number}" for number in INDEXES]
LONG = "n" * 30_000
OFFSETS_GROUP = "g"

Row = tuple[str, Any, int]
"""A name, a message and its version."""


class Sender(NamedTuple):
    """A transactional producer."""

    transactional_id: str
    producer_id: int
    epoch: int


def initialised(port: int, transactional_id: str) -> Sender:
    """A producer that may begin a transaction."""
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=600_000)
    answers: list[Any] = []

    def is_initialised() -> bool:
        ask(port, FindCoordinatorRequest(key=transactional_id, key_type=TRANSACTION), 3)
        answers.append(ask(port, request, 4))
        return not answers[-1].error_code

    eventually(is_initialised, what="the producer has an id")
    return Sender(transactional_id, answers[-1].producer_id, answers[-1].producer_epoch)


def adding(sender: Sender, topics: Sequence[tuple[str, Sequence[int]]]) -> AddPartitionsToTxnRequest:
    """AddPartitionsToTxn of a producer."""
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=sender.transactional_id,
        v3_and_below_producer_id=sender.producer_id,
        v3_and_below_producer_epoch=sender.epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=name, partitions=list(some)) for name, some in topics],
    )


def asking(ids: Sequence[str], *, verify_only: bool) -> AddPartitionsToTxnRequest:
    """AddPartitionsToTxn of a broker, for many producers."""
    topics = [AddPartitionsToTxnTopic(name="used", partitions=[0])]
    return AddPartitionsToTxnRequest(
        transactions=[
            AddPartitionsToTxnTransaction(
                transactional_id=each, producer_id=number, producer_epoch=0, verify_only=verify_only, topics=topics
            )
            for number, each in enumerate(ids)
        ]
    )


def committing(
    sender: Sender, topics: Sequence[tuple[str, Sequence[int]]], metadata: str = ""
) -> TxnOffsetCommitRequest:
    """TxnOffsetCommit of a producer."""
    partition = TxnOffsetCommitRequestPartition
    return TxnOffsetCommitRequest(
        transactional_id=sender.transactional_id,
        group_id=OFFSETS_GROUP,
        producer_id=sender.producer_id,
        producer_epoch=sender.epoch,
        topics=[
            TxnOffsetCommitRequestTopic(
                name=name,
                partitions=[
                    partition(partition_index=number, committed_offset=1, committed_metadata=metadata)
                    for number in numbers
                ],
            )
            for name, numbers in topics
        ],
    )


def marking(producer_ids: Sequence[int], topics: Sequence[tuple[str, Sequence[int]]]) -> WriteTxnMarkersRequest:
    """WriteTxnMarkers, with the same topics for each producer."""
    named = [WritableTxnMarkerTopic(name=name, partition_indexes=list(some)) for name, some in topics]
    return WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(
                producer_id=each, producer_epoch=0, transaction_result=True, topics=named, coordinator_epoch=0
            )
            for each in producer_ids
        ]
    )


def features(names: Sequence[str]) -> UpdateFeaturesRequest:
    """UpdateFeatures to level 1."""
    return UpdateFeaturesRequest(
        feature_updates=[FeatureUpdateKey(feature=name, max_version_level=1) for name in names], timeout_ms=60_000
    )


def of_strangers(sender: Sender) -> Iterator[Row]:
    """What changes nothing of others. ``sender`` is a producer without a transaction."""
    halves, thirds = INDEXES[: NAMES // 2], LOOKED_FOR[: NAMES // 3]
    yield "AddPartitionsToTxn, partitions that are not there", adding(sender, [("used", INDEXES)]), 3
    yield "AddPartitionsToTxn, one partition again and again", adding(sender, [("used", [7] * NAMES)]), 3
    yield "AddPartitionsToTxn, a topic for each partition", adding(sender, [("used", [each]) for each in halves]), 3
    yield "AddPartitionsToTxn, topics that are not there", adding(sender, [(each, [0]) for each in thirds]), 3
    yield "AddPartitionsToTxn, very many transactions", asking(thirds, verify_only=False), 5
    yield "AddPartitionsToTxn, very many questions", asking(thirds, verify_only=True), 4
    yield "AddPartitionsToTxn, one transaction again and again", asking(["till"] * (NAMES // 3), verify_only=True), 5
    yield "TxnOffsetCommit, partitions that are not there", committing(sender, [("used", INDEXES)]), 3
    yield "TxnOffsetCommit, without a transaction", committing(sender, [("used", [0] * NAMES)]), 4
    yield "TxnOffsetCommit, topics that are not there", committing(sender, [(each, [0]) for each in thirds]), 3
    yield "TxnOffsetCommit, topics without partitions", committing(sender, [(each, []) for each in LOOKED_FOR]), 3
    yield "TxnOffsetCommit, metadata", committing(sender, [("used", [0] * min(NAMES // 4, 4000))], "m" * 4000), 3
    yield "WriteTxnMarkers, partitions that are not there", marking([99], [("used", INDEXES)]), 1
    yield "WriteTxnMarkers, one partition again and again", marking([99], [("used", [0] * NAMES)]), 1
    yield "WriteTxnMarkers, topics that are not there", marking([99], [(each, [0]) for each in thirds]), 1
    yield "WriteTxnMarkers, producers without topics", marking(INDEXES, []), 1
    yield "WriteTxnMarkers, very many producers", marking(range(1000, 1000 + NAMES // 10), [("used", [0])]), 1
    yield "DescribeTransactions", DescribeTransactionsRequest(transactional_ids=LOOKED_FOR), 0
    yield (
        "DescribeTransactions, one again and again",
        DescribeTransactionsRequest(transactional_ids=["till"] * NAMES),
        0,
    )
    yield "ListTransactions, states", ListTransactionsRequest(state_filters=LOOKED_FOR), 1
    yield "ListTransactions, producers", ListTransactionsRequest(producer_id_filters=list(INDEXES)), 1
    yield "UpdateFeatures", features(LOOKED_FOR), 1
    yield "UpdateFeatures, one again and again", features(["none"] * NAMES), 1
    yield "UpdateFeatures, names of 30,000 characters", features([f"{LONG}{each}" for each in INDEXES[:300]]), 1
    yield (
        "InitProducerId, an id of 30,000 characters",
        InitProducerIdRequest(transactional_id=LONG, transaction_timeout_ms=60_000),
        4,
    )
    yield (
        "AddOffsetsToTxn, ids of 30,000 characters",
        AddOffsetsToTxnRequest(transactional_id=LONG, producer_id=1, producer_epoch=0, group_id=LONG),
        3,
    )
    yield (
        "EndTxn, an id of 30,000 characters",
        EndTxnRequest(transactional_id=LONG, producer_id=1, producer_epoch=0, committed=True),
        4,
    )
    yield (
        "DescribeProducers, a name of 30,000 characters",
        describe_producers.DescribeProducersRequest(
            topics=[describe_producers.TopicRequest(name=LONG, partition_indexes=list(INDEXES))]
        ),
        0,
    )
    # Begins a transaction without partitions, so it is the last.
    yield "AddPartitionsToTxn, topics without partitions", adding(sender, [(each, []) for each in LOOKED_FOR]), 3


def transact(requests: LongRequests, stalls: Stalls, port: int) -> None:
    """A transaction in all partitions of a topic, with offsets for all, until it has ended."""
    sender, wide = initialised(port, "wide"), [("wide", range(PARTITIONS))]
    added = requests.send("AddPartitionsToTxn, a wide topic", adding(sender, wide), 3)
    codes = {each.partition_error_code for each in added.results_by_topic_v3_and_below[0].results_by_partition}
    assert codes == {ErrorCode.NONE}
    again = requests.send("AddPartitionsToTxn, a wide topic again", adding(sender, wide), 3)
    assert again == added
    group = AddOffsetsToTxnRequest(
        transactional_id=sender.transactional_id,
        producer_id=sender.producer_id,
        producer_epoch=sender.epoch,
        group_id=OFFSETS_GROUP,
    )
    assert requests.send("AddOffsetsToTxn", group, 3).error_code == ErrorCode.NONE
    committed = requests.send("TxnOffsetCommit, a wide topic", committing(sender, wide), 3)
    assert {each.error_code for each in committed.topics[0].partitions} == {ErrorCode.NONE}
    described = DescribeTransactionsRequest(transactional_ids=[sender.transactional_id])
    (state,) = requests.send("DescribeTransactions, a wide topic", described, 0).transaction_states
    assert [len(topic.partitions) for topic in state.topics if topic.topic == "wide"] == [PARTITIONS]

    def end() -> None:
        message = EndTxnRequest(
            transactional_id=sender.transactional_id,
            producer_id=sender.producer_id,
            producer_epoch=sender.epoch,
            committed=True,
        )
        assert ask(port, message, 4).error_code == ErrorCode.NONE
        eventually(
            lambda: ask(port, described, 0).transaction_states[0].transaction_state == "CompleteCommit",
            what="all markers are written",
        )

    stalls.during("EndTxn, a wide topic, until its last marker", end)


def test_requests_about_transactions_with_the_longest_lists_do_not_stall_a_broker(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """Each API with a list gets one as long as can be, of strangers and of a producer."""
    with one_broker(tmp_path) as (stalls, admin, port):
        create_topic(admin, "used", partitions=3, replication_factor=1)
        create_topic(admin, "wide", partitions=PARTITIONS, replication_factor=1)
        eventually(lambda: ask(port, FindCoordinatorRequest(key=OFFSETS_GROUP, key_type=GROUP), 2).error_code == 0)
        requests = LongRequests(stalls, port)
        sender = initialised(port, "till")
        for row in of_strangers(sender):
            requests.send(*row)
        transact(requests, stalls, port)
        (state,) = ask(port, DescribeTransactionsRequest(transactional_ids=["till"]), 0).transaction_states
        assert (state.transaction_state, state.topics) == ("Ongoing", [])
        for number, row in enumerate(stalls.rows):
            record_property(f"{number:02}", row)
        assert requests.kept == []
        # A slow machine is late for no fault of the broker's: only trials count time.
        assert stalls.late == [] or not IS_TRIAL
