"""A classic group's state in memory: its members, the protocols they support, and
the requests that wait.

The state machine (`GROUP_TRANSITIONS`)::

    from                  when                                          to
    Empty                 a member joins                                PreparingRebalance
    PreparingRebalance    all have joined, or the time is up            CompletingRebalance
    PreparingRebalance    no member is left                             Empty
    CompletingRebalance   the leader's assignment comes                 Stable
    CompletingRebalance   a member joins, leaves, fails or changes      PreparingRebalance
    or Stable             what it supports

Every pass through PreparingRebalance ends in a new generation. `GroupCoordinator` decides on
transitions. This module keeps the tables: members and static members, how many members support
which protocol, how many wait for the others to join. Requests that wait are opaque tokens, called
replies here; only the edge knows what they are.

In Kafka: `GroupMetadata`, `MemberMetadata` and `GroupState`.
"""

from collections import Counter
from enum import Enum
from typing import Any

from barnabas.broker.groups.offsets import GroupOffsets
from barnabas.broker.groups.records import GroupValue
from barnabas.wire.kafka.consumer_protocol import PROTOCOL_TYPE, begins_with_topics, decode_subscription, encode_topics
from barnabas.wire.kafka.errors import ErrorCode, MalformedMessageError

__all__ = ["GROUP_TRANSITIONS", "Group", "GroupState", "Member", "Protocols"]

Protocols = list[tuple[str, bytes]]
"""Names of assignment protocols with the member's metadata for each, the preferred first."""


class GroupState(Enum):
    """The values are Kafka's names, as ListGroups and DescribeGroups give them."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


GROUP_TRANSITIONS: dict[GroupState, frozenset[GroupState]] = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE, GroupState.DEAD}),
    GroupState.PREPARING_REBALANCE: frozenset({GroupState.COMPLETING_REBALANCE, GroupState.EMPTY, GroupState.DEAD}),
    GroupState.COMPLETING_REBALANCE: frozenset({GroupState.STABLE, GroupState.PREPARING_REBALANCE, GroupState.DEAD}),
    GroupState.STABLE: frozenset({GroupState.PREPARING_REBALANCE, GroupState.DEAD}),
    # Dead is a group that is unloaded, or whose tombstones are on their way to the log. Only the
    # failure to write them leads back.
    GroupState.DEAD: frozenset({GroupState.EMPTY}),
}


class Member:
    """One member of a group."""

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "group_instance_id",
        "is_new",
        "join_reply",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session_key",
        "session_timeout_ms",
        "sync_reply",
    )

    def __init__(
        self,
        group_id: str,
        member_id: str,
        group_instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocols: Protocols,
        assignment: bytes = b"",
    ) -> None:
        self.group_instance_id = group_instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocols = protocols
        self.assignment = assignment
        self.join_reply: Any = None
        self.sync_reply: Any = None
        self.is_new = False
        """Whether it has not been part of a generation yet."""
        self.rename(group_id, member_id)

    def rename(self, group_id: str, member_id: str) -> None:
        self.member_id = member_id
        self.session_key = ("session", group_id, member_id)

    def metadata(self, protocol: str | None) -> bytes:
        """The member's metadata for ``protocol``; empty if it does not support it."""
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        return b""


class Group:
    """A group with its members and offsets."""

    __slots__ = (
        "_supporters",
        "awaiting_join",
        "generation_id",
        "group_id",
        "initial_join",
        "join_key",
        "leader_id",
        "member_added",
        "members",
        "offsets",
        "partition",
        "pending_members",
        "pending_sync",
        "protocol_name",
        "protocol_type",
        "state",
        "state_since_ms",
        "static_members",
        "subscribed_topics",
        "sync_key",
    )

    def __init__(self, group_id: str, partition: int, state_since_ms: int | None) -> None:
        self.group_id = group_id
        self.partition = partition
        """The partition of ``__consumer_offsets`` that the group's records are in."""
        self.state = GroupState.EMPTY
        self.state_since_ms = state_since_ms
        """Wall-clock time of the last transition; None when a record of an old
        version does not have it."""
        self.generation_id = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader_id: str | None = None
        self.members: dict[str, Member] = {}
        self.static_members: dict[str, str] = {}
        """Member ids by group.instance.id (KIP-345)."""
        self.pending_members: set[str] = set()
        """Member ids that were assigned and have not joined yet (KIP-394)."""
        self.pending_sync: set[str] = set()
        """Members of the generation that have not asked for their assignment."""
        self.awaiting_join = 0
        self.subscribed_topics: frozenset[str] | None = None
        """The topics that consumers of the generation subscribe to; None when they
        are not known."""
        self.member_added = False
        """Whether a member joined since the initial rebalance delay began."""
        self.initial_join: tuple[int, int] | None = None
        """While an empty group waits for its first members: this delay and what may
        follow it, in ms."""
        self.offsets = GroupOffsets()
        self.join_key = ("join", group_id)
        self.sync_key = ("sync", group_id)
        self._supporters: Counter[str] = Counter()

    def transition_to(self, state: GroupState, wall_ms: int) -> None:
        assert state in GROUP_TRANSITIONS[self.state], f"group {self.group_id} cannot go from {self.state} to {state}"
        self.state = state
        self.state_since_ms = wall_ms

    # Members

    def add(self, member: Member, protocol_type: str) -> None:
        """Add a member; the first one sets the group's protocol type and is its leader."""
        if not self.members:
            self.protocol_type = protocol_type
        if self.leader_id is None:
            self.leader_id = member.member_id
        if member.group_instance_id is not None:
            self.static_members[member.group_instance_id] = member.member_id
        self.members[member.member_id] = member
        self._supporters.update(name for name, _ in member.protocols)
        self.pending_members.discard(member.member_id)

    def remove(self, member_id: str) -> Member | None:
        """Remove a member or pending member. Its waiting replies must be taken before."""
        self.pending_members.discard(member_id)
        self.pending_sync.discard(member_id)
        member = self.members.pop(member_id, None)
        if member is None:
            return None
        assert member.join_reply is None, "a member that waits in JoinGroup must be answered before it is removed"
        assert member.sync_reply is None, "a member that waits in SyncGroup must be answered before it is removed"
        for name, _ in member.protocols:
            self._supporters[name] -= 1
        if member.group_instance_id is not None:
            del self.static_members[member.group_instance_id]
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        return member

    def replace_static(self, group_instance_id: str, new_member_id: str) -> Member:
        """Give the static member a new member id: its process was restarted."""
        old_member_id = self.static_members[group_instance_id]
        member = self.members.pop(old_member_id)
        if old_member_id in self.pending_sync:
            self.pending_sync.remove(old_member_id)
            self.pending_sync.add(new_member_id)
        member.rename(self.group_id, new_member_id)
        self.members[new_member_id] = member
        self.static_members[group_instance_id] = new_member_id
        if self.leader_id == old_member_id:
            self.leader_id = new_member_id
        return member

    def update(self, member: Member, protocols: Protocols, rebalance_timeout_ms: int, session_timeout_ms: int) -> None:
        """Take the protocols and timeouts that a rejoining member sends."""
        self._supporters.subtract(name for name, _ in member.protocols)
        self._supporters.update(name for name, _ in protocols)
        member.protocols = protocols
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms

    def await_join(self, member: Member, reply: Any) -> Any:
        """Keep the reply until the generation begins. Returns the reply that this one displaces."""
        displaced, member.join_reply = member.join_reply, reply
        if displaced is None:
            self.awaiting_join += 1
        return displaced

    def take_join_reply(self, member: Member) -> Any:
        reply, member.join_reply = member.join_reply, None
        if reply is not None:
            self.awaiting_join -= 1
        return reply

    def take_join_replies(self) -> list[tuple[Any, str]]:
        """All replies that wait for the generation, with the ids of their members."""
        waiting = []
        for member in self.members.values():
            if member.join_reply is not None:
                waiting.append((member.join_reply, member.member_id))
                member.join_reply = None
        self.awaiting_join = 0
        return waiting

    def check_member(self, member_id: str, group_instance_id: str | None) -> ErrorCode:
        """Whether the sender is a member, and the current one of its instance id: NONE,
        FENCED_INSTANCE_ID or UNKNOWN_MEMBER_ID."""
        if group_instance_id is not None:
            current = self.static_members.get(group_instance_id)
            if current is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if current != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    @property
    def rebalance_timeout_ms(self) -> int:
        """How long the slowest member may take to rejoin."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def all_joined(self) -> bool:
        return self.awaiting_join == len(self.members) and not self.pending_members

    # Protocols

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Whether a member with these protocols can be in the group: one is known to
        all its members."""
        if self.state is GroupState.EMPTY:
            return bool(protocol_type and protocols)
        member_count = len(self.members)
        return protocol_type == self.protocol_type and any(
            self._supporters[name] == member_count for name, _ in protocols
        )

    def select_protocol(self) -> str:
        """The protocol that most members prefer among those that all support; of equals,
        the one voted for first."""
        member_count = len(self.members)
        candidates = {name for name, supporters in self._supporters.items() if supporters == member_count}
        votes: dict[str, int] = {}
        for member in self.members.values():
            for name, _ in member.protocols:
                if name in candidates:
                    votes[name] = votes.get(name, 0) + 1
                    break
        assert votes, f"no protocol is common to the members of group {self.group_id}"
        return max(votes, key=votes.__getitem__)

    def elect_leader(self) -> bool:
        """Make sure that the leader is one of the members that joined; False when none did."""
        if self.leader_id is None:
            return False
        if self.members[self.leader_id].join_reply is not None:
            return True
        joined = next((member.member_id for member in self.members.values() if member.join_reply is not None), None)
        if joined is None:
            return False
        self.leader_id = joined
        return True

    def begin_generation(self, wall_ms: int) -> None:
        """Begin the next generation with the members that joined, and choose its protocol.

        Without members the group is Empty."""
        self.generation_id += 1
        self.pending_sync.clear()
        self.protocol_name = self.select_protocol() if self.members else None
        self.subscribed_topics = self._find_subscribed_topics()
        self.transition_to(GroupState.COMPLETING_REBALANCE if self.members else GroupState.EMPTY, wall_ms)

    def _find_subscribed_topics(self) -> frozenset[str] | None:
        if self.protocol_type != PROTOCOL_TYPE:
            return None
        topics: set[str] = set()
        latest: bytes | None = None
        try:
            for member in self.members.values():
                metadata = member.metadata(self.protocol_name)
                if latest is not None and begins_with_topics(metadata, latest):
                    continue  # thousands of members mostly subscribe to the same topics
                found = decode_subscription(metadata, as_version=0).topics
                topics.update(found)
                latest = encode_topics(found)
        except MalformedMessageError:
            # A client's own format under the consumers' name: it then owns all its topics.
            return None
        return frozenset(topics)

    # Records

    def apply_assignment(self, value: GroupValue, wall_ms: int) -> None:
        """The group's record is committed: if it is of the current generation, the
        rebalance is complete."""
        if self.state is not GroupState.COMPLETING_REBALANCE or value.generation != self.generation_id:
            return
        for stored in value.members:
            member = self.members.get(stored.member_id)
            if member is not None:
                member.assignment = stored.assignment
        self.transition_to(GroupState.STABLE, wall_ms)

    def load(self, value: GroupValue) -> None:
        """Take the state of a record: Stable with its members and their assignments, or Empty."""
        for stored in value.members:
            member = Member(
                self.group_id,
                stored.member_id,
                stored.group_instance_id,
                stored.client_id,
                stored.client_host,
                stored.rebalance_timeout_ms,
                stored.session_timeout_ms,
                [(value.protocol or "", stored.subscription)],
                stored.assignment,
            )
            self.add(member, value.protocol_type)
        if value.leader in self.members:
            self.leader_id = value.leader
        self.generation_id = value.generation
        self.protocol_type = value.protocol_type or None
        self.protocol_name = value.protocol
        self.state = GroupState.STABLE if self.members else GroupState.EMPTY
        self.state_since_ms = value.state_since_ms
        self.subscribed_topics = self._find_subscribed_topics()
