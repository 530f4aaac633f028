"""The formats that flows may name, each registered here by one line (`kinds`); and the table of a
flow's file that names one.

Other programs register theirs with `barnabas.pipelines.formats.declared.register_format`, before
they read a flow's file. Needs no Spark.
"""

import re

from barnabas.base.installation import install_command
from barnabas.pipelines.flow_file.fields import SpecTable, check_column, check_web_address
from barnabas.pipelines.formats.declared import Format, FormatKind, format_kinds, register_format
from barnabas.pipelines.formats.kinds import (
    AVRO_FORMAT,
    CSV_FORMAT,
    JSON_FORMAT,
    LOGFMT_FORMAT,
    PROTOBUF_FORMAT,
    SYSLOG_FORMAT,
    TEXT_FORMAT,
    WEB_LOG_FORMAT,
)

__all__ = ["read_format"]

for _each in (
    CSV_FORMAT,
    JSON_FORMAT,
    AVRO_FORMAT,
    PROTOBUF_FORMAT,
    LOGFMT_FORMAT,
    TEXT_FORMAT,
    WEB_LOG_FORMAT,
    SYSLOG_FORMAT,
):
    register_format(_each)

_TYPE = re.compile(
    r"(string|boolean|tinyint|smallint|int|integer|bigint|long|float|double|date|timestamp|timestamp_ntz|binary"
    r"|decimal\(\s*\d+\s*,\s*\d+\s*\))",
    re.IGNORECASE,
)
_NESTED_TYPE = re.compile(r"(array|map|struct)<.+>", re.IGNORECASE)


def read_format(table: SpecTable, *, of_source: bool) -> Format:
    """The table ``[source.format]``, or the format of a topic as a table; raises `SpecError`."""
    rules = format_kinds()[table.choice("type", tuple(format_kinds()))]
    columns = table.texts_by_name("columns")
    schema_file, registry, message = table.text("schema_file"), table.address("registry"), table.text("message")
    _check_schema(table, rules, schema_file, registry, message)
    if schema_file:
        schema_file = table.resolve("schema_file", schema_file)
    if rules.columns:
        if columns:
            own = ", ".join(rules.columns)
            raise table.fail("columns", f"is not for the format {rules.type}, whose columns are {own}")
        columns = dict(rules.columns)
    elif not columns and schema_file:
        columns = _columns_of(table, rules, schema_file, message)
    elif not columns:
        raise table.fail("columns", 'is missing: name = "type" for each column')
    else:
        _check_columns(table, rules, columns)
    required = table.texts("required")
    for name in required:
        if name not in columns:
            raise table.fail("required", f"names {name}, which is no column of the format")
    delimiter = table.text("delimiter", ",") or ""
    if len(delimiter) != 1:
        raise table.fail("delimiter", "must be one character")
    null = table.text("null")
    if not rules.has_delimiter and (table.has("null") or table.has("delimiter")):
        raise table.fail(
            "null" if table.has("null") else "delimiter",
            f"is for the format {_named('has_delimiter')}, not {rules.type}",
        )
    timestamp_format, date_format = table.text("timestamp_format"), table.text("date_format")
    for name, pattern in (("timestamp_format", timestamp_format), ("date_format", date_format)):
        if pattern and not rules.has_patterns:
            raise table.fail(name, f"is for {_named('has_patterns')}; {rules.type} has its own form of times")
    if date_format and not any(re.search(r"\bdate\b", each, re.IGNORECASE) for each in columns.values()):
        raise table.fail("date_format", "is for columns of the type date, and there is none")
    no_value = table.choice("no_value", ("bad", "skip", "row"), "bad") if of_source else "bad"
    return Format(
        rules.type,
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
    table: SpecTable, rules: FormatKind, schema_file: str | None, registry: str | None, message: str | None
) -> None:
    if schema_file and not rules.has_schema:
        raise table.fail("schema_file", f"is for {_named('has_schema')}, not {rules.type}")
    if registry and not rules.has_registry:
        raise table.fail("registry", f"is for {_named('has_registry')}, not {rules.type}")
    if registry:
        check_web_address(table, "registry", registry, "http://localhost:8081")
    if rules.has_schema and not schema_file and not registry:
        raise table.fail("schema_file", "is missing: give the schema in a file, or the address of a registry")
    if rules.has_message and schema_file and not message:
        raise table.fail("message", 'is missing: the full name of the message, such as "shop.Order"')
    if message and not rules.has_message:
        raise table.fail("message", f"is for {_named('has_message')}")


def _check_columns(table: SpecTable, rules: FormatKind, columns: dict[str, str]) -> None:
    known: dict[str, str] = {}
    for name, type_name in columns.items():
        check_column(table, f"columns.{name}", name)
        if (other := known.setdefault(name.lower(), name)) != name:
            table.report(
                f"columns.{name}", f"differs from {other} in upper and lower case only, which Spark does not see"
            )
        nested = rules.has_nested and _NESTED_TYPE.fullmatch(type_name)
        if not (_TYPE.fullmatch(type_name) or nested):
            is_nested = not rules.has_nested and _NESTED_TYPE.fullmatch(type_name)
            what = (
                f"is not for {rules.type}, but for {', '.join(sorted(_having('has_nested')))}"
                if is_nested
                else "is not known"
            )
            table.report(f"columns.{name}", f"has the type {type_name!r}, which {what}: int, string, double, ...")


def _columns_of(table: SpecTable, rules: FormatKind, schema_file: str, message: str | None) -> dict[str, str]:
    """The columns that the schema in a file has."""
    try:
        return rules.schema_columns(schema_file, message)
    except ImportError as error:
        raise table.fail("type", f"{rules.type} needs {error.name}: {install_command('pipelines')}") from error
    except (OSError, ValueError, KeyError) as error:
        raise table.fail("schema_file", f"cannot be used: {error}") from error


def _having(capability: str) -> list[str]:
    """The formats with a capability of `FormatKind`."""
    return [name for name, kind in format_kinds().items() if getattr(kind, capability)]


def _named(capability: str) -> str:
    """The same as words."""
    *first, last = _having(capability)
    return f"{', '.join(first)} and {last}" if first else last
