"""Times and sizes in the words of sentences.

In Kafka: nothing; its tools print milliseconds and bytes.
"""

__all__ = ["duration", "size"]

_UNITS = ((86_400_000, "day"), (3_600_000, "hour"), (60_000, "minute"), (1000, "second"))
_KIB = 1024


def duration(ms: float) -> str:
    """``3 days``, ``1 hour``, ``12 ms``: whole ones of the largest unit that fits."""
    for unit_ms, name in _UNITS:
        if ms >= unit_ms:
            count = int(ms // unit_ms)
            return f"{count} {name}{'' if count == 1 else 's'}"
    return f"{ms:.0f} ms"


def size(count: float) -> str:
    """``12 bytes``, ``3.4 MiB``."""
    if count < _KIB:
        return f"{count:.0f} bytes"
    for unit in ("KiB", "MiB", "GiB"):
        count /= _KIB
        if count < _KIB or unit == "GiB":
            break
    return f"{count:.1f} {unit}"
