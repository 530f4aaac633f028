"""Leaders elected on demand: which partitions, which replica, and what is answered
where nothing can be done."""

import pytest

from barnabas.base.ids import TopicPartition
from barnabas.broker.cluster.znodes import (
    PREFERRED_ELECTION,
    delete_topic_path,
    encode_log_dir_event,
    encode_partitions,
    partition_state_path,
)
from barnabas.broker.controller import (
    broker_change,
    replica_leader_election,
    topic_change,
)
from barnabas.wire.kafka.errors import ErrorCode, KafkaError
from barnabas.wire.kafka.messages.leader_and_isr import LeaderAndIsrRequest
from barnabas.wire.kafka.messages.update_metadata import UpdateMetadataRequest
from support.controlled_cluster import ControlledCluster

P0, P1, P2 = (TopicPartition("t", index) for index in range(3))


def elect(cluster: ControlledCluster, *partitions: TopicPartition, unclean: bool = False) -> dict:
    results = cluster.run(replica_leader_election.process_replica_leader_election, partitions, unclean=unclean)
    return {p: result.code if isinstance(result, KafkaError) else result for p, result in results.items()}


def bounce(cluster: ControlledCluster, broker: int) -> None:
    for change in (cluster.stop, cluster.start):
        change(broker)
        cluster.run(broker_change.process_broker_change)


def test_a_preferred_replica_in_sync_gets_the_lead() -> None:
    """Where another leads; nothing is done where it leads already, and each answer says which."""
    cluster = ControlledCluster(0, 1, 2)
    cluster.create("t", (1, 0), (2, 0), (0, 1))
    bounce(cluster, 1)
    cluster.catch_up()
    assert elect(cluster, P0, P1, P2, TopicPartition("t", 9), TopicPartition("none", 0)) == {
        P0: 1,
        P1: ErrorCode.ELECTION_NOT_NEEDED,
        P2: ErrorCode.ELECTION_NOT_NEEDED,
        TopicPartition("t", 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        TopicPartition("none", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert (cluster.leader(P0), set(cluster.isr(P0))) == (1, {0, 1})
    assert set(cluster.requests(LeaderAndIsrRequest)) == {0, 1}


@pytest.mark.parametrize("is_back", [False, True])
def test_a_preferred_replica_that_is_away_or_behind_does_not_lead(is_back: bool) -> None:
    """The leader stays, under its epoch."""
    cluster = ControlledCluster(0, 1)
    cluster.create("t", (1, 0))
    cluster.stop(1)
    cluster.run(broker_change.process_broker_change)
    if is_back:
        cluster.start(1)
        cluster.run(broker_change.process_broker_change)
    epoch = cluster.leader_epoch(P0)
    assert elect(cluster, P0) == {P0: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}
    assert (cluster.leader(P0), cluster.leader_epoch(P0)) == (0, epoch)


def test_an_unclean_election_takes_a_replica_out_of_sync_where_there_is_no_leader() -> None:
    """Only on demand here, for the topic does not allow it; the partition is marked
    as recovering."""
    cluster = ControlledCluster(0, 1)
    cluster.create("t", (1, 0), (0,))
    cluster.stop(0)
    cluster.run(broker_change.process_broker_change)
    cluster.start(0)
    cluster.run(broker_change.process_broker_change)
    cluster.stop(1)
    cluster.run(broker_change.process_broker_change)
    assert (cluster.leader(P0), cluster.isr(P0)) == (-1, (1,))
    assert elect(cluster, P0) == {P0: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}
    assert elect(cluster, P0, P1, unclean=True) == {P0: 0, P1: ErrorCode.ELECTION_NOT_NEEDED}
    assert cluster.isr(P0) == (0,)
    assert cluster.json(partition_state_path(P0))["leader_recovery_state"] == 1


def test_an_unclean_election_without_a_live_replica_elects_no_leader() -> None:
    """ELIGIBLE_LEADERS_NOT_AVAILABLE."""
    cluster = ControlledCluster(0, 1)
    cluster.create("t", (1,))
    cluster.stop(1)
    cluster.run(broker_change.process_broker_change)
    assert elect(cluster, P0, unclean=True) == {P0: ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE}
    cluster.create("never", (7,))
    never = TopicPartition("never", 0)
    assert elect(cluster, never, unclean=True) == {never: ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE}
    assert elect(cluster, never) == {never: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}


def test_topics_being_deleted_have_no_elections() -> None:
    """INVALID_TOPIC_EXCEPTION."""
    cluster = ControlledCluster(0, 1, 2)
    cluster.create("t", (1, 0))
    cluster.stop(1)
    cluster.run(broker_change.process_broker_change)
    cluster.znodes.put(delete_topic_path("t"), None)
    cluster.run(topic_change.process_topic_deletion)
    assert elect(cluster, P0) == {P0: ErrorCode.INVALID_TOPIC_EXCEPTION}


def test_an_order_for_preferred_leaders_goes_when_it_was_looked_at() -> None:
    """Carried out or not; what it names need not exist, nor be readable."""
    cluster = ControlledCluster(0, 1)
    cluster.create("t", (1, 0))
    for data in (encode_partitions([P0, TopicPartition("none", 3)]), b"no JSON"):
        cluster.znodes.put(PREFERRED_ELECTION, data)
        cluster.run(replica_leader_election.process_preferred_replica_election)
        assert PREFERRED_ELECTION not in cluster.znodes.nodes


def test_an_order_that_names_many_partitions_that_do_not_exist_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    """Each client of the ensemble can write the znode."""
    cluster = ControlledCluster(0, 1)
    asked = [TopicPartition("none", number) for number in range(1000)]
    cluster.znodes.put(PREFERRED_ELECTION, encode_partitions(asked))
    cluster.run(replica_leader_election.process_preferred_replica_election)
    [record] = caplog.records
    assert "none-4 and 995 more keeps its leader" in record.message


def fail_log_dir(cluster: ControlledCluster, broker: int, *lost: TopicPartition) -> None:
    """As a broker does: a note; the controller asks with LeaderAndIsr; the answer
    names what is lost."""
    cluster.znodes.put("/log_dir_event_notification/log_dir_event_0000000000", encode_log_dir_event(broker))
    cluster.run(broker_change.process_log_dir_event_notification)
    asked = cluster.requests(LeaderAndIsrRequest)
    assert set(asked) == {broker}
    assert not cluster.znodes.children("/log_dir_event_notification")
    named = [TopicPartition(t.topic_name, s.partition_index) for t in asked[broker].topic_states
             for s in t.partition_states]  # fmt: skip
    answers = {name: ErrorCode.KAFKA_STORAGE_ERROR if name in lost else ErrorCode.NONE for name in named}
    cluster.run(broker_change.process_leader_and_isr_response, broker, answers)


def test_replicas_on_a_failed_log_dir_are_offline_for_leaders_and_clients() -> None:
    """The other log dir's replicas are untouched; the ISR drops the lost one, and
    metadata say it is offline."""
    cluster = ControlledCluster(0, 1, 2)
    cluster.create("t", (1, 0), (1, 2), (1,))
    fail_log_dir(cluster, 1, P0, P2)
    assert (cluster.leader(P0), cluster.isr(P0)) == (0, (0,))
    assert (cluster.leader(P1), cluster.isr(P1)) == (1, (1, 2))
    assert (cluster.leader(P2), cluster.isr(P2)) == (-1, (1,))
    sent = cluster.requests(UpdateMetadataRequest)[2].topic_states[0].partition_states
    assert {state.partition_index: state.offline_replicas for state in sent} == {0: [1], 2: [1]}
    assert elect(cluster, P0) == {P0: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}


def test_a_second_failure_adds_to_the_first_and_a_restart_ends_both() -> None:
    """A broker that comes back reports again what it has."""
    cluster = ControlledCluster(0, 1)
    cluster.create("t", (1, 0), (1, 0))
    fail_log_dir(cluster, 1, P0)
    fail_log_dir(cluster, 1, P0, P1)
    assert cluster.context.offline_dirs == {1: {P0, P1}}
    assert (cluster.leader(P0), cluster.leader(P1)) == (0, 0)
    bounce(cluster, 1)
    assert cluster.context.offline_dirs == {}
    cluster.catch_up()
    assert elect(cluster, P0, P1) == {P0: 1, P1: 1}


def test_a_move_away_from_a_failed_log_dir_ends() -> None:
    """The lost replica is one of those that go."""
    cluster = ControlledCluster(0, 1, 2)
    cluster.create("t", (1, 0))
    fail_log_dir(cluster, 1, P0)
    cluster.reassign({P0: [2, 0]})
    cluster.catch_up()
    assert (cluster.assignment(P0).replicas, cluster.leader(P0), set(cluster.isr(P0))) == ((2, 0), 0, {0, 2})


def test_a_successor_learns_of_failed_log_dirs_from_the_answers_to_its_own_request() -> None:
    """No znode has it; every broker is asked at the beginning of a term."""
    cluster = ControlledCluster(0, 1)
    cluster.create("t", (1, 0))
    fail_log_dir(cluster, 1, P0)
    cluster.elect()
    assert 1 in cluster.requests(LeaderAndIsrRequest)
    cluster.run(broker_change.process_leader_and_isr_response, 1, {P0: ErrorCode.KAFKA_STORAGE_ERROR})
    assert (cluster.context.offline_dirs, cluster.leader(P0)) == ({1: {P0}}, 0)
