"""What all clients for asyncio make of their first methods: those on librdkafka, and the simulated
ones.

Kafka has no counterpart.
"""

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterable
from types import TracebackType
from typing import Generic, Self

from barnabas.client.errors import ClientError, TransactionError
from barnabas.client.producer.producer import pairs
from barnabas.client.records import Delivery, Headers, Record
from barnabas.client.type_variables import K, K_contra, V, V_contra

__all__ = ["ConsumerCalls", "ProducerCalls"]

_FAILED_CLOSE_S = 5.0
_INTERRUPTED_CLOSE_S = 0.5


class ProducerCalls(ABC, Generic[K_contra, V_contra]):
    """Sending, transactions and ``async with``, on a producer's queue."""

    @abstractmethod
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

    @abstractmethod
    async def close(self, timeout_s: float | None = None) -> None:
        """Flush and let go within the limit. A second call does nothing."""

    @abstractmethod
    def _check_open(self) -> None:
        """Raise `ClosedError` after `close`."""

    @abstractmethod
    async def begin_transaction(self) -> None:
        """Start a transaction."""

    @abstractmethod
    async def commit_transaction(self, timeout_s: float = 30.0) -> None:
        """Flush and commit; raises `TransactionError` when it must be aborted instead."""

    @abstractmethod
    async def abort_transaction(self, timeout_s: float = 30.0) -> None:
        """Give the transaction up; consumers at read_committed see none of it."""

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
        """Send a record and wait for the broker; raises `DeliveryError`, `DroppedError` or
        `BufferFullError`."""
        future = await self.submit(topic, value, key, partition=partition, timestamp_ms=timestamp_ms, headers=headers)
        return await future

    async def send_many(
        self, topic: str, values: Iterable[V_contra], *, keys: Iterable[K_contra] | None = None
    ) -> list[Delivery]:
        """Send a batch and wait for all of it; raises the first failure after the fate of each is
        known."""
        batch = pairs(values, keys) if keys is not None else ((value, None) for value in values)
        waiting = [await self.submit(topic, value, key) for value, key in batch]
        await asyncio.wait(waiting) if waiting else None
        return [future.result() for future in waiting]

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """A transaction as an ``async with`` block; see `barnabas.client.Producer.transaction`."""
        await self.begin_transaction()
        try:
            yield
        except BaseException:
            await self._abort_quietly()
            raise
        try:
            await self.commit_transaction()
        except TransactionError:
            await self._abort_quietly()
            raise

    async def _abort_quietly(self) -> None:
        """An error is under way, which says more."""
        with contextlib.suppress(ClientError):
            await self.abort_transaction()

    async def __aenter__(self) -> Self:
        self._check_open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            await self.close()
            return
        with contextlib.suppress(ClientError):  # an error is under way, and must not be hidden
            await self.close(_FAILED_CLOSE_S if issubclass(kind, Exception) else _INTERRUPTED_CLOSE_S)


class ConsumerCalls(ABC, Generic[K, V]):
    """Batches of records and ``async with``, on a consumer's `poll`."""

    @abstractmethod
    async def poll(self, timeout_s: float = 0.0) -> Record[K, V] | None:
        """The next record, or None when there is none within ``timeout_s``."""

    @abstractmethod
    async def close(self, timeout_s: float | None = None) -> None:
        """Leave the group within the limit. A second call does nothing."""

    @abstractmethod
    def _check_open(self) -> None:
        """Raise `ClosedError` after `close`."""

    @abstractmethod
    def _forget(self) -> None:
        """Count the record that was handed out last as not processed."""

    async def consume(self, max_records: int = 500, timeout_s: float = 1.0) -> list[Record[K, V]]:
        """Up to ``max_records``: what comes until the first of them has waited ``timeout_s``."""
        records: list[Record[K, V]] = []
        while len(records) < max_records:
            record = await self.poll(0.0 if records else timeout_s)
            if record is None:
                break
            records.append(record)
        return records

    async def __aenter__(self) -> Self:
        self._check_open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            await self.close()
            return
        self._forget()
        with contextlib.suppress(ClientError):  # an error is under way, and must not be hidden
            await self.close()
