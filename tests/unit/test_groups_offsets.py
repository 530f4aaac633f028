"""Committed offsets: which clients may commit, what is kept, what expires, what can be deleted."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.base.ids import TopicPartition
from barnabas.base.tasks import done_here
from barnabas.broker.groups.loading import Loader
from barnabas.broker.groups.offsets import CommittedOffset, GroupOffsets
from barnabas.broker.groups.queries import describe_group, fetch_offsets, list_groups
from barnabas.broker.groups.records import OffsetRecord, encode_record
from barnabas.broker.metadata.internal_topics import partition_of
from barnabas.wire.kafka.errors import ErrorCode as E
from support.groups import START_WALL_MS, World, subscription

T0, T1 = ("t", 0), ("t", 1)
WEEK_MS = 7 * 24 * 3_600_000
CHECK_MS = 600_000


def code(answer) -> E:
    return E(answer.response.topics[0].partitions[0].error_code)


def fetch(world: World, *partitions, group_id: str = "g", stable: bool = False):
    topics = [(topic, [partition]) for topic, partition in partitions] if partitions else None
    group = done_here(fetch_offsets(world.coordinator, group_id, topics, require_stable=stable))
    assert not group.error_code
    return [
        (topic.name, p.partition_index, p.committed_offset, E(p.error_code))
        for topic in group.topics
        for p in topic.partitions
    ]


@pytest.mark.parametrize(
    ("group_id", "partition"),
    [("", 0), ("g", 3), ("customer-group", 32), ("console-consumer-12345", 6), ("größe", 7), ("\U0001f600", 49)],
)
def test_groups_fall_on_partitions_as_in_java(group_id: str, partition: int) -> None:
    """abs(String.hashCode) % 50, computed by a JVM; surrogate pairs count as two units."""
    assert partition_of(group_id, 50) == partition


def test_hash_without_an_absolute_value_falls_on_partition_zero() -> None:
    """The one hash that Math.abs leaves negative."""
    assert partition_of("polygenelubricants", 50) == 0


# Committing


def test_commit_without_group_management_needs_no_member() -> None:
    """Tools and consumers that assign partitions themselves."""
    world = World()
    assert code(world.commit({T0: 5, T1: 6})) == E.NONE
    assert fetch(world, T0, T1, ("t", 2)) == [("t", 0, 5, E.NONE), ("t", 1, 6, E.NONE), ("t", 2, -1, E.NONE)]
    assert sorted(fetch(world)) == [("t", 0, 5, E.NONE), ("t", 1, 6, E.NONE)]


def test_only_members_of_the_generation_commit_while_there_are_members() -> None:
    """An unknown member, an old generation, an unknown group."""
    world = World()
    [member] = world.stable()
    assert code(world.commit({T0: 1})) == E.UNKNOWN_MEMBER_ID
    assert code(world.commit({T0: 1}, member, generation=0)) == E.ILLEGAL_GENERATION
    assert code(world.commit({T0: 1}, member, group_id="other")) == E.ILLEGAL_GENERATION
    assert code(world.commit({T0: 1}, member)) == E.NONE
    assert world.offsets() == {T0: 1}


def test_members_may_commit_while_the_group_prepares_to_rebalance_and_not_before_their_assignment() -> None:
    """Work done so far is saved; nothing can be saved in a generation without an assignment."""
    world = World()
    leader, follower = world.stable(2)
    again = world.join(member_id=leader.member_id)
    assert code(world.commit({T0: 1}, follower)) == E.NONE
    world.join(member_id=follower.member_id)
    assert code(world.commit({T0: 2}, again.response)) == E.REBALANCE_IN_PROGRESS


def test_metadata_that_is_too_long_spoils_its_partition_only() -> None:
    """offset.metadata.max.bytes."""
    world = World(offset_metadata_max_bytes=4)
    assert code(world.commit({T0: 1}, metadata="12345")) == E.OFFSET_METADATA_TOO_LARGE
    assert code(world.commit({T0: 1}, metadata="1234")) == E.NONE
    assert code(world.commit({T1: 1}, metadata=None)) == E.NONE


def test_unknown_partition_is_refused() -> None:
    """A deleted topic must not be kept alive by its offsets."""
    world = World()
    assert code(world.commit({T0: 1}, known=False)) == E.UNKNOWN_TOPIC_OR_PARTITION
    assert world.state() == "none"


def test_offset_counts_once_it_is_committed() -> None:
    """Until then readers see the old one or, if they require it, that it is not stable."""
    world = World()
    world.commit({T0: 1})
    world.hold()
    answer = world.commit({T0: 2})
    assert answer.waits
    assert fetch(world, T0) == [("t", 0, 1, E.NONE)]
    assert fetch(world, T0, stable=True) == [("t", 0, -1, E.UNSTABLE_OFFSET_COMMIT)]
    world.release()
    assert code(answer) == E.NONE
    assert fetch(world, T0, stable=True) == [("t", 0, 2, E.NONE)]


@pytest.mark.parametrize(
    ("log_error", "answered"),
    [
        (E.NOT_LEADER_OR_FOLLOWER, E.NOT_COORDINATOR),
        (E.NOT_ENOUGH_REPLICAS, E.COORDINATOR_NOT_AVAILABLE),
        (E.MESSAGE_TOO_LARGE, E.INVALID_COMMIT_OFFSET_SIZE),
        (E.REQUEST_TIMED_OUT, E.REQUEST_TIMED_OUT),
    ],
)
def test_commit_that_the_log_refuses_leaves_the_old_offset(log_error: E, answered: E) -> None:
    """The client hears an error of the coordinator's, not of the log's."""
    world = World()
    world.commit({T0: 1})
    world.refuse = log_error
    assert code(world.commit({T0: 2})) == answered
    assert fetch(world, T0, stable=True) == [("t", 0, 1, E.NONE)]


def test_commit_that_timed_out_counts_when_it_is_committed_after_all() -> None:
    """It stands in the log: memory and a reload must agree."""
    world = World()
    world.hold()
    answer = world.commit({T0: 2})
    [(append, base_offset)] = world.held
    world.perform(world.coordinator.failed(append, E.REQUEST_TIMED_OUT, world.now))
    assert code(answer) == E.REQUEST_TIMED_OUT
    world.perform(world.coordinator.committed(append, base_offset, world.now))
    assert world.offsets() == {T0: 2}


def test_offsets_and_their_metadata_survive_a_reload() -> None:
    """Leader epoch, metadata and time of the commit come back."""
    world = World()
    world.commit({T0: 5}, metadata="note")
    before = dict(world.coordinator.find("g").offsets.committed)
    world.reload()
    after = world.coordinator.find("g").offsets.committed
    assert after == before
    assert after[T0] == CommittedOffset(5, 7, "note", START_WALL_MS)


def test_group_survives_a_reload_with_members_and_assignments() -> None:
    """Members go on with heartbeats as if nothing had happened."""
    world = World()
    members = world.stable(3)
    world.reload()
    for member in members:
        assert world.heartbeat(member) == E.NONE
        assert world.sync(member).response.assignment == member.member_id.encode()
    world.advance(10_000)
    assert world.state() == "Empty"


# Moving


def test_requests_are_redirected_or_delayed_as_the_partition_is() -> None:
    """Not ours, loading, loaded."""
    world = World()
    [member] = world.stable()
    partition = world.coordinator.partition_for("g")
    waiting = world.start_join()
    world.perform(world.coordinator.unload(partition, 1, world.now))
    assert waiting.error == E.NOT_COORDINATOR
    assert world.heartbeat(member) == E.NOT_COORDINATOR
    assert world.join(member_id=member.member_id).error == E.NOT_COORDINATOR
    assert code(world.commit({T0: 1}, member)) == E.NOT_COORDINATOR
    fetched = done_here(fetch_offsets(world.coordinator, "g", None, require_stable=False))
    assert fetched.error_code == E.NOT_COORDINATOR
    assert world.coordinator.start_loading(partition, 2)
    assert world.heartbeat(member) == E.NONE, "the members are not known yet"
    assert world.sync(member).error == E.REBALANCE_IN_PROGRESS
    assert world.join(member_id=member.member_id).error == E.COORDINATOR_LOAD_IN_PROGRESS
    assert code(world.commit({T0: 1}, member)) == E.COORDINATOR_LOAD_IN_PROGRESS
    assert world.coordinator.is_loading


def test_loading_that_was_overtaken_by_another_election_is_thrown_away() -> None:
    """Lost and gained again while the log was read."""
    world = World()
    partition = world.coordinator.partition_for("g")
    world.coordinator.unload(partition, 1, world.now)
    assert world.coordinator.start_loading(partition, 2)
    world.coordinator.unload(partition, 3, world.now)
    assert world.coordinator.start_loading(partition, 4)
    world.coordinator.finish_loading(partition, 2, Loader(partition), world.now)
    assert world.coordinator.check("g") == E.COORDINATOR_LOAD_IN_PROGRESS
    world.coordinator.finish_loading(partition, 4, Loader(partition), world.now)
    assert world.coordinator.check("g") == E.NONE


def test_news_of_an_old_election_unload_nothing() -> None:
    """They were overtaken on the way."""
    world = World()
    partition = world.coordinator.partition_for("g")
    world.coordinator.start_loading(partition, 5)
    world.coordinator.unload(partition, 4, world.now)
    assert world.coordinator.check("g") == E.NONE


def test_commit_under_way_when_the_partition_is_lost_is_answered() -> None:
    """NOT_COORDINATOR from the log's error; the unloaded group is not changed."""
    world = World()
    world.hold()
    answer = world.commit({T0: 2})
    world.perform(world.coordinator.unload(world.coordinator.partition_for("g"), 1, world.now))
    world.release(E.NOT_LEADER_OR_FOLLOWER)
    assert code(answer) == E.NOT_COORDINATOR


# Expiry (KIP-211)


def test_offsets_of_an_empty_group_expire_after_the_retention_since_it_emptied() -> None:
    """Not since the commit; and the group goes with them."""
    world = World()
    world.coordinator.start_expiring(world.now)
    [member] = world.stable(session_ms=1_800_000)
    world.commit({T0: 1}, member)
    for _ in range(WEEK_MS // 1_000_000):
        world.advance(1_000_000)
        assert world.heartbeat(member) == E.NONE
    world.leave((member.member_id, None))
    world.advance(WEEK_MS - CHECK_MS)
    assert world.offsets() == {T0: 1}
    world.advance(2 * CHECK_MS)
    assert world.state() == "none"
    world.reload()
    assert world.state() == "none"


def test_offsets_of_simple_consumers_expire_after_their_own_commit() -> None:
    """Without group management each commit counts for itself."""
    world = World()
    world.coordinator.start_expiring(world.now)
    world.commit({T0: 1})
    world.advance(WEEK_MS // 2)
    world.commit({T1: 1})
    world.advance(WEEK_MS // 2 + 2 * CHECK_MS)
    assert world.offsets() == {T1: 1}
    world.reload()
    assert world.offsets() == {T1: 1}


def test_offsets_of_topics_that_a_stable_group_left_expire() -> None:
    """Those it subscribes to stay, however old."""
    world = World()
    world.coordinator.start_expiring(world.now)
    [member] = world.stable(protocols=subscription("t"), session_ms=1_800_000)
    world.commit({T0: 1, ("left", 0): 1}, member)
    for _ in range(WEEK_MS // 1_000_000 + 2):
        world.advance(1_000_000)
        assert world.heartbeat(member) == E.NONE
    assert world.offsets() == {T0: 1}


def test_offset_with_a_retention_of_its_own_goes_by_that() -> None:
    """retention_time_ms of OffsetCommit v2 to v4."""
    world = World()
    world.coordinator.start_expiring(world.now)
    world.commit({T0: 1}, retention_ms=CHECK_MS)
    world.commit({T1: 1})
    world.advance(2 * CHECK_MS)
    assert world.offsets() == {T1: 1}


@pytest.mark.parametrize("retention_ms", [(1 << 63) - 1, (1 << 63) - 2, 1 << 62])
def test_offset_with_a_retention_without_end_is_kept(retention_ms: int) -> None:
    """The time at which it expires would not fit its record: it is the last one that does."""
    world = World()
    world.coordinator.start_expiring(world.now)
    assert code(world.commit({T0: 1}, retention_ms=retention_ms)) == E.NONE
    world.advance(WEEK_MS)
    assert world.offsets() == {T0: 1}


def test_offset_with_a_negative_retention_expires_at_once() -> None:
    """As Kafka's coordinator: only -1 stands for the broker's own retention."""
    world = World()
    world.coordinator.start_expiring(world.now)
    assert code(world.commit({T0: 1}, retention_ms=-(1 << 63))) == E.NONE
    world.advance(2 * CHECK_MS)
    assert world.offsets() == {}


def test_empty_group_that_never_had_anything_is_forgotten() -> None:
    """A join that was refused leaves a group behind for a moment only."""
    world = World()
    world.coordinator.start_expiring(world.now)
    world.join(protocols=())
    assert world.state() == "Empty"
    world.advance(CHECK_MS)
    assert world.state() == "none"


# Deletion


def test_deleting_groups_answers_for_each() -> None:
    """Empty, with members, unknown, and named twice."""
    world = World()
    world.commit({T0: 1}, group_id="empty")
    [member] = world.stable(group_id="busy")
    answer = world.delete_groups("empty", "busy", "unknown", "empty")
    assert [(r.group_id, E(r.error_code)) for r in answer.response.results] == [
        ("empty", E.NONE),
        ("busy", E.NON_EMPTY_GROUP),
        ("unknown", E.GROUP_ID_NOT_FOUND),
    ]
    assert world.state("empty") == "none"
    assert world.heartbeat(member, group_id="busy") == E.NONE
    world.reload()
    assert (world.state("empty"), world.state("busy")) == ("none", "Stable")


def test_group_that_is_being_deleted_is_closed_until_it_is_known_how_it_ended() -> None:
    """A client that joins meanwhile tries again; a failure restores the group with its offsets."""
    world = World()
    world.commit({T0: 1})
    world.hold()
    answer = world.delete_groups("g")
    assert world.join().error == E.COORDINATOR_NOT_AVAILABLE
    assert code(world.commit({T0: 2})) == E.COORDINATOR_NOT_AVAILABLE
    assert answer.waits
    world.release(E.NOT_ENOUGH_REPLICAS)
    assert answer.response.results[0].error_code == E.NOT_ENOUGH_REPLICAS
    assert (world.state(), world.offsets()) == ("Empty", {T0: 1})


def test_commit_under_way_does_not_outlive_the_deletion_of_its_group() -> None:
    """The tombstone is behind it in the log: gone means gone, after a reload too."""
    world = World()
    world.hold()
    world.commit({T0: 1})
    world.delete_groups("g")
    world.release()
    assert world.state() == "none"
    world.reload()
    assert world.state() == "none"


def test_offsets_that_members_use_cannot_be_deleted() -> None:
    """GROUP_SUBSCRIBED_TO_TOPIC for topics of the subscription, the others go."""
    world = World()
    [member] = world.stable(protocols=subscription("t"))
    world.commit({T0: 1, ("u", 0): 2}, member)
    answer = world.delete_offsets(T0, ("u", 0))
    codes = {topic.name: E(topic.partitions[0].error_code) for topic in answer.response.topics}
    assert codes == {"t": E.GROUP_SUBSCRIBED_TO_TOPIC, "u": E.NONE}
    assert world.offsets() == {T0: 1}
    world.reload()
    assert world.offsets() == {T0: 1}


def test_deleting_offsets_of_other_kinds_of_groups_needs_them_empty() -> None:
    """What connectors depend on is not known; an unknown group has nothing to delete."""
    world = World()
    [member] = world.stable(protocol_type="connect")
    assert world.delete_offsets(T0).error == E.NON_EMPTY_GROUP
    world.leave((member.member_id, None))
    assert world.delete_offsets(T0).error == E.NONE
    assert world.delete_offsets(T0, group_id="unknown").error == E.GROUP_ID_NOT_FOUND


def test_deleting_offsets_of_unknown_partitions_is_answered_for_each() -> None:
    """UNKNOWN_TOPIC_OR_PARTITION."""
    world = World()
    world.commit({T0: 1})
    assert code(world.delete_offsets(T0, known=False)) == E.UNKNOWN_TOPIC_OR_PARTITION


def test_offsets_of_deleted_topics_are_dropped() -> None:
    """A topic created again under the name must not be read from the old position."""
    world = World()
    world.commit({T0: 1, ("u", 0): 2})
    world.delete_partitions(TopicPartition("t", 0))
    assert world.offsets() == {("u", 0): 2}


def test_offsets_of_a_deleted_topic_are_dropped_from_many_groups_in_steps() -> None:
    """What groups commit meanwhile for a topic that has the same name again stays."""
    world = World()
    for number in range(200):
        world.commit({T0: 1, ("u", 0): 2}, group_id=f"g{number}")
    world.delete_partitions(TopicPartition("t", 0))
    left = [number for number in range(200) if T0 in world.offsets(group_id=f"g{number}")]
    assert left == list(range(64, 200))
    world.commit({T0: 0}, group_id="g150")
    world.delete_partitions(TopicPartition("u", 0))
    world.advance(1)
    left = [number for number in range(200) if T0 in world.offsets(group_id=f"g{number}")]
    assert left == [150, *range(193, 200)]
    world.advance(20)
    assert {number: found for number in range(200) if (found := world.offsets(group_id=f"g{number}"))} == {150: {T0: 0}}


@pytest.mark.parametrize("cause", ["a deleted topic", "expiry"])
def test_a_group_that_fails_keeps_the_offsets_of_no_other(cause: str) -> None:
    """The groups behind it are looked at in the next step, not after the next deletion or check."""
    world = World()
    world.coordinator.start_expiring(world.now)
    for group_id in ("first", "broken", "last"):
        world.commit({T0: 1}, group_id=group_id)
    world.advance(WEEK_MS - CHECK_MS)
    broken = world.coordinator.find("broken")
    assert broken is not None
    broken.offsets = None  # type: ignore[assignment]  # an error that no code expects
    happen = {
        "a deleted topic": lambda: world.delete_partitions(TopicPartition("t", 0)),
        "expiry": lambda: world.advance(2 * CHECK_MS),
    }
    with pytest.raises(AttributeError):
        happen[cause]()
    world.advance(1)
    assert [world.offsets(group_id) for group_id in ("first", "last")] == [{}, {}]


# Asking


def test_listing_filters_by_state_and_type_whatever_the_case() -> None:
    """KIP-518; classic is the only type there is."""
    world = World()
    world.commit({T0: 1}, group_id="empty")
    world.stable(group_id="stable")

    def names(states: list[str], types: list[str]) -> list[tuple[str, str, str]]:
        listed = done_here(list_groups(world.coordinator, states, types))
        return [(group.group_id, group.group_state, group.protocol_type) for group in listed]

    assert sorted(names([], [])) == [("empty", "Empty", ""), ("stable", "Stable", "consumer")]
    assert names(["sTABLE"], ["Classic"]) == [("stable", "Stable", "consumer")]
    assert names(["Dead"], []) == []
    assert names([], ["consumer"]) == []


def test_description_shows_assignments_while_stable() -> None:
    """Members always, what they do only once it is settled; an unknown group is dead."""
    world = World()
    leader, _ = world.stable(2)
    stable = done_here(describe_group(world.coordinator, "g"))
    assert (stable.group_state, stable.protocol_type, stable.protocol_data) == ("Stable", "consumer", "range")
    assert [(m.member_assignment, m.member_metadata) for m in stable.members] == [
        (m.member_id.encode(), b"r") for m in stable.members
    ]
    assert (stable.members[0].client_id, stable.members[0].client_host) == ("client", "/10.0.0.1")
    world.join(member_id=leader.member_id)
    unsettled = done_here(describe_group(world.coordinator, "g"))
    assert (unsettled.group_state, unsettled.protocol_data) == ("PreparingRebalance", "")
    assert [m.member_assignment for m in unsettled.members] == [b"", b""]
    dead = done_here(describe_group(world.coordinator, "unknown"))
    assert (dead.group_state, dead.error_code) == ("Dead", E.NONE)


# Transactions in the log (written by brokers that have them)


def test_loading_follows_transactions() -> None:
    """Committed, aborted and open ones; a plain commit that came after a
    transaction's record wins."""

    def add(topic: str, offset: int, at: int, producer: int | None = None) -> None:
        record = OffsetRecord("g", TopicPartition(topic, 0), CommittedOffset(offset, -1, "", 0))
        loader.add(*encode_record(record), at, producer)

    loader = Loader(0)
    add("committed", 1, 0, producer=7)
    add("aborted", 1, 1, producer=8)
    add("open", 1, 2, producer=9)
    add("overtaken", 1, 3, producer=7)
    add("overtaken", 2, 4)
    loader.end_transaction(7, committed=True)
    loader.end_transaction(8, committed=False)
    done_here(loader.steps())
    offsets = loader.groups["g"].offsets
    assert {tp.topic: value.offset for tp, value in offsets.committed.items()} == {"committed": 1, "overtaken": 2}
    assert offsets.is_unstable(TopicPartition("open", 0))
    assert not offsets.is_unstable(TopicPartition("aborted", 0))


few_partitions = st.lists(st.builds(TopicPartition, st.just("t"), st.integers(0, 5)), min_size=1, max_size=8)


@given(st.lists(st.tuples(few_partitions, st.integers(0, 20), st.booleans())))
def test_a_commit_applied_by_columns_is_one_applied_offset_by_offset(
    commits: list[tuple[list[TopicPartition], int, bool]],
) -> None:
    """Also where a partition is there twice, the offsets of a transaction come late,
    and commits overlap."""
    by_columns, one_by_one = GroupOffsets(), GroupOffsets()
    under_way: list[list[TopicPartition]] = []
    for number, (partitions, record_offset, ends) in enumerate(commits):
        by_columns.begin(partitions)
        under_way.append(partitions)
        assert all(map(by_columns.is_unstable, partitions))
        values = [CommittedOffset(number * 100 + at, -1, "", 0) for at in range(len(partitions))]
        by_columns.apply_batch(partitions, values, record_offset)
        for partition, value in zip(partitions, values, strict=True):
            one_by_one.apply(partition, value, record_offset)
        if ends:
            by_columns.end(under_way.pop(0))
        left = {partition for some in under_way for partition in some}
        assert {tp for tp in by_columns.partitions() if by_columns.is_unstable(tp)} == left
    assert by_columns.committed == one_by_one.committed


@given(
    st.lists(
        st.tuples(st.sampled_from(["plain", "written", "commit", "abort", "drop"]), few_partitions, st.integers(1, 2))
    )
)
def test_a_transaction_that_ends_by_columns_is_one_that_ends_offset_by_offset(
    history: list[tuple[str, list[TopicPartition], int]],
) -> None:
    """With plain commits between, several producers, markers that come late, and tombstones."""
    offsets = GroupOffsets()
    committed: dict[TopicPartition, tuple[int, CommittedOffset]] = {}
    pending: dict[int, dict[TopicPartition, tuple[int, CommittedOffset]]] = {1: {}, 2: {}}
    for at, (what, partitions, producer_id) in enumerate(history):
        values = [CommittedOffset(at * 100 + number, -1, "", 0) for number in range(len(partitions))]
        marker_at = at - len(partitions)
        match what:
            case "plain":
                offsets.apply_batch(partitions, values, at)
                committed.update(zip(partitions, ((at, value) for value in values), strict=True))
            case "written":
                offsets.apply_transactional_batch(producer_id, partitions, values, at)
                pending[producer_id].update(zip(partitions, ((at, value) for value in values), strict=True))
            case "drop":
                offsets.remove(partitions[0], at)
                for table in (committed, *pending.values()):
                    table.pop(partitions[0], None)
            case _:
                offsets.end_transaction(producer_id, marker_at, committed=what == "commit")
                for each, (written_at, value) in tuple(pending[producer_id].items()):
                    if written_at <= marker_at:
                        del pending[producer_id][each]
                        if what == "commit" and committed.get(each, (-1, value))[0] <= written_at:
                            committed[each] = written_at, value
        assert offsets.committed == {each: value for each, (_, value) in committed.items()}
        open_now = {each for table in pending.values() for each in table}
        assert {each for each in offsets.partitions() if offsets.is_unstable(each)} == open_now
