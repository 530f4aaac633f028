"""The queues of markers: by leader, through failures, and for deleted partitions."""

from collections.abc import Sequence

import pytest

from barnabas.base.ids import NO_BROKER, TopicPartition
from barnabas.base.tasks import done_here
from barnabas.broker.transactions.effects import Completion
from barnabas.broker.transactions.markers import Marker, MarkerQueues, request_of
from barnabas.broker.transactions.queries import describe_transaction
from barnabas.broker.transactions.transaction import Partitions
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)
from support.transactions import Coordinated

PARTITIONS = {"a": frozenset({0, 1, 2}), "b": frozenset({0})}


class Queued:
    """Queues of markers over a coordinator, with leaders that a test sets."""

    def __init__(self) -> None:
        self.broker = Coordinated()
        self.leaders: dict[TopicPartition, int | None] = {}
        self.queues = MarkerQueues(lambda each: self.leaders.get(each, 0), self.broker.coordinator.is_wanted)

    def ended(self, name: str = "t", partitions: Partitions = PARTITIONS, *, committed: bool = True) -> Completion:
        """A transaction that is decided, not queued."""
        sender = self.broker.producer(name)
        self.broker.begun(sender, partitions)
        self.broker.end(sender, committed=committed)
        self.broker.written()
        return self.broker.completions.popleft()

    def add(self, completion: Completion) -> bool:
        return done_here(self.queues.add(completion))

    def answer(self, markers: Sequence[Marker], **errors: ErrorCode) -> list[Completion]:
        """Answer a request; ``errors`` by topic and partition (a_1), NONE for the others."""
        results = [
            WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=[
                            WritableTxnMarkerPartitionResult(
                                partition_index=index, error_code=errors.get(f"{topic.name}_{index}", ErrorCode.NONE)
                            )
                            for index in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in request_of(markers).markers
        ]
        return self.take_answer(markers, WriteTxnMarkersResponse(markers=results))

    def take_answer(self, markers: Sequence[Marker], response: WriteTxnMarkersResponse) -> list[Completion]:
        return done_here(self.queues.answered(list(markers), response))


def test_markers_go_to_the_leaders_of_their_partitions() -> None:
    """Each in one request, of all transactions."""
    test = Queued()
    test.leaders = {TopicPartition("a", 1): 4}
    first, second = test.ended("t"), test.ended("u", {"a": frozenset({1})}, committed=False)
    assert [test.add(first), test.add(second)] == [False, False]
    assert sorted(test.queues.brokers) == [0, 4]
    assert test.queues.counts() == {0: 3, 4: 2}
    request = request_of(test.queues.take(4))
    assert [(each.producer_id, each.transaction_result) for each in request.markers] == [
        (first.transaction.producer_id, True),
        (second.transaction.producer_id, False),
    ]
    assert [[(topic.name, topic.partition_indexes) for topic in each.topics] for each in request.markers] == [
        [("a", [1])],
        [("a", [1])],
    ]
    assert test.queues.brokers == [0]


def test_transaction_is_done_when_its_last_partition_has_its_marker() -> None:
    """And once."""
    test = Queued()
    test.leaders = {TopicPartition("a", 1): 4}
    completion = test.ended()
    test.add(completion)
    assert test.answer(test.queues.take(0)) == []
    markers = test.queues.take(4)
    assert test.answer(markers) == [completion]
    assert test.answer(markers) == []


@pytest.mark.parametrize(
    "error",
    [
        *(ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_ENOUGH_REPLICAS),
        *(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.KAFKA_STORAGE_ERROR),
        *(ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
    ],
)
def test_marker_that_failed_goes_to_the_leader_of_later(error: ErrorCode) -> None:
    """The others are not written again."""
    test = Queued()
    completion = test.ended()
    test.add(completion)
    assert test.answer(test.queues.take(0), a_1=error) == []
    assert test.queues.has_waiting
    assert test.queues.counts() == {NO_BROKER: 1}
    test.leaders = {TopicPartition("a", 1): 9}
    assert done_here(test.queues.requeue()) == []
    markers = test.queues.take(9)
    assert [(marker.topic, marker.numbers) for marker in markers] == [("a", frozenset({1}))]
    assert test.answer(markers) == [completion]


def test_request_without_an_answer_is_sent_again() -> None:
    """Whether it was written is not known."""
    test = Queued()
    completion = test.ended()
    test.add(completion)
    test.queues.failed(test.queues.take(0))
    assert done_here(test.queues.requeue()) == []
    assert test.answer(test.queues.take(0)) == [completion]


def test_marker_waits_for_a_leader() -> None:
    """A partition without one is not given up."""
    test = Queued()
    test.leaders = {TopicPartition("b", 0): NO_BROKER}
    completion = test.ended()
    test.add(completion)
    assert test.answer(test.queues.take(0)) == []
    assert done_here(test.queues.requeue()) == []
    assert test.queues.has_waiting
    test.leaders.clear()
    done_here(test.queues.requeue())
    assert test.answer(test.queues.take(0)) == [completion]


def test_deleted_partitions_need_no_marker() -> None:
    """A transaction of nothing else is done at once."""
    test = Queued()
    test.leaders = {TopicPartition("b", 0): None}
    gone = test.ended("gone", {"b": frozenset({0})})
    assert test.add(gone)
    left = test.ended("left")
    assert not test.add(left)
    assert test.answer(test.queues.take(0)) == [left]


def test_partition_deleted_while_its_marker_waits_needs_none() -> None:
    """The transaction is done then."""
    test = Queued()
    test.leaders = {TopicPartition("b", 0): NO_BROKER}
    completion = test.ended("t", {"b": frozenset({0})})
    test.add(completion)
    test.leaders = {TopicPartition("b", 0): None}
    assert done_here(test.queues.requeue()) == [completion]
    assert done_here(test.queues.requeue()) == []


@pytest.mark.parametrize("error", [ErrorCode.TRANSACTION_COORDINATOR_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH])
def test_later_coordinator_ends_the_work(error: ErrorCode) -> None:
    """Nothing more is sent, and nothing is completed here."""
    test = Queued()
    test.leaders = {TopicPartition("b", 0): 4}
    completion = test.ended()
    test.add(completion)
    assert test.answer(test.queues.take(0), a_0=error) == []
    assert test.queues.take(4) == []
    assert not test.queues.has_waiting
    assert completion.is_cancelled


def test_markers_of_a_partition_that_was_lost_are_dropped() -> None:
    """The next coordinator writes them."""
    test = Queued()
    completion = test.ended()
    test.add(completion)
    taken = test.queues.take(0)
    test.queues.failed(taken)
    test.broker.load_log(3)
    assert test.answer(taken) == []
    assert done_here(test.queues.requeue()) == []
    assert not test.queues.brokers


def test_answer_that_leaves_partitions_out_is_no_success() -> None:
    """They are asked for again."""
    test = Queued()
    completion = test.ended()
    test.add(completion)
    assert test.take_answer(test.queues.take(0), WriteTxnMarkersResponse(markers=[])) == []
    assert test.queues.counts() == {NO_BROKER: 4}


def test_large_queue_is_sent_in_parts() -> None:
    """A request has some 5,000 partitions."""
    test = Queued()
    partitions = {f"t{number}": frozenset(range(1_000)) for number in range(12)}
    test.add(test.ended("t", partitions))
    sizes = []
    while test.queues.brokers:
        sizes.append(sum(len(marker.numbers) for marker in test.queues.take(0)))
    assert sizes == [5_000, 5_000, 2_000]


def test_many_topics_are_queued_and_sent_in_parts() -> None:
    """A topic costs more than a partition, and a transaction may have thousands."""
    test = Queued()
    completion = test.ended("t", {f"t{number}": frozenset({0}) for number in range(2_500)})
    assert len(list(test.queues.add(completion))) >= 2_500
    requests = []
    while test.queues.brokers:
        requests.append(test.queues.take(0))
    assert [len(markers) for markers in requests] == [1_000, 1_000, 500]
    assert [test.answer(markers) for markers in requests] == [[], [], [completion]]


def test_written_markers_leave_the_record_of_the_decision_as_it_is() -> None:
    """A transaction loses its partitions one by one; what was stored, and is described meanwhile,
    does not."""
    test = Queued()
    completion = test.ended()
    _, stored = test.broker.log[-1]
    assert stored is not None
    described = describe_transaction(test.broker.coordinator, "t")
    next(described)
    for topic, numbers in PARTITIONS.items():
        completion.transaction.remove_partitions(topic, numbers)
    assert completion.transaction.partitions == {}
    assert stored.partitions == PARTITIONS
    assert {each.topic for each in done_here(described).topics} == PARTITIONS.keys()


def test_marker_request_says_who_decided() -> None:
    """Epochs of producer and coordinator let leaders refuse what is old."""
    test = Queued()
    test.broker.load(7)
    completion = test.ended()
    test.add(completion)
    (marker,) = request_of(test.queues.take(0)).markers
    assert (marker.producer_epoch, marker.coordinator_epoch, marker.transaction_version) == (0, 7, 0)
