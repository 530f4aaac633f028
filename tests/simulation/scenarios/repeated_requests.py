"""Copies of a client's requests that come again, late, on another connection: as a network and a
retrying client make them.

With version 1 of transactions a copy of EndTxn or TxnOffsetCommit that comes during the producer's
next transaction acts on that (KIP-890). The protocol cannot tell, so copies of these two leave at
once, and `settled` waits until they are over.
"""

import asyncio
import contextlib
from typing import Any

from barnabas.base.randomness import Random
from barnabas.broker.cluster.channels import ChannelError, Channels
from barnabas.testing.virtual.link import Answered
from barnabas.wire.kafka.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from barnabas.wire.kafka.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from barnabas.wire.kafka.messages.end_txn import EndTxnRequest
from barnabas.wire.kafka.messages.init_producer_id import InitProducerIdRequest
from barnabas.wire.kafka.messages.produce import ProduceRequest
from barnabas.wire.kafka.messages.txn_offset_commit import TxnOffsetCommitRequest

__all__ = ["RepeatedRequests"]

_MOST_DELAY_S = 6.0
_LATE: dict[type, int] = {
    ProduceRequest: 11,
    AddPartitionsToTxnRequest: 3,
    AddOffsetsToTxnRequest: 4,
    InitProducerIdRequest: 5,
}
_AT_ONCE: dict[type, int] = {EndTxnRequest: 4, TxnOffsetCommitRequest: 4}
_VERSIONS = {**_LATE, **_AT_ONCE}


class RepeatedRequests:
    """Sends some requests again; ``share`` of them."""

    def __init__(self, channels: Channels, rng: Random, share: float) -> None:
        self._channels = channels
        self._rng = rng
        self._share = share
        self._at_once: set[asyncio.Task[None]] = set()
        self._late: set[asyncio.Task[None]] = set()
        self._is_again = False
        self.count = 0
        self.has_lost_one = False
        """Whether a copy that left at once got no answer: it is not known when it comes."""

    def on_request(self, broker_id: int, message: Any) -> Answered | None:
        """A request leaves; perhaps it will come again."""
        if self._is_again:
            self._is_again = False
        elif type(message) in _VERSIONS and self._rng.random() < self._share:
            self.count += 1
            is_late = type(message) in _LATE
            delay_s = self._rng.random() * _MOST_DELAY_S if is_late else 0.0
            tasks = self._late if is_late else self._at_once
            task = asyncio.get_running_loop().create_task(self._again(broker_id, message, delay_s))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        return None

    async def _again(self, broker_id: int, message: Any, delay_s: float) -> None:
        await asyncio.sleep(delay_s)
        self._is_again = True
        try:
            await self._channels.send(broker_id, message, version=_VERSIONS[type(message)])
        except ChannelError:
            self.has_lost_one = self.has_lost_one or type(message) in _AT_ONCE

    async def settled(self) -> bool:
        """Wait for what left at once; whether all of it was answered."""
        while self._at_once:
            await asyncio.wait(set(self._at_once))
        was_lost, self.has_lost_one = self.has_lost_one, False
        return not was_lost

    async def end(self) -> None:
        """Send nothing again any more."""
        for task in (*self._late, *self._at_once):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
