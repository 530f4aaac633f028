"""How far the replicas of a partition agree, batch by batch.

Every replica is fetched from the same offset, and the batches are compared in step: their last
offsets, which must be the same, and their CRCs, which cover all that a leader does not write
into a batch itself. A batch counts once every replica has it below its own high watermark;
what is left shows the lag. Replicas of compacted topics may differ for a while without harm,
as each cleans its own log.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from barnabas.base.ids import TopicPartition
from barnabas.wire.kafka.records.batch_header import BatchHeader, read_headers

__all__ = ["Comparison", "Difference", "Fetched"]


class Fetched(NamedTuple):
    """What a replica gave: its high watermark (-1 where it gave nothing) and batches from
    the comparison's offset."""

    high_watermark: int
    records: bytes | bytearray | memoryview


class Difference(NamedTuple):
    """Two replicas that disagree on a batch; with different last offsets they cannot
    be compared any further."""

    topic_partition: TopicPartition
    replica: int
    other: int
    offset: int
    other_offset: int
    crc: int
    other_crc: int

    @property
    def is_fatal(self) -> bool:
        """Whether the batches do not even cover the same offsets."""
        return self.offset != self.other_offset

    def __str__(self) -> str:
        if self.is_fatal:
            return (
                f"partition {self.topic_partition}: replica {self.replica}'s offset {self.offset} doesn't match replica "
                f"{self.other}'s offset {self.other_offset}"
            )
        return (
            f"partition {self.topic_partition} has unmatched checksum at offset {self.offset}; replica {self.replica}'s "
            f"checksum {self.crc}; replica {self.other}'s checksum {self.other_crc}"
        )


@dataclass(slots=True)
class Comparison:
    """A partition's replicas, equal (or reported) before ``offset``."""

    topic_partition: TopicPartition
    replicas: list[int]
    offset: int
    lag: int = field(default=0, init=False)

    def compare(self, fetched: Mapping[int, Fetched]) -> list[Difference]:
        """Go on with what each replica gave for ``offset``; stops at the first fatal difference."""
        differences: list[Difference] = []
        batches = {replica: self._batches(fetched.get(replica)) for replica in self.replicas}
        while True:
            step = {replica: next(found, None) for replica, found in batches.items()}
            headers = {replica: header for replica, header in step.items() if header is not None}
            if len(headers) < len(step) or not headers:
                break
            found = list(self._differences(headers))
            differences += found
            if any(difference.is_fatal for difference in found):
                break
            self.offset = headers[self.replicas[0]].last_offset + 1
        highest = max((item.high_watermark for item in fetched.values()), default=-1)
        self.lag = highest - self.offset if highest >= 0 else self.lag
        return differences

    def _batches(self, fetched: Fetched | None) -> Iterator[BatchHeader]:
        if fetched is None:
            return
        for _, header in read_headers(fetched.records):
            if header.last_offset >= fetched.high_watermark:
                return
            if header.last_offset >= self.offset:
                yield header

    def _differences(self, headers: Mapping[int, BatchHeader]) -> Iterator[Difference]:
        first, *others = self.replicas
        mine = headers[first]
        for other in others:
            its = headers[other]
            if mine.last_offset != its.last_offset or mine.crc != its.crc:
                yield Difference(
                    self.topic_partition, first, other, mine.last_offset, its.last_offset, mine.crc, its.crc
                )
