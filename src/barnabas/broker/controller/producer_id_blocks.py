"""Blocks of producer ids, each given to one broker and never again (KIP-730)."""

from barnabas.broker.znodes import PRODUCER_IDS, ProducerIdBlock, decode_producer_ids, encode_producer_ids
from barnabas.coordination.client import CoordinationClient
from barnabas.wire.jute.errors import ErrorCode as Keeper
from barnabas.wire.jute.errors import KeeperError
from barnabas.wire.kafka.errors import ErrorCode, KafkaError

__all__ = ["allocate_block"]

_BLOCK = 1000
_MAX_PRODUCER_ID = 2**63 - 1


async def allocate_block(client: CoordinationClient, broker: int) -> ProducerIdBlock:
    """The next block, for ``broker``; raises `KafkaError` when there are no more."""
    while True:
        data, stat = await client.get(PRODUCER_IDS)
        first = decode_producer_ids(data).last + 1 if data else 0
        if first > _MAX_PRODUCER_ID - _BLOCK:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "There are no more producer ids")
        block = ProducerIdBlock(broker, first, first + _BLOCK - 1)
        try:
            await client.set_data(PRODUCER_IDS, encode_producer_ids(block), stat.version)
            return block
        except KeeperError as error:
            # After a lost connection our block may be written or not: an unused block costs nothing.
            if error.code not in (Keeper.BAD_VERSION, Keeper.CONNECTION_LOSS):
                raise
