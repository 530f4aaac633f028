"""Produce requests for several partitions on the fast path, as Java's producers send them.

Their partitions differ from request to request, so there is no prefix to recognise them by (`fast_produce`). They are read
part by part, into a batch and its header for each partition. Those that arrived together share the appends: each partition
gets one write for all of them. Layout before and since version 9 (sizes in bytes; (n) is a length and what it counts):

   client id (2+n) | transactional id -1 (2) | acks (2) | timeout (4) | topics (4)
   of each topic: name (2+n) | partitions (4); of each partition: index (4) | records (4+n)

   client id (2+n) | tagged fields 0 (1) | transactional id 0 (1) | acks (2) | timeout (4) | topics (varint)
   of each topic: name (varint+n), or topic id (16) since version 13 | partitions (varint) ... tagged fields 0 (1)
   of each partition: index (4) | records (varint+n) | tagged fields 0 (1); at the end tagged fields 0 (1)

Invariants:

- A request is taken whole or not at all. Nothing is written before all that came together is taken, so a request of
  which one partition's batch is not usual is left as it came.
- If a write fails, requests with records for that partition are answered with its error, as in the general path. They cannot be
  left to it, because their other partitions may have their records.

In Kafka: `KafkaApis.handleProduceRequest`, for these cases.
"""

import struct
from collections.abc import Callable, Mapping
from functools import lru_cache
from itertools import islice

from barnabas.base.ids import ZERO_UUID, TopicPartition, Uuid
from barnabas.base.tuples import new_tuple
from barnabas.broker.apis.produce import (
    PRODUCE_FLEXIBLE,
    PRODUCE_TOPIC_IDS,
    PRODUCE_ZSTD,
    add_leader_hints,
    join_response,
    refuse,
)
from barnabas.broker.apis.services import Services
from barnabas.broker.metadata.cache import INTERNAL_TOPICS
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.log.append_run import AppendRun
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.errors import ErrorCode, KafkaError, MalformedMessageError
from barnabas.wire.kafka.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from barnabas.wire.kafka.primitives import read_uvarint, uvarint
from barnabas.wire.kafka.records.batch_header import COMPRESSION_MASK, HEADER, HEADER_BYTES, HeaderFields
from barnabas.wire.kafka.records.compression import CompressionType

__all__ = ["PARTITION_RECORDS", "PartitionsRequest", "SharedAppends", "read_partitions"]

PARTITION_RECORDS = 16
"""To append to a partition takes as long as to check so many records."""

_LENGTH = struct.Struct(">i")
_SHORT = struct.Struct(">h")
_START = struct.Struct(">hhih")
_OPTIONS = struct.Struct(">hhi")
_COMPACT_OPTIONS = struct.Struct(">xxhi")
_INDEX_AND_SIZE = struct.Struct(">ii")
_UUID_BYTES = 16
_MOST_NAME_BYTES = 249
"""Kafka's limit for names of topics."""
_ANSWERS = (
    (3, struct.Struct(">ihqq"), False, ()),
    (5, struct.Struct(">ihqqq"), True, ()),
    (8, struct.Struct(">ihqqqih"), True, (0, -1)),
    (PRODUCE_FLEXIBLE, struct.Struct(">ihqqqbbb"), True, (1, 0, 0)),
)
"""The answer for a partition since a version, whether it has the log start offset, and its end: neither record errors nor a
message nor tagged fields."""

_TopicNames = Callable[[Uuid], str | None]


@lru_cache(64)
def _answer_format(version: int) -> tuple[Callable[..., bytes], bool, tuple[int, ...]]:
    """Packs the answer for a partition; whether it has the log start offset; what stands behind that."""
    return next(
        (answer.pack, has_log_start, end)
        for since, answer, has_log_start, end in reversed(_ANSWERS)
        if version >= since
    )


@lru_cache(4096)
def _name(encoded: bytes) -> str:
    """A topic's name. Raises UnicodeDecodeError."""
    return str(encoded, "utf-8")


class _Topic:
    __slots__ = ("encoded", "name", "partitions", "topic_id")

    def __init__(self, name: str, topic_id: Uuid, encoded: bytes, partitions: int) -> None:
        self.name = name
        """As the request has it: empty if it names topics by their ids."""
        self.topic_id = topic_id
        self.encoded = encoded
        """What comes before the partitions in the answer: name or id, and their number."""
        self.partitions = partitions


class _Append:
    """What is appended to one partition."""

    __slots__ = ("error", "log_start_offset", "run", "topic_partition")

    def __init__(self, topic_partition: TopicPartition, run: AppendRun) -> None:
        self.topic_partition = topic_partition
        self.run = run
        self.log_start_offset = -1
        self.error: KafkaError | None = None


class PartitionsRequest:
    """One request (`barnabas.broker.apis.fast_produce_answers.AppendedRequests`)."""

    __slots__ = (
        "acks",
        "batches",
        "correlation_id",
        "has_failed",
        "partitions",
        "records",
        "taken",
        "timeout_ms",
        "topics",
        "version",
    )

    count = 1

    def __init__(self, version: int, correlation_id: int, acks: int, timeout_ms: int) -> None:
        self.version = version
        self.correlation_id = correlation_id
        self.acks = acks
        self.timeout_ms = timeout_ms
        self.topics: list[_Topic] = []
        self.partitions: list[TopicPartition] = []
        """The partitions of all topics."""
        self.batches: list[tuple[memoryview, HeaderFields]] = []
        """The batch of each partition, until it is appended."""
        self.records = 0
        """How many records have to be checked; each partition counts as `PARTITION_RECORDS` of them."""
        self.taken: list[tuple[_Append, int, int]] = []
        """Of each partition where it was appended, with the first and last offset."""
        self.has_failed = False

    def last_offsets(self) -> dict[TopicPartition, int]:
        return {append.topic_partition: last for append, _, last in self.taken if append.error is None}

    def encode_answers(self) -> list[bytes]:
        version = self.version
        pack, has_log_start, end = _answer_format(version)
        is_flexible = version >= PRODUCE_FLEXIBLE
        parts = [b"\0" + uvarint(len(self.topics) + 1) if is_flexible else _LENGTH.pack(len(self.topics))]
        number = 0
        for topic in self.topics:
            parts.append(topic.encoded)
            stop = number + topic.partitions
            for (_, index), (append, first_offset, _) in zip(
                self.partitions[number:stop], self.taken[number:stop], strict=True
            ):
                if has_log_start:
                    parts.append(pack(index, 0, first_offset, -1, append.log_start_offset, *end))
                else:
                    parts.append(pack(index, 0, first_offset, -1))
            number = stop
            if is_flexible:
                parts.append(b"\0")
        parts.append(b"\0\0\0\0\0" if is_flexible else b"\0\0\0\0")  # not throttled
        body = b"".join(parts)
        return [_INDEX_AND_SIZE.pack(len(body) + _LENGTH.size, self.correlation_id) + body]

    def encode_errors(
        self, services: Services, listener: str, errors: Mapping[TopicPartition, ErrorCode]
    ) -> list[bytes]:
        response = ProduceResponse(responses=[])
        taken = iter(self.taken)
        for topic in self.topics:
            answers = []
            for append, first_offset, _ in islice(taken, topic.partitions):
                answer = PartitionProduceResponse(
                    index=append.topic_partition.partition,
                    base_offset=first_offset,
                    log_start_offset=append.log_start_offset,
                )
                code = errors.get(append.topic_partition)
                error = append.error if code is None else KafkaError(code)
                if error is not None:
                    refuse(answer, error)
                answers.append(answer)
            response.responses.append(
                TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=answers)
            )
        add_leader_hints(services, listener, self.version, response)
        return [join_response(response, self.version, self.correlation_id)]


class SharedAppends:
    """The appends of requests that arrived together and have the same acks."""

    __slots__ = ("_appends", "_now_ms", "_replicas", "acks", "requests")

    def __init__(self, replicas: ReplicaManager, acks: int, now_ms: int) -> None:
        self._replicas = replicas
        self._now_ms = now_ms
        self._appends: dict[TopicPartition, _Append] = {}
        self.acks = acks
        self.requests: list[PartitionsRequest] = []

    def add(self, request: PartitionsRequest) -> bool:
        """Take a request; False if one of its batches is left to the general path, or to other appends."""
        appends, taken = self._appends, request.taken
        for topic_partition, (batch, header) in zip(request.partitions, request.batches, strict=True):
            append = appends.get(topic_partition)
            if append is None:
                run = self._replicas.begin_run(topic_partition, self.acks, self._now_ms)
                if run is None:
                    break
                append = appends[topic_partition] = _Append(topic_partition, run)
            first_offset = append.run.add(batch, header)
            if first_offset < 0:
                break
            taken.append((append, first_offset, first_offset + header[6]))
        if len(taken) < len(request.partitions):
            for append, _, _ in taken:
                append.run.remove_last()
            return False
        self.requests.append(request)
        return True

    def write(self) -> None:
        """Append all that was taken. Requests whose records could not be written know it afterwards."""
        replicas = self._replicas
        failed: _Append | None = None
        for topic_partition, append in self._appends.items():
            if not len(append.run):
                continue
            try:
                if failed is not None:
                    replicas.partition(topic_partition)  # raises if the failure took its log dir, too
                append.log_start_offset = replicas.append_run(topic_partition, append.run, self._now_ms)
            except KafkaError as error:
                append.error = error
                failed = append
        for request in self.requests:
            # The request lives on while it waits for followers; the memory in which it came does not.
            request.batches.clear()
            request.has_failed = failed is not None and any(append.error for append, _, _ in request.taken)


def read_partitions(
    data: memoryview, start: int, stop: int, versions: range, topic_name: _TopicNames, most_records: int
) -> PartitionsRequest | None:
    """Read the Produce request in ``data[start:stop]``; None if it is not usual, or too much for one turn of the loop."""
    try:
        return _read(data, start, stop, versions, topic_name, most_records)
    except (struct.error, IndexError, UnicodeDecodeError, MalformedMessageError):
        return None


def _read(
    data: memoryview, start: int, stop: int, versions: range, topic_name: _TopicNames, most_records: int
) -> PartitionsRequest | None:
    api_key, version, correlation_id, client_id_bytes = _START.unpack_from(data, start)
    if api_key != ApiKey.PRODUCE or version not in versions:
        return None
    position = start + _START.size
    if client_id_bytes > 0:
        str(data[position : position + client_id_bytes], "utf-8")  # or the general path refuses it
        position += client_id_bytes
    is_flexible = version >= PRODUCE_FLEXIBLE
    if is_flexible:
        if data[position] or data[position + 1]:
            return None
        acks, timeout_ms = _COMPACT_OPTIONS.unpack_from(data, position)
        topics, position = read_uvarint(data, position + _COMPACT_OPTIONS.size)
        topics -= 1
    else:
        transactional_id_bytes, acks, timeout_ms = _OPTIONS.unpack_from(data, position)
        if transactional_id_bytes != -1:
            return None
        (topics,) = _LENGTH.unpack_from(data, position + _OPTIONS.size)
        position += _OPTIONS.size + _LENGTH.size
    if not -1 <= acks <= 1 or topics <= 0:
        return None
    request = PartitionsRequest(version, correlation_id, acks, timeout_ms)
    for _ in range(topics):
        position = _read_topic(data, position, stop, request, topic_name, most_records)
        if position < 0:
            return None
    if is_flexible:
        if data[position]:
            return None
        position += 1
    if position != stop or len(set(request.partitions)) != len(request.partitions):
        return None
    return request


def _read_name(
    data: memoryview, position: int, version: int, topic_name: _TopicNames
) -> tuple[str | None, Uuid, bytes, int]:
    """The name of the topic at a position, its id, how the answer names it, and the position behind it.

    The name is None if it is not usual."""
    if version >= PRODUCE_TOPIC_IDS:
        topic_id = Uuid(bytes(data[position : position + _UUID_BYTES]))
        return topic_name(topic_id), topic_id, topic_id, position + _UUID_BYTES
    if version >= PRODUCE_FLEXIBLE:
        size, position = read_uvarint(data, position)
        size -= 1
        length = uvarint(max(size, 0) + 1)
    else:
        (size,) = _SHORT.unpack_from(data, position)
        position += _SHORT.size
        length = _SHORT.pack(size)
    if not 0 < size <= _MOST_NAME_BYTES:
        return None, ZERO_UUID, b"", position
    encoded = bytes(data[position : position + size])
    return _name(encoded), ZERO_UUID, length + encoded, position + size


def _read_topic(
    data: memoryview, position: int, stop: int, request: PartitionsRequest, topic_name: _TopicNames, most_records: int
) -> int:
    """Read a topic into a request; the position behind it, -1 if it is not usual."""
    version = request.version
    is_flexible = version >= PRODUCE_FLEXIBLE
    name, topic_id, encoded, position = _read_name(data, position, version, topic_name)
    if name is None or name in INTERNAL_TOPICS:
        return -1
    if is_flexible:
        partitions, position = read_uvarint(data, position)
        partitions -= 1
        encoded += uvarint(max(partitions, 0) + 1)
    else:
        (partitions,) = _LENGTH.unpack_from(data, position)
        position += _LENGTH.size
        encoded += _LENGTH.pack(partitions)
    if partitions <= 0:
        return -1
    asked_name = "" if version >= PRODUCE_TOPIC_IDS else name
    request.topics.append(_Topic(asked_name, topic_id, encoded, partitions))
    records = request.records
    for _ in range(partitions):
        index, size = _INDEX_AND_SIZE.unpack_from(data, position)
        if is_flexible:
            size, position = read_uvarint(data, position + _LENGTH.size)
            size -= 1
        else:
            position += _INDEX_AND_SIZE.size
        end = position + size
        if size < HEADER_BYTES or end > stop:
            return -1
        header: HeaderFields = HEADER.unpack_from(data, position)
        codec = header[5] & COMPRESSION_MASK
        if codec == CompressionType.ZSTD and version < PRODUCE_ZSTD:
            return -1
        records += PARTITION_RECORDS
        if not codec:
            records += max(header[12], 0)
        if records > most_records:
            return -1
        request.partitions.append(new_tuple(TopicPartition, (name, index)))
        request.batches.append((data[position:end], header))
        position = end
        if is_flexible:
            if data[position]:
                return -1
            position += 1
    request.records = records
    if is_flexible:
        return -1 if data[position] else position + 1
    return position
