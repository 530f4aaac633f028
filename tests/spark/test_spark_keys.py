"""Equality of keys in outputs that are servers, and in whole flows, for every type of key.

tests/unit/test_pipeline_keys.py has the outputs of this machine.
"""

from collections.abc import Iterator
from typing import Any

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.interop]
pa = pytest.importorskip("pyarrow")
psycopg = pytest.importorskip("psycopg")

from barnabas.pipelines.outputs.kinds import open_output  # noqa: E402
from barnabas.pipelines.outputs.table import OutputTable  # noqa: E402
from barnabas.pipelines.spec import DatabaseSink  # noqa: E402
from support.key_matrix import (  # noqa: E402
    KEY_TYPES,
    STEPS,
    TRIED_KEYS,
    KeyType,
    Place,
    as_native,
    run_cells,
    schema_of,
    types_of,
)
from support.needs import needs  # noqa: E402
from support.postgres_server import PostgresServer, running_postgres  # noqa: E402


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    """A running server."""
    with running_postgres() as running:
        yield running


@needs("initdb", "pg_ctl")
@pytest.mark.parametrize("name", [each for each in KEY_TYPES if each != "U+0000"])
@pytest.mark.parametrize("key", TRIED_KEYS, ids="-".join)
def test_rows_of_equal_keys_are_one_row_in_postgresql(
    postgres: PostgresServer, name: str, key: tuple[str, ...]
) -> None:
    """As in the outputs of this machine."""

    def open_place(kind: KeyType, key: tuple[str, ...]) -> OutputTable:
        sink = DatabaseSink("postgresql", postgres.url, "t", key)
        return open_output(sink, types_of(kind, key), schema_of(kind, key), rows_change=True)

    def read(key: tuple[str, ...]) -> list[tuple[Any, ...]]:
        with psycopg.connect(postgres.url) as connection:
            return connection.execute(f"SELECT {', '.join((*key, 'v'))} FROM t").fetchall()

    with psycopg.connect(postgres.url) as connection:
        connection.execute("DROP TABLE IF EXISTS t")
    steps = []
    for step, found, expected in run_cells(Place(open_place, read, as_native), KEY_TYPES[name], key):
        assert found == expected, step
        steps.append(step)
    assert tuple(steps) == STEPS
