"""Watches by path and by client: ZooKeeper's WatchManager.

There are two kinds: data watches (set by exists and getData) fire when the node is created, deleted
or gets new data; child watches (set by getChildren) fire when the node is deleted or its children
change. A watch is removed when it has fired, unless it is persistent (then it is of both kinds). A
recursive watch also fires for all nodes below its path, except with NODE_CHILDREN_CHANGED, which
the children's own events make redundant.

A watcher receives an event once, even if several of its watches match. The processor fires
watches when it commits the transaction, before any later reply: a client receives the event
before it can see the change.
"""

from collections.abc import Iterable, Iterator
from enum import IntFlag
from typing import Generic, Protocol, TypeVar

from barnabas.coordination.core.changes import Event, NodeDeletions
from barnabas.coordination.core.statistics import Summary
from barnabas.wire.jute.opcodes import EventType, WatcherType

__all__ = ["WatchMode", "Watcher", "Watches"]


class Watcher(Protocol):
    """The receiver of events: a connection."""

    def notify(self, event: Event) -> int:
        """Send an event, unless the receiver may not see it; the bytes sent."""
        ...


W = TypeVar("W", bound=Watcher)


class WatchMode(IntFlag):
    """How long a watch lasts and what it covers; a watcher may have several on a path."""

    ONCE = 1
    PERSISTENT = 2
    RECURSIVE = 4


_MODES = {
    WatcherType.CHILDREN: WatchMode.ONCE,
    WatcherType.DATA: WatchMode.ONCE,
    WatcherType.ANY: None,
    WatcherType.PERSISTENT: WatchMode.PERSISTENT,
    WatcherType.PERSISTENT_RECURSIVE: WatchMode.RECURSIVE,
}
"""Which watches a kind means; None for all. Before ZooKeeper 3.9, the first two also
meant persistent watches."""


class _Table(Generic[W]):
    """Watches of one kind, by path and by watcher."""

    __slots__ = ("by_path", "by_watcher", "count", "recursive")

    def __init__(self) -> None:
        self.by_path: dict[str, dict[W, WatchMode]] = {}
        self.by_watcher: dict[W, set[str]] = {}
        self.count = 0  # of all watchers of all paths
        self.recursive = 0  # their number: without one, the paths above need no look

    def add(self, path: str, watcher: W, mode: WatchMode) -> None:
        watchers = self.by_path.get(path)
        if watchers is None:
            self.by_path[path] = {watcher: mode}
            before = None
            self.count += 1
        else:
            before = watchers.get(watcher)
            self.count += before is None
            # Operations on flags are slow, and most watches are the only one of their watcher.
            watchers[watcher] = mode if before is None or before is mode else before | mode
        if mode is WatchMode.RECURSIVE and (before is None or not before & WatchMode.RECURSIVE):
            self.recursive += 1
        paths = self.by_watcher.get(watcher)
        if paths is None:
            self.by_watcher[watcher] = {path}
        else:
            paths.add(path)

    def remove(self, path: str, watcher: W, mode: WatchMode | None = None) -> bool:
        """Remove the watches of a mode, or of all; whether there were any."""
        watchers = self.by_path.get(path)
        before = watchers.get(watcher) if watchers is not None else None
        if watchers is None or before is None or (mode is not None and not before & mode):
            return False
        if before & WatchMode.RECURSIVE and mode in (None, WatchMode.RECURSIVE):
            self.recursive -= 1
        if mode is not None and before is not mode:
            watchers[watcher] = before & ~mode
            return True
        del watchers[watcher]
        self.count -= 1
        if not watchers:
            del self.by_path[path]
        paths = self.by_watcher[watcher]
        paths.discard(path)
        if not paths:
            del self.by_watcher[watcher]
        return True

    def remove_watcher(self, watcher: W) -> None:
        for path in self.by_watcher.pop(watcher, ()):
            watchers = self.by_path[path]
            mode = watchers.pop(watcher)
            self.count -= 1
            if mode is not WatchMode.ONCE and mode & WatchMode.RECURSIVE:
                self.recursive -= 1
            if not watchers:
                del self.by_path[path]

    def has(self, path: str, watcher: W, mode: WatchMode | None) -> bool:
        before = self.by_path.get(path, {}).get(watcher)
        return before is not None and (mode is None or bool(before & mode))

    def fire(self, event_type: EventType, path: str, receivers: dict[W, None]) -> None:
        """Add the watchers of the event to ``receivers``, and remove their watches
        for one event."""
        watchers = self.by_path.get(path)
        if watchers is not None:
            for watcher, mode in list(watchers.items()):
                if mode is WatchMode.ONCE:
                    receivers[watcher] = None
                    self.remove(path, watcher)
                    continue
                if mode & (WatchMode.ONCE | WatchMode.PERSISTENT) or event_type != EventType.NODE_CHILDREN_CHANGED:
                    receivers[watcher] = None
                if mode & WatchMode.ONCE:
                    watchers[watcher] = mode & ~WatchMode.ONCE
        if self.recursive and event_type != EventType.NODE_CHILDREN_CHANGED:
            above = path
            while above != "/":
                above = above[: above.rfind("/")] or "/"
                for watcher, mode in self.by_path.get(above, {}).items():
                    if mode & WatchMode.RECURSIVE:
                        receivers[watcher] = None


class Watches(Generic[W]):
    """All watches of a server."""

    __slots__ = ("_children", "_data", "fired", "on_children", "on_data")

    def __init__(self) -> None:
        self.fired: dict[EventType, Summary] = {}
        """How many watchers the events of each type had."""
        self._data: _Table[W] = _Table()
        self._children: _Table[W] = _Table()
        self.on_data = self._data.by_path
        self.on_children = self._children.by_path
        """What is watched, by path: empty where nothing is."""

    def add_data(self, path: str, watcher: W) -> None:
        self._data.add(path, watcher, WatchMode.ONCE)

    def add_children(self, path: str, watcher: W) -> None:
        self._children.add(path, watcher, WatchMode.ONCE)

    def add_persistent(self, path: str, watcher: W, mode: WatchMode) -> None:
        """Add a persistent watch of both kinds."""
        self._data.add(path, watcher, mode)
        self._children.add(path, watcher, mode)

    def remove(self, path: str, watcher: W, kind: WatcherType) -> bool:
        """Remove the watcher's watches of a kind from a path; whether there were any."""
        removed = [table.remove(path, watcher, _MODES[kind]) for table in self._tables(kind)]
        return any(removed)

    def _tables(self, kind: WatcherType) -> "tuple[_Table[W], ...]":
        if kind is WatcherType.DATA:
            return (self._data,)
        return (self._children,) if kind is WatcherType.CHILDREN else (self._data, self._children)

    def remove_watcher(self, watcher: W) -> None:
        """Remove all watches of a closed connection."""
        self._data.remove_watcher(watcher)
        self._children.remove_watcher(watcher)

    def has(self, path: str, watcher: W, kind: WatcherType) -> bool:
        """Whether the watcher has a watch of a kind on the path."""
        return any(table.has(path, watcher, _MODES[kind]) for table in self._tables(kind))

    def may_fire(self, path: str, parent_path: str) -> bool:
        """Whether a change of the node, or of its parent's children, may have watchers."""
        data, children = self._data, self._children
        on_data, on_children = data.by_path, children.by_path
        if not on_data and not on_children:
            return False
        return (
            path in on_data
            or path in on_children
            or parent_path in on_children
            or data.recursive > 0
            or children.recursive > 0
        )

    def fire(self, events: Iterable[Event | NodeDeletions]) -> tuple[int, int]:
        """Notify the watchers of a transaction's events, in order; how many events
        were sent, and their bytes."""
        data, children = self._data, self._children
        sent = sent_bytes = 0
        on_data, on_children = data.by_path, children.by_path
        if not on_data and not on_children:
            return 0, 0
        for event in self._each(events):
            if (
                event.path not in on_data
                and event.path not in on_children
                and not (data.recursive or children.recursive)
            ):
                continue
            receivers: dict[W, None] = {}
            if event.type != EventType.NODE_CHILDREN_CHANGED:
                data.fire(event.type, event.path, receivers)
            if event.type in (EventType.NODE_CHILDREN_CHANGED, EventType.NODE_DELETED):
                children.fire(event.type, event.path, receivers)
            if receivers:
                self.fired.setdefault(event.type, Summary()).add(len(receivers))
                for watcher in receivers:
                    if size_bytes := watcher.notify(event):
                        sent += 1
                        sent_bytes += size_bytes
        return sent, sent_bytes

    def _each(self, events: Iterable[Event | NodeDeletions]) -> Iterator[Event]:
        for event in events:
            if isinstance(event, Event):
                yield event
            else:
                yield from event.events(self.may_fire)

    def counts(self) -> tuple[int, int, int]:
        """The numbers of watchers, watched paths and watches."""
        data, children = self._data, self._children
        in_both = len(data.by_watcher.keys() & children.by_watcher.keys())
        watchers = len(data.by_watcher) + len(children.by_watcher) - in_both
        in_both = len(data.by_path.keys() & children.by_path.keys())
        return watchers, len(data.by_path) + len(children.by_path) - in_both, len(self)

    def __len__(self) -> int:
        return self._data.count + self._children.count

    def paths(self) -> list[str]:
        """All that is watched, each once."""
        on_data = self._data.by_path
        return [*on_data, *(path for path in self._children.by_path if path not in on_data)]

    def watchers_of(self, path: str) -> list[W]:
        """The watchers of a path, each once."""
        return list(self._data.by_path.get(path, {}) | self._children.by_path.get(path, {}))
