"""How a record's value becomes columns, declared: format, columns, schema; and what a kind of
format is. Needs no Spark."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

__all__ = [
    "CORRUPT",
    "NAMES_AS_VALUES",
    "NO_COLUMNS",
    "OTHER_COUNT",
    "OTHER_DELIMITER",
    "WITH_QUOTES",
    "Format",
    "FormatExample",
    "FormatKind",
    "format_kinds",
    "register_format",
    "unregister_format",
]

CORRUPT = "_barnabas_corrupt"
"""The field of a decoded value that says why it does not fit; null for one that does."""
NO_COLUMNS = "the value has none of the columns"
NAMES_AS_VALUES = "the value has the names of the columns, as the first line of a file"
OTHER_DELIMITER = ", unless they are divided by"
OTHER_COUNT = ", but of"
WITH_QUOTES = " with the quotes that it has"
"""How the reason ends when a value is not a line with the expected number of fields."""


@dataclass(frozen=True, slots=True)
class Format:
    """How a record's value becomes columns."""

    type: str
    columns: dict[str, str]
    null: str | None = None
    """The text of CSV that stands for null; without one an empty field is an empty text."""
    delimiter: str = ","
    timestamp_format: str | None = None
    date_format: str | None = None
    required: tuple[str, ...] = ()
    schema_file: str | None = None
    registry: str | None = None
    message: str | None = None
    no_value: str = "bad"
    """What a record without a value is: a ``bad`` row, a ``row`` whose columns are
    null, or nothing (``skip``)."""

    @property
    def rules(self) -> "FormatKind":
        """The kind of the format."""
        return _KINDS[self.type]

    @property
    def what(self) -> str:
        """What a value of the format is, for the reasons of bad rows."""
        return self.rules.what(self)

    @property
    def misfits(self) -> dict[str, str]:
        """Kinds of values that are no value of the format, each with how their reasons begin: what
        follows may be of the record."""
        return self.rules.misfits(self)

    def pattern(self, column: str) -> str | None:
        """The declared form of a column's times or dates."""
        return self.pattern_of(self.columns[column])

    def pattern_of(self, kind: str) -> str | None:
        """The same by the type's name, for parts of a column's value."""
        kind = kind.lower()
        return self.date_format if kind == "date" else self.timestamp_format if kind.startswith("timestamp") else None

    def kind(self, column: str) -> str:
        """What a value of the column is, for the reasons of bad rows."""
        return self.with_pattern(self.columns[column])

    def with_pattern(self, kind: str) -> str:
        """The type's name, with the form that is declared for it."""
        pattern = self.pattern_of(kind)
        return kind + (f" of the form {pattern}" if pattern else "")


class FormatExample(NamedTuple):
    """What ``barnabas pipeline new`` writes for a format, and for the test beside the flow."""

    fields: str
    """The table ``[source.format]``."""
    where: str
    derive: str
    text: str
    """A column with words, for search."""
    rows: str
    """Rows of the test, the last of which is filtered out."""
    expected: str


class FormatKind:
    """What the rest of the program asks about the formats of one ``type``.

    A kind is a subclass with one object, which is registered
    (`barnabas.pipelines.formats.registry`); it needs no other place.
    A kind that needs packages imports them inside of its methods: all kinds are imported
    whenever a flow's file is read.
    """

    type: ClassVar[str]
    """Its name in flows' files."""
    columns: ClassVar[Mapping[str, str]] = {}
    """Its own columns with their types; without any, the flow declares them."""
    has_nested: ClassVar[bool] = False
    """Whether columns may be arrays, maps and structs."""
    has_schema: ClassVar[bool] = False
    """Whether a schema is needed, in a file or in a registry."""
    has_message: ClassVar[bool] = False
    """Whether a schema has several messages, one of which must be named."""
    has_registry: ClassVar[bool] = False
    """Whether values may begin with the id of a schema of a registry."""
    has_patterns: ClassVar[bool] = False
    """Whether the flow may declare the form of times and dates."""
    has_delimiter: ClassVar[bool] = False
    """Whether the flow may declare a delimiter, and a text for null."""
    is_text: ClassVar[bool] = True
    """Whether a value is a text in UTF-8."""
    refuses_mark: ClassVar[bool] = True
    """Whether a text must not begin with a byte order mark."""
    always_fits: ClassVar[bool] = False
    """Whether every value is one of the format."""
    gives_reasons: ClassVar[bool] = True
    """Whether `decode` says why a value does not fit; else Spark's parsers of JSON and CSV do not
    say, and it is found out."""
    example: ClassVar[FormatExample | None] = None
    """None for a kind that ``barnabas pipeline new`` does not offer."""

    def what(self, how: Format) -> str:  # noqa: ARG002  # of CSV
        """What a value is, for the reasons of bad rows."""
        return self.type

    def misfits(self, how: Format) -> dict[str, str]:  # noqa: ARG002  # of CSV and JSON
        """Like `Format.misfits`."""
        return {}

    def schema_columns(self, schema_file: str, message: str | None) -> dict[str, str]:
        """The columns that the schema in a file has.

        Raises `ImportError`, `OSError`, `ValueError`, `KeyError`."""
        raise NotImplementedError

    def decode(self, how: Format, value: Any) -> Any:
        """A column of Spark's with values, as a struct of the format's columns and `CORRUPT`, the
        reason why one does not fit."""
        raise NotImplementedError

    def encode(self, how: Format, row: Mapping[str, Any]) -> bytes:  # noqa: ARG002  # a default
        """The value of a row, for tests of flows.

        Raises `TypeError` where rows must be given as texts or bytes."""
        raise TypeError(f"give rows of the format {self.type} as text or bytes")


_KINDS: dict[str, FormatKind] = {}


def register_format(kind: FormatKind) -> None:
    """Let flows name another kind. Raises `ValueError` if its name is taken."""
    if kind.type in _KINDS:
        raise ValueError(f"there is a format {kind.type} already")
    _KINDS[kind.type] = kind


def unregister_format(kind: FormatKind) -> None:
    """Take a kind away again, as tests do."""
    del _KINDS[kind.type]


def format_kinds() -> dict[str, FormatKind]:
    """All kinds, by their names."""
    return dict(_KINDS)
