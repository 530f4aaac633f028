"""The fast path of usual Produce requests: from the bytes that arrived to the log, and from a template to the answer.

The general path (`produce`) can serve every request. It makes an object of each part of the request and of the response, although
requests of one producer for one partition are the same but for a few numbers::

    length  api key, version  correlation id | client id ... partition | records' size  batch header  records | tagged fields

The bytes between the first two bars are the request's prefix. A `_Route` holds what the general decoder read from one prefix. A
request with a known prefix and one batch is unpacked in one step. Requests for one partition that arrived together are appended in
one write (`barnabas.log.append_run`), and answered in one piece.

Requests for several partitions, and those for which there is no room among the routes, are read part by part
(`fast_produce_partitions`).

With acks=all they wait together for the in-sync replicas (`fast_produce_answers`), so the followers fetch them together. In the
general path each waits by itself, and the next is appended when it is answered.

Invariants:

- Only requests whose records are appended are served here. All others are left as they came to the general path, which knows
  the errors: topics that look into records, transactions, duplicates, new segments, too small an in-sync set.
- Answers, logs, indexes, producer state and high watermark are those of the general path. A test compares them.
- Answers leave in the order of the requests. While one waits, the connection delivers no other.

In Kafka: `KafkaApis.handleProduceRequest`, for these cases.
"""

import struct
from collections.abc import Mapping
from functools import lru_cache

from barnabas.base.ids import TopicPartition
from barnabas.broker.apis.fast_produce_answers import AppendedRequests, UnacknowledgedRequests, answers_of
from barnabas.broker.apis.fast_produce_partitions import SharedAppends, read_partitions
from barnabas.broker.apis.produce import (
    PRODUCE_FLEXIBLE,
    PRODUCE_TOPIC_IDS,
    PRODUCE_ZSTD,
    join_response,
    unacknowledged_response,
)
from barnabas.broker.apis.services import Services
from barnabas.broker.metadata.cache import INTERNAL_TOPICS
from barnabas.broker.replication.delayed_produce import commit_error
from barnabas.log.append_run import MOST_BATCHES, AppendRun
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.codec import reader
from barnabas.wire.kafka.errors import ErrorCode, KafkaError, MalformedMessageError
from barnabas.wire.kafka.frames import decode_request_header
from barnabas.wire.kafka.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from barnabas.wire.kafka.primitives import uvarint
from barnabas.wire.kafka.records.batch_header import COMPRESSION_MASK, HEADER, HEADER_BYTES, HeaderFields
from barnabas.wire.kafka.records.compression import CompressionType

__all__ = ["FastProduce"]

_LENGTH = struct.Struct(">i")
_START = struct.Struct(">hhih")
_NO_TRANSACTION = struct.Struct(">hhii")
_SHORT = struct.Struct(">h")
_ONE = b"\0\0\0\1"
_PREFIX_AT = 8
_MOST_ROUTES = 4_096
_MISSES_PER_ROUTE = 64
"""While there are so many routes, one of so many requests without one gets the place of the oldest: the busiest get it most."""
_MOST_RECORDS = 4_096
"""Most records of plain batches in one call, as each record is checked. The loop must not wait longer."""
_MOST_BYTES = 4 << 20
"""Most bytes in a request for several partitions: what is larger is appended in slices."""
_MOST_PREFIX_BYTES = 512
_LOG_START_OFFSET = 5
_UUID_BYTES = 16
_NO_TAGGED_FIELDS = b"\0\0\0"
"""Of the partition, the topic and the request."""
_NO_RECORDS = (b"\xff\xff\xff\xff", b"\0" + _NO_TAGGED_FIELDS)
_ONE_BYTE = (b"\0\0\0\1?", b"\2?" + _NO_TAGGED_FIELDS)
"""What may stand behind a prefix, in versions that are not flexible and those that are."""
_WIDTH_LIMITS = (127, 16_384, 2_097_153)
"""Size limits of records, with their length field, for a length field of one, two and three bytes."""

_Found = tuple[int, HeaderFields, memoryview]
"""Of one request its correlation id, and its batch's header and bytes."""
_Bounds = tuple[int, int]
"""Where a frame begins behind its length, and where it ends."""


@lru_cache(1024)
def _shape(prefix_bytes: int, size_bytes: int) -> struct.Struct:
    """A request from its start to the end of its batch's header; the records' size has so many bytes."""
    return struct.Struct(f">ii{prefix_bytes}s{size_bytes}s" + HEADER.format[1:])


@lru_cache(4096)
def _compact_size(size: int) -> bytes:
    """The size of compact bytes: a varint of one more."""
    return uvarint(size + 1)


def _frames(data: memoryview, start: int, stop: int, max_frame_bytes: int) -> list[_Bounds]:
    """Where a request is, and the whole frames behind it."""
    frames = [(start, stop)]
    end = len(data)
    while end - stop >= _LENGTH.size and len(frames) < MOST_BATCHES:
        start = stop + _LENGTH.size
        (size,) = _LENGTH.unpack_from(data, stop)
        stop = start + size
        if not 0 <= size <= max_frame_bytes or stop > end:
            break
        frames.append((start, stop))
    return frames


class _Route:
    """What a prefix says, and how requests with it are read and answered."""

    __slots__ = (
        "_answer",
        "_answer_bytes",
        "_before",
        "_behind",
        "_key",
        "_overhead_bytes",
        "_prefix",
        "acks",
        "timeout_ms",
        "topic",
        "topic_id",
        "topic_partition",
        "version",
    )

    def __init__(
        self,
        version: int,
        prefix: bytes,
        topic: TopicProduceData,
        topic_partition: TopicPartition,
        message: ProduceRequest,
    ) -> None:
        self.version = version
        self._key = ApiKey.PRODUCE << 16 | version
        self._prefix = prefix
        self._overhead_bytes = _PREFIX_AT + len(prefix) + (len(_NO_TAGGED_FIELDS) if version >= PRODUCE_FLEXIBLE else 0)
        self.topic = topic
        self.topic_partition = topic_partition
        self.topic_id = topic.topic_id if version >= PRODUCE_TOPIC_IDS else None
        self.acks = message.acks
        self.timeout_ms = message.timeout_ms
        first, other = (_encoded_answer(topic, topic_partition.partition, offset, version) for offset in (0, -1))
        offset_at = next(at for at, byte in enumerate(first) if byte != other[at])
        numbers = "qqq" if version >= _LOG_START_OFFSET else "qq"
        self._before = first[2 * _LENGTH.size : offset_at]
        self._behind = first[offset_at + struct.calcsize(">" + numbers) :]
        self._answer = struct.Struct(f">ii{len(self._before)}s{numbers}{len(self._behind)}s")
        self._answer_bytes = self._answer.size - _LENGTH.size

    def read(self, data: memoryview, start: int, stop: int) -> _Found | None:
        """Unpack a request; None if it has another prefix or is not usual."""
        size = stop - start - self._overhead_bytes
        if self.version < PRODUCE_FLEXIBLE:
            width, behind = 4, stop
        else:
            small, medium, large = _WIDTH_LIMITS
            width = 1 if size <= small else 2 if size <= medium else 3 if size <= large else 4
            behind = stop - 3
        size -= width
        if size < HEADER_BYTES:
            return None
        fields = _shape(len(self._prefix), width).unpack_from(data, start)
        if fields[2] != self._prefix or fields[0] != self._key:
            return None
        header: HeaderFields = fields[4:]
        if self.version < PRODUCE_FLEXIBLE:
            if fields[3] != _LENGTH.pack(size):
                return None
            if self.version < PRODUCE_ZSTD and header[5] & COMPRESSION_MASK == CompressionType.ZSTD:
                return None
        elif fields[3] != _compact_size(size) or data[behind:stop] != _NO_TAGGED_FIELDS:
            return None
        return fields[1], header, data[behind - size : behind]

    def answer(self, correlation_id: int, base_offset: int, log_start_offset: int) -> bytes:
        """The frame of an answer without an error."""
        if self.version < _LOG_START_OFFSET:
            return self._answer.pack(self._answer_bytes, correlation_id, self._before, base_offset, -1, self._behind)
        return self._answer.pack(
            self._answer_bytes, correlation_id, self._before, base_offset, -1, log_start_offset, self._behind
        )


def _encoded_answer(topic: TopicProduceData, index: int, base_offset: int, version: int) -> bytes:
    partition = PartitionProduceResponse(index=index, base_offset=base_offset, log_start_offset=0)
    answer = TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=[partition])
    return join_response(ProduceResponse(responses=[answer]), version, 0)


class _Run:
    """Requests of one route that are appended together (`barnabas.broker.apis.fast_produce_answers.AppendedRequests`)."""

    __slots__ = ("acks", "appends", "log_start_offset", "requests", "route")

    has_failed = False  # then the requests are left to the general path

    def __init__(self, route: _Route, appends: AppendRun) -> None:
        self.route = route
        self.acks = route.acks
        self.appends = appends
        self.requests: list[tuple[int, int]] = []
        """The correlation id and base offset of each."""
        self.log_start_offset = -1
        """When they were appended."""

    @property
    def count(self) -> int:
        return len(self.requests)

    @property
    def timeout_ms(self) -> int:
        return self.route.timeout_ms

    def last_offsets(self) -> dict[TopicPartition, int]:
        return {self.route.topic_partition: self.appends.last_offset}

    def encode_answers(self) -> list[bytes]:
        answer, log_start_offset = self.route.answer, self.log_start_offset
        return [answer(*request, log_start_offset) for request in self.requests]

    def encode_errors(self, services: Services, listener: str, _: Mapping[TopicPartition, ErrorCode]) -> list[bytes]:
        """The first requests of a run may be acknowledged, although the last is not."""
        route = self.route
        answers = []
        ends = [base_offset for _, base_offset in self.requests[1:]] + [self.appends.last_offset + 1]
        for (correlation_id, base_offset), end in zip(self.requests, ends, strict=True):
            code = commit_error(services.replicas.get(route.topic_partition), end - 1)
            if code is ErrorCode.NONE:
                answers.append(route.answer(correlation_id, base_offset, self.log_start_offset))
                continue
            response = unacknowledged_response(
                services,
                listener,
                route.version,
                route.topic,
                route.topic_partition.partition,
                ErrorCode.REQUEST_TIMED_OUT if code is None else code,
            )
            answers.append(join_response(response, route.version, correlation_id))
        return answers


class FastProduce:
    """See the module. One for all connections of a broker."""

    __slots__ = ("_last", "_misses", "_replicas", "_routes", "_services", "_topic_name", "_versions", "served_count")

    def __init__(self, services: Services, versions: range) -> None:
        """``versions`` are those that the general path serves."""
        self._services = services
        self._replicas = services.replicas
        self._topic_name = services.metadata.topic_name
        self._versions = versions
        self._routes: dict[bytes, _Route] = {}
        self._last: _Route | None = None
        self._misses = 0
        self.served_count = 0

    def serve(
        self, data: memoryview, start: int, stop: int, max_frame_bytes: int, now_ms: int
    ) -> tuple[int, list[bytes], UnacknowledgedRequests | None]:
        """Serve the request in ``data[start:stop]`` and whole frames behind it. The buffer may be changed and is not kept.

        ``now_ms`` is wall time. Returns where the last that is served ends, ``start`` if none is; the answers that may leave
        at once; and the requests behind those that wait.
        """
        frames = _frames(data, start, stop, max_frame_bytes)
        appended: list[AppendedRequests] = []
        number, left = 0, _MOST_RECORDS
        while number < len(frames) and left >= 0:
            route, found = self._last, None
            if route is not None:
                found = route.read(data, *frames[number])
            if found is None:
                route = self._find(data, *frames[number])
                found = None if route is None else route.read(data, *frames[number])
            if route is not None and found is not None:
                number, left = self._serve_run(route, found, data, frames, number, left, appended, now_ms)
            else:
                number, left = self._serve_partitions(data, frames, number, left, appended, now_ms)
        self.served_count = number
        served = frames[number - 1][1] if number else start
        return served, *answers_of(self._services, appended)

    def _serve_run(
        self,
        route: _Route,
        found: _Found,
        data: memoryview,
        frames: list[_Bounds],
        number: int,
        left: int,
        appended: list[AppendedRequests],
        now_ms: int,
    ) -> tuple[int, int]:
        """Append what a frame and those of the same route behind it have.

        Returns the number of the first frame that is not served, and how many records more may be checked; if that is negative,
        the rest is left.
        """
        run = self._begin(route, now_ms)
        if run is None:
            return number, -1
        begun = number
        read, add, requests = route.read, run.appends.add, run.requests
        while True:
            correlation_id, header, batch = found
            if not header[5] & COMPRESSION_MASK:
                left -= header[12]
                if left < 0 and number:
                    break
            first_offset = add(batch, header)
            if first_offset < 0:
                left = -1  # if another run takes it, that is the next call's
                break
            requests.append((correlation_id, first_offset))
            number += 1
            if number == len(frames):
                break
            next_found = read(data, *frames[number])
            if next_found is None:
                break
            found = next_found
        if not requests:
            return begun, -1
        try:
            run.log_start_offset = self._replicas.append_run(route.topic_partition, run.appends, now_ms)
        except KafkaError:
            return begun, -1
        appended.append(run)
        return number, left

    def _begin(self, route: _Route, now_ms: int) -> _Run | None:
        topic_partition = route.topic_partition
        if route.topic_id is not None and self._topic_name(route.topic_id) != topic_partition.topic:
            return None
        appends = self._replicas.begin_run(topic_partition, route.acks, now_ms)
        return None if appends is None else _Run(route, appends)

    def _serve_partitions(
        self,
        data: memoryview,
        frames: list[_Bounds],
        number: int,
        left: int,
        appended: list[AppendedRequests],
        now_ms: int,
    ) -> tuple[int, int]:
        """As `_serve_run`, for requests of the same acks."""
        shared: SharedAppends | None = None
        for start, stop in frames[number:]:
            request = None
            if stop - start <= _MOST_BYTES:
                request = read_partitions(data, start, stop, self._versions, self._topic_name, _MOST_RECORDS)
            if request is None:
                left = -1
                break
            if shared is None:
                shared = SharedAppends(self._replicas, request.acks, now_ms)
            elif shared.acks != request.acks:
                break
            left -= request.records
            if left < 0 and number:
                break
            if not shared.add(request):
                left = -1
                break
            number += 1
        if shared is not None:
            shared.write()
            appended += shared.requests
        return number, left

    # Reading prefixes

    def _find(self, data: memoryview, start: int, stop: int) -> _Route | None:
        """The route of a request; None if it is not usual."""
        try:
            prefix_bytes = _prefix_bytes(data, start)
        except (struct.error, IndexError):
            return None
        if not 0 < prefix_bytes <= _MOST_PREFIX_BYTES or start + _PREFIX_AT + prefix_bytes > stop:
            return None
        key = bytes(data[start : start + 4]) + data[start + _PREFIX_AT : start + _PREFIX_AT + prefix_bytes]
        route = self._routes.get(key)
        if route is None:
            is_full = len(self._routes) >= _MOST_ROUTES
            if is_full:
                self._misses += 1
                if self._misses % _MISSES_PER_ROUTE:
                    return None
            route = self._new_route(data, start, stop, key[4:])
            if route is None:
                return None
            if is_full:
                del self._routes[next(iter(self._routes))]
            self._routes[key] = route
        self._last = route
        return route

    def _new_route(self, data: memoryview, start: int, stop: int, prefix: bytes) -> _Route | None:
        """Read a prefix with the general decoder. It does not see what follows in the request, which may be large."""
        _, version, _, _ = _START.unpack_from(data, start)
        is_flexible = version >= PRODUCE_FLEXIBLE
        if version not in self._versions or (is_flexible and data[stop - 3 : stop] != _NO_TAGGED_FIELDS):
            return None
        before = bytes(data[start : start + _PREFIX_AT]) + prefix
        try:
            _, _, _, _, offset = decode_request_header(before)
            decode = reader(ProduceRequest, version)
            message: ProduceRequest = decode(before + _NO_RECORDS[is_flexible], offset)[0]
            other: ProduceRequest = decode(before + _ONE_BYTE[is_flexible], offset)[0]
        except MalformedMessageError:
            return None
        if message.transactional_id is not None or not -1 <= message.acks <= 1 or len(message.topic_data) != 1:
            return None
        topic = message.topic_data[0]
        name = self._topic_name(topic.topic_id) if version >= PRODUCE_TOPIC_IDS else topic.name
        if name is None or name in INTERNAL_TOPICS or len(topic.partition_data) != 1:
            return None
        partition = topic.partition_data[0]
        # The records begin where the prefix ends, if the decoder finds there what was put there.
        if partition.records is not None or other.topic_data[0].partition_data[0].records != b"?":
            return None
        route = _Route(version, prefix, topic, TopicPartition(name, partition.index), message)
        return None if route.read(data, start, stop) is None else route


# The prefix, before and since version 9 (sizes in bytes; (n) is a length and what it counts):
#
#   client id (2+n) | transactional id -1 (2) | acks (2) | timeout (4) | topics 1 (4) | name (2+n) | partitions 1 (4) | index (4)
#
#   client id (2+n) | tagged fields 0 (1) | transactional id 0 (1) | acks (2) | timeout (4) | topics 2 (1)
#   | name (1+n), or topic id (16) since version 13 | partitions 2 (1) | index (4)


def _prefix_bytes(data: memoryview, start: int) -> int:
    """The size of the prefix of a Produce request for one partition; 0 for others."""
    position: int
    api_key, version, _, client_id_bytes = _START.unpack_from(data, start)
    if api_key != ApiKey.PRODUCE or client_id_bytes < -1:
        return 0
    position = start + _START.size + max(client_id_bytes, 0)
    if version < PRODUCE_FLEXIBLE:
        transactional_id_bytes, _, _, topics = _NO_TRANSACTION.unpack_from(data, position)
        if transactional_id_bytes != -1 or topics != 1:
            return 0
        position += _NO_TRANSACTION.size
        (topic_bytes,) = _SHORT.unpack_from(data, position)
        position += _SHORT.size + topic_bytes
        if data[position : position + 4] != _ONE:
            return 0
        return position + 8 - start - _PREFIX_AT
    # No tagged fields, no transactional id; compact arrays of one.
    if data[position] or data[position + 1] or data[position + 8] != 2:
        return 0
    position += 9
    position += _UUID_BYTES if version >= PRODUCE_TOPIC_IDS else data[position]
    if data[position] != 2:
        return 0
    return position + 5 - start - _PREFIX_AT
