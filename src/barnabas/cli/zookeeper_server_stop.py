"""``barnabas zookeeper-server-stop``: stop the coordination servers of this user on this machine, as Kafka's script does.

SIGTERM goes to every process that runs ``zookeeper-server-start``; with --config only to those with that zoo.cfg. The
command waits until they have ended.
"""

import os
import signal
import time

from barnabas.base.errors import BarnabasError
from barnabas.cli.common import ToolParser
from barnabas.cli.local_processes import is_alive
from barnabas.cli.terminal import print

__all__ = ["main"]

_COMMAND = "zookeeper-server-start"
_POLL_S = 0.05


def main(argv: list[str]) -> int:
    """0 when all have ended, 1 when there was none, as Kafka's script."""
    parser = ToolParser("zookeeper-server-stop", "Stop the coordination servers of this user on this machine.")
    parser.add_argument("--config", metavar="zoo.cfg", help="only the servers that were started with this file")
    parser.add_argument("--timeout", type=float, default=60.0, metavar="S", help="seconds to wait (default 60)")
    arguments = parser.parse_args(argv)
    pids = _servers(arguments.config)
    if not pids:
        print("No zookeeper server to stop")
        return 1
    for pid in pids:
        os.kill(pid, signal.SIGTERM)
    end = time.monotonic() + arguments.timeout
    while still := [pid for pid in pids if is_alive(pid)]:
        if time.monotonic() > end:
            raise BarnabasError(f"still running after {arguments.timeout:.0f} s: {', '.join(map(str, still))}")
        time.sleep(_POLL_S)
    print(f"Stopped {', '.join(map(str, pids))}")
    return 0


def _servers(config: str | None) -> list[int]:
    """The processes, found by their command lines."""
    try:
        entries = sorted(int(name) for name in os.listdir("/proc") if name.isdecimal())
    except OSError:
        raise BarnabasError("this system has no /proc: stop the server's process by its id") from None
    return [pid for pid in entries if pid != os.getpid() and _is_server(pid, config)]


def _is_server(pid: int, config: str | None) -> bool:
    try:
        if os.stat(f"/proc/{pid}").st_uid != os.getuid():
            return False
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = os.fsdecode(file.read()).split("\0")
        working_dir = os.readlink(f"/proc/{pid}/cwd")
    except OSError:  # it has ended meanwhile
        return False
    if _COMMAND not in words[:4] or "python" not in os.path.basename(words[0]) + os.path.basename(words[1]) + words[0]:
        return False
    if config is None:
        return True
    files = words[words.index(_COMMAND) + 1 :]
    return any(os.path.join(working_dir, name) == os.path.abspath(config) for name in files if name)
