"""The second reader of Produce requests: part by part, into a batch and its header
for each partition.

It makes no objects of the parts as the general decoder does, and puts the answer together from the
request's own bytes. Java's producers send requests for several partitions, for others each time.
Layout before and since version 9 (sizes in bytes; (n) is a length and what it counts):

   client id (2+n) | transactional id (2+n) | acks (2) | timeout (4) | topics (4)
   of each topic: name (2+n) | partitions (4); of each partition: index (4) | records (4+n)

   client id (2+n) | tagged fields 0 (1) | transactional id (varint+n) | acks (2) | timeout (4)
   | topics (varint)
   of each topic: name (varint+n), or topic id (16) since version 13 | partitions (varint)
   ... tagged fields 0 (1)
   of each partition: index (4) | records (varint+n) | tagged fields 0 (1)
   at the end: tagged fields 0 (1)

A request with anything else, such as tagged fields, a partition that is named twice or a topic
without partitions, or with very many partitions is left to the general decoder (`produce`), which
knows what it means and takes turns.

In Kafka: the generated `ProduceRequestData.read`, and `ProduceResponseData.write`.
"""

import struct
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Protocol

from barnabas.base.ids import TopicPartition, Uuid
from barnabas.base.tuples import new_tuple
from barnabas.broker.apis.request_parts import (
    REQUEST_START,
    UNREADABLE_PARTS,
    read_client_id,
    read_count,
    read_string,
    read_topic,
    skip_no_tags,
)
from barnabas.broker.replication.produce_append import (
    PRODUCE_TOPIC_IDS,
    Batch,
    BatchOutcome,
    Produce,
    ProduceHead,
    ProduceOptions,
    ProduceTopic,
)
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.primitives import uvarint
from barnabas.wire.kafka.records.batch_header import HEADER, HEADER_BYTES

__all__ = ["FLEXIBLE", "LOG_START_OFFSET", "ReadProduce", "SuccessResponse", "read_parts"]

LOG_START_OFFSET = 5
"""The first version whose answers have the log start offset."""
FLEXIBLE = 9
"""The first flexible version."""

_MOST_PARTITIONS = 2000
"""Reading so many takes some milliseconds."""
_INT = struct.Struct(">i")
_OPTIONS = struct.Struct(">hi")
_HEAD = struct.Struct(">ii")
_ANSWERS = (
    (3, struct.Struct(">ihqq"), ()),
    (LOG_START_OFFSET, struct.Struct(">ihqqq"), ()),
    (8, struct.Struct(">ihqqqih"), (0, -1)),
    (FLEXIBLE, struct.Struct(">ihqqqbbb"), (1, 0, 0)),
)
"""The answer for a partition since a version, and its end: neither record errors nor a
message nor tagged fields."""


class SuccessResponse(Protocol):
    """How a request is answered if nothing has failed."""

    def encode(self, correlation_id: int, outcomes: Sequence[BatchOutcome]) -> bytes:
        """The frame of the answer."""
        ...


ReadProduce = tuple[int, Produce, SuccessResponse]
"""A request, its correlation id, and its answer."""


def read_parts(
    data: memoryview, start: int, stop: int, versions: range, topic_name: Callable[[Uuid], str | None]
) -> ReadProduce | None:
    """Read the Produce request in ``data[start:stop]``.

    None if the general decoder must read it."""
    try:
        return _read(data, start, stop, versions, topic_name)
    except UNREADABLE_PARTS:
        return None


def _read(
    data: memoryview, start: int, stop: int, versions: range, topic_name: Callable[[Uuid], str | None]
) -> ReadProduce | None:
    api_key, version, correlation_id, _ = REQUEST_START.unpack_from(data, start)
    if api_key != ApiKey.PRODUCE or version not in versions:
        return None
    is_flexible = version >= FLEXIBLE
    client_id, at = read_client_id(data, start, is_flexible)
    transactional_id, at = read_string(data, at, is_flexible)
    acks, timeout_ms = _OPTIONS.unpack_from(data, at)
    left, at = read_count(data, at + _OPTIONS.size, is_flexible)
    topics: list[ProduceTopic] = []
    partitions: list[TopicPartition] = []
    topic_ids: list[Uuid] = []
    batches: list[Batch] = []
    heads: list[bytes] = []
    name_of_id = topic_name if version >= PRODUCE_TOPIC_IDS else None
    for _ in range(left):
        topic_at = at
        name, topic_id, at = read_topic(data, at, is_flexible, name_of_id)
        if name is None:
            return None
        asked = name if name_of_id is None else ""
        count, at = read_count(data, at, is_flexible)
        if not 0 < count <= _MOST_PARTITIONS - len(partitions):
            return None
        heads.append(bytes(data[topic_at:at]))
        topics.append(new_tuple(ProduceTopic, (asked, topic_id, count)))
        for _ in range(count):
            (index,) = _INT.unpack_from(data, at)
            size, at = read_count(data, at + _INT.size, is_flexible)
            end = at + size
            if size < HEADER_BYTES or end > stop:
                return None
            partitions.append(new_tuple(TopicPartition, (name, index)))
            topic_ids.append(topic_id)
            batches.append((data[at:end], HEADER.unpack_from(data, at)))
            at = skip_no_tags(data, end) if is_flexible else end
        if is_flexible:
            at = skip_no_tags(data, at)
    if is_flexible:
        at = skip_no_tags(data, at)
    if at != stop or not partitions or len(set(partitions)) != len(partitions):
        return None
    options = ProduceOptions(version, client_id, transactional_id, acks, timeout_ms)
    produce = Produce(ProduceHead(options, topics, partitions, topic_ids), batches, borrows=True)
    return correlation_id, produce, _Parts(version, heads, topics, partitions)


@lru_cache(64)
def _answer_format(version: int) -> tuple[Callable[..., bytes], tuple[int, ...]]:
    """Packs the answer for a partition; what stands at its end."""
    return next((answer.pack, end) for since, answer, end in reversed(_ANSWERS) if version >= since)


class _Parts:
    """The parts of a request that its answer repeats (`SuccessResponse`)."""

    __slots__ = ("_heads", "_partitions", "_topics", "_version")

    def __init__(
        self, version: int, heads: list[bytes], topics: list[ProduceTopic], partitions: list[TopicPartition]
    ) -> None:
        """``heads`` has of each topic the name or the id, and the number of partitions,
        as the request has them."""
        self._version = version
        self._heads = heads
        self._topics = topics
        self._partitions = partitions

    def encode(self, correlation_id: int, outcomes: Sequence[BatchOutcome]) -> bytes:
        version = self._version
        pack, end = _answer_format(version)
        is_flexible = version >= FLEXIBLE
        has_log_start = version >= LOG_START_OFFSET
        parts = [b"\0" + uvarint(len(self._topics) + 1) if is_flexible else _INT.pack(len(self._topics))]
        answers = zip(self._partitions, outcomes, strict=True)
        for head, topic in zip(self._heads, self._topics, strict=True):
            parts.append(head)
            for _ in range(topic.partitions):
                (_, index), (appended, first_offset, _) = next(answers)
                starts = (appended.log_start_offset,) if has_log_start else ()
                parts.append(pack(index, 0, first_offset, appended.log_append_time_ms, *starts, *end))
            if is_flexible:
                parts.append(b"\0")
        parts.append(b"\0\0\0\0\0" if is_flexible else b"\0\0\0\0")  # not throttled
        body = b"".join(parts)
        return _HEAD.pack(len(body) + _INT.size, correlation_id) + body
