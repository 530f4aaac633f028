"""Copies of a client's requests that come again, late, on another connection: as a network and a
retrying client make them.

The network may also hold a Produce: its connection breaks, and the request comes late. What the
client sends again may be held, too, until it gives the batch up.

With version 1 of transactions a copy of EndTxn or TxnOffsetCommit that comes during the producer's
next transaction acts on that (KIP-890). The protocol cannot tell, so copies of these two leave at
once, and `settled` waits until they are over. With version 2 each transaction has an epoch of its
own, and copies of all requests come late.
"""

import asyncio
import contextlib
from typing import Any

from barnabas.base.randomness import Random
from barnabas.broker.cluster.channels import ChannelError, Channels
from barnabas.testing.simulation.history import History
from barnabas.testing.virtual.link import Answered
from barnabas.wire.kafka.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from barnabas.wire.kafka.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from barnabas.wire.kafka.messages.end_txn import EndTxnRequest
from barnabas.wire.kafka.messages.init_producer_id import InitProducerIdRequest
from barnabas.wire.kafka.messages.produce import ProduceRequest
from barnabas.wire.kafka.messages.txn_offset_commit import TxnOffsetCommitRequest

__all__ = ["RepeatedRequests"]

_MOST_DELAY_S = 6.0
_LATE_SINCE_VERSION: dict[type, int] = {
    ProduceRequest: 0,
    AddPartitionsToTxnRequest: 0,
    AddOffsetsToTxnRequest: 0,
    InitProducerIdRequest: 0,
    EndTxnRequest: 5,
    TxnOffsetCommitRequest: 5,
}
"""The first version of a request whose copies may come late; those of older ones leave at once."""


class RepeatedRequests:
    """Sends some requests again; ``share`` of them."""

    def __init__(
        self, channels: Channels, rng: Random, share: float, history: History, *, held_share: float = 0.0
    ) -> None:
        """``held_share`` is that of the Produce requests that the network holds."""
        self._channels = channels
        self._history = history
        self._rng = rng
        self._share = share
        self._held_share = held_share
        self._at_once: set[asyncio.Task[None]] = set()
        self._late: set[asyncio.Task[None]] = set()
        self._is_again = False
        self.has_lost_one = False
        """Whether a copy that left at once got no answer: it is not known when it comes."""

    def on_request(self, broker_id: int, message: Any, version: int | None) -> Answered | None:
        """A request leaves; perhaps it will come again. Raises `ChannelError` for one that is
        held."""
        late_since = _LATE_SINCE_VERSION.get(type(message))
        if self._is_again:
            self._is_again = False
        elif self._held_share and isinstance(message, ProduceRequest) and self._rng.random() < self._held_share:
            assert version is not None
            self._history.count("requests held")
            self._begin(self._late, broker_id, message, version, is_late=True)
            raise ChannelError("the connection broke")
        elif late_since is not None and version is not None and self._rng.random() < self._share:
            self._history.count("requests repeated")
            is_late = version >= late_since
            self._begin(self._late if is_late else self._at_once, broker_id, message, version, is_late=is_late)
        return None

    def _begin(
        self, tasks: set[asyncio.Task[None]], broker_id: int, message: Any, version: int, *, is_late: bool
    ) -> None:
        task = asyncio.get_running_loop().create_task(self._again(broker_id, message, version, is_late=is_late))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    async def _again(self, broker_id: int, message: Any, version: int, *, is_late: bool) -> None:
        await asyncio.sleep(self._rng.random() * _MOST_DELAY_S if is_late else 0.0)
        self._is_again = True
        try:
            response = await self._channels.send(broker_id, message, version=version)
        except ChannelError:
            self.has_lost_one = self.has_lost_one or not is_late
            return
        if is_late and isinstance(message, EndTxnRequest):
            self._history.count("late ends refused" if response.error_code else "late ends repeated")

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
