"""How each listener is secured: TLS, SASL mechanisms, and how this broker proves who
it is to others.

Whatever is missing or cannot be done is an error that names the property. So no listener is less
secure than its protocol says, and a property that asks for security is never without effect: one
that no listener can use is an error too.

In Kafka: `ChannelBuilders`, `KafkaConfig.valuesWithPrefixOverride`,
`JaasContext.loadServerContext`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from barnabas.base.errors import ConfigError
from barnabas.base.settings import Values, invalid_value
from barnabas.broker.configuration.listeners import ListenerAddress, inter_broker_listener, listeners
from barnabas.broker.configuration.security_settings import (
    LISTENER_PREFIX,
    SECURITY_SETTINGS,
    asks_for_security,
    listener_setting,
)
from barnabas.net.ssl_contexts import SslSettings
from barnabas.security.jaas import JAAS_FILE, LoginModule, login_module, parse_jaas
from barnabas.security.key_stores import KeyStore, check_store_type
from barnabas.security.mechanisms import LOGIN_MODULES, PLAIN, SASL_MECHANISMS

__all__ = [
    "BrokerLogin",
    "ListenerSecurity",
    "SaslSettings",
    "check_listener_security",
    "effective_text",
    "read_listener_security",
    "security_without_effect",
]

_USER = "user_"
_CONTROLS = ("required", "requisite", "sufficient", "optional")


@dataclass(frozen=True, slots=True)
class BrokerLogin:
    """How this broker authenticates to other brokers."""

    mechanism: str
    username: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class SaslSettings:
    """How clients of a listener authenticate."""

    mechanisms: tuple[str, ...]
    """The SASL mechanisms that are enabled."""
    plain_users: Mapping[str, str] = field(repr=False)
    """The passwords of users of PLAIN."""
    max_receive_bytes: int
    failure_delay_ms: int
    max_reauth_ms: Mapping[str, int]
    """By mechanism; 0 for never."""


@dataclass(frozen=True, slots=True)
class ListenerSecurity:
    """How one listener is secured."""

    stores: SslSettings | None
    """None without TLS."""
    sasl: SaslSettings | None
    """None without SASL."""
    login: BrokerLogin | None
    """On the listener that brokers use among themselves, if it has SASL."""


def _has_tls(address: ListenerAddress) -> bool:
    return address.protocol in ("SSL", "SASL_SSL")


def _has_sasl(address: ListenerAddress) -> bool:
    return address.protocol in ("SASL_PLAINTEXT", "SASL_SSL")


def check_listener_security(values: Values) -> None:
    """Raises `ConfigError` for a property that asks for security which no listener can give."""
    for name, missing in _unusable(values):
        found = listener_setting(name)
        setting = SECURITY_SETTINGS.get(name) if found is None else found.setting
        text = values.texts[name]
        if not (bool(text.strip()) if setting is None else asks_for_security(setting, text)):
            continue
        if name == "sasl.jaas.config":
            raise invalid_value(name, "[hidden]", missing)
        raise ConfigError(
            f"{name} is set, and {missing}: nothing would be secured by it. Remove {name}, or give the listener in "
            "listeners and listener.security.protocol.map a protocol that has it"
        )


def security_without_effect(values: Values) -> dict[str, str]:
    """The given properties that no listener uses, each with the reason: they ask for
    nothing, or the start would end."""
    found = dict(_unusable(values))
    among_brokers = next(each for each in listeners(values) if each.name == inter_broker_listener(values))
    for name in values.texts:
        if name in found:
            continue
        listener = listener_setting(name)
        if listener is None and name not in SECURITY_SETTINGS:
            continue
        inner = name if listener is None else listener.setting.name
        if inner == "ssl.endpoint.identification.algorithm" and not (
            _has_tls(among_brokers) and (listener is None or listener.listener == among_brokers.name)
        ):
            found[name] = f"it is for connections to other brokers, whose listener is {among_brokers.name}"
            found[name] += "" if _has_tls(among_brokers) else ", without TLS"
        elif inner == "sasl.mechanism.inter.broker.protocol" and not _has_sasl(among_brokers):
            found[name] = f"the listener of the brokers, {among_brokers.name}, has no SASL"
    return found


def _unusable(values: Values) -> Iterator[tuple[str, str]]:
    """The given properties of listeners that no listener can use, each with what is missing."""
    for name in values.texts:
        setting, found = SECURITY_SETTINGS.get(name), listener_setting(name)
        if setting is None and found is None and name != JAAS_FILE:
            continue
        if (missing := _missing(name, listeners(values))) is not None:
            yield name, missing


def _missing(name: str, addresses: list[ListenerAddress]) -> str | None:
    """What a property needs that the listeners do not have; None if one of them can use it."""
    if name == "sasl.jaas.config":
        return (
            "brokers read it with the names of a listener and of a mechanism: "
            "listener.name.LISTENER.MECHANISM.sasl.jaas.config"
        )
    found = listener_setting(name)
    if found is not None:
        is_tls = found.setting.name.startswith("ssl.")
        usable = _has_tls if is_tls else _has_sasl
        if any(usable(address) for address in addresses if address.name == found.listener):
            return None
        return f"there is no listener {found.listener} with {'TLS' if is_tls else 'SASL'}"
    if name == "ssl.client.auth" and any(map(_has_sasl, addresses)):
        if any(address.protocol == "SSL" for address in addresses):
            return None
        return "listeners with SASL ignore it unless it is their own (listener.name.LISTENER.ssl.client.auth)"
    if name.startswith("ssl."):
        return None if any(map(_has_tls, addresses)) else "no listener has TLS"
    return None if any(map(_has_sasl, addresses)) else "no listener has SASL"


def read_listener_security(values: Values, jaas_text: str | None) -> dict[str, ListenerSecurity]:
    """How each listener is secured, by its name; ``jaas_text`` is that of the JAAS file.

    Raises `ConfigError`."""
    among_brokers = inter_broker_listener(values)
    found = {}
    for address in listeners(values):
        view = _ListenerView(values, address.name)
        stores = _stores(view, _has_sasl(address)) if _has_tls(address) else None
        sasl, login = None, None
        if _has_sasl(address):
            modules = _login_modules(view, jaas_text)
            sasl = _sasl(view, modules)
            if address.name == among_brokers:
                login = _login(view, sasl, modules)
        found[address.name] = ListenerSecurity(stores, sasl, login)
    if found[among_brokers].login is None and asks_for_security(
        SECURITY_SETTINGS["sasl.mechanism.inter.broker.protocol"],
        values.texts.get("sasl.mechanism.inter.broker.protocol", ""),
    ):
        raise ConfigError(
            f"sasl.mechanism.inter.broker.protocol is set, and the listener of the brokers, {among_brokers}, has no SASL: "
            "remove it, or name another listener in inter.broker.listener.name"
        )
    return found


class _ListenerView:
    """The properties as one listener has them."""

    def __init__(self, values: Values, listener: str) -> None:
        self._values = values
        self.listener = listener
        self._prefix = f"{LISTENER_PREFIX}{listener.lower()}."

    def name(self, name: str, mechanism: str | None = None) -> str:
        """The name under which the property is given: with a prefix, if it is given so."""
        for full in self._names(name, mechanism):
            if full in self._values.texts:
                return full
        return name

    def _names(self, name: str, mechanism: str | None) -> list[str]:
        single = f"{self._prefix}{name}"
        return [single] if mechanism is None else [f"{self._prefix}{mechanism.lower()}.{name}", single]

    def __call__(self, name: str, mechanism: str | None = None) -> Any:
        for full in self._names(name, mechanism):
            text = self._values.texts.get(full)
            if text is not None:
                return SECURITY_SETTINGS[name].parse(text)
        return self._values[name]

    @property
    def broker(self) -> Values:
        return self._values


def effective_text(values: Values, name: str) -> str:
    """What holds for a property of listeners under any of its names.

    The default for a listener that cannot use it. Raises `ConfigError` for listeners
    that cannot be.
    """
    found = listener_setting(name)
    if found is None:
        return values.texts.get(name, SECURITY_SETTINGS[name].default or "")
    setting = found.setting
    usable = _has_tls if setting.name.startswith("ssl.") else _has_sasl
    address = next((each for each in listeners(values) if each.name == found.listener and usable(each)), None)
    if address is None:
        return setting.default or ""
    view = _ListenerView(values, address.name)
    if setting.name == "ssl.client.auth":
        return _client_auth(view, _has_sasl(address))
    return values.texts.get(view.name(setting.name, found.mechanism), setting.default or "")


def _stores(view: _ListenerView, has_sasl: bool) -> SslSettings:
    key, chain = view("ssl.keystore.key") or "", view("ssl.keystore.certificate.chain") or ""
    trusted = view("ssl.truststore.certificates") or ""
    key_store = _store(view, "ssl.keystore", {"ssl.keystore.key": key, "ssl.keystore.certificate.chain": chain})
    trust_store = _store(view, "ssl.truststore", {"ssl.truststore.certificates": trusted})
    if bool(key) != bool(chain):
        missing = "ssl.keystore.certificate.chain" if key else "ssl.keystore.key"
        raise ConfigError(f"{view.name(missing)} is not set: a key and its certificate chain belong together")
    return SslSettings(
        partial(_name_of, view),
        key_store=key_store,
        trust_store=trust_store,
        client_auth=_client_auth(view, has_sasl),
        protocols=tuple(view("ssl.enabled.protocols")),
        verifies_host=view("ssl.endpoint.identification.algorithm").lower() == "https",
        key_text=key,
        chain_text=chain,
        key_password=view("ssl.key.password") or "",
        trust_text=trusted,
    )


def _store(view: _ListenerView, store: str, texts: Mapping[str, str]) -> KeyStore | None:
    """The file of a key store or trust store, None if there is none.

    Raises `ConfigError` for what cannot be together."""
    location, password, kind = view(f"{store}.location"), view(f"{store}.password") or "", view(f"{store}.type")
    given = [name for name, text in texts.items() if text]
    if location and given:
        raise ConfigError(f"{view.name(f'{store}.location')} and {view.name(given[0])} are both set: one is expected")
    if (location or given) and (wrong := check_store_type(kind)):
        raise ConfigError(f"{view.name(f'{store}.type')}={kind}: {wrong}")
    if given and kind.upper() != "PEM":
        raise ConfigError(f"{view.name(f'{store}.type')}={kind}: {view.name(given[0])} is PEM. Set the type to PEM")
    if (location or given) and kind.upper() == "PEM" and password:
        raise ConfigError(
            f"{view.name(f'{store}.password')} is not for PEM: a private key has ssl.key.password, and certificates have no "
            "password"
        )
    if not location:
        return None
    return KeyStore(location, password, kind, (view("ssl.key.password") or "") if store == "ssl.keystore" else "")


def _name_of(view: _ListenerView, name: str) -> str:
    """Like `_ListenerView.name`; of what a store's properties begin with, if that is asked for."""
    if name in ("ssl.keystore", "ssl.truststore"):
        return view.name(f"{name}.location").removesuffix(".location")
    return view.name(name)


def _client_auth(view: _ListenerView, has_sasl: bool) -> str:
    """What the property of all listeners asks is not asked of clients that
    authenticate with SASL, as in Kafka."""
    own = view.name("ssl.client.auth") != "ssl.client.auth"
    return str(view("ssl.client.auth")) if own or not has_sasl else "none"


def _login_modules(view: _ListenerView, jaas_text: str | None) -> dict[str, tuple[str, LoginModule]]:
    """The JAAS entry of each mechanism, with the place where it stands: its own
    property, or the JAAS file."""
    mechanisms = view("sasl.enabled.mechanisms")
    name = view.name("sasl.enabled.mechanisms")
    unsupported = [each for each in mechanisms if each not in SASL_MECHANISMS]
    if unsupported or not mechanisms:
        default = "" if name in view.broker.texts else " (the default)"
        raise ConfigError(
            f"{name}={','.join(mechanisms)}{default}: the listener {view.listener} can have {', '.join(SASL_MECHANISMS)}"
        )
    found = {}
    in_file: list[LoginModule] = []
    path = view.broker[JAAS_FILE]
    if jaas_text is not None:
        sections = parse_jaas(jaas_text, f"{path} ({JAAS_FILE})")
        in_file = sections.get(f"{view.listener.lower()}.KafkaServer", sections.get("KafkaServer", []))
    for mechanism in mechanisms:
        own = view.name("sasl.jaas.config", mechanism)
        if own != "sasl.jaas.config":
            found[mechanism] = own, login_module(view("sasl.jaas.config", mechanism), own)
        else:
            matching = [module for module in in_file if module.name == LOGIN_MODULES[mechanism]]
            if len(matching) > 1:
                raise ConfigError(f"{path} ({JAAS_FILE}) has several entries of {LOGIN_MODULES[mechanism]}")
            if matching:
                found[mechanism] = f"{path} ({JAAS_FILE})", matching[0]
    for mechanism, (place, module) in found.items():
        _check_module(mechanism, place, module)
    return found


def _check_module(mechanism: str, place: str, module: LoginModule) -> None:
    """Errors name positions only: where a quotation mark is missing, any word may be
    a piece of a password."""
    if module.name != LOGIN_MODULES[mechanism]:
        raise ConfigError(f"{place} names another login module: {mechanism} has {LOGIN_MODULES[mechanism]}")
    if module.control.lower() not in _CONTROLS:
        raise ConfigError(f"{place}: behind the login module one of {', '.join(_CONTROLS)} is expected")
    known = {"username", "password"}
    for number, option in enumerate(module.options, 1):
        is_user = mechanism == PLAIN and option.startswith(_USER) and option != _USER
        if option not in known and not is_user:
            users = ', user_NAME="PASSWORD"' if mechanism == PLAIN else ""
            raise ConfigError(
                f"{place} has an option that is not supported, number {number}: there are username, password{users}"
            )


def _sasl(view: _ListenerView, modules: Mapping[str, tuple[str, LoginModule]]) -> SaslSettings:
    mechanisms = tuple(dict.fromkeys(view("sasl.enabled.mechanisms")))
    users: dict[str, str] = {}
    if PLAIN in mechanisms:
        if PLAIN not in modules:
            raise ConfigError(
                f"listener.name.{view.listener.lower()}.plain.sasl.jaas.config is not set: PLAIN needs the users of the "
                f"listener {view.listener}, in this property or in the JAAS file that {JAAS_FILE} names"
            )
        place, module = modules[PLAIN]
        users = {
            option.removeprefix(_USER): password
            for option, password in module.options.items()
            if option.startswith(_USER)
        }
        if not all(users.values()):
            raise ConfigError(f"{place} has a user with an empty password")
    return SaslSettings(
        mechanisms,
        users,
        view("sasl.server.max.receive.size"),
        view.broker["connection.failed.authentication.delay.ms"],
        {mechanism: max(view("connections.max.reauth.ms", mechanism), 0) for mechanism in mechanisms},
    )


def _login(view: _ListenerView, sasl: SaslSettings, modules: Mapping[str, tuple[str, LoginModule]]) -> BrokerLogin:
    mechanism = view.broker["sasl.mechanism.inter.broker.protocol"]
    if mechanism not in sasl.mechanisms:
        raise ConfigError(
            f"sasl.mechanism.inter.broker.protocol={mechanism} must be one of {view.name('sasl.enabled.mechanisms')}: "
            f"brokers use the listener {view.listener} among themselves"
        )
    place, module = modules.get(mechanism, ("", None))
    if module is None:
        raise ConfigError(
            f"listener.name.{view.listener.lower()}.{mechanism.lower()}.sasl.jaas.config is not set: it needs the username "
            "and the password with which this broker authenticates to others, here or in the JAAS file that "
            f"{JAAS_FILE} names"
        )
    username, password = module.options.get("username", ""), module.options.get("password", "")
    if not username or not password:
        raise ConfigError(f"{place} has no username and password with which this broker authenticates to others")
    return BrokerLogin(mechanism, username, password)
