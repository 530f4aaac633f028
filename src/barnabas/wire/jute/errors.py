"""ZooKeeper's error codes, and the exception that carries one."""

from enum import IntEnum

from barnabas.base.errors import BarnabasError

__all__ = ["ErrorCode", "KeeperError", "error_code"]


class ErrorCode(IntEnum):
    """The ``err`` field of a reply.

    Codes above `API_ERROR` are faults of the system, codes below it of the request."""

    OK = 0
    SYSTEM_ERROR = -1
    RUNTIME_INCONSISTENCY = -2
    DATA_INCONSISTENCY = -3
    CONNECTION_LOSS = -4
    MARSHALLING_ERROR = -5
    UNIMPLEMENTED = -6
    OPERATION_TIMEOUT = -7
    BAD_ARGUMENTS = -8
    UNKNOWN_SESSION = -12
    NEW_CONFIG_NO_QUORUM = -13
    RECONFIG_IN_PROGRESS = -14
    API_ERROR = -100
    NO_NODE = -101
    NO_AUTH = -102
    BAD_VERSION = -103
    NO_CHILDREN_FOR_EPHEMERALS = -108
    NODE_EXISTS = -110
    NOT_EMPTY = -111
    SESSION_EXPIRED = -112
    INVALID_CALLBACK = -113
    INVALID_ACL = -114
    AUTH_FAILED = -115
    SESSION_MOVED = -118
    NOT_READ_ONLY = -119
    EPHEMERAL_ON_LOCAL_SESSION = -120
    NO_WATCHER = -121
    REQUEST_TIMEOUT = -122
    RECONFIG_DISABLED = -123
    SESSION_CLOSED_REQUIRE_SASL_AUTH = -124
    QUOTA_EXCEEDED = -125
    THROTTLED_OP = -127


def error_code(err: int) -> ErrorCode:
    """The code for the ``err`` field of a reply; SYSTEM_ERROR for an unknown number."""
    try:
        return ErrorCode(err)
    except ValueError:
        return ErrorCode.SYSTEM_ERROR


class KeeperError(BarnabasError):
    """A request that the coordination service refuses; ``code`` goes on the wire."""

    def __init__(self, code: ErrorCode, path: str = "") -> None:
        super().__init__(code, path)
        self.code = code
        self.path = path

    def __str__(self) -> str:
        return f"{self.code.name} for {self.path}" if self.path else self.code.name
