"""The servers beside the cluster that ``barnabas up`` starts, the schema registry and the REST
proxy: as their files in the data dir say, or as ``--registry`` and ``--rest`` ask."""

import argparse
from collections.abc import Callable, Mapping
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

__all__ = ["ServicePlan", "plan_services"]

_LISTENERS = "listeners"
_PROTECTING = ("authentication.", "authorization.", "ssl.", "leader.ssl.")
_OF_CLUSTER = {
    "registry": ("kafkastore.",),
    "rest": ("bootstrap.servers", "client.security.", "client.ssl.", "client.sasl.", "schema.registry."),
}
"""What the properties that follow the cluster begin with."""
_CHOSEN = ("kafkastore.topic.replication.factor",)
"""Of these, what the file keeps."""


@dataclass(frozen=True, slots=True)
class ServicePlan:
    """Its file, and where it listens."""

    name: str
    file: ServerFile
    address: HostAndPort
    url: str
    """Where clients on this machine connect."""

    def write(self, security_plan: SecurityPlan) -> Path:
        """Write the file, and that of the registry's users; returns its path."""
        if security_plan.security is not None and self.name == "registry":
            from barnabas.testing.registry import write_registry_users

            write_registry_users(security_plan.security)
        return self.file.write()


def plan_services(
    given: argparse.Namespace,
    held: HeldCluster,
    directory: Path,
    brokers: BrokersPlan,
    security_plan: SecurityPlan,
) -> list[ServicePlan]:
    """What to start: what options ask for, and what has a file.

    Raises `BarnabasError` for a file without a listener."""
    security, count = security_plan.security, len(brokers.files)
    plans: dict[str, ServicePlan] = {}

    def registry(port: int, host: str) -> dict[str, str]:
        from barnabas.testing.registry import registry_properties

        return registry_properties(brokers.bootstrap, count, security, port, host)

    def rest(port: int, host: str) -> dict[str, str]:
        from barnabas.testing.rest import rest_properties

        url = plans["registry"].url if "registry" in plans else None
        return rest_properties(brokers.bootstrap, security, port, host, registry_url=url)

    for name, made in (("registry", registry), ("rest", rest)):
        path, texts = directory / SERVICES[name].config, held.services.get(name)
        wanted = getattr(given, name)
        if wanted is not None or texts is not None:
            former = _address(path, texts) if texts else None
            host = given.host or (former.host if former else brokers.addresses[0].host) or LOCAL_HOST
            plans[name] = _plan(
                name, path, texts or {}, made, _Wish(wanted, host, given.host, bool(security_plan.changed))
            )
    return list(plans.values())


@dataclass(frozen=True, slots=True)
class _Wish:
    """What options ask of a service."""

    port: int | None
    host: str
    asked_host: str | None
    has_new_security: bool


def _plan(
    name: str, path: Path, texts: Mapping[str, str], made: Callable[[int, str], dict[str, str]], wish: _Wish
) -> ServicePlan:
    former = _address(path, texts) if texts else None
    port = wish.port if wish.port is not None else former.port if former else 0
    new = made(port or free_ports(wish.host, 1)[0], wish.host)
    follows = {each: text for each, text in new.items() if each.startswith((*_OF_CLUSTER[name], *_PROTECTING))}
    kept = dict(texts)
    if wish.has_new_security:
        dropped = (*_OF_CLUSTER[name], *_PROTECTING)
        kept = {each: text for each, text in texts.items() if each in _CHOSEN or not each.startswith(dropped)}
    for each in _CHOSEN:
        follows.pop(each, None)
    scheme_changed = urlsplit(texts.get(_LISTENERS, "")).scheme != urlsplit(new[_LISTENERS]).scheme
    if wish.port is not None or wish.asked_host is not None or scheme_changed:
        follows[_LISTENERS] = new[_LISTENERS]
    merged = {**new, **kept, **follows}
    address = _address(path, merged)
    url = f"{urlsplit(merged[_LISTENERS]).scheme}://{address.reachable()}"
    return ServicePlan(name, ServerFile(path, merged), HostAndPort(wish.host, address.port), url)


def _address(path: Path, texts: Mapping[str, str]) -> HostAndPort:
    """Where the first listener is. Raises `BarnabasError`."""
    try:
        parts = urlsplit(texts[_LISTENERS].split(",")[0])
        return HostAndPort(parts.hostname or LOCAL_HOST, parts.port or 0)
    except (KeyError, ValueError):
        raise BarnabasError(f"{path}: {_LISTENERS}=http://HOST:PORT is expected") from None
