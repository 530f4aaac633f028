"""Records that were gone before a flow read them, where it may lose some (``fail_on_data_loss = false``). Needs no Spark.

Spark's workers find them, and have no way to count for the driver. So they append to ``lost.jsonl`` in the checkpoint, a line
for each range: source, topic, partition, first offset, and the offset behind the last one. A range counts once, however
often a micro-batch is repeated, and though the query for bad rows finds it, too. Each run begins with no file.

Workers on other machines must reach the checkpoint's folder; those that do not write to their log alone.
"""

import json
import logging
from collections.abc import Iterable
from pathlib import Path

from barnabas.pipelines.range_progress import Lost

__all__ = ["LostRecords", "lost_file", "note_lost"]

logger = logging.getLogger(__name__)
_Place = tuple[str, str, int]


def lost_file(checkpoint: Path) -> Path:
    """Where the workers of a flow note what is lost."""
    return checkpoint / "lost.jsonl"


def note_lost(path: Path, source: str, topic: str, partition: int, lost: Lost) -> None:
    """Append a range; short lines of several workers do not mix."""
    line = json.dumps([source, topic, partition, lost.start, lost.end])
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")
    except OSError as error:
        logger.warning("%s: %s: the lost records are not counted", path, error.strerror)


class LostRecords:
    """What a run has lost so far."""

    def __init__(self, checkpoint: Path) -> None:
        self._path = lost_file(checkpoint)

    def begin(self) -> None:
        """Forget what the run before has lost; raises `OSError`."""
        self._path.unlink(missing_ok=True)

    def by_partition(self) -> dict[str, int]:
        """The number of offsets that were lost of each partition, by names such as ``orders-0``."""
        try:
            lines = self._path.read_text(encoding="utf-8").splitlines()
        except OSError:
            return {}
        places: dict[_Place, list[Lost]] = {}
        for line in lines:
            try:
                source, topic, partition, start, end = json.loads(line)
            except ValueError:  # it is being written
                continue
            places.setdefault((source, topic, partition), []).append(Lost(start, end))
        counts: dict[str, int] = {}
        for (_, topic, partition), ranges in sorted(places.items()):
            name = f"{topic}-{partition}"
            counts[name] = counts.get(name, 0) + _size(ranges)
        return counts


def _size(ranges: Iterable[Lost]) -> int:
    """How many offsets are in at least one of the ranges."""
    total = reached = 0
    for start, end in sorted(ranges):
        total += max(0, end - max(start, reached))
        reached = max(reached, end)
    return total
