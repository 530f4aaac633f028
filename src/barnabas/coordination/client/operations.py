"""The requests of a coordination client: each with its record and the reader of its reply.

In ZooKeeper: the methods of the class `ZooKeeper`, which make the records.
"""

from collections.abc import Callable, Collection, Sequence
from enum import Enum
from typing import Any, NamedTuple

from barnabas.wire.jute.codec import MalformedRecordError, decode
from barnabas.wire.jute.errors import ErrorCode, KeeperError, error_code
from barnabas.wire.jute.frames import decode_multi_response, encode_multi_request, encode_request
from barnabas.wire.jute.opcodes import ANY_VERSION, AddWatchMode, CreateMode, EventType, OpCode, WatcherType
from barnabas.wire.jute.records import (
    ACL,
    OPEN_ACL,
    AddWatchRequest,
    CheckVersionRequest,
    Create2Response,
    CreateRequest,
    DeleteRequest,
    ErrorResponse,
    ExistsRequest,
    ExistsResponse,
    GetACLRequest,
    GetACLResponse,
    GetChildren2Request,
    GetChildren2Response,
    GetDataRequest,
    GetDataResponse,
    RemoveWatchesRequest,
    SetACLRequest,
    SetACLResponse,
    SetDataRequest,
    SetDataResponse,
    Stat,
    SyncRequest,
)

__all__ = [
    "MultiError",
    "Operation",
    "WatchCallback",
    "WatchEvent",
    "WatchKind",
    "add_watch",
    "check",
    "create",
    "delete",
    "exists",
    "get",
    "get_acl",
    "get_children",
    "multi",
    "multi_create",
    "multi_delete",
    "multi_set",
    "remove_watches",
    "set_acl",
    "set_data",
    "sync",
    "under_chroot",
]


class WatchEvent(NamedTuple):
    """A watch has fired; the path is as the client gave it, without the chroot."""

    type: EventType
    path: str


WatchCallback = Callable[[WatchEvent], None]


class WatchKind(Enum):
    """What a watch waits for: new data, the creation of an absent node, new children."""

    DATA = "data"
    EXISTS = "exists"
    CHILDREN = "children"
    PERSISTENT = "persistent"
    """Every change of the node and of its children, until it is removed."""
    RECURSIVE = "recursive"
    """Every change of the node and of all nodes below it, until it is removed."""


class MultiError(KeeperError):
    """A multi that failed as a whole.

    ``errors`` has a code for each operation, OK for those before the one that failed."""

    def __init__(self, code: ErrorCode, path: str, errors: Sequence[ErrorCode]) -> None:
        super().__init__(code, path)
        self.errors = list(errors)


class Operation:
    """A request.

    ``record`` makes its body under a chroot; ``parse`` takes the reply's bytes and
    the body's offset."""

    __slots__ = (
        "expected_errors",
        "finished",
        "in_chroot",
        "is_local",
        "kind",
        "opcode",
        "parse",
        "parts",
        "path",
        "record",
        "unwatches",
        "watch",
        "writes",
        "xid",
    )

    def __init__(
        self,
        opcode: OpCode,
        path: str,
        record: Callable[[str], Any],
        parse: Callable[[Any, int], Any],
        *,
        writes: bool = False,
        watch: WatchCallback | None = None,
        expected_errors: Collection[int] = (),
        parts: "Sequence[Operation] | None" = None,
    ) -> None:
        self.opcode = opcode
        self.path = path
        self.record = record
        self.parse = parse
        self.writes = writes
        self.watch = watch
        self.expected_errors = expected_errors
        self.parts = parts
        self.kind: WatchKind | None = None
        self.unwatches: WatcherType | None = None
        self.in_chroot = True
        self.is_local = False
        """Whether it is done without the server while there is no connection."""
        self.xid = 0
        self.finished: Callable[[Any, Exception | None], object] = _ignore_result

    def encode(self, chroot: str) -> bytearray:
        """The request's frame, under its ``xid``."""
        if not self.in_chroot:
            chroot = ""
        if self.parts is not None:
            return encode_multi_request(self.xid, [(part.opcode, part.record(chroot)) for part in self.parts])
        return encode_request(self.xid, self.opcode, self.record(chroot))

    def watch_kind(self, err: int) -> WatchKind | None:
        """The kind of watch that the reply's error code has set, if any."""
        if err == 0:
            if self.kind is not None:
                return self.kind
            return WatchKind.CHILDREN if self.opcode is OpCode.GET_CHILDREN2 else WatchKind.DATA
        if err == ErrorCode.NO_NODE and self.opcode is OpCode.EXISTS:
            return WatchKind.EXISTS
        return None

    def __repr__(self) -> str:
        return f"{self.opcode.name} {self.path}"


def _ignore_result(_result: Any, _error: Exception | None) -> None:
    """Before an operation is submitted."""


def under_chroot(chroot: str, path: str) -> str:
    """A client's path with the chroot before it."""
    return chroot if chroot and path == "/" else chroot + path


def _data(raw: bytes, offset: int) -> tuple[bytes | None, Stat]:
    response = decode(GetDataResponse, raw, offset)
    return response.data, response.stat


def get(path: str, watch: WatchCallback | None = None) -> Operation:
    """-> ``(data, stat)``"""
    watched = watch is not None
    return Operation(
        OpCode.GET_DATA, path, lambda root: GetDataRequest(under_chroot(root, path), watched), _data, watch=watch
    )


def _stat_or_none(raw: bytes | None, offset: int) -> Stat | None:
    return None if raw is None else decode(ExistsResponse, raw, offset).stat


def exists(path: str, watch: WatchCallback | None = None) -> Operation:
    """-> the stat, or None"""
    watched = watch is not None
    return Operation(
        OpCode.EXISTS,
        path,
        lambda root: ExistsRequest(under_chroot(root, path), watched),
        _stat_or_none,
        watch=watch,
        expected_errors=(ErrorCode.NO_NODE,),
    )


def _children(raw: bytes, offset: int) -> tuple[list[str], Stat]:
    response = decode(GetChildren2Response, raw, offset)
    for name in response.children:
        # A path made with it would lead elsewhere.
        if not name or "/" in name or name in (".", ".."):
            raise MalformedRecordError(f"a child of the name {name[:100]!r}")
    if len(set(response.children)) < len(response.children):
        raise MalformedRecordError("a child that is named twice")
    return response.children, response.stat


def get_children(path: str, watch: WatchCallback | None = None) -> Operation:
    """-> ``(names, stat)``"""
    watched = watch is not None
    return Operation(
        OpCode.GET_CHILDREN2,
        path,
        lambda root: GetChildren2Request(under_chroot(root, path), watched),
        _children,
        watch=watch,
    )


def _made(asked: str, returned: str) -> str:
    """The created path; the reply has the chroot before it and the sequence number after it."""
    return asked + returned[returned.rfind(asked) + len(asked) :]


def create(
    path: str,
    data: bytes | None = None,
    mode: CreateMode = CreateMode.PERSISTENT,
    acl: Sequence[ACL] | None = None,
) -> Operation:
    """-> ``(path, stat)``; open to everyone without ``acl``"""
    entries = list(OPEN_ACL if acl is None else acl)

    def record(root: str) -> CreateRequest:
        return CreateRequest(under_chroot(root, path), data, entries, mode)

    def parse(raw: bytes, offset: int) -> tuple[str, Stat]:
        response = decode(Create2Response, raw, offset)
        return _made(path, response.path), response.stat

    return Operation(OpCode.CREATE2, path, record, parse, writes=True)


def _set_stat(raw: bytes, offset: int) -> Stat:
    return decode(SetDataResponse, raw, offset).stat


def set_data(path: str, data: bytes | None, version: int = ANY_VERSION) -> Operation:
    """-> the new stat"""
    return Operation(
        OpCode.SET_DATA,
        path,
        lambda root: SetDataRequest(under_chroot(root, path), data, version),
        _set_stat,
        writes=True,
    )


def _nothing(_raw: bytes, _offset: int) -> None:
    return None


def delete(path: str, version: int = ANY_VERSION) -> Operation:
    """-> None"""
    return Operation(
        OpCode.DELETE, path, lambda root: DeleteRequest(under_chroot(root, path), version), _nothing, writes=True
    )


def check(path: str, version: int) -> Operation:
    """In a multi only: fails unless the node has the version."""
    return Operation(OpCode.CHECK, path, lambda root: CheckVersionRequest(under_chroot(root, path), version), _nothing)


def multi_create(path: str, data: bytes | None, mode: CreateMode = CreateMode.PERSISTENT) -> Operation:
    """`create` as a part of `multi`, with the plain opcode that every server and log knows."""
    operation = create(path, data, mode)
    operation.opcode = OpCode.CREATE
    return operation


multi_set = set_data
multi_delete = delete


def multi(operations: Sequence[Operation]) -> Operation:
    """All or nothing -> per part: a path (create), a stat (set_data), None (delete,
    check); raises `MultiError`."""
    parts = list(operations)

    def parse(raw: bytes, offset: int) -> list[Any]:
        results: list[Any] = []
        errors: list[ErrorCode] = []
        for part, (_, record) in zip(parts, decode_multi_response(raw, offset), strict=False):
            errors.append(error_code(record.err) if isinstance(record, ErrorResponse) else ErrorCode.OK)
            made = getattr(record, "path", None)
            results.append(getattr(record, "stat", None) if made is None else _made(part.path, made))
        for part, error in zip(parts, errors, strict=False):
            if error is not ErrorCode.OK:
                raise MultiError(error, part.path, errors)
        return results

    path = parts[0].path if parts else ""
    return Operation(OpCode.MULTI, path, lambda _: None, parse, writes=True, parts=parts)


def sync(path: str) -> Operation:
    """-> None, when the server has applied everything that was committed before"""
    return Operation(OpCode.SYNC, path, lambda root: SyncRequest(under_chroot(root, path)), _nothing)


def add_watch(path: str, watch: WatchCallback, *, recursive: bool) -> Operation:
    """-> None; ``watch`` is called at every change, until `remove_watches`"""
    mode = AddWatchMode.PERSISTENT_RECURSIVE if recursive else AddWatchMode.PERSISTENT
    operation = Operation(
        OpCode.ADD_WATCH, path, lambda root: AddWatchRequest(under_chroot(root, path), mode), _nothing, watch=watch
    )
    operation.kind = WatchKind.RECURSIVE if recursive else WatchKind.PERSISTENT
    return operation


def remove_watches(path: str, kind: WatcherType = WatcherType.ANY, *, locally: bool = False) -> Operation:
    """-> None; raises NO_WATCHER where there is none of the kind.

    ``locally`` removes them also without a connection"""
    operation = Operation(
        OpCode.REMOVE_WATCHES, path, lambda root: RemoveWatchesRequest(under_chroot(root, path), kind), _nothing
    )
    operation.unwatches = kind
    operation.is_local = locally
    return operation


def get_acl(path: str) -> Operation:
    """-> ``(acl, stat)``"""

    def parse(raw: bytes, offset: int) -> tuple[list[ACL], Stat]:
        response = decode(GetACLResponse, raw, offset)
        return response.acl or [], response.stat

    return Operation(OpCode.GET_ACL, path, lambda root: GetACLRequest(under_chroot(root, path)), parse)


def set_acl(path: str, acl: Sequence[ACL], version: int = ANY_VERSION) -> Operation:
    """-> the new stat; ``version`` is the ACL's"""
    entries = list(acl)

    def parse(raw: bytes, offset: int) -> Stat:
        return decode(SetACLResponse, raw, offset).stat

    return Operation(
        OpCode.SET_ACL, path, lambda root: SetACLRequest(under_chroot(root, path), entries, version), parse, writes=True
    )
