"""How transactions are stored: the records of ``__transaction_state``, between the
coordinator and their bytes.

The key is a transactional id, the value the state of its newest transaction; a record without a
value is a tombstone. Values are written in version 0 as Apache Kafka 3.9 does, and in version 1
while the feature transaction.version is finalized; both are read.

In Kafka: `TransactionLog`.
"""

from typing import NamedTuple

from barnabas.broker.transactions.states import TransactionState, state_of_number
from barnabas.broker.transactions.transaction import NO_PARTITIONS, Partitions, Transition
from barnabas.wire.kafka.coordinator_records import (
    TransactionLogKey,
    TransactionLogValue,
    TransactionPartitions,
    decode_transaction_key,
    decode_value,
    encode_key,
    encode_transaction_value,
)
from barnabas.wire.kafka.errors import MalformedMessageError
from barnabas.wire.kafka.records.batch_header import NO_PRODUCER_EPOCH

__all__ = ["TransactionRecord", "decode_transaction_state", "encode_transaction_state", "encode_transactional_id"]

_STORED = frozenset(TransactionState) - {TransactionState.DEAD, TransactionState.PREPARE_EPOCH_FENCE}


class TransactionRecord(NamedTuple):
    """A transactional id with its newest transaction, or its tombstone."""

    transactional_id: str
    value: Transition | None


def encode_transactional_id(transactional_id: str) -> bytes:
    """The key of a transactional id's records. Raises ValueError for one that is too long."""
    return encode_key(TransactionLogKey(transactional_id=transactional_id))


def encode_transaction_state(value: Transition, *, is_flexible: bool) -> bytes:
    """The value of a record."""
    partitions = None
    if value.state is not TransactionState.EMPTY:
        partitions = [
            TransactionPartitions(topic=topic, partition_ids=sorted(numbers))
            for topic, numbers in value.partitions.items()
        ]
    return encode_transaction_value(
        TransactionLogValue(
            producer_id=value.producer_id,
            previous_producer_id=value.previous_producer_id,
            next_producer_id=value.next_producer_id,
            producer_epoch=value.producer_epoch,
            transaction_timeout_ms=value.timeout_ms,
            transaction_status=value.state.number,
            transaction_partitions=partitions,
            transaction_last_update_timestamp_ms=value.update_ms,
            transaction_start_timestamp_ms=value.start_ms,
            client_transaction_version=value.client_version,
        ),
        is_flexible=is_flexible,
    )


def decode_transaction_state(key_bytes: bytes, value_bytes: bytes | None) -> TransactionRecord | None:
    """A record from its key and value; None for kinds that we do not know.

    Raises `MalformedMessageError`."""
    key = decode_transaction_key(key_bytes)
    if key is None:
        return None
    if value_bytes is None:
        return TransactionRecord(key.transactional_id, None)
    value = decode_value(key, value_bytes)
    assert isinstance(value, TransactionLogValue)
    state = state_of_number(value.transaction_status)
    if state not in _STORED:
        raise MalformedMessageError(f"a transaction in the state {value.transaction_status} is never stored")
    return TransactionRecord(
        key.transactional_id,
        Transition(
            state,
            value.producer_id,
            value.producer_epoch,
            value.previous_producer_id,
            # Not stored: a request that is repeated across a hand-over is a new one.
            NO_PRODUCER_EPOCH,
            value.next_producer_id,
            value.transaction_timeout_ms,
            _partitions(value),
            value.transaction_start_timestamp_ms,
            value.transaction_last_update_timestamp_ms,
            value.client_transaction_version,
        ),
    )


def _partitions(value: TransactionLogValue) -> Partitions:
    if not value.transaction_partitions:
        return NO_PARTITIONS
    partitions: dict[str, frozenset[int]] = {}
    for topic in value.transaction_partitions:
        numbers = frozenset(topic.partition_ids) | partitions.get(topic.topic, frozenset())
        if numbers:
            partitions[topic.topic] = numbers
    return partitions
