"""Watches where several of one watcher meet on a path."""

from barnabas.coordination.core.changes import Event
from barnabas.coordination.core.watches import Watches, WatchMode
from barnabas.wire.jute.opcodes import EventType, WatcherType
from barnabas.wire.jute.records import OPEN_ACL

CHILDREN_CHANGED = Event(EventType.NODE_CHILDREN_CHANGED, "/a", OPEN_ACL)
DATA_CHANGED = Event(EventType.NODE_DATA_CHANGED, "/a", OPEN_ACL)


class Receiver:
    """A connection that keeps its events."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def notify(self, event: Event) -> int:
        self.events.append(event)
        return 1


def test_a_child_watch_beside_a_recursive_one_fires_once() -> None:
    """A recursive watch does not report changed children, so nothing follows after
    the child watch has fired."""
    watches, receiver = Watches[Receiver](), Receiver()
    watches.add_persistent("/a", receiver, WatchMode.RECURSIVE)
    watches.add_children("/a", receiver)
    watches.fire([CHILDREN_CHANGED])
    watches.fire([CHILDREN_CHANGED])
    assert receiver.events == [CHILDREN_CHANGED]


def test_a_data_watch_beside_a_persistent_one_adds_no_second_event() -> None:
    """One event for one change, and the persistent watch stays."""
    watches, receiver = Watches[Receiver](), Receiver()
    watches.add_persistent("/a", receiver, WatchMode.PERSISTENT)
    watches.add_data("/a", receiver)
    watches.fire([DATA_CHANGED])
    assert receiver.events == [DATA_CHANGED]
    watches.fire([DATA_CHANGED])
    assert receiver.events == [DATA_CHANGED, DATA_CHANGED]


def test_a_removed_watcher_receives_nothing_and_leaves_no_trace() -> None:
    """All watches of a closed connection are removed, of both kinds."""
    watches, removed, stays = Watches[Receiver](), Receiver(), Receiver()
    for watcher in (removed, stays):
        watches.add_data("/a", watcher)
        watches.add_children("/a", watcher)
        watches.add_persistent("/", watcher, WatchMode.RECURSIVE)
    watches.remove_watcher(removed)
    watches.fire([DATA_CHANGED, CHILDREN_CHANGED])
    assert removed.events == []
    assert stays.events == [DATA_CHANGED, CHILDREN_CHANGED]
    watches.remove_watcher(stays)
    assert len(watches) == 0
    assert watches.counts() == (0, 0, 0)


def test_watches_of_each_kind_are_removed_alone() -> None:
    """As in ZooKeeper 3.9: DATA and CHILDREN mean watches for one event, and persistent ones
    have kinds of their own."""
    watches, receiver = Watches[Receiver](), Receiver()
    watches.add_persistent("/a", receiver, WatchMode.PERSISTENT)
    watches.add_persistent("/a", receiver, WatchMode.RECURSIVE)
    watches.add_data("/a", receiver)
    for kind in (WatcherType.DATA, WatcherType.PERSISTENT, WatcherType.PERSISTENT_RECURSIVE):
        assert watches.has("/a", receiver, kind)
        assert watches.remove("/a", receiver, kind)
        assert not watches.has("/a", receiver, kind)
        assert not watches.remove("/a", receiver, kind)
    assert not watches.remove("/a", receiver, WatcherType.CHILDREN)
    assert len(watches) == 0
    watches.fire([DATA_CHANGED])
    assert receiver.events == []
