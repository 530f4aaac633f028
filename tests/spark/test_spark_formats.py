"""Formats with fixed columns and with schemas, on small frames.

Previews, dry runs and replays on a real topic."""

import base64
import dataclasses
import datetime
import io
import json
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.spark
pytest.importorskip("pyspark")
fastavro = pytest.importorskip("fastavro")
descriptor_pb2 = pytest.importorskip("google.protobuf.descriptor_pb2")

from barnabas.base.errors import BarnabasError  # noqa: E402
from barnabas.pipelines.checks.trial import preview_rows, try_flow  # noqa: E402
from barnabas.pipelines.dead_letters.replay import replay_dead_letters  # noqa: E402
from barnabas.pipelines.frames import transforms  # noqa: E402
from barnabas.pipelines.running.run import run_on  # noqa: E402
from barnabas.pipelines.specification import spec  # noqa: E402
from barnabas.testing.flows import FlowUnderTest  # noqa: E402
from support.registry import RegistryForTests, with_id  # noqa: E402

FLOW = """\
name = "{name}"
checkpoint = "state"
[source]
bootstrap_servers = "{servers}"
topics = ["{name}"]
bad_rows_topic = "{bad}"
[source.format]
{format}
[[sinks]]
type = "sqlite"
path = "out.db"
table = "t"
"""
WEB = '::1 - ann [10/Oct/2000:13:55:36 -0700] "GET /a?b=1 HTTP/1.1" 200 2326 "http://h/" "Mozilla/4.08 (Win98; I)"'
SYSLOG = '<165>1 2003-08-24T05:14:15.000003-07:00 192.0.2.1 app 8710 - [ex@1 a="A]"][b p="h"] x y'
OLD_SYSLOG = "<34>Oct  1 22:14:15 box su[12]: failed"
LOGFMT = 'level=info msg="hi \\"you\\" x=y" dur=5 level=again empty='
SCHEMA: dict[str, Any] = {"type": "record", "name": "O", "fields": [{"name": "id", "type": "long"}]}


def parsed(
    spark: Any, folder: Path, how: str, *values: str | bytes
) -> tuple[list[dict[str, Any]], list[tuple[str, str]]]:
    """The good rows, and class and reason of the bad ones."""
    flow = spec.parse(FLOW.format(name="n", servers="h:1", bad="b", format=how), file=str(folder / "flow.toml"))
    rows = [(None, each.encode() if isinstance(each, str) else each, "t", 0, at) for at, each in enumerate(values)]
    found = transforms.parse_records(spark.createDataFrame(rows, transforms.RECORD_SCHEMA), flow.source.format)
    collected = found.toArrow().to_pylist()
    columns = flow.source.format.columns
    good = [{name: row[name] for name in columns} for row in collected if row["_barnabas_bad"] is None]
    return good, [(row["_barnabas_error"], row["_barnabas_bad"]) for row in collected if row["_barnabas_bad"]]


def test_lines_of_logs_become_columns(spark: Any, tmp_path: Path) -> None:
    """Web servers, both kinds of syslog, logfmt; what is no such line is bad."""
    (web,), bad = parsed(spark, tmp_path, 'type = "web_log"', WEB, "no line")
    assert (web["host"], web["identity"], web["user"], web["path"]) == ("::1", None, "ann", "/a?b=1")
    assert (web["status"], web["size"], web["agent"]) == (200, 2326, "Mozilla/4.08 (Win98; I)")
    assert web["time"].isoformat() == "2000-10-10T20:55:36+00:00"
    assert bad == [("MALFORMED", "the value is no line of a web server's log")]
    (new, old), bad = parsed(spark, tmp_path, 'type = "syslog"', SYSLOG, OLD_SYSLOG, "no line")
    assert (new["facility"], new["severity"], new["app"], new["process_id"]) == (20, 5, "app", "8710")
    assert (new["data"], new["message"]) == ('[ex@1 a="A]"][b p="h"]', "x y")
    assert new["time"].isoformat() == "2003-08-24T12:14:15.000003+00:00"
    assert (old["facility"], old["host"], old["app"], old["process_id"], old["message"]) == (
        4,
        "box",
        "su",
        "12",
        "failed",
    )
    assert (old["time"].month, old["time"].day, len(bad)) == (10, 1, 1)
    soon = (datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=3)).replace(microsecond=0)
    soon += datetime.timedelta(days=(soon.month, soon.day) == (2, 29))
    (line,), bad = parsed(
        spark,
        tmp_path,
        'type = "syslog"',
        f"<191>{soon:%b} {soon.day:2d} {soon:%H:%M:%S} box su: in",
        "<192>1 - - - - - -",
    )
    assert line["time"] == soon.replace(year=soon.year - 1)  # no line is of the future
    assert bad == [("MALFORMED", "the value is no syslog")]
    how = 'type = "logfmt"\ncolumns = { level = "string", msg = "string", dur = "int", empty = "int" }'
    (line,), bad = parsed(spark, tmp_path, how, LOGFMT, "level=warn dur=soon", "nothing")
    assert line == {"level": "info", "msg": 'hi "you" x=y', "dur": 5, "empty": None}
    assert bad == [
        ("WRONG_TYPE", "column dur is soon, which is no int"),
        ("MALFORMED", "the value is no line of key=value pairs"),
    ]


REQUEST = '"GET / HTTP/1.1" 200'


@pytest.mark.parametrize(
    ("kind", "line", "reason"),
    [
        ("web_log", f"h - - [31/Feb/2026:25:61:00 +0000] {REQUEST} 5", "column time is 31/Feb/2026:25:61:00 +0000"),
        ("web_log", f"h - - [10/Oct/2000:13:55:36 -0700] {REQUEST} {'9' * 20}", f"column size is {'9' * 20}"),
        ("web_log", f"h - - [-] {REQUEST} -", None),
        ("syslog", "<34>1 not-a-time host app - - -", "column time is not-a-time"),
        ("syslog", "<34>Feb 31 22:14:15 box su[12]: failed", "column time is Feb 31 22:14:15"),
        ("syslog", "<34>1 - host app - - -", None),
    ],
)
def test_a_time_or_size_of_a_log_that_is_none_makes_a_bad_row(
    spark: Any, tmp_path: Path, kind: str, line: str, reason: str | None
) -> None:
    """A dash is no time and no size, and null."""
    good, bad = parsed(spark, tmp_path, f'type = "{kind}"', line)
    assert ([each["time"] for each in good], len(bad)) == (([], 1) if reason else ([None], 0))
    assert all(error == "WRONG_TYPE" and why.startswith(f"{reason}, which is no ") for error, why in bad)


def test_a_value_may_have_any_number_of_quotes(spark: Any, tmp_path: Path) -> None:
    """Neither time nor the stack of Spark's tasks ends with them."""
    many = 100_000
    columns = 'columns = { v = "string", w = "string" }'
    escaped, parameters = '\\"' * many, 'x="" ' * many
    for how, line, name, length in (
        ('type = "web_log"', f'h - - [-] "GET / HTTP/1.1" 200 5 "{escaped}" "a"', "referer", 2 * many),
        ('type = "syslog"', f"<34>1 - host app - - [a {parameters}] m", "data", 5 * many + 4),
        (f'type = "logfmt"\n{columns}', f'v="{escaped}"', "v", many),
        (f'type = "csv"\n{columns}', f',"{escaped}"'.replace("\\", '"'), "w", many),
    ):
        good, bad = parsed(spark, tmp_path, how, line)
        assert not bad
        assert len(good[0][name]) == length


def test_dates_have_the_form_that_is_declared(spark: Any, tmp_path: Path) -> None:
    """In JSON, CSV and logfmt; the reason of a bad row names it. Times have a form of their own."""
    columns = 'columns = { day = "date", at = "timestamp" }\ndate_format = "dd/MM/yyyy"'
    for kind, good, wrong in (
        ("json", '{"day": "31/01/2026", "at": "2026-01-31T10:00:00Z"}', '{"day": "2026-01-31"}'),
        ("csv", "31/01/2026,2026-01-31T10:00:00Z", "2026-01-31,2026-01-31T10:00:00Z"),
        ("logfmt", "day=31/01/2026 at=2026-01-31T10:00:00Z", "day=2026-01-31"),
    ):
        (row,), bad = parsed(spark, tmp_path, f'type = "{kind}"\n{columns}', good, wrong)
        assert (row["day"].isoformat(), row["at"].isoformat()) == ("2026-01-31", "2026-01-31T10:00:00+00:00")
        assert bad == [("WRONG_TYPE", "column day is 2026-01-31, which is no date of the form dd/MM/yyyy")]
    times = 'type = "json"\ncolumns = { at = "timestamp" }\ntimestamp_format = "dd.MM.yyyy HH:mm"'
    (row,), bad = parsed(spark, tmp_path, times, '{"at": "31.01.2026 10:00"}', '{"at": "2026-01-31T10:00:00Z"}')
    assert row["at"].isoformat() == "2026-01-31T10:00:00+00:00"
    assert bad == [
        ("WRONG_TYPE", "column at is 2026-01-31T10:00:00Z, which is no timestamp of the form dd.MM.yyyy HH:mm")
    ]


def test_avro_and_json_of_a_registry_become_columns(spark: Any, tmp_path: Path) -> None:
    """A number that does not fit its column is named; JSON follows the schema's id, and is a bad
    row where the schema has a rule that nothing executes here."""
    (tmp_path / "o.avsc").write_text(json.dumps(SCHEMA))
    values = []
    for number in (7, 2**40):
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, fastavro.parse_schema(SCHEMA), {"id": number})
        values.append(stream.getvalue())
    good, bad = parsed(
        spark, tmp_path, 'type = "avro"\nschema_file = "o.avsc"\ncolumns = { id = "int" }', *values, b"\x80"
    )
    assert good == [{"id": 7}]
    assert bad[0] == ("WRONG_TYPE", f"column id is {2**40}, which is no int")
    assert bad[1][0] == "MALFORMED"
    with RegistryForTests() as registry:
        registry.schemas = dict.fromkeys((1, 2), '{"type": "object"}')
        registry.more[1] = {"schemaType": "JSON"}
        rules = {"domainRules": [{"name": "hide", "type": "ENCRYPT", "mode": "WRITEREAD", "tags": ["PII"]}]}
        registry.more[2] = {"schemaType": "JSON", "ruleSet": rules}
        how = f'type = "json"\nregistry = "{registry.address}"\ncolumns = {{ id = "int", name = "string" }}'
        values = (with_id(2, b'{"id": 6, "name": "q83v"}'), with_id(2, b"\xff"), with_id(9, b'{"id": 7}'))
        good, bad = parsed(spark, tmp_path, how, with_id(1, b'{"id": 5}'), '{"id": 5}', *values, with_id(1, b"["))
    assert good == [{"id": 5, "name": None}]
    encrypted = "schema 2: its values are encrypted by the rule hide (ENCRYPT), and are not decrypted here"
    no_object = "the value is no JSON object"
    reasons = [no_object, encrypted, encrypted, "the registry has no schema 9", no_object]
    assert bad == [("MALFORMED", reason) for reason in reasons]


BOTH = """\
name = "both"
checkpoint = "state"
[sources.a]
bootstrap_servers = "h:1"
topics = ["a"]
max_offsets_per_trigger = 1
format = {{ type = "avro", registry = "{registry}", columns = {{ id = "bigint", note = "string" }} }}
[sources.p]
topics = ["p"]
max_offsets_per_trigger = 1
format = {{ type = "protobuf", registry = "{registry}", columns = {{ id = "bigint", note = "string" }} }}
[[steps]]
name = "all"
sql = "select 'avro' as kind, id, note from a union all select 'protobuf', id, note from p"
[[sinks]]
type = "sqlite"
path = "out.db"
table = "t"
key = ["kind", "id"]
"""


def test_a_flow_follows_the_schemas_of_its_records_while_it_runs(spark: Any, cluster: Any, tmp_path: Path) -> None:
    """Avro and Protobuf of a registry: a newer schema's column appears; an id that the
    registry lacks is a bad row."""
    newer = {**SCHEMA, "fields": [*SCHEMA["fields"], {"name": "note", "type": "string"}]}

    def avro(schema: dict[str, Any], **values: Any) -> bytes:
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), values)
        return stream.getvalue()

    def order(*names: str) -> str:
        kinds = descriptor_pb2.FieldDescriptorProto
        file = descriptor_pb2.FileDescriptorProto(name="o.proto", package="shop", syntax="proto3")
        message = file.message_type.add(name="O")
        for number, name in enumerate(names, 1):
            kind = kinds.TYPE_INT64 if name == "id" else kinds.TYPE_STRING
            message.field.add(name=name, number=number, type=kind, label=kinds.LABEL_OPTIONAL)
        return base64.b64encode(file.SerializeToString()).decode()

    with RegistryForTests() as registry:
        flow = spec.parse(BOTH.format(registry=registry.address), file=str(tmp_path / "flow.toml"))
        tested = FlowUnderTest(flow, spark, cluster.bootstrap, tmp_path)
        registry.schemas = {1: json.dumps(SCHEMA), 2: json.dumps(newer), 3: order("id"), 4: order("id", "note")}
        tested.given(
            [with_id(1, avro(SCHEMA, id=1)), with_id(2, avro(newer, id=2, note="new")), with_id(9, b""), b"\x02"],
            p=[with_id(3, b"\0\x08\x03"), with_id(4, b"\0\x08\x04\x12\x03new")],
        )
        first = tested.run()
        expected = [("avro", 1, None), ("avro", 2, "new"), ("protobuf", 3, None), ("protobuf", 4, "new")]
        first.assert_rows([{"kind": kind, "id": number, "note": note} for kind, number, note in expected])
        assert (first.summary["batches"], first.summary["bad"]) == (4, {"MALFORMED": 2})
        registry.schemas[9] = json.dumps(newer)
        last = tested.given([with_id(9, avro(newer, id=9, note="later"))]).run()
        assert {"kind": "avro", "id": 9, "note": "later"} in last.rows


def test_dead_letters_of_a_corrected_flow_go_through_once(spark: Any, cluster: Any, tmp_path: Path) -> None:
    """Previewed, tried, run, corrected, replayed, and replayed again in vain."""
    topic, bad = cluster.topic(1), cluster.topic(1)
    cluster.produce(topic, [(b"k", b'{"id": 1}'), (b"k", b'{"id": "2.5"}'), (b"k", b"{")])

    def flow_with(kind: str) -> spec.Flow:
        how = f'type = "json"\ncolumns = {{ id = "{kind}" }}'
        text = FLOW.format(name=topic, servers=cluster.bootstrap, bad=bad, format=how)
        return spec.parse(text, file=str(tmp_path / "flow.toml"))

    first = flow_with("int")
    assert [row["id"] for row in preview_rows(spark, first, "source", 10)] == [1]
    with pytest.raises(BarnabasError, match="the flow has no view sauce; did you mean source"):
        preview_rows(spark, first, "sauce", 10)
    findings = {each.what: each for each in try_flow(spark, first)}
    assert findings["records of source"].state == "warning"
    assert findings["records of source"].message.startswith("2 of the newest 3 are bad; for example: column id is 2.5")
    assert findings["sink sqlite table t"].message.endswith("out.db will be made")
    assert run_on(spark, first)["bad_rows"] == 2
    headers = [dict(each.headers()) for each in cluster.read(bad)]
    assert {each["barnabas.error"] for each in headers} == {b"WRONG_TYPE", b"MALFORMED"}
    corrected = flow_with("string")
    assert replay_dead_letters(spark, corrected, corrected.source, is_dry=True).sent == 1
    replayed = replay_dead_letters(spark, corrected, corrected.source)
    assert (replayed.sent, replayed.still_bad) == (1, 1)
    last = cluster.read(topic)[-1]
    assert (last.key(), last.value(), dict(last.headers())["barnabas.replayed"]) == (
        b"k",
        b'{"id": "2.5"}',
        f"{topic}-0-1".encode(),
    )
    assert replay_dead_letters(spark, corrected, corrected.source).sent == 0
    theirs = [("barnabas.flow", b"another"), ("barnabas.source", f"{topic}-0-0".encode())]
    # A letter of a flow that shares the topic.
    cluster.produce(bad, [(b"k", b'{"id": 7}')], headers=theirs)
    cluster.produce(bad, [(b"k", b'{"id": 7}')], headers=[("trace", b"1")])  # none at all
    repaired = replay_dead_letters(spark, corrected, corrected.source, value="'{\"id\": 9}'")
    assert (repaired.sent, repaired.still_bad, repaired.left_out) == (1, 0, 2)
    gone = [("barnabas.flow", corrected.name.encode()), ("barnabas.source", f"{cluster.topic(1)}-0-0".encode())]
    # A letter from a topic that the flow does not read, or not now.
    cluster.produce(bad, [(b"k", b'{"id": 8}')], headers=gone)
    kept = [replay_dead_letters(spark, corrected, corrected.source) for _ in range(2)]
    assert [(each.sent, each.left_out, each.kept) for each in kept] == [(0, 0, 1)] * 2
    back = dataclasses.replace(corrected.source, topics=(gone[1][1].decode().removesuffix("-0-0"),))
    assert replay_dead_letters(spark, dataclasses.replace(corrected, source=back), back).sent == 1
