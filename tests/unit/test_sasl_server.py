"""A listener with SASL: what is served before a client is authenticated, and how
each mistake ends."""

import base64
import contextlib
import hashlib
import hmac
import logging
import re
import struct
import sys
from functools import partial
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.base.network import Standing
from barnabas.broker.configuration.stand_in_credentials import StandInCredentials
from barnabas.broker.requests.authentication_failures import AuthenticationFailures
from barnabas.broker.requests.dispatch import _FastApi
from barnabas.broker.requests.sasl_connection import SaslConnection
from barnabas.broker.requests.sasl_server_authenticator import FrameVerdict, SaslServerAuthenticator
from barnabas.security.errors import SaslError
from barnabas.security.mechanisms import SCRAM_MECHANISMS
from barnabas.security.plain import PlainServer
from barnabas.security.sasl_client import converse
from barnabas.security.scram import ScramServer, scram_credential
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.messages.api_versions import ApiVersionsRequest
from barnabas.wire.kafka.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas.wire.kafka.messages.sasl_authenticate import SaslAuthenticateRequest
from barnabas.wire.kafka.messages.sasl_handshake import SaslHandshakeRequest
from support.broker import DATA_PATH_APIS, DataPath, Wire

DELAY_MS = 100
MAX_RECEIVE = 1000
USERS = {"ann": "secret,=x", "bob": "other"}
KNOWN = USERS
"""As the broker has them now."""
SCRAM = "SCRAM-SHA-256"
NOTHING = ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=[])
VERSIONS = ApiVersionsRequest(client_software_name="test", client_software_version="1")


def credential(mechanism: str, user: str):
    """As a broker has it."""
    if user not in KNOWN:
        return None
    salted = hashlib.pbkdf2_hmac(SCRAM_MECHANISMS[mechanism].hash, KNOWN[user].encode(), b"salt", 4096)
    return scram_credential(mechanism, salted, b"salt", 4096)


def scram_server(mechanism: str = SCRAM) -> ScramServer:
    """As a broker makes it."""
    stand_in = partial(StandInCredentials(bytes(32)).make, mechanism)
    return ScramServer(mechanism, partial(credential, mechanism), stand_in, "srv")


class SaslBroker(DataPath):
    """A broker whose connections have SASL."""

    def __init__(self, directory: Path, *, reauth_ms: int = 0, mechanisms: tuple[str, ...] = ("PLAIN", SCRAM)) -> None:
        super().__init__(directory)
        self.serve((*DATA_PATH_APIS, "sasl_authenticate", "sasl_handshake"))
        self.mechanisms = mechanisms
        self.reauth_ms = dict.fromkeys(mechanisms, reauth_ms)

    def make(self, name: str):
        return PlainServer(KNOWN) if name == "PLAIN" else scram_server(name)

    def connect(self) -> Wire:
        wire = Wire()
        wire.max_frame_bytes = 100_000
        opened = self.dispatcher.accept("SASL_PLAINTEXT", wire)
        wire.handler = SaslConnection(
            self.dispatcher,
            opened,
            wire,
            SaslServerAuthenticator(self.mechanisms, self.make, self.reauth_ms),
            self.timers,
            AuthenticationFailures(self.timers),
            max_receive_bytes=MAX_RECEIVE,
            failure_delay_ms=DELAY_MS,
            member="bob",
        )
        wire.client = opened.client
        return wire


def shake(wire: Wire, mechanism: str = "PLAIN", version: int = 1):
    return wire.ask(SaslHandshakeRequest(mechanism=mechanism), version)


def token(wire: Wire, data: bytes, version: int = 2):
    return wire.ask(SaslAuthenticateRequest(auth_bytes=data), version)


def log_in(wire: Wire, mechanism: str = "PLAIN", user: str = "ann") -> int:
    """The lifetime of the authentication."""
    assert shake(wire, mechanism).error_code == 0
    conversation = converse(mechanism, user, USERS[user], "cln")
    said = next(conversation)
    while True:
        answer = token(wire, said)
        assert answer.error_code == 0
        try:
            said = conversation.send(answer.auth_bytes)
        except StopIteration:
            return answer.session_lifetime_ms


def fails_after_the_delay(broker: SaslBroker, wire: Wire):
    """The answer, None if there is none; nothing is read meanwhile."""
    assert wire.is_paused
    assert wire.sent == []
    assert not wire.is_closed
    broker.timers.advance(DELAY_MS - 1)
    assert wire.sent == []
    broker.timers.advance(1)
    assert wire.is_closed
    return wire.answer()


@pytest.mark.parametrize("mechanism", ["PLAIN", SCRAM])
def test_a_client_that_proves_who_it_is_is_served(tmp_path: Path, mechanism: str) -> None:
    """ApiVersions first, then the handshake; afterwards requests may be as large as everywhere."""
    broker = SaslBroker(tmp_path)
    wire = broker.connect()
    assert wire.max_frame_bytes == MAX_RECEIVE
    listed = {each.api_key for each in wire.ask(VERSIONS, 3).api_keys}
    assert {17, 36} <= listed
    assert log_in(wire, mechanism) == 0
    assert wire.client.principal == "User:ann"
    assert wire.max_frame_bytes == 100_000
    assert wire.ask(NOTHING, 7).topics == []
    assert shake(wire).error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert token(wire, b"x").error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert wire.ask(NOTHING, 7).topics == []


@pytest.mark.parametrize(("user", "standing"), [("ann", Standing.CLIENT), ("bob", Standing.MEMBER)])
def test_a_peer_is_a_stranger_until_it_has_proved_who_it_is(tmp_path: Path, user: str, standing: Standing) -> None:
    """What waits for it counts as a client's then, or as a broker's."""
    wire = SaslBroker(tmp_path).connect()
    assert wire.standing is Standing.STRANGER
    log_in(wire, user=user)
    assert wire.standing is standing


def test_tokens_without_headers_follow_a_handshake_in_version_0(tmp_path: Path) -> None:
    """Clients before Kafka 1.0; a wrong password has no answer."""
    broker = SaslBroker(tmp_path)
    wire = broker.connect()
    assert shake(wire, SCRAM, 0).mechanisms == ["PLAIN", SCRAM]
    conversation = converse(SCRAM, "ann", USERS["ann"], "cln")
    said = next(conversation)
    for _ in range(2):
        wire.handler.frame(memoryview(bytearray(said)))
        answer = wire.sent.pop(0)
        assert int.from_bytes(answer[:4], "big") == len(answer) - 4
        with contextlib.suppress(StopIteration):
            said = conversation.send(answer[4:])
    assert wire.ask(NOTHING, 7).topics == []
    wrong = broker.connect()
    shake(wrong, "PLAIN", 0)
    wrong.handler.frame(memoryview(bytearray(b"\0ann\0wrong")))
    assert fails_after_the_delay(broker, wrong) is None


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (b"\0ann\0wrong", "Authentication failed: Invalid username or password"),
        (b"\0eve\0secret", "Authentication failed: Invalid username or password"),
        (b"\0ann\0", "Authentication failed: password not specified"),
        (b"\0\0secret", "Authentication failed: username not specified"),
        (b"bob\0ann\0" + USERS["ann"].encode(), "authorization id that is different from username"),
        (b"", "expected 3 tokens, got 1"),
        (b"\0a\0b\0c\0d", "expected 3 tokens, got 4"),
        (b"\0\xff\0\xff", "Invalid username or password"),
    ],
)
def test_a_wrong_message_of_plain_is_answered_in_kafkas_words(tmp_path: Path, said: bytes, words: str) -> None:
    """After the delay, and the connection ends; an unknown user and a wrong password
    look the same."""
    broker = SaslBroker(tmp_path)
    wire = broker.connect()
    shake(wire)
    wire.post(SaslAuthenticateRequest(auth_bytes=said), 2)
    answer = fails_after_the_delay(broker, wire)
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert words in answer.error_message
    assert "secret" not in answer.error_message


@pytest.mark.parametrize(
    "said",
    [
        *(b"", b"\xff", b"n,,n=ann,r=", b"n,,r=x,n=ann", b"y,,n=ann,r=x", b"n,,n=a=nn,r=x"),
        *(b"n,,n=ann,r=a b", b"p=tls-unique,,n=ann,r=x", b"n,,n=ann,r=x\0", b"n,,n=ann,r=x,tokenauth=true"),
    ],
)
def test_a_wrong_first_message_of_scram_says_no_more_than_that(tmp_path: Path, said: bytes) -> None:
    """As in Kafka: the answer does not show what was wrong."""
    broker = SaslBroker(tmp_path)
    wire = broker.connect()
    shake(wire, SCRAM)
    wire.post(SaslAuthenticateRequest(auth_bytes=said), 1)
    answer = fails_after_the_delay(broker, wire)
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert answer.error_message == (
        f"Authentication failed during authentication due to invalid credentials with SASL mechanism {SCRAM}"
    )


@pytest.mark.parametrize("mechanism", SCRAM_MECHANISMS)
def test_an_unknown_user_is_answered_as_one_with_a_wrong_password(tmp_path: Path, mechanism: str) -> None:
    """Message by message and by the same time, whatever the client sends as its proof."""
    broker = SaslBroker(tmp_path, mechanisms=("PLAIN", mechanism))
    for change in (lambda token: token, lambda token: token.partition(b",p=")[0], lambda _: b"\xff"):
        answers = []
        for user in ("ann", "eve", "Ann", "\uff41nn", "a\u0301nn"):
            wire = broker.connect()
            shake(wire, mechanism)
            conversation = converse(mechanism, user, "guess", "cln")
            first = token(wire, next(conversation))
            assert re.fullmatch(rb"r=clnsrv,s=[A-Za-z0-9+/=]+,i=4096", first.auth_bytes)
            wire.post(SaslAuthenticateRequest(auth_bytes=change(conversation.send(first.auth_bytes))), 2)
            answer = fails_after_the_delay(broker, wire)
            answers.append((first.error_code, first.session_lifetime_ms, answer))
        assert all(answer == answers[0] for answer in answers)


def test_an_unknown_user_that_names_another_is_answered_as_a_known_one_that_does() -> None:
    """The authorization id is compared with the name, whether the name is known or not."""
    errors = []
    for user in ("ann", "eve"):
        with pytest.raises(SaslError) as caught:
            scram_server().evaluate(f"n,a=bob,n={user},r=cln".encode())
        errors.append((str(caught.value), caught.value.is_for_client))
    assert errors[0] == errors[1]


def test_a_proof_that_was_recorded_is_refused_on_the_next_connection() -> None:
    """Each connection has a nonce of its own, which the proof covers."""
    first, second = scram_server(), scram_server()
    second._nonce = "other"
    conversation = converse(SCRAM, "ann", USERS["ann"], "cln")
    said = next(conversation)
    proof = conversation.send(first.evaluate(said))
    first.evaluate(proof)
    second.evaluate(said)
    with pytest.raises(SaslError, match="nonce"):
        second.evaluate(proof)
    with pytest.raises(SaslError):
        second.evaluate(proof.replace(b"r=clnsrv", b"r=clnother"))
    assert not second.is_complete


@pytest.mark.parametrize(
    ("mechanism", "said"),
    [
        ("PLAIN", b"\0ann\0".ljust(4097, b"x")),
        (SCRAM, b"n,,n=".ljust(524_000, b"a")),
        (SCRAM, b"n,,n=u,r=x" + b",a=b" * 131_000),
        (SCRAM, b"n,,n=ann,r=x".ljust(4097, b"x")),
    ],
)
def test_a_message_that_is_longer_than_any_of_the_mechanism_is_refused_by_its_length(
    tmp_path: Path, mechanism: str, said: bytes
) -> None:
    """No pattern goes through it, and the answer says how long a message may be."""
    broker = SaslBroker(tmp_path)
    wire = broker.connect()
    shake(wire, mechanism)
    wire.post(SaslAuthenticateRequest(auth_bytes=said), 2)
    answer = fails_after_the_delay(broker, wire)
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert answer.error_message == f"the SASL message has {len(said)} bytes, and 4096 are the most"


def test_a_last_message_of_scram_that_is_too_long_is_refused_by_its_length() -> None:
    """As the first one; the longest one that is allowed is looked at."""
    server = scram_server()
    conversation = converse(SCRAM, "ann", USERS["ann"], "cln")
    final = conversation.send(server.evaluate(next(conversation)))
    with pytest.raises(SaslError, match="4097 bytes"):
        server.evaluate(final.ljust(4097, b"A"))
    with pytest.raises(SaslError, match="not base64"):
        server.evaluate(final.rstrip(b"=").ljust(4096, b"A"))


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("c=biws", "c=eSws"),
        lambda text: text.replace("r=cln", "r=clm"),
        lambda text: text.replace("srv,p", "sr,p"),
        lambda text: text[:-4] + "AAA=",
        lambda text: text.partition(",p=")[0],
        lambda text: text.partition(",p=")[0] + ",p=AAAA",
        lambda text: text.partition(",p=")[0] + ",p=A",
        lambda text: "",
    ],
)
def test_a_last_message_of_scram_that_was_changed_is_refused(change) -> None:
    """The binding, the nonce, the proof: each is checked."""
    server = scram_server()
    conversation = converse(SCRAM, "ann", USERS["ann"], "cln")
    final = conversation.send(server.evaluate(next(conversation))).decode()
    assert change(final) != final
    with pytest.raises(SaslError):
        server.evaluate(change(final).encode())
    assert not server.is_complete


def test_a_thousand_wrong_passwords_cost_a_few_lines_of_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The first with its reason, then their number; nothing of the tokens."""
    broker = SaslBroker(tmp_path)
    failures = AuthenticationFailures(broker.timers)
    with caplog.at_level(logging.INFO, "barnabas.broker.requests.authentication_failures"):
        for _ in range(1000):
            wire = broker.connect()
            wire.handler._failures = failures
            shake(wire)
            wire.post(SaslAuthenticateRequest(auth_bytes=b"\0ann\0guess"), 2)
            broker.timers.advance(DELAY_MS // 2)
        failures.close()
    lines = [record.getMessage() for record in caplog.records]
    assert lines == [
        "Failed authentication with 127.0.0.1 on SASL_PLAINTEXT: Authentication failed: Invalid username or password",
        "Failed authentication with 127.0.0.1 on SASL_PLAINTEXT again 999 times within 60 s: "
        "Authentication failed: Invalid username or password",
    ]


def test_a_client_that_repeats_its_nonce_is_let_in() -> None:
    """As librdkafka did for years: what it sends ends with both nonces, and its
    proof is of what it sends."""
    server = scram_server()
    server_first = server.evaluate(b"n,,n=ann,r=cln").decode()
    without_proof = "c=biws,r=clnclnsrv"
    salted = hashlib.pbkdf2_hmac("sha256", USERS["ann"].encode(), b"salt", 4096)
    key = hmac.digest(salted, b"Client Key", "sha256")
    signed = f"n=ann,r=cln,{server_first},{without_proof}".encode()
    signature = hmac.digest(hashlib.sha256(key).digest(), signed, "sha256")
    proof = base64.b64encode(bytes(a ^ b for a, b in zip(key, signature, strict=True))).decode()
    server.evaluate(f"{without_proof},p={proof}".encode())
    assert server.user == "ann"


def test_a_first_message_for_another_user_is_refused_by_scram() -> None:
    """A client acts for itself only; its own name as the authorization id is fine, and so
    is an unknown extension."""
    for name, is_refused in (("bob", True), ("ann", False)):
        server = scram_server()
        said = f"n,a={name},n=ann,r=cln,foo=bar".encode()
        if is_refused:
            with pytest.raises(SaslError):
                server.evaluate(said)
        else:
            assert server.evaluate(said).startswith(b"r=clnsrv,")


def test_a_mechanism_that_is_not_enabled_is_refused_with_those_that_are(tmp_path: Path) -> None:
    """UNSUPPORTED_SASL_MECHANISM after the delay, then the end."""
    broker = SaslBroker(tmp_path)
    wire = broker.connect()
    wire.post(SaslHandshakeRequest(mechanism="GSSAPI"), 1)
    answer = fails_after_the_delay(broker, wire)
    assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert answer.mechanisms == ["PLAIN", SCRAM]


def test_nothing_else_is_served_before_the_authentication(tmp_path: Path) -> None:
    """Before the handshake the connection ends without an answer; after it the request is
    answered with its own error."""
    broker = SaslBroker(tmp_path)
    early = broker.connect()
    early.post(NOTHING, 7)
    assert fails_after_the_delay(broker, early) is None
    later = broker.connect()
    shake(later)
    later.post(VERSIONS, 3)
    assert fails_after_the_delay(broker, later).error_code == ErrorCode.ILLEGAL_SASL_STATE
    token_first = broker.connect()
    token_first.post(SaslAuthenticateRequest(auth_bytes=b"\0ann\0" + USERS["ann"].encode()), 2)
    assert fails_after_the_delay(broker, token_first) is None


def test_a_second_apiversions_ends_the_connection(tmp_path: Path) -> None:
    """As in Kafka; one in an unknown version, or with a wrong name, may be followed by another."""
    broker = SaslBroker(tmp_path)
    wire = broker.connect()
    unknown = bytes.fromhex("0012 0063 00000001 0004 74657374 00")
    wire.handler.frame(memoryview(bytearray(unknown)))
    assert wire.sent.pop()[8:10] == b"\0\x23"
    wrong = ApiVersionsRequest(client_software_name="?", client_software_version="1")
    assert wire.ask(wrong, 3).error_code == ErrorCode.INVALID_REQUEST
    assert wire.ask(VERSIONS, 3).error_code == 0
    wire.post(VERSIONS, 3)
    assert wire.is_closed
    assert wire.sent == []


def test_a_stranger_does_not_learn_the_id_of_the_cluster(tmp_path: Path) -> None:
    """As in Kafka, nothing is compared before the authentication; afterwards it is."""
    broker = SaslBroker(tmp_path)
    expecting = ApiVersionsRequest(client_software_name="x", client_software_version="1", cluster_id="other", node_id=5)
    wire = broker.connect()
    half = ApiVersionsRequest(client_software_name="x", client_software_version="1", cluster_id="other")
    assert wire.ask(half, 5).error_code == ErrorCode.INVALID_REQUEST
    assert wire.ask(expecting, 5).error_code == 0
    log_in(wire)
    assert wire.ask(expecting, 5).error_code == ErrorCode.REBOOTSTRAP_REQUIRED


def test_bytes_that_are_no_request_end_the_connection(tmp_path: Path) -> None:
    """First ones after the delay, as a token of GSSAPI would be that is not
    supported; later ones at once."""
    broker = SaslBroker(tmp_path)
    wire = broker.connect()
    wire.handler.frame(memoryview(bytearray(b"\x60")))
    assert fails_after_the_delay(broker, wire) is None
    later = broker.connect()
    shake(later)
    later.handler.frame(memoryview(bytearray(b"\x60")))
    assert later.is_closed
    unknown = broker.connect()
    unknown.ask(VERSIONS, 3)
    unknown.handler.frame(memoryview(bytearray(bytes.fromhex("03e7 0000 00000001 0000"))))
    assert unknown.is_closed
    long = broker.connect()
    long.handler.bad_length(b"\x00\xff\xff\xff")
    assert fails_after_the_delay(broker, long) is None


def test_what_comes_during_the_delay_is_not_served(tmp_path: Path) -> None:
    """A client that goes away meanwhile ends the waiting."""
    broker = SaslBroker(tmp_path)
    wire = broker.connect()
    wire.handler.bad_length(b"\x00\xff\xff\xff")
    wire.post(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    assert wire.sent == []
    wire.close()
    broker.timers.advance(DELAY_MS)
    assert wire.sent == []
    assert broker.dispatcher.connections == {}


def test_what_has_failed_stays_failed() -> None:
    """No later frame of the connection is served, whatever it is."""
    for ruin in (
        lambda authenticator: authenticator.handshake("GSSAPI", 1),
        lambda authenticator: authenticator.admit(ApiKey.PRODUCE, 0),
        lambda authenticator: authenticator.admit(None, 0),
    ):
        authenticator = SaslServerAuthenticator(("PLAIN",), lambda _: PlainServer(USERS), {})
        ruin(authenticator)
        for api_key in (ApiKey.SASL_HANDSHAKE, ApiKey.API_VERSIONS, ApiKey.SASL_AUTHENTICATE, ApiKey.PRODUCE, None):
            assert authenticator.admit(api_key, 0) is FrameVerdict.FAIL
            assert authenticator.handshake("PLAIN", 1) is ErrorCode.ILLEGAL_SASL_STATE
        assert not authenticator.is_complete


def test_a_large_request_instead_of_a_token_is_not_decoded(tmp_path: Path) -> None:
    """A stranger's request of 16 KB gets no answer with its own error; a small one does."""
    broker = SaslBroker(tmp_path)
    for count, is_answered in ((10, True), (2000, False)):
        wire = broker.connect()
        shake(wire)
        partitions = [ListOffsetsPartition(partition_index=index, timestamp=-1) for index in range(count)]
        topics = [ListOffsetsTopic(name="t", partitions=partitions)]
        wire.post(ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=topics), 7)
        assert (fails_after_the_delay(broker, wire) is not None) == is_answered


def test_the_fast_paths_serve_nothing_before_the_authentication(tmp_path: Path) -> None:
    """They take frames from the bytes of a connection, past the gate."""
    broker = SaslBroker(tmp_path)

    class Greedy:
        """Serves all that comes."""

        served_count = 1

        def serve(
            self, _: object, data: memoryview, start: int, stop: int, *_others: object
        ) -> tuple[int, list[bytes], None]:
            return stop, [b"served"], None

    key = int(ApiKey.PRODUCE).to_bytes(2, "big")
    times = broker.dispatcher.request_metrics.of(ApiKey.PRODUCE)
    broker.dispatcher.fast_apis = {key: _FastApi(ApiKey.PRODUCE, Greedy(), times)}
    frame = memoryview((2).to_bytes(4, "big") + key)
    wire = broker.connect()
    assert wire.handler.take_from(frame, 0) == 0
    assert shake(wire).error_code == 0
    assert wire.handler.take_from(frame, 0) == 0
    assert wire.sent == []
    known = broker.connect()
    log_in(known)
    assert known.handler.take_from(frame, 0) == len(frame)
    assert known.sent == [b"served"]


def test_renewals_that_follow_each_other_at_once_are_no_renewals(tmp_path: Path) -> None:
    """A client may renew once a second: each one costs the broker a computation."""
    broker = SaslBroker(tmp_path, reauth_ms=5000)
    wire = broker.connect()
    log_in(wire)
    log_in(wire)
    broker.timers.advance(999)
    assert shake(wire).error_code == ErrorCode.ILLEGAL_SASL_STATE
    broker.timers.advance(1)
    assert shake(wire).error_code == 0


@pytest.mark.parametrize("mechanism", ["PLAIN", SCRAM])
@pytest.mark.parametrize(
    "passwords", [{"bob": "other"}, {"ann": "changed", "bob": "other"}], ids=["deleted", "changed"]
)
def test_a_user_who_is_deleted_or_has_another_password_is_refused_at_the_next_authentication(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mechanism: str, passwords: dict[str, str]
) -> None:
    """As in Kafka: an open connection is served until it must authenticate again, a new one is
    refused at once."""
    broker = SaslBroker(tmp_path, reauth_ms=5000)
    wire, late = broker.connect(), broker.connect()
    for each in (wire, late):
        log_in(each, mechanism)
    monkeypatch.setattr(sys.modules[__name__], "KNOWN", passwords)
    assert wire.ask(NOTHING, 7).topics == []
    for each in (broker.connect(), wire):
        shake(each, mechanism)
        conversation = converse(mechanism, "ann", USERS["ann"], "cln")
        said = next(conversation)
        if mechanism == SCRAM:
            said = conversation.send(token(each, said).auth_bytes)
        each.post(SaslAuthenticateRequest(auth_bytes=said), 2)
        assert fails_after_the_delay(broker, each).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    broker.timers.advance(5000)
    late.post(NOTHING, 7)
    assert late.is_closed


def test_an_authentication_that_ends_must_be_renewed(tmp_path: Path) -> None:
    """KIP-368: the same user with the same mechanism; a request after the end closes
    the connection."""
    broker = SaslBroker(tmp_path, reauth_ms=5000)
    wire = broker.connect()
    assert log_in(wire) == 5000
    broker.timers.advance(4000)
    assert wire.ask(NOTHING, 7).topics == []
    assert log_in(wire) == 5000
    broker.timers.advance(4000)
    assert wire.ask(NOTHING, 7).topics == []
    broker.timers.advance(2000)
    assert log_in(wire) == 5000
    broker.timers.advance(5000)
    wire.post(NOTHING, 7)
    assert wire.is_closed
    assert wire.sent == []


def test_a_request_too_large_for_its_api_is_not_kept_in_an_authentication_that_ends(tmp_path: Path) -> None:
    """It is refused when it begins, by an end of the connection if the authentication has ended
    when all of it has come."""
    broker = SaslBroker(tmp_path, reauth_ms=5000)
    broker.serve((*DATA_PATH_APIS, "sasl_authenticate", "sasl_handshake", "join_group"))
    wire = broker.connect()
    size, head = 90 << 20, struct.pack(">hhi", ApiKey.JOIN_GROUP, 5, 77)
    assert not wire.handler.drops(head, size)
    log_in(wire)
    assert wire.handler.drops(head, size)
    wire.asked.append((ApiKey.JOIN_GROUP, 5))
    wire.handler.dropped(head)
    assert wire.sent[0][4:8] == head[4:8]
    assert wire.answer().error_code == ErrorCode.INVALID_REQUEST
    assert not wire.handler.drops(struct.pack(">hhi", ApiKey.LIST_OFFSETS, 7, 1), 16 << 20)
    broker.timers.advance(5000)
    wire.handler.dropped(head)
    assert wire.is_closed
    assert wire.sent == []


def test_a_renewal_keeps_the_user_and_the_mechanism(tmp_path: Path) -> None:
    """Otherwise a connection could change its user."""
    broker = SaslBroker(tmp_path, reauth_ms=5000)
    wire = broker.connect()
    log_in(wire)
    assert shake(wire).error_code == 0
    wire.post(SaslAuthenticateRequest(auth_bytes=b"\0bob\0other"), 2)
    answer = fails_after_the_delay(broker, wire)
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert "Cannot change principals" in answer.error_message
    other = broker.connect()
    log_in(other)
    assert shake(other, SCRAM).error_code == 0
    other.post(SaslAuthenticateRequest(auth_bytes=b"n,,n=ann,r=x"), 2)
    assert fails_after_the_delay(broker, other) is None


def test_without_sasl_both_apis_answer_that_there_is_none(tmp_path: Path) -> None:
    """On a PLAINTEXT listener."""
    broker = SaslBroker(tmp_path)
    wire = DataPath.connect(broker)
    assert shake(wire).error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert token(wire, b"").error_code == ErrorCode.ILLEGAL_SASL_STATE


@given(seed=st.integers(0, 1 << 32))
def test_no_order_of_frames_is_served_without_a_password(seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Random sequences of requests, tokens and noise by somebody who knows no password."""
    broker = _shared(tmp_path_factory)
    rng = Random(seed)
    wire = broker.connect()
    frames = (
        lambda: wire.post(VERSIONS, rng.randrange(4)),
        lambda: wire.post(SaslHandshakeRequest(mechanism=rng.choice(["PLAIN", SCRAM, "X"])), rng.randrange(2)),
        lambda: wire.post(SaslAuthenticateRequest(auth_bytes=b"\0ann\0guess"), rng.randrange(3)),
        lambda: wire.post(SaslAuthenticateRequest(auth_bytes=b"n,,n=ann,r=x"), rng.randrange(3)),
        lambda: wire.post(SaslAuthenticateRequest(auth_bytes=b"c=biws,r=xsrv,p=AAAA"), rng.randrange(3)),
        lambda: wire.handler.frame(memoryview(bytearray(rng.randbytes(rng.randrange(40))))),
        lambda: wire.post(NOTHING, 7),
    )
    for _ in range(rng.randrange(1, 8)):
        if wire.is_closed or wire.is_paused:
            break
        rng.choice(frames)()
        assert wire.client.principal == "User:ANONYMOUS"
        assert not wire.handler._authenticator.is_complete
    broker.timers.advance(DELAY_MS)
    wire.close()


_BROKERS: list[SaslBroker] = []


def _shared(factory: pytest.TempPathFactory) -> SaslBroker:
    if not _BROKERS:
        _BROKERS.append(SaslBroker(factory.mktemp("sasl")))
    return _BROKERS[0]
