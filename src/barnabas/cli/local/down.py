"""``barnabas down``: stop a cluster that ``barnabas up`` runs on this machine."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path

from barnabas.cli.machine.clusters import (
    choose_cluster,
    running_cluster,
    running_clusters,
    started_by_hand,
    stop_cluster,
    stop_started_by_hand,
)
from barnabas.cli.machine.server_names import server_title
from barnabas.cli.options.tool_parser import ToolParser, add_output_option, seconds
from barnabas.cli.output.terminal import print

__all__ = ["main"]


def main(argv: list[str]) -> int:
    """Stop it cleanly, and return when it has ended; 1 when it does not."""
    parser = ToolParser(
        "down",
        "Stop a cluster that barnabas up runs on this machine, with the servers that were started by hand on its files. "
        "If it was started without --data-dir, its data is removed.",
    )
    parser.add_argument("--data-dir", metavar="DIR", help="which, if several run")
    parser.add_argument("--all", action="store_true", help="all that run")
    parser.add_argument("--timeout", type=seconds, default=60, metavar="S", help="how long to wait (default 60)")
    add_output_option(parser)
    given = parser.parse_args(argv)
    parser.refuse_together(given, "all", ["data-dir"])
    if given.data_dir and running_cluster(Path(given.data_dir)) is None:
        by_hand = started_by_hand(Path(given.data_dir))
        if by_hand:  # the supervisor is gone
            for is_coordination in (False, True):
                stop_started_by_hand(Path(given.data_dir), given.timeout, is_coordination=is_coordination)
            _report(by_hand)
            return 0
    for cluster in running_clusters() if given.all else [choose_cluster(given.data_dir)]:
        by_hand = started_by_hand(Path(cluster.data_dir))
        stop_cluster(cluster, given.timeout)
        if given.output == "json":
            kept = {} if not cluster.is_temporary else {"data": "removed"}
            print(json.dumps({"stopped": cluster.bootstrap_servers, "data_dir": cluster.data_dir, **kept}))
        else:
            print(f"stopped {cluster.bootstrap_servers}")
        _report(by_hand)
        if cluster.is_temporary:
            print("its data was temporary and is removed; barnabas up --data-dir DIR keeps the data", file=sys.stderr)
    return 0


def _report(by_hand: Mapping[str, int]) -> None:
    for name, pid in by_hand.items():
        print(f"stopped {server_title(name)} (pid {pid}), which was started by hand", file=sys.stderr)
