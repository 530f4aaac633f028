"""The modes: what may be written to a subject, a context, or at all.

In Confluent's registry: `ModeValue` and `Mode`.
"""

from enum import StrEnum

__all__ = ["Mode"]


class Mode(StrEnum):
    """Confluent's Mode.

    FORWARD, in which a registry of Confluent's sends writes to another one, cannot be set here.
    Where the log holds it, schemas can be registered neither with an id nor without one."""

    READWRITE = "READWRITE"
    READONLY = "READONLY"
    READONLY_OVERRIDE = "READONLY_OVERRIDE"
    IMPORT = "IMPORT"
    FORWARD = "FORWARD"

    @property
    def is_read_only(self) -> bool:
        return self in (Mode.READONLY, Mode.READONLY_OVERRIDE)
