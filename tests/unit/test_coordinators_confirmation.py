"""A coordinator that may have been replaced does not answer from a memory that may be old."""

from pathlib import Path

import pytest

from barnabas.base.ids import TopicPartition
from barnabas.broker.cluster.channels import ChannelError
from barnabas.broker.cluster.steps import Ask
from barnabas.broker.coordinators.confirmation import LeadershipConfirmation
from barnabas.broker.metadata.internal_topics import OFFSETS_TOPIC
from barnabas.testing import VirtualCluster, simulate
from barnabas.wire.kafka.errors import ErrorCode, KafkaError
from barnabas.wire.kafka.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from barnabas.wire.kafka.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.wire.kafka.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from barnabas.wire.kafka.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from support.broker import DataPath

LED = TopicPartition(OFFSETS_TOPIC, 0)
GROUP, TOPIC = "kitchen", "orders"
SETTINGS = {"offsets.topic.replication.factor": "3", "offsets.topic.num.partitions": "1"}


def answer_of(code: ErrorCode) -> OffsetForLeaderEpochResponse:
    asked = EpochEndOffset(error_code=code, partition=0)
    return OffsetForLeaderEpochResponse(topics=[OffsetForLeaderTopicResult(topic=OFFSETS_TOPIC, partitions=[asked])])


def asked_while_confirming(
    broker: DataPath, answers: dict[int, ErrorCode | ChannelError]
) -> tuple[list[int], ErrorCode]:
    """Which brokers are asked, and how that ends."""
    confirmation = LeadershipConfirmation(0, broker.replicas, broker.metadata, lambda: False)
    asked: list[int] = []
    steps = confirmation.confirm(LED)
    outcome: OffsetForLeaderEpochResponse | ChannelError | None = None
    try:
        while True:
            step = steps.throw(outcome) if isinstance(outcome, ChannelError) else steps.send(outcome)
            assert isinstance(step, Ask)
            (wanted,) = step.request.topics[0].partitions
            assert (wanted.current_leader_epoch, wanted.leader_epoch) == (5, 4)
            asked.append(step.broker)
            answer = answers[step.broker]
            outcome = answer if isinstance(answer, ChannelError) else answer_of(answer)
    except StopIteration:
        return asked, ErrorCode.NONE
    except KafkaError as error:
        return asked, error.code


def test_leadership_is_confirmed_when_each_other_member_in_sync_knows_no_later_epoch(tmp_path: Path) -> None:
    """A replica outside of the in-sync set is not asked: it cannot be elected."""
    broker = DataPath(tmp_path)
    broker.lead(OFFSETS_TOPIC, epoch=4, replicas=(0, 1, 2, 3), isr=(0, 1, 3))
    code = ErrorCode.UNKNOWN_LEADER_EPOCH
    assert asked_while_confirming(broker, {1: code, 3: code}) == ([1, 3], ErrorCode.NONE)


@pytest.mark.parametrize(
    "answer",
    [
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ChannelError("Broker 1 is not known to be alive"),
    ],
)
def test_a_member_that_does_not_confirm_makes_the_coordinator_doubtful(
    tmp_path: Path, answer: ErrorCode | ChannelError
) -> None:
    """It knows a later epoch, leads, has no replica, or says nothing of use."""
    broker = DataPath(tmp_path)
    broker.lead(OFFSETS_TOPIC, epoch=4, replicas=(0, 1), isr=(0, 1))
    assert asked_while_confirming(broker, {1: answer}) == ([1], ErrorCode.NOT_COORDINATOR)


def test_a_lone_member_of_an_in_sync_set_needs_no_confirmation(tmp_path: Path) -> None:
    """Nobody else can be elected."""
    broker = DataPath(tmp_path)
    broker.lead(OFFSETS_TOPIC, epoch=4, replicas=(0, 1), isr=(0,))
    assert asked_while_confirming(broker, {}) == ([], ErrorCode.NONE)


def test_a_broker_that_does_not_lead_asks_nobody(tmp_path: Path) -> None:
    """Its coordinator says so itself."""
    assert asked_while_confirming(DataPath(tmp_path), {}) == ([], ErrorCode.NONE)


def _fetch() -> OffsetFetchRequest:
    return OffsetFetchRequest(group_id=GROUP, topics=[OffsetFetchRequestTopic(name=TOPIC, partition_indexes=[0])])


def _commit(offset: int) -> OffsetCommitRequest:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
    return OffsetCommitRequest(
        group_id=GROUP,
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=[partition])],
    )


async def _commit_to(cluster: VirtualCluster, broker_id: int, offset: int) -> None:
    code: ErrorCode | int = -1
    while code:
        response = await cluster._link().channels().send(broker_id, _commit(offset), version=7)
        code = response.topics[0].partitions[0].error_code


async def _coordinator(cluster: VirtualCluster, replicas: int = 3) -> int:
    """The broker that coordinates the group, with an offset committed."""
    await cluster.create_topic(TOPIC)
    await cluster._link().find_coordinator(0, GROUP)  # makes the topic of offsets
    await cluster.until(lambda: cluster.leader(OFFSETS_TOPIC) is not None)
    await cluster.until(lambda: len(cluster.in_sync(OFFSETS_TOPIC)) == replicas)
    coordinator = cluster.leader(OFFSETS_TOPIC)
    assert coordinator is not None
    await _commit_to(cluster, coordinator, 1)
    return coordinator


async def _fetched(cluster: VirtualCluster, broker_id: int) -> tuple[int, int]:
    response = await cluster._link().channels().send(broker_id, _fetch(), version=7)
    offsets = [partition.committed_offset for topic in response.topics for partition in topic.partitions]
    return response.error_code, offsets[0] if offsets else -1


def test_a_replaced_coordinator_that_has_lost_its_session_gives_no_offsets() -> None:
    """The next one may have committed others."""

    async def scenario(cluster: VirtualCluster) -> list[tuple[int, int]]:
        former = await _coordinator(cluster)
        before = await _fetched(cluster, former)
        cluster.partition({former}, {"zookeeper"})
        await cluster.until(lambda: cluster.leader(OFFSETS_TOPIC) not in (None, former))
        present = cluster.leader(OFFSETS_TOPIC)
        assert present is not None
        await _commit_to(cluster, present, 2)
        return [before, await _fetched(cluster, former), await _fetched(cluster, present)]

    assert simulate(scenario, brokers=3, settings=SETTINGS).value == [
        (ErrorCode.NONE, 1),
        (ErrorCode.NOT_COORDINATOR, -1),
        (ErrorCode.NONE, 2),
    ]


def test_a_replaced_coordinator_gives_no_old_offsets_before_it_is_registered_in_its_new_session() -> None:
    """It is connected again, and its registration is still that of the session that has ended."""

    async def scenario(cluster: VirtualCluster) -> set[tuple[int, int]]:
        former = await _coordinator(cluster)
        cluster.partition({former}, {"zookeeper"})
        await cluster.until(lambda: cluster.leader(OFFSETS_TOPIC) not in (None, former))
        present = cluster.leader(OFFSETS_TOPIC)
        assert present is not None
        await _commit_to(cluster, present, 2)
        cluster.heal()
        end_ms = cluster.now_ms() + 500
        seen = set()
        while cluster.now_ms() < end_ms:
            seen.add(await _fetched(cluster, former))
        return seen

    assert simulate(scenario, brokers=3, settings=SETTINGS, seed=1).value == {(ErrorCode.NOT_COORDINATOR, -1)}


def test_a_member_that_has_no_replica_any_more_does_not_confirm() -> None:
    """It was the leader meanwhile, and has handed over to brokers of which the former one knows
    nothing. Then it answers that it does not lead, as a follower does."""

    async def scenario(cluster: VirtualCluster) -> list[tuple[int, int]]:
        former = await _coordinator(cluster, replicas=2)
        cluster.partition({former}, {"zookeeper"})
        await cluster.until(lambda: cluster.leader(OFFSETS_TOPIC) not in (None, former))
        between = cluster.leader(OFFSETS_TOPIC)
        others = sorted(set(range(4)) - {former, between})
        moved = ReassignablePartition(partition_index=0, replicas=others)
        topic = ReassignableTopic(name=OFFSETS_TOPIC, partitions=[moved])
        channels = cluster._link().channels()
        code: int = -1
        while code:
            controller = cluster.controller
            assert controller is not None
            moving = await channels.send(controller, AlterPartitionReassignmentsRequest(topics=[topic]), version=0)
            code = moving.error_code
        await cluster.until(lambda: cluster.leader(OFFSETS_TOPIC) in others)
        await cluster.until(lambda: cluster.in_sync(OFFSETS_TOPIC) == others)
        present = cluster.leader(OFFSETS_TOPIC)
        assert present is not None
        await _commit_to(cluster, present, 2)
        now_ms = cluster.now_ms()
        await cluster.until(lambda: cluster.now_ms() > now_ms + 10_000)  # replicas are deleted
        return [await _fetched(cluster, former), await _fetched(cluster, present)]

    settings = {**SETTINGS, "offsets.topic.replication.factor": "2"}
    assert simulate(scenario, brokers=4, settings=settings).value == [
        (ErrorCode.NOT_COORDINATOR, -1),
        (ErrorCode.NONE, 2),
    ]


def test_groups_get_their_offsets_while_the_coordination_service_is_away_for_all() -> None:
    """The members in sync confirm that nobody else leads."""

    async def scenario(cluster: VirtualCluster) -> tuple[int, int]:
        coordinator = await _coordinator(cluster)
        cluster.kill("zookeeper")
        now_ms = cluster.now_ms()
        await cluster.until(lambda: cluster.now_ms() > now_ms + 30_000)
        return await _fetched(cluster, coordinator)

    assert simulate(scenario, brokers=3, settings=SETTINGS).value == (ErrorCode.NONE, 1)
