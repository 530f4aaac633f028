"""Requests that wait: for a watermark, for bytes to read, or for their time-out, whichever comes first.

Whoever parks names the keys (partitions, groups, anything hashable) whose change may complete the wait, and a function
that tries to. `Parked.changed` notes a key; `Parked.settle` runs the attempts for all keys noted since. The two are
apart so that the request that caused a change is answered before those who waited for it are served. The dispatcher
brackets each request with `Parked.hold` and `Parked.settle`; a change made elsewhere (by a timer, say) is settled in the
loop's next turn. Nobody polls.

Fetch sessions cover thousands of partitions, of which few change between two requests. They leave a `Watch` at each
partition that they need not look at: the first change takes it away and tells the session at once, which so keeps a
list of what has news. A parked request of a session waits for the session alone.
"""

import logging
from collections.abc import Callable, Hashable, Iterable
from typing import Protocol

from barnabas.base.clock import CallLater, Timer

__all__ = ["Parked", "Waiter", "Watch"]

logger = logging.getLogger(__name__)


class Waiter:
    """One parked request."""

    __slots__ = ("_attempt", "_expire", "_keys", "_parked", "_timer", "done")

    def __init__(
        self,
        parked: "Parked",
        keys: tuple[Hashable, ...],
        attempt: Callable[[Hashable], bool],
        expire: Callable[[], None],
    ) -> None:
        self._parked = parked
        self._keys = keys
        self._attempt = attempt
        self._expire = expire
        self._timer: Timer | None = None
        self.done = False

    def cancel(self) -> None:
        """Stop waiting without a word (the client is gone)."""
        if not self.done:
            self.done = True
            self._parked._remove(self)

    def _try(self, key: Hashable) -> None:
        if self.done:
            return
        try:
            done = self._attempt(key)
        except Exception:
            # One broken wait must not take the others with it: it ends as its time-out would end it.
            logger.exception("A parked request failed")
            self._timed_out()
            return
        if done:
            self.cancel()

    def _timed_out(self) -> None:
        if not self.done:
            self.cancel()
            try:
                self._expire()
            except Exception:
                logger.exception("The end of a parked request failed")


class Watch(Protocol):
    """Hears of one change of a key."""

    def key_changed(self) -> Hashable | None:
        """The key changed. Returns what else changed by that, for whoever is parked there."""
        ...


class Parked:
    """All waits of one broker."""

    __slots__ = ("_by_key", "_call_later", "_changed", "_held", "_settling", "_watches")

    def __init__(self, call_later: CallLater) -> None:
        self._call_later = call_later
        self._by_key: dict[Hashable, dict[Waiter, None]] = {}
        self._watches: dict[Hashable, dict[Watch, None]] = {}
        self._changed: dict[Hashable, None] = {}
        self._settling = False
        self._held = False

    def __len__(self) -> int:
        return len({id(waiter) for waiters in self._by_key.values() for waiter in waiters})

    def park(
        self,
        keys: Iterable[Hashable],
        attempt: Callable[[Hashable], bool],
        expire: Callable[[], None],
        timeout_ms: int,
    ) -> Waiter:
        """Call ``attempt(key)`` after each change of one of ``keys`` until it returns True; ``expire`` at the time-out.

        ``attempt`` is not called from here: try before parking. At most one of a true attempt and ``expire`` happens.
        """
        waiter = Waiter(self, tuple(keys), attempt, expire)
        for key in waiter._keys:
            self._by_key.setdefault(key, {})[waiter] = None
        waiter._timer = self._call_later(max(timeout_ms, 0), waiter._timed_out)
        return waiter

    def changed(self, key: Hashable) -> None:
        """Note that something happened to ``key``; waiters look at it in the next `settle`."""
        watches = self._watches.pop(key, None)
        if watches is not None:
            for watch in watches:
                also = watch.key_changed()
                if also is not None:
                    self._note(also)
        self._note(key)

    def _note(self, key: Hashable) -> None:
        if key in self._by_key:
            if not self._changed and not self._held and not self._settling:
                self._call_later(0, self.settle)
            self._changed[key] = None

    def watch(self, key: Hashable, watch: Watch) -> None:
        """Have ``watch`` hear of the next change of ``key``, at the moment when it is noted."""
        self._watches.setdefault(key, {})[watch] = None

    def unwatch(self, key: Hashable, watch: Watch) -> None:
        """Take a watch away that did not hear of anything yet."""
        watches = self._watches.get(key)
        if watches is not None:
            watches.pop(watch, None)
            if not watches:
                del self._watches[key]

    def hold(self) -> None:
        """Leave what is noted from now on to the coming call of `settle`."""
        self._held = True

    def settle(self) -> None:
        """Give those who wait for changed keys their attempt. What their attempts change is settled too."""
        self._held = False
        if not self._changed or self._settling:
            return
        self._settling = True
        try:
            while self._changed:
                key = next(iter(self._changed))
                del self._changed[key]
                for waiter in tuple(self._by_key.get(key, ())):
                    waiter._try(key)
        finally:
            self._settling = False

    def _remove(self, waiter: Waiter) -> None:
        if waiter._timer is not None:
            waiter._timer.cancel()
            waiter._timer = None
        for key in waiter._keys:
            waiters = self._by_key.get(key)
            if waiters is not None:
                waiters.pop(waiter, None)
                if not waiters:
                    del self._by_key[key]
