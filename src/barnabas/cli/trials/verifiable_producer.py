"""``barnabas verifiable-producer``: numbers as records, and what became of each.

Kafka's ``VerifiableProducer``. With ``--transactional-id``, which Kafka's tool lacks, they
are sent in transactions.
"""

import itertools
import time

from barnabas.cli.connection.properties import client_properties_file
from barnabas.cli.connection.reachability import require_broker
from barnabas.cli.options.tool_parser import BROKERS_HELP, ToolParser, add_connect_timeout
from barnabas.cli.trials.verifiable_output import StopSignals, print_event
from barnabas.client.errors import ClientError
from barnabas.client.producer.producer import OnDelivery, Producer
from barnabas.client.records import Delivery

__all__ = ["main"]


def main(argv: list[str]) -> int:
    """Send until ``--max-messages`` or SIGTERM (0), or Ctrl-C (130).

    The lines say which records failed."""
    parser = _parser()
    given = parser.parse_args(argv)
    if not (given.bootstrap_server or given.broker_list):
        parser.missing("bootstrap-server")
    bootstrap = given.bootstrap_server or given.broker_list
    properties = {**client_properties_file(given.producer_config), "bootstrap.servers": bootstrap, "acks": given.acks}
    if given.transactional_id is None:
        properties.setdefault("retries", "0")
    else:
        properties["transactional.id"] = given.transactional_id
    require_broker(bootstrap, properties, given.connect_timeout, [given.topic])
    stopped = StopSignals()
    tally = _Tally()
    print_event("startup_complete")
    prefix = "" if given.value_prefix is None else f"{given.value_prefix}."
    began = time.monotonic()
    with Producer(properties, on_failure=lambda _: None) as producer:
        transactions = _Transactions(producer, given.transaction_size) if given.transactional_id else None
        for number in itertools.count() if given.max_messages < 0 else range(given.max_messages):
            if stopped.is_set():
                break
            value = f"{prefix}{number}"
            key = None if given.repeating_keys is None else str(number % given.repeating_keys)
            timestamp_ms = None if given.message_create_time < 0 else given.message_create_time + tally.elapsed_ms()
            tally.sent += 1
            if transactions is not None:
                transactions.before_record()
            try:
                producer.send(
                    given.topic,
                    value,
                    key,
                    timestamp_ms=timestamp_ms,
                    on_delivery=tally.reporter(given.topic, key, value),
                )
            except ClientError as error:
                tally.reporter(given.topic, key, value)(None, error)
            if given.throughput > 0:
                ahead_s = tally.sent / given.throughput - (time.monotonic() - began)
                while ahead_s > 0 and not stopped.is_set():
                    producer.poll(min(ahead_s, 0.05))
                    ahead_s = tally.sent / given.throughput - (time.monotonic() - began)
        if transactions is not None:
            transactions.end()
    print_event("shutdown_complete")
    elapsed_s = max(time.monotonic() - began, 1e-9)
    print_event(
        "tool_data",
        sent=tally.sent,
        acked=tally.acknowledged,
        target_throughput=given.throughput,
        avg_throughput=tally.acknowledged / elapsed_s,
    )
    return stopped.exit_code


class _Transactions:
    """Begins and commits; a transaction that cannot be committed is aborted, and the
    next one begins."""

    def __init__(self, producer: Producer[str, str], size: int) -> None:
        self._producer = producer
        self._size = size
        self._count = 0
        """Records of the open transaction."""
        producer.init_transactions()

    def before_record(self) -> None:
        """Raises `ClientError` when the producer cannot continue."""
        if self._count == self._size:
            self.end()
        if not self._count:
            self._producer.begin_transaction()
        self._count += 1

    def end(self) -> None:
        """Commit what is open, and print what became of it."""
        count, self._count = self._count, 0
        if not count:
            return
        try:
            self._producer.commit_transaction()
        except ClientError as error:
            if error.fatal:
                raise
            self._producer.abort_transaction()
            print_event("transaction_aborted", records=count, exception=type(error).__name__, message=str(error))
        else:
            print_event("transaction_committed", records=count)


class _Tally:
    """Records that were sent, and those that were acknowledged."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self.sent = self.acknowledged = 0

    def elapsed_ms(self) -> int:
        return round((time.monotonic() - self._began) * 1000)

    def reporter(self, topic: str, key: str | None, value: str) -> OnDelivery:
        """Prints what became of one record."""

        def report(delivery: Delivery | None, error: ClientError | None) -> None:
            if delivery is None:
                names = {"topic": topic, "key": key, "value": value}
                print_event("producer_send_error", exception=type(error).__name__, message=str(error), **names)
                return
            self.acknowledged += 1
            place = {"offset": delivery.offset, "topic": delivery.topic, "partition": delivery.partition}
            print_event("producer_send_success", key=key, value=value, **place)

        return report


def _parser() -> ToolParser:
    parser = ToolParser(
        "verifiable-producer", "Send increasing numbers to a topic, and print what became of each as JSON."
    )
    add = parser.add_argument
    add("--topic", required=True, help="the topic to send to")
    add("--bootstrap-server", metavar="HOST:PORT[,...]", help=BROKERS_HELP)
    add("--broker-list", metavar="HOST:PORT[,...]", help="the old name of --bootstrap-server")
    add("--max-messages", type=int, default=-1, metavar="N", help="stop after this many; -1 for no end")
    add("--throughput", type=int, default=-1, metavar="N", help="records a second at most; -1 for no limit")
    add("--acks", default="-1", choices=("0", "1", "-1"), help="which acknowledgement to wait for")
    add("--producer.config", "--command-config", dest="producer_config", metavar="FILE", help="a .properties file")
    add("--message-create-time", type=int, default=-1, metavar="MS", help="the first record's timestamp; -1 for now")
    add("--value-prefix", type=int, metavar="N", help="put this number and a point before each value")
    add("--repeating-keys", type=int, metavar="N", help="give records the keys 0 to N-1 in turn")
    add("--transactional-id", metavar="ID", help="send in transactions, as this producer (ours)")
    add("--transaction-size", type=int, default=200, metavar="N", help="records in a transaction (ours)")
    add_connect_timeout(parser, waits=True)
    return parser
