"""Short texts of what others send: a few names of many, the beginning of a long text.

A request may name 100,000 topics, and an answer may hold megabytes of text. A log line or an error
shows a part of it and says how much there is.

Kafka has no counterpart.
"""

from collections.abc import Collection, Hashable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Generic, NamedTuple, TypeVar

__all__ = ["Tallied", "Tally", "beginning", "some_of"]

Reason = TypeVar("Reason", bound=Hashable)

_SHOWN_NAMES = 5
_SHOWN_LETTERS = 300
_SHOWN_LETTERS_OF_A_NAME = 256


def beginning(text: str, most: int = _SHOWN_LETTERS) -> str:
    """The text, or its first ``most`` letters and the number of all.

    >>> beginning("abcdef", 3)
    'abc... (6 characters)'
    """
    return text if len(text) <= most else f"{text[:most]}... ({len(text)} characters)"


def some_of(names: Collection[object], most: int = _SHOWN_NAMES) -> str:
    """The names, or the first ``most`` and the number of the others.

    >>> some_of(["a", "b"])
    'a, b'
    >>> some_of(range(95000))
    '0, 1, 2, 3, 4 and 94995 more'
    """
    return _names_and_more([str(name) for name in islice(names, most)], len(names))


def _names_and_more(first: list[str], count: int) -> str:
    shown = ", ".join(beginning(name, _SHOWN_LETTERS_OF_A_NAME) for name in first)
    return shown if count <= len(first) else f"{shown} and {count - len(first)} more"


class Tallied(NamedTuple, Generic[Reason]):
    """What has one reason."""

    reason: Reason
    names: str
    """As `some_of` shows them."""
    first: str
    """The text of the first one."""


class Tally(Generic[Reason]):
    """Sums up what happened to the elements of a request: for each reason a line, however
    many elements there are.

    There must be few reasons, such as the codes of errors.
    """

    def __init__(self) -> None:
        self._found: dict[Reason, _Kind] = {}

    def add(self, reason: Reason, name: object, text: object) -> None:
        """Count an element."""
        kind = self._found.get(reason)
        if kind is None:
            kind = self._found[reason] = _Kind(beginning(str(text)))
        kind.count += 1
        if len(kind.names) < _SHOWN_NAMES:
            kind.names.append(str(name))

    def lines(self) -> Iterator[Tallied[Reason]]:
        """By reason, in the order in which they came."""
        for reason, kind in self._found.items():
            yield Tallied(reason, _names_and_more(kind.names, kind.count), kind.first)


@dataclass(slots=True)
class _Kind:
    first: str
    names: list[str] = field(default_factory=list)
    count: int = 0
