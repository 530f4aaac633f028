"""The actions of ``barnabas pipeline`` on flows that run: preview, dry-run, status, lag,
stop, reset, rewind, replay."""

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from barnabas.base.errors import BarnabasError, ConfigError
from barnabas.base.ids import TopicPartition
from barnabas.base.record_times import searched_ms
from barnabas.cli.options.tool_parser import seconds
from barnabas.cli.output.colours import Style, painted, print_warning
from barnabas.cli.output.tables import padded, print_json
from barnabas.cli.output.terminal import print, print_lines
from barnabas.cli.pipelines.waiting import trial_session
from barnabas.pipelines.checkpoints.checkpoint import Checkpoint
from barnabas.pipelines.cluster.offsets import Offsets, from_json, require_known
from barnabas.pipelines.errors import PipelineError
from barnabas.pipelines.progress.summary_text import lost_count_text, wrong_lines
from barnabas.pipelines.specification import spec
from barnabas.pipelines.values.texts import json_values

if TYPE_CHECKING:
    from barnabas.pipelines.cluster.kafka_cluster import KafkaCluster

__all__ = ["OPERATION_ACTIONS", "add_operation_actions", "lag_text", "reason_lines"]

_SHOWN = 60
_MOST_REASONS = 10
_LOST = {
    "status": "lost",
    "reason": "its process ended without noting why: it was killed, or the machine went down",
}
"""How a run ended whose end was not noted."""


def add_operation_actions(commands: Any) -> list[argparse.ArgumentParser]:
    """Declares the actions; the caller adds what all actions have, such as FILE and --set."""
    preview = commands.add_parser("preview", help="show rows of any step, made of the newest records")
    preview.add_argument(
        "--of", default="results", metavar="VIEW", help="a source, table or step (default: %(default)s)"
    )
    preview.add_argument("--rows", type=int, default=10, help="how many rows to show (default: %(default)s)")
    dry_run = commands.add_parser("dry-run", help="look for what would go wrong: topics, records, sinks, checkpoint")
    status = commands.add_parser("status", help="say whether a flow runs, how far it is, and what it has done")
    lag = commands.add_parser("lag", help="show for each partition the records that a flow has not read yet")
    stop = commands.add_parser("stop", help="stop a flow that runs on this machine, after its micro-batch")
    stop.add_argument("--timeout", type=seconds, default=60, help="seconds to wait for its end (default: %(default)s)")
    reset = commands.add_parser("reset", help="forget position and state: the flow begins as if it were new")
    rewind = commands.add_parser(
        "rewind", help="let the next run begin elsewhere; says first what is repeated in which sink"
    )
    rewind.add_argument(
        "--to",
        required=True,
        metavar="WHERE",
        help='earliest, latest, a time such as 2026-01-31T12:00:00Z, group:NAME, or offsets {"topic": {"0": 17}}',
    )
    for each in (reset, rewind):
        each.add_argument(
            "--replace-rows",
            action="store_true",
            help="also where a topic was made again, and its records replace rows of the topic before: those with the same position",
        )
        each.add_argument(
            "--any-order",
            action="store_true",
            help="also where partitions were added, and an older row of a key may replace a newer one",
        )
        each.add_argument("--yes", action="store_true", help="do it; without it only what would happen is shown")
    replay = commands.add_parser("replay", help="send dead letters that fit now through the flow again")
    replay.add_argument(
        "--source", metavar="NAME", help="whose dead letters (default: the first source with bad_rows_topic)"
    )
    replay.add_argument("--value", metavar="SQL", help="the repaired value, an expression over value, key and reason")
    replay.add_argument("--dry-run", action="store_true", help="only count what would go through")
    return [preview, dry_run, status, lag, stop, reset, rewind, replay]


def _preview(flow: spec.Flow, arguments: argparse.Namespace) -> int:
    with trial_session(flow) as spark:
        from barnabas.pipelines.checks.trial import preview_rows

        rows = preview_rows(spark, flow, arguments.of, arguments.rows)
    if arguments.output == "json":
        print_json(json_values(rows))
        return 0
    if not rows:
        print("no rows: none of the newest records gets as far as here", file=sys.stderr)
        return 0
    _print_table([list(rows[0]), *[[_text(value) for value in row.values()] for row in rows]])
    return 0


def _dry_run(flow: spec.Flow, arguments: argparse.Namespace) -> int:
    findings = []
    with trial_session(flow) as spark:
        from barnabas.pipelines.checks.trial import try_flow

        for each in try_flow(spark, flow):
            findings.append(each)
            if arguments.output != "json":
                print(f"{each.state:<8} {each.what}: {each.message}")
    if arguments.output == "json":
        print_json([asdict(each) for each in findings])
    return 1 if any(each.state == "error" for each in findings) else 0


def _lags(flow: spec.Flow, checkpoint: Checkpoint) -> list[dict[str, Any]]:
    """For each partition of each source where the flow is and where the topic ends."""
    from barnabas.pipelines.checkpoints.topic_ids import TopicIds
    from barnabas.pipelines.checks.trial import latest_offsets, source_cluster

    rows: list[dict[str, Any]] = []
    ids = TopicIds(checkpoint.folder)
    for source, position in zip(flow.sources, checkpoint.position(), strict=False):
        ends = latest_offsets(source)
        cluster = source_cluster(source)
        others = {*ids.made_again(source, cluster), *ids.to_begin(source, "main")}
        unread = cluster.at_marks({name: -2 for name in ends if name.topic in others})
        for name, end in sorted(ends.items()):
            at = None if name in unread else position.get(name)
            begin = unread.get(name, at)
            lag = None if begin is None else max(0, end - begin)
            rows.append(
                {
                    "source": source.name,
                    "topic": name.topic,
                    "partition": name.partition,
                    "position": at,
                    "end": end,
                    "lag": lag,
                }
            )
    return rows


def _lag(flow: spec.Flow, arguments: argparse.Namespace) -> int:
    rows = _lags(flow, Checkpoint(flow))
    if arguments.output == "json":
        print_json(rows)
    else:
        _print_table(
            [
                ["SOURCE", "TOPIC", "PARTITION", "POSITION", "END", "LAG"],
                *[[_text(each) for each in row.values()] for row in rows],
            ]
        )
    return 0


def _status(flow: spec.Flow, arguments: argparse.Namespace) -> int:
    checkpoint = Checkpoint(flow)
    running, last = checkpoint.is_running(), checkpoint.last_run()
    if "started" in last and "ended" not in last:
        last |= {"ended": None, **({"status": "running", "reason": None} if running else _LOST)}
    state: dict[str, Any] = {
        "flow": flow.name,
        "running": running,
        "pid": last.get("pid") if running else None,
        "checkpoint": str(checkpoint.folder),
        "batches": checkpoint.batches(),
        "changes": [asdict(each) for each in checkpoint.changes()],
        "last_run": last,
    }
    try:
        lags = [row["lag"] for row in _lags(flow, checkpoint)]
        state["lag"] = sum(lag for lag in lags if lag is not None) if checkpoint.batches() else None
        problem = None
    except BarnabasError as error:
        state["lag"], problem = None, str(error)
    if arguments.output == "json":
        print_json(state)
        return 0
    since = f" since {last['started']}" if "started" in last else ""
    print(f"{flow.name}: {'runs as process ' + str(state['pid']) + since if running else 'does not run'}")
    print(f"  checkpoint: {checkpoint.folder}, {state['batches']} micro-batches done")
    catch_up_s = last.get("catch_up_s") if running else None
    lag = "not begun" if state["lag"] is None else lag_text(state["lag"], catch_up_s)
    print(f"  lag: {problem or lag}")
    if not running and (ended := _how_it_ended(last)):
        print(f"  last run: {ended}")
    if "rows" in last:
        print(
            f"  {'this' if running else 'last'} run: {last['rows']:,} rows in {last['seconds']:.0f} s, {last['bad_rows']:,} bad"
            f"{lost_count_text(last.get('lost_records', 0))}"
        )
        for line in wrong_lines(last):
            print(f"    {line}")
    for change in checkpoint.changes():
        print(f"  {'changed' if change.fits else 'DOES NOT FIT'}: {change.field} {change.message}")
    return 0


def _how_it_ended(last: dict[str, Any]) -> str:
    """When the last run began and how it ended.

    "" before the first run, and for one of an earlier version."""
    if "started" not in last:
        return ""
    reason = f": {last['reason']}" if last.get("reason") else ""
    return f"began {last['started']}, {last['status']}{' ' + last['ended'] if last['ended'] else ''}{reason}"


def _stop(flow: spec.Flow, arguments: argparse.Namespace) -> int:
    stopped = Checkpoint(flow).stop(arguments.timeout)
    if arguments.output == "json":
        print_json({"flow": flow.name, "stopped": stopped})
    else:
        print(f"{flow.name} {'is stopped' if stopped else 'does not run'}")
    return 0


def _not_running(flow: spec.Flow) -> Checkpoint:
    checkpoint = Checkpoint(flow)
    if checkpoint.is_running():
        raise ConfigError(f"{flow.name} runs; stop it first: barnabas pipeline stop {flow.places.file}")
    if not checkpoint.folder.is_dir():
        raise ConfigError(f"there is no checkpoint {checkpoint.folder}")
    return checkpoint


def _reset(flow: spec.Flow, arguments: argparse.Namespace) -> int:
    from barnabas.pipelines.checkpoints.rereading import what_repeats

    checkpoint = _not_running(flow)
    batches = checkpoint.batches()
    starts = {source.name: source.starting_offsets for source in flow.sources}
    try:
        _require_rereadable(flow, checkpoint, arguments, _topics_made_again(flow, checkpoint))
    except ConfigError:
        raise
    except BarnabasError as error:  # a flow that is to begin as if it were new needs no brokers
        print_warning(f"{error}: whether topics were made again, or got partitions, is not known")
    if arguments.output != "json":
        print(f"position and state of {batches} micro-batches in {checkpoint.folder} are deleted")
        named = [f"{name} at {start}" if len(starts) > 1 else f"at {start}" for name, start in starts.items()]
        print(f"the next run begins {', '.join(named)}; sinks keep what they have:")
        for each in what_repeats(flow):
            print(f"  {each}")
    is_meant = _is_meant(arguments)
    if is_meant:
        checkpoint.reset()
    if arguments.output == "json":
        plan = {"flow": flow.name, "checkpoint": str(checkpoint.folder), "batches": batches}
        print_json({**plan, "begins_at": starts, "sinks": what_repeats(flow), "done": is_meant})
    elif is_meant:
        print("done")
    return 0 if is_meant else 2


def _rewind(flow: spec.Flow, arguments: argparse.Namespace) -> int:
    from barnabas.pipelines.checkpoints.rereading import what_repeats

    checkpoint = _not_running(flow)
    positions = _readable(checkpoint.reached, "what is repeated is not known")
    others = _topics_made_again(flow, checkpoint)
    starts = _targets(flow, arguments.to, checkpoint, others)
    _require_rereadable(flow, checkpoint, arguments, others)
    plan: list[dict[str, Any]] = []
    for source, position, start in zip(flow.sources, positions or [{}] * len(starts), starts, strict=False):
        for name, offset in sorted(start.items()):
            at = position.get(name)
            moved = 0 if at is None else at - offset
            plan.append(
                {
                    "source": source.name,
                    "topic": name.topic,
                    "partition": name.partition,
                    "from": at,
                    "to": offset,
                    "repeated": moved,
                }
            )
    repeated = sum(max(0, each["repeated"]) for each in plan)
    skipped = sum(max(0, -each["repeated"]) for each in plan)
    if arguments.output != "json":
        _print_table(
            [
                ["SOURCE", "TOPIC", "PARTITION", "FROM", "TO", "REPEATED"],
                *[[_text(each) for each in row.values()] for row in plan],
            ]
        )
        print(f"{repeated:,} records are read again" + (f", {skipped:,} are left out" if skipped else "") + ":")
        for each in what_repeats(flow):
            print(f"  {each}")
    kept = checkpoint.rewind(starts, _ids_of_today(flow)) if _is_meant(arguments) else None
    if kept:
        print(f"done; what was before is kept in {kept}", file=sys.stderr)
    if arguments.output == "json":
        print_json(
            {
                "flow": flow.name,
                "plan": plan,
                "repeated": repeated,
                "skipped": skipped,
                "sinks": what_repeats(flow),
                "done": kept is not None,
                "kept": str(kept) if kept else None,
            }
        )
    return 0 if kept else 2


def _readable(read: Callable[[], list[Offsets]], otherwise: str) -> list[Offsets] | None:
    """What a checkpoint says of positions.

    None, with a warning, where it is damaged: a rewind is a way out of that."""
    try:
        return read()
    except PipelineError as error:
        print_warning(f"{error.lines[0].partition(';')[0]}: {otherwise}")
        return None


def _targets(flow: spec.Flow, where: str, checkpoint: Checkpoint, others: set[str]) -> list[Offsets]:
    """For each source where the next run is to begin."""
    if not where.startswith("{"):
        return [_target(source, where, {}) for source in flow.sources]
    stays = _readable(checkpoint.starts, "only partitions that --to names have a place")
    starts = [
        _target(source, where, {name: offset for name, offset in stay.items() if name.topic not in others})
        for source, stay in zip(flow.sources, stays or [{} for _ in flow.sources], strict=False)
    ]
    given = from_json(where)
    known = [name for start in starts for name in start]
    require_known(given, known)
    if stays is None and (missing := sorted(set(known) - set(given))):
        raise ConfigError(
            f"--to names no offset of {', '.join(map(str, missing))}, and the checkpoint is damaged: name all partitions, or "
            "take earliest, latest or a time"
        )
    return starts


def _topics_made_again(flow: spec.Flow, checkpoint: Checkpoint) -> set[str]:
    """Topics in which the checkpoint's positions are those of the topic before."""
    from barnabas.pipelines.checkpoints.topic_ids import TopicIds
    from barnabas.pipelines.checks.trial import source_cluster

    try:
        ids = TopicIds(checkpoint.folder)
    except PipelineError as error:
        print_warning(f"{error.lines[0].partition(';')[0]}: whether topics were made again is not known")
        return set()
    return {
        topic
        for source in flow.sources
        for topic in (*ids.made_again(source, source_cluster(source)), *ids.to_begin(source, "main"))
    }


def _ids_of_today(flow: spec.Flow) -> str:
    from barnabas.pipelines.checkpoints.topic_ids import TopicIds
    from barnabas.pipelines.checks.trial import source_cluster

    return TopicIds.of_today(flow, source_cluster)


def _require_rereadable(
    flow: spec.Flow, checkpoint: Checkpoint, arguments: argparse.Namespace, others: set[str]
) -> None:
    """Raise `ConfigError` if records that are read once more could replace rows of other records,
    or newer rows, unless this is allowed."""
    from barnabas.pipelines.checkpoints.rereading import (
        added_partitions,
        order_problem,
        replacement_problem,
        unordered_sinks,
    )
    from barnabas.pipelines.checks.trial import source_cluster

    if not arguments.replace_rows and (problem := replacement_problem(flow, others)):
        raise ConfigError(problem)
    if arguments.any_order or not unordered_sinks(flow):
        return
    added = [
        each
        for source, before in zip(flow.sources, checkpoint.first_partitions(), strict=True)
        for each in added_partitions(before, source_cluster(source).partitions())
    ]
    if problem := order_problem(flow, added):
        raise ConfigError(problem)


def _is_meant(arguments: argparse.Namespace) -> bool:
    if not arguments.yes:
        print("nothing is changed yet; add --yes to do it", file=sys.stderr)
    return bool(arguments.yes)


def _target(source: spec.Source, where: str, position: Offsets) -> Offsets:
    """The offsets of a source's partitions at a place that `--to` names.

    Those it does not name stay at ``position``."""
    from barnabas.pipelines.checks.trial import source_cluster
    from barnabas.pipelines.cluster.options import Start

    cluster = source_cluster(source)
    partitions = cluster.partitions()
    if where in ("earliest", "latest"):
        return cluster.at_marks(dict.fromkeys(partitions, -2 if where == "earliest" else -1))
    if where.startswith("group:"):
        found = _of_group(source, where.removeprefix("group:"), partitions)
        _require_within(cluster, found)
        return found
    if where.startswith("{"):
        named = {name: offset for name, offset in from_json(where).items() if name in partitions}
        _require_within(cluster, named)
        given = {**position, **named}
        return cluster.resolve(
            partitions, Start(-2, offsets={name: given[name] for name in partitions if name in given})
        )
    try:
        time = datetime.fromisoformat(where)
    except ValueError as error:
        raise ConfigError(
            f"--to is {where!r}, but must be earliest, latest, a time, group:NAME or offsets as JSON"
        ) from error
    time = time if time.tzinfo else time.replace(tzinfo=UTC)
    return cluster.resolve(partitions, Start(-2, time_ms=searched_ms(time)))


def _require_within(cluster: "KafkaCluster", offsets: Offsets) -> None:
    """Raise `ConfigError` for an offset that a partition does not have (any more),
    and that is not its end."""
    asked = {name: offset for name, offset in offsets.items() if offset >= 0}
    begins, ends = (cluster.at_marks(dict.fromkeys(asked, mark)) for mark in (-2, -1))
    for name, offset in sorted(asked.items()):
        if not begins[name] <= offset <= ends[name]:
            raise ConfigError(
                f"{name} has offsets from {begins[name]:,} to its end, {ends[name]:,}, and not {offset:,}"
            )


def _of_group(source: spec.Source, group: str, partitions: list[TopicPartition]) -> Offsets:
    from confluent_kafka import Consumer, KafkaException
    from confluent_kafka import TopicPartition as ClientPartition

    from barnabas.pipelines.cluster.kafka_cluster import open_client
    from barnabas.pipelines.cluster.options import client_config

    kafka = {**source.kafka, "bootstrap.servers": source.bootstrap_servers}
    consumer = open_client(Consumer, {**client_config(kafka), "group.id": group})
    try:
        found = consumer.committed([ClientPartition(each.topic, each.partition) for each in partitions], 10)
    except KafkaException as error:
        raise ConfigError(f"the offsets of group {group} cannot be read: {error.args[0].str()}") from error
    finally:
        consumer.close()
    offsets = {TopicPartition(each.topic, each.partition): each.offset for each in found if each.offset >= 0}
    if missing := [name for name in partitions if name not in offsets]:
        raise ConfigError(f"group {group} has no position in {', '.join(map(str, missing))}")
    return offsets


def _replay(flow: spec.Flow, arguments: argparse.Namespace) -> int:
    names = [each.name for each in flow.sources if each.bad_rows_topic]
    name = arguments.source or (names[0] if names else flow.source.name)
    source = next((each for each in flow.sources if each.name == name), None)
    if source is None:
        raise ConfigError(f"the flow has no source {name}; it has {', '.join(each.name for each in flow.sources)}")
    with trial_session(flow) as spark:
        from barnabas.pipelines.dead_letters.replay import replay_dead_letters

        result = replay_dead_letters(spark, flow, source, value=arguments.value, is_dry=arguments.dry_run)
    if arguments.output == "json":
        print_json(asdict(result))
        return 0
    would = "would go" if arguments.dry_run else "went"
    print(f"{result.sent:,} dead letters {would} back to their topics; {result.still_bad:,} are bad still")
    if result.left_out:
        print(f"{result.left_out:,} records of the topic are left out: of other flows, or of other sources (--source)")
    if result.kept:
        print(
            f"{result.kept:,} dead letters are kept: they came from topics that the flow no longer reads, or that are gone"
        )
    if result.cut:
        print(f"{result.cut:,} dead letters are kept: they lack a part of their record, which is gone")
    if result.refused:
        print(
            f"{result.refused:,} records fit, but their topics refused them: they are dead letters again, with the reason"
        )
    for line in reason_lines(result.reasons):
        print(f"  {line}")
    return 0


def reason_lines(reasons: Mapping[str, int]) -> Iterator[str]:
    """The most frequent reasons with their counts, and how many others there are."""
    ordered = sorted(reasons.items(), key=lambda each: -each[1])
    for reason, count in ordered[:_MOST_REASONS]:
        yield f"{count:,}: {reason}"
    if others := ordered[_MOST_REASONS:]:
        yield f"{sum(count for _, count in others):,}: {len(others):,} other reasons (all of them: --output json)"


def lag_text(records: int | None, catch_up_s: float | None) -> str:
    """The lag, and when it will be 0 if that is known."""
    if records is None:
        return "unknown"
    if not records or catch_up_s is None:
        return f"{records:,}"
    seconds = round(catch_up_s)
    parts = ((seconds // 3600, "h"), (seconds // 60 % 60, "min"), (seconds % 60, "s"))
    shown = " ".join(f"{count} {unit}" for count, unit in [each for each in parts if each[0]][:2]) or "0 s"
    return f"{records:,} (read in {shown})"


def _text(value: Any) -> str:
    if value is None:
        return "-"
    text = value.replace(tzinfo=None).isoformat(sep=" ") if isinstance(value, datetime) else str(value)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."


def _print_table(rows: list[list[str]]) -> None:
    header, *others = padded(rows, gap="  ")
    print_lines("\n".join([painted(Style.HEADER, header, sys.stdout), *others]))


OPERATION_ACTIONS: dict[str, Callable[[spec.Flow, argparse.Namespace], int]] = {
    "preview": _preview,
    "dry-run": _dry_run,
    "status": _status,
    "lag": _lag,
    "stop": _stop,
    "reset": _reset,
    "rewind": _rewind,
    "replay": _replay,
}
