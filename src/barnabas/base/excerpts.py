"""Short texts of what others send: a few names of many, the beginning of a long text.

A request may name 100,000 topics, and an answer may hold megabytes of text. A log line or an error shows a part of it and says how
much there is.

Kafka has no counterpart.
"""

from collections.abc import Collection
from itertools import islice

__all__ = ["beginning", "some_of"]

_SHOWN_NAMES = 5
_SHOWN_LETTERS = 300


def beginning(text: str, most: int = _SHOWN_LETTERS) -> str:
    """The text, or its first ``most`` letters and the number of all.

    >>> beginning("abcdef", 3)
    'abc... (6 characters)'
    """
    return text if len(text) <= most else f"{text[:most]}... ({len(text)} characters)"


def some_of(names: Collection[object]) -> str:
    """The names, or the first few and the number of the others.

    >>> some_of(["a", "b"])
    'a, b'
    >>> some_of(range(95000))
    '0, 1, 2, 3, 4 and 94995 more'
    """
    shown = ", ".join(beginning(str(name)) for name in islice(names, _SHOWN_NAMES))
    return shown if len(names) <= _SHOWN_NAMES else f"{shown} and {len(names) - _SHOWN_NAMES} more"
