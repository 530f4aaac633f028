"""The reads of single nodes: exists, getData, getACL, getChildren, getChildren2,
getAllChildrenNumber, multiRead.

In ZooKeeper: `FinalRequestProcessor.processRequest`.
"""

from collections.abc import Generator, Sequence

from barnabas.coordination.core.access import hide_digests, is_allowed, require
from barnabas.coordination.core.operations.base import Reading, ReadOperation, existing
from barnabas.coordination.core.operations.long_answers import (
    MANY_NAMES,
    EncodingInSlices,
    encode_children,
    encode_parts,
)
from barnabas.coordination.core.tree import Tree
from barnabas.coordination.core.znode import DataNode
from barnabas.wire.jute.errors import ErrorCode, KeeperError
from barnabas.wire.jute.frames import MultiPart
from barnabas.wire.jute.opcodes import OpCode, Perms
from barnabas.wire.jute.records import (
    ErrorResponse,
    ExistsRequest,
    ExistsResponse,
    GetACLRequest,
    GetACLResponse,
    GetAllChildrenNumberRequest,
    GetAllChildrenNumberResponse,
    GetChildren2Request,
    GetChildren2Response,
    GetChildrenRequest,
    GetChildrenResponse,
    GetDataRequest,
    GetDataResponse,
)

__all__ = ["OPERATIONS"]

_MOST_NAMES = 50_000
"""The most names that the parts of a multiRead return together."""


def _readable(reading: Reading, path: str, perms: int = Perms.READ) -> DataNode:
    node = existing(reading.tree, path)
    require(node.acl, perms, reading.client.ids, path)
    return node


def _exists(reading: Reading, request: ExistsRequest) -> ExistsResponse:
    """The watch is also set where the node does not exist: it fires at the creation."""
    path = request.path
    if "\0" in path:
        raise KeeperError(ErrorCode.BAD_ARGUMENTS, path)
    node = reading.tree.get(path)
    if node is not None:
        require(node.acl, Perms.READ, reading.client.ids, path)
    if request.watch:
        reading.watches.add_data(path, reading.client)
    if node is None:
        raise KeeperError(ErrorCode.NO_NODE, path)
    reading.counter.read(path, 0)
    return ExistsResponse(node.stat())


def _get_data(reading: Reading, request: GetDataRequest) -> GetDataResponse:
    node = _readable(reading, request.path)
    if request.watch:
        reading.watches.add_data(request.path, reading.client)
    data = node.data
    reading.counter.read(request.path, len(data) if data is not None else 0)
    return GetDataResponse(data, node.stat())


def _get_acl(reading: Reading, request: GetACLRequest) -> GetACLResponse:
    """Password hashes are only for clients that may administer the node."""
    node = _readable(reading, request.path, Perms.READ | Perms.ADMIN)
    administers = is_allowed(node.acl, Perms.ADMIN, reading.client.ids)
    return GetACLResponse(list(node.acl) if administers else hide_digests(node.acl), node.stat())


def _names_of(reading: Reading, path: str) -> list[str]:
    names = reading.tree.names_below(path)
    reading.counter.read(path, sum(map(len, names)))
    return names


def _list_children(reading: Reading, request: GetChildrenRequest) -> GetChildrenResponse:
    _readable(reading, request.path)
    if request.watch:
        reading.watches.add_children(request.path, reading.client)
    return GetChildrenResponse(_names_of(reading, request.path))


def _get_children(reading: Reading, request: GetChildrenRequest) -> GetChildrenResponse | EncodingInSlices:
    answer = _list_children(reading, request)
    return answer if len(answer.children) <= MANY_NAMES else encode_children(answer)


def _get_children2(reading: Reading, request: GetChildren2Request) -> GetChildren2Response | EncodingInSlices:
    node = _readable(reading, request.path)
    if request.watch:
        reading.watches.add_children(request.path, reading.client)
    answer = GetChildren2Response(_names_of(reading, request.path), node.stat())
    return answer if len(answer.children) <= MANY_NAMES else encode_children(answer)


def _get_all_children_number(
    reading: Reading, request: GetAllChildrenNumberRequest
) -> Generator[None, None, GetAllChildrenNumberResponse]:
    _readable(reading, request.path)
    return _count_below(reading.tree, request.path)


def _count_below(tree: Tree, path: str) -> Generator[None, None, GetAllChildrenNumberResponse]:
    count = yield from tree.count_below(path)
    return GetAllChildrenNumberResponse(count)


def _multi_read(reading: Reading, parts: list[MultiPart]) -> list[MultiPart] | EncodingInSlices:
    """Each part has its own result or error. The reply is bounded, because a small request could
    ask for the same large node a thousand times: in bytes, and in names of children, each of
    which takes time of its own."""
    replies: list[MultiPart] = []
    left_bytes = reading.max_reply_bytes
    left_names = _MOST_NAMES
    for opcode, request in parts:
        try:
            if opcode == OpCode.GET_DATA:
                data = _get_data(reading, request)  # type: ignore[arg-type]  # the opcode says so
                left_bytes -= len(data.data or b"")
                replies.append((opcode, data))
            elif opcode == OpCode.GET_CHILDREN:
                names = _list_children(reading, request)  # type: ignore[arg-type]  # likewise
                left_bytes -= sum(map(len, names.children))
                left_names -= len(names.children)
                replies.append((opcode, names))
            else:
                raise KeeperError(ErrorCode.MARSHALLING_ERROR)
        except KeeperError as error:
            if error.code == ErrorCode.MARSHALLING_ERROR:
                raise
            replies.append((OpCode.ERROR, ErrorResponse(error.code)))
        left_bytes -= 100
        # One part may have what getChildren has.
        if left_bytes < 0 or (left_names < 0 and len(parts) > 1):
            raise KeeperError(ErrorCode.MARSHALLING_ERROR)
    return replies if _MOST_NAMES - left_names <= MANY_NAMES else encode_parts(replies)


OPERATIONS: Sequence[ReadOperation] = [
    ReadOperation(OpCode.EXISTS, ExistsRequest, _exists),
    ReadOperation(OpCode.GET_DATA, GetDataRequest, _get_data),
    ReadOperation(OpCode.GET_ACL, GetACLRequest, _get_acl),
    ReadOperation(OpCode.GET_CHILDREN, GetChildrenRequest, _get_children),
    ReadOperation(OpCode.GET_CHILDREN2, GetChildren2Request, _get_children2),
    ReadOperation(
        OpCode.GET_ALL_CHILDREN_NUMBER, GetAllChildrenNumberRequest, _get_all_children_number, is_sliced=True
    ),
    ReadOperation(OpCode.MULTI_READ, None, _multi_read),
]
