"""``barnabas cat``: records to and from a topic in the manner of kcat, with its
options' letters."""

import argparse
import itertools
import os
import re
import sys
from collections.abc import Callable, Iterator

from barnabas.base.errors import ConfigError
from barnabas.base.ids import TopicPartition
from barnabas.cli.connection.properties import (
    REGISTRY_PROPERTY,
    client_properties_file,
    key_values,
    named_values,
)
from barnabas.cli.connection.reachability import bounds_of, existing_partitions, require_broker, topics_of
from barnabas.cli.console.registry_values import REGISTRY_HELP, record_reader
from barnabas.cli.options.tool_parser import BROKERS_HELP, ToolParser, add_connect_timeout
from barnabas.cli.output.readable import json_line
from barnabas.cli.output.terminal import escaped_bytes_for, print
from barnabas.client.admin.offsets import EARLIEST, LATEST
from barnabas.client.codecs import BYTES
from barnabas.client.consumer.consumer import Consumer
from barnabas.client.network.deadline import Deadline
from barnabas.client.producer.producer import Producer
from barnabas.client.records import Record

__all__ = ["main"]

_TOKEN = re.compile(rb"%([sSkKhtpoT%])")


def main(argv: list[str]) -> int:
    """Produce (-P), consume (-C) or list (-L)."""
    parser = _parser()
    given = parser.parse_args(argv)
    properties = {**client_properties_file(given.command_config, with_registry=True), **key_values(given.X, "-X")}
    servers = (
        given.bootstrap_server or properties.pop("metadata.broker.list", None) or properties.get("bootstrap.servers")
    )
    if not servers:
        parser.missing("bootstrap-server")
    properties["bootstrap.servers"] = servers
    registry = properties.pop(REGISTRY_PROPERTY, None)
    deadline = Deadline(given.connect_timeout)
    produces = given.P or (not given.C and not given.G and not sys.stdin.isatty())
    # A reader of partitions looks at the topic itself.
    waits_for = [given.topic] if produces or given.G else []
    require_broker(properties["bootstrap.servers"], properties, deadline.left_s(), waits_for)
    if given.L:
        return _list(properties, deadline)
    if not given.topic:
        parser.error("a topic is expected: -t TOPIC")
    if produces:
        return _produce(given, properties)
    read, write = record_reader(given.r or registry), _writer(given)
    return _consume(given, properties, deadline, lambda record: write(read(record)))


def _list(properties: dict[str, str], deadline: Deadline) -> int:
    with Consumer(properties) as consumer:
        for topic, count in topics_of(consumer, deadline).items():
            print(f'topic "{topic}" with {count} partitions')
    return 0


def _produce(given: argparse.Namespace, properties: dict[str, str]) -> int:
    separator = None if given.K is None else _plain(given.K)
    headers = [(name, value.encode()) for name, value in named_values(given.H, "-H")]
    with Producer(properties, serializer=BYTES, key_serializer=BYTES) as producer:
        for part in itertools.islice(_parts(_plain(given.D)), given.c):
            key, value = None if given.k is None else given.k.encode(), part
            if separator is not None and separator in part:
                key, _, value = part.partition(separator)
            null = given.Z and not value
            producer.send(given.topic, None if null else value, key, partition=given.p, headers=headers)
    return 0


def _parts(delimiter: bytes) -> Iterator[bytes]:
    """The text between delimiters in standard input, as it comes."""
    if delimiter == b"\n":
        for line in sys.stdin.buffer:
            yield line.removesuffix(b"\n")
        return
    rest = b""
    while data := os.read(sys.stdin.fileno(), 65_536):
        *whole, rest = (rest + data).split(delimiter)
        yield from whole
    if rest:
        yield rest


def _consume(
    given: argparse.Namespace,
    properties: dict[str, str],
    deadline: Deadline,
    write: Callable[[Record[bytes, bytes]], bytes],
) -> int:
    code = 0
    if given.G:
        properties |= {"group.id": given.G, "auto.offset.reset": "earliest"}
    # The end of a partition may be a marker, which is no record.
    properties |= {"enable.partition.eof": "true"}
    with Consumer(properties, deserializer=BYTES, key_deserializer=BYTES) as consumer:
        ends: dict[TopicPartition, int] = {}
        if given.G:
            consumer.subscribe([given.topic])
        else:
            partitions = existing_partitions(consumer, properties, given.topic, given.p, deadline)
            marks, code = bounds_of(consumer, properties, partitions, deadline, waits=not given.e, is_last=True)
            starts = {topic_partition: _start(given.o, *mark) for topic_partition, mark in marks.items()}
            ends = {
                topic_partition: end for topic_partition, (_, end) in marks.items() if starts[topic_partition] < end
            }
            later = () if given.e else set(partitions) - marks.keys()
            consumer.assign({**starts, **dict.fromkeys(later, _start_unseen(given.o))})
        written = 0
        while given.c is None or written < given.c:
            if given.e and not given.G and not ends:
                break
            records = consumer.consume(500 if given.c is None else min(500, given.c - written), 0.5)
            for record in records:
                sys.stdout.buffer.write(write(record))
            sys.stdout.buffer.flush()
            written += len(records)
            at = consumer.position(ends)
            ends = {topic_partition: end for topic_partition, end in ends.items() if (at[topic_partition] or 0) < end}
    return code


def _start(text: str, first: int, end: int) -> int:
    if text in ("beginning", "earliest"):
        return first
    if text in ("end", "latest"):
        return end
    if not re.fullmatch("-?[0-9]+", text):
        raise ConfigError(f"-o {text}: beginning, end, an offset, or -N for the last N are expected")
    offset = int(text)
    return max(first, end + offset) if offset < 0 else offset


def _start_unseen(text: str) -> int:
    """The same for a partition whose first offset and end are not known yet: its first
    record, its end, or an offset."""
    if text in ("beginning", "earliest"):
        return EARLIEST
    return int(text) if text.isdecimal() else LATEST


def _writer(given: argparse.Namespace) -> Callable[[Record[bytes, bytes]], bytes]:
    if given.J:
        return lambda record: json_line(record).encode() + b"\n"
    if given.f is None:
        delimiter = _plain(given.D)
        separator = None if given.K is None else _plain(given.K)
        if separator is None:
            return lambda record: (record.value or b"") + delimiter
        return lambda record: (
            escaped_bytes_for(record.key or b"", sys.stdout) + separator + (record.value or b"") + delimiter
        )
    form = _plain(given.f)

    def write(record: Record[bytes, bytes]) -> bytes:
        fields = {
            b"s": record.value or b"",
            b"S": b"%d" % (-1 if record.value is None else len(record.value)),
            b"k": escaped_bytes_for(record.key or b"", sys.stdout),
            b"K": b"%d" % (-1 if record.key is None else len(record.key)),
            b"h": b",".join(
                escaped_bytes_for(name.encode() + b"=" + (b"NULL" if value is None else value), sys.stdout)
                for name, value in record.headers
            ),
            b"t": record.topic.encode(),
            b"p": b"%d" % record.partition,
            b"o": b"%d" % record.offset,
            b"T": b"%d" % (-1 if record.timestamp_ms is None else record.timestamp_ms),
            b"%": b"%",
        }
        return _TOKEN.sub(lambda match: fields[match[1]], form)

    return write


_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "0": "\0", "\\": "\\"}


def _plain(text: str) -> bytes:
    """The text with its escapes (``\\n``, ``\\t``, ``\\x1f``) as bytes."""

    def replaced(match: "re.Match[str]") -> str:
        return _ESCAPES.get(match[1]) or chr(int(match[1][1:], 16))

    return re.sub(r"\\(n|r|t|0|\\|x[0-9a-fA-F]{2})", replaced, text).encode()


def _parser() -> ToolParser:
    parser = ToolParser("cat", "Copy standard input to a topic, or a topic to standard output, in the manner of kcat.")
    add = parser.add_argument
    add(
        "-b",
        "--bootstrap-server",
        metavar="HOST:PORT[,...]",
        help=BROKERS_HELP,
    )
    add("-t", "--topic", metavar="TOPIC", help="the topic")
    add(
        "-P",
        action="store_true",
        help="produce: each line is a record (default where standard input is not a terminal)",
    )
    add("-C", action="store_true", help="consume (default on a terminal)")
    add("-L", action="store_true", help="list the topics")
    add("-G", metavar="GROUP", help="consume as a member of this group")
    add("-p", type=int, metavar="N", help="this partition")
    add("-o", default="beginning", metavar="OFFSET", help="beginning, end, an offset, or -N for the last N")
    add("-e", action="store_true", help="consume: end at the end of the topic")
    add("-c", type=int, metavar="N", help="end after N records")
    add("-k", metavar="KEY", help="produce: the key of all records")
    add("-K", metavar="DELIMITER", help="separator of key and value")
    add("-D", default="\\n", metavar="DELIMITER", help="separator of records")
    add("-H", action="append", default=[], metavar="NAME=VALUE", help="produce: a header of all records")
    add("-Z", action="store_true", help="produce: empty values are null")
    add(
        "-f",
        metavar="FORMAT",
        help="consume: %%s value, %%k key, %%t topic, %%p partition, %%o offset, %%T time, %%h headers",
    )
    add("-r", metavar="URL", help=f"consume: {REGISTRY_HELP}")
    add("-J", action="store_true", help="consume: a JSON document in each line")
    add("-X", action="append", default=[], metavar="NAME=VALUE", help="a property of the client")
    add("-F", "--command-config", dest="command_config", metavar="FILE", help="a .properties file for the client")
    add_connect_timeout(parser, waits=True)
    return parser
