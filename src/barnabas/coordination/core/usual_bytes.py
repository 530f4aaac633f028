"""Reads common requests and transactions from their bytes, without records.

Each operation says which of its own these are. They have the values that their records would have,
so nothing that follows knows how they were read. All else is left to the records: other operations,
ACLs and layouts, and damaged bytes.

In ZooKeeper: the deserialization in `PrepRequestProcessor` and `SerializeUtils`.
"""

import struct
from collections.abc import Sequence
from itertools import islice

from barnabas.coordination.core.operations import TRANSACTIONS, WRITES
from barnabas.coordination.core.operations.base import PlainValues, ReadRequest, TransactionType
from barnabas.coordination.core.znode import DIGEST_VERSION
from barnabas.wire.jute.layouts import DIGEST, REQUEST_HEADER, TXN_HEADER
from barnabas.wire.jute.opcodes import OpCode

__all__ = ["read_requests", "read_transaction"]

_REQUESTS = {
    opcode: (operation.decide, operation.answer, operation.read_request)
    for opcode, operation in WRITES.items()
    if operation.read_request is not None
}
_TRANSACTIONS = {
    txn_type: (found, found.read_transaction)
    for txn_type, found in TRANSACTIONS.items()
    if found.read_transaction is not None
}
_MULTI = int(OpCode.MULTI)
_HEADER_BYTES = REQUEST_HEADER.size


def read_requests(
    frames: Sequence[bytes], start: int, end: int, offset: int = 0, max_parts: int | None = None
) -> list[ReadRequest]:
    """The requests at the head of these frames, from ``start`` to ``end``, that can be read
    from their bytes; each begins at ``offset`` of its frame. A multi of more than
    ``max_parts`` cannot."""
    found: list[ReadRequest] = []
    for frame in islice(frames, start, end):
        try:
            xid, opcode = REQUEST_HEADER.unpack_from(frame, offset)
            decide, answer, read = _REQUESTS[opcode]
            request = read(frame, offset + _HEADER_BYTES)
        except (KeyError, struct.error, UnicodeDecodeError):
            break
        if request is None:
            break
        request_end, values = request
        if request_end != len(frame):
            break
        if opcode == _MULTI and max_parts is not None and len(values[0]) > max_parts:
            break
        found.append((xid, opcode, decide, answer, values))
    return found


def read_transaction(payload: bytes, txn_type: int) -> tuple[TransactionType, PlainValues, int] | None:
    """The type of a transaction, its values, and the digest that it names.

    None if its record must be decoded."""
    usual, end = _TRANSACTIONS.get(txn_type), len(payload) - DIGEST.size
    if usual is None or end <= TXN_HEADER.size:
        return None
    found, read = usual
    version, digest = DIGEST.unpack_from(payload, end)
    try:
        values = read(payload, TXN_HEADER.size, end)
    except (struct.error, UnicodeDecodeError):
        return None
    return (found, values, digest) if values is not None and version == DIGEST_VERSION else None
