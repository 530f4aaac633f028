"""``barnabas lost-records``: what a partition's folder lacks, and stepping over it on purpose. Kafka has no counterpart.

A broker that misses records in the middle of a log answers KAFKA_STORAGE_ERROR there, so that no consumer skips them
without knowing. Where no other replica has them, this command lets consumers go on behind them. The broker must be stopped.
"""

import os
import random
import re

from barnabas.base.errors import BarnabasError, ConfigError
from barnabas.base.files import OsFiles
from barnabas.cli.common import ToolParser, add_output_option, print_json
from barnabas.cli.terminal import print
from barnabas.log.dirs.lost_ranges import find_lost_ranges, step_over
from barnabas.log.holes import OffsetSpan

__all__ = ["main"]

_SPAN = re.compile(r"([0-9]{1,18})-([0-9]{1,18})")


def main(argv: list[str]) -> int:
    """Print what is missing. Returns 1 while something is, and is not stepped over."""
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
            if given.step_over:
                step_over(files, directory, [*spans, *(OffsetSpan(hole.start, hole.end) for hole in found.holes)])
    except BlockingIOError as error:
        raise BarnabasError(
            f"A broker uses {os.path.dirname(directory)}: stop it first, with barnabas server-stop"
        ) from error
    spans += [OffsetSpan(hole.start, hole.end) for hole in found.holes]
    if given.output == "json":
        print_json(
            {
                "partition": str(found.topic_partition),
                "missing": [{"first": hole.start, "last": hole.end - 1, "reason": hole.reason} for hole in found.holes],
                "out_of_place": found.strays,
                "stepped_over": [{"first": each.start, "last": each.end - 1} for each in spans if given.step_over],
            }
        )
    else:
        for hole in found.holes:
            print(f"{found.topic_partition} lacks offsets {hole.start} to {hole.end - 1}: {hole.reason}")
        for reason in found.strays:
            print(f"out of place: {reason}")
        if not found.holes:
            print(f"{found.topic_partition} lacks no records before its end, as far as its segments show")
        for span in spans if given.step_over else ():
            print(
                f"stepped over: consumers of {found.topic_partition} go on with offset {span.end} behind {span.start - 1}"
            )
    return 1 if found.holes and not given.step_over else 0


def _span(text: str) -> OffsetSpan:
    match = _SPAN.fullmatch(text)
    if match is None or int(match[1]) > int(match[2]):
        raise ConfigError(f"--offsets {text}: give the first and the last offset, such as 137-279")
    return OffsetSpan(int(match[1]), int(match[2]) + 1)
