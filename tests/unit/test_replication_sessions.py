"""Fetch sessions that look only at what has news: against full fetches, and what a leader
makes of followers' times."""

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.base.errors import ConfigError
from barnabas.base.ids import TopicPartition
from barnabas.base.tasks import done_here
from barnabas.broker.cluster.znodes import Endpoint
from barnabas.broker.metadata.cache import AliveBroker
from barnabas.broker.replication.partition import FetchSessionActivity, FollowerProgress, Leader
from barnabas.broker.replication.selection import PreferredReadReplica, ReplicaView, rack_aware, replica_selector
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
)
from support.broker import START_MS, DataPath, Wire, batch

VERSION = 11
PARTITIONS = 4
RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


def name(partition: int) -> TopicPartition:
    return TopicPartition("t", partition)


def wanted(partition: int, offset: int, max_bytes: int = 1 << 20) -> FetchPartition:
    return FetchPartition(
        partition=partition, current_leader_epoch=-1, fetch_offset=offset, partition_max_bytes=max_bytes
    )


def fetch(partitions: list[FetchPartition], session: tuple[int, int] = (0, -1), **options: Any) -> FetchRequest:
    return FetchRequest(
        replica_id=options.pop("replica_id", -1),
        max_wait_ms=options.pop("max_wait_ms", 0),
        min_bytes=1,
        max_bytes=options.pop("max_bytes", 1 << 20),
        session_id=session[0],
        session_epoch=session[1],
        topics=[FetchTopic(topic="t", partitions=partitions)] if partitions else [],
        **options,
    )


def sent(response: FetchResponse) -> dict[int, tuple[int, int, int]]:
    """For each partition that an answer names: bytes, high watermark, error."""
    return {
        data.partition_index: (len(data.records or b""), data.high_watermark, data.error_code)
        for topic in response.responses
        for data in topic.partitions
    }


class Reader:
    """A client with a session, who takes what it is given."""

    def __init__(self, broker: DataPath, replica_id: int, max_bytes: int) -> None:
        self.wire: Wire = broker.connect()
        self.options = {"replica_id": replica_id, "max_bytes": max_bytes}
        self.offsets = dict.fromkeys(range(PARTITIONS), 0)
        self.known: dict[int, tuple[int, int]] = {}
        self.moved: dict[int, None] = dict.fromkeys(range(PARTITIONS))
        self.session = (0, 0)
        self.read = dict.fromkeys(range(PARTITIONS), 0)

    def turn(self, batch_bytes: int) -> None:
        """One fetch. Every batch has one record and as many bytes."""
        asked = [wanted(partition, self.offsets[partition]) for partition in self.moved]
        response = self.wire.ask(fetch(asked, self.session, **self.options), VERSION)
        assert not response.error_code
        self.session = (response.session_id, self.session[1] + 1)
        self.moved = {}
        for partition, (size_bytes, high_watermark, error) in sent(response).items():
            self.known[partition] = (high_watermark, error)
            if size_bytes:
                self.offsets[partition] += size_bytes // batch_bytes
                self.moved[partition] = None


steps = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(0, PARTITIONS - 1)),
        st.tuples(st.just("fetch"), st.just(0)),
        st.tuples(st.just("drop"), st.integers(0, PARTITIONS - 1)),
        st.tuples(st.just("lead"), st.integers(0, PARTITIONS - 1)),
    ),
    max_size=30,
)


@settings(max_examples=60, deadline=None)
@given(steps=steps, replica_id=st.sampled_from((-1, 1)), max_bytes=st.sampled_from((1, 300, 1 << 20)))
def test_a_session_answers_in_the_end_what_a_full_fetch_answers(
    steps: list[tuple[str, int]], replica_id: int, max_bytes: int
) -> None:
    """Whatever happens to partitions between requests, and however little room answers
    have: nothing is passed over."""
    with tempfile.TemporaryDirectory() as directory:
        broker = DataPath(Path(directory))
        epochs = dict.fromkeys(range(PARTITIONS), 0)
        replicas = (0, 1) if replica_id == 1 else (0,)
        for partition in range(PARTITIONS):
            broker.lead("t", partition, replicas=replicas)
        reader = Reader(broker, replica_id, max_bytes)
        size = len(batch(b"x"))
        for what, partition in steps:
            log = broker.replicas.partition(name(partition)).log
            epochs[partition] += what in ("drop", "lead")
            if what == "append" and broker.replicas.partition(name(partition)).is_leader:
                broker.replicas.append(name(partition), batch(b"x"), acks=1, now_ms=START_MS)
            elif what == "fetch":
                reader.turn(size)
            elif what == "drop":
                broker.lead("t", partition, epoch=epochs[partition], leader=7, replicas=(7, *replicas))
            elif what == "lead":
                broker.lead("t", partition, epoch=epochs[partition], replicas=replicas)
            assert reader.offsets[partition] <= log.log_end_offset
        for _ in range(2 * PARTITIONS + sum(what == "append" for what, _ in steps)):
            reader.turn(size)
        for partition in range(PARTITIONS):
            found = broker.replicas.partition(name(partition))
            if found.is_leader:
                end = found.log.log_end_offset
                assert reader.offsets[partition] == end
                assert reader.known[partition] == (end, 0)
            elif replica_id == 1:
                assert reader.known[partition][1] == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_request_looks_at_no_partition_without_news(tmp_path: Path) -> None:
    """Once a follower has everything and its answer said so, its partitions rest; an append brings
    one back and wakes the fetch."""
    broker = DataPath(tmp_path)
    for partition in range(PARTITIONS):
        broker.lead("t", partition, replicas=(0, 1))
    reader = Reader(broker, 1, 1 << 20)
    reader.turn(1)
    reader.turn(1)
    (session,) = broker.fetch_sessions._sessions.values()
    assert session.changed == {}
    reader.wire.post(fetch([], reader.session, replica_id=1, max_wait_ms=500), VERSION)
    assert reader.wire.answer() is None
    broker.replicas.append(name(2), batch(b"x"), acks=1, now_ms=START_MS)
    broker.timers.advance(0)
    assert list(sent(reader.wire.answer())) == [2]


def sliced(directory: Path) -> DataPath:
    """A broker of 300 partitions whose slices end at their first yield."""
    broker = DataPath(directory)
    broker.clock.time_slice = lambda: lambda: True
    for partition in range(300):
        broker.lead("t", partition)
    return broker


@pytest.mark.parametrize("session", [(0, -1), (0, 0)], ids=["no session", "session"])
def test_a_fetch_of_many_partitions_is_read_in_slices_and_misses_nothing_between_them(
    tmp_path: Path, session: tuple[int, int]
) -> None:
    """What is appended to a partition that was read already is answered, as if all
    had been read at once."""
    broker = sliced(tmp_path)
    wire = broker.connect()
    wire.post(fetch([wanted(partition, 0) for partition in range(300)], session, max_wait_ms=500), VERSION)
    turns = 0
    while broker.timers.pending and wire.handler.busy and turns < 5:
        broker.timers.advance(0)
        turns += 1
    assert turns == 5
    assert wire.answer() is None
    broker.replicas.append(name(0), batch(b"x"), acks=1, now_ms=START_MS)
    while wire.handler.busy:
        broker.timers.advance(0)
    answer = wire.answer()
    assert {partition: size for partition, (size, _, _) in sent(answer).items() if size} == {0: len(batch(b"x"))}


def test_a_client_that_goes_during_the_slices_of_its_fetch_leaves_nothing_that_waits(tmp_path: Path) -> None:
    """Its fetch might wait for weeks, as long as the client asked for."""
    broker = sliced(tmp_path)
    wire = broker.connect()
    wire.post(fetch([wanted(partition, 0) for partition in range(300)], max_wait_ms=1 << 30), VERSION)
    broker.timers.advance(0)
    wire.close()
    for _ in range(50):
        broker.timers.advance(0)
    assert not broker.purgatory._by_key


def test_sessions_that_end_leave_no_watches_behind(tmp_path: Path) -> None:
    """Replaced, closed, or pushed out of the cache: a partition that never changes
    must not collect them."""
    broker = DataPath(tmp_path)
    broker.lead("t")
    wire = broker.connect()
    for _ in range(30):
        first = wire.ask(fetch([wanted(0, 0)], (0, 0)), VERSION)
        wire.ask(fetch([], (first.session_id, 1)), VERSION)
        if first.session_id:
            wire.ask(fetch([], (first.session_id, -1)), VERSION)
        broker.clock.now_ms += 200_000
    assert broker.purgatory._listeners == {}


def test_a_resting_partitions_follower_counts_as_caught_up_as_long_as_it_fetches(tmp_path: Path) -> None:
    """After an hour without records the first append must not find it lagging; after an
    hour of silence it does."""
    broker = DataPath(tmp_path)
    partition = broker.lead("t", replicas=(0, 1))
    for other in range(1, PARTITIONS):
        broker.lead("t", other, replicas=(0, 1))
    reader = Reader(broker, 1, 1 << 20)
    for _ in range(10):
        reader.turn(1)
        broker.clock.now_ms += 360_000
    reader.turn(1)
    replicas = broker.replicas
    replicas.append(name(0), batch(b"x"), acks=1, now_ms=broker.clock.wall_ms())
    done_here(replicas.shrink_isrs(broker.clock.wall_ms()))
    assert isinstance(partition.role, Leader)
    assert partition.role.pending_isr is None
    broker.clock.now_ms += 3_600_000
    done_here(replicas.shrink_isrs(broker.clock.wall_ms()))
    assert partition.role.pending_isr == {0}


@pytest.mark.parametrize("how", ["forgets", "is refused"])
def test_a_follower_that_gives_one_partition_up_lags_there_though_it_fetches_others(tmp_path: Path, how: str) -> None:
    """It cannot append what it got, say, and goes on without that partition: it leaves the
    set, and producers go on."""
    broker = DataPath(tmp_path)
    partition = broker.lead("t", replicas=(0, 1))
    for other in range(1, PARTITIONS):
        broker.lead("t", other, replicas=(0, 1))
    reader = Reader(broker, 1, 1 << 20)
    reader.turn(1)
    reader.turn(1)
    replicas = broker.replicas
    replicas.append(name(0), batch(b"x"), acks=1, now_ms=broker.clock.wall_ms())
    broker.clock.now_ms += 1000
    gone = [ForgottenTopic(topic="t", partitions=[0])] if how == "forgets" else []
    asked = [] if how == "forgets" else [wanted(0, 99)]
    reader.wire.ask(fetch(asked, reader.session, replica_id=1, forgotten_topics_data=gone), VERSION)
    reader.session = (reader.session[0], reader.session[1] + 1)
    for _ in range(4):
        broker.clock.now_ms += 10_000
        reader.turn(len(batch(b"x")))
    done_here(replicas.shrink_isrs(broker.clock.wall_ms()))
    assert isinstance(partition.role, Leader)
    assert partition.role.pending_isr == {0}
    others = [replicas.partition(name(other)).role for other in range(1, PARTITIONS)]
    assert all(isinstance(role, Leader) and role.pending_isr is None for role in others)


def test_a_session_that_goes_on_under_another_replica_id_proves_nothing(tmp_path: Path) -> None:
    """The fetches of replica 2 in the session of replica 1 are looked at whole and say
    nothing about replica 1."""
    broker = DataPath(tmp_path)
    partition = broker.lead("t", replicas=(0, 1, 2))
    one = Reader(broker, 1, 1 << 20)
    one.turn(1)
    one.turn(1)
    assert isinstance(partition.role, Leader)
    before = partition.role.followers[1].caught_up_ms
    broker.clock.now_ms += 60_000
    one.options["replica_id"] = 2
    one.turn(1)
    assert partition.role.followers[1].caught_up_ms == before
    assert partition.role.followers[2].log_end_offset == 0


def test_a_fetch_in_the_name_of_no_replica_moves_no_watermark(tmp_path: Path) -> None:
    """Forged or stale: a broker that is not assigned, an older leader epoch, an
    offset beyond the log."""
    broker = DataPath(tmp_path)
    partition = broker.lead("t", epoch=3, replicas=(0, 1))
    broker.replicas.append(name(0), batch(b"x"), acks=1, now_ms=START_MS)
    wire = broker.connect()
    for replica_id, epoch, offset, expected in (
        (9, 3, 1, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (9, -1, 1, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (1, 2, 1, ErrorCode.FENCED_LEADER_EPOCH),
        (1, 4, 1, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (1, 3, 99, ErrorCode.OFFSET_OUT_OF_RANGE),
        (0, 3, 1, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ):
        asked = wanted(0, offset)
        asked.current_leader_epoch = epoch
        answer = sent(wire.ask(fetch([asked], replica_id=replica_id), VERSION))
        assert answer[0][2] == expected
    assert partition.log.high_watermark == 0


def test_presence_counts_from_a_fetch_that_had_everything() -> None:
    """A follower that was behind is caught up as of its own fetches, not of the session's."""
    session_activity = FetchSessionActivity()
    progress = FollowerProgress()
    progress.fetched(5, 0, 5, 1000, session_activity)
    session_activity.last_fetch_ms = 2000
    assert progress.caught_up_ms == 2000
    progress.fetched(5, 0, 8, 3000, session_activity)
    session_activity.last_fetch_ms = 3000
    assert progress.caught_up_ms == 2000
    progress.fetched(8, 0, 9, 4000, session_activity)
    assert progress.caught_up_ms == 3000


# Reading from followers


def follow(broker: DataPath, end: int) -> None:
    """Make broker 0 a follower that has ``end`` records, of which one is committed."""
    broker.lead("t", epoch=0, replicas=(0, 1))
    for _ in range(end):
        broker.replicas.append(name(0), batch(b"x"), acks=1, now_ms=START_MS)
    broker.replicas.follower_fetched(name(0), 1, 1, 0, START_MS)
    broker.lead("t", epoch=1, leader=1, replicas=(1, 0))


def test_a_debugging_replica_reads_to_the_end_of_a_follower_and_a_consumer_to_the_watermark(tmp_path: Path) -> None:
    """Before version 11 consumers are sent to the leader; replica -2 never is."""
    broker = DataPath(tmp_path)
    follow(broker, 2)
    size = len(batch(b"x"))
    wire = broker.connect()
    for replica_id, version, expected in (
        (-2, 10, (2 * size, 1, 0)),
        (-2, 11, (2 * size, 1, 0)),
        (-1, 11, (size, 1, 0)),
        (-1, 10, (0, -1, ErrorCode.NOT_LEADER_OR_FOLLOWER)),
        (1, 11, (0, -1, ErrorCode.NOT_LEADER_OR_FOLLOWER)),
    ):
        assert sent(wire.ask(fetch([wanted(0, 0)], replica_id=replica_id), version))[0] == expected


def test_a_consumer_beyond_a_followers_end_is_out_of_range_there(tmp_path: Path) -> None:
    """It then asks the leader again, as KIP-392 has clients do; between watermark and
    end there is nothing yet."""
    broker = DataPath(tmp_path)
    follow(broker, 2)
    wire = broker.connect()
    assert sent(wire.ask(fetch([wanted(0, 1)]), VERSION))[0] == (0, 1, 0)
    assert sent(wire.ask(fetch([wanted(0, 3)]), VERSION))[0][2] == ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize(
    ("rack", "isr", "end", "expected"),
    [
        ("near", (0, 1, 2), 1, 1),
        ("near", (0, 2), 1, -1),  # not in sync: it may fall behind while it is read
        ("near", (0, 1, 2), 0, -1),  # it does not have the offset yet
        ("here", (0, 1, 2), 1, -1),
        ("nowhere", (0, 1, 2), 1, -1),
        ("", (0, 1, 2), 1, -1),
    ],
)
def test_a_leader_sends_a_consumer_to_an_in_sync_follower_in_its_rack(
    tmp_path: Path, rack: str, isr: tuple[int, ...], end: int, expected: int
) -> None:
    """Broker 1 is in rack near; the answer names it at once and has no records."""
    broker = DataPath(tmp_path)
    node = broker
    broker.fetch_handler.preferred_read_replica = PreferredReadReplica(
        0, "here", rack_aware, node.metadata.alive_broker
    )
    for broker_id, where in ((1, "near"), (2, "far")):
        endpoint = Endpoint("127.0.0.1", 9, "PLAINTEXT", "PLAINTEXT")
        node.metadata._brokers[broker_id] = AliveBroker(broker_id, where, {"PLAINTEXT": endpoint})
    broker.lead("t", replicas=(0, 1, 2), isr=isr)
    node.replicas.append(name(0), batch(b"x"), acks=1, now_ms=START_MS)
    for replica in (1, 2):
        node.replicas.follower_fetched(name(0), replica, end, 0, broker.clock.wall_ms())
    response = broker.connect().ask(fetch([wanted(0, 1)], rack_id=rack), VERSION)
    data = response.responses[0].partitions[0]
    assert data.preferred_read_replica == expected


def test_of_several_near_replicas_the_most_caught_up_is_chosen() -> None:
    """By end offset, then by time, then by id."""
    leader = ReplicaView(0, "a", 9, 0)
    near = [
        ReplicaView(1, "b", 7, 0),
        ReplicaView(2, "b", 8, 50),
        ReplicaView(3, "b", 8, 10),
        ReplicaView(4, "c", 9, 0),
    ]
    assert rack_aware("b", leader, near) == 3
    assert rack_aware("b", leader, [*near, ReplicaView(5, "b", 8, 10)]) == 5


def test_only_known_selectors_are_taken() -> None:
    """Other Java classes cannot be loaded here, and an unknown name must not be ignored."""
    assert replica_selector(None) is None
    assert replica_selector("") is None
    assert replica_selector(RACK_AWARE) is rack_aware
    with pytest.raises(ConfigError, match=r"com\.example\.Mine"):
        replica_selector("com.example.Mine")


# replica.lag.max.messages


def test_a_follower_too_many_records_behind_leaves_the_set_where_that_is_asked_for() -> None:
    """As in Kafka before 0.9; without the setting time alone decides."""
    role = Leader(0, frozenset({0, 1, 2}))
    role.followers = {
        1: FollowerProgress(log_end_offset=5, last_caught_up_ms=1000),
        2: FollowerProgress(log_end_offset=6, last_caught_up_ms=1000),
    }
    assert role.lagging(10, 1000, 500) == frozenset()
    assert role.lagging(10, 1000, 500, 4) == {1}
