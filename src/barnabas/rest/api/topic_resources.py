"""Topics, partitions, replicas and their moves.

In Confluent's proxy: TopicsResource, PartitionsResource and ReplicasResource.
"""

from collections.abc import Sequence
from typing import Any

from barnabas.base.ids import TopicPartition
from barnabas.client.admin.offsets import EARLIEST, LATEST, list_offsets
from barnabas.client.admin.reassignments import list_reassignments
from barnabas.client.admin.topics import (
    PartitionDescription,
    TopicDescription,
    create_partitions,
    create_topic,
    delete_topics,
    describe_topics,
)
from barnabas.client.errors import ClientError
from barnabas.rest.api.calls import (
    ApiAnswer,
    ApiCall,
    ApiRoute,
    flag,
    needed_object,
    number_in_path,
    text_field,
)
from barnabas.rest.errors import RestCode, RestError

__all__ = ["TOPIC_ROUTES"]

_UNKNOWN = "This server does not host this topic-partition."


def _topic(call: ApiCall) -> TopicDescription:
    return describe_topics(call.connection, [call.path["topic_name"]])[0]


def _partition(call: ApiCall) -> tuple[str, PartitionDescription]:
    topic, number = _topic(call), number_in_path(call, "partition_id")
    for partition in topic.partitions:
        if partition.partition == number:
            return topic.name, partition
    raise RestError(RestCode.UNKNOWN_TOPIC_OR_PARTITION, _UNKNOWN)


def _list(call: ApiCall) -> ApiAnswer:
    found = (call.links.topic(each) for each in describe_topics(call.connection))
    return ApiAnswer(call.links.list_of("Topic", ("topics",), found))


def _get(call: ApiCall) -> ApiAnswer:
    return ApiAnswer(call.links.topic(_topic(call)))


def _create(call: ApiCall) -> ApiAnswer:
    given = needed_object(call.body)
    name = text_field(given, "topic_name")
    is_trial = flag(given, "validate_only")
    assignment = _assignment(given.get("replicas_assignments"))
    count, replicas = (_count(given, each) for each in ("partitions_count", "replication_factor"))
    if assignment and (count != -1 or replicas != -1):
        raise RestError(
            RestCode.BAD_REQUEST, "replicas_assignments cannot be used with partitions_count or replication_factor"
        )
    create_topic(
        call.connection,
        name,
        partitions=count,
        replication_factor=replicas,
        assignment=assignment,
        configs=_configs(given.get("configs")),
        validate_only=is_trial,
    )
    if is_trial:
        planned = call.links.planned_topic(
            name, len(assignment) or max(0, count), len(assignment[0]) if assignment else max(0, replicas)
        )
        return ApiAnswer(planned)
    made = call.links.topic(describe_topics(call.connection, [name])[0])
    return ApiAnswer(made, 201, {"Location": made["metadata"]["self"]})


def _count(given: Any, name: str) -> int:
    value = given.get(name)
    if value is None:
        return -1
    if isinstance(value, bool) or not isinstance(value, int) or not -1 <= value < 1 << 31:
        raise RestError(RestCode.BAD_REQUEST, f"{name}: a whole number is expected")
    return value


def _configs(found: Any) -> dict[str, str]:
    if found is None:
        return {}
    if not isinstance(found, list):
        raise RestError(RestCode.BAD_REQUEST, "configs: a list is expected")
    made = {}
    for each in found:
        value = each.get("value") if isinstance(each, dict) else None
        if value is not None and not isinstance(value, str):
            raise RestError(RestCode.BAD_REQUEST, "the value of a configuration: a text is expected")
        name = text_field(each, "name")
        if value is not None:  # null is the default
            made[name] = value
    return made


def _assignment(found: Any) -> list[list[int]]:
    if found is None:
        return []
    wrong = RestError(
        RestCode.BAD_REQUEST, 'replicas_assignments: brokers by partition, such as {"0": [1, 2]}, are expected'
    )
    if not isinstance(found, dict):
        raise wrong
    by_number = {}
    for key, brokers in found.items():
        if not key.isdecimal() or not isinstance(brokers, list) or not brokers:
            raise wrong
        if not all(isinstance(each, int) and not isinstance(each, bool) for each in brokers):
            raise wrong
        by_number[int(key)] = brokers
    if sorted(by_number) != list(range(len(found))):
        raise wrong
    return [by_number[number] for number in range(len(found))]


def _grow(call: ApiCall) -> ApiAnswer:
    if call.body is None:
        raise RestError(RestCode.INVALID_PAYLOAD, "Payload error. Request body is empty. Partitions_count is required.")
    count = _count(needed_object(call.body), "partitions_count")
    create_partitions(call.connection, {call.path["topic_name"]: count})
    return _get(call)


def _delete(call: ApiCall) -> ApiAnswer:
    delete_topics(call.connection, [call.path["topic_name"]])
    return ApiAnswer(status=204)


# Partitions


def _list_partitions(call: ApiCall) -> ApiAnswer:
    topic = _topic(call)
    found = (call.links.partition(topic.name, each) for each in topic.partitions)
    return ApiAnswer(call.links.list_of("Partition", ("topics", topic.name, "partitions"), found))


def _get_partition(call: ApiCall) -> ApiAnswer:
    return ApiAnswer(call.links.partition(*_partition(call)))


def _get_offsets(call: ApiCall) -> ApiAnswer:
    topic, partition = _partition(call)
    place = TopicPartition(topic, partition.partition)
    ends = []
    for spec in (EARLIEST, LATEST):
        found = list_offsets(call.connection, {place: spec})[place]
        if isinstance(found, ClientError):
            raise found
        ends.append(found.offset)
    return ApiAnswer(call.links.partition_with_offsets(topic, partition.partition, *ends))


def _list_replicas(call: ApiCall) -> ApiAnswer:
    topic, partition = _partition(call)
    path = ("topics", topic, "partitions", partition.partition, "replicas")
    found = (call.links.replica(topic, partition, broker_id) for broker_id in partition.replicas)
    return ApiAnswer(call.links.list_of("Replica", path, found))


def _get_replica(call: ApiCall) -> ApiAnswer:
    topic, partition = _partition(call)
    broker_id = number_in_path(call, "broker_id")
    if broker_id not in partition.replicas:
        raise RestError(RestCode.NOT_FOUND, "HTTP 404 Not Found")
    return ApiAnswer(call.links.replica(topic, partition, broker_id))


def _replicas_of_broker(call: ApiCall) -> ApiAnswer:
    broker_id = number_in_path(call, "broker_id")
    found = (
        call.links.replica(topic.name, partition, broker_id)
        for topic in describe_topics(call.connection)
        for partition in topic.partitions
        if broker_id in partition.replicas
    )
    return ApiAnswer(call.links.list_of("Replica", ("brokers", broker_id, "partition-replicas"), found))


# Moves


def _reassignments(call: ApiCall, places: Sequence[TopicPartition] | None, path: Sequence[object]) -> ApiAnswer:
    moves = list_reassignments(call.connection, places)
    found = (call.links.reassignment(*place, move) for place, move in sorted(moves.items(), key=lambda each: each[0]))
    return ApiAnswer(call.links.list_of("Reassignment", path, found))


def _all_reassignments(call: ApiCall) -> ApiAnswer:
    return _reassignments(call, None, ("topics", "-", "partitions", "-", "reassignment"))


def _reassignments_of_topic(call: ApiCall) -> ApiAnswer:
    topic = _topic(call)
    places = [TopicPartition(topic.name, each.partition) for each in topic.partitions]
    return _reassignments(call, places, ("topics", topic.name, "partitions", "-", "reassignment"))


def _reassignment(call: ApiCall) -> ApiAnswer:
    topic, partition = _partition(call)
    place = TopicPartition(topic, partition.partition)
    found = list_reassignments(call.connection, [place]).get(place)
    if found is None:
        raise RestError(RestCode.NOT_FOUND, f"the replicas of {place} are not being moved")
    return ApiAnswer(call.links.reassignment(topic, partition.partition, found))


_PARTITION = "/topics/{topic_name}/partitions/{partition_id}"
TOPIC_ROUTES: list[ApiRoute] = [
    ("GET", "/topics", _list),
    ("POST", "/topics", _create),
    ("GET", "/topics/-/partitions/-/reassignment", _all_reassignments),
    ("GET", "/topics/{topic_name}", _get),
    ("PATCH", "/topics/{topic_name}", _grow),
    ("DELETE", "/topics/{topic_name}", _delete),
    ("GET", "/topics/{topic_name}/partitions", _list_partitions),
    ("GET", "/topics/{topic_name}/partitions/-/reassignment", _reassignments_of_topic),
    ("GET", _PARTITION, _get_partition),
    ("GET", f"{_PARTITION}/offset", _get_offsets),
    ("GET", f"{_PARTITION}/reassignment", _reassignment),
    ("GET", f"{_PARTITION}/replicas", _list_replicas),
    ("GET", f"{_PARTITION}/replicas/{{broker_id}}", _get_replica),
    ("GET", "/brokers/{broker_id}/partition-replicas", _replicas_of_broker),
]
"""In the order in which they are looked for."""
