"""The transaction coordinator: for each request and each deadline, what to write and
what to answer.

A step (a public method) takes an event and the time and returns effects: `AnswerProducer`,
`AppendTransactions`, `SendMarkers` and `NewProducerId`. The edge performs them in order and reports
outcomes to `appended` and `markers_written`, which are steps again. A transaction changes in
`appended` only, when its record is committed; the one exception is the epoch that fences a
producer. Loading reads the same records.

Transactional ids belong to partitions of ``__transaction_state``:
``abs(hash(transactional id)) % partitions``. The steps of a partition are loading (`start_loading`,
`finish_loading`) and `unload`, each with the leader epoch they are for.

The end of a transaction: EndTxn writes PrepareCommit or PrepareAbort. When that is committed the
producer is answered, and the outcome is decided: whatever happens, this coordinator or the next one
writes a marker to each partition of the transaction, then CompleteCommit or CompleteAbort. Until
then the transactional id takes no other request.

In Kafka: `TransactionCoordinator`, and of `TransactionStateManager` what transactions there are and
which partitions are loaded.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import repeat
from typing import Any

from barnabas.base.clock import Now
from barnabas.broker.coordinators.partitions import LedPartitions
from barnabas.broker.metadata.features import TRANSACTION_V2
from barnabas.broker.transactions.deadlines import Deadlines
from barnabas.broker.transactions.effects import (
    AnswerProducer,
    AppendTransactions,
    Completion,
    InitProducerId,
    NewProducerId,
    Owned,
    ProducerAnswer,
    SendMarkers,
    TransactionEffect,
    TransactionSender,
    TransactionSettings,
)
from barnabas.broker.transactions.states import END_OUTCOMES, END_OUTCOMES_V2, TransactionState
from barnabas.broker.transactions.transaction import (
    Partitions,
    TransactionMetadata,
    Transition,
    is_subset,
)
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.records.batch_header import NO_PRODUCER_ID

__all__ = ["TransactionCoordinator"]

_APPEND_ERRORS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
_RETRY_MS = 100


class TransactionCoordinator:
    """All transactional ids that this broker coordinates."""

    def __init__(
        self,
        settings: TransactionSettings,
        partition_of: Callable[[str], int],
        take_producer_id: Callable[[], int | None],
        transaction_version: Callable[[], int] = lambda: 0,
    ) -> None:
        """``partition_of`` gives a transactional id's partition, ``take_producer_id`` a new id,
        None if one must be waited for. ``transaction_version`` gives the finalized level of that
        feature, 0 for none."""
        self.settings = settings
        self.is_active = True
        self.ended = {True: 0, False: 0}
        """How many transactions were committed, and how many aborted."""
        self._partition_of = partition_of
        self._take_producer_id = take_producer_id
        self._transaction_version = transaction_version
        self._partitions = LedPartitions(Owned)
        self._deadlines = Deadlines()
        self._now = Now(0, 0)
        self._effects: list[TransactionEffect] = []

    # Looking up

    def check(self, transactional_id: str) -> ErrorCode:
        """Whether requests for the transactional id can be served here: NONE, or
        what to answer instead."""
        if not transactional_id:
            return ErrorCode.INVALID_REQUEST
        if not self.is_active:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        owned = self._partitions.get(self._partition_of(transactional_id))
        if owned is None:
            return ErrorCode.NOT_COORDINATOR
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if owned.is_loading else ErrorCode.NONE

    def find(self, transactional_id: str) -> TransactionMetadata | None:
        """A transactional id's state, if it is known here."""
        owned = self._partitions.get(self._partition_of(transactional_id))
        return None if owned is None else owned.transactions.get(transactional_id)

    def transactions(self) -> Iterator[TransactionMetadata]:
        """All that there are, each partition's as it is when its turn comes."""
        for owned in tuple(self._partitions.values()):
            yield from tuple(owned.transactions.values())

    @property
    def is_loading(self) -> bool:
        return self._partitions.is_loading

    def _found(self, sender: TransactionSender) -> tuple[Owned, TransactionMetadata] | ErrorCode:
        """The transaction of a producer, or why the producer has none."""
        error = self.check(sender.transactional_id)
        if error:
            return error
        owned = self._partitions[self._partition_of(sender.transactional_id)]
        transaction = owned.transactions.get(sender.transactional_id)
        if transaction is None or transaction.producer_id != sender.producer_id:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        if transaction.producer_epoch != sender.producer_epoch:
            return ErrorCode.PRODUCER_FENCED
        return owned, transaction

    # Requests of producers

    def init_producer_id(
        self, request: InitProducerId, to: Any, now: Now, new_producer_id: int | None = None
    ) -> list[TransactionEffect]:
        """Give a producer its id and the next epoch; ``to`` gets a `ProducerAnswer`.

        A transaction that an earlier producer left open is aborted first: the answer is
        CONCURRENT_TRANSACTIONS until it is.
        """
        self._now = now
        error = self.check(request.transactional_id)
        if request.transactional_id and not 0 < request.timeout_ms <= self.settings.max_timeout_ms:
            error = ErrorCode.INVALID_TRANSACTION_TIMEOUT
        if error:
            self._reply(to, ProducerAnswer(error))
            return self._take()
        owned = self._partitions[self._partition_of(request.transactional_id)]
        transaction = owned.transactions.get(request.transactional_id)
        if _needs_producer_id(transaction, request):
            if new_producer_id is None:
                new_producer_id = self._take_producer_id()
            if new_producer_id is None:
                self._effects.append(NewProducerId(to, partial(self.init_producer_id, request, to)))
                return self._take()
        if transaction is None:
            assert new_producer_id is not None
            transaction = TransactionMetadata.new(
                request.transactional_id, new_producer_id, request.timeout_ms, now.wall_ms
            )
            owned.transactions[request.transactional_id] = transaction
        self._init(owned, transaction, request, new_producer_id, to)
        return self._take()

    def _init(
        self,
        owned: Owned,
        transaction: TransactionMetadata,
        request: InitProducerId,
        new_producer_id: int | None,
        to: Any,
    ) -> None:
        expected, wall_ms = request.expected, self._now.wall_ms
        prepared: Transition | ErrorCode
        if transaction.pending is not None or transaction.state.is_prepared:
            prepared = ErrorCode.CONCURRENT_TRANSACTIONS
        elif expected is not None and not transaction.accepts_expected(expected):
            prepared = ErrorCode.PRODUCER_FENCED
        elif transaction.state is TransactionState.ONGOING:
            if expected is not None and expected.epoch < transaction.producer_epoch:
                # A producer that is fenced itself must not abort the transaction of the one that
                # fenced it. (In Kafka it does.)
                prepared = ErrorCode.PRODUCER_FENCED
            else:
                again = ErrorCode.CONCURRENT_TRANSACTIONS
                self._abort_and_fence(owned, transaction, lambda error: self._reply(to, ProducerAnswer(error or again)))
                return
        elif _needs_producer_id(transaction, request):
            assert new_producer_id is not None
            prepared = transaction.prepare_rotation(
                new_producer_id, request.timeout_ms, wall_ms, keeps_last_epoch=expected is not None
            )
        else:
            prepared = transaction.prepare_increment(request.timeout_ms, expected, wall_ms)
        if isinstance(prepared, ErrorCode):
            self._reply(to, ProducerAnswer(prepared))
            return
        answer = ProducerAnswer(ErrorCode.NONE, prepared.producer_id, prepared.producer_epoch)

        def written(error: ErrorCode) -> None:
            if error and transaction.is_new and owned.transactions.get(transaction.transactional_id) is transaction:
                # Nothing is known of it but in memory.
                del owned.transactions[transaction.transactional_id]
            self._reply(to, ProducerAnswer(error) if error else answer)

        self._append(owned, transaction, prepared, written)

    def add_partitions(
        self, sender: TransactionSender, partitions: Partitions, to: Any, now: Now
    ) -> list[TransactionEffect]:
        """Add partitions to the producer's transaction, or begin one with them.

        ``to`` gets an `ErrorCode`."""
        self._now = now
        found = self._found(sender)
        if isinstance(found, ErrorCode):
            self._reply(to, found)
            return self._take()
        owned, transaction = found
        if transaction.pending is not None or transaction.state.is_prepared:
            self._reply(to, ErrorCode.CONCURRENT_TRANSACTIONS)
        elif transaction.state is TransactionState.ONGOING and is_subset(partitions, transaction.partitions):
            self._reply(to, ErrorCode.NONE)
        else:
            prepared = transaction.prepare_add(partitions, now.wall_ms)
            self._append(owned, transaction, prepared, partial(self._reply, to))
        return self._take()

    def verify_partitions(
        self, sender: TransactionSender, partitions: Partitions
    ) -> Mapping[str, Mapping[int, ErrorCode]]:
        """Which partitions are part of the producer's transaction (KIP-890): NONE,
        TRANSACTION_ABORTABLE, or why none is.

        A change under way does not matter: the log checks once more when it appends.
        """
        found = self._found(sender)
        known: Partitions = {}
        other = ErrorCode.TRANSACTION_ABORTABLE
        if isinstance(found, ErrorCode):
            other = found
        elif found[1].state.is_prepared:
            other = ErrorCode.CONCURRENT_TRANSACTIONS
        else:
            known = found[1].partitions
        return {
            topic: {number: ErrorCode.NONE if number in known.get(topic, frozenset()) else other for number in numbers}
            for topic, numbers in partitions.items()
        }

    def end(
        self,
        sender: TransactionSender,
        committed: bool,
        to: Any,
        now: Now,
        version: int = 0,
        new_producer_id: int | None = None,
    ) -> list[TransactionEffect]:
        """Commit or abort the producer's transaction; ``to`` gets a `ProducerAnswer`
        when that is decided for good.

        ``version`` is that of the client's transactions: from 2 on the answer has another epoch, or
        another producer id, for the next one.
        """
        self._now = now
        is_version_2 = version >= TRANSACTION_V2
        found = self._found_with_last(sender) if is_version_2 else self._found(sender)
        if isinstance(found, ErrorCode):
            self._reply(to, ProducerAnswer(found))
            return self._take()
        owned, transaction = found
        has_ended = is_version_2 and transaction.has_ended(sender.producer)
        outcome: TransactionState | ErrorCode
        if transaction.pending is not None:
            outcome = ErrorCode.CONCURRENT_TRANSACTIONS
        elif is_version_2:
            outcome = END_OUTCOMES_V2[transaction.state, committed, has_ended]
            if outcome is TransactionState.PREPARE_ABORT and transaction.is_over and not self._transaction_version():
                # Behind a downgrade to level 0 no partition is added for this producer. It has to
                # begin again, or each of its transactions would fail.
                outcome = ErrorCode.INVALID_TXN_STATE
        else:
            outcome = END_OUTCOMES[transaction.state, committed]
        if isinstance(outcome, ErrorCode):
            self._reply(to, _current_answer(transaction) if not outcome else ProducerAnswer(outcome))
            return self._take()
        if is_version_2 and transaction.is_epoch_exhausted and new_producer_id is None:
            new_producer_id = self._take_producer_id()
            if new_producer_id is None:
                self._effects.append(
                    NewProducerId(to, lambda later, new_id: self.end(sender, committed, to, later, version, new_id))
                )
                return self._take()
        next_id = new_producer_id if new_producer_id is not None and transaction.is_epoch_exhausted else NO_PRODUCER_ID
        prepared = transaction.prepare_end(outcome, now.wall_ms, version=version, next_producer_id=next_id)

        def written(error: ErrorCode) -> None:
            if error:
                self._reply(to, ProducerAnswer(error))
                return
            self.ended[committed] += 1
            completion = self._complete(owned, transaction)
            _, producer_id, producer_epoch, *_ = completion.transition
            # The answer first: to queue markers takes as long as an append.
            self._reply(to, ProducerAnswer(ErrorCode.NONE, producer_id, producer_epoch))
            self._effects.append(SendMarkers(completion))

        self._append(owned, transaction, prepared, written)
        return self._take()

    def _found_with_last(self, sender: TransactionSender) -> tuple[Owned, TransactionMetadata] | ErrorCode:
        """Like `_found` for EndTxn of version 2, which the producer may repeat with
        the epoch before."""
        found = self._found(sender)
        if not isinstance(found, ErrorCode):
            # No producer has received the epoch that a decided transaction leaves behind.
            return ErrorCode.PRODUCER_FENCED if found[1].state.is_prepared else found
        transaction = None if self.check(sender.transactional_id) else self.find(sender.transactional_id)
        if transaction is None or not transaction.has_ended(sender.producer):
            return found
        return self._partitions[self._partition_of(sender.transactional_id)], transaction

    def _abort_and_fence(
        self, owned: Owned, transaction: TransactionMetadata, done: Callable[[ErrorCode], None]
    ) -> None:
        """Abort the transaction under way and fence its producer."""
        prepared = transaction.prepare_fencing_abort(self._now.wall_ms, self._transaction_version())

        def written(error: ErrorCode) -> None:
            transaction.has_failed_fence = bool(error)
            done(error)
            if not error:
                self.ended[False] += 1
                self._effects.append(SendMarkers(self._complete(owned, transaction)))

        self._append(owned, transaction, prepared, written)

    # Completion

    def _complete(self, owned: Owned, transaction: TransactionMetadata) -> Completion:
        """The outcome is in the log: what the markers are written for."""
        return Completion(owned, transaction, transaction.prepare_complete(self._now.wall_ms))

    def is_wanted(self, completion: Completion) -> bool:
        """Whether markers of this coordinator are to be written: not once another one has taken
        over, or this one again."""
        return not completion.is_cancelled and completion.owned.is_led

    def markers_written(self, completion: Completion, now: Now) -> list[TransactionEffect]:
        """Every partition has its marker: write the last record of the transaction."""
        self._now = now
        if self.is_wanted(completion):
            self._append_completion(completion)
        return self._take()

    def _append_completion(self, completion: Completion) -> None:
        def written(error: ErrorCode) -> None:
            if error and error is not ErrorCode.NOT_COORDINATOR:
                self._deadlines.retry(completion, self._now.ms + _RETRY_MS)

        self._append(completion.owned, completion.transaction, completion.transition, written, keeps_pending=True)

    # Outcomes of appends

    def _append(
        self,
        owned: Owned,
        transaction: TransactionMetadata,
        prepared: Transition,
        done: Callable[[ErrorCode], None],
        *,
        keeps_pending: bool = False,
    ) -> None:
        """Write a prepared change, and complete it when its record is committed.

        A change whose record may be written later, after a timeout, is given up: what is decided
        next is written behind it. With ``keeps_pending`` it is tried again.
        """

        def written(error: ErrorCode) -> None:
            if not error:
                transaction.complete(prepared)
            elif not keeps_pending:
                transaction.give_up()
            done(error)

        self._effects.append(
            AppendTransactions(owned, [(transaction.transactional_id, prepared)], prepared.timeout_ms, written)
        )

    def appended(self, append: AppendTransactions, error: ErrorCode, now: Now) -> list[TransactionEffect]:
        """The records of ``append`` are committed, or not (``error``)."""
        self._now = now
        if not append.owned.is_led:
            # It was loaded again meanwhile, or by another broker, which knows better.
            error = ErrorCode.NOT_COORDINATOR
        append.done(_APPEND_ERRORS.get(error, error))
        return self._take()

    def _take(self) -> list[TransactionEffect]:
        """The effects since the last call."""
        effects, self._effects = self._effects, []
        return effects

    def _reply(self, to: Any, answer: Any) -> None:
        self._effects.append(AnswerProducer(to, answer))

    # Time

    def start_deadlines(self, now: Now) -> None:
        """Abort transactions past their timeout, and remove expired transactional
        ids, from now on."""
        self._deadlines.start(now.ms + self.settings.abort_interval_ms, now.ms + self.settings.expiration_interval_ms)

    def next_deadline_ms(self) -> int | None:
        """When `tick` is to be called next, on the monotonic clock."""
        return self._deadlines.next_ms()

    def tick(self, now: Now) -> list[TransactionEffect]:
        """Do what is due, or a part of it: `next_deadline_ms` says whether there is more."""
        self._now = now
        due, settings = self._deadlines, self.settings
        self._complete_decided()
        for completion in due.pop_retries(now.ms):
            if self.is_wanted(completion):
                self._append_completion(completion)
        if due.is_abort_due(now.ms):
            due.to_abort = due.to_abort or self._everything()
            for owned, transaction in due.pop_timed_out(now.wall_ms):
                if owned.has(transaction):
                    self._abort_and_fence(owned, transaction, _no_answer)
            due.abort_ms = now.ms + (1 if due.to_abort else settings.abort_interval_ms)
        if due.is_expiry_due(now.ms):
            due.to_expire = due.to_expire or self._everything()
            self._expire(due.pop_expired(now.wall_ms - settings.expiration_ms))
            due.expiry_ms = now.ms + (1 if due.to_expire else settings.expiration_interval_ms)
        return self._take()

    def _everything(self) -> Iterator[tuple[Owned, TransactionMetadata]]:
        """The transactions of each partition as they are when its turn comes."""
        for owned in tuple(self._partitions.values()):
            for transaction in () if owned.is_loading else tuple(owned.transactions.values()):
                yield owned, transaction

    def _expire(self, found: Iterable[tuple[Owned, TransactionMetadata]]) -> None:
        """Write tombstones for transactional ids that were not used for long."""
        expired: dict[int, list[TransactionMetadata]] = {}
        for owned, transaction in found:
            if owned.has(transaction):
                transaction.prepare_dead()
                expired.setdefault(owned.number, []).append(transaction)
        for number, transactions in expired.items():
            self._write_tombstones(self._partitions[number], transactions)

    def _write_tombstones(self, owned: Owned, transactions: list[TransactionMetadata]) -> None:
        def written(error: ErrorCode) -> None:
            for transaction in transactions:
                if error:
                    transaction.give_up()
                else:
                    owned.transactions.pop(transaction.transactional_id, None)

        records = [(transaction.transactional_id, None) for transaction in transactions]
        self._effects.append(AppendTransactions(owned, records, self.settings.request_timeout_ms, written))

    # Partitions coming and going

    def start_loading(self, number: int, leader_epoch: int) -> bool:
        """This broker leads the partition now.

        False when there is nothing to do (an old epoch, or loaded already)."""
        return self._partitions.start_loading(number, leader_epoch)

    def is_awaited(self, number: int, leader_epoch: int) -> bool:
        """Whether the loading that `start_loading` began for the epoch is still wanted."""
        return self._partitions.is_awaited(number, leader_epoch)

    def finish_loading(
        self, number: int, leader_epoch: int, transactions: dict[str, TransactionMetadata], now: Now
    ) -> list[TransactionEffect]:
        """Serve the transactions that the partition's log holds, unless the
        partition was lost meanwhile.

        What was decided under an earlier coordinator is completed: its markers are written again,
        under our epoch. Here for the first of many transactions, by `tick` for the others.
        """
        self._now = now
        if not self.is_awaited(number, leader_epoch):
            return []
        owned = self._partitions[number]
        owned.is_loading = False
        owned.transactions = transactions
        self._deadlines.loaded(zip(repeat(owned), tuple(transactions.values()), strict=False), now.ms)
        self._complete_decided()
        return self._take()

    def _complete_decided(self) -> None:
        """Complete some of what earlier coordinators have decided."""
        for owned, transaction in self._deadlines.pop_decided(self._now.ms):
            if owned.has(transaction):
                self._effects.append(SendMarkers(self._complete(owned, transaction)))

    def unload(self, number: int, leader_epoch: int | None) -> None:
        """Another broker leads the partition, in ``leader_epoch``, or it was deleted (None)."""
        self._partitions.unload(number, leader_epoch)


def _needs_producer_id(transaction: TransactionMetadata | None, request: InitProducerId) -> bool:
    if transaction is None:
        return True
    if transaction.pending is not None or not transaction.is_over or not transaction.is_epoch_exhausted:
        return False
    expected = request.expected
    return expected is None or (transaction.accepts_expected(expected) and expected.epoch == transaction.producer_epoch)


def _current_answer(transaction: TransactionMetadata) -> ProducerAnswer:
    return ProducerAnswer(ErrorCode.NONE, transaction.producer_id, transaction.producer_epoch)


def _no_answer(_: ErrorCode) -> None:
    """No request waits for this."""
