"""The group service on a real log, through dispatch and codec: loading, unloading,
committing, pauses."""

import gc
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from barnabas.base.files import FileSlice
from barnabas.base.ids import TopicPartition, Uuid
from barnabas.base.tasks import done_here
from barnabas.broker.groups.group import Group
from barnabas.broker.groups.loading import Loader
from barnabas.broker.metadata.internal_topics import OFFSETS_TOPIC, partition_of
from barnabas.log.settings import LogConfig
from barnabas.wire.kafka.errors import ErrorCode as E
from barnabas.wire.kafka.messages.delete_groups import DeleteGroupsRequest
from barnabas.wire.kafka.messages.describe_groups import DescribeGroupsRequest
from barnabas.wire.kafka.messages.find_coordinator import FindCoordinatorRequest
from barnabas.wire.kafka.messages.heartbeat import HeartbeatRequest
from barnabas.wire.kafka.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas.wire.kafka.messages.leave_group import LeaveGroupRequest, MemberIdentity
from barnabas.wire.kafka.messages.list_groups import ListGroupsRequest
from barnabas.wire.kafka.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.wire.kafka.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from barnabas.wire.kafka.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from barnabas.wire.kafka.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from barnabas.wire.kafka.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from support.broker import Wire
from support.group_broker import PARTITION, TOPIC_ID, GroupBroker

UNKNOWN_ID = Uuid(bytes([1]) * 16)


@pytest.fixture
def broker(tmp_path: Path) -> GroupBroker:
    made = GroupBroker(tmp_path / "first")
    made.load()
    return made


def join_request(member_id: str = "") -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id="g",
        member_id=member_id,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )


def stable(broker: GroupBroker) -> Any:
    """A member with an assignment; its JoinGroup response."""
    wire = broker.connect()
    member_id = wire.ask(join_request(), 9).member_id
    wire.post(join_request(member_id), 9)
    broker.timers.advance(0)
    joined = wire.answer()
    request = SyncGroupRequest(
        group_id="g",
        generation_id=joined.generation_id,
        member_id=member_id,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[SyncGroupRequestAssignment(member_id=member_id, assignment=b"all")],
    )
    assert wire.ask(request, 5).assignment == b"all"
    return joined


def heartbeat(wire: Wire, joined: Any) -> E:
    request = HeartbeatRequest(group_id="g", generation_id=joined.generation_id, member_id=joined.member_id)
    return E(wire.ask(request, 4).error_code)


def commit_request(offset: int) -> OffsetCommitRequest:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    return OffsetCommitRequest(group_id="g", topics=[OffsetCommitRequestTopic(name="t", partitions=[partition])])


OTHER = next(name for name in map(str, range(10_000)) if partition_of(name, 50) == PARTITION)


def commit_of_another_group() -> OffsetCommitRequest:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=3)
    return OffsetCommitRequest(group_id=OTHER, topics=[OffsetCommitRequestTopic(name="t", partitions=[partition])])


def reloaded(broker: GroupBroker) -> dict[str, Group]:
    """The groups that the log holds."""
    loader = Loader(PARTITION)
    log = broker.replicas.partition(TopicPartition(OFFSETS_TOPIC, PARTITION)).log
    assert log is not None
    piece = log.read(0, 1 << 20, upper_bound=log.log_end_offset)
    for _ in loader.read(piece.records.read()):
        pass
    done_here(loader.steps())
    return loader.groups


def code(response: Any) -> E:
    return E(response.topics[0].partitions[0].error_code)


def fetch(wire: Wire) -> tuple[E, list[int]]:
    response = wire.ask(OffsetFetchRequest(group_id="g", topics=None), 7)
    return E(response.error_code), [p.committed_offset for topic in response.topics for p in topic.partitions]


def test_group_is_served_only_where_its_partition_is_led(tmp_path: Path) -> None:
    """Before, while it is loaded, after, and when it is lost."""
    broker = GroupBroker(tmp_path)
    wire = broker.connect()
    assert fetch(wire)[0] == E.NOT_COORDINATOR
    broker.lead(OFFSETS_TOPIC, PARTITION)
    assert fetch(wire)[0] == E.COORDINATOR_LOAD_IN_PROGRESS
    broker.work()
    assert code(wire.ask(commit_request(7), 8)) == E.NONE
    assert fetch(wire) == (E.NONE, [7])
    broker.lead(OFFSETS_TOPIC, PARTITION, epoch=1, leader=5, replicas=(0, 5))
    assert fetch(wire)[0] == E.NOT_COORDINATOR
    broker.load(epoch=2)
    assert fetch(wire) == (E.NONE, [7])


def test_members_and_offsets_are_there_after_a_restart(broker: GroupBroker, tmp_path: Path) -> None:
    """A broker that was killed reads them from its log."""
    joined = stable(broker)
    shutil.copytree(tmp_path / "first", tmp_path / "later")  # the first broker still locks its own
    later = GroupBroker(tmp_path / "later")
    later.load(epoch=1)
    wire = later.connect()
    assert heartbeat(wire, joined) == E.NONE
    later.timers.advance(10_400)  # late, but within what counts as standing still
    later.timers.advance(300)
    assert heartbeat(wire, joined) == E.UNKNOWN_MEMBER_ID


def test_the_log_of_groups_is_read_beside_the_event_loop(broker: GroupBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a restart it may have to be read from a slow disk."""
    assert code(broker.connect().ask(commit_request(7), 8)) == E.NONE
    reads: list[bool] = []
    read = FileSlice.read

    def noted(piece: FileSlice) -> bytes:
        reads.append(broker.is_beside)
        return read(piece)

    monkeypatch.setattr(FileSlice, "read", noted)
    broker.lead(OFFSETS_TOPIC, PARTITION, epoch=1, leader=5, replicas=(0, 5))
    broker.load(epoch=2)
    assert reads == [True]
    assert fetch(broker.connect()) == (E.NONE, [7])


def test_what_is_read_when_the_partition_is_lost_again_is_left(
    broker: GroupBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It may be truncated while a thread reads it: that is no damage."""
    assert code(broker.connect().ask(commit_request(7), 8)) == E.NONE

    def torn(_piece: FileSlice) -> bytes:
        broker.lead(OFFSETS_TOPIC, PARTITION, epoch=3, leader=5, replicas=(0, 5))
        return b"torn"

    monkeypatch.setattr(FileSlice, "read", torn)
    broker.lead(OFFSETS_TOPIC, PARTITION, epoch=1, leader=5, replicas=(0, 5))
    broker.load(epoch=2)
    assert fetch(broker.connect())[0] == E.NOT_COORDINATOR
    assert "incomplete" not in caplog.text


def large_group(broker: GroupBroker, number: int = 300) -> tuple[list[Wire], Callable[[], None]]:
    """A group whose members wait for their assignment, and what has their leader send it."""
    coordinator = broker.groups.coordinator
    wires = [broker.connect() for _ in range(number)]
    ids = [wire.ask(join_request(), 9).member_id for wire in wires]
    for wire, member_id in zip(wires, ids, strict=True):
        wire.post(join_request(member_id), 9)
    broker.timers.advance(0)
    broker.take_turns(wires[-1])
    for wire in wires:
        wire.answer()
    found = coordinator.find("g")
    assert found is not None
    leader = ids.index(found.leader_id)

    def sync(index: int) -> None:
        assignments = [SyncGroupRequestAssignment(member_id=each, assignment=each.encode()) for each in ids]
        request = SyncGroupRequest(
            group_id="g",
            generation_id=found.generation_id,
            member_id=ids[index],
            protocol_type="consumer",
            protocol_name="range",
            assignments=assignments if index == leader else [],
        )
        wires[index].post(request, 5)

    for index in [*range(leader), *range(leader + 1, number)]:
        sync(index)
    return wires, lambda: sync(leader)


def end_offset(broker: GroupBroker) -> int:
    log = broker.replicas.partition(TopicPartition(OFFSETS_TOPIC, PARTITION)).log
    assert log is not None
    return log.log_end_offset


def test_the_record_of_a_large_group_is_encoded_in_a_thread_and_what_follows_waits_for_it(broker: GroupBroker) -> None:
    """The order of the log is that of the decisions: a member that leaves meanwhile
    leaves after the assignment."""
    wires, send_assignment = large_group(broker)
    broker.held = []
    send_assignment()
    other = broker.connect()
    other.post(commit_of_another_group(), 8)
    assert end_offset(broker) == 0
    assert not any(wire.sent for wire in (*wires, other))
    broker.release()
    broker.take_turns(wires[-1])
    broker.take_turns(other)
    assert code(other.answer()) == E.NONE
    assert {wire.answer().error_code for wire in wires} == {0}
    loaded = reloaded(broker)
    assert len(loaded["g"].members) == len(wires)
    assert {member.assignment for member in loaded["g"].members.values()} == set(map(str.encode, loaded["g"].members))
    assert loaded[OTHER].offsets.committed


def test_the_record_of_a_large_group_is_not_written_when_the_group_is_lost_meanwhile(broker: GroupBroker) -> None:
    """Not even if this broker leads its partition again: another one may have served
    the group in between."""
    wires, send_assignment = large_group(broker)
    broker.held = []
    send_assignment()
    broker.lead(OFFSETS_TOPIC, PARTITION, epoch=1, leader=5, replicas=(0, 5))
    broker.load(epoch=2)
    broker.release()
    broker.take_turns(wires[-1])
    assert {E(wire.answer().error_code) for wire in wires} == {E.NOT_COORDINATOR}
    assert end_offset(broker) == 0


def test_a_large_group_is_described_in_slices_with_one_view_of_its_members(broker: GroupBroker) -> None:
    """A member that leaves between two slices is still in the answer."""
    wires, send_assignment = large_group(broker)
    send_assignment()
    broker.take_turns(wires[-1])
    leaving = next(iter(broker.groups.coordinator.find("g").members))
    broker.clock.time_slice = lambda: lambda: True
    wire = broker.connect()
    wire.post(DescribeGroupsRequest(groups=["g"]), 5)
    broker.timers.advance(0)
    assert not wire.sent
    left = broker.connect()
    left.post(LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id=leaving)]), 5)
    broker.take_turns(wire)
    (described,) = wire.answer().groups
    assert len(described.members) == len({member.member_id for member in described.members}) == 300
    assert {member.member_assignment for member in described.members} == {
        member.member_id.encode() for member in described.members
    }


def test_members_of_a_large_group_are_answered_in_slices(broker: GroupBroker) -> None:
    """Both the end of a join and that of a sync; meanwhile others are served."""
    number = 200
    wires = [broker.connect() for _ in range(number)]
    ids = [wire.ask(join_request(), 9).member_id for wire in wires]
    for wire, member_id in zip(wires, ids, strict=True):
        wire.post(join_request(member_id), 9)
    broker.clock.time_slice = lambda: lambda: True  # a slice is over with its first step
    broker.timers.advance(0)
    assert sum(bool(wire.sent) for wire in wires) == 1
    assert fetch(broker.connect()) == (E.NONE, [])
    broker.take_turns(wires[-1])
    joined = [wire.answer() for wire in wires]
    assert {answer.generation_id for answer in joined} == {1}
    assert sorted(len(answer.members) for answer in joined) == [0] * (number - 1) + [number]
    leader = next(index for index, answer in enumerate(joined) if answer.members)
    for index in [*range(leader), *range(leader + 1, number), leader]:
        assignments = [SyncGroupRequestAssignment(member_id=each, assignment=each.encode()) for each in ids]
        request = SyncGroupRequest(
            group_id="g",
            generation_id=1,
            member_id=ids[index],
            protocol_type="consumer",
            protocol_name="range",
            assignments=assignments if index == leader else [],
        )
        wires[index].post(request, 5)
    assert sum(bool(wire.sent) for wire in wires) <= 1
    broker.take_turns(wires[-1])
    assert [wire.answer().assignment for wire in wires] == [each.encode() for each in ids]


def test_very_many_members_leave_in_slices(broker: GroupBroker) -> None:
    """Others are served meanwhile; each name has its answer, and unknown ones are refused."""
    joined = stable(broker)
    broker.clock.time_slice = lambda: lambda: True
    wire = broker.connect()
    names = [f"unknown {number}" for number in range(2_000)]
    members = [MemberIdentity(member_id=name) for name in [*names, joined.member_id]]
    wire.post(LeaveGroupRequest(group_id="g", members=members), 4)
    assert not wire.sent
    assert heartbeat(broker.connect(), joined) == E.NONE
    broker.take_turns(wire)
    codes = [E(member.error_code) for member in wire.answer().members]
    assert codes == [E.UNKNOWN_MEMBER_ID] * 2_000 + [E.NONE]
    assert heartbeat(broker.connect(), joined) == E.UNKNOWN_MEMBER_ID


def test_groups_are_listed_in_slices(broker: GroupBroker) -> None:
    """Those that are deleted meanwhile are left out."""
    wire = broker.connect()
    commit = commit_request(7)
    wanted = [
        name for number in range(20_000) if broker.groups.coordinator.partition_for(name := f"g{number}") == PARTITION
    ]
    assert len(wanted) > 300
    for commit.group_id in wanted:
        assert code(wire.ask(commit, 8)) == E.NONE
    broker.clock.time_slice = lambda: lambda: True
    wire.post(ListGroupsRequest(), 4)
    assert not wire.sent
    deleted = broker.connect()
    broker.clock.time_slice = lambda: lambda: False
    deleted.post(DeleteGroupsRequest(groups_names=[wanted[-1]]), 2)
    assert not wire.sent
    assert [result.error_code for result in deleted.answer().results] == [E.NONE]
    broker.take_turns(wire)
    assert [group.group_id for group in wire.answer().groups] == wanted[:-1]


def test_offsets_go_by_topic_id_since_version_10(broker: GroupBroker) -> None:
    """An unknown topic id gets an error; the others are answered."""
    wire = broker.connect()
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=9)
    topics = [OffsetCommitRequestTopic(topic_id=each, partitions=[partition]) for each in (TOPIC_ID, UNKNOWN_ID)]
    answer = wire.ask(OffsetCommitRequest(group_id="g", topics=topics), 10)
    assert {topic.topic_id: E(topic.partitions[0].error_code) for topic in answer.topics} == {
        TOPIC_ID: E.NONE,
        UNKNOWN_ID: E.UNKNOWN_TOPIC_ID,
    }
    asked = [OffsetFetchRequestTopics(topic_id=each, partition_indexes=[0]) for each in (UNKNOWN_ID, TOPIC_ID)]
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=each) for each in (asked, None)])
    named, everything = wire.ask(request, 10).groups
    assert [(t.topic_id, t.partitions[0].committed_offset, E(t.partitions[0].error_code)) for t in named.topics] == [
        (UNKNOWN_ID, -1, E.UNKNOWN_TOPIC_ID),
        (TOPIC_ID, 9, E.NONE),
    ]
    assert [(topic.topic_id, topic.partitions[0].committed_offset) for topic in everything.topics] == [(TOPIC_ID, 9)]
    assert fetch(wire) == (E.NONE, [9])


def test_coordinator_is_found_once_its_partition_has_a_leader(broker: GroupBroker) -> None:
    """Clients ask again until then."""
    wire = broker.connect()
    for version in range(7):
        keys = {"coordinator_keys": ["g"]} if version >= 4 else {"key": "g"}
        answer = wire.ask(FindCoordinatorRequest(**keys), version)
        found = answer.coordinators[0] if version >= 4 else answer
        assert (E(found.error_code), found.node_id) == (E.COORDINATOR_NOT_AVAILABLE, -1)


def named(wire: Wire, topic: str, *leaders: int) -> None:
    """The controller names a topic, with the leaders of its partitions."""
    states = [
        UpdateMetadataPartitionState(partition_index=number, leader=leader, replicas=[leader], isr=[leader])
        for number, leader in enumerate(leaders)
    ]
    end = UpdateMetadataEndpoint(port=9, host="h", listener="PLAINTEXT")
    brokers = [UpdateMetadataBroker(id=number, endpoints=[end]) for number in range(2)]
    topics = [UpdateMetadataTopicState(topic_name=topic, partition_states=states)]
    update = UpdateMetadataRequest(controller_id=1, controller_epoch=1, live_brokers=brokers, topic_states=topics)
    assert wire.ask(update, 8).error_code == E.NONE


def test_a_found_coordinator_has_the_message_of_apaches_brokers(broker: GroupBroker) -> None:
    """The name of error 0 where the response has one coordinator, nothing where it has several;
    clients' tests compare it."""
    named(broker.connect(), "__consumer_offsets", 1)
    wire = broker.connect()
    for version in range(1, 4):
        assert wire.ask(FindCoordinatorRequest(key="x"), version).error_message == "NONE"
    [found] = wire.ask(FindCoordinatorRequest(coordinator_keys=["x"]), 4).coordinators
    assert (E(found.error_code), found.error_message) == (E.NONE, "")


@pytest.mark.parametrize("is_coordinator", [True, False])
def test_a_commit_waits_for_topics_that_the_controller_has_not_named_yet(tmp_path: Path, is_coordinator: bool) -> None:
    """A broker that has just started does not refuse the offset for its topic, whether it
    coordinates the group or not."""
    broker = GroupBroker(tmp_path)
    if is_coordinator:
        broker.load()
    broker.metadata.expect(["later"])
    outcome = E.NONE if is_coordinator else E.NOT_COORDINATOR
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=9)
    topics = [OffsetCommitRequestTopic(name="later", partitions=[partition])]
    wire = broker.connect()
    assert code(wire.ask(commit_request(3), 8)) == outcome
    wire.post(OffsetCommitRequest(group_id="g", topics=topics), 8)
    assert wire.answer() is None
    named(broker.connect(), "later", 1)
    assert code(wire.answer()) == outcome


def test_a_broker_that_has_just_started_does_not_say_that_it_has_no_groups(broker: GroupBroker) -> None:
    """It waits for the offsets topic, and for the leaderships that the topic's
    partitions say it has."""
    broker.metadata.expect([OFFSETS_TOPIC])
    wire = broker.connect()
    wire.post(ListGroupsRequest(), 5)
    assert wire.answer() is None
    named(broker.connect(), OFFSETS_TOPIC, 1, 1, 1, 0, 0)
    assert E(wire.answer().error_code) == E.COORDINATOR_LOAD_IN_PROGRESS
    broker.lead(OFFSETS_TOPIC, 4)
    broker.work()
    assert E(wire.ask(ListGroupsRequest(), 5).error_code) == E.NONE


def test_group_that_is_not_there_is_not_found_since_version_6(broker: GroupBroker) -> None:
    """KIP-1043; before, it is Dead."""
    wire = broker.connect()
    [group] = wire.ask(DescribeGroupsRequest(groups=["x34"]), 6).groups
    assert (E(group.error_code), group.error_message) == (E.GROUP_ID_NOT_FOUND, "Group x34 not found.")
    [group] = wire.ask(DescribeGroupsRequest(groups=["x34"]), 5).groups
    assert (E(group.error_code), group.group_state) == (E.NONE, "Dead")


def test_a_group_named_many_times_is_described_once(broker: GroupBroker) -> None:
    """A short request never becomes a long answer."""
    answer = broker.connect().ask(DescribeGroupsRequest(groups=["b", "a", *["b"] * 1000]), 5)
    assert [group.group_id for group in answer.groups] == ["b", "a"]


def test_commit_waits_for_all_replicas_in_sync(tmp_path: Path) -> None:
    """acks -1: answered when the follower has it; after REQUEST_TIMED_OUT it still
    counts once it is committed."""
    broker = GroupBroker(tmp_path)
    broker.load(replicas=(0, 1))
    wire = broker.connect()
    wire.post(commit_request(7), 8)
    assert wire.answer() is None
    broker.follower_reads()
    assert code(wire.answer()) == E.NONE
    wire.post(commit_request(8), 8)
    broker.timers.advance(5_000)
    assert code(wire.answer()) == E.REQUEST_TIMED_OUT
    assert fetch(wire) == (E.NONE, [7])
    broker.follower_reads()
    assert fetch(wire) == (E.NONE, [8])


def uncommitted(tmp_path: Path) -> GroupBroker:
    """A broker that wrote an offset, lost the partition to broker 1 before that
    fetched it, and leads it again."""
    broker = GroupBroker(tmp_path)
    broker.load(replicas=(0, 1))
    broker.connect().post(commit_request(7), 8)
    broker.lead(OFFSETS_TOPIC, PARTITION, epoch=1, leader=1, replicas=(0, 1))
    broker.timers.advance(0)
    broker.load(epoch=2, replicas=(0, 1))
    return broker


def test_groups_are_served_once_the_replicas_in_sync_have_what_was_read(tmp_path: Path) -> None:
    """A record that the next leader may lack does not count: neither an offset nor a generation."""
    broker = uncommitted(tmp_path)
    wire = broker.connect()
    broker.timers.advance(1_000)
    assert fetch(wire)[0] == E.COORDINATOR_LOAD_IN_PROGRESS
    assert wire.ask(join_request(), 9).error_code == E.COORDINATOR_LOAD_IN_PROGRESS
    broker.follower_reads()
    assert fetch(wire) == (E.NONE, [7])


def test_nothing_of_a_load_is_left_for_the_collection_of_garbage(tmp_path: Path) -> None:
    """What is loaded may be large, and may be frozen while it waits: a cycle would
    then be kept for good."""
    gc.collect()
    gc.disable()
    try:
        broker = uncommitted(tmp_path)
        # It waits for the replica.
        assert [found for found in gc.get_objects() if isinstance(found, Loader)]
        broker.follower_reads()
        assert fetch(broker.connect()) == (E.NONE, [7])
        assert not [found for found in gc.get_objects() if isinstance(found, Loader)]
    finally:
        gc.enable()


def test_groups_of_a_partition_that_is_lost_before_the_replicas_have_it_are_not_served(tmp_path: Path) -> None:
    """The next leader serves them; what waited here ends."""
    broker = uncommitted(tmp_path)
    broker.lead(OFFSETS_TOPIC, PARTITION, epoch=3, leader=1, replicas=(0, 1))
    broker.timers.advance(0)
    broker.timers.advance(1_000)
    assert fetch(broker.connect())[0] == E.NOT_COORDINATOR
    assert not broker.purgatory


def test_a_service_that_stops_does_not_wait_for_replicas(tmp_path: Path) -> None:
    """Nothing is left that would look again."""
    broker = uncommitted(tmp_path)
    broker.groups.stop()
    broker.timers.advance(500)
    assert not broker.purgatory


def test_groups_are_served_without_a_replica_that_left_the_in_sync_set(tmp_path: Path) -> None:
    """Below min.insync.replicas too: the high watermark stays, but no election can
    take the records away."""
    broker = uncommitted(tmp_path)
    log = broker.replicas.partition(TopicPartition(OFFSETS_TOPIC, PARTITION)).log
    log.configure(LogConfig({"min.insync.replicas": "2"}))
    broker.lead(OFFSETS_TOPIC, PARTITION, epoch=3, replicas=(0, 1), isr=(0,))
    broker.timers.advance(500)
    assert fetch(broker.connect()) == (E.NONE, [7])
    assert log.high_watermark == 0


def test_groups_that_wait_long_for_a_replica_are_reported_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The log says which partition waits, and until when."""
    broker = uncommitted(tmp_path)
    for _ in range(30):
        broker.timers.advance(500)
    [report] = [record.getMessage() for record in caplog.records if "cannot be served yet" in record.getMessage()]
    assert "__consumer_offsets-3" in report
    assert "offset 1" in report


def test_commit_under_way_is_answered_when_the_partition_is_lost(tmp_path: Path) -> None:
    """NOT_COORDINATOR, so that the client looks for the new one."""
    broker = GroupBroker(tmp_path)
    broker.load(replicas=(0, 1))
    wire = broker.connect()
    wire.post(commit_request(7), 8)
    broker.lead(OFFSETS_TOPIC, PARTITION, epoch=1, leader=1, replicas=(0, 1))
    broker.timers.advance(0)
    assert code(wire.answer()) == E.NOT_COORDINATOR


def test_broker_that_stood_still_reads_heartbeats_before_it_ends_sessions(broker: GroupBroker) -> None:
    """SIGSTOP, or a long pause: the heartbeats wait in the sockets."""
    joined = stable(broker)
    broker.timers.advance(60_000)
    assert heartbeat(broker.connect(), joined) == E.NONE
    broker.timers.advance(300)
    assert heartbeat(broker.connect(), joined) == E.NONE
    broker.timers.advance(9_700)
    broker.timers.advance(400)
    broker.timers.advance(300)
    assert heartbeat(broker.connect(), joined) == E.UNKNOWN_MEMBER_ID


def test_requests_do_not_put_off_the_expiry_of_members_that_is_due(broker: GroupBroker) -> None:
    """What is left of many deadlines is planned for the next turn of the event loop, in which
    requests may come first."""
    for _ in range(600):
        broker.connect().ask(join_request(), 9)
    broker.timers.advance(10_001)
    planned = broker.groups._timer._timer
    assert planned is not None
    for _ in range(3):
        broker.connect().ask(join_request(), 9)
        assert broker.groups._timer._timer is planned
    for _ in range(2):
        broker.timers.advance(0)
    due_ms = broker.groups.coordinator.next_deadline_ms()
    assert due_ms is not None
    assert due_ms > broker.clock.monotonic_ms()


def test_deadlines_of_groups_are_looked_at_again_after_an_error(
    broker: GroupBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """After a pause; only what has failed is skipped, and the members of other groups expire."""
    request = join_request()
    request.group_id = OTHER
    broker.connect().ask(request, 9)
    joined = stable(broker)
    broken = broker.groups.coordinator.find(OTHER)
    assert broken is not None
    broken.members = None  # type: ignore[assignment]  # an error that no code expects
    for _ in range(26):
        broker.timers.advance(400)
    assert [record.levelname for record in caplog.records].count("ERROR") == 1
    for _ in range(4):
        broker.timers.advance(400)
    assert heartbeat(broker.connect(), joined) == E.UNKNOWN_MEMBER_ID
    assert [record.levelname for record in caplog.records].count("ERROR") == 1


def test_service_that_stops_sends_members_away(broker: GroupBroker) -> None:
    """COORDINATOR_NOT_AVAILABLE: they look again."""
    broker.groups.stop()
    assert broker.connect().ask(join_request(), 9).error_code == E.COORDINATOR_NOT_AVAILABLE
    assert fetch(broker.connect())[0] == E.COORDINATOR_NOT_AVAILABLE


def large_requests(partitions: int) -> dict[str, tuple[Any, int]]:
    """Requests of group APIs that name many partitions or groups."""
    commits = [
        OffsetCommitRequestPartition(partition_index=index, committed_offset=index) for index in range(partitions)
    ]
    return {
        "commit": (
            OffsetCommitRequest(group_id="g", topics=[OffsetCommitRequestTopic(name="t", partitions=commits)]),
            9,
        ),
        "fetch": (
            OffsetFetchRequest(
                groups=[
                    OffsetFetchRequestGroup(
                        group_id="g",
                        topics=[OffsetFetchRequestTopics(name="t", partition_indexes=list(range(partitions)))],
                    )
                ]
            ),
            9,
        ),
        "fetch all": (OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)]), 9),
        "delete offsets": (
            OffsetDeleteRequest(
                group_id="g",
                topics=[
                    OffsetDeleteRequestTopic(
                        name="t",
                        partitions=[OffsetDeleteRequestPartition(partition_index=index) for index in range(partitions)],
                    )
                ],
            ),
            0,
        ),
        "delete groups": (DeleteGroupsRequest(groups_names=[f"group-{index}" for index in range(partitions)]), 2),
    }


def test_requests_for_thousands_of_offsets_or_groups_give_way(
    broker: GroupBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each takes many slices, and does what it does in one."""
    partitions = 6000
    states = [
        UpdateMetadataPartitionState(partition_index=index, leader=0, replicas=[0], isr=[0])
        for index in range(partitions - 1)
    ]
    topic = UpdateMetadataTopicState(topic_name="t", topic_id=TOPIC_ID, partition_states=states)
    broker.metadata.update(UpdateMetadataRequest(topic_states=[topic]))

    def time_slice() -> Callable[[], bool]:
        steps = iter(range(5))
        return lambda: next(steps, None) is None

    monkeypatch.setattr(broker.clock, "time_slice", time_slice)
    wire = broker.connect()
    answers = {}
    for name, (request, version) in large_requests(partitions).items():
        wire.post(request, version)
        turns = 0
        while not wire.sent:
            broker.timers.advance(0)
            turns += 1
        assert turns > 8, name
        answers[name] = wire.answer()
    codes = [each.error_code for each in answers["commit"].topics[0].partitions]
    assert codes == [E.NONE] * (partitions - 1) + [E.UNKNOWN_TOPIC_OR_PARTITION]
    committed = [*range(partitions - 1), -1]
    assert [each.committed_offset for each in answers["fetch"].groups[0].topics[0].partitions] == committed
    assert [each.committed_offset for each in answers["fetch all"].groups[0].topics[0].partitions] == committed[:-1]
    assert [each.error_code for each in answers["delete offsets"].topics[0].partitions] == codes
    assert {each.error_code for each in answers["delete groups"].results} == {E.GROUP_ID_NOT_FOUND, E.NOT_COORDINATOR}
    assert wire.ask(large_requests(1)["fetch"][0], 9).groups[0].topics[0].partitions[0].committed_offset == -1
