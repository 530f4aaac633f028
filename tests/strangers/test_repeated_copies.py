"""Frameworks that copy a topic and commit behind what they wrote: each is killed in the middle and
started again, then a leader and the coordinator of its group are killed. Each record is copied at
least once, and none is missing.
"""

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.testing import ProcessCluster
from support.environments import python_of
from support.maven import QUICK, compiled, jars
from support.needs import ROOT, needs
from support.repeated_copies import RepeatedCopy
from support.transaction_kills import Program, running

pytestmark = [pytest.mark.interop, pytest.mark.fault, pytest.mark.timeout(600)]

PROGRAMS = ROOT / "tests" / "other_languages"
JARS = {"camel": "camel-4.22.0", "vertx": "vertx-kafka-client-5.0.7"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[ProcessCluster]:
    """Three brokers."""
    with ProcessCluster(3) as running_cluster:
        yield running_cluster


def is_whole(
    cluster: ProcessCluster, name: str, command: list[object], directory: Path, *, in_group: bool = True
) -> bool:
    """Whether the program ``name`` copies all there is through kills."""
    copy = RepeatedCopy(cluster, name, in_group=in_group)
    arguments = [cluster.bootstrap_servers, name, copy.source, copy.target, directory / "state"]

    def run() -> contextlib.AbstractContextManager[Program]:
        return running([*command, *arguments], directory / "log")

    return copy.is_whole_through_kills(run)


@pytest.mark.java
@needs("java", "javac", "mvn")
@pytest.mark.parametrize("name", ["camel", "vertx"])
def test_a_killed_framework_in_java_copies_each_record_at_least_once(
    cluster: ProcessCluster, name: str, tmp_path: Path
) -> None:
    """Apache Camel's route and Vert.x's client commit an offset when the copy is acknowledged."""
    folder = PROGRAMS / "java" / name
    classpath = compiled(folder / "Copier.java", jars(JARS[name], folder), tmp_path)
    assert is_whole(cluster, name, ["java", *QUICK, "-cp", classpath, "Copier"], tmp_path)


@needs("go")
def test_a_killed_router_of_watermill_copies_each_message_at_least_once(
    cluster: ProcessCluster, tmp_path: Path
) -> None:
    """It acknowledges a message when what its handler made of it is written."""
    binary = tmp_path / "watermill"
    built = subprocess.run(
        ["go", "build", "-o", binary, "."],
        cwd=PROGRAMS / "go" / "watermill", capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip
    if built.returncode:
        pytest.skip(f"watermill is not built: {built.stderr[-300:]}")
    assert is_whole(cluster, "watermill", [binary], tmp_path)


def test_a_killed_dataflow_of_bytewax_copies_each_record_at_least_once(cluster: ProcessCluster, tmp_path: Path) -> None:
    """It goes on where its last snapshot was, and has no group."""
    program = PROGRAMS / "python" / "bytewax_copier.py"
    assert is_whole(cluster, "bytewax", [python_of("systems"), program], tmp_path, in_group=False)
