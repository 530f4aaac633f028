"""Transactions of a producer with a ``transactional.id``, through librdkafka.

Whether the brokers have transactions at all is asked first: librdkafka would look for a
coordinator until its time is up.

Every error says what comes next. A `TransactionError`: abort, and begin another transaction. One
that is ``retriable``: make the same call again; until then it is not known whether a commit took
place. One that is ``fatal``, as a `FencedError`: nothing can be done with this producer any more.

In Kafka: `TransactionManager`.
"""

from collections.abc import Mapping
from typing import Any

import confluent_kafka

from barnabas.base.ids import TopicPartition
from barnabas.client.cluster.admin_connection import AdminConnection
from barnabas.client.errors import (
    AuthorizationError,
    ClientError,
    ConfigurationError,
    LibrdkafkaOnlyError,
    RefusedError,
    TransactionError,
    UnsupportedError,
    classify,
)
from barnabas.client.properties.translation import security_properties
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.messages.end_txn import EndTxnRequest

__all__ = ["Transactions"]


class Transactions:
    """The transactional calls of one librdkafka producer."""

    def __init__(self, librdkafka: Any, properties: Mapping[str, Any]) -> None:
        self._librdkafka = librdkafka
        self._properties = properties

    def init(self, timeout_s: float) -> None:
        """Register the ``transactional.id``, which fences older producers that have it.

        Once, before `begin`."""
        self._require_id()
        self._check_support()
        name = self._properties["transactional.id"]
        self._call(f"cannot start transactions of {name}", self._librdkafka.init_transactions, timeout_s)

    def begin(self) -> None:
        """Start a transaction."""
        self._call("cannot begin a transaction", self._librdkafka.begin_transaction)

    def commit(self, timeout_s: float) -> None:
        """Flush and commit; raises `TransactionError` when it must be aborted instead.

        After an error that is ``retriable``, such as `TimedOutError`, call it again.
        """
        self._call("cannot commit the transaction", self._librdkafka.commit_transaction, timeout_s)

    def abort(self, timeout_s: float) -> None:
        """Give the transaction up; consumers at read_committed see none of it."""
        self._call("cannot abort the transaction", self._librdkafka.abort_transaction, timeout_s)

    def send_offsets(self, offsets: Mapping[TopicPartition, int], group_metadata: Any, timeout_s: float) -> None:
        """Commit a group's offsets with the transaction."""
        positions = [confluent_kafka.TopicPartition(topic, number, at) for (topic, number), at in offsets.items()]
        self._call(
            "cannot add offsets to the transaction",
            self._librdkafka.send_offsets_to_transaction,
            positions,
            group_metadata,
            timeout_s,
        )

    def _check_support(self) -> None:
        try:
            connection = AdminConnection(str(self._properties["bootstrap.servers"]), self._security())
        except LibrdkafkaOnlyError:
            return  # librdkafka finds out
        with connection:
            try:
                connection.negotiated(EndTxnRequest)
            except UnsupportedError:
                raise UnsupportedError(
                    ErrorCode.UNSUPPORTED_VERSION,
                    "transactional.id is set, but the brokers have no transactions",
                    remedy="leave transactional.id out",
                ) from None

    def _security(self) -> dict[str, str]:
        return {name: str(value) for name, value in security_properties(self._properties).items()}

    def _require_id(self) -> None:
        if not self._properties.get("transactional.id"):
            raise ConfigurationError("transactional.id is missing: a producer without one has no transactions")

    def _call(self, what: str, function: Any, *arguments: Any) -> None:
        self._require_id()
        try:
            function(*arguments)
        except confluent_kafka.KafkaException as error:
            raise _transaction_error(error.args[0], what) from error


def _transaction_error(error: Any, what: str) -> ClientError:
    """The error with what comes next: librdkafka says it of each."""
    fitting = classify(error, what)
    if error.fatal():
        if isinstance(fitting, AuthorizationError):
            return fitting  # its own remedy comes first: a new producer without the right fails, too
        return _with_remedy(fitting, "make a new producer: this one cannot continue")
    if error.txn_requires_abort():
        message = fitting.message if isinstance(fitting, RefusedError) else str(fitting)
        code = fitting.code if isinstance(fitting, RefusedError) else ErrorCode.UNKNOWN_SERVER_ERROR
        made = TransactionError(code, message, remedy="abort it, and begin another")
        made.name = fitting.name
        return made
    if error.retriable():
        return _with_remedy(fitting, "make the same call again")
    return fitting


def _with_remedy(error: ClientError, remedy: str) -> ClientError:
    error.args = (f"{error} ({remedy})",)
    error.remedy = remedy
    return error
