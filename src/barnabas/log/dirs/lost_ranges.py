"""What a partition's folder lacks, for an operator who looks at it while no broker uses it.

Kafka: no counterpart.

A broker finds the same at its start (`barnabas.log.missing_records`). Here no file is changed, but
by `step_over`: then reads go over the ranges, and no start reports them.
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
from barnabas.log.holes import DENSE, OffsetSpan, covers, read_accepted, write_accepted
from barnabas.log.lost_data import LostData, read_lost_data, remove_lost_data
from barnabas.log.missing_records import Inspection
from barnabas.log.names import LOG, UNFINISHED, base_offset_of, file_name, partition_of_folder
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
    """What a broker noted at an earlier start. It keeps the replica from leading while
    another may have the records."""
    lost_end: OffsetSpan | None
    """The offsets that the note names and that are at or after the log's end."""
    end_offset: int
    """Where the log ends."""


def find_lost_ranges(files: Files, directory: str, rng: Random) -> LostRanges:
    """Look at a partition's folder as the next start will. Raises `OSError`.

    Raises `BarnabasError` for a folder that is none, and for one in which the next start
    has files to remove first.
    """
    parent, _, name = directory.rstrip("/").rpartition("/")
    topic_partition = partition_of_folder(name)
    if topic_partition is None or not files.is_dir(directory):
        raise BarnabasError(f"{directory} is not the folder of a partition: give one such as /var/lib/kafka/topic-0")
    folder = Folder(files, directory.rstrip("/"))
    names = files.list(folder.directory)
    unfinished = next((each for each in sorted(names) if each.endswith(UNFINISHED)), None)
    if unfinished is not None:
        raise BarnabasError(
            f"{folder.path(unfinished)} is left of a deletion or a compaction that is not finished: "
            "start the broker and stop it once, and use this command again then"
        )
    checkpoints = Checkpoints(files, parent or "/")
    accepted = read_accepted(files, folder.directory)
    inspection = Inspection(
        folder,
        _segments(folder, names, rng),
        StoredEpochs(folder).log_start(checkpoints.start_offsets.get(topic_partition, 0), names),
        is_dense=DENSE in names and topic_partition not in checkpoints.cleaner_offsets,
    )
    found = inspection.look()
    end_offset = found.kept[-1].next_offset if found.kept else 0
    note = read_lost_data(files, folder.directory)
    return LostRanges(
        topic_partition,
        [hole for hole in found.holes if not covers(accepted, hole.start, hole.end)],
        [stray.reason for stray in found.strays],
        note,
        None if note is None else _lost_end(note, end_offset),
        end_offset,
    )


def _lost_end(note: LostData, end_offset: int) -> OffsetSpan | None:
    start = max(note.end_offset, end_offset)
    return OffsetSpan(start, note.expected_offset) if start < note.expected_offset else None


def _segments(folder: Folder, names: Sequence[str], rng: Random) -> list[Segment]:
    open_files = OpenFiles(folder.files)
    bases = sorted(offset for name in names if name.endswith(LOG) and (offset := base_offset_of(name)) is not None)
    segments = [
        Segment(folder, open_files, base, folder.files.size(folder.path(file_name(base, LOG))), created_ms=0)
        for base in bases
    ]
    return Segments(folder, open_files, segments, rng).all if segments else []


def step_over(files: Files, directory: str, found: LostRanges, offsets: Sequence[OffsetSpan]) -> bool:
    """Let reads go over what is missing, and over other offsets.

    Returns whether no note of a loss is left. Raises `OSError`. A note is removed if the offsets
    cover what it names at the log's end, where there is nothing to step over. One that cannot be
    read names nothing, and is kept.
    """
    directory = directory.rstrip("/")
    holes = [OffsetSpan(hole.start, hole.end) for hole in found.holes]
    inside = [
        OffsetSpan(each.start, min(each.end, found.end_offset)) for each in offsets if each.start < found.end_offset
    ]
    accepted = read_accepted(files, directory)
    write_accepted(files, directory, [*accepted, *inside, *holes])
    if found.note is not None:
        given_up = [*accepted, *offsets]
        if not found.note.expected_offset or (found.lost_end is not None and not covers(given_up, *found.lost_end)):
            return False
        remove_lost_data(files, directory)
    return True
