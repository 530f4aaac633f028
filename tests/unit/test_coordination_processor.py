"""The request path without files and sockets: order, durability, sessions, watches."""

import random
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.coordination.core.connections import ServerConnection
from barnabas.coordination.core.database import Database
from barnabas.coordination.core.operations import delete, multi
from barnabas.coordination.core.operations.base import Staging, Stamp
from barnabas.coordination.core.sessions import session_password
from barnabas.wire.jute.codec import decode, encode
from barnabas.wire.jute.errors import ErrorCode, KeeperError
from barnabas.wire.jute.frames import (
    decode_connect_response,
    decode_multi_response,
    encode_connect_request,
    encode_multi_request,
    encode_request,
)
from barnabas.wire.jute.opcodes import CreateMode, EventType, OpCode, Xid
from barnabas.wire.jute.records import (
    ACL,
    OPEN_ACL,
    AddWatchRequest,
    AuthPacket,
    CheckVersionRequest,
    ConnectRequest,
    CreateRequest,
    CreateResponse,
    CreateTTLRequest,
    DeleteRequest,
    ExistsRequest,
    GetACLRequest,
    GetACLResponse,
    GetChildrenRequest,
    GetDataRequest,
    GetDataResponse,
    Id,
    SetDataRequest,
    SetWatches,
    WatcherEvent,
)
from barnabas.wire.jute.transactions import ErrorTxn, decode_transaction
from support.coordination_processor import Client, Harness, Recorder

OPEN = list(OPEN_ACL)


@pytest.fixture
def harness() -> Harness:
    return Harness()


def state(database: Database) -> dict[str, str]:
    return {path: repr(node) for path, node in database.tree.nodes.items()}


# Durability and order


def test_a_write_is_neither_visible_nor_answered_before_it_is_logged(harness: Harness) -> None:
    """Another session's read gets the old state until the commit."""
    writer, reader = harness.connect(), harness.connect()
    writer.send(OpCode.CREATE, CreateRequest("/a", b"x", OPEN, 0))
    assert writer.take() == []
    reader.send(OpCode.GET_DATA, GetDataRequest("/a", False))
    assert [err for _, err, _ in reader.take()] == [ErrorCode.NO_NODE]
    harness.sync()
    assert [err for _, err, _ in writer.take()] == [0]
    assert reader.call(OpCode.GET_DATA, GetDataRequest("/a", False))[0] == 0


def test_reads_wait_for_earlier_writes_of_their_session(harness: Harness) -> None:
    """Replies come in the order of the requests, and each read sees the writes
    before it and none after it."""
    client = harness.connect()
    client.call(OpCode.CREATE, CreateRequest("/a", b"0", OPEN, 0))
    for number in range(1, 4):
        client.send(OpCode.SET_DATA, SetDataRequest("/a", b"%d" % number, -1))
        client.send(OpCode.GET_DATA, GetDataRequest("/a", False))
    client.send(OpCode.PING)
    assert client.take() == []
    for number in range(1, 4):
        harness.sync(1)
        replies = client.take()
        assert [xid for xid, _, _ in replies][:2] == [2 * number, 2 * number + 1]
        assert decode(GetDataResponse, replies[1][2]).data == b"%d" % number
    assert replies[-1][0] == client.xid


def test_writes_are_decided_on_earlier_uncommitted_writes(harness: Harness) -> None:
    """Versions, existence and emptiness count, even if nothing is committed yet."""
    client = harness.connect()
    client.send(OpCode.CREATE, CreateRequest("/a", b"", OPEN, 0))
    client.send(OpCode.CREATE, CreateRequest("/a/b", b"", OPEN, 0))
    client.send(OpCode.DELETE, DeleteRequest("/a", -1))
    client.send(OpCode.SET_DATA, SetDataRequest("/a", b"", 0))
    client.send(OpCode.SET_DATA, SetDataRequest("/a", b"", 0))
    client.send(OpCode.DELETE, DeleteRequest("/a/b", 0))
    client.send(OpCode.DELETE, DeleteRequest("/a", 1))
    harness.sync()
    errors = [err for _, err, _ in client.take()]
    assert errors == [0, 0, ErrorCode.NOT_EMPTY, 0, ErrorCode.BAD_VERSION, 0, 0]


def test_sequence_numbers_are_never_reused(harness: Harness) -> None:
    """Not after a deletion, not within one batch."""
    client = harness.connect()
    client.call(OpCode.CREATE, CreateRequest("/q", b"", OPEN, 0))
    names = []
    for _ in range(3):
        for _ in range(3):
            client.send(OpCode.CREATE, CreateRequest("/q/n-", b"", OPEN, 2))
        harness.sync()
        made = [decode(CreateResponse, body).path for _, _, body in client.take()]
        names += made
        for path in made:
            client.call(OpCode.DELETE, DeleteRequest(path, -1))
    assert names == [f"/q/n-{number:010d}" for number in range(9)]


def test_a_multi_is_applied_as_a_whole_or_not_at_all(harness: Harness) -> None:
    """A failing part undoes the parts before it, also for later decisions in the same batch."""
    client = harness.connect()
    client.send(
        OpCode.MULTI,
        [
            (OpCode.CREATE, CreateRequest("/a", b"", OPEN, 0)),
            (OpCode.CREATE, CreateRequest("/a/b", b"", OPEN, 0)),
            (OpCode.CHECK, CheckVersionRequest("/a", 5)),
            (OpCode.DELETE, DeleteRequest("/a/b", -1)),
        ],
    )
    client.send(OpCode.CREATE, CreateRequest("/a", b"", OPEN, 0))
    client.send(
        OpCode.MULTI,
        [(OpCode.SET_DATA, SetDataRequest("/a", b"new", 0)), (OpCode.CHECK, CheckVersionRequest("/a", 1))],
    )
    harness.sync()
    failed, created, passed = client.take()
    codes = [record.err for _, record in decode_multi_response(failed[2], 0)]
    assert codes == [0, 0, ErrorCode.BAD_VERSION, ErrorCode.RUNTIME_INCONSISTENCY]
    assert (failed[1], created[1], passed[1]) == (0, 0, 0)
    assert [kind for kind, _ in decode_multi_response(passed[2], 0)] == [OpCode.SET_DATA, OpCode.CHECK]
    assert state(harness.replayed()) == state(harness.processor.database)


NAMES = ["/a", "/b", "/a/x", "/a/y", "/b/x", "/a/x/1"]


@st.composite
def writes(draw: st.DrawFn) -> tuple[int, object]:
    path = draw(st.sampled_from(NAMES))
    kind = draw(st.integers(0, 3))
    if kind < 2:
        return OpCode.CREATE, CreateRequest(path, draw(st.binary(max_size=3)), OPEN, draw(st.integers(0, 3)))
    if kind == 2:
        return OpCode.DELETE, DeleteRequest(path, draw(st.sampled_from([-1, 0, 1])))
    return OpCode.SET_DATA, SetDataRequest(path, draw(st.binary(max_size=3)), draw(st.sampled_from([-1, 0, 1])))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.one_of(
            writes(),
            st.lists(writes(), min_size=1, max_size=4).map(lambda parts: (OpCode.MULTI, parts)),
            st.integers(1, 5),  # commit as many
            st.just("close"),
        ),
        max_size=40,
    )
)
def test_any_grouping_of_commits_gives_the_tree_that_the_log_gives(steps: list[object]) -> None:
    """Staged changes that are committed in pieces equal a plain replay: nodes,
    digests, children, ephemerals."""
    harness = Harness()
    client = harness.connect()
    for step in steps:
        if isinstance(step, int):
            harness.sync(min(step, harness.processor.outstanding))
        elif step == "close":
            client.send(OpCode.CLOSE_SESSION)
            harness.sync()
            client = harness.connect()
        else:
            client.send(*step)
    harness.sync()
    live, replayed = harness.processor.database, harness.replayed()
    assert state(live) == state(replayed)
    assert live.tree.digest == replayed.tree.digest == sum_of_digests(live)
    assert replayed.digest_mismatches == 0, "every transaction's digest is the tree's after it"
    assert live.tree.children == replayed.tree.children
    assert live.tree.ephemerals == replayed.tree.ephemerals
    for path, node in live.tree.nodes.items():
        assert node.num_children == len(live.tree.children.get(path, ()))


def sum_of_digests(database: Database) -> int:
    total = sum(node.compute_digest(path) for path, node in database.tree.nodes.items()) % (1 << 64)
    return total - (1 << 64) if total >> 63 else total


# Watches


def test_a_watch_fires_once_and_before_the_reply_to_a_later_read(harness: Harness) -> None:
    """The event precedes every reply that shows the change."""
    watcher, writer = harness.connect(), harness.connect()
    writer.call(OpCode.CREATE, CreateRequest("/a", b"", OPEN, 0))
    watcher.call(OpCode.GET_DATA, GetDataRequest("/a", True))
    writer.call(OpCode.SET_DATA, SetDataRequest("/a", b"1", -1))
    writer.call(OpCode.SET_DATA, SetDataRequest("/a", b"2", -1))
    watcher.send(OpCode.GET_DATA, GetDataRequest("/a", False))
    assert [xid for xid, _, _ in watcher.take()] == [Xid.WATCHER_EVENT, 2]


def test_each_kind_of_event_comes_from_the_watches_of_its_operation_in_the_order_of_the_changes(
    harness: Harness,
) -> None:
    """exists, getData and getChildren set the watches; each of them fires once."""
    watcher, writer = harness.connect(), harness.connect()
    changes = [
        (OpCode.CREATE, CreateRequest("/a", b"", OPEN, 0)),
        (OpCode.SET_DATA, SetDataRequest("/a", b"1", -1)),
        (OpCode.CREATE, CreateRequest("/a/b", b"", OPEN, 0)),
        (OpCode.DELETE, DeleteRequest("/a/b", -1)),
        (OpCode.DELETE, DeleteRequest("/a", -1)),
    ]
    watcher.call(OpCode.EXISTS, ExistsRequest("/a", True))
    writer.call(*changes[0])
    assert watcher.events() == [(EventType.NODE_CREATED, "/a")]
    watcher.call(OpCode.GET_DATA, GetDataRequest("/a", True))
    watcher.call(OpCode.GET_CHILDREN, GetChildrenRequest("/a", True))
    for change in changes[1:]:
        writer.call(*change)
    assert watcher.events() == [
        (EventType.NODE_DATA_CHANGED, "/a"),
        (EventType.NODE_CHILDREN_CHANGED, "/a"),
    ]
    writer.call(*changes[0])
    watcher.call(OpCode.EXISTS, ExistsRequest("/a", True))
    watcher.call(OpCode.GET_CHILDREN, GetChildrenRequest("/a", True))
    writer.call(*changes[4])
    assert watcher.events() == [(EventType.NODE_DELETED, "/a")]


def test_the_writers_own_watch_fires_before_its_reply(harness: Harness) -> None:
    """The client that makes the change receives its event first."""
    client = harness.connect()
    client.call(OpCode.EXISTS, ExistsRequest("/a", True))
    client.send(OpCode.CREATE, CreateRequest("/a", b"", OPEN, 0))
    harness.sync()
    assert [xid for xid, _, _ in client.take()] == [Xid.WATCHER_EVENT, 2]


def test_a_deletion_notifies_a_watcher_once(harness: Harness) -> None:
    """Data, child and persistent watches on one node: one event."""
    client = harness.connect()
    client.call(OpCode.CREATE, CreateRequest("/a", b"", OPEN, 0))
    client.call(OpCode.GET_DATA, GetDataRequest("/a", True))
    client.call(OpCode.GET_CHILDREN, GetChildrenRequest("/a", True))
    client.call(OpCode.ADD_WATCH, AddWatchRequest("/a", 0))
    client.send(OpCode.DELETE, DeleteRequest("/a", -1))
    harness.sync()
    assert client.events() == [(EventType.NODE_DELETED, "/a")]


def test_a_recursive_watch_fires_for_all_nodes_below_and_stays(harness: Harness) -> None:
    """Creations, data and deletions, without events about children."""
    watcher, writer = harness.connect(), harness.connect()
    watcher.call(OpCode.ADD_WATCH, AddWatchRequest("/", 1))
    for request in (("/a", 0), ("/a/b", 0)):
        writer.call(OpCode.CREATE, CreateRequest(request[0], b"", OPEN, 0))
    writer.call(OpCode.SET_DATA, SetDataRequest("/a/b", b"x", -1))
    writer.call(OpCode.DELETE, DeleteRequest("/a/b", -1))
    assert watcher.events() == [
        (EventType.NODE_CREATED, "/a"),
        (EventType.NODE_CREATED, "/a/b"),
        (EventType.NODE_DATA_CHANGED, "/a/b"),
        (EventType.NODE_DELETED, "/a/b"),
    ]


def test_an_event_of_an_unreadable_node_is_not_sent(harness: Harness) -> None:
    """A recursive watch does not bypass the access control list."""
    watcher, writer = harness.connect(), harness.connect()
    watcher.call(OpCode.ADD_WATCH, AddWatchRequest("/", 1))
    writer.receive(bytes(encode_request(-4, OpCode.AUTH, AuthPacket(0, "digest", b"bob:pw")))[4:])
    writer.take()
    writer.call(OpCode.CREATE, CreateRequest("/secret", b"", [ACL(31, Id("auth", ""))], 0))
    assert watcher.events() == []
    assert watcher.call(OpCode.GET_DATA, GetDataRequest("/secret", False))[0] == ErrorCode.NO_AUTH
    assert watcher.call(OpCode.GET_ACL, GetACLRequest("/secret"))[0] == ErrorCode.NO_AUTH
    assert decode(GetACLResponse, writer.call(OpCode.GET_ACL, GetACLRequest("/secret"))[1]).acl[0].id.scheme == "digest"


def test_watches_are_set_again_relative_to_the_clients_last_zxid(harness: Harness) -> None:
    """Nodes that have changed since then fire at once, the others are watched."""
    client = harness.connect()
    for path in ("/a", "/b"):
        client.call(OpCode.CREATE, CreateRequest(path, b"", OPEN, 0))
    seen = harness.processor.database.last_zxid
    client.call(OpCode.SET_DATA, SetDataRequest("/a", b"x", -1))
    client.send(OpCode.SET_WATCHES, SetWatches(seen, ["/a", "/b", "/gone"], ["/b", "/new"], ["/b"]))
    assert client.events() == [
        (EventType.NODE_DATA_CHANGED, "/a"),
        (EventType.NODE_DELETED, "/gone"),
        (EventType.NODE_CREATED, "/b"),
    ]
    client.send(OpCode.SET_DATA, SetDataRequest("/b", b"x", -1))
    client.send(OpCode.CREATE, CreateRequest("/b/c", b"", OPEN, 0))
    client.send(OpCode.CREATE, CreateRequest("/new", b"", OPEN, 0))
    harness.sync()
    assert client.events() == [
        (EventType.NODE_DATA_CHANGED, "/b"),
        (EventType.NODE_CHILDREN_CHANGED, "/b"),
        (EventType.NODE_CREATED, "/new"),
    ]


def test_many_watches_are_set_in_slices_between_which_others_are_served(harness: Harness) -> None:
    """Their connection takes no request meanwhile; a change between two slices fires what is set,
    and is seen by the rest."""
    first, other = harness.connect(), harness.connect()
    paths = [f"/n{number}" for number in range(1800)]
    for path in (paths[0], paths[-1]):
        other.call(OpCode.CREATE, CreateRequest(path, b"", OPEN, 0))
    seen = harness.processor.database.last_zxid
    xid = first.send(OpCode.SET_WATCHES, SetWatches(seen, [], paths[1:-1], [paths[0], paths[-1]]))
    assert (first.take(), first.recorder.holds) == ([], 1)
    assert other.call(OpCode.CREATE, CreateRequest(paths[1], b"", OPEN, 0))[0] == 0
    assert other.call(OpCode.CREATE, CreateRequest(f"{paths[-1]}/c", b"", OPEN, 0))[0] == 0
    assert first.events() == [(EventType.NODE_CREATED, paths[1])]
    assert harness.run_slices() == 3
    late, reply = first.take()
    assert decode(WatcherEvent, late[2]) == WatcherEvent(EventType.NODE_CHILDREN_CHANGED, 3, paths[-1])
    assert reply[:2] == (xid, 0)
    assert first.recorder.holds == 0
    assert harness.processor.watches.counts()[1] == 1798  # all but the two that have fired


def test_slices_of_many_clients_take_turns_and_end_with_their_connection(harness: Harness) -> None:
    """In each turn one slice of one that begins, and one of another; what a closed connection has
    set is removed, and no more is set."""
    clients = [harness.connect() for _ in range(3)]
    paths = [f"/n{number}" for number in range(1200)]
    xids = [client.send(OpCode.SET_WATCHES, SetWatches(0, [], paths, [])) for client in clients]
    assert len(harness.processor.watches) == 1000
    harness.timers.advance(0)
    assert len(harness.processor.watches) == 2000
    harness.processor.disconnected(clients[1].connection)
    assert len(harness.processor.watches) == 1500
    harness.run_slices()
    assert len(harness.processor.watches) == 2400
    assert [reply[0] for client in clients for reply in client.take()] == [xids[0], xids[2]]
    assert [clients[0].recorder.holds, clients[2].recorder.holds] == [0, 0]


def test_watchers_of_events_and_sessions_that_expire_are_counted(harness: Harness) -> None:
    """As monitors see them: how many watchers each event had, how many sessions have
    expired or gone on."""
    watchers = [harness.connect() for _ in range(2)]
    for watcher in watchers:
        watcher.call(OpCode.EXISTS, ExistsRequest("/n", True))
    watchers[0].call(OpCode.CREATE, CreateRequest("/n", b"", OPEN, 0))
    fired = harness.processor.watches.fired
    assert {kind: (each.count, each.total) for kind, each in fired.items()} == {EventType.NODE_CREATED: (1, 2)}
    session = watchers[0].connection.session
    assert session is not None
    Client(harness, session_id=session.id, password=session_password(session.id))
    harness.advance(100_000)
    harness.processor.expirations.tick(harness.now_ms)
    harness.end_due()
    statistics = harness.processor.statistics
    assert (statistics.expired_sessions, statistics.reconnections) == (2, 1)


def test_watches_that_follow_a_write_are_set_after_it(harness: Harness) -> None:
    """Their connection takes no request from their arrival on, so nothing can overtake them."""
    client = harness.connect()
    paths = [f"/n{number}" for number in range(600)]
    create = client.send(OpCode.CREATE, CreateRequest("/n1", b"", OPEN, 0))
    xid = client.send(OpCode.SET_WATCHES, SetWatches(0, [], paths, []))
    assert client.recorder.holds == 1
    harness.sync()
    assert [reply[0] for reply in client.take()] == [create, Xid.WATCHER_EVENT]
    harness.timers.advance(0)
    assert [reply[0] for reply in client.take()] == [xid]
    assert client.recorder.holds == 0


def test_watches_end_with_their_connection(harness: Harness) -> None:
    """Nothing is kept for a closed connection."""
    client = harness.connect()
    client.call(OpCode.EXISTS, ExistsRequest("/a", True))
    client.call(OpCode.ADD_WATCH, AddWatchRequest("/a", 1))
    harness.processor.disconnected(client.connection)
    assert harness.processor.watches.counts() == (0, 0, 0)


# Sessions


def test_ephemerals_live_as_long_as_their_session(harness: Harness) -> None:
    """A session with requests stays; a silent one expires a tick after its timeout,
    with its nodes."""
    silent, lively = harness.connect(), harness.connect()
    silent.call(OpCode.CREATE, CreateRequest("/silent", b"", OPEN, 1))
    lively.call(OpCode.CREATE, CreateRequest("/lively", b"", OPEN, 1))
    for _ in range(9):
        harness.advance(1000)
        lively.send(OpCode.PING)
    assert "/silent" in harness.processor.database.tree.nodes
    for _ in range(3):
        harness.advance(1000)
        lively.send(OpCode.PING)
    nodes = harness.processor.database.tree.nodes
    assert "/silent" not in nodes
    assert "/lively" in nodes
    assert silent.recorder.is_closed
    assert not lively.recorder.is_closed
    assert state(harness.replayed()) == state(harness.processor.database)


def test_closing_a_session_deletes_ephemerals_that_are_not_committed_yet(harness: Harness) -> None:
    """Create and close in one batch leave nothing."""
    client = harness.connect()
    client.send(OpCode.CREATE, CreateRequest("/e", b"", OPEN, 1))
    client.send(OpCode.CLOSE_SESSION)
    client.send(OpCode.CREATE, CreateRequest("/late", b"", OPEN, 0))
    harness.sync()
    assert [err for _, err, _ in client.take()] == [0, 0, ErrorCode.SESSION_EXPIRED]
    assert not {"/e", "/late"} & harness.processor.database.tree.nodes.keys()
    assert client.recorder.is_closed


def test_ephemerals_of_a_closed_session_are_deleted_in_the_order_of_apaches_server(harness: Harness) -> None:
    """By Java's hash codes; the order below is that of ZooKeeper 3.9.4."""
    watcher, client = harness.connect(), harness.connect()
    for number in range(5):
        client.call(OpCode.CREATE, CreateRequest(f"/e5-{number}", b"", OPEN, 1))
        watcher.call(OpCode.EXISTS, ExistsRequest(f"/e5-{number}", True))
    client.call(OpCode.CLOSE_SESSION)
    assert [path for _, path in watcher.events()] == ["/e5-3", "/e5-2", "/e5-4", "/e5-1", "/e5-0"]


def test_ephemerals_with_long_paths_are_deleted_in_the_order_of_their_creation(harness: Harness) -> None:
    """Hash codes of megabytes would stop all other clients."""
    watcher, client = harness.connect(), harness.connect()
    paths = [f"/{'e' * 10_000}{number}" for number in range(5)]
    for path in paths:
        client.call(OpCode.CREATE, CreateRequest(path, b"", OPEN, 1))
        watcher.call(OpCode.EXISTS, ExistsRequest(path, True))
    client.call(OpCode.CLOSE_SESSION)
    assert [path for _, path in watcher.events()] == paths


def test_a_session_moves_to_the_connection_that_knows_its_password(harness: Harness) -> None:
    """The old connection is closed, ephemerals stay; a wrong password gets an expired session."""
    old = harness.connect()
    session_id, password = old.response.session_id, old.response.password
    assert password == session_password(session_id)
    old.call(OpCode.CREATE, CreateRequest("/e", b"", OPEN, 1))
    thief = Client(harness, session_id=session_id, password=b"0" * 16)
    assert thief.connected().timeout_ms == 0
    assert thief.recorder.is_closed
    assert not old.recorder.is_closed
    new = Client(harness, session_id=session_id, password=password)
    assert new.connected().session_id == session_id
    assert old.recorder.is_closed
    harness.processor.disconnected(old.connection)
    assert new.call(OpCode.DELETE, DeleteRequest("/e", -1))[0] == 0


def test_a_forwarded_close_ends_a_session_that_has_moved_and_other_writes_are_refused(harness: Harness) -> None:
    """As Apache's leader answers a client that still uses its earlier connection, to a follower."""
    client = harness.connect()
    client.call(OpCode.CREATE, CreateRequest("/e", b"", OPEN, 1))
    session_id, processor = client.response.session_id, harness.processor

    def forward(opcode: OpCode, body: bytes) -> int:
        request = struct.pack(">qii", session_id, 1, opcode) + body
        processor.propose_forwarded("a follower", [request], [], harness.now_ms, harness.wall_ms)
        header, txn, _ = decode_transaction(bytes(processor.unlogged[-1]))
        harness.sync()
        return txn.err if isinstance(txn, ErrorTxn) else header.type

    assert forward(OpCode.SET_DATA, bytes(encode(SetDataRequest("/e", b"1", -1)))) == ErrorCode.SESSION_MOVED
    assert not client.recorder.is_closed
    assert forward(OpCode.CLOSE_SESSION, b"") == OpCode.CLOSE_SESSION
    assert client.recorder.is_closed
    assert "/e" not in processor.database.tree.nodes


def test_a_write_that_only_servers_make_is_refused_from_a_learners_client(harness: Harness) -> None:
    """A learner forwards the bytes of its clients: deleteContainer needs no permission."""
    client = harness.connect()
    request = CreateRequest("/container", b"", OPEN, CreateMode.CONTAINER)
    client.call(OpCode.CREATE_CONTAINER, request)
    body = bytes(encode(DeleteRequest("/container", -1)))
    frame = struct.pack(">qii", client.response.session_id, 1, OpCode.DELETE_CONTAINER) + body
    harness.processor.propose_forwarded(client.connection, [frame], [], harness.now_ms, harness.wall_ms)
    harness.sync()
    _, txn, _ = decode_transaction(harness.log[-1])
    assert isinstance(txn, ErrorTxn)
    assert "/container" in harness.processor.database.tree.nodes


def test_a_forwarded_write_of_a_session_that_has_ended_is_refused(harness: Harness) -> None:
    """The learner has not heard of the end yet."""
    client = harness.connect()
    client.call(OpCode.CREATE, CreateRequest("/a", b"old", OPEN, 0))
    session_id = client.response.session_id
    client.call(OpCode.CLOSE_SESSION)
    frame = struct.pack(">qii", session_id, 1, OpCode.SET_DATA) + bytes(encode(SetDataRequest("/a", b"new", -1)))
    harness.processor.propose_forwarded("a follower", [frame], [], harness.now_ms, harness.wall_ms)
    harness.sync()
    _, txn, _ = decode_transaction(harness.log[-1])
    assert isinstance(txn, ErrorTxn)
    assert txn.err == ErrorCode.SESSION_EXPIRED
    assert harness.processor.database.tree.nodes["/a"].data == b"old"


def test_only_empty_containers_and_ttl_nodes_are_deleted_by_the_server_itself() -> None:
    """A node of another kind that took the place of a container meanwhile stays; so do
    the nodes of the system."""
    harness = Harness()
    client = harness.connect()
    client.call(OpCode.CREATE, CreateRequest("/plain", b"", OPEN, 0))
    client.call(OpCode.CREATE_CONTAINER, CreateRequest("/full", b"", OPEN, CreateMode.CONTAINER))
    client.call(OpCode.CREATE, CreateRequest("/full/child", b"", OPEN, 0))
    (operation,) = (each for each in delete.OPERATIONS if each.opcode is OpCode.DELETE_CONTAINER)
    staging = Staging(harness.processor.database.tree, Stamp(0, 9, 0), [], False, frozenset(), None)
    for path, code in (
        ("/plain", ErrorCode.BAD_VERSION),
        ("/full", ErrorCode.NOT_EMPTY),
        ("/missing", ErrorCode.NO_NODE),
        ("/zookeeper", ErrorCode.BAD_ARGUMENTS),
    ):
        with pytest.raises(KeeperError) as refused:
            operation.decide(staging, (path, -1))
        assert refused.value.code is code
    for path in ("/", "/zookeeper", "/zookeeper/quota", "/zookeeper/config"):
        assert client.call(OpCode.DELETE, DeleteRequest(path, -1))[0] == ErrorCode.BAD_ARGUMENTS
    (whole,) = multi.OPERATIONS
    change = whole.decide(staging, ([(OpCode.DELETE_CONTAINER, ("/full", -1))],))
    assert change.err == ErrorCode.BAD_ARGUMENTS, "a multi has no such part"


def test_a_read_only_server_refuses_a_session_that_only_a_leader_keeps_alive(harness: Harness) -> None:
    """A session that began on a read-only server reconnects, and ends without a
    transaction; writes are refused."""
    known = harness.connect().response
    reader = Harness(harness.replayed(), read_only=True)
    refused = Client(reader, session_id=known.session_id, password=known.password, read_only=True)
    assert refused.recorder.is_closed
    assert refused.recorder.frames == []
    first = Client(reader, read_only=True)
    response = first.connected()
    again = Client(reader, session_id=response.session_id, password=response.password, read_only=True)
    assert again.connected().session_id == response.session_id
    assert first.recorder.is_closed
    assert again.call(OpCode.SET_DATA, SetDataRequest("/", b"", -1))[0] == ErrorCode.NOT_READ_ONLY
    assert again.call(OpCode.CLOSE_SESSION)[0] == ErrorCode.OK
    assert again.recorder.is_closed
    assert reader.log == []


def test_sessions_survive_a_restart_of_the_server(harness: Harness) -> None:
    """A client reconnects with its password to a server that has read the log."""
    before = harness.connect()
    before.call(OpCode.CREATE, CreateRequest("/e", b"", OPEN, 1))
    after = Harness(harness.replayed())
    again = Client(after, session_id=before.response.session_id, password=before.response.password)
    assert again.connected().session_id == before.response.session_id
    assert again.call(OpCode.EXISTS, ExistsRequest("/e", False))[0] == 0
    after.advance(21_000)
    assert "/e" not in after.processor.database.tree.nodes


def test_a_client_that_has_seen_a_later_zxid_is_refused(harness: Harness) -> None:
    """Its session must not go back in time."""
    client = Client(harness, last_zxid=99)
    assert client.recorder.is_closed
    assert client.recorder.frames == []


def test_time_outs_are_negotiated_within_bounds(harness: Harness) -> None:
    """Two to twenty ticks by default."""
    assert harness.connect().response.timeout_ms == 10_000
    for asked, given_ms in ((1, 2000), (10**6, 20_000), (-5, 2000)):
        recorder = Recorder()
        connection = ServerConnection(recorder, "::1", 1, harness.now_ms)
        request = bytes(encode_connect_request(ConnectRequest(0, 0, asked, 0, None), None))[4:]
        harness.processor.receive(connection, request, harness.now_ms, harness.wall_ms)
        harness.sync()
        assert len(recorder.frames[0]) == 36, "an old client gets no read-only flag"
        assert decode_connect_response(recorder.frames[0])[0].timeout_ms == given_ms


# The rest


def test_containers_and_ttl_nodes_are_deleted_when_their_time_is_over() -> None:
    """A container after its last child, or without any if that is wanted; a TTL node when
    it is empty and unchanged."""
    harness = Harness(ttl_nodes=True)
    client = harness.connect()
    client.call(OpCode.CREATE_CONTAINER, CreateRequest("/c", b"", OPEN, 4))
    client.call(OpCode.CREATE_CONTAINER, CreateRequest("/unused", b"", OPEN, 4))
    client.call(OpCode.CREATE, CreateRequest("/c/x", b"", OPEN, 0))
    assert client.call(OpCode.CREATE_TTL, CreateTTLRequest("/t", b"", OPEN, 5, 500))[0] == 0
    tree = harness.processor.database.tree

    def sweep(never_used_ms: int = 0) -> set[str]:
        harness.processor.expirations.sweep(harness.wall_ms, 100, never_used_ms)
        harness.end_due()
        harness.sync()
        return {"/c", "/unused", "/t"} & tree.nodes.keys()

    assert sweep() == {"/c", "/unused", "/t"}
    client.call(OpCode.DELETE, DeleteRequest("/c/x", -1))
    assert sweep() == {"/unused", "/t"}
    harness.advance(501)
    assert sweep() == {"/unused"}
    assert client.call(OpCode.DELETE_CONTAINER, DeleteRequest("/unused", -1))[0] == ErrorCode.UNIMPLEMENTED
    assert sweep(501) == {"/unused"}
    assert sweep(500) == set()


def test_a_client_is_held_while_all_clients_together_have_more_requests_than_the_limit() -> None:
    """Its bytes wait in its own socket; it goes on when the load is back at the limit."""
    harness = Harness(global_outstanding=10)
    client = harness.connect()
    for number in range(10):
        client.send(OpCode.CREATE, CreateRequest(f"/{number}", b"", OPEN, 0))
    assert client.recorder.holds == 0
    client.send(OpCode.GET_DATA, GetDataRequest("/0", False))
    assert client.recorder.holds == 1
    assert harness.processor.outstanding_requests == 11
    harness.sync(1)
    assert client.recorder.holds == 0
    harness.sync()
    assert harness.processor.outstanding_requests == 0


def test_under_overload_every_client_has_one_request_at_a_time() -> None:
    """A client without outstanding requests can always send one, however many the others have."""
    harness = Harness(global_outstanding=10)
    busy, other = harness.connect(), harness.connect()
    for number in range(20):
        busy.send(OpCode.CREATE, CreateRequest(f"/{number}", b"", OPEN, 0))
    other.send(OpCode.CREATE, CreateRequest("/other", b"", OPEN, 0))
    assert (busy.recorder.holds, other.recorder.holds) == (1, 1)
    for number in range(20, 35):
        busy.send(OpCode.CREATE, CreateRequest(f"/{number}", b"", OPEN, 0))
    harness.sync(21)
    assert harness.processor.outstanding_requests == 15
    assert (busy.recorder.holds, other.recorder.holds) == (1, 0)


def test_requests_of_a_disconnected_client_do_not_count_against_the_others() -> None:
    """Its waiting reads are dropped at once, its writes when they are committed."""
    harness = Harness(global_outstanding=10)
    client = harness.connect()
    client.send(OpCode.CREATE, CreateRequest("/a", b"", OPEN, 0))
    for _ in range(20):
        client.send(OpCode.GET_DATA, GetDataRequest("/a", False))
    harness.processor.disconnected(client.connection)
    assert harness.processor.outstanding_requests == 1
    harness.sync()
    assert harness.processor.outstanding_requests == 0


def test_a_write_that_cannot_be_read_is_refused_in_its_turn(harness: Harness) -> None:
    """The connection goes on."""
    client = harness.connect()
    client.send(OpCode.CREATE, CreateRequest("/a", b"", OPEN, 0))
    client.receive(bytes(encode_request(50, OpCode.SET_DATA, None))[4:] + b"\x7f\xff\xff\xff")
    client.receive(bytes(encode_request(51, OpCode.MULTI, None))[4:] + b"\0\0")
    client.receive(bytes(encode_request(52, OpCode.GET_DATA, None))[4:])
    client.send(OpCode.GET_DATA, GetDataRequest("/a", False))
    harness.sync()
    bad = ErrorCode.MARSHALLING_ERROR
    assert [(xid, err) for xid, err, _ in client.take()] == [(1, 0), (50, bad), (51, bad), (52, bad), (2, 0)]


@pytest.mark.parametrize("opcode", [OpCode.CREATE_SESSION, 999, -7])
def test_an_operation_that_clients_may_not_use_closes_the_connection(harness: Harness, opcode: int) -> None:
    """The client receives an error first."""
    client = harness.connect()
    client.receive(bytes(encode_request(5, opcode, None))[4:])
    ((_, err, _),) = client.take()
    assert err in (ErrorCode.AUTH_FAILED, ErrorCode.UNIMPLEMENTED)
    assert client.recorder.is_closed


def test_a_reply_larger_than_allowed_is_refused() -> None:
    """multiRead of one large node many times."""
    harness = Harness(max_reply_bytes=10_000)
    client = harness.connect()
    client.call(OpCode.CREATE, CreateRequest("/big", b"x" * 5000, OPEN, 0))
    reads = [(OpCode.GET_DATA, GetDataRequest("/big", False))]
    assert client.call(OpCode.MULTI_READ, reads)[0] == 0
    assert client.call(OpCode.MULTI_READ, reads * 50)[0] == ErrorCode.MARSHALLING_ERROR


def test_a_multi_read_that_lists_very_many_children_is_refused(harness: Harness) -> None:
    """Of one large node again and again, or of several; one listing alone may be as
    long as getChildren's."""
    client = harness.connect()
    for path in ("/a", "/b"):
        client.call(OpCode.CREATE, CreateRequest(path, b"", OPEN, 0))
        for number in range(300):
            client.call(OpCode.CREATE, CreateRequest(f"{path}/{number}", b"", OPEN, 0))
    list_a, list_b = [(OpCode.GET_CHILDREN, GetChildrenRequest(path, False)) for path in ("/a", "/b")]
    assert client.call(OpCode.MULTI_READ, [list_a] * 166)[0] == 0
    assert client.call(OpCode.MULTI_READ, [list_a] * 167)[0] == ErrorCode.MARSHALLING_ERROR
    assert client.call(OpCode.MULTI_READ, [list_a, list_b] * 84)[0] == ErrorCode.MARSHALLING_ERROR


def test_a_multi_with_more_operations_than_allowed_is_refused_and_changes_nothing() -> None:
    """It is decided in one step; multiRead has the same limit."""
    harness = Harness(max_multi_operations=3)
    client = harness.connect()
    creates = [(OpCode.CREATE, CreateRequest(f"/n{number}", b"", OPEN, 0)) for number in range(4)]
    assert client.call(OpCode.MULTI, creates)[0] == ErrorCode.MARSHALLING_ERROR
    assert client.call(OpCode.MULTI, creates[:3])[0] == 0
    reads = [(OpCode.GET_DATA, GetDataRequest(f"/n{number}", False)) for number in range(3)]
    assert client.call(OpCode.MULTI_READ, [*reads, reads[0]])[0] == ErrorCode.MARSHALLING_ERROR
    assert client.call(OpCode.MULTI_READ, reads)[0] == 0
    assert client.call(OpCode.EXISTS, ExistsRequest("/n3", False))[0] == ErrorCode.NO_NODE


def test_a_connection_that_collects_identities_is_closed(harness: Harness) -> None:
    """The identity after the hundredth is refused, so that no client fills the memory with them."""
    client = harness.connect()

    def prove(number: int) -> None:
        packet = AuthPacket(0, "digest", b"user%d:pw" % number)
        client.receive(bytes(encode_request(-4, OpCode.AUTH, packet))[4:])

    for number in range(99):  # the address is the first identity
        prove(number)
    assert not client.recorder.is_closed
    prove(99)
    assert client.recorder.is_closed
    assert len(client.connection.ids) == 100


def test_random_bytes_never_break_the_processor(harness: Harness) -> None:
    """Random frames, and real frames with flipped bytes."""
    rng = random.Random(5)
    frames = [
        bytes(encode_request(1, OpCode.CREATE, CreateRequest("/a", b"x", OPEN, 0)))[4:],
        bytes(encode_multi_request(2, [(OpCode.DELETE, DeleteRequest("/a", -1))]))[4:],
        bytes(encode_request(3, OpCode.SET_WATCHES, SetWatches(0, ["/a"], ["/b"], ["/c"])))[4:],
        bytes(encode_request(-4, OpCode.AUTH, AuthPacket(0, "digest", b"a:b")))[4:],
        bytes(encode(ConnectRequest(0, 0, 0, 0, b""))),
    ]
    for _ in range(3000):
        client = harness.connect() if rng.random() < 0.9 else Client(harness)
        frame = bytearray(rng.choice(frames))
        for _ in range(rng.randrange(4)):
            frame[rng.randrange(len(frame))] = rng.randrange(256)
        client.receive(bytes(frame[: rng.randrange(len(frame) + 1)] if rng.random() < 0.3 else frame))
        harness.sync()
        harness.processor.disconnected(client.connection)
    assert state(harness.replayed()) == state(harness.processor.database)


def test_frames_that_came_together_are_left_behind_large_replies() -> None:
    """A hundred requests for the children of a large node are not answered in one
    step; small ones are."""
    harness = Harness()
    client = harness.connect()
    for number in range(1000):
        client.send(OpCode.CREATE, CreateRequest(f"/{number:050}", b"", list(OPEN_ACL), 0))
    harness.sync()
    client.take()
    large = [bytes(encode_request(xid, OpCode.GET_CHILDREN, GetChildrenRequest("/", False))[4:]) for xid in range(100)]
    small = [bytes(encode_request(xid, OpCode.EXISTS, ExistsRequest("/none", False))[4:]) for xid in range(100)]
    taken = harness.processor.receive_frames(client.connection, large, harness.now_ms, harness.wall_ms)
    assert 1 <= taken <= 3
    assert [xid for xid, _, _ in client.take()] == list(range(taken))
    assert harness.processor.receive_frames(client.connection, small, harness.now_ms, harness.wall_ms) == 100
