"""Moves of replicas between the log dirs of a broker, under load (KIP-113).

A move is a copy from the current log into a future log of the target dir, slice by slice. Each
round, on the event loop:

1. the future log is truncated to what it has in common with the current one, if that was truncated
   since (by leader epochs, as in any follower), and its start follows the current log's;
2. a slice is looked up, and is read and appended beside the loop: only this thread writes to a
   future log, so it shares no state with the requests that are served meanwhile;
3. the rest is small at last: it is copied on the loop, and the future log takes the current one's
   place before anything else can be appended. So no record is lost or doubled, and no request waits
   longer than for one small slice.

Slices are of a size that takes a few milliseconds. After each the move rests as long as the slice
took, or as long as ``replica.alter.log.dirs.io.max.bytes.per.second`` asks.
``num.replica.alter.log.dirs.threads`` replicas move at a time, in the order of their names. The
current log is not compacted meanwhile.

A broker that starts again continues with the future logs that it finds, as soon as the controller
makes it leader or follower of their partitions.

In Kafka: `ReplicaAlterLogDirsManager` and `ReplicaAlterLogDirsThread`; the state of a move is
`PartitionFetchState` there.
"""

import logging
from enum import Enum
from functools import partial

from barnabas.base.clock import Now
from barnabas.base.files import FileSlice
from barnabas.base.ids import TopicPartition
from barnabas.broker.configuration.broker_config import BrokerConfig
from barnabas.broker.replication.offset_truncation import truncation_for
from barnabas.broker.replication.replica_manager import LeadershipOutcome, ReplicaManager
from barnabas.broker.storage.effects import Effects, Later, RunBeside
from barnabas.log.dirs.log_dirs import LogDirs
from barnabas.log.flush_task import FlushTask
from barnabas.log.holes import all_legal
from barnabas.log.names import future_folder
from barnabas.log.partition_log import PartitionLog, UnexpectedOffsetError
from barnabas.wire.kafka.errors import ErrorCode, KafkaError

__all__ = ["MOVE_TRANSITIONS", "MoveState", "ReplicaAlterLogDirsManager", "ReplicaMove"]

logger = logging.getLogger(__name__)

_LEAST_SLICE_BYTES = 64 * 1024
_MOST_SLICE_BYTES = 1024 * 1024
_LAST_SLICE_BYTES = 64 * 1024
_SHORT_MS, _LONG_MS = 2, 6
_RETRY_MS = 1000
_LONGEST_REST_MS = 500
_SYNC_ROUNDS = 5
_UNIQUE = bytes(16)


class MoveState(Enum):
    """The state of a move."""

    RESTING = "resting"
    """The next round comes by the clock."""
    COPYING = "copying"
    """A thread reads and appends a slice."""
    SYNCING = "syncing"
    """All is copied; a thread syncs the future log, as the current one is synced."""
    OVER = "over"
    """The future log took over, or the move was cancelled, or a log dir failed."""


MOVE_TRANSITIONS = {
    MoveState.RESTING: {MoveState.COPYING, MoveState.SYNCING, MoveState.OVER},
    MoveState.COPYING: {MoveState.RESTING, MoveState.OVER},
    MoveState.SYNCING: {MoveState.RESTING, MoveState.OVER},
    MoveState.OVER: set[MoveState](),
}
"""Which state may follow which."""


class ReplicaMove:
    """One replica on its way."""

    __slots__ = ("cuts", "future", "log", "slice_bytes", "state", "sync_rounds", "topic_partition")

    def __init__(self, topic_partition: TopicPartition, log: PartitionLog, future: PartitionLog) -> None:
        self.topic_partition = topic_partition
        self.log = log
        self.future = future
        self.state = MoveState.RESTING
        self.cuts = -1
        """`Durability.cuts` of the current log when the two were last compared."""
        self.slice_bytes = _LEAST_SLICE_BYTES
        self.sync_rounds = 0

    @property
    def is_over(self) -> bool:
        return self.state is MoveState.OVER

    def enter(self, state: MoveState) -> None:
        """Raises RuntimeError for a transition that `MOVE_TRANSITIONS` does not have."""
        if state is not self.state and state not in MOVE_TRANSITIONS[self.state]:
            raise RuntimeError(f"The move of {self.topic_partition} cannot go from {self.state} to {state}")
        self.state = state


class ReplicaAlterLogDirsManager:
    """All moves of one broker. Each step returns `Effects`."""

    def __init__(self, log_dirs: LogDirs, replicas: ReplicaManager, config: BrokerConfig) -> None:
        self._log_dirs = log_dirs
        self._replicas = replicas
        self._config = config
        self._queued: set[TopicPartition] = set()
        self._moves: dict[TopicPartition, ReplicaMove] = {}
        self._written: set[PartitionLog] = set()
        """Future logs that a thread writes to, whether their move is over or not."""
        self._is_stopped = False
        self._effects: list[RunBeside | Later] = []

    def stop(self) -> None:
        """Start nothing more; a slice under way may still end.

        The future logs stay for the next start."""
        self._is_stopped = True
        self._queued.clear()
        for move in tuple(self._moves.values()):
            self._end(move)

    # Requests

    def move(self, topic_partition: TopicPartition, path: str, now: Now) -> Effects:
        """Move a replica to a log dir. If it is there already, cancel its move.

        Raises `KafkaError`: INVALID_TOPIC_EXCEPTION for a name too long for the folder,
        LOG_DIR_NOT_FOUND, KAFKA_STORAGE_ERROR, UNKNOWN_TOPIC_OR_PARTITION, and
        NOT_LEADER_OR_FOLLOWER if there is no replica here yet; it will be created in that dir then.
        """
        log_dirs = self._log_dirs
        if future_folder(topic_partition, _UNIQUE) is None:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic name is too long.")
        log_dirs.check_dir(path)
        if self._replicas.get(topic_partition) is None:
            log_dirs.moves.prefer(topic_partition, path)
            self._replicas.partition(topic_partition)
            return ()
        log = self._replicas.partition(topic_partition).log
        future = log_dirs.moves.future(topic_partition)
        if future is not None and log_dirs.dir_of(future) != path:
            self._cancel(topic_partition, now)
            future = None
        if log_dirs.dir_of(log) != path:
            if future is None:
                log_dirs.moves.create(topic_partition, path, now.wall_ms)
            self._queue(topic_partition)
        return self._take_effects()

    def roles_changed(self, outcome: LeadershipOutcome) -> Effects:
        """The controller has made this broker leader, follower, or neither, of partitions."""
        for topic_partition in outcome.stopped:
            self._leave(topic_partition)
        for partition in (*outcome.gained, *outcome.following):
            if self._log_dirs.moves.future(partition.topic_partition) is not None:
                self._queue(partition.topic_partition)
        self._begin_queued()
        return self._take_effects()

    def _take_effects(self) -> Effects:
        effects, self._effects = self._effects, []
        return effects

    def _cancel(self, topic_partition: TopicPartition, now: Now) -> None:
        self._leave(topic_partition)
        self._log_dirs.moves.cancel(topic_partition, now.wall_ms)
        self._begin_queued()

    def _leave(self, topic_partition: TopicPartition) -> None:
        self._queued.discard(topic_partition)
        move = self._moves.get(topic_partition)
        if move is not None:
            self._end(move)

    # Turns

    def _queue(self, topic_partition: TopicPartition) -> None:
        if not self._is_stopped and topic_partition not in self._moves:
            self._queued.add(topic_partition)
            self._begin_queued()

    def _begin_queued(self) -> None:
        most = self._config["num.replica.alter.log.dirs.threads"] or len(self._log_dirs.online)
        for topic_partition in sorted(self._queued) if len(self._moves) < most else ():
            if len(self._moves) >= most:
                break
            partition, future = self._replicas.get(topic_partition), self._log_dirs.moves.future(topic_partition)
            if future in self._written:
                # Its last move was cancelled in the middle of a slice; this one
                # begins after that slice.
                continue
            self._queued.remove(topic_partition)
            if partition is None or partition.offline or future is None:
                continue
            logger.info("%s moves from %s to %s", topic_partition, partition.log.directory, future.directory)
            move = self._moves[topic_partition] = ReplicaMove(topic_partition, partition.log, future)
            self._rest(move, 0)

    def _rest(self, move: ReplicaMove, delay_ms: int) -> None:
        """Plan the next round."""
        move.enter(MoveState.RESTING)
        self._effects.append(Later(delay_ms, partial(self._round, move)))

    def _end(self, move: ReplicaMove) -> None:
        move.enter(MoveState.OVER)
        if self._moves.get(move.topic_partition) is move:
            del self._moves[move.topic_partition]

    def _round(self, move: ReplicaMove, now: Now) -> Effects:
        if not move.is_over:
            try:
                self._advance(move, now)
            except (KafkaError, UnexpectedOffsetError) as error:
                self._failed(move, error)
            except Exception:
                logger.exception("The move of %s failed and is retried", move.topic_partition)
                if not move.is_over:
                    self._rest(move, _RETRY_MS)
        if move.is_over:
            self._begin_queued()
        return self._take_effects()

    def _advance(self, move: ReplicaMove, now: Now) -> None:
        log, future = move.log, move.future
        if log.offline is not None or future.offline is not None:
            self._end(move)
            return
        _align(move)
        if future.log_end_offset < log.log_end_offset:
            end_offset = log.log_end_offset
            piece = log.read(
                future.log_end_offset, move.slice_bytes, upper_bound=end_offset, holes=all_legal(log.bounds)
            )
            records = piece.records
            if not piece.size_bytes:
                future.skip_to(log.log_end_offset, now.wall_ms)
            elif piece.size_bytes > _LAST_SLICE_BYTES or piece.upper_offset < log.log_end_offset:
                self._copy(move, records, piece.size_bytes, now)
                return
            else:
                _append(future, _read(log, records), log.log_start_offset, now.wall_ms)
        if future.log_end_offset < log.log_end_offset:
            self._rest(move, 0)
        elif self._is_durable(move, now):
            self._finish(move, now)

    # Copying

    def _copy(self, move: ReplicaMove, records: FileSlice | bytes, size_bytes: int, now: Now) -> None:
        log, future, start_offset = move.log, move.future, move.log.log_start_offset

        def work() -> None:
            data = records.read() if isinstance(records, FileSlice) else records
            _append(future, data, start_offset, now.wall_ms)
            if future.durability.recovery_point < future.segments.active.base_offset:
                future.flusher.flush(now.wall_ms, include_active=False)

        move.enter(MoveState.COPYING)
        self._written.add(future)
        done = partial(self._copied, move, log.durability.cuts, future.log_end_offset, size_bytes, now.ms)
        self._effects.append(RunBeside(work, done))

    def _copied(
        self,
        move: ReplicaMove,
        cuts: int,
        end_offset: int,
        size_bytes: int,
        started_ms: int,
        error: BaseException | None,
        now: Now,
    ) -> Effects:
        """A slice has been copied; ``cuts`` and the future log's ``end_offset`` are from before."""
        self._written.discard(move.future)
        if move.is_over:
            self._begin_queued()
        elif move.log.durability.cuts != cuts:
            # What was read may be partly from before the truncation and partly from
            # after it: discard it.
            self._undo(move, end_offset)
        elif isinstance(error, OSError):
            self._end(move)
            move.log.availability.fail(error, "reading from")
            self._begin_queued()
        elif error is not None:
            self._failed(move, error)
        else:
            took_ms = now.ms - started_ms
            move.slice_bytes = _next_slice(move.slice_bytes, took_ms)
            move.enter(MoveState.RESTING)
            self._throttle(move, size_bytes, started_ms, took_ms, now)
        return self._take_effects()

    def _throttle(self, move: ReplicaMove, size_bytes: int, started_ms: int, least_ms: int, now: Now) -> None:
        """Continue when the slice has taken as long as it must.

        The limit may be changed meanwhile."""
        left_ms = max(least_ms, started_ms + self._throttled_ms(size_bytes) - now.ms)
        if left_ms <= _LONGEST_REST_MS:
            self._rest(move, left_ms)
        else:
            self._effects.append(Later(_LONGEST_REST_MS, partial(self._throttle_again, move, size_bytes, started_ms)))

    def _throttle_again(self, move: ReplicaMove, size_bytes: int, started_ms: int, now: Now) -> Effects:
        if not move.is_over:
            self._throttle(move, size_bytes, started_ms, 0, now)
        return self._take_effects()

    def _throttled_ms(self, size_bytes: int) -> int:
        """How long this many bytes must take for all moves together to keep to the limit."""
        rate: int = max(self._config["replica.alter.log.dirs.io.max.bytes.per.second"], 1)
        return 1000 * size_bytes * len(self._moves) // rate

    def _undo(self, move: ReplicaMove, end_offset: int) -> None:
        try:
            move.future.truncate_to(end_offset)
        except KafkaError as error:
            self._failed(move, error)
        else:
            self._rest(move, 0)

    def _failed(self, move: ReplicaMove, error: BaseException) -> None:
        log_dirs = self._log_dirs
        if move.is_over:
            return
        if move.future.offline is not None:
            self._end(move)
            log_dirs.fail(log_dirs.dir_of(move.future), move.future.offline)
            self._begin_queued()
        elif move.log.offline is not None:
            self._end(move)
        else:
            # The records changed while they were read, or they are damaged: the next
            # round shows which.
            logger.warning("A slice of %s could not be copied: %s", move.topic_partition, error)
            self._rest(move, _RETRY_MS)

    # Taking over

    def _is_durable(self, move: ReplicaMove, now: Now) -> bool:
        """Whether what must be on stable storage is so in the future log, too.

        If not, a sync begins."""
        log, future = move.log, move.future
        if not log.config.flush_before_ack or future.durability.durable_offset >= log.durability.durable_offset:
            return True
        if move.sync_rounds >= _SYNC_ROUNDS:
            future.flusher.flush(
                now.wall_ms
            )  # new records always come before the sync ends: these few must be synced here
            return True
        move.sync_rounds += 1
        task = future.flusher.prepare_flush()
        if task is None:
            return True
        move.enter(MoveState.SYNCING)
        self._effects.append(RunBeside(task.run, partial(self._synced, move, task)))
        return False

    def _synced(self, move: ReplicaMove, task: FlushTask, error: BaseException | None, now: Now) -> Effects:
        if isinstance(error, OSError):
            move.future.availability.fail(error, "flushing")
        elif error is None:
            move.future.flusher.done(task, now.wall_ms)
        if move.is_over:
            return ()
        move.enter(MoveState.RESTING)
        return self._round(move, now)

    def _finish(self, move: ReplicaMove, now: Now) -> None:
        self._end(move)
        try:
            log = self._log_dirs.moves.promote(move.topic_partition, now.wall_ms)
        except KafkaError as error:
            logger.error("%s could not be moved to %s: %s", move.topic_partition, move.future.directory, error)
            if move.future.offline is not None:
                self._log_dirs.fail(self._log_dirs.dir_of(move.future), move.future.offline)
            return
        logger.info("%s has moved to %s", move.topic_partition, log.directory)
        self._replicas.log_replaced(log, now.wall_ms)


def _next_slice(slice_bytes: int, took_ms: int) -> int:
    if took_ms <= _SHORT_MS:
        return min(2 * slice_bytes, _MOST_SLICE_BYTES)
    return max(slice_bytes // 2, _LEAST_SLICE_BYTES) if took_ms >= _LONG_MS else slice_bytes


def _read(log: PartitionLog, records: FileSlice | bytes) -> bytes:
    if isinstance(records, bytes):
        return records
    with log.availability.guard("reading from"):
        return records.read()


def _append(future: PartitionLog, records: bytes, start_offset: int, now_ms: int) -> None:
    """Append a slice of the current log, whose start may lie inside the first batch."""
    began = future.log_start_offset
    future.append_as_follower(records, now_ms=now_ms)
    if future.log_start_offset < began:  # it took the batch whole
        future.update_high_watermark(start_offset)
        future.raise_start(start_offset)


def _align(move: ReplicaMove) -> None:
    """Bring the future log's bounds in line with the current log's."""
    log, future = move.log, move.future
    if move.cuts != log.durability.cuts:
        _reconcile(log, future)
        move.cuts = log.durability.cuts
    future.configure(log.config)
    is_apart = not log.log_start_offset <= future.log_end_offset <= log.log_end_offset
    # A start after a crash may have brought deleted records back that were never copied.
    if is_apart or future.log_start_offset > log.log_start_offset:
        future.truncate_fully_and_start_at(log.log_start_offset)
    future.update_high_watermark(log.high_watermark)
    future.raise_start(log.log_start_offset)


def _reconcile(log: PartitionLog, future: PartitionLog) -> None:
    """Truncate the future log to its longest prefix that the current log has, too."""
    while future.log_end_offset > future.log_start_offset:
        epoch = future.leader_epochs.latest_epoch
        if epoch < 0:
            future.truncate_to(min(future.log_end_offset, log.high_watermark))
            return
        truncation = truncation_for(future, *log.end_offset_for_epoch(epoch))
        if truncation.offset < future.log_end_offset:
            future.truncate_to(truncation.offset)
        elif not truncation.is_final:
            # Nothing to truncate for an epoch that the current log does not know:
            # keep what is committed.
            future.truncate_to(min(future.log_end_offset, log.high_watermark))
            return
        if truncation.is_final:
            return
