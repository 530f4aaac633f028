"""The doctor's rules on groups, clients and clocks at their boundaries, without a cluster."""

import pytest

from barnabas.base.ids import TopicPartition
from barnabas.client.admin.configurations import ConfigEntry, ConfigSource
from barnabas.client.admin.groups import GroupDescription, GroupMember
from barnabas.client.cluster.admin_connection import Broker
from barnabas.doctor.amounts import duration, size
from barnabas.doctor.evidence.clocks import ClockReading, ClocksPart
from barnabas.doctor.evidence.cluster import MomentPart
from barnabas.doctor.evidence.configs import BrokerConfigsPart
from barnabas.doctor.evidence.coordination import Registration, ZnodesPart
from barnabas.doctor.evidence.groups import (
    STILL_MS,
    GroupHistoryPart,
    GroupPartition,
    GroupsPart,
    GroupTimes,
    GroupView,
    RebalancesPart,
)
from barnabas.doctor.rules import clocks, groups

NOW_MS = 1_700_000_000_000
MOMENT = MomentPart(now_ms=NOW_MS)
PLACE = TopicPartition("orders", 0)
HOUR_MS = 3_600_000


def view(
    *partitions: GroupPartition, state: str = "Stable", members: tuple[int, ...] = (1,), group_id: str = "g"
) -> GroupView:
    """A group with members that have this many partitions each."""
    description = GroupDescription(
        group_id,
        state,
        "range",
        Broker(1, "localhost", 9092, None),
        [
            GroupMember(
                f"m{number}", None, "client", "/127.0.0.1", [TopicPartition("orders", each) for each in range(count)]
            )
            for number, count in enumerate(members)
        ],
    )
    return GroupView(description, {TopicPartition("orders", number): each for number, each in enumerate(partitions)})


def history(
    *, unmoved_ms: int | None = None, state_ms: int | None = None, since_ms: int | None = None
) -> GroupHistoryPart:
    known = {} if unmoved_ms is None else {PLACE: unmoved_ms}
    return GroupHistoryPart(times={"g": GroupTimes(known, known, state_ms, since_ms)})


def retention(minutes: str) -> BrokerConfigsPart:
    name = "offsets.retention.minutes"
    entry = ConfigEntry(name, minutes, ConfigSource.STATIC_BROKER_CONFIG, False, True, [])
    return BrokerConfigsPart(entries={0: {name: entry}})


@pytest.mark.parametrize(
    ("unmoved_ms", "since_ms", "end_before", "members", "is_found"),
    [
        (NOW_MS - STILL_MS, None, 11, (1,), True),
        (NOW_MS - STILL_MS + 1, None, 11, (1,), False),
        (NOW_MS - STILL_MS, None, 10, (1,), False),
        (NOW_MS - STILL_MS, None, 11, (), False),
        (None, NOW_MS - STILL_MS, 11, (1,), True),
        (None, None, 11, (1,), False),
        (NOW_MS - STILL_MS, None, None, (1,), False),
    ],
)
def test_a_group_stands_still_when_both_offset_and_records_are_old(
    unmoved_ms: int | None, since_ms: int | None, end_before: int | None, members: tuple[int, ...], is_found: bool
) -> None:
    """Five minutes without a move, with a member, and a record that has waited as long."""
    group = view(GroupPartition(10, 0, 20, end_before=end_before), members=members)
    found = list(
        groups.group_stands_still(
            GroupsPart(groups=(group,)), history(unmoved_ms=unmoved_ms, since_ms=since_ms), MOMENT
        )
    )
    assert bool(found) is is_found


@pytest.mark.parametrize(
    ("minutes", "age_ms", "state", "is_found"),
    [
        ("10080", 6 * 24 * HOUR_MS, "Empty", True),
        ("10080", 6 * 24 * HOUR_MS - 1, "Empty", False),
        ("60", HOUR_MS * 3 // 4, "Empty", True),
        ("60", HOUR_MS * 3 // 4 - 1, "Empty", False),
        ("60", 2 * HOUR_MS, "Empty", True),
        ("60", 2 * HOUR_MS, "Stable", False),
    ],
)
def test_offsets_expire_soon_in_the_last_day_or_quarter(minutes: str, age_ms: int, state: str, is_found: bool) -> None:
    """The smaller of the two counts, from when the group became empty."""
    part = GroupsPart(groups=(view(GroupPartition(1, 0, 1), state=state, members=()),))
    found = list(groups.offsets_expire(part, history(state_ms=NOW_MS - age_ms), retention(minutes), MOMENT))
    assert bool(found) is is_found


def test_a_group_that_only_holds_offsets_expires_by_its_oldest_commit() -> None:
    """It has no state of its own, and what was not read is older than the reading."""
    part = GroupsPart(groups=(view(GroupPartition(1, 0, 1), state="Empty", members=()),))
    by_commit = list(groups.offsets_expire(part, history(unmoved_ms=NOW_MS - HOUR_MS), retention("61"), MOMENT))
    assert "expire in 1 minute" in by_commit[0].evidence[0]
    by_start = list(groups.offsets_expire(part, history(since_ms=NOW_MS - HOUR_MS), retention("61"), MOMENT))
    assert "without members for more than 1 hour" in by_start[0].evidence[0]


@pytest.mark.parametrize(
    ("counts", "rule"),
    [
        ((1, 0), "idle"),
        ((2, 0), "one"),
        ((2, 2, 0), "idle"),
        ((1, 1), None),
        ((0, 0), None),
        ((3,), None),
    ],
)
def test_members_are_idle_or_one_has_all(counts: tuple[int, ...], rule: str | None) -> None:
    """One of the two rules finds a member without a partition, never both."""
    part = GroupsPart(groups=(view(members=counts),))
    found = {
        name: bool(list(check(part)))
        for name, check in (("idle", groups.idle_members), ("one", groups.one_member_has_all))
    }
    assert found == {"idle": rule == "idle", "one": rule == "one"}
    assert not list(groups.idle_members(GroupsPart(groups=(view(state="PreparingRebalance", members=(1, 0)),))))


@pytest.mark.parametrize(("committed", "gone", "beyond"), [(4, 1, 0), (5, 0, 0), (9, 0, 0), (10, 0, 1)])
def test_offsets_are_within_the_log_from_its_start_to_its_end(committed: int, gone: int, beyond: int) -> None:
    """The end itself is no fault: it is where the next record goes."""
    part = GroupsPart(groups=(view(GroupPartition(committed, 5, 9)),))
    assert len(list(groups.committed_records_are_gone(part))) == gone
    assert len(list(groups.committed_beyond_the_end(part))) == beyond
    unknown = GroupsPart(groups=(view(GroupPartition(committed), GroupPartition(committed, is_deleted=True)),))
    assert not list(groups.committed_records_are_gone(unknown))
    assert not list(groups.committed_beyond_the_end(unknown))


def test_a_rebalance_counts_only_when_it_was_watched_for_long() -> None:
    """A coordinator waits 3 seconds for the first members: that is no fault."""
    states = {"g": "PreparingRebalance"}
    assert not list(groups.group_rebalances(RebalancesPart(states=states, watched_ms=3999)))
    assert list(groups.group_rebalances(RebalancesPart(states=states, watched_ms=4000)))


@pytest.mark.parametrize(
    ("offset_ms", "uncertainty_ms", "is_found"), [(5101, 100, True), (-5101, 100, True), (5100, 100, False)]
)
def test_a_clock_differs_by_more_than_the_reading_may_be_wrong(
    offset_ms: int, uncertainty_ms: int, is_found: bool
) -> None:
    """Five seconds beyond the uncertainty, in either direction."""
    part = ClocksPart(readings=(ClockReading("broker 0", offset_ms, uncertainty_ms, "a page"),))
    assert bool(list(clocks.clocks_differ_from_here(part))) is is_found


@pytest.mark.parametrize(("ahead_ms", "is_found"), [(5000, False), (5001, True), (-5000, False), (-5001, True)])
def test_a_registration_shows_a_clock_beyond_five_seconds(ahead_ms: int, is_found: bool) -> None:
    """A registration without a time shows none."""
    both = tuple(Registration(each, time_ms, NOW_MS, 7) for each, time_ms in ((0, NOW_MS + ahead_ms), (1, None)))
    part = ZnodesPart(lists={}, data_bytes={}, registrations=both, writable=())
    found = list(clocks.clocks_differed_at_registration(part))
    assert [each.subjects for each in found] == ([("broker 0",)] if is_found else [])


def test_times_and_sizes_have_whole_numbers_of_the_largest_unit() -> None:
    """With an s where there is more than one."""
    assert [duration(each) for each in (0, 999, 1000, 59_999, 60_000, 2 * HOUR_MS, 24 * HOUR_MS)] == [
        *("0 ms", "999 ms", "1 second", "59 seconds", "1 minute", "2 hours", "1 day"),
    ]
    assert [size(each) for each in (0, 1023, 1024, 5 << 40)] == ["0 bytes", "1023 bytes", "1.0 KiB", "5120.0 GiB"]
