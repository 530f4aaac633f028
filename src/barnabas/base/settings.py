"""Typed settings under Kafka's and ZooKeeper's property names (Kafka's `ConfigDef`
and `AbstractConfig`).

A component lists what it understands as `Setting` definitions in a `Definitions` table and gets a
`Values` from a dictionary of texts (a .properties file, ``--override``, a config znode). Values are
read by property name; texts are kept as they were given, because the tools show them. A name that
no definition knows is kept aside as unknown.
"""

import contextlib
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from barnabas.base.errors import ConfigError

__all__ = [
    "Definitions",
    "Kind",
    "Setting",
    "Values",
    "at_least",
    "between",
    "edited_properties",
    "invalid_value",
    "list_text",
    "one_of",
    "properties_text",
    "read_properties",
    "utf8_warnings",
]


class Kind(Enum):
    """A setting's type; the values are the protocol's type numbers in DescribeConfigs (KIP-226)."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


_RANGES = {Kind.INT: 31, Kind.SHORT: 15, Kind.LONG: 63}
ValueCheck = Callable[[Any], str | None]
"""Takes a typed value, returns what is wrong with it, or None."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One property: its name, type and default text (None for no default), what it
    must satisfy, what it does."""

    name: str
    kind: Kind
    default: str | None
    doc: str = ""
    check: ValueCheck | None = None
    required: bool = False

    def parse(self, text: str) -> Any:
        """The typed value of ``text``.

        Raises `ConfigError` that names the property and what it takes."""
        value = _convert(self.name, self.kind, text.strip() if self.kind is not Kind.PASSWORD else text)
        wrong = self.check(value) if self.check else None
        if wrong:
            raise invalid_value(self.name, "[hidden]" if self.kind is Kind.PASSWORD else text, wrong)
        return value


def invalid_value(name: str, text: str, wrong: str) -> ConfigError:
    """The error for a property with a value that cannot be used, in Kafka's words."""
    return ConfigError(f"Invalid value {text} for configuration {name}: {wrong}")


def _convert(name: str, kind: Kind, text: str) -> Any:
    match kind:
        case Kind.BOOLEAN:
            if text.lower() in ("true", "false"):
                return text.lower() == "true"
            raise ConfigError(
                f"Invalid value {text} for configuration {name}: Expected value to be either true or false"
            )
        case Kind.INT | Kind.SHORT | Kind.LONG:
            bits = _RANGES[kind]
            try:
                # Java takes no underscores; a value that only we could read would stop another
                # broker on the same data.
                number = 1 << 64 if "_" in text else int(text)
            except ValueError:
                number = 1 << 64
            if not -(1 << bits) <= number < 1 << bits:
                raise ConfigError(f"Invalid value {text} for configuration {name}: Not a number of type {kind.name}")
            return number
        case Kind.DOUBLE:
            try:
                value = math.nan if "_" in text else float(text)
            except ValueError:
                value = math.nan
            if not math.isfinite(value):  # NaN and infinity are neither above nor below any bound
                raise ConfigError(f"Invalid value {text} for configuration {name}: Not a number of type DOUBLE")
            return value
        case Kind.LIST:
            return [part.strip() for part in text.split(",")] if text else []
        case _:
            return text


def at_least(minimum: float) -> ValueCheck:
    """A check for numbers."""
    return lambda value: None if value >= minimum else f"Value must be at least {minimum}"


def between(minimum: float, maximum: float) -> ValueCheck:
    """A check for numbers, both ends included."""

    def check(value: float) -> str | None:
        if value < minimum:
            return f"Value must be at least {minimum}"
        return f"Value must be no more than {maximum}" if value > maximum else None

    return check


def one_of(*allowed: str) -> ValueCheck:
    """A check for texts, and for each member of a list."""

    def check(value: str | list[str]) -> str | None:
        for item in value if isinstance(value, list) else [value]:
            if item not in allowed:
                return f"String must be one of: {', '.join(allowed)}"
        return None

    return check


class Definitions:
    """The properties that a component understands, in the order of their definition."""

    __slots__ = ("_by_name", "_check_all", "_check_unknown")

    def __init__(
        self,
        settings: Iterable[Setting],
        *,
        check_unknown: Callable[[str, str], str | None] | None = None,
        check_all: "Callable[[Values], None] | None" = None,
    ) -> None:
        """``check_unknown`` takes a given name without a definition and its text, and returns
        what is wrong with them.

        ``check_all`` raises `ConfigError` for values that contradict each other.
        """
        self._by_name = {setting.name: setting for setting in settings}
        self._check_unknown = check_unknown
        self._check_all = check_all

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def __iter__(self) -> Iterator[Setting]:
        return iter(self._by_name.values())

    def __getitem__(self, name: str) -> Setting:
        return self._by_name[name]

    def parse(self, texts: Mapping[str, str]) -> "Values":
        """Typed values of every definition.

        Raises `ConfigError` for the first bad or missing one."""
        parsed = {}
        for setting in self:
            text = texts.get(setting.name, setting.default)
            if text is None and setting.required:
                raise ConfigError(f'Missing required configuration "{setting.name}" which has no default value.')
            parsed[setting.name] = None if text is None else setting.parse(text)
        if self._check_unknown is not None:
            for name, text in texts.items():
                if name not in self._by_name and (wrong := self._check_unknown(name, text)):
                    raise invalid_value(name, "[hidden]", wrong)  # it may be a secret
        values = Values(self, dict(texts), parsed)
        if self._check_all is not None:
            self._check_all(values)
        return values


class Values:
    """Typed values by property name; immutable."""

    __slots__ = ("_parsed", "definitions", "texts")

    def __init__(self, definitions: Definitions, texts: dict[str, str], parsed: dict[str, Any]) -> None:
        self.definitions = definitions
        self.texts = texts
        self._parsed = parsed

    def __getitem__(self, name: str) -> Any:
        return self._parsed[name]

    def is_set(self, name: str) -> bool:
        """Whether the value was given, rather than the default."""
        return name in self.texts

    def unknown(self) -> list[str]:
        """Names that were given and that no definition knows."""
        return [name for name in self.texts if name not in self.definitions]

    def replace(self, changes: Mapping[str, str | None]) -> "Values":
        """The same settings with some texts changed; None takes a name back to its default."""
        texts = {name: text for name, text in self.texts.items() if changes.get(name, text) is not None}
        texts.update({name: text for name, text in changes.items() if text is not None})
        return self.definitions.parse(texts)


def read_properties(text: str) -> dict[str, str]:
    """A Java .properties text as a dictionary; the last of equal names wins, as in Java.

    Raises ValueError."""
    # Imported here, because most processes read no properties file and start faster without it.
    import javaproperties

    return {str(key): str(value) for key, value in javaproperties.loads(text).items()}


def utf8_warnings(path: str, text: str) -> list[str]:
    """A line for each value in UTF-8 of a .properties file.

    ``text`` is its contents, read as ISO-8859-1 as Java reads them."""
    return [
        f"{path}: {name} has characters in UTF-8, and .properties files are read as ISO-8859-1, as Java reads them: write "
        "characters beyond ASCII as escapes, such as \\u00fc for \u00fc"
        for name in ([] if text.isascii() else _names_in_utf8(text))
    ]


def _names_in_utf8(text: str) -> list[str]:
    import javaproperties

    found = []
    for element in javaproperties.parse(text):
        if isinstance(element, javaproperties.KeyValue) and not element.source.isascii():
            with contextlib.suppress(UnicodeDecodeError):
                element.source.encode("latin-1").decode()
                found.append(str(element.key))
    return found


def properties_text(properties: Mapping[str, str]) -> str:
    """A .properties text that Java and `read_properties` read back unchanged: ASCII, with escapes
    for all other characters."""
    return "".join(_property_line(name, value) for name, value in properties.items())


def edited_properties(text: str, changes: Mapping[str, str | None]) -> str:
    """A .properties text with some values changed, added, or (None) removed.

    Its comments and other lines stay."""
    import javaproperties

    if text and not text.endswith(("\n", "\r")):
        text += "\n\n" if _CONTINUED.search(text) else "\n"  # a backslash takes the first
    lines, rest = [], dict(changes)
    for element in javaproperties.parse(text):
        name = str(element.key) if isinstance(element, javaproperties.KeyValue) else None
        if name is None or name not in changes:
            lines.append(str(element.source))
        elif (value := rest.pop(name, None)) is not None:
            lines.append(_property_line(name, value))
    return "".join(lines) + properties_text({name: value for name, value in rest.items() if value is not None})


_CONTINUED = re.compile(r"(?<!\\)(?:\\\\)*\\\Z")


def _property_line(name: str, value: str) -> str:
    import javaproperties

    escaped: str = javaproperties.join_key_value("", value)[1:]
    # The library escapes these everywhere, as Java does. They need it in names alone, and
    # host\\:port is hard to read.
    readable = re.sub(r"\\(.)", lambda match: match[1] if match[1] in ":=#!" else match[0], escaped)
    return f"{javaproperties.escape(name)}={readable}\n"


def list_text(name: str, items: Iterable[str]) -> str:
    """The text of a setting that is a list.

    Raises `ConfigError` for an item that would be read as another one, or as two.

    Kafka's lists have no quoting: a comma always separates, and blanks around an item are dropped.
    """
    given = list(items)
    for item in given:
        if item.strip() != item or "," in item or not item:
            raise ConfigError(
                f"{item!r} cannot be one of {name}: commas separate these, and blanks around them are dropped"
            )
    return ",".join(given)
