"""What ``barnabas pipeline new`` writes: a flow's file with comments, for a format and a sink, and a test beside it.

Every combination is a valid flow whose test passes: it keeps the example's rows and gives them a derived column.
"""

import json
from typing import Final, NamedTuple

from barnabas.pipelines.outputs.registry import output_kinds

__all__ = ["TEMPLATE_FORMATS", "cases_template", "flow_template", "template_sinks"]


class _Format(NamedTuple):
    fields: str
    """The table ``[source.format]``."""
    where: str
    derive: str
    text: str
    """A column with words, for search."""
    rows: str
    """Rows of the test, the last of which is filtered out."""
    expected: str


_COLUMNS: Final = 'columns = { id = "bigint", at = "timestamp", kind = "string", amount = "double" }\nrequired = ["id"]'
_WHERE, _DERIVE = "amount > 0", "size = \"if(amount < 100, 'small', 'large')\""
_EXPECTED = '{ id = 1, kind = "a", size = "small" },\n  { id = 2, kind = "b", size = "large" },'
_FORMATS: Final = {
    "json": _Format(
        _COLUMNS,
        _WHERE,
        _DERIVE,
        "kind",
        '{ id = 1, at = 2026-01-01T10:00:00Z, kind = "a", amount = 5.5 },\n'
        '  { id = 2, at = 2026-01-01T11:00:00Z, kind = "b", amount = 200 },\n'
        '  { id = 3, at = 2026-01-01T12:00:00Z, kind = "b", amount = 0 },',
        _EXPECTED,
    ),
    "csv": _Format(
        f"# In the order of the fields of a line.\n{_COLUMNS}",
        _WHERE,
        _DERIVE,
        "kind",
        '"1,2026-01-01T10:00:00Z,a,5.5",\n  "2,2026-01-01T11:00:00Z,b,200",\n  "3,2026-01-01T12:00:00Z,b,0",',
        _EXPECTED,
    ),
    "logfmt": _Format(
        _COLUMNS,
        _WHERE,
        _DERIVE,
        "kind",
        '"id=1 at=2026-01-01T10:00:00Z kind=a amount=5.5",\n  "id=2 at=2026-01-01T11:00:00Z kind=b amount=200",\n'
        '  "id=3 at=2026-01-01T12:00:00Z kind=b amount=0",',
        _EXPECTED,
    ),
    "text": _Format(
        "# Its column is value.",
        "length(value) > 0",
        "words = \"size(split(value, ' '))\"",
        "value",
        '"hello world",\n  "",',
        '{ value = "hello world", words = 2 },',
    ),
    "web_log": _Format(
        "# Its columns are host, identity, user, time, method, path, protocol, status, size, referer and agent.",
        "path not like '/health%'",
        'is_error = "status >= 400"',
        "path",
        """'1.2.3.4 - - [01/Jan/2026:10:00:00 +0000] "GET /a HTTP/1.1" 404 10',\n"""
        """  '1.2.3.4 - - [01/Jan/2026:10:00:01 +0000] "GET /health HTTP/1.1" 200 2',""",
        '{ host = "1.2.3.4", path = "/a", status = 404, is_error = true },',
    ),
    "syslog": _Format(
        "# Its columns are facility, severity, time, host, app, process_id, message_id, data and message.",
        "severity <= 4",
        'is_error = "severity <= 3"',
        "message",
        '"<3>1 2026-01-01T10:00:00Z web app 12 - - disk full",\n  "<6>1 2026-01-01T10:00:01Z web app 12 - - all is well",',
        '{ host = "web", app = "app", message = "disk full", is_error = true },',
    ),
}
TEMPLATE_FORMATS: Final = tuple(_FORMATS)

_FLOW = """\
# What the flow {name} does, in one line.
#   barnabas pipeline check {file}        every field, expression and type, without a cluster
#   barnabas pipeline test {file}         runs the rows of {test_file} through it
#   barnabas pipeline dry-run {file}      looks at the topics, the newest records and the sink
#   barnabas pipeline run {file} --once   or without --once, until Ctrl-C
name = "{name}"
checkpoint = "state/{name}"   # the flow's position and state: a folder of its own

[source]
bootstrap_servers = {servers}
topics = [{topic}]
# group = "{name}"   # shows the flow's lag in all tools of Kafka
# bad_rows_topic = "{name}-bad"   # takes what does not fit the format, with the reason
# max_bad = "1%"   # stops the flow when more rows are bad

[source.format]
type = "{kind}"
{fields}

[transform]
where = "{where}"   # SQL, after derive

[transform.derive]
{derive}

# Figures instead of rows:
# [aggregate]
# group_by = ["{text}"]
# compute = {{ rows = "count(*)" }}

[[sinks]]
type = "{sink}"
{place}
"""

_TEST = """\
# Tests of {file}: barnabas pipeline test {file}
# Rows go to a real topic; the results are taken instead of the sink. Time is what the rows say.
[[tests]]
name = "rows are kept, and get the derived column"
expect = [
  {expected}
]

[[tests.given]]
source = [
  {rows}
]
"""


def template_sinks() -> tuple[str, ...]:
    """The kinds of outputs that a new flow may have."""
    return tuple(name for name, kind in output_kinds().items() if kind.template)


def flow_template(name: str, file: str, test_file: str, kind: str, sink: str, servers: str, topic: str) -> str:
    """The text of a flow's file."""
    how = _FORMATS[kind]
    place = output_kinds()[sink].template.format(name=name, text=how.text)
    return _FLOW.format(
        name=name,
        file=file,
        test_file=test_file,
        servers=_toml_text(servers),
        topic=_toml_text(topic),
        kind=kind,
        fields=how.fields,
        where=how.where,
        derive=how.derive,
        text=how.text,
        sink=sink,
        place=place,
    )


def _toml_text(text: str) -> str:
    """A text as TOML's basic string, which is JSON's but for one character."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def cases_template(file: str, kind: str) -> str:
    """The text of the file with the flow's tests."""
    how = _FORMATS[kind]
    return _TEST.format(file=file, rows=how.rows, expected=how.expected)
