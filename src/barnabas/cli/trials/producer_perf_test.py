"""``barnabas producer-perf-test``: how fast records go to a topic.

Kafka's ``ProducerPerformance``, its options and its output."""

import argparse
import contextlib
import json
import random
import string
import time
from collections.abc import Callable
from pathlib import Path

from barnabas.base.errors import BarnabasError
from barnabas.base.numbers import LARGEST_INT32, whole_number
from barnabas.cli.connection.properties import client_properties_file, key_values
from barnabas.cli.connection.reachability import require_broker
from barnabas.cli.options.tool_parser import ToolParser, add_connect_timeout, add_output_option
from barnabas.cli.output.colours import print_error
from barnabas.cli.output.terminal import print
from barnabas.client.codecs import BYTES
from barnabas.client.errors import ClientError
from barnabas.client.producer.producer import Producer
from barnabas.client.records import Delivery

__all__ = ["LatencyStats", "main"]

_WINDOW_S = 5.0
_MIB = 1024 * 1024
_SAMPLES = 500_000  # latencies kept for the percentiles; of more records every n-th is one
_SLEEP_FROM_S = 0.001


def main(argv: list[str]) -> int:
    """Send the records and print the figures; 1 when some were not delivered."""
    parser = _parser()
    given = parser.parse_args(argv)
    properties = {
        **client_properties_file(given.producer_config),
        **key_values(_flat(given.producer_props), "--producer-props"),
    }
    if given.bootstrap_server:
        properties["bootstrap.servers"] = given.bootstrap_server
    if not properties.get("bootstrap.servers"):
        parser.missing("bootstrap-server")
    if given.transactional_id or given.transaction_duration_ms:
        properties["transactional.id"] = given.transactional_id or f"performance-producer-{random.randrange(1 << 48)}"
    for ours in ("key.serializer", "value.serializer"):
        properties.pop(ours, None)
    properties.setdefault("client.id", "perf-producer-client")
    payload = _payloads(given)
    require_broker(properties["bootstrap.servers"], properties, given.connect_timeout, [given.topic])
    with Producer(properties, serializer=BYTES, key_serializer=BYTES) as producer:
        stats = LatencyStats(given.num_records)
        _send_all(given, producer, payload, stats)
    print(stats.total(as_json=given.output == "json"))
    return 1 if stats.failed else 0


def _send_all(
    given: argparse.Namespace,
    producer: "Producer[bytes, bytes]",
    payload: Callable[[int], bytes],
    stats: "LatencyStats",
) -> None:
    duration_ms: int = given.transaction_duration_ms or (3000 if given.transactional_id else 0)
    if duration_ms:
        producer.init_transactions()
        producer.begin_transaction()
    began = transaction_began = time.monotonic()
    for number in range(given.num_records):
        value = payload(number)
        sent = time.monotonic()

        def delivered(
            _: Delivery | None, error: ClientError | None, sent: float = sent, size: int = len(value)
        ) -> None:
            stats.record(time.monotonic() - sent, size, error)

        producer.send(given.topic, value, on_delivery=delivered)
        if duration_ms and (sent - transaction_began) * 1000 >= duration_ms:
            producer.commit_transaction()
            producer.begin_transaction()
            transaction_began = sent
        if given.output == "text":
            stats.print_window(sent)
        if given.throughput >= 0:
            while (ahead_s := (number + 1) / max(given.throughput, 0.001) - (time.monotonic() - began)) > _SLEEP_FROM_S:
                producer.poll(ahead_s)
    if duration_ms:
        producer.commit_transaction()
    producer.flush()


class LatencyStats:
    """Counts and latencies: of the window of five seconds, and of the whole run."""

    def __init__(self, expected: int) -> None:
        self._every = max(1, expected // _SAMPLES)
        self._began = self._window_began = time.monotonic()
        self._latencies_ms: list[float] = []
        self._count = self._bytes = self._window_count = self._window_bytes = 0
        self._sum_ms = self._max_ms = self._window_sum_ms = self._window_max_ms = 0.0
        self.failed = 0

    def record(self, latency_s: float, size: int, error: ClientError | None) -> None:
        """A record's fate is known."""
        if error is not None:
            self.failed += 1
            if self.failed <= 10:
                print_error(f"Error: {error}")
            return
        ms = latency_s * 1000
        if self._count % self._every == 0:
            self._latencies_ms.append(ms)
        self._count += 1
        self._bytes += size
        self._sum_ms += ms
        self._max_ms = max(self._max_ms, ms)
        self._window_count += 1
        self._window_bytes += size
        self._window_sum_ms += ms
        self._window_max_ms = max(self._window_max_ms, ms)

    def print_window(self, now: float) -> None:
        """Every five seconds a line of what was acknowledged since the last."""
        elapsed_s = now - self._window_began
        if elapsed_s < _WINDOW_S:
            return
        count = self._window_count
        print(
            f"{count} records sent, {count / elapsed_s:.1f} records/sec ({self._window_bytes / elapsed_s / _MIB:.2f} MB/sec), "
            f"{self._window_sum_ms / max(count, 1):.1f} ms avg latency, {self._window_max_ms:.1f} ms max latency.",
        )
        self._window_began = now
        self._window_count = self._window_bytes = 0
        self._window_sum_ms = self._window_max_ms = 0.0

    def total(self, *, as_json: bool = False) -> str:
        """The last line."""
        elapsed_s = max(time.monotonic() - self._began, 1e-9)
        ordered = sorted(self._latencies_ms) or [0.0]
        marks = [ordered[min(len(ordered) - 1, int(part * len(ordered)))] for part in (0.5, 0.95, 0.99, 0.999)]
        if as_json:
            latencies = {f"{name}_ms": mark for mark, name in zip(marks, _PERCENTILES, strict=True)}
            rates = {"records_per_s": self._count / elapsed_s, "mb_per_s": self._bytes / elapsed_s / _MIB}
            latencies |= {"avg_ms": self._sum_ms / max(self._count, 1), "max_ms": self._max_ms}
            return json.dumps({"records": self._count, "failed": self.failed, **rates, **latencies})
        percentiles = ", ".join(f"{mark:.0f} ms {name}" for mark, name in zip(marks, _PERCENTILES, strict=True))
        return (
            f"{self._count} records sent, {self._count / elapsed_s:.1f} records/sec "
            f"({self._bytes / elapsed_s / _MIB:.2f} MB/sec), {self._sum_ms / max(self._count, 1):.2f} ms avg latency, "
            f"{self._max_ms:.2f} ms max latency, {percentiles}."
        )


_PERCENTILES = ("50th", "95th", "99th", "99.9th")


def _payloads(given: argparse.Namespace) -> Callable[[int], bytes]:
    if given.payload_file:
        separator = given.payload_delimiter.encode().decode("unicode_escape")
        try:
            lines = Path(given.payload_file).read_text(encoding="utf-8").split(separator)
        except OSError as error:
            raise BarnabasError(f"cannot read {given.payload_file}: {error.strerror}") from None
        values = [line.encode() for line in lines if line]
        if not values:
            raise BarnabasError(f"{given.payload_file} is empty: it must hold at least one payload")
        return lambda _: random.choice(values)
    if given.payload_monotonic:
        return lambda number: str(number).encode()
    letters = string.ascii_uppercase.encode()
    value = bytes(random.choices(letters, k=given.record_size))
    return lambda _: value


def _flat(groups: list[list[str]]) -> list[str]:
    return [item for group in groups for item in group]


def _positive(text: str) -> int:
    with contextlib.suppress(ValueError):
        if (number := whole_number(text)) > 0:
            return number
    raise argparse.ArgumentTypeError(f"{text} is not a number above 0")


def _size(text: str) -> int:
    if (size := _positive(text)) > LARGEST_INT32:
        raise argparse.ArgumentTypeError(f"{text} is more than the {LARGEST_INT32} bytes that a record may have")
    return size


def _parser() -> ToolParser:
    parser = ToolParser("producer-perf-test", "Measure how fast records go to a topic.")
    add = parser.add_argument
    add("--topic", required=True, help="the topic to send to")
    add("--num-records", type=_positive, required=True, metavar="N", help="how many records")
    size = parser.add_mutually_exclusive_group(required=True)
    size.add_argument("--record-size", type=_size, metavar="BYTES", help="the size of each record")
    size.add_argument("--payload-file", metavar="FILE", help="a file of payloads, from which each record takes one")
    size.add_argument("--payload-monotonic", action="store_true", help="payloads are the numbers 0, 1, 2 ...")
    add("--payload-delimiter", default="\\n", metavar="TEXT", help="separator of payloads in the file")
    add("--throughput", type=float, required=True, metavar="N", help="records a second at most; -1 for no limit")
    add(
        "--producer-props",
        nargs="+",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="the producer's properties",
    )
    add("--producer.config", dest="producer_config", metavar="FILE", help="a .properties file for the producer")
    add(
        "--bootstrap-server",
        metavar="HOST:PORT[,...]",
        help="the brokers, if the properties do not name them (default: those of the context)",
    )
    add("--transactional-id", metavar="ID", help="send in transactions")
    add_connect_timeout(parser, waits=True)
    add_output_option(parser)
    add("--transaction-duration-ms", type=int, metavar="MS", help="how long each transaction lasts")
    return parser
