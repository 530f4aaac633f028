"""`StoreWriter`: appends the leader's records, and is fenced when another instance leads.

Each write is a transaction of one ``transactional.id``, which all instances of a group have in
common. An instance that begins to lead registers it (`StoreWriter.open`): from then on the brokers
refuse every record of the instance that led before, also one that was on its way, or that a process
sends which stood still meanwhile. So a writer that has lost the lead cannot write, whether it knows
or not. Readers read what is committed.

After an error whose outcome is not known the writer is closed, and has to be opened and the topic
read to its end before the next write.

In Confluent's registry: `KafkaStore.put`, without a fence.
"""

import contextlib
import logging
import time
from collections.abc import Mapping, Sequence

from barnabas.client.codecs import BYTES
from barnabas.client.errors import ClientError, TimedOutError, TransactionError
from barnabas.client.producer.producer import Producer
from barnabas.registry.core.decisions import NewRecord

__all__ = ["StoreWriter"]

logger = logging.getLogger(__name__)

_RETRY_S = 0.2


class StoreWriter:
    """Not for several threads at once. Every call blocks."""

    def __init__(self, properties: Mapping[str, str], topic: str, transactional_id: str, timeout_ms: int) -> None:
        self._topic = topic
        self._timeout_s = timeout_ms / 1000
        self._properties = {
            **properties,
            "acks": "all",
            "enable.idempotence": "true",
            "transactional.id": transactional_id,
            "transaction.timeout.ms": str(max(1000, timeout_ms)),
            "delivery.timeout.ms": str(timeout_ms),
            "linger.ms": "0",
            "compression.type": "none",
        }
        self._producer: Producer[bytes, bytes] | None = None

    @property
    def is_open(self) -> bool:
        """Whether it can write: no other instance led since, as far as it knows."""
        return self._producer is not None

    def open(self) -> None:
        """Fence the writers before this one. Raises `ClientError`."""
        self.close()
        producer: Producer[bytes, bytes] = Producer(
            self._properties, serializer=BYTES, key_serializer=BYTES, close_timeout_s=0.1
        )
        end = time.monotonic() + self._timeout_s
        try:
            while True:
                try:
                    producer.init_transactions(max(1.0, end - time.monotonic()))
                    break
                except ClientError as error:  # the writer before may have a transaction that must end first
                    if not error.retriable or error.fatal or time.monotonic() >= end:
                        raise
                time.sleep(_RETRY_S)
        except BaseException:
            _let_go(producer)
            raise
        self._producer = producer

    def append(self, records: Sequence[NewRecord]) -> int:
        """Write records together, or none of them; returns the last one's offset.

        Raises `ClientError`; whether they were written is not known then, and the writer is closed.
        """
        producer = self._producer
        if producer is None:
            raise TransactionError(-1, "the writer is not open")
        try:
            producer.begin_transaction()
            receipts = [producer.send(self._topic, value, key, partition=0) for key, value in records]
            self._commit(producer)
            return receipts[-1].result(self._timeout_s).offset
        except BaseException:
            self.close()
            raise

    def _commit(self, producer: "Producer[bytes, bytes]") -> None:
        end = time.monotonic() + self._timeout_s
        while True:
            try:
                producer.commit_transaction(max(0.1, end - time.monotonic()))
                return
            except TransactionError:
                with contextlib.suppress(ClientError):
                    producer.abort_transaction(1.0)
                raise
            except ClientError as error:
                if not error.retriable or error.fatal:
                    raise
                if time.monotonic() >= end:
                    raise TimedOutError(f"the records were not committed in time: {error}") from error
            time.sleep(_RETRY_S)

    def close(self) -> None:
        """Let the producer go: what it has not committed is given up."""
        producer, self._producer = self._producer, None
        if producer is not None:
            _let_go(producer)


def _let_go(producer: "Producer[bytes, bytes]") -> None:
    with contextlib.suppress(ClientError):
        producer.close(0.1)
