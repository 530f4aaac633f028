"""jute: every record by round trips and against kazoo's codec, and hostile bytes."""

import dataclasses
import typing
from typing import Annotated, get_args, get_origin

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kazoo import security
from kazoo.protocol import serialization as kazoo

from barnabas.wire.jute import records, transactions
from barnabas.wire.jute.codec import MalformedRecordError, Usual, decode, decode_from, encode
from barnabas.wire.jute.frames import (
    decode_connect_request,
    decode_connect_response,
    decode_multi_request,
    decode_multi_response,
    decode_reply_header,
    encode_connect_request,
    encode_connect_response,
    encode_event,
    encode_multi_request,
    encode_multi_response,
    encode_reply,
    encode_request,
)
from barnabas.wire.jute.opcodes import OpCode
from barnabas.wire.jute.records import ACL, Id

RECORD_TYPES = [
    value
    for module in (records, transactions)
    for name in module.__all__
    if isinstance(value := getattr(module, name), type)
]


def values_of(hint: object) -> st.SearchStrategy[object]:
    if get_origin(hint) is Annotated and isinstance(usual := get_args(hint)[1], Usual):
        return st.one_of(values_of(get_args(hint)[0]), st.just(usual.value))
    if get_origin(hint) is Annotated:
        bits = 31 if get_args(hint)[1] == "i" else 63
        return st.integers(-(1 << bits), (1 << bits) - 1)
    if get_origin(hint) is list:
        return st.lists(values_of(get_args(hint)[0]), max_size=3)
    if hint is bool:
        return st.booleans()
    if hint is str:
        return st.text(st.characters(exclude_categories=["Cs"]), max_size=10)
    if hint is bytes:
        return st.binary(max_size=10)
    if hint is type(None):
        return st.none()
    if isinstance(hint, type):
        return records_of(hint)
    return st.one_of(*(values_of(part) for part in get_args(hint)))


def records_of(record_type: type) -> st.SearchStrategy[object]:
    hints = typing.get_type_hints(record_type, include_extras=True)
    return st.builds(record_type, **{name: values_of(hint) for name, hint in hints.items()})


@pytest.mark.parametrize("record_type", RECORD_TYPES, ids=lambda each: each.__name__)
def test_every_record_comes_back_as_it_was(record_type: type) -> None:
    """Decoding gives the encoded record and uses all bytes."""

    @settings(max_examples=20, deadline=None)
    @given(records_of(record_type))
    def check(record: object) -> None:
        data = bytes(encode(record))
        assert decode_from(record_type, data) == (record, len(data))
        assert decode(record_type, memoryview(b"xx" + data), 2) == record

    check()


@pytest.mark.parametrize("record_type", RECORD_TYPES, ids=lambda each: each.__name__)
def test_truncated_or_arbitrary_bytes_raise_one_error(record_type: type) -> None:
    """Any prefix of a record, and any bytes at all, decode or raise MalformedRecordError."""

    @settings(max_examples=20, deadline=None)
    @given(records_of(record_type), st.binary(max_size=60), st.data())
    def check(record: object, noise: bytes, data: st.DataObject) -> None:
        whole = bytes(encode(record))
        cut = data.draw(st.integers(0, len(whole)))
        if cut < len(whole):
            with pytest.raises(MalformedRecordError):
                decode(record_type, whole[:cut])
        for bad in (noise, whole[:cut] + noise):
            try:
                decode(record_type, bad)
            except MalformedRecordError:
                continue

    check()


@pytest.mark.parametrize("size", [-(1 << 31), -2, -1, 5, 1 << 20, 20_000_000, (1 << 31) - 1])
def test_a_length_beyond_the_bytes_is_refused_before_it_is_used(size: int) -> None:
    """Texts, buffers and lists with counts beyond the remaining bytes."""
    lie = size.to_bytes(4, "big", signed=True) + b"\0\0"
    with pytest.raises(MalformedRecordError):
        decode(records.GetACLRequest, lie)
    with pytest.raises(MalformedRecordError):
        decode(records.GetChildrenResponse, lie)
    path_ok = b"\0\0\0\x01/"
    if size != -1:
        with pytest.raises(MalformedRecordError):
            decode(records.SetDataRequest, path_ok + lie)
        with pytest.raises(MalformedRecordError):
            decode(records.SetACLRequest, path_ok + lie)


def test_text_that_is_not_utf8_is_refused() -> None:
    """Paths are text."""
    with pytest.raises(MalformedRecordError):
        decode(records.GetACLRequest, b"\0\0\0\x02\xff\xfe")


def test_null_stands_for_no_data_and_no_list() -> None:
    """The length -1 is null in nullable fields, and an error in others."""
    request = records.CreateRequest("/a", None, None, 0)
    data = bytes(encode(request))
    assert data.count(b"\xff\xff\xff\xff") == 2
    assert decode(records.CreateRequest, data) == request
    with pytest.raises(MalformedRecordError):
        decode(records.GetACLRequest, b"\xff\xff\xff\xff")


# Against kazoo

STAT = records.Stat(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)
KAZOO_STAT = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)
OPEN = security.ACL(31, security.Id("world", "anyone"))
PAIRS = [
    (kazoo.Create("/é", b"data", [OPEN], 3), OpCode.CREATE, records.CreateRequest("/é", b"data", list(records.OPEN_ACL), 3)),
    (kazoo.Create2("/a", b"", [OPEN], 0), OpCode.CREATE2, records.CreateRequest("/a", b"", list(records.OPEN_ACL), 0)),
    (kazoo.Delete("/a", 7), OpCode.DELETE, records.DeleteRequest("/a", 7)),
    (kazoo.Exists("/a", True), OpCode.EXISTS, records.ExistsRequest("/a", True)),
    (kazoo.GetData("/a", None), OpCode.GET_DATA, records.GetDataRequest("/a", False)),
    (kazoo.SetData("/a", b"x", -1), OpCode.SET_DATA, records.SetDataRequest("/a", b"x", -1)),
    (kazoo.GetACL("/a"), OpCode.GET_ACL, records.GetACLRequest("/a")),
    (kazoo.SetACL("/a", [OPEN], 2), OpCode.SET_ACL, records.SetACLRequest("/a", list(records.OPEN_ACL), 2)),
    (kazoo.GetChildren("/a", None), OpCode.GET_CHILDREN, records.GetChildrenRequest("/a", False)),
    (kazoo.GetChildren2("/a", True), OpCode.GET_CHILDREN2, records.GetChildren2Request("/a", True)),
    (kazoo.Sync("/a"), OpCode.SYNC, records.SyncRequest("/a")),
    (kazoo.CheckVersion("/a", 4), OpCode.CHECK, records.CheckVersionRequest("/a", 4)),
    (kazoo.Reconfig("a", "b", "c", 9), OpCode.RECONFIG, records.ReconfigRequest("a", "b", "c", 9)),
]  # fmt: skip


@pytest.mark.parametrize(("theirs", "opcode", "ours"), PAIRS, ids=[str(opcode.name) for _, opcode, _ in PAIRS])
def test_requests_are_the_bytes_that_kazoo_sends(theirs: object, opcode: OpCode, ours: object) -> None:
    """Kazoo's requests decode to our records, and ours encode to its bytes."""
    assert theirs.type == opcode
    assert bytes(encode(ours)) == bytes(theirs.serialize())
    assert decode(type(ours), bytes(theirs.serialize())) == ours


def test_kazoo_reads_our_responses() -> None:
    """Kazoo decodes our responses to the same values."""
    assert tuple(kazoo.Exists.deserialize(bytes(encode(records.ExistsResponse(STAT))), 0)) == KAZOO_STAT
    data, stat = kazoo.GetData.deserialize(bytes(encode(records.GetDataResponse(b"x", STAT))), 0)
    assert (data, tuple(stat)) == (b"x", KAZOO_STAT)
    children, stat = kazoo.GetChildren2.deserialize(bytes(encode(records.GetChildren2Response(["a", "b"], STAT))), 0)
    assert (children, tuple(stat)) == (["a", "b"], KAZOO_STAT)
    acls, stat = kazoo.GetACL.deserialize(bytes(encode(records.GetACLResponse([ACL(1, Id("ip", "::1"))], STAT))), 0)
    assert (acls, tuple(stat)) == ([security.ACL(1, security.Id("ip", "::1"))], KAZOO_STAT)
    assert kazoo.Create.deserialize(bytes(encode(records.CreateResponse("/a0000000001"))), 0) == "/a0000000001"
    event, _ = kazoo.Watch.deserialize(bytes(encode_event(records.WatcherEvent(3, 3, "/a"))), 20)
    assert (event.type, event.state, event.path) == (3, 3, "/a")


def test_kazoos_multi_is_read_and_answered() -> None:
    """A transaction of kazoo's decodes to parts, and kazoo reads the encoded results."""
    theirs = kazoo.Transaction(
        [kazoo.Create("/a", b"", [OPEN], 0), kazoo.CheckVersion("/b", 1), kazoo.Delete("/c", -1)]
    )
    parts = [
        (OpCode.CREATE, records.CreateRequest("/a", b"", list(records.OPEN_ACL), 0)),
        (OpCode.CHECK, records.CheckVersionRequest("/b", 1)),
        (OpCode.DELETE, records.DeleteRequest("/c", -1)),
    ]
    assert decode_multi_request(bytes(theirs.serialize())) == parts
    assert bytes(encode_multi_request(5, parts))[12:] == bytes(theirs.serialize())
    results = [
        (OpCode.CREATE, records.CreateResponse("/a")),
        (OpCode.CHECK, None),
        (OpCode.SET_DATA, records.SetDataResponse(STAT)),
        (OpCode.ERROR, records.ErrorResponse(-110)),
    ]
    reply = bytes(encode_multi_response(5, 77, 0, results))
    read = kazoo.Transaction.deserialize(reply, 20)
    assert read[0] == "/a"
    assert tuple(read[2]) == KAZOO_STAT
    assert decode_multi_response(reply[4:]) == results


def test_connect_frames_have_the_read_only_flag_or_not() -> None:
    """Clients before 3.4 leave it out."""
    request = records.ConnectRequest(0, 5, 10_000, 99, b"p" * 16)
    frame = bytes(encode_connect_request(request, True))
    assert frame[4:] == bytes(kazoo.Connect(0, 5, 10_000, 99, b"p" * 16, True).serialize())
    assert decode_connect_request(frame[4:]) == (request, True)
    assert decode_connect_request(bytes(encode_connect_request(request, None))[4:]) == (request, None)
    response = records.ConnectResponse(0, 4000, 99, b"p" * 16)
    assert decode_connect_response(bytes(encode_connect_response(response))[4:]) == (response, False)
    assert decode_connect_response(bytes(encode_connect_response(response, None))[4:]) == (response, False)


def test_frames_begin_with_their_length() -> None:
    """Requests and replies, with a body and without."""
    for frame in (
        encode_request(1, OpCode.PING, None),
        encode_request(2, OpCode.GET_DATA, records.GetDataRequest("/a", True)),
        encode_reply(1, 2, 0),
        encode_reply(1, 2, -101),
        encode_reply(1, 2, 0, records.CreateResponse("/a")),
        encode_multi_request(3, []),
    ):
        assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert decode_reply_header(bytes(encode_reply(-1, 1 << 40, -101))[4:]) == (-1, 1 << 40, -101)
    with pytest.raises(MalformedRecordError):
        decode_reply_header(b"short")


@pytest.mark.parametrize(
    "body",
    [b"", b"\0\0\0\x01\0", b"\0\0\0\x63\0\xff\xff\xff\xff", b"\0\0\0\x01\0\xff\xff\xff\xff\0\0\0\x7f"],
    ids=["empty", "half a header", "unknown operation", "a lie in a part"],
)
def test_a_multi_that_cannot_be_read_is_refused(body: bytes) -> None:
    """Without an end, with an unknown operation, with bad parts."""
    with pytest.raises(MalformedRecordError):
        decode_multi_request(body)


def test_acl_and_id_are_values() -> None:
    """Equal lists are one key, so that they are kept in memory once."""
    assert {(ACL(1, Id("world", "anyone")),): 1}[(ACL(1, Id("world", "anyone")),)] == 1
    assert dataclasses.is_dataclass(records.Stat)
