"""How much is committed in one piece: between two pieces others have their turn.

One sync, or one acknowledgement of a quorum, may cover thousands of transactions, and one
transaction thousands of changes. They are committed some at a time until a slice is over, which is
some milliseconds long; then all others are served. A transaction is applied as a whole. What is not
committed yet is, for everyone, as if its acknowledgement had not come.

ZooKeeper has no counterpart: its CommitProcessor has a thread.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from barnabas.wire.jute.layouts import TXN_HEADER
from barnabas.wire.jute.opcodes import OpCode

__all__ = ["CommitPieces", "CommitTurn", "CommitTurns", "pieces"]

Logged = TypeVar("Logged", bound=tuple[int, bytes | bytearray])
"""A transaction: its zxid and its payload."""

_MOST = 100
"""They take about a millisecond, which is how far a slice may be exceeded."""
_MOST_IN_TURN = 500
_CHANGE_BYTES = 64
"""About what a change takes in a transaction that has many."""
_TYPE = slice(TXN_HEADER.size - 4, TXN_HEADER.size)
_OF_MANY_CHANGES = tuple(opcode.to_bytes(4, "big", signed=True) for opcode in (OpCode.MULTI, OpCode.CLOSE_SESSION))


class CommitTurn:
    """What is committed before others have their turn."""

    __slots__ = ("_is_slice_over", "_most", "_work", "is_over")

    def __init__(self, is_slice_over: Callable[[], bool], most: int) -> None:
        self._is_slice_over = is_slice_over
        self._most = most
        self._work = 0
        self.is_over = False
        """Whether `next_piece` has said so."""

    def next_piece(self, transactions: Iterable[bytes | bytearray]) -> int:
        """How many of these transactions are committed in one piece, at least one of the first that
        a turn gets; 0 if others have their turn before any."""
        count = work = 0
        for transaction in transactions:
            changes = max(1, len(transaction) // _CHANGE_BYTES) if transaction[_TYPE] in _OF_MANY_CHANGES else 1
            if count and work + changes > self._most:
                break
            work += changes
            count += 1
            if work >= self._most:
                break
        if count and self._work and (self._work + work > _MOST_IN_TURN or self._is_slice_over()):
            self.is_over = True
            return 0
        self._work += work
        return count


class CommitTurns:
    """How long a server commits before others have their turn."""

    def __init__(
        self, time_slice: Callable[[], Callable[[], bool]], soon: Callable[[Callable[[], None]], object]
    ) -> None:
        """``time_slice`` begins a slice, and returns what says whether it is over.

        ``soon`` calls a function when others have had their turn."""
        self.soon = soon
        self.most = _MOST
        """Changes in a piece."""
        self._time_slice = time_slice

    def begin(self) -> CommitTurn:
        """A turn that begins now."""
        return CommitTurn(self._time_slice(), self.most)


def pieces(left: deque[Logged], turns: CommitTurns) -> Iterator[list[Logged] | None]:
    """Take what is left, piece by piece.

    Yields None where others may have their turn, and at the end."""
    while left:
        turn = turns.begin()
        while count := turn.next_piece(payload for _, payload in left):
            yield [left.popleft() for _ in range(count)]
        yield None


class CommitPieces:
    """What is on stable storage, and is committed piece by piece."""

    def __init__(self, commit: Callable[[int], None], turns: CommitTurns) -> None:
        """``commit`` commits the given number of transactions, from the next one on."""
        self._commit = commit
        self._turns = turns
        self._waiting: deque[bytes | bytearray] = deque()

    def add(self, transactions: Iterable[bytes | bytearray]) -> None:
        """Commit these after all earlier ones, at once if none waits."""
        is_planned = bool(self._waiting)
        self._waiting += transactions
        if not is_planned:
            self._go_on()

    def _go_on(self) -> None:
        waiting, turn = self._waiting, self._turns.begin()
        while count := turn.next_piece(waiting):
            for _ in range(count):
                waiting.popleft()
            self._commit(count)
        if waiting:
            self._turns.soon(self._go_on)

    def finish(self) -> None:
        """Commit all that waits."""
        count = len(self._waiting)
        self._waiting.clear()
        if count:
            self._commit(count)

    def clear(self) -> None:
        """Forget what waits: the state that it belongs to is gone."""
        self._waiting.clear()
