"""The transaction coordinator's decisions: states, epochs, fencing, time-outs, expiry, loading."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.broker.transactions.effects import ProducerAnswer, TransactionSender, TransactionSettings
from barnabas.broker.transactions.states import (
    END_OUTCOMES,
    TRANSACTION_TRANSITIONS,
    TransactionState,
    state_of_number,
)
from barnabas.broker.transactions.transaction import TransactionMetadata
from barnabas.wire.kafka.errors import ErrorCode
from support.transactions import FIRST_PRODUCER_ID, START_MS, Coordinated

PARTITIONS = {"a": frozenset({0, 1}), "b": frozenset({7})}
_S = TransactionState


# The table


def test_states_have_apaches_numbers() -> None:
    """Records hold the numbers of Apache Kafka's states."""
    assert [state.number for state in TransactionState] == list(range(8))
    assert [state_of_number(number) for number in (0, 4, 7, 8, -1)] == [
        *(_S.EMPTY, _S.COMPLETE_COMMIT, _S.PREPARE_EPOCH_FENCE, None, None)
    ]


def test_every_state_but_dead_leads_on() -> None:
    """No state is a trap, and each is in the table."""
    assert set(TRANSACTION_TRANSITIONS) == set(TransactionState)
    assert [state for state, following in TRANSACTION_TRANSITIONS.items() if not following] == [_S.DEAD]


def test_a_decided_outcome_leads_to_its_completion_alone() -> None:
    """Nothing turns a commit into an abort."""
    assert TRANSACTION_TRANSITIONS[_S.PREPARE_COMMIT] == {_S.COMPLETE_COMMIT}
    assert TRANSACTION_TRANSITIONS[_S.PREPARE_ABORT] == {_S.COMPLETE_ABORT}


@pytest.mark.parametrize(("state", "committed"), END_OUTCOMES)
def test_end_of_a_transaction_follows_the_table(state: TransactionState, committed: bool) -> None:
    """What EndTxn begins is a transition of the table."""
    outcome = END_OUTCOMES[state, committed]
    assert isinstance(outcome, ErrorCode) or outcome in TRANSACTION_TRANSITIONS[state]


# InitProducerId


def test_first_producer_of_an_id_gets_epoch_0_when_its_record_is_committed() -> None:
    """The answer waits for the log."""
    broker = Coordinated()
    to = broker.init()
    assert to == []
    broker.written()
    assert to == [ProducerAnswer(ErrorCode.NONE, FIRST_PRODUCER_ID, 0)]
    assert [value.state for _, value in broker.log if value] == [_S.EMPTY]


def test_next_producer_gets_the_next_epoch() -> None:
    """So the one before is fenced."""
    broker = Coordinated()
    first, second = broker.producer(), broker.producer()
    assert (second.producer_id, second.producer_epoch) == (first.producer_id, first.producer_epoch + 1)
    assert broker.end(first, committed=True) == [ProducerAnswer(ErrorCode.PRODUCER_FENCED)]


def test_producer_is_refused_while_its_id_is_being_written() -> None:
    """Two requests at once do not get the same epoch."""
    broker = Coordinated()
    broker.init()
    assert broker.init() == [ProducerAnswer(ErrorCode.CONCURRENT_TRANSACTIONS)]


def test_id_whose_first_record_fails_is_forgotten() -> None:
    """What is in no log is kept in no memory."""
    broker = Coordinated()
    to = broker.init()
    broker.written(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert to == [ProducerAnswer(ErrorCode.COORDINATOR_NOT_AVAILABLE)]
    assert broker.coordinator.find("t") is None


@pytest.mark.parametrize(
    ("transactional_id", "timeout_ms", "error"),
    [
        ("", 60_000, ErrorCode.INVALID_REQUEST),
        ("t", 0, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ("t", -1, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ("t", 900_001, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
    ],
)
def test_producer_with_a_wrong_id_or_timeout_is_refused(
    transactional_id: str, timeout_ms: int, error: ErrorCode
) -> None:
    """The longest timeout is transaction.max.timeout.ms."""
    assert Coordinated().init(transactional_id, timeout_ms=timeout_ms) == [ProducerAnswer(error)]


def test_new_id_waits_for_a_block_of_producer_ids() -> None:
    """Nothing is decided before the id is there; then the request is decided on again."""
    broker = Coordinated()
    broker.ids.clear()
    to = broker.init()
    (wanted,) = broker.awaiting_ids
    assert broker.coordinator.find("t") is None
    broker.perform(wanted.decide(broker.now, 77))
    broker.settle()
    assert to == [ProducerAnswer(ErrorCode.NONE, 77, 0)]


def test_producer_that_continues_gets_the_next_epoch_and_again_the_same_one() -> None:
    """A repeated request whose answer was lost does not raise the epoch twice (KIP-360)."""
    broker = Coordinated()
    sender = broker.producer()
    have = sender.producer_id, sender.producer_epoch
    assert broker.producer(expected=have).producer_epoch == 1
    assert broker.producer(expected=have).producer_epoch == 1


def test_producer_that_continues_is_fenced_by_a_newer_one() -> None:
    """A newer producer has taken the epoch that would follow."""
    broker = Coordinated()
    sender = broker.producer()
    broker.producer()
    have = sender.producer_id, sender.producer_epoch
    assert broker.init(expected=have) == [ProducerAnswer(ErrorCode.PRODUCER_FENCED)]


def test_producer_that_continues_with_another_id_is_fenced() -> None:
    """The producer id must be the current one."""
    broker = Coordinated()
    broker.producer()
    assert broker.init(expected=(5, 0)) == [ProducerAnswer(ErrorCode.PRODUCER_FENCED)]


def test_fenced_producer_that_continues_does_not_abort_the_transaction_of_the_newer_one() -> None:
    """It learns that it is fenced, and the newer transaction goes on."""
    broker = Coordinated()
    old = broker.producer()
    new = broker.producer()
    broker.begun(new)
    have = old.producer_id, old.producer_epoch
    assert broker.init(expected=have) == [ProducerAnswer(ErrorCode.PRODUCER_FENCED)]
    assert broker.found().state is _S.ONGOING


def exhausted(broker: Coordinated, epoch: int = (1 << 15) - 2) -> TransactionSender:
    """A producer with the last epoch of its id."""
    sender = broker.producer()
    broker.found().producer_epoch = epoch
    return sender._replace(producer_epoch=epoch)


def test_exhausted_epoch_leads_to_a_new_producer_id() -> None:
    """The epoch 32,767 is for fencing alone."""
    broker = Coordinated()
    old = exhausted(broker)
    new = broker.producer()
    assert (new.producer_id, new.producer_epoch) == (old.producer_id + 1, 0)


def test_producer_that_continues_with_an_exhausted_epoch_gets_a_new_id_and_again_the_same_one() -> None:
    """The request may be repeated with the id before."""
    broker = Coordinated()
    old = exhausted(broker)
    have = old.producer_id, old.producer_epoch
    first, again = broker.producer(expected=have), broker.producer(expected=have)
    assert first == again
    assert first.producer_id == old.producer_id + 1


def test_transaction_of_an_exhausted_epoch_is_aborted_with_the_last_epoch_and_then_the_id_changes() -> None:
    """A producer of the last epoch can be fenced, too."""
    broker = Coordinated()
    old = exhausted(broker)
    broker.begun(old)
    assert broker.init() == []
    broker.written()
    assert broker.found().producer_epoch == (1 << 15) - 1
    broker.settle()
    new = broker.producer()
    assert (new.producer_id, new.producer_epoch) == (old.producer_id + 1, 0)


def test_new_producer_aborts_the_transaction_that_the_last_one_left_open() -> None:
    """It has to ask again until that is done; the old one is fenced at once."""
    broker = Coordinated()
    old = broker.producer()
    broker.begun(old, PARTITIONS)
    to = broker.init()
    assert to == []
    assert broker.end(old, committed=True) == [ProducerAnswer(ErrorCode.PRODUCER_FENCED)]
    broker.written()
    assert to == [ProducerAnswer(ErrorCode.CONCURRENT_TRANSACTIONS)]
    assert broker.found().state is _S.PREPARE_ABORT
    assert broker.init() == [ProducerAnswer(ErrorCode.CONCURRENT_TRANSACTIONS)]
    broker.settle()
    assert broker.found().state is _S.COMPLETE_ABORT
    assert broker.producer().producer_epoch == old.producer_epoch + 2


def test_epoch_that_fences_is_raised_once_however_often_its_record_fails() -> None:
    """The old producer stays fenced, and no epochs are used up."""
    broker = Coordinated()
    old = broker.producer()
    broker.begun(old)
    for _ in range(3):
        to = broker.init()
        broker.written(ErrorCode.NOT_ENOUGH_REPLICAS)
        assert to == [ProducerAnswer(ErrorCode.COORDINATOR_NOT_AVAILABLE)]
    assert broker.found().producer_epoch == old.producer_epoch + 1
    assert broker.end(old, committed=True) == [ProducerAnswer(ErrorCode.PRODUCER_FENCED)]


def test_last_epoch_fences_however_often_its_record_fails() -> None:
    """There is no epoch above it."""
    broker = Coordinated()
    broker.begun(exhausted(broker))
    for _ in range(2):
        broker.init()
        broker.written(ErrorCode.NOT_ENOUGH_REPLICAS)
    broker.init()
    broker.settle()
    assert broker.found().state is _S.COMPLETE_ABORT


def test_open_transaction_of_the_last_epoch_times_out_beside_others() -> None:
    """A record may say so, though no producer gets that epoch."""
    broker = Coordinated()
    broker.coordinator.start_deadlines(broker.now)
    broker.begun(broker.producer("other"), PARTITIONS)
    broker.begun(exhausted(broker), PARTITIONS)
    transactional_id, value = broker.log[-1]
    assert value is not None
    broker.log[-1] = (transactional_id, value._replace(producer_epoch=(1 << 15) - 1))
    broker.load_log(1)
    broker.tick(80_000)
    broker.settle()
    assert [broker.found(name).state for name in ("t", "other")] == [_S.COMPLETE_ABORT] * 2
    assert broker.producer().producer_epoch == 0


# Partitions


def test_first_partitions_begin_a_transaction() -> None:
    """The producer is answered when the record is committed."""
    broker = Coordinated()
    sender = broker.producer()
    broker.ms = 5
    to = broker.add(sender, PARTITIONS)
    assert to == []
    broker.written()
    assert to == [ErrorCode.NONE]
    transaction = broker.found()
    assert (transaction.state, transaction.partitions, transaction.start_ms) == (_S.ONGOING, PARTITIONS, START_MS + 5)


def test_partitions_that_are_there_already_cost_no_record() -> None:
    """The answer comes at once."""
    broker = Coordinated()
    sender = broker.producer()
    broker.begun(sender, PARTITIONS)
    assert broker.add(sender, {"a": frozenset({1})}) == [ErrorCode.NONE]
    assert not broker.appends


def test_more_partitions_join_those_that_are_there() -> None:
    """The transaction keeps its beginning."""
    broker = Coordinated()
    sender = broker.producer()
    broker.begun(sender, {"a": frozenset({0})})
    start_ms = broker.found().start_ms
    broker.ms += 10
    broker.begun(sender, {"a": frozenset({2}), "b": frozenset({0})})
    assert broker.found().partitions == {"a": frozenset({0, 2}), "b": frozenset({0})}
    assert broker.found().start_ms == start_ms


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"transactional_id": "other"}, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        ({"producer_id": 3}, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        ({"producer_epoch": 1}, ErrorCode.PRODUCER_FENCED),
        ({"producer_epoch": -1}, ErrorCode.PRODUCER_FENCED),
        ({"transactional_id": ""}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_request_of_another_producer_is_refused(change: dict[str, Any], error: ErrorCode) -> None:
    """The id, the producer id and the epoch must be the current ones."""
    broker = Coordinated()
    sender = broker.producer()._replace(**change)
    assert broker.add(sender, PARTITIONS) == [error]
    assert broker.end(sender, committed=True) == [ProducerAnswer(error)]
    assert broker.coordinator.verify_partitions(sender, {"a": frozenset({0})}) == {"a": {0: error}}
    assert not broker.appends


def test_partitions_are_verified_when_their_record_is_committed() -> None:
    """What is on its way is not part of the transaction yet (KIP-890)."""
    broker = Coordinated()
    sender = broker.producer()
    broker.add(sender, {"a": frozenset({0})})
    asked = {"a": frozenset({0, 1}), "b": frozenset({0})}
    abortable = ErrorCode.TRANSACTION_ABORTABLE
    assert broker.coordinator.verify_partitions(sender, asked) == {
        "a": {0: abortable, 1: abortable},
        "b": {0: abortable},
    }
    broker.written()
    verified = broker.coordinator.verify_partitions(sender, asked)
    assert verified == {"a": {0: ErrorCode.NONE, 1: abortable}, "b": {0: abortable}}


def test_partitions_of_a_decided_transaction_are_not_verified() -> None:
    """Records that come late would miss their marker."""
    broker = Coordinated()
    sender = broker.producer()
    broker.begun(sender)
    broker.end(sender, committed=True)
    broker.written()
    concurrent = ErrorCode.CONCURRENT_TRANSACTIONS
    assert broker.coordinator.verify_partitions(sender, {"a": frozenset({0})}) == {"a": {0: concurrent}}
    assert broker.add(sender, {"c": frozenset({0})}) == [concurrent]


# The end


@pytest.mark.parametrize("committed", [True, False])
def test_end_is_answered_when_it_is_decided_and_markers_follow(committed: bool) -> None:
    """The last record comes behind all markers."""
    broker = Coordinated()
    sender = broker.producer()
    broker.begun(sender, PARTITIONS)
    to = broker.end(sender, committed=committed)
    assert to == []
    assert not broker.completions
    broker.written()
    assert [each.error for each in to] == [ErrorCode.NONE]
    (completion,) = broker.completions
    assert completion.transaction.partitions == PARTITIONS
    assert not broker.appends
    broker.mark()
    broker.written()
    states = (_S.PREPARE_COMMIT, _S.COMPLETE_COMMIT) if committed else (_S.PREPARE_ABORT, _S.COMPLETE_ABORT)
    last, end = broker.log[-2][1], broker.log[-1][1]
    assert last is not None
    assert end is not None
    assert (last.state, end.state) == states
    assert (last.partitions, end.partitions) == (PARTITIONS, {})


def test_end_that_was_not_written_decides_nothing() -> None:
    """No marker is written, and the producer may ask again."""
    broker = Coordinated()
    sender = broker.producer()
    broker.begun(sender)
    to = broker.end(sender, committed=True)
    broker.written(ErrorCode.REQUEST_TIMED_OUT)
    assert to == [ProducerAnswer(ErrorCode.COORDINATOR_NOT_AVAILABLE)]
    assert not broker.completions
    assert broker.found().state is _S.ONGOING
    again = broker.end(sender, committed=True)
    broker.settle()
    assert [each.error for each in again] == [ErrorCode.NONE]


def test_repeated_end_is_answered_with_the_outcome_of_the_first() -> None:
    """The other outcome is refused."""
    broker = Coordinated()
    sender = broker.producer()
    broker.begun(sender)
    broker.end(sender, committed=True)
    broker.settle()
    assert [each.error for each in broker.end(sender, committed=True)] == [ErrorCode.NONE]
    assert broker.end(sender, committed=False) == [ProducerAnswer(ErrorCode.INVALID_TXN_STATE)]


def test_end_without_a_transaction_is_refused() -> None:
    """There is nothing to decide."""
    broker = Coordinated()
    sender = broker.producer()
    assert broker.end(sender, committed=True) == [ProducerAnswer(ErrorCode.INVALID_TXN_STATE)]


def test_next_transaction_begins_when_the_last_record_is_committed() -> None:
    """Markers of one transaction must not end the next."""
    broker = Coordinated()
    sender = broker.producer()
    broker.begun(sender)
    broker.end(sender, committed=True)
    broker.written()
    for _ in range(2):
        assert broker.add(sender, PARTITIONS) == [ErrorCode.CONCURRENT_TRANSACTIONS]
        broker.mark() if broker.completions else None
    broker.written()
    broker.begun(sender, {"c": frozenset({3})})
    assert broker.found().partitions == {"c": frozenset({3})}


def test_last_record_is_written_again_until_it_is_committed() -> None:
    """Nothing else can be decided meanwhile."""
    broker = Coordinated()
    sender = broker.producer()
    broker.begun(sender)
    broker.end(sender, committed=True)
    broker.written()
    broker.mark()
    for error in (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.UNKNOWN_SERVER_ERROR):
        broker.written(error)
        assert broker.add(sender, PARTITIONS) == [ErrorCode.CONCURRENT_TRANSACTIONS]
        assert not broker.appends
        broker.tick(100)
    broker.written()
    assert broker.found().state is _S.COMPLETE_COMMIT


# Version 2


def ended(broker: Coordinated, sender: TransactionSender, *, committed: bool) -> TransactionSender:
    """The producer for its next transaction, after one of version 2."""
    to = broker.end(sender, committed=committed, version=2)
    broker.settle()
    (answer,) = to
    assert answer.error is ErrorCode.NONE
    return sender._replace(producer_id=answer.producer_id, producer_epoch=answer.producer_epoch)


@pytest.fixture
def newer() -> Coordinated:
    """A coordinator in a cluster that has finalized version 2."""
    broker = Coordinated()
    broker.version = 2
    return broker


@pytest.mark.parametrize("committed", [True, False])
def test_each_transaction_of_version_2_has_an_epoch_of_its_own(newer: Coordinated, committed: bool) -> None:
    """Its markers carry the next one, and what comes late with the last is refused."""
    sender = newer.producer()
    newer.begun(sender)
    to = newer.end(sender, committed=committed, version=2)
    newer.written()
    assert to == [ProducerAnswer(ErrorCode.NONE, sender.producer_id, sender.producer_epoch + 1)]
    assert newer.completions[0].transaction.producer_epoch == sender.producer_epoch + 1
    newer.settle()
    assert newer.add(sender, PARTITIONS) == [ErrorCode.PRODUCER_FENCED]
    newer.begun(sender._replace(producer_epoch=sender.producer_epoch + 1))


def test_abort_of_nothing_behind_a_downgrade_to_level_0_is_refused(newer: Coordinated) -> None:
    """A producer whose transactions all fail learns that it has to begin again."""
    sender = ended(newer, newer.producer(), committed=False)
    newer.version = 0
    assert newer.end(sender, committed=False, version=2) == [ProducerAnswer(ErrorCode.INVALID_TXN_STATE)]
    newer.version = 1
    ended(newer, sender, committed=False)


def test_repeated_end_of_version_2_gets_the_same_answer(newer: Coordinated) -> None:
    """While its markers are written it is to ask again; the other outcome is refused."""
    sender = newer.producer()
    newer.begun(sender)
    first = newer.end(sender, committed=True, version=2)
    newer.written()
    assert newer.end(sender, committed=True, version=2) == [ProducerAnswer(ErrorCode.CONCURRENT_TRANSACTIONS)]
    newer.settle()
    assert newer.end(sender, committed=True, version=2) == first
    assert newer.end(sender, committed=False, version=2) == [ProducerAnswer(ErrorCode.INVALID_TXN_STATE)]


def test_repeated_end_of_version_2_gets_the_same_answer_from_the_next_coordinator(newer: Coordinated) -> None:
    """Its records say which version the client has."""
    sender = newer.producer()
    newer.begun(sender)
    first = newer.end(sender, committed=True, version=2)
    newer.written()
    newer.load_log(1)
    newer.settle()
    assert newer.end(sender, committed=True, version=2) == first


def test_exhausted_epoch_ends_in_a_new_producer_id_in_version_2(newer: Coordinated) -> None:
    """The answer has it; a repeated request gets it again."""
    sender = exhausted(newer)
    newer.begun(sender)
    following = ended(newer, sender, committed=True)
    assert (following.producer_id, following.producer_epoch) == (sender.producer_id + 1, 0)
    again = newer.end(sender, committed=True, version=2)
    assert again == [ProducerAnswer(ErrorCode.NONE, following.producer_id, 0)]
    newer.begun(following)


def test_end_of_version_2_waits_for_a_block_of_producer_ids(newer: Coordinated) -> None:
    """Where the epoch is exhausted."""
    sender = exhausted(newer)
    newer.begun(sender)
    newer.ids.clear()
    to = newer.end(sender, committed=False, version=2)
    (wanted,) = newer.awaiting_ids
    assert not newer.appends
    newer.perform(wanted.decide(newer.now, 77))
    newer.settle()
    assert to == [ProducerAnswer(ErrorCode.NONE, 77, 0)]


def test_producer_of_version_2_may_abort_what_it_has_not_begun(newer: Coordinated) -> None:
    """It does not know whether a broker has added a partition; a commit needs one."""
    sender = newer.producer()
    assert newer.end(sender, committed=True, version=2) == [ProducerAnswer(ErrorCode.INVALID_TXN_STATE)]
    following = ended(newer, sender, committed=False)
    following = ended(newer, following, committed=False)
    assert following.producer_epoch == sender.producer_epoch + 2


@pytest.mark.parametrize("epoch", [0, 32_764, 32_765, 32_766])
@pytest.mark.parametrize("committed", [True, False])
def test_fenced_producer_of_version_2_is_not_taken_for_one_that_repeats_its_end(
    newer: Coordinated, epoch: int, committed: bool
) -> None:
    """Before and after the markers, and after the move to another coordinator."""
    sender = exhausted(newer, epoch)
    newer.begun(sender)
    newer.init()
    fenced = [ProducerAnswer(ErrorCode.PRODUCER_FENCED)]
    assert newer.end(sender, committed=committed, version=2) == fenced
    newer.written()
    assert newer.end(sender, committed=committed, version=2) == fenced
    newer.settle()
    assert newer.end(sender, committed=committed, version=2) == fenced
    newer.load_log(1)
    assert newer.end(sender, committed=committed, version=2) == fenced
    newer.producer()
    assert newer.end(sender, committed=committed, version=2)[0].error in (
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    )


def test_client_of_version_1_goes_on_as_before_where_version_2_is_finalized(newer: Coordinated) -> None:
    """Its epoch stays."""
    sender = newer.producer()
    newer.begun(sender)
    newer.end(sender, committed=True)
    newer.settle()
    newer.begun(sender)
    assert newer.found().producer_epoch == sender.producer_epoch


# Time


def test_transaction_past_its_timeout_is_aborted_and_its_producer_fenced() -> None:
    """The timeout counts from the first partition; it is looked for at intervals."""
    broker = Coordinated()
    broker.coordinator.start_deadlines(broker.now)
    sender = broker.producer(timeout_ms=60_000)
    broker.begun(sender)
    broker.tick(60_000)
    assert not broker.appends
    broker.tick(10_000)
    broker.settle()
    assert broker.found().state is _S.COMPLETE_ABORT
    assert broker.end(sender, committed=True) == [ProducerAnswer(ErrorCode.PRODUCER_FENCED)]


def test_transaction_that_is_decided_does_not_time_out() -> None:
    """A commit whose markers take long stays a commit."""
    broker = Coordinated()
    broker.coordinator.start_deadlines(broker.now)
    sender = broker.producer(timeout_ms=60_000)
    broker.begun(sender)
    broker.end(sender, committed=True)
    broker.tick(600_000)
    broker.written()
    broker.tick(600_000)
    assert not broker.appends
    broker.settle()
    assert broker.found().state is _S.COMPLETE_COMMIT


def test_many_transactions_are_looked_at_in_parts() -> None:
    """One tick does not go through all of them, and aborts few."""
    broker = Coordinated(TransactionSettings(abort_interval_ms=10))
    broker.coordinator.start_deadlines(broker.now)
    names = [f"t{number}" for number in range(5_000)]
    over = TransactionMetadata.new("t", 1, 1, START_MS).current
    opened = TransactionMetadata.new("t", 1, 1, START_MS).current._replace(
        state=_S.ONGOING, producer_epoch=0, partitions={"a": frozenset({0})}, start_ms=START_MS
    )
    late = names[-50:]
    broker.load(1, {name: TransactionMetadata(name, opened if name in late else over) for name in names})
    broker.tick(0)
    broker.ms = 10
    counts = []
    while (due_ms := broker.coordinator.next_deadline_ms()) is not None and due_ms <= 13:
        broker.ms = max(broker.ms, due_ms)
        broker.perform(broker.coordinator.tick(broker.now))
        counts.append(len(broker.appends))
    assert counts == [0, 0, 32, 50]


def test_unused_transactional_ids_get_tombstones() -> None:
    """They are forgotten when the tombstone is committed."""
    broker = Coordinated()
    broker.coordinator.start_deadlines(broker.now)
    broker.producer("old")
    broker.tick(8 * 24 * 3_600_000)
    assert broker.coordinator.find("old") is not None
    assert broker.init("old") == [ProducerAnswer(ErrorCode.CONCURRENT_TRANSACTIONS)]
    broker.written()
    assert broker.log[-1] == ("old", None)
    assert broker.coordinator.find("old") is None


def test_open_transaction_keeps_its_transactional_id() -> None:
    """However long it is open."""
    broker = Coordinated(TransactionSettings(abort_interval_ms=1 << 60))
    broker.coordinator.start_deadlines(broker.now)
    broker.begun(broker.producer())
    broker.tick(8 * 24 * 3_600_000)
    assert not broker.appends


def test_transactional_id_whose_tombstone_fails_stays() -> None:
    """It can be used, and expires later."""
    broker = Coordinated()
    broker.coordinator.start_deadlines(broker.now)
    broker.producer()
    broker.tick(8 * 24 * 3_600_000)
    broker.written(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert broker.producer().producer_epoch == 1


# Partitions of the topic coming and going


def test_requests_are_refused_before_and_while_the_partition_is_loaded() -> None:
    """Producers ask another broker, or ask again."""
    broker = Coordinated()
    broker.coordinator.unload(0, None)
    assert broker.init() == [ProducerAnswer(ErrorCode.NOT_COORDINATOR)]
    broker.coordinator.start_loading(0, 3)
    assert broker.init() == [ProducerAnswer(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)]
    broker.coordinator.is_active = False
    assert broker.init() == [ProducerAnswer(ErrorCode.COORDINATOR_NOT_AVAILABLE)]


@pytest.mark.parametrize("committed", [True, False])
def test_next_coordinator_completes_what_was_decided(committed: bool) -> None:
    """Its markers carry its own epoch."""
    broker = Coordinated()
    sender = broker.producer()
    broker.begun(sender, PARTITIONS)
    broker.end(sender, committed=committed)
    broker.written()
    broker.load_log(4)
    completion = broker.mark()
    assert completion.owned.coordinator_epoch == 4
    broker.written()
    assert broker.found().state is (_S.COMPLETE_COMMIT if committed else _S.COMPLETE_ABORT)


def test_next_coordinator_completes_very_many_transactions_in_parts() -> None:
    """Producers of those that are not completed yet wait as for any decided transaction; a
    partition that is lost meanwhile gets no markers from here."""
    broker = Coordinated()
    decided = TransactionMetadata.new("t", 1, 1, START_MS).current._replace(
        state=_S.PREPARE_COMMIT, producer_epoch=0, partitions=PARTITIONS, start_ms=START_MS
    )
    names = [f"t{number}" for number in range(1_000)]
    broker.load(1, {name: TransactionMetadata(name, decided) for name in names})
    counts = [len(broker.completions)]
    assert broker.init("t999") == [ProducerAnswer(ErrorCode.CONCURRENT_TRANSACTIONS)]
    assert broker.end(TransactionSender("t999", 1, 0), committed=True) == [
        ProducerAnswer(ErrorCode.CONCURRENT_TRANSACTIONS)
    ]
    for _ in range(2):
        assert broker.coordinator.next_deadline_ms() == broker.ms
        broker.perform(broker.coordinator.tick(broker.now))
        counts.append(len(broker.completions))
    assert counts == [256, 512, 768]
    broker.coordinator.unload(0, 2)
    broker.tick(0)
    assert len(broker.completions) == 768
    assert broker.coordinator.next_deadline_ms() is None


def test_last_records_of_very_many_transactions_are_written_again_in_parts() -> None:
    """Each is an append of its own."""
    broker = Coordinated()
    decided = TransactionMetadata.new("t", 1, 1, START_MS).current._replace(
        state=_S.PREPARE_COMMIT, producer_epoch=0, start_ms=START_MS
    )
    broker.load(1, {name: TransactionMetadata(name, decided) for name in map(str, range(100))})
    while broker.completions:
        broker.mark()
    while broker.appends:
        broker.written(ErrorCode.NOT_ENOUGH_REPLICAS)
    broker.ms += 100
    broker.perform(broker.coordinator.tick(broker.now))
    assert 0 < len(broker.appends) < 100
    broker.tick(0)
    assert len(broker.appends) == 100


def test_next_coordinator_goes_on_with_an_open_transaction() -> None:
    """The producer commits there."""
    broker = Coordinated()
    sender = broker.producer()
    broker.begun(sender, PARTITIONS)
    broker.load_log(1)
    to = broker.end(sender, committed=True)
    broker.settle()
    assert [each.error for each in to] == [ErrorCode.NONE]


def test_markers_of_an_earlier_coordinator_complete_nothing() -> None:
    """Another one has the transaction since."""
    broker = Coordinated()
    sender = broker.producer()
    broker.begun(sender)
    broker.end(sender, committed=True)
    broker.written()
    old = broker.completions[0]
    broker.load_log(1)
    assert not broker.coordinator.is_wanted(old)
    assert broker.coordinator.markers_written(old, broker.now) == []


def test_record_of_an_earlier_epoch_changes_nothing() -> None:
    """The partition was loaded again, with what was committed by then."""
    broker = Coordinated()
    sender = broker.producer()
    to = broker.add(sender, PARTITIONS)
    append = broker.appends[0]
    broker.load_log(1)
    broker.perform(broker.coordinator.appended(append, ErrorCode.NONE, broker.now))
    assert to == [ErrorCode.NOT_COORDINATOR]
    assert broker.found().state is _S.EMPTY


def test_late_leader_change_unloads_nothing() -> None:
    """An older epoch than that in which the partition is led is passed over."""
    broker = Coordinated()
    broker.load(5)
    broker.coordinator.unload(0, 4)
    assert broker.coordinator.check("t") is ErrorCode.NONE
    broker.coordinator.unload(0, 6)
    assert broker.coordinator.check("t") is ErrorCode.NOT_COORDINATOR


# Against a simple model


class Model:
    """What a client may conclude from the answers that it has had."""

    def __init__(self) -> None:
        self.broker = Coordinated()
        self.broker.coordinator.start_deadlines(self.broker.now)
        self.broker.load_log(0)
        self.epoch = 0
        self.senders: list[TransactionSender] = []
        self.answered: list[tuple[int, bool]] = []
        """Where in the log the answers to EndTxn were given, and what they had asked for."""

    def act(self, kind: str, number: int) -> None:
        broker = self.broker
        sender = self.senders[number % len(self.senders)] if self.senders else TransactionSender("t", 1, 0)
        if kind == "init":
            to = broker.init(timeout_ms=1_000)
            self.senders += [
                TransactionSender("t", answer.producer_id, answer.producer_epoch) for answer in to if not answer.error
            ]
        elif kind == "add":
            broker.add(sender, {"a": frozenset({number})})
        elif kind in ("commit", "abort"):
            broker.end(sender, committed=kind == "commit", version=broker.version)
        elif kind == "write" and broker.appends:
            (append, *_) = broker.appends
            broker.written()
            for _, value in append.records:
                if value is not None and value.state not in (_S.ONGOING, _S.PREPARE_COMMIT, _S.PREPARE_ABORT):
                    self.senders.append(TransactionSender("t", value.producer_id, value.producer_epoch))
        elif kind == "fail" and broker.appends:
            broker.written(ErrorCode.NOT_ENOUGH_REPLICAS)
        elif kind == "mark" and broker.completions:
            broker.mark()
        elif kind == "wait":
            broker.tick(number * 1_000)
        elif kind == "move":
            self.epoch += 1
            broker.load_log(self.epoch)


_KINDS = ("init", "add", "commit", "abort", "write", "write", "write", "fail", "mark", "wait", "move")


@settings(max_examples=400, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(_KINDS), st.integers(0, 12)), max_size=80), st.sampled_from([0, 2]))
def test_log_of_any_history_obeys_the_protocol(history: list[tuple[str, int]], version: int) -> None:
    """Through failures, timeouts and moves: states follow the table, epochs never fall, and an
    outcome that was decided stays."""
    model = Model()
    model.broker.version = version
    for kind, number in history:
        model.act(kind, number)
    model.broker.tick(100)  # a last record that has failed is written again
    while model.broker.appends or model.broker.completions:
        model.broker.settle()
        model.broker.tick(100)
    before = None
    for _, value in model.broker.log:
        if value is None:
            before = None
            continue
        if before is not None:
            assert value.state in TRANSACTION_TRANSITIONS[before.state] | {before.state}
            if value.producer_id == before.producer_id:
                assert value.producer_epoch >= before.producer_epoch
            if before.state.is_prepared:
                assert value.producer_epoch == before.producer_epoch
            if value.state is _S.ONGOING and before.state is _S.ONGOING:
                assert all(numbers <= value.partitions[topic] for topic, numbers in before.partitions.items())
            if value.state.is_prepared:
                assert value.partitions == before.partitions
                assert not version or value.producer_epoch > before.producer_epoch
        before = value
    transaction = model.broker.coordinator.find("t")
    assert transaction is None or (not transaction.state.is_prepared and transaction.pending is None)
