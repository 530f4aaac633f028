"""The election of the controller as steps, over a dictionary of znodes."""

import pytest

from barnabas.base.ids import NO_BROKER
from barnabas.broker.cluster.steps import Committed, ControllerMovedError, Refused, Transact
from barnabas.broker.cluster.znodes import CONTROLLER, CONTROLLER_EPOCH, decode_controller, encode_controller
from barnabas.broker.controller.controller_election import (
    MustElect,
    OtherController,
    StillController,
    Term,
    find_controller,
    register_controller,
    resign,
)
from barnabas.wire.jute.errors import ErrorCode as Keeper
from barnabas.wire.jute.errors import KeeperError
from support.znode_steps import Znodes


def elected(znodes: Znodes, broker: int = 1) -> Term:
    term: Term = znodes.perform(register_controller(broker, lambda: 5, is_znode_ours=False))
    return term


def test_the_first_candidate_wins_epoch_one() -> None:
    """It creates the ephemeral and both znodes say so; the fence is the version of
    the epoch's znode."""
    znodes = Znodes()
    assert znodes.perform(find_controller(is_active=False)) == MustElect(is_znode_ours=False)
    assert elected(znodes) == Term(1, 1)
    assert decode_controller(znodes.data(CONTROLLER)) == 1
    assert znodes.data(CONTROLLER_EPOCH) == b"1"
    assert znodes.ephemerals == {CONTROLLER}


def test_a_later_controller_has_a_higher_epoch() -> None:
    """The epoch's znode outlives its controllers."""
    znodes = Znodes()
    elected(znodes)
    znodes.end_session()
    assert elected(znodes, 2) == Term(2, 2)


@pytest.mark.parametrize("data", [encode_controller(7, 0), b"not JSON"])
def test_a_broker_follows_the_controller_that_there_is(data: bytes) -> None:
    """Also one whose znode cannot be read; only then no broker is known."""
    znodes = Znodes()
    znodes.put(CONTROLLER, data)
    known = 7 if data.startswith(b"{") else NO_BROKER
    for is_active in (False, True):
        assert znodes.perform(find_controller(is_active=is_active)) == OtherController(known)


def test_an_own_znode_is_kept_by_the_active_controller_and_claimed_by_the_others() -> None:
    """A claim whose answer was lost left the znode; the broker still has to become controller."""
    znodes = Znodes()
    elected(znodes)
    assert znodes.perform(find_controller(is_active=True)) == StillController()
    assert znodes.perform(find_controller(is_active=False)) == MustElect(is_znode_ours=True)
    assert znodes.perform(register_controller(1, lambda: 5, is_znode_ours=True)) == Term(2, 2)


def test_a_candidate_that_comes_second_changes_nothing() -> None:
    """The winner's epoch stays, and with it the winner's fence."""
    znodes = Znodes()
    elected(znodes)
    with pytest.raises(ControllerMovedError, match="won"):
        elected(znodes, 2)
    assert decode_controller(znodes.data(CONTROLLER)) == 1
    assert znodes.data(CONTROLLER_EPOCH) == b"1"


@pytest.mark.parametrize("code", [Keeper.CONNECTION_LOSS, Keeper.SESSION_EXPIRED])
def test_a_claim_without_an_answer_is_not_a_victory(code: Keeper) -> None:
    """After a lost connection the candidate looks again; a lost session ends the candidacy."""
    znodes = Znodes()
    steps = register_controller(1, lambda: 5, is_znode_ours=False)
    step = next(steps)
    while not isinstance(step, Transact):
        step = steps.send(znodes.outcome(step))
    expected = ControllerMovedError if code is Keeper.CONNECTION_LOSS else KeeperError
    with pytest.raises(expected):
        steps.send([Refused(KeeperError(code, CONTROLLER))])


def test_an_office_that_is_given_up_is_free() -> None:
    """Only by the controller of that term: a later one keeps its znode."""
    znodes = Znodes()
    term = elected(znodes)
    znodes.perform(resign(term.epoch_version - 1))
    assert CONTROLLER in znodes.nodes
    znodes.perform(resign(term.epoch_version))
    assert CONTROLLER not in znodes.nodes
    znodes.perform(resign(term.epoch_version))  # gone already: nothing to do
    assert isinstance(znodes.outcome(Transact([[]]))[0], Committed)
