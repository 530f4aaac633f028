"""Identities, access control lists and quotas: the same answers as Apache's server,
for kazoo and on the wire."""

import base64
import hashlib
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import InvalidACLError, NoAuthError
from kazoo.security import CREATOR_ALL_ACL, make_digest_acl

from barnabas.wire.jute.errors import ErrorCode
from barnabas.wire.jute.opcodes import OpCode
from barnabas.wire.jute.records import (
    ACL,
    OPEN_ACL,
    CheckVersionRequest,
    CreateRequest,
    DeleteRequest,
    GetACLRequest,
    GetDataRequest,
    Id,
    SetACLRequest,
    SetDataRequest,
)
from support.coordination import CoordinationProcess, RawClient, coordination_server
from support.needs import needs_reference

OPEN = list(OPEN_ACL)
SECRET = "s3cret-of-root"
SUPER_DIGEST = "root:" + base64.b64encode(hashlib.sha1(f"root:{SECRET}".encode()).digest()).decode()
SETTINGS = {"DigestAuthenticationProvider.superDigest": SUPER_DIGEST, "enforceQuota": "true"}


@pytest.fixture(params=["ours", pytest.param("apache", marks=[pytest.mark.java, needs_reference])])
def server(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[CoordinationProcess]:
    with coordination_server(tmp_path, apache=request.param == "apache", **SETTINGS) as running:
        yield running


def client_of(server: CoordinationProcess, stack: ExitStack, *credentials: str) -> KazooClient:
    client = KazooClient(server.address, timeout=10)
    client.start(60)
    stack.callback(client.close)
    stack.callback(client.stop)
    for each in credentials:
        client.add_auth("digest", each)
    return client


pytestmark = pytest.mark.interop


def test_kazoos_creator_all_acl_gives_the_node_to_its_creator(server: CoordinationProcess) -> None:
    """kazoo sends the id of ``auth`` as null; without an identity the list is invalid."""
    with ExitStack() as stack:
        bob, other = client_of(server, stack, "bob:pw"), client_of(server, stack)
        bob.create("/own", b"mine", acl=CREATOR_ALL_ACL)
        assert bob.get_acls("/own")[0] == [make_digest_acl("bob", "pw", all=True)]
        with pytest.raises(NoAuthError):
            other.get("/own")
        with pytest.raises(InvalidACLError):
            other.create("/nobodys", b"", acl=CREATOR_ALL_ACL)


def test_the_super_user_repairs_a_node_that_is_locked_for_all(server: CoordinationProcess) -> None:
    """It reads, sees password hashes, changes the list, deletes, and writes
    /zookeeper/config; others do not."""
    with ExitStack() as stack:
        owner, root = client_of(server, stack, "bob:pw"), client_of(server, stack, f"root:{SECRET}")
        locked = [make_digest_acl("gone", "forgotten", all=True)]
        owner.create("/locked", b"x", acl=locked)
        owner.create("/locked-too", b"x", acl=locked)
        wrong = client_of(server, stack, "root:wrong")
        for client in (owner, wrong):
            with pytest.raises(NoAuthError):
                client.get("/locked")
            with pytest.raises(NoAuthError):
                client.set("/zookeeper/config", b"")
        assert root.get("/locked")[0] == b"x"
        assert root.get_acls("/locked")[0] == locked
        root.set_acls("/locked", [make_digest_acl("bob", "pw", all=True)])
        assert owner.get("/locked")[0] == b"x"
        root.create("/own", b"", acl=CREATOR_ALL_ACL)
        assert root.get_acls("/own")[0] == [make_digest_acl("root", SECRET, all=True)]
        root.delete("/locked-too")
        assert SECRET not in server.log
        assert SUPER_DIGEST.split(":")[1] not in server.log


def quota(client: KazooClient, path: str, limits: str) -> None:
    client.ensure_path(f"/zookeeper/quota{path}")
    client.create(f"/zookeeper/quota{path}/zookeeper_limits", limits.encode())
    client.create(f"/zookeeper/quota{path}/zookeeper_stats", b"count=0,bytes=0")


def code_of(raw: RawClient, opcode: OpCode, request: object) -> ErrorCode:
    return ErrorCode(raw.call(opcode, request)[1])


def test_hard_limits_refuse_writes_and_soft_ones_do_not(server: CoordinationProcess) -> None:
    """Counts and bytes, at and below the path, by create and setData; a deletion makes room."""
    with ExitStack() as stack:
        client = client_of(server, stack)
        client.create("/hard", b"12345")
        client.create("/soft", b"12345")
        quota(client, "/hard", "count=1,bytes=-1=;byteHardLimit=20;countHardLimit=3")
        quota(client, "/soft", "count=1,bytes=6")
        raw = RawClient(server.port)
        stack.callback(raw.close)
        ok, exceeded = ErrorCode.OK, ErrorCode.QUOTA_EXCEEDED
        assert code_of(raw, OpCode.CREATE, CreateRequest("/hard/a", b"", OPEN, 0)) is ok
        assert code_of(raw, OpCode.CREATE, CreateRequest("/hard/a/b", b"", OPEN, 0)) is ok
        assert code_of(raw, OpCode.CREATE, CreateRequest("/hard/c", b"", OPEN, 0)) is exceeded
        assert code_of(raw, OpCode.SET_DATA, SetDataRequest("/hard/a", bytes(15), -1)) is ok
        assert code_of(raw, OpCode.SET_DATA, SetDataRequest("/hard/a/b", bytes(1), -1)) is exceeded
        assert code_of(raw, OpCode.SET_DATA, SetDataRequest("/hard/a", bytes(15), 7)) is ErrorCode.BAD_VERSION
        assert code_of(raw, OpCode.DELETE, DeleteRequest("/hard/a/b", -1)) is ok
        assert code_of(raw, OpCode.CREATE, CreateRequest("/hard/c", b"", OPEN, 0)) is ok
        assert code_of(raw, OpCode.CREATE, CreateRequest("/hard/d", None, OPEN, 0)) is exceeded
        assert code_of(raw, OpCode.CREATE, CreateRequest("/soft/a", bytes(100), OPEN, 0)) is ok
        assert client.get("/zookeeper/quota/hard/zookeeper_stats")[0] == b"count=3,bytes=20"
        assert client.get("/zookeeper/quota/soft/zookeeper_stats")[0] == b"count=2,bytes=105"


NULLS: list[list[ACL] | None] = [
    [ACL(31, Id("auth", None))],
    [ACL(31, Id("auth", None)), ACL(31, Id("auth", None))],
    [ACL(31, Id("auth", None)), ACL(1, Id("auth", None))],
    [ACL(31, Id("auth", "what is here has no meaning"))],
    [ACL(31, Id(None, None))],
    [ACL(31, Id(None, "anyone"))],
    [*OPEN, ACL(31, Id(None, "anyone"))],
    [*OPEN, ACL(1, Id(None, "anyone"))],
    [ACL(31, Id("world", None))],
    [ACL(31, Id("ip", None))],
    [ACL(31, Id("digest", None))],
    [ACL(31, Id("nonsense", None))],
    [ACL(31, Id("sasl", "bob"))],
    [ACL(31, Id("x509", "CN=bob"))],
    [ACL(31, Id("super", ""))],
    [ACL(31, Id("ip", "10.0.0.0/255.0.0.0"))],
    [ACL(31, Id("ip", "10.0.0.0/33"))],
    [ACL(31, Id("ip", "10.0.0.0/"))],
    [],
    None,
]


@pytest.mark.java
@needs_reference
def test_nulls_and_odd_ids_in_lists_are_answered_as_apache_answers_them(tmp_path: Path) -> None:
    """create, setACL and multi, with and without an identity: the same errors, zxids and lists."""
    with coordination_server(tmp_path / "a", apache=True) as apache, coordination_server(tmp_path / "o") as ours:
        raws = [RawClient(apache.port), RawClient(ours.port)]
        for turn in ("anonymous", "bob"):
            if turn == "bob":
                assert [raw.authenticate("digest", b"bob:pw") for raw in raws] == [0, 0]
            for number, acl in enumerate(NULLS):
                path = f"/{turn}-{number}"
                requests: list[tuple[OpCode, object]] = [
                    (OpCode.CREATE, CreateRequest(path, b"", acl, 0)),
                    (OpCode.GET_ACL, GetACLRequest(path)),
                    (OpCode.CREATE, CreateRequest(path + "-open", b"", OPEN, 0)),
                    (OpCode.SET_ACL, SetACLRequest(path + "-open", acl, -1)),
                ]
                for opcode, request in requests:
                    theirs, mine = (raw.call(opcode, request) for raw in raws)
                    bodies = slice(0, 3 if opcode is OpCode.CREATE else 2)
                    assert mine[bodies] == theirs[bodies], (request, acl)
        for raw in raws:
            raw.close()


@pytest.mark.java
@needs_reference
def test_numbers_that_are_no_operation_are_answered_as_apache_answers_them(tmp_path: Path) -> None:
    """UNIMPLEMENTED without a zxid, then the connection ends."""
    with coordination_server(tmp_path / "a", apache=True) as apache, coordination_server(tmp_path / "o") as ours:
        for opcode in (10, 99, 200):
            theirs, mine = (answer_of(server, opcode) for server in (apache, ours))
            assert mine == theirs == (-1, ErrorCode.UNIMPLEMENTED, b""), opcode


def test_a_check_outside_of_a_multi_is_unimplemented(tmp_path: Path) -> None:
    """As in ZooKeeper 3.9: 3.8 does not answer it at all."""
    with coordination_server(tmp_path) as server:
        assert answer_of(server, OpCode.CHECK) == (-1, ErrorCode.UNIMPLEMENTED, b"")


def answer_of(server: CoordinationProcess, opcode: int) -> tuple[int, int, bytes]:
    """The reply to a request of the type, after which the connection must end."""
    raw = RawClient(server.port)
    try:
        raw.call(OpCode.GET_DATA, GetDataRequest("/", False))
        reply = raw.call(opcode, CheckVersionRequest("/", -1))
        with pytest.raises((EOFError, ConnectionResetError)):
            raw.receive()
        return reply
    finally:
        raw.close()
