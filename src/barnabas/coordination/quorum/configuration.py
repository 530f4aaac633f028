"""The configuration of an ensemble: its members, its quorums, and the version that members compare.

It is read from the ``server.N``, ``group.N`` and ``weight.N`` lines of zoo.cfg or of the dynamic
file beside it, from the votes of other members, and from the znode ``/zookeeper/config``.
`QuorumConfiguration.text` is the text that Apache ZooKeeper writes to all these places. The version
is the zxid of the reconfiguration that made it, and 0 at first; of two configurations the one with
the greater version is the newer.

In ZooKeeper: the dynamic part of `QuorumPeerConfig`, and `QuorumVerifier` with its text.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from barnabas.base.errors import ConfigError
from barnabas.coordination.quorum.members import QuorumServer
from barnabas.coordination.quorum.verifiers import HierarchicalQuorum, MajorityQuorum, QuorumVerifier

__all__ = ["QuorumConfiguration", "is_dynamic", "parse_dynamic_text"]

_MAX_SERVERS = 256
_DYNAMIC = (
    "server.",
    "group",
    "weight",
)  # as Apache's server begins to compare: "group" without a number is wrong there


def is_dynamic(name: str) -> bool:
    """Whether a property belongs to the configuration of the ensemble, not of one server."""
    return name.startswith(_DYNAMIC)


@dataclass(frozen=True, slots=True)
class QuorumConfiguration:
    """The members of an ensemble by id, and its quorums."""

    servers: Mapping[int, QuorumServer]
    verifier: QuorumVerifier
    version: int = 0

    @classmethod
    def parse(cls, texts: Mapping[str, str]) -> "QuorumConfiguration":
        """Read the lines of an ensemble.

        Raises `ConfigError` for what cannot be used, and for lines of another kind."""
        servers: dict[int, QuorumServer] = {}
        groups: dict[int, frozenset[int]] = {}
        weights: dict[int, int] = {}
        version = 0
        for name, text in texts.items():
            kind, _, key = name.partition(".")
            match kind:
                case "server":
                    server_id = _number(name, key, 0)
                    servers[server_id] = QuorumServer.parse(server_id, text)
                case "group":
                    members = [_number(name, part, 0) for part in text.split(":")]
                    groups[_number(name, key, 0)] = frozenset(members)
                case "weight":
                    weights[_number(name, key, 0)] = _number(name, text, 0)
                case "version" if not key:
                    version = _version(text)
                case _:
                    raise ConfigError(f"{name} is not a parameter of an ensemble's configuration")
        if not 0 < len(servers) <= _MAX_SERVERS:
            raise ConfigError(
                f"an ensemble has 1 to {_MAX_SERVERS} servers, and the configuration names {len(servers)}"
            )
        servers = dict(sorted(servers.items()))
        voters = frozenset(server.id for server in servers.values() if server.is_participant)
        verifier = _hierarchical(voters, groups, weights) if groups or weights else MajorityQuorum(voters)
        return cls(servers, verifier, version)

    @property
    def voters(self) -> frozenset[int]:
        return self.verifier.voters

    @property
    def observers(self) -> frozenset[int]:
        return frozenset(server.id for server in self.servers.values() if not server.is_participant)

    def with_version(self, version: int) -> "QuorumConfiguration":
        """The same members, as a configuration of another version."""
        return replace(self, version=version)

    def text(self) -> str:
        """All lines, as Apache ZooKeeper writes them: without a line feed after the
        last, the version."""
        return "\n".join([*self._lines(), f"version={self.version:x}"])

    def file_text(self) -> str:
        """The content of a dynamic file, as Apache ZooKeeper writes it.

        The version stands in the file's name."""
        return "\n".join(sorted(self._lines()))

    def next_file_text(self) -> str:
        """The content of the file for a configuration that is proposed and not in
        force: with the version."""
        return "\n".join(sorted(self.text().split("\n")))

    def has_members_of(self, other: "QuorumConfiguration") -> bool:
        """Whether the other configuration is the same, but for its version."""
        return self.with_version(other.version) == other

    def _lines(self) -> list[str]:
        lines = [f"server.{server.id}={server.text()}" for server in self.servers.values()]
        if isinstance(self.verifier, HierarchicalQuorum):
            for group, members in sorted(self.verifier.groups.items()):
                lines.append(f"group.{group}={':'.join(map(str, sorted(members)))}")
            lines += [f"weight.{server_id}={weight}" for server_id, weight in sorted(self.verifier.weights.items())]
        return lines


def parse_dynamic_text(text: str) -> QuorumConfiguration:
    """Read a configuration from its text: of a vote, of ``/zookeeper/config``, or of
    a dynamic file."""
    texts: dict[str, str] = {}
    for line in text.splitlines():
        stripped = line.strip()
        if stripped and not stripped.startswith(("#", "!")):
            name, separator, value = stripped.partition("=")
            if not separator:
                raise ConfigError(f"{stripped[:80]!r} in the configuration of the ensemble is not name=value")
            texts[name.strip()] = value.strip()
    return QuorumConfiguration.parse(texts)


def _hierarchical(
    voters: frozenset[int], groups: Mapping[int, frozenset[int]], weights: Mapping[int, int]
) -> HierarchicalQuorum:
    grouped: set[int] = set()
    for group, members in groups.items():
        if members & grouped:
            raise ConfigError(
                f"server {min(members & grouped)} is in more than one group (group.{group} is the second)"
            )
        grouped |= members
    if voters - grouped:
        raise ConfigError(
            f"server {min(voters - grouped)} is not in a group; with group or weight lines, each voter is"
        )
    for server_id in sorted(grouped | weights.keys()):
        if server_id not in voters:
            raise ConfigError(f"server {server_id} has a group or a weight, and is not a participant")
    return HierarchicalQuorum(dict(sorted(groups.items())), {voter: weights.get(voter, 1) for voter in sorted(voters)})


def _number(name: str, text: str, least: int) -> int:
    text = text.strip()
    if not (text.isascii() and text.isdigit() and len(text) <= 18 and int(text) >= least):
        raise ConfigError(f"{name}: {text} is not a number")
    return int(text)


def _version(text: str) -> int:
    try:
        version = int(text.strip(), 16)
    except ValueError:
        version = -1
    if not 0 <= version < 1 << 63 or "_" in text:
        raise ConfigError(f"version: {text.strip()} is not a hexadecimal number of 64 bits")
    return version
