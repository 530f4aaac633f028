"""setData: new data, if the version is the one expected.

In ZooKeeper: `PrepRequestProcessor.pRequest2Txn` and `DataTree.setData`.
"""

from collections.abc import Sequence

from barnabas.coordination.core.access import require
from barnabas.coordination.core.operations.base import (
    Apply,
    Outcome,
    Staging,
    Stamp,
    WriteOperation,
    checked_version,
    deciding,
    existing,
)
from barnabas.coordination.core.paths import checked_path
from barnabas.coordination.core.tree import Event, Events, View
from barnabas.wire.jute.opcodes import EventType, OpCode, Perms
from barnabas.wire.jute.records import SetDataRequest, SetDataResponse
from barnabas.wire.jute.transactions import SetDataTxn

__all__ = ["APPLY", "OPERATIONS", "apply_set_data"]


def _decide(staging: Staging, request: SetDataRequest) -> tuple[int, SetDataTxn]:
    path = checked_path(request.path)
    node = existing(staging.view, path)
    require(node.acl, Perms.WRITE, staging.ids, path)
    if staging.limited_tree is not None:
        staging.limited_tree.check_quota(path, len(request.data or b"") - len(node.data or b""), 0)
    return OpCode.SET_DATA, SetDataTxn(path, request.data, checked_version(node.version, request.version, path))


def apply_set_data(view: View, stamp: Stamp, txn: SetDataTxn, events: Events) -> Outcome:
    """Set the data; also of the configuration's node."""
    path = txn.path
    node = existing(view, path).with_data(path, txn.data, txn.version, stamp.zxid, stamp.time_ms)
    view.put(path, node)
    events.append(Event(EventType.NODE_DATA_CHANGED, path, node.acl))
    return Outcome(OpCode.SET_DATA, path, node)


def _reply(outcome: Outcome) -> SetDataResponse:
    assert outcome.node is not None
    return SetDataResponse(outcome.node.stat())


# A reconfiguration is logged as new data of /zookeeper/config.
APPLY: dict[int, Apply] = {OpCode.SET_DATA: apply_set_data, OpCode.RECONFIG: apply_set_data}

OPERATIONS: Sequence[WriteOperation] = [
    WriteOperation(OpCode.SET_DATA, SetDataRequest, deciding(_decide, apply_set_data), _reply)
]
