"""The tables ``[[sinks]]`` of a flow's file. Needs no Spark."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from barnabas.pipelines.flow_file.fields import POSITION, SpecTable
from barnabas.pipelines.outputs.declared import Sink
from barnabas.pipelines.outputs.kind import Declaration, SourceCluster
from barnabas.pipelines.outputs.registry import kind_of, output_kinds

__all__ = ["read_sink", "refuse_equal_sinks"]


def read_sink(table: SpecTable, groups: tuple[str, ...] | None, near: SourceCluster) -> Sink:
    """One of the tables ``[[sinks]]``.

    ``groups`` are the columns of the aggregate that gives the results their keys, None if none
    does. ``near`` is the first source's cluster.
    """
    order_by = table.text("order_by")
    sink = _read_sink(table, groups, near)
    if order_by is None:
        return sink
    if groups is not None or sink.key == POSITION:
        raise table.fail(
            "order_by", "needs a key of your own: rows of an aggregate, and of positions, are one for each key already"
        )
    declared: Any = sink
    ordered: Sink = replace(declared, order_by=order_by)
    return ordered


def _read_sink(table: SpecTable, groups: tuple[str, ...] | None, near: SourceCluster) -> Sink:
    kinds = output_kinds()
    kind = table.choice("type", tuple(kinds), "function" if table.has("function") else None)
    if kind != "function" and table.has("function"):
        raise table.fail("function", 'goes with type = "function", a Python function that takes each micro-batch')
    key = table.texts("key")
    if groups is not None:
        if key:
            raise table.fail("key", f"is given by the aggregate: {', '.join(groups)}")
        key = groups
    declaration = Declaration(table, key or POSITION, near, is_aggregated=groups is not None)
    sink: Sink = kinds[kind].declare(declaration)
    return sink


def refuse_equal_sinks(root: SpecTable, sinks: Sequence[Sink]) -> None:
    """Raise `SpecError` if two sinks are one place."""
    taken: set[object] = set()
    for number, sink in enumerate(sinks):
        places = kind_of(sink).places(sink)
        if places & taken:
            raise root.fail(f"sinks[{number}]", "writes to the same place as a sink before it")
        taken |= places
