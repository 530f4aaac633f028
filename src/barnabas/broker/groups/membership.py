"""The members of a group: JoinGroup, SyncGroup, heartbeats, LeaveGroup, and the rebalance
that each change starts.

All members join (JoinGroup). The leader among them sends the assignment (SyncGroup), which is
stored and then given to all. Requests wait for each other on the way, so answers are effects,
and requests that wait are kept with their member. Every request is answered: one that a newer
request of the same member displaces gets REBALANCE_IN_PROGRESS, one whose member is removed
UNKNOWN_MEMBER_ID.

Timeouts: a member's session; a new member's whole wait in its first JoinGroup; the rebalance, which
continues without the members that have not rejoined; and the sync, after which members that never
asked for their assignment are removed.

In Kafka: the join, sync, heartbeat and leave methods of `GroupCoordinator`, with `DelayedJoin`,
`DelayedSync` and `DelayedHeartbeat`.
"""

from functools import partial
from typing import Any
from uuid import UUID

from barnabas.base.randomness import Random
from barnabas.base.tuples import new_tuple
from barnabas.broker.groups.effects import GroupSettings, Outbox
from barnabas.broker.groups.group import Group, GroupState, Member, Protocols
from barnabas.broker.groups.member_responses import (
    assignment_write_error,
    join_error,
    joined,
    joined_responses,
    sync_error,
    synced,
    synced_with,
)
from barnabas.broker.groups.records import GroupRecord, GroupValue, MemberValue
from barnabas.broker.groups.timers import Timers
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.messages.heartbeat import HeartbeatRequest
from barnabas.wire.kafka.messages.join_group import JoinGroupRequest
from barnabas.wire.kafka.messages.leave_group import MemberIdentity
from barnabas.wire.kafka.messages.sync_group import SyncGroupRequest

__all__ = ["NEW_MEMBER_JOIN_TIMEOUT_MS", "GroupMembership"]

NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60 * 1000
"""A new member cannot send heartbeats while it waits; after this long it is considered dead."""

_MOST_ASSIGNMENT_BYTES = 16 << 20
"""Many times what ``max.message.bytes`` of ``__consumer_offsets`` allows for the record,
which may be compressed."""
_MOST_OF_A_NAME = 255
"""Characters of a client's name in its member id, which must fit into answers with
the rest of it."""
_REMOVED_A_STEP = 500
"""Some 2 ms. When thousands of members are late, the others go a millisecond later."""
_KNOWN_MEMBER_ID_SINCE_VERSION = 4  # KIP-394
_SKIP_ASSIGNMENT_SINCE_VERSION = 9  # KIP-814


def _rebalance_timeout_ms(request: JoinGroupRequest) -> int:
    # Version 0 has the session timeout alone.
    return request.rebalance_timeout_ms if request.rebalance_timeout_ms >= 0 else request.session_timeout_ms


class GroupMembership:
    """Decides for loaded groups; the coordinator looks them up and checks the group id."""

    def __init__(self, settings: GroupSettings, rng: Random, timers: Timers[tuple[str, ...]], outbox: Outbox) -> None:
        self._settings = settings
        self._rng = rng
        self._timers = timers
        self._out = outbox

    # JoinGroup

    def accepts_session_timeout(self, session_timeout_ms: int) -> bool:
        return self._settings.min_session_timeout_ms <= session_timeout_ms <= self._settings.max_session_timeout_ms

    def join(self, group: Group, request: JoinGroupRequest, version: int, client_id: str, host: str, to: Any) -> None:
        protocols = [(protocol.name, bytes(protocol.metadata)) for protocol in request.protocols]
        if group.state is GroupState.DEAD:
            self._out.reply(to, join_error(request.member_id, ErrorCode.COORDINATOR_NOT_AVAILABLE))
        elif not self._has_room(group, request.member_id):
            self._remove_member(group, request.member_id)
            self._out.reply(to, join_error("", ErrorCode.GROUP_MAX_SIZE_REACHED))
        elif not group.supports(request.protocol_type, protocols):
            self._out.reply(to, join_error(request.member_id, ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
        elif not request.member_id:
            self._join_unknown(group, request, protocols, version, client_id, host, to)
        elif request.member_id in group.pending_members:
            if request.group_instance_id is not None:
                # A pending member is dynamic: this client confuses two members.
                self._out.reply(to, join_error(request.member_id, ErrorCode.UNKNOWN_SERVER_ERROR))
            else:
                self._add_member(group, request, request.member_id, protocols, client_id, host, to)
        else:
            error = group.check_member(request.member_id, request.group_instance_id)
            if error:
                self._out.reply(to, join_error(request.member_id, error))
            else:
                self._rejoin(group, request, group.members[request.member_id], protocols, to)
        self._try_complete_join(group)

    def _has_room(self, group: Group, member_id: str) -> bool:
        if group.state is GroupState.EMPTY:
            return True
        member = group.members.get(member_id)
        if group.state is GroupState.PREPARING_REBALANCE:
            # Count those that wait, not the members: the limit may have been lowered, and then the
            # last to rejoin are refused.
            return (member is not None and member.join_reply is not None) or (
                group.awaiting_join < self._settings.max_size
            )
        return member is not None or len(group.members) < self._settings.max_size

    def _join_unknown(
        self,
        group: Group,
        request: JoinGroupRequest,
        protocols: Protocols,
        version: int,
        client_id: str,
        host: str,
        to: Any,
    ) -> None:
        instance_id = request.group_instance_id
        unique = UUID(bytes=self._rng.randbytes(16), version=4)
        name = client_id if instance_id is None else instance_id
        member_id = f"{name[:_MOST_OF_A_NAME]}-{unique}"
        if instance_id is not None and instance_id in group.static_members:
            self._replace_static(group, request, member_id, protocols, version, to)
        elif instance_id is None and version >= _KNOWN_MEMBER_ID_SINCE_VERSION:
            group.pending_members.add(member_id)
            self._timers.set(("session", group.group_id, member_id), self._out.now.ms + request.session_timeout_ms)
            self._out.reply(to, join_error(member_id, ErrorCode.MEMBER_ID_REQUIRED))
        else:
            self._add_member(group, request, member_id, protocols, client_id, host, to)

    def _add_member(
        self,
        group: Group,
        request: JoinGroupRequest,
        member_id: str,
        protocols: Protocols,
        client_id: str,
        host: str,
        to: Any,
    ) -> None:
        member = Member(
            group.group_id,
            member_id,
            request.group_instance_id,
            client_id,
            host,
            _rebalance_timeout_ms(request),
            request.session_timeout_ms,
            protocols,
        )
        member.is_new = True
        if group.state is GroupState.PREPARING_REBALANCE and group.generation_id == 0:
            group.member_added = True
        group.add(member, request.protocol_type)
        group.await_join(member, to)
        self._timers.set(member.session_key, self._out.now.ms + NEW_MEMBER_JOIN_TIMEOUT_MS)
        self._rebalance_if_settled(group)

    def _rejoin(self, group: Group, request: JoinGroupRequest, member: Member, protocols: Protocols, to: Any) -> None:
        unchanged = member.protocols == protocols
        is_leader = member.member_id == group.leader_id
        if group.state is GroupState.COMPLETING_REBALANCE and unchanged:
            # It may not have received the answer to its first JoinGroup.
            self._out.reply(to, joined(group, member))
        elif group.state is GroupState.STABLE and unchanged and not is_leader:
            self._out.reply(to, joined(group, member))
        else:
            # A leader requests a rebalance by joining again: the partitions changed.
            group.update(member, protocols, _rebalance_timeout_ms(request), request.session_timeout_ms)
            self._await_join(group, member, to)
            self._rebalance_if_settled(group)

    def _await_join(self, group: Group, member: Member, to: Any) -> None:
        displaced = group.await_join(member, to)
        if displaced is not None:
            self._out.reply(displaced, join_error(member.member_id, ErrorCode.REBALANCE_IN_PROGRESS))

    def _replace_static(
        self, group: Group, request: JoinGroupRequest, member_id: str, protocols: Protocols, version: int, to: Any
    ) -> None:
        """A static member's process was restarted: the new member id replaces the
        old one, which is fenced."""
        instance_id = request.group_instance_id
        assert instance_id is not None
        old_leader_id = group.leader_id
        old_member_id = group.static_members[instance_id]
        self._answer(group, group.members[old_member_id], ErrorCode.FENCED_INSTANCE_ID, old_member_id)
        self._timers.cancel(group.members[old_member_id].session_key)
        member = group.replace_static(instance_id, member_id)
        before = (member.protocols, member.rebalance_timeout_ms, member.session_timeout_ms)
        group.update(member, protocols, _rebalance_timeout_ms(request), request.session_timeout_ms)
        group.await_join(member, to)
        self._restart_session(member)
        if group.state is GroupState.COMPLETING_REBALANCE:
            # The leader may be about to assign to the old member id.
            self._prepare_rebalance(group)
            return
        if group.state is not GroupState.STABLE:
            return
        if group.select_protocol() != group.protocol_name:
            self._prepare_rebalance(group)
            return
        generation_id = group.generation_id

        def stored(error: ErrorCode) -> None:
            still_waits = group.members.get(member_id) is member and member.join_reply is to
            if group.state is not GroupState.STABLE or group.generation_id != generation_id or not still_waits:
                return  # a rebalance began meanwhile; its end answers
            group.take_join_reply(member)
            if error:
                self._timers.cancel(member.session_key)
                group.replace_static(instance_id, old_member_id)
                group.update(member, *before)
                response = join_error("", assignment_write_error(error))
            elif version >= _SKIP_ASSIGNMENT_SINCE_VERSION:
                response = joined(group, member)
                response.skip_assignment = member_id == group.leader_id
            else:
                # With the old leader's id in the answer, a returning leader does not assign: no
                # member would get that assignment.
                response = joined(group, member, with_members=False)
                response.leader = old_leader_id or ""
            self._out.reply(to, response)
            self._restart_session(member)

        self._out.append(group, [_record(group)], stored)

    # SyncGroup

    def sync(self, group: Group, request: SyncGroupRequest, to: Any) -> None:
        error = _check_sync(group, request)
        if error:
            self._out.reply(to, sync_error(error))
            return
        member = group.members[request.member_id]
        if group.state is GroupState.PREPARING_REBALANCE:
            self._out.reply(to, sync_error(ErrorCode.REBALANCE_IN_PROGRESS))
            return
        group.pending_sync.discard(member.member_id)
        if not group.pending_sync:
            self._timers.cancel(group.sync_key)
        if group.state is GroupState.STABLE:
            self._out.reply(to, synced(group, member))
            self._restart_session(member)
            return
        displaced, member.sync_reply = member.sync_reply, to
        if displaced is not None:
            self._out.reply(displaced, sync_error(ErrorCode.REBALANCE_IN_PROGRESS))
        if member.member_id == group.leader_id:
            self._store_assignment(group, request)

    def _store_assignment(self, group: Group, request: SyncGroupRequest) -> None:
        if sum([len(each.member_id) + len(each.assignment) for each in request.assignments]) > _MOST_ASSIGNMENT_BYTES:
            # As when the log refuses the record, but before it is made.
            self._fail_assignment(group, ErrorCode.UNKNOWN_SERVER_ERROR)
            self._prepare_rebalance(group)
            return
        generation_id = group.generation_id

        def stored(error: ErrorCode) -> None:
            if group.generation_id != generation_id:
                return
            if not error and group.state is GroupState.STABLE:
                waiting = []
                for member in group.members.values():
                    if member.sync_reply is not None:
                        waiting.append((member.sync_reply, member.assignment))
                        member.sync_reply = None
                        self._restart_session(member)
                self._out.reply_all(waiting, partial(synced_with, group.protocol_type, group.protocol_name))
            elif error and group.state is GroupState.COMPLETING_REBALANCE:
                self._fail_assignment(group, assignment_write_error(error))
                self._prepare_rebalance(group)

        assignments = {each.member_id: bytes(each.assignment) for each in request.assignments}
        self._out.append(group, [_record(group, assignments)], stored)

    def _fail_assignment(self, group: Group, error: ErrorCode) -> None:
        """Answer the members that wait for their assignment with an error."""
        waiting = []
        for member in group.members.values():
            member.assignment = b""
            if member.sync_reply is not None:
                waiting.append((member.sync_reply, error))
                member.sync_reply = None
                self._restart_session(member)
        self._out.reply_all(waiting, sync_error)

    # Heartbeat

    def heartbeat(self, group: Group, request: HeartbeatRequest, now_ms: int) -> ErrorCode:
        member = group.members.get(request.member_id)
        if group.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if member is None or request.group_instance_id is not None:
            error = group.check_member(request.member_id, request.group_instance_id)
            if error or member is None:
                return error
        if request.generation_id != group.generation_id:
            return ErrorCode.ILLEGAL_GENERATION
        self._timers.set(member.session_key, now_ms + member.session_timeout_ms)
        if group.state is GroupState.PREPARING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def touch_session(self, group: Group, member_id: str) -> None:
        """A request other than a heartbeat came from a member (an offset commit)."""
        self._restart_session(group.members[member_id])

    def _restart_session(self, member: Member) -> None:
        self._timers.set(member.session_key, self._out.now.ms + member.session_timeout_ms)

    # LeaveGroup

    def leave(self, group: Group, leaving: MemberIdentity) -> ErrorCode:
        member_id = leaving.member_id
        if not member_id:
            # An administrator removes static members by their instance id alone.
            member_id = group.static_members.get(leaving.group_instance_id or "", "")
            if not member_id:
                return ErrorCode.UNKNOWN_MEMBER_ID
        elif member_id not in group.pending_members:
            error = group.check_member(member_id, leaving.group_instance_id)
            if error:
                return error
        self._remove_and_rebalance(group, member_id)
        return ErrorCode.NONE

    # Rebalances

    def _rebalance_if_settled(self, group: Group) -> None:
        if GroupState.PREPARING_REBALANCE is not group.state:
            self._prepare_rebalance(group)

    def _prepare_rebalance(self, group: Group) -> None:
        """Make all members join again.

        The first members of an empty group wait group.initial.rebalance.delay.ms for others."""
        out = self._out
        if group.state is GroupState.COMPLETING_REBALANCE:
            self._fail_assignment(group, ErrorCode.REBALANCE_IN_PROGRESS)
        group.pending_sync.clear()
        self._timers.cancel(group.sync_key)
        if group.state is GroupState.EMPTY:
            delay_ms = self._settings.initial_rebalance_delay_ms
            group.initial_join = (delay_ms, max(group.rebalance_timeout_ms - delay_ms, 0))
        else:
            delay_ms = group.rebalance_timeout_ms
            group.initial_join = None
        self._timers.set(group.join_key, out.now.ms + delay_ms)
        group.transition_to(GroupState.PREPARING_REBALANCE, out.now.wall_ms)
        self._try_complete_join(group)

    def _try_complete_join(self, group: Group) -> None:
        if group.state is GroupState.PREPARING_REBALANCE and group.initial_join is None and group.all_joined:
            self._complete_join(group)

    def _on_join_expired(self, group: Group) -> None:
        if group.initial_join is not None:
            delay_ms, remaining_ms = group.initial_join
            if group.member_added and remaining_ms:
                group.member_added = False
                next_delay_ms = min(self._settings.initial_rebalance_delay_ms, remaining_ms)
                group.initial_join = (next_delay_ms, max(remaining_ms - delay_ms, 0))
                self._timers.set(group.join_key, self._out.now.ms + next_delay_ms)
                return
        self._complete_join(group)

    def _complete_join(self, group: Group) -> None:
        """Begin the next generation with the members that joined.

        Static members stay until their session ends."""
        out = self._out
        self._timers.cancel(group.join_key)
        group.initial_join = None
        late = [m.member_id for m in group.members.values() if m.join_reply is None and m.group_instance_id is None]
        for member_id in late[:_REMOVED_A_STEP]:
            self._remove_member(group, member_id)
        if len(late) > _REMOVED_A_STEP:
            self._timers.set(group.join_key, out.now.ms + 1)
            return
        if group.members and not group.elect_leader():
            # Only static members are left and none joined: their sessions will
            # expire, or they will join.
            self._timers.set(group.join_key, out.now.ms + group.rebalance_timeout_ms)
            return
        group.begin_generation(out.now.wall_ms)
        if group.state is GroupState.EMPTY:
            # If this record is lost, a reload restores members whose sessions then expire.
            out.append(group, [_record(group)], lambda _: None)
            return
        out.reply_all(group.take_join_replies(), joined_responses(group))
        for member in group.members.values():
            self._restart_session(member)
            member.is_new = False
        group.pending_sync.update(group.members)
        self._timers.set(group.sync_key, out.now.ms + group.rebalance_timeout_ms)

    def _on_sync_expired(self, group: Group) -> None:
        """Remove the members that did not ask for their assignment, some at a time.

        The rebalance begins with the first of them: those that are still there cannot go on
        with the old generation.
        """
        if group.state in (GroupState.EMPTY, GroupState.DEAD):
            return
        late = list(group.pending_sync)
        for member_id in late[:_REMOVED_A_STEP]:
            if group.members[member_id].join_reply is None:  # or it has come back since
                self._remove_member(group, member_id)
        if late and group.state is not GroupState.PREPARING_REBALANCE:
            self._prepare_rebalance(group)
        if group.state is GroupState.PREPARING_REBALANCE:
            group.pending_sync = set(late[_REMOVED_A_STEP:])
            if group.pending_sync:
                self._timers.set(group.sync_key, self._out.now.ms + 1)
            self._try_complete_join(group)

    # Removal

    def _answer(self, group: Group, member: Member, error: ErrorCode, member_id: str) -> None:
        """Answer whatever waits for the member."""
        reply = group.take_join_reply(member)
        if reply is not None:
            self._out.reply(reply, join_error(member_id, error))
        if member.sync_reply is not None:
            reply, member.sync_reply = member.sync_reply, None
            self._out.reply(reply, sync_error(error))

    def _remove_member(self, group: Group, member_id: str) -> None:
        """Remove a member or pending member without a rebalance."""
        member = group.members.get(member_id)
        if member is not None:
            self._answer(group, member, ErrorCode.UNKNOWN_MEMBER_ID, "")
        if member is not None or member_id in group.pending_members:
            group.remove(member_id)
            self._timers.cancel(("session", group.group_id, member_id) if member is None else member.session_key)

    def _remove_and_rebalance(self, group: Group, member_id: str) -> None:
        """Remove a member or pending member that left or failed, and rebalance its group."""
        was_member = member_id in group.members
        self._remove_member(group, member_id)
        if was_member and group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            self._prepare_rebalance(group)
        else:
            self._try_complete_join(group)

    def timer_fired(self, group: Group, kind: str, member_id: str) -> None:
        """A deadline of the group is over: ``session`` (of a member or pending
        member), ``join`` or ``sync``."""
        if kind == "join":
            self._on_join_expired(group)
        elif kind == "sync":
            self._on_sync_expired(group)
        else:
            member = group.members.get(member_id)
            if member is None or member.is_new or (member.join_reply is None and member.sync_reply is None):
                self._remove_and_rebalance(group, member_id)
            # Otherwise it waits for our answer and cannot send heartbeats: the
            # answer restarts its session.

    # Loading and unloading

    def loaded(self, group: Group) -> None:
        """Give the members of a group from the log a session from now on."""
        for member in group.members.values():
            self._restart_session(member)
        if len(group.members) > self._settings.max_size:
            self._prepare_rebalance(group)

    def unload(self, group: Group) -> None:
        """Another broker coordinates the group now: answer all that wait with NOT_COORDINATOR."""
        for member in group.members.values():
            self._answer(group, member, ErrorCode.NOT_COORDINATOR, member.member_id)
        self.cancel_timers(group)
        group.transition_to(GroupState.DEAD, self._out.now.wall_ms)

    def cancel_timers(self, group: Group) -> None:
        for member_id in (*group.members, *group.pending_members):
            self._timers.cancel(("session", group.group_id, member_id))
        self._timers.cancel(group.join_key)
        self._timers.cancel(group.sync_key)


def _check_sync(group: Group, request: SyncGroupRequest) -> ErrorCode:
    if group.state is GroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    error = group.check_member(request.member_id, request.group_instance_id)
    if error:
        return error
    if request.generation_id != group.generation_id:
        return ErrorCode.ILLEGAL_GENERATION
    if request.protocol_type not in (None, group.protocol_type):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if request.protocol_name not in (None, group.protocol_name):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return ErrorCode.NONE


def _record(group: Group, assignments: dict[str, bytes] | None = None) -> GroupRecord:
    """The group in the form in which it is stored.

    Members without an assignment get an empty one."""
    protocol = group.protocol_name
    members = [
        new_tuple(
            MemberValue,
            (
                member.member_id,
                member.group_instance_id,
                member.client_id,
                member.client_host,
                member.rebalance_timeout_ms,
                member.session_timeout_ms,
                member.metadata(protocol),
                member.assignment if assignments is None else assignments.get(member.member_id, b""),
            ),
        )
        for member in group.members.values()
    ]
    return GroupRecord(
        group.group_id,
        GroupValue(
            protocol_type=group.protocol_type or "",
            generation=group.generation_id,
            protocol=group.protocol_name,
            leader=group.leader_id,
            state_since_ms=group.state_since_ms,
            members=members,
        ),
    )
