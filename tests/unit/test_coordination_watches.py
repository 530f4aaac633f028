"""Watches where several of one watcher meet on a path."""

from barnabas.coordination.core.tree import Event
from barnabas.coordination.core.watches import Watches, WatchMode
from barnabas.wire.jute.opcodes import EventType
from barnabas.wire.jute.records import OPEN_ACL

CHILDREN_CHANGED = Event(EventType.NODE_CHILDREN_CHANGED, "/a", OPEN_ACL)
DATA_CHANGED = Event(EventType.NODE_DATA_CHANGED, "/a", OPEN_ACL)


class Hearer:
    """A connection that remembers what it was told."""

    def __init__(self) -> None:
        self.heard: list[Event] = []

    def notify(self, event: Event) -> None:
        self.heard.append(event)


def test_a_child_watch_beside_a_recursive_one_fires_once() -> None:
    """A recursive watch hears nothing of changed children, so when the child watch has fired there is silence."""
    watches, hearer = Watches[Hearer](), Hearer()
    watches.add_persistent("/a", hearer, WatchMode.RECURSIVE)
    watches.add_children("/a", hearer)
    watches.fire([CHILDREN_CHANGED])
    watches.fire([CHILDREN_CHANGED])
    assert hearer.heard == [CHILDREN_CHANGED]


def test_a_data_watch_beside_a_persistent_one_adds_no_second_event() -> None:
    """One event for one change, and the persistent watch stays."""
    watches, hearer = Watches[Hearer](), Hearer()
    watches.add_persistent("/a", hearer, WatchMode.PERSISTENT)
    watches.add_data("/a", hearer)
    watches.fire([DATA_CHANGED])
    assert hearer.heard == [DATA_CHANGED]
    watches.fire([DATA_CHANGED])
    assert hearer.heard == [DATA_CHANGED, DATA_CHANGED]


def test_a_watcher_that_left_is_told_nothing_and_leaves_no_trace() -> None:
    """All watches of a closed connection go, of both kinds."""
    watches, gone, stays = Watches[Hearer](), Hearer(), Hearer()
    for watcher in (gone, stays):
        watches.add_data("/a", watcher)
        watches.add_children("/a", watcher)
        watches.add_persistent("/", watcher, WatchMode.RECURSIVE)
    watches.remove_watcher(gone)
    watches.fire([DATA_CHANGED, CHILDREN_CHANGED])
    assert gone.heard == []
    assert stays.heard == [DATA_CHANGED, CHILDREN_CHANGED]
    watches.remove_watcher(stays)
    assert len(watches) == 0
    assert watches.counts() == (0, 0, 0)
