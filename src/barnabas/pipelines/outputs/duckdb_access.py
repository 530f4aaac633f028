"""DuckDB as flows use it: a database, or none, in which a query reaches nothing else.

By itself DuckDB reads and writes any file that a query names, asks the network, installs extensions
and sees this process's variables. The queries of charts come from a flow's file, which may be
another person's, and views come from a database's file.
"""

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import duckdb

__all__ = ["open_duckdb", "select_problem"]

_NONE = ":memory:"
_CLOSED: dict[str, Any] = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "allow_persistent_secrets": "false",
    "python_enable_replacements": "false",
}
_QUERIES = ("SELECT", "MULTI")
"""Kinds of statements that only read: PIVOT is of the second one."""


@contextlib.contextmanager
def open_duckdb(path: str = _NONE, *, read_only: bool = False) -> "Iterator[duckdb.DuckDBPyConnection]":
    """A connection whose settings no query can change, closed at the end of the block.

    Times are in UTC. Raises ``duckdb.Error``."""
    import duckdb

    with duckdb.connect(path, read_only=read_only, config=_CLOSED) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        # A writer needs the files beside its own, such as the log of its transactions.
        if read_only or path == _NONE:
            connection.execute("SET enable_external_access = false")
        connection.execute("SET lock_configuration = true")
        yield connection


def select_problem(connection: "duckdb.DuckDBPyConnection", query: str) -> str | None:
    """Why a text is not one query that only reads; None if it is.

    Nothing is run. Raises ``duckdb.ParserException``."""
    found = connection.extract_statements(query)
    if len(found) != 1:
        return f"has {len(found)} statements, but must be one SELECT" if found else "is empty"
    return None if found[0].type.name in _QUERIES else "is no SELECT"
