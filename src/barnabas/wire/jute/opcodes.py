"""The numbers of ZooKeeper's operations, events and flags."""

from enum import IntEnum, IntFlag

__all__ = [
    "ANY_VERSION",
    "CONTAINER_OWNER",
    "AddWatchMode",
    "CreateMode",
    "EventType",
    "KeeperState",
    "OpCode",
    "Perms",
    "WatcherType",
    "Xid",
]


class OpCode(IntEnum):
    """The type of a request or a transaction."""

    NOTIFICATION = 0
    CREATE = 1
    DELETE = 2
    EXISTS = 3
    GET_DATA = 4
    SET_DATA = 5
    GET_ACL = 6
    SET_ACL = 7
    GET_CHILDREN = 8
    SYNC = 9
    PING = 11
    GET_CHILDREN2 = 12
    CHECK = 13
    MULTI = 14
    CREATE2 = 15
    RECONFIG = 16
    CHECK_WATCHES = 17
    REMOVE_WATCHES = 18
    CREATE_CONTAINER = 19
    DELETE_CONTAINER = 20
    CREATE_TTL = 21
    MULTI_READ = 22
    AUTH = 100
    SET_WATCHES = 101
    SASL = 102
    GET_EPHEMERALS = 103
    GET_ALL_CHILDREN_NUMBER = 104
    SET_WATCHES2 = 105
    ADD_WATCH = 106
    WHO_AM_I = 107
    CREATE_SESSION = -10
    CLOSE_SESSION = -11
    ERROR = -1


class Xid(IntEnum):
    """Request numbers with a special meaning; all others are counted by the client."""

    WATCHER_EVENT = -1
    PING = -2
    AUTH = -4
    SET_WATCHES = -8


class EventType(IntEnum):
    """The type of a watch event."""

    NONE = -1
    NODE_CREATED = 1
    NODE_DELETED = 2
    NODE_DATA_CHANGED = 3
    NODE_CHILDREN_CHANGED = 4
    DATA_WATCH_REMOVED = 5
    CHILD_WATCH_REMOVED = 6
    PERSISTENT_WATCH_REMOVED = 7


class KeeperState(IntEnum):
    """The session's state in a watch event."""

    DISCONNECTED = 0
    SYNC_CONNECTED = 3
    AUTH_FAILED = 4
    CONNECTED_READ_ONLY = 5
    SASL_AUTHENTICATED = 6
    EXPIRED = -112
    CLOSED = 7


class WatcherType(IntEnum):
    """The watches that checkWatches and removeWatches concern."""

    CHILDREN = 1
    DATA = 2
    ANY = 3
    PERSISTENT = 4
    PERSISTENT_RECURSIVE = 5


class AddWatchMode(IntEnum):
    """The kinds of persistent watches."""

    PERSISTENT = 0
    PERSISTENT_RECURSIVE = 1


class CreateMode(IntEnum):
    """The flags field of the create requests."""

    PERSISTENT = 0
    EPHEMERAL = 1
    PERSISTENT_SEQUENTIAL = 2
    EPHEMERAL_SEQUENTIAL = 3
    CONTAINER = 4
    PERSISTENT_WITH_TTL = 5
    PERSISTENT_SEQUENTIAL_WITH_TTL = 6

    @property
    def is_ephemeral(self) -> bool:
        return self is CreateMode.EPHEMERAL or self is CreateMode.EPHEMERAL_SEQUENTIAL

    @property
    def is_sequential(self) -> bool:
        return self in (
            CreateMode.PERSISTENT_SEQUENTIAL,
            CreateMode.EPHEMERAL_SEQUENTIAL,
            CreateMode.PERSISTENT_SEQUENTIAL_WITH_TTL,
        )

    @property
    def has_ttl(self) -> bool:
        return self is CreateMode.PERSISTENT_WITH_TTL or self is CreateMode.PERSISTENT_SEQUENTIAL_WITH_TTL


class Perms(IntFlag):
    """The permissions of an ACL entry."""

    READ = 1
    WRITE = 2
    CREATE = 4
    DELETE = 8
    ADMIN = 16


ANY_VERSION = -1
"""In setData, delete, setACL and check: any version."""

CONTAINER_OWNER = -(1 << 63)
"""The ``ephemeral_owner`` of a container node."""
