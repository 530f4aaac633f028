"""The effects of the group coordinator (`Reply`, `Replies`, `Append`), and its settings.

In Kafka: response callbacks, `ReplicaManager.appendRecords`, and `GroupConfig` with `OffsetConfig`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from barnabas.base.clock import Now
from barnabas.base.files import Buffer
from barnabas.base.ids import TopicPartition
from barnabas.base.settings import Values
from barnabas.broker.groups.commits import CommitTransaction
from barnabas.broker.groups.group import Group
from barnabas.broker.groups.offsets import CommittedOffset
from barnabas.broker.groups.records import GroupRecord, StoredRecord
from barnabas.wire.kafka.errors import ErrorCode

__all__ = ["Append", "Effect", "GroupSettings", "Outbox", "Replies", "Reply"]


_MANY = 256
"""Records or members: about a millisecond."""


class Reply(NamedTuple):
    """Answer a request."""

    to: Any
    response: Any


class Replies(NamedTuple):
    """Answer requests that waited together, of thousands of members.

    Each response is made when it is sent."""

    waiting: Sequence[tuple[Any, Any]]
    """The requests, each with what its response depends on."""
    respond: Callable[[Any], Any]
    """A response. It must not depend on the group, which may have changed by then."""


OffsetColumns = tuple[Sequence[TopicPartition], Sequence[CommittedOffset]]
"""Partitions and what is to be committed for each."""


class Append:
    """Write records to a group's partition of ``__consumer_offsets``, in one batch.

    The edge reports the outcome to `GroupCoordinator.committed` or `GroupCoordinator.failed`.
    """

    __slots__ = ("done", "encoded", "group", "offsets", "records", "transaction")

    def __init__(
        self,
        group: Group,
        records: Sequence[StoredRecord],
        done: Callable[[ErrorCode], None] | None,
        encoded: Buffer | None = None,
        offsets: OffsetColumns | None = None,
        transaction: CommitTransaction | None = None,
    ) -> None:
        self.group = group
        self.records = records
        self.encoded = encoded
        """The records as `build_batch_around` takes them, where they are known."""
        self.offsets = offsets
        """Offsets to commit, as columns; then ``records`` is empty, and they are encoded."""
        self.transaction = transaction
        """The transaction that commits them. They take no effect before its marker."""
        self.done = done
        """What to decide once the outcome is known; None when it was (a timeout came first)."""

    @property
    def partition(self) -> int:
        return self.group.partition

    @property
    def is_large(self) -> bool:
        """Whether its batch takes milliseconds to encode."""
        if self.encoded is not None:
            return False
        return len(self.records) > _MANY or any(
            isinstance(record, GroupRecord) and record.value is not None and len(record.value.members) > _MANY
            for record in self.records
        )


Effect = Reply | Replies | Append


class Outbox:
    """Collects the effects of one step."""

    __slots__ = ("_effects", "now")

    def __init__(self) -> None:
        self.now = Now(0, 0)
        self._effects: list[Effect] = []

    def reply(self, to: Any, response: Any) -> None:
        self._effects.append(Reply(to, response))

    def reply_all(self, waiting: Sequence[tuple[Any, Any]], respond: Callable[[Any], Any]) -> None:
        """See `Replies`."""
        if waiting:
            self._effects.append(Replies(waiting, respond))

    def append(
        self,
        group: Group,
        records: Sequence[StoredRecord],
        done: Callable[[ErrorCode], None],
        encoded: Buffer | None = None,
        offsets: OffsetColumns | None = None,
        transaction: CommitTransaction | None = None,
    ) -> None:
        self._effects.append(Append(group, records, done, encoded, offsets, transaction))

    def take(self) -> list[Effect]:
        """The effects since the last call."""
        effects, self._effects = self._effects, []
        return effects


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """The broker's settings that the coordinator decides by; defaults as in Kafka."""

    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    max_size: int = 2**31 - 1
    initial_rebalance_delay_ms: int = 3_000
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_ms: int = 7 * 24 * 3_600_000
    retention_check_interval_ms: int = 600_000

    @classmethod
    def of(cls, values: Values) -> "GroupSettings":
        return cls(
            min_session_timeout_ms=values["group.min.session.timeout.ms"],
            max_session_timeout_ms=values["group.max.session.timeout.ms"],
            max_size=values["group.max.size"],
            initial_rebalance_delay_ms=values["group.initial.rebalance.delay.ms"],
            offset_metadata_max_bytes=values["offset.metadata.max.bytes"],
            offsets_retention_ms=values["offsets.retention.minutes"] * 60_000,
            retention_check_interval_ms=values["offsets.retention.check.interval.ms"],
        )
