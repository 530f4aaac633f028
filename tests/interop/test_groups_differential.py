"""The same requests to Apache Kafka 3.9.1 and to Barnabas, answer by answer; and what Apache's
broker stores of groups."""

import socket
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.base.tasks import done_here
from barnabas.broker.groups.loading import Loader
from barnabas.broker.groups.records import decode_record, encode_record
from barnabas.wire.kafka.codec import decode
from barnabas.wire.kafka.consumer_protocol import Subscription, encode_subscription
from barnabas.wire.kafka.frames import decode_response_header, encode_request
from barnabas.wire.kafka.messages import (
    delete_groups,
    describe_groups,
    find_coordinator,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
    offset_commit,
    offset_delete,
    offset_fetch,
    sync_group,
)
from barnabas.wire.kafka.records.batch_header import read_headers
from barnabas.wire.kafka.records.records import read_records
from barnabas.wire.kafka.schema import Message, Struct
from support.needs import needs_reference
from support.reference import apache_cluster
from support.servers import up
from support.waiting import eventually

pytestmark = [pytest.mark.interop, pytest.mark.java, needs_reference]

TOPIC = "t"
RESPONSES: dict[type[Message], type[Message]] = {
    join_group.JoinGroupRequest: join_group.JoinGroupResponse,
    sync_group.SyncGroupRequest: sync_group.SyncGroupResponse,
    heartbeat.HeartbeatRequest: heartbeat.HeartbeatResponse,
    leave_group.LeaveGroupRequest: leave_group.LeaveGroupResponse,
    offset_commit.OffsetCommitRequest: offset_commit.OffsetCommitResponse,
    offset_fetch.OffsetFetchRequest: offset_fetch.OffsetFetchResponse,
    offset_delete.OffsetDeleteRequest: offset_delete.OffsetDeleteResponse,
    list_groups.ListGroupsRequest: list_groups.ListGroupsResponse,
    describe_groups.DescribeGroupsRequest: describe_groups.DescribeGroupsResponse,
    delete_groups.DeleteGroupsRequest: delete_groups.DeleteGroupsResponse,
    find_coordinator.FindCoordinatorRequest: find_coordinator.FindCoordinatorResponse,
}


class Wire:
    """Connections to one broker, and what was answered on them with ids and
    addresses made comparable."""

    def __init__(self, bootstrap: str) -> None:
        host, port = bootstrap.split(":")
        self.address = (host, int(port))
        self.connections: dict[str, socket.socket] = {}
        self.seen: list[tuple[str, int, Any]] = []
        self.names: dict[str, str] = {}
        self.waiting: dict[str, tuple[type[Message], int]] = {}

    def send(self, message: Message, version: int, actor: str = "a") -> None:
        if actor not in self.connections:
            self.connections[actor] = socket.create_connection(self.address, 30)
        self.connections[actor].sendall(b"".join(map(bytes, encode_request(message, version, 1, actor))))
        self.waiting[actor] = (type(message), version)

    def receive(self, actor: str = "a") -> Any:
        request, version = self.waiting.pop(actor)
        connection = self.connections[actor]
        frame = self._exactly(connection, struct.unpack(">i", self._exactly(connection, 4))[0])
        header = decode_response_header(frame, request.API_KEY, version)
        response = decode(RESPONSES[request], version, frame, header.body_offset)
        for member_id in filter(None, [getattr(response, "member_id", "")]):
            self.names.setdefault(member_id, f"member {len(self.names)}")
        self.seen.append((request.__name__, version, self.comparable(response)))
        return response

    def ask(self, message: Message, version: int, actor: str = "a") -> Any:
        self.send(message, version, actor)
        return self.receive(actor)

    @staticmethod
    def _exactly(connection: socket.socket, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = connection.recv(size - len(data))
            assert more, "the broker closed the connection"
            data += more
        return data

    def comparable(self, value: Any) -> Any:
        if isinstance(value, Struct | Message):
            return {
                name: self.comparable(getattr(value, name))
                for name in type(value).__annotations__
                if name not in ("port", "throttle_time_ms", "error_message")
            }
        if isinstance(value, list):
            return sorted((self.comparable(item) for item in value), key=repr)
        return self.names.get(value, value) if isinstance(value, str) else value

    def close(self) -> None:
        for connection in self.connections.values():
            connection.close()


def join(group: str = "g", member_id: str = "", **more: Any) -> join_group.JoinGroupRequest:
    protocols = more.pop("protocols", {"range": [TOPIC]})
    return join_group.JoinGroupRequest(
        **{
            "group_id": group,
            "member_id": member_id,
            "session_timeout_ms": 30_000,
            "rebalance_timeout_ms": 30_000,
            "protocol_type": "consumer",
            "protocols": [
                join_group.JoinGroupRequestProtocol(
                    name=name, metadata=bytes(encode_subscription(Subscription(topics=topics), 1))
                )
                for name, topics in protocols.items()
            ],
            **more,
        }
    )


def sync(joined: Any, group: str = "g", assignments: dict[str, bytes] | None = None, **more: Any) -> Message:
    return sync_group.SyncGroupRequest(
        **{
            "group_id": group,
            "generation_id": joined.generation_id,
            "member_id": joined.member_id,
            "protocol_type": "consumer",
            "protocol_name": joined.protocol_name,
            "assignments": [
                sync_group.SyncGroupRequestAssignment(member_id=member_id, assignment=assignment)
                for member_id, assignment in (assignments or {}).items()
            ],
            **more,
        }
    )


def beat(joined: Any, group: str = "g", **more: Any) -> Message:
    facts = {"group_id": group, "generation_id": joined.generation_id, "member_id": joined.member_id, **more}
    return heartbeat.HeartbeatRequest(**facts)


def commit(
    joined: Any = None,
    group: str = "g",
    *,
    topic: str = TOPIC,
    partition: int = 0,
    metadata: str | None = "m",
    **more: Any,
) -> Message:
    facts = {
        "group_id": group,
        "generation_id_or_member_epoch": joined.generation_id if joined else -1,
        "member_id": joined.member_id if joined else "",
        **more,
    }
    offset = offset_commit.OffsetCommitRequestPartition(
        partition_index=partition, committed_offset=42, committed_metadata=metadata
    )
    topics = [offset_commit.OffsetCommitRequestTopic(name=topic, partitions=[offset])]
    return offset_commit.OffsetCommitRequest(topics=topics, **facts)


def leave(*members: tuple[str, str | None], group: str = "g") -> Message:
    identities = [leave_group.MemberIdentity(member_id=member, group_instance_id=inst) for member, inst in members]
    return leave_group.LeaveGroupRequest(group_id=group, members=identities)


def forget(*topics: str, group: str = "g") -> Message:
    return offset_delete.OffsetDeleteRequest(
        group_id=group,
        topics=[
            offset_delete.OffsetDeleteRequestTopic(
                name=topic, partitions=[offset_delete.OffsetDeleteRequestPartition(partition_index=0)]
            )
            for topic in topics
        ],
    )


def fetch_everywhere(wire: Wire, group: str) -> None:
    for version in range(1, 8):
        topics = [offset_fetch.OffsetFetchRequestTopic(name=TOPIC, partition_indexes=[0, 1, 77])]
        wire.ask(offset_fetch.OffsetFetchRequest(group_id=group, topics=topics), version)
        if version >= 2:
            wire.ask(offset_fetch.OffsetFetchRequest(group_id=group, topics=None), version)
    for version in (8, 9):
        asked = [offset_fetch.OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[0, 1, 77])]
        for topics_asked in (asked, None):
            part = offset_fetch.OffsetFetchRequestGroup(group_id=group, topics=topics_asked)
            other = offset_fetch.OffsetFetchRequestGroup(group_id="nobody", topics=topics_asked)
            wire.ask(offset_fetch.OffsetFetchRequest(groups=[part, other], require_stable=True), version)


def look_everywhere(wire: Wire) -> None:
    for version in range(6):
        authorized = version >= 3
        wire.ask(
            describe_groups.DescribeGroupsRequest(groups=["g", "nobody", ""], include_authorized_operations=authorized),
            version,
        )
        wire.ask(list_groups.ListGroupsRequest(), version)
    for states, types in [
        (["stable", "EMPTY"], []),
        (["Dead"], []),
        ([], ["Classic"]),
        ([], ["consumer"]),
        ([], ["?"]),
    ]:
        wire.ask(list_groups.ListGroupsRequest(states_filter=states, types_filter=types), 5)


def refused_joins(wire: Wire) -> None:
    """Joins that make no member."""
    for version in range(2, 10):
        wire.ask(join(""), version)
        wire.ask(join(session_timeout_ms=1), version)
        wire.ask(join(session_timeout_ms=10_000_000), version)
        wire.ask(join(member_id="unheard-of"), version)
        wire.ask(join("nothing", protocols={}), version)
        wire.ask(join("nothing", protocol_type=""), version)
    for version in range(6):
        wire.ask(leave(("unheard-of", None)), version) if version > 2 else wire.ask(
            leave_group.LeaveGroupRequest(group_id="g", member_id="unheard-of"), version
        )
    for version in range(7):
        keys = {"coordinator_keys": ["g", "", "größe"]} if version >= 4 else {"key": "g"}
        wire.ask(find_coordinator.FindCoordinatorRequest(**keys), version)
        if version:
            wire.ask(find_coordinator.FindCoordinatorRequest(key_type=2, **keys), version)


def a_members_life(wire: Wire) -> None:
    """One dynamic member, from its first join to the deletion of its group."""
    member_id = wire.ask(join(), 9).member_id
    wire.ask(join(member_id=member_id, protocol_type="connect"), 9)
    wire.ask(join(member_id=member_id, group_instance_id="static"), 9)
    joined = wire.ask(join(member_id=member_id), 9)
    wire.ask(commit(joined), 9)
    wire.ask(join(member_id=member_id), 7)
    wire.ask(sync(joined, protocol_name="sticky"), 5)
    wire.ask(sync(joined, protocol_type="connect"), 5)
    wire.ask(sync(joined, protocol_type=None), 5)
    wire.ask(sync(joined, protocol_name=None), 5)
    wire.ask(sync(joined, generation_id=77), 5)
    wire.ask(sync(joined, assignments={member_id: b"mine"}, protocol_type="consumer", protocol_name="range"), 5)
    for version in range(6):
        wire.ask(sync(joined), version)
    for version in range(5):
        wire.ask(beat(joined), version)
        wire.ask(beat(joined, generation_id=77), version)
        wire.ask(beat(joined, member_id="unheard-of"), version)
        wire.ask(beat(joined, group="nobody"), version)
        wire.ask(beat(joined, group=""), version)
    wire.ask(beat(joined, group_instance_id="nobody"), 4)
    for version in range(2, 10):
        wire.ask(commit(joined), version)
        wire.ask(commit(joined, generation_id_or_member_epoch=77), version)
        wire.ask(commit(joined, topic="unknown"), version)
        wire.ask(commit(joined, partition=77), version)
        wire.ask(commit(joined, partition=1, metadata=None), version)
        wire.ask(commit(joined, metadata="x" * 5000), version)
        wire.ask(commit(), version)
        wire.ask(commit(joined, group="nobody"), version)
    wire.ask(commit(joined, group_instance_id="nobody"), 9)
    wire.ask(commit(joined, topic="u"), 9)
    fetch_everywhere(wire, "g")
    look_everywhere(wire)
    wire.ask(forget(TOPIC, "u", "unknown"), 0)
    wire.ask(forget(TOPIC, group="nobody"), 0)
    for version in range(3):
        wire.ask(delete_groups.DeleteGroupsRequest(groups_names=["g", "nobody"]), version)
    wire.ask(leave((member_id, None), ("unheard-of", None), ("", "nobody")), 5)
    look_everywhere(wire)
    wire.ask(commit(), 9)
    wire.ask(commit(joined), 9)
    wire.ask(forget(TOPIC), 0)
    fetch_everywhere(wire, "g")
    wire.ask(delete_groups.DeleteGroupsRequest(groups_names=["g"]), 2)
    look_everywhere(wire)
    fetch_everywhere(wire, "g")
    wire.ask(forget(TOPIC), 0)


def members_together(wire: Wire) -> None:
    """A second member comes, the first joins again, protocols are voted on, one goes."""
    a = wire.ask(join(protocols={"range": [TOPIC], "sticky": [TOPIC]}), 3)
    wire.ask(sync(a, assignments={a.member_id: b"all"}), 3)
    b_id = wire.ask(join(protocols={"sticky": [TOPIC], "range": [TOPIC]}), 9, "b").member_id
    wire.send(join(member_id=b_id, protocols={"sticky": [TOPIC], "range": [TOPIC]}), 9, "b")
    eventually(lambda: wire.ask(beat(a), 4).error_code == 27)
    del wire.seen[-1:]
    while wire.seen[-1][0] == "HeartbeatRequest":
        del wire.seen[-1]  # how often it was asked is chance
    wire.ask(sync(a), 3)
    wire.ask(commit(a), 9)
    wire.ask(describe_groups.DescribeGroupsRequest(groups=["g"]), 5)
    wire.send(join(member_id=a.member_id, protocols={"sticky": [TOPIC], "only-a": [TOPIC]}), 9)
    again, b = wire.receive(), wire.receive("b")
    wire.send(sync(b), 5, "b")
    wire.ask(beat(a), 4)
    wire.ask(sync(again, assignments={again.member_id: b"half", b_id: b"other half"}), 5)
    wire.receive("b")
    wire.ask(join(protocols={"range": [TOPIC]}), 9, "c")
    wire.ask(leave((a.member_id, None)), 3)
    wire.ask(beat(b), 4, "b")
    wire.ask(leave((b_id, None)), 3, "b")
    wire.ask(describe_groups.DescribeGroupsRequest(groups=["g"]), 5)
    wire.ask(delete_groups.DeleteGroupsRequest(groups_names=["g"]), 2)


def static_members(wire: Wire) -> None:
    """Restarts of static members, fencing, removal by an administrator."""
    first = wire.ask(join(group_instance_id="s"), 9)
    wire.ask(sync(first, assignments={first.member_id: b"all"}, group_instance_id="s"), 5)
    back = wire.ask(join(group_instance_id="s"), 9)
    old_version = wire.ask(join(group_instance_id="s"), 8)
    for gone in (first, back):
        wire.ask(beat(gone, group_instance_id="s"), 4)
        wire.ask(sync(gone, group_instance_id="s"), 5)
        wire.ask(commit(gone, group_instance_id="s"), 9)
        wire.ask(leave((gone.member_id, "s")), 5)
        wire.ask(join(member_id=gone.member_id, group_instance_id="s"), 9)
    wire.ask(sync(old_version, group_instance_id="s"), 5)
    wire.ask(describe_groups.DescribeGroupsRequest(groups=["g"]), 5)
    changed = wire.ask(join(group_instance_id="s", protocols={"sticky": [TOPIC], "range": [TOPIC]}), 9)
    wire.ask(beat(changed, group_instance_id="s"), 4)
    wire.ask(leave(("", "s"), ("", "s"), ("", None)), 5)
    wire.ask(describe_groups.DescribeGroupsRequest(groups=["g"]), 5)
    wire.ask(delete_groups.DeleteGroupsRequest(groups_names=["g"]), 2)


SCENARIOS: list[Callable[[Wire], None]] = [refused_joins, a_members_life, members_together, static_members]


def prepare(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = [NewTopic(TOPIC, 3, 1), NewTopic("u", 1, 1)]
    for future in admin.create_topics(topics).values():
        future.result(30)
    wire = Wire(bootstrap)
    found = find_coordinator.FindCoordinatorRequest(coordinator_keys=["g"])
    eventually(lambda: wire.ask(found, 6).coordinators[0].error_code == 0)
    eventually(lambda: wire.ask(list_groups.ListGroupsRequest(), 5).error_code == 0)
    eventually(lambda: wire.ask(join("x" * 9, "warm-up"), 9).error_code == 25)
    eventually(lambda: wire.ask(join("g", "warm-up"), 9).error_code == 25)
    wire.close()


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with up(tmp_path_factory.mktemp("ours")) as cluster:
        prepare(cluster.bootstrap)
        yield cluster.bootstrap


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    settings = {"offsets.topic.replication.factor": "1", "group.initial.rebalance.delay.ms": "0"}
    with apache_cluster(tmp_path_factory.mktemp("theirs"), settings=settings) as cluster:
        prepare(cluster.bootstrap)
        yield cluster.bootstrap, cluster.directory


def play(bootstrap: str, scenario: Callable[[Wire], None]) -> list[tuple[str, int, Any]]:
    wire = Wire(bootstrap)
    try:
        scenario(wire)
    finally:
        wire.close()
    return wire.seen


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_answers_are_those_of_apache(ours: str, theirs: tuple[str, Path], scenario: Callable[[Wire], None]) -> None:
    """Error codes, generations, leaders, protocols, members, assignments, states,
    offsets, in every version."""
    expected = play(theirs[0], scenario)
    found = play(ours, scenario)
    for number, (want, got) in enumerate(zip(expected, found, strict=False)):
        assert got == want, f"answer {number}"
    assert len(found) == len(expected)


def test_what_apache_stored_is_read_and_written_alike(theirs: tuple[str, Path]) -> None:
    """Every record of its __consumer_offsets comes out of our codec byte for byte, and
    loads as the group it was."""
    bootstrap, directory = theirs
    wire = Wire(bootstrap)
    joined = wire.ask(join("kept", group_instance_id="s"), 9)
    wire.ask(sync(joined, "kept", {joined.member_id: b"all"}, group_instance_id="s"), 5)
    wire.ask(commit(joined, "kept", group_instance_id="s"), 9)
    wire.ask(commit(joined, "kept", partition=1, retention_time_ms=5_000_000), 4)
    wire.close()
    loaded = Loader(0)
    records = 0
    for path in directory.rglob("__consumer_offsets-*/*.log"):
        data = path.read_bytes()
        for offset, _ in read_headers(data):
            for record in read_records(data, offset):
                decoded = decode_record(record.key, record.value)
                assert encode_record(decoded) == (record.key, record.value)
                records += 1
        for _ in loaded.read(data):
            pass
    assert records > 10
    done_here(loaded.steps())
    assert loaded.unreadable == []
    group = loaded.groups["kept"]
    assert (group.state.value, group.generation_id, group.leader_id) == ("Stable", 1, joined.member_id)
    assert group.members[joined.member_id].assignment == b"all"
    assert {tp.partition: value.offset for tp, value in group.offsets.committed.items()} == {0: 42, 1: 42}
