"""A replica's note of records that it has lost, which survives a restart.

A start finds a loss in one of these ways:

- The log ends below its own checkpointed high watermark, or below its checkpointed recovery point:
  the file was cut, or a loss of power took what the disk had promised.
- Recovery cut off a damaged batch, or segments after one. What a crash leaves of its last append is
  no damage (`barnabas.log.segment.damage`).
- The segments do not follow each other: records are missing at the log's beginning or in its middle
  (`barnabas.log.missing_records`). What is there is kept, and what is missing is not read
  over (`barnabas.log.holes`).
- A checkpoint names the log, and its folder is gone; or the whole log dir was empty, and the broker
  is in the partition's in-sync set (`barnabas.log.dirs.missing_logs`).

Recovery does not look below the recovery point, so damage inside older segments is not found
by a start. Such a replica must not lead while another member of the in-sync set may still
have the records: its followers would truncate to it. Kafka: no counterpart; its broker leads
with what is left.

`PartitionLog.lost_data` holds a `LostData`, or None. It stays until
`PartitionLog.forget_lost_data` is called: by the replica's owner, once the replica has caught up
with a leader, or leads after an unclean election.

Both checkpoints are lowered soon after the start, so a second restart would not see the loss in
them. The log keeps the knowledge in a file of its own in the partition's folder,
``barnabas-lost-data``: lines of text, synced before the log is used. Apache Kafka's broker leaves
files with names that it does not know where they are.
"""

import logging
import re
from typing import NamedTuple

from barnabas.base.files import Files

__all__ = [
    "LOST_DATA",
    "LostData",
    "find_lost_data",
    "keep_lost_data",
    "merge_lost_data",
    "read_lost_data",
    "remove_lost_data",
    "write_lost_data",
]

logger = logging.getLogger(__name__)

LOST_DATA = "barnabas-lost-data"
_LAYOUT = re.compile(
    r"version: 0\nend_offset: ([0-9]+)\nexpected_offset: ([0-9]+)\nreason: (.*)\n?(?:copy_from: ([0-9]+)\n?)?"
    r"(is_damage: true\n?)?"
)


class LostData(NamedTuple):
    """Records that were here and are not any more."""

    reason: str
    """For people: what was found, and where."""
    end_offset: int
    """Where the log ended when the loss was found."""
    expected_offset: int
    """The log held all records below this offset, at least."""
    copy_from: int | None = None
    """Where to begin to copy from a leader, because records before the log's end are
    missing; None: at the log's end."""
    is_damage: bool = False
    """Whether it is certain that no loss of power explains it."""


def find_lost_data(end_offset: int, recovery_point: int, high_watermark: int) -> LostData | None:
    """Whether a log that ends at an offset has lost records, by its checkpoints (0
    where they have no entry)."""
    expected_offset = max(recovery_point, high_watermark)
    if end_offset >= expected_offset:
        return None
    checkpoint = "high watermark" if high_watermark == expected_offset else "recovery point"
    return LostData(
        f"the log ends at offset {end_offset}, below its checkpointed {checkpoint} {expected_offset}",
        end_offset,
        expected_offset,
    )


def merge_lost_data(known: LostData | None, found: LostData | None) -> LostData | None:
    """One note of two losses: the reason of the larger one, and the earliest place to copy from."""
    if known is None or found is None:
        return found or known
    larger = found if found.expected_offset > known.expected_offset else known
    starts = [lost.copy_from for lost in (known, found) if lost.copy_from is not None]
    return larger._replace(copy_from=min(starts, default=None), is_damage=known.is_damage or found.is_damage)


def read_lost_data(files: Files, directory: str) -> LostData | None:
    """Read the note of an earlier start from a partition's folder. Raises `OSError`."""
    path = f"{directory}/{LOST_DATA}"
    try:
        text = files.read(path).decode("utf-8", "replace")
    except FileNotFoundError:
        return None
    match = _LAYOUT.fullmatch(text)
    if match is None:
        return LostData(f"{path} says so, and cannot be read", 0, 0)
    copy_from = None if match[4] is None else int(match[4])
    return LostData(match[3], int(match[1]), int(match[2]), copy_from, match[5] is not None)


def write_lost_data(files: Files, directory: str, lost: LostData) -> None:
    """Keep the knowledge for later starts, synced. Raises `OSError`."""
    reason = lost.reason.replace("\n", " ")
    text = f"version: 0\nend_offset: {lost.end_offset}\nexpected_offset: {lost.expected_offset}\nreason: {reason}\n"
    if lost.copy_from is not None:
        text += f"copy_from: {lost.copy_from}\n"
    if lost.is_damage:
        text += "is_damage: true\n"
    files.write_atomically(f"{directory}/{LOST_DATA}", text.encode())


def remove_lost_data(files: Files, directory: str) -> None:
    """The records are here again, or are given up.

    Not synced: a file that comes back is removed again. Raises `OSError`."""
    try:
        files.remove(f"{directory}/{LOST_DATA}")
    except FileNotFoundError:
        return


def keep_lost_data(files: Files, directory: str, found: LostData | None) -> LostData | None:
    """What this start or an earlier one found, kept for the next."""
    known = read_lost_data(files, directory)
    if found is None:
        return known
    logger.error("%s has lost records: %s", directory, found.reason)
    merged = merge_lost_data(known, found)
    if merged is not None and merged != known:
        write_lost_data(files, directory, merged)
    return merged
