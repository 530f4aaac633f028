"""Finding brokers through ZooKeeper, for properties of the first clients that name nothing else.

In Kafka: `ZkUtils`, of the first clients.
"""

import json
import logging
from typing import Any

from barnabas.base.randomness import new_random
from barnabas.client.errors import ConnectError
from barnabas.coordination.client import BlockingClient, CoordinationClient
from barnabas.net.sockets import SocketNetwork
from barnabas.wire.jute.errors import ErrorCode, KeeperError

__all__ = ["brokers_in_zookeeper"]

logger = logging.getLogger("barnabas.client")


def brokers_in_zookeeper(connect: str, timeout_ms: int) -> str:
    """The plaintext addresses of the brokers under ``/brokers/ids``, as ``bootstrap.servers``.

    ``connect`` is a ``zookeeper.connect`` value. Raises `ConnectError` when nothing answers there or no broker is up.
    """
    try:
        with BlockingClient(SocketNetwork, connect, rng=new_random()) as client:
            client.start(timeout_ms)
            addresses = client.call(_addresses)
    except KeeperError as error:
        if error.code is ErrorCode.NO_NODE:
            addresses = []
        else:
            raise ConnectError(f"zookeeper.connect={connect}: no coordination server answers there") from error
    if not addresses:
        raise ConnectError(f"zookeeper.connect={connect}: no broker is registered there under /brokers/ids")
    logger.info("zookeeper.connect=%s names the brokers %s", connect, ",".join(addresses))
    return ",".join(addresses)


async def _addresses(client: CoordinationClient) -> list[str]:
    names, _ = await client.get_children("/brokers/ids")
    addresses = []
    for name in sorted(names):
        try:
            data, _ = await client.get(f"/brokers/ids/{name}")
        except KeeperError as error:
            if error.code is ErrorCode.NO_NODE:  # it went meanwhile
                continue
            raise
        addresses += _plaintext(json.loads(data or b"{}"))
    return addresses


def _plaintext(registration: dict[str, Any]) -> list[str]:
    """A registration's address without TLS; old ones have host and port instead of endpoints."""
    for endpoint in registration.get("endpoints", ()):
        protocol, _, address = endpoint.partition("://")
        if registration.get("listener_security_protocol_map", {}).get(protocol, protocol) == "PLAINTEXT":
            return [address]
    if registration.get("host"):
        return [f"{registration['host']}:{registration['port']}"]
    return []
