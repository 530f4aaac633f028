"""JSON from outside that is nested too deeply is an error of the value, wherever it is read."""

import json
from pathlib import Path

import pytest

from barnabas.base.errors import BarnabasError
from barnabas.base.json_text import parse_json
from barnabas.cli.options.json_files import read_document
from barnabas.cli.output.readable import readable
from barnabas.client.codecs import JSON
from barnabas.pipelines.cluster.offsets import from_json

DEEP = "[" * 100_000


def test_a_document_that_is_nested_too_deeply_is_a_value_error() -> None:
    """As one that is no JSON."""
    with pytest.raises(ValueError, match="nested too deeply"):
        parse_json(DEEP + "]" * 100_000)
    with pytest.raises(ValueError, match="Expecting value"):
        parse_json(b"nothing")
    assert parse_json(b'{"a": [1]}') == {"a": [1]}


def test_commands_clients_and_flows_refuse_it(tmp_path: Path) -> None:
    """None of them ends with a traceback."""
    file = tmp_path / "plan.json"
    file.write_text(DEEP)
    with pytest.raises(BarnabasError, match=r"plan.json is not valid JSON: it is nested too deeply"):
        read_document(str(file))
    with pytest.raises(BarnabasError):
        from_json(DEEP)
    with pytest.raises(ValueError, match="nested too deeply"):
        JSON.decode(DEEP.encode())
    assert readable(DEEP.encode(), pretty=True) == DEEP


def test_a_json_file_of_a_table_and_an_answer_of_opensearch_are_refused(tmp_path: Path) -> None:
    """The flow ends with the file and the reason."""
    pytest.importorskip("pyspark")
    from barnabas.pipelines.frames.lookup import LookupReader
    from barnabas.pipelines.outputs.opensearch import _parsed

    file = tmp_path / "table.json"
    file.write_text(DEEP)
    options = {"kind": "json", "place": str(file), "name": "x", "columns": json.dumps(["a"]), "query": "", "null": ""}
    reader = LookupReader({**options, "delimiter": ",", "refresh_s": "1"}, wait=lambda _: None)
    with pytest.raises(BarnabasError, match="nested too deeply"):
        list(reader.read(reader.partitions()[0]))
    assert "error" in _parsed(DEEP.encode())
