"""What the settings and the file myid make of this server: alone or a member, its id, and
where its clients connect.

There is one reading for both, in the order of ZooKeeper's
`QuorumPeerConfig.setupQuorumPeerConfig`: a server alone takes its client port from its
``server.N`` line, too, if a file myid says which line is its own. ZooKeeper's container image
writes such files. `tests/support/zoo_cfg_table.py` compares with Apache's server.
"""

import posixpath
from dataclasses import dataclass

from barnabas.base.errors import ConfigError
from barnabas.base.files import Files
from barnabas.base.settings import Values
from barnabas.coordination.core.sessions import MAX_SERVER_ID
from barnabas.coordination.quorum.configuration import QuorumConfiguration
from barnabas.coordination.quorum.members import ANY_ADDRESS, ANY_ADDRESSES, HostAndPort, QuorumServer
from barnabas.coordination.server.settings import LEAST_SNAPSHOTS, is_distributed, quorum_of

__all__ = [
    "PeerConfig",
    "client_endpoint",
    "configuration_warnings",
    "own_server",
    "parse_my_id",
    "read_peer_config",
]


@dataclass(frozen=True, slots=True)
class PeerConfig:
    """See the module. In ZooKeeper: QuorumPeerConfig."""

    my_id: int | None
    """The number in the file myid; None without the file, which only a member needs."""
    ensemble: QuorumConfiguration | None
    """None for a server alone."""
    client: HostAndPort | None
    """Where clients connect without TLS; None if they need TLS."""


def read_peer_config(settings: Values, files: Files, new_id: int | None = None) -> PeerConfig:
    """Read the file myid beside the settings. Raises `ConfigError` for what cannot be used.

    ``new_id`` is the number that a missing file myid will have before the server is started.
    """
    quorum = quorum_of(settings)
    is_member = is_distributed(settings, quorum)
    path = posixpath.join(settings["dataDir"], "myid")
    my_id = new_id
    try:
        my_id = parse_my_id(files.read(path).decode("utf-8", "replace"), is_member=is_member)
    except (FileNotFoundError, NotADirectoryError):
        if is_member and new_id is None:
            raise ConfigError(
                f"{path} is missing: write this server's number, as in its server.N line, to it"
            ) from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}") from None
    client = client_endpoint(settings, quorum, my_id)
    if client is None and settings["secureClientPort"] is None:
        raise ConfigError(_without_port(path, my_id, quorum))
    return PeerConfig(my_id, quorum if is_member else None, client)


def own_server(settings: Values, config: PeerConfig) -> QuorumServer:
    """The line of this member. Raises `ConfigError` if its id has none."""
    assert config.ensemble is not None, "the server is alone"
    assert config.my_id is not None
    mine = config.ensemble.servers.get(config.my_id)
    if mine is None:
        path = posixpath.join(settings["dataDir"], "myid")
        raise ConfigError(f"{path} has the id {config.my_id}, and there is no line server.{config.my_id}")
    return mine


def _without_port(path: str, my_id: int | None, quorum: QuorumConfiguration | None) -> str:
    if my_id is None:
        return (
            f"clientPort is not set, and {path} is missing, so no server.N line is known to be this server's: set "
            "clientPort, or write the number of the line to that file"
        )
    if quorum is not None and my_id not in quorum.servers:
        return f"clientPort is not set, and {path} has the id {my_id}, for which there is no line server.{my_id}"
    return f"neither clientPort nor the line server.{my_id} names a port for clients"


def parse_my_id(text: str, *, is_member: bool = True) -> int:
    """The id in a file ``myid``: a number alone in its first line. Raises `ConfigError`.

    The id of a member is the highest byte of its session ids; a server alone only finds its
    ``server.N`` line by it.
    """
    first = (text.splitlines() or [""])[0].strip()
    is_number = first.isascii() and first.isdigit() and len(first) <= 18
    if not is_number or (is_member and int(first) > MAX_SERVER_ID):
        limits = f", 0 to {MAX_SERVER_ID}," if is_member else ""
        raise ConfigError(f"the file myid has {first[:20]!r}: it must have the server's number{limits} alone")
    return int(first)


def client_endpoint(values: Values, quorum: QuorumConfiguration | None, my_id: int | None) -> HostAndPort | None:
    """Where this server listens for clients.

    None if neither clientPort nor its ``server.N`` line names a port."""
    host, port = values["clientPortAddress"], values["clientPort"]
    given = None if port is None else HostAndPort(host or ANY_ADDRESS, port)
    mine = quorum.servers.get(my_id) if quorum is not None and my_id is not None else None
    line = mine.client if mine is not None else None
    if line is None or given is None:
        return line or given
    if line != given and (given.host not in ANY_ADDRESSES or given.port != line.port):
        raise ConfigError(
            f"the line server.{my_id} names {line} for clients, and clientPort with clientPortAddress {given}: remove one"
        )
    return line


def configuration_warnings(values: Values, config: PeerConfig) -> list[str]:
    """What works and is seldom meant, as ZooKeeper's server warns of it."""
    lines = []
    if config.ensemble is not None:
        voters = len(config.ensemble.voters)
        if voters <= 2:
            lines.append(f"No server failure will be tolerated with {voters} voters. You need at least 3 servers.")
        elif voters % 2 == 0:
            lines.append(f"Non-optimal configuration with {voters} voters, consider an odd number of servers.")
        role = "observer" if config.my_id in config.ensemble.observers else "participant"
        if values.is_set("peerType") and values["peerType"].lower() != role:
            lines.append(
                f"peerType is {values['peerType']}, and the line server.{config.my_id} says {role}, which decides"
            )
    if values["autopurge.snapRetainCount"] < LEAST_SNAPSHOTS:
        lines.append(
            f"autopurge.snapRetainCount={values['autopurge.snapRetainCount']} is below {LEAST_SNAPSHOTS}: purging leaves "
            f"{LEAST_SNAPSHOTS} snapshots"
        )
    for name in ("dataDir", "dataLogDir"):
        path = values[name]
        if path and not path.startswith(("/", "./")):
            lines.append(
                f"{name}={path} is relative to the directory in which the server is started. Begin it with ./ "
                "if that is meant"
            )
    return lines
