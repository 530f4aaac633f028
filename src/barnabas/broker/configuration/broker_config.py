"""The configuration of this broker as it holds now (Kafka's `KafkaConfig` under its
`DynamicBrokerConfig`)."""

from typing import Any

from barnabas.base.settings import Values

__all__ = ["BrokerConfig"]


class BrokerConfig:
    """The broker's settings: those of the properties file, under the dynamic ones of the
    cluster and of this broker.

    Components keep the object and read it each time, so they see dynamic changes. Only the
    configuration service calls `replace`.
    """

    __slots__ = ("_values",)

    def __init__(self, values: Values) -> None:
        self._values = values

    @property
    def values(self) -> Values:
        """All settings as they hold now. The object is never changed, only replaced."""
        return self._values

    def __getitem__(self, name: str) -> Any:
        """The value of a setting. Raises KeyError for a name that is not defined."""
        return self._values[name]

    def replace(self, values: Values) -> None:
        """Let other values hold from now on."""
        self._values = values
