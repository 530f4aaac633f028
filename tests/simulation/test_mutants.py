"""The mutants fit the code that they damage, and a sample of them is caught; ``make mutants`` tries all."""

import random
import subprocess
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path

import pytest
from mutants import MUTANTS, caught_by
from replication_mutants import REPLICATION_MUTANTS

SAMPLE = 6


def sample() -> list[Callable[[], None]]:
    """Another choice for each commit, the same in all processes of a run."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    try:
        commit = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):  # the sources without their history
        commit = "no commit"
    return random.Random(commit).sample(list(MUTANTS), SAMPLE)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_mutant_fits_the_code(mutant: Callable[[], None]) -> None:
    """In a process of its own, for it patches it; where the code has moved on, `MutantOutdatedError` says so."""
    with get_context("fork").Pool(1) as pool:
        pool.apply(mutant)


@pytest.mark.parametrize("mutant", sample(), ids=lambda mutant: mutant.__name__)
def test_a_mutant_of_this_commits_sample_is_noticed(mutant: Callable[[], None]) -> None:
    """One of the seeds that can show the defect does; the same code without the defect passes them all elsewhere."""
    with get_context("fork").Pool(1) as pool:
        assert pool.apply(caught_by, (mutant,)) is not None


def test_replication_has_at_least_ten_mutants() -> None:
    """Each part of the protocol that keeps records safe is damaged by one of them; none gets lost unseen."""
    assert len(REPLICATION_MUTANTS) >= 10
