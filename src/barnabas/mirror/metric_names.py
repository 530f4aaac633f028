"""The metrics of a mirror: their names, and what they are.

In Kafka: `MirrorSourceMetrics`; the names are those that the Prometheus JMX exporter makes of its
MBeans, with their tags. Those that begin with ``barnabas_`` are not in Kafka.
"""

from barnabas.base.metric import Metric

__all__ = ["MirrorMetrics"]

_SOURCE = "kafka_connect_mirror_mirrorsourceconnector_"
_LABELS = ("source", "target", "topic", "partition")


class MirrorMetrics:
    """``topic`` and ``partition`` are the source's.

    ``source`` and ``target`` are the clusters' names, or their brokers where they have no names."""

    RECORDS = Metric(f"{_SOURCE}record_count", "counter", "Records that the target acknowledged", _LABELS)
    BYTES = Metric(f"{_SOURCE}byte_count", "counter", "Bytes of their keys and values", _LABELS)
    RECORD_AGE = Metric(
        f"{_SOURCE}record_age_ms", "gauge", "Age of the last record when it was read from the source", _LABELS
    )
    LATENCY = Metric(
        f"{_SOURCE}replication_latency_ms", "gauge", "Age of the last record when the target had it", _LABELS
    )
    LAG = Metric("barnabas_mirror_lag_records", "gauge", "Records of the source that the target does not have", _LABELS)
    AGE = Metric(
        "barnabas_mirror_age_seconds",
        "gauge",
        "How old the last record is that the target has, while it lacks others; else 0",
        _LABELS,
    )
    DROPPED = Metric(
        "barnabas_mirror_dropped_records_total",
        "counter",
        "Records that the target did not take, with abort.on.send.failure=false",
        _LABELS,
    )
    ERRORS = Metric(
        "barnabas_mirror_errors_total",
        "counter",
        "What failed and is tried again: topics, commit, offset_syncs, heartbeats, checkpoints, group_offsets, "
        "topic_configurations",
        ("source", "target", "what"),
    )
    LAST_COPY = Metric(
        "barnabas_mirror_last_copy_timestamp_seconds",
        "gauge",
        "When the target acknowledged the last record, in seconds since 1970; 0 before the first",
        ("source", "target"),
    )
    STREAMS = Metric("barnabas_mirror_streams", "gauge", "Streams that run", ("source", "target"))
