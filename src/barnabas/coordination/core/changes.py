"""What a transaction changes, as a value: ZooKeeper's ChangeRecord, with what watches and the
answer need of it.

    decide(...) ──> Change ──> staged, logged, acknowledged ──┐
                                                              ├──> apply(tree, change)
    replay(...) ──> Change ───────────────────────────────────┘      ──> watches, figures, answer

`replay` reads a log, or gets its transactions from the leader.

An operation decides a change once, or reads it from a transaction, and applies it. All else follows
from the change: the transaction's record, the events, the figures and the answer.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from barnabas.coordination.core.znode import DataNode
from barnabas.wire.jute.opcodes import EventType, OpCode
from barnabas.wire.jute.records import ACL

__all__ = ["Change", "Event", "MultiChange", "NodeDeletions", "SessionChange", "events_of", "refused_change"]


@dataclass(slots=True, eq=False)
class Change:
    """What a transaction, or a part of one, does to a node and to its parent."""

    type: int
    """The transaction's, or the part's."""
    path: str = ""
    before: DataNode | None = None
    """The node before it; None: there was none."""
    node: DataNode | None = None
    """The node after it; None: there is none."""
    parent_path: str = ""
    parent: DataNode | None = None
    """The parent after it; None, and no path, where the parent stays as it is."""
    digest: int = 0
    """What is added to the digest of the tree."""
    count: int = 0
    """How many nodes it changes: ZooKeeper's number of change records."""
    number: int = 0
    """What the transaction names: the version that data or an ACL gets or was checked for, the
    cversion of a new node's parent."""
    err: int = 0
    """Why nothing was changed; in a replay over a fuzzy snapshot, why not all of it."""
    parts: "Sequence[Change]" = ()
    """The changes of a multi; for the end of a session, what happens to the parents of its
    nodes."""
    head: bytes = b""
    """Path, data and ACL of a creation as received, if its transaction begins with them."""

    @property
    def is_failed(self) -> bool:
        """Whether it is a multi of which a part was refused, so that none happens."""
        return self.err != 0 and any(part.type == OpCode.ERROR for part in self.parts)


@dataclass(slots=True, eq=False)
class MultiChange(Change):
    """A multi of which all parts happen."""

    latest: dict[str, Change] = field(default_factory=dict)
    """The last part that changes each path, as that of a node or of a parent."""
    owned: list[Change] = field(default_factory=list)
    """The parts that make a node which belongs to a session or to the server."""


@dataclass(slots=True, eq=False)
class SessionChange(Change):
    """The begin or the end of a session."""

    session_id: int = 0
    timeout_ms: int = 0
    """The timeout of a session that begins."""
    paths: list[str] = field(default_factory=list)
    """The ephemerals that the transaction lists."""
    gone: dict[str, DataNode] = field(default_factory=dict)
    """The nodes that are deleted."""


def refused_change(code: int) -> Change:
    """The change of a request that is refused: it takes a zxid, and goes through the log as an
    error."""
    return Change(OpCode.ERROR, err=code)


class Event(NamedTuple):
    """A change that watches report: data watches, child watches, or (for a deletion) both."""

    type: EventType
    path: str
    acl: tuple[ACL, ...]
    """The node's ACL: only clients that may read the node receive the event."""


class NodeDeletions:
    """The events of many nodes that are deleted together: for each one of its own, and one of its
    parent.

    They are made for nodes alone that have watchers, when they fire: the end of a session may
    delete tens of thousands.
    """

    __slots__ = ("_nodes", "_parents")

    def __init__(self, nodes: dict[str, DataNode], parents: Iterable[Change]) -> None:
        """``parents`` are the changes of the parents of all these nodes."""
        self._nodes = nodes
        self._parents = parents

    def events(self, is_watched: Callable[[str, str], bool]) -> Iterator[Event]:
        """The events for which ``is_watched(path, path of the parent)`` holds."""
        parents = {parent.path: parent.node for parent in self._parents}
        for path, node in self._nodes.items():
            parent_path = path[: path.rfind("/")] or "/"
            if is_watched(path, parent_path):
                yield Event(EventType.NODE_DELETED, path, node.acl)
                parent = parents[parent_path]
                assert parent is not None
                yield Event(EventType.NODE_CHILDREN_CHANGED, parent_path, parent.acl)


_DATA_CHANGED = frozenset((OpCode.SET_DATA, OpCode.RECONFIG))


def events_of(change: Change) -> Iterator[Event | NodeDeletions]:
    """What watches report of a committed change, in order."""
    if change.type == OpCode.MULTI:
        for part in () if change.is_failed else change.parts:
            yield from events_of(part)
    elif isinstance(change, SessionChange):
        yield NodeDeletions(change.gone, change.parts)
    elif change.err:
        return
    elif change.parent is not None:
        shown, kind = change.node, EventType.NODE_CREATED
        if shown is None:
            shown, kind = change.before, EventType.NODE_DELETED
        assert shown is not None
        yield Event(kind, change.path, shown.acl)
        yield Event(EventType.NODE_CHILDREN_CHANGED, change.parent_path, change.parent.acl)
    elif change.node is not None and change.type in _DATA_CHANGED:
        yield Event(EventType.NODE_DATA_CHANGED, change.path, change.node.acl)
