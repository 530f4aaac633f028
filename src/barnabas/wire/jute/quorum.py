"""The messages between the members of an ensemble on the quorum port, as ZooKeeper's
servers exchange them.

Every message is a `QuorumPacket` without a length in front: Int type, Long zxid, the data's length
and bytes, and a list of identities (-1 for none). Only the snapshot after a SNAP packet is no
packet: it is the content of a snapshot file without the file's header and checksums, and ends with
the string ``BenWasHere``.

    learner                                     leader
    FOLLOWERINFO or OBSERVERINFO  ---------->   accepted epoch; `LearnerInfo`
                                  <----------   LEADERINFO      the new epoch
    ACKEPOCH                      ---------->   last zxid; current epoch, or -1 for the new one
                                  <----------   DIFF, TRUNC or SNAP, then PROPOSAL and COMMIT
                                  <----------   NEWLEADER       the configuration
    ACK (of the epoch's zxid 0)   ---------->
                                  <----------   UPTODATE
    REQUEST, SYNC, REVALIDATE     ---------->
                                  <----------   PROPOSAL ... COMMIT (INFORM to observers)
    ACK                           ---------->
                                  <----------   PING
    PING with touched sessions    ---------->

In ZooKeeper: QuorumPacket, LearnerInfo and the constants of Leader.
"""

import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache

from barnabas.wire.jute.codec import Int, Long, MalformedRecordError, decode
from barnabas.wire.jute.opcodes import OpCode
from barnabas.wire.jute.records import Id

__all__ = [
    "PACKET_BYTES",
    "PROTOCOL_VERSION",
    "SNAPSHOT_SIGNATURE",
    "ForwardedRequest",
    "LearnerInfo",
    "PacketReader",
    "PacketRun",
    "PacketType",
    "QuorumPacket",
    "SnapshotScanner",
    "decode_forwarded_request",
    "decode_learner_info",
    "decode_revalidation",
    "decode_session_answer",
    "decode_touched_sessions",
    "encode_forwarded_frames",
    "encode_forwarded_request",
    "encode_packet",
    "encode_packets",
    "encode_revalidation",
    "encode_session_answer",
    "encode_signal",
    "encode_signals",
    "encode_touched_sessions",
    "epoch_of",
    "first_zxid_of",
    "is_forwarded_sync",
]

PROTOCOL_VERSION = 0x10000
"""The version of the protocol since ZooKeeper 3.4, in LEADERINFO and `LearnerInfo`."""
SNAPSHOT_SIGNATURE = b"\0\0\0\x0aBenWasHere"
"""The string that ends a snapshot on the wire."""

_HEAD = struct.Struct(">iqi")
_SIGNAL = struct.Struct(">iqii")
_INT = struct.Struct(">i")
_TOUCH = struct.Struct(">qi")
_ANSWER = struct.Struct(">q?")
_REQUEST = struct.Struct(">qii")
_REQUEST_FRAME = struct.Struct(">iqiq")
_NO_IDENTITIES = b"\xff\xff\xff\xff"
PACKET_BYTES = _HEAD.size + len(_NO_IDENTITIES)
"""The size of a packet beside its data."""
_MAX_IDENTITIES = 1000
_NODE_STAT_BYTES = 8 + 8 * 4 + 4 * 3 + 8 + 8
_SESSION_BYTES = 12
_OLD_INFO_BYTES = 12  # without the version of the configuration


class PacketType(IntEnum):
    """The type of a packet."""

    REQUEST = 1
    PROPOSAL = 2
    ACK = 3
    COMMIT = 4
    PING = 5
    REVALIDATE = 6
    SYNC = 7
    INFORM = 8
    COMMIT_AND_ACTIVATE = 9
    NEWLEADER = 10
    FOLLOWERINFO = 11
    UPTODATE = 12
    DIFF = 13
    TRUNC = 14
    SNAP = 15
    OBSERVERINFO = 16
    LEADERINFO = 17
    ACKEPOCH = 18
    INFORM_AND_ACTIVATE = 19


_SYNC = _INT.pack(OpCode.SYNC)
_REQUEST_TYPE = int(PacketType.REQUEST)
_SIGNALS_IN_RUNS = frozenset(map(int, (PacketType.ACK, PacketType.COMMIT)))
_DATA_IN_RUNS = frozenset((_REQUEST_TYPE, int(PacketType.PROPOSAL)))


@dataclass(slots=True)
class LearnerInfo:
    """The data of FOLLOWERINFO and OBSERVERINFO."""

    server_id: Long
    protocol_version: Int
    config_version: Long


@dataclass(slots=True)
class QuorumPacket:
    """One message; ``authinfo`` are the identities of the client whose REQUEST it is."""

    type: Int
    zxid: Long
    data: bytes | None = None
    authinfo: list[Id] | None = None


def epoch_of(zxid: int) -> int:
    """The epoch in a zxid."""
    return zxid >> 32


def first_zxid_of(epoch: int) -> int:
    """The zxid of an epoch before its first transaction."""
    return epoch << 32


def encode_packet(packet_type: int, zxid: int, data: bytes | bytearray, authinfo: list[Id] | None = None) -> bytes:
    """A packet with data."""
    head = _HEAD.pack(packet_type, zxid, len(data))
    if authinfo is None:
        return b"".join((head, data, _NO_IDENTITIES))
    return b"".join((head, data, _encode_identities(tuple(authinfo))))


@lru_cache(maxsize=256)
def _encode_identities(identities: tuple[Id, ...]) -> bytes:
    """The identities of a connection; all its requests carry them."""
    out = bytearray(_INT.pack(len(identities)))
    for scheme, name in identities:
        for text in (scheme, name):
            raw = (text or "").encode()
            out += _INT.pack(len(raw))
            out += raw
    return bytes(out)


def encode_signal(packet_type: int, zxid: int) -> bytes:
    """A packet without data: ACK, COMMIT, PING, DIFF and most others."""
    return _SIGNAL.pack(packet_type, zxid, -1, -1)


def encode_signals(packet_type: int, zxids: Iterable[int]) -> bytes:
    """`encode_signal` of each zxid."""
    number, pack = int(packet_type), _SIGNAL.pack
    return b"".join([pack(number, zxid, -1, -1) for zxid in zxids])


def encode_packets(packet_type: int, first_zxid: int, payloads: Iterable[bytes | bytearray]) -> bytes:
    """`encode_packet` of each transaction, whose zxids rise by one."""
    number, pack = int(packet_type), _HEAD.pack
    parts: list[bytes | bytearray] = []
    for zxid, payload in enumerate(payloads, first_zxid):
        parts += (pack(number, zxid, len(payload)), payload, _NO_IDENTITIES)
    return b"".join(parts)


def _equal_signals(data: bytes, position: int, packet_type: int) -> list[int]:
    """The zxids of the packets without data and of the same type, from ``position`` on."""
    zxids: list[int] = []
    size_bytes = _SIGNAL.size
    whole = memoryview(data)[position : position + (len(data) - position) // size_bytes * size_bytes]
    for kind, zxid, size, count in _SIGNAL.iter_unpack(whole):
        if kind != packet_type or size != -1 or count != -1:
            break
        zxids.append(zxid)
    return zxids


class PacketRun:
    """Packets of one type that have come behind each other: PROPOSAL, COMMIT, ACK or REQUEST,
    which come in thousands."""

    __slots__ = ("authinfo", "payloads", "type", "zxids")

    def __init__(
        self, packet_type: int, zxids: list[int], payloads: list[bytes] | None, authinfo: list[Id] | None
    ) -> None:
        """``payloads`` are the data, None for packets without; all have the same ``authinfo``."""
        self.type = packet_type
        self.zxids = zxids
        self.payloads = payloads
        self.authinfo = authinfo

    def packets(self) -> list[QuorumPacket]:
        """Each by itself."""
        if self.payloads is None:
            return [QuorumPacket(self.type, zxid) for zxid in self.zxids]
        pairs = zip(self.zxids, self.payloads, strict=True)
        return [QuorumPacket(self.type, zxid, data, self.authinfo) for zxid, data in pairs]


class PacketReader:
    """Cuts a stream into packets. A length that lies costs no memory: nothing is reserved ahead."""

    __slots__ = ("_buffer", "_identities", "_identity_bytes", "max_data_bytes")

    def __init__(self, max_data_bytes: int) -> None:
        self._buffer = bytearray()
        self.max_data_bytes = max_data_bytes
        self._identity_bytes = _NO_IDENTITIES
        """The identities of the last packet that had some: the next one often has the same."""
        self._identities: list[Id] | None = None

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        """Add bytes that have arrived."""
        self._buffer += data

    def take_all(self) -> bytearray:
        """All bytes that are not read yet, which are no packets."""
        taken, self._buffer = self._buffer, bytearray()
        return taken

    def packets(self) -> list[QuorumPacket]:
        """All whole packets up to a SNAP, behind which there are no packets.

        Raises `MalformedRecordError`."""
        found: list[QuorumPacket] = []
        for each in self.runs():
            if isinstance(each, PacketRun):
                found += each.packets()
            else:
                found.append(each)
        return found

    def runs(self) -> list[QuorumPacket | PacketRun]:
        """Like `packets`; those that come in thousands are in a `PacketRun`, one or many.

        What stands before a packet that is malformed is lost with the connection.
        """
        found: list[QuorumPacket | PacketRun] = []
        if not self._has_whole_packet():
            return found
        data = bytes(self._buffer)
        position, end = 0, len(data)
        while end - position >= _SIGNAL.size:
            packet_type, zxid, size, count = _SIGNAL.unpack_from(data, position)
            if size == -1 and count == -1:
                if packet_type in _SIGNALS_IN_RUNS:
                    zxids = _equal_signals(data, position, packet_type)
                    position += _SIGNAL.size * len(zxids)
                    found.append(PacketRun(packet_type, zxids, None, None))
                    continue
                packet = QuorumPacket(packet_type, zxid)
                position += _SIGNAL.size
            elif packet_type in _DATA_IN_RUNS and (run := self._equal_packets(data, position, packet_type)) is not None:
                position = run[1]
                found.append(run[0])
                continue
            elif (one := self._with_data(data, position, packet_type, zxid, size)) is not None:
                packet, position = one
            else:
                break
            found.append(packet)
            if packet_type == PacketType.SNAP:
                break
        if position:
            del self._buffer[:position]
        return found

    def _has_whole_packet(self) -> bool:
        """Whether the first packet may be whole.

        So the bytes of a large one are looked at when it is there, not with each part."""
        buffer = self._buffer
        if len(buffer) < _SIGNAL.size:
            return False
        packet_type: int
        size: int
        packet_type, _, size = _HEAD.unpack_from(buffer)
        if size > self.max_data_bytes:
            raise MalformedRecordError(f"a packet of type {packet_type} with {size} bytes of data")
        return len(buffer) >= _HEAD.size + size + 4

    def _equal_packets(self, data: bytes, position: int, packet_type: int) -> tuple[PacketRun, int] | None:
        """The packets from ``position`` on of the same type with data, and the identities that the
        last packet had; what is behind them. None if the first is not one."""
        if packet_type == _REQUEST_TYPE:
            tail, authinfo = self._identity_bytes, self._identities
        else:
            tail, authinfo = _NO_IDENTITIES, None
        zxids: list[int] = []
        payloads: list[bytes] = []
        unpack, head_bytes, tail_bytes = _HEAD.unpack_from, _HEAD.size, len(tail)
        most_bytes, last = self.max_data_bytes, len(data) - head_bytes
        while position <= last:
            kind, zxid, size = unpack(data, position)
            start = position + head_bytes
            end = start + size
            if kind != packet_type or not 0 <= size <= most_bytes or not data.startswith(tail, end):
                break
            zxids.append(zxid)
            payloads.append(data[start:end])
            position = end + tail_bytes
        return (PacketRun(packet_type, zxids, payloads, authinfo), position) if zxids else None

    def _with_data(
        self, buffer: bytes, offset: int, packet_type: int, zxid: int, size: int
    ) -> tuple[QuorumPacket, int] | None:
        """A packet with data or identities, and the offset behind it; None if it is not whole."""
        start = offset + _HEAD.size
        if size < -1 or size > self.max_data_bytes:
            raise MalformedRecordError(f"a packet of type {packet_type} with {size} bytes of data")
        end = start + max(size, 0)
        if len(buffer) < end + 4:
            return None
        data = buffer[start:end] if size >= 0 else None
        if buffer.startswith(self._identity_bytes, end):
            return QuorumPacket(packet_type, zxid, data, self._identities), end + len(self._identity_bytes)
        (count,) = _INT.unpack_from(buffer, end)
        if count == -1:
            return QuorumPacket(packet_type, zxid, data), end + 4
        if not 0 <= count <= _MAX_IDENTITIES:
            raise MalformedRecordError(f"a packet of type {packet_type} with {count} identities")
        first = end
        end += 4
        texts: list[str] = []
        for _ in range(2 * count):
            if len(buffer) < end + 4:
                return None
            (size,) = _INT.unpack_from(buffer, end)
            if not -1 <= size <= self.max_data_bytes:
                raise MalformedRecordError(f"an identity of {size} bytes")
            end += 4 + max(size, 0)
            if len(buffer) < end:
                return None
            texts.append(buffer[end - max(size, 0) : end].decode("utf-8", "replace"))
        identities = [Id(texts[each], texts[each + 1]) for each in range(0, 2 * count, 2)]
        self._identity_bytes, self._identities = buffer[first:end], identities
        return QuorumPacket(packet_type, zxid, data, identities), end


class SnapshotScanner:
    """Finds the end of a snapshot in a stream; each byte is looked at once.

    The snapshot is: Int sessions (Long, Int each); Int access control lists (Long number, Int
    entries of Int, two strings); nodes (path, data, 68 bytes) up to the path "/"; the signature.
    """

    __slots__ = ("_left", "_position", "_step", "data")

    def __init__(self) -> None:
        self.data = bytearray()
        self._position = 0
        self._step: Callable[[], int | None] = self._sessions
        self._left = -1

    def feed(self, data: bytes | bytearray | memoryview) -> int | None:
        """Add bytes; the offset behind the signature once it is there.

        Raises `MalformedRecordError`."""
        self.data += data
        while True:
            before = self._position, self._step, self._left
            end = self._step()
            if end is not None:
                return end
            if before == (self._position, self._step, self._left):
                return None

    def _int(self, offset: int) -> int | None:
        if len(self.data) < offset + 4:
            return None
        value: int = _INT.unpack_from(self.data, offset)[0]
        return value

    def _buffer(self, offset: int) -> int | None:
        """The offset behind a string or buffer, which may be null."""
        size = self._int(offset)
        if size is None:
            return None
        if size < -1:
            raise MalformedRecordError(f"a length of {size} in a snapshot")
        end = offset + 4 + max(size, 0)
        return end if len(self.data) >= end else None

    def _sessions(self) -> None:
        count = self._int(self._position)
        if count is None:
            return
        end = self._position + 4 + count * _SESSION_BYTES
        if count < 0:
            raise MalformedRecordError(f"a snapshot with {count} sessions")
        if len(self.data) >= end:
            self._position = end
            self._step = self._acls

    def _acls(self) -> None:
        if self._left < 0:
            count = self._int(self._position)
            if count is None:
                return
            if count < 0:
                raise MalformedRecordError(f"a snapshot with {count} access control lists")
            self._left = count
            self._position += 4
        while self._left:
            end = self._acl(self._position)
            if end is None:
                return
            self._position = end
            self._left -= 1
        self._step = self._nodes

    def _acl(self, offset: int) -> int | None:
        count = self._int(offset + 8)
        if count is None:
            return None
        end = offset + 12
        for _ in range(max(count, 0)):
            after_scheme = self._buffer(end + 4)
            after_id = self._buffer(after_scheme) if after_scheme is not None else None
            if after_id is None:
                return None
            end = after_id
        return end

    def _nodes(self) -> int | None:
        data = self.data
        position = self._position
        end_of_bytes = len(data)
        unpack = _INT.unpack_from
        while position + 4 <= end_of_bytes:
            (size,) = unpack(data, position)
            if size < 0:
                raise MalformedRecordError(f"a path of {size} bytes in a snapshot")
            after_path = position + 4 + size
            if after_path > end_of_bytes:
                break
            # "/" is the path of no node: the root's is empty.
            if size == 1 and data[position + 4] == 0x2F:
                signed: int = after_path + len(SNAPSHOT_SIGNATURE)
                if signed > end_of_bytes:
                    break
                if data[after_path:signed] != SNAPSHOT_SIGNATURE:
                    raise MalformedRecordError("a snapshot without the signature at its end")
                return signed
            if after_path + 4 > end_of_bytes:
                break
            (size,) = unpack(data, after_path)
            if size < -1:
                raise MalformedRecordError(f"a node's data of {size} bytes in a snapshot")
            end = after_path + 4 + max(size, 0) + _NODE_STAT_BYTES
            if end > end_of_bytes:
                break
            position = end
        self._position = position
        return None


# The data of packets


@dataclass(slots=True)
class ForwardedRequest:
    """A client's request in a REQUEST packet."""

    session_id: int
    xid: int
    opcode: int
    body: bytes


def encode_forwarded_request(
    session_id: int, xid: int, opcode: int, body: bytes | bytearray | memoryview, ids: list[Id]
) -> bytes:
    """A REQUEST packet; ``body`` is the request's record as the client sent it."""
    return encode_packet(PacketType.REQUEST, -1, _REQUEST.pack(session_id, xid, opcode) + bytes(body), ids)


def encode_forwarded_frames(session_id: int, frames: Iterable[bytes], ids: list[Id]) -> bytes:
    """A REQUEST packet for each frame of a client, whose header and body are those
    of a forwarded request."""
    identities = _encode_identities(tuple(ids))
    pack = _REQUEST_FRAME.pack
    parts: list[bytes] = []
    for frame in frames:
        parts += (pack(_REQUEST_TYPE, -1, len(frame) + 8, session_id), frame, identities)
    return b"".join(parts)


def decode_forwarded_request(data: bytes) -> ForwardedRequest:
    """The request in the data of a REQUEST packet. Raises `MalformedRecordError`."""
    if len(data) < _REQUEST.size:
        raise MalformedRecordError(f"a REQUEST of {len(data)} bytes")
    session_id, xid, opcode = _REQUEST.unpack_from(data)
    return ForwardedRequest(session_id, xid, opcode, data[_REQUEST.size :])


def is_forwarded_sync(data: bytes) -> bool:
    """Whether the request in a REQUEST packet is a sync, which is no write."""
    return data[12:16] == _SYNC


def encode_touched_sessions(zxid: int, sessions: dict[int, int]) -> bytes:
    """A learner's answer to PING: the sessions whose clients were heard since the last
    one, with their timeouts."""
    return encode_packet(PacketType.PING, zxid, b"".join(_TOUCH.pack(*session) for session in sessions.items()))


def decode_touched_sessions(packet: QuorumPacket) -> list[tuple[int, int]]:
    """The sessions and timeouts (ms) in a learner's PING. Raises `MalformedRecordError`."""
    data = packet.data or b""
    if len(data) % _TOUCH.size:
        raise MalformedRecordError(f"a PING with {len(data)} bytes of sessions")
    return list(_TOUCH.iter_unpack(data))


def encode_revalidation(session_id: int, timeout_ms: int) -> bytes:
    """A learner's question whether a session is alive."""
    return encode_packet(PacketType.REVALIDATE, -1, _TOUCH.pack(session_id, timeout_ms))


def decode_revalidation(packet: QuorumPacket) -> tuple[int, int]:
    """The session and the timeout (ms) in a learner's REVALIDATE. Raises `MalformedRecordError`."""
    if len(packet.data or b"") != _TOUCH.size:
        raise MalformedRecordError("a REVALIDATE without a session")
    session_id, timeout_ms = _TOUCH.unpack(packet.data or b"")
    return session_id, timeout_ms


def encode_session_answer(session_id: int, is_valid: bool) -> bytes:
    """The leader's answer to REVALIDATE."""
    return encode_packet(PacketType.REVALIDATE, -1, _ANSWER.pack(session_id, is_valid))


def decode_session_answer(packet: QuorumPacket) -> tuple[int, bool]:
    """The session in the leader's REVALIDATE, and whether it is alive.

    Raises `MalformedRecordError`."""
    if len(packet.data or b"") != _ANSWER.size:
        raise MalformedRecordError("an answer to REVALIDATE without a session")
    session_id, is_valid = _ANSWER.unpack(packet.data or b"")
    return session_id, is_valid


def decode_learner_info(packet: QuorumPacket) -> LearnerInfo:
    """The data of FOLLOWERINFO or OBSERVERINFO; before 3.5 they had no configuration.

    Raises `MalformedRecordError`."""
    data = packet.data or b""
    if len(data) == _OLD_INFO_BYTES:
        data += bytes(8)
    return decode(LearnerInfo, data)
