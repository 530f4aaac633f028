"""Numbers as cells: of different sizes in one column, and short enough for narrow terminals.

Kafka has no counterpart.
"""

from barnabas.top.tables import Cell

__all__ = ["age", "amount", "byte_rate", "count", "milliseconds", "plain", "rate"]

_UNKNOWN = "?"
_UNITS = ("", "k", "M", "G", "T")


def plain(text: str | None) -> Cell:
    """A text, or a dash for none."""
    return Cell(text, text or "-")


def count(value: float | None) -> Cell:
    """A whole number with all of its digits."""
    return Cell(value, _UNKNOWN if value is None else f"{value:,.0f}")


def amount(value: float) -> str:
    """Three digits with a unit: 1.23k, 45.6M."""
    size = abs(value)
    for unit in _UNITS:
        if size < 999.5 or unit == _UNITS[-1]:
            digits = 0 if size >= 100 or (not unit and size == int(size)) else 1 if size >= 10 else 2
            return f"{size if value >= 0 else -size:.{digits}f}{unit}"
        size /= 1000
    raise AssertionError("the last unit takes all")


def rate(value: float | None) -> Cell:
    """For each second."""
    return Cell(value, _UNKNOWN if value is None else amount(value))


def byte_rate(value: float | None) -> Cell:
    """Bytes for each second."""
    return Cell(value, _UNKNOWN if value is None else f"{amount(value)}B")


def milliseconds(value: float | None) -> Cell:
    """A time that was measured in ms."""
    if value is None:
        return Cell(None, _UNKNOWN)
    return Cell(value, f"{value:.0f} ms" if value >= 9.95 else f"{value:.1f} ms")


def age(seconds: float | None) -> Cell:
    """A time of seconds, minutes, hours or days."""
    if seconds is None:
        return Cell(None, _UNKNOWN)
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return Cell(seconds, f"{seconds / size:.0f} {unit}")
    return Cell(seconds, f"{seconds:.1f} s" if seconds < 10 and seconds != int(seconds) else f"{seconds:.0f} s")
