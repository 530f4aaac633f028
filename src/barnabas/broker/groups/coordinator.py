"""The group coordinator: for each request and each deadline, what to write and what to answer.

A step (a public method) takes an event and the time and returns effects: `Reply`, `Replies` and
`Append`. The edge performs them in order and reports the outcome of each append to `committed` or
`failed`, which are steps again. Durable state, that is committed offsets, assignments and the
existence of groups, changes in `committed` only, by applying the records that were written; loading
a partition applies the same records. The state of a rebalance lives in memory alone. After the
coordinator moves to another broker, members join again, as in Apache Kafka.

Groups belong to partitions of ``__consumer_offsets``: ``abs(hash(group id)) % partitions``. The
steps of a partition are loading (`start_loading`, `finish_loading`) and `unload`, each with the
leader epoch they are for.

In Kafka: `GroupCoordinator`, and of `GroupMetadataManager` what groups there are and
which partitions are loaded.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from barnabas.base.clock import Now
from barnabas.base.ids import TopicPartition
from barnabas.base.randomness import Random
from barnabas.broker.coordinators.partitions import LedPartition, LedPartitions
from barnabas.broker.groups.commits import OffsetCommit, check_sender, check_transactional_sender, commit_error
from barnabas.broker.groups.deleted_partitions import DeletedPartitions
from barnabas.broker.groups.effects import Append, Effect, GroupSettings, Outbox
from barnabas.broker.groups.group import Group, GroupState
from barnabas.broker.groups.loading import Loader
from barnabas.broker.groups.member_responses import join_error, sync_error
from barnabas.broker.groups.membership import GroupMembership
from barnabas.broker.groups.records import GroupRecord, OffsetRecord, StoredRecord
from barnabas.broker.groups.timers import Timers
from barnabas.broker.groups.transactions import OpenTransactions
from barnabas.broker.metadata.internal_topics import partition_of
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.messages.heartbeat import HeartbeatRequest
from barnabas.wire.kafka.messages.join_group import JoinGroupRequest
from barnabas.wire.kafka.messages.leave_group import LeaveGroupResponse, MemberIdentity, MemberResponse
from barnabas.wire.kafka.messages.sync_group import SyncGroupRequest

__all__ = ["GroupCoordinator"]

_EXPIRY = ("expiry", "")
_EXPIRY_GOES_ON = ("expiry goes on", "")
_DELETION = ("deletion", "")
_DEADLINES_A_STEP = 256
"""Some 2 ms of removing members."""
_OFFSETS_A_STEP = 20_000
"""How many offsets are looked at for their expiry at a time: some milliseconds."""

_MOST_PROTOCOLS = 100
_MOST_METADATA_BYTES = 1 << 20
"""A member's metadata stays in memory while it is in the group. A consumer of 10,000
topics has less."""


def _is_too_large(request: JoinGroupRequest) -> bool:
    """Whether a member's metadata is more than the group's record in
    ``__consumer_offsets`` could hold by far."""
    protocols = request.protocols
    return (
        len(protocols) > _MOST_PROTOCOLS
        or sum([len(protocol.name) + len(protocol.metadata) for protocol in protocols]) > _MOST_METADATA_BYTES
    )


class _Partition(LedPartition):
    """A partition of ``__consumer_offsets`` that this broker leads."""

    __slots__ = ("group_ids",)

    def __init__(self, number: int, leader_epoch: int) -> None:
        super().__init__(number, leader_epoch)
        self.group_ids: set[str] = set()


class GroupCoordinator:
    """All groups that this broker coordinates."""

    def __init__(self, settings: GroupSettings, rng: Random) -> None:
        self.settings = settings
        self.partition_count = 50
        """Partitions of ``__consumer_offsets``; the edge sets it to what the topic has."""
        self.is_active = True
        self._partitions = LedPartitions(_Partition)
        self._groups: dict[str, Group] = {}
        self.transactions = OpenTransactions(self._groups.get)
        self._to_expire: list[Group] = []
        """The groups whose offsets this check has yet to look at, the last one first."""
        self._deleted = DeletedPartitions()
        self._timers: Timers[tuple[str, ...]] = Timers()
        self._out = Outbox()
        self._membership = GroupMembership(settings, rng, self._timers, self._out)

    # Looking up

    def partition_for(self, group_id: str) -> int:
        return partition_of(group_id, self.partition_count)

    def groups(self) -> Iterable[Group]:
        return self._groups.values()

    def find(self, group_id: str) -> Group | None:
        """A group that is loaded here, if there is one."""
        return self._groups.get(group_id)

    def check(self, group_id: str, *, may_be_empty: bool = False) -> ErrorCode:
        """Whether requests for the group can be served here: NONE, or what to answer instead.

        Offsets may be kept under the empty group id, and so may such a group be shown and deleted.
        """
        if not group_id and not may_be_empty:
            return ErrorCode.INVALID_GROUP_ID
        if not self.is_active:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if group_id in self._groups:
            return ErrorCode.NONE
        partition = self._partitions.get(self.partition_for(group_id))
        if partition is None:
            return ErrorCode.NOT_COORDINATOR
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if partition.is_loading else ErrorCode.NONE

    @property
    def is_loading(self) -> bool:
        return self._partitions.is_loading

    def reply(self, to: Any, response: Any) -> None:
        """Add an answer to the effects of the current step (for the callbacks of appends)."""
        self._out.reply(to, response)

    def _create(self, group_id: str) -> Group:
        partition = self.partition_for(group_id)
        group = Group(group_id, partition, self._out.now.wall_ms)
        self._groups[group_id] = group
        self._partitions[partition].group_ids.add(group_id)
        return group

    def _forget(self, group: Group) -> None:
        if self._groups.get(group.group_id) is group:
            self._membership.cancel_timers(group)
            del self._groups[group.group_id]
            self._partitions[group.partition].group_ids.discard(group.group_id)

    # Time

    def next_deadline_ms(self) -> int | None:
        """When `tick` is to be called next, on the monotonic clock.

        It may turn out that nothing is due."""
        return self._timers.next_ms()

    def tick(self, now: Now) -> list[Effect]:
        """Do what is due, or a part of it where thousands of members expire at once:
        `next_deadline_ms` says whether there is more."""
        self._out.now = now
        for _ in range(_DEADLINES_A_STEP):
            key = self._timers.pop_due(now.ms)
            if key is None:
                break
            kind, group_id, *rest = key
            if key == _EXPIRY:
                self._timers.set(_EXPIRY, now.ms + self.settings.retention_check_interval_ms)
                self._to_expire = list(reversed(self._groups.values()))
            if key in (_EXPIRY, _EXPIRY_GOES_ON):
                self._expire_offsets()
                continue
            if key == _DELETION:
                self._timers.set(_DELETION, now.ms + 1)  # also where one of these groups fails
                for each, gone in self._deleted.next_groups():
                    if each.state is not GroupState.DEAD and self._groups.get(each.group_id) is each:
                        self._write_tombstones(each, gone, lambda _: None)
                if not self._deleted:
                    self._timers.cancel(_DELETION)
                continue
            group = self._groups.get(group_id)
            if group is not None:
                self._membership.timer_fired(group, kind, rest[0] if rest else "")
        return self._out.take()

    # Membership

    def join(
        self, request: JoinGroupRequest, version: int, client_id: str, client_host: str, to: Any, now: Now
    ) -> list[Effect]:
        self._out.now = now
        error = self.check(request.group_id)
        group = None
        if not error:
            if not self._membership.accepts_session_timeout(request.session_timeout_ms):
                error = ErrorCode.INVALID_SESSION_TIMEOUT
            elif _is_too_large(request):
                error = ErrorCode.INVALID_REQUEST
            else:
                group = self._groups.get(request.group_id)
                if group is None and request.member_id:
                    error = ErrorCode.UNKNOWN_MEMBER_ID
        if error:
            self._out.reply(to, join_error(request.member_id, error))
        else:
            group = group or self._create(request.group_id)
            self._membership.join(group, request, version, client_id, client_host, to)
        return self._out.take()

    def sync(self, request: SyncGroupRequest, to: Any, now: Now) -> list[Effect]:
        self._out.now = now
        group, error = self._member_group(request.group_id)
        if error == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            # The rebalance was lost with the broker that led it. Old clients do not expect
            # COORDINATOR_LOAD_IN_PROGRESS here.
            error = ErrorCode.REBALANCE_IN_PROGRESS
        if group is None:
            self._out.reply(to, sync_error(error))
        else:
            self._membership.sync(group, request, to)
        return self._out.take()

    def heartbeat(self, request: HeartbeatRequest, now_ms: int) -> ErrorCode:
        """Answered at once and without effects: groups of thousands send this all the time."""
        group, error = self._member_group(request.group_id)
        if error == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return ErrorCode.NONE  # the members will be known when loading is over
        return error if group is None else self._membership.heartbeat(group, request, now_ms)

    def leave(
        self, group_id: str, leaving: Sequence[MemberIdentity], response: LeaveGroupResponse, now: Now
    ) -> list[Effect]:
        """Let some members leave, and add to ``response`` what becomes of them, or
        why none can leave here."""
        self._out.now = now
        group, error = self._member_group(group_id)
        if group is not None and group.state is GroupState.DEAD:
            error = ErrorCode.COORDINATOR_NOT_AVAILABLE
        if error not in (ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID):
            response.error_code = error
            response.members = []
            return []
        response.members += [
            MemberResponse(
                member_id=each.member_id,
                group_instance_id=each.group_instance_id,
                error_code=error if group is None else self._membership.leave(group, each),
            )
            for each in leaving
        ]
        return self._out.take()

    def _member_group(self, group_id: str) -> tuple[Group | None, ErrorCode]:
        """A group for a request of one of its members; a group that is not there has no members."""
        group = self._groups.get(group_id)
        if group is not None and self.is_active:
            return group, ErrorCode.NONE
        return None, self.check(group_id) or ErrorCode.UNKNOWN_MEMBER_ID

    # Offsets

    def commit_offsets(self, commit: OffsetCommit, to: Any, now: Now) -> list[Effect]:
        """Write what a prepared commit has; ``to`` gets it with its outcome."""
        out = self._out
        out.now = now
        request, transaction = commit.sender, commit.transaction
        group = self._groups.get(request.group_id)
        error = self.check(request.group_id, may_be_empty=True)
        if not error:
            error = (check_sender if transaction is None else check_transactional_sender)(group, request)
        if group is not None and group.members and not error and transaction is None:
            self._membership.touch_session(group, request.member_id)
        if error:
            commit.refuse(error)
        if error or not commit.partitions:
            out.reply(to, commit)
        else:
            self._append_offsets(group or self._create(request.group_id), commit, to)
        return out.take()

    def _append_offsets(self, group: Group, commit: OffsetCommit, to: Any) -> None:
        partitions, values = commit.partitions, commit.values
        group.offsets.begin(partitions)

        def written(error: ErrorCode) -> None:
            group.offsets.end(partitions)
            if error:
                commit.fail(commit_error(error))
            self._out.reply(to, commit)

        self._out.append(group, (), written, commit.encoded, (partitions, values), commit.transaction)

    # Deletion: tombstones, and the end of empty groups without offsets

    def delete_offsets(
        self, group: Group, partitions: Iterable[TopicPartition], done: Callable[[ErrorCode], None], now: Now
    ) -> list[Effect]:
        """Write tombstones for offsets; an empty group that has no others is deleted with them."""
        self._out.now = now
        known = group.offsets.partitions()
        self._write_tombstones(group, [each for each in partitions if each in known], done)
        return self._out.take()

    def delete_group(self, group: Group, done: Callable[[ErrorCode], None], now: Now) -> list[Effect]:
        """Write tombstones for an empty group and all its offsets, those that are
        being committed included."""
        assert group.state is GroupState.EMPTY
        self._out.now = now
        self._write_tombstones(group, list(group.offsets.partitions()), done, dies=True)
        return self._out.take()

    def partitions_deleted(
        self, partitions: Iterable[TopicPartition], end_offset_of: Callable[[int], int], now: Now
    ) -> list[Effect]:
        """Remove the offsets of deleted partitions, in steps that begin now (`next_deadline_ms`).

        ``end_offset_of`` says where the log of a partition of ``__consumer_offsets`` ends."""
        end_offsets = {number: end_offset_of(number) for number in self._partitions}
        self._deleted.add(partitions, end_offsets, self._groups.values())
        self._timers.set(_DELETION, now.ms)
        return []

    def start_expiring(self, now: Now) -> None:
        """Look for offsets to expire every offsets.retention.check.interval.ms from now on."""
        self._timers.set(_EXPIRY, now.ms + self.settings.retention_check_interval_ms)

    def _expire_offsets(self) -> None:
        """Look at the next groups; at more a millisecond later."""
        now = self._out.now
        retention_ms = self.settings.offsets_retention_ms
        seen = 0
        self._timers.set(_EXPIRY_GOES_ON, now.ms + 1)  # also where one of these groups fails
        while self._to_expire and seen <= _OFFSETS_A_STEP:
            group = self._to_expire.pop()
            offsets = group.offsets
            seen += 1 + len(offsets.committed)
            if group.state is GroupState.DEAD or self._groups.get(group.group_id) is not group:
                continue
            if group.protocol_type is None:
                gone = offsets.expired(now.wall_ms, retention_ms, None)
            elif group.state is GroupState.EMPTY:
                gone = offsets.expired(now.wall_ms, retention_ms, group.state_since_ms)
            elif group.state is GroupState.STABLE and group.subscribed_topics is not None:
                gone = offsets.expired(now.wall_ms, retention_ms, None, group.subscribed_topics)
            else:
                continue
            if gone or (group.state is GroupState.EMPTY and not offsets and not group.pending_members):
                self._write_tombstones(group, gone, lambda _: None)
        if not self._to_expire:
            self._timers.cancel(_EXPIRY_GOES_ON)

    def _write_tombstones(
        self, group: Group, gone: list[TopicPartition], done: Callable[[ErrorCode], None], *, dies: bool = False
    ) -> None:
        if not dies and group.state is GroupState.EMPTY and not group.pending_members:
            dies = group.offsets.partitions() <= set(gone)
        records: list[StoredRecord] = [OffsetRecord(group.group_id, partition, None) for partition in gone]
        if dies:
            group.transition_to(GroupState.DEAD, self._out.now.wall_ms)
            if group.generation_id > 0:
                # A group of offsets alone was never stored.
                records.append(GroupRecord(group.group_id, None))
        if not records:
            if dies:
                self._forget(group)
            done(ErrorCode.NONE)
            return

        def written(error: ErrorCode) -> None:
            if dies and error:
                group.transition_to(GroupState.EMPTY, self._out.now.wall_ms)
            elif dies:
                self._forget(group)
            done(error)

        self._out.append(group, records, written)

    # Outcomes of appends

    def committed(self, append: Append, base_offset: int, now: Now) -> list[Effect]:
        """The records of ``append`` are in the log from ``base_offset`` on, and committed:
        apply them, then answer."""
        self._out.now = now
        if self._groups.get(append.group.group_id) is append.group:  # else it is gone
            _apply(append, base_offset, now)
        return self._finish(append, ErrorCode.NONE)

    def failed(self, append: Append, error: ErrorCode, now: Now) -> list[Effect]:
        """The append was refused, or not committed in time (REQUEST_TIMED_OUT:
        `committed` may still follow)."""
        self._out.now = now
        return self._finish(append, error)

    def _finish(self, append: Append, error: ErrorCode) -> list[Effect]:
        done, append.done = append.done, None
        if done is not None:
            done(error)
        return self._out.take()

    # Partitions coming and going

    def start_loading(self, partition: int, leader_epoch: int) -> bool:
        """This broker leads the partition now.

        False when there is nothing to do (an old epoch, or loaded already)."""
        begins = self._partitions.start_loading(partition, leader_epoch)
        if begins:
            self.transactions.start_loading(partition)
        return begins

    def is_awaited(self, partition: int, leader_epoch: int) -> bool:
        """Whether the loading that `start_loading` began for the epoch is still wanted."""
        return self._partitions.is_awaited(partition, leader_epoch)

    def finish_loading(self, partition: int, leader_epoch: int, loader: Loader, now: Now) -> list[Effect]:
        """Serve the groups that the partition's log holds, unless the partition was
        lost meanwhile."""
        self._out.now = now
        if not self.is_awaited(partition, leader_epoch):
            return []
        owned = self._partitions[partition]
        owned.is_loading = False
        # There may be 100,000, almost all of them without members.
        self._groups.update(loader.groups)
        owned.group_ids.update(loader.groups)
        self.transactions.finish_loading(partition, loader.open_transactions)
        for group in [group for group in loader.groups.values() if group.members]:
            self._membership.loaded(group)
        return self._out.take()

    def unload(self, partition: int, leader_epoch: int | None, now: Now) -> list[Effect]:
        """Another broker leads the partition, in ``leader_epoch``, or it was deleted (None)."""
        self._out.now = now
        owned = self._partitions.unload(partition, leader_epoch)
        if owned is None:
            return []
        self.transactions.unload(partition)
        for group_id in owned.group_ids:
            group = self._groups.pop(group_id)
            if group.state is not GroupState.DEAD:
                self._membership.unload(group)
        return self._out.take()


def _apply(append: Append, base_offset: int, now: Now) -> None:
    """Take over into the group what is in the log from ``base_offset`` on."""
    group = append.group
    if append.offsets is not None:
        if append.transaction is None:  # a transaction's wait for its marker
            group.offsets.apply_batch(*append.offsets, base_offset)
        return
    for record in append.records:
        if isinstance(record, OffsetRecord):
            if record.value is None:
                group.offsets.remove(record.topic_partition, base_offset)
            else:
                group.offsets.apply(record.topic_partition, record.value, base_offset)
        elif record.value is not None:
            group.apply_assignment(record.value, now.wall_ms)
