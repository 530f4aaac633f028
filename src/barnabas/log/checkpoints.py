"""The small text files of a log dir, in Apache Kafka's formats.

Kafka: OffsetCheckpointFile, LeaderEpochCheckpointFile, PartitionMetadataFile, PropertiesUtils,
CleanShutdownFileHandler.

``recovery-point-offset-checkpoint``, ``replication-offset-checkpoint``,
``log-start-offset-checkpoint`` and ``cleaner-offset-checkpoint``: a version (0), the number of
entries, then ``topic partition offset`` a line. ``leader-epoch-checkpoint``, in a partition's
folder: the same with ``epoch start_offset`` a line. ``partition.metadata``: the topic's id.
``meta.properties``: which broker of which cluster a log dir belongs to. ``.kafka_cleanshutdown``:
JSON, there while the last stop was clean.

Readers raise `CorruptDataError`; the callers decide what a damaged file means (a checkpoint that
cannot be read only makes a start slower). Each file is replaced as a whole, so a reader never sees
half of one. Each file of offsets or epochs has a checked copy beside it
(`barnabas.log.checked_files`).
"""

import json
import posixpath
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from barnabas.base.errors import ConfigError, CorruptDataError
from barnabas.base.files import Files
from barnabas.base.ids import TopicPartition, Uuid, uuid_from_text, uuid_text
from barnabas.base.settings import properties_text, read_properties
from barnabas.log.checked_files import write_checked

__all__ = [
    "CLEANER_OFFSETS",
    "CLEAN_SHUTDOWN",
    "HIGH_WATERMARKS",
    "LEADER_EPOCHS",
    "LOG_START_OFFSETS",
    "META_PROPERTIES",
    "PARTITION_METADATA",
    "RECOVERY_POINTS",
    "Checkpointed",
    "CleanShutdown",
    "MetaProperties",
    "parse_epochs",
    "parse_offsets",
    "read_epochs",
    "read_offsets",
    "read_topic_id",
    "write_epochs",
    "write_offsets",
    "write_topic_id",
]

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
LOG_START_OFFSETS = "log-start-offset-checkpoint"
CLEANER_OFFSETS = "cleaner-offset-checkpoint"
LEADER_EPOCHS = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
META_PROPERTIES = "meta.properties"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
_NUMBER = re.compile("[0-9]{1,19}", re.ASCII)
_MAX_LONG = (1 << 63) - 1


def _entries(path: str, data: bytes, columns: int) -> list[list[str]]:
    """The entries of a checkpoint, split.

    An empty file (Apache's before the first write) has none."""
    try:
        lines = data.decode("utf-8").splitlines()
        if not lines:
            return []
        if int(lines[0]) != 0:
            raise CorruptDataError(f"{path} has version {lines[0]}, only 0 is known")
        if len(lines) < 2:
            return []
        entries = [line.split() for line in lines[2:]]
        if len(entries) != int(lines[1]) or any(len(entry) != columns for entry in entries):
            raise CorruptDataError(f"{path} does not hold the {lines[1]} entries it announces")
    except ValueError as error:
        raise CorruptDataError(f"{path} is not a checkpoint: {error}") from error
    return entries


def _checkpoint(lines: Sequence[str]) -> bytes:
    return "".join(["0\n", f"{len(lines)}\n", *(f"{line}\n" for line in lines)]).encode()


def _number(text: str) -> int:
    """Offsets and epochs of logs are never negative."""
    if not _NUMBER.fullmatch(text):
        raise ValueError(f"{text!r} is not a number from 0 to {_MAX_LONG}")
    number = int(text)
    if number > _MAX_LONG:
        raise ValueError(f"{text!r} is not a number from 0 to {_MAX_LONG}")
    return number


def parse_offsets(path: str, data: bytes) -> dict[TopicPartition, int]:
    """The contents of a checkpoint of offsets by partition."""
    entries = _entries(path, data, 3)
    try:
        offsets = {TopicPartition(topic, _number(number)): _number(offset) for topic, number, offset in entries}
    except ValueError as error:
        raise CorruptDataError(f"{path} is not an offset checkpoint: {error}") from error
    if len(offsets) != len(entries):
        raise CorruptDataError(f"{path} has more than one offset of a partition")
    return offsets


def read_offsets(files: Files, path: str) -> dict[TopicPartition, int]:
    """A checkpoint of offsets by partition; a missing file is an empty one."""
    try:
        data = files.read(path)
    except FileNotFoundError:
        return {}
    return parse_offsets(path, data)


def write_offsets(
    files: Files, path: str, offsets: Mapping[TopicPartition, int], *, sync: bool = True, name: str = ""
) -> None:
    """Replace a checkpoint of offsets by partition and its copy.

    ``name`` is that which they will be renamed to."""
    lines = [f"{each.topic} {each.partition} {offset}" for each, offset in offsets.items()]
    write_checked(files, path, _checkpoint(lines), sync=sync, name=name)


def parse_epochs(path: str, data: bytes) -> list[tuple[int, int]]:
    """The contents of a leader epoch checkpoint."""
    try:
        return [(_number(epoch), _number(offset)) for epoch, offset in _entries(path, data, 2)]
    except ValueError as error:
        raise CorruptDataError(f"{path} is not a leader epoch checkpoint: {error}") from error


def read_epochs(files: Files, path: str) -> list[tuple[int, int]]:
    """(leader epoch, its first offset) in order; a missing file is an empty one."""
    try:
        data = files.read(path)
    except FileNotFoundError:
        return []
    return parse_epochs(path, data)


def write_epochs(files: Files, path: str, epochs: Iterable[tuple[int, int]], *, sync: bool) -> None:
    """Replace a leader epoch checkpoint and its copy."""
    write_checked(files, path, _checkpoint([f"{epoch} {offset}" for epoch, offset in epochs]), sync=sync)


def read_topic_id(files: Files, path: str) -> Uuid | None:
    """The topic id in a ``partition.metadata``; None when there is no such file."""
    try:
        text = files.read(path).decode("utf-8", "replace")
    except FileNotFoundError:
        return None
    match = re.fullmatch(r"version: 0\ntopic_id: (\S+)\s*", text)
    if not match:
        raise CorruptDataError(f"{path} is not two lines 'version: 0' and 'topic_id: ID'")
    try:
        return uuid_from_text(match[1])
    except ConfigError as error:
        raise CorruptDataError(f"{path}: {error}") from error


def write_topic_id(files: Files, path: str, topic_id: bytes, *, sync: bool) -> None:
    """Write a ``partition.metadata``."""
    files.write_atomically(path, f"version: 0\ntopic_id: {uuid_text(topic_id)}".encode(), sync=sync)


class Checkpointed(NamedTuple):
    """The offsets of a log in the checkpoints of its log dir, 0 where they have no entry."""

    was_clean: bool
    """Whether the last stop was clean."""
    recovery_point: int
    log_start_offset: int
    start_offsets_path: str
    """The checkpoint that says so."""
    high_watermark: int
    producer_expiration_ms: int
    cleaner_offset: int | None = None
    """Where the last compaction ended; None when there was none."""
    has_kept_pages: bool = False
    """Whether the machine has run on since the last stop, so that the files hold all
    that was written."""

    @property
    def may_lack_writes(self) -> bool:
        """Whether power may have been lost: then a small file and its copy may differ
        with no other broker here."""
        return not self.was_clean and not self.has_kept_pages


class MetaProperties:
    """Which broker of which cluster a log dir belongs to (version 0, ZooKeeper mode)."""

    __slots__ = ("broker_id", "cluster_id")

    def __init__(self, broker_id: int, cluster_id: str) -> None:
        self.broker_id = broker_id
        self.cluster_id = cluster_id

    @staticmethod
    def read(files: Files, path: str) -> "MetaProperties | None":
        """Read the file; None if it is missing.

        Raises `CorruptDataError` if its contents are not valid."""
        try:
            properties = read_properties(files.read(path).decode("latin-1"))
        except FileNotFoundError:
            return None
        if properties.get("version") != "0":
            raise CorruptDataError(
                f"{path} has version {properties.get('version')}: only version 0, of clusters in ZooKeeper mode, is read"
            )
        try:
            return MetaProperties(int(properties.get("broker.id", "-1")), properties.get("cluster.id", ""))
        except ValueError as error:
            raise CorruptDataError(f"{path}: broker.id is not a number") from error

    def write(self, files: Files, path: str) -> None:
        """Replace the file, synced."""
        properties = {"broker.id": str(self.broker_id), "version": "0", "cluster.id": self.cluster_id}
        files.write_atomically(path, f"#\n#\n{properties_text(properties)}".encode("latin-1"))


class CleanShutdown:
    """The marker of a clean stop."""

    @staticmethod
    def write(files: Files, path: str, broker_epoch: int) -> None:
        """Leave the marker, synced: after this nothing in the log dir may be written."""
        files.write_atomically(
            path, json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":")).encode()
        )

    @staticmethod
    def take(files: Files, path: str) -> int | None:
        """Whether the last stop was clean: the broker epoch it had (-1 if unknown),
        None if it was not.

        The marker is gone afterwards, so a crash during the start counts as one.
        """
        try:
            data = files.read(path)
        except FileNotFoundError:
            return None
        files.remove(path)
        # Were the marker to come back after a loss of power, a torn log would be
        # taken for a whole one.
        files.sync_dir(posixpath.dirname(path))
        try:
            epoch = json.loads(data)["brokerEpoch"]
        except (ValueError, KeyError, TypeError):
            return -1  # Kafka before 3.7 left an empty file, which says as much
        return epoch if isinstance(epoch, int) else -1
