"""The clients for asyncio: `AsyncProducer` and `AsyncConsumer`; `barnabas.client.aio_admin` has the third.

librdkafka has its own threads; here its reports reach the event loop without blocking it. A producer's are served by
one thread that hands whole batches to the loop; a consumer waits for records in one thread and hands them out in the
loop. Methods, properties and semantics are those of the blocking clients; what waits is awaited.

Kafka has no counterpart.
"""

import asyncio
import contextlib
import threading
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Generic, Self, TypeVar, overload

from barnabas.base.ids import TopicPartition
from barnabas.client.aio_thread import InOneThread
from barnabas.client.codecs import Deserializer, Serializer
from barnabas.client.consumer import CLOSE_CONSUMER_TIMEOUT_S, Consumer, OnCommit
from barnabas.client.errors import ClientError
from barnabas.client.producer import CLOSE_TIMEOUT_S, Producer, pairs
from barnabas.client.records import Delivery, Headers, Record

__all__ = ["AsyncConsumer", "AsyncProducer"]

K = TypeVar("K")
V = TypeVar("V")
K_contra = TypeVar("K_contra", contravariant=True)
V_contra = TypeVar("V_contra", contravariant=True)

OnPartitionsAwaited = Callable[[list[TopicPartition]], Awaitable[None] | None]
"""Receives the partitions that came or went; it may be a coroutine function."""

_POLL_S = 0.1
_ROOM_S = 0.02
_SLICE_S = 1.0  # a cancelled wait leaves the consumer's thread after this long at most


class AsyncProducer(Generic[K_contra, V_contra]):
    """Sends records to topics; make it inside a running loop. See `barnabas.client.producer.Producer`."""

    @overload
    def __init__(
        self: "AsyncProducer[str | bytes, str | bytes]",
        properties: Mapping[str, Any],
        *,
        partitioner: Any = None,
        close_timeout_s: float = CLOSE_TIMEOUT_S,
    ) -> None: ...

    @overload
    def __init__(
        self: "AsyncProducer[str | bytes, V_contra]",
        properties: Mapping[str, Any],
        *,
        serializer: Serializer[V_contra],
        partitioner: Any = None,
        close_timeout_s: float = CLOSE_TIMEOUT_S,
    ) -> None: ...

    @overload
    def __init__(
        self: "AsyncProducer[K_contra, str | bytes]",
        properties: Mapping[str, Any],
        *,
        key_serializer: Serializer[K_contra],
        partitioner: Any = None,
        close_timeout_s: float = CLOSE_TIMEOUT_S,
    ) -> None: ...

    @overload
    def __init__(
        self,
        properties: Mapping[str, Any],
        *,
        serializer: Serializer[V_contra] | None,
        key_serializer: Serializer[K_contra] | None,
        partitioner: Any = None,
        close_timeout_s: float = CLOSE_TIMEOUT_S,
    ) -> None: ...

    def __init__(
        self,
        properties: Mapping[str, Any],
        *,
        serializer: Any = None,
        key_serializer: Any = None,
        partitioner: Any = None,
        close_timeout_s: float = CLOSE_TIMEOUT_S,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._producer: Producer[K_contra, V_contra] = Producer(
            properties,
            serializer=serializer,
            key_serializer=key_serializer,
            partitioner=partitioner,
            close_timeout_s=close_timeout_s,
        )
        self._reports: deque[tuple[asyncio.Future[Delivery], Delivery | None, ClientError | None]] = deque()
        self._turns: dict[str, asyncio.Lock] = {}
        self._waiting: Counter[str] = Counter()
        self._wake_is_due = False
        self._stopped = False
        self._thread = threading.Thread(target=self._serve, name="barnabas-producer", daemon=True)
        self._thread.start()

    @property
    def dropped(self) -> int:
        """Records that found no room in the queue within ``queue.enqueue.timeout.ms``."""
        return self._producer.dropped

    async def send(
        self,
        topic: str,
        value: V_contra | None,
        key: K_contra | None = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers | None = None,
    ) -> Delivery:
        """Send a record and wait for the broker; raises `DeliveryError`, `DroppedError` or `BufferFullError`."""
        future = await self.submit(topic, value, key, partition=partition, timestamp_ms=timestamp_ms, headers=headers)
        return await future

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
        future: asyncio.Future[Delivery] = self._loop.create_future()

        def delivered(delivery: Delivery | None, error: ClientError | None) -> None:
            self._reports.append((future, delivery, error))
            if not self._wake_is_due:
                self._wake_is_due = True
                self._loop.call_soon_threadsafe(self._report)

        if not self._producer.is_ready(topic) or (self._waiting and topic in self._waiting):
            await self._get_ready(topic)
        receipt, offer = self._producer.prepare(topic, value, key, partition, timestamp_ms, headers, delivered)
        if offer():
            return future
        wait_ms = self._producer.enqueue.wait_ms
        end = None if wait_ms is None else self._loop.time() + wait_ms / 1000
        while end is None or self._loop.time() < end:
            await asyncio.sleep(_ROOM_S)
            if offer():
                return future
        self._producer.give_up(receipt)
        return future

    async def _get_ready(self, topic: str) -> None:
        """Learn a topic's limits in a thread. The lock is fair, so records that wait for it keep their order."""
        lock = self._turns.setdefault(topic, asyncio.Lock())
        self._waiting[topic] += 1
        try:
            async with lock:
                if not self._producer.is_ready(topic):
                    await asyncio.to_thread(self._producer.get_ready, topic)
        finally:
            self._waiting[topic] -= 1
            if not self._waiting[topic]:
                del self._waiting[topic], self._turns[topic]

    def _serve(self) -> None:
        while not self._stopped:
            self._producer.poll(_POLL_S)

    def _report(self) -> None:
        # Cleared first: a report that arrives during the callbacks asks for another turn.
        self._wake_is_due = False
        while self._reports:
            future, delivery, error = self._reports.popleft()
            if future.done():
                continue
            if error is not None:
                future.set_exception(error)
            elif delivery is not None:
                future.set_result(delivery)

    async def send_many(
        self, topic: str, values: Iterable[V_contra], *, keys: Iterable[K_contra] | None = None
    ) -> list[Delivery]:
        """Send a batch and wait for all of it; raises the first failure after the fate of each is known."""
        batch = pairs(values, keys) if keys is not None else ((value, None) for value in values)
        waiting = [await self.submit(topic, value, key) for value, key in batch]
        await asyncio.wait(waiting) if waiting else None
        return [future.result() for future in waiting]

    async def flush(self, timeout_s: float | None = None) -> None:
        """Wait until the fate of every record is known; see `Producer.flush`."""
        await asyncio.to_thread(self._producer.flush, timeout_s)
        self._report()

    async def close(self, timeout_s: float | None = None) -> None:
        """Flush and let go within the limit; see `Producer.close`. A second call does nothing."""
        if self._stopped:
            return
        try:
            await asyncio.to_thread(self._producer.close, timeout_s)
        finally:
            self._stopped = True
            await asyncio.to_thread(self._thread.join)
            self._report()

    async def partitions_for(self, topic: str) -> int:
        """How many partitions a topic has; raises `UnknownTopicError`."""
        return await asyncio.to_thread(self._producer.partitions_for, topic)

    async def init_transactions(self, timeout_s: float = 30.0) -> None:
        """See `Producer.init_transactions`."""
        await asyncio.to_thread(self._producer.init_transactions, timeout_s)

    async def begin_transaction(self) -> None:
        """See `Producer.begin_transaction`."""
        self._producer.begin_transaction()

    async def commit_transaction(self, timeout_s: float = 30.0) -> None:
        """See `Producer.commit_transaction`."""
        await asyncio.to_thread(self._producer.commit_transaction, timeout_s)

    async def abort_transaction(self, timeout_s: float = 30.0) -> None:
        """See `Producer.abort_transaction`."""
        await asyncio.to_thread(self._producer.abort_transaction, timeout_s)

    async def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, int], group_metadata: Any, timeout_s: float = 30.0
    ) -> None:
        """See `Producer.send_offsets_to_transaction`."""
        await asyncio.to_thread(self._producer.send_offsets_to_transaction, offsets, group_metadata, timeout_s)

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """A transaction as an ``async with`` block: committed at its end, aborted when it raises."""
        await self.begin_transaction()
        try:
            yield
            await self.commit_transaction()
        except BaseException:
            with contextlib.suppress(ClientError):
                await self.abort_transaction()
            raise

    async def __aenter__(self) -> Self:
        self._producer.__enter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            await self.close()
            return
        with contextlib.suppress(ClientError):  # an error is under way, and must not be hidden
            await self.close(5.0 if issubclass(kind, Exception) else 0.5)


class AsyncConsumer(Generic[K, V]):
    """Reads records. See `barnabas.client.consumer.Consumer`.

    Rebalance callbacks may be coroutine functions: they run in the loop, may await this consumer's methods, and the rebalance waits
    for them. Plain functions run in the consumer's thread, where ``loop.call_soon_threadsafe`` reaches the loop.
    """

    @overload
    def __init__(
        self: "AsyncConsumer[str, str]",
        properties: Mapping[str, Any],
        *,
        on_commit: OnCommit | None = None,
        close_timeout_s: float = CLOSE_CONSUMER_TIMEOUT_S,
    ) -> None: ...

    @overload
    def __init__(
        self: "AsyncConsumer[str, V]",
        properties: Mapping[str, Any],
        *,
        deserializer: Deserializer[V],
        on_commit: OnCommit | None = None,
        close_timeout_s: float = CLOSE_CONSUMER_TIMEOUT_S,
    ) -> None: ...

    @overload
    def __init__(
        self: "AsyncConsumer[K, str]",
        properties: Mapping[str, Any],
        *,
        key_deserializer: Deserializer[K],
        on_commit: OnCommit | None = None,
        close_timeout_s: float = CLOSE_CONSUMER_TIMEOUT_S,
    ) -> None: ...

    @overload
    def __init__(
        self,
        properties: Mapping[str, Any],
        *,
        deserializer: Deserializer[V] | None,
        key_deserializer: Deserializer[K] | None,
        on_commit: OnCommit | None = None,
        close_timeout_s: float = CLOSE_CONSUMER_TIMEOUT_S,
    ) -> None: ...

    def __init__(
        self,
        properties: Mapping[str, Any],
        *,
        deserializer: Any = None,
        key_deserializer: Any = None,
        on_commit: OnCommit | None = None,
        close_timeout_s: float = CLOSE_CONSUMER_TIMEOUT_S,
    ) -> None:
        self._consumer: Consumer[K, V] = Consumer(
            properties,
            deserializer=deserializer,
            key_deserializer=key_deserializer,
            on_commit=on_commit,
            close_timeout_s=close_timeout_s,
        )
        self._thread = InOneThread("consumer")

    def subscribe(
        self,
        topics: Sequence[str],
        *,
        before_revoke: Callable[[], Awaitable[None] | None] | None = None,
        on_assign: OnPartitionsAwaited | None = None,
        on_revoke: OnPartitionsAwaited | None = None,
    ) -> None:
        """Share these topics with the group; a name that starts with ``^`` is a regular expression."""
        call_back = self._thread.call_back
        self._consumer.subscribe(
            topics,
            before_revoke=None if before_revoke is None else partial(call_back, before_revoke),
            on_assign=None if on_assign is None else partial(call_back, on_assign),
            on_revoke=None if on_revoke is None else partial(call_back, on_revoke),
        )

    def unsubscribe(self) -> None:
        """Leave the group, or give up what is assigned."""
        self._consumer.unsubscribe()

    def assign(self, partitions: Mapping[TopicPartition, int] | Iterable[TopicPartition]) -> None:
        """Read exactly these partitions."""
        self._consumer.assign(partitions)

    def assignment(self) -> list[TopicPartition]:
        """The partitions that this consumer reads now."""
        return self._consumer.assignment()

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Hand out nothing of these partitions until `resume`."""
        self._consumer.pause(partitions)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Go on with paused partitions."""
        self._consumer.resume(partitions)

    def paused(self) -> list[TopicPartition]:
        """The partitions that are paused."""
        return self._consumer.paused()

    def position(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
        """The offset of each partition's next record to be handed out; None before the first."""
        return self._consumer.position(partitions)

    @property
    def last_problem(self) -> ClientError | None:
        """The last problem with a broker, such as a refused connection."""
        return self._consumer.last_problem

    async def seek(self, topic: str, partition: int, offset: int) -> None:
        """Go on at ``offset`` in a partition that is assigned; -2 is its first record, -1 its end."""
        await self._thread.run(self._consumer.seek, topic, partition, offset)

    async def consume(self, max_records: int = 500, timeout_s: float = 1.0) -> list[Record[K, V]]:
        """Up to ``max_records``: what comes until the first of them has waited ``timeout_s``."""
        records: list[Record[K, V]] = []
        while len(records) < max_records:
            record = await self.poll(0.0 if records else timeout_s)
            if record is None:
                break
            records.append(record)
        return records

    async def poll(self, timeout_s: float = 0.0) -> Record[K, V] | None:
        """The next record, or None when there is none within ``timeout_s``."""
        if self._consumer.has_record or await self._thread.run(self._consumer.wait, timeout_s):
            return self._consumer.poll()
        return None

    async def __aiter__(self) -> AsyncIterator[Record[K, V]]:
        """Records for ever, or until none came for ``consumer.timeout.ms``."""
        loop = asyncio.get_running_loop()
        timeout_s = self._consumer.iteration_timeout_s
        end = None if timeout_s is None else loop.time() + timeout_s
        while not self._consumer.closed:
            slice_s = _SLICE_S if end is None else max(0.0, min(_SLICE_S, end - loop.time()))
            record = await self.poll(slice_s)
            if record is not None:
                yield record
                end = None if timeout_s is None else loop.time() + timeout_s
            elif end is not None and loop.time() >= end:
                return

    async def commit(self, offsets: Mapping[TopicPartition, int] | None = None, *, wait: bool = True) -> None:
        """Commit everything that was handed out, or these offsets; see `Consumer.commit`."""
        await self._thread.run(lambda: self._consumer.commit(offsets, wait=wait))

    async def committed(
        self, partitions: Iterable[TopicPartition], timeout_s: float = 30.0
    ) -> dict[TopicPartition, int | None]:
        """The group's committed offsets; None where there is none."""
        return await self._thread.run(self._consumer.committed, list(partitions), timeout_s)

    async def offsets_for_times(
        self, times_ms: Mapping[TopicPartition, int], timeout_s: float = 30.0
    ) -> dict[TopicPartition, int | None]:
        """For each partition the offset of the first record that is not older than its time; None without one."""
        return await self._thread.run(self._consumer.offsets_for_times, times_ms, timeout_s)

    async def lag(self, timeout_s: float = 30.0) -> dict[TopicPartition, int]:
        """How many records of each assigned partition were not handed out yet."""
        return await self._thread.run(self._consumer.lag, timeout_s)

    async def watermarks(self, topic: str, partition: int, timeout_s: float = 30.0) -> tuple[int, int]:
        """The first offset of a partition and the one that the next record will get."""
        return await self._thread.run(self._consumer.watermarks, topic, partition, timeout_s)

    async def topics(self, timeout_s: float = 30.0) -> dict[str, int]:
        """The cluster's topics, internal ones included, with their numbers of partitions."""
        return await self._thread.run(self._consumer.topics, timeout_s)

    async def group_metadata(self) -> Any:
        """The membership, for `AsyncProducer.send_offsets_to_transaction`."""
        return await self._thread.run(self._consumer.group_metadata)

    async def close(self, timeout_s: float | None = None) -> None:
        """Leave the group within the limit; see `Consumer.close`. A second call does nothing."""
        if self._consumer.closed:
            return
        try:
            await self._thread.run(self._consumer.close, timeout_s)
        finally:
            self._thread.end()

    async def __aenter__(self) -> Self:
        self._consumer.__enter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            await self.close()
            return
        self._consumer.forget()
        with contextlib.suppress(ClientError):  # an error is under way, and must not be hidden
            await self.close()
