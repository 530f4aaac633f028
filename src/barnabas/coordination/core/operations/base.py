"""The parts of an operation.

A write is decided on a view (the tree with the changes of all earlier proposals): checks, then a
`Change`, or a `KeeperError`. Nothing is changed by deciding. A transaction of a log, or of a
leader, becomes a `Change` by `replay`; that depends only on the tree and the transaction, and
tolerates what a fuzzy snapshot already contains. `apply` puts a change into the tree.

A request or a transaction is read in one of two ways, which give equal values: from its bytes, if
it is a common one (`read_request`, `read_transaction`), or from its record.

A read looks at the committed tree and may set watches.

In ZooKeeper: `PrepRequestProcessor.pRequest2Txn`, `DataTree.processTxn` and
`FinalRequestProcessor.processRequest`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from barnabas.coordination.core.changes import Change
from barnabas.coordination.core.tree import Tree, View
from barnabas.coordination.core.watches import Watcher, Watches
from barnabas.coordination.core.znode import DataNode, as_int
from barnabas.wire.jute.errors import ErrorCode, KeeperError
from barnabas.wire.jute.layouts import STAT
from barnabas.wire.jute.opcodes import OpCode
from barnabas.wire.jute.records import Id

__all__ = [
    "Client",
    "ReadCounter",
    "ReadOperation",
    "ReadRequest",
    "Reading",
    "Staging",
    "Stamp",
    "TransactionType",
    "WriteOperation",
    "checked_version",
    "existing",
    "stat_of",
]


@dataclass(slots=True)
class Stamp:
    """The header of a transaction: whose it is, and when it happened. Requests that are decided
    together share one, in which the zxid goes on."""

    session_id: int
    zxid: int
    time_ms: int


@dataclass(slots=True)
class Staging:
    """What a write is decided on, beside the request."""

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


_TOO_GREAT = 1 << 31

PlainValues = tuple[Any, ...]
"""What a request asks for, or a transaction says, as plain values."""


@dataclass(frozen=True, slots=True)
class WriteOperation:
    """One opcode that changes the tree."""

    opcode: OpCode
    request_type: type | None
    """The request's record; None: decoded by itself, or there is none."""
    values: Callable[[Any], PlainValues]
    """The values of a request's record."""
    decide: Callable[[Staging, Any], Change]
    """``decide(staging, values)``: the change, or a `KeeperError`."""
    answer: Callable[[Change], bytes]
    """The body of the reply."""
    read_request: Callable[[bytes, int], tuple[int, PlainValues] | None] | None = None
    """``read_request(data, offset)``: the end of a common request and its values. None for another
    request. May raise struct.error and UnicodeDecodeError for one that is damaged."""
    is_internal: bool = False
    """Whether only servers ask for it, not clients."""


ReadRequest = tuple[int, int, Callable[[Staging, Any], Change], Callable[[Change], bytes], PlainValues]
"""A write that was read: its xid, its opcode, what decides and what answers it, and its values."""


@dataclass(frozen=True, slots=True)
class TransactionType:
    """One type of transactions."""

    type: OpCode
    encode: Callable[[Change, bytes, bytes], bytes]
    """``encode(change, before, behind)``: the record of a change's transaction, between what
    stands before and behind it."""
    values: Callable[[Any], PlainValues]
    """The values of a record."""
    replay: Callable[[Any, Stamp, Any], Change]
    """``replay(tree, stamp, values)``: the change; or a `KeeperError`, and nothing is to be
    changed."""
    apply: Callable[[Tree, Change], None]
    """Put the change into the tree."""
    read_transaction: Callable[[bytes, int, int], PlainValues | None] | None = None
    """``read_transaction(data, offset, end)``: the values of a common transaction that takes
    these bytes. None for another one. May raise struct.error and UnicodeDecodeError for one
    that is damaged."""


@dataclass(frozen=True, slots=True)
class ReadOperation:
    """One opcode that does not change the tree; ``request_type`` is None where the body is
    decoded by itself or there is none."""

    opcode: OpCode
    request_type: type | None
    read: Callable[[Reading, Any], object | None]
    is_sliced: bool = False
    """Whether ``read`` always returns a generator, which yields wherever other clients may be
    served, and returns the reply's body or None. Its reply is of the moment when it ends. Other
    reads may return a generator that only encodes: their reply is of the moment when it begins,
    and comes before all that the client gets in between."""


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


def stat_of(node: DataNode) -> bytes:
    """The `Stat` of a node, as `DataNode.stat` has it."""
    data, num_children, owner = node.data, node.num_children, node.owner
    cversion = node.cversion * 2 - num_children
    return STAT.pack(
        node.czxid,
        node.mzxid,
        node.ctime,
        node.mtime,
        node.version,
        cversion if cversion < _TOO_GREAT else as_int(cversion),
        node.aversion,
        owner if owner and node.is_ephemeral else 0,
        len(data) if data else 0,
        num_children,
        node.pzxid,
    )
