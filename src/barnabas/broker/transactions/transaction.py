"""A transactional id's producer and its newest transaction (Kafka's `TransactionMetadata`).

Every change is prepared, written to ``__transaction_state``, and completed when the record is
committed. While one is prepared, ``pending`` is the state to come, and all other changes are
answered with CONCURRENT_TRANSACTIONS. A `Transition` is what the record says
(`TxnTransitMetadata`). Here are the rules about producer ids and epochs; the coordinator
decides on requests.

An epoch is exhausted at 32,766: 32,767 is left for fencing the last producer of the id (KIP-98), so
the next one gets a new producer id.
"""

from collections.abc import Mapping
from typing import NamedTuple

from barnabas.broker.metadata.features import TRANSACTION_V2
from barnabas.broker.transactions.states import TRANSACTION_TRANSITIONS, TransactionState
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.records.batch_header import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

__all__ = [
    "NO_PARTITIONS",
    "Partitions",
    "ProducerIdAndEpoch",
    "TransactionMetadata",
    "Transition",
    "is_exhausted",
    "is_subset",
    "merged",
]

Partitions = Mapping[str, frozenset[int]]
"""Partitions by topic; no topic without any."""
NO_PARTITIONS: Partitions = {}
_NOT_STARTED = -1
_LAST_EPOCH = (1 << 15) - 1


class ProducerIdAndEpoch(NamedTuple):
    """What a producer says it has."""

    producer_id: int
    epoch: int


class Transition(NamedTuple):
    """What a transaction becomes. Times are wall-clock milliseconds."""

    state: TransactionState
    producer_id: int
    producer_epoch: int
    previous_producer_id: int
    """The producer id before, for a producer that repeats a request whose answer it
    did not get (KIP-360)."""
    last_producer_epoch: int
    """The epoch before, likewise; -1 where a new producer has begun."""
    next_producer_id: int
    """The producer id after a transaction whose end exhausts the epoch (version 2);
    -1 otherwise."""
    timeout_ms: int
    partitions: Partitions
    start_ms: int
    """When the first partition was added; -1 where no transaction has begun."""
    update_ms: int
    client_version: int
    """The transaction version of the client that ended it: 0, or 2, which raises the epoch with
    each transaction (KIP-890)."""


class TransactionMetadata:
    """The state of one transactional id."""

    __slots__ = (
        "_owns_partitions",
        "client_version",
        "has_failed_fence",
        "last_producer_epoch",
        "next_producer_id",
        "partitions",
        "pending",
        "previous_producer_id",
        "producer_epoch",
        "producer_id",
        "start_ms",
        "state",
        "timeout_ms",
        "transactional_id",
        "update_ms",
    )

    def __init__(self, transactional_id: str, current: Transition) -> None:
        self.transactional_id = transactional_id
        self.pending: TransactionState | None = None
        """The state that is being written."""
        self.has_failed_fence = False
        """Whether the epoch was raised to fence a producer, and the record of that may not have
        been written. No producer has received the epoch, so it is not raised again."""
        self.state: TransactionState
        self.producer_id: int
        self.producer_epoch: int
        self.previous_producer_id: int
        self.last_producer_epoch: int
        self.next_producer_id: int
        self.timeout_ms: int
        self.partitions: Partitions
        self.start_ms: int
        self.update_ms: int
        self.client_version: int
        self._owns_partitions: bool
        self._take(current)

    @classmethod
    def new(cls, transactional_id: str, producer_id: int, timeout_ms: int, wall_ms: int) -> "TransactionMetadata":
        """One whose first producer is still to get its epoch."""
        state = TransactionState.EMPTY
        unset = (NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_PRODUCER_EPOCH, NO_PRODUCER_ID)
        return cls(
            transactional_id,
            Transition(state, producer_id, *unset, timeout_ms, NO_PARTITIONS, _NOT_STARTED, wall_ms, 0),
        )

    @property
    def current(self) -> Transition:
        """The state as a record has it."""
        return Transition(
            self.state,
            self.producer_id,
            self.producer_epoch,
            self.previous_producer_id,
            self.last_producer_epoch,
            self.next_producer_id,
            self.timeout_ms,
            self.partitions,
            self.start_ms,
            self.update_ms,
            self.client_version,
        )

    @property
    def is_new(self) -> bool:
        """Whether no record of it was ever committed."""
        return self.producer_epoch == NO_PRODUCER_EPOCH

    @property
    def is_over(self) -> bool:
        """Whether no transaction is open or being completed."""
        return self.state.may_expire

    @property
    def is_epoch_exhausted(self) -> bool:
        return is_exhausted(self.producer_epoch)

    def accepts_expected(self, expected: ProducerIdAndEpoch) -> bool:
        """Whether a producer that continues after an error is not fenced by its id (KIP-360).

        Its epoch is checked later. It may have the id before, if its epoch was exhausted and the
        answer with the new id was lost.
        """
        return (
            self.is_new
            or expected.producer_id == self.producer_id
            or (expected.producer_id == self.previous_producer_id and is_exhausted(expected.epoch))
        )

    # Changes

    def prepare_increment(
        self, timeout_ms: int, expected: ProducerIdAndEpoch | None, wall_ms: int
    ) -> Transition | ErrorCode:
        """The next epoch, for a new producer or one that continues.

        PRODUCER_FENCED if another one has begun since."""
        assert not self.is_epoch_exhausted or expected is not None
        if expected is None:
            epoch, last_epoch = self.producer_epoch + 1, NO_PRODUCER_EPOCH
        elif self.is_new or expected.epoch == self.producer_epoch:
            epoch, last_epoch = self.producer_epoch + 1, self.producer_epoch
        elif expected.epoch == self.last_producer_epoch:
            # The request is repeated: its answer was lost. No other producer began,
            # for that would have set -1.
            epoch, last_epoch = self.producer_epoch, self.last_producer_epoch
        else:
            return ErrorCode.PRODUCER_FENCED
        return self._prepare(
            self._unchanged._replace(
                state=TransactionState.EMPTY,
                producer_epoch=epoch,
                last_producer_epoch=last_epoch,
                timeout_ms=timeout_ms,
                partitions=NO_PARTITIONS,
                start_ms=_NOT_STARTED,
                client_version=0,
                update_ms=wall_ms,
            )
        )

    def prepare_rotation(
        self, new_producer_id: int, timeout_ms: int, wall_ms: int, *, keeps_last_epoch: bool
    ) -> Transition:
        """A new producer id with epoch 0, because the epoch is exhausted."""
        return self._prepare(
            self._unchanged._replace(
                state=TransactionState.EMPTY,
                producer_id=new_producer_id,
                previous_producer_id=self.producer_id,
                producer_epoch=0,
                last_producer_epoch=self.producer_epoch if keeps_last_epoch else NO_PRODUCER_EPOCH,
                timeout_ms=timeout_ms,
                partitions=NO_PARTITIONS,
                start_ms=_NOT_STARTED,
                client_version=0,
                update_ms=wall_ms,
            )
        )

    def prepare_add(self, partitions: Partitions, wall_ms: int) -> Transition:
        """More partitions, or the first of a transaction."""
        begins = self.state is not TransactionState.ONGOING
        return self._prepare(
            self._unchanged._replace(
                state=TransactionState.ONGOING,
                partitions=merged(NO_PARTITIONS if begins else self.partitions, partitions),
                start_ms=wall_ms if begins else self.start_ms,
                client_version=0,
                update_ms=wall_ms,
            )
        )

    def prepare_end(
        self, state: TransactionState, wall_ms: int, *, version: int = 0, next_producer_id: int = NO_PRODUCER_ID
    ) -> Transition:
        """The outcome is decided.

        In version 2 the next transaction has the next epoch, or the next producer id if this was
        the last one, so a request of this transaction that is late cannot join the next.
        """
        if version < TRANSACTION_V2:
            return self._prepare(self._unchanged._replace(state=state, client_version=0, update_ms=wall_ms))
        return self._prepare(
            self._unchanged._replace(
                state=state,
                producer_epoch=min(self.producer_epoch + 1, _LAST_EPOCH),
                last_producer_epoch=self.producer_epoch,
                next_producer_id=next_producer_id,
                start_ms=self.start_ms if self.state is TransactionState.ONGOING else wall_ms,
                client_version=version,
                update_ms=wall_ms,
            )
        )

    def has_ended(self, producer: ProducerIdAndEpoch) -> bool:
        """Whether the newest transaction was ended in version 2 by a producer with this id and
        epoch, which may repeat the request because its answer was lost.

        One that is fenced has not: the epoch is two further then, or at its end without a next
        producer id.
        """
        if self.client_version < TRANSACTION_V2 or not (self.is_over or self.state.is_prepared):
            return False
        if self.producer_id == producer.producer_id and self.producer_epoch == producer.epoch + 1:
            return self.producer_epoch < _LAST_EPOCH or self.next_producer_id != NO_PRODUCER_ID
        return (
            self.previous_producer_id == producer.producer_id
            and producer.epoch == _LAST_EPOCH - 1
            and self.producer_epoch == 0
        )

    def prepare_fencing_abort(self, wall_ms: int, version: int = 0) -> Transition:
        """Abort the transaction under way with a higher epoch, so that its producer
        can do nothing more.

        The epoch holds from now on, whatever becomes of the record.
        """
        assert self.state is TransactionState.ONGOING
        if not self.has_failed_fence:
            # No producer gets the last epoch, but a record may have it: one that a stranger guessed
            # while the record of the fencing failed. Such a transaction has to end, too.
            self.producer_epoch = min(self.producer_epoch + 1, _LAST_EPOCH)
        self.last_producer_epoch = NO_PRODUCER_EPOCH
        return self.prepare_end(TransactionState.PREPARE_ABORT, wall_ms, version=version)

    def prepare_complete(self, wall_ms: int) -> Transition:
        """All markers are written."""
        committed = self.state is TransactionState.PREPARE_COMMIT
        self.has_failed_fence = False
        state = TransactionState.COMPLETE_COMMIT if committed else TransactionState.COMPLETE_ABORT
        if self.next_producer_id == NO_PRODUCER_ID:
            return self._prepare(self._unchanged._replace(state=state, partitions=NO_PARTITIONS, update_ms=wall_ms))
        return self._prepare(
            self._unchanged._replace(
                state=state,
                producer_id=self.next_producer_id,
                producer_epoch=0,
                previous_producer_id=self.producer_id,
                partitions=NO_PARTITIONS,
                update_ms=wall_ms,
            )
        )

    def prepare_dead(self) -> None:
        """The tombstone is being written."""
        self._check_next(TransactionState.DEAD)
        self.pending = TransactionState.DEAD

    def complete(self, transition: Transition) -> None:
        """The record is committed."""
        assert self.pending is transition.state, f"{self.transactional_id}: {transition.state} was not prepared"
        self.pending = None
        self._take(transition)

    def give_up(self) -> None:
        """The record was not written, or may not have been: what is decided next is
        written after it."""
        self.pending = None

    def remove_partitions(self, topic: str, numbers: frozenset[int]) -> None:
        """The markers of these partitions are written."""
        assert self.state.is_prepared
        if not self._owns_partitions:
            # Transitions share them. Copied once: there may be thousands of topics, each with its
            # own call.
            self.partitions = dict(self.partitions)
            self._owns_partitions = True
        partitions = self.partitions
        assert isinstance(partitions, dict)
        left = partitions.pop(topic, frozenset()) - numbers
        if left:
            partitions[topic] = left

    def _check_next(self, state: TransactionState) -> None:
        assert self.pending is None, f"{self.transactional_id} is on its way to {self.pending}"
        assert state in TRANSACTION_TRANSITIONS[self.state], (
            f"{self.transactional_id} cannot go from {self.state} to {state}"
        )

    @property
    def _unchanged(self) -> Transition:
        """What a change begins from. A next producer id is for the end of one transaction only."""
        return self.current._replace(next_producer_id=NO_PRODUCER_ID)

    def _prepare(self, changed: Transition) -> Transition:
        self._check_next(changed.state)
        self.pending = changed.state
        return changed

    def _take(self, transition: Transition) -> None:
        (
            self.state,
            self.producer_id,
            self.producer_epoch,
            self.previous_producer_id,
            self.last_producer_epoch,
            self.next_producer_id,
            self.timeout_ms,
            self.partitions,
            self.start_ms,
            self.update_ms,
            self.client_version,
        ) = transition
        self._owns_partitions = False


def is_exhausted(epoch: int) -> bool:
    """Whether an epoch is the last one that a producer may have."""
    return epoch >= _LAST_EPOCH - 1


def merged(known: Partitions, more: Partitions) -> Partitions:
    """All partitions of both."""
    together: dict[str, frozenset[int]] = dict(known)
    for topic, numbers in more.items():
        together[topic] = together[topic] | numbers if topic in together else numbers
    return together


def is_subset(partitions: Partitions, known: Partitions) -> bool:
    """Whether all ``partitions`` are among those known."""
    return all(numbers <= known.get(topic, frozenset()) for topic, numbers in partitions.items())
