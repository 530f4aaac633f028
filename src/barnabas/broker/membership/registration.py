"""The ephemeral znodes of a broker's session: ``/brokers/ids/ID`` and, for the
controller, ``/controller``.

A broker is alive as long as its registration exists, which ends with its session. The czxid of the
znode is the broker epoch (KIP-380): each registration gets a higher one, so requests meant for an
earlier life can be rejected.

After a crash the znode of the dead process stays until its session expires. A broker that starts
again does not wait for that: a registration under its own id *with its own advertised endpoints*,
on which it listens at this moment, can only belong to its dead predecessor, and is replaced (but
see `barnabas.log.dirs.boot`). One with other endpoints belongs to another broker.

In Kafka: `KafkaZkClient.registerBroker` and `ZkBrokerRegistration`.
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from barnabas.base.errors import BarnabasError, ConfigError
from barnabas.broker.cluster.steps import Committed, Delete, Read, Refused, Steps, Transact, Znode
from barnabas.broker.cluster.znodes import (
    CONTROLLER,
    BrokerInfo,
    ZnodeFormatError,
    broker_path,
    decode_broker,
    decode_controller,
)
from barnabas.wire.jute.errors import ErrorCode as Keeper

__all__ = [
    "BrokerIdTakenError",
    "SessionZnodes",
    "end_session",
    "read_session",
    "removals_of",
    "replace_predecessor",
    "stored_broker_id",
]


class BrokerIdTakenError(BarnabasError):
    """Another live broker has this broker's id."""


class SessionZnodes(NamedTuple):
    """A broker's registration and ``/controller``, read together.

    None for one that does not exist."""

    registration: Znode | None
    controller: Znode | None


def read_session(broker_id: int) -> Steps[SessionZnodes]:
    """Read a broker's registration and ``/controller``, at one moment."""
    registration, controller = yield Read([broker_path(broker_id), CONTROLLER])
    return SessionZnodes(registration, controller)


def end_session(removals: Sequence[Delete], *, repeat: bool = False) -> Steps[None]:
    """Delete all or none; a znode that is gone or changed meanwhile is no error.

    ``repeat`` as in `Transact`."""
    outcomes: list[Committed | Refused] = yield Transact([removals], repeat)
    outcome = outcomes[0]
    if isinstance(outcome, Refused) and outcome.error.code not in (Keeper.NO_NODE, Keeper.BAD_VERSION):
        raise outcome.error


def removals_of(broker_id: int, found: SessionZnodes) -> list[Delete]:
    """The znodes to delete, in one transaction, to end a broker's session early.

    Empty without a registration. ``/controller`` is included only if the same broker
    made it in the same session.
    """
    registration, controller = found
    if registration is None:
        return []
    removals = [Delete(broker_path(broker_id), registration.version)]
    if controller is not None and controller.ephemeral_owner == registration.ephemeral_owner:
        try:
            is_ours = decode_controller(controller.data) == broker_id
        except ZnodeFormatError:
            is_ours = False
        if is_ours:
            removals.insert(0, Delete(CONTROLLER, controller.version))
    return removals


def replace_predecessor(info: BrokerInfo, found: SessionZnodes) -> list[Delete]:
    """The znodes to delete so that ``info`` can register.

    Raises `BrokerIdTakenError` for another broker's registration."""
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
    """The broker id that the log dirs' meta.properties agree on.

    None when the next generated id is to be used. Raises `BarnabasError` when they name several,
    `ConfigError` when there is none and none may be generated.
    """
    ids = set(found)
    if len(ids) > 1:
        raise BarnabasError(f"The log dirs belong to several brokers ({sorted(ids)}): set broker.id to the right one")
    if ids:
        return ids.pop()
    if not may_generate:
        raise ConfigError("broker.id is not set, and broker.id.generation.enable is false")
    return None
