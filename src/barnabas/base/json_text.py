"""JSON that comes from outside: a document that cannot be read is a `ValueError`,
whatever is wrong with it.

Python's parser answers lists in lists in lists with a `RecursionError`, which is no error of a
value, and which those who read an answer or a file do not expect.

Kafka's parser (Jackson) refuses more than 1000 levels.
"""

import json
from collections.abc import Callable
from typing import Any

__all__ = ["parse_json"]


def parse_json(text: str | bytes, *, pairs: Callable[[list[tuple[str, Any]]], Any] | None = None) -> Any:
    """The document; raises `ValueError`.

    ``pairs`` makes an object of its names and values, a dictionary if it is None."""
    try:
        return json.loads(text, object_pairs_hook=pairs)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
