"""Elections of leaders, as pure functions."""

from hypothesis import given
from hypothesis import strategies as st

from barnabas.broker.cluster.znodes import LeaderAndIsr
from barnabas.broker.controller.elections import (
    elect_for_reassignment,
    elect_for_shutdown,
    elect_offline,
    elect_preferred,
)

STATE = LeaderAndIsr(leader=0, leader_epoch=7, isr=(0, 1, 2), version=3)


def test_the_first_live_replica_in_sync_leads_and_the_isr_keeps_the_live() -> None:
    """The order is the assignment's, not the ISR's."""
    assert elect_offline((0, 2, 1), STATE, {1, 2}, unclean=False) == LeaderAndIsr(2, 8, (1, 2), 0, 3)


def test_without_a_live_replica_in_sync_no_leader_is_elected() -> None:
    """A replica out of sync lacks acknowledged records."""
    assert elect_offline((0, 1, 3), STATE, {3}, unclean=False) is None


def test_an_unclean_election_takes_a_live_replica_and_marks_recovery() -> None:
    """Only when no replica in sync is live, and only where it is allowed."""
    assert elect_offline((0, 1, 3), STATE, {3}, unclean=True) == LeaderAndIsr(3, 8, (3,), 1, 3)
    assert elect_offline((0, 1, 3), STATE, {1, 3}, unclean=True) == LeaderAndIsr(1, 8, (1,), 0, 3)


def test_a_preferred_election_takes_the_first_replica_or_none() -> None:
    """The ISR stays as it is."""
    assert elect_preferred((2, 0, 1), STATE, {0, 1, 2}) == LeaderAndIsr(2, 8, (0, 1, 2), 0, 3)
    assert elect_preferred((2, 0, 1), STATE, {0, 1}) is None


def test_a_reassignment_elects_among_the_target_replicas() -> None:
    """Those that leave do not lead."""
    assert elect_for_reassignment((3, 1), STATE, {0, 1, 3}) == LeaderAndIsr(1, 8, (0, 1, 2), 0, 3)
    assert elect_for_reassignment((3,), STATE, {0, 1, 3}) is None


def test_a_shutdown_moves_leadership_away_and_takes_the_leaving_from_the_isr() -> None:
    """The leaving broker may still be online."""
    assert elect_for_shutdown((0, 1, 2), STATE, {0, 1, 2}, {0}) == LeaderAndIsr(1, 8, (1, 2), 0, 3)
    assert elect_for_shutdown((0,), STATE._replace(isr=(0,)), {0}, {0}) is None


brokers = st.lists(st.integers(0, 5), unique=True, min_size=1)


@given(assignment=brokers, isr=brokers, live=st.sets(st.integers(0, 5)), unclean=st.booleans())
def test_an_elected_leader_is_live_assigned_and_in_its_own_isr(
    assignment: list[int], isr: list[int], live: set[int], unclean: bool
) -> None:
    """And the epoch is one more, whatever the cluster looks like."""
    state = LeaderAndIsr(-1, 4, tuple(isr))
    elected = elect_offline(assignment, state, live, unclean=unclean)
    clean = set(assignment) & set(isr) & live
    assert (elected is not None) == bool(clean or (unclean and set(assignment) & live))
    if elected is not None:
        assert elected.leader in live
        assert elected.leader in assignment
        assert elected.leader in elected.isr
        assert elected.leader_epoch == 5
        assert (elected.recovery_state == 1) == (not clean)
