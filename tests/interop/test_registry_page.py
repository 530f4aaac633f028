"""The page about the schema registry, executed: its commands and its program."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from support.pages import DOCS, blocks, commands
from support.reader import Reader
from support.waiting import eventually

pytestmark = [pytest.mark.interop]
PAGE = DOCS / "how-to" / "schema-registry.md"


def test_the_page_about_the_schema_registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster with its registry, a schema that is registered and found, and a value that has
    one."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    reader = Reader(tmp_path, {"--registry": "--registry 0"})
    start, *asked, down = [each for each in commands(PAGE) if each.section == "Try it"]
    ready = re.search(r"ready (\S+) .*registry=http://(\S+)", reader.run(start))
    assert ready is not None
    reader.places = {"localhost:9092": ready[1], "127.0.0.1:8081": ready[2], "localhost:8081": ready[2]}
    for command in asked:
        reader.type(command)
    produce, tail = [each for each in commands(PAGE) if each.section.startswith("Look at values")]
    (line,) = produce.output
    reader.run(produce, line.removeprefix(">") + "\n")
    terminal = reader.stay(tail)
    eventually(lambda: "espresso" in terminal.text(), what="the value")
    terminal.interrupt()
    reader.type(down)


def test_the_program_of_the_page() -> None:
    """It is a test, which passes."""
    (program,) = (block.text for block in blocks(PAGE) if block.language == "python")
    names: dict[str, Callable[[], None]] = {}
    exec(program, names)
    names["test_schema_is_registered"]()
