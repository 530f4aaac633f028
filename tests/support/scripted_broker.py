"""A cluster of two brokers with one partition, whose answers to Fetch are scripted: a real TCP
server on our own codec.

Without a script it is honest, about the batches it was given. A script is a list of `Turn`s, one
for each Fetch request in their order; the last one may be repeated. A turn gets the honest answer
and gives another one, or bytes, or nothing: the connection is then closed. Other APIs are honest,
and may be scripted in the same way.
"""

import copy
import socket
import struct
import threading
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, Self

from barnabas.base.ids import Uuid
from barnabas.wire.kafka.api import ApiKey, api
from barnabas.wire.kafka.codec import decode
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.frames import decode_request_header, encode_response
from barnabas.wire.kafka.messages import api_versions, fetch, list_offsets, metadata
from barnabas.wire.kafka.records.batch_header import read_headers, seal
from barnabas.wire.kafka.records.control import EndMarker, build_end_marker
from barnabas.wire.kafka.records.records import Record, build_batch
from barnabas.wire.kafka.schema import Message

__all__ = ["TOPIC", "ScriptedBroker", "Turn", "batch", "marker", "old_batch"]

TOPIC = "t"
Turn = Callable[[Any], Message | bytes | None]
"""From the honest answer to the one that is sent; None closes the connection."""

_OFFERED = {
    ApiKey.API_VERSIONS: (0, 3),
    ApiKey.METADATA: (0, 9),
    ApiKey.LIST_OFFSETS: (1, 5),
    ApiKey.FETCH: (4, 12),
    ApiKey.PRODUCE: (3, 8),  # not served: librdkafka looks there for the format of records
}
_LENGTH = struct.Struct(">i")
_NOW_MS = 1_700_000_000_000
_EARLIEST = -2
_WAIT_MS = 5
"""An answer without records comes after so much of the time that the request allows."""


def batch(first: int, last: int, *, offsets: Iterable[int] | None = None, **options: Any) -> bytes:
    """A batch of records with these offsets, whose values are the offsets as text.

    ``last`` may be behind them."""
    kept = list(range(first, last + 1) if offsets is None else offsets)
    data = build_batch([Record(each, _NOW_MS, None, b"%d" % each) for each in kept], base_offset=first, **options)
    if kept[-1] != last:
        struct.pack_into(">i", data, 23, last - first)
        seal(data)
    return bytes(data)


def marker(offset: int, producer_id: int, *, is_abort: bool) -> bytes:
    """The control batch that ends a transaction."""
    return bytes(
        build_end_marker(
            EndMarker(is_abort, 0),
            offset=offset,
            timestamp_ms=_NOW_MS,
            producer_id=producer_id,
            producer_epoch=0,
            leader_epoch=0,
        )
    )


def old_batch(offset: int) -> bytes:
    """A record of format 1, as Kafka 0.10 has it; its value is the offset as text."""
    value = b"%d" % offset
    rest = struct.pack(">bbqii", 1, 0, _NOW_MS, -1, len(value)) + value
    message = struct.pack(">I", zlib.crc32(rest)) + rest
    return struct.pack(">qi", offset, len(message)) + message


class ScriptedBroker:
    """Brokers 0 and 1; serves inside a ``with``. Change the public fields at any time."""

    def __init__(self, batches: Sequence[bytes], *, end: int | None = None) -> None:
        """``end`` is the high watermark, by itself that of the batches."""
        self.batches = [bytes(each) for each in batches]
        self.start = 0
        self.end = self._end_of_batches() if end is None else end
        self.last_stable: int | None = None
        self.aborted: list[tuple[int, int, int]] = []
        """Producer, first offset, and the marker's offset of aborted transactions."""
        self.leader = 0
        self.offered = dict(_OFFERED)
        self.turns: deque[Turn] = deque()
        self.then: Turn | None = None
        """For all requests after the script."""
        self.metadata_turns: deque[Turn] = deque()
        self.offsets_turns: deque[Turn] = deque()
        self.fetches: list[tuple[int, int, int]] = []
        """Broker, offset and isolation level of each Fetch."""
        self.times_s: list[float] = []
        """When each Fetch came."""
        self._servers = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
        self.ports = [each.getsockname()[1] for each in self._servers]
        self.address = f"127.0.0.1:{self.ports[0]}"
        self._sockets: set[socket.socket] = set()

    def script(self, *turns: Turn, then: Turn | None = None) -> Self:
        """What the next Fetch requests are answered."""
        self.turns, self.then = deque(turns), then
        return self

    def __enter__(self) -> Self:
        for number, server in enumerate(self._servers):
            threading.Thread(target=self._accept, args=(number, server), name="scripted broker", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for each in (*self._servers, *self._sockets):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _end_of_batches(self) -> int:
        ends = [0]
        for data in self.batches:
            ends += [header.last_offset + 1 for _, header in read_headers(data)]
        return max(ends)

    def _accept(self, number: int, server: socket.socket) -> None:
        with suppress(OSError):
            while True:
                client, _ = server.accept()
                self._sockets.add(client)
                threading.Thread(target=self._serve, args=(number, client), daemon=True).start()

    def _serve(self, number: int, client: socket.socket) -> None:
        with suppress(OSError), client:
            while len(prefix := _receive(client, 4)) == 4:
                request = _receive(client, _LENGTH.unpack(prefix)[0])
                header = decode_request_header(request)
                version = header.api_version
                if version > self.offered.get(ApiKey(header.api_key), (0, -1))[1]:
                    version, answer = 0, api_versions.ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
                    client.sendall(_framed(answer, version, header.correlation_id))
                    continue
                message: Any = decode(api(header.api_key).request, version, request, header.body_offset)
                said = self._answer(number, message)
                if said is None:
                    return
                if isinstance(said, Message):
                    said = _framed(said, version, header.correlation_id)
                else:  # bytes are cut short: the connection ends inside the answer
                    client.sendall(said)
                    return
                client.sendall(said)

    def _answer(self, number: int, request: Any) -> Message | bytes | None:
        if request.API_KEY == ApiKey.API_VERSIONS:
            offers = [
                api_versions.ApiVersion(api_key=key, min_version=first, max_version=last)
                for key, (first, last) in self.offered.items()
            ]
            return api_versions.ApiVersionsResponse(api_keys=offers)
        if request.API_KEY == ApiKey.METADATA:
            turns, honest = self.metadata_turns, self._metadata()
        elif request.API_KEY == ApiKey.LIST_OFFSETS:
            turns, honest = self.offsets_turns, self._offsets(number, request)
        else:
            self.times_s.append(time.monotonic())
            turns, honest = self.turns, self._fetched(number, request)
        is_fetch = request.API_KEY == ApiKey.FETCH
        turn = turns.popleft() if turns else self.then if is_fetch else None
        answer = honest if turn is None else turn(honest)
        if is_fetch and isinstance(answer, Message) and not any(bytes(each.records or b"") for each in _parts(answer)):
            time.sleep(min(request.max_wait_ms, _WAIT_MS) / 1000)
        return answer

    def _metadata(self) -> Message:
        brokers = [
            metadata.MetadataResponseBroker(node_id=number, host="127.0.0.1", port=port)
            for number, port in enumerate(self.ports)
        ]
        partition = metadata.MetadataResponsePartition(
            partition_index=0, leader_id=self.leader, leader_epoch=1, replica_nodes=[0, 1], isr_nodes=[0, 1]
        )
        topic = metadata.MetadataResponseTopic(name=TOPIC, topic_id=Uuid(bytes(16)), partitions=[partition])
        return metadata.MetadataResponse(brokers=brokers, cluster_id="scripted", controller_id=0, topics=[topic])

    def _offsets(self, number: int, request: Any) -> Message:
        asked = request.topics[0].partitions[0]
        answer = list_offsets.ListOffsetsPartitionResponse(partition_index=0, leader_epoch=1)
        if number != self.leader:
            answer.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        else:
            end = self._stable if request.isolation_level else self.end
            answer.offset = self.start if asked.timestamp == _EARLIEST else end
        topic = list_offsets.ListOffsetsTopicResponse(name=TOPIC, partitions=[answer])
        return list_offsets.ListOffsetsResponse(topics=[topic])

    @property
    def _stable(self) -> int:
        return self.end if self.last_stable is None else self.last_stable

    def _fetched(self, number: int, request: Any) -> Message:
        part = request.topics[0].partitions[0] if request.topics else None
        if part is None:  # librdkafka before it knows the offset
            return fetch.FetchResponse()
        self.fetches.append((number, part.fetch_offset, request.isolation_level))
        answer = fetch.PartitionData(
            partition_index=0,
            high_watermark=self.end,
            last_stable_offset=self._stable,
            log_start_offset=self.start,
            aborted_transactions=None,
            records=b"",
        )
        if number != self.leader:
            answer.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            answer.current_leader = fetch.LeaderIdAndEpoch(leader_id=self.leader, leader_epoch=1)
        elif not self.start <= part.fetch_offset <= max(self.end, self._end_of_batches()):
            answer.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
        else:
            end = self._stable if request.isolation_level else self.end
            answer.records = self._records(part.fetch_offset, end, part.partition_max_bytes)
            if request.isolation_level:
                answer.aborted_transactions = [
                    fetch.AbortedTransaction(producer_id=producer, first_offset=first)
                    for producer, first, last in self.aborted
                    if last >= part.fetch_offset
                ]
        topic = fetch.FetchableTopicResponse(topic=TOPIC, partitions=[answer])
        return fetch.FetchResponse(responses=[topic])

    def _records(self, offset: int, end: int, most: int) -> bytes:
        """Batches from an offset on, the first one whole, the last one perhaps cut off."""
        found = b""
        for data in self.batches:
            first, last = _offsets_of(data)
            if last >= offset and first < end and self.start <= last:
                found += data
        first_size = _LENGTH.unpack_from(found, 8)[0] + 12 if found else 0
        return found[: max(most, first_size)]


def _offsets_of(data: bytes) -> tuple[int, int]:
    if data[16] < 2:
        (offset,) = struct.unpack_from(">q", data)
        return offset, offset
    headers = [header for _, header in read_headers(data)]
    return headers[0].base_offset, headers[-1].last_offset


def _framed(message: Message, version: int, correlation_id: int) -> bytes:
    return b"".join(bytes(part) for part in encode_response(message, version, correlation_id))  # type: ignore[arg-type]


def _receive(source: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size and (piece := source.recv(size - len(data))):
        data += piece
    return bytes(data)


# Turns


def honest(answer: Any) -> Any:
    """As it is."""
    return answer


def throttled(ms: int, *, empty: bool = True) -> Turn:
    """The quota is used up: nothing now (KIP-219), or all, and a pause after it."""

    def turn(answer: Any) -> Any:
        answer.throttle_time_ms = ms
        if empty:
            answer.responses = []
        return answer

    return turn


def empty(answer: Any) -> Any:
    """No records, though there are some."""
    for each in _parts(answer):
        each.records = b""
    return answer


def error(code: int, *, leader: int | None = None) -> Turn:
    """An error of the partition."""

    def turn(answer: Any) -> Any:
        for each in _parts(answer):
            each.error_code, each.records = code, b""
            each.current_leader = None if leader is None else fetch.LeaderIdAndEpoch(leader_id=leader, leader_epoch=2)
        return answer

    return turn


def whole_error(code: int) -> Turn:
    """An error of the request, a session's say."""

    def turn(answer: Any) -> Any:
        answer.error_code, answer.responses = code, []
        return answer

    return turn


def records(change: Callable[[bytes], bytes]) -> Turn:
    """Other bytes in place of the records."""

    def turn(answer: Any) -> Any:
        for each in _parts(answer):
            each.records = change(bytes(each.records))
        return answer

    return turn


def fields(**values: Any) -> Turn:
    """Other fields of the partition."""

    def turn(answer: Any) -> Any:
        for each in _parts(answer):
            for name, value in values.items():
                setattr(each, name, copy.deepcopy(value))
        return answer

    return turn


def cut(answer: Any) -> bytes:
    """The connection ends inside the answer."""
    data = _framed(answer, 12, 0)
    return data[: len(data) * 2 // 3]


def closed(_: Any) -> None:
    """The connection ends before the answer."""
    return


def _parts(answer: Any) -> list[Any]:
    return [each for topic in answer.responses for each in topic.partitions]
