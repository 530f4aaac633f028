"""Producer ids: blocks that brokers claim from one znode."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from barnabas.broker.cluster.znodes import PRODUCER_IDS, ProducerIdBlock, decode_producer_ids, encode_producer_ids
from barnabas.broker.transactions.producer_ids import BLOCK_IDS, ProducerIds
from barnabas.coordination.client import CoordinationClient
from barnabas.wire.kafka.errors import ErrorCode, KafkaError
from support.coordination_in_process import running_server, session
from support.performing import perform


def run(tmp_path: Path, test: Callable[[CoordinationClient], Awaitable[None]]) -> None:
    async def main() -> None:
        async with running_server(tmp_path) as server, session(f"127.0.0.1:{server.port}") as client:
            await client.ensure_path(PRODUCER_IDS)
            await test(client)

    asyncio.run(main())


def test_ids_of_two_brokers_never_meet(tmp_path: Path) -> None:
    """Each works through blocks of its own, asking at the same moment and past a block's end."""

    async def test(client: CoordinationClient) -> None:
        first, second = ProducerIds(1), ProducerIds(2)
        taken = await asyncio.gather(
            *(perform(client, ids.next()) for _ in range(BLOCK_IDS + 5) for ids in (first, second))
        )
        assert len(set(taken)) == len(taken)
        data, _ = await client.get(PRODUCER_IDS)
        assert decode_producer_ids(data).last == 4 * BLOCK_IDS - 1, "two blocks each, however many ask at once"

    run(tmp_path, test)


def test_ids_go_on_after_the_block_that_was_given_last(tmp_path: Path) -> None:
    """The znode says which block is next and whose it is, also to another broker or
    a later life of this one."""

    async def test(client: CoordinationClient) -> None:
        await client.set_data(PRODUCER_IDS, encode_producer_ids(ProducerIdBlock(7, 3000, 3999)))
        ids = ProducerIds(1)
        assert ids.take() is None
        assert await perform(client, ids.next()) == 4000
        assert ids.take() == 4001
        data, _ = await client.get(PRODUCER_IDS)
        assert decode_producer_ids(data) == ProducerIdBlock(1, 4000, 4999)

    run(tmp_path, test)


def test_a_block_that_another_broker_took_first_is_not_taken_again(tmp_path: Path) -> None:
    """The write that lost is repeated with the block after the winner's."""

    async def test(client: CoordinationClient) -> None:
        ids, rival = ProducerIds(1), ProducerIds(2)
        got = await asyncio.gather(perform(client, ids.next()), perform(client, rival.next()))
        assert sorted(got) == [0, BLOCK_IDS]

    run(tmp_path, test)


def test_the_last_block_is_followed_by_none(tmp_path: Path) -> None:
    """Ids are 63 bits; none is given twice when they end."""

    async def test(client: CoordinationClient) -> None:
        last = (1 << 63) - 1
        await client.set_data(PRODUCER_IDS, encode_producer_ids(ProducerIdBlock(7, last - 1500, last - 501)))
        with pytest.raises(KafkaError) as error:
            await perform(client, ProducerIds(1).next())
        assert error.value.code == ErrorCode.UNKNOWN_SERVER_ERROR

    run(tmp_path, test)


def test_without_the_znode_clients_get_an_error_upon_which_they_retry(tmp_path: Path) -> None:
    """Trouble with the coordination service is an error that clients repeat."""

    async def test(client: CoordinationClient) -> None:
        await client.delete(PRODUCER_IDS)
        with pytest.raises(KafkaError) as error:
            await perform(client, ProducerIds(1).next())
        assert error.value.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    run(tmp_path, test)
