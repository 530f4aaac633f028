"""What a mirror between two named clusters keeps in topics: heartbeats, checkpoints
and offset syncs. Pure.

The formats are those of MirrorMaker 2 (KIP-382), so its tools read ours. All integers are
big-endian; a string is its length in 16 bits and its bytes in UTF-8.

    heartbeat     key: source, target                value: version 0 (16 bits), timestamp (64)
    checkpoint    key: group, topic, partition (32)  value: version 0 (16 bits), upstream (64),
                                                     downstream (64), metadata
    offset sync   key: topic, partition (32)         value: upstream (64), downstream (64)

In Kafka: `Heartbeat`, `Checkpoint` and `OffsetSync`.
"""

import struct
from typing import NamedTuple

from barnabas.base.errors import CorruptDataError

__all__ = ["GroupCheckpoint", "LinkHeartbeat", "OffsetSync"]

_VERSION = 0


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">h", len(data)) + data


def _read_string(data: bytes, offset: int) -> tuple[str, int]:
    (size,) = struct.unpack_from(">h", data, offset)
    end = offset + 2 + size
    if size < 0 or end > len(data):
        raise CorruptDataError(f"a string of {size} bytes at {offset} of {len(data)}")
    return data[offset + 2 : end].decode(), end


class LinkHeartbeat(NamedTuple):
    """The link from one cluster to another was alive at this time."""

    source: str
    target: str
    timestamp_ms: int

    def key(self) -> bytes:
        return _string(self.source) + _string(self.target)

    def value(self) -> bytes:
        return struct.pack(">hq", _VERSION, self.timestamp_ms)

    @classmethod
    def decode(cls, key: bytes, value: bytes) -> "LinkHeartbeat":
        """Raises `CorruptDataError`."""
        try:
            source, end = _read_string(key, 0)
            target, _ = _read_string(key, end)
            version, timestamp_ms = struct.unpack(">hq", value)
        except (struct.error, UnicodeDecodeError) as error:
            raise CorruptDataError(f"not a heartbeat: {error}") from None
        if version != _VERSION:
            raise CorruptDataError(f"a heartbeat of version {version}")
        return cls(source, target, timestamp_ms)


class GroupCheckpoint(NamedTuple):
    """Where a group stands: its offset in the source, and the offset in the target
    from which it would go on.

    ``topic`` is the topic's name in the target.
    """

    group: str
    topic: str
    partition: int
    upstream: int
    downstream: int
    metadata: str = ""

    def key(self) -> bytes:
        return _string(self.group) + _string(self.topic) + struct.pack(">i", self.partition)

    def value(self) -> bytes:
        return struct.pack(">hqq", _VERSION, self.upstream, self.downstream) + _string(self.metadata)

    @classmethod
    def decode(cls, key: bytes, value: bytes) -> "GroupCheckpoint":
        """Raises `CorruptDataError`."""
        try:
            group, end = _read_string(key, 0)
            topic, end = _read_string(key, end)
            (partition,) = struct.unpack_from(">i", key, end)
            version, upstream, downstream = struct.unpack_from(">hqq", value)
            if version != _VERSION:
                raise CorruptDataError(f"a checkpoint of version {version}")
            metadata, _ = _read_string(value, struct.calcsize(">hqq"))
        except (struct.error, UnicodeDecodeError) as error:
            raise CorruptDataError(f"not a checkpoint: {error}") from None
        return cls(group, topic, partition, upstream, downstream, metadata)


class OffsetSync(NamedTuple):
    """The record at ``upstream`` of the source's partition is at ``downstream`` of the target's."""

    topic: str
    partition: int
    upstream: int
    downstream: int

    def key(self) -> bytes:
        return _string(self.topic) + struct.pack(">i", self.partition)

    def value(self) -> bytes:
        return struct.pack(">qq", self.upstream, self.downstream)

    @classmethod
    def decode(cls, key: bytes, value: bytes) -> "OffsetSync":
        """Raises `CorruptDataError`."""
        try:
            topic, end = _read_string(key, 0)
            (partition,) = struct.unpack_from(">i", key, end)
            upstream, downstream = struct.unpack(">qq", value)
        except (struct.error, UnicodeDecodeError) as error:
            raise CorruptDataError(f"not an offset sync: {error}") from None
        return cls(topic, partition, upstream, downstream)
