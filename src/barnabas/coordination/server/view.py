"""What a server shows of itself: the figures and lists that the four-letter words, the admin
server and metrics share.

In ZooKeeper: ServerStats, ServerMetrics, ZooKeeperServer.dumpConf and
ZooKeeperServer.dumpMonitorValues.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from heapq import merge
from typing import TypeVar

from barnabas import __date__, __version__
from barnabas.base.settings import Values
from barnabas.base.tasks import Task, one_by_one
from barnabas.coordination.core.connections import ServerConnection
from barnabas.coordination.core.local_sessions import UpgradeableSessionTracker
from barnabas.coordination.core.metric_table import CoordinationMetrics
from barnabas.coordination.core.processor import Processor
from barnabas.coordination.core.statistics import Distribution, Summary
from barnabas.coordination.server.metric_names import named_zeros
from barnabas.coordination.server.settings import session_timeouts_ms
from barnabas.coordination.zab.figures import QuorumState
from barnabas.coordination.zab.learner_handler import LearnerHandler
from barnabas.wire.jute.opcodes import EventType, OpCode

__all__ = ["VERSION_TEXT", "ServerFigures", "ServerView", "in_order"]

_ZOOKEEPER_VERSION = "3.9.4"
"""The version of ZooKeeper whose protocol and behaviour this is. Clients compare it with
the version of a feature."""

VERSION_TEXT = f"{_ZOOKEEPER_VERSION}-barnabas-{__version__}, built on {__date__} 00:00 UTC"
"""Three numbers, then a suffix, as ZooKeeper's own versions have a commit there. Monitors refuse
a version without a date."""

_OPERATIONS: dict[int, str] = {
    OpCode.CREATE: "CREA", OpCode.DELETE: "DELE", OpCode.EXISTS: "EXIS", OpCode.GET_DATA: "GETD", OpCode.SET_DATA: "SETD",
    OpCode.GET_ACL: "GETA", OpCode.SET_ACL: "SETA", OpCode.GET_CHILDREN: "GETC", OpCode.GET_CHILDREN2: "GETC",
    OpCode.SYNC: "SYNC", OpCode.PING: "PING", OpCode.MULTI: "MULT", OpCode.MULTI_READ: "MLTR", OpCode.CREATE2: "CREA",
    OpCode.CREATE_TTL: "CREA", OpCode.CREATE_CONTAINER: "CREA", OpCode.RECONFIG: "RECO", OpCode.CHECK_WATCHES: "CHKW",
    OpCode.REMOVE_WATCHES: "REMW", OpCode.SET_WATCHES: "SETW", OpCode.SET_WATCHES2: "STW2", OpCode.ADD_WATCH: "ADDW",
    OpCode.GET_EPHEMERALS: "GETE", OpCode.GET_ALL_CHILDREN_NUMBER: "GETACN", OpCode.WHO_AM_I: "HOMI",
    OpCode.CLOSE_SESSION: "CLOS", OpCode.SASL: "SASL", OpCode.AUTH: "AUTH",
}  # fmt: skip

_FIRED = {
    EventType.NODE_CREATED: "node_created_watch_count",
    EventType.NODE_DELETED: "node_deleted_watch_count",
    EventType.NODE_DATA_CHANGED: "node_changed_watch_count",
    EventType.NODE_CHILDREN_CHANGED: "node_children_watch_count",
}


_CONNECTIONS_A_STEP = 50
_ENTRIES_A_STEP = 500
"""Each step takes about half a millisecond."""
_T = TypeVar("_T", int, str)


def in_order(items: Iterable[_T]) -> Task[list[_T]]:
    """Like `sorted`, in slices."""
    waiting = list(items)
    if len(waiting) <= _ENTRIES_A_STEP:
        return sorted(waiting)
    parts = []
    for start in range(0, len(waiting), _ENTRIES_A_STEP):
        parts.append(sorted(waiting[start : start + _ENTRIES_A_STEP]))
        yield None
    found = []
    for number, item in enumerate(merge(*parts), 1):
        found.append(item)
        if not number % _ENTRIES_A_STEP:
            yield None
    return found


def _no_names() -> dict[str, str]:
    return {}


def _no_figures() -> dict[str, float]:
    return {}


def _no_sizes() -> tuple[int, int]:
    return 0, 0


@dataclass(frozen=True, slots=True)
class ServerFigures:
    """What a server is at this moment. What costs something to find out is a function."""

    mode: str
    """standalone; in an ensemble leader, follower or observer"""
    server_id: int
    """myid; 0 for a server alone, as in ZooKeeper"""
    client_port: int
    is_serving: bool = True
    """False while a member of an ensemble has no role"""
    secure_client_port: int = -1
    uptime_ms: int = 0
    now_ms: int = 0
    wall_ms: int = 0
    last_snapshot: tuple[int, int] = (-1, 0)
    """zxid, and when it was taken, in seconds"""
    summaries: Mapping[str, Summary | Distribution] = field(default_factory=dict)
    """times that the edge has measured, by the names of ServerMetrics"""
    counters: Mapping[str, int] = field(default_factory=dict)
    """what the edge has counted, likewise"""
    show_date: Callable[[int], str] = str
    """a time in ms since the epoch as text"""
    environment: Callable[[], Mapping[str, str]] = _no_names
    process: Callable[[], Mapping[str, float]] = _no_figures
    member: Mapping[str, object] = field(default_factory=dict)
    """the figures of a member of an ensemble, by the names of `mntr`"""
    quorum: QuorumState | None = None
    """the ensemble; None for a server alone"""
    sizes: Callable[[], tuple[int, int]] = _no_sizes
    """bytes in the snapshot and the log directory"""


class ServerView:
    """A server's parts, as the words and commands read them."""

    def __init__(
        self, processor: Processor, connections: Collection[ServerConnection], settings: Values, state: ServerFigures
    ) -> None:
        self.processor = processor
        self.connections = connections
        self.settings = settings
        self.state = state

    @property
    def node_count(self) -> int:
        """The number of nodes as ZooKeeper counts them: the root twice, for its tree
        has it under two names."""
        return len(self.processor.database.tree.nodes) + 1

    @property
    def is_learner(self) -> bool:
        """Whether a leader decides for this server."""
        return self.state.mode in ("follower", "observer")

    def established(self) -> list[ServerConnection]:
        """The connections that have a session."""
        return [each for each in self.connections if each.session is not None]

    # Figures

    def configuration(self) -> dict[str, object]:
        """The settings that `conf` shows, under its names."""
        settings, state = self.settings, self.state
        low, high = session_timeouts_ms(settings)
        snapshot_bytes, log_bytes = state.sizes()
        found: dict[str, object] = {
            "clientPort": state.client_port,
            "secureClientPort": state.secure_client_port,
            "dataDir": f"{settings['dataDir']}/version-2",
            "dataDirSize": snapshot_bytes,
            "dataLogDir": f"{settings['dataLogDir'] or settings['dataDir']}/version-2",
            "dataLogSize": log_bytes,
            "tickTime": settings["tickTime"],
            "maxClientCnxns": settings["maxClientCnxns"],
            "minSessionTimeout": low,
            "maxSessionTimeout": high,
            "clientPortListenBacklog": -1,
            "serverId": state.server_id,
        }
        if state.mode != "standalone":
            for name in ("initLimit", "syncLimit", "electionAlg"):
                found[name] = settings[name]
            quorum = state.quorum
            me = quorum.configuration.servers.get(quorum.my_id) if quorum is not None else None
            if me is not None:
                found["electionPort"] = me.election_address.port
                found["quorumPort"] = me.quorum_address.port
            found["peerType"] = 1 if state.mode == "observer" else 0
            found["membership"] = ""
            text = quorum.configuration.text() if quorum is not None else ""
            for line in text.split("\n"):
                name, _, value = line.partition("=")
                found[name] = value
        return found

    def gauges(self) -> dict[str, float]:
        """The present values that `mntr` shows first."""
        processor, statistics, state = self.processor, self.processor.statistics, self.state
        tree = processor.database.tree
        established = len(self.established())
        process = state.process()
        return {
            CoordinationMetrics.AVERAGE_LATENCY.name: round(statistics.average_latency_ms, 4),
            CoordinationMetrics.MAX_LATENCY.name: statistics.max_latency_ms,
            "min_latency": max(statistics.min_latency_ms, 0),
            CoordinationMetrics.PACKETS_RECEIVED.name: statistics.received,
            CoordinationMetrics.PACKETS_SENT.name: statistics.sent,
            CoordinationMetrics.CONNECTIONS.name: len(self.connections),
            CoordinationMetrics.OUTSTANDING_REQUESTS.name: processor.outstanding_requests,
            CoordinationMetrics.ZNODES.name: self.node_count,
            CoordinationMetrics.WATCHES.name: len(processor.watches),
            CoordinationMetrics.EPHEMERALS.name: sum(map(len, tree.ephemerals.values())),
            CoordinationMetrics.DATA_SIZE.name: tree.data_bytes,
            CoordinationMetrics.SESSIONS.name: len(processor.tracker.sessions) - processor.tracker.local_count,
            "local_sessions": processor.tracker.local_count,
            CoordinationMetrics.UPTIME.name: state.uptime_ms,
            "open_file_descriptor_count": process.get("process_open_fds", -1),
            "max_file_descriptor_count": process.get("process_max_fds", -1),
            "last_client_response_size": statistics.last_reply_bytes,
            "max_client_response_size": statistics.max_reply_bytes,
            "min_client_response_size": statistics.min_reply_bytes,
            "auth_failed_count": statistics.failed_authentications,
            "non_mtls_remote_conn_count": 0,
            "non_mtls_local_conn_count": established,
            "outstanding_tls_handshake": 0,
            "connection_drop_probability": 0,
        }

    def counters(self) -> dict[str, float]:
        """What has been counted since the start, by the names of ServerMetrics."""
        processor = self.processor
        return {
            CoordinationMetrics.DIGEST_MISMATCHES.name: processor.database.digest_mismatches,
            CoordinationMetrics.EXPIRED_SESSIONS.name: processor.statistics.expired_sessions,
            "connection_revalidate_count": processor.statistics.reconnections,
            **processor.metrics.counters(processor.staged_changes),
            **self.state.counters,
        }

    def summaries(self) -> dict[str, Summary | Distribution]:
        """Times and sizes since the start, by the names of ServerMetrics."""
        fired = {_FIRED[kind]: summary for kind, summary in self.processor.watches.fired.items()}
        return {**self.state.summaries, **fired, **self.processor.metrics.distributions()}

    def quotas(self) -> dict[str, int]:
        """Limits and usage of each namespace that has a quota, and how often a hard
        limit refused a write."""
        tree = self.processor.database.tree
        return tree.quotas.figures(tree.nodes)

    def monitor(self) -> dict[str, object]:
        """All that `mntr` shows, without its prefix."""
        found: dict[str, object] = {"version": VERSION_TEXT, "server_state": self.state.mode}
        found.update(self.gauges())
        found.update(named_zeros())
        found.update(self.state.member)
        found.update(self.quotas())
        found.update(self.counters())
        for name, summary in self.summaries().items():
            found.update(summary.values(name))
        for name, by_namespace in self.processor.metrics.by_namespace().items():
            for namespace, bytes_summary in by_namespace.items():
                found.update(bytes_summary.values(f"{namespace}_{name}"))
        found.update(self.state.process())
        return found

    # Lists

    def connection(self, client: ServerConnection, *, full: bool) -> dict[str, object]:
        """One connection, under the names of the admin server."""
        counts = client.statistics
        found: dict[str, object] = {
            "remote_socket_address": f"{client.address}:{client.port}",
            "interest_ops": 1,
            "outstanding_requests": len(client.waiting),
            "packets_received": counts.received,
            "packets_sent": counts.sent,
        }
        if full and client.session is not None:
            cxid, zxid = counts.last_ids
            found |= {
                "session_id": client.session_id,
                # Which may be any number.
                "last_operation": _OPERATIONS.get(client.last_opcode, "NA"),
                "established": self.state.wall_ms - (self.state.now_ms - client.since_ms),
                "session_timeout": client.session.timeout_ms,
                "last_cxid": cxid,
                "last_zxid": zxid,
                "last_response_time": counts.last_reply_ms,
                "last_latency": counts.last_latency_ms,
                "min_latency": max(counts.min_latency_ms, 0),
                "avg_latency": round(counts.average_latency_ms),
                "max_latency": counts.max_latency_ms,
            }
        return found

    def observers(self) -> list[dict[str, object]]:
        """The observers that follow this leader, under the names of the admin server."""
        quorum = self.state.quorum
        return [self._observer(each) for each in quorum.observers] if quorum is not None else []

    def _observer(self, handler: LearnerHandler) -> dict[str, object]:
        counts = handler.statistics
        return {
            "remote_socket_address": f"/{counts.address}",
            "sid": handler.server_id,
            "established": self.state.wall_ms - (self.state.now_ms - counts.since_ms),
            "queued_packets": 0,
            "queued_packets_size": 0,
            "packets_received": counts.received,
            "packets_sent": counts.sent,
            "requests": counts.requests,
            "last_zxid": handler.acked_zxid,
        }

    # In slices, because they may be long; each entry is as it is when its turn comes

    def connection_list(self, clients: Iterable[ServerConnection], *, full: bool) -> Task[list[dict[str, object]]]:
        """`connection` of each."""
        found = []
        for client in one_by_one(clients):
            found.append(self.connection(client, full=full))
            if not len(found) % _CONNECTIONS_A_STEP:
                yield None
        return found

    def expiring_sessions(self) -> Task[dict[int, list[int]]]:
        """Ids of the sessions that this server may expire, by the time at which it does: a
        learner's local ones alone."""
        found: dict[int, list[int]] = {}
        sessions, is_left = self.processor.tracker.sessions, self._is_left_to_leader
        for number, session_id in enumerate((yield from in_order(sessions)), 1):
            session = sessions.get(session_id)
            if session is not None and not is_left(session_id):
                found.setdefault(session.expires_ms, []).append(session_id)
            if not number % _ENTRIES_A_STEP:
                yield None
        return dict(sorted(found.items()))

    def sessions_of_leader(self) -> Task[dict[int, int]]:
        """On a learner, timeouts in ms of the global sessions, by id: their leader
        alone expires them."""
        found: dict[int, int] = {}
        sessions, is_left = self.processor.tracker.sessions, self._is_left_to_leader
        for number, session_id in enumerate((yield from in_order(sessions)) if self.is_learner else (), 1):
            session = sessions.get(session_id)
            if session is not None and is_left(session_id):
                found[session_id] = session.timeout_ms
            if not number % _ENTRIES_A_STEP:
                yield None
        return found

    def _is_left_to_leader(self, session_id: int) -> bool:
        tracker = self.processor.tracker
        is_local = isinstance(tracker, UpgradeableSessionTracker) and tracker.is_local(session_id)
        return self.is_learner and not is_local

    def ephemerals(self) -> Task[dict[int, list[str]]]:
        """Paths by session."""
        found: dict[int, list[str]] = {}
        ephemerals = self.processor.database.tree.ephemerals
        for session_id in (yield from in_order(ephemerals)):
            if session_id in ephemerals:
                found[session_id] = yield from in_order(ephemerals[session_id])
        return found

    def watched_paths(self) -> Task[dict[int, list[str]]]:
        """Paths by session."""
        found: dict[int, list[str]] = {}
        watches = self.processor.watches
        for number, path in enumerate((yield from in_order(watches.paths())), 1):
            for session_id in {watcher.session_id for watcher in watches.watchers_of(path)}:
                found.setdefault(session_id, []).append(path)
            if not number % _ENTRIES_A_STEP:
                yield None
        return {session_id: found[session_id] for session_id in (yield from in_order(found))}

    def watchers(self) -> Task[dict[str, list[int]]]:
        """Sessions by path."""
        found: dict[str, list[int]] = {}
        watches = self.processor.watches
        for number, path in enumerate((yield from in_order(watches.paths())), 1):
            if watchers := watches.watchers_of(path):
                found[path] = sorted([each.session_id for each in watchers])
            if not number % _ENTRIES_A_STEP:
                yield None
        return found

    # Changes

    def reset_statistics(self) -> None:
        """Begin to count again."""
        self.processor.statistics.reset()

    def reset_observers(self) -> None:
        """Begin to count again for each observer of this leader."""
        for each in self.state.quorum.observers if self.state.quorum is not None else ():
            each.statistics.reset()

    def reset_connections(self) -> None:
        """Begin to count again for each connection."""
        for each in self.connections:
            each.statistics.reset()
