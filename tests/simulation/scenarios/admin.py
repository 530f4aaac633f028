"""What an administrator does meanwhile: topics made, grown and deleted, preferred leaders
elected, replicas moved.

Topics whose creation is waited for carry the load. No client uses the `churn` topics: whatever
happens to them must leave the cluster in order, so an action that fails is not tried again, and its
outcome is not looked at.
"""

import asyncio
import contextlib

from barnabas.base.randomness import Random
from barnabas.broker.cluster.channels import ChannelError
from barnabas.testing.simulation.cluster_view import ClusterView
from barnabas.testing.simulation.feature_updates import feature_update, finalized_level
from barnabas.testing.simulation.topic_creation import topic_creation
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from barnabas.wire.kafka.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from barnabas.wire.kafka.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.wire.kafka.messages.elect_leaders import ElectLeadersRequest
from simulation.scenarios.clients import ClusterClient
from simulation.scenarios.plan import TopicPlan

__all__ = ["Administrator", "create_simulated_topic", "set_feature_level"]

_CREATE_TIMEOUT_S = 120
_TIMEOUT_MS = 2000
_PREFERRED = 0
CHURN = ("churn-0", "churn-1")


async def create_simulated_topic(client: ClusterClient, topic: str, plan: TopicPlan, replication: int) -> None:
    """Create a topic, whatever it takes."""
    loop = client.simulation.loop
    deadline = loop.time() + _CREATE_TIMEOUT_S
    tries = 0
    while loop.time() < deadline:
        await client.refresh([])
        if client.controller_id < 0:
            await asyncio.sleep(0.1)
            continue
        tries += 1
        try:
            response = await client.channels.send(
                client.controller_id, topic_creation(topic, plan.partitions, replication, plan.configs)
            )
        except ChannelError:
            await asyncio.sleep(0.1)
            continue
        code = ErrorCode.of(response.topics[0].error_code)
        if code is ErrorCode.NONE or (code is ErrorCode.TOPIC_ALREADY_EXISTS and tries > 1):
            client.history.topics_created[topic] = plan.partitions
            client.history.count("topics")
            return
        if not code.retriable and code is not ErrorCode.INVALID_REPLICATION_FACTOR:
            client.history.violation(f"CreateTopics of {topic} was answered with {code.name}")
            return
        await asyncio.sleep(0.2)
    client.history.violation(f"topic {topic} was not created within {_CREATE_TIMEOUT_S} s of virtual time")


async def set_feature_level(client: ClusterClient, view: ClusterView, name: str, level: int) -> None:
    """Finalize a feature at a level; try until it is done."""
    while (before := finalized_level(view, name)) != level:
        await client.refresh([])
        if client.controller_id >= 0:
            with contextlib.suppress(ChannelError):
                await client.channels.send(client.controller_id, feature_update(name, level, before))
        await asyncio.sleep(0.2)
    client.history.count(f"{name} {level}")


class Administrator:
    """Does one random operation after the other until it is stopped."""

    def __init__(
        self, client: ClusterClient, rng: Random, topics: dict[str, TopicPlan], *, replication: int, mean_pause_s: float
    ) -> None:
        self._client = client
        self._rng = rng
        self._topics = topics
        self._replication = replication
        self._mean_pause_s = mean_pause_s
        self._churning: dict[str, int] = {}
        self.task = client.spawn(self._run())

    async def _run(self) -> None:
        client = self._client
        steps = (self._create, self._create, self._grow, self._delete, self._elect, self._move)
        while True:
            await asyncio.sleep(self._rng.expovariate(1 / self._mean_pause_s))
            await client.refresh([])
            if client.controller_id < 0:
                continue
            name, request = self._rng.choice(steps)()
            if request is None:
                continue
            try:
                await client.channels.send(client.controller_id, request)
            except ChannelError:
                continue
            client.history.count(f"admin: {name}")

    def _create(self) -> tuple[str, object]:
        topic = self._rng.choice(CHURN)
        self._churning.setdefault(topic, 1)
        return "create", topic_creation(topic, self._rng.randint(1, 2), self._replication, {})

    def _grow(self) -> tuple[str, object]:
        topic = self._rng.choice(CHURN)
        grown = CreatePartitionsTopic(name=topic, count=self._rng.randint(2, 4), assignments=None)
        return "grow", CreatePartitionsRequest(topics=[grown], timeout_ms=_TIMEOUT_MS)

    def _delete(self) -> tuple[str, object]:
        topic = self._rng.choice(CHURN)
        return "delete", DeleteTopicsRequest(
            topics=[DeleteTopicState(name=topic)], topic_names=[topic], timeout_ms=_TIMEOUT_MS
        )

    def _elect(self) -> tuple[str, object]:
        return "elect", ElectLeadersRequest(election_type=_PREFERRED, topic_partitions=None, timeout_ms=_TIMEOUT_MS)

    def _move(self) -> tuple[str, object]:
        """Other replicas for a partition, or (None) an end to its moving."""
        brokers = self._client.brokers
        topic = self._rng.choice(sorted(self._topics))
        partition = self._rng.randrange(self._topics[topic].partitions)
        replicas: list[int] | None = None
        if self._rng.random() < 0.8:
            replicas = self._rng.sample(brokers, min(self._replication, len(brokers)))
        moved = ReassignableTopic(
            name=topic, partitions=[ReassignablePartition(partition_index=partition, replicas=replicas)]
        )
        return "move", AlterPartitionReassignmentsRequest(timeout_ms=_TIMEOUT_MS, topics=[moved])
