"""The state of a log's producers: idempotence (KIP-98) and open transactions.

Kafka: ProducerStateManager.

For each producer id it keeps the epoch, the last five batches (to answer a retry with the offsets
it got the first time), the epoch of the coordinator that last ended a transaction, and the first
offset of the open transaction. The state is a function of the log; ``.snapshot`` files (named by
the first offset they do not cover) save reading it all again at a start.

What is not in the log are verifications (KIP-890). Before a leader appends the first batch of a
transaction, it asks the transaction coordinator whether the partition is part of that transaction.
A `VerificationGuard` stands for the question. It is no longer valid once the transaction has a
batch here, or a marker is appended: then the answer may be about an earlier transaction.

Snapshot file, big-endian: version 1 (2), CRC32C of all after it (4), number of entries (4), then
an entry: producer id (8), producer epoch (2), last sequence (4), last offset (8), last offset -
first offset of the last batch (4), timestamp (8), coordinator epoch (4), first offset of the
open transaction or -1 (8).
"""

import struct
from collections.abc import Iterable
from typing import NamedTuple

from crc32c import crc32c

from barnabas.base.errors import CorruptDataError
from barnabas.wire.kafka.errors import ErrorCode, KafkaError

__all__ = [
    "WITHOUT_VERIFICATION",
    "CompletedTransaction",
    "Origin",
    "ProducerBatch",
    "ProducerEntry",
    "ProducerState",
    "VerificationGuard",
    "advance_sequence",
    "decode_snapshot",
    "encode_producer_snapshot",
]

_KEPT_BATCHES = 5
_MOST_VERIFICATIONS = 1_000
_MAX_SEQUENCE = (1 << 31) - 1
_PREFIX = struct.Struct(">hIi")
_ENTRY = struct.Struct(">qhiqiqiq")
_NO_PRODUCER_EPOCH = -1
_NO_OFFSET = -1


class Origin:
    """Who appends: what a batch may hold and which checks apply."""

    CLIENT = 0
    """A producer: sequences are checked, control batches are refused."""
    COORDINATOR = 1
    """This broker's own group or transaction coordinator."""


class VerificationGuard:
    """The question whether a partition is part of a producer's transaction.

    Kafka: VerificationStateEntry."""

    __slots__ = ("begins_at_zero", "lowest_sequence", "started_ms")

    def __init__(self, sequence: int, started_ms: int, *, begins_at_zero: bool = False) -> None:
        self.lowest_sequence = sequence
        """The lowest sequence that was to be appended meanwhile. A batch behind it
        is not appended before it."""
        self.started_ms = started_ms
        self.begins_at_zero = begins_at_zero
        """Whether the transaction has an epoch of its own, so that its sequences begin at 0."""


WITHOUT_VERIFICATION = VerificationGuard(_MAX_SEQUENCE, 0)
"""In place of a guard where verification is switched off."""


class ProducerBatch(NamedTuple):
    """A batch that a producer wrote."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta

    @property
    def first_sequence(self) -> int:
        first = self.last_sequence - self.offset_delta
        # Sequences go round from 2^31 - 1 to 0.
        return first if first >= 0 else first + _MAX_SEQUENCE + 1


class CompletedTransaction(NamedTuple):
    """A transaction whose end marker was appended at ``last_offset``."""

    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool


class ProducerEntry:
    """One producer id's state."""

    __slots__ = ("batches", "coordinator_epoch", "epoch", "producer_id", "timestamp_ms", "transaction_first_offset")

    def __init__(self, producer_id: int, epoch: int = _NO_PRODUCER_EPOCH) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.coordinator_epoch = -1
        self.timestamp_ms = -1
        self.transaction_first_offset = _NO_OFFSET
        self.batches: list[ProducerBatch] = []
        """The last batches of this epoch, oldest first."""

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else -1

    def duplicate_of(self, base_sequence: int, offset_delta: int) -> ProducerBatch | None:
        """The batch that was appended earlier in this epoch with the same sequences, if
        it is among the last five."""
        last_sequence = advance_sequence(base_sequence, offset_delta)
        for batch in self.batches:
            if batch.last_sequence == last_sequence and batch.first_sequence == base_sequence:
                return batch
        return None


def advance_sequence(sequence: int, delta: int) -> int:
    """The sequence number ``delta`` records after another one.

    Sequences wrap from 2^31 - 1 to 0."""
    return (sequence + delta) & _MAX_SEQUENCE


class ProducerState:
    """All producers of one log, and its transactions that keep the last stable offset back."""

    __slots__ = ("_finished", "_open", "_verifications", "entries")

    def __init__(self) -> None:
        self.entries: dict[int, ProducerEntry] = {}
        self._open: dict[int, int] = {}
        """First offset -> producer id of transactions without an end marker."""
        self._finished: dict[int, int] = {}
        """First offset -> last offset of transactions whose marker is not below the
        high watermark yet."""
        self._verifications: dict[int, dict[tuple[str, int], VerificationGuard]] = {}
        """Producer id -> transactional id and epoch -> guard. A request with the same
        producer id under another transactional id does not touch the guard of its owner."""

    # Verification

    def has_open_transaction(self, producer_id: int, epoch: int) -> bool:
        """Whether a producer in this epoch has a transaction with a batch here, and
        without a marker."""
        entry = self.entries.get(producer_id)
        return entry is not None and entry.transaction_first_offset >= 0 and entry.epoch == epoch

    def start_verification(
        self,
        producer_id: int,
        epoch: int,
        transactional_id: str,
        sequence: int,
        now_ms: int,
        *,
        begins_at_zero: bool = False,
    ) -> VerificationGuard | None:
        """Begin to verify a batch with this first sequence (-1: none).

        None if the transaction is verified already."""
        if self.has_open_transaction(producer_id, epoch):
            return None
        guards = self._verifications.setdefault(producer_id, {})
        guard = guards.get((transactional_id, epoch))
        if guard is None:
            guard = guards[transactional_id, epoch] = VerificationGuard(sequence, now_ms, begins_at_zero=begins_at_zero)
        elif sequence < guard.lowest_sequence:
            guard.lowest_sequence = sequence
        return guard

    @property
    def has_many_verifications(self) -> bool:
        """Whether guards should not be kept for another attempt: any client can begin one."""
        return len(self._verifications) > _MOST_VERIFICATIONS

    def refuse_verification(self, producer_id: int, guard: VerificationGuard) -> None:
        """The coordinator knows no such transaction.

        After an error that passes, the guard stays for the next attempt."""
        guards = self._verifications.get(producer_id, {})
        for key, other in tuple(guards.items()):
            if other is guard:
                del guards[key]
        if not guards:
            self._verifications.pop(producer_id, None)

    def holds(self, producer_id: int, epoch: int, guard: VerificationGuard) -> bool:
        """Whether a guard is still valid."""
        guards = self._verifications.get(producer_id, {})
        return any(other is guard and other_epoch == epoch for (_, other_epoch), other in guards.items())

    def check_verified(
        self,
        producer_id: int,
        epoch: int,
        base_sequence: int,
        guard: VerificationGuard | None,
        origin: int,
    ) -> None:
        """Whether a transactional batch may follow.

        ``guard`` is the verification that it has behind it. Raises `KafkaError`: INVALID_TXN_STATE,
        OUT_OF_ORDER_SEQUENCE_NUMBER.
        """
        if guard is WITHOUT_VERIFICATION or self.has_open_transaction(producer_id, epoch):
            return
        if guard is None or not self.holds(producer_id, epoch, guard):
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"A record of producer {producer_id} in epoch {epoch} was not part of an ongoing transaction",
            )
        if origin == Origin.CLIENT and base_sequence > guard.lowest_sequence:
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"Sequence {base_sequence} of producer {producer_id} comes before {guard.lowest_sequence}, the earliest "
                "one seen in this transaction",
            )

    # Batches and markers

    def check(
        self,
        producer_id: int,
        epoch: int,
        base_sequence: int,
        offset_delta: int,
        *,
        is_transactional: bool,
        origin: int,
        guard: VerificationGuard | None = None,
    ) -> ProducerBatch | None:
        """Whether a data batch may follow.

        Returns the batch that it repeats, if it is among the last five; then it must not. Raises
        `KafkaError`: INVALID_RECORD for a client's batch without a sequence, INVALID_PRODUCER_EPOCH
        for an epoch below the known one, OUT_OF_ORDER_SEQUENCE_NUMBER for a gap, INVALID_TXN_STATE
        for a plain batch inside an open transaction, and for a transactional one of a transaction
        that is not verified (see `check_verified`).
        """
        if base_sequence < 0 and origin == Origin.CLIENT:
            raise KafkaError(
                ErrorCode.INVALID_RECORD, f"Invalid sequence number {base_sequence} of producer {producer_id}"
            )
        entry = self.entries.get(producer_id)
        if entry is None:
            # Nothing is known, perhaps because retention removed it: any sequence is
            # taken (KIP-360).
            if is_transactional:
                self.check_verified(producer_id, epoch, base_sequence, guard, origin)
                if guard is not None and guard.begins_at_zero and base_sequence > 0:
                    raise KafkaError(
                        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                        f"Sequence {base_sequence} of producer {producer_id} begins a transaction, 0 is expected",
                    )
            return None
        if epoch < entry.epoch:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"Epoch {epoch} of producer {producer_id} is smaller than the last seen epoch {entry.epoch}",
            )
        if origin == Origin.CLIENT:
            if epoch != entry.epoch:
                if base_sequence != 0 and entry.epoch != _NO_PRODUCER_EPOCH:
                    raise KafkaError(
                        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                        f"Sequence {base_sequence} of producer {producer_id} begins epoch {epoch}, 0 is expected "
                        f"(current epoch {entry.epoch})",
                    )
            elif base_sequence != (expected := advance_sequence(entry.last_sequence, 1)):
                duplicate = entry.duplicate_of(base_sequence, offset_delta)
                if duplicate is not None:
                    return duplicate
                raise KafkaError(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"Sequence {base_sequence} of producer {producer_id} does not follow {entry.last_sequence}: "
                    f"{expected} is expected",
                )
        if is_transactional:
            self.check_verified(producer_id, epoch, base_sequence, guard, origin)
        elif entry.transaction_first_offset >= 0:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"Producer {producer_id} has an open transaction and sent a batch outside of it",
            )
        return None

    def add_batch(
        self,
        producer_id: int,
        epoch: int,
        base_sequence: int,
        first_offset: int,
        last_offset: int,
        timestamp_ms: int,
        is_transactional: bool,
    ) -> None:
        """A data batch was appended."""
        entry = self._entry_in(producer_id, epoch)
        delta = last_offset - first_offset
        batches = entry.batches
        if len(batches) == _KEPT_BATCHES:
            del batches[0]
        batches.append(ProducerBatch(advance_sequence(base_sequence, delta), last_offset, delta, timestamp_ms))
        entry.timestamp_ms = timestamp_ms
        if is_transactional:
            self._verifications.pop(producer_id, None)
            if entry.transaction_first_offset < 0:
                entry.transaction_first_offset = first_offset
                self._open[first_offset] = producer_id

    def check_marker(self, producer_id: int, epoch: int, coordinator_epoch: int) -> None:
        """Whether an end marker may follow.

        Raises `KafkaError` for one of a fenced producer or coordinator."""
        entry = self.entries.get(producer_id)
        if entry is None:
            return
        if epoch < entry.epoch:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"Epoch {epoch} of the marker for producer {producer_id} is smaller than the last seen epoch {entry.epoch}",
            )
        if coordinator_epoch < entry.coordinator_epoch:
            raise KafkaError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"Coordinator epoch {coordinator_epoch} of the marker for producer {producer_id} is smaller than the "
                f"last seen {entry.coordinator_epoch}",
            )

    def add_marker(
        self, producer_id: int, epoch: int, coordinator_epoch: int, offset: int, timestamp_ms: int, is_abort: bool
    ) -> CompletedTransaction | None:
        """An end marker was appended.

        Returns the transaction it ends, None when it held no record here. Call `complete` with it
        when the transaction index has it.
        """
        self._verifications.pop(producer_id, None)
        entry = self._entry_in(producer_id, epoch)
        first_offset = entry.transaction_first_offset
        entry.transaction_first_offset = _NO_OFFSET
        entry.coordinator_epoch = coordinator_epoch
        entry.timestamp_ms = timestamp_ms
        if first_offset < 0:
            return None
        return CompletedTransaction(producer_id, first_offset, offset, is_abort)

    def add_emptied_marker(self, producer_id: int, epoch: int, timestamp_ms: int) -> None:
        """The log has a marker whose record compaction has removed.

        It stays because its epoch fences earlier ones. It ends no transaction: those records are
        gone, too.
        """
        self._entry_in(producer_id, epoch).timestamp_ms = timestamp_ms

    def _entry_in(self, producer_id: int, epoch: int) -> ProducerEntry:
        """A producer's state, which is in this epoch from now on."""
        entry = self.entries.get(producer_id)
        if entry is None:
            entry = self.entries[producer_id] = ProducerEntry(producer_id, epoch)
        elif entry.epoch != epoch:
            entry.epoch = epoch
            entry.batches.clear()
        return entry

    def last_stable_offset_after(self, completed: CompletedTransaction) -> int:
        """Where the last stable offset lies once a transaction is complete: the next open
        one, or past the marker."""
        others = [first for first, producer_id in self._open.items() if producer_id != completed.producer_id]
        return min(others, default=completed.last_offset + 1)

    def complete(self, completed: CompletedTransaction) -> None:
        """A transaction ended; it stays in the way of the last stable offset until
        its marker is replicated."""
        self._open.pop(completed.first_offset, None)
        self._finished[completed.first_offset] = completed.last_offset

    @property
    def first_unstable_offset(self) -> int | None:
        """Where the oldest transaction begins that is open, or ended above the high watermark."""
        if not self._open and not self._finished:
            return None
        return min(min(self._open, default=1 << 63), min(self._finished, default=1 << 63))

    @property
    def oldest_transaction_ms(self) -> int | None:
        """When the producer of the oldest open transaction last wrote; None without one."""
        if not self._open:
            return None
        return self.entries[self._open[min(self._open)]].timestamp_ms

    def high_watermark_moved(self, high_watermark: int) -> None:
        """Forget ended transactions whose marker lies below the high watermark."""
        if self._finished:
            self._finished = {first: last for first, last in self._finished.items() if last >= high_watermark}

    def remove_expired(self, now_ms: int, expiration_ms: int) -> None:
        """Forget producers without an open transaction that were silent for
        ``expiration_ms``, and old verifications."""
        expired = [
            producer_id
            for producer_id, entry in self.entries.items()
            if entry.transaction_first_offset < 0 and now_ms - entry.timestamp_ms >= expiration_ms
        ]
        for producer_id in expired:
            del self.entries[producer_id]
        for producer_id, guards in tuple(self._verifications.items()):
            for key, guard in tuple(guards.items()):
                if now_ms - guard.started_ms >= expiration_ms:
                    del guards[key]
            if not guards:
                del self._verifications[producer_id]

    def reset(self, entries: Iterable[ProducerEntry] = ()) -> None:
        """Start again from a snapshot's entries."""
        self.entries = {entry.producer_id: entry for entry in entries}
        self._finished.clear()
        self._verifications.clear()
        self._open = {
            entry.transaction_first_offset: entry.producer_id
            for entry in self.entries.values()
            if entry.transaction_first_offset >= 0
        }


def encode_producer_snapshot(entries: Iterable[ProducerEntry]) -> bytes:
    """A snapshot file's bytes."""
    rows = []
    for entry in entries:
        last = entry.batches[-1] if entry.batches else ProducerBatch(-1, -1, 0, -1)
        rows.append(
            _ENTRY.pack(
                entry.producer_id,
                entry.epoch,
                last.last_sequence,
                last.last_offset,
                last.offset_delta,
                entry.timestamp_ms,
                entry.coordinator_epoch,
                entry.transaction_first_offset,
            )
        )
    body = struct.pack(">i", len(rows)) + b"".join(rows)
    return struct.pack(">hI", 1, crc32c(body)) + body


def decode_snapshot(data: bytes) -> list[ProducerEntry]:
    """The producers in a snapshot file; raises `CorruptDataError`."""
    if len(data) < _PREFIX.size:
        raise CorruptDataError("Snapshot is corrupt: it is shorter than its header")
    version, crc, count = _PREFIX.unpack_from(data)
    if version != 1:
        raise CorruptDataError(f"Snapshot contained an unknown file version {version}")
    computed = crc32c(memoryview(data)[6:])
    if crc != computed:
        raise CorruptDataError(
            f"Snapshot is corrupt (CRC is no longer valid). Stored crc: {crc}. Computed crc: {computed}"
        )
    if len(data) - _PREFIX.size != count * _ENTRY.size:
        raise CorruptDataError(f"Snapshot is corrupt: {count} entries do not fit its {len(data)} bytes")
    entries = []
    for producer_id, epoch, sequence, offset, delta, timestamp, coordinator_epoch, first in _ENTRY.iter_unpack(
        memoryview(data)[_PREFIX.size :]
    ):
        entry = ProducerEntry(producer_id, epoch)
        entry.coordinator_epoch = coordinator_epoch
        entry.timestamp_ms = timestamp
        entry.transaction_first_offset = first
        if offset >= 0:
            entry.batches.append(ProducerBatch(sequence, offset, delta, timestamp))
        entries.append(entry)
    return entries
