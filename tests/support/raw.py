"""One request of ours, of any kind, on a connection of its own: what no client
library would send."""

import socket
import struct
from typing import Any

from barnabas.wire.kafka.api import api
from barnabas.wire.kafka.codec import decode
from barnabas.wire.kafka.frames import decode_response_header, encode_request


def ask(port: int, message: Any, version: int, *, timeout_s: float = 60) -> Any:
    """The response; raises ConnectionError when the server closes the connection instead."""
    with socket.create_connection(("127.0.0.1", port), timeout_s) as connection:
        connection.sendall(b"".join(bytes(part) for part in encode_request(message, version, 1, "raw")))
        prefix = receive(connection, 4)
        if len(prefix) < 4:
            raise ConnectionError("closed without an answer")
        frame = receive(connection, struct.unpack(">i", prefix)[0])
    header = decode_response_header(frame, message.API_KEY, version)
    return decode(api(message.API_KEY).response, version, memoryview(frame), header.body_offset)


def receive(connection: socket.socket, size: int) -> bytes:
    """This many bytes, or fewer if the server closes.

    MSG_WAITALL does not wait on a socket that has a timeout."""
    parts = bytearray()
    while len(parts) < size and (part := connection.recv(size - len(parts))):
        parts += part
    return bytes(parts)
