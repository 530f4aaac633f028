"""How outputs are declared in a flow's file, as typed values.

Needs neither Spark nor their packages."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from barnabas.base.errors import BarnabasError

__all__ = [
    "DatabaseSink",
    "FunctionSink",
    "LakeSink",
    "NoResultError",
    "OpenSearchSink",
    "OutputError",
    "SearchSink",
    "Sink",
    "TableSink",
    "TopicFormat",
    "TopicSink",
]


class OutputError(BarnabasError):
    """An output refused a batch, or its table does not fit the flow."""


class NoResultError(BarnabasError):
    """There is nothing to show yet, or it cannot be read."""


class Sink(Protocol):
    """What every declared output has."""

    @property
    def type(self) -> str:
        """The name of its kind (`barnabas.pipelines.outputs.registry`)."""
        ...

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that distinguish its rows."""
        ...

    @property
    def order_by(self) -> str | None:
        """A column that says which row of a key is the last one
        (`barnabas.pipelines.frames.ordering`)."""
        ...


class TableSink(Sink, Protocol):
    """An output that takes batches as Arrow tables on the driver."""

    @property
    def table(self) -> str:
        """The table's name, as messages and the table of epochs have it."""
        ...

    @property
    def delete_when(self) -> str | None:
        """An SQL condition: a row of the results for which it is true deletes the
        row of its key."""
        ...


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
    """A column that says which row of a key is the last one
    (`barnabas.pipelines.frames.ordering`)."""


@dataclass(frozen=True, slots=True)
class TopicFormat:
    """How a topic takes results, other than as JSON: with a schema of a registry."""

    type: str
    """``avro``, ``json-schema`` or ``protobuf``."""
    registry: str
    name: str
    """The full name of the records in the schema."""
    subject: str
    schema_file: str | None = None
    """A schema that is given; else it is made of the columns."""
    register: bool = True
    """Whether the schema is registered; else it must be there."""


@dataclass(frozen=True, slots=True)
class TopicSink:
    """A topic that takes results as JSON, or as ``format`` says, keyed by ``key``: read compacted
    it holds each result once."""

    topic: str
    key: tuple[str, ...]
    bootstrap_servers: str
    kafka: dict[str, str] = field(default_factory=dict)
    delete_when: str | None = None
    """As in `DatabaseSink`; the record has no value then."""
    order_by: str | None = None
    format: TopicFormat | None = None
    type: str = "topic"


@dataclass(frozen=True, slots=True)
class LakeSink:
    """A folder of Parquet files (``parquet``), or a Delta table (``delta``)."""

    type: str
    path: str
    key: tuple[str, ...]
    partition_by: tuple[str, ...] = ()
    compact_every: int = 100
    """Delta only: after this many versions small files are compacted into large ones."""
    delete_when: str | None = None
    """Delta only: an SQL condition; a row of the results for which it is true
    deletes the row of its key."""
    order_by: str | None = None
    """A column that says which row of a key is the last one
    (`barnabas.pipelines.frames.ordering`)."""

    @property
    def table(self) -> str:
        return self.path


@dataclass(frozen=True, slots=True)
class SearchSink:
    """A table of a SQLite file with a full-text index over the columns ``text``."""

    path: str
    table: str
    text: tuple[str, ...]
    key: tuple[str, ...]
    delete_when: str | None = None
    """As in `DatabaseSink`."""
    order_by: str | None = None
    type: str = "search"


@dataclass(frozen=True, slots=True)
class OpenSearchSink:
    """An index of OpenSearch, or of another server with its bulk protocol."""

    url: str
    table: str
    text: tuple[str, ...]
    key: tuple[str, ...]
    timeout_ms: int = 30_000
    delete_when: str | None = None
    """As in `DatabaseSink`; it deletes the document."""
    order_by: str | None = None
    type: str = "opensearch"


@dataclass(frozen=True, slots=True)
class FunctionSink:
    """A Python function that takes each micro-batch's rows and number.

    After a crash the same number comes again."""

    function: Callable[..., None]
    key: tuple[str, ...]
    order_by: str | None = None
    type: str = "function"

    @property
    def name(self) -> str:
        return getattr(self.function, "__name__", "function")
