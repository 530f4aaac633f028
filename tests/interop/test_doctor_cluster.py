"""`barnabas doctor` on clusters of ours: each rule about topics, replicas, brokers and storage is
provoked, and its commands mend it where a command can."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.base.ids import TopicPartition
from barnabas.client import Admin
from barnabas.client.cluster.admin_connection import AdminConnection
from barnabas.testing import Cluster
from barnabas.wire.kafka.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from barnabas.wire.kafka.records.records import Record, build_batch
from support.doctor_runs import Doctor
from support.ports import free_ports
from support.waiting import eventually

pytestmark = pytest.mark.interop
HOUR_MS, DAY_MS = 3_600_000, 86_400_000


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Three brokers, on which each test makes topics of its own."""
    settings = {"log.retention.check.interval.ms": "1000", "transaction.partition.verification.enable": "false"}
    with Cluster(brokers=3, racks=3, settings=settings) as running:
        yield running


@pytest.fixture
def doctor(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Doctor:
    monkeypatch.chdir(tmp_path)
    return Doctor(cluster.bootstrap_servers, capsys, tmp_path)


def doctor_of(running: Cluster, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Doctor:
    return Doctor(running.bootstrap_servers, capsys, tmp_path)


def admin_of(running: Cluster) -> Admin:
    return Admin({"bootstrap.servers": running.bootstrap_servers})


def place(running: Cluster, topic: str, *assignment: list[int], **configs: str) -> None:
    """A topic with replicas where the test wants them."""
    named = {name.replace("_", "."): value for name, value in configs.items()}
    with admin_of(running) as admin:
        admin.create_topic(topic, assignment=assignment, configs=named)
        eventually(lambda: topic in admin.list_topics(), what=f"{topic} is known")


def remove(running: Cluster, *topics: str) -> None:
    """Leave the cluster as the next test expects it."""
    with admin_of(running) as admin:
        admin.delete_topics(topics)


def produce(running: Cluster, topic: str, *records: tuple[int, bytes], transactional: bool = False) -> None:
    """One batch with records of these times, as a client with wrong clocks writes it."""
    batch = build_batch(
        [Record(number, time_ms, b"k", value, []) for number, (time_ms, value) in enumerate(records)],
        **({"producer_id": 4711, "producer_epoch": 0, "base_sequence": 0} if transactional else {}),
        is_transactional=transactional,
    )
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=bytes(batch))])
    request = ProduceRequest(
        transactional_id="hangs" if transactional else None, acks=-1, timeout_ms=30_000, topic_data=[data]
    )
    with AdminConnection(running.bootstrap_servers) as connection:
        (found,) = connection.metadata([topic]).topics
        answer = connection.send(request, ProduceResponse, found.partitions[0].leader_id, max_version=9)
    assert answer.responses[0].partition_responses[0].error_code == 0


def now_ms() -> int:
    return int(time.time() * 1000)


def test_a_healthy_cluster_has_no_finding(cluster: Cluster, doctor: Doctor) -> None:
    """With topics, settings and records as people have them."""
    cluster.create_topic("healthy", 6, 3, {"min.insync.replicas": "2"})
    cluster.create_topic("healthy-compacted", 3, 3, {"cleanup.policy": "compact"})
    produce(cluster, "healthy", (now_ms(), b"v"))
    code, report = doctor.diagnose()
    assert (code, report["findings"]) == (0, [])
    assert {each["outcome"] for each in report["rules"]} <= {"passed", "not checked", "not applicable"}


def test_a_topic_of_one_replica_gets_more(cluster: Cluster, doctor: Doctor) -> None:
    """The plan adds brokers of other racks; the move ends with the finding gone."""
    place(cluster, "single", [0], [1])
    finding = doctor.wait_for("replication-factor-1", "single")
    assert finding["danger"] == "data_loss"
    assert "single-0: replicas [0]" in finding["evidence"]
    doctor.mend(finding)
    doctor.wait_until_mended("replication-factor-1", "single")
    with admin_of(cluster) as admin:
        (topic,) = admin.describe_topics(["single"])
        assert all(sorted(part.replicas) == [0, 1, 2] for part in topic.partitions)


@pytest.mark.parametrize(
    ("rule", "replicas", "configs", "evidence"),
    [
        ("min-isr-equals-factor", [0, 1], {"min_insync_replicas": "2"}, "2 replicas, min.insync.replicas=2"),
        ("min-isr-above-factor", [0, 1], {"min_insync_replicas": "3"}, "2 replicas, min.insync.replicas=3"),
        (
            *("unclean-leader-election", [0, 1], {"unclean_leader_election_enable": "true"}),
            "unclean.leader.election.enable=true, set for the topic",
        ),
        (
            *("retention-below-segment", [0, 1], {"retention_bytes": "5000000", "segment_bytes": "9000000"}),
            "retention.bytes=5000000, segment.bytes=9000000",
        ),
        (
            *("batches-above-segment", [0, 1], {"max_message_bytes": "2000000", "segment_bytes": "1048576"}),
            "max.message.bytes=2000000, segment.bytes=1048576",
        ),
        (
            *("compaction-waits", [0, 1], {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "1.0"}),
            "min.cleanable.dirty.ratio is 1",
        ),
    ],
)
def test_a_wrong_setting_of_a_topic_is_named_and_mended(
    cluster: Cluster, doctor: Doctor, rule: str, replicas: list[int], configs: dict[str, str], evidence: str
) -> None:
    """The command of the finding takes it back."""
    place(cluster, rule, replicas, **configs)
    finding = doctor.wait_for(rule, rule)
    assert f"{rule}: {evidence}" in finding["evidence"]
    doctor.mend(finding)
    doctor.wait_until_mended(rule, rule)
    remove(cluster, rule)


def test_skewed_leaders_are_spread_without_copies(cluster: Cluster, doctor: Doctor) -> None:
    """The plan names the same replicas in another order, and an election follows."""
    place(cluster, "skewed-leaders", *[[0, 1, 2]] * 15)
    finding = doctor.wait_for("skewed-leaders", "broker 0")
    assert "broker 0 leads" in finding["sentence"]
    doctor.mend(finding)
    doctor.wait_until_mended("skewed-leaders", "broker 0")
    with admin_of(cluster) as admin:
        (topic,) = admin.describe_topics(["skewed-leaders"])
    leaders = [part.leader for part in topic.partitions]
    assert {sorted(part.replicas) == [0, 1, 2] for part in topic.partitions} == {True}
    assert max(map(leaders.count, range(3))) < 15
    remove(cluster, "skewed-leaders")


def test_skewed_replicas_are_spread(cluster: Cluster, doctor: Doctor) -> None:
    """A broker that has hardly any replicas gets some."""
    place(cluster, "skewed-replicas", *[[0, 1], [1, 0]] * 40)
    finding = doctor.wait_for("skewed-replicas", "broker 2")
    doctor.mend(finding)
    doctor.wait_until_mended("skewed-replicas", "broker 2")
    remove(cluster, "skewed-replicas")


def test_a_preferred_leader_that_does_not_lead_is_elected(cluster: Cluster, doctor: Doctor) -> None:
    """After a new order of replicas the old leader goes on until an election."""
    place(cluster, "preferred", [0, 1])
    with admin_of(cluster) as admin:
        assert admin.reassign({TopicPartition("preferred", 0): [1, 0]}) == {}
    finding = doctor.wait_for("preferred-leader-not-leading", "preferred-0")
    assert "preferred-0: replicas [1, 0], leader 0" in finding["evidence"]
    doctor.mend(finding)
    doctor.wait_until_mended("preferred-leader-not-leading", "preferred-0")


def test_records_from_the_future_are_found(cluster: Cluster, doctor: Doctor) -> None:
    """The topic takes the broker's time from then on; the records go by delete-records."""
    place(cluster, "future", [0, 1, 2])
    produce(cluster, "future", (now_ms() + 2 * DAY_MS + HOUR_MS, b"late"))
    finding = doctor.wait_for("records-in-the-future", "future-0")
    assert finding["evidence"] == ["future-0: offset 0 is 2 days after this clock"]
    doctor.mend(finding)
    with admin_of(cluster) as admin:
        admin.delete_records({TopicPartition("future", 0): -1})
    doctor.wait_until_mended("records-in-the-future", "future-0")


def test_records_beyond_retention_are_found(cluster: Cluster, doctor: Doctor) -> None:
    """A new record keeps the segment of a day-old one; the command shortens segments."""
    place(cluster, "kept", [0, 1, 2], retention_ms=str(HOUR_MS))
    produce(cluster, "kept", (now_ms() - DAY_MS, b"old"), (now_ms(), b"new"))
    finding = doctor.wait_for("records-beyond-retention", "kept-0")
    assert finding["evidence"] == ["kept-0: offsets 0 to 0 are older than 1 hour; segment.ms is 7 days"]
    doctor.mend(finding)
    with admin_of(cluster) as admin:
        assert admin.topic_configs("kept")["segment.ms"].value == str(HOUR_MS // 2)
    remove(cluster, "kept")


def test_a_transaction_that_hangs_is_aborted(cluster: Cluster, doctor: Doctor) -> None:
    """A producer that no coordinator knows began it a day ago."""
    place(cluster, "hangs", [0, 1, 2])
    produce(cluster, "hangs", (now_ms() - DAY_MS, b"v"), transactional=True)
    finding = doctor.wait_for("hanging-transactions", "hangs-0")
    assert finding["evidence"] == ["hangs-0: producer 4711, open since offset 0, unknown to its coordinator"]
    doctor.mend(finding)
    doctor.wait_until_mended("hanging-transactions", "hangs-0")
    remove(cluster, "hangs")


def test_replicas_in_one_rack_are_spread(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brokers 0 and 1 are in one rack. A broker without a rack is named, too."""
    monkeypatch.chdir(tmp_path)
    with Cluster(brokers=3, racks=2) as running:
        doctor = doctor_of(running, capsys, tmp_path)
        place(running, "one-rack", [0, 1])
        finding = doctor.wait_for("racks-ignored", "one-rack-0")
        assert "one-rack-0: broker 0 in rack R1, broker 1 in rack R1" in finding["evidence"]
        doctor.mend(finding)
        doctor.wait_until_mended("racks-ignored", "one-rack-0")
        running._racks = 0
        running.stop_broker(2)
        running.start_broker(2)
        assert "broker 2: rack none" in doctor.wait_for("racks-on-some-brokers", "broker 2")["evidence"]
        running._kafka_version = "2.8"
        running.stop_broker(2)
        running.start_broker(2)
        finding = doctor.wait_for("brokers-of-different-versions", "broker 2")
        assert finding["evidence"][0].startswith("Broker 2 and brokers 0, 1: ")


def test_internal_topics_of_one_replica_are_found(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that exists gets more; for the one that does not the setting is named. The log
    cleaner is off besides, and a log dir nearly full."""
    monkeypatch.chdir(tmp_path)
    settings = {
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "log.cleaner.enable": "false",
    }
    with Cluster(brokers=2, settings=settings) as running:
        doctor = doctor_of(running, capsys, tmp_path)
        doctor.wait_for("internal-topic-settings", "transaction.state.log.replication.factor")
        finding = doctor.wait_for("internal-topic-factor", "__consumer_offsets")
        doctor.mend(finding)
        doctor.wait_until_mended("internal-topic-factor", "__consumer_offsets")
        assert "log.cleaner.enable=false at broker 0" in doctor.wait_for("cleaner-off", "broker 0")["evidence"]
        directory = str(running.data_dir / "kafka-logs-0")
        files = running._running["broker-0"].faults.files
        for rule, usable, share in (("log-dir-full", 3, "3%"), ("log-dir-fills-up", 10, "10%")):
            monkeypatch.setattr(files, "disk_space", lambda _, usable=usable: (100 << 30, usable << 30), raising=False)
            finding = doctor.wait_for(rule, f"broker 0:{directory}")
            assert f"{usable}.0 GiB of 100.0 GiB left ({share})" in finding["evidence"][0]
        left = iter([50 << 30, 49 << 30])
        monkeypatch.setattr(files, "disk_space", lambda _: (100 << 30, next(left)), raising=False)
        finding = doctor.finding("log-dir-fills-up", "--over", "0.1")
        assert finding is not None
        assert "full in" in finding["evidence"][0]


def test_a_cluster_of_one_broker_is_not_blamed_for_one_copy(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """No command could mend it: the rules about copies say that they do not apply. A log dir that
    cannot be used is a finding."""
    bad = tmp_path / "file"
    bad.write_text("")
    with Cluster() as running:
        running.create_topic("t", 3)
        code, report = doctor_of(running, capsys, tmp_path).diagnose()
        outcomes = {each["rule"]: (each["outcome"], each["reason"]) for each in report["rules"]}
        assert (code, report["findings"]) == (0, [])
        assert outcomes["replication-factor-1"] == (
            "not applicable",
            "the cluster has one broker, so each record has one copy",
        )
    with Cluster(settings={"log.dirs": f"{tmp_path / 'good'},{bad}"}) as running:
        finding = doctor_of(running, capsys, tmp_path).wait_for("log-dir-offline", f"broker 0:{bad}")
        assert finding["evidence"] == [f"broker 0: {bad}: KAFKA_STORAGE_ERROR"]


def test_a_stopped_broker_is_seen_in_all_that_it_leaves(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Partitions without a leader, under and at the minimum of replicas in sync, and a move to a
    broker that freezes. When the broker is back, all is well."""
    monkeypatch.chdir(tmp_path)
    with Cluster(brokers=3) as running:
        doctor = doctor_of(running, capsys, tmp_path)
        place(running, "alone", [2])
        place(running, "at", [0, 1, 2], min_insync_replicas="2")
        place(running, "under", [0, 2], min_insync_replicas="2")
        running.stop_broker(2)
        assert doctor.wait_for("offline-partitions", "alone-0")["danger"] == "unavailable"
        assert "not there: broker 2" in doctor.wait_for("under-replicated", "at-0")["evidence"]
        doctor.wait_for("at-min-isr", "at-0")
        assert (
            "under-0: replicas [0, 2], in sync [0], min.insync.replicas=2"
            in (doctor.wait_for("under-min-isr", "under-0")["evidence"])
        )
        doctor.wait_for("broker-away", "broker 2")
        running.start_broker(2)
        for rule, subject in (
            *(("offline-partitions", "alone-0"), ("under-replicated", "at-0"), ("at-min-isr", "at-0")),
            *(("under-min-isr", "under-0"), ("broker-away", "broker 2")),
        ):
            doctor.wait_until_mended(rule, subject)


def test_a_frozen_broker_is_found_and_so_is_the_move_to_it(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is registered until its session expires, and answers nothing; the move is cancelled."""
    monkeypatch.chdir(tmp_path)
    with Cluster(brokers=3, settings={"zookeeper.session.timeout.ms": "60000"}) as running, admin_of(running) as admin:
        doctor = doctor_of(running, capsys, tmp_path)
        controller = admin.describe_cluster().controller_id
        frozen = (controller + 1) % 3
        place(running, "moves", [controller])
        running.pause(frozen)
        assert admin.reassign({TopicPartition("moves", 0): [frozen]}) == {}
        for rule, subject in (("broker-unreachable", f"broker {frozen}"), ("reassignment-stands-still", "moves-0")):
            code, report = doctor.diagnose("--only", rule, "--timeout", "1")
            assert code == 1
            assert report["findings"][0]["subjects"] == [subject]
        running.resume(frozen)
        doctor.wait_until_mended("broker-unreachable", f"broker {frozen}")
        doctor.wait_until_mended("reassignment-stands-still", "moves-0")


def test_brokers_that_are_cut_off_from_each_other_disagree(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The controller dies while the two others are cut off from each other: one of them is the
    next controller, and the other one does not learn of it. Without the coordination service none
    follows the next."""
    with Cluster(brokers=3) as running, admin_of(running) as admin:
        doctor = doctor_of(running, capsys, tmp_path)
        controller = admin.describe_cluster().controller_id
        others = [broker_id for broker_id in range(3) if broker_id != controller]
        running.partition([others[0]], [others[1]])
        running.kill(controller)

        def disagree() -> bool:
            found = {rule: doctor.diagnose("--only", rule)[1]["findings"] for rule in RULES_OF_VIEWS}
            return all(found.values())

        eventually(disagree, what="the brokers' views differ")
        running.heal()
        for rule in RULES_OF_VIEWS:
            eventually(lambda rule=rule: not doctor.diagnose("--only", rule)[1]["findings"], what=f"{rule} is over")


def test_a_controller_that_is_not_replaced_is_missed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Without the coordination service no broker takes the place of one that was killed."""
    with Cluster(brokers=3) as running, admin_of(running) as admin:
        controller = admin.describe_cluster().controller_id
        running.stop_zookeeper()
        running.kill(controller)
        finding = doctor_of(running, capsys, tmp_path).wait_for("no-controller", "controller")
        assert len(finding["evidence"]) == 2
        running.start_zookeeper()
        doctor_of(running, capsys, tmp_path).wait_until_mended("no-controller", "controller")


def test_a_log_that_cannot_be_compacted_is_found(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The broker's metrics count it. Its closed segment is damaged behind the broker's back."""
    (port,) = free_ports(1)
    settings = {
        "metrics.http.address": f"127.0.0.1:{port}",
        "log.cleaner.backoff.ms": "100",
        "log.segment.bytes": "1048576",
        "log.cleaner.min.cleanable.ratio": "0.01",
    }
    with Cluster(settings=settings) as running:
        place(running, "compacted", [0], cleanup_policy="compact", segment_ms="100", segment_bytes="1048576")
        produce(running, "compacted", (now_ms() - DAY_MS, b"v" * 1000))
        produce(running, "compacted", (now_ms(), b"v"))
        (segment, *_) = sorted((running.data_dir / "kafka-logs-0" / "compacted-0").glob("*.log"))
        with segment.open("r+b") as file:
            file.seek(8)  # the length of the first batch
            file.write(b"\x7f")
        finding = doctor_of(running, capsys, tmp_path).wait_for(
            "cleaner-fails",
            f"127.0.0.1:{port}:{running.data_dir / 'kafka-logs-0'}",
            *("--metrics", f"127.0.0.1:{port}"),
        )
        assert "1 logs in" in finding["evidence"][0]


RULES_OF_VIEWS = ("controllers-disagree", "brokers-disagree")
