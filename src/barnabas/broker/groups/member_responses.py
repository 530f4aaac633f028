"""The responses to JoinGroup and SyncGroup.

In Kafka: `JoinGroupResult` and `SyncGroupResult`, and the errors of
`GroupMetadataManager.storeGroup`.
"""

from collections.abc import Callable, Sequence
from functools import partial

from barnabas.broker.groups.group import Group, Member
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from barnabas.wire.kafka.messages.sync_group import SyncGroupResponse

__all__ = [
    "assignment_write_error",
    "join_error",
    "joined",
    "joined_responses",
    "sync_error",
    "synced",
    "synced_with",
]

_WRITE_ERRORS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


_MemberRow = tuple[str, str | None, bytes]
"""A member's id, instance id and metadata."""


def assignment_write_error(error: ErrorCode) -> ErrorCode:
    """The error that members get when the group's record could not be appended."""
    return _WRITE_ERRORS.get(error, error)


def join_error(member_id: str, error: ErrorCode) -> JoinGroupResponse:
    """The answer to a member that is not admitted (yet)."""
    return JoinGroupResponse(error_code=error, generation_id=-1, protocol_name=None, leader="", member_id=member_id)


def sync_error(error: ErrorCode) -> SyncGroupResponse:
    """The answer to a member that gets no assignment."""
    return SyncGroupResponse(error_code=error, assignment=b"")


def joined(group: Group, member: Member, *, with_members: bool = True) -> JoinGroupResponse:
    """The answer to a member of the present generation.

    The leader gets all members, to assign by, if ``with_members``."""
    rows = _member_rows(group) if with_members and member.member_id == group.leader_id else []
    return _joined_with(
        group.generation_id, group.protocol_type, group.protocol_name, group.leader_id or "", rows, member.member_id
    )


def joined_responses(group: Group) -> Callable[[str], JoinGroupResponse]:
    """What the members that joined a generation get, by member id.

    The leader gets all members as they are now."""
    return partial(
        _joined_with,
        group.generation_id,
        group.protocol_type,
        group.protocol_name,
        group.leader_id or "",
        _member_rows(group),
    )


def _member_rows(group: Group) -> list[_MemberRow]:
    protocol = group.protocol_name
    return [
        (member.member_id, member.group_instance_id, member.metadata(protocol)) for member in group.members.values()
    ]


def _joined_with(
    generation_id: int,
    protocol_type: str | None,
    protocol_name: str | None,
    leader_id: str,
    rows: Sequence[_MemberRow],
    member_id: str,
) -> JoinGroupResponse:
    members = [
        JoinGroupResponseMember(member_id=each, group_instance_id=instance_id, metadata=metadata)
        for each, instance_id, metadata in (rows if member_id == leader_id else ())
    ]
    return JoinGroupResponse(
        error_code=ErrorCode.NONE,
        generation_id=generation_id,
        protocol_type=protocol_type,
        protocol_name=protocol_name,
        leader=leader_id,
        member_id=member_id,
        members=members,
    )


def synced(group: Group, member: Member) -> SyncGroupResponse:
    """The answer to a member, with its assignment."""
    return synced_with(group.protocol_type, group.protocol_name, member.assignment)


def synced_with(protocol_type: str | None, protocol_name: str | None, assignment: bytes) -> SyncGroupResponse:
    """The answer with an assignment, when the group may have changed."""
    return SyncGroupResponse(
        error_code=ErrorCode.NONE, protocol_type=protocol_type, protocol_name=protocol_name, assignment=assignment
    )
