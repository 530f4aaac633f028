"""The clients for asyncio: `AsyncProducer`, `AsyncConsumer`, `AsyncAdmin`.

librdkafka has its own threads; here its reports reach the event loop without blocking it. A producer's are served by
one thread that hands whole batches to the loop; a consumer waits for records in one thread and hands them out in the
loop. Properties and semantics are those of the blocking clients.
"""

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self, TypeVar

from barnabas.base.ids import TopicPartition
from barnabas.client.admin import Admin
from barnabas.client.consumer import Consumer
from barnabas.client.errors import ClientError
from barnabas.client.producer import Producer
from barnabas.client.records import Delivery, Headers, Record

__all__ = ["AsyncAdmin", "AsyncConsumer", "AsyncProducer"]

T = TypeVar("T")

_POLL_S = 0.1
_ROOM_S = 0.02
_SLICE_S = 1.0  # a cancelled wait leaves the consumer's thread after this long at most


class AsyncProducer:
    """Sends records to topics; make it inside a running loop. See `barnabas.client.producer.Producer`."""

    def __init__(self, properties: Mapping[str, Any], **codecs: Any) -> None:
        self._loop = asyncio.get_running_loop()
        self._producer = Producer(properties, **codecs)
        self._reports: deque[tuple[asyncio.Future[Delivery], Delivery | None, ClientError | None]] = deque()
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
        value: Any,
        key: Any = None,
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
        value: Any,
        key: Any = None,
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

    async def flush(self) -> None:
        """Wait until the fate of every record is known."""
        await asyncio.to_thread(self._producer.flush)
        self._report()

    async def close(self) -> None:
        """Flush and let go. A second call does nothing."""
        if self._stopped:
            return
        try:
            await asyncio.to_thread(self._producer.close)
        finally:
            self._stopped = True
            await asyncio.to_thread(self._thread.join)
            self._report()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class _InOneThread:
    """Runs blocking calls in a thread of its own, in order."""

    def __init__(self, name: str) -> None:
        self._executor = ThreadPoolExecutor(1, thread_name_prefix=name)

    async def run(self, function: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, function, *arguments)

    def end(self) -> None:
        self._executor.shutdown(wait=False)


class AsyncConsumer:
    """Reads records. See `barnabas.client.consumer.Consumer`."""

    def __init__(self, properties: Mapping[str, Any], **codecs: Any) -> None:
        self._consumer = Consumer(properties, **codecs)
        self._thread = _InOneThread("barnabas-consumer")

    def subscribe(self, topics: Sequence[str]) -> None:
        """Share these topics with the group; a name that starts with ``^`` is a regular expression."""
        self._consumer.subscribe(topics)

    def assign(self, partitions: Mapping[TopicPartition, int] | Iterable[TopicPartition]) -> None:
        """Read exactly these partitions."""
        self._consumer.assign(partitions)

    def assignment(self) -> list[TopicPartition]:
        """The partitions that this consumer reads now."""
        return self._consumer.assignment()

    async def poll(self, timeout_s: float = 0.0) -> Record | None:
        """The next record, or None when there is none within ``timeout_s``."""
        if self._consumer.has_record or await self._thread.run(self._consumer.wait, timeout_s):
            return self._consumer.poll()
        return None

    async def __aiter__(self) -> AsyncIterator[Record]:
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

    async def commit(self) -> None:
        """Commit, now, everything that was handed out."""
        await self._thread.run(self._consumer.commit)

    async def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
        """The group's committed offsets; None where there is none."""
        return await self._thread.run(self._consumer.committed, list(partitions))

    async def close(self) -> None:
        """Leave the group; see `Consumer.close`."""
        with contextlib.suppress(RuntimeError):  # the executor is shut down: closed already
            await self._thread.run(self._consumer.close)
        self._thread.end()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._consumer.forget()
        await self.close()


class AsyncAdmin:
    """Manages a cluster. Every method of `Admin` is here under its name, to be awaited."""

    def __init__(self, properties: Mapping[str, Any]) -> None:
        self._admin = Admin(properties)
        self._thread = _InOneThread("barnabas-admin")

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._admin, name)

        async def call(*arguments: Any, **named: Any) -> Any:
            return await self._thread.run(lambda: method(*arguments, **named))

        return call

    async def close(self) -> None:
        """Let go."""
        await self._thread.run(self._admin.close)
        self._thread.end()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
