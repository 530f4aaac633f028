"""Snapshots, in Apache ZooKeeper's format.

A file ``snapshot.<zxid in hex>`` holds the state after the transaction of that zxid:

    FileHeader      magic "ZKSN", version 2, dbid -1
    Int             sessions, each: Long id, Int timeout in ms
    Int             access control lists, each: Long number, vector of ACL
    nodes           path, data, Long number of its ACL (-1: open to all), StatPersisted; parents
                    before children; the root's path is ""
    "/"             the end of the nodes
    Long, "/"       Adler-32 of all that is before, and a mark
    Long, Int, Long zxid, digest version, digest of the tree (since 3.6); a zxid of 0 means that
                    there is no digest: the server had not applied a transaction since its start
    Long, "/"       Adler-32 of all that is before, and a mark
    Long            the last zxid (since 3.9): the state can be restored from the bytes
                    alone, without the file's name
    Long, "/"       Adler-32 of all that is before, and a mark

Apache's server continues to serve while it writes, so its snapshots may contain later changes than
their name says (they are fuzzy), and the replay of the log applies these changes again. Ours are
exact: nodes are values, and the tree keeps those that change before they are written
(`Tree.frozen`). A snapshot is encoded in slices, between which the server serves requests.

In ZooKeeper: FileSnap and SerializeUtils.
"""

import struct
import zlib
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from itertools import chain, islice

from barnabas.base.errors import CorruptDataError
from barnabas.coordination.core.access import AccessList
from barnabas.coordination.core.database import Database
from barnabas.coordination.core.znode import DIGEST_VERSION, DataNode
from barnabas.wire.jute.codec import Int, Long, MalformedRecordError, decode, decode_from, encode_into
from barnabas.wire.jute.records import ACL, OPEN_ACL
from barnabas.wire.jute.transactions import FileHeader
from barnabas.wire.kafka.records.compression import CompressionType, decompress

__all__ = [
    "SNAPSHOT_END",
    "SNAPSHOT_MAGIC",
    "decompressed_snapshot",
    "encode_snapshot",
    "encode_snapshot_for_learner",
    "read_snapshot",
    "read_snapshot_of_leader",
    "read_snapshot_with_zxid",
    "snapshot_name",
]

SNAPSHOT_MAGIC = int.from_bytes(b"ZKSN", "big")
_VERSION = 2
_COMPRESSED = {".gz": CompressionType.GZIP, ".snappy": CompressionType.SNAPPY}
"""What Apache's servers write with ``snapshot.compression.method``; the snappy framing
is xerial's, as in Kafka."""
_MAX_DECOMPRESSED_BYTES = 1 << 40
"""No limit in practice: the file is the server's own."""

_NODES_IN_A_SLICE = 500
_COUNT = struct.Struct(">i")
_LONG = struct.Struct(">q")
_DIGEST = struct.Struct(">qiq")
_NODE_TAIL = struct.Struct(">qqqqqiiiqq")
SNAPSHOT_END = b"\0\0\0\x01/"
"""the last bytes of a snapshot"""
_MARK = SNAPSHOT_END
_SEAL_BYTES = 8 + len(_MARK)
_FILE_HEADER_BYTES = 16
_COUNTER = 0xFFFFFFFF
_MAX_RESTORED_ZXID = (1 << 63) - (1 << 32) - 1
"""leaves the zxids of one epoch to the server that goes on from there: a zxid has 63 bits"""


@dataclass(slots=True)
class _AclEntry:
    number: Long
    acl: list[ACL]


@dataclass(slots=True)
class _SessionEntry:
    id: Long
    timeout_ms: Int


@dataclass(slots=True)
class _Indexes:
    """All between the file's header and the nodes."""

    sessions: list[_SessionEntry]
    acls: list[_AclEntry]


@dataclass(slots=True)
class _Digest:
    zxid: Long
    version: Int
    digest: Long


def snapshot_name(zxid: int) -> str:
    """The name of the snapshot after a transaction."""
    return f"snapshot.{zxid:x}"


def encode_snapshot(database: Database) -> Iterator[bytes]:
    """The file in slices. It is the state at the first slice, whatever changes later."""
    tree = database.tree
    nodes = tree.frozen()
    root = next(nodes)
    numbers = {acl: number for number, acl in enumerate(tree.known_acls(), 1)}
    zxid, digest = database.last_zxid, tree.digest
    # A leader's that is fuzzy says nothing, as one without a digest.
    is_exact = database.exact_from_zxid <= zxid + 1
    out = bytearray()
    encode_into(out, FileHeader(SNAPSHOT_MAGIC, _VERSION, -1))
    encode_into(
        out,
        _Indexes(
            [_SessionEntry(*session) for session in database.session_timeouts_ms.items()],
            [_AclEntry(number, list(acl)) for acl, number in numbers.items()],
        ),
    )
    numbers[OPEN_ACL] = -1
    checksum = zlib.adler32(out)
    yield bytes(out)
    nodes = chain((root,), nodes)
    while part := list(islice(nodes, _NODES_IN_A_SLICE)):
        out = bytearray()
        for path, node in part:
            _encode_node(out, path, node, numbers[node.acl])
        checksum = zlib.adler32(out, checksum)
        yield bytes(out)
    end = bytearray(_MARK)
    end += _seal(zlib.adler32(end, checksum))
    end += _DIGEST.pack(zxid if is_exact else 0, DIGEST_VERSION, digest if is_exact else 0)
    end += _seal(zlib.adler32(end, checksum))
    end += _LONG.pack(zxid)
    end += _seal(zlib.adler32(end, checksum))
    yield bytes(end)


def encode_snapshot_for_learner(database: Database) -> Generator[bytes, None, None]:
    """The state in slices as a leader sends it: without the file's header and checksums.

    It is the state at the first slice."""
    parts = encode_snapshot(database)
    part = next(parts)[_FILE_HEADER_BYTES:]
    for following in parts:
        yield part
        part = following
    yield _MARK


def _seal(checksum: int) -> bytes:
    return _LONG.pack(checksum) + _MARK


def _encode_node(out: bytearray, path: str, node: DataNode, acl: int) -> None:
    name = path.encode() if path != "/" else b""
    out += _COUNT.pack(len(name))
    out += name
    if node.data is None:
        out += b"\xff\xff\xff\xff"
    else:
        out += _COUNT.pack(len(node.data))
        out += node.data
    out += _NODE_TAIL.pack(
        acl,
        node.czxid,
        node.mzxid,
        node.ctime,
        node.mtime,
        node.version,
        node.cversion,
        node.aversion,
        node.owner,
        node.pzxid,
    )


def read_snapshot(data: bytes, name: str, zxid: int) -> Database:
    """The state in a snapshot; ``zxid`` is the one in its name.

    Raises `CorruptDataError` for any damage. A name that ends with ``.gz`` or ``.snappy`` belongs
    to a compressed one (``snapshot.compression.method``).
    """
    return _read(decompressed_snapshot(data, name), name, zxid)


def decompressed_snapshot(data: bytes, name: str) -> bytes:
    """The snapshot in a file with this name. Raises `CorruptDataError`."""
    kind = next((kind for suffix, kind in _COMPRESSED.items() if name.endswith(suffix)), None)
    if kind is None:
        return data
    try:
        return bytes(decompress(kind, data, _MAX_DECOMPRESSED_BYTES))
    except CorruptDataError as error:
        raise CorruptDataError(f"snapshot {name} cannot be decompressed: {error}") from None


def read_snapshot_with_zxid(data: bytes, name: str) -> Database:
    """The state in a snapshot that holds its zxid, as since ZooKeeper 3.9.

    Raises `CorruptDataError`. The zxid is one that a server can go on from.
    """
    database = _read(data, name, None)
    if not 0 <= database.last_zxid <= _MAX_RESTORED_ZXID:
        raise CorruptDataError(
            f"snapshot {name} has the zxid {database.last_zxid}: no server can continue from one that is not between 0 "
            f"and 0x{_MAX_RESTORED_ZXID:x}. Send another snapshot"
        )
    return database


def _read(data: bytes, name: str, zxid: int | None) -> Database:
    """``zxid`` is None if the snapshot must name it."""
    database = Database()
    try:
        header = decode(FileHeader, data)
        if header.magic != SNAPSHOT_MAGIC or header.version != _VERSION:
            raise CorruptDataError(f"{name} is not a snapshot of version {_VERSION}")
        offset = _read_state(database, data, _FILE_HEADER_BYTES)
        offset = _check_seal(data, offset, name)
        digest: _Digest | None = None
        if offset < len(data):
            digest, offset = decode_from(_Digest, data, offset)
            offset = _check_seal(data, offset, name)
        if offset < len(data):
            (last_zxid,) = _LONG.unpack_from(data, offset)
            _check_seal(data, offset + _LONG.size, name)
            if zxid is not None and last_zxid < zxid:
                raise CorruptDataError(
                    f"snapshot {name} ends with 0x{last_zxid:x}, before the transaction that it is named for: its content is "
                    "another file's"
                )
            zxid = last_zxid if zxid is None else zxid
        if zxid is None:
            raise CorruptDataError(f"{name} does not hold its zxid, as snapshots do since ZooKeeper 3.9")
        database.last_zxid = zxid
        _check_digest(database, digest or _Digest(0, 0, 0), name)
    except (MalformedRecordError, KeyError, struct.error, UnicodeDecodeError) as error:
        raise CorruptDataError(f"snapshot {name} is damaged: {error}") from None
    return database


def read_snapshot_of_leader(data: bytes, zxid: int) -> Database:
    """The state that a leader has sent, which ends with ``zxid``. Raises `CorruptDataError`."""
    database = Database()
    try:
        _read_state(database, data, 0)
    except (MalformedRecordError, KeyError, struct.error, UnicodeDecodeError) as error:
        raise CorruptDataError(f"the snapshot 0x{zxid:x} of the leader cannot be read: {error}") from None
    database.last_zxid = zxid
    return database


def _read_state(database: Database, data: bytes, offset: int) -> int:
    """Read the sessions and the nodes into an empty database; the offset after them."""
    indexes, offset = decode_from(_Indexes, data, offset)
    acls: dict[int, tuple[ACL, ...]] = {entry.number: AccessList(entry.acl) for entry in indexes.acls}
    acls[-1] = OPEN_ACL
    nodes, offset = _read_nodes(data, offset, acls)
    database.tree.replace_all(nodes)
    database.session_timeouts_ms.update((session.id, session.timeout_ms) for session in indexes.sessions)
    return offset


def _read_nodes(data: bytes, offset: int, acls: dict[int, tuple[ACL, ...]]) -> tuple[list[tuple[str, DataNode]], int]:
    """The nodes up to the mark after them. Decoded inline, because there may be millions."""
    nodes: list[tuple[str, DataNode]] = []
    while True:
        name, offset = _take(data, offset)
        path = (name or b"").decode() or "/"
        if name == b"/":
            return nodes, offset
        value, offset = _take(data, offset)
        (acl, czxid, mzxid, ctime, mtime, version, cversion, aversion, owner, pzxid) = _NODE_TAIL.unpack_from(
            data, offset
        )
        offset += _NODE_TAIL.size
        node = DataNode(value, acls[acl], czxid, mzxid, ctime, mtime, version, cversion, aversion, owner, pzxid, 0, 0)
        node.digest = node.compute_digest(path)
        nodes.append((path, node))


def _take(data: bytes, offset: int) -> tuple[bytes | None, int]:
    """A buffer, or None for jute's null, and the offset after it."""
    (size,) = _COUNT.unpack_from(data, offset)
    offset += _COUNT.size
    if size == -1:
        return None, offset
    end = offset + size
    if size < 0 or end > len(data):
        raise MalformedRecordError(f"a length of {size} at byte {offset - 4}, {len(data) - offset} bytes are left")
    return data[offset:end], end


def _check_seal(data: bytes, offset: int, name: str) -> int:
    if len(data) < offset + _SEAL_BYTES or data[offset + 8 : offset + _SEAL_BYTES] != _MARK:
        raise CorruptDataError(f"snapshot {name} ends too early, at byte {len(data)}")
    (checksum,) = _LONG.unpack_from(data, offset)
    if zlib.adler32(memoryview(data)[:offset]) != checksum:
        raise CorruptDataError(f"snapshot {name} is damaged: the checksum of its first {offset} bytes is wrong")
    return offset + _SEAL_BYTES


def _check_digest(database: Database, digest: _Digest, name: str) -> None:
    """Compare the tree with the digest, or note when that is possible.

    Raises `CorruptDataError`."""
    database.has_digest = digest.zxid > 0
    if digest.zxid <= 0:
        return
    if digest.zxid < database.last_zxid and database.last_zxid & _COUNTER:
        raise CorruptDataError(
            f"snapshot {name} holds the state after 0x{digest.zxid:x}, not after the transaction that it is named for: its "
            "content is another file's"
        )
    database.exact_from_zxid = digest.zxid
    if digest.version != DIGEST_VERSION:
        return
    if digest.zxid > database.last_zxid:
        database.named_digest = digest.zxid, digest.digest
    elif digest.digest != database.tree.digest:
        raise CorruptDataError(f"snapshot {name} is damaged: its nodes do not have the digest that it names")
