"""Faults of a cluster inside a test's process: each does what it says, and ends with `heal`."""

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from barnabas.base.errors import BarnabasError
from barnabas.testing import Cluster
from support.cluster_faults import QUICK, led_by, read, send, state
from support.waiting import eventually


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """Three brokers that notice early who is gone."""
    with Cluster(brokers=3, settings=QUICK) as made:
        yield made


def test_a_killed_broker_is_replaced_and_comes_back(cluster: Cluster) -> None:
    """Its partitions get another leader without its word, and it is in sync again
    after its start."""
    topic = led_by(cluster, "orders", 1)
    send(cluster, topic, "before")
    cluster.kill(1)
    with pytest.raises(BarnabasError, match="broker-1 is not running"):
        cluster.kill(1)
    send(cluster, topic, "after")
    eventually(
        lambda: state(cluster, topic) in [(0, {0, 2}), (2, {0, 2})], what="another leader, without the killed one"
    )
    cluster.start_broker(1)
    eventually(lambda: state(cluster, topic)[1] == {0, 1, 2}, what="the killed broker in sync")
    assert [value for value, _ in read(cluster, topic, 2)] == ["before", "after"]


def test_a_paused_broker_loses_its_leadership_and_continues_as_a_follower(cluster: Cluster) -> None:
    """As with SIGSTOP: connections stay open and nothing answers, until its session
    is over and it is resumed."""
    topic = led_by(cluster, "orders", 2)
    cluster.pause(2)
    send(cluster, topic, "meanwhile")
    eventually(lambda: state(cluster, topic)[0] in {0, 1}, what="another leader")
    cluster.resume(2)
    eventually(lambda: state(cluster, topic)[1] == {0, 1, 2}, what="the resumed broker in sync")


def test_a_broker_cut_off_from_the_others_leaves_the_in_sync_set_until_the_network_heals(cluster: Cluster) -> None:
    """The controller is among the others: it takes the smaller set from the leader."""
    leader = Producer({"bootstrap.servers": cluster.bootstrap_servers}).list_topics(timeout=30).controller_id
    topic = led_by(cluster, "orders", leader)
    second, cut_off = {0, 1, 2} - {leader}
    cluster.partition([leader, second], [cut_off])
    send(cluster, topic, "by two")
    eventually(lambda: state(cluster, topic) == (leader, {leader, second}), what="a smaller in-sync set")
    cluster.heal()
    eventually(lambda: state(cluster, topic) == (leader, {0, 1, 2}), what="all in sync again")
    with pytest.raises(BarnabasError, match="broker-0 is in two groups"):
        cluster.partition([0, 1], [0])


def test_a_broker_cut_off_from_coordination_is_replaced(cluster: Cluster) -> None:
    """Its session expires, and another broker leads, although all brokers reach each other."""
    topic = led_by(cluster, "orders", 1)
    cluster.partition([1], ["zookeeper"])
    eventually(lambda: state(cluster, topic)[0] in {0, 2}, what="another leader")
    cluster.heal()
    eventually(lambda: state(cluster, topic)[1] == {0, 1, 2}, what="all in sync again")


def test_a_slow_disk_slows_only_its_own_broker(cluster: Cluster) -> None:
    """A record to its partition takes the time of its disk, and one to another
    broker's does not wait for it."""
    slow, quick = led_by(cluster, "slow", 0), led_by(cluster, "quick", 1)
    cluster.slow_disk(0, 0.3)
    assert send(cluster, slow, "late") >= 0.3
    cluster.slow_disk(0, 0)
    send(cluster, slow, "in time")
    send(cluster, quick, "in time")


def test_a_full_disk_costs_a_broker_its_leadership(cluster: Cluster) -> None:
    """Its only log dir goes offline and it ends, as a process does; the record is
    acknowledged by the next leader."""
    topic = led_by(cluster, "orders", 0)
    cluster.full_disk(0)
    send(cluster, topic, "elsewhere")
    eventually(lambda: state(cluster, topic)[0] in {1, 2}, what="another leader")
    cluster.start_broker(0)
    eventually(lambda: state(cluster, topic)[1] == {0, 1, 2}, what="the broker in sync with a new disk")


def test_a_wrong_clock_is_in_the_timestamps_of_its_broker() -> None:
    """With LogAppendTime a record is as old as the leader's wall clock says."""
    with Cluster(settings={"log.message.timestamp.type": "LogAppendTime"}) as cluster:
        cluster.create_topic("orders")
        cluster.clock(0, 3600)
        send(cluster, "orders", "from the future")
        cluster.heal()
        send(cluster, "orders", "from now")
        (_, future_ms), (_, now_ms) = read(cluster, "orders", 2)
        assert 3_500_000 < future_ms - now_ms < 3_700_000


def test_a_killed_member_of_an_ensemble_is_not_missed() -> None:
    """Brokers work with the two others."""
    with Cluster(zk_servers=3) as cluster:
        cluster.kill("zookeeper2")
        cluster.create_topic("orders")
        send(cluster, "orders", "kept")
        cluster.start_zookeeper(2)


def test_an_unknown_server_is_refused_with_the_names() -> None:
    """The error says which servers there are."""
    with Cluster() as cluster:
        with pytest.raises(BarnabasError, match="no broker 1: they are 0 to 0"):
            cluster.kill(1)
        with pytest.raises(BarnabasError, match="no server 'zk': they are the broker ids, and zookeeper"):
            cluster.pause("zk")
