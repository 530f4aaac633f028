"""A flow, declared: the TOML file that ``barnabas pipeline run`` takes, as typed values.

Needs no Spark.

    topics -> parsed rows -> derived columns, filter -> windowed aggregate with a watermark
           -> database, topic

Every problem is a `SpecError` that names the file, the line and the field, and says what would be
right. What only Spark can judge (an SQL expression, say) is judged by
`barnabas.pipelines.checks.analysis`. docs/reference/pipelines.md lists all fields.
"""

import os
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from barnabas.base.errors import ConfigError
from barnabas.base.hints import did_you_mean
from barnabas.base.redaction import redacted_address
from barnabas.client.properties.translation import security_properties
from barnabas.pipelines.flow_file.fields import Places, SpecError, SpecTable
from barnabas.pipelines.flow_file.function_files import FunctionUse
from barnabas.pipelines.flow_file.masters import MASTER, task_problem
from barnabas.pipelines.flow_file.toml_lines import locate_keys
from barnabas.pipelines.formats.declared import Format
from barnabas.pipelines.formats.registry import read_format
from barnabas.pipelines.outputs.declared import DatabaseSink, FunctionSink, Sink, TopicSink
from barnabas.pipelines.outputs.kind import SourceCluster
from barnabas.pipelines.outputs.registry import kind_of
from barnabas.pipelines.outputs.sinks import read_sink, refuse_equal_sinks
from barnabas.pipelines.specification.charts import Chart, declare_chart
from barnabas.pipelines.specification.limits import Limit, read_limit
from barnabas.pipelines.specification.model import Model, declare_model
from barnabas.pipelines.specification.own_folder import require_checkpoint_folder
from barnabas.pipelines.specification.steps import (
    POSITION,
    WINDOW_TIMES,
    Aggregate,
    Expectation,
    FlowStep,
    Lookup,
    Transform,
    Watermark,
    check_view,
    read_aggregate,
    read_expectations,
    read_lookups,
    read_steps,
    read_transform,
    read_watermark,
)

__all__ = [
    "POSITION",
    "WINDOW_TIMES",
    "Aggregate",
    "DatabaseSink",
    "Expectation",
    "Flow",
    "FlowStep",
    "Format",
    "FunctionSink",
    "Limit",
    "Lookup",
    "Places",
    "Resources",
    "Sink",
    "Source",
    "SpecError",
    "TopicSink",
    "Transform",
    "Trigger",
    "Watermark",
    "load",
    "parse",
    "read_flow",
]

_MEMORY = re.compile(r"\d+[kmgKMG]")
RECORD_COLUMNS = ("key", "key_bytes", "timestamp", "headers")
_LOOPBACK = re.compile(r"^(127\.0\.0\.1|\[::1\]):")
_OF_CONNECTIONS = ("client.", "socket.", "broker.address.", "metadata.")
CONNECTORS = ("barnabas", "kafka")
"""Names of Spark's formats that read and write topics: ours, and the one of Spark's own
connector, which is in jars."""


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
    name: str = "source"
    watermark: Watermark | None = None
    max_bad: Limit | None = None
    record_columns: tuple[str, ...] = ()
    """What is taken of the record beside its value: ``key``, ``timestamp``, ``headers``; they
    become ``source_key`` and so on."""

    @property
    def field(self) -> str:
        """The path of the source's table in the file."""
        return "source" if self.name == "source" else f"sources.{self.name}"

    def covers(self, topic: str) -> bool:
        """Whether the source reads the topic."""
        return bool(re.fullmatch(self.pattern, topic)) if self.pattern else topic in self.topics

    @property
    def quarantines(self) -> bool:
        """Whether a micro-batch with too many bad rows is put aside as a whole."""
        return self.max_bad is not None and self.max_bad.then == "quarantine"

    @property
    def producer_kafka(self) -> dict[str, str]:
        """What a producer to the same cluster needs of the settings."""
        return {**_for_producers(self.kafka), "bootstrap.servers": self.bootstrap_servers}


_UNREAD_SOURCE = Source("", Format("text", {}))
"""In the place of a source with which something is wrong: the rest of the file can
be read with it."""


@dataclass(frozen=True, slots=True)
class Trigger:
    """When micro-batches run: one after another (no interval), at an interval, or until
    what is there now is done."""

    interval: str | None = None
    available_now: bool = False


@dataclass(frozen=True, slots=True)
class Resources:
    """What Spark may use, of this machine or of a cluster."""

    cores: int = 2
    memory: str = "1g"
    shuffle_partitions: int = 2
    spark: dict[str, str] = field(default_factory=dict)
    master: str | None = None
    """Where Spark runs; None is this machine with ``cores`` threads."""
    py_files: tuple[str, ...] = ()
    connector: str = "barnabas"
    """The format with which Spark reads and writes topics."""


@dataclass(frozen=True, slots=True)
class Flow:
    """A whole pipeline."""

    name: str
    checkpoint: str
    source: Source
    sinks: tuple[Sink, ...]
    transform: Transform = field(default_factory=Transform)
    aggregate: Aggregate | None = None
    trigger: Trigger = Trigger()
    resources: Resources = Resources()
    more_sources: tuple[Source, ...] = ()
    lookups: tuple[Lookup, ...] = ()
    steps: tuple[FlowStep, ...] = ()
    expectations: tuple[Expectation, ...] = ()
    charts: tuple[Chart, ...] = ()
    model: Model | None = None
    places: Places = field(default=Places(), compare=False, repr=False)

    def hide(self, text: str) -> str:
        """The text without the secrets that the flow's file and its variables hold."""
        return self.places.redactor.redact(text)

    @property
    def sources(self) -> tuple[Source, ...]:
        """All streams; the first is the one that ``[transform]`` shapes."""
        return (self.source, *self.more_sources)

    @property
    def last_aggregate(self) -> Aggregate | None:
        """The aggregate that gives the results their keys, if they come right out of one."""
        return self.aggregate or (self.steps[-1].aggregate if self.steps else None)

    @property
    def waits_for_watermark(self) -> bool:
        """Whether rows may be held back until event time has moved on."""
        aggregates = [self.aggregate, *(step.aggregate for step in self.steps)]
        watermarks = [*(source.watermark for source in self.sources), *(step.watermark for step in self.steps)]
        return any(watermarks) or any(each.watermark for each in aggregates if each)


def load(
    path: str | os.PathLike[str],
    overrides: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
    *,
    functions: FunctionUse = FunctionUse.RUN,
) -> Flow:
    """Reads a flow's file; ``overrides`` are ``path.to.key=value``, ``environ``
    fills in ``${NAME}``.

    ``functions`` says what becomes of the Python files that it names.

    Relative paths in the file (checkpoint, SQLite) are taken from the file's folder.
    Raises `SpecError`.
    """
    file = Path(path)
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(f"cannot read {file}: {getattr(error, 'strerror', None) or error}") from error
    environ = os.environ if environ is None else environ
    return parse(text, file=str(file), overrides=overrides, environ=environ, functions=functions)


def parse(
    text: str,
    *,
    file: str = "flow.toml",
    overrides: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
    functions: FunctionUse = FunctionUse.RUN,
) -> Flow:
    """The flow that a TOML text declares; raises `SpecError`."""
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = re.search(r"at line (\d+)", str(error))  # else it is at the end
        line = int(found[1]) if found else len(text.splitlines())
        raise Places(file, {"": line}).error("", f"no valid TOML: {error}") from error
    return read_flow(values, locate_keys(text), file=file, overrides=overrides, environ=environ, functions=functions)


def read_flow(
    values: dict[str, Any],
    lines: dict[str, int],
    *,
    file: str,
    overrides: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
    functions: FunctionUse = FunctionUse.RUN,
) -> Flow:
    """The flow that plain values declare, and the lines where they stand; raises `SpecError`."""
    for override in overrides:
        _override(values, override, lines)
    places = Places(file, lines)
    root = SpecTable(values, "", places, environ or {}, functions=functions)
    flow = _flow(root)
    root.refuse_rest()
    root.problems.raise_any()
    require_checkpoint_folder(root, flow.checkpoint, file, _local_places(flow))
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


def _flow(root: SpecTable) -> Flow:
    """The flow as far as it can be read; it is one only if nothing is wrong."""
    name, checkpoint, sources = _name(root), "", [_UNREAD_SOURCE]
    with root.recover():
        checkpoint = root.needed_path("checkpoint", "the folder that keeps the flow's position and state")
    with root.recover():
        sources = _sources(root)
    views = [each.name for each in sources]
    watermarks = [each.watermark for each in sources if each.watermark]
    before: tuple[str, ...] = ("source", "sources")
    transform, lookups, aggregate = Transform(), tuple[Lookup, ...](), None
    with root.recover():
        transform = read_transform(root.table("transform"))
    with root.recover(*before):
        lookups = read_lookups(root, views, sources[0].bootstrap_servers, sources[0].kafka)
    before += ("tables",)
    steps = read_steps(root, before, views, watermarks)
    before += ("steps",)
    with root.recover(*before):
        aggregate = read_aggregate(root.table("aggregate"), watermarks)
    topics = {each.name: each.bad_rows_topic for each in sources}
    names = [each.name for each in steps]
    expectations = tuple[Expectation, ...]()
    with root.recover(*before):
        expectations = read_expectations(root.tables("expectations"), topics, names)
    last = aggregate or (steps[-1].aggregate if steps else None)
    tables = root.tables("sinks")
    near = SourceCluster(sources[0].bootstrap_servers, _for_producers(sources[0].kafka))
    sinks = _read_each(
        root, tables, lambda each: read_sink(each, last.keys if last else None, near), *before, "aggregate"
    )
    charts = _read_each(root, root.tables("charts"), lambda each: declare_chart(each, len(tables)))
    resources, trigger, model = Resources(), Trigger(), None
    with root.recover():
        resources = _resources(root.table("resources"))
    with root.recover():
        trigger = _trigger(root.table("trigger"))
    with root.recover():
        model = declare_model(root.table("model"))
    if not tables:
        root.report("sinks", "is missing: at least one table [[sinks]] says where results go")
    if not root.problems.found:
        with root.recover():
            _check_together(root, sources, steps, sinks, resources)
    return Flow(
        name=name,
        checkpoint=checkpoint,
        source=sources[0],
        sinks=tuple(sinks),
        transform=transform,
        aggregate=aggregate,
        trigger=trigger,
        resources=resources,
        more_sources=tuple(sources[1:]),
        lookups=lookups,
        steps=steps,
        expectations=expectations,
        charts=tuple(charts),
        model=model,
    )


def _name(root: SpecTable) -> str:
    name = ""
    with root.recover():
        name = root.needed("name")
        if not re.fullmatch(r"[A-Za-z0-9._-]+", name):
            raise root.fail("name", f"is {name!r}, but may hold letters, digits, dot, dash and underscore only")
    return name


_Read = TypeVar("_Read")


def _read_each(
    root: SpecTable, tables: Sequence[SpecTable], read: Callable[[SpecTable], _Read], *after: str
) -> list[_Read]:
    """What is read of each table, without those in which something is wrong."""
    found: list[_Read] = []
    for table in tables:
        with root.recover(*after):
            found.append(read(table))
    return found


def _check_together(
    root: SpecTable, sources: Sequence[Source], steps: Sequence[FlowStep], sinks: Sequence[Sink], resources: Resources
) -> None:
    refuse_equal_sinks(root, sinks)
    _refuse_loops(root, sources, sinks)
    if resources.connector == "kafka" and any(each.quarantines for each in sources):
        raise root.fail(
            "resources.connector", 'is "kafka", which cannot leave out what on_max_bad = "quarantine" puts aside'
        )
    if len(sources) > 1 and not steps:
        raise root.fail("steps", "is missing: with several sources a step [[steps]] says how their rows come together")


def _sources(root: SpecTable) -> list[Source]:
    table = root.table("source")
    tables = root.tables_by_name("sources")
    if table is None and not tables:
        raise root.fail("source", "is missing: the table [source] says which topics are read")
    if table is not None and tables:
        raise root.fail("sources", "cannot be combined with [source]: give each source a name, [sources.NAME]")
    if table is not None:
        return [_source(table, "source", None)]
    found: list[Source] = []
    for name, each in tables.items():
        with root.recover():
            check_view(each, "", name, [source.name for source in found])
            found.append(_source(each, name, found[0] if found else None))
        if name not in [source.name for source in found]:
            found.append(replace(_UNREAD_SOURCE, name=name))
    return found


def _source(table: SpecTable, name: str, first: Source | None) -> Source:
    topics, pattern = table.texts("topics"), table.text("pattern")
    if bool(topics) == bool(pattern):
        table.report("topics", 'give either topics = ["name"] or pattern = "regular expression"')
    if pattern:
        try:
            re.compile(pattern)
        except re.error as error:
            raise table.fail("pattern", f"is no regular expression: {error}") from error
    how, format_table = _UNREAD_SOURCE.format, table.table("format")
    if format_table is None:
        table.report("format", "is missing: the table [source.format] says how values become columns")
    else:
        with table.recover():
            how = read_format(format_table, of_source=True)
    kafka = table.kafka_properties("isolation.level")
    servers = table.brokers("bootstrap_servers") or (first.bootstrap_servers if first else None)
    if first and not table.has("bootstrap_servers"):
        kafka = {**first.kafka, **kafka}
    source = Source(
        bootstrap_servers=servers or table.needed("bootstrap_servers", 'for example "localhost:9092"'),
        topics=topics,
        pattern=pattern,
        format=how,
        starting_offsets=_starting(table),
        max_offsets_per_trigger=table.number("max_offsets_per_trigger", 100_000),
        isolation=table.choice("isolation", ("read_committed", "read_uncommitted"), "read_committed"),
        fail_on_data_loss=table.boolean("fail_on_data_loss", default=True),
        group=table.text("group"),
        bad_rows_topic=table.text("bad_rows_topic"),
        kafka=table.require_protection(kafka),
        name=name,
        watermark=read_watermark(table.table("watermark")),
        max_bad=read_limit(table),
        record_columns=_record_columns(table),
    )
    _refuse_other_topics(table, source)
    return source


def _refuse_other_topics(table: SpecTable, source: Source) -> None:
    """Offsets of topics that are not read would leave those that are at their first
    records, in silence."""
    from barnabas.pipelines.cluster.offsets import from_json

    if source.starting_offsets in ("earliest", "latest"):
        return
    other = sorted({each.topic for each in from_json(source.starting_offsets) if not source.covers(each.topic)})
    if other:
        hint = did_you_mean(other[0], source.topics)
        raise table.fail("starting_offsets", f"names {', '.join(other)}, which the source does not read{hint}")


def _record_columns(table: SpecTable) -> tuple[str, ...]:
    names = table.texts("record_columns")
    for name in names:
        if name not in RECORD_COLUMNS:
            raise table.fail("record_columns", f"names {name}, but a record has {', '.join(RECORD_COLUMNS)}")
    return tuple(dict.fromkeys(names))


def _starting(table: SpecTable) -> str:
    from barnabas.pipelines.cluster.offsets import from_json

    value = table.text("starting_offsets", "earliest") or ""
    if value not in ("earliest", "latest"):
        try:
            from_json(value)
        except ConfigError as error:
            raise table.fail("starting_offsets", f"is neither earliest nor latest, and {error}") from error
    return value


def _refuse_loops(root: SpecTable, sources: Sequence[Source], sinks: Sequence[Sink]) -> None:
    """A flow that reads what it writes would never end, and its topics would grow for ever."""
    written: list[tuple[str, str, Source | TopicSink]] = [
        (f"{each.field}.bad_rows_topic", each.bad_rows_topic, each) for each in sources if each.bad_rows_topic
    ]
    written += [(f"sinks[{n}].topic", each.topic, each) for n, each in enumerate(sinks) if isinstance(each, TopicSink)]
    for field_name, topic, where in written:
        brokers = _addresses(where.bootstrap_servers)
        for source in sources:
            if source.covers(topic) and brokers & _addresses(source.bootstrap_servers):
                what = f"{topic}, which {source.name} reads" + (
                    f" by its pattern {source.pattern}" if source.pattern else ""
                )
                raise root.fail(
                    field_name, f"is {what}: the flow would read what it writes, for ever; take another name"
                )


def _addresses(servers: str) -> set[str]:
    """Addresses of brokers, in one form: two lists with one of them in both are of one cluster."""
    plain = [each.strip().lower().rpartition("://")[2] for each in servers.split(",")]
    return {_LOOPBACK.sub("localhost:", each) for each in plain}


def _local_places(flow: Flow) -> dict[str, str]:
    """The files and folders of a flow beside its checkpoint, by their fields."""
    places: dict[str, str] = {}
    for number, sink in enumerate(flow.sinks):
        if place := kind_of(sink).local_place(sink):
            places[f"sinks[{number}].path"] = place.path
    files = [each for each in flow.lookups if each.type not in ("postgresql", "topic")]
    places |= {f"tables.{each.name}.path": each.place for each in files}
    if flow.model:
        places["model.path"] = flow.model.path
    return places | {f"resources.py_files[{number}]": each for number, each in enumerate(flow.resources.py_files)}


def _for_producers(kafka: Mapping[str, str]) -> dict[str, str]:
    """What a producer to the same cluster needs of a consumer's settings: the protection, and
    how brokers are reached."""
    shared = {name: text for name, text in kafka.items() if name.startswith(_OF_CONNECTIONS)}
    return {**shared, **security_properties(kafka)}


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
    master = table.text("master")
    if master and master.startswith("sc://"):
        raise table.fail(
            "master",
            f"is {redacted_address(master)!r}: a flow does not run over Spark Connect, because its checks and sinks need a driver of their own. Name "
            'the cluster behind it, such as "spark://host:7077"; programs of yours can use the format barnabas over Connect',
        )
    if master and not MASTER.fullmatch(master):
        raise table.fail(
            "master",
            f'is {redacted_address(master)!r}, but must be like "spark://host:7077", "yarn", "k8s://https://host:443" or "local[2]"',
        )
    files = tuple(table.resolve("py_files", each) for each in table.texts("py_files"))
    if missing := next((each for each in files if not Path(each).is_file()), None):
        raise table.fail("py_files", f"names {missing}, which is no file")
    shuffle_partitions = table.number("shuffle_partitions", cores)
    connector = table.choice("connector", CONNECTORS, "barnabas")
    spark = table.texts_by_name("spark")
    if problem := task_problem(spark, master, cores):
        raise table.fail("spark", problem)
    return Resources(cores, memory, shuffle_partitions, spark, master, files, connector)
