"""Operations that take the place of a request that is refused, or answered, before it is looked at.

So its answer keeps its place among those of the session's other requests.

In ZooKeeper: `PrepRequestProcessor`, which makes an error of such a request and passes it on.
"""

from typing import NoReturn

from barnabas.coordination.core.operations.base import Reading, ReadOperation, Staging, WriteOperation
from barnabas.wire.jute.errors import ErrorCode, KeeperError
from barnabas.wire.jute.opcodes import OpCode

__all__ = ["CLOSE_LOCAL", "EPHEMERAL_ON_LOCAL", "EXPIRED", "MALFORMED", "MOVED", "UNREADABLE"]


def _refuse(_reading: Reading, _request: object) -> NoReturn:
    raise KeeperError(ErrorCode.MARSHALLING_ERROR)


def _refuse_ephemeral(_reading: Reading, _request: object) -> NoReturn:
    raise KeeperError(ErrorCode.EPHEMERAL_ON_LOCAL_SESSION)


EPHEMERAL_ON_LOCAL = ReadOperation(OpCode.ERROR, None, _refuse_ephemeral)
CLOSE_LOCAL = ReadOperation(OpCode.CLOSE_SESSION, None, lambda _reading, _request: None)
"""The end of a local session: answered in its turn, without a transaction."""
UNREADABLE = ReadOperation(OpCode.ERROR, None, _refuse)
"""Takes the place of a multi that cannot be read: it is answered with an error in
its turn, without a zxid."""


def _refusing(code: ErrorCode) -> WriteOperation:
    """Takes the place of a write that is refused before it is looked at."""

    def decide(_staging: Staging, _request: object) -> NoReturn:
        raise KeeperError(code)

    return WriteOperation(OpCode.ERROR, None, lambda _: (), decide, lambda _: b"")


EXPIRED = _refusing(ErrorCode.SESSION_EXPIRED)
MOVED = _refusing(ErrorCode.SESSION_MOVED)
MALFORMED = _refusing(ErrorCode.MARSHALLING_ERROR)
"""Takes the place of a write that cannot be read."""
