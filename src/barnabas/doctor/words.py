"""The words that sentences of many rules share.

In Kafka: nothing.
"""

from collections.abc import Iterable, Sequence

__all__ = ["brokers_named", "counted", "some"]

_MAX_NAMES = 3
_MAX_BROKERS = 8


def some(names: Iterable[object], most: int = _MAX_NAMES) -> str:
    """``a, b, c and 7 more``."""
    listed = [str(name) for name in names]
    more = len(listed) - most
    shown = ", ".join(listed[:most])
    return f"{shown} and {more} more" if more > 0 else shown


def counted(count: int, one: str, more: str) -> str:
    """``1 partition is`` or ``7 partitions are``."""
    return f"{count} {one if count == 1 else more}"


def brokers_named(numbers: Sequence[int], what: str = "broker") -> str:
    """``broker 3`` or ``brokers 3, 4``."""
    return f"{what}{'' if len(numbers) == 1 else 's'} {some(numbers, _MAX_BROKERS)}"
