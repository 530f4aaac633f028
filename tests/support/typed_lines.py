"""Standard input that is not a terminal, with lines that come while a test changes
what they meet."""

from collections.abc import Iterator

__all__ = ["TypedLines"]


class TypedLines:
    """Gives the lines of an iterator one by one: a generator acts between them."""

    def __init__(self, lines: Iterator[str]) -> None:
        self._lines = lines

    def isatty(self) -> bool:
        return False

    def __iter__(self) -> Iterator[str]:
        return self._lines
