"""The kinds of formats.

Needs no Spark; how values are decoded is in `barnabas.pipelines.formats.decoders`."""

import csv
import io
import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, ClassVar, Final

from barnabas.pipelines.formats.declared import (
    NAMES_AS_VALUES,
    NO_COLUMNS,
    OTHER_COUNT,
    OTHER_DELIMITER,
    WITH_QUOTES,
    Format,
    FormatExample,
    FormatKind,
)

__all__ = [
    "AVRO_FORMAT",
    "CSV_FORMAT",
    "JSON_FORMAT",
    "LOGFMT_FORMAT",
    "PROTOBUF_FORMAT",
    "SYSLOG_FORMAT",
    "TEXT_FORMAT",
    "WEB_LOG_FORMAT",
]

_COLUMNS: Final = 'columns = { id = "bigint", at = "timestamp", kind = "string", amount = "double" }\nrequired = ["id"]'
_WHERE, _DERIVE = "amount > 0", "size = \"if(amount < 100, 'small', 'large')\""
_EXPECTED = '{ id = 1, kind = "a", size = "small" },\n  { id = 2, kind = "b", size = "large" },'


class _CsvKind(FormatKind):
    type: ClassVar[str] = "csv"
    has_patterns: ClassVar[bool] = True
    has_delimiter: ClassVar[bool] = True
    gives_reasons: ClassVar[bool] = False
    example: ClassVar[FormatExample | None] = FormatExample(
        f"# In the order of the fields of a line.\n{_COLUMNS}",
        _WHERE,
        _DERIVE,
        "kind",
        '"1,2026-01-01T10:00:00Z,a,5.5",\n  "2,2026-01-01T11:00:00Z,b,200",\n  "3,2026-01-01T12:00:00Z,b,0",',
        _EXPECTED,
    )

    def what(self, how: Format) -> str:
        return f"line of {len(how.columns)} fields"

    def misfits(self, how: Format) -> dict[str, str]:
        base = f"the value is no {how.what}"
        return {
            "names of columns": NAMES_AS_VALUES,
            "other delimiter": base + OTHER_DELIMITER,
            "number of fields": base + OTHER_COUNT,
            "quotes": base + WITH_QUOTES,
        }

    def decode(self, how: Format, value: Any) -> Any:
        from barnabas.pipelines.formats.decoders import decoded_by_spark

        return decoded_by_spark(how, value)

    def encode(self, how: Format, row: Mapping[str, Any]) -> bytes:
        if how.null is None and any(row.get(name) is None for name in how.columns):
            raise TypeError('the format has no text for null: declare one, such as null = ""')
        line = io.StringIO()
        csv.writer(line, delimiter=how.delimiter, lineterminator="").writerow(
            [how.null if row.get(name) is None else row[name] for name in how.columns]
        )
        return line.getvalue().encode()


class _JsonKind(FormatKind):
    type: ClassVar[str] = "json"
    has_nested: ClassVar[bool] = True
    has_registry: ClassVar[bool] = True
    has_patterns: ClassVar[bool] = True
    gives_reasons: ClassVar[bool] = False
    example: ClassVar[FormatExample | None] = FormatExample(
        _COLUMNS,
        _WHERE,
        _DERIVE,
        "kind",
        '{ id = 1, at = 2026-01-01T10:00:00Z, kind = "a", amount = 5.5 },\n'
        '  { id = 2, at = 2026-01-01T11:00:00Z, kind = "b", amount = 200 },\n'
        '  { id = 3, at = 2026-01-01T12:00:00Z, kind = "b", amount = 0 },',
        _EXPECTED,
    )

    def what(self, how: Format) -> str:  # noqa: ARG002  # of CSV
        return "JSON object"

    def misfits(self, how: Format) -> dict[str, str]:
        return {"no JSON object": f"the value is no {how.what}", "no known column": NO_COLUMNS}

    def decode(self, how: Format, value: Any) -> Any:
        from barnabas.pipelines.formats.decoders import decoded_by_spark

        return decoded_by_spark(how, value)

    def encode(self, how: Format, row: Mapping[str, Any]) -> bytes:  # noqa: ARG002  # of CSV
        return json.dumps(row, default=_json).encode()


class _AvroKind(FormatKind):
    type: ClassVar[str] = "avro"
    has_nested: ClassVar[bool] = True
    has_schema: ClassVar[bool] = True
    has_registry: ClassVar[bool] = True
    is_text: ClassVar[bool] = False

    def schema_columns(self, schema_file: str, message: str | None) -> dict[str, str]:  # noqa: ARG002  # of Protobuf
        from barnabas.pipelines.formats import schemas

        return schemas.avro_columns(schemas.load_avro(schema_file))

    def decode(self, how: Format, value: Any) -> Any:
        from barnabas.pipelines.formats.decoders import decoded_by_schema

        return decoded_by_schema(how, value)


class _ProtobufKind(FormatKind):
    type: ClassVar[str] = "protobuf"
    has_nested: ClassVar[bool] = True
    has_schema: ClassVar[bool] = True
    has_message: ClassVar[bool] = True
    has_registry: ClassVar[bool] = True
    is_text: ClassVar[bool] = False

    def schema_columns(self, schema_file: str, message: str | None) -> dict[str, str]:
        from barnabas.pipelines.formats import schemas

        return schemas.protobuf_columns(schemas.load_protobuf(schema_file, message or ""))

    def decode(self, how: Format, value: Any) -> Any:
        from barnabas.pipelines.formats.decoders import decoded_by_schema

        return decoded_by_schema(how, value)


class _LogfmtKind(FormatKind):
    type: ClassVar[str] = "logfmt"
    has_patterns: ClassVar[bool] = True
    example: ClassVar[FormatExample | None] = FormatExample(
        _COLUMNS,
        _WHERE,
        _DERIVE,
        "kind",
        '"id=1 at=2026-01-01T10:00:00Z kind=a amount=5.5",\n  "id=2 at=2026-01-01T11:00:00Z kind=b amount=200",\n'
        '  "id=3 at=2026-01-01T12:00:00Z kind=b amount=0",',
        _EXPECTED,
    )

    def what(self, how: Format) -> str:  # noqa: ARG002  # of CSV
        return "line of key=value pairs"

    def decode(self, how: Format, value: Any) -> Any:
        from barnabas.pipelines.formats.decoders import decoded_logfmt

        return decoded_logfmt(how, value)


class _TextKind(FormatKind):
    type: ClassVar[str] = "text"
    columns: ClassVar[Mapping[str, str]] = {"value": "string"}
    refuses_mark: ClassVar[bool] = False
    always_fits: ClassVar[bool] = True
    example: ClassVar[FormatExample | None] = FormatExample(
        "# Its column is value.",
        "length(value) > 0",
        "words = \"size(split(value, ' '))\"",
        "value",
        '"hello world",\n  "",',
        '{ value = "hello world", words = 2 },',
    )

    def decode(self, how: Format, value: Any) -> Any:
        from barnabas.pipelines.formats.decoders import decoded_text

        return decoded_text(how, value)


class _WebLogKind(FormatKind):
    type: ClassVar[str] = "web_log"
    columns: ClassVar[Mapping[str, str]] = {
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
    }
    example: ClassVar[FormatExample | None] = FormatExample(
        "# Its columns are host, identity, user, time, method, path, protocol, status, size, referer and agent.",
        "path not like '/health%'",
        'is_error = "status >= 400"',
        "path",
        """'1.2.3.4 - - [01/Jan/2026:10:00:00 +0000] "GET /a HTTP/1.1" 404 10',\n"""
        """  '1.2.3.4 - - [01/Jan/2026:10:00:01 +0000] "GET /health HTTP/1.1" 200 2',""",
        '{ host = "1.2.3.4", path = "/a", status = 404, is_error = true },',
    )

    def what(self, how: Format) -> str:  # noqa: ARG002  # of CSV
        return "line of a web server's log"

    def decode(self, how: Format, value: Any) -> Any:
        from barnabas.pipelines.formats.decoders import decoded_web_log

        return decoded_web_log(how, value)


class _SyslogKind(FormatKind):
    type: ClassVar[str] = "syslog"
    columns: ClassVar[Mapping[str, str]] = {
        "facility": "int",
        "severity": "int",
        "time": "timestamp",
        "host": "string",
        "app": "string",
        "process_id": "string",
        "message_id": "string",
        "data": "string",
        "message": "string",
    }
    example: ClassVar[FormatExample | None] = FormatExample(
        "# Its columns are facility, severity, time, host, app, process_id, message_id, data and message.",
        "severity <= 4",
        'is_error = "severity <= 3"',
        "message",
        '"<3>1 2026-01-01T10:00:00Z web app 12 - - disk full",\n  "<6>1 2026-01-01T10:00:01Z web app 12 - - all is well",',
        '{ host = "web", app = "app", message = "disk full", is_error = true },',
    )

    def decode(self, how: Format, value: Any) -> Any:
        from barnabas.pipelines.formats.decoders import decoded_syslog

        return decoded_syslog(how, value)


def _json(value: Any) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)


CSV_FORMAT = _CsvKind()
JSON_FORMAT = _JsonKind()
AVRO_FORMAT = _AvroKind()
PROTOBUF_FORMAT = _ProtobufKind()
LOGFMT_FORMAT = _LogfmtKind()
TEXT_FORMAT = _TextKind()
WEB_LOG_FORMAT = _WebLogKind()
SYSLOG_FORMAT = _SyslogKind()
