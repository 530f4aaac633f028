"""Reads the four checkpoints of a log dir, each as far as it may be believed.

Kafka: OffsetCheckpointFile, which believes all.

A file that is as this broker wrote it, or of which it knows nothing, is believed; a log still
checks what it says (`barnabas.log.recovery`). A file that changed since was either written by
another broker of Apache's, or is damaged:

- Apache's broker replaces the recovery points and the start offsets every minute, the high
  watermarks every 5 s, and all of them when it stops. So where two of these three are not what this
  broker wrote, or were written later, another broker has worked here, and the files are believed.
- A file that changed alone is damaged, or was edited: its checked copy is believed in its place.

The same holds for start offsets that are missing: they alone keep deleted records deleted.
Where other checkpoints are missing, more is checked at the start and more is compacted;
people remove them for that.
"""

import logging

from barnabas.base.errors import CorruptDataError
from barnabas.base.files import Files
from barnabas.base.ids import TopicPartition
from barnabas.log.checked_files import CheckedFile, copy_of, read_checked, was_written_later
from barnabas.log.checkpoints import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    parse_offsets,
)
from barnabas.log.dirs.boot import has_kept_its_pages

__all__ = ["Checkpoints"]

logger = logging.getLogger(__name__)
_BY_EVERY_BROKER = (RECOVERY_POINTS, LOG_START_OFFSETS, HIGH_WATERMARKS)


class Checkpoints:
    """The checkpoints of the logs in one dir, by partition."""

    __slots__ = (
        "cleaner_offsets",
        "has_kept_pages",
        "high_watermarks",
        "recovery_points",
        "start_offsets",
        "start_offsets_path",
    )

    def __init__(self, files: Files, directory: str) -> None:
        """Read the files. Raises `OSError`."""
        found = {
            name: read_checked(files, f"{directory.rstrip('/')}/{name}")
            for name in (RECOVERY_POINTS, LOG_START_OFFSETS, HIGH_WATERMARKS, CLEANER_OFFSETS)
        }
        rewritten = sum(
            found[name].is_changed or was_written_later(files, found[name].path) for name in _BY_EVERY_BROKER
        )
        has_another_broker = rewritten >= 2
        self.recovery_points = _offsets(found[RECOVERY_POINTS], has_another_broker)
        self.start_offsets = _offsets(found[LOG_START_OFFSETS], has_another_broker, may_be_missing=False)
        self.high_watermarks = _offsets(found[HIGH_WATERMARKS], has_another_broker)
        self.cleaner_offsets = _offsets(found[CLEANER_OFFSETS], has_another_broker)
        self.has_kept_pages = has_kept_its_pages(files, [directory])
        """Whether the files of the dir hold all that was written before the last stop."""
        self.start_offsets_path = found[LOG_START_OFFSETS].path


def _offsets(found: CheckedFile, has_another_broker: bool, *, may_be_missing: bool = True) -> dict[TopicPartition, int]:
    """What to believe of a checkpoint."""
    offsets, problem = None, ""
    if found.data is not None:
        try:
            offsets = parse_offsets(found.path, found.data)
        except CorruptDataError as error:
            problem = str(error)
    if offsets is not None and (has_another_broker or not found.is_changed):
        return offsets
    if found.copy is None:
        if problem:
            logger.warning("%s; its offsets are taken as 0", problem)
        return {}
    if found.data is None and may_be_missing:
        if not found.is_first:
            logger.warning("%s is missing; its offsets are taken as 0", found.path)
        return {}
    if found.data is None:
        problem = "" if found.is_first else f"{found.path} is missing"
    elif not problem:
        problem = f"{found.path} is not what this broker wrote, and no other broker has worked here"
    if problem:
        logger.warning(
            "%s; %s is used in its place. To have another file used, remove the copy as well",
            problem,
            copy_of(found.path),
        )
    return parse_offsets(found.path, found.copy)
