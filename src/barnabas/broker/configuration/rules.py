"""Validates changes of the dynamic configuration of brokers (the validation in
Kafka's `DynamicBrokerConfig`)."""

from collections.abc import Mapping

from barnabas.base.errors import ConfigError
from barnabas.base.settings import Kind, Setting, Values
from barnabas.broker.configuration.authorizer_settings import AUTHORIZER_NAMES, changes_authorizer
from barnabas.broker.configuration.definitions import DEFINITIONS, UPDATE_MODES
from barnabas.broker.configuration.listener_security import effective_text
from barnabas.broker.configuration.refused import asks_for_protection, is_refused
from barnabas.broker.configuration.security_settings import listener_setting, security_setting
from barnabas.broker.configuration.table import UpdateMode
from barnabas.log.settings import LogConfig, defaults_from_broker

__all__ = ["check_protection", "is_removed", "names_left_out", "validate_broker_config"]

_DYNAMIC_IN_KAFKA = frozenset(("listeners", "advertised.listeners", "listener.security.protocol.map"))


def validate_broker_config(settings: Values, texts: Mapping[str, str], *, per_broker: bool) -> Values:
    """The settings under new dynamic texts.

    Raises `ConfigError` for what cannot change, or not to that."""
    fixed = sorted(name for name in texts if name in DEFINITIONS and name not in UPDATE_MODES)
    if fixed:
        raise ConfigError(f"Cannot update these configs dynamically: Set({', '.join(fixed)})")
    if not per_broker:
        # Brokers may have other listeners, or other values for them: what changes nothing on one
        # broker may change another.
        single = sorted(
            name
            for name in texts
            if UPDATE_MODES.get(name) is UpdateMode.PER_BROKER or listener_setting(name) is not None
        )
        if single:
            raise ConfigError(
                "Cannot update these configs at default cluster level, broker id must be specified: "
                f"Set({', '.join(single)})"
            )
    _refuse_changed_security(settings, texts)
    changed = settings.replace(texts)
    LogConfig({}, defaults_from_broker(changed.texts))
    return changed


def names_left_out(settings: Values, texts: Mapping[str, str], *, per_broker: bool) -> set[str]:
    """The names of dynamic texts without effect: each would be refused now.

    It was written by hand or by another version."""
    names = set()
    for name, text in texts.items():
        try:
            validate_broker_config(settings, {name: text}, per_broker=per_broker)
        except ConfigError:
            names.add(name)
    return names


def is_removed(name: str, *, per_broker: bool) -> bool:
    """Whether the next change removes this text, which has no effect, as Apache's brokers do.

    The same holds for passwords that cannot be decoded (here all, for there is no
    password.encoder.secret), settings that no broker can change, those of one broker given for all,
    those of listeners without a listener's name, and values that cannot be. The others may have
    effect on Apache's brokers in the same cluster, so they stay.
    """
    setting = security_setting(name)
    if setting is not None:
        return setting.kind is Kind.PASSWORD or listener_setting(name) is None
    if name in _DYNAMIC_IN_KAFKA:
        return not per_broker
    return name in DEFINITIONS


def _refuse_changed_security(settings: Values, texts: Mapping[str, str]) -> None:
    """Raises `ConfigError` for a property of listeners with another value than it has:
    they are read at the start.

    A password is refused whatever its value, for a comparison would say who guesses it, and the
    znode would hold it. A key store's file too: with the same name Kafka reads the file again.
    """
    for name, text in texts.items():
        setting = security_setting(name)
        if setting is None:
            continue
        is_fixed = setting.kind is Kind.PASSWORD or name.endswith("store.location")
        if is_fixed or _changes_security(settings, setting, name, text):
            raise ConfigError(
                f"{name} cannot be changed while the broker runs in this version: change it in the properties file and "
                "start the broker again"
            )


def _changes_security(settings: Values, setting: Setting, name: str, text: str) -> bool:
    """Whether a property of listeners has another value than the one that holds for them."""
    try:
        return bool(setting.parse(text) != setting.parse(effective_text(settings, name)))
    except ConfigError:
        return True


def check_protection(entity: str, static: Values, texts: Mapping[str, str]) -> None:
    """Raises `ConfigError` when a dynamic property of brokers asks for protection that does
    not exist, or changes what ``static``, the properties file, says. What
    `validate_broker_config` accepts is no reason."""
    for name, text in texts.items():
        setting = security_setting(name)
        if setting is not None and name == name.lower():
            is_wrong = _changes_security(static, setting, name, text)
        elif name in AUTHORIZER_NAMES:
            is_wrong = changes_authorizer(static, name, text)
        else:
            is_wrong = (name not in DEFINITIONS or is_refused(name)) and asks_for_protection(name, text)
        if is_wrong:
            raise ConfigError(
                f"The dynamic configuration of broker {entity} sets {name}, which asks for protection that does not exist "
                "in this version, or that is read from the properties file alone. Delete it (configs --alter "
                "--entity-type brokers --delete-config) to start without this protection"
            )
