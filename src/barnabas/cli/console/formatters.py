"""How ``console-consumer`` writes records: Kafka's formatters by their Java names,
and by short ones of ours.

A formatter is made from the ``--property`` options and turns a record into the bytes
that go to standard output.
"""

import json
import sys
from collections.abc import Callable, Mapping
from typing import Any

from barnabas.base.errors import ConfigError
from barnabas.base.record_times import NO_TIME
from barnabas.cli.connection.suggestions import warn_of_unknown
from barnabas.cli.output.message_json import message_document
from barnabas.cli.output.readable import record_document
from barnabas.cli.output.terminal import escaped_bytes_for, escaped_for, print_lines
from barnabas.client.codecs import Decoder, decoder, load_dotted
from barnabas.client.records import Record

__all__ = ["Formatter", "RawRecord", "formatter"]

RawRecord = Record[bytes, bytes]
Formatter = Callable[[RawRecord], bytes]

_TIMESTAMP_TYPES = {-1: "NoTimestampType", 0: "CreateTime", 1: "LogAppendTime"}


def formatter(name: str, properties: Mapping[str, str]) -> Formatter:
    """The formatter of a class name; raises `ConfigError` for one that does not exist."""
    short = name.rsplit(".", 1)[-1].rsplit("$", 1)[-1].removesuffix("MessageFormatter").lower()
    is_known = name.startswith(("kafka.", "org.apache.kafka.")) or "." not in name
    made = _FORMATTERS.get(short) if is_known else None
    if made is not None:
        if made is _Default:
            warn_of_unknown(properties, _DEFAULT_PROPERTIES, "this formatter")
        return made(properties)
    if is_known:
        raise ConfigError(f"there is no formatter {name}; there are {', '.join(sorted(filter(None, _FORMATTERS)))}")
    own: Formatter = load_dotted(name, "--formatter")(properties)
    return own


_DEFAULT_PROPERTIES = (
    *("print.key", "print.value", "print.timestamp", "print.partition", "print.offset", "print.epoch", "print.headers"),
    *("key.separator", "line.separator", "headers.separator", "null.literal"),
    *("key.deserializer", "value.deserializer", "headers.deserializer"),
)


class _Default:
    """Timestamp, partition, offset, headers, key, value: those that ``print.*`` asks
    for, in this order."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        def literal(name: str, default: str) -> bytes:
            return properties.get(name, default).encode()

        self._key_separator, self._line_separator = literal("key.separator", "\t"), literal("line.separator", "\n")
        self._headers_separator, self._null = literal("headers.separator", ","), literal("null.literal", "null")
        self._decode_key = _text_decoder(properties, "key.deserializer")
        self._decode_value = _text_decoder(properties, "value.deserializer")
        self._decode_header = _text_decoder(properties, "headers.deserializer")
        columns: dict[str, tuple[str, Callable[[RawRecord], bytes]]] = {
            "print.timestamp": ("false", self._timestamp),
            "print.partition": ("false", lambda record: b"Partition:%d" % record.partition),
            "print.offset": ("false", lambda record: b"Offset:%d" % record.offset),
            "print.epoch": (
                "false",
                lambda record: b"Epoch:%d" % (-1 if record.leader_epoch is None else record.leader_epoch),
            ),
            "print.headers": ("false", self._headers),
            "print.key": (
                "false",
                lambda record: escaped_bytes_for(self._text(record.key, self._decode_key), sys.stdout),
            ),
            "print.value": ("true", lambda record: self._text(record.value, self._decode_value)),
        }
        self._columns = [
            column
            for name, (default, column) in columns.items()
            if properties.get(name, default).strip().lower() == "true"
        ]

    def __call__(self, record: RawRecord) -> bytes:
        if not self._columns:
            return b""
        return self._key_separator.join([column(record) for column in self._columns]) + self._line_separator

    def _text(self, data: bytes | None, decode: Decoder | None) -> bytes:
        if data is None:
            return self._null
        return data if decode is None else str(decode(data)).encode()

    def _headers(self, record: RawRecord) -> bytes:
        if not record.headers:
            return b"NO_HEADERS"
        return self._headers_separator.join(
            escaped_bytes_for(name.encode() + b":" + self._text(value, self._decode_header), sys.stdout)
            for name, value in record.headers
        )

    def _timestamp(self, record: RawRecord) -> bytes:
        return (_typed_time(record) or "NO_TIMESTAMP").encode()


def _typed_time(record: RawRecord) -> str:
    """``CreateTime:-1`` for a record without a time, as in Kafka; "" where its format has none."""
    if record.timestamp_type < 0:
        return ""
    return (
        f"{_TIMESTAMP_TYPES[record.timestamp_type]}:{NO_TIME if record.timestamp_ms is None else record.timestamp_ms}"
    )


def _text_decoder(properties: Mapping[str, str], name: str) -> Decoder | None:
    given = properties.get(name)
    return decoder(given, name) if given else None


def _logging(properties: Mapping[str, str]) -> Formatter:
    """As the default one, and key and value on standard error."""
    plain = _Default(properties)

    def text_of(data: bytes) -> str:
        return data.decode(errors="backslashreplace")

    def write(record: RawRecord) -> bytes:
        typed = _typed_time(record)
        when = f"{typed}, " if typed else ""
        key = "null " if record.key is None else escaped_for(text_of(record.key), sys.stderr) + ", "
        value = "null" if record.value is None else text_of(record.value)
        print_lines(f"{when}key:{key}value:{value}", file=sys.stderr)
        return plain(record)

    return write


def _nothing(_: Mapping[str, str]) -> Formatter:
    return lambda _record: b""


def _json(_: Mapping[str, str]) -> Formatter:
    """One JSON document a line, as of `barnabas tail --output json`."""

    def write(record: RawRecord) -> bytes:
        document = record_document(record, timestamp_type=_TIMESTAMP_TYPES[record.timestamp_type])
        return json.dumps(document, ensure_ascii=False).encode() + b"\n"

    return write


def _offsets(_: Mapping[str, str]) -> Formatter:
    """Committed offsets in ``__consumer_offsets``, as JSON."""
    from barnabas.wire.kafka.coordinator_records import OffsetCommitKey

    return _coordinator_records(OffsetCommitKey)


def _group_metadata(_: Mapping[str, str]) -> Formatter:
    """Groups and their members in ``__consumer_offsets``, as JSON."""
    from barnabas.wire.kafka.coordinator_records import GroupMetadataKey

    return _coordinator_records(GroupMetadataKey)


def _transaction_log(_: Mapping[str, str]) -> Formatter:
    """The states of transactional ids in ``__transaction_state``, as JSON.

    As Kafka 3.9's formatter writes them, and the tagged fields of Kafka 4's records."""
    from barnabas.wire.kafka.coordinator_records import decode_transaction_key, decode_transaction_value

    def document(data: bytes | None, decode: Callable[[bytes], Any]) -> dict[str, Any] | None:
        if data is None:
            return None
        message = decode(data)
        return {"version": _version(data), "data": "unknown"} if message is None else _versioned(message, data)

    def write(record: RawRecord) -> bytes:
        key, value = document(record.key, decode_transaction_key), document(record.value, decode_transaction_value)
        return json.dumps({"key": key, "value": value}, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"

    return write


def _coordinator_records(key_type: type[Any]) -> Formatter:
    from barnabas.wire.kafka.coordinator_records import decode_key, decode_value

    def write(record: RawRecord) -> bytes:
        key = decode_key(record.key) if record.key else None
        if key is None or not isinstance(key, key_type):
            return b""
        value = None if record.value is None else decode_value(key, record.value)
        document = {"key": _versioned(key, record.key), "value": value and _versioned(value, record.value)}
        return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"

    return write


def _versioned(message: Any, data: bytes | None) -> dict[str, Any]:
    """A message with the version in front of its bytes; names as in Kafka's JSON."""
    version = _version(data or b"")
    return {"version": version, "data": message_document(message, version)}


def _version(data: bytes) -> int:
    return int.from_bytes(data[:2], "big", signed=True)


_FORMATTERS: dict[str, Callable[[Mapping[str, str]], Formatter]] = {
    "default": _Default,
    "logging": _logging,
    "noop": _nothing,
    "json": _json,
    "offsets": _offsets,
    "groupmetadata": _group_metadata,
    "transactionlog": _transaction_log,
}
