"""Apache's broker and two of ours replicate to each other, each kind leading some partitions."""

import os
import signal
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from support.load import Load, assert_exactly_once_in_order, read_all
from support.reference import apache_cluster, needs_reference
from support.servers import up
from support.waiting import eventually

pytestmark = [pytest.mark.interop, pytest.mark.java, pytest.mark.fault, needs_reference]
TOPIC = "mixed"


def replica_bytes(directory: Path, partition: int) -> list[bytes]:
    """Each replica's segments, joined, wherever it lies."""
    folders = sorted(path for path in directory.rglob(f"{TOPIC}-{partition}") if path.is_dir())
    return [b"".join(segment.read_bytes() for segment in sorted(folder.glob("*.log"))) for folder in folders]


def test_replicas_of_both_kinds_hold_equal_bytes_and_take_over_from_each_other(tmp_path: Path) -> None:
    """Three replicas of each partition, one of them Apache's; when its broker is killed, ours lead and have it all."""
    with (
        up(tmp_path / "ours", brokers=2) as ours,
        apache_cluster(tmp_path / "apache", zookeeper=ours.zookeeper, first_id=2) as theirs,
    ):
        bootstrap = f"{ours.bootstrap},{theirs.bootstrap}"
        admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})

        def partitions() -> list:
            found = admin.list_topics(TOPIC, timeout=10).topics[TOPIC].partitions
            return [found[index] for index in sorted(found)]

        eventually(lambda: len(admin.list_topics(timeout=10).brokers) == 3)
        assignment = [[0, 1, 2], [1, 2, 0], [2, 0, 1]]
        topic = NewTopic(TOPIC, 3, replica_assignment=assignment, config={"min.insync.replicas": "2"})
        (made,) = admin.create_topics([topic]).values()
        made.result(30)
        load = Load(bootstrap, TOPIC)
        eventually(lambda: len(load.acknowledged) > 2000, what="the load begins")
        assert [partition.leader for partition in partitions()] == [0, 1, 2]
        assert all(len(partition.isrs) == 3 for partition in partitions())
        load.finish()
        for partition in range(3):
            eventually(
                lambda partition=partition: len(set(replica_bytes(tmp_path, partition))) == 1,
                what="all replicas have the same bytes",
            )
            assert len(replica_bytes(tmp_path, partition)) == 3
        assert_exactly_once_in_order(load, read_all(bootstrap, TOPIC))
        os.kill(theirs.pids[0], signal.SIGKILL)
        eventually(lambda: partitions()[2].leader in (0, 1), what="one of ours leads what Apache's led")
        assert_exactly_once_in_order(load, read_all(ours.bootstrap, TOPIC))
