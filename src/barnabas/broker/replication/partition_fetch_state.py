"""The state of one partition that this broker copies (Kafka's PartitionFetchState,
AbstractFetcherThread).

A partition is followed in one leader epoch and goes through the states of `FETCH_TRANSITIONS`. The
table is the only place that says what may come after what: a transition that it does not have
raises `IllegalTransitionError`, and the picture in docs/explanation/how-replication-works.md is
drawn from it. A new leader epoch begins with a new `PartitionFetchState`.

`PartitionFetchStates` keeps the partitions of one source by state, so that a fetch costs what has
changed and not what exists.
"""

from collections.abc import Mapping
from enum import Enum

from barnabas.base.ids import TopicPartition
from barnabas.broker.replication.partition import Partition

__all__ = [
    "FETCH_TRANSITIONS",
    "FetchEvent",
    "FetchState",
    "IllegalTransitionError",
    "PartitionFetchState",
    "PartitionFetchStates",
]

UNKNOWN = -1


class FetchState(Enum):
    """The state in which a follower copies a partition."""

    STARTING = "Starting"
    """It may be fetched, once it is known which version of Fetch the source speaks."""
    TRUNCATING = "Truncating"
    """The source is asked where our last epoch ended, because it speaks a Fetch that
    cannot say where logs diverge."""
    FETCHING = "Fetching"
    LOCATING = "Locating"
    """The source is asked where its log begins and ends, because it does not have our offset."""
    DELAYED = "Delayed"
    """Not asked for until a time in the future."""
    FAILED = "Failed"
    """Not asked for until the controller sends a new leader epoch."""


class FetchEvent(Enum):
    """An event that moves a partition from one state to another."""

    DIVERGENCE_IS_REPORTED = "the source reports diverging epochs"
    DIVERGENCE_IS_UNKNOWN = "the source speaks a Fetch before version 12"
    LOGS_AGREE = "both logs agree"
    OFFSET_OUT_OF_RANGE = "OFFSET_OUT_OF_RANGE"
    LOCATED = "the offset is within the source's log"
    ERROR = "an error that may pass"
    THROTTLED = "behind, and the quota is exceeded"
    DELAY_IS_OVER = "the delay is over"
    FENCED = "FENCED_LEADER_EPOCH"
    STORAGE_FAILED = "our log failed"


class IllegalTransitionError(RuntimeError):
    """The state of a partition does not know the event: a defect of this program."""


FETCH_TRANSITIONS: Mapping[FetchState, Mapping[FetchEvent, FetchState]] = {
    FetchState.STARTING: {
        FetchEvent.DIVERGENCE_IS_REPORTED: FetchState.FETCHING,
        FetchEvent.DIVERGENCE_IS_UNKNOWN: FetchState.TRUNCATING,
        FetchEvent.LOGS_AGREE: FetchState.FETCHING,
        FetchEvent.THROTTLED: FetchState.DELAYED,
    },
    FetchState.TRUNCATING: {
        FetchEvent.LOGS_AGREE: FetchState.FETCHING,
        FetchEvent.ERROR: FetchState.DELAYED,
        FetchEvent.FENCED: FetchState.FAILED,
        FetchEvent.STORAGE_FAILED: FetchState.FAILED,
    },
    FetchState.FETCHING: {
        FetchEvent.OFFSET_OUT_OF_RANGE: FetchState.LOCATING,
        FetchEvent.ERROR: FetchState.DELAYED,
        FetchEvent.THROTTLED: FetchState.DELAYED,
        FetchEvent.FENCED: FetchState.FAILED,
        FetchEvent.STORAGE_FAILED: FetchState.FAILED,
    },
    FetchState.LOCATING: {
        FetchEvent.LOCATED: FetchState.STARTING,
        FetchEvent.ERROR: FetchState.DELAYED,
        FetchEvent.FENCED: FetchState.FAILED,
        FetchEvent.STORAGE_FAILED: FetchState.FAILED,
    },
    FetchState.DELAYED: {FetchEvent.DELAY_IS_OVER: FetchState.STARTING},
    FetchState.FAILED: {},
}


class PartitionFetchState:
    """One partition that is copied, in one leader epoch.

    Only `PartitionFetchStates` changes ``state``."""

    __slots__ = (
        "backoff_ms",
        "failures",
        "first_high_watermark",
        "held_start",
        "is_aligned",
        "is_in_sync",
        "last_epoch",
        "leader_epoch",
        "leader_start",
        "partition",
        "report_ms",
        "requested_epoch",
        "requested_offset",
        "requested_start",
        "state",
        "topic_id",
        "topic_partition",
        "until_ms",
    )

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.topic_partition = partition.topic_partition
        self.topic_id = partition.topic_id
        """As the fetch session names it: an id that is learned later counts from the
        next leader epoch on."""
        self.leader_epoch = partition.leader_epoch
        self.last_epoch = partition.log.leader_epochs.latest_epoch
        self.state = FetchState.STARTING
        self.backoff_ms = 0
        self.failures = 0
        """Attempts that failed since the last one that did not."""
        self.report_ms = 0
        """When a failure is reported again."""
        self.first_high_watermark: int | None = None
        """The leader's high watermark when our log, which has lost records, first reached it."""
        self.held_start: int | None = None
        """The leader's start up to which we keep our records (see `leader_start`); None
        until its first response."""
        self.until_ms = 0
        """The end of the delay, while DELAYED."""
        self.requested_offset = UNKNOWN
        """The offset of the fetch under way."""
        self.requested_start = UNKNOWN
        """The log start offset of the fetch under way."""
        self.requested_epoch = UNKNOWN
        """The epoch whose end the source was asked for, while TRUNCATING."""
        self.is_aligned = False
        """Whether our log is known to be a prefix of the log of a source that does not
        report diverging epochs."""
        self.is_in_sync = True
        """Whether the last answer left us at the high watermark. Until the first answer we
        may be there: a throttle that kept us from fetching would push members out of the
        in-sync set after an election."""
        self.leader_start = UNKNOWN
        """Where the leader's log begins, while LOCATING."""


class PartitionFetchStates:
    """All partitions that are copied from one source, by state."""

    def __init__(self) -> None:
        self._partitions: dict[TopicPartition, PartitionFetchState] = {}
        self._by_state: dict[FetchState, dict[TopicPartition, PartitionFetchState]] = {
            state: {} for state in FetchState
        }

    def __len__(self) -> int:
        return len(self._partitions)

    def __contains__(self, topic_partition: object) -> bool:
        return topic_partition in self._partitions

    def get(self, topic_partition: TopicPartition) -> PartitionFetchState | None:
        return self._partitions.get(topic_partition)

    def within(self, state: FetchState) -> Mapping[TopicPartition, PartitionFetchState]:
        """The partitions that are in ``state``, in the order in which they came to it."""
        return self._by_state[state]

    def add(self, fetch_state: PartitionFetchState) -> None:
        """Take a partition in; it is STARTING here, whatever it was elsewhere."""
        fetch_state.state = FetchState.STARTING
        self._partitions[fetch_state.topic_partition] = fetch_state
        self._by_state[FetchState.STARTING][fetch_state.topic_partition] = fetch_state

    def remove(self, topic_partition: TopicPartition) -> PartitionFetchState | None:
        fetch_state = self._partitions.pop(topic_partition, None)
        if fetch_state is not None:
            del self._by_state[fetch_state.state][topic_partition]
        return fetch_state

    def move(self, fetch_state: PartitionFetchState, event: FetchEvent) -> None:
        """Make the transition of ``event``.

        Raises `IllegalTransitionError` where the table has none."""
        after = FETCH_TRANSITIONS[fetch_state.state].get(event)
        if after is None:
            raise IllegalTransitionError(
                f"Partition {fetch_state.topic_partition} is {fetch_state.state.name}, which knows no {event.name}"
            )
        del self._by_state[fetch_state.state][fetch_state.topic_partition]
        fetch_state.state = after
        self._by_state[after][fetch_state.topic_partition] = fetch_state
