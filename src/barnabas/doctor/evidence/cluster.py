"""The cluster's members and topics, as brokers know them.

In Kafka: `DescribeClusterResult`, `DescribeTopicsResult`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from barnabas.base.ids import TopicPartition
from barnabas.client.admin.topics import PartitionDescription, TopicDescription
from barnabas.doctor.evidence.part import EvidencePart

__all__ = ["BrokerView", "BrokersPart", "MomentPart", "TopicsPart"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MomentPart(EvidencePart):
    """When the cluster was read, by the reader's clock."""

    now_ms: int


@dataclass(frozen=True, slots=True)
class BrokerView:
    """A registered broker, and what it answered itself.

    ``error`` is why it did not answer; the fields after it are empty then."""

    broker_id: int
    host: str
    port: int
    rack: str | None
    error: str | None = None
    controller_id: int = -1
    """The controller that this broker names."""
    knows: frozenset[int] = frozenset()
    """The brokers that are in its metadata."""
    api_versions: tuple[tuple[int, int, int], ...] = ()
    """(API key, first, last version) of each API that it offers."""

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, kw_only=True)
class BrokersPart(EvidencePart):
    """The registered brokers by id.

    ``is_kraft``: the cluster has finalized ``metadata.version``, so it runs without ZooKeeper
    (KIP-584, KIP-778). ``features`` are the finalized levels by name."""

    cluster_id: str | None
    controller_id: int
    views: Mapping[int, BrokerView]
    is_kraft: bool
    features: Mapping[str, int]

    @property
    def alive(self) -> list[BrokerView]:
        """Those that answered."""
        return [view for view in self.views.values() if view.error is None]

    @property
    def racks(self) -> Mapping[int, str | None]:
        """The rack of each broker that answered."""
        return {view.broker_id: view.rack for view in self.alive}


@dataclass(frozen=True, kw_only=True)
class TopicsPart(EvidencePart):
    """All topics that the reader may see, by name."""

    topics: tuple[TopicDescription, ...]

    def partitions(self) -> Iterator[tuple[TopicPartition, PartitionDescription]]:
        """Every partition, with its topic."""
        for topic in self.topics:
            for each in topic.partitions:
                yield TopicPartition(topic.name, each.partition), each

    @cached_property
    def by_name(self) -> Mapping[str, TopicDescription]:
        """The topics by their names."""
        return {topic.name: topic for topic in self.topics}
