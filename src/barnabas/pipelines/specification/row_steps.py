"""Which steps of a flow take the records of a source one by one. Needs no Spark.

An expression of such a step that cannot be computed is of one record, so that record is a bad row
(`barnabas.pipelines.frames.uncomputable`). Behind a query, a Python function, a deduplication or an
aggregate a row is of no single record: an expression that cannot be computed there ends the flow.
"""

from dataclasses import dataclass, field

from barnabas.pipelines.outputs.registry import kind_of
from barnabas.pipelines.specification.spec import POSITION, Aggregate, Expectation, Flow, Source, Transform

__all__ = ["RowStep", "aggregates_records", "row_chains", "takes_records"]


@dataclass(frozen=True, slots=True)
class RowStep:
    """What happens to a record in one step: the choice of rows, then the figures that are made
    of them, if there are any."""

    place: str
    """Its field in the file, such as ``steps[0]``."""
    transform: Transform = field(default_factory=Transform)
    drops: tuple[Expectation, ...] = ()
    """Expectations on the step's rows that leave rows out."""
    aggregate: Aggregate | None = None
    key: tuple[str, ...] = ()
    """The columns of keys and folders in outputs that the rows behind the step have, or its groups,
    if these are the results."""


def row_chains(flow: Flow, source: Source) -> list[tuple[RowStep, ...]]:
    """The ways of a source's record through steps that take it alone, each as long as
    it can be; at least one."""
    is_first = source is flow.source
    key = () if flow.steps or flow.aggregate or not is_first else _key(flow, None)
    first = RowStep("transform", flow.transform, key=key) if is_first else RowStep("")
    chains: dict[str, tuple[RowStep, ...]] = {source.name: (first,)}
    """By the views that hold the source's records one by one."""
    longer: list[tuple[RowStep, ...]] = []
    previous = flow.source.name
    for number, step in enumerate(flow.steps):
        chain = None if step.sql or step.function else chains.get(step.of or previous)
        if chain is not None:
            goes_on = not step.deduplicate and not step.aggregate
            drops = _drops(flow, step.name) if goes_on else ()
            # The aggregate counts the rows that deduplication leaves.
            aggregate = None if step.deduplicate else step.aggregate
            is_last = number == len(flow.steps) - 1 and not flow.aggregate
            key = _key(flow, step.aggregate) if is_last else ()
            chain = (*chain, RowStep(f"steps[{number}]", step.transform, drops, aggregate, key))
            longer.append(chain)
            if goes_on:
                chains[step.name] = chain
        previous = step.name
    if flow.aggregate and previous in chains:
        key = _key(flow, flow.aggregate)
        longer.append((*chains[previous], RowStep("", aggregate=flow.aggregate, key=key)))
    found = [each for each in longer if not any(other != each and other[: len(each)] == each for other in longer)]
    return found or [(first,)]


def _key(flow: Flow, aggregate: Aggregate | None) -> tuple[str, ...]:
    """The columns of the results' keys, as far as they are columns of the rows that
    an aggregate takes."""
    if aggregate:
        return aggregate.group_by
    keys = [name for sink in flow.sinks if sink.key != POSITION for name in sink.key]
    folders = [name for sink in flow.sinks for name in kind_of(sink).folders(sink)]
    return tuple(dict.fromkeys(keys + folders))


def takes_records(flow: Flow, place: str) -> bool:
    """Whether the step at a place, such as ``steps[0]``, takes records of a source one by one."""
    return any(each.place == place for source in flow.sources for chain in row_chains(flow, source) for each in chain)


def aggregates_records(flow: Flow, how: Aggregate | None) -> bool:
    """Whether an aggregate of the flow makes its figures of records of a source."""
    last = [chain[-1] for source in flow.sources for chain in row_chains(flow, source)]
    return how is not None and any(each.aggregate is how for each in last)


def _drops(flow: Flow, view: str) -> tuple[Expectation, ...]:
    return tuple(each for each in flow.expectations if each.of == view and each.on_fail == "drop")
