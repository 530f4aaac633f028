"""Settings of zoo.cfg that protect, beside others without which they do nothing: key stores without
a port with TLS, and so on.

ZooKeeper ignores them in silence, and the server looks protected and is open. Here one that
asks for protection ends the start, unless the switch is set to off explicitly; all others are
named in a warning.

ZooKeeper has no counterpart.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from barnabas.base.errors import ConfigError
from barnabas.base.settings import Kind, Values
from barnabas.security.jaas import JAAS_FILE

__all__ = ["check_unused_security", "unused_security"]

_ENABLE_SASL, _DIGEST = "quorum.auth.enableSasl", "DigestAuthenticationProvider."


class _Rule(NamedTuple):
    """Settings that are used only together with others."""

    applies: Callable[[str], bool]
    """Whether a name is one of them."""
    is_used: Callable[[Values], bool]
    missing: str
    switches: tuple[str, ...] = ()
    """Those that they need."""
    protecting: tuple[str, ...] = ()
    """Which of them ask for protection."""


def _quorum_tls(name: str) -> bool:
    return name.startswith("ssl.quorum.")


def _client_tls(name: str) -> bool:
    return (name.startswith("ssl.") and not _quorum_tls(name)) or name == "X509AuthenticationProvider.superUser"


_RULES = (
    _Rule(
        _client_tls,
        lambda values: values["secureClientPort"] is not None,
        "secureClientPort is not set, so clients connect without TLS",
        ("secureClientPort",),
        ("ssl.keyStore.location", "ssl.trustStore.location", "ssl.clientAuth"),
    ),
    _Rule(
        _quorum_tls,
        lambda values: bool(values["sslQuorum"] or values["portUnification"]),
        "sslQuorum and portUnification are not true, so members connect without TLS",
        ("sslQuorum", "portUnification"),
        ("ssl.quorum.keyStore.location", "ssl.quorum.trustStore.location", "ssl.quorum.clientAuth"),
    ),
    _Rule(
        lambda name: name.startswith("quorum.auth.") and name != _ENABLE_SASL,
        lambda values: bool(values[_ENABLE_SASL]),
        f"{_ENABLE_SASL} is not true, so members do not authenticate",
        (_ENABLE_SASL,),
    ),
    _Rule(
        lambda name: name == "enforce.auth.schemes",
        lambda values: bool(values["enforce.auth.enabled"]),
        "enforce.auth.enabled is not true, so clients need no authentication",
        ("enforce.auth.enabled",),
        ("enforce.auth.schemes",),
    ),
    _Rule(
        lambda name: name in ("sasl.serverconfig", "superUser", "SASLAuthenticationProvider.superPassword"),
        lambda values: bool(values[JAAS_FILE]),
        f"{JAAS_FILE} names no file with users, so no client authenticates with SASL",
    ),
    _Rule(
        lambda name: name.startswith(_DIGEST) and name != f"{_DIGEST}enabled",
        lambda values: bool(values[f"{_DIGEST}enabled"]),
        f"{_DIGEST}enabled is false, so there is no scheme digest",
    ),
)


def _given(values: Values) -> list[str]:
    """The settings that are given and neither empty nor off."""
    known = [name for name, text in values.texts.items() if text.strip() and name in values.definitions]
    return [name for name in known if values.definitions[name].kind is not Kind.BOOLEAN or values[name]]


def _unused(values: Values) -> Iterator[tuple[str, _Rule]]:
    for name in _given(values):
        for rule in _RULES:
            if rule.applies(name) and not rule.is_used(values):
                yield name, rule


def check_unused_security(values: Values) -> None:
    """Raises `ConfigError` for a setting that asks for protection and would not protect."""
    for name, rule in _unused(values):
        if name in rule.protecting and not any(map(values.is_set, rule.switches)):
            raise ConfigError(
                f"{name} is set, and {rule.missing}: set {rule.switches[0]}, or remove {name} to start without this protection"
            )


def unused_security(values: Values, *, is_member: bool) -> dict[str, str]:
    """The given settings that have no effect beside the others, each with the reason."""
    found = {name: rule.missing for name, rule in _unused(values)}
    for name in _given(values) if not is_member else ():
        if name in ("sslQuorum", "portUnification") or name.startswith(("quorum.auth.", "ssl.quorum.")):
            found.setdefault(name, "the server runs alone, without connections to members")
    return found
