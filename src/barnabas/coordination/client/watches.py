"""The watches of one client: which callback waits for which event, and how a server learns of
them after a new connection.

In ZooKeeper: ZKWatchManager, and `primeConnection` of ClientCnxn.
"""

from barnabas.base.network import Part
from barnabas.coordination.client.operations import Operation, WatchCallback, WatchEvent, WatchKind, under_chroot
from barnabas.wire.jute.frames import encode_request
from barnabas.wire.jute.opcodes import EventType, OpCode, WatcherType, Xid
from barnabas.wire.jute.records import SetWatches, SetWatches2, WatcherEvent

__all__ = ["ClientWatches"]

_REQUEST_BYTES = 128 * 1024
_UNWATCHED = {
    WatcherType.CHILDREN: (WatchKind.CHILDREN,),
    WatcherType.DATA: (WatchKind.DATA, WatchKind.EXISTS),
    WatcherType.ANY: tuple(WatchKind),
}
"""The watches that removeWatches ends."""
_ONCE = {
    EventType.NODE_CREATED: (WatchKind.DATA, WatchKind.EXISTS),
    EventType.NODE_DATA_CHANGED: (WatchKind.DATA, WatchKind.EXISTS),
    EventType.NODE_CHILDREN_CHANGED: (WatchKind.CHILDREN,),
    EventType.NODE_DELETED: (WatchKind.DATA, WatchKind.EXISTS, WatchKind.CHILDREN),
}
"""The watches that an event fires, and ends."""


class ClientWatches:
    """The watches of a session.

    Paths of operations are within ``chroot``, paths of servers begin with it."""

    def __init__(self, chroot: str) -> None:
        self._chroot = chroot
        self._watches: dict[WatchKind, dict[str, dict[WatchCallback, None]]] = {kind: {} for kind in WatchKind}

    def add(self, operation: Operation, err: int) -> None:
        """Keep the watch that an operation has set; ``err`` is the server's answer to it."""
        if operation.watch is not None and (kind := operation.watch_kind(err)):
            path = under_chroot(self._chroot, operation.path)
            self._watches[kind].setdefault(path, {})[operation.watch] = None

    def end(self, operation: Operation) -> None:
        """The operation is done.

        Watches that it ends are neither reported nor set on another server."""
        if operation.unwatches is not None:
            path = under_chroot(self._chroot, operation.path)
            for kind in _UNWATCHED[operation.unwatches]:
                self._watches[kind].pop(path, None)

    def clear(self) -> None:
        """The session has expired: its watches never fire."""
        for watched in self._watches.values():
            watched.clear()

    def requests(self, last_zxid: int) -> list[Part]:
        """Requests that register all watches again, each of bounded size.

        What has changed since ``last_zxid`` fires at once."""
        frames: list[Part] = []
        paths: dict[WatchKind, list[str]] = {kind: [] for kind in WatchKind}
        size_bytes = 0
        for kind, watched in self._watches.items():
            for path in watched:
                if size_bytes > _REQUEST_BYTES:
                    frames.append(_request(last_zxid, paths))
                    paths = {each: [] for each in WatchKind}
                    size_bytes = 0
                paths[kind].append(path)
                size_bytes += 4 + len(path)
        if size_bytes:
            frames.append(_request(last_zxid, paths))
        return frames

    def fire(self, event: WatcherEvent) -> None:
        """Call everyone who waits for the event, once each."""
        callbacks: dict[WatchCallback, None] = {}
        try:
            kind_of_event = EventType(event.type)
            kinds = _ONCE[kind_of_event]
        except (ValueError, KeyError):
            return
        for kind in kinds:
            callbacks.update(self._watches[kind].pop(event.path, {}))
        callbacks.update(self._watches[WatchKind.PERSISTENT].get(event.path, {}))
        recursive = self._watches[WatchKind.RECURSIVE]
        if recursive and kind_of_event is not EventType.NODE_CHILDREN_CHANGED:
            path = event.path
            while path:
                callbacks.update(recursive.get(path, {}))
                path = "" if path == "/" else path[: path.rfind("/")] or "/"
        fired = WatchEvent(kind_of_event, event.path.removeprefix(self._chroot) or "/")
        for callback in callbacks:
            callback(fired)


def _request(last_zxid: int, paths: dict[WatchKind, list[str]]) -> Part:
    once = (paths[WatchKind.DATA], paths[WatchKind.EXISTS], paths[WatchKind.CHILDREN])
    lasting = (paths[WatchKind.PERSISTENT], paths[WatchKind.RECURSIVE])
    if any(lasting):
        return encode_request(Xid.SET_WATCHES, OpCode.SET_WATCHES2, SetWatches2(last_zxid, *once, *lasting))
    # Also known to servers before 3.6.
    return encode_request(Xid.SET_WATCHES, OpCode.SET_WATCHES, SetWatches(last_zxid, *once))
