"""setWatches, setWatches2, addWatch, checkWatches, removeWatches: operations on watches alone.

In ZooKeeper: `FinalRequestProcessor.processRequest` and `DataTree.setWatches`.
"""

from collections.abc import Sequence

from barnabas.coordination.core.operations.base import Reading, ReadOperation
from barnabas.coordination.core.tree import Event
from barnabas.coordination.core.watches import WatchMode
from barnabas.wire.jute.errors import ErrorCode, KeeperError
from barnabas.wire.jute.opcodes import AddWatchMode, EventType, OpCode, WatcherType
from barnabas.wire.jute.records import (
    AddWatchRequest,
    CheckWatchesRequest,
    ErrorResponse,
    RemoveWatchesRequest,
    SetWatches,
    SetWatches2,
)

__all__ = ["OPERATIONS"]

_MODES = {AddWatchMode.PERSISTENT: WatchMode.PERSISTENT, AddWatchMode.PERSISTENT_RECURSIVE: WatchMode.RECURSIVE}


def _set_watches(reading: Reading, request: SetWatches | SetWatches2) -> None:
    """Set the watches of a client that has reconnected; send events at once for what has changed since its last zxid.

    As in ZooKeeper, without a look at ACLs: the events say no more than ``exists``, which needs no permission.
    """
    tree, watches, client = reading.tree, reading.watches, reading.client
    for path in request.data_watches:
        node = tree.get(path)
        if node is None:
            client.notify(Event(EventType.NODE_DELETED, path, ()))
        elif node.mzxid > request.relative_zxid:
            client.notify(Event(EventType.NODE_DATA_CHANGED, path, ()))
        else:
            watches.add_data(path, client)
    for path in request.exist_watches:
        if tree.get(path) is not None:
            client.notify(Event(EventType.NODE_CREATED, path, ()))
        else:
            watches.add_data(path, client)
    for path in request.child_watches:
        node = tree.get(path)
        if node is None:
            client.notify(Event(EventType.NODE_DELETED, path, ()))
        elif node.pzxid > request.relative_zxid:
            client.notify(Event(EventType.NODE_CHILDREN_CHANGED, path, ()))
        else:
            watches.add_children(path, client)
    if isinstance(request, SetWatches2):
        for path in request.persistent_watches:
            watches.add_persistent(path, client, WatchMode.PERSISTENT)
        for path in request.persistent_recursive_watches:
            watches.add_persistent(path, client, WatchMode.RECURSIVE)


def _add_watch(reading: Reading, request: AddWatchRequest) -> ErrorResponse:
    try:
        mode = _MODES[AddWatchMode(request.mode)]
    except ValueError:
        raise KeeperError(ErrorCode.MARSHALLING_ERROR, request.path) from None
    reading.watches.add_persistent(request.path, reading.client, mode)
    return ErrorResponse(0)


def _kind(request: CheckWatchesRequest | RemoveWatchesRequest) -> WatcherType:
    try:
        return WatcherType(request.type)
    except ValueError:
        raise KeeperError(ErrorCode.MARSHALLING_ERROR, request.path) from None


def _check_watches(reading: Reading, request: CheckWatchesRequest) -> None:
    if not reading.watches.has(request.path, reading.client, _kind(request)):
        raise KeeperError(ErrorCode.NO_WATCHER, request.path)


def _remove_watches(reading: Reading, request: RemoveWatchesRequest) -> None:
    if not reading.watches.remove(request.path, reading.client, _kind(request)):
        raise KeeperError(ErrorCode.NO_WATCHER, request.path)


OPERATIONS: Sequence[ReadOperation] = [
    ReadOperation(OpCode.SET_WATCHES, SetWatches, _set_watches),
    ReadOperation(OpCode.SET_WATCHES2, SetWatches2, _set_watches),
    ReadOperation(OpCode.ADD_WATCH, AddWatchRequest, _add_watch),
    ReadOperation(OpCode.CHECK_WATCHES, CheckWatchesRequest, _check_watches),
    ReadOperation(OpCode.REMOVE_WATCHES, RemoveWatchesRequest, _remove_watches),
]
