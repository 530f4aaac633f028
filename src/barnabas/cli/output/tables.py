"""Tables and JSON documents on standard output.

In Kafka: `ToolsUtils.prettyPrintTable`.
"""

import itertools
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from barnabas.cli.output.colours import Style, painted
from barnabas.cli.output.terminal import columns, escaped_for, print_document

__all__ = ["aligned", "padded", "print_json"]


def print_json(value: Any) -> None:
    """One JSON document on standard output, for the shell."""
    print_document(json.dumps(value, indent=2, ensure_ascii=False))


def aligned(header: Sequence[str], rows: Iterable[Sequence[object]], minimum: Mapping[str, int] | None = None) -> str:
    """A table as Kafka's tools print it: columns left aligned and one blank apart,
    no blanks at a line's end."""
    minimum = minimum or {}
    first, *others = padded([header, *rows], [minimum.get(name, 0) for name in header])
    return "\n".join([painted(Style.HEADER, first, sys.stdout), *others])


def padded(rows: Sequence[Sequence[object]], minimum: Sequence[int] = (), gap: str = " ") -> list[str]:
    """Rows for standard output as lines, with columns of at least ``minimum`` characters; on a
    terminal cells are escaped."""
    is_terminal = sys.stdout.isatty()
    measure = columns if is_terminal else len
    texts = [[escaped_for(str(cell), sys.stdout) for cell in row] for row in rows]
    widths = [max(map(measure, column)) for column in zip(*texts, strict=True)]
    widths = [max(pair) for pair in itertools.zip_longest(widths, minimum, fillvalue=0)]
    return [
        gap.join(cell + " " * (width - measure(cell)) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in texts
    ]
