"""Makes librdkafka's clients, whose configuration drops whitespace at the start of a text.

User names and passwords are set with `set_sasl_credentials`, which keeps leading whitespace.
Other texts that begin with whitespace are refused: a group id or a transactional id without
it is a different one.

Kafka has no counterpart.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from barnabas.client.errors import ConfigurationError

__all__ = ["FREE_TEXT", "new_client", "refuse_lost_blanks"]

T = TypeVar("T")
_LOGIN = ("sasl.username", "sasl.password")
FREE_TEXT = frozenset(
    (
        *("client.id", "client.rack", "group.id", "group.instance.id", "transactional.id", *_LOGIN),
        *("sasl.oauthbearer.client.id", "sasl.oauthbearer.client.secret"),
        *("ssl.key.password", "ssl.keystore.password", "ssl.truststore.password"),
    )
)
"""Properties whose values are names and passwords, which may begin and end with whitespace."""
_DROPPED = (" ", "\t", "\n", "\v", "\f", "\r")  # isspace of C


def refuse_lost_blanks(given: Mapping[str, Any]) -> None:
    """Raise `ConfigurationError` for a text that librdkafka would change.

    Barnabas itself reads key stores and their passwords."""
    for name in sorted(FREE_TEXT.intersection(given).difference(_LOGIN)):
        if str(given[name]).startswith(_DROPPED):
            raise ConfigurationError(
                f"{name} begins with whitespace, which librdkafka drops", remedy="remove the whitespace"
            )


def new_client(kind: Callable[[dict[str, Any]], T], settings: Mapping[str, Any]) -> T:
    """A client of librdkafka; raises what its class raises."""
    client: Any = kind(dict(settings))
    user, password = (str(settings.get(name) or "") for name in _LOGIN)
    if user.startswith(_DROPPED) or password.startswith(_DROPPED):
        client.set_sasl_credentials(user, password)
    made: T = client
    return made
