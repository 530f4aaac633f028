"""What the core takes from the log of ``_schemas``, and what it gives to be written there.

In Confluent's registry: `StoreUpdateHandler`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

__all__ = ["Answer", "Decision", "LogRecord", "NewRecord"]

Answer = Any
"""A value for JSON: the body of an answer."""


class LogRecord(NamedTuple):
    """A record as it stands in the topic."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None


class NewRecord(NamedTuple):
    """A record to append; no value deletes the key."""

    key: bytes
    value: bytes | None


@dataclass(frozen=True, slots=True)
class Decision:
    """What an operation that may write needs, and its answer.

    Without ``records`` nothing is to be written: any instance may give the answer. With records,
    or when the operation raised RegistryError, a follower forwards the request to the leader,
    which knows the end of the log. A leader appends all records in their order, applies the log
    up to the last of them (``Registry.apply``), and calls ``answer`` then and not before: it reads
    the state, and raises RegistryError if another writer was there first. Between a decision and
    its answer the leader decides nothing else, because the next decision needs the records."""

    records: tuple[NewRecord, ...]
    answer: Callable[[], Answer]
