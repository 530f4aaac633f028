"""Two of our brokers and two of Apache's as one cluster: each kind follows leaders and
controllers of the other.

Brokers 0 and 1 are ours, 2 and 3 Apache's. Leaders stay where a test puts them, and a session ends
after 6 s, so that a broker that was killed under Apache's controller is missed soon.
"""

import os
import re
import signal
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
)

from support.knowing import topic_known
from support.mixed import APACHES, LIMIT_S, OURS, MixedCluster, mixed_cluster
from support.needs import needs_reference
from support.servers import barnabas
from support.waiting import eventually

pytestmark = [pytest.mark.interop, pytest.mark.java, pytest.mark.fault, needs_reference, pytest.mark.timeout(600)]

BROKERS = {OURS: (0, 1), APACHES: (2, 3)}
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
either_controls = pytest.mark.parametrize("controlling", [OURS, APACHES])


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MixedCluster]:
    settings = {
        # A client that still asks for a deleted topic must not create it again.
        "auto.create.topics.enable": "false",
        "auto.leader.rebalance.enable": "false",
        "log.cleaner.backoff.ms": "500",
        "log.flush.start.offset.checkpoint.interval.ms": "500",
        "log.retention.check.interval.ms": "500",
        "log.segment.delete.delay.ms": "500",
        "replica.high.watermark.checkpoint.interval.ms": "500",
        "transaction.state.log.num.partitions": "1",
        "zookeeper.session.timeout.ms": "6000",
    }
    kinds = [OURS, OURS, APACHES, APACHES]
    with mixed_cluster(tmp_path_factory.mktemp("mixed"), kinds, settings=settings) as running:
        eventually(lambda: len(running.admin.list_topics(timeout=10).brokers) == 4, timeout_s=LIMIT_S)
        yield running


def settle(futures: dict[object, object]) -> None:
    for future in futures.values():
        future.result(LIMIT_S)


def control(cluster: MixedCluster, kind: str) -> int:
    """Have a broker of this kind be the controller, known to all."""
    holder = cluster.give_office_to(*BROKERS[kind])
    await_known(cluster, holder, *range(len(cluster.members)))
    return holder


def await_known(cluster: MixedCluster, holder: int, *broker_ids: int) -> None:
    """Brokers name the controller when its first metadata has come, after the
    elections of its first moments."""

    def known(port: int) -> bool:
        client = AdminClient({"bootstrap.servers": f"127.0.0.1:{port}", "log_level": 0})
        return client.list_topics(timeout=10).controller_id == holder

    for port in (cluster.members[broker_id].port for broker_id in broker_ids):
        eventually(lambda port=port: known(port), timeout_s=LIMIT_S, what=f"{holder} is known as the controller")


def find_controller(cluster: MixedCluster) -> AdminClient:
    """A client that knows who is the controller: librdkafka's does not ask again
    after NOT_CONTROLLER."""
    eventually(lambda: cluster.admin.list_topics(timeout=30).controller_id == cluster.controller, timeout_s=LIMIT_S)
    return cluster.admin


def create(cluster: MixedCluster, topic: str, assignment: list[list[int]], **config: str) -> None:
    """A topic with its replicas where they are wanted, the first of each leading."""
    named = {name.replace("_", "."): value for name, value in config.items()}
    settle(
        find_controller(cluster).create_topics(
            [NewTopic(topic, len(assignment), replica_assignment=assignment, config=named)]
        )
    )
    for partition, replicas in enumerate(assignment):
        cluster.await_leader(topic, partition, replicas[0])
    running = [f"127.0.0.1:{member.port}" for member in cluster.members if member.process.poll() is None]
    topic_known(",".join(running), topic, len(assignment))


def write(
    cluster: MixedCluster, topic: str, partition: int, values: list[str], *, keys: int = 0, **settings: object
) -> list[KafkaError]:
    """Produce in small batches; what was refused."""
    refused: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            refused.append(error)

    options = {"bootstrap.servers": cluster.bootstrap, "acks": "all", "log_level": 0, "batch.num.messages": 10}
    options |= {"reconnect.backoff.max.ms": 500, "enable.idempotence": True, "linger.ms": 1}
    writer = Producer({**options, **settings})
    for number, value in enumerate(values):
        key = str(number % keys) if keys else None
        writer.produce(topic, value, key, partition, on_delivery=delivered)
    assert writer.flush(LIMIT_S) == 0
    return refused


def read(cluster: MixedCluster, topic: str, partition: int, count: int, **settings: object) -> list[str]:
    """The values from the beginning on, up to the end that the leader reports."""
    options = {"bootstrap.servers": cluster.bootstrap, "group.id": "read", "enable.auto.commit": False, "log_level": 0}
    reader = Consumer(
        {**options, "auto.offset.reset": "earliest", "enable.partition.eof": True, "fetch.wait.max.ms": 20, **settings}
    )
    reader.assign([TopicPartition(topic, partition, 0)])
    values: list[str] = []
    end = False

    def take() -> bool:
        nonlocal end
        while not (end and len(values) >= count) and (message := reader.poll(0.5)) is not None:
            if message.error() is None:
                values.append(message.value().decode())
            else:
                end = end or message.error().code() == KafkaError._PARTITION_EOF
        return end and len(values) >= count

    try:
        eventually(take, timeout_s=LIMIT_S, what=f"{count} records of {topic}-{partition}")
    finally:
        reader.close()
    return values


def numbers(prefix: str, count: int) -> list[str]:
    return [f"{prefix}{n}" for n in range(count)]


def attempt(action: Callable[[], object]) -> bool:
    """Whether it worked; a client whose broker just went may fail once."""
    try:
        action()
    except KafkaException:
        return False
    return True


def assert_replicas_are_equal(cluster: MixedCluster, topic: str, partitions: int) -> None:
    cluster.await_equal_logs(topic, partitions)
    for partition in range(partitions):
        eventually(
            lambda partition=partition: len({tuple(found) for found in cluster.epochs(topic, partition)}) == 1,
            timeout_s=LIMIT_S,
            what=f"the replicas of {topic}-{partition} have the same leader epochs",
        )


@either_controls
def test_topics_are_made_changed_and_deleted_on_brokers_of_both_kinds(cluster: MixedCluster, controlling: str) -> None:
    """Topic ids on every disk, more partitions, a limit that leaders of both kinds keep,
    and nothing left behind."""
    control(cluster, controlling)
    client = find_controller(cluster)
    topic = f"administered-by-{controlling}"
    create(cluster, topic, [[0, 2], [2, 0], [1, 3], [3, 1]])
    settle(client.create_partitions([NewPartitions(topic, 6, [[0, 3], [3, 0]])]))
    eventually(lambda: {state["leader"] for state in cluster.states(topic).values()} == {0, 1, 2, 3}, timeout_s=LIMIT_S)
    eventually(lambda: len(cluster.states(topic)) == 6 and cluster.is_whole(), timeout_s=LIMIT_S)
    topic_id = cluster.read(f"/brokers/topics/{topic}")["topic_id"]
    for partition in range(6):
        folders = lambda partition=partition: cluster.replica_dirs(topic, partition)  # noqa: E731
        eventually(lambda folders=folders: len(folders()) == 2, timeout_s=LIMIT_S)
        for folder in folders():
            written = (
                eventually(lambda folder=folder: (folder / "partition.metadata").exists())
                and (folder / "partition.metadata").read_text()
            )
            assert written == f"version: 0\ntopic_id: {topic_id}"
        assert write(cluster, topic, partition, numbers("r", 20)) == []
    entry = ConfigEntry("max.message.bytes", "2000", incremental_operation=AlterConfigOpType.SET)
    settle(client.incremental_alter_configs([ConfigResource("topic", topic, incremental_configs=[entry])]))
    for partition in range(6):

        def too_large(partition: int = partition) -> bool:
            refused = write(cluster, topic, partition, ["x" * 5000])
            return [error.code() for error in refused] == [KafkaError.MSG_SIZE_TOO_LARGE]

        eventually(too_large, timeout_s=LIMIT_S, what=f"the leader of partition {partition} keeps the limit")
    assert_replicas_are_equal(cluster, topic, 6)
    settle(client.delete_topics([topic]))
    eventually(
        lambda: (
            topic not in cluster.topics()
            and not cluster.znodes.exists(f"/admin/delete_topics/{topic}")
            and not any(path for member in cluster.members for path in member.log_dir.glob(f"{topic}-*"))
        ),
        timeout_s=LIMIT_S,
        what="the topic is gone from the znodes and from all log dirs",
    )


@pytest.mark.parametrize("leading", [OURS, APACHES])
def test_followers_of_both_kinds_have_the_leaders_bytes_in_every_compression(
    cluster: MixedCluster, leading: str
) -> None:
    """Three replicas, batches of five codecs; then DeleteRecords and retention move
    the start on all of them."""
    topic = f"bytes-of-{leading}"
    replicas = [0, 2, 1] if leading == OURS else [2, 0, 3]
    create(cluster, topic, [replicas])
    for codec in CODECS:
        settings = {"compression.type": codec}
        assert write(cluster, topic, 0, numbers(f"{codec}-{'x' * 50}-", 40), **settings) == []
    assert_replicas_are_equal(cluster, topic, 1)
    dumps = [cluster.dump(broker_id, topic, 1) for broker_id in replicas]
    assert dumps[0] == dumps[1] == dumps[2]
    assert [codec for codec in CODECS if f"compresscodec: {codec}" in dumps[0]] == list(CODECS)
    client = cluster.admin
    for moved in client.delete_records([TopicPartition(topic, 0, 70)]).values():
        assert moved.result(LIMIT_S).low_watermark == 70, "the answer waits for the followers"
    starts = lambda: {start_offset(cluster, broker_id, topic) for broker_id in replicas}  # noqa: E731
    eventually(lambda: starts() == {70}, timeout_s=LIMIT_S, what="the start is noted on all disks")
    assert len(read(cluster, topic, 0, 130)) == 130
    # What is too much goes, wherever it lies; one record at a time, so that all replicas begin
    # segments at the same one.
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in {"segment.bytes": "1024", "retention.bytes": "2048"}.items()
    ]
    settle(client.incremental_alter_configs([ConfigResource("topic", topic, incremental_configs=entries)]))
    for number in range(20):
        assert write(cluster, topic, 0, [f"{number}-{'y' * 400}"]) == []
    eventually(
        lambda: len(starts()) == 1 and min(starts()) > 210, timeout_s=LIMIT_S, what="all begin at the same later record"
    )
    spec = {TopicPartition(topic, 0): OffsetSpec.earliest()}
    found = next(iter(client.list_offsets(spec).values())).result(LIMIT_S).offset
    assert starts() == {found}


def start_offset(cluster: MixedCluster, broker_id: int, topic: str) -> int:
    """Where a replica begins on disk: its first segment, or within it where
    log-start-offset-checkpoint says."""
    log_dir = cluster.members[broker_id].log_dir
    noted = re.search(rf"^{topic} 0 (\d+)$", (log_dir / "log-start-offset-checkpoint").read_text(), re.MULTILINE)
    first_segment = min(int(path.stem) for path in (log_dir / f"{topic}-0").glob("*.log"))
    return max(first_segment, int(noted[1]) if noted else 0)


def test_a_compacted_topic_keeps_each_keys_last_value_on_replicas_of_both_kinds(cluster: MixedCluster) -> None:
    """Every broker compacts its own files; what remains may differ, the last values may not."""
    config = {"cleanup_policy": "compact", "segment_bytes": "4096", "min_cleanable_dirty_ratio": "0.01"}
    create(cluster, "compacted", [[0, 2, 1], [2, 0, 3]], **config)
    for partition, replicas in enumerate([[0, 2, 1], [2, 0, 3]]):
        assert write(cluster, "compacted", partition, numbers("v" * 30, 2000), keys=50) == []
        assert write(cluster, "compacted", partition, numbers("last", 50), keys=50) == []
        for broker_id in replicas:
            folder = cluster.members[broker_id].log_dir / f"compacted-{partition}"
            eventually(
                lambda folder=folder: len(records_in(folder)) < 1000 and last_values(folder) == expected_last(),
                timeout_s=LIMIT_S,
                what=f"{folder} is compacted and has the last values",
            )


def records_in(folder: object) -> list[tuple[str, str]]:
    """(key, value) of all records that lie in a replica's segments."""
    files = ",".join(str(path) for path in sorted(folder.glob("*.log")))
    done = barnabas("dump-log", "--print-data-log", "--files", files)
    return re.findall(r"key: (\d+) payload: (\S+)", done.stdout)


def last_values(folder: object) -> dict[str, str]:
    return dict(records_in(folder))


def expected_last() -> dict[str, str]:
    return {str(n): f"last{n}" for n in range(50)}


def test_our_follower_keeps_apaches_transactions_and_leads_with_the_right_last_stable_offset(
    cluster: MixedCluster,
) -> None:
    """Committed and aborted transactions and one that is open when Apache's leader stops;
    it ends when that is back."""
    topic = "transactions"
    create(cluster, "__transaction_state", [[3]], cleanup_policy="compact")
    create(cluster, topic, [[2, 0]])
    settings = {"bootstrap.servers": cluster.bootstrap, "transactional.id": "mixed", "log_level": 0}
    writer = Producer({**settings, "transaction.timeout.ms": 300_000, "reconnect.backoff.max.ms": 500})
    eventually(lambda: attempt(lambda: writer.init_transactions(30)), timeout_s=LIMIT_S)
    for name, commits in (("first", True), ("dropped", False), ("second", True)):
        writer.begin_transaction()
        for value in numbers(name, 10):
            writer.produce(topic, value, partition=0)
        writer.flush(LIMIT_S)
        if commits:
            writer.commit_transaction(LIMIT_S)
        else:
            writer.abort_transaction(LIMIT_S)
    stable = [*numbers("first", 10), *numbers("second", 10)]
    writer.begin_transaction()
    for value in numbers("open", 5):
        writer.produce(topic, value, partition=0)
    assert writer.flush(LIMIT_S) == 0
    assert read(cluster, topic, 0, 20) == stable
    assert_replicas_are_equal(cluster, topic, 1)
    cluster.stop(2)
    cluster.await_leader(topic, 0, 0)
    assert read(cluster, topic, 0, 20) == stable, "ours leads: nothing aborted, nothing from the open transaction"
    assert len(read(cluster, topic, 0, 35, **{"isolation.level": "read_uncommitted"})) == 35
    spec = {TopicPartition(topic, 0): OffsetSpec.latest()}
    listed = cluster.admin.list_offsets(spec, isolation_level=IsolationLevel.READ_COMMITTED)
    assert next(iter(listed.values())).result(LIMIT_S).offset == 33, "30 records and 3 markers"
    cluster.start(2, APACHES)
    cluster.await_whole()
    done = barnabas(
        *("leader-election", "--bootstrap-server", cluster.bootstrap, "--election-type", "preferred"),
        *("--topic", topic, "--partition", 0),
    )
    assert done.returncode == 0, done.stderr
    cluster.await_leader(topic, 0, 2)
    eventually(lambda: attempt(lambda: writer.commit_transaction(30)), timeout_s=LIMIT_S)
    assert read(cluster, topic, 0, 25) == [*stable, *numbers("open", 5)]
    assert_replicas_are_equal(cluster, topic, 1)


@pytest.mark.parametrize(
    ("leader", "follower", "controlling"),
    [(0, 2, APACHES), (2, 0, OURS)],
    ids=["ours-truncates-under-apaches-controller", "apaches-truncates-under-our-controller"],
)
def test_a_leader_that_comes_back_cuts_what_the_unclean_leader_of_the_other_kind_lacks(
    cluster: MixedCluster, leader: int, follower: int, controlling: str
) -> None:
    """Out of sync is elected where the topic allows it; the old leader's tail goes, bytes
    and epochs are equal after."""
    kinds = {number: member.kind for number, member in enumerate(cluster.members)}
    topic = f"unclean-{kinds[follower]}"
    create(cluster, topic, [[leader, follower]], unclean_leader_election_enable="true")
    eventually(cluster.is_whole, timeout_s=LIMIT_S)
    assert write(cluster, topic, 0, numbers("both", 60)) == []
    cluster.stop(follower)
    eventually(lambda: cluster.states(topic)[0]["isr"] == [leader], timeout_s=LIMIT_S)
    assert write(cluster, topic, 0, numbers("leader", 60)) == []
    control_without(cluster, controlling, {leader, follower})
    cluster.kill(leader)
    cluster.start(follower, kinds[follower])
    cluster.await_leader(topic, 0, follower)
    assert write(cluster, topic, 0, numbers("unclean", 60)) == []
    cluster.start(leader, kinds[leader])
    cluster.await_whole()
    assert read(cluster, topic, 0, 120) == [*numbers("both", 60), *numbers("unclean", 60)]
    assert_replicas_are_equal(cluster, topic, 1)
    assert cluster.dump(leader, topic, 1) == cluster.dump(follower, topic, 1)


def control_without(cluster: MixedCluster, kind: str, away: set[int]) -> None:
    (holder,) = [broker_id for broker_id in BROKERS[kind] if broker_id not in away][:1]
    assert cluster.give_office_to(holder) == holder


@pytest.mark.parametrize(("dying", "inheriting"), [(APACHES, OURS), (OURS, APACHES)])
def test_a_killed_controllers_office_goes_to_the_other_kind(cluster: MixedCluster, dying: str, inheriting: str) -> None:
    """The new one elects leaders for what the dead one led, makes topics, and takes the
    dead back when it returns."""
    topic = f"office-of-{dying}"
    heir, victim = BROKERS[inheriting][0], BROKERS[dying][0]
    stopped = BROKERS[dying][1]
    create(cluster, topic, [[victim, heir], [heir, victim]])
    assert cluster.give_office_to(victim) == victim
    cluster.stop(stopped)
    cluster.kill(victim)
    eventually(lambda: cluster.controller in BROKERS[inheriting], timeout_s=LIMIT_S)
    cluster.await_leader(topic, 0, heir)
    assert write(cluster, topic, 0, numbers("after", 20)) == []
    create(cluster, f"{topic}-after", [list(BROKERS[inheriting])])
    cluster.launch(victim, dying)
    cluster.launch(stopped, dying)
    for broker_id in (victim, stopped):
        cluster.await_registered(broker_id)
    cluster.await_whole()
    assert write(cluster, topic, 1, numbers("whole", 20)) == []
    assert_replicas_are_equal(cluster, topic, 2)


def checkpointed(cluster: MixedCluster, broker_id: int, topic: str) -> int:
    """The high watermark that would be known after a kill."""
    path = cluster.members[broker_id].log_dir / "replication-offset-checkpoint"
    lines = path.read_text().splitlines() if path.exists() else []
    return next((int(line.split()[2]) for line in lines if line.startswith(f"{topic} 0 ")), 0)


def test_our_broker_that_lost_records_does_not_lead_under_apaches_controller_while_another_may_return(
    cluster: MixedCluster,
) -> None:
    """All brokers are killed and our log is cut by half; what was acknowledged comes
    back with Apache's replica."""
    damaged, intact, controlling = BROKERS[OURS][0], *BROKERS[APACHES]
    create(cluster, "cut", [[damaged, intact]])
    cluster.await_whole()
    assert write(cluster, "cut", 0, numbers("v", 400)) == []
    eventually(
        lambda: checkpointed(cluster, damaged, "cut") == 400,
        timeout_s=LIMIT_S,
        what="the high watermark is checkpointed",
    )
    for member in cluster.members:
        member.process.send_signal(signal.SIGSTOP)  # none of them sees another one die
    for member in cluster.members:
        cluster.kill(member.broker_id)
    log = max((cluster.members[damaged].log_dir / "cut-0").glob("*.log"))
    os.truncate(log, log.stat().st_size // 2)

    cluster.start(damaged, OURS)
    for broker_id in (controlling, intact):
        cluster.await_expired(broker_id)
    cluster.start(controlling, APACHES)
    assert cluster.give_office_to(controlling) == controlling
    await_known(cluster, controlling, damaged, controlling)
    state = cluster.states("cut")[0]
    assert (state["leader"], state["isr"]) == (-1, [intact])

    for broker_id in (intact, BROKERS[OURS][1]):
        cluster.launch(broker_id, cluster.members[broker_id].kind)
    cluster.await_leader("cut", 0, intact)
    assert read(cluster, "cut", 0, 400) == numbers("v", 400)
    cluster.await_registered(BROKERS[OURS][1])
    cluster.await_whole()
    assert_replicas_are_equal(cluster, "cut", 1)
