"""The transaction service on a real log: appends, loading, markers, hand-over, time."""

from collections.abc import Callable
from pathlib import Path

import pytest

from barnabas.base.ids import TopicPartition
from barnabas.broker.metadata.internal_topics import TRANSACTIONS_TOPIC
from barnabas.broker.transactions.effects import ProducerAnswer
from barnabas.wire.kafka.errors import ErrorCode
from support.slicing import thread_at_once
from support.transaction_broker import PARTITIONS, TransactionBroker

PART = {"a": frozenset({0, 1, 2})}


@pytest.fixture
def new_broker(tmp_path: Path) -> Callable[..., TransactionBroker]:
    return lambda **settings: TransactionBroker(tmp_path, settings)


@pytest.fixture
def broker(new_broker: Callable[..., TransactionBroker]) -> TransactionBroker:
    made = new_broker()
    made.load()
    return made


def committed(broker: TransactionBroker, sender_id: str = "t", partitions: dict[str, frozenset[int]] = PART) -> None:
    sender = broker.producer(sender_id)
    assert broker.add(sender, partitions) == [ErrorCode.NONE]
    assert [each.error for each in broker.end(sender)] == [ErrorCode.NONE]


def test_transaction_goes_through_all_states(broker: TransactionBroker) -> None:
    """Its markers go to the leaders of its partitions, and its last record follows."""
    committed(broker)
    assert broker.state() == "PrepareCommit"
    broker.work()
    assert broker.state() == "CompleteCommit"
    assert sorted(
        (broker_id, [(topic.name, topic.partition_indexes) for topic in request.markers[0].topics])
        for broker_id, request in broker.markers.sent
    ) == [(0, [("a", [0, 1])]), (1, [("a", [2])])]


def test_records_are_in_the_partition_of_the_transactional_id(broker: TransactionBroker) -> None:
    """One for each change, and nothing elsewhere."""
    committed(broker)
    broker.work()
    values = broker.values()
    assert [value[16] for value in values if value is not None] == [0, 1, 2, 4]
    number = broker.transactions.partition_for("t")
    others = [TopicPartition(TRANSACTIONS_TOPIC, other) for other in range(PARTITIONS) if other != number]
    assert [broker.replicas.partition(other).log.log_end_offset for other in others] == [0, 0]


def test_requests_before_the_topic_is_led_here_are_refused(new_broker: Callable[..., TransactionBroker]) -> None:
    """The producer looks for its coordinator again."""
    assert new_broker().init() == [ProducerAnswer(ErrorCode.NOT_COORDINATOR)]


def test_stopped_service_refuses_everything(broker: TransactionBroker) -> None:
    """And sends no markers."""
    committed(broker)
    broker.transactions.stop()
    assert broker.init() == [ProducerAnswer(ErrorCode.COORDINATOR_NOT_AVAILABLE)]
    broker.work()
    assert not broker.markers.sent


def test_new_producer_id_is_waited_for(broker: TransactionBroker) -> None:
    """A block of ids may have to be claimed first."""
    broker.ids.is_empty = True
    assert broker.init() == [ProducerAnswer(ErrorCode.NONE, 501, 0)]


def test_next_coordinator_knows_what_was_written(broker: TransactionBroker) -> None:
    """It completes what was decided, with its own epoch."""
    broker.markers.fails = [True] * 2
    committed(broker)
    broker.work()
    broker.markers.sent.clear()
    broker.load(leader=1, epoch=1, replicas=(0, 1))
    assert broker.init() == [ProducerAnswer(ErrorCode.NOT_COORDINATOR)]
    broker.load(epoch=2)
    broker.work()
    assert broker.state() == "CompleteCommit"
    assert {request.markers[0].coordinator_epoch for _, request in broker.markers.sent} == {2}


def test_transactions_are_served_when_all_in_sync_replicas_have_them(broker: TransactionBroker) -> None:
    """A follower that lacks the decision might lead next: it has no markers before."""
    sender = broker.producer()
    broker.add(sender, PART)
    broker.load(epoch=1, replicas=(0, 1))
    assert broker.end(sender) == []
    broker.load(leader=1, epoch=2, replicas=(0, 1))
    broker.load(epoch=3, replicas=(0, 1))
    assert broker.init() == [ProducerAnswer(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)]
    broker.timers.advance(500)
    assert not broker.markers.sent
    broker.follower_reads()
    assert broker.markers.sent


def test_decision_has_markers_when_all_in_sync_replicas_have_it(broker: TransactionBroker) -> None:
    """Not before the producer is answered."""
    sender = broker.producer()
    broker.add(sender, PART)
    broker.load(epoch=1, replicas=(0, 1))
    answers = broker.end(sender)
    broker.work()
    assert (answers, broker.markers.sent) == ([], [])
    broker.follower_reads()
    assert [each.error for each in answers] == [ErrorCode.NONE]
    broker.work()
    assert broker.markers.sent


def test_marker_is_sent_again_after_a_broken_connection(broker: TransactionBroker) -> None:
    """After a pause."""
    broker.markers.fails = [True, True]
    committed(broker)
    broker.work()
    assert broker.state() == "PrepareCommit"
    broker.timers.advance(100)
    broker.work()
    assert broker.state() == "CompleteCommit"


def test_marker_follows_its_leader(broker: TransactionBroker) -> None:
    """The metadata say where the partition is led by now."""
    broker.markers.codes = {TopicPartition("a", 2): ErrorCode.NOT_LEADER_OR_FOLLOWER}
    committed(broker)
    broker.work()
    broker.markers.codes.clear()
    broker.markers.sent.clear()
    broker.know("a", 0, 0, 2)
    broker.work()
    assert [broker_id for broker_id, _ in broker.markers.sent] == [2]
    assert broker.state() == "CompleteCommit"


def test_deleted_topic_does_not_hold_a_transaction(broker: TransactionBroker) -> None:
    """Its partitions need no markers."""
    sender = broker.producer()
    broker.add(sender, PART)
    broker.know("a", -2, -2, -2)
    broker.end(sender)
    assert broker.state() == "CompleteCommit"
    assert not broker.markers.sent


def test_transaction_past_its_timeout_is_aborted(broker: TransactionBroker) -> None:
    """By the timer, without a request."""
    sender = broker.producer(timeout_ms=30_000)
    broker.add(sender, PART)
    for _ in range(4):
        broker.timers.advance(10_000)
    broker.work()
    assert broker.state() == "CompleteAbort"
    assert broker.markers.sent[0][1].markers[0].transaction_result is False


def test_many_transactions_share_a_request(broker: TransactionBroker) -> None:
    """What is decided while a request is on its way is sent together."""
    for number in range(20):
        committed(broker, f"t{number}", {"a": frozenset({0})})
    broker.work()
    assert len(broker.markers.sent) <= 5
    assert {broker.state(f"t{number}") for number in range(20)} == {"CompleteCommit"}


def test_expired_transactional_id_is_gone_after_a_load(new_broker: Callable[..., TransactionBroker]) -> None:
    """Its tombstone is in the log."""
    broker = new_broker(**{"transactional.id.expiration.ms": "1000"})
    broker.load()
    broker.producer("old")
    broker.timers.advance(3_600_000)
    assert broker.state("old") == ""
    broker.load(leader=1, epoch=1, replicas=(0, 1))
    broker.load(epoch=2)
    assert broker.state("old") == ""


def neighbour(broker: TransactionBroker, transactional_id: str = "t") -> str:
    """Another transactional id in the same partition."""
    number = broker.transactions.partition_for(transactional_id)
    return next(each for each in map(str, range(100)) if broker.transactions.partition_for(each) == number)


def test_deadlines_are_looked_at_again_after_an_error(
    broker: TransactionBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """After a pause, also when requests come meanwhile; only what has failed is skipped."""
    names = neighbour(broker), "t"
    for name in names:
        broker.add(broker.producer(name, timeout_ms=5_000), PART)
    broken = broker.transactions.coordinator.find(names[0])
    assert broken is not None
    broken.start_ms = None  # type: ignore[assignment]  # an error that no code expects
    for _ in range(10):
        broker.timers.advance(1_000)
    for _ in range(2):
        assert [record.levelname for record in caplog.records].count("ERROR") == 1
        assert broker.state() == "Ongoing"
        broker.producer("other")
        broker.timers.advance(0)
    broker.timers.advance(1_000)
    broker.work()
    assert broker.state() == "CompleteAbort"


def test_large_record_is_encoded_in_a_thread_and_what_follows_stays_behind_it(broker: TransactionBroker) -> None:
    """The loop is free meanwhile; the order of decisions is that of the log."""
    sender, threads = broker.producer(), []
    broker.in_thread = lambda *work: threads.append(work)
    answers = broker.add(sender, {"a": frozenset(range(5_000))})
    behind = broker.init(neighbour(broker))
    assert (answers, behind, len(broker.values())) == ([], [], 1)
    ((work, done),) = threads
    thread_at_once(work, done)
    assert (answers, [each.error for each in behind]) == ([ErrorCode.NONE], [ErrorCode.NONE])
    assert [len(value or b"") > 20_000 for value in broker.values()] == [False, True, False]
    assert broker.state() == "Ongoing"


def test_record_that_was_encoded_while_its_partition_was_lost_is_not_written(broker: TransactionBroker) -> None:
    """Also where this broker has loaded the partition again: it has decided by what was in the log
    then."""
    sender, threads = broker.producer(), []
    broker.in_thread = lambda *work: threads.append(work)
    answers = broker.add(sender, {"a": frozenset(range(5_000))})
    broker.in_thread = thread_at_once
    broker.load(leader=1, epoch=1, replicas=(0, 1))
    broker.load(epoch=2)
    ((work, done),) = threads
    thread_at_once(work, done)
    assert answers == [ErrorCode.NOT_COORDINATOR]
    assert (len(broker.values()), broker.state()) == (1, "Empty")


def test_transaction_with_very_many_partitions_is_loaded(broker: TransactionBroker) -> None:
    """Its record is decoded in a thread."""
    sender = broker.producer()
    assert broker.add(sender, {"a": frozenset(range(50_000))}) == [ErrorCode.NONE]
    threads = []
    broker.in_thread = lambda work, done: (threads.append(work), thread_at_once(work, done))
    broker.load(leader=1, epoch=1, replicas=(0, 1))
    broker.load(epoch=2)
    assert "_make" in {getattr(getattr(each, "func", None), "__name__", "") for each in threads}
    assert broker.state() == "Ongoing"
    assert [each.error for each in broker.end(sender)] == [ErrorCode.NONE]
    broker.work()


def test_record_that_is_too_large_fails_its_request(broker: TransactionBroker) -> None:
    """The producer is answered, and the transaction is as it was."""
    broker.know("b" * 200, *[0] * 10)
    sender = broker.producer()
    partitions = {"a": frozenset(range(300_000))}
    assert broker.add(sender, partitions) == [ErrorCode.UNKNOWN_SERVER_ERROR]
    assert broker.state() == "Empty"


def test_values_are_flexible_while_the_feature_is_finalized(broker: TransactionBroker) -> None:
    """Version 1 has the fields of transaction version 2."""
    broker.version = 1
    broker.producer()
    (value,) = broker.values()
    assert value is not None
    assert value[:2] == b"\0\1"


def test_next_transaction_waits_for_the_end_of_the_last(broker: TransactionBroker) -> None:
    """The producer is not refused for some milliseconds of markers."""
    sender = broker.producer()
    broker.add(sender, PART)
    broker.end(sender)
    answers = broker.add(sender, {"a": frozenset({1})})
    assert answers == []
    broker.work()
    broker.timers.advance(0)
    assert answers == [ErrorCode.NONE]
    assert broker.state() == "Ongoing"


def test_next_transaction_is_refused_when_the_last_takes_long_to_end(broker: TransactionBroker) -> None:
    """The producer asks again."""
    broker.know("a", -1, -1, -1)
    sender = broker.producer()
    broker.add(sender, PART)
    broker.end(sender)
    answers = broker.add(sender, {"a": frozenset({1})})
    broker.timers.advance(99)
    assert answers == []
    broker.timers.advance(1)
    assert answers == [ErrorCode.CONCURRENT_TRANSACTIONS]
    broker.work()
    broker.timers.advance(100)
    assert answers == [ErrorCode.CONCURRENT_TRANSACTIONS]


def test_new_producer_waits_for_the_abort_of_what_the_last_left_open(broker: TransactionBroker) -> None:
    """It gets its epoch with the first request."""
    sender = broker.producer()
    broker.add(sender, PART)
    answers = broker.init()
    assert answers == []
    broker.work()
    broker.timers.advance(0)
    assert answers == [ProducerAnswer(ErrorCode.NONE, sender.producer_id, sender.producer_epoch + 2)]


def test_producer_that_waits_learns_that_another_broker_coordinates_it(broker: TransactionBroker) -> None:
    """When its partition has moved."""
    sender = broker.producer()
    broker.add(sender, PART)
    broker.end(sender)
    answers = broker.add(sender, {"a": frozenset({1})})
    broker.lead(TRANSACTIONS_TOPIC, broker.transactions.partition_for("t"), epoch=1, leader=1, replicas=(0, 1))
    broker.timers.advance(100)
    assert answers == [ErrorCode.NOT_COORDINATOR]
    broker.work()


def test_partition_that_this_broker_has_not_heard_of_yet_is_not_taken_for_deleted(broker: TransactionBroker) -> None:
    """A broker that has just started receives the metadata bit by bit."""
    sender = broker.producer()
    broker.add(sender, PART)
    broker.know("a", -2, -2, -2)
    broker.metadata.expect(["later"])
    broker.end(sender)
    broker.timers.advance(100)
    assert broker.state() == "PrepareCommit"
    broker.know("later", 0)
    broker.timers.advance(100)
    assert broker.state() == "CompleteCommit"
