"""The groups' topic in a cluster that has lost a broker: when it can be made, and
what it is made as."""

import json
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from kazoo.client import KazooClient

from barnabas.client.cluster.admin_connection import AdminConnection
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from support.trio import trio
from support.waiting import eventually

pytestmark = [pytest.mark.interop]


def test_groups_begin_once_there_are_brokers_for_every_copy_of_their_topic(tmp_path: Path) -> None:
    """As with Apache's brokers: COORDINATOR_NOT_AVAILABLE until then; groups that
    were there before go on."""
    with trio(tmp_path) as cluster:
        cluster.create("work", partitions=1)
        cluster.brokers[2].kill()
        eventually(lambda: len(cluster.admin.list_topics(timeout=5).brokers) == 2, timeout_s=60, what="two brokers")
        request = FindCoordinatorRequest(key="first", key_type=0)
        with AdminConnection(cluster.bootstrap) as connection:
            for _ in range(3):
                response = connection.send(request, FindCoordinatorResponse, 0, max_version=3)
                assert response.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        cluster.brokers[2].start()
        settings = {"bootstrap.servers": cluster.bootstrap, "group.id": "first", "log_level": 0}
        consumer = Consumer({**settings, "enable.auto.commit": False})

        def committed() -> bool:
            try:
                consumer.commit(offsets=[TopicPartition("work", 0, 0)], asynchronous=False)
            except KafkaException:  # no coordinator yet
                return False
            return True

        eventually(committed, timeout_s=90, what="the first commit, with three brokers")
        zookeeper = KazooClient(f"127.0.0.1:{cluster.zk_port}")
        zookeeper.start(30)
        try:
            partitions = json.loads(zookeeper.get("/brokers/topics/__consumer_offsets")[0])["partitions"]
            config = json.loads(zookeeper.get("/config/topics/__consumer_offsets")[0])["config"]
        finally:
            zookeeper.stop()
            zookeeper.close()
        assert (len(partitions), {len(replicas) for replicas in partitions.values()}) == (50, {3})
        assert config == {"cleanup.policy": "compact", "compression.type": "producer", "segment.bytes": "104857600"}
        cluster.brokers[2].kill()
        eventually(committed, timeout_s=90, what="a commit of the group after the loss of a broker")
        consumer.close()
