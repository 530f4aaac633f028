"""Request and response headers, and whole frames with their length.

A frame is its length (int32, not counting itself), a header and a message. Headers,
by API and version::

    request   v0  api_key int16, api_version int16, correlation_id int32 (ControlledShutdown v0)
              v1  v0 and client_id, a nullable string with a 16-bit length
              v2  v1 and tagged fields; the client id stays uncompact  (flexible versions of an API)
    response  v0  correlation_id int32
              v1  v0 and tagged fields  (flexible versions of an API)

A response to ApiVersions always has header v0, so that a client can read the answer of a broker
that does not know its version (KIP-511).
"""

from functools import cache
from struct import Struct
from struct import error as StructError  # noqa: N812  # it is a class
from typing import Any, NamedTuple

from barnabas.base.files import Buffer
from barnabas.base.network import Part
from barnabas.base.tasks import Task
from barnabas.base.tuples import new_tuple
from barnabas.wire.kafka.api import ApiKey, api
from barnabas.wire.kafka.codec import has_records, join_small, sliced_writer, writer
from barnabas.wire.kafka.errors import KafkaError, MalformedMessageError
from barnabas.wire.kafka.primitives import skip_tagged_fields
from barnabas.wire.kafka.schema import Message, has_arrays, structures_in
from barnabas.wire.kafka.writer_source import SlicedWriter, Writer

__all__ = [
    "RequestHeader",
    "ResponseHeader",
    "begin_response",
    "decode_request_header",
    "decode_response_header",
    "encode_request",
    "encode_response",
    "free_in_slices",
    "request_header_version",
    "response_header_version",
    "response_version",
]


class RequestHeader(NamedTuple):
    """A request's header; ``body_offset`` is where its message starts in the frame."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_offset: int


class ResponseHeader(NamedTuple):
    """A response's header; ``body_offset`` is where its message starts in the frame."""

    correlation_id: int
    body_offset: int


_PIECES_A_STEP = 2048
"""How many pieces are joined at a time: 300,000 at once take 50 ms."""

_FIXED = Struct(">hhi")
_UNSUPPORTED_VERSION = b"\x00\x23"
"""The error code, behind the correlation id."""
_FIXED_AND_LENGTH = Struct(">hhih")
_SHORT = Struct(">h")
_CORRELATION = Struct(">i")
_LENGTH = Struct(">i")
_RESPONSE_V0 = Struct(">ii")
_RESPONSE_V1 = Struct(">iix")


@cache
def request_header_version(api_key: int, api_version: int) -> int:
    """0, 1 or 2. For a version outside of our range, the nearest we know; for an unknown API, 1."""
    try:
        known = api(api_key)
    except KafkaError:
        return 1
    if known.key is ApiKey.CONTROLLED_SHUTDOWN and api_version == 0:
        return 0
    return 2 if api_version in known.flexible else 1


@cache
def response_header_version(api_key: int, api_version: int) -> int:
    """0 or 1."""
    known = api(api_key)
    if known.key is ApiKey.API_VERSIONS:
        return 0
    return 1 if api_version in known.flexible else 0


def decode_request_header(data: Buffer) -> RequestHeader:
    """The header at the start of a frame. Raises MalformedMessageError.

    Does not judge the API key and version: the caller answers UNSUPPORTED_VERSION
    where they are unknown.
    """
    end = len(data)
    try:
        # A header without a client id is followed by four bytes at least.
        api_key, api_version, correlation_id, length = _FIXED_AND_LENGTH.unpack_from(data)
        # The bounds keep the cache of header versions small whatever clients send.
        known = 0 <= api_key < 128 and 0 <= api_version < 128
        version = request_header_version(api_key, api_version) if known else 1
        if not version:
            return RequestHeader(api_key, api_version, correlation_id, None, 8)
        offset = 10
        client_id = None
        if length >= 0:
            offset += length
            if offset > end:
                raise MalformedMessageError("the client id is longer than the request")
            client_id = str(data[10:offset], "utf-8")
        if version == 2:
            offset = offset + 1 if not data[offset] else skip_tagged_fields(data, offset, end)
    except (StructError, IndexError):
        raise MalformedMessageError("the request ends within its header") from None
    except UnicodeDecodeError:
        raise MalformedMessageError("the client id is not UTF-8") from None
    header: RequestHeader = new_tuple(RequestHeader, (api_key, api_version, correlation_id, client_id, offset))
    return header


def response_version(data: Buffer, api_key: int, api_version: int) -> int:
    """The version of a response to a request of ``api_version``.

    A broker that does not know the version of an ApiVersionsRequest answers in the first one, with
    UNSUPPORTED_VERSION (KIP-511).
    """
    if api_key == ApiKey.API_VERSIONS and bytes(data[4:6]) == _UNSUPPORTED_VERSION:
        return 0
    return api_version


def decode_response_header(data: Buffer, api_key: int, api_version: int) -> ResponseHeader:
    """The header at the start of a response's frame, for the request that was sent.

    Raises MalformedMessageError."""
    try:
        (correlation_id,) = _CORRELATION.unpack_from(data)
        if response_header_version(api_key, api_version) == 0:
            return ResponseHeader(correlation_id, 4)
        return ResponseHeader(correlation_id, skip_tagged_fields(data, 4, len(data)))
    except (StructError, IndexError):
        raise MalformedMessageError("the response ends within its header") from None


def encode_request(message: Message, version: int, correlation_id: int, client_id: str | None) -> list[Part]:
    """A request as a frame, its length in front."""
    header_version = request_header_version(message.API_KEY, version)
    header = _FIXED.pack(message.API_KEY, version, correlation_id)
    if header_version:
        encoded = b"" if client_id is None else client_id.encode()
        header += _SHORT.pack(-1 if client_id is None else len(encoded)) + encoded
    if header_version == 2:
        header += b"\0"
    pieces: list[Part] = [b"", header]
    writer(type(message), version)(message, pieces.append)
    pieces[0] = _LENGTH.pack(sum(map(len, pieces)))
    return join_small(pieces)


def encode_response(message: Message, version: int, correlation_id: int) -> list[Part]:
    """A response as a frame, its length in front.

    File slices and large record buffers stay parts of their own."""
    pieces: list[Part] = [b""]
    format_ = _response_format(type(message), version)
    format_.write(message, pieces.append)
    return _response_frame(format_, correlation_id, pieces)


def begin_response(message: Message, version: int, correlation_id: int) -> list[Part] | Task[list[Part]]:
    """Like `encode_response`; for a message with many structures, a task that goes on with it."""
    format_ = _response_format(type(message), version)
    pieces: list[Part] = [b""]
    if format_.write_in_turns is None:
        format_.write(message, pieces.append)
        return _response_frame(format_, correlation_id, pieces)
    writing = format_.write_in_turns(message, pieces.append)
    for _ in writing:
        return _write_on(format_, correlation_id, pieces, writing)
    return _response_frame(format_, correlation_id, pieces)


def _write_on(
    format_: "_ResponseFormat", correlation_id: int, pieces: list[Part], writing: Task[None]
) -> Task[list[Part]]:
    joined = [pieces.pop(0)]  # the header's place
    for _ in writing:
        if len(pieces) > _PIECES_A_STEP:
            joined += join_small(pieces)
            pieces.clear()
        yield None
    joined += pieces
    return _response_frame(format_, correlation_id, joined)


def free_in_slices(held: list[Any]) -> Task[None]:
    """Give up messages piece by piece; ``held`` should have the last references to them.

    To free a message that names 99,000 things takes up to 30 ms. The messages are not changed:
    others may still read them.
    """
    while held:
        held += structures_in(held.pop())
        yield None


class _ResponseFormat(NamedTuple):
    """What is the same in all responses of one type in one version."""

    write: Writer
    write_in_turns: SlicedWriter | None
    """None for a message that has no arrays of structures."""
    header: Struct
    """The frame's length, which does not count itself, and the header."""
    has_records: bool


@cache
def _response_format(message_type: type[Message], version: int) -> _ResponseFormat:
    header = _RESPONSE_V1 if response_header_version(message_type.API_KEY, version) else _RESPONSE_V0
    write = writer(message_type, version)
    in_turns = sliced_writer(message_type, version) if has_arrays(message_type) else None
    return _ResponseFormat(write, in_turns, header, has_records(message_type, version))


def _response_frame(format_: _ResponseFormat, correlation_id: int, pieces: list[Part]) -> list[Part]:
    """``pieces`` are those of the message, behind an empty one for the header."""
    header = format_.header
    pieces[0] = header.pack(sum(map(len, pieces)) + header.size - _LENGTH.size, correlation_id)
    if format_.has_records:
        return join_small(pieces)
    return [b"".join(pieces)]  # type: ignore[arg-type]  # without records all pieces are buffers
