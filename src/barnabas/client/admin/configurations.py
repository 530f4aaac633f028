"""Configurations of topics and brokers over an `AdminConnection`. Errors are `KafkaError`.

In Kafka: `Admin.describeConfigs`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

from barnabas.client.cluster.admin_connection import AdminConnection
from barnabas.client.cluster.each_broker import raise_first
from barnabas.client.errors import ClientError, ConfigurationError, ProtocolError, refusal

if TYPE_CHECKING:
    from barnabas.wire.kafka.messages.describe_configs import DescribeConfigsResult

__all__ = [
    "ConfigEntry",
    "ConfigSource",
    "Resource",
    "ResourceType",
    "Synonym",
    "alter_configs",
    "configs_in_part",
    "describe_configs",
    "name_of_resource",
]


_MOST_RESOURCES = 1000


class ResourceType(IntEnum):
    """What a configuration belongs to; the protocol's numbers."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigSource(IntEnum):
    """Where a value comes from (KIP-226); the protocol's numbers and Java's names."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    DYNAMIC_CLIENT_METRICS_CONFIG = 7
    DYNAMIC_GROUP_CONFIG = 8

    @classmethod
    def of(cls, number: int) -> "ConfigSource":
        """The source of a number from the wire."""
        return cls(number) if number in cls._value2member_map_ else cls.UNKNOWN


@dataclass(frozen=True, slots=True)
class Resource:
    """A topic, a broker, or (with an empty name) all brokers' default."""

    type: ResourceType
    name: str

    @property
    def broker_id(self) -> int | None:
        """The broker that must be asked; None where any will do."""
        if self.type not in (ResourceType.BROKER, ResourceType.BROKER_LOGGER) or not self.name:
            return None
        if not self.name.isdecimal():
            raise ConfigurationError(f"{self.name} is not a broker id")
        return int(self.name)


@dataclass(frozen=True, slots=True)
class Synonym:
    """One of the places that a value is looked for in, in order."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """A property's value, None if it is not disclosed (passwords), and its source."""

    name: str
    value: str | None
    source: ConfigSource
    is_sensitive: bool
    is_read_only: bool
    synonyms: list[Synonym]
    type: int = 0
    """The protocol's number of the value's type; 0 for a property that the broker does not know,
    and before Kafka 2.6."""
    documentation: str | None = None
    """If it was asked for."""

    @property
    def is_default(self) -> bool:
        return self.source is ConfigSource.DEFAULT_CONFIG

    def number(self, default: int) -> int:
        """The value of a property that is a number, ``default`` for none.

        Raises `ProtocolError` for another text."""
        if not self.value:
            return default
        try:
            return int(self.value)
        except ValueError:
            raise ProtocolError(f"the brokers have {self.name}={self.value[:100]!r}: a number is expected") from None


def describe_configs(
    connection: AdminConnection,
    resources: Iterable[Resource],
    *,
    names: Sequence[str] | None = None,
    synonyms: bool = False,
) -> dict[Resource, list[ConfigEntry]]:
    """Every property of each resource, or those of ``names``, by name.

    A broker's are asked of itself."""
    return raise_first(configs_in_part(connection, resources, names=names, synonyms=synonyms))


def configs_in_part(
    connection: AdminConnection,
    resources: Iterable[Resource],
    *,
    names: Sequence[str] | None = None,
    synonyms: bool = False,
    documentation: bool = False,
    any_broker: int | None = None,
) -> dict[Resource, list[ConfigEntry] | ClientError]:
    """The same, with the refusal in place of what may not be read. What every broker knows is asked
    of ``any_broker``, or of whichever answers."""
    from barnabas.wire.kafka.messages.describe_configs import (
        DescribeConfigsRequest,
        DescribeConfigsResource,
        DescribeConfigsResponse,
    )

    found: dict[Resource, list[ConfigEntry] | ClientError] = {}
    for broker_id, group in _by_broker(resources, any_broker):
        request = DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(
                    resource_type=resource.type,
                    resource_name=resource.name,
                    configuration_keys=None if names is None else list(names),
                )
                for resource in group
            ],
            include_synonyms=synonyms,
            include_documentation=documentation,
        )
        response = connection.send(request, DescribeConfigsResponse, broker_id)
        for result in response.results:
            found[Resource(ResourceType(result.resource_type), result.resource_name)] = _entries(result)
    return found


def _entries(result: "DescribeConfigsResult") -> list[ConfigEntry] | ClientError:
    if result.error_code:
        name = name_of_resource(result.resource_type, result.resource_name)
        return refusal(result.error_code, result.error_message, about=name)
    return sorted(
        (
            ConfigEntry(
                item.name,
                item.value,
                ConfigSource.of(item.config_source),
                item.is_sensitive,
                item.read_only,
                [Synonym(one.name, one.value, ConfigSource.of(one.source)) for one in item.synonyms],
                item.config_type,
                item.documentation,
            )
            for item in result.configs
        ),
        key=lambda entry: entry.name,
    )


_SET = 0
_DELETE = 1


def alter_configs(
    connection: AdminConnection, resource: Resource, changes: Mapping[str, str | None], *, validate_only: bool = False
) -> None:
    """Set properties, or with None take them back to their default.

    All of them or, on an error, none (KIP-339)."""
    from barnabas.wire.kafka.messages.incremental_alter_configs import (
        AlterableConfig,
        AlterConfigsResource,
        IncrementalAlterConfigsRequest,
        IncrementalAlterConfigsResponse,
    )

    request = IncrementalAlterConfigsRequest(
        resources=[
            AlterConfigsResource(
                resource_type=resource.type,
                resource_name=resource.name,
                configs=[
                    AlterableConfig(name=name, config_operation=_DELETE if value is None else _SET, value=value)
                    for name, value in changes.items()
                ],
            )
        ],
        validate_only=validate_only,
    )

    def codes(response: IncrementalAlterConfigsResponse) -> list[int]:
        return [result.error_code for result in response.responses]

    if resource.broker_id is None:
        response = connection.send_to_controller(request, IncrementalAlterConfigsResponse, codes)
    else:
        response = connection.send(request, IncrementalAlterConfigsResponse, resource.broker_id)
    for result in response.responses:
        if result.error_code:
            raise refusal(
                result.error_code,
                result.error_message,
                about=name_of_resource(result.resource_type, result.resource_name),
            )


def name_of_resource(resource_type: int, name: str) -> str:
    """What an error calls a resource; an empty name stands for the default of all brokers."""
    kind = ResourceType(resource_type).name.lower()
    return f"{kind} {name}" if name else f"default {kind} configuration"


def _by_broker(
    resources: Iterable[Resource], any_broker: int | None = None
) -> Iterator[tuple[int | None, list[Resource]]]:
    """The resources that one request may ask for: each has some fifty properties, and
    answers are held as objects."""
    groups: dict[int | None, list[Resource]] = {}
    for resource in resources:
        own = resource.broker_id
        groups.setdefault(any_broker if own is None else own, []).append(resource)
    for broker_id, group in groups.items():
        for start in range(0, len(group), _MOST_RESOURCES):
            yield broker_id, group[start : start + _MOST_RESOURCES]
