"""One replica of a partition on disk. Kafka: UnifiedLog.

The log is put together from components, each with invariants of its own. Callers use them directly:

    log.segments        the segments, oldest first
    log.bounds          log start offset, last stable offset, high watermark, log end offset
    log.durability      recovery point, durable offset, and how often the log was cut
    log.flusher         what must be synced, and the syncs
    log.leader_epochs   which leader epoch began at which offset
    log.producers       the producer state
    log.holes           which offsets may have no record
    log.availability    whether the log can be used, and what a failure of the disk does
    log.folder          the folder and its file system

What works on several components is a method of the log, and has a module: `append`, `read`,
`truncation`, `retention`, `recovery`, `timestamps`. The methods turn failures of the disk
into errors of the protocol.

Appends and reads are plain calls on one thread. An `OSError` of the disk takes the log, and through
``on_failure`` its whole log dir, offline: the call and all later ones raise `KafkaError`
KAFKA_STORAGE_ERROR. Nothing is retried. A shortage of file descriptors raises the same error for
the one call only: what it has begun is undone or left complete.

``lost_data`` is not None while the log knows that it has lost records (see
`barnabas.log.lost_data`): such a replica should not lead while another member of the in-sync
set may return. Call `forget_lost_data` once it has caught up with a leader, or leads after an
unclean election.
"""

import logging
from typing import Protocol

from barnabas.base.files import Buffer
from barnabas.base.ids import Uuid
from barnabas.base.tasks import Beside, Task
from barnabas.log import timestamps
from barnabas.log.append import FollowerAppender, UnexpectedOffsetError
from barnabas.log.append_checks import unpack_header
from barnabas.log.append_run import AppendRun
from barnabas.log.availability import Availability
from barnabas.log.checkpoints import PARTITION_METADATA, write_topic_id
from barnabas.log.components import raise_start, roll
from barnabas.log.flush_task import FlushTask
from barnabas.log.flushing import Flusher
from barnabas.log.holes import Holes, MissingRecordsError
from barnabas.log.leader_epochs import EpochEndOffset
from barnabas.log.local_log import AppendInfo
from barnabas.log.lost_data import LostData, remove_lost_data, write_lost_data
from barnabas.log.producer_state import Origin, VerificationGuard
from barnabas.log.read import FetchSlice, aborted_transactions, read_segments
from barnabas.log.record_checks import AT_ONCE, RecordValidator
from barnabas.log.recovery import LoadedLog, LogOptions
from barnabas.log.retention import apply_retention
from barnabas.log.segment.segment import Segment
from barnabas.log.segment.transaction_index import AbortedTransaction
from barnabas.log.segment_checks import SegmentChecks
from barnabas.log.settings import LogConfig
from barnabas.log.timestamps import BatchSearch, TimestampOffset
from barnabas.log.truncation import reload_producers, set_aside_from, truncate_fully, truncate_to
from barnabas.wire.kafka.errors import ErrorCode, KafkaError

__all__ = [
    "AppendInfo",
    "FetchSlice",
    "Origin",
    "PartitionLog",
    "Replacement",
    "UnexpectedOffsetError",
    "refresh_producers",
]

logger = logging.getLogger(__name__)


class Replacement(Protocol):
    """A segment that compaction wrote."""

    size: int

    def rename_to_swap(self) -> None:
        """Give the files their ``.swap`` names: from here a recovery completes the replacement.

        Raises `OSError`."""
        ...

    def rename_to_plain(self) -> None:
        """Give the files the names of a segment. Raises `OSError`."""
        ...


class PartitionLog:
    """See the module. Made by `barnabas.log.dirs.log_factory.LogFactory`."""

    __slots__ = (
        "_appender",
        "_checks",
        "_components",
        "_reported_holes",
        "availability",
        "bounds",
        "config",
        "deletions",
        "durability",
        "flusher",
        "folder",
        "holes",
        "leader_epochs",
        "lost_data",
        "producers",
        "segments",
        "topic_id",
        "topic_partition",
    )

    def __init__(self, options: LogOptions, loaded: LoadedLog) -> None:
        """A log that `barnabas.log.recovery` has created or loaded."""
        components = self._components = loaded.components
        self.topic_partition = options.topic_partition
        self.topic_id = loaded.topic_id
        self.config = options.config
        """The topic's configuration."""
        self.lost_data = loaded.lost_data
        self.folder = components.folder
        self.segments = components.segments
        self.bounds = components.bounds
        self.durability = components.durability
        self.leader_epochs = components.epochs
        self.producers = components.producers
        self.deletions = components.deletions
        self.holes = components.holes
        self._reported_holes: set[int] = set()
        self.availability = Availability(components.folder, options.topic_partition, options.on_failure)
        self.flusher = Flusher(
            components.segments, components.bounds, components.durability, components.epochs, self.availability
        )
        self._checks = SegmentChecks(components.segments, components.holes, components.epochs)
        self._appender = FollowerAppender(components, options.topic_partition)
        components.segments.set_jitter(min(options.config.segment_jitter_ms, options.config.segment_ms))
        components.update_stable()

    def __repr__(self) -> str:
        return f"PartitionLog({self.folder.directory!r}, [{self.log_start_offset}, {self.log_end_offset}))"

    def configure(self, config: LogConfig) -> None:
        """The topic's configuration changed."""
        self.config = config
        if config.cleanup_compact:
            self.holes.show_compaction()

    # ---- what there is to know

    @property
    def directory(self) -> str:
        """The folder of the log."""
        return self.folder.directory

    @property
    def log_start_offset(self) -> int:
        """The offset of the first record that is not deleted."""
        return self.bounds.log_start_offset

    @property
    def log_end_offset(self) -> int:
        """The offset that the next record gets."""
        return self.bounds.log_end_offset

    @property
    def high_watermark(self) -> int:
        """The offset below which all records are replicated."""
        return self.bounds.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """The offset below which every transaction is decided and replicated."""
        return self.bounds.last_stable_offset

    # ---- failures

    @property
    def offline(self) -> str | None:
        """Why the log cannot be used any more; None while it can."""
        return self.availability.reason

    def note_lost_data(self, lost: LostData) -> None:
        """Keep, over restarts, that records were lost. Raises `KafkaError` KAFKA_STORAGE_ERROR."""
        self.lost_data = lost
        with self.availability.guard("writing what is lost of"):
            write_lost_data(self.folder.files, self.folder.directory, lost)

    def forget_lost_data(self) -> None:
        """The replica has caught up with a leader, or leads after an unclean election:
        nothing is missing any more.

        Raises `KafkaError` KAFKA_STORAGE_ERROR.
        """
        if self.lost_data is not None:
            with self.availability.guard("removing what is lost of"):
                remove_lost_data(self.folder.files, self.folder.directory)
            self.lost_data = None

    # ---- appends

    def append_as_leader(
        self,
        records: Buffer,
        *,
        leader_epoch: int,
        now_ms: int,
        origin: int = Origin.CLIENT,
        checks: RecordValidator = AT_ONCE,
        guard: VerificationGuard | None = None,
    ) -> AppendInfo:
        """Append the one batch in ``records`` (changed in place if it is writable, not
        kept) at the end of the log.

        It is a run of one: see `AppendRun.add_alone` for ``checks``, ``guard`` and the errors, and
        `AppendRun.write`. `awaits_sync` says whether to sync before responding; the caller does it.
        """
        run = self.begin_run(leader_epoch, now_ms)
        info = run.add_alone(memoryview(records), unpack_header(records), origin, checks, guard)
        run.write()
        return info

    def begin_run(self, leader_epoch: int, now_ms: int) -> AppendRun:
        """Begin to take batches that came together for the leader of an epoch.

        Raises `KafkaError` KAFKA_STORAGE_ERROR."""
        availability = self.availability
        if availability.reason is not None:
            availability.check()
        refresh_producers(self)
        return AppendRun(self._components, availability, self.config, leader_epoch, now_ms)

    def append_as_follower(self, records: Buffer, *, now_ms: int, leader_epoch: int | None = None) -> AppendInfo:
        """Append a leader's batches as they are: offsets, epochs and timestamps are kept, a
        cut last batch is left out.

        An empty log may have to begin inside a batch, where the leader's start was moved to: it
        takes the batch whole, so its start goes back to the batch's first offset. ``leader_epoch``
        is the leader's: none of its batches can have a later epoch, and offsets that it has no
        record for are no loss here either. None for a copy of this broker's own log.

        Raises `UnexpectedOffsetError` when they do not continue the log, `KafkaError`
        CORRUPT_MESSAGE, KAFKA_STORAGE_ERROR.
        """
        self.availability.check()
        refresh_producers(self)
        try:
            return self._appender.append_as_follower(records, self.config, now_ms, leader_epoch)
        except OSError as error:
            raise self.availability.fail(error, "appending to") from error

    def skip_to(self, offset: int, now_ms: int) -> None:
        """Advance the log end offset, because compaction left no records before ``offset``.

        Raises `KafkaError` KAFKA_STORAGE_ERROR.
        """
        refresh_producers(self)
        with self.availability.guard("rolling"):
            roll(self._components, self.config, offset, now_ms)
            self.holes.accept(self.log_end_offset, offset)
            self.bounds.extend(offset)

    def roll(self, now_ms: int) -> None:
        """Begin a new segment now, unless the active one is empty.

        Raises `KafkaError` KAFKA_STORAGE_ERROR."""
        with self.availability.guard("rolling"):
            roll(self._components, self.config, self.log_end_offset, now_ms)

    # ---- reads

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        upper_bound: int,
        min_one_batch: bool = True,
        holes: Holes | None = None,
    ) -> FetchSlice:
        """Batches from the one that holds ``offset``, below ``upper_bound``
        (exclusive), out of one segment.

        With ``min_one_batch`` the first batch comes whole even when it is larger than
        ``max_bytes``; without, nothing comes then. ``holes`` are those that may be read over; by
        default those that are no loss. Raises `KafkaError` OFFSET_OUT_OF_RANGE,
        KAFKA_STORAGE_ERROR, the latter where records are missing, too.
        """
        bounds = self.bounds
        end_offset = bounds.log_end_offset
        if offset < bounds.log_start_offset or offset > end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"Offset {offset} of {self.topic_partition} is outside {bounds.log_start_offset} to {end_offset}",
            )
        bound = min(end_offset, upper_bound)
        if offset >= bound or (max_bytes <= 0 and not min_one_batch):
            return FetchSlice(b"", offset, offset, 0)
        if self.availability.reason is not None:
            self.availability.check()
        try:
            return read_segments(
                self.segments, self._checks, holes or self.holes, end_offset, offset, max_bytes, bound, min_one_batch
            )
        except OSError as error:
            raise self.availability.fail(error, "reading from") from error
        except MissingRecordsError as error:
            raise _missing(self, error, self._reported_holes) from error

    def aborted_transactions(self, from_offset: int, upto_offset: int) -> list[AbortedTransaction]:
        """The aborted transactions that touch a range of offsets (``upto_offset``
        exclusive), by their markers.

        Raises `KafkaError` UNKNOWN_SERVER_ERROR when an index was damaged since the
        start, KAFKA_STORAGE_ERROR.
        """
        with self.availability.guard("reading the transaction index of"):
            return aborted_transactions(self.segments, from_offset, upto_offset)

    def offset_for_timestamp(self, timestamp_ms: int) -> Task[TimestampOffset | None]:
        """The first record at or after a timestamp, or one of ListOffsets' special places
        (`timestamps.LATEST` ...).

        Large batches are looked through beside the event loop. Raises `KafkaError`
        KAFKA_STORAGE_ERROR.
        """
        from_offset = 0
        while True:
            with self.availability.guard("looking up a timestamp in"):
                found = timestamps.find(
                    self.segments, self.bounds, self.leader_epochs.epochs, timestamp_ms, from_offset
                )
            if not isinstance(found, BatchSearch):
                return found
            yield Beside(found.run)
            if found.found is not None:
                return found.found
            from_offset = found.next_offset

    # ---- bounds

    def update_high_watermark(self, offset: int) -> int:
        """Move the high watermark, within the log's bounds. Returns where it is now."""
        bounds = self.bounds
        offset = bounds.move_high_watermark(offset)
        if bounds.first_unstable_offset is not None:
            self.producers.high_watermark_moved(offset)
            self._components.update_stable()
        return offset

    def raise_start(self, offset: int) -> None:
        """Records below an offset are gone. Raises `KafkaError` KAFKA_STORAGE_ERROR."""
        with self.availability.guard("writing the leader epochs of"):
            raise_start(self._components, offset)

    def delete_records_before(self, offset: int) -> int:
        """Raise the log start offset (DeleteRecords; -1 for the high watermark).

        Returns where it is. Raises `KafkaError` OFFSET_OUT_OF_RANGE past the high watermark. Whole
        segments go with `apply_retention`.
        """
        self.availability.check()
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

    def end_offset_for_epoch(self, epoch: int) -> EpochEndOffset:
        """The largest epoch at or below one, and where it ended."""
        return self.leader_epochs.epochs.end_offset_for(epoch, self.log_end_offset)

    def assign_topic_id(self, topic_id: Uuid) -> None:
        """Note the topic's id in a log that has none."""
        with self.availability.guard("writing partition.metadata of"):
            write_topic_id(self.folder.files, self.folder.path(PARTITION_METADATA), topic_id, sync=False)
            self.durability.file_written(PARTITION_METADATA)
            self.topic_id = topic_id

    # ---- truncation, retention, compaction

    def truncate_to(self, offset: int, *, keeps_files: bool = False) -> bool:
        """Drop the records from an offset on (a follower whose leader has others).

        Whether anything went. With ``keeps_files`` a segment begins there, or the log does; the
        files are set aside. A recovery point that was checkpointed may lie past the new end:
        `LogDirs` lowers it first.
        """
        with self.availability.guard("truncating"):
            return (set_aside_from if keeps_files else truncate_to)(self._components, offset)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drop all records; the next one gets ``offset``."""
        with self.availability.guard("truncating"):
            truncate_fully(self._components, offset)

    def apply_retention(self, now_ms: int, most: int | None = None) -> int:
        """Delete expired segments: below the log start offset, above retention.bytes, older than
        retention.ms. Return how many.

        With ``most``, at most that many of them, the oldest first.

        Their files are renamed to ``.deleted`` and removed by `purge_deleted` after
        file.delete.delay.ms.
        """
        with self.availability.guard("deleting segments of"):
            return apply_retention(self._components, self.config, now_ms, most)

    def replace_segments(self, group: list[Segment], replacement: Replacement, now_ms: int) -> None:
        """Compaction wrote one segment in place of a group of closed ones, under the
        first one's name.

        Raises `KafkaError` KAFKA_STORAGE_ERROR.
        """
        with self.availability.guard("swapping compacted segments of"):
            replacement.rename_to_swap()
            due_ms = now_ms + self.config.file_delete_delay_ms
            self.deletions.rename(group, due_ms, keep_snapshot=group[0].base_offset)
            replacement.rename_to_plain()
            self.segments.replace(group, replacement.size)

    def purge_deleted(self, now_ms: int) -> Task[None]:
        """Remove the files whose time has come, beside the event loop.

        Raises `KafkaError` KAFKA_STORAGE_ERROR."""
        while self.offline is None and (removal := self.deletions.begin_removal(now_ms)) is not None:
            yield Beside(removal.run)
            with self.availability.guard("removing files of"):
                self.deletions.end_removal(removal)

    # ---- durability

    def awaits_sync(self, last_offset: int) -> bool:
        """Whether a record must be on stable storage before it is acknowledged, and is not yet.

        With flush.before.ack that is every record; else, once flush.messages records
        are not synced, those.
        """
        durable, config = self.durability.durable_offset, self.config
        return last_offset >= durable and (
            config.flush_before_ack or self.bounds.log_end_offset - durable >= config.flush_messages
        )

    # ---- the end, and other folders

    def prepare_close(self) -> FlushTask | None:
        """Complete all files and take a snapshot.

        The log must not be used afterwards; what is left is to run the task. Raises
        `KafkaError` KAFKA_STORAGE_ERROR.
        """
        task = None
        if self.offline is None:
            with self.availability.guard("closing"):
                if not self._components.snapshots.is_outdated:  # else a start reads the producers again
                    self._components.snapshots.take(self.producers, self.log_end_offset)
                self.segments.active.finish_indexes()
            task = self.flusher.prepare_flush()
        self.segments.forget()
        return task

    def move_to(self, directory: str) -> None:
        """The folder was renamed."""
        old_directory = self.folder.directory
        self.folder.move_to(directory)
        self.deletions.moved(old_directory)
        self.segments.moved()


def refresh_producers(log: PartitionLog) -> None:
    """Load the producers that an earlier truncation could not, for want of a file descriptor.

    To be called before a decision by a log's producers: what was truncated is no duplicate,
    begins no transaction and ends none. Raises `KafkaError` KAFKA_STORAGE_ERROR.
    """
    if log._components.snapshots.is_outdated:
        with log.availability.guard("reading the producers of"):
            reload_producers(log._components)


def _missing(log: PartitionLog, error: MissingRecordsError, reported: set[int]) -> KafkaError:
    """A reader has come to a hole. Reported once; the answer is always the same."""
    start, end = error.missing
    if end not in reported:
        reported.add(end)
        logger.error(
            "%s has lost records: %s. Consumers get KAFKA_STORAGE_ERROR there. If no other replica has the records, "
            "stop the broker and step over the loss with: barnabas lost-records --partition-dir %s --step-over --offsets %d-%d",
            log.topic_partition,
            error,
            log.directory,
            start,
            end - 1,
        )
    return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{log.topic_partition} has lost the records {start} to {end - 1}")
