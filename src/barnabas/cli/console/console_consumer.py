"""``barnabas console-consumer``: a topic's records on standard output."""

import argparse
import contextlib
import logging
import random
import re
import signal
import sys
import threading
import time
from collections.abc import Iterator
from types import FrameType
from typing import Any, NoReturn

from barnabas.base.errors import BarnabasError, ConfigError
from barnabas.base.ids import TopicPartition
from barnabas.cli.connection.properties import (
    REGISTRY_PROPERTY,
    client_properties_file,
    key_values,
    properties_file,
)
from barnabas.cli.connection.reachability import require_broker
from barnabas.cli.console.formatters import Formatter, formatter
from barnabas.cli.console.registry_values import REGISTRY_HELP, record_reader
from barnabas.cli.options.tool_parser import BROKERS_HELP, ToolParser, add_connect_timeout
from barnabas.cli.output.terminal import print
from barnabas.client.codecs import BYTES
from barnabas.client.consumer.consumer import Consumer
from barnabas.client.errors import DamagedBatchError, TimedOutError
from barnabas.client.properties.translation import OFFSET_RESETS

__all__ = ["main", "record_comes"]

logger = logging.getLogger(__name__)

_BEGINNING = -2  # librdkafka's logical offsets, which are those of ListOffsets too
_END = -1
_TERMINATED = 143
_LEAVE_S = 5.0
_JOIN_S = 60.0
_LOOK_S = 0.1  # how often to look whether there is an assignment
_INTERNAL = "^__consumer_offsets$,^__transaction_state$,^__share_group_state$"


def main(argv: list[str]) -> int:
    """Print until Ctrl-C, ``--max-messages`` or ``--timeout-ms``; then say how many
    were processed."""
    parser = _parser()
    given = parser.parse_args(argv)
    _check(parser, given)
    properties = _properties(parser, given)
    write = _formatter(given, properties.pop(REGISTRY_PROPERTY, None))
    start = None if given.partition is None else _start(parser, given)
    require_broker(given.bootstrap_server, properties, given.connect_timeout, [given.topic])
    consumer = Consumer(properties, deserializer=BYTES, key_deserializer=BYTES)
    pattern = given.include or given.whitelist
    joined = threading.Event()
    if start is not None:
        consumer.assign({TopicPartition(given.topic, given.partition): start})
        joined.set()
    else:
        # The time without records counts from here on, not from before the group's delay.
        consumer.subscribe([given.topic] if given.topic else [_whole(pattern)], on_assign=lambda _: joined.set())
    try:
        return _print_records(given, consumer, write, joined)
    except DamagedBatchError as error:
        from barnabas.cli.connection.damaged_batches import explained  # with all codecs

        raise BarnabasError(explained(error, given.bootstrap_server, properties)) from error


def _print_records(
    given: argparse.Namespace, consumer: Consumer[bytes, bytes], write: Formatter, joined: threading.Event
) -> int:
    output = sys.stdout.buffer
    count = 0
    limit = given.max_messages
    timeout_s = None if given.timeout_ms is None or given.timeout_ms < 0 else given.timeout_ms / 1000
    latest = time.monotonic() + _JOIN_S
    with _terminable(), contextlib.ExitStack() as stack:
        # In this order: leave the group, then report, whatever ended the reading.
        stack.callback(lambda: print(f"Processed a total of {count} messages", file=sys.stderr))
        stack.callback(_leave, consumer)
        while limit < 0 or count < limit:
            if not consumer.has_record:
                output.flush()
                if not record_comes(consumer, timeout_s, joined, latest - time.monotonic()):
                    break
            record = consumer.poll()
            if record is None:
                continue
            count += 1
            try:
                data = write(record)
            except Exception as error:  # the user's formatter or deserializer may raise anything
                if not given.skip_message_on_error:
                    raise BarnabasError(
                        f"{record.topic}-{record.partition} offset {record.offset} cannot be shown: {error}"
                    ) from error
                logger.error("Skipping %s-%d offset %d: %s", record.topic, record.partition, record.offset, error)
                continue
            output.write(data)
        output.flush()
    return 0


def record_comes(
    consumer: Consumer[bytes, bytes], timeout_s: float | None, joined: threading.Event, join_s: float
) -> bool:
    """Whether a record comes in time (None: wait for ever).

    The time counts from the assignment on, or after ``join_s``."""
    while timeout_s is not None and not joined.is_set() and join_s > 0:
        if consumer.wait(_LOOK_S):
            return True
        join_s -= _LOOK_S
    return consumer.wait(timeout_s)


def _leave(consumer: Consumer[bytes, bytes]) -> None:
    """Leave the group; where its coordinator is gone, say so, and end as if it had answered."""
    try:
        consumer.close(_LEAVE_S)
    except TimedOutError as error:
        logger.warning("%s", error)


@contextlib.contextmanager
def _terminable() -> Iterator[None]:
    """SIGTERM ends the consumer as cleanly as Ctrl-C does."""

    def terminate(_: int, __: FrameType | None) -> NoReturn:
        raise SystemExit(_TERMINATED)

    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _whole(pattern: str) -> str:
    """A Java regular expression must match the whole name.

    A comma means "or", as it did for whitelists."""
    return f"^({pattern.strip().replace(',', '|').strip(chr(34) + chr(39))})$"


def _check(parser: ToolParser, given: argparse.Namespace) -> None:
    if not given.bootstrap_server:
        if given.zookeeper:
            parser.error(
                "--zookeeper is gone from Kafka's consumer: give a broker instead, --bootstrap-server HOST:PORT"
            )
        parser.missing("bootstrap-server")
    if bool(given.topic) == bool(given.include or given.whitelist):
        parser.error("Exactly one of --include/--topic is required.")
    if given.include or given.whitelist:
        try:
            re.compile(_whole(given.include or given.whitelist))
        except re.error as error:
            parser.error(f"{given.include or given.whitelist} is not a regular expression: {error}")
    if given.partition is not None:
        if not given.topic:
            parser.error("The topic is required when partition is specified.")
        if given.from_beginning and given.offset is not None:
            parser.error("Options from-beginning and offset cannot be specified together.")
    elif given.offset is not None:
        parser.error("The partition is required when offset is specified.")


def _start(parser: ToolParser, given: argparse.Namespace) -> int:
    if given.offset is None:
        return _BEGINNING if given.from_beginning else _END
    text = given.offset.lower()
    if text in ("earliest", "latest"):
        return _BEGINNING if text == "earliest" else _END
    if not text.isdecimal():
        parser.error(
            f"The provided offset value '{given.offset}' is incorrect. Valid values are 'earliest', 'latest', or a "
            "non-negative long."
        )
    return int(text)


def _properties(parser: ToolParser, given: argparse.Namespace) -> dict[str, Any]:
    from_file = client_properties_file(given.consumer_config, with_registry=True)
    extra = key_values(given.consumer_property, "--consumer-property")
    groups = {source["group.id"] for source in (from_file, extra) if "group.id" in source}
    groups |= {given.group} if given.group else set()
    if len(groups) > 1:
        names = ", ".join(f"'{group}'" for group in sorted(groups))
        parser.error(
            "The group ids provided in different places (directly using '--group', via '--consumer-property', or via "
            f"'--consumer.config') do not match. Detected group ids: {names}"
        )
    if groups and given.partition is not None:
        parser.error("Options group and partition cannot be specified together.")
    properties: dict[str, Any] = {**from_file, **extra, "bootstrap.servers": given.bootstrap_server}
    for ours in ("key.deserializer", "value.deserializer"):
        properties.pop(ours, None)
    reset = properties.setdefault("auto.offset.reset", "earliest" if given.from_beginning else "latest")
    if given.from_beginning and OFFSET_RESETS.get(reset, reset) != "earliest":
        raise ConfigError(
            f"Can't simultaneously specify --from-beginning and 'auto.offset.reset={reset}', please remove one option"
        )
    properties.setdefault("client.id", "console-consumer")
    # A topic that is not there is more often a typing error than a wish, so it is an error
    # with a hint, and not made.
    properties.setdefault("allow.auto.create.topics", "false")
    if given.isolation_level is not None:
        properties["isolation.level"] = given.isolation_level
    properties.setdefault("isolation.level", "read_uncommitted")
    if not given.topic and properties.pop("exclude.internal.topics", "true") == "true":
        # Patterns do not mean the cluster's own topics.
        properties.setdefault("topic.blacklist", _INTERNAL)
    if groups:
        properties["group.id"] = groups.pop()
    else:
        # No consumer uses this group again: its offsets are not worth keeping.
        properties["group.id"] = f"console-consumer-{random.randrange(100_000)}"
        properties.setdefault("enable.auto.commit", "false")
    return properties


def _formatter(given: argparse.Namespace, from_client: str | None) -> Formatter:
    """``from_client`` is the registry that the consumer's properties name."""
    properties = {**properties_file(given.formatter_config), **key_values(given.property, "--property")}
    named = {"key.deserializer": given.key_deserializer, "value.deserializer": given.value_deserializer}
    properties.update({name: value for name, value in named.items() if value})
    registry = given.schema_registry or properties.get(REGISTRY_PROPERTY) or from_client
    properties.pop(REGISTRY_PROPERTY, None)
    made = formatter(given.formatter, properties)
    if not registry:
        return made
    read = record_reader(registry)
    return lambda record: made(read(record))


def _parser() -> ToolParser:
    parser = ToolParser("console-consumer", "Print a topic's records.")
    add = parser.add_argument
    add("--bootstrap-server", metavar="HOST:PORT[,...]", help=BROKERS_HELP)
    add("--zookeeper", metavar="HOST:PORT", help=argparse.SUPPRESS)
    add("--topic", help="the topic to read")
    add("--include", metavar="REGEX", help="read all topics whose whole name matches")
    add("--whitelist", metavar="REGEX", help="the old name of --include")
    add("--group", metavar="ID", help="share the topic with the other members of this consumer group")
    add("--from-beginning", action="store_true", help="start at the first record where the group has no offset yet")
    add("--partition", type=int, metavar="N", help="read this partition only, without a group")
    add("--offset", metavar="N|earliest|latest", help="where to start in the partition (default latest)")
    add("--max-messages", type=int, default=-1, metavar="N", help="stop after this many")
    add("--timeout-ms", type=int, metavar="MS", help="stop when none came for this long")
    add_connect_timeout(parser, has_own_timeout=True, waits=True)
    add("--isolation-level", choices=("read_committed", "read_uncommitted"), help="default read_uncommitted")
    add("--skip-message-on-error", action="store_true", help="continue when a record cannot be shown")
    add(
        "--property",
        "--formatter-property",
        dest="property",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="for the formatter: print.key, print.value, print.timestamp, print.partition, print.offset, "
        "print.epoch, print.headers, key.separator (tab), line.separator, headers.separator (,), null.literal, key.deserializer, "
        "value.deserializer, headers.deserializer",
    )
    add(
        "--formatter",
        default="default",
        metavar="CLASS",
        help="default, logging, noop, json, offsets, groupmetadata, transactionlog, Kafka's class names for them, or a "
        "Python class by dotted path",
    )
    add("--schema-registry", metavar="URL", help=REGISTRY_HELP)
    add("--formatter-config", metavar="FILE", help="a .properties file for the formatter")
    add("--key-deserializer", metavar="CLASS", help="how to read keys, such as long")
    add("--value-deserializer", metavar="CLASS", help="how to read values, such as string")
    # The second names are those of Kafka 4 (KIP-1147).
    add(
        "--consumer-property",
        "--command-property",
        dest="consumer_property",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a property of the consumer",
    )
    add(
        "--consumer.config",
        "--command-config",
        dest="consumer_config",
        metavar="FILE",
        help="a .properties file for the consumer",
    )
    return parser
