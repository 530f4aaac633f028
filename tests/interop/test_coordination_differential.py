"""The same requests to Apache's server and to ours: the same replies, byte for byte but
for times and session ids."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.coordination.core.sessions import session_password
from barnabas.wire.jute.codec import MalformedRecordError, decode, decode_from
from barnabas.wire.jute.frames import decode_multi_response
from barnabas.wire.jute.opcodes import OpCode
from barnabas.wire.jute.records import (
    ACL,
    AddWatchRequest,
    CheckVersionRequest,
    CheckWatchesRequest,
    Create2Response,
    CreateRequest,
    CreateResponse,
    CreateTTLRequest,
    DeleteRequest,
    ErrorResponse,
    ExistsRequest,
    ExistsResponse,
    GetACLRequest,
    GetACLResponse,
    GetAllChildrenNumberRequest,
    GetAllChildrenNumberResponse,
    GetChildren2Request,
    GetChildren2Response,
    GetChildrenRequest,
    GetChildrenResponse,
    GetDataRequest,
    GetDataResponse,
    GetEphemeralsRequest,
    GetEphemeralsResponse,
    Id,
    ReconfigRequest,
    RemoveWatchesRequest,
    SetACLRequest,
    SetACLResponse,
    SetDataRequest,
    SetDataResponse,
    SetWatches,
    SetWatches2,
    Stat,
    SyncRequest,
    SyncResponse,
    WatcherEvent,
    WhoAmIResponse,
)
from support.coordination import RawClient, coordination_server
from support.needs import needs_reference

pytestmark = [pytest.mark.interop, pytest.mark.java, needs_reference]

RESPONSES = {
    OpCode.CREATE: CreateResponse,
    OpCode.CREATE2: Create2Response,
    OpCode.CREATE_CONTAINER: Create2Response,
    OpCode.CREATE_TTL: Create2Response,
    OpCode.EXISTS: ExistsResponse,
    OpCode.GET_DATA: GetDataResponse,
    OpCode.SET_DATA: SetDataResponse,
    OpCode.GET_ACL: GetACLResponse,
    OpCode.SET_ACL: SetACLResponse,
    OpCode.GET_CHILDREN: GetChildrenResponse,
    OpCode.GET_CHILDREN2: GetChildren2Response,
    OpCode.GET_ALL_CHILDREN_NUMBER: GetAllChildrenNumberResponse,
    OpCode.GET_EPHEMERALS: GetEphemeralsResponse,
    OpCode.SYNC: SyncResponse,
    OpCode.ADD_WATCH: ErrorResponse,
    OpCode.WHO_AM_I: WhoAmIResponse,
}
OPEN = [ACL(31, Id("world", "anyone"))]
ACLS = [
    OPEN,
    OPEN,
    OPEN,
    [ACL(1, Id("world", "anyone"))],
    [ACL(31, Id("auth", ""))],
    [ACL(31, Id("digest", "bob:FmFkPvVxxfWpMHFwXFhAmwEaVUY="))],
    [ACL(1, Id("world", "anyone")), ACL(31, Id("digest", "eve:x")), ACL(1, Id("world", "anyone"))],
    [ACL(31, Id("ip", "127.0.0.1")), ACL(1, Id("ip", "10.0.0.0/8"))],
    [ACL(31, Id("ip", "127.0.0.0/8"))],
    [ACL(31, Id("ip", "not an address"))],
    [ACL(31, Id("digest", "no-colon"))],
    [ACL(31, Id("world", "everyone"))],
    [ACL(31, Id("nonsense", "x"))],
    [],
    None,
]
SETTINGS = {"extendedTypesEnabled": "true", "zookeeper.extendedTypesEnabled": "true", "enforceQuota": "true"}
NAMES = ["a", "b", "c", "é", "x y", "seq-"]
QUOTAS = [
    ("", [b""]),
    (
        "/zookeeper_limits",
        [b"count=2,bytes=20", b"count=-1,bytes=-1=;byteHardLimit=10;countHardLimit=3", b"junk", None],
    ),
    ("/zookeeper_stats", [b"count=1,bytes=0", b"count=-1,bytes=-1"]),
]
LIMITS = [
    b"count=2,bytes=20",
    b"count=-1,bytes=-1",
    b"count=-1,bytes=-1=;byteHardLimit=10;countHardLimit=3",
    b"count=1,bytes=5=;byteHardLimit=60;countHardLimit=2",
    b"count=5,bytes=1000=;byteHardLimit=2000;countHardLimit=7",
    b"count=-1,bytes=-1=;countHardLimit=0",
    b"count=-1,bytes=-1=;byteHardLimit=0",
    b"count=-1,bytes=-1=;byteHardLimit=-5;countHardLimit=-2",
    b"countHardLimit=2",
    b"byteHardLimit=4",
    b"count=1,,bytes=+1,",
    b"a=1=;",
    b"",
    # Not readable: what is below cannot be created or set.
    b"bytes=3;;count=",
    b"count",
    b"count=99999999999999999999",
    b",count=1",
    b"\xff",
    None,
]
USAGES = [b"count=1,bytes=0", b"", b"count=5", b"zz=1;count=2;Beta=4", b"count=9223372036854775807,bytes=-1"]
"""Apache's server stops at the first write below usage that it cannot read: there is none here."""
ODD_PATHS = [
    "",
    "/",
    "//",
    "a",
    "a/b",
    "/a/",
    "/a//b",
    "/.",
    "/..",
    "/a/./b",
    "/a/..",
    "/a.",
    "/...",
    "/a\0b",
    "/\x01",
    "/\x7f",
    "/\ue000",
    "/\ufff0",
    "/zookeeper",
    "/zookeeper/quota",
    "/zookeeper/config",
    "/zookeeper/x",
]


class Requests:
    """A seeded stream of requests."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)

    def path(self) -> str:
        if self.rng.random() < 0.08:
            return self.rng.choice(ODD_PATHS)
        return "".join("/" + self.rng.choice(NAMES) for _ in range(self.rng.choice([1, 1, 1, 2, 2, 3])))

    def plain_path(self) -> str:
        """A path for watches that fire once: 3.8 lets a later watch take the mode of an
        earlier one on its path."""
        while (path := self.path()).startswith(("/a", "/b")):
            pass
        return path

    def data(self) -> bytes | None:
        return self.rng.choice([None, b"", b"x", b"data" * 10])

    def version(self) -> int:
        return self.rng.choice([-1, -1, -1, 0, 1, 2, -2])

    def write(self) -> tuple[int, object]:
        rng = self.rng
        kind = rng.randrange(12)
        if kind == 10:
            ttl_ms = rng.choice([1_000_000, 1 << 39, 0, -1, 1 << 41])
            return OpCode.CREATE_TTL, CreateTTLRequest(
                self.path(), self.data(), rng.choice(ACLS), rng.choice([5, 6]), ttl_ms
            )
        if kind == 11:
            return self.quota()
        if kind < 4:
            opcode = rng.choice([OpCode.CREATE, OpCode.CREATE, OpCode.CREATE2])
            flags = rng.choice([0, 0, 0, 0, 1, 2, 3, 4, 5, 99])
            return opcode, CreateRequest(self.path(), self.data(), rng.choice(ACLS), flags)
        if kind == 4:
            return OpCode.CREATE_CONTAINER, CreateRequest(self.path(), self.data(), OPEN, 4)
        if kind < 7:
            return OpCode.DELETE, DeleteRequest(self.path(), self.version())
        return OpCode.SET_DATA, SetDataRequest(self.path(), self.data(), self.version())

    def quota(self) -> tuple[int, object]:
        """A quota is set, counted or removed."""
        node = f"/zookeeper/quota/{self.rng.choice('abc')}"
        name, texts = self.rng.choice(QUOTAS)
        if self.rng.random() < 0.2:
            return OpCode.DELETE, DeleteRequest(node + name, -1)
        return OpCode.CREATE, CreateRequest(node + name, self.rng.choice(texts), OPEN, 0)

    def multi_part(self) -> tuple[int, object]:
        while True:
            opcode, request = self.write()
            # A mode that cannot be ends the whole multi, with or without a zxid.
            if isinstance(request, CreateRequest) and request.flags in (5, 99):
                continue
            if self.rng.random() < 0.2:
                return OpCode.CHECK, CheckVersionRequest(self.path(), self.version())
            return opcode, request

    def request(self) -> tuple[int, object]:
        rng = self.rng
        watched = (self.plain_path(), True) if rng.random() < 0.4 else (self.path(), False)
        kind = rng.randrange(30)
        if kind < 11:
            return self.write()
        if kind < 13:
            return OpCode.MULTI, [self.multi_part() for _ in range(rng.randrange(5))]
        if kind == 13:
            ops = [OpCode.GET_DATA, OpCode.GET_CHILDREN]
            types = {OpCode.GET_DATA: GetDataRequest, OpCode.GET_CHILDREN: GetChildrenRequest}
            return OpCode.MULTI_READ, [
                (op, types[op](self.path(), False)) for op in rng.choices(ops, k=rng.randrange(4))
            ]
        if kind == 14:
            return OpCode.SET_ACL, SetACLRequest(self.path(), rng.choice(ACLS), rng.choice([-1, -1, 0, 1]))
        if kind == 15:
            return OpCode.GET_ACL, GetACLRequest(self.path())
        if kind == 16:
            lists = [[self.plain_path() for _ in range(rng.randrange(3))] for _ in range(3)]
            lists += [rng.choices(["/b", "/b/c", "/b/x y"], k=1), rng.choices(["/a", "/a/b"], k=1)]
            zxid = rng.choice([0, 10, 1 << 40])
            if rng.random() < 0.5:
                return OpCode.SET_WATCHES, SetWatches(zxid, *lists[:3])
            return OpCode.SET_WATCHES2, SetWatches2(zxid, *lists)
        if kind == 17:
            return OpCode.ADD_WATCH, AddWatchRequest(*rng.choice([("/b", 0), ("/b/c", 0), ("/a", 1), ("/a/c", 1)]))
        if kind == 18:
            return OpCode.REMOVE_WATCHES, RemoveWatchesRequest(self.path(), rng.choice([1, 2, 3, 3, 4, 5, 7]))
        if kind == 19:
            return OpCode.CHECK_WATCHES, CheckWatchesRequest(self.path(), rng.choice([1, 2, 3, 3, 4, 5, 0]))
        if kind == 20:
            return OpCode.GET_EPHEMERALS, GetEphemeralsRequest(rng.choice(["/", "/a", "", None, "/b/"]))
        if kind == 21:
            return OpCode.GET_ALL_CHILDREN_NUMBER, GetAllChildrenNumberRequest(self.path())
        if kind == 22:
            return OpCode.SYNC, SyncRequest(self.path())
        if kind == 23:
            return rng.choice(
                [
                    (OpCode.WHO_AM_I, None),
                    (OpCode.RECONFIG, ReconfigRequest("server.2=x:1:2", None, None, -1)),
                    (OpCode.CREATE_TTL, CreateTTLRequest(self.path(), b"", OPEN, 5, 1000)),
                ]
            )
        if kind < 26:
            return OpCode.EXISTS, ExistsRequest(*watched)
        if kind < 28:
            return OpCode.GET_DATA, GetDataRequest(*watched)
        if kind == 28:
            return OpCode.GET_CHILDREN, GetChildrenRequest(*watched)
        return OpCode.GET_CHILDREN2, GetChildren2Request(*watched)


class QuotaRequests(Requests):
    """Writes to few paths, with quotas at several of them, some inside of others."""

    LIMITED = ("/a", "/a/b", "/a/b/c", "/b", "/c/a", "/zookeeper")

    def path(self) -> str:
        return "".join("/" + self.rng.choice("abc") for _ in range(self.rng.choice([1, 1, 2, 2, 2, 3, 3])))

    def quota(self) -> tuple[int, object]:
        limited = f"/zookeeper/quota{self.rng.choice(self.LIMITED)}"
        name, texts = self.rng.choice([("zookeeper_limits", LIMITS), ("zookeeper_stats", USAGES)])
        kind = self.rng.randrange(10)
        if kind < 3:
            return OpCode.CREATE, CreateRequest(limited[: self.rng.choice([18, 20, 22, 27])], b"", OPEN, 0)
        if kind < 7:
            return OpCode.CREATE, CreateRequest(f"{limited}/{name}", self.rng.choice(texts), OPEN, 0)
        if kind < 9:
            return OpCode.SET_DATA, SetDataRequest(f"{limited}/{name}", self.rng.choice(texts), -1)
        return OpCode.DELETE, DeleteRequest(f"{limited}/{name}", -1)

    def request(self) -> tuple[int, object]:
        kind = self.rng.randrange(10)
        if kind < 5:
            return self.write()
        if kind < 7:
            return self.quota()
        if kind == 7:
            return OpCode.MULTI, [self.multi_part() for _ in range(self.rng.randrange(5))]
        limited = f"/zookeeper/quota{self.rng.choice(self.LIMITED)}"
        return OpCode.GET_DATA, GetDataRequest(f"{limited}/zookeeper_stats", False)


def without_times(value: object) -> object:
    """A record as it can be compared: without times and session ids, names in order."""
    if isinstance(value, Stat):
        value.ctime = bool(value.ctime)
        value.mtime = bool(value.mtime)
        if value.ephemeral_owner > 0:
            value.ephemeral_owner = 1
    for name in ("children", "ephemerals", "client_info"):
        if hasattr(value, name):
            setattr(value, name, sorted(getattr(value, name), key=repr))
    if hasattr(value, "stat"):
        value.stat = without_times(value.stat)
    return value


def comparable(opcode: int, reply: tuple[int, int, bytes]) -> object:
    zxid, err, body = reply
    if opcode == OpCode.CHECK_WATCHES:
        return zxid  # 3.8 takes anybody's watch for the client's own; later versions and we do not
    if err or not body:
        return zxid, err
    if opcode in (OpCode.MULTI, OpCode.MULTI_READ):
        parts = decode_multi_response(body, 0)
        return zxid, err, [(kind, repr(without_times(record))) for kind, record in parts]
    record, end = decode_from(RESPONSES[OpCode(opcode)], body)
    assert end == len(body)
    return zxid, err, repr(without_times(record))


def events_of(client: RawClient) -> list[str]:
    """What its watches have seen: events come before the answer to any later request."""
    client.call(OpCode.EXISTS, ExistsRequest("/", False))
    return [repr(decode(WatcherEvent, event)) for event in client.drain_events(0)]


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[int, int]]:
    with (
        coordination_server(tmp_path / "apache", apache=True, release="3.9", **SETTINGS) as apache,
        coordination_server(tmp_path / "ours", **SETTINGS) as ours,
    ):
        yield apache.port, ours.port


@pytest.mark.parametrize(("kind", "seed"), [(Requests, 1), (Requests, 2), (QuotaRequests, 1)])
def test_random_requests_are_answered_as_apache_answers_them(
    pair: tuple[int, int], kind: type[Requests], seed: int
) -> None:
    """Two sessions, a thousand requests: equal results, stats, zxids, errors and watch events."""
    requests = kind(seed)
    clients = [[RawClient(port), RawClient(port)] for port in pair]
    for client in clients[0]:
        assert client.response.password == session_password(client.response.session_id)
    for client in (clients[0][0], clients[1][0]):
        assert client.authenticate("digest", b"bob:secret") == 0
    done = 0
    for step in range(1000):
        who = requests.rng.randrange(2)
        if step % 250 == 249:
            # The session goes with its ephemerals, a new one comes.
            for side in (0, 1):
                assert clients[side][who].call(OpCode.CLOSE_SESSION)[1] == 0
                clients[side][who].close()
                clients[side][who] = RawClient(pair[side])
        opcode, request = requests.request()
        try:
            apache, ours = (comparable(opcode, clients[side][who].call(opcode, request)) for side in (0, 1))
        except (MalformedRecordError, EOFError) as error:
            pytest.fail(f"step {step}: {OpCode(opcode).name} {request}: {error!r}")
        assert ours == apache, f"step {step}: {OpCode(opcode).name} {request}"
        if step % 10 == 0:
            for which in (0, 1):
                theirs, mine = (events_of(clients[side][which]) for side in (0, 1))
                assert mine == theirs, f"events up to step {step}: {OpCode(opcode).name} {request}"
        done += 1
    assert done == 1000
    for side in (0, 1):
        for client in clients[side]:
            client.close()
