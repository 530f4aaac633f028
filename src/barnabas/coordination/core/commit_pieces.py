"""How much is committed in one piece: between two pieces others have their turn.

One sync, or one acknowledgement of a quorum, may cover a thousand transactions, and one transaction a thousand changes. A piece
is some milliseconds of work, or one transaction: a transaction is applied as a whole.

ZooKeeper has no counterpart: its CommitProcessor has a thread.
"""

from collections import deque
from collections.abc import Callable, Iterable

from barnabas.wire.jute.layouts import TXN_HEADER
from barnabas.wire.jute.opcodes import OpCode

__all__ = ["CommitPieces", "first_piece"]

_MOST = 500
_CHANGE_BYTES = 64
"""About what a change takes in a transaction that has many."""
_TYPE = slice(TXN_HEADER.size - 4, TXN_HEADER.size)
_OF_MANY_CHANGES = tuple(opcode.to_bytes(4, "big", signed=True) for opcode in (OpCode.MULTI, OpCode.CLOSE_SESSION))


def first_piece(transactions: Iterable[bytes | bytearray]) -> int:
    """How many of these transactions are committed in one piece: at least one, unless there is none."""
    count = work = 0
    for transaction in transactions:
        work += len(transaction) // _CHANGE_BYTES if transaction[_TYPE] in _OF_MANY_CHANGES else 1
        if work > _MOST and count:
            break
        count += 1
    return count


class CommitPieces:
    """What is on stable storage, and is committed piece by piece."""

    def __init__(self, commit: Callable[[int], None], soon: Callable[[Callable[[], None]], object]) -> None:
        """``commit`` commits the next so many transactions; ``soon`` calls a function when others have had their turn."""
        self._commit = commit
        self._soon = soon
        self._waiting: deque[bytes | bytearray] = deque()

    def add(self, transactions: Iterable[bytes | bytearray]) -> None:
        """Commit these after all earlier ones, at once if none waits."""
        is_planned = bool(self._waiting)
        self._waiting += transactions
        if not is_planned:
            self._next()

    def _next(self) -> None:
        count = first_piece(self._waiting)
        for _ in range(count):
            self._waiting.popleft()
        if self._waiting:
            self._soon(self._next)
        if count:
            self._commit(count)

    def finish(self) -> None:
        """Commit all that waits."""
        count = len(self._waiting)
        self._waiting.clear()
        if count:
            self._commit(count)

    def clear(self) -> None:
        """Forget what waits: the state that it belongs to is gone."""
        self._waiting.clear()
