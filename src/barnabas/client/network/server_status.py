"""What coordination servers say of themselves: the four-letter words `srvr` and,
where it is allowed, `mntr`.

``srvr`` is answered in every state, also by a member of an ensemble without a
quorum, which gives no session.

Kafka has no counterpart; in ZooKeeper these are `StatCommand` and `MonitorCommand`.
"""

import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from enum import Enum, auto

from barnabas.client.errors import ProtocolError
from barnabas.client.network.deadline import Deadline
from barnabas.client.network.sockets import open_socket, receive_all, send_all

__all__ = ["ServerStatus", "ServingState", "ask_word", "server_status", "statuses_of", "zxid_lags"]

_MAX_ANSWER_BYTES = 1 << 20
_COUNTER_BITS = 32
_WHOLE = "[0-9]{1,19}"
_DECIMAL = rf"{_WHOLE}(?:\.[0-9]{{1,19}})?"


class ServingState(Enum):
    """Which clients a server serves, as far as it can be known."""

    UNREACHABLE = auto()
    NO_STATUS = auto()
    """It answers, and does not allow ``srvr``."""
    NOT_SERVING = auto()
    """A member of an ensemble without a quorum."""
    READ_ONLY = auto()
    """A member without a quorum that serves read-only clients."""
    SERVING = auto()


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """One server's status. What it does not say, or says in a wrong form, is None."""

    state: ServingState
    server: str
    """``host:port``."""
    role: str
    """The server's own word for its mode; otherwise why it has none."""
    zxid: str | None = None
    """The last transaction, as the server wrote it: hexadecimal."""
    sessions: int | None = None
    connections: int | None = None
    outstanding: int | None = None
    """Requests without an answer yet."""
    latency_avg_max_ms: str | None = None
    nodes: int | None = None
    version: str | None = None


def statuses_of(servers: Sequence[tuple[str, int]], deadline: Deadline) -> list[ServerStatus]:
    """The status of each server, asked at the same time."""
    with ThreadPoolExecutor(len(servers)) as pool:
        return list(pool.map(lambda server: server_status(server, deadline), servers))


def server_status(server: tuple[str, int], deadline: Deadline) -> ServerStatus:
    """The status of one server.

    Raises `ProtocolError` for an answer that is too long to be a server's."""
    address = f"{server[0]}:{server[1]}"
    try:
        text = ask_word(server, b"srvr", deadline)
    except TimeoutError:
        return ServerStatus(ServingState.UNREACHABLE, address, f"unreachable (no answer within {deadline})")
    except OSError as error:
        return ServerStatus(ServingState.UNREACHABLE, address, f"unreachable ({error.strerror or error})")
    mode = re.search(r"^Mode: (\S{1,40})$", text, re.MULTILINE)
    if mode is None:
        if "not currently serving" in text:
            return ServerStatus(ServingState.NOT_SERVING, address, "not serving")
        return ServerStatus(ServingState.NO_STATUS, address, "srvr is not allowed")
    latency = re.search(rf"^Latency min/avg/max: {_DECIMAL}/({_DECIMAL})/({_DECIMAL})$", text, re.MULTILINE)
    status = ServerStatus(
        ServingState.READ_ONLY if mode[1] == "read-only" else ServingState.SERVING,
        address,
        mode[1],
        zxid=_zxid(text),
        connections=_number(_field(text, "Connections")),
        outstanding=_number(_field(text, "Outstanding")),
        latency_avg_max_ms=f"{float(latency[1]):.1f}/{latency[2]}" if latency else None,
        nodes=_number(_field(text, "Node count")),
        version=(_field(text, "Zookeeper version") or "").partition(",")[0] or None,
    )
    try:
        monitor = ask_word(server, b"mntr", deadline)
    except OSError:
        return status
    sessions = re.search(rf"^zk_global_sessions\t({_DECIMAL})$", monitor, re.MULTILINE)
    return replace(status, sessions=round(float(sessions[1]))) if sessions else status


def zxid_lags(found: Sequence[ServerStatus]) -> list[int | str | None]:
    """Transactions behind the most advanced server; of a server in an earlier epoch only
    that it is behind is known."""
    zxids = [int(each.zxid, 16) if each.zxid else None for each in found]
    newest = max((zxid for zxid in zxids if zxid is not None), default=0)
    return [
        None if zxid is None else newest - zxid if zxid >> _COUNTER_BITS == newest >> _COUNTER_BITS else "an epoch"
        for zxid in zxids
    ]


def _field(text: str, name: str) -> str | None:
    found = re.search(rf"^{name}: (.+)$", text, re.MULTILINE)
    return found[1] if found else None


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and re.fullmatch(_WHOLE, text) else None


def _zxid(text: str) -> str | None:
    """As the server wrote it; None if it is not a number of 64 bits."""
    zxid = _field(text, "Zxid")
    return zxid if zxid is not None and re.fullmatch("0x[0-9a-fA-F]{1,16}", zxid) else None


def ask_word(server: tuple[str, int], word: bytes, deadline: Deadline) -> str:
    """The answer to a four-letter word.

    Raises `OSError`, and `ProtocolError` for an answer that is too long to be a server's."""
    with open_socket(server, deadline) as asking:
        send_all(asking, word, deadline)
        answer = receive_all(asking, _MAX_ANSWER_BYTES, deadline)
    if len(answer) > _MAX_ANSWER_BYTES:
        raise ProtocolError(f"{server[0]}:{server[1]} does not answer as a coordination server")
    return answer.decode("utf-8", "replace")
