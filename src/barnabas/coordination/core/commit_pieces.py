"""How much is committed in one piece: between two pieces others have their turn.

One sync, or one acknowledgement of a quorum, may cover thousands of transactions, and one
transaction thousands of changes. They are committed in pieces of about a millisecond by tasks
(`barnabas.base.tasks`), so all others are served in between. A transaction is applied as a whole.
What is not committed yet is, for everyone, as if its acknowledgement had not come.

ZooKeeper has no counterpart: its CommitProcessor has a thread.
"""

from collections import deque
from collections.abc import Callable, Iterable
from typing import TypeVar

from barnabas.base.tasks import Runner, Task
from barnabas.wire.jute.layouts import TXN_HEADER
from barnabas.wire.jute.opcodes import OpCode

__all__ = ["MOST_CHANGES", "CommitPieces", "next_piece", "take_piece"]

Logged = TypeVar("Logged", bound=tuple[int, bytes | bytearray])
"""A transaction: its zxid and its payload."""

MOST_CHANGES = 100
"""They take about a millisecond. A piece is limited by their number and not by time, because it is
committed by one call, which writes one message to each member."""
_CHANGE_BYTES = 64
"""About what a change takes in a transaction that has many."""
_TYPE = slice(TXN_HEADER.size - 4, TXN_HEADER.size)
_OF_MANY_CHANGES = tuple(opcode.to_bytes(4, "big", signed=True) for opcode in (OpCode.MULTI, OpCode.CLOSE_SESSION))


def next_piece(transactions: Iterable[bytes | bytearray], most: int = MOST_CHANGES) -> int:
    """How many of these transactions are committed in one piece: those of ``most`` changes, and at
    least one if there is any."""
    count = work = 0
    for transaction in transactions:
        changes = max(1, len(transaction) // _CHANGE_BYTES) if transaction[_TYPE] in _OF_MANY_CHANGES else 1
        if count and work + changes > most:
            break
        work += changes
        count += 1
        if work >= most:
            break
    return count


def take_piece(left: deque[Logged]) -> list[Logged]:
    """Take the next piece out of what is left."""
    return [left.popleft() for _ in range(next_piece(payload for _, payload in left))]


class CommitPieces:
    """What is on stable storage, and is committed piece by piece."""

    def __init__(self, commit: Callable[[int], None], runner: Runner, most: int = MOST_CHANGES) -> None:
        """``commit`` commits the next so many transactions; ``most`` is that of `next_piece`."""
        self._most = most
        self._commit = commit
        self._runner = runner
        self._waiting: deque[bytes | bytearray] = deque()
        self._is_under_way = False

    def add(self, transactions: Iterable[bytes | bytearray]) -> None:
        """Commit these after all earlier ones, at once if none waits."""
        self._waiting += transactions
        if not self._is_under_way:
            self._is_under_way = True
            self._runner.start(self._commit_waiting())

    def _commit_waiting(self) -> Task[None]:
        waiting = self._waiting
        try:
            while count := next_piece(waiting, self._most):
                for _ in range(count):
                    waiting.popleft()
                self._commit(count)
                if waiting:
                    yield None
        finally:
            self._is_under_way = False

    def finish(self) -> None:
        """Commit all that waits."""
        count = len(self._waiting)
        self._waiting.clear()
        if count:
            self._commit(count)

    def clear(self) -> None:
        """Forget what waits: the state that it belongs to is gone."""
        self._waiting.clear()
