"""Blocks of a thousand producer ids, each given to one broker and never again (KIP-730;
Kafka's `ZkProducerIdManager`).

The znode ``/latest_producer_id_block`` contains the block that was given out last, and its broker.
A block is claimed by a conditional write of it; a write whose outcome is unknown costs at most a
block that no broker uses.
"""

import logging

from barnabas.broker.cluster.steps import Read, SetData, Steps, WriteResult, WriteUnfenced, Written, Znode
from barnabas.broker.cluster.znodes import PRODUCER_IDS, ProducerIdBlock, decode_producer_ids, encode_producer_ids
from barnabas.wire.jute.errors import ErrorCode as KeeperCode
from barnabas.wire.jute.errors import KeeperError
from barnabas.wire.kafka.errors import ErrorCode, KafkaError

__all__ = ["BLOCK_IDS", "allocate_block", "claim_block"]

logger = logging.getLogger(__name__)

BLOCK_IDS = 1000
_LAST_ID = (1 << 63) - 1


def claim_block(broker_id: int) -> Steps[ProducerIdBlock | None]:
    """The next block, for ``broker_id``.

    None when another broker took it, or the outcome is unknown: ask again. Raises `KafkaError` when
    all ids are used up, and `KeeperError`.
    """
    znodes: list[Znode | None] = yield Read([PRODUCER_IDS])
    znode = znodes[0]
    if znode is None:
        raise KeeperError(KeeperCode.NO_NODE, PRODUCER_IDS)
    first = decode_producer_ids(znode.data).last + 1 if znode.data else 0
    if first > _LAST_ID - BLOCK_IDS:
        logger.error("All producer ids have been used up")
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "There are no more producer ids")
    block = ProducerIdBlock(broker_id, first, first + BLOCK_IDS - 1)
    written: list[Written] = yield WriteUnfenced([SetData(PRODUCER_IDS, encode_producer_ids(block), znode.version)])
    error = written[0].error
    if error is not None and error.code is KeeperCode.CONNECTION_LOSS:
        return None
    return block if written[0].or_raise(WriteResult.BAD_VERSION) is WriteResult.DONE else None


def allocate_block(broker_id: int) -> Steps[ProducerIdBlock]:
    """The next block, for ``broker_id``, however many others ask for one.

    Raises as `claim_block`."""
    while True:
        block = yield from claim_block(broker_id)
        if block is not None:
            return block
