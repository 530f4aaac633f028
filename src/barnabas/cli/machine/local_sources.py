"""What else a cluster of ``barnabas up`` shows on this machine: the ports of its brokers' metrics.

They stand in the brokers' files, which are the user's to change.

Kafka has no counterpart.
"""

from pathlib import Path

from barnabas.base.network import ALL_ADDRESSES
from barnabas.base.settings import read_properties
from barnabas.cli.machine.clusters import LocalCluster
from barnabas.cli.machine.server_names import broker_config

__all__ = ["metrics_addresses", "serves"]

_METRICS = "metrics.http.address"
_MOST_BROKERS = 1000


def serves(cluster: LocalCluster, bootstrap_servers: str) -> bool:
    """Whether one of these addresses is a broker's of the cluster."""
    return bool(_servers(cluster.bootstrap_servers) & _servers(bootstrap_servers))


def _servers(text: str) -> set[str]:
    return {item.strip().replace("localhost:", "127.0.0.1:") for item in text.split(",")}


def metrics_addresses(cluster: LocalCluster) -> dict[int, tuple[str, int]]:
    """By the ids of the brokers that have such a port."""
    found = {}
    for number in range(_MOST_BROKERS):
        try:
            texts = read_properties((Path(cluster.data_dir) / broker_config(number)).read_bytes().decode("latin-1"))
        except FileNotFoundError:
            break
        except (OSError, ValueError):
            continue
        host, _, port = texts.get(_METRICS, "").strip().rpartition(":")
        broker_id = texts.get("broker.id", str(number)).strip()
        if port.isdecimal() and broker_id.isdecimal():
            host = host.strip("[]")
            found[int(broker_id)] = ("127.0.0.1" if host in ALL_ADDRESSES else host, int(port))
    return found
