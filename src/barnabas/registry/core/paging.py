"""Pages of answers.

In Confluent's registry: the parameters offset and limit of `SchemasResource`.
"""

from collections.abc import Sequence
from typing import TypeVar

__all__ = ["page"]

T = TypeVar("T")


def page(found: Sequence[T], offset: int, limit: int, most: int | None = None) -> list[T]:
    """A part of an answer. A limit that is not positive, or above the most, is the most."""
    start = max(offset, 0)
    length = limit if limit > 0 and (most is None or limit <= most) else most
    return list(found[start:] if length is None else found[start : start + length])
