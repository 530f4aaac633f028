"""Brokers stop soon after SIGTERM, even when others stop with them."""

import time
from pathlib import Path

import pytest

from support.load import Load, assert_exactly_once_in_order, read_all
from support.trio import trio

pytestmark = [pytest.mark.interop, pytest.mark.fault]
SOON_S = 60
"""Far above what it takes, and below the timeout and the pause that the brokers are given."""
PATIENT = {"controller.socket.timeout.ms": 300_000, "controlled.shutdown.retry.backoff.ms": 100_000}


def test_brokers_stop_soon_when_the_coordination_server_is_dead(tmp_path: Path) -> None:
    """A controlled shutdown is impossible, so no broker waits for it, whether it is
    controller or not."""
    with trio(tmp_path, PATIENT) as cluster:
        cluster.create("t")
        cluster.zookeeper.kill()
        start = time.monotonic()
        for broker in cluster.brokers:
            broker.process.terminate()
        assert [broker.process.wait(SOON_S) for broker in cluster.brokers] == [0, 0, 0]
        assert time.monotonic() - start < SOON_S


def test_all_brokers_stop_soon_together_and_serve_everything_after_the_next_start(tmp_path: Path) -> None:
    """The controller goes too: the others ask the next one, and what was acknowledged is
    there when all are back."""
    with trio(tmp_path, PATIENT) as cluster:
        cluster.create("trial")
        load = Load(cluster.bootstrap, "trial")
        load.goes_on(1000, "the load begins")
        start = time.monotonic()
        for broker in cluster.brokers:
            broker.process.terminate()
        assert [broker.process.wait(SOON_S) for broker in cluster.brokers] == [0, 0, 0]
        assert time.monotonic() - start < SOON_S
        for broker in cluster.brokers:
            broker.start()
        load.goes_on(1000, "the load goes on")
        load.finish()
        assert load.failed == []
        assert_exactly_once_in_order(load, read_all(cluster.bootstrap, "trial"), tmp_path)
