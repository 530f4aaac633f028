"""Whole clusters of the production code in virtual time, each from its seed, and everything that must hold."""

import os
import subprocess
import sys

import pytest

from barnabas.testing.simulation.scenario import Plan, run_seed
from barnabas.testing.simulation.simulation import Simulation


@pytest.mark.parametrize("seed", range(1, 17))
def test_a_simulated_cluster_keeps_its_promises(seed: int) -> None:
    """Nothing acknowledged is lost, doubled or reordered, whatever fails; ``make simulate`` runs more seeds."""
    result = run_seed(seed)
    assert not result.violations, f"make simulate SEEDS={seed}\n" + "\n".join(result.violations)


def test_the_same_seed_gives_the_same_run_byte_for_byte() -> None:
    """Twice in this process and once in another one with other hashes: every event at its microsecond."""
    here = [run_seed(5).digest, run_seed(5).digest]
    program = "from barnabas.testing.simulation.scenario import run_seed; print(run_seed(5).digest)"
    environment = {**os.environ, "PYTHONHASHSEED": "12345"}
    elsewhere = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True, timeout=120
    )
    assert {*here, elsewhere.stdout.strip()} == {here[0]}


def test_different_seeds_give_different_runs() -> None:
    """The seed is what decides."""
    assert run_seed(4).digest != run_seed(8).digest


def test_a_calm_run_is_not_vacuous() -> None:
    """Without faults everything is acknowledged, read, committed and watched, and nothing is tried twice."""
    result = run_seed(4)
    counts = result.counts
    assert counts["read"] == 2 * counts["acknowledged"] > 1000
    assert counts["commits"] > 50
    assert counts["coordination writes"] > 50
    assert "produce retries" not in counts


def test_a_power_loss_of_every_machine_at_once_loses_no_coordination_write() -> None:
    """Also all brokers come back, and groups and producers go on."""
    with Simulation(1) as simulation:
        plan = Plan.of(simulation)
    plan.faults, plan.mean_fault_gap_s, plan.brokers = ("power",), 0.5, 3
    for seed in (1001, 1002, 1003):
        result = run_seed(seed, plan=plan)
        assert not result.violations, (seed, result.violations)
        assert result.faults["power"] > 5
