"""A report of lag as a page for Prometheus, with the names of `metric_names`.

In Kafka: no counterpart; kminion, Burrow, kafka-exporter and Kafka Lag Exporter have such pages.
"""

import math
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import NamedTuple

from barnabas.lag.metric_names import FAMILIES, MetricFamily, NamesOf
from barnabas.lag.values import GroupKind, GroupLag, LagReport, LagState, PartitionLag, TimeSource
from barnabas.net.prometheus import label, metric_lines

__all__ = ["SamplingFigures", "lag_metric_lines"]

_Samples = Iterator[tuple[str, float]]
_PROTOCOL_TYPES = {GroupKind.SHARE: "share", GroupKind.STREAMS: "streams"}
_BURROW_STATUS = {
    LagState.WELL: 1,
    LagState.UNKNOWN: 1,
    LagState.LAGGING: 2,
    LagState.REWINDING: 3,
    LagState.STALLED: 3,
    LagState.STOPPED: 3,
}


class SamplingFigures(NamedTuple):
    """What the sampling itself has to say."""

    is_complete: bool
    duration_s: float
    failed: int


def lag_metric_lines(report: LagReport, figures: SamplingFigures, names: Collection[NamesOf]) -> list[str]:
    """All families with the names of these exporters; our own are always among them.

    A value that is not known is left out.
    """
    page = _Page(report, figures)
    lines: list[str] = []
    for family in FAMILIES:
        if family.names_of in names or family.names_of is NamesOf.OWN:
            lines += metric_lines(family.name, family.kind, family.help, page.samples(family))
    return lines


class _Page:
    """The samples of each family; labels of partitions are made once for each set of names."""

    def __init__(self, report: LagReport, figures: SamplingFigures) -> None:
        self._report = report
        self._figures = figures
        self._cluster = report.cluster_id or ""
        self._labelled: dict[tuple[str, ...], list[tuple[str, PartitionLag]]] = {}

    def samples(self, family: MetricFamily) -> _Samples:
        name = family.name
        if name in _OF_PARTITIONS:
            return self._of_partitions(family, _OF_PARTITIONS[name])
        if name in _OF_GROUPS:
            return self._of_groups(family, _OF_GROUPS[name])
        if name in _OF_TOPICS:
            return self._of_topics(family, _OF_TOPICS[name])
        return _OTHERS[name](self, family)

    def _of_partitions(self, family: MetricFamily, value: Callable[[PartitionLag], float | None]) -> _Samples:
        if family.labels not in self._labelled:
            self._labelled[family.labels] = list(self._with_labels(family))
        for labels, part in self._labelled[family.labels]:
            found = value(part)
            if found is not None:
                yield labels, found

    def _with_labels(self, family: MetricFamily) -> Iterator[tuple[str, PartitionLag]]:
        *_, topic_name, partition_name = family.labels
        topics: dict[str, str] = {}
        for group in self._report.groups:
            head = self._group_labels(family.labels[:-2], group)
            for part in group.partitions:
                topic = topics.get(part.topic)
                if topic is None:
                    topic = topics[part.topic] = label(topic_name, part.topic)
                yield f'{{{head},{topic},{partition_name}="{part.partition}"}}', part

    def _group_labels(self, names: Iterable[str], group: GroupLag) -> str:
        return ",".join(label(name, self._cluster if name.startswith("cluster") else group.group) for name in names)

    def _of_groups(self, family: MetricFamily, value: Callable[[GroupLag], float | None]) -> _Samples:
        for group in self._report.groups:
            found = value(group)
            if found is not None:
                yield f"{{{self._group_labels(family.labels, group)}}}", found

    def _of_topics(self, family: MetricFamily, value: Callable[[PartitionLag], int | None]) -> _Samples:
        for group in self._report.groups:
            sums: dict[str, int | None] = {}
            for part in group.partitions:
                if part.committed is not None:
                    found, before = value(part), sums.get(part.topic, 0)
                    sums[part.topic] = None if found is None or before is None else before + found
            head = self._group_labels(family.labels[:-1], group)
            for topic, total in sums.items():
                if total is not None:  # a sum without a partition would be too small
                    yield f"{{{head},{label(family.labels[-1], topic)}}}", total

    def marks(self, family: MetricFamily) -> _Samples:
        """The first offset of each partition, or its end."""
        is_end = "high" in family.name
        seen: dict[tuple[str, int], int] = {}
        for group in self._report.groups:
            for part in group.partitions:
                mark = part.end if is_end else part.begin
                if mark is not None:
                    seen[part.topic, part.partition] = mark
        for (topic, partition), mark in seen.items():
            yield f'{{{label("topic_name", topic)},partition_id="{partition}"}}', mark

    def info(self, _: MetricFamily) -> _Samples:
        for group in self._report.groups:
            protocol_type = _PROTOCOL_TYPES.get(group.kind, "consumer")
            labels = (
                label("group_id", group.group),
                label("protocol_type", protocol_type),
                label("state", group.group_state),
            )
            yield f"{{{','.join(labels)}}}", float(group.group_state == "Stable")

    def states(self, _: MetricFamily) -> _Samples:
        for group in self._report.groups:
            name = label("group", group.group)
            for state in LagState:
                yield f'{{{name},state="{state}"}}', float(group.state is state)

    def sources(self, _: MetricFamily) -> _Samples:
        for group in self._report.groups:
            name = label("group", group.group)
            counts = dict.fromkeys(TimeSource, 0)
            for part in group.partitions:
                counts[part.source] += 1
            for source, count in counts.items():
                yield f'{{{name},source="{source}"}}', count

    def up(self, _: MetricFamily) -> _Samples:
        yield "", float(self._figures.is_complete)

    def sampled(self, _: MetricFamily) -> _Samples:
        if self._report.at_ms:
            yield "", self._report.at_ms / 1000

    def duration(self, _: MetricFamily) -> _Samples:
        yield "", self._figures.duration_s

    def failed(self, _: MetricFamily) -> _Samples:
        yield "", self._figures.failed

    def missing(self, _: MetricFamily) -> _Samples:
        yield "", len(self._report.missing)


def _lag_s(part: PartitionLag) -> float | None:
    return None if part.lag_ms is None else part.lag_ms / 1000


def _max_lag_s(group: GroupLag) -> float | None:
    return None if group.furthest is None else _lag_s(group.furthest)


def _burrow_status(group: GroupLag) -> int | None:
    """None rather than OK for a group of which a part could not be read."""
    is_unread = group.state is LagState.UNKNOWN and not group.is_complete
    return None if is_unread else _BURROW_STATUS[group.state]


def _catch_up(group: GroupLag) -> float | None:
    """Infinity where the lag does not become smaller."""
    return math.inf if group.never_catches_up else group.catch_up_s


_OF_PARTITIONS: dict[str, Callable[[PartitionLag], float | None]] = {
    "kminion_kafka_consumer_group_topic_partition_lag": lambda part: part.lag,
    "burrow_kafka_consumer_partition_lag": lambda part: part.lag,
    "burrow_kafka_consumer_current_offset": lambda part: part.committed,
    "kafka_consumergroup_current_offset": lambda part: part.committed,
    "kafka_consumergroup_lag": lambda part: part.lag,
    "kafka_consumergroup_group_lag_seconds": _lag_s,
}
_OF_TOPICS: dict[str, Callable[[PartitionLag], int | None]] = {
    "kminion_kafka_consumer_group_topic_offset_sum": lambda part: part.committed,
    "kminion_kafka_consumer_group_topic_lag": lambda part: part.lag,
    "kafka_consumergroup_lag_sum": lambda part: part.lag,
}
_OF_GROUPS: dict[str, Callable[[GroupLag], float | None]] = {
    "kminion_kafka_consumer_group_members": lambda group: group.members,
    "burrow_kafka_consumer_lag_total": lambda group: group.lag if group.is_complete else None,
    "burrow_kafka_consumer_status": _burrow_status,
    "kafka_consumergroup_members": lambda group: group.members,
    "kafka_consumergroup_group_max_lag_seconds": _max_lag_s,
    "barnabas_lag_group_state_since_timestamp_seconds": lambda group: group.since_ms and group.since_ms / 1000,
    "barnabas_lag_group_last_zero_timestamp_seconds": lambda group: group.last_zero_ms and group.last_zero_ms / 1000,
    "barnabas_lag_group_consumed_records_per_second": lambda group: group.consumed_per_s,
    "barnabas_lag_group_produced_records_per_second": lambda group: group.produced_per_s,
    "barnabas_lag_group_catch_up_seconds": _catch_up,
}
_OTHERS: dict[str, Callable[[_Page, MetricFamily], _Samples]] = {
    "kminion_exporter_up": _Page.up,
    "kminion_kafka_consumer_group_info": _Page.info,
    "kminion_kafka_topic_partition_high_water_mark": _Page.marks,
    "kminion_kafka_topic_partition_low_water_mark": _Page.marks,
    "barnabas_lag_group_state": _Page.states,
    "barnabas_lag_group_partitions": _Page.sources,
    "barnabas_lag_sample_timestamp_seconds": _Page.sampled,
    "barnabas_lag_sample_duration_seconds": _Page.duration,
    "barnabas_lag_samples_failed_total": _Page.failed,
    "barnabas_lag_missing": _Page.missing,
}
