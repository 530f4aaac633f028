"""Clusters for tests: coordination and brokers inside the caller's process.

>>> from barnabas.testing import Cluster
>>> with Cluster(brokers=1) as cluster:
...     cluster.create_topic("orders", partitions=3)
...     client_settings = {"bootstrap.servers": cluster.bootstrap_servers}

`ProcessCluster` is the same as processes, for tests and labs that kill or pause a broker.
`simulate` runs a scenario with a user's own consumers and producers in virtual time: the same code
of the servers, faults, and a seed that decides everything.

In pytest, the fixture ``barnabas_cluster`` gives each test a cluster of its own, and
``barnabas_session_cluster`` one for the whole run (one per worker under pytest-xdist); both
listen on free ports.
"""

from typing import TYPE_CHECKING

from barnabas.base.lazy_names import import_lazily

if TYPE_CHECKING:
    from barnabas.testing.cluster import Cluster
    from barnabas.testing.coordinator_kills import CoordinatorKill
    from barnabas.testing.processes import ProcessCluster
    from barnabas.testing.virtual.cluster import SimulatedRunError, VirtualCluster, VirtualRun, simulate
    from barnabas.testing.virtual.consumer import VirtualConsumer
    from barnabas.testing.virtual.producer import VirtualProducer
    from barnabas.testing.virtual.program import ProgramKilledError, VirtualProgram

__all__ = [
    "Cluster",
    "CoordinatorKill",
    "ProcessCluster",
    "ProgramKilledError",
    "SimulatedRunError",
    "VirtualCluster",
    "VirtualConsumer",
    "VirtualProducer",
    "VirtualProgram",
    "VirtualRun",
    "simulate",
]

_HOMES = {
    "Cluster": "cluster",
    "CoordinatorKill": "coordinator_kills",
    "ProcessCluster": "processes",
    "ProgramKilledError": "virtual.program",
    "SimulatedRunError": "virtual.cluster",
    "VirtualCluster": "virtual.cluster",
    "VirtualConsumer": "virtual.consumer",
    "VirtualProducer": "virtual.producer",
    "VirtualProgram": "virtual.program",
    "VirtualRun": "virtual.cluster",
    "simulate": "virtual.cluster",
}

# A type checker sees only the imports above, so it reports names that do not exist.
if not TYPE_CHECKING:
    __getattr__ = import_lazily(__name__, _HOMES)
