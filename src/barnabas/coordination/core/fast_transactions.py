"""The fast path of the common transactions on a learner: what a leader has decided by `FastWrites`, or as it would.

The general path decodes a transaction into objects and applies it with the operations (`Database.apply`). Here create, create2,
setData and delete of persistent nodes that are open to all go from their bytes to the tree:

    TxnHeader  path  data  ACLs  bool ephemeral  Int cversion of the parent  TxnDigest       create
    TxnHeader  path  data  Int version                                       TxnDigest       setData
    TxnHeader  path                                                          TxnDigest       delete

Whatever is not exactly this, or does not fit the tree (as behind a fuzzy snapshot), is left as it was to the general path. A test
compares both.

In ZooKeeper: `DataTree.processTxn`, for these cases.
"""

import struct

from barnabas.coordination.core.database import Database
from barnabas.coordination.core.operations.base import Outcome
from barnabas.coordination.core.znode import DIGEST_VERSION, DataNode
from barnabas.wire.jute.opcodes import OpCode
from barnabas.wire.jute.records import OPEN_ACL
from barnabas.wire.jute.transactions import TxnHeader

__all__ = ["apply_fast"]

_INT = struct.Struct(">i")
_HEADER = struct.Struct(">qiqqi")
_CREATE_END = struct.Struct(">iii5si6s?iiq")
_SET_END = struct.Struct(">iiq")
_DELETE_END = struct.Struct(">iq")
_OPEN_TO_ALL = (1, 31, 5, b"world", 6, b"anyone", False)
_SYSTEM = "/zookeeper"


def apply_fast(database: Database, payload: bytes) -> tuple[TxnHeader, Outcome, str] | None:
    """Apply a committed transaction; None, and nothing changed, if it is one for `Database.apply`.

    The last value is the path of the parent of a node that was created or deleted, else empty.
    """
    try:
        session_id, xid, zxid, time_ms, opcode = _HEADER.unpack_from(payload)
        if opcode == OpCode.SET_DATA:
            found = _set_data(database, payload, zxid, time_ms)
        elif opcode in (OpCode.CREATE, OpCode.CREATE2):
            found = _create(database, payload, zxid, time_ms)
        elif opcode == OpCode.DELETE:
            found = _delete(database, payload, zxid)
        else:
            return None
    except (struct.error, UnicodeDecodeError):
        return None
    if found is None:
        return None
    path, node, parent_path, digest = found
    if zxid > database.last_zxid:
        database.last_zxid = zxid
    if not zxid & 127:
        database.log_digest()
    if digest != database.tree.digest and zxid >= database.exact_from_zxid:
        database.digest_mismatches += 1
    return TxnHeader(session_id, xid, zxid, time_ms, opcode), Outcome(opcode, path, node), parent_path


_Applied = tuple[str, DataNode | None, str, int]
"""Path, node, the parent's path, and the digest that the tree has in the transaction."""


def _path_and_data(payload: bytes, end_bytes: int) -> tuple[str, int, int] | None:
    """The path, and where the data begin and end, if ``end_bytes`` follow them."""
    (path_bytes,) = _INT.unpack_from(payload, _HEADER.size)
    path_end = _HEADER.size + 4 + path_bytes
    if path_bytes < 2 or path_end > len(payload):
        return None
    (data_bytes,) = _INT.unpack_from(payload, path_end)
    data_start = path_end + 4
    data_end = data_start + data_bytes
    if data_bytes < 0 or data_end + end_bytes != len(payload):
        return None
    path = payload[_HEADER.size + 4 : path_end].decode()
    return None if path.startswith(_SYSTEM) else (path, data_start, data_end)


def _create(database: Database, payload: bytes, zxid: int, time_ms: int) -> _Applied | None:
    found = _path_and_data(payload, _CREATE_END.size)
    if found is None:
        return None
    path, data_start, data_end = found
    *acl_and_mode, cversion, version, digest = _CREATE_END.unpack_from(payload, data_end)
    tree = database.tree
    parent_path = path[: path.rfind("/")] or "/"
    parent = tree.nodes.get(parent_path)
    if parent is None or parent.acl is not OPEN_ACL or path in tree.nodes or version != DIGEST_VERSION:
        return None
    if path[0] != "/" or "\0" in path:
        return None
    if tuple(acl_and_mode) != _OPEN_TO_ALL or cversion <= parent.cversion:
        return None
    node = DataNode.new(path, payload[data_start:data_end], OPEN_ACL, 0, zxid, time_ms)
    parent_after = parent.with_children(parent_path, cversion, zxid, parent.num_children + 1)
    tree.put_child(path, node, parent_path, parent_after)
    return path, node, parent_path, digest


def _set_data(database: Database, payload: bytes, zxid: int, time_ms: int) -> _Applied | None:
    found = _path_and_data(payload, _SET_END.size)
    if found is None:
        return None
    path, data_start, data_end = found
    version, digest_version, digest = _SET_END.unpack_from(payload, data_end)
    before = database.tree.nodes.get(path)
    if before is None or before.acl is not OPEN_ACL or digest_version != DIGEST_VERSION:
        return None
    node = before.with_data(path, payload[data_start:data_end], version, zxid, time_ms)
    database.tree.put(path, node)
    return path, node, "", digest


def _delete(database: Database, payload: bytes, zxid: int) -> _Applied | None:
    (path_bytes,) = _INT.unpack_from(payload, _HEADER.size)
    path_end = _HEADER.size + 4 + path_bytes
    if path_bytes < 2 or path_end + _DELETE_END.size != len(payload):
        return None
    path = payload[_HEADER.size + 4 : path_end].decode()
    version, digest = _DELETE_END.unpack_from(payload, path_end)
    tree = database.tree
    parent_path = path[: path.rfind("/")] or "/"
    parent, node = tree.nodes.get(parent_path), tree.nodes.get(path)
    if parent is None or node is None or parent.acl is not OPEN_ACL or node.acl is not OPEN_ACL:
        return None
    if version != DIGEST_VERSION or zxid <= parent.pzxid or path.startswith(_SYSTEM):
        return None
    tree.put(parent_path, parent.with_children(parent_path, parent.cversion, zxid, parent.num_children - 1))
    tree.remove(path)
    return path, None, parent_path, digest
