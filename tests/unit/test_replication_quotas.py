"""Replication throttles: what is named, how the rate is measured, and who is held
back on either side."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.base.ids import TopicPartition
from barnabas.broker.replication.partition_fetch_state import FetchState
from barnabas.broker.replication.quotas import ReplicationQuota, ReplicationQuotas, throttled_partitions
from barnabas.wire.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from support.broker import START_MS, DataPath, batch
from support.following import LIMITS, Pair

T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)


@pytest.mark.parametrize(
    ("replicas", "expected"),
    [(["*"], None), ([], frozenset()), ([""], frozenset()), (["0:1", "3:2", "4:1"], frozenset({0, 4}))],
)
def test_a_list_names_partitions_of_this_broker(replicas: list[str], expected: frozenset[int] | None) -> None:
    """partition:broker pairs, of which only ours count; a star is all partitions."""
    assert throttled_partitions(replicas, 1) == expected


def test_a_topics_list_replaces_the_one_before() -> None:
    """An empty list ends the throttle."""
    quotas = ReplicationQuotas(1)
    quotas.leader.limit(10)
    quotas.configure_topic("t", ["0:1"], ["*"])
    assert (quotas.leader.is_throttled(T0), quotas.leader.is_throttled(T1)) == (True, False)
    assert quotas.follower.is_throttled(T1)
    quotas.configure_topic("t", [], [])
    assert not quotas.leader.is_throttled(T0)
    assert not quotas.leader.is_limited


def test_nothing_is_held_back_without_a_limit_or_without_a_named_replica() -> None:
    """Both the rate and the list must be there."""
    quota = ReplicationQuota(11, 1000)
    quota.record(10**9, 0)
    quota.throttle("t", None)
    assert not quota.is_exceeded(0)
    quota.limit(1)
    assert quota.is_exceeded(0)
    quota.throttle("t", frozenset())
    assert not quota.is_exceeded(0)


def test_a_burst_is_paid_back_by_a_pause_and_forgotten_after_the_windows() -> None:
    """The rate is the sum over the time since the oldest sample began, at least one window."""
    quota = ReplicationQuota(11, 1000)
    quota.throttle("t", None)
    quota.limit(1000)
    quota.record(5000, 0)
    assert quota.rate(0) == 5000
    assert quota.is_exceeded(4999)
    assert not quota.is_exceeded(5000)
    assert quota.rate(10_999) == pytest.approx(5000 / 10.999)
    assert quota.rate(11_000) == 0


@given(
    st.lists(st.tuples(st.integers(0, 3000), st.integers(1, 5000)), min_size=5, max_size=60),
    st.integers(100, 3000),
)
def test_sending_only_while_within_the_limit_keeps_the_average_to_it(
    attempts: list[tuple[int, int]], limit: int
) -> None:
    """Whatever the pieces: within any span the bytes stay below the limit's worth, but for
    what the last piece adds."""
    quota = ReplicationQuota(11, 1000)
    quota.throttle("t", None)
    quota.limit(limit)
    now_ms, sent, largest = 0, 0, 0
    for pause_ms, size_bytes in attempts:
        now_ms += pause_ms
        if not quota.is_exceeded(now_ms):
            quota.record(size_bytes, now_ms)
            sent += size_bytes
            largest = max(largest, size_bytes)
        # Pieces may overshoot once in a while that the windows remember.
        spans = now_ms / 11_000 + 1
        assert sent <= limit * (now_ms / 1000 + 1) + largest * (spans + 1)


# The leader's side


def fetch(replica_id: int, offset: int = 0) -> FetchRequest:
    wanted = FetchPartition(partition=0, current_leader_epoch=-1, fetch_offset=offset, partition_max_bytes=1 << 20)
    return FetchRequest(
        replica_id=replica_id,
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1 << 20,
        session_id=0,
        session_epoch=-1,
        topics=[FetchTopic(topic="t", partitions=[wanted])],
    )


def records(response: object) -> int:
    (topic,) = response.responses  # type: ignore[attr-defined]
    return len(topic.partitions[0].records or b"")


def test_a_leader_over_its_quota_sends_nothing_to_a_replica_out_of_sync(tmp_path: Path) -> None:
    """Replica 1 is in sync and is served; replica 2 is not, and waits until the rate
    is below the limit."""
    broker = DataPath(tmp_path)
    broker.lead("t", replicas=(0, 1, 2), isr=(0, 1))
    for _ in range(2):
        broker.replicas.append(T0, batch(b"x" * 1000), acks=1, now_ms=START_MS)
    quotas = broker.replication_quotas
    quotas.leader.throttle("t", None)
    quotas.leader.limit(100)
    wire = broker.connect()
    assert records(wire.ask(fetch(2), 10)) > 2000
    assert records(wire.ask(fetch(2), 10)) == 0
    assert records(wire.ask(fetch(1), 10)) > 2000
    broker.clock.now_ms += 60_000
    assert records(wire.ask(fetch(2), 10)) > 2000


def test_consumers_are_no_replicas(tmp_path: Path) -> None:
    """A throttle of replication neither counts nor holds back what consumers read."""
    broker = DataPath(tmp_path)
    broker.lead("t")
    broker.replicas.append(T0, batch(b"x" * 1000), acks=1, now_ms=START_MS)
    quota = broker.replication_quotas.leader
    quota.throttle("t", None)
    quota.limit(1)
    wire = broker.connect()
    for _ in range(3):
        assert records(wire.ask(fetch(-1), 10)) > 1000
    assert quota.rate(broker.clock.now_ms) == 0


# The follower's side


def test_a_follower_over_its_quota_asks_for_what_is_in_sync_only(tmp_path: Path) -> None:
    """What is behind is set aside until the rate allows it; a partition in sync goes on."""
    quota = ReplicationQuota(11, 1000)
    pair = Pair(tmp_path, quota, limits=replace(LIMITS, partition_bytes=1))
    quota.throttle("t", None)
    for name, isr in ((T0, (0,)), (T1, (0, 1))):
        pair.lead(0, name, isr=isr)
        pair.follow(0, name)
    for _ in range(9):
        pair.append(T0, b"x" * 1000)
    pair.append(T1, b"a")
    for _ in range(4):
        pair.turn()
    in_sync, behind = pair.follower_log(T1), pair.follower_log(T0)
    assert in_sync.high_watermark == 1
    reached = behind.log_end_offset
    assert 0 < reached < 9
    quota.limit(100)
    assert pair.fetcher.wake(pair.now_ms) == 50
    assert pair.fetcher.state_of(T0) is FetchState.DELAYED
    assert pair.fetcher.state_of(T1) is FetchState.FETCHING
    pair.append(T1, b"b")
    pair.turn()
    assert (in_sync.log_end_offset, behind.log_end_offset) == (2, reached)
    pair.now_ms += 60_000
    assert pair.fetcher.wake(pair.now_ms) is None
    pair.turn()
    assert behind.log_end_offset == reached + 1


def test_an_election_under_a_throttle_pushes_no_replica_out_of_the_in_sync_set(tmp_path: Path) -> None:
    """In a new epoch a follower does not know yet whether it is in sync: one answer
    shows it, whatever the rate."""
    quota = ReplicationQuota(11, 1000)
    pair = Pair(tmp_path, quota, limits=replace(LIMITS, partition_bytes=1))
    quota.throttle("t", None)
    quota.limit(1)
    quota.record(1 << 20, pair.now_ms)
    for name, isr in ((T0, (0,)), (T1, (0, 1))):
        pair.lead(0, name, isr=isr)
        for _ in range(3):
            pair.append(name, b"x")
        pair.follow(0, name)
    for _ in range(4):
        pair.fetcher.wake(pair.now_ms)
        pair.turn()
    assert pair.follower_log(T1).log_end_offset == 3
    assert pair.follower_log(T0).log_end_offset <= 1
