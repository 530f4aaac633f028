"""`pipeline verify` on real outputs: right ones are found right, and of changed ones exactly the
changed rows are listed."""

import contextlib
import hashlib
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]
pytest.importorskip("pyspark")

from barnabas.pipelines.running.run import run_on  # noqa: E402
from barnabas.pipelines.specification import spec  # noqa: E402
from barnabas.pipelines.verification.verification import Verification, verify_flow  # noqa: E402
from support.needs import missing  # noqa: E402
from support.postgres_server import running_postgres  # noqa: E402

SOURCE = """\
name = "{topic}"
checkpoint = "state"
[source]
bootstrap_servers = "{bootstrap}"
topics = ["{topic}"]
group = "{topic}"
bad_rows_topic = "{topic}-bad"
max_offsets_per_trigger = 100
[source.format]
type = "json"
columns = {{ id = "int", at = "timestamp", price = "decimal(8,2)", share = "float", tags = "array<string>", gone = "boolean" }}
"""
KEYED = """\
[[sinks]]
type = "sqlite"
path = "out.db"
table = "t"
key = ["id"]
delete_when = "gone"
[[sinks]]
type = "duckdb"
path = "out.duckdb"
table = "t"
key = ["id"]
[[sinks]]
type = "delta"
path = "lake"
key = ["id"]
delete_when = "gone"
[[sinks]]
type = "topic"
topic = "{topic}-results"
key = ["id"]
delete_when = "gone"
"""
OF_POSTGRES = """\
[[sinks]]
type = "postgresql"
url = "{url}"
table = "t"
key = ["id"]
delete_when = "gone"
"""
BY_POSITION = """\
[[sinks]]
type = "parquet"
path = "files"
[[sinks]]
type = "search"
path = "index.db"
table = "t"
text = ["tags"]
[[sinks]]
function = "flow.py:see"
"""


def record(number: int) -> tuple[bytes, bytes]:
    """One of ten keys; every seventh record deletes."""
    row = {
        "id": number % 10,
        "at": f"2026-01-01T00:00:{number % 60:02}+01:00",
        "price": number / 4,
        "share": number / 3,
    }
    return b"%d" % (number % 10), json.dumps({**row, "tags": ["a", f"b{number}"], "gone": number % 7 == 0}).encode()


def contents(folder: Path) -> dict[str, str]:
    """What a verification must leave as it is."""
    # A reader makes the first ones, too; the figures of the last run may come a
    # moment after its end.
    passing = (".lock", "out.db-shm", "out.db-wal", "run.json")
    files = [each for each in folder.rglob("*") if each.is_file() and each.name not in passing]
    return {str(each.relative_to(folder)): hashlib.sha256(each.read_bytes()).hexdigest() for each in files}


def verify(spark: Any, flow: spec.Flow) -> Verification:
    return verify_flow(spark, flow, limit=5, say=lambda _: None)


def change(path: Path, *statements: str) -> None:
    """Somebody works on a table by hand."""
    connection = sqlite3.connect(path)
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()


def test_rows_by_key_are_verified_in_tables_and_topics(spark: Any, cluster: Any, tmp_path: Path) -> None:
    """All are right after several runs; then a row is missing, one is extra, and one differs."""
    topic = cluster.topic(1)
    with contextlib.nullcontext() if missing(["initdb", "pg_ctl"]) else running_postgres() as server:
        url = server.url if server else ""
        text = SOURCE + KEYED + (OF_POSTGRES if url else "")
        text = text.format(topic=topic, bootstrap=cluster.bootstrap, url=url)
        flow = spec.parse(text, file=str(tmp_path / "flow.toml"))
        for first in (0, 60):
            cluster.produce(topic, [record(number) for number in range(first, first + 60)])
            cluster.produce(topic, [(b"x", b"no json")])
            run_on(spark, flow)
        before, letters = contents(tmp_path), len(cluster.read(f"{topic}-bad"))
        committed = cluster.committed(topic, topic, 1)
        cluster.produce(topic, [record(1000)])  # it is not read yet
        found = verify(spark, flow)
        assert [(each.verified, each.differs) for each in found.sinks] == [(True, False)] * len(flow.sinks), found.sinks
        assert [each.rows for each in found.sinks] == [8, 10, 8, 8, 8][: len(flow.sinks)]
        (looked_at,) = found.ranges
        assert (looked_at.start, looked_at.end, looked_at.gone) == (0, 122, 0)
        assert contents(tmp_path) == before
        assert (len(cluster.read(f"{topic}-bad")), cluster.committed(topic, topic, 1)) == (letters, committed)

    change(
        tmp_path / "out.db",
        "DELETE FROM t WHERE id = 1", "UPDATE t SET price = '7' WHERE id = 3", "INSERT INTO t (id) VALUES (77)",
    )  # fmt: skip
    table = verify(spark, flow).sinks[0]
    assert (table.missing, table.different, table.extra) == (1, 1, 1)
    assert [(each.kind, each.key) for each in table.examples] == [
        ("missing", "[1]"),
        ("different", "[3]"),
        ("extra", "[77]"),
    ]


def test_rows_by_position_are_verified_as_far_as_the_topic_holds_them(spark: Any, cluster: Any, tmp_path: Path) -> None:
    """Functions are not; rows of records that are gone are no difference, and a
    missing row is one."""
    topic = cluster.topic(1)
    (tmp_path / "flow.py").write_text("def see(rows, number):\n    pass\n")
    text = (SOURCE + BY_POSITION).format(topic=topic, bootstrap=cluster.bootstrap)
    flow = spec.parse(text, file=str(tmp_path / "flow.toml"))
    cluster.produce(topic, [record(number) for number in range(60)])
    run_on(spark, flow)
    cluster.delete_records(topic, 20)
    change(tmp_path / "index.db", "DELETE FROM t WHERE source_offset IN (5, 30)")
    found = verify(spark, flow)
    assert [(each.start, each.end, each.gone) for each in found.ranges] == [(20, 60, 20)]
    files, index, function = found.sinks
    assert (files.verified, files.rows, files.differs) == (True, 60, False)
    assert (index.missing, index.extra, index.different) == (1, 0, 0)
    assert "20 records that the flow has read are gone" in index.reason
    assert (function.verified, function.differs, function.reason) == (
        False, False, "what a function does with rows cannot be seen",
    )  # fmt: skip
