"""Servers' clocks beside the reader's.

In Kafka: brokers compare times of their own with those of others in records and transactions;
no API shows a clock.
"""

from dataclasses import dataclass

from barnabas.doctor.evidence.part import EvidencePart

__all__ = ["ClockReading", "ClocksPart"]


@dataclass(frozen=True, slots=True)
class ClockReading:
    """A server's clock less that of the reader, in ms, and by how much that may be wrong."""

    server: str
    offset_ms: int
    uncertainty_ms: int
    source: str
    """Where the time was read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClocksPart(EvidencePart):
    """The clocks that could be read now."""

    readings: tuple[ClockReading, ...]
