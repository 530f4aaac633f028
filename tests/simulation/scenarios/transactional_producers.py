"""Transactional producers of a simulated cluster: some send values of their own, some copy what
they read (KIP-447).

They commit, abort, die in the middle and come again under their ``transactional.id``, or go on
beside their successor as zombies, which must be fenced.
"""

import asyncio
import contextlib
from collections.abc import Sequence
from functools import partial
from typing import Any

from barnabas.base.ids import TopicPartition
from barnabas.client.errors import ClientError, CommitError, TimedOutError
from barnabas.testing.virtual.consumer import VirtualConsumer
from barnabas.testing.virtual.producer import VirtualProducer
from barnabas.wire.kafka.errors import ErrorCode
from simulation.scenarios.clients import ClusterClient
from simulation.scenarios.repeated_requests import RepeatedRequests
from simulation.scenarios.transaction_facts import Outcome, SentTransaction, TransactionFacts, key_of

__all__ = ["TransactionalCopier", "TransactionalProducer"]

_ABORT_SHARE = 0.2
_DEATH_SHARE = 0.06
_ZOMBIE_SHARE = 0.06
_CALL_S = 20.0
_STALL_SHARE = 0.04
_STALL_S = (6.5, 10.0)
"""How long a copier stands still that its group gives up meanwhile."""
_TRANSACTION_TIMEOUT_MS = 8000
_DELIVERY_TIMEOUT_MS = 6000
_BYTES = {
    "key.serializer": "bytes",
    "value.serializer": "bytes",
}
_COPYING = {
    "key.deserializer": "bytes",
    "value.deserializer": "bytes",
    "session.timeout.ms": "6000",
    "max.poll.interval.ms": "6000",
    "heartbeat.interval.ms": "500",
    "enable.auto.commit": "false",
    "auto.offset.reset": "earliest",
    "isolation.level": "read_committed",
}


class _Transactional:
    """A loop of transactions under one ``transactional.id``."""

    def __init__(
        self,
        client: ClusterClient,
        name: str,
        facts: TransactionFacts,
        *,
        mean_pause_s: float,
        repeated_share: float,
        held_share: float,
    ) -> None:
        self._client = client
        self._name = name
        self._facts = facts
        self._mean_pause_s = mean_pause_s
        self._rng = client.rng
        self._repeated = RepeatedRequests(
            client.link.channels(), client.rng, repeated_share, client.history, held_share=held_share
        )
        client.observer.watch_transactions(facts, self._repeated.on_request)
        self.is_stopping = False
        self.is_calm = False
        """Whether it only commits from now on, so that what is left comes to an end."""
        self.task = client.spawn(self._run())

    async def _run(self) -> None:
        producer: VirtualProducer[Any, Any] | None = None
        while not self.is_stopping:
            if producer is None:
                producer = await self._start()
            elif not await self._transact(producer) or not await self._repeated.settled():
                producer = None
            await asyncio.sleep(self._rng.expovariate(1 / self._mean_pause_s))
        await self._repeated.end()

    def _make(self) -> VirtualProducer[Any, Any]:
        return VirtualProducer(
            self._client.link,
            {
                **_BYTES,
                "transactional.id": self._name,
                "transaction.timeout.ms": str(_TRANSACTION_TIMEOUT_MS),
                "delivery.timeout.ms": str(_DELIVERY_TIMEOUT_MS),
                "request.timeout.ms": "2000",
                "linger.ms": "1",
                "batch.num.messages": "3",
            },
        )

    async def _start(self) -> "VirtualProducer[Any, Any] | None":
        producer = self._make()
        try:
            await producer.init_transactions(_CALL_S)
        except ClientError as error:
            self._note_failure("init_transactions", error)
            return None
        return producer

    def _note_failure(self, what: str, error: ClientError) -> None:
        self._client.history.count(f"{what} failed with {error.name}")

    async def _transact(self, producer: VirtualProducer[Any, Any]) -> bool:
        """One transaction; whether the producer may begin another."""
        transaction = self._facts.begin(self._name)
        try:
            await producer.begin_transaction()
            if not await self._fill(producer, transaction):
                await producer.abort_transaction(_CALL_S)
                return True
            chance = 1.0 if self.is_calm else self._rng.random()
            if chance < _DEATH_SHARE:
                self._client.history.count("producers that died")
                return False
            if chance < _DEATH_SHARE + _ZOMBIE_SHARE:
                await self._be_a_zombie(producer)
                return False
            if chance < _DEATH_SHARE + _ZOMBIE_SHARE + _ABORT_SHARE:
                await producer.abort_transaction(_CALL_S)
                self._facts.end(transaction, Outcome.ABORTED)
                return True
            await self._commit(producer, transaction)
        except ClientError as error:
            return await self._recover(producer, transaction, error)
        return True

    async def _commit(self, producer: VirtualProducer[Any, Any], transaction: SentTransaction) -> None:
        transaction.outcome = Outcome.UNKNOWN
        while True:
            try:
                await producer.commit_transaction(_CALL_S)
            except TimedOutError:
                if self.is_stopping:
                    self._client.history.count("commits tried again at the end")
                continue
            self._facts.end(transaction, Outcome.COMMITTED)
            return

    async def _recover(
        self, producer: VirtualProducer[Any, Any], transaction: SentTransaction, error: ClientError
    ) -> bool:
        """After an error: abort where that helps; whether the producer may go on."""
        self._note_failure("transactions", error)
        if error.fatal:
            return False
        try:
            await producer.abort_transaction(_CALL_S)
        except ClientError as problem:
            self._note_failure("abort_transaction", problem)
            return False
        self._facts.end(transaction, Outcome.ABORTED)
        return True

    async def _be_a_zombie(self, producer: VirtualProducer[Any, Any]) -> None:
        """A successor begins; what this one does from then on must have no effect."""
        successor = await self._start()
        if successor is None:
            return
        self._client.history.count("zombies")
        with contextlib.suppress(ClientError):
            await producer.commit_transaction(_CALL_S)
            self._client.history.violation(f"{self._name}: a fenced producer has committed")

    async def _fill(self, producer: VirtualProducer[Any, Any], transaction: SentTransaction) -> bool:
        """Send what belongs into a transaction; whether there was something."""
        raise NotImplementedError

    async def _send(
        self,
        producer: VirtualProducer[Any, Any],
        transaction: SentTransaction,
        topic_partition: TopicPartition,
        content: str,
    ) -> None:
        value = self._facts.send(transaction, topic_partition, content)
        sent = await producer.submit(topic_partition.topic, value, key_of(value), partition=topic_partition.partition)
        sent.add_done_callback(partial(self._facts.delivered, value))


class TransactionalProducer(_Transactional):
    """Sends values of its own to several partitions."""

    def __init__(
        self,
        client: ClusterClient,
        name: str,
        facts: TransactionFacts,
        partitions: Sequence[TopicPartition],
        *,
        mean_pause_s: float,
        repeated_share: float,
        held_share: float,
    ) -> None:
        self._partitions = list(partitions)
        super().__init__(
            client, name, facts, mean_pause_s=mean_pause_s, repeated_share=repeated_share, held_share=held_share
        )

    async def _fill(self, producer: VirtualProducer[Any, Any], transaction: SentTransaction) -> bool:
        rng = self._rng
        for topic_partition in rng.sample(self._partitions, rng.randint(1, len(self._partitions))):
            for number in range(rng.choice((1, 1, 2, 7))):
                await self._send(producer, transaction, topic_partition, str(number))
            if rng.random() < 0.3:
                await asyncio.sleep(rng.random())
        return True


class TransactionalCopier(_Transactional):
    """A member of a group that copies what it reads, and commits its offsets in the same
    transaction."""

    def __init__(
        self,
        client: ClusterClient,
        name: str,
        facts: TransactionFacts,
        group: str,
        source: str,
        target: str,
        *,
        mean_pause_s: float,
        repeated_share: float,
        held_share: float,
    ) -> None:
        self._group = group
        self._source = source
        self._target = target
        self._consumer: VirtualConsumer[Any, Any] | None = None
        self._has_committed = False
        super().__init__(
            client, name, facts, mean_pause_s=mean_pause_s, repeated_share=repeated_share, held_share=held_share
        )

    async def _run(self) -> None:
        consumer = self._consumer = VirtualConsumer(self._client.link, {**_COPYING, "group.id": self._group})
        consumer.subscribe([self._source])
        await super()._run()
        with contextlib.suppress(ClientError):
            await consumer.close()

    async def _transact(self, producer: VirtualProducer[Any, Any]) -> bool:
        is_useful = await super()._transact(producer)
        assert self._consumer is not None
        if not self._has_committed:
            await self._go_back(self._consumer)
        return is_useful

    async def _commit(self, producer: VirtualProducer[Any, Any], transaction: SentTransaction) -> None:
        await super()._commit(producer, transaction)
        self._has_committed = True

    async def _fill(self, producer: VirtualProducer[Any, Any], transaction: SentTransaction) -> bool:
        consumer = self._consumer
        assert consumer is not None
        self._has_committed = False
        records = await consumer.consume(10, 0.5)
        if not records:
            self._has_committed = True  # nothing is to be read again
            return False
        group = await consumer.group_metadata()
        if group.generation_id < 0:  # such a commit is not fenced (KIP-447)
            raise CommitError(ErrorCode.ILLEGAL_GENERATION)
        if not self.is_calm and self._rng.random() < _STALL_SHARE:
            self._client.history.count("copiers that stood still")
            await asyncio.sleep(self._rng.uniform(*_STALL_S))
        offsets: dict[TopicPartition, int] = {}
        for record in records:
            target = TopicPartition(self._target, record.partition)
            await self._send(producer, transaction, target, (record.value or b"").decode())
            offsets[TopicPartition(record.topic, record.partition)] = record.offset + 1
        await producer.send_offsets_to_transaction(offsets, group, _CALL_S)
        return True

    async def _go_back(self, consumer: VirtualConsumer[Any, Any]) -> None:
        """Read again what was not copied: from the committed offsets on."""
        for topic_partition in consumer.assignment():
            while topic_partition in consumer.assignment():
                try:
                    found = await consumer.committed([topic_partition], _CALL_S)
                    if topic_partition in consumer.assignment():
                        await consumer.seek(*topic_partition, found[topic_partition] or 0)
                except (TimedOutError, CommitError):
                    continue
                break
