"""How many bytes may wait for all peers of a server together, and which of them wait
no longer: decisions only.

Bytes wait in piles: what has come of a frame that is not whole, requests behind one that is being
served, answers that the peer does not read. A pile belongs to one connection. The budget has one
limit for the sum of all piles:

- Below half of it (`BudgetState.FREE`) piles grow as they like.
- From there on (`SHORT`) small frames are still taken, but a larger one begins or goes on only in
  its turn: in the order of asking, as soon as the rest of it has room. Frames of more than an
  eighth of the limit have their turns one at a time, however little room there is, so each request
  can be served in the end. A pile in its turn that has moved less than `LEAST_BYTES_A_S` for
  `PATIENCE_TURN_MS` is late, because others wait for it, and so is a turn of more than
  `LONGEST_TURN_MS`, or of a larger frame than comes in this time with `TURN_BYTES_A_S`.
- From the limit on (`FULL`) only the frames that have their turn are read.

The connections of late piles are closed, the latest first, until the sum is below half. How long a
pile without a turn may stand still depends on what waits for peers alone, because a peer cannot
help what the server has yet to serve. From half of the limit on a pile is late that has moved less
than `LEAST_BYTES_A_S` for `PATIENCE_MS`. From the limit on it is late when it has not moved for
`PATIENCE_FULL_MS`, or has waited for `LONGEST_FULL_MS`.

So a slow peer costs others nothing: while there is room it may be slow, and when others need the
room it goes. A pile that waits for the server, not for its peer, is not late. One that waits for
its turn is late after ``longest_wait_ms``.

In Kafka: `SimpleMemoryPool` and the muted channels of `Selector`, which wait for
slow peers for ever.
"""

import enum

__all__ = [
    "LEAST_BYTES_A_S",
    "LONGEST_FULL_MS",
    "LONGEST_TURN_MS",
    "PATIENCE_FULL_MS",
    "PATIENCE_MS",
    "PATIENCE_TURN_MS",
    "SMALL_FRAME_BYTES",
    "TURN_BYTES_A_S",
    "BudgetState",
    "MemoryBudget",
    "Pile",
    "PileKind",
]

LEAST_BYTES_A_S = 64 * 1024
PATIENCE_MS = 5000
"""The system reports a reader's progress in steps of up to a megabyte or two."""
PATIENCE_TURN_MS = 500
PATIENCE_FULL_MS = 100
LONGEST_FULL_MS = 1000
LONGEST_TURN_MS = 10_000
TURN_BYTES_A_S = 1024 * 1024
SMALL_FRAME_BYTES = 16 * 1024
_LONGEST_WAIT_MS = 10_000
_LARGE_SHARE = 8


class BudgetState(enum.IntEnum):
    """How much room there is."""

    FREE = 0
    SHORT = 1
    FULL = 2


class PileKind(enum.Enum):
    """What a pile waits for."""

    INPUT = 0
    """For the peer to send the rest of a frame: it moves when it grows."""
    OUTPUT = 1
    """For the peer to read: it moves when it shrinks."""
    SERVICE = 2
    """For the server itself."""


class _Turn(enum.Enum):
    NONE = 0
    ASKED = 1
    GIVEN = 2


class Pile:
    """What waits for one connection in one direction. For reading."""

    __slots__ = ("_turn", "began_ms", "held_bytes", "is_excused", "kind", "moved_ms", "owner", "wanted_bytes")

    def __init__(self, owner: object, kind: PileKind) -> None:
        self.owner = owner
        self.kind = kind
        self.held_bytes = 0
        self.wanted_bytes = 0
        """The size that it will have, where it has asked for its turn."""
        self.began_ms = 0
        self.moved_ms = 0
        """When it would have begun to stand still, had it moved at the least speed."""
        self.is_excused = kind is PileKind.SERVICE
        """Whether it waits for the server."""
        self._turn = _Turn.NONE

    @property
    def has_turn(self) -> bool:
        """Whether it may grow to its whole size, however little room there is."""
        return self._turn is _Turn.GIVEN

    @property
    def waits_for_turn(self) -> bool:
        """Whether it has asked, and is not to grow."""
        return self._turn is _Turn.ASKED


class MemoryBudget:
    """The sum of all piles, and its limit."""

    def __init__(self, limit_bytes: int, longest_wait_ms: int = _LONGEST_WAIT_MS) -> None:
        self.limit_bytes = limit_bytes
        self._longest_wait_ms = longest_wait_ms
        self._large_bytes = limit_bytes // _LARGE_SHARE
        self.held_bytes = 0
        self.output_bytes = 0
        """The part of these that waits for peers to read it."""
        self._piles: dict[Pile, None] = {}
        self._asking: dict[Pile, int] = {}  # in order, with the time of asking
        self._with_turn: dict[Pile, None] = {}
        self._large: Pile | None = None
        """The one of `_with_turn` that is larger than its share."""

    @property
    def state(self) -> BudgetState:
        """Whether there is room."""
        return self._state_of(self.held_bytes)

    def _state_of(self, held_bytes: int) -> BudgetState:
        if 2 * held_bytes < self.limit_bytes:
            return BudgetState.FREE
        return BudgetState.SHORT if held_bytes < self.limit_bytes else BudgetState.FULL

    @property
    def has_room_for_answers(self) -> bool:
        """Whether a large answer may be made: what peers do not read is below the limit.

        Requests that are being served and what waits behind them do not count, for they go
        only with their answers."""
        return self.output_bytes < self.limit_bytes

    @property
    def is_at_rest(self) -> bool:
        """Whether `settle` has nothing to do."""
        return not self._asking and 2 * self.held_bytes < self.limit_bytes

    def hold(self, pile: Pile, held_bytes: int, now_ms: int) -> None:
        """The pile has this size now; with 0 its turn is over."""
        grown = held_bytes - pile.held_bytes
        self.held_bytes += grown
        if pile.kind is PileKind.OUTPUT:
            self.output_bytes += grown
        if not pile.held_bytes:
            pile.began_ms = pile.moved_ms = now_ms
            if held_bytes:
                self._piles[pile] = None
        elif grown:
            moved = grown if pile.kind is PileKind.INPUT else -grown
            if moved > 0:
                pile.moved_ms = min(now_ms, pile.moved_ms + moved * 1000 // LEAST_BYTES_A_S)
            elif pile.kind is PileKind.INPUT:  # a frame was handed on, and another begins
                pile.began_ms = pile.moved_ms = now_ms
                self._end_turn(pile)
        pile.held_bytes = held_bytes
        if not held_bytes:
            self._piles.pop(pile, None)
            self._end_turn(pile)

    def excuse(self, pile: Pile, is_excused: bool, now_ms: int) -> None:
        """Whether an input pile waits for the server, which has not answered the request before."""
        if pile.is_excused is not is_excused:
            pile.is_excused = is_excused
            pile.began_ms = pile.moved_ms = now_ms

    def ask(self, pile: Pile, wanted_bytes: int, now_ms: int) -> bool:
        """Whether the pile may grow to this size. If not, `settle` will say when."""
        if pile._turn is _Turn.GIVEN:
            return True
        state = self.state
        if state is BudgetState.FREE or (state is BudgetState.SHORT and wanted_bytes <= SMALL_FRAME_BYTES):
            self._end_turn(pile)
            return True
        if pile._turn is _Turn.NONE:
            pile._turn = _Turn.ASKED
            self._asking[pile] = now_ms
        pile.wanted_bytes = wanted_bytes
        return False

    def settle(self, now_ms: int) -> tuple[list[Pile], list[Pile]]:
        """Returns the piles that are late, which are gone from the budget and whose connections are
        to be closed; and those that have their turn now."""
        late: list[Pile] = []
        if self.state is not BudgetState.FREE:
            late = self._take_late(now_ms)
        return late, self._give_turns(now_ms)

    def _take_late(self, now_ms: int) -> list[Pile]:
        for_peers_bytes = sum([pile.held_bytes for pile in self._piles if not pile.is_excused])
        lateness = {pile: self._lateness_ms(pile, self._state_of(for_peers_bytes), now_ms) for pile in self._piles}
        late: list[Pile] = []
        for pile in sorted((pile for pile in lateness if lateness[pile] > 0), key=lateness.__getitem__, reverse=True):
            if self.state is BudgetState.FREE:
                break
            if self._lateness_ms(pile, self._state_of(for_peers_bytes), now_ms) <= 0:
                continue  # those before it have left room enough for its patience
            for_peers_bytes -= pile.held_bytes
            self.hold(pile, 0, now_ms)
            late.append(pile)
        return late

    def _lateness_ms(self, pile: Pile, for_peers: BudgetState, now_ms: int) -> int:
        """``for_peers`` is whether there is room beside what waits for peers."""
        if pile.is_excused:
            return 0
        if pile._turn is _Turn.ASKED:
            return now_ms - self._asking[pile] - self._longest_wait_ms
        stood_ms = now_ms - pile.moved_ms
        age_ms = now_ms - pile.began_ms
        is_full = for_peers is BudgetState.FULL
        if pile.has_turn:
            longest_ms = max(LONGEST_TURN_MS, pile.wanted_bytes * 1000 // TURN_BYTES_A_S)
            return max(stood_ms - (PATIENCE_FULL_MS if is_full else PATIENCE_TURN_MS), age_ms - longest_ms)
        if is_full:
            return max(stood_ms - PATIENCE_FULL_MS, age_ms - LONGEST_FULL_MS)
        return 0 if for_peers is BudgetState.FREE else stood_ms - PATIENCE_MS

    def _give_turns(self, now_ms: int) -> list[Pile]:
        given: list[Pile] = []
        room = self.limit_bytes - self.held_bytes
        room -= sum(min(_rest_of(pile), self._large_bytes) for pile in self._with_turn)
        is_free, is_blocked = self.state is BudgetState.FREE, False
        for pile in tuple(self._asking):
            rest = _rest_of(pile)
            if is_free:
                pile._turn = _Turn.NONE
            elif rest > self._large_bytes:
                if self._large is not None:
                    continue
                self._large = pile
                room -= self._large_bytes
            elif is_blocked or (rest > room and self._with_turn):
                is_blocked = True
                continue
            else:
                room -= rest
            if not is_free:
                pile._turn = _Turn.GIVEN
                self._with_turn[pile] = None
            del self._asking[pile]
            pile.began_ms = pile.moved_ms = now_ms
            given.append(pile)
        return given

    def _end_turn(self, pile: Pile) -> None:
        if pile._turn is not _Turn.NONE:
            self._asking.pop(pile, None)
            self._with_turn.pop(pile, None)
            if self._large is pile:
                self._large = None
            pile._turn = _Turn.NONE
            pile.wanted_bytes = 0


def _rest_of(pile: Pile) -> int:
    return max(pile.wanted_bytes - pile.held_bytes, 0)
