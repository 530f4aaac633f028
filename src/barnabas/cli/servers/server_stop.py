"""``barnabas server-stop``: stop the brokers that were started on this machine by
``barnabas server-start``.

Kafka's script looks at the processes of the machine too. Only processes of this user are stopped;
brokers of ``barnabas up`` belong to it: see ``barnabas down``.
"""

import contextlib
import os
import signal
from pathlib import Path

from barnabas.base.errors import BarnabasError
from barnabas.cli.connection.properties import read_properties_file
from barnabas.cli.machine.processes import servers_to_stop
from barnabas.cli.options.tool_parser import ToolParser

__all__ = ["main"]


def main(argv: list[str]) -> int:
    """Send SIGTERM to each; 1 when there is none."""
    parser = ToolParser("server-stop", "Stop the brokers that barnabas server-start runs on this machine.")
    parser.add_argument(
        "--node-id", "--broker-id", type=int, dest="node_id", metavar="ID", help="only the broker of this id"
    )
    parser.add_argument("--process-role", choices=("broker",), help="for Kafka's sake: all are brokers")
    parser.add_argument("--properties", metavar="FILE", help="only the broker that was started with this file")
    given = parser.parse_args(argv)
    wanted = Path(os.path.abspath(given.properties)) if given.properties else None
    stopped = []
    for pid, path in servers_to_stop("server-start"):
        if (wanted is None or path == wanted) and (given.node_id is None or _broker_id(path) == given.node_id):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
                stopped.append(pid)
    if not stopped:
        raise BarnabasError("No kafka server to stop")
    return 0


def _broker_id(path: Path) -> int | None:
    try:
        texts = read_properties_file(path, lambda _: None)
        return int(texts.get("broker.id", texts.get("node.id", "")))
    except (OSError, ValueError):
        return None
