"""A run's figures as lines for people: what is wrong first, with an example of each.

Needs no Spark."""

from collections.abc import Iterator, Mapping
from typing import Any

_MOST_SHOWN = 10
__all__ = ["lost_count_text", "lost_text", "table_problem", "wrong_lines"]


def table_problem(name: str, counts: Mapping[str, Any]) -> str:
    """What is wrong with a table of a topic."""
    return (
        f"{counts['bad_rows']:,} of the {counts['rows']:,} values of the table {name} do not fit and are left out; for example: "
        f"{counts['example']}"
    )


def lost_count_text(count: int | None) -> str:
    """How many records were lost, to follow other figures; empty for none."""
    return ", lost unknown" if count is None else f", {count:,} lost" if count else ""


def lost_text(lost: Mapping[str, int]) -> str:
    """How many records were lost of which partitions."""
    names = [f"{name}: {count:,}" for name, count in lost.items()]
    shown = ", ".join(names[:_MOST_SHOWN]) + (
        f" and {len(names) - _MOST_SHOWN} more" if len(names) > _MOST_SHOWN else ""
    )
    return f"lost: {sum(lost.values()):,} records were gone before they were read ({shown})"


def mixed_text(count: int) -> str:
    """What is not known about rows of keys in several partitions."""
    return (
        f"order: {count:,} keys had rows from several partitions in one micro-batch, among which Kafka keeps no order: an older row may count. "
        "Declare order_by for the sink"
    )


def wrong_lines(run: Mapping[str, Any]) -> Iterator[str]:
    """For each kind of bad rows, each expectation and each table what is wrong.

    ``run`` are figures as `Totals` has them."""
    if run.get("lost"):
        yield lost_text(run["lost"])
    if run.get("mixed_keys"):
        yield mixed_text(run["mixed_keys"])
    if run.get("cut_letters"):
        yield (
            f"cut: {run['cut_letters']:,} dead letters were too large for their topic and lack a part of their record; for example: "
            f"{run['cut_letter_example']}"
        )
    if run.get("quarantined_rows"):
        yield f"quarantined: {run['quarantined_rows']:,} rows in {run['quarantined_batches']:,} micro-batches"
    if run.get("timeless_rows"):
        yield f"without a time: {run['timeless_rows']:,} rows whose time is null are in no window"
    sources = run.get("sources", {})
    for name, counts in sources.items() if len(sources) > 1 else ():
        if counts["bad_rows"]:
            yield f"{name}: {counts['bad_rows']:,} of {counts['rows']:,} rows are bad"
    examples, bad = run.get("bad_examples", {}), run.get("bad", {})
    for name, count in {**bad, **run.get("expectations", {})}.items():
        # These kinds have examples of their own.
        has_kinds = any(other.startswith(f"{name}, ") for other in bad)
        yield f"{name}: {count:,}" + (
            f", for example: {examples[name]}" if examples.get(name) and not has_kinds else ""
        )
    if run.get("bad_example") and not examples:
        yield f"for example: {run['bad_example']}"
    for name, counts in run.get("tables", {}).items():
        if counts["bad_rows"]:
            yield table_problem(name, counts)
