"""The brokers that ``barnabas up`` starts: those of the data dir as their files say, with what
options change, and new ones.

An option that is not given leaves what the data dir has; a value that was edited by hand stays
unless an option is for it.
"""

import argparse
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from barnabas.base.errors import BarnabasError, ConfigError
from barnabas.base.hints import did_you_mean
from barnabas.base.settings import list_text
from barnabas.broker.configuration.kraft import refuse_kraft
from barnabas.cli.local.coordination_plan import CoordinationPlan
from barnabas.cli.local.files import ServerFile, free_ports, is_free
from barnabas.cli.local.held_cluster import HeldCluster, split_connect
from barnabas.cli.local.security_plan import INTER_BROKER, SecurityPlan, held_listener
from barnabas.cli.machine.server_names import broker_config, broker_log_dir
from barnabas.coordination.quorum.members import LOCAL_HOST, HostAndPort

if TYPE_CHECKING:
    from barnabas.broker.configuration.listeners import ListenerAddress

__all__ = ["BrokersPlan", "check_settings", "plan_brokers"]

_DEFAULT_PORT = 9092
_METRICS = "metrics.http.address"
_RACK = "broker.rack"
_FEATURES = "new.cluster.features"


@dataclass(frozen=True, slots=True)
class BrokersPlan:
    """The file of each broker, and where it listens."""

    files: list[ServerFile]
    addresses: list[HostAndPort]
    metrics: list[HostAndPort]

    @property
    def bootstrap(self) -> str:
        """Where clients on this machine connect."""
        return ",".join(str(address.reachable()) for address in self.addresses)

    @property
    def zookeeper_connect(self) -> str:
        """Where the brokers find the coordination service."""
        return self.files[0].texts["zookeeper.connect"]


def plan_brokers(
    given: argparse.Namespace,
    held: HeldCluster,
    directory: Path,
    coordination: CoordinationPlan,
    security_plan: SecurityPlan,
    overrides: Mapping[str, str],
) -> BrokersPlan:
    """What to start.

    Raises `BarnabasError` for options that would leave out what the data dir has."""
    count = _count(given.brokers, held, directory)
    listening = {
        number: listener
        for number, texts in held.brokers.items()
        if (listener := held_listener(directory, number, texts))
    }
    recorded = {number: HostAndPort(each.host, each.port) for number, each in listening.items()}
    addresses = _addresses(given.host, given.port, _DEFAULT_PORT, recorded, count)
    metrics = _metrics(given, held, addresses)
    connect = _connect(held, coordination)
    racks = _racks(given.racks, held, count)
    features = _new_cluster_features(given, held, directory)
    files = []
    for number in range(count):
        texts = dict(held.brokers.get(number, {}))
        new = _new_properties(directory, number, count, addresses[number], connect, security_plan)
        if rack := racks[number]:
            new[_RACK] = rack
        if features:
            new[_FEATURES] = features
        changes: dict[str, str | None] = {}
        if texts:
            changes |= security_plan.changed
            changes |= _listener_changes(given, security_plan, directory, number, texts, listening, addresses)
            if given.zookeeper or split_connect(texts)[0] == coordination.former_address:
                changes["zookeeper.connect"] = connect
            if given.racks is not None:
                changes[_RACK] = racks[number]
            for name, value in _internal_topics(len(held.brokers)).items():
                if texts.get(name) == value:
                    changes[name] = new[name]
        if number in metrics:
            changes[_METRICS] = str(metrics[number])
        merged = {**new, **texts, **changes, **overrides}
        kept = {name: value for name, value in merged.items() if value is not None}
        files.append(ServerFile(directory / broker_config(number), kept))
    return BrokersPlan(files, addresses, list(metrics.values()))


def check_settings(plan: BrokersPlan, overrides: Mapping[str, str]) -> list[str]:
    """Warnings about overrides without effect, with the name that may be meant.

    Raises `ConfigError` for wrong values."""
    from barnabas.broker.configuration.definitions import DEFINITIONS, settings_without_effect
    from barnabas.broker.server import BrokerServer

    for file in plan.files:
        refuse_kraft(str(file.path), file.texts)
        try:
            BrokerServer(dict(file.texts))
        except ConfigError as error:
            if not file.path.exists() or any(name in str(error) for name in overrides):
                raise
            raise ConfigError(f"{file.path}: {error}") from None
    known = [setting.name for setting in DEFINITIONS]
    warnings = []
    for name, reason in settings_without_effect(DEFINITIONS.parse(plan.files[0].texts)).items():
        if name in overrides:
            hint = did_you_mean(name, known) if name not in known else ""
            warnings.append(f"--override {name}={overrides[name]} has no effect: {reason}{hint}")
    return warnings


def _count(wanted: int | None, held: HeldCluster, directory: Path) -> int:
    if wanted is not None and wanted < 1:
        raise BarnabasError(f"--brokers {wanted}: at least one broker is needed")
    count = len(held.brokers)
    if wanted is not None and wanted < count:
        first = broker_config(wanted)
        raise BarnabasError(
            f"--brokers {wanted}: {directory} has {count} brokers, and partitions of those left out would have no leader. Leave "
            f"--brokers out to start them all. To have fewer, move their replicas away (barnabas reassign-partitions), stop the "
            f"cluster, and remove {first} and {broker_log_dir(wanted)}{' and so on' if count - wanted > 1 else ''}"
        )
    return wanted or count or 1


def _addresses(
    host: str | None, first: int | None, default: int, recorded: Mapping[int, HostAndPort], count: int
) -> list[HostAndPort]:
    """Where each broker listens: as options say, as recorded, and new ones at the
    ports that follow."""
    usual = host or next((each.host for each in recorded.values()), LOCAL_HOST)
    hosts = [host or (recorded[n].host if n in recorded else usual) for n in range(count)]
    if first is None and not recorded:
        first = default
    if first == 0:
        return [HostAndPort(*each) for each in zip(hosts, free_ports(usual, count), strict=True)]
    if first is not None:
        return [HostAndPort(hosts[n], first + n) for n in range(count)]
    ports = {n: address.port for n, address in recorded.items() if address.port}
    last = max(ports.values(), default=default - 1)
    for n in range(count):
        if n not in ports:
            last += 1
            ports[n] = last if is_free(HostAndPort(hosts[n], last)) else free_ports(hosts[n], 1)[0]
    return [HostAndPort(hosts[n], ports[n]) for n in range(count)]


def _metrics(given: argparse.Namespace, held: HeldCluster, addresses: list[HostAndPort]) -> dict[int, HostAndPort]:
    """Where brokers show their metrics; new ones do if others do."""
    recorded = {}
    for number, texts in held.brokers.items():
        host, colon, port = texts.get(_METRICS, "").strip().rpartition(":")
        if colon and port.isdecimal():
            recorded[number] = HostAndPort(host.strip("[]"), int(port))
    if given.metrics_port is None and not recorded:
        return {}
    found = _addresses(given.host, given.metrics_port, 0, recorded or dict(enumerate(addresses)), len(addresses))
    without = (
        () if given.metrics_port is not None else [n for n in held.brokers if held.brokers[n] and n not in recorded]
    )
    return {n: address for n, address in enumerate(found) if n not in without}


def _racks(wanted: int | None, held: HeldCluster, count: int) -> list[str | None]:
    """The rack of each broker.

    A new one goes to a rack with the fewest, if the others have racks."""
    if wanted is not None:
        if not 0 <= wanted <= count:
            raise BarnabasError(f"--racks {wanted}: between 0 and the number of brokers, {count}")
        return [f"R{n * wanted // count + 1}" if wanted else None for n in range(count)]
    recorded = {n: texts[_RACK] for n, texts in held.brokers.items() if _RACK in texts}
    sizes = Counter(recorded.values())
    racks: list[str | None] = []
    for n in range(count):
        rack = recorded.get(n)
        if rack is None and sizes and not held.brokers.get(n):
            rack = min(sizes, key=lambda each: (sizes[each], each))
            sizes[rack] += 1
        racks.append(rack)
    return racks


def _new_cluster_features(given: argparse.Namespace, held: HeldCluster, directory: Path) -> str:
    """The levels that a new cluster finalizes; an existing one keeps its own.

    Raises `BarnabasError` for levels that differ from those with which the cluster was made."""
    from barnabas.broker.metadata.features import levels_text, parse_levels, wrong_levels

    if wrong := wrong_levels(given.feature or ()):
        raise BarnabasError(f"--feature: {wrong}")
    asked = parse_levels(given.feature or ())
    if not held.brokers and not given.zookeeper:
        return levels_text(asked)
    made_with = parse_levels(filter(None, next(iter(held.brokers.values()), {}).get(_FEATURES, "").split(",")))
    if any(made_with.get(name, 0) != level for name, level in asked.items()):
        where = directory if held.brokers else given.zookeeper
        raise BarnabasError(
            f"--feature is for a new cluster, and {where} may have one with other levels: start it without the option, and "
            "change them with barnabas features upgrade or downgrade"
        )
    return ""


def _new_properties(
    directory: Path, number: int, count: int, address: HostAndPort, connect: str, security_plan: SecurityPlan
) -> dict[str, str]:
    """What `up` chooses for a broker."""
    properties = {
        "broker.id": str(number),
        "listeners": f"{security_plan.protocol}://{address}",
        "log.dirs": list_text("log.dirs", [str(directory / broker_log_dir(number))]),
        "zookeeper.connect": connect,
        **_internal_topics(count),
        "group.initial.rebalance.delay.ms": "0",
    }
    return properties | ({} if security_plan.security is None else security_plan.security.broker_properties())


def _internal_topics(count: int) -> dict[str, str]:
    """How many replicas the coordinators' topics have in a cluster with this many brokers,
    and how many a write needs."""
    return {
        "offsets.topic.replication.factor": str(min(3, count)),
        "transaction.state.log.replication.factor": str(min(3, count)),
        "transaction.state.log.min.isr": str(min(2, count)),
    }


def _listener_changes(
    given: argparse.Namespace,
    security_plan: SecurityPlan,
    directory: Path,
    number: int,
    texts: Mapping[str, str],
    listening: Mapping[int, "ListenerAddress"],
    addresses: list[HostAndPort],
) -> dict[str, str | None]:
    """For options that are about listeners.

    Raises `BarnabasError` where these were written by hand."""
    secures = INTER_BROKER in security_plan.changed
    options = {"--host": given.host is not None, "--port": given.port is not None, "--security": secures}
    asking = [option for option, is_given in options.items() if is_given]
    listener = listening.get(number)
    if listener is None or (listener.port and not asking):
        return {}
    if asking and ("advertised.listeners" in texts or "," in texts["listeners"].strip(" ,")):
        raise BarnabasError(
            f"{directory / broker_config(number)} has listeners that were written by hand: change them there, and leave "
            f"{' and '.join(asking)} out"
        )
    name = security_plan.protocol if secures else listener.name
    return {"listeners": f"{name}://{addresses[number]}"}


def _connect(held: HeldCluster, coordination: CoordinationPlan) -> str:
    """Where brokers find the coordination service; a chroot stays, unless the address has one."""
    _, chroot = held.zookeeper_connect
    return coordination.address if "/" in coordination.address else coordination.address + chroot
