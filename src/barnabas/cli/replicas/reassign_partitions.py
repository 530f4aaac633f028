"""``barnabas reassign-partitions``: move replicas between brokers and log dirs, with
Kafka's options.

``--generate`` proposes a plan, ``--execute`` starts one, ``--verify`` reports its progress and
removes throttles once nothing moves any more, ``--cancel`` undoes it, ``--list`` shows what moves.
Plans are described in `reassignment_plans`. A throttle set with ``--execute`` stays until
``--verify`` or ``--cancel``, as with Kafka's tool.
"""

import argparse
import random
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from operator import itemgetter
from typing import Any

from barnabas.base.errors import BarnabasError, ConfigError
from barnabas.base.ids import TopicPartition
from barnabas.base.numbers import whole_number
from barnabas.cli.connection.connect import connect
from barnabas.cli.connection.incomplete import Gaps
from barnabas.cli.connection.suggestions import refuse_hidden
from barnabas.cli.options.json_files import compact, duplicates, read_document
from barnabas.cli.options.tool_parser import (
    ToolParser,
    add_connection_options,
    add_output_option,
    where_to_name_brokers,
)
from barnabas.cli.output.colours import Style, painted
from barnabas.cli.output.tables import print_json
from barnabas.cli.output.terminal import print
from barnabas.cli.replicas.reassignment_plans import (
    FOLLOWER_THROTTLED_RATE,
    FOLLOWER_THROTTLED_REPLICAS,
    LEADER_THROTTLED_RATE,
    LEADER_THROTTLED_REPLICAS,
    LOG_DIR_THROTTLED_RATE,
    ReassignmentPlan,
    ReplicaLists,
    as_document,
    check_for_execution,
    moves_of,
    parse_reassignment_plan,
    parse_topics,
    propose,
    racks_of,
    topic_throttles,
)
from barnabas.client.admin.configurations import Resource, ResourceType, alter_configs
from barnabas.client.admin.log_dirs import (
    Replica,
    ReplicaPlace,
    alter_replica_log_dirs,
    describe_log_dirs,
    find_replicas,
    replicas_in_part,
)
from barnabas.client.admin.reassignments import alter_reassignments, list_reassignments
from barnabas.client.admin.topics import describe_topics
from barnabas.client.cluster.admin_connection import AdminConnection
from barnabas.client.errors import ClientError, RefusedError
from barnabas.wire.kafka.errors import ErrorCode, KafkaError

__all__ = ["main"]

_REQUIRED = {
    "generate": ("topics-to-move-json-file", "broker-list"),
    "execute": ("reassignment-json-file",),
    "verify": ("reassignment-json-file",),
    "cancel": ("reassignment-json-file",),
    "list": (),
}
_PERMITTED = {
    "generate": ("disable-rack-aware",),
    "execute": ("additional", "throttle", "replica-alter-log-dirs-throttle", "timeout"),
    "verify": ("preserve-throttles",),
    "cancel": ("preserve-throttles", "timeout"),
    "list": (),
}
_DEFAULT_TIMEOUT_MS = 10_000
_BACKOFF_S = 0.1

Say = Callable[..., None]
_Result = dict[str, Any]


def main(argv: list[str]) -> int:
    """Do what exactly one of ``--generate --execute --verify --cancel --list`` says."""
    parser = _parser()
    given = parser.parse_args(argv)
    action = _check(parser, given)
    as_json = given.output == "json"
    say: Say = _ignore if as_json else _print_lines
    with connect(given, "barnabas-reassign-partitions") as connection:
        try:
            result = _ACTIONS[action](connection, given, say)
        except KafkaError as error:
            raise BarnabasError(f"{error.message} ({error.code.name})") from error
        gaps = Gaps(connection)
    if as_json:
        print_json({**result, "errors": gaps.lines} if gaps.lines else result)
    return gaps.report()


def _print_lines(*lines: str) -> None:
    print(*lines, sep="\n")


def _ignore(*_: str) -> None:
    """What is said to people is left out of JSON."""


def _plan(given: argparse.Namespace) -> ReassignmentPlan:
    return parse_reassignment_plan(read_document(given.reassignment_json_file))


# List


def _list(connection: AdminConnection, _: argparse.Namespace, say: Say) -> _Result:
    found = sorted(list_reassignments(connection).items(), key=lambda item: item[0])
    say("Current partition reassignments:" if found else "No partition reassignments found.")
    for partition, item in found:
        adding = f" adding: {_joined(item.adding)}." if item.adding else ""
        removing = f" removing: {_joined(item.removing)}." if item.removing else ""
        say(f"{partition}: replicas: {_joined(item.replicas)}.{adding}{removing}")
    return {
        "reassignments": [
            {**_named(partition), "replicas": item.replicas, "adding": item.adding, "removing": item.removing}
            for partition, item in found
        ]
    }


# Generate


def _generate(connection: AdminConnection, given: argparse.Namespace, say: Say) -> _Result:
    wanted = _brokers(given.broker_list)
    topics = parse_topics(read_document(given.topics_to_move_json_file))
    current = _current_assignment(connection, topics)
    there = [broker for broker in connection.describe_cluster().brokers if broker.id in wanted]
    missing = sorted(set(wanted) - {broker.id for broker in there})
    if missing:
        print(f"brokers that are not there are left out: {_joined(missing)}", file=sys.stderr)
    proposed = propose(current, racks_of(there, rack_aware=not given.disable_rack_aware), random.SystemRandom())
    say("Current partition replica assignment", compact(as_document(current)), "")
    say("Proposed partition reassignment configuration", compact(as_document(proposed)))
    return {"current": as_document(current), "proposed": as_document(proposed)}


def _brokers(text: str) -> list[int]:
    try:
        brokers = [whole_number(part) for part in text.split(",")]
    except ValueError:
        raise ConfigError(f"--broker-list {text}: broker ids are expected, such as 0,1,2") from None
    twice = duplicates(brokers)
    if twice:
        raise ConfigError(f"Broker list contains duplicate entries: {_joined(twice)}")
    return brokers


def _current_assignment(connection: AdminConnection, topics: Iterable[str]) -> ReplicaLists:
    return {
        TopicPartition(topic.name, item.partition): item.replicas
        for topic in describe_topics(connection, topics)
        for item in topic.partitions
    }


# Execute


def _execute(connection: AdminConnection, given: argparse.Namespace, say: Say) -> _Result:
    plan = _plan(given)
    check_for_execution(plan)
    proposed = plan.assignment
    under_way = list_reassignments(connection)
    if under_way and not given.additional:
        raise BarnabasError(
            "Cannot execute because there is an existing partition assignment.  Use --additional to override this and "
            "create a new partition assignment in addition to the existing one. The --additional flag can also be "
            "used to change the throttle by resubmitting the current reassignment."
        )
    there = {broker.id for broker in connection.describe_cluster().brokers}
    for broker_id in (broker_id for replicas in proposed.values() for broker_id in replicas):
        if broker_id not in there:
            raise BarnabasError(f"Unknown broker id {broker_id}")
    everything = _current_assignment(connection, plan.topics)
    missing = [partition for partition in proposed if partition not in everything]
    if missing:
        raise BarnabasError(f"Unable to find partition: {', '.join(map(str, missing))}")
    current = {partition: everything[partition] for partition in proposed}
    say("Current partition replica assignment", "", compact(as_document(current)), "")
    say("Save this to use as the --reassignment-json-file option during rollback")
    if given.throttle is not None or given.replica_alter_log_dirs_throttle is not None:
        text = (
            "Warning: You must run --verify periodically, until the reassignment completes, to ensure the throttle is "
            "removed."
        )
        say(painted(Style.WARNING, text, sys.stdout))
    if given.throttle is not None:
        _throttle_brokers(connection, moves_of(under_way, proposed, current), given.throttle)
        say(f"The inter-broker throttle limit was set to {given.throttle} B/s")
    if given.replica_alter_log_dirs_throttle is not None:
        _throttle_log_dirs(connection, plan, given.replica_alter_log_dirs_throttle)
        say(f"The replica-alter-dir throttle limit was set to {given.replica_alter_log_dirs_throttle} B/s")
    _check_log_dirs(connection, plan.log_dirs)
    refused = alter_reassignments(connection, proposed)
    if refused:
        raise BarnabasError.of_lines("Error reassigning partition(s):", *_refusals(refused))
    started = sorted(proposed)
    say(f"Successfully started partition reassignment{_s(started)} for {_joined(started)}")
    _move_log_dirs(connection, plan.log_dirs, _timeout_ms(given), say)
    return {
        "previous": as_document(current),
        "started": [_named(partition) for partition in started],
        "log_dirs": [{**_replica(replica), "log_dir": path} for replica, path in sorted(plan.log_dirs.items())],
    }


def _check_log_dirs(connection: AdminConnection, moves: dict[Replica, str]) -> None:
    """Refuse log dirs that a broker does not have before anything is started."""
    for broker_id in sorted({replica.broker_id for replica in moves}):
        there = [log_dir.path for log_dir in describe_log_dirs(connection, broker_id, [])]
        for replica, path in sorted(moves.items()):
            if replica.broker_id == broker_id and path not in there:
                code = ErrorCode.LOG_DIR_NOT_FOUND
                raise BarnabasError(
                    f"Failed to alter dir for {replica}: {code.message} ({code.name}); nothing was started. Broker "
                    f"{broker_id} has the log dirs {', '.join(there)}, and not {path}"
                )


def _throttle_brokers(connection: AdminConnection, moves: Any, rate: int) -> None:
    for topic, properties in topic_throttles(moves).items():
        alter_configs(connection, Resource(ResourceType.TOPIC, topic), properties)
    for broker_id in sorted({broker for move in moves.values() for broker in move.sources | move.destinations}):
        rates = {LEADER_THROTTLED_RATE: str(rate), FOLLOWER_THROTTLED_RATE: str(rate)}
        alter_configs(connection, Resource(ResourceType.BROKER, str(broker_id)), rates)


def _throttle_log_dirs(connection: AdminConnection, plan: ReassignmentPlan, rate: int) -> None:
    for broker_id in sorted({replica.broker_id for replica in plan.log_dirs}):
        alter_configs(connection, Resource(ResourceType.BROKER, str(broker_id)), {LOG_DIR_THROTTLED_RATE: str(rate)})


def _move_log_dirs(connection: AdminConnection, moves: dict[Replica, str], timeout_ms: int, say: Say) -> None:
    """Repeat until every broker has begun: a broker that gets a new replica cannot move it
    before the replica exists."""
    pending = dict(moves)
    end = time.monotonic() + timeout_ms / 1000
    while pending:
        for replica, code in sorted(alter_replica_log_dirs(connection, pending).items()):
            if code is ErrorCode.REPLICA_NOT_AVAILABLE:
                continue
            if code:
                raise BarnabasError(f"Failed to alter dir for {replica}: {code.message} ({code.name})")
            say(
                f"Successfully started moving log directory to {pending.pop(replica)} for replica "
                f"{replica.topic}-{replica.partition} with broker {replica.broker_id} "
            )
        if not pending:
            return
        if time.monotonic() >= end:
            late = sorted(pending)
            raise BarnabasError(f"Timed out before log directory move{_s(late)} could be started for: {_joined(late)}")
        time.sleep(_BACKOFF_S)


# Verify


def _verify(connection: AdminConnection, given: argparse.Namespace, say: Say) -> _Result:
    plan = _plan(given)
    under_way = list_reassignments(connection)
    existing = {topic.name for topic in describe_topics(connection)}
    for topic in sorted(set(plan.topics) - existing):
        refuse_hidden(connection, topic)
    current = _current_assignment(connection, sorted(existing.intersection(plan.topics)))
    partitions = []
    say("Status of partition reassignment:")
    for partition, target in sorted(plan.assignment.items(), key=lambda item: item[0]):
        moving = under_way.get(partition)
        replicas = moving.replicas if moving else current.get(partition, [])
        if moving:
            state, text = "in progress", f"Reassignment of partition {partition} is still in progress."
        elif replicas == target:
            state, text = "completed", f"Reassignment of partition {partition} is completed."
        else:
            state = "not active"
            text = (
                f"There is no active reassignment of partition {partition}, but replica set is {_joined(replicas)} "
                f"rather than {_joined(target)}."
            )
        say(text)
        partitions.append({**_named(partition), "state": state, "replicas": replicas, "target": target})
    moves = []
    reported_moves = []
    for replica, place in sorted(replicas_in_part(connection, plan.log_dirs).items(), key=itemgetter(0)):
        if isinstance(place, RefusedError):
            raise place
        state, text = _move_state(replica, place, plan.log_dirs[replica])
        reported_moves.append(text)
        moves.append({**_replica(replica), "state": state, "target": plan.log_dirs[replica]})
    say(*reported_moves)
    finished = not under_way and all(move["state"] not in ("in progress", "unknown") for move in moves)
    if finished and not given.preserve_throttles:
        _clear_throttles(connection, plan, say)
    return {"partitions": partitions, "log_dirs": moves, "finished": finished}


def _move_state(replica: Replica, place: ReplicaPlace | ClientError, target: str) -> tuple[str, str]:
    """A log dir move's state, and the words for it."""
    partition = f"{replica.topic}-{replica.partition}"
    if isinstance(place, ClientError):
        return "unknown", f"It is not known where broker {replica.broker_id} has partition {partition}: {place}"
    if place.current is None:
        return "missing", (
            f"Partition {partition} is not found in any live log dir on broker {replica.broker_id}. There is likely an "
            "offline log directory on the broker."
        )
    if place.future is None:
        if place.current == target:
            return "completed", f"Reassignment of replica {replica} completed successfully."
        return "not active", (
            f"Partition {partition} on broker {replica.broker_id} is not being moved from log dir {place.current} to "
            f"{target}."
        )
    if place.future == target:
        return "in progress", f"Reassignment of replica {replica} is still in progress."
    return "in progress", (
        f"Partition {partition} on broker {replica.broker_id} is being moved to log dir {place.future} instead of "
        f"{target}."
    )


def _clear_throttles(connection: AdminConnection, plan: ReassignmentPlan, say: Say) -> None:
    """All throttles of all brokers and of the plan's topics, because the source
    brokers are no longer known."""
    there = {broker.id for broker in connection.describe_cluster(fresh=True).brokers}
    away = {broker_id for _, replicas in plan.entries for broker_id in replicas} - there
    if away:
        print(f"throttles of brokers that are not there stay: {_joined(sorted(away))}", file=sys.stderr)
    say(f"Clearing broker-level throttles on broker{_s(there)} {_joined(sorted(there))}")
    rates = dict.fromkeys((LEADER_THROTTLED_RATE, FOLLOWER_THROTTLED_RATE, LOG_DIR_THROTTLED_RATE))
    for broker_id in sorted(there):
        alter_configs(connection, Resource(ResourceType.BROKER, str(broker_id)), rates)
    say(f"Clearing topic-level throttles on topic{_s(plan.topics)} {_joined(plan.topics)}")
    replicas = dict.fromkeys((LEADER_THROTTLED_REPLICAS, FOLLOWER_THROTTLED_REPLICAS))
    for topic in plan.topics:
        alter_configs(connection, Resource(ResourceType.TOPIC, topic), replicas)


# Cancel


def _cancel(connection: AdminConnection, given: argparse.Namespace, say: Say) -> _Result:
    plan = _plan(given)
    active = sorted(list_reassignments(connection, plan.assignment))
    if active:
        refused = alter_reassignments(connection, dict.fromkeys(active))
        if refused:
            raise BarnabasError.of_lines(
                f"Error cancelling partition reassignment{_s(refused)} for:", *_refusals(refused)
            )
        say(f"Successfully cancelled partition reassignment{_s(active)} for: {_joined(active)}")
    else:
        say("None of the specified partition reassignments are active.")
    back = {
        replica: place.current
        for replica, place in find_replicas(connection, plan.log_dirs).items()
        if place.current is not None and place.future is not None
    }
    if back:
        _move_log_dirs(connection, back, _timeout_ms(given), say)
    else:
        say("None of the specified partition moves are active.")
    if not given.preserve_throttles:
        _clear_throttles(connection, plan, say)
    return {
        "cancelled": [_named(partition) for partition in active],
        "log_dirs": [{**_replica(replica), "log_dir": path} for replica, path in sorted(back.items())],
    }


_ACTIONS = {"generate": _generate, "execute": _execute, "verify": _verify, "cancel": _cancel, "list": _list}


# Words


def _joined(values: Iterable[object]) -> str:
    return ",".join(map(str, values))


def _s(values: Any) -> str:
    return "" if len(values) == 1 else "s"


def _refusals(refused: Mapping[TopicPartition, KafkaError]) -> list[str]:
    return [f"{topic_partition}: {refused[topic_partition].message}" for topic_partition in sorted(refused)]


def _named(topic_partition: TopicPartition) -> _Result:
    return {"topic": topic_partition.topic, "partition": topic_partition.partition}


def _replica(replica: Replica) -> _Result:
    return {"topic": replica.topic, "partition": replica.partition, "broker": replica.broker_id}


# Options


def _timeout_ms(given: argparse.Namespace) -> int:
    return _DEFAULT_TIMEOUT_MS if given.timeout is None else int(given.timeout)


def _check(parser: ToolParser, given: argparse.Namespace) -> str:
    chosen = [action for action in _REQUIRED if getattr(given, action)]
    if len(chosen) != 1:
        parser.error(f"Command must include exactly one action: {', '.join(f'--{action}' for action in _REQUIRED)}")
    if given.zookeeper is not None:
        parser.error("--zookeeper is gone from Kafka's tools since 3.0: name a broker, --bootstrap-server HOST:PORT")
    action = chosen[0]
    if not given.bootstrap_server:
        parser.error(f"Please specify --bootstrap-server{where_to_name_brokers('bootstrap-server')}")
    parser.require(given, *_REQUIRED[action])
    allowed = (*_REQUIRED[action], *_PERMITTED[action])
    for option in {option for options in (*_REQUIRED.values(), *_PERMITTED.values()) for option in options}:
        if option not in allowed and parser.has(given, option):
            parser.error(f'Option "[{option}]" can\'t be used with action "[{action}]"')
    # Kafka's tool takes a negative rate, its default, for none.
    for name in ("throttle", "replica_alter_log_dirs_throttle"):
        if getattr(given, name) is not None and getattr(given, name) < 0:
            setattr(given, name, None)
    return action


def _parser() -> ToolParser:
    parser = ToolParser("reassign-partitions", "Move replicas of partitions between brokers and log dirs.")
    add = parser.add_argument
    add_connection_options(parser, has_own_timeout=True)
    add("--zookeeper", metavar="HOST:PORT", help=argparse.SUPPRESS)
    add("--generate", action="store_true", help="propose a plan for topics and brokers; nothing is moved")
    add("--execute", action="store_true", help="start what a plan asks for")
    add("--verify", action="store_true", help="show how far a plan is; take throttles back when nothing moves any more")
    add("--cancel", action="store_true", help="cancel what is under way of a plan")
    add("--list", action="store_true", help="show all that is being moved")
    add(
        "--reassignment-json-file",
        metavar="FILE",
        help='the plan, as {"partitions": [{"topic": "foo", "partition": 1, "replicas": [1, 2, 3], "log_dirs": '
        '["any", "/data/kafka", "any"]}], "version": 1}; log_dirs may be left out',
    )
    add(
        "--topics-to-move-json-file",
        metavar="FILE",
        help='with --generate: the topics, as {"topics": [{"topic": "foo"}], "version": 1}',
    )
    add("--broker-list", metavar="0,1,2", help="with --generate: the brokers to place replicas on")
    add("--disable-rack-aware", action="store_true", help="with --generate: take no account of racks")
    add("--throttle", type=int, metavar="B/S", help="with --execute: bytes per second between brokers")
    add(
        "--replica-alter-log-dirs-throttle",
        type=int,
        metavar="B/S",
        help="with --execute: bytes per second between log dirs of a broker",
    )
    add("--additional", action="store_true", help="with --execute: beside what is being moved already")
    add("--preserve-throttles", action="store_true", help="leave throttles as they are")
    add(
        "--timeout",
        type=int,
        metavar="MS",
        help=f"how long to wait for moves between log dirs to begin (default: {_DEFAULT_TIMEOUT_MS})",
    )
    add_output_option(parser)
    return parser
