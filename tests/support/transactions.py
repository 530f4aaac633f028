"""A transaction coordinator whose log is a list: tests decide what becomes of each record."""

from collections import deque
from typing import Any

from barnabas.base.clock import Now
from barnabas.broker.transactions.coordinator import TransactionCoordinator
from barnabas.broker.transactions.effects import (
    AnswerProducer,
    AppendTransactions,
    Completion,
    InitProducerId,
    NewProducerId,
    SendMarkers,
    TransactionEffect,
    TransactionSender,
    TransactionSettings,
)
from barnabas.broker.transactions.transaction import Partitions, ProducerIdAndEpoch, TransactionMetadata, Transition
from barnabas.wire.kafka.errors import ErrorCode

START_MS = 1_700_000_000_000
FIRST_PRODUCER_ID = 1000


class Coordinated:
    """A coordinator of one partition of ``__transaction_state``, with manual time."""

    def __init__(self, settings: TransactionSettings | None = None, *, partition: int = 0) -> None:
        self.partition = partition
        self.ms = 0
        self.version = 0
        """The finalized level of transaction.version."""
        self.ids: list[int] = list(range(FIRST_PRODUCER_ID, FIRST_PRODUCER_ID + 1000))
        self.answers: list[Any] = []
        self.appends: deque[AppendTransactions] = deque()
        self.completions: deque[Completion] = deque()
        self.awaiting_ids: list[NewProducerId] = []
        self.log: list[tuple[str, Transition | None]] = []
        """What is committed."""
        self.coordinator = TransactionCoordinator(
            settings or TransactionSettings(),
            lambda _: partition,
            lambda: self.ids.pop(0) if self.ids else None,
            lambda: self.version,
        )
        self.load()

    @property
    def now(self) -> Now:
        return Now(self.ms, START_MS + self.ms)

    def load(self, epoch: int = 0, transactions: dict[str, TransactionMetadata] | None = None) -> None:
        """Lead the partition in an epoch, with what its log holds."""
        self.coordinator.unload(self.partition, None)
        assert self.coordinator.start_loading(self.partition, epoch)
        self.perform(self.coordinator.finish_loading(self.partition, epoch, transactions or {}, self.now))

    def load_log(self, epoch: int) -> None:
        """Lead the partition again, with what was committed."""
        latest: dict[str, TransactionMetadata] = {}
        for transactional_id, value in self.log:
            latest.pop(transactional_id, None)
            if value is not None:
                latest[transactional_id] = TransactionMetadata(transactional_id, value)
        self.appends.clear()
        self.completions.clear()
        self.load(epoch, latest)

    def perform(self, effects: list[TransactionEffect]) -> None:
        for effect in effects:
            match effect:
                case AnswerProducer(to, answer):
                    to.append(answer)
                case AppendTransactions():
                    self.appends.append(effect)
                case SendMarkers(completion):
                    self.completions.append(completion)
                case NewProducerId():
                    self.awaiting_ids.append(effect)

    def written(self, error: ErrorCode = ErrorCode.NONE) -> None:
        """Settle the oldest append."""
        append = self.appends.popleft()
        if not error:
            self.log += append.records
        self.perform(self.coordinator.appended(append, error, self.now))

    def mark(self) -> Completion:
        """Write the markers of the oldest transaction that waits for them."""
        completion = self.completions.popleft()
        for topic, numbers in tuple(completion.transaction.partitions.items()):
            completion.transaction.remove_partitions(topic, numbers)
        self.perform(self.coordinator.markers_written(completion, self.now))
        return completion

    def settle(self) -> None:
        """Write all records and markers that there are to write."""
        while self.appends or self.completions:
            if self.appends:
                self.written()
            else:
                self.mark()

    def tick(self, by_ms: int) -> None:
        self.ms += by_ms
        while (due_ms := self.coordinator.next_deadline_ms()) is not None and due_ms <= self.ms:
            self.perform(self.coordinator.tick(self.now))

    # Requests, answered at once or into a list

    def init(
        self,
        transactional_id: str = "t",
        expected: tuple[int, int] | None = None,
        *,
        timeout_ms: int = 60_000,
    ) -> list[Any]:
        to: list[Any] = []
        request = InitProducerId(
            transactional_id, timeout_ms, None if expected is None else ProducerIdAndEpoch(*expected)
        )
        self.perform(self.coordinator.init_producer_id(request, to, self.now))
        return to

    def add(self, sender: TransactionSender, partitions: Partitions) -> list[Any]:
        to: list[Any] = []
        self.perform(self.coordinator.add_partitions(sender, partitions, to, self.now))
        return to

    def end(self, sender: TransactionSender, *, committed: bool, version: int = 0) -> list[Any]:
        to: list[Any] = []
        self.perform(self.coordinator.end(sender, committed, to, self.now, version))
        return to

    # What often comes first

    def producer(self, transactional_id: str = "t", **options: Any) -> TransactionSender:
        """A producer that has its id and epoch."""
        to = self.init(transactional_id, **options)
        self.settle()
        (answer,) = to
        assert answer.error is ErrorCode.NONE
        return TransactionSender(transactional_id, answer.producer_id, answer.producer_epoch)

    def begun(self, sender: TransactionSender, partitions: Partitions | None = None) -> None:
        """The producer's transaction, with partitions."""
        to = self.add(sender, partitions or {"a": frozenset({0, 1})})
        self.written()
        assert to == [ErrorCode.NONE]

    def found(self, transactional_id: str = "t") -> TransactionMetadata:
        transaction = self.coordinator.find(transactional_id)
        assert transaction is not None
        return transaction
