"""Moving replicas between the log dirs of a broker, under load (KIP-113; Apache's ReplicaAlterLogDirsThread).

A move is a copy from the current log into a future log of the target dir, slice by slice. Each round, on the event loop:

1. the future log is cut back to what it has in common with the current one, if that was truncated since (by leader
   epochs, as any follower does it), and its start follows the current log's;
2. a slice is looked up, which beside the loop is read and appended: nothing else writes to a future log, so the thread
   shares no state with the requests that go on meanwhile;
3. what is left at last is small: it is copied on the loop, and the future log takes the current one's place before
   anything else can be appended. So no record is lost or doubled, and nobody waits longer than for one small slice.

Slices are of a size that takes a few milliseconds, and a pause as long as each follows, or as long as
``replica.alter.log.dirs.io.max.bytes.per.second`` asks. ``num.replica.alter.log.dirs.threads`` replicas move at a time,
in the order of their names. The current log is not compacted meanwhile.

A broker that starts again goes on with the future logs that it finds, as soon as it hears of their partitions.
"""

import logging

from barnabas.base.clock import Timer
from barnabas.base.files import FileSlice
from barnabas.base.ids import TopicPartition
from barnabas.base.threads import InThread
from barnabas.broker.replication.replica_manager import LeadershipOutcome
from barnabas.broker.replication.truncation import truncation_for
from barnabas.broker.requests.request import Node
from barnabas.log.group_sync import Syncs
from barnabas.log.names import future_folder
from barnabas.log.partition_log import PartitionLog, UnexpectedOffsetError
from barnabas.wire.kafka.errors import ErrorCode, KafkaError

__all__ = ["LogDirMoves"]

logger = logging.getLogger(__name__)

_LEAST_SLICE_BYTES = 64 * 1024
_MOST_SLICE_BYTES = 1024 * 1024
_LAST_SLICE_BYTES = 64 * 1024
_SHORT_MS, _LONG_MS = 2, 6
_RETRY_MS = 1000
_LONGEST_REST_MS = 500
_SYNC_ROUNDS = 5
_UNIQUE = bytes(16)


class _Move:
    """One replica on its way."""

    __slots__ = ("cuts", "future", "is_over", "log", "name", "slice_bytes", "sync_rounds", "timer")

    def __init__(self, name: TopicPartition, log: PartitionLog, future: PartitionLog) -> None:
        self.name = name
        self.log = log
        self.future = future
        self.cuts = -1
        """`PartitionLog.cuts` of the current log when the two were last compared."""
        self.slice_bytes = _LEAST_SLICE_BYTES
        self.sync_rounds = 0
        self.timer: Timer | None = None
        self.is_over = False


class LogDirMoves:
    """All moves of one broker."""

    def __init__(self, node: Node, in_thread: InThread, syncs: Syncs) -> None:
        self._node = node
        self._in_thread = in_thread
        self._syncs = syncs
        self._waiting: dict[TopicPartition, None] = {}
        self._running: dict[TopicPartition, _Move] = {}
        self._written: set[PartitionLog] = set()
        """Future logs that a thread is at, be its move over or not."""
        self._is_stopped = False

    def __contains__(self, name: object) -> bool:
        """Whether a partition is on the move, or will be."""
        return name in self._running or name in self._waiting

    def stop(self) -> None:
        """Nothing starts any more; a slice under way may still end. The future logs stay for the next start."""
        self._is_stopped = True
        self._waiting.clear()
        for move in tuple(self._running.values()):
            self._end(move)

    # What is asked for

    def move(self, name: TopicPartition, path: str) -> None:
        """Have a replica moved to a log dir; to the one it is in: cancel its move.

        Raises `KafkaError`: INVALID_TOPIC_EXCEPTION for a name too long for the folder, LOG_DIR_NOT_FOUND,
        KAFKA_STORAGE_ERROR, UNKNOWN_TOPIC_OR_PARTITION, and NOT_LEADER_OR_FOLLOWER where there is no replica here yet; it
        will be made in that dir then.
        """
        node, log_dirs = self._node, self._node.log_dirs
        if future_folder(name, _UNIQUE) is None:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic name is too long.")
        log_dirs.check_dir(path)
        known = node.replicas.get(name)
        if known is not None:
            log = node.replicas.partition(name).log
            future = log_dirs.future(name)
            if future is not None and log_dirs.dir_of(future) != path:
                self._cancel(name)
                future = None
            if log_dirs.dir_of(log) == path:
                return
            if future is None:
                log_dirs.create_future(name, path, node.clock.wall_ms())
            self._plan(name)
            return
        log_dirs.prefer(name, path)
        node.replicas.partition(name)

    def _cancel(self, name: TopicPartition) -> None:
        self._leave(name)
        self._node.log_dirs.delete_future(name, self._node.clock.wall_ms())
        self._begin_waiting()

    def _leave(self, name: TopicPartition) -> None:
        self._waiting.pop(name, None)
        move = self._running.get(name)
        if move is not None:
            self._end(move)

    def roles_changed(self, outcome: LeadershipOutcome) -> None:
        """Begin the moves of replicas that have a role, and end those of replicas that lost it."""
        for name in outcome.stopped:
            self._leave(name)
        for partition in (*outcome.gained, *outcome.following):
            if self._node.log_dirs.future(partition.name) is not None:
                self._plan(partition.name)
        self._begin_waiting()

    # Turns

    def _plan(self, name: TopicPartition) -> None:
        if not self._is_stopped and name not in self._running:
            self._waiting[name] = None
            self._begin_waiting()

    def _begin_waiting(self) -> None:
        settings = self._node.settings
        most = settings["num.replica.alter.log.dirs.threads"] or len(self._node.log_dirs.online)
        for name in sorted(self._waiting) if len(self._running) < most else ():
            if len(self._running) >= most:
                break
            partition, future = self._node.replicas.get(name), self._node.log_dirs.future(name)
            if future in self._written:
                continue  # its last move was given up in the middle of a slice, and it is our turn after that
            del self._waiting[name]
            if partition is None or partition.offline or future is None:
                continue
            logger.info("%s moves from %s to %s", name, partition.log.directory, future.directory)
            move = self._running[name] = _Move(name, partition.log, future)
            self._later(move, 0)

    def _later(self, move: _Move, delay_ms: int) -> None:
        move.timer = self._node.call_later(delay_ms, lambda: self._round(move))

    def _end(self, move: _Move) -> None:
        move.is_over = True
        if move.timer is not None:
            move.timer.cancel()
        if self._running.get(move.name) is move:
            del self._running[move.name]

    def _round(self, move: _Move) -> None:
        try:
            self._advance(move)
        except (KafkaError, UnexpectedOffsetError) as error:
            self._failed(move, error)
        except Exception:
            logger.exception("The move of %s failed and is tried again", move.name)
            self._later(move, _RETRY_MS)
        if move.is_over:
            self._begin_waiting()

    def _advance(self, move: _Move) -> None:
        log, future = move.log, move.future
        if move.is_over or log.offline is not None or future.offline is not None:
            self._end(move)
            return
        now_ms = self._node.clock.wall_ms()
        _follow(move)
        left = log.log_end_offset - future.log_end_offset
        if left:
            piece = log.read(future.log_end_offset, move.slice_bytes, upper_bound=log.log_end_offset)
            records = piece.records
            if not piece.size_bytes:
                future.skip_to(log.log_end_offset, now_ms)
            elif piece.size_bytes > _LAST_SLICE_BYTES or piece.upper_offset < log.log_end_offset:
                self._copy(move, records, piece.size_bytes, now_ms)
                return
            else:
                _append(future, _read(log, records), log.log_start_offset, now_ms)
        if future.log_end_offset < log.log_end_offset:
            self._later(move, 0)
        elif self._is_durable(move):
            self._finish(move, now_ms)

    # Copying

    def _copy(self, move: _Move, records: FileSlice | bytes, size_bytes: int, now_ms: int) -> None:
        log, future, start_offset = move.log, move.future, move.log.log_start_offset
        started_ms = self._node.clock.monotonic_ms()
        cuts, end_offset = log.cuts, future.log_end_offset

        def work() -> None:
            data = records.read() if isinstance(records, FileSlice) else records
            _append(future, data, start_offset, now_ms)
            if future.recovery_point < future.active.base_offset:
                future.flush(now_ms, include_active=False)

        def done(error: BaseException | None) -> None:
            self._written.discard(future)
            if move.is_over:
                self._begin_waiting()
                return
            if log.cuts != cuts:
                # What was read may be part what was there before, part what came after: none of it counts.
                self._undo(move, end_offset)
            elif isinstance(error, OSError):
                self._end(move)
                log.fail(error, "reading from")
                self._begin_waiting()
            elif error is not None:
                self._failed(move, error)
            else:
                took_ms = self._node.clock.monotonic_ms() - started_ms
                move.slice_bytes = _next_slice(move.slice_bytes, took_ms)
                self._rest(move, size_bytes, started_ms, took_ms)

        self._written.add(future)
        self._in_thread(work, done)

    def _rest(self, move: _Move, size_bytes: int, started_ms: int, least_ms: int) -> None:
        """Go on when the slice has taken as long as it must; the limit may be changed meanwhile."""
        now_ms = self._node.clock.monotonic_ms()
        left_ms = max(least_ms, started_ms + self._throttled_ms(size_bytes) - now_ms)
        if left_ms <= _LONGEST_REST_MS:
            self._later(move, left_ms)
        else:
            move.timer = self._node.call_later(_LONGEST_REST_MS, lambda: self._rest(move, size_bytes, started_ms, 0))

    def _undo(self, move: _Move, end_offset: int) -> None:
        try:
            move.future.truncate_to(end_offset)
        except KafkaError as error:
            self._failed(move, error)
        else:
            self._later(move, 0)

    def _throttled_ms(self, size_bytes: int) -> int:
        """How long so many bytes must take, so that all moves together keep to the limit."""
        rate: int = max(self._node.settings["replica.alter.log.dirs.io.max.bytes.per.second"], 1)
        return 1000 * size_bytes * len(self._running) // rate

    def _failed(self, move: _Move, error: BaseException) -> None:
        log_dirs = self._node.log_dirs
        if move.is_over:
            return
        if move.future.offline is not None:
            self._end(move)
            log_dirs.fail(log_dirs.dir_of(move.future), move.future.offline)
            self._begin_waiting()
        elif move.log.offline is not None:
            self._end(move)
        else:
            # Records that changed while they were read, or that are damaged: the next round tells.
            logger.warning("A slice of %s could not be copied: %s", move.name, error)
            self._later(move, _RETRY_MS)

    # Taking over

    def _is_durable(self, move: _Move) -> bool:
        """Whether what must be on stable storage is so in the future log, too. If not, a sync begins."""
        log, future = move.log, move.future
        if not log.config.flush_before_ack or future.durable_offset >= log.durable_offset:
            return True
        now_ms = self._node.clock.wall_ms()
        if move.sync_rounds >= _SYNC_ROUNDS:
            future.flush(now_ms)  # new records always come before the sync ends: these few have to be synced here
            return True
        move.sync_rounds += 1
        task = future.prepare_flush()
        if task is None:
            return True

        def done(error: BaseException | None) -> None:
            if isinstance(error, OSError):
                future.fail(error, "flushing")
            elif error is None:
                future.flush_done(task, now_ms)
            if not move.is_over:
                self._round(move)

        self._in_thread(task.run, done)
        return False

    def _finish(self, move: _Move, now_ms: int) -> None:
        node = self._node
        self._end(move)
        try:
            log = node.log_dirs.promote(move.name, now_ms)
        except KafkaError as error:
            logger.error("%s could not be moved to %s: %s", move.name, move.future.directory, error)
            if move.future.offline is not None:
                node.log_dirs.fail(node.log_dirs.dir_of(move.future), move.future.offline)
            return
        logger.info("%s has moved to %s", move.name, log.directory)
        node.replicas.log_replaced(log, now_ms)


def _next_slice(slice_bytes: int, took_ms: int) -> int:
    if took_ms <= _SHORT_MS:
        return min(2 * slice_bytes, _MOST_SLICE_BYTES)
    return max(slice_bytes // 2, _LEAST_SLICE_BYTES) if took_ms >= _LONG_MS else slice_bytes


def _read(log: PartitionLog, records: FileSlice | bytes) -> bytes:
    if isinstance(records, bytes):
        return records
    with log.disk("reading from"):
        return records.read()


def _append(future: PartitionLog, records: bytes, start_offset: int, now_ms: int) -> None:
    """Append a slice of the current log, whose start may lie inside the first batch."""
    began = future.log_start_offset
    future.append_as_follower(records, now_ms=now_ms)
    if future.log_start_offset < began:  # it took the batch whole
        future.update_high_watermark(start_offset)
        future.raise_start(start_offset)


def _follow(move: _Move) -> None:
    """Bring the future log's bounds in line with the current log's."""
    log, future = move.log, move.future
    if move.cuts != log.cuts:
        _reconcile(log, future)
        move.cuts = log.cuts
    future.configure(log.config)
    is_apart = not log.log_start_offset <= future.log_end_offset <= log.log_end_offset
    # A start after a crash may have brought deleted records back that were never copied.
    if is_apart or future.log_start_offset > log.log_start_offset:
        future.truncate_fully_and_start_at(log.log_start_offset)
    future.update_high_watermark(log.high_watermark)
    future.raise_start(log.log_start_offset)


def _reconcile(log: PartitionLog, future: PartitionLog) -> None:
    """Cut the future log to its longest prefix that the current log has, too."""
    while future.log_end_offset > future.log_start_offset:
        epoch = future.latest_epoch
        if epoch < 0:
            future.truncate_to(min(future.log_end_offset, log.high_watermark))
            return
        truncation = truncation_for(future, *log.end_offset_for_epoch(epoch))
        if truncation.offset < future.log_end_offset:
            future.truncate_to(truncation.offset)
        elif not truncation.is_final:
            # Nothing to cut for an epoch that the current log does not know: compare what is committed no longer.
            future.truncate_to(min(future.log_end_offset, log.high_watermark))
            return
        if truncation.is_final:
            return
