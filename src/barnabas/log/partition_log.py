"""One replica of a partition on disk. Kafka: UnifiedLog.

The log is put together from parts, each with invariants of its own: the segments, the bounds (log start offset, high
watermark, last stable offset, log end offset), the durability (recovery point, durable offset, syncs), the leader
epochs, the producer state with its snapshots, and the files that wait for their removal. What works on several of them
has a module: `append`, `read`, `truncation`, `retention`, `recovery`, `timestamps`. This class says when the log can be
used, and turns failures of the disk into errors of the protocol.

Appends and reads are plain calls on one thread. An `OSError` of the disk takes the log, and through ``on_failure`` its
whole log dir, offline: the call and all later ones raise `KafkaError` KAFKA_STORAGE_ERROR. Nothing is retried. A
shortage of file descriptors raises the same error for the one call only: what it has begun is undone or left complete.

``lost_data`` is not None while the log knows that it has lost records (see `barnabas.log.lost_data`): such a replica
should not lead while another member of the in-sync set may return. Call `forget_lost_data` once it has caught up with a
leader, or leads after an unclean election.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

from barnabas.base.files import Buffer, Files
from barnabas.base.ids import Uuid
from barnabas.log import timestamps
from barnabas.log.append import Appender, AppendInfo, UnexpectedOffsetError
from barnabas.log.availability import Availability
from barnabas.log.checkpoints import PARTITION_METADATA, write_topic_id
from barnabas.log.flushing import FlushTask
from barnabas.log.leader_epochs import EpochEndOffset, LeaderEpochs
from barnabas.log.lost_data import LostData, remove_lost_data, write_lost_data
from barnabas.log.parts import raise_start, roll
from barnabas.log.producer_state import Origin, ProducerEntry, ProducerState
from barnabas.log.read import FetchSlice, aborted_transactions, read_segments
from barnabas.log.recovery import Checkpointed, LoadedLog, LogOptions, create_log, load_log
from barnabas.log.retention import apply_retention
from barnabas.log.segment.open_files import OpenFiles
from barnabas.log.segment.segment import Segment
from barnabas.log.segment.segments import Segments
from barnabas.log.segment.transaction_index import AbortedTransaction
from barnabas.log.settings import LogConfig
from barnabas.log.timestamps import TimestampOffset
from barnabas.log.truncation import truncate_fully, truncate_to
from barnabas.wire.kafka.errors import ErrorCode, KafkaError

__all__ = ["AppendInfo", "FetchSlice", "Origin", "PartitionLog", "Replacement", "UnexpectedOffsetError"]


class Replacement(Protocol):
    """A segment that compaction wrote."""

    size: int

    def rename_to_swap(self) -> None:
        """Give the files their ``.swap`` names: from here a recovery completes the replacement. Raises `OSError`."""
        ...

    def rename_to_plain(self) -> None:
        """Give the files the names of a segment. Raises `OSError`."""
        ...


class PartitionLog:
    """See the module. Made by `barnabas.log.dirs.log_dirs.LogDirs`."""

    __slots__ = (
        "_appender",
        "_availability",
        "_bounds",
        "_config",
        "_durability",
        "_parts",
        "lost_data",
        "segments",
        "topic_id",
        "topic_partition",
    )

    def __init__(self, options: LogOptions, loaded: LoadedLog) -> None:
        """Use `create` or `load`."""
        parts = loaded.parts
        self.topic_partition = options.topic_partition
        self.topic_id = loaded.topic_id
        self._config = options.config
        self.lost_data = loaded.lost_data
        self._parts = parts
        self.segments: Segments = parts.segments
        """Oldest first; the last one is active. For reading."""
        self._bounds = parts.bounds
        self._durability = parts.durability
        self._availability = Availability(parts.folder, options.topic_partition, options.on_failure)
        self._appender = Appender(parts, options.topic_partition)
        self._set_jitter()
        parts.update_stable()

    @staticmethod
    def create(options: LogOptions, topic_id: Uuid) -> "PartitionLog":
        """A new, empty log in a folder that does not exist yet. Raises `OSError`."""
        return PartitionLog(options, create_log(options, topic_id))

    @staticmethod
    def load(options: LogOptions, checkpointed: Checkpointed) -> "PartitionLog":
        """The log in a folder. Raises `OSError`, and `CorruptDataError` for batches of old formats."""
        return PartitionLog(options, load_log(options, checkpointed))

    def __repr__(self) -> str:
        return f"PartitionLog({self.directory!r}, [{self.log_start_offset}, {self.log_end_offset}))"

    def configure(self, config: LogConfig) -> None:
        """The topic's configuration changed."""
        self._config = config

    def _set_jitter(self) -> None:
        self.segments.set_jitter(min(self._config.segment_jitter_ms, self._config.segment_ms))

    # ---- what there is to know

    @property
    def config(self) -> LogConfig:
        """The topic's configuration."""
        return self._config

    @property
    def directory(self) -> str:
        """The folder of the log."""
        return self._parts.folder.directory

    @property
    def files(self) -> Files:
        """The file system of the folder."""
        return self._parts.folder.files

    @property
    def log_start_offset(self) -> int:
        """The offset of the first record that is not deleted."""
        return self._bounds.log_start_offset

    @property
    def log_end_offset(self) -> int:
        """The offset that the next record gets."""
        return self._bounds.log_end_offset

    @property
    def high_watermark(self) -> int:
        """The offset below which all records are replicated."""
        return self._bounds.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """The offset below which every transaction is decided and replicated."""
        return self._bounds.last_stable_offset

    @property
    def recovery_point(self) -> int:
        """The offset below which everything is on stable storage."""
        return self._durability.recovery_point

    @property
    def durable_offset(self) -> int:
        """The offset below which the records are on stable storage."""
        return self._durability.durable_offset

    @property
    def cuts(self) -> int:
        """How often the log was cut at its end."""
        return self._durability.cuts

    @property
    def cleaned_to(self) -> int | None:
        """Where the last compaction ended; None when there was none."""
        return self._bounds.cleaned_offset

    @property
    def size_bytes(self) -> int:
        """Bytes of all .log files."""
        return self.segments.size_bytes

    @property
    def active(self) -> Segment:
        """The segment that is appended to."""
        return self.segments.active

    @property
    def epochs(self) -> LeaderEpochs:
        """The leader epochs. For reading."""
        return self._parts.epochs.epochs

    @property
    def producers(self) -> ProducerState:
        """The producer state. For reading."""
        return self._parts.producers

    # ---- failures

    @property
    def offline(self) -> str | None:
        """Why the log cannot be used any more; None while it can."""
        return self._availability.reason

    def fail(self, error: OSError, doing: str) -> KafkaError:
        """The disk failed: the log is offline from now on, and its log dir hears of it. Returns what to raise.

        A shortage of file descriptors leaves the log online.
        """
        return self._availability.fail(error, doing)

    def take_offline(self, reason: str) -> None:
        """The log must not be used any more; the first reason is kept."""
        self._availability.take_offline(reason)

    def bring_back(self) -> None:
        """The log can be used again: what took it offline was undone."""
        self._availability.bring_back()

    def hear_failures(self, on_failure: Callable[[str], None]) -> None:
        """Have ``on_failure(reason)`` called from now on when the disk fails."""
        self._availability.hear_failures(on_failure)

    def disk(self, doing: str) -> AbstractContextManager[None]:
        """Run disk operations on the log's files: an `OSError` becomes a `KafkaError` KAFKA_STORAGE_ERROR."""
        return self._availability.guard(doing)

    def check_online(self) -> None:
        """Raises `KafkaError` KAFKA_STORAGE_ERROR while the log is offline."""
        self._availability.check()

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

    # ---- appends

    def append_as_leader(
        self,
        records: Buffer,
        *,
        leader_epoch: int,
        now_ms: int,
        origin: int = Origin.CLIENT,
    ) -> AppendInfo:
        """Append the one batch in ``records`` (writable, changed in place, not kept) at the end of the log.

        What the topic's settings want synced before the answer, `awaits_sync` says: the caller has it done.

        Raises `KafkaError` with Kafka's code for what is wrong with the batch (see `append_checks.check_produced` and
        `ProducerState.check`), RECORD_LIST_TOO_LARGE for more than a segment may hold, KAFKA_STORAGE_ERROR.
        """
        if self._availability.reason is not None:
            self.check_online()
        try:
            return self._appender.append_as_leader(records, self._config, leader_epoch, now_ms, origin)
        except OSError as error:
            raise self.fail(error, "appending to") from error

    def append_as_follower(self, records: Buffer, *, now_ms: int) -> AppendInfo:
        """Append a leader's batches as they are: offsets, epochs and timestamps are kept, a cut last batch is left out.

        An empty log may have to begin inside a batch, where the leader's start was moved to: it takes the batch whole,
        so its start goes back to the batch's first offset.

        Raises `UnexpectedOffsetError` when they do not continue the log, `KafkaError` CORRUPT_MESSAGE,
        KAFKA_STORAGE_ERROR.
        """
        self.check_online()
        try:
            return self._appender.append_as_follower(records, self._config, now_ms)
        except OSError as error:
            raise self.fail(error, "appending to") from error

    def skip_to(self, offset: int, now_ms: int) -> None:
        """Let the log go on at a later offset: compaction left no records before it.

        Raises `KafkaError` KAFKA_STORAGE_ERROR.
        """
        with self.disk("rolling"):
            roll(self._parts, self._config, offset, now_ms)
            self._bounds.extend(offset)

    def roll(self, now_ms: int) -> None:
        """Begin a new segment now, unless the active one is empty. Raises `KafkaError` KAFKA_STORAGE_ERROR."""
        with self.disk("rolling"):
            roll(self._parts, self._config, self.log_end_offset, now_ms)

    # ---- reads

    def read(self, offset: int, max_bytes: int, *, upper_bound: int, min_one_batch: bool = True) -> FetchSlice:
        """Batches from the one that holds ``offset``, below ``upper_bound`` (exclusive), out of one segment.

        With ``min_one_batch`` the first batch comes whole even when it is larger than ``max_bytes``; without, nothing
        comes then. Raises `KafkaError` OFFSET_OUT_OF_RANGE, KAFKA_STORAGE_ERROR.
        """
        bounds = self._bounds
        end_offset = bounds.log_end_offset
        if offset < bounds.log_start_offset or offset > end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"Offset {offset} of {self.topic_partition} is outside {bounds.log_start_offset} to {end_offset}",
            )
        bound = min(end_offset, upper_bound)
        if offset >= bound or (max_bytes <= 0 and not min_one_batch):
            return FetchSlice(b"", offset, offset, 0)
        if self._availability.reason is not None:
            self.check_online()
        try:
            return read_segments(self.segments, end_offset, offset, max_bytes, bound, min_one_batch)
        except OSError as error:
            raise self.fail(error, "reading from") from error

    def aborted_transactions(self, from_offset: int, upto_offset: int) -> list[AbortedTransaction]:
        """The aborted transactions that touch a range of offsets (``upto_offset`` exclusive), by their markers.

        Raises `KafkaError` UNKNOWN_SERVER_ERROR when an index was damaged since the start, KAFKA_STORAGE_ERROR.
        """
        with self.disk("reading the transaction index of"):
            return aborted_transactions(self.segments, from_offset, upto_offset)

    def segment_index(self, offset: int) -> int:
        """The number of the segment that holds an offset."""
        return self.segments.index_of(offset)

    def offset_for_timestamp(self, timestamp_ms: int) -> TimestampOffset | None:
        """The first record at or after a timestamp, or one of ListOffsets' special places (`timestamps.LATEST` ...)."""
        with self.disk("looking up a timestamp in"):
            return timestamps.find(self.segments, self._bounds, self.epochs, timestamp_ms)

    # ---- bounds

    def update_high_watermark(self, offset: int) -> int:
        """Move the high watermark, within the log's bounds. Returns where it is now."""
        bounds = self._bounds
        offset = bounds.move_high_watermark(offset)
        if bounds.first_unstable_offset is not None:
            self._parts.producers.high_watermark_moved(offset)
            self._parts.update_stable()
        return offset

    def raise_start(self, offset: int) -> None:
        """Records below an offset are gone. Raises `KafkaError` KAFKA_STORAGE_ERROR."""
        with self.disk("writing the leader epochs of"):
            raise_start(self._parts, offset)

    def delete_records_before(self, offset: int) -> int:
        """Raise the log start offset (DeleteRecords; -1 for the high watermark). Returns where it is.

        Raises `KafkaError` OFFSET_OUT_OF_RANGE past the high watermark. Whole segments go with `apply_retention`.
        """
        self.check_online()
        if offset == -1:
            offset = self.high_watermark
        if offset > self.high_watermark or offset < 0:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"Records of {self.topic_partition} up to {offset} cannot be deleted: the high watermark is "
                f"{self.high_watermark}",
            )
        self.raise_start(offset)
        return self.log_start_offset

    # ---- leader epochs and the topic's id

    @property
    def latest_epoch(self) -> int:
        """The newest leader epoch that the log knows, -1 for none."""
        return self._parts.epochs.latest_epoch

    def end_offset_for_epoch(self, epoch: int) -> EpochEndOffset:
        """The largest epoch at or below one, and where it ended."""
        return self.epochs.end_offset_for(epoch, self.log_end_offset)

    def assign_epoch(self, epoch: int, start_offset: int | None = None) -> None:
        """A leader epoch begins at an offset, the log's end by default (on becoming leader)."""
        with self.disk("writing the leader epochs of"):
            self._parts.epochs.begin(epoch, self.log_end_offset if start_offset is None else start_offset)

    def assign_topic_id(self, topic_id: Uuid) -> None:
        """Note the topic's id in a log that has none."""
        with self.disk("writing partition.metadata of"):
            write_topic_id(self.files, self._parts.folder.path(PARTITION_METADATA), topic_id, sync=False)
            self._durability.file_written(PARTITION_METADATA)
            self.topic_id = topic_id

    # ---- producers

    def active_producers(self) -> list[ProducerEntry]:
        """The producers that the log knows (DescribeProducers)."""
        return list(self.producers.entries.values())

    def remove_expired_producers(self, now_ms: int, expiration_ms: int) -> None:
        """Forget producers that were silent for ``expiration_ms`` (producer.id.expiration.ms)."""
        self.producers.remove_expired(now_ms, expiration_ms)

    # ---- truncation, retention, compaction

    def truncate_to(self, offset: int) -> bool:
        """Drop the records from an offset on (a follower whose leader has others). Whether anything went.

        A recovery point that was checkpointed may lie past the new end: `LogDirs.truncate` lowers it first.
        """
        with self.disk("truncating"):
            return truncate_to(self._parts, offset)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drop all records; the next one gets ``offset``."""
        with self.disk("truncating"):
            truncate_fully(self._parts, offset)

    def apply_retention(self, now_ms: int) -> int:
        """Delete the segments that retention by start offset, size or time gives up. Returns how many.

        Their files are renamed to ``.deleted`` and removed by `purge_deleted` after file.delete.delay.ms.
        """
        with self.disk("deleting segments of"):
            return apply_retention(self._parts, self._config, now_ms)

    def replace_segments(self, group: list[Segment], replacement: Replacement, now_ms: int) -> None:
        """Compaction wrote one segment in place of a group of closed ones, under the first one's name.

        Raises `KafkaError` KAFKA_STORAGE_ERROR.
        """
        with self.disk("swapping compacted segments of"):
            replacement.rename_to_swap()
            due_ms = now_ms + self._config.file_delete_delay_ms
            self._parts.deletions.rename(group, due_ms, keep_snapshot=group[0].base_offset)
            replacement.rename_to_plain()
            self.segments.replace(group, replacement.size)

    def note_cleaned(self, offset: int | None) -> None:
        """A compaction ended at an offset: the next one begins there."""
        self._bounds.set_cleaned(offset)

    def purge_deleted(self, now_ms: int) -> int | None:
        """Remove the files whose time has come. Returns when the next are due, None when none wait."""
        with self.disk("removing files of"):
            return self._parts.deletions.purge(now_ms)

    # ---- durability

    def flush_due(self, now_ms: int) -> bool:
        """Whether flush.messages or flush.ms ask for a sync."""
        return self._durability.is_flush_due(self._config, self.log_end_offset, now_ms)

    def awaits_sync(self, last_offset: int) -> bool:
        """Whether a record must be on stable storage before it is acknowledged, and is not yet.

        With flush.before.ack that is every record; else, once flush.messages records are not synced, those.
        """
        durable, config = self._durability.durable_offset, self._config
        return last_offset >= durable and (
            config.flush_before_ack or self._bounds.log_end_offset - durable >= config.flush_messages
        )

    def prepare_flush(self, *, include_active: bool = True) -> FlushTask | None:
        """What must be synced so that all (or all but the active segment) is on stable storage; None for nothing.

        The task may run in another thread; give it back to `flush_done` afterwards. A failed one must not run again.
        """
        upto_offset = self.log_end_offset if include_active else self.active.base_offset
        with self.disk("flushing"):
            return self._durability.prepare_flush(self.segments, upto_offset)

    def prepare_sync(self) -> FlushTask | None:
        """What must be synced so that no loss of power takes a record; None for nothing. See `prepare_flush`.

        Less than a flush: a producer may be waiting for it. One task of a log at a time, of either kind.
        """
        with self.disk("flushing"):
            return self._durability.prepare_sync(self.segments, self.log_end_offset)

    def flush_done(self, task: FlushTask, now_ms: int) -> None:
        """A task has run: all below its offset is on stable storage, unless the log was cut since."""
        self._durability.flush_done(task, self.log_end_offset, now_ms)

    def flush(self, now_ms: int = 0, *, include_active: bool = True) -> None:
        """Sync at once, in this thread."""
        task = self.prepare_flush(include_active=include_active)
        if task is not None:
            with self.disk("flushing"):
                task.run()
            self.flush_done(task, now_ms)

    # ---- the end, and other folders

    def prepare_close(self) -> FlushTask | None:
        """Complete all files and take a snapshot. The log must not be used afterwards; what is left is to run the task.

        Raises `KafkaError` KAFKA_STORAGE_ERROR.
        """
        task = None
        if self.offline is None:
            with self.disk("closing"):
                self._parts.snapshots.take(self.producers, self.log_end_offset)
                self.active.finish_indexes()
            task = self.prepare_flush()
        self.segments.forget()
        return task

    def close(self) -> None:
        """Complete all files, take a snapshot, sync. The log must not be used afterwards."""
        task = self.prepare_close()
        if task is not None:
            with self.disk("flushing"):
                task.run()
            self.flush_done(task, 0)

    def forget_files(self) -> None:
        """Let go of open files."""
        self.segments.forget()

    def move_to(self, directory: str) -> None:
        """The folder was renamed."""
        old_directory = self.directory
        self._parts.folder.move_to(directory)
        self._parts.deletions.moved(old_directory)
        self.segments.moved()

    def use_open_files(self, open_files: OpenFiles) -> None:
        """Keep open files and loaded indexes among those of other logs from now on."""
        self.segments.use_open_files(open_files)
