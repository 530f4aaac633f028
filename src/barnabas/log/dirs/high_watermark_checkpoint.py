"""The file ``replication-offset-checkpoint`` of each log dir.

Kafka: ReplicaManager.checkpointHighWatermarks.

A start takes a log that ends below its checkpointed high watermark for one that has lost records
(see `barnabas.log.lost_data`). So the file must never name more than its logs hold: before a log is
cut, the file is lowered.

There is one writer, on the logs' thread. The periodic write prepares a file of its own name in
another thread, and only its rename, on the logs' thread, makes it the checkpoint. A write that was
made meanwhile supersedes it. The rename is not synced; the next write of the dir syncs it. After a
loss of power the checkpoint may be one period old.
"""

import contextlib
from collections.abc import Callable, Mapping

from barnabas.base.files import Files
from barnabas.base.ids import TopicPartition
from barnabas.base.tasks import Task
from barnabas.log.checked_files import copy_of
from barnabas.log.checkpoints import HIGH_WATERMARKS, write_offsets
from barnabas.log.dirs.dir_set import DirSet
from barnabas.log.dirs.log_dir import LogDir
from barnabas.log.partition_log import PartitionLog

__all__ = ["HighWatermarkCheckpoint", "HighWatermarkWrite"]

_NEXT = f"{HIGH_WATERMARKS}.next"


class HighWatermarkWrite:
    """A checkpoint on its way: `prepare` in any thread, then
    `HighWatermarkCheckpoint.commit` or `failed`."""

    __slots__ = ("_files", "is_superseded", "log_dir", "offsets", "path")

    def __init__(self, files: Files, log_dir: LogDir) -> None:
        self._files = files
        self.log_dir = log_dir
        self.offsets: dict[TopicPartition, int] = {}
        """Filled before `prepare`."""
        self.path = log_dir.file_path(_NEXT)
        self.is_superseded = False

    def prepare(self) -> None:
        """Write the file, synced, and its checked copy beside the checkpoint. Raises `OSError`."""
        write_offsets(self._files, self.path, self.offsets, name=HIGH_WATERMARKS)


class HighWatermarkCheckpoint:
    """The checkpoints of all dirs. On the logs' thread."""

    __slots__ = ("_dirs", "_under_way", "_written")

    def __init__(self, dirs: DirSet) -> None:
        self._dirs = dirs
        self._written: dict[str, Mapping[TopicPartition, int]] = {}
        """The contents of each dir's file."""
        self._under_way: dict[str, HighWatermarkWrite] = {}

    def loaded(self, log_dir: LogDir, offsets: Mapping[TopicPartition, int]) -> None:
        """A start has read the file of a dir."""
        self._written[log_dir.path] = offsets

    def due(self) -> Task[list[HighWatermarkWrite]]:
        """A write for each dir in which a high watermark moved, and none is under way.

        A log that is cut while they are gathered supersedes the write of its dir, as
        one that is cut later does.
        """
        writes: dict[str, HighWatermarkWrite] = {}
        for log_dir in self._dirs:
            if log_dir.error is None and log_dir.path not in self._under_way:
                write = HighWatermarkWrite(self._dirs.files, log_dir)
                writes[log_dir.path] = self._under_way[log_dir.path] = write
        for path, topic_partition, log in self._dirs.stored():
            if path in writes:
                writes[path].offsets[topic_partition] = log.high_watermark
            yield None
        for path in [path for path, write in writes.items() if write.offsets == self._written.get(path, {})]:
            del self._under_way[path], writes[path]
        return list(writes.values())

    def commit(self, write: HighWatermarkWrite) -> None:
        """A prepared file becomes the checkpoint, unless another was written since.

        A failure takes the dir offline."""
        del self._under_way[write.log_dir.path]
        if write.log_dir.error is not None:
            return
        if write.is_superseded:
            with contextlib.suppress(OSError):
                self._dirs.files.remove(copy_of(write.path))
                self._dirs.files.remove(write.path)
            return
        path = write.log_dir.file_path(HIGH_WATERMARKS)
        try:
            self._dirs.files.rename(copy_of(write.path), copy_of(path))
            self._dirs.files.rename(write.path, path)
        except OSError as error:
            self._dirs.disk_failed(write.log_dir, error, f"writing {HIGH_WATERMARKS} in {write.log_dir.path}")
        else:
            self._written[write.log_dir.path] = write.offsets

    def failed(self, write: HighWatermarkWrite, error: OSError | None) -> None:
        """A file could not be prepared. An `OSError` takes the dir offline."""
        del self._under_way[write.log_dir.path]
        if error is not None:
            self._dirs.disk_failed(write.log_dir, error, f"writing {HIGH_WATERMARKS} in {write.log_dir.path}")

    def write(self, log_dir: LogDir) -> None:
        """Replace the file of a dir now. A failure takes the dir offline."""
        self._write(log_dir, _high_watermark)

    def lower(self, ends: Mapping[TopicPartition, int]) -> None:
        """Logs are about to be cut, so that they end at these offsets: no file may
        name more then."""
        for log_dir in self._dirs:
            under_way = self._under_way.get(log_dir.path)
            known = [self._written.get(log_dir.path, {}), {} if under_way is None else under_way.offsets]
            if any(offsets.get(cut, 0) > end for offsets in known for cut, end in ends.items()):
                self._write(log_dir, lambda log: min(log.high_watermark, ends.get(log.topic_partition, 1 << 63)))

    def _write(self, log_dir: LogDir, value: Callable[[PartitionLog], int]) -> None:
        under_way = self._under_way.get(log_dir.path)
        if under_way is not None:
            under_way.is_superseded = True
        offsets = self._dirs.offsets_of(log_dir, value)
        if self._dirs.replace_checkpoint(log_dir, HIGH_WATERMARKS, offsets):
            self._written[log_dir.path] = offsets


def _high_watermark(log: PartitionLog) -> int:
    return log.high_watermark
