"""Tests of flows: a real topic, a real Spark, and the rows that come out.

    def test_revenue_is_summed_by_country(barnabas_flow):
        orders = [{"id": 1, "country": "de", "price": 5}, {"id": 2, "country": "de", "price": 7}]
        flow = barnabas_flow("orders.toml").given(orders)
        flow.run().assert_rows([{"country": "DE", "revenue": 12}])

A test's flow reads new topics of the fixture's cluster, has a checkpoint of its own, and gives its
results to the test instead of its sinks. Time is event time only: it is what the rows say, so a
test of a day's windows takes a moment.
"""

import itertools
import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from os import PathLike
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka import admin as client_admin

from barnabas.base.hints import did_you_mean
from barnabas.pipelines.flows import load_flow
from barnabas.pipelines.running.run import run_on
from barnabas.pipelines.specification.spec import POSITION, Flow, Format, FunctionSink, Source
from barnabas.pipelines.values.arrow_values import row_dicts

__all__ = ["FlowResult", "FlowUnderTest"]

_Row = Mapping[str, Any]
_RUNS = itertools.count()
_TIMEOUT_S = 30
_NEW_TOPIC: Any = vars(client_admin)["NewTopic"]  # its stubs forget to export it


@dataclass
class FlowResult:
    """What has come out of a flow so far."""

    rows: list[dict[str, Any]]
    """The results; with a key the last row of each key."""
    bad: list[str]
    """The reasons of bad rows of sources with a ``bad_rows_topic``;
    ``summary["bad"]`` counts all of them."""
    summary: dict[str, Any]

    def assert_rows(self, expected: Any) -> None:
        """The results are these rows, in any order.

        Only the columns that the rows name are compared. ``expected`` are dictionaries, or a
        frame of Spark, pandas or Arrow. Times are texts such as ``2026-01-01 00:00:00``, in
        UTC, or times.
        """
        expected = _rows_of(expected)
        columns = list(dict.fromkeys(name for row in expected for name in row))
        if self.rows and (unknown := [name for name in columns if not any(name in row for row in self.rows)]):
            known = list(self.rows[0])
            raise AssertionError(
                f"the results have no column {unknown[0]}{did_you_mean(unknown[0], known) or '; they have ' + ', '.join(known)}"
            )
        found = Counter(_shown({name: row.get(name) for name in columns}) for row in self.rows)
        wanted = Counter(_shown({name: row.get(name) for name in columns}) for row in expected)
        missing, surplus = wanted - found, found - wanted
        lines = [f"  - {each}" for each in sorted(missing.elements())] + [
            f"  + {each}" for each in sorted(surplus.elements())
        ]
        assert not lines, "\n".join(
            ["the results differ (- expected, + found):", *lines, *(f"  bad: {each}" for each in self.bad)]
        )


class FlowUnderTest:
    """A flow with topics, checkpoint and results of its own."""

    def __init__(self, flow: Flow | str | PathLike[str], spark: Any, bootstrap_servers: str, folder: Path) -> None:
        """``folder`` takes the checkpoint, and the rows of tables."""
        declared = flow if isinstance(flow, Flow) else load_flow(flow)
        self._spark = spark
        self._bootstrap_servers = bootstrap_servers
        self._folder = folder
        self._rows: dict[Any, dict[str, Any]] = {}
        self._count = itertools.count()
        number = next(_RUNS)
        self._key = declared.sinks[0].key
        sources = [self._own(source, f"flow-test-{os.getpid()}-{number}-{source.name}") for source in declared.sources]
        self._flow = replace(
            declared,
            name=f"{declared.name}-{number}",
            checkpoint=str(folder / f"checkpoint-{number}"),
            source=sources[0],
            more_sources=tuple(sources[1:]),
            sinks=(FunctionSink(self._take, self._key),),
        )

    @property
    def flow(self) -> Flow:
        """The flow that runs: with the test's topics and checkpoint."""
        return self._flow

    def _own(self, source: Source, topic: str) -> Source:
        bad = f"{topic}-bad" if source.bad_rows_topic else None
        admin: Any = client_admin.AdminClient({"bootstrap.servers": self._bootstrap_servers})
        for future in admin.create_topics([_NEW_TOPIC(name, 1, 1) for name in (topic, bad) if name]).values():
            future.result(_TIMEOUT_S)
        return replace(
            source,
            bootstrap_servers=self._bootstrap_servers,
            topics=(topic,),
            pattern=None,
            starting_offsets="earliest",
            group=None,
            kafka={},
            bad_rows_topic=bad,
        )

    def _take(self, batch: Any, epoch: int) -> None:  # noqa: ARG002  # the sink's signature
        for values in batch.toArrow().to_pylist():
            key = next(self._count) if self._key == POSITION else tuple(str(values[name]) for name in self._key)
            self._rows[key] = values

    def given(self, rows: Sequence[Any] = (), /, **by_name: Sequence[Any]) -> "FlowUnderTest":
        """Puts rows into the first source, or into sources and tables by their names.

        A row is a dictionary, which is written in the source's format, or a record's
        value as text or bytes.
        """
        known = {source.name: source for source in self._flow.sources}
        tables = {lookup.name for lookup in self._flow.lookups}
        for name, found in {self._flow.source.name: rows, **by_name}.items():
            if name in tables:
                self._fill_table(name, found)
            elif name in known:
                self._produce(known[name], found)
            else:
                raise ValueError(f"the flow has no source or table {name}; it has {', '.join([*known, *tables])}")
        return self

    def _produce(self, source: Source, rows: Sequence[Any]) -> None:
        if not rows:
            return
        producer = Producer({"bootstrap.servers": self._bootstrap_servers})
        for row in rows:
            producer.produce(source.topics[0], encode_row(row, source.format))
        if producer.flush(_TIMEOUT_S):
            raise TimeoutError(f"the rows did not reach {self._bootstrap_servers} within {_TIMEOUT_S} s")

    def _fill_table(self, name: str, rows: Sequence[Any]) -> None:
        path = self._folder / f"{self._flow.name}-{name}.json"
        columns = next(each.columns for each in self._flow.lookups if each.name == name)
        path.write_text(json.dumps([{**dict.fromkeys(columns), **row} for row in rows], default=str), encoding="utf-8")
        lookups = [
            replace(each, type="json", place=str(path), query=None, refresh=None) if each.name == name else each
            for each in self._flow.lookups
        ]
        self._flow = replace(self._flow, lookups=tuple(lookups))

    def run(self) -> FlowResult:
        """Runs until all that was given is done.

        More may be given then, and the flow run on from where it was."""
        summary = run_on(self._spark, self._flow)
        bad = [reason for source in self._flow.sources if source.bad_rows_topic for reason in self._reasons(source)]
        return FlowResult(list(self._rows.values()), bad, summary)

    def _reasons(self, source: Source) -> list[str]:
        records = (
            self._spark.read.format("barnabas")
            .option("kafka.bootstrap.servers", source.bootstrap_servers)
            .option("subscribe", source.bad_rows_topic)
            .option("includeHeaders", "true")
            .load()
        )
        headers = [{each.key: bytes(each.value).decode() for each in row.headers} for row in records.collect()]
        return [each["barnabas.reason"] for each in headers]


def _rows_of(expected: Any) -> Sequence[_Row]:
    """The rows of a frame, or the rows as they are."""
    if hasattr(expected, "toArrow"):  # of Spark
        expected = expected.toArrow()
    elif hasattr(expected, "to_dict"):  # of pandas
        import pyarrow as pa

        expected = pa.Table.from_pandas(expected, preserve_index=False)
    rows: Sequence[_Row] = list(row_dicts(expected)) if hasattr(expected, "to_batches") else expected
    return rows


def encode_row(row: Any, how: Format) -> bytes:
    """A record's value in a format."""
    if isinstance(row, bytes):
        return row
    if isinstance(row, str):
        return row.encode()
    return how.rules.encode(how, row)


def _shown(row: _Row) -> str:
    return ", ".join(f"{name}={_value(value)}" for name, value in row.items())


def _value(value: Any) -> str:
    if isinstance(value, datetime):
        return value.replace(tzinfo=None).isoformat(sep=" ")
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, Decimal):
        return f"{value.normalize():f}"
    return str(value)
