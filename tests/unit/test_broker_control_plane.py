"""LeaderAndIsr, StopReplica and UpdateMetadata: epochs, roles, deletion; and what
dispatch does with bad requests."""

import gc
import logging
import weakref
from pathlib import Path
from typing import Any

import pytest

from barnabas.base.ids import TopicPartition, Uuid
from barnabas.base.tasks import Task
from barnabas.broker.apis.control_requests import ControlRequests
from barnabas.broker.cluster.steps import Pause, Steps
from barnabas.broker.cluster.znodes import CONTROLLER_EPOCH
from barnabas.broker.replication.partition import Follower, FollowerProgress, Leader, Partition
from barnabas.broker.requests.request import Request
from barnabas.wire.jute.errors import ErrorCode as Keeper
from barnabas.wire.jute.errors import KeeperError
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.messages.api_versions import ApiVersionsRequest
from barnabas.wire.kafka.messages.leader_and_isr import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from barnabas.wire.kafka.messages.metadata import MetadataRequest
from barnabas.wire.kafka.messages.stop_replica import (
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
)
from barnabas.wire.kafka.messages.update_metadata import UpdateMetadataRequest
from support.broker import DataPath, Wire, batch

T0 = TopicPartition("t", 0)
TOPIC_ID = Uuid(bytes(range(16)))


@pytest.fixture
def broker(tmp_path: Path) -> DataPath:
    return DataPath(tmp_path)


def leader_and_isr(
    wire: Wire,
    leader_epoch: int,
    *,
    leader: int = 0,
    replicas: tuple[int, ...] = (0, 1),
    controller_epoch: int = 1,
    broker_epoch: int = -1,
    topic_id: Uuid = TOPIC_ID,
    version: int = 7,
) -> ErrorCode:
    state = LeaderAndIsrPartitionState(
        partition_index=0,
        controller_epoch=controller_epoch,
        leader=leader,
        leader_epoch=leader_epoch,
        isr=list(replicas),
        partition_epoch=leader_epoch,
        replicas=list(replicas),
    )
    request = LeaderAndIsrRequest(
        controller_id=0,
        controller_epoch=controller_epoch,
        broker_epoch=broker_epoch,
        topic_states=[LeaderAndIsrTopicState(topic_name="t", topic_id=topic_id, partition_states=[state])],
    )
    response = wire.ask(request, version)
    if response.error_code:
        return ErrorCode(response.error_code)
    errors = response.partition_errors or response.topics[0].partition_errors
    return ErrorCode(errors[0].error_code)


def stop_replica(wire: Wire, leader_epoch: int, *, delete: bool, controller_epoch: int = 1) -> ErrorCode:
    state = StopReplicaPartitionState(partition_index=0, leader_epoch=leader_epoch, delete_partition=delete)
    request = StopReplicaRequest(
        controller_id=0,
        controller_epoch=controller_epoch,
        topic_states=[StopReplicaTopicState(topic_name="t", partition_states=[state])],
    )
    response = wire.ask(request, 4)
    return ErrorCode(response.error_code or response.partition_errors[0].error_code)


def test_roles_follow_rising_leader_epochs(broker: DataPath) -> None:
    """A later epoch changes the role; the same or an earlier one is old news."""
    wire = broker.connect()
    assert leader_and_isr(wire, 0) is ErrorCode.NONE
    partition = broker.replicas.partition(T0)
    assert isinstance(partition.role, Leader)
    assert leader_and_isr(wire, 0) is ErrorCode.STALE_CONTROLLER_EPOCH
    assert leader_and_isr(wire, 2, leader=1) is ErrorCode.NONE
    assert isinstance(partition.role, Follower)
    assert leader_and_isr(wire, 1) is ErrorCode.STALE_CONTROLLER_EPOCH
    assert partition.leader_id == 1


@pytest.mark.parametrize("version", [2, 4, 5, 7])
def test_versions_answer_by_name_or_by_topic_id(broker: DataPath, version: int) -> None:
    """From 5 on by topic id."""
    assert leader_and_isr(broker.connect(), 0, version=version) is ErrorCode.NONE


def test_an_old_controller_and_news_for_an_earlier_life_are_refused(broker: DataPath) -> None:
    """Neither may change anything."""
    wire = broker.connect()
    broker.broker_epoch = 50
    assert leader_and_isr(wire, 0, controller_epoch=5, broker_epoch=50) is ErrorCode.NONE
    assert leader_and_isr(wire, 1, controller_epoch=4, broker_epoch=50) is ErrorCode.STALE_CONTROLLER_EPOCH
    assert leader_and_isr(wire, 1, controller_epoch=5, broker_epoch=49) is ErrorCode.STALE_BROKER_EPOCH
    assert stop_replica(wire, 9, delete=True, controller_epoch=4) is ErrorCode.STALE_CONTROLLER_EPOCH
    update = UpdateMetadataRequest(controller_id=0, controller_epoch=4, broker_epoch=50)
    assert wire.ask(update, 8).error_code == ErrorCode.STALE_CONTROLLER_EPOCH
    assert broker.replicas.partition(T0).leader_epoch == 0


def update(controller_epoch: int) -> UpdateMetadataRequest:
    return UpdateMetadataRequest(controller_id=0, controller_epoch=controller_epoch, broker_epoch=-1)


def forged(controller_epoch: int) -> list[tuple[Any, int]]:
    """A request of each kind, with its version."""
    epochs = {"controller_id": 7, "controller_epoch": controller_epoch, "broker_epoch": -1}
    return [(LeaderAndIsrRequest(**epochs), 7), (StopReplicaRequest(**epochs), 4), (UpdateMetadataRequest(**epochs), 8)]


@pytest.mark.parametrize("kind", range(3))
def test_an_epoch_to_which_no_controller_was_elected_changes_nothing(broker: DataPath, kind: int) -> None:
    """Its connection is closed: a real controller would ask again. The real one is obeyed."""
    broker.znodes.put(CONTROLLER_EPOCH, b"5")
    wire = broker.connect()
    assert leader_and_isr(wire, 0, controller_epoch=5) is ErrorCode.NONE
    for epoch in (6, 2**31 - 1):
        forger = broker.connect()
        message, version = forged(epoch)[kind]
        forger.post(message, version)
        assert (forger.is_closed, forger.sent) == (True, [])
    assert broker.replicas.controller_epoch == 5
    assert broker.metadata.controller_id != 7
    assert leader_and_isr(wire, 1, controller_epoch=5) is ErrorCode.NONE


@pytest.mark.parametrize("data", [None, b"", b"five"])
def test_an_epoch_is_not_accepted_where_the_znode_has_none(broker: DataPath, data: bytes | None) -> None:
    """No znode, and one that cannot be read as a number."""
    broker.znodes.put(CONTROLLER_EPOCH, data)
    if data is None:
        broker.znodes.remove(CONTROLLER_EPOCH)
    wire = broker.connect()
    wire.post(update(1), 8)
    assert (wire.is_closed, wire.sent, broker.replicas.controller_epoch) == (True, [], -1)


def test_an_epoch_is_not_accepted_where_coordination_fails(broker: DataPath) -> None:
    """The controller sends it again over another connection, and is obeyed then."""
    perform = broker.perform

    def fail(steps: Steps[None]) -> None:
        next(steps)
        assert steps.throw(KeeperError(Keeper.SESSION_EXPIRED, CONTROLLER_EPOCH)) == Pause(100)
        with pytest.raises(StopIteration):
            steps.send(None)

    broker.perform = fail
    wire = broker.connect()
    wire.post(update(1), 8)
    assert (wire.is_closed, wire.sent, broker.replicas.controller_epoch) == (True, [], -1)
    broker.perform = perform
    assert broker.connect().ask(update(1), 8).error_code == ErrorCode.NONE
    assert broker.replicas.controller_epoch == 1


def test_each_new_controller_costs_one_reading(broker: DataPath) -> None:
    """However many requests it sends, and also while others send older ones."""
    read: list[Steps[None]] = []
    broker.perform = lambda steps: (read.append(steps), broker.znodes.perform(steps))
    wire = broker.connect()
    for epoch in (3, 3, 9, 9, 8, 9):
        broker.znodes.put(CONTROLLER_EPOCH, b"%d" % epoch)
        wire.ask(update(epoch), 8)
    assert len(read) == 2


def test_a_controller_is_obeyed_while_the_epoch_of_the_next_is_read(broker: DataPath) -> None:
    """A forged epoch does not hold it up where coordination is away."""
    real, forger = broker.connect(), broker.connect()
    assert leader_and_isr(real, 0, controller_epoch=9) is ErrorCode.NONE
    waiting: list[Steps[None]] = []
    broker.perform = waiting.append
    forger.post(update(10), 8)
    assert leader_and_isr(real, 1, controller_epoch=9) is ErrorCode.NONE
    assert (forger.is_closed, forger.sent) == (False, [])
    broker.znodes.perform(waiting.pop())
    assert forger.is_closed


def test_requests_that_wait_for_an_epoch_are_served_in_their_order(broker: DataPath) -> None:
    """Those of a sender that is gone are not, because it may have sent them again."""
    waiting: list[Steps[None]] = []
    broker.perform = waiting.append
    wires = [broker.connect() for _ in range(4)]
    for number, wire in enumerate(wires):
        wire.post(UpdateMetadataRequest(controller_id=number, controller_epoch=2, broker_epoch=-1), 8)
    wires[3].close()
    (steps,) = waiting
    broker.znodes.perform(steps)
    assert [wire.answer().error_code for wire in wires[:3]] == [ErrorCode.NONE] * 3
    assert (wires[3].sent, broker.metadata.controller_id) == ([], 2)


def test_what_waits_for_an_epoch_is_freed_when_its_sender_has_gone_and_another_one_comes(
    broker: DataPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each attempt of a controller would stay in memory while coordination is away."""
    waiting: list[Steps[None]] = []
    broker.perform = waiting.append
    served: list[weakref.ref[Any]] = []
    serve = ControlRequests.serve

    def noted(self: ControlRequests, request: Request, work: Task[None]) -> None:
        served.append(weakref.ref(work))
        serve(self, request, work)

    monkeypatch.setattr(ControlRequests, "serve", noted)
    for _ in range(3):
        wire = broker.connect()
        wire.post(update(2), 8)
        wire.close()
    last = broker.connect()
    last.post(update(2), 8)
    gc.collect()
    assert [each() is not None for each in served] == [False, False, False, True]
    (steps,) = waiting
    broker.znodes.perform(steps)
    assert last.answer().error_code == ErrorCode.NONE


def test_what_waits_for_an_epoch_is_freed_when_its_sender_waits_no_longer(broker: DataPath) -> None:
    """This broker's own controller has no connection that ends; it sends the request again."""
    waiting: list[Steps[None]] = []
    broker.perform = waiting.append
    answers: list[tuple[int, Any]] = []
    for number in range(4):
        broker.dispatcher.call(
            ApiKey.UPDATE_METADATA, update(2), lambda answer, number=number: answers.append((number, answer))
        )
        broker.timers.advance(broker.config["request.timeout.ms"] // 2 + 1)
    assert answers == [(0, None), (1, None)]
    (steps,) = waiting
    broker.znodes.perform(steps)
    assert [(number, answer and answer.error_code) for number, answer in answers[2:]] == [
        (2, None),
        (3, ErrorCode.NONE),
    ]


def test_many_forged_epochs_cost_a_few_lines_and_readings(broker: DataPath, caplog: pytest.LogCaptureFixture) -> None:
    """What comes within a moment after a refusal is read for together; lines are summed up."""
    readings: list[Steps[None]] = []
    broker.perform = readings.append
    with caplog.at_level(logging.WARNING, "barnabas.broker.apis.control_requests"):
        broker.connect().post(update(10), 8)
        (steps,) = readings
        pause = steps.send(broker.znodes.outcome(next(steps)))
        assert pause == Pause(100)
        forgers = [broker.connect() for _ in range(50)]
        for number, forger in enumerate(forgers):
            forger.post(update(10 + number % 2), 8)
        assert not any(forger.is_closed for forger in forgers)
        reading = steps.send(None)
        assert steps.send(broker.znodes.outcome(reading)) == Pause(100)
        assert all(forger.is_closed for forger in forgers)
        with pytest.raises(StopIteration):
            steps.send(None)
        assert readings == [steps]
        broker.timers.advance(60_000)
    assert [record.getMessage() for record in caplog.records] == [
        "UPDATE_METADATA of controller epoch 10 from 127.0.0.1 is refused: /controller_epoch is at most 9",
        "UPDATE_METADATA of controller epoch 11 from 127.0.0.1 is refused: /controller_epoch is at most 9",
        "UPDATE_METADATA of controller epoch 10 from 127.0.0.1 is refused: /controller_epoch is at most 9, "
        "again 25 times within 60 s",
        "UPDATE_METADATA of controller epoch 11 from 127.0.0.1 is refused: /controller_epoch is at most 9, "
        "again 24 times within 60 s",
    ]


def test_what_comes_while_an_epoch_is_read_waits_for_another_reading(broker: DataPath) -> None:
    """The first may have been before the election."""
    waiting: list[Steps[None]] = []
    broker.perform = waiting.append
    first, second = broker.connect(), broker.connect()
    first.post(update(9), 8)
    (steps,) = waiting
    reading = next(steps)
    second.post(update(10), 8)
    outcome = broker.znodes.outcome(reading)
    broker.znodes.put(CONTROLLER_EPOCH, b"10")
    again = steps.send(outcome)
    assert (first.answer().error_code, second.sent, second.is_closed) == (ErrorCode.NONE, [], False)
    with pytest.raises(StopIteration):
        steps.send(broker.znodes.outcome(again))
    assert second.answer().error_code == ErrorCode.NONE


def test_another_topic_of_the_same_name_is_refused(broker: DataPath) -> None:
    """A recreated topic has another id; its data must not mix with the old one's."""
    wire = broker.connect()
    leader_and_isr(wire, 0)
    assert leader_and_isr(wire, 1, topic_id=Uuid(bytes(16)[:15] + b"\7")) is ErrorCode.INCONSISTENT_TOPIC_ID


def test_a_partition_that_is_not_ours_is_refused(broker: DataPath) -> None:
    """The controller's list of replicas must name this broker."""
    assert leader_and_isr(broker.connect(), 0, replicas=(1, 2), leader=1) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert broker.replicas.get(T0) is None


def test_gained_and_lost_leadership_is_announced(broker: DataPath) -> None:
    """Once for each change, with the partitions of one request together."""
    heard: list[tuple[list[TopicPartition], list[TopicPartition]]] = []

    def notified(gained: list[Partition], lost: list[Partition]) -> None:
        heard.append(
            ([partition.topic_partition for partition in gained], [partition.topic_partition for partition in lost])
        )

    broker.replicas.on_leadership(notified)
    wire = broker.connect()
    leader_and_isr(wire, 0)
    leader_and_isr(wire, 1)
    leader_and_isr(wire, 2, leader=1)
    leader_and_isr(wire, 3)
    stop_replica(wire, -2, delete=True)
    assert heard == [([T0], []), ([], [T0]), ([T0], []), ([], [T0])]


def test_a_deleted_partition_is_gone_with_its_folder(broker: DataPath, tmp_path: Path) -> None:
    """The folder is renamed at once; a new topic of that name starts empty."""
    wire = broker.connect()
    leader_and_isr(wire, 3, replicas=(0,))
    broker.replicas.append(T0, batch(b"a"), acks=1, now_ms=0)
    assert stop_replica(wire, 2, delete=True) is ErrorCode.FENCED_LEADER_EPOCH
    assert stop_replica(wire, -2, delete=True) is ErrorCode.NONE
    assert broker.replicas.get(T0) is None
    assert not (tmp_path / "t-0").exists()
    assert leader_and_isr(wire, 0, topic_id=Uuid(bytes(15) + b"\3"), replicas=(0,)) is ErrorCode.NONE
    assert broker.replicas.partition(T0).log.log_end_offset == 0


def test_a_stopped_replica_keeps_its_data(broker: DataPath, tmp_path: Path) -> None:
    """Without the word delete nothing is removed."""
    wire = broker.connect()
    leader_and_isr(wire, 0, replicas=(0,))
    assert stop_replica(wire, 0, delete=False) is ErrorCode.NONE
    assert (tmp_path / "t-0").exists()


def test_the_committable_offset_is_the_least_of_the_replicas_that_count() -> None:
    """ISR members count, and others while they are caught up; a laggard outside does not."""
    leader = Leader(0, frozenset({0, 1}))
    leader.followers = {
        1: FollowerProgress(log_end_offset=7, last_caught_up_ms=0),
        2: FollowerProgress(log_end_offset=3, last_caught_up_ms=0),
    }
    assert leader.committable_offset(10, 100_000, 30_000) == 7
    assert leader.committable_offset(10, 20_000, 30_000) == 3
    leader.pending_isr = frozenset({0, 1, 2})
    assert leader.committable_offset(10, 100_000, 30_000) == 3


def test_a_follower_counts_as_caught_up_at_the_time_of_the_fetch_it_kept_up_with() -> None:
    """A follower that always lags by one fetch under a steady load is in sync all the same."""
    progress = FollowerProgress()
    progress.fetched(0, 0, 10, 1000)
    assert progress.last_caught_up_ms == 0
    progress.fetched(10, 0, 20, 2000)
    assert progress.last_caught_up_ms == 1000
    progress.fetched(20, 0, 20, 3000)
    assert progress.last_caught_up_ms == 3000


def test_the_high_watermark_never_falls_while_a_leader_leads(broker: DataPath) -> None:
    """A replica that joins the ISR behind the watermark does not pull it back."""
    partition = broker.lead("t", replicas=(0, 1), isr=(0,))
    partition.role.followers[1].last_caught_up_ms = -(10**12)
    broker.replicas.append(T0, batch(b"a"), acks=1, now_ms=broker.clock.wall_ms())
    assert partition.log.high_watermark == 1
    broker.replicas.follower_fetched(T0, 1, 0, 0, broker.clock.wall_ms())
    assert partition.log.high_watermark == 1


def test_bytes_that_are_no_request_close_the_connection(broker: DataPath) -> None:
    """Header or body, cut or lying: no answer, no exception."""
    for data in (b"", b"\0", b"\0\0\0\x09\0\0\0\1\0\4ab", b"\0\1\0\x0c\0\0\0\1\xff\xff\0" + b"\xff" * 40):
        wire = broker.connect()
        wire.handler.frame(memoryview(bytearray(data)))
        assert (wire.is_closed, wire.sent) == (True, [])
    assert not broker.dispatcher.connections


def test_unknown_apis_and_versions_close_the_connection(broker: DataPath) -> None:
    """As Apache's brokers do: what is not advertised is not answered."""
    wire = broker.connect()
    wire.post(MetadataRequest(), 9)  # not among this node's handlers
    assert (wire.is_closed, wire.sent) == (True, [])
    wire = broker.connect()
    wire.handler.frame(memoryview(bytearray(b"\x03\xe7\0\0\0\0\0\1\xff\xff")))
    assert wire.is_closed


def test_an_unknown_version_of_api_versions_is_answered_in_version_0(broker: DataPath) -> None:
    """So that newer clients can step down (KIP-511)."""
    wire = broker.connect()
    wire.handler.frame(memoryview(bytearray(b"\0\x12\0\x63\0\0\0\5\0\1x\0")))
    wire.asked.append((18, 0))
    answer = wire.answer()
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [(entry.api_key, entry.min_version, entry.max_version) for entry in answer.api_keys] == [(18, 0, 5)]
    assert not wire.is_closed


def test_a_client_name_that_is_no_word_is_an_invalid_request(broker: DataPath) -> None:
    """KIP-511's rule for names and versions."""
    answer = broker.connect().ask(ApiVersionsRequest(client_software_name="no good", client_software_version="1"), 3)
    assert answer.error_code == ErrorCode.INVALID_REQUEST


def test_a_client_name_without_end_is_an_invalid_request(broker: DataPath) -> None:
    """Before the authentication the longest name costs nothing, and nothing of it is kept."""
    for name, version in (("x" * 257, "1"), ("x", "1" * 32_767)):
        answer = broker.connect().ask(ApiVersionsRequest(client_software_name=name, client_software_version=version), 3)
        assert answer.error_code == ErrorCode.INVALID_REQUEST
    answer = broker.connect().ask(ApiVersionsRequest(client_software_name="x" * 256, client_software_version="1"), 3)
    assert answer.error_code == ErrorCode.NONE


@pytest.mark.parametrize(
    ("expected", "answer"),
    [
        ({}, None),
        ({"cluster_id": "cluster", "node_id": 0}, None),
        ({"cluster_id": "cluster"}, "002a010000000000"),
        ({"node_id": 0}, "002a010000000000"),
        ({"node_id": -2}, "002a010000000000"),
        ({"cluster_id": "other", "node_id": 0}, "0081010000000000"),
        ({"cluster_id": "cluster", "node_id": 5}, "0081010000000000"),
        ({"cluster_id": "cluster", "node_id": -2}, "0081010000000000"),
        ({"cluster_id": "other", "node_id": 0, "client_software_name": "no good"}, "002a010000000000"),
    ],
)
def test_a_client_that_expects_another_broker_is_sent_back_to_its_bootstrap_servers(
    broker: DataPath, expected: dict[str, Any], answer: str | None
) -> None:
    """KIP-1242: the bytes of the refusals are those of Apache Kafka 4.4.0."""
    wire = broker.connect()
    request = ApiVersionsRequest(**{"client_software_name": "x", "client_software_version": "1", **expected})
    wire.post(request, 5)
    (frame,) = wire.sent
    assert frame[8:].hex() == answer if answer else frame[8:10] == bytes(2)
    wire.sent.clear()
    assert not wire.is_closed
    assert wire.ask(ApiVersionsRequest(client_software_name="x", client_software_version="1"), 5).error_code == 0


def test_what_an_older_version_expects_is_not_looked_at(broker: DataPath) -> None:
    """It has no such fields."""
    request = ApiVersionsRequest(client_software_name="x", client_software_version="1", cluster_id="other", node_id=5)
    assert broker.connect().ask(request, 4).error_code == ErrorCode.NONE


def test_connections_of_one_address_are_capped(tmp_path: Path) -> None:
    """The one too many is closed at once; when another goes there is room again."""
    broker = DataPath(tmp_path, {"max.connections.per.ip": "2"})
    first, second, third = broker.connect(), broker.connect(), broker.connect()
    assert (first.is_closed, second.is_closed, third.is_closed) == (False, False, True)
    first.close()
    assert not broker.connect().is_closed


def test_connections_of_all_addresses_are_capped(tmp_path: Path) -> None:
    """max.connections holds for the broker as a whole; the one too many is closed at once."""
    broker = DataPath(tmp_path, {"max.connections": "2"})
    first, second, third = broker.connect(), broker.connect(), broker.connect()
    assert (first.is_closed, second.is_closed, third.is_closed) == (False, False, True)
    second.close()
    assert not broker.connect().is_closed
