"""The fast path of usual OffsetCommit requests: from their bytes to the records, and to the bytes of the answer.

The general path (`offset_commit`) makes three objects for each offset between the request and the answer. Most commits name some
partitions that exist, without metadata, so that each offset has the same size::

    api key, version, correlation id | client id, group, generation, member | topics: name, (partition, offset, epoch, no metadata)

The bytes between the bars are the sender's, and the same in all its commits of a generation; what they say is kept. What the group
decides, the append, and the wait for the in-sync replicas are those of the general path (`GroupService.commit_prepared`).

Invariants:

- Nothing is changed before a request is read to its end. What is not usual is left to the general path: metadata, expiry times,
  unknown partitions, topic ids, anything large or damaged.
- Answers, records and the state of groups are those of the general path. A test compares them.

In Kafka: `KafkaApis.handleOffsetCommitRequest`, for these cases.
"""

import logging
import struct
from collections.abc import Callable

from barnabas.broker.apis.services import Services
from barnabas.broker.groups.commits import CommitSender, PlainCommit
from barnabas.broker.groups.records import MOST_PLAIN_OFFSETS
from barnabas.broker.requests.request import ClientFacts
from barnabas.wire.kafka.errors import ErrorCode, KafkaError

__all__ = ["FastOffsetCommit"]

logger = logging.getLogger(__name__)

# The versions since which a request has these, is flexible, or has no retention times.
_FLEXIBLE = 8
_TOPIC_IDS = 10
_LEADER_EPOCHS = 6
_INSTANCE_IDS = 7
_NO_RETENTION_TIMES = 5
_THROTTLE_TIMES = 3

_LENGTH = struct.Struct(">i")
_START = struct.Struct(">hhih")
_SHORT = struct.Struct(">h")
_PARTITION = struct.Struct(">iqih")
_PARTITION_WITHOUT_EPOCH = struct.Struct(">iqh")
_ANSWER = struct.Struct(">ii")
_NO_METADATA = frozenset((-1, 0))
"""The lengths of null and empty metadata."""
_NO_COMPACT_METADATA = frozenset((0, 0x100))
"""The same as compact strings, with the tagged fields behind them: none."""
_SENDER_AT = 8
_MOST_SENDER_BYTES = 512
_MOST_SENDERS = 4_096
_TWO_BYTES = 128
"""From here on a varint has more than one byte."""

_Topic = tuple[bytes, tuple[int, ...]]
"""A topic's name and number of partitions, as they came and as they go back, and the partitions."""


class _UnusualError(Exception):
    """The request is left to the general path."""


class _Request:
    """One request, from its bytes to its answer (`barnabas.broker.requests.dispatch.Unanswered`)."""

    __slots__ = ("_correlation_id", "_count", "_send", "_topics", "_version", "answer")

    count = 1

    def __init__(self, version: int, correlation_id: int, count: bytes, topics: list[_Topic]) -> None:
        self._version = version
        self._correlation_id = correlation_id
        self._count = count
        self._topics = topics
        self._send: Callable[[list[bytes], bool], None] | None = None
        self.answer: bytes | None = None

    def reply(self, commit: PlainCommit) -> None:
        """Take the outcome: the answer leaves now if the request waits, else soon."""
        self.answer = answer = self._encoded(commit.error)
        send, self._send = self._send, None
        if send is not None:
            send([answer], True)

    def wait(self, send: Callable[[list[bytes], bool], None], _close: Callable[[], None]) -> None:
        self._send = send

    def abandon(self) -> None:
        self._send = None

    def _encoded(self, code: ErrorCode) -> bytes:
        version = self._version
        is_flexible = version >= _FLEXIBLE
        behind = _SHORT.pack(code) + b"\0" if is_flexible else _SHORT.pack(code)
        tagged = b"\0" if is_flexible else b""
        pack = _LENGTH.pack
        pieces = [tagged, b"\0\0\0\0" if version >= _THROTTLE_TIMES else b"", self._count]
        for name_and_count, partitions in self._topics:
            pieces += (name_and_count, behind.join(map(pack, partitions)), behind, tagged)
        pieces.append(tagged)
        body = b"".join(pieces)
        return _ANSWER.pack(len(body) + 4, self._correlation_id) + body


class FastOffsetCommit:
    """See the module. One for all connections of a broker."""

    __slots__ = ("_groups", "_metadata", "_senders", "_versions")

    served_count = 1

    def __init__(self, services: Services, versions: range) -> None:
        """``versions`` are those that the general path serves; topics with ids are left to it."""
        self._versions = range(versions.start, min(versions.stop, _TOPIC_IDS))
        self._groups = services.groups
        self._metadata = services.metadata
        self._senders: dict[bytes, CommitSender] = {}

    def serve(
        self, _client: ClientFacts, data: memoryview, start: int, stop: int, _max_frame_bytes: int, now_ms: int
    ) -> tuple[int, list[bytes], _Request | None]:
        """See `barnabas.broker.requests.dispatch.FastPath`. Frames behind the first are left."""
        if self._metadata.is_loading:
            return start, [], None
        try:
            commit, request = self._read(data, start, stop, now_ms)
        except (struct.error, IndexError, UnicodeDecodeError, _UnusualError):
            return start, [], None
        try:
            self._groups.commit_prepared(commit, request.reply)
        except Exception as error:
            if not isinstance(error, KafkaError):
                logger.exception("[OffsetCommit of %s] failed", commit.request)
            if request.answer is None:
                commit.refuse(error.code if isinstance(error, KafkaError) else ErrorCode.UNKNOWN_SERVER_ERROR)
                request.reply(commit)
        if request.answer is None:
            return stop, [], request
        return stop, [request.answer], None

    def _read(self, data: memoryview, start: int, stop: int, now_ms: int) -> tuple[PlainCommit, _Request]:
        """A request's commit and its way back. Raises `_UnusualError`, `struct.error`, `IndexError` or `UnicodeDecodeError`."""
        _, version, correlation_id, _ = _START.unpack_from(data, start)
        if version not in self._versions:
            raise _UnusualError
        is_flexible = version >= _FLEXIBLE
        at = _end_of_sender(data, start, version)
        if at - start > _MOST_SENDER_BYTES:
            raise _UnusualError
        sender_bytes = bytes(data[start + 2 : start + 4]) + data[start + _SENDER_AT : at]
        sender = self._senders.get(sender_bytes)
        if sender is None:
            sender = self._new_sender(sender_bytes, version)
        commit = PlainCommit(sender)
        entry = _PARTITION if version >= _LEADER_EPOCHS else _PARTITION_WITHOUT_EPOCH
        topics: list[_Topic] = []
        count_at = at
        at, count = _count(data, at, is_flexible)
        if not 0 < count <= MOST_PLAIN_OFFSETS:
            raise _UnusualError
        count_bytes = bytes(data[count_at:at])
        room = MOST_PLAIN_OFFSETS
        for _ in range(count):
            name_at = at
            at, name_end = _text(data, at, is_flexible)
            name = str(data[at:name_end], "utf-8")
            at, partition_count = _count(data, name_end, is_flexible)
            end = at + partition_count * entry.size
            room -= partition_count
            if partition_count <= 0 or room < 0 or end > stop:
                raise _UnusualError
            columns = tuple(zip(*entry.iter_unpack(data[at:end]), strict=True))
            partitions = columns[0]
            existing = self._metadata.partitions(name)
            if not (_NO_COMPACT_METADATA if is_flexible else _NO_METADATA).issuperset(columns[-1]) or not all(
                map(existing.__contains__, partitions)
            ):
                raise _UnusualError
            epochs = columns[2] if entry is _PARTITION else (-1,) * partition_count
            commit.add(name, partitions, columns[1], epochs, now_ms)
            topics.append((bytes(data[name_at:at]), partitions))
            at = _skip_no_tags(data, end) if is_flexible else end
        if is_flexible:
            at = _skip_no_tags(data, at)
        if at != stop:
            raise _UnusualError
        return commit, _Request(version, correlation_id, count_bytes, topics)

    def _new_sender(self, sender_bytes: bytes, version: int) -> CommitSender:
        sender = _decoded_sender(sender_bytes, version)
        if len(self._senders) >= _MOST_SENDERS:
            self._senders.clear()
        self._senders[sender_bytes] = sender
        return sender


def _count(data: memoryview, at: int, is_flexible: bool) -> tuple[int, int]:
    """Where the elements of an array begin, and how many there are."""
    if not is_flexible:
        return at + 4, _LENGTH.unpack_from(data, at)[0]
    count = data[at]
    if count >= _TWO_BYTES:
        raise _UnusualError
    return at + 1, count - 1


def _text(data: memoryview, at: int, is_flexible: bool) -> tuple[int, int]:
    """Where a string that is not null begins and ends."""
    if is_flexible:
        at, size = _count(data, at, True)
    else:
        (size,) = _SHORT.unpack_from(data, at)
        at += 2
    if size < 0:
        raise _UnusualError
    return at, at + size


def _skip_no_tags(data: memoryview, at: int) -> int:
    if data[at]:
        raise _UnusualError
    return at + 1


def _end_of_sender(data: memoryview, start: int, version: int) -> int:
    """Where the array of topics begins."""
    sizes = _SHORT.unpack_from
    at: int = start + _SENDER_AT
    at += 2 + max(sizes(data, at)[0], 0)
    if version >= _FLEXIBLE:
        at += 1  # no tagged fields
        at += data[at] + 4  # a compact size counts itself
        at += data[at]
        return at + (data[at] or 1)
    at += 2 + sizes(data, at)[0] + 4
    at += 2 + sizes(data, at)[0]
    if version >= _INSTANCE_IDS:
        at += 2 + max(sizes(data, at)[0], 0)
    elif version < _NO_RETENTION_TIMES:
        at += 8
    return at


def _decoded_sender(sender_bytes: bytes, version: int) -> CommitSender:
    """What the bytes between the correlation id and the topics say, behind the version."""
    data = memoryview(sender_bytes)[2:]
    (size,) = _SHORT.unpack_from(data)
    at = 2 + max(size, 0)
    str(data[2:at], "utf-8")  # else the connection is closed
    is_flexible = version >= _FLEXIBLE
    if is_flexible:
        at = _skip_no_tags(data, at)
    at, end = _text(data, at, is_flexible)
    group_id = str(data[at:end], "utf-8")
    (generation,) = _LENGTH.unpack_from(data, end)
    at, end = _text(data, end + 4, is_flexible)
    member_id = str(data[at:end], "utf-8")
    instance_id = None
    if version >= _INSTANCE_IDS:
        is_null = not data[end] if is_flexible else _SHORT.unpack_from(data, end)[0] < 0
        if not is_null:
            at, end = _text(data, end, is_flexible)
            instance_id = str(data[at:end], "utf-8")
    elif version < _NO_RETENTION_TIMES and data[end : end + 8] != b"\xff" * 8:
        raise _UnusualError
    return CommitSender(group_id, generation, member_id, instance_id)
