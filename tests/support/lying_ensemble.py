"""A coordination server that lies: it relays to an honest one, and changes the
replies to one kind of request."""

import dataclasses
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple, Self

from barnabas.wire.jute.codec import decode
from barnabas.wire.jute.frames import REPLY_HEADER_BYTES, decode_reply_header, encode_reply
from barnabas.wire.jute.opcodes import OpCode
from barnabas.wire.jute.records import (
    Create2Response,
    GetACLResponse,
    GetChildren2Response,
    GetDataResponse,
    SetACLResponse,
    SetDataResponse,
    Stat,
)
from support.frames import framed, read_frame

_LENGTH = struct.Struct(">i")
_HEAD = struct.Struct(">ii")
CONNECT = -1
"""In place of an opcode: the answer to a connect request."""


class CoordinationLie(NamedTuple):
    """``change`` takes an honest reply's frame, without its length, and gives what is
    sent instead, with a length."""

    name: str
    change: Callable[[bytes], bytes]


class LyingEnsemble:
    """Listens on ``port`` in front of the honest server at ``target_port``."""

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"
        self.opcode = -2
        self.lie: CoordinationLie | None = None
        self.seen: set[int] = set()

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, name="lying ensemble", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.close()

    def tell(self, opcode: int, lie: CoordinationLie | None) -> None:
        """From now on change the replies to such requests."""
        self.opcode, self.lie, self.seen = opcode, lie, set()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._server.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        sent: dict[int, int] = {}
        with suppress(OSError), client, socket.create_connection(("127.0.0.1", self._target_port)) as target:
            first = read_frame(client)
            if first is None:
                return
            target.sendall(framed(first))
            answer = read_frame(target)
            if answer is None:
                return
            client.sendall(self._changed(CONNECT, answer))

            def forth() -> None:
                with suppress(OSError):
                    while (request := read_frame(client)) is not None:
                        xid, opcode = _HEAD.unpack_from(request)
                        sent[xid] = opcode
                        target.sendall(framed(request))
                    target.shutdown(socket.SHUT_RDWR)

            threading.Thread(target=forth, daemon=True).start()
            while (reply := read_frame(target)) is not None:
                xid, _, _ = decode_reply_header(reply)
                client.sendall(self._changed(sent.get(xid, OpCode.PING), reply))

    def _changed(self, opcode: int, frame: bytes) -> bytes:
        self.seen.add(opcode)
        if self.lie is None or opcode != self.opcode:
            return framed(frame)
        return self.lie.change(frame)


RECORDS: dict[int, type[Any]] = {
    OpCode.GET_DATA: GetDataResponse,
    OpCode.GET_CHILDREN2: GetChildren2Response,
    OpCode.GET_ACL: GetACLResponse,
    OpCode.SET_DATA: SetDataResponse,
    OpCode.SET_ACL: SetACLResponse,
    OpCode.CREATE2: Create2Response,
}
_NUMBERS = (-(2**31), -2, 2**31 - 1)
_LONGS = (-(2**63), -2, 2**63 - 1)
_TEXTS = ("", "a/b", "/", "..", "\0", "\x1b[31m\nforged", "x" * 30_000)


def coordination_lies(opcode: int) -> Iterator[CoordinationLie]:
    """All lies about the replies to one kind of request."""
    yield CoordinationLie("another request's reply", lambda frame: framed(_LENGTH.pack(77) + frame[4:]))
    yield CoordinationLie("an empty frame", lambda _: framed(b""))
    yield CoordinationLie("half a frame", lambda frame: framed(frame[: len(frame) // 2]))
    yield CoordinationLie("no body", lambda frame: framed(frame[:REPLY_HEADER_BYTES]))
    yield CoordinationLie("ones for a body", lambda frame: framed(frame[:REPLY_HEADER_BYTES] + b"\xff" * 200))
    yield CoordinationLie("bytes behind the body", lambda frame: framed(frame + bytes(50)))
    yield CoordinationLie("a length below zero", lambda frame: _LENGTH.pack(-5) + frame)
    yield CoordinationLie("a length of 2 GiB", lambda frame: _LENGTH.pack(2**31 - 1) + frame)
    yield CoordinationLie("a web server's answer", lambda _: b"HTTP/1.1 400 Bad Request\r\n\r\n")
    for code in (-9999, 9999, -4, -101, -112, -115, 1):
        yield CoordinationLie(f"error {code}", lambda frame, code=code: framed(frame[:12] + _LENGTH.pack(code)))
    if opcode == CONNECT:
        for number in (-1, 0, 1, 2**31 - 1):
            yield CoordinationLie(
                f"timeout {number}", lambda frame, number=number: framed(frame[:4] + _LENGTH.pack(number) + frame[8:])
            )
    record = RECORDS.get(opcode)
    if record is not None:
        yield from _of_record(record)


def _of_record(record: type[Any]) -> Iterator[CoordinationLie]:
    for field in dataclasses.fields(record):
        if field.name == "stat":
            for inner in dataclasses.fields(Stat):
                longs = inner.name in ("czxid", "mzxid", "ctime", "mtime", "ephemeral_owner", "pzxid")
                for number in _LONGS if longs else _NUMBERS:
                    yield _setting(record, f"stat.{inner.name} is {number}", _set_stat(inner.name, number))
        elif field.name == "children":
            for text in _TEXTS:
                yield _setting(record, f"a child {text[:20]!r}", _add_child(text))
            yield _setting(record, "all children twice", lambda value: value.children.extend(list(value.children)))
            yield _setting(record, "no children", lambda value: value.children.clear())
        elif field.name == "path":
            for text in _TEXTS:
                yield _setting(record, f"path {text[:20]!r}", lambda value, text=text: setattr(value, "path", text))
        else:
            for name, made in (("null", None), ("empty", b"" if field.name == "data" else [])):
                yield _setting(
                    record, f"{field.name} {name}", lambda value, at=field.name, made=made: setattr(value, at, made)
                )


def _set_stat(name: str, number: int) -> Callable[[Any], object]:
    def change(value: Any) -> None:
        value.stat = dataclasses.replace(value.stat, **{name: number})

    return change


def _add_child(text: str) -> Callable[[Any], object]:
    return lambda value: value.children.append(text)


def _setting(record: type[Any], name: str, change: Callable[[Any], object]) -> CoordinationLie:
    def changed(frame: bytes) -> bytes:
        xid, zxid, err = decode_reply_header(frame)
        if err:
            return framed(frame)
        value = decode(record, frame, REPLY_HEADER_BYTES)
        change(value)
        return bytes(encode_reply(xid, zxid, err, value))

    return CoordinationLie(name, changed)
