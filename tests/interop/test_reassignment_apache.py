"""Moves of replicas and elections on our brokers with Apache's tools, to Apache's brokers,
and between controllers."""

import contextlib
import json
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from barnabas.base.ids import TopicPartition as Partition
from barnabas.client.admin.reassignments import alter_reassignments
from barnabas.client.cluster.admin_connection import AdminConnection
from support.knowing import members_known, topic_known
from support.mixed import APACHES, LIMIT_S, OURS, MixedCluster, mixed_cluster
from support.needs import needs_reference
from support.reference import apache_tool
from support.servers import barnabas
from support.waiting import eventually

pytestmark = [pytest.mark.interop]

REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
ELECT = "org.apache.kafka.tools.LeaderElectionCommand"
SETTINGS = {
    "zookeeper.session.timeout.ms": "36000",  # a paused broker must not be given up during a test
    "auto.leader.rebalance.enable": "false",
    # A throttle lets one fetch pass in each of its windows of 11 s, however large:
    # small fetches make it exact.
    "replica.fetch.max.bytes": "50000",
}


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MixedCluster]:
    """Three of our brokers; the first is controller."""
    directory = tmp_path_factory.mktemp("ours")
    with mixed_cluster(directory, [OURS, OURS, OURS], settings=SETTINGS) as cluster:
        cluster.give_office_to(0)
        members_known(cluster.bootstrap, 3)
        yield cluster


def create(cluster: MixedCluster, topic: str, assignment: str, records: int = 0, size: int = 500) -> None:
    made = barnabas("topics", "--bootstrap-server", cluster.bootstrap, "--create", "--topic", topic,
                    "--replica-assignment", assignment)  # fmt: skip
    assert made.returncode == 0, made.stderr
    partitions = assignment.count(",") + 1
    topic_known(cluster.bootstrap, topic, partitions)
    if records:
        produce(cluster, topic, partitions, range(records), size)


def produce(cluster: MixedCluster, topic: str, partitions: int, numbers: range, size: int = 500) -> None:
    # A fetch takes a batch whole, whatever its size.
    settings = {"enable.idempotence": True, "batch.size": 20_000}
    producer = Producer({"bootstrap.servers": cluster.bootstrap, **settings})
    for number in numbers:
        producer.produce(topic, f"{number}".ljust(size), partition=number % partitions)
    assert producer.flush(LIMIT_S) == 0


def consume(cluster: MixedCluster, topic: str, partitions: int, count: int) -> list[int]:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "all", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
    found: list[int] = []

    def take() -> bool:
        found.extend(int(message.value()) for message in consumer.consume(500, 1) if message.error() is None)
        return len(found) >= count

    eventually(take, timeout_s=LIMIT_S, what=f"{count} records")
    consumer.close()
    return sorted(found)


def plan_file(path: Path, topic: str, *replicas: list[int]) -> Path:
    partitions = [{"topic": topic, "partition": n, "replicas": brokers} for n, brokers in enumerate(replicas)]
    path.write_text(json.dumps({"version": 1, "partitions": partitions}))
    return path


def move(cluster: MixedCluster, topic: str, *replicas: list[int], through: int = 0) -> None:
    """Begin a move, by our own client, which asks this broker first (one that is
    paused would keep it waiting)."""
    with AdminConnection(cluster.bootstrap.split(",")[through]) as connection:
        wanted = {Partition(topic, index): brokers for index, brokers in enumerate(replicas)}
        assert alter_reassignments(connection, wanted) == {}


def assignment(cluster: MixedCluster, topic: str) -> dict[str, Any]:
    znode = cluster.read(f"/brokers/topics/{topic}")
    return {key: znode[key] for key in ("partitions", "adding_replicas", "removing_replicas")}


def await_moved(cluster: MixedCluster, topic: str, *replicas: list[int]) -> None:
    wanted = {str(index): brokers for index, brokers in enumerate(replicas)}
    done = {"partitions": wanted, "adding_replicas": {}, "removing_replicas": {}}
    eventually(lambda: assignment(cluster, topic) == done, timeout_s=LIMIT_S, what=f"{topic} is on {replicas}")
    for partition, brokers in enumerate(replicas):
        state = cluster.states(topic)[partition]
        assert sorted(state["isr"]) == sorted(brokers)
        assert state["leader"] in brokers

        def where(partition: int = partition) -> set[int]:
            return {m.broker_id for m in cluster.members if (m.log_dir / f"{topic}-{partition}").is_dir()}

        eventually(lambda brokers=brokers, where=where: where() == set(brokers), timeout_s=LIMIT_S, what="deleted")


@contextlib.contextmanager
def paused(cluster: MixedCluster, broker: int) -> Iterator[None]:
    """A broker that lives and does nothing: a move to it cannot end."""
    pid = cluster.members[broker].process.pid
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@needs_reference
@pytest.mark.java
@pytest.mark.parametrize("version", ["3.9.1", "4.3.0"])
def test_apaches_tool_moves_partitions_of_our_brokers(ours: MixedCluster, tmp_path: Path, version: str) -> None:
    """Generate, execute, list, verify, cancel, execute again, faster, verify, and
    all throttles are gone.

    The first throttle lets no move end while it is looked at, however slow the machine.
    """
    topic = f"tool-{version}"
    create(ours, topic, "0:1,1:0", records=2000, size=10_000)
    first = ours.bootstrap.split(",")[0]

    def tool(*args: object, text: str = "") -> str:
        done = apache_tool(REASSIGN, "--bootstrap-server", first, *args, version=version, text=text)
        return done.stdout + done.stderr

    topics = tmp_path / "topics.json"
    topics.write_text(json.dumps({"version": 1, "topics": [{"topic": topic}]}))
    generated = tool("--generate", "--topics-to-move-json-file", topics, "--broker-list", "0,2")
    proposed = json.loads(generated.partition("configuration\n")[2].splitlines()[0])
    assert [sorted(item["replicas"]) for item in proposed["partitions"]] == [[0, 2], [0, 2]]

    create(ours, f"{topic}-other", "0:1")
    plan = ["--reassignment-json-file", plan_file(tmp_path / "plan.json", topic, [2, 1], [1, 2])]
    other = ["--reassignment-json-file", plan_file(tmp_path / "other.json", f"{topic}-other", [2, 0])]
    started = tool("--execute", "--throttle", 20_000, *plan)
    assert f"Successfully started partition reassignments for {topic}-0,{topic}-1" in started
    listed = tool("--list")
    assert re.search(rf"{topic}-0: replicas: 2,1,0. adding: 2. removing: 0", listed), listed
    assert re.search(rf"{topic}-1: replicas: 1,2,0. adding: 2. removing: 0", listed), listed
    assert tool("--verify", *plan).count("is still in progress") == 2
    assert "--additional" in tool("--execute", *other)
    assert "Successfully started" in tool("--execute", "--additional", *other)
    cancelled = tool("--cancel", *plan)
    assert f"Successfully cancelled partition reassignments for: {topic}-0,{topic}-1" in cancelled
    await_moved(ours, topic, [1, 0], [1, 0])  # which of the two was first is not kept
    await_moved(ours, f"{topic}-other", [2, 0])
    assert "Successfully started" in tool("--execute", "--throttle", 1 << 30, *plan)
    eventually(lambda: tool("--verify", *plan).count("is completed.") == 2, timeout_s=LIMIT_S, what="moved")
    await_moved(ours, topic, [2, 1], [1, 2])
    for entity in ("topics", topic), ("brokers", "0"), ("brokers", "1"), ("brokers", "2"):
        found = ours.read(f"/config/{'/'.join(entity)}") or {"config": {}}
        assert not [name for name in found["config"] if "throttled" in name]
    assert consume(ours, topic, 2, 2000) == list(range(2000))


@needs_reference
@pytest.mark.java
@pytest.mark.parametrize("version", ["3.9.1", "4.3.0"])
def test_apaches_tool_elects_leaders_of_our_brokers(ours: MixedCluster, tmp_path: Path, version: str) -> None:
    """Preferred where another leads, not where nothing is to be done, and not what is not there."""
    topic = f"elected-{version}"
    create(ours, topic, "0:1,1:0,2:0")
    move(ours, topic, [1, 0], [1, 0], [2, 0])
    await_moved(ours, topic, [1, 0], [1, 0], [2, 0])

    def tool(*args: object) -> str:
        done = apache_tool(ELECT, "--bootstrap-server", ours.bootstrap, *args, version=version)
        return done.stdout + done.stderr

    partitions = [{"topic": topic, "partition": partition} for partition in (0, 1, 7)]
    file = tmp_path / "elections.json"
    file.write_text(json.dumps({"version": 1, "partitions": partitions}))
    output = tool("--election-type", "preferred", "--path-to-json-file", file)
    assert f"Successfully completed leader election (PREFERRED) for partitions {topic}-0" in output
    assert f"Valid replica already elected for partitions {topic}-1" in output
    assert "UnknownTopicOrPartitionException" in output
    assert ours.states(topic)[0]["leader"] == 1
    unclean = tool("--election-type", "unclean", "--topic", topic, "--partition", 0)
    assert f"Valid replica already elected for partitions {topic}-0" in unclean
    move(ours, topic, [0, 1], [0, 1], [0, 2])
    await_moved(ours, topic, [0, 1], [0, 1], [0, 2])
    assert "Successfully completed leader election" in tool("--election-type", "preferred", "--all-topic-partitions")
    assert {state["leader"] for state in ours.states(topic).values()} == {0}


def test_the_groups_topic_moves_with_its_offsets(ours: MixedCluster) -> None:
    """A group's committed offset is found at its new coordinator, which the old one
    no longer is."""
    create(ours, "grouped", "0", records=10)
    settings = {"bootstrap.servers": ours.bootstrap, "group.id": "moving", "auto.offset.reset": "earliest"}

    def consumer() -> Consumer:
        return Consumer({**settings, "enable.auto.commit": False})

    first = consumer()
    eventually(lambda: committed(first, 7), timeout_s=LIMIT_S, what="committed")
    first.close()
    offsets = "__consumer_offsets"
    before = assignment(ours, offsets)["partitions"]
    target = [[(replicas[0] + 1) % 3] for _, replicas in sorted(before.items(), key=lambda item: int(item[0]))]
    move(ours, offsets, *target)
    await_moved(ours, offsets, *target)
    second = consumer()
    partition = TopicPartition("grouped", 0)
    eventually(lambda: second.committed([partition], timeout=30)[0].offset == 7, timeout_s=LIMIT_S, what="found")
    eventually(lambda: committed(second, 9), timeout_s=LIMIT_S, what="committed again")
    second.close()


def committed(consumer: Consumer, offset: int) -> bool:
    consumer.commit(offsets=[TopicPartition("grouped", 0, offset)], asynchronous=False)
    return True


def test_an_order_in_the_znode_of_older_tools_is_carried_out(ours: MixedCluster) -> None:
    """``/admin/reassign_partitions``, which goes when its moves have ended."""
    create(ours, "ordered", "0:1")
    order = {"version": 1, "partitions": [{"topic": "ordered", "partition": 0, "replicas": [2, 1]}]}
    ours.znodes.create("/admin/reassign_partitions", json.dumps(order).encode())
    await_moved(ours, "ordered", [2, 1])
    eventually(lambda: ours.znodes.exists("/admin/reassign_partitions") is None, timeout_s=LIMIT_S, what="struck")
    ours.znodes.create("/admin/reassign_partitions", json.dumps(order).replace("[2, 1]", "[0]").encode())
    await_moved(ours, "ordered", [0])


def test_an_order_in_the_znode_for_preferred_leaders_is_carried_out(ours: MixedCluster) -> None:
    """``/admin/preferred_replica_election``, more than once."""
    create(ours, "preferred", "0:1")
    for replicas in ([1, 0], [0, 1]):
        move(ours, "preferred", replicas)
        await_moved(ours, "preferred", replicas)
        assert ours.states("preferred")[0]["leader"] == replicas[1]
        order = b'{"version":1,"partitions":[{"topic":"preferred","partition":0}]}'
        ours.znodes.create("/admin/preferred_replica_election", order)
        ours.await_leader("preferred", 0, replicas[0])
        path = "/admin/preferred_replica_election"
        eventually(lambda path=path: ours.znodes.exists(path) is None, timeout_s=LIMIT_S, what="struck")


@pytest.mark.fault
def test_a_move_goes_on_when_the_controller_is_killed(tmp_path: Path) -> None:
    """The next controller finds the order in the znode; nothing of the load is lost."""
    with mixed_cluster(tmp_path, [OURS, OURS, OURS, OURS], settings=SETTINGS) as cluster:
        cluster.give_office_to(0)
        members_known(cluster.bootstrap, 4)
        create(cluster, "moved", "1:2,2:1", records=2000)
        with paused(cluster, 3):
            move(cluster, "moved", [3, 1], [2, 3])
            assert assignment(cluster, "moved")["adding_replicas"] == {"0": [3], "1": [3]}
            cluster.kill(0)
            eventually(lambda: cluster.controller in (1, 2), timeout_s=LIMIT_S, what="another controller")
        await_moved(cluster, "moved", [3, 1], [2, 3])
        produce(cluster, "moved", 2, range(2000, 3000))
        assert consume(cluster, "moved", 2, 3000) == list(range(3000))
        cluster.await_equal_logs("moved", 2)


@needs_reference
@pytest.mark.java
@pytest.mark.fault
def test_a_move_begun_under_one_kind_of_controller_ends_under_the_other(tmp_path: Path) -> None:
    """To and from Apache's broker, ours handing over to Apache's in the middle, and back."""
    with mixed_cluster(tmp_path, [OURS, APACHES, OURS], settings=SETTINGS) as cluster:
        members_known(cluster.bootstrap, 3)
        cluster.give_office_to(0)
        create(cluster, "handed", "0,1", records=1000)
        with paused(cluster, 2):
            move(cluster, "handed", [2, 1], [2, 1])
            under_way = assignment(cluster, "handed")
            assert under_way["adding_replicas"] == {"0": [2, 1], "1": [2]}
            cluster.give_office_to(1)
            assert assignment(cluster, "handed") == under_way
        await_moved(cluster, "handed", [2, 1], [2, 1])
        produce(cluster, "handed", 2, range(1000, 2000))
        with paused(cluster, 0):
            move(cluster, "handed", [0, 1], [0], through=1)
            under_way = assignment(cluster, "handed")
            assert under_way["removing_replicas"] == {"0": [2], "1": [2, 1]}
            cluster.give_office_to(2)
            assert assignment(cluster, "handed") == under_way
        await_moved(cluster, "handed", [0, 1], [0])
        assert consume(cluster, "handed", 2, 2000) == list(range(2000))
        cluster.await_equal_logs("handed", 2)
