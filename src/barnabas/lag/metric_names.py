"""The names under which lag is exported to Prometheus, and what each is.

The names of kminion, Burrow, kafka-exporter and Kafka Lag Exporter are kept where the meaning is
the same, with their labels, so that their dashboards and rules work on. What has no name there
begins with ``barnabas_lag_``.

In Kafka: the metric ``records-lag`` of a consumer, which only the consumer has.
"""

from enum import Enum
from typing import NamedTuple

__all__ = ["FAMILIES", "MetricFamily", "NamesOf"]


class NamesOf(Enum):
    """The exporter whose names a family follows."""

    KMINION = "kminion"
    BURROW = "burrow"
    KAFKA_EXPORTER = "kafka-exporter"
    KAFKA_LAG_EXPORTER = "kafka-lag-exporter"
    OWN = "barnabas"


class MetricFamily(NamedTuple):
    """A metric, with the exporter that it is named after."""

    name: str
    help: str
    labels: tuple[str, ...]
    names_of: NamesOf

    @property
    def kind(self) -> str:
        """A gauge, or a counter. Burrow's sums are gauges, though their names end in ``_total``."""
        return "counter" if self.names_of is NamesOf.OWN and self.name.endswith("_total") else "gauge"


_GROUP = ("group_id",)
_GROUP_TOPIC = ("group_id", "topic_name")
_GROUP_PARTITION = ("group_id", "topic_name", "partition_id")
_EXPORTER = ("consumergroup", "topic", "partition")
_BURROW = ("cluster", "consumer_group")
_LAG_EXPORTER = ("cluster_name", "group", "topic", "partition")

FAMILIES = (
    MetricFamily(
        "kminion_exporter_up", "1 if the last sample is complete, 0 if a part is missing", (), NamesOf.KMINION
    ),
    MetricFamily(
        "kminion_kafka_consumer_group_info",
        "1 if the group is stable, otherwise 0",
        ("group_id", "protocol_type", "state"),
        NamesOf.KMINION,
    ),
    MetricFamily("kminion_kafka_consumer_group_members", "Members of the group", _GROUP, NamesOf.KMINION),
    MetricFamily(
        "kminion_kafka_consumer_group_topic_offset_sum",
        "Committed offsets, summed over the topic's partitions",
        _GROUP_TOPIC,
        NamesOf.KMINION,
    ),
    MetricFamily(
        "kminion_kafka_consumer_group_topic_lag",
        "Records behind the end, summed over the topic's partitions",
        _GROUP_TOPIC,
        NamesOf.KMINION,
    ),
    MetricFamily(
        "kminion_kafka_consumer_group_topic_partition_lag",
        "Records behind the end of a partition",
        _GROUP_PARTITION,
        NamesOf.KMINION,
    ),
    MetricFamily(
        "kminion_kafka_topic_partition_high_water_mark",
        "The offset after a partition's last record",
        ("topic_name", "partition_id"),
        NamesOf.KMINION,
    ),
    MetricFamily(
        "kminion_kafka_topic_partition_low_water_mark",
        "A partition's first offset",
        ("topic_name", "partition_id"),
        NamesOf.KMINION,
    ),
    MetricFamily(
        "burrow_kafka_consumer_lag_total", "Records behind the end, summed over the group", _BURROW, NamesOf.BURROW
    ),
    MetricFamily(
        "burrow_kafka_consumer_status",
        "The group's state as Burrow's: 1 OK (well, unknown), 2 WARN (lagging), 3 ERR (stopped, stalled, rewinding)",
        _BURROW,
        NamesOf.BURROW,
    ),
    MetricFamily(
        "burrow_kafka_consumer_partition_lag",
        "Records behind the end of a partition",
        (*_BURROW, "topic", "partition"),
        NamesOf.BURROW,
    ),
    MetricFamily(
        "burrow_kafka_consumer_current_offset",
        "The committed offset",
        (*_BURROW, "topic", "partition"),
        NamesOf.BURROW,
    ),
    MetricFamily("kafka_consumergroup_current_offset", "The committed offset", _EXPORTER, NamesOf.KAFKA_EXPORTER),
    MetricFamily("kafka_consumergroup_lag", "Records behind the end", _EXPORTER, NamesOf.KAFKA_EXPORTER),
    MetricFamily(
        "kafka_consumergroup_lag_sum",
        "Records behind the end, summed over the topic's partitions",
        ("consumergroup", "topic"),
        NamesOf.KAFKA_EXPORTER,
    ),
    MetricFamily("kafka_consumergroup_members", "Members of the group", ("consumergroup",), NamesOf.KAFKA_EXPORTER),
    MetricFamily(
        "kafka_consumergroup_group_lag_seconds",
        "From the timestamp of the record that is read next to that of the last one",
        _LAG_EXPORTER,
        NamesOf.KAFKA_LAG_EXPORTER,
    ),
    MetricFamily(
        "kafka_consumergroup_group_max_lag_seconds",
        "The greatest lag in seconds of the group's partitions",
        ("cluster_name", "group"),
        NamesOf.KAFKA_LAG_EXPORTER,
    ),
    MetricFamily(
        "barnabas_lag_group_state",
        "1 for the group's state: well, unknown, lagging, rewinding, stalled or stopped; 0 for the others",
        ("group", "state"),
        NamesOf.OWN,
    ),
    MetricFamily(
        "barnabas_lag_group_state_since_timestamp_seconds",
        "When the group's state began, as far as the history knows it",
        ("group",),
        NamesOf.OWN,
    ),
    MetricFamily(
        "barnabas_lag_group_last_zero_timestamp_seconds",
        "When the group's lag last was zero, as far as the history knows it",
        ("group",),
        NamesOf.OWN,
    ),
    MetricFamily(
        "barnabas_lag_group_consumed_records_per_second",
        "How fast the group's committed offsets move",
        ("group",),
        NamesOf.OWN,
    ),
    MetricFamily(
        "barnabas_lag_group_produced_records_per_second",
        "How fast the ends of the group's partitions move",
        ("group",),
        NamesOf.OWN,
    ),
    MetricFamily(
        "barnabas_lag_group_catch_up_seconds",
        "When the group's lag is zero at these rates; +Inf for never",
        ("group",),
        NamesOf.OWN,
    ),
    MetricFamily(
        "barnabas_lag_group_partitions",
        "The group's partitions by how their lag in seconds was found: record, interpolated, at least or unknown",
        ("group", "source"),
        NamesOf.OWN,
    ),
    MetricFamily("barnabas_lag_sample_timestamp_seconds", "When the cluster was sampled last", (), NamesOf.OWN),
    MetricFamily("barnabas_lag_sample_duration_seconds", "How long the last sample took", (), NamesOf.OWN),
    MetricFamily("barnabas_lag_samples_failed_total", "Samples that no broker answered", (), NamesOf.OWN),
    MetricFamily("barnabas_lag_missing", "Lines about what the last sample lacks", (), NamesOf.OWN),
)
"""All families, in the order of the page. A value that is not known is left out."""
