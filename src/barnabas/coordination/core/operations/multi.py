"""multi: several writes that all happen, or none of them; and check, a part that only compares a
version.

Each part is decided, by the operation that it is, on the changes of the parts before it. When one
fails, these changes are dropped; the transaction then holds the earlier parts as they were decided,
its error, and RUNTIME_INCONSISTENCY for the later parts. The reply gives OK as the "error" of the
earlier parts, and its own header says OK: clients look at the parts.

In ZooKeeper: `MultiOperationRecord`, `PrepRequestProcessor.pRequest` and `DataTree.processTxn`.
"""

import struct
from collections.abc import Sequence
from operator import attrgetter
from typing import Any

from barnabas.base.errors import CorruptDataError
from barnabas.coordination.core.access import require
from barnabas.coordination.core.changes import Change, refused_change
from barnabas.coordination.core.operations import create, delete, set_data
from barnabas.coordination.core.operations.base import (
    PlainValues,
    Staging,
    Stamp,
    TransactionType,
    WriteOperation,
    checked_version,
    existing,
)
from barnabas.coordination.core.paths import checked_path
from barnabas.coordination.core.staged import Parts
from barnabas.coordination.core.tree import Tree, View
from barnabas.wire.jute.codec import MalformedRecordError, decode, encode
from barnabas.wire.jute.errors import ErrorCode, KeeperError
from barnabas.wire.jute.frames import MultiPart, decode_multi_request
from barnabas.wire.jute.layouts import JUTE_INT, MULTI_HEADER
from barnabas.wire.jute.opcodes import CreateMode, OpCode, Perms
from barnabas.wire.jute.records import CheckVersionRequest, CreateRequest, CreateTTLRequest
from barnabas.wire.jute.transactions import TRANSACTION_TYPES, CheckVersionTxn, ErrorTxn, MultiTxn, Txn

__all__ = ["OPERATIONS", "TRANSACTIONS", "decode_part_values", "decode_parts"]

_CREATES = frozenset((int(OpCode.CREATE), int(OpCode.CREATE2)))
_USUAL_MODES = frozenset(range(CreateMode.CONTAINER))
"""Modes that do not make another kind of creation of it."""
_MODES = frozenset(mode for mode in CreateMode if not mode.has_ttl)
_SHOWN_CHARACTERS = 100


def read_request(data: bytes, offset: int) -> tuple[int, PlainValues] | None:
    """The parts of a multi, if all of them can be read from their bytes.

    None for what `decode_parts` refuses."""
    parts: list[tuple[int, PlainValues]] = []
    while True:
        opcode, is_end, _ = MULTI_HEADER.unpack_from(data, offset)
        offset += MULTI_HEADER.size
        if is_end:
            return offset, (parts,)
        read = _READ_PART.get(opcode)
        found = read(data, offset) if read is not None else None
        if found is None or (opcode in _CREATES and found[1][3] not in _USUAL_MODES):
            return None
        offset, values = found
        parts.append((opcode, values))


def decode_parts(data: bytes, offset: int, max_parts: int | None) -> list[MultiPart]:
    """The parts of a multi. Raises `MalformedRecordError`, also for more than ``max_parts``, and
    for creations that no client library would send: of an unknown mode, with a time to live that is
    not there, without an access control list.

    The mode of create and createTTL decides what kind of creation a part is, as in
    MultiOperationRecord."""
    return [_by_mode(opcode, request) for opcode, request in decode_multi_request(data, offset, max_parts)]


def decode_part_values(operation: WriteOperation, data: bytes, offset: int, max_parts: int | None) -> PlainValues:
    """What a write asks for, which may be a multi. Raises as `decode_parts` does."""
    if operation.opcode is OpCode.MULTI:
        parts = decode_parts(data, offset, max_parts)
        return ([(opcode, _PARTS[opcode].values(part) if opcode in _PARTS else ()) for opcode, part in parts],)
    request = decode(operation.request_type, data, offset) if operation.request_type is not None else None
    return operation.values(request)


def _by_mode(opcode: int, request: Any) -> MultiPart:
    if isinstance(request, CreateTTLRequest) and request.flags in _MODES:
        opcode, request = OpCode.CREATE, CreateRequest(request.path, request.data, request.acl, request.flags)
    if isinstance(request, CreateRequest):
        if request.acl is None or request.flags not in _MODES:
            # Without the data and the list: this goes into the server's log, where
            # secrets may not be.
            path = (request.path or "")[:_SHOWN_CHARACTERS]
            lacks = "without an access control list" if request.acl is None else f"of the mode {request.flags}"
            raise MalformedRecordError(f"a creation of {path!r} in a multi, {lacks}")
        if opcode == OpCode.CREATE and request.flags == CreateMode.CONTAINER:
            opcode = OpCode.CREATE_CONTAINER
    return opcode, request


def decide_check(staging: Staging, request: tuple[str, int]) -> Change:
    """No change, if the version is the one expected."""
    path, expected = request
    checked_path(path)
    node = existing(staging.view, path)
    require(node.acl, Perms.READ, staging.ids, path)
    return Change(OpCode.CHECK, path, number=checked_version(node.version, expected, path))


def replay_check(_tree: View, _stamp: Stamp, transaction: tuple[str, int]) -> Change:
    """No change."""
    path, version = transaction
    return Change(OpCode.CHECK, path, number=version)


def _apply_check(_tree: Tree, _change: Change) -> None:
    """Nothing changes."""


def _encode_check(change: Change, before: bytes, behind: bytes) -> bytes:
    return before + encode(CheckVersionTxn(change.path, change.number)) + behind


def _answer_check(_change: Change) -> bytes:
    return b""


_CHECK_VALUES = attrgetter("path", "version")
_CHECK = WriteOperation(OpCode.CHECK, CheckVersionRequest, _CHECK_VALUES, decide_check, _answer_check)
_CHECK_TRANSACTION = TransactionType(OpCode.CHECK, _encode_check, _CHECK_VALUES, replay_check, _apply_check)
_PARTS: dict[int, WriteOperation] = {
    int(operation.opcode): operation
    for operation in (*create.OPERATIONS, *delete.OPERATIONS, *set_data.OPERATIONS, _CHECK)
    if not operation.is_internal
}
_READ_PART = {
    opcode: operation.read_request
    for opcode, operation in _PARTS.items()
    if operation.read_request is not None and opcode != OpCode.CREATE_CONTAINER
}
_PART_TRANSACTIONS: dict[int, TransactionType] = {
    int(found.type): found
    for found in (*create.TRANSACTIONS, *delete.TRANSACTIONS, *set_data.TRANSACTIONS, _CHECK_TRANSACTION)
    if found.type is not OpCode.RECONFIG
}


def decide(staging: Staging, request: tuple[Sequence[tuple[int, PlainValues]]]) -> Change:
    """All parts, or none of them and the error of one."""
    (parts,) = request
    view = Parts(staging.view)
    on_parts = Staging(view, staging.stamp, staging.ids, staging.ttl_nodes, staging.schemes, staging.limited_tree)
    changes: list[Change] = []
    for opcode, values in parts:
        operation = _PARTS.get(opcode)
        try:
            if operation is None:
                raise KeeperError(ErrorCode.BAD_ARGUMENTS)
            decide_part = operation.decide
            change = decide_part(on_parts, values)
        except KeeperError as error:
            if error.code is ErrorCode.MARSHALLING_ERROR:
                # A null where none may be: the whole request is refused, as by Apache's server.
                raise
            return _failed(changes, error.code, len(parts))
        view.add(change)
        changes.append(change)
    return view.finish(changes)


def _failed(earlier: list[Change], code: int, count: int) -> Change:
    """The change of a failed multi: the transaction holds what was decided of the earlier parts,
    and nothing happens."""
    later = [refused_change(ErrorCode.RUNTIME_INCONSISTENCY)] * (count - len(earlier) - 1)
    return Change(OpCode.MULTI, err=code, parts=[*earlier, refused_change(code), *later])


def replay(tree: View, stamp: Stamp, transaction: tuple[Sequence[Txn]]) -> Change:
    """The change of a transaction."""
    (txns,) = transaction
    if any(part.type == OpCode.ERROR for part in txns):
        codes = [decode(ErrorTxn, part.data or b"").err if part.type == OpCode.ERROR else 0 for part in txns]
        return Change(OpCode.MULTI, err=next(filter(None, codes), 0), parts=list(map(refused_change, codes)))
    view = Parts(tree)
    err = 0
    changes: list[Change] = []
    for part in txns:
        found = _PART_TRANSACTIONS.get(part.type)
        if found is None:
            raise CorruptDataError(f"transaction 0x{stamp.zxid:x} has a part of type {part.type}")
        record: Any = decode(TRANSACTION_TYPES[part.type], part.data or b"")
        try:
            change = found.replay(view, stamp, found.values(record))
        except KeeperError as error:
            change = Change(OpCode.CHECK, err=error.code)
        # Only in a replay over a fuzzy snapshot, which contains some of the parts
        # already: the others happen.
        err = err or change.err
        view.add(change)
        changes.append(change)
    return view.finish(changes, err)


def apply(tree: Tree, change: Change) -> None:
    """Apply each part."""
    parts, at = change.parts, 0
    if change.is_failed:
        return
    while at < len(parts):
        end = create.end_of_siblings(parts, at)
        if end > at:
            create.apply_siblings(tree, parts[at:end])
        else:
            end = at + 1
            _PART_TRANSACTIONS[parts[at].type].apply(tree, parts[at])
        at = end


def _encode(change: Change, before: bytes, behind: bytes) -> bytes:
    found = [before, JUTE_INT.pack(len(change.parts))]
    for part in change.parts:
        record = JUTE_INT.pack(part.err) if part.type == _ERROR else _ENCODE_PART[part.type](part, b"", b"")
        found += _TYPE_AND_LENGTH.pack(part.type, len(record)), record
    found.append(behind)
    return b"".join(found)


def _answer(change: Change) -> bytes:
    found: list[bytes] = []
    is_failed = change.is_failed
    for part in change.parts:
        if is_failed or part.err:
            err = part.err
            found.append(MULTI_HEADER.pack(OpCode.ERROR, False, err) + JUTE_INT.pack(err))
            continue
        found.append(_ANSWERED_AS[part.type])
        found.append(_PARTS[part.type].answer(part))
    found.append(_END)
    return b"".join(found)


def _values(parts: Sequence[tuple[int, PlainValues]]) -> PlainValues:
    return (parts,)


def _values_of_transaction(record: MultiTxn) -> PlainValues:
    return (record.txns,)


_ENCODE_PART = {txn_type: found.encode for txn_type, found in _PART_TRANSACTIONS.items()}
_ERROR = OpCode.ERROR  # to look up a member of an enum takes long
_TYPE_AND_LENGTH = struct.Struct(">ii")
_END = MULTI_HEADER.pack(-1, True, -1)
_AS_CREATE2 = (OpCode.CREATE_CONTAINER, OpCode.CREATE_TTL)
_ANSWERED_AS = {
    opcode: MULTI_HEADER.pack(OpCode.CREATE2 if opcode in _AS_CREATE2 else opcode, False, 0) for opcode in _PARTS
}
"""The header before a part's answer."""

TRANSACTIONS: Sequence[TransactionType] = [
    TransactionType(OpCode.MULTI, _encode, _values_of_transaction, replay, apply),
    _CHECK_TRANSACTION,
]

OPERATIONS: Sequence[WriteOperation] = [WriteOperation(OpCode.MULTI, None, _values, decide, _answer, read_request)]
