"""Looks inside a `barnabas.testing.Cluster`, for tests of what its servers hold."""

from collections.abc import Coroutine
from typing import Any, TypeVar

from barnabas.broker.server import BrokerServer
from barnabas.testing import Cluster

Result = TypeVar("Result")


def brokers_of(cluster: Cluster) -> dict[int, BrokerServer]:
    """The brokers that run, by id."""
    servers = [each.serves for each in cluster._running.values()]
    return {server.broker_id: server for server in servers if isinstance(server, BrokerServer)}


def run_on(cluster: Cluster, broker_id: int, work: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine on a broker's loop, and wait for it."""
    return cluster._running[f"broker-{broker_id}"].thread.submit(work).result(60)
