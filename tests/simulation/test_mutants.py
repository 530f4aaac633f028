"""The mutants fit the code that they damage; ``make mutants`` shows that each is caught."""

from collections.abc import Callable
from multiprocessing import get_context

import pytest
from mutants import MUTANTS
from replication_mutants import REPLICATION_MUTANTS


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_mutant_fits_the_code(mutant: Callable[[], None]) -> None:
    """In a process of its own, for it patches it; where the code has moved on, `MutantOutdatedError` says so."""
    with get_context("fork").Pool(1) as pool:
        pool.apply(mutant)


def test_replication_has_at_least_ten_mutants() -> None:
    """Each part of the protocol that keeps records safe is damaged by one of them; none gets lost unseen."""
    assert len(REPLICATION_MUTANTS) >= 10
