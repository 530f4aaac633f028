"""The bytes that wait in memory for the peers of a server, on its event loop:
`barnabas.net.memory_budget` with timers.

Each accepted connection has an `Account`, which reports what it holds and says how much may be
read. While there is room that costs nothing: a connection compares
`WaitingBytes.most_unsent_bytes`, as it always does before it reads. Where the limit is near, this
is -1, and the connection asks its account. When much memory was held and is free again, the C
library is asked to return it to the system.
"""

import asyncio
import contextlib
import logging
import sys
import time
from collections.abc import Mapping
from typing import Protocol

from barnabas.base.memory import return_memory
from barnabas.base.network import Standing
from barnabas.net.memory_budget import BudgetState, MemoryBudget, Pile, PileKind

__all__ = ["Account", "AccountOwner", "WaitingBytes", "unlimited"]

logger = logging.getLogger(__name__)

_NO_LIMIT = 1 << 62
_READ_BYTES = 256 * 1024
_READ_SHORT_BYTES = 4 * 1024
_CHECK_S = 0.025
_LOG_EVERY_S = 1.0
_RETURN_FROM_BYTES = 16 * 1024 * 1024
_RETURN_AFTER_S = 2.0


class AccountOwner(Protocol):
    """The connection of an account."""

    @property
    def peer(self) -> tuple[str, int]: ...

    def go_on(self) -> None:
        """Read again: what made it wait is over."""
        ...

    def close(self) -> None: ...


class _NoOwner:
    """The owner of a closed account: the two would otherwise refer to each other until garbage is
    collected."""

    peer = ("", 0)

    def go_on(self) -> None:
        """See `AccountOwner`."""

    def close(self) -> None:
        """See `AccountOwner`."""


_NO_OWNER = _NoOwner()


class WaitingBytes:
    """One budget, for the running event loop."""

    def __init__(
        self, limit_bytes: int, name: str, *, max_unsent_bytes: int = sys.maxsize, longest_wait_ms: int | None = None
    ) -> None:
        """``name`` says what the limit is, for log lines.

        ``max_unsent_bytes`` is what a connection may have to send before it reads no more."""
        self.budget = MemoryBudget(limit_bytes, *(() if longest_wait_ms is None else (longest_wait_ms,)))
        self.closed_count = 0
        """Connections that were closed because they were late."""
        self.peak_bytes = 0
        """The most that waited since memory was last returned."""
        self.most_unsent_bytes = max_unsent_bytes
        """`max_unsent_bytes`, or -1 where a connection is to ask its account."""
        self.max_unsent_bytes = max_unsent_bytes
        self._name = name
        self._short_bytes = min((limit_bytes + 1) // 2, _RETURN_FROM_BYTES)
        self._outside: dict[Account, None] = {}  # not read until there is room
        self._measured: dict[Account, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._return_timer: asyncio.TimerHandle | None = None
        self._silent_until_s = 0.0
        self._unlogged = 0

    @property
    def state(self) -> BudgetState:
        return self.budget.state

    @property
    def has_room(self) -> bool:
        """See `MemoryBudget.has_room_for_answers`."""
        return self.budget.has_room_for_answers

    def hold(self, pile: Pile, held_bytes: int) -> None:
        """See `MemoryBudget.hold`."""
        budget = self.budget
        budget.hold(pile, held_bytes, _now_ms())
        if budget.held_bytes >= self._short_bytes or self.most_unsent_bytes < 0 or self.peak_bytes:
            self._changed()

    def ask(self, pile: Pile, wanted_bytes: int) -> bool:
        """See `MemoryBudget.ask`."""
        may_grow = self.most_unsent_bytes >= 0 or self.budget.ask(pile, wanted_bytes, _now_ms())
        if not may_grow:
            self._changed()
        return may_grow

    def leave_outside(self, account: "Account") -> None:
        """Have `AccountOwner.go_on` called when there is room. Until then the peer is not slow."""
        self._outside[account] = None
        account.excuse(is_excused=True)

    def measure(self, account: "Account") -> None:
        """Call `Account.measure` before an account is judged."""
        self._measured[account] = None

    def forget(self, account: "Account") -> None:
        """The connection is closed, or counts elsewhere."""
        self._outside.pop(account, None)
        self._measured.pop(account, None)

    def _changed(self) -> None:
        budget = self.budget
        self.peak_bytes = max(self.peak_bytes, budget.held_bytes)
        is_at_rest = budget.is_at_rest
        self.most_unsent_bytes = self.max_unsent_bytes if is_at_rest else -1
        loop = asyncio.get_running_loop()
        if not is_at_rest and self._timer is None:
            self._timer = loop.call_later(_CHECK_S, self._check)
        elif is_at_rest and self._outside:
            loop.call_soon(self._let_in)
        if self.peak_bytes < _RETURN_FROM_BYTES:
            self.peak_bytes = 0
        elif budget.held_bytes < self.peak_bytes // 4 and self._return_timer is None:
            self._return_timer = loop.call_later(_RETURN_AFTER_S, self._return)

    def _check(self) -> None:
        self._timer = None
        for account in tuple(self._measured):
            account.measure()
        late, going_on = self.budget.settle(_now_ms())
        for pile in late:
            self._close(pile)
        for pile in going_on:
            _account_of(pile).owner.go_on()
        self._let_in()
        self._changed()

    def _let_in(self) -> None:
        if self._outside and self.state is not BudgetState.FULL:
            waiting, self._outside = self._outside, {}
            for account in waiting:
                account.excuse(is_excused=False)
                account.owner.go_on()

    def _close(self, pile: Pile) -> None:
        owner = _account_of(pile).owner
        self.closed_count += 1
        self._unlogged += 1
        now_s = time.monotonic()
        if now_s >= self._silent_until_s:
            self._silent_until_s = now_s + _LOG_EVERY_S
            what = (
                "it does not read its answers"
                if pile.kind is PileKind.OUTPUT
                else "its request does not come to an end"
            )
            others = f" (and {self._unlogged - 1} others before it)" if self._unlogged > 1 else ""
            logger.warning(
                "Closing the connection from %s:%d%s: %s, and its memory is needed: %d bytes wait in all, of at most %d (%s)",
                *owner.peer,
                others,
                what,
                self.budget.held_bytes,
                self.budget.limit_bytes,
                self._name,
            )
            self._unlogged = 0
        owner.close()

    def _return(self) -> None:
        self._return_timer = None
        if self.budget.held_bytes >= self.peak_bytes // 4:
            return  # it is in use again
        self.peak_bytes = 0
        with contextlib.suppress(RuntimeError):  # the executor has ended
            asyncio.get_running_loop().run_in_executor(None, return_memory)


class _Unlimited(WaitingBytes):
    """Nothing is counted."""

    def __init__(self, max_unsent_bytes: int) -> None:
        super().__init__(_NO_LIMIT, "", max_unsent_bytes=max_unsent_bytes)

    def hold(self, pile: Pile, held_bytes: int) -> None:
        pile.held_bytes = held_bytes

    def ask(self, pile: Pile, wanted_bytes: int) -> bool:  # noqa: ARG002  # always
        return True


class Account:
    """What one connection holds.

    It is made with the connection; the piles when there is something to hold."""

    __slots__ = ("_input", "_output", "_service", "owner", "standing", "waiting")

    def __init__(self, owner: AccountOwner, limits: Mapping[Standing, WaitingBytes], standing: Standing) -> None:
        self.owner = owner
        self.standing = standing
        self.waiting = limits[standing]
        self._input: Pile | None = None
        self._output: Pile | None = None
        self._service: Pile | None = None

    def move(self, limits: Mapping[Standing, WaitingBytes], standing: Standing) -> None:
        """Count elsewhere from now on."""
        held = [(pile, pile.held_bytes) for pile in (self._input, self._output, self._service) if pile is not None]
        self._let_go()
        self.standing = standing
        self.waiting = limits[standing]
        for pile, held_bytes in held:
            self.waiting.hold(pile, held_bytes)

    @property
    def served_bytes(self) -> int:
        return 0 if self._service is None else self._service.held_bytes

    @property
    def output_bytes(self) -> int:
        return 0 if self._output is None else self._output.held_bytes

    def hold_input(self, held_bytes: int, wanted_bytes: int = 0, *, is_excused: bool = False) -> bool:
        """Set the bytes received and still held.

        Returns whether to read on; if not, `AccountOwner.go_on` follows. ``wanted_bytes`` is
        the size of the frame that it is the beginning of. ``is_excused`` is whether it waits
        for the server.
        """
        pile = self._input
        if pile is None:
            if not held_bytes:
                return True
            pile = self._input = Pile(self, PileKind.INPUT)
        waiting = self.waiting
        self.excuse(is_excused=is_excused)
        waiting.hold(pile, held_bytes)
        return wanted_bytes <= held_bytes or waiting.ask(pile, wanted_bytes)

    def excuse(self, *, is_excused: bool) -> None:
        """Whether the server is what its input waits for."""
        if self._input is not None and self._input.is_excused is not is_excused:
            self.waiting.budget.excuse(self._input, is_excused, _now_ms())

    def hold_output(self, held_bytes: int) -> None:
        """So much waits for the peer to read it."""
        if self._output is None:
            if not held_bytes:
                return
            self._output = Pile(self, PileKind.OUTPUT)
        self.waiting.hold(self._output, held_bytes)

    def hold_served(self, held_bytes: int) -> None:
        """So much waits for the server."""
        if self._service is None:
            self._service = Pile(self, PileKind.SERVICE)
        self.waiting.hold(self._service, held_bytes)

    def measure(self) -> None:
        """Report the output of a connection that does not report it by itself."""
        self.owner.measure()  # type: ignore[attr-defined]  # it has asked for this

    @property
    def is_unlimited(self) -> bool:
        """Whether the connection reads whatever waits: it was not accepted."""
        return self.waiting.max_unsent_bytes == sys.maxsize

    @property
    def has_turn(self) -> bool:
        """Whether the frame that is arriving is to be read whatever waits."""
        return self._input is not None and self._input.has_turn

    def read_bytes(self) -> int:
        """How much may be read now. After 0, `AccountOwner.go_on` follows."""
        state, pile = self.waiting.state, self._input
        if pile is not None:
            if pile.waits_for_turn:
                return 0
            if pile.has_turn:
                return _READ_BYTES
        if state is BudgetState.FREE:
            return _READ_BYTES
        if state is BudgetState.SHORT:
            return _READ_SHORT_BYTES
        self.waiting.leave_outside(self)
        return 0

    def close(self) -> None:
        """Nothing waits any longer, and nothing is to be reported after this."""
        self._let_go()
        self._input = self._output = self._service = None
        self.owner = _NO_OWNER

    def _let_go(self) -> None:
        for pile in (self._input, self._output, self._service):
            if pile is not None:
                self.waiting.hold(pile, 0)
        self.waiting.forget(self)


def unlimited(max_unsent_bytes: int) -> Mapping[Standing, WaitingBytes]:
    """No limit for anyone."""
    return dict.fromkeys(Standing, _Unlimited(max_unsent_bytes))


def _account_of(pile: Pile) -> Account:
    assert isinstance(pile.owner, Account)
    return pile.owner


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
