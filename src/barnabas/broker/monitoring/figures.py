"""What a broker shows to Prometheus: from the state of its parts to the metrics page.

Names are those of `barnabas.broker.monitoring.metric_names`. Gauges are read from the state when
the page is wanted, in slices; counters are those that each part has of what it does. What there is
of a topic is shown for the first topics that the broker had: so their number bounds the page, not
the number of all topics or partitions, and a topic that is shown stays.

In Kafka: the metrics that `ReplicaManager`, `BrokerTopicStats`, `RequestMetrics`,
`KafkaController`, `GroupMetadataManager`, `TransactionMarkerChannelManager`,
`TransactionStateManager`, `LogManager`, `LogCleanerManager`, `DelayedOperationPurgatory` and
`SocketServer` register.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from barnabas.base.ids import NO_BROKER, TopicPartition
from barnabas.base.metric import Metric
from barnabas.base.network import Standing
from barnabas.base.tasks import Task, in_pieces, one_by_one
from barnabas.broker.cluster.znodes import LeaderIsrAndControllerEpoch
from barnabas.broker.controller.context import ControllerContext, PartitionState
from barnabas.broker.controller.service import Controller
from barnabas.broker.groups.coordinator import GroupCoordinator
from barnabas.broker.groups.group import GroupState
from barnabas.broker.monitoring.metric_names import BrokerMetrics, group_state_metric
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
from barnabas.net.prometheus import label, labels_of, lines_of
from barnabas.net.waiting_bytes import WaitingBytes

__all__ = ["Monitored", "metrics_of"]

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
_A_STEP = 128
"""Partitions between two places where others may have their turn: 0.2 ms."""


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

    def add(self, metric: Metric, value: float) -> None:
        """One without labels."""
        self.lines += lines_of(metric, [("", value)])

    def add_samples(self, metric: Metric, samples: Iterable[tuple[str, float]]) -> None:
        self.lines += lines_of(metric, samples)

    def add_each(self, metric: Metric, values: Mapping[str, float]) -> None:
        """One with one label, by its value."""
        self.lines += lines_of(metric, ((labels_of(metric, key), value) for key, value in values.items()))


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
    page.add(BrokerMetrics.WALL_CLOCK, monitored.wall_ms() / 1000)
    page.add_each(BrokerMetrics.PURGATORY, dict.fromkeys(OPERATION_KINDS, 0) | monitored.purgatory.sizes)
    return page.lines


class _Replicas:
    """What is counted of partitions, one after the other."""

    def __init__(self, late_before_ms: int) -> None:
        self._late_before_ms = late_before_ms
        self.sizes: dict[str, int] = {}
        """Bytes by the folder in which the log's is."""
        self.producer_ids = 0
        self.late_transactions = 0
        self.leaders = 0
        self.offline = 0
        self.reassigning = 0
        self.under_replicated = 0
        self.under_min_isr = 0
        self.at_min_isr = 0
        self._above_min_isr: dict[tuple[int, int, int], int] = {}
        """`Partition.above_min_isr` by all that it depends on."""

    def add(self, partitions: list[Partition]) -> None:
        """Count some partitions. There may be very many, and what costs is to reach objects that
        no cache of the processor has: so few are looked at, and hardly a function is called."""
        sizes, above_min_isr = self.sizes, self._above_min_isr
        for partition in partitions:
            log = partition.log
            if log.availability.reason is not None:
                self.offline += 1
                continue
            directory, segments = log.folder.parent, log.segments
            sizes[directory] = sizes.get(directory, 0) + segments.closed_bytes + segments.active.size
            role, producers = partition.role, log.producers
            if producers.entries:
                self.producer_ids += len(producers.entries)
            if type(role) is not Leader:
                continue
            self.leaders += 1
            if producers.entries:
                self.add_producers(producers)
            adding, in_sync = partition.adding_replicas, len(role.isr)
            if adding or partition.removing_replicas:
                self.reassigning += 1
            # While replicas are moved, those that are added are not missed.
            if in_sync < len(partition.replicas) - len(adding):
                self.under_replicated += 1
            numbers = in_sync, len(role.followers), log.config.min_insync_replicas
            above = above_min_isr.get(numbers)
            if above is None:
                above = above_min_isr[numbers] = partition.above_min_isr(role)
            if above < 0:
                self.under_min_isr += 1
            elif not above:
                self.at_min_isr += 1

    def add_producers(self, producers: ProducerState) -> None:
        """The producers of a partition that the broker leads."""
        oldest_ms = producers.oldest_transaction_ms
        if oldest_ms is not None and 0 < oldest_ms < self._late_before_ms:
            self.late_transactions += 1


def _replicas(page: _Page, replicas: ReplicaManager, log_dirs: LogDirs, late_before_ms: int) -> Task[None]:
    found = _Replicas(late_before_ms)
    for partitions in in_pieces(replicas, _A_STEP):
        found.add(partitions)
        yield None
    page.add(BrokerMetrics.PARTITIONS, len(replicas))
    page.add(BrokerMetrics.LEADERS, found.leaders)
    page.add(BrokerMetrics.OFFLINE_REPLICAS, found.offline)
    page.add(BrokerMetrics.UNDER_REPLICATED, found.under_replicated)
    page.add(BrokerMetrics.UNDER_MIN_ISR, found.under_min_isr)
    page.add(BrokerMetrics.AT_MIN_ISR, found.at_min_isr)
    page.add(BrokerMetrics.REASSIGNING, found.reassigning)
    page.add(BrokerMetrics.PRODUCER_IDS, found.producer_ids)
    page.add(BrokerMetrics.LATE_TRANSACTIONS, found.late_transactions)
    page.add(BrokerMetrics.ISR_SHRINKS, replicas.alter_partition.shrinks)
    page.add(BrokerMetrics.ISR_EXPANDS, replicas.alter_partition.expands)
    sizes = {directory: found.sizes.get(directory.rstrip("/"), 0) for directory in log_dirs.online}
    page.add_each(BrokerMetrics.LOG_DIR_SIZE, sizes)


_OF_TOPICS = {
    "messages_in": BrokerMetrics.MESSAGES_IN,
    "bytes_in": BrokerMetrics.BYTES_IN,
    "bytes_out": BrokerMetrics.BYTES_OUT,
    "replication_bytes_in": BrokerMetrics.REPLICATION_BYTES_IN,
    "replication_bytes_out": BrokerMetrics.REPLICATION_BYTES_OUT,
    "total_produce_requests": BrokerMetrics.PRODUCE_REQUESTS,
    "total_fetch_requests": BrokerMetrics.FETCH_REQUESTS,
    "failed_produce_requests": BrokerMetrics.FAILED_PRODUCE_REQUESTS,
    "failed_fetch_requests": BrokerMetrics.FAILED_FETCH_REQUESTS,
}
"""By the fields of `TopicTotals`. The sums over all topics have no label, as Kafka's MBean
without a topic."""


def _topics(page: _Page, stats: BrokerTopicStats, most_topics: int) -> Task[None]:
    sums, by_topic = yield from stats.totals(most_topics)
    shown = [(f"{{{label('topic', topic)}}}", totals) for topic, totals in by_topic.items()]
    for number, name in enumerate(TopicTotals._fields):
        samples = [("", sums[number]), *((of_topic, totals[number]) for of_topic, totals in shown)]
        page.add_samples(_OF_TOPICS[name], samples)
        yield None
    page.add(BrokerMetrics.TOPICS_WITHOUT_METRICS, len(stats.by_topic) - len(shown))


def _requests(page: _Page, metrics: BrokerRequestMetrics) -> None:
    found = metrics.by_name()
    labels = {name: label("request", name) for name in found}
    page.add_samples(
        BrokerMetrics.REQUESTS,
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
    page.add_samples(BrokerMetrics.REQUEST_TIME, times_of)
    page.add_samples(
        BrokerMetrics.UNSERVED_REQUESTS,
        [
            (labels_of(BrokerMetrics.UNSERVED_REQUESTS, name, str(version)), count)
            for (name, version), count in metrics.unserved().items()
        ],
    )


def _log_dirs(page: _Page, log_dirs: LogDirs, log_cleaner: LogCleaner) -> Task[None]:
    offline = log_dirs.offline
    states = dict.fromkeys(log_dirs.online, 0) | dict.fromkeys(offline, 1)
    page.add(BrokerMetrics.OFFLINE_LOG_DIRS, len(offline))
    page.add_each(BrokerMetrics.LOG_DIR_OFFLINE, states)
    uncleanable = dict.fromkeys(log_dirs.online, 0)
    for log in one_by_one(log_cleaner.uncleanable):
        if log.offline is None:
            directory = log_dirs.dir_of(log)
            uncleanable[directory] = uncleanable.get(directory, 0) + 1
        yield None
    page.add_each(BrokerMetrics.UNCLEANABLE, uncleanable)


def _controller(page: _Page, controller: Controller) -> Task[None]:
    page.add(BrokerMetrics.ACTIVE_CONTROLLERS, int(controller.is_active))
    topics = partitions = offline = imbalanced = deleted = 0
    if controller.is_active:
        context = controller.context
        topics, deleted = len(context.topics), len(context.to_delete)
        for assignments in in_pieces(context.topics.values(), _A_STEP):
            partitions += sum(map(len, assignments))
            yield None
        if PartitionState.OFFLINE in context.partition_states.values():
            for states in in_pieces(context.partition_states.items(), _A_STEP):
                offline += _offline(context, states)
                yield None
        for known in in_pieces(context.leadership.items(), _A_STEP):
            imbalanced += _imbalanced(context, known)
            yield None
    page.add(BrokerMetrics.GLOBAL_TOPICS, topics)
    page.add(BrokerMetrics.GLOBAL_PARTITIONS, partitions)
    page.add(BrokerMetrics.OFFLINE_PARTITIONS, offline)
    page.add(BrokerMetrics.IMBALANCED_PARTITIONS, imbalanced)
    page.add(BrokerMetrics.TOPICS_TO_DELETE, deleted)


def _offline(context: ControllerContext, states: list[tuple[TopicPartition, PartitionState]]) -> int:
    """Partitions without a leader, those of topics being deleted aside."""
    wanted = PartitionState.OFFLINE
    offline = [topic_partition.topic for topic_partition, state in states if state is wanted]
    return sum(topic not in context.to_delete for topic in offline)


def _imbalanced(
    context: ControllerContext, leadership: list[tuple[TopicPartition, LeaderIsrAndControllerEpoch]]
) -> int:
    """Partitions that another replica than the preferred one leads, those of topics being
    deleted aside."""
    count, topics, to_delete = 0, context.topics, context.to_delete
    for (topic, partition), known in leadership:
        assignments = topics.get(topic)
        assignment = None if assignments is None else assignments.get(partition)
        if assignment is None or not (replicas := assignment.replicas):
            continue
        if replicas[0] != known.leader_and_isr.leader and topic not in to_delete:
            count += 1
    return count


def _groups(page: _Page, groups: GroupCoordinator) -> Task[None]:
    states: Counter[GroupState] = Counter()
    for group in one_by_one(groups.groups()):
        states[group.state] += 1
        yield None
    page.add(BrokerMetrics.GROUPS, states.total())
    for state in GroupState:
        page.add(group_state_metric(state), states[state])


def _transactions(page: _Page, transactions: TransactionService, now_ms: int) -> Task[None]:
    states: Counter[TransactionState] = Counter()
    oldest_ms = now_ms
    for transaction in one_by_one(transactions.coordinator.transactions()):
        states[transaction.state] += 1
        if transaction.state in _OPEN_STATES and transaction.start_ms > 0:
            oldest_ms = min(oldest_ms, transaction.start_ms)
        yield None
    page.add_each(BrokerMetrics.TRANSACTIONS, {state.value: float(states[state]) for state in TransactionState})
    page.add(BrokerMetrics.OLDEST_TRANSACTION, (now_ms - oldest_ms) / 1000)
    ended = transactions.coordinator.ended
    page.add_each(
        BrokerMetrics.TRANSACTIONS_ENDED, {name: ended[is_committed] for is_committed, name in _OUTCOMES.items()}
    )
    waiting = transactions.markers.counts()
    page.add(BrokerMetrics.MARKERS_WITHOUT_LEADER, waiting.get(NO_BROKER, 0))
    page.add_each(
        BrokerMetrics.MARKERS_WAITING,
        {str(broker): float(count) for broker, count in sorted(waiting.items()) if broker != NO_BROKER},
    )
    loads = transactions.load_ms
    page.add(BrokerMetrics.SLOWEST_LOAD, max(loads, default=0))
    page.add(BrokerMetrics.AVERAGE_LOAD, sum(loads) / len(loads) if loads else 0)


def _waiting(page: _Page, waiting: Mapping[Standing, WaitingBytes]) -> None:
    peers = {Standing.STRANGER: "strangers", Standing.CLIENT: "clients", Standing.MEMBER: "brokers"}
    budgets = {name: waiting[standing].budget for standing, name in peers.items()}
    used = {name: float(budget.held_bytes) for name, budget in budgets.items()}
    available = {name: float(max(budget.limit_bytes - budget.held_bytes, 0)) for name, budget in budgets.items()}
    page.add_each(BrokerMetrics.WAITING_BYTES, used)
    page.add_each(BrokerMetrics.WAITING_BYTES_LEFT, available)
    page.add_each(
        BrokerMetrics.CLOSED_FOR_MEMORY,
        {name: float(waiting[standing].closed_count) for standing, name in peers.items()},
    )


def _connections(page: _Page, dispatcher: Dispatcher) -> Task[None]:
    counts: Counter[str] = Counter()
    for connection in one_by_one(dispatcher.connections):
        counts[connection.client.listener] += 1
        yield None
    page.add_each(BrokerMetrics.CONNECTIONS, counts)
