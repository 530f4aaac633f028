"""The audit log: a line for each write of a client, with who asked for it and whether it happened.

    session=0x1000  user=10.0.0.7,bob  ip=10.0.0.7  operation=create  znode=/a
    znode_type=persistent  result=success

What the server does itself (ephemerals of a session that ends, its own start and stop) has the
server's user. Fields are tab-separated. A write of several parts has a line for each if it
succeeds, and one line otherwise. Hashes of passwords in ACLs are not shown, and characters that are
not printable are escaped, so that a client cannot forge lines.

In ZooKeeper: ZKAuditProvider, AuditHelper and AuditEvent.
"""

from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

from barnabas.coordination.core.access import hide_digests, user_name
from barnabas.coordination.core.changes import Change
from barnabas.coordination.core.connections import ServerConnection
from barnabas.wire.jute.codec import MalformedRecordError, decode
from barnabas.wire.jute.frames import decode_multi_request
from barnabas.wire.jute.opcodes import CreateMode, OpCode, Perms
from barnabas.wire.jute.records import (
    ACL,
    CreateRequest,
    CreateTTLRequest,
    DeleteRequest,
    ReconfigRequest,
    SetACLRequest,
    SetDataRequest,
)

__all__ = ["AuditLog", "audit_line"]

_REQUESTS: dict[int, type] = {
    OpCode.CREATE: CreateRequest,
    OpCode.CREATE2: CreateRequest,
    OpCode.CREATE_CONTAINER: CreateRequest,
    OpCode.CREATE_TTL: CreateTTLRequest,
    OpCode.DELETE: DeleteRequest,
    OpCode.SET_DATA: SetDataRequest,
    OpCode.SET_ACL: SetACLRequest,
    OpCode.RECONFIG: ReconfigRequest,
}
_AUDITED = frozenset((*_REQUESTS, OpCode.MULTI))
_BODY_OFFSET = 8
_LETTERS = {Perms.CREATE: "c", Perms.DELETE: "d", Perms.READ: "r", Perms.WRITE: "w", Perms.ADMIN: "a"}


class _Entry(NamedTuple):
    operation: str
    path: str
    node_type: str = ""
    acl: str = ""


class AuditLog:
    """Pairs requests with their answers, and writes the lines.

    The answers of a connection come in the order of its requests, so a queue pairs them: the client
    chooses the xids, and may use one twice. A request is decoded when its answer is known.
    """

    def __init__(self, write: Callable[[str], None], server_user: str) -> None:
        """``server_user`` is the user of the operating system that the server runs as."""
        self._write = write
        self._server_user = server_user
        self._pending: dict[ServerConnection, deque[tuple[int, bytes]]] = {}

    def received(self, client: ServerConnection, opcode: int, data: bytes) -> None:
        """A client has sent a request. `answered`, `refused` or `disconnected` follows."""
        if opcode in _AUDITED:
            self._pending.setdefault(client, deque()).append((opcode, data))

    def answered(self, client: ServerConnection, opcode: int, change: Change) -> None:
        """The oldest request that is pending, which has this opcode, has this change."""
        if opcode not in _AUDITED:
            return
        opcode, data = self._pending[client].popleft()
        if change.err or change.type == OpCode.ERROR:
            self._failed(client, opcode, data)
            return
        parts = change.parts if opcode == OpCode.MULTI else [change]
        entries = _entries(opcode, data)
        if len(entries) != len(parts):  # the leader can decode what this server cannot
            entries = [_Entry(_NAMES[part.type], part.path) if part.type in _NAMES else None for part in parts]
        for entry, part in zip(entries, parts, strict=True):
            if entry is not None:
                self._add(client, entry._replace(path=part.path or entry.path), "success")

    def refused(self, client: ServerConnection) -> None:
        """The request that came last is answered with an error, and goes no further."""
        if client.last_opcode in _AUDITED:
            self._failed(client, *self._pending[client].pop())

    def disconnected(self, client: ServerConnection) -> None:
        """The connection is closed: what becomes of its last requests is not known to it,
        and is written as invoked."""
        for opcode, data in self._pending.pop(client, ()):
            for entry in _entries(opcode, data):
                if entry is not None:
                    self._add(client, entry, "invoked")

    def session_closed(self, session_id: int, paths: Iterable[str]) -> None:
        """A session has ended, and its ephemerals with it."""
        for path in paths:
            self._write(
                audit_line(
                    session=f"0x{session_id & (1 << 64) - 1:x}",
                    user=self._server_user,
                    operation="ephemeralZNodeDeletionOnSessionCloseOrExpire",
                    znode=path,
                    result="success",
                )
            )

    def server_started(self) -> None:
        """The server serves clients, or takes part in its ensemble."""
        self._write(audit_line(user=self._server_user, operation="serverStart", result="success"))

    def server_stopped(self) -> None:
        """The server has stopped in order."""
        self._write(audit_line(user=self._server_user, operation="serverStop", result="success"))

    def _failed(self, client: ServerConnection, opcode: int, data: bytes) -> None:
        for entry in [_FAILED_MULTI] if opcode == OpCode.MULTI else _entries(opcode, data):
            if entry is not None:
                self._add(client, entry, "failure")

    def _add(self, client: ServerConnection, entry: _Entry, result: str) -> None:
        users = [name for name in map(user_name, client.ids) if name is not None]
        self._write(
            audit_line(
                session=f"0x{client.session_id & (1 << 64) - 1:x}",
                user=",".join(users),
                ip=client.address,
                operation=entry.operation,
                znode=entry.path,
                znode_type=entry.node_type,
                acl=entry.acl,
                result=result,
            )
        )


def audit_line(**fields: str) -> str:
    """The fields that have a value, in the order given."""
    return "\t".join(f"{name}={_printable(text)}" for name, text in fields.items() if text)


def _printable(text: str) -> str:
    return text if text.isprintable() else text.encode("unicode_escape").decode("ascii")


_NAMES: dict[int, str] = {
    OpCode.CREATE: "create",
    OpCode.CREATE2: "create",
    OpCode.CREATE_CONTAINER: "create",
    OpCode.CREATE_TTL: "create",
    OpCode.DELETE: "delete",
    OpCode.SET_DATA: "setData",
    OpCode.SET_ACL: "setAcl",
    OpCode.RECONFIG: "reconfig",
}
_FAILED_MULTI = _Entry("multiOperation", "")


def _entries(opcode: int, data: bytes) -> list[_Entry | None]:
    """What the parts of a request ask for: None for a check; nothing for a request
    that cannot be decoded."""
    try:
        if opcode == OpCode.MULTI:
            return [_entry(part, request) for part, request in decode_multi_request(data, _BODY_OFFSET)]
        return [_entry(opcode, decode(_REQUESTS[opcode], data, _BODY_OFFSET))]
    except MalformedRecordError:
        return []


def _entry(opcode: int, request: object) -> _Entry | None:
    match request:
        case CreateRequest() | CreateTTLRequest():
            try:
                node_type = CreateMode(request.flags).name.lower()
            except ValueError:
                node_type = ""
            return _Entry("create", request.path, "container" if opcode == OpCode.CREATE_CONTAINER else node_type)
        case DeleteRequest():
            return _Entry("delete", request.path)
        case SetDataRequest():
            return _Entry("setData", request.path)
        case SetACLRequest():
            return _Entry("setAcl", request.path, acl=_acl_text(request.acl or []))
        case ReconfigRequest():
            return _Entry("reconfig", "/zookeeper/config")
    return None


def _acl_text(acl: list[ACL]) -> str:
    shown = ((perms, identity) for perms, identity in hide_digests(acl))
    return ",".join(
        f"{identity.scheme}:{identity.id}:{''.join(letter for bit, letter in _LETTERS.items() if perms & bit)}"
        for perms, identity in shown
    )
