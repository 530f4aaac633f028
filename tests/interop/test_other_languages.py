"""Clients in Go and JavaScript: programs that produce, consume in groups and administer,
each with its own library."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.needs import needs
from support.servers import Up, up

pytestmark = [pytest.mark.interop]

PROGRAMS = Path(__file__).parents[1] / "other_languages"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """Three brokers."""
    with up(tmp_path_factory.mktemp("cluster"), brokers=3) as running:
        yield running


def prepare(command: list[str], directory: Path) -> None:
    """Get the libraries; without a package registry there is nothing to try."""
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=240, check=False)
    if done.returncode:
        pytest.skip(f"{' '.join(command)} got no libraries: {done.stderr[-300:]}")


@pytest.fixture(scope="module")
def node_programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The JavaScript programs with their libraries."""
    directory = tmp_path_factory.mktemp("node") / "programs"
    shutil.copytree(PROGRAMS / "node", directory)
    prepare(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"], directory)
    return directory


@needs("go")
@pytest.mark.parametrize("program", ["franz", "sarama", "segment"])
def test_go_clients_do_all_they_do_elsewhere(cluster: Up, program: str, tmp_path: Path) -> None:
    """franz-go, Sarama (as of several Kafka versions) and segmentio/kafka-go."""
    prepare(["go", "mod", "download"], PROGRAMS / "go")
    binary = tmp_path / program
    subprocess.run(["go", "build", "-o", binary, f"./{program}"], cwd=PROGRAMS / "go", timeout=240, check=True)
    subprocess.run([binary, cluster.bootstrap.split(",")[0]], timeout=120, check=True)


@needs("node", "npm")
@pytest.mark.parametrize("program", ["kafkajs.js", "platformatic.mjs"])
def test_javascript_clients_do_all_they_do_elsewhere(cluster: Up, program: str, node_programs: Path) -> None:
    """KafkaJS and @platformatic/kafka."""
    address = cluster.bootstrap.split(",")[0]
    environment = {**os.environ, "KAFKAJS_NO_PARTITIONER_WARNING": "1"}
    subprocess.run(["node", node_programs / program, address], env=environment, timeout=120, check=True)
