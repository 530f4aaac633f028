"""Asks transaction coordinators whether partitions are part of a transaction, before its first
batch is appended (KIP-890).

A batch that comes late, after the end of its transaction, would otherwise begin a transaction that
no coordinator knows and that never ends. So the first batch of a transaction in a partition waits:
`TransactionVerification.start` leaves a guard in the log's producer state,
`AddPartitionsToTxnManager` asks the coordinator with a verify-only AddPartitionsToTxn, and the log
takes the batch if the answer is good and the guard is still there.

Where transaction.version 2 is finalized, clients leave it to the brokers to add partitions to a
transaction, and after a downgrade to 1 until they connect again. Then the same request adds the
partition, and the batch is appended once the coordinator has stored that.

One request is under way to each coordinator. What is to be asked meanwhile goes in the next one,
with each transactional id once in a request. Where a producer asks again about a partition before
its first question was sent, the first one gets NETWORK_EXCEPTION, or INVALID_PRODUCER_EPOCH if the
second has a later epoch; one with an earlier epoch is refused.

In Kafka: `AddPartitionsToTxnManager`, and
`maybeStartTransactionVerificationForPartitions` of `ReplicaManager`.
"""

import logging
from collections.abc import Callable, Collection, Mapping
from itertools import islice
from typing import NamedTuple

from barnabas.base.ids import NO_BROKER, TopicPartition
from barnabas.base.settings import Values
from barnabas.broker.cluster.channels import ChannelError
from barnabas.broker.cluster.steps import Ask, Done, Steps, Wait
from barnabas.broker.metadata.cache import MetadataCache
from barnabas.broker.metadata.internal_topics import TRANSACTIONS_TOPIC, partition_of
from barnabas.log.partition_log import PartitionLog, refresh_producers
from barnabas.log.producer_state import WITHOUT_VERIFICATION, VerificationGuard
from barnabas.wire.kafka.errors import ErrorCode, KafkaError
from barnabas.wire.kafka.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)

__all__ = [
    "PASSING_ERRORS",
    "QUESTIONS_OF_BROKERS",
    "AddPartitionsToTxnManager",
    "TransactionVerification",
    "TransactionalProducer",
]

logger = logging.getLogger(__name__)

QUESTIONS_OF_BROKERS = 4
"""The first version of AddPartitionsToTxn that asks about the transactions of others."""
_MOST_TRANSACTIONS = 1_000
"""Most transactions in one request."""
_PARTITIONS_A_STEP = 256

PASSING_ERRORS = frozenset(
    (
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    )
)
"""Errors of a verification after which another attempt may succeed."""

Codes = Mapping[TopicPartition, ErrorCode]
"""Why partitions are not verified. Those that are verified are not among them."""


class TransactionalProducer(NamedTuple):
    """Who appends to a transaction, as a request says it."""

    transactional_id: str
    producer_id: int
    epoch: int
    knows_abortable: bool
    """Whether the version of its request has TRANSACTION_ABORTABLE (KIP-1050)."""
    leaves_adding: bool = False
    """Whether a client of this version leaves it to the broker to add partitions, where the
    cluster's transaction.version allows that."""


class _Question(NamedTuple):
    """A transaction that is to be verified."""

    producer: TransactionalProducer
    partitions: Collection[TopicPartition]
    adds: bool
    """Whether partitions that are not part of the transaction are added to it."""
    done: Callable[[Codes], None]

    def fail(self, code: ErrorCode) -> None:
        self.done(dict.fromkeys(self.partitions, code))


class _Coordinator:
    """The questions to one broker that are not sent yet."""

    __slots__ = ("is_asked", "questions")

    def __init__(self) -> None:
        self.questions: dict[str, list[_Question]] = {}
        """By transactional id, in their order."""
        self.is_asked = False
        """Whether a request is under way to it."""

    def add(self, new: _Question) -> None:
        """Ask a question with a later request, unless it is out of date; answer those that are out
        of date because of it."""
        producer = new.producer
        waiting = self.questions.get(producer.transactional_id, [])
        if any(old.producer.epoch > producer.epoch for old in waiting):
            new.fail(ErrorCode.INVALID_PRODUCER_EPOCH)
            return
        left, outdated = [], []
        for old in waiting:
            if old.producer.epoch < producer.epoch:
                outdated.append((old, ErrorCode.INVALID_PRODUCER_EPOCH))
            elif not set(old.partitions).isdisjoint(new.partitions):
                outdated.append((old, ErrorCode.NETWORK_EXCEPTION))
            else:
                left.append(old)
        self.questions[producer.transactional_id] = left
        for old, error in outdated:  # which may ask the next question of the same producer
            old.fail(error)
        self.questions[producer.transactional_id].append(new)

    def take(self) -> dict[str, _Question]:
        """What goes into the next request, by transactional id."""
        taken: dict[str, _Question] = {}
        for transactional_id in tuple(islice(self.questions, _MOST_TRANSACTIONS)):
            taken[transactional_id], *left = self.questions.pop(transactional_id)
            if left:  # behind those of others
                self.questions[transactional_id] = left
        return taken


class AddPartitionsToTxnManager:
    """Asks the transaction coordinators of the cluster."""

    def __init__(
        self,
        metadata: MetadataCache,
        start: Callable[[Steps[None]], None],
        transaction_version: Callable[[], int],
        *,
        is_enabled: bool,
    ) -> None:
        """``start`` performs steps. ``transaction_version`` gives the level that the cluster has
        finalized."""
        self._metadata = metadata
        self._transaction_version = transaction_version
        self._start = start
        self.is_enabled = is_enabled
        """Whether transactions are verified (transaction.partition.verification.enable)."""
        self.can_ask = True
        """False where brokers are limited to a release without questions of brokers."""
        self._coordinators: dict[int, _Coordinator] = {}

    def settings_changed(self, settings: Values) -> None:
        """Take the broker's settings."""
        self.is_enabled = settings["transaction.partition.verification.enable"]

    def begin(self, producer: TransactionalProducer) -> "TransactionVerification":
        """Begin to verify what a request has for a transaction."""
        # At level 0 a broker of Apache Kafka 3.9 may coordinate it. It raises no epoch at the end.
        adds = producer.leaves_adding and self._transaction_version() > 0
        is_enabled = (self.is_enabled and self.can_ask) or adds
        return TransactionVerification(self, producer, adds=adds, is_enabled=is_enabled)

    def verify(
        self,
        producer: TransactionalProducer,
        partitions: Collection[TopicPartition],
        done: Callable[[Codes], None],
        *,
        adds: bool = False,
    ) -> None:
        """Ask whether partitions are part of a producer's ongoing transaction, or add them to it.

        ``done`` gets the answer, now or later."""
        question = _Question(producer, partitions, adds, done)
        broker_id = self._coordinator_of(producer.transactional_id)
        if broker_id == NO_BROKER:
            question.fail(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return
        coordinator = self._coordinators.setdefault(broker_id, _Coordinator())
        coordinator.add(question)
        if not coordinator.is_asked:
            coordinator.is_asked = True
            self._start(self._ask(broker_id, coordinator))

    def _coordinator_of(self, transactional_id: str) -> int:
        count = self._metadata.partition_count(TRANSACTIONS_TOPIC)
        if not count:
            return NO_BROKER
        return self._metadata.live_leader(TopicPartition(TRANSACTIONS_TOPIC, partition_of(transactional_id, count)))

    def _ask(self, broker_id: int, coordinator: _Coordinator) -> Steps[None]:
        """Send what there is, until nothing is left."""
        while coordinator.questions:
            questions = coordinator.take()
            transactions = []
            for question in questions.values():
                transactions.append(_transaction(question))
                yield None
            response: AddPartitionsToTxnResponse | None = None
            try:
                response = yield Ask(broker_id, AddPartitionsToTxnRequest(transactions=transactions))
            except ChannelError as error:
                logger.debug("Transactions cannot be verified by broker %d: %s", broker_id, error)
            except Exception:  # they wait, so they must be answered
                logger.exception("Transactions cannot be verified by broker %d", broker_id)
            results = (
                {} if response is None else {each.transactional_id: each for each in response.results_by_transaction}
            )
            for transactional_id, question in questions.items():
                if response is None:
                    question.fail(ErrorCode.NETWORK_EXCEPTION)
                elif response.error_code:
                    question.fail(_of_all(response.error_code))
                elif transactional_id not in results:
                    question.fail(ErrorCode.UNKNOWN_SERVER_ERROR)
                else:
                    codes = yield from _codes(question, results[transactional_id])
                    question.done(codes)
                yield None
        coordinator.is_asked = False


def _transaction(question: _Question) -> AddPartitionsToTxnTransaction:
    by_topic: dict[str, list[int]] = {}
    for topic, index in question.partitions:
        by_topic.setdefault(topic, []).append(index)
    producer = question.producer
    return AddPartitionsToTxnTransaction(
        transactional_id=producer.transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        verify_only=not question.adds,
        topics=[AddPartitionsToTxnTopic(name=name, partitions=indexes) for name, indexes in by_topic.items()],
    )


def _of_all(code: int) -> ErrorCode:
    """The error of a whole response, as producers get it: they cannot mend this broker's rights."""
    error = ErrorCode.of(code)
    return ErrorCode.INVALID_TXN_STATE if error is ErrorCode.CLUSTER_AUTHORIZATION_FAILED else error


def _codes(question: _Question, result: AddPartitionsToTxnResult) -> Steps[Codes]:
    """The partitions that a coordinator does not confirm.

    One that it says nothing of is none that it has confirmed."""
    codes = dict.fromkeys(question.partitions, ErrorCode.UNKNOWN_SERVER_ERROR)
    for topic in result.topic_results:
        for at, partition in enumerate(topic.results_by_partition, 1):
            topic_partition = TopicPartition(topic.name, partition.partition_index)
            if partition.partition_error_code == ErrorCode.NONE:
                codes.pop(topic_partition, None)
            elif topic_partition in codes:
                codes[topic_partition] = _of_partition(partition.partition_error_code, question.producer)
            if not at % _PARTITIONS_A_STEP:
                yield None
    return codes


def _of_partition(code: int, producer: TransactionalProducer) -> ErrorCode:
    error = ErrorCode.of(code)
    if error is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH  # which producers expect here
    if error is ErrorCode.TRANSACTION_ABORTABLE and not producer.knows_abortable:
        return ErrorCode.INVALID_TXN_STATE
    return error


class TransactionVerification:
    """The verification of what one request has for a transaction.

    `start` each partition. If `is_needed`, perform `wait` and then ask again for
    `guard_of` and `error_of`.
    """

    __slots__ = ("_errors", "_guards", "_is_enabled", "_logs", "_manager", "_producer", "adds")

    def __init__(
        self, manager: AddPartitionsToTxnManager, producer: TransactionalProducer, *, adds: bool, is_enabled: bool
    ) -> None:
        self._manager = manager
        self.adds = adds
        """Whether the partitions are added to the transaction."""
        self._producer = producer
        self._is_enabled = is_enabled
        self._logs: dict[TopicPartition, PartitionLog] = {}
        self._guards: dict[TopicPartition, VerificationGuard] = {}
        self._errors: dict[TopicPartition, ErrorCode] = {}

    def start(self, log: PartitionLog, sequence: int, now_ms: int) -> None:
        """Begin with a partition whose first batch has a sequence (-1: none), unless its
        transaction is verified already."""
        if not self._is_enabled:
            return
        try:
            refresh_producers(log)
        except KafkaError as error:
            self._errors[log.topic_partition] = error.code
            return
        producer = self._producer
        guard = log.producers.start_verification(
            producer.producer_id,
            producer.epoch,
            producer.transactional_id,
            sequence,
            now_ms,
            begins_at_zero=self.adds,
        )
        if guard is not None:
            self._logs[log.topic_partition] = log
            self._guards[log.topic_partition] = guard

    @property
    def is_needed(self) -> bool:
        """Whether the coordinator must be asked."""
        return bool(self._guards)

    @property
    def wait(self) -> Wait:
        """The step that asks the coordinator."""
        return Wait(self._ask)

    def guard_of(self, topic_partition: TopicPartition) -> VerificationGuard | None:
        """The guard with which a batch is appended."""
        return self._guards.get(topic_partition) if self._is_enabled else WITHOUT_VERIFICATION

    def error_of(self, topic_partition: TopicPartition) -> ErrorCode:
        """Why a partition is not verified, or NONE.

        A client that leaves the adding to brokers asks again when the marker of its transaction
        before this one has come while its first batch waited.
        """
        code = self._errors.get(topic_partition, ErrorCode.NONE)
        if not code and self.adds and self._is_void(topic_partition):
            return ErrorCode.CONCURRENT_TRANSACTIONS
        return code

    def _is_void(self, topic_partition: TopicPartition) -> bool:
        guard = self._guards.get(topic_partition)
        if guard is None:
            return False
        producers, (_, producer_id, epoch, *_) = self._logs[topic_partition].producers, self._producer
        return not (producers.has_open_transaction(producer_id, epoch) or producers.holds(producer_id, epoch, guard))

    def _ask(self, done: Done) -> None:
        def answered(codes: Codes) -> None:
            self._errors.update(codes)
            for topic_partition, code in codes.items():
                producers, guard = self._logs[topic_partition].producers, self._guards[topic_partition]
                if code not in PASSING_ERRORS or producers.has_many_verifications:
                    producers.refuse_verification(self._producer.producer_id, guard)
            done(None, None)

        self._manager.verify(self._producer, tuple(self._guards), answered, adds=self.adds)
