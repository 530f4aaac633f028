"""The tables ``[[sinks]]`` of a flow's file. Needs no Spark."""

import inspect
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from barnabas.pipelines.flow_file.addresses import postgres_problem
from barnabas.pipelines.flow_file.fields import NAME, POSITION, SpecTable
from barnabas.pipelines.flow_file.function_fields import read_function
from barnabas.pipelines.outputs.declared import (
    INDEX_PARTS,
    OUTPUT_TYPES,
    LakeSink,
    OpenSearchSink,
    SearchSink,
    declare_output,
    read_deletion,
    refuse_own_table,
)

__all__ = ["DatabaseSink", "FunctionSink", "Sink", "SourceCluster", "TopicSink", "read_sink", "refuse_equal_sinks"]

_POSTGRESQL = 'like "postgresql://user@host/database"'


class SourceCluster(NamedTuple):
    """The cluster of a flow's first source, where a topic goes that names no other."""

    bootstrap_servers: str
    kafka: Mapping[str, str]
    """What a producer to it needs."""


@dataclass(frozen=True, slots=True)
class DatabaseSink:
    """A table that takes results as upserts on ``key``; ``url`` is a path for SQLite and DuckDB."""

    type: str
    url: str
    table: str
    key: tuple[str, ...]
    delete_when: str | None = None
    """An SQL condition: a row of the results for which it is true deletes the row of its key."""
    order_by: str | None = None
    """A column that says which row of a key is the last one (`barnabas.pipelines.frames.ordering`)."""


@dataclass(frozen=True, slots=True)
class TopicSink:
    """A topic that takes results as JSON, keyed by ``key``: read compacted it holds each result once."""

    topic: str
    key: tuple[str, ...]
    bootstrap_servers: str
    kafka: dict[str, str] = field(default_factory=dict)
    delete_when: str | None = None
    """As of a `DatabaseSink`; the record has no value then."""
    order_by: str | None = None


@dataclass(frozen=True, slots=True)
class FunctionSink:
    """A Python function that takes each micro-batch's rows and number; after a crash the same number comes again."""

    function: Callable[..., None]
    key: tuple[str, ...]
    order_by: str | None = None

    @property
    def name(self) -> str:
        return getattr(self.function, "__name__", "function")


Sink = DatabaseSink | TopicSink | LakeSink | SearchSink | OpenSearchSink | FunctionSink


def read_sink(table: SpecTable, groups: tuple[str, ...] | None, near: SourceCluster) -> Sink:
    """One of the tables ``[[sinks]]``.

    ``groups`` are the columns of the aggregate that gives the results their keys, None if none does. ``near`` is the
    first source's cluster.
    """
    order_by = table.text("order_by")
    sink = _read_sink(table, groups, near)
    if order_by is None:
        return sink
    if groups is not None or sink.key == POSITION:
        raise table.fail(
            "order_by", "needs a key of your own: rows of an aggregate, and of positions, are one for each key already"
        )
    return replace(sink, order_by=order_by)


def _read_sink(table: SpecTable, groups: tuple[str, ...] | None, near: SourceCluster) -> Sink:
    function = read_function(table, "function")
    kinds = ("sqlite", "duckdb", "postgresql", *OUTPUT_TYPES, "topic", "function")
    kind = table.choice("type", kinds, "function" if function else None)
    if (kind == "function") != (function is not None):
        raise table.fail("function", 'goes with type = "function", a Python function that takes each micro-batch')
    key = table.texts("key")
    if groups is not None:
        if key:
            raise table.fail("key", f"is given by the aggregate: {', '.join(groups)}")
        key = groups
    key = key or POSITION
    if function:
        try:
            inspect.signature(function).bind(None, 0)
        except TypeError as error:
            name = getattr(function, "__name__", "it")
            raise table.fail("function", f"{name} must take a micro-batch's rows and its number: {error}") from error
        return FunctionSink(function, key)
    if kind in OUTPUT_TYPES:
        return declare_output(kind, table, key, rows_change=groups is not None or key != POSITION)
    if kind == "topic":
        kafka = table.kafka_properties()
        servers = table.brokers("bootstrap_servers")
        # Another cluster's security settings are not this one's.
        own = kafka if servers else {**near.kafka, **kafka}
        topic = table.needed("topic")
        return TopicSink(
            topic, key, servers or near.bootstrap_servers, table.require_protection(own), read_deletion(table, key)
        )
    name = table.needed("table")
    if not re.fullmatch(rf"{NAME.pattern}(\.{NAME.pattern})?", name):
        raise table.fail("table", f"is {name!r}, which is no name of a table")
    refuse_own_table(table, name)
    if kind in ("sqlite", "duckdb"):
        path = table.needed_path("path", "the database's file")
        return DatabaseSink(kind, path, name, key, read_deletion(table, key))
    url = table.needed_address("url", _POSTGRESQL)
    if problem := postgres_problem(url):
        raise table.fail("url", problem)
    return DatabaseSink(kind, url, name, key, read_deletion(table, key))


def refuse_equal_sinks(root: SpecTable, sinks: Sequence[Sink]) -> None:
    """Raise `SpecError` if two sinks are one place."""
    taken: set[object] = set()
    for number, sink in enumerate(sinks):
        places = _places(sink)
        if places & taken:
            raise root.fail(f"sinks[{number}]", "writes to the same place as a sink before it")
        taken |= places


def _places(sink: Sink) -> set[object]:
    """Where a sink writes. SQLite and DuckDB see no difference between upper and lower case."""
    if isinstance(sink, FunctionSink):
        return set()
    if isinstance(sink, TopicSink):
        return {(sink.bootstrap_servers, sink.topic)}
    if isinstance(sink, SearchSink):
        names = [sink.table.lower(), *(f"{sink.table.lower()}_index{part}" for part in INDEX_PARTS)]
        return {(os.path.realpath(sink.path), name) for name in names}
    if isinstance(sink, LakeSink):
        return {os.path.realpath(sink.path)}
    if isinstance(sink, DatabaseSink) and sink.type != "postgresql":
        return {(os.path.realpath(sink.url), sink.table.lower())}
    return {(sink.url, sink.table)}
