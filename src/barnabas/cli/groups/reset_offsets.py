"""``consumer-groups --reset-offsets``: where each scenario puts a group's offsets,
and putting them there."""

import argparse
import csv
import io
import re
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal

from barnabas.base.errors import BarnabasError, ConfigError
from barnabas.base.ids import TopicPartition
from barnabas.base.numbers import LARGEST_INT64, whole_number
from barnabas.base.record_times import searched_ms
from barnabas.cli.output.colours import print_error, print_warning
from barnabas.cli.output.tables import aligned, print_json
from barnabas.cli.output.terminal import escaped_for, print, print_lines
from barnabas.client.admin.groups import alter_group_offsets, describe_group, group_offsets
from barnabas.client.admin.offsets import EARLIEST, LATEST, FoundOffset, list_offsets
from barnabas.client.admin.topics import describe_topics
from barnabas.client.cluster.admin_connection import AdminConnection

__all__ = ["duration_ms", "parse_partitions", "parse_reset_plan", "reset_offsets", "timestamp_ms"]

_Offsets = dict[TopicPartition, int]

_DURATION = re.compile(
    r"(?P<sign>[+-])?P(?:(?P<days>[+-]?\d+)D)?"
    r"(?:T(?:(?P<hours>[+-]?\d+)H)?(?:(?P<minutes>[+-]?\d+)M)?(?:(?P<seconds>[+-]?\d+(?:\.\d+)?)S)?)?",
    re.IGNORECASE | re.ASCII,
)


def reset_offsets(connection: AdminConnection, given: argparse.Namespace, group_ids: Sequence[str]) -> int:
    """Plan, execute if asked to, and print; 1 when a group is in use or a partition was refused."""
    if not given.dry_run and not given.execute:
        print_warning("nothing is changed without --execute; say --dry-run if that is meant.", label="WARN")
    plan = _plan_file(given)
    result: dict[str, _Offsets] = {}
    failed = False
    for group_id in group_ids:
        group = describe_group(connection, group_id)
        if group.state not in ("Empty", "Dead"):
            text = (
                f"Error: Assignments can only be reset if the group '{group_id}' is inactive, but the current state is "
                f"{group.state}."
            )
            print(file=sys.stderr)
            print_error(text)
            failed = True
            continue
        offsets = _prepare(connection, given, group_id, plan)
        if given.execute and offsets:
            for partition, code in alter_group_offsets(connection, group_id, offsets).items():
                if code:
                    print(file=sys.stderr)
                    print_error(f"Error: {group_id}, {partition}: {code.message} ({code.name})")
                    del offsets[partition]
                    failed = True
        result[group_id] = offsets
    _print(given, result)
    return 1 if failed else 0


def _print(given: argparse.Namespace, result: Mapping[str, _Offsets]) -> None:
    rows = [
        (group_id, topic, partition, offset)
        for group_id, offsets in result.items()
        for (topic, partition), offset in sorted(offsets.items())
    ]
    if given.export:
        output = io.StringIO()
        writer = csv.writer(output, lineterminator="\n")
        for group_id, topic, *numbers in rows:
            cells = [
                escaped_for(name, sys.stdout) for name in ([topic] if len(given.group) == 1 else [group_id, topic])
            ]
            writer.writerow([*cells, *numbers])
        print_lines(output.getvalue())
    elif given.output == "json":
        names = ("group", "topic", "partition", "new_offset")
        print_json([dict(zip(names, row, strict=True)) for row in rows])
    elif rows:
        header = ("GROUP", "TOPIC", "PARTITION", "NEW-OFFSET")
        print_lines("\n" + aligned(header, rows, {"GROUP": 30, "TOPIC": 30, "PARTITION": 10}))


# Which partitions


def parse_partitions(connection: AdminConnection, topics: Iterable[str]) -> list[TopicPartition]:
    """``topic`` and ``topic:0,1`` as partitions."""
    partitions: list[TopicPartition] = []
    whole = []
    for text in topics:
        name, colon, numbers = text.partition(":")
        if not colon:
            whole.append(name)
            continue
        try:
            partitions += [TopicPartition(name, whole_number(number)) for number in numbers.split(",")]
        except ValueError:
            raise ConfigError(f"--topic {text}: TOPIC or TOPIC:0,1,2 is expected") from None
    if whole:
        for topic in describe_topics(connection, whole):
            partitions += [TopicPartition(topic.name, item.partition) for item in topic.partitions]
    return partitions


def _scope(connection: AdminConnection, given: argparse.Namespace, group_id: str) -> list[TopicPartition]:
    if given.all_topics:
        return sorted(group_offsets(connection, group_id))
    return parse_partitions(connection, given.topic)


# Where to


def _prepare(
    connection: AdminConnection, given: argparse.Namespace, group_id: str, plan: Mapping[str, _Offsets] | None
) -> _Offsets:
    if plan is not None:
        if group_id not in plan:
            raise BarnabasError(f"No reset plan for group {group_id} found in {given.from_file}")
        return _within_range(connection, plan[group_id])
    partitions = _scope(connection, given, group_id)
    if given.to_offset is not None:
        return _within_range(connection, dict.fromkeys(partitions, given.to_offset))
    if given.to_earliest:
        return _at(connection, partitions, EARLIEST)
    if given.to_latest:
        return _at(connection, partitions, LATEST)
    if given.to_datetime:
        return _by_time(connection, partitions, timestamp_ms(given.to_datetime))
    if given.by_duration:
        return _by_time(connection, partitions, int(time.time() * 1000) - duration_ms(given.by_duration))
    committed = group_offsets(connection, group_id)
    if given.shift_by is not None:
        for partition in partitions:
            if partition not in committed:
                raise BarnabasError(
                    f"Cannot shift offset for partition {partition} since there is no current committed offset"
                )
        return _within_range(connection, {part: committed[part] + given.shift_by for part in partitions})
    current = {partition: committed[partition] for partition in partitions if partition in committed}
    return {**current, **_at(connection, [partition for partition in partitions if partition not in committed], LATEST)}


def _at(connection: AdminConnection, partitions: Iterable[TopicPartition], when: int) -> _Offsets:
    offsets = {}
    for partition, found in list_offsets(connection, dict.fromkeys(partitions, when)).items():
        if not isinstance(found, FoundOffset):
            raise BarnabasError(f"cannot learn the offsets of {partition}: {found}")
        offsets[partition] = found.offset
    return offsets


def _by_time(connection: AdminConnection, partitions: Iterable[TopicPartition], when_ms: int) -> _Offsets:
    """The first record at or after a time; the end where there is none."""
    offsets = _at(connection, partitions, max(when_ms, 0))
    missing = [partition for partition, offset in offsets.items() if offset < 0]
    for topic, number in missing:
        print(
            "", f"Warn: Partition {number} from topic {topic} is empty. Falling back to latest known offset.", sep="\n"
        )
    return {**offsets, **_at(connection, missing, LATEST)}


def _within_range(connection: AdminConnection, wanted: _Offsets) -> _Offsets:
    """Offsets moved to the nearest that the log has, with a warning for each."""
    starts, ends = _at(connection, wanted, EARLIEST), _at(connection, wanted, LATEST)
    offsets = {}
    for partition, offset in wanted.items():
        inside = min(max(offset, starts[partition]), ends[partition])
        if inside != offset:
            side = "higher than latest" if offset > inside else "lower than earliest"
            text = f"WARN New offset ({offset}) is {side} offset for topic partition {partition}. Value will be set to {inside}"
            print_warning(text, label="")
        offsets[partition] = inside
    return offsets


# Texts


def timestamp_ms(text: str) -> int:
    """``YYYY-MM-DDTHH:mm:SS.sss`` with a zone, or without one in UTC, as
    milliseconds since the epoch."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(
            f"--to-datetime {text}: YYYY-MM-DDTHH:mm:SS.sss is expected, with Z or +hh:mm or without"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return searched_ms(moment)


def duration_ms(text: str) -> int:
    """``PnDTnHnMnS`` (ISO 8601, as java.time.Duration reads it) in milliseconds."""
    match = _DURATION.fullmatch(text.strip())
    if match is None or not any(match[name] for name in ("days", "hours", "minutes", "seconds")):
        raise ConfigError(f"--by-duration {text}: PnDTnHnMnS is expected, such as P1D or PT30M")
    days, hours, minutes, seconds = (Decimal(match[name] or 0) for name in ("days", "hours", "minutes", "seconds"))
    length = round((((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000)
    if abs(length) > LARGEST_INT64 // 2:
        raise ConfigError(f"--by-duration {text}: the duration is too long")
    return -length if match["sign"] == "-" else length


def _plan_file(given: argparse.Namespace) -> dict[str, _Offsets] | None:
    if not given.from_file:
        return None
    try:
        with open(
            given.from_file, encoding="utf-8-sig", newline=""
        ) as file:  # spreadsheets write a mark before the first line
            return parse_reset_plan(file.read(), given.group, given.from_file)
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{given.from_file}: this is no text in UTF-8 (byte {error.start + 1}): save it as CSV in UTF-8"
        ) from None
    except OSError as error:
        raise BarnabasError(f"cannot read {given.from_file}: {error.strerror}") from None


def parse_reset_plan(text: str, groups: Sequence[str], path: str) -> dict[str, _Offsets]:
    """CSV lines ``group,topic,partition,offset``, or ``topic,partition,offset``
    where one group is named."""
    plan: dict[str, _Offsets] = {}
    for number, row in enumerate(csv.reader(io.StringIO(text)), 1):
        if not row:
            continue
        try:
            if len(row) == 3 and len(groups) == 1:
                group, (topic, partition, offset) = groups[0], row
            else:
                group, topic, partition, offset = row
            plan.setdefault(group, {})[TopicPartition(topic, whole_number(partition))] = whole_number(offset)
        except ValueError:
            raise ConfigError(f"{path}, line {number}: [group,]topic,partition,offset is expected") from None
    return plan
