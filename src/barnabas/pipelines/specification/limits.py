"""How many rows of a source may be bad, ``max_bad`` of a flow's file, as typed values.

Needs no Spark."""

import re
from dataclasses import dataclass

from barnabas.pipelines.flow_file.fields import SpecTable

__all__ = ["Limit", "read_limit"]

_LEAST_ROWS = 100


@dataclass(frozen=True, slots=True)
class Limit:
    """How many rows may be bad, as a share or a number, and what happens then: ``stop``,
    ``warn`` or ``quarantine``.

    With ``quarantine`` they are the rows of a micro-batch.
    """

    share: float | None
    rows: int | None
    then: str = "stop"

    def is_passed(self, rows: int, bad_rows: int, *, is_final: bool = True) -> bool:
        """Whether there are too many; ``is_final``: these rows are all that there are.

        Before that a share is one of `_LEAST_ROWS` rows at least, and no single bad
        row passes one above 0.
        """
        if self.rows is not None:
            return bad_rows > self.rows
        if self.share is None:
            return False
        if is_final or not self.share:
            return bad_rows > self.share * rows
        return bad_rows > max(1, self.share * max(rows, _LEAST_ROWS))

    def __str__(self) -> str:
        return f"{self.rows} rows" if self.share is None else f"{self.share:.4%}".rstrip("0%").rstrip(".") + "%"


def read_limit(table: SpecTable) -> Limit | None:
    """``max_bad`` and ``on_max_bad`` of a source; raises `SpecError`."""
    value = table.value("max_bad")
    then = table.choice("on_max_bad", ("stop", "warn", "quarantine"), "stop")
    if value is None:
        if table.has("on_max_bad"):
            raise table.fail("on_max_bad", "needs max_bad")
        return None
    if then == "quarantine" and not table.has("bad_rows_topic"):
        raise table.fail("bad_rows_topic", 'is missing: on_max_bad = "quarantine" puts whole micro-batches there')
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return Limit(None, value, then)
    if isinstance(value, str) and re.fullmatch(r"\d+(\.\d+)?%", value) and float(value[:-1]) <= 100:
        return Limit(float(value[:-1]) / 100, None, then)
    raise table.fail("max_bad", f'is {value!r}, but must be a number of rows, or a share such as "1%"')
