"""Listeners: where a broker is reached, by clients and by other brokers (Kafka's
`EndPoint` and `ListenerName`)."""

from collections.abc import Callable
from dataclasses import dataclass

from barnabas.base.errors import ConfigError
from barnabas.base.settings import Values
from barnabas.net.metrics_address import METRICS_ADDRESS, parse_metrics_address

__all__ = ["ListenerAddress", "advertised_listeners", "inter_broker_listener", "listeners", "metrics_address"]


@dataclass(frozen=True, slots=True)
class ListenerAddress:
    """One listener: its name, its security protocol, and where it is."""

    name: str
    protocol: str
    host: str
    """Empty for all interfaces."""
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


_SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


def _protocols(values: Values) -> dict[str, str]:
    found = {}
    for item in values["listener.security.protocol.map"].split(","):
        name, separator, protocol = item.strip().partition(":")
        if not name or not separator:
            raise ConfigError(f"listener.security.protocol.map: {item!r} is not NAME:PROTOCOL")
        if name.strip().upper() in found:
            raise ConfigError(f"listener.security.protocol.map: {name.strip()} is there twice")
        found[name.strip().upper()] = protocol.strip().upper()
    return found


def _parse_listeners(values: Values, setting: str) -> list[ListenerAddress]:
    protocols = _protocols(values)
    found: list[ListenerAddress] = []
    for item in values[setting].split(","):
        if not item.strip():
            continue
        name, separator, address = item.strip().partition("://")
        host, colon, port = address.rpartition(":")
        name = name.upper()
        if not separator or not colon or not port.isdigit() or int(port) > 65535:
            raise ConfigError(f"{setting}: {item.strip()!r} is not NAME://host:port")
        protocol = protocols.get(name)
        if protocol is None:
            raise ConfigError(f"{setting}: listener.security.protocol.map names no security protocol for {name}")
        if protocol not in _SECURITY_PROTOCOLS:
            raise ConfigError(
                f"listener.security.protocol.map: {name} uses {protocol}, and there are {', '.join(_SECURITY_PROTOCOLS)}"
            )
        found.append(ListenerAddress(name, protocol, host.strip("[]"), int(port)))
    if not found:
        raise ConfigError(f"{setting} names no listener")
    for what, kept in (("name", [a.name for a in found]), ("port", [a.port for a in found if a.port])):
        if setting == "listeners" and len(set(kept)) != len(kept):
            raise ConfigError(f"{setting}: each listener must have a {what} of its own: {values[setting]}")
    return found


def listeners(values: Values) -> list[ListenerAddress]:
    """Where to listen; raises `ConfigError`."""
    return _parse_listeners(values, "listeners")


def advertised_listeners(
    values: Values, bound: list[ListenerAddress], own_host: Callable[[], str]
) -> list[ListenerAddress]:
    """The addresses that other brokers and clients connect to, given the listeners
    with their real ports.

    The answer of ``own_host`` stands for listeners on all interfaces; a port of 0
    stands for the real one.
    """
    if values["advertised.listeners"] is None:
        given = bound
    else:
        given = _parse_listeners(values, "advertised.listeners")
    ports = {listener.name: listener.port for listener in bound}
    found = []
    for listener in given:
        if listener.name not in ports:
            raise ConfigError(f"advertised.listeners: there is no listener {listener.name}")
        if listener.host in ("0.0.0.0", "::"):  # noqa: S104 - compared, not bound
            if values["advertised.listeners"] is not None:
                raise ConfigError(
                    f"advertised.listeners: clients cannot connect to {listener.host}; name an address or a host"
                )
            raise ConfigError(
                f"listeners: clients cannot connect to {listener.host}; set advertised.listeners, or leave the host out"
            )
        found.append(
            ListenerAddress(
                listener.name, listener.protocol, listener.host or own_host(), listener.port or ports[listener.name]
            )
        )
    return found


def inter_broker_listener(values: Values) -> str:
    """The name of the listener that brokers use among themselves.

    Raises `ConfigError` when there is none."""
    name = values["inter.broker.listener.name"]
    if name is not None and values.is_set("security.inter.broker.protocol"):
        raise ConfigError("Only one of inter.broker.listener.name and security.inter.broker.protocol should be set.")
    chosen: str = (name or values["security.inter.broker.protocol"]).upper()
    protocols = {listener.name: listener.protocol for listener in listeners(values)}
    if name is None and protocols.get(chosen, chosen) != chosen:
        raise ConfigError(
            f"security.inter.broker.protocol is {chosen}, and the listener {chosen} has the protocol {protocols[chosen]}: "
            "name the listener in inter.broker.listener.name"
        )
    if chosen not in protocols:
        raise ConfigError(
            f"There is no listener {chosen}, which brokers are to use among themselves: {values['listeners']}"
        )
    return chosen


def metrics_address(values: Values) -> tuple[str, int] | None:
    """Where Prometheus gets the metrics: host (empty for all interfaces) and port; None for
    nowhere. Raises `ConfigError`."""
    address = values[METRICS_ADDRESS]
    return None if address is None else parse_metrics_address(address)
