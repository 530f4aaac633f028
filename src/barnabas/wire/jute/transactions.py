"""The records of the transaction log and the snapshots, field by field as in ZooKeeper's
files (``zookeeper.jute``)."""

import struct
from dataclasses import dataclass

from barnabas.wire.jute.codec import Int, Long, MalformedRecordError, decode, decode_from, encode_into
from barnabas.wire.jute.layouts import DIGEST, TXN_HEADER
from barnabas.wire.jute.opcodes import OpCode
from barnabas.wire.jute.records import ACLs

__all__ = [
    "TRANSACTION_TYPES",
    "CheckVersionTxn",
    "CloseSessionTxn",
    "CreateContainerTxn",
    "CreateSessionTxn",
    "CreateTTLTxn",
    "CreateTxn",
    "CreateTxnV0",
    "DeleteTxn",
    "ErrorTxn",
    "FileHeader",
    "MultiTxn",
    "SetACLTxn",
    "SetDataTxn",
    "Transaction",
    "Txn",
    "TxnDigest",
    "TxnHeader",
    "decision_time_ms",
    "decode_transaction",
    "encode_transaction",
    "zxid_and_type",
]

_TIME = struct.Struct(">q")
_TIME_OFFSET = 20
"""Behind the session id (8 bytes), cxid (4) and zxid (8) of TxnHeader."""


@dataclass(slots=True)
class FileHeader:
    """The first 16 bytes of a log (magic ``ZKLG``) or a snapshot (``ZKSN``)."""

    magic: Int
    version: Int
    dbid: Long


@dataclass(slots=True)
class TxnHeader:
    """Before every transaction: its session, request number, zxid, time (ms since
    the epoch) and `OpCode`."""

    client_id: Long
    cxid: Int
    zxid: Long
    time_ms: Long
    type: Int


@dataclass(slots=True)
class TxnDigest:
    """After every transaction: the digest of the tree with the transaction applied."""

    version: Int
    tree_digest: Long


@dataclass(slots=True)
class CreateTxnV0:
    """A node made, as logs before 3.4 have it."""

    path: str
    data: bytes | None
    acl: ACLs
    ephemeral: bool


@dataclass(slots=True)
class CreateTxn:
    """A node made; ``parent_cversion`` is the parent's after it (-1: one more than before)."""

    path: str
    data: bytes | None
    acl: ACLs
    ephemeral: bool
    parent_cversion: Int


@dataclass(slots=True)
class CreateTTLTxn:
    """A node made that goes when it is empty and unchanged for ``ttl`` ms."""

    path: str
    data: bytes | None
    acl: ACLs
    parent_cversion: Int
    ttl: Long


@dataclass(slots=True)
class CreateContainerTxn:
    """A container node is created; the server deletes it after its last child."""

    path: str
    data: bytes | None
    acl: ACLs
    parent_cversion: Int


@dataclass(slots=True)
class DeleteTxn:
    """A node removed."""

    path: str


@dataclass(slots=True)
class SetDataTxn:
    """New data; ``version`` is the one it gets."""

    path: str
    data: bytes | None
    version: Int


@dataclass(slots=True)
class SetACLTxn:
    """A new ACL; ``version`` is the ACL version it gets."""

    path: str
    acl: ACLs
    version: Int


@dataclass(slots=True)
class CheckVersionTxn:
    """A version checked, inside of a multi; changes nothing."""

    path: str
    version: Int


@dataclass(slots=True)
class ErrorTxn:
    """A request that failed; changes nothing but takes a zxid."""

    err: Int


@dataclass(slots=True)
class CreateSessionTxn:
    """A session begins."""

    timeout_ms: Int


@dataclass(slots=True)
class CloseSessionTxn:
    """A session ends, and its ephemerals are deleted."""

    paths_to_delete: list[str]


@dataclass(slots=True)
class Txn:
    """One part of a `MultiTxn`: its `OpCode` and its record's bytes."""

    type: Int
    data: bytes | None


@dataclass(slots=True)
class MultiTxn:
    """Several transactions as one; with a failed one among them all are `ErrorTxn`."""

    txns: list[Txn]


Transaction = (
    CreateTxn
    | CreateTTLTxn
    | CreateContainerTxn
    | DeleteTxn
    | SetDataTxn
    | SetACLTxn
    | CheckVersionTxn
    | ErrorTxn
    | CreateSessionTxn
    | CloseSessionTxn
    | MultiTxn
)

TRANSACTION_TYPES: dict[int, type] = {
    OpCode.CREATE: CreateTxn,
    OpCode.CREATE2: CreateTxn,
    OpCode.CREATE_TTL: CreateTTLTxn,
    OpCode.CREATE_CONTAINER: CreateContainerTxn,
    OpCode.DELETE: DeleteTxn,
    OpCode.DELETE_CONTAINER: DeleteTxn,
    OpCode.SET_DATA: SetDataTxn,
    OpCode.RECONFIG: SetDataTxn,
    OpCode.SET_ACL: SetACLTxn,
    OpCode.CHECK: CheckVersionTxn,
    OpCode.ERROR: ErrorTxn,
    OpCode.CREATE_SESSION: CreateSessionTxn,
    OpCode.CLOSE_SESSION: CloseSessionTxn,
    OpCode.MULTI: MultiTxn,
}
"""The record that follows a `TxnHeader` of each type. Logs before 3.4 have `CreateTxnV0`, and
nothing for a closed session."""


def encode_transaction(header: TxnHeader, txn: Transaction, digest: TxnDigest | None) -> bytearray:
    """A transaction as logs and proposals carry it: header, record, digest."""
    payload = bytearray(TXN_HEADER.pack(header.client_id, header.cxid, header.zxid, header.time_ms, header.type))
    encode_into(payload, txn)
    if digest is not None:
        payload += DIGEST.pack(digest.version, digest.tree_digest)
    return payload


def decision_time_ms(payload: bytes | bytearray) -> int:
    """When a transaction was decided, in ms since the epoch: the field of its
    `TxnHeader`, without the others."""
    found: tuple[int] = _TIME.unpack_from(payload, _TIME_OFFSET)
    return found[0]


def zxid_and_type(payload: bytes) -> tuple[int, int]:
    """The zxid and the type of a transaction, of its `TxnHeader`. Raises `MalformedRecordError`."""
    if len(payload) < TXN_HEADER.size:
        raise MalformedRecordError(f"a transaction of {len(payload)} bytes has no header")
    _, _, zxid, _, txn_type = TXN_HEADER.unpack_from(payload)
    return zxid, txn_type


def decode_transaction(payload: bytes) -> tuple[TxnHeader, Transaction | None, TxnDigest | None]:
    """The reverse of `encode_transaction`, for logs of older servers too.

    Raises `MalformedRecordError`."""
    header, offset = decode_from(TxnHeader, payload)
    record_type = TRANSACTION_TYPES.get(header.type)
    if record_type is None:
        raise MalformedRecordError(f"transaction 0x{header.zxid:x} has the unknown type {header.type}")
    if header.type == OpCode.CLOSE_SESSION and offset == len(payload):
        return header, None, None  # a log of ZooKeeper before 3.5
    txn: Transaction
    try:
        txn, offset = decode_from(record_type, payload, offset)
    except MalformedRecordError:
        if record_type is not CreateTxn:
            raise
        old = decode(CreateTxnV0, payload, offset)  # a log of ZooKeeper before 3.4
        return header, CreateTxn(old.path, old.data, old.acl, old.ephemeral, -1), None
    digest = decode(TxnDigest, payload, offset) if len(payload) - offset >= 12 else None
    return header, txn, digest
