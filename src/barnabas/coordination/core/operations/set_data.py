"""setData: new data, if the version is the one expected.

    request        path  data  Int expected version
    transaction    path  data  Int version
    reply          Stat

In ZooKeeper: `PrepRequestProcessor.pRequest2Txn` and `DataTree.setData`.
"""

from collections.abc import Sequence
from operator import attrgetter

from barnabas.coordination.core.access import require
from barnabas.coordination.core.changes import Change
from barnabas.coordination.core.operations.base import (
    PlainValues,
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
from barnabas.wire.jute.layouts import JUTE_INT
from barnabas.wire.jute.opcodes import OpCode, Perms
from barnabas.wire.jute.records import SetDataRequest

__all__ = ["OPERATIONS", "TRANSACTIONS", "new_data"]

_SET_DATA, _WRITE = OpCode.SET_DATA, Perms.WRITE  # to look up a member of an enum takes long
_NULL = JUTE_INT.pack(-1)

_Values = tuple[str, bytes | None, int]
"""Path, data, and the version that is expected or, in a transaction, made."""


def read_request(data: bytes, offset: int) -> tuple[int, PlainValues] | None:
    """Path, data and expected version of a request whose data is not null."""
    (path_bytes,) = JUTE_INT.unpack_from(data, offset)
    path_end = offset + 4 + path_bytes
    (data_bytes,) = JUTE_INT.unpack_from(data, path_end)
    data_end = path_end + 4 + data_bytes
    if path_bytes < 0 or data_bytes < 0:
        return None
    (expected,) = JUTE_INT.unpack_from(data, data_end)
    return data_end + 4, (data[offset + 4 : path_end].decode(), data[path_end + 4 : data_end], expected)


def read_transaction(data: bytes, offset: int, end: int) -> PlainValues | None:
    """Path, data and version, as a request has them."""
    found = read_request(data, offset)
    return found[1] if found is not None and found[0] == end else None


def decide(staging: Staging, request: _Values) -> Change:
    """New data for a node that the client may write."""
    path, data, expected = request
    node = staging.view.get(path)
    if node is None:  # a path that is there is a valid one
        node = existing(staging.view, checked_path(path))
    require(node.acl, _WRITE, staging.ids, path)
    if staging.limited_tree is not None:
        staging.limited_tree.check_quota(path, len(data or b"") - len(node.data or b""), 0)
    version = checked_version(node.version, expected, path)
    return new_data(_SET_DATA, staging.stamp, path, node, data, version)


def new_data(txn_type: OpCode, stamp: Stamp, path: str, before: DataNode, data: bytes | None, version: int) -> Change:
    """The change of a node's data; also of the configuration's node."""
    node = before.with_data(path, data, version, stamp.zxid, stamp.time_ms)
    return Change(txn_type, path, before, node, "", None, node.digest - before.digest, 1, version)


def replay(tree: View, stamp: Stamp, transaction: _Values) -> Change:
    """The change of a transaction."""
    path, data, version = transaction
    return new_data(_SET_DATA, stamp, path, existing(tree, path), data, version)


def replay_configuration(tree: View, stamp: Stamp, transaction: _Values) -> Change:
    """The change of a reconfiguration."""
    path, data, version = transaction
    return new_data(OpCode.RECONFIG, stamp, path, existing(tree, path), data, version)


def _encode(change: Change, before: bytes, behind: bytes) -> bytes:
    assert change.node is not None
    path, data = change.path.encode(), change.node.data
    length = _NULL if data is None else JUTE_INT.pack(len(data))
    return b"".join((before, JUTE_INT.pack(len(path)), path, length, data or b"", JUTE_INT.pack(change.number), behind))


def _answer(change: Change) -> bytes:
    assert change.node is not None
    return stat_of(change.node)


_VALUES = attrgetter("path", "data", "version")

TRANSACTIONS: Sequence[TransactionType] = [
    TransactionType(OpCode.SET_DATA, _encode, _VALUES, replay, Tree.put_data, read_transaction),
    # A reconfiguration is logged as new data of /zookeeper/config.
    TransactionType(OpCode.RECONFIG, _encode, _VALUES, replay_configuration, Tree.put_data),
]

OPERATIONS: Sequence[WriteOperation] = [
    WriteOperation(OpCode.SET_DATA, SetDataRequest, _VALUES, decide, _answer, read_request)
]
