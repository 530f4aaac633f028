"""create, create2, createContainer, createTTL: a new node.

    request        path  data  ACLs  Int mode  [Long ttl]
    transaction    path  data  ACLs  [bool ephemeral]  Int cversion of the parent  [Long ttl]
    reply          path  [Stat]

The name of a sequential node ends in ten digits: the number of children that its parent has ever
had, which is never used twice. The parent's cversion and pzxid change with its children.

In ZooKeeper: `PrepRequestProcessor.pRequest2TxnCreate` and `DataTree.createNode`.
"""

import struct
from collections.abc import Sequence
from functools import partial

from barnabas.coordination.core.access import checked_acl, require
from barnabas.coordination.core.changes import Change
from barnabas.coordination.core.operations.base import (
    PlainValues,
    Staging,
    Stamp,
    TransactionType,
    WriteOperation,
    existing,
    stat_of,
)
from barnabas.coordination.core.paths import checked_path, parent_of
from barnabas.coordination.core.tree import Tree, View
from barnabas.coordination.core.znode import MAX_TTL_MS, DataNode, as_int, owner_of_ttl, ttl_of_owner
from barnabas.wire.jute.codec import encode
from barnabas.wire.jute.errors import ErrorCode, KeeperError
from barnabas.wire.jute.layouts import JUTE_INT, OPEN_ACL_BYTES
from barnabas.wire.jute.opcodes import CONTAINER_OWNER, CreateMode, OpCode, Perms
from barnabas.wire.jute.records import ACL, OPEN_ACL, CreateRequest, CreateTTLRequest
from barnabas.wire.jute.transactions import CreateContainerTxn, CreateTTLTxn, CreateTxn

__all__ = ["OPERATIONS", "TRANSACTIONS"]

_MODES = {int(mode): mode for mode in CreateMode}
_ACL_BYTES = len(OPEN_ACL_BYTES)
_END = struct.Struct(">?i")
"""What follows the ACL in a transaction of create and create2: bool ephemeral, Int cversion of
the parent."""
_CREATE, _CREATE2 = OpCode.CREATE, OpCode.CREATE2
_COPIED_BYTES = 4_096
"""Up to this size of its data, the bytes of a creation are kept until it is answered."""
_GREATEST = 0x7FFFFFFF
_new = DataNode.new
_OWNED = frozenset((OpCode.CREATE_CONTAINER, OpCode.CREATE_TTL))
"""The operations whose nodes belong to the server, which deletes them: containers and TTL nodes."""

_ACLs = Sequence[ACL] | None
_Request = tuple[str, bytes | None, _ACLs, int, int, bytes]
"""Path, data, ACL, mode, the TTL or 0, and what `_head` gives."""
_Transaction = tuple[str, bytes | None, _ACLs, int, int]
"""Path, data, ACL, whether it is ephemeral (createContainer and createTTL: its owner), and the
parent's cversion."""


def _head(path: str | None, data: bytes | None, acl: _ACLs) -> bytes:
    """Path, data and ACL of a small creation that is open to all, as they stand in its request and
    in its transaction; empty for others."""
    if path is None or data is None or acl is None or len(data) > _COPIED_BYTES or tuple(acl) != OPEN_ACL:
        return b""
    encoded = path.encode()
    return b"".join((JUTE_INT.pack(len(encoded)), encoded, JUTE_INT.pack(len(data)), data, OPEN_ACL_BYTES))


def read_request(data: bytes, offset: int) -> tuple[int, PlainValues] | None:
    """Path, data, ACL, mode, no TTL and the bytes of a creation that is open to all, and whose data
    is not null."""
    (path_bytes,) = JUTE_INT.unpack_from(data, offset)
    path_end = offset + 4 + path_bytes
    (data_bytes,) = JUTE_INT.unpack_from(data, path_end)
    data_end = path_end + 4 + data_bytes
    if path_bytes < 0 or data_bytes < 0 or not data.startswith(OPEN_ACL_BYTES, data_end):
        return None
    end = data_end + _ACL_BYTES
    (mode,) = JUTE_INT.unpack_from(data, end)
    head = data[offset:end] if data_bytes <= _COPIED_BYTES else b""
    return end + 4, (data[offset + 4 : path_end].decode(), data[path_end + 4 : data_end], OPEN_ACL, mode, 0, head)


def read_transaction(data: bytes, offset: int, end: int) -> PlainValues | None:
    """Path, data, ACL, whether it is ephemeral, and cversion of the parent, for the same
    creations."""
    (path_bytes,) = JUTE_INT.unpack_from(data, offset)
    path_end = offset + 4 + path_bytes
    (data_bytes,) = JUTE_INT.unpack_from(data, path_end)
    data_end = path_end + 4 + data_bytes
    if path_bytes < 0 or data_bytes < 0 or not data.startswith(OPEN_ACL_BYTES, data_end):
        return None
    if data_end + _ACL_BYTES + _END.size != end:
        return None
    is_ephemeral, cversion = _END.unpack_from(data, data_end + _ACL_BYTES)
    return data[offset + 4 : path_end].decode(), data[path_end + 4 : data_end], OPEN_ACL, is_ephemeral, cversion


def _checked_mode(opcode: OpCode, path: str, flags: int, ttl: int, ttl_nodes: bool) -> CreateMode:
    mode = _MODES.get(flags)
    if mode is None:
        raise KeeperError(ErrorCode.BAD_ARGUMENTS, path)
    if mode.has_ttl and not ttl_nodes:
        raise KeeperError(ErrorCode.UNIMPLEMENTED, path)
    if mode.has_ttl != (opcode is OpCode.CREATE_TTL):
        raise KeeperError(ErrorCode.BAD_ARGUMENTS, path)
    if opcode is OpCode.CREATE_TTL and not 0 < ttl <= MAX_TTL_MS:
        raise KeeperError(ErrorCode.BAD_ARGUMENTS, path)
    return mode


def decide(staging: Staging, request: _Request, opcode: OpCode = _CREATE) -> Change:
    """A new node below a parent that the client may change."""
    path, data, acl, flags, ttl, head = request
    view, stamp = staging.view, staging.stamp
    is_sequential, owner = False, 0
    if flags or opcode in _OWNED:
        mode = _checked_mode(opcode, path, flags, ttl, staging.ttl_nodes)
        is_sequential = mode.is_sequential
        if opcode in _OWNED:
            owner = CONTAINER_OWNER if opcode is OpCode.CREATE_CONTAINER else owner_of_ttl(ttl)
        elif mode.is_ephemeral:
            owner = stamp.session_id
    parent_path = parent_of(path)
    if acl is not OPEN_ACL:
        acl = checked_acl(acl, staging.ids, path, staging.schemes)
    parent = view.get(parent_path)
    if parent is None:
        raise KeeperError(ErrorCode.NO_NODE, parent_path)
    if parent.acl is not OPEN_ACL:
        require(parent.acl, Perms.CREATE, staging.ids, path)
    if is_sequential:
        path, head = f"{path}{parent.cversion:010d}", b""
    checked_path(path)
    if view.get(path) is not None:
        raise KeeperError(ErrorCode.NODE_EXISTS, path)
    if parent.owner and parent.is_ephemeral:
        raise KeeperError(ErrorCode.NO_CHILDREN_FOR_EPHEMERALS, path)
    if staging.limited_tree is not None:
        staging.limited_tree.check_quota(path, len(data or b""), 1)
    cversion = parent.cversion + 1
    if cversion > _GREATEST:
        cversion = as_int(cversion)
    node = _new(path, data, acl if acl is OPEN_ACL else view.intern(acl), owner, stamp.zxid, stamp.time_ms)
    return _below(opcode, view, stamp.zxid, path, None, node, cversion, parent_path, parent, head)


def replay(txn_type: OpCode, tree: View, stamp: Stamp, transaction: _Transaction) -> Change:
    """The change of a transaction of create or create2."""
    path, data, acl, is_ephemeral, cversion = transaction
    owner = stamp.session_id if is_ephemeral else 0
    return replay_owned(txn_type, tree, stamp, (path, data, acl, owner, cversion))


def replay_owned(txn_type: OpCode, tree: View, stamp: Stamp, transaction: _Transaction) -> Change:
    """The change of a transaction that makes a node of this owner. A fuzzy snapshot may contain
    the node."""
    path, data, acl, owner, cversion = transaction
    parent_path = parent_of(path)
    parent = existing(tree, parent_path)
    if cversion == -1:
        cversion = as_int(parent.cversion + 1)
    there, interned = tree.get(path), OPEN_ACL if acl is OPEN_ACL else tree.intern(acl)
    if there is None:
        node = _new(path, data, interned, owner, stamp.zxid, stamp.time_ms)
        return _below(txn_type, tree, stamp.zxid, path, None, node, cversion, parent_path, parent)
    node = there.with_acl(path, interned, there.aversion)
    change = _below(txn_type, tree, stamp.zxid, path, there, node, cversion, parent_path, parent)
    change.err = ErrorCode.NODE_EXISTS
    return change


def _below(
    txn_type: OpCode,
    view: View,
    zxid: int,
    path: str,
    before: DataNode | None,
    node: DataNode,
    cversion: int,
    parent_path: str,
    parent: DataNode,
    head: bytes = b"",
) -> Change:
    """The change that puts a node below its parent.

    In a replay over a fuzzy snapshot the parent may be ahead of the transaction: it never goes
    back. So it stays at the greatest number behind 2**31 creations, as in ZooKeeper.
    """
    after_cversion, digest, num_children = cversion, node.digest - parent.digest, parent.num_children
    if cversion <= parent.cversion:
        after_cversion, zxid = parent.cversion, parent.pzxid
    if before is None:
        num_children += 1
    else:
        digest -= before.digest
    after = view.with_children(parent, parent_path, after_cversion, zxid, num_children)
    return Change(txn_type, path, before, node, parent_path, after, digest + after.digest, 2, cversion, 0, (), head)


def end_of_siblings(changes: Sequence[Change], start: int) -> int:
    """The end of the changes that make new nodes below one parent, from ``start`` on."""
    parent_path, end = changes[start].parent_path, start
    for end in range(start, len(changes)):
        change = changes[end]
        if change.parent_path != parent_path or change.before is not None or change.node is None:
            return end
    return end + 1


def apply_siblings(tree: Tree, changes: Sequence[Change]) -> None:
    """Put new nodes and their parent into the tree."""
    parent = changes[-1].parent
    assert parent is not None
    tree.put_children(changes[-1].parent_path, parent, changes)


def _encode(change: Change, before: bytes, behind: bytes) -> bytes:
    node, path = change.node, change.path
    assert node is not None
    data = node.data
    if node.acl is not OPEN_ACL or data is None:
        return before + encode(CreateTxn(path, data, list(node.acl), node.is_ephemeral, change.number)) + behind
    end = _END.pack(node.owner != 0, change.number)
    if change.head:
        return b"".join((before, change.head, end, behind))
    encoded = path.encode()
    return b"".join(
        (before, JUTE_INT.pack(len(encoded)), encoded, JUTE_INT.pack(len(data)), data, OPEN_ACL_BYTES, end, behind)
    )


def _encode_container(change: Change, before: bytes, behind: bytes) -> bytes:
    node = change.node
    assert node is not None
    return before + encode(CreateContainerTxn(change.path, node.data, list(node.acl), change.number)) + behind


def _encode_ttl(change: Change, before: bytes, behind: bytes) -> bytes:
    node = change.node
    assert node is not None
    ttl = ttl_of_owner(node.owner)
    assert ttl is not None
    return before + encode(CreateTTLTxn(change.path, node.data, list(node.acl), change.number, ttl)) + behind


def _answer_path(change: Change) -> bytes:
    path = change.path.encode()
    return JUTE_INT.pack(len(path)) + path


def _answer_path_and_stat(change: Change) -> bytes:
    assert change.node is not None
    return _answer_path(change) + stat_of(change.node)


def _values(request: CreateRequest) -> PlainValues:
    return request.path, request.data, request.acl, request.flags, 0, _head(request.path, request.data, request.acl)


def _values_with_ttl(request: CreateTTLRequest) -> PlainValues:
    head = _head(request.path, request.data, request.acl)
    return request.path, request.data, request.acl, request.flags, request.ttl, head


def _values_of_transaction(record: CreateTxn) -> PlainValues:
    return record.path, record.data, record.acl, record.ephemeral, record.parent_cversion


def _values_of_container(record: CreateContainerTxn) -> PlainValues:
    return record.path, record.data, record.acl, CONTAINER_OWNER, record.parent_cversion


def _values_of_ttl(record: CreateTTLTxn) -> PlainValues:
    return record.path, record.data, record.acl, owner_of_ttl(record.ttl), record.parent_cversion


def _transaction_type(txn_type: OpCode) -> TransactionType:
    if txn_type is OpCode.CREATE_CONTAINER:
        again = partial(replay_owned, txn_type)
        return TransactionType(txn_type, _encode_container, _values_of_container, again, Tree.put_child)
    if txn_type is OpCode.CREATE_TTL:
        again = partial(replay_owned, txn_type)
        return TransactionType(txn_type, _encode_ttl, _values_of_ttl, again, Tree.put_child)
    return TransactionType(
        txn_type, _encode, _values_of_transaction, partial(replay, txn_type), Tree.put_child, read_transaction
    )


_OPCODES = (OpCode.CREATE, OpCode.CREATE2, OpCode.CREATE_CONTAINER, OpCode.CREATE_TTL)

TRANSACTIONS: Sequence[TransactionType] = [_transaction_type(opcode) for opcode in _OPCODES]

OPERATIONS: Sequence[WriteOperation] = [
    WriteOperation(_CREATE, CreateRequest, _values, decide, _answer_path, read_request),
    WriteOperation(
        _CREATE2, CreateRequest, _values, partial(decide, opcode=_CREATE2), _answer_path_and_stat, read_request
    ),
    WriteOperation(
        OpCode.CREATE_CONTAINER,
        CreateRequest,
        _values,
        partial(decide, opcode=OpCode.CREATE_CONTAINER),
        _answer_path_and_stat,
        read_request,
    ),
    WriteOperation(
        OpCode.CREATE_TTL,
        CreateTTLRequest,
        _values_with_ttl,
        partial(decide, opcode=OpCode.CREATE_TTL),
        _answer_path_and_stat,
    ),
]
