"""multi: several writes that all happen, or none of them; and check, a part that only compares a version.

Each part is decided on what the parts before it have staged. When one fails, everything is rolled back; the
transaction then holds the earlier parts as they were decided, its error, and RUNTIME_INCONSISTENCY for the later parts.
The reply gives OK as the "error" of the earlier parts, and its own header says OK: clients look at the parts.

In ZooKeeper: `MultiOperationRecord`, `PrepRequestProcessor.pRequest` and `DataTree.processTxn`.
"""

from collections.abc import Sequence
from typing import Any

from barnabas.base.errors import CorruptDataError
from barnabas.coordination.core.access import require
from barnabas.coordination.core.operations import create, delete, set_data
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
from barnabas.coordination.core.paths import checked_path
from barnabas.coordination.core.tree import Events, Staged, View
from barnabas.wire.jute.codec import MalformedRecordError, decode, encode
from barnabas.wire.jute.errors import ErrorCode, KeeperError
from barnabas.wire.jute.frames import MultiPart, decode_multi_request
from barnabas.wire.jute.opcodes import CreateMode, OpCode, Perms
from barnabas.wire.jute.records import CheckVersionRequest, CreateRequest, CreateTTLRequest, ErrorResponse
from barnabas.wire.jute.transactions import TRANSACTION_TYPES, CheckVersionTxn, ErrorTxn, MultiTxn, Txn

__all__ = ["APPLY", "OPERATIONS", "decode_parts", "decode_write"]

_MODES = frozenset(mode for mode in CreateMode if not mode.has_ttl)
_SHOWN_CHARACTERS = 100


def decode_parts(data: bytes, offset: int, max_parts: int | None) -> list[MultiPart]:
    """The parts of a multi. Raises `MalformedRecordError`, also for more than ``max_parts``, and for creations that no
    client library would send: of an unknown mode, with a time to live that is not there, without an access control list.

    The mode of create and createTTL decides what kind of creation a part is, as in MultiOperationRecord."""
    return [_by_mode(opcode, request) for opcode, request in decode_multi_request(data, offset, max_parts)]


def decode_write(operation: WriteOperation, data: bytes, offset: int, max_parts: int | None) -> object | None:
    """The request of a write, which may be a multi; None if it has no fields. Raises as `decode_parts` does."""
    if operation.opcode is OpCode.MULTI:
        return decode_parts(data, offset, max_parts)
    return decode(operation.request_type, data, offset) if operation.request_type is not None else None


def _by_mode(opcode: int, request: Any) -> MultiPart:
    if isinstance(request, CreateTTLRequest) and request.flags in _MODES:
        opcode, request = OpCode.CREATE, CreateRequest(request.path, request.data, request.acl, request.flags)
    if isinstance(request, CreateRequest):
        if request.acl is None or request.flags not in _MODES:
            # Without the data and the list: this goes into the server's log, where secrets may not be.
            path = (request.path or "")[:_SHOWN_CHARACTERS]
            lacks = "without an access control list" if request.acl is None else f"of the mode {request.flags}"
            raise MalformedRecordError(f"a creation of {path!r} in a multi, {lacks}")
        if opcode == OpCode.CREATE and request.flags == CreateMode.CONTAINER:
            opcode = OpCode.CREATE_CONTAINER
    return opcode, request


def _decide_check(staging: Staging, request: CheckVersionRequest) -> tuple[int, CheckVersionTxn]:
    path = checked_path(request.path)
    node = existing(staging.view, path)
    require(node.acl, Perms.READ, staging.ids, path)
    return OpCode.CHECK, CheckVersionTxn(path, checked_version(node.version, request.version, path))


def _apply_check(_view: View, _stamp: Stamp, txn: CheckVersionTxn, _events: Events) -> Outcome:
    return Outcome(OpCode.CHECK, txn.path)


_CHECK = WriteOperation(OpCode.CHECK, CheckVersionRequest, deciding(_decide_check, _apply_check), lambda _: None)
_PARTS: dict[int, WriteOperation] = {
    operation.opcode: operation
    for operation in (*create.OPERATIONS, *delete.OPERATIONS, *set_data.OPERATIONS, _CHECK)
    if operation.opcode is not OpCode.DELETE_CONTAINER
}
_APPLY_PARTS: dict[int, Apply] = {
    **create.APPLY,
    **delete.APPLY,
    OpCode.SET_DATA: set_data.APPLY[OpCode.SET_DATA],
    OpCode.CHECK: _apply_check,
}


def _failure(code: int) -> tuple[Txn, Outcome]:
    return Txn(OpCode.ERROR, bytes(encode(ErrorTxn(code)))), Outcome(OpCode.ERROR, err=code)


def _stage(staging: Staging, parts: list[MultiPart], events: Events) -> tuple[int, MultiTxn, Outcome]:
    assert isinstance(staging.view, Staged)
    txns: list[Txn] = []
    outcomes: list[Outcome] = []
    failed: KeeperError | None = None
    for opcode, request in parts:
        if failed is not None:
            txn, outcome = _failure(ErrorCode.RUNTIME_INCONSISTENCY)
        else:
            try:
                if opcode not in _PARTS:
                    raise KeeperError(ErrorCode.BAD_ARGUMENTS)
                txn_type, record, outcome = _PARTS[opcode].stage(staging, request, events)
                txn = Txn(txn_type, bytes(encode(record)))
            except KeeperError as error:
                failed = error
                staging.view.roll_back()
                events.clear()
                if error.code is ErrorCode.MARSHALLING_ERROR:
                    raise  # a null where none may be: the whole request is refused, as by Apache's server
                outcomes = [Outcome(OpCode.ERROR, err=ErrorCode.OK) for _ in outcomes]
                txn, outcome = _failure(error.code)
        txns.append(txn)
        outcomes.append(outcome)
    return OpCode.MULTI, MultiTxn(txns), Outcome(OpCode.MULTI, err=failed.code if failed else 0, parts=outcomes)


def _apply(view: View, stamp: Stamp, txn: MultiTxn, events: Events) -> Outcome:
    if any(part.type == OpCode.ERROR for part in txn.txns):
        codes = [decode(ErrorTxn, part.data or b"").err if part.type == OpCode.ERROR else 0 for part in txn.txns]
        failures = [Outcome(OpCode.ERROR, err=code) for code in codes]
        return Outcome(OpCode.MULTI, err=next(filter(None, codes), 0), parts=failures)
    err = 0
    outcomes: list[Outcome] = []
    for part in txn.txns:
        if part.type not in _APPLY_PARTS:
            raise CorruptDataError(f"transaction 0x{stamp.zxid:x} has a part of type {part.type}")
        record: Any = decode(TRANSACTION_TYPES[part.type], part.data or b"")
        try:
            outcomes.append(_APPLY_PARTS[part.type](view, stamp, record, events))
        except KeeperError as error:
            # Only in a replay over a fuzzy snapshot, which contains some of the parts already: apply the others.
            err = err or error.code
            outcomes.append(Outcome(OpCode.ERROR, err=error.code))
    return Outcome(OpCode.MULTI, err=err, parts=outcomes)


def _reply(outcome: Outcome) -> list[tuple[int, object | None]]:
    replies: list[tuple[int, Any]] = []
    for part in outcome.parts:
        if part.type == OpCode.ERROR:
            replies.append((OpCode.ERROR, ErrorResponse(part.err)))
        else:
            reply = _PARTS[part.type].reply(part)
            # Container and TTL creations are answered as create2.
            is_create = part.type in (OpCode.CREATE_CONTAINER, OpCode.CREATE_TTL)
            replies.append((OpCode.CREATE2 if is_create else part.type, reply))
    return replies


APPLY: dict[int, Apply] = {OpCode.MULTI: _apply, OpCode.CHECK: _apply_check}

OPERATIONS: Sequence[WriteOperation] = [WriteOperation(OpCode.MULTI, None, _stage, _reply)]
