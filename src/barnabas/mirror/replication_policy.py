"""Names of topics in the target, and how loops are prevented. Pure.

With prefixes (MirrorMaker 2's default) `orders` of cluster `a` is `a.orders` in cluster `b`. A
topic whose name says that it came from the target is not copied back. With equal names a name says
nothing, so each copied record has the header `barnabas.mirrored-from` with the clusters that it
came through, and a record that came through the target is left out.

In Kafka: `DefaultReplicationPolicy` and `IdentityReplicationPolicy`.
"""

from dataclasses import dataclass

from barnabas.base.errors import ConfigError
from barnabas.client.records import Headers

__all__ = ["HEARTBEATS", "ORIGIN_HEADER", "ReplicationPolicy", "are_heartbeats", "is_copied_from"]

HEARTBEATS = "heartbeats"
ORIGIN_HEADER = "barnabas.mirrored-from"
_SEPARATOR = "."


def are_heartbeats(topic: str) -> bool:
    """Whether a topic holds the heartbeats of a link, or a copy of them."""
    return topic.rpartition(_SEPARATOR)[2] == HEARTBEATS


def is_copied_from(topic: str, source: str) -> bool:
    """Whether a topic of a target holds records of a source, by its prefix; not a link's own."""
    is_own = topic.endswith(".internal") or are_heartbeats(topic)
    return topic.startswith(f"{source}{_SEPARATOR}") and not is_own


@dataclass(frozen=True, slots=True)
class ReplicationPolicy:
    """The names of both clusters, and whether copied topics get the source's name as a prefix."""

    source: str
    target: str
    has_prefixes: bool = True

    def __post_init__(self) -> None:
        for alias in (self.source, self.target):
            if not alias or _SEPARATOR in alias:
                raise ConfigError(f"cluster alias {alias!r}: a name without dots is expected")
        if self.source == self.target:
            raise ConfigError(f"both clusters are called {self.source!r}: give them two names")

    @property
    def checkpoints_topic(self) -> str:
        """In the target."""
        return f"{self.source}.checkpoints.internal"

    @property
    def offset_syncs_topic(self) -> str:
        """In the source."""
        return f"mm2-offset-syncs.{self.target}.internal"

    def remote(self, topic: str) -> str:
        """A topic's name in the target.

        Heartbeats always have the prefix, which shows the way that they took."""
        is_prefixed = self.has_prefixes or are_heartbeats(topic)
        return f"{self.source}{_SEPARATOR}{topic}" if is_prefixed else topic

    def may_copy(self, topic: str) -> bool:
        """Whether a topic is neither a mirror's own nor, by its name, one that came
        from the target."""
        if topic.startswith("mm2-offset-syncs.") or topic.endswith((".internal", "-internal")):
            return False
        if self.has_prefixes or are_heartbeats(topic):
            return self.target not in topic.split(_SEPARATOR)[:-1]
        return True

    def came_from_target(self, headers: Headers) -> bool:
        """Whether a record came through the target."""
        return not self.has_prefixes and self.target in _origins(headers)

    def headers(self, headers: Headers) -> Headers:
        """A copied record's headers."""
        if self.has_prefixes:
            return headers
        others = [(name, value) for name, value in headers if name != ORIGIN_HEADER]
        return [*others, (ORIGIN_HEADER, ",".join([*_origins(headers), self.source]).encode())]


def _origins(headers: Headers) -> list[str]:
    for name, value in headers:
        if name == ORIGIN_HEADER and value:
            return value.decode(errors="replace").split(",")
    return []
