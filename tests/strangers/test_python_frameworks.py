"""Exactly once with frameworks in Python: each is killed while a transaction is open, and started
again, and each record is there once, in order.

The programs are in `other_languages/python`, and run in an environment of their own.
"""

import contextlib
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.environments import python_of
from support.needs import ROOT
from support.servers import Up, up
from support.transaction_copies import committed, make
from support.transaction_kills import Numbers, Program, copy_through_kills, running
from support.waiting import eventually

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

PROGRAMS = ROOT / "tests" / "other_languages" / "python"
LIMIT_S = 120


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """Three brokers."""
    with up(tmp_path_factory.mktemp("cluster"), brokers=3) as running_cluster:
        yield running_cluster


@pytest.fixture(scope="module")
def python() -> Path:
    """The interpreter of the environment with the frameworks."""
    return python_of("frameworks")


def copied(count: int) -> list[str]:
    """The numbers as they are."""
    return [str(number) for number in range(count)]


def counted(count: int) -> list[str]:
    """Each number with how many there were."""
    return [f"{number} {number + 1}" for number in range(count)]


@pytest.fixture
def program(cluster: Up, python: Path, tmp_path: Path, request: pytest.FixtureRequest) -> "Copier":
    """The one that is named, with topics of its own."""
    return Copier(cluster.bootstrap, python, request.param, tmp_path)


class Copier:
    """A program that reads one topic and writes another."""

    def __init__(self, bootstrap: str, python: Path, name: str, directory: Path) -> None:
        self.name = name
        self.source, self.target = (make(bootstrap, f"{name}-{end}", 1, 3) for end in ("in", "out"))
        self._command = [python, PROGRAMS / f"{name}.py", bootstrap, name, self.source, self.target]
        self._directory = directory
        self._runs = itertools.count()

    def run(self) -> contextlib.AbstractContextManager[Program]:
        """Run it in a new directory: what it kept outside the cluster is lost with a kill."""
        return running([*self._command, self._directory / f"state-{next(self._runs)}"], self._directory / "log")


@pytest.mark.parametrize(
    ("program", "wanted"),
    [("faststream_aiokafka", copied), ("faststream_confluent", copied), ("quix", counted)],
    indirect=["program"],
)
def test_a_killed_program_processes_each_record_once(
    cluster: Up, program: Copier, wanted: Callable[[int], list[str]]
) -> None:
    """The open transaction is aborted, and the offsets are committed with the records."""
    bootstrap = cluster.bootstrap
    numbers = Numbers(bootstrap, program.source)
    values = copy_through_kills(program.run, bootstrap, program.target, numbers)
    assert values == wanted(numbers.count)
    eventually(
        lambda: committed(bootstrap, program.name, program.source) == numbers.count,
        timeout_s=LIMIT_S,
        what="the group's offset",
    )
