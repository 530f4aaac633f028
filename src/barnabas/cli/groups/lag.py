"""``barnabas lag``: how far groups are behind, in records and in time, and how they do."""

import argparse
import re
import sys
import time

from barnabas.cli.connection.connect import connect
from barnabas.cli.connection.suggestions import with_suggestion
from barnabas.cli.options.tool_parser import ToolParser, add_connection_options, add_output_option, seconds
from barnabas.cli.output.colours import print_warning
from barnabas.cli.output.exit_codes import INCOMPLETE
from barnabas.cli.output.tables import aligned, print_json
from barnabas.cli.output.terminal import print_lines
from barnabas.cli.output.watching import show_repeatedly
from barnabas.client.cluster.admin_connection import AdminConnection
from barnabas.lag.documents import report_document, time_lag_words, time_words
from barnabas.lag.reader import find_times, read_sample
from barnabas.lag.tracker import LagTracker
from barnabas.lag.values import GroupLag, LagReport, LagState
from barnabas.wire.kafka.errors import KafkaError

__all__ = ["main"]

_GROUP_HEADER = ("GROUP", "STATE", "MEMBERS", "LAG", "BEHIND", "RATE/S", "CATCH-UP")
_PARTITION_HEADER = ("GROUP", "TOPIC", "PARTITION", "OFFSET", "END", "LAG", "BEHIND", "STATE")
_UNKNOWN = "?"
_INTERVAL_S = 15.0


def main(argv: list[str]) -> int:
    """Print it once, or again and again with --watch; 3 when something could not be read."""
    parser = _parser()
    given = parser.parse_args(argv)
    parser.require(given, "bootstrap-server")
    pattern = _pattern(parser, given)
    with connect(given, "barnabas-lag") as connection:
        tracker = LagTracker(int(1000 * (given.watch or _INTERVAL_S)))
        try:
            if given.watch:
                show_repeatedly(lambda: _show(connection, tracker, given, pattern), given.watch, connection.restart)
            return _show(connection, tracker, given, pattern)
        except KafkaError as error:
            raise with_suggestion(error, connection) from error


def _parser() -> ToolParser:
    parser = ToolParser(
        "lag", "Show how far groups are behind, in records and in time, how fast they are, and how they do."
    )
    add_connection_options(parser)
    parser.add_argument("--group", action="append", default=[], metavar="G", help="this group; may be repeated")
    parser.add_argument("--groups", metavar="REGEX", help="groups whose whole name matches")
    parser.add_argument("--partitions", action="store_true", help="a row for each partition")
    parser.add_argument(
        "--watch", nargs="?", const=2.0, type=seconds, metavar="S", help="again every S seconds (2 without S)"
    )
    add_output_option(parser)
    return parser


def _pattern(parser: ToolParser, given: argparse.Namespace) -> "re.Pattern[str] | None":
    if given.groups is None:
        return None
    if given.group:
        parser.error("one of --group and --groups")
    try:
        return re.compile(given.groups)
    except re.error as error:
        parser.error(f"--groups {given.groups}: this is not a regular expression ({error})")


def _show(
    connection: AdminConnection, tracker: LagTracker, given: argparse.Namespace, pattern: "re.Pattern[str] | None"
) -> int:
    named = set(given.group)

    def is_wanted(group_id: str) -> bool:
        return pattern.fullmatch(group_id) is not None if pattern else not named or group_id in named

    tracker.add(read_sample(connection, int(time.time() * 1000), is_wanted, given.group))
    find_times(connection, tracker)
    report = tracker.report()
    if given.output == "json":
        print_json(report_document(report))
    else:
        print_lines(_partitions_text(report) if given.partitions else _groups_text(report))
    sys.stdout.flush()
    for line in report.missing:
        print_warning(line, label="Incomplete")
    return INCOMPLETE if report.missing else 0


def _groups_text(report: LagReport) -> str:
    return aligned(_GROUP_HEADER, [_group_row(group) for group in report.groups])


def _group_row(group: GroupLag) -> tuple[object, ...]:
    lag = _UNKNOWN if group.lag is None else f"{group.lag}{'' if group.is_complete else '+'}"
    behind = time_lag_words(group.furthest) if group.lag else "-"
    return (
        group.group,
        group.state,
        _known(group.members),
        lag,
        behind,
        _rate(group.consumed_per_s),
        _catch_up(group),
    )


def _catch_up(group: GroupLag) -> str:
    if not group.lag:
        return "-"
    if group.catch_up_s is not None:
        return time_words(group.catch_up_s)
    return _UNKNOWN if group.state is LagState.UNKNOWN else "never"


def _partitions_text(report: LagReport) -> str:
    rows = [
        (
            group.group,
            part.topic,
            part.partition,
            _known(part.committed),
            _known(part.end),
            _known(part.lag),
            time_lag_words(part) if part.lag else "-",
            part.state if not part.problem else f"{part.state}: {part.problem}",
        )
        for group in report.groups
        for part in group.partitions
    ]
    return aligned(_PARTITION_HEADER, rows)


def _known(value: object) -> object:
    return _UNKNOWN if value is None else value


def _rate(per_s: float | None) -> str:
    return _UNKNOWN if per_s is None else f"{per_s:.3g}" if per_s < 1000 else f"{per_s:.0f}"
