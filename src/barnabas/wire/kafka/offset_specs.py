"""The negative timestamps by which ListOffsets asks for a place in a log.

Kafka: ListOffsetsRequest, OffsetSpec."""

__all__ = ["EARLIEST", "EARLIEST_LOCAL", "LATEST", "LATEST_TIERED", "MAX_TIMESTAMP"]

LATEST = -1
"""The offset that the next record will get (at read_committed: the last stable offset)."""
EARLIEST = -2
MAX_TIMESTAMP = -3
"""The record with the largest timestamp (KIP-734)."""
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
