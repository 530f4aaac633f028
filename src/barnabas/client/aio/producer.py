"""`AsyncProducer`: the methods of `Producer`, to be awaited.

librdkafka has its own threads; their reports reach the event loop without blocking it: one thread
hands whole batches to the loop. Properties and semantics are those of the blocking producer.

Kafka has no counterpart; its `KafkaProducer` returns futures.
"""

import asyncio
import functools
import threading
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Concatenate, ParamSpec, TypeVar

from barnabas.client.aio.calls import ProducerCalls
from barnabas.client.codecs import Serializer
from barnabas.client.errors import ClientError
from barnabas.client.librdkafka.statistics import MetricName
from barnabas.client.producer.producer import CLOSE_TIMEOUT_S, Producer
from barnabas.client.records import Delivery, Headers
from barnabas.client.type_variables import K_contra, V_contra

__all__ = ["AsyncProducer"]


P = ParamSpec("P")
T = TypeVar("T")

_POLL_S = 0.1
_ROOM_S = 0.02


def _in_a_thread(
    method: Callable[Concatenate[Producer[Any, Any], P], T],
) -> Callable[Concatenate["AsyncProducer[Any, Any]", P], Coroutine[Any, Any, T]]:
    """The same method, to be awaited.

    Unlike a consumer's calls, those of a producer may run at the same time."""

    @functools.wraps(method)
    async def call(self: "AsyncProducer[Any, Any]", /, *arguments: P.args, **named: P.kwargs) -> T:
        return await asyncio.to_thread(method, self.blocking, *arguments, **named)

    return call


class AsyncProducer(ProducerCalls[K_contra, V_contra]):
    """Sends records to topics; make it inside a running loop.

    See `barnabas.client.producer.producer.Producer`."""

    def __init__(
        self,
        properties: Mapping[str, Any],
        *,
        serializer: Serializer[V_contra] | None = None,
        key_serializer: Serializer[K_contra] | None = None,
        partitioner: Any = None,
        close_timeout_s: float = CLOSE_TIMEOUT_S,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self.blocking: Producer[K_contra, V_contra] = Producer(
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
        return self.blocking.dropped

    def metrics(self) -> dict[MetricName, float]:
        """The producer's figures by Kafka's names, as of the last report."""
        return self.blocking.metrics()

    @property
    def metrics_port(self) -> int | None:
        """The port of ``metrics.http.address``; None without one."""
        return self.blocking.metrics_port

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

        if not self.blocking.is_ready(topic) or (self._waiting and topic in self._waiting):
            await self._get_ready(topic)
        receipt, offer = self.blocking.prepare(topic, value, key, partition, timestamp_ms, headers, delivered)
        if offer():
            return future
        wait_ms = self.blocking.enqueue.wait_ms
        end = None if wait_ms is None else self._loop.time() + wait_ms / 1000
        while end is None or self._loop.time() < end:
            await asyncio.sleep(_ROOM_S)
            if offer():
                return future
        self.blocking.give_up(receipt)
        return future

    async def _get_ready(self, topic: str) -> None:
        """Learn a topic's limits in a thread.

        The lock is fair, so records that wait for it keep their order."""
        lock = self._turns.setdefault(topic, asyncio.Lock())
        self._waiting[topic] += 1
        try:
            async with lock:
                if not self.blocking.is_ready(topic):
                    await asyncio.to_thread(self.blocking.get_ready, topic)
        finally:
            self._waiting[topic] -= 1
            if not self._waiting[topic]:
                del self._waiting[topic], self._turns[topic]

    def _serve(self) -> None:
        while not self._stopped:
            self.blocking.poll(_POLL_S)

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

    async def flush(self, timeout_s: float | None = None) -> None:
        """Wait until the fate of every record is known; see `Producer.flush`."""
        await asyncio.to_thread(self.blocking.flush, timeout_s)
        self._report()

    async def close(self, timeout_s: float | None = None) -> None:
        """Flush and let go within the limit; see `Producer.close`. A second call does nothing."""
        if self._stopped:
            return
        try:
            await asyncio.to_thread(self.blocking.close, timeout_s)
        finally:
            self._stopped = True
            await asyncio.to_thread(self._thread.join)
            self._report()

    partitions_for = _in_a_thread(Producer.partitions_for)
    """How many partitions a topic has; raises `UnknownTopicError`."""

    init_transactions = _in_a_thread(Producer.init_transactions)
    """See `Producer.init_transactions`."""

    async def begin_transaction(self) -> None:
        """See `Producer.begin_transaction`."""
        self.blocking.begin_transaction()

    commit_transaction = _in_a_thread(Producer.commit_transaction)
    """See `Producer.commit_transaction`."""

    abort_transaction = _in_a_thread(Producer.abort_transaction)
    """See `Producer.abort_transaction`."""

    send_offsets_to_transaction = _in_a_thread(Producer.send_offsets_to_transaction)
    """See `Producer.send_offsets_to_transaction`."""

    def _check_open(self) -> None:
        self.blocking.__enter__()
