"""Clients of a simulated Kafka cluster, scripted on the project's own codec: real ones
cannot run in virtual time.

Each client is a process on a machine of its own. It finds leaders through Metadata, retries
what may be retried for as long as the run lasts, and records in the `History` what it sent and
saw. An answer to a request during which records of the partition were lost with their disks
proves nothing and is ignored.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from barnabas.base.ids import ZERO_UUID, TopicPartition, Uuid
from barnabas.broker.cluster.channels import ChannelError, Channels
from barnabas.testing.simulation.simulation import BROKER_PORT, Machine, Simulation, broker_name
from barnabas.wire.kafka.errors import ErrorCode, KafkaError
from barnabas.wire.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.wire.kafka.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas.wire.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.wire.kafka.records.batch_header import check_batch
from barnabas.wire.kafka.records.records import read_records

__all__ = ["ClusterClient", "PartitionReader"]

_REQUEST_TIMEOUT_MS = 3000
_FETCH_WAIT_MS = 300
_LEAST_CUT_BYTES = 12
_END_ASKED_EVERY = 8
_LATEST = -1


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
        self.leader_epochs: dict[TopicPartition, int] = {}
        self.topic_ids: dict[str, Uuid] = {}
        self.controller_id = -1

    def spawn(self, work: Any) -> "asyncio.Task[Any]":
        """Run a coroutine in the client's process."""
        task: asyncio.Task[Any] = self.process.context.run(self.simulation.loop.create_task, work)
        return task

    async def pause(self, least_s: float = 0.05) -> None:
        """Before another try."""
        await asyncio.sleep(least_s + self.rng.random() * 2 * least_s)

    async def refresh(self, topics: Sequence[str] | None) -> None:
        """Ask any broker for metadata.

        Without an answer nothing changes, nor where a later epoch is known (KIP-320)."""
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
            if self.topic_ids.get(topic.name) != topic.topic_id:
                self._forget_epochs(topic.name)
                self.topic_ids[topic.name] = topic.topic_id
            for partition in topic.partitions:
                topic_partition = TopicPartition(topic.name, partition.partition_index)
                if partition.leader_epoch < self.leader_epochs.get(topic_partition, -1):
                    continue
                self.leader_epochs[topic_partition] = partition.leader_epoch
                self.leaders[topic_partition] = -1 if partition.error_code else partition.leader_id
                self.history.leader(topic_partition, partition.leader_epoch)

    def _forget_epochs(self, topic: str) -> None:
        """A topic of this name was created again."""
        for topic_partition in [
            topic_partition for topic_partition in self.leader_epochs if topic_partition.topic == topic
        ]:
            del self.leader_epochs[topic_partition]

    async def leader(self, topic_partition: TopicPartition) -> int:
        """The partition's leader, waited for."""
        while (found := self.leaders.get(topic_partition, -1)) < 0 or topic_partition.topic not in self.topic_ids:
            await self.refresh([topic_partition.topic])
            if self.leaders.get(topic_partition, -1) < 0:
                await asyncio.sleep(0.1 + self.rng.random() * 0.1)
        return found

    def forget_leader(self, topic_partition: TopicPartition) -> None:
        """It was wrong, or does not answer."""
        self.leaders.pop(topic_partition, None)

    def led_epoch(self, broker_id: int, topic_partition: TopicPartition) -> int | None:
        """The leader epoch in which a broker leads a partition by its own account.

        None if it does not."""
        machine = self.simulation.machine(broker_name(broker_id))
        partition = machine.server.components.replicas.get(topic_partition) if machine.is_serving else None
        if partition is None or not partition.is_leader:
            return None
        epoch: int = partition.leader_epoch
        return epoch

    def is_leader_now(self, broker_id: int, topic_partition: TopicPartition) -> bool:
        """Whether a broker's answer counts: after a loss, only the leaders' since then."""
        partition = self.history.partition(topic_partition)
        if not partition.losses:
            return True
        epoch = self.led_epoch(broker_id, topic_partition)
        return epoch is not None and epoch >= partition.loss_epoch


class PartitionReader:
    """Reads partitions from their beginning with assign, without a group, committed
    records only."""

    def __init__(self, client: ClusterClient, partitions: Sequence[TopicPartition]) -> None:
        self._client = client
        self.positions = dict.fromkeys(partitions, 0)
        self.high_watermarks: dict[TopicPartition, int] = {}
        self._losses: dict[TopicPartition, int] = {}
        self.is_stopping = False
        self.tasks = [client.spawn(self._run(topic_partition)) for topic_partition in partitions]

    @property
    def is_done(self) -> bool:
        return all(task.done() for task in self.tasks)

    def has_reached_end(self) -> bool:
        """Whether all is read, up to the high watermarks last seen."""
        return all(
            self.high_watermarks.get(topic_partition, 1 << 62) <= position
            for topic_partition, position in self.positions.items()
        )

    async def _run(self, topic_partition: TopicPartition) -> None:
        client, history = self._client, self._client.history
        partition = history.partition(topic_partition)
        count = 0
        while not self.is_stopping:
            leader = await client.leader(topic_partition)
            losses = partition.losses
            lives = client.simulation.machine(broker_name(leader)).lives
            try:
                response = await client.channels.send(leader, self._request(topic_partition))
            except ChannelError:
                client.forget_leader(topic_partition)
                await client.pause()
                continue
            history.reconsider(topic_partition)
            if partition.losses != losses or losses != self._losses.get(topic_partition, 0):
                # What was read, or is being read, may be what was lost: begin again.
                self._losses[topic_partition] = partition.losses
                self.positions[topic_partition] = 0
                continue
            is_same = lives == client.simulation.machine(broker_name(leader)).lives
            if (
                not is_same
                or not client.is_leader_now(leader, topic_partition)
                or not await self._take(topic_partition, response, (leader, lives))
            ):
                client.forget_leader(topic_partition)
                await client.pause()
            count += 1
            if count % _END_ASKED_EVERY == 0:
                await self._ask_end(topic_partition)

    def _request(self, topic_partition: TopicPartition) -> FetchRequest:
        wanted = FetchPartition(
            partition=topic_partition.partition,
            fetch_offset=self.positions[topic_partition],
            partition_max_bytes=8 * 1024,
            current_leader_epoch=self._client.leader_epochs.get(topic_partition, -1),
        )
        return FetchRequest(
            replica_id=-1,
            max_wait_ms=_FETCH_WAIT_MS,
            min_bytes=1,
            max_bytes=64 * 1024,
            isolation_level=1,
            session_epoch=-1,
            topics=[
                FetchTopic(
                    topic=topic_partition.topic,
                    topic_id=self._client.topic_ids[topic_partition.topic],
                    partitions=[wanted],
                )
            ],
        )

    async def _take(self, topic_partition: TopicPartition, response: Any, source: tuple[int, int]) -> bool:
        history = self._client.history
        code = ErrorCode.of(response.error_code)
        if code or not response.responses:
            return False
        answer = response.responses[0].partitions[0]
        code = ErrorCode.of(answer.error_code)
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            self._out_of_range(topic_partition, source[0])
            return False
        if code:
            if not code.retriable:
                history.violation(f"{topic_partition}: fetch was answered with {code.name}")
            return False
        epoch = self._client.led_epoch(source[0], topic_partition)
        if epoch is not None:
            history.watermarks(
                topic_partition,
                (*source, epoch),
                answer.log_start_offset,
                answer.last_stable_offset,
                answer.high_watermark,
            )
        self.high_watermarks[topic_partition] = answer.high_watermark
        self._records(topic_partition, bytes(answer.records or b""), answer.high_watermark)
        return True

    def _out_of_range(self, topic_partition: TopicPartition, broker_id: int) -> None:
        """A follower may be behind.

        A leader has all that was read, unless retention or a loss took it."""
        client = self._client
        partition = client.history.partition(topic_partition)
        machine = client.simulation.machine(broker_name(broker_id))
        epoch = client.led_epoch(broker_id, topic_partition)
        if epoch is None or epoch < partition.leader_epoch:
            return
        log = machine.server.components.replicas.get(topic_partition).log
        if self.positions[topic_partition] < log.log_start_offset:
            partition.start_offset = max(partition.start_offset, log.log_start_offset)
            self.positions[topic_partition] = log.log_start_offset
        elif partition.is_unclean:
            self.positions[topic_partition] = 0
        else:
            client.history.violation(
                f"{topic_partition}: {self.positions[topic_partition]} is out of range at broker {broker_id}, and nothing was lost"
            )
            self.positions[topic_partition] = 0

    async def _ask_end(self, topic_partition: TopicPartition) -> None:
        client, history = self._client, self._client.history
        partition = history.partition(topic_partition)
        known, losses = partition.end_offset, partition.losses
        leader = await client.leader(topic_partition)
        wanted = ListOffsetsPartition(
            partition_index=topic_partition.partition,
            current_leader_epoch=client.leader_epochs.get(topic_partition, -1),
            timestamp=_LATEST,
        )
        request = ListOffsetsRequest(
            replica_id=-1, isolation_level=1, topics=[ListOffsetsTopic(name=topic_partition.topic, partitions=[wanted])]
        )
        try:
            response = await client.channels.send(leader, request)
        except ChannelError:
            client.forget_leader(topic_partition)
            return
        answer = response.topics[0].partitions[0]
        history.reconsider(topic_partition)
        if not answer.error_code and partition.losses == losses and client.is_leader_now(leader, topic_partition):
            history.listed(topic_partition, answer.offset, known)

    @staticmethod
    def _is_cut(data: bytes, at: int) -> bool:
        """Whether the response ends in the middle of a batch, as it may."""
        length = int.from_bytes(data[at + 8 : at + 12], "big", signed=True)
        return length > 0 and at + 12 + length > len(data)

    def _records(self, topic_partition: TopicPartition, data: bytes, high_watermark: int) -> None:
        history = self._client.history
        partition = history.partition(topic_partition)
        position = self.positions[topic_partition]
        at = 0
        while at < len(data):
            try:
                header = check_batch(data, at, len(data))
            except KafkaError as error:
                if len(data) - at > _LEAST_CUT_BYTES and not self._is_cut(data, at):
                    history.violation(f"{topic_partition}: the batch for offset {position} cannot be read: {error}")
                break
            for record in read_records(data, at):
                if record.offset < position:
                    continue
                if record.offset != position and not partition.is_compacted:
                    history.violation(f"{topic_partition}: offset {position} was expected, {record.offset} came")
                if record.offset >= high_watermark:
                    history.violation(
                        f"{topic_partition}: {record.offset} is not below the high watermark {high_watermark}"
                    )
                history.read(topic_partition, record.offset, record.value or b"", record.key)
                position = record.offset + 1
            position = max(position, header.last_offset + 1)
            at += header.size_bytes
        self.positions[topic_partition] = position
