"""delete and deleteContainer: remove a node.

    request        path  Int expected version
    transaction    path
    reply          nothing

Only the server itself uses deleteContainer: for container and TTL nodes whose time is over, if they
are still empty.

In ZooKeeper: `PrepRequestProcessor.pRequest2Txn`, `DataTree.deleteNode` and `ContainerManager`.
"""

from collections.abc import Sequence
from functools import partial
from operator import attrgetter

from barnabas.coordination.core.access import require
from barnabas.coordination.core.changes import Change
from barnabas.coordination.core.operations.base import (
    PlainValues,
    Staging,
    Stamp,
    TransactionType,
    WriteOperation,
    existing,
)
from barnabas.coordination.core.paths import SYSTEM_PATHS, parent_of
from barnabas.coordination.core.tree import Tree, View
from barnabas.coordination.core.znode import DataNode
from barnabas.wire.jute.errors import ErrorCode, KeeperError
from barnabas.wire.jute.layouts import JUTE_INT
from barnabas.wire.jute.opcodes import OpCode, Perms
from barnabas.wire.jute.records import DeleteRequest
from barnabas.wire.jute.transactions import DeleteTxn

__all__ = ["OPERATIONS", "TRANSACTIONS"]

_DELETE, _PERMISSION = OpCode.DELETE, Perms.DELETE  # to look up a member of an enum takes long


def read_request(data: bytes, offset: int) -> tuple[int, PlainValues] | None:
    """Path and expected version."""
    (path_bytes,) = JUTE_INT.unpack_from(data, offset)
    path_end = offset + 4 + path_bytes
    if path_bytes < 0:
        return None
    (expected,) = JUTE_INT.unpack_from(data, path_end)
    return path_end + 4, (data[offset + 4 : path_end].decode(), expected)


def read_transaction(data: bytes, offset: int, end: int) -> PlainValues | None:
    """The path."""
    (path_bytes,) = JUTE_INT.unpack_from(data, offset)
    if path_bytes < 0 or offset + 4 + path_bytes != end:
        return None
    return (data[offset + 4 : end].decode(),)


def _parent_of(path: str) -> str:
    if path in SYSTEM_PATHS:
        raise KeeperError(ErrorCode.BAD_ARGUMENTS, path)
    return parent_of(path)


def decide(staging: Staging, request: tuple[str, int]) -> Change:
    """The end of a node without children, below a parent that the client may change."""
    path, expected = request
    view, parent_path = staging.view, _parent_of(path)
    parent = view.get(parent_path)
    if parent is None:
        raise KeeperError(ErrorCode.NO_NODE, parent_path)
    require(parent.acl, _PERMISSION, staging.ids, path)
    node = view.get(path)
    if node is None:
        raise KeeperError(ErrorCode.NO_NODE, path)
    if expected not in (-1, node.version):
        raise KeeperError(ErrorCode.BAD_VERSION, path)
    if node.num_children:
        raise KeeperError(ErrorCode.NOT_EMPTY, path)
    return _without(_DELETE, view, staging.stamp, path, node, parent_path, parent)


def decide_container(staging: Staging, request: tuple[str, int]) -> Change:
    """The end of a node whose time is over."""
    path, _ = request
    view, parent_path = staging.view, _parent_of(path)
    node = existing(view, path)
    if node.num_children:
        raise KeeperError(ErrorCode.NOT_EMPTY, path)
    if not node.is_container and node.ttl_ms is None:
        raise KeeperError(ErrorCode.BAD_VERSION, path)
    parent = existing(view, parent_path)
    return _without(OpCode.DELETE_CONTAINER, view, staging.stamp, path, node, parent_path, parent)


def replay(txn_type: OpCode, tree: View, stamp: Stamp, transaction: tuple[str]) -> Change:
    """The change of a transaction. The parent notes the zxid, even if a fuzzy snapshot does not
    contain the node any more."""
    (path,) = transaction
    parent_path = parent_of(path)
    parent = existing(tree, parent_path)
    return _without(txn_type, tree, stamp, path, tree.get(path), parent_path, parent)


def _without(
    txn_type: OpCode,
    view: View,
    stamp: Stamp,
    path: str,
    node: DataNode | None,
    parent_path: str,
    parent: DataNode,
) -> Change:
    pzxid = max(parent.pzxid, stamp.zxid)
    left = parent.num_children - (node is not None)
    with_children = view.with_children
    parent_after = with_children(parent, parent_path, parent.cversion, pzxid, left)
    digest = parent_after.digest - parent.digest
    if node is None:
        return Change(txn_type, path, None, None, parent_path, parent_after, digest, err=ErrorCode.NO_NODE)
    return Change(txn_type, path, node, None, parent_path, parent_after, digest - node.digest, 2)


def _encode(change: Change, before: bytes, behind: bytes) -> bytes:
    path = change.path.encode()
    return b"".join((before, JUTE_INT.pack(len(path)), path, behind))


def _answer(_change: Change) -> bytes:
    return b""


_VALUES = attrgetter("path", "version")


def _values_of_transaction(record: DeleteTxn) -> PlainValues:
    return (record.path,)


def _transaction_type(txn_type: OpCode) -> TransactionType:
    return TransactionType(
        txn_type, _encode, _values_of_transaction, partial(replay, txn_type), Tree.remove_child, read_transaction
    )


TRANSACTIONS: Sequence[TransactionType] = [
    _transaction_type(OpCode.DELETE),
    _transaction_type(OpCode.DELETE_CONTAINER),
]

OPERATIONS: Sequence[WriteOperation] = [
    WriteOperation(OpCode.DELETE, DeleteRequest, _VALUES, decide, _answer, read_request),
    WriteOperation(OpCode.DELETE_CONTAINER, DeleteRequest, _VALUES, decide_container, _answer, is_internal=True),
]
