"""Flows that write topics with schemas of a registry, and read them again."""

import datetime
import decimal
import json
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.spark
pytest.importorskip("pyspark")
pytest.importorskip("fastavro")
pytest.importorskip("google.protobuf")

from barnabas.base.errors import BarnabasError  # noqa: E402
from barnabas.pipelines.checks.trial import try_flow  # noqa: E402
from barnabas.pipelines.formats.declared import Format  # noqa: E402
from barnabas.pipelines.frames import transforms  # noqa: E402
from barnabas.pipelines.running.run import run_on  # noqa: E402
from barnabas.pipelines.specification import spec  # noqa: E402
from barnabas.pipelines.verification.verification import verify_flow  # noqa: E402
from support.registry import RegistryForTests  # noqa: E402

FLOW = """\
name = "{name}"
checkpoint = "state"
[source]
bootstrap_servers = "{servers}"
topics = ["{name}"]
format = {{ type = "json", columns = {{ id = "bigint", note = "string" }} }}
[[steps]]
name = "wide"
sql = {sql}
{sinks}
"""
SINK = """
[[sinks]]
type = "topic"
topic = "{topic}"
key = ["id"]
delete_when = "id = 3"
format = {{ type = "{format}", registry = "{registry}", name = "shop.Row" }}
"""
COLUMNS = {
    "id": ("id", "bigint"),
    "small": ("cast(id as tinyint)", "tinyint"),
    "price": ("cast('-0.000000000000000001' as decimal(38,18))", "decimal(38,18)"),
    "none": ("cast(null as decimal(5,2))", "decimal(5,2)"),
    "ratio": ("cast('NaN' as double)", "double"),
    "part": ("cast(0.1 as float)", "float"),
    "note": ("note", "string"),
    "raw": ("cast(note as binary)", "binary"),
    "day": ("date'2026-01-31'", "date"),
    "at": ("timestamp'2026-01-31T10:00:00.123456Z'", "timestamp"),
    "local": ("timestamp_ntz'2026-01-31 10:00:00.123456'", "timestamp_ntz"),
    "tags": ("array('a', note)", "array<string>"),
    "by_name": ("map(note, cast(1.10 as decimal(4,2)))", "map<string,decimal(4,2)>"),
    "by_number": ("map(cast(id as int), note)", "map<int,string>"),
    "point": ("named_struct('x', 1, 'label', cast(null as string))", "struct<x:int,label:string>"),
    "yes": ("id > 0", "boolean"),
}
KINDS = {"avro": "avro", "json-schema": "json", "protobuf": "protobuf"}


def flow_of(folder: Path, cluster: Any, name: str, registry: str, columns: dict[str, str], **topics: str) -> spec.Flow:
    """A flow that writes each format to its topic."""
    sinks = "".join(
        SINK.format(topic=topic, format=kind.replace("_", "-"), registry=registry) for kind, topic in topics.items()
    )
    selected = ", ".join(f"{sql} as `{column}`" for column, sql in columns.items())
    sql = json.dumps(f"select {selected} from source")
    text = FLOW.format(name=name, servers=cluster.bootstrap, sql=sql, sinks=sinks)
    return spec.parse(text, file=str(folder / "flow.toml"))


def test_rows_of_every_type_go_to_topics_and_come_back(spark: Any, cluster: Any, tmp_path: Path) -> None:
    """In each format, with a schema that is made of the columns; a deletion is a record without a
    value."""
    name = cluster.topic(1)
    topics = {kind.replace("-", "_"): cluster.topic(1) for kind in KINDS}
    cluster.produce(name, [(None, json.dumps({"id": number, "note": "Größe"}).encode()) for number in (1, 2, 3)])
    columns = {column: sql for column, (sql, _) in COLUMNS.items()}
    with RegistryForTests() as registry:
        flow = flow_of(tmp_path, cluster, name, registry.address, columns, **topics)
        tried = {each.what: each for each in try_flow(spark, flow)}
        for topic in topics.values():
            found = tried[f"schema of topic {topic}"]
            assert (found.state, found.message) == ("ok", f"the registry takes the schema under {topic}-value")
        assert registry.subjects == {}
        run_on(spark, flow)
        verified = verify_flow(spark, flow, limit=5, say=lambda _: None)
        assert [(each.verified, each.missing, each.extra, each.different) for each in verified.sinks] == [
            (True, 0, 0, 0)
        ] * 3
        assert {subject for subject, ids in registry.subjects.items() if len(ids) == 1} == {
            f"{topic}-value" for topic in topics.values()
        }
        for kind, read_as in KINDS.items():
            records = cluster.read(topics[kind.replace("-", "_")])
            assert [each.key() for each in records] == [f'{{"id":{number}}}'.encode() for number in (1, 2, 3)]
            values = [(None, each.value(), "t", 0, at) for at, each in enumerate(records)]
            assert values.pop()[1] is None
            types = {name: kind for name, (_, kind) in COLUMNS.items()}
            if read_as == "json":  # its objects have texts as keys
                types["by_number"] = "map<string,string>"
            how = Format(read_as, types, registry=registry.address)
            found = transforms.parse_records(spark.createDataFrame(values, transforms.RECORD_SCHEMA), how)
            rows = found.toArrow().to_pylist(maps_as_pydicts="strict")
            assert [row["_barnabas_bad"] for row in rows] == [None, None], kind
            assert [row["id"] for row in rows] == [1, 2]
            row = rows[0]
            assert str(row["ratio"]) == "nan"
            assert {name: row[name] for name in COLUMNS if name not in ("id", "ratio")} == {
                "small": 1,
                "price": decimal.Decimal("-0.000000000000000001"),
                "none": None,
                "part": 0.10000000149011612,
                "note": "Größe",
                "raw": "Größe".encode(),
                "day": datetime.date(2026, 1, 31),
                "at": datetime.datetime(2026, 1, 31, 10, 0, 0, 123_456, datetime.UTC),
                "local": datetime.datetime(2026, 1, 31, 10, 0, 0, 123_456),  # noqa: DTZ001
                "tags": ["a", "Größe"],
                "by_name": {"Größe": decimal.Decimal("1.10")},
                "by_number": {"1" if read_as == "json" else 1: "Größe"},
                "point": {"x": 1, "label": None},
                "yes": True,
            }, kind


def test_columns_that_no_schema_holds_end_the_flow_before_its_first_row(
    spark: Any, cluster: Any, tmp_path: Path
) -> None:
    """With what to do; nothing is written and nothing registered."""
    name, topic = cluster.topic(1), cluster.topic(1)
    cluster.produce(name, [(None, b'{"id": 1, "note": "x"}')])
    with RegistryForTests() as registry:
        for kind, sql, reason in (
            ("avro", "make_dt_interval(1)", "column c is of the type duration.*no counterpart in Avro: cast it"),
            ("protobuf", "array(array(1))", "column c is of the type list.*no counterpart in Protobuf: cast it"),
        ):
            flow = flow_of(tmp_path, cluster, name, registry.address, {"id": "id", "c": sql}, **{kind: topic})
            with pytest.raises(BarnabasError, match=reason):
                run_on(spark, flow)
        assert (registry.subjects, cluster.read(topic)) == ({}, [])
    flow = flow_of(tmp_path, cluster, name, "http://127.0.0.1:1", {"id": "id"}, avro=topic)
    with pytest.raises(BarnabasError, match=f"topic {topic}: the registry at http://127.0.0.1:1 does not answer"):
        run_on(spark, flow)
