"""Which offsets make a micro-batch, and how it is cut into ranges: arithmetic, without
Spark and without a broker.

`Offsets` maps topic -> partition -> the next offset to read. Its JSON form is that of Spark's own
Kafka connector, ``{"flights": {"0": 17, "1": 4}}``, so a query's checkpoint can change from one
source to the other. In options the offsets -2 and -1 stand for the earliest and the latest record.

A micro-batch is a list of `Range`s, each half open. Planning one from the same pair of offsets
always gives the same ranges, for Spark plans a batch again after a failure.
"""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from barnabas.base.errors import ConfigError
from barnabas.base.hints import did_you_mean
from barnabas.base.ids import TopicPartition
from barnabas.base.json_text import parse_json
from barnabas.base.numbers import LARGEST_INT32, LARGEST_INT64
from barnabas.wire.kafka.offset_specs import EARLIEST, LATEST

__all__ = [
    "EARLIEST",
    "LATEST",
    "Offsets",
    "Range",
    "from_json",
    "from_spark",
    "is_due",
    "least_offsets",
    "limit_rows",
    "plan_ranges",
    "require_known",
    "split_ranges",
    "times_from_json",
    "to_json",
    "to_spark",
]

_PARTITION = re.compile("0|[1-9][0-9]{0,9}")

Offsets = dict[TopicPartition, int]
"""Per partition the next offset to read; in options also `EARLIEST` or `LATEST`."""


class Range(NamedTuple):
    """The records of one partition with ``start <= offset < end``."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


def to_spark(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """The form Spark keeps: topic -> partition as text -> offset, in order."""
    result: dict[str, dict[str, int]] = {}
    for name, offset in sorted(offsets.items()):
        result.setdefault(name.topic, {})[str(name.partition)] = offset
    return result


def from_spark(value: Any) -> Offsets:
    """The reverse of `to_spark`; raises `ConfigError` for any other shape."""
    if not isinstance(value, dict):
        raise ConfigError(f'offsets look like {{"topic": {{"0": 17}}}}, not like {json.dumps(value)}')
    result: Offsets = {}
    for topic, partitions in value.items():
        if not isinstance(partitions, dict):
            raise ConfigError(f"the offsets of topic {topic!r} are no object of partitions")
        for partition, offset in partitions.items():
            if not _PARTITION.fullmatch(partition) or int(partition) > LARGEST_INT32:
                raise ConfigError(f"{partition!r} is no partition of topic {topic!r}")
            if isinstance(offset, bool) or not isinstance(offset, int) or not EARLIEST <= offset <= LARGEST_INT64:
                raise ConfigError(
                    f"{offset!r} is no offset of {topic}-{partition}: a number, -2 (earliest), -1 (latest)"
                )
            result[TopicPartition(topic, int(partition))] = offset
    return result


def to_json(offsets: Mapping[TopicPartition, int]) -> str:
    """The JSON text of the offsets, without spaces, as Spark's connector writes it."""
    return json.dumps(to_spark(offsets), separators=(",", ":"))


def from_json(text: str) -> Offsets:
    """The offsets of a JSON text; raises `ConfigError` that says what is wrong with it."""
    try:
        return from_spark(parse_json(text, pairs=_without_repetition))
    except ValueError as error:
        raise ConfigError(f"offsets are no JSON: {error}: {text}") from error


def times_from_json(text: str) -> Offsets:
    """Like `from_json`, for times in milliseconds in the place of offsets."""
    times = from_json(text)
    for name, time_ms in times.items():
        if time_ms < 0:
            raise ConfigError(f"{time_ms} is no time for {name}: milliseconds since 1970 are expected")
    return times


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON; of two equal names one would be lost."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ConfigError(f"offsets name {next(each for each in names if names.count(each) > 1)!r} twice")
    return found


def require_known(given: Iterable[TopicPartition], known: Iterable[TopicPartition], reader: str = "the flow") -> None:
    """Raise `ConfigError` for a partition that the flow does not read: a misspelled one would
    be passed over in silence."""
    partitions = set(known)
    for name in given:
        if name not in partitions:
            topics = sorted({each.topic for each in partitions})
            hint = did_you_mean(name.topic, topics) if name.topic not in topics else ""
            raise ConfigError(
                f"{reader} does not read {name}{hint or ': it reads ' + ', '.join(map(str, sorted(partitions)))}"
            )


def least_offsets(positions: Iterable[Mapping[TopicPartition, int]]) -> Offsets:
    """All the offsets; of a partition in several of the positions the one that is behind."""
    merged: Offsets = {}
    for each in positions:
        for name, offset in each.items():
            merged[name] = min(offset, merged.get(name, offset))
    return merged


def limit_rows(start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], max_rows: int) -> Offsets:
    """The furthest offsets up to ``end`` that keep a batch at about ``max_rows`` records.

    Every partition gets a share in proportion to what waits in it, so partitions advance side by
    side, and at least one record where one waits. Partitions absent from ``start`` must have been
    given their first offset by the caller.
    """
    waiting = {name: max(0, offset - start[name]) for name, offset in end.items()}
    total = sum(waiting.values())
    if total <= max_rows:
        return dict(end)
    limited: Offsets = {}
    for name, offset in end.items():
        # Rounded up in integers: a float would lose records of logs past 2**53 and
        # might never reach the end.
        share = -(-max_rows * waiting[name] // total)
        limited[name] = min(offset, start[name] + share)
    return limited


def is_due(
    start: Mapping[TopicPartition, int],
    end: Mapping[TopicPartition, int],
    min_rows: int,
    waited_ms: int,
    max_delay_ms: int,
) -> bool:
    """Whether a batch runs now: enough records wait, or some wait and the last batch
    was long enough ago."""
    waiting = sum(max(0, offset - start[name]) for name, offset in end.items())
    return waiting >= min_rows or (waiting > 0 and waited_ms >= max_delay_ms)


def plan_ranges(start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> list[Range]:
    """What lies between two offsets, in order of topic and partition.

    Empty and backward ranges are left out."""
    return [
        Range(name.topic, name.partition, start[name], offset)
        for name, offset in sorted(end.items())
        if start[name] < offset
    ]


def split_ranges(ranges: Iterable[Range], min_partitions: int) -> list[Range]:
    """At least ``min_partitions`` ranges where there are enough records: large ranges
    are cut into equal pieces."""
    whole = list(ranges)
    total = sum(each.size for each in whole)
    if len(whole) >= min_partitions or not total:
        return whole
    pieces: list[Range] = []
    for each in whole:
        count = min(each.size, max(1, -(-each.size * min_partitions // total)))
        cuts = [each.start + each.size * index // count for index in range(count + 1)]
        pieces += [each._replace(start=cuts[index], end=cuts[index + 1]) for index in range(count)]
    return pieces
