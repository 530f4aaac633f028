"""Which records a flow's main query may read, where ``on_max_bad = "quarantine"``. Needs no Spark.

A batch cannot be put aside once an aggregate holds its rows. So a query of its own
(`barnabas.pipelines.dead_letters.quarantine`) reads the source first, decides for each of its
micro-batches, and keeps the decision in ``admitted-NAME.json`` beside the checkpoint. The main
query's source reads this file: no record at or past ``end``, and none of a range in ``refused``.

A decision is final. Micro-batch N of the deciding query is decided once: if Spark runs it again
after a crash, the file says so.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from barnabas.base.errors import ConfigError
from barnabas.base.files import OsFiles
from barnabas.base.ids import TopicPartition
from barnabas.pipelines.cluster.offsets import Offsets, Range, from_spark, to_spark
from barnabas.pipelines.errors import DAMAGED_ADVICE

__all__ = ["Admission", "admission_file", "subtract_ranges"]


def admission_file(checkpoint: Path, source: str) -> Path:
    """Where the decisions about a source are kept."""
    return checkpoint / f"admitted-{source}.json"


@dataclass(frozen=True, slots=True)
class Admission:
    """What is decided so far."""

    epoch: int = -1
    """The last micro-batch of the deciding query that is decided."""
    end: Offsets = field(default_factory=dict)
    refused: tuple[Range, ...] = ()

    @classmethod
    def load(cls, path: Path) -> "Admission":
        """The decisions in the file; nothing is admitted before there is one.

        Raises `ConfigError` if it is damaged."""
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            ranges = tuple(Range(str(topic), *map(int, rest)) for topic, *rest in found["refused"])
            return cls(int(found["epoch"]), from_spark(found["end"]), ranges)
        except FileNotFoundError:
            return cls()
        except (OSError, ValueError, KeyError, TypeError, ConfigError) as error:
            raise ConfigError(f"{path} is damaged: {error}; {DAMAGED_ADVICE}") from error

    def save(self, path: Path) -> None:
        """Keep the decisions, durably, in place of those before."""
        value = {"epoch": self.epoch, "end": to_spark(self.end), "refused": [list(each) for each in self.refused]}
        OsFiles().write_atomically(str(path), json.dumps(value).encode())

    def decided(
        self, epoch: int, end: Offsets, refused: Iterable[Range], position: Mapping[TopicPartition, int]
    ) -> "Admission":
        """This admission with one more micro-batch.

        Refused ranges that lie behind ``position``, where the main query is, are dropped."""
        ahead = [
            each for each in self.refused if each.end > position.get(TopicPartition(each.topic, each.partition), 0)
        ]
        return Admission(epoch, {**self.end, **end}, (*ahead, *refused))

    def limit(self, begun: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> Offsets:
        """As far towards ``end`` as is decided; what was read stays read."""
        return {name: max(begun[name], min(offset, self.end.get(name, begun[name]))) for name, offset in end.items()}


def subtract_ranges(ranges: Iterable[Range], refused: Sequence[Range]) -> list[Range]:
    """What is left of the ranges, in their order."""
    left: list[Range] = []
    for each in ranges:
        start = each.start
        for hole in sorted(refused):
            if (
                (hole.topic, hole.partition) != (each.topic, each.partition)
                or hole.end <= start
                or hole.start >= each.end
            ):
                continue
            if hole.start > start:
                left.append(each._replace(start=start, end=hole.start))
            start = max(start, hole.end)
        if start < each.end:
            left.append(each._replace(start=start))
    return left
