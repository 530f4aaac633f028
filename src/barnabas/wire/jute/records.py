"""The records that clients and servers exchange, field by field as in ZooKeeper's
protocol (``zookeeper.jute``)."""

from dataclasses import dataclass
from typing import Annotated, NamedTuple

from barnabas.wire.jute.codec import Int, Long, Usual

__all__ = [
    "ACL",
    "OPEN_ACL",
    "READ_ACL",
    "ACLs",
    "AddWatchRequest",
    "AuthPacket",
    "CheckVersionRequest",
    "CheckWatchesRequest",
    "ClientInfo",
    "ConnectRequest",
    "ConnectResponse",
    "Create2Response",
    "CreateRequest",
    "CreateResponse",
    "CreateTTLRequest",
    "DeleteRequest",
    "ErrorResponse",
    "ExistsRequest",
    "ExistsResponse",
    "GetACLRequest",
    "GetACLResponse",
    "GetAllChildrenNumberRequest",
    "GetAllChildrenNumberResponse",
    "GetChildren2Request",
    "GetChildren2Response",
    "GetChildrenRequest",
    "GetChildrenResponse",
    "GetDataRequest",
    "GetDataResponse",
    "GetEphemeralsRequest",
    "GetEphemeralsResponse",
    "GetSASLRequest",
    "Id",
    "ReconfigRequest",
    "RemoveWatchesRequest",
    "RequestHeader",
    "SetACLRequest",
    "SetACLResponse",
    "SetDataRequest",
    "SetDataResponse",
    "SetSASLResponse",
    "SetWatches",
    "SetWatches2",
    "Stat",
    "SyncRequest",
    "SyncResponse",
    "WatcherEvent",
    "WhoAmIResponse",
]


class Id(NamedTuple):
    """The identity of an ACL entry: ``world:anyone``, ``digest:user:hash``, ``ip:10.0.0.0/8``.

    Clients may send null for either: kazoo and the C client do for the id of ``auth``. No
    stored entry has a null.
    """

    scheme: str | None
    id: str | None


class ACL(NamedTuple):
    """One entry of an access control list: permissions (`Perms` bits) for an identity."""

    perms: Int
    id: Id


OPEN_ACL = (ACL(31, Id("world", "anyone")),)
"""Everyone may do everything."""

ACLs = Annotated[list[ACL] | None, Usual(list(OPEN_ACL))]
"""A node's access control list, which is open to all where the client has not protected it."""

READ_ACL = (ACL(1, Id("world", "anyone")),)
"""Everyone may read."""


@dataclass(slots=True)
class Stat:
    """A node's metadata.

    Zxids of creation, last change, last change of its children; times in ms since the epoch."""

    czxid: Long
    mzxid: Long
    ctime: Long
    mtime: Long
    version: Int
    cversion: Int
    aversion: Int
    ephemeral_owner: Long
    data_length: Int
    num_children: Int
    pzxid: Long


@dataclass(slots=True)
class ClientInfo:
    """One identity of a connection, in `WhoAmIResponse`."""

    auth_scheme: str
    user: str


# Connections


@dataclass(slots=True)
class ConnectRequest:
    """Opens a session or moves it to this connection; on the wire ``read_only`` follows
    since 3.4, see `frames`."""

    protocol_version: Int
    last_zxid_seen: Long
    timeout_ms: Int
    session_id: Long
    password: bytes | None


@dataclass(slots=True)
class ConnectResponse:
    """Answers `ConnectRequest`; a ``timeout_ms`` of 0 means that the session has expired."""

    protocol_version: Int
    timeout_ms: Int
    session_id: Long
    password: bytes | None


@dataclass(slots=True)
class RequestHeader:
    """Before every request but the first."""

    xid: Int
    type: Int


@dataclass(slots=True)
class WatcherEvent:
    """A watch fired: `EventType`, `KeeperState` and the path."""

    type: Int
    state: Int
    path: str


@dataclass(slots=True)
class AuthPacket:
    """Adds an identity to the connection."""

    type: Int
    scheme: str
    auth: bytes | None


@dataclass(slots=True)
class GetSASLRequest:
    """One step of a SASL authentication: what the client's mechanism says."""

    token: bytes | None


@dataclass(slots=True)
class SetSASLResponse:
    """What the server's mechanism says to it; null where the server has none."""

    token: bytes | None


@dataclass(slots=True)
class SetWatches:
    """Sets a reconnected client's watches.

    Those whose nodes have changed after ``relative_zxid`` fire at once."""

    relative_zxid: Long
    data_watches: list[str]
    exist_watches: list[str]
    child_watches: list[str]


@dataclass(slots=True)
class SetWatches2:
    """`SetWatches` with the persistent kinds."""

    relative_zxid: Long
    data_watches: list[str]
    exist_watches: list[str]
    child_watches: list[str]
    persistent_watches: list[str]
    persistent_recursive_watches: list[str]


# Writes


@dataclass(slots=True)
class CreateRequest:
    """create, create2 and createContainer; ``flags`` is a `CreateMode`."""

    path: str
    data: bytes | None
    acl: ACLs
    flags: Int


@dataclass(slots=True)
class CreateTTLRequest:
    """createTTL; ``ttl`` in milliseconds."""

    path: str
    data: bytes | None
    acl: ACLs
    flags: Int
    ttl: Long


@dataclass(slots=True)
class CreateResponse:
    """The path made, with its sequence number if it has one."""

    path: str


@dataclass(slots=True)
class Create2Response:
    """The path made and its stat."""

    path: str
    stat: Stat


@dataclass(slots=True)
class DeleteRequest:
    """delete and deleteContainer."""

    path: str
    version: Int


@dataclass(slots=True)
class SetDataRequest:
    """setData."""

    path: str
    data: bytes | None
    version: Int


@dataclass(slots=True)
class SetDataResponse:
    """The node's new stat."""

    stat: Stat


@dataclass(slots=True)
class SetACLRequest:
    """setACL; ``version`` is the ACL's."""

    path: str
    acl: ACLs
    version: Int


@dataclass(slots=True)
class SetACLResponse:
    """The node's new stat."""

    stat: Stat


@dataclass(slots=True)
class CheckVersionRequest:
    """check, inside of multi."""

    path: str
    version: Int


@dataclass(slots=True)
class ReconfigRequest:
    """Changes the ensemble's members."""

    joining_servers: str | None
    leaving_servers: str | None
    new_members: str | None
    cur_config_id: Long


@dataclass(slots=True)
class ErrorResponse:
    """A failed part of a multi."""

    err: Int


@dataclass(slots=True)
class SyncRequest:
    """sync."""

    path: str


@dataclass(slots=True)
class SyncResponse:
    """The path of the request."""

    path: str


# Reads


@dataclass(slots=True)
class ExistsRequest:
    """exists."""

    path: str
    watch: bool


@dataclass(slots=True)
class ExistsResponse:
    """The node's stat."""

    stat: Stat


@dataclass(slots=True)
class GetDataRequest:
    """getData."""

    path: str
    watch: bool


@dataclass(slots=True)
class GetDataResponse:
    """The node's data and stat."""

    data: bytes | None
    stat: Stat


@dataclass(slots=True)
class GetACLRequest:
    """getACL."""

    path: str


@dataclass(slots=True)
class GetACLResponse:
    """The node's ACL and stat."""

    acl: ACLs
    stat: Stat


@dataclass(slots=True)
class GetChildrenRequest:
    """getChildren."""

    path: str
    watch: bool


@dataclass(slots=True)
class GetChildrenResponse:
    """The children's names, in no order."""

    children: list[str]


@dataclass(slots=True)
class GetChildren2Request:
    """getChildren2."""

    path: str
    watch: bool


@dataclass(slots=True)
class GetChildren2Response:
    """The children's names, in no order, and the node's stat."""

    children: list[str]
    stat: Stat


@dataclass(slots=True)
class GetAllChildrenNumberRequest:
    """getAllChildrenNumber."""

    path: str


@dataclass(slots=True)
class GetAllChildrenNumberResponse:
    """The number of nodes below the path."""

    total_number: Int


@dataclass(slots=True)
class GetEphemeralsRequest:
    """getEphemerals."""

    prefix_path: str | None


@dataclass(slots=True)
class GetEphemeralsResponse:
    """The session's ephemerals whose paths start with the prefix."""

    ephemerals: list[str]


@dataclass(slots=True)
class CheckWatchesRequest:
    """Whether the connection has a watch of the `WatcherType`."""

    path: str
    type: Int


@dataclass(slots=True)
class RemoveWatchesRequest:
    """Removes the connection's watches of the `WatcherType`."""

    path: str
    type: Int


@dataclass(slots=True)
class AddWatchRequest:
    """Adds a persistent watch; ``mode`` is an `AddWatchMode`."""

    path: str
    mode: Int


@dataclass(slots=True)
class WhoAmIResponse:
    """The connection's identities."""

    client_info: list[ClientInfo]
