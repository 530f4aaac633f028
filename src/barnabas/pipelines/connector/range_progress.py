"""What our own reader does next in a range of one partition: a broker's answer goes in, the next
step comes out, without I/O.

A range ends when its end is reached, or when the records before its end are proved absent: a batch
came that begins behind them, or they are lost and the query may lose records. An answer that brings
the reader no further is *useless*. It is waited for and asked for again, each time after a longer
pause. After `MOST_USELESS` in a row librdkafka reads the rest of the range;
`RangeProgress.reason` is reported if it fails, too. An answer that says it was throttled
(KIP-219) is neither useless nor late.

    what came                         step
    batches                           FETCH behind them, or DONE
    nothing, throttled                FETCH
    nothing                           FETCH after a pause; at read_committed every
                                      other time LOOK_AHEAD
    a first batch that is cut off     FETCH with room for it (brokers before KIP-74)
    OFFSET_OUT_OF_RANGE               FIND_BOUNDS, then FETCH behind what is lost, or LOST
    rights that are missing           FAIL
    any other error, damaged batches  FETCH after a pause, from the leader of then
    no connection                     FETCH after a pause; FAIL after fetchTimeoutMs
    too many of these                 HAND_OVER; where records may be lost and the log
                                      has become shorter: DONE

LOOK_AHEAD fetches at read_uncommitted. It proves records absent that compaction removed before an
open transaction: up to there, an answer at read_committed is empty.

Kafka: Fetcher, OffsetFetcher, FetchCollector.
"""

from enum import Enum, auto
from typing import Final, NamedTuple

from barnabas.pipelines.cluster.offsets import Range
from barnabas.wire.kafka.errors import ErrorCode, KafkaError

__all__ = ["FINAL_ERRORS", "MOST_USELESS", "Action", "Ends", "Lost", "NextStep", "RangeProgress"]

MOST_USELESS: Final = 12
_DAMAGED_COUNTS: Final = 4
"""Damaged batches rarely come whole at the next attempt, and are megabytes."""
_CONFIRMATIONS: Final = 3
_PAUSE_MS: Final = 50
_LONGEST_PAUSE_MS: Final = 1000
_MOST_BYTES: Final = 2**31 - 1
FINAL_ERRORS = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.SASL_AUTHENTICATION_FAILED,
    ErrorCode.INVALID_TOPIC_EXCEPTION,
}
"""Errors that do not pass. Those of librdkafka have the same numbers."""
_FOR_LIBRDKAFKA = {ErrorCode.UNSUPPORTED_VERSION, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT}


class Action(Enum):
    """What the reader does next."""

    FETCH = auto()
    LOOK_AHEAD = auto()
    """Fetch at read_uncommitted, to see only where the next batch begins."""
    FIND_BOUNDS = auto()
    """Ask for the first offset and the end of the partition."""
    DONE = auto()
    LOST = auto()
    """Records are gone, and must not be: `RangeProgress.reason` says which."""
    FAIL = auto()
    HAND_OVER = auto()


class NextStep(NamedTuple):
    """The next action, and the pause before it."""

    action: Action
    pause_ms: int = 0


class Ends(NamedTuple):
    """What an answer says of a partition's end."""

    high_watermark: int
    last_stable_offset: int


class Lost(NamedTuple):
    """Records that were to be read and are gone: ``start <= offset < end``."""

    start: int
    end: int


class RangeProgress:
    """How far a range is read.

    The caller performs each step and reports what came of it; times are monotonic."""

    def __init__(
        self,
        wanted: Range,
        *,
        fetch_bytes: int,
        timeout_ms: int,
        may_lose: bool,
        committed_only: bool,
        now_ms: int,
    ) -> None:
        self.wanted = wanted
        self.next_offset = wanted.start
        self.fetch_bytes = fetch_bytes
        self.reason = ""
        """What is wrong, once something is."""
        self.lost: list[Lost] = []
        self.may_lose = may_lose
        self._committed_only = committed_only
        self._timeout_ms = timeout_ms
        self._deadline_ms = now_ms + timeout_ms
        self._useless = 0
        self._empty = 0
        self._beyond = 0
        self._is_settled = False

    def begin(self) -> NextStep:
        """The first step."""
        return self._onward()

    # What came

    def received(self, reached: int, ends: Ends, throttle_ms: int, cut_bytes: int, now_ms: int) -> NextStep:
        """Whole batches up to the offset ``reached``, or none.

        ``cut_bytes`` is the size of a first batch that was cut off."""
        self._deadline_ms += throttle_ms
        if reached > self.next_offset:
            return self._advance(reached, now_ms)
        self.reason = (
            f"the broker answered without records, with high watermark {ends.high_watermark}"
            f"{f' and last stable offset {ends.last_stable_offset}' if self._committed_only else ''}"
        )
        if cut_bytes > self.fetch_bytes:
            self.reason = f"the broker cut off a batch of {cut_bytes} bytes"
            self.fetch_bytes = min(cut_bytes, _MOST_BYTES)
            return self._retry(now_ms, pause=False)
        if throttle_ms:
            return self._late(now_ms) or NextStep(Action.FETCH)
        self._empty += 1
        step = self._retry(now_ms)
        if step.action is Action.FETCH and self._committed_only and self._empty % 2 == 0:
            return NextStep(Action.LOOK_AHEAD, step.pause_ms)
        return step

    def throttled(self, throttle_ms: int, now_ms: int) -> NextStep:
        """An answer without the partition: the broker's quota is used up, and it
        says for how long."""
        self._deadline_ms += throttle_ms
        self.reason = self.reason or "the broker's quota lets nothing through"
        return self._late(now_ms) or NextStep(Action.FETCH)

    def saw(self, first: int, now_ms: int) -> NextStep:
        """The next batch, committed or not, begins at ``first``; below zero: none came."""
        if first > self.next_offset:
            return self._advance(first, now_ms)
        return NextStep(Action.FETCH)

    def refused(self, error: KafkaError, now_ms: int) -> NextStep:
        """An error of the partition, the request, or the partition's metadata."""
        code = error.code
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            return NextStep(Action.FIND_BOUNDS)
        self.reason = f"the broker answered {code.name}: {error.message}"
        if code in FINAL_ERRORS:
            return NextStep(Action.FAIL)
        if code in _FOR_LIBRDKAFKA:
            return NextStep(Action.HAND_OVER)
        return self._retry(now_ms)

    def odd(self, problem: str, now_ms: int) -> NextStep:
        """An answer that is none to the question."""
        self.reason = problem
        return self._retry(now_ms)

    def damaged(self, problem: str, now_ms: int) -> NextStep:
        """Batches with a wrong checksum, say."""
        self.reason = problem
        return self._retry(now_ms, weight=_DAMAGED_COUNTS)

    def unreachable(self, problem: str, now_ms: int) -> NextStep:
        """No connection, or one that broke before the answer was whole.

        An election may take long; these are not counted."""
        self.reason = problem
        if now_ms > self._deadline_ms:
            return NextStep(Action.FAIL)
        return NextStep(Action.FETCH, _PAUSE_MS)

    def bounds(self, earliest: int, latest: int, now_ms: int) -> NextStep:
        """Where the partition begins and ends."""
        if self._is_settled:
            return self._end_short(latest)
        if earliest > self.next_offset:
            gone = Lost(self.next_offset, min(earliest, self.wanted.end))
            self.reason = (
                f"has no offset {gone.start} any more: retention or DeleteRecords took the records before {earliest}."
            )
            return self._lose(gone, now_ms)
        if latest < self.next_offset:
            self.reason = f"has no offset {self.next_offset} any more, and ends at {latest}: was the topic deleted and made again?"
            self._beyond += 1
            if self._beyond >= _CONFIRMATIONS:  # a leader of before may say so, too
                return self._lose(Lost(self.next_offset, self.wanted.end), now_ms)
            return self._retry(now_ms)
        self.reason = (
            f"the broker answered OFFSET_OUT_OF_RANGE, though the partition has offsets {earliest} to {latest}"
        )
        return self._retry(now_ms)

    # What follows

    def _onward(self) -> NextStep:
        return NextStep(Action.DONE if self.next_offset >= self.wanted.end else Action.FETCH)

    def _advance(self, reached: int, now_ms: int) -> NextStep:
        self.next_offset = reached
        self._useless = self._empty = self._beyond = 0
        self.reason = ""
        self._deadline_ms = now_ms + self._timeout_ms
        return self._onward()

    def _lose(self, gone: Lost, now_ms: int) -> NextStep:
        if not self.may_lose:
            return NextStep(Action.LOST)
        self.lost.append(gone)
        return self._advance(gone.end, now_ms)

    def _retry(self, now_ms: int, *, weight: int = 1, pause: bool = True) -> NextStep:
        pause_ms = min(_PAUSE_MS << min(self._useless, 10), _LONGEST_PAUSE_MS) if pause else 0
        self._useless += weight
        if self._useless >= MOST_USELESS:
            return self._give_up()
        return self._late(now_ms) or NextStep(Action.FETCH, pause_ms)

    def _late(self, now_ms: int) -> NextStep | None:
        return self._give_up() if now_ms > self._deadline_ms else None

    def _give_up(self) -> NextStep:
        """Where records may be lost, only a log that ends before the range is no
        reason for librdkafka to try."""
        if self.may_lose and self._empty and not self._is_settled:
            self._is_settled = True
            return NextStep(Action.FIND_BOUNDS)
        return NextStep(Action.HAND_OVER)

    def _end_short(self, latest: int) -> NextStep:
        if latest >= self.wanted.end:
            return NextStep(Action.HAND_OVER)
        self.lost.append(Lost(self.next_offset, self.wanted.end))
        self.next_offset = self.wanted.end
        return NextStep(Action.DONE)
