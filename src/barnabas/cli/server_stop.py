"""``barnabas server-stop``: stop the brokers that were started on this machine by ``barnabas server-start``.

Kafka's script looks at the processes of the machine too. Only processes of this user are stopped; brokers of ``barnabas up``
belong to it: see ``barnabas down``.
"""

import contextlib
import os
import signal
from pathlib import Path

from barnabas.base.errors import BarnabasError
from barnabas.cli.common import ToolParser, read_properties_file

__all__ = ["main", "started_by"]


def main(argv: list[str]) -> int:
    """Send SIGTERM to each; 1 when there is none."""
    parser = ToolParser("server-stop", "Stop the brokers that barnabas server-start runs on this machine.")
    parser.add_argument(
        "--node-id", "--broker-id", type=int, dest="node_id", metavar="ID", help="only the broker of this id"
    )
    parser.add_argument("--process-role", choices=("broker",), help="for Kafka's sake: all are brokers")
    parser.add_argument("--properties", metavar="FILE", help="only the broker that was started with this file")
    given = parser.parse_args(argv)
    wanted = Path(given.properties).absolute() if given.properties else None
    stopped = []
    for pid, path in started_by("server-start"):
        if (wanted is None or path == wanted) and (given.node_id is None or _broker_id(path) == given.node_id):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
                stopped.append(pid)
    if not stopped:
        raise BarnabasError("No kafka server to stop")
    return 0


def started_by(command: str) -> list[tuple[int, Path]]:
    """This user's processes that run a server's command, each with the file that it was started with."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if folder.stat().st_uid != os.getuid():
                continue
            words = os.fsdecode((folder / "cmdline").read_bytes()).split("\0")
            where = words.index(command)
            runs_ours = where > 0 and (
                Path(words[where - 1]).name == "barnabas" or words[where - 2 : where] == ["-m", "barnabas"]
            )
            if not runs_ours:
                continue
            path = next(word for word in words[where + 1 :] if word and not word.startswith("-"))
            found.append((int(folder.name), (folder / "cwd").readlink() / path))
        except (OSError, ValueError, StopIteration):
            continue
    return found


def _broker_id(path: Path) -> int | None:
    try:
        texts = read_properties_file(path, lambda _: None)
        return int(texts.get("broker.id", texts.get("node.id", "")))
    except (OSError, ValueError):
        return None
