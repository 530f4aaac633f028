"""What moves the partitions that are copied from one source between their states (Kafka's AbstractFetcherThread).

A transition has its effects in one place: only what is FETCHING is in the fetch session, an error that may pass doubles
the delay, a failed log is not asked for again. The table itself is in `partition_fetch_state`.
"""

import logging
from collections.abc import Callable

from barnabas.base.ids import TopicPartition
from barnabas.broker.replication.fetch_session_handler import FetchSessionHandler
from barnabas.broker.replication.partition_fetch_state import (
    UNKNOWN,
    FetchEvent,
    FetchState,
    PartitionFetchState,
    PartitionFetchStates,
)
from barnabas.wire.kafka.errors import ErrorCode, KafkaError

__all__ = ["FetchTransitions"]

logger = logging.getLogger(__name__)

_FIRST_BACKOFF_MS = 20  # right after an election a follower often hears of it before the leader does


class FetchTransitions:
    """The states of all partitions of one source, their session, and what a change of state does."""

    def __init__(
        self,
        backoff_ms: int,
        truncate: Callable[[TopicPartition, int], None],
        changed: Callable[[TopicPartition], None],
    ) -> None:
        """``backoff_ms`` is the longest delay after an error. For ``truncate`` and ``changed`` see `Fetcher`."""
        self._backoff_ms = backoff_ms
        self.truncate_log = truncate
        self.changed = changed
        self.states = PartitionFetchStates()
        self.session = FetchSessionHandler()
        self.leaving: dict[TopicPartition, None] = {}
        """Fetched partitions that belong to the other fetcher of the same source."""

    def move(self, fetched: PartitionFetchState, event: FetchEvent) -> None:
        """Make a transition; raises `IllegalTransitionError`."""
        before = fetched.state
        self.states.move(fetched, event)
        if before is FetchState.FETCHING:
            self.no_longer_fetched(fetched.topic_partition)
        elif fetched.state is FetchState.FETCHING:
            fetched.last_epoch = fetched.partition.log.leader_epochs.latest_epoch
            self.session.add(fetched.topic_partition, fetched.topic_id)

    def no_longer_fetched(self, topic_partition: TopicPartition) -> None:
        """A partition was FETCHING until now."""
        self.session.remove(topic_partition)
        self.leaving.pop(topic_partition, None)

    def delay(self, fetched: PartitionFetchState, now_ms: int) -> None:
        """After an error that may pass: each time twice as long, up to replica.fetch.backoff.ms."""
        fetched.backoff_ms = min(max(2 * fetched.backoff_ms, _FIRST_BACKOFF_MS), self._backoff_ms)
        fetched.until_ms = now_ms + fetched.backoff_ms
        self.move(fetched, FetchEvent.ERROR)

    def refused(self, fetched: PartitionFetchState, code: int, now_ms: int) -> None:
        """The source answered with an error."""
        if code == ErrorCode.FENCED_LEADER_EPOCH:
            logger.info(
                "Partition %s has a later leader epoch at its leader than %d: waiting for LeaderAndIsr",
                fetched.topic_partition,
                fetched.leader_epoch,
            )
            self.move(fetched, FetchEvent.FENCED)
        elif code == ErrorCode.OFFSET_OUT_OF_RANGE and fetched.state is FetchState.FETCHING:
            fetched.leader_start = UNKNOWN
            self.move(fetched, FetchEvent.OFFSET_OUT_OF_RANGE)
        else:
            # The leader does not know yet that it leads, or no longer does: LeaderAndIsr is under way.
            logger.debug("Partition %s cannot be fetched: %s", fetched.topic_partition, ErrorCode(code).name)
            self.delay(fetched, now_ms)

    def log_failed(self, fetched: PartitionFetchState, error: KafkaError) -> None:
        """Our disk failed: copy the partition no longer."""
        if fetched.partition.log.offline is None:
            logger.error("Partition %s is copied again after an error: %s", fetched.topic_partition, error)
            fetched.until_ms = 0
            self.move(fetched, FetchEvent.ERROR)
            return
        logger.error("Partition %s is no longer copied, because its log failed: %s", fetched.topic_partition, error)
        self.move(fetched, FetchEvent.STORAGE_FAILED)

    def truncate(self, fetched: PartitionFetchState, offset: int) -> None:
        """Drop our records from an offset on, which the leader does not have."""
        topic_partition, log = fetched.topic_partition, fetched.partition.log
        if offset < log.high_watermark:
            logger.warning(
                "Truncating %s to offset %d below high watermark %d", topic_partition, offset, log.high_watermark
            )
        else:
            logger.info("Truncating %s to offset %d, where its log diverges from the leader's", topic_partition, offset)
        self.truncate_log(topic_partition, offset)
        self.changed(topic_partition)
