"""What a Produce request asks for, the rules that it must keep, and its appends to the logs.

A `Produce` says what is to be done, whichever reader read it from the request's bytes
(`barnabas.broker.apis.produce`). `append` does it, for all requests that arrived together, and
leaves a `BatchOutcome` for each of their partitions.

- Each batch is decided here: what its sender may write to (`topic_rights`), what the request may
  ask for (`check_request`), for a topic (`check_topic`) and with a batch (`check_attributes`),
  whether this broker takes appends there (`ReplicaManager.appendable`), and what the log makes of
  the batch.
- The batches of one partition that come one after the other are a run: they become one write.
  A batch about which the log must decide more than its offsets is appended by itself, behind
  those before it.
- A failure is the outcome of its batch, or of all batches of its write. The others are appended.
- The records of some batches take long to check. That is done in a thread, after what comes before
  them has been written. The request keeps its turn: nothing that came behind it on its connection
  is read meanwhile. If the replica is another one when that is done, because the topic was deleted
  and there is one of its name again, the batch is not for it.
- The first batch of a transaction in a partition waits for the transaction coordinator in the same
  way (`produce_transactions`).

In Kafka: `ReplicaManager.appendRecords` and `appendToLocalLog`, `ProduceRequest.validateRecords`.
"""

import logging
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

from barnabas.base.clock import Clock
from barnabas.base.ids import TopicPartition, Uuid
from barnabas.base.tasks import Beside, Resume
from barnabas.base.tuples import new_tuple
from barnabas.broker.cluster.steps import Wait
from barnabas.broker.metadata.internal_topics import INTERNAL_TOPICS
from barnabas.broker.replication.partition import ALL_IN_SYNC, Partition
from barnabas.broker.replication.produce_transactions import (
    ProduceTransaction,
    check_outside_transaction,
    check_producer,
)
from barnabas.broker.replication.replica_manager import ReplicaManager, append_batch
from barnabas.broker.replication.topic_rights import TopicRights
from barnabas.broker.replication.transaction_verification import AddPartitionsToTxnManager, TransactionalProducer
from barnabas.log.append_run import AppendRun
from barnabas.log.producer_state import VerificationGuard
from barnabas.log.record_checks import SHORT_CHECKS, LongCheckError, RecordValidator
from barnabas.security.acls import ResourceType
from barnabas.wire.kafka.errors import ErrorCode, KafkaError
from barnabas.wire.kafka.records.batch_header import COMPRESSION_MASK, TRANSACTIONAL, HeaderFields
from barnabas.wire.kafka.records.compression import CompressionType

__all__ = [
    "NO_HEADER",
    "PRODUCE_TOPIC_IDS",
    "AppendTask",
    "Appended",
    "Batch",
    "BatchOutcome",
    "Produce",
    "ProduceHead",
    "ProduceOptions",
    "ProduceTopic",
    "append",
    "not_appended",
    "perform_wait",
]

logger = logging.getLogger(__name__)

_MOST_RUNS = 16
"""Most runs that wait to be written. A count, because how long the writes take, which may open
files, shows only then.
"""
_NO_RECORDS = memoryview(b"")
_ASKED_A_TURN = 1024
"""Some 2 ms."""
PRODUCE_TOPIC_IDS = 13
"""The first version that names topics by their ids."""
_ZSTD = 7
_TRANSACTION_ABORTABLE = 11
"""The first version that has this error."""
_LEAVES_ADDING = 12
"""The first version whose clients leave it to brokers to add partitions to a transaction."""
_ADMIN_CLIENT = "__admin_client"
_NOT_COUNTED = frozenset(
    (
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
    )
)
"""Errors that Kafka does not count as failed requests."""

T = TypeVar("T")

AppendTask = Generator[Beside | Wait | None, Any, T]
"""A task that may have to wait for another broker. `perform_wait` does that."""

Batch = tuple[memoryview, HeaderFields]
"""What a request has for a partition, writable, and the header with which it begins."""
NO_HEADER: HeaderFields = (0,) * 13
"""Stands for the header of data that is too short for one: the log refuses it."""


def perform_wait(step: Wait, resume: Resume) -> None:
    """Do the effect of an `AppendTask`."""
    step.begin(resume)


class ProduceOptions(NamedTuple):
    """What a request says of all its records."""

    version: int
    client_id: str | None
    transactional_id: str | None
    acks: int
    timeout_ms: int


class ProduceTopic(NamedTuple):
    """A topic as a request names it."""

    name: str
    """Empty where topics have ids."""
    topic_id: Uuid
    partitions: int
    """How many of the request's partitions are this topic's."""


class Appended:
    """One write of one batch or several to a partition, or why there was none."""

    __slots__ = ("error", "is_durable", "log_append_time_ms", "log_start_offset")

    def __init__(self, error: KafkaError | None = None) -> None:
        self.error = error
        self.log_append_time_ms = -1
        self.log_start_offset = -1
        self.is_durable = False
        """Whether the records are in the log, as durable as the topic asks for
        before they are acknowledged."""


BatchOutcome = tuple[Appended, int, int]
"""What became of a batch, and its first and last offset."""


def not_appended(error: KafkaError) -> BatchOutcome:
    """The outcome of a batch that was not appended, or is not acknowledged."""
    return Appended(error), -1, -1


class ProduceHead(NamedTuple):
    """What a request says besides its batches. Requests of one producer may share it."""

    options: ProduceOptions
    topics: Sequence[ProduceTopic]
    partitions: Sequence[TopicPartition]
    """All of the topics, each once. The topic's name is empty for an id that is not known."""
    topic_ids: Sequence[Uuid]
    """Of the partitions; `ZERO_UUID` where topics have names."""


class Produce:
    """One request."""

    __slots__ = ("_borrows", "batches", "head", "options", "outcomes", "partitions", "waiting")

    def __init__(self, head: ProduceHead, batches: list[Batch], borrows: bool) -> None:
        """``borrows`` says whether the batches lie in a connection's buffer, which is used again in
        the next turn.
        """
        self.head = head
        self.options, _, self.partitions, _ = head
        self.batches = batches
        """One for each partition, until all are appended."""
        self.outcomes: list[BatchOutcome] = []
        """The outcomes of the partitions that have one."""
        self.waiting = 0
        """How many partitions wait for their acknowledgement."""
        self._borrows = borrows

    @property
    def is_appended(self) -> bool:
        """Whether nothing is left to append."""
        return not self.batches

    @property
    def has_failed(self) -> bool:
        """Whether an outcome is an error."""
        return any(appended.error for appended, _, _ in self.outcomes)

    @property
    def is_done(self) -> bool:
        """Whether all is appended, without an error, and it asks for no more than that."""
        acks = self.options.acks
        if acks < 0 or self.batches:
            return False
        for appended, _, _ in self.outcomes:
            if not appended.is_durable and (acks or appended.error is not None):
                return False
        return True

    @property
    def is_under_way(self) -> bool:
        """Whether others may have had their turn since its append began."""
        return bool(self.outcomes) or not self._borrows

    def own_batches(self) -> None:
        """Others get their turn: copy what is not appended out of the connection's buffer."""
        if len(self.outcomes) == len(self.batches):
            self.batches.clear()
        elif self._borrows:
            self._borrows = False
            for number in range(len(self.outcomes), len(self.batches)):
                records, header = self.batches[number]
                self.batches[number] = memoryview(bytearray(records)), header


def check_request(produce: Produce, rights: TopicRights | None) -> None:
    """Whether a request may be served.

    Raises `KafkaError`: TRANSACTIONAL_ID_AUTHORIZATION_FAILED, INVALID_REQUIRED_ACKS.

    In Kafka: also `ReplicaManager.isValidRequiredAcks`.
    """
    options = produce.options
    transactional_id = options.transactional_id
    if (
        rights is not None
        and transactional_id is not None
        and any(header[5] & TRANSACTIONAL for _, header in produce.batches)
        and not rights.is_authorized(ResourceType.TRANSACTIONAL_ID, transactional_id)
    ):
        raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not ALL_IN_SYNC <= options.acks <= 1:
        raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS)


def check_topic(options: ProduceOptions, topic: str, rights: TopicRights | None) -> None:
    """Whether a request may append to a topic.

    Raises `KafkaError`: UNKNOWN_TOPIC_ID, TOPIC_AUTHORIZATION_FAILED, INVALID_TOPIC_EXCEPTION
    (internal)."""
    if not topic and options.version >= PRODUCE_TOPIC_IDS:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
    if rights is not None and not rights.allows(topic):
        raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    if topic in INTERNAL_TOPICS and options.client_id != _ADMIN_CLIENT:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot append to internal topic {topic}")


def check_attributes(options: ProduceOptions, header: HeaderFields) -> None:
    """Whether a request may have a batch with attributes. Raises `KafkaError`.

    TRANSACTIONAL_ID_AUTHORIZATION_FAILED for a transactional batch in a request without a
    transactional id; UNSUPPORTED_COMPRESSION_TYPE for zstd in versions that do not have it.
    """
    attributes = header[5]
    if attributes & TRANSACTIONAL and options.transactional_id is None:
        raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if options.version < _ZSTD and attributes & COMPRESSION_MASK == CompressionType.ZSTD:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"Produce requests with version {options.version} are not allowed to use ZStandard compression",
        )


def append(
    replicas: ReplicaManager,
    requests: Sequence[Produce],
    now_ms: int,
    clock: Clock,
    transaction_verifier: AddPartitionsToTxnManager,
    rights: TopicRights | None,
) -> AppendTask[None]:
    """Append what requests have, in their order; their outcomes say what came of it.

    ``now_ms`` is wall time. ``rights`` are those of the sender, None if it may do everything.
    Others may have their turn at each yield; after that the ``clock`` gives the time again. What is
    behind the request under way may be taken from ``requests`` then. Nothing is appended behind a
    failed request with acks 0, whose answer is the end of its connection.
    """
    runs = _Runs(replicas, now_ms, clock, rights)
    opened = runs.opened
    is_over = clock.time_slice() if len(requests) > 1 or len(requests[0].partitions) > 1 else None
    checked: ProduceOptions | None = None
    for produce in requests:
        options, outcomes, batches = produce.options, produce.outcomes, produce.batches
        transaction: ProduceTransaction | None = None
        try:
            if options is not checked:  # those of a producer's single batches are the same object
                check_request(produce, rights)
                if options.transactional_id is not None or len(batches) > 1:
                    transaction = yield from _begin_transaction(runs, produce, transaction_verifier)
                else:
                    checked = options
        except KafkaError as error:
            outcomes += yield from _refuse_all(runs, produce, error)
        for number in range(len(outcomes), len(batches)):
            topic_partition, (records, header) = produce.partitions[number], batches[number]
            try:
                run = opened.get(topic_partition)
                if run is None or (run.options is not options and run.options != options):
                    run = runs.begin(topic_partition, options, produce.head.topic_ids[number], header)
                if header[5]:
                    check_attributes(options, header)
                first_offset = run.add(records, header)
                if first_offset >= 0:
                    outcome = run.appended, first_offset, first_offset + header[6]
                else:  # the log must decide more than its offsets
                    # A check may copy them, to give the connection's buffer back.
                    records = _NO_RECORDS
                    outcome = yield from _append_alone(runs, run, produce, transaction)
            except KafkaError as error:
                outcome = runs.refuse(topic_partition.topic, error)
            except Exception:
                logger.exception("Records for %s cannot be appended", topic_partition)
                outcome = runs.refuse(topic_partition.topic, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR))
            outcomes.append(outcome)
            if len(opened) == _MOST_RUNS:
                runs.write()
            if is_over is not None and is_over():
                runs.write()
                produce.own_batches()
                yield None
                runs.begin_turn()
                is_over = clock.time_slice()
        # It lives on while it waits for followers; the memory in which it came does not.
        produce.batches.clear()
        if not options.acks and produce.has_failed:
            break
    runs.write()


def _refuse_all(runs: "_Runs", produce: Produce, error: KafkaError) -> AppendTask[list[BatchOutcome]]:
    """The outcomes of a request that failed as a whole; the sender's missing rights come first."""
    if runs.rights is None or error.code is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
        return [not_appended(error) for _ in produce.partitions]
    yield from _ask_rights(runs, produce)
    denied = KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    return [not_appended(denied if runs.denies(produce.options, topic) else error) for topic, _ in produce.partitions]


def _ask_rights(runs: "_Runs", produce: Produce) -> AppendTask[None]:
    """Find out which topics of a request its sender may write to.

    What came before the request is written when others have their turn.
    """
    for number, (topic, _) in enumerate(produce.partitions, 1):
        runs.denies(produce.options, topic)
        if not number % _ASKED_A_TURN:
            runs.write()
            produce.own_batches()
            yield None
            runs.begin_turn()


def _begin_transaction(
    runs: "_Runs", produce: Produce, transaction_verifier: AddPartitionsToTxnManager
) -> AppendTask[ProduceTransaction | None]:
    """Have the coordinator asked about partitions in which a request's transaction begins.

    What came before the request is written first, because others may append to the same logs
    meanwhile. Raises `KafkaError`.
    """
    options, partitions = produce.options, produce.partitions
    headers = [header for _, header in produce.batches]
    if options.transactional_id is None:
        check_outside_transaction(headers)
        return None
    if runs.rights is not None:
        # The coordinator must not add a partition that the sender may not write to.
        yield from _ask_rights(runs, produce)
        allowed = [number for number, (topic, _) in enumerate(partitions) if not runs.denies(options, topic)]
        partitions = [partitions[number] for number in allowed]
        headers = [headers[number] for number in allowed]
    producer = check_producer(headers)
    if producer is None:
        return None
    version = options.version
    transaction = ProduceTransaction(
        transaction_verifier,
        TransactionalProducer(
            options.transactional_id, *producer, version >= _TRANSACTION_ABORTABLE, version >= _LEAVES_ADDING
        ),
    )
    transaction.start(runs.replicas, partitions, headers, runs.now_ms)
    if transaction.must_wait:
        runs.write()
        produce.own_batches()
        yield transaction.wait
        runs.begin_turn()
    return transaction


def _append_alone(
    runs: "_Runs", run: "_Run", produce: Produce, transaction: ProduceTransaction | None
) -> AppendTask[BatchOutcome]:
    """Append the next batch of a request in a write of its own, because it is none for ``run``.

    If its records take long to check, that is done in a thread first. What came before it is
    written before that, because others may append to the same log meanwhile.
    """
    number, options, partition = len(produce.outcomes), produce.options, run.partition
    is_in_transaction = transaction is not None and produce.batches[number][1][5] & TRANSACTIONAL
    guard = transaction.guard(partition.topic_partition) if transaction is not None and is_in_transaction else None
    checks: RecordValidator = SHORT_CHECKS
    check_of = run.batches.long_check
    while True:
        if check_of is not None:
            runs.write()
            produce.own_batches()
            checks = check = check_of(produce.batches[number][0])
            yield Beside(check.run)
            runs.begin_turn()
            runs.check_same(partition, options, produce.head.topic_ids[number])
        try:
            return runs.append_alone(partition, produce.batches[number][0], checks, guard)
        except LongCheckError as unchecked:
            check_of = unchecked.check_of


class _Run(NamedTuple):
    """Batches of one partition that are not written yet, of requests with the same options."""

    partition: Partition
    batches: AppendRun
    add: Callable[[memoryview, HeaderFields], int]
    """The method of ``batches``."""
    options: ProduceOptions
    appended: Appended


class _Runs:
    """The runs of one turn."""

    __slots__ = ("_clock", "now_ms", "opened", "replicas", "rights")

    def __init__(self, replicas: ReplicaManager, now_ms: int, clock: Clock, rights: TopicRights | None) -> None:
        self.replicas = replicas
        self.rights = rights
        self.now_ms = now_ms
        self._clock = clock
        self.opened: dict[TopicPartition, _Run] = {}

    def denies(self, options: ProduceOptions, topic: str) -> bool:
        """Whether the sender may not write to a topic."""
        is_named = bool(topic) or options.version < PRODUCE_TOPIC_IDS
        return self.rights is not None and is_named and not self.rights.allows(topic)

    def begin_turn(self) -> None:
        """Others had their turn: appends may have happened since, and none of these may have an
        earlier time.
        """
        self.now_ms = self._clock.wall_ms()

    def begin(
        self, topic_partition: TopicPartition, options: ProduceOptions, topic_id: Uuid, header: HeaderFields
    ) -> _Run:
        """A run for a partition that begins with a batch, behind the one that there is.

        Raises `KafkaError`."""
        if self.opened and topic_partition in self.opened:
            self.write((topic_partition,))
        if self.rights is not None and options.transactional_id is None:
            check_outside_transaction((header,))  # before what the sender may write to, as in Kafka
        check_topic(options, topic_partition.topic, self.rights)
        partition = self.replicas.appendable(topic_partition, options.acks, topic_id)
        batches = partition.log.begin_run(partition.leader_epoch, self.now_ms)
        run: _Run = new_tuple(_Run, (partition, batches, batches.add, options, Appended()))
        self.opened[topic_partition] = run
        return run

    def check_same(self, partition: Partition, options: ProduceOptions, topic_id: Uuid) -> None:
        """Whether a partition takes appends as before others had their turn, and is that of the
        same topic. Raises `KafkaError`.
        """
        if self.replicas.appendable(partition.topic_partition, options.acks, topic_id) is not partition:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"The replica of {partition.topic_partition} is another one than when the records came",
            )

    def append_alone(
        self, partition: Partition, records: memoryview, checks: RecordValidator, guard: VerificationGuard | None
    ) -> BatchOutcome:
        """Append a batch in a write of its own, behind its partition's run. Raises `KafkaError` and
        `LongCheckError`.
        """
        self.write((partition.topic_partition,))
        info = append_batch(self.replicas, partition, records, self.now_ms, checks=checks, guard=guard)
        appended = Appended()
        appended.log_append_time_ms = info.log_append_time_ms
        appended.log_start_offset = info.log_start_offset
        appended.is_durable = not partition.log.awaits_sync(info.last_offset)
        return appended, info.first_offset, info.last_offset

    def write(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Write the runs of some partitions, or all. Those that cannot be written know it
        afterwards.
        """
        opened, replicas = self.opened, self.replicas
        for topic_partition in tuple(opened) if partitions is None else partitions:
            run = opened.pop(topic_partition, None)
            if run is None:
                continue
            partition, batches, _, _, appended = run
            try:
                number, last_offset, count, size_bytes = batches.write()
            except Exception as error:
                # An unexpected error, too, is the outcome of these batches, not of the
                # one that came behind them.
                if not isinstance(error, KafkaError):
                    logger.exception("Records for %s cannot be written", topic_partition)
                    error = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
                appended.error = error
                replicas.topic_stats.find(topic_partition.topic).total_produce_requests += len(batches)
                continue
            if number:
                appended.is_durable = replicas.appended(partition, number, last_offset, count, size_bytes, self.now_ms)
                appended.log_start_offset = partition.log.bounds.log_start_offset

    def refuse(self, topic: str, error: KafkaError) -> BatchOutcome:
        """The outcome of a batch that was not appended. It counts if it was allowed."""
        if error.code is not ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            counters = self.replicas.topic_stats.find(topic)
            counters.total_produce_requests += 1
            if error.code not in _NOT_COUNTED:
                counters.failed_produce_requests += 1
        # The error is kept until the answer, and would keep the frames that it passed,
        # with the records in them.
        error.__traceback__ = error.__context__ = error.__cause__ = None
        return not_appended(error)
