"""Elections that few survive to hold: two of three brokers dead at once, an unclean one, and
brokers that go in turn."""

import os
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from support.load import Load, Reader, assert_exactly_once_in_order, read_all
from support.trio import BROKERS, Epochs, Trio, trio
from support.waiting import eventually

pytestmark = [pytest.mark.interop, pytest.mark.fault]
LONG_SESSION = {"zookeeper.session.timeout.ms": 60_000}
TOPIC = "trial"
MANY = int(os.environ.get("BARNABAS_PARTITIONS", "30"))


def test_two_brokers_killed_at_once_leave_the_third_leader_and_controller_before_any_session_ends(
    tmp_path: Path,
) -> None:
    """The controller is one of the two, so there is no controller to notice the other; below
    min.insync.replicas no write is accepted."""
    with trio(tmp_path, LONG_SESSION, tick_ms=3000) as cluster:
        cluster.create(TOPIC)
        epochs = Epochs(cluster, TOPIC)
        load = Load(cluster.bootstrap, TOPIC)
        load.goes_on(1000, "the load begins")
        controller = epochs.controller()
        survivor = (controller + 1) % BROKERS
        dead = [broker for number, broker in enumerate(cluster.brokers) if number != survivor]
        for broker in dead:
            broker.process.kill()
        for broker in dead:
            broker.process.wait()
        eventually(
            lambda: all(epochs.state(partition)["leader"] == survivor for partition in range(3)),
            timeout_s=30,
            what="the survivor leads everything",
        )
        eventually(lambda: epochs.controller() == survivor, timeout_s=30, what="the survivor is controller")
        for broker in dead:
            broker.start()
        load.goes_on(1000, "the load goes on when they are back")
        cluster.wait_until_in_sync(TOPIC)
        load.finish()
        assert load.failed == []
        assert_exactly_once_in_order(load, read_all(cluster.bootstrap, TOPIC), cluster.directory)
        cluster.wait_until_equal(TOPIC)
        assert epochs.faults == []


def write(cluster: Trio, numbers: range) -> None:
    """With acks=all, to the one partition."""
    errors: list[KafkaError] = []
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap, "acks": "all", "log_level": 0, "reconnect.backoff.max.ms": 200}
    )
    for number in numbers:
        producer.produce(
            TOPIC, str(number), partition=0, on_delivery=lambda error, _: errors.append(error) if error else None
        )
    assert producer.flush(60) == 0
    assert errors == []


def test_an_unclean_election_loses_what_only_the_dead_leader_had_and_nothing_else(tmp_path: Path) -> None:
    """The old leader cuts its log back, all replicas end equal, and a group that had
    read further goes on."""
    config = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
    with trio(tmp_path) as cluster:
        cluster.create(TOPIC, 1, config)
        epochs = Epochs(cluster, TOPIC, 1)
        write(cluster, range(100))
        leader = cluster.leader(TOPIC)
        others = [broker for number, broker in enumerate(cluster.brokers) if number != leader]
        for broker in others:
            broker.kill()
        eventually(lambda: epochs.state(0)["isr"] == [leader], timeout_s=60, what="the leader is alone in the set")
        write(cluster, range(100, 200))
        settings = {"group.id": "g", "auto.offset.reset": "earliest", "enable.auto.commit": False, "log_level": 0}
        reader = Consumer({"bootstrap.servers": cluster.bootstrap, "reconnect.backoff.max.ms": 200, **settings})
        reader.assign([TopicPartition(TOPIC, 0, 0)])
        early: list[int] = []

        def has_read_all() -> bool:
            early.extend(int(message.value()) for message in reader.consume(200, 0.5) if message.error() is None)
            return len(early) >= 200

        eventually(has_read_all, timeout_s=60, what="the reader has read what only the leader has, too")
        assert early == list(range(200))
        cluster.brokers[leader].kill()
        others[0].start()
        eventually(lambda: epochs.state(0)["leader"] not in (-1, leader), timeout_s=60, what="an unclean election")
        write(cluster, range(200, 350))
        others[1].start()
        cluster.brokers[leader].start()
        cluster.wait_until_in_sync(TOPIC)
        seen: list[int] = []

        def has_gone_on() -> bool:
            seen.extend(int(message.value()) for message in reader.consume(500, 0.5) if message.error() is None)
            return 349 in seen

        eventually(has_gone_on, timeout_s=60, what="the reader goes on behind the cut")
        reader.close()
        kept = [number for _, _, number in read_all(cluster.bootstrap, TOPIC, 1)]
        assert kept == [*range(100), *range(200, 350)]
        cluster.wait_until_equal(TOPIC, 1)
        assert epochs.faults == []


def test_a_rolling_restart_with_many_partitions_costs_no_record(tmp_path: Path, record_property) -> None:
    """Each broker stops cleanly, starts and is in sync again before the next one goes,
    under load and with a reader."""
    with trio(tmp_path) as cluster:
        cluster.create(TOPIC)
        cluster.create("many", MANY)
        epochs = Epochs(cluster, TOPIC)
        load = Load(cluster.bootstrap, TOPIC)
        reader = Reader(cluster.bootstrap, TOPIC)
        load.goes_on(1000, "the load begins")
        start = time.monotonic()
        for broker in cluster.brokers:
            assert broker.stop() == 0
            load.goes_on(100, "the others take over")
            broker.start()
            for topic in (TOPIC, "many"):
                cluster.wait_until_in_sync(topic)
        record_property("seconds", round(time.monotonic() - start, 2))
        load.goes_on(1000, "the load goes on")
        load.finish()
        assert load.failed == []
        records = read_all(cluster.bootstrap, TOPIC)
        assert_exactly_once_in_order(load, records, cluster.directory)
        reader.finish(records)
        cluster.wait_until_equal(TOPIC)
        assert epochs.faults == []
