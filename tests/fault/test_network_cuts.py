"""A broker that is cut off, from the coordination server alone or from the other brokers
alone: in-sync sets follow.

Brokers reach coordination, and each other, through relays that can be cut. Clients reach
all brokers all the time.
"""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Producer

from support.load import PARTITIONS, Load, assert_exactly_once_in_order, read_all
from support.ports import free_ports
from support.relay import Relay
from support.trio import BROKERS, Epochs, Trio
from support.waiting import eventually

pytestmark = [pytest.mark.interop, pytest.mark.fault]
TOPIC = "trial"
LAG_TIME_MAX_S = 3
SESSION_MS = 6000
"""Long enough that a busy machine ends none that is not cut off."""
SHRINKS_S = LAG_TIME_MAX_S + 60
EXPANDS_S = 60


class Cuttable:
    """Three brokers, the relays to coordination (one for each broker) and those to the brokers."""

    def __init__(self, cluster: Trio, coordination: list[Relay], brokers: list[Relay]) -> None:
        self.cluster = cluster
        self.coordination = coordination
        self.brokers = brokers

    def cut_from_brokers(self, number: int) -> None:
        for target, relay in enumerate(self.brokers):
            relay.cut((lambda _: True) if target == number else (lambda client_id: client_id == f"broker-{number}"))

    def heal(self) -> None:
        for relay in (*self.coordination, *self.brokers):
            relay.heal()

    def isr(self, partition: int) -> set[int]:
        known = self.cluster.partitions(TOPIC)
        return set(known[partition].isrs) if known else set()

    def led_by(self, number: int) -> int:
        """A partition that this broker leads.

        Every broker leads one of three when all are in sync."""
        found = eventually(
            lambda: [index for index in range(PARTITIONS) if self.cluster.leader(TOPIC, index) == number],
            what=f"broker {number} leads",
        )
        return found[0]


@pytest.fixture
def cuttable(tmp_path: Path) -> Iterator[Cuttable]:
    zk_port, *ports = free_ports(1 + 4 * BROKERS)
    clients, internal, advertised, coordination = (ports[n * BROKERS : (n + 1) * BROKERS] for n in range(4))
    each = {
        number: {
            "listeners": f"CLIENTS://127.0.0.1:{clients[number]},BROKERS://127.0.0.1:{internal[number]}",
            "advertised.listeners": f"CLIENTS://127.0.0.1:{clients[number]},BROKERS://127.0.0.1:{advertised[number]}",
            "listener.security.protocol.map": "CLIENTS:PLAINTEXT,BROKERS:PLAINTEXT",
            "inter.broker.listener.name": "BROKERS",
            "zookeeper.connect": f"127.0.0.1:{coordination[number]}",
            "zookeeper.session.timeout.ms": SESSION_MS,
            "zookeeper.connection.timeout.ms": 18_000,
            "replica.lag.time.max.ms": LAG_TIME_MAX_S * 1000,
        }
        for number in range(BROKERS)
    }
    with contextlib.ExitStack() as stack:
        cluster = Trio(tmp_path, each=each, ports=[zk_port, *clients])
        to_coordination = [stack.enter_context(Relay(port, zk_port)) for port in coordination]
        to_brokers = [stack.enter_context(Relay(*ports)) for ports in zip(advertised, internal, strict=True)]
        running = Cuttable(cluster, to_coordination, to_brokers)
        cluster.start()
        stack.callback(cluster.stop)
        stack.callback(running.heal)
        cluster.create(TOPIC)
        yield running


def ends_whole(cuttable: Cuttable, load: Load, epochs: Epochs) -> None:
    """After healing: all in sync in time, nothing lost or doubled, equal logs."""
    cluster = cuttable.cluster
    start = time.monotonic()
    cluster.wait_until_in_sync(TOPIC)
    assert time.monotonic() - start < EXPANDS_S
    load.goes_on(1000, "the load goes on after healing")
    load.finish()
    assert load.failed == []
    assert_exactly_once_in_order(load, read_all(cluster.bootstrap, TOPIC), cluster.directory)
    cluster.wait_until_equal(TOPIC)
    assert epochs.faults == []


@pytest.mark.parametrize("role", ["controller", "other"])
def test_cut_off_from_coordination_a_broker_is_replaced_and_comes_back(cuttable: Cuttable, role: str) -> None:
    """Its session ends: others lead and control; what it takes as leader until then
    is never acknowledged."""
    cluster = cuttable.cluster
    controller = cluster.controller()
    victim = controller if role == "controller" else (controller + 1) % BROKERS
    partition = cuttable.led_by(victim)
    epochs = Epochs(cluster, TOPIC)
    load = Load(cluster.bootstrap, TOPIC)
    load.goes_on(1000, "the load begins")
    cuttable.coordination[victim].cut()
    eventually(
        lambda: epochs.state(partition)["leader"] not in (-1, victim) and victim not in epochs.state(partition)["isr"],
        timeout_s=SESSION_MS / 1000 + SHRINKS_S,
        what="another leader without the one cut off",
    )
    cuttable.heal()
    ends_whole(cuttable, load, epochs)


def test_cut_off_from_the_other_brokers_a_follower_leaves_the_set_in_time_and_comes_back(
    cuttable: Cuttable, record_property
) -> None:
    """Its session lives, so only its lag shows the cut; writes to partitions that it leads wait,
    for it cannot ask the controller."""
    cluster = cuttable.cluster
    victim = (cluster.controller() + 1) % BROKERS
    followed = [cuttable.led_by(number) for number in range(BROKERS) if number != victim]
    epochs = Epochs(cluster, TOPIC)
    load = Load(cluster.bootstrap, TOPIC)
    load.goes_on(1000, "the load begins")
    began = time.monotonic()
    cuttable.cut_from_brokers(victim)
    eventually(
        lambda: all(victim not in epochs.state(partition)["isr"] for partition in followed),
        timeout_s=SHRINKS_S,
        what="the sets shrink",
    )
    record_property("seconds until the sets shrank", round(time.monotonic() - began, 2))
    assert epochs.state(cuttable.led_by(victim))["leader"] == victim
    began = time.monotonic()
    cuttable.heal()
    cluster.wait_until_in_sync(TOPIC)
    record_property("seconds until they were whole again", round(time.monotonic() - began, 2))
    ends_whole(cuttable, load, epochs)


def test_a_controller_cut_off_from_the_others_shrinks_its_own_sets_and_refuses_acks_all(cuttable: Cuttable) -> None:
    """Alone in the set it is below min.insync.replicas: NOT_ENOUGH_REPLICAS until
    the others are back."""
    cluster = cuttable.cluster
    victim = cluster.controller()
    partition = cuttable.led_by(victim)
    epochs = Epochs(cluster, TOPIC)
    load = Load(cluster.bootstrap, TOPIC)
    load.goes_on(1000, "the load begins")
    cuttable.cut_from_brokers(victim)
    eventually(lambda: epochs.state(partition)["isr"] == [victim], timeout_s=SHRINKS_S, what="the set shrinks")
    results: list[KafkaError | None] = []
    settings = {"acks": "all", "retries": 0, "log_level": 0}
    producer = Producer({"bootstrap.servers": f"127.0.0.1:{cluster.brokers[victim].port}", **settings})
    producer.produce(TOPIC, b"0", partition=partition, on_delivery=lambda error, _: results.append(error))
    assert producer.flush(60) == 0
    assert [error.code() for error in results if error] == [KafkaError.NOT_ENOUGH_REPLICAS]
    cuttable.heal()
    ends_whole(cuttable, load, epochs)
