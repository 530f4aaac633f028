"""``barnabas pipeline``: run and check declared flows (docs/how-to/pipelines.md)."""

import argparse
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from barnabas.cli.connection.reachability import ANSWER_S, require_broker
from barnabas.cli.options.helpful_parser import HelpfulParser
from barnabas.cli.options.tool_parser import ToolParser, add_output_option
from barnabas.cli.output.colours import print_error, print_warning
from barnabas.cli.output.standard_streams import outlive_output
from barnabas.cli.output.tables import print_json
from barnabas.cli.output.terminal import print
from barnabas.cli.pipelines.operations import OPERATION_ACTIONS, add_operation_actions, lag_text
from barnabas.cli.pipelines.outputs import OUTPUT_ACTIONS, add_output_actions, add_words
from barnabas.cli.pipelines.progress import RunDisplay
from barnabas.cli.pipelines.templates import add_new_action, add_test_action, run_tests, write_flow
from barnabas.cli.pipelines.verification import add_verify_action, verify
from barnabas.cli.pipelines.waiting import WaitDisplay
from barnabas.pipelines.errors import secrets_hidden
from barnabas.pipelines.flow_file.fields import SpecError, SpecProblem
from barnabas.pipelines.flow_file.function_files import FunctionUse
from barnabas.pipelines.flows import load_flow
from barnabas.pipelines.outputs.registry import sink_name
from barnabas.pipelines.progress.summary_text import lost_count_text, wrong_lines
from barnabas.pipelines.specification import spec

if TYPE_CHECKING:
    from barnabas.pipelines.checks.analysis import Analysis, Problem

__all__ = ["main"]

_WITH_FUNCTIONS = ("run", "check", "test", "preview", "dry-run", "replay", "train", "verify")


def main(argv: list[str]) -> int:
    """An action and a flow's file.

    Returns the exit code: 0 when the flow ended well, was stopped, or is valid; 1
    when it is not valid.
    """
    parser = ToolParser("pipeline", "Run streaming flows from topics to databases and topics on Spark.")
    commands = parser.add_subparsers(dest="action", required=True, metavar="ACTION", parser_class=HelpfulParser)
    add_new_action(commands)
    run = commands.add_parser("run", help="run a flow until it is done, or until Ctrl-C")
    check = commands.add_parser("check", help="check a flow's file, expressions and types included, without a cluster")
    test = add_test_action(commands)
    outputs = add_output_actions(commands)
    operations = [*add_operation_actions(commands), add_verify_action(commands)]
    for each in (run, check, test, *outputs, *operations):
        each.add_argument("file", metavar="FILE", help="the flow's file: TOML, or Python that sets the variable flow")
        each.add_argument(
            "--set",
            action="append",
            default=[],
            metavar="KEY=VALUE",
            help="another value for a field of the file, such as source.bootstrap_servers=host:9092; may be repeated",
        )
        add_output_option(each)
    add_words(commands.choices["search"])
    run.add_argument("--master", metavar="URL", help="run on this Spark cluster, such as spark://host:7077")
    run.add_argument("--once", action="store_true", help="stop when all that is in the topics now has been processed")
    run.add_argument(
        "--accept-bad-rows", action="store_true", help="go on after a run that max_bad has ended: count bad rows from 0"
    )
    run.add_argument(
        "--fail-on-loss",
        action="store_true",
        help="exit with status 1 when records were gone before they were read (fail_on_data_loss = false)",
    )
    run.add_argument("--quiet", action="store_true", help="show no progress")
    check.add_argument(
        "--without-spark", action="store_true", help="leave out what only Spark can judge: expressions, types, patterns"
    )
    arguments = parser.parse_args(argv)
    if arguments.action == "new":
        return write_flow(arguments)
    master = getattr(arguments, "master", None)
    try:
        overrides = [*arguments.set, *([f"resources.master={master}"] if master else [])]
        flow = load_flow(arguments.file, overrides, functions=_function_use(arguments))
        if arguments.action == "check":
            _require_consistent_properties(flow)
    except SpecError as error:
        if arguments.action != "check":
            raise
        return _refused(error, arguments)
    with secrets_hidden(flow.hide):
        return _act(flow, arguments)


def _function_use(arguments: argparse.Namespace) -> FunctionUse:
    """What the action needs of the functions that the flow's file names."""
    if arguments.action not in _WITH_FUNCTIONS:
        return FunctionUse.NAME
    return FunctionUse.PARSE if getattr(arguments, "without_spark", False) else FunctionUse.RUN


def _act(flow: spec.Flow, arguments: argparse.Namespace) -> int:
    if action := {"test": run_tests, "verify": verify, **OUTPUT_ACTIONS, **OPERATION_ACTIONS}.get(arguments.action):
        return action(flow, arguments)
    if arguments.action == "check":
        return _check(flow, arguments.output, with_spark=not arguments.without_spark)
    from barnabas.pipelines.running.run import run_flow

    outlive_output()
    if arguments.fail_on_loss:
        _require_counted_loss(flow)
    _require_topics(flow)
    accepts = arguments.accept_bad_rows
    with RunDisplay(quiet=arguments.quiet) as display:
        summary = run_flow(flow, once=arguments.once, accept_bad_rows=accepts, show=display.show, say=display.say)
    _print_summary(summary, arguments.output)
    return 1 if arguments.fail_on_loss and summary.get("lost_records") else 0


def _refused(error: SpecError, arguments: argparse.Namespace) -> int:
    """Print what is wrong with the file, as `_check` prints what Spark finds."""
    if arguments.output == "json":
        problems = [{**asdict(each), "file": each.file or arguments.file} for each in error.problems]
        print_json({"flow": None, "valid": False, "problems": problems, "checked_by_spark": False})
    elif any(each.file for each in error.problems):
        for line in error.lines:
            print_error(line)
    else:  # it cannot be read at all
        raise error
    return 1


def _require_consistent_properties(flow: spec.Flow) -> None:
    kafka = [source.kafka for source in flow.sources]
    kafka += [each.kafka for each in (*flow.sinks, *flow.lookups) if isinstance(each, spec.TopicSink | spec.Lookup)]
    if any(kafka):
        from barnabas.pipelines.checks.client_properties import require_consistent_properties

        require_consistent_properties(flow)


def _require_counted_loss(flow: spec.Flow) -> None:
    """Raise `SpecError` where the exit status cannot say whether records were lost."""
    from barnabas.pipelines.connector.lost_records import loses_uncounted

    if loses_uncounted(flow):
        raise flow.places.error(
            "resources.connector",
            "--fail-on-loss needs the number of lost records, which Spark's own connector does not count: use the connector "
            '"barnabas", or fail_on_data_loss = true, which ends the flow at a loss',
        )


def _require_topics(flow: spec.Flow) -> None:
    """Raise `BarnabasError` for a source whose brokers do not answer or whose topics are
    missing, before Spark starts."""
    from barnabas.pipelines.packages import require_extra

    require_extra()
    from barnabas.pipelines.cluster.kafka_cluster import KafkaCluster
    from barnabas.pipelines.cluster.options import SourceOptions
    from barnabas.pipelines.connector.flow_options import source_options

    for source in flow.sources:
        require_broker(source.bootstrap_servers, source.kafka)
        options = SourceOptions.parse(source_options(source), streaming=True)
        partitions = KafkaCluster(options, timeout_ms=round(ANSWER_S * 1000)).partitions()
        if not partitions:
            print_warning(
                f"no topic matches {source.pattern}, the pattern of {source.name}: there is nothing to read yet"
            )


def _check(flow: spec.Flow, output: str, *, with_spark: bool) -> int:
    """Print what is wrong, or where the results go; 1 if something is wrong."""
    from barnabas.pipelines.checks.local_places import find_place_problems

    problems: list[SpecProblem | Problem] = [*find_place_problems(flow)]
    warnings: list[Problem] = []
    if with_spark:
        analysis = _analysis(flow)
        problems += analysis.problems
        warnings = analysis.warnings
    sinks = [sink_name(sink) for sink in flow.sinks]
    keys = [list(sink.key) for sink in flow.sinks]
    if output == "json":
        summary = {"flow": flow.name, "valid": not problems, "problems": [_as_dict(flow, each) for each in problems]}
        summary |= {"warnings": [_as_dict(flow, each) for each in warnings], "checked_by_spark": with_spark}
        print_json({**summary, "sinks": sinks, "keys": keys, "checkpoint": flow.checkpoint})
        return 1 if problems else 0
    if problems:
        for each in problems:
            print_error(str(flow.places.error(each.field, each.message)))
        return 1
    for each in warnings:
        print_warning(str(flow.places.error(each.field, each.message)))
    topics = ", ".join(source.pattern or ", ".join(source.topics) for source in flow.sources)
    print(f"{flow.name} is valid: {topics} -> {', '.join(sinks)}")
    for sink, key in zip(sinks, keys, strict=True):
        print(f"  {sink}: one row for each {', '.join(key)}")
    print(f"  checkpoint: {flow.checkpoint}")
    if not with_spark:
        print("  not checked without Spark: expressions, types, patterns of times")
    return 0


def _as_dict(flow: spec.Flow, problem: "SpecProblem | Problem") -> dict[str, Any]:
    line = flow.places.line_of(problem.field)
    return {"file": flow.places.file, "line": line, "field": problem.field, "message": flow.hide(problem.message)}


def _analysis(flow: spec.Flow) -> "Analysis":
    from barnabas.pipelines.packages import require_extra
    from barnabas.pipelines.spark.session import open_session, runs_code

    require_extra()
    # A function may use any format.
    has_sources = bool(flow.lookups) or any(step.function for step in flow.steps)
    with WaitDisplay() as waits:
        waits.show("starting Spark")
        session = open_session(
            flow.name,
            cores=1,
            shuffle_partitions=1,
            is_brief=True,
            has_sources=has_sources,
            has_code=runs_code(flow),
            imports=("barnabas.pipelines.checks.analysis",),
        )
        try:
            from barnabas.pipelines.checks.analysis import analyse_flow

            waits.show("checking types and expressions")
            return analyse_flow(session.spark, flow)
        finally:
            session.close()


def _print_summary(summary: dict[str, Any], output: str) -> None:
    if output == "json":
        print_json(summary)
        return
    print(f"{summary['flow']}: {summary['status']}", end="")
    if "rows" in summary:
        lost = lost_count_text(summary.get("lost_records", 0))
        print(
            f"; {summary['rows']} rows in {summary['batches']} batches, {summary['bad_rows']} bad, "
            f"{summary['late_rows']} late{lost}, lag {lag_text(summary['lag'], None)}, {summary['seconds']:.1f} s",
            end="",
        )
    print()
    for line in wrong_lines(summary):
        print(f"  {line}")
