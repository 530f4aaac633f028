"""Loads the groups of a partition of ``__consumer_offsets``.

A compacted log still holds many values of a key, so records are kept as bytes while the log is
read and only the last of each key is decoded. Offsets written in transactions are the exception:
they wait for their transaction's marker. The work comes in steps, so that an event loop can do
other things between them.

In Kafka: `GroupMetadataManager.doLoadGroupsAndOffsets`.
"""

from collections.abc import Iterator
from functools import partial
from itertools import islice, repeat
from struct import Struct, unpack
from typing import Any

from barnabas.base.files import Buffer
from barnabas.base.ids import TopicPartition
from barnabas.base.tasks import Beside
from barnabas.base.tuples import new_tuple
from barnabas.broker.coordinators.playback import BYTES_A_STEP, CoordinatorPlayback
from barnabas.broker.groups.group import Group
from barnabas.broker.groups.offsets import NO_EXPIRATION, CommittedOffset
from barnabas.broker.groups.records import GroupRecord, OffsetRecord, decode_record
from barnabas.wire.kafka.coordinator_records import (
    OFFSET_VALUE_VERSION,
    PLAIN_OFFSET_BYTES,
    PLAIN_OFFSET_FORMAT,
    unpack_offset_key,
    unpack_plain_offset,
)
from barnabas.wire.kafka.errors import MalformedMessageError
from barnabas.wire.kafka.records.batch_header import BatchHeader
from barnabas.wire.kafka.records.contents import are_uniform, uniform_runs
from barnabas.wire.kafka.records.control import read_end_marker
from barnabas.wire.kafka.records.records import pairs_of, unpack_records

__all__ = ["Loader"]

_RECORDS_A_STEP = 1_000
_MANY_RECORDS = 8
"""In fewer, to look whether they are uniform takes longer than to read them."""
_PARTITION_BYTES = 4
_PLAIN_FIELDS = 4

_Latest = tuple[Any, ...]
"""A value and the base offset of its batch, or of a plain offset: the offset, leader epoch, commit
timestamp and base offset.

A tuple without a class, for there is one for each offset of the partition, and `zip` makes it. Its
length says which of the two it is (`_PLAIN_FIELDS`); both are in one table, because the later one
of a key replaces the other. The base offset is last in both."""


class Loader(CoordinatorPlayback):
    """Collects the records of one partition, in the order of the log, and makes groups of them."""

    def __init__(self, partition: int) -> None:
        super().__init__()
        self.groups: dict[str, Group] = {}
        """The result, once `steps` is exhausted."""
        self._partition = partition
        self._latest: dict[bytes, dict[bytes, _Latest]] = {}
        """Keyed by all but the last four bytes of the record's key, then by these. For an offset
        these are its partition, so group and topic are decoded once."""
        self._transactions: dict[int, dict[bytes, tuple[bytes | None, int]]] = {}
        self.open_transactions: dict[int, set[str]] = {}
        """Producer ids without a marker behind their offsets, with the groups that these are
        of; known with ``groups``."""

    def _add_batch(self, batches: Buffer, offset: int, header: BatchHeader) -> None:
        if header.is_control:
            marker = read_end_marker(batches, offset)
            if marker is not None:
                self.end_transaction(header.producer_id, committed=not marker.is_abort)
            return
        producer_id = header.producer_id if header.is_transactional else None
        base_offset, count = header.base_offset, header.record_count
        data = bytes(unpack_records(batches, header, offset))
        if (
            count >= _MANY_RECORDS
            and producer_id is None
            and are_uniform(data, count)
            and self._add_plain_offsets(data, count, base_offset)
        ):
            return
        pairs = pairs_of(data, count)
        latest = self._latest
        for key, value in pairs:
            if key is not None and producer_id is None:
                head = key[:-4]
                if head in latest:
                    latest[head][key[-4:]] = value, base_offset
                else:
                    latest[head] = {key[-4:]: (value, base_offset)}
            else:
                self.add(key, value, base_offset, producer_id)

    def _add_plain_offsets(self, data: bytes, count: int, base_offset: int) -> bool:
        """Add the uniform records of a batch, if they are a group's offsets of one
        topic, without metadata."""
        found: list[tuple[bytes, tuple[bytes, ...], Iterator[_Latest]]] = []
        for run in uniform_runs(data, count):
            size = run.key_size - _PARTITION_BYTES
            if size < 0 or run.value_size != PLAIN_OFFSET_BYTES:
                return False
            layout = (
                f">{run.key_start - run.start}x{size}s{_PARTITION_BYTES}s"
                f"{run.value_start - run.key_start - run.key_size}x{PLAIN_OFFSET_FORMAT}x"
            )
            rows = Struct(layout).iter_unpack(memoryview(data)[run.start : run.stop])
            while some := list(islice(rows, _RECORDS_A_STEP)):
                heads, partitions, versions, offsets, leader_epochs, metadata_sizes, commit_ms = zip(*some, strict=True)
                head: bytes = heads[0]
                is_plain = heads.count(head) == versions.count(OFFSET_VALUE_VERSION) == len(some)
                if not is_plain or any(metadata_sizes) or unpack_offset_key(head + partitions[0]) is None:
                    return False
                found.append(
                    (head, partitions, zip(offsets, leader_epochs, commit_ms, repeat(base_offset), strict=False))
                )
        for head, partitions, values in found:
            self._latest.setdefault(head, {}).update(zip(partitions, values, strict=False))
        return True

    def add(self, key: bytes | None, value: bytes | None, base_offset: int, producer_id: int | None = None) -> None:
        """A record of the batch at ``base_offset``.

        ``producer_id`` is given for those of a transaction."""
        if key is None:
            self.unreadable.append(f"record without a key in the batch at offset {base_offset}")
        elif producer_id is None:
            self._latest.setdefault(key[:-4], {})[key[-4:]] = value, base_offset
        else:
            self._transactions.setdefault(producer_id, {})[key] = (value, base_offset)

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """A control record: the producer's transaction was committed or aborted."""
        pending = self._transactions.pop(producer_id, {})
        if committed:
            for key, (value, base_offset) in pending.items():
                table = self._latest.setdefault(key[:-4], {})
                known = table.get(key[-4:])
                # A plain commit may have come after the transaction's record: the
                # one written last holds.
                if known is None or known[-1] <= base_offset:
                    table[key[-4:]] = value, base_offset

    def steps(self) -> Iterator[Beside | None]:
        """Make the groups; yields every few milliseconds of work, and the groups with thousands
        of members for a thread."""
        latest, self._latest = self._latest, {}
        made = 0
        for head, table in latest.items():
            items = iter(table.items())
            while some := list(islice(items, _RECORDS_A_STEP)):
                large = {
                    tail: latest
                    for tail, latest in some
                    if len(latest) != _PLAIN_FIELDS and len(latest[0] or b"") > BYTES_A_STEP
                }
                for tail, (value, base_offset) in large.items():
                    yield Beside(partial(self._apply, head + tail, value, base_offset))
                self._apply_many(head, [each for each in some if each[0] not in large] if large else some)
                made += len(some)
                if made >= _RECORDS_A_STEP:
                    made = 0
                    yield None
        for producer_id, pending in self._transactions.items():
            for key, (value, base_offset) in pending.items():
                known = latest.get(key[:-4], {}).get(key[-4:])
                # Else a tombstone came after it.
                made += 1
                if made >= _RECORDS_A_STEP:
                    made = 0
                    yield None
                if known is None or known[0] is not None or known[-1] < base_offset:
                    self._apply(key, value, base_offset, producer_id)
        yield None

    def _apply_many(self, head: bytes, items: list[tuple[bytes, _Latest]]) -> None:
        """Apply records whose keys begin with the same bytes.

        For a plain offset only the partition and the numbers of the value are decoded: all offsets
        of the group and topic share the rest of the key."""
        tails: list[bytes] = []
        values: list[CommittedOffset] = []
        record_offsets: list[int] = []
        for tail, latest in items:
            if len(latest) == _PLAIN_FIELDS:
                offset, leader_epoch, commit_ms, base_offset = latest
            else:
                value, base_offset = latest
                if value is None:
                    continue
                plain = unpack_plain_offset(value)
                if plain is None or unpack_offset_key(head + tail) is None:
                    self._apply(head + tail, value, base_offset)
                    continue
                offset, leader_epoch, commit_ms = plain
            tails.append(tail)
            values.append(new_tuple(CommittedOffset, (offset, leader_epoch, "", commit_ms, NO_EXPIRATION)))
            record_offsets.append(base_offset)
        offset_key = unpack_offset_key(head + tails[0]) if tails else None
        if offset_key is not None:
            group_id, topic, _ = offset_key
            partitions = [
                new_tuple(TopicPartition, (topic, number)) for number in unpack(f">{len(tails)}i", b"".join(tails))
            ]
            self._group(group_id).offsets.apply_loaded(partitions, values, record_offsets)

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
            self.open_transactions.setdefault(producer_id, set()).add(record.group_id)
        elif isinstance(record, OffsetRecord) and record.value is not None:
            group.offsets.apply(record.topic_partition, record.value, base_offset)
