"""A flow, declared: the TOML file that ``barnabas pipeline run`` takes, as typed values. Needs no Spark.

    topics -> parsed rows -> derived columns, filter -> windowed aggregate with a watermark -> database, topic

Every problem is a `SpecError` that names the file, the line and the field, and says what would be right. What only Spark
can judge (an SQL expression, say) is judged by `barnabas.pipelines.analysis`. docs/reference/pipelines.md lists all fields.
"""

import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from barnabas.base.errors import ConfigError
from barnabas.pipelines.outputs.declared import OUTPUT_TYPES, LakeSink, OpenSearchSink, SearchSink, declare_output
from barnabas.pipelines.spec_fields import NAME, Places, SpecError, SpecTable, check_name, resolve_path
from barnabas.pipelines.toml_lines import locate_keys

__all__ = [
    "Aggregate",
    "DatabaseSink",
    "Flow",
    "Format",
    "Places",
    "Resources",
    "Sink",
    "Source",
    "SpecError",
    "TopicSink",
    "Transform",
    "Trigger",
    "load",
    "parse",
]

_TYPE = re.compile(
    r"(string|boolean|tinyint|smallint|int|integer|bigint|long|float|double|date|timestamp|timestamp_ntz|binary"
    r"|decimal\(\s*\d+\s*,\s*\d+\s*\))",
    re.IGNORECASE,
)
_NESTED_TYPE = re.compile(r"(array|map|struct)<.+>", re.IGNORECASE)
_MEMORY = re.compile(r"\d+[kmgKMG]")
POSITION = ("source_topic", "source_partition", "source_offset")
"""The key of rows that are not aggregated: where each came from."""


@dataclass(frozen=True, slots=True)
class Format:
    """How a record's value becomes columns."""

    type: str
    columns: dict[str, str]
    null: str = ""
    delimiter: str = ","
    timestamp_format: str | None = None
    required: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Source:
    """Which topics of which cluster are read, from where, and what happens to bad rows."""

    bootstrap_servers: str
    format: Format
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    starting_offsets: str = "earliest"
    max_offsets_per_trigger: int = 100_000
    isolation: str = "read_committed"
    fail_on_data_loss: bool = True
    group: str | None = None
    bad_rows_topic: str | None = None
    kafka: dict[str, str] = field(default_factory=dict)

    @property
    def producer_kafka(self) -> dict[str, str]:
        """What a producer to the same cluster needs of the settings."""
        return {**_for_producers(self.kafka), "bootstrap.servers": self.bootstrap_servers}


@dataclass(frozen=True, slots=True)
class Transform:
    """Row by row: derived columns in their order, then a filter, then a choice of columns; all Spark SQL."""

    derive: dict[str, str] = field(default_factory=dict)
    where: str | None = None
    select: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Aggregate:
    """Groups, in windows of event time when ``window`` is set."""

    compute: dict[str, str]
    group_by: tuple[str, ...] = ()
    time: str | None = None
    window: str | None = None
    slide: str | None = None
    watermark: str | None = None

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns that identify a result row."""
        return (("window_start", "window_end") if self.window else ()) + self.group_by


@dataclass(frozen=True, slots=True)
class DatabaseSink:
    """A table that takes results as upserts on ``key``; ``url`` is a path for SQLite and DuckDB."""

    type: str
    url: str
    table: str
    key: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TopicSink:
    """A topic that takes results as JSON, keyed by ``key``: read compacted it holds each result once."""

    topic: str
    key: tuple[str, ...]
    bootstrap_servers: str
    kafka: dict[str, str] = field(default_factory=dict)


Sink = DatabaseSink | TopicSink | LakeSink | SearchSink | OpenSearchSink


@dataclass(frozen=True, slots=True)
class Trigger:
    """When micro-batches run: one after another (no interval), at an interval, or until what is there now is done."""

    interval: str | None = None
    available_now: bool = False


@dataclass(frozen=True, slots=True)
class Resources:
    """What Spark may use on this machine."""

    cores: int = 2
    memory: str = "1g"
    shuffle_partitions: int = 2
    spark: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Flow:
    """A whole pipeline."""

    name: str
    checkpoint: str
    source: Source
    sinks: tuple[Sink, ...]
    transform: Transform = Transform()
    aggregate: Aggregate | None = None
    trigger: Trigger = Trigger()
    resources: Resources = Resources()
    places: Places = field(default=Places(), compare=False, repr=False)


def load(path: str | os.PathLike[str], overrides: Sequence[str] = (), environ: Mapping[str, str] | None = None) -> Flow:
    """Reads a flow's file; ``overrides`` are ``path.to.key=value``, ``environ`` fills in ``${NAME}``.

    Relative paths in the file (checkpoint, SQLite) are taken from the file's folder. Raises `SpecError`.
    """
    file = Path(path)
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(f"cannot read {file}: {error}") from error
    return parse(text, file=str(file), overrides=overrides, environ=os.environ if environ is None else environ)


def parse(
    text: str,
    *,
    file: str = "flow.toml",
    overrides: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
) -> Flow:
    """The flow that a TOML text declares; raises `SpecError`."""
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SpecError(f"{file}: no valid TOML: {error}") from error
    lines = locate_keys(text)
    for override in overrides:
        _override(values, override, lines)
    places = Places(file, lines)
    root = SpecTable(values, "", places, environ or {})
    flow = _flow(root, Path(file).parent)
    root.refuse_rest()
    return replace(flow, places=places)


def _override(values: dict[str, Any], override: str, lines: dict[str, int]) -> None:
    path, equals, text = override.partition("=")
    if not equals or not path.strip():
        raise SpecError(f'--set takes key=value, for example source.topics=["t"]; got {override!r}')
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text  # a bare word is a text
    here: Any = values
    parts = [part for part in re.split(r"\.|\[(\d+)\]", path.strip()) if part]
    for index, part in enumerate(parts):
        is_last = index == len(parts) - 1
        step: Any = int(part) if isinstance(here, list) and part.isdecimal() else part
        if isinstance(here, list) and (not isinstance(step, int) or step >= len(here)):
            raise SpecError(f"--set {path}: there is no entry {part} in a list of {len(here)}")
        if not isinstance(here, dict | list):
            raise SpecError(f"--set {path}: {'.'.join(parts[:index])} is no table")
        if is_last:
            here[step] = value
        else:
            here = here.setdefault(step, {}) if isinstance(here, dict) else here[step]
    lines[path.strip()] = 0  # not from the file


def _flow(root: SpecTable, folder: Path) -> Flow:
    name = root.needed("name")
    if not re.fullmatch(r"[A-Za-z0-9._-]+", name):
        raise root.fail("name", f"is {name!r}, but may hold letters, digits, dot, dash and underscore only")
    checkpoint = root.needed("checkpoint", "the folder that keeps the flow's position and state")
    source_table = root.table("source")
    if source_table is None:
        raise root.fail("source", "is missing: the table [source] says which topics are read")
    source = _source(source_table)
    transform = _transform(root.table("transform"))
    aggregate = _aggregate(root.table("aggregate"))
    sinks = tuple(_sink(each, source, aggregate, folder) for each in root.tables("sinks"))
    if not sinks:
        raise root.fail("sinks", "is missing: at least one table [[sinks]] says where results go")
    return Flow(
        name=name,
        checkpoint=resolve_path(checkpoint, folder),
        source=source,
        sinks=sinks,
        transform=transform,
        aggregate=aggregate,
        trigger=_trigger(root.table("trigger")),
        resources=_resources(root.table("resources")),
    )


def _source(table: SpecTable) -> Source:
    topics, pattern = table.texts("topics"), table.text("pattern")
    if bool(topics) == bool(pattern):
        raise table.fail("topics", 'give either topics = ["name"] or pattern = "regular expression"')
    if pattern:
        try:
            re.compile(pattern)
        except re.error as error:
            raise table.fail("pattern", f"is no regular expression: {error}") from error
    format_table = table.table("format")
    if format_table is None:
        raise table.fail("format", "is missing: the table [source.format] says how values become columns")
    kafka = table.texts_by_name("kafka")
    for reserved in ("bootstrap.servers", "isolation.level"):
        if reserved in kafka:
            raise table.fail(f"kafka.{reserved}", "has a field of its own in [source]")
    return Source(
        bootstrap_servers=table.needed("bootstrap_servers", 'for example "localhost:9092"'),
        topics=topics,
        pattern=pattern,
        format=_format(format_table),
        starting_offsets=_starting(table),
        max_offsets_per_trigger=table.number("max_offsets_per_trigger", 100_000),
        isolation=table.choice("isolation", ("read_committed", "read_uncommitted"), "read_committed"),
        fail_on_data_loss=table.boolean("fail_on_data_loss", default=True),
        group=table.text("group"),
        bad_rows_topic=table.text("bad_rows_topic"),
        kafka=kafka,
    )


def _starting(table: SpecTable) -> str:
    from barnabas.pipelines.offsets import from_json

    value = table.text("starting_offsets", "earliest") or ""
    if value not in ("earliest", "latest"):
        try:
            from_json(value)
        except ConfigError as error:
            raise table.fail("starting_offsets", f"is neither earliest nor latest, and {error}") from error
    return value


def _format(table: SpecTable) -> Format:
    kind = table.choice("type", ("csv", "json", "text"))
    columns = table.texts_by_name("columns")
    if kind == "text":
        if columns:
            raise table.fail("columns", "is not for the format text, whose only column is value")
        columns = {"value": "string"}
    elif not columns:
        raise table.fail("columns", 'is missing: name = "type" for each column')
    for name, type_name in columns.items():
        check_name(table, f"columns.{name}", name)
        nested = kind == "json" and _NESTED_TYPE.fullmatch(type_name)
        if not (_TYPE.fullmatch(type_name) or nested):
            raise table.fail(
                f"columns.{name}", f"has the type {type_name!r}, which is not known: int, string, double, ..."
            )
    required = table.texts("required")
    for name in required:
        if name not in columns:
            raise table.fail("required", f"names {name}, which is no column of the format")
    delimiter = table.text("delimiter", ",") or ""
    if len(delimiter) != 1:
        raise table.fail("delimiter", "must be one character")
    null = table.text("null", "") or ""
    if kind != "csv" and (table.has("null") or table.has("delimiter")):
        raise table.fail("null" if table.has("null") else "delimiter", f"is for the format csv, not {kind}")
    return Format(kind, columns, null, delimiter, table.text("timestamp_format"), required)


def _transform(table: SpecTable | None) -> Transform:
    if table is None:
        return Transform()
    derive = table.texts_by_name("derive")
    for name in derive:
        check_name(table, f"derive.{name}", name)
    return Transform(derive, table.text("where"), table.texts("select"))


def _aggregate(table: SpecTable | None) -> Aggregate | None:
    if table is None:
        return None
    compute, group_by = table.texts_by_name("compute"), table.texts("group_by")
    if not compute:
        raise table.fail("compute", 'is missing: name = "count(*)" for each figure')
    for name in compute:
        check_name(table, f"compute.{name}", name)
        if name in group_by:
            raise table.fail(f"compute.{name}", "is also in group_by")
    for name in group_by:
        check_name(table, "group_by", name)
    time, window = table.text("time"), table.duration("window")
    slide, watermark = table.duration("slide"), table.duration("watermark")
    if window and not time:
        raise table.fail("time", "is missing: the column of event time that windows are cut from")
    if window and not watermark:
        raise table.fail("watermark", "is missing: how late a row may come; without it state would grow for ever")
    for name, value in (("slide", slide), ("watermark", watermark), ("time", time)):
        if value and not window:
            raise table.fail(name, "needs window")
    if not window and not group_by:
        raise table.fail("group_by", "is missing: give group_by, window, or both")
    return Aggregate(compute, group_by, time, window, slide, watermark)


def _sink(table: SpecTable, source: Source, aggregate: Aggregate | None, folder: Path) -> Sink:
    kind = table.choice("type", ("sqlite", "duckdb", "postgresql", *OUTPUT_TYPES, "topic"))
    key = table.texts("key")
    if aggregate:
        if key:
            raise table.fail("key", f"is given by the aggregate: {', '.join(aggregate.keys)}")
        key = aggregate.keys
    key = key or POSITION
    if kind in OUTPUT_TYPES:
        return declare_output(kind, table, key, folder, rows_change=aggregate is not None or key != POSITION)
    if kind == "topic":
        kafka = table.texts_by_name("kafka")
        servers = table.text("bootstrap_servers")
        # Another cluster's security settings are not this one's.
        own = kafka if servers else {**_for_producers(source.kafka), **kafka}
        return TopicSink(table.needed("topic"), key, servers or source.bootstrap_servers, own)
    name = table.needed("table")
    if not re.fullmatch(rf"{NAME.pattern}(\.{NAME.pattern})?", name):
        raise table.fail("table", f"is {name!r}, which is no name of a table")
    if kind in ("sqlite", "duckdb"):
        return DatabaseSink(kind, resolve_path(table.needed("path", "the database's file"), folder), name, key)
    return DatabaseSink(kind, table.needed("url", 'like "postgresql://user@host/database"'), name, key)


def _for_producers(kafka: Mapping[str, str]) -> dict[str, str]:
    shared = ("security.", "sasl.", "ssl.", "client.", "socket.", "broker.address.", "metadata.")
    return {name: text for name, text in kafka.items() if name.startswith(shared)}


def _trigger(table: SpecTable | None) -> Trigger:
    if table is None:
        return Trigger()
    interval, available_now = table.duration("interval"), table.boolean("available_now", default=False)
    if interval and available_now:
        raise table.fail("interval", "cannot be combined with available_now")
    return Trigger(interval, available_now)


def _resources(table: SpecTable | None) -> Resources:
    if table is None:
        return Resources()
    memory = table.text("memory", "1g") or ""
    if not _MEMORY.fullmatch(memory):
        raise table.fail("memory", f'is {memory!r}, but must be like "512m" or "2g"')
    cores = table.number("cores", 2)
    return Resources(cores, memory, table.number("shuffle_partitions", cores), table.texts_by_name("spark"))
