"""``barnabas groups``: consumer groups for people; ``consumer-groups`` has Kafka's options."""

from datetime import datetime

from barnabas.base.errors import BarnabasError
from barnabas.base.ids import TopicPartition
from barnabas.cli.connection.connect import connect
from barnabas.cli.connection.incomplete import Gaps
from barnabas.cli.options.times import parse_time_ms
from barnabas.cli.options.tool_parser import ToolParser, add_connection_options, add_output_option
from barnabas.cli.output.tables import aligned, print_json
from barnabas.cli.output.terminal import print_lines
from barnabas.client.admin.groups import (
    alter_group_offsets,
    ask_coordinators,
    describe_group,
    group_offsets,
    groups_in_part,
)
from barnabas.client.admin.offsets import EARLIEST, LATEST, FoundOffset, list_offsets
from barnabas.client.admin.topics import describe_topics
from barnabas.client.cluster.admin_connection import AdminConnection
from barnabas.client.errors import ClientError

__all__ = ["main"]

_NONE_SO_LATE = -1


def main(argv: list[str]) -> int:
    """List groups, or move one to another place of its topics."""
    parser = ToolParser(
        "groups",
        "List consumer groups, or seek: move a group without members to the start, the end, an offset or a time.",
    )
    parser.add_argument("action", choices=("list", "seek"), help="what to do")
    parser.add_argument("group", nargs="?", help="with seek: the group")
    parser.add_argument(
        "--to", metavar="PLACE", help="start, end, an offset, or a time: 10:00, 15m (ago), 2026-11-22T10:00"
    )
    parser.add_argument(
        "--topic", action="append", default=[], help="these topics instead of all that it has offsets of"
    )
    add_connection_options(parser)
    add_output_option(parser)
    given = parser.parse_args(argv)
    parser.require(given, "bootstrap-server")
    with connect(given, "barnabas-groups") as connection:
        if given.action == "list":
            return _list(connection, as_json=given.output == "json")
        if not given.group or not given.to:
            parser.error("groups seek GROUP --to PLACE: both are expected")
        return _seek(connection, given.group, given.topic, given.to, as_json=given.output == "json")


def _list(connection: AdminConnection, *, as_json: bool) -> int:
    found = groups_in_part(connection)
    gaps = Gaps(connection)
    gaps.add_group_partitions(found.leaderless)
    ids = [group.group_id for group in found.groups]
    described = ask_coordinators(connection, ids, describe_group, found.coordinators)
    gaps.add_groups(described)
    rows: list[tuple[str, str, int | None]] = []
    for listed in found.groups:
        answer = described[listed.group_id]
        members = None if isinstance(answer, ClientError) else len(answer.members)
        rows.append((listed.group_id, listed.state, members))
    if as_json:
        print_json([{"group": group, "state": state, "members": count} for group, state, count in rows])
    else:
        cells = [(group, state, "?" if count is None else count) for group, state, count in rows]
        print_lines(aligned(("GROUP", "STATE", "MEMBERS"), cells))
    return gaps.report()


def _seek(connection: AdminConnection, group: str, topics: list[str], to: str, *, as_json: bool) -> int:
    description = describe_group(connection, group)
    if description.members:
        raise BarnabasError(
            f"group {group} has {len(description.members)} members: stop them first, offsets are theirs"
        )
    before = group_offsets(connection, group)
    if topics:
        found = describe_topics(connection, topics)
        partitions = [TopicPartition(topic.name, part.partition) for topic in found for part in topic.partitions]
    else:
        partitions = sorted(before)
    if not partitions:
        raise BarnabasError(
            f"group {group} has no offsets of topics that you have the right to describe: name its topics with --topic"
        )
    wanted = _offsets(connection, partitions, to)
    for partition, code in alter_group_offsets(connection, group, wanted).items():
        if code:
            raise BarnabasError(f"{partition}: {code.message}")
    rows = [(each.topic, each.partition, before.get(each, "-"), wanted[each]) for each in partitions]
    if as_json:
        names = ("topic", "partition", "before", "offset")
        print_json([dict(zip(names, row, strict=True)) for row in rows])
    else:
        print_lines(aligned(("TOPIC", "PARTITION", "BEFORE", "OFFSET"), rows))
    return 0


def _offsets(connection: AdminConnection, partitions: list[TopicPartition], to: str) -> dict[TopicPartition, int]:
    """Each partition's new offset, within its log."""
    first, end = (_found(connection, dict.fromkeys(partitions, spec)) for spec in (EARLIEST, LATEST))
    if to in ("start", "end"):
        return first if to == "start" else end
    if to.isdecimal():
        return {each: min(max(int(to), first[each]), end[each]) for each in partitions}
    time_ms = parse_time_ms(to, datetime.now().astimezone(), "--to")
    found = _found(connection, dict.fromkeys(partitions, time_ms))
    return {each: end[each] if found[each] == _NONE_SO_LATE else found[each] for each in partitions}


def _found(connection: AdminConnection, wanted: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
    offsets = {}
    for partition, outcome in list_offsets(connection, wanted).items():
        if not isinstance(outcome, FoundOffset):
            raise outcome
        offsets[partition] = outcome.offset
    return offsets
