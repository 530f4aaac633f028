"""What a replica's log consists of, and the steps that appends, reads and cuts share.

`LogState` holds the parts; `barnabas.log.append` adds writing, `barnabas.log.partition_log` all else.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from barnabas.base.files import Files
from barnabas.base.ids import TopicPartition, Uuid
from barnabas.base.randomness import Random
from barnabas.log.checkpoints import LEADER_EPOCHS, PARTITION_METADATA, write_epochs
from barnabas.log.flushing import FlushTask
from barnabas.log.leader_epochs import LeaderEpochs
from barnabas.log.lost_data import LostData, remove_lost_data, write_lost_data
from barnabas.log.names import SNAPSHOT, file_name
from barnabas.log.producer_state import ProducerState, encode_snapshot
from barnabas.log.segment.open_files import OpenFiles
from barnabas.log.segment.segment import Segment
from barnabas.log.settings import LogConfig
from barnabas.wire.kafka.errors import ErrorCode, KafkaError

__all__ = ["LogState"]


class LogState:
    """The parts of a log and what holds between them. See `barnabas.log.partition_log.PartitionLog`."""

    __slots__ = (
        "_on_failure",
        "_rng",
        "bases",
        "cleaned_to",
        "config",
        "cuts",
        "directory",
        "durable_offset",
        "epochs",
        "files",
        "first_unstable",
        "handles",
        "high_watermark",
        "last_flush_ms",
        "log_end_offset",
        "log_start_offset",
        "lost_data",
        "names_changed",
        "offline",
        "producers",
        "recovery_point",
        "segments",
        "set_aside",
        "snapshots",
        "topic_id",
        "topic_partition",
        "unsynced",
    )

    def __init__(
        self,
        files: Files,
        handles: OpenFiles,
        directory: str,
        topic_partition: TopicPartition,
        topic_id: Uuid,
        config: LogConfig,
        *,
        segments: list[Segment],
        epochs: LeaderEpochs,
        producers: ProducerState,
        snapshots: list[int],
        log_start_offset: int,
        log_end_offset: int,
        high_watermark: int,
        recovery_point: int,
        now_ms: int,
        rng: Random,
        on_failure: Callable[[str], None],
    ) -> None:
        self.files = files
        self.handles = handles
        self.directory = directory
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.config = config
        self.segments = segments
        """Oldest first; the last is active. Not the caller's to change."""
        self.bases = [segment.base_offset for segment in segments]
        self.epochs = epochs
        self.producers = producers
        self.snapshots = snapshots
        """The end offsets of the producer snapshots on disk."""
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        self.high_watermark = min(max(high_watermark, log_start_offset), log_end_offset)
        """The offset below which all is replicated; see `update_high_watermark`."""
        self.recovery_point = min(recovery_point, log_end_offset)
        self.durable_offset = self.recovery_point
        """The offset below which the records are on stable storage; their indexes may not be, see `recovery_point`."""
        self.names_changed = True
        """Whether the folder may hold names that are not on stable storage."""
        self.last_flush_ms = now_ms
        self.unsynced: set[str] = set()
        """Names of small files that were written since the last sync."""
        self.cuts = 0
        """How often the log was cut at its end: a sync that began before says nothing of what was written since."""
        self._rng = rng
        self._on_failure = on_failure
        self.offline: str | None = None
        """Why the log cannot be used any more."""
        self.set_aside: list[tuple[int, list[str]]] = []
        """(when, paths) of files that wait for their removal."""
        self.first_unstable: int | None = None
        self.lost_data: LostData | None = None
        """What the log knows of records that it has lost: see `barnabas.log.lost_data`."""
        self.cleaned_to: int | None = None
        """Where the last compaction ended; None when there was none."""
        segments[-1].is_active = True
        self._set_jitter()
        self.update_stable()

    def __repr__(self) -> str:
        return f"PartitionLog({self.directory!r}, [{self.log_start_offset}, {self.log_end_offset}))"

    # ---- failures

    def fail(self, error: OSError, doing: str) -> KafkaError:
        """The disk failed: the log is offline from now on, and its log dir hears of it. Returns what to raise."""
        message = f"Error while {doing} {self.topic_partition} in {self.directory}: {error}"
        if self.offline is None:
            self.offline = message
            self._on_failure(message)
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, message)

    def hear_failures(self, on_failure: Callable[[str], None]) -> None:
        """Have ``on_failure(reason)`` called from now on when the disk fails."""
        self._on_failure = on_failure

    def use_handles(self, handles: OpenFiles) -> None:
        """Keep open files and loaded indexes among those of other logs from now on."""
        self.handles = handles
        for segment in self.segments:
            segment.use_handles(handles)

    @contextmanager
    def disk(self, doing: str) -> Iterator[None]:
        self.check_online()
        try:
            yield
        except OSError as error:
            raise self.fail(error, doing) from error

    def check_online(self) -> None:
        if self.offline is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, self.offline)

    # ---- lost data

    def note_lost_data(self, lost: LostData) -> None:
        """Keep, over restarts, that records were lost. Raises `KafkaError` KAFKA_STORAGE_ERROR."""
        self.lost_data = lost
        with self.disk("writing what is lost of"):
            write_lost_data(self.files, self.directory, lost)

    def forget_lost_data(self) -> None:
        """The replica has caught up with a leader, or leads after an unclean election: nothing is missing any more.

        Raises `KafkaError` KAFKA_STORAGE_ERROR.
        """
        if self.lost_data is not None:
            with self.disk("removing what is lost of"):
                remove_lost_data(self.files, self.directory)
            self.lost_data = None

    # ---- bounds

    def update_high_watermark(self, offset: int) -> int:
        """Move the high watermark, within the log's bounds. Returns where it is now."""
        offset = min(max(offset, self.log_start_offset), self.log_end_offset)
        if offset != self.high_watermark:
            self.high_watermark = offset
            if self.first_unstable is not None:
                self.producers.high_watermark_moved(offset)
                self.update_stable()
        return offset

    @property
    def last_stable_offset(self) -> int:
        """The offset below which every transaction is decided and replicated."""
        unstable = self.first_unstable
        return self.high_watermark if unstable is None else min(unstable, self.high_watermark)

    def update_stable(self) -> None:
        """Find the first offset of an undecided transaction again."""
        unstable = self.producers.first_unstable_offset
        self.first_unstable = None if unstable is None else max(unstable, self.log_start_offset)

    def raise_start(self, offset: int) -> None:
        """Records below an offset are gone."""
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self.high_watermark = max(self.high_watermark, offset)
            if self.epochs.truncate_from_start(offset):
                with self.disk("writing the leader epochs of"):
                    self.write_epochs()
            self.producers.log_start_moved(offset)
            self.update_stable()

    def cut_bounds(self, offset: int) -> None:
        """The log ends at an offset now."""
        self.cuts += 1
        self.log_end_offset = offset
        self.log_start_offset = min(self.log_start_offset, offset)
        self.recovery_point = min(self.recovery_point, offset)
        self.durable_offset = min(self.durable_offset, offset)
        self.names_changed = True
        if self.cleaned_to is not None:
            self.cleaned_to = min(self.cleaned_to, offset)
        self.high_watermark = min(self.high_watermark, offset)
        if self.epochs.truncate_from_end(offset):
            self.write_epochs()
        self.update_stable()

    def remove_later(self, paths: list[str], now_ms: int) -> None:
        """Files that were renamed wait for their removal."""
        self.set_aside.append((now_ms + self.config.file_delete_delay_ms, paths))

    @property
    def size_bytes(self) -> int:
        """Bytes of all .log files."""
        return sum(segment.size for segment in self.segments)

    @property
    def active(self) -> Segment:
        """The segment that is appended to."""
        return self.segments[-1]

    # ---- segments

    def _set_jitter(self) -> None:
        config = self.config
        jitter_ms = min(config.segment_jitter_ms, config.segment_ms)
        self.segments[-1].jitter_ms = self._rng.randrange(jitter_ms) if jitter_ms else 0

    def segment_for(
        self, size: int, first_offset: int, last_offset: int, max_timestamp_ms: int, now_ms: int
    ) -> Segment:
        segment = self.segments[-1]
        config = self.config
        if segment.must_roll(
            size,
            last_offset,
            max_timestamp_ms,
            now_ms,
            config.segment_bytes,
            config.segment_ms,
            config.max_index_bytes,
        ):
            return self.roll_at(first_offset, now_ms)
        return segment

    def roll_at(self, base_offset: int, now_ms: int) -> Segment:
        old = self.segments[-1]
        if base_offset == old.base_offset:
            return old  # it is empty: another would have the same name
        old.finish_indexes()
        old.is_active = False
        self.handles.indexes_loaded(old)
        self.producers.end_offset = base_offset
        self.take_snapshot()
        segment = Segment(self.files, self.handles, self.directory, base_offset, 0, created_ms=now_ms)
        self.names_changed = True
        segment.is_active = True
        # What a crash may have left under this name was cut off by recovery, and is not part of the log.
        segment.file.truncate(0)
        self.segments.append(segment)
        self.bases.append(base_offset)
        self._set_jitter()
        return segment

    def roll(self, now_ms: int) -> None:
        """Begin a new segment now, unless the active one is empty."""
        with self.disk("rolling"):
            self.roll_at(self.log_end_offset, now_ms)

    def segment_index(self, offset: int) -> int:
        """Which segment holds an offset."""
        return max(0, bisect_right(self.bases, offset) - 1)

    def replace_segments(self, segments: list[Segment]) -> None:
        """Another list of segments (after a deletion, a truncation or a compaction)."""
        self.segments = segments
        self.bases = [segment.base_offset for segment in segments]
        for segment in segments[:-1]:
            segment.is_active = False
        segments[-1].is_active = True

    # ---- leader epochs and snapshots

    def begin_epoch(self, epoch: int, start_offset: int) -> None:
        if self.epochs.assign(epoch, start_offset):
            self.write_epochs()

    def write_epochs(self) -> None:
        """Replace the leader epoch checkpoint. Raises `OSError`."""
        # Not synced: the batches carry their epochs, and recovery reads them again past the recovery point.
        write_epochs(self.files, f"{self.directory}/{LEADER_EPOCHS}", self.epochs.entries, sync=False)
        self.unsynced.add(LEADER_EPOCHS)

    def take_snapshot(self) -> None:
        """Write the producer state if the log has moved since the last snapshot. Raises `OSError`."""
        offset = self.producers.end_offset
        if offset > self.producers.snapshot_offset:
            data = encode_snapshot(self.producers.entries.values())
            # Torn by a crash it fails its CRC and the one before is used.
            self.files.write_atomically(self.snapshot_path(offset), data, sync=False)
            self.unsynced.add(file_name(offset, SNAPSHOT))
            self.producers.snapshot_offset = offset
            if offset not in self.snapshots:
                self.snapshots.append(offset)

    def snapshot_path(self, offset: int) -> str:
        """The path of the snapshot that covers the log up to an offset."""
        return f"{self.directory}/{file_name(offset, SNAPSHOT)}"

    # ---- durability

    def prepare_flush(self, *, include_active: bool = True) -> FlushTask | None:
        """What must be synced so that all (or all but the active segment) is on stable storage; None for nothing.

        The task may run in another thread; give it back to `flush_done` afterwards. A failed one must not run again.
        """
        upto = self.log_end_offset if include_active else self.segments[-1].base_offset
        if upto <= self.recovery_point:
            return None
        with self.disk("flushing"):
            segments = self.segments[self.segment_index(self.recovery_point) :]
            task = FlushTask.of(self.files, self.directory, segments, self.unsynced, upto, self.cuts)
            self.unsynced = set()
            self.names_changed = False
            return task

    def prepare_sync(self) -> FlushTask | None:
        """What must be synced so that no loss of power takes a record; None for nothing. See `prepare_flush`.

        Less than a flush: a producer may be waiting for it. One task of a log at a time, of either kind.
        """
        upto = self.log_end_offset
        if upto <= self.durable_offset:
            return None
        if PARTITION_METADATA in self.unsynced:
            return self.prepare_flush()  # the first one: the folder itself is new
        self.check_online()
        segments = self.segments[self.segment_index(self.durable_offset) :]
        names, self.names_changed = self.names_changed, False
        return FlushTask.of_records(self.files, self.directory, segments, upto, self.cuts, names=names)

    def flush_done(self, task: FlushTask, now_ms: int) -> None:
        """A task has run: all below its offset is on stable storage, unless the log was cut since."""
        if task.is_full:
            self.last_flush_ms = now_ms
        if task.cuts != self.cuts:
            return
        upto = min(task.upto_offset, self.log_end_offset)
        self.durable_offset = max(self.durable_offset, upto)
        if task.is_full:
            self.recovery_point = max(self.recovery_point, upto)

    def awaits_sync(self, last_offset: int) -> bool:
        """Whether a record must be on stable storage before anyone hears that we have it, and is not yet.

        With flush.before.ack that is every record; else, once flush.messages records are not synced, those.
        """
        durable, config = self.durable_offset, self.config
        return last_offset >= durable and (
            config.flush_before_ack or self.log_end_offset - durable >= config.flush_messages
        )

    def flush(self, now_ms: int = 0, *, include_active: bool = True) -> None:
        """Sync at once, in this thread."""
        task = self.prepare_flush(include_active=include_active)
        if task is not None:
            with self.disk("flushing"):
                task.run()
            self.flush_done(task, now_ms)
