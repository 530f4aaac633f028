"""Clients of a simulated Kafka cluster, scripted on the project's own codec: real ones cannot run in virtual time.

Each client is a process on a machine of its own. It finds leaders through Metadata, retries what may be retried for as
long as the run lasts, and tells the `History` what it sent and saw. An answer to a request that was under way when the
partition's broker lost its power proves nothing and is not believed.
"""

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any

from barnabas.base.ids import ZERO_UUID, TopicPartition, Uuid
from barnabas.broker.channels import ChannelError, Channels
from barnabas.testing.simulation.simulation import BROKER_PORT, Machine, Simulation, broker_name
from barnabas.wire.kafka.batch import Record, build_batch, check_batch, read_records
from barnabas.wire.kafka.errors import ErrorCode, KafkaError
from barnabas.wire.kafka.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from barnabas.wire.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.wire.kafka.messages.init_producer_id import InitProducerIdRequest
from barnabas.wire.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.wire.kafka.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

__all__ = ["ClusterClient", "Producer", "Reader", "create_topic"]

_REQUEST_TIMEOUT_MS = 3000
_FETCH_WAIT_MS = 300
_LEAST_CUT_BYTES = 12
_CREATE_TIMEOUT_S = 120


class ClusterClient:
    """Requests to the brokers of the cluster from one client process."""

    def __init__(self, simulation: Simulation, name: str, brokers: Sequence[int]) -> None:
        self.simulation = simulation
        self.history = simulation.history
        self.machine: Machine = simulation.machine(name)
        self.process = self.machine.boot()
        self.rng = self.process.rng
        self.brokers = list(brokers)
        self.channels = Channels(-1, self.machine.network(), request_timeout_ms=_REQUEST_TIMEOUT_MS)
        self.channels.set_brokers({broker: (broker_name(broker), BROKER_PORT) for broker in brokers})
        self.leaders: dict[TopicPartition, int] = {}
        self.topic_ids: dict[str, Uuid] = {}
        self.controller_id = -1

    def spawn(self, work: Any) -> "asyncio.Task[Any]":
        """Run a coroutine in the client's process."""
        task: asyncio.Task[Any] = self.process.context.run(self.simulation.loop.create_task, work)
        return task

    async def refresh(self, topics: Sequence[str] | None) -> None:
        """Ask any broker for metadata; without an answer nothing changes."""
        wanted = None if topics is None else [MetadataRequestTopic(topic_id=ZERO_UUID, name=topic) for topic in topics]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
        try:
            response = await self.channels.send(self.rng.choice(self.brokers), request)
        except ChannelError:
            await asyncio.sleep(0.05)
            return
        self.controller_id = response.controller_id
        for topic in response.topics:
            if topic.error_code or topic.name is None:
                continue
            self.topic_ids[topic.name] = topic.topic_id
            for partition in topic.partitions:
                name = TopicPartition(topic.name, partition.partition_index)
                self.leaders[name] = -1 if partition.error_code else partition.leader_id
                self.history.leader(name, partition.leader_epoch)

    async def leader(self, name: TopicPartition) -> int:
        """The partition's leader, waited for."""
        while (found := self.leaders.get(name, -1)) < 0 or name.topic not in self.topic_ids:
            await self.refresh([name.topic])
            if self.leaders.get(name, -1) < 0:
                await asyncio.sleep(0.1 + self.rng.random() * 0.1)
        return found

    def forget_leader(self, name: TopicPartition) -> None:
        """It was wrong, or does not answer."""
        self.leaders.pop(name, None)


async def create_topic(client: ClusterClient, topic: str, partitions: int, replication: int) -> None:
    """Create a topic, whatever it takes."""
    configs: list[CreatableTopicConfig] = []
    wanted = CreatableTopic(
        name=topic, num_partitions=partitions, replication_factor=replication, assignments=[], configs=configs
    )
    loop = client.simulation.loop
    deadline = loop.time() + _CREATE_TIMEOUT_S
    tries = 0
    while loop.time() < deadline:
        await client.refresh([])
        if client.controller_id < 0:
            await asyncio.sleep(0.1)
            continue
        tries += 1
        try:
            response = await client.channels.send(
                client.controller_id, CreateTopicsRequest(topics=[wanted], timeout_ms=2000)
            )
        except ChannelError:
            await asyncio.sleep(0.1)
            continue
        code = ErrorCode.of(response.topics[0].error_code)
        if code is ErrorCode.NONE or (code is ErrorCode.TOPIC_ALREADY_EXISTS and tries > 1):
            client.history.topics_created[topic] = partitions
            client.history.count("topics")
            return
        if not _may_retry(code) and code is not ErrorCode.INVALID_REPLICATION_FACTOR:
            client.history.violation(f"CreateTopics of {topic} was answered with {code.name}")
            return
        await asyncio.sleep(0.2)
    client.history.violation(f"topic {topic} was not created within {_CREATE_TIMEOUT_S} s of virtual time")


def _may_retry(code: ErrorCode) -> bool:
    return code.retriable


class Producer:
    """An idempotent producer: in each of its partitions batch after batch, each sent until its fate is known."""

    def __init__(
        self, client: ClusterClient, number: int, partitions: Sequence[TopicPartition], *, mean_pause_s: float = 0.06
    ) -> None:
        self._client = client
        self._number = number
        self._mean_pause_s = mean_pause_s
        self._producer_id = -1
        self._producer_epoch = -1
        self._sequences: dict[TopicPartition, int] = {}
        self._renewing = asyncio.Lock()
        self.is_stopping = False
        self.tasks = [client.spawn(self._run(name)) for name in partitions]

    @property
    def is_done(self) -> bool:
        return all(task.done() for task in self.tasks)

    async def _identify(self) -> None:
        async with self._renewing:
            while self._producer_id < 0:
                client = self._client
                request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
                with contextlib.suppress(ChannelError):
                    response = await client.channels.send(client.rng.choice(client.brokers), request)
                    if not response.error_code:
                        self._producer_id, self._producer_epoch = response.producer_id, response.producer_epoch
                        return
                    if not _may_retry(ErrorCode.of(response.error_code)):
                        client.history.violation(f"InitProducerId: {ErrorCode.of(response.error_code).name}")
                await asyncio.sleep(0.1)

    async def _run(self, name: TopicPartition) -> None:
        client = self._client
        count = 0
        rng = client.rng
        while not self.is_stopping:
            size = rng.choice((1, 1, 2, 5))
            values = [f"{self._number}:{name}:{count + n}".encode() for n in range(size)]
            if rng.random() < 0.05:
                values[0] += b"." * rng.randrange(3000)
            count += size
            client.history.sent(name, values)
            await self._send(name, values)
            await asyncio.sleep(rng.expovariate(1 / self._mean_pause_s))

    async def _send(self, name: TopicPartition, values: list[bytes]) -> None:
        client = self._client
        partition = client.history.partition(name)
        if self._producer_id < 0:
            await self._identify()
        identity = (self._producer_id, self._producer_epoch)
        sequence = self._sequences.get(name, 0)
        now_ms = client.machine.clock.wall_ms()
        batch = build_batch(
            [Record(n, now_ms, None, value) for n, value in enumerate(values)],
            producer_id=identity[0],
            producer_epoch=identity[1],
            base_sequence=sequence,
        )
        losses_at_first = partition.losses
        while True:
            losses = partition.losses
            code, base_offset = await self._ask(name, batch)
            if code is ErrorCode.NONE or code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                if partition.losses == losses:
                    offset = base_offset if code is ErrorCode.NONE else -1
                    client.history.acknowledged(name, self._number, values, offset)
                self._sequences[name] = sequence + len(values)
                return
            if code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER or code is ErrorCode.UNKNOWN_PRODUCER_ID:
                if not partition.losses:
                    client.history.violation(f"{name}: {code.name} for sequence {sequence} of {identity}, nothing lost")
                # The batches before are lost with the power: begin anew; nobody knows about this one.
                if self._producer_id == identity[0]:
                    self._producer_id = -1
                    self._sequences.clear()
                return
            if code is not None and not _may_retry(code):
                client.history.violation(f"{name}: produce was answered with {code.name} (losses {losses_at_first})")
                return
            client.history.count("produce retries")
            client.forget_leader(name)
            await asyncio.sleep(0.05 + client.rng.random() * 0.1)

    async def _ask(self, name: TopicPartition, batch: bytearray) -> tuple[ErrorCode | None, int]:
        client = self._client
        leader = await client.leader(name)
        topic = TopicProduceData(
            name=name.topic,
            topic_id=client.topic_ids[name.topic],
            partition_data=[PartitionProduceData(index=name.partition, records=bytes(batch))],
        )
        try:
            response = await client.channels.send(
                leader, ProduceRequest(transactional_id=None, acks=-1, timeout_ms=2000, topic_data=[topic])
            )
        except ChannelError:
            return None, -1
        answer = response.responses[0].partition_responses[0]
        return ErrorCode.of(answer.error_code), answer.base_offset


class Reader:
    """Reads partitions from their beginning with assign, without a group, committed records only."""

    def __init__(self, client: ClusterClient, partitions: Sequence[TopicPartition]) -> None:
        self._client = client
        self.positions = dict.fromkeys(partitions, 0)
        self.high_watermarks: dict[TopicPartition, int] = {}
        self._losses: dict[TopicPartition, int] = {}
        self.is_stopping = False
        self.tasks = [client.spawn(self._run(name)) for name in partitions]

    @property
    def is_done(self) -> bool:
        return all(task.done() for task in self.tasks)

    def has_reached_end(self) -> bool:
        """Whether all is read, up to the high watermarks last seen."""
        return all(self.high_watermarks.get(name, 1 << 62) <= position for name, position in self.positions.items())

    async def _run(self, name: TopicPartition) -> None:
        client = self._client
        partition = client.history.partition(name)
        while not self.is_stopping:
            leader = await client.leader(name)
            losses = partition.losses
            try:
                response = await client.channels.send(leader, self._request(name))
            except ChannelError:
                client.forget_leader(name)
                await asyncio.sleep(0.05 + client.rng.random() * 0.1)
                continue
            if partition.losses != losses or losses != self._losses.get(name, 0):
                # What was read, or is being read, may be what was lost: begin again.
                self._losses[name] = partition.losses
                self.positions[name] = 0
                continue
            if not await self._take(name, response):
                client.forget_leader(name)
                await asyncio.sleep(0.05 + client.rng.random() * 0.1)

    def _request(self, name: TopicPartition) -> FetchRequest:
        wanted = FetchPartition(
            partition=name.partition, fetch_offset=self.positions[name], partition_max_bytes=8 * 1024
        )
        return FetchRequest(
            replica_id=-1,
            max_wait_ms=_FETCH_WAIT_MS,
            min_bytes=1,
            max_bytes=64 * 1024,
            isolation_level=1,
            session_epoch=-1,
            topics=[FetchTopic(topic=name.topic, topic_id=self._client.topic_ids[name.topic], partitions=[wanted])],
        )

    async def _take(self, name: TopicPartition, response: Any) -> bool:
        client = self._client
        code = ErrorCode.of(response.error_code)
        if code or not response.responses:
            return False
        answer = response.responses[0].partitions[0]
        code = ErrorCode.of(answer.error_code)
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            client.history.violation(f"{name}: {self.positions[name]} is out of range, and no power was lost")
            self.positions[name] = 0
            return False
        if code:
            if not _may_retry(code):
                client.history.violation(f"{name}: fetch was answered with {code.name}")
            return False
        client.history.watermarks(name, answer.log_start_offset, answer.last_stable_offset, answer.high_watermark)
        self.high_watermarks[name] = answer.high_watermark
        self._records(name, bytes(answer.records or b""), answer.high_watermark)
        return True

    @staticmethod
    def _is_cut(data: bytes, at: int) -> bool:
        """Whether the response ends in the middle of a batch, as it may."""
        length = int.from_bytes(data[at + 8 : at + 12], "big", signed=True)
        return length > 0 and at + 12 + length > len(data)

    def _records(self, name: TopicPartition, data: bytes, high_watermark: int) -> None:
        history = self._client.history
        position = self.positions[name]
        at = 0
        while at < len(data):
            try:
                header = check_batch(data, at, len(data))
            except KafkaError as error:
                if len(data) - at > _LEAST_CUT_BYTES and not self._is_cut(data, at):
                    history.violation(f"{name}: the batch for offset {position} cannot be read: {error}")
                break
            for record in read_records(data, at):
                if record.offset < position:
                    continue
                if record.offset != position:
                    history.violation(f"{name}: offset {position} was expected, {record.offset} came")
                if record.offset >= high_watermark:
                    history.violation(f"{name}: {record.offset} is not below the high watermark {high_watermark}")
                history.read(name, record.offset, record.value or b"")
                position = record.offset + 1
            at += header.size_bytes
        self.positions[name] = position
