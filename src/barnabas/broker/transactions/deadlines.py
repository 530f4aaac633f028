"""When the transaction coordinator has to look for what is due, and what it has yet to look at.

In Kafka: the tasks transaction-abort and transactionalId-expiration of the scheduler, and the queue
of appends to try again of `TransactionMarkerChannelManager`.
"""

from collections import deque
from collections.abc import Callable, Generator, Iterator

from barnabas.broker.transactions.effects import Completion, Owned
from barnabas.broker.transactions.states import TransactionState
from barnabas.broker.transactions.transaction import TransactionMetadata

__all__ = ["Deadlines"]

_TRANSACTIONS_A_STEP = 2_000
"""How many transactions are looked at at a time: about a millisecond."""
_TOMBSTONES_A_STEP = 256
"""They are one append for each partition."""
_ABORTS_A_STEP = 32
"""Each is an append of its own."""
_RETRIES_A_STEP = 32
"""The same."""
_COMPLETIONS_A_STEP = 256
"""Each is queued for the leaders of its partitions."""

_Found = tuple[Owned, TransactionMetadata]


class Deadlines:
    """The coordinator's deadlines, in milliseconds of the monotonic clock."""

    def __init__(self) -> None:
        self.abort_ms: int | None = None
        self.expiry_ms: int | None = None
        self.to_abort: Iterator[_Found] | None = None
        """The transactions that this check has yet to look at."""
        self.to_expire: Iterator[_Found] | None = None
        self._loaded: deque[tuple[int, Iterator[_Found]]] = deque()
        """The transactions of partitions that were loaded, with when to look at them."""
        self._retries: deque[tuple[int, Completion]] = deque()

    def start(self, abort_ms: int, expiry_ms: int) -> None:
        self.abort_ms, self.expiry_ms = abort_ms, expiry_ms

    def next_ms(self) -> int | None:
        """The earliest deadline."""
        found = [due_ms for due_ms in (self.abort_ms, self.expiry_ms) if due_ms is not None]
        found += [waiting[0][0] for waiting in (self._loaded, self._retries) if waiting]
        return min(found, default=None)

    def is_abort_due(self, now_ms: int) -> bool:
        return self.abort_ms is not None and self.abort_ms <= now_ms

    def is_expiry_due(self, now_ms: int) -> bool:
        return self.expiry_ms is not None and self.expiry_ms <= now_ms

    def retry(self, completion: Completion, at_ms: int) -> None:
        """Write the last record of a transaction again.

        All pauses are equally long, so the first is due first."""
        self._retries.append((at_ms, completion))

    def pop_retries(self, now_ms: int) -> Iterator[Completion]:
        """Take some of those that are due."""
        for _ in range(_RETRIES_A_STEP):
            if not self._retries or self._retries[0][0] > now_ms:
                return
            yield self._retries.popleft()[1]

    def loaded(self, transactions: Iterator[_Found], at_ms: int) -> None:
        """A partition was loaded: look at its transactions, see `pop_decided`."""
        self._loaded.append((at_ms, transactions))

    def pop_decided(self, now_ms: int) -> Iterator[_Found]:
        """Look at some transactions that were loaded: those whose outcome is decided."""
        if not self._loaded or self._loaded[0][0] > now_ms:
            return
        _, transactions = self._loaded[0]
        if (yield from _look(transactions, lambda each: each.state.is_prepared, _COMPLETIONS_A_STEP)):
            self._loaded.popleft()

    def pop_timed_out(self, wall_ms: int) -> Iterator[_Found]:
        """Look at some transactions: those that are open for longer than their producers have asked
        for."""
        if (
            yield from _look(
                self.to_abort,
                lambda each: each.state is TransactionState.ONGOING and each.start_ms + each.timeout_ms < wall_ms,
                _ABORTS_A_STEP,
            )
        ):
            self.to_abort = None

    def pop_expired(self, before_ms: int) -> Iterator[_Found]:
        """Look at some transactions: those over that were last used at or before a time."""
        if (
            yield from _look(
                self.to_expire, lambda each: each.is_over and each.update_ms <= before_ms, _TOMBSTONES_A_STEP
            )
        ):
            self.to_expire = None


def _look(
    left: Iterator[_Found] | None, is_due: Callable[[TransactionMetadata], bool], most: int
) -> Generator[_Found, None, bool]:
    """Yield those of some of what is left that are due, until so many are; whether nothing is left.

    One by one: where the caller fails with one, the others are still there.
    """
    found = 0
    for seen, each in enumerate(left or (), 1):
        _, transaction = each
        if transaction.pending is None and is_due(transaction):
            found += 1
            yield each
        if seen == _TRANSACTIONS_A_STEP or found == most:
            return False
    return True
