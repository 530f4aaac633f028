"""Server-sent events: the text of an event, and where a stream is. Pure.

Source: the HTML standard, section 9.2. A line ``id:`` says where the stream is; a browser that
connects again sends the last one back in the header Last-Event-ID.

Confluent's proxy has no counterpart.
"""

import json
import re
from collections.abc import Mapping

from barnabas.base.record_times import instant_text
from barnabas.client.records import Record
from barnabas.rest.core.embedded import binary_text
from barnabas.rest.core.read_requests import ValueText
from barnabas.rest.errors import RestCode, RestError

__all__ = ["KEEP_ALIVE", "error_event", "position_line", "positions_of", "record_event", "start_offset"]

KEEP_ALIVE = b": keep-alive\n\n"
"""A comment, which readers skip."""
_POSITION = re.compile(r"(\d{1,10}):(\d{1,19})")
_LARGEST = (1 << 63) - 1
_MOST_DIGITS = 19


def record_event(record: Record[bytes, bytes], key_text: ValueText, value_text: ValueText) -> bytes:
    """The event of a record; of one that is not in the format, with the reason."""
    when = None if record.timestamp_ms is None else instant_text(record.timestamp_ms)
    head = (
        f'{{"topic":"{record.topic}","partition":{record.partition},"offset":{record.offset},'
        f'"timestamp":{json.dumps(when)}'
    )
    headers = json.dumps(
        [{"name": name, "value": None if value is None else binary_text(value)} for name, value in record.headers]
    )
    try:
        rest = f'"headers":{headers},"key":{key_text(record.key)},"value":{value_text(record.value)}}}'
    except ValueError as error:
        rest = f'"error":{json.dumps(f"the record is not in this format: {str(error)[:200]}")}}}'
    return f"data: {head},{rest}\n\n".encode("utf-8", "backslashreplace")


def error_event(error: RestError) -> bytes:
    """The event that ends a stream."""
    return f"event: error\ndata: {json.dumps(error.document)}\n\n".encode()


def position_line(cursors: Mapping[int, int]) -> bytes:
    """Where the stream is: the next offset of each partition. It makes no event."""
    return ("id: " + ",".join(f"{partition}:{offset}" for partition, offset in cursors.items()) + "\n\n").encode()


def positions_of(text: str) -> dict[int, int]:
    """The offsets of a header Last-Event-ID, by partition. Raises `RestError`."""
    found = {}
    for part in filter(None, text.split(",")):
        pair = _POSITION.fullmatch(part.strip())
        if pair is None or int(pair[2]) > _LARGEST:
            raise RestError(RestCode.BAD_REQUEST, "Last-Event-ID: PARTITION:OFFSET,... is expected")
        found[int(pair[1])] = int(pair[2])
    return found


def start_offset(text: str) -> int | None:
    """The offset that a query names: a number, None for latest, and 0 for earliest, which is moved
    to the first offset of a partition as all are that are too small. Raises `RestError`."""
    if text == "latest":
        return None
    if text == "earliest":
        return 0
    if not (text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS and int(text) <= _LARGEST):
        raise RestError(RestCode.BAD_REQUEST, "offset: a number, latest or earliest is expected")
    return int(text)
