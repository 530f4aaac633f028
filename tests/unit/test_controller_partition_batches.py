"""Decisions about many partitions: in batches of bounded size, and at a price for each
partition that does not grow."""

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import pytest

from barnabas.base.ids import TopicPartition, Uuid
from barnabas.broker.cluster.steps import Steps
from barnabas.broker.cluster.znodes import (
    BrokerInfo,
    Endpoint,
    ReplicaAssignment,
    TopicAssignment,
    broker_path,
    delete_topic_path,
    encode_broker,
    encode_topic,
    partition_state_path,
    topic_path,
)
from barnabas.broker.controller import broker_change, failover, topic_change
from barnabas.broker.controller.context import ControllerContext
from barnabas.broker.controller.partition_batches import find_in_turns, in_batches
from barnabas.broker.controller.request_batch import RequestBatch
from barnabas.wire.kafka.messages.leader_and_isr import LeaderAndIsrRequest
from barnabas.wire.kafka.messages.stop_replica import StopReplicaRequest
from barnabas.wire.kafka.messages.update_metadata import UpdateMetadataRequest
from support.znode_steps import Znodes

TOPIC_ID = Uuid(bytes(range(16)))
BATCH = 256
FEW, MANY = 256, 1024
WHOLE = 2048


def partitions_of(request: Any) -> list[TopicPartition]:
    return [
        TopicPartition(topic.topic_name, state.partition_index)
        for topic in request.topic_states
        for state in topic.partition_states
    ]


class Cluster:
    """A controller over a dictionary of znodes; ``sent`` has what the last decision sent."""

    def __init__(self, partitions: int = 0) -> None:
        self.znodes = Znodes()
        for broker in range(3):
            info = BrokerInfo(broker, (Endpoint("h", 9092 + broker, "PLAINTEXT", "PLAINTEXT"),))
            self.znodes.put(broker_path(broker), encode_broker(info, 0))
        self.elect()
        if partitions:
            self.create(partitions)

    def elect(self) -> None:
        self.context = ControllerContext(0, 1)
        self.batch = RequestBatch(self.context, "PLAINTEXT")
        self.run(failover.on_controller_failover, lambda: TOPIC_ID)

    def run(self, decide: Callable[..., Any], *args: Any, stop_after: int | None = None) -> list[tuple[int, Any]]:
        self.znodes.sent = []
        self.znodes.perform(decide(self.context, self.batch, *args), stop_after=stop_after)
        return self.znodes.sent

    def create(self, partitions: int, *, stop_after: int | None = None) -> list[tuple[int, Any]]:
        assignment = {index: ReplicaAssignment((index % 3, (index + 1) % 3)) for index in range(partitions)}
        self.znodes.put(topic_path("t"), encode_topic(TOPIC_ID, assignment))
        return self.run(topic_change.process_topic_change, lambda: TOPIC_ID, stop_after=stop_after)

    def kill(self) -> list[tuple[int, Any]]:
        self.znodes.remove(broker_path(1))
        return self.run(broker_change.process_broker_change)

    def restart(self) -> list[tuple[int, Any]]:
        return self.run(failover.on_controller_failover, lambda: TOPIC_ID)

    def delete(self) -> list[tuple[int, Any]]:
        """From the request to the last znode, with brokers that delete at once."""
        self.znodes.put(delete_topic_path("t"), None)
        sent = self.run(topic_change.process_topic_deletion)
        for broker, request in sent:
            if isinstance(request, StopReplicaRequest):
                states = [state for topic in request.topic_states for state in topic.partition_states]
                deleted = {TopicPartition("t", state.partition_index): 0 for state in states if state.delete_partition}
                self.run(topic_change.process_stop_replica_response, broker, deleted)
        return sent


def lines_run(work: Callable[[], object]) -> int:
    """A measure of work that no other process disturbs: the lines of the
    controller's code that run."""
    count = 0

    def local(frame: Any, event: str, _: Any) -> Any:
        nonlocal count
        count += event == "line"
        return local

    def enter(frame: Any, _event: str, _: Any) -> Any:
        return local if "/broker/controller/" in frame.f_code.co_filename else None

    before = sys.gettrace()
    sys.settrace(enter)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def test_a_part_is_bounded_and_nothing_is_left_out() -> None:
    """The batches are the whole, in its order."""
    items = list(range(1000))
    batches = list(in_batches(items))
    assert [item for batch in batches for item in batch] == items
    assert max(map(len, batches)) == BATCH
    assert list(in_batches([])) == []


def test_no_request_names_more_partitions_than_a_batch() -> None:
    """What a broker decodes and applies in one piece is bounded, whatever the size of the topic."""
    cluster = Cluster()
    sent = [*cluster.create(3 * WHOLE), *cluster.kill(), *cluster.restart(), *cluster.delete()]
    for kind in (LeaderAndIsrRequest, UpdateMetadataRequest, StopReplicaRequest):
        sizes = [len(partitions_of(request)) for _, request in sent if isinstance(request, kind)]
        assert 0 < max(sizes) <= BATCH


def test_brokers_learn_of_a_whole_topic_at_once() -> None:
    """When it is made, and when a controller or a broker begins: clients would take a
    part of it for the topic."""
    cluster = Cluster()
    for sent in (cluster.create(WHOLE), cluster.restart()):
        named = [partitions_of(request) for _, request in sent if isinstance(request, UpdateMetadataRequest)]
        assert {len(partitions) for partitions in named if partitions} == {WHOLE}


def test_each_broker_learns_of_all_its_replicas_and_of_all_partitions() -> None:
    """In batches, LeaderAndIsr still goes to the replicas and UpdateMetadata to all
    brokers, each partition once."""
    sent = Cluster().create(MANY)
    for broker in range(3):
        mine = [request for receiver, request in sent if receiver == broker]
        roles = [p for request in mine if isinstance(request, LeaderAndIsrRequest) for p in partitions_of(request)]
        known = [p for request in mine if isinstance(request, UpdateMetadataRequest) for p in partitions_of(request)]
        assert sorted(roles) == [TopicPartition("t", n) for n in range(MANY) if broker in (n % 3, (n + 1) % 3)]
        assert sorted(known) == [TopicPartition("t", n) for n in range(MANY)]


def test_a_new_controller_writes_each_state_once_and_each_replica_learns_of_it_once() -> None:
    """Of a topic a third of whose leaders died; the partitions without a leader come
    before all others."""
    cluster = Cluster(MANY)
    cluster.znodes.remove(broker_path(1))
    sent = cluster.restart()
    versions = [cluster.znodes.nodes[partition_state_path(TopicPartition("t", n))][1] for n in range(MANY)]
    assert versions == [0 if n % 3 == 2 else 1 for n in range(MANY)]
    for broker in (0, 2):
        requests = [r for receiver, r in sent if receiver == broker and isinstance(r, LeaderAndIsrRequest)]
        named = [partition for request in requests for partition in partitions_of(request)]
        assert sorted(named) == [TopicPartition("t", n) for n in range(MANY) if broker in (n % 3, (n + 1) % 3)]
    assert {p.partition % 3 for p in partitions_of(requests[0])} == {1}, "led by broker 1 until now"
    assert {known.leader_and_isr.leader for known in cluster.context.leadership.values()} == {0, 2}


@pytest.mark.parametrize("work", [Cluster.kill, Cluster.restart, Cluster.delete])
def test_the_work_for_a_partition_does_not_grow_with_their_number(work: Callable[[Cluster], object]) -> None:
    """A broker's death, a new controller, a deletion: four times the partitions are
    four times the work."""
    few, many = Cluster(FEW), Cluster(MANY)
    assert lines_run(lambda: work(many)) / MANY < 1.2 * lines_run(lambda: work(few)) / FEW


def test_the_work_of_a_creation_does_not_grow_for_a_partition_with_their_number() -> None:
    """Four times the partitions are four times the work."""
    few, many = Cluster(), Cluster()
    assert lines_run(lambda: many.create(MANY)) / MANY < 1.2 * lines_run(lambda: few.create(FEW)) / FEW


def test_a_controller_that_dies_between_two_parts_leaves_a_topic_that_its_successor_completes() -> None:
    """At many steps of the creation of a topic of three batches."""
    partitions = 3 * BATCH
    paths = [partition_state_path(TopicPartition("t", index)) for index in range(partitions)]
    unfinished = 0
    for stop_after in range(2, 9):
        cluster = Cluster()
        cluster.create(partitions, stop_after=stop_after)
        unfinished += not all(path in cluster.znodes.nodes for path in paths)
        cluster.elect()
        assert all(path in cluster.znodes.nodes for path in paths)
        assert len(cluster.context.leadership) == partitions
    assert unfinished


def test_a_topic_that_is_deleted_in_parts_leaves_nothing() -> None:
    """Neither znodes nor states in the controller's context."""
    cluster = Cluster(MANY)
    cluster.delete()
    assert not [path for path in cluster.znodes.nodes if path.startswith((topic_path("t"), delete_topic_path("t")))]
    assert cluster.context.topics == {}
    assert cluster.context.replica_states == {}
    assert cluster.context.replica_counts == {}


def test_the_counts_of_states_are_those_of_the_replicas() -> None:
    """After a creation, a death and half of a deletion, each count is what counting would give."""
    cluster = Cluster(MANY)
    cluster.kill()
    cluster.znodes.put(delete_topic_path("t"), None)
    cluster.run(topic_change.process_topic_deletion)
    states = Counter(state for replicas in cluster.context.replica_states.values() for state in replicas.values())
    assert len(states) > 1
    assert {state: count for state, count in cluster.context.replica_counts["t"].items() if count} == states


@pytest.mark.parametrize("work", ["creation", "deletion", "restart"])
def test_no_step_changes_the_states_of_more_partitions_than_a_batch(work: str) -> None:
    """Between two steps the event loop serves everything else, also where a decision
    writes and sends nothing."""
    cluster = Cluster(0 if work == "creation" else MANY)
    context, new_topic_id = cluster.context, lambda: TOPIC_ID
    if work == "creation":
        found = TopicAssignment(TOPIC_ID, {index: ReplicaAssignment((index % 3,)) for index in range(MANY)})
        steps = topic_change.process_created_topics(context, cluster.batch, {"t": found})
    elif work == "deletion":
        cluster.znodes.put(delete_topic_path("t"), None)
        steps = topic_change.process_topic_deletion(context, cluster.batch)
    else:
        context = cluster.context = ControllerContext(0, 1)
        steps = failover.on_controller_failover(context, RequestBatch(context, "PLAINTEXT"), new_topic_id)
    counts = {"assigned": len(context.topics.get("t", ())), "states": len(context.partition_states)}
    largest = dict.fromkeys(counts, 0)
    for _ in cluster.znodes.each(steps):
        now = {"assigned": len(context.topics.get("t", ())), "states": len(context.partition_states)}
        for what, count in now.items():
            largest[what] = max(largest[what], abs(count - counts[what]))
        counts = now
    assert max(largest.values()) == BATCH


def test_topics_are_learned_in_batches() -> None:
    """A new controller that finds many small topics reads some at a time."""
    cluster = Cluster()
    topics = [f"t{number}" for number in range(3 * BATCH)]
    for topic in topics:
        cluster.znodes.nodes[topic_path(topic)] = (encode_topic(TOPIC_ID, {0: ReplicaAssignment((0,))}), 0, 1)
    context = ControllerContext(0, 1)
    steps = topic_change.learn_topics(context, topics, lambda: TOPIC_ID)
    sizes = [0, *(len(context.topics) for _ in cluster.znodes.each(steps))]
    assert sizes[-1] == len(topics)
    assert max(after - before for before, after in pairwise(sizes)) <= BATCH


@pytest.mark.parametrize("count", [0, 1, 4096, 4097, 10_000])
def test_a_search_in_all_partitions_lets_others_have_their_turn(count: int) -> None:
    """It finds what one look at all of them finds, in their order, and lets others
    have their turn after each."""
    looks: list[int] = []

    def look(some: Sequence[int]) -> list[int]:
        looks.append(len(some))
        return [number for number in some if number % 3 == 0]

    found: list[int] = []

    def search() -> Steps[None]:
        found.extend((yield from find_in_turns(range(count), look)))

    steps = list(search())
    assert all(step is None for step in steps)
    assert found == list(range(0, count, 3))
    assert len(steps) == len(looks)
    assert sum(looks) == count
    assert max(looks, default=0) <= 256
