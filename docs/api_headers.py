"""The docstring of an API module, which has one form, taken apart for the reference
pages and for tests.

NAME (key N), versions A to B.

What the API does.

- V: what version V adds.

Errors: the codes of its responses.
"""

import re
from dataclasses import dataclass
from importlib import import_module

from barnabas.broker.apis.api_handler import ApiHandler

__all__ = ["ApiHeader", "read_header"]

_TITLE = re.compile(r"(\w+) \(key (\d+)\), version(?: (\d+)|s (\d+) to (\d+))\.")
_ADDITION = re.compile(r"- (\d+): (.+)", re.DOTALL)
_ERRORS = "Errors: "


@dataclass(frozen=True, slots=True)
class ApiHeader:
    """The parts of an API module's docstring."""

    name: str
    key: int
    min_version: int
    max_version: int
    description: str
    additions: dict[int, str]
    """What each version adds."""
    errors: str
    api: ApiHandler


def read_header(module_name: str) -> ApiHeader:
    """Take a module of `barnabas.broker.apis` apart.

    Raises ValueError for a docstring of another form."""
    module = import_module(f"barnabas.broker.apis.{module_name}")
    title, *blocks = (module.__doc__ or "").strip().split("\n\n")
    found = _TITLE.fullmatch(title)
    if found is None:
        raise ValueError(f"{module_name}: the first line is not of the form 'NAME (key N), versions A to B.'")
    if not blocks or not blocks[-1].startswith(_ERRORS):
        raise ValueError(f"{module_name}: the last paragraph does not begin with '{_ERRORS}'")
    *blocks, errors = blocks
    additions: dict[int, str] = {}
    description = []
    for block in blocks:
        if not block.startswith("- ") or additions:
            description.append(block)
            continue
        for item in re.split(r"\n(?=- )", block):
            addition = _ADDITION.fullmatch(item)
            if addition is None:
                description.append(block)
                additions = {}
                break
            additions[int(addition[1])] = _one_line(addition[2])
    only, first, last = found[3], found[4], found[5]
    return ApiHeader(
        found[1],
        int(found[2]),
        int(only or first),
        int(only or last),
        "\n\n".join(description),
        additions,
        _one_line(errors.removeprefix(_ERRORS)),
        module.API,
    )


def _one_line(text: str) -> str:
    return " ".join(text.split())
