"""How a broker's death is noticed: refused ports, removed znodes, and a broker that
lives after all."""

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from barnabas.broker.cluster.znodes import broker_path
from barnabas.broker.membership.death_watch.service import DeathWatch
from barnabas.broker.membership.death_watch.watching import watched
from barnabas.coordination.client.operations import delete
from barnabas.testing import Cluster
from support.embedded import brokers_of, run_on
from support.waiting import eventually


@pytest.mark.parametrize("dead", [(0, 1), (3, 4), (9, 0), (5,)], ids=str)
def test_any_two_brokers_that_die_at_once_are_watched_by_a_live_one(dead: tuple[int, ...]) -> None:
    """Whichever broker is controller: one of the two, or an Apache Kafka broker
    (10), which watches none."""
    everyone = range(11)
    for controller in (*dead, 10):
        witnesses = {broker: watched(broker, everyone, controller) for broker in everyone if broker not in (*dead, 10)}
        for gone in dead:
            assert any(gone in seen for seen in witnesses.values())
        assert all(len(seen) <= 4 for seen in witnesses.values()), "connections do not grow with the square"


def test_a_controller_watches_every_other_broker() -> None:
    """The other brokers watch the controller and the three after them."""
    assert watched(2, [4, 1, 2, 3, 0], 2) == {0, 1, 3, 4}
    assert watched(2, [4, 1, 2, 3, 0], 1) == {3, 4, 0, 1}


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    # What is noticed earlier is not noticed by the end of a session.
    with Cluster(2, settings={"zookeeper.session.timeout.ms": "39000"}) as running:
        yield running


def controller_and_other(cluster: Cluster) -> tuple[Any, Any]:
    nodes = [server.components for server in brokers_of(cluster).values()]
    nodes.sort(key=lambda node: not node.controller.is_active)
    return nodes[0], nodes[1]


def knows(node: Any, other: Any) -> bool:
    return node.metadata.alive_broker(other.broker_id) is not None


def test_a_live_broker_whose_registration_is_removed_registers_again(cluster: Cluster) -> None:
    """It is back under a higher broker epoch, and the cluster knows it again."""
    controller, other = controller_and_other(cluster)
    eventually(lambda: knows(controller, other))
    before = other.broker_epoch
    run_on(cluster, controller.broker_id, controller.coordination.batch([delete(broker_path(other.broker_id))]))
    eventually(lambda: other.broker_epoch > before, what="it registers")
    eventually(lambda: knows(controller, other), what="it is known again")


def test_a_broker_whose_port_refuses_is_removed_before_its_session_expires(cluster: Cluster) -> None:
    """The listener and all connections close, as when the process is killed; the
    session is still alive."""
    controller, other = controller_and_other(cluster)
    eventually(lambda: knows(controller, other))
    server = brokers_of(cluster)[other.broker_id]

    async def vanish() -> None:
        server._closing = True  # a dead process does not register again
        for _, listener in server._open:
            await listener.close()
        for connection in tuple(server.components.dispatcher.connections):
            connection.close()

    run_on(cluster, other.broker_id, vanish())
    eventually(lambda: not knows(controller, other), timeout_s=35, what="it is known to be dead")
    server._closing = False


def test_a_renewed_registration_is_not_removed(cluster: Cluster) -> None:
    """The removal is for one registration: a broker that is back has another czxid."""
    controller, other = controller_and_other(cluster)
    watch = controller.death_watch
    run_on(cluster, controller.broker_id, watch.remove_broker(other.broker_id, other.broker_epoch - 1))
    assert run_on(cluster, controller.broker_id, watch.read_epoch(other.broker_id)) == other.broker_epoch


def test_the_controller_znode_of_a_dead_broker_is_removed_with_its_registration(cluster: Cluster) -> None:
    """Both are of one session; the next broker is elected at once."""
    controller, other = controller_and_other(cluster)
    watch = other.death_watch
    run_on(cluster, other.broker_id, watch.remove_broker(controller.broker_id, controller.broker_epoch))
    eventually(
        lambda: controller.controller.epoch == 2 or other.controller.epoch == 2, timeout_s=35, what="a new controller"
    )


def test_a_broker_at_its_connection_limit_is_not_taken_for_dead(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It accepts a connection and closes it at once. It is tried again after pauses that grow."""
    controller, other = controller_and_other(cluster)
    eventually(lambda: knows(controller, other))
    looks: list[float] = []
    limits = other.connection_quotas.limits
    look = DeathWatch.read_epoch

    async def noted(self: DeathWatch, broker_id: int) -> int | None:
        if self is controller.death_watch:
            looks.append(time.monotonic())
        return await look(self, broker_id)

    async def refuse_connections() -> None:
        other.connection_quotas.limits = replace(limits, overrides={"127.0.0.1": 0})
        for connection in tuple(other.dispatcher.connections):
            connection.close()

    monkeypatch.setattr(DeathWatch, "read_epoch", noted)
    before = other.broker_epoch
    run_on(cluster, other.broker_id, refuse_connections())
    eventually(lambda: len(looks) >= 6, what="its registration is read six times")
    other.connection_quotas.limits = limits
    assert looks[5] - looks[0] > 1
    assert other.broker_epoch == before
