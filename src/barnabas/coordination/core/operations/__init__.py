"""One module for each kind of operation; the processor and the replay of the log dispatch by the tables here.

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
from barnabas.coordination.core.operations.base import Apply, ReadOperation, WriteOperation

__all__ = ["APPLY", "READS", "WRITES"]

WRITES: dict[int, WriteOperation] = {
    operation.opcode: operation
    for module in (create, delete, set_data, set_acl, multi, reconfig, session)
    for operation in module.OPERATIONS
}
"""Operations that take a zxid and go through the log, by opcode."""

READS: dict[int, ReadOperation] = {
    operation.opcode: operation for module in (reads, watching, own) for operation in module.OPERATIONS
}
"""Operations that are answered from the committed tree, by opcode."""

APPLY: dict[int, Apply] = {
    txn_type: apply
    for module in (create, delete, set_data, set_acl, multi, session)
    for txn_type, apply in module.APPLY.items()
}
"""How a transaction of the log changes the tree, by the type in its header."""
