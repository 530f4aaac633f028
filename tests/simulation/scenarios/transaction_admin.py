"""What an administrator does to partitions while transactions run: replicas move to other brokers
and other log dirs, preferred leaders are elected, records are deleted.

Only records that a reader at read_committed has seen are deleted. In the copied topic it must have
seen their copies, too.
"""

import asyncio
from collections.abc import Callable, Sequence

from barnabas.base.ids import TopicPartition
from barnabas.broker.cluster.channels import ChannelError
from barnabas.testing.simulation.cluster_view import ClusterView
from barnabas.wire.kafka.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from barnabas.wire.kafka.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from barnabas.wire.kafka.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from barnabas.wire.kafka.messages.elect_leaders import ElectLeadersRequest
from simulation.scenarios.clients import ClusterClient
from simulation.scenarios.transaction_facts import TransactionFacts

__all__ = ["CHORES", "TransactionAdministrator"]

_TIMEOUT_MS = 2000
_PREFERRED = 0
_REPLICAS = 3
CHORES = ("move", "move dir", "delete records", "elect")


class TransactionAdministrator:
    """Does one random chore after the other until it is stopped."""

    def __init__(
        self,
        client: ClusterClient,
        view: ClusterView,
        facts: TransactionFacts,
        deletable: Callable[[TopicPartition], int],
        *,
        chores: Sequence[str],
        deleting: Sequence[TopicPartition],
        log_dirs: Sequence[str],
        mean_pause_s: float,
    ) -> None:
        """``deletable`` gives the offset up to which a partition's records may be deleted."""
        self._client = client
        self._rng = client.rng
        self._view = view
        self._facts = facts
        self._deletable = deletable
        self._deleting = list(deleting)
        self._log_dirs = list(log_dirs)
        self._mean_pause_s = mean_pause_s
        steps = {
            "move": self._move,
            "move dir": self._move_dir,
            "delete records": self._delete_records,
            "elect": self._elect,
        }
        self._steps = {name: steps[name] for name in chores}
        self.task = client.spawn(self._run())

    async def _run(self) -> None:
        client = self._client
        while True:
            await asyncio.sleep(self._rng.expovariate(1 / self._mean_pause_s))
            await client.refresh([])
            name = self._rng.choice(list(self._steps))
            wanted = self._steps[name]()
            if wanted is None or wanted[0] < 0:
                continue
            try:
                await client.channels.send(*wanted)
            except ChannelError:
                continue
            client.history.count(f"admin: {name}")

    def _any(self) -> TopicPartition:
        return self._rng.choice(sorted(self._view.partitions()))

    def _move(self) -> tuple[int, object]:
        """Other replicas for any partition, internal ones too, or the end of its move (None)."""
        topic, number = self._any()
        replicas = self._rng.sample(self._client.brokers, _REPLICAS) if self._rng.random() < 0.9 else None
        moved = ReassignableTopic(
            name=topic, partitions=[ReassignablePartition(partition_index=number, replicas=replicas)]
        )
        request = AlterPartitionReassignmentsRequest(timeout_ms=_TIMEOUT_MS, topics=[moved])
        return self._client.controller_id, request

    def _move_dir(self) -> tuple[int, object]:
        """A replica moves to another log dir of its broker, or stays."""
        topic, number = self._any()
        wanted = AlterReplicaLogDir(
            path=self._rng.choice(self._log_dirs), topics=[AlterReplicaLogDirTopic(name=topic, partitions=[number])]
        )
        return self._rng.choice(self._client.brokers), AlterReplicaLogDirsRequest(dirs=[wanted])

    def _delete_records(self) -> tuple[int, object] | None:
        if not self._deleting:
            return None
        topic_partition = self._rng.choice(self._deleting)
        before = self._facts.deleted.get(topic_partition, 0)
        upto = self._deletable(topic_partition)
        if upto <= before:
            return None
        offset = self._rng.randint(before + 1, upto)
        self._facts.deleted[topic_partition] = offset
        partition = DeleteRecordsPartition(partition_index=topic_partition.partition, offset=offset)
        topic = DeleteRecordsTopic(name=topic_partition.topic, partitions=[partition])
        return self._view.leader(topic_partition), DeleteRecordsRequest(topics=[topic], timeout_ms=_TIMEOUT_MS)

    def _elect(self) -> tuple[int, object]:
        request = ElectLeadersRequest(election_type=_PREFERRED, topic_partitions=None, timeout_ms=_TIMEOUT_MS)
        return self._client.controller_id, request
