"""`AsyncConsumer`: the methods of `Consumer`, to be awaited.

One thread waits for records and hands them out in the event loop, which is never blocked. Properties and semantics are those
of the blocking consumer.

Kafka has no counterpart; its `KafkaConsumer` blocks.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Generic, Self, TypeVar, overload

from barnabas.base.ids import TopicPartition
from barnabas.client.aio.thread import InOneThread
from barnabas.client.codecs import Deserializer
from barnabas.client.consumer.consumer import CLOSE_CONSUMER_TIMEOUT_S, Consumer, OnCommit
from barnabas.client.errors import ClientError
from barnabas.client.records import Record

__all__ = ["AsyncConsumer"]

K = TypeVar("K")
V = TypeVar("V")

OnPartitionsAwaited = Callable[[list[TopicPartition]], Awaitable[None] | None]
"""Receives the partitions that came or went; it may be a coroutine function."""

_SLICE_S = 1.0  # a cancelled wait leaves the consumer's thread after this long at most


class AsyncConsumer(Generic[K, V]):
    """Reads records. See `barnabas.client.consumer.consumer.Consumer`.

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
