"""The edge of the transaction coordinator: requests, effects, one timer, markers, and loading.

`TransactionService` passes each request to the pure `TransactionCoordinator` with the time, and
performs the effects that it returns. Records are appended to the local replica of
``__transaction_state`` with acks -1, and count when they are committed. Markers go to the leaders
of their partitions, this broker included, in requests with all that is queued for a broker. When
the controller makes this broker leader of a partition, the partition's log is read in steps,
between which the event loop is free. Its transactions are served when all in-sync replicas have
what was read: a decision that a later coordinator might not know must not have markers. Meanwhile
requests get COORDINATOR_LOAD_IN_PROGRESS.

In Kafka: `TransactionStateManager`, for loading and appending, and the sender thread of
`TransactionMarkerChannelManager`.
"""

import logging
from collections import Counter
from collections.abc import Callable, Coroutine, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from barnabas.base.clock import CallLater, Clock, Now, Timer
from barnabas.base.ids import NO_BROKER, TopicPartition
from barnabas.base.task_futures import future_of
from barnabas.base.tasks import Beside, Runner, Task
from barnabas.broker.cluster.channels import ChannelError, Channels
from barnabas.broker.cluster.steps import Steps
from barnabas.broker.configuration.broker_config import BrokerConfig
from barnabas.broker.coordinators.deadline_timer import DeadlineTimer
from barnabas.broker.coordinators.service import CoordinatorLoader
from barnabas.broker.metadata.cache import MetadataCache
from barnabas.broker.metadata.features import TRANSACTION_V2
from barnabas.broker.metadata.internal_topics import TRANSACTIONS_TOPIC, partition_of
from barnabas.broker.replication.delayed_produce import DelayedProduce
from barnabas.broker.replication.partition import ALL_IN_SYNC, Partition
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.broker.requests.purgatory import Purgatory
from barnabas.broker.transactions.coordinator import TransactionCoordinator
from barnabas.broker.transactions.effects import (
    AnswerProducer,
    AppendTransactions,
    Completion,
    InitProducerId,
    NewProducerId,
    ProducerAnswer,
    SendMarkers,
    TransactionEffect,
    TransactionSender,
    TransactionSettings,
)
from barnabas.broker.transactions.loading import TransactionLoader
from barnabas.broker.transactions.markers import Marker, MarkerQueues, request_of
from barnabas.broker.transactions.producer_ids import ProducerIds
from barnabas.broker.transactions.records import encode_transaction_state, encode_transactional_id
from barnabas.broker.transactions.transaction import Partitions
from barnabas.log.partition_log import Origin
from barnabas.wire.kafka.errors import ErrorCode, KafkaError
from barnabas.wire.kafka.messages.write_txn_markers import WriteTxnMarkersResponse
from barnabas.wire.kafka.records.records import Record, build_batch

__all__ = ["TransactionDependencies", "TransactionService"]

logger = logging.getLogger(__name__)

_MARKER_RETRY_MS = 100
_KEPT_LOADS = 99
_GRACE_MS = 2_000
_END_WAIT_MS = 100
"""How long a producer waits for its last transaction before it is refused."""
_MOST_REQUESTS = 4
"""Marker requests under way to one broker. More would carry fewer markers each."""


@dataclass(frozen=True, slots=True)
class TransactionDependencies:
    """What the transaction coordinator of a broker works with."""

    config: BrokerConfig
    replicas: ReplicaManager
    purgatory: Purgatory
    metadata: MetadataCache
    channels: Channels
    producer_ids: ProducerIds
    clock: Clock
    call_later: CallLater
    spawn: Callable[[Coroutine[Any, Any, None]], None]
    start: Callable[[Steps[None]], None]
    """Performs steps in the background."""
    runner: Runner
    transaction_version: Callable[[], int]
    """The finalized level of that feature, 0 for none."""


class TransactionService:
    """The transaction coordinator of one broker."""

    def __init__(self, dependencies: TransactionDependencies) -> None:
        config = dependencies.config
        self._config = config
        self._replicas = dependencies.replicas
        self._purgatory = dependencies.purgatory
        self._metadata = dependencies.metadata
        self._channels = dependencies.channels
        self._producer_ids = dependencies.producer_ids
        self._clock = dependencies.clock
        self._call_later = dependencies.call_later
        self._spawn = dependencies.spawn
        self._start = dependencies.start
        self._runner = dependencies.runner
        self._transaction_version = dependencies.transaction_version
        # A leader waits for the followers, as long as request.timeout.ms, and then answers.
        self._markers_timeout_ms = config["request.timeout.ms"] + _GRACE_MS
        self._encoding = self._runner.lane()
        """Appends that wait for a large record to be encoded."""
        self._stored_partitions = 0
        self._marker_timer: Timer | None = None
        self._sending: Counter[int] = Counter()
        self.load_ms: list[int] = []
        """How long the latest loads took (the metrics partition-load-time-max and -avg)."""
        self.coordinator = TransactionCoordinator(
            TransactionSettings.of(config.values),
            self.partition_for,
            self._producer_ids.take,
            self._transaction_version,
        )
        self._timer = DeadlineTimer(
            "transactions", self._clock.monotonic_ms, self._call_later, self.coordinator.next_deadline_ms, self._tick
        )
        self._loader = CoordinatorLoader(
            self.coordinator,
            "transactions",
            config["transaction.state.log.load.buffer.size"],
            replicas=self._replicas,
            purgatory=self._purgatory,
            clock=self._clock,
            runner=self._runner,
            spawn=self._spawn,
        )
        self.markers = MarkerQueues(self._leader_of, self.coordinator.is_wanted)

    def start(self, stored_partitions: int = 0) -> None:
        """Follow the controller's elections from now on.

        ``stored_partitions`` is how many partitions the topic has, 0 when there is none. The first
        metadata that a broker receives may contain only some of them, but a transactional id's
        partition must be the same on all brokers.
        """
        self._stored_partitions = stored_partitions
        self.coordinator.start_deadlines(self._now())
        self._timer.set()

    def stop(self) -> None:
        """Answer with COORDINATOR_NOT_AVAILABLE from now on, and write no more markers."""
        self.coordinator.is_active = False
        self._timer.stop()
        if self._marker_timer is not None:
            self._marker_timer.cancel()
            self._marker_timer = None

    def partition_for(self, transactional_id: str) -> int:
        """The partition of ``__transaction_state`` that a transactional id's records are in."""
        count = max(self._metadata.partition_count(TRANSACTIONS_TOPIC), self._stored_partitions)
        return partition_of(transactional_id, count or self._config["transaction.state.log.num.partitions"])

    # Requests

    def init_producer_id(self, request: InitProducerId, to: Callable[[ProducerAnswer], None]) -> None:
        """Give a producer with a transactional id its producer id and epoch."""
        ask = partial(self.coordinator.init_producer_id, request)

        def decided(answer: ProducerAnswer) -> None:
            if answer.error is ErrorCode.CONCURRENT_TRANSACTIONS:
                self._when_ended(request.transactional_id, lambda: self._perform(ask(to, self._now())))
            else:
                to(answer)

        self._perform(ask(decided, self._now()))

    def add_partitions(
        self,
        sender: TransactionSender,
        partitions: Partitions,
        to: Callable[[ErrorCode], None],
        *,
        may_wait: bool = True,
    ) -> None:
        """Add partitions to the producer's transaction.

        A broker that asks on behalf of a producer (``may_wait`` is false) is refused at once while
        the last transaction ends: its question is void when that one's marker comes.
        """
        ask = partial(self.coordinator.add_partitions, sender, partitions)

        def decided(error: ErrorCode) -> None:
            if error is ErrorCode.CONCURRENT_TRANSACTIONS and may_wait:
                self._when_ended(sender.transactional_id, lambda: self._perform(ask(to, self._now())))
            else:
                to(error)

        self._perform(ask(decided, self._now()))

    def _when_ended(self, transactional_id: str, again: Callable[[], None]) -> None:
        """Decide ``again`` when what is under way for a transactional id is over, or after a short
        time.

        The last transaction ends some milliseconds after its producer is answered. A producer that
        is refused meanwhile would wait for longer. Kafka's coordinator refuses it at once.
        """
        coordinator = self.coordinator

        def try_again(_: Hashable) -> bool:
            transaction = coordinator.find(transactional_id)
            if transaction is not None and (transaction.pending is not None or transaction.state.is_prepared):
                return False
            again()
            return True

        if not try_again(None):
            self._purgatory.watch([("transaction", transactional_id)], try_again, again, _END_WAIT_MS)

    def end(
        self,
        sender: TransactionSender,
        *,
        committed: bool,
        to: Callable[[ProducerAnswer], None],
        raises_epoch: bool = False,
    ) -> None:
        """Commit or abort the producer's transaction; ``raises_epoch``: as in version 2.

        What the client speaks decides, not the level that is finalized: with an answer of version 2
        it begins its sequences again, which must be in an epoch of its own.
        """
        version = TRANSACTION_V2 if raises_epoch else 0
        self._perform(self.coordinator.end(sender, committed, to, self._now(), version))

    # Effects

    def _now(self) -> Now:
        return Now.of(self._clock)

    def _perform(self, effects: Iterable[TransactionEffect]) -> None:
        for effect in effects:
            match effect:
                case AnswerProducer(to, answer):
                    _answer(to, answer)
                case AppendTransactions():
                    self._append(effect)
                case SendMarkers(completion):
                    self._runner.start(self._queue(completion))
                case NewProducerId():
                    self._start(self._with_new_id(effect))
        self._timer.set()

    def _with_new_id(self, wanted: NewProducerId) -> Steps[None]:
        try:
            producer_id = yield from self._producer_ids.next()
        except KafkaError as error:
            _answer(wanted.to, ProducerAnswer(error.code))
            return
        self._perform(wanted.decide(self._now(), producer_id))

    def _append(self, append: AppendTransactions) -> None:
        if append.is_large or self._encoding.is_busy:
            self._encoding.start(self._append_in_turn(append))
        else:
            wall_ms = self._clock.wall_ms()
            self._write(append, wall_ms, self._encoder(append, wall_ms))

    def _append_in_turn(self, append: AppendTransactions) -> Task[None]:
        """Encode a large record in a thread.

        What is to be appended after it waits for its turn, so records keep their order."""
        wall_ms = self._clock.wall_ms()
        encode = self._encoder(append, wall_ms)
        if append.is_large:
            made: list[bytearray] = []
            large = encode
            try:
                yield Beside(lambda: made.append(large()))
            except Exception:
                logger.exception("A record of %r cannot be made", append.records[0][0])
                self._appended(append, ErrorCode.UNKNOWN_SERVER_ERROR)
                return
            encode = partial(made.pop)
        if append.owned.is_led:
            self._write(append, wall_ms, encode)
        else:  # it may have been loaded again meanwhile: this must not come behind what was read
            self._appended(append, ErrorCode.NOT_COORDINATOR)

    def _write(self, append: AppendTransactions, wall_ms: int, encode: Callable[[], bytearray]) -> None:
        topic_partition = TopicPartition(TRANSACTIONS_TOPIC, append.owned.number)
        try:
            result = self._replicas.append(
                topic_partition,
                encode(),
                acks=ALL_IN_SYNC,
                now_ms=wall_ms,
                origin=Origin.COORDINATOR,
            )
        except KafkaError as error:
            self._appended(append, error.code)
            return
        except Exception:  # without an answer its producer would wait for ever
            logger.exception("A record for %s cannot be written", topic_partition)
            self._appended(append, ErrorCode.UNKNOWN_SERVER_ERROR)
            return
        delayed = DelayedProduce(self._replicas)
        delayed.add(topic_partition, result.last_offset, ALL_IN_SYNC, partial(self._appended, append))
        if not delayed.is_over:
            delayed.wait(self._purgatory, append.timeout_ms, lambda: None)

    def _appended(self, append: AppendTransactions, error: ErrorCode) -> None:
        self._perform(self.coordinator.appended(append, error, self._now()))
        for transactional_id, _ in append.records:
            self._purgatory.check_and_complete(("transaction", transactional_id))

    def _encoder(self, append: AppendTransactions, wall_ms: int) -> Callable[[], bytearray]:
        return partial(_encode, append, wall_ms, is_flexible=self._transaction_version() > 0)

    # Markers

    def _leader_of(self, topic_partition: TopicPartition) -> int | None:
        if self._metadata.partition(topic_partition) is None:
            return NO_BROKER if self._metadata.is_loading else None
        return self._metadata.live_leader(topic_partition)

    def _queue(self, completion: Completion) -> Task[None]:
        if (yield from self.markers.add(completion)):
            self._perform(self.coordinator.markers_written(completion, self._now()))
        self._send_markers()

    def _requeue(self) -> Task[None]:
        for completion in (yield from self.markers.requeue()):
            self._perform(self.coordinator.markers_written(completion, self._now()))
        self._send_markers()

    def _send_markers(self) -> None:
        """Send what is queued, and look again later at what is not."""
        if not self.coordinator.is_active:
            return
        for broker_id in self.markers.brokers:
            if self._sending[broker_id] < _MOST_REQUESTS:
                self._sending[broker_id] += 1
                self._spawn(self._send_to(broker_id))
        if self.markers.has_waiting and self._marker_timer is None:
            self._marker_timer = self._call_later(_MARKER_RETRY_MS, self._retry_markers)

    def _retry_markers(self) -> None:
        self._marker_timer = None
        self._runner.start(self._requeue())

    async def _send_to(self, broker_id: int) -> None:
        """Send requests with markers while there are any for the broker."""
        taken: list[Marker] = []
        try:
            while self.coordinator.is_active and (taken := self.markers.take(broker_id)):
                response: WriteTxnMarkersResponse = await self._channels.send(
                    broker_id, request_of(taken), timeout_ms=self._markers_timeout_ms
                )
                await future_of(self._runner, self._settle(taken, response))
        except ChannelError as error:
            logger.info("Markers of transactions are sent again: %s", error)
        finally:
            self.markers.failed(taken)
            self._sending[broker_id] -= 1
            self._send_markers()

    def _settle(self, markers: list[Marker], response: WriteTxnMarkersResponse) -> Task[None]:
        for completion in (yield from self.markers.answered(markers, response)):
            self._perform(self.coordinator.markers_written(completion, self._now()))
            yield None

    def _tick(self) -> None:
        self._perform(self.coordinator.tick(self._now()))

    # Partitions coming and going

    def metadata_changed(self, _changed: set[str], _deleted: Sequence[TopicPartition]) -> None:
        """Partitions may have other leaders, for which markers wait."""
        if self.markers.has_waiting:
            self._runner.start(self._requeue())

    def leadership_changed(self, gained: Sequence[Partition], lost: Sequence[Partition]) -> None:
        """Load the transactions of partitions that this broker leads from now on, and
        unload those that it lost."""
        for partition in lost:
            if partition.topic_partition.topic == TRANSACTIONS_TOPIC:
                logger.debug("Unloading transactions of %s", partition.topic_partition)
                self.coordinator.unload(partition.topic_partition.partition, partition.leader_epoch)
        for partition in gained:
            if partition.topic_partition.topic == TRANSACTIONS_TOPIC:
                self._load(partition)

    def _load(self, partition: Partition) -> None:
        """Load a partition's transactions. A decision that a later coordinator might not know must
        not have markers, so it is served when all in-sync replicas have what was read."""
        topic_partition, leader_epoch = partition.topic_partition, partition.leader_epoch
        number = topic_partition.partition
        if not self.coordinator.start_loading(number, leader_epoch):
            return
        loader = TransactionLoader()

        def serve(took_ms: int) -> None:
            transactions = loader.transactions
            self.load_ms = [*self.load_ms[-_KEPT_LOADS:], took_ms]
            self._perform(self.coordinator.finish_loading(number, leader_epoch, transactions, self._now()))
            logger.log(
                logging.INFO if transactions else logging.DEBUG,
                "Loaded %d transactional ids of %s in %d ms",
                len(transactions),
                topic_partition,
                took_ms,
            )

        self._loader.load(partition, loader, serve)


def _encode(append: AppendTransactions, wall_ms: int, *, is_flexible: bool) -> bytearray:
    return build_batch(
        Record(
            number,
            wall_ms,
            encode_transactional_id(transactional_id),
            None if value is None else encode_transaction_state(value, is_flexible=is_flexible),
        )
        for number, (transactional_id, value) in enumerate(append.records)
    )


def _answer(to: Callable[[Any], None], answer: Any) -> None:
    """Answer one producer. An exception here must not keep others from their answers."""
    try:
        to(answer)
    except Exception:
        logger.exception("A transactional producer could not be answered")
