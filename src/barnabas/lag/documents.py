"""A report of lag as a JSON document, and its times as words.

In Kafka: no counterpart; the fields are named as in the tables of `ConsumerGroupCommand`.
"""

from typing import Any

from barnabas.base.record_times import instant_text
from barnabas.lag.values import GroupLag, LagReport, PartitionLag, TimeSource

__all__ = ["group_document", "report_document", "time_lag_words", "time_words"]

_UNITS = (("d", 86_400), ("h", 3_600), ("m", 60))
_MARKS = {TimeSource.INTERPOLATED: "~", TimeSource.AT_LEAST: ">"}


def report_document(report: LagReport) -> dict[str, Any]:
    """All of a report. Times are ISO 8601 in UTC, spans are seconds, what is not known is null."""
    return {
        "at": instant_text(report.at_ms),
        "cluster_id": report.cluster_id,
        "groups": [group_document(group) for group in report.groups],
        "missing": list(report.missing),
        "notes": list(report.notes),
    }


def group_document(group: GroupLag) -> dict[str, Any]:
    """A group with its partitions."""
    furthest = group.furthest
    return {
        "group": group.group,
        "type": str(group.kind),
        "group_state": group.group_state or None,
        "members": group.members,
        "state": str(group.state),
        "since": _instant(group.since_ms),
        "last_zero": _instant(group.last_zero_ms),
        "lag": group.lag if group.is_complete else None,
        "lag_is_complete": group.is_complete,
        "lag_seconds": None if furthest is None else _seconds(furthest.lag_ms),
        "lag_seconds_source": str(TimeSource.UNKNOWN if furthest is None else furthest.source),
        "consumed_per_second": _rounded(group.consumed_per_s),
        "produced_per_second": _rounded(group.produced_per_s),
        "catch_up_seconds": _rounded(group.catch_up_s),
        "problem": group.problem or None,
        "partitions": [_partition_document(part) for part in group.partitions],
    }


def _partition_document(part: PartitionLag) -> dict[str, Any]:
    return {
        "topic": part.topic,
        "partition": part.partition,
        "current_offset": part.committed,
        "log_start_offset": part.begin,
        "log_end_offset": part.end,
        "lag": part.lag,
        "only_transaction_markers": part.is_only_markers,
        "lag_seconds": _seconds(part.lag_ms),
        "lag_seconds_source": str(part.source),
        "lag_seconds_error": _seconds(part.error_ms),
        "next_record_time": _instant(part.oldest_ms),
        "consumed_per_second": _rounded(part.consumed_per_s),
        "produced_per_second": _rounded(part.produced_per_s),
        "catch_up_seconds": _rounded(part.catch_up_s),
        "state": str(part.state),
        "client_id": part.owner,
        "problem": part.problem or None,
    }


def time_lag_words(part: PartitionLag | None) -> str:
    """How far behind in time: ``2m5s``, ``~2m5s`` if interpolated, ``>2m5s`` for at least, or
    ``?``."""
    if part is None or part.lag_ms is None:
        return "?"
    return _MARKS.get(part.source, "") + time_words(part.lag_ms / 1000)


def time_words(seconds: float) -> str:
    """A span in its two largest units: ``0s``, ``1.25s``, ``2m5s``, ``3d4h``."""
    if seconds < 60:
        return f"{seconds:.3f}".rstrip("0").rstrip(".") + "s" if seconds < 10 else f"{seconds:.0f}s"
    left = round(seconds)
    for place, (unit, size) in enumerate(_UNITS):
        if left >= size:
            next_unit, next_size = (*_UNITS, ("s", 1))[place + 1]
            rest = left % size // next_size
            return f"{left // size}{unit}" + (f"{rest}{next_unit}" if rest else "")
    return f"{left}s"


def _instant(timestamp_ms: int | None) -> str | None:
    return None if timestamp_ms is None else instant_text(timestamp_ms)


def _seconds(span_ms: int | None) -> float | None:
    return None if span_ms is None else span_ms / 1000


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
