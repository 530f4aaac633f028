"""Properties for clients, from files, contexts and options.

In Kafka: `Utils.loadProps`.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from barnabas.base.errors import BarnabasError, ConfigError
from barnabas.base.hints import did_you_mean
from barnabas.base.settings import read_properties, utf8_warnings
from barnabas.cli.output.colours import print_warning

if TYPE_CHECKING:
    from barnabas.cli.connection.contexts import Context

__all__ = [
    "REGISTRY_PROPERTY",
    "client_properties_file",
    "key_values",
    "named_values",
    "properties_file",
    "read_properties_file",
    "unresolved_file",
]

REGISTRY_PROPERTY = "schema.registry.url"
"""The address of a schema registry, as Confluent's clients call it."""


def properties_file(path: "str | Context | None") -> dict[str, str]:
    """A .properties file as a dictionary, or what a context has for connections, with the values
    that stand elsewhere (`barnabas.client.properties.config_providers`).

    Nothing for None."""
    from barnabas.client.properties.config_providers import resolved

    return resolved(unresolved_file(path))


def unresolved_file(path: "str | Context | None") -> dict[str, str]:
    """The same with its variables as they are."""
    if path is None:
        return {}
    if not isinstance(path, str):
        from barnabas.client.properties.translation import overridden

        return overridden(unresolved_file(path.command_config), {**path.properties, **path.secrets()})
    try:
        given = read_properties_file(path, print_warning)
    except OSError as error:
        raise BarnabasError(f"cannot read {path}: {error.strerror}") from None
    except ValueError as error:
        raise ConfigError(f"{path} is not a .properties file: {error}") from None
    from barnabas.client.librdkafka.clients import FREE_TEXT

    for name in FREE_TEXT.intersection(given):
        if given[name] != given[name].strip():
            print_warning(
                f"{path}: {name} begins or ends with a blank, which belongs to the value here; Java's clients drop it"
            )
    return given


def read_properties_file(path: str | Path, warn: Callable[[str], None]) -> dict[str, str]:
    """The properties of a file, whose bytes are ISO-8859-1, as for Java.

    Raises OSError and ValueError. ``warn`` gets a line for each value in UTF-8, in which Java
    sees other characters, too.
    """
    with open(path, encoding="latin-1", newline="") as file:
        text = file.read()
    for line in utf8_warnings(str(path), text):
        warn(line)
    return read_properties(text)


def client_properties_file(path: "str | Context | None", *, with_registry: bool = False) -> dict[str, str]:
    """The same for `Producer` and `Consumer`, and the address of a registry for commands that ask
    it.

    A name that clients do not know has no effect, as for Kafka's tools, with a warning. What
    would protect a connection but for a typing error stays, and is refused; so is every such
    name of an option.
    """
    from barnabas.client.properties.names import CLIENT_PROPERTIES, is_client_property, looks_like_security_property

    given = properties_file(path)
    registry = given.pop(REGISTRY_PROPERTY, None)
    for name in [name for name in given if not is_client_property(name) and not looks_like_security_property(name)]:
        del given[name]
        hint = did_you_mean(name, CLIENT_PROPERTIES)
        where = f" in {path}" if isinstance(path, str) else ""
        print_warning(f"{name}{where} is not a property of clients, and has no effect{hint}")
    if registry is not None and with_registry:
        given[REGISTRY_PROPERTY] = registry
    return given


def key_values(texts: Sequence[str], option: str) -> dict[str, str]:
    """``name=value`` options, repeated, as a dictionary in which the last of a name counts."""
    return dict(named_values(texts, option))


def named_values(texts: Sequence[str], option: str) -> list[tuple[str, str]]:
    """``name=value`` options in order.

    Names may repeat, the value may be empty and may hold equals signs."""
    values = []
    for item in texts:
        name, equals, value = item.partition("=")
        if not equals or not name.strip():
            raise ConfigError(f"{option} {item}: NAME=VALUE is expected")
        values.append((name.strip(), value))
    return values
