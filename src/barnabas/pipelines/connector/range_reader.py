"""Which broker is asked for a range of one partition, and when: the I/O of our own
reader, in a worker of Spark.

Whole batches of our own wire codec become Arrow columns. What follows from an answer is decided
in `range_progress`. The reader asks the partition's leader, follows it when it moves, and waits
while there is none, up to fetchTimeoutMs. It sends nothing to a broker that throttles it, for as
long as the broker said. `can_read` says whether the options ask for what only librdkafka has.
Kafka: Fetcher, OffsetFetcher.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, NamedTuple, TypeVar

import pyarrow as pa

from barnabas.base.errors import BarnabasError, CorruptDataError
from barnabas.client.cluster.admin_connection import AdminConnection, ConnectError
from barnabas.client.errors import ProtocolError
from barnabas.pipelines.cluster.offsets import EARLIEST, LATEST, Range
from barnabas.pipelines.cluster.options import SourceOptions, connection_properties, has_own_client
from barnabas.pipelines.connector.arrow_records import arrow_records
from barnabas.pipelines.connector.range_progress import Action, Ends, Lost, NextStep, RangeProgress
from barnabas.pipelines.errors import DataLossError
from barnabas.wire.kafka.errors import ErrorCode, KafkaError
from barnabas.wire.kafka.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from barnabas.wire.kafka.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from barnabas.wire.kafka.records.batch_header import LOG_OVERHEAD_BYTES, read_headers
from barnabas.wire.kafka.schema import Message

__all__ = ["RangeReader", "UnreadableRangeError", "can_read"]

Answer = TypeVar("Answer", bound=Message)

logger = logging.getLogger(__name__)

_UNDERSTOOD: Final = frozenset(
    ("bootstrap.servers", "client.id", "isolation.level", "max.partition.fetch.bytes", "request.timeout.ms")
)
_LAST_VERSION_WITH_NAMES: Final = 12
_CLIENTS_WAIT_FROM: Final = 8
"""The first version of Fetch whose answer comes before the pause that it asks for
(KIP-219), not after it."""
_FETCH_BYTES: Final = 4 * 1024 * 1024
_WAIT_MS: Final = 500
_NO_SESSION_EPOCH: Final = -1
_LONG_PAUSE_S: Final = 30.0


class UnreadableRangeError(BarnabasError):
    """From ``offset`` on this reader cannot read the range; librdkafka may.

    The message says why."""

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(reason)
        self.offset = offset


def can_read(kafka: Mapping[str, str]) -> bool:
    """Whether the ``kafka.`` options name nothing that only librdkafka has, such as Kerberos."""
    return has_own_client(kafka, _UNDERSTOOD)


class _Came(NamedTuple):
    """What came of a step."""

    partition: PartitionData | None = None
    """None: the answer has nothing about the partition."""
    throttle_ms: int = 0
    bounds: tuple[int, int] | None = None
    problem: BarnabasError | None = None


class RangeReader:
    """A worker's connections to a cluster, used for one range after the other."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        kafka = options.kafka
        self._connection = AdminConnection(kafka["bootstrap.servers"], connection_properties(kafka))
        self._leaders: dict[tuple[str, int], int] = {}
        self._free_at_s: dict[int, float] = {}
        """Until when a broker takes no requests of ours."""
        self._committed_only = kafka.get("isolation.level") == "read_committed"
        self._fetch_bytes = int(kafka.get("max.partition.fetch.bytes", _FETCH_BYTES))

    def close(self) -> None:
        self._connection.close()

    def read(
        self, wanted: Range, schema: pa.Schema, lost: Callable[[Lost], None] = lambda _: None
    ) -> Iterator[pa.RecordBatch]:
        """The records of the range, in order. Offsets may have holes, even at its end.

        ``lost`` is called with records that are gone where the options allow it. Raises
        `DataLossError`, `UnreadableRangeError` with the rest of the range, and `BarnabasError` when
        the partition has no leader for fetchTimeoutMs, or may not be read.
        """
        progress = RangeProgress(
            wanted,
            fetch_bytes=self._fetch_bytes,
            timeout_ms=self._options.fetch_timeout_ms,
            may_lose=not self._options.fail_on_data_loss,
            committed_only=self._committed_only,
            now_ms=_now_ms(),
        )
        left = threading.Event()
        # One thread fetches what comes next while Spark takes what came; never two
        # requests at once.
        with ThreadPoolExecutor(1, "barnabas-fetch") as fetcher:
            try:
                yield from self._read(progress, schema, lost, fetcher, left)
            finally:
                left.set()

    def _read(
        self,
        progress: RangeProgress,
        schema: pa.Schema,
        lost: Callable[[Lost], None],
        fetcher: ThreadPoolExecutor,
        left: threading.Event,
    ) -> Iterator[pa.RecordBatch]:
        wanted = progress.wanted
        step = progress.begin()
        ahead: Future[_Came] | None = None
        while True:
            if step.action is Action.DONE:
                break
            if step.action is Action.HAND_OVER:
                raise UnreadableRangeError(progress.next_offset, progress.reason)
            if step.action is Action.LOST:
                raise DataLossError.gone(wanted.topic, wanted.partition, progress.reason)
            if step.action is Action.FAIL:
                raise self._failure(progress)
            came = ahead.result() if ahead else self._perform(step, progress, left)
            ahead = None
            batch, step = self._take(came, step, progress, schema)
            for each in progress.lost:
                lost(each)
            progress.lost.clear()
            if batch is None:
                continue
            if step.action is Action.FETCH:
                ahead = fetcher.submit(self._perform, step, progress, left)
            yield batch

    # What came, for the code that decides

    def _take(
        self, came: _Came, step: NextStep, progress: RangeProgress, schema: pa.Schema
    ) -> tuple[pa.RecordBatch | None, NextStep]:
        """The records that came, and the next step."""
        now_ms = _now_ms()
        problem = came.problem
        if isinstance(problem, ProtocolError):
            return None, progress.odd(str(problem), now_ms)
        if isinstance(problem, ConnectError):
            return None, progress.unreachable(str(problem), now_ms)
        if isinstance(problem, KafkaError):
            return None, progress.refused(problem, now_ms)
        if came.bounds is not None:
            return None, progress.bounds(*came.bounds, now_ms)
        if came.partition is None:
            if came.throttle_ms:
                return None, progress.throttled(came.throttle_ms, now_ms)
            return None, progress.odd("the broker answered with nothing about the partition", now_ms)
        fetched = came.partition
        if fetched.error_code:
            return None, progress.refused(KafkaError(fetched.error_code), now_ms)
        records = fetched.records if isinstance(fetched.records, memoryview) else memoryview(b"")
        try:
            if step.action is Action.LOOK_AHEAD:
                first = next((header.base_offset for _, header in read_headers(records)), -1)
                return None, progress.saw(first if first <= fetched.high_watermark else -1, now_ms)
            batch, reached = self._columns(records, fetched, progress, schema)
            if reached > progress.wanted.end and 0 <= fetched.high_watermark < reached:
                # No checksum covers a batch's offset, and this one would prove that all before it
                # is gone. Where the batch was added since the broker looked at its high watermark,
                # the next answer has a newer one.
                high = f"high watermark {fetched.high_watermark}"
                return None, progress.odd(
                    f"the broker answered with a batch up to offset {reached - 1}, and {high}", now_ms
                )
        except (KafkaError, CorruptDataError) as error:
            if isinstance(error, KafkaError) and error.code == ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT:
                return None, progress.refused(error, now_ms)
            return None, progress.damaged(str(error), now_ms)
        ends = Ends(fetched.high_watermark, fetched.last_stable_offset)
        cut_bytes = _cut_bytes(records) if reached == progress.next_offset else 0
        return batch, progress.received(reached, ends, came.throttle_ms, cut_bytes, now_ms)

    def _columns(
        self, records: memoryview, fetched: PartitionData, progress: RangeProgress, schema: pa.Schema
    ) -> tuple[pa.RecordBatch | None, int]:
        if not records:
            return None, progress.next_offset
        aborted = fetched.aborted_transactions or () if self._committed_only else ()
        topic, partition, _, end = progress.wanted
        return arrow_records(records, aborted, topic, partition, progress.next_offset, end, schema)

    def _failure(self, progress: RangeProgress) -> BarnabasError:
        wanted = progress.wanted
        return BarnabasError(
            f"cannot read {wanted.topic}-{wanted.partition} from offset {progress.next_offset} (up to {wanted.end}): "
            f"{progress.reason} (fetchTimeoutMs = {self._options.fetch_timeout_ms})"
        )

    # Questions

    def _perform(self, step: NextStep, progress: RangeProgress, left: threading.Event) -> _Came:
        if step.pause_ms:
            left.wait(step.pause_ms / 1000)
        place = progress.wanted.topic, progress.wanted.partition
        leader = -1
        try:
            leader = self._leader(*place)
            self._await_quota(leader, left)
            if left.is_set():
                return _Came()
            if step.action is Action.FIND_BOUNDS:
                bounds = self._offset_at(EARLIEST, leader, place), self._offset_at(LATEST, leader, place)
                return _Came(bounds=bounds)
            came = self._fetch(progress, leader, is_committed_only=self._committed_only and step.action is Action.FETCH)
        except (ConnectError, KafkaError) as error:
            self._leaders.pop(place, None)
            return _Came(problem=error)
        if came.partition is not None:
            self._note_leader(place, leader, came.partition)
        return came

    def _note_leader(self, place: tuple[str, int], asked: int, answer: PartitionData) -> None:
        """Where the next request goes: a replica that the leader prefers (KIP-392), or the leader
        that a broker names (KIP-951)."""
        if not answer.error_code:
            if answer.preferred_read_replica >= 0:
                self._leaders[place] = answer.preferred_read_replica
            return
        self._leaders.pop(place, None)
        named = answer.current_leader
        if named is not None and named.leader_id not in (-1, asked):
            self._leaders[place] = named.leader_id

    def _await_quota(self, broker: int, left: threading.Event) -> None:
        wait_s = self._free_at_s.get(broker, 0.0) - time.monotonic()
        if wait_s > _LONG_PAUSE_S:
            logger.warning("broker %d throttles this reader for %.0f s: its quota is used up", broker, wait_s)
        if wait_s > 0:
            left.wait(wait_s)

    def _fetch(self, progress: RangeProgress, leader: int, *, is_committed_only: bool) -> _Came:
        topic, partition, _, _ = progress.wanted
        part = FetchPartition(
            partition=partition, fetch_offset=progress.next_offset, partition_max_bytes=progress.fetch_bytes
        )
        request = FetchRequest(
            max_wait_ms=_WAIT_MS,
            min_bytes=1,
            max_bytes=progress.fetch_bytes,
            isolation_level=1 if is_committed_only else 0,
            session_epoch=_NO_SESSION_EPOCH,
            topics=[FetchTopic(topic=topic, partitions=[part])],
        )
        response = self._connection.send(request, FetchResponse, leader, max_version=_LAST_VERSION_WITH_NAMES)
        throttle_ms = max(0, response.throttle_time_ms)
        if throttle_ms:
            version = self._connection.negotiated(FetchRequest, leader, max_version=_LAST_VERSION_WITH_NAMES)
            if version >= _CLIENTS_WAIT_FROM:
                self._free_at_s[leader] = time.monotonic() + throttle_ms / 1000
        if response.error_code:
            raise KafkaError(response.error_code)
        found = [each for named in response.responses for each in named.partitions]
        return _Came(found[0] if found else None, throttle_ms)

    def _leader(self, topic: str, partition: int) -> int:
        if (topic, partition) not in self._leaders:
            for named in self._connection.metadata([topic]).topics:
                if named.error_code:
                    raise KafkaError(named.error_code)
                for each in named.partitions:
                    if each.leader_id >= 0:
                        self._leaders[topic, each.partition_index] = each.leader_id
        if (topic, partition) not in self._leaders:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE)
        return self._leaders[topic, partition]

    def _offset_at(self, mark: int, leader: int, place: tuple[str, int]) -> int:
        """The partition's first offset, or its end, committed or not."""
        asked = [ListOffsetsPartition(partition_index=place[1], timestamp=mark)]
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=place[0], partitions=asked)])
        response = self._connection.send(request, ListOffsetsResponse, leader)
        answer = response.topics[0].partitions[0]
        if answer.error_code:
            raise KafkaError(answer.error_code)
        return int(answer.offset)


def _cut_bytes(records: memoryview) -> int:
    """The size of the batch at the beginning, of which only a part came."""
    if len(records) < LOG_OVERHEAD_BYTES:
        return 0
    size_bytes = int.from_bytes(records[8:12], "big", signed=True) + LOG_OVERHEAD_BYTES
    return size_bytes if size_bytes > len(records) else 0


def _now_ms() -> int:
    return int(time.monotonic() * 1000)
