"""SCRAM, the client's side: against the example of RFC 7677, and against servers that
do not play by the rules."""

import base64
import hashlib
import hmac
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from barnabas.broker.configuration.scram_credentials import ScramChange
from barnabas.broker.configuration.stand_in_credentials import StandInCredentials
from barnabas.client.admin.scram_users import ScramPassword
from barnabas.security.errors import SaslError
from barnabas.security.mechanisms import SCRAM_MECHANISMS
from barnabas.security.sasl_client import login_of_broker
from barnabas.security.scram import SaltedPassword, ScramClient, ScramCredential, ScramServer, scram_credential
from barnabas.wire.kafka.messages.alter_user_scram_credentials import ScramCredentialUpsertion
from barnabas.wire.kafka.messages.sasl_authenticate import SaslAuthenticateRequest

NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_NONCE = NONCE + "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
SERVER_FIRST = f"r={SERVER_NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
STAND_INS = StandInCredentials(bytes(32))
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def client(username: str = "user", password: str = "pencil") -> ScramClient:
    """The RFC's."""
    return ScramClient("SCRAM-SHA-256", username, password, NONCE)


def test_the_messages_are_those_of_the_rfc() -> None:
    """RFC 7677, section 3."""
    made = client()
    assert made.first() == f"n,,n=user,r={NONCE}".encode()
    proof = "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    assert made.final(SERVER_FIRST.encode()) == f"c=biws,r={SERVER_NONCE},p={proof}".encode()
    made.verify(SERVER_FINAL)


@pytest.mark.parametrize("mechanism", SCRAM_MECHANISMS)
def test_a_server_that_has_the_stored_keys_alone_accepts_the_proof(mechanism: str) -> None:
    """What RFC 5802 has a server do: the proof gives the client's key, whose hash is
    the stored key."""
    name = SCRAM_MECHANISMS[mechanism].hash
    salted = hashlib.pbkdf2_hmac(name, "päss,=".encode(), b"salt", 4096)
    stored = hashlib.new(name, hmac.digest(salted, b"Client Key", name)).digest()
    made = ScramClient(mechanism, "a,b=c", "päss,=", "abc")
    bare = made.first().decode().removeprefix("n,,")
    assert bare == "n=a=2Cb=3Dc,r=abc"
    server_first = f"r=abcdef,s={base64.b64encode(b'salt').decode()},i=4096"
    without_proof, _, proof = made.final(server_first.encode()).decode().rpartition(",p=")
    signed = f"{bare},{server_first},{without_proof}".encode()
    signature = hmac.digest(stored, signed, name)
    key = bytes(a ^ b for a, b in zip(base64.b64decode(proof), signature, strict=True))
    assert hashlib.new(name, key).digest() == stored
    server_key = hmac.digest(salted, b"Server Key", name)
    made.verify(b"v=" + base64.b64encode(hmac.digest(server_key, signed, name)))


@pytest.mark.parametrize(
    ("message", "error"),
    [
        (f"r={SERVER_NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4095", "4095 SCRAM iterations"),
        (f"r={SERVER_NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=999999999", "999999999 SCRAM iterations"),
        (f"r={SERVER_NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=9999999999", "9999999999 SCRAM iterations"),
        (f"r={SERVER_NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i={'9' * 3000}", "makes no sense"),
        (f"r={NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", "does not continue"),
        ("r=another,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", "does not continue"),
        (f"r={SERVER_NONCE},s=W22,i=4096", "not base64"),
        (f"m=must,{SERVER_FIRST}", "makes no sense"),
        (f"r={SERVER_NONCE},i=4096", "makes no sense"),
        ("", "makes no sense"),
        ("\udcff", "not UTF-8"),
        (f"{SERVER_FIRST},x=".ljust(4097, "x"), "4097 bytes, and 4096 are the most"),
    ],
)
def test_a_first_message_that_is_not_by_the_rules_is_refused(message: str, error: str) -> None:
    """Before anything is computed with the password."""
    with pytest.raises(SaslError, match=error):
        client().final(message.encode(errors="surrogateescape"))


@pytest.mark.parametrize(
    ("message", "error"),
    [
        (b"v=AAAA", "does not know the password"),
        (b"v=", "makes no sense"),
        (b"e=invalid-proof", "the server refuses: invalid-proof"),
        (b"", "makes no sense"),
    ],
)
def test_a_server_without_the_password_is_refused(message: bytes, error: str) -> None:
    """Whatever it says at the end."""
    made = client()
    made.final(SERVER_FIRST.encode())
    with pytest.raises(SaslError, match=error):
        made.verify(message)


@pytest.mark.parametrize(("username", "password"), [("ann\udcff", "pencil"), ("ann", "\ud800")])
def test_half_a_character_is_refused(username: str, password: str) -> None:
    """UTF-8 has no bytes for it."""
    with pytest.raises(SaslError, match="lone surrogate"):
        client(username, password)


def test_a_signature_before_the_proof_is_refused() -> None:
    """A client that has computed nothing yet must not accept an empty signature."""
    with pytest.raises(SaslError, match="does not know the password"):
        client().verify(b"v=" + base64.b64encode(b"\0"))


@pytest.mark.parametrize("mechanism", SCRAM_MECHANISMS)
def test_a_password_is_salted_once_for_each_salt_and_number_of_iterations(mechanism: str) -> None:
    """The same bytes are the same object: they were not computed again.

    A server cannot fill the memory."""
    password = SaltedPassword(mechanism, "pencil")
    found = password.salted(b"salt", 4096)
    assert found == hashlib.pbkdf2_hmac(SCRAM_MECHANISMS[mechanism].hash, b"pencil", b"salt", 4096)
    assert password.salted(b"salt", 4096) is found
    assert len({found, password.salted(b"other", 4096), password.salted(b"salt", 4097)}) == 3
    for number in range(20):
        password.salted(b"%d" % number, 4096)
    assert len(password._known) <= 8


@pytest.mark.parametrize("mechanism", SCRAM_MECHANISMS)
def test_a_broker_proves_itself_on_each_connection_and_computes_no_more_than_kafkas_brokers_ask_for(
    mechanism: str,
) -> None:
    """Before anything is computed: who answers need not be a broker."""
    nonces = iter("abcd")
    begin = login_of_broker(mechanism, "broker", "pencil", lambda: next(nonces))
    for iterations in (4096, 16384, 16384):
        salted = hashlib.pbkdf2_hmac(SCRAM_MECHANISMS[mechanism].hash, b"pencil", b"salt", iterations)
        credential = scram_credential(mechanism, salted, b"salt", iterations)
        server = ScramServer(mechanism, {"broker": credential}.get, partial(STAND_INS.make, mechanism), "xyz")
        conversation = begin()
        final = server.evaluate(conversation.send(server.evaluate(next(conversation))))
        with pytest.raises(StopIteration):
            conversation.send(final)
        assert server.user == "broker"
    conversation = begin()
    assert next(conversation) == b"n,,n=broker,r=d"
    with pytest.raises(SaslError, match="16385 SCRAM iterations: 4096 to 16384 are accepted"):
        conversation.send(b"r=dxyz,s=c2FsdA==,i=16385")


def last_message(server_first: bytes, *, binding: bytes = b"n,,", nonce: Callable[[str], str] = str) -> bytes:
    """Ann's last message with a right proof, whatever channel binding and nonce it names."""
    first_bare, text = "n=ann,r=ours", server_first.decode()
    both, salt, iterations = (part[2:] for part in text.split(","))
    salted = hashlib.pbkdf2_hmac("sha256", b"secret", base64.b64decode(salt), int(iterations))
    without = f"c={base64.b64encode(binding).decode()},r={nonce(both)}"
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    signature = hmac.digest(hashlib.sha256(client_key).digest(), f"{first_bare},{text},{without}".encode(), "sha256")
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    return f"{without},p={base64.b64encode(proof).decode()}".encode()


def server_of_ann(iterations: int = 4096) -> ScramServer:
    salted = hashlib.pbkdf2_hmac("sha256", b"secret", b"salt", iterations)
    credential = scram_credential("SCRAM-SHA-256", salted, b"salt", iterations)
    return ScramServer("SCRAM-SHA-256", {"ann": credential}.get, partial(STAND_INS.make, "SCRAM-SHA-256"), "theirs")


@pytest.mark.parametrize(
    ("said", "is_right"),
    [
        ({}, True),
        ({"nonce": lambda both: f"before{both}"}, True),  # librdkafka before 2.3
        ({"nonce": lambda both: f"{both}behind"}, False),
        ({"nonce": lambda both: "ours"}, False),
        ({"nonce": lambda both: "theirs"}, False),
        ({"nonce": lambda both: "another"}, False),
        ({"binding": b"y,,"}, False),
        ({"binding": b"n,a=ann,"}, False),
        ({"binding": b"p=tls-unique,,"}, False),
    ],
)
def test_a_right_proof_for_another_nonce_or_channel_binding_is_refused(said: dict[str, Any], is_right: bool) -> None:
    """The password alone is not enough: the message must answer this server's on
    this connection."""
    server = server_of_ann()
    token = last_message(server.evaluate(b"n,,n=ann,r=ours"), **said)
    if is_right:
        server.evaluate(token)
    else:
        with pytest.raises(SaslError):
            server.evaluate(token)
    assert server.is_complete == is_right


def test_a_credential_of_too_few_iterations_is_not_used() -> None:
    """Whatever wrote it: 4096 are the least. Its user is answered as an unknown one."""
    server = server_of_ann(4095)
    first = server.evaluate(b"n,,n=ann,r=ours")
    assert first.startswith(b"r=ourstheirs,")
    assert first.endswith(b",i=4096")
    with pytest.raises(SaslError, match="too few iterations"):
        server.evaluate(last_message(first))
    assert not server.is_complete
    known = server_of_ann(4096)
    known.evaluate(last_message(known.evaluate(b"n,,n=ann,r=ours")))
    assert known.is_complete


@pytest.mark.parametrize(
    "made",
    [
        SaslAuthenticateRequest(auth_bytes=b"\0ann\0swordfish"),
        ScramCredentialUpsertion(
            name="ann", mechanism=1, iterations=4096, salt=b"swordfish", salted_password=b"swordfish"
        ),
        ScramChange("ann", 1, 4096, b"swordfish", b"swordfish"),
        ScramPassword("ann", "SCRAM-SHA-256", "swordfish"),
        ScramCredential(b"swordfish", b"swordfish", b"swordfish", 4096),
    ],
    ids=lambda made: type(made).__name__,
)
def test_what_is_printed_of_an_object_shows_no_secret(made: object) -> None:
    """Neither in a log, nor in an error, nor in the report of a failed test."""
    assert "swordfish" not in f"{made}{made!r}"
