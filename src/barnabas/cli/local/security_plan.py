"""How the listeners of ``barnabas up`` are secured: as the data dir has it, or as
``--security`` and ``--user`` say."""

import argparse
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from barnabas.base.errors import BarnabasError, ConfigError
from barnabas.broker.configuration.kraft import refuse_kraft
from barnabas.cli.local.held_cluster import HeldCluster
from barnabas.cli.machine.server_names import broker_config

if TYPE_CHECKING:
    from barnabas.broker.configuration.listeners import ListenerAddress
    from barnabas.testing.security import ClusterSecurity

__all__ = ["INTER_BROKER", "SecurityPlan", "client_file", "held_listener", "plan_security"]

INTER_BROKER = "inter.broker.listener.name"
_FOLDER = "security"
_PLAINTEXT = "PLAINTEXT"
# An option may correct whatever else is wrong.
_OF_LISTENERS = ("listeners", "listener.security.protocol.map")


@dataclass(frozen=True, slots=True)
class SecurityPlan:
    """The protocol, certificates and users, and what options change of those of the data dir."""

    security: "ClusterSecurity | None" = None
    changed: Mapping[str, str | None] = field(default_factory=dict)
    """Properties to be changed in the files that are there; None removes one."""
    new_users: Collection[str] = ()
    """Users whose credentials the cluster does not have, or not with this password."""

    @property
    def protocol(self) -> str:
        return _PLAINTEXT if self.security is None else self.security.protocol


def client_file(directory: Path) -> Path:
    """What clients of a secured cluster connect with. It is written when the users are there."""
    return directory / _FOLDER / "client.properties"


def held_listener(directory: Path, number: int, texts: Mapping[str, str]) -> "ListenerAddress | None":
    """A broker's first listener; None where its file names none.

    Raises `BarnabasError` that names the file."""
    from barnabas.broker.configuration.definitions import DEFINITIONS
    from barnabas.broker.configuration.listeners import listeners

    path = directory / broker_config(number)
    refuse_kraft(str(path), texts)
    if "listeners" not in texts:
        return None
    of_listeners = {name: text for name, text in texts.items() if name in _OF_LISTENERS}
    try:
        return listeners(DEFINITIONS.parse({"zookeeper.connect": "", **of_listeners}))[0]
    except ConfigError as error:
        raise BarnabasError(f"{path}: {error}") from None


def plan_security(
    given: argparse.Namespace, users: Mapping[str, str], held: HeldCluster, directory: Path
) -> SecurityPlan:
    """What to make.

    Raises `BarnabasError` for options that do not fit, and for what was secured by hand."""
    number, texts = next(((n, each) for n, each in held.brokers.items() if each), (0, {}))
    listener = held_listener(directory, number, texts)
    former = listener.protocol if listener else _PLAINTEXT
    is_ours = former != _PLAINTEXT and texts.get(INTER_BROKER) == former and (directory / _FOLDER).is_dir()
    if given.security is None and former != _PLAINTEXT and not is_ours:
        raise BarnabasError(
            f"{directory / broker_config(number)} secures its listener by hand, and barnabas up could not connect: start each server "
            "with barnabas server-start, or give --security"
        )
    wanted: str = given.security or former
    if wanted == _PLAINTEXT:
        if users:
            raise BarnabasError("--user needs --security SASL_SSL or SASL_PLAINTEXT")
        return SecurityPlan(None, dict.fromkeys(_names(former)) if former != _PLAINTEXT else {})
    from barnabas.testing.security import ClusterSecurity  # few clusters need it

    security = ClusterSecurity.of_broker(wanted, former, texts, users) if is_ours else ClusterSecurity(wanted, users)
    security.directory = directory / _FOLDER
    changed: dict[str, str | None] = {}
    if texts and wanted != former:
        changed = {**dict.fromkeys(_names(former)), **security.broker_properties()}
    elif texts and users:
        changed = {name: value for name, value in security.broker_properties().items() if name.endswith(".jaas.config")}
    has_users = is_ours and client_file(directory).exists()
    return SecurityPlan(security, changed, tuple(users) if has_users else tuple(security.users))


def _names(protocol: str) -> list[str]:
    """The properties that secure a listener with a protocol."""
    if protocol == _PLAINTEXT:
        return []
    from barnabas.testing.security import ClusterSecurity

    users = {"user": "password"} if protocol.startswith("SASL") else {}
    return list(ClusterSecurity(protocol, users).broker_properties())
