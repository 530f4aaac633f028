"""Names of files and folders in a log dir, as Apache Kafka gives them.

Kafka: LogFileUtils, LocalLog.

A partition's folder is ``topic-N``; ``topic-N.<32 hex digits>-delete`` waits for its removal
(the topic's name is cut where the whole would pass 255 characters), ``...-future`` is a
replica on its way between dirs, ``...-stray`` one that no topic owns. A segment's files are
named by its base offset in 20 digits. ``.cleaned`` and ``.swap`` are steps of a compaction,
``.deleted`` waits for removal.
"""

import re

from barnabas.base.ids import TopicPartition

__all__ = [
    "CLEANED",
    "DELETED",
    "INDEX",
    "LOG",
    "SEGMENT_SUFFIXES",
    "SNAPSHOT",
    "SWAP",
    "TIME_INDEX",
    "TXN_INDEX",
    "UNFINISHED",
    "base_offset_of",
    "delete_folder",
    "file_name",
    "future_folder",
    "partition_folder",
    "partition_of_folder",
    "partition_of_special_folder",
]

LOG = ".log"
INDEX = ".index"
TIME_INDEX = ".timeindex"
TXN_INDEX = ".txnindex"
SNAPSHOT = ".snapshot"
DELETED = ".deleted"
CLEANED = ".cleaned"
SWAP = ".swap"
UNFINISHED = (DELETED, CLEANED, SWAP)
"""Suffixes of what a deletion or a compaction has not finished; the next start does."""
SEGMENT_SUFFIXES = (LOG, INDEX, TIME_INDEX, TXN_INDEX)

_SEGMENT_FILE = re.compile(r"([0-9]{20})\..+")
_PARTITION = re.compile(r"([a-zA-Z0-9._-]{1,249})-([0-9]{1,10})")
_SPECIAL = re.compile(r"(.+)\.[0-9a-f]{32}-(delete|future)")
_MAX_NAME = 255


def file_name(base_offset: int, suffix: str) -> str:
    """``00000000000000000042.log`` for offset 42 and ``.log``."""
    return f"{base_offset:020d}{suffix}"


def base_offset_of(name: str) -> int | None:
    """The offset in a segment file's or snapshot's name, None for other files."""
    match = _SEGMENT_FILE.fullmatch(name)
    return int(match[1]) if match else None


def delete_folder(topic_partition: TopicPartition, unique: bytes) -> str:
    """The folder's name while the partition's files wait for their removal.

    ``unique`` has 16 bytes."""
    suffix = f"-{topic_partition.partition}.{unique.hex()}-delete"
    return topic_partition.topic[: _MAX_NAME - len(suffix)] + suffix


def future_folder(topic_partition: TopicPartition, unique: bytes) -> str | None:
    """The folder's name while a replica is copied into it.

    None where it would be too long for a name."""
    name = f"{topic_partition}.{unique.hex()}-future"
    return name if len(name) <= _MAX_NAME else None


def partition_folder(topic_partition: TopicPartition) -> str | None:
    """The name of a partition's folder.

    None for what no start would find again, or what would lie elsewhere."""
    name = str(topic_partition)
    return name if len(name) <= _MAX_NAME and partition_of_folder(name) == topic_partition else None


def partition_of_special_folder(name: str) -> tuple[TopicPartition, str] | None:
    """The partition of a folder that is going ("delete") or to come ("future").

    None for any other name."""
    match = _SPECIAL.fullmatch(name)
    topic_partition = partition_of_folder(match[1]) if match else None
    return (topic_partition, match[2]) if match and topic_partition else None


def partition_of_folder(name: str) -> TopicPartition | None:
    """The partition that a plain ``topic-N`` folder holds, None for any other name."""
    match = _PARTITION.fullmatch(name)
    if not match or match[1] in (".", ".."):
        return None
    return TopicPartition(match[1], int(match[2]))
