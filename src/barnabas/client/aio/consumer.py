"""`AsyncConsumer`: the methods of `Consumer`, to be awaited.

One thread waits for records and hands them out in the event loop, which is never blocked.
Properties and semantics are those of the blocking consumer.

Kafka has no counterpart; its `KafkaConsumer` blocks.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any

from barnabas.base.ids import TopicPartition
from barnabas.client.aio.calls import ConsumerCalls
from barnabas.client.aio.methods import awaited, direct
from barnabas.client.aio.thread import InOneThread
from barnabas.client.codecs import Deserializer
from barnabas.client.consumer.consumer import CLOSE_CONSUMER_TIMEOUT_S, Consumer, OnCommit
from barnabas.client.errors import ClientError
from barnabas.client.records import Record
from barnabas.client.type_variables import K, V

__all__ = ["AsyncConsumer"]


OnPartitionsAwaited = Callable[[list[TopicPartition]], Awaitable[None] | None]
"""Receives the partitions that came or went; it may be a coroutine function."""

_SLICE_S = 1.0  # a cancelled wait leaves the consumer's thread after this long at most


class AsyncConsumer(ConsumerCalls[K, V]):
    """Reads records. See `barnabas.client.consumer.consumer.Consumer`.

    Rebalance callbacks may be coroutine functions: they run in the loop, may await this consumer's
    methods, and the rebalance waits for them. Plain functions run in the consumer's thread, where
    ``loop.call_soon_threadsafe`` reaches the loop.
    """

    def __init__(
        self,
        properties: Mapping[str, Any],
        *,
        deserializer: Deserializer[V] | None = None,
        key_deserializer: Deserializer[K] | None = None,
        on_commit: OnCommit | None = None,
        close_timeout_s: float = CLOSE_CONSUMER_TIMEOUT_S,
    ) -> None:
        self.blocking: Consumer[K, V] = Consumer(
            properties,
            deserializer=deserializer,
            key_deserializer=key_deserializer,
            on_commit=on_commit,
            close_timeout_s=close_timeout_s,
        )
        self.thread = InOneThread("consumer")

    def subscribe(
        self,
        topics: Sequence[str],
        *,
        before_revoke: Callable[[], Awaitable[None] | None] | None = None,
        on_assign: OnPartitionsAwaited | None = None,
        on_revoke: OnPartitionsAwaited | None = None,
    ) -> None:
        """Share these topics with the group.

        A name that starts with ``^`` is a regular expression."""
        call_back = self.thread.call_back
        self.blocking.subscribe(
            topics,
            before_revoke=None if before_revoke is None else partial(call_back, before_revoke),
            on_assign=None if on_assign is None else partial(call_back, on_assign),
            on_revoke=None if on_revoke is None else partial(call_back, on_revoke),
        )

    unsubscribe = direct(Consumer.unsubscribe)
    """Leave the group, or give up what is assigned."""

    assign = direct(Consumer.assign)
    """Read exactly these partitions."""

    assignment = direct(Consumer.assignment)
    """The partitions that this consumer reads now."""

    pause = direct(Consumer.pause)
    """Hand out nothing of these partitions until `resume`."""

    resume = direct(Consumer.resume)
    """Go on with paused partitions."""

    paused = direct(Consumer.paused)
    """The partitions that are paused."""

    position = direct(Consumer.position)
    """The offset of each partition's next record to be handed out; None before the first."""

    metrics = direct(Consumer.metrics)
    """The consumer's figures by Kafka's names, as of the last report."""

    @property
    def metrics_port(self) -> int | None:
        """The port of ``metrics.http.address``; None without one."""
        return self.blocking.metrics_port

    @property
    def last_problem(self) -> ClientError | None:
        """The last problem with a broker, such as a refused connection."""
        return self.blocking.last_problem

    seek = awaited(Consumer.seek)
    """Go on at ``offset`` in a partition that is assigned; -2 is its first record, -1 its end."""

    async def poll(self, timeout_s: float = 0.0) -> Record[K, V] | None:
        """The next record, or None when there is none within ``timeout_s``."""
        if self.blocking.has_record or await self.thread.run(self.blocking.wait, timeout_s):
            return self.blocking.poll()
        return None

    async def __aiter__(self) -> AsyncIterator[Record[K, V]]:
        """Records for ever, or until none came for ``consumer.timeout.ms``."""
        loop = asyncio.get_running_loop()
        timeout_s = self.blocking.iteration_timeout_s
        end = None if timeout_s is None else loop.time() + timeout_s
        while not self.blocking.closed:
            slice_s = _SLICE_S if end is None else max(0.0, min(_SLICE_S, end - loop.time()))
            record = await self.poll(slice_s)
            if record is not None:
                yield record
                end = None if timeout_s is None else loop.time() + timeout_s
            elif end is not None and loop.time() >= end:
                return

    commit = awaited(Consumer.commit)
    """Commit everything that was handed out, or these offsets; see `Consumer.commit`."""

    committed = awaited(Consumer.committed)
    """The group's committed offsets; None where there is none."""

    offsets_for_times = awaited(Consumer.offsets_for_times)
    """For each partition the offset of the first record that is not older than its
    time; None without one."""

    lag = awaited(Consumer.lag)
    """How many records of each assigned partition were not handed out yet."""

    watermarks = awaited(Consumer.watermarks)
    """The first offset of a partition and the one that the next record will get."""

    topics = awaited(Consumer.topics)
    """The cluster's topics, internal ones included, with their numbers of partitions."""

    group_metadata = awaited(Consumer.group_metadata)
    """The membership, for `AsyncProducer.send_offsets_to_transaction`."""

    async def close(self, timeout_s: float | None = None) -> None:
        """Leave the group within the limit; see `Consumer.close`. A second call does nothing."""
        if self.blocking.closed:
            return
        try:
            await self.thread.run(self.blocking.close, timeout_s)
        finally:
            self.thread.end()

    def _check_open(self) -> None:
        self.blocking.__enter__()

    def _forget(self) -> None:
        self.blocking.forget()
