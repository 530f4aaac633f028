"""The mutants fit the code that they damage, and a sample of them is caught.

``make mutants`` tries all."""

from collections.abc import Callable

import mutants
import pytest
from mutants import MUTANTS
from mutation import run_in_own_process, sample_of_commit
from replication_mutants import REPLICATION_MUTANTS

SAMPLE = 6


def test_all_mutants_fit_the_code() -> None:
    """Where the code has moved on, the output says what is missing."""
    done = run_in_own_process(mutants.__file__, "--fit")
    assert sorted(done.stdout.splitlines()) == sorted(f"{mutant.__name__} fits" for mutant in MUTANTS)
    assert done.returncode == 0


@pytest.mark.parametrize("mutant", sample_of_commit(MUTANTS, SAMPLE), ids=lambda mutant: mutant.__name__)
def test_a_mutant_of_this_commits_sample_is_noticed(mutant: Callable[[], None]) -> None:
    """One of the seeds that can show the defect does; the same code without the defect
    passes them all elsewhere."""
    done = run_in_own_process(mutants.__file__, "--here", mutant.__name__)
    assert done.returncode == 0, done.stdout


def test_replication_has_at_least_ten_mutants() -> None:
    """Each part of the protocol that keeps records safe is damaged by one of them;
    none gets lost unseen."""
    assert len(REPLICATION_MUTANTS) >= 10
