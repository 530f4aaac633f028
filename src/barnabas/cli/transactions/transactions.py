"""``barnabas transactions``: look at transactions and end those that hang; options of
Kafka's TransactionsCommand.

``--output json`` prints one document. Options of the connection stand before or behind the action.

In Kafka: `TransactionsCommand`.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from barnabas.base.errors import BarnabasError
from barnabas.base.ids import TopicPartition
from barnabas.cli.connection.connect import connect
from barnabas.cli.connection.incomplete import Gaps
from barnabas.cli.options.helpful_parser import HelpfulParser
from barnabas.cli.options.tool_parser import ToolParser
from barnabas.cli.output.tables import aligned, print_json
from barnabas.cli.output.terminal import print
from barnabas.cli.transactions.actions import RunAction, add_action, add_actions
from barnabas.client.admin.active_producers import describe_producers, describe_producers_of
from barnabas.client.admin.hanging_transactions import HangingTransaction, find_hanging
from barnabas.client.admin.transactions import (
    abort_transaction,
    describe_transaction,
    fence_producer,
    transactions_in_part,
)

if TYPE_CHECKING:
    from barnabas.client.cluster.admin_connection import AdminConnection

__all__ = ["main"]

_LISTED = ("TransactionalId", "Coordinator", "ProducerId", "TransactionState")
_DESCRIBED = (
    "CoordinatorId",
    "TransactionalId",
    "ProducerId",
    "ProducerEpoch",
    "TransactionState",
    "TransactionTimeoutMs",
    "CurrentTransactionStartTimeMs",
    "TransactionDurationMs",
    "TopicPartitions",
)
_PRODUCERS = (
    "ProducerId",
    "ProducerEpoch",
    "LatestCoordinatorEpoch",
    "LastSequence",
    "LastTimestamp",
    "CurrentTransactionStartOffset",
)
_HANGING = (
    "Topic",
    "Partition",
    "ProducerId",
    "ProducerEpoch",
    "CoordinatorEpoch",
    "StartOffset",
    "LastTimestamp",
    "Duration(min)",
)
_MS_A_MINUTE = 60_000
_Row = Sequence[object]


def main(argv: list[str]) -> int:
    """Do the action."""
    parser = _parser()
    given = parser.parse_args(argv)
    parser.require(given, "bootstrap-server")
    _check(parser, given)
    action: RunAction = given.run
    with connect(given, "barnabas-transactions") as connection:
        return action(connection, given)


def _parser() -> ToolParser:
    parser = ToolParser("transactions", "Look at transactions of producers, and end those that hang.")
    add = partial(add_action, add_actions(parser))
    listing = add("list", "list transactional ids", _list)
    listing.add_argument(
        "--duration-filter", type=int, metavar="MS", help="only those with a transaction open longer than this"
    )
    listing.add_argument(
        "--transactional-id-pattern",
        metavar="REGEX",
        help="only ids that match a pattern of RE2 (Apache Kafka: 4.1 or newer)",
    )
    describe = add("describe", "describe a transactional id", _describe)
    describe.add_argument("--transactional-id", required=True, metavar="ID", help="the transactional id")
    producers = add("describe-producers", "describe the producers of a partition", _describe_producers)
    producers.add_argument("--broker-id", type=int, metavar="ID", help="ask this replica, instead of the leader")
    _add_partition(producers, is_required=True)
    abort = add("abort", "abort a transaction that hangs in a partition, by a marker", _abort)
    _add_partition(abort, is_required=True)
    abort.add_argument("--start-offset", type=int, metavar="N", help="where the transaction begins")
    abort.add_argument("--producer-id", type=int, metavar="N", help="instead, for brokers older than 3.0: the producer")
    abort.add_argument("--producer-epoch", type=int, metavar="N", help="its epoch")
    abort.add_argument("--coordinator-epoch", type=int, metavar="N", help="and that of its coordinator")
    hanging = add("find-hanging", "find transactions that no coordinator will end", _find_hanging)
    hanging.add_argument("--broker-id", type=int, metavar="ID", help="in the replicas of this broker")
    hanging.add_argument(
        "--max-transaction-timeout", type=int, default=15, metavar="MIN", help="look at older ones only (default: 15)"
    )
    _add_partition(hanging, is_required=False)
    terminate = add(
        "forceTerminateTransaction", "abort the open transaction of a transactional id, and fence its producer", _fence
    )
    terminate.add_argument(
        "--transactionalId", "--transactional-id", dest="transactional_id", required=True, metavar="ID",
        help="the transactional id",
    )  # fmt: skip
    return parser


def _add_partition(parser: HelpfulParser, *, is_required: bool) -> None:
    parser.add_argument("--topic", required=is_required, metavar="NAME", help="the topic")
    parser.add_argument("--partition", type=int, required=is_required, metavar="N", help="the partition's number")


def _check(parser: ToolParser, given: argparse.Namespace) -> None:
    """End with 2 for options that do not go together."""
    if given.action == "find-hanging":
        if given.topic is None and given.broker_id is None:
            parser.error("find-hanging needs --topic or --broker-id, so that not all partitions are searched")
        if given.partition is not None and given.topic is None:
            parser.error("--partition needs --topic")
    elif given.action == "abort" and given.start_offset is None:
        if given.producer_id is None:
            parser.error(
                "name the transaction with --start-offset, or for brokers older than 3.0 with --producer-id, "
                "--producer-epoch and --coordinator-epoch"
            )
        for option in ("producer-epoch", "coordinator-epoch"):
            if getattr(given, option.replace("-", "_")) is None:
                parser.error(f"Missing required argument --{option}")


def _print(given: argparse.Namespace, header: Sequence[str], rows: Sequence[_Row], documents: object) -> None:
    if given.output == "json":
        print_json(documents)
    elif sys.stdout.isatty():
        print(aligned(header, rows))
    else:  # as Kafka's tool has it, for scripts
        table = [header, *([str(cell) for cell in row] for row in rows)]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        for row in table:
            print("".join(f"{cell:<{width}}\t" for cell, width in zip(row, widths, strict=True)))


def _list(connection: "AdminConnection", given: argparse.Namespace) -> int:
    duration_ms = -1 if given.duration_filter is None else given.duration_filter
    found = transactions_in_part(connection, duration_ms=duration_ms, pattern=given.transactional_id_pattern)
    rows = [(each.transactional_id, each.coordinator, each.producer_id, each.state) for each in found]
    documents = [
        {
            "transactionalId": each.transactional_id,
            "coordinator": each.coordinator,
            "producerId": each.producer_id,
            "state": each.state,
        }
        for each in found
    ]
    _print(given, _LISTED, rows, documents)
    return Gaps(connection).report()


def _describe(connection: "AdminConnection", given: argparse.Namespace) -> int:
    found = describe_transaction(connection, given.transactional_id)
    start_ms = found.start_time_ms
    duration_ms = None if start_ms is None else _now_ms() - start_ms
    row = (
        found.coordinator,
        found.transactional_id,
        found.producer_id,
        found.producer_epoch,
        found.state,
        found.timeout_ms,
        "None" if start_ms is None else start_ms,
        "None" if duration_ms is None else duration_ms,
        ",".join(map(str, found.partitions)),
    )
    document = {
        "coordinator": found.coordinator,
        "transactionalId": found.transactional_id,
        "producerId": found.producer_id,
        "producerEpoch": found.producer_epoch,
        "state": found.state,
        "timeoutMs": found.timeout_ms,
        "startTimeMs": start_ms,
        "durationMs": duration_ms,
        "partitions": [{"topic": name, "partition": index} for name, index in found.partitions],
    }
    _print(given, _DESCRIBED, [row], document)
    return 0


def _describe_producers(connection: "AdminConnection", given: argparse.Namespace) -> int:
    partition = TopicPartition(given.topic, given.partition)
    if given.broker_id is None:
        found = describe_producers(connection, partition)
    else:
        found = describe_producers_of(connection, given.broker_id, [partition])[partition]
    rows = [
        (
            each.producer_id,
            each.epoch,
            each.coordinator_epoch,
            each.last_sequence,
            each.last_timestamp_ms,
            "None" if each.transaction_start_offset is None else each.transaction_start_offset,
        )
        for each in found
    ]
    documents = [
        {
            "producerId": each.producer_id,
            "producerEpoch": each.epoch,
            "coordinatorEpoch": each.coordinator_epoch,
            "lastSequence": each.last_sequence,
            "lastTimestamp": each.last_timestamp_ms,
            "transactionStartOffset": each.transaction_start_offset,
        }
        for each in found
    ]
    _print(given, _PRODUCERS, rows, documents)
    return 0


def _abort(connection: "AdminConnection", given: argparse.Namespace) -> int:
    partition = TopicPartition(given.topic, given.partition)
    producer_id, epoch, coordinator_epoch = given.producer_id, given.producer_epoch, given.coordinator_epoch
    if given.start_offset is not None:
        for producer in describe_producers(connection, partition):
            if producer.transaction_start_offset == given.start_offset:
                producer_id, epoch = producer.producer_id, producer.epoch
                coordinator_epoch = producer.coordinator_epoch
                break
        else:
            raise BarnabasError(
                f"Could not find any open transactions starting at offset {given.start_offset} on partition {partition}"
            )
    abort_transaction(
        connection,
        partition,
        producer_id=producer_id,
        producer_epoch=epoch,
        # -1 before the first marker; no coordinator has a lower epoch.
        coordinator_epoch=max(coordinator_epoch, 0),
    )
    return 0


def _find_hanging(connection: "AdminConnection", given: argparse.Namespace) -> int:
    now_ms = _now_ms()
    found = find_hanging(
        connection,
        topic=given.topic,
        partition=given.partition,
        broker_id=given.broker_id,
        older_than_ms=now_ms - given.max_transaction_timeout * _MS_A_MINUTE,
    )
    _print(given, _HANGING, [_hanging_row(each, now_ms) for each in found], [_hanging_document(each) for each in found])
    return 0


def _hanging_row(found: HangingTransaction, now_ms: int) -> _Row:
    (topic, partition), producer = found.topic_partition, found.producer
    return (
        topic,
        partition,
        producer.producer_id,
        producer.epoch,
        producer.coordinator_epoch,
        producer.transaction_start_offset,
        producer.last_timestamp_ms,
        (now_ms - producer.last_timestamp_ms) // _MS_A_MINUTE,
    )


def _hanging_document(found: HangingTransaction) -> dict[str, object]:
    (topic, partition), producer = found.topic_partition, found.producer
    return {
        "topic": topic,
        "partition": partition,
        "producerId": producer.producer_id,
        "producerEpoch": producer.epoch,
        "coordinatorEpoch": producer.coordinator_epoch,
        "startOffset": producer.transaction_start_offset,
        "lastTimestamp": producer.last_timestamp_ms,
    }


def _fence(connection: "AdminConnection", given: argparse.Namespace) -> int:
    fence_producer(connection, given.transactional_id)
    return 0


def _now_ms() -> int:
    return round(time.time() * 1000)
