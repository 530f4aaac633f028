"""Leader elections on demand over an `AdminConnection` (KIP-460).

In Kafka: `Admin.electLeaders`.
"""

from collections.abc import Iterable
from enum import IntEnum

from barnabas.base.ids import TopicPartition
from barnabas.client.cluster.admin_connection import AdminConnection
from barnabas.client.errors import RefusedError, refusal
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions

__all__ = ["ElectionType", "elect_leaders"]

_TYPES_FROM = 1  # the first version with the election's type; before it all are preferred elections


class ElectionType(IntEnum):
    """Which replica is to lead; the protocol's numbers."""

    PREFERRED = 0
    """The first of the replicas, if it is in sync."""
    UNCLEAN = 1
    """Any live replica, where no one in sync is left: acknowledged records may be lost."""


def elect_leaders(
    connection: AdminConnection, election: ElectionType, partitions: Iterable[TopicPartition] | None = None
) -> dict[TopicPartition, RefusedError | None]:
    """Elect leaders of these partitions, or with None of all that need it.

    Each one's error, None for a new leader. A partition that already has the leader it should is an
    ELECTION_NOT_NEEDED; with ``partitions`` of None it is left out. Raises `KafkaError` for what
    concerns the request as a whole.
    """
    if election is not ElectionType.PREFERRED and connection.negotiated(ElectLeadersRequest) < _TYPES_FROM:
        raise refusal(ErrorCode.UNSUPPORTED_VERSION, "the brokers are too old for unclean elections on demand")
    topics: dict[str, TopicPartitions] | None = None if partitions is None else {}
    for name, partition in partitions or ():
        assert topics is not None
        topics.setdefault(name, TopicPartitions(topic=name)).partitions.append(partition)
    request = ElectLeadersRequest(
        election_type=election,
        topic_partitions=None if topics is None else list(topics.values()),
        timeout_ms=connection.request_timeout_ms,
    )

    def codes(response: ElectLeadersResponse) -> list[int]:
        """Retry only if the controller moved: a partition's own error is an answer."""
        results = [item.error_code for topic in response.replica_election_results for item in topic.partition_result]
        moved = results and all(code == ErrorCode.NOT_CONTROLLER for code in results)
        return [ErrorCode.NOT_CONTROLLER if moved else response.error_code]

    response = connection.send_to_controller(request, ElectLeadersResponse, codes)
    if response.error_code:
        raise refusal(response.error_code)
    return {
        TopicPartition(topic.topic, item.partition_id): (
            refusal(item.error_code, item.error_message) if item.error_code else None
        )
        for topic in response.replica_election_results
        for item in topic.partition_result
    }
