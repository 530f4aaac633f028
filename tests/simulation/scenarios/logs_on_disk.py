"""The partitions' files on a simulated disk, read without the production code's log."""

import re

from barnabas.base.ids import TopicPartition
from barnabas.testing.simulation.disk import Disk
from barnabas.wire.kafka.errors import KafkaError
from barnabas.wire.kafka.records.batch_header import check_batch

__all__ = ["end_of_batches", "partitions_on_disk", "synced_end_offset"]

_SEGMENT = re.compile(r"/logs\d?/([a-zA-Z0-9._-]+)-(\d+)/(\d{20})\.log")


def partitions_on_disk(disk: Disk) -> dict[TopicPartition, list[tuple[int, str]]]:
    """Segments' base offsets and paths, in order."""
    found: dict[TopicPartition, list[tuple[int, str]]] = {}
    for path, _ in disk.walk():
        match = _SEGMENT.fullmatch(path)
        if match:
            topic_partition = TopicPartition(match[1], int(match[2]))
            found.setdefault(topic_partition, []).append((int(match[3]), path))
    return found


def synced_end_offset(disk: Disk, segments: list[tuple[int, str]]) -> int:
    """The offset before which a power loss now leaves everything."""
    end_offset = 0
    for base_offset, path in sorted(segments):
        inode = disk.survives(path)
        if inode is None or (base_offset != end_offset and end_offset):
            return end_offset
        synced = inode.synced_bytes()
        end_offset = end_of_batches(inode.data, synced, max(end_offset, base_offset))
        if synced < len(inode.data):
            return end_offset
    return end_offset


def end_of_batches(data: bytearray, end: int, end_offset: int) -> int:
    """The offset after the last valid batch before byte ``end``.

    An earlier power loss may have left a torn end."""
    position = 0
    while position < end:
        try:
            header = check_batch(data, position, end)
        except KafkaError:
            break
        end_offset = header.last_offset + 1
        position += header.size_bytes
    return end_offset
