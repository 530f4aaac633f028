"""What a partition's folder lacks, for an operator who looks at it while no broker uses it. Kafka: no counterpart.

A broker finds the same at its start (`barnabas.log.missing_records`). Here no file is changed, but by `step_over`: then reads go
over the ranges, and no start reports them.
"""

from collections.abc import Sequence
from typing import NamedTuple

from barnabas.base.errors import BarnabasError
from barnabas.base.files import Files
from barnabas.base.ids import TopicPartition
from barnabas.base.randomness import Random
from barnabas.log.arrangement import Hole
from barnabas.log.dirs.checkpoint_files import Checkpoints
from barnabas.log.epoch_confirmation import StoredEpochs
from barnabas.log.holes import OffsetSpan, covers, read_accepted, write_accepted
from barnabas.log.lost_data import LostData, read_lost_data, remove_lost_data
from barnabas.log.missing_records import Inspection
from barnabas.log.names import LOG, base_offset_of, file_name, partition_of_folder
from barnabas.log.segment.folder import Folder
from barnabas.log.segment.open_files import OpenFiles
from barnabas.log.segment.segment import Segment
from barnabas.log.segment.segments import Segments

__all__ = ["LostRanges", "find_lost_ranges", "step_over"]


class LostRanges(NamedTuple):
    """What is missing in a partition's folder."""

    topic_partition: TopicPartition
    holes: list[Hole]
    """Those that nothing has stepped over."""
    strays: list[str]
    """Segments that are out of place: the next start sets them aside."""
    note: LostData | None
    """What a broker noted at an earlier start."""


def find_lost_ranges(files: Files, directory: str, rng: Random) -> LostRanges:
    """Look at a partition's folder. Raises `OSError`, `BarnabasError` for a folder that is none."""
    parent, _, name = directory.rstrip("/").rpartition("/")
    topic_partition = partition_of_folder(name)
    if topic_partition is None or not files.is_dir(directory):
        raise BarnabasError(f"{directory} is not the folder of a partition: give one such as /var/lib/kafka/topic-0")
    checkpoints = Checkpoints(files, parent or "/")
    folder = Folder(files, directory.rstrip("/"))
    begin = StoredEpochs(folder).first_offset
    inspection = Inspection(
        folder,
        _segments(folder, rng),
        None if begin is None else max(begin, checkpoints.start_offsets.get(topic_partition, 0)),
        is_dense=topic_partition not in checkpoints.cleaner_offsets,
    )
    found = inspection.look()
    accepted = read_accepted(files, folder.directory)
    return LostRanges(
        topic_partition,
        [hole for hole in found.holes if not covers(accepted, hole.start, hole.end)],
        [stray.reason for stray in found.strays],
        read_lost_data(files, folder.directory),
    )


def _segments(folder: Folder, rng: Random) -> list[Segment]:
    open_files = OpenFiles(folder.files)
    bases = sorted(
        offset
        for name in folder.files.list(folder.directory)
        if name.endswith(LOG) and (offset := base_offset_of(name)) is not None
    )
    segments = [
        Segment(folder, open_files, base, folder.files.size(folder.path(file_name(base, LOG))), created_ms=0)
        for base in bases
    ]
    return Segments(folder, open_files, segments, rng).all if segments else []


def step_over(files: Files, directory: str, spans: Sequence[OffsetSpan]) -> None:
    """Let reads go over these offsets, and forget what a broker noted about a loss. Raises `OSError`."""
    directory = directory.rstrip("/")
    write_accepted(files, directory, [*read_accepted(files, directory), *spans])
    remove_lost_data(files, directory)
