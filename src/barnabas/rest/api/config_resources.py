"""Configurations of topics, of brokers, and of all brokers.

In Confluent's proxy: TopicConfigsResource, BrokerConfigsResource and ClusterConfigsResource.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from barnabas.client.admin.configurations import (
    ConfigEntry,
    Resource,
    ResourceType,
    alter_configs,
    describe_configs,
)
from barnabas.client.admin.topics import describe_topics
from barnabas.rest.api.calls import (
    ApiAnswer,
    ApiCall,
    ApiRoute,
    flag,
    needed_object,
    number_in_path,
    text_field,
)
from barnabas.rest.core.links import Document
from barnabas.rest.errors import RestCode, RestError

__all__ = ["CONFIG_ROUTES"]

_Wanted = tuple[Resource, tuple[object, ...], str, Callable[[ConfigEntry], Document]]
"""What is configured, its path, its kind, and what makes the document of a property."""


def _of_topic(call: ApiCall) -> _Wanted:
    name = call.path["topic_name"]
    describe_topics(call.connection, [name])  # a topic that does not exist has all defaults
    path = ("topics", name, "configs")
    return Resource(ResourceType.TOPIC, name), path, "TopicConfig", partial(call.links.topic_config, name)


def _of_broker(call: ApiCall) -> _Wanted:
    number = number_in_path(call, "broker_id")
    if number not in {broker.id for broker in call.connection.describe_cluster(fresh=True).brokers}:
        raise RestError(RestCode.NOT_FOUND, f"Broker not found: {number}")
    path = ("brokers", number, "configs")
    resource = Resource(ResourceType.BROKER, str(number))
    return resource, path, "BrokerConfig", partial(call.links.broker_config, number)


def _of_cluster(call: ApiCall) -> _Wanted:
    return Resource(ResourceType.BROKER, ""), ("broker-configs",), "ClusterConfig", call.links.cluster_config


def _entries(call: ApiCall, resource: Resource) -> list[ConfigEntry]:
    return describe_configs(call.connection, [resource], synonyms=True).get(resource, [])


def _list(find: Callable[[ApiCall], _Wanted], call: ApiCall) -> ApiAnswer:
    resource, path, kind, made = find(call)
    return ApiAnswer(call.links.list_of(kind, path, map(made, _entries(call, resource))))


def _get(find: Callable[[ApiCall], _Wanted], call: ApiCall) -> ApiAnswer:
    resource, _, _, made = find(call)
    wanted = call.path["name"]
    for entry in _entries(call, resource):
        if entry.name == wanted:
            return ApiAnswer(made(entry))
    raise RestError(RestCode.NOT_FOUND, f"Config not found: {wanted}")


def _put(find: Callable[[ApiCall], _Wanted], call: ApiCall) -> ApiAnswer:
    given = needed_object(call.body)
    value = given.get("value")
    if value is not None and not isinstance(value, str):
        raise RestError(RestCode.BAD_REQUEST, "value: a text is expected")
    return _alter(find, call, {call.path["name"]: value})


def _reset(find: Callable[[ApiCall], _Wanted], call: ApiCall) -> ApiAnswer:
    return _alter(find, call, {call.path["name"]: None})


def _alter(
    find: Callable[[ApiCall], _Wanted], call: ApiCall, changes: dict[str, str | None], *, is_trial: bool = False
) -> ApiAnswer:
    resource, *_ = find(call)
    alter_configs(call.connection, resource, changes, validate_only=is_trial)
    return ApiAnswer(status=204)


def _alter_all(find: Callable[[ApiCall], _Wanted], call: ApiCall) -> ApiAnswer:
    given = needed_object(call.body)
    entries = given.get("data")
    if not isinstance(entries, list):
        raise RestError(RestCode.BAD_REQUEST, "data: a list is expected")
    changes: dict[str, str | None] = {}
    for entry in entries:
        name = text_field(entry, "name")
        if name in changes:
            raise RestError(RestCode.BAD_REQUEST, f"{name} is there twice")
        changes[name] = _change(entry)
    return _alter(find, call, changes, is_trial=flag(given, "validate_only"))


def _change(entry: Any) -> str | None:
    operation, value = entry.get("operation") or "SET", entry.get("value")
    if operation not in ("SET", "DELETE"):
        raise RestError(RestCode.BAD_REQUEST, f"operation={str(operation)[:20]}: SET or DELETE is expected")
    if operation == "DELETE":
        return None
    if not isinstance(value, str):
        raise RestError(RestCode.BAD_REQUEST, "value: a text is expected")
    return value


def _of_all_topics(call: ApiCall) -> ApiAnswer:
    resources = [Resource(ResourceType.TOPIC, each.name) for each in describe_topics(call.connection)]
    found = describe_configs(call.connection, resources, synonyms=True)
    documents = (call.links.topic_config(each.name, entry) for each in resources for entry in found.get(each, []))
    return ApiAnswer(call.links.list_of("TopicConfig", ("topics", "-", "configs"), documents))


def _of_all_brokers(call: ApiCall) -> ApiAnswer:
    numbers = [broker.id for broker in call.connection.describe_cluster(fresh=True).brokers]
    resources = [Resource(ResourceType.BROKER, str(number)) for number in numbers]
    found = describe_configs(call.connection, resources, synonyms=True)
    documents = (call.links.broker_config(int(each.name), entry) for each in resources for entry in found.get(each, []))
    return ApiAnswer(call.links.list_of("BrokerConfig", ("brokers", "-", "configs"), documents))


def _routes(path: str, find: Callable[[ApiCall], _Wanted]) -> list[ApiRoute]:
    return [
        ("GET", path, partial(_list, find)),
        ("POST", f"{path}:alter", partial(_alter_all, find)),
        ("GET", f"{path}/{{name}}", partial(_get, find)),
        ("PUT", f"{path}/{{name}}", partial(_put, find)),
        ("DELETE", f"{path}/{{name}}", partial(_reset, find)),
    ]


CONFIG_ROUTES: list[ApiRoute] = [
    ("GET", "/topics/-/configs", _of_all_topics),
    ("GET", "/brokers/-/configs", _of_all_brokers),
    *_routes("/topics/{topic_name}/configs", _of_topic),
    *_routes("/brokers/{broker_id}/configs", _of_broker),
    *_routes("/broker-configs", _of_cluster),
]
"""In the order in which they are looked for."""
