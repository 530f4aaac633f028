"""Members of a consumer group in a simulated cluster, and what they know must hold.

In a generation each partition has one owner at most; a group's generations rise; the owner of
a partition starts where the last acknowledged commit was, or behind it. A power loss of a
broker can take all of that, for groups live in a partition as records do; a commit that was
under way then proves nothing.
"""

import asyncio
from collections.abc import Mapping

from barnabas.base.ids import ZERO_UUID, TopicPartition
from barnabas.broker.cluster.channels import ChannelError
from barnabas.testing.simulation.simulation import broker_name
from barnabas.wire.kafka.consumer_protocol import (
    AssignedPartitions,
    Assignment,
    Subscription,
    decode_assignment,
    encode_assignment,
    encode_subscription,
)
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.wire.kafka.messages.find_coordinator import FindCoordinatorRequest
from barnabas.wire.kafka.messages.heartbeat import HeartbeatRequest
from barnabas.wire.kafka.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from barnabas.wire.kafka.messages.leave_group import LeaveGroupRequest, MemberIdentity
from barnabas.wire.kafka.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.wire.kafka.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from barnabas.wire.kafka.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from barnabas.wire.kafka.records.batch_header import read_headers
from simulation.scenarios.clients import ClusterClient

__all__ = ["GroupFacts", "SimulatedMember"]

_PROTOCOL = "simple"
_SESSION_TIMEOUT_MS = 6000
_REBALANCE_TIMEOUT_MS = 8000
_JOIN_TIMEOUT_MS = 15_000
_HEARTBEAT_S = 0.3
_REJOIN = frozenset(
    {
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.MEMBER_ID_REQUIRED,
        ErrorCode.FENCED_INSTANCE_ID,
    }
)


class GroupFacts:
    """All assignments and commits that the members of a group saw together."""

    def __init__(self) -> None:
        self.owners: dict[tuple[int, TopicPartition], str] = {}
        self.commits: dict[TopicPartition, int] = {}
        self.generation = -1
        self.losses = 0

    def forgotten(self) -> None:
        """Records of the group's partition are gone with their disks, perhaps of this group."""
        self.losses += 1
        self.owners.clear()
        self.commits.clear()
        self.generation = -1


class SimulatedMember:
    """A consumer: joins, owns partitions, reads them, commits; again and again."""

    def __init__(
        self, client: ClusterClient, group: str, number: int, topics: Mapping[str, int], facts: GroupFacts
    ) -> None:
        self._client = client
        self._group = group
        self._number = number
        self._topics = topics
        self._facts = facts
        self._member_id = ""
        self._generation = -1
        self._coordinator = -1
        self._positions: dict[TopicPartition, int] = {}
        self.is_stopping = False
        self.task = client.spawn(self._run())

    async def _run(self) -> None:
        while not self.is_stopping:
            try:
                code = await self._live()
            except ChannelError:
                code = None
            if code is ErrorCode.UNKNOWN_MEMBER_ID:
                self._member_id = ""
            elif code not in _REJOIN:
                self._coordinator = -1
                if code is not None and not code.retriable:
                    self._client.history.violation(f"group {self._group}: {code.name}")
                await asyncio.sleep(0.1 + self._client.rng.random() * 0.2)
        await self._leave()

    async def _live(self) -> ErrorCode | None:
        """One generation, up to the error that ends it."""
        client = self._client
        if self._coordinator < 0:
            found = await client.channels.send(
                client.rng.choice(client.brokers),
                FindCoordinatorRequest(key_type=0, coordinator_keys=[self._group]),
            )
            answer = found.coordinators[0]
            if answer.error_code:
                return ErrorCode.of(answer.error_code)
            self._coordinator = answer.node_id
        losses = self._facts.losses
        joined = await self._join()
        if joined.error_code:
            return ErrorCode.of(joined.error_code)
        self._generation = joined.generation_id
        code, owned = await self._sync(joined)
        if code:
            return code
        self._reconsider()
        if losses != self._facts.losses:
            return None
        self._note_assignment(owned)
        code = await self._fetch_commits(owned)
        if code:
            return code
        while not self.is_stopping:
            for step in (self._heartbeat, self._read, self._commit):
                code = await step()
                if code:
                    return code
            await asyncio.sleep(_HEARTBEAT_S)
        return ErrorCode.REBALANCE_IN_PROGRESS

    async def _join(self) -> JoinGroupResponse:
        metadata = encode_subscription(Subscription(topics=list(self._topics)), 0)
        request = JoinGroupRequest(
            group_id=self._group,
            session_timeout_ms=_SESSION_TIMEOUT_MS,
            rebalance_timeout_ms=_REBALANCE_TIMEOUT_MS,
            member_id=self._member_id,
            group_instance_id=None,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name=_PROTOCOL, metadata=metadata)],
        )
        response: JoinGroupResponse = await self._client.channels.send(
            self._coordinator, request, timeout_ms=_JOIN_TIMEOUT_MS
        )
        if response.member_id:
            self._member_id = response.member_id
        return response

    async def _sync(self, joined: JoinGroupResponse) -> tuple[ErrorCode, list[TopicPartition]]:
        assignments: list[SyncGroupRequestAssignment] = []
        if joined.leader == self._member_id:
            members = sorted(member.member_id for member in joined.members)
            shares: dict[str, dict[str, list[int]]] = {member: {} for member in members}
            everything = [(topic, n) for topic, count in self._topics.items() for n in range(count)]
            for position, (topic, n) in enumerate(everything):
                shares[members[position % len(members)]].setdefault(topic, []).append(n)
            for member, share in shares.items():
                given = Assignment(
                    assigned_partitions=[
                        AssignedPartitions(topic=topic, partitions=numbers) for topic, numbers in share.items()
                    ]
                )
                assignments.append(SyncGroupRequestAssignment(member_id=member, assignment=encode_assignment(given, 0)))
        request = SyncGroupRequest(
            group_id=self._group,
            generation_id=self._generation,
            member_id=self._member_id,
            group_instance_id=None,
            protocol_type="consumer",
            protocol_name=_PROTOCOL,
            assignments=assignments,
        )
        response = await self._client.channels.send(self._coordinator, request, timeout_ms=_JOIN_TIMEOUT_MS)
        code = ErrorCode.of(response.error_code)
        if code:
            return code, []
        owned = [
            TopicPartition(topic.topic, n)
            for topic in decode_assignment(response.assignment).assigned_partitions
            for n in topic.partitions
        ]
        return code, owned

    def _note_assignment(self, owned: list[TopicPartition]) -> None:
        facts, history = self._facts, self._client.history
        for topic_partition in owned:
            owner = facts.owners.setdefault((self._generation, topic_partition), self._member_id)
            if owner != self._member_id:
                history.violation(
                    f"generation {self._generation} of {self._group}: {topic_partition} belongs to {owner} and {self._member_id}"
                )
        facts.generation = max(facts.generation, self._generation)
        history.count("generations joined")

    async def _fetch_commits(self, owned: list[TopicPartition]) -> ErrorCode:
        facts = self._facts
        self._positions = {}
        if not owned:
            return ErrorCode.NONE
        losses = facts.losses
        known = dict(facts.commits)
        topics: dict[str, list[int]] = {}
        await self._client.refresh(list(self._topics))
        for topic_partition in owned:
            topics.setdefault(topic_partition.topic, []).append(topic_partition.partition)
        asked = [
            OffsetFetchRequestTopics(
                name=topic, topic_id=self._client.topic_ids.get(topic, ZERO_UUID), partition_indexes=numbers
            )
            for topic, numbers in topics.items()
        ]
        request = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=self._group, member_id=None, member_epoch=-1, topics=asked)]
        )
        response = await self._client.channels.send(self._coordinator, request)
        names = {topic_id: topic for topic, topic_id in self._client.topic_ids.items()}
        group = response.groups[0]
        if group.error_code:
            return ErrorCode.of(group.error_code)
        for topic in group.topics:
            for partition in topic.partitions:
                if partition.error_code:
                    return ErrorCode.of(partition.error_code)
                topic_partition = TopicPartition(topic.name or names[topic.topic_id], partition.partition_index)
                self._reconsider()
                is_behind = partition.committed_offset < known.get(topic_partition, -1) and losses == facts.losses
                if is_behind and self._is_coordinated():
                    self._client.history.violation(
                        f"group {self._group} starts {topic_partition} at {partition.committed_offset}, {known[topic_partition]} was committed"
                    )
                self._positions[topic_partition] = max(partition.committed_offset, 0)
        return ErrorCode.NONE

    def _is_coordinated(self) -> bool:
        """Whether the coordinator leads a partition of groups.

        One that was replaced unnoticed (a pause, a cut) answers from memory, as Apache's does;
        it cannot commit anything."""
        history = self._client.history
        return any(
            history.true_leader(topic_partition) == self._coordinator for topic_partition in self._groups_partition()
        )

    def _groups_partition(self) -> list[TopicPartition]:
        machine = self._client.simulation.machine(broker_name(self._coordinator))
        if not machine.is_serving:
            return []
        number = machine.server.components.groups.coordinator.partition_for(self._group)
        return [
            topic_partition
            for topic_partition in self._client.history.groups_partitions
            if topic_partition.partition == number
        ]

    def _reconsider(self) -> None:
        """Ask whether records of groups were lost with their disks a moment ago."""
        for partition in self._client.history.groups_partitions:
            self._client.history.reconsider(partition)

    async def _heartbeat(self) -> ErrorCode:
        request = HeartbeatRequest(
            group_id=self._group, generation_id=self._generation, member_id=self._member_id, group_instance_id=None
        )
        response = await self._client.channels.send(self._coordinator, request)
        return ErrorCode.of(response.error_code)

    async def _read(self) -> ErrorCode:
        """Move on in the owned partitions; the readers check the records."""
        client = self._client
        for topic_partition, position in list(self._positions.items()):
            leader = await client.leader(topic_partition)
            wanted = FetchPartition(
                partition=topic_partition.partition, fetch_offset=position, partition_max_bytes=4096
            )
            request = FetchRequest(
                replica_id=-1,
                max_wait_ms=0,
                min_bytes=0,
                session_epoch=-1,
                topics=[
                    FetchTopic(
                        topic=topic_partition.topic,
                        topic_id=client.topic_ids[topic_partition.topic],
                        partitions=[wanted],
                    )
                ],
            )
            try:
                response = await client.channels.send(leader, request)
            except ChannelError:
                client.forget_leader(topic_partition)
                continue
            if response.error_code or not response.responses:
                continue
            answer = response.responses[0].partitions[0]
            if (
                answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
                and client.history.true_leader(topic_partition) != leader
            ):
                # A former leader that follows now, with a log cut at a damage. Clients send the
                # leader epoch to notice this.
                client.forget_leader(topic_partition)
            elif answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                self._positions[topic_partition] = 0
            elif answer.error_code:
                client.forget_leader(topic_partition)
            else:
                for _, header in read_headers(bytes(answer.records or b"")):
                    self._positions[topic_partition] = header.last_offset + 1
        return ErrorCode.NONE

    async def _commit(self) -> ErrorCode:
        facts = self._facts
        losses = facts.losses
        topics: dict[str, list[OffsetCommitRequestPartition]] = {}
        for topic_partition, position in self._positions.items():
            topics.setdefault(topic_partition.topic, []).append(
                OffsetCommitRequestPartition(
                    partition_index=topic_partition.partition,
                    committed_offset=position,
                    committed_leader_epoch=-1,
                    committed_metadata="",
                )
            )
        if not topics:
            return ErrorCode.NONE
        asked = [
            OffsetCommitRequestTopic(
                name=topic, topic_id=self._client.topic_ids.get(topic, ZERO_UUID), partitions=partitions
            )
            for topic, partitions in topics.items()
        ]
        request = OffsetCommitRequest(
            group_id=self._group,
            generation_id_or_member_epoch=self._generation,
            member_id=self._member_id,
            group_instance_id=None,
            topics=asked,
        )
        response = await self._client.channels.send(self._coordinator, request)
        for topic in response.topics:
            for partition in topic.partitions:
                if partition.error_code:
                    return ErrorCode.of(partition.error_code)
        self._reconsider()
        if losses == facts.losses:
            for topic_partition, position in self._positions.items():
                facts.commits[topic_partition] = position
            self._client.history.count("commits")
        return ErrorCode.NONE

    async def _leave(self) -> None:
        if self._coordinator >= 0 and self._member_id:
            request = LeaveGroupRequest(group_id=self._group, members=[MemberIdentity(member_id=self._member_id)])
            try:
                await self._client.channels.send(self._coordinator, request)
            except ChannelError:
                return
