"""The first reader of Produce requests: those that differ from an earlier one in a
few numbers only.

Requests of one producer for one partition are the same but for these::

    length  api key, version  correlation id
    | client id ... partition
    | records' size  batch header  records
    | tagged fields

The bytes between the first two bars are the request's prefix. A `Template` holds what the second
reader (`produce_parts`) read from one prefix. A request with a known prefix and one batch is
unpacked in two steps, and answered by filling in numbers, too.

In Kafka: the generated `ProduceRequestData.read`, and `ProduceResponseData.write`.
"""

import struct
from collections.abc import Callable, Sequence
from functools import lru_cache

from barnabas.base.ids import Uuid
from barnabas.broker.apis.produce_parts import FLEXIBLE, LOG_START_OFFSET, ReadProduce
from barnabas.broker.apis.request_parts import REQUEST_START
from barnabas.broker.replication.produce_append import PRODUCE_TOPIC_IDS, Appended, BatchOutcome, Produce
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.primitives import uvarint
from barnabas.wire.kafka.records.batch_header import HEADER, HEADER_BYTES

__all__ = ["Templates"]

_PREFIX_AT = 8
_UUID_BYTES = 16
_TWO_BYTES = 128
"""From here on a varint has more than one byte."""
_INT = struct.Struct(">i")
_SHORT = struct.Struct(">h")
_NO_TAGGED_FIELDS = b"\0\0\0"
"""The tagged fields of the partition, the topic and the request: none."""
_WIDTH_LIMITS = (127, 16_384, 2_097_153)
"""Size limits of records, with their length field, for a length field of one, two
and three bytes."""
_MOST_TEMPLATES = 4_096
_MISSES_PER_TEMPLATE = 64
"""While there are `_MOST_TEMPLATES`, one in this many requests without a template replaces the
oldest: most often a busy one."""
_MOST_PREFIX_BYTES = 512


@lru_cache(1024)
def _shape(prefix_bytes: int, size_bytes: int) -> struct.Struct:
    """A request from its start to the end of its batch's header.

    The records' size has ``size_bytes`` bytes."""
    return struct.Struct(f">ii{prefix_bytes}s{size_bytes}s{HEADER.format[1:]}")


@lru_cache(4096)
def _compact_size(size: int) -> bytes:
    """The size of compact bytes: a varint of one more."""
    return uvarint(size + 1)


class Template:
    """What a prefix says, and how requests with it are answered."""

    __slots__ = (
        "_answer",
        "_answer_bytes",
        "_before",
        "_behind",
        "_has_log_start",
        "_head",
        "_is_flexible",
        "_key",
        "_overhead_bytes",
        "_prefix",
        "_prefix_bytes",
        "_topic",
        "_topic_id",
        "_topic_name",
    )

    def __init__(self, prefix: bytes, read: ReadProduce, topic_name: Callable[[Uuid], str | None]) -> None:
        """``read`` is a request with the prefix."""
        _, like, words = read
        version = like.options.version
        self._key = ApiKey.PRODUCE << 16 | version
        self._prefix = prefix
        self._prefix_bytes = len(prefix)
        self._overhead_bytes = _PREFIX_AT + len(prefix) + (len(_NO_TAGGED_FIELDS) if version >= FLEXIBLE else 0)
        self._head = like.head
        self._topic_name = topic_name
        self._topic = like.partitions[0].topic
        self._topic_id = like.head.topic_ids[0] if version >= PRODUCE_TOPIC_IDS else None
        self._is_flexible = version >= FLEXIBLE
        self._has_log_start = version >= LOG_START_OFFSET
        first, other = (words.encode(0, [(Appended(), offset, offset)]) for offset in (0, -1))
        offset_at = next(at for at, byte in enumerate(first) if byte != other[at])
        numbers = "qqq" if self._has_log_start else "qq"
        self._before = first[2 * _INT.size : offset_at]
        self._behind = first[offset_at + struct.calcsize(">" + numbers) :]
        self._answer = struct.Struct(f">ii{len(self._before)}s{numbers}{len(self._behind)}s")
        self._answer_bytes = self._answer.size - _INT.size

    def read(self, data: memoryview, start: int, stop: int) -> ReadProduce | None:
        """The request in ``data[start:stop]``; None if it has another prefix or is not usual."""
        size = stop - start - self._overhead_bytes
        if self._is_flexible:
            small, medium, large = _WIDTH_LIMITS
            width = 1 if size <= small else 2 if size <= medium else 3 if size <= large else 4
            stop -= 3
        else:
            width = 4
        size -= width
        if size < HEADER_BYTES:
            return None
        fields = _shape(self._prefix_bytes, width).unpack_from(data, start)
        if fields[2] != self._prefix or fields[0] != self._key:
            return None
        if self._topic_id is not None and self._topic_name(self._topic_id) != self._topic:
            return None
        if self._is_flexible:
            if fields[3] != _compact_size(size) or data[stop : stop + 3] != _NO_TAGGED_FIELDS:
                return None
        elif fields[3] != _INT.pack(size):
            return None
        return fields[1], Produce(self._head, [(data[stop - size : stop], fields[4:])], borrows=True), self

    def encode(self, correlation_id: int, outcomes: Sequence[BatchOutcome]) -> bytes:
        """See `barnabas.broker.apis.produce_parts.SuccessResponse`."""
        ((appended, first_offset, _),) = outcomes
        if self._has_log_start:
            return self._answer.pack(
                self._answer_bytes,
                correlation_id,
                self._before,
                first_offset,
                appended.log_append_time_ms,
                appended.log_start_offset,
                self._behind,
            )
        return self._answer.pack(
            self._answer_bytes, correlation_id, self._before, first_offset, appended.log_append_time_ms, self._behind
        )


class Templates:
    """The templates of a broker, by version and prefix."""

    __slots__ = ("_by_prefix", "_misses", "_topic_name", "last")

    def __init__(self, topic_name: Callable[[Uuid], str | None]) -> None:
        self._topic_name = topic_name
        self._by_prefix: dict[bytes, Template] = {}
        self.last: Template | None = None
        """The one of the last request that was read, which is likely to be that of the next."""
        self._misses = 0

    def read(self, data: memoryview, start: int, stop: int) -> ReadProduce | None:
        """The request in ``data[start:stop]``, if there is a template for it and it
        is usual otherwise."""
        template = self.last = self._by_prefix.get(_prefix(data, start))
        return None if template is None else template.read(data, start, stop)

    def learn(self, data: memoryview, start: int, stop: int, read: ReadProduce) -> None:
        """Take a request as a template, if it is for one partition and there is room."""
        by_prefix, produce, prefix = self._by_prefix, read[1], _prefix(data, start)
        if (
            len(produce.partitions) != 1
            or len(produce.head.topics) != 1
            or produce.options.transactional_id is not None
        ):
            return
        if not 4 < len(prefix) <= _MOST_PREFIX_BYTES or not produce.partitions[0].topic:
            return
        if len(by_prefix) >= _MOST_TEMPLATES:
            self._misses += 1
            if self._misses % _MISSES_PER_TEMPLATE:
                return
            del by_prefix[next(iter(by_prefix))]
        template = Template(prefix[4:], read, self._topic_name)
        if template.read(data, start, stop) is not None:
            by_prefix[prefix] = template


# The prefix, before and since version 9 (sizes in bytes; (n) is a length and what it counts):
#
#   client id (2+n) | transactional id -1 (2) | acks (2) | timeout (4) | topics 1 (4)
#   | name (2+n) | partitions 1 (4) | index (4)
#
#   client id (2+n) | tagged fields 0 (1) | transactional id 0 (1) | acks (2) | timeout (4)
#   | topics 2 (1)
#   | name (1+n), or topic id (16) since version 13 | partitions 2 (1) | index (4)


def _prefix(data: memoryview, start: int) -> bytes:
    """The version and the prefix of a request for one partition.

    What it is for others is no template's."""
    try:
        _, version, _, client_id_bytes = REQUEST_START.unpack_from(data, start)
        stop: int = start + REQUEST_START.size + max(client_id_bytes, 0)
        if version < FLEXIBLE:
            stop += 14 + _SHORT.unpack_from(data, stop + 12)[0] + 8
        else:
            name_bytes = _UUID_BYTES if version >= PRODUCE_TOPIC_IDS else data[stop + 9]
            stop += 9 + name_bytes + 5 if name_bytes < _TWO_BYTES else 0
    except (struct.error, IndexError):
        return b""
    return bytes(data[start : start + 4]) + data[start + _PREFIX_AT : stop]
