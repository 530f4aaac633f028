"""Writing Arrow columns to topics, in a worker of Spark: whole batches over our own wire codec.

The producer is idempotent: each partition's batches have sequences, so one that is sent again
after a lost answer is not appended twice. One thread sends while the next rows are encoded, and
each partition has one batch in flight at a time. `can_write` says whether the options ask for
what only librdkafka has.

Kafka: KafkaProducer, Sender, TransactionManager (the idempotent half).
"""

import itertools
import os
import random
import time
from collections import deque
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, NamedTuple

import pyarrow as pa

from barnabas.base.errors import BarnabasError, ConfigError
from barnabas.client.cluster.admin_connection import AdminConnection, ConnectError
from barnabas.client.producer.batch_limits import TOO_LARGE, raise_limit
from barnabas.pipelines.cluster.options import SinkOptions, connection_properties, has_own_client
from barnabas.pipelines.connector.arrow_batches import (
    EncodedRows,
    RowBatch,
    Rows,
    choose_partitions,
    encode_rows,
    pieces_of,
)
from barnabas.pipelines.connector.letters import OF_RECORDS, Letter, refusal_policy_of
from barnabas.wire.kafka.errors import ErrorCode, KafkaError
from barnabas.wire.kafka.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas.wire.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from barnabas.wire.kafka.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from barnabas.wire.kafka.records.compression import CompressionType

__all__ = ["ColumnProducer", "can_write"]

_UNDERSTOOD: Final = frozenset(
    {
        "acks",
        "batch.size",
        "bootstrap.servers",
        "client.id",
        "compression.type",
        "enable.idempotence",
        "request.timeout.ms",
    }
)
_LAST_VERSION_WITH_NAMES: Final = 12
_BATCH_BYTES: Final = 512 * 1024
_LEAST_PIECE_BYTES: Final = 1024 * 1024
_MOST_PIECE_BYTES: Final = 16 * 1024 * 1024
_REQUEST_BYTES: Final = 8 * 1024 * 1024
_TIMEOUT_MS: Final = 30_000
_NO_TOPIC_S: Final = 10.0
_PAUSE_S: Final = 0.05
_ALL_REPLICAS: Final = -1
_SEQUENCES: Final = 1 << 31
_TOO_LARGE: Final = tuple(ErrorCode[name] for name in TOO_LARGE)


def can_write(kafka: Mapping[str, str]) -> bool:
    """Whether the ``kafka.`` options name nothing that only librdkafka has, such as
    Kerberos and a partitioner."""
    return (
        has_own_client(kafka, _UNDERSTOOD)
        and kafka.get("acks", "all") in ("all", "-1")
        and kafka.get("enable.idempotence", "true").lower() == "true"
        and kafka.get("compression.type", "lz4").upper() in CompressionType.__members__
    )


class _Part(NamedTuple):
    topic: str
    partition: int


class _Pending(NamedTuple):
    """A batch that waits for its turn."""

    rows: EncodedRows
    batch: RowBatch
    position: str = ""
    """For a row that was refused before, what it was made of: it may have lost the header that says
    so."""

    def letter(self) -> Letter:
        """The batch's first row."""
        key, value, headers = self.rows.rows.slice(self.batch.first_row, 1)
        fields = [] if headers is None else headers[0].as_py() or []
        return Letter(key[0].as_py(), value[0].as_py(), tuple((each["key"], each["value"]) for each in fields))

    def with_letter(self, letter: Letter, position: str) -> "_Pending":
        """The same batch with another row."""
        headers = self.rows.rows.headers
        if headers is not None:
            headers = pa.array([[{"key": name, "value": content} for name, content in letter.headers]], headers.type)
        row = Rows(pa.array([letter.key], pa.binary()), pa.array([letter.value], pa.binary()), headers)
        batch = RowBatch(self.batch.partition, 0, 1)
        return _Pending(EncodedRows(row, [batch]), batch, position)


class ColumnProducer:
    """A worker's connections to a cluster and its producer id, used for one task after the other.

    After an error it must be closed: what its sequences stand for is not known then.
    """

    def __init__(self, options: SinkOptions) -> None:
        kafka = options.kafka
        self._connection = AdminConnection(kafka["bootstrap.servers"], connection_properties(kafka))
        self._topic = options.topic
        self._policy = refusal_policy_of(options.on_refusal, options.letters_file)
        self._cut_at = _TOO_LARGE if self._policy is None else tuple(ErrorCode[name] for name in sorted(OF_RECORDS))
        """Refusals of a batch that may be about some of its rows."""
        self._timeout_ms = options.flush_timeout_ms
        self._request_timeout_ms = int(kafka.get("request.timeout.ms", _TIMEOUT_MS))
        self._batch_bytes = _batch_bytes(kafka)
        self._compression = CompressionType[kafka.get("compression.type", "lz4").upper()]
        self._id: tuple[int, int] | None = None
        self._leaders: dict[_Part, int] = {}
        self._counts: dict[str, int] = {}
        self._sequences: dict[_Part, int] = {}
        self._turn = random.randrange(1 << 16) + os.getpid()

    def close(self) -> None:
        self._connection.close()

    def write(self, batches: Iterable[pa.RecordBatch]) -> int:
        """Produce all rows and return how many there were, when all are acknowledged.

        Raises `BarnabasError` with what a broker refuses, and when nothing was
        acknowledged for flushTimeoutMs.
        """
        rows = 0
        self._counts.clear()
        with ThreadPoolExecutor(1, "barnabas-produce") as sender:
            sent: Future[None] | None = None
            for piece in self._pieces(batches):
                rows += piece.num_rows
                for topic, columns in _by_topic(piece, self._topic):
                    if topic not in self._counts:
                        if sent:
                            sent.result()
                        sender.submit(self._look_up, topic).result()
                    encoded = self._encode(topic, columns)
                    if sent:
                        sent.result()
                    sent = sender.submit(self._send, topic, encoded)
            if sent:
                sent.result()
        return rows

    def _pieces(self, batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        """What is encoded at once: a batch for each partition, if the topic has not too many."""
        most = max(self._counts.values(), default=2) * self._batch_bytes
        most = min(max(most, _LEAST_PIECE_BYTES), _MOST_PIECE_BYTES)
        held: list[pa.RecordBatch] = []
        held_bytes = 0
        for batch in itertools.chain.from_iterable(pieces_of(each, most) for each in batches):
            held.append(batch)
            held_bytes += batch.nbytes
            if held_bytes >= most:
                yield _together(held)
                held, held_bytes = [], 0
        if held:
            yield _together(held)

    def _encode(self, topic: str, columns: pa.RecordBatch) -> EncodedRows:
        names = columns.schema.names

        def column(name: str) -> pa.Array | None:
            return columns.column(name) if name in names else None

        value = columns.column("value").cast(pa.binary())
        key = column("key")
        key = pa.nulls(len(value), pa.binary()) if key is None else key.cast(pa.binary())
        rows = Rows(key, value, column("headers"))
        try:
            partitions, self._turn = choose_partitions(
                rows, column("partition"), self._counts[topic], self._turn, self._batch_bytes
            )
        except BarnabasError as error:
            raise BarnabasError(f"{topic}: {error}") from None
        return encode_rows(rows, partitions, self._batch_bytes)

    def _look_up(self, topic: str) -> None:
        """Learn the topic's leaders.

        It is created if brokers do so, as Java's producer lets them."""
        deadline = time.monotonic() + _NO_TOPIC_S
        while True:
            problem = self._metadata(topic)
            if not problem:
                return
            if time.monotonic() > deadline:
                raise BarnabasError(f"cannot write to {topic}: {problem}")
            time.sleep(_PAUSE_S)

    def _metadata(self, topic: str) -> str:
        """Ask once; what is missing."""
        try:
            request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=True)
            (found,) = self._connection.send(request, MetadataResponse).topics
        except ConnectError as error:
            return str(error)
        code = ErrorCode.of(found.error_code)
        if code and not code.retriable:
            raise BarnabasError(f"cannot write to {topic}: {code.message}")
        if code or not found.partitions:
            return f"{code.message}: does the topic exist?"
        for partition in found.partitions:
            if partition.leader_id >= 0:
                self._leaders[_Part(topic, partition.partition_index)] = partition.leader_id
        self._counts[topic] = len(found.partitions)
        return ""

    def _send(self, topic: str, rows: EncodedRows) -> None:
        """Send all batches, in each partition one after the other."""
        waiting: dict[int, deque[_Pending]] = {}
        for batch in rows.batches:
            waiting.setdefault(batch.partition, deque()).append(_Pending(rows, batch))
        packed: dict[int, bytearray] = {}
        deadline = time.monotonic() + self._timeout_ms / 1000
        while waiting:
            try:
                problem = self._send_heads(topic, waiting, packed)
            except ConnectError as error:
                problem = str(error)
            if not problem:
                deadline = time.monotonic() + self._timeout_ms / 1000
                continue
            if time.monotonic() > deadline:
                left = sum(each.batch.row_count for heads in waiting.values() for each in heads)
                raise BarnabasError(
                    f"{left} rows for {topic} were not acknowledged within {self._timeout_ms} ms: {problem}"
                )
            time.sleep(_PAUSE_S)
            self._metadata(topic)

    def _send_heads(self, topic: str, waiting: dict[int, deque[_Pending]], packed: dict[int, bytearray]) -> str:
        """Send the first batch of each partition, to one leader after the other.

        What must be tried again."""
        producer_id, epoch = self._identity()
        by_leader: dict[int, list[int]] = {}
        problem = ""
        for partition, heads in waiting.items():
            leader = self._leaders.get(_Part(topic, partition))
            if leader is None:
                problem = f"partition {partition} has no leader"
                continue
            by_leader.setdefault(leader, []).append(partition)
            if partition not in packed:
                rows, batch, _ = heads[0]
                sequence = self._sequences.get(_Part(topic, partition), 0)
                packed[partition] = rows.pack(batch, self._compression, producer_id, epoch, sequence)
        for leader, partitions in by_leader.items():
            for some in _requests(partitions, packed):
                problem = self._exchange(topic, leader, some, waiting, packed) or problem
        return problem

    def _exchange(
        self,
        topic: str,
        leader: int,
        partitions: list[int],
        waiting: dict[int, deque[_Pending]],
        packed: dict[int, bytearray],
    ) -> str:
        data = [PartitionProduceData(index=each, records=packed[each]) for each in partitions]
        request = ProduceRequest(
            acks=_ALL_REPLICAS,
            timeout_ms=self._request_timeout_ms,
            topic_data=[TopicProduceData(name=topic, partition_data=data)],
        )
        response = self._connection.send(request, ProduceResponse, leader, max_version=_LAST_VERSION_WITH_NAMES)
        problem = ""
        for answer in response.responses[0].partition_responses:
            code = ErrorCode.of(answer.error_code)
            heads = waiting[answer.index]
            if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                part = _Part(topic, answer.index)
                done = heads.popleft()
                self._sequences[part] = (self._sequences.get(part, 0) + done.batch.row_count) % _SEQUENCES
                if not heads:
                    del waiting[answer.index]
            elif code in self._cut_at and heads[0].batch.row_count > 1:
                pending = heads.popleft()
                halves = pending.rows.halves(pending.batch)
                heads.extendleft(_Pending(halves, each) for each in reversed(halves.batches))
            elif code.retriable:
                problem = f"partition {answer.index}: {code.message}"
                self._leaders.pop(_Part(topic, answer.index), None)
                continue
            else:
                reason = answer.error_message or code.message
                if code in _TOO_LARGE:
                    reason += f" (make the row smaller, or raise the limit: {raise_limit(TOO_LARGE[code.name], topic)})"
                if not self._has_next_form(heads, code, reason):
                    raise BarnabasError(f"cannot write to {topic}, partition {answer.index}: {reason}")
                if not heads:
                    del waiting[answer.index]
            del packed[answer.index]
        return problem

    def _has_next_form(self, heads: deque[_Pending], code: ErrorCode, reason: str) -> bool:
        """Whether something can be done about the first batch, one row that a broker refuses.

        It is done."""
        if self._policy is None or code not in self._cut_at:
            return False
        letter = heads[0].letter()
        position = heads[0].position or letter.header(self._policy.position_header)
        refused = self._policy.next_form_of(letter, position, code.name, reason)
        if refused is None:
            return False
        pending = heads.popleft()
        if refused.letter is not None:
            heads.appendleft(pending.with_letter(refused.letter, position))
        return True

    def _identity(self) -> tuple[int, int]:
        if self._id is None:
            request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=self._request_timeout_ms)
            answer = self._connection.retry(
                lambda: self._connection.send(request, InitProducerIdResponse), lambda each: [each.error_code]
            )
            if answer.error_code:
                what = "no producer id was given, which takes the right to write to a topic"
                code = ErrorCode.of(answer.error_code)
                is_refused = code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
                raise KafkaError(code, what if is_refused else "no producer id was given")
            self._id = answer.producer_id, answer.producer_epoch
        return self._id


def _batch_bytes(kafka: Mapping[str, str]) -> int:
    text = kafka.get("batch.size", str(_BATCH_BYTES))
    if not text.isdecimal() or int(text) < 1:
        raise ConfigError(f"kafka.batch.size is a number of bytes, not {text!r}")
    return int(text)


def _together(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.Table.from_batches(batches).combine_chunks().to_batches()[0]


def _by_topic(rows: pa.RecordBatch, topic: str | None) -> Iterable[tuple[str, pa.RecordBatch]]:
    """The rows of each topic; the topic is named by the option or by the column ``topic``."""
    if topic is not None:
        return [(topic, rows)]
    topics = rows.column("topic")
    if topics.null_count:
        raise BarnabasError("a row's column topic is null, and the option topic is not set")
    names = topics.unique().to_pylist()
    if len(names) == 1:
        return [(names[0], rows)]
    return [(name, rows.filter(pa.compute.equal(topics, name))) for name in names]


def _requests(partitions: list[int], packed: Mapping[int, bytearray]) -> Iterable[list[int]]:
    """The partitions of one leader in requests of a bounded size."""
    some: list[int] = []
    size_bytes = 0
    for partition in partitions:
        if some and size_bytes + len(packed[partition]) > _REQUEST_BYTES:
            yield some
            some, size_bytes = [], 0
        some.append(partition)
        size_bytes += len(packed[partition])
    if some:
        yield some
