"""With log.flush.before.ack, a loss of power of the whole cluster takes nothing that
was acknowledged or read."""

import os

import pytest

from simulation.scenarios.fault_injector import FaultInjector
from simulation.scenarios.faults import FAULTS
from simulation.scenarios.losses import Losses
from simulation.scenarios.plan import RunPlan, TopicPlan
from simulation.scenarios.producers import ProducerKind
from simulation.scenarios.runs import Result
from simulation.scenarios.scenario import run_seed

RUNS = int(os.environ.get("BARNABAS_BLACKOUTS", "5"))


def blackout(faults: FaultInjector) -> bool:
    """All machines lose their power at the same moment, and come back one by one."""
    machines = list(faults.simulation.machines.values())
    if not all(machine.is_running for machine in machines if machine.name.startswith(("broker", "coord"))):
        return False
    for machine in machines:
        if machine.name.startswith(("broker", "coord")):
            faults.simulation.power_off(machine)
            faults.restart_later(machine, (0.5, 4.0))
    return True


def run(seed: int, monkeypatch: pytest.MonkeyPatch, **settings: str) -> Result:
    """A run with blackouts in which no loss is allowed."""
    monkeypatch.setitem(FAULTS, "blackout", blackout)
    monkeypatch.setattr(Losses, "power_lost", lambda self, machine: None)
    plan = RunPlan(
        brokers=3,
        topics={"topic0": TopicPlan(2, {"min.insync.replicas": "2"}), "alone": TopicPlan(1)},
        producers=(ProducerKind(), ProducerKind(-1, is_idempotent=False)),
        users=0,
        members=1,
        duration_s=25.0,
        faults=("blackout", "blackout", "power", "kill"),
        mean_fault_gap_s=4.0,
        mean_produce_pause_s=0.05,
        broker_settings=settings,
    )
    return run_seed(seed, plan=plan)


@pytest.mark.parametrize("settings", [{"log.flush.before.ack": "true"}, {"log.flush.interval.messages": "1"}])
def test_blackouts_take_nothing_that_was_acknowledged_or_read(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, str]
) -> None:
    """Both settings that promise it keep it, whichever replicas come back first."""
    blackouts = acknowledged = 0
    for seed in range(3001, 3001 + RUNS):
        result = run(seed, monkeypatch, **settings)
        assert not result.violations, (seed, result.violations)
        blackouts += result.faults.get("blackout", 0)
        acknowledged += result.counts["acknowledged"]
    assert blackouts >= RUNS // 2
    assert acknowledged > 100 * RUNS


def test_without_the_setting_blackouts_do_take_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with Apache's brokers: the trial above can fail."""
    assert any(run(seed, monkeypatch).violations for seed in range(3001, 3005))
