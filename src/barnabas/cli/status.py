"""``barnabas status``: the clusters that ``barnabas up`` runs on this machine."""

import os
from dataclasses import asdict

from barnabas.cli.common import ToolParser, add_output_option, aligned, print_json
from barnabas.cli.local_clusters import LocalCluster, choose_cluster, running_clusters
from barnabas.cli.terminal import print, print_lines

__all__ = ["main"]


def main(argv: list[str]) -> int:
    """Print each cluster with its servers; 1 when none runs."""
    parser = ToolParser("status", "Show the clusters that barnabas up runs on this machine, and their servers.")
    parser.add_argument("--data-dir", metavar="DIR", help="show the one that has this data dir")
    add_output_option(parser)
    given = parser.parse_args(argv)
    clusters = [choose_cluster(given.data_dir)] if given.data_dir else running_clusters()
    if given.output == "json":
        print_json([asdict(cluster) | {"servers": _servers(cluster)} for cluster in clusters])
    elif not clusters:
        print("no cluster runs; start one with barnabas up --detach")
    for cluster in clusters if given.output == "text" else ():
        print(f"{cluster.bootstrap_servers} zk={cluster.zookeeper_connect}")
        print(f"data dir {cluster.data_dir}, supervisor {cluster.pid}")
        print_lines(aligned(("SERVER", "PID", "STATE"), [(name, pid, state) for name, pid, state in _rows(cluster)]))
    return 0 if clusters else 1


def _servers(cluster: LocalCluster) -> dict[str, str]:
    return {name: state for name, _, state in _rows(cluster)}


def _rows(cluster: LocalCluster) -> list[tuple[str, int, str]]:
    return [(name, pid, "running" if _is_running(pid) else "ended") for name, pid in cluster.pids.items()]


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
