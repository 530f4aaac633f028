"""Consumer groups of Python's Kafka clients on our coordinator: members come and go, nothing
is lost or shared twice."""

import asyncio
import contextlib
import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from support.ports import free_ports
from support.servers import Server, Up, up
from support.strangers import KAFKA_PYTHON_POLL_MS
from support.waiting import eventually

pytestmark = pytest.mark.interop

PARTITIONS = 6
RECORDS = 300


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with up(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture
def topic(cluster: Up) -> str:
    """A new topic with `RECORDS` records."""
    return filled_topic(cluster.bootstrap)


def filled_topic(bootstrap: str) -> str:
    name = f"t-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": bootstrap})

    def created() -> bool:
        # A broker that was started a moment ago may have no controller yet.
        [future] = admin.create_topics([NewTopic(name, PARTITIONS, 1)], request_timeout=15).values()
        with contextlib.suppress(KafkaException, TimeoutError):
            future.result(30)
        return name in admin.list_topics(timeout=60).topics

    eventually(created, timeout_s=60, what="the topic is created")
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(RECORDS):
        producer.produce(name, str(number), key=str(number))
    assert producer.flush(30) == 0
    return name


def group_id() -> str:
    return f"g-{uuid.uuid4().hex[:8]}"


def consumer(bootstrap: str, group: str, topic: str, **more: Any) -> Consumer:
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "session.timeout.ms": 30_000,
        "heartbeat.interval.ms": 200,
        "enable.auto.commit": False,
        "log_level": 0,
        **{name.replace("_", "."): value for name, value in more.items()},
    }
    made = Consumer(settings)
    made.subscribe([topic])
    return made


def shares(consumers: list[Consumer]) -> list[int]:
    for each in consumers:
        each.poll(0.05)
    return sorted(len(each.assignment()) for each in consumers)


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_members_share_the_partitions_as_they_come_and_go(cluster: Up, topic: str, strategy: str) -> None:
    """One, then three, then two, then seven of which one is idle."""
    group = group_id()

    def join() -> Consumer:
        return consumer(cluster.bootstrap, group, topic, partition_assignment_strategy=strategy)

    members = [join()]
    eventually(lambda: shares(members) == [6], timeout_s=60, what="one has all")
    members += [join(), join()]
    eventually(lambda: shares(members) == [2, 2, 2], timeout_s=60, what="three share")
    members.pop(0).close()
    eventually(lambda: shares(members) == [3, 3], timeout_s=60, what="two share")
    members += [join() for _ in range(5)]
    eventually(lambda: shares(members) == [0, 1, 1, 1, 1, 1, 1], timeout_s=60, what="one is idle")
    assigned = [(tp.topic, tp.partition) for each in members for tp in each.assignment()]
    assert sorted(assigned) == [(topic, partition) for partition in range(PARTITIONS)]
    for each in members:
        each.close()


def test_every_record_is_read_once_when_members_commit_as_they_leave(cluster: Up, topic: str) -> None:
    """Members read a part, commit it and go: the next goes on where they stopped."""
    group = group_id()
    seen: list[str] = []
    while len(seen) < RECORDS:
        member = consumer(cluster.bootstrap, group, topic)
        batch = member.consume(min(70, RECORDS - len(seen)), timeout=60)
        assert batch
        seen += [message.value().decode() for message in batch if message.error() is None]
        member.commit(asynchronous=False)
        member.close()
    assert sorted(map(int, seen)) == list(range(RECORDS))


def test_failed_member_is_replaced_after_its_session(cluster: Up, topic: str) -> None:
    """It stops polling and sends no more heartbeats (its process is gone, not its goodbye)."""
    group = group_id()
    gone = consumer(cluster.bootstrap, group, topic, session_timeout_ms=6000, max_poll_interval_ms=6000)
    eventually(lambda: shares([gone]) == [6])
    member = consumer(cluster.bootstrap, group, topic)
    eventually(lambda: shares([gone, member]) == [3, 3])
    eventually(lambda: shares([member]) == [6], what="the other takes over", timeout_s=90)
    member.close()
    with contextlib.suppress(KafkaException):
        gone.close()


def test_static_member_that_is_restarted_keeps_its_partitions_without_a_rebalance(cluster: Up, topic: str) -> None:
    """group.instance.id: no rebalance within the session."""
    group = group_id()
    rebalances: list[str] = []

    def join(instance: str) -> Consumer:
        return consumer(cluster.bootstrap, group, topic, group_instance_id=instance, session_timeout_ms=20_000)

    stays, restarted = join("a"), join("b")
    eventually(lambda: shares([stays, restarted]) == [3, 3])
    stays.subscribe([topic], on_revoke=lambda *_: rebalances.append("revoked"))
    eventually(lambda: shares([stays, restarted]) == [3, 3])
    before = {tp.partition for tp in restarted.assignment()}
    rebalances.clear()
    restarted.close()
    restarted = join("b")
    eventually(lambda: {tp.partition for tp in restarted.assignment()} == before or shares([stays, restarted]) is None)
    assert shares([stays, restarted]) == [3, 3]
    assert rebalances == []
    stays.close()
    restarted.close()


def test_groups_can_be_listed_described_reset_and_deleted(cluster: Up, topic: str) -> None:
    """librdkafka's admin client."""
    group = group_id()
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    member = consumer(cluster.bootstrap, group, topic, client_id="me")
    eventually(lambda: shares([member]) == [6])
    listed = {each.group_id: each.state.name for each in admin.list_consumer_groups().result(60).valid}
    assert listed[group] == "STABLE"
    described = admin.describe_consumer_groups([group])[group].result(60)
    assert (described.state.name, described.partition_assignor) == ("STABLE", "range")
    assert described.members[0].client_id == "me"
    assert len(described.members[0].assignment.topic_partitions) == PARTITIONS
    with pytest.raises(KafkaException, match="NON_EMPTY_GROUP"):
        admin.delete_consumer_groups([group])[group].result(60)
    member.consume(10, timeout=60)
    member.commit(asynchronous=False)
    member.close()
    wanted = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 7)])
    admin.alter_consumer_group_offsets([wanted])[group].result(60)
    [after] = (
        admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0)])])[group]
        .result(60)
        .topic_partitions
    )
    assert after.offset == 7
    admin.delete_consumer_groups([group])[group].result(60)
    assert group not in {each.group_id for each in admin.list_consumer_groups().result(60).valid}


@contextlib.contextmanager
def fed(cluster: Up, topic: str) -> Iterator[None]:
    """Records come to every partition all the time, so that no poll of a member has to time out."""
    stop = threading.Event()

    def feed() -> None:
        producer = Producer({"bootstrap.servers": cluster.bootstrap})
        while not stop.wait(0.05):
            for partition in range(PARTITIONS):
                producer.produce(topic, str(RECORDS), partition=partition)
            producer.poll(0)
        producer.flush(30)

    thread = threading.Thread(target=feed)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def test_kafka_python_shares_commits_and_leaves(cluster: Up, topic: str) -> None:
    """The pure Python client, two members in one process; a third finds what they committed."""
    from kafka import KafkaConsumer

    group = group_id()

    def join() -> Any:
        return KafkaConsumer(
            topic,
            bootstrap_servers=cluster.bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=30_000,
            heartbeat_interval_ms=200,
        )

    seen: set[int] = set()
    shared: dict[int, int] = {}
    positions: dict[Any, int] = {}
    together = threading.Barrier(2, timeout=60)
    end = time.monotonic() + 90

    def run(number: int) -> None:
        # A member a thread, for a poll of this client waits until all others have joined.
        member = join()
        while not together.n_waiting and (sorted(shared.values()) != [3, 3] or not seen.issuperset(range(RECORDS))):
            assert time.monotonic() < end, (shared, len(seen))
            for records in member.poll(timeout_ms=KAFKA_PYTHON_POLL_MS).values():
                seen.update(int(record.value) for record in records)
            shared[number] = len(member.assignment())
        together.wait()
        member.commit()
        positions.update((each, member.position(each)) for each in member.assignment())
        together.wait()  # if one leaves earlier, the other gets its partitions
        member.close()

    with fed(cluster, topic):
        with ThreadPoolExecutor() as pool:
            for done in [pool.submit(run, number) for number in range(2)]:
                done.result(120)
        again = join()
        assert again.poll(timeout_ms=60_000)
        assert {each: again.committed(each) for each in again.assignment()} == positions
    assert len(positions) == PARTITIONS
    again.close()


def test_aiokafka_shares_commits_and_leaves(cluster: Up, topic: str) -> None:
    """The asyncio client, two members on one loop."""
    from aiokafka import AIOKafkaConsumer

    group = group_id()

    async def run() -> None:
        def make() -> Any:
            return AIOKafkaConsumer(
                topic,
                bootstrap_servers=cluster.bootstrap,
                group_id=group,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                session_timeout_ms=30_000,
                heartbeat_interval_ms=200,
            )

        members = [make(), make()]
        await asyncio.gather(*(each.start() for each in members))
        seen: set[int] = set()
        async with asyncio.timeout(90):
            while sorted(len(each.assignment()) for each in members) != [3, 3] or len(seen) < RECORDS:
                for each in members:
                    for records in (await each.getmany(timeout_ms=100)).values():
                        seen.update(int(record.value) for record in records)
        for each in members:
            await each.commit()
        for each in members:
            await each.stop()
        again = make()
        await again.start()
        assert sum([await again.committed(tp) or 0 for tp in again.assignment()]) == RECORDS
        await again.stop()

    asyncio.run(run())


@pytest.mark.fault
def test_offsets_and_members_survive_kill_9_of_their_broker(tmp_path: Path) -> None:
    """What was committed is there after the restart, and the member continues without a restart."""
    zk_port, port = free_ports(2)
    (tmp_path / "zoo.cfg").write_text(f"dataDir={tmp_path}/zk\nclientPort={zk_port}\nclientPortAddress=127.0.0.1\n")
    (tmp_path / "server.properties").write_text(
        f"broker.id=0\nlisteners=PLAINTEXT://127.0.0.1:{port}\nlog.dirs={tmp_path}/logs\n"
        f"zookeeper.connect=127.0.0.1:{zk_port}\noffsets.topic.replication.factor=1\n"
    )
    zookeeper = Server(["zookeeper-server-start", str(tmp_path / "zoo.cfg")], tmp_path / "zk.log", zk_port)
    broker = Server(["server-start", str(tmp_path / "server.properties")], tmp_path / "broker.log", port)
    zookeeper.start()
    broker.start()
    bootstrap = f"127.0.0.1:{port}"
    try:
        topic = filled_topic(bootstrap)
        member = consumer(bootstrap, group_id(), topic, session_timeout_ms=45_000)
        before = member.consume(RECORDS, timeout=60)
        assert len(before) == RECORDS
        member.commit(asynchronous=False)
        member_id = member.memberid()
        committed = {tp.partition: tp.offset for tp in member.committed(member.assignment(), timeout=60)}
        broker.kill()
        broker.start()
        producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
        for number in range(RECORDS):
            producer.produce(topic, str(RECORDS + number))
        assert producer.flush(60) == 0
        after: list[int] = []

        def read_on() -> bool:
            found = member.consume(50, timeout=0.5)
            after.extend(int(message.value()) for message in found if not message.error())
            return len(after) >= RECORDS

        eventually(read_on, timeout_s=60, what="the member goes on")
        assert sorted(after) == list(range(RECORDS, 2 * RECORDS))
        assert {tp.partition: tp.offset for tp in member.committed(member.assignment(), timeout=60)} == committed
        member.commit(asynchronous=False)
        assert member.memberid() == member_id
        member.close()
    finally:
        broker.stop()
        zookeeper.stop()
