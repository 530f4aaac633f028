"""What the HTTP side of a registry is given: addresses, who may use it, and limits.

In Confluent's registry: `SchemaRegistryConfig` and `RestConfig`.
"""

from dataclasses import dataclass

__all__ = ["HttpSettings"]


@dataclass(frozen=True, slots=True)
class HttpSettings:
    """Named as Confluent's properties."""

    request_timeout_ms: int = 60_000
    """How long a request may take, from its first line to the answer."""
    max_body_bytes: int = 4 * 1024 * 1024
    """The largest body of a request (``size.limit.filter.max.request.body.size``)."""
    leader_connect_timeout_ms: int = 10_000
    leader_read_timeout_ms: int = 60_000
    group_id: str = "schema-registry"
    """What the registry is called in ``/v1/metadata/id``."""
    is_read_only: bool = False
    """Whether this instance refuses all that writes."""
    read_only_users: frozenset[str] = frozenset()
    """Users who may only read."""
    connection_limit: int = 5000
    """The most connections at once (``server.connection.limit``); 0: no limit."""
    idle_timeout_ms: int = 30_000
    """How long a connection lives without the whole head of a request."""
