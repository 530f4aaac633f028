"""create, create2, createContainer, createTTL: a new node.

The name of a sequential node ends in ten digits: the number of children that its parent has ever had, which is never
used twice. The parent's cversion and pzxid change with its children.

In ZooKeeper: `PrepRequestProcessor.pRequest2TxnCreate` and `DataTree.createNode`.
"""

from collections.abc import Sequence

from barnabas.coordination.core.access import checked_acl, require
from barnabas.coordination.core.operations.base import (
    Apply,
    Outcome,
    Staging,
    Stamp,
    WriteOperation,
    deciding,
    existing,
)
from barnabas.coordination.core.paths import checked_path, parent_of
from barnabas.coordination.core.tree import Event, Events, View
from barnabas.coordination.core.znode import MAX_TTL_MS, DataNode, as_int, owner_of_ttl
from barnabas.wire.jute.errors import ErrorCode, KeeperError
from barnabas.wire.jute.opcodes import CONTAINER_OWNER, CreateMode, EventType, OpCode, Perms
from barnabas.wire.jute.records import Create2Response, CreateRequest, CreateResponse, CreateTTLRequest
from barnabas.wire.jute.transactions import CreateContainerTxn, CreateTTLTxn, CreateTxn

__all__ = ["APPLY", "OPERATIONS"]


_MODES = {int(mode): mode for mode in CreateMode}


def _checked_mode(request: CreateRequest | CreateTTLRequest, opcode: OpCode, ttl_nodes: bool) -> CreateMode:
    mode = _MODES.get(request.flags)
    if mode is None:
        raise KeeperError(ErrorCode.BAD_ARGUMENTS, request.path)
    if mode is CreateMode.PERSISTENT and opcode is OpCode.CREATE:
        return mode
    if mode.has_ttl and not ttl_nodes:
        raise KeeperError(ErrorCode.UNIMPLEMENTED, request.path)
    if mode.has_ttl != (opcode is OpCode.CREATE_TTL):
        raise KeeperError(ErrorCode.BAD_ARGUMENTS, request.path)
    if isinstance(request, CreateTTLRequest) and not 0 < request.ttl <= MAX_TTL_MS:
        raise KeeperError(ErrorCode.BAD_ARGUMENTS, request.path)
    return mode


def _decide(
    staging: Staging, request: CreateRequest | CreateTTLRequest, opcode: OpCode
) -> tuple[int, CreateTxn | CreateContainerTxn | CreateTTLTxn]:
    path, view = request.path, staging.view
    mode = _checked_mode(request, opcode, staging.ttl_nodes)
    parent_path = parent_of(path)
    acl = checked_acl(request.acl, staging.ids, path, staging.schemes)
    parent = existing(view, parent_path)
    require(parent.acl, Perms.CREATE, staging.ids, path)
    if mode.is_sequential:
        path = f"{path}{parent.cversion:010d}"
    checked_path(path)
    if view.get(path) is not None:
        raise KeeperError(ErrorCode.NODE_EXISTS, path)
    if parent.is_ephemeral:
        raise KeeperError(ErrorCode.NO_CHILDREN_FOR_EPHEMERALS, path)
    if staging.limited_tree is not None:
        staging.limited_tree.check_quota(path, len(request.data or b""), 1)
    cversion = as_int(parent.cversion + 1)
    if opcode is OpCode.CREATE_CONTAINER:
        return opcode, CreateContainerTxn(path, request.data, acl, cversion)
    if isinstance(request, CreateTTLRequest):
        return opcode, CreateTTLTxn(path, request.data, acl, cversion, request.ttl)
    return opcode, CreateTxn(path, request.data, acl, mode.is_ephemeral, cversion)


def _apply_create(view: View, stamp: Stamp, txn: CreateTxn, events: Events) -> Outcome:
    owner = stamp.session_id if txn.ephemeral else 0
    return _apply(view, stamp, OpCode.CREATE, txn, owner, events)


def _apply_create2(view: View, stamp: Stamp, txn: CreateTxn, events: Events) -> Outcome:
    owner = stamp.session_id if txn.ephemeral else 0
    return _apply(view, stamp, OpCode.CREATE2, txn, owner, events)


def _apply_container(view: View, stamp: Stamp, txn: CreateContainerTxn, events: Events) -> Outcome:
    return _apply(view, stamp, OpCode.CREATE_CONTAINER, txn, CONTAINER_OWNER, events)


def _apply_ttl(view: View, stamp: Stamp, txn: CreateTTLTxn, events: Events) -> Outcome:
    return _apply(view, stamp, OpCode.CREATE_TTL, txn, owner_of_ttl(txn.ttl), events)


def _apply(
    view: View,
    stamp: Stamp,
    txn_type: OpCode,
    txn: CreateTxn | CreateContainerTxn | CreateTTLTxn,
    owner: int,
    events: Events,
) -> Outcome:
    path = txn.path
    parent_path = parent_of(path)
    parent = existing(view, parent_path)
    acl = view.intern(txn.acl)
    there = view.get(path)
    # In a replay over a fuzzy snapshot the parent may be ahead of this transaction: it never goes back. So it stays at the
    # greatest number behind 2**31 creations, as in ZooKeeper.
    cversion = as_int(parent.cversion + 1) if txn.parent_cversion == -1 else txn.parent_cversion
    is_newer = cversion > parent.cversion
    view.put(
        parent_path,
        parent.with_children(
            parent_path,
            cversion if is_newer else parent.cversion,
            stamp.zxid if is_newer else parent.pzxid,
            parent.num_children + (there is None),
        ),
    )
    if there is not None:
        view.put(path, there.with_acl(path, acl, there.aversion))
        raise KeeperError(ErrorCode.NODE_EXISTS, path)
    node = DataNode.new(path, txn.data, acl, owner, stamp.zxid, stamp.time_ms)
    view.put(path, node)
    events.append(Event(EventType.NODE_CREATED, path, acl))
    events.append(Event(EventType.NODE_CHILDREN_CHANGED, parent_path, parent.acl))
    return Outcome(txn_type, path, node)


def _reply_path(outcome: Outcome) -> CreateResponse:
    return CreateResponse(outcome.path)


def _reply_path_and_stat(outcome: Outcome) -> Create2Response:
    assert outcome.node is not None
    return Create2Response(outcome.path, outcome.node.stat())


def _operation(opcode: OpCode, request_type: type, apply: Apply) -> WriteOperation:
    reply = _reply_path if opcode is OpCode.CREATE else _reply_path_and_stat
    return WriteOperation(
        opcode, request_type, deciding(lambda staging, request: _decide(staging, request, opcode), apply), reply
    )


APPLY: dict[int, Apply] = {
    OpCode.CREATE: _apply_create,
    OpCode.CREATE2: _apply_create2,
    OpCode.CREATE_CONTAINER: _apply_container,
    OpCode.CREATE_TTL: _apply_ttl,
}

OPERATIONS: Sequence[WriteOperation] = [
    _operation(OpCode.CREATE, CreateRequest, _apply_create),
    _operation(OpCode.CREATE2, CreateRequest, _apply_create2),
    _operation(OpCode.CREATE_CONTAINER, CreateRequest, _apply_container),
    _operation(OpCode.CREATE_TTL, CreateTTLRequest, _apply_ttl),
]
