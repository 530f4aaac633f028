"""The readers of parts of the evidence, each registered by a decorator.

In Kafka: the calls of `Admin`, each of which fails alone.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar, get_type_hints

from barnabas.base.network import Network
from barnabas.client.cluster.admin_connection import AdminConnection
from barnabas.client.errors import AuthorizationError, ClientError, ConnectError, UnsupportedError
from barnabas.client.network.deadline import Deadline
from barnabas.coordination.client.session import SaslClient
from barnabas.doctor.evidence.part import Absent, Evidence, EvidencePart, Why
from barnabas.net.sockets import SocketNetwork

__all__ = ["READERS", "ClusterReading", "Sources", "UnreadError", "absent_for", "reads"]

PartType = TypeVar("PartType", bound=EvidencePart)


@dataclass(frozen=True, slots=True)
class Sources:
    """Where evidence comes from; what an option did not name is empty or None."""

    connection: AdminConnection
    zookeeper: Sequence[tuple[str, int]] = ()
    """Coordination servers, as in ``zookeeper.connect``."""
    metrics: Sequence[tuple[str, int]] = ()
    """Where servers show metrics for Prometheus."""
    admin_servers: Sequence[tuple[str, int]] = ()
    """Admin servers of coordination servers."""
    coordination_network: Callable[[], Network] = SocketNetwork
    """How sessions of the coordination service connect: in the clear, or with TLS."""
    coordination_login: Callable[[], SaslClient] | None = None
    """Who they are, for SASL."""
    over_s: float = 0.0
    """How long to wait between two readings of what grows; 0 for one reading."""


class UnreadError(Exception):
    """Raised by a reader whose part is absent."""

    def __init__(self, why: Why, reason: str) -> None:
        super().__init__(reason)
        self.absent = Absent(why, reason)


@dataclass(frozen=True, slots=True)
class PartReader:
    """A function that reads one part, and the right that it needs."""

    read: Callable[["ClusterReading"], EvidencePart]
    right: str


READERS: dict[type[EvidencePart], PartReader] = {}
"""The reader of each part."""


def reads(
    right: str = "",
) -> Callable[[Callable[["ClusterReading"], PartType]], Callable[["ClusterReading"], PartType]]:
    """Register a function as the reader of the part that it returns.

    ``right`` is what the user needs for it, as people grant it: ``Describe on the cluster``."""

    def register(read: Callable[["ClusterReading"], PartType]) -> Callable[["ClusterReading"], PartType]:
        kind = get_type_hints(read)["return"]
        assert kind not in READERS, kind
        READERS[kind] = PartReader(read, right)
        return read

    return register


class ClusterReading:
    """One reading of a cluster. Each part is read once, when it is first wanted."""

    def __init__(self, sources: Sources) -> None:
        self.sources = sources
        self._found: dict[type[EvidencePart], EvidencePart | Absent] = {}

    @property
    def connection(self) -> AdminConnection:
        """The connection, with the share of the deadline that one part may use."""
        connection = self.sources.connection
        end = connection.deadline
        return connection if end is None else connection.with_deadline(end.patience())

    def deadline(self, seconds: float) -> Deadline:
        """The end of a question outside of the connection."""
        end = self.sources.connection.deadline
        return Deadline(seconds) if end is None else end.within(seconds)

    def restart(self) -> None:
        """Begin again: the deadline starts now, and what was read before is read again."""
        self.sources.connection.restart()
        self._found.clear()

    def get(self, kind: type[PartType]) -> PartType | Absent:
        """The part, or why it is absent."""
        if kind not in self._found:
            self._found[kind] = self._read(kind)
        found = self._found[kind]
        assert isinstance(found, kind | Absent)
        return found

    def require(self, kind: type[PartType]) -> PartType:
        """The part, for the reader of another one; raises `UnreadError`."""
        found = self.get(kind)
        if isinstance(found, Absent):
            raise UnreadError(found.why, found.reason)
        return found

    def evidence(self) -> Evidence:
        """What was read so far."""
        parts = [each for each in self._found.values() if isinstance(each, EvidencePart)]
        return Evidence(parts, {kind: each for kind, each in self._found.items() if isinstance(each, Absent)})

    def _read(self, kind: type[EvidencePart]) -> EvidencePart | Absent:
        reader = READERS[kind]
        try:
            return reader.read(self)
        except UnreadError as error:
            return error.absent
        except ClientError as error:
            return absent_for(error, reader.right)


def absent_for(error: ClientError, right: str) -> Absent:
    """What a client's error means for a part that needs ``right``."""
    if isinstance(error, AuthorizationError):
        return Absent(Why.NO_RIGHT, f"the right {right} is missing" if right else str(error))
    if isinstance(error, UnsupportedError):
        return Absent(Why.UNSUPPORTED, str(error))
    if isinstance(error, ConnectError):
        return Absent(Why.UNREACHABLE, str(error))
    return Absent(Why.UNREACHABLE, f"the brokers answered with an error: {error}")
