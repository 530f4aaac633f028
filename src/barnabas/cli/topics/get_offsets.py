"""``barnabas get-offsets``: offsets of partitions by time, with the options of
Kafka's GetOffsetShell."""

import argparse
import re
from collections.abc import Callable

from barnabas.base.errors import BarnabasError, ConfigError
from barnabas.base.hints import did_you_mean
from barnabas.base.ids import TopicPartition
from barnabas.base.numbers import whole_number
from barnabas.cli.connection.connect import connect
from barnabas.cli.connection.incomplete import Gaps
from barnabas.cli.connection.suggestions import refuse_hidden
from barnabas.cli.options.tool_parser import ToolParser, add_connection_options, add_output_option
from barnabas.cli.output.tables import print_json
from barnabas.cli.output.terminal import print
from barnabas.client.admin.offsets import (
    EARLIEST,
    EARLIEST_LOCAL,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
    FoundOffset,
    offsets_in_part,
)
from barnabas.client.admin.topics import describe_topics
from barnabas.client.cluster.admin_connection import AdminConnection
from barnabas.client.errors import ClientError

__all__ = ["main"]

_TIMES = {
    "latest": LATEST,
    "earliest": EARLIEST,
    "max-timestamp": MAX_TIMESTAMP,
    "earliest-local": EARLIEST_LOCAL,
    "latest-tiered": LATEST_TIERED,
}
_RULE = re.compile(r"([^:,]*)(?::(?:([0-9]*)|(?:([0-9]*)-([0-9]*))))?")
_UNKNOWN_OFFSET = -1

Wanted = Callable[[TopicPartition], bool]


def main(argv: list[str]) -> int:
    """Print ``topic:partition:offset`` lines, by topic and partition."""
    parser = ToolParser("get-offsets", "Print offsets of partitions: the end, the beginning, or by time.")
    add_connection_options(parser)
    add = parser.add_argument
    add("--broker-list", metavar="HOST:PORT[,...]", help="the old name of --bootstrap-server")
    add("--topic", metavar="REGEX", help="only topics whose whole name matches")
    add("--partitions", metavar="0,1,...", help="only these partitions")
    add(
        "--topic-partitions",
        metavar="TOPIC:0,TOPIC:1-3,...",
        help="rules TOPIC:PARTITION, where TOPIC is a regular expression or nothing, and PARTITION a number, FROM-TO "
        "(without TO itself), FROM-, -TO or nothing",
    )
    add("--time", default="latest", help="latest (-1), earliest (-2), max-timestamp (-3), or a timestamp in ms")
    add("--exclude-internal-topics", action="store_true", help="leave the cluster's own topics out")
    add_output_option(parser)
    given = parser.parse_args(argv)
    given.bootstrap_server = given.bootstrap_server or given.broker_list
    parser.require(given, "bootstrap-server")
    if given.topic_partitions and (given.topic or given.partitions):
        parser.error("--topic-partitions cannot be used with --topic or --partitions")
    timestamp = _timestamp(given.time)
    wanted = _rules(given.topic_partitions) if given.topic_partitions else _topic_and_partitions(given)
    with connect(given, "barnabas-get-offsets") as connection:
        return _print_offsets(connection, given, wanted, timestamp)


def _print_offsets(connection: AdminConnection, given: argparse.Namespace, wanted: Wanted, timestamp: int) -> int:
    topics = describe_topics(connection)
    partitions = [
        partition
        for topic in topics
        if not (given.exclude_internal_topics and topic.is_internal)
        for partition in (TopicPartition(topic.name, item.partition) for item in topic.partitions)
        if wanted(partition)
    ]
    if not partitions:
        refuse_hidden(connection, given.topic)
        hint = did_you_mean(given.topic, [topic.name for topic in topics]) if given.topic else ""
        raise BarnabasError(f"Could not match any topic-partitions with the specified filters{hint}")
    outcomes = offsets_in_part(connection, dict.fromkeys(partitions, timestamp), is_last=True)
    gaps = Gaps(connection)
    gaps.add_partitions(outcomes)
    rows = sorted(
        (
            (topic_partition, found)
            for topic_partition, found in outcomes.items()
            if isinstance(found, ClientError) or found.offset != _UNKNOWN_OFFSET
        ),
        key=lambda row: str(row[0]),
    )
    if given.output == "json":
        print_json([_as_json(topic_partition, found) for topic_partition, found in rows])
    else:
        for (topic, number), found in rows:
            if not isinstance(found, ClientError):
                print(f"{topic}:{number}:{found.offset}")
    return gaps.report()


def _as_json(topic_partition: TopicPartition, found: FoundOffset | ClientError) -> dict[str, object]:
    named = {"topic": topic_partition.topic, "partition": topic_partition.partition}
    if isinstance(found, ClientError):
        return {**named, "offset": None, "timestamp": None, "error": str(found)}
    return {**named, "offset": found.offset, "timestamp": found.timestamp_ms}


def _timestamp(text: str) -> int:
    known = _TIMES.get(text)
    if known is not None:
        return known
    try:
        return whole_number(text)
    except ValueError:
        raise ConfigError(
            f"Malformed time argument {text}. Please use -1 or latest / -2 or earliest / -3 or max-timestamp / -4 or "
            "earliest-local / -5 or latest-tiered, or a specified long format timestamp"
        ) from None


def _pattern(text: str, option: str) -> "re.Pattern[str]":
    try:
        return re.compile(text.strip("\"'").replace(",", "|"))
    except re.error as error:
        raise ConfigError(f"{option} {text}: this is not a regular expression ({error})") from error


def _topic_and_partitions(given: argparse.Namespace) -> Wanted:
    pattern = _pattern(given.topic or ".*", "--topic")
    try:
        numbers = {whole_number(part) for part in given.partitions.split(",")} if given.partitions else None
    except ValueError:
        raise ConfigError(
            f"--partitions expects a comma separated list of numeric partition ids, but received: {given.partitions}"
        ) from None
    return lambda topic_partition: (
        bool(pattern.fullmatch(topic_partition.topic)) and (numbers is None or topic_partition.partition in numbers)
    )


def _rules(text: str) -> Wanted:
    rules = [_rule(part) for part in text.split(",")]
    return lambda topic_partition: any(rule(topic_partition) for rule in rules)


def _rule(text: str) -> Wanted:
    match = _RULE.fullmatch(text)
    if match is None:
        raise ConfigError(f"Invalid rule specification: {text}")
    topic, one, first, last = match.groups()
    pattern = _pattern(topic or ".*", "--topic-partitions")
    if one:
        numbers = range(int(one), int(one) + 1)
    else:
        numbers = range(int(first or 0), int(last) if last else 1 << 31)
    return lambda topic_partition: (
        bool(pattern.fullmatch(topic_partition.topic)) and topic_partition.partition in numbers
    )
