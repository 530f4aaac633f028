"""A broker's transaction service on a real log, with channels that a test answers,
and manual time."""

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from barnabas.base.ids import TopicPartition
from barnabas.base.tasks import Runner
from barnabas.base.threads import InThread
from barnabas.broker.cluster.channels import ChannelError
from barnabas.broker.cluster.steps import Steps
from barnabas.broker.metadata.internal_topics import TRANSACTIONS_TOPIC
from barnabas.broker.transactions.effects import InitProducerId, ProducerAnswer, TransactionSender
from barnabas.broker.transactions.service import TransactionDependencies, TransactionService
from barnabas.broker.transactions.transaction import Partitions
from barnabas.log.partition_log import PartitionLog
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from barnabas.wire.kafka.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from barnabas.wire.kafka.records.batch_header import read_headers
from barnabas.wire.kafka.records.records import read_records
from support.broker import DataPath
from support.slicing import thread_at_once

PARTITIONS = 3


class MarkerChannels:
    """Takes requests with markers; the test says what the brokers answer."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, WriteTxnMarkersRequest]] = []
        self.fails: list[bool] = []
        self.codes: dict[TopicPartition, ErrorCode] = {}
        """The answers of partitions, NONE for the others."""

    async def send(
        self, broker_id: int, request: WriteTxnMarkersRequest, *, timeout_ms: int
    ) -> WriteTxnMarkersResponse:
        assert timeout_ms > 30_000
        self.sent.append((broker_id, request))
        await asyncio.sleep(0)
        if self.fails and self.fails.pop(0):
            raise ChannelError("no connection")
        return WriteTxnMarkersResponse(
            markers=[
                WritableTxnMarkerResult(
                    producer_id=marker.producer_id,
                    topics=[
                        WritableTxnMarkerTopicResult(
                            name=topic.name,
                            partitions=[
                                WritableTxnMarkerPartitionResult(
                                    partition_index=index,
                                    error_code=self.codes.get(TopicPartition(topic.name, index), ErrorCode.NONE),
                                )
                                for index in topic.partition_indexes
                            ],
                        )
                        for topic in marker.topics
                    ],
                )
                for marker in request.markers
            ]
        )


class Ids:
    """Producer ids without a coordination service."""

    def __init__(self) -> None:
        self.next_id = 500
        self.is_empty = False

    def take(self) -> int | None:
        if self.is_empty:
            return None
        self.next_id += 1
        return self.next_id

    def next(self) -> Steps[int]:
        self.is_empty = False
        taken = self.take()
        assert taken is not None
        return taken
        yield  # a generator, as the real one


class TransactionBroker(DataPath):
    """A data path with the transaction service; background work runs when the test says so."""

    def __init__(self, directory: Path, settings: dict[str, str] | None = None) -> None:
        super().__init__(directory, {"transaction.state.log.num.partitions": str(PARTITIONS), **(settings or {})})
        self.spawned: list[Coroutine[Any, Any, None]] = []
        self.markers = MarkerChannels()
        self.ids = Ids()
        self.version = 0
        self.in_thread: InThread = thread_at_once
        self.transactions = TransactionService(
            TransactionDependencies(
                config=self.config,
                replicas=self.replicas,
                purgatory=self.purgatory,
                metadata=self.metadata,
                channels=self.markers,  # type: ignore[arg-type]  # it uses this method alone
                producer_ids=self.ids,  # type: ignore[arg-type]
                clock=self.clock,
                call_later=self.timers,
                spawn=self.spawned.append,
                start=self._run,
                runner=Runner(self.clock, self.timers, lambda work, done: self.in_thread(work, done)),
                transaction_version=lambda: self.version,
            )
        )
        self.transactions.start()
        self.replicas.on_leadership(self.transactions.leadership_changed)
        self.metadata.on_update(self.transactions.metadata_changed)
        self.know("a", 0, 0, 1)

    @staticmethod
    def _run(steps: Steps[None]) -> None:
        for step in steps:
            raise AssertionError(f"nothing performs {step!r}")

    def know(self, topic: str, *leaders: int) -> None:
        """Metadata of a topic: the leader of each of its partitions, -2 for one that is deleted."""
        states = [
            UpdateMetadataPartitionState(partition_index=number, leader=leader, replicas=[0], isr=[0])
            for number, leader in enumerate(leaders)
        ]
        brokers = [
            UpdateMetadataBroker(
                id=number,
                endpoints=[UpdateMetadataEndpoint(port=9000 + number, host="h", listener="PLAINTEXT")],
            )
            for number in range(3)
        ]
        topics = [UpdateMetadataTopicState(topic_name=topic, partition_states=states)]
        self.metadata.update(UpdateMetadataRequest(live_brokers=brokers, topic_states=topics))

    def load(self, *, epoch: int = 0, **options: Any) -> None:
        """Lead all partitions of the topic."""
        for number in range(PARTITIONS):
            self.lead(TRANSACTIONS_TOPIC, number, epoch=epoch, **options)
        self.work()

    def log(self, transactional_id: str = "t") -> PartitionLog:
        """The log with the records of a transactional id."""
        number = self.transactions.partition_for(transactional_id)
        return self.replicas.partition(TopicPartition(TRANSACTIONS_TOPIC, number)).log

    def values(self, transactional_id: str = "t") -> list[bytes | None]:
        """What its partition holds."""
        log = self.log(transactional_id)
        piece = log.read(0, 1 << 20, upper_bound=log.log_end_offset).records.read()
        return [record.value for at, _ in read_headers(piece) for record in read_records(piece, at)]

    def follower_reads(self, transactional_id: str = "t") -> None:
        """Broker 1 fetches at the end of that log."""
        log = self.log(transactional_id)
        self.replicas.follower_fetched(log.topic_partition, 1, log.log_end_offset, 0, self.clock.monotonic_ms())
        self.timers.advance(0)
        self.work()

    def work(self) -> None:
        """Do what runs in the background."""
        while self.spawned:
            asyncio.run(self._finish(self.spawned.pop(0)))

    async def _finish(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        while not task.done():
            await asyncio.sleep(0)
            self.timers.advance(0)
        task.result()

    # Requests

    def init(self, transactional_id: str = "t", *, timeout_ms: int = 60_000) -> list[ProducerAnswer]:
        to: list[ProducerAnswer] = []
        self.transactions.init_producer_id(InitProducerId(transactional_id, timeout_ms, None), to.append)
        return to

    def producer(self, transactional_id: str = "t", **options: Any) -> TransactionSender:
        (answer,) = self.init(transactional_id, **options)
        assert answer.error is ErrorCode.NONE, answer
        return TransactionSender(transactional_id, answer.producer_id, answer.producer_epoch)

    def add(self, sender: TransactionSender, partitions: Partitions) -> list[ErrorCode]:
        to: list[ErrorCode] = []
        self.transactions.add_partitions(sender, partitions, to.append)
        return to

    def end(self, sender: TransactionSender, *, committed: bool = True) -> list[ProducerAnswer]:
        to: list[ProducerAnswer] = []
        self.transactions.end(sender, committed=committed, to=to.append)
        return to

    def state(self, transactional_id: str = "t") -> str:
        found = self.transactions.coordinator.find(transactional_id)
        return "" if found is None else found.state.value
