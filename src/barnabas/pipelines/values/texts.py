"""One form as text for times and other values, in every output that has no type of
its own for them.

A time is ``2013-01-01T05:00:00.000000Z``: ISO 8601 in UTC, always with microseconds, so texts
sort as times do. A time without a zone lacks the Z. Topics get the same form from Spark, by
`JSON_OPTIONS`.
"""

import datetime
import decimal
import json
import math
from typing import Any

__all__ = [
    "FIRST_TIME",
    "JSON_OPTIONS",
    "LAST_TIME",
    "NOT_UTF8",
    "RECORD_TIME_OUT_OF_RANGE",
    "TIME_OUT_OF_RANGE",
    "as_json",
    "as_text_value",
    "json_values",
    "text_of_bytes",
    "time_text",
]

JSON_OPTIONS = {
    "timeZone": "UTC",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
    "ignoreNullFields": "false",
}
"""Options of Spark's ``to_json`` that give the same texts, whatever the session's time zone is."""
FIRST_TIME, LAST_TIME = "0001-01-01 00:00:00.000000", "9999-12-31 23:59:59.999999"
"""The times, in UTC, between which all outputs, and Python, have times."""
TIME_OUT_OF_RANGE = "beyond the years 1 to 9999 (a time in milliseconds is timestamp_millis of a bigint)"
"""The end of a message about a time that outputs cannot hold. A number is taken for
seconds, as everywhere in Spark."""
NOT_UTF8 = ", which is not UTF-8: take hex(...) or base64(...) of its bytes"
"""The end of a message about a text that is none."""
RECORD_TIME_OUT_OF_RANGE = "beyond the years 1 to 9999 (records have times in milliseconds; `barnabas tail` shows it)"
"""The same for the time of a record, which its producer chose."""


def text_of_bytes(value: bytes) -> str:
    """Bytes as a text, different for different bytes: what is not UTF-8 becomes \\x
    and its hexadecimal digits.

    As of `barnabas.pipelines.frames.keys`, in Spark.
    """
    try:
        return value.decode()
    except UnicodeDecodeError:
        return f"\\x{value.hex()}"


def time_text(value: datetime.datetime) -> str:
    """The time as text; one with a zone is brought to UTC first."""
    if value.tzinfo is None:
        return value.isoformat(timespec="microseconds")
    return value.astimezone(datetime.UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def as_text_value(value: Any) -> Any:
    """Times, dates and decimals as texts, arrays and structs as JSON; other values as they are."""
    if isinstance(value, datetime.datetime):
        return time_text(value)
    if isinstance(value, datetime.date | decimal.Decimal):
        return str(value)
    return as_json(value) if isinstance(value, list | dict) else value


def json_values(value: Any) -> Any:
    """The same in JSON's types, for a document that is printed; as `as_json` has it."""
    return json.loads(as_json(value))


def as_json(value: Any) -> str:
    """An array, a struct or a map as JSON, its values as `as_text_value` gives them, and
    NaN and Infinity as texts."""
    try:
        return json.dumps(value, default=_inner, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError):
        return json.dumps(_finite(value), default=_inner, separators=(",", ":"), ensure_ascii=False)


def _finite(value: Any) -> Any:
    """The same with texts, as Spark's to_json writes them, for numbers that JSON does not
    have, and for keys of maps."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {_name(name): _finite(each) for name, each in value.items()}
    return [_finite(each) for each in value] if isinstance(value, list | tuple) else value


def _name(key: Any) -> str:
    """A key of a map; JSON has texts only."""
    if isinstance(key, bool | int | float):
        return json.dumps(_finite(key)).strip('"')
    return str(_inner(key))


def _inner(value: Any) -> Any:
    if isinstance(value, bytes):
        import base64

        return base64.b64encode(value).decode()  # as Spark's to_json does
    text = as_text_value(value)
    # Some value, such as an interval, would otherwise be asked for again and again.
    return str(value) if text is value else text
