"""reconfig: change the members of the ensemble.

The leader's operation, made by `leader_operation`, plans the new configuration; its transaction is
new data of ``/zookeeper/config``. A server alone refuses the request, and so does a leader without
``reconfigEnabled``.

In ZooKeeper: `PrepRequestProcessor.pRequest2Txn`.
"""

from collections.abc import Callable, Sequence
from typing import NoReturn

from barnabas.coordination.core.access import require
from barnabas.coordination.core.changes import Change
from barnabas.coordination.core.operations.base import PlainValues, Staging, WriteOperation, existing, stat_of
from barnabas.coordination.core.operations.set_data import new_data
from barnabas.coordination.core.paths import CONFIG_PATH
from barnabas.coordination.quorum.configuration import QuorumConfiguration
from barnabas.wire.jute.errors import ErrorCode, KeeperError
from barnabas.wire.jute.layouts import JUTE_INT
from barnabas.wire.jute.opcodes import OpCode, Perms
from barnabas.wire.jute.records import ReconfigRequest

__all__ = ["ALONE", "OPERATIONS", "leader_operation"]


def _answer(change: Change) -> bytes:
    """Data and stat of the configuration's node."""
    node = change.node
    assert node is not None
    data = node.data or b""
    return JUTE_INT.pack(len(data)) + data + stat_of(node)


def _values(request: ReconfigRequest) -> PlainValues:
    return (request,)


def _refusing(code: ErrorCode) -> WriteOperation:
    def decide(_staging: Staging, _request: PlainValues) -> NoReturn:
        raise KeeperError(code)

    return WriteOperation(OpCode.RECONFIG, ReconfigRequest, _values, decide, _answer)


def leader_operation(
    plan: Callable[[ReconfigRequest, int], QuorumConfiguration], proposed: Callable[[int, QuorumConfiguration], None]
) -> WriteOperation:
    """The operation of a leader: ``plan`` decides on the configuration of a zxid, ``proposed``
    learns that it stands."""

    def decide(staging: Staging, request: tuple[ReconfigRequest]) -> Change:
        stamp = staging.stamp
        configuration = plan(*request, stamp.zxid)
        node = existing(staging.view, CONFIG_PATH)
        require(node.acl, Perms.WRITE, staging.ids, CONFIG_PATH)
        data = configuration.text().encode()
        change = new_data(OpCode.RECONFIG, stamp, CONFIG_PATH, node, data, -1)
        proposed(stamp.zxid, configuration)
        return change

    return WriteOperation(OpCode.RECONFIG, ReconfigRequest, _values, decide, _answer)


ALONE = _refusing(ErrorCode.UNIMPLEMENTED)
"""The operation of a server alone with reconfigEnabled."""

OPERATIONS: Sequence[WriteOperation] = [_refusing(ErrorCode.RECONFIG_DISABLED)]
