"""A reading as one JSON document: each view's rows with the names of its columns.

In Kafka: no counterpart; ``--json`` of `LogDirsCommand` is the like.
"""

from typing import Any

from barnabas.top.rates import Seen
from barnabas.top.views import VIEWS

__all__ = ["document_of"]


def document_of(seen: Seen) -> dict[str, Any]:
    """Values are as they were read: seconds, bytes, ms, as their names say; null is not known."""
    snapshot = seen.snapshot
    document: dict[str, Any] = {
        "cluster_id": snapshot.cluster_id,
        "at_ms": snapshot.at_ms,
        "took_ms": snapshot.took_ms,
        "seconds_between_readings": seen.rates.seconds,
    }
    for name, view in VIEWS.items():
        table = view.table(seen)
        names = [column.name for column in table.columns]
        document[name] = [dict(zip(names, (cell.value for cell in row.cells), strict=True)) for row in table.rows]
    return document | {"notes": dict(snapshot.notes), "errors": list(snapshot.gaps)}
