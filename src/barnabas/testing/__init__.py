"""Clusters for tests: coordination and brokers inside the caller's process.

>>> from barnabas.testing import Cluster
>>> with Cluster(brokers=1) as cluster:
...     cluster.create_topic("orders", partitions=3)
...     client_settings = {"bootstrap.servers": cluster.bootstrap_servers}

In pytest, the fixture ``barnabas_cluster`` gives each test a cluster of its own, and ``barnabas_session_cluster`` one for
the whole run (one per worker under pytest-xdist); both listen on free ports.
"""

from barnabas.testing.cluster import Cluster

__all__ = ["Cluster"]
