"""Deadlines by key, made for deadlines that are mostly postponed.

A heartbeat postpones its member's deadline and nothing expires: that must cost no more than an
assignment. So a key has one entry in the heap, and postponing its deadline leaves the entry where
it is. When the entry comes up, it is put back with the deadline that holds by then.

In Kafka: `DelayedOperationPurgatory` on the timing wheel `SystemTimer`.
"""

import heapq
from collections.abc import Hashable
from typing import Generic, TypeVar

__all__ = ["Timers"]

Key = TypeVar("Key", bound=Hashable)


class _Deadline(Generic[Key]):
    __slots__ = ("at_ms", "key", "queued_ms")

    def __init__(self, key: Key, at_ms: int) -> None:
        self.key = key
        self.at_ms = at_ms
        self.queued_ms = at_ms


class Timers(Generic[Key]):
    """A set of keys with a deadline each, in milliseconds of the caller's clock."""

    __slots__ = ("_by_key", "_heap", "_pushed")

    def __init__(self) -> None:
        self._by_key: dict[Key, _Deadline[Key]] = {}
        self._heap: list[tuple[int, int, _Deadline[Key]]] = []
        self._pushed = 0  # breaks ties in the heap in the order of setting

    def __len__(self) -> int:
        return len(self._by_key)

    def __contains__(self, key: Key) -> bool:
        return key in self._by_key

    def set(self, key: Key, at_ms: int) -> None:
        """Give ``key`` a deadline, in place of the one it had."""
        deadline = self._by_key.get(key)
        if deadline is not None:
            if at_ms >= deadline.queued_ms:
                deadline.at_ms = at_ms
                return
            deadline.at_ms = -1  # the entry in the heap is dead
        self._push(key, at_ms)

    def cancel(self, key: Key) -> None:
        """Forget ``key``; one without a deadline is fine."""
        deadline = self._by_key.pop(key, None)
        if deadline is not None:
            deadline.at_ms = -1
            # Cancelled entries leave the heap when their time comes, or when they are most of it.
            if len(self._heap) > 64 and len(self._heap) > 4 * len(self._by_key):
                self._heap = [entry for entry in self._heap if entry[2].at_ms >= 0]
                heapq.heapify(self._heap)

    def next_ms(self) -> int | None:
        """When to look next: no deadline is earlier, and it may turn out that none is due."""
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now_ms: int) -> Key | None:
        """Take one key whose deadline has come, the earliest first; None when none is due."""
        heap = self._heap
        while heap and heap[0][0] <= now_ms:
            deadline = heapq.heappop(heap)[2]
            if deadline.at_ms < 0:
                continue
            if deadline.at_ms > deadline.queued_ms:
                deadline.queued_ms = deadline.at_ms
                self._pushed += 1
                heapq.heappush(heap, (deadline.at_ms, self._pushed, deadline))
                continue
            del self._by_key[deadline.key]
            return deadline.key
        return None

    def _push(self, key: Key, at_ms: int) -> None:
        deadline = _Deadline(key, at_ms)
        self._by_key[key] = deadline
        self._pushed += 1
        heapq.heappush(self._heap, (at_ms, self._pushed, deadline))
