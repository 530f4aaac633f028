"""Requests and transactions of usual kinds have the values that their records have, and the same
effects when they come together."""

import struct
from collections import deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.coordination.core.audit import AuditLog
from barnabas.coordination.core.database import Database
from barnabas.coordination.core.operations import TRANSACTIONS, WRITES
from barnabas.coordination.core.operations.base import Staging, Stamp
from barnabas.coordination.core.operations.multi import decode_part_values
from barnabas.coordination.core.usual_bytes import read_requests, read_transaction
from barnabas.wire.jute.codec import MalformedRecordError, encode
from barnabas.wire.jute.errors import ErrorCode
from barnabas.wire.jute.frames import encode_multi_request, encode_request
from barnabas.wire.jute.opcodes import OpCode
from barnabas.wire.jute.quorum import PacketReader, QuorumPacket, encode_forwarded_frames, encode_forwarded_request
from barnabas.wire.jute.records import (
    ACL,
    OPEN_ACL,
    AddWatchRequest,
    AuthPacket,
    CheckVersionRequest,
    CreateRequest,
    DeleteRequest,
    GetChildrenRequest,
    GetDataRequest,
    Id,
    SetACLRequest,
    SetDataRequest,
)
from barnabas.wire.jute.transactions import CreateTxn, TxnDigest, decode_transaction, encode_transaction
from support.coordination_processor import Client, Harness

OPEN = list(OPEN_ACL)
READ_ONLY = [ACL(1, Id("world", "anyone"))]
BOB = [ACL(31, Id("auth", ""))]
PATHS = ["/a", "/b", "/a/x", "/a/x/1", "/e/x", "/p", "/p/x", "/b/\N{GREEK SMALL LETTER ALPHA}"]
RARE_PATHS = [
    "/a/" + "long" * 80,
    "/zookeeper/quota/a",
    "/zookeeper",
    "",
    "/",
    "a",
    "//a",
    "/a/",
    "/a//x",
    "/a/.",
    "/a/\0",
]
FIRST = [
    ("/a", OPEN, 0),
    ("/b", OPEN, 0),
    ("/a/x", OPEN, 0),
    ("/e", OPEN, 1),
    ("/p", READ_ONLY, 0),
    ("/a/x/1", OPEN, 0),
]
MAX_INT = 0x7FFFFFFF
DELETE_A = OpCode.DELETE, DeleteRequest("/a", -1)

paths = st.sampled_from([*PATHS, *PATHS, *PATHS, *RARE_PATHS])
data = st.sampled_from([b"", b"1", b"data", b"data", None])
versions = st.sampled_from([-1, -1, -1, 0, 1])
creations = st.tuples(
    st.sampled_from([OpCode.CREATE, OpCode.CREATE2, OpCode.CREATE_CONTAINER]),
    st.builds(
        CreateRequest,
        paths,
        data,
        st.sampled_from([OPEN] * 9 + [READ_ONLY, BOB, [], None]),
        st.sampled_from([0] * 9 + [1, 2, 3, 4, 9]),
    ),
)
sets = st.tuples(st.just(OpCode.SET_DATA), st.builds(SetDataRequest, paths, data, versions))
deletes = st.tuples(st.just(OpCode.DELETE), st.builds(DeleteRequest, paths, versions))
others = st.one_of(
    st.tuples(
        st.just(OpCode.SET_ACL), st.builds(SetACLRequest, paths, st.sampled_from([OPEN, READ_ONLY, BOB]), versions)
    ),
    st.tuples(st.just(OpCode.GET_DATA), st.builds(GetDataRequest, paths, st.booleans())),
    st.tuples(st.just(OpCode.GET_CHILDREN), st.builds(GetChildrenRequest, paths, st.booleans())),
    st.tuples(st.just(OpCode.ADD_WATCH), st.builds(AddWatchRequest, paths, st.sampled_from([0, 1]))),
    st.tuples(st.just(OpCode.MULTI), st.lists(creations, min_size=1, max_size=3)),
    st.tuples(st.just(OpCode.AUTH), st.just(AuthPacket(0, "digest", b"bob:secret"))),
    st.tuples(st.just(OpCode.CLOSE_SESSION), st.none()),
)
writes = st.one_of(creations, sets, deletes)
steps = st.one_of(
    st.tuples(st.sampled_from([0, 0, 0, 1, 2]), writes),
    st.tuples(st.just(0), writes),
    st.tuples(st.integers(0, 2), others),
    st.tuples(st.just("damaged"), st.tuples(creations, st.integers(0, 60), st.binary(max_size=4))),
    st.tuples(st.just("forwarded"), writes),
    st.tuples(st.just("together"), st.lists(st.one_of(writes, writes, others), min_size=2, max_size=6)),
    st.tuples(st.just("commit"), st.integers(1, 8)),
    st.tuples(st.just("wait"), st.sampled_from([1, 7, 1500])),
    st.tuples(st.just("leave"), st.integers(1, 2)),
)


class Run:
    """A processor with three clients, and one whose writes another server forwards."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        self.clients = [harness.connect() for _ in range(3)]
        self.remote = harness.processor.tracker.track(1, 10_000, harness.now_ms)
        self.remote.owner = self
        for path, acl, flags in FIRST:
            self.clients[1].call(OpCode.CREATE, CreateRequest(path, b"", acl, flags))
        harness.processor.statistics.reset()

    def step(self, kind: object, what: object) -> None:
        harness = self.harness
        if kind == "commit":
            harness.sync(min(what, harness.processor.outstanding))
        elif kind == "wait":
            harness.now_ms += what
            harness.wall_ms += what
        elif kind == "leave":
            client = self.clients[what]
            if not client.connection.is_closed:
                harness.processor.disconnected(client.connection)
        elif kind == "forwarded":
            opcode, body = what
            if opcode in (OpCode.CREATE, OpCode.CREATE2, OpCode.SET_DATA, OpCode.DELETE):
                request = struct.pack(">qii", 1, 5, opcode) + bytes(encode(body))
                harness.processor.propose_forwarded(self, [request], [], harness.now_ms, harness.wall_ms)
        elif kind == "together":
            frames = [frame_of(number, *request) for number, request in enumerate(what, 1)]
            self.receive_frames(self.clients[0], frames)
        elif kind == "damaged":
            (opcode, body), at, patch = what
            frame = encode_request(7, opcode, body)[4:]
            frame[8 + at : 8 + at + len(patch)] = patch
            self.receive(self.clients[0], bytes(frame))
        else:
            client = self.clients[kind]
            opcode, body = what
            if not client.connection.is_closed and not client.recorder.is_closed:
                client.send(opcode, body)

    def receive_frames(self, client: Client, frames: list[bytes]) -> None:
        harness = self.harness
        if client.connection.is_closed or client.recorder.is_closed:
            return
        if harness.processor.limits.auditor is None:
            processor = harness.processor
            processor.receive_frames(client.connection, frames, harness.now_ms, harness.wall_ms)
            return
        for frame in frames:
            client.receive(frame)
            if not client.recorder.takes_requests:
                return

    def receive(self, client: Client, frame: bytes) -> None:
        if not client.connection.is_closed and not client.recorder.is_closed:
            client.receive(frame)

    def everything(self) -> dict[str, object]:
        processor = self.harness.processor
        database, metrics = processor.database, processor.metrics
        tree = database.tree
        watches = processor.watches
        return {
            "log": self.harness.log,
            "sent": [client.recorder.frames for client in self.clients],
            "closed": [(client.recorder.is_closed, client.recorder.holds) for client in self.clients],
            "nodes": {path: (repr(node), node.digest, node.acl) for path, node in tree.nodes.items()},
            "tree": (tree.digest, tree.children, tree.ephemerals, tree.containers, tree.data_bytes),
            "database": (database.last_zxid, database.session_timeouts_ms, list(database.digest_log)),
            "staged": (processor._prep.staged.digest, set(processor._prep.staged.paths), processor.staged_changes),
            "watches": (watches.counts(), {kind: figures(summary) for kind, summary in watches.fired.items()}),
            "statistics": figures(processor.statistics),
            "clients": [figures(client.connection.statistics) for client in self.clients],
            "last opcodes": [client.connection.last_opcode for client in self.clients],
            "counters": metrics.counters(processor.staged_changes),
            "times": {name: each.values(name) for name, each in metrics.distributions().items()},
            "traffic": {
                name: {namespace: figures(each) for namespace, each in found.items()}
                for name, found in metrics.by_namespace().items()
            },
            "waiting": (processor.outstanding, processor.outstanding_requests),
        }


def frame_of(xid: int, opcode: int, body: object) -> bytes:
    """A request without its length."""
    frame = encode_multi_request(xid, body) if opcode == OpCode.MULTI else encode_request(xid, opcode, body)
    return bytes(frame)[4:]


def figures(counted: object) -> dict[str, object]:
    return {name: getattr(counted, name) for name in counted.__slots__}


@settings(max_examples=150, deadline=None)
@given(st.lists(steps, min_size=1, max_size=30), st.sampled_from([3, 1000]))
def test_writes_have_the_effects_that_they_have_one_by_one(
    script: list[tuple[object, object]], global_outstanding: int
) -> None:
    """The log, the answers and events in their order, tree, watches and figures; an audited
    server reads records alone."""
    fast = Run(Harness(global_outstanding=global_outstanding))
    general = Run(Harness(global_outstanding=global_outstanding, auditor=AuditLog(lambda _: None, "zookeeper")))
    assert fast.harness.processor._decides_usual
    assert not general.harness.processor._decides_usual
    for kind, what in script:
        for run in (fast, general):
            run.step(kind, what)
    assert fast.everything() == general.everything()
    for run in (fast, general):
        run.harness.sync()
    assert fast.everything() == general.everything()
    assert fast.harness.replayed().tree.digest == fast.harness.processor.database.tree.digest
    for payload in fast.harness.log:
        assert_equal_transactions(payload)


class Follower(Run):
    """A learner's processor with two clients; what it forwards lies in `packets`."""

    def __init__(self, leader: Harness, **limits: object) -> None:
        self.reader = PacketReader(1 << 20)
        self.packets: list[QuorumPacket] = []
        self.forwarded: deque[QuorumPacket] = deque()
        self.harness = Harness(leader.replayed(), forwarder=self, **limits)
        self.clients = [Client(self.harness), Client(self.harness)]

    is_read_only = False

    def forward(self, *request: object) -> None:
        self.keep(encode_forwarded_request(*request))

    def forward_frames(self, session_id: int, frames: list[bytes], ids: list[Id]) -> None:
        self.keep(encode_forwarded_frames(session_id, frames, ids))

    def revalidate(self, *_: object) -> None: ...

    def keep(self, data: bytes) -> None:
        self.reader.feed(data)
        packets = self.reader.packets()
        self.packets += packets
        self.forwarded += packets

    def apply(self, payloads: list[bytes]) -> None:
        self.harness.processor.apply(payloads, self.harness.now_ms, self.harness.wall_ms)


class Pair:
    """A leader, and two followers that are the same follower: one forwards requests together,
    one looks at each."""

    def __init__(self, global_outstanding: int) -> None:
        self.leader = Run(Harness())
        harness = self.leader.harness
        without = AuditLog(lambda _: None, "zookeeper")
        self.followers = [
            Follower(harness, global_outstanding=global_outstanding, **limits) for limits in ({}, {"auditor": without})
        ]
        self.applied = len(harness.log)
        self.decide(100)
        self.commit(100)

    def decide(self, count: int) -> None:
        """The leader gets that many of the requests that were forwarded."""
        fast, general = self.followers
        assert fast.packets == general.packets
        harness = self.leader.harness
        for _ in range(min(count, len(fast.forwarded))):
            packet = fast.forwarded.popleft()
            general.forwarded.popleft()
            if packet.data[12:16] == struct.pack(">i", OpCode.SYNC):
                continue
            ids, now_ms, wall_ms = packet.authinfo or [], harness.now_ms, harness.wall_ms
            harness.processor.propose_forwarded(fast, [packet.data], ids, now_ms, wall_ms)

    def commit(self, count: int) -> None:
        harness = self.leader.harness
        harness.sync(min(count, harness.processor.outstanding))
        committed = harness.log[self.applied : len(harness.log) - harness.processor.outstanding]
        self.applied += len(committed)
        fast, general = self.followers
        fast.apply(committed)
        for payload in committed:
            general.apply([payload])

    def step(self, kind: object, what: object) -> None:
        if kind == "decide":
            self.decide(what)
        elif kind == "commit":
            self.commit(what)
        elif kind == "leader":
            self.leader.step(1, what)
        else:
            for run in (*self.followers, *([self.leader] if kind == "wait" else [])):
                run.step(kind, what)


reads = st.tuples(st.just(OpCode.GET_DATA), st.builds(GetDataRequest, paths, st.booleans()))
usual_sets = st.tuples(
    st.just(OpCode.SET_DATA), st.builds(SetDataRequest, st.sampled_from(["/a", "/b", "/a/x"]), data, st.just(-1))
)
of_follower = st.tuples(
    st.just("together"),
    st.lists(st.one_of(usual_sets, usual_sets, usual_sets, creations, deletes, reads), min_size=3, max_size=8),
)
rounds = st.one_of(
    st.tuples(st.just("commit"), st.sampled_from([1, 3, 100, 100])),
    st.tuples(st.sampled_from([0, 1]), st.one_of(sets, others)),
    st.tuples(st.just("leader"), writes),
    st.tuples(st.just("wait"), st.sampled_from([1, 7, 1500])),
)
rare = st.one_of(
    st.tuples(st.just("damaged"), st.tuples(creations, st.integers(0, 60), st.binary(max_size=4))),
    st.tuples(st.just("leave"), st.just(1)),
    st.tuples(st.just(0), others),
)
follower_scripts = st.lists(
    st.tuples(
        of_follower,
        rounds,
        of_follower,
        st.tuples(st.just("decide"), st.integers(1, 30)),
        rounds,
        st.one_of(rounds, rare),
    ).map(list),
    min_size=1,
    max_size=5,
).map(lambda found: [step for some in found for step in some])


@settings(max_examples=80, deadline=None)
@given(follower_scripts, st.sampled_from([3, 1000, 1000]))
def test_a_follower_forwards_applies_and_answers_what_comes_together_as_one_by_one(
    script: list[tuple[object, object]], global_outstanding: int
) -> None:
    """The packets to the leader, the answers and events in their order, tree, watches and
    figures."""
    pair = Pair(global_outstanding)
    fast, general = pair.followers
    assert fast.harness.processor._forwards_usual
    assert not general.harness.processor._forwards_usual
    for kind, what in script:
        pair.step(kind, what)
    assert fast.everything() == general.everything()
    pair.decide(1000)
    pair.commit(1000)
    assert fast.packets == general.packets
    assert fast.everything() == general.everything()
    tree = pair.leader.harness.processor.database.tree
    assert fast.harness.processor.database.tree.digest == tree.digest
    assert fast.harness.processor.database.digest_mismatches == 0


def test_a_session_that_ends_through_a_follower_is_shown_with_its_opcode() -> None:
    """The opcode of closeSession is negative."""
    pair = Pair(1000)
    pair.step("together", [(OpCode.CLOSE_SESSION, None)])
    for follower in pair.followers:
        assert follower.clients[0].connection.last_opcode == OpCode.CLOSE_SESSION


def test_a_write_that_the_leader_refuses_because_the_session_moved_has_its_own_line() -> None:
    """A write behind it that succeeds is written as a success, under its own path."""
    lines: list[str] = []
    leader = Run(Harness()).harness
    applied = len(leader.log)
    follower = Follower(leader, auditor=AuditLog(lines.append, "zookeeper"))

    def decide(owner: object) -> None:
        packet = follower.forwarded.popleft()
        session = leader.processor.tracker.live(follower.clients[0].connection.session_id)
        if session is not None:
            session.owner = owner
        leader.processor.propose_forwarded(follower, [packet.data], [], leader.now_ms, leader.wall_ms)

    def commit() -> None:
        nonlocal applied
        leader.sync()
        follower.apply(leader.log[applied:])
        applied = len(leader.log)

    decide(follower)
    decide(follower)
    commit()
    client = follower.clients[0]
    for path in ("/moved", "/done"):
        client.send(OpCode.CREATE, CreateRequest(path, b"", OPEN, 0))
    decide(object())  # an older connection
    decide(follower)
    commit()
    assert client.recorder.is_closed
    nodes = follower.harness.processor.database.tree.nodes
    assert "/moved" not in nodes
    assert "/done" in nodes
    follower.harness.processor.disconnected(client.connection)
    assert [line.split("\t")[3:] for line in lines] == [
        ["operation=create", "znode=/moved", "znode_type=persistent", "result=failure"],
        ["operation=create", "znode=/done", "znode_type=persistent", "result=success"],
    ]


def assert_equal_transactions(payload: bytes) -> bool:
    """Compare what both readers make of a transaction; whether it is of a usual kind."""
    header, record, digest = decode_transaction(payload)
    usual = read_transaction(payload, header.type)
    if usual is not None:
        found = TRANSACTIONS[header.type]
        assert digest is not None
        assert usual == (found, plain(found.values(record)), digest.tree_digest)
    return usual is not None


def assert_equal_requests(frame: bytes) -> bool:
    """Compare what both readers make of a request; whether it is of a usual kind."""
    usual = read_requests([frame], 0, 1)
    if usual:
        xid, opcode = struct.unpack_from(">ii", frame)
        operation = WRITES[opcode]
        ((*found, values),) = usual
        assert found == [xid, opcode, operation.decide, operation.answer]
        assert plain(values) == plain(decode_part_values(operation, frame, 8, None))
    return bool(usual)


@pytest.mark.parametrize("size", [0, 1, 4_096, 4_097, 100_000])
@pytest.mark.parametrize("acl", [OPEN, READ_ONLY], ids=["open", "read only"])
@pytest.mark.parametrize("flags", [0, 1, 2, 3], ids=["persistent", "ephemeral", "sequential", "both"])
def test_the_transaction_of_a_creation_is_that_of_its_record(size: int, acl: list[ACL], flags: int) -> None:
    """Also where it begins with bytes of the request: those of small data under a path that stays
    as it is, below an open list."""
    tree = Database().tree
    request = CreateRequest("/\N{GREEK SMALL LETTER ALPHA}", bytes(size), acl, flags)
    frame = encode_request(7, OpCode.CREATE, request)[4:]
    usual = read_requests([frame], 0, 1)
    assert bool(usual) == (acl is OPEN)
    values = usual[0][4] if usual else decode_part_values(WRITES[OpCode.CREATE], frame, 8, None)
    schemes = frozenset(["world"])
    change = WRITES[OpCode.CREATE].decide(Staging(tree, Stamp(5, 9, 0), [], False, schemes, None), values)
    path = f"{request.path}{0:010d}" if flags & 2 else request.path
    expected = encode(CreateTxn(path, request.data, acl, bool(flags & 1), 1))
    assert TRANSACTIONS[OpCode.CREATE].encode(change, b"<", b">") == b"<" + expected + b">"
    assert WRITES[OpCode.CREATE].answer(change) == struct.pack(">i", len(path.encode())) + path.encode()
    assert bool(change.head) == (acl is OPEN and size <= 4_096 and not flags & 2)


def plain(value: object) -> object:
    """Lists as tuples: an ACL is a list in a record."""
    return tuple(map(plain, value)) if isinstance(value, (list, tuple)) and type(value) in (list, tuple) else value


@given(writes)
def test_both_readers_give_equal_values_for_a_request(write: tuple[OpCode, object]) -> None:
    """Whatever it asks for."""
    assert_equal_requests(frame_of(7, *write))


@given(writes, st.integers(0, 80), st.binary(max_size=5), st.integers(0, 4))
def test_a_request_that_is_no_record_is_not_of_a_usual_kind(
    write: tuple[OpCode, object], at: int, patch: bytes, cut: int
) -> None:
    """Other bytes give equal values or none; also lengths that lie, and what is cut or too long."""
    frame = bytearray(frame_of(7, *write))
    frame[8 + at : 8 + at + len(patch)] = patch
    data = bytes(frame[: len(frame) - cut])
    try:
        assert_equal_requests(data)
    except MalformedRecordError as error:
        raise AssertionError(data) from error


@pytest.mark.parametrize(
    ("opcode", "body", "is_usual"),
    [
        (OpCode.CREATE, CreateRequest("/new", b"1", OPEN, 0), True),
        (OpCode.CREATE2, CreateRequest("/a/new", b"", OPEN, 0), True),
        (OpCode.CREATE, CreateRequest("/new", b"1", OPEN, 1), True),
        (OpCode.CREATE, CreateRequest("/new", b"1", OPEN, 2), True),
        (OpCode.SET_DATA, SetDataRequest("/a", b"2", 0), True),
        (OpCode.DELETE, DeleteRequest("/a", 0), True),
        (OpCode.CREATE, CreateRequest("/new", None, OPEN, 0), False),
        (OpCode.CREATE, CreateRequest("/new", b"1", READ_ONLY, 0), False),
        (OpCode.MULTI, [(OpCode.CREATE, CreateRequest("/a", b"", OPEN, 2)), DELETE_A], True),
        (OpCode.MULTI, [], True),
        (OpCode.SET_DATA, SetDataRequest("/a", None, 0), False),
        (OpCode.MULTI, [DELETE_A, (OpCode.CREATE, CreateRequest("/a", None, OPEN, 0))], False),
        (OpCode.MULTI, [(OpCode.CREATE, CreateRequest("/a", b"", OPEN, 4))], False),
        (OpCode.MULTI, [(OpCode.CREATE_CONTAINER, CreateRequest("/a", b"", OPEN, 4))], False),
        (OpCode.MULTI, [(OpCode.CHECK, CheckVersionRequest("/a", 0))], False),
        (OpCode.SET_ACL, SetACLRequest("/a", OPEN, 0), False),
        (OpCode.GET_DATA, GetDataRequest("/a", False), False),
    ],
    ids=str,
)
def test_usual_requests_are_read_from_their_bytes(opcode: OpCode, body: object, is_usual: bool) -> None:
    """Others are left to their records."""
    assert assert_equal_requests(frame_of(1, opcode, body)) is is_usual


def test_requests_are_read_up_to_one_that_is_not_usual() -> None:
    """And up to the end that is given."""
    usual = frame_of(1, OpCode.SET_DATA, SetDataRequest("/a", b"1", 0))
    other = frame_of(2, OpCode.GET_DATA, GetDataRequest("/a", False))
    frames = [other, usual, usual, usual, other, usual]
    assert [len(read_requests(frames, start, end)) for start, end in ((0, 6), (1, 6), (1, 3), (5, 9))] == [0, 3, 2, 1]


def test_a_multi_with_too_many_parts_is_not_usual() -> None:
    """Its record's reader refuses it."""
    frame = frame_of(1, OpCode.MULTI, [DELETE_A] * 3)
    assert [len(read_requests([frame], 0, 1, 0, most)) for most in (None, 3, 2)] == [1, 1, 0]


def test_children_that_come_and_go_in_one_multi_leave_the_tree_that_single_writes_leave() -> None:
    """Also of a parent that the multi makes, changes and protects itself; digest and log agree
    with a replay."""
    parts = [
        (OpCode.CREATE2, CreateRequest("/q", b"", OPEN, 0)),
        *((OpCode.CREATE2, CreateRequest("/q/n-", b"", OPEN, 2)) for _ in range(3)),
        (OpCode.SET_DATA, SetDataRequest("/q", b"new", 0)),
        (OpCode.DELETE, DeleteRequest("/q/n-0000000001", -1)),
        (OpCode.CREATE, CreateRequest("/q/n-", b"", OPEN, 3)),
    ]
    shown = []
    for requests in ([(OpCode.MULTI, parts)], parts):
        harness = Harness()
        client = harness.connect()
        for request in requests:
            assert client.call(*request)[0] == 0
        tree = harness.processor.database.tree
        assert harness.replayed().tree.digest == tree.digest
        node = tree.nodes["/q"]
        assert sum(each.digest for each in tree.nodes.values()) == tree.digest
        shown.append((node.data, node.version, node.cversion, node.num_children, tree.names_below("/q")))
    assert shown[0] == shown[1]
    assert shown[0][1:4] == (1, 4, 3)


def test_many_writes_leave_the_digests_that_servers_compare() -> None:
    """One for each 128 transactions, of the tree as it was behind them."""
    fast, general = Run(Harness()), Run(Harness(auditor=AuditLog(lambda _: None, "zookeeper")))
    for run in (fast, general):
        for number in range(300):
            run.step(0, (OpCode.CREATE, CreateRequest(f"/a/{number}", b"", OPEN, 0)))
        run.harness.sync()
    assert len(fast.harness.processor.database.digest_log) == 2
    assert fast.everything() == general.everything()


def test_a_persistent_recursive_watch_fires_before_the_reply_to_the_same_client() -> None:
    """The replies before it leave before it, though replies are gathered."""
    client = Harness().connect()
    client.call(OpCode.ADD_WATCH, AddWatchRequest("/", 1))
    sent = [client.send(OpCode.CREATE, CreateRequest(f"/{name}", b"", OPEN, 0)) for name in ("a", "b", "c")]
    client.harness.sync()
    assert [xid for xid, _, _ in client.take()] == [-1, sent[0], -1, sent[1], -1, sent[2]]


@pytest.mark.parametrize("opcode", [OpCode.CREATE, OpCode.CREATE2])
@pytest.mark.parametrize("flags", [0, 2])
def test_a_parent_with_the_greatest_number_of_creations_takes_more(opcode: OpCode, flags: int) -> None:
    """The number wraps in the transaction, as in ZooKeeper, and leaves no hole in the zxids."""
    harness = Harness()
    client = harness.connect()
    client.call(OpCode.CREATE, CreateRequest("/a", b"", OPEN, 0))
    node = harness.processor.database.tree.nodes["/a"]
    harness.processor.database.tree.put("/a", node.with_children("/a", MAX_INT, 1, 0))
    for name in ("x", "y"):
        assert client.call(opcode, CreateRequest(f"/a/{name}", b"", OPEN, flags))[0] == 0
    transactions = [decode_transaction(payload) for payload in harness.log]
    assert [header.zxid for header, _, _ in transactions] == list(range(1, len(transactions) + 1))
    assert [txn.parent_cversion for _, txn, _ in transactions[-2:]] == [-MAX_INT - 1] * 2
    assert harness.processor.database.tree.nodes["/a"].cversion == MAX_INT


def test_a_transaction_that_a_fuzzy_snapshot_contains_changes_nothing_but_what_it_lacks() -> None:
    """It may contain the effect already, or lack what is needed."""
    run = Run(Harness())
    for opcode, body in (
        (OpCode.CREATE, CreateRequest("/b/new", b"", OPEN, 0)),
        (OpCode.SET_DATA, SetDataRequest("/b/new", b"1", -1)),
        (OpCode.DELETE, DeleteRequest("/b/new", -1)),
    ):
        run.step(0, (opcode, body))
    run.harness.sync()
    created, changed, deleted = map(decode_transaction, run.harness.log[-3:])
    database = run.harness.replayed()
    before = database.tree.digest
    assert database.apply(*changed).err == ErrorCode.NO_NODE
    assert database.apply(*deleted).err == ErrorCode.NO_NODE
    assert database.tree.digest == before
    assert database.apply(*created).err == 0
    assert database.apply(*created).err == ErrorCode.NODE_EXISTS
    assert database.tree.nodes["/b"].num_children == 1
    assert Database().apply(*created).err == ErrorCode.NO_NODE, "its parent is not there"


def test_a_transaction_with_another_digest_than_the_tree_is_counted() -> None:
    """It is applied: the leader has committed it."""
    run = Run(Harness())
    run.step(0, (OpCode.CREATE, CreateRequest("/b/new", b"", OPEN, 0)))
    run.harness.sync()
    header, txn, digest = decode_transaction(run.harness.log[-1])
    assert txn is not None
    assert digest is not None
    wrong = bytes(encode_transaction(header, txn, TxnDigest(digest.version, digest.tree_digest + 1)))
    follower = Follower(Harness())
    follower.apply([*run.harness.log[:-1], wrong])
    database = follower.harness.processor.database
    assert database.digest_mismatches == 1
    assert "/b/new" in database.tree.nodes
