"""Asking transaction coordinators whether partitions are part of a transaction, and what the
log makes of the answer."""

from pathlib import Path
from typing import Any

import pytest

from barnabas.base.ids import ZERO_UUID, TopicPartition
from barnabas.broker.cluster.channels import BrokenConnectionError
from barnabas.broker.metadata.cache import MetadataCache
from barnabas.broker.metadata.internal_topics import partition_of
from barnabas.broker.replication.produce_append import (
    AppendTask,
    Produce,
    ProduceHead,
    ProduceOptions,
    ProduceTopic,
    append,
)
from barnabas.broker.replication.transaction_markers import TransactionMarker, TransactionMarkers
from barnabas.broker.replication.transaction_verification import TransactionalProducer
from barnabas.log.producer_state import WITHOUT_VERIFICATION, Origin, ProducerState, VerificationGuard
from barnabas.wire.kafka.errors import ErrorCode as E
from barnabas.wire.kafka.errors import KafkaError
from barnabas.wire.kafka.messages.add_partitions_to_txn import AddPartitionsToTxnResponse
from barnabas.wire.kafka.messages.update_metadata import UpdateMetadataRequest
from barnabas.wire.kafka.records.batch_header import HEADER
from support.broker import DataPath, batch
from support.transaction_coordinators import Coordinators, name_coordinators

TP = TopicPartition("t", 0)
OTHER_TP = TopicPartition("t", 1)
LEAVES_ADDING = 12
WITH_ABORTABLE = 11
WITHOUT_ABORTABLE = 10


def producer(transactional_id: str = "pay", *, epoch: int = 0, knows_abortable: bool = True) -> TransactionalProducer:
    return TransactionalProducer(transactional_id, 7, epoch, knows_abortable)


class Asking:
    """A verifier with the answers that it has given."""

    def __init__(self, *leaders: int) -> None:
        self.metadata = MetadataCache()
        if leaders:
            name_coordinators(self.metadata, *leaders)
        self.coordinators = Coordinators(self.metadata)
        self.answers: list[tuple[str, dict[TopicPartition, E]]] = []

    def verify(self, asking: TransactionalProducer, *partitions: TopicPartition, name: str = "") -> None:
        self.coordinators.verifier.verify(
            asking, partitions or (TP,), lambda codes: self.answers.append((name, dict(codes)))
        )


def test_the_leader_of_the_transactional_ids_partition_is_asked_about_all_partitions_at_once() -> None:
    """By a request that verifies only, so that the transaction stays as it is."""
    asking = Asking(*range(10))
    asking.verify(producer(), TP, OTHER_TP)
    ((broker, request),) = asking.coordinators.asked
    assert broker == partition_of("pay", 10)
    (transaction,) = request.transactions
    assert (transaction.transactional_id, transaction.producer_id, transaction.producer_epoch) == ("pay", 7, 0)
    assert transaction.verify_only
    assert [(topic.name, topic.partitions) for topic in transaction.topics] == [("t", [0, 1])]
    assert not asking.answers
    asking.coordinators.confirm()
    assert asking.answers == [("", {})]


def test_without_a_coordinator_nothing_is_verified() -> None:
    """Where the topic does not exist, and where its leader is not alive."""
    asking = Asking()
    asking.verify(producer())
    name_coordinators(asking.metadata, -1)
    asking.verify(producer())
    assert asking.answers == [("", {TP: E.COORDINATOR_NOT_AVAILABLE})] * 2
    assert not asking.coordinators.asked


def test_what_is_asked_while_a_request_is_under_way_goes_in_the_next_one_together() -> None:
    """With each transactional id once: the second question of one waits for a third request."""
    asking = Asking(0)
    asking.verify(producer("a"), name="a")
    asking.verify(producer("b"), TP, name="b")
    asking.verify(producer("c"), name="c")
    asking.verify(producer("b"), OTHER_TP, name="b again")
    assert len(asking.coordinators.asked) == 1
    asking.coordinators.confirm()
    (_, request) = asking.coordinators.asked[0]
    assert [each.transactional_id for each in request.transactions] == ["b", "c"]
    asking.coordinators.confirm()
    asking.coordinators.confirm()
    assert [name for name, _ in asking.answers] == ["a", "b", "c", "b again"]
    assert not asking.coordinators.asked


@pytest.mark.parametrize(
    ("second_epoch", "expected"),
    [
        (0, [("first", {TP: E.NETWORK_EXCEPTION})]),
        (1, [("first", {TP: E.INVALID_PRODUCER_EPOCH})]),
        (-1, [("second", {TP: E.INVALID_PRODUCER_EPOCH})]),
    ],
    ids=["a repetition", "a newer producer", "an older producer"],
)
def test_of_two_questions_that_wait_one_is_out_of_date(second_epoch: int, expected: list[Any]) -> None:
    """A client that repeats its request has given up the first one; a newer producer
    fences an older one."""
    asking = Asking(0)
    asking.verify(producer("another"), name="under way")
    asking.verify(producer(), name="first")
    asking.verify(producer(epoch=second_epoch), name="second")
    assert asking.answers == expected


def test_a_producer_that_asks_much_does_not_keep_others_waiting() -> None:
    """What is left of its questions goes behind those of others."""
    asking = Asking(0)
    asking.verify(producer("another"), name="under way")
    names = [str(number) for number in range(1_500)]
    for number in range(2):
        for name in names if number == 0 else names[:10]:
            asking.verify(producer(name), TopicPartition("t", number))
    asking.coordinators.confirm()
    asked = []
    while asking.coordinators.asked:
        ((_, request),) = asking.coordinators.asked
        asked.append([each.transactional_id for each in request.transactions])
        asking.coordinators.confirm()
    assert asked == [names[:1_000], names[1_000:] + names[:10]]
    assert len(asking.answers) == 1_511


def test_an_answer_about_many_partitions_is_read_in_slices() -> None:
    """A request of a client may have thousands."""
    asking = Asking(0)
    partitions = [TopicPartition("t", number) for number in range(2_000)]
    asking.verify(producer(), *partitions)
    before = asking.coordinators.turns
    refused = dict.fromkeys(partitions[::2], E.TRANSACTION_ABORTABLE)
    asking.coordinators.confirm(refused)
    assert asking.coordinators.turns - before > 7
    assert asking.answers == [("", refused)]


def test_a_question_that_follows_from_the_answer_of_another_is_asked() -> None:
    """A connection's next request may wait for the one whose question is out of date."""
    asking = Asking(0)
    asking.verify(producer("another"), name="under way")
    asking.coordinators.verifier.verify(producer(), (TP,), lambda _: asking.verify(producer(), OTHER_TP, name="next"))
    asking.verify(producer(), TP, name="new")
    for _ in range(3):
        asking.coordinators.confirm()
    assert sorted(name for name, _ in asking.answers) == ["new", "next", "under way"]


@pytest.mark.parametrize(
    ("code", "knows_abortable", "expected"),
    [
        (E.TRANSACTION_ABORTABLE, True, E.TRANSACTION_ABORTABLE),
        (E.TRANSACTION_ABORTABLE, False, E.INVALID_TXN_STATE),
        (E.PRODUCER_FENCED, True, E.INVALID_PRODUCER_EPOCH),
        (E.INVALID_PRODUCER_ID_MAPPING, True, E.INVALID_PRODUCER_ID_MAPPING),
        (E.CONCURRENT_TRANSACTIONS, False, E.CONCURRENT_TRANSACTIONS),
    ],
)
def test_a_coordinators_error_becomes_one_that_the_client_knows(code: E, knows_abortable: bool, expected: E) -> None:
    """TRANSACTION_ABORTABLE is for clients since KIP-1050; producers expect
    INVALID_PRODUCER_EPOCH for PRODUCER_FENCED."""
    asking = Asking(0)
    asking.verify(producer(knows_abortable=knows_abortable), TP, OTHER_TP)
    asking.coordinators.confirm({TP: code})
    assert asking.answers == [("", {TP: expected})]


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        (AddPartitionsToTxnResponse(error_code=E.CLUSTER_AUTHORIZATION_FAILED), E.INVALID_TXN_STATE),
        (AddPartitionsToTxnResponse(error_code=E.NOT_COORDINATOR), E.NOT_COORDINATOR),
        (AddPartitionsToTxnResponse(results_by_transaction=[]), E.UNKNOWN_SERVER_ERROR),
        (BrokenConnectionError("gone"), E.NETWORK_EXCEPTION),
        (ValueError("no such version"), E.NETWORK_EXCEPTION),
    ],
    ids=["no rights", "not the coordinator", "no answer for it", "no connection", "not sendable"],
)
def test_a_request_that_fails_as_a_whole_verifies_nothing(response: Any, expected: E) -> None:
    """And what waits for the coordinator is asked next."""
    asking = Asking(0)
    asking.verify(producer(), name="first")
    asking.verify(producer("another"), name="second")
    asking.coordinators.respond(response)
    assert asking.answers == [("first", {TP: expected})]
    asking.coordinators.confirm()
    assert asking.answers[1:] == [("second", {})]


# The guard in the log's producer state


def started(state: ProducerState, *, epoch: int = 0, sequence: int = 0, name: str = "pay") -> VerificationGuard:
    guard = state.start_verification(7, epoch, name, sequence, 0)
    assert guard is not None
    return guard


def refused(state: ProducerState, guard: VerificationGuard | None, *, epoch: int = 0, sequence: int = 0) -> E | None:
    """The error of a transactional batch."""
    try:
        state.check(7, epoch, sequence, 0, is_transactional=True, origin=Origin.CLIENT, guard=guard)
    except KafkaError as error:
        return error.code
    return None


def add(state: ProducerState, offset: int, *, epoch: int = 0, sequence: int = 0) -> None:
    state.add_batch(7, epoch, sequence, offset, offset, 0, True)


def test_a_transaction_begins_only_with_its_guard() -> None:
    """Neither without one, nor with that of another epoch, nor with one of a
    switched-off verification."""
    state = ProducerState()
    assert refused(state, None) == E.INVALID_TXN_STATE
    guard = started(state)
    assert refused(state, guard) is None
    assert refused(state, started(state, epoch=1)) == E.INVALID_TXN_STATE
    assert refused(state, guard, epoch=1) == E.INVALID_TXN_STATE
    assert refused(state, WITHOUT_VERIFICATION, epoch=1) is None


def test_a_verified_transaction_needs_no_guard_for_what_follows() -> None:
    """Until it ends. A later epoch is verified by itself."""
    state = ProducerState()
    started(state)
    add(state, 0)
    assert state.start_verification(7, 0, "pay", 1, 0) is None
    assert refused(state, None, sequence=1) is None
    assert state.start_verification(7, 1, "pay", 0, 0) is not None
    state.add_marker(7, 0, 0, 1, 0, is_abort=True)
    assert refused(state, None, sequence=1) == E.INVALID_TXN_STATE


@pytest.mark.parametrize("ending", ["marker", "batch", "truncation", "refusal", "age"])
def test_a_guard_is_void_once_the_answer_may_be_about_an_earlier_transaction(ending: str) -> None:
    """A batch that comes after that must be verified again."""
    state = ProducerState()
    guard = started(state)
    match ending:
        case "marker":
            state.add_marker(7, 0, 0, 1, 0, is_abort=True)
        case "batch":
            add(state, 0)
            state.add_marker(7, 0, 0, 1, 0, is_abort=False)
        case "truncation":
            state.reset()
        case "refusal":
            state.refuse_verification(7, guard)
        case "age":
            state.remove_expired(1000, 1000)
    sequence = 1 if ending == "batch" else 0
    assert refused(state, guard, sequence=sequence) == E.INVALID_TXN_STATE
    assert started(state, sequence=sequence) is not guard


def test_a_stranger_that_claims_a_producer_id_does_not_touch_the_owners_guard() -> None:
    """Its own question has another transactional id, and is refused by the coordinator."""
    state = ProducerState()
    guard = started(state, sequence=5)
    theirs = started(state, sequence=0, name="stranger")
    assert refused(state, guard, sequence=5) is None
    state.refuse_verification(7, theirs)
    assert refused(state, guard, sequence=5) is None


def test_a_batch_is_not_appended_before_an_earlier_one_whose_verification_failed_for_now() -> None:
    """The earlier one is repeated; if the later one went first, the earlier could never follow."""
    state = ProducerState()
    guard = started(state, sequence=3)
    assert started(state, sequence=4) is guard
    assert refused(state, guard, sequence=4) == E.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refused(state, guard, sequence=3) is None


# Produce


class Producing:
    """A broker that leads t-0, with a transaction coordinator whose answers the test gives."""

    def __init__(self, directory: Path, **options: Any) -> None:
        self.broker = DataPath(directory)
        self.log = self.broker.lead("t").log
        name_coordinators(self.broker.metadata, 0)
        self.coordinators = Coordinators(self.broker.metadata, **options)

    def request(
        self, *batches: bytes, transactional_id: str | None = "pay", version: int = WITH_ABORTABLE, first: int = 0
    ) -> Produce:
        partitions = [TopicPartition("t", index) for index in range(first, first + len(batches))]
        options = ProduceOptions(version, "client", transactional_id, -1, 1000)
        views = [(memoryview(bytearray(each)), HEADER.unpack_from(each)) for each in batches]
        topics = [ProduceTopic("t", ZERO_UUID, len(batches))]
        head = ProduceHead(options, topics, partitions, [ZERO_UUID] * len(batches))
        return Produce(head, views, borrows=False)

    def begin(self, *requests: Produce) -> AppendTask[None] | None:
        """Append; what is left of it if that waits for the coordinator."""
        clock = self.broker.clock
        work = append(
            self.broker.replicas,
            list(requests),
            clock.wall_ms(),
            clock,
            self.coordinators.verifier,
            None,
        )
        for step in work:
            if step is not None:
                step.begin(lambda *_: None)
                return work
        return None

    def outcome(self, request: Produce) -> tuple[E, int]:
        ((appended, first_offset, _),) = request.outcomes
        return E.NONE if appended.error is None else appended.error.code, first_offset

    def end(self, *, is_commit: bool = True, epoch: int = 0) -> E:
        markers = TransactionMarkers(self.broker.replicas, lambda *_: None)
        markers.append(TransactionMarker(7, epoch, is_commit, 0), TP, self.broker.clock.wall_ms())
        return markers.codes[7][TP]


@pytest.fixture
def producing(tmp_path: Path) -> Producing:
    return Producing(tmp_path)


def transactional(sequence: int = 0, *, epoch: int = 0, producer_id: int = 7, **options: Any) -> bytearray:
    return batch(
        b"v",
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=options.pop("is_transactional", True),
    )


def go_on(work: AppendTask[None] | None) -> None:
    assert work is not None
    assert list(work) == []


def test_the_first_batch_of_a_transaction_waits_for_the_coordinator(producing: Producing) -> None:
    """What follows it in the transaction does not; the first one after the marker waits again."""
    first = producing.request(transactional())
    work = producing.begin(first)
    assert producing.log.log_end_offset == 0
    producing.coordinators.confirm()
    go_on(work)
    assert producing.outcome(first) == (E.NONE, 0)
    second = producing.request(transactional(1))
    assert producing.begin(second) is None
    assert producing.outcome(second) == (E.NONE, 1)
    assert producing.end() == E.NONE
    assert producing.begin(producing.request(transactional(2))) is not None


def test_a_late_batch_that_was_confirmed_before_its_transaction_ended_is_refused(producing: Producing) -> None:
    """The coordinator's answer was about the transaction that the marker ended."""
    late = producing.request(transactional())
    work = producing.begin(late)
    assert producing.end(is_commit=False) == E.NONE
    producing.coordinators.confirm()
    go_on(work)
    assert producing.outcome(late) == (E.INVALID_TXN_STATE, -1)
    assert producing.log.last_stable_offset == producing.log.log_end_offset == 1


@pytest.mark.parametrize(
    ("code", "version", "expected"),
    [
        (E.TRANSACTION_ABORTABLE, WITH_ABORTABLE, E.TRANSACTION_ABORTABLE),
        (E.TRANSACTION_ABORTABLE, WITHOUT_ABORTABLE, E.INVALID_TXN_STATE),
        (E.INVALID_PRODUCER_ID_MAPPING, WITH_ABORTABLE, E.INVALID_PRODUCER_ID_MAPPING),
        (E.PRODUCER_FENCED, WITH_ABORTABLE, E.INVALID_PRODUCER_EPOCH),
        (E.CONCURRENT_TRANSACTIONS, WITH_ABORTABLE, E.NOT_ENOUGH_REPLICAS),
        (E.COORDINATOR_LOAD_IN_PROGRESS, WITHOUT_ABORTABLE, E.NOT_ENOUGH_REPLICAS),
        (E.NOT_COORDINATOR, WITHOUT_ABORTABLE, E.NOT_ENOUGH_REPLICAS),
    ],
)
def test_a_batch_that_is_not_confirmed_is_refused_with_an_error_of_its_version(
    producing: Producing, code: E, version: int, expected: E
) -> None:
    """Errors that pass become one that every client answers with a repetition."""
    request = producing.request(transactional(), version=version)
    work = producing.begin(request)
    producing.coordinators.confirm({TP: code})
    go_on(work)
    assert producing.outcome(request) == (expected, -1)
    assert producing.log.log_end_offset == 0


def test_requests_behind_one_that_waits_keep_their_order(producing: Producing) -> None:
    """Also a plain one of the same connection: nothing is appended before what came first."""
    first, second = producing.request(transactional()), producing.request(transactional(1))
    work = producing.begin(first, second)
    assert not second.outcomes
    producing.coordinators.confirm()
    go_on(work)
    assert [producing.outcome(first), producing.outcome(second)] == [(E.NONE, 0), (E.NONE, 1)]


def test_what_came_before_a_request_that_waits_is_written(producing: Producing) -> None:
    """Others may append to the same log meanwhile."""
    plain = producing.request(batch(b"v"), transactional_id=None)
    work = producing.begin(plain, producing.request(transactional()))
    assert work is not None
    assert producing.outcome(plain) == (E.NONE, 0)
    assert producing.log.log_end_offset == 1


def test_a_transactional_batch_needs_a_transactional_id(producing: Producing) -> None:
    """Else it would go around the rights to transactional ids; nothing of its
    request is appended."""
    producing.broker.lead("t", 1)
    alone = producing.request(transactional(), transactional_id=None)
    mixed = producing.request(batch(b"v"), transactional(), transactional_id=None)
    assert producing.begin(alone, mixed) is None
    assert producing.outcome(alone)[0] == E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert [each.error.code for each, _, _ in mixed.outcomes] == [E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED] * 2
    assert producing.log.log_end_offset == 0


def test_a_request_has_one_transactional_producer(producing: Producing) -> None:
    """Whose epoch is the same in all its batches."""
    producing.broker.lead("t", 1)
    for other in (transactional(producer_id=8), transactional(epoch=1)):
        request = producing.request(transactional(), other)
        assert producing.begin(request) is None
        assert [each.error.code for each, _, _ in request.outcomes] == [E.INVALID_PRODUCER_ID_MAPPING] * 2


def test_only_partitions_that_are_led_here_are_asked_about(producing: Producing) -> None:
    """The others are refused with their own error, those that are confirmed appended."""
    producing.broker.lead("t", 2, leader=1, replicas=(0, 1))
    request = producing.request(transactional(), transactional(), transactional())
    work = producing.begin(request)
    (transaction,) = producing.coordinators.asked[0][1].transactions
    assert [topic.partitions for topic in transaction.topics] == [[0]]
    producing.coordinators.confirm()
    go_on(work)
    codes = [E.NONE if each.error is None else each.error.code for each, _, _ in request.outcomes]
    assert codes == [E.NONE, E.UNKNOWN_TOPIC_OR_PARTITION, E.NOT_LEADER_OR_FOLLOWER]


def test_a_partition_that_is_gained_while_the_request_waits_is_asked_about_by_the_next_one(
    producing: Producing,
) -> None:
    """The client repeats the request after NOT_LEADER_OR_FOLLOWER."""
    request = producing.request(transactional(), transactional())
    work = producing.begin(request)
    producing.broker.lead("t", 1)
    producing.coordinators.confirm()
    go_on(work)
    assert request.outcomes[1][0].error.code == E.NOT_LEADER_OR_FOLLOWER


def test_without_verification_transactions_are_appended_at_once(tmp_path: Path) -> None:
    """transaction.partition.verification.enable=false."""
    producing = Producing(tmp_path, is_enabled=False)
    request = producing.request(transactional())
    assert producing.begin(request) is None
    assert producing.outcome(request) == (E.NONE, 0)


@pytest.mark.parametrize("is_enabled", [True, False])
def test_verification_is_switched_while_the_broker_runs(producing: Producing, is_enabled: bool) -> None:
    """It is one of the settings of the whole cluster that can change."""
    settings = producing.broker.config.values.replace(
        {"transaction.partition.verification.enable": str(is_enabled).lower()}
    )
    producing.coordinators.verifier.settings_changed(settings)
    assert (producing.begin(producing.request(transactional())) is not None) == is_enabled


def test_a_fenced_producer_is_refused(producing: Producing) -> None:
    """A marker of a later epoch is what fences it in the log."""
    assert producing.end(is_commit=False, epoch=3) == E.NONE
    request = producing.request(transactional(epoch=2))
    work = producing.begin(request)
    producing.coordinators.confirm()
    go_on(work)
    assert producing.outcome(request) == (E.INVALID_PRODUCER_EPOCH, -1)


def test_a_plain_batch_inside_a_transaction_is_refused(producing: Producing) -> None:
    """Whether or not its request has a transactional id."""
    request = producing.request(transactional())
    work = producing.begin(request)
    producing.coordinators.confirm()
    go_on(work)
    for transactional_id in (None, "pay"):
        plain = producing.request(transactional(1, is_transactional=False), transactional_id=transactional_id)
        assert producing.begin(plain) is None
        assert producing.outcome(plain) == (E.INVALID_TXN_STATE, -1)


def test_questions_without_an_answer_do_not_fill_the_memory(producing: Producing) -> None:
    """Anybody can ask in the name of any producer. Some guards are kept for the next attempt."""
    producing.broker.metadata.update(UpdateMetadataRequest(live_brokers=[]))  # there is no coordinator
    for producer_id in range(3_000):
        request = producing.request(transactional(producer_id=producer_id))
        producing.begin(request)
    assert 0 < len(producing.log.producers._verifications) <= 1_001


# Transactions of version 2


@pytest.mark.parametrize(
    ("version", "level", "adds"),
    [(LEAVES_ADDING, 2, True), (LEAVES_ADDING, 1, True), (LEAVES_ADDING, 0, False), (WITH_ABORTABLE, 2, False)],
)
def test_partitions_are_added_for_clients_that_leave_that_to_the_broker(
    producing: Producing, version: int, level: int, adds: bool
) -> None:
    """Where the cluster has finalized transaction.version. Else they must have done it."""
    producing.coordinators.transaction_version = level
    request = producing.request(transactional(), version=version)
    work = producing.begin(request)
    (transaction,) = producing.coordinators.asked[0][1].transactions
    assert transaction.verify_only is not adds
    producing.coordinators.confirm()
    go_on(work)
    assert producing.outcome(request) == (E.NONE, 0)


def test_a_client_that_leaves_the_adding_to_the_broker_repeats_its_request(producing: Producing) -> None:
    """While its transaction before this one is still being ended."""
    producing.coordinators.transaction_version = 2
    request = producing.request(transactional(), version=LEAVES_ADDING)
    work = producing.begin(request)
    producing.coordinators.confirm({TP: E.CONCURRENT_TRANSACTIONS})
    go_on(work)
    assert producing.outcome(request) == (E.CONCURRENT_TRANSACTIONS, -1)


def test_partitions_are_added_also_without_verification(tmp_path: Path) -> None:
    """Else the coordinator would not know where to end the transaction."""
    producing = Producing(tmp_path, is_enabled=False)
    producing.coordinators.transaction_version = 2
    assert producing.begin(producing.request(transactional(), version=LEAVES_ADDING)) is not None


def test_a_transaction_with_an_epoch_of_its_own_begins_with_the_first_sequence(producing: Producing) -> None:
    """A later batch has overtaken the first one, also where the log knows no such producer."""
    producing.coordinators.transaction_version = 2
    request = producing.request(transactional(1), version=LEAVES_ADDING)
    work = producing.begin(request)
    producing.coordinators.confirm()
    go_on(work)
    assert producing.outcome(request) == (E.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)


def test_a_client_that_leaves_the_adding_to_the_broker_asks_again_after_a_marker(producing: Producing) -> None:
    """The marker of its last transaction came while the question was under way: the answer may be
    about either."""
    producing.coordinators.transaction_version = 2
    request = producing.request(transactional(epoch=1), version=LEAVES_ADDING)
    work = producing.begin(request)
    assert producing.end(epoch=1) == E.NONE
    producing.coordinators.confirm()
    go_on(work)
    assert producing.outcome(request) == (E.CONCURRENT_TRANSACTIONS, -1)
    again = producing.request(transactional(epoch=1), version=LEAVES_ADDING)
    work = producing.begin(again)
    producing.coordinators.confirm()
    go_on(work)
    assert producing.outcome(again) == (E.NONE, 1)
