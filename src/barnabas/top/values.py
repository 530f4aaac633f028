"""What one reading of a cluster found. What is not known is None, and `Snapshot.gaps` says why.

In Kafka: the answers of `Admin`'s describe calls.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from barnabas.client.network.server_status import ServerStatus
from barnabas.lag.values import GroupLag
from barnabas.net.prometheus_text import Histogram, MetricsPage

__all__ = [
    "BrokerFigures",
    "BrokerSeen",
    "BrokerState",
    "FlowSeen",
    "MirrorSeen",
    "PartitionSeen",
    "Snapshot",
    "TopicSeen",
    "figures_of_page",
]

_TOPICS = "kafka_server_brokertopicmetrics_"
_REQUESTS = "kafka_network_requestmetrics_totaltimems"
_CONNECTIONS = "kafka_server_socket_server_metrics_connection_count"
_GLOBAL_TOPICS = "kafka_controller_kafkacontroller_globaltopiccount"


class BrokerState(StrEnum):
    """How a broker stands."""

    UP = "up"
    NO_ANSWER = "no answer"
    """It is registered, and did not answer in time."""
    AWAY = "away"
    """It has replicas, or was there before, and is not registered."""


@dataclass(frozen=True, slots=True)
class BrokerFigures:
    """What a broker's metrics page says: sums since its start, and gauges."""

    bytes_in: float | None = None
    bytes_out: float | None = None
    cpu_s: float | None = None
    memory_bytes: float | None = None
    connections: float | None = None
    topics_of_cluster: float | None = None
    """On the controller; 0 elsewhere."""
    requests: Mapping[str, Histogram] = field(default_factory=dict)
    """Times of requests in ms, by Kafka's names of the APIs."""


def figures_of_page(page: MetricsPage) -> BrokerFigures:
    """The figures under the names that the JMX exporter gives to Kafka's MBeans."""
    connections = [sample.value for sample in page.samples.get(_CONNECTIONS, ())]
    return BrokerFigures(
        bytes_in=page.value(f"{_TOPICS}bytesin_total"),
        bytes_out=page.value(f"{_TOPICS}bytesout_total"),
        cpu_s=page.value("process_cpu_seconds_total"),
        memory_bytes=page.value("process_resident_memory_bytes"),
        connections=sum(connections) if connections else None,
        topics_of_cluster=page.value(_GLOBAL_TOPICS),
        requests=page.histograms(_REQUESTS, "request"),
    )


@dataclass(frozen=True, slots=True)
class BrokerSeen:
    """A broker of the cluster."""

    id: int
    address: str | None
    rack: str | None
    is_controller: bool
    state: BrokerState
    figures: BrokerFigures | None = None
    """None where it shows no metrics, or where its page is not known."""


@dataclass(frozen=True, slots=True)
class PartitionSeen:
    """A partition, with its first offset and the one after its last record."""

    partition: int
    leader: int | None
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    first: int | None
    end: int | None

    @property
    def is_under_replicated(self) -> bool:
        return len(self.isr) < len(self.replicas)


@dataclass(frozen=True, slots=True)
class TopicSeen:
    """A topic with its partitions, by number."""

    name: str
    is_internal: bool
    partitions: Sequence[PartitionSeen]

    @property
    def records(self) -> int | None:
        """Offsets between the first and the end; None unless all of them are known."""
        total = 0
        for part in self.partitions:
            if part.first is None or part.end is None:
                return None
            total += part.end - part.first
        return total

    @property
    def leaderless(self) -> int:
        return sum(part.leader is None for part in self.partitions)

    @property
    def under_replicated(self) -> int:
        return sum(part.is_under_replicated for part in self.partitions)


@dataclass(frozen=True, slots=True)
class FlowSeen:
    """A declared pipeline, by its file or by its dashboard's metrics."""

    name: str
    state: str
    rows: float | None = None
    """That its run has read."""
    bad_rows: float | None = None
    lag: float | None = None
    """Records that it has not read yet."""
    catch_up_s: float | None = None
    place: str = ""
    """The file or the address that says so."""


@dataclass(frozen=True, slots=True)
class MirrorSeen:
    """A mirror between two named clusters (KIP-382), by what it keeps in this one, its target."""

    source: str
    target: str
    heartbeat_ms: int | None
    """When it wrote its last heartbeat, in ms since the epoch."""
    topics: int
    """Topics of the source that are copied here."""
    records: int | None
    """Records in them."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All that one reading found."""

    at_ms: int
    """When it began, in ms since the epoch."""
    took_ms: int = 0
    cluster_id: str | None = None
    brokers: Sequence[BrokerSeen] = ()
    topics: Sequence[TopicSeen] = ()
    groups: Sequence[GroupLag] = ()
    coordination: Sequence[ServerStatus] = ()
    flows: Sequence[FlowSeen] = ()
    mirrors: Sequence[MirrorSeen] = ()
    gaps: Sequence[str] = ()
    """What could not be read, and why: a line each."""
    notes: Mapping[str, str] = field(default_factory=dict)
    """By the names of views: what they cannot show, and what would let them."""
