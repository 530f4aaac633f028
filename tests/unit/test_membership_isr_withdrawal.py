"""Which in-sync sets a broker leaves before it registers, after its logs have lost records."""

import logging
from collections.abc import Callable, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.base.ids import TopicPartition
from barnabas.broker.cluster.steps import Committed, Refused, Steps, Transact
from barnabas.broker.cluster.znodes import (
    CONTROLLER,
    CONTROLLER_EPOCH,
    NO_LEADER,
    LeaderAndIsr,
    decode_partition_state,
    encode_partition_state,
    partition_state_path,
)
from barnabas.broker.membership.isr_withdrawal import MAX_WAIT_MS, leave_in_sync_sets
from barnabas.broker.membership.leadership_release import give_up_leaderships
from barnabas.log.lost_data import LostData
from barnabas.wire.jute.errors import ErrorCode as Keeper
from barnabas.wire.jute.errors import KeeperError
from support.znode_steps import Znodes

LOST = LostData("the log ends at offset 991, below its checkpointed high watermark 2000", 991, 2000)
T0 = TopicPartition("t", 0)
EPOCH = 7


class Cluster:
    """The states of partitions as znodes, and a controller that may be there."""

    def __init__(self, states: Mapping[TopicPartition, LeaderAndIsr], *, has_controller: bool = False) -> None:
        self.znodes = Znodes()
        self.znodes.put(CONTROLLER_EPOCH, b"7")
        self.refusal: KeeperError | None = None
        self.before_write: Callable[[], None] = lambda: None
        self.writes = 0
        self.partitions = list(states)
        for topic_partition, state in states.items():
            path = partition_state_path(topic_partition)
            self.znodes.put(path, None)
            self.znodes.nodes[path] = (encode_partition_state(state, EPOCH), state.version, 0)
        if has_controller:
            self.elect_controller()

    @property
    def pauses(self) -> int:
        return len(self.znodes.pauses_ms)

    def on_pause(self, action: Callable[[], None]) -> None:
        self.znodes.on_pause = action

    def state(self, topic_partition: TopicPartition) -> LeaderAndIsr:
        path = partition_state_path(topic_partition)
        data, version, _ = self.znodes.nodes[path]
        stored = decode_partition_state(path, data, version)
        assert stored.controller_epoch == EPOCH
        return stored.leader_and_isr

    def elect_controller(self) -> None:
        self.znodes.put(CONTROLLER, b"{}")
        self.znodes.put(CONTROLLER_EPOCH, b"8")

    def remove(self, broker: int) -> None:
        """As a controller does it when a broker is gone."""
        for topic_partition in self.partitions:
            state = self.state(topic_partition)
            if broker in state.isr and (len(state.isr) > 1 or state.leader == broker):
                leader = NO_LEADER if state.leader == broker else state.leader
                # The last member stays, as no other could lead.
                after = state.with_leader(leader, [member for member in state.isr if member != broker] or [broker])
                self.znodes.put(partition_state_path(topic_partition), encode_partition_state(after, EPOCH))

    def leave(self, broker: int, *lost: TopicPartition) -> None:
        """Leave the in-sync sets."""
        self.run(leave_in_sync_sets(broker, dict.fromkeys(lost, LOST)))

    def run(self, steps: Steps[None], most_steps: int = 2000) -> None:
        """Run the steps to their end."""
        outcome = None
        for _ in range(most_steps):
            try:
                step = steps.send(outcome)
            except StopIteration:
                return
            if isinstance(step, Transact):
                self.before_write()
                outcome = [Refused(self.refusal)] if self.refusal else self.znodes.outcome(step)
                self.writes += isinstance(outcome[0], Committed)
            else:
                outcome = self.znodes.outcome(step)
        raise AssertionError("the broker never registers")


@pytest.mark.parametrize(("leader", "leader_after"), [(0, NO_LEADER), (1, 1), (NO_LEADER, NO_LEADER)])
def test_without_a_controller_the_broker_writes_the_set_without_itself(leader: int, leader_after: int) -> None:
    """In the next leader epoch, and without a leader if it led: a later controller
    elects from the rest."""
    cluster = Cluster({T0: LeaderAndIsr(leader, 4, (0, 1, 2), version=9)})
    cluster.leave(0, T0)
    assert cluster.state(T0) == LeaderAndIsr(leader_after, 5, (1, 2), version=10)


def test_the_last_member_of_a_set_stays_in_it_and_logs_an_error(caplog: pytest.LogCaptureFixture) -> None:
    """No other replica could lead: the partition goes on with what is there, and an
    operator can read why."""
    cluster = Cluster({T0: LeaderAndIsr(0, 4, (0,))})
    with caplog.at_level(logging.ERROR):
        cluster.leave(0, T0)
    assert cluster.writes == 0
    assert "no other in-sync replica" in caplog.text
    assert LOST.reason in caplog.text


@pytest.mark.parametrize("has_controller", [True, False])
def test_the_last_member_of_a_set_leads_in_a_new_epoch_only(has_controller: bool) -> None:
    """Replicas outside the set may have records of its last epoch that it has lost."""
    cluster = Cluster({T0: LeaderAndIsr(0, 4, (0,), version=9)}, has_controller=has_controller)
    cluster.on_pause(lambda: cluster.remove(0))
    cluster.leave(0, T0)
    cluster.run(give_up_leaderships(0, [T0], max_wait_ms=MAX_WAIT_MS))
    assert cluster.state(T0) == LeaderAndIsr(NO_LEADER, 5, (0,), version=10)
    assert cluster.writes == (not has_controller)


@pytest.mark.parametrize("has_controller", [True, False])
def test_a_broker_that_is_in_no_set_registers_at_once(has_controller: bool) -> None:
    """Nor does a partition of a deleted topic, which has no znode, keep it."""
    cluster = Cluster({T0: LeaderAndIsr(1, 4, (1, 2))}, has_controller=has_controller)
    cluster.leave(0, T0, TopicPartition("deleted", 0))
    assert (cluster.writes, cluster.pauses) == (0, 0)


def test_a_running_controller_is_waited_for_and_not_interfered_with() -> None:
    """It removes a broker that is not registered by itself, and knows then what it wrote."""
    cluster = Cluster({T0: LeaderAndIsr(1, 4, (0, 1, 2))}, has_controller=True)
    cluster.on_pause(lambda: cluster.remove(0) if cluster.pauses == 3 else None)
    cluster.leave(0, T0)
    assert (cluster.writes, cluster.pauses) == (0, 3)
    assert cluster.state(T0).isr == (1, 2)


def test_a_controller_that_is_elected_between_read_and_write_wins() -> None:
    """The version of /controller_epoch has changed: nothing is written, and the broker
    waits for that controller."""
    cluster = Cluster({T0: LeaderAndIsr(0, 4, (0, 1, 2))})
    cluster.before_write = cluster.elect_controller
    cluster.on_pause(lambda: cluster.remove(0))
    cluster.leave(0, T0)
    assert (cluster.writes, cluster.pauses) == (0, 1)
    assert cluster.state(T0) == LeaderAndIsr(NO_LEADER, 5, (1, 2), version=1)


states = st.dictionaries(
    st.integers(0, 30).map(lambda number: TopicPartition("t", number)),
    st.tuples(st.sampled_from([NO_LEADER, 0, 1, 2]), st.lists(st.integers(0, 3), min_size=1, unique=True)).map(
        lambda drawn: LeaderAndIsr(drawn[0], 1, tuple(drawn[1]))
    ),
    max_size=12,
)


@given(states=states, number_lost=st.integers(0, 12), has_controller=st.booleans())
def test_whatever_the_sets_the_broker_ends_outside_or_alone_and_nothing_else_changes(
    states: dict[TopicPartition, LeaderAndIsr], number_lost: int, has_controller: bool
) -> None:
    """Others of a set keep their places and their order; partitions that lost
    nothing keep their state."""
    lost = list(states)[:number_lost]
    cluster = Cluster(states, has_controller=has_controller)
    cluster.on_pause(lambda: cluster.remove(0))
    cluster.leave(0, *lost)
    for partition, before in states.items():
        after = cluster.state(partition)
        if partition in lost:
            assert 0 not in after.isr or after.isr == (0,)
            assert after.leader != 0 or after == before
        elif not has_controller:
            assert after == before
        assert [member for member in after.isr if member] == [member for member in before.isr if member]


def test_a_controller_that_leaves_the_broker_in_a_set_does_not_keep_it_out_for_ever(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A controller does not touch the partitions of a topic that is being deleted."""
    cluster = Cluster({T0: LeaderAndIsr(1, 4, (0, 1))}, has_controller=True)
    with caplog.at_level(logging.ERROR):
        cluster.run(leave_in_sync_sets(0, {T0: LOST}), most_steps=1000)
    assert (cluster.writes, cluster.pauses) == (0, 300)
    assert "the controller has left it in the in-sync sets of t-0" in caplog.text


ODD_DATA = [b"{", None, b'{"leader":0,"leader_epoch":1,"isr":7,"controller_epoch":1}', "no permission"]


@pytest.mark.parametrize("odd", ODD_DATA)
@pytest.mark.parametrize("leave", [True, False])
def test_a_state_that_cannot_be_read_concerns_its_own_partition_only(
    odd: bytes | str | None, leave: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged; the others are left, or given up, as ever."""
    other = TopicPartition("t", 1)
    cluster = Cluster({T0: LeaderAndIsr(0, 4, (0, 1)), other: LeaderAndIsr(0, 4, (0, 1))})
    path = partition_state_path(T0)
    before = cluster.znodes.nodes[path]
    if isinstance(odd, str):
        cluster.znodes.unreadable.add(path)
    else:
        before = cluster.znodes.nodes[path] = (odd, 0, 0)
    if leave:
        cluster.leave(0, T0, other)
    else:
        cluster.run(give_up_leaderships(0, [T0, other]))
    assert cluster.znodes.nodes[path] == before
    assert cluster.state(other).leader == NO_LEADER
    assert "/brokers/topics/t/partitions/0/state cannot be read" in caplog.text


@pytest.mark.parametrize("leave", [True, False])
def test_writes_that_are_refused_do_not_keep_a_broker_out_for_ever(
    leave: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """An ACL forbids them: the broker tries for a while, logs what it could not do,
    and registers."""
    cluster = Cluster({T0: LeaderAndIsr(0, 4, (0, 1))})
    cluster.refusal = KeeperError(Keeper.NO_AUTH)
    steps = leave_in_sync_sets(0, {T0: LOST}) if leave else give_up_leaderships(0, [T0])
    with caplog.at_level(logging.INFO):
        cluster.run(steps, most_steps=2000)
    assert cluster.pauses == (300 if leave else 150)
    assert [record.getMessage() for record in caplog.records if "is still" in record.getMessage()]
    assert caplog.text.count("no permission to write the states of partitions") == 1
    assert len(caplog.records) == 3


# Leaderships of the life before a reboot


def test_without_a_controller_a_rebooted_broker_gives_up_what_it_led() -> None:
    """In the next leader epoch and with the same in-sync set; what others led stays."""
    other = TopicPartition("t", 1)
    cluster = Cluster({T0: LeaderAndIsr(0, 4, (0, 1, 2), version=9), other: LeaderAndIsr(1, 4, (1, 0), version=2)})
    cluster.run(give_up_leaderships(0, [T0, other, TopicPartition("deleted", 0)]))
    assert cluster.state(T0) == LeaderAndIsr(NO_LEADER, 5, (0, 1, 2), version=10)
    assert cluster.state(other) == LeaderAndIsr(1, 4, (1, 0), version=2)


def test_a_rebooted_broker_that_is_alone_in_sync_gets_a_new_epoch_too() -> None:
    """Replicas outside the set may have records of its last epoch that it has lost."""
    cluster = Cluster({T0: LeaderAndIsr(0, 4, (0,))})
    cluster.run(give_up_leaderships(0, [T0]))
    assert (cluster.state(T0).leader, cluster.state(T0).leader_epoch) == (NO_LEADER, 5)


def test_a_rebooted_broker_waits_for_a_running_controller() -> None:
    """The controller removes the leader that is gone; the broker writes nothing."""
    cluster = Cluster({T0: LeaderAndIsr(0, 4, (0, 1))}, has_controller=True)
    cluster.on_pause(lambda: cluster.remove(0) if cluster.pauses == 3 else None)
    cluster.run(give_up_leaderships(0, [T0]))
    assert (cluster.writes, cluster.pauses) == (0, 3)


def test_a_rebooted_broker_does_not_wait_for_ever_for_a_controller() -> None:
    """A controller does not touch the partitions of a topic that is being deleted."""
    cluster = Cluster({T0: LeaderAndIsr(0, 4, (0, 1))}, has_controller=True)
    cluster.run(give_up_leaderships(0, [T0]))
    assert (cluster.writes, cluster.pauses) == (0, 150)


def test_a_controller_that_is_elected_while_leaderships_are_given_up_wins() -> None:
    """The write checks the version of /controller_epoch."""
    cluster = Cluster({T0: LeaderAndIsr(0, 4, (0, 1))})
    cluster.before_write = cluster.elect_controller
    cluster.on_pause(lambda: cluster.remove(0))
    cluster.run(give_up_leaderships(0, [T0]))
    assert (cluster.writes, cluster.state(T0).leader) == (0, NO_LEADER)
