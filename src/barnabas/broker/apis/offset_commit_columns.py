"""The first reader of OffsetCommit requests: from their bytes to columns, and from these to
the bytes of the answer.

Most commits name some partitions, without metadata, so each offset has the same size and all of a
topic are unpacked at once::

    api key, version, correlation id | client id, group, generation, member
    | topics: name, (partition, offset, epoch, no metadata)

What the client may commit, what the group decides, the append, and the wait for the in-sync
replicas are the same for both readers (`commit_allowed`, `GroupService.commit_offsets`). Metadata,
anything large or damaged, and requests that come before the first metadata are left to the second
one (`offset_commit`).

In Kafka: the generated `OffsetCommitRequestData.read`, and `OffsetCommitResponseData.write`.
"""

import logging
import struct
from collections.abc import Callable, Sequence

from barnabas.base.files import FileSlice
from barnabas.base.ids import Uuid
from barnabas.base.tasks import done_here
from barnabas.broker.apis.offset_commit import COMMIT_TOPIC_IDS, commit_allowed, response_to, set_codes
from barnabas.broker.apis.request_parts import (
    REQUEST_START,
    UNREADABLE_PARTS,
    read_client_id,
    read_count,
    read_string,
    read_topic,
    skip_no_tags,
)
from barnabas.broker.authorizer.auth_helper import AuthHelper
from barnabas.broker.groups.commits import CommitSender, OffsetCommit, TopicOffsets
from barnabas.broker.groups.records import MOST_PLAIN_OFFSETS
from barnabas.broker.groups.service import GroupService
from barnabas.broker.metadata.cache import MetadataCache
from barnabas.broker.requests.request import ClientFacts
from barnabas.wire.kafka.errors import ErrorCode, KafkaError
from barnabas.wire.kafka.frames import encode_response

__all__ = ["CommitsByColumns", "ReadCommit", "read_offset_columns"]

logger = logging.getLogger(__name__)

# The versions since which a request has these, is flexible, or has no retention times.
_FLEXIBLE = 8
_LEADER_EPOCHS = 6
_INSTANCE_IDS = 7
_NO_RETENTION_TIMES = 5
_THROTTLE_TIMES = 3

_INT = struct.Struct(">i")
_LONG = struct.Struct(">q")
_SHORT = struct.Struct(">h")
_PARTITION = struct.Struct(">iqih")
_PARTITION_WITHOUT_EPOCH = struct.Struct(">iqh")
_ANSWER = struct.Struct(">ii")
_NO_METADATA = frozenset((-1, 0))
"""The lengths of null and empty metadata."""
_NO_COMPACT_METADATA = frozenset((0, 0x100))
"""The same as compact strings, with the tagged fields behind them: none."""


class _Words:
    """What an answer repeats of its request."""

    __slots__ = ("_count", "_heads", "_topics", "_version")

    def __init__(self, version: int, count: bytes, heads: list[bytes], topics: list[TopicOffsets]) -> None:
        """``count`` is the number of topics, ``heads`` has the name or id of each and the number of
        its partitions, as they came."""
        self._version = version
        self._count = count
        self._heads = heads
        self._topics = topics

    def encode(self, correlation_id: int, codes: Sequence[ErrorCode]) -> bytes:
        """The frame of the answer with the error code of each partition."""
        version, code = self._version, codes[0]
        if codes.count(code) != len(codes):
            response = done_here(response_to(self._topics))
            set_codes(response, codes)
            parts = encode_response(response, version, correlation_id)
            return b"".join(bytes(part) for part in parts if not isinstance(part, FileSlice))
        is_flexible = version >= _FLEXIBLE
        behind = _SHORT.pack(code) + b"\0" if is_flexible else _SHORT.pack(code)
        tagged = b"\0" if is_flexible else b""
        pieces = [tagged, b"\0\0\0\0" if version >= _THROTTLE_TIMES else b"", self._count]
        for head, topic in zip(self._heads, self._topics, strict=True):
            pieces += (head, behind.join(map(_INT.pack, topic.partitions)), behind, tagged)
        pieces.append(tagged)
        body = b"".join(pieces)
        return _ANSWER.pack(len(body) + 4, correlation_id) + body


ReadCommit = tuple[int, OffsetCommit, _Words]
"""A request, its correlation id, and its answer."""


def read_offset_columns(
    data: memoryview, start: int, stop: int, versions: range, topic_name: Callable[[Uuid], str | None]
) -> ReadCommit | None:
    """Read the OffsetCommit request in ``data[start:stop]``.

    None if the general decoder must read it."""
    try:
        return _read(data, start, stop, versions, topic_name)
    except UNREADABLE_PARTS:
        return None


def _read(
    data: memoryview, start: int, stop: int, versions: range, topic_name: Callable[[Uuid], str | None]
) -> ReadCommit | None:
    _, version, correlation_id, _ = REQUEST_START.unpack_from(data, start)
    if version not in versions:
        return None
    is_flexible = version >= _FLEXIBLE
    sender, retention_ms, count_at = _read_sender(data, start, version)
    count, at = read_count(data, count_at, is_flexible)
    if sender is None or not 0 < count <= MOST_PLAIN_OFFSETS:
        return None
    count_bytes = bytes(data[count_at:at])
    entry = _PARTITION if version >= _LEADER_EPOCHS else _PARTITION_WITHOUT_EPOCH
    heads: list[bytes] = []
    topics: list[TopicOffsets] = []
    left = MOST_PLAIN_OFFSETS
    name_of_id = topic_name if version >= COMMIT_TOPIC_IDS else None
    for _ in range(count):
        topic_at = at
        name, topic_id, at = read_topic(data, at, is_flexible, name_of_id)
        partition_count, at = read_count(data, at, is_flexible)
        end = at + partition_count * entry.size
        left -= partition_count
        if name is None or partition_count <= 0 or left < 0 or end > stop:
            return None
        columns = tuple(zip(*entry.iter_unpack(data[at:end]), strict=True))
        if not (_NO_COMPACT_METADATA if is_flexible else _NO_METADATA).issuperset(columns[-1]):
            return None
        epochs = columns[2] if entry is _PARTITION else (-1,) * partition_count
        topics.append(TopicOffsets(name, topic_id, columns[0], columns[1], epochs, None))
        heads.append(bytes(data[topic_at:at]))
        at = skip_no_tags(data, end) if is_flexible else end
    if is_flexible:
        at = skip_no_tags(data, at)
    if at != stop:
        return None
    return correlation_id, OffsetCommit(sender, topics, retention_ms), _Words(version, count_bytes, heads, topics)


def _read_sender(data: memoryview, start: int, version: int) -> tuple[CommitSender | None, int, int]:
    """Who commits, for how long that is kept, and where the topics begin.

    No sender if one of its names is null."""
    is_flexible = version >= _FLEXIBLE
    _, at = read_client_id(data, start, is_flexible)
    group_id, at = read_string(data, at, is_flexible)
    (generation,) = _INT.unpack_from(data, at)
    member_id, at = read_string(data, at + _INT.size, is_flexible)
    instance_id, retention_ms = None, -1
    if version >= _INSTANCE_IDS:
        instance_id, at = read_string(data, at, is_flexible)
    elif version < _NO_RETENTION_TIMES:
        (retention_ms,) = _LONG.unpack_from(data, at)
        at += _LONG.size
    if group_id is None or member_id is None:
        return None, retention_ms, at
    return CommitSender(group_id, generation, member_id, instance_id), retention_ms, at


class _Request:
    """One request until its answer (`barnabas.broker.requests.dispatch.Unanswered`)."""

    __slots__ = ("_correlation_id", "_send", "_words", "answer")

    count = 1

    def __init__(self, correlation_id: int, words: _Words) -> None:
        self._correlation_id = correlation_id
        self._words = words
        self._send: Callable[[list[bytes], bool], None] | None = None
        self.answer: bytes | None = None

    def reply(self, commit: OffsetCommit) -> None:
        """Take the outcome: the answer leaves now if the request waits, else soon."""
        self.answer = answer = self._words.encode(self._correlation_id, commit.codes)
        send, self._send = self._send, None
        if send is not None:
            send([answer], True)

    def wait(self, send: Callable[[list[bytes], bool], None], _close: Callable[[], None]) -> None:
        self._send = send

    def abandon(self) -> None:
        self._send = None


class CommitsByColumns:
    """Serves the common requests of all connections of a broker
    (`barnabas.broker.requests.dispatch.FastPath`)."""

    __slots__ = ("_auth_helper", "_groups", "_metadata", "_versions")

    served_count = 1

    def __init__(self, auth_helper: AuthHelper, groups: GroupService, metadata: MetadataCache, versions: range) -> None:
        """``versions`` are those that the broker serves."""
        self._versions = versions
        self._auth_helper = auth_helper
        self._groups = groups
        self._metadata = metadata

    def serve(
        self, client: ClientFacts, data: memoryview, start: int, stop: int, _max_frame_bytes: int, _now_ms: int
    ) -> tuple[int, list[bytes], _Request | None]:
        """See `barnabas.broker.requests.dispatch.FastPath`. Frames behind the first are left."""
        read = None
        if not self._metadata.is_loading:
            read = read_offset_columns(data, start, stop, self._versions, self._metadata.topic_name)
        if read is None:
            return start, [], None
        correlation_id, commit, words = read
        request = _Request(correlation_id, words)
        try:
            done_here(commit_allowed(self._auth_helper, self._groups, client, commit, request.reply))
        except Exception as error:
            if not isinstance(error, KafkaError):
                logger.exception("[OffsetCommit of %s] failed", commit.sender)
            if request.answer is None:
                code = error.code if isinstance(error, KafkaError) else ErrorCode.UNKNOWN_SERVER_ERROR
                commit.codes = [code] * sum(len(topic.partitions) for topic in commit.topics)
                request.reply(commit)
        if request.answer is None:
            return stop, [], request
        return stop, [request.answer], None
