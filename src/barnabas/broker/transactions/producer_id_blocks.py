"""Blocks of a thousand producer ids, each given to one broker and never again (KIP-730).

The znode ``/latest_producer_id_block`` tells which block was given out last, and to whom. A block is claimed by a
conditional write of it; a write whose outcome is unknown costs at most a block that nobody uses.
"""

import logging

from barnabas.broker.cluster.znodes import PRODUCER_IDS, ProducerIdBlock, decode_producer_ids, encode_producer_ids
from barnabas.coordination.client import CoordinationClient
from barnabas.wire.jute.errors import ErrorCode as KeeperCode
from barnabas.wire.jute.errors import KeeperError
from barnabas.wire.kafka.errors import ErrorCode, KafkaError

__all__ = ["BLOCK_IDS", "claim_block"]

logger = logging.getLogger(__name__)

BLOCK_IDS = 1000
_LAST_ID = (1 << 63) - 1


async def claim_block(client: CoordinationClient, broker_id: int) -> ProducerIdBlock | None:
    """The next block, for ``broker_id``; None when somebody else took it, or nobody knows: ask again.

    Raises `KafkaError` when all ids are used up, and `KeeperError`.
    """
    data, stat = await client.get(PRODUCER_IDS)
    first = decode_producer_ids(data).last + 1 if data else 0
    if first > _LAST_ID - BLOCK_IDS:
        logger.error("All producer ids have been used up")
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "There are no more producer ids")
    block = ProducerIdBlock(broker_id, first, first + BLOCK_IDS - 1)
    try:
        await client.set_data(PRODUCER_IDS, encode_producer_ids(block), stat.version)
    except KeeperError as error:
        if error.code not in (KeeperCode.BAD_VERSION, KeeperCode.CONNECTION_LOSS):
            raise
        return None
    return block
