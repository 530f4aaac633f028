"""All replicas of a broker: role changes from the controller, appends, reads, and waiting for the commit.

The `ReplicaManager` decides and touches logs; it knows no connection and no clock. Whoever waits for a partition parks
under its `TopicPartition` in `Parked`; every append, move of a watermark and change of role is noted there, so waits
end by events, never by polling.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from barnabas.base.ids import TopicPartition
from barnabas.broker.parked import Parked, Waiter
from barnabas.broker.replication.partition import Partition
from barnabas.wire.kafka.errors import ErrorCode, KafkaError

__all__ = ["AppendResult", "Isolation", "ReadResult", "ReplicaManager"]

logger = logging.getLogger(__name__)

NO_EPOCH = -1
READ_UNCOMMITTED = 0
READ_COMMITTED = 1
LOG_END = 2
Isolation = int
"""How far a reader may look: READ_UNCOMMITTED to the high watermark, READ_COMMITTED to the last stable offset, LOG_END
(followers) to the end of the log."""


@dataclass(slots=True)
class AppendResult:
    """What an append of one partition's batches came to."""

    first_offset: int
    last_offset: int
    log_append_time_ms: int
    """-1 where the topic keeps the producer's timestamps."""
    log_start_offset: int
    leader_epoch: int


@dataclass(slots=True)
class ReadResult:
    """One partition's part of a fetch."""

    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    log_end_offset: int
    records: Any
    """None, or what can be sent: a `FileSlice` or bytes."""
    size_bytes: int
    aborted_transactions: Sequence[tuple[int, int]] | None = None
    """(producer id, first offset), for READ_COMMITTED."""
    diverging_epoch: tuple[int, int] | None = None
    """(epoch, its end offset) where the reader's log left ours (KIP-595's way of KIP-101)."""


LeadershipCallback = Callable[[Sequence[Partition], Sequence[Partition]], None]


class ReplicaManager:
    """The partitions of one broker."""

    def __init__(
        self,
        broker_id: int,
        log_dirs: Any,
        parked: Parked,
        *,
        log_config: Callable[[str], Any],
        lag_time_max_ms: int,
    ) -> None:
        """``log_config`` gives a topic's log configuration, asked for when a replica's log is made."""
        self.broker_id = broker_id
        self.controller_epoch = -1
        self._log_dirs = log_dirs
        self._parked = parked
        self._log_config = log_config
        self._lag_time_max_ms = lag_time_max_ms
        self._partitions: dict[TopicPartition, Partition] = {}
        self._on_leadership: list[LeadershipCallback] = []

    # Looking up

    def __iter__(self) -> Iterator[Partition]:
        return iter(self._partitions.values())

    def __len__(self) -> int:
        return len(self._partitions)

    def get(self, name: TopicPartition) -> Partition | None:
        return self._partitions.get(name)

    def partition(self, name: TopicPartition) -> Partition:
        """Our replica; raises UNKNOWN_TOPIC_OR_PARTITION, or KAFKA_STORAGE_ERROR when its log dir is lost."""
        found = self._partitions.get(name)
        if found is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if found.offline:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"Partition {name} is in an offline log directory")
        return found

    def on_leadership(self, callback: LeadershipCallback) -> None:
        """Have ``callback(gained, lost)`` called after each request of the controller that changed who leads."""
        self._on_leadership.append(callback)

    # Appending

    def append(
        self, name: TopicPartition, records: memoryview | bytes | bytearray, *, acks: int, now_ms: int, origin: Any
    ) -> AppendResult:
        """Append batches to a partition that we lead. ``now_ms`` is wall time (for LogAppendTime).

        Raises `KafkaError`: UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS (acks -1 and an ISR
        below min.insync.replicas), KAFKA_STORAGE_ERROR, and what the log finds wrong with the batches.
        """
        raise NotImplementedError

    def commit_error(self, name: TopicPartition, last_offset: int) -> ErrorCode | None:
        """None while ``last_offset`` is not committed yet; NONE when it is; else why it will not be from here."""
        raise NotImplementedError

    def wait_for_commit(
        self, name: TopicPartition, last_offset: int, callback: Callable[[ErrorCode], None], *, timeout_ms: int
    ) -> Waiter | None:
        """Call ``callback`` once all in-sync replicas have ``last_offset``: with NONE, or with what came between.

        That is REQUEST_TIMED_OUT, NOT_LEADER_OR_FOLLOWER or NOT_ENOUGH_REPLICAS_AFTER_APPEND. What is known already is
        told before this returns (None is returned then).
        """
        error = self.commit_error(name, last_offset)
        if error is not None:
            callback(error)
            return None

        def attempt() -> bool:
            found = self.commit_error(name, last_offset)
            if found is None:
                return False
            callback(found)
            return True

        return self._parked.park((name,), attempt, lambda: callback(ErrorCode.REQUEST_TIMED_OUT), timeout_ms)
