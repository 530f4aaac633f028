"""A format that is one module and one registration: all that needs no Spark.

On Spark: test_spark_new_format.py."""

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("confluent_kafka")

from barnabas.pipelines.formats.declared import Format, register_format, unregister_format
from barnabas.pipelines.specification import spec
from barnabas.pipelines.specification.templates import cases_template, flow_template, template_formats
from barnabas.testing.flows import encode_row
from support.pairs_format import PAIRS

FLOW = """\
name = "f"
checkpoint = "state"
source = { bootstrap_servers = "localhost:9092", topics = ["t"], format = { type = "pairs", columns = { a = "int" } } }
[[sinks]]
type = "sqlite"
path = "out.db"
table = "t"
"""


@pytest.fixture(autouse=True)
def pairs() -> Iterator[None]:
    """The format is registered."""
    register_format(PAIRS)
    yield
    unregister_format(PAIRS)


def test_a_flow_names_a_new_format_with_its_columns(tmp_path: Path) -> None:
    """What the format does not have is refused, and so is a name that is taken."""
    assert spec.parse(FLOW, file=str(tmp_path / "f.toml")).source.format == Format("pairs", {"a": "int"})
    for old, new, words in (
        ('"int"', '"array<int>"', "is not for pairs, but for avro, json, protobuf"),
        ("columns = { a", 'delimiter = ",", columns = { a', "is for the format csv, not pairs"),
        ("columns = { a", 'registry = "http://r:1", columns = { a', "is for json, avro and protobuf, not pairs"),
        ('"pairs"', '"other"', "must be one of csv, .*syslog, pairs"),
    ):
        with pytest.raises(spec.SpecError, match=words):
            spec.parse(FLOW.replace(old, new), file=str(tmp_path / "f.toml"))
    with pytest.raises(ValueError, match="pairs"):
        register_format(PAIRS)


def test_a_new_flow_and_its_test_are_written_for_a_new_format(tmp_path: Path) -> None:
    """The template is a flow, its test has the format's rows, and rows of tests become values."""
    assert "pairs" in template_formats()
    text = flow_template("f", "f.toml", "f-test.toml", "pairs", "sqlite", "localhost:9092", "t")
    how = spec.parse(text, file=str(tmp_path / "f.toml")).source.format
    assert "a:1|b:2" in cases_template("f.toml", "pairs")
    assert encode_row({"a": 1, "b": 2}, how) == b"a:1|b:2"
