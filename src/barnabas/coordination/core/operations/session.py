"""createSession and closeSession: the transactions that begin and end a session.

closeSession lists the session's ephemerals, with those whose creation is not committed yet. They
are deleted, and their watches fire, in the order of the list. This is the order of a Java HashSet,
as in ZooKeeper: by hash codes and then by creation. The order has no meaning, so a session with
very many gets the cheapest one, the order of creation.

In ZooKeeper: `PrepRequestProcessor.pRequest2Txn` and `DataTree.killSession`.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

from barnabas.coordination.core.changes import Change, SessionChange, refused_change
from barnabas.coordination.core.operations.base import PlainValues, Staging, Stamp, TransactionType, WriteOperation
from barnabas.coordination.core.staged import Staged
from barnabas.coordination.core.tree import Tree, View, WholeView
from barnabas.wire.jute.codec import encode
from barnabas.wire.jute.opcodes import OpCode
from barnabas.wire.jute.transactions import CloseSessionTxn, CreateSessionTxn, ErrorTxn

__all__ = ["OPERATIONS", "TRANSACTIONS"]

_MAX_HASHED = 1000
"""A hash code takes some 4 microseconds."""
_MAX_HASHED_CHARACTERS = 40_000
"""A path may be as long as a packet."""


def decide_begin(staging: Staging, request: tuple[int]) -> Change:
    """A session begins."""
    return _begun(staging.stamp, *request)


def replay_begin(_tree: View, stamp: Stamp, transaction: tuple[int]) -> Change:
    """A session begins."""
    return _begun(stamp, *transaction)


def _begun(stamp: Stamp, timeout_ms: int) -> Change:
    return SessionChange(OpCode.CREATE_SESSION, session_id=stamp.session_id, timeout_ms=timeout_ms)


def decide_end(staging: Staging, _request: PlainValues) -> Change:
    """A session ends with all its ephemerals."""
    view, stamp = staging.view, staging.stamp
    assert isinstance(view, Staged)  # a session does not end in a multi
    paths = view.ephemerals_of(stamp.session_id)
    if len(paths) < 2:
        return _ended(view, stamp, list(paths))
    is_short = len(paths) <= _MAX_HASHED and sum(map(len, paths)) <= _MAX_HASHED_CHARACTERS
    in_order = _in_hash_order(_in_order_of_creation(view, paths)) if is_short else list(paths)
    return _ended(view, stamp, in_order)


def _in_order_of_creation(view: WholeView, paths: Iterable[str]) -> list[str]:
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
        # utf-16 begins with a byte order mark and has the machine's byte order, as
        # cast("H") expects.
        for unit in memoryview(text.encode("utf-16", "surrogatepass"))[2:].cast("H"):
            code = (31 * code + unit) & 0xFFFFFFFF
        return (code ^ code >> 16) & buckets - 1

    return sorted(texts, key=bucket)


def replay_end(tree: WholeView, stamp: Stamp, transaction: tuple[list[str]]) -> Change:
    """A session ends with the ephemerals that its transaction lists."""
    return _ended(tree, stamp, *transaction)


def _ended(view: WholeView, stamp: Stamp, listed: list[str]) -> Change:
    """Delete the session's nodes. Each parent changes once, however many children it loses: what
    remains is the same."""
    paths = list(listed)
    # Ephemerals that an older log does not list, or that only a fuzzy snapshot contains.
    paths += sorted(view.ephemerals_of(stamp.session_id).keys() - paths)
    nodes = {path: node for path, node in zip(paths, view.get_all(paths), strict=True) if node is not None}
    lost = dict.fromkeys(_parents_of(paths), 0)
    lost.update(Counter(_parents_of(nodes)))
    parents: list[Change] = []
    missing: set[str] = set()
    digest = 0
    for parent_path, count in lost.items():
        parent = view.get(parent_path)
        if parent is None:  # in a replay over a fuzzy snapshot
            missing.add(parent_path)
            continue
        pzxid, left = max(stamp.zxid, parent.pzxid), parent.num_children - count
        after = view.with_children(parent, parent_path, parent.cversion, pzxid, left)
        digest += after.digest - parent.digest
        parents.append(Change(OpCode.CLOSE_SESSION, parent_path, parent, after))
    if missing:
        nodes = {path: node for path, node in nodes.items() if (path[: path.rfind("/")] or "/") not in missing}
    digest -= sum([node.digest for node in nodes.values()])
    return SessionChange(
        OpCode.CLOSE_SESSION,
        digest=digest,
        count=len(parents) + len(nodes),
        parts=parents,
        session_id=stamp.session_id,
        paths=listed,
        gone=nodes,
    )


def _parents_of(paths: Iterable[str]) -> list[str]:
    return [path[: path.rfind("/")] or "/" for path in paths]


def _apply_begin(_tree: Tree, _change: Change) -> None:
    """No node changes."""


def _apply_end(tree: Tree, change: Change) -> None:
    """Put the parents into the tree, and take the nodes out of it."""
    assert isinstance(change, SessionChange)
    for parent in change.parts:
        assert parent.node is not None
        tree.put_without_data(parent.path, parent.node)
    tree.remove_all(list(change.gone))


def replay_error(_tree: View, _stamp: Stamp, transaction: tuple[int]) -> Change:
    """A request was refused."""
    return refused_change(*transaction)


def _apply_error(_tree: Tree, _change: Change) -> None:
    """Nothing changes."""


def _encode_begin(change: Change, before: bytes, behind: bytes) -> bytes:
    assert isinstance(change, SessionChange)
    return before + encode(CreateSessionTxn(change.timeout_ms)) + behind


def _encode_end(change: Change, before: bytes, behind: bytes) -> bytes:
    assert isinstance(change, SessionChange)
    return before + encode(CloseSessionTxn(change.paths)) + behind


def _encode_error(change: Change, before: bytes, behind: bytes) -> bytes:
    return before + encode(ErrorTxn(change.err)) + behind


def _values_of_begin(record: CreateSessionTxn) -> PlainValues:
    return (record.timeout_ms,)


def _values_of_end(record: CloseSessionTxn | None) -> PlainValues:
    return (record.paths_to_delete if record is not None else [],)


def _values_of_error(record: ErrorTxn) -> PlainValues:
    return (record.err,)


def _no_values(_request: None) -> PlainValues:
    return ()


def _no_answer(_change: Change) -> bytes:
    return b""


TRANSACTIONS: Sequence[TransactionType] = [
    TransactionType(OpCode.CREATE_SESSION, _encode_begin, _values_of_begin, replay_begin, _apply_begin),
    TransactionType(OpCode.CLOSE_SESSION, _encode_end, _values_of_end, replay_end, _apply_end),
    TransactionType(OpCode.ERROR, _encode_error, _values_of_error, replay_error, _apply_error),
]

OPERATIONS: Sequence[WriteOperation] = [
    WriteOperation(OpCode.CREATE_SESSION, None, _values_of_begin, decide_begin, _no_answer, is_internal=True),
    WriteOperation(OpCode.CLOSE_SESSION, None, _no_values, decide_end, _no_answer),
]
