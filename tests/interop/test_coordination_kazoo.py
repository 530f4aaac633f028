"""kazoo and its recipes on the coordination server, across restarts of the server."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import (
    BadVersionError,
    NoAuthError,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
)
from kazoo.security import make_digest_acl

from barnabas.wire.jute.opcodes import OpCode
from barnabas.wire.jute.records import OPEN_ACL, CreateRequest
from support.coordination import CoordinationProcess, RawClient, coordination_server
from support.waiting import eventually

pytestmark = pytest.mark.interop


@pytest.fixture
def server(tmp_path: Path) -> Iterator[CoordinationProcess]:
    with coordination_server(tmp_path, tickTime=500) as running:
        yield running


@pytest.fixture
def clients(server: CoordinationProcess) -> Iterator[list[KazooClient]]:
    started = [KazooClient(server.address, timeout=10) for _ in range(3)]
    for client in started:
        client.start(60)
    yield started
    for client in started:
        client.stop()
        client.close()


def test_plain_operations_return_and_raise_what_kazoo_users_expect(clients: list[KazooClient]) -> None:
    """Creation, sequences, versions, ephemerals and ACLs, with kazoo's exceptions."""
    client = clients[0]
    assert client.server_version()[:2] == (3, 9)
    assert client.create("/a", b"1") == "/a"
    path, stat = client.create("/a/s-", b"", sequence=True, include_data=True)
    assert path == "/a/s-0000000000"
    assert stat.version == 0
    with pytest.raises(NodeExistsError):
        client.create("/a")
    with pytest.raises(NoNodeError):
        client.get("/missing")
    with pytest.raises(NotEmptyError):
        client.delete("/a")
    with pytest.raises(BadVersionError):
        client.set("/a", b"", version=9)
    client.create("/e", ephemeral=True)
    with pytest.raises(NoChildrenForEphemeralsError):
        client.create("/e/child")
    client.add_auth("digest", "bob:secret")
    client.create("/secret", b"x", acl=[make_digest_acl("bob", "secret", all=True)])
    with pytest.raises(NoAuthError):
        clients[1].get("/secret")
    client.delete("/a", recursive=True)
    assert client.exists("/a") is None


def run_each(clients: list[KazooClient], work: Callable[[KazooClient], None]) -> None:
    """Run ``work`` for all clients at the same time; raises what one of them raised."""
    with ThreadPoolExecutor(len(clients)) as pool:
        for running in [pool.submit(work, client) for client in clients]:
            running.result(60)


def read_then_write(client: KazooClient) -> None:
    """Add one to a counter without a version check: two that overlap count once."""
    value = int(client.get("/counter")[0])
    client.get_children("/")  # time for another to read the same value
    client.set("/counter", b"%d" % (value + 1))


def test_a_lock_separates_the_updates_of_three_clients(clients: list[KazooClient]) -> None:
    """Each reads and writes a counter in two steps, ten times under the lock: no update is lost."""
    clients[0].create("/counter", b"0")

    def contend(client: KazooClient) -> None:
        for _ in range(10):
            with client.Lock("/lock", str(client.client_id)):
                read_then_write(client)

    run_each(clients, contend)
    assert clients[0].get("/counter")[0] == b"30"


def test_an_election_passes_to_the_next_client_when_the_leader_leaves(clients: list[KazooClient]) -> None:
    """Each leads once; while it does, it alone changes the counter."""
    clients[0].create("/counter", b"0")
    led: list[KazooClient] = []

    def lead(client: KazooClient) -> None:
        for _ in range(10):
            read_then_write(client)
        led.append(client)

    run_each(clients, lambda client: client.Election("/election", str(client.client_id)).run(lead, client))
    assert {id(client) for client in led} == {id(client) for client in clients}
    assert len(led) == 3
    assert clients[0].get("/counter")[0] == b"30"


def test_a_double_barrier_lets_three_in_and_out_together(clients: list[KazooClient]) -> None:
    """The first enters when the last has arrived, and leaves when the last has finished."""
    come: list[KazooClient] = []
    done: list[KazooClient] = []
    seen: list[tuple[int, int]] = []

    def pass_through(client: KazooClient) -> None:
        barrier = client.DoubleBarrier("/barrier", 3)
        come.append(client)
        barrier.enter()
        all_that_came = len(come)
        done.append(client)
        barrier.leave()
        seen.append((all_that_came, len(done)))

    run_each(clients, pass_through)
    assert seen == [(3, 3)] * 3


def test_counter_party_queues_and_semaphore_work_across_clients(clients: list[KazooClient]) -> None:
    """The other recipes, as their documentation uses them."""
    for client in clients:
        counter = client.Counter("/counter")
        for _ in range(10):
            counter += 1
    assert clients[0].Counter("/counter").value == 30

    for number, client in enumerate(clients):
        client.Party("/party", f"member-{number}").join()
    assert set(clients[0].Party("/party")) == {"member-0", "member-1", "member-2"}

    queue = clients[0].Queue("/queue")
    for number in range(5):
        queue.put(b"%d" % number)
    other = clients[1].Queue("/queue")
    assert [other.get() for _ in range(5)] == [b"0", b"1", b"2", b"3", b"4"]

    locking = clients[0].LockingQueue("/locking")
    locking.put_all([b"x", b"y"])
    taker = clients[2].LockingQueue("/locking")
    assert taker.get(60) == b"x"
    assert taker.consume()

    semaphore = clients[0].Semaphore("/semaphore", max_leases=1)
    assert semaphore.acquire(timeout=60)
    assert not clients[1].Semaphore("/semaphore", max_leases=1).acquire(blocking=False)
    semaphore.release()


def test_watchers_follow_every_change(clients: list[KazooClient]) -> None:
    """DataWatch and ChildrenWatch see the last state."""
    data: list[bytes | None] = []
    children: list[list[str]] = []
    clients[0].create("/w", b"0")
    clients[1].DataWatch("/w", lambda value, _stat: data.append(value))
    clients[1].ChildrenWatch("/w", lambda names: children.append(sorted(names)))
    for number in range(20):
        clients[0].set("/w", b"%d" % number)
        clients[0].create(f"/w/{number:02d}")
    eventually(lambda: data[-1] == b"19" and len(children[-1]) == 20, what="the last state")


def test_a_session_and_its_watches_outlive_a_killed_server(
    server: CoordinationProcess, clients: list[KazooClient]
) -> None:
    """kazoo attaches to the same session; its ephemeral is there; a DataWatch goes on."""
    client = clients[0]
    states: list[str] = []
    client.add_listener(states.append)
    session_id = client.client_id[0]
    client.create("/mine", b"", ephemeral=True)
    client.create("/watched", b"")
    seen: list[bytes | None] = []
    client.DataWatch("/watched", lambda data, _stat: seen.append(data))
    server.kill()
    eventually(lambda: KazooState.SUSPENDED in states)
    server.start()
    eventually(lambda: states[-1] == KazooState.CONNECTED)
    assert KazooState.LOST not in states
    assert client.client_id[0] == session_id
    assert client.exists("/mine").ephemeralOwner == session_id
    eventually(lambda: clients[1].connected)
    clients[1].set("/watched", b"new")
    eventually(lambda: seen[-1] == b"new")


def test_a_client_that_is_away_for_too_long_loses_its_session(
    server: CoordinationProcess, clients: list[KazooClient]
) -> None:
    """Its ephemerals go, watches of others fire, and the server refuses its old session."""
    lost = RawClient(server.port, timeout_ms=1000)
    lost.call(OpCode.CREATE, CreateRequest("/fleeting", b"", list(OPEN_ACL), 1))
    gone = threading.Event()
    clients[0].exists("/fleeting", watch=lambda _event: gone.set())
    lost.close()
    assert gone.wait(60)
    assert clients[0].exists("/fleeting") is None
    again = RawClient(server.port, session_id=lost.response.session_id, password=lost.response.password or b"")
    assert again.response.timeout_ms == 0
