"""What consumer instances are asked of partitions, and records as version 2 shows them. Pure.

In Confluent's proxy: ConsumerSeekRequest, ConsumerOffsetCommitRequest and BinaryConsumerRecord.
"""

import json
from collections.abc import Callable
from typing import Any, NamedTuple

from barnabas.base.ids import TopicPartition
from barnabas.base.record_times import instant_ms
from barnabas.client.records import Record
from barnabas.rest.core.embedded import EmbeddedFormat, binary_text
from barnabas.rest.errors import RestCode, RestError

__all__ = [
    "OffsetToCommit",
    "SeekWish",
    "ValueText",
    "consumed_record_text",
    "offsets_to_commit",
    "partitions_of",
    "seek_wishes",
    "subscribed_topics",
    "value_text_of",
]

_LARGEST = (1 << 63) - 1
_MOST = 100_000

ValueText = Callable[[bytes | None], str]
"""The JSON of a key or a value. Raises ValueError."""


class OffsetToCommit(NamedTuple):
    """The next offset to read, and a text that is kept with it."""

    offset: int
    metadata: str = ""


class SeekWish(NamedTuple):
    """Where a partition is to be read on: at an offset, or at a time."""

    offset: int | None
    time_ms: int | None = None


def _wrong(message: str) -> RestError:
    return RestError(RestCode.UNPROCESSABLE, message)


def _items(document: Any, name: str) -> list[dict[str, Any]]:
    found = document.get(name) if isinstance(document, dict) else None
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found) or len(found) > _MOST:
        raise _wrong(f"{name}: a list of objects is expected")
    return found


def _place(item: dict[str, Any]) -> TopicPartition:
    topic, partition = item.get("topic"), item.get("partition")
    if not isinstance(topic, str) or not topic:
        raise _wrong("topic: a text is expected")
    if isinstance(partition, bool) or not isinstance(partition, int) or not 0 <= partition < 1 << 31:
        raise _wrong("partition: a whole number is expected")
    return TopicPartition(topic, partition)


def partitions_of(document: Any) -> list[TopicPartition]:
    """The partitions of a request. Raises `RestError`."""
    return [_place(item) for item in _items(document, "partitions")]


def offsets_to_commit(document: Any) -> dict[TopicPartition, OffsetToCommit] | None:
    """What is committed: a request names the last record that was processed. None for all that was
    read. Raises `RestError`."""
    if document is None or document == {}:
        return None
    found = {}
    for item in _items(document, "offsets"):
        metadata = item.get("metadata") or ""
        if not isinstance(metadata, str):
            raise _wrong("metadata: a text is expected")
        found[_place(item)] = OffsetToCommit(_offset(item) + 1, metadata)
    return found


def _offset(item: dict[str, Any]) -> int:
    offset = item.get("offset")
    if isinstance(offset, bool) or not isinstance(offset, int) or not 0 <= offset < _LARGEST:
        raise _wrong("offset: a whole number is expected")
    return offset


def seek_wishes(document: Any) -> dict[TopicPartition, SeekWish]:
    """Where to read on. Raises `RestError`."""
    if not isinstance(document, dict) or not document.keys() <= {"offsets", "timestamps"}:
        raise _wrong("offsets or timestamps are expected")
    found = {}
    if "offsets" in document:
        found.update({_place(item): SeekWish(_offset(item)) for item in _items(document, "offsets")})
    if "timestamps" in document:
        for item in _items(document, "timestamps"):
            try:
                found[_place(item)] = SeekWish(None, instant_ms(str(item.get("timestamp"))))
            except ValueError:
                raise _wrong("timestamp: a time such as 2021-02-05T19:14:42Z is expected") from None
    return found


def subscribed_topics(document: Any) -> list[str]:
    """The topics of a subscription; a pattern begins with ``^``. Raises `RestError`."""
    given = document if isinstance(document, dict) else {}
    topics, pattern = given.get("topics"), given.get("topic_pattern")
    if (topics is None) == (pattern is None):
        raise _wrong("topics or topic_pattern is expected, and not both")
    if pattern is not None:
        if not isinstance(pattern, str) or not pattern:
            raise _wrong("topic_pattern: a regular expression is expected")
        return [pattern if pattern.startswith("^") else f"^({pattern})$"]
    if not isinstance(topics, list) or not topics or not all(isinstance(each, str) and each for each in topics):
        raise _wrong("topics: a list of names is expected")
    if any(each.startswith("^") for each in topics):
        raise _wrong("topics: a name cannot begin with ^")
    return topics


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


_DECODER = json.JSONDecoder(parse_constant=_no_constant)


def _binary(data: bytes | None) -> str:
    return "null" if data is None else f'"{binary_text(data)}"'


def _string(data: bytes | None) -> str:
    return "null" if data is None else json.dumps(data.decode(), ensure_ascii=False)


def _json(data: bytes | None) -> str:
    """The text of the value as it is, on one line."""
    if data is None:
        return "null"
    text = data.decode()
    try:
        _DECODER.decode(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    # Within a text of JSON there is no end of a line, so each stands between two values.
    return text.replace("\n", " ").replace("\r", " ")


def value_text_of(form: EmbeddedFormat, decode: Callable[[bytes], Any] | None = None) -> ValueText:
    """What makes the JSON of keys and values in a format. ``decode`` is for those with a schema."""
    plain = {EmbeddedFormat.BINARY: _binary, EmbeddedFormat.STRING: _string, EmbeddedFormat.JSON: _json}
    if form in plain:
        return plain[form]
    assert decode is not None, "values with a schema need a registry"
    read = decode

    def text(data: bytes | None) -> str:
        return "null" if data is None else json.dumps(read(data), ensure_ascii=False, allow_nan=False)

    return text


def consumed_record_text(record: Record[bytes, bytes], key_text: ValueText, value_text: ValueText) -> str:
    """A record as version 2 shows it. Raises ValueError."""
    return (
        f'{{"topic":"{record.topic}","key":{key_text(record.key)},"value":{value_text(record.value)},'
        f'"partition":{record.partition},"offset":{record.offset}}}'
    )
