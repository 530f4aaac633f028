"""Declared flows: what is accepted, and how a mistake is reported."""

import json
import random
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from barnabas.pipelines.flow_file.toml_lines import locate_keys
from barnabas.pipelines.outputs.declared import TopicFormat
from barnabas.pipelines.specification.spec import DatabaseSink, SpecError, TopicSink, load, parse, read_flow

FLOW = """\
name = "by-carrier"
checkpoint = "state"

[source]
bootstrap_servers = "localhost:9092"
topics = ["flights"]

[source.format]
type = "csv"
columns = { carrier = "string", at = "timestamp", delay = "double" }

[aggregate]
time = "at"
window = "1 day"
watermark = "2 days"
group_by = ["carrier"]
compute = { flights = "count(*)", mean_delay = "avg(delay)" }

[[sinks]]
type = "sqlite"
path = "out.db"
table = "by_carrier"

[[sinks]]
type = "topic"
topic = "by-carrier"
"""
EXAMPLES = sorted((Path(__file__).parents[2] / "examples" / "pipelines").glob("*.toml"))


def test_a_flow_is_read_with_its_defaults() -> None:
    """Fields that are not given have the values that the reference says."""
    flow = parse(FLOW, file="/flows/a.toml")
    assert flow.source.starting_offsets == "earliest"
    assert flow.source.isolation == "read_committed"
    assert flow.source.format.columns == {"carrier": "string", "at": "timestamp", "delay": "double"}
    assert flow.aggregate is not None
    assert flow.aggregate.keys == ("window_start", "window_end", "carrier")
    assert flow.sinks == (
        DatabaseSink("sqlite", "/flows/out.db", "by_carrier", flow.aggregate.keys),
        TopicSink("by-carrier", flow.aggregate.keys, "localhost:9092", {}),
    )
    assert flow.checkpoint == "/flows/state"


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_every_example_is_valid(path: Path) -> None:
    """The flows we show people are right."""
    assert load(path).sinks


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('name = "by-carrier"', 'name = "by carrier"', r"flow.toml:1: name: is 'by carrier', but may hold"),
        ('checkpoint = "state"\n', "", r"flow.toml: checkpoint: is missing"),
        ('topics = ["flights"]', "topics = []", r"flow.toml:6: source.topics: give either topics"),
        ('topics = ["flights"]', 'topics = "flights"', r"flow.toml:6: source.topics: is 'flights', but must be a list"),
        (
            'topics = ["flights"]',
            'topics = ["flights"]\nkafka."isolation.level" = "x"',
            r"source.kafka.isolation.level: has a field",
        ),
        ('type = "csv"', 'type = "cvs"', r"flow.toml:9: source.format.type: is 'cvs', but must be one of csv, json"),
        (
            'type = "csv"',
            'type = "csv"\ndate_format = "dd/MM"',
            r"flow.toml:10: source.format.date_format: is for columns of the type date",
        ),
        ('delay = "double"', 'delay = "dubble"', r"flow.toml:10: source.format.columns.delay: has the type 'dubble'"),
        ('window = "1 day"', 'window = "a day"', r"flow.toml:14: aggregate.window: is 'a day', but must be a time"),
        ('watermark = "2 days"\n', "", r"flow.toml:12: aggregate.watermark: is missing"),
        ('time = "at"\n', "", r"flow.toml:12: aggregate.time: is missing"),
        (
            'flights = "count(*)"',
            '"the flights" = "count(*)"',
            r"flow.toml:17: aggregate.compute.the flights: .* no name",
        ),
        ('table = "by_carrier"', 'table = "by carrier"', r"flow.toml:22: sinks\[0\].table: is 'by carrier'"),
        (
            'table = "by_carrier"',
            'tabel = "by_carrier"',
            r"flow.toml:22: sinks\[0\].tabel: is unknown here; did you mean table\?",
        ),
        ('type = "sqlite"', 'type = "sqllite"', r"sinks\[0\].type: is 'sqllite', .*; did you mean sqlite\?"),
        ('delay = "double"', 'delay = "array<int>"', r"columns.delay: .* which is not for csv, but for avro, json"),
        (
            'topic = "by-carrier"',
            'topic = "t"\nkey = ["x"]',
            r"flow.toml:27: sinks\[1\].key: is given by the aggregate",
        ),
        (
            'topic = "by-carrier"',
            'topic = "t"\nkye = ["x"]',
            r"flow.toml:27: sinks\[1\].kye: is unknown here; did you mean key",
        ),
        (
            'path = "out.db"',
            'path = "${NOT_SET}"',
            r"flow.toml:21: sinks\[0\].path: refers to the environment variable",
        ),
        (
            'topic = "by-carrier"',
            'topic = "t"\n[[sinks]]\ntype = "topic"\ntopic = "t"',
            r"flow.toml:27: sinks\[2\]: writes to the same place as a sink before it",
        ),
        (
            'delay = "double"',
            'delay = "double", Delay = "int"',
            r"flow.toml:10: .*Delay: differs from delay in upper and",
        ),
        (
            'topics = ["flights"]',
            'topics = ["flights"]\nbad_rows_topic = "flights"',
            r"flow.toml:7: source.bad_rows_topic: is flights, which source reads: the flow would read what it writes",
        ),
        (
            'topics = ["flights"]',
            'pattern = "by.*|flights"',
            r"flow.toml:26: sinks\[1\].topic: is by-carrier, which source reads by its pattern by",
        ),
        (
            'topics = ["flights"]',
            'topics = ["flights"]\n[[expectations]]\nname = "x"\ncheck = "true"\non_fail = "quarantine"',
            r"flow.toml:10: expectations\[0\].on_fail: is quarantine, but the source source has no bad_rows_topic",
        ),
        (
            'window = "1 day"',
            'window = "1.5 days"',
            r"flow.toml:14: aggregate.window: is '1.5 days', but must be a time",
        ),
        ('window = "1 day"', 'window = "0 days"', r"flow.toml:14: aggregate.window: is '0 days', but must be longer"),
        (
            'window = "1 day"',
            'window = "1 hour"\nslide = "90 minutes"',
            r"flow.toml:15: aggregate.slide: is '90 minutes', longer than the window, '1 hour'",
        ),
        ('["carrier"]', '["window"]', r"flow.toml:16: aggregate.group_by: names window, which is what windows have"),
        ('delay = "double"', 'source_offset = "int"', r"columns.source_offset: source_offset is where the record came"),
        (
            "[aggregate]",
            '[transform]\nderive = { source_topic = "carrier" }\n[aggregate]',
            r"transform.derive.source_topic: source_topic is where the record came from",
        ),
        (
            'topics = ["flights"]',
            """topics = ["flights"]\nstarting_offsets = '{"flight": {"0": 5}}'""",
            r"flow.toml:7: source.starting_offsets: names flight, which the source does not read; did you mean flights",
        ),
        (
            'topics = ["flights"]',
            'topics = ["flights"]\nrecord_columns = ["keys"]',
            r"flow.toml:7: source.record_columns: names keys, but a record has key, key_bytes, timestamp, headers",
        ),
        (
            'topics = ["flights"]',
            'topics = ["flights"]\nbad_rows_topic = "b"\nmax_bad = 1\non_max_bad = "quarantine"\n'
            '[resources]\nconnector = "kafka"',
            r"resources.connector: is \"kafka\", which cannot leave out what",
        ),
        (
            'topics = ["flights"]',
            'topics = ["flights"]\nkafka = { "sasl.password" = "x" }',
            r"flow.toml:7: source.kafka: sasl.password is given, but security.protocol is PLAINTEXT",
        ),
        (
            'topic = "by-carrier"',
            'topic = "flights"\nbootstrap_servers = "kafka:1,PLAINTEXT://127.0.0.1:9092"',
            r"sinks\[1\].topic: is flights, which source reads",
        ),
        (
            'topics = ["flights"]',
            'pattern = "f.*"\nstarting_offsets = \'{"fl": {"0": 5}, "x": {"0": 5}}\'',
            r"source.starting_offsets: names x, which the source does not read",
        ),
        (
            'topics = ["flights"]',
            'topics = ["flights"]\nkafka = { "session.timout.ms" = "1" }',
            r"flow.toml:7: source.kafka.session.timout.ms: is no property of librdkafka's .* mean session.timeout.ms\?",
        ),
        (
            'topic = "by-carrier"',
            'topic = "t"\nkafka."linger.ms" = "soon"',
            r"flow.toml:27: sinks\[1\].kafka.linger.ms: is refused by librdkafka: Invalid value for configuration",
        ),
        (
            'topics = ["flights"]',
            'topics = ["flights"]\nkafka."enable.auto.commit" = "true"',
            r"source.kafka.enable.auto.commit: cannot be set: the checkpoint keeps the position",
        ),
        (
            'topics = ["flights"]',
            'topics = ["flights"]\nkafka."error_cb" = "print"',
            r"source.kafka.error_cb: is for functions of programs",
        ),
        ("[aggregate]", "[agregate]", r"flow.toml:12: agregate: is unknown here"),
        ('name = "by-carrier"', "name = ", r"flow.toml:1: no valid TOML: .*line 1"),
    ],
)
def test_a_mistake_is_reported_with_its_line_and_field(old: str, new: str, problem: str) -> None:
    """The message leads to the place and says what would be right."""
    assert old in FLOW
    with pytest.raises(SpecError, match=problem):
        parse(FLOW.replace(old, new, 1), file="flow.toml")


def test_values_can_be_set_from_the_command_line() -> None:
    """--set takes TOML values, and bare words as texts."""
    flow = parse(
        FLOW,
        overrides=[
            "source.topics=['a', 'b']",
            "source.max_offsets_per_trigger=5",
            "sinks[1].topic=other",
            "resources.cores=1",
        ],
    )
    assert flow.source.topics == ("a", "b")
    assert flow.source.max_offsets_per_trigger == 5
    assert isinstance(flow.sinks[1], TopicSink)
    assert flow.sinks[1].topic == "other"
    assert flow.resources.cores == 1


@pytest.mark.parametrize(
    ("override", "problem"),
    [
        ("source.topics", "--set takes key=value"),
        ("sinks[7].topic=x", "there is no entry 7"),
        ("name.x=y", "name is no table"),
        ("source.cores=1", "--set: source.cores: is unknown here"),
        ("source.bootstrap_servers=localhost", "is 'localhost', but must be brokers as host:port"),
        ("aggregate.window=30", 'aggregate.window: is 30, but must be a time such as "10 minutes"'),
        ('sinks=[{type="postgresql", url="mysql://h/d", table="t"}]', "begins with mysql://, but must be like"),
    ],
)
def test_a_wrong_override_is_named_as_one(override: str, problem: str) -> None:
    """An error in a value that is not in the file does not name the file."""
    with pytest.raises(SpecError, match=problem):
        parse(FLOW, overrides=[override])


def test_secrets_come_from_the_environment() -> None:
    """A password need not stand in the file."""
    text = FLOW.replace(
        'type = "sqlite"\npath = "out.db"', 'type = "postgresql"\nurl = "postgresql://u:${DB_PASSWORD}@h/d"'
    )
    flow = parse(text, environ={"DB_PASSWORD": "s3cret"})
    assert isinstance(flow.sinks[0], DatabaseSink)
    assert flow.sinks[0].url == "postgresql://u:s3cret@h/d"


def test_a_sink_in_the_sources_cluster_is_protected_as_the_source_is() -> None:
    """Certificates that are not verified included, and without what is for consumers; another
    cluster gets nothing of it."""
    kafka = {
        "security.protocol": "SSL",
        "ssl.ca.location": "ca.pem",
        "enable.ssl.certificate.verification": "false",
        "client.id": "flows",
    }
    lines = "\n".join(f'kafka."{name}" = "{text}"' for name, text in {**kafka, "fetch.min.bytes": "9"}.items())
    text = FLOW.replace('topics = ["flights"]', f'topics = ["flights"]\n{lines}')
    sink = parse(text).sinks[1]
    assert isinstance(sink, TopicSink)
    assert sink.kafka == kafka
    other = parse(text.replace('topic = "by-carrier"', 'topic = "t"\nbootstrap_servers = "other:9092"')).sinks[1]
    assert isinstance(other, TopicSink)
    assert other.kafka == {}


def with_format(how: str) -> str:
    return FLOW.replace('topic = "by-carrier"', f'topic = "by-carrier"\nformat = {{ {how} }}')


def test_a_topic_takes_a_format_with_a_schema_of_a_registry() -> None:
    """Its subject is the topic's, unless a strategy or a name says another."""
    registry = 'type = "avro", registry = "http://ann:s3cret@h:8081"'
    for more, name, subject in (
        ("", "by_carrier", "by-carrier-value"),
        (', name = "a.Row", subject_name_strategy = "record"', "a.Row", "a.Row"),
        (', subject_name_strategy = "topic_record"', "by_carrier", "by-carrier-by_carrier"),
        (', subject = ":.here:s"', "by_carrier", ":.here:s"),
    ):
        sink = parse(with_format(registry + more)).sinks[1]
        assert isinstance(sink, TopicSink)
        assert sink.format == TopicFormat("avro", "http://ann:s3cret@h:8081", name, subject)
    sink = parse(with_format('type = "json"')).sinks[1]
    assert isinstance(sink, TopicSink)
    assert sink.format is None
    sink = parse(
        with_format('type = "json-schema", registry = "http://h", register = false, schema_file = "s.json"')
    ).sinks[1]
    assert isinstance(sink, TopicSink)
    assert sink.format is not None
    assert (sink.format.register, Path(sink.format.schema_file or "").name) == (False, "s.json")


@pytest.mark.parametrize(
    ("how", "wrong"),
    [
        ('type = "xml"', "format.type: is 'xml'"),
        ('type = "avro"', "format.registry: is missing"),
        ('type = "avro", registry = "h:8081"', "format.registry: is 'h:8081', but must be an address"),
        ('type = "avro", registry = "http://h", name = "a-b"', "format.name: is 'a-b', which is no name of a record"),
        ('type = "protobuf", registry = "http://h", schema_file = "a.desc"', "format.name: is missing: the full name"),
        (
            'type = "avro", registry = "http://h", subject = "s", subject_name_strategy = "record"',
            "subject_name_strategy: makes the subject, which is given",
        ),
        ('type = "avro", registry = "http://h", schemafile = "a.avsc"', "schemafile"),
    ],
)
def test_a_format_of_a_topic_that_makes_no_sense_is_refused(how: str, wrong: str) -> None:
    """With the field."""
    with pytest.raises(SpecError, match=wrong):
        parse(with_format(how))


def test_names_of_what_is_read_and_written_may_be_equal_in_two_clusters() -> None:
    """Such a flow copies; and a source may read the dead letters of another flow."""
    other = parse(FLOW.replace('topic = "by-carrier"', 'topic = "flights"\nbootstrap_servers = "other:9092"')).sinks[1]
    assert isinstance(other, TopicSink)
    assert other.topic == "flights"
    replaying = parse(FLOW.replace('["flights"]', '["flights.bad"]\nbad_rows_topic = "flights.worse"'))
    assert replaying.source.bad_rows_topic == "flights.worse"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("fetch.min.bytes", "9"),
        ("acks", "all"),
        ("client.id", "flows"),
        ("sticky.partitioning.linger.ms", "5"),
        ("ssl.truststore.type", "PEM"),
    ],
)
def test_properties_that_clients_know_are_taken(name: str, text: str) -> None:
    """Those of consumers, of producers, and Java's names for TLS and SASL."""
    flow = parse(FLOW.replace('topics = ["flights"]', f'topics = ["flights"]\nkafka."{name}" = "{text}"'))
    assert flow.source.kafka == {name: text}


def test_rows_that_are_not_aggregated_are_keyed_by_where_they_came_from() -> None:
    """So a row that is read again replaces itself."""
    head, _, tail = FLOW.partition("[aggregate]")
    flow = parse(head + tail[tail.index("[[sinks]]") :])
    assert flow.sinks[0].key == ("source_topic", "source_partition", "source_offset")


def test_lines_are_found_in_every_form_of_toml() -> None:
    """Headers, dotted and quoted keys, inline tables, arrays of tables and long strings."""
    text = 'a.b = 1\n[t]\nx = """\n[no]\ny = 1\n"""\n"q k" = { in = 1, er = 2 }\n[[s]]\nn = 1\n[[s]]\nn = 2\n[s.sub]\nm = 3\n'
    lines = locate_keys(text)
    assert lines["a.b"] == 1
    assert lines["t"] == 2
    assert "no" not in lines
    assert lines["t.q k"] == 7
    assert lines["t.q k.er"] == 7
    assert (lines["s[0].n"], lines["s[1].n"], lines["s[1].sub.m"]) == (9, 11, 13)


def test_a_newline_in_a_name_makes_no_line_of_an_error() -> None:
    """Each problem has one line, also beside others, so that what prints them can tell
    the lines from the names."""
    with pytest.raises(SpecError) as found:
        parse('"a\\nforged: all is well" = 1\n')
    assert len(found.value.lines) == len(found.value.problems) > 1
    assert any(line.startswith("flow.toml: a\nforged") for line in found.value.lines)


def test_all_problems_of_a_file_are_reported_at_once() -> None:
    """As a compiler does, in the order of their lines; what would follow from
    another one is left out."""
    wrong = FLOW.replace('window = "1 day"', 'window = "a day"').replace('type = "topic"', 'type = "tpoic"')
    with pytest.raises(SpecError) as first:
        parse(wrong + '[trigger]\ninterval = "soon"\n', file="flow.toml")
    assert [(each.line, each.field) for each in first.value.problems] == [
        (14, "aggregate.window"),
        (25, "sinks[1].type"),
        (28, "trigger.interval"),
    ]
    with pytest.raises(SpecError) as second:
        parse(FLOW.replace('topic = "by-carrier"', 'tpoic = "x"').replace('"out.db"', "7"), file="flow.toml")
    assert [(each.line, each.field) for each in second.value.problems] == [
        (21, "sinks[0].path"),
        (26, "sinks[1].tpoic"),
    ]
    assert (
        str(second.value)
        .splitlines()[1]
        .startswith("flow.toml:26: sinks[1].tpoic: is unknown here; did you mean topic?")
    )
    with pytest.raises(SpecError) as third:
        parse("tranform = 1\n" + FLOW.replace('table = "by_carrier"', 'table = "t"\nkye = ["a"]'), file="flow.toml")
    assert [each.field for each in third.value.problems] == ["tranform", "sinks[0].kye"]


def test_one_table_may_have_several_problems() -> None:
    """Each with its own field; a required one that is missing and one that is unknown, say."""
    wrong = FLOW.replace("topics =", 'isolation = "x"\ntopicz =').replace('delay = "double"', 'delay = "dubble"')
    wrong = wrong.replace('carrier = "string"', 'carrier = "strin"').replace('group_by = ["carrier"]', "group_by = [7]")
    with pytest.raises(SpecError) as found:
        parse(wrong.replace('name = "by-carrier"\n', "").replace('"avg(delay)"', "4"), file="flow.toml")
    assert [each.field for each in found.value.problems] == [
        "source.topics",
        "source.isolation",
        "source.topicz",
        "source.format.columns.carrier",
        "source.format.columns.delay",
        "aggregate.group_by",
        "aggregate.compute.mean_delay",
        "name",
    ]


def fields_of(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """The paths of everything that a file sets, tables included."""
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *[each for key, part in parts for each in fields_of(part, (*path, key))]]


def with_mistake(values: Any, path: tuple[str | int, ...]) -> Any:
    """The same with something of no right type at the path."""
    if not path:
        return Path()  # neither text, number, list nor table
    key, *rest = path
    copy = values.copy()
    copy[key] = with_mistake(values[key], tuple(rest))
    return copy


def is_about(found: str, path: tuple[str | int, ...]) -> bool:
    """Whether a field is at the path, in it, or around it."""
    text = "".join(f"[{each}]" if isinstance(each, int) else f".{each}" for each in path)[1:]
    shorter, longer = sorted((found, text), key=len)
    return longer.startswith(shorter)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_each_mistake_of_an_example_gives_its_problem_and_no_other(path: Path) -> None:
    """What would follow from it is left out; of two mistakes in different tables
    both are reported."""
    values = tomllib.loads(path.read_text())
    paths = fields_of(values)[1:]
    for mistake in paths:
        with pytest.raises(SpecError) as found:
            read_flow(with_mistake(values, mistake), {}, file=str(path))
        assert all(is_about(each.field, mistake) for each in found.value.problems), (mistake, str(found.value))
    rng = random.Random(path.name)
    for _ in range(100):
        first, second = rng.choice(paths), rng.choice(paths)
        if first[0] == second[0]:
            continue
        with pytest.raises(SpecError) as found:
            read_flow(with_mistake(with_mistake(values, first), second), {}, file=str(path))
        fields = [each.field for each in found.value.problems]
        assert any(is_about(each, first) for each in fields), (first, second, fields)
        assert any(is_about(each, second) for each in fields), (first, second, fields)
        assert all(is_about(each, first) or is_about(each, second) for each in fields), (first, second, fields)


def test_check_refuses_properties_that_clients_do_not_know_without_a_cluster(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And answers in JSON where that is asked for, whatever is wrong."""
    from barnabas.cli.main import main

    path = tmp_path / "flow.toml"
    command = ["pipeline", "check", str(path), "--without-spark"]
    path.write_text(FLOW.replace("[source.format]", '[source.kafka]\n"fetch.min.bytes" = "1"\n[source.format]'))
    assert main(command) == 0
    path.write_text(FLOW.replace("[source.format]", '[source.kafka]\n"fetch.mim.bytes" = "1"\n[source.format]'))
    capsys.readouterr()
    assert main([*command, "--output", "json"]) == 1
    found = json.loads(capsys.readouterr().out)
    (problem,) = found["problems"]
    assert (found["valid"], problem["file"], problem["line"], problem["field"]) == (
        False,
        str(path),
        9,
        "source.kafka.fetch.mim.bytes",
    )
    assert problem["message"] == "is no property of librdkafka's clients; did you mean fetch.min.bytes?"
    path.write_text("name = 7")
    assert main([*command, "--output", "json"]) == 1
    assert json.loads(capsys.readouterr().out)["problems"][0]["field"] == "name"
    assert main(command) == 1


def test_rows_are_deleted_by_a_key_of_the_flow_only() -> None:
    """A position is another in each record; files of Parquet stay."""
    rows = re.sub(r"(?s)\[aggregate\].*?(?=\[\[sinks)", "", FLOW).replace(
        'table = "by_carrier"', 'table = "t"\ndelete_when = "delay < 0"'
    )
    with pytest.raises(SpecError, match=r"sinks\[0\].delete_when: needs a key"):
        parse(rows)
    (database, topic) = parse(rows.replace('table = "t"', 'table = "t"\nkey = ["carrier"]')).sinks
    assert isinstance(database, DatabaseSink)
    assert isinstance(topic, TopicSink)
    assert (database.delete_when, topic.delete_when) == ("delay < 0", None)
    with pytest.raises(SpecError, match=r"sinks\[0\].delete_when: is not for \"parquet\""):
        parse(rows.replace('type = "sqlite"', 'type = "parquet"'))


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ('spark = { "spark.task.cpus" = "3" }', "resources.spark: .* resources.cores gives 2, so no task could run"),
        ('master = "local[1]"\nspark = { "spark.task.cpus" = "2" }', "resources.master gives 1, so no task"),
        ('master = "yarn"\ncores = 8\nspark = { "spark.task.cpus" = "2" }', "spark.executor.cores gives 1, so no task"),
        ('spark = { "spark.task.cpus" = "two" }', "must have a number from 1"),
    ],
)
def test_tasks_that_need_more_cores_than_there_are_are_refused(lines: str, problem: str) -> None:
    """Spark would end with a stack trace, or wait for ever."""
    with pytest.raises(SpecError, match=problem):
        parse(f"{FLOW}\n[resources]\n{lines}\n")
    for fits in ('spark = { "spark.task.cpus" = "2" }', 'master = "local[*]"\nspark = { "spark.task.cpus" = "64" }'):
        assert parse(f"{FLOW}\n[resources]\n{fits}\n").resources.spark


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ('type = "sqlite"\npath = "out"\ntable = "t"', 'type = "sqlite"\npath = "x/../out"\ntable = "T"'),
        (
            'type = "search"\npath = "out"\ntable = "t"\ntext = ["carrier"]',
            'type = "sqlite"\npath = "out"\ntable = "t_index"',
        ),
        (
            'type = "sqlite"\npath = "out"\ntable = "T_index_data"',
            'type = "search"\npath = "out"\ntable = "t"\ntext = ["carrier"]',
        ),
        ('type = "delta"\npath = "out"', 'type = "parquet"\npath = "./out/"'),
    ],
)
def test_sinks_that_are_one_place_under_two_names_are_refused(first: str, second: str) -> None:
    """In the same file, in upper or lower case, and what a full-text index has beside its table."""
    text = FLOW[: FLOW.index("[aggregate]")] + "".join(f"\n[[sinks]]\n{each}\n" for each in (first, second))
    with pytest.raises(SpecError, match=r"sinks\[1\]: writes to the same place as a sink before it"):
        parse(text)


@pytest.mark.parametrize("name", ["barnabas_epochs", "Barnabas_Epochs", "public.barnabas_epochs"])
@pytest.mark.parametrize(
    "sink",
    ['type = "sqlite"\npath = "out"', 'type = "duckdb"\npath = "out"', 'type = "postgresql"\nurl = "postgresql://h/d"'],
)
def test_the_table_that_keeps_what_was_written_is_no_sink(name: str, sink: str) -> None:
    """Rows and notes would be mixed."""
    text = FLOW[: FLOW.index("[aggregate]")] + f'\n[[sinks]]\n{sink}\ntable = "{name}"\n'
    with pytest.raises(SpecError, match=r"sinks\[0\].table: .*where the flow keeps what it has written"):
        parse(text)
