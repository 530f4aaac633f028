"""Lag of groups that is known in part: nothing looks like zero that is not known."""

from typing import Any

from barnabas.lag.documents import group_document
from barnabas.lag.metric_names import NamesOf
from barnabas.lag.metrics_page import SamplingFigures, lag_metric_lines
from barnabas.lag.values import GroupKind, GroupLag, LagReport, LagState, PartitionLag, TimeSource

_AT_END = PartitionLag(
    "orders", 0, 9, 0, 9, 0, 0, None, TimeSource.RECORD, 0, 1.0, 1.0, 0.0, LagState.WELL, None, ""
)  # fmt: skip
_BEHIND = _AT_END._replace(partition=1, committed=5, lag=4, lag_ms=4000, catch_up_s=None)
_UNREAD = PartitionLag(
    "orders", 2, 9, None, None, None, None, None, TimeSource.UNKNOWN, None, None, None, None,
    LagState.UNKNOWN, None, "broker 2 did not answer",
)  # fmt: skip
_OF_GROUPS = (
    "kminion_kafka_consumer_group_topic_lag",
    "burrow_kafka_consumer_lag_total",
    "kafka_consumergroup_lag_sum",
    "kafka_consumergroup_group_max_lag_seconds",
    "burrow_kafka_consumer_status",
    "barnabas_lag_group_catch_up_seconds",
    "barnabas_lag_group_consumed_records_per_second",
)


def group(*parts: PartitionLag) -> GroupLag:
    """A group of these partitions."""
    return GroupLag("shop", GroupKind.CLASSIC, "Stable", 1, parts, LagState.UNKNOWN)


def page(found: GroupLag) -> dict[str, float]:
    """The metrics of the group as a whole, by their names."""
    lines = lag_metric_lines(LagReport(1, "c", [found]), SamplingFigures(False, 0.0, 0), tuple(NamesOf))
    samples = [line.rpartition(" ") for line in lines if line.startswith(_OF_GROUPS)]
    return {name.partition("{")[0]: float(value) for name, _, value in samples}


def figures(found: GroupLag) -> tuple[Any, ...]:
    """What a program reads of the group."""
    document = group_document(found)
    names = ("lag", "lag_seconds", "lag_seconds_source", "consumed_per_second", "catch_up_seconds")
    return tuple(document[name] for name in names)


def test_a_group_with_a_partition_that_is_not_known_has_no_sums() -> None:
    """Neither zero nor what the other partitions have."""
    found = group(_AT_END, _UNREAD)
    assert figures(found) == (None, None, "unknown", None, None)
    assert page(found) == {}


def test_the_time_of_a_group_known_in_part_is_a_least() -> None:
    """The greatest of the others; and one that never catches up is known to."""
    found = group(_AT_END, _BEHIND, _UNREAD)
    assert figures(found) == (None, 4.0, "at least", None, None)
    assert page(found) == {
        "kafka_consumergroup_group_max_lag_seconds": 4.0,
        "barnabas_lag_group_catch_up_seconds": float("inf"),
    }


def test_a_group_that_committed_nothing_is_neither_at_the_end_nor_behind() -> None:
    """With a member that has a partition, and with nothing at all."""
    for found in (group(_UNREAD._replace(committed=None, problem="")), group()):
        assert figures(found) == (None, None, "unknown", None, None)
        assert page(found) == {"burrow_kafka_consumer_status": 1.0}


def test_a_group_that_is_known_whole_has_all_sums() -> None:
    """One partition at the end, one behind."""
    assert figures(group(_AT_END, _BEHIND)) == (4, 4.0, "record", 2.0, None)
    assert page(group(_AT_END))["burrow_kafka_consumer_lag_total"] == 0.0
