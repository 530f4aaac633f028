"""``barnabas transactional-message-copier``: copies in transactions.

Kafka's ``TransactionalMessageCopier``. Records of a partition, or as a member of a group those of a
topic, go to the same partitions of another topic; the group's offsets are committed with them. A
line of JSON says what is done, before each transaction and at the end.
"""

import argparse
import json
import random
import sys
from datetime import datetime
from typing import Any

from barnabas.base.ids import TopicPartition
from barnabas.cli.connection.properties import client_properties_file
from barnabas.cli.connection.reachability import require_broker
from barnabas.cli.options.tool_parser import BROKERS_HELP, ToolParser, add_connect_timeout
from barnabas.cli.output.terminal import print
from barnabas.cli.trials.java_dates import java_date
from barnabas.cli.trials.verifiable_output import StopSignals
from barnabas.client.codecs import BYTES
from barnabas.client.consumer.consumer import Consumer
from barnabas.client.errors import AuthorizationError, ClientError, FencedError
from barnabas.client.producer.producer import Producer
from barnabas.client.records import Record

__all__ = ["main"]

_DATE_FORMAT = "yyyy/MM/dd HH:mm:ss:SSS"
_NO_LIMIT = (1 << 63) - 1
_POLL_S = 0.2
_BATCH_BYTES = 512  # so that a transaction has several batches on their way


def main(argv: list[str]) -> int:
    """Copy to the end that the input has now, or ``--max-messages``.

    0, also after SIGTERM, and 130 after Ctrl-C."""
    parser = _parser()
    given = parser.parse_args(argv)
    if not (given.bootstrap_server or given.broker_list):
        parser.missing("broker-list")
    servers = given.broker_list or given.bootstrap_server
    common = {**client_properties_file(given.command_config), "bootstrap.servers": servers}
    require_broker(servers, common, given.connect_timeout, [given.input_topic])
    stopped = StopSignals()
    with _consumer(common, given) as consumer, _producer(common, given) as producer:
        copier = _Copier(given, consumer, producer, common)
        try:
            copier.run(stopped)
        except ClientError as error:
            print(f"Shutting down after unexpected error {type(error).__name__}: {error}", file=sys.stderr)
            return 1
        finally:
            copier.print_status("ShutdownComplete")
    return stopped.exit_code


def _consumer(common: dict[str, str], given: argparse.Namespace) -> Consumer[bytes, bytes]:
    return Consumer(
        {
            **common,
            "group.id": given.consumer_group,
            "isolation.level": "read_committed",
            "enable.auto.commit": "false",
            "session.timeout.ms": "10000",
            "max.poll.interval.ms": "180000",
            "heartbeat.interval.ms": "3000",
            "auto.offset.reset": "earliest",
        },
        deserializer=BYTES,
        key_deserializer=BYTES,
    )


def _producer(common: dict[str, str], given: argparse.Namespace) -> Producer[bytes, bytes]:
    return Producer(
        {
            **common,
            "transactional.id": given.transactional_id,
            "transaction.timeout.ms": str(given.transaction_timeout),
            "batch.size": str(_BATCH_BYTES),
            "max.in.flight.requests.per.connection": "5",
        },
        serializer=BYTES,
        key_serializer=BYTES,
        on_failure=lambda _: None,  # the commit says what became of a transaction
    )


class _Copier:
    """The loop, and its figures."""

    def __init__(
        self,
        given: argparse.Namespace,
        consumer: Consumer[bytes, bytes],
        producer: Producer[bytes, bytes],
        common: dict[str, str],
    ) -> None:
        self._given = given
        self._consumer = consumer
        self._producer = producer
        self._common = common
        self._remaining = _NO_LIMIT if given.max_messages == -1 else given.max_messages
        self._total = self._since_rebalance = 0

    def run(self, stopped: StopSignals) -> None:
        """Raises `ClientError` when the producer cannot continue."""
        given = self._given
        if given.group_mode:
            self._consumer.subscribe([given.input_topic], on_assign=self._assigned)
        else:
            partition = TopicPartition(given.input_topic, given.input_partition)
            self._consumer.assign([partition])
            self._remaining = min(self._count_remaining([partition]), self._remaining)
        self._producer.init_transactions()
        metadata = None if given.use_group_metadata else self._plain_metadata()
        while not stopped.is_set() and self._remaining > 0:
            self.print_status("ProcessLoop")
            records = self._consumer.consume(given.transaction_size, _POLL_S)
            if records:
                self._copy(records, self._consumer.group_metadata() if metadata is None else metadata)

    def _copy(self, records: list[Record[bytes, bytes]], metadata: Any) -> None:
        try:
            self._producer.begin_transaction()
            for record in records:
                self._producer.send(self._given.output_topic, record.value, record.key, partition=record.partition)
            positions = {TopicPartition(record.topic, record.partition): record.offset + 1 for record in records}
            self._producer.send_offsets_to_transaction(positions, metadata)
            if self._given.enable_random_aborts and random.randrange(3) == 0:
                self._abort()
                return
            self._producer.commit_transaction()
        except FencedError:
            raise
        except ClientError as error:
            if error.fatal or _is_refused(error):
                raise
            self._abort()
            return
        self._remaining -= len(records)
        self._since_rebalance += len(records)
        self._total += len(records)

    def _abort(self) -> None:
        """Give the transaction up, and read on from what is committed."""
        self._producer.abort_transaction()
        partitions = self._consumer.assignment()
        for partition, offset in self._consumer.committed(partitions).items():
            self._consumer.seek(*partition, self._consumer.watermarks(*partition)[0] if offset is None else offset)

    def _assigned(self, partitions: list[TopicPartition]) -> None:
        self._remaining = self._count_remaining(partitions)
        self._since_rebalance = 0
        self.print_status("RebalanceComplete")

    def _count_remaining(self, partitions: list[TopicPartition]) -> int:
        """Offsets from the group's position to the end of what is committed."""
        left = 0
        for partition, committed in self._consumer.committed(partitions).items():
            first, end = self._consumer.watermarks(*partition)
            left += end - (first if committed is None else committed)
        return left

    def _plain_metadata(self) -> Any:
        """That of a consumer that is not a member: the commit is not fenced by the
        group's generation."""
        with _consumer(self._common, self._given) as stranger:
            return stranger.group_metadata()

    def print_status(self, stage: str) -> None:
        """A line with Kafka's names."""
        status = {
            "transactionalId": self._given.transactional_id,
            "stage": stage,
            "time": java_date(datetime.now().astimezone(), _DATE_FORMAT),
            "totalProcessed": self._total,
            "consumed": self._since_rebalance,
            "remaining": self._remaining,
        }
        print(json.dumps(status, separators=(",", ":")))


def _is_refused(error: BaseException | None) -> bool:
    """Whether a right is missing: the next attempt would fail in the same way."""
    while error is not None:
        if isinstance(error, AuthorizationError):
            return True
        error = error.__cause__
    return False


def _parser() -> ToolParser:
    parser = ToolParser(
        "transactional-message-copier",
        "Copy records to another topic in transactions, with the offsets, and print the progress as JSON.",
    )
    add = parser.add_argument
    add("--input-topic", required=True, metavar="NAME", help="the topic to read")
    add("--input-partition", type=int, required=True, metavar="N", help="its partition; ignored with --group-mode")
    add("--output-topic", required=True, metavar="NAME", help="the topic to write to")
    add("--broker-list", metavar="HOST:PORT[,...]", help=BROKERS_HELP)
    add("--bootstrap-server", metavar="HOST:PORT[,...]", help="another name of --broker-list (ours)")
    add("--command-config", metavar="FILE", help="a .properties file for the connection (ours)")
    add("--max-messages", type=int, default=-1, metavar="N", help="stop after this many; -1 for all that are there")
    add("--consumer-group", default="-1", metavar="ID", help="the group whose offsets are committed")
    add("--transaction-size", type=int, default=200, metavar="N", help="records in a transaction")
    add("--transaction-timeout", type=int, default=60_000, metavar="MS", help="the longest time of a transaction")
    add("--transactional-id", required=True, metavar="ID", help="the producer's transactional id")
    add("--enable-random-aborts", action="store_true", help="abort a third of the transactions")
    add("--group-mode", action="store_true", help="read as a member of the group, instead of one partition")
    add("--use-group-metadata", action="store_true", help="commit as that member, fenced by the group's generation")
    add_connect_timeout(parser, waits=True)
    return parser
