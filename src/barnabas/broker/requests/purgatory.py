"""Requests that wait for a watermark, for bytes to read or for their timeout,
whichever comes first.

Kafka's `DelayedOperationPurgatory` and its `DelayedOperation`, for all kinds of operations in one
object. Kafka's names and ours: `tryCompleteElseWatch` is `Purgatory.watch` (the caller tries first,
as it has just looked), `checkAndComplete` is `Purgatory.check_and_complete`, `onExpiration` is the
operation's ``on_expiration``, `forceComplete` is `DelayedOperation.force_complete`, and
`ActionQueue.tryCompleteActions` is `Purgatory.try_complete_actions`.

An operation names the keys (partitions, groups, anything hashable) whose change may complete it,
and a function that tries to. `check_and_complete` notes a changed key; `try_complete_actions` tries
the operations of all keys noted since. The two are apart so that the request that caused a change
is answered before those that waited for it. The dispatcher brackets each request with `hold` and
`try_complete_actions`; a change made elsewhere, by a timer for example, is handled in the next turn
of the event loop. Nothing polls. A thousand fetches may wait for one partition: they are tried in
several turns, so that their responses do not hold the loop.

Fetch sessions cover thousands of partitions, of which few change between two requests. They leave a
`KeyListener` at each partition that they need not look at: the first change removes the listener
and informs the session at once, so the session has a list of the partitions that may have changed.
A waiting request of a session has the session as its only key.
"""

import logging
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable
from typing import Literal, Protocol, get_args

from barnabas.base.clock import CallLater, Timer

__all__ = ["OPERATION_KINDS", "DelayedOperation", "KeyListener", "Purgatory"]

logger = logging.getLogger(__name__)

_ATTEMPTS_A_TURN = 64
"""Some 3 ms, if each reads and sends a record."""


_KafkaKind = Literal["Produce", "Fetch", "DeleteRecords", "ElectLeader", "topic"]
_Kind = _KafkaKind | Literal["Other"]

OPERATION_KINDS: tuple[str, ...] = get_args(_KafkaKind)
"""Kafka's names for the kinds of operations. What waits for something else here is ``Other``,
which is no name of Kafka's."""


def _is_over(_: Hashable) -> bool:
    return True


def _nothing() -> None:
    pass


class DelayedOperation:
    """One operation that waits."""

    __slots__ = ("_keys", "_kind", "_on_expiration", "_purgatory", "_timer", "_try_complete", "is_completed")

    def __init__(
        self,
        purgatory: "Purgatory",
        keys: tuple[Hashable, ...],
        try_complete: Callable[[Hashable], bool],
        on_expiration: Callable[[], None],
        kind: _Kind,
    ) -> None:
        self._purgatory = purgatory
        self._kind = kind
        self._keys = keys
        self._try_complete = try_complete
        self._on_expiration = on_expiration
        self._timer: Timer | None = None
        self.is_completed = False

    def force_complete(self) -> bool:
        """Stop waiting. Returns whether it waited until now; ``on_expiration`` is not called."""
        if self.is_completed:
            return False
        self.is_completed = True
        self._purgatory._remove(self)
        # The callbacks refer to the request, and the request to this operation. Without the cycle
        # both are freed at once, and waiting fetches leave no work for the garbage collector.
        self._try_complete = _is_over
        self._on_expiration = _nothing
        return True

    def _attempt(self, key: Hashable) -> None:
        if self.is_completed:
            return
        try:
            is_complete = self._try_complete(key)
        except Exception:
            # One broken operation must not end the others with it: it ends as its
            # timeout would end it.
            logger.exception("A delayed operation failed")
            self._expire()
            return
        if is_complete:
            self.force_complete()

    def _expire(self) -> None:
        on_expiration = self._on_expiration
        if self.force_complete():
            try:
                on_expiration()
            except Exception:
                logger.exception("The expiration of a delayed operation failed")


class KeyListener(Protocol):
    """Is informed of one change of a key."""

    def key_changed(self) -> Hashable | None:
        """The key changed.

        Returns what else changed by that, for the operations that wait there."""
        ...


class Purgatory:
    """All operations of one broker that wait."""

    __slots__ = ("_by_key", "_call_later", "_changed", "_due", "_is_held", "_is_trying", "_listeners", "sizes")

    def __init__(self, call_later: CallLater) -> None:
        self._call_later = call_later
        self._by_key: dict[Hashable, dict[DelayedOperation, None]] = {}
        self._listeners: dict[Hashable, dict[KeyListener, None]] = {}
        self._changed: dict[Hashable, None] = {}
        self._due: deque[tuple[DelayedOperation, Hashable]] = deque()
        """Operations to try, with the key that changed. What exceeds `_ATTEMPTS_A_TURN`
        is tried in the next turn."""
        self._is_trying = False
        self._is_held = False
        self.sizes: Counter[str] = Counter()
        """How many operations of each kind wait. For reading."""

    def __len__(self) -> int:
        return len({id(operation) for operations in self._by_key.values() for operation in operations})

    def watch(
        self,
        keys: Iterable[Hashable],
        try_complete: Callable[[Hashable], bool],
        on_expiration: Callable[[], None],
        timeout_ms: int,
        kind: _Kind = "Other",
    ) -> DelayedOperation:
        """Call ``try_complete(key)`` after each change of one of ``keys`` until it returns True.

        ``kind`` is of `OPERATION_KINDS`, or ``Other``. ``on_expiration`` is called at the timeout.
        Nothing is called from here: try before. At most one of ``on_expiration`` and a true
        ``try_complete`` happens.
        """
        operation = DelayedOperation(self, tuple(keys), try_complete, on_expiration, kind)
        self.sizes[kind] += 1
        for key in operation._keys:
            self._by_key.setdefault(key, {})[operation] = None
        operation._timer = self._call_later(max(timeout_ms, 0), operation._expire)
        return operation

    def check_and_complete(self, key: Hashable) -> None:
        """``key`` changed: inform its listeners now, and try its operations in the
        next `try_complete_actions`."""
        listeners = self._listeners.pop(key, None)
        if listeners is not None:
            for listener in listeners:
                also = listener.key_changed()
                if also in self._by_key:
                    self._note(also)
        if key in self._by_key:
            self._note(key)

    def _note(self, key: Hashable) -> None:
        if not self._changed and not self._is_held and not self._is_trying:
            self._call_later(0, self.try_complete_actions)
        self._changed[key] = None

    def listen(self, key: Hashable, listener: KeyListener) -> None:
        """Have ``listener`` informed of the next change of ``key``, at the moment
        when it is noted."""
        self._listeners.setdefault(key, {})[listener] = None

    def unlisten(self, key: Hashable, listener: KeyListener) -> None:
        """Remove a listener that was not informed yet."""
        listeners = self._listeners.get(key)
        if listeners is not None:
            listeners.pop(listener, None)
            if not listeners:
                del self._listeners[key]

    def hold(self) -> None:
        """Leave the keys noted from now on to the coming call of `try_complete_actions`."""
        self._is_held = True

    def try_complete_actions(self) -> None:
        """Try the operations of changed keys, and those of keys that change by that.

        What exceeds `_ATTEMPTS_A_TURN` is tried in the next turn.
        """
        self._is_held = False
        changed, due = self._changed, self._due
        if self._is_trying or not (changed or due):
            return
        self._is_trying = True
        left = _ATTEMPTS_A_TURN
        try:
            while True:
                while due:
                    if not left:
                        self._call_later(0, self.try_complete_actions)
                        return
                    left -= 1
                    operation, key = due.popleft()
                    operation._attempt(key)
                if not changed:
                    return
                key = next(iter(changed))
                del changed[key]
                for operation in self._by_key.get(key, ()):
                    due.append((operation, key))
        finally:
            self._is_trying = False

    def _remove(self, operation: DelayedOperation) -> None:
        self.sizes[operation._kind] -= 1
        if operation._timer is not None:
            operation._timer.cancel()
            operation._timer = None
        for key in operation._keys:
            operations = self._by_key.get(key)
            if operations is not None:
                operations.pop(operation, None)
                if not operations:
                    del self._by_key[key]
