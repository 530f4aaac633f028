"""Consumer groups, their members, and how far they are behind.

In Confluent's proxy: ConsumerGroupsResource, ConsumersResource and ConsumerLagsResource.
"""

from barnabas.base.ids import TopicPartition
from barnabas.client.admin.groups import GroupDescription, GroupMember, describe_group, group_offsets, list_groups
from barnabas.client.admin.offsets import LATEST, FoundOffset, list_offsets
from barnabas.rest.api.calls import ApiAnswer, ApiCall, ApiRoute, number_in_path
from barnabas.rest.core.links import Document
from barnabas.rest.errors import RestCode, RestError

__all__ = ["GROUP_ROUTES"]


def _group(call: ApiCall) -> GroupDescription:
    """Raises `RestError` for a group that is not there."""
    found = describe_group(call.connection, call.path["consumer_group_id"])
    if found.state == "Dead":
        raise RestError(RestCode.CONSUMER_GROUP_NOT_FOUND, "Consumer group id not found.")
    return found


def _member(call: ApiCall) -> GroupMember:
    for member in _group(call).members:
        if member.member_id == call.path["consumer_id"]:
            return member
    raise RestError(RestCode.NOT_FOUND, "HTTP 404 Not Found")


def _list(call: ApiCall) -> ApiAnswer:
    listed = list_groups(call.connection)
    found = [call.links.group(describe_group(call.connection, each.group_id), each.type) for each in listed]
    return ApiAnswer(call.links.list_of("ConsumerGroup", ("consumer-groups",), found))


def _get(call: ApiCall) -> ApiAnswer:
    found = _group(call)
    kinds = {each.group_id: each.type for each in list_groups(call.connection)}
    return ApiAnswer(call.links.group(found, kinds.get(found.group_id, "")))


def _consumers(call: ApiCall) -> ApiAnswer:
    found = _group(call)
    documents = (call.links.consumer(found.group_id, member) for member in found.members)
    return ApiAnswer(call.links.list_of("Consumer", ("consumer-groups", found.group_id, "consumers"), documents))


def _consumer(call: ApiCall) -> ApiAnswer:
    return ApiAnswer(call.links.consumer(call.path["consumer_group_id"], _member(call)))


def _assignments(call: ApiCall) -> ApiAnswer:
    group_id, member = call.path["consumer_group_id"], _member(call)
    found = (call.links.assignment(group_id, member.member_id, *place) for place in member.partitions)
    path = ("consumer-groups", group_id, "consumers", member.member_id, "assignments")
    return ApiAnswer(call.links.list_of("ConsumerAssignment", path, found))


def _assignment(call: ApiCall) -> ApiAnswer:
    member = _member(call)
    place = TopicPartition(call.path["topic_name"], number_in_path(call, "partition_id"))
    if place not in member.partitions:
        raise RestError(RestCode.NOT_FOUND, "HTTP 404 Not Found")
    return ApiAnswer(call.links.assignment(call.path["consumer_group_id"], member.member_id, *place))


def _lags_of(call: ApiCall) -> list[Document]:
    """Of each partition with a committed offset."""
    group = _group(call)
    members = {place: member for member in group.members for place in member.partitions}
    committed = group_offsets(call.connection, group.group_id)
    ends = list_offsets(call.connection, dict.fromkeys(committed, LATEST))
    return [
        call.links.lag(group.group_id, *place, committed[place], end.offset, members.get(place))
        for place, end in sorted(ends.items(), key=lambda each: each[0])
        if isinstance(end, FoundOffset)
    ]


def _lags(call: ApiCall) -> ApiAnswer:
    path = ("consumer-groups", call.path["consumer_group_id"], "lags")
    return ApiAnswer(call.links.list_of("ConsumerLag", path, _lags_of(call)))


def _lag(call: ApiCall) -> ApiAnswer:
    wanted = (call.path["topic_name"], number_in_path(call, "partition_id"))
    for lag in _lags_of(call):
        if (lag["topic_name"], lag["partition_id"]) == wanted:
            return ApiAnswer(lag)
    raise RestError(RestCode.NOT_FOUND, "HTTP 404 Not Found")


def _lag_summary(call: ApiCall) -> ApiAnswer:
    lags = _lags_of(call)
    if not lags:
        raise RestError(RestCode.NOT_FOUND, "the group has committed no offsets")
    return ApiAnswer(call.links.lag_summary(call.path["consumer_group_id"], lags))


_GROUP = "/consumer-groups/{consumer_group_id}"
_CONSUMER = f"{_GROUP}/consumers/{{consumer_id}}"
GROUP_ROUTES: list[ApiRoute] = [
    ("GET", "/consumer-groups", _list),
    ("GET", _GROUP, _get),
    ("GET", f"{_GROUP}/consumers", _consumers),
    ("GET", _CONSUMER, _consumer),
    ("GET", f"{_CONSUMER}/assignments", _assignments),
    ("GET", f"{_CONSUMER}/assignments/{{topic_name}}/partitions/{{partition_id}}", _assignment),
    ("GET", f"{_GROUP}/lag-summary", _lag_summary),
    ("GET", f"{_GROUP}/lags", _lags),
    ("GET", f"{_GROUP}/lags/{{topic_name}}/partitions/{{partition_id}}", _lag),
]
"""In the order in which they are looked for."""
