"""How a record's value becomes columns, declared: format, columns, schema. Needs no Spark."""

import re
from dataclasses import dataclass

from barnabas.base.installation import install_command
from barnabas.pipelines.flow_file.fields import SpecTable, check_column, check_web_address

__all__ = [
    "FORMATS",
    "NAMES_AS_VALUES",
    "NO_COLUMNS",
    "OTHER_COUNT",
    "OTHER_DELIMITER",
    "WITH_QUOTES",
    "Format",
    "read_format",
]

_TYPE = re.compile(
    r"(string|boolean|tinyint|smallint|int|integer|bigint|long|float|double|date|timestamp|timestamp_ntz|binary"
    r"|decimal\(\s*\d+\s*,\s*\d+\s*\))",
    re.IGNORECASE,
)
_NESTED_TYPE = re.compile(r"(array|map|struct)<.+>", re.IGNORECASE)
_FIXED = {
    "text": {"value": "string"},
    "web_log": {
        "host": "string",
        "identity": "string",
        "user": "string",
        "time": "timestamp",
        "method": "string",
        "path": "string",
        "protocol": "string",
        "status": "int",
        "size": "bigint",
        "referer": "string",
        "agent": "string",
    },
    "syslog": {
        "facility": "int",
        "severity": "int",
        "time": "timestamp",
        "host": "string",
        "app": "string",
        "process_id": "string",
        "message_id": "string",
        "data": "string",
        "message": "string",
    },
}
"""Formats that have columns of their own."""
FORMATS = ("csv", "json", "avro", "protobuf", "logfmt", *_FIXED)
NO_COLUMNS = "the value has none of the columns"
NAMES_AS_VALUES = "the value has the names of the columns, as the first line of a file"
OTHER_DELIMITER = ", unless they are divided by"
OTHER_COUNT = ", but of"
WITH_QUOTES = " with the quotes that it has"
"""Ends of the reason that a value is no line of so many fields."""
_NESTED = ("json", "avro", "protobuf")
_WITH_SCHEMA = ("avro", "protobuf")


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
    """What a record without a value is: a ``bad`` row, a ``row`` whose columns are null, or nothing (``skip``)."""

    @property
    def misfits(self) -> dict[str, str]:
        """Kinds of values that are no value of the format, each with how their reasons begin: what follows may be of the record."""
        base = f"the value is no {self.what}"
        if self.type == "csv":
            return {
                "names of columns": NAMES_AS_VALUES,
                "other delimiter": base + OTHER_DELIMITER,
                "number of fields": base + OTHER_COUNT,
                "quotes": base + WITH_QUOTES,
            }
        return {"no JSON object": base, "no known column": NO_COLUMNS} if self.type == "json" else {}

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

    @property
    def what(self) -> str:
        """What a value of the format is, for the reasons of bad rows."""
        names = {"json": "JSON object", "web_log": "line of a web server's log", "logfmt": "line of key=value pairs"}
        return names.get(self.type) or (f"line of {len(self.columns)} fields" if self.type == "csv" else self.type)


def read_format(table: SpecTable, *, of_source: bool) -> Format:
    """The table ``[source.format]``, or that of a topic as a table; raises `SpecError`."""
    kind = table.choice("type", FORMATS)
    columns = table.texts_by_name("columns")
    schema_file, registry, message = table.text("schema_file"), table.address("registry"), table.text("message")
    _check_schema(table, kind, schema_file, registry, message)
    if schema_file:
        schema_file = table.resolve("schema_file", schema_file)
    if kind in _FIXED:
        if columns:
            own = ", ".join(_FIXED[kind])
            raise table.fail("columns", f"is not for the format {kind}, whose columns are {own}")
        columns = _FIXED[kind]
    elif not columns and schema_file:
        columns = _columns_of(table, kind, schema_file, message)
    elif not columns:
        raise table.fail("columns", 'is missing: name = "type" for each column')
    else:
        _check_columns(table, kind, columns)
    required = table.texts("required")
    for name in required:
        if name not in columns:
            raise table.fail("required", f"names {name}, which is no column of the format")
    delimiter = table.text("delimiter", ",") or ""
    if len(delimiter) != 1:
        raise table.fail("delimiter", "must be one character")
    null = table.text("null")
    if kind != "csv" and (table.has("null") or table.has("delimiter")):
        raise table.fail("null" if table.has("null") else "delimiter", f"is for the format csv, not {kind}")
    timestamp_format, date_format = table.text("timestamp_format"), table.text("date_format")
    for name, pattern in (("timestamp_format", timestamp_format), ("date_format", date_format)):
        if pattern and kind not in ("csv", "json", "logfmt"):
            raise table.fail(name, f"is for csv, json and logfmt; {kind} has its own form of times")
    if date_format and not any(re.search(r"\bdate\b", each, re.IGNORECASE) for each in columns.values()):
        raise table.fail("date_format", "is for columns of the type date, and there is none")
    no_value = table.choice("no_value", ("bad", "skip", "row"), "bad") if of_source else "bad"
    return Format(
        kind,
        columns,
        null,
        delimiter,
        timestamp_format,
        date_format,
        required,
        schema_file,
        registry,
        message,
        no_value,
    )


def _check_schema(
    table: SpecTable, kind: str, schema_file: str | None, registry: str | None, message: str | None
) -> None:
    if schema_file and kind not in _WITH_SCHEMA:
        raise table.fail("schema_file", f"is for {' and '.join(_WITH_SCHEMA)}, not {kind}")
    if registry and kind not in (*_WITH_SCHEMA, "json"):
        raise table.fail("registry", f"is for {', '.join(_WITH_SCHEMA)} and json, not {kind}")
    if registry:
        check_web_address(table, "registry", registry, "http://localhost:8081")
    if kind in _WITH_SCHEMA and not schema_file and not registry:
        raise table.fail("schema_file", "is missing: give the schema in a file, or the address of a registry")
    if kind == "protobuf" and schema_file and not message:
        raise table.fail("message", 'is missing: the full name of the message, such as "shop.Order"')
    if message and kind != "protobuf":
        raise table.fail("message", "is for protobuf")


def _check_columns(table: SpecTable, kind: str, columns: dict[str, str]) -> None:
    known: dict[str, str] = {}
    for name, type_name in columns.items():
        check_column(table, f"columns.{name}", name)
        if (other := known.setdefault(name.lower(), name)) != name:
            table.report(
                f"columns.{name}", f"differs from {other} in upper and lower case only, which Spark does not see"
            )
        nested = kind in _NESTED and _NESTED_TYPE.fullmatch(type_name)
        if not (_TYPE.fullmatch(type_name) or nested):
            is_nested = kind not in _NESTED and _NESTED_TYPE.fullmatch(type_name)
            what = f"is not for {kind}, but for {', '.join(sorted(_NESTED))}" if is_nested else "is not known"
            table.report(f"columns.{name}", f"has the type {type_name!r}, which {what}: int, string, double, ...")


def _columns_of(table: SpecTable, kind: str, schema_file: str, message: str | None) -> dict[str, str]:
    """The columns that the schema in a file has."""
    from barnabas.pipelines.formats import schemas

    try:
        if kind == "avro":
            return schemas.avro_columns(schemas.load_avro(schema_file))
        return schemas.protobuf_columns(schemas.load_protobuf(schema_file, message or ""))
    except ImportError as error:
        raise table.fail("type", f"{kind} needs {error.name}: {install_command('pipelines')}") from error
    except (OSError, ValueError, KeyError) as error:
        raise table.fail("schema_file", f"cannot be used: {error}") from error
