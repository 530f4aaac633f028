"""The coordination servers that ``barnabas up`` starts: as the data dir has them, as
options say, or one by default."""

import argparse
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from barnabas.base.errors import BarnabasError, ConfigError
from barnabas.base.files import OsFiles
from barnabas.base.private_files import make_private_dirs
from barnabas.cli.local.files import ServerFile, free_ports
from barnabas.cli.local.held_cluster import HeldCluster, missing_file
from barnabas.cli.machine.server_names import COORDINATION_NAME, coordination_config
from barnabas.coordination.quorum.configuration_files import with_dynamic_file
from barnabas.coordination.quorum.members import LOCAL_HOST, HostAndPort
from barnabas.coordination.server.peer_config import own_server, read_peer_config
from barnabas.coordination.server.settings import parse_settings

__all__ = ["CoordinationPlan", "plan_coordination"]

_DEFAULT_PORT = 2181
_QUORUM_OFFSET = 2888 - 2181  # as in the examples of ZooKeeper's guide
_ELECTION_OFFSET = 3888 - 2181
_MAX_SERVERS = 9
_MAX_CLIENT_CONNECTIONS = "1000"
"""The limit for one address. Brokers, commands and tests of one machine share an address;
ZooKeeper's 60 would be few for them."""
_DYNAMIC = "dynamicConfigFile"


@dataclass(frozen=True, slots=True)
class CoordinationPlan:
    """The servers to start, none where others are used, and where brokers find them."""

    files: Mapping[str, ServerFile]
    """By the names of the servers."""
    address: str
    """``host:port``, with commas between those of an ensemble."""
    former_address: str
    """What the brokers' files have for it."""
    listens: tuple[HostAndPort, ...] = ()
    """What must be free."""

    def write(self) -> list[tuple[str, Path]]:
        """Write each server's file, and make its data directory with its number.

        Returns names and paths."""
        for name, file in self.files.items():
            data = Path(file.texts["dataDir"])
            make_private_dirs(data)
            number = name.removeprefix(COORDINATION_NAME)
            if number and not (data / "myid").exists():
                (data / "myid").write_text(f"{number}\n", encoding="utf-8")
        return [(name, file.write()) for name, file in self.files.items()]


@dataclass(frozen=True, slots=True)
class _Member:
    """Where one server listens; a server alone has no quorum and election ports."""

    my_id: int | None
    """The number in a member's file myid."""
    client: HostAndPort
    quorum: HostAndPort | None = None
    election: HostAndPort | None = None

    def listens(self) -> list[HostAndPort]:
        return [each for each in (self.client, self.quorum, self.election) if each is not None]


def plan_coordination(given: argparse.Namespace, held: HeldCluster, directory: Path) -> CoordinationPlan:
    """What to start.

    Raises `BarnabasError` for options that would not start the data that is there."""
    used, _ = held.zookeeper_connect
    if given.zookeeper:
        if held.coordination:
            raise BarnabasError(
                f"--zookeeper {given.zookeeper}: {directory} has coordination servers of its own, with the cluster's metadata: "
                "leave --zookeeper out, or choose another folder with --data-dir"
            )
        return CoordinationPlan({}, given.zookeeper, used)
    if not held.coordination and used and given.zk_servers is None and given.zk_port is None:
        return CoordinationPlan({}, used, used)
    names = _names(given.zk_servers, held, directory)
    if names[0] in held.coordination and held.coordination[names[0]]:
        return _restarted(given, held, directory, names)
    if len(names) > 1 and held.coordination:
        raise missing_file(directory, names[0])
    members = _new_members(given, len(names), given.host or LOCAL_HOST)
    return _plan(directory, names, {name: {} for name in names}, members, members, is_changed=True)


def _names(wanted: int | None, held: HeldCluster, directory: Path) -> list[str]:
    if wanted is not None and not 1 <= wanted <= _MAX_SERVERS:
        raise BarnabasError(f"--zk-servers {wanted}: between 1 and {_MAX_SERVERS}")
    has_single = COORDINATION_NAME in held.coordination
    members = [int(name.removeprefix(COORDINATION_NAME)) for name in held.coordination if name != COORDINATION_NAME]
    if wanted is None and has_single and members:
        raise BarnabasError(
            f"{directory} has the data of a coordination server alone and of an ensemble of {max(members)}: choose one with "
            f"--zk-servers 1 or --zk-servers {max(members)}"
        )
    counts = ([1] if has_single else []) + ([max(members)] if members else [])
    count = wanted or (counts or [1])[0]
    if counts and count not in counts:
        has = "one coordination server" if counts == [1] else f"{counts[0]} coordination servers"
        raise BarnabasError(
            f"--zk-servers {wanted}: {directory} has {has} with the cluster's metadata, which new servers would not have: leave "
            "--zk-servers out, or choose another folder with --data-dir"
        )
    return [COORDINATION_NAME] if count == 1 else [f"{COORDINATION_NAME}{n + 1}" for n in range(count)]


def _restarted(given: argparse.Namespace, held: HeldCluster, directory: Path, names: list[str]) -> CoordinationPlan:
    texts = {name: held.coordination.get(name, {}) for name in names}
    for name, each in texts.items():
        if not each:
            raise missing_file(directory, name)
    former = [_held_member(directory, name, each) for name, each in texts.items()]
    if given.zk_port is None and given.host is None:
        return _plan(directory, names, texts, former, former, is_changed=False)
    for name, each in texts.items():
        if _DYNAMIC in each:
            raise BarnabasError(
                f"{directory / coordination_config(name)} takes the ensemble's addresses from {each[_DYNAMIC]}, which a "
                "reconfiguration wrote: leave --zk-port and --host out, and change them with barnabas zookeeper-shell, reconfig"
            )
    if given.zk_port is None:
        members = [
            _Member(member.my_id, *(HostAndPort(given.host, each.port) for each in member.listens()))
            for member in former
        ]
    else:
        ports = _new_members(given, len(names), given.host or former[0].client.host)
        members = [replace(new, my_id=member.my_id) for new, member in zip(ports, former, strict=True)]
    return _plan(directory, names, texts, members, former, is_changed=True)


def _new_members(given: argparse.Namespace, count: int, host: str) -> list[_Member]:
    first: int = _DEFAULT_PORT if given.zk_port is None else given.zk_port
    offsets = (0, _QUORUM_OFFSET, _ELECTION_OFFSET) if count > 1 else (0,)
    if first:
        ports = [first + offset + n for offset in offsets for n in range(count)]
    else:
        ports = free_ports(host, count * len(offsets))
    return [_Member(n + 1, *(HostAndPort(host, port) for port in ports[n::count])) for n in range(count)]


def _held_member(directory: Path, name: str, texts: Mapping[str, str]) -> _Member:
    """Where a server of the data dir listens. Raises `BarnabasError` that names the file."""
    path = str(directory / coordination_config(name))
    files = OsFiles()
    # The id that `CoordinationPlan.write` gives a member without a file myid.
    number = name.removeprefix(COORDINATION_NAME)
    try:
        settings = parse_settings(with_dynamic_file(texts, files.read))
        config = read_peer_config(settings, files, int(number) if number else None)
        mine = own_server(settings, config) if config.ensemble is not None else None
    except ConfigError as error:
        raise BarnabasError(f"{path}: {error}") from None
    if config.client is None:
        raise BarnabasError(f"{path} names no clientPort, at which brokers and barnabas up could find the server")
    if mine is None:
        return _Member(config.my_id, config.client)
    return _Member(config.my_id, config.client, mine.quorum_address, mine.election_address)


def _plan(
    directory: Path,
    names: list[str],
    texts: Mapping[str, Mapping[str, str]],
    members: list[_Member],
    former: list[_Member],
    *,
    is_changed: bool,
) -> CoordinationPlan:
    lines = {
        f"server.{member.my_id}": f"{member.quorum}:{member.election.port}"
        for member in members
        if member.quorum is not None and member.election is not None
    }
    files = {}
    for name, member in zip(names, members, strict=True):
        settings = dict(texts[name]) or _new_settings(directory / name, is_member=bool(lines))
        if is_changed:
            settings |= {"clientPort": str(member.client.port), "clientPortAddress": member.client.host, **lines}
        files[name] = ServerFile(directory / coordination_config(name), settings)
    listens = tuple(address for member in members for address in member.listens())
    return CoordinationPlan(files, _address(members), _address(former), listens)


def _new_settings(data: Path, *, is_member: bool) -> dict[str, str]:
    limits = {"initLimit": "5", "syncLimit": "2"} if is_member else {}
    return {
        "tickTime": "2000",
        "dataDir": str(data),
        "maxClientCnxns": _MAX_CLIENT_CONNECTIONS,
        "4lw.commands.whitelist": "*",
        **limits,
    }


def _address(members: list[_Member]) -> str:
    return ",".join(str(member.client.reachable()) for member in members)
