"""Requests of brokers and controllers, forged, against a replicated cluster under load.

Who may send them is a matter of authorization; what is refused without it are requests of the past:
of a replaced controller, for or of an earlier life of a broker, of an earlier leader. The answers
are those of Apache Kafka 3.9. Requests of a controller that was never elected are refused as well.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from kazoo.client import KazooClient

from barnabas.base.ids import Uuid, uuid_from_text
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    BrokerState,
)
from barnabas.wire.kafka.messages.controlled_shutdown import ControlledShutdownRequest
from barnabas.wire.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.wire.kafka.messages.leader_and_isr import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from barnabas.wire.kafka.messages.stop_replica import (
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
)
from barnabas.wire.kafka.messages.update_metadata import UpdateMetadataRequest
from support.load import Load, assert_exactly_once_in_order, read_all
from support.raw import ask
from support.trio import BROKERS, Epochs, Trio, trio

pytestmark = [pytest.mark.interop, pytest.mark.fault]
TOPIC = "trial"
LEADER_AND_ISR_VERSION, STOP_REPLICA_VERSION, UPDATE_METADATA_VERSION = 7, 4, 8
ALTER_PARTITION_VERSION, SHUTDOWN_VERSION, FETCH_VERSION = 3, 3, 12
FAR = 1000


@dataclass
class Facts:
    """A cluster under load, and what a forger would have to know."""

    cluster: Trio
    epochs: Epochs
    zookeeper: KazooClient
    load: Load
    topic_id: Uuid

    @property
    def controller_epoch(self) -> int:
        return int(self.zookeeper.get("/controller_epoch")[0])

    def broker_epoch(self, number: int) -> int:
        return self.zookeeper.get(f"/brokers/ids/{number}")[1].czxid

    def state(self) -> dict[str, object]:
        """Of partition 0, as its znode has it now."""
        data, stat = self.zookeeper.get(f"/brokers/topics/{TOPIC}/partitions/0/state")
        return {**json.loads(data), "version": stat.version}

    def ask(self, number: int, message: object, version: int) -> object:
        return ask(self.cluster.brokers[number].port, message, version)


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Facts]:
    """All tests share the load; at the end nothing of it is lost or doubled and the
    replicas are equal."""
    # Tests compare states: no follower may leave the set because the machine is busy.
    with trio(tmp_path_factory.mktemp("forged"), {"replica.lag.time.max.ms": 30_000}) as cluster:
        cluster.create(TOPIC)
        epochs = Epochs(cluster, TOPIC)
        zookeeper = KazooClient(f"127.0.0.1:{cluster.zk_port}", timeout=30)
        cluster.at_end += [zookeeper.stop, zookeeper.close]
        zookeeper.start(60)
        topic_id = uuid_from_text(json.loads(zookeeper.get(f"/brokers/topics/{TOPIC}")[0])["topic_id"])
        load = Load(cluster.bootstrap, TOPIC)
        load.goes_on(500, "the load begins")
        yield Facts(cluster, epochs, zookeeper, load, topic_id)
        cluster.wait_until_in_sync(TOPIC)
        load.goes_on(500, "the load goes on after all")
        load.finish()
        assert load.failed == []
        assert_exactly_once_in_order(load, read_all(cluster.bootstrap, TOPIC), cluster.directory)
        cluster.wait_until_equal(TOPIC)
        assert epochs.faults == []


def roles(facts: Facts, *, controller_epoch: int, broker_epoch: int, leader_epoch: int) -> LeaderAndIsrRequest:
    """A forged request that takes the leadership of partition 0 from all brokers."""
    partition = LeaderAndIsrPartitionState(
        topic_name=TOPIC, partition_index=0, controller_epoch=controller_epoch, leader=-1, leader_epoch=leader_epoch,
        isr=[], partition_epoch=FAR, replicas=[0, 1, 2],
    )  # fmt: skip
    topic = LeaderAndIsrTopicState(topic_name=TOPIC, topic_id=facts.topic_id, partition_states=[partition])
    return LeaderAndIsrRequest(
        controller_id=0, controller_epoch=controller_epoch, broker_epoch=broker_epoch, topic_states=[topic]
    )


def deletion(*, controller_epoch: int, broker_epoch: int, leader_epoch: int) -> StopReplicaRequest:
    """A forged request that deletes partition 0."""
    partition = StopReplicaPartitionState(partition_index=0, leader_epoch=leader_epoch, delete_partition=True)
    return StopReplicaRequest(
        controller_id=0,
        controller_epoch=controller_epoch,
        broker_epoch=broker_epoch,
        topic_states=[StopReplicaTopicState(topic_name=TOPIC, partition_states=[partition])],
    )


@pytest.mark.parametrize("number", range(BROKERS))
def test_a_replaced_controller_is_refused(facts: Facts, number: int) -> None:
    """STALE_CONTROLLER_EPOCH for each of its requests; the roles stay, the log
    stays, the load goes on."""
    before = facts.state()
    past = {"controller_epoch": facts.controller_epoch - 1, "broker_epoch": facts.broker_epoch(number)}
    answer = facts.ask(number, roles(facts, **past, leader_epoch=FAR), LEADER_AND_ISR_VERSION)
    assert answer.error_code == ErrorCode.STALE_CONTROLLER_EPOCH
    answer = facts.ask(number, deletion(**past, leader_epoch=FAR), STOP_REPLICA_VERSION)
    assert answer.error_code == ErrorCode.STALE_CONTROLLER_EPOCH
    answer = facts.ask(number, UpdateMetadataRequest(controller_id=0, **past), UPDATE_METADATA_VERSION)
    assert answer.error_code == ErrorCode.STALE_CONTROLLER_EPOCH
    facts.load.goes_on(200, "the load goes on")
    assert facts.state() == before


@pytest.mark.parametrize("number", range(BROKERS))
def test_news_for_an_earlier_life_of_a_broker_is_refused(facts: Facts, number: int) -> None:
    """STALE_BROKER_EPOCH (KIP-380), whatever the controller's epoch."""
    before = facts.state()
    past = {"controller_epoch": facts.controller_epoch, "broker_epoch": facts.broker_epoch(number) - 1}
    answer = facts.ask(number, roles(facts, **past, leader_epoch=FAR), LEADER_AND_ISR_VERSION)
    assert answer.error_code == ErrorCode.STALE_BROKER_EPOCH
    answer = facts.ask(number, deletion(**past, leader_epoch=FAR), STOP_REPLICA_VERSION)
    assert answer.error_code == ErrorCode.STALE_BROKER_EPOCH
    answer = facts.ask(number, UpdateMetadataRequest(controller_id=0, **past), UPDATE_METADATA_VERSION)
    assert answer.error_code == ErrorCode.STALE_BROKER_EPOCH
    facts.load.goes_on(200, "the load goes on")
    assert facts.state() == before


def test_roles_and_deletions_of_an_earlier_leader_epoch_are_refused(facts: Facts) -> None:
    """Each partition is checked by itself: STALE_CONTROLLER_EPOCH for a role,
    FENCED_LEADER_EPOCH for a deletion."""
    state = facts.state()
    number = state["leader"]
    now = {"controller_epoch": facts.controller_epoch, "broker_epoch": facts.broker_epoch(number)}
    past = state["leader_epoch"] - 1
    answer = facts.ask(number, roles(facts, **now, leader_epoch=past), LEADER_AND_ISR_VERSION)
    assert answer.error_code == ErrorCode.NONE
    assert answer.topics[0].partition_errors[0].error_code == ErrorCode.STALE_CONTROLLER_EPOCH
    if past >= 0:  # -1 is of a controller that knows no epochs
        answer = facts.ask(number, deletion(**now, leader_epoch=past), STOP_REPLICA_VERSION)
        assert answer.partition_errors[0].error_code == ErrorCode.FENCED_LEADER_EPOCH
    facts.load.goes_on(200, "the load goes on")


def test_the_controller_refuses_changes_of_in_sync_sets_by_others_than_the_leader_of_now(facts: Facts) -> None:
    """A broker of the past, an earlier leader epoch, a state that never was: the set
    stays as it is."""
    state = facts.state()
    controller, leader = facts.epochs.controller(), state["leader"]

    def altered(*, broker_epoch: int, leader_epoch: int, partition_epoch: int) -> tuple[int, int]:
        entry = AlterPartitionRequestPartitionData(
            partition_index=0,
            leader_epoch=leader_epoch,
            partition_epoch=partition_epoch,
            new_isr_with_epochs=[BrokerState(broker_id=leader, broker_epoch=-1)],
        )
        topic = AlterPartitionRequestTopicData(topic_id=facts.topic_id, partitions=[entry])
        request = AlterPartitionRequest(broker_id=leader, broker_epoch=broker_epoch, topics=[topic])
        answer = facts.ask(controller, request, ALTER_PARTITION_VERSION)
        return answer.error_code, answer.topics[0].partitions[0].error_code if answer.topics else 0

    now = facts.broker_epoch(leader)
    known = {"leader_epoch": state["leader_epoch"], "partition_epoch": state["version"]}
    assert altered(broker_epoch=now - 1, **known) == (ErrorCode.STALE_BROKER_EPOCH, 0)
    past = {**known, "leader_epoch": state["leader_epoch"] - 1}
    assert altered(broker_epoch=now, **past) == (0, ErrorCode.FENCED_LEADER_EPOCH)
    never = {**known, "partition_epoch": state["version"] + FAR}
    assert altered(broker_epoch=now, **never) == (0, ErrorCode.NOT_CONTROLLER)
    assert facts.state() == state


def test_a_shutdown_asked_for_an_earlier_life_or_of_the_wrong_broker_moves_nothing(facts: Facts) -> None:
    """STALE_BROKER_EPOCH at the controller, NOT_CONTROLLER elsewhere."""
    before = facts.state()
    controller = facts.epochs.controller()
    victim = before["leader"]
    past = ControlledShutdownRequest(broker_id=victim, broker_epoch=facts.broker_epoch(victim) - 1)
    assert facts.ask(controller, past, SHUTDOWN_VERSION).error_code == ErrorCode.STALE_BROKER_EPOCH
    now = ControlledShutdownRequest(broker_id=victim, broker_epoch=facts.broker_epoch(victim))
    other = (controller + 1) % BROKERS
    assert facts.ask(other, now, SHUTDOWN_VERSION).error_code == ErrorCode.NOT_CONTROLLER
    assert facts.state() == before


@pytest.mark.parametrize(
    ("replica", "offset", "expected"),
    [
        (7, 0, (ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER)),
        ("follower", 2**40, (ErrorCode.OFFSET_OUT_OF_RANGE,)),
        ("follower", -5, (ErrorCode.OFFSET_OUT_OF_RANGE,)),
    ],
)
def test_fetches_in_a_replicas_name_from_where_no_replica_can_be_are_refused(
    facts: Facts, replica: object, offset: int, expected: tuple[ErrorCode, ...]
) -> None:
    """A broker that is none of the replicas, and offsets outside the log: no
    watermark moves by them."""
    state = facts.state()
    follower = next(number for number in range(BROKERS) if number != state["leader"])
    partition = FetchPartition(
        partition=0, current_leader_epoch=state["leader_epoch"], fetch_offset=offset, partition_max_bytes=1024
    )
    request = FetchRequest(
        replica_id=follower if replica == "follower" else replica,
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1024,
        session_epoch=-1,
        topics=[FetchTopic(topic=TOPIC, partitions=[partition])],
    )
    answer = facts.ask(state["leader"], request, FETCH_VERSION)
    assert answer.responses[0].partitions[0].error_code in expected
    facts.load.goes_on(200, "the load goes on")


@pytest.mark.parametrize("epoch", [1, 2**31 - 1], ids=["next", "last"])
def test_a_controller_that_was_never_elected_is_refused(facts: Facts, epoch: int) -> None:
    """Each of its requests costs it the connection; the real controller works on."""
    before = facts.state()
    for number in range(BROKERS):
        future = {
            "controller_epoch": max(epoch, facts.controller_epoch + 1),
            "broker_epoch": facts.broker_epoch(number),
        }
        for message, version in (
            (roles(facts, **future, leader_epoch=FAR), LEADER_AND_ISR_VERSION),
            (deletion(**future, leader_epoch=FAR), STOP_REPLICA_VERSION),
            (UpdateMetadataRequest(controller_id=7, **future), UPDATE_METADATA_VERSION),
        ):
            with pytest.raises(ConnectionError):
                facts.ask(number, message, version)
    assert facts.state() == before
    facts.load.goes_on(200, "the load goes on")
    # Each broker takes the roles and the metadata of the real controller.
    facts.cluster.create(f"after-{epoch}")
    facts.cluster.wait_until_in_sync(f"after-{epoch}")


def test_a_controller_that_is_elected_after_a_forged_one_is_obeyed(facts: Facts) -> None:
    """Its epoch is the one that was forged: by then the znode has it."""
    epoch = facts.controller_epoch + 1
    for number in range(BROKERS):
        forged = UpdateMetadataRequest(controller_id=7, controller_epoch=epoch, broker_epoch=facts.broker_epoch(number))
        with pytest.raises(ConnectionError):
            facts.ask(number, forged, UPDATE_METADATA_VERSION)
    controller = facts.epochs.controller()
    facts.cluster.brokers[controller].kill()
    facts.load.goes_on(500, "the load goes on with the others")
    facts.cluster.brokers[controller].start()
    facts.cluster.wait_until_in_sync(TOPIC)
    assert facts.controller_epoch >= epoch
    facts.load.goes_on(500, "the load goes on with all")
