"""How many connections a broker accepts: what counts as one address, and which
listener goes beyond the limit."""

import sys
from pathlib import Path

import pytest

from barnabas.base.errors import ConfigError
from barnabas.broker.assembly import connection_limits
from barnabas.broker.configuration import definitions
from barnabas.broker.requests.connection_quotas import ConnectionLimits, ConnectionQuotas, canonical_address
from barnabas.broker.server import BrokerServer
from support.broker import DataPath, Wire

CLIENTS, BROKERS = "CLIENTS", "BROKERS"


def overrides(text: str, **addresses: str) -> dict[str, int]:
    values = definitions.DEFINITIONS.parse({"zookeeper.connect": "h:1", "max.connections.per.ip.overrides": text})

    def resolve(host: str) -> str:
        if host not in addresses:
            raise OSError(0, "no such host")
        return addresses[host]

    return dict(connection_limits(values, resolve, sys.maxsize).overrides)


@pytest.mark.parametrize(
    ("spelling", "canonical"),
    [
        ("1.2.3.4", "1.2.3.4"),
        ("::1", "::1"),
        ("0:0:0:0:0:0:0:1", "::1"),
        ("2001:DB8:0::00ff", "2001:db8::ff"),
        ("::ffff:1.2.3.4", "1.2.3.4"),
        ("::FFFF:102:304", "1.2.3.4"),
        ("fe80::1%eth0", "fe80::1"),
        ("localhost", None),
        ("1.2.3", None),
    ],
)
def test_all_spellings_of_an_address_are_one_address(spelling: str, canonical: str | None) -> None:
    """As Java compares addresses."""
    assert canonical_address(spelling) == canonical


def test_overrides_are_by_address_and_host_names_are_resolved() -> None:
    """Brackets around an IPv6 address are no part of it."""
    found = overrides("1.2.3.4:5, [0:0::1]:7, ::ffff:9.9.9.9:8, proxy:9", proxy="10.0.0.0")
    assert found == {"1.2.3.4": 5, "::1": 7, "9.9.9.9": 8, "10.0.0.0": 9}


@pytest.mark.parametrize(
    ("given", "descriptors", "limits"),
    [
        ({}, 100_000, (10_000, 2_000)),
        ({}, 1_024, (512, 256)),
        ({"max.connections.per.ip": "900"}, 1_024, (512, 900)),
        ({"max.connections": "2147483647"}, 1_024, (2_147_483_647, 256)),
    ],
)
def test_limits_that_are_not_configured_leave_descriptors_for_other_addresses(
    given: dict[str, str], descriptors: int, limits: tuple[int, int]
) -> None:
    """With few descriptors one address would take all connections below the default limit."""
    values = definitions.DEFINITIONS.parse({"zookeeper.connect": "h:1", **given})
    found = connection_limits(values, str, descriptors)
    assert (found.max_connections, found.max_connections_per_ip) == limits


def test_a_host_name_without_an_address_ends_the_start() -> None:
    """The error names the setting and the host."""
    with pytest.raises(
        ConfigError, match=r"per\.ip\.overrides: the host name no-such cannot be resolved \(no such host\)"
    ):
        overrides("no-such:5")
    with pytest.raises(ConfigError, match="the host name no-such.invalid cannot be resolved"):
        BrokerServer({"zookeeper.connect": "h:1", "max.connections.per.ip.overrides": "no-such.invalid:5"})


@pytest.mark.parametrize("peer", ["::1", "0:0:0:0:0:0:0:1", "::ffff:1.2.3.4", "1.2.3.4"])
def test_a_limit_holds_for_the_address_of_a_connection_however_it_is_spelled(peer: str) -> None:
    """Also when connections are closed again."""
    quotas = ConnectionQuotas(ConnectionLimits(100, 100, {"::1": 1, "1.2.3.4": 1}))
    assert quotas.opened(peer, CLIENTS) is None
    assert "per.ip" in (quotas.opened(peer, CLIENTS) or "")
    quotas.closed(peer)
    quotas.closed(peer)
    assert quotas.opened(peer, CLIENTS) is None


def serving(tmp_path: Path, protected: str | None) -> DataPath:
    broker = DataPath(tmp_path)
    broker.dispatcher._quotas = ConnectionQuotas(ConnectionLimits(2, 100), protected)
    return broker


def connect(broker: DataPath, listener: str) -> Wire:
    wire = Wire()
    wire.handler = broker.dispatcher.accept(listener, wire)
    if wire.is_closed:
        wire.handler.closed(None)
    return wire


def test_the_listener_of_the_brokers_goes_beyond_the_limit_at_the_cost_of_the_most_silent_client(
    tmp_path: Path,
) -> None:
    """Clients must not keep replication out."""
    broker = serving(tmp_path, BROKERS)
    clients = []
    for _ in range(2):
        clients.append(connect(broker, CLIENTS))
        broker.timers.advance(1000)
    assert connect(broker, CLIENTS).is_closed
    assert not connect(broker, BROKERS).is_closed
    assert [client.is_closed for client in clients] == [True, False]


def test_the_only_listener_is_not_protected(tmp_path: Path) -> None:
    """Clients connect to it, too."""
    broker = serving(tmp_path, None)
    assert [connect(broker, CLIENTS).is_closed for _ in range(3)] == [False, False, True]


def test_a_connection_that_is_closed_makes_room_for_another() -> None:
    """In its address's limit and in that of all; one that was refused does, too."""
    quotas = ConnectionQuotas(ConnectionLimits(max_connections=3, max_connections_per_ip=2))
    for address in ("10.0.0.1", "10.0.0.1", "10.0.0.2"):
        assert quotas.opened(address, CLIENTS) is None
    assert "max.connections.per.ip" in (quotas.opened("10.0.0.1", CLIENTS) or "")
    assert "max.connections)" in (quotas.opened("10.0.0.3", CLIENTS) or "")
    for address in ("10.0.0.1", "10.0.0.3", "10.0.0.1"):
        quotas.closed(address)
    assert quotas.opened("10.0.0.1", CLIENTS) is None
    assert quotas.opened("10.0.0.1", CLIENTS) is not None
