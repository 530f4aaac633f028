"""``barnabas topics``: create, list, describe, alter and delete topics, with the options
of Kafka's TopicCommand."""

import argparse
import re
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from barnabas.base.errors import BarnabasError, ConfigError
from barnabas.base.hints import did_you_mean
from barnabas.base.ids import ZERO_UUID, TopicPartition, uuid_from_text, uuid_text
from barnabas.base.numbers import whole_number
from barnabas.cli.connection.connect import connect
from barnabas.cli.connection.incomplete import Gaps
from barnabas.cli.connection.properties import key_values
from barnabas.cli.connection.suggestions import refuse_hidden, with_suggestion
from barnabas.cli.options.tool_parser import ToolParser, add_connection_options, add_output_option
from barnabas.cli.output.colours import print_warning
from barnabas.cli.output.tables import print_json
from barnabas.cli.output.terminal import print
from barnabas.client.admin.configurations import ConfigEntry, Resource, ResourceType, describe_configs
from barnabas.client.admin.reassignments import Reassignment, list_reassignments
from barnabas.client.admin.topics import (
    EligibleLeaders,
    PartitionDescription,
    TopicDescription,
    create_partitions,
    create_topic,
    delete_topics,
    describe_topics,
    eligible_leaders,
)
from barnabas.client.cluster.admin_connection import AdminConnection
from barnabas.client.cluster.each_broker import ask_in_part
from barnabas.client.errors import ClientError
from barnabas.wire.kafka.errors import ErrorCode, KafkaError

__all__ = ["main"]

_ACTIONS = ("create", "list", "describe", "alter", "delete")
_REPORTS = (
    "under-replicated-partitions",
    "unavailable-partitions",
    "under-min-isr-partitions",
    "at-min-isr-partitions",
)
_MAX_REPLICATION_FACTOR = 32767


def main(argv: list[str]) -> int:
    """Do what exactly one of ``--create --list --describe --alter --delete`` says."""
    parser = _parser()
    given = parser.parse_args(argv)
    _check(parser, given)
    with connect(given, "barnabas-topics") as connection:
        try:
            if given.create:
                _create(connection, given)
            elif given.list:
                _list(connection, given)
            elif given.describe:
                return _describe(connection, given)
            elif given.alter:
                _alter(connection, given)
            else:
                _delete(connection, given)
        except KafkaError as error:
            raise with_suggestion(error, connection) from error
    return 0


def _check(parser: ToolParser, given: argparse.Namespace) -> None:
    if sum(getattr(given, action) for action in _ACTIONS) != 1:
        parser.error("Command must include exactly one action: --list, --describe, --create, --alter or --delete")
    if given.zookeeper is not None:
        parser.error("--zookeeper is gone from Kafka's tools since 3.0: name a broker, --bootstrap-server HOST:PORT")
    parser.require(given, "bootstrap-server")
    if not given.list and not given.describe:
        parser.require(given, "topic")
    if given.describe and given.if_exists and not given.topic and not given.topic_id:
        parser.error("--topic or --topic-id is required to describe a topic")
    if given.alter:
        if given.config:
            parser.error("--config cannot be changed with --alter here: use barnabas configs --alter --add-config")
        parser.require(given, "partitions")
    allowed = {
        "config": ("create",),
        "partitions": ("create", "alter"),
        "replication-factor": ("create",),
        "replica-assignment": ("create", "alter"),
        "if-not-exists": ("create",),
        "if-exists": ("alter", "delete", "describe"),
        "exclude-internal": ("list", "describe"),
        "topics-with-overrides": ("describe",),
        **dict.fromkeys(_REPORTS, ("describe",)),
    }
    for option, actions in allowed.items():
        parser.refuse_together(given, option, [action for action in _ACTIONS if action not in actions])
    if given.create:
        parser.refuse_together(given, "replica-assignment", ["partitions", "replication-factor"])
    for report in _REPORTS:
        parser.refuse_together(given, report, ["topics-with-overrides", *_REPORTS])


def _matching(connection: AdminConnection, given: argparse.Namespace) -> list[TopicDescription]:
    """Topics whose whole name matches ``--topic``, a regular expression in which a
    comma means "or"."""
    found = describe_topics(connection)
    if given.exclude_internal:
        found = [topic for topic in found if not topic.is_internal]
    if not given.topic:
        return found
    text = given.topic.strip().strip("\"'").replace(",", "|").replace(" ", "")
    try:
        pattern = re.compile(text)
    except re.error as error:
        raise ConfigError(f"--topic {given.topic}: this is not a regular expression ({error})") from error
    return [topic for topic in found if pattern.fullmatch(topic.name)]


def _existing(connection: AdminConnection, given: argparse.Namespace) -> list[TopicDescription]:
    found = _matching(connection, given)
    if given.topic and not found and not given.if_exists:
        refuse_hidden(connection, given.topic)
        hint = did_you_mean(given.topic, [topic.name for topic in describe_topics(connection)])
        raise BarnabasError(f"Topic '{given.topic}' does not exist as expected{hint}")
    return found


# Create, alter, delete, list


def _create(connection: AdminConnection, given: argparse.Namespace) -> None:
    name = given.topic
    if "." in name or "_" in name:
        text = (
            "Due to limitations in metric names, topics with a period ('.') or underscore ('_') could collide. To avoid "
            "issues it is best to use either, but not both."
        )
        print_warning(text, label="WARNING")
    if given.replication_factor is not None and not 1 <= given.replication_factor <= _MAX_REPLICATION_FACTOR:
        raise ConfigError(f"The replication factor must be between 1 and {_MAX_REPLICATION_FACTOR} inclusive")
    if given.partitions is not None and given.partitions < 1:
        raise ConfigError("The partitions must be greater than 0")
    configs = {key: value.strip() for key, value in key_values(given.config, "--config").items()}
    try:
        create_topic(
            connection,
            name,
            partitions=given.partitions or -1,
            replication_factor=given.replication_factor or -1,
            assignment=_assignment(given.replica_assignment),
            configs=configs,
        )
    except KafkaError as error:
        if error.code is ErrorCode.TOPIC_ALREADY_EXISTS and given.if_not_exists:
            return
        raise
    print(f"Created topic {name}.")


def _assignment(text: str | None) -> list[list[int]]:
    """``0:1,1:2``: the replicas of each partition, in order."""
    if not text:
        return []
    partitions: list[list[int]] = []
    for number, part in enumerate(text.split(",")):
        try:
            replicas = [whole_number(broker) for broker in part.split(":")]
        except ValueError:
            raise ConfigError(f"--replica-assignment {text}: broker ids are expected, such as 0:1,1:2") from None
        if len(set(replicas)) < len(replicas):
            raise ConfigError(f"Partition replica lists may not contain duplicate entries: {part}")
        if partitions and len(replicas) != len(partitions[0]):
            raise ConfigError(f"Partition {number} has different replication factor: {part}")
        partitions.append(replicas)
    return partitions


def _alter(connection: AdminConnection, given: argparse.Namespace) -> None:
    found = _existing(connection, given)
    if not found:
        return
    assignment = _assignment(given.replica_assignment)
    counts = {topic.name: given.partitions for topic in found}
    new = {topic.name: assignment[len(topic.partitions) :] for topic in found} if assignment else None
    create_partitions(connection, counts, new)


def _delete(connection: AdminConnection, given: argparse.Namespace) -> None:
    found = _existing(connection, given)
    if found:
        delete_topics(connection, [topic.name for topic in found])


def _list(connection: AdminConnection, given: argparse.Namespace) -> None:
    names = [topic.name for topic in _matching(connection, given)]
    if given.output == "json":
        print_json(names)
    else:
        print(*names, sep="\n")


# Describe


def _describe(connection: AdminConnection, given: argparse.Namespace) -> int:
    gaps = Gaps(connection)
    found = _by_id(connection, given) if given.topic_id else _existing(connection, given)
    configs = _configs(connection, given, found, gaps)
    reassignments = _reassignments(connection, gaps)
    limit = given.partition_size_limit_per_response
    elrs = eligible_leaders(connection, [topic.name for topic in found], limit)
    live = {broker.id for broker in connection.describe_cluster().brokers}
    described = []
    for topic in found:
        overrides = None if configs is None else [entry for entry in configs[topic.name] if not entry.is_default]
        if given.topics_with_overrides and not overrides:
            continue
        partitions = [
            partition
            for partition in topic.partitions
            if _is_wanted(
                given,
                partition,
                configs[topic.name] if configs is not None else [],
                live,
                reassignments.get(TopicPartition(topic.name, partition.partition)),
            )
        ]
        described.append((topic, overrides, partitions))
    if given.output == "json":
        print_json([_as_json(*item, reassignments, elrs) for item in described])
        return gaps.report()
    reports_only = any(getattr(given, report.replace("-", "_")) for report in _REPORTS)
    for topic, overrides, partitions in described:
        if not reports_only:
            print(*_topic_fields(topic, overrides, reassignments), sep="\t")
        if not given.topics_with_overrides:
            for partition in partitions:
                topic_partition = TopicPartition(topic.name, partition.partition)
                fields = _partition_fields(
                    topic.name, partition, reassignments.get(topic_partition), elrs.get(topic_partition)
                )
                print("", *fields, sep="\t")
    return gaps.report()


def _configs(
    connection: AdminConnection, given: argparse.Namespace, topics: Iterable[TopicDescription], gaps: Gaps
) -> dict[str, list[ConfigEntry]] | None:
    """The properties of each topic; None while no broker can say, where nothing depends on them."""
    resources = [Resource(ResourceType.TOPIC, topic.name) for topic in topics]
    found = ask_in_part(connection, lambda asking: describe_configs(asking, resources))
    if not isinstance(found, ClientError):
        return {resource.name: entries for resource, entries in found.items()}
    if given.topics_with_overrides or given.under_min_isr_partitions or given.at_min_isr_partitions:
        raise found
    gaps.add(f"the topics' configurations: {found}")
    return None


def _reassignments(connection: AdminConnection, gaps: Gaps) -> dict[TopicPartition, Reassignment]:
    """As in Kafka's tool, topics are described without them where brokers cannot or
    may not return them."""
    try:
        found = ask_in_part(connection, list_reassignments)
    except KafkaError as error:
        if error.code in (ErrorCode.UNSUPPORTED_VERSION, ErrorCode.CLUSTER_AUTHORIZATION_FAILED):
            return {}
        raise
    if isinstance(found, ClientError):
        gaps.add(f"what is being reassigned, which the controller knows: {found}")
        return {}
    return found


def _by_id(connection: AdminConnection, given: argparse.Namespace) -> list[TopicDescription]:
    if given.topic:
        print("Only topic id will be used when both --topic and --topic-id are specified", file=sys.stderr)
    wanted = uuid_from_text(given.topic_id)
    found = [topic for topic in describe_topics(connection) if topic.topic_id == wanted]
    if not found and not given.if_exists:
        raise BarnabasError(f"TopicId '{given.topic_id}' does not exist as expected")
    return found


def _is_wanted(
    given: argparse.Namespace,
    partition: PartitionDescription,
    configs: Iterable[ConfigEntry],
    live: set[int],
    reassignment: Reassignment | None,
) -> bool:
    """Whether the reports that were asked for show this partition.

    Without any report all are shown."""
    isr = len(partition.isr)
    if given.under_replicated_partitions:
        return _replication_factor(partition, reassignment) > isr
    if given.unavailable_partitions:
        return partition.leader is None or partition.leader not in live
    if given.under_min_isr_partitions:
        return partition.leader is None or isr < _min_isr(configs)
    if given.at_min_isr_partitions:
        return isr == _min_isr(configs)
    return True


def _min_isr(configs: Iterable[ConfigEntry]) -> int:
    return next((entry.number(1) for entry in configs if entry.name == "min.insync.replicas"), 1)


def _replication_factor(partition: PartitionDescription, reassignment: Reassignment | None) -> int:
    """Replicas without those that a reassignment is adding."""
    if reassignment is None:
        return len(partition.replicas)
    return len(reassignment.replicas) - len(reassignment.adding)


def _topic_fields(
    topic: TopicDescription,
    overrides: Iterable[ConfigEntry] | None,
    reassignments: Mapping[TopicPartition, Reassignment],
) -> list[str]:
    first = topic.partitions[0] if topic.partitions else None
    factor = _replication_factor(first, reassignments.get(TopicPartition(topic.name, first.partition))) if first else 0
    configs = "?" if overrides is None else ",".join(f"{entry.name}={entry.value}" for entry in overrides)
    topic_id = [] if topic.topic_id == ZERO_UUID else [f"TopicId: {uuid_text(topic.topic_id)}"]
    return [
        f"Topic: {topic.name}",
        *topic_id,
        f"PartitionCount: {len(topic.partitions)}",
        f"ReplicationFactor: {factor}",
        f"Configs: {configs}",
    ]


def _partition_fields(
    topic: str,
    partition: PartitionDescription,
    reassignment: Reassignment | None,
    eligible: EligibleLeaders | None,
) -> list[str]:
    leader = "none" if partition.leader is None else partition.leader
    elr, last_known = ("N/A", "N/A") if eligible is None else map(_ids, eligible)
    moving = []
    if reassignment is not None:
        moving = [f"Adding Replicas: {_ids(reassignment.adding)}", f"Removing Replicas: {_ids(reassignment.removing)}"]
    return [
        f"Topic: {topic}",
        f"Partition: {partition.partition}",
        f"Leader: {leader}",
        f"Replicas: {_ids(partition.replicas)}",
        f"Isr: {_ids(partition.isr)}",
        *moving,
        f"Elr: {elr}",
        f"LastKnownElr: {last_known}",
    ]


def _ids(brokers: Iterable[int]) -> str:
    return ",".join(map(str, brokers))


def _as_json(
    topic: TopicDescription,
    overrides: Iterable[ConfigEntry] | None,
    partitions: Iterable[PartitionDescription],
    reassignments: Mapping[TopicPartition, Reassignment],
    elrs: Mapping[TopicPartition, EligibleLeaders],
) -> dict[str, Any]:
    first = topic.partitions[0] if topic.partitions else None
    described = []
    for partition in partitions:
        topic_partition = TopicPartition(topic.name, partition.partition)
        entry: dict[str, Any] = {
            "partition": partition.partition,
            "leader": partition.leader,
            "leader_epoch": partition.leader_epoch,
            "replicas": partition.replicas,
            "isr": partition.isr,
            "offline": partition.offline,
        }
        reassignment = reassignments.get(topic_partition)
        if reassignment is not None:
            entry["adding"], entry["removing"] = reassignment.adding, reassignment.removing
        if topic_partition in elrs:
            entry["elr"], entry["last_known_elr"] = elrs[topic_partition]
        described.append(entry)
    return {
        "topic": topic.name,
        "topic_id": uuid_text(topic.topic_id),
        "partition_count": len(topic.partitions),
        "replication_factor": _replication_factor(first, reassignments.get(TopicPartition(topic.name, first.partition)))
        if first
        else 0,
        "configs": None if overrides is None else {entry.name: entry.value for entry in overrides},
        "partitions": described,
    }


def _at_least_one(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a number above 0")
    return int(text)


def _parser() -> ToolParser:
    parser = ToolParser("topics", "Create, delete, describe, or change topics.")
    add = parser.add_argument
    add_connection_options(parser)
    add("--zookeeper", metavar="HOST:PORT", help=argparse.SUPPRESS)
    add("--create", action="store_true", help="create a topic")
    add("--list", action="store_true", help="list topics")
    add("--describe", action="store_true", help="show topics with their partitions, leaders and replicas")
    add("--alter", action="store_true", help="add partitions to topics")
    add("--delete", action="store_true", help="delete topics with their records")
    add("--topic", metavar="NAME", help="the topic; a regular expression except with --create")
    add("--topic-id", metavar="ID", help="the id of the topic to describe")
    add("--partitions", type=int, metavar="N", help="how many partitions (default: the cluster's num.partitions)")
    add("--replication-factor", type=int, metavar="N", help="replicas of each partition (default: the cluster's)")
    add("--replica-assignment", metavar="0:1,1:2", help="the brokers of each partition, such as 0:1 for two replicas")
    add("--config", action="append", default=[], metavar="NAME=VALUE", help="a topic property; may be repeated")
    add("--if-not-exists", action="store_true", help="create only when there is none yet; no error otherwise")
    add("--if-exists", action="store_true", help="no error when the topic is not there")
    add("--exclude-internal", action="store_true", help="leave the cluster's own topics out")
    add("--topics-with-overrides", action="store_true", help="only topics with properties of their own")
    add("--under-replicated-partitions", action="store_true", help="only partitions with too few in-sync replicas")
    add("--unavailable-partitions", action="store_true", help="only partitions without a live leader")
    add("--under-min-isr-partitions", action="store_true", help="only partitions below min.insync.replicas")
    add("--at-min-isr-partitions", action="store_true", help="only partitions exactly at min.insync.replicas")
    add(
        "--partition-size-limit-per-response",
        type=_at_least_one,
        default=2000,
        metavar="N",
        help="with --describe: how many partitions one response about eligible leaders holds at most",
    )
    add_output_option(parser)
    return parser
