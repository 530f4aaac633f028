"""One replica of a partition: its segments, its producers, its leader epochs, and the offsets that bound it.

Offsets, from the lowest: ``log_start_offset <= last_stable_offset <= high_watermark <= log_end_offset``. Records below
the log start offset are deleted; those from the high watermark on are not replicated yet; those from the last stable
offset on belong, or may belong, to transactions that are not decided. ``recovery_point``: all below it is on stable
storage.

Appends and reads are plain calls on one thread. An `OSError` of the disk takes the log, and through ``on_failure`` its
whole log dir, offline: the call and all later ones raise `KafkaError` KAFKA_STORAGE_ERROR. Nothing is retried.
"""

from collections.abc import Callable
from typing import NamedTuple

from barnabas.base.errors import CorruptDataError
from barnabas.base.files import Files, FileSlice
from barnabas.base.ids import ZERO_UUID, TopicPartition, Uuid
from barnabas.base.randomness import Random
from barnabas.log import retention, timestamps
from barnabas.log.append import AppendInfo, Appends, UnexpectedOffsetError
from barnabas.log.checkpoints import PARTITION_METADATA, write_topic_id
from barnabas.log.flushing import FlushTask
from barnabas.log.leader_epochs import EpochEndOffset, LeaderEpochs
from barnabas.log.producer_state import Origin, ProducerEntry, ProducerState
from barnabas.log.segment.open_files import OpenFiles
from barnabas.log.segment.segment import Segment
from barnabas.log.segment.transaction_index import AbortedTransaction
from barnabas.log.settings import LogConfig
from barnabas.log.timestamps import TimestampOffset
from barnabas.wire.kafka.errors import ErrorCode, KafkaError

__all__ = ["AppendInfo", "FetchSlice", "Origin", "PartitionLog", "UnexpectedOffsetError"]


class FetchSlice(NamedTuple):
    """What a read found: whole batches from the one that holds the offset, the last perhaps cut by ``max_bytes``."""

    records: FileSlice | bytes
    offset: int
    """The offset asked for."""
    upper_offset: int
    """No record at or past this offset begins in the slice: how far aborted transactions matter to it."""
    size_bytes: int


class PartitionLog(Appends):
    """See the module. Made by `barnabas.log.dirs.log_dirs.LogDirs`."""

    __slots__ = ()

    @staticmethod
    def create(
        files: Files,
        handles: OpenFiles,
        directory: str,
        topic_partition: TopicPartition,
        topic_id: Uuid,
        config: LogConfig,
        *,
        now_ms: int,
        rng: Random,
        on_failure: Callable[[str], None],
    ) -> "PartitionLog":
        """A new, empty log in a folder that does not exist yet. Raises `OSError`.

        Nothing is synced: until the first flush a loss of power may take the folder, and with it no record that was
        promised to be on disk.
        """
        files.make_dirs(directory)
        if topic_id != ZERO_UUID:
            write_topic_id(files, f"{directory}/{PARTITION_METADATA}", topic_id, sync=False)
        segment = Segment(files, handles, directory, 0, 0, created_ms=now_ms)
        files.open(segment.path, create=True).close()
        log = PartitionLog(
            files,
            handles,
            directory,
            topic_partition,
            topic_id,
            config,
            segments=[segment],
            epochs=LeaderEpochs(),
            producers=ProducerState(),
            snapshots=[],
            log_start_offset=0,
            log_end_offset=0,
            high_watermark=0,
            recovery_point=0,
            now_ms=now_ms,
            rng=rng,
            on_failure=on_failure,
        )
        log.unsynced.add(PARTITION_METADATA)  # and with it the new folder itself
        return log

    # ---- reads

    def read(self, offset: int, max_bytes: int, *, upper_bound: int, min_one_batch: bool = True) -> FetchSlice:
        """Batches from the one that holds ``offset``, below ``upper_bound`` (exclusive), out of one segment.

        With ``min_one_batch`` the first batch comes whole even when it is larger than ``max_bytes``; without, nothing
        comes then. Raises `KafkaError` OFFSET_OUT_OF_RANGE, KAFKA_STORAGE_ERROR.
        """
        end_offset = self.log_end_offset
        if offset < self.log_start_offset or offset > end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"Offset {offset} of {self.topic_partition} is outside {self.log_start_offset} to {end_offset}",
            )
        bound = min(upper_bound, end_offset)
        if offset >= bound or (max_bytes <= 0 and not min_one_batch):
            return FetchSlice(b"", offset, offset, 0)
        if self.offline is not None:
            self.check_online()
        try:
            return self._read(offset, max_bytes, bound, min_one_batch)
        except OSError as error:
            raise self.fail(error, "reading from") from error

    def _read(self, offset: int, max_bytes: int, bound: int, min_one_batch: bool) -> FetchSlice:
        bases = self.bases
        for at in range(self.segment_index(offset), len(bases)):
            segment = self.segments[at]
            segment_end = bases[at + 1] if at + 1 < len(bases) else self.log_end_offset
            if bound >= segment_end:
                end, upper = segment.size, segment_end
            else:
                end, upper = self._position_of(segment, bound), bound
            first_size = 0
            position = segment.start_of(offset)
            if position is None:
                located = segment.locate(offset)
                if located is None:
                    continue  # compaction may have taken the last offsets of a segment
                position, first_size, _ = located
            if position >= end:
                if upper == bound:
                    break
                continue
            size = end - position
            if size <= max_bytes:
                segment.remember(upper, end)
                return FetchSlice(FileSlice(segment.file, position, size), offset, upper, size)
            first_size = first_size or self._size_at(segment, offset)
            if first_size > max_bytes:
                if not min_one_batch:
                    break
                max_bytes = first_size
            ceiling = segment.index.ceiling_of_position(position + max_bytes)
            if ceiling is not None:
                upper = min(upper, segment.base_offset + ceiling + 1)
            return FetchSlice(FileSlice(segment.file, position, max_bytes), offset, upper, max_bytes)
        return FetchSlice(b"", offset, offset, 0)

    def _position_of(self, segment: Segment, offset: int) -> int:
        position = segment.start_of(offset)
        if position is None:
            located = segment.locate(offset)
            position = located.position if located else segment.size
        return position

    def _size_at(self, segment: Segment, offset: int) -> int:
        located = segment.locate(offset)
        return located.size if located else 0

    def aborted_transactions(self, from_offset: int, upto_offset: int) -> list[AbortedTransaction]:
        """The aborted transactions that touch a range of offsets (``upto_offset`` exclusive), by their markers.

        Raises `KafkaError` UNKNOWN_SERVER_ERROR when an index was damaged since the start: without it aborted records
        would be taken for committed ones.
        """
        found: list[AbortedTransaction] = []
        with self.disk("reading the transaction index of"):
            for segment in self.segments[self.segment_index(from_offset) :]:
                try:
                    entries, done = segment.transactions.collect(from_offset, upto_offset)
                except CorruptDataError as error:
                    raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from error
                found += entries
                if done:
                    break
        return found

    def offset_for_timestamp(self, timestamp_ms: int) -> TimestampOffset | None:
        """The first record at or after a timestamp, or one of ListOffsets' special places (`timestamps.LATEST` ...)."""
        with self.disk("looking up a timestamp in"):
            return timestamps.find(self, timestamp_ms)

    # ---- leader epochs

    @property
    def latest_epoch(self) -> int:
        """The newest leader epoch the log knows, -1 for none."""
        return self.epochs.latest_epoch

    def end_offset_for_epoch(self, epoch: int) -> EpochEndOffset:
        """The largest epoch at or below one, and where it ended."""
        return self.epochs.end_offset_for(epoch, self.log_end_offset)

    def assign_epoch(self, epoch: int, start_offset: int | None = None) -> None:
        """A leader epoch begins at an offset, the log's end by default (on becoming leader)."""
        with self.disk("writing the leader epochs of"):
            self.begin_epoch(epoch, self.log_end_offset if start_offset is None else start_offset)

    def assign_topic_id(self, topic_id: Uuid) -> None:
        """Note the topic's id in a log that has none."""
        with self.disk("writing partition.metadata of"):
            write_topic_id(self.files, f"{self.directory}/{PARTITION_METADATA}", topic_id, sync=False)
            self.unsynced.add(PARTITION_METADATA)
            self.topic_id = topic_id

    # ---- producers

    def active_producers(self) -> list[ProducerEntry]:
        """The producers the log knows (DescribeProducers)."""
        return list(self.producers.entries.values())

    def remove_expired_producers(self, now_ms: int, expiration_ms: int) -> None:
        """Forget producers that were silent for ``expiration_ms`` (producer.id.expiration.ms)."""
        self.producers.remove_expired(now_ms, expiration_ms)

    # ---- cutting

    def truncate_to(self, offset: int) -> bool:
        """Drop the records from an offset on (a follower whose leader has others). Whether anything went.

        A recovery point that was checkpointed may lie past the new end: write the checkpoint before new records come
        (`LogDirs.truncate` does).
        """
        with self.disk("truncating"):
            return retention.truncate_to(self, offset)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drop all records; the next one gets ``offset``."""
        with self.disk("truncating"):
            retention.truncate_fully(self, offset)

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

    def apply_retention(self, now_ms: int) -> int:
        """Delete the segments that retention by start offset, size or time gives up. Returns how many.

        Their files are renamed to ``.deleted`` and removed by `purge_deleted` after file.delete.delay.ms.
        """
        with self.disk("deleting segments of"):
            return retention.apply(self, now_ms)

    def purge_deleted(self, now_ms: int) -> int | None:
        """Remove the files whose time has come. Returns when the next are due, None when none wait."""
        while self.set_aside and self.set_aside[0][0] <= now_ms:
            with self.disk("removing files of"):
                retention.remove_files(self.files, self.set_aside[0][1])
            del self.set_aside[0]
        return self.set_aside[0][0] if self.set_aside else None

    # ---- durability

    def flush_due(self, now_ms: int) -> bool:
        """Whether flush.messages or flush.ms ask for a sync."""
        unflushed = self.log_end_offset - self.recovery_point
        return unflushed > 0 and (
            unflushed >= self.config.flush_messages or now_ms - self.last_flush_ms >= self.config.flush_ms
        )

    def prepare_close(self) -> FlushTask | None:
        """Complete all files and take a snapshot. The log must not be used afterwards; what is left is to run the task.

        Raises `KafkaError` KAFKA_STORAGE_ERROR.
        """
        task = None
        if self.offline is None:
            with self.disk("closing"):
                self.take_snapshot()
                self.segments[-1].finish_indexes()
            task = self.prepare_flush()
        for segment in self.segments:
            segment.forget()
        return task

    def close(self) -> None:
        """Complete all files, take a snapshot, sync. The log must not be used afterwards."""
        task = self.prepare_close()
        if task is not None:
            with self.disk("flushing"):
                task.run()
            self.flush_done(task, 0)

    def delete(self) -> None:
        """Remove the folder with all it holds, now. `LogDirs.delete` does it in two steps."""
        for segment in self.segments:
            segment.forget()
        with self.disk("deleting"):
            self.files.remove_tree(self.directory)

    def move_to(self, directory: str) -> None:
        """The folder was renamed."""
        self.set_aside = [
            (due, [path.replace(self.directory, directory, 1) for path in paths]) for due, paths in self.set_aside
        ]
        self.directory = directory
        for segment in self.segments:
            segment.move_to(directory)
