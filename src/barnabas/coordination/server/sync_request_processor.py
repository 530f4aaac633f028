"""Logs what is decided, in batches: ZooKeeper's SyncRequestProcessor.

    decided ──> unlogged ──(end of the turn)──> thread: append, sync ──> committed, or acknowledged
                   ^                                       │
                   └── what is decided meanwhile: the next batch

A thread writes one batch at a time: transactions that are decided during a sync form the next
batch, so batches grow with the load. A leader proposes what it logs before it logs it.

A write that failed is the last one: a next sync may succeed, and would acknowledge what this one
has lost.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from barnabas.coordination.server.server_state import LOG_TRANSITIONS, LogEvent, LogState, StateMachine

__all__ = ["Entries", "LogSource", "SyncRequestProcessor"]

Entries = Sequence[bytes | bytearray]
"""The payloads of transactions."""


class LogSource(Protocol):
    """Where transactions for the log come from: a processor alone, or a member's queue."""

    unlogged: list[bytes | bytearray]

    @property
    def first_unlogged_zxid(self) -> int:
        """The zxid of the first of `unlogged`."""
        ...


class SyncRequestProcessor:
    """See the module."""

    def __init__(
        self,
        source: LogSource,
        append: Callable[[int, Entries, bool], None],
        beside: Callable[[Callable[[], None], Callable[[BaseException | None], None]], None],
        call_soon: Callable[[Callable[[], None]], object],
        now_ms: Callable[[], int],
        synced: Callable[[Entries, int, BaseException | None], None],
        propose: Callable[[], None] | None,
    ) -> None:
        """``append(first zxid, entries, roll)`` writes and syncs. ``beside(work, done)`` has it
        done while others have their turn. ``synced(entries, ms that it took, error)`` follows.
        ``propose`` is called before a batch is taken; None for a server alone."""
        self.source = source
        self._append = append
        self._beside = beside
        self._call_soon = call_soon
        self._now_ms = now_ms
        self._synced = synced
        self._propose = propose
        self._machine = StateMachine(LOG_TRANSITIONS, LogState.IDLE)
        self._is_planned = False
        self._rolls = False
        self.on_written: Callable[[], None] = lambda: None
        """Called after each batch."""

    @property
    def state(self) -> LogState:
        return self._machine.state

    @property
    def is_busy(self) -> bool:
        """Whether a batch is written, or something is left that may still be logged."""
        state = self.state
        return state in (LogState.WRITING, LogState.ENDING) or (state is LogState.IDLE and bool(self.source.unlogged))

    def wake(self) -> None:
        """There may be transactions for the log, or proposals: take them at the end of this turn of
        the event loop."""
        if not self._is_planned and (self._propose is not None or self._machine.state is LogState.IDLE):
            self._is_planned = True
            self._call_soon(self.write)

    def roll_next(self) -> None:
        """Begin a new file with the next batch."""
        self._rolls = True

    def write(self) -> None:
        """Give all that is unlogged to the thread, unless it has a batch; a leader proposes it
        first."""
        self._is_planned = False
        if self.state in (LogState.ENDING, LogState.ENDED):
            return
        if self._propose is not None:
            self._propose()
        source = self.source
        if self.state is not LogState.IDLE or not source.unlogged:
            return
        self._machine.on(LogEvent.WRITES)
        first_zxid = source.first_unlogged_zxid
        entries, source.unlogged = source.unlogged, []
        rolls, self._rolls = self._rolls, False
        self._beside(partial(self._append, first_zxid, entries, rolls), partial(self._done, entries, self._now_ms()))

    def _done(self, entries: Entries, began_ms: int, error: BaseException | None) -> None:
        self._machine.on(LogEvent.WRITTEN)
        if error is not None:
            self.end()
        self._synced(entries, self._now_ms() - began_ms, error)
        if self.source.unlogged:
            self.write()
        self.on_written()

    def end(self) -> None:
        """Log nothing more. A batch that the thread has is still written."""
        self._machine.on(LogEvent.ENDS)
