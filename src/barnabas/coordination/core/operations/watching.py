"""setWatches, setWatches2, addWatch, checkWatches, removeWatches: operations on watches alone.

In ZooKeeper: `FinalRequestProcessor.processRequest` and `DataTree.setWatches`.
"""

from collections.abc import Callable, Generator, Sequence
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple

from barnabas.coordination.core.changes import Event
from barnabas.coordination.core.operations.base import Client, Reading, ReadOperation
from barnabas.coordination.core.watches import Watches, WatchMode
from barnabas.coordination.core.znode import DataNode
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

_PATHS_A_SLICE = 500
"""A path takes some 6 microseconds, with an event 10."""
_MODES = {AddWatchMode.PERSISTENT: WatchMode.PERSISTENT, AddWatchMode.PERSISTENT_RECURSIVE: WatchMode.RECURSIVE}


class _Kind(NamedTuple):
    """A kind of watch: the zxid of a node's last change, the event of a later one, and how the
    watch is set."""

    changed_zxid: Callable[[DataNode], int]
    change: EventType
    add: Callable[[Watches[Any], str, Client], None]


_DATA = _Kind(attrgetter("mzxid"), EventType.NODE_DATA_CHANGED, Watches.add_data)
_CHILDREN = _Kind(attrgetter("pzxid"), EventType.NODE_CHILDREN_CHANGED, Watches.add_children)


def _set_watches(reading: Reading, request: SetWatches | SetWatches2) -> Generator[None, None, None]:
    """Set the watches of a client that has reconnected; send events at once for what has changed
    since its last zxid.

    Each path is looked at and watched in one step, so no change between two slices is missed. As in
    ZooKeeper, without a look at ACLs: the events say no more than ``exists``, which needs no
    permission.
    """
    kinds: list[tuple[list[str], Callable[[str], None]]] = [
        (request.data_watches, partial(_set_watch, reading, _DATA, request.relative_zxid)),
        (request.exist_watches, partial(_set_exist_watch, reading)),
        (request.child_watches, partial(_set_watch, reading, _CHILDREN, request.relative_zxid)),
    ]
    if isinstance(request, SetWatches2):
        watches, client = reading.watches, reading.client
        kinds += [
            (paths, partial(watches.add_persistent, watcher=client, mode=mode))
            for paths, mode in (
                (request.persistent_watches, WatchMode.PERSISTENT),
                (request.persistent_recursive_watches, WatchMode.RECURSIVE),
            )
        ]
    left = _PATHS_A_SLICE
    for paths, set_watch in kinds:
        for path in paths:
            if not left:
                yield
                left = _PATHS_A_SLICE
            left -= 1
            set_watch(path)


def _set_watch(reading: Reading, kind: _Kind, zxid: int, path: str) -> None:
    """Watch a node that was there at ``zxid``."""
    node = reading.tree.get(path)
    if node is None:
        reading.client.notify(Event(EventType.NODE_DELETED, path, ()))
    elif kind.changed_zxid(node) > zxid:
        reading.client.notify(Event(kind.change, path, ()))
    else:
        kind.add(reading.watches, path, reading.client)


def _set_exist_watch(reading: Reading, path: str) -> None:
    if reading.tree.get(path) is not None:
        reading.client.notify(Event(EventType.NODE_CREATED, path, ()))
    else:
        reading.watches.add_data(path, reading.client)


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
    ReadOperation(OpCode.SET_WATCHES, SetWatches, _set_watches, is_sliced=True),
    ReadOperation(OpCode.SET_WATCHES2, SetWatches2, _set_watches, is_sliced=True),
    ReadOperation(OpCode.ADD_WATCH, AddWatchRequest, _add_watch),
    ReadOperation(OpCode.CHECK_WATCHES, CheckWatchesRequest, _check_watches),
    ReadOperation(OpCode.REMOVE_WATCHES, RemoveWatchesRequest, _remove_watches),
]
