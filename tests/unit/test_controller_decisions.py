"""What the controller does about events, driven over a dictionary of znodes."""

import json
from typing import Any

import pytest

from barnabas.base.ids import TopicPartition, Uuid, uuid_text
from barnabas.broker.cluster.steps import ControllerMovedError
from barnabas.broker.cluster.znodes import (
    BrokerInfo,
    Endpoint,
    LeaderIsrAndControllerEpoch,
    ReplicaAssignment,
    broker_path,
    delete_topic_path,
    encode_broker,
    encode_config,
    encode_log_dir_event,
    encode_partition_state,
    encode_partitions,
    encode_topic,
    partition_state_path,
    topic_path,
)
from barnabas.broker.controller import (
    broker_change,
    failover,
    isr_change,
    replica_leader_election,
    topic_change,
)
from barnabas.broker.controller.context import ControllerContext, PartitionState, ReplicaState
from barnabas.broker.controller.request_batch import RequestBatch
from barnabas.wire.kafka.errors import ErrorCode, KafkaError
from barnabas.wire.kafka.messages.leader_and_isr import LeaderAndIsrRequest
from barnabas.wire.kafka.messages.stop_replica import StopReplicaRequest
from barnabas.wire.kafka.messages.update_metadata import UpdateMetadataRequest
from support.znode_steps import Znodes

TOPIC_ID = Uuid(bytes(range(16)))
P0 = TopicPartition("t", 0)


def info(broker: int) -> BrokerInfo:
    return BrokerInfo(broker, (Endpoint("h", 9092 + broker, "PLAINTEXT", "PLAINTEXT"),))


class Cluster:
    """A controller, its znodes, and shorthands."""

    def __init__(self, *brokers: int) -> None:
        self.znodes = Znodes()
        for broker in brokers:
            self.start(broker)
        self.elect()

    def start(self, broker: int) -> None:
        self.znodes.put(broker_path(broker), encode_broker(info(broker), 0))

    def stop(self, broker: int) -> None:
        self.znodes.remove(broker_path(broker))

    def elect(self, epoch: int = 1, stop_after: int | None = None) -> None:
        self.context = ControllerContext(0, epoch)
        self.batch = RequestBatch(self.context, "PLAINTEXT")
        steps = failover.on_controller_failover(self.context, self.batch, lambda: TOPIC_ID)
        self.znodes.perform(steps, stop_after=stop_after)

    def topic(self, name: str, assignment: dict[int, tuple[int, ...]]) -> None:
        partitions = {index: ReplicaAssignment(replicas) for index, replicas in assignment.items()}
        self.znodes.put(topic_path(name), encode_topic(TOPIC_ID, partitions))

    def run(self, decide: Any, *args: Any) -> Any:
        self.znodes.sent.clear()
        return self.znodes.perform(decide(self.context, self.batch, *args))

    def topics_changed(self) -> Any:
        return self.run(topic_change.process_topic_change, lambda: TOPIC_ID)

    def partition(self, partition: TopicPartition = P0) -> dict[str, Any]:
        value: dict[str, Any] = json.loads(self.znodes.data(partition_state_path(partition)))
        return value

    def sent(self, kind: type) -> dict[int, Any]:
        return {broker: request for broker, request in self.znodes.sent if isinstance(request, kind)}

    def finish_deletion(self) -> None:
        """Let every broker delete what it was asked to delete."""
        while stops := self.sent(StopReplicaRequest):
            deleted = {
                broker: {TopicPartition(t.topic_name, p.partition_index): 0
                         for t in stop.topic_states for p in t.partition_states if p.delete_partition}
                for broker, stop in stops.items()
            }  # fmt: skip
            self.znodes.sent.clear()
            for broker, partitions in deleted.items():
                self.znodes.perform(
                    topic_change.process_stop_replica_response(self.context, self.batch, broker, partitions)
                )


def test_a_new_topic_gets_leaders_and_its_replicas_hear_of_it_first() -> None:
    """All live replicas are in sync, the first leads; LeaderAndIsr goes before UpdateMetadata."""
    cluster = Cluster(0, 1, 2)
    cluster.topic("t", {0: (1, 2, 0), 1: (2, 0, 1)})
    assert cluster.topics_changed() == ["t"]
    assert cluster.partition() == {
        "controller_epoch": 1,
        "leader": 1,
        "version": 1,
        "leader_epoch": 0,
        "isr": [1, 2, 0],
    }
    kinds = [type(request) for _, request in cluster.znodes.sent]
    assert kinds == [LeaderAndIsrRequest] * 3 + [UpdateMetadataRequest] * 3
    roles = cluster.sent(LeaderAndIsrRequest)[2]
    assert [state.is_new for state in roles.topic_states[0].partition_states] == [True, True]
    assert roles.topic_states[0].topic_id == TOPIC_ID
    assert [(leader.broker_id, leader.port) for leader in roles.live_leaders] == [(1, 9093), (2, 9094)]


def test_a_second_look_at_the_same_topics_does_nothing() -> None:
    """A watch is a hint: what it reports may be known already."""
    cluster = Cluster(0)
    cluster.topic("t", {0: (0,)})
    cluster.topics_changed()
    before = dict(cluster.znodes.nodes)
    assert cluster.topics_changed() == []
    assert cluster.znodes.nodes == before
    assert cluster.znodes.sent == []


def test_a_topic_without_id_gets_one() -> None:
    """Kafka before 2.8 wrote none."""
    cluster = Cluster(0)
    cluster.znodes.put(topic_path("t"), b'{"version":1,"partitions":{"0":[0]}}')
    cluster.topics_changed()
    written = json.loads(cluster.znodes.data(topic_path("t")))
    assert written["topic_id"] == uuid_text(TOPIC_ID)
    assert cluster.context.topic_ids == {"t": TOPIC_ID}


def test_a_dead_leader_is_replaced_and_leaves_the_isr() -> None:
    """The leader epoch rises; the survivors and everybody's metadata hear of it."""
    cluster = Cluster(0, 1, 2)
    cluster.topic("t", {0: (1, 2, 0)})
    cluster.topics_changed()
    cluster.stop(1)
    cluster.run(broker_change.process_broker_change)
    assert cluster.partition() == {"controller_epoch": 1, "leader": 2, "version": 1, "leader_epoch": 1, "isr": [2, 0]}
    assert set(cluster.sent(LeaderAndIsrRequest)) == {0, 2}
    state = cluster.sent(UpdateMetadataRequest)[0].topic_states[0].partition_states[0]
    assert (state.leader, state.offline_replicas) == (2, [1])


@pytest.mark.parametrize("known", [(1,), (1, 0, 2)])
def test_an_election_takes_what_the_znode_says_where_the_controller_knows_less(known: tuple[int, ...]) -> None:
    """A broker of an older version wrote the ISR itself: the controller knows a
    smaller one, or a larger one."""
    cluster = Cluster(0, 1, 2)
    cluster.topic("t", {0: (1, 0, 2)})
    cluster.topics_changed()
    state = cluster.context.leadership[P0].leader_and_isr
    cluster.context.leadership[P0] = LeaderIsrAndControllerEpoch(state._replace(isr=known), 1)
    cluster.znodes.put(partition_state_path(P0), encode_partition_state(state._replace(isr=(1, 2)), 1))
    cluster.stop(1)
    cluster.run(broker_change.process_broker_change)
    assert (cluster.partition()["leader"], cluster.partition()["isr"]) == (2, [2])


def test_the_last_of_the_isr_stays_in_it_without_leading() -> None:
    """Only this replica surely has all records; when it comes back it leads again."""
    cluster = Cluster(0, 1)
    cluster.topic("t", {0: (1,)})
    cluster.topics_changed()
    cluster.stop(1)
    cluster.run(broker_change.process_broker_change)
    assert (cluster.partition()["leader"], cluster.partition()["isr"]) == (-1, [1])
    assert cluster.context.partition_states[P0] is PartitionState.OFFLINE
    cluster.start(1)
    cluster.run(broker_change.process_broker_change)
    assert (cluster.partition()["leader"], cluster.partition()["leader_epoch"]) == (1, 2)


def test_an_unclean_election_happens_where_the_topic_allows_it() -> None:
    """The topic's own configuration decides, and the partition is marked as recovering."""
    cluster = Cluster(0, 1)
    cluster.topic("t", {0: (1, 0)})
    cluster.topics_changed()
    cluster.znodes.put("/config/topics/t", encode_config({"unclean.leader.election.enable": "true"}))
    cluster.stop(0)
    cluster.run(broker_change.process_broker_change)
    cluster.start(0)
    cluster.stop(1)
    cluster.run(broker_change.process_broker_change)
    assert (cluster.partition()["leader"], cluster.partition()["isr"]) == (0, [0])
    assert cluster.partition()["leader_recovery_state"] == 1


def test_an_unclean_election_happens_once_it_is_allowed() -> None:
    """A change of the cluster's default is enough, without any broker coming or going."""
    cluster = Cluster(0, 1)
    cluster.topic("t", {0: (1, 0)})
    cluster.topics_changed()
    cluster.stop(0)
    cluster.run(broker_change.process_broker_change)
    cluster.start(0)
    cluster.stop(1)
    cluster.run(broker_change.process_broker_change)
    assert cluster.partition()["leader"] == -1
    cluster.context.unclean_default = True
    cluster.run(replica_leader_election.process_unclean_leader_election_enable)
    assert (cluster.partition()["leader"], cluster.partition()["isr"]) == (0, [0])


def test_a_broker_that_came_back_between_two_looks_gets_its_roles_again() -> None:
    """Its znode has another epoch: what it knew died with it."""
    cluster = Cluster(0, 1)
    cluster.topic("t", {0: (1, 0)})
    cluster.topics_changed()
    cluster.stop(1)
    cluster.start(1)
    cluster.run(broker_change.process_broker_change)
    assert cluster.sent(LeaderAndIsrRequest)[1].broker_epoch == cluster.context.brokers[1].epoch
    assert cluster.partition()["leader"] == 0


def test_new_partitions_of_a_topic_are_started() -> None:
    """The old ones keep their leaders and epochs."""
    cluster = Cluster(0, 1)
    cluster.topic("t", {0: (0,)})
    cluster.topics_changed()
    cluster.topic("t", {0: (0,), 1: (1,)})
    cluster.run(topic_change.process_partition_modifications, "t")
    assert cluster.partition(TopicPartition("t", 1))["leader"] == 1
    assert set(cluster.sent(LeaderAndIsrRequest)) == {1}


def test_partitions_of_a_topic_in_deletion_are_taken_back() -> None:
    """The assignment is restored, and nothing is started."""
    cluster = Cluster(0, 1)
    cluster.topic("t", {0: (0,)})
    cluster.topics_changed()
    cluster.znodes.put(delete_topic_path("t"), None)
    cluster.run(topic_change.process_topic_deletion)
    cluster.topic("t", {0: (0,), 1: (1,)})
    cluster.run(topic_change.process_partition_modifications, "t")
    assert json.loads(cluster.znodes.data(topic_path("t")))["partitions"] == {"0": [0]}


def test_deletion_stops_replicas_then_deletes_them_then_the_znodes() -> None:
    """Brokers drop the topic from their metadata at once; its place in the queue goes last."""
    cluster = Cluster(0, 1)
    cluster.topic("t", {0: (0, 1), 1: (1, 0)})
    cluster.topics_changed()
    cluster.znodes.put("/config/topics/t", encode_config({}))
    cluster.znodes.put(delete_topic_path("t"), None)
    cluster.run(topic_change.process_topic_deletion)
    first = cluster.sent(UpdateMetadataRequest)[0]
    assert {state.leader for topic in first.topic_states for state in topic.partition_states} == {-2}
    stops = [request for _, request in cluster.znodes.sent if isinstance(request, StopReplicaRequest)]
    deletes = [[p.delete_partition for t in stop.topic_states for p in t.partition_states] for stop in stops]
    assert deletes == [[False, False], [False, False], [True, True], [True, True]]
    cluster.finish_deletion()
    assert cluster.context.topics == {}
    assert not [path for path in cluster.znodes.nodes if "/t" in path.replace("/topics", "")]


def test_deletion_waits_for_a_broker_that_is_away_and_goes_on_when_it_is_back() -> None:
    """A replica that was not deleted would come back from the dead."""
    cluster = Cluster(0, 1)
    cluster.topic("t", {0: (0, 1)})
    cluster.topics_changed()
    cluster.stop(1)
    cluster.run(broker_change.process_broker_change)
    cluster.znodes.put(delete_topic_path("t"), None)
    cluster.run(topic_change.process_topic_deletion)
    cluster.finish_deletion()
    assert "t" in cluster.context.topics
    assert cluster.context.ineligible_for_deletion == {"t"}
    cluster.start(1)
    cluster.run(broker_change.process_broker_change)
    cluster.finish_deletion()
    assert cluster.context.topics == {}
    assert delete_topic_path("t") not in cluster.znodes.nodes


def test_orders_for_missing_topics_and_under_a_ban_are_struck() -> None:
    """With delete.topic.enable=false nothing is deleted, and the request does not
    stay for later."""
    cluster = Cluster(0)
    cluster.topic("t", {0: (0,)})
    cluster.topics_changed()
    cluster.znodes.put(delete_topic_path("t"), None)
    cluster.znodes.put(delete_topic_path("none"), None)
    cluster.context.delete_topic_enabled = False
    cluster.run(topic_change.process_topic_deletion)
    assert cluster.znodes.children("/admin/delete_topics") == []
    assert "t" in cluster.context.topics


def test_a_controlled_shutdown_moves_leaders_and_answers_what_is_left() -> None:
    """Partitions with one replica cannot move, and are not counted."""
    cluster = Cluster(0, 1)
    cluster.topic("t", {0: (1, 0), 1: (0, 1), 2: (1,)})
    cluster.topics_changed()
    assert cluster.run(broker_change.process_controlled_shutdown, 1, cluster.context.brokers[1].epoch) == []
    assert (cluster.partition()["leader"], cluster.partition()["isr"]) == (0, [0])
    assert cluster.partition(TopicPartition("t", 1))["isr"] == [0]
    with pytest.raises(KafkaError) as refused:
        cluster.run(broker_change.process_controlled_shutdown, 1, 0)
    assert refused.value.code is ErrorCode.STALE_BROKER_EPOCH


def alter_isr(cluster: Cluster, **changes: Any) -> Any:
    current = cluster.context.leadership[P0].leader_and_isr
    broker = changes.pop("broker", current.leader)
    change = isr_change.IsrChange(P0, current.leader_epoch, current.isr, 0, current.version)._replace(**changes)
    return cluster.run(isr_change.process_alter_partition, broker, cluster.context.brokers[broker].epoch, [change])[P0]


def test_a_leader_changes_its_isr_under_its_epochs() -> None:
    """The znode's version is the partition epoch that the next change must name."""
    cluster = Cluster(0, 1, 2)
    cluster.topic("t", {0: (1, 2, 0)})
    cluster.topics_changed()
    assert alter_isr(cluster, isr=(1, 2)).version == 1
    assert cluster.partition()["isr"] == [1, 2]
    assert alter_isr(cluster, isr=(1, 2)).version == 1
    assert alter_isr(cluster, isr=(1,), partition_epoch=0) is ErrorCode.INVALID_UPDATE_VERSION
    assert alter_isr(cluster, isr=(1,), leader_epoch=-1) is ErrorCode.FENCED_LEADER_EPOCH
    assert alter_isr(cluster, isr=(1,), leader_epoch=1) is ErrorCode.NOT_CONTROLLER
    assert alter_isr(cluster, isr=(1, 9)) is ErrorCode.INELIGIBLE_REPLICA


def test_a_leader_of_an_earlier_life_does_not_change_its_isr() -> None:
    """A request that was on its way while the broker restarted; nor does a broker
    that is not there."""
    cluster = Cluster(0, 1, 2)
    cluster.topic("t", {0: (1, 2, 0)})
    cluster.topics_changed()
    change = isr_change.IsrChange(P0, 0, (1,), 0, 0)
    epoch = cluster.context.brokers[1].epoch
    for broker, broker_epoch in ((1, epoch - 1), (1, epoch + 1), (1, -1), (9, epoch)):
        with pytest.raises(KafkaError) as refused:
            cluster.run(isr_change.process_alter_partition, broker, broker_epoch, [change])
        assert refused.value.code is ErrorCode.STALE_BROKER_EPOCH
    assert cluster.partition()["isr"] == [1, 2, 0]
    assert cluster.run(isr_change.process_alter_partition, 1, epoch, [change])[P0].isr == (1,)


def test_an_isr_is_changed_by_its_leader_alone() -> None:
    """A follower, or a leader of before, knows no more than the partition's epochs."""
    cluster = Cluster(0, 1, 2)
    cluster.topic("t", {0: (1, 2, 0)})
    cluster.topics_changed()
    assert alter_isr(cluster, broker=2, isr=(2,)) is ErrorCode.INVALID_REQUEST
    assert cluster.partition()["isr"] == [1, 2, 0]


def test_an_isr_that_was_based_on_an_older_one_is_refused_before_anything_is_written() -> None:
    """The znode would refuse it, too, but a controller that has written it itself need not ask."""
    cluster = Cluster(0, 1, 2)
    cluster.topic("t", {0: (1, 2, 0)})
    cluster.topics_changed()
    alter_isr(cluster, isr=(1, 2))
    stale = isr_change.IsrChange(P0, 0, (1,), 0, 0)
    assert isr_change._validate_isr_change(cluster.context, 1, stale) is ErrorCode.INVALID_UPDATE_VERSION


@pytest.mark.parametrize("isr", [(), (2, 0), (1, 1), (1,) * 1000], ids=["none", "others", "twice", "long"])
def test_an_isr_without_its_leader_or_with_a_member_twice_is_refused(isr: tuple[int, ...]) -> None:
    """It would be written for good: no replica could lead the partition after this leader."""
    cluster = Cluster(0, 1, 2)
    cluster.topic("t", {0: (1, 2, 0)})
    cluster.topics_changed()
    assert alter_isr(cluster, isr=isr) is ErrorCode.INVALID_REQUEST
    assert cluster.partition()["isr"] == [1, 2, 0]


def test_a_replica_that_was_restarted_since_it_fetched_does_not_join() -> None:
    """It may have lost what it reported in its earlier life (KIP-903); members of the set, and
    fetches without an epoch, are not checked."""
    cluster = Cluster(0, 1, 2)
    cluster.topic("t", {0: (1, 2, 0)})
    cluster.topics_changed()
    epochs = {broker: info.epoch for broker, info in cluster.context.brokers.items()}
    alter_isr(cluster, isr=(1, 2))
    earlier = (epochs[1], epochs[2], epochs[0] - 1)
    assert alter_isr(cluster, isr=(1, 2, 0), broker_epochs=earlier) is ErrorCode.INELIGIBLE_REPLICA
    assert alter_isr(cluster, isr=(1,), broker_epochs=(epochs[1] - 1,)).isr == (1,)
    assert alter_isr(cluster, isr=(1, 2), broker_epochs=(-1, -1)).isr == (1, 2)
    assert alter_isr(cluster, isr=(1, 2, 0), broker_epochs=(epochs[1], epochs[2], epochs[0])).isr == (1, 2, 0)


def test_an_isr_that_was_written_elsewhere_meanwhile_is_not_overwritten() -> None:
    """The znode's version decides, not the cache."""
    cluster = Cluster(0, 1)
    cluster.topic("t", {0: (1, 0)})
    cluster.topics_changed()
    cluster.znodes.put(
        partition_state_path(P0), encode_partition_state(cluster.context.leadership[P0].leader_and_isr, 1)
    )
    assert alter_isr(cluster, isr=(1,)) is ErrorCode.INVALID_UPDATE_VERSION


def test_an_isr_that_an_unanswered_write_left_is_confirmed() -> None:
    """The write that is repeated after a lost connection fails, for it was done; the
    leader must hear that it was."""
    cluster = Cluster(0, 1)
    cluster.topic("t", {0: (1, 0)})
    cluster.topics_changed()
    known = cluster.context.leadership[P0].leader_and_isr
    cluster.znodes.put(partition_state_path(P0), encode_partition_state(known._replace(isr=(1,)), 1))
    assert alter_isr(cluster, isr=(1,)) == known._replace(isr=(1,), version=1)
    assert alter_isr(cluster, isr=(1, 0)).version == 2


def test_notifications_of_isr_changes_are_read_sent_and_removed() -> None:
    """Older brokers write ISRs themselves."""
    cluster = Cluster(0, 1)
    cluster.topic("t", {0: (1, 0)})
    cluster.topics_changed()
    known = cluster.context.leadership[P0].leader_and_isr
    cluster.znodes.put(partition_state_path(P0), encode_partition_state(known._replace(isr=(1,)), 1))
    cluster.znodes.put("/isr_change_notification/isr_change_0000000000", encode_partitions([P0]))
    cluster.run(isr_change.process_isr_change_notification)
    assert cluster.context.leadership[P0].leader_and_isr.isr == (1,)
    assert set(cluster.sent(UpdateMetadataRequest)) == {0, 1}
    assert cluster.znodes.children("/isr_change_notification") == []


def test_a_failed_log_dir_takes_its_replicas_out_of_office() -> None:
    """The broker is asked for its replicas; those it reports as lost go to others."""
    cluster = Cluster(0, 1)
    cluster.topic("t", {0: (1, 0)})
    cluster.topics_changed()
    cluster.znodes.put("/log_dir_event_notification/log_dir_event_0000000000", encode_log_dir_event(1))
    cluster.run(broker_change.process_log_dir_event_notification)
    assert set(cluster.sent(LeaderAndIsrRequest)) == {1}
    cluster.run(broker_change.process_leader_and_isr_response, 1, {P0: ErrorCode.KAFKA_STORAGE_ERROR})
    assert (cluster.partition()["leader"], cluster.partition()["isr"]) == (0, [0])
    assert cluster.context.replica_states[P0][1] is ReplicaState.OFFLINE


def test_preferred_leaders_return_when_asked_for_or_out_of_balance() -> None:
    """By the znode, and by the share of misplaced leaders."""
    cluster = Cluster(0, 1)
    cluster.topic("t", {0: (1, 0)})
    cluster.topics_changed()
    for ask in (False, True):
        cluster.stop(1)
        cluster.run(broker_change.process_broker_change)
        cluster.start(1)
        cluster.run(broker_change.process_broker_change)
        alter_isr(cluster, isr=(0, 1))
        assert cluster.partition()["leader"] == 0
        if ask:
            cluster.znodes.put("/admin/preferred_replica_election", encode_partitions([P0]))
            cluster.run(replica_leader_election.process_preferred_replica_election)
            assert "/admin/preferred_replica_election" not in cluster.znodes.nodes
        else:
            cluster.run(replica_leader_election.process_auto_preferred_leader_election, 10)
        assert cluster.partition()["leader"] == 1


def test_a_deposed_controller_writes_nothing() -> None:
    """Every write is conditional on the epoch's znode."""
    cluster = Cluster(0)
    cluster.topic("t", {0: (0,)})
    cluster.znodes.epoch_version += 1
    steps = topic_change.process_topic_change(cluster.context, cluster.batch, lambda: TOPIC_ID)
    with pytest.raises(ControllerMovedError):
        cluster.znodes.perform(steps, epoch_version=0)
    assert partition_state_path(P0) not in cluster.znodes.nodes


def test_malformed_znodes_are_left_out_and_the_rest_goes_on() -> None:
    """Any client of the ensemble can write there."""
    cluster = Cluster(0)
    cluster.znodes.put(broker_path(7), b"{")
    cluster.znodes.put(topic_path("bad"), b"[]")
    cluster.topic("t", {0: (0,)})
    cluster.run(broker_change.process_broker_change)
    cluster.topics_changed()
    assert cluster.partition()["leader"] == 0
    assert set(cluster.context.brokers) == {0}


def scenario(cluster: Cluster) -> list[Any]:
    """Steps of one controller's day, each fresh when it is asked for."""
    return [
        lambda: topic_change.process_topic_change(cluster.context, cluster.batch, lambda: TOPIC_ID),
        lambda: broker_change.process_broker_change(cluster.context, cluster.batch),
        lambda: topic_change.process_topic_deletion(cluster.context, cluster.batch),
    ]


@pytest.mark.parametrize("event", range(3))
@pytest.mark.parametrize("cut", range(14))
def test_a_successor_finishes_what_a_controller_left_at_any_step(event: int, cut: int) -> None:
    """A crash between any two steps leaves znodes from which the next controller
    reaches the same end."""
    cluster = Cluster(0, 1, 2)
    cluster.topic("kept", {0: (1, 2, 0)})
    cluster.topic("gone", {0: (0, 2)})
    for number, step in enumerate(scenario(cluster)):
        if number == 1:
            cluster.stop(1)
        if number == 2:
            cluster.znodes.put(delete_topic_path("gone"), None)
        cluster.znodes.sent.clear()
        cluster.znodes.perform(step(), stop_after=cut if number == event else None)
        if number == event:
            cluster.elect(epoch=2)
    cluster.finish_deletion()
    kept = cluster.partition(TopicPartition("kept", 0))
    assert (kept["leader"], kept["isr"]) == (2, [2, 0])
    assert set(cluster.context.topics) == {"kept"}
    assert cluster.znodes.children("/brokers/topics") == ["kept"]
    assert cluster.znodes.children("/admin/delete_topics") == []
