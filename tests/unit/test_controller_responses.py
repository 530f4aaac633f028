"""What follows from brokers' responses to the controller's requests."""

from typing import Any

import pytest

from barnabas.base.ids import TopicPartition, Uuid
from barnabas.broker.controller.context import ControllerContext
from barnabas.broker.controller.responses import decision_about, deletion_errors, role_errors
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.messages.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
)
from barnabas.wire.kafka.messages.stop_replica import (
    StopReplicaPartitionError,
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaResponse,
    StopReplicaTopicState,
)
from barnabas.wire.kafka.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse

TOPIC_ID = Uuid(bytes(range(16)))
P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


def context() -> ControllerContext:
    return ControllerContext(0, topic_ids={"t": TOPIC_ID})


def roles(code: int) -> LeaderAndIsrResponse:
    errors = [
        LeaderAndIsrPartitionError(partition_index=0, error_code=code),
        LeaderAndIsrPartitionError(partition_index=1),
    ]
    return LeaderAndIsrResponse(topics=[LeaderAndIsrTopicError(topic_id=TOPIC_ID, partition_errors=errors)])


def stop(*delete: bool) -> StopReplicaRequest:
    states = [StopReplicaPartitionState(partition_index=n, delete_partition=each) for n, each in enumerate(delete)]
    return StopReplicaRequest(topic_states=[StopReplicaTopicState(topic_name="t", partition_states=states)])


def test_roles_that_were_taken_ask_for_nothing_further() -> None:
    """Unless replicas of the broker were on failed log dirs before, and may be back."""
    assert decision_about(context(), 1, LeaderAndIsrRequest(), roles(ErrorCode.NONE)) is None
    known = context()
    known.offline_dirs[1] = {P0}
    assert decision_about(known, 1, LeaderAndIsrRequest(), roles(ErrorCode.NONE)) is not None


def test_a_replica_on_a_failed_log_dir_is_decided_about() -> None:
    """By topic id, which the response carries since version 5; a topic that was
    deleted meanwhile is left out."""
    assert decision_about(context(), 1, LeaderAndIsrRequest(), roles(ErrorCode.KAFKA_STORAGE_ERROR)) is not None
    assert role_errors({"t": TOPIC_ID}, roles(56)) == {P0: 56, P1: 0}
    assert role_errors({}, roles(56)) == {}


def test_only_deletions_count_in_a_response_to_stop_replica() -> None:
    """A replica that only had to stop is of no further interest; a refused request
    failed for each deletion."""
    response = StopReplicaResponse(
        partition_errors=[StopReplicaPartitionError(topic_name="t", partition_index=n) for n in range(2)]
    )
    assert decision_about(context(), 1, stop(False, False), response) is None
    assert decision_about(context(), 1, stop(True, False), response) is not None
    assert deletion_errors(stop(True, False), response) == {P0: 0}
    assert deletion_errors(stop(True, True), StopReplicaResponse(error_code=11)) == {P0: 11, P1: 11}


@pytest.mark.parametrize(
    ("request_", "response"),
    [
        (LeaderAndIsrRequest(), LeaderAndIsrResponse(error_code=ErrorCode.STALE_CONTROLLER_EPOCH)),
        (UpdateMetadataRequest(), UpdateMetadataResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)),
    ],
)
def test_a_refused_request_is_reported(request_: Any, response: Any, caplog: pytest.LogCaptureFixture) -> None:
    """The broker knows a later controller, or has another epoch: nothing is decided from that."""
    assert decision_about(context(), 7, request_, response) is None
    assert "Broker 7 refused" in caplog.text
    assert decision_about(context(), 7, UpdateMetadataRequest(), UpdateMetadataResponse()) is None
