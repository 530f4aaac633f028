"""createSession and closeSession: the transactions that begin and end a session.

closeSession lists the session's ephemerals, with those whose creation is not committed yet.

In ZooKeeper: `PrepRequestProcessor.pRequest2Txn` and `DataTree.killSession`.
"""

from collections.abc import Sequence

from barnabas.coordination.core.operations.base import Apply, Outcome, Staging, Stamp, WriteOperation, deciding
from barnabas.coordination.core.operations.delete import apply_delete
from barnabas.coordination.core.tree import Event, View
from barnabas.wire.jute.errors import KeeperError
from barnabas.wire.jute.opcodes import OpCode
from barnabas.wire.jute.transactions import CloseSessionTxn, CreateSessionTxn, DeleteTxn, ErrorTxn

__all__ = ["APPLY", "OPERATIONS"]


def _decide_create(_staging: Staging, txn: CreateSessionTxn) -> tuple[int, CreateSessionTxn]:
    return OpCode.CREATE_SESSION, txn


def _apply_create(_view: View, _stamp: Stamp, _txn: CreateSessionTxn, _events: list[Event]) -> Outcome:
    return Outcome(OpCode.CREATE_SESSION)


def _decide_close(staging: Staging, _request: None) -> tuple[int, CloseSessionTxn]:
    return OpCode.CLOSE_SESSION, CloseSessionTxn(sorted(staging.view.ephemerals_of(staging.stamp.session_id)))


def _apply_close(view: View, stamp: Stamp, txn: CloseSessionTxn | None, events: list[Event]) -> Outcome:
    paths = list(txn.paths_to_delete) if txn is not None else []
    # Ephemerals that an older log does not list, or that only a fuzzy snapshot contains.
    paths += sorted(view.ephemerals_of(stamp.session_id).difference(paths))
    for path in paths:
        try:
            apply_delete(view, stamp, DeleteTxn(path), events)
        except KeeperError:
            continue  # deleted already, in a replay over a fuzzy snapshot
    return Outcome(OpCode.CLOSE_SESSION)


def _apply_error(_view: View, _stamp: Stamp, txn: ErrorTxn, _events: list[Event]) -> Outcome:
    return Outcome(OpCode.ERROR, err=txn.err)


APPLY: dict[int, Apply] = {
    OpCode.CREATE_SESSION: _apply_create,
    OpCode.CLOSE_SESSION: _apply_close,
    OpCode.ERROR: _apply_error,
}

OPERATIONS: Sequence[WriteOperation] = [
    WriteOperation(OpCode.CREATE_SESSION, None, deciding(_decide_create, _apply_create), lambda _: None),
    WriteOperation(OpCode.CLOSE_SESSION, None, deciding(_decide_close, _apply_close), lambda _: None),
]
