"""Which transaction the batches of a Produce request belong to, and whether they may
be appended to it.

In Kafka: the first lines of `KafkaApis.handleProduceRequest`, and
`ReplicaManager.handleProduceAppend`.
"""

from collections.abc import Iterable, Sequence

from barnabas.base.ids import TopicPartition
from barnabas.broker.cluster.steps import Wait
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.broker.replication.transaction_verification import (
    PASSING_ERRORS,
    AddPartitionsToTxnManager,
    TransactionalProducer,
)
from barnabas.log.producer_state import VerificationGuard
from barnabas.wire.kafka.errors import ErrorCode, KafkaError
from barnabas.wire.kafka.records.batch_header import TRANSACTIONAL, HeaderFields

__all__ = ["ProduceTransaction", "check_outside_transaction", "check_producer", "verification_error"]


def check_outside_transaction(headers: Iterable[HeaderFields]) -> None:
    """Whether a request without a transactional id may have batches with these headers.

    Raises `KafkaError` TRANSACTIONAL_ID_AUTHORIZATION_FAILED if one is transactional.
    """
    for header in headers:
        if header[5] & TRANSACTIONAL:
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)


def check_producer(headers: Iterable[HeaderFields]) -> tuple[int, int] | None:
    """The id and epoch of the producer of a request's transactional batches.

    None if there are none. Raises `KafkaError` INVALID_PRODUCER_ID_MAPPING for batches of several.
    """
    producers = {(header[9], header[10]) for header in headers if header[5] & TRANSACTIONAL and header[9] >= 0}
    if len(producers) > 1:
        raise KafkaError(
            ErrorCode.INVALID_PRODUCER_ID_MAPPING, "Transactional records contained more than one producer ID"
        )
    return next(iter(producers), None)


def verification_error(code: ErrorCode, *, adds: bool) -> KafkaError:
    """The error of a partition that is not verified, or not added, as producers expect it.

    Errors that pass become NOT_ENOUGH_REPLICAS: every client repeats the request after it,
    and asks for no metadata. Clients that leave the adding to brokers know CONCURRENT_TRANSACTIONS.
    """
    if code in PASSING_ERRORS and not (adds and code is ErrorCode.CONCURRENT_TRANSACTIONS):
        return KafkaError(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            f"Unable to verify the partition has been added to the transaction. Underlying error: {code.name}",
        )
    if code is ErrorCode.INVALID_TXN_STATE:
        return KafkaError(code, "Partition was not added to the transaction")
    return KafkaError(code)


class ProduceTransaction:
    """The transaction of one request.

    If it `must_wait`, perform `wait` before a batch is appended."""

    __slots__ = ("_led", "_verification")

    def __init__(self, verifier: AddPartitionsToTxnManager, producer: TransactionalProducer) -> None:
        self._verification = verifier.begin(producer)
        self._led: set[TopicPartition] = set()
        """The partitions that this broker led when the verification began."""

    def start(
        self,
        replicas: ReplicaManager,
        partitions: Sequence[TopicPartition],
        headers: Iterable[HeaderFields],
        now_ms: int,
    ) -> None:
        """Begin with the partitions of the request. ``now_ms`` is wall time."""
        for topic_partition, header in zip(partitions, headers, strict=True):
            partition = replicas.get(topic_partition) if header[5] & TRANSACTIONAL else None
            # Others are refused with the reason when their turn comes.
            if partition is not None and partition.is_leader:
                self._led.add(topic_partition)
                self._verification.start(partition.log, header[11], now_ms)

    @property
    def must_wait(self) -> bool:
        """Whether the coordinator must be asked about a partition."""
        return self._verification.is_needed

    @property
    def wait(self) -> Wait:
        """The step that asks it."""
        return self._verification.wait

    def guard(self, topic_partition: TopicPartition) -> VerificationGuard | None:
        """The guard of a batch. Raises `KafkaError` for a partition that is not verified."""
        if topic_partition not in self._led:  # it leads it only now
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if code := self._verification.error_of(topic_partition):
            raise verification_error(code, adds=self._verification.adds)
        return self._verification.guard_of(topic_partition)
