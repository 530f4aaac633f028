"""One module for each kind of operation; the processor and the replay of the log dispatch by the
tables here.

In ZooKeeper: the cases of `PrepRequestProcessor` and of `FinalRequestProcessor`.
"""

from barnabas.coordination.core.operations import (
    create,
    delete,
    multi,
    own,
    reads,
    reconfig,
    session,
    set_acl,
    set_data,
    watching,
)
from barnabas.coordination.core.operations.base import ReadOperation, TransactionType, WriteOperation

__all__ = ["CLIENT_WRITES", "READS", "TRANSACTIONS", "WRITES"]

WRITES: dict[int, WriteOperation] = {
    int(operation.opcode): operation
    for module in (create, delete, set_data, set_acl, multi, reconfig, session)
    for operation in module.OPERATIONS
}
"""Operations that take a zxid and go through the log, by opcode."""

CLIENT_WRITES = frozenset(opcode for opcode, operation in WRITES.items() if not operation.is_internal)
"""The opcodes of those that clients may request."""

READS: dict[int, ReadOperation] = {
    operation.opcode: operation for module in (reads, watching, own) for operation in module.OPERATIONS
}
"""Operations that are answered from the committed tree, by opcode."""

TRANSACTIONS: dict[int, TransactionType] = {
    int(found.type): found
    for module in (create, delete, set_data, set_acl, multi, session)
    for found in module.TRANSACTIONS
}
"""How a transaction is written, read and applied, by the type in its header."""
