"""One member of an ensemble, as a ``server.N`` line describes it: ZooKeeper's
`QuorumPeer.QuorumServer`.

    server.N = host:quorum port:election port[:role][;[client host:]client port]

A follower connects to its leader's quorum port, any two members exchange votes through the election
port of one of them, and clients use the client port. A line without one leaves the client port to
``clientPort`` of zoo.cfg. The text of a member is the line that Apache ZooKeeper writes for it;
members compare these texts byte for byte.
"""

from dataclasses import dataclass
from enum import Enum

from barnabas.base.errors import ConfigError

__all__ = ["ANY_ADDRESS", "ANY_ADDRESSES", "LOCAL_HOST", "HostAndPort", "LearnerType", "QuorumServer"]

ANY_ADDRESS = "0.0.0.0"  # noqa: S104  # where ZooKeeper's servers listen when a line names no client address
ANY_ADDRESSES = ("", ANY_ADDRESS, "::", "0:0:0:0:0:0:0:0")
"""All that mean every address of the machine."""
LOCAL_HOST = "127.0.0.1"
_FORM = "host:port:port, then optionally :participant or :observer, then optionally ;port or ;host:port"


class LearnerType(Enum):
    """What a member may do: vote and acknowledge, or only follow."""

    PARTICIPANT = "participant"
    OBSERVER = "observer"


@dataclass(frozen=True, slots=True)
class HostAndPort:
    """A host and a port."""

    host: str
    port: int

    def reachable(self) -> "HostAndPort":
        """Where a client on the same machine connects to what listens here."""
        return HostAndPort(LOCAL_HOST, self.port) if self.host in ANY_ADDRESSES else self

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class QuorumServer:
    """A member of an ensemble."""

    id: int
    host: str
    quorum_port: int
    election_port: int
    role: LearnerType = LearnerType.PARTICIPANT
    client: HostAndPort | None = None
    """where its clients connect, if its line says so"""

    @property
    def quorum_address(self) -> HostAndPort:
        return HostAndPort(self.host, self.quorum_port)

    @property
    def election_address(self) -> HostAndPort:
        return HostAndPort(self.host, self.election_port)

    @property
    def is_participant(self) -> bool:
        return self.role is LearnerType.PARTICIPANT

    def text(self) -> str:
        """The value of the member's line, as Apache ZooKeeper writes it."""
        client = "" if self.client is None else f";{self.client}"
        return f"{self.quorum_address}:{self.election_port}:{self.role.value}{client}"

    @classmethod
    def parse(cls, server_id: int, text: str) -> "QuorumServer":
        """Read the value of a ``server.N`` line. Raises `ConfigError` that names the line."""
        line = f"server.{server_id}={text}"
        if "|" in text:
            raise ConfigError(f"{line} names several addresses. Give each server one: multiAddress is not supported")
        server_text, _, client_text = text.strip().partition(";")
        parts = _split(server_text)
        if not 3 <= len(parts) <= 4 or not all(parts):
            raise ConfigError(f"{line} does not have the form {_FORM}")
        role_text = parts[3].lower() if len(parts) == 4 else LearnerType.PARTICIPANT.value
        if role_text not in ("participant", "observer"):
            raise ConfigError(f"{line}: unrecognised peer type {parts[3]}; it must be participant or observer")
        quorum_port, election_port = _port(line, parts[1]), _port(line, parts[2])
        if quorum_port == election_port:
            raise ConfigError(f"{line}: the quorum port and the election port must be different")
        # Nothing behind the semicolon is none.
        client = _client(line, client_text) if client_text.strip() else None
        if client is not None and client.port in (quorum_port, election_port):
            raise ConfigError(f"{line}: the client port must differ from the quorum port and the election port")
        return cls(server_id, parts[0], quorum_port, election_port, LearnerType(role_text), client)


def _client(line: str, text: str) -> HostAndPort:
    parts = _split(text)
    if len(parts) == 1:
        parts.insert(0, ANY_ADDRESS)
    if len(parts) != 2 or not all(parts):
        raise ConfigError(f"{line} does not have the form {_FORM}")
    return HostAndPort(parts[0], _port(line, parts[1]))


def _split(text: str) -> list[str]:
    """The parts between colons; an IPv6 address in front stands in brackets."""
    text = text.strip()
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        if not bracket or not rest.startswith(":"):
            return []
        return [host, *rest[1:].split(":")]
    return [part.strip() for part in text.split(":")]


def _port(line: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text) < 65536):
        raise ConfigError(f"{line}: {text} is not a port between 1 and 65535")
    return int(text)
