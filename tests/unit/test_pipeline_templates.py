"""What ``pipeline new`` writes is valid, and the files with tests of flows are read with care."""

import json
from pathlib import Path

import pytest

from barnabas.base.errors import ConfigError
from barnabas.cli.pipelines.pipeline import main
from barnabas.pipelines.specification import spec
from barnabas.pipelines.specification.templates import cases_template, flow_template, template_formats, template_sinks
from barnabas.testing.flow_cases import cases_file, load_cases


def flow_of(kind: str = "json", sink: str = "sqlite") -> spec.Flow:
    return spec.parse(flow_template("orders", "orders.toml", "orders.test.toml", kind, sink, "localhost:9092", "t"))


@pytest.mark.parametrize("sink", template_sinks())
@pytest.mark.parametrize("kind", template_formats())
def test_every_template_is_a_valid_flow(kind: str, sink: str) -> None:
    """With the format, the sink and the topic that were asked for."""
    flow = flow_of(kind, sink)
    assert (flow.name, flow.source.format.type, flow.source.topics) == ("orders", kind, ("t",))
    assert sink == ("topic" if isinstance(flow.sinks[0], spec.TopicSink) else getattr(flow.sinks[0], "type", None))


def test_what_a_template_leaves_to_be_switched_on_is_valid_too() -> None:
    """The lines behind a # that are fields."""
    text = flow_template("orders", "f", "t", "json", "sqlite", "localhost:9092", "t")
    for line in ("group =", "bad_rows_topic =", "max_bad =", "[aggregate]", "group_by =", "compute ="):
        assert f"\n# {line}" in text
        text = text.replace(f"\n# {line}", f"\n{line}")
    flow = spec.parse(text)
    assert flow.source.group == "orders"
    assert flow.aggregate is not None


def test_new_writes_a_flow_and_its_tests_and_replaces_nothing(tmp_path: Path) -> None:
    """Neither file is written if one of them is there."""
    file = tmp_path / "orders.toml"
    assert main(["new", str(file), "--from", "csv", "--to", "topic", "--topic", "incoming"]) == 0
    flow = spec.load(file)
    assert flow.source.topics == ("incoming",)
    assert [each.name for each in load_cases(cases_file(file), flow)] == ["rows are kept, and get the derived column"]
    file.unlink()
    with pytest.raises(ConfigError, match=r"orders\.test\.toml is there already"):
        main(["new", str(file)])
    assert not file.exists()


@pytest.mark.parametrize(
    ("name", "message"),
    [("a b.toml", "may hold letters"), ("orders.py", r"ends with \.toml"), ("no/such/folder.toml", "cannot write")],
)
def test_new_refuses_a_file_that_it_cannot_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, message: str
) -> None:
    """Or whose name no flow can have."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=message):
        main(["new", name])
    assert not list(tmp_path.iterdir())


def test_cases_are_read_from_json_too(tmp_path: Path) -> None:
    """With several runs; a single one needs no list."""
    file = tmp_path / "orders.test.json"
    rows = {"source": [{"id": 1}]}
    content = {"tests": [{"given": rows, "expect": []}, {"name": "two", "given": [rows, rows], "expect": [], "bad": 1}]}
    file.write_text(json.dumps(content))
    cases = load_cases(cases_file(tmp_path / "orders.toml"), flow_of())
    assert [(each.name, len(each.given), each.bad) for each in cases] == [("tests[0]", 1, None), ("two", 2, 1)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no tests"),
        ("tests = 1", "has no tests"),
        ("[[tests]]\nexpect = []", r"tests\[0\]\.given: is missing"),
        ("[[tests]]\nexpect = []\ngiven = {sources = []}", "did you mean source"),
        ("[[tests]]\nexpected = []\ngiven = {source = []}", "did you mean expect"),
        ("[[tests]]\ngiven = {source = []}", "expect: is a list of rows"),
        ("[[tests]]\nexpect = []\ngiven = {source = [1]}", "is a list of rows, each a table"),
        ("[[tests]]\nexpect = []\nbad = true\ngiven = {source = []}", "bad: is a number"),
        ("[[tests]", "test.toml: "),
    ],
)
def test_a_wrong_field_of_a_test_is_named(tmp_path: Path, text: str, message: str) -> None:
    """Nothing is taken and not heeded."""
    file = tmp_path / "test.toml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=message):
        load_cases(file, flow_of())


def test_a_flow_without_tests_is_an_error(tmp_path: Path) -> None:
    """It says where they are looked for."""
    with pytest.raises(ConfigError, match=r"write them to orders\.test\.toml"):
        cases_file(tmp_path / "orders.toml")


def test_templates_name_their_files() -> None:
    """For a person who reads them later."""
    assert "barnabas pipeline test orders.toml" in cases_template("orders.toml", "json")
