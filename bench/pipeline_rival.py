#!/usr/bin/env python3
"""A small job as it is written without Spark: confluent-kafka reads a topic, Polars or
pandas parse and aggregate it.

usage: bench/pipeline_rival.py polars|pandas BOOTSTRAP TOPIC [DATABASE]

The job is that of `pipeline_queries.windows`. With a DATABASE its rows go to an SQLite table, and
the program ends. Without one it does the job for each line on standard input, and prints for each,
as JSON, how many groups and rows it found.
"""

import io
import json
import sqlite3
import sys
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, TopicPartition

_POLLED = 100_000
Row = tuple[str, Any, float, int]
"""Airline, minute, mean delay, flights."""
Job = Callable[[list[bytes]], list[Row]]


def fetch(bootstrap: str, topic: str) -> list[bytes]:
    """All values of the topic."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "check.crcs": True,  # as Java's clients and ours do
            "max.partition.fetch.bytes": 4 * 1024 * 1024,
            "queued.min.messages": 1_000_000,
        }
    )
    partitions = consumer.list_topics(topic, 30).topics[topic].partitions
    consumer.assign([TopicPartition(topic, each, 0) for each in partitions])
    values, ended = [], 0
    while ended < len(partitions):
        for message in consumer.consume(_POLLED, 0.1):
            if message.error() is None:
                values.append(message.value())
            else:
                ended += 1
    consumer.close()
    return values


def polars_job() -> Job:
    """Polars, with its reader for lines of JSON."""
    import polars as pl

    schema = {"id": pl.Int64, "airline": pl.String, "delay": pl.Int32, "at": pl.String}

    def job(values: list[bytes]) -> list[Row]:
        frame = pl.read_ndjson(io.BytesIO(b"\n".join(values)), schema=schema)
        minute = pl.col("at").str.to_datetime(time_zone="UTC").dt.truncate("1m")
        groups = frame.with_columns(minute=minute).group_by("airline", "minute")
        return groups.agg(pl.col("delay").mean(), pl.len()).rows()

    return job


def pandas_job() -> Job:
    """pandas, with Arrow's reader for lines of JSON."""
    import pandas as pd

    def job(values: list[bytes]) -> list[Row]:
        frame = pd.read_json(io.BytesIO(b"\n".join(values)), lines=True, engine="pyarrow")
        frame["minute"] = pd.to_datetime(frame["at"], utc=True).dt.floor("min")
        groups = frame.groupby(["airline", "minute"])["delay"].agg(["mean", "size"])
        return [(airline, at, mean, size) for (airline, at), mean, size in groups.itertuples(name=None)]

    return job


def main(library: str, bootstrap: str, topic: str, database: str | None = None) -> None:
    """One job, or one for each line."""
    job = polars_job() if library == "polars" else pandas_job()
    if database is not None:
        rows = job(fetch(bootstrap, topic))
        with sqlite3.connect(database) as connection:
            connection.execute("CREATE TABLE t (airline TEXT, minute TEXT, delay REAL, flights INTEGER)")
            connection.executemany("INSERT INTO t VALUES (?, ?, ?, ?)", [(a, str(m), d, n) for a, m, d, n in rows])
        return
    for _ in sys.stdin:
        rows = job(fetch(bootstrap, topic))
        print(json.dumps({"groups": len(rows), "rows": sum(each[-1] for each in rows)}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
