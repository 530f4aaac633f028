"""Which fetch copies a partition: two fetchers for each source, and what follows
when it cannot be reached."""

from pathlib import Path

import pytest

from barnabas.base.ids import TopicPartition
from barnabas.base.tasks import done_here
from barnabas.broker.replication.fetch_sources import FetchLanes, FetchSources, SourceStatus, Wakeup
from barnabas.broker.replication.fetcher import Fetcher
from barnabas.broker.replication.partition import Partition, StateChange
from barnabas.broker.replication.replica_manager import LeadershipOutcome
from support.broker import batch
from support.following import START_MS, T0, Pair

T1 = TopicPartition("t", 1)


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    return Pair(tmp_path)


def lanes_of(pair: Pair) -> FetchLanes:
    return FetchLanes(lambda for_in_sync: pair.another_fetcher(for_in_sync=for_in_sync))


def turn(pair: Pair, fetcher: Fetcher) -> None:
    pair.fetcher = fetcher
    pair.turn()


def follower_of(pair: Pair, name: TopicPartition, leader: int = 0, epoch: int = 0) -> Partition:
    partition = pair.partitions.setdefault(name, Partition(name, 1, pair.follower_log(name)))
    partition.follow(StateChange(leader, epoch, epoch, 1, (0, 1, 2), (0, 1, 2)))
    return partition


def test_a_partition_that_is_behind_gets_a_fetch_of_its_own_and_comes_back_when_it_has_caught_up(pair: Pair) -> None:
    """Its megabytes do not hold up the acknowledgements for partitions that are in sync."""
    log = pair.lead(0)
    for _ in range(3):
        log.append_as_leader(batch(b"x" * 1000), leader_epoch=0, now_ms=START_MS)
    log.update_high_watermark(3)
    pair.limits = pair.limits.__class__(1000, 1000, 1, 0, 100)
    lanes = lanes_of(pair)
    assert lanes.follow(follower_of(pair, T0)) == Wakeup(lanes.in_sync, at_once=True)
    turn(pair, lanes.in_sync)
    assert lanes.must_exchange(lanes.in_sync)
    woken = done_here(lanes.exchange(lanes.in_sync))
    assert woken is not None
    behind = woken.fetcher
    assert woken.at_once, "a fetch that has nothing to ask for waits at the source"
    assert (T0 in lanes.in_sync, T0 in behind) == (False, True)
    for _ in range(3):
        turn(pair, behind)
    assert pair.follower_log().log_end_offset == 3
    assert lanes.must_exchange(behind)
    assert done_here(lanes.exchange(behind)) == Wakeup(lanes.in_sync, at_once=False)
    assert done_here(lanes.exchange(lanes.in_sync)) is None
    assert (T0 in lanes.in_sync, T0 in behind) == (True, False)


def test_a_partition_whose_role_changes_while_others_are_exchanged_stays_where_it_is_wanted(pair: Pair) -> None:
    """Thousands are exchanged in slices."""
    names = [TopicPartition("t", number) for number in range(3)]
    lanes = lanes_of(pair)
    for name in names:
        log = pair.lead(0, name)
        for _ in range(2):
            log.append_as_leader(batch(b"x" * 1000), leader_epoch=0, now_ms=START_MS)
        log.update_high_watermark(2)
        lanes.follow(follower_of(pair, name))
    pair.limits = pair.limits.__class__(1000, 10_000, 1, 0, 100)
    lanes.in_sync._limits = pair.limits
    turn(pair, lanes.in_sync)
    exchange = lanes.exchange(lanes.in_sync)
    next(exchange)
    next(exchange)
    lanes.unfollow(names[1])
    lanes.follow(follower_of(pair, names[2], epoch=0))
    woken = done_here(exchange)
    assert woken is not None
    assert [name in woken.fetcher for name in names] == [True, False, True]
    assert [name in lanes.in_sync for name in names] == [False, False, False]


def test_nothing_moves_while_all_partitions_are_in_sync(pair: Pair) -> None:
    """There is no second fetch until one is needed."""
    pair.lead(0)
    lanes = lanes_of(pair)
    lanes.follow(follower_of(pair, T0))
    turn(pair, lanes.in_sync)
    assert done_here(lanes.exchange(lanes.in_sync)) is None
    assert lanes.fetchers == [lanes.in_sync]


def test_a_partition_is_copied_from_its_new_leader_only(pair: Pair) -> None:
    """It leaves the source before; one that lost its leader, is led here or is
    stopped leaves too."""
    sources = FetchSources(lambda for_in_sync: pair.another_fetcher(for_in_sync=for_in_sync))

    def copied_from() -> list[int]:
        return [source for source, lanes in sources.lanes.items() if T0 in lanes.in_sync]

    woken = sources.roles_changed(LeadershipOutcome(following=[follower_of(pair, T0), follower_of(pair, T1)]))
    assert woken == {0: Wakeup(sources.lanes[0].in_sync, at_once=True)}
    assert copied_from() == [0]
    sources.roles_changed(LeadershipOutcome(following=[follower_of(pair, T0, leader=2, epoch=1)]))
    assert copied_from() == [2]
    assert T1 in sources.lanes[0].in_sync
    assert sources.roles_changed(LeadershipOutcome(following=[follower_of(pair, T0, leader=-1, epoch=2)])) == {}
    assert copied_from() == []
    sources.roles_changed(LeadershipOutcome(following=[follower_of(pair, T0, leader=2, epoch=3)]))
    sources.roles_changed(LeadershipOutcome(gained=[pair.partitions[T0]]))
    assert copied_from() == []
    sources.roles_changed(LeadershipOutcome(following=[follower_of(pair, T0, leader=2, epoch=4)]))
    sources.roles_changed(LeadershipOutcome(stopped=[T0]))
    assert copied_from() == []


def test_the_pause_after_failures_doubles_up_to_the_limit_and_ends_with_an_answer() -> None:
    """replica.fetch.backoff.ms is the limit; below 20 ms there is none."""
    status = SourceStatus(100)
    pauses = []
    for _ in range(5):
        status.failed()
        pauses.append(status.backoff_ms)
    assert pauses == [20, 40, 80, 100, 100]
    status.succeeded()
    assert status.backoff_ms == 0


def test_a_source_becomes_unreachable_once_until_a_connection_succeeds() -> None:
    """Metadata hides its leaderships for a moment, and not again at each further attempt."""
    status = SourceStatus(100)
    assert not status.connected()
    assert [status.connection_broke(), status.connection_broke()] == [True, False]
    assert [status.connected(), status.connected()] == [True, False]
    assert status.connection_broke()
