"""The znode half of performing the controller's steps: many reads or writes in one round trip, writes fenced."""

import logging
from collections.abc import Callable, Sequence
from typing import Any

from barnabas.broker.cluster.steps import (
    ControllerMovedError,
    Create,
    Delete,
    SetData,
    WriteOp,
    WriteResult,
    Written,
    Znode,
)
from barnabas.broker.cluster.znodes import CONTROLLER_EPOCH, PREFERRED_ELECTION, REASSIGN_PARTITIONS
from barnabas.coordination.client import CoordinationClient
from barnabas.coordination.client.operations import (
    MultiError,
    Operation,
    WatchCallback,
    check,
    delete,
    exists,
    get,
    get_children,
    multi,
    multi_create,
    set_data,
)
from barnabas.wire.jute.errors import ErrorCode as Keeper
from barnabas.wire.jute.errors import KeeperError

__all__ = ["ZnodeAccess"]

logger = logging.getLogger(__name__)

_ORDERS = (PREFERRED_ELECTION, REASSIGN_PARTITIONS)
_OPS_PER_MULTI = 128
_BYTES_PER_MULTI = 256 * 1024  # far below jute.maxbuffer
_RESULTS = {
    Keeper.NODE_EXISTS: WriteResult.EXISTS,
    Keeper.NO_NODE: WriteResult.ABSENT,
    Keeper.BAD_VERSION: WriteResult.BAD_VERSION,
    Keeper.NOT_EMPTY: WriteResult.NOT_EMPTY,
}


class ZnodeAccess:
    """Reads leave the watch that ``watch_for`` names for a path; writes check the controller epoch's version."""

    def __init__(self, client: CoordinationClient, watch_for: Callable[[str], WatchCallback | None]) -> None:
        self._client = client
        self._watch_for = watch_for

    async def read(self, paths: Sequence[str]) -> list[Znode | None]:
        if not paths:
            return []
        operations = [get(path, self._watch_for(path)) for path in paths]
        # A read of what is absent leaves no watch; orders of tools are waited for.
        operations += [exists(order, self._watch_for(order)) for order in _ORDERS if order in paths]
        znodes: list[Znode | None] = []
        for result in (await self._client.batch(operations))[: len(paths)]:
            if isinstance(result, KeeperError):
                if result.code is not Keeper.NO_NODE:
                    raise result
                znodes.append(None)
            else:
                data, stat = result
                znodes.append(Znode(data, stat.version, stat.czxid))
        return znodes

    async def children(self, path: str) -> list[str]:
        (result,) = await self._client.batch([get_children(path, self._watch_for(path))])
        if isinstance(result, KeeperError):
            if result.code is not Keeper.NO_NODE:
                raise result
            return []
        names: list[str] = result[0]
        return names

    async def write(self, ops: Sequence[WriteOp], epoch_version: int) -> list[Written]:
        """Conditional on our epoch. Many ops travel in one multi; if one of them fails, each goes for itself."""
        fence = check(CONTROLLER_EPOCH, epoch_version)
        groups = _groups(ops)
        results = await self._client.batch([multi([fence, *map(_operation, group)]) for group in groups])
        written: list[Written] = []
        for group, result in zip(groups, results, strict=True):
            if isinstance(result, KeeperError):
                _raise_if_moved(result)
                written += await self._write_singly(fence, group)
            else:
                written += [_done(op, outcome) for op, outcome in zip(group, result[1:], strict=True)]
        return written

    async def _write_singly(self, fence: Operation, ops: Sequence[WriteOp]) -> list[Written]:
        written = []
        results = await self._client.batch([multi([fence, _operation(op)]) for op in ops], retry=True)
        for op, result in zip(ops, results, strict=True):
            if isinstance(result, KeeperError):
                _raise_if_moved(result)
                outcome = _RESULTS.get(result.code, WriteResult.FAILED)
                if outcome is WriteResult.FAILED:
                    logger.error("%s failed: %s", op, result)
                written.append(Written(outcome))
            else:
                written.append(_done(op, result[1]))
        return written


def _raise_if_moved(error: KeeperError) -> None:
    if error.code is Keeper.SESSION_EXPIRED:
        raise error
    if isinstance(error, MultiError) and error.errors[0] is not Keeper.OK:
        raise ControllerMovedError("The controller epoch was raised by another broker") from error


def _groups(ops: Sequence[WriteOp]) -> list[list[WriteOp]]:
    groups: list[list[WriteOp]] = []
    size = _BYTES_PER_MULTI
    for op in ops:
        op_bytes = 64 + len(op.path) + len(getattr(op, "data", None) or b"")
        if size + op_bytes > _BYTES_PER_MULTI or len(groups[-1]) >= _OPS_PER_MULTI:
            groups.append([])
            size = 0
        groups[-1].append(op)
        size += op_bytes
    return groups


def _operation(op: WriteOp) -> Operation:
    match op:
        case Create(path, data):
            return multi_create(path, data)
        case SetData(path, data, version):
            return set_data(path, data, version)
        case Delete(path, version):
            return delete(path, version)


def _done(op: WriteOp, outcome: Any) -> Written:
    if isinstance(op, SetData):
        return Written(WriteResult.DONE, outcome.version)
    return Written(WriteResult.DONE, 0 if isinstance(op, Create) else -1)
