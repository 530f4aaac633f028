"""A server's connections with clients, and the requests on them that are not answered yet.

In ZooKeeper: ServerCnxn, and Request.
"""

from collections import deque
from collections.abc import Iterable
from functools import lru_cache
from typing import Protocol

from barnabas.coordination.core.access import AccessRules, SaslServer, ip_id, is_allowed
from barnabas.coordination.core.changes import Change, Event
from barnabas.coordination.core.local_sessions import LocalSessions
from barnabas.coordination.core.operations.base import ReadOperation
from barnabas.coordination.core.sessions import Session
from barnabas.coordination.core.statistics import Statistics
from barnabas.wire.jute.frames import encode_event
from barnabas.wire.jute.layouts import REQUEST_HEADER
from barnabas.wire.jute.opcodes import EventType, KeeperState, Perms
from barnabas.wire.jute.records import Id, WatcherEvent

__all__ = [
    "Auditor",
    "ForwardedWrite",
    "Forwarder",
    "Limits",
    "Proposal",
    "ServerConnection",
    "Transport",
    "WaitingRead",
    "WaitingRequests",
]


class Transport(Protocol):
    """The way back to a client."""

    def send(self, frames: bytes | bytearray) -> None:
        """Send one or more whole frames."""
        ...

    @property
    def takes_requests(self) -> bool:
        """Whether the next request may follow at once: the client is not held, and reads its
        replies."""
        ...

    @property
    def has_room(self) -> bool:
        """Whether a large reply may be made now: what waits for all clients has a limit."""
        ...

    def hold(self) -> None:
        """Take no more requests until `release`."""
        ...

    def release(self) -> None: ...

    def close(self) -> None:
        """Close when everything has been sent."""
        ...


class Forwarder(Protocol):
    """A learner's way to its leader."""

    @property
    def is_read_only(self) -> bool:
        """Whether there is no leader, and reads alone are served."""
        ...

    def forward(self, session_id: int, xid: int, opcode: int, body: bytes, ids: list[Id]) -> None:
        """Send a write or a sync; `Processor.apply` or `Processor.synced` answers it.

        Raises `KeeperError` if the server is read-only.
        """
        ...

    def forward_frames(self, session_id: int, frames: list[bytes], ids: list[Id]) -> None:
        """Like `forward` of each of these requests; a read-only server does not come here."""
        ...

    def revalidate(self, session_id: int, timeout_ms: int) -> None:
        """Ask whether a session is alive; `Processor.revalidated` continues."""
        ...


@lru_cache(maxsize=16)
def _event_frame(event_type: EventType, path: str) -> bytearray:
    """The frame of an event, which all its watchers get; it is never changed."""
    return encode_event(WatcherEvent(event_type, KeeperState.SYNC_CONNECTED, path))


class Auditor(Protocol):
    """Writes down who has changed what: `barnabas.coordination.core.audit`."""

    def server_started(self) -> None: ...

    def server_stopped(self) -> None: ...

    def received(self, client: "ServerConnection", opcode: int, data: bytes) -> None: ...

    def answered(self, client: "ServerConnection", opcode: int, change: Change) -> None: ...

    def refused(self, client: "ServerConnection") -> None: ...

    def disconnected(self, client: "ServerConnection") -> None: ...

    def session_closed(self, session_id: int, paths: Iterable[str]) -> None: ...


class Limits:
    """Limits for clients, and what is decided about them by the settings."""

    __slots__ = (
        "access",
        "auditor",
        "enforce_quota",
        "global_outstanding",
        "local_sessions",
        "max_multi_operations",
        "max_reply_bytes",
        "max_session_timeout_ms",
        "min_session_timeout_ms",
        "ttl_nodes",
    )

    def __init__(
        self,
        *,
        min_session_timeout_ms: int,
        max_session_timeout_ms: int,
        global_outstanding: int = 1000,
        max_reply_bytes: int = 4 << 20,
        max_multi_operations: int | None = None,
        ttl_nodes: bool = False,
        enforce_quota: bool = False,
        local_sessions: LocalSessions | None = None,
        access: AccessRules | None = None,
        auditor: Auditor | None = None,
    ) -> None:
        self.min_session_timeout_ms = min_session_timeout_ms
        self.max_session_timeout_ms = max_session_timeout_ms
        self.global_outstanding = global_outstanding
        self.max_reply_bytes = max_reply_bytes
        self.max_multi_operations = max_multi_operations
        self.ttl_nodes = ttl_nodes
        self.enforce_quota = enforce_quota
        self.local_sessions = local_sessions
        self.access = access or AccessRules()
        self.auditor = auditor


class ServerConnection:
    """One connection, with its requests that are not answered yet: ZooKeeper's ServerCnxn."""

    __slots__ = (
        "address",
        "ids",
        "is_closed",
        "is_held",
        "is_secure",
        "last_opcode",
        "old_protocol",
        "port",
        "sasl",
        "session",
        "since_ms",
        "statistics",
        "transport",
        "waiting",
    )

    def __init__(self, transport: Transport, address: str, port: int, now_ms: int) -> None:
        self.transport = transport
        self.address = address
        self.port = port
        self.since_ms = now_ms
        self.ids: list[Id] = [ip_id(address)]
        self.sasl: SaslServer | None = None
        self.session: Session | None = None
        self.waiting: deque[Proposal | WaitingRead | ForwardedWrite] = deque()
        self.statistics = Statistics()
        self.old_protocol = False
        self.is_secure = False
        self.last_opcode = 0
        self.is_closed = False
        self.is_held = False

    @property
    def session_id(self) -> int:
        return self.session.id if self.session is not None else 0

    def count_received(self, last: bytes, count: int) -> None:
        """Note requests that were taken together, of which this is the last one."""
        _, self.last_opcode = REQUEST_HEADER.unpack_from(last)
        self.statistics.received += count

    def add_ids(self, identities: list[Id]) -> None:
        """Add what the client has proven."""
        self.ids += [each for each in identities if each not in self.ids]

    def notify(self, event: Event) -> int:
        """Send an event of one of the client's watches, if the client may read the node; its
        bytes without the length."""
        if not is_allowed(event.acl, Perms.READ, self.ids):
            return 0
        frame = _event_frame(event.type, event.path)
        self.statistics.sent += 1
        self.transport.send(frame)
        return len(frame) - 4


Proposal = tuple["ServerConnection | None", int, int, int, Change, bytes | None, bytes]
"""A write between decision and commit: its client, when it was decided, its zxid, the request's
opcode, the change, the reply if the client gets one of bytes, and the transaction. There is one
for each write, so it is only a tuple."""


class WaitingRead:
    """A read that waits for earlier writes of its session."""

    __slots__ = ("data", "operation", "since_ms", "xid")

    def __init__(self, xid: int, operation: ReadOperation, data: bytes, since_ms: int) -> None:
        self.xid = xid
        self.operation = operation
        self.data = data
        self.since_ms = since_ms


class WaitingRequests:
    """How many requests of all clients are not answered yet."""

    __slots__ = ("_proposals", "count")

    def __init__(self, proposals: deque[Proposal]) -> None:
        """``proposals`` are the writes that are decided, and not committed."""
        self._proposals = proposals
        self.count = 0
        """Reads that wait for writes before them, and writes that wait for the leader."""

    @property
    def outstanding(self) -> int:
        """All of them."""
        return len(self._proposals) + self.count


class ForwardedWrite:
    """A request that the leader decides."""

    __slots__ = ("opcode", "path", "since_ms", "xid")

    def __init__(self, xid: int, opcode: int, since_ms: int, path: str = "") -> None:
        self.xid = xid
        self.opcode = opcode
        self.since_ms = since_ms
        self.path = path
