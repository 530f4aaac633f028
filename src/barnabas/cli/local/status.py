"""``barnabas status``: the clusters that ``barnabas up`` runs on this machine."""

from dataclasses import asdict
from pathlib import Path

from barnabas.cli.local.security_plan import client_file
from barnabas.cli.machine.clusters import LocalCluster, choose_cluster, running_clusters, started_by_hand
from barnabas.cli.machine.processes import is_alive
from barnabas.cli.options.tool_parser import ToolParser, add_output_option
from barnabas.cli.output.tables import aligned, print_json
from barnabas.cli.output.terminal import print, print_lines

__all__ = ["main"]

_BY_HAND = "running, started by hand"


def main(argv: list[str]) -> int:
    """Print each cluster with its servers; 1 when none runs."""
    parser = ToolParser("status", "Show the clusters that barnabas up runs on this machine, and their servers.")
    parser.add_argument("--data-dir", metavar="DIR", help="show the one that has this data dir")
    add_output_option(parser)
    given = parser.parse_args(argv)
    clusters = [choose_cluster(given.data_dir)] if given.data_dir else running_clusters()
    if given.output == "json":
        print_json([_document(cluster) for cluster in clusters])
    elif not clusters:
        print("no cluster runs; start one with barnabas up --detach")
    for cluster in clusters if given.output == "text" else ():
        print(f"{cluster.bootstrap_servers} zk={cluster.zookeeper_connect}")
        for name, url in cluster.services.items():
            print(f"{name} {url}")
        print(f"data dir {cluster.data_dir}, supervisor {cluster.pid}")
        if (config := client_file(Path(cluster.data_dir))).exists():
            print(f"clients need --command-config {config}")
        print_lines(aligned(("SERVER", "PID", "STATE"), _rows(cluster)))
    return 0 if clusters else 1


def _document(cluster: LocalCluster) -> dict[str, object]:
    rows = _rows(cluster)
    config = client_file(Path(cluster.data_dir))
    return asdict(cluster) | {
        "command_config": str(config) if config.exists() else None,
        "pids": {name: pid for name, pid, _ in rows},
        "servers": {name: "ended" if state == "ended" else "running" for name, _, state in rows},
        "started_by_hand": [name for name, _, state in rows if state == _BY_HAND],
    }


def _rows(cluster: LocalCluster) -> list[tuple[str, int, str]]:
    """Each server with its process and its state.

    One that ended may have been started again by hand."""
    supervised = {name: (pid, "running" if is_alive(pid) else "ended") for name, pid in cluster.pids.items()}
    by_hand = {name: (pid, _BY_HAND) for name, pid in started_by_hand(Path(cluster.data_dir)).items()}
    return [(name, pid, state) for name, (pid, state) in {**supervised, **by_hand}.items()]
