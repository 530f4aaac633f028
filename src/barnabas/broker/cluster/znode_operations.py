"""Translates write steps into operations of the coordination client, and their results back.

Many ops of the controller travel in one multi. A multi stays far below
``jute.maxbuffer``, which bounds a request.

In Kafka: `KafkaZkClient.retryRequestsUntilConnected` and its `MultiRequest`.
"""

from collections.abc import Sequence
from typing import Any

from barnabas.broker.cluster.steps import (
    Check,
    Committed,
    ControllerMovedError,
    Create,
    Delete,
    Refused,
    SetData,
    WriteOp,
    WriteResult,
    Written,
)
from barnabas.broker.cluster.znodes import CONTROLLER_EPOCH
from barnabas.coordination.client.operations import (
    MultiError,
    Operation,
    check,
    create,
    delete,
    multi_create,
    set_data,
)
from barnabas.wire.jute.errors import ErrorCode as Keeper
from barnabas.wire.jute.errors import KeeperError

__all__ = [
    "fence",
    "grouped",
    "operation",
    "raise_if_moved",
    "refused",
    "transacted",
    "unfenced_operation",
    "written",
    "written_or_failed",
]

_OPS_PER_MULTI = 128
_BYTES_PER_MULTI = 256 * 1024
_OP_OVERHEAD_BYTES = 64
_RESULTS = {
    Keeper.NODE_EXISTS: WriteResult.EXISTS,
    Keeper.NO_NODE: WriteResult.ABSENT,
    Keeper.BAD_VERSION: WriteResult.BAD_VERSION,
    Keeper.NOT_EMPTY: WriteResult.NOT_EMPTY,
}


def fence(epoch_version: int) -> Operation:
    """The first part of every multi of a controller: nothing happens when another
    one was elected since."""
    return check(CONTROLLER_EPOCH, epoch_version)


def raise_if_moved(error: KeeperError) -> None:
    """Raise what ends a term as controller: an expired session, or
    `ControllerMovedError` when the fence failed."""
    if error.code is Keeper.SESSION_EXPIRED:
        raise error
    if isinstance(error, MultiError) and error.errors[0] is not Keeper.OK:
        raise ControllerMovedError("The controller epoch was raised by another broker") from error


def grouped(ops: Sequence[WriteOp]) -> list[list[WriteOp]]:
    """The ops in order, in groups that each fit into one multi."""
    groups: list[list[WriteOp]] = []
    size_bytes = _BYTES_PER_MULTI
    for op in ops:
        op_bytes = _OP_OVERHEAD_BYTES + len(op.path) + len(getattr(op, "data", None) or b"")
        if size_bytes + op_bytes > _BYTES_PER_MULTI or len(groups[-1]) >= _OPS_PER_MULTI:
            groups.append([])
            size_bytes = 0
        groups[-1].append(op)
        size_bytes += op_bytes
    return groups


def operation(op: WriteOp | Check) -> Operation:
    """As a part of a multi."""
    match op:
        case Create(path, data, mode):
            return multi_create(path, data, mode)
        case SetData(path, data, version):
            return set_data(path, data, version)
        case Delete(path, version):
            return delete(path, version)
        case Check(path, version):
            return check(path, version)


def unfenced_operation(op: WriteOp) -> Operation:
    """As a request of its own."""
    return create(op.path, op.data, op.mode) if isinstance(op, Create) else operation(op)


def _version(op: WriteOp | Check, outcome: Any) -> int:
    if isinstance(op, SetData):
        return int(outcome.version)
    return 0 if isinstance(op, Create) else -1


def written(op: WriteOp, outcome: Any) -> Written:
    """The outcome of an op that succeeded."""
    return Written(WriteResult.DONE, _version(op, outcome))


def written_or_failed(op: WriteOp, outcome: Any) -> Written:
    """The outcome of an op that was carried out for itself."""
    if not isinstance(outcome, KeeperError):
        return written(op, outcome)
    return Written(_RESULTS.get(outcome.code, WriteResult.FAILED), error=outcome)


def transacted(ops: Sequence[WriteOp | Check], outcomes: Sequence[Any]) -> Committed:
    """The outcome of a transaction that succeeded."""
    return Committed([_version(op, outcome) for op, outcome in zip(ops, outcomes, strict=True)])


def refused(error: KeeperError) -> Refused:
    """The outcome of a transaction that failed."""
    errors = error.errors if isinstance(error, MultiError) else ()
    culprits = [index for index, code in enumerate(errors) if code is not Keeper.OK]
    return Refused(error, culprits[0] if culprits else -1)
