"""Members of a consumer group in a simulated cluster; `group_facts` says what must hold of them."""

import asyncio
from collections.abc import Sequence
from typing import Any

from barnabas.client.errors import ClientError, CommitError, TimedOutError
from barnabas.testing.virtual.consumer import VirtualConsumer
from simulation.scenarios.clients import ClusterClient
from simulation.scenarios.group_facts import GroupFacts

__all__ = ["SimulatedMember"]

_MEMBER = {
    "key.deserializer": "bytes",
    "value.deserializer": "bytes",
    "session.timeout.ms": "6000",
    "max.poll.interval.ms": "8000",
    "heartbeat.interval.ms": "300",
    "enable.auto.commit": "false",
    "auto.offset.reset": "earliest",
    "partition.assignment.strategy": "roundrobin",
    "fetch.message.max.bytes": "4096",
}
_MOST_RECORDS = 10_000
_PAUSE_S = 0.3


class SimulatedMember:
    """A consumer: joins, reads the partitions that it is given, commits; again and again.

    With ``mean_stay_s`` it leaves now and then, and comes again as another member."""

    def __init__(
        self, client: ClusterClient, group: str, topics: Sequence[str], facts: GroupFacts, *, mean_stay_s: float | None
    ) -> None:
        self._client = client
        self._group = group
        self._topics = list(topics)
        self._mean_stay_s = mean_stay_s
        self.is_stopping = False
        client.observer.watch_group(facts)
        self.task = client.spawn(self._run())

    async def _run(self) -> None:
        consumer: VirtualConsumer[Any, Any] = VirtualConsumer(self._client.link, {**_MEMBER, "group.id": self._group})
        consumer.subscribe(self._topics)
        try:
            while not self.is_stopping:
                await consumer.consume(_MOST_RECORDS)
                await self._commit(consumer)
                if self._mean_stay_s is not None and self._client.rng.random() < _PAUSE_S / self._mean_stay_s:
                    consumer.subscribe(self._topics)  # which leaves first
                await asyncio.sleep(_PAUSE_S)
            await consumer.close()
        except ClientError as error:
            self._client.history.violation(f"group {self._group}: {error}", error)

    async def _commit(self, consumer: VirtualConsumer[Any, Any]) -> None:
        """Commit all positions; another member may own the partitions by now."""
        positions = consumer.position(consumer.assignment())
        offsets = {topic_partition: at for topic_partition, at in positions.items() if at is not None}
        try:
            await consumer.commit(offsets)
        except (CommitError, TimedOutError):
            self._client.history.count("commits that failed")
