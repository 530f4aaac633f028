"""The vocabulary of deciding generators: what they ask to be done, and what they get back.

Deciding code yields these values and is resumed with the outcome.
`cluster.service.Interpreter` performs them on the coordination service and on connections to
brokers; tests perform them on a dictionary.

    step                             resumed with         remarks
    Read([path, ...])                [Znode | None, ...]  None where there is no znode
    ReadAllowed([path, ...])         the same, or a       the error where ACLs forbid to read
                                     KeeperError for each
    Children(path)                   [name, ...]          empty where there is no znode
    Watch([path, ...])               None
    Write([op, ...])                 [Written, ...]       fenced, each op succeeds or
                                                          fails for itself
    WriteUnfenced([op, ...])         [Written, ...]       the same without a fence, for any broker
    Transact([[op, ...], ...])       [Committed |         each group of ops as a whole or not at all
                                     Refused, ...]
    CreateOwn(path, data)            its czxid, or None   an ephemeral znode; None where another
                                                          session has it
    Send([(broker, request), ...])   None                 queued in order, not waited
                                                          for; controller only
    Ask(broker, request)             the response         raises `ChannelError`
    Wait(begin)                      what ``done`` is called with
    Pause(ms)                        None
    Beside(work)                     None                 done in a thread
    None                             None                 everything else may have its turn

Every op of a `Write` happens only if ``/controller_epoch`` still has the version of this
controller's election. If it has not, another controller is active: the interpreter raises
`ControllerMovedError` in the generator, and nothing was written. Any step may raise `KeeperError`
in the generator when the coordination service cannot be reached.

In Kafka: `AsyncRequest` and its kinds, such as `CreateRequest` and `SetDataRequest`.
"""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple, TypeVar

from barnabas.base.errors import BarnabasError
from barnabas.base.tasks import Beside
from barnabas.wire.jute.errors import KeeperError
from barnabas.wire.jute.opcodes import CreateMode

__all__ = [
    "ITEMS_A_TURN",
    "Ask",
    "Check",
    "Children",
    "Committed",
    "ControllerMovedError",
    "Create",
    "CreateOwn",
    "Delete",
    "Done",
    "Pause",
    "Read",
    "ReadAllowed",
    "Refused",
    "Send",
    "SetData",
    "Step",
    "Steps",
    "Transact",
    "Wait",
    "Watch",
    "Write",
    "WriteOp",
    "WriteResult",
    "WriteUnfenced",
    "Written",
    "Znode",
]

T = TypeVar("T")

Done = Callable[[Any, Exception | None], None]
"""Called once, with a result or with an error."""


class ControllerMovedError(BarnabasError):
    """Another broker became controller meanwhile: nothing more may be written or sent."""


class Create(NamedTuple):
    """A znode, persistent unless ``mode`` says otherwise. Its first version is 0."""

    path: str
    data: bytes | None = None
    mode: CreateMode = CreateMode.PERSISTENT


class SetData(NamedTuple):
    """New contents, if the version is still ``version`` (-1: any version).

    The new version is one more."""

    path: str
    data: bytes | None
    version: int


class Delete(NamedTuple):
    """Removal, if the version is still ``version`` (-1: any version)."""

    path: str
    version: int = -1


class Check(NamedTuple):
    """In `Transact` only: the version must still be ``version``."""

    path: str
    version: int


WriteOp = Create | SetData | Delete


class WriteResult(Enum):
    """How a write ended."""

    DONE = "done"
    EXISTS = "exists"
    ABSENT = "absent"
    BAD_VERSION = "bad version"
    NOT_EMPTY = "not empty"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Written:
    """An op's outcome: the znode's version after it, or the error of the coordination service."""

    result: WriteResult
    version: int = -1
    error: KeeperError | None = None

    def or_raise(self, *expected: WriteResult) -> WriteResult:
        """The result, if it is `DONE` or one of those expected. Raises `KeeperError` otherwise."""
        if self.error is not None and self.result not in expected:
            raise self.error
        return self.result


class Committed(NamedTuple):
    """A transaction's outcome: all its ops are done.

    The versions of their znodes, -1 where there is none."""

    versions: Sequence[int]


class Refused(NamedTuple):
    """A transaction's outcome: none of its ops is done.

    ``op`` is the first that could not be, -1 if not known."""

    error: KeeperError
    op: int = -1


class Znode(NamedTuple):
    """Contents, and of the stat what decisions depend on."""

    data: bytes | None
    version: int
    czxid: int
    is_own_ephemeral: bool = False
    """Whether it goes with this broker's own session."""
    ctime_ms: int = 0
    ephemeral_owner: int = 0
    """The session that it goes with; 0 for a persistent one."""


class Read(NamedTuple):
    """Contents of znodes, all in one round trip.

    Where the caller watches, a znode that exists is watched. ``watch_absent``: one
    that does not exist, too.
    """

    paths: Sequence[str]
    watch_absent: bool = False


class ReadAllowed(NamedTuple):
    """Contents of znodes, in this order and in one round trip; again after a lost connection.

    A znode that this broker may not read (NO_AUTH) costs the others nothing: the
    error stands in its place.
    """

    paths: Sequence[str]


class Children(NamedTuple):
    """The names of the children of a znode."""

    path: str


class Watch(NamedTuple):
    """Watch znodes without reading them."""

    paths: Sequence[str]


class Write(NamedTuple):
    """Independent conditional writes of the controller, all in few round trips."""

    ops: Sequence[WriteOp]


class WriteUnfenced(NamedTuple):
    """Independent conditional writes.

    ``repeat``: again after a lost connection, where a second time does no harm."""

    ops: Sequence[WriteOp]
    repeat: bool = False


class Transact(NamedTuple):
    """Groups of ops, each applied as a whole or not at all. ``repeat`` as in `WriteUnfenced`."""

    groups: Sequence[Sequence[WriteOp | Check]]
    repeat: bool = False


class CreateOwn(NamedTuple):
    """An ephemeral znode that is certain to be this session's, whatever connections
    are lost meanwhile."""

    path: str
    data: bytes


class Send(NamedTuple):
    """Requests to brokers, by broker id, each in order after those sent before."""

    requests: Sequence[tuple[int, Any]]


class Ask(NamedTuple):
    """A request to a broker whose response is waited for."""

    broker: int
    request: Any


class Wait(NamedTuple):
    """Something that another component does in its turn: ``begin`` starts it, and calls
    ``done`` when it is over."""

    begin: Callable[[Done], None]


class Pause(NamedTuple):
    """Let time pass."""

    ms: int


ITEMS_A_TURN = 256
"""How many things are asked for or decided at a time: what they need travels in one round
trip, or in one request."""


Step = Read | ReadAllowed | Children | Watch | Write | WriteUnfenced | Transact | CreateOwn | Send | Ask | Wait | Pause
Steps = Generator[Step | Beside | None, Any, T]
"""A task of `base.tasks` whose effects these are."""
