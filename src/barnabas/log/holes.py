"""Ranges of offsets for which a log has no records: those that compaction left, and
those that a loss left.

A log that never was compacted has a record for every offset. A reader that met a hole there would
skip lost records in silence, so a read of such an offset fails, until the records are here again or
an operator steps over the loss on purpose (``barnabas lost-records``). The ranges that were stepped
over are kept in the partition's folder, in ``barnabas-accepted-holes``, a range a line. Apache
Kafka's broker leaves files with names that it does not know where they are. Kafka: no counterpart.

A hole is legal where

- the log is not known to be dense: no file ``barnabas-dense`` is in its folder. This broker
  makes one with each new log, and removes it for good when the topic is compacted, and when a
  leader sends batches with a gap between them. So a log that another broker made, or an earlier
  version, may have holes,
- the cleaner's checkpoint names the partition: it once was compacted,
- the log shows it: a batch with fewer records than offsets, or a gap inside a segment's file
  between two sound batches,
- it was accepted.
"""

import re
from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

from barnabas.base.errors import BarnabasError
from barnabas.base.files import Files
from barnabas.log.bounds import Bounds

__all__ = [
    "ACCEPTED_HOLES",
    "DENSE",
    "Holes",
    "MissingRecordsError",
    "OffsetSpan",
    "all_legal",
    "covers",
    "make_dense",
    "read_accepted",
    "write_accepted",
]

ACCEPTED_HOLES = "barnabas-accepted-holes"
DENSE = "barnabas-dense"
"""An empty file in the folder of a log that has a record for every offset, as far as
it is known."""
_RANGE = re.compile(r"([0-9]{1,19})-([0-9]{1,19})")


class OffsetSpan(NamedTuple):
    """Offsets from ``start`` to ``end`` (exclusive)."""

    start: int
    end: int


class _HasPath(Protocol):
    path: str


class MissingRecordsError(BarnabasError):
    """There is no record with an offset, and there must be one."""

    def __init__(self, missing: OffsetSpan, path: str) -> None:
        super().__init__(f"offsets {missing.start} to {missing.end - 1} are missing in or behind {path}")
        self.missing = missing


class Holes:
    """The holes of one log."""

    __slots__ = ("_accepted", "_bounds", "_forget_dense", "is_sparse")

    def __init__(
        self,
        bounds: Bounds,
        *,
        is_sparse: bool,
        accepted: Iterable[OffsetSpan],
        forget_dense: Callable[[], None] = lambda: None,
    ) -> None:
        """``forget_dense`` is called when a log that was dense is so no more."""
        self._bounds = bounds
        self._forget_dense = forget_dense
        self.is_sparse = is_sparse
        """Whether the log is compacted, or may have been once: it stays so for ever."""
        self._accepted = list(accepted)

    @property
    def are_legal(self) -> bool:
        """Whether any offset may have no record."""
        return self.is_sparse or self._bounds.cleaned_offset is not None

    def accept(self, start: int, end: int) -> None:
        """There are no records from ``start`` to ``end`` (exclusive), and that is no loss."""
        self._accepted.append(OffsetSpan(start, end))

    def show_compaction(self) -> None:
        """The log was found to have been compacted once, or will be."""
        if not self.is_sparse:
            self.is_sparse = True
            self._forget_dense()

    def adopt(self, other: "Holes") -> None:
        """The log is a copy of another one: what is legal there is legal here."""
        if other.is_sparse:
            self.show_compaction()
        self._accepted = list(other.accepted)

    @property
    def accepted(self) -> list[OffsetSpan]:
        """The ranges that are no loss. For reading."""
        return self._accepted

    def check(self, start: int, end: int, behind: _HasPath) -> None:
        """Raises `MissingRecordsError` unless offsets ``start`` to ``end``
        (exclusive) may have no records."""
        if not self.are_legal and not covers(self._accepted, start, end):
            raise MissingRecordsError(OffsetSpan(start, end), behind.path)


def all_legal(bounds: Bounds) -> Holes:
    """Holes for a reader that takes what there is: a copy of the log has the same ones."""
    return Holes(bounds, is_sparse=True, accepted=())


def covers(ranges: Iterable[OffsetSpan], start: int, end: int) -> bool:
    """Whether every offset from ``start`` to ``end`` (exclusive) is in one of the ranges."""
    for each in sorted(ranges):
        if each.start <= start < each.end:
            start = each.end
    return start >= end


def make_dense(files: Files, directory: str) -> None:
    """Note that a new log will have a record for every offset. Raises `OSError`."""
    files.open(f"{directory}/{DENSE}", create=True).close()


def read_accepted(files: Files, directory: str) -> list[OffsetSpan]:
    """The accepted holes of a partition's folder; lines that are not ranges are left out.

    Raises `OSError`."""
    try:
        text = files.read(f"{directory}/{ACCEPTED_HOLES}").decode("utf-8", "replace")
    except FileNotFoundError:
        return []
    return [OffsetSpan(int(match[1]), int(match[2])) for match in map(_RANGE.fullmatch, text.splitlines()) if match]


def write_accepted(files: Files, directory: str, ranges: Iterable[OffsetSpan]) -> None:
    """Replace the accepted holes, synced. Raises `OSError`."""
    lines = [f"{each.start}-{each.end}\n" for each in sorted(set(ranges))]
    files.write_atomically(f"{directory}/{ACCEPTED_HOLES}", "".join(lines).encode())
