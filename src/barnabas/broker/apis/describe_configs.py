"""DescribeConfigs (key 32), versions 1 to 4.

Values of topics, brokers and loggers (KIP-412), and where each comes from (KIP-226). A value's synonyms are all the
places that could give it, the strongest first; the first one does.

- 1: synonyms.
- 3: types and documentation (KIP-569).

Errors: UNKNOWN_TOPIC_OR_PARTITION, INVALID_REQUEST.
"""

from collections.abc import Iterator, Mapping

from barnabas.base.errors import ConfigError
from barnabas.base.settings import Kind, Setting
from barnabas.broker.apis.api_handler import ApiHandler
from barnabas.broker.apis.later import answer_later, reply_once
from barnabas.broker.apis.services import Services
from barnabas.broker.cluster.steps import Steps
from barnabas.broker.configuration.broker_loggers import log_levels
from barnabas.broker.configuration.config_admin import BROKER, BROKER_LOGGER, CLIENT_METRICS, TOPIC, broker_of
from barnabas.broker.configuration.definitions import DEFINITIONS, NOT_DESCRIBED, UPDATE_MODES
from barnabas.broker.configuration.without_effect import WITHOUT_EFFECT
from barnabas.broker.requests.request import Request
from barnabas.broker.topics.planning import validate_topic_name
from barnabas.log.settings import BROKER_SYNONYMS, TOPIC_SETTINGS
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.errors import ErrorCode, KafkaError
from barnabas.wire.kafka.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

__all__ = ["API", "topic_entries"]

_TOPIC_CONFIG, _DYNAMIC_BROKER, _DYNAMIC_CLUSTER, _STATIC, _DEFAULT, _DYNAMIC_BROKER_LOGGER = 1, 2, 3, 4, 5, 6
"""Where a value comes from."""

_BROKER_SYNONYMS = (
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
)


def _synonyms_of(name: str) -> tuple[str, ...]:
    for names in _BROKER_SYNONYMS:
        if name in names and name != "log.flush.scheduler.interval.ms":
            return names
    return (name,)


def _handle(services: Services, request: Request) -> None:
    message: DescribeConfigsRequest = request.message
    # A resource is described once, however often it is named: its description is a thousand times as long as its name.
    resources = {(resource.resource_type, resource.resource_name): resource for resource in message.resources}

    def work() -> Steps[None]:
        # Another broker may have changed a topic a moment ago: the znodes know, as they do for Apache's brokers.
        names = [name for kind, name in resources if kind == TOPIC and name in services.metadata]
        yield from services.config_repository.refresh(f"topics/{name}" for name in names)
        results = [_describe(services, resource, message) for resource in resources.values()]
        reply_once(request, DescribeConfigsResponse(results=results))

    answer_later(services, request, work())


def _describe(
    services: Services, resource: DescribeConfigsResource, message: DescribeConfigsRequest
) -> DescribeConfigsResult:
    result = DescribeConfigsResult(
        error_message=None, resource_type=resource.resource_type, resource_name=resource.resource_name
    )
    keys = frozenset(resource.configuration_keys) if resource.configuration_keys else None
    synonyms, documentation = message.include_synonyms, message.include_documentation
    try:
        if resource.resource_type == TOPIC:
            validate_topic_name(resource.resource_name)
            if resource.resource_name not in services.metadata:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            texts = services.configs.topic_texts(resource.resource_name)
            result.configs = topic_entries(
                services, texts, keys, with_synonyms=synonyms, with_documentation=documentation
            )
        elif resource.resource_type == BROKER:
            broker = broker_of(services.broker_id, resource.resource_name)
            result.configs = _broker_entries(
                services, keys, per_broker=broker is not None, with_synonyms=synonyms, with_documentation=documentation
            )
        elif resource.resource_type == BROKER_LOGGER:
            result.configs = _logger_entries(services, resource.resource_name, keys)
        elif resource.resource_type == CLIENT_METRICS:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, "Config type client-metrics is only supported on KRaft clusters"
            )
        else:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"There are no configurations of resource type {resource.resource_type}"
            )
    except KafkaError as error:
        result.error_code, result.error_message = error.code, error.message
    return result


def _logger_entries(
    services: Services, resource_name: str, keys: frozenset[str] | None
) -> list[DescribeConfigsResourceResult]:
    if not resource_name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
    if not resource_name.removeprefix("-").isdecimal():
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {resource_name}")
    if int(resource_name) != services.broker_id:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Unexpected broker id, expected {services.broker_id} but received {resource_name}",
        )
    return [
        DescribeConfigsResourceResult(name=name, value=level, config_source=_DYNAMIC_BROKER_LOGGER)
        for name, level in log_levels().items()
        if keys is None or name in keys
    ]


def topic_entries(
    services: Services,
    texts: Mapping[str, str],
    keys: frozenset[str] | None,
    *,
    with_synonyms: bool,
    with_documentation: bool,
) -> list[DescribeConfigsResourceResult]:
    """All configurations of a topic whose own are ``texts``; only ``keys`` if given."""
    try:
        config = services.configs.config_of(texts)
    except ConfigError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from error
    entries = []
    for setting in TOPIC_SETTINGS:
        if keys is not None and setting.name not in keys:
            continue
        value = _shown(setting, config.values[setting.name])
        synonyms: list[DescribeConfigsSynonym] = []
        if setting.name in texts:
            synonyms.append(DescribeConfigsSynonym(name=setting.name, value=value, source=_TOPIC_CONFIG))
        broker_names = BROKER_SYNONYMS.get(setting.name)
        if broker_names:
            synonyms += _broker_chain(services, broker_names[0].name)
        entries.append(
            DescribeConfigsResourceResult(
                name=setting.name,
                value=value,
                config_source=synonyms[0].source if synonyms else _DEFAULT,
                synonyms=synonyms if with_synonyms else [],
                config_type=setting.kind.value,
                documentation=setting.doc if with_documentation else None,
            )
        )
    return entries


def _broker_chain(services: Services, name: str) -> list[DescribeConfigsSynonym]:
    """Where a broker property takes its value from; what stands before its own name is left out, as Kafka does."""
    static = services.configs.static.texts
    if name == "node.id":
        static = {name: str(services.broker_id)}  # both ids are one, which is always known
    chain = [
        DescribeConfigsSynonym(name=other, value=None if _is_sensitive(other) else text, source=source)
        for texts, source in (
            (services.configs.broker_texts, _DYNAMIC_BROKER),
            (services.configs.cluster_texts, _DYNAMIC_CLUSTER),
            (static, _STATIC),
            (_DEFAULT_TEXTS, _DEFAULT),
        )
        for other in _synonyms_of(name)
        if (text := texts.get(other)) is not None
    ]
    while chain and chain[0].name != name:
        del chain[0]
    return chain


_DEFAULT_TEXTS = {
    setting.name: setting.default
    for setting in DEFINITIONS
    if setting.default is not None and setting.name not in NOT_DESCRIBED
}


def _broker_entries(
    services: Services, keys: frozenset[str] | None, *, per_broker: bool, with_synonyms: bool, with_documentation: bool
) -> list[DescribeConfigsResourceResult]:
    entries = []
    for name, value in _broker_values(services, per_broker=per_broker):
        if keys is not None and name not in keys:
            continue
        chain = _broker_chain(services, name)
        if not per_broker:
            chain = [synonym for synonym in chain if synonym.source == _DYNAMIC_CLUSTER]
        known = name in DEFINITIONS
        entries.append(
            DescribeConfigsResourceResult(
                name=name,
                value=None if _is_sensitive(name) else value,
                read_only=name not in UPDATE_MODES or name in NOT_DESCRIBED,
                config_source=chain[0].source if chain else _DEFAULT,
                is_sensitive=_is_sensitive(name),
                synonyms=chain if with_synonyms else [],
                config_type=DEFINITIONS[name].kind.value if known else 0,
                documentation=_documentation(name) if with_documentation else None,
            )
        )
    return entries


def _broker_values(services: Services, *, per_broker: bool) -> Iterator[tuple[str, str | None]]:
    if not per_broker:
        yield from services.configs.cluster_texts.items()
        return
    for setting in DEFINITIONS:
        if setting.name not in NOT_DESCRIBED or services.config.values.is_set(setting.name):
            yield setting.name, _shown(setting, _value(services, setting.name))
    for name in services.config.values.unknown():
        yield name, services.config.values.texts[name]


def _value(services: Services, name: str) -> object:
    return services.broker_id if name in ("broker.id", "node.id") else services.config[name]


def _documentation(name: str) -> str | None:
    if name not in DEFINITIONS:
        return None
    doc, reason = DEFINITIONS[name].doc, WITHOUT_EFFECT.get(name)
    return f"{doc} Without effect here: {reason}." if reason else doc


def _is_sensitive(name: str) -> bool:
    """Passwords, and what no definition knows, for it may be one."""
    return name not in DEFINITIONS or DEFINITIONS[name].kind is Kind.PASSWORD


def _shown(setting: Setting, value: object) -> str | None:
    """A typed value as Kafka prints it."""
    if value is None or setting.kind is Kind.PASSWORD:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return ",".join(value)
    return str(value)


def _fail(message: DescribeConfigsRequest, _version: int, code: ErrorCode) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(
        results=[
            DescribeConfigsResult(
                error_code=code,
                error_message=code.message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource in message.resources
        ]
    )


API = ApiHandler(ApiKey.DESCRIBE_CONFIGS, 1, 4, _handle, _fail)
