"""The effects of the transaction coordinator, its questions and answers, and its settings.

In Kafka: response callbacks, `TransactionStateManager.appendTransactionToLog`,
`TransactionMarkerChannelManager.addTxnMarkersToSend`, `TransactionConfig`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from barnabas.base.clock import Now
from barnabas.base.settings import Values
from barnabas.broker.coordinators.partitions import LedPartition
from barnabas.broker.transactions.transaction import (
    ProducerIdAndEpoch,
    TransactionMetadata,
    Transition,
)
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.records.batch_header import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

__all__ = [
    "AnswerProducer",
    "AppendTransactions",
    "Completion",
    "InitProducerId",
    "NewProducerId",
    "Owned",
    "ProducerAnswer",
    "SendMarkers",
    "TransactionEffect",
    "TransactionSender",
    "TransactionSettings",
]


class TransactionSender(NamedTuple):
    """The producer that a request is from, as it says."""

    transactional_id: str
    producer_id: int
    producer_epoch: int

    @property
    def producer(self) -> ProducerIdAndEpoch:
        return ProducerIdAndEpoch(self.producer_id, self.producer_epoch)


class InitProducerId(NamedTuple):
    """What an InitProducerId request with a transactional id asks for."""

    transactional_id: str
    timeout_ms: int
    expected: ProducerIdAndEpoch | None
    """What the producer has, if it continues after an error (KIP-360)."""


class ProducerAnswer(NamedTuple):
    """The answer to InitProducerId and to EndTxn."""

    error: ErrorCode
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH


class Owned(LedPartition):
    """A partition of ``__transaction_state`` that this broker leads."""

    __slots__ = ("transactions",)

    def __init__(self, number: int, leader_epoch: int) -> None:
        super().__init__(number, leader_epoch)
        self.transactions: dict[str, TransactionMetadata] = {}

    @property
    def coordinator_epoch(self) -> int:
        """What markers carry: leaders refuse those of earlier coordinators."""
        return self.loading_epoch

    def has(self, transaction: TransactionMetadata) -> bool:
        """Whether this broker coordinates the transaction: not once it has lost the partition, or
        forgotten the transactional id."""
        return self.is_led and self.transactions.get(transaction.transactional_id) is transaction


class AnswerProducer(NamedTuple):
    """Answer a request."""

    to: Any
    answer: Any


class NewProducerId(NamedTuple):
    """Get a producer id, and decide on the request again with it."""

    to: Any
    """Gets a `ProducerAnswer` if there is none."""
    decide: "Callable[[Now, int], list[TransactionEffect]]"


_LARGE = 2_000


class AppendTransactions:
    """Write the records of some transactional ids of a partition in one batch.

    The edge reports the outcome to `TransactionCoordinator.appended`.
    """

    __slots__ = ("done", "owned", "records", "timeout_ms")

    def __init__(
        self,
        owned: Owned,
        records: Sequence[tuple[str, Transition | None]],
        timeout_ms: int,
        done: Callable[[ErrorCode], None],
    ) -> None:
        self.owned = owned
        self.records = records
        """Transactional ids, each with its new state or a tombstone."""
        self.timeout_ms = timeout_ms
        """How long to wait for the in-sync replicas."""
        self.done = done
        """What to decide once the outcome is known."""

    @property
    def is_large(self) -> bool:
        """Whether encoding it takes more than some milliseconds: for its topics or partitions."""
        return any(
            value is not None and sum(map(len, value.partitions.values()), len(value.partitions)) > _LARGE
            for _, value in self.records
        )


class Completion:
    """A transaction whose outcome is decided, until its markers and then its last
    record are written.

    In Kafka: `PendingCompleteTxn`.
    """

    __slots__ = ("has_all_markers", "is_cancelled", "owned", "transaction", "transition")

    def __init__(self, owned: Owned, transaction: TransactionMetadata, transition: Transition) -> None:
        self.owned = owned
        self.transaction = transaction
        self.transition = transition
        """What is written when all markers are."""
        self.is_cancelled = False
        """Whether another coordinator has taken over, or is about to."""
        self.has_all_markers = False


class SendMarkers(NamedTuple):
    """Write the markers of a transaction to all its partitions, then report to
    `TransactionCoordinator.markers_written`."""

    completion: Completion


TransactionEffect = AnswerProducer | NewProducerId | AppendTransactions | SendMarkers


@dataclass(frozen=True, slots=True)
class TransactionSettings:
    """The broker's settings that the coordinator decides by; defaults as in Kafka."""

    max_timeout_ms: int = 900_000
    abort_interval_ms: int = 10_000
    expiration_ms: int = 7 * 24 * 3_600_000
    expiration_interval_ms: int = 3_600_000
    request_timeout_ms: int = 30_000

    @classmethod
    def of(cls, values: Values) -> "TransactionSettings":
        return cls(
            max_timeout_ms=values["transaction.max.timeout.ms"],
            abort_interval_ms=values["transaction.abort.timed.out.transaction.cleanup.interval.ms"],
            expiration_ms=values["transactional.id.expiration.ms"],
            expiration_interval_ms=values["transaction.remove.expired.transaction.cleanup.interval.ms"],
            request_timeout_ms=values["request.timeout.ms"],
        )
