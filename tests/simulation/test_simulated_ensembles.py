"""Ensembles of the production code in virtual time, each from its seed, with Zab's
properties checked throughout."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import ensemble_mutants
import pytest
from ensemble_mutants import ENSEMBLE_MUTANTS
from mutation import WHEN_ALL_SEEDS_RUN_S, run_in_own_process

from simulation.scenarios.ensemble_scenario import ENSEMBLE_FAULTS, ensemble_plan_of, run_ensemble_seed

TESTS = str(Path(__file__).parents[1])
SEEDS = int(os.environ.get("BARNABAS_ENSEMBLE_SEEDS", "150"))
SEEDS_A_TEST = 10


@pytest.mark.parametrize("first", range(1, SEEDS + 1, SEEDS_A_TEST))
def test_simulated_ensembles_keep_their_promises(first: int) -> None:
    """One leader an epoch, one order of commits on every server, and nothing acknowledged
    is lost, whatever fails."""
    failed: list[str] = []
    seen: Counter[str] = Counter()
    for seed in range(first, first + SEEDS_A_TEST):
        result = run_ensemble_seed(seed)
        seen.update(result.counts)
        if result.violations:
            again = f"python -m simulation.scenarios --ensemble --seeds {seed}"
            failed.append(f"{again}\n" + "\n".join(result.violations))
    assert not failed, "\n".join(failed)
    assert seen["epochs"] > SEEDS_A_TEST, f"leadership never moved in {SEEDS_A_TEST} runs: {dict(seen)}"
    for what in ("transactions committed", "coordination writes", "ephemerals held", "watches fired"):
        assert seen[what], f"no {what} in {SEEDS_A_TEST} runs: {dict(seen)}"


def test_the_same_ensemble_seed_gives_the_same_run_byte_for_byte() -> None:
    """Twice in this process and once in another one with other hashes: every event
    at its microsecond."""
    seeds = (3, 7)
    here = [[run_ensemble_seed(seed).digest for seed in seeds] for _ in range(2)]
    module = "simulation.scenarios.ensemble_scenario"
    program = f"from {module} import run_ensemble_seed; print([run_ensemble_seed(s).digest for s in {seeds}])"
    environment = {**os.environ, "PYTHONHASHSEED": "12345", "PYTHONPATH": TESTS}
    elsewhere = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert here[0] == here[1]
    assert elsewhere.stdout.strip() == str(here[0])


def test_plans_of_ensembles_are_varied() -> None:
    """Sizes, observers and all faults are drawn; every fifth run is calm."""
    plans = [ensemble_plan_of(seed) for seed in range(1, 201)]
    assert sum(1 for plan in plans if not plan.faults) == 40
    assert {plan.servers - plan.observers for plan in plans} == {2, 3, 4, 5}
    assert {plan.observers for plan in plans} == {0, 1}
    assert {name for plan in plans for name in plan.faults} == set(ENSEMBLE_FAULTS)


@pytest.mark.timeout(WHEN_ALL_SEEDS_RUN_S)
@pytest.mark.parametrize("mutant", ENSEMBLE_MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_mutant_of_the_ensemble_is_noticed(mutant) -> None:
    """One of the seeds that can show the defect does."""
    done = run_in_own_process(ensemble_mutants.__file__, "--here", mutant.__name__)
    assert done.returncode == 0, done.stdout


def test_the_ensemble_has_at_least_ten_mutants() -> None:
    """Each step of Zab that keeps writes safe is damaged by one of them."""
    assert len(ENSEMBLE_MUTANTS) >= 10
