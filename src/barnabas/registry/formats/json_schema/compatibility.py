"""Decides whether one JSON Schema accepts all that another one did, by Confluent's rules.

Source: https://docs.confluent.io/platform/current/schema-registry/fundamentals/
schema-evolution.html#json-schema-compatibility-rules, and "Understanding JSON Schema
Compatibility" by their author. As there, a condition (``if``) is not compared, and neither are
``contains``, ``propertyNames`` and the values of ``patternProperties`` themselves.

Schemas may refer to each other in circles. A pair that is being compared counts as compatible; if
it then is not, all is compared again with that known, until nothing new comes out.

In Confluent's registry: `SchemaDiff` of the package `json.diff`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from barnabas.registry.formats.json_schema.differences import MOST_DIFFERENCES, JsonDifference
from barnabas.registry.formats.json_schema.object_rules import ShapeSide, compare_arrays, compare_objects
from barnabas.registry.formats.json_schema.shapes import Shape, Shapes
from barnabas.registry.formats.json_schema.value_rules import (
    compare_consts,
    compare_enums,
    compare_numbers,
    compare_strings,
)
from barnabas.registry.formats.json_text import write_json
from barnabas.registry.formats.schema import InvalidSchemaError

__all__ = ["find_json_differences"]

_MOST_WORK: Final = 300_000
"""Pairs of schemas that are compared for one answer. A pair that is tried counts as several, for
large combinations make very many of them."""

_TRIAL: Final = 10

_Found = list[JsonDifference]
_Pair = tuple[int, int]


def find_json_differences(new: Shapes, old: Shapes) -> _Found:
    """Why a schema does not accept what an old one did; empty if it does.

    Raises InvalidSchemaError when there is too much to compare."""
    work = _Work()
    while True:
        found = _Comparison(old, new, work).compare(old.root(), new.root())
        refused = {pair: each for pair, each in work.found.items() if each and pair not in work.refused}
        if not work.has_assumed or not refused:
            return found[:MOST_DIFFERENCES]
        work.refused |= refused
        work.found.clear()
        work.has_assumed = False


@dataclass
class _Work:
    """What is known while two schemas are compared, in either direction."""

    found: dict[_Pair, _Found] = field(default_factory=dict)
    open: set[_Pair] = field(default_factory=set)
    refused: dict[_Pair, _Found] = field(default_factory=dict)
    """Pairs that are known to be incompatible from the comparisons before."""
    kept: list[Shape] = field(default_factory=list)
    """All shapes that are compared: some are made for a moment, and ids stand for them."""
    has_assumed: bool = False
    left: int = _MOST_WORK


class _Comparison:
    """Compares shapes of an old schema with those of a new one."""

    def __init__(self, old: Shapes, new: Shapes, work: _Work) -> None:
        self._old = old
        self._new = new
        self._work = work

    def compare(self, old: Shape | None, new: Shape | None) -> _Found:
        if new is None:
            return []
        if old is None:
            return [JsonDifference("SCHEMA_ADDED")]
        work, pair = self._work, (id(old), id(new))
        found = work.found.get(pair)
        if found is not None:
            return found
        if pair in work.open:
            work.has_assumed = work.has_assumed or pair not in work.refused
            return work.refused.get(pair, [])
        work.left -= 1
        if work.left < 0:
            raise InvalidSchemaError("the schemas combine too many others to be compared")
        work.open.add(pair)
        work.kept += (old, new)
        found = work.found[pair] = self._calculate(old, new)[:MOST_DIFFERENCES]
        work.open.discard(pair)
        return found

    def _calculate(self, old: Shape, new: Shape) -> _Found:
        if old.kind != new.kind and self._fits_a_part(old, new):
            return []
        if old.kind != new.kind:
            are_bytes = all(shape.keywords.get("connect.type") == "bytes" for shape in (old, new))
            is_wider = old.kind == "false" or new.kind == "empty" or are_bytes
            return [] if is_wider else [JsonDifference("TYPE_CHANGED")]
        match new.kind:
            case "string":
                return compare_strings(old, new)
            case "number":
                return compare_numbers(old, new)
            case "enum":
                return compare_enums(old, new)
            case "const":
                return compare_consts(old, new)
            case "object":
                return compare_objects(ShapeSide(old, self._old), ShapeSide(new, self._new), self.compare)
            case "array":
                return compare_arrays(ShapeSide(old, self._old), ShapeSide(new, self._new), self.compare)
            case "not":
                return self._negations(old, new)
            case "combined":
                return self._combinations(old, new)
            case _:
                return []

    def _fits(self, old: Shape, new: Shape) -> bool:
        """Try a pair."""
        self._work.left -= _TRIAL
        return not self.compare(old, new)

    def _fits_a_part(self, old: Shape, new: Shape) -> bool:
        """One of several accepts what there was, or all of several did and one is left."""
        if new.kind == "combined":
            parts = self._new.parts(new)
            return (len(parts) == 1 or new.criterion != "allOf") and any(self._fits(old, part) for part in parts)
        if old.kind == "combined":
            parts = self._old.parts(old)
            return (len(parts) == 1 or old.criterion == "allOf") and any(self._fits(part, new) for part in parts)
        return False

    def _negations(self, old: Shape, new: Shape) -> _Found:
        """What must not fit may only become less: the schemas inside are compared the other way
        round."""
        written = ShapeSide(old, self._old).child("not")
        read = ShapeSide(new, self._new).child("not")
        found = _Comparison(self._new, self._old, self._work).compare(read, written)
        return [JsonDifference("NOT_TYPE_EXTENDED", ("not",))] if found else []

    def _combinations(self, old: Shape, new: Shape) -> _Found:
        written, read = _distinct(self._old.parts(old)), _distinct(self._new.parts(new))
        found: _Found = []
        if old.criterion != new.criterion and not _is_extended(old.criterion, new.criterion, len(written), len(read)):
            return [JsonDifference("COMBINED_TYPE_CHANGED")]
        if len(written) < len(read) and new.criterion == "allOf":
            found.append(JsonDifference("PRODUCT_TYPE_EXTENDED"))
        if len(written) > len(read) and old.criterion != "allOf":
            found.append(JsonDifference("SUM_TYPE_NARROWED"))
        alike = {text for text, part in written.items() if text in read and not self.compare(part, read[text])}
        rows = [part for text, part in written.items() if text not in alike]
        columns = [part for text, part in read.items() if text not in alike]
        edges = [[index for index, part in enumerate(columns) if self._fits(row, part)] for row in rows]
        if len(alike) + _most_pairs(edges, len(columns)) < min(len(written), len(read)):
            found.append(JsonDifference("COMBINED_TYPE_SUBSCHEMAS_CHANGED"))
        return found


def _is_extended(old: str, new: str, written: int, read: int) -> bool:
    """Whether one way to combine accepts all that another one did."""
    is_single = written == 1 and read == 1
    return new == "anyOf" or is_single or (written == 1 and new == "oneOf") or (read == 1 and old == "allOf")


def _distinct(parts: Sequence[Shape]) -> dict[str, Shape]:
    """Parts by what they say: two that say the same are one."""
    distinct: dict[str, Shape] = {}
    for part in parts:
        distinct.setdefault(f"{part.kind} {part.criterion} {part.is_integer} {write_json(part.keywords)}", part)
    return distinct


def _most_pairs(edges: list[list[int]], columns: int) -> int:
    """How many rows find a column of their own among those that accept them (Kuhn, without
    recursion)."""
    row_of: list[int | None] = [None] * columns
    matched = 0
    for start in range(len(edges)):
        came_from: dict[int, int] = {}
        rows = [start]
        while rows:
            row = rows.pop()
            free = None
            for column in edges[row]:
                if column in came_from:
                    continue
                came_from[column] = row
                taken = row_of[column]
                if taken is None:
                    free = column
                    break
                rows.append(taken)
            if free is not None:
                _turn(free, start, came_from, row_of)
                matched += 1
                break
    return matched


def _turn(column: int, start: int, came_from: dict[int, int], row_of: list[int | None]) -> None:
    """Give each row on the way back the column that was found from it."""
    while True:
        row = came_from[column]
        previous = next((each for each, taken in enumerate(row_of) if taken == row), None)
        row_of[column] = row
        if row == start or previous is None:
            return
        row_of[previous] = None
        column = previous
