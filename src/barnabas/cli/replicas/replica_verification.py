"""``barnabas replica-verification``: compare all replicas of topics, with the options of Kafka's
ReplicaVerificationTool.

Each broker is asked, on a connection of its own, for its replicas' records;
`replica_comparison` compares them. A line with the greatest lag is printed at every interval,
and one for each difference as it is found. It runs until Ctrl-C, or with ``--once`` until
everything that was committed at its start has been compared. Exit code 1: replicas differ; 3:
not all could be compared.
"""

import argparse
import re
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime

from barnabas.base.errors import BarnabasError, ConfigError
from barnabas.base.files import FileSlice
from barnabas.base.ids import TopicPartition
from barnabas.cli.connection.connect import connect
from barnabas.cli.connection.incomplete import Gaps
from barnabas.cli.connection.suggestions import refuse_hidden
from barnabas.cli.options.json_files import compact
from barnabas.cli.options.tool_parser import ToolParser, add_connection_options, add_output_option
from barnabas.cli.output.terminal import print, print_document
from barnabas.cli.replicas.replica_comparison import Comparison, Difference, Fetched
from barnabas.client.admin.offsets import EARLIEST, LATEST, FoundOffset, offsets_in_part
from barnabas.client.admin.topics import TopicDescription, describe_topics
from barnabas.client.cluster.admin_connection import AdminConnection, ConnectError
from barnabas.client.errors import ProtocolError
from barnabas.client.network.deadline import Deadline
from barnabas.wire.kafka.errors import ErrorCode, KafkaError
from barnabas.wire.kafka.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic

__all__ = ["main"]

_DEBUGGING_REPLICA = -2  # a reader that may ask any replica, and sees what is committed
_NO_SESSION = -1
_NAMES_UNTIL = 12  # the last version of Fetch that names topics rather than their ids
_BACKOFF_S = 0.5


def main(argv: list[str]) -> int:
    """Compare until stopped."""
    parser = _parser()
    given = parser.parse_args(argv)
    given.bootstrap_server = given.bootstrap_server or given.broker_list
    if not given.bootstrap_server:
        parser.missing("broker-list")
    pattern = _pattern(given.topics_include or given.topic_white_list or ".*")
    with connect(given, "barnabas-replica-verification") as connection:
        topics = [topic for topic in describe_topics(connection) if pattern.fullmatch(topic.name)]
        if not topics:
            refuse_hidden(connection, given.topics_include or given.topic_white_list)
        gaps = Gaps(connection)
        comparisons, ends = _begin(connection, topics, given.time, gaps)
        code = gaps.report()
        return _Verification(given, comparisons, ends if given.once else None).run() or code


def _pattern(text: str) -> "re.Pattern[str]":
    """A list of regular expressions, as `topics --topic` takes it."""
    try:
        return re.compile(text.strip("\"'").replace(",", "|").replace(" ", ""))
    except re.error as error:
        raise ConfigError(f"--topics-include {text}: this is not a regular expression ({error})") from error


def _begin(
    connection: AdminConnection, topics: list[TopicDescription], when: int, gaps: Gaps
) -> tuple[list[Comparison], dict[TopicPartition, int]]:
    """The comparisons, at the offsets of ``when``, and where the partitions end now.

    Those without a leader are left out."""
    replicas = {
        TopicPartition(topic.name, item.partition): item.replicas for topic in topics for item in topic.partitions
    }
    if not replicas:
        raise BarnabasError(
            "No topics found. --topics-include, if specified, is either filtering out all topics or there is no topic."
        )
    ends = _offsets(connection, list(replicas), LATEST, gaps)
    starts = ends if when == LATEST else _offsets(connection, list(ends), when, gaps)
    comparisons = [
        Comparison(partition, replicas[partition], start if start >= 0 else ends[partition])
        for partition, start in sorted(starts.items(), key=lambda item: item[0])
    ]
    if not comparisons:
        raise BarnabasError(f"nothing can be compared: {'; '.join(gaps.lines)}")
    return comparisons, ends


def _offsets(
    connection: AdminConnection, partitions: list[TopicPartition], when: int, gaps: Gaps
) -> dict[TopicPartition, int]:
    found = offsets_in_part(connection, dict.fromkeys(partitions, when))
    gaps.add_partitions(found)
    return {partition: item.offset for partition, item in found.items() if isinstance(item, FoundOffset)}


class _Verification:
    """Rounds of fetching from all brokers and comparing, with reports between them."""

    def __init__(
        self, given: argparse.Namespace, comparisons: list[Comparison], ends: dict[TopicPartition, int] | None
    ) -> None:
        self._given = given
        self._comparisons = comparisons
        self._ends = ends
        self._by_broker: dict[int, list[Comparison]] = {}
        for comparison in comparisons:
            for broker_id in comparison.replicas:
                self._by_broker.setdefault(broker_id, []).append(comparison)
        self._connections = {
            broker_id: connect(given, f"barnabas-replica-verification-{broker_id}") for broker_id in self._by_broker
        }
        self._troubles: dict[object, str] = {}
        self._moved_s = time.monotonic()
        """When a comparison advanced last."""
        self._differ = False
        self._advanced = True

    def run(self) -> int:
        """Until Ctrl-C, a fatal difference or, with an end, the end; the exit code."""
        self._print("verification process is started", {"event": "started", "partitions": len(self._comparisons)})
        reported = time.monotonic()
        try:
            with ThreadPoolExecutor(len(self._by_broker)) as pool:
                while True:
                    if self._round(pool):
                        return 1
                    if self._is_done():
                        self._report()
                        return int(self._differ)
                    if code := self._left_out().report():
                        return 1 if self._differ else code
                    if (time.monotonic() - reported) * 1000 > self._given.report_interval_ms:
                        self._report()
                        reported = time.monotonic()
        finally:
            for connection in self._connections.values():
                connection.close()

    def _round(self, pool: ThreadPoolExecutor) -> bool:
        """Fetch and compare once; whether any replicas' offsets do not match."""
        began = time.monotonic()
        answers = dict(zip(self._by_broker, pool.map(self._fetch, self._by_broker), strict=True))
        given: dict[TopicPartition, dict[int, Fetched]] = {item.topic_partition: {} for item in self._comparisons}
        for broker_id, answer in answers.items():
            if isinstance(answer, ProtocolError):
                raise answer
            if isinstance(answer, BarnabasError):
                self._trouble(broker_id, f"broker {broker_id}: {answer}")
                continue
            self._troubles.pop(broker_id, None)
            for partition, fetched in self._readable(broker_id, answer):
                given[partition][broker_id] = fetched
        before = [comparison.offset for comparison in self._comparisons]
        fatal = False
        for comparison in self._comparisons:
            for difference in comparison.compare(given[comparison.topic_partition]):
                self._report_difference(difference)
                fatal = fatal or difference.is_fatal
        self._advanced = before != [comparison.offset for comparison in self._comparisons]
        if self._advanced:
            self._moved_s = time.monotonic()
        else:
            # Brokers with records that others lack, or with errors, answer at once: not a
            # reason to ask at once again.
            time.sleep(max(0.0, min(_BACKOFF_S, began + self._given.max_wait_ms / 1000 - time.monotonic())))
        return fatal

    def _left_out(self) -> Gaps:
        """With ``--once`` there is an end: what cannot be compared because of a
        trouble is not waited for."""
        gaps = Gaps()
        waited_s = time.monotonic() - self._moved_s
        limit_s = self._given.connect_timeout + 2 * self._given.max_wait_ms / 1000
        if self._ends is None or not self._troubles or waited_s < limit_s:
            return gaps
        left = sum(item.offset < self._ends[item.topic_partition] for item in self._comparisons)
        trouble = next(iter(self._troubles.values()))
        waited = f"could not be compared for {waited_s:.0f} s"
        gaps.add(f"{left} of {len(self._comparisons)} partitions {waited}: {trouble}")
        return gaps

    def _fetch(self, broker_id: int) -> FetchResponse | BarnabasError:
        """What a broker has from each of its comparisons' offsets.

        In a thread, on the broker's own connection."""
        topics: dict[str, FetchTopic] = {}
        for comparison in self._by_broker[broker_id]:
            name, number = comparison.topic_partition
            topics.setdefault(name, FetchTopic(topic=name)).partitions.append(
                FetchPartition(
                    partition=number, fetch_offset=comparison.offset, partition_max_bytes=self._given.fetch_size
                )
            )
        request = FetchRequest(
            replica_id=_DEBUGGING_REPLICA,
            # While there is more to compare, a broker with nothing new must not hold up the others.
            max_wait_ms=0 if self._advanced else self._given.max_wait_ms,
            min_bytes=1,
            session_epoch=_NO_SESSION,
            topics=list(topics.values()),
        )
        # The command goes on for ever; each of its questions has an end.
        end = Deadline(self._given.connect_timeout + self._given.max_wait_ms / 1000)
        connection = self._connections[broker_id].with_deadline(end)
        try:
            response = connection.send(request, FetchResponse, broker_id, max_version=_NAMES_UNTIL)
            return KafkaError(response.error_code) if response.error_code else response
        except ConnectError as error:
            connection.restart()
            with suppress(BarnabasError):
                connection.describe_cluster(fresh=True)  # it may be back at another address
            return error
        except BarnabasError as error:
            return error

    def _readable(self, broker_id: int, response: FetchResponse) -> Iterator[tuple[TopicPartition, Fetched]]:
        for topic in response.responses:
            for item in topic.partitions:
                topic_partition = TopicPartition(topic.topic, item.partition_index)
                if item.error_code:
                    code = ErrorCode.of(item.error_code)
                    text = (
                        f"partition {topic_partition}: replica {broker_id} gives nothing: {code.message} ({code.name})"
                    )
                    self._trouble((broker_id, topic_partition), text)
                    continue
                self._troubles.pop((broker_id, topic_partition), None)
                records = item.records
                if isinstance(records, FileSlice):  # only what is sent may be one
                    records = records.read()
                yield topic_partition, Fetched(item.high_watermark, records or b"")

    def _trouble(self, key: object, text: str) -> None:
        """Report a difference once, and again after it has gone or changed."""
        if self._troubles.get(key) != text:
            self._troubles[key] = text
            print(f"{_now()}: {text}", file=sys.stderr)

    def _is_done(self) -> bool:
        ends = self._ends
        return ends is not None and all(item.offset >= ends[item.topic_partition] for item in self._comparisons)

    # Reports

    def _report(self) -> None:
        worst = max(self._comparisons, key=lambda item: item.lag)
        self._print(
            f"max lag is {worst.lag} for partition {worst.topic_partition} at offset {worst.offset} among "
            f"{len(self._comparisons)} partitions",
            {
                "event": "lag",
                "max_lag": worst.lag,
                "topic": worst.topic_partition.topic,
                "partition": worst.topic_partition.partition,
                "offset": worst.offset,
                "partitions": len(self._comparisons),
            },
        )

    def _report_difference(self, difference: Difference) -> None:
        self._differ = True
        described = difference._asdict()
        described["topic"], described["partition"] = described.pop("topic_partition")
        self._print(str(difference), {"event": "difference", **described})

    def _print(self, text: str, event: dict[str, object]) -> None:
        if self._given.output == "json":
            print_document(compact({"time_ms": time.time_ns() // 1_000_000, **event}))
        else:
            print(f"{_now()}: {text}")


def _now() -> str:
    now = datetime.now().astimezone()
    return f"{now:%Y-%m-%d %H:%M:%S},{now.microsecond // 1000:03d}"


def _parser() -> ToolParser:
    parser = ToolParser("replica-verification", "Compare all replicas of topics, batch by batch, and report their lag.")
    add = parser.add_argument
    add_connection_options(parser, waits=True)
    add("--broker-list", metavar="HOST:PORT[,...]", help="the same as --bootstrap-server")
    add("--topics-include", metavar="REGEX,...", help="only topics whose whole name matches (default: all)")
    add("--topic-white-list", metavar="REGEX,...", help="the old name of --topics-include")
    add("--time", type=int, default=LATEST, help=f"where to begin: {LATEST} (the end, the default), {EARLIEST} (the "
        "beginning), or a timestamp in ms")  # fmt: skip
    add("--report-interval-ms", type=int, default=30_000, metavar="MS", help="time between reports (default: 30000)")
    add("--max-wait-ms", type=int, default=1_000, metavar="MS", help="how long a broker waits for records")
    add("--fetch-size", type=int, default=1024 * 1024, metavar="BYTES", help="bytes of each fetch of a partition")
    add("--once", action="store_true", help="end when all that is committed at the start has been compared")
    add_output_option(parser)
    return parser
