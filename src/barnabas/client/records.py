"""What goes out and comes in: records, and reports of their delivery.

In Kafka: `ProducerRecord`, `ConsumerRecord`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")

__all__ = ["Delivery", "Headers", "Record"]

Headers = Sequence[tuple[str, bytes | None]]
"""Header names and values, in order; names may repeat."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """Where a record is. ``offset`` is -1 if the broker does not answer (acks 0)."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int | None = None

    def __str__(self) -> str:
        """``TOPIC-PARTITION@OFFSET``."""
        place = f"{self.topic}-{self.partition}"
        return place if self.offset < 0 else f"{place}@{self.offset}"


@dataclass(frozen=True, slots=True)
class Record(Generic[K, V]):
    """A record as consumed.

    ``key`` and ``value`` are what the deserializers made of the bytes; None where there is none.
    ``timestamp_type`` is 0 for CreateTime, 1 for LogAppendTime, -1 for a batch of a format without
    times. The timestamp is None where there is none. It is any other number that its producer gave,
    also a negative one or one beyond the year 9999.
    """

    topic: str
    partition: int
    offset: int
    key: K | None
    value: V | None
    timestamp_ms: int | None
    timestamp_type: int
    headers: Headers
    leader_epoch: int | None = None
