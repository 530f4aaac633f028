"""The parts of an operation.

A write is decided on the staged view (the tree with all earlier proposals applied): checks, then a transaction, or a
`KeeperError`. A function of its own applies the transaction; it also replays the log, so it depends only on the view
and the transaction, and tolerates changes that a fuzzy snapshot already contains.

A read looks at the committed tree and may set watches.

In ZooKeeper: `PrepRequestProcessor.pRequest2Txn`, `DataTree.processTxn` and `FinalRequestProcessor.processRequest`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from barnabas.coordination.core.tree import Events, Tree, View
from barnabas.coordination.core.watches import Watcher, Watches
from barnabas.coordination.core.znode import DataNode
from barnabas.wire.jute.errors import ErrorCode, KeeperError
from barnabas.wire.jute.opcodes import OpCode
from barnabas.wire.jute.records import Id
from barnabas.wire.jute.transactions import Transaction

__all__ = [
    "Apply",
    "Client",
    "Outcome",
    "ReadCounter",
    "ReadOperation",
    "Reading",
    "Staging",
    "Stamp",
    "WriteOperation",
    "checked_version",
    "deciding",
    "existing",
]


class Stamp(NamedTuple):
    """The header of a transaction: whose it is, and when it happened."""

    session_id: int
    zxid: int
    time_ms: int


class Staging(NamedTuple):
    """The input of a write's decision."""

    view: View
    stamp: Stamp
    ids: list[Id]
    """The identities of the client's connection."""
    ttl_nodes: bool
    """Whether TTL nodes are switched on (extendedTypesEnabled)."""
    schemes: frozenset[str]
    """The authentication schemes that an ACL may name."""
    limited_tree: Tree | None
    """The committed tree, whose quotas limit the write; None where quotas are not enforced."""


class Outcome(NamedTuple):
    """The result of applying a transaction, from which the reply is made."""

    type: int
    path: str = ""
    node: DataNode | None = None
    err: int = 0
    parts: "list[Outcome]" = []  # never changed


class Client(Watcher, Protocol):
    """The client's connection."""

    @property
    def session_id(self) -> int: ...

    @property
    def ids(self) -> list[Id]: ...


class ReadCounter(Protocol):
    """Counts reads by namespace."""

    def read(self, path: str, data_bytes: int) -> None: ...


class Reading(NamedTuple):
    """The input of a read."""

    tree: Tree
    watches: Watches[Any]
    client: Client
    max_reply_bytes: int
    counter: ReadCounter


Apply = Callable[[View, Stamp, Any, Events], Outcome]
"""``apply(view, stamp, transaction, events)``: changes the view, and appends the events for watches."""

Stage = Callable[[Staging, Any, Events], tuple[int, Transaction, Outcome]]


@dataclass(frozen=True, slots=True)
class WriteOperation:
    """One opcode that changes the tree: its request's type (None: decoded by itself), how it is decided and applied to
    the staged view, and what it replies."""

    opcode: OpCode
    request_type: type | None
    stage: Stage
    reply: Callable[[Outcome], object | None]


@dataclass(frozen=True, slots=True)
class ReadOperation:
    """One opcode that does not change the tree; ``request_type`` is None where the body is decoded by itself or there
    is none."""

    opcode: OpCode
    request_type: type | None
    read: Callable[[Reading, Any], object | None]
    is_sliced: bool = False
    """Whether ``read`` always returns a generator, which yields wherever other clients may be served, and returns the reply's body
    or None. Its reply is of the moment when it ends. Other reads may return a generator that only encodes: their reply is of the
    moment when it begins, and comes before all that the client gets in between."""


def deciding(decide: Callable[[Staging, Any], tuple[int, Transaction]], apply: Apply) -> Stage:
    """The usual way to stage: decide, then apply what was decided."""

    def stage(staging: Staging, request: Any, events: Events) -> tuple[int, Transaction, Outcome]:
        txn_type, txn = decide(staging, request)
        return txn_type, txn, apply(staging.view, staging.stamp, txn, events)

    return stage


def existing(view: View, path: str) -> DataNode:
    """The node, or NO_NODE."""
    node = view.get(path)
    if node is None:
        raise KeeperError(ErrorCode.NO_NODE, path)
    return node


def checked_version(current: int, expected: int, path: str) -> int:
    """The version after ``current``; BAD_VERSION if another one was expected. -1 expects any."""
    if expected not in (-1, current):
        raise KeeperError(ErrorCode.BAD_VERSION, path)
    return current + 1 if current != 0x7FFFFFFF else -0x80000000
