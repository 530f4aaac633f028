"""What membership decides, without a loop: registering, controlled shutdown, and when a watched broker counts as dead."""

from collections.abc import Generator
from typing import Any

import pytest

from barnabas.base.errors import BarnabasError, ConfigError
from barnabas.base.ids import TopicPartition
from barnabas.broker.cluster.steps import Pause
from barnabas.broker.cluster.znodes import (
    CONTROLLER,
    BrokerInfo,
    Endpoint,
    broker_path,
    encode_broker,
    encode_controller,
)
from barnabas.broker.membership import controlled_shutdown as shutdown
from barnabas.broker.membership import joining
from barnabas.broker.membership.death_watch import watching as deaths
from barnabas.broker.membership.death_watch.watching import ConnectOutcome, removals_of_dead, watch_broker
from barnabas.broker.membership.isr_withdrawal import ReadStates, States
from barnabas.broker.membership.joining import OnChange, join, on_registration_changed
from barnabas.broker.membership.registration import (
    BrokerIdTakenError,
    EphemeralZnode,
    Removal,
    SessionZnodes,
    removals_of,
    replace_predecessor,
    stored_broker_id,
)
from barnabas.log.lost_data import LostData
from barnabas.wire.jute.opcodes import EventType

INFO = BrokerInfo(1, (Endpoint("h", 9092, "PLAINTEXT", "PLAINTEXT"),))
ELSEWHERE = BrokerInfo(1, (Endpoint("other", 9092, "PLAINTEXT", "PLAINTEXT"),))


def session(
    info: BrokerInfo = INFO, *, controller: int | None = None, owner: int = 7, controller_owner: int = 7
) -> SessionZnodes:
    """A registration with version 3 and czxid 50, and a /controller with version 4."""
    return SessionZnodes(
        EphemeralZnode(encode_broker(info, 0), 3, 50, owner),
        None if controller is None else EphemeralZnode(encode_controller(controller, 0), 4, 51, controller_owner),
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
    assert removals_of(1, SessionZnodes(None, EphemeralZnode(encode_controller(1, 0), 4, 51, 7))) == []


@pytest.mark.parametrize(
    ("found", "with_controller"),
    [
        (session(controller=1), True),
        (session(controller=None), False),
        (session(controller=2), False),
        (session(controller=1, controller_owner=8), False),
        (SessionZnodes(session().registration, EphemeralZnode(b"{", 4, 51, 7)), False),
    ],
    ids=["its own", "no controller", "another broker's", "of another session", "unreadable"],
)
def test_the_controller_znode_is_removed_only_if_it_is_of_the_same_session(
    found: SessionZnodes, with_controller: bool
) -> None:
    """It goes first, so that the election and the end of the registration are one transaction."""
    expected = [Removal(CONTROLLER, 4)] if with_controller else []
    assert removals_of(1, found) == [*expected, Removal(broker_path(1), 3)]


def test_a_registration_with_our_endpoints_is_our_predecessors() -> None:
    """This broker listens there now, so the process that registered them is dead."""
    assert replace_predecessor(INFO, session()) == [Removal(broker_path(1), 3)]


@pytest.mark.parametrize("data", [encode_broker(ELSEWHERE, 0), b"not json"], ids=["elsewhere", "unreadable"])
def test_a_registration_with_other_endpoints_takes_the_broker_id(data: bytes) -> None:
    """It may be a live broker's, and must stay."""
    found = SessionZnodes(EphemeralZnode(data, 3, 50, 7), None)
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


def test_a_broker_that_kept_its_pages_registers_at_once() -> None:
    """Its epoch is the czxid of its znode."""
    driven = Driven(join(INFO, has_kept_its_pages=True))
    assert driven.step == joining.CreateRegistration()
    assert driven.answer(60) == joining.SetEpoch(60)
    driven.answer(None)
    assert (driven.is_over, driven.result) == (True, 60)


def test_a_predecessor_in_the_way_is_removed_and_the_znode_made() -> None:
    """If the removal found another version, the next attempt reads again."""
    driven = Driven(join(INFO, has_kept_its_pages=True))
    for _ in range(2):
        assert driven.answer(None) == joining.ReadSession()
        assert driven.answer(session(controller=1)) == joining.Remove(
            [Removal(CONTROLLER, 4), Removal(broker_path(1), 3)]
        )
        assert driven.answer(None) == joining.CreateRegistration()
    assert driven.answer(61) == joining.SetEpoch(61)


def test_a_registration_that_goes_before_it_is_read_needs_no_removal() -> None:
    """The next attempt to create follows at once."""
    driven = Driven(join(INFO, has_kept_its_pages=True))
    driven.answer(None)
    assert driven.answer(SessionZnodes(None, None)) == joining.CreateRegistration()


def test_a_broker_that_may_have_lost_records_waits_for_the_end_of_its_last_registration() -> None:
    """Meanwhile requests to its earlier life are refused; afterwards the boot is noted."""
    driven = Driven(join(INFO, has_kept_its_pages=False))
    assert driven.step == joining.SetEpoch((1 << 63) - 1)
    assert driven.answer(None) == joining.IsRegistered()
    assert driven.answer(True) == joining.ReadSession()
    assert driven.answer(session()) == joining.IsRegistered()
    assert driven.answer(True) == Pause(500)
    assert driven.answer(None) == joining.IsRegistered()
    assert driven.answer(False) == Pause(500)
    assert driven.answer(None) == joining.ReadReplicas()
    assert driven.answer([]) == joining.SetEpoch(-1)
    assert driven.answer(None) == joining.CreateRegistration()
    assert driven.answer(62) == joining.SetEpoch(62)
    assert driven.answer(None) == joining.NoteBoot()
    driven.answer(None)
    assert driven.result == 62


def test_a_broker_with_empty_log_dirs_does_not_wait_for_another_broker_that_has_its_id() -> None:
    """That registration may never end, so the start fails at once and names the other broker's address."""
    driven = Driven(join(ELSEWHERE, has_kept_its_pages=False))
    driven.answer(None)
    assert driven.answer(True) == joining.ReadSession()
    with pytest.raises(BrokerIdTakenError, match="Broker id 1 is taken by the broker at"):
        driven.answer(session())


@pytest.mark.parametrize(("has_kept_its_pages", "leaves"), [(True, True), (False, False)])
def test_only_a_broker_whose_machine_was_not_rebooted_leaves_sets_for_lost_records(
    has_kept_its_pages: bool, leaves: bool
) -> None:
    """After a power failure of several machines each may have lost a little, and none must step back for all others."""
    lost = {TopicPartition("t", 0): LostData("the log was cut", 991, 2000)}
    driven = Driven(join(INFO, has_kept_its_pages=has_kept_its_pages, lost=lost))
    if not has_kept_its_pages:
        driven.answer(None)
        assert driven.answer(False) == joining.ReadReplicas()
        assert driven.answer([]) == joining.SetEpoch(-1)
        step = driven.answer(None)
    else:
        step = driven.step
    assert (step == joining.ReadSession()) is leaves


@pytest.mark.parametrize("has_kept_its_pages", [True, False])
def test_a_broker_with_an_empty_log_dir_leaves_the_sets_of_replicas_that_are_gone(has_kept_its_pages: bool) -> None:
    """A replaced disk has lost everything, reboot or not; once the broker is registered the dir is like all others."""
    gone = {TopicPartition("t", 0): LostData("its folder is gone", 0, 0)}
    driven = Driven(join(INFO, has_kept_its_pages=has_kept_its_pages, has_new_dir=True))
    if not has_kept_its_pages:
        driven.answer(None)
        assert driven.answer(False) == joining.ReadReplicas()
        assert driven.answer([]) == joining.SetEpoch(-1)
        driven.answer(None)
    assert driven.step == joining.FindGone()
    assert driven.answer(gone) == joining.ReadSession()
    assert driven.answer(SessionZnodes(None, None)) == ReadStates(list(gone))
    assert driven.answer(States(0, False, [None])) == joining.CreateRegistration()
    assert driven.answer(62) == joining.SetEpoch(62)
    if not has_kept_its_pages:
        assert driven.answer(None) == joining.NoteBoot()
    assert driven.answer(None) == joining.NoteDirsChecked()
    driven.answer(None)
    assert driven.result == 62


def test_a_new_broker_of_which_no_replica_is_known_registers_at_once() -> None:
    """Its log dirs are empty because it is new."""
    driven = Driven(join(INFO, has_kept_its_pages=True, has_new_dir=True))
    assert driven.step == joining.FindGone()
    assert driven.answer({}) == joining.CreateRegistration()


def test_a_broker_gives_up_what_it_led_before_a_reboot_though_the_log_is_gone() -> None:
    """A loss of power can take whole logs: the assignments say which partitions it has, not its folders."""
    led = TopicPartition("t", 0)
    driven = Driven(join(INFO, has_kept_its_pages=False))
    driven.answer(None)
    assert driven.answer(False) == joining.ReadReplicas()
    assert driven.answer([led]) == ReadStates([led])


def test_a_first_start_waits_for_nothing() -> None:
    """Without a registration there is no earlier life in any in-sync set."""
    driven = Driven(join(INFO, has_kept_its_pages=False))
    driven.answer(None)
    assert driven.answer(False) == joining.ReadReplicas()
    assert driven.answer([]) == joining.SetEpoch(-1)


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
    """The broker's port refuses so many times."""
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


def test_only_the_registration_that_was_judged_is_removed() -> None:
    """A broker that registered again meanwhile has another czxid; one whose session expired has none."""
    assert removals_of_dead(1, 50, session()) == [Removal(broker_path(1), 3)]
    assert removals_of_dead(1, 49, session()) == []
    assert removals_of_dead(1, 50, SessionZnodes(None, None)) == []
