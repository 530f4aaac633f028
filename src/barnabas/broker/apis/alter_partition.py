"""AlterPartition (key 56), versions 0 to 3.

Leaders report changes of their in-sync sets to the controller (KIP-497), which writes each change
under the partition epoch that it was based on.

- 1: the leader recovery state (KIP-704).
- 2: topic ids (KIP-841).
- 3: the broker epochs of the new in-sync set (KIP-903).

Rights: CLUSTER_ACTION.

Errors: CLUSTER_AUTHORIZATION_FAILED, NOT_CONTROLLER, STALE_BROKER_EPOCH,
UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID, FENCED_LEADER_EPOCH, INVALID_UPDATE_VERSION,
INVALID_REQUEST, INELIGIBLE_REPLICA.
"""

from collections.abc import Mapping
from typing import NamedTuple

from barnabas.base.ids import TopicPartition
from barnabas.broker.apis.api_handler import ApiHandler
from barnabas.broker.apis.later import LaterAnswers, reply_once
from barnabas.broker.cluster.steps import Steps
from barnabas.broker.cluster.znodes import LeaderAndIsr
from barnabas.broker.controller.isr_change import IsrChange
from barnabas.broker.controller.service import Controller
from barnabas.broker.requests.request import Request
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestTopicData,
    AlterPartitionResponse,
    AlterPartitionResponsePartitionData,
    AlterPartitionResponseTopicData,
)

__all__ = ["API"]

_IDS_FROM_VERSION = 2
_EPOCHS_FROM_VERSION = 3


class Parts(NamedTuple):
    """What the handler uses."""

    later: LaterAnswers
    controller: Controller


def _handle(parts: Parts, request: Request) -> None:
    if not parts.controller.is_active:
        request.fail(ErrorCode.NOT_CONTROLLER)
        return
    parts.later.answer(request, _alter(parts, request, request.message))


def _alter(parts: Parts, request: Request, message: AlterPartitionRequest) -> Steps[None]:
    yield from parts.controller.commands.await_failover()  # until then it knows no topic
    names = {topic_id: name for name, topic_id in parts.controller.context.topic_ids.items()}
    changes: list[IsrChange] = []
    asked: list[tuple[AlterPartitionRequestTopicData, str | None]] = []
    for topic in message.topics:
        name = names.get(topic.topic_id) if request.version >= _IDS_FROM_VERSION else topic.topic_name
        asked.append((topic, name))
        if name is None:
            continue
        for entry in topic.partitions:
            broker_epochs: tuple[int, ...] = ()
            if request.version >= _EPOCHS_FROM_VERSION:
                isr = tuple(member.broker_id for member in entry.new_isr_with_epochs)
                broker_epochs = tuple(member.broker_epoch for member in entry.new_isr_with_epochs)
            else:
                isr = tuple(entry.new_isr)
            changes.append(
                IsrChange(
                    TopicPartition(name, entry.partition_index),
                    entry.leader_epoch,
                    isr,
                    entry.leader_recovery_state,
                    entry.partition_epoch,
                    broker_epochs,
                )
            )
    answers = yield from parts.controller.commands.alter_partitions(message.broker_id, message.broker_epoch, changes)
    reply_once(request, AlterPartitionResponse(topics=[_answer(topic, name, answers) for topic, name in asked]))


def _answer(
    topic: AlterPartitionRequestTopicData,
    name: str | None,
    answers: Mapping[TopicPartition, LeaderAndIsr | ErrorCode],
) -> AlterPartitionResponseTopicData:
    partitions = []
    for entry in topic.partitions:
        answer: LeaderAndIsr | ErrorCode = ErrorCode.UNKNOWN_TOPIC_ID
        if name is not None:
            answer = answers[TopicPartition(name, entry.partition_index)]
        if isinstance(answer, ErrorCode):
            partitions.append(
                AlterPartitionResponsePartitionData(partition_index=entry.partition_index, error_code=answer)
            )
        else:
            partitions.append(
                AlterPartitionResponsePartitionData(
                    partition_index=entry.partition_index,
                    leader_id=answer.leader,
                    leader_epoch=answer.leader_epoch,
                    isr=list(answer.isr),
                    leader_recovery_state=answer.recovery_state,
                    partition_epoch=answer.version,
                )
            )
    return AlterPartitionResponseTopicData(topic_name=topic.topic_name, topic_id=topic.topic_id, partitions=partitions)


API = ApiHandler(
    ApiKey.ALTER_PARTITION,
    0,
    3,
    _handle,
    lambda services: Parts(services.later, services.controller),
    inter_broker=True,
)
