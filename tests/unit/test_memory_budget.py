"""The budget of bytes that wait: against a model of peers that send, read, or stand still."""

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.net.memory_budget import (
    LONGEST_FULL_MS,
    LONGEST_TURN_MS,
    PATIENCE_FULL_MS,
    PATIENCE_MS,
    PATIENCE_TURN_MS,
    SMALL_FRAME_BYTES,
    TURN_BYTES_A_S,
    BudgetState,
    MemoryBudget,
    Pile,
    PileKind,
)

KIB, MIB = 1024, 1024 * 1024
LIMIT = MIB
TICK_MS = 25
READ, READ_SHORT = 256 * KIB, 4 * KIB


def pile_of(budget: MemoryBudget, kind: PileKind, held_bytes: int, now_ms: int = 0) -> Pile:
    pile = Pile(None, kind)
    budget.hold(pile, held_bytes, now_ms)
    return pile


def test_below_half_of_the_limit_everything_may_grow_and_nothing_is_late() -> None:
    """However slow a peer is."""
    budget = MemoryBudget(LIMIT)
    pile = pile_of(budget, PileKind.INPUT, LIMIT // 2 - 1)
    assert budget.ask(pile, 100 * LIMIT, 0)
    assert budget.settle(1_000_000) == ([], [])
    assert budget.is_at_rest


def test_from_half_on_only_small_frames_begin_without_a_turn() -> None:
    """A large one waits until its rest has room."""
    budget = MemoryBudget(LIMIT)
    holder = pile_of(budget, PileKind.SERVICE, LIMIT * 3 // 4)
    small, large = (pile_of(budget, PileKind.INPUT, 100) for _ in range(2))
    assert budget.ask(small, SMALL_FRAME_BYTES, 0)
    assert not budget.ask(large, SMALL_FRAME_BYTES + 1, 0)
    assert budget.settle(1) == ([], [large])
    assert budget.ask(large, SMALL_FRAME_BYTES + 1, 0)
    budget.hold(holder, 0, 2)
    assert budget.held_bytes == 200


def test_turns_come_in_the_order_of_asking_as_far_as_there_is_room() -> None:
    """What has its turn has its room, before it has come."""
    budget = MemoryBudget(LIMIT)
    pile_of(budget, PileKind.SERVICE, LIMIT - 300 * KIB)
    piles = [pile_of(budget, PileKind.INPUT, 1) for _ in range(5)]
    assert not any(budget.ask(pile, 100 * KIB, 0) for pile in piles)
    assert budget.settle(1) == ([], piles[:2])
    budget.hold(piles[0], 0, 2)
    assert budget.settle(2) == ([], piles[2:3])


def test_very_large_frames_have_their_turns_one_at_a_time_however_little_room_there_is() -> None:
    """And smaller ones are not kept waiting by them."""
    budget = MemoryBudget(LIMIT)
    pile_of(budget, PileKind.SERVICE, LIMIT // 2)
    first, second = (pile_of(budget, PileKind.INPUT, 1) for _ in range(2))
    other = pile_of(budget, PileKind.INPUT, 1)
    assert not any([budget.ask(first, 9 * LIMIT, 0), budget.ask(second, 9 * LIMIT, 0), budget.ask(other, 20 * KIB, 0)])
    assert budget.settle(1) == ([], [first, other])
    budget.hold(first, 0, 2)
    assert budget.settle(2) == ([], [second])


def test_short_of_room_the_latest_are_closed_until_there_is_room() -> None:
    """Not more of them than that."""
    budget = MemoryBudget(LIMIT)
    piles = [pile_of(budget, PileKind.OUTPUT, LIMIT // 4, at_ms) for at_ms in (30, 10, 20)]
    assert budget.settle(PATIENCE_MS + 10) == ([], [])
    assert budget.settle(PATIENCE_MS + 31) == ([piles[1], piles[2]], [])
    assert budget.held_bytes == LIMIT // 4


def test_a_turn_ends_early_for_a_peer_that_stands_still() -> None:
    """Others wait for it."""
    budget = MemoryBudget(LIMIT)
    pile_of(budget, PileKind.SERVICE, LIMIT // 2)
    pile = pile_of(budget, PileKind.INPUT, 1)
    assert not budget.ask(pile, LIMIT, 0)
    assert budget.settle(0) == ([], [pile])
    assert budget.settle(PATIENCE_TURN_MS) == ([], [])
    assert budget.settle(PATIENCE_TURN_MS + 1) == ([pile], [])


def test_a_turn_has_an_end_for_a_peer_that_only_trickles() -> None:
    """A byte now and then is no progress, and the least speed is none for ever."""
    budget = MemoryBudget(LIMIT)
    pile_of(budget, PileKind.SERVICE, LIMIT // 2)
    pile = pile_of(budget, PileKind.INPUT, 1)
    assert not budget.ask(pile, LONGEST_TURN_MS * TURN_BYTES_A_S // 1000, 0)
    assert budget.settle(0) == ([], [pile])
    for now_ms in range(0, LONGEST_TURN_MS, 100):
        budget.hold(pile, pile.held_bytes + 10 * KIB, now_ms)
        assert budget.settle(now_ms) == ([], [])
    budget.hold(pile, pile.held_bytes + 10 * KIB, LONGEST_TURN_MS + 1)
    assert budget.settle(LONGEST_TURN_MS + 1) == ([pile], [])


def test_the_turn_of_a_larger_frame_may_take_longer() -> None:
    """An upload of 35 MB at 1 MB/s comes to its end."""
    budget = MemoryBudget(LIMIT)
    pile_of(budget, PileKind.OUTPUT, LIMIT // 2)
    pile = pile_of(budget, PileKind.INPUT, 1)
    frame_bytes = 35 * TURN_BYTES_A_S
    assert not budget.ask(pile, frame_bytes, 0)
    assert budget.settle(0) == ([], [pile])
    for now_ms in range(0, 35_000, 500):
        budget.hold(pile, 1 + now_ms * TURN_BYTES_A_S // 1000, now_ms)
        assert pile not in budget.settle(now_ms)[0]
    budget.hold(pile, frame_bytes - 1, 35_001)
    pile_of(budget, PileKind.SERVICE, LIMIT, 35_001)
    assert budget.settle(35_001) == ([pile], [])


def test_a_reader_is_not_late_because_of_what_the_server_has_yet_to_serve() -> None:
    """Its answer may lie as long as what waits for all readers leaves room, however
    full the budget is."""
    budget = MemoryBudget(LIMIT)
    served = pile_of(budget, PileKind.SERVICE, LIMIT)
    queued = pile_of(budget, PileKind.INPUT, LIMIT)
    budget.excuse(queued, True, 0)
    unread = pile_of(budget, PileKind.OUTPUT, LIMIT // 2 - 1)
    assert budget.state is BudgetState.FULL
    assert budget.settle(1_000_000) == ([], [])
    other = pile_of(budget, PileKind.OUTPUT, 2, 1_000_000)
    assert budget.settle(1_000_000 + PATIENCE_FULL_MS + 1) == ([unread], [])
    assert budget.held_bytes == served.held_bytes + queued.held_bytes + other.held_bytes


def test_only_so_many_are_closed_that_the_others_have_their_patience_again() -> None:
    """When those who stood still longest are gone, there is no need for little patience."""
    budget = MemoryBudget(LIMIT)
    pile_of(budget, PileKind.SERVICE, LIMIT)
    still = pile_of(budget, PileKind.OUTPUT, LIMIT // 2)
    other = pile_of(budget, PileKind.OUTPUT, LIMIT // 2, 10)
    assert budget.settle(PATIENCE_FULL_MS + 11) == ([still], [])
    assert budget.settle(PATIENCE_MS + 10) == ([], [])
    assert budget.settle(PATIENCE_MS + 11) == ([other], [])


def test_a_full_budget_has_little_patience() -> None:
    """Nothing else is served meanwhile; only what waits for the server itself stays."""
    budget = MemoryBudget(LIMIT)
    still, slow = (pile_of(budget, PileKind.OUTPUT, 2 * LIMIT) for _ in range(2))
    served = pile_of(budget, PileKind.SERVICE, LIMIT)
    queued = pile_of(budget, PileKind.INPUT, LIMIT)
    budget.excuse(queued, True, 0)
    budget.hold(slow, 2 * LIMIT - 100 * KIB, PATIENCE_FULL_MS)
    assert budget.state is BudgetState.FULL
    assert budget.settle(PATIENCE_FULL_MS + 1) == ([still], [])
    for now_ms in range(PATIENCE_FULL_MS, LONGEST_FULL_MS, 50):
        budget.hold(slow, slow.held_bytes - 4 * KIB, now_ms)
        assert budget.settle(now_ms) == ([], [])
    assert budget.settle(LONGEST_FULL_MS + 1) == ([slow], [])
    assert budget.held_bytes == served.held_bytes + queued.held_bytes


def test_what_waits_for_the_server_itself_keeps_no_answer_waiting() -> None:
    """It goes only with its answers; what peers do not read goes with time."""
    budget = MemoryBudget(LIMIT)
    pile_of(budget, PileKind.SERVICE, 2 * LIMIT)
    queued = pile_of(budget, PileKind.INPUT, 2 * LIMIT)
    budget.excuse(queued, True, 0)
    assert budget.state is BudgetState.FULL
    assert budget.has_room_for_answers
    unread = pile_of(budget, PileKind.OUTPUT, LIMIT)
    assert not budget.has_room_for_answers
    assert budget.settle(PATIENCE_FULL_MS + 1) == ([unread], [])
    assert budget.has_room_for_answers


def test_a_turn_that_does_not_come_ends_after_the_longest_wait() -> None:
    """And what ended is in no list any more."""
    budget = MemoryBudget(LIMIT, longest_wait_ms=1000)
    pile_of(budget, PileKind.SERVICE, LIMIT)
    first, second = (pile_of(budget, PileKind.INPUT, 1) for _ in range(2))
    assert not any(budget.ask(pile, 9 * LIMIT, 0) for pile in (first, second))
    assert budget.settle(0) == ([], [first])
    for now_ms in range(0, 1001, 50):
        budget.hold(first, first.held_bytes + 64 * KIB, now_ms)
        assert budget.settle(now_ms) == ([], [])
    assert budget.settle(1001) == ([second], [])
    assert not second.waits_for_turn


@dataclass
class Peer:
    """What a model's peer sends: one frame, all of it or only a part."""

    frame_bytes: int
    sent_share: float
    begins: int

    def __post_init__(self) -> None:
        self.pile = Pile(self, PileKind.INPUT)
        self.arrived = 0
        self.is_served = self.is_closed = False

    @property
    def is_honest(self) -> bool:
        return self.sent_share == 1

    @property
    def is_over(self) -> bool:
        return self.is_served or self.is_closed

    def read(self, budget: MemoryBudget, now_ms: int) -> None:
        """One turn of an event loop: as much as may be read of what was sent."""
        pile, state = self.pile, budget.state
        if pile.waits_for_turn or (state is BudgetState.FULL and not pile.has_turn):
            budget.excuse(pile, state is BudgetState.FULL, now_ms)
            return
        budget.excuse(pile, False, now_ms)
        most = READ if state is BudgetState.FREE or pile.has_turn else READ_SHORT
        left = int(self.frame_bytes * self.sent_share) - self.arrived
        self.arrived += min(left, most)
        if self.arrived == self.frame_bytes:
            self.is_served = True
            budget.hold(pile, 0, now_ms)
        else:
            budget.hold(pile, self.arrived, now_ms)
            if self.arrived:
                budget.ask(pile, self.frame_bytes, now_ms)


PEERS = st.builds(
    Peer,
    st.one_of(st.integers(1, 2 * SMALL_FRAME_BYTES), st.integers(100 * KIB, LIMIT // 8), st.integers(1, 4 * LIMIT)),
    st.one_of(st.just(1.0), st.just(1.0), st.floats(0, 0.99)),
    st.integers(0, 60),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(PEERS, min_size=1, max_size=40))
def test_every_frame_that_is_sent_is_served_and_what_waits_stays_below_its_bound(peers: list[Peer]) -> None:
    """Whatever else waits: no deadlock, no starvation; only those who stand still are closed."""
    budget = MemoryBudget(LIMIT, longest_wait_ms=1_000_000)
    bound = LIMIT + max(peer.frame_bytes for peer in peers) + READ + len(peers) * SMALL_FRAME_BYTES
    for tick in range(20_000):
        now_ms = tick * TICK_MS
        for peer in peers:
            if not peer.is_over and tick >= peer.begins:
                peer.read(budget, now_ms)
        assert budget.held_bytes == sum(peer.pile.held_bytes for peer in peers) <= bound
        late, going_on = budget.settle(now_ms)
        assert all(not pile.waits_for_turn for pile in going_on)
        for pile in late:
            assert not pile.owner.is_honest
            pile.owner.is_closed = True
        if tick > 60 and all(peer.is_over for peer in peers if peer.is_honest):
            break
    assert all(peer.is_served for peer in peers if peer.is_honest)
    assert 2 * budget.held_bytes < LIMIT or not budget.is_at_rest
