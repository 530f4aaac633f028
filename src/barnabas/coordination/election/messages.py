"""What members exchange through their election ports, byte for byte as Apache
ZooKeeper 3.5 to 3.9 do.

The connecting server begins with a greeting, then both sides send notifications. All
numbers are big-endian:

    greeting      version: int64 (-65536; -65535 with several addresses), server id: int64,
                  length: int32, text of that length: host:port of its election port, several
                  with a bar between them
    notification  length: int32, state: int32, leader: int64, zxid: int64, round: int64, peer
                  epoch: int64, format version: int32 (2), length: int32, text of that length:
                  the configuration

Older formats of a notification end after the round (28 bytes), or after the peer epoch (40 bytes
with its version). A message that breaks these rules ends the connection as soon as its first wrong
byte has come; no more is kept than what has come.

In ZooKeeper: `QuorumCnxManager.InitialMessage`, `FastLeaderElection.buildMsg` and
its `WorkerReceiver`.
"""

import re
import struct
from dataclasses import dataclass

from barnabas.base.errors import BarnabasError
from barnabas.coordination.election.vote import PeerState, Vote

__all__ = [
    "MAX_ROUND",
    "Greeting",
    "MalformedNotificationError",
    "MessageStream",
    "Notification",
    "encode_greeting",
    "encode_notification",
    "find_greeting",
]

FORMAT_VERSION = 2
MAX_ROUND = 1 << 62
"""Rounds are below; a server that gets there begins again with 1, as after a restart."""
_ONE_ADDRESS, _SEVERAL_ADDRESSES = -65536, -65535
_VERSIONS = tuple(struct.pack(">q", version) for version in (_ONE_ADDRESS, _SEVERAL_ADDRESSES))
_GREETING = struct.Struct(">qqi")
_MAX_ADDRESS_BYTES = 2048
_MAX_NOTIFICATION_BYTES = 512 * 1024
_LENGTH = struct.Struct(">i")
_VERSION_LINE = re.compile(rb"(?:^|\n)version=([0-9a-fA-F]{1,16})\s*$")
_OLDEST = struct.Struct(">iqqq")
_OLD = struct.Struct(">iqqqqi")
_HEAD = struct.Struct(">iqqqqii")


class MalformedNotificationError(BarnabasError):
    """Bytes that no member sends."""


@dataclass(frozen=True, slots=True)
class Greeting:
    """The first message of the server that connects: who it is, and where its own
    election port is."""

    server_id: int
    addresses: str


@dataclass(frozen=True, slots=True)
class Notification:
    """A server's vote, sent when the vote changes, and as the answer to a server
    that looks for a leader."""

    state: PeerState
    vote: Vote
    round: int
    configuration: bytes = b""
    format_version: int = FORMAT_VERSION

    @property
    def configuration_version(self) -> int:
        """The version in the last line of the configuration's text; 0 for a message without one."""
        found = _VERSION_LINE.search(self.configuration)
        return int(found[1], 16) if found else 0


def encode_greeting(server_id: int, address: str) -> bytes:
    """The bytes of a greeting with one address."""
    text = address.encode("ascii", "replace")
    return _GREETING.pack(_ONE_ADDRESS, server_id, len(text)) + text


def encode_notification(notification: Notification) -> bytes:
    """The bytes of a notification in the newest format, with their length in front."""
    vote, text = notification.vote, notification.configuration
    head = _HEAD.pack(
        notification.state.value, vote.leader, vote.zxid, notification.round, vote.peer_epoch, FORMAT_VERSION, len(text)
    )
    return b"".join((_LENGTH.pack(len(head) + len(text)), head, text))


class MessageStream:
    """Finds the messages in the bytes of one connection."""

    __slots__ = ("_data", "_expects_greeting")

    def __init__(self, *, expects_greeting: bool) -> None:
        """The server that accepts a connection expects a greeting.

        The one that connects gets notifications only."""
        self._expects_greeting = expects_greeting
        self._data = bytearray()

    @property
    def is_amid_message(self) -> bool:
        """Whether the last bytes are not a whole message yet."""
        return bool(self._data) or self._expects_greeting

    def feed(self, data: bytes | memoryview) -> list[Greeting | Notification]:
        """The messages that are whole with these bytes. Raises `MalformedNotificationError`."""
        kept = self._data
        kept += data
        found: list[Greeting | Notification] = []
        position = 0
        if self._expects_greeting:
            greeting, position = _read_greeting(kept)
            if greeting is None:
                return found
            self._expects_greeting = False
            found.append(greeting)
        while len(kept) - position >= 4:
            (size,) = _LENGTH.unpack_from(kept, position)
            if not _OLDEST.size <= size <= _MAX_NOTIFICATION_BYTES:
                raise MalformedNotificationError(f"{size} is not the length of a notification")
            stop = position + 4 + size
            if stop > len(kept):
                _check_head(kept, position + 4, size)
                break
            found.append(_read_notification(kept, position + 4, size))
            position = stop
        del kept[:position]
        return found


def find_greeting(data: bytearray) -> int | None:
    """The length of the greeting at the start of ``data``; None until it is whole.

    Raises `MalformedNotificationError`."""
    greeting, size = _read_greeting(data)
    return size if greeting is not None else None


def _read_greeting(data: bytearray) -> tuple[Greeting | None, int]:
    """A whole greeting with its length, or None; raises at the first byte that no greeting has."""
    prefix = bytes(data[:8])
    if not any(version.startswith(prefix) for version in _VERSIONS):
        raise MalformedNotificationError(f"{prefix!r} is not the version of a greeting")
    if len(data) < _GREETING.size:
        return None, 0
    _, server_id, size = _GREETING.unpack_from(data)
    if server_id < 0:
        raise MalformedNotificationError(f"{server_id} is not a server's id")
    if not 0 < size <= _MAX_ADDRESS_BYTES:
        raise MalformedNotificationError(f"{size} is not the length of an address")
    stop = _GREETING.size + size
    if len(data) < stop:
        return None, 0
    try:
        return Greeting(server_id, data[_GREETING.size : stop].decode("ascii")), stop
    except UnicodeDecodeError:
        raise MalformedNotificationError("the address in the greeting is not text") from None


def _check_head(data: bytearray, position: int, size: int) -> None:
    """Refuse a notification by its head already; the rest may be large."""
    if len(data) - position >= _HEAD.size and size > _OLD.size:
        _, _, _, _, _, version, text_size = _HEAD.unpack_from(data, position)
        _check_size(version, text_size, size)


def _check_size(version: int, text_size: int, size: int) -> None:
    needed = _HEAD.size + text_size
    if version < FORMAT_VERSION or text_size < 0 or (size < needed if version > FORMAT_VERSION else size != needed):
        raise MalformedNotificationError(
            f"a notification of {size} bytes in format {version} cannot hold a configuration of {text_size} bytes"
        )


def _read_notification(data: bytearray, position: int, size: int) -> Notification:
    text = b""
    if size == _OLDEST.size:
        state, leader, zxid, round_number = _OLDEST.unpack_from(data, position)
        peer_epoch, version = zxid >> 32, 0
    elif size == _OLD.size:
        state, leader, zxid, round_number, peer_epoch, version = _OLD.unpack_from(data, position)
    elif size >= _HEAD.size:
        state, leader, zxid, round_number, peer_epoch, version, text_size = _HEAD.unpack_from(data, position)
        _check_size(version, text_size, size)
        text = bytes(data[position + _HEAD.size : position + _HEAD.size + text_size])
    else:
        raise MalformedNotificationError(f"{size} is not the length of a notification")
    if not 0 <= state <= PeerState.OBSERVING.value:
        raise MalformedNotificationError(f"{state} is not a server's state")
    if not 0 <= round_number < MAX_ROUND:
        raise MalformedNotificationError(f"{round_number} is not a round of an election")
    return Notification(PeerState(state), Vote(peer_epoch, zxid, leader), round_number, text, version)
