"""What a broker shows to Prometheus: from the state of its parts to the metrics page.

Names are those that the Prometheus JMX exporter makes of Kafka's MBeans, where Kafka has the
figure. Gauges are read from the state when the page is wanted, in slices; counters are those
that each part has of what it does. What there is of a topic is shown for the first topics that
the broker had: so their number bounds the page, not the number of all topics or partitions, and a
topic that is shown stays.

In Kafka: the metrics that `ReplicaManager`, `BrokerTopicStats`, `RequestMetrics`,
`KafkaController`, `GroupMetadataManager`, `TransactionMarkerChannelManager`,
`TransactionStateManager`, `LogManager`, `LogCleanerManager`, `DelayedOperationPurgatory` and
`SocketServer` register.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from barnabas.base.ids import NO_BROKER, TopicPartition
from barnabas.base.network import Standing
from barnabas.base.tasks import Task, one_by_one
from barnabas.broker.controller.context import ControllerContext, PartitionState
from barnabas.broker.controller.service import Controller
from barnabas.broker.groups.coordinator import GroupCoordinator
from barnabas.broker.groups.group import GroupState
from barnabas.broker.replication.partition import Leader, Partition
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.broker.replication.topic_stats import BrokerTopicStats, TopicTotals
from barnabas.broker.requests.dispatch import Dispatcher
from barnabas.broker.requests.purgatory import OPERATION_KINDS, Purgatory
from barnabas.broker.requests.request_metrics import BrokerRequestMetrics
from barnabas.broker.storage.log_cleaner import LogCleaner
from barnabas.broker.transactions.service import TransactionService
from barnabas.broker.transactions.states import TransactionState
from barnabas.log.dirs.log_dirs import LogDirs
from barnabas.log.producer_state import ProducerState
from barnabas.net.prometheus import label, metric_lines
from barnabas.net.waiting_bytes import WaitingBytes

__all__ = ["Monitored", "metrics_of"]

_REPLICAS = "kafka_server_replicamanager_"
_CONTROLLER = "kafka_controller_kafkacontroller_"
_GROUPS = "kafka_coordinator_group_groupmetadatamanager_"
_MARKERS = "kafka_coordinator_transaction_transactionmarkerchannelmanager_"
_LOADS = "kafka_server_transaction_coordinator_metrics_"
_LOGS = "kafka_log_logmanager_"
_TOPICS = "kafka_server_brokertopicmetrics_"
_SOCKETS = "kafka_network_socketserver_"
_REQUESTS = "kafka_network_requestmetrics_"
_LATE_TRANSACTION_MS = 5 * 60_000
"""A transaction that takes this much longer than it may is considered hanging, as in
Kafka (KIP-664)."""
_OPEN_STATES = frozenset(
    (
        *(TransactionState.ONGOING, TransactionState.PREPARE_EPOCH_FENCE),
        *(TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT),
    )
)
_OUTCOMES = {True: "committed", False: "aborted"}
_BUCKETS = 17
"""Up to 65 s; longer ones are in the last."""


@dataclass(frozen=True, slots=True)
class Monitored:
    """The parts of a broker that have something to show. They are read, and stay as they are."""

    replicas: ReplicaManager
    log_dirs: LogDirs
    log_cleaner: LogCleaner
    controller: Controller
    groups: GroupCoordinator
    dispatcher: Dispatcher
    purgatory: Purgatory
    transactions: TransactionService
    max_transaction_ms: int
    """transaction.max.timeout.ms: no coordinator lets a transaction last longer."""
    wall_ms: Callable[[], int]
    waiting: Mapping[Standing, WaitingBytes]
    """What waits in memory for connections."""
    most_topics: int
    """How many topics have metrics of their own."""


class _Page:
    """The lines so far."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def gauge(self, name: str, help_text: str, value: float) -> None:
        self.lines += metric_lines(name, "gauge", help_text, [("", value)])

    def counter(self, name: str, help_text: str, value: float) -> None:
        self.lines += metric_lines(name, "counter", help_text, [("", value)])

    def counters(self, name: str, help_text: str, samples: Iterable[tuple[str, float]]) -> None:
        self.lines += metric_lines(name, "counter", help_text, samples)

    def gauges(self, name: str, help_text: str, label_name: str, values: Mapping[str, float]) -> None:
        self.lines += metric_lines(name, "gauge", help_text, _labelled(label_name, values))


def _labelled(label_name: str, values: Mapping[str, float]) -> Iterable[tuple[str, float]]:
    return ((f"{{{label(label_name, key)}}}", value) for key, value in values.items())


def metrics_of(monitored: Monitored) -> Task[list[str]]:
    """The lines of the metrics page about a broker's parts."""
    page = _Page()
    late_before_ms = monitored.wall_ms() - monitored.max_transaction_ms - _LATE_TRANSACTION_MS
    yield from _replicas(page, monitored.replicas, monitored.log_dirs, late_before_ms)
    yield from _topics(page, monitored.replicas.topic_stats, monitored.most_topics)
    _requests(page, monitored.dispatcher.request_metrics)
    yield from _log_dirs(page, monitored.log_dirs, monitored.log_cleaner)
    yield from _controller(page, monitored.controller)
    yield from _groups(page, monitored.groups)
    yield from _transactions(page, monitored.transactions, monitored.wall_ms())
    yield from _connections(page, monitored.dispatcher)
    _waiting(page, monitored.waiting)
    page.gauges(
        "kafka_server_delayedoperationpurgatory_purgatorysize",
        "Requests that wait for an event, by what they wait for",
        "delayedOperation",
        dict.fromkeys(OPERATION_KINDS, 0) | monitored.purgatory.sizes,
    )
    return page.lines


class _Replicas:
    """What is counted of partitions, one after the other."""

    def __init__(self, late_before_ms: int) -> None:
        self._late_before_ms = late_before_ms
        self.producer_ids = 0
        self.late_transactions = 0
        self.leaders = 0
        self.offline = 0
        self.reassigning = 0
        self.under_replicated = 0
        self.under_min_isr = 0
        self.at_min_isr = 0

    def add(self, partition: Partition) -> None:
        if partition.offline:
            self.offline += 1
            return
        self.producer_ids += len(partition.log.producers.entries)
        role = partition.role
        if type(role) is not Leader:
            return
        self.leaders += 1
        self.add_producers(partition.log.producers)
        if partition.adding_replicas or partition.removing_replicas:
            self.reassigning += 1
        # While replicas are moved, those that are added are not missed.
        if len(role.isr) < len(partition.replicas) - len(partition.adding_replicas):
            self.under_replicated += 1
        if partition.is_under_min_isr(role):
            self.under_min_isr += 1
        elif partition.is_at_min_isr(role):
            self.at_min_isr += 1

    def add_producers(self, producers: ProducerState) -> None:
        """The producers of a partition that the broker leads."""
        oldest_ms = producers.oldest_transaction_ms
        if oldest_ms is not None and 0 < oldest_ms < self._late_before_ms:
            self.late_transactions += 1


def _replicas(page: _Page, replicas: ReplicaManager, log_dirs: LogDirs, late_before_ms: int) -> Task[None]:
    found = _Replicas(late_before_ms)
    sizes = dict.fromkeys(log_dirs.online, 0)
    for partition in one_by_one(replicas):
        found.add(partition)
        if not partition.offline:
            directory = log_dirs.dir_of(partition.log)
            sizes[directory] = sizes.get(directory, 0) + partition.log.segments.size_bytes
        yield None
    page.gauge(f"{_REPLICAS}partitioncount", "Partitions of which this broker has a replica", len(replicas))
    page.gauge(f"{_REPLICAS}leadercount", "Partitions that it leads", found.leaders)
    page.gauge(f"{_REPLICAS}offlinereplicacount", "Replicas whose log dir is offline", found.offline)
    page.gauge(
        f"{_REPLICAS}underreplicatedpartitions",
        "Partitions that it leads and that have a replica out of sync",
        found.under_replicated,
    )
    page.gauge(
        f"{_REPLICAS}underminisrpartitioncount",
        "Partitions that it leads and that have fewer in-sync replicas than min.insync.replicas",
        found.under_min_isr,
    )
    page.gauge(
        f"{_REPLICAS}atminisrpartitioncount",
        "Partitions that it leads and that have just min.insync.replicas",
        found.at_min_isr,
    )
    page.gauge(
        f"{_REPLICAS}reassigningpartitions",
        "Partitions that it leads and whose replicas are being moved",
        found.reassigning,
    )
    page.gauge(f"{_REPLICAS}produceridcount", "Producers that its replicas remember", found.producer_ids)
    page.gauge(
        f"{_REPLICAS}partitionswithlatetransactionscount",
        "Partitions that it leads with a transaction open 5 minutes longer than transaction.max.timeout.ms",
        found.late_transactions,
    )
    changes = replicas.alter_partition
    page.counter(f"{_REPLICAS}isrshrinks_total", "Times that it shrank an in-sync set", changes.shrinks)
    page.counter(f"{_REPLICAS}isrexpands_total", "Times that it expanded an in-sync set", changes.expands)
    page.gauges("barnabas_log_dir_size_bytes", "Bytes of the segments of a log dir", "logDirectory", sizes)


_TOPIC_HELP = (
    "Records appended to partitions that the broker leads",
    "Bytes of records appended to them",
    "Bytes of records sent to consumers",
    "Bytes of records copied from leaders",
    "Bytes of records sent to followers",
    "Partitions that Produce requests have named",
    "Partitions that Fetch requests have read",
    "Partitions of Produce requests that failed, as Kafka counts them",
    "Partitions of Fetch requests that failed, as Kafka counts them",
)
"""The sums over all topics have no label, as Kafka's MBean without a topic."""


def _topics(page: _Page, stats: BrokerTopicStats, most_topics: int) -> Task[None]:
    sums, by_topic = yield from stats.totals(most_topics)
    shown = [(f"{{{label('topic', topic)}}}", totals) for topic, totals in by_topic.items()]
    for number, name in enumerate(TopicTotals._fields):
        samples = [("", sums[number]), *((of_topic, totals[number]) for of_topic, totals in shown)]
        page.counters(f"{_TOPICS}{name.replace('_', '')}_total", _TOPIC_HELP[number], samples)
        yield None
    page.gauge(
        "barnabas_topics_without_metrics",
        "Topics of the broker that are beyond metrics.http.topics",
        len(stats.by_topic) - len(shown),
    )


def _requests(page: _Page, metrics: BrokerRequestMetrics) -> None:
    found = metrics.by_name()
    labels = {name: label("request", name) for name in found}
    page.counters(
        f"{_REQUESTS}requests_total",
        "Requests that were answered",
        [(f"{{{labels[name]}}}", sum(times.counts)) for name, times in found.items()],
    )
    times_of: list[tuple[str, float]] = []
    for name, times in found.items():
        count, counts = 0, times.counts
        for digits in range(_BUCKETS):
            count += counts[digits]
            times_of.append((f'_bucket{{{labels[name]},le="{(1 << digits) - 1}"}}', count))
        count += sum(counts[_BUCKETS:])
        times_of.append((f'_bucket{{{labels[name]},le="+Inf"}}', count))
        times_of.append((f"_count{{{labels[name]}}}", count))
        times_of.append((f"_sum{{{labels[name]}}}", times.total_ms))
    page.lines += metric_lines(
        f"{_REQUESTS}totaltimems", "histogram", "Time from the last byte of a request to its answer, in ms", times_of
    )


def _log_dirs(page: _Page, log_dirs: LogDirs, log_cleaner: LogCleaner) -> Task[None]:
    offline = log_dirs.offline
    states = dict.fromkeys(log_dirs.online, 0) | dict.fromkeys(offline, 1)
    page.gauge(f"{_LOGS}offlinelogdirectorycount", "Log dirs that are offline", len(offline))
    page.gauges(f"{_LOGS}logdirectoryoffline", "1 if a log dir is offline, else 0", "logDirectory", states)
    uncleanable = dict.fromkeys(log_dirs.online, 0)
    for log in one_by_one(log_cleaner.uncleanable):
        if log.offline is None:
            directory = log_dirs.dir_of(log)
            uncleanable[directory] = uncleanable.get(directory, 0) + 1
        yield None
    page.gauges(
        "kafka_log_logcleanermanager_uncleanable_partitions_count",
        "Logs that the last attempt could not compact",
        "logDirectory",
        uncleanable,
    )


def _controller(page: _Page, controller: Controller) -> Task[None]:
    page.gauge(f"{_CONTROLLER}activecontrollercount", "1 on the controller, 0 elsewhere", int(controller.is_active))
    topics = partitions = offline = imbalanced = deleted = 0
    if controller.is_active:
        context = controller.context
        topics, deleted = len(context.topics), len(context.to_delete)
        for topic in one_by_one(context.topics):
            for index in one_by_one(context.topics.get(topic, ())):
                partitions += 1
                if topic not in context.to_delete:
                    is_offline, is_imbalanced = _leadership(context, TopicPartition(topic, index))
                    offline += is_offline
                    imbalanced += is_imbalanced
                yield None
            yield None
    page.gauge(f"{_CONTROLLER}globaltopiccount", "Topics of the cluster; 0 on other brokers", topics)
    page.gauge(f"{_CONTROLLER}globalpartitioncount", "Partitions of the cluster; 0 on other brokers", partitions)
    page.gauge(f"{_CONTROLLER}offlinepartitionscount", "Partitions without a leader; 0 on other brokers", offline)
    page.gauge(
        f"{_CONTROLLER}preferredreplicaimbalancecount",
        "Partitions with another leader than the preferred replica; 0 on other brokers",
        imbalanced,
    )
    page.gauge(f"{_CONTROLLER}topicstodeletecount", "Topics that are being deleted; 0 on other brokers", deleted)


def _leadership(context: ControllerContext, topic_partition: TopicPartition) -> tuple[bool, bool]:
    """Whether a partition is offline, and whether another replica than the preferred
    one leads it."""
    known = context.leadership.get(topic_partition)
    replicas = context.assignment(topic_partition).replicas
    is_imbalanced = known is not None and bool(replicas) and known.leader_and_isr.leader != replicas[0]
    return context.partition_states.get(topic_partition) is PartitionState.OFFLINE, is_imbalanced


def _groups(page: _Page, groups: GroupCoordinator) -> Task[None]:
    states: Counter[GroupState] = Counter()
    for group in one_by_one(groups.groups()):
        states[group.state] += 1
        yield None
    page.gauge(f"{_GROUPS}numgroups", "Groups that this broker coordinates", states.total())
    for state in GroupState:
        name = state.value
        page.gauge(
            f"{_GROUPS}numgroups{name.lower()}", f"Groups that it coordinates in the state {name}", states[state]
        )


def _transactions(page: _Page, transactions: TransactionService, now_ms: int) -> Task[None]:
    states: Counter[TransactionState] = Counter()
    oldest_ms = now_ms
    for transaction in one_by_one(transactions.coordinator.transactions()):
        states[transaction.state] += 1
        if transaction.state in _OPEN_STATES and transaction.start_ms > 0:
            oldest_ms = min(oldest_ms, transaction.start_ms)
        yield None
    page.gauges(
        "barnabas_transactions",
        "Transactional ids that this broker coordinates, by the state of their newest transaction",
        "state",
        {state.value: float(states[state]) for state in TransactionState},
    )
    page.gauge(
        "barnabas_transaction_oldest_open_seconds",
        "How long the oldest transaction that it coordinates is open",
        (now_ms - oldest_ms) / 1000,
    )
    ended = transactions.coordinator.ended
    page.counters(
        "barnabas_transactions_ended_total",
        "Transactions that it has ended, by their outcome",
        [(f"{{{label('outcome', name)}}}", ended[is_committed]) for is_committed, name in _OUTCOMES.items()],
    )
    waiting = transactions.markers.counts()
    page.gauge(
        f"{_MARKERS}unknowndestinationqueuesize",
        "Markers that wait for a leader of their partition, or are tried again",
        waiting.get(NO_BROKER, 0),
    )
    page.gauges(
        "barnabas_transaction_markers_waiting",
        "Partitions that wait for the marker of a transaction, by their leader",
        "broker",
        {str(broker): float(count) for broker, count in sorted(waiting.items()) if broker != NO_BROKER},
    )
    loads = transactions.load_ms
    page.gauge(
        f"{_LOADS}partition_load_time_max",
        "Longest of the last loads of __transaction_state, in ms",
        max(loads, default=0),
    )
    page.gauge(
        f"{_LOADS}partition_load_time_avg",
        "Their average, in ms",
        sum(loads) / len(loads) if loads else 0,
    )


def _waiting(page: _Page, waiting: Mapping[Standing, WaitingBytes]) -> None:
    peers = {Standing.STRANGER: "strangers", Standing.CLIENT: "clients", Standing.MEMBER: "brokers"}
    budgets = {name: waiting[standing].budget for standing, name in peers.items()}
    used = {name: float(budget.held_bytes) for name, budget in budgets.items()}
    available = {name: float(max(budget.limit_bytes - budget.held_bytes, 0)) for name, budget in budgets.items()}
    what = "Bytes that wait in memory for peers: parts of requests, and answers that are not read"
    page.gauges(f"{_SOCKETS}memorypoolused", what, "peers", used)
    page.gauges(f"{_SOCKETS}memorypoolavailable", "Bytes that may wait besides", "peers", available)
    page.counters(
        f"{_SOCKETS}memorypoolclosedconnections",
        "Connections that were closed because memory was short and their bytes stood still",
        _labelled("peers", {name: float(waiting[standing].closed_count) for standing, name in peers.items()}),
    )


def _connections(page: _Page, dispatcher: Dispatcher) -> Task[None]:
    counts: Counter[str] = Counter()
    for connection in one_by_one(dispatcher.connections):
        counts[connection.client.listener] += 1
        yield None
    page.gauges(
        "kafka_server_socket_server_metrics_connection_count", "Open connections of a listener", "listener", counts
    )
