"""The words that sentences of many rules share.

In Kafka: nothing.
"""

from collections.abc import Iterable, Sequence

from barnabas.base.excerpts import some_of

__all__ = ["brokers_named", "counted", "first_lines", "some"]

_MAX_NAMES = 3
_MAX_BROKERS = 8


def some(names: Iterable[object], most: int = _MAX_NAMES) -> str:
    """``a, b, c and 7 more``."""
    return some_of(list(names), most)


def first_lines(lines: Iterable[str], most: int) -> tuple[str, ...]:
    """The lines, or the first ``most`` and one with the number of the others."""
    listed = list(lines)
    more = len(listed) - most
    return (*listed[:most], f"and {more} more") if more > 0 else tuple(listed)


def counted(count: int, one: str, more: str) -> str:
    """``1 partition is`` or ``7 partitions are``."""
    return f"{count} {one if count == 1 else more}"


def brokers_named(numbers: Sequence[int], what: str = "broker") -> str:
    """``broker 3`` or ``brokers 3, 4``."""
    return f"{what}{'' if len(numbers) == 1 else 's'} {some(numbers, _MAX_BROKERS)}"
