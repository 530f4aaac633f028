"""Which batches of transactions compaction may drop. Kafka: CleanedTransactionMetadata.

Read batch by batch, in the order of the log: data of aborted transactions goes at once. An end
marker stays as long as the same pass still met records of its transaction; once a later pass meets
none, it may go when its delete horizon has passed (KIP-534). Aborted transactions whose marker
stays are kept in the new segment's transaction index too.
"""

from collections.abc import Iterable

from barnabas.base.errors import CorruptDataError
from barnabas.base.files import Buffer
from barnabas.log.segment.transaction_index import AbortedTransaction
from barnabas.wire.kafka.records.batch_header import BatchHeader
from barnabas.wire.kafka.records.control import read_end_marker

__all__ = ["CleanedTransactions"]


class _Aborted:
    """An aborted transaction under way in the pass."""

    __slots__ = ("seen", "transaction")

    def __init__(self, transaction: AbortedTransaction) -> None:
        self.transaction = transaction
        self.seen = False
        """Whether a batch of it was met, so that its marker must stay."""


class CleanedTransactions:
    """The transactions of one pass over a log. ``aborted`` are all that touch the pass's range."""

    __slots__ = ("_aborted", "_committed", "_ongoing", "retained")

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._aborted = sorted(aborted, key=lambda transaction: transaction.first_offset, reverse=True)
        self._ongoing: dict[int, _Aborted] = {}
        self._committed: set[int] = set()
        self.retained: list[AbortedTransaction] = []
        """Aborted transactions whose markers stay, in the order of these; the owner
        takes them out by segment."""

    def can_discard(self, batch: Buffer, header: BatchHeader) -> bool:
        """Whether a batch is of no more use: an aborted one, or a marker of a
        transaction without records."""
        while self._aborted and self._aborted[-1].first_offset <= header.last_offset:
            transaction = self._aborted.pop()
            # A pass that began after a transaction's marker does not meet it, nor a marker
            # that compaction removed.
            if transaction.last_offset >= header.base_offset:
                self._ongoing[transaction.producer_id] = _Aborted(transaction)
        if header.is_control:
            return self._can_discard_marker(batch, header)
        if header.is_transactional:
            ongoing = self._ongoing.get(header.producer_id)
            if ongoing is not None and ongoing.transaction.last_offset >= header.base_offset:
                ongoing.seen = True
                return True
            self._committed.add(header.producer_id)
        return False

    def _can_discard_marker(self, batch: Buffer, header: BatchHeader) -> bool:
        if not header.record_count:
            return True
        try:
            marker = read_end_marker(batch)
        except CorruptDataError:
            return False
        if marker is None:
            return False  # another kind of control record, which is not ours to judge
        producer_id = header.producer_id
        if not marker.is_abort:
            had_records = producer_id in self._committed
            self._committed.discard(producer_id)
            return not had_records
        ongoing = self._ongoing.pop(producer_id, None)
        if ongoing is None or not ongoing.seen:
            return True
        self.retained.append(ongoing.transaction)
        return False
