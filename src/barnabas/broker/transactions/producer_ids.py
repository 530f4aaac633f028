"""Producer ids: unique in the cluster, handed out from blocks that this broker claims, as Apache Kafka 3.9's do."""

import logging
from collections import deque
from collections.abc import Awaitable, Callable

from barnabas.broker.cluster.znodes import ProducerIdBlock
from barnabas.broker.transactions.producer_id_blocks import BLOCK_IDS
from barnabas.wire.jute.errors import ErrorCode as KeeperCode
from barnabas.wire.jute.errors import KeeperError
from barnabas.wire.kafka.errors import ErrorCode, KafkaError

__all__ = ["BLOCK_IDS", "ProducerIds"]

logger = logging.getLogger(__name__)

_ATTEMPTS = 20

ClaimBlock = Callable[[int], Awaitable[ProducerIdBlock | None]]


class ProducerIds:
    """This broker's block of ids."""

    def __init__(self, broker_id: int, claim: ClaimBlock) -> None:
        """``claim`` claims the next block for a broker; see `claim_block`."""
        self._broker_id = broker_id
        self._claim_block = claim
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
        try:
            return await self._claim_block(self._broker_id)
        except KeeperError as error:
            if error.code is KeeperCode.CONNECTION_LOSS:
                return None
            logger.warning("No producer ids can be had: %s", error)
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS) from error
