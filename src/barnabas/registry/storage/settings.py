"""What the storage of a registry is given: the topic, the cluster, the group, and time limits.

In Confluent's registry: `SchemaRegistryConfig`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from barnabas.registry.storage.membership import GroupTimeouts

__all__ = ["StoreSettings"]


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """Named as the properties ``kafkastore.*``, with Confluent's defaults but for the timeout of
    writes, which has room for a transaction."""

    bootstrap_servers: str
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Of all clients: protection and credentials."""
    topic: str = "_schemas"
    replication_factor: int = 3
    timeout_ms: int = 10_000
    """How long a write may take, until it is read back."""
    init_timeout_ms: int = 60_000
    """How long the start may take to read the topic."""
    group_id: str = "schema-registry"
    is_eligible: bool = True
    """Whether this instance may lead."""
    group_timeouts: GroupTimeouts = field(default_factory=GroupTimeouts)

    @property
    def transactional_id(self) -> str:
        """The writers' common name, by which one fences those before it."""
        return f"{self.group_id}-{self.topic}-writer"
