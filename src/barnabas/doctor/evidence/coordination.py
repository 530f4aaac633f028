"""The coordination service: its servers, as each shows itself, and the brokers' znodes.

In ZooKeeper: the four-letter words, the admin server's commands, ``/zookeeper/config``.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from barnabas.doctor.evidence.part import Absent, EvidencePart

__all__ = [
    "EnsemblePart",
    "MemberLine",
    "Registration",
    "ServerClientsPart",
    "ServerFiguresPart",
    "ServerLook",
    "ServerSessionsPart",
    "ServerSettingsPart",
    "ServerSnapshotsPart",
    "SnapshotView",
    "ZnodeList",
    "ZnodesPart",
]


@dataclass(frozen=True, slots=True)
class MemberLine:
    """A line ``server.N`` of ``/zookeeper/config``."""

    server_id: int
    is_voter: bool
    client_address: str | None
    """``host:port`` for clients; None where the line has none."""


@dataclass(frozen=True, slots=True)
class ServerLook:
    """One server, as the word `srvr` shows it.

    ``mode`` is its own word (leader, follower, observer, standalone, read-only); None where it
    serves no client, or does not say: ``problem`` is why. ``is_serving`` is None where it answers,
    and does not allow the word."""

    address: str
    mode: str | None
    problem: str = ""
    is_serving: bool | None = True
    is_unreachable: bool = False
    """It did not answer this machine, which says nothing of what brokers reach."""
    zxid: int | None = None
    """Its last transaction."""
    outstanding: int | None = None
    """Requests without an answer yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnsemblePart(EvidencePart):
    """The servers that brokers connect to.

    ``connect`` is where they look for it (``zookeeper.connect``), without the chroot. ``members``
    is empty for a server alone, `Absent` where the znode could not be read."""

    connect: tuple[str, ...]
    servers: tuple[ServerLook, ...]
    members: tuple[MemberLine, ...] | Absent


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFiguresPart(EvidencePart):
    """The numbers of `mntr`, without ``zk_``, by the server's address."""

    figures: Mapping[str, Mapping[str, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettingsPart(EvidencePart):
    """The properties that a server was started with, by its address: the admin server's
    ``initial_configuration``."""

    settings: Mapping[str, Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class SnapshotView:
    """A server's last snapshot: the transaction before it, -1 for none, and its time in s since
    the epoch."""

    zxid: int
    timestamp_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSnapshotsPart(EvidencePart):
    """The last snapshot of each server, by its address: the admin server's ``last_snapshot``."""

    snapshots: Mapping[str, SnapshotView]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerClientsPart(EvidencePart):
    """How many connections each client's address has at a server, by the server's address (the
    word `cons`), and the server's ``maxClientCnxns``, 0 for no limit (`conf`)."""

    connections: Mapping[str, Mapping[str, int]]
    limits: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSessionsPart(EvidencePart):
    """The ids of all sessions, as the leader or the server alone knows them: the word `dump`."""

    sessions: frozenset[int]


@dataclass(frozen=True, slots=True)
class ZnodeList:
    """A znode's children: their number, and the bytes of the answer that lists them."""

    count: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Registration:
    """A broker's znode.

    ``timestamp_ms`` is the broker's clock when it registered, ``created_ms`` that of the leader of
    the ensemble a moment later; ``session_id`` is 0 where the znode is not ephemeral."""

    broker_id: int
    timestamp_ms: int | None
    created_ms: int
    session_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ZnodesPart(EvidencePart):
    """What a session sees of the brokers' znodes.

    ``data_bytes`` are the sizes of the largest topics' znodes by path. ``writable`` are the paths
    that everyone may change: permission other than read for ``world:anyone``."""

    lists: Mapping[str, ZnodeList]
    data_bytes: Mapping[str, int]
    registrations: tuple[Registration, ...]
    writable: tuple[str, ...]
