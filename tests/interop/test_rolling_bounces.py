"""Apache's VerifiableProducer and VerifiableConsumer, two versions at once, while our
brokers restart one by one."""

from pathlib import Path

import pytest
from confluent_kafka.admin import NewTopic

from support.load import read_all
from support.mixed import LIMIT_S, OURS, is_long, mixed_cluster
from support.needs import needs_reference
from support.strangers import JavaMember, JavaProducer, assert_each_once_in_order, await_progress
from support.waiting import eventually

pytestmark = [pytest.mark.interop, pytest.mark.java, pytest.mark.fault, needs_reference, pytest.mark.timeout(600)]
VERSIONS = ("3.9.1", "4.3.0")
ROUNDS = 5 if is_long() else 1


def test_verifiable_clients_lose_and_double_nothing_through_rolling_bounces(tmp_path: Path) -> None:
    """Each broker is stopped cleanly, then each is killed; all replicas are in sync
    again before the next goes."""
    with mixed_cluster(tmp_path, [OURS] * 3) as cluster:
        topics = {version: f"java-{version}" for version in VERSIONS}
        config = {"min.insync.replicas": "2"}
        for made in cluster.admin.create_topics(
            [NewTopic(name, 3, 3, config=config) for name in topics.values()]
        ).values():
            made.result(60)
        producers, members = {}, {}
        try:
            for version, topic in topics.items():
                producers[version] = JavaProducer(cluster.bootstrap, topic, tmp_path, version=version)
                members[version] = JavaMember(cluster.bootstrap, topic, f"group-{version}", tmp_path, version=version)
            clients = [*producers.values(), *members.values()]
            await_progress(100, *clients)
            for _ in range(ROUNDS):
                for end in (cluster.stop, cluster.kill):
                    for broker_id in range(3):
                        end(broker_id)
                        await_progress(100, *clients)
                        cluster.start(broker_id, OURS)
                        cluster.await_whole()
        finally:
            for producer in producers.values():
                producer.finish()
            stored = {version: read_all(cluster.bootstrap, topic) for version, topic in topics.items()}
            for version, member in members.items():
                eventually(
                    lambda version=version, member=member: len(member.records) >= len(stored[version]),
                    timeout_s=LIMIT_S,
                )
                member.finish()
        for version in VERSIONS:
            assert producers[version].failed == []
            found = {number: (partition, offset) for partition, offset, number in stored[version]}
            assert found == producers[version].acknowledged
            assert len(found) == len(stored[version])
            assert members[version].failures == []
            assert_each_once_in_order(members[version], stored[version])
            cluster.await_equal_logs(topics[version], 3)
