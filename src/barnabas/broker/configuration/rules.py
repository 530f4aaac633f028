"""Validates changes of the dynamic configuration of brokers (the validation in Kafka's `DynamicBrokerConfig`)."""

from collections.abc import Mapping

from barnabas.base.errors import ConfigError
from barnabas.base.settings import Values
from barnabas.broker.configuration.definitions import DEFINITIONS, UPDATE_MODES
from barnabas.broker.configuration.refused import asks_for_protection, is_refused
from barnabas.broker.configuration.security_settings import LISTENER_PREFIX, SECURITY_SETTINGS, listener_setting
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
        if _changes_security(settings, name, text):
            raise ConfigError(
                f"{name} cannot be changed while the broker runs in this version: change it in the properties file and "
                "start the broker again"
            )


def _changes_security(settings: Values, name: str, text: str) -> bool:
    """Whether a property of listeners has another value than the one that holds, which may be that of all listeners."""
    found = listener_setting(name)
    setting = SECURITY_SETTINGS.get(name) if found is None else found.setting
    if setting is None:
        return False
    names = [name, setting.name]
    if found is not None and found.mechanism is not None:
        names.insert(1, f"{LISTENER_PREFIX}{found.listener.lower()}.{setting.name}")
    holds = next((settings.texts[each] for each in names if each in settings.texts), setting.default or "")
    return text.strip() != holds.strip()


def check_protection(entity: str, static: Values, texts: Mapping[str, str]) -> None:
    """Raises `ConfigError` when a dynamic property of brokers asks for protection that does not exist, or changes what
    ``static``, the properties file, says."""
    for name, text in texts.items():
        is_other = name in DEFINITIONS and name not in SECURITY_SETTINGS and not is_refused(name)
        if (not is_other and asks_for_protection(name, text)) or _changes_security(static, name, text):
            raise ConfigError(
                f"The dynamic configuration of broker {entity} sets {name}, which asks for protection that does not exist "
                "in this version, or that is read from the properties file alone. Delete it (configs --alter "
                "--entity-type brokers --delete-config) to start without this protection"
            )
