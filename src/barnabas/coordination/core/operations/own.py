"""ping, sync, getEphemerals, whoAmI: reads about the session and the connection.

In ZooKeeper: `FinalRequestProcessor.processRequest`.
"""

from collections.abc import Sequence

from barnabas.coordination.core.access import user_name
from barnabas.coordination.core.operations.base import Reading, ReadOperation
from barnabas.wire.jute.opcodes import OpCode
from barnabas.wire.jute.records import (
    ClientInfo,
    GetEphemeralsRequest,
    GetEphemeralsResponse,
    SyncRequest,
    SyncResponse,
    WhoAmIResponse,
)

__all__ = ["OPERATIONS"]


def _ping(_reading: Reading, _request: None) -> None:
    return None


def _sync(_reading: Reading, request: SyncRequest) -> SyncResponse:
    """A server alone has seen every write that was acknowledged."""
    return SyncResponse(request.path)


def _get_ephemerals(reading: Reading, request: GetEphemeralsRequest) -> GetEphemeralsResponse:
    prefix = (request.prefix_path or "").strip()
    paths = sorted(reading.tree.ephemerals_of(reading.client.session_id))
    if prefix in ("", "/"):
        return GetEphemeralsResponse(paths)
    return GetEphemeralsResponse([path for path in paths if path.startswith(request.prefix_path or "")])


def _who_am_i(reading: Reading, _request: None) -> WhoAmIResponse:
    named = [(each.scheme or "", user_name(each)) for each in reading.client.ids]
    return WhoAmIResponse([ClientInfo(scheme, user) for scheme, user in named if user is not None])


OPERATIONS: Sequence[ReadOperation] = [
    ReadOperation(OpCode.PING, None, _ping),
    ReadOperation(OpCode.SYNC, SyncRequest, _sync),
    ReadOperation(OpCode.GET_EPHEMERALS, GetEphemeralsRequest, _get_ephemerals),
    ReadOperation(OpCode.WHO_AM_I, None, _who_am_i),
]
