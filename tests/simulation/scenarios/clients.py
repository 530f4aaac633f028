"""Clients of a simulated Kafka cluster: those of `barnabas.testing.virtual`, each a process on a
machine of its own.

A `ClusterClient` finds leaders and retries for as long as the run lasts. What its requests and
their responses prove is noted by its `ClientObserver`, as far as that watches them, whatever the
client makes of them.
"""

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any

from barnabas.base.ids import TopicPartition, Uuid
from barnabas.broker.cluster.channels import ChannelError
from barnabas.client.errors import ClientError, TimedOutError
from barnabas.testing.simulation.simulation import BROKER_PORT, Machine, Simulation, broker_name
from barnabas.testing.virtual.consumer import VirtualConsumer
from barnabas.testing.virtual.link import ClusterLink
from simulation.scenarios.client_observer import ClientObserver

__all__ = ["ClusterClient", "PartitionReader"]

_REQUEST_TIMEOUT_MS = 3000
_READING = {
    "key.deserializer": "bytes",
    "value.deserializer": "bytes",
    "auto.offset.reset": "earliest",
    "isolation.level": "read_committed",
    "fetch.wait.max.ms": "300",
    "fetch.message.max.bytes": "8192",
}
_POLL_S = 0.3
_MOST_RECORDS = 10_000
_END_ASKED_EVERY = 8
_ASK_S = 5.0


class ClusterClient:
    """Requests to the brokers of the cluster from one client process."""

    def __init__(self, simulation: Simulation, name: str, brokers: Sequence[int]) -> None:
        self.simulation = simulation
        self.history = simulation.history
        self.machine: Machine = simulation.machine(name)
        self.process = self.machine.boot()
        self.rng = self.process.rng
        self.brokers = list(brokers)
        self.observer = ClientObserver(simulation)
        self.link = ClusterLink(
            self.machine.network(),
            {broker: (broker_name(broker), BROKER_PORT) for broker in brokers},
            self.rng,
            self.machine.clock.wall_ms,
            request_timeout_ms=_REQUEST_TIMEOUT_MS,
            on_request=self.observer.on_request,
        )
        self.channels = self.link.channels()

    def spawn(self, work: Any) -> "asyncio.Task[Any]":
        """Run a coroutine in the client's process."""
        task: asyncio.Task[Any] = self.process.context.run(self.simulation.loop.create_task, work)
        return task

    async def pause(self, least_s: float = 0.05) -> None:
        """Before another try."""
        await asyncio.sleep(least_s + self.rng.random() * 2 * least_s)

    @property
    def controller_id(self) -> int:
        """The controller, by the last metadata; -1 for none."""
        return self.link.controller_id

    @property
    def topic_ids(self) -> dict[str, Uuid]:
        """The ids of the topics that were asked for."""
        return self.link.topic_ids

    async def refresh(self, topics: Sequence[str] | None) -> None:
        """Ask any broker for metadata; without an answer nothing changes."""
        try:
            await self.link.refresh(topics)
        except ChannelError:
            await asyncio.sleep(0.05)

    async def leader(self, topic_partition: TopicPartition) -> int:
        """The partition's leader, waited for."""
        while (found := self.link.leader(topic_partition)) < 0 or topic_partition.topic not in self.topic_ids:
            await self.refresh([topic_partition.topic])
            if self.link.leader(topic_partition) < 0:
                await asyncio.sleep(0.1 + self.rng.random() * 0.1)
        return found

    def forget_leader(self, topic_partition: TopicPartition) -> None:
        """It was wrong, or does not answer."""
        self.link.forget_leader(topic_partition)


class PartitionReader:
    """Reads partitions from their beginning with assign, without a group, committed
    records only."""

    def __init__(self, client: ClusterClient, partitions: Sequence[TopicPartition]) -> None:
        self._client = client
        self._partitions = list(partitions)
        self._losses = dict.fromkeys(partitions, 0)
        self.is_stopping = False
        client.observer.watch_records()
        self.task = client.spawn(self._run())

    @property
    def is_done(self) -> bool:
        return self.task.done()

    @property
    def high_watermarks(self) -> dict[TopicPartition, int]:
        """The last ones seen."""
        return self._client.observer.high_watermarks

    def has_reached_end(self) -> bool:
        """Whether all is read, up to the high watermarks last seen."""
        positions = self._client.observer.positions
        return all(
            self.high_watermarks.get(topic_partition, 1 << 62) <= positions.get(topic_partition, 0)
            for topic_partition in self._partitions
        )

    async def _run(self) -> None:
        consumer: VirtualConsumer[Any, Any] = VirtualConsumer(self._client.link, _READING)
        consumer.assign(dict.fromkeys(self._partitions, 0))
        count = 0
        while not self.is_stopping:
            await consumer.consume(_MOST_RECORDS, _POLL_S)
            for topic_partition in self._partitions:
                await self._begin_again_after_a_loss(consumer, topic_partition)
            count += 1
            if count % _END_ASKED_EVERY == 0:
                for topic_partition in self._partitions:
                    with contextlib.suppress(TimedOutError):
                        await consumer.watermarks(*topic_partition, _ASK_S)
        with contextlib.suppress(ClientError):
            await consumer.close()

    async def _begin_again_after_a_loss(
        self, consumer: VirtualConsumer[Any, Any], topic_partition: TopicPartition
    ) -> None:
        """What was read, or is being read, may be what was lost."""
        losses = self._client.history.partition(topic_partition).losses
        if losses != self._losses[topic_partition]:
            self._losses[topic_partition] = losses
            self._client.observer.positions[topic_partition] = 0
            await consumer.seek(*topic_partition, 0)
