"""createSession and closeSession: the transactions that begin and end a session.

closeSession lists the session's ephemerals, with those whose creation is not committed yet. They are deleted, and their
watches fire, in the order of the list: that of a Java HashSet, as in ZooKeeper, by hash codes and then by creation. The
order has no meaning, so a session with very many gets the one that costs least, that of creation.

In ZooKeeper: `PrepRequestProcessor.pRequest2Txn` and `DataTree.killSession`.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

from barnabas.coordination.core.operations.base import (
    Apply,
    Outcome,
    Staging,
    Stamp,
    WriteOperation,
    deciding,
)
from barnabas.coordination.core.tree import Event, Events, NodeDeletions, View
from barnabas.wire.jute.opcodes import EventType, OpCode
from barnabas.wire.jute.transactions import CloseSessionTxn, CreateSessionTxn, ErrorTxn

__all__ = ["APPLY", "OPERATIONS"]

_MAX_HASHED = 1000
"""A hash code takes some 4 microseconds."""
_MAX_HASHED_CHARACTERS = 40_000
"""A path may be as long as a packet."""


def _decide_create(_staging: Staging, txn: CreateSessionTxn) -> tuple[int, CreateSessionTxn]:
    return OpCode.CREATE_SESSION, txn


def _apply_create(_view: View, _stamp: Stamp, _txn: CreateSessionTxn, _events: Events) -> Outcome:
    return Outcome(OpCode.CREATE_SESSION)


def _decide_close(staging: Staging, _request: None) -> tuple[int, CloseSessionTxn]:
    view = staging.view
    paths = view.ephemerals_of(staging.stamp.session_id)
    if len(paths) < 2:
        return OpCode.CLOSE_SESSION, CloseSessionTxn(list(paths))
    is_short = len(paths) <= _MAX_HASHED and sum(map(len, paths)) <= _MAX_HASHED_CHARACTERS
    in_order = _in_hash_order(_in_order_of_creation(view, paths)) if is_short else list(paths)
    return OpCode.CLOSE_SESSION, CloseSessionTxn(in_order)


def _in_order_of_creation(view: View, paths: Iterable[str]) -> list[str]:
    """By transactions, and by paths for those of the same multi."""
    listed = list(paths)
    zxids = [node.czxid for node in view.get_all(listed) if node is not None]
    by_zxid = dict(zip(zxids, listed, strict=True))
    if len(by_zxid) == len(listed):
        return [by_zxid[zxid] for zxid in sorted(by_zxid)]
    return [path for _, path in sorted(zip(zxids, listed, strict=True))]


def _in_hash_order(texts: list[str]) -> list[str]:
    """The order in which Java iterates over a HashSet that was made of these texts."""
    buckets = 16
    while buckets < int(len(texts) / 0.75) + 1:
        buckets *= 2

    def bucket(text: str) -> int:
        code = 0
        # utf-16 begins with a byte order mark and has the machine's byte order, as cast("H") expects.
        for unit in memoryview(text.encode("utf-16", "surrogatepass"))[2:].cast("H"):
            code = (31 * code + unit) & 0xFFFFFFFF
        return (code ^ code >> 16) & buckets - 1

    return sorted(texts, key=bucket)


def _apply_close(view: View, stamp: Stamp, txn: CloseSessionTxn | None, events: Events) -> Outcome:
    """Delete the session's nodes. Each parent changes once, however many children it loses: what remains is the same."""
    paths = list(txn.paths_to_delete) if txn is not None else []
    # Ephemerals that an older log does not list, or that only a fuzzy snapshot contains.
    paths += sorted(view.ephemerals_of(stamp.session_id).keys() - paths)
    found = view.get_all(paths)
    nodes = dict(zip(paths, found, strict=True))
    if None in found:  # in a replay some may be deleted already
        nodes = {path: node for path, node in nodes.items() if node is not None}
    lost = dict.fromkeys(_parents_of(paths), 0)
    lost.update(Counter(_parents_of(nodes)))
    changed: dict[str, Event] = {}
    for parent_path, count in lost.items():
        parent = view.get(parent_path)
        if parent is not None:
            pzxid, left = max(stamp.zxid, parent.pzxid), parent.num_children - count
            view.put(parent_path, parent.with_children(parent_path, parent.cversion, pzxid, left))
            changed[parent_path] = Event(EventType.NODE_CHILDREN_CHANGED, parent_path, parent.acl)
    gone = list(nodes)
    if len(changed) < len(lost):
        gone = [path for path in gone if (path[: path.rfind("/")] or "/") in changed]
    view.remove_all(gone)
    acls = [node.acl for path in gone if (node := nodes[path]) is not None]
    events.append(NodeDeletions(gone, acls, changed))
    return Outcome(OpCode.CLOSE_SESSION)


def _parents_of(paths: Iterable[str]) -> list[str]:
    return [path[: path.rfind("/")] or "/" for path in paths]


def _apply_error(_view: View, _stamp: Stamp, txn: ErrorTxn, _events: Events) -> Outcome:
    return Outcome(OpCode.ERROR, err=txn.err)


APPLY: dict[int, Apply] = {
    OpCode.CREATE_SESSION: _apply_create,
    OpCode.CLOSE_SESSION: _apply_close,
    OpCode.ERROR: _apply_error,
}

OPERATIONS: Sequence[WriteOperation] = [
    WriteOperation(OpCode.CREATE_SESSION, None, deciding(_decide_create, _apply_create), lambda _: None),
    WriteOperation(OpCode.CLOSE_SESSION, None, deciding(_decide_close, _apply_close), lambda _: None),
]
