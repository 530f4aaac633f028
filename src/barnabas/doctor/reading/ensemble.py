"""Reads the coordination service: where it is, its servers by the word `srvr`, and its members.

The servers are those of ``zookeeper.connect`` of the brokers, unless an option names others.

In ZooKeeper: `FourLetterWordMain`, ``/zookeeper/config``.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from barnabas.base.errors import BarnabasError, ConfigError
from barnabas.base.network import ALL_ADDRESSES
from barnabas.base.randomness import new_random
from barnabas.client.network.server_status import ServerStatus, ServingState, statuses_of
from barnabas.coordination.client import BlockingClient, ConnectString
from barnabas.coordination.client.connection import CoordinationClient
from barnabas.coordination.quorum.configuration import QuorumConfiguration, parse_dynamic_text
from barnabas.doctor.evidence.cluster import BrokersPart
from barnabas.doctor.evidence.configs import BrokerConfigsPart
from barnabas.doctor.evidence.coordination import EnsemblePart, MemberLine, ServerLook
from barnabas.doctor.evidence.part import Absent, Why
from barnabas.doctor.reading.registration import ClusterReading, UnreadError, reads
from barnabas.wire.jute.errors import KeeperError

__all__ = ["SERVER_ANSWER_S", "address_of", "coordination_place", "in_session", "read_ensemble"]

SERVER_ANSWER_S = 1.0
_CONFIG, _CONNECT = "/zookeeper/config", "zookeeper.connect"
T = TypeVar("T")


def coordination_place(reading: ClusterReading) -> ConnectString:
    """The servers and the chroot. Raises `UnreadError`, of a KRaft cluster too."""
    given = tuple(reading.sources.zookeeper)
    brokers = reading.get(BrokersPart)
    if not isinstance(brokers, Absent) and brokers.is_kraft:
        raise UnreadError(Why.UNSUPPORTED, "it is a KRaft cluster, which has no ensemble and no znodes")
    configs = reading.get(BrokerConfigsPart)
    if isinstance(configs, Absent):
        if given:
            return ConnectString(given, "")
        raise UnreadError(
            configs.why, f"{configs.reason}; the servers are in the brokers' properties, or in --zookeeper-connect"
        )
    texts = {entry.value for each in configs.entries.values() if (entry := each.get(_CONNECT)) is not None}
    places = []
    for text in sorted(filter(None, texts)):
        try:
            places.append(ConnectString.parse(text))
        except ConfigError as error:
            raise UnreadError(Why.UNREACHABLE, str(error)) from None
    if not places and not given:
        raise UnreadError(Why.UNSUPPORTED, "the brokers have no zookeeper.connect, and so no ensemble")
    servers = given or tuple(dict.fromkeys(server for place in places for server in place.servers))
    return ConnectString(servers, places[0].chroot if places else "")


def in_session(
    reading: ClusterReading, place: ConnectString, request: Callable[[CoordinationClient], Awaitable[T]]
) -> T:
    """What ``request`` returns with a session, without the chroot. Raises `UnreadError`."""
    text = ",".join(map(address_of, place.servers))
    timeout_s = reading.deadline(SERVER_ANSWER_S * 2).left_s()
    with BlockingClient(
        reading.sources.coordination_network,
        text,
        rng=new_random(),
        new_sasl_client=reading.sources.coordination_login,
        patience_ms=round(timeout_s * 1000),
    ) as client:
        try:
            client.start(round(timeout_s * 1000))
            return client.call(request, timeout_s)
        except (KeeperError, TimeoutError) as error:
            why = client.client.refusal or client.client.protocol_error or str(error)
            raise UnreadError(Why.UNREACHABLE, f"{text} gives no session: {why}") from None


def address_of(server: tuple[str, int]) -> str:
    """``host:port``, with brackets around an address of IPv6."""
    host, port = server
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


@reads()
def read_ensemble(reading: ClusterReading) -> EnsemblePart:
    """The servers that brokers name, and the ensemble's others that have an address for clients."""
    place = coordination_place(reading)
    found = _statuses(reading, place.servers)
    members: tuple[MemberLine, ...] | Absent
    try:
        members = _members(in_session(reading, place, _configuration))
    except UnreadError as error:
        members = error.absent
    if not isinstance(members, Absent) and (others := _unnamed(place.servers, members)):
        found += _statuses(reading, others)
    named = _named(reading) or place.servers
    return EnsemblePart(connect=tuple(map(address_of, named)), servers=tuple(map(_view, found)), members=members)


def _statuses(reading: ClusterReading, servers: Sequence[tuple[str, int]]) -> list[ServerStatus]:
    try:
        return statuses_of(servers, reading.deadline(SERVER_ANSWER_S))
    except BarnabasError as error:
        raise UnreadError(Why.UNREACHABLE, str(error)) from None


def _named(reading: ClusterReading) -> tuple[tuple[str, int], ...]:
    """The servers that the brokers' properties name, whatever an option says; none where these are
    not known."""
    configs = reading.get(BrokerConfigsPart)
    entries = () if isinstance(configs, Absent) else configs.entries.values()
    texts = [entry.value for each in entries if (entry := each.get(_CONNECT)) is not None and entry.value]
    return ConnectString.parse(min(texts, key=lambda text: text.count(","))).servers if texts else ()


async def _configuration(client: CoordinationClient) -> str:
    data, _ = await client.get(_CONFIG)
    return (data or b"").decode("utf-8", "replace")


def _members(text: str) -> tuple[MemberLine, ...]:
    """None for a server alone, which has no line."""
    if "server." not in text:
        return ()
    try:
        configuration: QuorumConfiguration = parse_dynamic_text(text)
    except ConfigError as error:
        raise UnreadError(Why.UNREACHABLE, f"{_CONFIG} is not the configuration of an ensemble: {error}") from None
    return tuple(
        MemberLine(
            each.id,
            is_voter=each.id in configuration.voters,
            client_address=None if each.client is None else str(each.client),
        )
        for each in configuration.servers.values()
    )


def _unnamed(servers: Sequence[tuple[str, int]], members: Sequence[MemberLine]) -> list[tuple[str, int]]:
    """The members that brokers do not name; those that listen at all addresses have no host."""
    if len(servers) >= len(members):
        return []
    found = []
    for each in members:
        host, _, port = (each.client_address or "").rpartition(":")
        place = (host.strip("[]"), int(port or 0))
        if place[0] not in ALL_ADDRESSES and place not in servers:
            found.append(place)
    return found


def _view(status: ServerStatus) -> ServerLook:
    if status.state is ServingState.SERVING:
        zxid = None if status.zxid is None else int(status.zxid, 16)
        return ServerLook(status.server, status.role, zxid=zxid, outstanding=status.outstanding)
    if status.state is ServingState.NO_STATUS:
        return ServerLook(status.server, None, status.role, is_serving=None)
    mode = status.role if status.state is ServingState.READ_ONLY else None
    problem = "read-only, without a quorum" if status.state is ServingState.READ_ONLY else status.role
    is_unreachable = status.state is ServingState.UNREACHABLE
    return ServerLook(status.server, mode, problem, is_serving=False, is_unreachable=is_unreachable)
