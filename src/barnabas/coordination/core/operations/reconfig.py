"""reconfig: change the members of the ensemble.

The leader's operation, made by `leader_operation`, plans the new configuration; its transaction is new data of
``/zookeeper/config``. A server alone refuses the request, and so does a leader without ``reconfigEnabled``.

In ZooKeeper: `PrepRequestProcessor.pRequest2Txn`.
"""

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from barnabas.coordination.core.access import require
from barnabas.coordination.core.operations.base import Outcome, Staging, WriteOperation, existing
from barnabas.coordination.core.operations.set_data import apply_set_data
from barnabas.coordination.core.paths import CONFIG_PATH
from barnabas.coordination.core.tree import Events
from barnabas.coordination.quorum.configuration import QuorumConfiguration
from barnabas.wire.jute.errors import ErrorCode, KeeperError
from barnabas.wire.jute.opcodes import OpCode, Perms
from barnabas.wire.jute.records import GetDataResponse, ReconfigRequest
from barnabas.wire.jute.transactions import SetDataTxn

__all__ = ["ALONE", "OPERATIONS", "leader_operation"]


def _reply(outcome: Outcome) -> GetDataResponse:
    assert outcome.node is not None
    return GetDataResponse(outcome.node.data, outcome.node.stat())


def _refusing(code: ErrorCode) -> WriteOperation:
    def stage(_staging: Staging, _request: Any, _events: Events) -> NoReturn:
        raise KeeperError(code)

    return WriteOperation(OpCode.RECONFIG, ReconfigRequest, stage, _reply)


def leader_operation(
    plan: Callable[[ReconfigRequest, int], QuorumConfiguration], proposed: Callable[[int, QuorumConfiguration], None]
) -> WriteOperation:
    """The operation of a leader: ``plan`` decides on the configuration of a zxid, ``proposed`` learns that it stands."""

    def stage(staging: Staging, request: ReconfigRequest, events: Events) -> tuple[int, SetDataTxn, Outcome]:
        zxid = staging.stamp.zxid
        configuration = plan(request, zxid)
        node = existing(staging.view, CONFIG_PATH)
        require(node.acl, Perms.WRITE, staging.ids, CONFIG_PATH)
        txn = SetDataTxn(CONFIG_PATH, configuration.text().encode(), -1)
        outcome = apply_set_data(staging.view, staging.stamp, txn, events)
        proposed(zxid, configuration)
        return OpCode.RECONFIG, txn, outcome

    return WriteOperation(OpCode.RECONFIG, ReconfigRequest, stage, _reply)


ALONE = _refusing(ErrorCode.UNIMPLEMENTED)
"""The operation of a server alone with reconfigEnabled."""

OPERATIONS: Sequence[WriteOperation] = [_refusing(ErrorCode.RECONFIG_DISABLED)]
