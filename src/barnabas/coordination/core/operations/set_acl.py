"""setACL: a new access control list, if the ACL version is the one expected.

In ZooKeeper: `PrepRequestProcessor.pRequest2Txn` and `DataTree.setACL`.
"""

from collections.abc import Sequence
from operator import attrgetter

from barnabas.coordination.core.access import checked_acl, require
from barnabas.coordination.core.changes import Change
from barnabas.coordination.core.operations.base import (
    Staging,
    Stamp,
    TransactionType,
    WriteOperation,
    checked_version,
    existing,
    stat_of,
)
from barnabas.coordination.core.paths import checked_path
from barnabas.coordination.core.tree import Tree, View
from barnabas.coordination.core.znode import DataNode
from barnabas.wire.jute.codec import encode
from barnabas.wire.jute.opcodes import OpCode, Perms
from barnabas.wire.jute.records import ACL, SetACLRequest
from barnabas.wire.jute.transactions import SetACLTxn

__all__ = ["OPERATIONS", "TRANSACTIONS"]

_Values = tuple[str, list[ACL] | None, int]
"""Path, ACL, and the version that is expected or, in a transaction, made."""


def decide(staging: Staging, request: _Values) -> Change:
    """A new list for a node that the client may administer."""
    path, acl, expected = request
    checked_path(path)
    checked = checked_acl(acl, staging.ids, path, staging.schemes)
    node = existing(staging.view, path)
    require(node.acl, Perms.ADMIN, staging.ids, path)
    return _with_acl(staging.view, path, node, checked, checked_version(node.aversion, expected, path))


def replay(tree: View, _stamp: Stamp, transaction: _Values) -> Change:
    """The change of a transaction."""
    path, acl, version = transaction
    return _with_acl(tree, path, existing(tree, path), acl, version)


def _with_acl(view: View, path: str, before: DataNode, acl: Sequence[ACL] | None, version: int) -> Change:
    node = before.with_acl(path, view.intern(acl), version)
    return Change(OpCode.SET_ACL, path, before, node, "", None, node.digest - before.digest, 1, version)


def apply(tree: Tree, change: Change) -> None:
    """Put the node with its new list into the tree."""
    assert change.node is not None
    tree.put_without_data(change.path, change.node)


def _encode(change: Change, before: bytes, behind: bytes) -> bytes:
    assert change.node is not None
    return before + encode(SetACLTxn(change.path, list(change.node.acl), change.number)) + behind


def _answer(change: Change) -> bytes:
    assert change.node is not None
    return stat_of(change.node)


_VALUES = attrgetter("path", "acl", "version")

TRANSACTIONS: Sequence[TransactionType] = [TransactionType(OpCode.SET_ACL, _encode, _VALUES, replay, apply)]

OPERATIONS: Sequence[WriteOperation] = [WriteOperation(OpCode.SET_ACL, SetACLRequest, _VALUES, decide, _answer)]
