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


def java(name: str, folder: str, directory: Path) -> list[object]:
    """The command that runs a program in Java, with jars in ``folder``."""
    program = PROGRAMS / "java" / name
    classpath = compiled(program / "Copier.java", jars(folder, program), directory)
    return ["java", *QUICK, "-cp", classpath, "Copier"]


@pytest.mark.java
@needs("java", "javac", "mvn")
def test_a_killed_route_of_camel_copies_each_record_at_least_once(cluster: ProcessCluster, tmp_path: Path) -> None:
    """Its consumer commits by hand, behind the producer of the route."""
    assert is_whole(cluster, "camel", java("camel", "camel-4.22.0", tmp_path), tmp_path)


@pytest.mark.java
@needs("java", "javac", "mvn")
def test_a_killed_client_of_vertx_copies_each_record_at_least_once(cluster: ProcessCluster, tmp_path: Path) -> None:
    """It reads the next record when the offset of the last one is committed."""
    assert is_whole(cluster, "vertx", java("vertx", "vertx-kafka-client-5.0.7", tmp_path), tmp_path)


def built(command: list[object], folder: Path) -> None:
    """Compile a program with what it fetches; without a registry there is nothing to try."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=400, check=False)
    if done.returncode:
        pytest.skip(f"{folder.name} is not built: {done.stderr[-300:]}")


@needs("go")
def test_a_killed_router_of_watermill_copies_each_message_at_least_once(
    cluster: ProcessCluster, tmp_path: Path
) -> None:
    """It acknowledges a message when what its handler made of it is written."""
    binary = tmp_path / "watermill"
    built(["go", "build", "-o", binary, "."], PROGRAMS / "go" / "watermill")
    assert is_whole(cluster, "watermill", [binary], tmp_path)


@needs("cargo")
def test_a_killed_program_with_rskafka_copies_each_record_at_least_once(
    cluster: ProcessCluster, tmp_path: Path
) -> None:
    """The client has no groups: the program goes on behind the last record of the copy."""
    target = ROOT / "build" / "rskafka"
    built(["cargo", "build", "--quiet", "--locked", "--target-dir", target], PROGRAMS / "rust" / "rskafka")
    assert is_whole(cluster, "rskafka", [target / "debug" / "copier"], tmp_path, in_group=False)


def test_a_killed_dataflow_of_bytewax_copies_each_record_at_least_once(cluster: ProcessCluster, tmp_path: Path) -> None:
    """It goes on where its last snapshot was, and has no group."""
    program = PROGRAMS / "python" / "bytewax_copier.py"
    assert is_whole(cluster, "bytewax", [python_of("systems"), program], tmp_path, in_group=False)
