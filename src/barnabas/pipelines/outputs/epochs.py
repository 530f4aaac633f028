"""The table in which databases keep the last micro-batch of each sink
(`barnabas.pipelines.outputs.table`). Needs no package."""

from collections.abc import Callable
from typing import Any

__all__ = ["EPOCHS_TABLE", "delete_epochs_statement", "read_epoch", "select_epoch_statement"]

EPOCHS_TABLE = "barnabas_epochs"


def select_epoch_statement(placeholder: str) -> str:
    """The last epoch of a flow, a sink and a query, the statement's three parameters."""
    conditions = " AND ".join(f"{column} = {placeholder}" for column in ("flow", "sink", "query"))
    return f"SELECT epoch FROM {EPOCHS_TABLE} WHERE {conditions}"  # noqa: S608  # constants


def delete_epochs_statement(placeholder: str) -> str:
    """Forget the epochs of a sink, the statement's parameter, whose table is new."""
    return f"DELETE FROM {EPOCHS_TABLE} WHERE sink = {placeholder}"  # noqa: S608  # constants


def read_epoch(
    ask: Callable[..., list[Any]], placeholder: str, has_epochs: object, flow: str, table: str, query: str
) -> int:
    """The last epoch in a database's table of epochs.

    ``ask`` runs a statement with values, ``has_epochs`` says if that table is there.
    """
    noted = ask(select_epoch_statement(placeholder), [flow, table, query]) if has_epochs else []
    return int(noted[0][0]) if noted else -1
