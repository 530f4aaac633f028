"""What brokers' answers to the controller's requests say of each partition."""

from collections.abc import Mapping
from typing import Any

from barnabas.base.ids import TopicPartition, Uuid
from barnabas.wire.kafka.messages.leader_and_isr import LeaderAndIsrResponse
from barnabas.wire.kafka.messages.stop_replica import StopReplicaRequest, StopReplicaResponse

__all__ = ["deletion_errors", "role_errors"]

Errors = dict[TopicPartition, int]
"""Error codes, 0 where all went well."""


def role_errors(topic_ids: Mapping[str, Uuid], response: LeaderAndIsrResponse) -> Errors:
    """For each partition named in LeaderAndIsr; by name before version 5, by topic id since."""
    names = {topic_id: topic for topic, topic_id in topic_ids.items()}
    errors = {TopicPartition(e.topic_name, e.partition_index): e.error_code for e in response.partition_errors}
    for topic in response.topics:
        name = names.get(topic.topic_id)
        if name is not None:  # else it was deleted meanwhile
            errors.update({TopicPartition(name, e.partition_index): e.error_code for e in topic.partition_errors})
    return errors


def deletion_errors(request: StopReplicaRequest, response: StopReplicaResponse) -> Errors:
    """For each partition that was to be deleted; those that only were to stop are left out."""
    deleted = {
        TopicPartition(topic.topic_name, entry.partition_index)
        for topic in request.topic_states
        for entry in topic.partition_states
        if entry.delete_partition
    }
    whole = response.error_code
    errors: dict[TopicPartition, Any] = dict.fromkeys(deleted, whole) if whole else {}
    for entry in response.partition_errors:
        topic_partition = TopicPartition(entry.topic_name, entry.partition_index)
        if topic_partition in deleted:
            errors[topic_partition] = whole or entry.error_code
    return errors
