"""Which groups have offsets in transactions that are not ended.

A transaction's offsets are in the group's own table from the moment in which they are in the log
(`GroupOffsets.transactional`). A marker in the same partition of ``__consumer_offsets`` commits or
drops them, as soon as it is replicated. While a partition is loaded, markers may be appended behind
what is read of it: they are kept until its groups are there.

In Kafka: `openGroupsForProducer` and `handleTxnCompletion` of `GroupMetadataManager`.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from barnabas.broker.groups.effects import Append
from barnabas.broker.groups.group import Group

__all__ = ["OpenTransactions"]


class _Marker(NamedTuple):
    producer_id: int
    offset: int
    is_commit: bool


class _Partition:
    """The open transactions in a partition of ``__consumer_offsets``."""

    __slots__ = ("groups", "markers")

    def __init__(self) -> None:
        self.groups: dict[int, set[str]] = {}
        """By producer id."""
        self.markers: list[_Marker] | None = []
        """Those that came while the partition was loaded; None afterwards."""


class OpenTransactions:
    """The open transactions in the partitions that this broker leads."""

    __slots__ = ("_find", "_partitions")

    def __init__(self, find: Callable[[str], Group | None]) -> None:
        """``find`` looks a loaded group up."""
        self._find = find
        self._partitions: dict[int, _Partition] = {}

    def start_loading(self, number: int) -> None:
        self._partitions[number] = _Partition()

    def finish_loading(self, number: int, found: Mapping[int, Iterable[str]]) -> None:
        """The groups are there.

        ``found`` are the transactions that were open in what was read: groups by producer id."""
        partition = self._partitions[number]
        partition.groups = {producer_id: set(group_ids) for producer_id, group_ids in found.items()}
        markers, partition.markers = partition.markers or [], None
        for marker in markers:
            self._end(partition, marker)

    def unload(self, number: int) -> None:
        self._partitions.pop(number, None)

    def appended(self, append: Append, base_offset: int) -> None:
        """A batch is in the log, replicated or not.

        If it is a transaction's, a marker behind it decides about it."""
        transaction, offsets = append.transaction, append.offsets
        if transaction is None or offsets is None:
            return
        group, partition = append.group, self._partitions.get(append.partition)
        if partition is not None and self._find(group.group_id) is group:
            group.offsets.apply_transactional_batch(transaction.producer_id, *offsets, base_offset)
            partition.groups.setdefault(transaction.producer_id, set()).add(group.group_id)

    def ended(self, number: int, producer_id: int, marker_offset: int, *, is_commit: bool) -> None:
        """A marker is in the log of a partition, and replicated."""
        partition = self._partitions.get(number)
        if partition is None:
            return  # the next coordinator finds the marker in the log
        marker = _Marker(producer_id, marker_offset, is_commit)
        if partition.markers is None:
            self._end(partition, marker)
        else:
            partition.markers.append(marker)

    def _end(self, partition: _Partition, marker: _Marker) -> None:
        producer_id, offset, is_commit = marker
        still_open = set()
        for group_id in partition.groups.pop(producer_id, ()):
            group = self._find(group_id)
            if group is not None:
                group.offsets.end_transaction(producer_id, offset, committed=is_commit)
                if producer_id in group.offsets.transactional:
                    still_open.add(group_id)
        if still_open:
            partition.groups[producer_id] = still_open
