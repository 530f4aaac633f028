"""The four-letter words: plain text for people and monitoring, asked for by four bytes
in the place of a length.

In ZooKeeper: CommandExecutor and the classes of org.apache.zookeeper.server.command.
"""

from collections.abc import Callable, Iterable, Iterator

from barnabas.base.tasks import Task
from barnabas.coordination.core.connections import ServerConnection
from barnabas.coordination.server.view import VERSION_TEXT, ServerView

__all__ = ["answer"]

_WITHOUT_SERVICE = frozenset(("ruok", "conf", "envi", "gtmk", "stmk"))
_LINES_A_STEP = 100
_NOT_SERVING = b"This ZooKeeper instance is not currently serving requests\n"


def answer(request: bytes, view: ServerView) -> Task[bytes] | None:
    """The text for a word, behind which stmk has eight bytes; None for bytes that are not one.

    A word outside the whitelist is refused in words.
    """
    handler = _WORDS.get(request[:4].decode("ascii", "replace"))
    return None if handler is None else _answer(request, view, handler)


def _answer(request: bytes, view: ServerView, handler: "_Word") -> Task[bytes]:
    name = request[:4].decode("ascii")
    allowed = view.settings["4lw.commands.whitelist"]
    if name not in allowed and "*" not in allowed:
        return f"{name} is not executed because it is not in the whitelist.\n".encode("ascii")
    if not view.state.is_serving and name not in _WITHOUT_SERVICE:
        return _NOT_SERVING
    text = _stmk(view, request[4:]) if name == "stmk" else handler(view)
    if not isinstance(text, str):
        text = yield from text
    return text.encode("utf-8", "replace")


def _joined(lines: Iterable[str]) -> Task[str]:
    """The text of many lines."""
    found = []
    for line in lines:
        found.append(line)
        if not len(found) % _LINES_A_STEP:
            yield None
    return "".join(found)


def _hex(number: int) -> str:
    return f"0x{number & (1 << 64) - 1:x}"


def _ruok(_view: ServerView) -> str:
    return "imok"


def _isro(view: ServerView) -> str:
    return "ro" if view.state.mode == "read-only" else "rw"


def _summary(view: ServerView) -> str:
    processor, statistics = view.processor, view.processor.statistics
    return (
        f"Latency min/avg/max: {max(statistics.min_latency_ms, 0)}/{round(statistics.average_latency_ms, 4)}"
        f"/{statistics.max_latency_ms}\n"
        f"Received: {statistics.received}\n"
        f"Sent: {statistics.sent}\n"
        f"Connections: {len(view.connections)}\n"
        f"Outstanding: {processor.outstanding_requests}\n"
        f"Zxid: 0x{processor.database.last_zxid:x}\n"
        f"Mode: {view.state.mode}\n"
        f"Node count: {view.node_count}\n"
        f"{_proposal_sizes(view)}"
    )


def _proposal_sizes(view: ServerView) -> str:
    """The sizes of a leader's proposals."""
    if view.state.mode != "leader":
        return ""
    last, least, greatest = (view.state.member[f"{part}_proposal_size"] for part in ("last", "min", "max"))
    return f"Proposal sizes last/min/max: {last}/{least}/{greatest}\n"


def _version(view: ServerView) -> str:
    read_only = "READ-ONLY mode; serving only read-only clients\n" if view.state.mode == "read-only" else ""
    return f"Zookeeper version: {VERSION_TEXT}\n{read_only}"


def _srvr(view: ServerView) -> str:
    return f"{_version(view)}{_summary(view)}"


_CONNECTION_FIELDS = {
    "sid": "session_id", "lop": "last_operation", "est": "established", "to": "session_timeout", "lcxid": "last_cxid",
    "lzxid": "last_zxid", "lresp": "last_response_time", "llat": "last_latency", "minlat": "min_latency",
    "avglat": "avg_latency", "maxlat": "max_latency",
}  # fmt: skip


def _connection_line(view: ServerView, connection: ServerConnection, *, full: bool) -> str:
    found = view.connection(connection, full=full)
    line = (
        f" /{found['remote_socket_address']}[{found['interest_ops']}](queued={found['outstanding_requests']},"
        f"recved={found['packets_received']},sent={found['packets_sent']}"
    )
    if "session_id" in found:
        for name, key in _CONNECTION_FIELDS.items():
            value = found[key]
            line += f",{name}={_hex(value) if name in ('sid', 'lcxid', 'lzxid') and isinstance(value, int) else value}"
    return line + ")\n"


def _stat(view: ServerView) -> Task[str]:
    lines = yield from _joined(_connection_line(view, each, full=False) for each in view.connections)
    return f"{_version(view)}Clients:\n{lines}\n{_summary(view)}"


def _cons(view: ServerView) -> Task[str]:
    return (yield from _joined(_connection_line(view, each, full=True) for each in view.connections)) + "\n"


def _mntr(view: ServerView) -> str:
    return "".join(f"zk_{name}\t{value}\n" for name, value in view.monitor().items())


def _conf(view: ServerView) -> str:
    found = view.configuration()
    return "".join("membership: \n" if name == "membership" else f"{name}={value}\n" for name, value in found.items())


def _envi(view: ServerView) -> str:
    names = {"zookeeper.version": VERSION_TEXT, **view.state.environment()}
    return "Environment:\n" + "".join(f"{name}={value}\n" for name, value in names.items())


def _dirs(view: ServerView) -> str:
    snapshot_bytes, log_bytes = view.state.sizes()
    return f"datadir_size: {snapshot_bytes}\nlogdir_size: {log_bytes}\n"


def _hash(view: ServerView) -> str:
    return "".join(f"{zxid:x}: {digest}\n" for zxid, digest in view.processor.database.digest_log)


def _gtmk(view: ServerView) -> str:
    return str(view.processor.statistics.trace_mask)


def _stmk(view: ServerView, argument: bytes) -> str:
    if len(argument) == 8:
        view.processor.statistics.trace_mask = int.from_bytes(argument, "big", signed=True)
    return _gtmk(view)


def _dump(view: ServerView) -> Task[str]:
    sessions, ephemerals = (yield from view.expiring_sessions()), (yield from view.ephemerals())
    timeouts = yield from view.sessions_of_leader()
    return (yield from _joined(f"{line}\n" for line in _dump_lines(view, sessions, timeouts, ephemerals)))


def _dump_lines(
    view: ServerView, sessions: dict[int, list[int]], timeouts: dict[int, int], ephemerals: dict[int, list[str]]
) -> Iterator[str]:
    """What `_dump` shows; ``timeouts`` are of the sessions that another server may expire."""
    state = view.state
    yield "SessionTracker dump:"
    if sessions or not view.is_learner:
        local = "Local " if view.is_learner else ""
        yield f"{local}Session Sets ({len(sessions)})/({sum(map(len, sessions.values()))}):"
    for expires_ms, ids in sessions.items():
        moment = state.show_date(state.wall_ms + expires_ms - state.now_ms)
        yield f"{len(ids)} expire at {moment}:"
        yield from (f"\t{_hex(each)}" for each in ids)
    if view.is_learner:
        yield f"Global Sessions({len(timeouts)}):"
        yield from (f"{_hex(each)}\t{timeout_ms}ms" for each, timeout_ms in timeouts.items())
    yield "ephemeral nodes dump:"
    yield f"Sessions with Ephemerals ({len(ephemerals)}):"
    for session_id, paths in ephemerals.items():
        yield f"{_hex(session_id)}:"
        yield from (f"\t{path}" for path in paths)
    yield "Connections dump:"
    yield f"Connections ({len(view.connections)}):"
    for each in view.connections:
        yield f"\tip: /{each.address}:{each.port} sessionId: {_hex(each.session_id)}"


def _wchs(view: ServerView) -> str:
    watchers, paths, total = view.processor.watches.counts()
    return f"{watchers} connections watching {paths} paths\nTotal watches:{total}\n"


def _wchp(view: ServerView) -> Task[str]:
    found = (yield from view.watchers()).items()
    return (
        yield from _joined(f"{path}\n" + "".join(f"\t{_hex(each)}\n" for each in ids) for path, ids in found)
    ) + "\n"


def _wchc(view: ServerView) -> Task[str]:
    found = (yield from view.watched_paths()).items()
    parts = (part for session_id, paths in found for part in (f"{_hex(session_id)}\n", *map("\t{}\n".format, paths)))
    return (yield from _joined(parts)) + "\n"


def _srst(view: ServerView) -> str:
    view.reset_statistics()
    return "Server stats reset.\n"


def _crst(view: ServerView) -> str:
    view.reset_connections()
    return "Connection stats reset.\n"


_Word = Callable[[ServerView], str | Task[str]]
_WORDS: dict[str, _Word] = {
    "ruok": _ruok,
    "isro": _isro,
    "srvr": _srvr,
    "stat": _stat,
    "cons": _cons,
    "mntr": _mntr,
    "conf": _conf,
    "envi": _envi,
    "dirs": _dirs,
    "hash": _hash,
    "gtmk": _gtmk,
    "stmk": _gtmk,
    "dump": _dump,
    "wchs": _wchs,
    "wchp": _wchp,
    "wchc": _wchc,
    "srst": _srst,
    "crst": _crst,
}
