"""Finding brokers through ZooKeeper, for properties of the first clients that name nothing else.

In Kafka: `ZkUtils`, of the first clients.
"""

import logging
from typing import Any

from barnabas.base.json_text import parse_json
from barnabas.base.randomness import new_random
from barnabas.client.errors import ConnectError
from barnabas.coordination.client import BlockingClient, CoordinationClient
from barnabas.net.sockets import SocketNetwork
from barnabas.wire.jute.errors import ErrorCode, KeeperError

__all__ = ["brokers_in_zookeeper"]

logger = logging.getLogger("barnabas.client")


def brokers_in_zookeeper(connect: str, timeout_ms: int) -> str:
    """The plaintext addresses of the brokers under ``/brokers/ids``, as ``bootstrap.servers``.

    ``connect`` is a ``zookeeper.connect`` value. Raises `ConnectError` when nothing answers
    there or no broker is up.
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
        addresses += _plaintext(_registration(name, data))
    return addresses


def _registration(name: str, data: bytes | None) -> dict[str, Any]:
    try:
        registration = parse_json(data or b"{}")
    except ValueError:
        registration = None
    if not isinstance(registration, dict):
        raise ConnectError(f"zookeeper.connect: /brokers/ids/{name} does not hold a broker's registration")
    return registration


def _plaintext(registration: dict[str, Any]) -> list[str]:
    """A registration's address without TLS; old ones have host and port instead of endpoints."""
    endpoints, protocols = registration.get("endpoints"), registration.get("listener_security_protocol_map")
    for endpoint in endpoints if isinstance(endpoints, list) else ():
        protocol, _, address = str(endpoint).partition("://")
        if (protocols if isinstance(protocols, dict) else {}).get(protocol, protocol) == "PLAINTEXT":
            return [address]
    if registration.get("host") and registration.get("port"):
        return [f"{registration['host']}:{registration['port']}"]
    return []
