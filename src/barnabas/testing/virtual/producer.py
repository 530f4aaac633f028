"""`VirtualProducer`: the methods of `barnabas.client.AsyncProducer` in virtual time.

Each partition has one batch under way, so records of a partition keep their order. A batch without
an answer is sent again: without ``enable.idempotence`` its records may then stand twice, as with
any producer. A batch that is refused for its size is sent again in parts.
"""

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from barnabas.base.ids import TopicPartition
from barnabas.broker.cluster.channels import ChannelError
from barnabas.client.aio.calls import ProducerCalls
from barnabas.client.arguments import check_timestamp
from barnabas.client.codecs import Serializer, encoder
from barnabas.client.errors import (
    BufferFullError,
    ClientError,
    ClosedError,
    ConfigurationError,
    DeliveryError,
    DroppedError,
    UndeliveredError,
    refusal,
)
from barnabas.client.producer.batch_limits import TOO_LARGE
from barnabas.client.producer.partitioners import chooser
from barnabas.client.producer.producer import CLOSE_TIMEOUT_S
from barnabas.client.records import Delivery, Headers
from barnabas.client.type_variables import K_contra, V_contra
from barnabas.testing.virtual.link import ClusterLink
from barnabas.testing.virtual.properties import producer_settings
from barnabas.testing.virtual.sending import init_producer_id, produce_request
from barnabas.testing.virtual.transactions import TransactionManager
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.records.framing import murmur2
from barnabas.wire.kafka.records.records import Record, build_batch

__all__ = ["VirtualProducer"]


_METADATA_S = 10.0
_ROOM_S = 0.02


class _Pending:
    """A record that waits, and the future that gets its place."""

    __slots__ = ("future", "headers", "key", "timestamp_ms", "until_s", "value")

    def __init__(
        self, key: bytes | None, value: bytes | None, timestamp_ms: int, headers: Headers, until_s: float
    ) -> None:
        self.key, self.value, self.timestamp_ms, self.headers, self.until_s = key, value, timestamp_ms, headers, until_s
        self.future: asyncio.Future[Delivery] = asyncio.get_running_loop().create_future()


class _PartitionQueue:
    """One partition: its queue, the task that empties it, the next sequence number."""

    def __init__(self) -> None:
        self.waiting: deque[_Pending] = deque()
        self.task: asyncio.Task[None] | None = None
        self.sequence = 0


class VirtualProducer(ProducerCalls[K_contra, V_contra]):
    """Sends records to topics of a simulated cluster; see `barnabas.client.AsyncProducer`."""

    def __init__(
        self,
        link: ClusterLink,
        properties: Mapping[str, Any],
        *,
        serializer: Serializer[V_contra] | None = None,
        key_serializer: Serializer[K_contra] | None = None,
        partitioner: Any = None,
        close_timeout_s: float = CLOSE_TIMEOUT_S,
    ) -> None:
        self._link = link
        self._channels = link.channels()
        self._settings = producer_settings(properties)
        plan = self._settings.plan
        self._encode = encoder(serializer or plan.serializer)
        self._encode_key = encoder(key_serializer or plan.key_serializer, "key.serializer.class")
        self._counts: dict[str, int] = {}
        self._chooser = chooser(partitioner or plan.partitioner, self._counts.__getitem__)
        self._queues: dict[TopicPartition, _PartitionQueue] = {}
        self._sticky: dict[str, int] = {}
        self._producer = (-1, -1)
        self._transactions: TransactionManager | None = None
        if self._settings.transactional_id:
            self._transactions = TransactionManager(
                link, self._settings.transactional_id, self._settings.transaction_timeout_ms
            )
            self._transactions.on_new_epoch = self._begin_sequences
        self._identifying = asyncio.Lock()
        self._close_timeout_s = close_timeout_s
        self._closed = False
        self.dropped = 0
        """Records that found no room in the queue within ``queue.enqueue.timeout.ms``."""

    async def submit(
        self,
        topic: str,
        value: V_contra | None,
        key: K_contra | None = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers | None = None,
    ) -> "asyncio.Future[Delivery]":
        """Put a record in the queue, waiting for room if necessary; the future gives its place."""
        self._check_open()
        if self._transactions is not None:
            self._transactions.check_sending()
        if timestamp_ms is not None:
            check_timestamp(timestamp_ms)
        encoded, encoded_key = self._encode(value, topic), self._encode_key(key, topic)
        if topic not in self._counts:
            self._counts[topic] = await self._link.partitions_of(topic, _METADATA_S)
        if partition is not None and not 0 <= partition < self._counts[topic]:
            there = f"partitions 0 to {self._counts[topic] - 1}"
            raise refusal(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"a record for {topic}-{partition} cannot be sent: {there}"
            )
        loop = asyncio.get_running_loop()
        until_s = loop.time() + self._settings.delivery_timeout_ms / 1000
        when_ms = self._link.now_ms() if timestamp_ms is None else timestamp_ms
        pending = _Pending(encoded_key, encoded, when_ms, headers or (), until_s)
        if not await self._wait_for_room():
            self._give_up(pending)
            return pending.future
        if partition is None:
            partition = self._choose(topic, key, encoded_key)
        topic_partition = TopicPartition(topic, partition)
        queue = self._queues.setdefault(topic_partition, _PartitionQueue())
        queue.waiting.append(pending)
        if queue.task is None:
            queue.task = loop.create_task(self._drain(topic_partition, queue))
        return pending.future

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("producer")

    def _choose(self, topic: str, key: Any, encoded_key: bytes | None) -> int:
        chosen = -1 if self._chooser is None else self._chooser.choose(topic, key)
        count = self._counts[topic]
        if chosen >= 0:
            return chosen
        if encoded_key is not None and self._settings.hashes_keys:
            return int(murmur2(encoded_key, np.array([0]), np.array([len(encoded_key)]))[0] & 0x7FFFFFFF) % count
        stuck = self._sticky.get(topic)
        if stuck is None:
            stuck = self._sticky[topic] = self._link.rng.randrange(count)
        return stuck

    async def _wait_for_room(self) -> bool:
        loop = asyncio.get_running_loop()
        wait_ms = self._settings.plan.enqueue.wait_ms
        end = None if wait_ms is None else loop.time() + wait_ms / 1000
        while len(self) >= self._settings.queue_records:
            if end is not None and loop.time() >= end:
                return False
            await asyncio.sleep(_ROOM_S)
        return True

    def _give_up(self, pending: _Pending) -> None:
        enqueue = self._settings.plan.enqueue
        if not enqueue.drops:
            raise BufferFullError(
                f"the producer's queue had no room for {enqueue.wait_ms} ms (max.block.ms)", name="_QUEUE_FULL"
            )
        self.dropped += 1
        error = DroppedError(f"dropped: the queue was full for {enqueue.wait_ms} ms", name="_QUEUE_FULL")
        pending.future.set_exception(error)
        pending.future.exception()  # it is counted; a future that is not looked at is no defect

    async def flush(self, timeout_s: float | None = None) -> None:
        """Wait until the fate of every record is known.

        Raises `UndeliveredError` after ``timeout_s``."""
        tasks = [queue.task for queue in self._queues.values() if queue.task is not None]
        if not tasks:
            return
        _, left = await asyncio.wait(tasks, timeout=timeout_s)
        if left:
            raise UndeliveredError(f"{len(self)} records were not acknowledged within {timeout_s:g} s", len(self))

    async def close(self, timeout_s: float | None = None) -> None:
        """Flush and let go within the limit; a second call does nothing."""
        if self._closed:
            return
        limit_s = self._close_timeout_s if timeout_s is None else timeout_s
        try:
            if self._transactions is not None and self._transactions.is_open:
                await self.abort_transaction(limit_s)
            self._closed = True
            await self.flush(limit_s)
        finally:
            self._closed = True
            for queue in self._queues.values():
                if queue.task is not None:
                    queue.task.cancel()
                for pending in queue.waiting:
                    pending.future.cancel()
            self._link.close()

    async def partitions_for(self, topic: str) -> int:
        """How many partitions a topic has; raises `UnknownTopicError`."""
        self._check_open()
        return await self._link.partitions_of(topic, _METADATA_S)

    def __len__(self) -> int:
        """Records that wait or are on their way."""
        return sum(len(queue.waiting) for queue in self._queues.values())

    # Transactions

    def _with_transactions(self) -> TransactionManager:
        self._check_open()
        if self._transactions is None:
            raise ConfigurationError("transactional.id is missing: a producer without one has no transactions")
        return self._transactions

    async def init_transactions(self, timeout_s: float = 30.0) -> None:
        """Register the ``transactional.id``, once: older producers that have it are fenced."""
        await self._with_transactions().init(timeout_s)

    async def begin_transaction(self) -> None:
        """What is sent from here on is seen together, or not at all."""
        self._with_transactions().begin()

    async def commit_transaction(self, timeout_s: float = 30.0) -> None:
        """Make everything of the transaction visible; raises `TransactionError` when it must be
        aborted."""
        await self._with_transactions().commit(lambda: self.flush(timeout_s), timeout_s)

    async def abort_transaction(self, timeout_s: float = 30.0) -> None:
        """Give the transaction up. Its records that were not sent yet fail."""
        await self._with_transactions().abort(self._purge, timeout_s)

    async def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, int], group_metadata: Any, timeout_s: float = 30.0
    ) -> None:
        """Commit a consumer's offsets with the transaction; ``group_metadata`` is
        `VirtualConsumer.group_metadata`'s."""
        await self._with_transactions().send_offsets(offsets, group_metadata, timeout_s)

    def _purge(self) -> bool:
        """Give up what waits; whether something was on its way."""
        was_sending = False
        for queue in self._queues.values():
            if queue.task is not None:
                queue.task.cancel()
                queue.task = None
                was_sending = True
            self._fail_all(queue.waiting, DeliveryError("the transaction was aborted", name="_PURGE_QUEUE"))
            queue.waiting.clear()
        return was_sending

    def _fail_all(self, batch: Iterable[_Pending], failure: ClientError) -> None:
        for pending in batch:
            if not pending.future.done():
                pending.future.set_exception(failure)
                if self._transactions is not None:
                    pending.future.exception()  # the commit says it, too: the future may be left alone

    def _begin_sequences(self) -> None:
        for queue in self._queues.values():
            queue.sequence = 0

    # One partition

    async def _drain(self, topic_partition: TopicPartition, queue: _PartitionQueue) -> None:
        """Send what waits for a partition, batch after batch."""
        most = self._settings.batch_records
        while queue.waiting:
            if len(queue.waiting) < most:
                await asyncio.sleep(self._settings.linger_ms / 1000)
            batch = [queue.waiting[n] for n in range(min(len(queue.waiting), most))]
            try:
                delivered = await self._deliver(topic_partition, queue, batch)
            except ClientError as error:
                if error.name in TOO_LARGE and len(batch) > 1:
                    queue.sequence -= len(batch)  # nothing was appended
                    most = len(batch) // 2
                    continue
                failure = DeliveryError(
                    f"a record for {topic_partition.topic} was not delivered: {error}", code=error.code, name=error.name
                )
                failure.__cause__ = error
                if self._transactions is not None:
                    self._transactions.batch_failed(error)
                elif self._settings.is_idempotent:
                    # A gap in the sequence numbers would be refused: begin a new sequence.
                    self._producer = (-1, -1)
                    self._begin_sequences()
                self._fail_all(batch, failure)
            else:
                for pending, delivery in zip(batch, delivered, strict=True):
                    if not pending.future.done():
                        pending.future.set_result(delivery)
            for _ in batch:
                queue.waiting.popleft()
            self._sticky.pop(topic_partition.topic, None)
        queue.task = None

    async def _deliver(
        self, topic_partition: TopicPartition, queue: _PartitionQueue, batch: list[_Pending]
    ) -> list[Delivery]:
        """Send a batch until its fate is known. Raises `ClientError`."""
        if self._transactions is not None:
            await self._add_to_transaction(self._transactions, topic_partition)
        elif self._settings.is_idempotent:
            await self._identify()
        data = build_batch(
            [Record(n, each.timestamp_ms, each.key, each.value, each.headers) for n, each in enumerate(batch)],
            producer_id=self._producer[0],
            producer_epoch=self._producer[1],
            base_sequence=queue.sequence if self._settings.is_idempotent else -1,
            is_transactional=self._transactions is not None,
        )
        queue.sequence += len(batch)
        loop = asyncio.get_running_loop()
        tries = 0
        problem: ClientError | None = None
        while loop.time() < batch[0].until_s and tries <= self._settings.retries:
            try:
                code, offset, append_ms, reason = await self._produce(topic_partition, bytes(data))
            except ChannelError as error:
                if problem is None:  # what a broker answered says more
                    problem = DeliveryError(str(error), name="_TRANSPORT", retriable=True)
            else:
                if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                    return [
                        Delivery(
                            topic_partition.topic,
                            topic_partition.partition,
                            offset + n if offset >= 0 else -1,
                            append_ms if append_ms >= 0 else each.timestamp_ms,
                        )
                        for n, each in enumerate(batch)
                    ]
                problem = refusal(code, f"{topic_partition}: {reason or code.message}")
                if not code.retriable and code is not ErrorCode.CONCURRENT_TRANSACTIONS:
                    raise problem
            tries += 1
            self._link.forget_leader(topic_partition)
            await asyncio.sleep(self._settings.backoff_ms / 1000)
        reason = f"{tries} tries" if tries > self._settings.retries else "delivery.timeout.ms is over"
        raise DeliveryError(f"{reason}; {problem}", name="_MSG_TIMED_OUT") from problem

    async def _produce(self, topic_partition: TopicPartition, data: bytes) -> tuple[ErrorCode, int, int, str]:
        leader = await self._link.find_leader(topic_partition)
        if leader is None:
            return ErrorCode.LEADER_NOT_AVAILABLE, -1, -1, ""
        timeout_ms = self._settings.request_timeout_ms
        acks = self._settings.acks
        # The brokers do not answer acks 0. A connection in order cannot skip an answer, so the
        # leader is asked for one, and the record counts as sent before it comes.
        request = produce_request(
            {topic_partition: data},
            self._link.topic_ids,
            acks=acks or 1,
            timeout_ms=timeout_ms,
            transactional_id=self._settings.transactional_id or None,
        )
        version = None
        if self._transactions is not None:
            version = await self._transactions.version(leader, request.API_KEY)
        if not acks:
            sending = asyncio.get_running_loop().create_task(self._channels.send(leader, request))
            sending.add_done_callback(lambda task: task.cancelled() or task.exception())
            await asyncio.sleep(0)
            return ErrorCode.NONE, -1, -1, ""
        response = await self._channels.send(leader, request, timeout_ms=timeout_ms + 1000, version=version)
        answer = response.responses[0].partition_responses[0]
        reason = answer.error_message or ""
        return ErrorCode.of(answer.error_code), answer.base_offset, answer.log_append_time_ms, reason

    async def _add_to_transaction(self, transactions: TransactionManager, topic_partition: TopicPartition) -> None:
        """The partition becomes part of the transaction, if one is open. Raises `ClientError`."""
        if not transactions.takes_batches:
            raise transactions.failure or DeliveryError("no transaction is open", name="_STATE")
        await transactions.add_partition(topic_partition, self._settings.delivery_timeout_ms / 1000)
        self._producer = transactions.identity

    async def _identify(self) -> None:
        async with self._identifying:
            if self._producer[0] < 0:
                self._producer = await init_producer_id(self._link, self._settings.delivery_timeout_ms / 1000)
