"""A part of the evidence, and why one is absent.

In Kafka: nothing; `Admin`'s futures each fail alone.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

__all__ = ["Absent", "Evidence", "EvidencePart", "Gap", "UncheckedError", "Why"]


class Why(Enum):
    """Why a part is absent."""

    NO_RIGHT = "no right"
    """The user may not read it; the reason names the right."""
    UNREACHABLE = "not reachable"
    UNSUPPORTED = "not supported"
    """The cluster has no such thing: a KRaft cluster has no znodes, an old broker lacks the API."""
    NOT_ASKED = "not asked for"
    """An option of the command is needed for it."""

    @property
    def is_incomplete(self) -> bool:
        """Whether the reader should have had it: the answer has a hole."""
        return self in (Why.NO_RIGHT, Why.UNREACHABLE)


@dataclass(frozen=True, slots=True)
class Absent:
    """A part that is not there, and what a person can do about it."""

    why: Why
    reason: str


class UncheckedError(Exception):
    """Raised by a rule that lacks a piece of a part, without which it cannot judge."""

    def __init__(self, absent: Absent) -> None:
        super().__init__(absent.reason)
        self.absent = absent


@dataclass(frozen=True, slots=True)
class Gap:
    """What a part lacks: of one broker, one topic."""

    subject: str
    absent: Absent


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidencePart:
    """The base of all parts."""

    gaps: tuple[Gap, ...] = ()
    """What could not be read of this part."""


PartType = TypeVar("PartType", bound=EvidencePart)


class Evidence:
    """All parts that were read, and why others were not."""

    def __init__(
        self, parts: Iterable[EvidencePart] = (), absent: Mapping[type[EvidencePart], Absent] | None = None
    ) -> None:
        self._parts: dict[type[EvidencePart], EvidencePart] = {type(part): part for part in parts}
        self._absent = dict(absent or {})

    def get(self, kind: type[PartType]) -> PartType | Absent:
        """The part, or why it is absent."""
        found = self._parts.get(kind)
        if isinstance(found, kind):
            return found
        return self._absent.get(kind, Absent(Why.NOT_ASKED, f"{kind.__name__} was not read"))
