"""Which in-sync sets a broker leaves before it registers, after its logs have lost records."""

import logging
from collections.abc import Callable, Generator, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.base.ids import TopicPartition
from barnabas.broker.cluster.steps import Pause
from barnabas.broker.cluster.znodes import (
    NO_LEADER,
    LeaderAndIsr,
    decode_partition_state,
    encode_partition_state,
    partition_state_path,
)
from barnabas.broker.membership.isr_withdrawal import (
    LeaveStep,
    ReadStates,
    States,
    StateZnode,
    UnreadableZnode,
    WriteStates,
    leave_in_sync_sets,
)
from barnabas.broker.membership.leadership_release import give_up_leaderships
from barnabas.log.lost_data import LostData

LOST = LostData("the log ends at offset 991, below its checkpointed high watermark 2000", 991, 2000)
T0 = TopicPartition("t", 0)
CONTROLLER_EPOCH = 7


class Znodes:
    """The states of partitions, and a controller that may be there."""

    def __init__(self, states: Mapping[TopicPartition, LeaderAndIsr], *, has_controller: bool = False) -> None:
        self.states = dict(states)
        self.has_controller = has_controller
        self.epoch_version = 3
        self.writes = 0
        self.pauses = 0
        self.before_write: Callable[[], None] = lambda: None
        self.on_pause: Callable[[], None] = lambda: None
        self.odd: dict[TopicPartition, StateZnode | UnreadableZnode] = {}
        self.refuses_writes = False

    def elect_controller(self) -> None:
        self.has_controller = True
        self.epoch_version += 1

    def remove(self, broker: int) -> None:
        """As a controller does it when a broker is gone."""
        for partition, state in self.states.items():
            if broker in state.isr and len(state.isr) > 1:
                leader = NO_LEADER if state.leader == broker else state.leader
                after = state.with_leader(leader, [member for member in state.isr if member != broker])
                self.states[partition] = after._replace(version=state.version + 1)

    def perform(self, broker: int, *lost: TopicPartition) -> None:
        """Leave the in-sync sets."""
        self.run(leave_in_sync_sets(broker, dict.fromkeys(lost, LOST)))

    def run(self, steps: Generator[LeaveStep, Any, None], most_steps: int = 400) -> None:
        """Run the steps to their end."""
        result = None
        for _ in range(most_steps):
            try:
                step = steps.send(result)
            except StopIteration:
                return
            result = None
            match step:
                case ReadStates(partitions):
                    result = States(self.epoch_version, self.has_controller, [self._znode(p) for p in partitions])
                case WriteStates(version, writes):
                    self.before_write()
                    self._write(version, writes)
                case Pause():
                    self.pauses += 1
                    self.on_pause()
        raise AssertionError("the broker never registers")

    def _znode(self, partition: TopicPartition) -> StateZnode | UnreadableZnode | None:
        if partition in self.odd:
            return self.odd[partition]
        state = self.states.get(partition)
        return None if state is None else StateZnode(encode_partition_state(state, CONTROLLER_EPOCH), state.version)

    def _write(self, epoch_version: int | None, writes: list[tuple[str, bytes, int]]) -> None:
        paths = {partition_state_path(partition): partition for partition in self.states}
        if (
            self.refuses_writes
            or epoch_version != self.epoch_version
            or any(self.states[paths[p]].version != v for p, _, v in writes)
        ):
            return
        self.writes += 1
        for path, data, version in writes:
            state = decode_partition_state(path, data, version + 1)
            assert state.controller_epoch == CONTROLLER_EPOCH
            self.states[paths[path]] = state.leader_and_isr


@pytest.mark.parametrize(("leader", "leader_after"), [(0, NO_LEADER), (1, 1), (NO_LEADER, NO_LEADER)])
def test_without_a_controller_the_broker_writes_the_set_without_itself(leader: int, leader_after: int) -> None:
    """In the next leader epoch, and without a leader if it led: a later controller elects from the rest."""
    znodes = Znodes({T0: LeaderAndIsr(leader, 4, (0, 1, 2), version=9)})
    znodes.perform(0, T0)
    assert znodes.states[T0] == LeaderAndIsr(leader_after, 5, (1, 2), version=10)


def test_the_last_member_of_a_set_stays_in_it_and_logs_an_error(caplog: pytest.LogCaptureFixture) -> None:
    """No other replica could lead: the partition goes on with what is there, and an operator can read why."""
    znodes = Znodes({T0: LeaderAndIsr(0, 4, (0,))})
    with caplog.at_level(logging.ERROR):
        znodes.perform(0, T0)
    assert znodes.writes == 0
    assert "no other in-sync replica" in caplog.text
    assert LOST.reason in caplog.text


@pytest.mark.parametrize("has_controller", [True, False])
def test_a_broker_that_is_in_no_set_registers_at_once(has_controller: bool) -> None:
    """Nor does a partition of a deleted topic, which has no znode, keep it."""
    znodes = Znodes({T0: LeaderAndIsr(1, 4, (1, 2))}, has_controller=has_controller)
    znodes.perform(0, T0, TopicPartition("deleted", 0))
    assert (znodes.writes, znodes.pauses) == (0, 0)


def test_a_running_controller_is_waited_for_and_not_interfered_with() -> None:
    """It removes a broker that is not registered by itself, and knows then what it wrote."""
    znodes = Znodes({T0: LeaderAndIsr(1, 4, (0, 1, 2))}, has_controller=True)
    znodes.on_pause = lambda: znodes.remove(0) if znodes.pauses == 3 else None
    znodes.perform(0, T0)
    assert (znodes.writes, znodes.pauses) == (0, 3)
    assert znodes.states[T0].isr == (1, 2)


def test_a_controller_that_is_elected_between_read_and_write_wins() -> None:
    """The version of /controller_epoch has changed: nothing is written, and the broker waits for that controller."""
    znodes = Znodes({T0: LeaderAndIsr(0, 4, (0, 1, 2))})
    znodes.before_write = znodes.elect_controller
    znodes.on_pause = lambda: znodes.remove(0)
    znodes.perform(0, T0)
    assert (znodes.writes, znodes.pauses) == (0, 1)
    assert znodes.states[T0] == LeaderAndIsr(NO_LEADER, 5, (1, 2), version=1)


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
    """Others of a set keep their places and their order; partitions that lost nothing keep their state."""
    lost = list(states)[:number_lost]
    znodes = Znodes(states, has_controller=has_controller)
    znodes.on_pause = lambda: znodes.remove(0)
    znodes.perform(0, *lost)
    for partition, before in states.items():
        after = znodes.states[partition]
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
    znodes = Znodes({T0: LeaderAndIsr(1, 4, (0, 1))}, has_controller=True)
    with caplog.at_level(logging.ERROR):
        znodes.run(leave_in_sync_sets(0, {T0: LOST}), most_steps=1000)
    assert (znodes.writes, znodes.pauses) == (0, 300)
    assert "the controller has left it in the in-sync sets of t-0" in caplog.text


ODD_ZNODES = [
    StateZnode(b"{", 0),
    StateZnode(None, 0),
    StateZnode(b'{"leader":0,"leader_epoch":1,"isr":7,"controller_epoch":1}', 0),
    UnreadableZnode("this broker has no permission to read it"),
]


@pytest.mark.parametrize("odd", ODD_ZNODES)
@pytest.mark.parametrize("leave", [True, False])
def test_a_state_that_cannot_be_read_concerns_its_own_partition_only(
    odd: StateZnode | UnreadableZnode, leave: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged; the others are left, or given up, as ever."""
    other = TopicPartition("t", 1)
    znodes = Znodes({T0: LeaderAndIsr(0, 4, (0, 1)), other: LeaderAndIsr(0, 4, (0, 1))})
    znodes.odd[T0] = odd
    if leave:
        znodes.perform(0, T0, other)
    else:
        znodes.run(give_up_leaderships(0, [T0, other]))
    assert znodes.states[T0] == LeaderAndIsr(0, 4, (0, 1))
    assert znodes.states[other].leader == NO_LEADER
    assert "/brokers/topics/t/partitions/0/state cannot be read" in caplog.text


@pytest.mark.parametrize("leave", [True, False])
def test_writes_that_are_refused_do_not_keep_a_broker_out_for_ever(
    leave: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """An ACL forbids them: the broker tries for a while, logs what it could not do, and registers."""
    znodes = Znodes({T0: LeaderAndIsr(0, 4, (0, 1))})
    znodes.refuses_writes = True
    steps = leave_in_sync_sets(0, {T0: LOST}) if leave else give_up_leaderships(0, [T0])
    with caplog.at_level(logging.INFO):
        znodes.run(steps, most_steps=2000)
    assert znodes.pauses == (300 if leave else 150)
    assert [record.getMessage() for record in caplog.records if "is still" in record.getMessage()]
    assert len(caplog.records) == 2


# Leaderships of the life before a reboot


def test_without_a_controller_a_rebooted_broker_gives_up_what_it_led() -> None:
    """In the next leader epoch and with the same in-sync set; what others led stays."""
    other = TopicPartition("t", 1)
    znodes = Znodes({T0: LeaderAndIsr(0, 4, (0, 1, 2), version=9), other: LeaderAndIsr(1, 4, (1, 0), version=2)})
    znodes.run(give_up_leaderships(0, [T0, other, TopicPartition("deleted", 0)]))
    assert znodes.states[T0] == LeaderAndIsr(NO_LEADER, 5, (0, 1, 2), version=10)
    assert znodes.states[other] == LeaderAndIsr(1, 4, (1, 0), version=2)


def test_a_rebooted_broker_that_is_alone_in_sync_gets_a_new_epoch_too() -> None:
    """Replicas outside the set may have records of its last epoch that it has lost."""
    znodes = Znodes({T0: LeaderAndIsr(0, 4, (0,))})
    znodes.run(give_up_leaderships(0, [T0]))
    assert (znodes.states[T0].leader, znodes.states[T0].leader_epoch) == (NO_LEADER, 5)


def test_a_rebooted_broker_waits_for_a_running_controller() -> None:
    """The controller removes the leader that is gone; the broker writes nothing."""
    znodes = Znodes({T0: LeaderAndIsr(0, 4, (0, 1))}, has_controller=True)
    znodes.on_pause = lambda: znodes.remove(0) if znodes.pauses == 3 else None
    znodes.run(give_up_leaderships(0, [T0]))
    assert (znodes.writes, znodes.pauses) == (0, 3)


def test_a_rebooted_broker_does_not_wait_for_ever_for_a_controller() -> None:
    """A controller does not touch the partitions of a topic that is being deleted."""
    znodes = Znodes({T0: LeaderAndIsr(0, 4, (0, 1))}, has_controller=True)
    znodes.run(give_up_leaderships(0, [T0]))
    assert (znodes.writes, znodes.pauses) == (0, 150)


def test_a_controller_that_is_elected_while_leaderships_are_given_up_wins() -> None:
    """The write checks the version of /controller_epoch."""
    znodes = Znodes({T0: LeaderAndIsr(0, 4, (0, 1))})
    znodes.before_write = znodes.elect_controller
    znodes.on_pause = lambda: znodes.remove(0)
    znodes.run(give_up_leaderships(0, [T0]))
    assert (znodes.writes, znodes.states[T0].leader) == (0, NO_LEADER)
