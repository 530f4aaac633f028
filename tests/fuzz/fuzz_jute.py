"""Fuzz target: every reader of ZooKeeper's records, the transaction log's entries, snapshots.

``fuzz`` takes any bytes: the first chooses the reader. It returns for whatever is read or refused
with `CorruptDataError`; anything else that it raises is a bug. By hand:
``python tests/fuzz/fuzz_jute.py [SEED]``.
"""

import contextlib
import sys
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parents[1]))

from barnabas.base.errors import CorruptDataError
from barnabas.coordination.core.database import Database
from barnabas.coordination.storage.snapshot import encode_snapshot, read_snapshot
from barnabas.wire.jute import records, transactions
from barnabas.wire.jute.codec import decode, encode
from barnabas.wire.jute.frames import (
    decode_connect_request,
    decode_connect_response,
    decode_multi_request,
    decode_multi_response,
    encode_connect_request,
    encode_multi_request,
    encode_multi_response,
)
from barnabas.wire.jute.opcodes import OpCode
from support.mutations import forever, mutated

RECORD_TYPES = [
    value
    for module in (records, transactions)
    for name in module.__all__
    if isinstance(value := getattr(module, name), type)
]
READERS = (decode_connect_request, decode_connect_response, decode_multi_request, decode_multi_response)
CREATE = records.CreateRequest("/a/b", b"data", list(records.OPEN_ACL), 2)
SEEDS = [
    bytes(encode(CREATE)),
    bytes(encode(records.SetWatches2(5, ["/a"], ["/b"], ["/c"], ["/d"], ["/e"]))),
    bytes(encode(records.GetDataResponse(b"x", records.Stat(*range(11))))),
    bytes(encode_connect_request(records.ConnectRequest(0, 1, 2, 3, bytes(16))))[4:],
    bytes(encode_multi_request(1, [(OpCode.CREATE, CREATE), (OpCode.DELETE, records.DeleteRequest("/a", 1))]))[12:],
    bytes(encode_multi_response(1, 2, 0, [(OpCode.ERROR, records.ErrorResponse(-1)), (OpCode.DELETE, None)]))[4:],
    bytes(
        transactions.encode_transaction(
            transactions.TxnHeader(1, 2, 3, 4, OpCode.CREATE),
            transactions.CreateTxn("/a", b"", list(records.OPEN_ACL), False, 1),
            transactions.TxnDigest(2, 5),
        )
    ),
    b"".join(encode_snapshot(Database())),
]


def fuzz(data: bytes) -> None:
    """Read the bytes after the first as what it chooses."""
    if not data:
        return
    choice, rest = data[0], data[1:]
    with contextlib.suppress(CorruptDataError):
        if choice < 128:
            record_type = RECORD_TYPES[choice % len(RECORD_TYPES)]
            record = decode(record_type, rest)
            assert decode(record_type, encode(record)) == record
        elif choice < 192:
            READERS[choice % len(READERS)](rest)
        elif choice < 224:
            header, txn, digest = transactions.decode_transaction(rest)
            Database().apply(header, txn, digest)
        else:
            read_snapshot(rest, "fuzz", 0)


def seed_input(rng: Random) -> bytes:
    """An input near to real bytes."""
    return bytes([rng.randrange(256)]) + mutated(rng.choice(SEEDS), rng)


if __name__ == "__main__":
    forever(fuzz, seed_input)
