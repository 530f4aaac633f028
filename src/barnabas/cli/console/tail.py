"""``barnabas tail``: the last records of a topic, and those that come."""

import argparse
import re
import sys
import time
from collections.abc import Mapping
from datetime import datetime

from barnabas.base.errors import ConfigError
from barnabas.base.ids import TopicPartition
from barnabas.cli.connection.properties import REGISTRY_PROPERTY, client_properties_file
from barnabas.cli.connection.reachability import LIBRDKAFKA_S, bounds_of, existing_partitions, require_broker
from barnabas.cli.console.registry_values import REGISTRY_HELP, record_reader
from barnabas.cli.options.times import parse_time_ms
from barnabas.cli.options.tool_parser import BROKERS_HELP, ToolParser, add_connect_timeout
from barnabas.cli.output.readable import json_line, record_text
from barnabas.cli.output.standard_streams import in_blocks
from barnabas.cli.output.terminal import print_document, print_lines
from barnabas.client.admin.offsets import LATEST
from barnabas.client.codecs import BYTES
from barnabas.client.consumer.consumer import Consumer
from barnabas.client.network.deadline import Deadline
from barnabas.client.records import Record

__all__ = ["main"]

_QUIET_S = 0.3


def main(argv: list[str]) -> int:
    """Print until Ctrl-C, or with --no-follow until the end of the topic."""
    parser = _parser()
    given = parser.parse_args(argv)
    parser.require(given, "bootstrap-server")
    properties = {
        **client_properties_file(given.command_config, with_registry=True),
        "bootstrap.servers": given.bootstrap_server,
    }
    registry = properties.pop(REGISTRY_PROPERTY, None)
    read = record_reader(given.schema_registry or registry)
    deadline = Deadline(given.connect_timeout)
    require_broker(properties["bootstrap.servers"], properties, deadline.left_s())
    pattern = None
    if given.filter:
        try:
            pattern = re.compile(given.filter.encode())
        except re.error as error:
            raise ConfigError(f"--filter {given.filter}: this is not a regular expression ({error})") from None
    pretty = sys.stdout.isatty()

    def show(record: Record[bytes, bytes]) -> None:
        if given.output == "json":
            print_document(json_line(record))
        else:
            print_lines(record_text(record, pretty=pretty))

    with Consumer(properties, deserializer=BYTES, key_deserializer=BYTES) as consumer:
        partitions = existing_partitions(consumer, properties, given.topic, given.partition, deadline)
        since_ms = None if given.since is None else parse_time_ms(given.since, datetime.now().astimezone(), "--since")
        ends, code = bounds_of(
            consumer, properties, partitions, deadline, waits=not given.no_follow, is_last=since_ms is None
        )
        # A partition that cannot be read now is read from its end on when it can.
        later = {} if given.no_follow else dict.fromkeys(set(partitions) - ends.keys(), LATEST)
        starts = _starts(consumer, ends, since_ms, given.last, deadline.left_s(at_least=LIBRDKAFKA_S))
        consumer.assign({**starts, **later})
        history = _history(consumer, {topic_partition: end for topic_partition, (_, end) in ends.items()})
        shown = [record for record in map(read, history) if _matches(record, pattern)]
        if since_ms is None:
            shown = shown[-given.last :] if given.last else []
        while True:
            with in_blocks():
                for record in shown:
                    show(record)
            if given.no_follow:
                break
            shown = [record for record in map(read, consumer.consume(500, 0.5)) if _matches(record, pattern)]
    return code


def _starts(
    consumer: "Consumer[bytes, bytes]",
    ends: Mapping[TopicPartition, tuple[int, int]],
    since_ms: int | None,
    last: int,
    timeout_s: float,
) -> dict[TopicPartition, int]:
    """Where to read from: enough of each partition for the last records of all."""
    if since_ms is None:
        return {topic_partition: max(first, end - last) for topic_partition, (first, end) in ends.items()}
    found = consumer.offsets_for_times(dict.fromkeys(ends, since_ms), timeout_s)
    return {
        topic_partition: ends[topic_partition][1] if offset is None else offset
        for topic_partition, offset in found.items()
    }


def _history(consumer: "Consumer[bytes, bytes]", ends: dict[TopicPartition, int]) -> list[Record[bytes, bytes]]:
    """The records before the ends, by time.

    Control records and compacted ones have no record: a pause ends it too."""
    records: list[Record[bytes, bytes]] = []
    began = time.monotonic()
    missing = {topic_partition for topic_partition, end in ends.items() if end > 0}
    while missing:
        batch = consumer.consume(500, _QUIET_S if records or time.monotonic() - began > 5 else 1.0)
        if not batch and (records or time.monotonic() - began > 5):
            break
        records += [record for record in batch if record.offset < ends.get(_topic_partition(record), record.offset + 1)]
        at = consumer.position(missing)
        missing = {topic_partition for topic_partition in missing if (at[topic_partition] or 0) < ends[topic_partition]}
        if not batch and not missing:
            break
    return sorted(records, key=lambda record: (record.timestamp_ms or 0, record.partition, record.offset))


def _topic_partition(record: Record[bytes, bytes]) -> TopicPartition:
    return TopicPartition(record.topic, record.partition)


def _matches(record: Record[bytes, bytes], pattern: "re.Pattern[bytes] | None") -> bool:
    if pattern is None:
        return True
    return any(part is not None and pattern.search(part) is not None for part in (record.key, record.value))


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text} is not a number of records")
    return int(text)


def _parser() -> ToolParser:
    parser = ToolParser("tail", "Show the last records of a topic, and those that come.")
    add = parser.add_argument
    add("topic", help="the topic")
    add("--bootstrap-server", metavar="HOST:PORT[,...]", help=BROKERS_HELP)
    add("--command-config", metavar="FILE", help="a .properties file for the connection")
    add("--last", type=_count, default=10, metavar="N", help="how many to begin with")
    add("--since", metavar="TIME", help="begin there instead: 10:00, 15m (ago), 2026-11-22T10:00")
    add("--filter", metavar="REGEX", help="only records whose key or value has a match")
    add("--partition", type=int, metavar="N", help="only this partition")
    add("--no-follow", action="store_true", help="end at the end of the topic")
    add("--schema-registry", metavar="URL", help=REGISTRY_HELP)
    add("--output", choices=("text", "json"), default="text", help="lines for people, or a JSON document in each line")
    add_connect_timeout(parser, waits=True)
    return parser
