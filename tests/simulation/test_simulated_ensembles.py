"""Ensembles of the production servers on a simulated clock, network and disk keep Zab's promises."""

import pytest

from barnabas.testing.simulation.ensemble import run_ensemble


@pytest.mark.parametrize("seed", range(1, 13))
def test_a_simulated_ensemble_keeps_its_promises(seed: int) -> None:
    """One tree, one leader in an epoch, nothing acknowledged is lost, whatever is killed, cut off or paused."""
    assert run_ensemble(seed).violations == []


def test_a_run_is_decided_by_its_seed() -> None:
    """The same events at the same moments, so every failure can be looked at again."""
    assert run_ensemble(3).digest == run_ensemble(3).digest


def test_runs_are_not_vacuous() -> None:
    """Over a few seeds leaders change, writes are acknowledged, watches fire."""
    counts: dict[str, int] = {}
    for seed in range(1, 7):
        for what, count in run_ensemble(seed).counts.items():
            counts[what] = counts.get(what, 0) + count
    assert counts["leaders established"] > 10
    assert counts["coordination writes"] > 200
    assert counts["watches fired"] > 30
    assert counts["ephemerals held"] > 50
