"""Whether a broker's answer is one to the question that was asked.

A decoded response is well formed, and may still say what no broker may say: leave out a resource
that was named, name one that was not, say the same thing twice, count below zero, give an address
that is none. `check_answer` compares each answer with its request before anything else looks at it,
so that callers may rely on the following:

- each thing that was asked for by name is there once, or the response has an error
  code for the whole request;
- nothing else is there;
- numbers are in the range that the protocol gives them, and addresses of brokers can
  be connected to.

What a newer broker may legally send is no error: codes, types, states and sources that
are not known here pass.

`_ANSWERS` has one entry for each API that clients use: the keys in its request and the keys in its
response. Paths are written ``topics.name partitions.partition_index``: for each element of
``topics`` its name, with each element of its ``partitions``, by ``partition_index``. An element
that is a text or a number is its own key.

In Kafka: the handlers in ``org.apache.kafka.clients.admin.internals``, and `KafkaAdminClient`.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from itertools import chain
from operator import attrgetter
from typing import Any, NamedTuple

from barnabas.base.errors import CorruptDataError
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.schema import Message, Struct

__all__ = ["WrongAnswerError", "check_answer", "is_checked"]


class WrongAnswerError(CorruptDataError):
    """An answer that the protocol does not allow; the message says what is wrong with it.

    Callers get a `ProtocolError`."""


_Keys = Iterable[Any]


class _Rule(NamedTuple):
    """What identifies the elements of an API's request and response.

    ``asked`` gives None where all that exist are asked for."""

    asked: Callable[[Any], _Keys | None]
    answered: Callable[[Any], _Keys]
    what: str
    """What a key names, for errors."""
    may_omit: bool = False
    """Whether a broker leaves out what it does not have."""
    is_empty_if_throttled: bool = False
    """Whether a broker that throttles the client leaves everything out (KIP-219)."""


def check_answer(request: Message, response: Message, version: int) -> None:
    """Raise `WrongAnswerError` unless the response may be an answer to the request."""
    _check_values(type(response), [response], version, "")
    rule = _ANSWERS.get(request.API_KEY)
    if rule is not None:
        _check_keys(rule, request, response)
    further = _FURTHER.get(request.API_KEY)
    if further is not None:
        further(request, response)


def is_checked(request_type: type[Message]) -> bool:
    """Whether there is a rule for answers to such requests."""
    return request_type.API_KEY in _ANSWERS or request_type.API_KEY in _WITHOUT_KEYS


def _check_keys(rule: _Rule, request: Message, response: Message) -> None:
    answered = list(rule.answered(response))
    there = set(answered)
    if len(there) < len(answered):
        twice = next(key for key, times in Counter(answered).items() if times > 1)
        raise WrongAnswerError(f"{rule.what} {_key_text(twice)} twice")
    asked = rule.asked(request)
    if asked is None:
        return
    wanted = dict.fromkeys(asked)
    if there == wanted.keys():
        return
    for key in answered:
        if key not in wanted:
            raise WrongAnswerError(f"{rule.what} {_key_text(key)}, which was not asked for")
    is_throttled = rule.is_empty_if_throttled and not answered and getattr(response, "throttle_time_ms", 0) > 0
    if not rule.may_omit and not is_throttled and not getattr(response, "error_code", 0):
        missing = next(key for key in wanted if key not in there)
        raise WrongAnswerError(f"nothing about {rule.what} {_key_text(missing)}, which was asked for")


_LONGEST_SHOWN = 100


def _key_text(key: Any) -> str:
    """A key in an error: without control characters, and cut."""
    if isinstance(key, frozenset | tuple):
        return " ".join(_key_text(part) for part in (sorted(key, key=repr) if isinstance(key, frozenset) else key))
    text = str(key)
    if not text.isprintable() or not text:
        text = repr(text)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."


# Keys


def _path(text: str) -> Callable[[Any], _Keys]:
    """The keys of a path, such as ``topics.name partitions.partition_index``.

    See the module's text."""
    outer, *inner = text.split(" ")
    list_name, _, key_names = outer.partition(".")
    items, key = attrgetter(list_name), _key(key_names)
    if not inner:
        return lambda message: map(key, items(message) or ())
    inner_name, _, inner_keys = inner[0].partition(".")
    inner_items, inner_key = attrgetter(inner_name), _key(inner_keys)

    def pairs(message: Any) -> Iterator[Any]:
        for item in items(message) or ():
            name = key(item)
            for one in inner_items(item) or ():
                yield name, inner_key(one)

    return pairs


def _key(names: str) -> Callable[[Any], Any]:
    """``name`` or ``type,name`` of an element; with "" the element itself."""
    return attrgetter(*names.split(",")) if names else _itself


def _itself(value: Any) -> Any:
    return value


def _all_or(list_name: str, path: str) -> Callable[[Any], _Keys | None]:
    """The keys of a path, or None where the list is null: all that there are."""
    keys = _path(path)
    return lambda message: None if getattr(message, list_name) is None else keys(message)


def _everything(_: Any) -> None:
    return None


def _either(chosen: str, path: str, otherwise: str) -> Callable[[Any], _Keys]:
    """The keys of ``path`` where that list has elements: newer versions have one
    list, older ones another."""
    newer, older = _path(path), _path(otherwise)
    return lambda message: newer(message) if getattr(message, chosen) else older(message)


def _of_listed_members(request: Any) -> _Keys:
    return [(member.member_id, member.group_instance_id) for member in request.members]


def _entities(message: Any) -> _Keys:
    return [frozenset((part.entity_type, part.entity_name) for part in entry.entity) for entry in message.entries or ()]


def _changed_users(request: Any) -> _Keys:
    return {item.name for item in chain(request.deletions, request.upsertions)}


def _moved_replicas(request: Any) -> _Keys:
    return {(topic.name, partition) for one in request.dirs for topic in one.topics for partition in topic.partitions}


def _stored_replicas(response: Any) -> _Keys:
    """A partition may lie in two log dirs, the copy that is to replace the other one
    in the second."""
    return [
        (topic.name, item.partition_index, "(future)") if item.is_future_key else (topic.name, item.partition_index)
        for log_dir in response.results
        for topic in log_dir.topics
        for item in topic.partitions
    ]


def _replicas_in_question(request: Any) -> _Keys | None:
    if request.topics is None:
        return None
    asked = [(topic.topic, partition) for topic in request.topics for partition in topic.partitions]
    return [*asked, *((*key, "(future)") for key in asked)]


_PARTITIONS_OF_TOPICS = _path("topics.name partitions.partition_index")

_ANSWERS: Mapping[int, _Rule] = {
    ApiKey.API_VERSIONS: _Rule(_everything, _path("api_keys.api_key"), "API"),
    ApiKey.METADATA: _Rule(_all_or("topics", "topics.name"), _path("topics.name"), "topic"),
    ApiKey.FIND_COORDINATOR: _Rule(_path("coordinator_keys."), _path("coordinators.key"), "group"),
    ApiKey.LIST_OFFSETS: _Rule(_PARTITIONS_OF_TOPICS, _PARTITIONS_OF_TOPICS, "partition"),
    ApiKey.DELETE_RECORDS: _Rule(_PARTITIONS_OF_TOPICS, _PARTITIONS_OF_TOPICS, "partition"),
    ApiKey.FETCH: _Rule(
        _path("topics.topic partitions.partition"),
        _path("responses.topic partitions.partition_index"),
        "partition",
        is_empty_if_throttled=True,
    ),
    ApiKey.PRODUCE: _Rule(
        _path("topic_data.name partition_data.index"), _path("responses.name partition_responses.index"), "partition"
    ),
    ApiKey.DESCRIBE_CONFIGS: _Rule(
        _path("resources.resource_type,resource_name"), _path("results.resource_type,resource_name"), "resource"
    ),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _Rule(
        _path("resources.resource_type,resource_name"), _path("responses.resource_type,resource_name"), "resource"
    ),
    ApiKey.LIST_GROUPS: _Rule(_everything, _path("groups.group_id"), "group"),
    ApiKey.DESCRIBE_GROUPS: _Rule(_path("groups."), _path("groups.group_id"), "group"),
    ApiKey.CONSUMER_GROUP_DESCRIBE: _Rule(_path("group_ids."), _path("groups.group_id"), "group"),
    ApiKey.SHARE_GROUP_DESCRIBE: _Rule(_path("group_ids."), _path("groups.group_id"), "group"),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: _Rule(_path("groups.group_id"), _path("groups.group_id"), "group"),
    ApiKey.OFFSET_FETCH: _Rule(_path("groups.group_id"), _path("groups.group_id"), "group"),
    ApiKey.OFFSET_COMMIT: _Rule(_PARTITIONS_OF_TOPICS, _PARTITIONS_OF_TOPICS, "partition"),
    ApiKey.OFFSET_DELETE: _Rule(_PARTITIONS_OF_TOPICS, _PARTITIONS_OF_TOPICS, "partition"),
    ApiKey.DELETE_GROUPS: _Rule(_path("groups_names."), _path("results.group_id"), "group"),
    ApiKey.LEAVE_GROUP: _Rule(_of_listed_members, _path("members.member_id,group_instance_id"), "member"),
    ApiKey.DESCRIBE_LOG_DIRS: _Rule(_replicas_in_question, _stored_replicas, "replica", may_omit=True),
    ApiKey.ALTER_REPLICA_LOG_DIRS: _Rule(
        _moved_replicas, _path("results.topic_name partitions.partition_index"), "replica"
    ),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _Rule(
        _all_or("topics", "topics.name partition_indexes."), _PARTITIONS_OF_TOPICS, "partition", may_omit=True
    ),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _Rule(
        _PARTITIONS_OF_TOPICS, _path("responses.name partitions.partition_index"), "partition"
    ),
    ApiKey.ELECT_LEADERS: _Rule(
        _all_or("topic_partitions", "topic_partitions.topic partitions."),
        _path("replica_election_results.topic partition_result.partition_id"),
        "partition",
    ),
    ApiKey.CREATE_TOPICS: _Rule(_path("topics.name"), _path("topics.name"), "topic"),
    ApiKey.DELETE_TOPICS: _Rule(_either("topics", "topics.name", "topic_names."), _path("responses.name"), "topic"),
    ApiKey.CREATE_PARTITIONS: _Rule(_path("topics.name"), _path("results.name"), "topic"),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: _Rule(_everything, _entities, "entity"),
    ApiKey.ALTER_CLIENT_QUOTAS: _Rule(_entities, _entities, "entity"),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: _Rule(_all_or("users", "users.name"), _path("results.user"), "user"),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _Rule(_changed_users, _path("results.user"), "user"),
    ApiKey.DESCRIBE_PRODUCERS: _Rule(_path("topics.name partition_indexes."), _PARTITIONS_OF_TOPICS, "partition"),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: _Rule(_path("topics.name"), _path("topics.name"), "topic", may_omit=True),
    ApiKey.DESCRIBE_CLUSTER: _Rule(_everything, _path("brokers.broker_id"), "broker"),
    ApiKey.LIST_TRANSACTIONS: _Rule(_everything, _path("transaction_states.transactional_id"), "transactional id"),
    ApiKey.DESCRIBE_TRANSACTIONS: _Rule(
        _path("transactional_ids."), _path("transaction_states.transactional_id"), "transactional id"
    ),
    ApiKey.WRITE_TXN_MARKERS: _Rule(
        _path("markers.producer_id topics.name"), _path("markers.producer_id topics.name"), "producer and topic"
    ),
    # From version 2 on only the features that failed are named.
    ApiKey.UPDATE_FEATURES: _Rule(_path("feature_updates.feature"), _path("results.feature"), "feature", may_omit=True),
}

_WITHOUT_KEYS = frozenset(
    (
        ApiKey.DESCRIBE_ACLS,
        ApiKey.CREATE_ACLS,
        ApiKey.DELETE_ACLS,
        ApiKey.UNREGISTER_BROKER,
        ApiKey.SASL_HANDSHAKE,
        ApiKey.SASL_AUTHENTICATE,
        ApiKey.INIT_PRODUCER_ID,
        ApiKey.END_TXN,
    )
)
"""Their answers name nothing: they stand in the order of the request, or are about one thing."""


# What some APIs have besides


def _refuse_twice(keys: Iterable[Any], what: str) -> None:
    twice = [key for key, times in Counter(keys).items() if times > 1]
    if twice:
        raise WrongAnswerError(f"{what} {_key_text(twice[0])} twice")


def _refuse_unnamed(names: Iterable[str | None], what: str) -> None:
    if not all(names):
        raise WrongAnswerError(f"a {what} without a name")


def _check_api_versions(_: Any, response: Any) -> None:
    for item in response.api_keys:
        if item.min_version > item.max_version:
            raise WrongAnswerError(f"versions {item.min_version} to {item.max_version} of the API {item.api_key}")
    if not response.api_keys and not response.error_code:
        raise WrongAnswerError("no API at all")


def _check_metadata(_: Any, response: Any) -> None:
    _refuse_twice((broker.node_id for broker in response.brokers), "broker")
    _refuse_unnamed((topic.name for topic in response.topics), "topic")
    for topic in response.topics:
        _refuse_twice(
            (item.partition_index for item in topic.partitions), f"partition of topic {_key_text(topic.name)}"
        )
        for item in topic.partitions:
            if not item.replica_nodes:
                raise WrongAnswerError(f"no replicas of partition {_key_text((topic.name, item.partition_index))}")


def _check_offset_fetch(_: Any, response: Any) -> None:
    for group in response.groups or (response,):
        _refuse_unnamed((topic.name for topic in group.topics), "topic")
        _refuse_twice(_PARTITIONS_OF_TOPICS(group), "partition")


def _check_quotas(request: Any, response: Any) -> None:
    """Each entity has the names that the components ask for (match types: 0 exact, 1
    the default, 2 any)."""
    for entry in response.entries or ():
        entity = {part.entity_type: part.entity_name for part in entry.entity}
        for component in request.components:
            has = component.entity_type in entity
            if not has or (component.match_type != 2 and entity[component.entity_type] != component.match):
                raise WrongAnswerError(f"entity {_key_text(tuple(entity.items()))}, which was not asked for")


def _check_configs(request: Any, response: Any) -> None:
    wanted = {(item.resource_type, item.resource_name): item.configuration_keys for item in request.resources}
    for result in response.results:
        of = f"of {_key_text(result.resource_name)}"
        _refuse_unnamed((item.name for item in result.configs), "property")
        _refuse_twice((item.name for item in result.configs), f"property {of}")
        names = wanted[result.resource_type, result.resource_name]
        for item in result.configs if names else ():  # an empty list asks for all, as null does
            if item.name not in names:
                raise WrongAnswerError(f"property {_key_text(item.name)} {of}, which was not asked for")


def _check_topic_partitions(request: Any, response: Any) -> None:
    """The next answer must begin after this one, or asking would not end."""
    for topic in response.topics:
        _refuse_twice(
            (item.partition_index for item in topic.partitions), f"partition of topic {_key_text(topic.name)}"
        )
    if response.next_cursor is None:
        return
    at = (response.next_cursor.topic_name, response.next_cursor.partition_index)
    before = ("", -1) if request.cursor is None else (request.cursor.topic_name, request.cursor.partition_index)
    if at <= before or at[0] not in {topic.name for topic in request.topics}:
        raise WrongAnswerError(f"the cursor {_key_text(at)}, which does not continue the question")


def _check_created_acls(request: Any, response: Any) -> None:
    _check_count(len(request.creations), len(response.results))


def _check_deleted_acls(request: Any, response: Any) -> None:
    _check_count(len(request.filters), len(response.filter_results))


def _check_count(asked: int, answered: int) -> None:
    if asked != answered:
        raise WrongAnswerError(f"{answered} results to a question of {asked} parts")


_ANY = 1  # of all kinds of words of access control lists
_LITERAL = 3


def _check_acls(request: Any, response: Any) -> None:
    for resource in response.resources:
        is_other_type = request.resource_type_filter not in (_ANY, resource.resource_type)
        is_named = request.pattern_type_filter == _LITERAL and request.resource_name_filter is not None
        if is_other_type or (is_named and request.resource_name_filter != resource.resource_name):
            raise WrongAnswerError(
                f"resource {resource.resource_type} {_key_text(resource.resource_name)}, which was not asked for"
            )


def _check_log_dirs(_: Any, response: Any) -> None:
    _refuse_twice((result.log_dir for result in response.results), "log dir")
    _refuse_unnamed((result.log_dir for result in response.results), "log dir")


def _check_members(_: Any, response: Any) -> None:
    for group in response.groups:
        _refuse_twice((member.member_id for member in group.members), f"member of group {_key_text(group.group_id)}")
        _refuse_unnamed((member.member_id for member in group.members), "member")


def _check_credentials(_: Any, response: Any) -> None:
    _refuse_unnamed((result.user for result in response.results if not result.error_code), "user")
    for result in response.results:
        _refuse_twice((info.mechanism for info in result.credential_infos), f"mechanism of {_key_text(result.user)}")


_FURTHER: Mapping[int, Callable[[Any, Any], None]] = {
    ApiKey.API_VERSIONS: _check_api_versions,
    ApiKey.METADATA: _check_metadata,
    ApiKey.OFFSET_FETCH: _check_offset_fetch,
    ApiKey.DESCRIBE_CLIENT_QUOTAS: _check_quotas,
    ApiKey.DESCRIBE_CONFIGS: _check_configs,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: _check_topic_partitions,
    ApiKey.DESCRIBE_GROUPS: _check_members,
    ApiKey.CONSUMER_GROUP_DESCRIBE: _check_members,
    ApiKey.DESCRIBE_LOG_DIRS: _check_log_dirs,
    ApiKey.DESCRIBE_ACLS: _check_acls,
    ApiKey.CREATE_ACLS: _check_created_acls,
    ApiKey.DELETE_ACLS: _check_deleted_acls,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: _check_credentials,
}


# Values

_LOWEST = {
    **dict.fromkeys(("partition_index", "partition_id", "partition_size", "api_key"), 0),
    **dict.fromkeys(("iterations", "session_lifetime_ms", "min_version"), 0),
    **dict.fromkeys(("broker_id", "replica_nodes", "isr_nodes", "offline_replicas"), 0),
    **dict.fromkeys(("replicas", "adding_replicas", "removing_replicas", "partitions"), 0),
    **dict.fromkeys(("eligible_leader_replicas", "last_known_elr"), 0),
    **dict.fromkeys(("leader_id", "leader_epoch", "controller_id"), -1),
    **dict.fromkeys(("offset", "timestamp", "committed_offset", "low_watermark", "high_watermark"), -1),
    **dict.fromkeys(("total_bytes", "usable_bytes", "last_timestamp", "producer_epoch", "last_sequence"), -1),
}
"""The least value that the protocol has for a field of a response, of which -1 says none."""
_SETS = frozenset(
    (
        *("replica_nodes", "isr_nodes", "offline_replicas", "eligible_leader_replicas", "last_known_elr"),
        *("replicas", "adding_replicas", "removing_replicas"),
    )
)
"""Lists of brokers, each of which is there once."""
_ADDRESS = frozenset(("node_id", "host", "port"))
_HOST = re.compile(r"(?=.{1,255}\Z)[^\s.\x00-\x20\x7f-\x9f]{1,63}(\.[^\s.\x00-\x20\x7f-\x9f]{1,63})*\.?")


class _Values(NamedTuple):
    """What is checked in a structure of one version."""

    bounds: tuple[tuple[str, int], ...]
    lists: tuple[tuple[str, int], ...]
    floats: tuple[str, ...]
    has_address: bool
    structures: tuple[tuple[str, Any], ...]
    """Fields with lists of structures, and their type."""


@cache
def _values(kind: type[Struct], version: int) -> _Values:
    fields = [field for field in kind.FIELDS if version in field.versions]
    bounded = [(field, _LOWEST[field.name]) for field in fields if field.name in _LOWEST]
    return _Values(
        tuple((field.name, low) for field, low in bounded if field.kind.startswith("int")),
        tuple((field.name, low) for field, low in bounded if field.kind == "array" and isinstance(field.element, str)),
        tuple(field.name for field in fields if field.kind == "float64"),
        {field.name for field in fields} >= {"host", "port"},
        tuple((field.name, field.element) for field in fields if field.kind == "array" and _is_kind(field.element)),
    )


def _is_kind(element: object) -> bool:
    return isinstance(element, type)


def _check_values(kind: type[Struct], items: list[Any], version: int, path: str) -> None:
    """All elements of a list at once: a cluster has many partitions."""
    if not items:
        return
    checked = _values(kind, version)
    for name, low in checked.bounds:
        worst = min(map(attrgetter(name), items))
        if worst < low:
            raise WrongAnswerError(f"{path}{name} {worst}")
    for name, low in checked.lists:
        _check_numbers([numbers for numbers in map(attrgetter(name), items) if numbers], low, name, path)
    for name in checked.floats:
        if not all(map(math.isfinite, map(attrgetter(name), items))):
            raise WrongAnswerError(f"a {path}{name} that is no number")
    if checked.has_address:
        for item in items:
            _check_address(item, path)
    for name, element in checked.structures:
        below = list(chain.from_iterable(inner for inner in map(attrgetter(name), items) if inner))
        _check_values(element, below, version, f"{path}{name}.")


def _check_numbers(lists: list[list[int]], low: int, name: str, path: str) -> None:
    worst = min(chain.from_iterable(lists), default=low)
    if worst < low:
        raise WrongAnswerError(f"{worst} in {path}{name}")
    if name in _SETS and any(len(set(numbers)) < len(numbers) for numbers in lists):
        raise WrongAnswerError(f"a broker twice in {path}{name}")


def _check_address(item: Any, path: str) -> None:
    """With an error there is no address."""
    if getattr(item, "error_code", 0):
        return
    if getattr(item, "node_id", 0) < 0:
        raise WrongAnswerError(f"{path}node_id {item.node_id}")
    if not _HOST.fullmatch(item.host):
        raise WrongAnswerError(f"{path}host {_key_text(item.host)}, which is no host")
    if not 0 < item.port < 65536:
        raise WrongAnswerError(f"{path}port {item.port}")
