"""Administrative requests and those between brokers, for the matrix of rights.

What is allowed is only validated, or asks for what is so already, or is refused for another reason:
control requests come from a controller of an epoch that is over, and from brokers of a wrong epoch.
Topics that are deleted are made first.
"""

from collections.abc import Sequence
from typing import Any

from barnabas.security.acls import (
    CLUSTER_NAME,
    WILDCARD,
    AclOperation,
    AclPermissionType,
    ResourceType,
)
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.messages import alter_configs, describe_log_dirs, elect_leaders, incremental_alter_configs
from barnabas.wire.kafka.messages.allocate_producer_ids import AllocateProducerIdsRequest
from barnabas.wire.kafka.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    BrokerState,
)
from barnabas.wire.kafka.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from barnabas.wire.kafka.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from barnabas.wire.kafka.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from barnabas.wire.kafka.messages.api_versions import ApiVersionsRequest
from barnabas.wire.kafka.messages.controlled_shutdown import ControlledShutdownRequest
from barnabas.wire.kafka.messages.create_acls import AclCreation, CreateAclsRequest
from barnabas.wire.kafka.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from barnabas.wire.kafka.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.wire.kafka.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from barnabas.wire.kafka.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.wire.kafka.messages.describe_acls import DescribeAclsRequest
from barnabas.wire.kafka.messages.describe_cluster import DescribeClusterRequest
from barnabas.wire.kafka.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from barnabas.wire.kafka.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from barnabas.wire.kafka.messages.leader_and_isr import LeaderAndIsrRequest
from barnabas.wire.kafka.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from barnabas.wire.kafka.messages.stop_replica import StopReplicaRequest
from barnabas.wire.kafka.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from barnabas.wire.kafka.messages.update_metadata import UpdateMetadataRequest
from barnabas.wire.kafka.schema import Message
from support.acl_record_questions import GIVEN, NAMES, UNKNOWN_ID
from support.acl_rights import Question, cluster, topic
from support.acl_sides import ANY_ACL, TOPICS, Side

_TOPIC, _BROKER, _LOGGER = 2, 4, 8
"""Types of resources that have settings."""
OF_CAROL = {**ANY_ACL, "principal_filter": "User:carol"}
"""A filter for the entries of a user who has none."""
DELETED = ("doomed", "kept")
"""Topics to delete: with a right, and without."""
_LATE = {"controller_id": 0, "controller_epoch": 0}
"""Of a controller before the first one."""


# Topics


def validate_new_topics(side: Side, version: int) -> CreateTopicsRequest:
    topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in NAMES]
    return CreateTopicsRequest(topics=topics, timeout_ms=30_000, validate_only=True)


def validate_new_topics_by_the_cluster(side: Side, version: int) -> CreateTopicsRequest:
    return validate_new_topics(side, version)


def create_a_topic(side: Side, version: int) -> CreateTopicsRequest:
    topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in ("made", "hidden")]
    return CreateTopicsRequest(topics=topics, timeout_ms=30_000)


def delete_topics(side: Side, version: int) -> DeleteTopicsRequest:
    names = (*DELETED, "missing", "hidden")
    if version < 6:
        return DeleteTopicsRequest(topic_names=list(names), timeout_ms=30_000)
    return DeleteTopicsRequest(topics=[DeleteTopicState(name=name) for name in names], timeout_ms=30_000)


def delete_topics_by_id(side: Side, version: int) -> DeleteTopicsRequest:
    ids = [*map(side.topic_id, DELETED), UNKNOWN_ID]
    return DeleteTopicsRequest(topics=[DeleteTopicState(topic_id=each) for each in ids], timeout_ms=30_000)


def create_partitions(side: Side, version: int) -> CreatePartitionsRequest:
    topics = [CreatePartitionsTopic(name=name, count=3, assignments=None) for name in NAMES]
    return CreatePartitionsRequest(topics=topics, timeout_ms=30_000, validate_only=True)


def _have_no_made(side: Side) -> None:
    for name in ("made", "hidden"):
        side.have_no_topic(name)


def _have_deleted(side: Side) -> None:
    for name in DELETED:
        side.have_topic(name)


# Settings


def describe_configs(side: Side, version: int) -> DescribeConfigsRequest:
    named = [(_BROKER, "0"), (_BROKER, ""), (_LOGGER, "0"), *((_TOPIC, name) for name in NAMES)]
    return DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
            for kind, name in named
        ]
    )


def alter_configs_(side: Side, version: int) -> alter_configs.AlterConfigsRequest:
    setting = {_BROKER: "log.cleaner.threads", _TOPIC: "retention.ms"}
    named = [(_BROKER, "0"), (_BROKER, ""), *((_TOPIC, name) for name in NAMES)]
    resources = [
        alter_configs.AlterConfigsResource(
            resource_type=kind,
            resource_name=name,
            configs=[alter_configs.AlterableConfig(name=setting[kind], value="1")],
        )
        for kind, name in named
    ]
    return alter_configs.AlterConfigsRequest(resources=resources, validate_only=True)


def incrementally_alter_configs(side: Side, version: int) -> Message:
    setting = {_BROKER: "log.cleaner.threads", _TOPIC: "retention.ms", _LOGGER: "kafka"}
    named = [(_BROKER, "0"), (_BROKER, ""), (_LOGGER, "0"), *((_TOPIC, name) for name in NAMES)]
    resources = [
        incremental_alter_configs.AlterConfigsResource(
            resource_type=kind,
            resource_name=name,
            configs=[incremental_alter_configs.AlterableConfig(name=setting[kind], value=_value(kind))],
        )
        for kind, name in named
    ]
    return incremental_alter_configs.IncrementalAlterConfigsRequest(resources=resources, validate_only=True)


def _value(kind: int) -> str:
    return "INFO" if kind == _LOGGER else "1"


# Replicas


def elect_leaders_(side: Side, version: int) -> elect_leaders.ElectLeadersRequest:
    topics = [elect_leaders.TopicPartitions(topic=name, partitions=[0]) for name in NAMES]
    return elect_leaders.ElectLeadersRequest(topic_partitions=topics, timeout_ms=30_000)


def elect_all_leaders(side: Side, version: int) -> elect_leaders.ElectLeadersRequest:
    return elect_leaders.ElectLeadersRequest(topic_partitions=None, timeout_ms=30_000)


def cancel_reassignments(side: Side, version: int) -> AlterPartitionReassignmentsRequest:
    partitions = [ReassignablePartition(partition_index=0, replicas=None)]
    topics = [ReassignableTopic(name=name, partitions=partitions) for name in NAMES]
    return AlterPartitionReassignmentsRequest(topics=topics, timeout_ms=30_000)


def list_reassignments(side: Side, version: int) -> ListPartitionReassignmentsRequest:
    topics = [ListPartitionReassignmentsTopics(name=name, partition_indexes=[0]) for name in NAMES]
    return ListPartitionReassignmentsRequest(topics=topics, timeout_ms=30_000)


def move_between_log_dirs(side: Side, version: int) -> AlterReplicaLogDirsRequest:
    topics = [AlterReplicaLogDirTopic(name=name, partitions=[0]) for name in NAMES]
    return AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path="/no/such/log/dir", topics=topics)])


def describe_log_dirs_(side: Side, version: int) -> describe_log_dirs.DescribeLogDirsRequest:
    topics = [describe_log_dirs.DescribableLogDirTopic(topic=name, partitions=[0]) for name in NAMES]
    return describe_log_dirs.DescribeLogDirsRequest(topics=topics)


# Users, access control, features, the cluster


def describe_acls(side: Side, version: int) -> DescribeAclsRequest:
    return DescribeAclsRequest(**OF_CAROL)


def create_acls(side: Side, version: int) -> CreateAclsRequest:
    # Not valid: nothing is made.
    facts = {"principal": "User:carol", "host": WILDCARD, "operation": AclOperation.READ}
    names = [(ResourceType.CLUSTER, f"not-{CLUSTER_NAME}"), (ResourceType.TOPIC, ""), (ResourceType.TOPIC, "a/b")]
    creations = [
        AclCreation(resource_type=kind, resource_name=name, permission_type=AclPermissionType.ALLOW, **facts)
        for kind, name in names
    ]
    return CreateAclsRequest(creations=creations)


def delete_acls(side: Side, version: int) -> DeleteAclsRequest:
    return DeleteAclsRequest(filters=[DeleteAclsFilter(**OF_CAROL)] * 2)


def describe_scram_users(side: Side, version: int) -> DescribeUserScramCredentialsRequest:
    return DescribeUserScramCredentialsRequest(users=[UserName(name="carol")])


def describe_all_scram_users(side: Side, version: int) -> DescribeUserScramCredentialsRequest:
    # Apache's broker never answers a null list that is refused.
    return DescribeUserScramCredentialsRequest(users=[])


def alter_scram_users(side: Side, version: int) -> AlterUserScramCredentialsRequest:
    wrong = ScramCredentialUpsertion(name="dave", mechanism=1, iterations=1, salt=b"s", salted_password=b"p")
    deletion = ScramCredentialDeletion(name="carol", mechanism=1)
    return AlterUserScramCredentialsRequest(upsertions=[wrong], deletions=[deletion])


def update_features(side: Side, version: int) -> UpdateFeaturesRequest:
    return UpdateFeaturesRequest(feature_updates=[FeatureUpdateKey(feature="no.such.feature", max_version_level=1)])


def describe_the_cluster(side: Side, version: int) -> DescribeClusterRequest:
    return DescribeClusterRequest(include_cluster_authorized_operations=True)


def describe_the_cluster_without_operations(side: Side, version: int) -> DescribeClusterRequest:
    return DescribeClusterRequest()


def ask_for_versions(side: Side, version: int) -> ApiVersionsRequest:
    facts = {"client_software_name": "matrix", "client_software_version": "1"} if version >= 3 else {}
    return ApiVersionsRequest(**facts)


# Between brokers


def leader_and_isr(side: Side, version: int) -> LeaderAndIsrRequest:
    return LeaderAndIsrRequest(**_LATE)


def stop_replica(side: Side, version: int) -> StopReplicaRequest:
    return StopReplicaRequest(**_LATE)


def update_metadata(side: Side, version: int) -> UpdateMetadataRequest:
    return UpdateMetadataRequest(**_LATE)


def controlled_shutdown(side: Side, version: int) -> ControlledShutdownRequest:
    return ControlledShutdownRequest(broker_id=77)


def alter_partition(side: Side, version: int) -> AlterPartitionRequest:
    isr = {"new_isr": [77]} if version < 3 else {"new_isr_with_epochs": [BrokerState(broker_id=77)]}
    partition = AlterPartitionRequestPartitionData(partition_index=0, leader_epoch=0, **isr)
    topics = [
        AlterPartitionRequestTopicData(topic_name=name, topic_id=side.topic_id(name), partitions=[partition])
        for name in TOPICS
    ]
    return AlterPartitionRequest(broker_id=77, broker_epoch=5, topics=topics)


def allocate_producer_ids(side: Side, version: int) -> AllocateProducerIdsRequest:
    return AllocateProducerIdsRequest(broker_id=77, broker_epoch=5)


_CREATE, _DESCRIBE, _DELETE = AclOperation.CREATE, AclOperation.DESCRIBE, AclOperation.DELETE
_DESCRIBE_CONFIGS, _ALTER_CONFIGS = AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS
_SETTINGS = (topic(_ALTER_CONFIGS, *GIVEN), cluster(_ALTER_CONFIGS))
_CLUSTER_ALTER, _CLUSTER_DESCRIBE = (cluster(AclOperation.ALTER),), (cluster(_DESCRIBE),)
_ACTION = (cluster(AclOperation.CLUSTER_ACTION),)


def _each(rights: Sequence[Any], **questions: Any) -> list[Question]:
    return [Question(ApiKey[name], make, tuple(rights)) for name, make in questions.items()]


QUESTIONS = (
    Question(ApiKey.CREATE_TOPICS, validate_new_topics, (topic(_CREATE, *GIVEN), topic(_DESCRIBE_CONFIGS, *GIVEN))),
    Question(
        ApiKey.CREATE_TOPICS,
        validate_new_topics_by_the_cluster,
        (cluster(_CREATE), topic(_DESCRIBE_CONFIGS, *GIVEN)),
    ),
    Question(ApiKey.CREATE_TOPICS, create_a_topic, (topic(_CREATE, "made"),), first=5, prepare=_have_no_made),
    Question(ApiKey.DELETE_TOPICS, delete_topics, (topic(_DELETE, "doomed", "missing"),), prepare=_have_deleted),
    Question(ApiKey.DELETE_TOPICS, delete_topics_by_id, (topic(_DELETE, "doomed"),), first=6, prepare=_have_deleted),
    Question(ApiKey.DELETE_TOPICS, delete_topics_by_id, (topic(_DESCRIBE, "doomed"),), first=6, prepare=_have_deleted),
    Question(ApiKey.CREATE_PARTITIONS, create_partitions, (topic(AclOperation.ALTER, *GIVEN),)),
    Question(ApiKey.DESCRIBE_CONFIGS, describe_configs, (topic(_DESCRIBE_CONFIGS, *GIVEN), cluster(_DESCRIBE_CONFIGS))),
    Question(ApiKey.ALTER_CONFIGS, alter_configs_, _SETTINGS),
    Question(ApiKey.INCREMENTAL_ALTER_CONFIGS, incrementally_alter_configs, _SETTINGS),
    *_each(
        _CLUSTER_ALTER,
        ELECT_LEADERS=elect_leaders_,
        ALTER_PARTITION_REASSIGNMENTS=cancel_reassignments,
        ALTER_REPLICA_LOG_DIRS=move_between_log_dirs,
        CREATE_ACLS=create_acls,
        DELETE_ACLS=delete_acls,
        ALTER_USER_SCRAM_CREDENTIALS=alter_scram_users,
        UPDATE_FEATURES=update_features,
    ),
    Question(ApiKey.ELECT_LEADERS, elect_all_leaders, _CLUSTER_ALTER, first=1),
    *_each(
        _CLUSTER_DESCRIBE,
        LIST_PARTITION_REASSIGNMENTS=list_reassignments,
        DESCRIBE_LOG_DIRS=describe_log_dirs_,
        DESCRIBE_ACLS=describe_acls,
        DESCRIBE_USER_SCRAM_CREDENTIALS=describe_scram_users,
        DESCRIBE_CLUSTER=describe_the_cluster,
    ),
    Question(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, describe_all_scram_users, _CLUSTER_DESCRIBE),
    *_each(
        _ACTION,
        LEADER_AND_ISR=leader_and_isr,
        STOP_REPLICA=stop_replica,
        UPDATE_METADATA=update_metadata,
        CONTROLLED_SHUTDOWN=controlled_shutdown,
        ALTER_PARTITION=alter_partition,
        ALLOCATE_PRODUCER_IDS=allocate_producer_ids,
    ),
    *_each((), API_VERSIONS=ask_for_versions, DESCRIBE_CLUSTER=describe_the_cluster_without_operations),
)
