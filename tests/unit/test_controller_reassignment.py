"""Moves of replicas: begun, ended, cancelled, replaced, and finished by a successor
wherever a controller crashed."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.base.ids import TopicPartition
from barnabas.broker.cluster.znodes import (
    REASSIGN_PARTITIONS,
    ReplicaAssignment,
    ZnodeFormatError,
    decode_reassignments,
    delete_topic_path,
    encode_reassignments,
    encode_topic,
    topic_path,
)
from barnabas.broker.controller import (
    broker_change,
    reassignment,
    topic_change,
)
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.messages.leader_and_isr import LeaderAndIsrRequest
from barnabas.wire.kafka.messages.stop_replica import StopReplicaRequest
from barnabas.wire.kafka.messages.update_metadata import UpdateMetadataRequest
from support.controlled_cluster import ControlledCluster

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


def cluster_of(*assignment: tuple[int, ...], brokers: int = 6) -> ControlledCluster:
    cluster = ControlledCluster(*range(brokers))
    cluster.create("t", *assignment)
    return cluster


def codes(answers: dict) -> dict:
    return {partition: error.code if error else None for partition, error in answers.items()}


def test_a_move_is_written_and_sent_under_a_new_leader_epoch() -> None:
    """The znode has all replicas; new ones receive that they are new, old ones that
    they are not."""
    cluster = cluster_of((0, 1, 2))
    assert cluster.reassign({P0: [3, 4, 5]}) == {P0: None}
    assert cluster.assignment(P0) == ReplicaAssignment((3, 4, 5, 0, 1, 2), (3, 4, 5), (0, 1, 2))
    assert (cluster.leader(P0), cluster.leader_epoch(P0), cluster.isr(P0)) == (0, 1, (0, 1, 2))
    sent = cluster.requests(LeaderAndIsrRequest)
    entries = {broker: request.topic_states[0].partition_states[0] for broker, request in sent.items()}
    assert {broker: entry.is_new for broker, entry in entries.items()} == {b: b >= 3 for b in range(6)}
    assert (entries[0].adding_replicas, entries[0].removing_replicas) == ([3, 4, 5], [0, 1, 2])
    assert cluster.requests(UpdateMetadataRequest)[0].topic_states[0].partition_states[0].replicas == [3, 4, 5, 0, 1, 2]


def test_a_move_ends_when_all_that_stay_are_in_sync() -> None:
    """The leader moves first, old replicas are stopped and deleted, the znode is written last."""
    cluster = cluster_of((0, 1, 2))
    cluster.reassign({P0: [3, 4, 5]})
    cluster.catch_up()
    assert cluster.assignment(P0) == ReplicaAssignment((3, 4, 5))
    assert (cluster.leader(P0), set(cluster.isr(P0))) == (3, {3, 4, 5})
    assert cluster.holders(P0) == {3, 4, 5}
    assert set(cluster.requests(StopReplicaRequest)) == {0, 1, 2}
    assert not cluster.context.reassigning
    assert cluster.context.replica_states[P0].keys() == {3, 4, 5}
    assert cluster.requests(UpdateMetadataRequest)[0].topic_states[0].partition_states[0].replicas == [3, 4, 5]


def test_a_move_waits_for_the_last_replica_that_is_to_stay() -> None:
    """One that is away keeps it under way; it ends when that broker is back and in sync."""
    cluster = cluster_of((0, 1))
    cluster.reassign({P0: [1, 2]})
    cluster.stop(2)
    cluster.run(broker_change.process_broker_change)
    cluster.catch_up()
    assert cluster.assignment(P0) == ReplicaAssignment((1, 2, 0), (2,), (0,))
    cluster.start(2)
    cluster.run(broker_change.process_broker_change)
    assert cluster.requests(LeaderAndIsrRequest)[2].topic_states[0].partition_states[0].is_new
    cluster.catch_up()
    assert (cluster.assignment(P0), cluster.leader(P0)) == (ReplicaAssignment((1, 2)), 1)
    assert cluster.holders(P0) == {1, 2}


def test_a_leader_that_stays_goes_on_leading() -> None:
    """No other leader is elected; its epoch rises, so that it drops the replicas that left."""
    cluster = cluster_of((0, 1))
    cluster.reassign({P0: [2, 0]})
    cluster.catch_up()
    assert (cluster.leader(P0), set(cluster.isr(P0)), cluster.assignment(P0).replicas) == (0, {0, 2}, (2, 0))


def test_another_order_of_the_same_replicas_is_done_at_once() -> None:
    """No replica moves; the preferred leader changes, and brokers hear of it."""
    cluster = cluster_of((0, 1, 2))
    cluster.reassign({P0: [2, 1, 0]})
    assert (cluster.assignment(P0), cluster.leader(P0)) == (ReplicaAssignment((2, 1, 0)), 0)
    assert set(cluster.requests(LeaderAndIsrRequest)) == {0, 1, 2}
    assert not cluster.requests(StopReplicaRequest)


def test_replicas_are_added_and_taken_away() -> None:
    """The replication factor follows the list."""
    cluster = cluster_of((0,))
    cluster.reassign({P0: [0, 1, 2]})
    cluster.catch_up()
    assert set(cluster.isr(P0)) == {0, 1, 2}
    cluster.reassign({P0: [2]})
    assert (cluster.assignment(P0), cluster.leader(P0), cluster.isr(P0)) == (ReplicaAssignment((2,)), 2, (2,))
    assert cluster.holders(P0) == {2}


def test_a_cancelled_move_leaves_the_old_replicas_alone() -> None:
    """New ones are stopped and deleted, also when they were in sync already; one
    that is away keeps its copy."""
    cluster = cluster_of((0, 1))
    cluster.reassign({P0: [2, 3]})
    cluster.stop(3)
    cluster.run(broker_change.process_broker_change)
    cluster.catch_up()
    assert 2 in cluster.isr(P0)
    assert cluster.reassign({P0: None}) == {P0: None}
    assert (cluster.assignment(P0), cluster.isr(P0), cluster.leader(P0)) == (ReplicaAssignment((0, 1)), (0, 1), 0)
    assert cluster.holders(P0) == {0, 1, 3}
    assert codes(cluster.reassign({P0: None})) == {P0: ErrorCode.NO_REASSIGNMENT_IN_PROGRESS}


def test_a_cancelled_move_gives_the_lead_back_before_the_new_leader_goes() -> None:
    """The partition is never without a leader."""
    cluster = cluster_of((0, 1))
    cluster.reassign({P0: [2, 3]})
    cluster.stop(3)
    cluster.run(broker_change.process_broker_change)
    cluster.catch_up()
    cluster.stop(0)
    cluster.run(broker_change.process_broker_change)
    cluster.start(0)
    cluster.run(broker_change.process_broker_change)
    cluster.catch_up()
    assert cluster.leader(P0) == 2
    cluster.reassign({P0: None})
    leaders = [
        request.topic_states[0].partition_states[0].leader
        for _, request in cluster.sent
        if isinstance(request, LeaderAndIsrRequest)
    ]
    assert -1 not in leaders
    assert (cluster.leader(P0) in (0, 1), 2 in cluster.holders(P0)) == (True, False)


def test_a_move_is_replaced_by_another() -> None:
    """Replicas that only the first one wanted are deleted, the old ones go when the second ends."""
    cluster = cluster_of((0, 1))
    cluster.reassign({P0: [2, 3]})
    cluster.reassign({P0: [3, 4]})
    assert cluster.assignment(P0) == ReplicaAssignment((3, 4, 0, 1), (3, 4), (0, 1))
    assert cluster.holders(P0) == {0, 1, 3, 4}
    cluster.catch_up()
    assert (cluster.assignment(P0), cluster.holders(P0)) == (ReplicaAssignment((3, 4)), {3, 4})


def test_an_order_that_would_leave_no_replica_in_sync_is_refused() -> None:
    """The only replica with all records is one that the cancelled move had added."""
    cluster = cluster_of((0, 1))
    cluster.reassign({P0: [2, 3]})
    cluster.stop(3)
    cluster.run(broker_change.process_broker_change)
    cluster.catch_up()
    for broker in (0, 1):
        cluster.stop(broker)
        cluster.run(broker_change.process_broker_change)
    assert (cluster.leader(P0), cluster.isr(P0)) == (2, (2,))
    assert codes(cluster.reassign({P0: None})) == {P0: ErrorCode.INVALID_REPLICA_ASSIGNMENT}
    assert cluster.assignment(P0).adding == (2, 3)
    assert cluster.holders(P0) >= {2}


@pytest.mark.parametrize("target", [[], [1, 1], [-1, 0], [9], [0, 9]], ids=str)
def test_an_impossible_list_of_replicas_is_refused(target: list[int]) -> None:
    """Empty, twice the same, negative, or of brokers that are not there; the other
    partitions' reassignments stand."""
    cluster = cluster_of((0, 1), (0, 1))
    answers = cluster.reassign({P0: target, P1: [1, 2]})
    assert codes(answers) == {P0: ErrorCode.INVALID_REPLICA_ASSIGNMENT, P1: None}
    assert (cluster.assignment(P0), cluster.assignment(P1).adding) == (ReplicaAssignment((0, 1)), (2,))


def test_an_endless_list_of_replicas_is_refused_in_linear_time_and_a_short_message() -> None:
    """A client may send millions of broker ids; looked up one in another, they would
    stop the broker for minutes."""
    cluster = cluster_of((0, 1))
    refusal = cluster.reassign({P0: list(range(300_000))})[P0]
    assert refusal is not None
    assert refusal.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert len(str(refusal)) < 1000


def test_a_move_whose_znode_would_be_too_large_is_refused_and_nothing_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The coordination server would end the controller's connection, again and again."""
    cluster = cluster_of((0, 1, 2), (0, 1, 2))
    moving, still = ReplicaAssignment((3, 4, 5, 0, 1, 2), (3, 4, 5), (0, 1, 2)), ReplicaAssignment((0, 1, 2))
    one_moves = encode_topic(cluster.context.topic_id("t"), {0: moving, 1: still})
    monkeypatch.setattr(reassignment, "MAX_ASSIGNMENT_BYTES", len(one_moves))
    answers = cluster.reassign({P0: [3, 4, 5], P1: [3, 4, 5]})
    assert codes(answers) == dict.fromkeys((P0, P1), ErrorCode.POLICY_VIOLATION)
    assert "move fewer of its partitions at once" in answers[P0].message
    assert cluster.assignment(P0) == ReplicaAssignment((0, 1, 2))
    assert not cluster.context.reassigning
    assert codes(cluster.reassign({P0: [3, 4, 5]})) == {P0: None}


def test_partitions_that_are_not_there_or_being_deleted_are_unknown() -> None:
    """As for every other request."""
    cluster = cluster_of((0, 1))
    cluster.stop(1)
    cluster.run(broker_change.process_broker_change)
    cluster.znodes.put(delete_topic_path("t"), None)
    cluster.run(topic_change.process_topic_deletion)
    answers = cluster.reassign({P0: [0], P1: [0], TopicPartition("none", 0): None})
    assert codes(answers) == {
        P0: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        P1: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        TopicPartition("none", 0): ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
    }


def test_what_is_under_way_is_listed() -> None:
    """Of all partitions, or of those asked for."""
    cluster = cluster_of((0, 1), (0, 1))
    cluster.reassign({P1: [1, 2]})
    moving = {P1: ReplicaAssignment((1, 2, 0), (2,), (0,))}
    assert cluster.znodes.perform(reassignment.process_list_reassignments(cluster.context, None)) == moving
    assert cluster.znodes.perform(reassignment.process_list_reassignments(cluster.context, [P0])) == {}


def test_deletion_waits_for_the_move_to_end() -> None:
    """Then it runs by itself, over the replicas of then."""
    cluster = cluster_of((0, 1))
    cluster.reassign({P0: [2, 3]})
    cluster.znodes.put(delete_topic_path("t"), None)
    cluster.run(topic_change.process_topic_deletion)
    assert cluster.context.ineligible_for_deletion == {"t"}
    assert not cluster.requests(StopReplicaRequest)
    cluster.elect()
    assert cluster.context.ineligible_for_deletion == {"t"}
    cluster.catch_up()
    for broker in (2, 3):
        cluster.run(topic_change.process_stop_replica_response, broker, {P0: 0})
    assert (cluster.context.topics, cluster.holders(P0)) == ({}, set())
    assert topic_path("t") not in cluster.znodes.nodes


def test_other_partitions_written_meanwhile_are_kept() -> None:
    """The topic's znode is read before it is rewritten: a partition that was just
    added is in it."""
    cluster = cluster_of((0, 1))
    grown = cluster.json(topic_path("t"))
    grown["partitions"]["1"] = [4]
    cluster.znodes.put(topic_path("t"), str(grown).replace("'", '"').encode())
    cluster.reassign({P0: [2, 3]})
    assert cluster.assignment(P1) == ReplicaAssignment((4,))
    cluster.run(topic_change.process_partition_modifications, "t")
    cluster.catch_up()
    assert (cluster.assignment(P0), cluster.leader(P1)) == (ReplicaAssignment((2, 3)), 4)


def test_a_partition_that_never_had_a_leader_gets_one_on_its_new_replicas() -> None:
    """It has no records yet, so there is nothing to catch up with."""
    cluster = cluster_of((9,))
    assert P0 not in cluster.context.leadership
    cluster.reassign({P0: [1, 2]})
    assert (cluster.assignment(P0), cluster.leader(P0), set(cluster.isr(P0))) == (ReplicaAssignment((1, 2)), 1, {1, 2})


def test_orders_in_the_znode_that_cannot_be_begun_are_one_line_for_each_reason(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Each client of the ensemble can write the znode."""
    cluster = cluster_of((0, 1), (0, 1))
    wrong = {TopicPartition("none", number): (1,) for number in range(1000)}
    cluster.znodes.put(REASSIGN_PARTITIONS, encode_reassignments({P1: (1, 1), **wrong}))
    cluster.run(reassignment.process_znode_reassignment)
    first, second = (record.message for record in caplog.records)
    assert str(P1) in first
    assert "none-4 and 995 more is not reassigned" in second


def test_orders_in_the_znode_of_older_tools_are_taken_and_struck_when_done() -> None:
    """What cannot be done is removed at once; the znode goes with the last entry."""
    cluster = cluster_of((0, 1), (0, 1))
    reassignments = {P0: (2, 3), P1: (1, 1), TopicPartition("none", 0): (1,)}
    cluster.znodes.put(REASSIGN_PARTITIONS, encode_reassignments(reassignments))
    cluster.run(reassignment.process_znode_reassignment)
    assert decode_reassignments("", cluster.znodes.data(REASSIGN_PARTITIONS)) == {P0: (2, 3)}
    epoch = cluster.leader_epoch(P0)
    cluster.run(reassignment.process_znode_reassignment)
    assert cluster.leader_epoch(P0) == epoch, "a reassignment that is under way is not begun again"
    cluster.catch_up()
    assert REASSIGN_PARTITIONS not in cluster.znodes.nodes
    assert cluster.assignment(P0) == ReplicaAssignment((2, 3))


def test_an_order_over_the_wire_replaces_one_in_the_znode() -> None:
    """The latest counts."""
    cluster = cluster_of((0, 1))
    cluster.znodes.put(REASSIGN_PARTITIONS, encode_reassignments({P0: (2, 3)}))
    cluster.run(reassignment.process_znode_reassignment)
    cluster.reassign({P0: [4]})
    assert REASSIGN_PARTITIONS not in cluster.znodes.nodes
    cluster.catch_up()
    assert cluster.assignment(P0) == ReplicaAssignment((4,))


def test_an_order_that_is_no_json_is_struck() -> None:
    """Any client of the ensemble can write there."""
    cluster = cluster_of((0, 1))
    cluster.znodes.put(REASSIGN_PARTITIONS, b"{")
    cluster.run(reassignment.process_znode_reassignment)
    assert REASSIGN_PARTITIONS not in cluster.znodes.nodes
    with pytest.raises(ZnodeFormatError):
        decode_reassignments("reassignments", b'{"partitions":[{"topic":"t","partition":"x"}]}')


# A crash anywhere

targets = st.lists(st.integers(0, 5), min_size=1, max_size=3, unique=True)
reassignments = st.one_of(
    st.tuples(st.just("move"), targets),
    st.tuples(st.just("znode"), targets),
    st.tuples(st.just("cancel"), st.none()),
    st.tuples(st.just("catch up"), st.none()),
    st.tuples(st.just("bounce"), st.integers(0, 5)),
)


def act(cluster: ControlledCluster, kind: str, what: object, stop_after: int | None) -> None:
    match kind:
        case "move":
            cluster.reassign({P0: what, P1: what[::-1]}, stop_after=stop_after)
        case "cancel":
            cluster.reassign({P0: None, P1: None}, stop_after=stop_after)
        case "znode":
            cluster.znodes.put(REASSIGN_PARTITIONS, encode_reassignments({P0: what}))
            cluster.run(reassignment.process_znode_reassignment, stop_after=stop_after)
        case "catch up":
            cluster.catch_up(stop_after=stop_after)
        case "bounce":
            cluster.stop(what)
            cluster.run(broker_change.process_broker_change, stop_after=stop_after)
            if stop_after is not None:
                cluster.elect()
            cluster.start(what)
            cluster.run(broker_change.process_broker_change)


def settle(cluster: ControlledCluster) -> None:
    """Everyone is back, catches up and is asked until nothing is left to do."""
    for _ in range(4):
        cluster.catch_up()


def play(script: list, crash: int | None, cut: int) -> ControlledCluster:
    """Act by act; in the one numbered ``crash`` the controller dies after ``cut`` steps,
    and it is asked for again."""
    cluster = cluster_of((0, 1, 2), (3, 4))
    for number, (kind, what) in enumerate(script):
        act(cluster, kind, what, cut if number == crash else None)
        if number == crash:
            cluster.elect(stop_after=cut // 2)
            cluster.elect()
            act(cluster, kind, what, None)
        for partition in (P0, P1):
            assert cluster.holders(partition) & set(cluster.isr(partition)), "no replica has the records any more"
    settle(cluster)
    return cluster


@settings(max_examples=150, deadline=None)
@given(st.lists(reassignments, min_size=1, max_size=6), st.integers(0, 5), st.integers(0, 40))
def test_a_successor_brings_any_move_to_the_same_end(script: list, crash: int, cut: int) -> None:
    """Wherever a controller crashes, at any read, write or request: the same replicas,
    all in sync, and no others."""
    straight = play(script, None, 0)
    crashed = play(script, crash, cut)
    assert not crashed.context.reassigning
    assert REASSIGN_PARTITIONS not in crashed.znodes.nodes
    bounced = any(kind == "bounce" for kind, _ in script)
    for partition in (P0, P1):
        assigned = crashed.assignment(partition)
        if not bounced:
            assert set(assigned.replicas) == set(straight.assignment(partition).replicas)
            assert crashed.holders(partition) == set(assigned.replicas), "a copy that no znode speaks of"
        assert not assigned.is_reassigning
        assert crashed.holders(partition) >= set(assigned.replicas)
        assert set(crashed.isr(partition)) == set(assigned.replicas)
        assert crashed.leader(partition) in assigned.replicas


MOVE = ("move", [5, 4])
SCRIPTS = {
    "moved": [MOVE, ("catch up", None)],
    "replaced": [MOVE, ("move", [3, 0])],
    "cancelled": [MOVE, ("cancel", None)],
    "replaced by an older tool's reassignment": [MOVE, ("znode", [3, 0])],
    "moved by an older tool's reassignment": [("znode", [3, 0]), ("catch up", None)],
}


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
def test_a_successor_brings_a_plain_move_to_the_same_end_from_every_step(script: list) -> None:
    """As above, at each step of the last act; all replicas of the first move are in
    sync by then, or none."""
    for synced in (False, True):
        acts = [script[0], ("catch up", None), ("move", [1, 2]), *script] if synced else script
        straight = play(acts, None, 0)
        for cut in range(60):
            crashed = play(acts, len(acts) - 1, cut)
            for partition in (P0, P1):
                assigned = crashed.assignment(partition)
                assert assigned == straight.assignment(partition), f"crashed after {cut} steps"
                assert crashed.holders(partition) == set(assigned.replicas) == set(crashed.isr(partition))
