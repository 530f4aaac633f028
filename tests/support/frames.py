"""Frames of Kafka's and ZooKeeper's protocols on a blocking socket: a length of four
bytes, and as many bytes."""

import socket
import struct

__all__ = ["framed", "read_frame"]

_LENGTH = struct.Struct(">i")


def framed(data: bytes) -> bytes:
    """The data with its length before it."""
    return _LENGTH.pack(len(data)) + data


def read_frame(source: socket.socket) -> bytes | None:
    """The next frame without its length; None at the end of the connection."""
    head = _read(source, _LENGTH.size)
    return None if head is None else _read(source, _LENGTH.unpack(head)[0])


def _read(source: socket.socket, size: int) -> bytes | None:
    data = bytearray()
    while len(data) < size:
        piece = source.recv(min(size - len(data), 1 << 20))
        if not piece:
            return None
        data += piece
    return bytes(data)
