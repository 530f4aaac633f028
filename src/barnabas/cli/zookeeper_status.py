"""``barnabas zookeeper-status HOSTS``: the servers of a coordination service at a glance.

It asks each server with the four-letter words `srvr` and, where it is allowed, `mntr`. The lag is the number of
transactions that a server is behind the most advanced one. 0 when all serve, 1 when one does not, or none is reached, or
there are two leaders, 3 when one is not reached while the others serve.
"""

import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from barnabas.base.errors import BarnabasError
from barnabas.cli.common import ToolParser, add_connect_timeout, add_output_option, aligned, print_json
from barnabas.cli.exit_codes import INCOMPLETE
from barnabas.cli.incomplete import say_incomplete
from barnabas.cli.terminal import print_lines
from barnabas.client.deadline import Deadline
from barnabas.client.link_sockets import open_socket, receive_all, send_all
from barnabas.coordination.client import ConnectString

__all__ = ["main", "server_status"]

_MAX_ANSWER_BYTES = 1 << 20
_COUNTER_BITS = 32
_UNREACHABLE = "unreachable"
_WHOLE = "[0-9]{1,19}"
_DECIMAL = rf"{_WHOLE}(?:\.[0-9]{{1,19}})?"
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
    add_connect_timeout(parser)
    add_output_option(parser)
    arguments = parser.parse_args(argv)
    servers = ConnectString.parse(arguments.servers).servers
    deadline = Deadline(arguments.connect_timeout)
    with ThreadPoolExecutor(len(servers)) as pool:
        found = list(pool.map(lambda server: server_status(server, deadline), servers))
    _add_lags(found)
    if arguments.output == "json":
        print_json({"servers": found})
    else:
        print_lines(aligned([name.upper() for name in _COLUMNS], [_row(each) for each in found]))
    leaders = sum(each["role"] == "leader" for each in found)
    reached = [each for each in found if not each["role"].startswith(_UNREACHABLE)]
    if not reached or leaders > 1 or any(each["zxid"] is None for each in reached):
        return 1
    for each in found:
        if each not in reached:
            say_incomplete(f"{each['server']}: {each['role']}")
    return INCOMPLETE if len(reached) < len(found) else 0


def _row(status: Status) -> Sequence[object]:
    return ["-" if status[name] is None else status[name] for name in _COLUMNS]


def server_status(server: tuple[str, int], deadline: Deadline) -> Status:
    """What a server says of itself; the role says so if it cannot be asked, or does not serve."""
    status: Status = {**dict.fromkeys(_COLUMNS), "server": f"{server[0]}:{server[1]}"}
    try:
        text = _ask(server, b"srvr", deadline)
    except TimeoutError:
        return {**status, "role": f"{_UNREACHABLE} (no answer within {deadline})"}
    except OSError as error:
        return {**status, "role": f"{_UNREACHABLE} ({error.strerror or error})"}
    mode = re.search(r"^Mode: (\S{1,40})$", text, re.MULTILINE)
    if mode is None:
        return {**status, "role": "not serving" if "not currently serving" in text else "srvr is not allowed"}
    latency = re.search(rf"^Latency min/avg/max: {_DECIMAL}/({_DECIMAL})/({_DECIMAL})$", text, re.MULTILINE)
    status |= {
        "role": mode[1],
        "zxid": _zxid(text),
        "connections": _number(_field(text, "Connections")),
        "outstanding": _number(_field(text, "Outstanding")),
        "latency_avg_max_ms": f"{float(latency[1]):.1f}/{latency[2]}" if latency else None,
        "nodes": _number(_field(text, "Node count")),
        "version": (_field(text, "Zookeeper version") or "").partition(",")[0] or None,
    }
    try:
        monitor = _ask(server, b"mntr", deadline)
    except OSError:
        return status
    sessions = re.search(rf"^zk_global_sessions\t({_DECIMAL})$", monitor, re.MULTILINE)
    status["sessions"] = round(float(sessions[1])) if sessions else None
    return status


def _field(text: str, name: str) -> str | None:
    found = re.search(rf"^{name}: (.+)$", text, re.MULTILINE)
    return found[1] if found else None


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and re.fullmatch(_WHOLE, text) else None


def _zxid(text: str) -> str | None:
    """As the server wrote it; None for what is no number of 64 bits."""
    zxid = _field(text, "Zxid")
    return zxid if zxid is not None and re.fullmatch("0x[0-9a-fA-F]{1,16}", zxid) else None


def _ask(server: tuple[str, int], word: bytes, deadline: Deadline) -> str:
    with open_socket(server, deadline) as asking:
        send_all(asking, word, deadline)
        answer = receive_all(asking, _MAX_ANSWER_BYTES, deadline)
    if len(answer) > _MAX_ANSWER_BYTES:
        raise BarnabasError(f"{server[0]}:{server[1]} does not answer as a coordination server")
    return answer.decode("utf-8", "replace")


def _add_lags(found: list[Status]) -> None:
    """Transactions behind the most advanced server; of a server in an earlier epoch only that it is behind is known."""
    zxids = [int(each["zxid"], 16) for each in found if each["zxid"]]
    for each in found:
        if each["zxid"]:
            zxid, newest = int(each["zxid"], 16), max(zxids)
            is_same_epoch = zxid >> _COUNTER_BITS == newest >> _COUNTER_BITS
            each["lag"] = newest - zxid if is_same_epoch else "an epoch"
