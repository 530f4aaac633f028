"""The metrics of a broker: their names, and what they are.

The names are those that the Prometheus JMX exporter makes of Kafka's MBeans with the rules of its
example, where Kafka has the figure. Those that begin with ``barnabas_`` are not in Kafka.

In Kafka: the MBeans of the monitoring page of its documentation.
"""

from barnabas.base.metric import Metric
from barnabas.broker.groups.group import GroupState

__all__ = ["BrokerMetrics", "group_state_metric"]

_REPLICAS = "kafka_server_replicamanager_"
_CONTROLLER = "kafka_controller_kafkacontroller_"
_GROUPS = "kafka_coordinator_group_groupmetadatamanager_"
_MARKERS = "kafka_coordinator_transaction_transactionmarkerchannelmanager_"
_LOADS = "kafka_server_transaction_coordinator_metrics_"
_LOGS = "kafka_log_logmanager_"
_TOPICS = "kafka_server_brokertopicmetrics_"
_SOCKETS = "kafka_network_socketserver_"
_REQUESTS = "kafka_network_requestmetrics_"


class BrokerMetrics:
    """What a broker shows."""

    PARTITIONS = Metric(f"{_REPLICAS}partitioncount", "gauge", "Partitions of which this broker has a replica")
    LEADERS = Metric(f"{_REPLICAS}leadercount", "gauge", "Partitions that it leads")
    OFFLINE_REPLICAS = Metric(f"{_REPLICAS}offlinereplicacount", "gauge", "Replicas whose log dir is offline")
    UNDER_REPLICATED = Metric(
        f"{_REPLICAS}underreplicatedpartitions",
        "gauge",
        "Partitions that it leads and that have a replica out of sync",
    )
    UNDER_MIN_ISR = Metric(
        f"{_REPLICAS}underminisrpartitioncount",
        "gauge",
        "Partitions that it leads and that have fewer in-sync replicas than min.insync.replicas",
    )
    AT_MIN_ISR = Metric(
        f"{_REPLICAS}atminisrpartitioncount",
        "gauge",
        "Partitions that it leads and that have just min.insync.replicas",
    )
    REASSIGNING = Metric(
        f"{_REPLICAS}reassigningpartitions", "gauge", "Partitions that it leads and whose replicas are being moved"
    )
    PRODUCER_IDS = Metric(f"{_REPLICAS}produceridcount", "gauge", "Producers that its replicas remember")
    LATE_TRANSACTIONS = Metric(
        f"{_REPLICAS}partitionswithlatetransactionscount",
        "gauge",
        "Partitions that it leads with a transaction open 5 minutes longer than transaction.max.timeout.ms",
    )
    ISR_SHRINKS = Metric(f"{_REPLICAS}isrshrinks_total", "counter", "Times that it shrank an in-sync set")
    ISR_EXPANDS = Metric(f"{_REPLICAS}isrexpands_total", "counter", "Times that it expanded an in-sync set")

    LOG_DIR_SIZE = Metric(
        "barnabas_log_dir_size_bytes", "gauge", "Bytes of the segments of a log dir", ("logDirectory",)
    )
    LOG_DIR_FREE = Metric(
        "barnabas_log_dir_free_bytes",
        "gauge",
        "Bytes that are free for the broker in the file system of a log dir",
        ("logDirectory",),
    )
    LOG_DIR_CAPACITY = Metric(
        "barnabas_log_dir_capacity_bytes", "gauge", "Size of the file system of a log dir in bytes", ("logDirectory",)
    )

    MESSAGES_IN = Metric(
        f"{_TOPICS}messagesin_total", "counter", "Records appended to partitions that the broker leads", ("topic",)
    )
    BYTES_IN = Metric(f"{_TOPICS}bytesin_total", "counter", "Bytes of records appended to them", ("topic",))
    BYTES_OUT = Metric(f"{_TOPICS}bytesout_total", "counter", "Bytes of records sent to consumers", ("topic",))
    REPLICATION_BYTES_IN = Metric(
        f"{_TOPICS}replicationbytesin_total", "counter", "Bytes of records copied from leaders", ("topic",)
    )
    REPLICATION_BYTES_OUT = Metric(
        f"{_TOPICS}replicationbytesout_total", "counter", "Bytes of records sent to followers", ("topic",)
    )
    PRODUCE_REQUESTS = Metric(
        f"{_TOPICS}totalproducerequests_total", "counter", "Partitions that Produce requests have named", ("topic",)
    )
    FETCH_REQUESTS = Metric(
        f"{_TOPICS}totalfetchrequests_total", "counter", "Partitions that Fetch requests have read", ("topic",)
    )
    FAILED_PRODUCE_REQUESTS = Metric(
        f"{_TOPICS}failedproducerequests_total",
        "counter",
        "Partitions of Produce requests that failed, as Kafka counts them",
        ("topic",),
    )
    FAILED_FETCH_REQUESTS = Metric(
        f"{_TOPICS}failedfetchrequests_total",
        "counter",
        "Partitions of Fetch requests that failed, as Kafka counts them",
        ("topic",),
    )
    TOPICS_WITHOUT_METRICS = Metric(
        "barnabas_topics_without_metrics", "gauge", "Topics of the broker that are beyond metrics.http.topics"
    )

    REQUESTS = Metric(f"{_REQUESTS}requests_total", "counter", "Requests that were answered", ("request",))
    UNSERVED_REQUESTS = Metric(
        "barnabas_unserved_requests_total",
        "counter",
        "Requests in versions that are not served, which closed their connection",
        ("request", "version"),
    )
    WALL_CLOCK = Metric("barnabas_wall_clock_seconds", "gauge", "The broker's clock, in s since the epoch")
    REQUEST_TIME = Metric(
        f"{_REQUESTS}totaltimems",
        "histogram",
        "Time from the last byte of a request to its answer, in ms",
        ("request",),
    )

    OFFLINE_LOG_DIRS = Metric(f"{_LOGS}offlinelogdirectorycount", "gauge", "Log dirs that are offline")
    LOG_DIR_OFFLINE = Metric(
        f"{_LOGS}logdirectoryoffline", "gauge", "1 if a log dir is offline, else 0", ("logDirectory",)
    )
    UNCLEANABLE = Metric(
        "kafka_log_logcleanermanager_uncleanable_partitions_count",
        "gauge",
        "Logs that the last attempt could not compact",
        ("logDirectory",),
    )

    ACTIVE_CONTROLLERS = Metric(f"{_CONTROLLER}activecontrollercount", "gauge", "1 on the controller, 0 elsewhere")
    GLOBAL_TOPICS = Metric(f"{_CONTROLLER}globaltopiccount", "gauge", "Topics of the cluster; 0 on other brokers")
    GLOBAL_PARTITIONS = Metric(
        f"{_CONTROLLER}globalpartitioncount", "gauge", "Partitions of the cluster; 0 on other brokers"
    )
    OFFLINE_PARTITIONS = Metric(
        f"{_CONTROLLER}offlinepartitionscount", "gauge", "Partitions without a leader; 0 on other brokers"
    )
    IMBALANCED_PARTITIONS = Metric(
        f"{_CONTROLLER}preferredreplicaimbalancecount",
        "gauge",
        "Partitions with another leader than the preferred replica; 0 on other brokers",
    )
    TOPICS_TO_DELETE = Metric(
        f"{_CONTROLLER}topicstodeletecount", "gauge", "Topics that are being deleted; 0 on other brokers"
    )

    GROUPS = Metric(f"{_GROUPS}numgroups", "gauge", "Groups that this broker coordinates")

    TRANSACTIONS = Metric(
        "barnabas_transactions",
        "gauge",
        "Transactional ids that this broker coordinates, by the state of their newest transaction",
        ("state",),
    )
    OLDEST_TRANSACTION = Metric(
        "barnabas_transaction_oldest_open_seconds",
        "gauge",
        "How long the oldest transaction that it coordinates is open",
    )
    TRANSACTIONS_ENDED = Metric(
        "barnabas_transactions_ended_total",
        "counter",
        "Transactions that it has ended, by their outcome",
        ("outcome",),
    )
    MARKERS_WITHOUT_LEADER = Metric(
        f"{_MARKERS}unknowndestinationqueuesize",
        "gauge",
        "Markers that wait for a leader of their partition, or are tried again",
    )
    MARKERS_WAITING = Metric(
        "barnabas_transaction_markers_waiting",
        "gauge",
        "Partitions that wait for the marker of a transaction, by their leader",
        ("broker",),
    )
    SLOWEST_LOAD = Metric(
        f"{_LOADS}partition_load_time_max", "gauge", "Longest of the last loads of __transaction_state, in ms"
    )
    AVERAGE_LOAD = Metric(f"{_LOADS}partition_load_time_avg", "gauge", "Their average, in ms")

    WAITING_BYTES = Metric(
        f"{_SOCKETS}memorypoolused",
        "gauge",
        "Bytes that wait in memory for peers: parts of requests, and answers that are not read",
        ("peers",),
    )
    WAITING_BYTES_LEFT = Metric(f"{_SOCKETS}memorypoolavailable", "gauge", "Bytes that may wait besides", ("peers",))
    CLOSED_FOR_MEMORY = Metric(
        f"{_SOCKETS}memorypoolclosedconnections",
        "counter",
        "Connections that were closed because memory was short and their bytes stood still",
        ("peers",),
    )
    CONNECTIONS = Metric(
        "kafka_server_socket_server_metrics_connection_count", "gauge", "Open connections of a listener", ("listener",)
    )
    PURGATORY = Metric(
        "kafka_server_delayedoperationpurgatory_purgatorysize",
        "gauge",
        "Requests that wait for an event, by what they wait for",
        ("delayedOperation",),
    )


def group_state_metric(state: GroupState) -> Metric:
    """How many groups are in a state: Kafka has a metric for each."""
    return Metric(
        f"{_GROUPS}numgroups{state.value.lower()}",
        "gauge",
        f"Groups that it coordinates in the state {state.value}",
    )
