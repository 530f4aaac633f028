"""What happens to rows between topics and sinks, declared: steps, tables to look up, expectations.

Needs no Spark. A flow is a chain of named views. Each source, each table and each step is a view;
a step reads views that stand before it. Within one step the order is: its rows (of a view, an SQL
query, or a Python function), derived columns, filter, choice of columns, watermark,
deduplication, aggregate.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from barnabas.base.hints import did_you_mean
from barnabas.pipelines.flow_file.addresses import postgres_problem
from barnabas.pipelines.flow_file.fields import (
    NAME,
    POSITION,
    SpecError,
    SpecTable,
    check_column,
    check_name,
    duration_s,
)
from barnabas.pipelines.flow_file.function_fields import read_function
from barnabas.pipelines.flow_file.function_files import ANY_PARAMETERS
from barnabas.pipelines.formats.declared import Format
from barnabas.pipelines.formats.registry import read_format

__all__ = [
    "POSITION",
    "WINDOW_TIMES",
    "Aggregate",
    "Expectation",
    "FlowStep",
    "Lookup",
    "Transform",
    "Watermark",
    "check_view",
    "read_aggregate",
    "read_expectations",
    "read_lookups",
    "read_steps",
    "read_transform",
    "read_watermark",
]

WINDOW_TIMES = ("window_start", "window_end")
"""The columns of a window's bounds."""
PREVIOUS = "rows"
"""The parameter of a step's function that takes the view before it."""
_LOOKUP_FILES = ("csv", "json", "parquet")
_LOOKUP_DATABASES = ("sqlite", "postgresql")


@dataclass(frozen=True, slots=True)
class Transform:
    """Row by row: derived columns in their order, then a filter, then a choice of
    columns; all Spark SQL."""

    derive: dict[str, str] = field(default_factory=dict)
    where: str | None = None
    select: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Watermark:
    """The column of event time, and how late a row may come."""

    time: str
    delay: str


@dataclass(frozen=True, slots=True)
class Aggregate:
    """Groups, in windows of event time when ``window`` is set, or in sessions that end
    after a gap of ``session``."""

    compute: dict[str, str]
    group_by: tuple[str, ...] = ()
    time: str | None = None
    window: str | None = None
    slide: str | None = None
    watermark: str | None = None
    session: str | None = None

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns that identify a result row."""
        return (WINDOW_TIMES if self.window or self.session else ()) + self.group_by


@dataclass(frozen=True, slots=True)
class FlowStep:
    """A view made from those before it."""

    name: str
    of: str | None = None
    sql: str | None = None
    function: Callable[..., Any] | None = None
    transform: Transform = Transform()
    watermark: Watermark | None = None
    deduplicate: tuple[str, ...] = ()
    aggregate: Aggregate | None = None

    def inputs(self, previous: str) -> tuple[str, ...]:
        """The views that a function takes, by the names of its parameters.

        ``rows`` is the view before."""
        assert self.function is not None
        return tuple(self.of or previous if each == PREVIOUS else each for each in _parameters(self.function))


@dataclass(frozen=True, slots=True)
class Lookup:
    """A table that streams are joined with; its rows are read again while the flow runs."""

    name: str
    type: str
    place: str
    query: str | None = None
    columns: dict[str, str] = field(default_factory=dict)
    null: str | None = None
    delimiter: str = ","
    refresh: str | None = None
    topic: str | None = None
    format: Format | None = None
    """The format of a topic's values; its columns are the table's."""
    kafka: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Expectation:
    """What rows of a view should fulfil, and what happens to those that do not."""

    name: str
    check: str
    of: str
    on_fail: str = "warn"


def read_transform(table: SpecTable | None) -> Transform:
    """The fields ``derive``, ``where``, ``select``."""
    if table is None:
        return Transform()
    derive = table.texts_by_name("derive")
    for name in derive:
        check_column(table, f"derive.{name}", name)
    return Transform(derive, table.text("where"), table.texts("select"))


def read_watermark(table: SpecTable | None) -> Watermark | None:
    """A table ``watermark = {time, delay}``."""
    if table is None:
        return None
    time, delay = table.needed("time", "the column of event time"), table.duration("delay")
    if not delay:
        raise table.fail("delay", 'is missing: how late a row may come, such as "10 minutes"')
    return Watermark(time, delay)


def read_aggregate(table: SpecTable | None, watermarks: Sequence[Watermark] = ()) -> Aggregate | None:
    """An aggregate; ``watermarks`` are those that rows have already."""
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
    time, window, session = table.text("time"), table.duration("window"), table.duration("session")
    slide, watermark = table.duration("slide"), table.duration("watermark")
    if window and session:
        raise table.fail("session", "cannot be combined with window")
    span = "session" if session else "window"
    if (window or session) and not time:
        raise table.fail("time", f"is missing: the column of event time that {span}s are cut from")
    has_watermark = any(each.time == time for each in watermarks)
    if (window or session) and not watermark and not has_watermark:
        raise table.fail("watermark", "is missing: how late a row may come; without it state would grow for ever")
    if watermark and has_watermark:
        raise table.fail("watermark", f"is set for {time} already, by the source or a step before; leave it out here")
    for name, value in (("watermark", watermark), ("time", time)):
        if value and not window and not session:
            raise table.fail(name, "needs window or session")
    if slide and not window:
        raise table.fail("slide", "needs window")
    how = Aggregate(compute, group_by, time, window, slide, watermark, session)
    _check_windows(table, how)
    if not window and not session and not group_by:
        raise table.fail("group_by", "is missing: give group_by, window, or both")
    return how


def _check_windows(table: SpecTable, how: Aggregate) -> None:
    """Raise `SpecError` for windows that Spark cannot cut, and for names that it gives to them."""
    for name, value in (("window", how.window), ("slide", how.slide), ("session", how.session)):
        if value and not duration_s(value):
            raise table.fail(name, f"is {value!r}, but must be longer than nothing")
    if how.window and how.slide and duration_s(how.slide) > duration_s(how.window):
        text = f"is {how.slide!r}, longer than the window, {how.window!r}: rows in between would be in none"
        raise table.fail("slide", text)
    if how.window or how.session:
        for part, names in (("compute", how.compute), ("group_by", how.group_by)):
            for name in names:
                if name in (*WINDOW_TIMES, "window", "session_window"):
                    raise table.fail(part, f"names {name}, which is what windows have; take another name")


def read_steps(
    root: SpecTable, before: Sequence[str], views: Sequence[str], watermarks: list[Watermark]
) -> tuple[FlowStep, ...]:
    """The steps in their order; ``views`` are the names in the tables ``before``.

    Adds what steps set to ``watermarks``."""
    known = list(views)
    steps: list[FlowStep] = []
    for table in root.tables("steps"):
        with root.recover(*before, "steps"):
            step = _step(table, known, watermarks)
            known.append(step.name)
            steps.append(step)
    return tuple(steps)


def _step(table: SpecTable, known: Sequence[str], watermarks: list[Watermark]) -> FlowStep:
    function = read_function(table, "function")
    name = table.text("name") or (function.__name__ if function else "")
    if not name:
        raise table.fail("name", "is missing: the name under which later steps know the rows")
    check_view(table, "name", name, known)
    sql, of = table.text("sql"), table.text("from")
    if sql and (function or of):
        raise table.fail("sql", f"cannot be combined with {'function' if function else 'from'}")
    if of and of not in known:
        raise table.fail(
            "from", f"names {of}, which is no source, table or step before this one{did_you_mean(of, known)}"
        )
    if function:
        for each in _parameters(function):
            if each != PREVIOUS and each not in known:
                raise table.fail(
                    "function",
                    f"{function.__name__} has the parameter {each}, which is no source, table or step before this one"
                    f" ({PREVIOUS} is the one before){did_you_mean(each, known) or '; there are ' + ', '.join(known)}",
                )
    watermark = read_watermark(table.table("watermark"))
    if watermark:
        watermarks.append(watermark)
    deduplicate = table.texts("deduplicate")
    if deduplicate and not watermarks:
        raise table.fail(
            "deduplicate", "needs a watermark, of the source or of a step: how long a repetition is recognised"
        )
    aggregate = read_aggregate(table.table("aggregate"), watermarks)
    if aggregate and aggregate.time and aggregate.watermark:
        watermarks.append(Watermark(aggregate.time, aggregate.watermark))
    # Windows of windows follow the watermark of the first windows.
    if aggregate and aggregate.window:
        watermarks += [Watermark(name, "") for name in WINDOW_TIMES]
    return FlowStep(name, of, sql, function, read_transform(table), watermark, deduplicate, aggregate)


def check_view(table: SpecTable, field_name: str, name: str, known: Sequence[str]) -> None:
    """Raises `SpecError` for a name that a view cannot have."""
    if not NAME.fullmatch(name):
        raise table.fail(field_name, f"{name!r} is no name of a view: letters, digits and underscore")
    if name in known:
        raise table.fail(field_name, f"{name} is the name of another source, table or step")
    if name in (PREVIOUS, "results"):
        raise table.fail(field_name, f"{name} has a meaning of its own; take another name")


def read_lookups(root: SpecTable, known: list[str], servers: str, kafka: Mapping[str, str]) -> tuple[Lookup, ...]:
    """The tables ``[tables.NAME]``; adds their names to ``known``.

    ``servers`` and ``kafka`` are those of the first source."""
    found: list[Lookup] = []
    for name, table in root.tables_by_name("tables").items():
        check_view(table, "", name, known)
        known.append(name)
        kind = table.choice("type", (*_LOOKUP_FILES, *_LOOKUP_DATABASES, "topic"))
        if kind == "topic":
            found.append(_topic_lookup(table, name, servers, kafka))
            continue
        columns = table.texts_by_name("columns")
        if not columns and kind != "parquet":
            raise table.fail("columns", 'is missing: name = "type" for each column')
        for each in columns:
            check_name(table, f"columns.{each}", each)
        query = table.text("query")
        if kind in _LOOKUP_FILES:
            for each in ("query", "table", "url", "refresh"):
                if table.has(each):
                    raise table.fail(each, "is for databases; a file is read again when it has changed")
        elif bool(query) == table.has("table"):
            raise table.fail("table", 'give either table = "name" or query = "select ..."')
        if kind != "postgresql":
            place = table.needed_path("path", "the file")
        else:
            place = table.needed_address("url", 'like "postgresql://user@host/database"')
            if problem := postgres_problem(place):
                raise table.fail("url", problem)
        if kind in _LOOKUP_DATABASES and not query:
            names = ", ".join(f'"{each}"' for each in columns)
            query = f"SELECT {names} FROM {_table_name(table)}"  # noqa: S608  # checked names
        null, delimiter = table.text("null"), table.text("delimiter", ",") or ","
        refresh = table.duration("refresh") or ("1 minute" if kind in _LOOKUP_DATABASES else None)
        found.append(Lookup(name, kind, place, query, columns, null, delimiter, refresh))
    return tuple(found)


def _topic_lookup(table: SpecTable, name: str, servers: str, kafka: Mapping[str, str]) -> Lookup:
    """A topic as a table: the last value of each key."""
    topic = table.needed("topic", "the topic with the table's rows")
    format_table = table.table("format")
    if format_table is None:
        raise table.fail("format", "is missing: how values become columns, as in [source.format]")
    how = read_format(format_table, of_source=False)
    own = table.brokers("bootstrap_servers")
    # Another cluster's security settings are not this one's.
    given = table.kafka_properties()
    settings = table.require_protection(given if own else {**kafka, **given})
    return Lookup(name, "topic", own or servers, columns=dict(how.columns), topic=topic, format=how, kafka=settings)


def _table_name(table: SpecTable) -> str:
    name = table.needed("table")
    parts = name.split(".")
    if not all(NAME.fullmatch(each) for each in parts) or len(parts) > 2:
        raise table.fail("table", f"is {name!r}, which is no name of a table")
    return ".".join(f'"{each}"' for each in parts)


def read_expectations(
    tables: Sequence[SpecTable], sources: Mapping[str, str | None], steps: Sequence[str]
) -> tuple[Expectation, ...]:
    """The tables ``[[expectations]]``; ``sources`` have the topic for their bad rows."""
    found: dict[str, Expectation] = {}
    views = [*sources, *steps, "results"]
    for table in tables:
        name = table.needed("name")
        check_name(table, "name", name)
        if name in found:
            raise table.fail("name", f"{name} is the name of another expectation")
        of = table.text("of") or views[0]
        if of not in views:
            raise table.fail("of", f"names {of}, which is no source or step{did_you_mean(of, views)}")
        on_fail = table.choice("on_fail", ("warn", "drop", "quarantine", "fail"), "warn")
        if on_fail == "quarantine" and of not in sources:
            raise table.fail("on_fail", "quarantine is for rows of a source, which still have their record")
        if on_fail == "quarantine" and not sources[of]:
            text = f"is quarantine, but the source {of} has no bad_rows_topic to put rows into; to leave them out take drop"
            raise table.fail("on_fail", text)
        found[name] = Expectation(name, table.needed("check", "a condition in SQL"), of, on_fail)
    return tuple(found.values())


def _parameters(function: Callable[..., Any]) -> list[str]:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError) as error:
        raise SpecError(f"the parameters of {function!r} cannot be read: {error}") from error
    return [] if signature is ANY_PARAMETERS else list(signature.parameters)
