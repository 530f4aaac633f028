"""Which expression of a flow's file an error of Spark's is about. Needs no Spark.

Spark checks SQL strictly (ANSI): a division by zero ends a query. Its exception
quotes the expression:

    == SQL (line 1, position 1) ==
    price / id
    ^^^^^^^^^^
"""

import re
from collections.abc import Iterator

from barnabas.pipelines.specification.spec import Flow
from barnabas.pipelines.specification.steps import Aggregate, Transform

__all__ = ["failed_expression"]

_QUOTED = re.compile(r"^== SQL[^\n]*==\n(.*?)\n[ \t]*\^+[ \t]*$", re.DOTALL | re.MULTILINE)


def failed_expression(flow: Flow, *texts: str) -> str | None:
    """The field of the expression that the texts of an exception quote.

    None if they quote none, or it is not of the file."""
    for quoted in (found[1].strip() for text in texts for found in _QUOTED.finditer(text)):
        fields = list(_expressions(flow))
        for field, expression in fields:
            if expression.strip() == quoted:
                return field
        for field, expression in fields:
            if quoted in expression:
                return field
    return None


def _expressions(flow: Flow) -> Iterator[tuple[str, str]]:
    yield from _of_transform("transform", flow.transform)
    for number, step in enumerate(flow.steps):
        place = f"steps[{number}]"
        if step.sql:
            yield f"{place}.sql", step.sql
        yield from _of_transform(place, step.transform)
        yield from _of_aggregate(f"{place}.aggregate", step.aggregate)
    yield from _of_aggregate("aggregate", flow.aggregate)
    for number, each in enumerate(flow.expectations):
        yield f"expectations[{number}].check", each.check


def _of_transform(place: str, how: Transform) -> Iterator[tuple[str, str]]:
    yield from ((f"{place}.derive.{name}", text) for name, text in how.derive.items())
    if how.where:
        yield f"{place}.where", how.where
    yield from ((f"{place}.select", text) for text in how.select)


def _of_aggregate(place: str, how: Aggregate | None) -> Iterator[tuple[str, str]]:
    yield from ((f"{place}.compute.{name}", text) for name, text in (how.compute if how else {}).items())
