"""``barnabas lost-records``: what a partition's folder lacks, and stepping over it on purpose.

Kafka has no counterpart.

A broker that misses records in the middle of a log answers KAFKA_STORAGE_ERROR there, so that no
consumer skips them without knowing. Where no other replica has them, this command lets consumers go
on behind them. The broker must be stopped.
"""

import os
import random
import re

from barnabas.base.errors import BarnabasError, ConfigError
from barnabas.base.files import OsFiles
from barnabas.cli.options.tool_parser import ToolParser, add_output_option
from barnabas.cli.output.tables import print_json
from barnabas.cli.output.terminal import print
from barnabas.log.dirs.lost_ranges import LostRanges, find_lost_ranges, step_over
from barnabas.log.holes import OffsetSpan
from barnabas.log.lost_data import LOST_DATA

__all__ = ["main"]

_SPAN = re.compile(r"([0-9]{1,18})-([0-9]{1,18})")


def main(argv: list[str]) -> int:
    """Print what is missing.

    Returns 1 while something is, or a note says so, and is not stepped over."""
    parser = ToolParser(
        "lost-records", "Show the records that a partition's folder lacks, or let consumers step over them."
    )
    parser.add_argument("--partition-dir", metavar="DIR", help="the partition's folder, such as /var/lib/kafka/topic-0")
    parser.add_argument(
        "--step-over",
        action="store_true",
        help="from the next start on, reads go over the missing records: they are lost",
    )
    parser.add_argument(
        "--offsets",
        action="append",
        default=[],
        metavar="FIRST-LAST",
        help="step over these offsets as well: those that a broker's log names",
    )
    add_output_option(parser)
    given = parser.parse_args(argv)
    parser.require(given, "partition-dir")
    directory = os.path.abspath(given.partition_dir)
    spans = [_span(text) for text in given.offsets]
    files = OsFiles()
    if not files.is_dir(directory):
        raise BarnabasError(f"{directory}: there is no such folder")
    try:
        with files.lock(os.path.join(os.path.dirname(directory), ".lock")):
            found = find_lost_ranges(files, directory, random.Random(0))
            is_note_gone = step_over(files, directory, found, spans) if given.step_over else found.note is None
    except BlockingIOError as error:
        raise BarnabasError(
            f"A broker uses {os.path.dirname(directory)}: stop it first, with barnabas server-stop"
        ) from error
    spans += [OffsetSpan(hole.start, hole.end) for hole in found.holes]
    stepped_over = spans if given.step_over else []
    if given.output == "json":
        print_json(_document(found, stepped_over, is_note_gone=is_note_gone))
    else:
        _print_found(found)
        _print_changes(found, stepped_over, directory, is_note_gone=is_note_gone)
    return 0 if is_note_gone and (given.step_over or not found.holes) else 1


def _document(found: LostRanges, stepped_over: list[OffsetSpan], *, is_note_gone: bool) -> dict[str, object]:
    note, end = found.note, found.lost_end
    return {
        "partition": str(found.topic_partition),
        "missing": [{"first": hole.start, "last": hole.end - 1, "reason": hole.reason} for hole in found.holes],
        "out_of_place": found.strays,
        "stepped_over": [{"first": each.start, "last": each.end - 1} for each in stepped_over],
        "note": note
        and {
            "reason": note.reason,
            "lost_end": end and {"first": end.start, "last": end.end - 1},
            "is_removed": is_note_gone,
        },
    }


def _print_found(found: LostRanges) -> None:
    for hole in found.holes:
        print(f"{found.topic_partition} lacks offsets {hole.start} to {hole.end - 1}: {hole.reason}")
    for reason in found.strays:
        print(f"out of place: {reason}")
    if not found.holes:
        print(f"{found.topic_partition} lacks no records before its end, as far as its segments show")
    if found.note is not None:
        print(f"an earlier start noted a loss, so another replica leads if it can: {found.note.reason}")


def _print_changes(found: LostRanges, stepped_over: list[OffsetSpan], directory: str, *, is_note_gone: bool) -> None:
    """What was stepped over, and what became of a note.

    An end that is lost leaves nothing to step over."""
    for span in stepped_over:
        if span.start < found.end_offset:
            consumers = f"consumers of {found.topic_partition}"
            print(f"stepped over: {consumers} go on with offset {span.end} behind {span.start - 1}")
    if found.note is None:
        return
    end = found.lost_end
    if is_note_gone:
        print(f"the note is removed: {found.topic_partition} may lead with the records that it has")
    elif not found.note.expected_offset:
        path = os.path.join(directory, LOST_DATA)
        print(f"the note is kept: it names no offsets. To give up whatever is missing, remove {path}")
    elif end is not None:
        option = f"--step-over --offsets {end.start}-{end.end - 1}"
        print(f"offsets {end.start} to {end.end - 1} are missing at the end: give them up with {option}")
    elif not found.holes:
        print("all that the note names is here or was stepped over: remove the note with --step-over")


def _span(text: str) -> OffsetSpan:
    match = _SPAN.fullmatch(text)
    if match is None or int(match[1]) > int(match[2]):
        raise ConfigError(f"--offsets {text}: give the first and the last offset, such as 137-279")
    return OffsetSpan(int(match[1]), int(match[2]) + 1)
