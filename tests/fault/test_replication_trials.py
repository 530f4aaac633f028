"""Three brokers as processes, RF 3, min ISR 2, an idempotent acks=all load, and kills with 9.

``BARNABAS_RUNS`` clusters (default 1) see ``BARNABAS_KILLS`` kills each (default 3: a leader, the
controller, the coordination server), with at least ``BARNABAS_ACKNOWLEDGED`` records (default
5,000). A full trial is 20 runs of 5 kills and 20,000 records.
"""

import os
import random
import time
from pathlib import Path

import pytest

from support.load import Load, assert_exactly_once_in_order, read_all
from support.servers import Server
from support.trio import Epochs, Trio, trio
from support.waiting import eventually

RUNS = int(os.environ.get("BARNABAS_RUNS", "1"))
KILLS = int(os.environ.get("BARNABAS_KILLS", "3"))
ACKNOWLEDGED = int(os.environ.get("BARNABAS_ACKNOWLEDGED", "5000"))
TOPIC = "trial"
VICTIMS = ("leader", "controller", "zookeeper")
pytestmark = [pytest.mark.interop, pytest.mark.fault, pytest.mark.timeout(600 + 60 * KILLS)]


def chosen(cluster: Trio, victim: str) -> Server:
    match victim:
        case "leader":
            return cluster.brokers[cluster.leader(TOPIC)]
        case "controller":
            return cluster.brokers[cluster.controller()]
        case _:
            return cluster.zookeeper


@pytest.mark.parametrize("run", range(RUNS))
def test_servers_killed_with_9_lose_and_double_nothing_and_the_logs_end_equal(
    tmp_path: Path, run: int, record_property
) -> None:
    """After each kill the load continues; the killed server comes back, catches up and rejoins."""
    rng = random.Random(run)
    with trio(tmp_path) as cluster:
        cluster.create(TOPIC)
        epochs = Epochs(cluster, TOPIC)
        load = Load(cluster.bootstrap, TOPIC)
        gaps: dict[str, list[float]] = {}
        for kill in range(KILLS):
            load.goes_on(ACKNOWLEDGED // (KILLS + 1), "the load goes on")
            cluster.wait_until_in_sync(TOPIC)
            # The moment of the kill is the trial's chance, not a wait.
            time.sleep(rng.uniform(0, 0.3))
            victim = VICTIMS[(kill + run) % len(VICTIMS)]
            server = chosen(cluster, victim)
            server.kill()
            gaps.setdefault(victim, []).append(round(load.goes_on(500, "the others take over"), 2))
            server.start()
        load.goes_on(ACKNOWLEDGED // (KILLS + 1), "the load goes on after the last kill")
        eventually(lambda: len(load.acknowledged) >= ACKNOWLEDGED, timeout_s=60, what="enough is acknowledged")
        cluster.wait_until_in_sync(TOPIC)
        load.finish()
        record_property("kills, their moments from seed", [KILLS, run])
        record_property("acknowledged", len(load.acknowledged))
        record_property("seconds until 500 more were acknowledged", gaps)
        assert load.failed == []
        assert_exactly_once_in_order(load, read_all(cluster.bootstrap, TOPIC), cluster.directory)
        cluster.wait_until_equal(TOPIC)
        assert epochs.faults == []
        assert epochs.elections > 0
