"""The ephemeral znodes of a broker's session: ``/brokers/ids/ID`` and, for the controller, ``/controller``.

A broker is alive as long as its registration exists, which ends with its session. The czxid of the znode is the broker
epoch (KIP-380): each registration gets a higher one, so requests meant for an earlier life can be rejected.

After a crash the znode of the dead process stays until its session expires. A broker that starts again does not wait for
that: a registration under its own id *with its own advertised endpoints*, on which it listens at this moment, can only be
that of its dead predecessor, and is replaced (but see `boot`). One with other endpoints belongs to another broker.

In Kafka: `KafkaZkClient.registerBroker` and `ZkBrokerRegistration`.
"""

from collections.abc import Collection
from typing import NamedTuple

from barnabas.base.errors import BarnabasError, ConfigError
from barnabas.broker.cluster.znodes import (
    CONTROLLER,
    BrokerInfo,
    ZnodeFormatError,
    broker_path,
    decode_broker,
    decode_controller,
)

__all__ = [
    "BrokerIdTakenError",
    "EphemeralZnode",
    "Removal",
    "SessionZnodes",
    "removals_of",
    "replace_predecessor",
    "stored_broker_id",
]


class BrokerIdTakenError(BarnabasError):
    """Another live broker has this broker's id."""


class EphemeralZnode(NamedTuple):
    """A znode as it was read, with what its stat says."""

    data: bytes | None
    version: int
    czxid: int
    session_id: int


class SessionZnodes(NamedTuple):
    """A broker's registration and ``/controller``, read together; None for one that does not exist."""

    registration: EphemeralZnode | None
    controller: EphemeralZnode | None


class Removal(NamedTuple):
    """Delete a znode if it still has this version."""

    path: str
    version: int


def removals_of(broker_id: int, found: SessionZnodes) -> list[Removal]:
    """The znodes to delete, in one transaction, to end a broker's session early; empty without a registration.

    ``/controller`` is included only if the same broker made it in the same session.
    """
    registration, controller = found
    if registration is None:
        return []
    removals = [Removal(broker_path(broker_id), registration.version)]
    if controller is not None and controller.session_id == registration.session_id:
        try:
            is_ours = decode_controller(controller.data) == broker_id
        except ZnodeFormatError:
            is_ours = False
        if is_ours:
            removals.insert(0, Removal(CONTROLLER, controller.version))
    return removals


def replace_predecessor(info: BrokerInfo, found: SessionZnodes) -> list[Removal]:
    """The znodes to delete so that ``info`` can register. Raises `BrokerIdTakenError` for another broker's registration."""
    registration = found.registration
    if registration is None:
        return []
    try:
        registered = decode_broker(info.id, registration.data, registration.czxid)
    except ZnodeFormatError:
        registered = BrokerInfo(info.id, ())
    if set(registered.endpoints) != set(info.endpoints):
        where = ", ".join(endpoint.text() for endpoint in registered.endpoints)
        raise BrokerIdTakenError(
            f"Broker id {info.id} is taken by the broker at {where or 'an unknown address'}. Give this broker "
            f"another broker.id, or stop the other one and wait until its session ends."
        )
    return removals_of(info.id, found)


def stored_broker_id(found: Collection[int], *, may_generate: bool) -> int | None:
    """The broker id that the log dirs' meta.properties agree on; None when the next generated id is to be used.

    Raises `BarnabasError` when they name several, `ConfigError` when there is none and none may be generated.
    """
    ids = set(found)
    if len(ids) > 1:
        raise BarnabasError(f"The log dirs belong to several brokers ({sorted(ids)}): set broker.id to the right one")
    if ids:
        return ids.pop()
    if not may_generate:
        raise ConfigError("broker.id is not set, and broker.id.generation.enable is false")
    return None
