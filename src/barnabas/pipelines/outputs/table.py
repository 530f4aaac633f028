"""What every output is to a flow: a table that takes micro-batches. Needs no output's package.

A micro-batch is applied once, whether Spark runs it once or again after a crash. In one transaction
a batch upserts its rows on their key and writes its epoch to the table ``barnabas_epochs``:

    flow | sink | query | epoch        primary key (flow, sink)

An epoch that is not above the one noted for the same query (Spark's id, kept in the checkpoint) was
applied before and changes nothing. A new checkpoint is a new query, whose epochs start again at 0;
its rows replace those of equal key.

A new table has no epochs, even if there was one of its name before: that one was dropped, and its
rows with it. So the epoch says truly which batches the table holds, and a flow whose checkpoint
counts more of them refuses to go on (`barnabas.pipelines.running.batch_sinks`).

A row that is marked as `DELETION_MARK` removes the row of its key in the same transaction; of two
rows with one key only the last comes.

In a database a ``NULL`` in a key differs from every other NULL, but in a flow rows with a null key
are one group. So such rows are deleted and inserted.

Lake tables and OpenSearch have no such table; their modules say what they keep instead.
"""

from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

__all__ = ["DELETION_MARK", "OutputTable", "TableState", "split_deleted"]

DELETION_MARK = "_barnabas_deleted"
"""A column beside those of the table: whether a row stands for the deletion of its
key's row. It may be missing."""


def split_deleted(rows: pa.Table) -> tuple[pa.Table, pa.Table]:
    """The rows that are to be kept, and those whose keys are to be deleted."""
    if DELETION_MARK not in rows.column_names:
        return rows, rows.slice(0, 0)
    import pyarrow.compute as pc

    return rows.filter(pc.invert(rows[DELETION_MARK])), rows.filter(rows[DELETION_MARK])


class OutputTable(Protocol):
    """A table, connected and prepared, that takes batches."""

    def apply(self, rows: pa.Table, flow: str, query: str, epoch: int) -> bool:
        """Upserts the rows, or deletes those marked by `DELETION_MARK`, with their epoch.

        False when this epoch was applied before."""
        ...

    def last_epoch(self, flow: str, query: str) -> int | None:
        """The last batch of the query that the table holds, -1 for none.

        None if it keeps no such note."""
        ...

    def close(self) -> None:
        """Releases the connection."""
        ...


@dataclass(frozen=True, slots=True)
class TableState:
    """A table as it is found, for ``barnabas pipeline dry-run``, which changes nothing."""

    columns: tuple[str, ...] | None
    """None if they are not known."""
    last_epoch: int | None
    """As `OutputTable.last_epoch` has it."""
