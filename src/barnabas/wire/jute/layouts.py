"""The fixed parts of requests, replies and transactions as `struct` layouts, for code that packs
and reads bytes without records.

The records say the same: `records.Stat`, `transactions.TxnHeader`, `TxnDigest`.
`test_coordination_usual_bytes.py` compares what comes of both.
"""

import struct

__all__ = [
    "DIGEST",
    "JUTE_INT",
    "LENGTH_AND_REPLY",
    "MULTI_HEADER",
    "OPEN_ACL_BYTES",
    "REPLY_BYTES",
    "REQUEST_HEADER",
    "STAT",
    "TXN_HEADER",
    "UNSIGNED_DIGEST",
]

JUTE_INT = struct.Struct(">i")
"""A length, a version, a mode."""
REQUEST_HEADER = struct.Struct(">ii")
"""Int xid, Int opcode."""
STAT = struct.Struct(">qqqqiiiqiiq")
"""Long czxid, mzxid, ctime, mtime; Int version, cversion, aversion; Long owner; Int data length,
children; Long pzxid."""
LENGTH_AND_REPLY = struct.Struct(">iiqi")
"""The length of a frame, and ReplyHeader: Int xid, Long zxid, Int error."""
REPLY_BYTES = LENGTH_AND_REPLY.size - 4
"""The size of a ReplyHeader."""
TXN_HEADER = struct.Struct(">qiqqi")
"""TxnHeader: Long session, Int cxid, Long zxid, Long time, Int type."""
DIGEST = struct.Struct(">iq")
"""TxnDigest: Int version, Long digest of the tree. The end of every transaction, and all that
follows a deletion's path."""
MULTI_HEADER = struct.Struct(">i?i")
"""Before each part of a multi and of its answer, and behind the last one: Int type, bool done,
Int error."""
UNSIGNED_DIGEST = struct.Struct(">iQ")
"""The same, with the digest modulo 2**64."""
OPEN_ACL_BYTES = struct.pack(">iii5si6s", 1, 31, 5, b"world", 6, b"anyone")
"""The list of one ACL that is open to all."""
