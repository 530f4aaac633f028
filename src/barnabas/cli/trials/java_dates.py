"""Times in the letters of Java's ``SimpleDateFormat``: those that stand for numbers."""

import re
from datetime import datetime

from barnabas.base.errors import ConfigError

__all__ = ["java_date"]

_LETTERS = {
    "y": "%Y",
    "M": "%m",
    "d": "%d",
    "H": "%H",
    "h": "%I",
    "m": "%M",
    "s": "%S",
    "S": "%f",
    "a": "%p",
    "Z": "%z",
}
_PART = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|([^A-Za-z']+)")


def java_date(when: datetime, pattern: str) -> str:
    """The time in the pattern; raises `ConfigError` for a letter that is not known."""
    parts = []
    for match in _PART.finditer(pattern):
        quoted, letter, other = match.groups()
        if letter is None:
            parts.append(other if quoted is None else quoted or "'")
            continue
        if letter not in _LETTERS:
            raise ConfigError(f"--date-format {pattern}: the letter {letter} is not supported")
        text = when.strftime(_LETTERS[letter])
        parts.append(text[:3] if letter == "S" else text)
    return "".join(parts)
