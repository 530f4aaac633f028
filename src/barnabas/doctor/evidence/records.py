"""Times of records, and transactions that hang.

In Kafka: `ListOffsetsResult`, `TransactionsCommand.FindHangingTransactionsCommand`.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from barnabas.base.ids import TopicPartition
from barnabas.client.admin.hanging_transactions import HangingTransaction
from barnabas.client.admin.offsets import FoundOffset
from barnabas.doctor.evidence.part import EvidencePart

__all__ = ["FUTURE_MS", "HangingTransactionsPart", "OldRecords", "RecordTimesPart"]

FUTURE_MS = 3_600_000
"""A record is in the future if it is an hour later than the reader's clock: clocks differ."""


@dataclass(frozen=True, slots=True)
class OldRecords:
    """Records that retention by time should have deleted: those before ``end`` are older."""

    first: int
    end: int
    retention_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordTimesPart(EvidencePart):
    """The first record of each partition that is in the future, and records beyond retention."""

    future: Mapping[TopicPartition, FoundOffset]
    old: Mapping[TopicPartition, OldRecords]


@dataclass(frozen=True, slots=True, kw_only=True)
class HangingTransactionsPart(EvidencePart):
    """Open transactions that no coordinator will end."""

    hanging: tuple[HangingTransaction, ...]
