"""setACL: a new access control list, if the ACL version is the one expected.

In ZooKeeper: `PrepRequestProcessor.pRequest2Txn` and `DataTree.setACL`.
"""

from collections.abc import Sequence

from barnabas.coordination.core.access import checked_acl, require
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
from barnabas.coordination.core.tree import Events, View
from barnabas.wire.jute.opcodes import OpCode, Perms
from barnabas.wire.jute.records import SetACLRequest, SetACLResponse
from barnabas.wire.jute.transactions import SetACLTxn

__all__ = ["APPLY", "OPERATIONS"]


def _decide(staging: Staging, request: SetACLRequest) -> tuple[int, SetACLTxn]:
    path = checked_path(request.path)
    acl = checked_acl(request.acl, staging.ids, path, staging.schemes)
    node = existing(staging.view, path)
    require(node.acl, Perms.ADMIN, staging.ids, path)
    return OpCode.SET_ACL, SetACLTxn(path, acl, checked_version(node.aversion, request.version, path))


def _apply(view: View, _stamp: Stamp, txn: SetACLTxn, _events: Events) -> Outcome:
    path = txn.path
    node = existing(view, path).with_acl(path, view.intern(txn.acl), txn.version)
    view.put(path, node)
    return Outcome(OpCode.SET_ACL, path, node)


def _reply(outcome: Outcome) -> SetACLResponse:
    assert outcome.node is not None
    return SetACLResponse(outcome.node.stat())


APPLY: dict[int, Apply] = {OpCode.SET_ACL: _apply}

OPERATIONS: Sequence[WriteOperation] = [
    WriteOperation(OpCode.SET_ACL, SetACLRequest, deciding(_decide, _apply), _reply)
]
