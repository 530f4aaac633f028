"""Well-formed requests of an attacker with a plain socket: lists as long as requests may be, in
every API that has them.

Beside each of them a producer sends one record each millisecond: no request may hold the event
loop (`support.stalls` says what of a stall is the machine's load), and the memory that it took
comes back, but for a little.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from barnabas.base.ids import Uuid
from barnabas.client.admin.topics import create_topic, describe_topics
from barnabas.wire.kafka.messages import (
    alter_configs,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    alter_user_scram_credentials,
    create_partitions,
    create_topics,
    delete_groups,
    delete_records,
    delete_topics,
    describe_configs,
    describe_log_dirs,
    describe_producers,
    describe_user_scram_credentials,
    elect_leaders,
    fetch,
    incremental_alter_configs,
    join_group,
    leave_group,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    sync_group,
)
from barnabas.wire.kafka.messages.find_coordinator import FindCoordinatorRequest
from support.long_requests import NAMES, LongRequests
from support.raw import ask
from support.stalls import one_broker
from support.waiting import eventually

pytestmark = [pytest.mark.fault]

TOPIC, BROKER = 2, 4
LOOKED_FOR = [f"none-{number}" for number in range(NAMES)]
INDEXES = list(range(NAMES))


def lists() -> dict[str, tuple[Any, int]]:
    """Large requests, with their versions."""
    log_dirs, reassignment = alter_replica_log_dirs, alter_partition_reassignments
    scram, epochs = alter_user_scram_credentials, offset_for_leader_epoch
    creatable = create_topics.CreatableTopic
    return {
        "CreateTopics, names that are not allowed": (
            create_topics.CreateTopicsRequest(
                topics=[creatable(name=f"%{name}", num_partitions=1, replication_factor=1) for name in LOOKED_FOR]
            ),
            7,
        ),
        "CreateTopics, validated only": (
            create_topics.CreateTopicsRequest(
                topics=[creatable(name=f"a_{name}", num_partitions=1, replication_factor=1) for name in LOOKED_FOR],
                validate_only=True,
            ),
            7,
        ),
        "CreateTopics, one name again and again": (
            create_topics.CreateTopicsRequest(
                topics=[creatable(name="again", num_partitions=1, replication_factor=1) for _ in LOOKED_FOR]
            ),
            7,
        ),
        "CreateTopics, 100,000 partitions": (
            create_topics.CreateTopicsRequest(
                topics=[creatable(name="wide", num_partitions=100_000, replication_factor=1)], validate_only=True
            ),
            7,
        ),
        "CreateTopics, 100,000 partitions in each topic": (
            create_topics.CreateTopicsRequest(
                topics=[
                    creatable(name=f"wide-{number}", num_partitions=100_000, replication_factor=1)
                    for number in range(100)
                ],
                validate_only=True,
            ),
            7,
        ),
        "CreateTopics, assignments to brokers that are not there": (
            create_topics.CreateTopicsRequest(
                topics=[
                    creatable(
                        name="assigned",
                        num_partitions=-1,
                        replication_factor=-1,
                        assignments=[
                            create_topics.CreatableReplicaAssignment(partition_index=number, broker_ids=[7])
                            for number in INDEXES[: NAMES // 2]
                        ],
                    )
                ],
                timeout_ms=1000,  # there will be no leaders: the answer comes then
            ),
            7,
        ),
        "CreateTopics, one partition with very many replicas": (
            create_topics.CreateTopicsRequest(
                topics=[
                    creatable(
                        name="crowded",
                        num_partitions=-1,
                        replication_factor=-1,
                        assignments=[create_topics.CreatableReplicaAssignment(partition_index=0, broker_ids=INDEXES)],
                    )
                ]
            ),
            7,
        ),
        "CreateTopics, very many settings": (
            create_topics.CreateTopicsRequest(
                topics=[
                    creatable(
                        name="set",
                        num_partitions=1,
                        replication_factor=1,
                        configs=[create_topics.CreatableTopicConfig(name=name, value="1") for name in LOOKED_FOR],
                    )
                ]
            ),
            7,
        ),
        "CreatePartitions, topics that are not there": (
            create_partitions.CreatePartitionsRequest(
                topics=[create_partitions.CreatePartitionsTopic(name=name, count=5) for name in LOOKED_FOR]
            ),
            3,
        ),
        "CreatePartitions, 99,000 more": (
            create_partitions.CreatePartitionsRequest(
                topics=[create_partitions.CreatePartitionsTopic(name="used", count=99_000)], validate_only=True
            ),
            3,
        ),
        "DeleteTopics": (
            delete_topics.DeleteTopicsRequest(
                topics=[delete_topics.DeleteTopicState(name=name) for name in LOOKED_FOR]
            ),
            6,
        ),
        "AlterConfigs, topics that are not there": (
            alter_configs.AlterConfigsRequest(
                resources=[
                    alter_configs.AlterConfigsResource(resource_type=TOPIC, resource_name=name, configs=[])
                    for name in LOOKED_FOR
                ]
            ),
            2,
        ),
        "AlterConfigs, one topic again and again": (
            alter_configs.AlterConfigsRequest(
                resources=[
                    alter_configs.AlterConfigsResource(
                        resource_type=TOPIC,
                        resource_name="used",
                        configs=[alter_configs.AlterableConfig(name="retention.ms", value="1000000000")],
                    )
                    for _ in INDEXES[: NAMES // 2]
                ],
                validate_only=True,
            ),
            2,
        ),
        "AlterConfigs, settings that are not there": (
            alter_configs.AlterConfigsRequest(
                resources=[
                    alter_configs.AlterConfigsResource(
                        resource_type=TOPIC,
                        resource_name="used",
                        configs=[alter_configs.AlterableConfig(name=name, value="1") for name in LOOKED_FOR],
                    )
                ]
            ),
            2,
        ),
        "IncrementalAlterConfigs, topics that are not there": (
            incremental_alter_configs.IncrementalAlterConfigsRequest(
                resources=[
                    incremental_alter_configs.AlterConfigsResource(resource_type=TOPIC, resource_name=name, configs=[])
                    for name in LOOKED_FOR
                ]
            ),
            1,
        ),
        "IncrementalAlterConfigs, a list that grows and grows": (
            incremental_alter_configs.IncrementalAlterConfigsRequest(
                resources=[
                    incremental_alter_configs.AlterConfigsResource(
                        resource_type=TOPIC,
                        resource_name="used",
                        configs=[
                            incremental_alter_configs.AlterableConfig(
                                name="leader.replication.throttled.replicas",
                                config_operation=2,
                                value=",".join(f"{number}:{at}" for at in range(10)),
                            )
                            for number in INDEXES
                        ],
                    )
                ]
            ),
            1,
        ),
        "DescribeConfigs, topics that are not there": (
            describe_configs.DescribeConfigsRequest(
                resources=[
                    describe_configs.DescribeConfigsResource(
                        resource_type=TOPIC, resource_name=name, configuration_keys=None
                    )
                    for name in LOOKED_FOR
                ]
            ),
            4,
        ),
        "DescribeConfigs, keys that are not there": (
            describe_configs.DescribeConfigsRequest(
                resources=[
                    describe_configs.DescribeConfigsResource(
                        resource_type=TOPIC, resource_name="used", configuration_keys=LOOKED_FOR
                    )
                ]
            ),
            4,
        ),
        "OffsetDelete": (
            offset_delete.OffsetDeleteRequest(
                group_id="g",
                topics=[
                    offset_delete.OffsetDeleteRequestTopic(
                        name="used",
                        partitions=[
                            offset_delete.OffsetDeleteRequestPartition(partition_index=number) for number in INDEXES
                        ],
                    )
                ],
            ),
            0,
        ),
        "OffsetFetch, all offsets of very many groups": (
            offset_fetch.OffsetFetchRequest(
                groups=[offset_fetch.OffsetFetchRequestGroup(group_id=name, topics=None) for name in LOOKED_FOR]
            ),
            8,
        ),
        "FindCoordinator": (FindCoordinatorRequest(coordinator_keys=LOOKED_FOR), 4),
        "FindCoordinator, transactional ids": (FindCoordinatorRequest(coordinator_keys=LOOKED_FOR, key_type=1), 4),
        "DescribeProducers": (
            describe_producers.DescribeProducersRequest(
                topics=[describe_producers.TopicRequest(name="used", partition_indexes=INDEXES)]
            ),
            0,
        ),
        "DescribeProducers, one partition again and again": (
            describe_producers.DescribeProducersRequest(
                topics=[describe_producers.TopicRequest(name="used", partition_indexes=[0] * NAMES)]
            ),
            0,
        ),
        "DescribeLogDirs, one partition again and again": (
            describe_log_dirs.DescribeLogDirsRequest(
                topics=[describe_log_dirs.DescribableLogDirTopic(topic="used", partitions=[0] * NAMES)]
            ),
            4,
        ),
        "ListOffsets, one partition again and again": (
            list_offsets.ListOffsetsRequest(
                replica_id=-1,
                topics=[
                    list_offsets.ListOffsetsTopic(
                        name="used",
                        partitions=[list_offsets.ListOffsetsPartition(partition_index=0, timestamp=1)] * NAMES,
                    )
                ],
            ),
            7,
        ),
        "ListOffsets, topics that are not there": (
            list_offsets.ListOffsetsRequest(
                replica_id=-1,
                topics=[list_offsets.ListOffsetsTopic(name=name, partitions=[]) for name in LOOKED_FOR],
            ),
            7,
        ),
        "OffsetForLeaderEpoch": (
            epochs.OffsetForLeaderEpochRequest(
                replica_id=-1,
                topics=[
                    epochs.OffsetForLeaderTopic(
                        topic="used",
                        partitions=[
                            epochs.OffsetForLeaderPartition(partition=number, leader_epoch=0) for number in INDEXES
                        ],
                    )
                ],
            ),
            4,
        ),
        "ElectLeaders": (
            elect_leaders.ElectLeadersRequest(
                election_type=0,
                topic_partitions=[elect_leaders.TopicPartitions(topic="used", partitions=INDEXES)],
            ),
            2,
        ),
        "AlterPartitionReassignments": (
            reassignment.AlterPartitionReassignmentsRequest(
                topics=[
                    reassignment.ReassignableTopic(
                        name="used",
                        partitions=[
                            reassignment.ReassignablePartition(partition_index=number, replicas=[number])
                            for number in INDEXES[: NAMES // 2]
                        ],
                    )
                ]
            ),
            0,
        ),
        "AlterPartitionReassignments, cancelled": (
            reassignment.AlterPartitionReassignmentsRequest(
                topics=[
                    reassignment.ReassignableTopic(
                        name=name,
                        partitions=[reassignment.ReassignablePartition(partition_index=0, replicas=None)],
                    )
                    for name in LOOKED_FOR[: NAMES // 2]
                ]
            ),
            0,
        ),
        "ListPartitionReassignments": (
            list_partition_reassignments.ListPartitionReassignmentsRequest(
                topics=[
                    list_partition_reassignments.ListPartitionReassignmentsTopics(
                        name="used", partition_indexes=INDEXES
                    )
                ]
            ),
            0,
        ),
        "AlterReplicaLogDirs": (
            log_dirs.AlterReplicaLogDirsRequest(
                dirs=[
                    log_dirs.AlterReplicaLogDir(
                        path="/nowhere",
                        topics=[log_dirs.AlterReplicaLogDirTopic(name="used", partitions=INDEXES)],
                    )
                ]
            ),
            2,
        ),
        "AlterUserScramCredentials": (
            scram.AlterUserScramCredentialsRequest(
                deletions=[scram.ScramCredentialDeletion(name=name, mechanism=1) for name in LOOKED_FOR[: NAMES // 10]],
                upsertions=[],
            ),
            0,
        ),
        "DescribeUserScramCredentials": (
            describe_user_scram_credentials.DescribeUserScramCredentialsRequest(
                users=[describe_user_scram_credentials.UserName(name=name) for name in LOOKED_FOR]
            ),
            0,
        ),
        "ListGroups": (list_groups.ListGroupsRequest(states_filter=LOOKED_FOR), 4),
        "DeleteGroups": (delete_groups.DeleteGroupsRequest(groups_names=LOOKED_FOR), 2),
        "LeaveGroup": (
            leave_group.LeaveGroupRequest(
                group_id="g", members=[leave_group.MemberIdentity(member_id=name) for name in LOOKED_FOR]
            ),
            4,
        ),
        "SyncGroup": (
            sync_group.SyncGroupRequest(
                group_id="g",
                generation_id=1,
                member_id="m",
                assignments=[
                    sync_group.SyncGroupRequestAssignment(member_id=name, assignment=b"") for name in LOOKED_FOR
                ],
            ),
            3,
        ),
        "JoinGroup": (
            join_group.JoinGroupRequest(
                group_id="g",
                session_timeout_ms=10_000,
                member_id="",
                protocol_type="consumer",
                protocols=[join_group.JoinGroupRequestProtocol(name=name, metadata=b"") for name in LOOKED_FOR],
            ),
            5,
        ),
        "a group id of 30,000 characters": (FindCoordinatorRequest(key="g" * 30_000, key_type=0), 2),
    }


def topics_without_partitions() -> dict[str, tuple[Any, int]]:
    """Requests whose topics have empty lists, so that what is done for each
    partition is done for none."""
    ids = [Uuid(number.to_bytes(16, "big")) for number in range(1, NAMES + 1)]
    commit, fetched = offset_commit.OffsetCommitRequestTopic, fetch.FetchTopic
    return {
        "Produce of topics without partitions": (
            produce.ProduceRequest(
                acks=1, timeout_ms=1000, topic_data=[produce.TopicProduceData(topic_id=each) for each in ids]
            ),
            13,
        ),
        "Fetch of topics without partitions": (
            fetch.FetchRequest(max_wait_ms=0, min_bytes=0, topics=[fetched(topic_id=each) for each in ids]),
            17,
        ),
        "Metadata by topic ids": (
            metadata.MetadataRequest(
                topics=[metadata.MetadataRequestTopic(topic_id=each, name=None) for each in ids],
                allow_auto_topic_creation=False,
            ),
            12,
        ),
        "OffsetCommit of topics without partitions": (
            offset_commit.OffsetCommitRequest(group_id="g", topics=[commit(topic_id=each) for each in ids]),
            10,
        ),
        "OffsetDelete of topics without partitions": (
            offset_delete.OffsetDeleteRequest(
                group_id="g", topics=[offset_delete.OffsetDeleteRequestTopic(name=name) for name in LOOKED_FOR]
            ),
            0,
        ),
        "ListOffsets of topics without partitions": (
            list_offsets.ListOffsetsRequest(
                replica_id=-1, topics=[list_offsets.ListOffsetsTopic(name=name) for name in LOOKED_FOR]
            ),
            7,
        ),
        "DeleteRecords of topics without partitions": (
            delete_records.DeleteRecordsRequest(
                timeout_ms=1000, topics=[delete_records.DeleteRecordsTopic(name=name) for name in LOOKED_FOR]
            ),
            2,
        ),
        "OffsetForLeaderEpoch of topics without partitions": (
            offset_for_leader_epoch.OffsetForLeaderEpochRequest(
                replica_id=-1, topics=[offset_for_leader_epoch.OffsetForLeaderTopic(topic=name) for name in LOOKED_FOR]
            ),
            4,
        ),
        "DescribeProducers of topics without partitions": (
            describe_producers.DescribeProducersRequest(
                topics=[describe_producers.TopicRequest(name=name) for name in LOOKED_FOR]
            ),
            0,
        ),
    }


def test_requests_with_the_longest_lists_do_not_stall_a_broker(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """Each API with a list gets one as long as can be: of what is not there, and of
    one thing again and again."""
    with one_broker(tmp_path) as (stalls, admin, port):
        create_topic(admin, "used", partitions=3, replication_factor=1)
        eventually(lambda: ask(port, FindCoordinatorRequest(key="g", key_type=0), 2).error_code == 0)
        requests = LongRequests(stalls, port)
        for name, (message, version) in (lists() | topics_without_partitions()).items():
            requests.send(name, message, version)
        assert len(describe_topics(admin, ["used"])[0].partitions) == 3
        for number, row in enumerate(stalls.rows):
            record_property(f"{number:02}", row)
        assert stalls.late == []
        assert requests.kept == []
