"""Where in a TOML text a value stands, for error messages that name the line.

The standard parser gives values without positions. This reads headers and keys again, line by line,
after that parser has accepted the text, so it needs to understand only correct TOML. A path is
``source.format.columns`` or, in an array of tables, ``sinks[1].table``.
"""

import re

__all__ = ["locate_keys"]

_KEY = r"""(?:[A-Za-z0-9_-]+|"(?:[^"\\]|\\.)*"|'[^']*')"""
_DOTTED = rf"{_KEY}(?:\s*\.\s*{_KEY})*"
_HEADER = re.compile(rf"\s*(\[\[?)\s*({_DOTTED})\s*\]\]?\s*(?:#.*)?$")
_PAIR = re.compile(rf"\s*({_DOTTED})\s*=")
_INLINE = re.compile(rf"[{{,]\s*({_DOTTED})\s*=")


def locate_keys(text: str) -> dict[str, int]:
    """The first line, counted from 1, of every table and key."""
    lines: dict[str, int] = {}
    counts: dict[str, int] = {}
    prefix = ""
    inside: str | None = None  # the quotes of a string over several lines
    for number, line in enumerate(text.splitlines(), start=1):
        if inside:
            if inside in line:
                inside = None
            continue
        if header := _HEADER.match(line):
            prefix = _resolve(_plain(header.group(2)), header.group(1) == "[[", counts)
            lines.setdefault(prefix, number)
        elif pair := _PAIR.match(line):
            path = f"{prefix}.{_plain(pair.group(1))}" if prefix else _plain(pair.group(1))
            lines.setdefault(path, number)
            for inline in _INLINE.finditer(line, pair.end()):
                lines.setdefault(f"{path}.{_plain(inline.group(1))}", number)
        for quotes in ('"""', "'''"):
            if line.count(quotes) % 2:
                inside = quotes
    return lines


def _plain(dotted: str) -> str:
    return ".".join(part.strip("\"'") for part in re.findall(_KEY, dotted))


def _resolve(name: str, is_array: bool, counts: dict[str, int]) -> str:
    if is_array:
        counts[name] = counts.get(name, -1) + 1
        return f"{name}[{counts[name]}]"
    for array, index in counts.items():
        if name.startswith(f"{array}."):
            return f"{array}[{index}]{name.removeprefix(array)}"
    return name
