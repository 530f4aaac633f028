"""Loads the transactions of a partition of ``__transaction_state``.

A compacted log still holds many values of a key, so records are kept as bytes while the log is read
and only the last of each key is decoded. The work comes in steps, so that an event loop can do
other things between them.

In Kafka: `TransactionStateManager.loadTransactionMetadata`.
"""

from collections.abc import Iterator
from functools import partial

from barnabas.base.files import Buffer
from barnabas.base.tasks import Beside
from barnabas.broker.coordinators.playback import BYTES_A_STEP, CoordinatorPlayback
from barnabas.broker.transactions.records import decode_transaction_state
from barnabas.broker.transactions.transaction import TransactionMetadata
from barnabas.wire.kafka.errors import MalformedMessageError
from barnabas.wire.kafka.records.batch_header import BatchHeader
from barnabas.wire.kafka.records.records import read_pairs

__all__ = ["TransactionLoader"]

_RECORDS_A_STEP = 100
_BYTES_A_RECORD = 1_000
"""Each time a value has this many bytes, it counts as another record."""


class TransactionLoader(CoordinatorPlayback):
    """Collects the records of one partition, in the order of the log, and makes
    transactions of them."""

    def __init__(self) -> None:
        super().__init__()
        self.transactions: dict[str, TransactionMetadata] = {}
        """The result, once `steps` is exhausted."""
        self._latest: dict[bytes, bytes] = {}

    def _add_batch(self, batches: Buffer, offset: int, header: BatchHeader) -> None:
        if not header.is_control:
            self._add(read_pairs(batches, offset), header.base_offset)

    def _add(self, pairs: list[tuple[bytes | None, bytes | None]], base_offset: int) -> None:
        latest = self._latest
        for key, value in pairs:
            if key is None:
                self.unreadable.append(f"record without a key in the batch at offset {base_offset}")
            elif value is None:
                latest.pop(key, None)
            else:
                latest[key] = value

    def steps(self) -> Iterator[Beside | None]:
        """Make the transactions; yields every few milliseconds of work, and the transactions with
        thousands of partitions for a thread."""
        latest, self._latest = self._latest, {}
        weight = 0
        for key, value in latest.items():
            weight += 1 + len(value) // _BYTES_A_RECORD
            if weight >= _RECORDS_A_STEP:
                weight = 0
                yield None
            if len(value) > BYTES_A_STEP:
                yield Beside(partial(self._make, key, value))
            else:
                self._make(key, value)

    def _make(self, key: bytes, value: bytes) -> None:
        try:
            record = decode_transaction_state(key, value)
        except MalformedMessageError as error:
            self.unreadable.append(f"transactional id in {key!r}: {error}")
            return
        if record is not None and record.value is not None:
            self.transactions[record.transactional_id] = TransactionMetadata(record.transactional_id, record.value)
