"""Joining, synchronizing, heartbeats and leaving, on virtual time."""

from itertools import pairwise

import pytest

from barnabas.broker.groups.group import GROUP_TRANSITIONS, Group, GroupState
from barnabas.broker.groups.membership import NEW_MEMBER_JOIN_TIMEOUT_MS
from barnabas.wire.kafka.errors import ErrorCode as E
from barnabas.wire.kafka.messages.join_group import JoinGroupResponse
from support.groups import RANGE, World

# Joining


def joined_members(world: World, count: int) -> tuple[Group, list[JoinGroupResponse]]:
    """A group that has begun its first generation with this many members, and the
    answers that they got."""
    ids = [world.join().response.member_id for _ in range(count)]
    waiting = [world.join(member_id=member_id, session_ms=600_000) for member_id in ids]
    while waiting[0].waits:
        world.advance(3000)
    group = world.coordinator.find("g")
    assert group is not None
    return group, [answer.response for answer in waiting]


def reach_next_deadline(world: World) -> None:
    """Go to the next deadline, and no further."""
    due = world.coordinator.next_deadline_ms()
    assert due is not None
    world.ms = max(world.ms, due)
    world.perform(world.coordinator.tick(world.now))


@pytest.mark.parametrize("which", ["join", "sync"])
def test_thousands_of_late_members_are_removed_in_steps(which: str) -> None:
    """Those that do not rejoin, and those that never ask for their assignment; the
    group is the same at the end."""
    world = World(initial_rebalance_delay_ms=3000)
    group, joined = joined_members(world, 1200)
    if which == "join":
        leader = next(answer for answer in joined if answer.members)
        world.sync(leader, dict.fromkeys([each.member_id for each in joined], b""))
        again = world.join(member_id=leader.member_id)
        assert group.state is GroupState.PREPARING_REBALANCE
    counts = [len(group.members)]
    while len(group.members) > (which == "join"):
        reach_next_deadline(world)
        if len(group.members) != counts[-1]:
            counts.append(len(group.members))
    assert max(before - after for before, after in pairwise(counts)) <= 500
    world.settle()
    if which == "join":
        assert not again.waits
        assert [each.member_id for each in again.response.members] == [leader.member_id]
    else:
        world.advance(10)
        assert group.state is GroupState.EMPTY


@pytest.mark.parametrize("come_back", [False, True])
def test_a_group_whose_late_members_are_being_removed_rebalances(*, come_back: bool) -> None:
    """Those that ask for their assignment between two steps do not get one that the
    leader did not make."""
    world = World(initial_rebalance_delay_ms=3000)
    group, joined = joined_members(world, 600)
    generation_id = group.generation_id
    while len(group.members) == 600:
        reach_next_deadline(world)
    left = [each for each in joined if each.member_id in group.members]
    assert len(left) == 100
    assert {world.sync(each).error for each in left} == {E.REBALANCE_IN_PROGRESS}
    again = [world.join(member_id=each.member_id) for each in left] if come_back else []
    world.advance(10)
    assert group.generation_id == generation_id + 1
    assert len(group.members) == len(again)
    assert all(answer.error == E.NONE for answer in again)
    assert group.state is (GroupState.COMPLETING_REBALANCE if come_back else GroupState.EMPTY)


def test_first_join_of_a_dynamic_member_is_sent_back_with_a_member_id() -> None:
    """KIP-394: no member is counted before it knows its own id."""
    world = World()
    answer = world.join()
    assert answer.error == E.MEMBER_ID_REQUIRED
    assert answer.response.member_id.startswith("client-")
    assert world.state() == "Empty"


@pytest.mark.parametrize("name", [{"client_id": "c" * 32_767}, {"instance": "i" * 32_767}])
def test_the_member_id_of_a_client_with_the_longest_name_fits_into_answers(name: dict[str, str]) -> None:
    """Otherwise the answer to the leader of the group, with all members in it, could
    not be sent."""
    answer = World().join(version=5, **name)
    assert len(answer.response.member_id) < 300


@pytest.mark.parametrize(
    ("protocols", "error"),
    [
        ((("range", bytes((1 << 20) - 5)),), E.NONE),
        ((("range", bytes((1 << 20) - 4)),), E.INVALID_REQUEST),
        (tuple((f"p{number}", bytes(20_000)) for number in range(60)), E.INVALID_REQUEST),
        (tuple((f"p{number}", b"") for number in range(101)), E.INVALID_REQUEST),
    ],
    ids=["largest", "metadata", "all metadata", "protocols"],
)
def test_a_member_with_more_metadata_than_a_group_may_keep_is_refused(
    protocols: tuple[tuple[str, bytes], ...], error: E
) -> None:
    """A member's metadata stays in memory, so one request must not bring 100 MB of it."""
    world = World()
    assert world.join(version=3, protocols=protocols).error == error
    assert (world.coordinator.find("g") is None) == bool(error)


def test_old_version_joins_without_being_sent_back() -> None:
    """Before version 4 a join without a member id makes a member at once."""
    world = World()
    answer = world.join(version=3)
    assert answer.error == E.NONE
    assert answer.response.generation_id == 1
    assert answer.response.leader == answer.response.member_id


def test_single_member_becomes_leader_and_gets_what_it_assigned() -> None:
    """The shortest whole rebalance."""
    world = World()
    joined = world.start_join().response
    assert (joined.leader, joined.protocol_name, joined.protocol_type) == (joined.member_id, "range", "consumer")
    assert [(m.member_id, m.metadata) for m in joined.members] == [(joined.member_id, b"r")]
    assert world.state() == "CompletingRebalance"
    synced = world.sync(joined, {joined.member_id: b"all"})
    assert (synced.error, synced.response.assignment) == (E.NONE, b"all")
    assert synced.response.protocol_name == "range"
    assert world.state() == "Stable"


def test_initial_delay_lets_further_members_into_the_first_generation() -> None:
    """group.initial.rebalance.delay.ms: both are in generation 1, and only the
    leader sees the members."""
    world = World(initial_rebalance_delay_ms=3_000)
    first = world.start_join()
    world.advance(2_000)
    second = world.start_join()
    assert first.waits
    assert second.waits
    world.advance(1_000)
    assert first.waits, "a member came: the delay begins again"
    world.advance(3_000)
    assert first.response.generation_id == second.response.generation_id == 1
    assert len(first.response.members) == 2
    assert second.response.members == []


def test_initial_delay_ends_with_the_rebalance_timeout_however_many_come() -> None:
    """Members that keep coming cannot hold the first generation up for ever."""
    world = World(initial_rebalance_delay_ms=3_000)
    first = world.start_join(rebalance_ms=7_000)
    for _ in range(10):
        world.advance(1_000)
        if first.waits:
            world.start_join(rebalance_ms=7_000)
    assert first.error == E.NONE


@pytest.mark.parametrize(
    ("session_ms", "error"),
    [
        (5_999, E.INVALID_SESSION_TIMEOUT),
        (6_000, E.MEMBER_ID_REQUIRED),
        (1_800_000, E.MEMBER_ID_REQUIRED),
        (1_800_001, E.INVALID_SESSION_TIMEOUT),
    ],
)
def test_session_timeout_must_be_within_the_brokers_bounds(session_ms: int, error: E) -> None:
    """group.min.session.timeout.ms and group.max.session.timeout.ms."""
    assert World().join(session_ms=session_ms).error == error


@pytest.mark.parametrize(
    ("group", "member", "error"),
    [("", "", E.INVALID_GROUP_ID), ("g", "unheard-of", E.UNKNOWN_MEMBER_ID)],
)
def test_join_that_cannot_be_placed_is_refused(group: str, member: str, error: E) -> None:
    """The empty group id; a member id that was never assigned."""
    assert World().join(group, member).error == error


def test_join_without_a_common_protocol_is_refused_without_a_rebalance() -> None:
    """INCONSISTENT_GROUP_PROTOCOL, for the name and for the protocol type."""
    world = World()
    [member] = world.stable()
    assert world.join(protocols=(("sticky", b""),)).error == E.INCONSISTENT_GROUP_PROTOCOL
    assert world.join(protocol_type="connect").error == E.INCONSISTENT_GROUP_PROTOCOL
    assert World().join(protocols=()).error == E.INCONSISTENT_GROUP_PROTOCOL
    assert world.heartbeat(member) == E.NONE


def test_protocol_is_chosen_by_votes_among_those_that_all_support() -> None:
    """Two of three prefer sticky; what only one knows is no candidate."""
    world = World(initial_rebalance_delay_ms=1_000)
    sticky = (("only-mine", b""), ("sticky", b"s"), ("range", b"r"))
    joins = [world.start_join(protocols=(*RANGE, ("sticky", b"s")))]
    joins += [world.start_join(protocols=sticky) for _ in range(2)]
    world.advance(5_000)
    assert [join.response.protocol_name for join in joins] == ["sticky"] * 3
    assert [member.metadata for member in joins[0].response.members] == [b"s"] * 3


def test_second_member_sets_off_a_rebalance_that_heartbeats_announce() -> None:
    """The first learns it from its heartbeat, joins again, and both are in generation 2."""
    world = World()
    [first] = world.stable()
    second = world.start_join()
    assert second.waits
    assert world.heartbeat(first) == E.REBALANCE_IN_PROGRESS
    again = world.join(member_id=first.member_id)
    assert again.response.generation_id == second.response.generation_id == 2
    assert again.response.leader == second.response.leader == first.member_id
    assert world.heartbeat(first) == E.ILLEGAL_GENERATION


def test_pending_member_holds_the_rebalance_up_until_its_time_out() -> None:
    """A member id was given out and is not used: the others wait for it no longer
    than a session."""
    world = World()
    [first] = world.stable(session_ms=30_000)
    world.new_id(session_ms=8_000)
    # The leader asks for a rebalance.
    again = world.join(member_id=first.member_id, session_ms=30_000)
    assert again.waits
    world.advance(7_999)
    assert again.waits
    world.advance(1)
    assert again.response.generation_id == 2


def test_follower_that_joins_again_unchanged_is_answered_without_a_rebalance() -> None:
    """It may have lost the answer; no other member is affected."""
    world = World()
    leader, follower = world.stable(2)
    again = world.join(member_id=follower.member_id)
    assert again.response.generation_id == leader.generation_id
    assert again.response.members == []
    assert world.state() == "Stable"


def test_leader_that_joins_again_sets_off_a_rebalance() -> None:
    """It saw partitions come or go."""
    world = World()
    leader, follower = world.stable(2)
    again = world.join(member_id=leader.member_id)
    assert again.waits
    assert world.heartbeat(follower) == E.REBALANCE_IN_PROGRESS


def test_member_with_changed_metadata_sets_off_a_rebalance() -> None:
    """A follower subscribes to something else."""
    world = World()
    _, follower = world.stable(2)
    assert world.join(member_id=follower.member_id, protocols=(("range", b"other"),)).waits
    assert world.state() == "PreparingRebalance"


def test_members_that_do_not_join_in_time_are_left_behind() -> None:
    """The rebalance continues without them after the longest rebalance timeout."""
    world = World()
    leader, sleeper = world.stable(2, session_ms=30_000, rebalance_ms=20_000)
    again = world.join(member_id=leader.member_id, session_ms=30_000, rebalance_ms=20_000)
    world.advance(10_000)
    assert world.heartbeat(sleeper) == E.REBALANCE_IN_PROGRESS
    world.advance(10_000)
    assert [member.member_id for member in again.response.members] == [leader.member_id]
    assert world.heartbeat(sleeper) == E.UNKNOWN_MEMBER_ID
    assert world.sync(sleeper).error == E.UNKNOWN_MEMBER_ID


def test_leader_that_does_not_join_in_time_is_succeeded() -> None:
    """One of the members that joined leads the next generation."""
    world = World()
    leader, follower = world.stable(2, rebalance_ms=5_000)
    again = world.join(member_id=follower.member_id, protocols=(("range", b"new"),), rebalance_ms=5_000)
    world.advance(5_000)
    assert again.response.leader == follower.member_id
    assert world.heartbeat(leader) == E.UNKNOWN_MEMBER_ID


def test_new_member_whose_client_is_gone_is_dropped_after_five_minutes() -> None:
    """It cannot send heartbeats while it waits; the rebalance ends without it."""
    world = World()
    [first] = world.stable(session_ms=1_800_000, rebalance_ms=1_800_000)
    second = world.start_join(rebalance_ms=1_800_000)
    world.advance(NEW_MEMBER_JOIN_TIMEOUT_MS - 1)
    assert second.waits
    world.advance(1)
    assert second.error == E.UNKNOWN_MEMBER_ID
    again = world.join(member_id=first.member_id)
    assert [member.member_id for member in again.response.members] == [first.member_id]


def test_join_repeated_while_it_waits_answers_the_first_one() -> None:
    """A retry on a new connection: the old connection must not wait for ever."""
    world = World()
    world.stable()
    member_id = world.new_id()
    first = world.join(member_id=member_id)
    second = world.join(member_id=member_id)
    assert first.error == E.REBALANCE_IN_PROGRESS
    assert second.waits


def test_group_size_limit_refuses_the_member_too_many() -> None:
    """group.max.size (KIP-389); members are not affected."""
    world = World(max_size=2)
    members = world.stable(2)
    assert world.join().error == E.GROUP_MAX_SIZE_REACHED
    assert [world.heartbeat(member) for member in members] == [E.NONE, E.NONE]


def test_group_over_its_limit_after_a_reload_rebalances_to_fit() -> None:
    """The limit was lowered while the broker was down: the last to join again has to go."""
    world = World()
    members = world.stable(3)
    world.settings = type(world.settings)(initial_rebalance_delay_ms=0, max_size=2)
    world.reload()
    assert world.state() == "PreparingRebalance"
    answers = [world.join(member_id=member.member_id) for member in members]
    assert [answer.error for answer in answers] == [E.NONE, E.NONE, E.GROUP_MAX_SIZE_REACHED]


# SyncGroup


def test_follower_waits_for_the_leaders_assignment() -> None:
    """The first to sync waits; members that the leader left out get an empty assignment."""
    world = World()
    [first] = world.stable()
    second = world.start_join()
    leader = world.join(member_id=first.member_id).response
    waiting = world.sync(second.response)
    assert waiting.waits
    synced = world.sync(leader, {leader.member_id: b"mine", "stranger": b"?"})
    assert synced.response.assignment == b"mine"
    assert (waiting.error, waiting.response.assignment) == (E.NONE, b"")


def test_assignment_is_handed_out_only_when_it_is_committed() -> None:
    """A reply before the commit could be undone by a crash."""
    world = World()
    joined = world.start_join().response
    world.hold()
    synced = world.sync(joined, {joined.member_id: b"a"})
    assert synced.waits
    assert world.state() == "CompletingRebalance"
    world.release()
    assert synced.response.assignment == b"a"
    assert world.state() == "Stable"


@pytest.mark.parametrize(
    ("log_error", "answered"),
    [
        (E.NOT_ENOUGH_REPLICAS, E.COORDINATOR_NOT_AVAILABLE),
        (E.NOT_LEADER_OR_FOLLOWER, E.NOT_COORDINATOR),
        (E.REQUEST_TIMED_OUT, E.REBALANCE_IN_PROGRESS),
        (E.MESSAGE_TOO_LARGE, E.UNKNOWN_SERVER_ERROR),
    ],
)
def test_assignment_that_cannot_be_stored_sends_all_members_back(log_error: E, answered: E) -> None:
    """Waiting members get an error that they know, and the group rebalances."""
    world = World()
    joined = world.start_join().response
    world.hold()
    synced = world.sync(joined, {joined.member_id: b"a"})
    world.release(log_error)
    assert synced.error == answered
    assert world.state() == "PreparingRebalance"


@pytest.mark.parametrize("size_bytes", [16 << 20, (16 << 20) + 1])
def test_assignments_beyond_what_a_record_can_hold_are_refused_before_it_is_made(size_bytes: int) -> None:
    """As when the log refuses them; their copies would take several times the memory."""
    world = World()
    joined = world.start_join().response
    world.hold()
    other = bytes(size_bytes - 2 * len(joined.member_id) - 1)
    synced = world.sync(joined, {joined.member_id: b"a", "x" * len(joined.member_id): other})
    is_refused = size_bytes > 16 << 20
    assert (len(world.held), synced.waits) == ((0, False) if is_refused else (1, True))
    assert world.state() == ("PreparingRebalance" if is_refused else "CompletingRebalance")
    if is_refused:
        assert synced.error == E.UNKNOWN_SERVER_ERROR


def test_assignment_committed_after_a_new_rebalance_began_is_not_used() -> None:
    """A member joined while the assignment was on its way to the log."""
    world = World()
    joined = world.start_join().response
    world.hold()
    synced = world.sync(joined, {joined.member_id: b"old"})
    newcomer = world.start_join()
    assert synced.error == E.REBALANCE_IN_PROGRESS
    world.release()
    assert world.state() == "PreparingRebalance"
    again = world.join(member_id=joined.member_id).response
    assert again.generation_id == newcomer.response.generation_id == 2


def test_assignment_of_an_earlier_generation_is_not_taken_for_the_current_one() -> None:
    """It is committed late, when the next generation waits for its own."""
    world = World()
    joined = world.start_join().response
    world.hold()
    world.sync(joined, {joined.member_id: b"old"})
    again = world.join(member_id=joined.member_id, protocols=(("range", b"new"),)).response
    assert again.generation_id == 2
    world.release()
    assert world.state() == "CompletingRebalance"
    assert world.sync(again, {again.member_id: b"new"}).response.assignment == b"new"


def test_sync_in_a_stable_group_repeats_the_assignment() -> None:
    """The answer was lost on the way."""
    world = World()
    [member] = world.stable()
    assert world.sync(member).response.assignment == member.member_id.encode()


def test_sync_during_a_rebalance_sends_the_member_back_to_join() -> None:
    """REBALANCE_IN_PROGRESS, also for members that were about to get their assignment."""
    world = World()
    leader, follower = world.stable(2)
    world.join(member_id=leader.member_id)
    assert world.sync(follower).error == E.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"generation": 0}, E.ILLEGAL_GENERATION),
        ({"protocol_type": "connect"}, E.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_name": "sticky"}, E.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": "consumer", "protocol_name": "range"}, E.NONE),
        ({"group_id": ""}, E.INVALID_GROUP_ID),
        ({"group_id": "other"}, E.UNKNOWN_MEMBER_ID),
        ({"instance": "nobody"}, E.UNKNOWN_MEMBER_ID),
    ],
)
def test_sync_checks_the_member_that_asks(changes: dict[str, object], error: E) -> None:
    """Generation, protocol (KIP-559), group and instance."""
    world = World()
    [member] = world.stable()
    assert world.sync(member, **changes).error == error  # type: ignore[arg-type]


def test_members_that_never_sync_are_removed() -> None:
    """After the rebalance timeout the group continues without them."""
    world = World()
    [first] = world.stable(session_ms=60_000, rebalance_ms=20_000)
    second = world.start_join(session_ms=60_000, rebalance_ms=20_000)
    leader = world.join(member_id=first.member_id, session_ms=60_000, rebalance_ms=20_000).response
    assert world.sync(leader, {}).error == E.NONE
    world.advance(19_999)
    assert world.heartbeat(second.response) == E.NONE
    world.advance(1)
    assert world.heartbeat(second.response) == E.UNKNOWN_MEMBER_ID
    assert world.heartbeat(leader) == E.REBALANCE_IN_PROGRESS


# Heartbeats and sessions


def test_session_ends_without_heartbeats_and_lasts_with_them() -> None:
    """The session timeout counts from the last sign of life."""
    world = World()
    [member] = world.stable(session_ms=10_000)
    for _ in range(5):
        world.advance(9_999)
        assert world.heartbeat(member) == E.NONE
    world.advance(10_000)
    assert world.heartbeat(member) == E.UNKNOWN_MEMBER_ID
    assert world.state() == "Empty"


def test_hundreds_of_members_that_expire_at_once_go_some_at_a_time() -> None:
    """Others are served between two steps, and a member whose turn has not come may still join."""
    world = World()
    [first] = world.stable(session_ms=30_000)
    ids = [world.new_id(session_ms=8_000) for _ in range(600)]
    # The leader asks for a rebalance.
    again = world.join(member_id=first.member_id, session_ms=30_000)
    world.ms += 8_000
    world.perform(world.coordinator.tick(world.now))
    assert again.waits
    assert world.coordinator.next_deadline_ms() == world.ms
    last = world.join(member_id=ids[-1])
    world.settle()
    assert again.response.generation_id == last.response.generation_id == 2
    assert world.join(member_id=ids[-2]).error == E.UNKNOWN_MEMBER_ID


def test_offset_commit_is_a_sign_of_life() -> None:
    """A consumer that commits is not dead."""
    world = World()
    [member] = world.stable(session_ms=10_000)
    for _ in range(5):
        world.advance(9_999)
        assert world.commit({("t", 0): 1}, member).response.topics[0].partitions[0].error_code == E.NONE
    assert world.heartbeat(member) == E.NONE


def test_member_that_waits_for_an_answer_does_not_expire() -> None:
    """It cannot send heartbeats meanwhile; its session restarts with the answer."""
    world = World()
    leader, follower = world.stable(2, session_ms=10_000, rebalance_ms=50_000)
    again = world.join(member_id=leader.member_id, session_ms=10_000, rebalance_ms=50_000)
    for _ in range(4):
        world.advance(9_000)
        assert world.heartbeat(follower) == E.REBALANCE_IN_PROGRESS
    assert again.waits
    world.join(member_id=follower.member_id, session_ms=10_000, rebalance_ms=50_000)
    assert again.error == E.NONE
    world.advance(9_999)
    assert world.heartbeat(again.response) == E.NONE


def test_wall_clock_jump_ends_no_session() -> None:
    """Timeouts run on the monotonic clock."""
    world = World()
    [member] = world.stable()
    world.wall_ms += 3_600_000
    world.settle()
    assert world.heartbeat(member) == E.NONE


def test_heartbeat_in_an_unknown_group_is_of_an_unknown_member() -> None:
    """The group may have been deleted."""
    world = World()
    [member] = world.stable()
    assert world.heartbeat(member, group_id="other") == E.UNKNOWN_MEMBER_ID
    assert world.heartbeat(member, instance="nobody") == E.UNKNOWN_MEMBER_ID


# Leaving


def test_member_that_leaves_sets_off_a_rebalance() -> None:
    """The others take over at once, without waiting for a session to end."""
    world = World()
    leader, follower = world.stable(2)
    assert world.leave((leader.member_id, None)) == [E.NONE]
    assert world.heartbeat(follower) == E.REBALANCE_IN_PROGRESS
    again = world.join(member_id=follower.member_id)
    assert again.response.leader == follower.member_id


def test_last_member_that_leaves_empties_the_group_in_a_new_generation() -> None:
    """The empty generation is stored, so that it survives a reload."""
    world = World()
    [member] = world.stable()
    assert world.leave((member.member_id, None)) == [E.NONE]
    assert world.state() == "Empty"
    world.reload()
    assert world.state() == "Empty"
    assert world.start_join().response.generation_id == 3


def test_each_leaving_member_gets_its_own_answer() -> None:
    """Version 3: a stranger, a pending member, a member and a static member by instance alone."""
    world = World(initial_rebalance_delay_ms=1_000)
    dynamic = world.start_join()
    static = world.join(instance="s")
    world.advance(3_000)
    world.stabilize([dynamic.response, static.response])
    pending = world.new_id()
    leaving = [("stranger", None), (pending, None), (dynamic.response.member_id, None), ("", "s"), ("", "nobody")]
    assert world.leave(*leaving) == [E.UNKNOWN_MEMBER_ID, E.NONE, E.NONE, E.NONE, E.UNKNOWN_MEMBER_ID]
    assert world.state() == "Empty"


def test_leaving_with_a_fenced_member_id_is_refused() -> None:
    """The static member behind the instance id is another process by now."""
    world = World()
    old = world.join(instance="s").response
    world.stabilize([old])
    world.join(instance="s")
    assert world.leave((old.member_id, "s")) == [E.FENCED_INSTANCE_ID]


def test_leaving_an_unknown_group_is_answered_for_each_member() -> None:
    """There is no such member; the request itself is fine."""
    assert World().leave(("a", None), ("b", None)) == [E.UNKNOWN_MEMBER_ID] * 2


def test_removed_member_that_waits_is_answered() -> None:
    """An administrator removes a member while its JoinGroup and another's SyncGroup wait."""
    world = World(initial_rebalance_delay_ms=1_000)
    first, second = world.start_join(), world.join(instance="s")
    world.advance(3_000)
    waiting = world.sync(second.response, instance="s")
    assert world.leave(("", "s")) == [E.NONE]
    assert waiting.error == E.UNKNOWN_MEMBER_ID
    assert world.heartbeat(first.response) == E.REBALANCE_IN_PROGRESS


def test_states_change_as_the_table_says_only() -> None:
    """The table is what the documentation draws; nothing reaches Stable but a stored assignment."""
    assert [state for state, targets in GROUP_TRANSITIONS.items() if GroupState.STABLE in targets] == [
        GroupState.COMPLETING_REBALANCE
    ]
    assert all(
        GroupState.DEAD in targets for state, targets in GROUP_TRANSITIONS.items() if state is not GroupState.DEAD
    )
