"""``barnabas overview``: a cluster at a glance: brokers, topics with what is wrong,
groups with their lag."""

import sys
from collections.abc import Mapping
from typing import Any

from barnabas.base.ids import TopicPartition
from barnabas.cli.connection.connect import connect
from barnabas.cli.connection.incomplete import Gaps, without_deleted
from barnabas.cli.options.tool_parser import ToolParser, add_connection_options, add_output_option, seconds
from barnabas.cli.output.tables import aligned, print_json
from barnabas.cli.output.terminal import escaped_for, print_lines
from barnabas.cli.output.watching import show_repeatedly
from barnabas.client.admin.groups import (
    GroupDescription,
    ask_coordinators,
    describe_group,
    group_offsets,
    groups_in_part,
)
from barnabas.client.admin.offsets import LATEST, FoundOffset, bounds_in_part, offsets_in_part
from barnabas.client.admin.topics import TopicDescription, describe_topics
from barnabas.client.cluster.admin_connection import AdminConnection
from barnabas.client.errors import ClientError, UnknownTopicError

__all__ = ["main"]


def main(argv: list[str]) -> int:
    """Print it once, or again and again with --watch."""
    parser = ToolParser("overview", "Show a cluster at a glance: brokers, topics, groups with their lag.")
    add_connection_options(parser)
    parser.add_argument(
        "--watch", nargs="?", const=2.0, type=seconds, metavar="S", help="again every S seconds (2 without S)"
    )
    add_output_option(parser)
    given = parser.parse_args(argv)
    parser.require(given, "bootstrap-server")
    with connect(given, "barnabas-overview") as connection:

        def show() -> int:
            gaps = Gaps(connection)
            found = _look(connection, gaps)
            if given.output == "json":
                print_json(found)
            else:
                print_lines(_text(found))
            return gaps.report()

        if given.watch:
            show_repeatedly(show, given.watch, connection.restart)
        return show()


def _look(connection: AdminConnection, gaps: Gaps) -> dict[str, Any]:
    all_topics = describe_topics(connection)
    cluster = connection.describe_cluster()
    topics = [topic for topic in all_topics if not topic.is_internal]
    described = _topics(connection, topics, gaps)
    groups = _groups(connection, gaps)
    replicas = {replica for topic in all_topics for part in topic.partitions for replica in part.replicas}
    missing = sorted(replicas - {broker.id for broker in cluster.brokers})
    return {
        "cluster_id": cluster.cluster_id,
        "brokers": [
            {
                "id": broker.id,
                "address": f"{broker.host}:{broker.port}",
                "rack": broker.rack,
                "controller": broker.id == cluster.controller_id,
                "leads": sum(part.leader == broker.id for topic in topics for part in topic.partitions),
                "state": "no answer" if broker.id in connection.unreachable else "up",
            }
            for broker in cluster.brokers
        ]
        + [
            {"id": broker_id, "address": None, "rack": None, "controller": False, "leads": 0, "state": "away"}
            for broker_id in missing
        ],
        "topics": described,
        "groups": groups,
        "errors": gaps.lines,
    }


def _topics(connection: AdminConnection, topics: list[TopicDescription], gaps: Gaps) -> list[dict[str, Any]]:
    partitions = [TopicPartition(topic.name, part.partition) for topic in topics for part in topic.partitions]
    bounds = bounds_in_part(connection, partitions)
    gaps.add_partitions(bounds)
    records: dict[str, int | None] = {}
    for topic_partition, found in bounds.items():
        before = records.get(topic_partition.topic, 0)
        if before is None or isinstance(found, ClientError):
            records[topic_partition.topic] = None
        else:
            first, end = found
            records[topic_partition.topic] = before + end - first
    return [
        {
            "name": topic.name,
            "partitions": len(topic.partitions),
            "replicas": max((len(part.replicas) for part in topic.partitions), default=0),
            "records": records.get(topic.name, 0),
            "without_leader": sum(part.leader is None for part in topic.partitions),
            "under_replicated": sum(len(part.isr) < len(part.replicas) for part in topic.partitions),
        }
        for topic in topics
    ]


def _groups(connection: AdminConnection, gaps: Gaps) -> list[dict[str, Any]]:
    found = groups_in_part(connection)
    gaps.add_group_partitions(found.leaderless)

    def ask(asking: AdminConnection, group_id: str) -> tuple[GroupDescription, dict[TopicPartition, int]]:
        return describe_group(asking, group_id), group_offsets(asking, group_id)

    states = {group.group_id: group.state for group in found.groups}
    answers = ask_coordinators(connection, states, ask, found.coordinators)
    gaps.add_groups(answers)
    asked = [committed for answer in answers.values() if not isinstance(answer, ClientError) for committed in answer[1]]
    ends = offsets_in_part(connection, dict.fromkeys(asked, LATEST), is_last=True)
    gaps.add_partitions(without_deleted(ends))
    groups: list[dict[str, Any]] = []
    for group_id, state in states.items():
        answer = answers[group_id]
        if isinstance(answer, ClientError):
            groups.append({"group": group_id, "state": state or None, "members": None, "lag": None})
        else:
            description, committed = answer
            lag = _lag(committed, ends)
            members = len(description.members)
            groups.append({"group": group_id, "state": description.state, "members": members, "lag": lag})
    return groups


def _lag(committed: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, object]) -> int | None:
    """None where it is not known of each partition. What a deleted topic had counts for nothing."""
    lag = 0
    for topic_partition, offset in committed.items():
        end = ends[topic_partition]
        if isinstance(end, FoundOffset):
            lag += max(0, end.offset - offset)
        elif not isinstance(end, UnknownTopicError):
            return None
    return lag


def _text(found: dict[str, Any]) -> str:
    brokers = [
        (each["id"], each["address"] or "-", each["rack"] or "-", each["leads"], _standing(each))
        for each in found["brokers"]
    ]
    topics = [
        (each["name"], each["partitions"], each["replicas"], _known(each["records"]), _wrong(each))
        for each in found["topics"]
    ]
    groups = [
        (each["group"], *(_known(each[name]) for name in ("state", "members", "lag"))) for each in found["groups"]
    ]
    parts = [
        f"cluster {escaped_for(str(found['cluster_id']), sys.stdout)}",
        aligned(("BROKER", "ADDRESS", "RACK", "LEADS", ""), brokers),
    ]
    if topics:
        parts.append(aligned(("TOPIC", "PARTITIONS", "REPLICAS", "RECORDS", "WRONG"), topics))
    if groups:
        parts.append(aligned(("GROUP", "STATE", "MEMBERS", "LAG"), groups))
    return "\n\n".join(parts)


def _known(value: object) -> object:
    return "?" if value is None else value


def _standing(broker: dict[str, Any]) -> str:
    words = ["controller"] if broker["controller"] else []
    return ", ".join(words if broker["state"] == "up" else [*words, broker["state"]])


def _wrong(topic: dict[str, Any]) -> str:
    problems = [
        f"{topic[name]} {name.replace('_', ' ')}" for name in ("without_leader", "under_replicated") if topic[name]
    ]
    return ", ".join(problems) or "-"
