"""The configurations of topics, brokers and loggers as clients see them: values, sources, synonyms.

Kafka: ConfigHelper.

A value's synonyms are all the places that could give it, the strongest first; the first one does
(KIP-226). Values of passwords, and of names that no definition knows, are never shown.
"""

from collections.abc import Iterator, Mapping

from barnabas.base.errors import ConfigError
from barnabas.base.settings import Kind, Setting
from barnabas.broker.configuration.broker_config import BrokerConfig
from barnabas.broker.configuration.broker_loggers import log_levels
from barnabas.broker.configuration.definitions import DEFINITIONS, NOT_DESCRIBED, UPDATE_MODES
from barnabas.broker.configuration.dynamic_config import DynamicConfig
from barnabas.broker.configuration.without_effect import WITHOUT_EFFECT
from barnabas.log.settings import BROKER_SYNONYMS, TOPIC_SETTINGS
from barnabas.wire.kafka.errors import ErrorCode, KafkaError
from barnabas.wire.kafka.messages.describe_configs import DescribeConfigsResourceResult, DescribeConfigsSynonym

__all__ = ["ConfigHelper"]

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


_DEFAULT_TEXTS = {
    setting.name: setting.default
    for setting in DEFINITIONS
    if setting.default is not None and setting.name not in NOT_DESCRIBED
}


class ConfigHelper:
    """Describes configurations in the form of DescribeConfigs."""

    def __init__(self, broker_id: int, config: BrokerConfig, configs: DynamicConfig) -> None:
        self._broker_id = broker_id
        self._config = config
        self._configs = configs

    def describe_topic(
        self,
        texts: Mapping[str, str],
        keys: frozenset[str] | None,
        *,
        with_synonyms: bool,
        with_documentation: bool,
    ) -> list[DescribeConfigsResourceResult]:
        """All configurations of a topic whose own are ``texts``; only ``keys`` if given.

        Raises `KafkaError`."""
        try:
            config = self._configs.config_of(texts)
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
                synonyms += self._broker_chain(broker_names[0].name)
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

    def describe_broker(
        self, keys: frozenset[str] | None, *, per_broker: bool, with_synonyms: bool, with_documentation: bool
    ) -> list[DescribeConfigsResourceResult]:
        """The configurations of this broker, or those that are set for all brokers.

        Only ``keys`` if given."""
        entries = []
        for name, value in self._broker_values(per_broker=per_broker):
            if keys is not None and name not in keys:
                continue
            chain = self._broker_chain(name)
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

    def describe_loggers(self, resource_name: str, keys: frozenset[str] | None) -> list[DescribeConfigsResourceResult]:
        """The levels of this broker's loggers (KIP-412).

        Raises `KafkaError` for the name of another broker."""
        if not resource_name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
        if not resource_name.removeprefix("-").isdecimal():
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {resource_name}")
        if int(resource_name) != self._broker_id:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"Unexpected broker id, expected {self._broker_id} but received {resource_name}",
            )
        return [
            DescribeConfigsResourceResult(name=name, value=level, config_source=_DYNAMIC_BROKER_LOGGER)
            for name, level in log_levels().items()
            if keys is None or name in keys
        ]

    def _broker_chain(self, name: str) -> list[DescribeConfigsSynonym]:
        """Where a broker property takes its value from.

        Synonyms before its own name are left out, as Kafka does."""
        static = self._configs.static.texts
        if name == "node.id":
            static = {name: str(self._broker_id)}  # both ids are one, which is always known
        chain = [
            DescribeConfigsSynonym(name=other, value=None if _is_sensitive(other) else text, source=source)
            for texts, source in (
                (self._configs.broker_texts, _DYNAMIC_BROKER),
                (self._configs.cluster_texts, _DYNAMIC_CLUSTER),
                (static, _STATIC),
                (_DEFAULT_TEXTS, _DEFAULT),
            )
            for other in _synonyms_of(name)
            if (text := texts.get(other)) is not None
        ]
        while chain and chain[0].name != name:
            del chain[0]
        return chain

    def _broker_values(self, *, per_broker: bool) -> Iterator[tuple[str, str | None]]:
        if not per_broker:
            yield from self._configs.cluster_texts.items()
            return
        for setting in DEFINITIONS:
            if setting.name not in NOT_DESCRIBED or self._config.values.is_set(setting.name):
                yield setting.name, _shown(setting, self._value(setting.name))
        for name in self._config.values.unknown():
            yield name, self._config.values.texts[name]

    def _value(self, name: str) -> object:
        return self._broker_id if name in ("broker.id", "node.id") else self._config[name]


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
    if isinstance(value, float):
        return _shown_double(value)
    return str(value)


def _shown_double(value: float) -> str:
    """As Java prints it: 0.5, 1.0E7."""
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    text = next(text for digits in range(1, 18) if float(text := f"{value:.{digits}e}") == value)
    mantissa, _, exponent = text.partition("e")
    return f"{mantissa}E{int(exponent)}"
