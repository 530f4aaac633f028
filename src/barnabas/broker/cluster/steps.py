"""What a deciding generator asks of its runner, and what it gets back.

    yield Read([path, ...])      -> [Znode | None, ...]          None where there is no znode
    yield Children(path)         -> [name, ...]                  empty where there is no znode
    yield Write([op, ...])       -> [Written, ...]               each op succeeds or fails for itself
    yield Send([(broker, request), ...]) -> None                 queued in order, not waited for

Every op of a `Write` happens only if ``/controller_epoch`` still has the version of this controller's election. If it
has not, another controller rules: the runner raises `ControllerMovedError` in the generator, and nothing was written.
"""

from collections.abc import Generator, Sequence
from enum import Enum
from typing import Any, NamedTuple, TypeVar

from barnabas.base.errors import BarnabasError

__all__ = [
    "Children",
    "ControllerMovedError",
    "Create",
    "Delete",
    "Read",
    "Send",
    "SetData",
    "Step",
    "Steps",
    "Write",
    "WriteOp",
    "WriteResult",
    "Written",
    "Znode",
]

T = TypeVar("T")


class ControllerMovedError(BarnabasError):
    """Another broker became controller meanwhile: nothing more may be written or sent."""


class Create(NamedTuple):
    """A persistent znode. The version it gets is 0."""

    path: str
    data: bytes | None = None


class SetData(NamedTuple):
    """New contents, if the version is still ``version`` (-1: whatever it is). The new version is one more."""

    path: str
    data: bytes | None
    version: int


class Delete(NamedTuple):
    """Removal, if the version is still ``version`` (-1: whatever it is)."""

    path: str
    version: int = -1


WriteOp = Create | SetData | Delete


class WriteResult(Enum):
    """How a write ended."""

    DONE = "done"
    EXISTS = "exists"
    ABSENT = "absent"
    BAD_VERSION = "bad version"
    NOT_EMPTY = "not empty"
    FAILED = "failed"


class Written(NamedTuple):
    """An op's outcome, with the znode's version after it."""

    result: WriteResult
    version: int = -1


class Znode(NamedTuple):
    """Contents and the two numbers of the stat that the controller uses."""

    data: bytes | None
    version: int
    czxid: int


class Read(NamedTuple):
    """Contents of znodes, all at once."""

    paths: Sequence[str]


class Children(NamedTuple):
    """The names of the children of a znode."""

    path: str


class Write(NamedTuple):
    """Independent conditional writes, all at once."""

    ops: Sequence[WriteOp]


class Send(NamedTuple):
    """Requests to brokers, by broker id, each in order after those sent before."""

    requests: Sequence[tuple[int, Any]]


Step = Read | Children | Write | Send
Steps = Generator[Step, Any, T]
