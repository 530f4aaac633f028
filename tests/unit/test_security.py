"""SASL mechanisms against their specification and against each other, and the files
with their secrets."""

import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.base.errors import ConfigError
from barnabas.security.digest_md5 import DigestMd5Client, DigestMd5Server, _quoted, _response
from barnabas.security.errors import SaslError
from barnabas.security.jaas import digest_credentials, digest_users, login_module, parse_jaas

USERS = {"bob": "bobsecret", "é": "ü☃", 'a"b\\': "x"}


def server(users: dict[str, str] = USERS) -> DigestMd5Server:
    counter = itertools.count()
    return DigestMd5Server(users, "zookeeper", "zk-sasl-md5", lambda size: bytes(size - 1) + bytes([next(counter)]))


def client(user: str, password: str, name: str = "zk-sasl-md5") -> DigestMd5Client:
    return DigestMd5Client(user, password, "zookeeper", name, lambda size: b"c" * size)


def test_the_proofs_are_those_of_the_specifications_example() -> None:
    """The example of RFC 2831, section 4."""
    said = {
        "username": "chris",
        "realm": "elwood.innosoft.com",
        "nonce": "OA6MG9tEQGm2hh",
        "nc": "00000001",
        "cnonce": "OA6MHXh6VqTrRk",
        "digest-uri": "imap/elwood.innosoft.com",
    }
    assert _response("secret", said, "AUTHENTICATE") == "d388dad90d4bbd760a152321f2143af7"
    assert _response("secret", said, "") == "ea40f60335c427b5527b84dbabcdfffd"


@pytest.mark.parametrize("user", list(USERS))
def test_a_user_with_the_password_is_authenticated_and_knows_the_server(user: str) -> None:
    """Both sides prove that they know the password; names may hold quotation marks
    and any script."""
    ours, theirs = server(), client(user, USERS[user])
    answer = theirs.evaluate(ours.evaluate(b""))
    assert not ours.is_complete
    assert theirs.evaluate(ours.evaluate(answer)) is None
    assert (ours.user, theirs.is_complete) == (user, True)


@pytest.mark.parametrize(
    "token",
    [
        client("bob", "wrong"),
        client("eve", "bobsecret"),
        client("bob", "bobsecret", "another-host"),
    ],
)
def test_a_client_without_the_right_password_user_or_service_is_refused(token: DigestMd5Client) -> None:
    """It is not completed, and gets no proof of the server's."""
    ours = server()
    with pytest.raises(SaslError):
        ours.evaluate(token.evaluate(ours.evaluate(b"")))
    assert not ours.is_complete


def test_no_change_of_a_right_response_is_accepted() -> None:
    """Another nonce, another user to act for, a second use, a directive twice,
    encryption, cut at any byte."""
    ours = server()
    right = client("bob", "bobsecret").evaluate(ours.evaluate(b""))
    changed = [right[:end] for end in range(len(right))]
    changed += [
        right.replace(b'authzid="bob"', b'authzid="super"'),
        right.replace(b"nc=00000001", b"nc=00000002"),
        right.replace(b"qop=auth", b"qop=auth-int"),
        right + b",nc=00000001",
        right + b"," * 5000,
        b"\xff" + right,
    ]
    for token in changed:
        with pytest.raises(SaslError):
            ours.evaluate(token)
        assert not ours.is_complete
    ours.evaluate(right)
    with pytest.raises(SaslError):
        ours.evaluate(right)
    with pytest.raises(SaslError):
        server().evaluate(right)


def test_a_response_that_was_recorded_is_refused_by_the_next_challenge() -> None:
    """Each challenge has a nonce of its own, and a response must be to that one."""
    recorded = client("bob", "bobsecret").evaluate(server().evaluate(b""))
    later = DigestMd5Server(USERS, "zookeeper", "zk-sasl-md5", lambda size: b"x" * size)
    later.evaluate(b"")
    with pytest.raises(SaslError, match="another challenge"):
        later.evaluate(recorded)
    assert not later.is_complete


@pytest.mark.parametrize(
    ("changed", "is_right"),
    [
        ({}, True),
        ({"nonce": "another"}, False),
        ({"nc": "00000002"}, False),
        ({"digest-uri": "zookeeper/another"}, False),
        ({"realm": "another"}, False),
        ({"authzid": "super"}, False),
        ({"username": "eve", "authzid": "eve"}, False),
    ],
)
def test_a_client_that_proves_the_password_for_something_else_is_refused(
    changed: dict[str, str], is_right: bool
) -> None:
    """The proof holds for what it says; an unknown user has no password, not an empty one."""
    ours = server()
    nonce = re.search(b'nonce="([^"]*)"', ours.evaluate(b""))[1].decode()  # type: ignore[index]  # it is there
    said = {
        "username": "bob", "realm": "zk-sasl-md5", "nonce": nonce, "nc": "00000001", "cnonce": "c",
        "digest-uri": "zookeeper/zk-sasl-md5", "authzid": "bob", **changed,
    }  # fmt: skip
    proof = _response(USERS.get(said["username"], ""), said, "AUTHENTICATE")
    token = ",".join(f"{name}={_quoted(text)}" for name, text in (*said.items(), ("response", proof))).encode()
    if is_right:
        ours.evaluate(token)
    else:
        with pytest.raises(SaslError):
            ours.evaluate(token)
    assert ours.is_complete == is_right


def test_a_server_that_does_not_know_the_password_is_found_out() -> None:
    """Mutual authentication: the client checks rspauth."""
    theirs = client("bob", "bobsecret")
    theirs.evaluate(server().evaluate(b""))
    with pytest.raises(SaslError):
        theirs.evaluate(b"rspauth=00000000000000000000000000000000")
    assert not theirs.is_complete


@given(
    st.sampled_from(["rspauth", "response", "username", "nonce", "cnonce", "realm", "digest-uri"]), st.text(min_size=1)
)
def test_any_text_in_a_directive_is_refused_and_never_an_exception_of_another_kind(name: str, text: str) -> None:
    """Outside ASCII too, on both sides; the text may be what a directive has already."""
    ours, theirs = server({"bob": "another password"}), client("bob", "bobsecret")
    right = theirs.evaluate(ours.evaluate(b"")).decode()
    wrong = re.sub(rf'\b{name}=("[^"]*"|[^,]*)', lambda _: f"{name}={_quoted(text)}", right)
    for side in (ours, theirs):
        with pytest.raises(SaslError):
            side.evaluate(f"{name}={_quoted(text)}".encode(errors="replace"))
    with pytest.raises(SaslError):
        ours.evaluate(wrong.encode(errors="replace"))


@given(st.binary(max_size=300))
def test_any_bytes_are_refused_and_never_an_exception_of_another_kind(token: bytes) -> None:
    """As a first message and as a response."""
    ours = server()
    ours.evaluate(b"")
    for side in (ours, client("bob", "bobsecret")):
        with pytest.raises(SaslError):
            side.evaluate(token)


JAAS = """
// a comment; with "signs"
Server {  # another
    org.apache.zookeeper.server.auth.DigestLoginModule required
    user_super="admin\\"secret" /* and
    another */ user_bob=bobsecret;
};
Client { org.apache.zookeeper.server.auth.DigestLoginModule required username="bob" password="bob;secret"; };
Kerberos { com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true; };
Empty { };
"""


@pytest.mark.parametrize(
    ("value", "password"),
    [
        (r'"x\"y"', 'x"y'),
        (r'"x\\y"', "x\\y"),
        (r'"x\\"', "x\\"),
        (r"'it\'s \"so\"'", 'it\'s "so"'),
        (r'"a\tb\101\7\4444"', "a\tbA\a$44"),
        ("plain", "plain"),
    ],
)
def test_values_are_read_as_java_reads_them(value: str, password: str) -> None:
    """Its StreamTokenizer has two quotation marks, and C's escapes."""
    assert login_module(f"a.B required password={value};", "x") == ("a.B", "required", {"password": password})


def test_a_jaas_file_gives_users_and_credentials() -> None:
    """Comments, quoted and plain values."""
    assert digest_users(JAAS, "jaas.conf", "Server") == {"super": 'admin"secret', "bob": "bobsecret"}
    assert digest_credentials(JAAS, "jaas.conf", "Client") == ("bob", "bob;secret")
    assert parse_jaas(JAAS, "jaas.conf")["Empty"] == []


@pytest.mark.parametrize(
    ("text", "section", "message"),
    [
        (JAAS, "Missing", "has no section Missing"),
        (JAAS, "Empty", "has no section Empty"),
        (JAAS, "Kerberos", "another login module in its section Kerberos, number 1"),
        (
            'Client { DigestLoginModule required username="b" password=x;geheim heim; };',
            "Client",
            "section Client, number 2",
        ),
        (JAAS, "Server", "no username and password"),
        ("Client { x required password", "Client", "= is expected"),
        ('Client { x required password="geheim', "Client", "not closed"),
        ("Client x", "Client", "{ is expected"),
        ("{", "Client", "the name of a section"),
        ("Client { x;", "Client", "required, requisite"),
    ],
)
def test_a_jaas_file_that_cannot_be_used_is_named_without_its_secrets(text: str, section: str, message: str) -> None:
    """The error says what is wrong, and quotes nothing."""
    with pytest.raises(ConfigError, match=message) as refused:
        digest_credentials(text, "jaas.conf", section)
    assert "geheim" not in str(refused.value)
    assert "secret" not in str(refused.value).replace("has no username", "")
