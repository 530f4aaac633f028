"""What stays when modules move: names in texts, and what checkpoints of an earlier version hold."""

import ast
import importlib
import importlib.util
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("confluent_kafka")
pytest.importorskip("pyarrow")

from barnabas.base.ids import TopicPartition
from barnabas.pipelines.checkpoints.checkpoint import Checkpoint
from barnabas.pipelines.checkpoints.topic_ids import TopicIds
from barnabas.pipelines.connector.admission import Admission, admission_file
from barnabas.pipelines.errors import PipelineError
from barnabas.pipelines.frames.ordering import RowVersions, versions_file
from barnabas.pipelines.outputs.sqlite_table import inspect_sqlite
from barnabas.pipelines.running.key_notes import settle_keys
from barnabas.pipelines.specification.spec import Flow
from support.kept_checkpoints import kept_flows, unpack

SOURCES = Path(__file__).parents[2] / "src" / "barnabas"
# Programs that Spark or its launcher start as files, without the package.
PROGRAMS = ("early_worker.py", "fork_client.py", "fork_server.py")
TYPES = {
    "counts": {"kind": "string", "n": "bigint"},
    "latest": {"id": "bigint", "kind": "string", "at": "timestamp"},
}


def named_modules(path: Path) -> Iterator[str]:
    """The names of our modules in a file's texts, which no import shows."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            found = re.fullmatch(r"barnabas\.pipelines(\.[a-z_]+)+", node.value)
            yield from [found[0]] if found else []


def test_modules_that_texts_name_are_there() -> None:
    """Such as those that the fork server imports before it forks: it goes on without
    one that is gone."""
    names = {name for path in SOURCES.rglob("*.py") for name in named_modules(path)}
    assert {"barnabas.pipelines.connector.data_source", "barnabas.pipelines.checks.analysis"} <= names
    assert [name for name in sorted(names) if importlib.util.find_spec(name) is None] == []


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_for_sparks_workers_import_nothing_of_the_package_first(name: str) -> None:
    """They run as files, before this package can be imported."""
    tree = ast.parse((SOURCES / "pipelines" / "spark" / name).read_text())
    modules = [each.module or "" for each in ast.walk(tree) if isinstance(each, ast.ImportFrom)]
    modules += [alias.name for each in ast.walk(tree) if isinstance(each, ast.Import) for alias in each.names]
    assert [each for each in modules if each.startswith("barnabas")] == []


@pytest.fixture
def kept(tmp_path: Path) -> dict[str, Flow]:
    """The flows of an earlier version, with their checkpoints and outputs."""
    unpack(tmp_path)
    return kept_flows("localhost:9092", tmp_path)


def test_a_checkpoint_of_an_earlier_version_fits_its_flow(kept: dict[str, Flow]) -> None:
    """Its position, and what differs: the address of the brokers only."""
    ends = {"counts": {TopicPartition("kept-counts", 0): 6}, "latest": {TopicPartition("kept-latest", 0): 4}}
    for name, flow in kept.items():
        checkpoint = Checkpoint(flow)
        assert checkpoint.position() == [ends[name]]
        assert [(each.field, each.fits) for each in checkpoint.changes()] == [("source.bootstrap_servers", True)]
        assert checkpoint.last_run()["bad_rows"] == 1
        assert TopicIds(checkpoint.folder).to_begin(flow.source, "main") == []


def test_keys_of_an_earlier_version_are_known(kept: dict[str, Flow]) -> None:
    """The same ones settle in silence, and another type is refused."""
    for name, flow in kept.items():
        said: list[str] = []
        settle_keys(flow, Checkpoint(flow), TYPES[name], said.append)
        assert said == []
        others = dict.fromkeys(TYPES[name], "double")
        with pytest.raises(PipelineError, match="the key of sqlite table"):
            settle_keys(flow, Checkpoint(flow), others, said.append)


def test_outputs_of_an_earlier_version_hold_their_micro_batches(kept: dict[str, Flow], tmp_path: Path) -> None:
    """The note in the database has the query's id and the last micro-batch."""
    for name, flow in kept.items():
        query = json.loads((tmp_path / name / "main" / "metadata").read_text())["id"]
        found = inspect_sqlite(str(tmp_path / f"{name}.db"), name, flow.name, query)
        assert found is not None
        assert found.last_epoch == 0
        assert Checkpoint(flow).required_batches(flow.sinks[0]) == (query, 0)


def test_decisions_and_versions_of_an_earlier_version_go_on(kept: dict[str, Flow], tmp_path: Path) -> None:
    """What a quarantine has admitted, and the greatest value of order_by that each sink had."""
    folder = tmp_path / "latest"
    admitted = Admission.load(admission_file(folder, "source"))
    assert (admitted.epoch, admitted.end, admitted.refused) == (0, {TopicPartition("kept-latest", 0): 4}, ())
    versions = RowVersions(versions_file(folder))
    for name in ("sqlite table latest", f"delta table {tmp_path}/latest-delta"):
        assert versions.advance(f"{name}, at", {"(1,)": 1, "(2,)": 2**60}) == {"(2,)"}
    versions.close()
    assert kept["latest"].sources[0].quarantines
