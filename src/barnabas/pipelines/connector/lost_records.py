"""Records that were gone before a flow read them, where it may lose some
(``fail_on_data_loss = false``). Needs no Spark.

Spark's workers and planners find them, and have no way to count for the driver. So they append to
``lost.jsonl`` in the checkpoint, a line for each range: source, topic, partition, first offset, and
the offset behind the last one. A range counts once, however often a micro-batch is repeated, and
though the query for bad rows finds it, too. Each run begins with no file.

An offset means a record only together with the topic's id. The line ``[SOURCE, TOPIC]`` says that
the topic was deleted and made again: ranges behind it are of the new one. A range with a sixth
value, ``true``, is of the topic before.

Workers on other machines must reach the checkpoint's folder. One that cannot note what is lost ends
the flow: a loss is never silent.
"""

import json
import logging
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from barnabas.pipelines.cluster.options import SourceOptions
from barnabas.pipelines.connector.range_progress import Lost
from barnabas.pipelines.errors import PipelineError
from barnabas.pipelines.specification.spec import Flow

__all__ = ["LostRecords", "loses_uncounted", "lost_file", "note_lost", "report_lost"]

logger = logging.getLogger(__name__)
_Place = tuple[str, str, int, int]
"""Source, topic, partition, and how often the topic was made again before."""


def lost_file(checkpoint: Path) -> Path:
    """Where the workers of a flow note what is lost."""
    return checkpoint / "lost.jsonl"


def loses_uncounted(flow: Flow) -> bool:
    """Whether records may be lost that nothing counts: Spark's own connector only logs a loss, and
    not how many records it is."""
    return flow.resources.connector != "barnabas" and not all(source.fail_on_data_loss for source in flow.sources)


def report_lost(options: SourceOptions, topic: str, partition: int, lost: Lost, *, of_old_topic: bool = False) -> None:
    """Warn of lost records, and note them where the options name a file.

    Raises `PipelineError` if that cannot be written."""
    of = " of the topic before" if of_old_topic else ""
    logger.warning("%s-%d: records %d to %d%s are gone", topic, partition, lost.start, lost.end - 1, of)
    if options.lost_file is None:
        return
    try:
        note_lost(Path(options.lost_file), options.flow_source or "", topic, partition, lost, of_old_topic=of_old_topic)
    except OSError as error:
        hint = (
            ": the checkpoint must be in a folder that all workers can write to"
            if isinstance(error, FileNotFoundError | PermissionError | NotADirectoryError)
            else ""
        )
        raise PipelineError(
            f"{topic}-{partition}: records {lost.start} to {lost.end - 1} are gone, and cannot be counted: "
            f"{options.lost_file}: {error.strerror or error}{hint}"
        ) from error


def note_lost(path: Path, source: str, topic: str, partition: int, lost: Lost, *, of_old_topic: bool = False) -> None:
    """Append a range; raises `OSError`."""
    _append(path, [source, topic, partition, lost.start, lost.end, *([True] if of_old_topic else [])])


def _append(path: Path, entry: list[object]) -> None:
    """Short lines of several workers do not mix, nor with a line that was cut off
    when the disk was full."""
    with path.open("a", encoding="utf-8") as file:
        file.write(f"\n{json.dumps(entry)}\n")


class LostRecords:
    """What a run has lost so far."""

    def __init__(self, checkpoint: Path) -> None:
        self._path = lost_file(checkpoint)

    def begin(self) -> None:
        """Forget what the run before has lost; raises `OSError`."""
        self._path.unlink(missing_ok=True)

    def begin_topic(self, source: str, topic: str) -> None:
        """The topic was deleted and made again: ranges that are noted from now on are of the
        new one. Raises `OSError`."""
        _append(self._path, [source, topic])

    def by_partition(self) -> dict[str, int]:
        """The number of offsets that were lost of each partition, by names such as ``orders-0``.

        Raises `OSError`."""
        try:
            lines = self._path.read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return {}
        made_again: Counter[tuple[str, str]] = Counter()
        places: dict[_Place, list[Lost]] = {}
        for line in lines:
            try:
                source, topic, *rest = json.loads(line)
            except ValueError:  # empty, or it is being written
                continue
            if not rest:
                made_again[source, topic] += 1
                continue
            partition, start, end, *before = rest
            place = (source, topic, partition, made_again[source, topic] - len(before))
            places.setdefault(place, []).append(Lost(start, end))
        counts: dict[str, int] = {}
        for (_, topic, partition, _), ranges in sorted(places.items()):
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
