"""Quotas: usage against a plain count, and limits and usage as ZooKeeper reads them."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.coordination.core.tree import Tree
from barnabas.coordination.core.znode import DataNode
from barnabas.wire.jute.errors import ErrorCode, KeeperError
from barnabas.wire.jute.opcodes import CreateMode, OpCode
from barnabas.wire.jute.records import OPEN_ACL, CreateRequest, DeleteRequest, SetACLRequest, SetDataRequest
from support.coordination_processor import Client, Harness

QUOTA = "/zookeeper/quota"


class QuotaTree(Tree):
    """A tree with a zxid for each change."""

    __slots__ = ("zxid",)

    def __init__(self) -> None:
        super().__init__()
        self.zxid = 0

    def write(self, path: str, data: bytes | None) -> None:
        """Create the node or set its data."""
        self.zxid += 1
        node = self.get(path)
        if node is None:
            self.put(path, DataNode.new(path, data, OPEN_ACL, 0, self.zxid, 0))
        else:
            self.put(path, node.with_data(path, data, node.version + 1, self.zxid, 0))

    def limit(self, path: str, limits: bytes | None) -> None:
        """Set a quota, as clients do."""
        parts = path.split("/")
        for end in range(2, len(parts) + 1):
            if self.get(parent := QUOTA + "/".join(parts[:end])) is None:
                self.write(parent, b"")
        self.write(f"{QUOTA}{path}/zookeeper_limits", limits)
        self.write(f"{QUOTA}{path}/zookeeper_stats", b"")

    def usage(self, path: str) -> bytes | None:
        return self.nodes[f"{QUOTA}{path}/zookeeper_stats"].data

    def refusal(self, path: str, bytes_more: int, count_more: int) -> ErrorCode | None:
        try:
            self.check_quota(path, bytes_more, count_more)
        except KeeperError as error:
            return ErrorCode(error.code)
        return None


@pytest.fixture
def tree() -> QuotaTree:
    return QuotaTree()


PATHS = ["/a", "/a/b", "/a/b/c", "/a/d", "/b"]


@given(st.lists(st.tuples(st.sampled_from(PATHS), st.sampled_from([b"", b"x", b"data", None]), st.booleans())))
def test_usage_equals_a_count_of_the_nodes_that_the_nearest_quota_covers(
    steps: list[tuple[str, bytes | None, bool]],
) -> None:
    """After any creations, changes and deletions, of nodes with and without children."""
    tree = QuotaTree()
    tree.limit("/a", b"count=2,bytes=5")
    tree.limit("/a/b", b"count=1,bytes=1")
    for path, data, is_removal in steps:
        node = tree.get(path)
        if not is_removal:
            if tree.get(path[: path.rfind("/")] or "/") is not None:
                tree.write(path, data)
        elif node is not None and not tree.names_below(path):
            tree.remove(path)
    outer = [tree.nodes[path] for path in ("/a", "/a/d") if path in tree.nodes]
    inner = [tree.nodes[path] for path in ("/a/b", "/a/b/c") if path in tree.nodes]
    for path, nodes in (("/a", outer), ("/a/b", inner)):
        assert tree.usage(path) == f"count={len(nodes)},bytes={sum(len(node.data or b'') for node in nodes)}".encode()
    assert tree.data_bytes == sum(len(path) + len(node.data or b"") for path, node in tree.nodes.items())


@pytest.mark.parametrize(
    ("limits", "count", "data_bytes"),
    [
        (b"count=-1,bytes=-1=;byteHardLimit=10;countHardLimit=3", 3, 10),
        (b"count=1,bytes=1=;byteHardLimit=10", None, 10),
        (b"count=1,bytes=1", None, None),
        (b"countHardLimit=3", 3, None),
        (b"count=-1,bytes=-1=;countHardLimit=0;byteHardLimit=-5", 0, None),
        (b"countHardLimit=1;countHardLimit=3", 3, None),
        (b"countHardLimit==3", None, None),
        (b"", None, None),
        (b",", None, None),
        (b"countHardLimit=", "unreadable", "unreadable"),
        (b",countHardLimit=3", "unreadable", "unreadable"),
        (b"countHardLimit= 3", "unreadable", "unreadable"),
        (b"countHardLimit=1_0", "unreadable", "unreadable"),
        (b"countHardLimit=9223372036854775808", "unreadable", "unreadable"),
        (b"junk", "unreadable", "unreadable"),
        (None, "unreadable", "unreadable"),
    ],
)
def test_a_hard_limit_is_the_largest_usage_that_is_not_refused(
    tree: QuotaTree, limits: bytes | None, count: int | str | None, data_bytes: int | str | None
) -> None:
    """Soft limits refuse nothing; limits that cannot be read refuse everything, as
    StatsTrack reads them."""
    tree.limit("/a", limits)
    for limit, more_to in ((count, lambda n: (0, n)), (data_bytes, lambda n: (n, 0))):
        if isinstance(limit, str):
            assert tree.refusal("/a/x", *more_to(1)) is ErrorCode.MARSHALLING_ERROR
        elif limit is None:
            assert tree.refusal("/a/x", *more_to(1000)) is None
        else:
            assert tree.refusal("/a/x", *more_to(limit)) is None
            assert tree.refusal("/a/x", *more_to(limit + 1)) is ErrorCode.QUOTA_EXCEEDED


def test_data_that_shrinks_is_refused_while_it_stays_above_the_limit(tree: QuotaTree) -> None:
    """The limit came later than the data."""
    tree.write("/a", b"x" * 100)
    tree.limit("/a", b"byteHardLimit=50")
    assert tree.refusal("/a", -49, 0) is ErrorCode.QUOTA_EXCEEDED
    assert tree.refusal("/a", -50, 0) is None


def test_usage_that_a_client_wrote_goes_on_from_there(tree: QuotaTree) -> None:
    """Missing fields count from -1, other fields stay, in order; only a new node or
    new data writes it again."""
    tree.limit("/a", b"countHardLimit=2")
    tree.write(f"{QUOTA}/a/zookeeper_stats", b"zz=1;count=9223372036854775807;Beta=-4")
    tree.write("/a", b"x")
    assert tree.usage("/a") == b"count=-9223372036854775808,bytes=0=;Beta=-4;zz=1"
    tree.write(f"{QUOTA}/a/zookeeper_stats", b"count=1")
    node = tree.nodes["/a"]
    tree.put_without_data("/a", node.with_acl("/a", OPEN_ACL, 1))
    assert tree.usage("/a") == b"count=1"
    tree.write("/a", b"y")
    assert tree.usage("/a") == b"count=1,bytes=-1"


def test_usage_that_cannot_be_read_refuses_writes_below_limits_and_stays(tree: QuotaTree) -> None:
    """Apache's server stops at such a write; ours waits for somebody who writes usage again."""
    tree.limit("/a", b"countHardLimit=2")
    tree.write(f"{QUOTA}/a/zookeeper_stats", b"junk")
    assert tree.refusal("/a", 0, 1) is ErrorCode.MARSHALLING_ERROR
    assert tree.refusal("/a", 1, 0) is None
    tree.write("/a", b"x")
    assert tree.usage("/a") == b"junk"


def test_usage_with_more_fields_than_anyone_needs_counts_as_unreadable(tree: QuotaTree) -> None:
    """Every write below the limit would read and write all of them."""
    tree.limit("/a", b"countHardLimit=2")
    many = b"count=1,bytes=1=" + b";x=1" * 300
    tree.write(f"{QUOTA}/a/zookeeper_stats", many)
    assert tree.refusal("/a", 0, 1) is ErrorCode.MARSHALLING_ERROR
    tree.write("/a", b"x")
    assert tree.usage("/a") == many


def test_nodes_beside_the_quotas_are_no_quotas(tree: QuotaTree) -> None:
    """Neither the root nor a name that begins like the folder of quotas."""
    tree.write(f"{QUOTA}/zookeeper_limits", b"countHardLimit=0")
    tree.write(f"{QUOTA}x", b"")
    tree.write(f"{QUOTA}x/zookeeper_limits", b"countHardLimit=0")
    assert tree.refusal("/x", 1, 1) is None
    assert tree.quotas.figures(tree.nodes) == {}


STATS = f"{QUOTA}/a/zookeeper_stats"


def new(path: str, data: bytes = b"", mode: CreateMode = CreateMode.PERSISTENT) -> CreateRequest:
    return CreateRequest(path, data, list(OPEN_ACL), mode)


def limited_client(limits: bytes) -> Client:
    """A client of a server that enforces quotas: ``/a`` has one, and its usage a child."""
    client = Harness(enforce_quota=True).connect()
    for request in (
        new("/a"),
        new(f"{QUOTA}/a"),
        new(f"{QUOTA}/a/zookeeper_limits", limits),
        new(STATS),
        new(f"{STATS}/below"),
    ):
        assert client.call(OpCode.CREATE, request)[0] == 0
    return client


def usage_of(client: Client) -> bytes | None:
    tree = client.harness.processor.database.tree
    assert tree.data_bytes == sum(len(path) + len(node.data or b"") for path, node in tree.nodes.items())
    return tree.nodes[STATS].data


def end_a_session_with_a_node_below(client: Client) -> None:
    other = client.harness.connect()
    other.call(OpCode.CREATE, new(f"{STATS}/ephemeral", mode=CreateMode.EPHEMERAL))
    client.send(OpCode.CREATE, new("/a/1"))
    other.send(OpCode.CLOSE_SESSION)


BESIDE_A_CREATION: dict[str, Callable[[Client], object]] = {
    "setACL": lambda client: (
        client.send(OpCode.CREATE, new("/a/1")),
        client.send(OpCode.SET_ACL, SetACLRequest(STATS, list(OPEN_ACL), -1)),
    ),
    "create": lambda client: (
        client.send(OpCode.CREATE, new("/a/1")),
        client.send(OpCode.CREATE, new(f"{STATS}/another")),
    ),
    "delete": lambda client: (
        client.send(OpCode.CREATE, new("/a/1")),
        client.send(OpCode.DELETE, DeleteRequest(f"{STATS}/below", -1)),
    ),
    "multi": lambda client: client.send(
        OpCode.MULTI,
        [
            (OpCode.CREATE, new("/a/1")),
            (OpCode.CREATE, new(f"{STATS}/another")),
            (OpCode.DELETE, DeleteRequest(f"{STATS}/below", -1)),
        ],
    ),
    "closeSession": end_a_session_with_a_node_below,
}


@pytest.mark.parametrize("write", BESIDE_A_CREATION)
def test_usage_stays_when_its_node_is_changed_in_the_same_commit(write: str) -> None:
    """A change that was decided on less usage takes none of it back, and the limit holds."""
    client = limited_client(b"countHardLimit=2")
    BESIDE_A_CREATION[write](client)
    client.harness.sync()
    assert all(error == 0 for _, error, _ in client.take())
    assert usage_of(client) == b"count=2,bytes=0"
    assert client.call(OpCode.CREATE, new("/a/2"))[0] == ErrorCode.QUOTA_EXCEEDED


def test_usage_of_a_new_quota_stays_when_its_node_is_changed_before_the_first_limit() -> None:
    """What was counted at its creation is not what the client gave it."""
    client = Harness(enforce_quota=True).connect()
    for path in ("/a", f"{QUOTA}/a"):
        client.call(OpCode.CREATE, new(path))
    for path in (STATS, f"{STATS}/1", f"{STATS}/2"):
        client.send(OpCode.CREATE, new(path))
    client.send(OpCode.DELETE, DeleteRequest(f"{STATS}/1", -1))
    client.send(OpCode.SET_ACL, SetACLRequest(STATS, list(OPEN_ACL), -1))
    client.harness.sync()
    assert usage_of(client) == b"count=1,bytes=0"


def test_data_that_a_multi_sets_behind_a_creation_counts() -> None:
    """Both are of the same transaction."""
    client = limited_client(b"byteHardLimit=20")
    parts = [
        (OpCode.CREATE, new("/a/1", b"12345")),
        (OpCode.SET_DATA, SetDataRequest("/a/1", b"x" * 15, -1)),
        (OpCode.SET_DATA, SetDataRequest("/a/1", b"x" * 20, -1)),
    ]
    assert client.call(OpCode.MULTI, parts)[0] == 0
    assert usage_of(client) == b"count=2,bytes=20"
    assert client.call(OpCode.SET_DATA, SetDataRequest("/a", b"x", -1))[0] == ErrorCode.QUOTA_EXCEEDED
