"""Our coordination client on Apache's ZooKeeper."""

import asyncio
from pathlib import Path

import pytest

from barnabas.coordination.client.operations import (
    MultiError,
    WatchEvent,
    check,
    create,
    delete,
    get,
    multi_create,
    multi_delete,
    multi_set,
)
from barnabas.wire.jute.errors import ErrorCode, KeeperError
from barnabas.wire.jute.opcodes import CreateMode, EventType
from support.coordination_in_process import session
from support.needs import needs_reference
from support.reference import apache_cluster

pytestmark = [pytest.mark.interop, pytest.mark.java, needs_reference]


async def converse(address: str) -> None:
    async with session(f"{address}/client/root") as client:
        await client.ensure_chroot()
        heard: list[WatchEvent] = []
        assert await client.exists("/a", heard.append) is None
        await client.get_children("/", heard.append)
        assert (await client.create("/a", b"1"))[0] == "/a"
        assert {event.path for event in heard} == {"/a", "/"}
        name, stat = await client.create("/s-", None, CreateMode.EPHEMERAL_SEQUENTIAL)
        assert name.startswith("/s-00000")
        assert stat.ephemeral_owner == client.session_id
        assert (await client.create_own_ephemeral("/own", b"x")).version == 1
        results = await client.multi([check("/a", 0), multi_create("/b", b""), multi_set("/b", b"2", 0)])
        assert results[1] == "/b"
        with pytest.raises(MultiError) as failed:
            await client.multi([multi_delete("/b"), check("/a", 9)])
        assert failed.value.errors == [ErrorCode.OK, ErrorCode.BAD_VERSION]
        assert [code async for code in refusals(client)] == [ErrorCode.NODE_EXISTS, ErrorCode.NO_NODE]
        made = await client.batch([create(f"/a/{number}", b"v") for number in range(2500)])
        assert not [result for result in made if isinstance(result, KeeperError)]
        read = await client.batch([get(f"/a/{number}") for number in range(2500)])
        assert {data for data, _ in read} == {b"v"}
        await client.get("/a/0", heard.append)
        session_id = client.session_id
        assert client._driver.link is not None
        client._driver.link.lose()
        await client.set_data("/a/0", b"w")
        assert client.session_id == session_id
        await client.sync("/")
        assert heard[-1] == WatchEvent(EventType.NODE_DATA_CHANGED, "/a/0")


async def refusals(client):  # type: ignore[no-untyped-def]  # an asynchronous generator of codes
    for operation in (create("/a"), delete("/none")):
        (result,) = await client.batch([operation])
        yield result.code


def test_every_operation_and_a_reconnection_on_apaches_server(tmp_path: Path) -> None:
    """Watches, sequences, ephemerals, multi, thousands in flight, and the same
    session on the next connection."""
    with apache_cluster(tmp_path) as reference:
        asyncio.run(converse(reference.zookeeper))
