"""Thousands of sessions and nodes at once: the work for each stays the same, and goes in steps
between which others are served.

Work is counted in calls, of C functions too, because times depend on the machine.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.base.clock import SystemClock
from barnabas.base.tasks import Runner
from barnabas.coordination.core.changes import Event, NodeDeletions, events_of
from barnabas.coordination.core.commit_pieces import CommitPieces, next_piece
from barnabas.coordination.core.operations import TRANSACTIONS
from barnabas.coordination.core.operations.base import Stamp
from barnabas.coordination.core.staged import Staged
from barnabas.coordination.core.tree import Tree
from barnabas.coordination.core.znode import DataNode
from barnabas.coordination.server.server import CoordinationServer
from barnabas.coordination.server.settings import parse_settings
from barnabas.wire.jute.codec import decode
from barnabas.wire.jute.errors import ErrorCode, KeeperError
from barnabas.wire.jute.frames import decode_multi_response, decode_reply_header, encode_multi_request, encode_request
from barnabas.wire.jute.opcodes import OpCode
from barnabas.wire.jute.records import (
    OPEN_ACL,
    CreateRequest,
    CreateTTLRequest,
    DeleteRequest,
    ErrorResponse,
    ExistsRequest,
    GetAllChildrenNumberRequest,
    GetChildren2Request,
    GetChildren2Response,
    GetChildrenRequest,
    GetChildrenResponse,
    SetDataRequest,
    WatcherEvent,
)
from barnabas.wire.jute.transactions import CloseSessionTxn, CreateTxn, DeleteTxn
from support.broker import ManualClock, ManualTimers
from support.coordination import RawClient
from support.coordination_processor import Client, Harness
from support.slicing import thread_at_once
from support.work import work_of

OPEN = list(OPEN_ACL)
MULTIS = 4
EPHEMERAL, CONTAINER = 1, 4


def create(client: Client, path: str, mode: int = 0) -> None:
    opcode = OpCode.CREATE_CONTAINER if mode == CONTAINER else OpCode.CREATE
    assert client.call(opcode, CreateRequest(path, b"", OPEN, mode))[0] == 0


# Ends of sessions


def work_of_expirations(count: int) -> int:
    """The work for this many sessions, each with an ephemeral, that expire together."""
    harness = Harness()
    for number in range(count):
        create(harness.connect(), f"/e{number}", EPHEMERAL)
    harness.now_ms += 100_000
    harness.processor.expirations.tick(harness.now_ms)
    work = work_of(harness.end_due)
    harness.sync()
    assert not harness.processor.tracker.sessions
    assert not harness.processor.database.tree.ephemerals
    return work


def test_ends_of_many_sessions_take_work_in_proportion_to_their_number() -> None:
    """Four times as many take four times the work, though none is committed before
    the last one is proposed."""
    small = work_of_expirations(50)
    assert work_of_expirations(200) < 4.2 * small


def test_sessions_that_expire_together_end_one_at_a_time_and_are_closing_at_once() -> None:
    """Their clients can neither write nor come back while others are served between two steps;
    no step ends two of them."""
    harness = Harness()
    silent = [harness.connect() for _ in range(3)]
    for number, client in enumerate(silent):
        create(client, f"/e{number}", EPHEMERAL)
    harness.now_ms += 15_000
    lively, processor = harness.connect(), harness.processor
    processor.expirations.tick(harness.now_ms)
    ends = []
    while processor.propose_due(harness.now_ms, harness.wall_ms):
        ends.append(processor.outstanding)
        silent[2].send(OpCode.CREATE, CreateRequest("/late", b"", OPEN, 0))
        harness.sync()
        create(lively, f"/between{len(ends)}")
    assert ends == [1, 1]
    harness.sync()
    assert [err for _, err, _ in silent[2].take()][-2:] == [ErrorCode.SESSION_EXPIRED] * 2
    assert set(processor.database.tree.children["/"]) == {"between1", "between2", "zookeeper"}
    assert all(client.recorder.is_closed for client in silent)
    assert harness.replayed().tree.digest == processor.database.tree.digest


PATHS = ["/a", "/b", "/c"]


@st.composite
def ephemeral_writes(draw: st.DrawFn) -> tuple[int, object]:
    path, kind = draw(st.sampled_from(PATHS)), draw(st.integers(0, 3))
    if kind < 2:
        return OpCode.CREATE, CreateRequest(path, b"", OPEN, kind)
    if kind == 2:
        return OpCode.DELETE, DeleteRequest(path, -1)
    return OpCode.SET_DATA, SetDataRequest(path, b"x", -1)


def plain_ephemerals(staged: Staged, paths: list[str], session_id: int) -> set[str]:
    nodes = {path: staged.get(path) for path in paths}
    return {path for path, node in nodes.items() if node is not None and node.owner == session_id}


def indexes_of(tree: Tree) -> tuple[dict[str, set[str]], dict[int, set[str]], int, int]:
    """The names below each path, the paths of each owner, the bytes, and the digest."""
    names = {path: set(found) for path, found in tree.children.items()}
    owned = {owner: set(found) for owner, found in tree.ephemerals.items()}
    return names, owned, tree.data_bytes, tree.digest_sum


def plain_indexes(tree: Tree) -> tuple[dict[str, set[str]], dict[int, set[str]], int, int]:
    """`indexes_of`, by a walk over all nodes."""
    names: dict[str, set[str]] = {}
    owned: dict[int, set[str]] = {}
    for path, node in tree.nodes.items():
        if path != "/":
            names.setdefault(path[: path.rfind("/")] or "/", set()).add(path[path.rfind("/") + 1 :])
        if node.owner:
            owned.setdefault(node.owner, set()).add(path)
    assert {path: node.num_children for path, node in tree.nodes.items() if node.num_children} == {
        path: len(found) for path, found in names.items()
    }
    data_bytes = sum(len(path) + len(node.data or b"") for path, node in tree.nodes.items())
    return names, owned, data_bytes, sum(node.compute_digest(path) for path, node in tree.nodes.items())


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.integers(0, 1), ephemeral_writes()),
            st.tuples(st.integers(0, 1), st.lists(ephemeral_writes(), min_size=2, max_size=4)),
            st.integers(1, 3),  # commit as many
        ),
        max_size=25,
    )
)
def test_staged_ephemerals_are_those_of_a_walk_over_all_nodes(steps: list[object]) -> None:
    """Whatever two sessions create, change and delete in the same places, committed in any groups;
    also in multis that fail."""
    harness = Harness()
    clients, processor = [harness.connect() for _ in range(2)], harness.processor
    staged = processor._prep.staged
    for step in steps:
        if isinstance(step, int):
            harness.sync(min(step, processor.outstanding))
        else:
            number, request = step
            if isinstance(request, list):
                clients[number].send(OpCode.MULTI, request)
            else:
                clients[number].send(*request)
        for client in clients:
            session_id = client.connection.session_id
            assert staged.ephemerals_of(session_id).keys() == plain_ephemerals(staged, PATHS, session_id)
    harness.sync()
    assert not staged.paths
    assert not staged._owned, "nothing is kept of what is committed"
    assert indexes_of(processor.database.tree) == plain_indexes(processor.database.tree)


def work_of_closing(count: int) -> int:
    """The work to decide and commit the end of a session with this many ephemerals,
    below one parent.

    It changes the parent once."""
    harness = Harness()
    client, processor = harness.connect(), harness.processor
    create(client, "/e")
    for number in range(count):
        client.send(OpCode.CREATE, CreateRequest(f"/e/{number}", b"", OPEN, EPHEMERAL))
    harness.sync()
    before = processor.metrics.changes
    work = work_of(lambda: (client.send(OpCode.CLOSE_SESSION), harness.sync()))
    assert processor.metrics.changes == before + count + 1
    assert "/e" not in processor.database.tree.children
    return work


def test_the_end_of_a_session_takes_work_in_proportion_to_its_ephemerals() -> None:
    """Five times as many take at most five times the work; also where their names are
    in the order of creation."""
    assert work_of_closing(5000) < 5.1 * work_of_closing(1000)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.sampled_from(["/p/a", "/p/b", "/q/a", "/top"]), unique=True),
    st.lists(st.sampled_from(["/p/a", "/p/b", "/q/a", "/top", "/none/a"]), unique=True),
    st.integers(5, 50),
)
def test_the_end_of_a_session_leaves_what_deletions_one_by_one_leave(
    there: list[str], listed: list[str], zxid: int
) -> None:
    """Nodes, digest and events, also over a fuzzy snapshot: where nodes of the list are gone,
    and others are not in it."""
    results = []
    for close in (close_at_once, close_one_by_one):
        tree = Tree()
        for path in ("/p", "/q"):
            play(tree, Stamp(0, 10, 1), OpCode.CREATE, CreateTxn(path, b"", OPEN, False, -1))
        for path in there:
            play(tree, Stamp(7, 20, 1), OpCode.CREATE, CreateTxn(path, b"", OPEN, True, -1))
        events = close(tree, Stamp(7, zxid, 2), CloseSessionTxn(listed))
        each = [one for event in events for one in all_of(event)]
        results.append(
            (
                {path: repr(node) for path, node in tree.nodes.items()},
                (tree.digest, tree.data_bytes),
                (tree.children, tree.ephemerals),
                each,
            )
        )
    assert results[0] == results[1]


def all_of(event: Event | NodeDeletions) -> list[Event]:
    return [event] if isinstance(event, Event) else list(event.events(lambda _path, _parent: True))


def play(tree: Tree, stamp: Stamp, txn_type: OpCode, txn: object) -> list[Event | NodeDeletions]:
    """Apply a transaction; its events."""
    found = TRANSACTIONS[txn_type]
    change = found.replay(tree, stamp, found.values(txn))
    found.apply(tree, change)
    return list(events_of(change))


def close_at_once(tree: Tree, stamp: Stamp, txn: CloseSessionTxn) -> list[Event | NodeDeletions]:
    return play(tree, stamp, OpCode.CLOSE_SESSION, txn)


def close_one_by_one(tree: Tree, stamp: Stamp, txn: CloseSessionTxn) -> list[Event | NodeDeletions]:
    """As ZooKeeper's `DataTree.killSession`."""
    events: list[Event | NodeDeletions] = []
    rest = sorted(tree.ephemerals_of(stamp.session_id).keys() - txn.paths_to_delete)
    for path in [*txn.paths_to_delete, *rest]:
        with contextlib.suppress(KeeperError):
            events += play(tree, stamp, OpCode.DELETE, DeleteTxn(path))
    return events


# Containers


def test_due_nodes_are_proposed_one_at_a_time_up_to_the_limit_the_oldest_first() -> None:
    """A sweep that is under way is not begun again, and leaves a container that is
    in use meanwhile."""
    harness = Harness(ttl_nodes=True)
    client, processor = harness.connect(), harness.processor
    for name in "zyx":
        create(client, f"/{name}", CONTAINER)
        create(client, f"/{name}/child")
        client.call(OpCode.DELETE, DeleteRequest(f"/{name}/child", -1))
    assert client.call(OpCode.CREATE_TTL, CreateTTLRequest("/ttl", b"", OPEN, 5, 500))[0] == 0
    harness.wall_ms += 501
    processor.expirations.sweep(harness.wall_ms, 3)
    assert processor.propose_due(harness.now_ms, harness.wall_ms)
    assert processor.outstanding == 1
    create(client, "/y/again")
    processor.expirations.sweep(harness.wall_ms, 1000)
    harness.end_due()
    harness.sync()
    assert set(processor.database.tree.children["/"]) == {"y", "zookeeper"}
    assert not processor.expirations.has_more


def test_many_nodes_are_looked_at_in_steps() -> None:
    """A step looks at a limited number of nodes that stay, and what a sweep has not reached yet
    may be deleted meanwhile."""
    harness = Harness()
    client, processor = harness.connect(), harness.processor
    for number in range(350):
        create(client, f"/c{number}", CONTAINER)
    processor.expirations.sweep(harness.wall_ms, 1000)
    steps = 1
    while processor.propose_due(harness.now_ms, harness.wall_ms):
        client.call(OpCode.DELETE, DeleteRequest(f"/c{349 - steps}", -1))
        steps += 1
    assert steps == 4
    assert len(processor.database.tree.containers) == 347


# Decisions


def test_frames_that_came_together_are_left_behind_many_changes() -> None:
    """So the connection sees whether other clients have waited for long; small
    writes are taken together."""
    harness = Harness()
    client, processor = harness.connect(), harness.processor
    small = [encode_request(number, OpCode.CREATE, CreateRequest(f"/n{number}", b"", OPEN, 1)) for number in range(100)]
    large = [encode_multi_request(number, many_creates(f"m{number}", 300), OpCode.MULTI) for number in range(100, 103)]
    frames = [bytes(frame)[4:] for frame in small + large]
    taken = [processor.receive_frames(client.connection, frames, harness.now_ms, harness.wall_ms)]
    taken.append(processor.receive_frames(client.connection, frames[taken[0] :], harness.now_ms, harness.wall_ms))
    assert taken == [101, 1]


# Commits


def many_creates(name: str, count: int = 1000) -> list[tuple[int, object]]:
    return [(OpCode.CREATE, CreateRequest(f"/{name}-{number}", b"", OPEN, 0)) for number in range(count)]


def test_a_piece_of_commits_is_limited_by_changes_and_has_at_least_one_transaction() -> None:
    """Of small writes 100, also if their data is large; of multis and ends of sessions
    fewer, the larger they are."""
    harness = Harness()
    client, processor = harness.connect(), harness.processor
    for number in range(120):
        client.send(OpCode.CREATE, CreateRequest(f"/n{number}", b"x" * 1000, OPEN, 1))
    small = list(processor.unlogged)
    harness.sync()
    for number in range(10):
        client.send(OpCode.MULTI, many_creates(f"m{number}", 20))
    medium = list(processor.unlogged)
    harness.sync()
    for number in range(2):
        client.send(OpCode.MULTI, many_creates(f"large{number}"))
    client.send(OpCode.CLOSE_SESSION)
    large = list(processor.unlogged)
    assert next_piece(small) == 100
    assert 2 <= next_piece(medium) <= 5
    assert [next_piece(large[from_:]) for from_ in range(4)] == [1, 1, 1, 0]


def test_a_turn_of_commits_ends_with_its_time() -> None:
    """Its first piece is committed in any case."""
    harness = Harness()
    client, processor = harness.connect(), harness.processor
    create(client, "/n")
    for _ in range(900):
        client.send(OpCode.SET_DATA, SetDataRequest("/n", b"x", -1))
    small = list(processor.unlogged)
    harness.sync()
    client.send(OpCode.MULTI, many_creates("m"))
    large = list(processor.unlogged)

    class Slices(ManualClock):
        """Slices of a number of pieces."""

        pieces = 1

        def time_slice(self) -> Callable[[], bool]:
            over = iter([False] * (self.pieces - 1) + [True] * 100)
            return lambda: next(over)

    def turn(pieces: int, transactions: list[bytes | bytearray]) -> list[int]:
        clock, sizes = Slices(), []
        clock.pieces = pieces
        timers = ManualTimers(clock)
        commits = CommitPieces(sizes.append, Runner(clock, timers, thread_at_once))
        commits.add(transactions)
        in_first_turn = list(sizes)
        while timers.pending:
            timers.advance(0)
        assert sum(sizes) == len(transactions)
        return in_first_turn

    assert turn(3, small) == [100] * 3
    assert turn(100, small) == [100] * 9
    assert turn(1, small[:20] + large) == [20]
    assert turn(2, small[:20] + large) == [20, 1]
    assert turn(1, large * 3) == [1]
    ends = []
    for _ in range(250):
        one = harness.connect()
        one.send(OpCode.CLOSE_SESSION)
        ends += processor.unlogged
        harness.sync()
    assert turn(2, ends) == [100, 100], "also ends of sessions that had nothing"


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 1), ephemeral_writes(), st.booleans()), max_size=25),
    st.lists(st.integers(1, 4), max_size=25),
)
def test_commits_in_pieces_give_each_client_what_they_give_in_one(
    requests: list[tuple[int, tuple[int, object], bool]], pieces: list[int]
) -> None:
    """The same answers and events in the same order, with reads behind writes."""
    seen = []
    for sizes in ([], pieces):
        harness = Harness()
        clients = [harness.connect() for _ in range(2)]
        for number, request, reads in requests:
            clients[1 - number].send(OpCode.EXISTS, ExistsRequest("/a", True))
            clients[number].send(*request)
            if reads:
                clients[number].send(OpCode.EXISTS, ExistsRequest("/b", True))
        clients[0].send(OpCode.CLOSE_SESSION)
        for size in sizes:
            harness.sync(min(size, harness.processor.outstanding))
        harness.sync()
        seen.append([client.recorder.frames for client in clients])
    assert seen[0] == seen[1]


class GatedExecutor(ThreadPoolExecutor):
    """Runs work while its gate is open."""

    def __init__(self) -> None:
        super().__init__(2)
        self.gate = threading.Event()
        self.gate.set()

    def submit(self, work: Callable[..., object], /, *arguments: object) -> object:
        def wait_and_work() -> object:
            assert self.gate.wait(60)
            return work(*arguments)

        return super().submit(wait_and_work)


class OnePieceATurn(SystemClock):
    """Slices that are over at once."""

    def time_slice(self) -> Callable[[], bool]:
        return lambda: True


def commit_multis(directory: Path, stop_at: int = -1) -> tuple[list[int], list[int]]:
    """Have a sync cover several large multis.

    The numbers of writes under way that other work on the loop has seen, and the errors in the
    answers; when this many writes are under way the server is stopped."""
    texts = {"dataDir": str(directory), "clientPort": "0", "clientPortAddress": "127.0.0.1"}
    seen: list[int] = []

    def use(port: int, executor: GatedExecutor) -> list[int]:
        client = RawClient(port)
        executor.gate.clear()
        for number in range(MULTIS):
            client.send(OpCode.MULTI, many_creates(f"m{number}"))
        errors = [client.receive()[2] for _ in range(MULTIS)]
        client.close()
        return errors

    async def run() -> list[int]:
        executor = GatedExecutor()
        server = CoordinationServer(parse_settings(texts), executor=executor, clock=OnePieceATurn())
        await server.start()
        loop, processor = asyncio.get_running_loop(), server.processor
        is_over = False
        stops: list[asyncio.Task[None]] = []

        def look() -> None:
            seen.append(processor.outstanding)
            if seen[-1] == MULTIS:
                executor.gate.set()
            if seen[-1] == stop_at < seen[-2]:
                stops.append(loop.create_task(server.close()))
            if not is_over:
                loop.call_soon(look)

        look()
        try:
            return await asyncio.to_thread(use, server.port, executor)
        finally:
            is_over = True
            executor.gate.set()
            await asyncio.gather(server.close(), *stops)
            executor.shutdown()

    return seen, asyncio.run(run())


def test_others_have_their_turn_between_large_transactions_of_one_sync(tmp_path: Path) -> None:
    """All that a sync covers is committed in order. Slices are as short as they can be."""
    seen, errors = commit_multis(tmp_path)
    assert errors == [0] * MULTIS
    assert max(seen) == MULTIS
    assert all(after >= before - 1 for before, after in pairwise(seen)), "no two in one turn"


def test_a_stop_commits_and_answers_all_that_is_synced(tmp_path: Path) -> None:
    """Also what would have had its turn later."""
    seen, errors = commit_multis(tmp_path, stop_at=2)
    assert errors == [0] * MULTIS
    assert 2 in seen


# Reads


def tree_of(parents: int, leaves: int) -> Harness:
    """Nodes below /a, each with leaves."""
    harness = Harness()
    tree = harness.processor.database.tree
    tree.put("/a", DataNode.new("/a", b"", OPEN_ACL, 0, 1, 1))
    tree.put("/ab", DataNode.new("/ab", b"", OPEN_ACL, 0, 1, 1))
    tree.put("/ab/c", DataNode.new("/ab/c", b"", OPEN_ACL, 0, 1, 1))
    for number in range(parents):
        for path in (f"/a/{number}", *(f"/a/{number}/{leaf}" for leaf in range(leaves))):
            tree.put(path, DataNode.new(path, b"", OPEN_ACL, 0, 1, 1))
    return harness


def test_all_children_are_counted_by_their_parents() -> None:
    """The work is the same for a hundred times as many leaves, and what is not below
    the path does not count."""
    work = []
    for leaves in (10, 1000):
        client = tree_of(3, leaves).connect()
        xid = client.send(OpCode.GET_ALL_CHILDREN_NUMBER, GetAllChildrenNumberRequest("/a"))
        assert client.take() == [(xid, 0, (3 + 3 * leaves).to_bytes(4, "big"))]
        work.append(
            work_of(
                lambda client=client: client.send(OpCode.GET_ALL_CHILDREN_NUMBER, GetAllChildrenNumberRequest("/a"))
            )
        )
    assert work[1] <= work[0]


def test_others_are_served_while_the_children_of_many_nodes_are_counted() -> None:
    """What comes behind the count on its connection waits for it; a node that is not
    there is refused at once."""
    harness = tree_of(6000, 1)
    client, other = harness.connect(), harness.connect()
    xid = client.send(OpCode.GET_ALL_CHILDREN_NUMBER, GetAllChildrenNumberRequest("/a"))
    assert client.recorder.holds == 1
    create(other, "/between")
    assert not client.take()
    assert harness.run_slices() == 1
    assert client.take() == [(xid, 0, (12_000).to_bytes(4, "big"))]
    assert client.recorder.holds == 0
    assert client.call(OpCode.GET_ALL_CHILDREN_NUMBER, GetAllChildrenNumberRequest("/none"))[0] == ErrorCode.NO_NODE
    assert client.recorder.holds == 0
    assert client.call(OpCode.GET_ALL_CHILDREN_NUMBER, GetAllChildrenNumberRequest("/"))[1] == (12_007).to_bytes(
        4, "big"
    )


def with_children(count: int) -> Harness:
    """A node /c with this many children."""
    harness = Harness()
    tree = harness.processor.database.tree
    tree.put("/c", DataNode.new("/c", b"", OPEN_ACL, 0, 1, 1))
    for number in range(count):
        tree.put(f"/c/n{number}", DataNode.new(f"/c/n{number}", b"", OPEN_ACL, 0, 1, 1))
    tree.nodes["/c"].num_children = count
    return harness


MANY_CHILDREN = 12_000


@pytest.mark.parametrize("opcode", [OpCode.GET_CHILDREN, OpCode.GET_CHILDREN2, OpCode.MULTI_READ])
def test_very_many_children_are_listed_in_slices_as_few_are_at_once(opcode: OpCode) -> None:
    """Others are served in between; the answer is of the moment of the request, with its zxid, and
    holds what comes behind it."""
    harness = with_children(MANY_CHILDREN)
    client, other = harness.connect(), harness.connect()
    zxid = harness.processor.database.last_zxid
    several = [(OpCode.GET_CHILDREN, GetChildrenRequest(path, True)) for path in ("/zookeeper", "/c", "/none")]
    bodies: dict[OpCode, object] = {
        OpCode.GET_CHILDREN: GetChildrenRequest("/c", True),
        OpCode.GET_CHILDREN2: GetChildren2Request("/c", True),
        OpCode.MULTI_READ: several,
    }
    client.send(opcode, bodies[opcode])
    assert client.recorder.frames == []
    assert client.recorder.holds == 1
    create(other, "/c/later")
    assert client.recorder.frames == [], "its library would not know the watch yet"
    assert harness.run_slices() >= 2
    assert client.recorder.holds == 0
    reply, event = client.recorder.frames
    assert decode_reply_header(reply) == (1, zxid, 0)
    assert decode(WatcherEvent, event, 16).path == "/c"
    names = [f"n{number}" for number in range(MANY_CHILDREN)]
    if opcode is OpCode.GET_CHILDREN:
        assert decode(GetChildrenResponse, reply, 16).children == names
    elif opcode is OpCode.GET_CHILDREN2:
        answer = decode(GetChildren2Response, reply, 16)
        assert (answer.children, answer.stat.num_children) == (names, MANY_CHILDREN)
    else:
        system, found, missing = decode_multi_response(reply)
        assert system[1].children == ["quota", "config"]
        assert found[1].children == names
        assert missing == (OpCode.ERROR, ErrorResponse(ErrorCode.NO_NODE))
    client.take()
    assert client.call(OpCode.EXISTS, ExistsRequest("/c/later", False))[0] == 0


def test_replies_keep_their_order_behind_several_long_answers() -> None:
    """Reads that waited for a write, short and long, and the end of the session,
    which all came together."""
    harness = with_children(MANY_CHILDREN)
    client = harness.connect()
    long = GetChildrenRequest("/c", False)
    requests = [
        (OpCode.SET_DATA, SetDataRequest("/c", b"x", -1)),
        (OpCode.GET_CHILDREN, long),
        (OpCode.EXISTS, ExistsRequest("/c", False)),
        (OpCode.GET_CHILDREN, long),
        (OpCode.SET_DATA, SetDataRequest("/c", b"y", -1)),
        (OpCode.CLOSE_SESSION, None),
    ]
    xids = [client.send(*request) for request in requests]
    harness.sync(1)
    assert [xid for xid, _, _ in client.take()] == xids[:1]
    harness.sync()
    assert client.take() == []
    assert not client.recorder.is_closed
    harness.run_slices()
    assert [xid for xid, _, _ in client.take()] == xids[1:]
    assert client.recorder.is_closed
    assert client.recorder.holds == 0


def test_a_long_answer_to_a_client_that_is_gone_is_given_up() -> None:
    """Nothing is sent, and others get theirs."""
    harness = with_children(MANY_CHILDREN)
    client, other = harness.connect(), harness.connect()
    for each in (client, other):
        each.send(OpCode.GET_CHILDREN, GetChildrenRequest("/c", False))
    harness.processor.disconnected(client.connection)
    harness.run_slices()
    assert client.take() == []
    assert [err for _, err, _ in other.take()] == [0]
