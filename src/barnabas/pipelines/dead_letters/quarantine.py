"""The query that decides which micro-batches of a source a flow may read:
``on_max_bad = "quarantine"``.

For each micro-batch, in this order, so that after a crash nothing is lost: the rows are counted;
bad rows, or all rows if too many are bad, go to ``bad_rows_topic``; the decision is kept
(`barnabas.pipelines.connector.admission`). After a crash between the last two, letters that are in
the topic are not sent again. ``barnabas pipeline replay`` puts the good rows of a refused
micro-batch through again.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  # its name in every Spark program

from barnabas.pipelines.checkpoints.checkpoint import Checkpoint
from barnabas.pipelines.cluster.offsets import Range
from barnabas.pipelines.connector.admission import Admission, admission_file
from barnabas.pipelines.dead_letters.dead_letters import DeadLetters
from barnabas.pipelines.frames import transforms
from barnabas.pipelines.progress.progress import Progress
from barnabas.pipelines.specification.spec import POSITION, Flow, Source

__all__ = ["Quarantine"]


class Quarantine:
    """Decides about one source's micro-batches; `decide` is for ``foreachBatch``."""

    def __init__(self, flow: Flow, source: Source, query: str, progress: Progress, say: Callable[[str], None]) -> None:
        """``query`` names the folder of the deciding query in the checkpoint."""
        assert source.max_bad is not None
        self._flow = flow
        self._source = source
        self._limit = source.max_bad
        self._query = query
        self._progress = progress
        self._say = say
        self._checkpoint = Checkpoint(flow)
        self._path = admission_file(Path(flow.checkpoint), source.name)
        self._letters = DeadLetters(flow, source, say)

    def decide(self, marked: DataFrame, epoch: int) -> None:
        """Take a micro-batch of marked rows; one that is decided already changes nothing."""
        admission = Admission.load(self._path)
        if epoch <= admission.epoch:
            return
        marked = marked.persist()
        try:
            self._decide(marked, epoch, admission)
        finally:
            marked.unpersist()

    def _decide(self, marked: DataFrame, epoch: int, admission: Admission) -> None:
        counts = transforms.bad_counts(self._source.format, transforms.quarantining(self._flow, self._source))
        bounds = [F.min(POSITION[2]).alias("_first"), F.max(POSITION[2]).alias("_last")]
        found = [row.asDict() for row in marked.groupBy(*POSITION[:2]).agg(*counts, *bounds).collect()]
        rows, bad = (sum(each[name] for each in found) for name in ("rows", "bad_rows"))
        refused: list[Range] = []
        if self._limit.is_passed(rows, bad):
            refused = [Range(each[POSITION[0]], each[POSITION[1]], each["_first"], each["_last"] + 1) for each in found]
            text = f"{bad:,} of {rows:,} rows of a micro-batch are bad, more than max_bad = {self._limit}"
            marked = transforms.mark_quarantined(marked, text)
            self._say(f"quarantine: {text}; all of them are in {self._source.bad_rows_topic}: {_shown(refused)}")
        if bad:
            self._letters.write(marked, epoch)
        sources = list(self._flow.sources)
        position = self._checkpoint.position()[sources.index(self._source)]
        end = self._checkpoint.planned_end(self._query, epoch)
        admission.decided(epoch, end, refused, position).save(self._path)
        for each in found:
            self._progress.count_source(self._source.name, _without(each, *POSITION[:2], "_first", "_last"))
        if refused:
            self._progress.count_quarantined(rows)


def _without(counts: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in counts.items() if name not in names}


def _shown(ranges: list[Range]) -> str:
    return ", ".join(f"{each.topic}-{each.partition} offsets {each.start} to {each.end - 1}" for each in sorted(ranges))
