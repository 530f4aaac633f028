"""What ``barnabas pipeline new`` writes: a flow's file with comments, for a format and a
sink, and a test beside it.

Every combination is a valid flow whose test passes: it keeps the example's rows and
gives them a derived column.
"""

import json

from barnabas.pipelines.formats.declared import FormatExample, format_kinds
from barnabas.pipelines.outputs.registry import output_kinds

__all__ = ["cases_template", "flow_template", "template_formats", "template_sinks"]


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


def template_formats() -> tuple[str, ...]:
    """The formats that a new flow may have."""
    return tuple(name for name, kind in format_kinds().items() if kind.example)


def _example(kind: str) -> FormatExample:
    example = format_kinds()[kind].example
    assert example is not None, kind
    return example


def template_sinks() -> tuple[str, ...]:
    """The kinds of outputs that a new flow may have."""
    return tuple(name for name, kind in output_kinds().items() if kind.template)


def flow_template(name: str, file: str, test_file: str, kind: str, sink: str, servers: str, topic: str) -> str:
    """The text of a flow's file."""
    how = _example(kind)
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
    how = _example(kind)
    return _TEST.format(file=file, rows=how.rows, expected=how.expected)
