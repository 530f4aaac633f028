"""Drives a pure `GroupCoordinator`: virtual time, a log in memory, answers that can
be looked at."""

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from barnabas.base.clock import Now
from barnabas.base.ids import TopicPartition
from barnabas.base.tasks import done_here
from barnabas.broker.apis.offset_commit import read_message, response_to, set_codes
from barnabas.broker.authorizer.auth_helper import EVERY_NAME
from barnabas.broker.groups.commits import OffsetCommit
from barnabas.broker.groups.coordinator import GroupCoordinator
from barnabas.broker.groups.deletion import GroupDeletion, delete_offsets, prepare_offset_deletion
from barnabas.broker.groups.effects import Append, Effect, GroupSettings, Replies, Reply
from barnabas.broker.groups.loading import Loader
from barnabas.broker.groups.records import OffsetRecord, StoredRecord, encode_record
from barnabas.wire.kafka.consumer_protocol import Subscription, encode_subscription
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.messages.heartbeat import HeartbeatRequest
from barnabas.wire.kafka.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas.wire.kafka.messages.leave_group import LeaveGroupResponse, MemberIdentity
from barnabas.wire.kafka.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.wire.kafka.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from barnabas.wire.kafka.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

PARTITIONS = 3
RANGE = (("range", b"r"),)
START_WALL_MS = 1_700_000_000_000


def subscription(*topics: str) -> tuple[tuple[str, bytes], ...]:
    """The protocols of a consumer of ``topics`` that knows the range assignor."""
    return (("range", bytes(encode_subscription(Subscription(topics=list(topics))))),)


def _topics(known: bool) -> Callable[[str], range]:
    """Metadata with all partitions, or with none."""
    return lambda _: range(1 << 31 if known else 0)


def _records(append: Append) -> Sequence[StoredRecord]:
    if append.offsets is None:
        return append.records
    columns = zip(*append.offsets, strict=True)
    return [OffsetRecord(append.group.group_id, topic_partition, value) for topic_partition, value in columns]


class Answer:
    """What a request is answered with; answering twice is an error."""

    def __init__(self) -> None:
        self.response: Any = None

    def __call__(self, response: Any) -> None:
        assert self.response is None, "answered twice"
        self.response = response

    @property
    def waits(self) -> bool:
        return self.response is None

    @property
    def error(self) -> ErrorCode:
        assert self.response is not None, "not answered yet"
        return ErrorCode(self.response.error_code)


class World:
    """A coordinator with all partitions loaded, its log and its clock."""

    def __init__(self, **settings: int) -> None:
        self.settings = GroupSettings(**{"initial_rebalance_delay_ms": 0, **settings})
        self.ms = 0
        self.wall_ms = START_WALL_MS
        self.log: list[tuple[int, bytes, bytes | None]] = []
        """(partition, key, value); the index is the offset."""
        self.held: list[tuple[Append, int]] | None = None
        """With `hold`, appends that are in the log and not committed."""
        self.refuse: ErrorCode | None = None
        self._rng = Random(1)
        self.coordinator = GroupCoordinator(self.settings, self._rng)
        self.start()

    @property
    def now(self) -> Now:
        return Now(self.ms, self.wall_ms)

    def start(self) -> None:
        self.coordinator.partition_count = PARTITIONS
        for partition in range(PARTITIONS):
            assert self.coordinator.start_loading(partition, 0)
            loader = Loader(partition)
            for offset, (written_to, key, value) in enumerate(self.log):
                if written_to == partition:
                    loader.add(key, value, offset)
            done_here(loader.steps())
            assert not loader.unreadable
            self.perform(self.coordinator.finish_loading(partition, 0, loader, self.now))
        self.settle()

    def reload(self) -> None:
        """A new coordinator on what the log holds; the old one answers all requests that wait."""
        for partition in range(PARTITIONS):
            self.perform(self.coordinator.unload(partition, 1, self.now))
        self.held = None if self.held is None else []
        self.coordinator = GroupCoordinator(self.settings, self._rng)
        self.start()

    def perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Reply):
                effect.to(effect.response)
            elif isinstance(effect, Replies):
                for to, about in effect.waiting:
                    to(effect.respond(about))
            elif self.refuse is not None:
                self.perform(self.coordinator.failed(effect, self.refuse, self.now))
            else:
                base_offset = len(self.log)
                self.log += [(effect.partition, *encode_record(record)) for record in _records(effect)]
                if self.held is None:
                    self.perform(self.coordinator.committed(effect, base_offset, self.now))
                else:
                    self.held.append((effect, base_offset))

    def settle(self) -> None:
        """Let happen what is due now."""
        while (due := self.coordinator.next_deadline_ms()) is not None and due <= self.ms:
            self.perform(self.coordinator.tick(self.now))

    def advance(self, ms: int) -> None:
        """Let time pass; every deadline on the way is met at its time."""
        end = self.ms + ms
        while (due := self.coordinator.next_deadline_ms()) is not None and due <= end:
            step = max(due - self.ms, 0)
            self.ms += step
            self.wall_ms += step
            self.perform(self.coordinator.tick(self.now))
        self.wall_ms += end - self.ms
        self.ms = end

    def delete_partitions(self, *partitions: TopicPartition) -> None:
        """Topics are deleted; the first step of what follows."""
        end_offset = len(self.log)
        self.perform(self.coordinator.partitions_deleted(partitions, lambda _: end_offset, self.now))
        self.settle()

    def hold(self) -> None:
        self.held = []

    def release(self, error: ErrorCode = ErrorCode.NONE) -> None:
        """Commit, or fail, what is held."""
        held, self.held = self.held or [], None
        for append, base_offset in held:
            if error:
                self.perform(self.coordinator.failed(append, error, self.now))
            else:
                self.perform(self.coordinator.committed(append, base_offset, self.now))

    # Requests

    def join(
        self,
        group_id: str = "g",
        member_id: str = "",
        *,
        instance: str | None = None,
        protocols: tuple[tuple[str, bytes], ...] = RANGE,
        protocol_type: str = "consumer",
        version: int = 9,
        session_ms: int = 10_000,
        rebalance_ms: int = 60_000,
        client_id: str = "client",
    ) -> Answer:
        answer = Answer()
        request = JoinGroupRequest(
            group_id=group_id,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocols=[JoinGroupRequestProtocol(name=name, metadata=metadata) for name, metadata in protocols],
        )
        self.perform(self.coordinator.join(request, version, client_id, "/10.0.0.1", answer, self.now))
        self.settle()
        return answer

    def sync(
        self,
        joined: Any,
        assignments: dict[str, bytes] | None = None,
        *,
        group_id: str = "g",
        instance: str | None = None,
        generation: int | None = None,
        protocol_type: str | None = None,
        protocol_name: str | None = None,
    ) -> Answer:
        """SyncGroup of the member that was answered with ``joined``."""
        answer = Answer()
        request = SyncGroupRequest(
            group_id=group_id,
            generation_id=joined.generation_id if generation is None else generation,
            member_id=joined.member_id,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocol_name=protocol_name,
            assignments=[
                SyncGroupRequestAssignment(member_id=member_id, assignment=assignment)
                for member_id, assignment in (assignments or {}).items()
            ],
        )
        self.perform(self.coordinator.sync(request, answer, self.now))
        self.settle()
        return answer

    def heartbeat(self, joined: Any, *, group_id: str = "g", instance: str | None = None) -> ErrorCode:
        request = HeartbeatRequest(
            group_id=group_id,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            group_instance_id=instance,
        )
        return ErrorCode(self.coordinator.heartbeat(request, self.ms))

    def leave(self, *members: tuple[str, str | None], group_id: str = "g") -> list[ErrorCode]:
        """The errors by member, or the one for all of them."""
        response = LeaveGroupResponse(error_code=ErrorCode.NONE, members=[])
        leaving = [MemberIdentity(member_id=member, group_instance_id=instance) for member, instance in members]
        self.perform(self.coordinator.leave(group_id, leaving, response, self.now))
        self.settle()
        if response.error_code:
            return [ErrorCode(response.error_code)]
        return [ErrorCode(member.error_code) for member in response.members]

    def commit(
        self,
        offsets: dict[tuple[str, int], int],
        joined: Any = None,
        *,
        group_id: str = "g",
        metadata: str | None = "",
        retention_ms: int = -1,
        instance: str | None = None,
        generation: int | None = None,
        known: bool = True,
    ) -> Answer:
        answer = Answer()
        request = OffsetCommitRequest(
            group_id=group_id,
            generation_id_or_member_epoch=generation
            if generation is not None
            else (joined.generation_id if joined else -1),
            member_id=joined.member_id if joined else "",
            group_instance_id=instance,
            retention_time_ms=retention_ms,
            topics=[
                OffsetCommitRequestTopic(
                    name=topic,
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=partition,
                            committed_offset=offset,
                            committed_leader_epoch=7,
                            committed_metadata=metadata,
                        )
                    ],
                )
                for (topic, partition), offset in offsets.items()
            ],
        )
        commit = done_here(read_message(request, 9, {}.get))
        done_here(commit.prepare(_topics(known), self.settings.offset_metadata_max_bytes, self.now.wall_ms))

        def reply(commit: OffsetCommit) -> None:
            response = done_here(response_to(commit.topics))
            set_codes(response, commit.codes)
            answer(response)

        self.perform(self.coordinator.commit_offsets(commit, reply, self.now))
        return answer

    def delete_groups(self, *group_ids: str) -> Answer:
        answer = Answer()
        deletion = GroupDeletion(self.coordinator, answer)
        for group_id in dict.fromkeys(group_ids):
            self.perform(deletion.delete(group_id, self.now))
        self.perform(deletion.end())
        return answer

    def delete_offsets(self, *partitions: tuple[str, int], group_id: str = "g", known: bool = True) -> Answer:
        answer = Answer()
        request = OffsetDeleteRequest(
            group_id=group_id,
            topics=[
                OffsetDeleteRequestTopic(name=t, partitions=[OffsetDeleteRequestPartition(partition_index=p)])
                for t, p in partitions
            ],
        )
        deletion = done_here(prepare_offset_deletion(request, EVERY_NAME, _topics(known)))
        self.perform(delete_offsets(self.coordinator, deletion, answer, self.now))
        return answer

    # Shorthands

    def new_id(self, group_id: str = "g", **more: Any) -> str:
        """A member id from the coordinator, not yet used (KIP-394)."""
        answer = self.join(group_id, **more)
        assert answer.error == ErrorCode.MEMBER_ID_REQUIRED
        return str(answer.response.member_id)

    def start_join(self, group_id: str = "g", **more: Any) -> Answer:
        """A dynamic member's join with the id it was given; a static member's join."""
        if more.get("instance"):
            return self.join(group_id, **more)
        return self.join(group_id, self.new_id(group_id, **more), **more)

    def stable(self, count: int = 1, group_id: str = "g", **more: Any) -> list[Any]:
        """A group of ``count`` dynamic members in Stable.

        Their JoinGroup responses, the leader's first."""
        joins = [self.start_join(group_id, **more)]
        ids = [joins[0].response.member_id] if not joins[0].waits else []
        for _ in range(count - 1):
            joins.append(self.start_join(group_id, **more))
            joins += [self.join(group_id, member_id, **more) for member_id in ids]
            joined = [answer.response for answer in joins if not answer.waits and not answer.error]
            latest = max((response.generation_id for response in joined), default=0)
            ids = [response.member_id for response in joined if response.generation_id == latest]
        self.settle()
        return self.stabilize([answer.response for answer in joins], group_id)

    def stabilize(self, responses: list[Any], group_id: str = "g") -> list[Any]:
        """SyncGroup of all members of the latest generation.

        Each gets its own id as its assignment."""
        latest = max(response.generation_id for response in responses)
        members = {response.member_id: response for response in responses if response.generation_id == latest}
        ordered = sorted(members.values(), key=lambda response: response.member_id != response.leader)
        assignments = {member_id: member_id.encode() for member_id in members}
        answers = [
            self.sync(response, assignments if response.member_id == response.leader else None, group_id=group_id)
            for response in ordered
        ]
        assert [answer.error for answer in answers] == [ErrorCode.NONE] * len(answers)
        return ordered

    def state(self, group_id: str = "g") -> str:
        group = self.coordinator.find(group_id)
        return group.state.value if group else "none"

    def offsets(self, group_id: str = "g") -> dict[tuple[str, int], int]:
        group = self.coordinator.find(group_id)
        return {tuple(tp): value.offset for tp, value in group.offsets.committed.items()} if group else {}
