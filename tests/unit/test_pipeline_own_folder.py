"""A checkpoint holds neither results nor what a flow reads, so a reset cannot take them along."""

from pathlib import Path

import pytest

from barnabas.pipelines.specification.spec import SpecError, parse

FLOW = """\
name = "f"
checkpoint = "CHECKPOINT"
[source]
bootstrap_servers = "localhost:9092"
topics = ["t"]
format = { type = "json", columns = { id = "bigint" } }
[tables.names]
type = "csv"
path = "names.csv"
columns = { id = "bigint" }
[[sinks]]
type = "topic"
topic = "o"
[[sinks]]
type = "TYPE"
path = "PATH"
table = "t"
text = ["id"]
[model]
path = "models"
type = "logistic_regression"
label = "id > 1"
numbers = ["id"]
"""


def flow_of(folder: Path, kind: str, path: str, checkpoint: str, *changes: tuple[str, str]) -> str:
    text = FLOW.replace("CHECKPOINT", checkpoint).replace("TYPE", kind).replace("PATH", path)
    unread = {"search": (), "sqlite": ("text",), "duckdb": ("text",), "delta": ("text", "table")}[kind]
    for each in unread:
        text = "\n".join(line for line in text.splitlines() if not line.startswith(f"{each} ="))
    for old, new in changes:
        text = text.replace(old, new)
    return parse(text, file=str(folder / "flow.toml")).checkpoint


@pytest.mark.parametrize("kind", ["sqlite", "duckdb", "delta", "search"])
def test_a_result_inside_of_the_checkpoint_is_refused(kind: str, tmp_path: Path) -> None:
    """Also by another name of the folder; beside it is fine."""
    (tmp_path / "link").symlink_to("state")
    for path in ("state/out", "link/out", "state"):
        with pytest.raises(
            SpecError, match=rf"flow.toml:\d+: sinks\[1\].path: is .*/{path}, which is inside the check"
        ):
            flow_of(tmp_path, kind, path, "state")
    assert flow_of(tmp_path, kind, "state/out", "state/f") == str(tmp_path / "state" / "f")
    assert flow_of(tmp_path, kind, "state-of-f", "state") == str(tmp_path / "state")


def test_tables_models_and_modules_inside_of_the_checkpoint_are_refused(tmp_path: Path) -> None:
    """With the name of the field."""
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "a.py").touch()
    for old, new, field in (
        ('"names.csv"', '"state/names.csv"', r"tables\.names\.path"),
        ('"models"', '"state/models"', r"model\.path"),
        ("[model]", '[resources]\npy_files = ["state/a.py"]\n[model]', r"resources\.py_files\[0\]"),
    ):
        with pytest.raises(SpecError, match=f": {field}: is .*, which is inside the checkpoint"):
            flow_of(tmp_path, "sqlite", "out.db", "state", (old, new))


@pytest.mark.parametrize("checkpoint", [".", "..", ""])
def test_a_checkpoint_that_holds_the_flow_is_refused(checkpoint: str, tmp_path: Path) -> None:
    """Its folder is the flow's, or one above."""
    with pytest.raises(SpecError, match=r"flow.toml:2: checkpoint: is "):
        flow_of(tmp_path, "sqlite", "out.db", checkpoint)


def test_a_checkpoint_inside_of_a_table_of_files_is_refused(tmp_path: Path) -> None:
    """Who moves the table away would move the position, too."""
    with pytest.raises(SpecError, match=r"flow.toml:2: checkpoint: is .*, which is inside sinks\[1\].path, "):
        flow_of(tmp_path, "delta", "lake", "lake/state")
