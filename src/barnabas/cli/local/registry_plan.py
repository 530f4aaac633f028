"""The schema registry that ``barnabas up`` starts: as its file in the data dir says, or as
``--registry`` asks."""

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from barnabas.base.errors import BarnabasError
from barnabas.cli.local.broker_plan import BrokersPlan
from barnabas.cli.local.files import ServerFile, free_ports
from barnabas.cli.local.held_cluster import HeldCluster
from barnabas.cli.local.security_plan import SecurityPlan
from barnabas.cli.machine.server_names import SERVICES
from barnabas.coordination.quorum.members import LOCAL_HOST, HostAndPort

__all__ = ["RegistryPlan", "plan_registry"]

_NAME = "registry"
_LISTENERS = "listeners"
_PROTECTING = (
    "kafkastore.security.",
    "kafkastore.ssl.",
    "kafkastore.sasl.",
    "authentication.",
    "authorization.",
    "ssl.",
    "leader.ssl.",
)


@dataclass(frozen=True, slots=True)
class RegistryPlan:
    """Its file, and where it listens."""

    file: ServerFile
    address: HostAndPort
    url: str
    """Where clients on this machine connect."""

    def write(self, security_plan: SecurityPlan) -> Path:
        """Write the file, and that of the users; returns its path."""
        if security_plan.security is not None:
            from barnabas.testing.registry import write_registry_users

            write_registry_users(security_plan.security)
        return self.file.write()


def plan_registry(
    given: argparse.Namespace,
    held: HeldCluster,
    directory: Path,
    brokers: BrokersPlan,
    security_plan: SecurityPlan,
) -> RegistryPlan | None:
    """What to start; None without ``--registry`` and without its file.

    Raises `BarnabasError` for a file without a listener."""
    path = directory / SERVICES[_NAME].config
    texts = held.services.get(_NAME)
    if given.registry is None and texts is None:
        return None
    from barnabas.testing.registry import registry_properties

    former = _address(path, texts) if texts else None
    host = given.host or (former.host if former else brokers.addresses[0].host) or LOCAL_HOST
    port = given.registry if given.registry is not None else former.port if former else 0
    new = registry_properties(
        brokers.bootstrap, len(brokers.files), security_plan.security, port or free_ports(host, 1)[0], host
    )
    kept = texts or {}
    if security_plan.changed:
        kept = {name: text for name, text in kept.items() if not name.startswith(_PROTECTING)}
    merged = {**new, **kept, **_changes(new, texts or {}, given)}
    return RegistryPlan(ServerFile(path, merged), HostAndPort(host, _port(merged)), _url(merged))


def _changes(new: Mapping[str, str], texts: Mapping[str, str], given: argparse.Namespace) -> dict[str, str]:
    """What follows the cluster and the options; the rest of the file stays."""
    follows = {name: text for name, text in new.items() if name.startswith(("kafkastore.", *_PROTECTING))}
    follows.pop("kafkastore.topic.replication.factor", None)
    scheme_changed = urlsplit(texts.get(_LISTENERS, "")).scheme != urlsplit(new[_LISTENERS]).scheme
    if given.registry is not None or given.host is not None or scheme_changed:
        follows[_LISTENERS] = new[_LISTENERS]
    return follows


def _address(path: Path, texts: Mapping[str, str]) -> HostAndPort:
    try:
        parts = urlsplit(texts[_LISTENERS].split(",")[0])
        return HostAndPort(parts.hostname or LOCAL_HOST, parts.port or 0)
    except (KeyError, ValueError):
        raise BarnabasError(f"{path}: {_LISTENERS}=http://HOST:PORT is expected") from None


def _port(texts: Mapping[str, str]) -> int:
    return urlsplit(texts[_LISTENERS].split(",")[0]).port or 0


def _url(texts: Mapping[str, str]) -> str:
    parts = urlsplit(texts[_LISTENERS].split(",")[0])
    return f"{parts.scheme}://{HostAndPort(parts.hostname or LOCAL_HOST, parts.port or 0).reachable()}"
