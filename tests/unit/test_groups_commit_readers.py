"""The readers of OffsetCommit requests find the same in them, and lead to the same
answers, records and groups."""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.base import files
from barnabas.base.ids import TopicPartition, Uuid
from barnabas.base.tasks import done_here
from barnabas.broker.apis.offset_commit import read_message, response_to, set_codes
from barnabas.broker.apis.offset_commit_columns import read_offset_columns
from barnabas.broker.groups.commits import OffsetCommit, TopicOffsets
from barnabas.security.acls import AclOperation, ResourceType
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.codec import reader
from barnabas.wire.kafka.errors import ErrorCode as E
from barnabas.wire.kafka.errors import MalformedMessageError
from barnabas.wire.kafka.frames import decode_request_header, encode_request, encode_response
from barnabas.wire.kafka.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas.wire.kafka.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from barnabas.wire.kafka.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from barnabas.wire.kafka.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from support.broker import Wire
from support.group_broker import GROUP_APIS, TOPIC_ID, GroupBroker
from support.rights import Right, Rights

PARTITIONS = 70
IDS = {"t": TOPIC_ID, "täglich": Uuid(bytes([2]) * 16)}
DENIED: list[list[Right]] = [
    [(AclOperation.READ, ResourceType.TOPIC, "täglich")],
    [(AclOperation.READ, ResourceType.TOPIC, "t"), (AclOperation.READ, ResourceType.GROUP, "other")],
]
"""What a client may be without."""
MEMBER = "the member"
"""Stands for the id that the group gives."""


class Run:
    """A broker with a group, and two clients of it."""

    def __init__(
        self, directory: Path, *, is_fast: bool, is_replicated: bool, denied: Sequence[Right] | None = None
    ) -> None:
        """Without ``denied`` rights there is no authorizer."""
        self.directory = directory
        self.broker = GroupBroker(directory)
        if denied is not None:
            rights = Rights()
            rights.allow_everything()
            rights.deny(*denied)
            self.broker.serve(GROUP_APIS, groups=self.broker.groups, auth_helper=rights.helper)
        topics = [
            UpdateMetadataTopicState(
                topic_name=name,
                topic_id=topic_id,
                partition_states=[
                    UpdateMetadataPartitionState(partition_index=index, leader=0, replicas=[0], isr=[0])
                    for index in range(PARTITIONS)
                ],
            )
            for name, topic_id in IDS.items()
        ]
        self.broker.metadata.update(
            UpdateMetadataRequest(live_brokers=[UpdateMetadataBroker(id=1)], topic_states=topics)
        )
        self.broker.load(**({"replicas": (0, 1)} if is_replicated else {}))
        if not is_fast:
            self.broker.dispatcher.fast_apis.clear()
        self.wires = [self.broker.connect() for _ in range(2)]
        self.member_id = ""
        self.served = 0

    def join(self) -> None:
        """Make the group stable, with one member."""
        wire = self.broker.connect()
        request = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=60_000,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
            group_instance_id="i",
        )
        wire.post(request, 9)
        self.broker.timers.advance(0)
        joined = wire.answer()
        self.member_id = joined.member_id
        assignment = SyncGroupRequestAssignment(member_id=self.member_id, assignment=b"a")
        wire.post(
            SyncGroupRequest(
                group_id="g",
                generation_id=joined.generation_id,
                member_id=self.member_id,
                assignments=[assignment],
                group_instance_id="i",
            ),
            5,
        )

    def commit(self, step: dict[str, Any]) -> None:
        """Deliver a request as the network does, unless its connection waits for an answer."""
        wire = self.wires[step["wire"]]
        if wire.is_paused or wire.is_closed:
            return
        deliver(self, wire, frame_of(step, self.member_id))

    def state(self) -> dict[str, Any]:
        """Everything that the readers must leave alike."""
        coordinator = self.broker.groups.coordinator
        logs = {path.relative_to(self.directory): path.read_bytes() for path in self.directory.rglob("0*.*")}
        return {
            "wires": [(wire.sent, wire.is_paused, wire.is_closed) for wire in self.wires],
            "groups": {
                group.group_id: (
                    group.state,
                    group.offsets.committed,
                    group.offsets._record_offsets,
                    group.offsets._last_record_offset,
                    group.offsets._writing,
                    group.offsets._under_way,
                )
                for group in coordinator.groups()
            },
            "deadline": coordinator.next_deadline_ms(),
            "logs": logs,
            "waiting": len(self.broker.purgatory),
        }


def frame_of(step: dict[str, Any], member_id: str) -> bytearray:
    """The request of a step, with its length."""
    message = OffsetCommitRequest(
        group_id=step["group"],
        generation_id_or_member_epoch=step["generation"],
        member_id=member_id if step["member"] == MEMBER else step["member"],
        group_instance_id=step["instance"] if step["version"] >= 7 else None,
        retention_time_ms=step["retention"],
        topics=[
            OffsetCommitRequestTopic(
                name=name,
                topic_id=IDS.get(name, Uuid(bytes(16))),
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=index,
                        committed_offset=offset,
                        committed_leader_epoch=epoch,
                        committed_metadata=metadata,
                    )
                    for index, offset, epoch, metadata in partitions
                ],
            )
            for name, partitions in step["topics"]
        ],
    )
    frame = bytearray(
        b"".join(
            part.read() if isinstance(part, files.FileSlice) else bytes(part)
            for part in encode_request(message, step["version"], 5, step["client"])
        )
    )
    if step["damage"]:
        kind, at, value = step["damage"]
        if kind == "change":
            frame[4 + at % (len(frame) - 4)] ^= value
        elif kind == "lengthen":
            frame += bytes([value]) * (at % 20)
        else:
            del frame[max(len(frame) - at % 40, 14) :]
        frame[:4] = (len(frame) - 4).to_bytes(4, "big")
    return frame


def deliver(run: Run, wire: Wire, frame: bytearray) -> None:
    """Hand in a frame with its length, and another one behind it that has not arrived whole."""
    handler = wire.handler
    assert handler is not None
    data = memoryview(bytearray(frame + b"\0\0\1\0\0\x08"))
    taken = handler.take_from(data, 0)
    assert taken in (0, len(frame))
    run.served += bool(taken)
    if not taken:
        handler.frame(memoryview(bytearray(frame[4:])))


offsets = st.integers(-1, 1 << 62)
usual_partition = st.tuples(
    st.integers(0, 5), offsets, st.sampled_from([-1, 0, 7]), st.sampled_from(["", "", "", None])
)
odd_partition = st.tuples(
    st.sampled_from([0, 1, PARTITIONS - 1, PARTITIONS, -1]),
    offsets,
    st.sampled_from([-1, 0, 7]),
    st.sampled_from(["", None, "m", "m" * 5000]),
)
usual_topics = st.lists(
    st.tuples(st.sampled_from([*IDS]), st.lists(usual_partition, min_size=1, max_size=4)), min_size=1, max_size=2
)
odd_topics = st.lists(
    st.tuples(
        st.sampled_from([*IDS, "missing", ""]),
        st.one_of(
            st.lists(st.one_of(usual_partition, odd_partition), max_size=4),
            st.integers(60, 70).map(lambda count: [(index, 3, -1, "") for index in range(count)]),
        ),
    ),
    max_size=3,
)
some_unknown = st.integers(1, 3).map(lambda count: [("t", [(0, 1, -1, ""), (PARTITIONS - 2 + count, 2, 0, "")])])
usual_senders = st.sampled_from([(-1, "", None), (-1, "", None), (1, MEMBER, "i")])
odd_senders = st.tuples(
    st.sampled_from([-1, 0, 1, 2]), st.sampled_from(["", MEMBER, "x", "x" * 130]), st.sampled_from([None, "", "i", "j"])
)
damages = st.tuples(st.sampled_from(["change", "lengthen", "cut"]), st.integers(0, 300), st.integers(1, 255))


def commits(
    senders: st.SearchStrategy[tuple[int, str, str | None]], topics: st.SearchStrategy[Any], **fields: Any
) -> st.SearchStrategy[dict[str, Any]]:
    """Requests; ``fields`` may say what is not usual in them."""
    usual_fields: dict[str, Any] = {
        "kind": st.just("commit"),
        "wire": st.integers(0, 1),
        "version": st.integers(2, 9),
        "group": st.just("g"),
        "retention": st.just(-1),
        "client": st.just("c"),
        "damage": st.none(),
        **fields,
    }
    return st.builds(
        lambda sender, topics, **others: {
            **others,
            "generation": sender[0],
            "member": sender[1],
            "instance": sender[2],
            "topics": topics,
        },
        senders,
        topics,
        **usual_fields,
    )


odd_commits = commits(
    st.one_of(usual_senders, odd_senders),
    st.one_of(usual_topics, odd_topics),
    version=st.integers(2, 10),
    group=st.sampled_from(["g", "", "other", "grüße", "g" * 200]),
    retention=st.sampled_from([-1, -1, 5000]),
    client=st.sampled_from(["c", None, "", "c" * 600]),
)
steps = st.lists(
    st.one_of(
        *[commits(usual_senders, usual_topics)] * 3,
        commits(usual_senders, some_unknown),
        commits(usual_senders, odd_topics),
        commits(odd_senders, usual_topics),
        commits(usual_senders, usual_topics, damage=damages),
        odd_commits,
        *[st.builds(dict, kind=st.just(kind)) for kind in ("join", "follower reads", "time", "timeout", "stop")],
    ),
    min_size=6,
    max_size=12,
)


def take(run: Run, step: dict[str, Any]) -> None:
    broker = run.broker
    match step["kind"]:
        case "commit":
            run.commit(step)
        case "join":
            if not run.member_id and not any(wire.is_paused for wire in run.wires):
                run.join()
        case "follower reads":
            broker.follower_reads()
        case "time":
            broker.timers.advance(700)
        case "timeout":
            broker.timers.advance(5_001)
        case "stop":
            run.wires[1].close()


@settings(max_examples=100, deadline=None)
@given(steps, st.booleans(), st.sampled_from([None, None, *DENIED]))
def test_commits_leave_the_same_whichever_reader_reads_them(
    taken: list[dict[str, Any]], is_replicated: bool, denied: Sequence[Right] | None
) -> None:
    """Whatever comes, in whatever order and with whatever rights, the answers, the records and the
    groups are those of the general decoder."""
    with tempfile.TemporaryDirectory() as directory:
        runs = [
            Run(Path(directory) / name, is_fast=name == "fast", is_replicated=is_replicated, denied=denied)
            for name in ("fast", "general")
        ]
        for step in taken:
            for run in runs:
                take(run, step)
            assert runs[0].state() == runs[1].state()
        assert not runs[1].served


def values_of(commit: OffsetCommit) -> object:
    """All that a reader has found."""
    topics = [(*topic[:2], *map(list, topic[2:5]), topic.metadata and list(topic.metadata)) for topic in commit.topics]
    return commit.sender, topics, commit.retention_ms


def decoded(frame: memoryview) -> tuple[object, list[TopicOffsets], int, int] | None:
    """What the general decoder finds in a request, and the version and correlation id.

    None if it refuses it."""
    try:
        _, version, correlation_id, _, offset = decode_request_header(frame)
        message = reader(OffsetCommitRequest, version)(frame, offset)[0]
    except MalformedMessageError:
        return None
    commit = done_here(read_message(message, version, NAMES.get))
    return values_of(commit), commit.topics, version, correlation_id


NAMES = {topic_id: name for name, topic_id in IDS.items()}
some_codes = st.lists(st.sampled_from([E.NONE, E.NONE, E.NOT_COORDINATOR, E.UNKNOWN_TOPIC_OR_PARTITION]), min_size=1)


@settings(max_examples=300, deadline=None)
@given(
    st.one_of(commits(usual_senders, usual_topics, damage=st.one_of(st.none(), damages)), odd_commits),
    some_codes,
    st.booleans(),
)
def test_all_readers_find_the_same_in_a_commit(step: dict[str, Any], some: list[E], is_uniform: bool) -> None:
    """From columns and decoded: what the first reader does not leave is equal, and so is the
    answer, whatever its codes."""
    frame = memoryview(frame_of(step, "member"))[4:]
    if frame[:2] != b"\0\x08":
        return  # damage made it a request of another API, which no reader here is given
    # Another one follows, and has not come whole.
    data = memoryview(bytes(frame) + b"\0\0\1\0\0\x08")
    read = read_offset_columns(data, 0, len(frame), range(2, 11), NAMES.get)
    if read is None:
        has_metadata = any(text for _, partitions in step["topics"] for *_, text in partitions)
        count = sum(len(partitions) for _, partitions in step["topics"])
        assert (
            step["damage"]
            or has_metadata
            or not all(partitions for _, partitions in step["topics"])
            or not count <= 64
            or not count
        )
        return
    found_id, commit, words = read
    general = decoded(frame)
    assert general is not None
    values, topics, version, correlation_id = general
    assert (found_id, values_of(commit)) == (correlation_id, values)
    count = sum(len(topic.partitions) for topic in topics)
    codes = [some[0 if is_uniform else number % len(some)] for number in range(count)]
    response = done_here(response_to(topics))
    set_codes(response, codes)
    wanted = b"".join(map(bytes, encode_response(response, version, correlation_id)))
    assert words.encode(found_id, codes) == wanted


def usual(version: int, **fields: Any) -> dict[str, Any]:
    """A commit of two topics."""
    topics = [("t", [(0, 5, 0, ""), (3, 6, -1, None)]), ("täglich", [(1, 7, 0, "")])]
    sender = {"generation": -1, "member": "", "instance": None, "group": "g", "retention": -1, "client": "c"}
    return {**sender, "wire": 0, "version": version, "topics": topics, "damage": None, **fields}


@pytest.mark.parametrize("version", range(2, 11))
def test_a_usual_commit_is_served_from_its_bytes(tmp_path: Path, version: int) -> None:
    """The general decoder is not asked, in any version; the answer has no errors."""
    run = Run(tmp_path, is_fast=True, is_replicated=False)
    run.commit(usual(version))
    assert run.served == 1
    run.wires[0].asked.append((ApiKey.OFFSET_COMMIT, version))
    answer: OffsetCommitResponse = run.wires[0].answer()
    names = {topic_id: name for name, topic_id in IDS.items()}
    assert [
        (topic.name or names[topic.topic_id], [(each.partition_index, each.error_code) for each in topic.partitions])
        for topic in answer.topics
    ] == [("t", [(0, 0), (3, 0)]), ("täglich", [(1, 0)])]
    group = run.broker.groups.coordinator.find("g")
    assert group is not None
    assert {key: value.offset for key, value in group.offsets.committed.items()} == {
        TopicPartition("t", 0): 5,
        TopicPartition("t", 3): 6,
        TopicPartition("täglich", 1): 7,
    }


def test_a_commit_whose_disk_fails_is_answered_the_same_whichever_reader_reads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error is that of a coordinator whose log is lost."""
    runs = [Run(tmp_path / name, is_fast=name == "fast", is_replicated=False) for name in ("fast", "general")]

    def fail(*_: Any) -> None:
        raise OSError(5, "the disk is broken")

    for run in runs:
        run.commit(usual(7))
    monkeypatch.setattr(files._OsFile, "append", fail)
    for run in runs:
        run.commit(usual(7))
    assert runs[0].state() == runs[1].state()
    assert runs[0].wires[0].sent[-1].count(int(E.NOT_COORDINATOR).to_bytes(2, "big")) >= 3
    assert runs[0].served == 2
