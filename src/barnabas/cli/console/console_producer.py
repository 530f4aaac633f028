"""``barnabas console-producer``: lines of standard input as records of a topic."""

import argparse
import contextlib
import select
import signal
import socket
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from barnabas.base.errors import ConfigError
from barnabas.cli.connection.properties import (
    REGISTRY_PROPERTY,
    client_properties_file,
    key_values,
    properties_file,
)
from barnabas.cli.connection.reachability import require_broker
from barnabas.cli.console.line_reader import Line, LineReader
from barnabas.cli.console.registry_values import WRITER_PROPERTIES, value_writer
from barnabas.cli.options.tool_parser import BROKERS_HELP, ToolParser, add_connect_timeout
from barnabas.cli.output.colours import print_error
from barnabas.cli.output.terminal import print
from barnabas.client.codecs import BYTES, load_dotted
from barnabas.client.errors import ClientError
from barnabas.client.producer.producer import Producer

__all__ = ["main"]

_DEFAULT_READERS = ("", "kafka.tools.ConsoleProducer$LineMessageReader", "org.apache.kafka.tools.LineMessageReader")
_PIPE_LINGER_MS = 1000
_ERRORS_SHOWN = 10


def main(argv: list[str]) -> int:
    """Send until the end of input; 0 when every record was acknowledged, 1 otherwise."""
    parser = _parser()
    given = parser.parse_args(argv)
    if not given.bootstrap_server and not given.broker_list:
        parser.missing("bootstrap-server")
    properties = _properties(given)
    require_broker(properties["bootstrap.servers"], properties, given.connect_timeout, [given.topic])
    lines = _lines(interactive=sys.stdin.isatty() and sys.stdout.isatty())
    records = _reader(given, properties.pop(REGISTRY_PROPERTY, None))(lines)
    failures = _Failures()
    with Producer(
        properties,
        serializer=BYTES,
        key_serializer=BYTES,
        on_failure=None if given.sync else failures.note,
    ) as producer:
        topic = given.topic
        try:
            for key, value, headers in records:
                if given.sync:
                    producer.send(topic, value, key, headers=headers).result()
                    continue
                try:
                    producer.send(topic, value, key, headers=headers)
                except ClientError as error:
                    if error.name != "MESSAGE_TOO_LARGE":
                        raise
                    failures.note(error)  # of this line alone: the others are sent
        except KeyboardInterrupt:
            producer.close(timeout_s=10)  # what was typed is sent
            raise
    if producer.dropped:
        print(
            f"{producer.dropped} records were dropped, for the queue was full (queue.enqueue.timeout.ms)",
            file=sys.stderr,
        )
    failures.report()
    return 1 if failures.count else 0


class _Failures:
    """Errors of records in the background: the first few shown, all counted."""

    def __init__(self) -> None:
        self.count = 0

    def note(self, error: ClientError) -> None:
        self.count += 1
        if self.count <= _ERRORS_SHOWN:
            print_error(f"Error: {error}")

    def report(self) -> None:
        if self.count:
            print_error(f"{self.count} records were not delivered")


def _lines(*, interactive: bool) -> Iterator[bytes]:
    read = sys.stdin.buffer
    if not interactive:
        yield from read
        return
    with _signals_wake() as woken:
        while True:
            sys.stdout.write(">")
            sys.stdout.flush()
            # A Ctrl-C right before readline would be seen after the next line only.
            while read not in select.select([read, woken], [], [])[0]:
                woken.recv(4096)
            line = read.readline()
            if not line:
                return
            yield line


@contextlib.contextmanager
def _signals_wake() -> Iterator[socket.socket]:
    """A socket that can be read after each signal."""
    woken, wakes = socket.socketpair()
    with woken, wakes:
        wakes.setblocking(False)
        before = signal.set_wakeup_fd(wakes.fileno(), warn_on_full_buffer=False)
        try:
            yield woken
        finally:
            signal.set_wakeup_fd(before)


def _reader(given: argparse.Namespace, registry: str | None) -> Callable[[Iterable[bytes]], Iterator[Line]]:
    """``registry`` is the one that the producer's properties name."""
    properties = {**properties_file(given.reader_config), **key_values(given.property, "--property")}
    properties["topic"] = given.topic
    if given.line_reader in _DEFAULT_READERS:
        if registry and any(name.startswith("value.schema") for name in properties):
            properties.setdefault(REGISTRY_PROPERTY, registry)
        write = value_writer(properties)
        read = LineReader({name: text for name, text in properties.items() if name not in WRITER_PROPERTIES}).read
        return read if write is None else partial(_written, read, write, given.topic)
    made = load_dotted(given.line_reader, "--line-reader")(properties)
    reader = getattr(made, "read", None)
    if reader is None:
        raise ConfigError(f"--line-reader {given.line_reader}: it needs a method read(lines) that yields records")
    return reader  # type: ignore[no-any-return]  # the user's own


def _written(
    read: Callable[[Iterable[bytes]], Iterator[Line]],
    write: Callable[[bytes, str], bytes],
    topic: str,
    lines: Iterable[bytes],
) -> Iterator[Line]:
    """The records of lines, whose values get a schema."""
    for line in read(lines):
        yield line if line.value is None else line._replace(value=write(line.value, topic))


def _properties(given: argparse.Namespace) -> dict[str, Any]:
    properties: dict[str, Any] = {
        **client_properties_file(given.producer_config, with_registry=True),
        **key_values(given.producer_property, "--producer-property"),
    }
    properties.pop("key.serializer", None)
    properties.pop("value.serializer", None)
    properties["bootstrap.servers"] = given.bootstrap_server or given.broker_list
    properties.setdefault("client.id", "console-producer")
    if given.compression_codec is not None:
        properties["compression.type"] = given.compression_codec
    options = {
        "linger.ms": given.timeout,
        "acks": given.request_required_acks,
        "request.timeout.ms": given.request_timeout_ms,
        "retries": given.message_send_max_retries,
        "retry.backoff.ms": given.retry_backoff_ms,
        "send.buffer.bytes": given.socket_buffer_size,
        "buffer.memory": given.max_memory_bytes,
        "batch.size": given.max_partition_memory_bytes or given.batch_size,
        "metadata.max.age.ms": given.metadata_expiry_ms,
        "max.block.ms": given.max_block_ms,
    }
    properties.update({name: value for name, value in options.items() if value is not None})
    if not {"linger.ms", "queue.buffering.max.ms"} & properties.keys():
        # A person who presses Enter expects the record to leave; a file is better
        # sent in large batches.
        properties["linger.ms"] = 0 if given.sync or sys.stdin.isatty() else _PIPE_LINGER_MS
    # Lines without a key go to the partitions in turn, so that even a short file is
    # shared out evenly.
    properties.setdefault("partitioner.class", "keyed_round_robin")
    return properties


def _parser() -> ToolParser:
    parser = ToolParser("console-producer", "Send each line of standard input to a topic.")
    add = parser.add_argument
    add("--topic", required=True, help="the topic to send to")
    add("--bootstrap-server", metavar="HOST:PORT[,...]", help=BROKERS_HELP)
    add("--broker-list", metavar="HOST:PORT[,...]", help="the old name of --bootstrap-server")
    add("--sync", action="store_true", help="wait for each record's acknowledgement before the next is sent")
    add(
        "--compression-codec",
        nargs="?",
        const="gzip",
        metavar="CODEC",
        help="none, gzip (also without a value), snappy, lz4 or zstd",
    )
    add_connect_timeout(parser, has_own_timeout=True, waits=True)
    add("--batch-size", type=int, metavar="BYTES", help="how much goes into one batch at most")
    add("--max-partition-memory-bytes", type=int, metavar="BYTES", help="the same as --batch-size, and stronger")
    add("--timeout", type=int, metavar="MS", help="how long a record waits for company in a batch (linger.ms)")
    add("--request-required-acks", metavar="ACKS", help="0, 1, or -1 for all in-sync replicas (default)")
    add("--request-timeout-ms", type=int, metavar="MS", help="how long brokers may take to acknowledge")
    add("--message-send-max-retries", type=int, metavar="N", help="how often a failed record is sent again")
    add("--retry-backoff-ms", type=int, metavar="MS", help="the pause before a record is sent again")
    add("--metadata-expiry-ms", type=int, metavar="MS", help="how often the cluster's metadata is refreshed")
    add("--max-block-ms", type=int, metavar="MS", help="how long to wait when the buffer is full (default 60000)")
    add("--max-memory-bytes", type=int, metavar="BYTES", help="how much waits for the brokers at most (buffer.memory)")
    add("--socket-buffer-size", type=int, metavar="BYTES", help="the size of the socket's send buffer")
    add(
        "--property",
        "--reader-property",
        dest="property",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="for the line reader: parse.key, key.separator (tab), parse.headers, headers.delimiter (tab), "
        "headers.separator (,), headers.key.separator (:), null.marker, ignore.error",
    )
    add("--reader-config", metavar="FILE", help="a .properties file for the line reader")
    add(
        "--line-reader",
        default="",
        metavar="CLASS",
        help="a Python class, by dotted path, that turns lines into records",
    )
    _add_client_options(parser)
    return parser


def _add_client_options(parser: ToolParser) -> None:
    # The second names are those of Kafka 4 (KIP-1147).
    parser.add_argument(
        "--producer-property",
        "--command-property",
        dest="producer_property",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a property of the producer",
    )
    parser.add_argument(
        "--producer.config",
        "--command-config",
        dest="producer_config",
        metavar="FILE",
        help="a .properties file for the producer",
    )
