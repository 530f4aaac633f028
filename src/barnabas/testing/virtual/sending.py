"""The requests of producers in virtual time.

Counterpart: ``Sender`` of Kafka's producer.
"""

from collections.abc import Mapping

from barnabas.base.ids import TopicPartition, Uuid
from barnabas.testing.virtual.link import ClusterLink
from barnabas.wire.kafka.messages.init_producer_id import InitProducerIdRequest
from barnabas.wire.kafka.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

__all__ = ["init_producer_id", "produce_request"]

_UNUSED_TIMEOUT_MS = 60_000


def produce_request(
    batches: Mapping[TopicPartition, bytes],
    topic_ids: Mapping[str, Uuid],
    *,
    acks: int,
    timeout_ms: int,
    transactional_id: str | None = None,
) -> ProduceRequest:
    """The request for one batch of each partition."""
    topics: dict[str, TopicProduceData] = {}
    for topic_partition, batch in batches.items():
        name = topic_partition.topic
        if name not in topics:
            topics[name] = TopicProduceData(name=name, topic_id=topic_ids[name], partition_data=[])
        data = PartitionProduceData(index=topic_partition.partition, records=batch)
        topics[name].partition_data.append(data)
    return ProduceRequest(
        transactional_id=transactional_id, acks=acks, timeout_ms=timeout_ms, topic_data=list(topics.values())
    )


async def init_producer_id(link: ClusterLink, timeout_s: float) -> tuple[int, int]:
    """An unused producer id, and its epoch. Raises `RefusedError`, `TimedOutError`."""

    async def attempt() -> tuple[int, int] | None:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=_UNUSED_TIMEOUT_MS)
        response = await link.ask_any(request)
        if not response.error_code:
            return response.producer_id, response.producer_epoch
        return link.check(response.error_code, "InitProducerId was refused")

    return await link.retry(attempt, timeout_s, "no broker gave a producer id")
