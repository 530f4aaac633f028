"""``barnabas zookeeper-server-stop``: stop the coordination servers of this user on this
machine, as Kafka's script does.

SIGTERM goes to every process that runs ``zookeeper-server-start``; with --config only to those with
that zoo.cfg. The command waits until they have ended.
"""

import contextlib
import os
import signal
import time
from pathlib import Path

from barnabas.base.errors import BarnabasError
from barnabas.cli.machine.processes import is_alive, servers_to_stop
from barnabas.cli.options.tool_parser import ToolParser, seconds
from barnabas.cli.output.terminal import print

__all__ = ["main"]

_COMMAND = "zookeeper-server-start"
_POLL_S = 0.05


def main(argv: list[str]) -> int:
    """0 when all have ended, 1 when there was none, as Kafka's script."""
    parser = ToolParser("zookeeper-server-stop", "Stop the coordination servers of this user on this machine.")
    parser.add_argument("--config", metavar="zoo.cfg", help="only the servers that were started with this file")
    parser.add_argument("--timeout", type=seconds, default=60.0, metavar="S", help="seconds to wait (default 60)")
    arguments = parser.parse_args(argv)
    wanted = Path(os.path.abspath(arguments.config)) if arguments.config else None
    pids = [pid for pid, path in servers_to_stop(_COMMAND) if wanted in (None, path)]
    if not pids:
        print("No zookeeper server to stop")
        return 1
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    end = time.monotonic() + arguments.timeout
    while still := [pid for pid in pids if is_alive(pid)]:
        if time.monotonic() > end:
            raise BarnabasError(f"still running after {arguments.timeout:.0f} s: {', '.join(map(str, still))}")
        time.sleep(_POLL_S)
    print(f"Stopped {', '.join(map(str, pids))}")
    return 0
