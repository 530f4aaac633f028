"""Messages to bytes and back.

Readers and writers are compiled from the declarations at their first use. ::

    request = decode(ProduceRequest, 9, frame, offset)
    data = encode(ProduceResponse(responses=[...]), 9)

For hot paths `reader` and `writer` give the compiled functions themselves.
"""

from collections.abc import Iterable
from functools import cache

from barnabas.base.files import Buffer, FileSlice
from barnabas.base.network import Part
from barnabas.wire.kafka.errors import ErrorCode, KafkaError, MalformedMessageError
from barnabas.wire.kafka.reader_source import Reader, SlicedReader, compile_reader, compile_sliced_reader, has_records
from barnabas.wire.kafka.schema import Message, MessageType, has_arrays
from barnabas.wire.kafka.writer_source import SlicedWriter, Writer, compile_sliced_writer, compile_writer

__all__ = [
    "MalformedMessageError",
    "decode",
    "encode",
    "has_records",
    "join_small",
    "reader",
    "reader_in_turns",
    "sliced_reader",
    "sliced_writer",
    "writer",
]

_OWN_PART_FROM_BYTES = 4096


def reader(message_type: type[Message], version: int) -> Reader:
    """The function ``(buffer, offset) -> (message, offset after it)`` of a version.

    It raises MalformedMessageError and nothing else. Fields of records are views of ``buffer``.
    Raises KafkaError (UNSUPPORTED_VERSION) for versions the message does not have.
    """
    try:
        found: Reader = message_type.READERS[version]
        return found
    except KeyError:
        _check_version(message_type, version)
        compiled = message_type.READERS[version] = compile_reader(message_type, version)
        return compiled


def writer(message_type: type[Message], version: int) -> Writer:
    """The function ``(message, append)`` of a version: it calls ``append`` with buffers
    and file slices in order.

    It raises ValueError for what cannot be encoded, and KafkaError (UNSUPPORTED_VERSION) when the
    version lacks a field that says something. Raises KafkaError (UNSUPPORTED_VERSION) for versions
    the message does not have.
    """
    try:
        found: Writer = message_type.WRITERS[version]
        return found
    except KeyError:
        _check_version(message_type, version)
        compiled = message_type.WRITERS[version] = compile_writer(message_type, version)
        return compiled


@cache
def sliced_reader(message_type: type[Message], version: int) -> SlicedReader:
    """Like `reader`, for messages with many structures: a generator that returns what
    the reader returns."""
    _check_version(message_type, version)
    return compile_sliced_reader(message_type, version)


@cache
def reader_in_turns(message_type: type[Message], version: int) -> Reader | SlicedReader:
    """`sliced_reader`, or `reader` for a message in which there are no arrays of structures, and
    whose size is small by that."""
    return (sliced_reader if has_arrays(message_type) else reader)(message_type, version)


@cache
def sliced_writer(message_type: type[Message], version: int) -> SlicedWriter:
    """Like `writer`, for messages with many structures: a generator."""
    _check_version(message_type, version)
    return compile_sliced_writer(message_type, version)


def decode(message_type: type[MessageType], version: int, buffer: Buffer, offset: int = 0) -> MessageType:
    """The message at ``offset``.

    Bytes after it are ignored, as Kafka does (`reader` returns where it ends)."""
    message: MessageType = reader(message_type, version)(buffer, offset)[0]
    return message


def encode(message: Message, version: int) -> bytearray:
    """The message's bytes; slices of files in it are read."""
    pieces: list[Part] = []
    writer(type(message), version)(message, pieces.append)
    return bytearray().join(piece.read() if isinstance(piece, FileSlice) else piece for piece in pieces)


def join_small(pieces: Iterable[Part]) -> list[Part]:
    """Join neighbouring small buffers; leave file slices and large buffers alone."""
    parts: list[Part] = []
    small: list[Buffer] = []
    for piece in pieces:
        if isinstance(piece, FileSlice) or len(piece) >= _OWN_PART_FROM_BYTES:
            if small:
                parts.append(b"".join(small))
                small = []
            parts.append(piece)
        else:
            small.append(piece)
    if small:
        parts.append(b"".join(small))
    return parts


def _check_version(message_type: type[Message], version: int) -> None:
    if version not in message_type.VERSIONS:
        first, last = message_type.VERSIONS
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"{message_type.__name__} has versions {first} to {last}, not {version}",
        )
