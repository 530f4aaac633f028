"""How the members of an ensemble authenticate each other with SASL, as exchanges of
bytes without I/O.

The server that connects is the learner of the exchange. On the quorum port it comes first, on the
election port it follows the greeting:

    learner                                       server
    IN_PROGRESS, empty token       ---------->
                                   <----------   IN_PROGRESS, challenge
    IN_PROGRESS, response          ---------->
                                   <----------   SUCCESS, the server's own proof;
                                                 or ERROR, and the end

    packet   magic number: int64, status: int32, length: int32 (-1 for none), token

The mechanism is DIGEST-MD5: both sides prove that they know the password. Where authentication is
required, the first byte that no packet has ends the connection. Where it is not, such a connection
goes on without it, so that an ensemble can be restarted server by server to switch authentication
on; a failed authentication ends the connection in both cases. (Apache's server goes on after a
failure that it does not require. Its learner ends the connection, so nothing is lost.)

In ZooKeeper: SaslQuorumAuthServer, SaslQuorumAuthLearner, QuorumAuth and QuorumAuthPacket.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

from barnabas.security.errors import SaslError
from barnabas.security.tokens import MAX_TOKEN_BYTES

__all__ = ["QuorumAuthLearner", "QuorumAuthServer", "QuorumAuthentication", "encode_auth_packet"]

_MAGIC = bytes.fromhex("5f2435013501edcc")
_HEAD = struct.Struct(">8sii")


class _Status(IntEnum):
    ERROR = -1
    IN_PROGRESS = 0
    SUCCESS = 1


class LearnerMechanism(Protocol):
    """The learner's side of a SASL mechanism."""

    @property
    def is_complete(self) -> bool: ...

    def evaluate(self, token: bytes) -> bytes | None: ...


class ServerMechanism(Protocol):
    """The server's side of a SASL mechanism."""

    @property
    def is_complete(self) -> bool: ...

    @property
    def user(self) -> str: ...

    def evaluate(self, token: bytes) -> bytes: ...


@dataclass(frozen=True, slots=True)
class QuorumAuthentication:
    """What a member asks of the others, and proves to them."""

    new_server: Callable[[], ServerMechanism]
    """The mechanism for a server that connects to this one."""
    is_required: bool
    """Whether a server that connects must authenticate."""
    new_learner: Callable[[], LearnerMechanism] | None
    """The mechanism for connecting to another server; None to connect without authentication."""


def encode_auth_packet(status: int, token: bytes) -> bytes:
    """The bytes of one packet."""
    return _HEAD.pack(_MAGIC, status, len(token)) + token


class _Packets:
    """Finds the packets in the bytes of a connection."""

    def __init__(self) -> None:
        self.data = bytearray()

    @property
    def begins_otherwise(self) -> bool:
        """Whether the bytes are not those of a packet."""
        size = min(len(self.data), len(_MAGIC))
        return self.data[:size] != _MAGIC[:size]

    def take(self) -> tuple[int, bytes] | None:
        """The status and the token of a packet that is whole. Raises `SaslError`."""
        if self.begins_otherwise:
            raise SaslError("it does not authenticate")
        if len(self.data) < _HEAD.size:
            return None
        _, status, size = _HEAD.unpack_from(self.data)
        if not -1 <= size <= MAX_TOKEN_BYTES:
            raise SaslError(f"{size} is not the length of a token")
        stop = _HEAD.size + max(size, 0)
        if len(self.data) < stop:
            return None
        token = bytes(self.data[_HEAD.size : stop])
        del self.data[:stop]
        return status, token


class QuorumAuthServer:
    """The side that was connected to."""

    def __init__(self, authentication: QuorumAuthentication) -> None:
        self._mechanism = authentication.new_server()
        self.is_required = authentication.is_required
        self._packets = _Packets()
        self._has_begun = False
        self.is_complete = False
        """Whether the connection may go on, with `rest` as its first bytes."""
        self.failure = ""
        """Why the connection must end, when what `feed` returns has left."""

    @property
    def user(self) -> str:
        """Who the other side is; empty if it has not proven it."""
        return self._mechanism.user

    @property
    def rest(self) -> bytes:
        """What came behind the exchange."""
        return bytes(self._packets.data)

    def feed(self, data: bytes | memoryview) -> bytes:
        """Take bytes; what to send."""
        packets = self._packets
        packets.data += data
        if not self._has_begun and not self.is_required and packets.begins_otherwise:
            self.is_complete = True
            return b""
        answers = b""
        try:
            while not self.is_complete and (packet := packets.take()) is not None:
                self._has_begun = True
                status, token = packet
                if status != _Status.IN_PROGRESS:
                    raise SaslError(f"it sends the status {status}")
                challenge = self._mechanism.evaluate(token)
                self.is_complete = self._mechanism.is_complete
                answers += encode_auth_packet(_Status.SUCCESS if self.is_complete else _Status.IN_PROGRESS, challenge)
        except SaslError as error:
            self.failure = str(error)
            return encode_auth_packet(_Status.ERROR, b"")
        return answers


class QuorumAuthLearner:
    """The side that connects."""

    def __init__(self, mechanism: LearnerMechanism) -> None:
        self._mechanism = mechanism
        self._packets = _Packets()
        self.is_complete = False
        """Whether both sides are proven, and `rest` is what came behind the exchange."""
        self.failure = ""

    @property
    def rest(self) -> bytes:
        return bytes(self._packets.data)

    def start(self) -> bytes:
        """The first packet."""
        return encode_auth_packet(_Status.IN_PROGRESS, b"")

    def feed(self, data: bytes | memoryview) -> bytes:
        """Take bytes; what to send."""
        self._packets.data += data
        answers = b""
        try:
            while not self.is_complete and (packet := self._packets.take()) is not None:
                answers += self._answer(*packet)
        except SaslError as error:
            self.failure = str(error)
            return b""
        return answers

    def _answer(self, status: int, token: bytes) -> bytes:
        if status not in (_Status.IN_PROGRESS, _Status.SUCCESS):
            raise SaslError("it does not accept this server's user and password")
        response = self._mechanism.evaluate(token)
        if status == _Status.SUCCESS:
            if response is not None or not self._mechanism.is_complete:
                raise SaslError("it has not proven that it knows the password")
            self.is_complete = True
            return b""
        if response is None:
            raise SaslError("it goes on after the end of the authentication")
        return encode_auth_packet(_Status.IN_PROGRESS, response)
