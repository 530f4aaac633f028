"""Static members (KIP-345): a process that comes back takes its old place."""

from barnabas.wire.kafka.errors import ErrorCode as E
from support.groups import RANGE, World


def two_static(world: World) -> list:
    """Members with the instances a (the leader) and b in a stable group."""
    a, b = world.join(instance="a"), world.join(instance="b")
    world.settle()
    if b.waits:
        a = world.join(member_id=a.response.member_id, instance="a")
    members = [a.response, b.response]
    answers = [
        world.sync(member, {m.member_id: m.member_id.encode() for m in members}, instance=instance)
        for member, instance in zip(members, "ab", strict=True)
    ]
    assert [answer.error for answer in answers] == [E.NONE, E.NONE]
    return members


def test_static_member_needs_no_second_join() -> None:
    """It is known by its instance id, which its member id begins with."""
    world = World()
    joined = world.join(instance="a")
    assert joined.error == E.NONE
    assert joined.response.member_id.startswith("a-")


def test_static_member_that_comes_back_does_not_rebalance_and_keeps_its_assignment() -> None:
    """Same generation, new member id, old assignment; the others notice nothing."""
    world = World()
    leader, old = two_static(world)
    back = world.join(instance="b")
    assert back.error == E.NONE
    assert back.response.generation_id == leader.generation_id
    assert back.response.member_id != old.member_id
    assert world.sync(back.response, instance="b").response.assignment == old.member_id.encode()
    assert world.heartbeat(leader, instance="a") == E.NONE


def test_process_that_was_replaced_is_fenced() -> None:
    """Two processes with one instance id: the older must stop."""
    world = World()
    _, old = two_static(world)
    world.join(instance="b")
    assert world.heartbeat(old, instance="b") == E.FENCED_INSTANCE_ID
    assert world.sync(old, instance="b").error == E.FENCED_INSTANCE_ID
    assert world.join(member_id=old.member_id, instance="b").error == E.FENCED_INSTANCE_ID
    commit = world.commit({("t", 0): 1}, old, instance="b")
    assert commit.response.topics[0].partitions[0].error_code == E.FENCED_INSTANCE_ID


def test_leader_that_comes_back_skips_the_assignment() -> None:
    """Version 9 (KIP-814): it leads, sees the members and does not assign."""
    world = World()
    _, follower = two_static(world)
    back = world.join(instance="a").response
    assert back.skip_assignment
    assert back.leader == back.member_id
    assert {member.member_id for member in back.members} == {back.member_id, follower.member_id}


def test_leader_that_comes_back_with_an_old_version_does_not_learn_that_it_leads() -> None:
    """It would assign, and no member would get the assignment."""
    world = World()
    leader, _ = two_static(world)
    back = world.join(instance="a", version=8).response
    assert (back.leader, back.members, back.skip_assignment) == (leader.member_id, [], False)


def test_new_member_id_survives_a_reload() -> None:
    """The swap is stored before it is answered."""
    world = World()
    two_static(world)
    back = world.join(instance="b").response
    world.reload()
    assert world.heartbeat(back, instance="b") == E.NONE


def test_swap_that_cannot_be_stored_is_taken_back() -> None:
    """The old process is still the member."""
    world = World()
    _, old = two_static(world)
    world.hold()
    back = world.join(instance="b")
    assert back.waits
    world.release(E.NOT_ENOUGH_REPLICAS)
    assert back.error == E.COORDINATOR_NOT_AVAILABLE
    assert world.heartbeat(old, instance="b") == E.NONE


def test_swap_during_which_a_rebalance_begins_is_answered_by_its_end() -> None:
    """The member has joined already and is part of the next generation."""
    world = World()
    leader, _ = two_static(world)
    world.hold()
    back = world.join(instance="b")
    again = world.join(member_id=leader.member_id, instance="a")
    world.release()
    assert (again.error, back.error) == (E.NONE, E.NONE)
    assert again.response.generation_id == back.response.generation_id == leader.generation_id + 1
    assert {member.member_id for member in again.response.members} >= {back.response.member_id}


def test_member_that_comes_back_with_other_protocols_rebalances_if_the_choice_changes() -> None:
    """The group's protocol would be another one in the next generation."""
    world = World()
    both = (("range", b"r"), ("sticky", b"s"))
    joined = world.join(instance="a", protocols=both)
    world.sync(joined.response, {joined.response.member_id: b""}, instance="a")
    back = world.join(instance="a", protocols=(("sticky", b"s"), ("range", b"r")))
    assert back.response.generation_id == 2
    assert back.response.protocol_name == "sticky"


def test_static_member_that_comes_back_before_the_assignment_rebalances() -> None:
    """The leader may be assigning to a member id that is gone."""
    world = World(initial_rebalance_delay_ms=1_000)
    a, b = world.join(instance="a"), world.join(instance="b")
    world.advance(3_000)
    assert (a.error, b.error) == (E.NONE, E.NONE)
    waiting = world.sync(b.response, instance="b")
    back = world.join(instance="b")
    assert waiting.error == E.FENCED_INSTANCE_ID
    assert world.heartbeat(a.response, instance="a") == E.REBALANCE_IN_PROGRESS
    again = world.join(member_id=a.response.member_id, instance="a")
    assert again.response.generation_id == back.response.generation_id == 2


def test_static_member_that_joins_twice_during_a_rebalance_fences_its_first_join() -> None:
    """The process was started again while it waited."""
    world = World()
    world.stable()
    first = world.join(instance="s")
    second = world.join(instance="s")
    assert first.error == E.FENCED_INSTANCE_ID
    assert second.waits


def test_static_members_outlast_a_rebalance_that_they_do_not_join() -> None:
    """Their session decides, not the rebalance timeout."""
    world = World()
    leader, away = two_static(world)
    joined = world.join(instance="c", rebalance_ms=5_000)
    world.advance(5_000)
    again = world.join(member_id=leader.member_id, instance="a")
    world.advance(3_000)
    world.advance(52_000)
    assert joined.error == E.NONE
    assert again.error == E.NONE
    assert world.heartbeat(away, instance="b") == E.UNKNOWN_MEMBER_ID


def test_static_leader_that_does_not_join_is_replaced_by_a_member_that_did() -> None:
    """It stays a member, and another member assigns."""
    world = World()
    leader, follower = two_static(world)
    again = world.join(member_id=follower.member_id, instance="b", protocols=(("range", b"new"),), session_ms=90_000)
    for _ in range(12):
        world.advance(5_000)
        world.heartbeat(leader, instance="a")
    assert again.response.leader == follower.member_id
    assert {member.member_id for member in again.response.members} == {leader.member_id, follower.member_id}


def test_instance_id_with_a_pending_member_id_is_an_error_of_the_client() -> None:
    """A pending member is dynamic."""
    world = World()
    assert world.join(member_id=world.new_id(), instance="a", protocols=RANGE).error == E.UNKNOWN_SERVER_ERROR
