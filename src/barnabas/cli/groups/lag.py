"""``barnabas lag``: how far groups are behind, in records and in time, and in which state they are.

One answer; again and again with ``--watch``; or a process that samples the cluster and serves
what it finds to Prometheus, with ``--metrics-address``.

In Kafka: no counterpart; Burrow, kminion and Kafka Lag Exporter do this.
"""

import argparse
import json
import logging
import os
import re
import shutil
import signal
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from barnabas.base.errors import BarnabasError, ConfigError
from barnabas.base.record_times import time_as_text
from barnabas.cli.connection.connect import connect
from barnabas.cli.connection.suggestions import with_suggestion
from barnabas.cli.options.tool_parser import ToolParser, add_connection_options, add_output_option, seconds
from barnabas.cli.output.colours import print_warning
from barnabas.cli.output.exit_codes import INCOMPLETE, exit_code_of
from barnabas.cli.output.log_lines import log_to_standard_error
from barnabas.cli.output.tables import aligned, print_json
from barnabas.cli.output.terminal import columns, escaped, print, print_document, print_lines
from barnabas.cli.output.watching import show_repeatedly
from barnabas.client.cluster.admin_connection import AdminConnection
from barnabas.lag.documents import report_document, time_lag_words, time_words
from barnabas.lag.history import LagHistory
from barnabas.lag.metric_names import NamesOf
from barnabas.lag.monitor import MOST_RECORDS, LagMonitor
from barnabas.lag.values import GroupLag, LagReport
from barnabas.net.metrics_address import parse_metrics_address
from barnabas.top.tables import shortened
from barnabas.wire.kafka.errors import KafkaError

if TYPE_CHECKING:
    from barnabas.lag.service import LagExporter

__all__ = ["main"]

_UNKNOWN = "?"
_INTERVAL_S = 15.0
_HISTORY_MB = 64
_RECORDS_OF_ONE_ANSWER = 256
_LEAST_NAME = 12


def main(argv: list[str]) -> int:
    """Print it once, or again and again, or serve it; 3 when something could not be read."""
    parser = _parser()
    given = parser.parse_args(argv)
    _check(parser, given)
    if given.past is not None and not os.path.exists(given.history):
        raise BarnabasError(f"there is no history {given.history}: a command with --history makes one")
    history = None if given.history is None else LagHistory(given.history, int(given.history_size * (1 << 20)))
    try:
        if history is not None and history.set_aside:
            print_warning(history.set_aside)
        if given.past is not None and history is not None:
            return _past(given, history)
        with connect(given, "barnabas-lag") as connection:
            try:
                return _run(given, connection, history)
            except KafkaError as error:
                raise with_suggestion(error, connection) from error
    finally:
        if history is not None:
            history.close()


def _run(given: argparse.Namespace, connection: AdminConnection, history: LagHistory | None) -> int:
    is_long = given.metrics_address is not None or given.watch is not None
    interval_s = given.watch or given.interval
    monitor = LagMonitor(
        connection,
        int(1000 * interval_s),
        _wanted(given),
        given.group,
        history,
        MOST_RECORDS if is_long else _RECORDS_OF_ONE_ANSWER,
    )

    def sample(now_ms: int) -> LagReport:
        connection.restart()
        return monitor.sample(now_ms)

    try:
        if given.metrics_address is not None:
            return _serve(given, connection, sample)
        if given.watch:
            show_repeatedly(lambda: _print(given, monitor.sample(_now_ms())), given.watch, connection.restart)
        until_s = time.monotonic() + (given.observe or 0.0)
        report = sample(_now_ms())
        while (left_s := until_s - time.monotonic()) > 0:
            time.sleep(min(left_s, interval_s))
            report = sample(_now_ms())
        return _print(given, report)
    finally:
        monitor.close(_now_ms())


def _now_ms() -> int:
    return int(time.time() * 1000)


# Options


def _parser() -> ToolParser:
    parser = ToolParser(
        "lag",
        "Show how far groups are behind, in records and in time, how fast they read, and in which state they are.",
    )
    add_connection_options(parser)
    parser.add_argument("--group", action="append", default=[], metavar="G", help="this group; may be repeated")
    parser.add_argument("--groups", metavar="REGEX", help="groups whose whole name matches")
    parser.add_argument("--partitions", action="store_true", help="a row for each partition")
    parser.add_argument(
        "--watch", nargs="?", const=2.0, type=seconds, metavar="S", help="again every S seconds (2 without S)"
    )
    parser.add_argument(
        "--observe",
        type=seconds,
        metavar="S",
        help="take samples for S seconds before the answer: rates and most states need them",
    )
    parser.add_argument("--history", metavar="FILE", help="remember samples in this file: since when?")
    parser.add_argument(
        "--history-size",
        type=seconds,
        default=_HISTORY_MB,
        metavar="MB",
        help=f"how large the file may be (default {_HISTORY_MB}); what is old becomes coarser",
    )
    parser.add_argument(
        "--past", type=seconds, metavar="S", help="show what the history has of the last S seconds; asks no broker"
    )
    parser.add_argument(
        "--metrics-address", metavar="HOST:PORT", help="stay, and serve /metrics there for Prometheus, until Ctrl-C"
    )
    names = ", ".join(each.value for each in NamesOf if each is not NamesOf.OWN)
    parser.add_argument(
        "--metrics-names",
        metavar="LIST",
        help=f"whose names metrics have besides our own: some of {names} (default: all)",
    )
    parser.add_argument(
        "--interval",
        type=seconds,
        default=_INTERVAL_S,
        metavar="S",
        help=f"the time between two samples of --metrics-address and --observe (default {_INTERVAL_S:g})",
    )
    add_output_option(parser)
    return parser


def _check(parser: ToolParser, given: argparse.Namespace) -> None:
    if given.past is None:
        parser.require(given, "bootstrap-server")
    elif given.history is None:
        parser.error("--past needs --history")
    parser.refuse_together(given, "group", ["groups"])
    for option in ("watch", "observe", "metrics-address", "past"):
        parser.refuse_together(given, option, ["watch", "observe", "metrics-address", "past"])
    if given.groups is not None:
        try:
            given.groups = re.compile(given.groups)
        except re.error as error:
            parser.error(f"--groups {given.groups}: this is not a regular expression ({error})")
    if given.metrics_address is not None:
        try:
            given.metrics_address = parse_metrics_address(given.metrics_address, "--metrics-address")
        except ConfigError as error:
            parser.error(str(error))
    given.metrics_names = _names(parser, given.metrics_names)


def _names(parser: ToolParser, text: str | None) -> tuple[NamesOf, ...]:
    if text is None:
        return tuple(NamesOf)
    known = {each.value: each for each in NamesOf}
    for name in filter(None, text.split(",")):
        if name not in known:
            parser.error(f"--metrics-names {name}: one of {', '.join(known)} is expected")
    return tuple(known[name] for name in filter(None, text.split(",")))


def _wanted(given: argparse.Namespace) -> Callable[[str], bool]:
    named, pattern = set(given.group), given.groups

    def is_wanted(group_id: str) -> bool:
        if pattern is not None:
            return pattern.fullmatch(group_id) is not None
        return not named or group_id in named

    return is_wanted


# Serving


def _serve(given: argparse.Namespace, connection: AdminConnection, sample: Callable[[int], LagReport]) -> int:
    import asyncio  # one answer starts faster without

    from barnabas.lag.service import LagExporter

    log_to_standard_error(logging.INFO, "%(asctime)s %(levelname)s %(message)s")
    exporter = LagExporter(sample, given.interval, given.metrics_names)
    return asyncio.run(_serve_until_stopped(exporter, given.metrics_address, connection))


async def _serve_until_stopped(exporter: "LagExporter", address: tuple[str, int], connection: AdminConnection) -> int:
    import asyncio

    loop, stopped = asyncio.get_running_loop(), asyncio.Event()
    code = 0

    def stop(number: int) -> None:
        nonlocal code
        code = exit_code_of(number)
        stopped.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop, number)
    host, port = address
    try:
        await exporter.open(host, port)
    except OSError as error:
        raise BarnabasError(f"--metrics-address {host}:{port} cannot be opened: {error.strerror or error}") from error
    print(f"serving http://{f'[{host}]' if ':' in host else host or 'localhost'}:{exporter.port}/metrics", flush=True)
    sampling, stopping = loop.create_task(exporter.run()), loop.create_task(stopped.wait())
    try:
        await asyncio.wait({sampling, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if sampling.done():
            sampling.result()
        return code
    finally:
        connection.close()  # ends a sample that is under way
        sampling.cancel()
        stopping.cancel()
        await exporter.close()


# Printing


def _print(given: argparse.Namespace, report: LagReport) -> int:
    if given.output == "json":
        document = report_document(report)
        if given.watch:
            print_document(json.dumps(document, ensure_ascii=False), flush=True)  # a line for each sample
        else:
            print_json(document)
    else:
        print_lines(_partitions_text(report) if given.partitions else _groups_text(report))
    sys.stdout.flush()
    for line in report.missing:
        print_warning(line, label="Incomplete")
    for line in report.notes:
        print_warning(line, label="Note")
    return INCOMPLETE if report.missing else 0


def _groups_text(report: LagReport) -> str:
    header = ("GROUP", "STATE", "SINCE", "MEMBERS", "LAG", "BEHIND", "RATE/S", "CATCH-UP")
    rows = [
        (
            group.group,
            group.state,
            "-" if group.since_ms is None else time_words(max(0, report.at_ms - group.since_ms) // 1000),
            _known(group.members),
            _UNKNOWN if group.lag is None else f"{group.lag}{'' if group.is_complete else '+'}",
            "-" if group.lag == 0 and group.is_complete else time_lag_words(group.furthest),
            _rate(group.consumed_per_s),
            _catch_up(group),
        )
        for group in report.groups
    ]
    return _fitted(header, rows)


def _partitions_text(report: LagReport) -> str:
    header = ("GROUP", "PARTITION", "OFFSET", "END", "LAG", "BEHIND", "STATE")
    rows = [
        (
            group.group,
            str(part.topic_partition),
            _known(part.committed),
            _known(part.end),
            _known(part.lag),
            "-" if part.lag == 0 else time_lag_words(part),
            f"{part.state}: {part.problem}"
            if part.problem
            else "well: markers"
            if part.is_only_markers
            else part.state,
        )
        for group in report.groups
        for part in group.partitions
    ]
    return _fitted(header, rows)


def _fitted(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table that is no wider than the terminal, if the names of groups can be cut for that; a
    pipe gets whole names."""
    if sys.stdout.isatty() and rows:
        shown = [[escaped(str(cell)) for cell in row] for row in rows]
        widths = [max(map(columns, column)) for column in zip(header, *shown, strict=True)]
        room = max(_LEAST_NAME, shutil.get_terminal_size().columns - sum(widths[1:]) - len(widths) + 1)
        rows = [[shortened(str(row[0]), room, lambda text: columns(escaped(text))), *row[1:]] for row in rows]
    return aligned(header, rows)


def _catch_up(group: GroupLag) -> str:
    if group.never_catches_up:
        return "never"
    if group.catch_up_s is None:
        return _UNKNOWN
    return time_words(round(group.catch_up_s)) if group.catch_up_s else "-"


def _known(value: object) -> object:
    return _UNKNOWN if value is None else value


def _rate(per_s: float | None) -> str:
    return _UNKNOWN if per_s is None else f"{per_s:.3g}" if per_s < 1000 else f"{per_s:.0f}"


# The past


def _past(given: argparse.Namespace, history: LagHistory) -> int:
    is_wanted, from_ms = _wanted(given), _now_ms() - int(1000 * given.past)
    minutes = [each for each in history.minutes(from_ms) if is_wanted(each.group)]
    if given.output == "json":
        print_json([each._asdict() for each in minutes])
        return 0
    rows = [
        (
            each.group,
            time_as_text(each.at_ms)[:16],
            each.state,
            _known(each.lag),
            _UNKNOWN if each.lag_ms is None else time_words(each.lag_ms / 1000),
        )
        for each in minutes
    ]
    print_lines(_fitted(("GROUP", "TIME", "STATE", "LAG", "BEHIND"), rows))
    return 0
