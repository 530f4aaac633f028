"""Exactly once with Kafka Connect: a distributed worker with exactly-once support for sources is
killed while a transaction of its connector is open, and so is the transaction's coordinator; each
line of a file, and each row of a table, is in its topic once, in order.
"""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from barnabas.testing import ProcessCluster
from support.connect_worker import FILES, Lines, worker
from support.maven import jars
from support.needs import ROOT, needs, needs_reference
from support.ports import free_ports
from support.postgres_server import running_postgres
from support.servers import barnabas
from support.transaction_copies import make, read_committed
from support.transaction_kills import Feed, Program, copy_through_kills, kill_a_coordinator
from support.waiting import eventually

pytestmark = [pytest.mark.interop, pytest.mark.java, needs_reference, pytest.mark.timeout(900)]

LIMIT_S = 180
EXACT = {
    "exactly.once.support": "required",
    "transaction.boundary": "interval",
    "transaction.boundary.interval.ms": 300,
}
ROWS = "shop.public.numbers"


class Rows:
    """A table to which rows are added, each in a transaction of its own: 0, 1, 2 ...

    The log is kept for Debezium from the beginning on: a snapshot that is killed begins again, with
    rows that were committed already."""

    def __init__(self, url: str) -> None:
        self.connection = psycopg.connect(url, autocommit=True)
        self.connection.execute("CREATE TABLE numbers (number integer PRIMARY KEY)")
        self.connection.execute("CREATE PUBLICATION dbz_publication FOR TABLE numbers")
        self.connection.execute("SELECT pg_create_logical_replication_slot('debezium', 'pgoutput')")
        self.count = 0

    def add(self, count: int) -> None:
        """The next ones."""
        for number in range(self.count, self.count + count):
            self.connection.execute("INSERT INTO numbers VALUES (%s)", (number,))
        self.count += count


class Source:
    """A connector that writes a feed to a topic, and the workers that run it in turn."""

    def __init__(self, cluster: ProcessCluster, version: str, topic: str, plugins: Path | None = None) -> None:
        self._cluster = cluster
        self._version = version
        self._plugins = plugins
        self.bootstrap = cluster.bootstrap_servers
        self.topic = make(self.bootstrap, topic, 1, 3)

    def finalize(self, level: int) -> None:
        """Finalize this level of ``transaction.version``."""
        feature = ("--feature", f"transaction.version={level}", "--bootstrap-server", self.bootstrap)
        assert barnabas("features", "upgrade", *feature).returncode == 0

    def written(self, directory: Path, feed: Feed, **config: object) -> list[str]:
        """The values in the topic once a worker and a coordinator were killed."""

        @contextlib.contextmanager
        def run() -> Iterator[Program]:
            with worker(directory, self._version, self.bootstrap, self._plugins) as connect:
                connect.set_up("source", **config, **EXACT)
                yield connect.process

        def kill(process: Program) -> None:
            kill_a_coordinator(self._cluster, process, feed)

        return copy_through_kills(run, self.bootstrap, self.topic, feed, kill)


@pytest.mark.parametrize(("version", "level"), [("3.9.1", 0), ("4.3.0", 2)])
def test_a_killed_source_writes_each_line_once_and_a_sink_gets_what_is_committed(
    tmp_path: Path, version: str, level: int
) -> None:
    """A source's offsets are committed with its records; a sink that reads at read_uncommitted,
    Connect's default, gets aborted lines, too."""
    with ProcessCluster(3, data_dir=tmp_path / "cluster") as cluster:
        source = Source(cluster, version, "lines")
        if level:
            source.finalize(level)
        lines = Lines(tmp_path / "in")
        reading = {"connector.class": f"{FILES}SourceConnector", "file": lines.path}
        values = source.written(tmp_path, lines, topic="lines", **reading)
        assert values == [str(number) for number in range(lines.count)]
        aborted = len(read_committed(source.bootstrap, "lines", isolation="read_uncommitted")) - lines.count
        committed, everything = tmp_path / "committed", tmp_path / "everything"

        def has(path: Path, count: int) -> bool:
            return path.exists() and len(path.read_text().splitlines()) >= count

        with worker(tmp_path, version, source.bootstrap) as connect:
            sink = {"connector.class": f"{FILES}SinkConnector", "topics": "lines"}
            connect.set_up(
                "committed", file=committed, **sink, **{"consumer.override.isolation.level": "read_committed"}
            )
            connect.set_up("everything", file=everything, **sink)
            eventually(lambda: has(everything, lines.count + aborted), timeout_s=LIMIT_S, what="all lines")
            eventually(lambda: has(committed, lines.count), timeout_s=LIMIT_S, what="all committed lines")
        assert committed.read_text().splitlines() == values


@needs("initdb", "pg_ctl")
def test_a_killed_debezium_writes_each_row_once(tmp_path: Path) -> None:
    """The position in PostgreSQL's log is committed with the records."""
    folder = jars("debezium/postgres-3.6.1", ROOT / "tests" / "other_languages" / "java" / "debezium")
    (port,) = free_ports(1)
    config = {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "database.hostname": "127.0.0.1",
        "database.port": port,
        "database.dbname": "postgres",
        "database.user": "tests",
        "database.password": "none",
        "plugin.name": "pgoutput",
        "topic.prefix": "shop",
        "table.include.list": "public.numbers",
        "snapshot.mode": "no_data",
        "poll.interval.ms": 50,
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "false",
    }
    with ProcessCluster(3, data_dir=tmp_path / "cluster") as cluster, running_postgres(port) as server:
        source = Source(cluster, "4.3.0", ROWS, folder.parent)
        source.finalize(2)
        rows = Rows(server.url)
        with rows.connection:
            values = source.written(tmp_path, rows, **config)
        assert [json.loads(value)["after"]["number"] for value in values] == list(range(rows.count))
