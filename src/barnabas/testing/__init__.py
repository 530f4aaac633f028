"""Clusters for tests: coordination and brokers inside the caller's process.

>>> from barnabas.testing import Cluster
>>> with Cluster(brokers=1) as cluster:
...     cluster.create_topic("orders", partitions=3)
...     client_settings = {"bootstrap.servers": cluster.bootstrap_servers}

`ProcessCluster` is the same as processes, for tests and labs that kill or pause a broker.

In pytest, the fixture ``barnabas_cluster`` gives each test a cluster of its own, and ``barnabas_session_cluster`` one for
the whole run (one per worker under pytest-xdist); both listen on free ports.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from barnabas.testing.cluster import Cluster
    from barnabas.testing.processes import ProcessCluster

__all__ = ["Cluster", "ProcessCluster"]


def __getattr__(name: str) -> Any:
    # Every pytest run on a machine with this package loads it for the plugin: the broker is imported when one is asked for.
    if name == "Cluster":
        from barnabas.testing.cluster import Cluster

        return Cluster
    if name == "ProcessCluster":
        from barnabas.testing.processes import ProcessCluster

        return ProcessCluster
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
