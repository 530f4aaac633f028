"""``barnabas logs``: the logs of a cluster that ``barnabas up`` runs on this machine."""

import json
import time
from pathlib import Path
from typing import IO

from barnabas.base.errors import BarnabasError
from barnabas.cli.machine.clusters import LocalCluster, choose_cluster
from barnabas.cli.machine.server_names import log_of
from barnabas.cli.options.tool_parser import ToolParser, add_output_option
from barnabas.cli.output.standard_streams import in_blocks
from barnabas.cli.output.terminal import print, print_document

__all__ = ["main"]

_SUPERVISOR = "up"
_FOLLOW_S = 0.2


def main(argv: list[str]) -> int:
    """Print the ends of the logs; with --follow until Ctrl-C."""
    parser = ToolParser("logs", "Show the logs of a cluster that barnabas up runs on this machine.")
    parser.add_argument(
        "server", nargs="*", help="zookeeper, or a broker's id, or up for the supervisor (default: all)"
    )
    parser.add_argument("--data-dir", metavar="DIR", help="of which cluster, if several run")
    parser.add_argument("-n", "--lines", type=int, default=20, metavar="N", help="how many of each (default 20)")
    parser.add_argument("-f", "--follow", action="store_true", help="continue with new lines as they come")
    add_output_option(parser)
    given = parser.parse_args(argv)
    files = _files(choose_cluster(given.data_dir), given.server)
    width = max(map(len, files))

    def show(name: str, line: str) -> None:
        if given.output == "json":
            print_document(json.dumps({"server": name, "line": line}, ensure_ascii=False))
        else:
            print(f"{name:<{width}} | {line}")

    opened: dict[str, IO[str]] = {}
    with in_blocks():
        for name, path in files.items():
            opened[name] = path.open(encoding="utf-8", errors="replace")
            for line in opened[name].read().splitlines()[-given.lines :] if given.lines else ():
                show(name, line)
    while given.follow:
        time.sleep(_FOLLOW_S)
        with in_blocks():
            for name, file in opened.items():
                for line in file.read().splitlines():
                    show(name, line)
    return 0


def _files(cluster: LocalCluster, wanted: list[str]) -> dict[str, Path]:
    logs = Path(cluster.data_dir) / "logs"
    known = {name: log_of(logs, name) for name in cluster.pids}
    if cluster.output:
        known[_SUPERVISOR] = Path(cluster.output)
    for name in wanted:
        if name not in known:
            raise BarnabasError(f"there is no server {name}: there are {', '.join(known)}")
    return {name: path for name, path in known.items() if not wanted or name in wanted}
