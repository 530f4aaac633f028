"""Records for people: text as it is, JSON in several lines on a terminal, other bytes with
escapes; and JSON lines."""

import base64
import json
from typing import Any

from barnabas.base.json_text import parse_json
from barnabas.base.record_times import time_as_text
from barnabas.cli.output.terminal import shown_bytes
from barnabas.client.records import Record

__all__ = ["json_line", "readable", "record_document", "record_text"]


_LINES = "\n\t"


def readable(data: bytes | None, *, pretty: bool = False) -> str:
    """Bytes as a person reads them."""
    if data is None:
        return "null"
    if pretty and data[:1] in (b"{", b"["):
        try:
            return json.dumps(parse_json(data.decode()), indent=2, ensure_ascii=False)
        except ValueError:
            pass
    return shown_bytes(data, _LINES)


def record_text(record: Record[bytes, bytes], *, pretty: bool) -> str:
    """One record: its place, its time, its key and its value."""
    key = "" if record.key is None else f"{shown_bytes(record.key, '' if pretty else _LINES)} "
    value = readable(record.value, pretty=pretty)
    head = f"{record.partition}:{record.offset} {time_as_text(record.timestamp_ms)} {key}"
    return head + ("\n" if "\n" in value else "") + value


def json_line(record: Record[bytes, bytes]) -> str:
    """One record as a JSON document in one line: `record_document`."""
    return json.dumps(record_document(record), ensure_ascii=False)


def record_document(record: Record[bytes, bytes], **more: Any) -> dict[str, Any]:
    """One record, with ``more`` behind its timestamp.

    Bytes that are not UTF-8 have escapes, as which a text may read, too; so ``key_base64`` and
    the like say what they are.
    """
    values = [value for _, value in record.headers]
    document: dict[str, Any] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        **more,
        "headers": [[name, _text(value)] for name, value in record.headers],
        "key": _text(record.key),
        "value": _text(record.value),
    }
    document |= {
        f"{name}_base64": _base64(data)
        for name, data in (("key", record.key), ("value", record.value))
        if _is_binary(data)
    }
    if any(map(_is_binary, values)):
        document["headers_base64"] = [[name, _base64(value)] for name, value in record.headers]
    return document


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode(errors="backslashreplace")


def _base64(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _is_binary(data: bytes | None) -> bool:
    try:
        (data or b"").decode()
    except UnicodeDecodeError:
        return True
    return False
