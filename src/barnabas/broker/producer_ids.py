"""Producer ids: unique in the cluster, handed out from blocks of a thousand.

A broker claims a block by a conditional write of ``/latest_producer_id_block``, the znode that tells which block was
given out last and to whom, as Apache Kafka 3.9 does in ZooKeeper mode. A write whose outcome is unknown costs at most
a block that nobody uses.
"""

import logging
from collections import deque

from barnabas.broker.node import Node
from barnabas.broker.znodes import PRODUCER_IDS, ProducerIdBlock, decode_producer_ids, encode_producer_ids
from barnabas.wire.jute.errors import ErrorCode as KeeperCode
from barnabas.wire.jute.errors import KeeperError
from barnabas.wire.kafka.errors import ErrorCode, KafkaError

__all__ = ["ProducerIds"]

logger = logging.getLogger(__name__)

BLOCK_IDS = 1000
_LAST_ID = (1 << 63) - 1
_ATTEMPTS = 20


class ProducerIds:
    """This broker's block of ids."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._blocks: deque[ProducerIdBlock] = deque()
        self._taken = 0

    def take(self) -> int | None:
        """The next id; None when the block is used up."""
        while self._blocks:
            taken = self._blocks[0].first + self._taken
            if taken <= self._blocks[0].last:
                self._taken += 1
                return taken
            self._blocks.popleft()
            self._taken = 0
        return None

    async def next(self) -> int:
        """The next id, from a new block if need be. Raises COORDINATOR_LOAD_IN_PROGRESS while none can be had."""
        for _ in range(_ATTEMPTS):
            taken = self.take()
            if taken is not None:
                return taken
            # Of many that ask at once one claims a block; the others lose to it, and find it here.
            block = await self._claim()
            if block is not None:
                self._blocks.append(block)
        raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    async def _claim(self) -> ProducerIdBlock | None:
        """A block of our own; None when it went to somebody else."""
        client = self._node.coordination
        try:
            data, stat = await client.get(PRODUCER_IDS)
            first = decode_producer_ids(data).last + 1 if data else 0
            if first > _LAST_ID - BLOCK_IDS:
                logger.error("All producer ids have been used up")
                raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
            block = ProducerIdBlock(self._node.broker_id, first, first + BLOCK_IDS - 1)
            await client.set_data(PRODUCER_IDS, encode_producer_ids(block), stat.version)
        except KeeperError as error:
            if error.code not in (KeeperCode.BAD_VERSION, KeeperCode.CONNECTION_LOSS):
                logger.warning("No producer ids can be had: %s", error)
                raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS) from error
            # Lost to another, or perhaps done: then nobody uses it.
            return None
        return block
