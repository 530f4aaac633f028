"""What a client sees while a broker does something large: a producer of one record each
millisecond beside each operation.

`support.stalls` says what a stall is, and what the machine's load explains of it.
"""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from barnabas.base.errors import BarnabasError
from barnabas.client.admin.topics import create_topic, delete_topics, describe_topics
from barnabas.client.cluster.admin_connection import AdminConnection
from barnabas.testing.processes import ProcessCluster
from barnabas.wire.kafka.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from barnabas.wire.kafka.messages.describe_groups import DescribeGroupsRequest
from barnabas.wire.kafka.messages.describe_log_dirs import DescribeLogDirsRequest
from barnabas.wire.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.wire.kafka.messages.find_coordinator import FindCoordinatorRequest
from barnabas.wire.kafka.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas.wire.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.wire.kafka.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.wire.kafka.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from barnabas.wire.kafka.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.wire.kafka.records.records import Record, build_batch
from support.knowing import topic_known
from support.promptness import stolen_s, waited_for_cpu_s
from support.raw import ask
from support.stalls import TIMEOUTS, one_broker
from support.waiting import eventually

pytestmark = [pytest.mark.fault]

PARTITIONS = int(os.environ.get("BARNABAS_PARTITIONS", "600"))
NAMES = int(os.environ.get("BARNABAS_NAMES", "5000"))
FAILOVER_S = 1.0


def test_no_large_operation_keeps_a_producer_waiting(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """A large topic made, described, used in single requests, deleted and purged;
    large requests."""
    indexes = range(PARTITIONS)
    batch = build_batch([Record(0, int(time.time() * 1000), None, b"x" * 100)])

    def find(port: int, group: str) -> None:
        eventually(lambda: ask(port, FindCoordinatorRequest(key=group, key_type=0), 2).error_code == 0)

    with one_broker(tmp_path) as (stalls, admin, port):
        stalls.during(
            f"create a topic of {PARTITIONS}",
            lambda: create_topic(admin, "large", partitions=PARTITIONS, replication_factor=1),
        )
        assert len(describe_topics(admin, ["large"])[0].partitions) == PARTITIONS
        stalls.during("its metadata", lambda: describe_topics(admin, ["large"]))
        produced = [PartitionProduceData(index=index, records=batch) for index in indexes]
        requests: list[tuple[str, Any, int]] = [
            (
                "produce to all of it",
                ProduceRequest(
                    transactional_id=None,
                    acks=1,
                    timeout_ms=30_000,
                    topic_data=[TopicProduceData(name="large", partition_data=produced)],
                ),
                9,
            ),
            (
                "fetch all of it",
                FetchRequest(
                    max_wait_ms=0,
                    min_bytes=1,
                    topics=[
                        FetchTopic(
                            topic="large",
                            partitions=[
                                FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1000)
                                for index in indexes
                            ],
                        )
                    ],
                ),
                11,
            ),
            (
                "list its offsets by time",
                ListOffsetsRequest(
                    replica_id=-1,
                    isolation_level=0,
                    topics=[
                        ListOffsetsTopic(
                            name="large",
                            partitions=[ListOffsetsPartition(partition_index=index, timestamp=1) for index in indexes],
                        )
                    ],
                ),
                7,
            ),
        ]
        for name, request, version in requests:
            stalls.during(name, lambda: ask(port, request, version))  # noqa: B023  # called at once
        find(port, "g")
        commits = [
            OffsetCommitRequestPartition(partition_index=index, committed_offset=1, committed_metadata="")
            for index in range(NAMES)
        ]
        commit = OffsetCommitRequest(
            group_id="g",
            generation_id_or_member_epoch=-1,
            member_id="",
            topics=[OffsetCommitRequestTopic(name="large", partitions=commits)],
        )
        stalls.during(f"an offset commit of {NAMES}", lambda: ask(port, commit, 6))
        groups = DescribeGroupsRequest(groups=[f"group-{index}" for index in range(NAMES)])
        stalls.during(f"DescribeGroups of {NAMES} names", lambda: ask(port, groups, 4))
        looked_for = min(NAMES, 10_000)  # more, of which none is there, are refused
        names = [MetadataRequestTopic(name=f"none-{index}") for index in range(looked_for)]
        metadata = MetadataRequest(topics=names, allow_auto_topic_creation=False)
        stalls.during(f"Metadata of {looked_for} names", lambda: ask(port, metadata, 9))
        offsets = OffsetFetchRequest(
            group_id="g", topics=[OffsetFetchRequestTopic(name="large", partition_indexes=list(range(NAMES)))]
        )
        stalls.during(f"an offset fetch of {NAMES}", lambda: ask(port, offsets, 5))
        stalls.during("describe all log dirs", lambda: ask(port, DescribeLogDirsRequest(topics=None), 2))
        deletions = [DeleteRecordsPartition(partition_index=index, offset=-1) for index in range(NAMES)]
        deletion = DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name="large", partitions=deletions)], timeout_ms=30_000
        )
        stalls.during(f"delete records of {NAMES}", lambda: ask(port, deletion, 2))
        stalls.during("delete the topic", lambda: delete_topics(admin, ["large"]))
        folder = stalls.cluster.log_dir(0)
        stalls.during(
            "purge it",
            lambda: eventually(lambda: not list(folder.glob("large-*")), timeout_s=120, what="the folders are gone"),
        )
    for number, row in enumerate(stalls.rows):
        record_property(f"{number:02}", row)
        print(row)
    assert stalls.late == []


def test_a_dead_controllers_leaders_move_within_a_second(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """Three brokers with many partitions each: the controller is killed, and every
    partition has another leader."""
    with ProcessCluster(3, data_dir=tmp_path) as cluster:
        with AdminConnection(cluster.bootstrap_servers, TIMEOUTS) as admin:
            create_topic(admin, "large", partitions=PARTITIONS, replication_factor=3)
            # The controller answers as soon as it knows the topic itself.
            topic_known(cluster.bootstrap_servers, "large", PARTITIONS)
            eventually(
                lambda: all(len(p.isr) == 3 for p in describe_topics(admin, ["large"])[0].partitions), timeout_s=120
            )
            dead = admin.describe_cluster().controller_id
            pids = [os.getpid(), *(pid for name, pid in cluster.pids.items() if name != str(dead))]
            servers = cluster.bootstrap_servers.split(",")
        others = ",".join(server for number, server in enumerate(servers) if number != dead)
        waited_s = sum(map(waited_for_cpu_s, pids)) + stolen_s()
        cluster.kill_broker(dead)
        began = time.monotonic()
        with AdminConnection(others, TIMEOUTS) as admin:

            def have_moved() -> bool:
                try:
                    partitions = describe_topics(admin, ["large"])[0].partitions
                except BarnabasError:
                    return False
                return len(partitions) == PARTITIONS and all(p.leader not in (None, dead) for p in partitions)

            eventually(have_moved, timeout_s=60, what="all leaders have moved")
        took_s = time.monotonic() - began
        load_s = sum(map(waited_for_cpu_s, pids)) + stolen_s() - waited_s
    record_property("failover", f"{PARTITIONS} partitions, RF 3: {took_s:.2f} s, load {load_s:.2f} s")
    print(f"{PARTITIONS} partitions, RF 3: leaders moved in {took_s:.2f} s, load {load_s:.2f} s")
    assert took_s <= FAILOVER_S + load_s
