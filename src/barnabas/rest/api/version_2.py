"""What version 2 says of brokers, topics and partitions.

In Confluent's proxy: the resources of version 2, such as TopicsResource.
"""

from typing import Any

from barnabas.base.ids import TopicPartition
from barnabas.client.admin.configurations import Resource, ResourceType, describe_configs
from barnabas.client.admin.offsets import EARLIEST, LATEST, list_offsets
from barnabas.client.admin.topics import PartitionDescription, TopicDescription, describe_topics
from barnabas.client.errors import ClientError
from barnabas.rest.api.calls import ApiAnswer, ApiCall, ApiRoute
from barnabas.rest.errors import RestCode, RestError, topic_error_of

__all__ = ["VERSION_2_ROUTES"]

_LARGEST = (1 << 31) - 1
_MOST_DIGITS = 10


def _root(_: ApiCall) -> ApiAnswer:
    return ApiAnswer({})


def _brokers(call: ApiCall) -> ApiAnswer:
    return ApiAnswer({"brokers": [broker.id for broker in call.connection.describe_cluster(fresh=True).brokers]})


def _topics(call: ApiCall) -> ApiAnswer:
    return ApiAnswer([topic.name for topic in describe_topics(call.connection)])


def _described(call: ApiCall) -> TopicDescription:
    try:
        return describe_topics(call.connection, [call.path["topic_name"]])[0]
    except ClientError as error:
        raise topic_error_of(error) from error


def _topic(call: ApiCall) -> ApiAnswer:
    topic = _described(call)
    resource = Resource(ResourceType.TOPIC, topic.name)
    configs = describe_configs(call.connection, [resource])[resource]
    document = {
        "name": topic.name,
        "configs": {entry.name: entry.value for entry in configs},
        "partitions": [_partition_document(each) for each in topic.partitions],
    }
    return ApiAnswer(document)


def _partition_document(partition: PartitionDescription) -> dict[str, Any]:
    return {
        "partition": partition.partition,
        "leader": -1 if partition.leader is None else partition.leader,
        "replicas": [
            {"broker": each, "leader": each == partition.leader, "in_sync": each in partition.isr}
            for each in partition.replicas
        ],
    }


def _partitions(call: ApiCall) -> ApiAnswer:
    return ApiAnswer([_partition_document(each) for each in _described(call).partitions])


def _found_partition(call: ApiCall) -> PartitionDescription:
    text = call.path["partition_id"]
    number = (
        int(text) if text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS and int(text) <= _LARGEST else -1
    )
    for partition in _described(call).partitions:
        if partition.partition == number:
            return partition
    raise RestError(RestCode.PARTITION_NOT_FOUND, "Partition not found.")


def _partition(call: ApiCall) -> ApiAnswer:
    return ApiAnswer(_partition_document(_found_partition(call)))


def _offsets(call: ApiCall) -> ApiAnswer:
    place = TopicPartition(call.path["topic_name"], _found_partition(call).partition)
    found = {}
    for name, spec in (("beginning_offset", EARLIEST), ("end_offset", LATEST)):
        offset = list_offsets(call.connection, {place: spec})[place]
        if isinstance(offset, ClientError):
            raise topic_error_of(offset, place.partition)
        found[name] = offset.offset
    return ApiAnswer(found)


_PARTITION = "/topics/{topic_name}/partitions/{partition_id}"
VERSION_2_ROUTES: list[ApiRoute] = [
    ("GET", "/", _root),
    ("GET", "/brokers", _brokers),
    ("GET", "/topics", _topics),
    ("GET", "/topics/{topic_name}", _topic),
    ("GET", "/topics/{topic_name}/partitions", _partitions),
    ("GET", _PARTITION, _partition),
    ("GET", f"{_PARTITION}/offsets", _offsets),
]
"""In the order in which they are looked for."""
