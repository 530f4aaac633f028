"""A table that changes, and what Debezium makes of it: the feed of Connect's connectors for
databases, which run on Maven's jars of `support.maven`."""

from pathlib import Path

import psycopg

from support.connect_worker import Worker
from support.maven import jars
from support.needs import ROOT

__all__ = ["CHANGES", "Orders", "database_plugins"]

CHANGES = "shop.public.orders"
"""The topic with the table's changes."""
_JSON = "org.apache.kafka.connect.json.JsonConverter"
_CONVERTERS = {"key.converter": _JSON, "value.converter": _JSON}


def database_plugins() -> Path:
    """The folder with Debezium's source for PostgreSQL and its sink for JDBC."""
    return jars("jdbc/debezium-3.5.0", ROOT / "tests" / "other_languages" / "java" / "jdbc").parent


class Orders:
    """Orders that come, change and go, each step in a transaction of its own; and the table of
    copies that a sink keeps."""

    def __init__(self, url: str, port: int) -> None:
        self._port = port
        self._connection = psycopg.connect(url, autocommit=True)
        self._connection.execute("CREATE TABLE orders (id integer PRIMARY KEY, item text, amount integer)")
        self._count = 0

    def add(self, count: int) -> None:
        """The next ones; of each ten the first one changes and the second one goes."""
        for number in range(self._count, self._count + count):
            self._connection.execute("INSERT INTO orders VALUES (%s, %s, %s)", (number, f"item {number}", number))
            if number % 10 == 2:
                self._connection.execute("UPDATE orders SET amount = -amount WHERE id = %s", (number - 2,))
                self._connection.execute("DELETE FROM orders WHERE id = %s", (number - 1,))
        self._count += count

    def rows(self, table: str = "orders") -> list[tuple[object, ...]]:
        """All rows by id; none while there is no such table."""
        try:
            return self._connection.execute(f"SELECT id, item, amount FROM {table} ORDER BY id").fetchall()
        except psycopg.errors.UndefinedTable:
            return []

    def close(self) -> None:
        """The connection."""
        self._connection.close()

    def connect(self, worker: Worker) -> None:
        """The source ``rows`` writes the changes to a topic, the sink ``copies`` brings them to the
        table of copies."""
        worker.set_up(
            "rows",
            **{"connector.class": "io.debezium.connector.postgresql.PostgresConnector"},
            **{"database.hostname": "127.0.0.1", "database.port": self._port, "database.dbname": "postgres"},
            **{"database.user": "tests", "database.password": "none", "plugin.name": "pgoutput"},
            **{"topic.prefix": "shop", "table.include.list": "public.orders", "poll.interval.ms": 50},
            **{"topic.creation.default.partitions": 2, "topic.creation.default.replication.factor": 3},
            **{"exactly.once.support": "required", "transaction.boundary": "interval"},
            **{"transaction.boundary.interval.ms": 200},
            **_CONVERTERS,
        )
        worker.set_up(
            "copies",
            **{"connector.class": "io.debezium.connector.jdbc.JdbcSinkConnector", "tasks.max": 2, "topics": CHANGES},
            **{"connection.url": f"jdbc:postgresql://127.0.0.1:{self._port}/postgres"},
            **{"connection.username": "tests", "connection.password": "none", "collection.name.format": "copies"},
            **{"insert.mode": "upsert", "primary.key.mode": "record_key", "delete.enabled": "true"},
            **{"schema.evolution": "basic", "consumer.override.session.timeout.ms": 6000},
            **{"consumer.override.heartbeat.interval.ms": 1000},
            **_CONVERTERS,
        )
