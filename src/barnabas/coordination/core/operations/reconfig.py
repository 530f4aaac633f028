"""reconfig: change the members of the ensemble. A server alone refuses it, as Apache's does without reconfigEnabled.

In ZooKeeper: `PrepRequestProcessor.pRequest2Txn`.
"""

from collections.abc import Sequence
from typing import Any, NoReturn

from barnabas.coordination.core.operations.base import Staging, WriteOperation
from barnabas.coordination.core.tree import Event
from barnabas.wire.jute.errors import ErrorCode, KeeperError
from barnabas.wire.jute.opcodes import OpCode
from barnabas.wire.jute.records import ReconfigRequest

__all__ = ["OPERATIONS"]


def _stage(_staging: Staging, _request: Any, _events: list[Event]) -> NoReturn:
    raise KeeperError(ErrorCode.RECONFIG_DISABLED)


OPERATIONS: Sequence[WriteOperation] = [
    WriteOperation(OpCode.RECONFIG, ReconfigRequest, _stage, lambda _: None),
]
