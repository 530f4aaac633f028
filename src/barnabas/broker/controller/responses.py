"""Reads brokers' responses to the controller's requests, and chooses the decision that follows.

Kafka's `LeaderAndIsrResponseReceived` and `TopicDeletionStopReplicaResponseReceived` events. Most
responses ask for nothing further.
"""

import logging
from collections.abc import Mapping
from functools import partial
from typing import Any

from barnabas.base.ids import TopicPartition, Uuid
from barnabas.broker.controller.broker_change import process_leader_and_isr_response
from barnabas.broker.controller.context import ControllerContext
from barnabas.broker.controller.event_queue import Decide
from barnabas.broker.controller.topic_change import process_stop_replica_response
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from barnabas.wire.kafka.messages.stop_replica import StopReplicaRequest, StopReplicaResponse

__all__ = ["decision_about", "deletion_errors", "role_errors"]

logger = logging.getLogger(__name__)

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


def decision_about(context: ControllerContext, broker: int, request: Any, response: Any) -> Decide | None:
    """The decision that follows a broker's response; None for nothing."""
    match request:
        case LeaderAndIsrRequest():
            if response.error_code:
                _report_refused(broker, "LeaderAndIsr", response.error_code)
                return None
            if _has_failures(response) or context.offline_dirs.get(broker):
                errors = role_errors(context.topic_ids, response)
                return partial(process_leader_and_isr_response, broker=broker, errors=errors)
        case StopReplicaRequest():
            errors = deletion_errors(request, response)
            if errors:
                return partial(process_stop_replica_response, broker=broker, errors=errors)
        case _ if response.error_code:
            _report_refused(broker, "UpdateMetadata", response.error_code)
    return None


def _has_failures(response: LeaderAndIsrResponse) -> bool:
    return any(entry.error_code for entry in response.partition_errors) or any(
        entry.error_code for topic in response.topics for entry in topic.partition_errors
    )


def _report_refused(broker: int, request: str, code: int) -> None:
    logger.error("Broker %d refused %s: %s", broker, request, ErrorCode(code).name)
