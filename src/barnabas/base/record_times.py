"""A record's time: milliseconds since 1970, a signed 64-bit number that its producer
chooses, -1 for none.

It may be anything: clients send microseconds or nanoseconds by mistake, and times before 1970 are
allowed. Python's times end with the year 9999, and so do those of most outputs. All places that
show or convert such a time do it with these functions, so that what does not fit has the same
result everywhere: no time, and the number as text.

In Kafka: `RecordBatch.NO_TIMESTAMP`, `ConsumerRecord.timestamp`.
"""

from datetime import UTC, datetime, timedelta, tzinfo

__all__ = [
    "FIRST_MS",
    "LAST_MS",
    "NO_TIME",
    "instant_ms",
    "instant_text",
    "known_time",
    "microseconds",
    "searched_ms",
    "time_as_text",
    "time_in_zone",
]

NO_TIME = -1
"""A record without a time."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TEXT_LENGTH = len("2026-01-01 00:00:00.000")
FIRST_MS = (datetime(1, 1, 1, tzinfo=UTC) - _EPOCH) // timedelta(milliseconds=1)
LAST_MS = (datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC) - _EPOCH) // timedelta(milliseconds=1)
"""The last millisecond of the year 9999; `FIRST_MS` is the first one of the year 1."""


def known_time(timestamp_ms: int) -> int | None:
    """The number of a record, or None where it stands for no time."""
    return None if timestamp_ms == NO_TIME else timestamp_ms


def time_in_zone(timestamp_ms: int, zone: tzinfo | None = None) -> datetime | None:
    """The time in the zone, or in this machine's; None for one beyond the years 1 to 9999."""
    if not FIRST_MS <= timestamp_ms <= LAST_MS:
        return None
    try:
        return (_EPOCH + timedelta(milliseconds=timestamp_ms)).astimezone(zone)
    except (OverflowError, ValueError, OSError):  # the zone's offset leads out of these years
        return None


def time_as_text(timestamp_ms: int | None, zone: tzinfo | None = None) -> str:
    """``2026-11-22 09:30:00.000`` in the zone, or in this machine's.

    Dashes without a time; otherwise ``1764201600000000 ms``. 23 characters, so that
    lines stay aligned.
    """
    if timestamp_ms is None or timestamp_ms == NO_TIME:
        return "-" * _TEXT_LENGTH
    when = time_in_zone(timestamp_ms, zone)
    if when is None:
        return f"{timestamp_ms} ms".ljust(_TEXT_LENGTH)
    return when.replace(tzinfo=None).isoformat(" ", "milliseconds")


def microseconds(timestamp_ms: int) -> int | None:
    """The time as Spark and Arrow keep it.

    None where there is none, and beyond the years 1 to 9999."""
    return timestamp_ms * 1000 if timestamp_ms != NO_TIME and FIRST_MS <= timestamp_ms <= LAST_MS else None


def searched_ms(when: datetime) -> int:
    """A time to search records by; with a zone.

    It is 0 at least: to a broker negative numbers mean ends of the log."""
    return max(0, round((when - _EPOCH) / timedelta(milliseconds=1)))


def instant_ms(text: str) -> int:
    """The time of a text of ISO 8601 with a zone, such as ``2026-11-22T09:30:00.000Z``.

    Raises ValueError."""
    when = datetime.fromisoformat(text)
    if when.tzinfo is None:
        raise ValueError("the time has no zone")
    return (when - _EPOCH) // timedelta(milliseconds=1)


def instant_text(timestamp_ms: int) -> str | None:
    """The time in UTC as ISO 8601 has it; None for one beyond the years 1 to 9999."""
    when = time_in_zone(timestamp_ms, UTC)
    if when is None:
        return None
    return when.replace(tzinfo=None).isoformat(timespec="milliseconds" if when.microsecond else "seconds") + "Z"
