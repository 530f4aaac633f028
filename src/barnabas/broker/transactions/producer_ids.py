"""Producer ids, unique in the cluster, from blocks that this broker claims (Kafka's
`ProducerIdManager`)."""

import logging
from collections import deque

from barnabas.broker.cluster.steps import Done, Steps, Wait
from barnabas.broker.cluster.znodes import ProducerIdBlock
from barnabas.broker.transactions.producer_id_blocks import BLOCK_IDS, claim_block
from barnabas.wire.jute.errors import ErrorCode as KeeperCode
from barnabas.wire.jute.errors import KeeperError
from barnabas.wire.kafka.errors import ErrorCode, KafkaError

__all__ = ["BLOCK_IDS", "ProducerIds"]

logger = logging.getLogger(__name__)

_ATTEMPTS = 20


class ProducerIds:
    """This broker's block of ids."""

    def __init__(self, broker_id: int) -> None:
        self._broker_id = broker_id
        self._blocks: deque[ProducerIdBlock] = deque()
        self._taken = 0
        self._is_claiming = False
        self._waiting: list[Done] = []

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

    def next(self) -> Steps[int]:
        """The next id, from a new block if need be.

        Raises COORDINATOR_LOAD_IN_PROGRESS while none can be had."""
        for _ in range(_ATTEMPTS):
            taken = self.take()
            if taken is not None:
                return taken
            # When many ask at once, one of them claims a block, and the others wait for it.
            if self._is_claiming:
                yield Wait(self._waiting.append)
                continue
            self._is_claiming = True
            try:
                block = yield from self._claim()
                if block is not None:
                    self._blocks.append(block)
            finally:
                self._is_claiming = False
                waiting, self._waiting = self._waiting, []
                for done in waiting:
                    done(None, None)
        raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    def _claim(self) -> Steps[ProducerIdBlock | None]:
        """A block of our own; None when another broker took it."""
        try:
            return (yield from claim_block(self._broker_id))
        except KeeperError as error:
            if error.code is KeeperCode.CONNECTION_LOSS:
                return None
            logger.warning("No producer ids are available: %s", error)
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS) from error
