"""Changes of configuration by clients: of topics, brokers and the levels of loggers.

Kafka: ConfigAdminManager.

`ConfigAdmin` checks a request, and `ConfigRepository` checks the values and writes the changes. The
modules of dynamic configuration, in the order of a change:

- `operations`: what set, delete, append and subtract do to an entity's texts.
- `rules`, `refused`: which changes of a broker's settings are refused.
- `repository`: the znodes, written with a version check, and the notifications of
  changes to all brokers.
- `dynamic_config`: the values that are in effect; components subscribe to them in
  `broker/assembly.py`.
- `config_helper`: what DescribeConfigs shows of them.
- `service`: the edge, which watches the notifications.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from barnabas.broker.cluster.steps import Steps
from barnabas.broker.configuration.broker_loggers import alter_log_levels
from barnabas.broker.configuration.definitions import DEFINITIONS
from barnabas.broker.configuration.operations import DELETE, AlterConfigOp, change_texts
from barnabas.broker.configuration.repository import ConfigRepository
from barnabas.log.settings import TOPIC_SETTINGS
from barnabas.wire.jute.errors import KeeperError
from barnabas.wire.kafka.errors import ErrorCode, KafkaError

__all__ = ["BROKER", "BROKER_LOGGER", "CLIENT_METRICS", "TOPIC", "ConfigAdmin", "ResourceChange", "broker_of"]

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS = 2, 4, 8, 16
"""Types of resources."""


class ResourceChange(NamedTuple):
    """The changes that a client requests for one resource."""

    resource_type: int
    resource_name: str
    operations: Sequence[AlterConfigOp]
    replaces_all: bool
    """Whether the settings replace all that there are (AlterConfigs); otherwise the
    operations change some of them."""

    def texts_after(self, texts: Mapping[str, str]) -> dict[str, str]:
        """The texts of the resource's entity after the change. Raises `KafkaError`."""
        if self.replaces_all:
            return {name: value for name, _, value in self.operations if value is not None}
        definitions = TOPIC_SETTINGS if self.resource_type == TOPIC else DEFINITIONS
        return change_texts(texts, self.operations, definitions)


class ConfigAdmin:
    """Serves AlterConfigs and IncrementalAlterConfigs."""

    def __init__(self, broker_id: int, repository: ConfigRepository, has_topic: Callable[[str], bool]) -> None:
        self._broker_id = broker_id
        self._repository = repository
        self._has_topic = has_topic

    def alter(
        self, changes: list[ResourceChange], is_authorized: Callable[[int, str], bool], *, validate_only: bool
    ) -> Steps[list[KafkaError | KeeperError | None]]:
        """Alter each resource by itself; what went wrong with each, in order.

        ``is_authorized`` is asked whether the client may alter a resource of a type and name, when
        the change is well formed, and before it is compared with anything that is there. Takes the
        changes out of the list: 99,000 of them are not freed at once.
        """
        failures: list[KafkaError | KeeperError | None] = []
        counts: Counter[tuple[int, str]] = Counter()
        for change in changes:
            yield None
            counts[change.resource_type, change.resource_name] += 1
        changes.reverse()
        while changes:
            change = changes.pop()
            yield None
            try:
                if counts[change.resource_type, change.resource_name] > 1:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
                yield from _check_names_and_values(change.operations)
                self._check_resource(change)
                if not is_authorized(change.resource_type, change.resource_name):
                    raise KafkaError(
                        ErrorCode.TOPIC_AUTHORIZATION_FAILED
                        if change.resource_type == TOPIC
                        else ErrorCode.CLUSTER_AUTHORIZATION_FAILED
                    )
                if change.resource_type == BROKER_LOGGER:
                    self._check_logger_broker(change.resource_name)
                    alter_log_levels(change.operations, validate_only=validate_only)
                else:
                    yield from self._alter_one(change, validate_only=validate_only)
            except (KafkaError, KeeperError) as error:
                # A traceback takes more memory than what it is about.
                failures.append(error.with_traceback(None))
            else:
                failures.append(None)
        return failures

    def _check_resource(self, change: ResourceChange) -> None:
        """Whether resources of this type are altered here. Raises `KafkaError`."""
        kind = change.resource_type
        if kind == BROKER:
            broker_of(self._broker_id, change.resource_name, to_alter=True)
        elif kind == CLIENT_METRICS:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                "AlterConfigs is only supported for topics and brokers, but resource type is CLIENT_METRICS",
            )
        elif kind != TOPIC and (kind != BROKER_LOGGER or change.replaces_all):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {kind}")

    def _alter_one(self, change: ResourceChange, *, validate_only: bool) -> Steps[None]:
        name = change.resource_name
        if change.resource_type == TOPIC:
            if not name:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
            if not self._has_topic(name):
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
            yield from self._repository.alter_topic(name, change.texts_after, validate_only=validate_only)
        else:
            broker = broker_of(self._broker_id, name, to_alter=True)
            yield from self._repository.alter_broker(broker, change.texts_after, validate_only=validate_only)

    def _check_logger_broker(self, resource_name: str) -> None:
        """Refuse log levels of another broker. Raises `KafkaError`."""
        if not resource_name.removeprefix("-").isdecimal():
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: {resource_name}")
        if int(resource_name) != self._broker_id:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"Unexpected node id. Expected {self._broker_id}, but received {resource_name}",
            )


def _check_names_and_values(operations: Sequence[AlterConfigOp]) -> Steps[None]:
    """Each name once, and null for deletion alone. Raises `KafkaError`."""
    nulls, names = [], set()
    for name, operation, value in operations:
        yield None
        names.add(name)
        if value is None and operation != DELETE:
            nulls.append(name)
    if nulls:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {', '.join(nulls)}")
    if len(names) < len(operations):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")


def broker_of(own_id: int, resource_name: str, *, to_alter: bool = False) -> int | None:
    """This broker's id, None for all brokers.

    Raises `KafkaError` for another broker's, in the words of either use."""
    if not resource_name:
        return None
    try:
        broker = int(resource_name)
    except ValueError:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"{'Node' if to_alter else 'Broker'} id must be an integer, but it is: {resource_name}",
        ) from None
    if broker != own_id:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Unexpected broker id, expected {own_id}{'' if to_alter else ' or empty string'}, but received "
            f"{resource_name}",
        )
    return broker
