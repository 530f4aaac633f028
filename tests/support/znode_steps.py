"""Performs the controller's steps on a dictionary of znodes: the dumb counterpart of the runner."""

from collections.abc import Callable, Iterator
from typing import Any

from barnabas.broker.cluster.steps import (
    Check,
    Children,
    Committed,
    ControllerMovedError,
    Create,
    CreateOwn,
    Pause,
    Read,
    ReadAllowed,
    Refused,
    Send,
    SetData,
    Transact,
    Watch,
    Write,
    WriteResult,
    WriteUnfenced,
    Written,
    Znode,
)
from barnabas.broker.cluster.znodes import TOP_LEVEL_PATHS
from barnabas.wire.jute.errors import ErrorCode as Keeper
from barnabas.wire.jute.errors import KeeperError
from barnabas.wire.jute.opcodes import CreateMode

OWN_SESSION = 1


class Znodes:
    """A tree of znodes with versions and czxids, and the requests that were sent."""

    def __init__(self) -> None:
        self.nodes: dict[str, tuple[bytes | None, int, int]] = {}
        self.ephemerals: set[str] = set()
        self.now_ms = 0
        """The time at which znodes are made."""
        self.owners: dict[str, int] = {}
        """The sessions of other brokers' ephemeral znodes."""
        self.unreadable: set[str] = set()
        """Paths whose ACLs forbid this broker to read them."""
        self.pauses_ms: list[int] = []
        self.on_pause: Callable[[], None] = lambda: None
        self._made_ms: dict[str, int] = {}
        self._sequence = 0
        self.epoch_version = 0
        self.sent: list[tuple[int, Any]] = []
        self._has_effect = True
        for path in TOP_LEVEL_PATHS:
            self.put(path, None)

    def put(self, path: str, data: bytes | None) -> None:
        """Create or rewrite a znode, with its parents."""
        parts = path.split("/")
        for depth in range(2, len(parts)):
            self.nodes.setdefault("/".join(parts[:depth]), (None, 0, len(self.nodes)))
        version = self.nodes[path][1] + 1 if path in self.nodes else 0
        czxid = self.nodes[path][2] if path in self.nodes else self._next_zxid()
        self.nodes[path] = (data, version, czxid)

    def remove(self, path: str) -> None:
        del self.nodes[path]
        self.ephemerals.discard(path)
        self.owners.pop(path, None)

    def end_session(self) -> None:
        """Remove what goes with the session."""
        for path in set(self.ephemerals):
            self.remove(path)

    def _next_zxid(self) -> int:
        return max((czxid for _, _, czxid in self.nodes.values()), default=0) + 1

    def children(self, path: str) -> list[str]:
        return sorted(node[len(path) + 1 :] for node in self.nodes if node.rpartition("/")[0] == path)

    def data(self, path: str) -> bytes | None:
        return self.nodes[path][0]

    def perform(self, steps: Any, *, epoch_version: int | None = None, stop_after: int | None = None) -> Any:
        """Drive steps to their end, or abandon them after some (a crash); returns the result."""
        result: list[Any] = [None]
        for result in self.each(steps, epoch_version=epoch_version):  # noqa: B007  # the last one counts
            if stop_after is not None and self._has_effect:
                stop_after -= 1
                if stop_after < 0:
                    steps.close()
                    return None
        return result[0]

    def each(self, steps: Any, *, epoch_version: int | None = None) -> Iterator[list[Any]]:
        outcome = None
        while True:
            try:
                step = steps.send(outcome)
            except StopIteration as end:
                self._has_effect = True
                yield [end.value]
                return
            self._has_effect = step is not None
            outcome = self.outcome(step, epoch_version)
            yield []

    def outcome(self, step: Any, epoch_version: int | None = None) -> Any:
        """Perform one step of a controller whose fence is ``epoch_version``."""
        match step:
            case Watch():
                return None
            case Read(paths):
                return [self._znode(path) for path in paths]
            case ReadAllowed(paths):
                no_auth = {path: KeeperError(Keeper.NO_AUTH, path) for path in self.unreadable}
                return [no_auth.get(path) or self._znode(path) for path in paths]
            case Children(path):
                return self.children(path)
            case Write(ops):
                if epoch_version not in (None, self.epoch_version):
                    raise ControllerMovedError("another controller")
                return [self._write(op) for op in ops]
            case WriteUnfenced(ops):
                return [self._write(op) for op in ops]
            case Transact(groups):
                return [self._transact(group) for group in groups]
            case CreateOwn(path, data):
                if self._write(Create(path, data, CreateMode.EPHEMERAL)).error is None or path in self.ephemerals:
                    return self.nodes[path][2]
                return None
            case Pause(ms):
                self.pauses_ms.append(ms)
                self.on_pause()
                return None
            case Send(requests):
                self.sent += requests
                return None

    def _znode(self, path: str) -> Znode | None:
        if path not in self.nodes:
            return None
        is_own = path in self.ephemerals
        owner = OWN_SESSION if is_own else self.owners.get(path, 0)
        return Znode(*self.nodes[path], is_own, self._made_ms.get(path, 0), owner)

    def _transact(self, ops: Any) -> Committed | Refused:
        nodes, ephemerals, owners = dict(self.nodes), set(self.ephemerals), dict(self.owners)
        versions = []
        for index, op in enumerate(ops):
            written = self._check(op) if isinstance(op, Check) else self._write(op)
            if written.error is not None:
                self.nodes, self.ephemerals, self.owners = nodes, ephemerals, owners
                return Refused(written.error, index)
            versions.append(written.version)
        return Committed(versions)

    def _check(self, op: Check) -> Written:
        if op.path not in self.nodes:
            return _failed(WriteResult.ABSENT, op.path)
        return (
            Written(WriteResult.DONE)
            if self.nodes[op.path][1] == op.version
            else _failed(WriteResult.BAD_VERSION, op.path)
        )

    def _write(self, op: Any) -> Written:
        if isinstance(op, Create) and op.mode is CreateMode.PERSISTENT_SEQUENTIAL:
            op = op._replace(path=f"{op.path}{self._sequence:010}", mode=CreateMode.PERSISTENT)
            self._sequence += 1
        there = op.path in self.nodes
        if isinstance(op, Create):
            if there:
                return _failed(WriteResult.EXISTS, op.path)
            if op.path.rpartition("/")[0] not in ("", *self.nodes):
                return _failed(WriteResult.ABSENT, op.path)
            self.nodes[op.path] = (op.data, 0, self._next_zxid())
            self._made_ms[op.path] = self.now_ms
            if op.mode is CreateMode.EPHEMERAL:
                self.ephemerals.add(op.path)
            return Written(WriteResult.DONE, 0)
        if not there:
            return _failed(WriteResult.ABSENT, op.path)
        version = self.nodes[op.path][1]
        if op.version not in (-1, version):
            return _failed(WriteResult.BAD_VERSION, op.path)
        if isinstance(op, SetData):
            self.nodes[op.path] = (op.data, version + 1, self.nodes[op.path][2])
            return Written(WriteResult.DONE, version + 1)
        if self.children(op.path):
            return _failed(WriteResult.NOT_EMPTY, op.path)
        self.remove(op.path)
        return Written(WriteResult.DONE)


_CODES = {
    WriteResult.EXISTS: Keeper.NODE_EXISTS,
    WriteResult.ABSENT: Keeper.NO_NODE,
    WriteResult.BAD_VERSION: Keeper.BAD_VERSION,
    WriteResult.NOT_EMPTY: Keeper.NOT_EMPTY,
}


def _failed(result: WriteResult, path: str) -> Written:
    return Written(result, error=KeeperError(_CODES[result], path))
