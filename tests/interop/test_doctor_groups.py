"""The doctor's rules on groups and clients, each provoked at a cluster of ours."""

import socket
import struct
import time
from collections.abc import Iterator
from typing import Any

import confluent_kafka
import pytest

from barnabas.base.ids import TopicPartition
from barnabas.broker.metadata.internal_topics import OFFSETS_TOPIC, partition_of
from barnabas.client import Admin, Consumer, Producer
from barnabas.testing import Cluster
from barnabas.wire.kafka.coordinator_records import OffsetCommitKey, OffsetCommitValue, encode_key, encode_value
from support.doctor import findings_at, mend
from support.ports import free_ports
from support.waiting import eventually

HOUR_S = 3600
RULES = (
    *("group-stands-still", "group-without-members", "offsets-expire", "committed-records-gone"),
    *("committed-beyond-end", "offsets-of-deleted-topics", "idle-members", "one-member-has-all"),
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Two brokers that keep offsets for 70 minutes, and show metrics."""
    with Cluster(2, settings={"offsets.retention.minutes": "70", "group.initial.rebalance.delay.ms": "0"}) as running:
        yield running


@pytest.fixture(scope="module")
def admin(cluster: Cluster) -> Iterator[Admin]:
    """For the cluster, which has a topic with old records."""
    long_ago_ms = round(time.time() * 1000) - HOUR_S * 1000
    with Admin({"bootstrap.servers": cluster.bootstrap_servers}) as made:
        made.create_topic("orders", partitions=2)
        with Producer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:
            for number in range(20):
                producer.send("orders", str(number), partition=number % 2, timestamp_ms=long_ago_ms)
        yield made


def consumer(cluster: Cluster, group: str, *topics: str) -> "Consumer[str, str]":
    """A member that has joined when this returns."""
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": group, "auto.offset.reset": "earliest"}
    made = Consumer({**settings, "enable.auto.commit": "false", "session.timeout.ms": "45000"})
    made.subscribe(list(topics))
    return made


def test_a_group_without_faults_is_not_named(cluster: Cluster, admin: Admin) -> None:
    """A member that has read all and committed it is well."""
    with consumer(cluster, "well", "orders") as member:
        for _ in range(20):
            next(iter(member))
        member.commit()
        assert findings_at(cluster.bootstrap_servers, *RULES, "group-rebalances") == {}
    admin.delete_group("well")


def test_a_member_whose_offset_stands_is_named_until_it_commits(cluster: Cluster, admin: Admin) -> None:
    """The offset was committed an hour ago by the brokers' clock, and old records wait."""
    with consumer(cluster, "stuck", "orders") as member:
        first = next(iter(member))
        for broker_id in (0, 1):
            cluster.clock(broker_id, -HOUR_S)
        try:
            member.commit({TopicPartition("orders", first.partition): first.offset + 1})
        finally:
            cluster.heal()
        found = findings_at(cluster.bootstrap_servers, *RULES)["group-stands-still"]
        assert found.subjects == ("group stuck",)
        assert "1 group with members makes no progress: stuck" in found.sentence
        assert (
            f"orders-{first.partition}: offset 1 stands for 1 hour, end 10, of which 9 are older" in found.evidence[0]
        )
        member.commit({TopicPartition("orders", first.partition): 10})
        assert "group-stands-still" not in findings_at(cluster.bootstrap_servers, *RULES)
    admin.delete_group("stuck")


def test_a_group_without_members_lags_and_its_offsets_expire(cluster: Cluster, admin: Admin) -> None:
    """Both are named: it became empty an hour ago, and offsets are kept for 70 minutes."""
    for broker_id in (0, 1):
        cluster.clock(broker_id, -HOUR_S)
    try:
        with consumer(cluster, "left", "orders") as member:
            first = next(iter(member))
            member.commit({TopicPartition("orders", first.partition): first.offset + 1})
        eventually(lambda: admin.describe_group("left").state == "Empty")
    finally:
        cluster.heal()
    found = findings_at(cluster.bootstrap_servers, *RULES)
    assert found.keys() == {"group-without-members", "offsets-expire"}
    assert f"group left: Empty, lag 9 in orders-{first.partition}" in found["group-without-members"].evidence
    assert (
        "group left: without members for 1 hour, its offsets in 1 partition expire in "
        in found["offsets-expire"].evidence[0]
    )
    mend(found["offsets-expire"], cluster.bootstrap_servers)  # prints the offsets
    mend(found["group-without-members"], cluster.bootstrap_servers)  # shows the group, which keeps its offsets
    assert findings_at(cluster.bootstrap_servers, *RULES).keys() == found.keys()
    admin.delete_group("left")
    assert findings_at(cluster.bootstrap_servers, *RULES) == {}


def test_offsets_outside_of_the_log_are_named_and_reset(cluster: Cluster, admin: Admin) -> None:
    """Records that are gone unread, and a log that is shorter than the group has read."""
    admin.create_topic("short", partitions=1)
    place = TopicPartition("short", 0)
    with Producer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:
        for number in range(5):
            producer.send("short", str(number))
    admin.alter_group_offsets("below", {place: 1})
    admin.alter_group_offsets("beyond", {place: 9})
    admin.delete_records({place: 5})
    found = findings_at(cluster.bootstrap_servers, *RULES)
    assert found.keys() == {"committed-records-gone", "committed-beyond-end", "group-without-members"}
    assert found["committed-records-gone"].evidence == (
        "group below, short-0: committed 1, the log starts at 5: up to 4 records are gone",
    )
    assert found["committed-beyond-end"].evidence == ("group beyond, short-0: committed 9, the log ends at 5",)
    for name in ("committed-records-gone", "committed-beyond-end"):
        mend(found[name], cluster.bootstrap_servers)
    assert findings_at(cluster.bootstrap_servers, *RULES) == {}
    for group in ("below", "beyond"):
        admin.delete_group(group)


def test_offsets_of_a_topic_that_is_gone_are_named_and_removed(cluster: Cluster, admin: Admin) -> None:
    """They are in the group's own topic, as after a deletion without a coordinator."""
    offsets_topic = next(each for each in admin.describe_topics([OFFSETS_TOPIC]))
    number = partition_of("late", len(offsets_topic.partitions))
    key = encode_key(OffsetCommitKey(group="late", topic="gone", partition=0))
    value = encode_value(OffsetCommitValue(offset=3, metadata="", commit_timestamp=round(time.time() * 1000)))
    writer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap_servers, "client.id": "__admin_client"})
    writer.produce(OFFSETS_TOPIC, value, key, number)
    writer.flush()
    leader = next(each.leader for each in offsets_topic.partitions if each.partition == number)
    assert leader is not None
    cluster.stop_broker(leader)
    cluster.start_broker(leader)
    found = eventually(lambda: findings_at(cluster.bootstrap_servers, *RULES).get("offsets-of-deleted-topics"))
    assert found.evidence == ("group late: topic gone",)
    mend(found, cluster.bootstrap_servers)
    eventually(lambda: "offsets-of-deleted-topics" not in findings_at(cluster.bootstrap_servers, *RULES))


def test_members_without_a_partition_are_named(cluster: Cluster, admin: Admin) -> None:
    """One of two members has nothing, for there is one partition; a second partition mends it."""
    admin.create_topic("narrow", partitions=1)
    admin.create_topic("empty", partitions=1)
    with consumer(cluster, "idle", "narrow") as one, consumer(cluster, "idle", "narrow") as other:
        found = eventually(lambda: _polled(cluster, "idle-members", one, other))
        assert "group idle: 2 members, 1 partition, 1 without one" in found.evidence[0]
        mend(found, cluster.bootstrap_servers)
        assert len(admin.describe_topics(["narrow"])[0].partitions) == 2


def _polled(cluster: Cluster, name: str, *members: Any) -> Any:
    for member in members:
        member.poll(0.2)
    return findings_at(cluster.bootstrap_servers, name).get(name)


def test_a_rebalance_that_does_not_end_is_named(cluster: Cluster, admin: Admin) -> None:
    """A member does not poll, and another one joins."""
    with consumer(cluster, "held", "orders") as silent:
        next(iter(silent))
        with consumer(cluster, "held", "orders") as joining:
            eventually(lambda: joining.poll(0.1) or admin.describe_group("held").state == "PreparingRebalance")
            found = findings_at(cluster.bootstrap_servers, "group-rebalances")["group-rebalances"]
    assert "group held: PreparingRebalance at each look during 4 seconds" in found.evidence


def send_refused(bootstrap: str, key: int, version: int) -> None:
    """A request of which the broker reads no more than the version; it closes the connection."""
    body = struct.pack(">hhih", key, version, 1, -1)
    with socket.create_connection(("127.0.0.1", int(bootstrap.rpartition(":")[2])), 60) as connection:
        connection.sendall(struct.pack(">i", len(body)) + body)
        assert connection.recv(1) == b""


def test_refused_versions_and_a_wrong_clock_are_in_the_metrics() -> None:
    """A client of Kafka 0.10 is disconnected, and the broker's clock is 20 minutes behind."""
    (port,) = free_ports(1)
    rules = ("old-protocols", "old-message-formats", "clocks-differ")
    with Cluster(1, settings={"metrics.http.address": f"127.0.0.1:{port}"}) as cluster:
        assert findings_at(cluster.bootstrap_servers, *rules) == {}
        for key, version in ((0, 2), (0, 2), (9, 0)):
            send_refused(cluster.bootstrap_servers, key, version)
        cluster.clock(0, -1200)
        found = findings_at(cluster.bootstrap_servers, *rules)
        assert found.keys() == set(rules)
        assert found["old-protocols"].evidence == ("broker 0: 1 OffsetFetch requests in version 0 were refused",)
        assert found["old-message-formats"].evidence == ("broker 0: 2 Produce requests in version 2 were refused",)
        (line,) = found["clocks-differ"].evidence
        assert line.startswith(("broker 0: 19 minutes behind", "broker 0: 20 minutes behind"))
        cluster.heal()
        assert "clocks-differ" not in findings_at(cluster.bootstrap_servers, *rules)
