"""Each operation of clients against the permission that it needs, and who gets which identity."""

from typing import NamedTuple

import pytest

from barnabas.coordination.core.access import (
    SUPER,
    AccessList,
    AccessRules,
    checked_acl,
    digest_id,
    ip_id,
    is_allowed,
)
from barnabas.coordination.core.authenticating import step_sasl
from barnabas.coordination.core.operations.base import Staging, Stamp
from barnabas.coordination.core.operations.reconfig import leader_operation
from barnabas.coordination.core.paths import CONFIG_PATH
from barnabas.coordination.core.sessions import session_password
from barnabas.coordination.core.znode import DataNode
from barnabas.coordination.quorum.configuration import QuorumConfiguration
from barnabas.security.digest_md5 import DigestMd5Client, DigestMd5Server
from barnabas.wire.jute.codec import decode
from barnabas.wire.jute.errors import ErrorCode, KeeperError
from barnabas.wire.jute.frames import decode_multi_response, encode_request
from barnabas.wire.jute.opcodes import CreateMode, OpCode, Perms, Xid
from barnabas.wire.jute.records import (
    ACL,
    OPEN_ACL,
    AuthPacket,
    CheckVersionRequest,
    CreateRequest,
    CreateTTLRequest,
    DeleteRequest,
    ExistsRequest,
    GetACLRequest,
    GetACLResponse,
    GetAllChildrenNumberRequest,
    GetChildren2Request,
    GetChildrenRequest,
    GetDataRequest,
    GetSASLRequest,
    Id,
    ReconfigRequest,
    SetACLRequest,
    SetDataRequest,
    SetSASLResponse,
)
from support.coordination_processor import Client, Harness

EVERY = 31
BOB = digest_id(b"bob:pw")
ANYONE = Id("world", "anyone")
NODE = "/parent"
CHILD = f"{NODE}/child"
NEW = f"{NODE}/new"
OPEN = list(OPEN_ACL)


class Operation(NamedTuple):
    """An operation, and the permissions of which it needs one, on the node or on its parent."""

    needs: int
    opcode: OpCode
    request: object


READS = {
    "exists": ExistsRequest(NODE, False),
    "getData": GetDataRequest(NODE, False),
    "getChildren": GetChildrenRequest(NODE, False),
    "getChildren2": GetChildren2Request(NODE, False),
    "getAllChildrenNumber": GetAllChildrenNumberRequest(NODE),
}
OPCODES = {
    "exists": OpCode.EXISTS,
    "getData": OpCode.GET_DATA,
    "getChildren": OpCode.GET_CHILDREN,
    "getChildren2": OpCode.GET_CHILDREN2,
    "getAllChildrenNumber": OpCode.GET_ALL_CHILDREN_NUMBER,
}
WRITES = {
    "create": Operation(Perms.CREATE, OpCode.CREATE, CreateRequest(NEW, b"", OPEN, 0)),
    "create of a sequential ephemeral": Operation(
        Perms.CREATE, OpCode.CREATE, CreateRequest(NEW, b"", OPEN, CreateMode.EPHEMERAL_SEQUENTIAL)
    ),
    "create2": Operation(Perms.CREATE, OpCode.CREATE2, CreateRequest(NEW, b"", OPEN, 0)),
    "createContainer": Operation(
        Perms.CREATE, OpCode.CREATE_CONTAINER, CreateRequest(NEW, b"", OPEN, CreateMode.CONTAINER)
    ),
    "createTTL": Operation(
        Perms.CREATE, OpCode.CREATE_TTL, CreateTTLRequest(NEW, b"", OPEN, CreateMode.PERSISTENT_WITH_TTL, 1000)
    ),
    "delete": Operation(Perms.DELETE, OpCode.DELETE, DeleteRequest(CHILD, -1)),
    "setData": Operation(Perms.WRITE, OpCode.SET_DATA, SetDataRequest(NODE, b"new", -1)),
}
OPERATIONS = {
    **WRITES,
    **{name: Operation(Perms.READ, OPCODES[name], request) for name, request in READS.items()},
    "getACL": Operation(Perms.READ | Perms.ADMIN, OpCode.GET_ACL, GetACLRequest(NODE)),
    "setACL": Operation(Perms.ADMIN, OpCode.SET_ACL, SetACLRequest(NODE, OPEN, -1)),
}
PARTS = {
    "check": Operation(Perms.READ, OpCode.CHECK, CheckVersionRequest(NODE, -1)),
    **{name: each for name, each in WRITES.items() if "create" not in name or name in ("create", "create2")},
}


def authenticate(client: Client, credentials: bytes, scheme: str = "digest") -> None:
    """Send an auth packet."""
    client.receive(bytes(encode_request(Xid.AUTH, OpCode.AUTH, AuthPacket(0, scheme, credentials)))[4:])


def stranger(perms: int, **limits: object) -> Client:
    """A client that has ``perms`` on a node and on its child.

    Both belong to Bob, who has all permissions."""
    harness = Harness(ttl_nodes=True, **limits)
    bob = harness.connect()
    authenticate(bob, b"bob:pw")
    bob.take()
    acl = [ACL(EVERY, BOB), *([ACL(perms, ANYONE)] if perms else [])]
    for path in (NODE, CHILD):
        assert bob.call(OpCode.CREATE, CreateRequest(path, b"old", acl, 0))[0] == 0
    return harness.connect()


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
def test_an_operation_is_refused_with_every_permission_but_its_own(operation: Operation) -> None:
    """NO_AUTH, and nothing has changed."""
    client = stranger(EVERY & ~operation.needs)
    before = dict(client.harness.processor.database.tree.nodes)
    assert client.call(operation.opcode, operation.request)[0] == ErrorCode.NO_AUTH
    assert dict(client.harness.processor.database.tree.nodes) == before


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
def test_an_operation_needs_no_permission_but_its_own(operation: Operation) -> None:
    """One is enough; getACL has two, of which either will do."""
    for perms in Perms:
        if perms & operation.needs:
            assert stranger(perms).call(operation.opcode, operation.request)[0] == 0


@pytest.mark.parametrize("part", PARTS.values(), ids=PARTS)
def test_a_part_of_a_multi_is_refused_with_every_permission_but_its_own(part: Operation) -> None:
    """The whole multi has no effect."""
    client = stranger(EVERY & ~part.needs)
    before = dict(client.harness.processor.database.tree.nodes)
    _, body = client.call(OpCode.MULTI, [(part.opcode, part.request)])
    ((opcode, failed),) = decode_multi_response(body, 0)
    assert (opcode, failed.err) == (OpCode.ERROR, ErrorCode.NO_AUTH)
    assert dict(client.harness.processor.database.tree.nodes) == before


@pytest.mark.parametrize("name", ["getData", "getChildren"])
def test_a_part_of_a_multi_read_is_refused_without_the_permission_to_read(name: str) -> None:
    """In its place stands NO_AUTH."""
    _, body = stranger(EVERY & ~Perms.READ).call(OpCode.MULTI_READ, [(OPCODES[name], READS[name])])
    ((opcode, failed),) = decode_multi_response(body, 0)
    assert (opcode, failed.err) == (OpCode.ERROR, ErrorCode.NO_AUTH)


@pytest.mark.parametrize(
    ("perms", "credentials", "shown"),
    [
        (Perms.READ, None, "bob:x"),
        (EVERY & ~Perms.ADMIN, None, "bob:x"),
        (Perms.ADMIN, None, BOB.id),
        (0, b"bob:pw", BOB.id),
        (0, b"super:secret", BOB.id),
    ],
)
def test_password_hashes_are_shown_to_clients_that_may_administer_the_node(
    perms: int, credentials: bytes | None, shown: str
) -> None:
    """With a hash, a password can be guessed without the server."""
    client = stranger(perms, access=AccessRules(super_digest=digest_id(b"super:secret").id or ""))
    if credentials is not None:
        authenticate(client, credentials)
        client.take()
    error, body = client.call(OpCode.GET_ACL, GetACLRequest(NODE))
    assert error == 0
    assert decode(GetACLResponse, body).acl[0].id.id == shown


def test_a_read_only_server_asks_for_the_password_of_a_session() -> None:
    """Somebody who knows the id of a session alone cannot take it over, and its
    client stays connected."""
    reader = Harness(read_only=True)
    first = Client(reader, read_only=True)
    session_id = first.connected().session_id
    thief = Client(reader, session_id=session_id, password=b"0" * 16, read_only=True)
    assert thief.recorder.is_closed
    assert thief.recorder.frames == []
    assert not first.recorder.is_closed


def test_a_read_only_server_closes_the_connection_of_a_client_that_does_not_accept_one() -> None:
    """It must find a server with a quorum."""
    assert Client(Harness(read_only=True)).recorder.is_closed


class Leader:
    """A learner's way to a leader, of which nothing comes back."""

    is_read_only = False

    def __init__(self) -> None:
        self.revalidated: list[int] = []

    def revalidate(self, session_id: int, timeout_ms: int) -> None:
        self.revalidated.append(session_id)


def test_a_learner_asks_its_leader_about_sessions_whose_password_the_client_knows() -> None:
    """A wrong password is answered at once as an unknown session; what the leader answers
    decides about the others."""
    leader = Leader()
    learner = Harness(forwarder=leader)
    thief = Client(learner, session_id=7, password=b"0" * 16)
    assert thief.connected().session_id == 0
    assert thief.recorder.is_closed
    assert leader.revalidated == []
    for is_alive in (True, False):
        owner = Client(learner, session_id=7, password=session_password(7))
        assert leader.revalidated.pop() == 7
        learner.processor.revalidated(7, is_alive, learner.now_ms)
        assert owner.connected().session_id == (7 if is_alive else 0)
        assert owner.recorder.is_closed != is_alive


def test_session_ids_do_not_give_away_each_others_passwords() -> None:
    """Each session has a password of its own."""
    assert len({session_password(session_id) for session_id in range(100)}) == 100


@pytest.mark.parametrize("scheme", ["super", "world", "sasl", "x509", "auth", "nonsense", ""])
def test_an_identity_of_a_scheme_that_proves_nothing_is_refused_and_the_connection_ends(scheme: str) -> None:
    """A client cannot call itself the super user, nor the owner of a certificate."""
    client = stranger(0)
    authenticate(client, b"super:secret", scheme)
    ((xid, error, _),) = client.take()
    assert (xid, error) == (Xid.AUTH, ErrorCode.AUTH_FAILED)
    assert client.recorder.is_closed
    assert client.connection.ids == [ip_id("127.0.0.1")]


def test_the_name_of_the_super_user_alone_does_not_make_one() -> None:
    """Its digest is compared, not its name; without a digest in the settings there is none."""
    for super_digest in (digest_id(b"super:secret").id or "", ""):
        client = stranger(0, access=AccessRules(super_digest=super_digest))
        for password in (b"super:wrong", b"super:", b"super", b""):
            authenticate(client, password)
        assert SUPER not in client.connection.ids
        client.take()
        assert client.call(OpCode.GET_DATA, READS["getData"])[0] == ErrorCode.NO_AUTH


def test_a_digest_proves_nothing_where_the_scheme_is_switched_off() -> None:
    """DigestAuthenticationProvider.enabled=false."""
    client = Harness(access=AccessRules(schemes=frozenset(("ip",)))).connect()
    authenticate(client, b"bob:pw")
    assert client.recorder.is_closed
    assert client.connection.ids == [ip_id("127.0.0.1")]


def test_a_client_that_must_authenticate_is_not_served_before_it_has() -> None:
    """enforce.auth.schemes: its first request ends the connection, and has no effect."""
    rules = AccessRules(required_schemes=frozenset(("digest",)))
    harness = Harness(access=rules)
    client = harness.connect()
    error, _ = client.call(OpCode.CREATE, CreateRequest(NODE, b"", OPEN, 0))
    assert error == ErrorCode.SESSION_CLOSED_REQUIRE_SASL_AUTH
    assert client.recorder.is_closed
    assert NODE not in harness.processor.database.tree.nodes
    other = harness.connect()
    authenticate(other, b"bob:pw")
    other.take()
    assert other.call(OpCode.CREATE, CreateRequest(NODE, b"", OPEN, 0))[0] == 0


def sasl_client(password: str, rules: AccessRules) -> tuple[Client, list[tuple[int, SetSASLResponse]]]:
    """Bob's conversation with the server, with his password or another one.

    The server's answers."""
    client = Harness(access=rules).connect()
    bob = DigestMd5Client("bob", password, "zookeeper", "zk-sasl-md5", lambda size: b"c" * size)
    answers: list[tuple[int, SetSASLResponse]] = []
    token: bytes | None = b""
    while token is not None and not client.recorder.is_closed and len(answers) < 2:
        step_sasl(client.connection, 1, GetSASLRequest(token), rules, client.harness.processor.statistics)
        ((_, error, body),) = client.take()
        answers.append((error, decode(SetSASLResponse, body)))
        if len(answers) == 1:
            assert client.connection.ids == [ip_id("127.0.0.1")], "nothing is proven yet"
        token = bob.evaluate(answers[-1][1].token) if answers[-1][1].token else None
    return client, answers


def sasl_rules(**others: object) -> AccessRules:
    def new_server() -> DigestMd5Server:
        return DigestMd5Server({"bob": "pw"}, "zookeeper", "zk-sasl-md5", lambda size: b"s" * size)

    return AccessRules(schemes=frozenset(("ip", "sasl")), new_sasl_server=new_server, **others)


def test_a_sasl_user_is_one_when_the_password_is_proven() -> None:
    """And it is the super user if the settings name it."""
    client, answers = sasl_client("pw", sasl_rules(super_users=frozenset((Id("sasl", "alice"),))))
    assert [error for error, _ in answers] == [0, 0]
    assert client.connection.ids == [ip_id("127.0.0.1"), Id("sasl", "bob")]
    client, _ = sasl_client("pw", sasl_rules(super_users=frozenset((Id("sasl", "bob"),))))
    assert SUPER in client.connection.ids


def test_a_sasl_client_with_a_wrong_password_is_disconnected() -> None:
    """It has no identity."""
    client, answers = sasl_client("wrong", sasl_rules())
    assert [error for error, _ in answers] == [0, ErrorCode.AUTH_FAILED]
    assert client.recorder.is_closed
    assert client.connection.ids == [ip_id("127.0.0.1")]


def test_a_sasl_client_with_a_wrong_password_stays_without_identity_where_that_is_allowed() -> None:
    """allowSaslFailedClients; where SASL is required as well, it is disconnected."""
    client, answers = sasl_client("wrong", sasl_rules(maintains_failed_sasl_clients=True))
    assert [error for error, _ in answers] == [0, 0]
    assert not client.recorder.is_closed
    assert client.connection.ids == [ip_id("127.0.0.1")]
    client, answers = sasl_client(
        "wrong", sasl_rules(maintains_failed_sasl_clients=True, required_schemes=frozenset(("sasl",)))
    )
    assert answers[-1][0] == ErrorCode.SESSION_CLOSED_REQUIRE_SASL_AUTH
    assert client.recorder.is_closed


SCHEMES = frozenset(("digest", "ip", "sasl", "x509"))


@pytest.mark.parametrize(
    "identity",
    [
        Id("world", "everyone"), Id("world", ""), Id("digest", "bob"), Id("digest", "bob:a:b"), Id("ip", "10.0.0.0/33"),
        Id("ip", "::/129"), Id("ip", "10.0.0"), Id("ip", "host"), Id("x509", "bob"), Id("sasl", "bob@a@b"), Id("super", ""),
        Id("nonsense", "bob"), Id("", "anyone"),
    ],
    ids=repr,
)  # fmt: skip
def test_an_entry_that_no_client_could_ever_match_is_refused(identity: Id) -> None:
    """INVALID_ACL: such a list would lock its owner out, or be open by mistake."""
    with pytest.raises(KeeperError) as refused:
        checked_acl([ACL(EVERY, identity)], [BOB], NODE, SCHEMES)
    assert refused.value.code is ErrorCode.INVALID_ACL


def test_auth_stands_for_what_the_client_has_proven_and_never_for_its_address() -> None:
    """Another client from the same address would be the owner later."""
    own = [ip_id("10.0.0.1"), BOB, Id("sasl", "bob")]
    checked = checked_acl([ACL(EVERY, Id("auth", ""))], own, NODE, SCHEMES)
    assert checked == [ACL(EVERY, BOB), ACL(EVERY, Id("sasl", "bob"))]
    for acl in ([ACL(EVERY, Id("auth", ""))], [ACL(EVERY, Id("auth", "")), ACL(Perms.READ, ANYONE)]):
        with pytest.raises(KeeperError) as refused:
            checked_acl(acl, own[:1], NODE, SCHEMES)
        assert refused.value.code is ErrorCode.INVALID_ACL, "never a list without its owner"


def test_the_name_anyone_opens_a_node_in_the_scheme_world_alone() -> None:
    """A user of another scheme may have that name, and a list of a log another name of world."""
    for identity in (Id("world", "nobody"), Id("sasl", "anyone"), Id("digest", "anyone:x")):
        assert not is_allowed([ACL(EVERY, identity)], Perms.READ, [ip_id("10.0.0.1"), BOB])


def test_a_reconfiguration_needs_the_permission_to_write_the_configuration() -> None:
    """With the first list, which lets everyone read, only the super user has it;
    nothing is proposed for others."""
    proposed: list[int] = []
    members = QuorumConfiguration.parse({"server.1": "10.0.0.1:2888:3888;2181"})
    operation = leader_operation(
        lambda _request, zxid: members.with_version(zxid), lambda zxid, _: proposed.append(zxid)
    )
    harness = Harness()
    tree = harness.processor.database.tree
    tree.put(CONFIG_PATH, DataNode.new(CONFIG_PATH, b"", AccessList((ACL(Perms.READ, ANYONE),)), 0, 1, 0))
    request = ReconfigRequest(None, None, None, -1)

    def stage(*ids: Id) -> int:
        staging = Staging(tree, Stamp(1, 5, 0), list(ids), False, SCHEMES, None)
        return operation.decide(staging, (request,)).type

    with pytest.raises(KeeperError) as refused:
        stage(ip_id("10.0.0.1"), BOB)
    assert refused.value.code is ErrorCode.NO_AUTH
    assert proposed == []
    assert stage(SUPER) == OpCode.RECONFIG
    assert proposed == [5]


@pytest.mark.parametrize("network", ["::/0", "::/64", "::/96", "::a00:1"])
def test_an_address_of_one_version_of_ip_is_in_no_network_of_the_other(network: str) -> None:
    """Their numbers may be equal."""
    assert not is_allowed([ACL(EVERY, Id("ip", network))], Perms.READ, [ip_id("10.0.0.1")])
    assert not is_allowed([ACL(EVERY, Id("ip", "0.0.0.0/0"))], Perms.READ, [ip_id("::1")])
