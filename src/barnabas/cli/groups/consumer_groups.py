"""``barnabas consumer-groups``: list, describe, reset and delete groups, as Kafka's
ConsumerGroupCommand.

Unlike Apache's, a command that fails ends with 1.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from barnabas.base.ids import TopicPartition
from barnabas.cli.connection.connect import connect
from barnabas.cli.connection.incomplete import Gaps, without_deleted
from barnabas.cli.connection.suggestions import with_suggestion
from barnabas.cli.options.tool_parser import ToolParser, add_connection_options, add_output_option, seconds
from barnabas.cli.output.colours import print_error, print_warning
from barnabas.cli.output.tables import aligned, print_json
from barnabas.cli.output.terminal import print, print_lines
from barnabas.cli.output.watching import show_repeatedly
from barnabas.client.admin.groups import (
    GroupDescription,
    GroupListing,
    GroupMember,
    ask_coordinators,
    delete_group,
    delete_group_offsets,
    describe_group,
    group_offsets,
    groups_in_part,
    list_groups,
)
from barnabas.client.admin.offsets import LATEST, FoundOffset, offsets_in_part
from barnabas.client.cluster.admin_connection import AdminConnection
from barnabas.client.errors import ClientError
from barnabas.wire.kafka.errors import KafkaError

__all__ = ["main"]

MISSING = "-"
_ACTIONS = ("list", "describe", "delete", "reset-offsets", "delete-offsets")
_SCENARIOS = (
    "to-offset",
    "shift-by",
    "to-datetime",
    "by-duration",
    "to-earliest",
    "to-latest",
    "to-current",
    "from-file",
)
_STATES = ("PreparingRebalance", "CompletingRebalance", "Stable", "Dead", "Empty", "Assigning", "Reconciling")
_TYPES = ("Classic", "Consumer")
_REBALANCING = frozenset(("PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling"))


def main(argv: list[str]) -> int:
    """Do what exactly one of the actions says; 1 when any group or partition failed."""
    parser = _parser()
    given = parser.parse_args(argv)
    _check(parser, given)
    # The timeout bounds each call, with its repetitions while a coordinator moves.
    with connect(given, "barnabas-consumer-groups") as connection:
        connection.api_timeout_ms = max(given.timeout, 1)
        try:
            if given.list:
                return _list(parser, connection, given)
            if given.describe:
                return _describe_repeatedly(connection, given)
            if given.delete:
                return _delete(connection, given)
            if given.delete_offsets:
                return _delete_offsets(connection, given)
            from barnabas.cli.groups.reset_offsets import reset_offsets

            return reset_offsets(connection, given, _group_ids(connection, given))
        except KafkaError as error:
            raise with_suggestion(error, connection) from error


def _describe_repeatedly(connection: AdminConnection, given: argparse.Namespace) -> int:
    """Once, or with --watch until Ctrl-C."""
    if given.watch:
        show_repeatedly(lambda: _describe(connection, given), given.watch, connection.restart)
    return _describe(connection, given)


def _check(parser: ToolParser, given: argparse.Namespace) -> None:
    if sum(parser.has(given, action) for action in _ACTIONS) != 1:
        parser.error(
            "Command must include exactly one action: --list, --describe, --delete, --reset-offsets, --delete-offsets"
        )
    parser.require(given, "bootstrap-server")
    parser.refuse_together(given, "group", ["all-groups", "list"])
    parser.refuse_together(given, "topic", ["list", "describe"])
    if not given.list and not given.group and not given.all_groups:
        parser.error("one of --group and --all-groups is needed")
    if given.describe:
        if sum((given.members, given.offsets, given.state is not None)) > 1:
            parser.error("Option [describe] takes at most one of these options: [members], [offsets], [state]")
        if given.state:
            parser.error("Option [describe] does not take a value for [state]")
    if given.delete and given.topic:
        parser.error("--delete forgets whole groups: use --delete-offsets for a topic's offsets")
    if given.delete_offsets and (not given.topic or len(given.group) != 1):
        parser.error("Option [delete-offsets] takes one [group] and at least one [topic]")
    for option in ("members", "offsets", "verbose", "watch"):
        if parser.has(given, option) and not given.describe:
            parser.error(f"Option [{option}] is only for [describe]")
    if given.reset_offsets:
        _check_reset(parser, given)


def _check_reset(parser: ToolParser, given: argparse.Namespace) -> None:
    parser.refuse_together(given, "execute", ["dry-run"])
    for scenario in _SCENARIOS:
        parser.refuse_together(given, scenario, _SCENARIOS)
    if not any(parser.has(given, scenario) or _is_zero(given, scenario) for scenario in _SCENARIOS):
        options = ", ".join(f"[{scenario}]" for scenario in _SCENARIOS)
        parser.error(f"Option [reset-offsets] requires one of the following scenarios: {options}")
    if not given.all_topics and not given.topic and not given.from_file:
        parser.error("One of the reset scopes should be defined: --all-topics, --topic.")


def _is_zero(given: argparse.Namespace, scenario: str) -> bool:
    value: object = getattr(given, scenario.replace("-", "_"))
    return value == 0 and value is not False


def _group_ids(connection: AdminConnection, given: argparse.Namespace) -> list[str]:
    if given.all_groups:
        return [group.group_id for group in list_groups(connection)]
    return list(dict.fromkeys(given.group))


# List


def _list(parser: ToolParser, connection: AdminConnection, given: argparse.Namespace) -> int:
    states = _filters(parser, given.state, _STATES, "state")
    types = _filters(parser, given.type, _TYPES, "types")
    found = groups_in_part(connection, states, types)
    gaps = Gaps(connection)
    gaps.add_group_partitions(found.leaderless)
    _print_listed(given, found.groups)
    return gaps.report()


def _print_listed(given: argparse.Namespace, listed: Sequence[GroupListing]) -> None:
    if given.output == "json":
        print_json(
            [
                {
                    "group": group.group_id,
                    "protocol_type": group.protocol_type,
                    "type": group.type,
                    "state": group.state,
                }
                for group in listed
            ]
        )
        return
    if given.state is None and given.type is None:
        for group in listed:
            print(group.group_id)
        return
    header = ["GROUP"]
    rows = [[group.group_id] for group in listed]
    if given.type is not None:
        header.append("TYPE")
        for row, group in zip(rows, listed, strict=True):
            row.append(group.type.capitalize() or "Unknown")
    if given.state is not None:
        header.append("STATE")
        for row, group in zip(rows, listed, strict=True):
            row.append(group.state or "Unknown")
    print_lines(aligned(header, rows, {"GROUP": 25, "TYPE": 20}))


def _filters(parser: ToolParser, text: str | None, known: Sequence[str], what: str) -> list[str]:
    """Names in any case and spelling (``preparing_rebalance``) as the protocol has them."""
    by_name = {name.lower(): name for name in known}
    chosen = []
    for part in (text or "").split(","):
        plain = part.strip().lower().replace("_", "").replace("-", "")
        if not plain:
            continue
        if plain not in by_name:
            parser.error(f"Invalid {what} list '{text}'. Valid {what.rstrip('s')}s are: {', '.join(known)}")
        chosen.append(by_name[plain])
    return chosen


# Describe


_Committed = dict[TopicPartition, int]
_Ends = Mapping[TopicPartition, FoundOffset | ClientError]


def _describe(connection: AdminConnection, given: argparse.Namespace) -> int:
    """Each group as far as it is known; the offsets of all of them are asked for together."""
    gaps = Gaps(connection)
    coordinators: dict[str, int] = {}
    ids = sorted(set(given.group))
    if given.all_groups:
        found = groups_in_part(connection)
        gaps.add_group_partitions(found.leaderless)
        ids, coordinators = [group.group_id for group in found.groups], found.coordinators
    with_offsets = not given.members and given.state is None

    def ask(asking: AdminConnection, group_id: str) -> tuple[GroupDescription, _Committed]:
        group = describe_group(asking, group_id)
        return group, group_offsets(asking, group_id) if with_offsets and group.state != "Dead" else {}

    answers = ask_coordinators(connection, ids, ask, coordinators)
    gaps.add_groups(answers)
    described = {group_id: answers[group_id] for group_id in ids}
    there = [answer for answer in described.values() if not isinstance(answer, ClientError)]
    partitions = {partition for group, committed in there for partition in _partitions(group, committed)}
    ends: _Ends = offsets_in_part(connection, dict.fromkeys(partitions, LATEST), is_last=True) if with_offsets else {}
    gaps.add_partitions(without_deleted(ends))
    documents = []
    for group, committed in there:
        if group.state == "Dead":
            print(file=sys.stderr)
            print_error(f"Error: Consumer group '{group.group_id}' does not exist.")
            continue
        _print_state(group)
        if given.members:
            documents.append(_members(given, group))
        elif given.state is not None:
            documents.append(_state(given, group))
        else:
            documents.append(_offsets(given, group, committed, ends))
    if given.output == "json":
        print_json(documents)
    code = gaps.report()
    return 1 if any(group.state == "Dead" for group, _ in there) else code


def _partitions(group: GroupDescription, committed: _Committed) -> list[TopicPartition]:
    """Those of members, by member, then those that are only committed."""
    owned = [
        partition
        for member in sorted(group.members, key=lambda member: -len(member.partitions))
        for partition in member.partitions
    ]
    return list(dict.fromkeys([*owned, *sorted(committed, key=lambda each: (each.topic, each.partition))]))


def _print_state(group: GroupDescription) -> None:
    if group.state == "Empty":
        print(file=sys.stderr)
        print_warning(f"Consumer group '{group.group_id}' has no active members.", label="")
    elif group.state in _REBALANCING:
        print(file=sys.stderr)
        print_warning(f"Consumer group '{group.group_id}' is rebalancing.", label="Warning")


def _offsets(given: argparse.Namespace, group: GroupDescription, committed: _Committed, ends: _Ends) -> dict[str, Any]:
    owners: dict[TopicPartition, GroupMember] = {}
    for member in sorted(group.members, key=lambda member: -len(member.partitions)):
        owners.update(dict.fromkeys(member.partitions, member))
    rows = []
    for partition in _partitions(group, committed):
        owner = owners.get(partition)
        found = ends[partition]
        end = found.offset if isinstance(found, FoundOffset) else None
        offset = committed.get(partition)
        rows.append(
            {
                "group": group.group_id,
                "topic": partition.topic,
                "partition": partition.partition,
                "current_offset": offset,
                "log_end_offset": end,
                "lag": None if offset is None or end is None else end - offset,
                "consumer_id": owner.member_id if owner else None,
                "host": owner.host if owner else None,
                "client_id": owner.client_id if owner else None,
            }
        )
    if given.output == "text" and rows:
        header = ["GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG"]
        header += ["CONSUMER-ID", "HOST", "CLIENT-ID"]
        minimum = {
            "GROUP": 15,
            "TOPIC": 15,
            "PARTITION": 10,
            "CURRENT-OFFSET": 15,
            "LOG-END-OFFSET": 15,
            "LAG": 15,
            "CONSUMER-ID": 15,
            "HOST": 15,
        }
        print_lines("\n" + aligned(header, [[_cell(value) for value in row.values()] for row in rows], minimum))
    return {"group": group.group_id, "state": group.state, "partitions": rows}


def _cell(value: object) -> str:
    return MISSING if value is None else str(value)


def _members(given: argparse.Namespace, group: GroupDescription) -> dict[str, Any]:
    if given.output == "text" and group.members:
        with_instance = any(member.group_instance_id for member in group.members)
        header = ["GROUP", "CONSUMER-ID", *(["GROUP-INSTANCE-ID"] if with_instance else []), "HOST", "CLIENT-ID"]
        header += ["#PARTITIONS", *(["ASSIGNMENT"] if given.verbose else [])]
        rows = []
        for member in group.members:
            row = [group.group_id, member.member_id]
            row += [member.group_instance_id or ""] if with_instance else []
            row += [member.host, member.client_id, str(len(member.partitions))]
            row += [_assignment_text(member)] if given.verbose else []
            rows.append(row)
        minimum = dict.fromkeys(("GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "#PARTITIONS"), 15)
        print_lines("\n" + aligned(header, rows, {**minimum, "GROUP-INSTANCE-ID": 17}))
    return {
        "group": group.group_id,
        "members": [
            {
                "consumer_id": member.member_id,
                "group_instance_id": member.group_instance_id,
                "host": member.host,
                "client_id": member.client_id,
                "assignment": [{"topic": topic, "partition": partition} for topic, partition in member.partitions],
            }
            for member in group.members
        ],
    }


def _assignment_text(member: GroupMember) -> str:
    """``topic1(0,1), topic2(0)``."""
    topics: dict[str, list[str]] = {}
    for topic, partition in member.partitions:
        topics.setdefault(topic, []).append(str(partition))
    return ", ".join(f"{topic}({','.join(numbers)})" for topic, numbers in topics.items()) or MISSING


def _state(given: argparse.Namespace, group: GroupDescription) -> dict[str, Any]:
    coordinator = group.coordinator
    address = f"{coordinator.host}:{coordinator.port}  ({coordinator.id})"
    if given.output == "text":
        header = ("GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE", "#MEMBERS")
        row = (group.group_id, address, group.assignor, group.state, len(group.members))
        minimum = {"GROUP": 25, "COORDINATOR (ID)": 25, "ASSIGNMENT-STRATEGY": 20, "STATE": 15}
        print_lines("\n" + aligned(header, [row], minimum))
    return {
        "group": group.group_id,
        "coordinator": {"id": coordinator.id, "host": coordinator.host, "port": coordinator.port},
        "assignment_strategy": group.assignor,
        "state": group.state,
        "members": len(group.members),
    }


# Delete


def _delete(connection: AdminConnection, given: argparse.Namespace) -> int:
    deleted: list[str] = []
    failed: dict[str, KafkaError] = {}
    for group_id in _group_ids(connection, given):
        try:
            delete_group(connection, group_id)
            deleted.append(group_id)
        except KafkaError as error:
            failed[group_id] = error
    names = ", ".join(f"'{group_id}'" for group_id in deleted)
    if given.output == "json":
        print_json({"deleted": deleted, "failed": {group: refusal.code.name for group, refusal in failed.items()}})
    elif not failed:
        print(f"Deletion of requested consumer groups ({names}) was successful.")
    else:
        print()
        print_error("Error: Deletion of some consumer groups failed:", stream=sys.stdout)
        for group_id, refusal in failed.items():
            print(f"* Group '{group_id}' could not be deleted due to: {refusal.message} ({refusal.code.name})")
        if deleted:
            print("", f"These consumer groups were deleted successfully: {names}", sep="\n")
    return 1 if failed else 0


def _delete_offsets(connection: AdminConnection, given: argparse.Namespace) -> int:
    from barnabas.cli.groups.reset_offsets import parse_partitions

    group_id = given.group[0]
    partitions = parse_partitions(connection, given.topic)
    outcome = delete_group_offsets(connection, group_id, partitions)
    failed = any(outcome.values())
    if given.output == "json":
        print_json(
            [{"topic": topic, "partition": n, "error": code.name} for (topic, n), code in sorted(outcome.items())]
        )
        return 1 if failed else 0
    if failed:
        print()
        print_error("Error: Encounter some partition level error, see the follow-up details:", stream=sys.stdout)
    else:
        print(f"Request succeed for deleting offsets with topic {', '.join(given.topic)} group {group_id}")
    rows = [
        (topic, partition, f"Error: {code.message}" if code else "Successful")
        for (topic, partition), code in sorted(outcome.items())
    ]
    print_lines("\n" + aligned(("TOPIC", "PARTITION", "STATUS"), rows, {"TOPIC": 30, "PARTITION": 15}))
    return 1 if failed else 0


def _parser() -> ToolParser:
    parser = ToolParser("consumer-groups", "List, describe, reset and delete consumer groups.")
    add = parser.add_argument
    add_connection_options(parser, has_own_timeout=True)
    add("--list", action="store_true", help="list groups")
    add("--describe", action="store_true", help="show groups: offsets and lag, members or state")
    add("--delete", action="store_true", help="delete groups without members, with their offsets")
    add("--reset-offsets", action="store_true", help="move the offsets of groups without members; needs --execute")
    add("--delete-offsets", action="store_true", help="forget a group's offsets of topics")
    add("--group", action="append", default=[], metavar="ID", help="the group; may be repeated")
    add("--all-groups", action="store_true", help="all groups")
    add("--topic", action="append", default=[], metavar="TOPIC[:0,1]", help="a topic, or some of its partitions")
    add("--all-topics", action="store_true", help="all topics that the group has offsets of")
    add("--timeout", type=int, default=5000, metavar="MS", help="how long a call may take (default 5000)")
    add("--offsets", action="store_true", help="with --describe: offsets and lag of each partition (default)")
    add("--members", action="store_true", help="with --describe: the members")
    add("--state", nargs="?", const="", metavar="STATES", help="with --describe: the state; with --list: those in it")
    add("--type", nargs="?", const="", metavar="TYPES", help="with --list: the types, or those of a type")
    add(
        "--watch",
        nargs="?",
        const=2.0,
        type=seconds,
        metavar="S",
        help="with --describe: again every S seconds (2 without S), until Ctrl-C",
    )
    add("--verbose", action="store_true", help="with --members: the partitions of each too")
    add("--dry-run", action="store_true", help="with --reset-offsets: show what would be done (default)")
    add("--execute", action="store_true", help="with --reset-offsets: do it")
    add("--export", action="store_true", help="with --reset-offsets: print the new offsets as CSV")
    add("--to-offset", type=int, metavar="N", help="reset to this offset")
    add("--shift-by", type=int, metavar="N", help="reset by this many records, back if negative")
    add("--to-datetime", metavar="YYYY-MM-DDTHH:mm:SS.sss", help="reset to the first record at or after a time")
    add("--by-duration", metavar="PnDTnHnMnS", help="reset to the first record at or after now less a duration")
    add("--to-earliest", action="store_true", help="reset to the first record")
    add("--to-latest", action="store_true", help="reset to the end")
    add("--to-current", action="store_true", help="reset to the committed offset, or the end where there is none")
    add("--from-file", metavar="FILE", help="reset to the offsets in a CSV file: [group,]topic,partition,offset")
    add_output_option(parser)
    return parser
