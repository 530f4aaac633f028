"""Whole frames of the client protocol, without and with their four-byte length prefix.

    connect:  ConnectRequest [bool read_only]   ->   ConnectResponse [bool read_only]
    request:  RequestHeader  body               ->   ReplyHeader  body (none when err is not 0)
    event:                                      ->   ReplyHeader(-1, -1, 0)  WatcherEvent
    multi:    (MultiHeader(type, false, -1)  request)*    MultiHeader(-1, true, -1)
    results:  (MultiHeader(type, false, err) response)*   MultiHeader(-1, true, -1)

A ReplyHeader is int xid, long zxid, int err; a MultiHeader is int type, bool done, int err. Both
have a fixed size, so they are packed here and are no records of ours.

``read_only`` came with 3.4: older clients neither send nor receive it.
"""

import struct
from collections.abc import Iterable

from barnabas.base.files import Buffer
from barnabas.wire.jute.codec import MalformedRecordError, decode_from, encode_into
from barnabas.wire.jute.layouts import LENGTH_AND_REPLY, MULTI_HEADER
from barnabas.wire.jute.opcodes import OpCode, Xid
from barnabas.wire.jute.records import (
    CheckVersionRequest,
    ConnectRequest,
    ConnectResponse,
    Create2Response,
    CreateRequest,
    CreateResponse,
    CreateTTLRequest,
    DeleteRequest,
    ErrorResponse,
    GetChildrenRequest,
    GetChildrenResponse,
    GetDataRequest,
    GetDataResponse,
    SetDataRequest,
    SetDataResponse,
    WatcherEvent,
)

__all__ = [
    "REPLY_HEADER_BYTES",
    "MultiPart",
    "decode_connect_request",
    "decode_connect_response",
    "decode_multi_request",
    "decode_multi_response",
    "decode_reply_header",
    "encode_connect_request",
    "encode_connect_response",
    "encode_encoded_reply",
    "encode_event",
    "encode_multi_part",
    "encode_multi_request",
    "encode_multi_response",
    "encode_reply",
    "encode_request",
]

MultiPart = tuple[int, object]
"""An `OpCode` and its request or response record (None where there is none)."""

_LENGTH = struct.Struct(">i")
_REPLY_HEADER = struct.Struct(">iqi")
REPLY_HEADER_BYTES = _REPLY_HEADER.size
_REQUEST = struct.Struct(">iii")
_MULTI_END = MULTI_HEADER.pack(-1, True, -1)

_MULTI_REQUESTS: dict[int, type] = {
    OpCode.CREATE: CreateRequest,
    OpCode.CREATE2: CreateRequest,
    OpCode.CREATE_CONTAINER: CreateRequest,
    OpCode.CREATE_TTL: CreateTTLRequest,
    OpCode.DELETE: DeleteRequest,
    OpCode.SET_DATA: SetDataRequest,
    OpCode.CHECK: CheckVersionRequest,
    OpCode.GET_CHILDREN: GetChildrenRequest,
    OpCode.GET_DATA: GetDataRequest,
}

_MULTI_RESPONSES: dict[int, type | None] = {
    OpCode.CREATE: CreateResponse,
    OpCode.CREATE2: Create2Response,
    OpCode.DELETE: None,
    OpCode.SET_DATA: SetDataResponse,
    OpCode.CHECK: None,
    OpCode.GET_CHILDREN: GetChildrenResponse,
    OpCode.GET_DATA: GetDataResponse,
    OpCode.ERROR: ErrorResponse,
}


def _framed(out: bytearray) -> bytearray:
    _LENGTH.pack_into(out, 0, len(out) - 4)
    return out


def encode_connect_request(request: ConnectRequest, read_only: bool | None = False) -> bytearray:
    """A frame; ``read_only=None`` as clients before 3.4 send it."""
    out = bytearray(4)
    encode_into(out, request)
    if read_only is not None:
        out.append(read_only)
    return _framed(out)


def decode_connect_request(data: Buffer) -> tuple[ConnectRequest, bool | None]:
    """The request, and whether the client accepts a read-only server (None: an old client
    that does not send this)."""
    request, end = decode_from(ConnectRequest, data)
    return request, bool(data[end]) if end < len(data) else None


def encode_connect_response(response: ConnectResponse, read_only: bool | None = False) -> bytearray:
    """A frame; ``read_only=None`` for clients before 3.4."""
    out = bytearray(4)
    encode_into(out, response)
    if read_only is not None:
        out.append(read_only)
    return _framed(out)


def decode_connect_response(data: Buffer) -> tuple[ConnectResponse, bool]:
    """The response, and whether the server is read-only."""
    response, end = decode_from(ConnectResponse, data)
    return response, end < len(data) and bool(data[end])


def encode_request(xid: int, opcode: int, body: object | None) -> bytearray:
    """A frame with a request's header and its record (None: ping, closeSession)."""
    out = bytearray(_REQUEST.pack(0, xid, opcode))
    if body is not None:
        encode_into(out, body)
    return _framed(out)


def encode_reply(xid: int, zxid: int, err: int, body: object | None = None) -> bytearray:
    """A frame with a reply's header and its record, if it has one."""
    if body is None:
        return bytearray(LENGTH_AND_REPLY.pack(16, xid, zxid, err))
    out = bytearray(LENGTH_AND_REPLY.pack(0, xid, zxid, err))
    encode_into(out, body)
    return _framed(out)


def encode_encoded_reply(xid: int, zxid: int, body: bytes | bytearray) -> bytearray:
    """A frame with the header of a reply that is no error, and a body that is encoded already."""
    out = bytearray(LENGTH_AND_REPLY.pack(REPLY_HEADER_BYTES + len(body), xid, zxid, 0))
    out += body
    return out


def decode_reply_header(data: Buffer) -> tuple[int, int, int]:
    """``(xid, zxid, err)``; the body follows them. Raises `MalformedRecordError`."""
    try:
        xid, zxid, err = _REPLY_HEADER.unpack_from(data)
    except struct.error as error:
        raise MalformedRecordError(f"a reply of {len(data)} bytes has no header") from error
    return xid, zxid, err


def encode_event(event: WatcherEvent) -> bytearray:
    """A frame with a watch event."""
    return encode_reply(Xid.WATCHER_EVENT, -1, 0, event)


def encode_multi_request(xid: int, parts: Iterable[MultiPart], opcode: int = OpCode.MULTI) -> bytearray:
    """A frame with a multi or multiRead."""
    out = bytearray(_REQUEST.pack(0, xid, opcode))
    for part_type, record in parts:
        out += MULTI_HEADER.pack(part_type, False, -1)
        encode_into(out, record)
    out += _MULTI_END
    return _framed(out)


def _decode_parts(
    types: dict[int, type | None], data: bytes, offset: int, max_parts: int | None = None
) -> list[MultiPart]:
    parts: list[MultiPart] = []
    while True:
        try:
            part_type, done, _ = MULTI_HEADER.unpack_from(data, offset)
        except struct.error as error:
            raise MalformedRecordError(f"a multi without an end at byte {offset}") from error
        offset += MULTI_HEADER.size
        if done:
            return parts
        if part_type not in types:
            raise MalformedRecordError(f"a multi with an operation of type {part_type}")
        if max_parts is not None and len(parts) >= max_parts:
            raise MalformedRecordError(f"a multi with more than {max_parts} operations")
        record_type = types[part_type]
        record: object | None = None
        if record_type is not None:
            record, offset = decode_from(record_type, data, offset)
        parts.append((part_type, record))


def decode_multi_request(data: Buffer, offset: int = 0, max_parts: int | None = None) -> list[MultiPart]:
    """The operations of a multi or multiRead body.

    Raises `MalformedRecordError`, also for more than ``max_parts``."""
    return _decode_parts(_MULTI_REQUESTS, bytes(data), offset, max_parts)  # type: ignore[arg-type]  # no None among the values


def encode_multi_response(xid: int, zxid: int, err: int, parts: Iterable[MultiPart]) -> bytearray:
    """A frame with the results of a multi; a failed part is ``(OpCode.ERROR, ErrorResponse)``."""
    out = bytearray(LENGTH_AND_REPLY.pack(0, xid, zxid, err))
    for part in parts:
        encode_multi_part(out, part)
    encode_multi_part(out, None)
    return _framed(out)


def encode_multi_part(out: bytearray, part: MultiPart | None) -> None:
    """Append one result of a multi, or what is behind the last one."""
    if part is None:
        out += _MULTI_END
        return
    part_type, record = part
    out += MULTI_HEADER.pack(part_type, False, record.err if isinstance(record, ErrorResponse) else 0)
    if record is not None:
        encode_into(out, record)


def decode_multi_response(data: Buffer, offset: int = REPLY_HEADER_BYTES) -> list[MultiPart]:
    """The results in a multi's reply; ``offset`` is the end of its reply header.

    Raises `MalformedRecordError`."""
    return _decode_parts(_MULTI_RESPONSES, bytes(data), offset)
