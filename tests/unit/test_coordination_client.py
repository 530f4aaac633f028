"""The coordination client against our server: pipelining, watches, lost connections,
expired sessions."""

import asyncio
import contextlib
import random
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from barnabas.base.errors import ConfigError
from barnabas.coordination.client import BlockingClient, ConnectString, CoordinationClient, SessionEvent
from barnabas.coordination.client.operations import (
    MultiError,
    WatchEvent,
    check,
    create,
    delete,
    get,
    multi,
    multi_create,
    multi_delete,
    multi_set,
)
from barnabas.net.listeners import close_server
from barnabas.net.sockets import SocketNetwork
from barnabas.wire.jute.errors import ErrorCode, KeeperError
from barnabas.wire.jute.opcodes import CreateMode, EventType
from support.coordination_in_process import running_server, session, start_server


async def until(condition: Callable[[], object]) -> None:
    """Let the loop run until the condition holds."""
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110  # any condition, also of code that sets no event
            await asyncio.sleep(0.005)


def test_a_connect_string_is_parsed() -> None:
    """Several hosts, default ports, IPv6, and a chroot."""
    assert ConnectString.parse("a:1, b:2/kafka/") == ((("a", 1), ("b", 2)), "/kafka")
    assert ConnectString.parse("a") == ((("a", 2181),), "")
    assert ConnectString.parse("[::1]:5/") == ((("::1", 5),), "")


@pytest.mark.parametrize("text", ["", "a:b", "a:0", "a:1,,b:2"])
def test_a_bad_connect_string_is_refused(text: str) -> None:
    """The error shows the expected form."""
    with pytest.raises(ConfigError, match="host:port"):
        ConnectString.parse(text)


def test_operations_give_data_stats_and_errors(tmp_path: Path) -> None:
    """Each operation once, and the errors that callers distinguish."""

    async def run() -> None:
        async with running_server(tmp_path) as server, session(f"127.0.0.1:{server.port}") as client:
            path, stat = await client.create("/a", b"1")
            assert (path, stat.version) == ("/a", 0)
            assert (await client.set_data("/a", b"2", 0)).version == 1
            assert (await client.get("/a"))[0] == b"2"
            assert await client.exists("/b") is None
            assert (await client.create("/a/s-", None, CreateMode.PERSISTENT_SEQUENTIAL))[0] == "/a/s-0000000000"
            assert (await client.get_children("/a"))[0] == ["s-0000000000"]
            for operation, code in (
                (create("/a"), ErrorCode.NODE_EXISTS),
                (delete("/a", 7), ErrorCode.BAD_VERSION),
                (delete("/a"), ErrorCode.NOT_EMPTY),
                (get("/none"), ErrorCode.NO_NODE),
                (get("/half-a-character-\ud800"), ErrorCode.BAD_ARGUMENTS),
                (delete("/a", 1 << 40), ErrorCode.BAD_ARGUMENTS),
            ):
                with pytest.raises(KeeperError) as failed:
                    await client.run(operation)
                assert failed.value.code is code
            await client.sync("/a")
            acl, _ = await client.get_acl("/a")
            await client.set_acl("/a", acl)
            await client.ensure_path("/x/y/z")
            assert (await client.get("/x/y/z"))[0] is None

    asyncio.run(run())


def test_a_session_uses_one_connection_to_one_of_the_servers(tmp_path: Path) -> None:
    """Operations and watches share it, however many servers the client knows."""

    async def run() -> None:
        async with contextlib.AsyncExitStack() as stack:
            servers = [await stack.enter_async_context(running_server(tmp_path / str(n))) for n in range(3)]
            network = SocketNetwork()
            opened: list[int] = []
            connect = network.connect

            def counted(host: str, port: int, *given: object, **options: object) -> object:
                opened.append(port)
                return connect(host, port, *given, **options)

            network.connect = counted
            address = ",".join(f"127.0.0.1:{server.port}" for server in servers)
            client = CoordinationClient(network, address, rng=random.Random(1), session_timeout_ms=40_000)
            await client.start(30_000)
            try:
                events: list[WatchEvent] = []
                await client.exists("/n0", events.append)
                await client.batch([create(f"/n{number}") for number in range(50)])
                await asyncio.gather(*(client.get(f"/n{number}") for number in range(50)))
                assert len(events) == 1
            finally:
                await client.close()
            assert len(opened) == 1

    asyncio.run(run())


def test_a_multi_is_applied_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    """Its error names the operation that failed; the operations before it are undone."""

    async def run() -> None:
        async with running_server(tmp_path) as server, session(f"127.0.0.1:{server.port}") as client:
            results = await client.multi([multi_create("/a", b""), multi_set("/a", b"1", 0), check("/a", 1)])
            assert results[0] == "/a"
            assert results[1].version == 1
            with pytest.raises(MultiError) as failed:
                await client.multi([multi_create("/b", b""), check("/a", 9), multi_delete("/a")])
            assert failed.value.code is ErrorCode.BAD_VERSION
            assert failed.value.errors == [ErrorCode.OK, ErrorCode.BAD_VERSION, ErrorCode.RUNTIME_INCONSISTENCY]
            assert await client.exists("/b") is None

    asyncio.run(run())


def test_thousands_of_pipelined_requests_are_answered_in_order(tmp_path: Path) -> None:
    """More than may be in flight at once; a failure is in its own place of the results."""

    async def run() -> None:
        async with running_server(tmp_path) as server, session(f"127.0.0.1:{server.port}", timeout_ms=30_000) as client:
            results = await client.batch([create(f"/{n % 2999}", b"%d" % n) for n in range(3000)])
            assert [r.code for r in results if isinstance(r, KeeperError)] == [ErrorCode.NODE_EXISTS]
            read = await client.batch([get(f"/{n}") for n in range(2999)])
            assert [data for data, _ in read] == [b"%d" % n for n in range(2999)]

    asyncio.run(run())


def test_a_watch_fires_once_and_before_the_client_sees_the_new_data(tmp_path: Path) -> None:
    """A callback that was registered twice is called once."""

    async def run() -> None:
        async with running_server(tmp_path) as server, session(f"127.0.0.1:{server.port}") as client:
            events_seen: list[WatchEvent] = []
            await client.exists("/a", events_seen.append)
            await client.exists("/a", events_seen.append)
            await client.create("/a")
            assert events_seen == [WatchEvent(EventType.NODE_CREATED, "/a")]
            seen: list[int] = []
            await client.get("/a", lambda _: seen.append(len(reads)))
            reads: list[bytes | None] = []
            async with session(f"127.0.0.1:{server.port}") as other:
                await other.set_data("/a", b"new")
            while not reads or reads[-1] != b"new":
                reads.append((await client.get("/a"))[0])
            assert seen
            assert seen[0] < len(reads)

    asyncio.run(run())


def test_a_chroot_precedes_every_path_and_is_removed_from_replies(tmp_path: Path) -> None:
    """Also for sequential names and watches."""

    async def run() -> None:
        async with running_server(tmp_path) as server, session(f"127.0.0.1:{server.port}/k/c") as client:
            await client.ensure_chroot()
            events_seen: list[WatchEvent] = []
            await client.get_children("/", events_seen.append)
            assert (await client.create("/s-", None, CreateMode.EPHEMERAL_SEQUENTIAL))[0] == "/s-0000000000"
            assert events_seen == [WatchEvent(EventType.NODE_CHILDREN_CHANGED, "/")]
            async with session(f"127.0.0.1:{server.port}") as whole:
                assert (await whole.get_children("/k/c"))[0] == ["s-0000000000"]

    asyncio.run(run())


def test_a_session_outlives_a_restart_of_the_server_with_its_watches(tmp_path: Path) -> None:
    """Reads wait for the connection; ephemerals and watches are still there."""

    async def run() -> None:
        server = await start_server(tmp_path)
        port = server.port
        async with session(f"127.0.0.1:{port}") as client:
            events: list[SessionEvent] = []
            client.on_session(events.append)
            events_seen: list[WatchEvent] = []
            await client.create("/mine", None, CreateMode.EPHEMERAL)
            await client.get("/mine", events_seen.append)
            session_id = client.session_id
            await server.close()
            await until(lambda: SessionEvent.DISCONNECTED in events)
            reading = asyncio.create_task(client.exists("/mine"))
            server = await start_server(tmp_path, port)
            stat = await reading
            assert stat is not None
            assert stat.ephemeral_owner == client.session_id == session_id
            assert events == [SessionEvent.DISCONNECTED, SessionEvent.REATTACHED]
            await client.set_data("/mine", b"x")
            assert [event.type for event in events_seen] == [EventType.NODE_DATA_CHANGED]
        await server.close()

    asyncio.run(run())


def test_a_write_with_an_unknown_outcome_fails_and_is_retried_only_on_demand(tmp_path: Path) -> None:
    """The connection breaks after the request was sent: CONNECTION_LOSS, or the
    outcome of the retry."""

    async def run() -> None:
        async with running_server(tmp_path) as server, session(f"127.0.0.1:{server.port}") as client:
            await client.exists("/")
            lost = client.submit(create("/a"))
            retried = asyncio.ensure_future(client.run(create("/b"), retry=True))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert client._driver.link is not None
            client._driver.link.lose()
            with pytest.raises(KeeperError) as failed:
                await lost
            assert failed.value.code is ErrorCode.CONNECTION_LOSS
            (outcome,) = await asyncio.gather(retried, return_exceptions=True)
            assert not isinstance(outcome, KeeperError) or outcome.code is ErrorCode.NODE_EXISTS
            assert await client.exists("/b") is not None

    asyncio.run(run())


def test_after_an_expired_session_a_new_one_begins(tmp_path: Path) -> None:
    """A node of its own from the old session is replaced, whether the server has
    removed it already or not."""

    async def run() -> None:
        async with running_server(tmp_path) as server:
            address = f"127.0.0.1:{server.port}"
            async with session(address) as client:
                events: list[SessionEvent] = []
                client.on_session(events.append)
                await client.create_own_ephemeral("/mine", b"1")
                old = client.session_id
                # The server answers a wrong password as it answers a session that has expired.
                client._session.password = b"x" * 16
                assert client._driver.link is not None
                client._driver.link.lose()
                await until(lambda: SessionEvent.CREATED in events)
                assert events[-2:] == [SessionEvent.EXPIRED, SessionEvent.CREATED]
                assert client.session_id != old
                stat = await client.create_own_ephemeral("/mine", b"2")
                assert stat.ephemeral_owner == client.session_id
                assert await client.create_own_ephemeral("/mine", b"2") == stat

    asyncio.run(run())


def test_another_clients_ephemeral_is_not_replaced(tmp_path: Path) -> None:
    """Only a node of this client's own sessions is replaced."""

    async def run() -> None:
        async with running_server(tmp_path) as server:
            address = f"127.0.0.1:{server.port}"
            async with session(address) as first, session(address) as second:
                await first.create_own_ephemeral("/one", b"1")
                with pytest.raises(KeeperError) as failed:
                    await second.create_own_ephemeral("/one", b"2")
                assert failed.value.code is ErrorCode.NODE_EXISTS
                assert (await second.get("/one"))[0] == b"1"

    asyncio.run(run())


def test_a_client_without_a_server_fails_in_time() -> None:
    """The error names the addresses that were tried."""

    async def run() -> None:
        client = CoordinationClient(SocketNetwork(), "127.0.0.1:1", rng=random.Random(1))
        with pytest.raises(KeeperError, match=r"CONNECTION_LOSS for 127.0.0.1:1"):
            await client.start(100)
        await client.close()

    asyncio.run(run())


def test_a_hostile_server_costs_only_the_connection() -> None:
    """Impossible frames lead to another attempt, never to an exception in the loop."""
    answers = [b"", b"\0", b"\0" * 15, b"\xff" * 64, b"\0" * 4 + b"\x7f" * 60]

    async def run() -> None:
        tried = 0

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal tried
            answer = answers[tried % len(answers)]
            tried += 1
            writer.write(len(answer).to_bytes(4, "big") + answer)
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        client = CoordinationClient(SocketNetwork(), f"127.0.0.1:{port}", rng=random.Random(1))
        with pytest.raises(KeeperError):
            await client.start(600)
        await until(lambda: tried >= len(answers))
        await client.close()
        await close_server(server)

    asyncio.run(run())


def test_a_blocking_client_serves_a_thread_without_a_loop(tmp_path: Path) -> None:
    """The same operations; each call waits for its result."""

    async def run() -> None:
        async with running_server(tmp_path) as server:

            def work() -> bytes | None:
                with BlockingClient(SocketNetwork, f"127.0.0.1:{server.port}", rng=random.Random(1)) as blocking:
                    blocking.start(5000)
                    blocking.call(lambda client: client.create("/a", b"1"))
                    assert blocking.call(lambda client: client.batch([multi([multi_delete("/none")])]))[0].errors
                    return blocking.call(lambda client: client.get("/a"))[0]

            assert await asyncio.to_thread(work) == b"1"

    asyncio.run(run())


def test_a_request_ends_when_its_client_has_had_no_connection_for_its_patience(tmp_path: Path) -> None:
    """The request itself would wait for ever; that the server has ended is seen at once."""

    async def run() -> None:
        async with contextlib.AsyncExitStack() as stack:
            server = await stack.enter_async_context(running_server(tmp_path))
            loop = asyncio.get_running_loop()

            def work() -> None:
                address = f"127.0.0.1:{server.port}"
                with BlockingClient(SocketNetwork, address, rng=random.Random(1), patience_ms=100) as blocking:
                    blocking.start(5000)

                    async def wait_for_ever(_: CoordinationClient) -> None:
                        asyncio.run_coroutine_threadsafe(stack.aclose(), loop)
                        await asyncio.Event().wait()

                    with pytest.raises(KeeperError, match=address) as failure:
                        blocking.call(wait_for_ever)
                    assert failure.value.code is ErrorCode.CONNECTION_LOSS

            await asyncio.to_thread(work)

    asyncio.run(run())


def test_a_blocking_client_of_no_address_leaves_no_thread() -> None:
    """A program that goes on with another address would have one more thread and
    loop for each try."""
    with pytest.raises(ConfigError, match="is not a list of coordination servers"):
        BlockingClient(SocketNetwork, "no address:x", rng=random.Random(1))
    assert [each for each in threading.enumerate() if each.name == "coordination-client"] == []
