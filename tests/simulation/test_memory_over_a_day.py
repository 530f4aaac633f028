"""A busy cluster in virtual time, for hours: what the servers hold does not grow.

All servers run in this process, so objects are counted by their types: those of the servers'
modules, not of the simulation and its clients. Logs are kept small by retention and compaction.
Python's own containers and ids are left out, because the history that the checks need is made of
them; so are clients that leave ever more znodes behind.
"""

import asyncio
import gc
import re
from collections import Counter
from collections.abc import Callable
from os import environ

import pytest

from barnabas.testing.simulation.simulation import Simulation
from simulation.scenarios.plan import RunPlan, TopicPlan
from simulation.scenarios.producers import ProducerKind
from simulation.scenarios.runs import run_scenario
from simulation.scenarios.scenario import Scenario

HOURS = float(environ.get("BARNABAS_HOURS", "0.05"))
pytestmark = [pytest.mark.timeout(3000 + HOURS * 3600)]
GROWTH = 1.1
SLACK = 300
_SAMPLES = 24
_IS_OTHERS = re.compile(r"\.testing\.|\.base\.ids$")
_SMALL = {"segment.bytes": "4096", "file.delete.delay.ms": "1000"}
_TOPICS = {
    "kept": TopicPlan(2, {"retention.bytes": "8192", **_SMALL}),
    "compacted": TopicPlan(1, {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1", **_SMALL}),
}


def servers_objects() -> Counter[str]:
    """How many objects of each type of the servers' modules there are."""
    gc.collect()
    return Counter(
        f"{kind.__module__}.{kind.__qualname__}"
        for found in gc.get_objects()
        if (kind := type(found)).__module__.startswith("barnabas.") and not _IS_OTHERS.search(kind.__module__)
    )


def test_what_servers_hold_does_not_grow_in_hours_of_a_busy_cluster(
    record_property: Callable[[str, object], None],
) -> None:
    """Topics made, grown and deleted, groups, idempotent producers, while the
    servers' objects are counted.

    The last sixth of the run has at most 10 % and 300 objects more of any type, and of all
    together, than the third sixth.
    """
    plan = RunPlan(
        brokers=3,
        topics=_TOPICS,
        producers=(ProducerKind(), ProducerKind(1, False)),
        users=0,
        members=2,
        duration_s=HOURS * 3600,
        faults=(),
        mean_fault_gap_s=10.0,
        has_administrator=True,
        mean_produce_pause_s=0.5,
        broker_settings={"log.retention.check.interval.ms": "5000", "log.cleaner.backoff.ms": "5000"},
    )
    samples: list[Counter[str]] = []

    async def sample() -> None:
        while True:
            await asyncio.sleep(plan.duration_s / _SAMPLES)
            samples.append(servers_objects())

    class Sampled(Scenario):
        async def run(self) -> None:
            sampling = self.simulation.loop.create_task(sample())
            await super().run()
            sampling.cancel()

    def make(simulation: Simulation) -> Scenario:
        return Sampled(simulation, plan)

    result = run_scenario(1, make, keep_trace=False)
    assert result.violations == []
    half, last = samples[_SAMPLES // 3 : _SAMPLES // 2], samples[_SAMPLES - _SAMPLES // 6 - 1 : _SAMPLES - 1]
    before, after = (
        {kind: max(each[kind] for each in some) for kind in {**half[0], **last[-1]}} for some in (half, last)
    )
    grown = {kind: (before[kind], count) for kind, count in after.items() if count > GROWTH * before[kind] + SLACK}
    record_property("objects", f"{sum(before.values())} then, {sum(after.values())} at the end of {HOURS} hours")
    record_property("counts", str(result.counts))
    for kind, count in sorted(after.items(), key=lambda item: before[item[0]] - item[1])[:10]:
        print(f"{before[kind]} then, {count} at the end: {kind}")
    print([sum(each.values()) for each in samples], grown)
    assert grown == {}
    assert sum(after.values()) <= GROWTH * sum(before.values()) + SLACK
