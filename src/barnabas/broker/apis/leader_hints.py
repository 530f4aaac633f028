"""Which broker leads a partition now: for responses to a client that asked the wrong
broker (KIP-951).

In Kafka: `KafkaApis.getCurrentLeader`.
"""

from barnabas.base.ids import NO_BROKER, TopicPartition
from barnabas.broker.metadata.cache import MetadataCache
from barnabas.broker.replication.replica_manager import ReplicaManager

__all__ = ["LeaderHints"]


class LeaderHints:
    """Collects leaders, and the endpoints of the brokers that lead, for one response."""

    def __init__(self, replicas: ReplicaManager, metadata: MetadataCache, listener: str) -> None:
        self._replicas = replicas
        self._metadata = metadata
        self._listener = listener
        self._leaders: dict[int, None] = {}

    def leader(self, topic_partition: TopicPartition) -> tuple[int, int] | None:
        """(leader id, leader epoch) as this broker knows it; None when it knows nothing."""
        partition = self._replicas.get(topic_partition)
        if partition is not None and partition.leader_id != NO_BROKER:
            found = (partition.leader_id, partition.leader_epoch)
        else:
            state = self._metadata.partition(topic_partition)
            if state is None:
                return None
            found = (state.leader, state.leader_epoch)
        self._leaders[found[0]] = None
        return found

    def endpoints(self) -> list[tuple[int, str, int, str | None]]:
        """(broker id, host, port, rack) of the leaders that are alive and reachable
        on the client's listener."""
        found = []
        for broker in self._metadata.alive_brokers():
            if broker.broker_id in self._leaders:
                endpoint = broker.endpoint(self._listener)
                if endpoint is not None:
                    found.append((broker.broker_id, endpoint.host, endpoint.port, broker.rack))
        return found
