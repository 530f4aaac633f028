"""The views of ``barnabas top``: for each a table of what was read.

A view of things that have parts has a second table, of the parts of one of them: the partitions of
a topic, those that a broker leads. A new view is a module's function and an entry in `VIEWS`.

In Kafka: what `kafka-topics.sh --describe` and the MBeans show.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from barnabas.client.network.server_status import ServingState, zxid_lags
from barnabas.top.group_views import groups_table, partitions_of_group
from barnabas.top.numbers import age, byte_rate, count, milliseconds, plain, rate
from barnabas.top.rates import ApiTimes, BrokerRates, Rates, Seen
from barnabas.top.tables import Cell, Column, Level, TableRow, ViewTable
from barnabas.top.values import BrokerState, PartitionSeen, TopicSeen

__all__ = ["VIEWS", "TopView"]

_WAITING = {
    "FetchConsumer": "waits for records",
    "FetchFollower": "waits for records",
    "ShareFetch": "waits for records",
    "JoinGroup": "waits for members",
    "SyncGroup": "waits for the assignment",
}
"""Requests that a broker answers when something happens: long times of theirs are no fault."""


@dataclass(frozen=True, slots=True)
class TopView:
    """``table`` makes its table; ``parts``, if it has any, that of the parts of a row's key."""

    title: str
    table: Callable[[Seen], ViewTable]
    parts: Callable[[Seen, str], ViewTable] | None = None


def _brokers(seen: Seen) -> ViewTable:
    snapshot, rates = seen
    leads = _counted(part.leader for topic in snapshot.topics for part in topic.partitions)
    behind = _counted(part.leader for topic in snapshot.topics for part in topic.partitions if part.is_under_replicated)
    replicas = _counted(replica for topic in snapshot.topics for part in topic.partitions for replica in part.replicas)
    rows = []
    for broker in snapshot.brokers:
        own = rates.brokers.get(broker.id, BrokerRates())
        figures = broker.figures
        standing = [broker.state.value, *(["controller"] if broker.is_controller else [])]
        cells = (
            Cell(broker.id, str(broker.id)),
            plain(", ".join(standing)),
            plain(broker.address),
            plain(broker.rack),
            count(leads.get(broker.id, 0)),
            count(replicas.get(broker.id, 0)),
            count(behind.get(broker.id, 0)),
            rate(None if rates.seconds is None else rates.led.get(broker.id, 0.0)),
            byte_rate(own.bytes_in),
            byte_rate(own.bytes_out),
            Cell(own.cpu, "?" if own.cpu is None else f"{own.cpu:.2f}"),
            count(figures.connections if figures else None),
            byte_rate(figures.memory_bytes if figures else None),
        )
        level = Level.PLAIN if broker.state is BrokerState.UP else Level.ERROR
        rows.append(TableRow(str(broker.id), cells, level))
    columns = (
        Column("BROKER", "id", 0),
        Column("STATE", "state", 0, is_number=False),
        Column("ADDRESS", "address", 3, is_number=False),
        Column("RACK", "rack", 9, is_number=False),
        Column("LEADS", "leads", 1),
        Column("REPLICAS", "replicas", 6),
        Column("OUT OF SYNC", "under_replicated", 4),
        Column("RECORDS/S", "records_per_s", 2),
        Column("IN/S", "bytes_in_per_s", 3),
        Column("OUT/S", "bytes_out_per_s", 3),
        Column("CPU", "cpu", 4),
        Column("CONNECTIONS", "connections", 8),
        Column("MEMORY", "memory_bytes", 7),
    )
    return ViewTable(columns, rows, snapshot.notes.get("brokers", ""))


def _counted(items: Iterable[int | None]) -> dict[int, int]:
    found: dict[int, int] = {}
    for item in items:
        if item is not None:
            found[item] = found.get(item, 0) + 1
    return found


_TOPIC_COLUMNS = (
    Column("TOPIC", "name", 0, is_number=False),
    Column("PARTITIONS", "partitions", 3),
    Column("REPLICAS", "replicas", 5),
    Column("RECORDS", "records", 2),
    Column("RECORDS/S", "records_per_s", 1),
    Column("WRONG", "wrong", 1, is_number=False),
)


def _topics(seen: Seen) -> ViewTable:
    rows = [_topic_row(topic, seen.rates) for topic in seen.snapshot.topics if not topic.is_internal]
    rows += [_topic_row(topic, seen.rates) for topic in seen.snapshot.topics if topic.is_internal]
    return ViewTable(_TOPIC_COLUMNS, rows, seen.snapshot.notes.get("topics", ""))


def _topic_row(topic: TopicSeen, rates: Rates) -> TableRow:
    leaderless, behind = topic.leaderless, topic.under_replicated
    wrong = [f"{leaderless} without leader"] if leaderless else []
    wrong += [f"{behind} under replicated"] if behind else []
    cells = (
        plain(topic.name),
        count(len(topic.partitions)),
        count(max((len(part.replicas) for part in topic.partitions), default=0)),
        count(topic.records),
        rate(rates.topics.get(topic.name)),
        plain(", ".join(wrong) or None),
    )
    return TableRow(topic.name, cells, Level.ERROR if leaderless else Level.WARNING if behind else Level.PLAIN)


_PARTITION_COLUMNS = (
    Column("PARTITION", "partition", 0, is_number=False),
    Column("LEADER", "leader", 0),
    Column("REPLICAS", "replicas", 3, is_number=False),
    Column("ISR", "isr", 2, is_number=False),
    Column("FIRST", "first", 4),
    Column("END", "end", 2),
    Column("RECORDS/S", "records_per_s", 1),
)


def _partition_row(topic: str, part: PartitionSeen, rates: Rates) -> TableRow:
    name = f"{topic}-{part.partition}"
    cells = (
        Cell(name, name),
        Cell(part.leader, "none" if part.leader is None else str(part.leader)),
        plain(",".join(map(str, part.replicas))),
        plain(",".join(map(str, part.isr))),
        count(part.first),
        count(part.end),
        rate(rates.partitions.get((topic, part.partition))),
    )
    level = Level.ERROR if part.leader is None else Level.WARNING if part.is_under_replicated else Level.PLAIN
    return TableRow(name, cells, level)


def _partitions_of_topic(seen: Seen, name: str) -> ViewTable:
    found = [topic for topic in seen.snapshot.topics if topic.name == name]
    rows = [_partition_row(name, part, seen.rates) for topic in found for part in topic.partitions]
    return ViewTable(_PARTITION_COLUMNS, rows, "" if found else "the topic is not there")


def _partitions_of_broker(seen: Seen, key: str) -> ViewTable:
    """Those that it leads; the others are behind, or led by others."""
    rows = [
        _partition_row(topic.name, part, seen.rates)
        for topic in seen.snapshot.topics
        for part in topic.partitions
        if str(part.leader) == key
    ]
    return ViewTable(_PARTITION_COLUMNS, rows, "" if rows else "it leads no partition")


def _coordination(seen: Seen) -> ViewTable:
    columns = (
        Column("SERVER", "server", 0, is_number=False),
        Column("ROLE", "role", 0, is_number=False),
        Column("ZXID", "zxid", 4, is_number=False),
        Column("LAG", "lag", 1),
        Column("SESSIONS", "sessions", 2),
        Column("CONNECTIONS", "connections", 3),
        Column("OUTSTANDING", "outstanding", 3),
        Column("LATENCY", "latency_avg_max_ms", 5, is_number=False),
        Column("NODES", "nodes", 4),
        Column("VERSION", "version", 6, is_number=False),
    )
    servers = seen.snapshot.coordination
    rows = []
    for status, lag in zip(servers, zxid_lags(servers), strict=True):
        behind = Cell(lag, "-" if lag is None else str(lag))
        figures = (status.sessions, status.connections, status.outstanding)
        numbers = [Cell(figure, "-" if figure is None else f"{figure:,}") for figure in figures]
        cells = (
            plain(status.server),
            plain(status.role),
            plain(status.zxid),
            behind,
            *numbers,
            plain(status.latency_avg_max_ms),
            Cell(status.nodes, "-" if status.nodes is None else f"{status.nodes:,}"),
            plain(status.version),
        )
        serves = status.state is ServingState.SERVING
        is_away = status.state is ServingState.UNREACHABLE
        rows.append(
            TableRow(status.server, cells, Level.PLAIN if serves else Level.ERROR if is_away else Level.WARNING)
        )
    return ViewTable(columns, rows, seen.snapshot.notes.get("coordination", ""))


def _flows(seen: Seen) -> ViewTable:
    columns = (
        Column("FLOW", "name", 0, is_number=False),
        Column("STATE", "state", 0, is_number=False),
        Column("ROWS", "rows", 1),
        Column("BAD", "bad_rows", 2),
        Column("LAG", "lag", 1),
        Column("CATCH UP", "catch_up_s", 2),
        Column("SEEN AT", "place", 5, is_number=False),
    )
    rows = [
        TableRow(
            flow.name,
            (
                plain(flow.name),
                plain(flow.state),
                count(flow.rows),
                count(flow.bad_rows),
                count(flow.lag),
                age(flow.catch_up_s),
                plain(flow.place),
            ),
            Level.WARNING if flow.bad_rows or flow.state not in ("running", "done", "stopped") else Level.PLAIN,
        )
        for flow in seen.snapshot.flows
    ]
    return ViewTable(columns, rows, seen.snapshot.notes.get("flows", ""))


def _mirrors(seen: Seen) -> ViewTable:
    columns = (
        Column("MIRROR", "source", 0, is_number=False),
        Column("TO", "target", 1, is_number=False),
        Column("HEARTBEAT", "heartbeat_age_s", 0),
        Column("TOPICS", "topics", 2),
        Column("RECORDS", "records", 2),
    )
    at_ms = seen.snapshot.at_ms
    rows = []
    for mirror in seen.snapshot.mirrors:
        seconds = None if mirror.heartbeat_ms is None else max(0.0, (at_ms - mirror.heartbeat_ms) / 1000)
        cells = (plain(mirror.source), plain(mirror.target), age(seconds), count(mirror.topics), count(mirror.records))
        is_late = seconds is None or seconds > _LATE_HEARTBEAT_S
        rows.append(TableRow(f"{mirror.source}->{mirror.target}", cells, Level.WARNING if is_late else Level.PLAIN))
    return ViewTable(columns, rows, seen.snapshot.notes.get("mirrors", ""))


_LATE_HEARTBEAT_S = 30.0  # they come each second, MirrorMaker 2's too


def _requests(seen: Seen) -> ViewTable:
    columns = (
        Column("REQUEST", "request", 0, is_number=False),
        Column("BROKER", "broker", 0),
        Column("P99", "p99_ms", 0),
        Column("MEAN", "mean_ms", 1),
        Column("/S", "per_s", 1),
        Column("COUNT", "count", 3),
        Column("", "remark", 2, is_number=False),
    )
    rows = [
        TableRow(
            f"{each.api} {each.broker_id}",
            (
                plain(each.api),
                Cell(each.broker_id, str(each.broker_id)),
                milliseconds(each.times_ms.quantile(0.99)),
                milliseconds(each.times_ms.mean),
                rate(each.per_s),
                count(each.times_ms.count),
                plain(_WAITING.get(each.api)),
            ),
        )
        for each in sorted(seen.rates.requests, key=_slowness)
    ]
    return ViewTable(columns, rows, seen.snapshot.notes.get("requests", ""))


def _slowness(times: ApiTimes) -> tuple[bool, float]:
    """The slowest first; those that wait by nature last."""
    return times.api in _WAITING, -(times.times_ms.quantile(0.99) or 0.0)


VIEWS: Mapping[str, TopView] = {
    "brokers": TopView("Brokers", _brokers, _partitions_of_broker),
    "topics": TopView("Topics", _topics, _partitions_of_topic),
    "groups": TopView("Groups", groups_table, partitions_of_group),
    "coordination": TopView("Coordination", _coordination),
    "flows": TopView("Flows", _flows),
    "mirrors": TopView("Mirrors", _mirrors),
    "requests": TopView("Slowest requests", _requests),
}
"""By their names, in the order in which they are shown."""
