"""Queries of charts, run by DuckDB over a result; and what is wrong with one, before there is any
result and without running it."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from barnabas.base.hints import did_you_mean
from barnabas.pipelines.dashboard.charts import ChartError
from barnabas.pipelines.outputs.duckdb_access import open_duckdb, select_problem
from barnabas.pipelines.specification.charts import Chart

__all__ = ["query_problem", "run_query"]

_REFUSED = (
    *("Referenced column", "Referenced table", "does not exist", "does not have a column"),
    *("disabled by configuration", "disabled through configuration", "Permission Error"),
)
"""In errors that are not about types."""


def run_query(chart: Chart, results: pa.Table) -> pa.Table:
    """What the chart shows of the results; raises `ChartError`."""
    if not chart.query:
        return results
    import duckdb

    with open_duckdb() as connection:
        try:
            if problem := select_problem(connection, chart.query):
                raise ChartError(f"query: {problem}")
            connection.register("results", results)
            return connection.sql(chart.query).to_arrow_table()
        except duckdb.Error as error:
            raise ChartError(f"query: {error}") from error


def query_problem(chart: Chart, columns: Sequence[str]) -> tuple[str, str] | None:
    """The part of the chart that is wrong and why, for results with these columns.

    None if nothing is found, or without DuckDB. Names and syntax only: the types of columns differ
    from one sink to another.
    """
    try:
        import duckdb
    except ImportError:
        return None
    query = chart.query or "FROM results"
    with open_duckdb() as connection:
        connection.register("results", pa.table({name: pa.nulls(0) for name in columns}))
        try:
            if problem := select_problem(connection, query):
                return "query", problem
            found: Any = connection.sql(query)
        except duckdb.ParserException as error:
            return "query", _first_line(error)
        except duckdb.Error as error:
            text = _first_line(error)
            return ("query", text) if any(words in text for words in _REFUSED) else None
        if chart.type != "table":
            for part, name in chart.columns:
                if name not in found.columns:
                    hint = did_you_mean(name, found.columns) or f"; it gives {', '.join(found.columns)}"
                    return part, f"names {name}, which the query does not give{hint}"
    return None


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0]
