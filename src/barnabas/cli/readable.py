"""Records for people: text as it is, JSON in several lines on a terminal, other bytes with escapes; and JSON lines."""

import json

from barnabas.base.json_text import parse_json
from barnabas.base.record_times import time_as_text
from barnabas.cli.terminal import escaped
from barnabas.client.records import Record

__all__ = ["json_line", "readable", "record_text"]


def readable(data: bytes | None, *, pretty: bool = False) -> str:
    """Bytes as a person reads them."""
    if data is None:
        return "null"
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return repr(data)[2:-1]
    if pretty and text[:1] in "{[":
        try:
            return json.dumps(parse_json(text), indent=2, ensure_ascii=False)
        except ValueError:
            pass
    return escaped(text, "\n\t")


def record_text(record: Record[bytes, bytes], *, pretty: bool) -> str:
    """One record: its place, its time, its key and its value."""
    key = "" if record.key is None else f"{readable(record.key)} "
    if pretty:
        key = escaped(key)
    value = readable(record.value, pretty=pretty)
    head = f"{record.partition}:{record.offset} {time_as_text(record.timestamp_ms)} {key}"
    return head + ("\n" if "\n" in value else "") + value


def json_line(record: Record[bytes, bytes]) -> str:
    """One record as a JSON document in one line; bytes that are not UTF-8 have escapes."""

    def text(data: bytes | None) -> str | None:
        return None if data is None else data.decode(errors="backslashreplace")

    document = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "headers": [[name, text(value)] for name, value in record.headers],
        "key": text(record.key),
        "value": text(record.value),
    }
    return json.dumps(document, ensure_ascii=False)
