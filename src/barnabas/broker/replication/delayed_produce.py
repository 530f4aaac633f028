"""The wait for acknowledgements: until the in-sync replicas have what was appended, or the
disk, or the time is up.

`Partition.acknowledgement` says when records may be acknowledged. Here the appends wait for that:
those of Produce requests, of the group and the transaction coordinator, and markers of
transactions. Each partition's are looked at whenever it changes, in the order of their offsets.

In Kafka: `DelayedProduce`, one for each request; here requests of one connection that were
appended together wait together.
"""

from collections import deque
from collections.abc import Callable, Hashable
from functools import partial

from barnabas.base.ids import TopicPartition
from barnabas.broker.replication.partition import ALL_IN_SYNC
from barnabas.broker.replication.produce_append import Produce, not_appended
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.broker.requests.purgatory import DelayedOperation, Purgatory
from barnabas.wire.kafka.errors import ErrorCode, KafkaError

__all__ = ["DelayedProduce"]

_Wait = tuple[int, int, Callable[[ErrorCode], None]]
"""The last offset of an append, its acks, and what is called with the result."""


class DelayedProduce:
    """Appends that are not acknowledged yet."""

    __slots__ = ("_appends", "_replicas")

    def __init__(self, replicas: ReplicaManager) -> None:
        self._replicas = replicas
        self._appends: dict[TopicPartition, deque[_Wait]] = {}

    @property
    def is_over(self) -> bool:
        """Whether nothing waits."""
        return not self._appends

    def add(
        self, topic_partition: TopicPartition, last_offset: int, acks: int, settle: Callable[[ErrorCode], None]
    ) -> None:
        """Wait for an append, unless it is settled already; ``settle`` gets NONE or the error."""
        code = self._acknowledgement(topic_partition, last_offset, acks)
        if code is None:
            self._appends.setdefault(topic_partition, deque()).append((last_offset, acks, settle))
        else:
            settle(code)

    def add_request(self, produce: Produce) -> bool:
        """Wait for what a request has appended.

        Returns whether it is settled already, with what its outcomes say then."""
        acks = produce.options.acks
        if acks:
            for number, (appended, _, last_offset) in enumerate(produce.outcomes):
                if appended.error is None and (acks == ALL_IN_SYNC or not appended.is_durable):
                    produce.waiting += 1
                    self.add(produce.partitions[number], last_offset, acks, partial(_settle, produce, number))
        return not produce.waiting

    def wait(self, purgatory: Purgatory, timeout_ms: int, progress: Callable[[], None]) -> DelayedOperation:
        """Settle the appends as their partitions change, or at the timeout.

        ``progress`` is called when some were settled."""

        def try_complete(key: Hashable) -> bool:
            assert isinstance(key, TopicPartition)
            if self._settle_first(key):
                progress()
            return self.is_over

        def on_expiration() -> None:
            while self._appends:
                _, appends = self._appends.popitem()
                for _, _, settle in appends:
                    settle(ErrorCode.REQUEST_TIMED_OUT)
            progress()

        return purgatory.watch(tuple(self._appends), try_complete, on_expiration, timeout_ms, "Produce")

    def _settle_first(self, topic_partition: TopicPartition) -> bool:
        """Settle the appends to a partition up to the first that must wait.

        Whether there were any."""
        appends = self._appends.get(topic_partition)
        has_settled = False
        while appends:
            last_offset, acks, settle = appends[0]
            code = self._acknowledgement(topic_partition, last_offset, acks)
            if code is None:
                return has_settled
            appends.popleft()
            if not appends:
                del self._appends[topic_partition]
            settle(code)
            has_settled = True
        return has_settled

    def _acknowledgement(self, topic_partition: TopicPartition, last_offset: int, acks: int) -> ErrorCode | None:
        replica = self._replicas.get(topic_partition)
        if replica is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return replica.acknowledgement(last_offset, acks)


def _settle(produce: Produce, number: int, code: ErrorCode) -> None:
    produce.waiting -= 1
    if code:
        produce.outcomes[number] = not_appended(KafkaError(code))
