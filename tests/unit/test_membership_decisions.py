"""What membership decides, without a loop: registering, controlled shutdown, and when a
watched broker counts as dead."""

import logging
from collections.abc import Callable, Generator, Iterable, Mapping
from typing import Any

import pytest

from barnabas.base.errors import BarnabasError, ConfigError
from barnabas.base.ids import TopicPartition
from barnabas.broker.cluster.steps import Delete, Pause, Read, Transact, Znode
from barnabas.broker.cluster.znodes import (
    CONTROLLER,
    CONTROLLER_EPOCH,
    NO_LEADER,
    BrokerInfo,
    Endpoint,
    LeaderAndIsr,
    ReplicaAssignment,
    broker_path,
    decode_partition_state,
    encode_broker,
    encode_controller,
    encode_partition_state,
    encode_topic,
    partition_state_path,
    topic_path,
)
from barnabas.broker.membership import controlled_shutdown as shutdown
from barnabas.broker.membership.death_watch import watching as deaths
from barnabas.broker.membership.death_watch.watching import (
    ConnectOutcome,
    registered_epoch,
    remove_dead,
    watch_broker,
)
from barnabas.broker.membership.joining import OnChange, OwnState, join, on_registration_changed, read_replicas
from barnabas.broker.membership.registration import (
    BrokerIdTakenError,
    SessionZnodes,
    removals_of,
    replace_predecessor,
    stored_broker_id,
)
from barnabas.log.lost_data import LostData
from barnabas.wire.jute.opcodes import EventType
from support.znode_steps import Znodes

INFO = BrokerInfo(1, (Endpoint("h", 9092, "PLAINTEXT", "PLAINTEXT"),))
ELSEWHERE = BrokerInfo(1, (Endpoint("other", 9092, "PLAINTEXT", "PLAINTEXT"),))


def ephemeral(data: bytes, version: int, czxid: int, owner: int) -> Znode:
    return Znode(data, version, czxid, ephemeral_owner=owner)


def session(
    info: BrokerInfo = INFO, *, controller: int | None = None, owner: int = 7, controller_owner: int = 7
) -> SessionZnodes:
    """A registration with version 3 and czxid 50, and a /controller with version 4."""
    return SessionZnodes(
        ephemeral(encode_broker(info, 0), 3, 50, owner),
        None if controller is None else ephemeral(encode_controller(controller, 0), 4, 51, controller_owner),
    )


class Driven:
    """A deciding generator: each answer yields the next step."""

    def __init__(self, steps: Generator[Any, Any, Any]) -> None:
        self.steps = steps
        self.result: Any = None
        self.is_over = False
        self.step: Any = None
        self.answer(None)

    def answer(self, result: Any) -> Any:
        try:
            self.step = self.steps.send(result)
        except StopIteration as end:
            self.step, self.result, self.is_over = None, end.value, True
        return self.step


# Registrations


def test_a_broker_without_a_registration_has_nothing_to_remove() -> None:
    """Its session is over already, whatever /controller says."""
    assert removals_of(1, SessionZnodes(None, ephemeral(encode_controller(1, 0), 4, 51, 7))) == []


@pytest.mark.parametrize(
    ("found", "with_controller"),
    [
        (session(controller=1), True),
        (session(controller=None), False),
        (session(controller=2), False),
        (session(controller=1, controller_owner=8), False),
        (SessionZnodes(session().registration, ephemeral(b"{", 4, 51, 7)), False),
    ],
    ids=["its own", "no controller", "another broker's", "of another session", "unreadable"],
)
def test_the_controller_znode_is_removed_only_if_it_is_of_the_same_session(
    found: SessionZnodes, with_controller: bool
) -> None:
    """It goes first, so that the election and the end of the registration are one transaction."""
    expected = [Delete(CONTROLLER, 4)] if with_controller else []
    assert removals_of(1, found) == [*expected, Delete(broker_path(1), 3)]


def test_a_registration_with_our_endpoints_is_our_predecessors() -> None:
    """This broker listens there now, so the process that registered them is dead."""
    assert replace_predecessor(INFO, session()) == [Delete(broker_path(1), 3)]


@pytest.mark.parametrize("data", [encode_broker(ELSEWHERE, 0), b"not json"], ids=["elsewhere", "unreadable"])
def test_a_registration_with_other_endpoints_takes_the_broker_id(data: bytes) -> None:
    """It may be a live broker's, and must stay."""
    found = SessionZnodes(ephemeral(data, 3, 50, 7), None)
    with pytest.raises(BrokerIdTakenError, match="Broker id 1 is taken by the broker at"):
        replace_predecessor(INFO, found)


def test_a_broker_id_comes_from_the_log_dirs_or_is_generated() -> None:
    """Log dirs of several brokers, or no id where none may be generated, end the start."""
    assert stored_broker_id([4, 4], may_generate=False) == 4
    assert stored_broker_id([], may_generate=True) is None
    with pytest.raises(BarnabasError, match="several brokers"):
        stored_broker_id([4, 5], may_generate=True)
    with pytest.raises(ConfigError, match=r"broker\.id is not set"):
        stored_broker_id([], may_generate=False)


# Joining

T0 = TopicPartition("t", 0)
FIRST_EPOCH = (1 << 63) - 1
"""What requests of the controller must have while this broker waits: none has it."""
LOST = LostData("the log was cut", 991, 2000)


class JoiningBroker:
    """Broker 1 joins on a dictionary of znodes.

    ``did`` is what changed in the broker, and its pauses, in order."""

    def __init__(self, info: BrokerInfo = INFO, *, gone: Iterable[TopicPartition] = ()) -> None:
        self.znodes = Znodes()
        self.did: list[Any] = []
        self.before: dict[type, Callable[[], None]] = {}
        """Called once before the first step of a kind."""
        self._info = info
        self._gone = dict.fromkeys(gone, LOST)
        self._own = OwnState(
            wall_ms=lambda: 0,
            set_epoch=lambda epoch: self.did.append(("epoch", epoch)),
            note_boot=lambda: self.did.append("boot"),
            note_gone=self._note_gone,
            note_dirs_checked=lambda: self.did.append("checked"),
        )

    def _note_gone(self, replicas: Iterable[TopicPartition]) -> Mapping[TopicPartition, LostData]:
        self.did.append(("replicas", list(replicas)))
        return self._gone

    def predecessor(self, info: BrokerInfo = INFO, *, is_controller: bool = False) -> None:
        """A registration of session 7, which may have /controller too."""
        self.ephemeral(broker_path(1), encode_broker(info, 0))
        if is_controller:
            self.ephemeral(CONTROLLER, encode_controller(1, 0))

    def ephemeral(self, path: str, data: bytes) -> None:
        self.znodes.put(path, data)
        self.znodes.owners[path] = 7

    def replica(self, topic_partition: TopicPartition = T0, *, leader: int = 1, isr: tuple[int, ...] = (1, 2)) -> None:
        """A partition on brokers 1 and 2, both in sync if not said otherwise."""
        assignments = {topic_partition.partition: ReplicaAssignment((1, 2))}
        self.znodes.put(topic_path(topic_partition.topic), encode_topic(None, assignments))
        state = LeaderAndIsr(leader, 4, isr)
        self.znodes.put(partition_state_path(topic_partition), encode_partition_state(state, 0))
        self.znodes.put(CONTROLLER_EPOCH, b"1")

    def state(self, topic_partition: TopicPartition = T0) -> LeaderAndIsr:
        path = partition_state_path(topic_partition)
        return decode_partition_state(path, self.znodes.data(path), 0).leader_and_isr

    def join(self, **options: Any) -> int:
        """Until the broker is registered; returns its epoch."""
        steps = join(self._info, self._own, **options)
        outcome = None
        while True:
            try:
                step = steps.send(outcome)
            except StopIteration as end:
                epoch: int = end.value
                break
            self.before.pop(type(step), lambda: None)()
            if isinstance(step, Pause):
                self.did.append(step)
            outcome = self.znodes.outcome(step)
        assert self.znodes.nodes[broker_path(1)][2] == epoch
        return epoch


def test_a_broker_that_kept_its_pages_registers_at_once() -> None:
    """Its epoch is the czxid of its znode."""
    broker = JoiningBroker()
    epoch = broker.join(has_kept_its_pages=True)
    assert broker.did == [("epoch", epoch)]
    assert broker.znodes.data(broker_path(1)) == encode_broker(INFO, 0)


@pytest.mark.parametrize("changes", [False, True])
def test_a_predecessor_in_the_way_is_removed_and_the_znode_made(changes: bool) -> None:
    """If the removal finds another version, the next attempt reads again."""
    broker = JoiningBroker()
    broker.predecessor(is_controller=True)
    if changes:
        broker.before[Transact] = broker.predecessor
    epoch = broker.join(has_kept_its_pages=True)
    assert broker.did == [("epoch", epoch)]
    assert broker.znodes.ephemerals == {broker_path(1)}
    assert CONTROLLER not in broker.znodes.nodes


def test_a_registration_that_goes_before_it_is_read_needs_no_removal() -> None:
    """The next attempt to create follows at once."""
    broker = JoiningBroker()
    broker.predecessor()
    broker.before[Read] = lambda: broker.znodes.remove(broker_path(1))
    broker.before[Transact] = lambda: pytest.fail("there is nothing to remove")
    broker.join(has_kept_its_pages=True)


def test_a_broker_that_may_have_lost_records_waits_for_the_end_of_its_last_registration() -> None:
    """Meanwhile requests to its earlier life are refused; afterwards the boot is noted."""
    broker = JoiningBroker()
    broker.predecessor()

    def expire() -> None:
        if len(broker.znodes.pauses_ms) == 2:
            broker.znodes.remove(broker_path(1))

    broker.znodes.on_pause = expire
    epoch = broker.join(has_kept_its_pages=False)
    waits = [Pause(500)] * 3
    assert broker.did == [("epoch", FIRST_EPOCH), *waits, ("epoch", -1), ("epoch", epoch), "boot"]


def test_a_broker_with_empty_log_dirs_does_not_wait_for_another_broker_that_has_its_id() -> None:
    """That registration may never end, so the start fails at once and names the
    other broker's address."""
    broker = JoiningBroker(ELSEWHERE)
    broker.predecessor()
    with pytest.raises(BrokerIdTakenError, match="Broker id 1 is taken by the broker at PLAINTEXT://h:9092"):
        broker.join(has_kept_its_pages=False)
    assert broker.did == [("epoch", FIRST_EPOCH)]


@pytest.mark.parametrize(("has_kept_its_pages", "isr"), [(True, (2,)), (False, (1, 2))])
def test_only_a_broker_whose_machine_was_not_rebooted_leaves_sets_for_lost_records(
    has_kept_its_pages: bool, isr: tuple[int, ...]
) -> None:
    """After a power failure of several machines each may have lost a little, and none must
    step back for all others."""
    broker = JoiningBroker()
    broker.replica(leader=2)
    broker.join(has_kept_its_pages=has_kept_its_pages, lost={T0: LOST})
    assert broker.state().isr == isr


def test_a_broker_that_is_alone_in_sync_with_lost_records_has_no_leadership_when_it_registers() -> None:
    """It may lead again in the next epoch: a replica outside the set may have records of the last
    one that are lost here."""
    broker = JoiningBroker()
    broker.replica(isr=(1,))
    broker.join(has_kept_its_pages=True, lost={T0: LOST})
    assert broker.state()[:3] == LeaderAndIsr(NO_LEADER, 5, (1,))[:3]


def test_a_loss_that_no_loss_of_power_explains_counts_after_a_reboot_too() -> None:
    """A segment that is missing in the middle, or an end that was there at a clean stop: this
    replica alone is damaged."""
    broker = JoiningBroker()
    broker.replica(leader=2)
    broker.join(has_kept_its_pages=False, lost={T0: LOST._replace(is_damage=True)})
    assert broker.state().isr == (2,)


@pytest.mark.parametrize("has_kept_its_pages", [True, False])
def test_a_broker_with_an_empty_log_dir_leaves_the_sets_of_replicas_that_are_gone(has_kept_its_pages: bool) -> None:
    """A replaced disk has lost everything, reboot or not; once the broker is registered
    the dir is like all others."""
    broker = JoiningBroker(gone=[T0])
    broker.replica()
    broker.predecessor()
    broker.znodes.on_pause = lambda: broker.znodes.nodes.pop(broker_path(1), None)
    epoch = broker.join(has_kept_its_pages=has_kept_its_pages, has_new_dir=True)
    assert (broker.state().leader, broker.state().isr) == (NO_LEADER, (2,))
    tail = ["checked"] if has_kept_its_pages else ["boot", "checked"]
    assert broker.did[-2 - len(tail) :] == [("replicas", [T0]), ("epoch", epoch), *tail]


def test_a_new_broker_of_which_no_replica_is_known_registers_at_once() -> None:
    """Its log dirs are empty because it is new."""
    broker = JoiningBroker()
    epoch = broker.join(has_kept_its_pages=True, has_new_dir=True)
    assert broker.did == [("replicas", []), ("epoch", epoch), "checked"]


def test_a_broker_gives_up_what_it_led_before_a_reboot_though_the_log_is_gone() -> None:
    """A loss of power can take whole logs: the assignments say which partitions it
    has, not its folders."""
    broker = JoiningBroker()
    broker.replica()
    broker.join(has_kept_its_pages=False)
    assert (broker.state().leader, broker.state().leader_epoch, broker.state().isr) == (NO_LEADER, 5, (1, 2))


def test_a_first_start_waits_for_nothing() -> None:
    """Without a registration there is no earlier life in any in-sync set."""
    broker = JoiningBroker()
    broker.join(has_kept_its_pages=False)
    assert broker.znodes.pauses_ms == []


@pytest.mark.parametrize("damage", ["no permission", b"{"])
def test_a_topic_that_cannot_be_read_is_logged_and_left_out(
    damage: str | bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """The replicas of the others are found; topics whose replicas are elsewhere have none here."""
    broker, other = JoiningBroker(), TopicPartition("u", 3)
    broker.replica()
    broker.replica(other)
    if isinstance(damage, bytes):
        broker.znodes.put(topic_path("t"), damage)
    else:
        broker.znodes.unreadable.add(topic_path("t"))
    with caplog.at_level(logging.ERROR):
        assert broker.znodes.perform(read_replicas(1)) == [other]
    assert "/brokers/topics/t cannot be read before the registration" in caplog.text
    assert broker.znodes.perform(read_replicas(3)) == []


@pytest.mark.parametrize(
    ("event_type", "is_closing", "action"),
    [
        (EventType.NODE_DELETED, False, OnChange.REGISTER_AGAIN),
        (EventType.NODE_DATA_CHANGED, False, OnChange.WATCH_AGAIN),
        (EventType.NODE_CREATED, False, OnChange.WATCH_AGAIN),
        (EventType.NODE_DELETED, True, OnChange.NOTHING),
        (EventType.NODE_DATA_CHANGED, True, OnChange.NOTHING),
    ],
)
def test_only_a_running_broker_registers_again(event_type: EventType, is_closing: bool, action: OnChange) -> None:
    """A stop ends the registration itself."""
    assert on_registration_changed(event_type, is_closing=is_closing) is action


# Controlled shutdown

OPTIONS = shutdown.ShutdownOptions(enabled=True, max_retries=3, retry_backoff_ms=5000, controller_timeout_ms=30_000)
KNOWN = shutdown.KnownControllers(2, 3)


def leaving(
    options: shutdown.ShutdownOptions = OPTIONS, *, alive: int = 3, known: shutdown.KnownControllers = KNOWN
) -> Driven:
    return Driven(shutdown.leave(options, alive_brokers=alive, controllers=lambda: known))


@pytest.mark.parametrize(
    "driven",
    [leaving(alive=1), leaving(shutdown.ShutdownOptions(False, 3, 5000, 30_000))],
    ids=["the only broker", "disabled"],
)
def test_no_controller_is_asked_where_none_can_help(driven: Driven) -> None:
    """The last broker has no one to lead in its place, and the setting can forbid it."""
    assert (driven.is_over, driven.result) == (True, False)


def test_the_elected_controller_is_asked_before_the_one_heard_of() -> None:
    """/controller is the truth; UpdateMetadata may be older, and is what remains without it."""
    assert leaving().step == shutdown.AskController(2, 30_000)
    assert leaving(known=shutdown.KnownControllers(-1, 3)).step == shutdown.AskController(3, 30_000)


@pytest.mark.parametrize("remaining", [0, 4])
def test_an_answer_without_error_ends_the_shutdown(remaining: int) -> None:
    """Also if partitions stay that no other broker can lead."""
    driven = leaving()
    driven.answer(shutdown.Answer(None, remaining))
    assert (driven.is_over, driven.result) == (True, True)


def test_each_failure_is_followed_by_a_wait_for_another_controller_until_the_retries_end() -> None:
    """As Apache's broker: no wait after the last attempt."""
    driven = leaving()
    for _ in range(2):
        assert driven.step == shutdown.AskController(2, 30_000)
        assert driven.answer(shutdown.Answer("not reached")) == shutdown.AwaitController(KNOWN, 5000)
        driven.answer(None)
    assert driven.step == shutdown.AskController(2, 30_000)
    driven.answer(shutdown.Answer("not reached"))
    assert (driven.is_over, driven.result) == (True, False)


# Deaths


def watching(*, is_first: bool = True) -> Driven:
    return Driven(watch_broker(lambda: is_first))


def accept(driven: Driven, epoch: int, lasted_ms: int) -> Any:
    """The broker accepts a connection, which ends after a while."""
    assert driven.step == deaths.ReadEpoch()
    assert driven.answer(epoch) == deaths.ConnectToBroker()
    assert driven.answer(ConnectOutcome.ACCEPTED) == deaths.AwaitEnd()
    return driven.answer(lasted_ms)


def refuse(driven: Driven, epoch: int, times: int = 3) -> Any:
    """The broker's port refuses this many times."""
    assert driven.step == deaths.ReadEpoch()
    driven.answer(epoch)
    for attempt in range(times):
        if attempt:
            assert driven.step == Pause(50)
            driven.answer(None)
        assert driven.step == deaths.ConnectToBroker()
        driven.answer(ConnectOutcome.REFUSED)
    return driven.step


def test_a_broker_that_refuses_three_times_under_a_registration_that_it_accepted_under_is_dead() -> None:
    """The controller removes it at once, and goes on watching."""
    driven = watching()
    assert accept(driven, 50, 60_000) == Pause(0)
    driven.answer(None)
    assert refuse(driven, 50) == deaths.RemoveBroker(50)
    assert driven.answer(None) == Pause(1000)
    assert driven.answer(None) == deaths.ReadEpoch()


def test_a_witness_gives_the_controller_a_head_start() -> None:
    """A quarter of a second, then it acts itself."""
    driven = watching(is_first=False)
    accept(driven, 50, 60_000)
    driven.answer(None)
    assert refuse(driven, 50) == Pause(250)
    assert driven.answer(None) == deaths.RemoveBroker(50)


@pytest.mark.parametrize("accepted", [None, 49])
def test_a_broker_that_never_accepted_under_its_registration_is_left_to_its_session(accepted: int | None) -> None:
    """Apache's brokers register before they listen, and a firewall may refuse."""
    driven = watching()
    if accepted is not None:
        accept(driven, accepted, 60_000)
        driven.answer(None)
    assert refuse(driven, 50) == Pause(1000)
    assert driven.answer(None) == deaths.ReadEpoch()


def test_a_time_out_proves_nothing() -> None:
    """Also after two refusals."""
    driven = watching()
    accept(driven, 50, 60_000)
    driven.answer(None)
    refuse(driven, 50, times=2)
    assert driven.answer(None) == deaths.ConnectToBroker()
    assert driven.answer(ConnectOutcome.UNKNOWN) == Pause(1000)


def test_a_broker_without_a_registration_is_not_connected_to() -> None:
    """It is looked at again a second later."""
    driven = watching()
    assert driven.answer(None) == Pause(1000)


def test_connections_that_end_at_once_are_tried_less_and_less_often() -> None:
    """A broker at its connection limit lives; one long connection resets the pauses."""
    driven = watching()
    pauses = []
    for _ in range(7):
        pauses.append(accept(driven, 50, 10).ms)
        driven.answer(None)
    assert pauses == [50, 100, 200, 400, 800, 1000, 1000]
    assert accept(driven, 50, 1000) == Pause(0)


@pytest.mark.parametrize(("age", "is_removed"), [(0, True), (-1, False)])
def test_only_the_registration_that_was_judged_is_removed(age: int, is_removed: bool) -> None:
    """A broker that registered again meanwhile has another czxid."""
    broker = JoiningBroker()
    broker.predecessor(is_controller=True)
    znodes = broker.znodes
    epoch = znodes.perform(registered_epoch(1))
    znodes.perform(remove_dead(1, epoch + age))
    assert [path in znodes.nodes for path in (broker_path(1), CONTROLLER)] == [not is_removed] * 2


def test_a_broker_whose_session_is_over_has_nothing_to_remove() -> None:
    """Its znodes went with it; /controller is another broker's."""
    znodes = Znodes()
    znodes.put(CONTROLLER, encode_controller(1, 0))
    assert znodes.perform(registered_epoch(1)) is None
    znodes.perform(remove_dead(1, 50))
    assert CONTROLLER in znodes.nodes
