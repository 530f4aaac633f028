"""What the transactional producers of a simulated cluster know of their transactions, and what must
hold of them.

A value names its transaction, and is sent once. Of a transaction that was committed every value is
seen at read_committed, of one that was aborted none; of one whose end its producer never learned,
all or none. A copy is made of every committed value of the copied topic once, whatever happened to
copiers.

No fault of these runs takes the data of a disk, so nothing of this may ever be lost.
"""

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from barnabas.base.ids import TopicPartition
from barnabas.testing.simulation.history import History

__all__ = ["Outcome", "SentTransaction", "TransactionFacts"]


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


class TransactionFacts:
    """The transactions of a run, and the partitions that were ever made part of one."""

    def __init__(self, history: History) -> None:
        self._history = history
        self.transactions: list[SentTransaction] = []
        self.of_value: dict[bytes, SentTransaction] = {}
        self.added: set[tuple[int, TopicPartition]] = set()
        """Producer ids, and the partitions that a request named with them."""
        self.has_open_zombies = 0

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

    def check_all(self, seen: Mapping[TopicPartition, Iterable[bytes]]) -> None:
        """Everything that a consumer at read_committed reads when all is over."""
        counts: dict[bytes, int] = {}
        for values in seen.values():
            for value in values:
                counts[value] = counts.get(value, 0) + 1
        for value, count in counts.items():
            if count > 1:
                self._history.violation(f"{value!r} is seen {count} times")
        for transaction in self.transactions:
            found = sum(value in counts for value in transaction.values)
            whole = found == len(transaction.values)
            if transaction.outcome is Outcome.COMMITTED and not whole:
                self._history.violation(
                    f"transaction {transaction.name} was committed: "
                    f"{found} of {len(transaction.values)} values are seen"
                )
            elif transaction.outcome is Outcome.ABORTED and found:
                self._history.violation(f"transaction {transaction.name} was aborted: {found} values are seen")
            elif found and not whole:
                self._history.violation(
                    f"transaction {transaction.name} is torn: {found} of {len(transaction.values)} values are seen"
                )

    def check_copies(self, originals: Iterable[bytes], copies: Iterable[bytes]) -> None:
        """Every committed value was copied exactly once."""
        copied: dict[bytes, int] = {}
        for copy in copies:
            original = copy.split(b":", 2)[2]
            copied[original] = copied.get(original, 0) + 1
        expected = set(originals)
        for original in expected:
            if copied.get(original, 0) != 1:
                self._history.violation(f"{original!r} was copied {copied.get(original, 0)} times")
        for original in copied.keys() - expected:
            self._history.violation(f"{original!r} was copied, and is not among the committed values")
        self._history.count("copies compared", len(expected))
