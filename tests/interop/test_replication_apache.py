"""Replicas of both kinds under kills: an idempotent acks=all load goes on while brokers of
either kind die and return."""

import os
from pathlib import Path

import pytest
from confluent_kafka.admin import NewTopic

from support.knowing import members_known, topic_known
from support.load import PARTITIONS, assert_exactly_once_in_order, read_all
from support.mixed import APACHES, OURS, is_long, mixed_cluster
from support.needs import needs_reference
from support.strangers import (
    JavaMember,
    LibrdkafkaMember,
    SteadyLoad,
    assert_each_once_in_order,
    await_progress,
)
from support.waiting import eventually

pytestmark = [pytest.mark.interop, pytest.mark.java, pytest.mark.fault, needs_reference, pytest.mark.timeout(900)]
ROUNDS = int(os.environ.get("BARNABAS_KILLS", 5 if is_long() else 1))
KINDS = {"one-of-apaches": [OURS, OURS, APACHES]} | ({"one-of-ours": [APACHES, APACHES, OURS]} if is_long() else {})
SETTINGS = {"zookeeper.session.timeout.ms": "6000"}


@pytest.mark.parametrize("kinds", KINDS.values(), ids=KINDS)
def test_replicas_of_both_kinds_survive_each_others_kills_with_equal_bytes(tmp_path: Path, kinds: list[str]) -> None:
    """One broker of each kind is killed with 9 and comes back, in turn; groups see
    each record once, in order."""
    with mixed_cluster(tmp_path, kinds, settings=SETTINGS) as cluster:
        assignment = [[0, 1, 2], [1, 2, 0], [2, 0, 1]]
        topic = NewTopic("mixed", PARTITIONS, replica_assignment=assignment, config={"min.insync.replicas": "2"})
        members_known(cluster.bootstrap, 3)
        for made in cluster.admin.create_topics([topic]).values():
            made.result(60)
        topic_known(cluster.bootstrap, "mixed", PARTITIONS)
        load = SteadyLoad(cluster.bootstrap, "mixed")
        members = [
            LibrdkafkaMember(cluster.bootstrap, "mixed", "librdkafka"),
            JavaMember(cluster.bootstrap, "mixed", "java", tmp_path),
        ]
        try:
            await_progress(100, load, *members)
            for _ in range(ROUNDS):
                for victim in (2, 0):
                    cluster.kill(victim)
                    await_progress(100, load, *members)
                    cluster.start(victim, kinds[victim])
                    cluster.await_whole()
                    await_progress(100, load, *members)
        finally:
            load.finish()
            stored = read_all(cluster.bootstrap, "mixed")
            for member in members:
                eventually(lambda member=member: len(member.records) >= len(stored), timeout_s=120)
                member.finish()
        assert load.failed == []
        assert_exactly_once_in_order(load, stored, tmp_path)
        for member in members:
            assert_each_once_in_order(member, stored)
        cluster.await_equal_logs("mixed", PARTITIONS)
        for partition in range(PARTITIONS):
            epochs = cluster.epochs("mixed", partition)
            assert epochs[0] == epochs[1] == epochs[2]
        assert cluster.dump(0, "mixed", PARTITIONS) == cluster.dump(2, "mixed", PARTITIONS)
