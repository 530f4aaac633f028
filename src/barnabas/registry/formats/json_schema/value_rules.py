"""The rules for what stands alone: strings, numbers, enums and constants.

A limit may be lifted or widened; it may not be added or narrowed.

In Confluent's registry: `StringSchemaDiff`, `NumberSchemaDiff` and `EnumSchemaDiff`.
"""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from barnabas.registry.formats.json_schema.differences import JsonDifference
from barnabas.registry.formats.json_schema.shapes import Shape
from barnabas.registry.formats.json_text import write_json

__all__ = ["compare_consts", "compare_enums", "compare_limits", "compare_numbers", "compare_strings"]

_Found = list[JsonDifference]


def compare_limits(old: Mapping[str, Any], new: Mapping[str, Any], upper: str, lower: str) -> _Found:
    """An upper and a lower limit: ``maxLength`` and ``minLength``."""
    return _limit(old, new, upper, is_upper=True) + _limit(old, new, lower, is_upper=False)


def _limit(old: Mapping[str, Any], new: Mapping[str, Any], name: str, *, is_upper: bool) -> _Found:
    limit, written = new.get(name), old.get(name)
    kind = "".join(f"_{char}" if char.isupper() else char.upper() for char in name)
    if limit is None or limit is False or limit == written:
        return []
    if written is None or isinstance(written, bool) or isinstance(limit, bool):
        return [JsonDifference(f"{kind}_ADDED", (name,))]
    if is_upper and limit < written:
        return [JsonDifference(f"{kind}_DECREASED", (name,))]
    if not is_upper and limit > written:
        return [JsonDifference(f"{kind}_INCREASED", (name,))]
    return []


def compare_strings(old: Shape, new: Shape) -> _Found:
    """Lengths and pattern; two patterns are not compared."""
    found = compare_limits(old.keywords, new.keywords, "maxLength", "minLength")
    pattern, written = new.keywords.get("pattern"), old.keywords.get("pattern")
    if pattern is not None and pattern != written:
        found.append(JsonDifference("PATTERN_ADDED" if written is None else "PATTERN_CHANGED", ("pattern",)))
    return found


def compare_numbers(old: Shape, new: Shape) -> _Found:
    """Limits, divisors, and whether only integers are numbers."""
    found = compare_limits(old.keywords, new.keywords, "maximum", "minimum")
    found += compare_limits(old.keywords, new.keywords, "exclusiveMaximum", "exclusiveMinimum")
    found += _divisors(old.keywords.get("multipleOf"), new.keywords.get("multipleOf"))
    if new.is_integer and not old.is_integer:
        found.append(JsonDifference("TYPE_NARROWED"))
    return found


def _divisors(old: object, new: object) -> _Found:
    if new is None:
        return []
    if old is None:
        return [JsonDifference("MULTIPLE_OF_ADDED", ("multipleOf",))]
    written, divisor = Decimal(str(old)), Decimal(str(new))
    if _divides(divisor, written):
        return []
    kind = "MULTIPLE_OF_EXPANDED" if _divides(written, divisor) else "MULTIPLE_OF_CHANGED"
    return [JsonDifference(kind, ("multipleOf",))]


def _divides(one: Decimal, other: Decimal) -> bool:
    """Exactly, whatever the numbers of digits."""
    first, second = one.as_integer_ratio(), other.as_integer_ratio()
    return (second[0] * first[1]) % (second[1] * first[0]) == 0


def compare_enums(old: Shape, new: Shape) -> _Found:
    """Values may be added."""
    written, known = _texts(old.keywords["enum"]), _texts(new.keywords["enum"])
    if written <= known:
        return []
    return [JsonDifference("ENUM_ARRAY_NARROWED" if known <= written else "ENUM_ARRAY_CHANGED", ("enum",))]


def _texts(values: list[object]) -> set[str]:
    return {write_json(value) for value in values}


def compare_consts(old: Shape, new: Shape) -> _Found:
    """A constant stays."""
    is_same = write_json(old.keywords["const"]) == write_json(new.keywords["const"])
    return [] if is_same else [JsonDifference("ENUM_ARRAY_CHANGED", ("const",))]
