"""Brings a follower's log to an offset and an epoch that its leader has, so that
fetches can begin or continue.

`EpochAlignment` serves partitions that are TRUNCATING: a source that speaks a Fetch before version
12 is asked where our last epoch ended (OffsetForLeaderEpoch, KIP-101, KIP-279). `OffsetAlignment`
serves those that are LOCATING: the leader does not have our offset, and is asked where its log
begins and ends (ListOffsets).

In Kafka: `AbstractFetcherThread.truncateToEpochEndOffsets` and
`AbstractFetcherThread.fetchOffsetAndTruncate`.
"""

import logging

from barnabas.base.ids import TopicPartition
from barnabas.broker.replication.fetch_transitions import FetchTransitions
from barnabas.broker.replication.leader_start import report_restart
from barnabas.broker.replication.offset_truncation import truncation_for
from barnabas.broker.replication.partition_fetch_state import UNKNOWN, FetchEvent, FetchState, PartitionFetchState
from barnabas.wire.kafka.errors import KafkaError
from barnabas.wire.kafka.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from barnabas.wire.kafka.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from barnabas.wire.kafka.offset_specs import EARLIEST, LATEST

__all__ = ["EARLIEST", "LATEST", "EpochAlignment", "OffsetAlignment"]

logger = logging.getLogger(__name__)


class EpochAlignment:
    """Truncates logs to where they agree with those of a source that speaks an old Fetch."""

    def __init__(self, broker_id: int, transitions: FetchTransitions) -> None:
        self._broker_id = broker_id
        self._transitions = transitions

    @property
    def is_wanted(self) -> bool:
        """Whether a partition waits for a response of this kind."""
        return bool(self._transitions.states.within(FetchState.TRUNCATING))

    def request(self) -> OffsetForLeaderEpochRequest:
        """Where the epochs of our last records ended in the leaders' logs."""
        topics: dict[str, OffsetForLeaderTopic] = {}
        for (name, index), fetch_state in self._transitions.states.within(FetchState.TRUNCATING).items():
            topic = topics.setdefault(name, OffsetForLeaderTopic(topic=name, partitions=[]))
            topic.partitions.append(
                OffsetForLeaderPartition(
                    partition=index,
                    current_leader_epoch=fetch_state.leader_epoch,
                    leader_epoch=fetch_state.requested_epoch,
                )
            )
        return OffsetForLeaderEpochRequest(replica_id=self._broker_id, topics=list(topics.values()))

    def handle_response(self, response: OffsetForLeaderEpochResponse, now_ms: int) -> None:
        """Truncate what the leaders do not have; what is not certain yet is asked for again."""
        truncating = self._transitions.states.within(FetchState.TRUNCATING)
        left_out = dict(truncating)
        for topic in response.topics:
            for data in topic.partitions:
                topic_partition = TopicPartition(topic.topic, data.partition)
                left_out.pop(topic_partition, None)
                fetch_state = truncating.get(topic_partition)
                if fetch_state is None:
                    continue
                if data.error_code:
                    self._transitions.handle_error(fetch_state, data.error_code, now_ms)
                else:
                    self._align(fetch_state, data.leader_epoch, data.end_offset)
        self._transitions.report_many()
        for fetch_state in left_out.values():
            self._transitions.delay(fetch_state, now_ms)

    def failed(self, now_ms: int) -> None:
        """Ask again later, because no response came."""
        for fetch_state in tuple(self._transitions.states.within(FetchState.TRUNCATING).values()):
            self._transitions.delay(fetch_state, now_ms)

    def _align(self, fetch_state: PartitionFetchState, epoch: int, end_offset: int) -> None:
        log = fetch_state.partition.log
        try:
            offset, is_final = truncation_for(log, epoch, end_offset)
            if offset < log.log_end_offset:
                self._transitions.truncate(fetch_state, offset)
        except KafkaError as error:
            self._transitions.log_failed(fetch_state, error)
            return
        if is_final or log.leader_epochs.latest_epoch < 0:
            fetch_state.is_aligned = True
            self._transitions.move(fetch_state, FetchEvent.LOGS_AGREE)
        else:
            fetch_state.requested_epoch = (
                log.leader_epochs.latest_epoch
            )  # an earlier one than before, which the truncation took away


class OffsetAlignment:
    """Brings logs to an offset that their leaders have."""

    def __init__(self, broker_id: int, transitions: FetchTransitions) -> None:
        self._broker_id = broker_id
        self._transitions = transitions

    @property
    def is_wanted(self) -> bool:
        """Whether a partition waits for a response of this kind."""
        return bool(self._transitions.states.within(FetchState.LOCATING))

    def request(self, timestamp: int) -> ListOffsetsRequest:
        """Where the leaders' logs end (`LATEST`) or begin (`EARLIEST`).

        Ask in the reverse order of these two."""
        topics: dict[str, ListOffsetsTopic] = {}
        for (name, index), fetch_state in self._transitions.states.within(FetchState.LOCATING).items():
            topic = topics.setdefault(name, ListOffsetsTopic(name=name, partitions=[]))
            topic.partitions.append(
                ListOffsetsPartition(
                    partition_index=index, current_leader_epoch=fetch_state.leader_epoch, timestamp=timestamp
                )
            )
        return ListOffsetsRequest(replica_id=self._broker_id, topics=list(topics.values()))

    def handle_response(self, timestamp: int, response: ListOffsetsResponse, now_ms: int, wall_ms: int) -> None:
        """Note the leader's start, or, with its end known too, move to an offset from
        which fetching can continue."""
        locating = self._transitions.states.within(FetchState.LOCATING)
        for topic in response.topics:
            for data in topic.partitions:
                fetch_state = locating.get(TopicPartition(topic.name, data.partition_index))
                if fetch_state is None:
                    continue
                if data.error_code:
                    self._transitions.handle_error(fetch_state, data.error_code, now_ms)
                elif timestamp == EARLIEST:
                    fetch_state.leader_start = data.offset
                elif fetch_state.leader_start != UNKNOWN:
                    self._relocate(fetch_state, data.offset, now_ms, wall_ms)
        self._transitions.report_many()

    def failed(self, now_ms: int) -> None:
        """Ask again later, because no response came."""
        for fetch_state in tuple(self._transitions.states.within(FetchState.LOCATING).values()):
            self._transitions.delay(fetch_state, now_ms)

    def _relocate(self, fetch_state: PartitionFetchState, leader_end: int, now_ms: int, wall_ms: int) -> None:
        """Move to an offset that the leader has.

        If the leader's log ends before ours (it lost records, or was elected out of sync),
        truncate to its end. If it begins after ours ends, restart our log at its start. This
        is the second place where a follower decides to truncate; the first, by leader epochs,
        is `offset_truncation`.

        Otherwise the leader may not know our last epoch. One without records, in which we led, is
        forgotten. With records of it we ask again, in case the leader knows it later.
        """
        topic_partition, log = fetch_state.topic_partition, fetch_state.partition.log
        try:
            if leader_end < log.log_end_offset:
                logger.warning(
                    "Truncating %s from %d to the leader's end %d", topic_partition, log.log_end_offset, leader_end
                )
                self._transitions.truncate_log(topic_partition, leader_end)
                if fetch_state.leader_start > log.log_end_offset or leader_end < log.log_start_offset:
                    log.truncate_fully_and_start_at(max(fetch_state.leader_start, 0))
            elif fetch_state.leader_start > log.log_end_offset:
                report_restart(log, fetch_state.leader_start, leader_end, wall_ms)
                # First, because this lowers the checkpoints: a crash in the middle of the rest
                # must not look like a loss.
                self._transitions.truncate_log(topic_partition, log.log_start_offset)
                log.truncate_fully_and_start_at(fetch_state.leader_start)
            elif log.leader_epochs.epochs.ends_without_records(log.log_end_offset):
                self._transitions.truncate_log(topic_partition, log.log_end_offset)
            else:
                self._transitions.delay(fetch_state, now_ms)
                return
        except KafkaError as error:
            self._transitions.log_failed(fetch_state, error)
            return
        self._transitions.on_change(topic_partition)
        self._transitions.move(fetch_state, FetchEvent.LOCATED)
