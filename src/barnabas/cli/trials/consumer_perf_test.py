"""``barnabas consumer-perf-test``: how fast records come from a topic.

Kafka's ``ConsumerPerformance``."""

import json
import random
import sys
import time
from datetime import datetime

from barnabas.cli.connection.properties import client_properties_file
from barnabas.cli.connection.reachability import require_broker
from barnabas.cli.options.tool_parser import BROKERS_HELP, ToolParser, add_connect_timeout, add_output_option
from barnabas.cli.output.colours import print_warning
from barnabas.cli.output.terminal import print
from barnabas.cli.trials.java_dates import java_date
from barnabas.client.codecs import BYTES
from barnabas.client.consumer.consumer import Consumer

__all__ = ["main"]

_MIB = 1024 * 1024
_TOTALS = "start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec"
_DETAILS = "time, threadId, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec"
_FETCH = ", rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec"


def main(argv: list[str]) -> int:
    """Read the messages and print the figures."""
    parser = _parser()
    given = parser.parse_args(argv)
    if not (given.bootstrap_server or given.broker_list):
        parser.missing("bootstrap-server")
    properties = {
        **client_properties_file(given.consumer_config),
        "bootstrap.servers": given.bootstrap_server or given.broker_list,
    }
    properties["group.id"] = given.group
    properties.setdefault("auto.offset.reset", "latest" if given.from_latest else "earliest")
    properties.setdefault("fetch.max.bytes", str(max(given.fetch_size, 1_000_000)))
    properties.setdefault("max.partition.fetch.bytes", str(given.fetch_size))
    properties.setdefault("socket.receive.buffer.bytes", str(given.socket_buffer_size))
    properties.setdefault("check.crcs", "false")
    require_broker(properties["bootstrap.servers"], properties, given.connect_timeout, [given.topic])
    as_json = given.output == "json"
    if not given.hide_header and not as_json:
        print((_DETAILS if given.show_detailed_stats else _TOTALS) + _FETCH)
    figures = _Figures(given.date_format, detailed=given.show_detailed_stats, as_json=as_json)
    with Consumer(properties, deserializer=BYTES, key_deserializer=BYTES) as consumer:
        consumer.subscribe([given.topic], on_assign=lambda _: figures.joined())
        last = time.monotonic()
        while figures.count < given.messages:
            records = consumer.consume(min(500, given.messages - figures.count), 0.1)
            now = time.monotonic()
            if records:
                figures.add(len(records), sum(len(record.value or b"") + len(record.key or b"") for record in records))
                last = now
            elif now - last >= given.timeout / 1000:
                text = (
                    f"Exiting before consuming the expected number of messages: timeout ({given.timeout} ms) "
                    "exceeded. You can use the --timeout option to increase the timeout."
                )
                stream = sys.stderr if as_json else sys.stdout
                print_warning(text, label="WARNING", stream=stream)
                break
            if figures.detailed and now - figures.interval_began >= given.reporting_interval / 1000:
                print(figures.interval())
    if not figures.detailed:
        print(figures.total())
    return 0


class _Figures:
    """What was read, in all and since the last line."""

    def __init__(self, date_format: str, *, detailed: bool, as_json: bool) -> None:
        self.detailed = detailed
        self._as_json = as_json
        self._date_format = date_format
        self._start = datetime.now().astimezone()
        self._began = self.interval_began = time.monotonic()
        self._joined_s: float | None = None
        self.count = self._bytes = self._interval_count = self._interval_bytes = 0

    def joined(self) -> None:
        """The group has given us partitions."""
        if self._joined_s is None:
            self._joined_s = time.monotonic() - self._began

    def add(self, count: int, size: int) -> None:
        """Records came."""
        self.count += count
        self._bytes += size

    def interval(self) -> str:
        """A line for the time since the last one, and the start of the next."""
        now = time.monotonic()
        count, size = self.count - self._interval_count, self._bytes - self._interval_bytes
        when = java_date(datetime.now().astimezone(), self._date_format)
        line = self._line(when, "0", count, size, now - self.interval_began, 0.0)
        self.interval_began, self._interval_count, self._interval_bytes = now, self.count, self._bytes
        return line

    def total(self) -> str:
        """The line for the whole run."""
        elapsed_s = time.monotonic() - self._began
        start, end = (java_date(each, self._date_format) for each in (self._start, datetime.now().astimezone()))
        return self._line(start, end, self.count, self._bytes, elapsed_s, self._joined_s or 0.0)

    def _line(self, began: str, second: str, count: int, size: int, elapsed_s: float, rebalance_s: float) -> str:
        mib, fetch_s = size / _MIB, max(elapsed_s - rebalance_s, 1e-9)
        elapsed_s = max(elapsed_s, 1e-9)
        values = [began, second, f"{mib:.4f}", f"{mib / elapsed_s:.4f}", f"{count}", f"{count / elapsed_s:.4f}"]
        values += [
            f"{rebalance_s * 1000:.0f}",
            f"{fetch_s * 1000:.0f}",
            f"{mib / fetch_s:.4f}",
            f"{count / fetch_s:.4f}",
        ]
        if not self._as_json:
            return ", ".join(values)
        names = ((_DETAILS if self.detailed else _TOTALS) + _FETCH).split(", ")
        times = 1 if self.detailed else 2
        numbers = [float(value) if "." in value else int(value) for value in values[times:]]
        return json.dumps(dict(zip(names, [*values[:times], *numbers], strict=True)))


def _parser() -> ToolParser:
    parser = ToolParser("consumer-perf-test", "Measure how fast records come from a topic.")
    add = parser.add_argument
    add("--bootstrap-server", metavar="HOST:PORT[,...]", help=BROKERS_HELP)
    add("--broker-list", metavar="HOST:PORT[,...]", help="the old name of --bootstrap-server")
    add("--topic", required=True, help="the topic to read")
    add("--messages", type=int, required=True, metavar="N", help="how many messages to read")
    add(
        "--group",
        default=f"perf-consumer-{random.randrange(100_000)}",
        metavar="ID",
        help="the group (default: a new one)",
    )
    add("--from-latest", action="store_true", help="start at the end where the group has no offset yet")
    add("--fetch-size", type=int, default=1024 * 1024, metavar="BYTES", help="how much one fetch of a partition takes")
    add("--socket-buffer-size", type=int, default=2 * 1024 * 1024, metavar="BYTES", help="the socket's receive buffer")
    add(
        "--reporting-interval", type=int, default=5000, metavar="MS", help="with detailed stats: the time between lines"
    )
    add("--show-detailed-stats", action="store_true", help="a line for each interval instead of one at the end")
    add("--hide-header", action="store_true", help="do not print the names of the columns")
    add("--timeout", type=int, default=10_000, metavar="MS", help="stop when no message came for this long")
    add(
        "--date-format",
        default="yyyy-MM-dd HH:mm:ss:SSS",
        metavar="FORMAT",
        help="how times are printed, as Java writes it",
    )
    add("--consumer.config", dest="consumer_config", metavar="FILE", help="a .properties file for the consumer")
    add_connect_timeout(parser, has_own_timeout=True, waits=True)
    add_output_option(parser)
    return parser
