"""``barnabas zookeeper-status HOSTS``: the servers of a coordination service at a glance.

It asks each server with the four-letter words `srvr` and, where it is allowed, `mntr`. The lag is the number of
transactions that a server is behind the most advanced one. 0 when all serve, 1 when one does not, or there are two leaders.
"""

import re
import socket
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from barnabas.base.errors import BarnabasError
from barnabas.cli.common import ToolParser, add_output_option, aligned, print_json
from barnabas.cli.terminal import print_lines
from barnabas.coordination.client import ConnectString

__all__ = ["main", "server_status"]

_MAX_ANSWER_BYTES = 1 << 20
_COUNTER_BITS = 32
_COLUMNS = (
    "server",
    "role",
    "zxid",
    "lag",
    "sessions",
    "connections",
    "outstanding",
    "latency_avg_max_ms",
    "nodes",
    "version",
)

Status = dict[str, Any]


def main(argv: list[str]) -> int:
    """Print a line for each server."""
    parser = ToolParser("zookeeper-status", "Show role, zxid, lag, sessions and latency of coordination servers.")
    parser.add_argument("servers", metavar="HOST:PORT[,...]", help="the servers, as in zookeeper.connect")
    parser.add_argument("--timeout", type=float, default=3.0, metavar="S", help="seconds to wait for each (default 3)")
    add_output_option(parser)
    arguments = parser.parse_args(argv)
    servers = ConnectString.parse(arguments.servers).servers
    with ThreadPoolExecutor(min(32, len(servers))) as pool:
        found = list(pool.map(lambda server: server_status(server[0], server[1], arguments.timeout), servers))
    _add_lags(found)
    if arguments.output == "json":
        print_json({"servers": found})
    else:
        print_lines(aligned([name.upper() for name in _COLUMNS], [_row(each) for each in found]))
    leaders = sum(each["role"] == "leader" for each in found)
    return 0 if leaders < 2 and all(each["zxid"] is not None for each in found) else 1


def _row(status: Status) -> Sequence[object]:
    return ["-" if status[name] is None else status[name] for name in _COLUMNS]


def server_status(host: str, port: int, timeout_s: float) -> Status:
    """What a server says of itself; the role says so if it cannot be asked, or does not serve."""
    status: Status = {**dict.fromkeys(_COLUMNS), "server": f"{host}:{port}"}
    try:
        text = _ask(host, port, b"srvr", timeout_s)
    except OSError as error:
        return {**status, "role": f"unreachable ({error.strerror or error})"}
    mode = re.search(r"^Mode: (\S+)$", text, re.MULTILINE)
    if mode is None:
        return {**status, "role": "not serving" if "not currently serving" in text else "srvr is not allowed"}
    latency = re.search(r"^Latency min/avg/max: [\d.]+/([\d.]+)/([\d.]+)$", text, re.MULTILINE)
    status |= {
        "role": mode[1],
        "zxid": _field(text, "Zxid"),
        "connections": _number(_field(text, "Connections")),
        "outstanding": _number(_field(text, "Outstanding")),
        "latency_avg_max_ms": f"{float(latency[1]):.1f}/{latency[2]}" if latency else None,
        "nodes": _number(_field(text, "Node count")),
        "version": (_field(text, "Zookeeper version") or "").partition(",")[0] or None,
    }
    try:
        monitor = _ask(host, port, b"mntr", timeout_s)
    except OSError:
        return status
    sessions = re.search(r"^zk_global_sessions\t([\d.]+)$", monitor, re.MULTILINE)
    status["sessions"] = round(float(sessions[1])) if sessions else None
    return status


def _field(text: str, name: str) -> str | None:
    found = re.search(rf"^{name}: (.+)$", text, re.MULTILINE)
    return found[1] if found else None


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None


def _ask(host: str, port: int, word: bytes, timeout_s: float) -> str:
    with socket.create_connection((host, port), timeout_s) as asking:
        asking.settimeout(timeout_s)
        asking.sendall(word)
        answer = b""
        while chunk := asking.recv(1 << 16):
            answer += chunk
            if len(answer) > _MAX_ANSWER_BYTES:
                raise BarnabasError(f"{host}:{port} does not answer as a coordination server")
    return answer.decode("utf-8", "replace")


def _add_lags(found: list[Status]) -> None:
    """Transactions behind the most advanced server; of a server in an earlier epoch only that it is behind is known."""
    zxids = [int(each["zxid"], 16) for each in found if each["zxid"]]
    for each in found:
        if each["zxid"]:
            zxid, newest = int(each["zxid"], 16), max(zxids)
            is_same_epoch = zxid >> _COUNTER_BITS == newest >> _COUNTER_BITS
            each["lag"] = newest - zxid if is_same_epoch else "an epoch"
