"""The dashboards: what an operator looks at, as a list of panels.

In Kafka: the metrics that its documentation says to watch, in the order of its page on monitoring.
"""

from barnabas.base.metric import Metric
from barnabas.broker.monitoring.metric_names import BrokerMetrics
from barnabas.coordination.core.metric_table import CoordinationMetrics
from barnabas.metrics.catalog import TARGET_UP, lag_metric
from barnabas.metrics.panels import GrafanaDashboard, Panel, PanelRow, Query, Variable
from barnabas.mirror.metric_names import MirrorMetrics
from barnabas.net.process_metrics import ProcessMetrics
from barnabas.pipelines.progress.metric_names import FlowMetrics

__all__ = ["DASHBOARDS"]

_BROKER = '{job="barnabas-broker"}'
_STATE = lag_metric("barnabas_lag_group_state")
_BY_INSTANCE = "{{instance}}"


def _one(title: str, expression: str, legend: str = "", unit: str = "short", text: str = "") -> Panel:
    return Panel(title, (Query(expression, legend),), unit, text=text)


def _stat(title: str, expression: str, *, above: float | None = None, below: float | None = None) -> Panel:
    return Panel(title, (Query(expression),), kind="stat", red_above=above, red_below=below)


def _rate(metric: Metric, by: str, labels: str = "") -> str:
    return f"sum by ({by}) (rate({metric}{labels}[5m]))"


def _percentile(part: float, by: str, labels: str = "") -> str:
    return f"histogram_quantile({part}, sum by (le, {by}) (rate({BrokerMetrics.REQUEST_TIME}_bucket{labels}[5m])))"


_CLUSTER = GrafanaDashboard(
    "barnabas-cluster",
    "Barnabas: cluster",
    "Brokers and their partitions: is all well, and what do they do?",
    (
        PanelRow(
            "Is all well?",
            (
                _stat("Brokers that answer", f"sum({TARGET_UP}{_BROKER})"),
                _stat("Active controllers", f"sum({BrokerMetrics.ACTIVE_CONTROLLERS})", above=2, below=1),
                _stat("Partitions without leader", f"sum({BrokerMetrics.OFFLINE_PARTITIONS})", above=1),
                _stat("Under min.insync.replicas", f"sum({BrokerMetrics.UNDER_MIN_ISR})", above=1),
                _stat("Under replicated", f"sum({BrokerMetrics.UNDER_REPLICATED})", above=1),
                _stat("Log dirs offline", f"sum({BrokerMetrics.OFFLINE_LOG_DIRS})", above=1),
            ),
        ),
        PanelRow(
            "Load",
            (
                _one("Bytes in", _rate(BrokerMetrics.BYTES_IN, "instance", '{topic=""}'), _BY_INSTANCE, "Bps"),
                _one("Bytes out", _rate(BrokerMetrics.BYTES_OUT, "instance", '{topic=""}'), _BY_INSTANCE, "Bps"),
                _one("Records in", _rate(BrokerMetrics.MESSAGES_IN, "instance", '{topic=""}'), _BY_INSTANCE),
                _one(
                    "Bytes to followers",
                    _rate(BrokerMetrics.REPLICATION_BYTES_OUT, "instance", '{topic=""}'),
                    _BY_INSTANCE,
                    "Bps",
                ),
                _one("Connections", f"sum by (instance) ({BrokerMetrics.CONNECTIONS})", _BY_INSTANCE),
                _one("Requests", _rate(BrokerMetrics.REQUESTS, "request"), "{{request}}"),
            ),
        ),
        PanelRow(
            "Time of requests",
            (
                _one(
                    "Produce, 99 of 100",
                    _percentile(0.99, "instance", '{request="Produce"}'),
                    _BY_INSTANCE,
                    "ms",
                    "Within a factor of two: the buckets are powers of two.",
                ),
                _one("Metadata, 99 of 100", _percentile(0.99, "instance", '{request="Metadata"}'), _BY_INSTANCE, "ms"),
                _one(
                    "Requests that wait",
                    f"sum by (delayedOperation) ({BrokerMetrics.PURGATORY})",
                    "{{delayedOperation}}",
                ),
            ),
        ),
        PanelRow(
            "Replicas",
            (
                _one("Under replicated", f"{BrokerMetrics.UNDER_REPLICATED}", _BY_INSTANCE),
                _one("In-sync sets that shrank", _rate(BrokerMetrics.ISR_SHRINKS, "instance"), _BY_INSTANCE),
                _one("Partitions that it leads", f"{BrokerMetrics.LEADERS}", _BY_INSTANCE),
                _one("Replicas that move", f"{BrokerMetrics.REASSIGNING}", _BY_INSTANCE),
                _one("Not led by the preferred replica", f"sum({BrokerMetrics.IMBALANCED_PARTITIONS})"),
                _one("In-sync sets that grew", _rate(BrokerMetrics.ISR_EXPANDS, "instance"), _BY_INSTANCE),
            ),
        ),
        PanelRow(
            "Processes and disks",
            (
                _one(
                    "Processor",
                    f"rate({ProcessMetrics.CPU}{_BROKER}[5m])",
                    _BY_INSTANCE,
                    "percentunit",
                    "A broker uses one core at most.",
                ),
                _one("Memory", f"{ProcessMetrics.RESIDENT_MEMORY}{_BROKER}", _BY_INSTANCE, "bytes"),
                _one(
                    "Event loop held",
                    f"rate({ProcessMetrics.SLOW_SECONDS}[5m])",
                    _BY_INSTANCE,
                    "percentunit",
                    "The part of the time in which clients wait for a step of more than 10 ms.",
                ),
                _one("Size of log dirs", f"{BrokerMetrics.LOG_DIR_SIZE}", "{{instance}} {{logDirectory}}", "bytes"),
                _one("Free on their disks", f"{BrokerMetrics.LOG_DIR_FREE}", "{{instance}} {{logDirectory}}", "bytes"),
                _one("Open descriptors", f"{ProcessMetrics.OPEN_FDS}", _BY_INSTANCE),
            ),
        ),
    ),
)

_TOPIC = '{topic=~"$topic"}'
_TOPICS = GrafanaDashboard(
    "barnabas-topics",
    "Barnabas: topics",
    "What is written to topics and read from them. Brokers show metrics of metrics.http.topics topics.",
    (
        PanelRow(
            "Records and bytes",
            (
                _one("Records in", _rate(BrokerMetrics.MESSAGES_IN, "topic", _TOPIC), "{{topic}}"),
                _one("Bytes in", _rate(BrokerMetrics.BYTES_IN, "topic", _TOPIC), "{{topic}}", "Bps"),
                _one("Bytes to consumers", _rate(BrokerMetrics.BYTES_OUT, "topic", _TOPIC), "{{topic}}", "Bps"),
            ),
        ),
        PanelRow(
            "Requests",
            (
                _one("Produce", _rate(BrokerMetrics.PRODUCE_REQUESTS, "topic", _TOPIC), "{{topic}}"),
                _one("Fetch", _rate(BrokerMetrics.FETCH_REQUESTS, "topic", _TOPIC), "{{topic}}"),
                _one("Produce that failed", _rate(BrokerMetrics.FAILED_PRODUCE_REQUESTS, "topic", _TOPIC), "{{topic}}"),
                _one("Fetch that failed", _rate(BrokerMetrics.FAILED_FETCH_REQUESTS, "topic", _TOPIC), "{{topic}}"),
            ),
        ),
        PanelRow(
            "Topics",
            (
                _stat("Topics", f"sum({BrokerMetrics.GLOBAL_TOPICS})"),
                _stat("Partitions", f"sum({BrokerMetrics.GLOBAL_PARTITIONS})"),
                _stat("Being deleted", f"sum({BrokerMetrics.TOPICS_TO_DELETE})"),
                _stat("Without metrics", f"max({BrokerMetrics.TOPICS_WITHOUT_METRICS})"),
            ),
        ),
        PanelRow(
            "Transactions",
            (
                _one("Transactional ids", f"sum by (state) ({BrokerMetrics.TRANSACTIONS})", "{{state}}"),
                _one("Ended", _rate(BrokerMetrics.TRANSACTIONS_ENDED, "outcome"), "{{outcome}}"),
                _one("Oldest open one", f"max({BrokerMetrics.OLDEST_TRANSACTION})", unit="s"),
            ),
        ),
    ),
    (Variable("topic", BrokerMetrics.MESSAGES_IN.name, "topic"),),
)

_GROUPS = GrafanaDashboard(
    "barnabas-groups",
    "Barnabas: groups",
    "How far consumer groups are behind, from `barnabas lag --metrics-address`, which also shows the names of kminion, "
    "Burrow and kafka-exporter: their dashboards work as well.",
    (
        PanelRow(
            "Is all well?",
            (
                _stat("Groups that stand still", f'sum({_STATE}{{state=~"stopped|stalled"}})', above=1),
                _stat("Groups that lag", f'sum({_STATE}{{state="lagging"}})'),
                _stat("Groups that are well", f'sum({_STATE}{{state="well"}})'),
                _stat("The sample is complete", f"min({lag_metric('kminion_exporter_up')})", below=1),
            ),
        ),
        PanelRow(
            "Lag",
            (
                _one(
                    "Records behind",
                    f'sum by (group_id, topic_name) ({lag_metric("kminion_kafka_consumer_group_topic_lag")}{{group_id=~"$group"}})',
                    "{{group_id}}: {{topic_name}}",
                ),
                _one(
                    "Seconds behind",
                    f'{lag_metric("kafka_consumergroup_group_max_lag_seconds")}{{group=~"$group"}}',
                    "{{group}}",
                    "s",
                    "From the timestamp of the record that is read next to that of the last one.",
                ),
                _one(
                    "Until all is read",
                    f'{lag_metric("barnabas_lag_group_catch_up_seconds")}{{group=~"$group"}} < Inf',
                    "{{group}}",
                    "s",
                ),
            ),
        ),
        PanelRow(
            "Rates and members",
            (
                _one(
                    "Consumed",
                    f'{lag_metric("barnabas_lag_group_consumed_records_per_second")}{{group=~"$group"}}',
                    "{{group}}",
                ),
                _one(
                    "Produced",
                    f'{lag_metric("barnabas_lag_group_produced_records_per_second")}{{group=~"$group"}}',
                    "{{group}}",
                ),
                _one(
                    "Members",
                    f'{lag_metric("kminion_kafka_consumer_group_members")}{{group_id=~"$group"}}',
                    "{{group_id}}",
                ),
                _one("Groups of each broker", f"{BrokerMetrics.GROUPS}", _BY_INSTANCE),
            ),
        ),
    ),
    (Variable("group", lag_metric("kminion_kafka_consumer_group_members").name, "group_id"),),
)

_COORDINATION = GrafanaDashboard(
    "barnabas-coordination",
    "Barnabas: coordination",
    "The coordination servers: the ensemble, its clients and its disks.",
    (
        PanelRow(
            "Ensemble",
            (
                _stat("Members that vote", f"max({CoordinationMetrics.QUORUM_SIZE})"),
                _stat("Leaders", f"count({CoordinationMetrics.LEADER_UPTIME})", above=2, below=1),
                _stat("Followers in sync", f"max({CoordinationMetrics.SYNCED_FOLLOWERS})"),
                _stat("Members that are connected", f"max({CoordinationMetrics.LEARNERS})"),
                _stat("Znodes", f"max({CoordinationMetrics.ZNODES})"),
                _stat("Sessions", f"max({CoordinationMetrics.SESSIONS})"),
            ),
        ),
        PanelRow(
            "Clients",
            (
                _one("Connections", f"{CoordinationMetrics.CONNECTIONS}", _BY_INSTANCE),
                _one("Requests", f"rate({CoordinationMetrics.PACKETS_RECEIVED}[5m])", _BY_INSTANCE),
                _one("Requests that wait", f"{CoordinationMetrics.OUTSTANDING_REQUESTS}", _BY_INSTANCE),
                _one("Watches", f"{CoordinationMetrics.WATCHES}", _BY_INSTANCE),
                _one("Ephemeral znodes", f"{CoordinationMetrics.EPHEMERALS}", _BY_INSTANCE),
                _one("Sessions that expired", f"rate({CoordinationMetrics.EXPIRED_SESSIONS}[5m])", _BY_INSTANCE),
            ),
        ),
        PanelRow(
            "Times",
            (
                _one("Reads, 99 of 100", f'{CoordinationMetrics.READ_LATENCY}{{quantile="0.99"}}', _BY_INSTANCE, "ms"),
                _one(
                    "Writes, 99 of 100", f'{CoordinationMetrics.UPDATE_LATENCY}{{quantile="0.99"}}', _BY_INSTANCE, "ms"
                ),
                _one(
                    "Sync of the log",
                    f"rate({CoordinationMetrics.FSYNC_TIME}_sum[5m]) / rate({CoordinationMetrics.FSYNC_TIME}_count[5m])",
                    _BY_INSTANCE,
                    "ms",
                ),
                _one("Elections", f"increase({CoordinationMetrics.ELECTIONS}[5m])", _BY_INSTANCE),
                _one("Bytes of the tree", f"{CoordinationMetrics.DATA_SIZE}", _BY_INSTANCE, "bytes"),
            ),
        ),
    ),
)

_MIRROR = GrafanaDashboard(
    "barnabas-mirror",
    "Barnabas: mirror",
    "What mirrors copy, and how far they are behind.",
    (
        PanelRow(
            "How far it is",
            (
                _one(
                    "Records that the target lacks",
                    f"sum by (source, target, topic) ({MirrorMetrics.LAG})",
                    "{{source}} to {{target}}: {{topic}}",
                ),
                _one(
                    "Age",
                    f"max by (source, target, topic) ({MirrorMetrics.AGE})",
                    "{{source}} to {{target}}: {{topic}}",
                    "s",
                ),
                _one(
                    "From a record's time to its copy",
                    f"max by (source, target, topic) ({MirrorMetrics.LATENCY})",
                    "{{source}} to {{target}}: {{topic}}",
                    "ms",
                ),
            ),
        ),
        PanelRow(
            "Copies",
            (
                _one("Records", _rate(MirrorMetrics.RECORDS, "source, target, topic"), "{{target}}: {{topic}}"),
                _one("Bytes", _rate(MirrorMetrics.BYTES, "source, target, topic"), "{{target}}: {{topic}}", "Bps"),
                _one("Errors", _rate(MirrorMetrics.ERRORS, "source, target, what"), "{{target}}: {{what}}"),
                _one("Records not mirrored", _rate(MirrorMetrics.DROPPED, "target, topic"), "{{target}}: {{topic}}"),
                _one("Streams", f"{MirrorMetrics.STREAMS}", "{{source}} to {{target}}"),
                _one("Since the last copy", f"time() - {MirrorMetrics.LAST_COPY}", "{{source}} to {{target}}", "s"),
            ),
        ),
    ),
)

_FLOWS = GrafanaDashboard(
    "barnabas-flows",
    "Barnabas: flows",
    "Pipelines: rows, bad rows, lag and time of micro-batches.",
    (
        PanelRow(
            "Is all well?",
            (
                _stat("Flows that run", f"sum({FlowMetrics.RUNNING})"),
                _stat("Flows that failed", f"sum({FlowMetrics.FAILED})", above=1),
            ),
        ),
        PanelRow(
            "Flows",
            (
                _one("Rows a second", f"deriv({FlowMetrics.ROWS}[5m]) > 0", "{{flow}}"),
                _one("Bad rows", f"{FlowMetrics.BAD_ROWS}", "{{flow}}"),
                _one("Bad rows by kind", f"{FlowMetrics.BAD_ROWS_BY_KIND}", "{{flow}}: {{kind}}"),
                _one("Lag", f"{FlowMetrics.LAG}", "{{flow}}"),
                _one("Until all is read", f"{FlowMetrics.CATCH_UP}", "{{flow}}", "s"),
                _one("Last micro-batch", f"{FlowMetrics.BATCH_SECONDS}", "{{flow}}", "s"),
                _one("Since the last success", f"time() - {FlowMetrics.LAST_SUCCESS}", "{{flow}}", "s"),
                _one("Late rows", f"{FlowMetrics.LATE_ROWS}", "{{flow}}"),
                _one("Rows that met no expectation", f"{FlowMetrics.UNMET_ROWS}", "{{flow}}: {{expectation}}"),
            ),
        ),
    ),
)

DASHBOARDS = (_CLUSTER, _TOPICS, _GROUPS, _COORDINATION, _MIRROR, _FLOWS)
"""All of them. Each has a file of its own."""
