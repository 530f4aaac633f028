"""``barnabas overview``: a cluster at a glance: brokers, topics with what is wrong, groups with their lag."""

import sys
from typing import Any

from barnabas.base.ids import TopicPartition
from barnabas.cli.common import ToolParser, add_connection_options, add_output_option, aligned, connect, print_json
from barnabas.cli.terminal import print_lines, shown
from barnabas.cli.watching import show_repeatedly
from barnabas.client.admin_connection import AdminConnection
from barnabas.client.groups import describe_group, group_offsets, list_groups
from barnabas.client.offsets import EARLIEST, LATEST, FoundOffset, list_offsets
from barnabas.client.topics import TopicDescription, describe_topics

__all__ = ["main"]


def main(argv: list[str]) -> int:
    """Print it once, or again and again with --watch."""
    parser = ToolParser("overview", "Show a cluster at a glance: brokers, topics, groups with their lag.")
    add_connection_options(parser)
    parser.add_argument(
        "--watch", nargs="?", const=2.0, type=float, metavar="S", help="again every S seconds (2 without S)"
    )
    add_output_option(parser)
    given = parser.parse_args(argv)
    parser.require(given, "bootstrap-server")
    with connect(given, "barnabas-overview") as connection:

        def show() -> None:
            found = _look(connection)
            if given.output == "json":
                print_json(found)
            else:
                print_lines(_text(found))

        if given.watch:
            show_repeatedly(show, given.watch)
        show()
    return 0


def _look(connection: AdminConnection) -> dict[str, Any]:
    cluster = connection.describe_cluster(fresh=True)
    topics = [topic for topic in describe_topics(connection) if not topic.is_internal]
    return {
        "cluster_id": cluster.cluster_id,
        "brokers": [
            {
                "id": broker.id,
                "address": f"{broker.host}:{broker.port}",
                "rack": broker.rack,
                "controller": broker.id == cluster.controller_id,
                "leads": sum(part.leader == broker.id for topic in topics for part in topic.partitions),
            }
            for broker in cluster.brokers
        ],
        "topics": _topics(connection, topics),
        "groups": _groups(connection),
    }


def _topics(connection: AdminConnection, topics: list[TopicDescription]) -> list[dict[str, Any]]:
    places = [TopicPartition(topic.name, part.partition) for topic in topics for part in topic.partitions]
    first, last = (list_offsets(connection, dict.fromkeys(places, spec)) for spec in (EARLIEST, LATEST))
    records: dict[str, int] = {}
    for place in places:
        low, high = first.get(place), last.get(place)
        if isinstance(low, FoundOffset) and isinstance(high, FoundOffset):
            records[place.topic] = records.get(place.topic, 0) + high.offset - low.offset
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


def _groups(connection: AdminConnection) -> list[dict[str, Any]]:
    groups = []
    for listed in list_groups(connection):
        description = describe_group(connection, listed.group_id)
        committed = group_offsets(connection, listed.group_id)
        ends = list_offsets(connection, dict.fromkeys(committed, LATEST))
        lag = sum(max(0, end.offset - committed[place]) for place, end in ends.items() if isinstance(end, FoundOffset))
        groups.append(
            {"group": listed.group_id, "state": description.state, "members": len(description.members), "lag": lag}
        )
    return groups


def _text(found: dict[str, Any]) -> str:
    brokers = [
        (each["id"], each["address"], each["rack"] or "-", each["leads"], "controller" if each["controller"] else "")
        for each in found["brokers"]
    ]
    topics = [
        (each["name"], each["partitions"], each["replicas"], each["records"], _wrong(each)) for each in found["topics"]
    ]
    groups = [(each["group"], each["state"], each["members"], each["lag"]) for each in found["groups"]]
    parts = [
        f"cluster {shown(str(found['cluster_id']), sys.stdout)}",
        aligned(("BROKER", "ADDRESS", "RACK", "LEADS", ""), brokers),
    ]
    if topics:
        parts.append(aligned(("TOPIC", "PARTITIONS", "REPLICAS", "RECORDS", "WRONG"), topics))
    if groups:
        parts.append(aligned(("GROUP", "STATE", "MEMBERS", "LAG"), groups))
    return "\n\n".join(parts)


def _wrong(topic: dict[str, Any]) -> str:
    problems = [
        f"{topic[name]} {name.replace('_', ' ')}" for name in ("without_leader", "under_replicated") if topic[name]
    ]
    return ", ".join(problems) or "-"
