"""How ``dump-log`` prints the coordinators' records: ``--offsets-decoder`` and
``--transaction-log-decoder``."""

import json
from typing import Any

from barnabas.base.errors import BarnabasError
from barnabas.cli.output.message_json import message_document
from barnabas.wire.kafka.consumer_protocol import PROTOCOL_TYPE, decode_assignment, decode_subscription
from barnabas.wire.kafka.coordinator_records import (
    GroupMetadataValue,
    TransactionLogValue,
    decode_key,
    decode_transaction_key,
    decode_value,
)
from barnabas.wire.kafka.records.records import Record

__all__ = ["decode_offsets_record", "decode_transaction_record"]

_TRANSACTION_STATES = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "PrepareEpochFence",
)


def decode_offsets_record(record: Record) -> tuple[str | None, str | None]:
    """Key and value of a record of ``__consumer_offsets`` as JSON, in the form of Kafka's tool."""
    if record.key is None:
        raise BarnabasError(
            f"Failed to decode message at offset {record.offset} using offset topic decoder (message had a missing key)"
        )
    try:
        key = decode_key(record.key)
        if key is None:
            return f"Unknown record type {_version(record.key)} at offset {record.offset}, skipping.", None
        key_text = _json({"type": str(_version(record.key)), "data": message_document(key, _version(record.key))})
        if record.value is None:
            return key_text, "<DELETE>"
        value, version = decode_value(key, record.value), _version(record.value)
        document = message_document(value, version)
        if isinstance(value, GroupMetadataValue) and value.protocol_type == PROTOCOL_TYPE:
            _open_members(value, document)
        return key_text, _json({"version": str(version), "data": document})
    except BarnabasError as error:
        return f"Error at offset {record.offset}, skipping. {error}", None


def decode_transaction_record(record: Record) -> tuple[str | None, str | None]:
    """Key and value of a record of ``__transaction_state``, in the form of Kafka's tool."""
    key = decode_transaction_key(record.key or b"")
    if key is None:
        return f"unknown::version={_version(record.key or b'')}", None
    key_text = f"transaction_metadata::transactionalId={key.transactional_id}"
    if record.value is None:
        return key_text, "<DELETE>"
    value = decode_value(key, record.value)
    assert isinstance(value, TransactionLogValue)
    status = value.transaction_status
    state = _TRANSACTION_STATES[status] if 0 <= status < len(_TRANSACTION_STATES) else str(status)
    partitions = [
        f"{topic.topic}-{partition}"
        for topic in value.transaction_partitions or ()
        for partition in topic.partition_ids
    ]
    return key_text, (
        f"producerId:{value.producer_id},producerEpoch:{value.producer_epoch},state={state},"
        f"partitions=[{','.join(partitions)}],"
        f"txnLastUpdateTimestamp={value.transaction_last_update_timestamp_ms},"
        f"txnTimeoutMs={value.transaction_timeout_ms}"
    )


def _open_members(value: GroupMetadataValue, document: dict[str, Any]) -> None:
    """Show what the consumers' protocol keeps in a member; what cannot be read stays as bytes."""
    for member, shown in zip(value.members, document["members"], strict=True):
        for name, data, decode in (
            ("subscription", member.subscription, decode_subscription),
            ("assignment", member.assignment, decode_assignment),
        ):
            try:
                shown[name] = message_document(decode(data), min(_version(data), 3))
            except BarnabasError:
                continue


def _version(data: bytes) -> int:
    return int.from_bytes(data[:2], "big", signed=True)


def _json(document: dict[str, Any]) -> str:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))
