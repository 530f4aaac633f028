"""Errors of the registry, with the codes of Confluent's.

In Confluent's registry: `Errors` and the exceptions of its package `rest.exceptions`.
"""

from enum import IntEnum

__all__ = ["ErrorCode", "RegistryError"]


class ErrorCode(IntEnum):
    """The codes of errors in answers. The first three digits are the HTTP status.

    Source: Confluent's API reference of the Schema Registry."""

    BAD_REQUEST = 400
    SUBJECT_NOT_FOUND = 40401
    VERSION_NOT_FOUND = 40402
    SCHEMA_NOT_FOUND = 40403
    SUBJECT_SOFT_DELETED = 40404
    SUBJECT_NOT_SOFT_DELETED = 40405
    VERSION_SOFT_DELETED = 40406
    VERSION_NOT_SOFT_DELETED = 40407
    SUBJECT_COMPATIBILITY_NOT_CONFIGURED = 40408
    SUBJECT_MODE_NOT_CONFIGURED = 40409
    INCOMPATIBLE_SCHEMA = 40901
    INVALID_SCHEMA = 42201
    INVALID_VERSION = 42202
    INVALID_COMPATIBILITY_LEVEL = 42203
    INVALID_MODE = 42204
    OPERATION_NOT_PERMITTED = 42205
    REFERENCE_EXISTS = 42206
    ID_DOES_NOT_MATCH = 42207
    INVALID_SUBJECT = 42208
    SCHEMA_TOO_LARGE = 42209
    INVALID_RULE_SET = 42210
    CONTEXT_NOT_EMPTY = 42211
    STORE_ERROR = 50001
    OPERATION_TIMED_OUT = 50002
    FORWARDING_FAILED = 50003
    UNKNOWN_LEADER = 50004


class RegistryError(Exception):
    """A request that is refused, or that failed: a code and a text for a person."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message

    @property
    def status(self) -> int:
        """The HTTP status."""
        return int(str(int(self.code))[:3])
