"""``barnabas pipeline verify``: whether a flow's outputs hold what its topics give."""

import argparse
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from barnabas.cli.output.exit_codes import INCOMPLETE
from barnabas.cli.output.tables import padded, print_json
from barnabas.cli.output.terminal import print, print_lines
from barnabas.cli.pipelines.waiting import WaitDisplay, trial_session
from barnabas.pipelines.specification import spec

if TYPE_CHECKING:
    from barnabas.pipelines.verification.row_comparison import RowDifference
    from barnabas.pipelines.verification.verification import CheckedSink, Verification

__all__ = ["add_verify_action", "verify"]

_SHOWN = 200
"""Characters of a row that are shown; all of them: --output json."""


def add_verify_action(commands: Any) -> argparse.ArgumentParser:
    """Declares the action; the caller adds what all actions have, such as FILE and --set."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "verify",
        help="compute a stopped flow's results once more, and list the rows of its outputs that differ; changes nothing; "
        "ends with 1 if rows differ, and else with 3 if something could not be verified",
    )
    parser.add_argument(
        "--limit",
        type=int,
        default=20,
        help="how many differing rows of each output to show (default: %(default)s)",
    )
    return parser


def verify(flow: spec.Flow, arguments: argparse.Namespace) -> int:
    """Returns the exit code: 1 if rows differ, else `INCOMPLETE` if something could
    not be verified."""
    with trial_session(flow) as spark, WaitDisplay() as waits:
        from barnabas.pipelines.verification.verification import verify_flow

        found = verify_flow(spark, flow, limit=arguments.limit, say=waits.show)
    differs = any(each.differs for each in found.sinks)
    is_complete = all(each.is_judged for each in found.sinks)
    if arguments.output == "json":
        sinks = [_as_dict(each) for each in found.sinks]
        print_json({**asdict(found), "differs": differs, "complete": is_complete, "sinks": sinks})
    else:
        _show(found)
    if differs:
        return 1
    return 0 if is_complete else INCOMPLETE


def _as_dict(sink: "CheckedSink") -> dict[str, Any]:
    examples = [
        {"kind": each.kind, "key": each.key, "expected": each.expected, "found": each.found} for each in sink.examples
    ]
    return {**asdict(sink), "examples": examples}


def _show(found: "Verification") -> None:
    rows = [
        [each.source, each.topic, str(each.partition), str(each.start), str(each.end), str(each.gone)]
        for each in found.ranges
    ]
    print_lines("\n".join(padded([["SOURCE", "TOPIC", "PARTITION", "FROM", "TO", "GONE"], *rows], gap="  ")))
    for sink in found.sinks:
        if not sink.verified:
            print(f"{sink.sink}: not verified: {sink.reason}")
            continue
        note = f" ({sink.reason})" if sink.reason else ""
        if not sink.differs:
            print(f"{sink.sink}: all {sink.rows:,} rows are right{note}")
            continue
        print(f"{sink.sink}: {sink.missing:,} rows missing, {sink.extra:,} extra, {sink.different:,} different{note}")
        for each in sink.examples:
            print(f"  {_line(each)}")


def _line(each: "RowDifference") -> str:
    expected, has = (" and ".join(rows) or "no row" for rows in (each.expected, each.found))
    return f"{each.kind} {_short(each.key)}: expected {_short(expected)}, found {_short(has)}"


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."
