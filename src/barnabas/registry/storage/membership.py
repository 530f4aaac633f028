"""An instance as a member of the registry's group: what it asks the coordinator next, and what an
answer makes of it. No I/O: the elector sends the requests.

The group's protocol type is ``sr``, its protocol ``v0``. An assignment names the leader, and it
stands until another one comes, also while the group rebalances. It does not outlive the session: an
instance that has not heard from the coordinator for the session's length must take it that another
one leads by now, so it writes nothing (`RegistryMembership.leads`).

In Confluent's registry: `SchemaRegistryCoordinator`. In Kafka: `AbstractCoordinator`.
"""

from dataclasses import dataclass, replace
from enum import Enum

from barnabas.registry.storage.identity import LeaderAssignment, RegistryIdentity, assign
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.wire.kafka.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from barnabas.wire.kafka.messages.leave_group import LeaveGroupRequest, MemberIdentity
from barnabas.wire.kafka.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse

__all__ = [
    "GroupRequest",
    "GroupResponse",
    "GroupTimeouts",
    "MembershipRefusedError",
    "MembershipState",
    "RegistryMembership",
]

GroupRequest = JoinGroupRequest | SyncGroupRequest | HeartbeatRequest
GroupResponse = JoinGroupResponse | SyncGroupResponse | HeartbeatResponse

_PROTOCOL_TYPE, _PROTOCOL = "sr", "v0"
_SEVERAL_LEAVE_FROM = 3  # the version of LeaveGroup from which it names a list of members
_BACKOFF_MS = 100
_REFUSED_BACKOFF_MS = 2000  # what only a person changes, such as a right

_COORDINATOR_MOVED = frozenset(
    (
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    )
)
_MEMBER_IS_GONE = frozenset((ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION))


@dataclass(frozen=True, slots=True)
class GroupTimeouts:
    """As the properties ``kafkagroup.*`` name them."""

    session_ms: int = 10_000
    rebalance_ms: int = 30_000
    heartbeat_ms: int = 3_000


class MembershipState(Enum):
    """What the member does next."""

    JOINING = "join"
    SYNCING = "sync"
    STABLE = "heartbeat"


class MembershipRefusedError(Exception):
    """The coordinator refuses the member, and only a person can change that."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class RegistryMembership:
    """One instance's membership. Times are those of one clock in ms that never goes back."""

    def __init__(self, group_id: str, identity: RegistryIdentity, timeouts: GroupTimeouts) -> None:
        self._group_id = group_id
        self._identity = identity
        self._timeouts = timeouts
        self.state = MembershipState.JOINING
        self._member_id = ""
        self._generation = -1
        self._members: dict[str, bytes] | None = None
        """What each member says of itself, for the one that assigns."""
        self._next_ms = 0
        self._heard_ms = 0
        """When the last request was sent that showed the coordinator a live member."""
        self.assignment: LeaderAssignment | None = None
        """What the group agreed on last; None before that, and after the membership was lost."""
        self.needs_coordinator = True
        """Whether the coordinator is to be looked up before the next request."""

    # What holds

    @property
    def generation(self) -> int:
        """The group's generation that the assignment is of."""
        return self._generation

    def leads(self, now_ms: int) -> bool:
        """Whether this instance may write."""
        return self._is_assigned_to_lead() and now_ms < self.lease_end_ms

    @property
    def lease_end_ms(self) -> int:
        """When the coordinator may give the lead to another one unless it hears from this one."""
        return self._heard_ms + self._timeouts.session_ms

    def leader(self) -> RegistryIdentity | None:
        """Who leads, as far as this one knows."""
        if self.assignment is None or self.assignment.error:
            return None
        return self.assignment.leader

    def _is_assigned_to_lead(self) -> bool:
        found = self.assignment
        return found is not None and not found.error and found.leader_member == self._member_id != ""

    # What to ask

    def wait_ms(self, now_ms: int) -> int:
        """How long until the next request is due."""
        return max(0, self._next_ms - now_ms)

    def request(self) -> GroupRequest:
        """The next request."""
        match self.state:
            case MembershipState.JOINING:
                metadata = replace(self._identity, is_leader=self._is_assigned_to_lead()).encode()
                return JoinGroupRequest(
                    group_id=self._group_id,
                    session_timeout_ms=self._timeouts.session_ms,
                    rebalance_timeout_ms=self._timeouts.rebalance_ms,
                    member_id=self._member_id,
                    protocol_type=_PROTOCOL_TYPE,
                    protocols=[JoinGroupRequestProtocol(name=_PROTOCOL, metadata=metadata)],
                )
            case MembershipState.SYNCING:
                return SyncGroupRequest(
                    group_id=self._group_id,
                    generation_id=self._generation,
                    member_id=self._member_id,
                    protocol_type=_PROTOCOL_TYPE,
                    protocol_name=_PROTOCOL,
                    assignments=self._assignments(),
                )
            case MembershipState.STABLE:
                return HeartbeatRequest(
                    group_id=self._group_id, generation_id=self._generation, member_id=self._member_id
                )

    def _assignments(self) -> list[SyncGroupRequestAssignment]:
        if self._members is None:
            return []
        made = assign(self._members).encode()
        return [SyncGroupRequestAssignment(member_id=member_id, assignment=made) for member_id in self._members]

    def leave_request(self, version: int) -> LeaveGroupRequest | None:
        """What ends the membership at once, in this version; None where there is none."""
        if not self._member_id:
            return None
        if version < _SEVERAL_LEAVE_FROM:
            return LeaveGroupRequest(group_id=self._group_id, member_id=self._member_id)
        member = MemberIdentity(member_id=self._member_id, reason="the instance stops")
        return LeaveGroupRequest(group_id=self._group_id, members=[member])

    # What came

    def answered(self, response: GroupResponse, sent_ms: int, now_ms: int) -> None:
        """Take the answer to the last request.

        Raises `MembershipRefusedError`; it is asked again later then."""
        self._next_ms = now_ms
        if response.error_code:
            self._refused(response, now_ms)
            return
        match response:
            case JoinGroupResponse():
                self._member_id, self._generation = response.member_id, response.generation_id
                is_elector = response.leader == response.member_id
                self._members = {each.member_id: each.metadata for each in response.members} if is_elector else None
                self.state = MembershipState.SYNCING
                self._heard_ms = sent_ms
            case SyncGroupResponse():
                self.state = MembershipState.STABLE
                self._heard_ms = sent_ms
                self._next_ms = now_ms + self._timeouts.heartbeat_ms
                self.assignment = self._decoded(response.assignment)
            case HeartbeatResponse():
                self._heard_ms = sent_ms
                self._next_ms = now_ms + self._timeouts.heartbeat_ms

    def _decoded(self, data: bytes) -> LeaderAssignment:
        """An assignment that is not understood leaves the group without a leader."""
        try:
            return LeaderAssignment.decode(data)
        except ValueError:
            return LeaderAssignment()

    def _refused(self, response: GroupResponse, now_ms: int) -> None:
        code = response.error_code
        if code == ErrorCode.MEMBER_ID_REQUIRED and isinstance(response, JoinGroupResponse):
            self._member_id = response.member_id
        elif code == ErrorCode.REBALANCE_IN_PROGRESS:
            self.state = MembershipState.JOINING
        elif code in _MEMBER_IS_GONE:
            if code == ErrorCode.UNKNOWN_MEMBER_ID:
                self._member_id = ""
            self._lose()
        elif code in _COORDINATOR_MOVED:
            self.needs_coordinator = True
            self._next_ms = now_ms + _BACKOFF_MS
        else:
            self._lose()
            self._next_ms = now_ms + _REFUSED_BACKOFF_MS
            raise MembershipRefusedError(code)

    def left(self) -> None:
        """The member has left, and is to join as a new one: the group agrees again."""
        self._member_id = ""
        self._lose()

    def failed(self, now_ms: int) -> None:
        """No answer came: look the coordinator up, and ask again.

        The assignment stands until the session's end."""
        self.needs_coordinator = True
        self._next_ms = now_ms + _BACKOFF_MS

    def _lose(self) -> None:
        self.state = MembershipState.JOINING
        self.assignment = None
        self._members = None
