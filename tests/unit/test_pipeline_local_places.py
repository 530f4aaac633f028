"""`check` and `dry-run` look whether the files and folders of a flow can be made on
this machine."""

import json
import os
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from barnabas.cli.main import main
from barnabas.pipelines.checks.local_places import find_place_problems
from barnabas.pipelines.specification import spec

FLOW = """
name = "f"
checkpoint = "{checkpoint}"
source = {{ bootstrap_servers = "h:1", topics = ["t"], format = {{ type = "json", columns = {{ a = "string" }} }} }}
sinks = [{{ {sink} }}]
"""
FILES = ["sqlite", "duckdb", "search"]
FOLDERS = ["parquet", "delta"]


def sink_of(kind: str, path: str) -> str:
    """A sink's table."""
    fields = {"sqlite": 'table = "t"', "duckdb": 'table = "t"', "search": 'table = "t", text = ["a"]'}
    more = f", {fields[kind]}" if kind in fields else ""
    return f'type = "{kind}", path = "{path}"{more}'


def problems(tmp_path: Path, kind: str, path: str, checkpoint: str = "state") -> list[str]:
    """What is found of a flow in a folder, without the folder's name."""
    text = FLOW.format(checkpoint=checkpoint, sink=sink_of(kind, path))
    flow = spec.parse(text, file=str(tmp_path / "flow.toml"))
    found = find_place_problems(flow)
    return [f"{each.line}: {each.field}: {each.message}".replace(f"{tmp_path}/", "") for each in found]


@pytest.mark.parametrize("kind", FILES)
def test_a_file_needs_its_folder(kind: str, tmp_path: Path) -> None:
    """The remedy is a line for the shell, which does what is needed."""
    (found,) = problems(tmp_path, kind, "my data/x")
    assert found.startswith(
        "5: sinks[0].path: my data/x cannot be made: there is no folder my data; make it with mkdir"
    )
    remedy = shlex.join(["mkdir", "-p", str(tmp_path / "my data")])
    assert remedy.replace(f"{tmp_path}/", "") in found
    subprocess.run(remedy, shell=True, check=True)
    assert problems(tmp_path, kind, "my data/x") == []


@pytest.mark.parametrize("kind", FOLDERS)
def test_a_lake_makes_its_folders(kind: str, tmp_path: Path) -> None:
    """However deep."""
    assert problems(tmp_path, kind, "a/b/c") == []


@pytest.mark.parametrize("kind", FILES)
def test_a_folder_above_the_checkpoint_will_be_made(kind: str, tmp_path: Path) -> None:
    """As in the file that `pipeline new` writes: a run makes the checkpoint's folder first."""
    assert problems(tmp_path, kind, "state/x.db", checkpoint="state/position") == []
    assert len(problems(tmp_path, kind, "state/more/x.db", checkpoint="state/position")) == 1


@pytest.mark.parametrize("kind", FILES + FOLDERS)
def test_a_file_in_the_place_of_a_folder_is_named(kind: str, tmp_path: Path) -> None:
    """On the way, and at the place itself."""
    (tmp_path / "file").write_text("")
    expected = "5: sinks[0].path: file/x cannot be made: file is a file; name another path"
    assert problems(tmp_path, kind, "file/x") == [expected]
    if kind in FOLDERS:
        assert problems(tmp_path, kind, "file") == ["5: sinks[0].path: file is a file, and a folder is expected"]
    else:
        (tmp_path / "folder").mkdir()
        assert problems(tmp_path, kind, "folder") == ["5: sinks[0].path: folder is a folder, and a file is expected"]


@pytest.mark.parametrize("kind", FILES + FOLDERS)
def test_a_place_that_may_not_be_written_is_named(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder in which it would be made, or what is there; root may write everywhere, so the
    system's answer is replaced."""
    (tmp_path / "there").mkdir()
    may = os.access

    def access(path: Any, mode: int) -> bool:
        return may(path, mode) and not str(path).startswith(str(tmp_path / "there"))

    monkeypatch.setattr(os, "access", access)
    expected = "5: sinks[0].path: there/x cannot be made: this user may not write in there; name another path"
    assert problems(tmp_path, kind, "there/x") == [expected]
    if kind in FOLDERS:
        assert problems(tmp_path, kind, "there") == ["5: sinks[0].path: this user may not write in there"]
    else:
        (tmp_path / "there" / "x").write_text("")
        assert problems(tmp_path, kind, "there/x") == ["5: sinks[0].path: this user may not write in there/x"]


def test_a_checkpoint_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    """It is a folder of this machine, too."""
    (tmp_path / "file").write_text("")
    (found,) = problems(tmp_path, "delta", "lake", checkpoint="file/state")
    assert found == "3: checkpoint: file/state cannot be made: file is a file; name another path"


def test_check_prints_the_field_its_line_and_the_remedy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One line, exit status 1, and the same in JSON."""
    file = tmp_path / "flow.toml"
    file.write_text(FLOW.format(checkpoint="state", sink=sink_of("sqlite", "nowhere/x.db")))
    assert main(["pipeline", "check", str(file), "--without-spark"]) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err == (
        f"{file}:5: sinks[0].path: {tmp_path}/nowhere/x.db cannot be made: there is no folder {tmp_path}/nowhere; "
        f"make it with mkdir -p {tmp_path}/nowhere\n"
    )
    assert main(["pipeline", "check", str(file), "--without-spark", "--output", "json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert not document["valid"]
    assert [(each["field"], each["line"]) for each in document["problems"]] == [("sinks[0].path", 5)]
    (tmp_path / "nowhere").mkdir()
    assert main(["pipeline", "check", str(file), "--without-spark"]) == 0
