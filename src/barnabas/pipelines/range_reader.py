"""Reading a range of one partition as Arrow columns, in a worker of Spark: whole batches over our own wire codec.

The reader asks the partition's leader, follows it when it moves, and waits while there is none, up to fetchTimeoutMs.
`can_read` says whether the options ask for what only librdkafka has. Kafka: Fetcher, OffsetFetcher.
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, TypeVar

import pyarrow as pa

from barnabas.base.errors import BarnabasError
from barnabas.client.admin_connection import ROUTING_ERRORS, AdminConnection, ConnectError
from barnabas.pipelines.arrow_records import arrow_records
from barnabas.pipelines.errors import DataLossError
from barnabas.pipelines.offsets import Range
from barnabas.pipelines.options import SourceOptions, connection_properties, has_own_client
from barnabas.wire.kafka.errors import ErrorCode, KafkaError
from barnabas.wire.kafka.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from barnabas.wire.kafka.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

Answer = TypeVar("Answer")

__all__ = ["OldRecordFormatError", "RangeReader", "can_read"]

logger = logging.getLogger(__name__)

_UNDERSTOOD: Final = frozenset(
    ("bootstrap.servers", "client.id", "isolation.level", "max.partition.fetch.bytes", "request.timeout.ms")
)
_LAST_VERSION_WITH_NAMES: Final = 12
_FETCH_BYTES: Final = 4 * 1024 * 1024
_WAIT_MS: Final = 500
_PAUSE_S: Final = 0.05
_EARLIEST: Final = -2
_NO_SESSION_EPOCH: Final = -1
_PASSING = ROUTING_ERRORS | {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.REPLICA_NOT_AVAILABLE,
}


class OldRecordFormatError(BarnabasError):
    """From ``offset`` on the partition holds records of a format before 2, which only librdkafka reads."""

    def __init__(self, offset: int) -> None:
        super().__init__(f"records of an old format from offset {offset} on")
        self.offset = offset


def can_read(kafka: Mapping[str, str]) -> bool:
    """Whether the ``kafka.`` options name nothing that only librdkafka has, such as Kerberos."""
    return has_own_client(kafka, _UNDERSTOOD)


class RangeReader:
    """A worker's connections to a cluster, used for one range after the other."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        kafka = options.kafka
        self._connection = AdminConnection(kafka["bootstrap.servers"], connection_properties(kafka))
        self._leaders: dict[tuple[str, int], int] = {}
        self._committed_only = kafka.get("isolation.level") == "read_committed"
        self._fetch_bytes = int(kafka.get("max.partition.fetch.bytes", _FETCH_BYTES))

    def close(self) -> None:
        self._connection.close()

    def read(self, wanted: Range, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """The records of the range, in order. Offsets may have holes, even at its end.

        Raises `DataLossError`, `OldRecordFormatError`, and `BarnabasError` when nothing came for fetchTimeoutMs.
        """
        # One thread fetches what comes next while Spark takes what came; never two requests at once.
        with ThreadPoolExecutor(1, "barnabas-fetch") as fetcher:
            yield from self._read(wanted, schema, fetcher)

    def _read(self, wanted: Range, schema: pa.Schema, fetcher: ThreadPoolExecutor) -> Iterator[pa.RecordBatch]:
        next_offset = wanted.start
        allowed_s = self._options.fetch_timeout_ms / 1000
        deadline = time.monotonic() + allowed_s
        seen_end = -1
        ahead: Future[PartitionData] | None = None
        while next_offset < wanted.end:
            fetched = ahead.result() if ahead else self._fetch(wanted, next_offset, deadline)
            ahead = None
            if fetched.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                next_offset = self._after_loss(wanted, next_offset, deadline)
                continue
            batch, reached = self._columns(fetched, wanted, next_offset, schema)
            if batch is not None and next_offset < reached < wanted.end:
                ahead = fetcher.submit(self._fetch, wanted, reached, time.monotonic() + allowed_s)
            if batch is not None:
                yield batch
            if reached > next_offset:
                next_offset = reached
                deadline = time.monotonic() + allowed_s
                continue
            # No batch came. There may be none up to the partition's end: compaction took them. One empty answer alone may
            # be a broker's that throttles us.
            end = fetched.last_stable_offset if self._committed_only else fetched.high_watermark
            if end == seen_end or end <= next_offset:
                if end > next_offset:
                    next_offset = end
                elif not self._options.fail_on_data_loss:
                    logger.warning("%s-%d: it was created again, and ends at %d", wanted.topic, wanted.partition, end)
                    return
            seen_end = end
            if time.monotonic() > deadline:
                raise self._too_late(wanted, next_offset)

    def _columns(
        self, fetched: PartitionData, wanted: Range, next_offset: int, schema: pa.Schema
    ) -> tuple[pa.RecordBatch | None, int]:
        records = fetched.records
        if not isinstance(records, memoryview) or not records:
            return None, next_offset
        aborted = fetched.aborted_transactions or () if self._committed_only else ()
        topic, partition = wanted.topic, wanted.partition
        try:
            return arrow_records(records, aborted, topic, partition, next_offset, wanted.end, schema)
        except KafkaError as error:
            if error.code == ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT:
                raise OldRecordFormatError(next_offset) from error
            raise BarnabasError(f"{topic}-{partition}, from offset {next_offset} on: {error.message}") from error

    def _fetch(self, wanted: Range, offset: int, deadline: float) -> PartitionData:
        """The leader's answer for the partition: records, or OFFSET_OUT_OF_RANGE."""

        def ask() -> PartitionData:
            answer = self._ask_leader(wanted, offset)
            if answer.error_code not in (ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE):
                raise KafkaError(answer.error_code)
            return answer

        return self._until_answered(wanted, offset, deadline, ask)

    def _until_answered(self, wanted: Range, offset: int, deadline: float, ask: Callable[[], Answer]) -> Answer:
        """What ``ask`` gives, asked again while the partition has no leader or another one."""
        while True:
            try:
                return ask()
            except ConnectError as error:
                problem = str(error)
            except KafkaError as error:
                problem = error.message
                if error.code not in _PASSING:
                    raise BarnabasError(f"cannot read {wanted.topic}-{wanted.partition}: {problem}") from error
            self._leaders.pop((wanted.topic, wanted.partition), None)
            if time.monotonic() > deadline:
                raise self._too_late(wanted, offset, problem)
            time.sleep(_PAUSE_S)

    def _ask_leader(self, wanted: Range, offset: int) -> PartitionData:
        part = FetchPartition(partition=wanted.partition, fetch_offset=offset, partition_max_bytes=self._fetch_bytes)
        request = FetchRequest(
            max_wait_ms=_WAIT_MS,
            min_bytes=1,
            max_bytes=self._fetch_bytes,
            isolation_level=1 if self._committed_only else 0,
            session_epoch=_NO_SESSION_EPOCH,
            topics=[FetchTopic(topic=wanted.topic, partitions=[part])],
        )
        response = self._connection.send(
            request, FetchResponse, self._leader(wanted), max_version=_LAST_VERSION_WITH_NAMES
        )
        if response.error_code:
            raise KafkaError(response.error_code)
        return response.responses[0].partitions[0]

    def _leader(self, wanted: Range) -> int:
        place = (wanted.topic, wanted.partition)
        if place not in self._leaders:
            (topic,) = self._connection.metadata([wanted.topic]).topics
            if topic.error_code:
                raise KafkaError(topic.error_code)
            for partition in topic.partitions:
                if partition.leader_id >= 0:
                    self._leaders[wanted.topic, partition.partition_index] = partition.leader_id
        if place not in self._leaders:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE)
        return self._leaders[place]

    def _after_loss(self, wanted: Range, offset: int, deadline: float) -> int:
        """Where to go on behind records that are gone. Raises `DataLossError` if they must not be."""
        if self._options.fail_on_data_loss:
            raise DataLossError.gone(wanted.topic, wanted.partition, offset)
        earliest = self._until_answered(wanted, offset, deadline, lambda: self._earliest(wanted))
        # At or below our offset: the topic was created again and is shorter now.
        reached = earliest if earliest > offset else wanted.end
        logger.warning("%s-%d: records %d to %d are gone", wanted.topic, wanted.partition, offset, reached - 1)
        return reached

    def _earliest(self, wanted: Range) -> int:
        request = ListOffsetsRequest(
            replica_id=-1,
            topics=[
                ListOffsetsTopic(
                    name=wanted.topic,
                    partitions=[ListOffsetsPartition(partition_index=wanted.partition, timestamp=_EARLIEST)],
                )
            ],
        )
        response = self._connection.send(request, ListOffsetsResponse, self._leader(wanted))
        answer = response.topics[0].partitions[0]
        if answer.error_code:
            raise KafkaError(answer.error_code)
        return int(answer.offset)

    def _too_late(self, wanted: Range, offset: int, problem: str = "") -> BarnabasError:
        return BarnabasError(
            f"no record of {wanted.topic}-{wanted.partition} at offset {offset} (up to {wanted.end}) came within "
            f"fetchTimeoutMs = {self._options.fetch_timeout_ms}: {problem or 'is the leader of the partition up?'}"
        )
