"""What the transactional producers of a simulated cluster know of their transactions, and what must
hold of them.

A value names its transaction, and is sent once. Of a transaction that was committed every value is
seen at read_committed, of one that was aborted none; of one whose end its producer never learned,
all or none. A copy is made of every committed value of the copied topic once, whatever happened to
copiers.

Values may go later: DeleteRecords takes what a reader has seen, and compaction takes what has a
committed successor of the same key. Nothing else of this may ever be lost.
"""

import asyncio
import enum
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from barnabas.base.ids import TopicPartition
from barnabas.client.records import Delivery
from barnabas.testing.simulation.history import History

__all__ = ["Outcome", "Seen", "SentTransaction", "TransactionFacts", "key_of"]

_KEYS = 40

Seen = Mapping[TopicPartition, Mapping[int, bytes]]
"""The values that a reader at read_committed was handed, by offset."""


class Outcome(enum.Enum):
    """How a transaction ended, as its producer knows."""

    ABORTED = "aborted"
    """Also while it is open: its commit has not been requested."""
    UNKNOWN = "unknown"
    """A commit was asked for."""
    COMMITTED = "committed"


@dataclass(slots=True)
class SentTransaction:
    """One transaction."""

    name: str
    outcome: Outcome = Outcome.ABORTED
    values: dict[bytes, TopicPartition] = field(default_factory=dict)


def key_of(value: bytes) -> bytes:
    """The key of a value: one of a few, so that compaction has something to do."""
    return str(zlib.crc32(value) % _KEYS).encode()


def content_of(value: bytes) -> bytes:
    """The content of a value; for a copy, the value that was copied."""
    return value.split(b":", 2)[2]


class TransactionFacts:
    """The transactions of a run, and the partitions that were ever made part of one."""

    def __init__(self, history: History) -> None:
        self._history = history
        self.transactions: list[SentTransaction] = []
        self.of_value: dict[bytes, SentTransaction] = {}
        self.added: set[tuple[int, TopicPartition]] = set()
        """Producer ids, and the partitions that a request named with them."""
        self.deleted: dict[TopicPartition, int] = {}
        """The offsets below which DeleteRecords may have taken all."""
        self.compacted: set[str] = set()
        """Topics that are compacted."""
        self._offsets: dict[bytes, int] = {}
        """The offsets of values, as acknowledged to their producers."""

    def begin(self, producer: str) -> SentTransaction:
        """A transaction begins."""
        made = SentTransaction(f"{producer}.{len(self.transactions)}")
        self.transactions.append(made)
        return made

    def send(self, transaction: SentTransaction, topic_partition: TopicPartition, content: str) -> bytes:
        """The value of a record of the transaction."""
        value = f"{transaction.name}:{len(transaction.values)}:{content}".encode()
        transaction.values[value] = topic_partition
        self.of_value[value] = transaction
        self._history.sent(topic_partition, [value])
        return value

    def delivered(self, value: bytes, delivery: "asyncio.Future[Delivery]") -> None:
        """The fate of a value is known."""
        if not delivery.cancelled() and delivery.exception() is None and delivery.result().offset >= 0:
            self._offsets[value] = delivery.result().offset

    def end(self, transaction: SentTransaction, outcome: Outcome) -> None:
        """How it ended."""
        transaction.outcome = outcome
        self._history.count(f"transactions {outcome.value}")

    # What must hold

    def check_seen(self, topic_partition: TopicPartition, value: bytes) -> None:
        """A consumer at read_committed was handed a value."""
        transaction = self.of_value.get(value)
        if transaction is None:
            self._history.violation(f"{topic_partition}: {value!r} was never sent")
        elif transaction.outcome is Outcome.ABORTED:
            self._history.violation(f"{topic_partition}: {value!r} is of an aborted transaction")
        elif transaction.values[value] != topic_partition:
            self._history.violation(f"{topic_partition}: {value!r} was sent to {transaction.values[value]}")

    def check_all(self, seen: Seen) -> None:
        """Check everything that consumers at read_committed were handed when all is over."""
        counts = _counts(value for values in seen.values() for value in values.values())
        for value, count in counts.items():
            if count > 1:
                self._history.violation(f"{value!r} is seen {count} times")
        for transaction in self.transactions:
            found = sum(value in counts for value in transaction.values)
            missing = [value for value in transaction.values if value not in counts and not self.is_gone(value, seen)]
            said = f"{found} of {len(transaction.values)} values are seen"
            if transaction.outcome is Outcome.COMMITTED and missing:
                self._history.violation(f"transaction {transaction.name} was committed: {said}, not {missing[0]!r}")
            elif transaction.outcome is Outcome.ABORTED and found:
                self._history.violation(f"transaction {transaction.name} was aborted: {found} values are seen")
            elif found and missing:
                self._history.violation(f"transaction {transaction.name} is torn: {said}, not {missing[0]!r}")

    def is_gone(self, value: bytes, seen: Seen) -> bool:
        """Whether compaction may have taken a value: a later one of its key was seen."""
        topic_partition = self.of_value[value].values[value]
        if topic_partition.topic not in self.compacted:
            return False
        key, offset = key_of(value), self._offsets.get(value, -1)
        return any(at > offset and key_of(other) == key for at, other in seen.get(topic_partition, {}).items())

    def check_last(
        self, topic_partition: TopicPartition, before: Mapping[int, bytes], last: Mapping[int, bytes]
    ) -> None:
        """Compare what an earlier reader was handed with what the last one was: only values that
        were deleted or compacted may differ."""
        for offset in last.keys() - before.keys():
            self._history.violation(f"{topic_partition}: only the last reader saw {last[offset]!r} at {offset}")
        newest = {key_of(value): offset for offset, value in sorted(last.items())}
        for offset, value in before.items():
            if offset in last:
                if last[offset] != value:
                    self._history.violation(f"{topic_partition}: {offset} was {value!r}, and is {last[offset]!r}")
            elif topic_partition.topic in self.compacted:
                self._history.count("values compacted")
                if newest.get(key_of(value), -1) < offset:
                    self._history.violation(f"{topic_partition}: {value!r} at {offset} is gone, the newest of its key")
            else:
                self._history.count("values deleted")
                if offset >= self.deleted.get(topic_partition, 0):
                    self._history.violation(f"{topic_partition}: {value!r} at {offset} is gone")

    def check_copies(self, seen: Seen, originals: Iterable[bytes], copies: Iterable[bytes]) -> None:
        """Every value that is still there was copied exactly once, and none twice.

        What compaction may have taken counts as gone: the last reader may read from a replica that
        is compacted later than the one that the copiers read.
        """
        copied = _counts(content_of(copy) for copy in copies)
        known = {value for values in seen.values() for value in values.values()}
        expected = {original for original in originals if not self.is_gone(original, seen)}
        for original in expected | copied.keys():
            count = copied.get(original, 0)
            if count > 1 or (not count and original in expected):
                self._history.violation(f"{original!r} was copied {count} times")
            elif original not in known and not (original in self.of_value and self.is_gone(original, seen)):
                self._history.violation(f"{original!r} was copied, and is not among the committed values")
        self._history.count("copies compared", len(expected))


def _counts(values: Iterable[bytes]) -> dict[bytes, int]:
    counts: dict[bytes, int] = {}
    for value in values:
        counts[value] = counts.get(value, 0) + 1
    return counts
