"""delete and deleteContainer: remove a node.

Only the server itself uses deleteContainer: for container and TTL nodes whose time is over, if they are still empty.

In ZooKeeper: `PrepRequestProcessor.pRequest2Txn`, `DataTree.deleteNode` and `ContainerManager`.
"""

from collections.abc import Sequence

from barnabas.coordination.core.access import require
from barnabas.coordination.core.operations.base import (
    Apply,
    Outcome,
    Staging,
    Stamp,
    WriteOperation,
    checked_version,
    deciding,
    existing,
)
from barnabas.coordination.core.paths import SYSTEM_PATHS, parent_of
from barnabas.coordination.core.tree import Event, Events, View
from barnabas.wire.jute.errors import ErrorCode, KeeperError
from barnabas.wire.jute.opcodes import EventType, OpCode, Perms
from barnabas.wire.jute.records import DeleteRequest
from barnabas.wire.jute.transactions import DeleteTxn

__all__ = ["APPLY", "OPERATIONS", "apply_delete"]


def _parent_of(path: str) -> str:
    if path in SYSTEM_PATHS:
        raise KeeperError(ErrorCode.BAD_ARGUMENTS, path)
    return parent_of(path)


def _decide(staging: Staging, request: DeleteRequest) -> tuple[int, DeleteTxn]:
    path, view = request.path, staging.view
    parent = existing(view, _parent_of(path))
    require(parent.acl, Perms.DELETE, staging.ids, path)
    node = existing(view, path)
    checked_version(node.version, request.version, path)
    if node.num_children:
        raise KeeperError(ErrorCode.NOT_EMPTY, path)
    return OpCode.DELETE, DeleteTxn(path)


def _decide_container(staging: Staging, request: DeleteRequest) -> tuple[int, DeleteTxn]:
    path = request.path
    _parent_of(path)
    node = existing(staging.view, path)
    if node.num_children:
        raise KeeperError(ErrorCode.NOT_EMPTY, path)
    if not node.is_container and node.ttl_ms is None:
        raise KeeperError(ErrorCode.BAD_VERSION, path)
    return OpCode.DELETE_CONTAINER, DeleteTxn(path)


def apply_delete(view: View, stamp: Stamp, txn: DeleteTxn, events: Events) -> Outcome:
    """Remove the node, and note the zxid in its parent, even if a fuzzy snapshot does not contain the node any more."""
    path = txn.path
    parent_path = parent_of(path)
    parent = existing(view, parent_path)
    node = view.get(path)
    view.put(
        parent_path,
        parent.with_children(
            parent_path,
            parent.cversion,
            max(stamp.zxid, parent.pzxid),
            parent.num_children - (node is not None),
        ),
    )
    if node is None:
        raise KeeperError(ErrorCode.NO_NODE, path)
    view.remove(path)
    events.append(Event(EventType.NODE_DELETED, path, node.acl))
    events.append(Event(EventType.NODE_CHILDREN_CHANGED, parent_path, parent.acl))
    return Outcome(OpCode.DELETE, path)


def _reply(_outcome: Outcome) -> None:
    return None


APPLY: dict[int, Apply] = {OpCode.DELETE: apply_delete, OpCode.DELETE_CONTAINER: apply_delete}

OPERATIONS: Sequence[WriteOperation] = [
    WriteOperation(OpCode.DELETE, DeleteRequest, deciding(_decide, apply_delete), _reply),
    WriteOperation(OpCode.DELETE_CONTAINER, DeleteRequest, deciding(_decide_container, apply_delete), _reply),
]
