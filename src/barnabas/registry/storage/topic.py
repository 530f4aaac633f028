"""The topic of the registry's records: created where it is missing, and checked where it is there.

It has one partition, because its order decides, and it is compacted and nothing else: a topic whose
records are deleted by age would lose schemas. One that is not is refused; it is never changed.

In Confluent's registry: `KafkaStore.createOrVerifySchemaTopic`.
"""

import logging
from collections.abc import Sequence

from barnabas.base.errors import ConfigError
from barnabas.client.admin.configurations import Resource, ResourceType, describe_configs
from barnabas.client.admin.topics import PartitionDescription, create_topic, describe_topics
from barnabas.client.cluster.admin_connection import AdminConnection
from barnabas.client.errors import UnknownTopicError
from barnabas.wire.kafka.errors import ErrorCode, KafkaError

__all__ = ["check_schemas_topic", "ensure_topic"]

logger = logging.getLogger(__name__)

_CLEANUP_POLICY = "cleanup.policy"


def ensure_topic(connection: AdminConnection, name: str, replication_factor: int) -> None:
    """Create the topic, with as many replicas as there are brokers at most, or check it.

    Raises `ConfigError` for one that does not fit, and `KafkaError`."""
    try:
        partitions = describe_topics(connection, [name])[0].partitions
    except UnknownTopicError:
        live = len(connection.describe_cluster(fresh=True).brokers)
        if live < replication_factor:
            logger.warning(
                "The topic %s is created with %d of %d replicas: there are no more brokers. "
                "For production, add brokers and raise its number of replicas.",
                name,
                live,
                replication_factor,
            )
        try:
            create_topic(
                connection,
                name,
                partitions=1,
                replication_factor=min(live, replication_factor),
                configs={_CLEANUP_POLICY: "compact"},
            )
            return
        except KafkaError as error:  # another instance may have been quicker
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
        partitions = describe_topics(connection, [name])[0].partitions
    entries = describe_configs(connection, [Resource(ResourceType.TOPIC, name)], names=[_CLEANUP_POLICY])
    policies = [entry.value or "" for found in entries.values() for entry in found if entry.name == _CLEANUP_POLICY]
    for warning in check_schemas_topic(name, partitions, policies, replication_factor):
        logger.warning("%s", warning)


def check_schemas_topic(
    name: str, partitions: Sequence[PartitionDescription], policies: Sequence[str], replication_factor: int
) -> list[str]:
    """What is to be said of a topic that can be used. Raises `ConfigError` for one that cannot."""
    if len(partitions) != 1:
        raise ConfigError(
            f"kafkastore.topic={name}: this topic has {len(partitions)} partitions, and the registry's has one, "
            "for the order of its records decides. Name another topic"
        )
    if policies != ["compact"]:
        raise ConfigError(
            f"kafkastore.topic={name}: its {_CLEANUP_POLICY} is {', '.join(policies) or 'not known'}, so schemas would "
            f"be deleted with its old records. Set it to compact: barnabas configs --alter --entity-type topics "
            f"--entity-name {name} --add-config {_CLEANUP_POLICY}=compact"
        )
    replicas = len(partitions[0].replicas)
    if replicas < replication_factor:
        return [f"The topic {name} has {replicas} replicas; {replication_factor} are wanted."]
    return []
