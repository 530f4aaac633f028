"""A consumer's membership in a group: joining, assignments, heartbeats, commits.

It gives up partitions before it joins again. Counterpart: ``ConsumerCoordinator`` and
``AbstractCoordinator``, with the eager protocol.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any

from barnabas.base.ids import ZERO_UUID, TopicPartition
from barnabas.broker.cluster.channels import ChannelError
from barnabas.client.cluster.admin_connection import GROUP
from barnabas.client.errors import ClientError, CommitError, refusal
from barnabas.testing.virtual.link import ClusterLink, by_topic
from barnabas.testing.virtual.properties import VirtualConsumerSettings
from barnabas.testing.virtual.transactions import GroupMetadata
from barnabas.wire.kafka.consumer_protocol import (
    AssignedPartitions,
    Assignment,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from barnabas.wire.kafka.errors import ErrorCode
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

__all__ = ["Membership"]

_RETRY_S = 0.1
_JOIN_SLACK_MS = 5000
_MEMBER_GONE = frozenset((ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION))
_COORDINATOR_GONE = frozenset(
    (
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    )
)

OnAssigned = Callable[[dict[TopicPartition, int | None]], Awaitable[None]]
"""Receives the partitions with their committed offsets; returns when the consumer
has taken them."""
OnRevoked = Callable[[bool], Awaitable[None]]
"""The partitions are to be given up; True: they may have another owner already,
nothing can be committed."""


class Membership:
    """One consumer's place in its group, and the group's offsets."""

    def __init__(
        self,
        link: ClusterLink,
        settings: VirtualConsumerSettings,
        *,
        on_assigned: OnAssigned,
        on_revoked: OnRevoked,
        is_polled: Callable[[], bool],
    ) -> None:
        self._link = link
        self._settings = settings
        self._channels = link.channels()
        self._on_assigned = on_assigned
        self._on_revoked = on_revoked
        self._is_polled = is_polled
        self._coordinator = -1
        self._member_id = ""
        self._generation = -1
        self._owns = False
        self.topics: dict[str, int] = {}
        """The topics that the consumer subscribes to, with their numbers of partitions."""
        self.failure: ClientError | None = None
        """Why it ended, where trying again makes no sense."""

    async def run(self) -> None:
        """Be a member until cancelled, through all generations."""
        while True:
            code: ErrorCode | None
            try:
                code = await self._join_and_stay()
            except ChannelError:
                code = None
            except ClientError as error:
                self.failure = error
                return
            if code in _MEMBER_GONE:
                self._forget_member()
                await self._revoke(is_lost=True)
            elif code is ErrorCode.REBALANCE_IN_PROGRESS:
                await self._revoke(is_lost=False)
            elif code is not ErrorCode.MEMBER_ID_REQUIRED:
                self._coordinator = -1
                if code is not None and not code.retriable:
                    self.failure = refusal(code, f"group {self._settings.group}: {code.message}")
                    return
                await asyncio.sleep(_RETRY_S)

    def _forget_member(self) -> None:
        self._generation = -1
        self._member_id = ""

    async def _revoke(self, *, is_lost: bool) -> None:
        """Let the consumer give its partitions up.

        The coordinator waits for that, as long as there are heartbeats."""
        if not self._owns:
            return
        self._owns = False
        gone = asyncio.ensure_future(self._on_revoked(is_lost))
        try:
            while not gone.done():
                await asyncio.wait([gone], timeout=self._settings.heartbeat_ms / 1000)
                if not gone.done() and not is_lost:
                    try:
                        if await self._heartbeat() in _MEMBER_GONE:
                            self._forget_member()
                    except ChannelError:
                        continue
        finally:
            gone.cancel()  # the consumer was closed: no poll will give them up
        gone.result()

    # A generation

    async def _join_and_stay(self) -> ErrorCode | None:
        """Join, take the assignment, and stay until an error ends the generation."""
        code = await self._find_coordinator()
        if code:
            return code
        joined = await self._join()
        if joined.error_code:
            return ErrorCode.of(joined.error_code)
        self._generation = joined.generation_id
        code, owned = await self._sync(joined)
        if code:
            return code
        committed = await self.committed(owned, 60.0)
        self._owns = True
        taking = asyncio.ensure_future(
            self._on_assigned({topic_partition: committed[topic_partition] for topic_partition in owned})
        )
        try:
            return await self._send_heartbeats()
        finally:
            taking.cancel()

    async def _send_heartbeats(self) -> ErrorCode:
        loop = asyncio.get_running_loop()
        last_answer_s = loop.time()
        while True:
            await asyncio.sleep(self._settings.heartbeat_ms / 1000)
            if not self._is_polled():
                # max.poll.interval.ms is over: the program does not poll, so other
                # members take its partitions.
                with contextlib.suppress(ChannelError):
                    await self.leave()
                await self._revoke(is_lost=True)
                while not self._is_polled():  # noqa: ASYNC110  # the program may never come back
                    await asyncio.sleep(_RETRY_S)
                return ErrorCode.UNKNOWN_MEMBER_ID
            try:
                code = await self._heartbeat()
            except ChannelError:
                code = ErrorCode.NOT_COORDINATOR
            if code in _COORDINATOR_GONE:
                if loop.time() - last_answer_s > self._settings.session_timeout_ms / 1000:
                    return ErrorCode.UNKNOWN_MEMBER_ID
                self._coordinator = -1
                await self._find_coordinator_or_wait()
            elif code:
                return code
            else:
                last_answer_s = loop.time()

    async def _find_coordinator_or_wait(self) -> None:
        try:
            if await self._find_coordinator():
                await asyncio.sleep(_RETRY_S)
        except ChannelError:
            await asyncio.sleep(_RETRY_S)

    async def _find_coordinator(self) -> ErrorCode:
        if self._coordinator >= 0:
            return ErrorCode.NONE
        code, node_id = await self._link.find_coordinator(GROUP, self._settings.group)
        if not code:
            self._coordinator = node_id
        return code

    async def _join(self) -> JoinGroupResponse:
        settings = self._settings
        metadata = encode_subscription(Subscription(topics=sorted(self.topics)), 0)
        request = JoinGroupRequest(
            group_id=settings.group,
            session_timeout_ms=settings.session_timeout_ms,
            rebalance_timeout_ms=settings.max_poll_ms,
            member_id=self._member_id,
            group_instance_id=settings.instance,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name=settings.strategy, metadata=metadata)],
        )
        response: JoinGroupResponse = await self._channels.send(
            self._coordinator, request, timeout_ms=settings.max_poll_ms + _JOIN_SLACK_MS
        )
        self._member_id = response.member_id or self._member_id
        return response

    async def _sync(self, joined: JoinGroupResponse) -> tuple[ErrorCode, list[TopicPartition]]:
        assignments: list[SyncGroupRequestAssignment] = []
        if joined.leader == self._member_id:
            wanted = {each.member_id: decode_subscription(each.metadata).topics for each in joined.members}
            counts = dict(self.topics)
            for topic in sorted({topic for topics in wanted.values() for topic in topics} - set(counts)):
                counts[topic] = await self._link.partitions_of(topic, 10.0)
            for member, share in assign_partitions(self._settings.strategy, wanted, counts).items():
                given = Assignment(
                    assigned_partitions=[
                        AssignedPartitions(topic=topic, partitions=numbers)
                        for topic, numbers in by_topic(share).items()
                    ]
                )
                assignments.append(SyncGroupRequestAssignment(member_id=member, assignment=encode_assignment(given, 0)))
        request = SyncGroupRequest(
            group_id=self._settings.group,
            generation_id=self._generation,
            member_id=self._member_id,
            group_instance_id=self._settings.instance,
            protocol_type="consumer",
            protocol_name=self._settings.strategy,
            assignments=assignments,
        )
        response = await self._channels.send(
            self._coordinator, request, timeout_ms=self._settings.max_poll_ms + _JOIN_SLACK_MS
        )
        code = ErrorCode.of(response.error_code)
        if code:
            return code, []
        assigned = decode_assignment(response.assignment).assigned_partitions
        return code, [TopicPartition(each.topic, number) for each in assigned for number in each.partitions]

    async def _heartbeat(self) -> ErrorCode:
        request = HeartbeatRequest(
            group_id=self._settings.group,
            generation_id=self._generation,
            member_id=self._member_id,
            group_instance_id=self._settings.instance,
        )
        return ErrorCode.of((await self._channels.send(self._coordinator, request)).error_code)

    async def leave(self) -> None:
        """Leave the group; a static member only stops, and keeps its place until its
        session expires."""
        if self._coordinator < 0 or not self._member_id or self._settings.instance is not None:
            return
        request = LeaveGroupRequest(
            group_id=self._settings.group, members=[MemberIdentity(member_id=self._member_id, group_instance_id=None)]
        )
        self._forget_member()
        await self._channels.send(self._coordinator, request)

    # Offsets

    @property
    def metadata(self) -> GroupMetadata:
        """What a transaction that commits the group's offsets says of this member."""
        return GroupMetadata(self._settings.group, self._generation, self._member_id, self._settings.instance)

    async def committed(
        self, topic_partitions: Collection[TopicPartition], timeout_s: float
    ) -> dict[TopicPartition, int | None]:
        """The group's committed offsets; None where there is none."""
        if not topic_partitions:
            return {}

        async def attempt() -> dict[TopicPartition, int | None] | None:
            code = await self._find_coordinator()
            if code:
                return self._link.check(code, "cannot read committed offsets")
            await self._link.refresh(sorted(by_topic(topic_partitions)))
            return await self._fetch_offsets(topic_partitions)

        return await self._link.retry(attempt, timeout_s, "cannot read committed offsets")

    async def _fetch_offsets(
        self, topic_partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, int | None] | None:
        ids = self._link.topic_ids
        asked = [
            OffsetFetchRequestTopics(name=topic, topic_id=ids.get(topic, ZERO_UUID), partition_indexes=numbers)
            for topic, numbers in by_topic(topic_partitions).items()
        ]
        group = OffsetFetchRequestGroup(group_id=self._settings.group, member_id=None, member_epoch=-1, topics=asked)
        response = (
            await self._ask(OffsetFetchRequest(groups=[group], require_stable=self._settings.read_committed))
        ).groups[0]
        partitions = [(topic, each) for topic in response.topics for each in topic.partitions]
        if self._is_refused([response.error_code, *(each.error_code for _, each in partitions)]):
            return None
        names = {topic_id: topic for topic, topic_id in ids.items()}
        return {
            TopicPartition(topic.name or names[topic.topic_id], each.partition_index): (
                each.committed_offset if each.committed_offset >= 0 else None
            )
            for topic, each in partitions
        }

    async def commit(self, offsets: Mapping[TopicPartition, int], timeout_s: float) -> None:
        """Commit these offsets. Raises `CommitError` when the group has moved on, and
        `TimedOutError`."""
        member = self._generation, self._member_id

        async def attempt() -> bool | None:
            if member != (self._generation, self._member_id):
                # The partitions may have another owner: the commit of this generation must not go
                # on in another.
                self._is_refused([ErrorCode.ILLEGAL_GENERATION])
            code = await self._find_coordinator()
            if code:
                return self._link.check(code, "the commit failed")
            return await self._commit_offsets(offsets)

        await self._link.retry(attempt, timeout_s, "the commit failed")

    async def _commit_offsets(self, offsets: Mapping[TopicPartition, int]) -> bool | None:
        asked = [
            OffsetCommitRequestTopic(
                name=topic,
                topic_id=self._link.topic_ids.get(topic, ZERO_UUID),
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=number,
                        committed_offset=offsets[TopicPartition(topic, number)],
                        committed_leader_epoch=-1,
                        committed_metadata="",
                    )
                    for number in numbers
                ],
            )
            for topic, numbers in by_topic(offsets).items()
        ]
        request = OffsetCommitRequest(
            group_id=self._settings.group,
            generation_id_or_member_epoch=self._generation,
            member_id=self._member_id,
            group_instance_id=self._settings.instance,
            topics=asked,
        )
        response = await self._ask(request)
        codes = [each.error_code for topic in response.topics for each in topic.partitions]
        return None if self._is_refused(codes) else True

    async def _ask(self, request: Any) -> Any:
        try:
            return await self._channels.send(self._coordinator, request)
        except ChannelError:
            self._coordinator = -1
            raise

    def _is_refused(self, codes: list[int]) -> bool:
        """Whether to try again; raises what trying again does not change."""
        code = next((ErrorCode.of(each) for each in codes if each), ErrorCode.NONE)
        if code in (*_MEMBER_GONE, ErrorCode.REBALANCE_IN_PROGRESS):
            raise CommitError(code, f"group {self._settings.group} has moved on: {code.message}")
        self._link.check(code, f"group {self._settings.group}")
        if code in _COORDINATOR_GONE:
            self._coordinator = -1
        return bool(code)


def assign_partitions(
    strategy: str, wanted: Mapping[str, Collection[str]], counts: Mapping[str, int]
) -> dict[str, list[TopicPartition]]:
    """Who reads what, as Kafka's range or round robin assignor decides."""
    members = sorted(wanted)
    shares: dict[str, list[TopicPartition]] = {member: [] for member in members}
    turn = 0
    for topic in sorted(counts):
        subscribers = [member for member in members if topic in wanted[member]]
        if not subscribers:
            continue
        numbers = range(counts[topic])
        if strategy == "range":
            each, more = divmod(len(numbers), len(subscribers))
            for index, member in enumerate(subscribers):
                first = index * each + min(index, more)
                share = numbers[first : first + each + (index < more)]
                shares[member] += [TopicPartition(topic, number) for number in share]
            continue
        for number in numbers:
            while topic not in wanted[members[turn % len(members)]]:
                turn += 1
            shares[members[turn % len(members)]].append(TopicPartition(topic, number))
            turn += 1
    return shares
