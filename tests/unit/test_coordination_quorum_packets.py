"""The messages between the members of an ensemble, byte for byte, and what hostile
bytes do to their readers."""

import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.coordination.core.database import Database
from barnabas.coordination.storage.snapshot import encode_snapshot_for_learner, read_snapshot_of_leader
from barnabas.wire.jute.codec import MalformedRecordError, encode
from barnabas.wire.jute.opcodes import OpCode
from barnabas.wire.jute.quorum import (
    SNAPSHOT_SIGNATURE,
    LearnerInfo,
    PacketReader,
    PacketType,
    QuorumPacket,
    SnapshotScanner,
    decode_forwarded_request,
    decode_learner_info,
    decode_touched_sessions,
    encode_forwarded_request,
    encode_packet,
    encode_signal,
    encode_touched_sessions,
)
from barnabas.wire.jute.records import ACL, Id
from barnabas.wire.jute.transactions import CreateSessionTxn, CreateTxn, TxnHeader

packets = st.builds(
    QuorumPacket,
    st.sampled_from([each for each in PacketType if each is not PacketType.SNAP]),
    st.integers(-(2**63), 2**63 - 1),
    st.none() | st.binary(max_size=50),
    st.none() | st.lists(st.builds(Id, st.text(max_size=5), st.text(max_size=5)), max_size=3),
)


def test_a_follower_info_has_the_bytes_of_zookeeper() -> None:
    """Type 11, the accepted epoch as a zxid, 20 bytes of LearnerInfo, no identities."""
    info = encode(LearnerInfo(2, 0x10000, 0))
    assert encode_packet(PacketType.FOLLOWERINFO, 3 << 32, info).hex() == (
        "0000000b" + "0000000300000000" + "00000014" + "0000000000000002" + "00010000" + "00" * 8 + "ffffffff"
    )
    assert decode_learner_info(QuorumPacket(11, 0, bytes(info))) == LearnerInfo(2, 0x10000, 0)


def test_an_acknowledgement_has_neither_data_nor_identities() -> None:
    """Both are jute's null."""
    assert encode_signal(PacketType.ACK, 0x100000001).hex() == "00000003" + "0000000100000001" + "ffffffff" * 2


@given(st.lists(packets, max_size=8), st.data())
def test_packets_survive_any_cut_of_the_stream(sent: list[QuorumPacket], data: st.DataObject) -> None:
    """The reader returns the same packets, however the bytes are cut."""
    stream = b"".join(bytes(encode(packet)) for packet in sent)
    reader = PacketReader(1000)
    found: list[QuorumPacket] = []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        reader.feed(stream[:size])
        stream = stream[size:]
        found += reader.packets()
    assert found == sent


def test_bytes_behind_a_snapshot_packet_are_no_packets() -> None:
    """The reader stops behind SNAP, and gives the rest as it came."""
    reader = PacketReader(1000)
    reader.feed(encode_signal(PacketType.ACK, 1) + encode_signal(PacketType.SNAP, 7) + b"state")
    assert [packet.type for packet in reader.packets()] == [PacketType.ACK, PacketType.SNAP]
    assert reader.take_all() == b"state"


@pytest.mark.parametrize("size", [-2, 1001, 2**31 - 1])
def test_a_length_that_lies_is_refused_at_once(size: int) -> None:
    """Negative lengths and those above the limit end the connection before anything
    is kept for them."""
    reader = PacketReader(1000)
    reader.feed(struct.pack(">iqi", 1, 0, size) + b"\xff\xff\xff\xff")
    with pytest.raises(MalformedRecordError):
        reader.packets()


def test_too_many_identities_are_refused() -> None:
    """A count of identities is bounded."""
    reader = PacketReader(1000)
    reader.feed(struct.pack(">iqii", 1, 0, -1, 1_000_000))
    with pytest.raises(MalformedRecordError):
        reader.packets()


def test_a_forwarded_request_keeps_the_session_and_the_identities() -> None:
    """REQUEST carries session, xid, opcode and the record; the identities stand in authinfo."""
    reader = PacketReader(1000)
    reader.feed(encode_forwarded_request(-5, 9, OpCode.DELETE, b"body", [Id("ip", "127.0.0.1")]))
    (packet,) = reader.packets()
    request = decode_forwarded_request(packet.data or b"")
    assert (request.session_id, request.xid, request.opcode, request.body) == (-5, 9, OpCode.DELETE, b"body")
    assert packet.authinfo == [Id("ip", "127.0.0.1")]
    with pytest.raises(MalformedRecordError):
        decode_forwarded_request(b"short")


def test_a_ping_names_the_touched_sessions() -> None:
    """Twelve bytes for each session."""
    reader = PacketReader(1000)
    reader.feed(encode_touched_sessions(4, {7: 1000, -8: 2000}))
    (packet,) = reader.packets()
    assert decode_touched_sessions(packet) == [(7, 1000), (-8, 2000)]
    with pytest.raises(MalformedRecordError):
        decode_touched_sessions(QuorumPacket(5, 0, b"x"))


def some_state() -> Database:
    """Sessions, access control lists, and data that looks like the end of a snapshot."""
    database = Database()
    database.apply(TxnHeader(5, 0, 1, 0, OpCode.CREATE_SESSION), CreateSessionTxn(4000), None)
    acl = [ACL(31, Id("digest", "bob:x")), ACL(1, Id("world", "anyone"))]
    for number, data in enumerate((b"", None, b"\0\0\0\x01/" + SNAPSHOT_SIGNATURE, bytes(5000)), 2):
        database.apply(TxnHeader(5, 0, number, 0, OpCode.CREATE), CreateTxn(f"/n{number}", data, acl, False, -1), None)
    return database


@pytest.mark.parametrize("step", [1, 7, 1000, 1 << 20])
def test_a_snapshot_is_found_in_the_stream_and_read(step: int) -> None:
    """The scanner finds the end however the bytes come; the state and its digest are
    those of the leader."""
    database = some_state()
    stream = b"".join(encode_snapshot_for_learner(database)) + SNAPSHOT_SIGNATURE + b"behind"
    scanner = SnapshotScanner()
    end = None
    for offset in range(0, len(stream), step):
        end = scanner.feed(stream[offset : offset + step])
        if end is not None:
            break
    assert end == len(stream) - len(b"behind")
    copy = read_snapshot_of_leader(stream[: end - len(SNAPSHOT_SIGNATURE)], 5)
    assert copy.tree.digest == database.tree.digest
    assert copy.session_timeouts_ms == {5: 4000}
    assert copy.last_zxid == 5


@given(st.binary(max_size=200))
def test_a_scanner_of_hostile_bytes_ends(data: bytes) -> None:
    """Bytes that are no snapshot are refused or waited on; nothing else happens."""
    scanner = SnapshotScanner()
    with contextlib.suppress(MalformedRecordError):
        scanner.feed(data)
