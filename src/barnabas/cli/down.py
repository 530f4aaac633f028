"""``barnabas down``: stop a cluster that ``barnabas up`` runs on this machine."""

import json

from barnabas.cli.common import ToolParser, add_output_option
from barnabas.cli.local_clusters import choose_cluster, running_clusters, stop_cluster
from barnabas.cli.terminal import print

__all__ = ["main"]


def main(argv: list[str]) -> int:
    """Stop it cleanly, and return when it has ended; 1 when it does not."""
    parser = ToolParser("down", "Stop a cluster that barnabas up runs on this machine.")
    parser.add_argument("--data-dir", metavar="DIR", help="which, if several run")
    parser.add_argument("--all", action="store_true", help="all that run")
    parser.add_argument("--timeout", type=float, default=60, metavar="S", help="how long to wait (default 60)")
    add_output_option(parser)
    given = parser.parse_args(argv)
    parser.refuse_together(given, "all", ["data-dir"])
    for cluster in running_clusters() if given.all else [choose_cluster(given.data_dir)]:
        stop_cluster(cluster, given.timeout)
        if given.output == "json":
            print(json.dumps({"stopped": cluster.bootstrap_servers, "data_dir": cluster.data_dir}))
        else:
            print(f"stopped {cluster.bootstrap_servers}")
    return 0
