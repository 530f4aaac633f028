"""Moves the partitions that are copied from one source between their states (Kafka's
`AbstractFetcherThread`).

A transition has its effects in one place: only what is FETCHING is in the fetch session, an error
that may pass doubles the delay, a failed log is not asked for again. The table itself is in
`partition_fetch_state`.
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

_MAX_REPORTED = 10
_REPORT_EVERY_MS = 60_000
_DENIED = (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
_FIRST_BACKOFF_MS = 20  # a follower often learns of the election before the leader


class FetchTransitions:
    """The states of all partitions of one source, their session, and what a change
    of state does."""

    def __init__(
        self,
        backoff_ms: int,
        truncate: Callable[[TopicPartition, int], None],
        on_change: Callable[[TopicPartition], None],
    ) -> None:
        """``backoff_ms`` is the longest delay after an error.

        For ``truncate`` and ``on_change`` see `Fetcher`."""
        self._backoff_ms = backoff_ms
        self.truncate_log = truncate
        self.on_change = on_change
        self.states = PartitionFetchStates()
        self.session = FetchSessionHandler()
        self._fenced: list[TopicPartition] = []
        self._denied: list[TopicPartition] = []
        self._denied_report_ms = 0
        self.leaving: dict[TopicPartition, None] = {}
        """Fetched partitions that belong to the other fetcher of the same source."""

    def move(self, fetch_state: PartitionFetchState, event: FetchEvent) -> None:
        """Make a transition; raises `IllegalTransitionError`."""
        before = fetch_state.state
        self.states.move(fetch_state, event)
        if before is FetchState.FETCHING:
            self.no_longer_fetched(fetch_state.topic_partition)
        elif fetch_state.state is FetchState.FETCHING:
            fetch_state.last_epoch = fetch_state.partition.log.leader_epochs.latest_epoch
            self.session.add(fetch_state.topic_partition, fetch_state.topic_id)

    def no_longer_fetched(self, topic_partition: TopicPartition) -> None:
        """A partition was FETCHING until now."""
        self.session.remove(topic_partition)
        self.leaving.pop(topic_partition, None)

    def delay(self, fetch_state: PartitionFetchState, now_ms: int) -> None:
        """Wait after an error that may pass: each time twice as long, up to
        replica.fetch.backoff.ms."""
        fetch_state.backoff_ms = min(max(2 * fetch_state.backoff_ms, _FIRST_BACKOFF_MS), self._backoff_ms)
        fetch_state.until_ms = now_ms + fetch_state.backoff_ms
        self.move(fetch_state, FetchEvent.ERROR)

    def refused(self, fetch_state: PartitionFetchState, problem: str, now_ms: int) -> None:
        """What the source has cannot be copied: wait as after any error, and report it now
        and then with their number."""
        fetch_state.failures += 1
        if now_ms >= fetch_state.report_ms or fetch_state.failures == 1:
            fetch_state.report_ms = now_ms + _REPORT_EVERY_MS
            logger.error(
                "Partition %s cannot be copied from offset %d on (attempt %d): %s",
                fetch_state.topic_partition,
                fetch_state.partition.log.log_end_offset,
                fetch_state.failures,
                problem,
            )
        self.delay(fetch_state, now_ms)

    def succeeded(self, fetch_state: PartitionFetchState) -> None:
        """What the source sent was taken."""
        fetch_state.backoff_ms = fetch_state.failures = 0

    def handle_error(self, fetch_state: PartitionFetchState, code: int, now_ms: int) -> None:
        """Handle an error that the source returned for a partition."""
        if code == ErrorCode.FENCED_LEADER_EPOCH:
            self._fenced.append(fetch_state.topic_partition)
            self.move(fetch_state, FetchEvent.FENCED)
        elif code == ErrorCode.OFFSET_OUT_OF_RANGE and fetch_state.state is FetchState.FETCHING:
            fetch_state.leader_start = UNKNOWN
            self.move(fetch_state, FetchEvent.OFFSET_OUT_OF_RANGE)
        elif code == ErrorCode.KAFKA_STORAGE_ERROR and fetch_state.state is FetchState.FETCHING:
            self.refused(fetch_state, "the leader cannot read it; its log says why", now_ms)
        elif code in _DENIED:
            if now_ms >= self._denied_report_ms or self._denied:
                self._denied_report_ms = now_ms + _REPORT_EVERY_MS
                self._denied.append(fetch_state.topic_partition)
            self.delay(fetch_state, now_ms)
        else:
            # The leader does not know yet that it leads, or no longer does:
            # LeaderAndIsr is under way.
            logger.debug("Partition %s cannot be fetched: %s", fetch_state.topic_partition, ErrorCode(code).name)
            self.delay(fetch_state, now_ms)

    def report_many(self) -> None:
        """Log in one line which partitions an answer fenced, and in one which it denied: there may
        be thousands."""
        fenced, self._fenced = self._fenced, []
        denied, self._denied = self._denied, []
        if fenced:
            logger.info(
                "%d partitions have a later leader epoch at their leader, and wait for LeaderAndIsr: %s%s",
                len(fenced),
                ", ".join(map(str, fenced[:_MAX_REPORTED])),
                " ..." if len(fenced) > _MAX_REPORTED else "",
            )
        if denied:
            logger.error(
                "%d partitions cannot be copied: the principal of this broker needs ClusterAction on the cluster and "
                "Describe on the topics, by ACLs or as one of super.users: %s%s",
                len(denied),
                ", ".join(map(str, denied[:_MAX_REPORTED])),
                " ..." if len(denied) > _MAX_REPORTED else "",
            )

    def log_failed(self, fetch_state: PartitionFetchState, error: KafkaError) -> None:
        """Stop copying a partition whose log has failed.

        After an error of another kind, try again."""
        if fetch_state.partition.log.offline is None:
            logger.error("Partition %s is copied again after an error: %s", fetch_state.topic_partition, error)
            fetch_state.until_ms = 0
            self.move(fetch_state, FetchEvent.ERROR)
            return
        logger.error("Partition %s is no longer copied, because its log failed: %s", fetch_state.topic_partition, error)
        self.move(fetch_state, FetchEvent.STORAGE_FAILED)

    def truncate(self, fetch_state: PartitionFetchState, offset: int) -> None:
        """Drop our records from an offset on, which the leader does not have."""
        topic_partition, log = fetch_state.topic_partition, fetch_state.partition.log
        if offset < log.high_watermark:
            logger.warning(
                "Truncating %s to offset %d below high watermark %d", topic_partition, offset, log.high_watermark
            )
        else:
            logger.info("Truncating %s to offset %d, where its log diverges from the leader's", topic_partition, offset)
        self.truncate_log(topic_partition, offset)
        self.on_change(topic_partition)
