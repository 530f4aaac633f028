"""``barnabas verifiable-consumer``: what a member of a group reads and commits.

Kafka's ``VerifiableConsumer``."""

import argparse
from typing import Any

from barnabas.base.ids import TopicPartition
from barnabas.cli.connection.properties import client_properties_file
from barnabas.cli.connection.reachability import require_broker
from barnabas.cli.options.tool_parser import BROKERS_HELP, ToolParser, add_connect_timeout
from barnabas.cli.trials.verifiable_output import StopSignals, print_event
from barnabas.client.consumer.consumer import Consumer
from barnabas.client.errors import ClientError
from barnabas.client.records import Record

__all__ = ["main"]


def main(argv: list[str]) -> int:
    """Read until ``--max-messages`` or SIGTERM (0), or Ctrl-C (130)."""
    parser = _parser()
    given = parser.parse_args(argv)
    if not (given.bootstrap_server or given.broker_list):
        parser.missing("bootstrap-server")
    properties = _properties(given)
    require_broker(properties["bootstrap.servers"], properties, given.connect_timeout, [given.topic])
    stopped = StopSignals()
    print_event("startup_complete")
    count = 0
    with Consumer(properties, deserializer=_text, key_deserializer=_text) as consumer:
        consumer.subscribe(
            [given.topic],
            on_assign=lambda partitions: print_event("partitions_assigned", partitions=_named(partitions)),
            on_revoke=lambda partitions: print_event("partitions_revoked", partitions=_named(partitions)),
        )
        while not stopped.is_set() and not 0 <= given.max_messages <= count:
            wanted = 500 if given.max_messages < 0 else min(500, given.max_messages - count)
            records = consumer.consume(wanted, 0.2)
            if not records:
                continue
            count += len(records)
            _report(records, verbose=given.verbose)
            if not given.enable_autocommit:
                _commit(consumer, records)
    print_event("shutdown_complete")
    return stopped.exit_code


def _text(data: bytes) -> str:
    """As Java's StringDeserializer: bytes that are not UTF-8 do not end the tool."""
    return data.decode(errors="replace")


def _report(records: list[Record[str, str]], *, verbose: bool) -> None:
    by_partition: dict[tuple[str, int], list[int]] = {}
    for record in records:
        by_partition.setdefault((record.topic, record.partition), []).append(record.offset)
        if verbose:
            place = {"topic": record.topic, "partition": record.partition, "offset": record.offset}
            print_event("record_data", key=record.key, value=record.value, **place)
    partitions = [
        {
            "topic": topic,
            "partition": number,
            "count": len(offsets),
            "minOffset": min(offsets),
            "maxOffset": max(offsets),
        }
        for (topic, number), offsets in by_partition.items()
    ]
    print_event("records_consumed", count=len(records), partitions=partitions)


def _commit(consumer: "Consumer[str, str]", records: list[Record[str, str]]) -> None:
    offsets = {TopicPartition(record.topic, record.partition): record.offset + 1 for record in records}
    listed = [
        {**place, "offset": offset} for place, offset in zip(_named(list(offsets)), offsets.values(), strict=True)
    ]
    try:
        consumer.commit(offsets)
        print_event("offsets_committed", offsets=listed, success=True)
    except ClientError as error:
        print_event("offsets_committed", offsets=listed, success=False, error=str(error))


def _named(partitions: list[TopicPartition]) -> list[dict[str, Any]]:
    return [{"topic": topic, "partition": number} for topic, number in partitions]


def _properties(given: argparse.Namespace) -> dict[str, str]:
    properties = client_properties_file(given.consumer_config)
    properties["bootstrap.servers"] = given.bootstrap_server or given.broker_list
    properties["group.id"] = given.group_id
    properties["enable.auto.commit"] = str(given.enable_autocommit).lower()
    properties["auto.offset.reset"] = given.reset_policy
    properties["partition.assignment.strategy"] = given.assignment_strategy
    properties["session.timeout.ms"] = str(given.session_timeout)
    properties.setdefault("allow.auto.create.topics", "true")
    if given.group_instance_id:
        properties["group.instance.id"] = given.group_instance_id
    if given.group_protocol != "classic":
        properties["group.protocol"] = given.group_protocol
        for classic in ("partition.assignment.strategy", "session.timeout.ms"):
            del properties[classic]
    return properties


def _parser() -> ToolParser:
    parser = ToolParser("verifiable-consumer", "Read a topic in a group, and print what happens as JSON.")
    add = parser.add_argument
    add("--bootstrap-server", metavar="HOST:PORT[,...]", help=BROKERS_HELP)
    add("--broker-list", metavar="HOST:PORT[,...]", help="the old name of --bootstrap-server")
    add("--topic", required=True, help="the topic to read")
    add("--group-id", required=True, metavar="ID", help="the group")
    add("--group-instance-id", metavar="ID", help="be a static member of this name")
    add("--group-protocol", default="classic", choices=("classic", "consumer"), help="the group's protocol")
    add("--max-messages", type=int, default=-1, metavar="N", help="stop after this many; -1 for no end")
    add("--session-timeout", type=int, default=30_000, metavar="MS", help="after which a silent member is removed")
    add("--verbose", action="store_true", help="print each record")
    add("--enable-autocommit", action="store_true", help="commit automatically instead of after each batch")
    add(
        "--reset-policy",
        default="earliest",
        choices=("earliest", "latest", "none"),
        help="where to start without an offset",
    )
    add("--assignment-strategy", default="range", metavar="NAME", help="range, roundrobin, or Java's class names")
    add("--consumer.config", "--command-config", dest="consumer_config", metavar="FILE", help="a .properties file")
    add_connect_timeout(parser, waits=True)
    return parser
