"""Tables that streams are joined with: files, databases and topics, as a Spark data
source that notices new rows.

Spark plans a join's table side once in each micro-batch, so a reader that looks again gives the
flow what is in the table now. A worker keeps what it has read: of a file until its size or time
changes, of a database for ``refresh``. Topics are read by `barnabas.pipelines.frames.topic_table`.
Values of files and databases come as texts and are cast by Spark to the columns' types;
Parquet has types of its own.
"""

import csv
import datetime
import json
import math
import os
import sqlite3
import time
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # its name in every Spark program
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import DataType, StringType, StructField, StructType

from barnabas.base.errors import BarnabasError
from barnabas.base.hints import did_you_mean
from barnabas.base.json_text import parse_json
from barnabas.pipelines.errors import PipelineError
from barnabas.pipelines.flow_file.fields import duration_s
from barnabas.pipelines.formats.reasons import shown
from barnabas.pipelines.formats.strict_values import strict_value
from barnabas.pipelines.frames.topic_table import TABLE_RECORDS, read_topic_table
from barnabas.pipelines.frames.transforms import good_rows, mark_keyless, parse_records, table_counts
from barnabas.pipelines.outputs.postgres import open_postgres, postgres_reason
from barnabas.pipelines.specification.spec import POSITION, Lookup
from barnabas.pipelines.values.texts import time_text

__all__ = ["LookupDataSource", "open_lookup"]

_MEMORY: dict[str, tuple[object, pa.Table]] = {}
"""What this worker has read: by options, with the stamp of what it was."""
_ROWS = 10_000
_REPLACED_WITHIN_S = 5.0
_PAUSE_S = 0.1
_ENCODING = "utf-8-sig"  # spreadsheets write a mark before the first line
_UNREADABLE = (OSError, BarnabasError, sqlite3.Error, pa.ArrowException, ValueError)


def open_lookup(spark: SparkSession, lookup: Lookup, *, observed: bool = False) -> DataFrame:
    """The table as a frame; raises `PipelineError` when it is not there.

    ``observed`` adds to Spark's progress reports how many values of a topic do not fit.
    """
    if lookup.type == "topic":
        return _topic_table(spark, lookup, observed=observed)
    if lookup.type != "postgresql" and not Path(lookup.place).exists():
        raise PipelineError(f"the table {lookup.name} cannot be read: there is no {lookup.place}")
    options = {
        "kind": lookup.type,
        "place": lookup.place,
        "query": lookup.query or "",
        "columns": json.dumps(list(lookup.columns)),
        **({} if lookup.null is None else {"null": lookup.null}),
        "delimiter": lookup.delimiter,
        "refresh_s": str(duration_s(lookup.refresh)),
        "name": lookup.name,
        "binary": json.dumps(_binary_columns(lookup)),
    }
    rows = spark.read.format(LookupDataSource.name()).options(**options).load()
    if not lookup.columns:
        return rows
    typed = lookup.type == "parquet"
    columns = [F.col(name) if typed else _typed(lookup, name, kind) for name, kind in lookup.columns.items()]
    return rows.select(*columns)


def _binary_columns(lookup: Lookup) -> list[str]:
    """The columns that may have bytes, which texts of a database are not."""
    names = [name for name, kind in lookup.columns.items() if kind.lower() == "binary"]
    return names if lookup.type in ("sqlite", "postgresql") else []


def _typed(lookup: Lookup, name: str, kind: str) -> Column:
    """The column of texts as its type.

    A text that does not fit ends the flow with its table, column and value."""
    place = lookup.place if lookup.type != "postgresql" else "PostgreSQL"
    text = F.col(name)
    if name in _binary_columns(lookup):  # which came as hexadecimal digits
        return F.unhex(text).alias(name)
    value = strict_value(text, DataType.fromDDL(kind))
    problem = F.concat(
        F.lit(f"the table {lookup.name} cannot be read from {place}: column {name} is "),
        shown(text),
        F.lit(f", which is no {kind}"),
    )
    return F.when(text.isNotNull() & value.isNull(), F.raise_error(problem).cast(kind)).otherwise(value).alias(name)


def _topic_table(spark: SparkSession, lookup: Lookup, *, observed: bool) -> DataFrame:
    """The values that fit the format, as columns."""
    assert lookup.format is not None
    assert lookup.topic is not None
    settings = {"isolation.level": "read_committed", **lookup.kafka, "bootstrap.servers": lookup.place}
    source = {"subscribe": lookup.topic, **{f"kafka.{name}": text for name, text in settings.items()}}
    options = {"kind": "topic", "place": lookup.place, "name": lookup.name, "source": json.dumps(source)}
    records = spark.read.format(LookupDataSource.name()).options(**options).load()
    parsed = mark_keyless(parse_records(records, lookup.format))
    if observed:
        parsed = parsed.observe(f"barnabas.table.{lookup.name}", *table_counts())
    return good_rows(parsed).drop(*POSITION)


class LookupDataSource(DataSource):
    """What Spark makes for ``format("barnabas_lookup")``."""

    @classmethod
    def name(cls) -> str:
        return "barnabas_lookup"

    def schema(self) -> StructType:
        if self.options["kind"] == "topic":
            return TABLE_RECORDS
        if self.options["kind"] == "parquet":
            import pyarrow.dataset

            try:
                found = pyarrow.dataset.dataset(self.options["place"], format="parquet")
            except OSError as error:
                raise PipelineError(_problem(self.options, error)) from error
            return from_arrow_schema(found.schema)
        return StructType([StructField(name, StringType()) for name in json.loads(self.options["columns"])])

    def reader(self, schema: StructType) -> "LookupReader":  # noqa: ARG002  # Spark's signature
        return LookupReader(dict(self.options))


class LookupReader(DataSourceReader):
    """Reads the whole table, in one task."""

    def __init__(self, options: dict[str, str], *, wait: Callable[[float], None] = time.sleep) -> None:
        self._options = options
        self._wait = wait

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:  # noqa: ARG002  # Spark's signature
        key = json.dumps(self._options, sort_keys=True)
        try:
            if self._options["kind"] == "topic":
                yield from read_topic_table(key, json.loads(self._options["source"])).to_batches(max_chunksize=_ROWS)
                return
            table = self._read_changed(key)
        except _UNREADABLE as error:
            raise PipelineError(_problem(self._options, error)) from error
        yield from table.to_batches(max_chunksize=_ROWS)

    def _read_changed(self, key: str) -> pa.Table:
        """The table as it is now.

        A file that cannot be read is tried again for a while: it may be in the midst
        of being replaced."""
        failure: tuple[object, Exception] | None = None
        waited_s = 0.0
        while True:
            stamp: object = None
            try:
                stamp = _stamp(self._options)
                kept = _MEMORY.get(key)
                if kept is not None and kept[0] == stamp:
                    return kept[1]
                # A large file is read again only after a change.
                if failure is None or failure[0] != stamp:
                    table = _read_table(self._options)
                    _MEMORY[key] = (stamp, table)
                    return table
            except _UNREADABLE as error:
                failure = (stamp, error)
            assert failure is not None
            if self._options["kind"] in ("sqlite", "postgresql") or waited_s >= _REPLACED_WITHIN_S:
                raise failure[1]
            self._wait(_PAUSE_S)
            waited_s += _PAUSE_S


def _problem(options: Mapping[str, str], error: Exception) -> str:
    place = options["place"] if options["kind"] != "postgresql" else "PostgreSQL"
    return f"the table {options['name']} cannot be read from {place}: {error}"


def _stamp(options: Mapping[str, str]) -> object:
    if options["kind"] in ("sqlite", "postgresql"):
        return time.monotonic() // float(options["refresh_s"])
    place = Path(options["place"])
    files = sorted(place.rglob("*.parquet")) if place.is_dir() else [place]
    return [(str(each), found.st_mtime_ns, found.st_size) for each in files for found in [os.stat(each)]]


def _read_table(options: Mapping[str, str]) -> pa.Table:
    kind, place = options["kind"], options["place"]
    names: list[str] = json.loads(options["columns"])
    if kind == "parquet":
        import pyarrow.dataset

        return pyarrow.dataset.dataset(place, format="parquet").to_table()
    rows: list[Sequence[str | None]]
    if kind == "csv":
        rows = list(_csv_rows(place, names, options))
    elif kind == "json":
        rows = list(_json_rows(place, names))
    else:
        found = _sqlite_rows(place, options["query"]) if kind == "sqlite" else _postgres_rows(place, options["query"])
        if found and len(found[0]) != len(names):
            raise ValueError(f"the query gives {len(found[0])} columns, but {len(names)} are declared")
        binary = json.loads(options.get("binary", "[]"))
        rows = [[_text_of(name, value, binary) for name, value in zip(names, row, strict=True)] for row in found]
    columns: list[Sequence[str | None]] = list(zip(*rows, strict=True)) if rows else [() for _ in names]
    return pa.table({name: pa.array(column, pa.string()) for name, column in zip(names, columns, strict=True)})


def _csv_rows(place: str, names: Sequence[str], options: Mapping[str, str]) -> Iterator[list[str | None]]:
    with open(place, encoding=_ENCODING, newline="") as file:
        # Strict: a file that is being written may end in the midst of a quoted field.
        reader = csv.reader(file, delimiter=options["delimiter"], strict=True)
        try:
            header = next(reader, [])
            places = _places(names, header)
            for row in filter(None, reader):  # an empty line is no row
                if len(row) != len(header):
                    raise ValueError(
                        f"line {reader.line_num} has {len(row)} fields, but the first line has {len(header)}"
                    )
                yield [None if row[at] == options.get("null") else row[at] for at in places]
        except csv.Error as error:
            raise ValueError(f"line {reader.line_num}: {error}") from error


def _places(names: Sequence[str], header: Sequence[str]) -> list[int]:
    """Where the columns stand in the first line, whose other names may be empty or equal."""
    if missing := [name for name in names if name not in header]:
        raise ValueError(f"its first line names no column {', '.join(missing)}")
    if repeated := [name for name in names if header.count(name) > 1]:
        raise ValueError(f"its first line names several columns {', '.join(repeated)}")
    return [header.index(name) for name in names]


def _json_rows(place: str, names: Sequence[str]) -> Iterator[list[str | None]]:
    text = Path(place).read_text(encoding=_ENCODING)
    # Lines end with \n alone: other characters that end lines of texts may stand in
    # a string of JSON.
    lines = [(number, each) for number, each in enumerate(text.split("\n"), start=1) if each.strip()]
    is_list = text.lstrip().startswith("[")
    known: dict[str, None] = {}
    for number, value in enumerate(parse_json(text), start=1) if is_list else _json_lines(lines):
        if not isinstance(value, dict):
            raise PipelineError(
                f"{'entry' if is_list else 'line'} {number} is no JSON object: {json.dumps(value)[:100]}"
            )
        known |= dict.fromkeys(value)
        yield [_text(value.get(name)) for name in names]
    for name in names:
        if known and name not in known:
            hint = did_you_mean(name, [each for each in known if each not in names])
            raise ValueError(f"none of its {'entries' if is_list else 'lines'} has the column {name}{hint}")


def _json_lines(lines: list[tuple[int, str]]) -> Iterator[tuple[int, Any]]:
    for number, line in lines:
        try:
            yield number, parse_json(line)
        except ValueError as error:
            raise ValueError(f"line {number} is no JSON: {line[:100]}") from error


def _sqlite_rows(place: str, query: str) -> list[tuple[Any, ...]]:
    connection = sqlite3.connect(f"{Path(place).as_uri()}?mode=ro", uri=True)
    try:
        return connection.execute(query).fetchall()
    finally:
        connection.close()


def _postgres_rows(place: str, query: str) -> list[tuple[Any, ...]]:
    import psycopg

    try:
        with open_postgres(place) as connection:
            return connection.execute(query.encode()).fetchall()
    except psycopg.Error as error:
        raise ValueError(postgres_reason(error, place)) from error


def _text_of(name: str, value: Any, binary: Container[str]) -> str | None:
    """The value of a column of a database.

    Raises `ValueError` for bytes that are to be something else."""
    if isinstance(value, bytes | memoryview):
        if name not in binary:
            raise ValueError(f"column {name} has bytes; declare it as binary, or have the query make a text of them")
        return bytes(value).hex()
    text = _text(value)
    return text.encode().hex() if name in binary and text is not None else text


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    # Spark cannot read offsets with seconds, which local mean time has.
    if isinstance(value, datetime.datetime):
        return time_text(value)
    if isinstance(value, float) and not math.isfinite(value):
        return json.dumps(value)  # NaN and Infinity, as in columns of records
    return json.dumps(value) if isinstance(value, bool | list | dict) else str(value)
