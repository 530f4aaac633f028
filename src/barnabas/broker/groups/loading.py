"""Loads the groups of a partition of ``__consumer_offsets``.

A compacted log still holds many values of a key, so records are kept as bytes while the log is read and only the last
of each key is decoded. Offsets written in transactions are the exception: they wait for their transaction's marker.
The work comes in steps, so that an event loop can do other things between them.

In Kafka: `GroupMetadataManager.doLoadGroupsAndOffsets`.
"""

from collections.abc import Callable, Iterator
from itertools import islice

from barnabas.base.errors import CorruptDataError
from barnabas.base.files import Buffer
from barnabas.base.ids import TopicPartition
from barnabas.base.tuples import new_tuple
from barnabas.broker.groups.group import Group
from barnabas.broker.groups.offsets import NO_EXPIRATION, CommittedOffset
from barnabas.broker.groups.records import GroupRecord, OffsetRecord, decode_record
from barnabas.wire.kafka.coordinator_records import unpack_offset_key, unpack_plain_offset
from barnabas.wire.kafka.errors import KafkaError, MalformedMessageError
from barnabas.wire.kafka.records.batch_header import BatchHeader, read_headers
from barnabas.wire.kafka.records.control import read_end_marker
from barnabas.wire.kafka.records.records import read_pairs

__all__ = ["Loader"]

_RECORDS_A_STEP = 1_000
_BYTES_A_STEP = 64 * 1024


class Loader:
    """Collects the records of one partition, in the order of the log, and makes groups of them."""

    def __init__(self, partition: int) -> None:
        self.groups: dict[str, Group] = {}
        """The result, once `steps` is exhausted."""
        self.unreadable: list[str] = []
        """The errors of records that were skipped. Keys that later versions of Kafka write are skipped without a report."""
        self._partition = partition
        self._heads: dict[bytes, tuple[Callable[[TopicPartition, CommittedOffset, int], None], str]] = {}
        """By the bytes of an offset's key without its partition: where offsets of the group go, and the topic."""
        self._latest: dict[bytes, tuple[bytes | None, int]] = {}
        self._transactions: dict[int, dict[bytes, tuple[bytes | None, int]]] = {}

    def read(self, batches: Buffer) -> Iterator[int]:
        """Read a piece of the log; yields, every few milliseconds of work, where to continue reading."""
        unread_bytes = 0
        for offset, header in read_headers(batches):
            try:
                self._add_batch(batches, offset, header)
            except (CorruptDataError, KafkaError) as error:
                self.unreadable.append(f"batch at offset {header.base_offset}: {error}")
            unread_bytes += header.size_bytes
            if unread_bytes >= _BYTES_A_STEP:
                unread_bytes = 0
                yield header.last_offset + 1
        if unread_bytes:
            yield header.last_offset + 1

    def _add_batch(self, batches: Buffer, offset: int, header: BatchHeader) -> None:
        if header.is_control:
            marker = read_end_marker(batches, offset)
            if marker is not None:
                self.end_transaction(header.producer_id, committed=not marker.is_abort)
            return
        producer_id = header.producer_id if header.is_transactional else None
        base_offset = header.base_offset
        pairs = read_pairs(batches, offset)
        latest = self._latest
        for key, value in pairs:
            if key is not None and producer_id is None:
                latest[key] = value, base_offset
            else:
                self.add(key, value, base_offset, producer_id)

    def add(self, key: bytes | None, value: bytes | None, base_offset: int, producer_id: int | None = None) -> None:
        """A record of the batch at ``base_offset``; ``producer_id`` is given for those of a transaction."""
        if key is None:
            self.unreadable.append(f"record without a key in the batch at offset {base_offset}")
        elif producer_id is None:
            self._latest[key] = (value, base_offset)
        else:
            self._transactions.setdefault(producer_id, {})[key] = (value, base_offset)

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """A control record: the producer's transaction was committed or aborted."""
        pending = self._transactions.pop(producer_id, {})
        if committed:
            for key, (value, base_offset) in pending.items():
                known = self._latest.get(key)
                # A plain commit may have come after the transaction's record: the one written last holds.
                if known is None or known[1] <= base_offset:
                    self._latest[key] = (value, base_offset)

    def steps(self) -> Iterator[None]:
        """Make the groups; yields every few milliseconds of work."""
        latest, self._latest = self._latest, {}
        items = iter(latest.items())
        while some := list(islice(items, _RECORDS_A_STEP)):
            self._apply_many(some)
            yield
        for producer_id, pending in self._transactions.items():
            for key, (value, base_offset) in pending.items():
                self._apply(key, value, base_offset, producer_id)
        yield

    def _apply_many(self, items: list[tuple[bytes, tuple[bytes | None, int]]]) -> None:
        """Apply records. Of a plain offset only the partition and the numbers of the value are decoded: the rest of its key is
        that of all offsets of its group and topic."""
        heads = self._heads
        for key, (value, base_offset) in items:
            if value is None:
                continue
            plain = unpack_plain_offset(value)
            if plain is None:
                self._apply(key, value, base_offset)
                continue
            head = key[:-4]
            known = heads.get(head)
            if known is None:
                offset_key = unpack_offset_key(key)
                if offset_key is None:
                    self._apply(key, value, base_offset)
                    continue
                known = heads[head] = self._group(offset_key[0]).offsets.apply, offset_key[1]
            apply, topic = known
            offset, leader_epoch, commit_ms = plain
            apply(
                new_tuple(TopicPartition, (topic, int.from_bytes(key[-4:], "big", signed=True))),
                new_tuple(CommittedOffset, (offset, leader_epoch, "", commit_ms, NO_EXPIRATION)),
                base_offset,
            )

    def _group(self, group_id: str) -> Group:
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = Group(group_id, self._partition, None)
        return group

    def _apply(self, key: bytes, value: bytes | None, base_offset: int, producer_id: int | None = None) -> None:
        try:
            record = decode_record(key, value)
        except MalformedMessageError as error:
            self.unreadable.append(f"offset {base_offset}: {error}")
            return
        if record is None:
            return
        group = self._group(record.group_id)
        if isinstance(record, GroupRecord):
            if record.value is not None:
                group.load(record.value)
        elif producer_id is not None:
            group.offsets.apply_transactional(producer_id, record.topic_partition, record.value, base_offset)
        elif isinstance(record, OffsetRecord) and record.value is not None:
            group.offsets.apply(record.topic_partition, record.value, base_offset)
