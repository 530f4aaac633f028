"""Validates changes of the dynamic configuration of brokers (the validation in Kafka's `DynamicBrokerConfig`)."""

from collections.abc import Mapping

from barnabas.base.errors import ConfigError
from barnabas.base.settings import Values
from barnabas.broker.configuration.definitions import DEFINITIONS, UPDATE_MODES
from barnabas.broker.configuration.refused import asks_for_protection
from barnabas.broker.configuration.security_settings import SECURITY_SETTINGS, listener_setting
from barnabas.broker.configuration.table import UpdateMode
from barnabas.log.settings import LogConfig, defaults_from_broker

__all__ = ["check_protection", "validate_broker_config"]


def validate_broker_config(settings: Values, texts: Mapping[str, str], *, per_broker: bool) -> Values:
    """The settings under new dynamic texts; raises `ConfigError` for what cannot change, or not to that."""
    fixed = sorted(name for name in texts if name in DEFINITIONS and name not in UPDATE_MODES)
    if fixed:
        raise ConfigError(f"Cannot update these configs dynamically: Set({', '.join(fixed)})")
    if not per_broker:
        single = sorted(name for name in texts if UPDATE_MODES.get(name) is UpdateMode.PER_BROKER)
        if single:
            raise ConfigError(
                "Cannot update these configs at default cluster level, broker id must be specified: "
                f"Set({', '.join(single)})"
            )
    _refuse_changed_security(settings, texts)
    changed = settings.replace(texts)
    LogConfig({}, defaults_from_broker(changed.texts))
    return changed


def _refuse_changed_security(settings: Values, texts: Mapping[str, str]) -> None:
    """Raises `ConfigError` for a property of listeners with another value than it has: they are read at the start."""
    for name, text in texts.items():
        found = listener_setting(name)
        setting = SECURITY_SETTINGS.get(name) if found is None else found.setting
        if setting is not None and text.strip() != settings.texts.get(name, setting.default or "").strip():
            raise ConfigError(
                f"{name} cannot be changed while the broker runs in this version: change it in the properties file and "
                "start the broker again"
            )


def check_protection(entity: str, texts: Mapping[str, str]) -> None:
    """Raises `ConfigError` when a dynamic property of brokers asks for protection that does not exist."""
    for name, text in texts.items():
        if asks_for_protection(name, text):
            raise ConfigError(
                f"The dynamic configuration of broker {entity} sets {name}, which asks for protection that does not exist "
                "in this version, or that is read from the properties file alone. Delete it (configs --alter "
                "--entity-type brokers --delete-config) to start without this protection"
            )
