"""The four-letter words: plain text for people and monitoring, asked for by four bytes in the place of a length.

In ZooKeeper: CommandExecutor and the classes of org.apache.zookeeper.server.command.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass

from barnabas import __version__
from barnabas.base.settings import Values
from barnabas.coordination.core.connections import ServerConnection
from barnabas.coordination.core.processor import Processor
from barnabas.coordination.server.settings import session_timeouts_ms

__all__ = ["VERSION_TEXT", "ServerState", "answer"]

_ZOOKEEPER_VERSION = "3.8.4"
"""The version of ZooKeeper whose protocol and behaviour this is. Clients compare it with the version of a feature."""

VERSION_TEXT = f"{_ZOOKEEPER_VERSION}-barnabas-{__version__}"
"""Three numbers, then a suffix, as ZooKeeper's own versions have a commit there."""


@dataclass(frozen=True, slots=True)
class ServerState:
    """What a server is at this moment."""

    mode: str
    """standalone; with an ensemble leader, follower or observer"""
    server_id: int
    """myid; 0 for a server alone, as in ZooKeeper"""
    client_port: int


class _Question:
    """What an answer is made from."""

    def __init__(
        self, processor: Processor, connections: Collection[ServerConnection], settings: Values, state: ServerState
    ) -> None:
        self.processor = processor
        self.connections = connections
        self.settings = settings
        self.state = state


def answer(
    word: bytes,
    processor: Processor,
    connections: Collection[ServerConnection],
    settings: Values,
    state: ServerState,
) -> bytes | None:
    """The text for a word; None for bytes that are not one. A word outside the whitelist is refused in words."""
    name = word.decode("ascii", "replace")
    handler = _WORDS.get(name)
    if handler is None:
        return None
    allowed = settings["4lw.commands.whitelist"]
    if name not in allowed and "*" not in allowed:
        return f"{name} is not executed because it is not in the whitelist.\n".encode("ascii")
    return handler(_Question(processor, connections, settings, state)).encode("utf-8", "replace")


def _hex(session_id: int) -> str:
    return f"0x{session_id & (1 << 64) - 1:x}"


def _ruok(_question: _Question) -> str:
    return "imok"


def _isro(_question: _Question) -> str:
    return "rw"


def _summary(question: _Question) -> str:
    processor, statistics = question.processor, question.processor.statistics
    return (
        f"Latency min/avg/max: {max(statistics.min_latency_ms, 0)}/{statistics.average_latency_ms:.4f}"
        f"/{statistics.max_latency_ms}\n"
        f"Received: {statistics.received}\n"
        f"Sent: {statistics.sent}\n"
        f"Connections: {len(question.connections)}\n"
        f"Outstanding: {processor.outstanding_requests}\n"
        f"Zxid: 0x{processor.database.last_zxid:x}\n"
        f"Mode: {question.state.mode}\n"
        f"Node count: {len(processor.database.tree.nodes)}\n"
    )


def _srvr(question: _Question) -> str:
    return f"Zookeeper version: {VERSION_TEXT}\n{_summary(question)}"


def _connection_line(connection: ServerConnection, *, full: bool) -> str:
    counts = connection.statistics
    line = (
        f" /{connection.address}:{connection.port}[1](queued={len(connection.waiting)},"
        f"recved={counts.received},sent={counts.sent}"
    )
    if full and connection.session is not None:
        line += (
            f",sid={_hex(connection.session_id)},to={connection.session.timeout_ms},"
            f"minlat={max(counts.min_latency_ms, 0)},avglat={counts.average_latency_ms:.0f},"
            f"maxlat={counts.max_latency_ms}"
        )
    return line + ")\n"


def _stat(question: _Question) -> str:
    lines = "".join(_connection_line(each, full=False) for each in question.connections)
    return f"Zookeeper version: {VERSION_TEXT}\nClients:\n{lines}\n{_summary(question)}"


def _cons(question: _Question) -> str:
    return "".join(_connection_line(each, full=True) for each in question.connections) + "\n"


def _mntr(question: _Question) -> str:
    processor, statistics = question.processor, question.processor.statistics
    tree = processor.database.tree
    figures = {
        "version": VERSION_TEXT,
        "server_state": question.state.mode,
        "avg_latency": round(statistics.average_latency_ms, 4),
        "max_latency": statistics.max_latency_ms,
        "min_latency": max(statistics.min_latency_ms, 0),
        "packets_received": statistics.received,
        "packets_sent": statistics.sent,
        "num_alive_connections": len(question.connections),
        "outstanding_requests": processor.outstanding_requests,
        "znode_count": len(tree.nodes),
        "watch_count": len(processor.watches),
        "ephemerals_count": sum(map(len, tree.ephemerals.values())),
        "approximate_data_size": tree.data_bytes,
        "global_sessions": len(processor.tracker.sessions),
    }
    return "".join(f"zk_{name}\t{value}\n" for name, value in figures.items())


def _conf(question: _Question) -> str:
    settings = question.settings
    low, high = session_timeouts_ms(settings)
    lines = {
        "clientPort": question.state.client_port,
        "dataDir": f"{settings['dataDir']}/version-2",
        "dataLogDir": f"{settings['dataLogDir'] or settings['dataDir']}/version-2",
        "tickTime": settings["tickTime"],
        "maxClientCnxns": settings["maxClientCnxns"],
        "minSessionTimeout": low,
        "maxSessionTimeout": high,
        "serverId": question.state.server_id,
    }
    return "".join(f"{name}={value}\n" for name, value in lines.items())


def _envi(_question: _Question) -> str:
    return f"Environment:\nzookeeper.version={VERSION_TEXT}\n"


def _dump(question: _Question) -> str:
    processor = question.processor
    tracker, ephemerals = processor.tracker, processor.database.tree.ephemerals
    sessions = "".join(f"\t{_hex(each)}\n" for each in sorted(tracker.sessions))
    owned = "".join(
        f"{_hex(session_id)}:\n" + "".join(f"\t{path}\n" for path in sorted(paths))
        for session_id, paths in sorted(ephemerals.items())
    )
    return (
        f"SessionTracker dump:\nSession Sets ({len(tracker.sessions)}):\n{sessions}"
        f"ephemeral nodes dump:\nSessions with Ephemerals ({len(ephemerals)}):\n{owned}"
    )


def _wchs(question: _Question) -> str:
    watchers, paths, total = question.processor.watches.counts()
    return f"{watchers} connections watching {paths} paths\nTotal watches:{total}\n"


def _wchp(question: _Question) -> str:
    lines = []
    for path, watchers in sorted(question.processor.watches.by_path().items()):
        lines.append(f"{path}\n")
        lines += [f"\t{_hex(session_id)}\n" for session_id in sorted(each.session_id for each in watchers)]
    return "".join(lines)


def _wchc(question: _Question) -> str:
    paths: dict[int, set[str]] = {}
    for path, watchers in question.processor.watches.by_path().items():
        for watcher in watchers:
            paths.setdefault(watcher.session_id, set()).add(path)
    return "".join(
        f"{_hex(session_id)}\n" + "".join(f"\t{path}\n" for path in sorted(watched))
        for session_id, watched in sorted(paths.items())
    )


def _srst(question: _Question) -> str:
    question.processor.statistics.reset()
    return "Server stats reset.\n"


def _crst(question: _Question) -> str:
    for each in question.connections:
        each.statistics.reset()
    return "Connection stats reset.\n"


_WORDS: dict[str, Callable[[_Question], str]] = {
    "ruok": _ruok,
    "isro": _isro,
    "srvr": _srvr,
    "stat": _stat,
    "cons": _cons,
    "mntr": _mntr,
    "conf": _conf,
    "envi": _envi,
    "dump": _dump,
    "wchs": _wchs,
    "wchp": _wchp,
    "wchc": _wchc,
    "srst": _srst,
    "crst": _crst,
}
