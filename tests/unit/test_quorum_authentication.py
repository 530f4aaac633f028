"""Members of an ensemble prove who they are with SASL; those that cannot get no connection."""

import asyncio
import logging
import random
from collections.abc import Callable
from contextlib import suppress
from typing import Self

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.base.network import Connection
from barnabas.coordination.election.messages import MalformedNotificationError, encode_greeting, find_greeting
from barnabas.coordination.quorum import channels
from barnabas.coordination.quorum.authentication import (
    QuorumAuthentication,
    QuorumAuthLearner,
    QuorumAuthServer,
    encode_auth_packet,
)
from barnabas.coordination.quorum.channels import AuthenticatedNetwork
from barnabas.net.sockets import SocketNetwork
from barnabas.security.digest_md5 import DigestMd5Client, DigestMd5Server
from support.network_contract import HOST, Recorder
from support.unclosed import closes_all

SERVICE = "zookeeper-quorum", "zk-quorum-sasl-md5"


def authentication(
    password: str = "pw", *, known: str = "pw", is_required: bool = True, connects_with_sasl: bool = True
) -> QuorumAuthentication:
    """Of a member with a password, which knows a password of the others."""
    source = random.Random(1)
    return QuorumAuthentication(
        lambda: DigestMd5Server({"peer": known}, *SERVICE, source.randbytes),
        is_required,
        (lambda: DigestMd5Client("peer", password, *SERVICE, source.randbytes)) if connects_with_sasl else None,
    )


def exchange(learner: QuorumAuthLearner, server: QuorumAuthServer, cut: Callable[[bytes], list[bytes]]) -> None:
    """Run the exchange to its end, with the bytes in pieces."""
    to_server, to_learner = learner.start(), b""
    while to_server or to_learner:
        for piece in cut(to_server):
            to_learner += server.feed(piece)
        to_server = b""
        for piece in cut(to_learner):
            to_server += learner.feed(piece)
        to_learner = b""


@given(size=st.integers(1, 200))
def test_both_sides_are_proven_whatever_the_pieces_are(size: int) -> None:
    """The exchange ends at both sides, and says who connects."""
    both = authentication()
    assert both.new_learner is not None
    learner, server = QuorumAuthLearner(both.new_learner()), QuorumAuthServer(both)
    exchange(learner, server, lambda data: [data[at : at + size] for at in range(0, len(data), size)])
    assert (learner.is_complete, server.is_complete, learner.failure, server.failure) == (True, True, "", "")
    assert (server.user, server.rest, learner.rest) == ("peer", b"", b"")


@pytest.mark.parametrize("is_required", [True, False])
def test_a_wrong_password_ends_the_exchange_at_both_sides(is_required: bool) -> None:
    """Also where authentication is not required: a server that authenticates must be right."""
    both = authentication("guessed", is_required=is_required)
    assert both.new_learner is not None
    learner, server = QuorumAuthLearner(both.new_learner()), QuorumAuthServer(both)
    exchange(learner, server, lambda data: [data])
    assert not server.is_complete
    assert "password is wrong" in server.failure
    assert not learner.is_complete
    assert "does not accept" in learner.failure


def test_a_server_that_does_not_know_the_password_is_not_followed() -> None:
    """It may say SUCCESS, with a proof or without one."""
    both = authentication()
    assert both.new_learner is not None
    for proof in (b"", b"rspauth=00", None):
        learner, server = QuorumAuthLearner(both.new_learner()), QuorumAuthServer(both)
        challenge = server.feed(learner.start())
        if proof is None:
            # Before this server has proven anything.
            learner.feed(encode_auth_packet(1, challenge[16:]))
        else:
            assert learner.feed(challenge)
            learner.feed(encode_auth_packet(1, proof))
        assert learner.failure
        assert not learner.is_complete


@pytest.mark.parametrize("first", [b"\xff" * 8, b"\0", bytes.fromhex("5f24350135") + b"\0"])
def test_what_is_no_packet_ends_the_exchange_with_its_first_wrong_byte(first: bytes) -> None:
    """Where authentication is required; elsewhere the connection goes on with these bytes."""
    server = QuorumAuthServer(authentication())
    assert server.feed(first) == encode_auth_packet(-1, b"")
    assert server.failure == "it does not authenticate"
    lenient = QuorumAuthServer(authentication(is_required=False))
    assert lenient.feed(first) == b""
    assert (lenient.is_complete, lenient.rest, lenient.user) == (True, first, "")


@pytest.mark.parametrize(
    "packet",
    [
        encode_auth_packet(1, b""),
        encode_auth_packet(7, b""),
        encode_auth_packet(0, b"x" * 5000),
        encode_auth_packet(0, b"")[:12] + b"\xff\xff\xff\xfe",
        encode_auth_packet(0, b"") + encode_auth_packet(0, b"junk"),
        encode_auth_packet(0, b"") + encode_auth_packet(0, b""),
    ],
    ids=["success", "unknown status", "long token", "negative length", "junk", "twice empty"],
)
def test_packets_out_of_order_or_with_lies_are_refused(packet: bytes) -> None:
    """With ERROR, and never with SUCCESS."""
    server = QuorumAuthServer(authentication())
    assert server.feed(packet).endswith(encode_auth_packet(-1, b""))
    assert server.failure
    assert not server.is_complete


def test_a_greeting_is_found_once_it_is_whole() -> None:
    """Other bytes are refused at the first one that no greeting has."""
    greeting = encode_greeting(3, "host:1")
    for size in range(len(greeting)):
        assert find_greeting(bytearray(greeting[:size])) is None
    assert find_greeting(bytearray(greeting + b"rest")) == len(greeting)
    with pytest.raises(MalformedNotificationError):
        find_greeting(bytearray(b"GET / HTTP/1.1"))


class Listening:
    """A port of a member, and what it has accepted."""

    def __init__(self, network: AuthenticatedNetwork) -> None:
        self.network = network
        self.accepted: list[Recorder] = []
        self.changed = asyncio.Event()

    def accept(self, connection: Connection) -> Recorder:
        self.accepted.append(Recorder(connection))
        self.changed.set()
        return self.accepted[-1]

    async def __aenter__(self) -> Self:
        self.listener = await self.network.listen(HOST, 0, self.accept, max_frame_bytes=4)
        return self

    async def __aexit__(self, *_: object) -> None:
        for recorder in self.accepted:
            recorder.connection.close()
        await self.listener.close()

    async def connect(self, network: AuthenticatedNetwork) -> Recorder:
        made: list[Recorder] = []

        def connected(connection: Connection) -> Recorder:
            made.append(Recorder(connection))
            return made[0]

        await network.connect(HOST, self.listener.port, connected, max_frame_bytes=4, timeout_ms=20_000)
        return made[0]

    async def until_accepted(self) -> Recorder:
        async with asyncio.timeout(60):
            await self.changed.wait()
        return self.accepted[0]


GREETING = encode_greeting(3, "host:1")


def network(own: QuorumAuthentication) -> AuthenticatedNetwork:
    return AuthenticatedNetwork(SocketNetwork(), own, greeting=GREETING, find_greeting=find_greeting)


def test_a_port_that_is_closed_ends_what_is_not_authenticated() -> None:
    """Its owner has not heard of the connection."""

    async def test() -> bytes:
        own = network(authentication())
        async with asyncio.timeout(60):
            async with Listening(own) as port:
                reader, writer = await asyncio.open_connection(HOST, port.listener.port)
                while not own._exchanges:  # noqa: ASYNC110  # nothing reports it
                    await asyncio.sleep(0)
            try:
                return await reader.read()
            finally:
                writer.close()
                await writer.wait_closed()

    with closes_all():
        assert asyncio.run(test()) == b""


def test_the_owner_gets_the_greeting_and_what_follows_the_authentication() -> None:
    """Nothing of the exchange reaches it, in either direction."""

    async def test() -> None:
        async with Listening(network(authentication())) as port:
            client = await port.connect(network(authentication()))
            client.connection.send([b"hello"])
            server = await port.until_accepted()
            await server.until(lambda r: b"".join(r.frames) == GREETING + b"hello")
            server.connection.send([b"welcome"])
            await client.until(lambda r: b"".join(r.frames) == b"welcome")
            client.connection.close()
            await server.until(lambda r: r.ended)

    asyncio.run(test())


@pytest.mark.parametrize("is_required", [True, False])
def test_a_member_with_a_wrong_password_gets_no_connection(is_required: bool) -> None:
    """It learns why, and the other side's owner never sees it."""

    async def test() -> None:
        async with Listening(network(authentication(is_required=is_required))) as port:
            with pytest.raises(PermissionError, match="does not accept this server's user"):
                await port.connect(network(authentication("guessed")))
            assert port.accepted == []

    asyncio.run(test())


def test_without_sasl_a_connection_is_refused_where_it_is_required_and_accepted_elsewhere() -> None:
    """So that an ensemble can be restarted server by server."""

    async def test(is_required: bool) -> None:
        async with Listening(network(authentication(is_required=is_required))) as port:
            client = await port.connect(network(authentication(connects_with_sasl=False)))
            client.connection.send([b"hello"])
            if is_required:
                await client.until(lambda r: r.ended)
                assert port.accepted == []
            else:
                server = await port.until_accepted()
                await server.until(lambda r: b"".join(r.frames) == GREETING + b"hello")
                client.connection.close()

    asyncio.run(test(True))
    asyncio.run(test(False))


def test_a_greeting_alone_reaches_the_owner_where_authentication_is_not_required() -> None:
    """A server with a smaller id drops its connection after it; the greeting says
    that it wants one."""

    async def test() -> None:
        async with Listening(network(authentication(is_required=False))) as port:
            client = await port.connect(network(authentication(connects_with_sasl=False)))
            client.connection.close(after_sending=True)
            server = await port.until_accepted()
            await server.until(lambda r: r.ended)
            assert b"".join(server.frames) == GREETING

    asyncio.run(test())


def test_a_server_that_waits_behind_its_greeting_is_let_in_where_authentication_is_not_required() -> None:
    """A member without SASL has nothing to say before it has heard this server's vote."""

    async def test() -> None:
        async with Listening(network(authentication(is_required=False))) as port:
            client = await port.connect(network(authentication(connects_with_sasl=False)))
            server = await port.until_accepted()
            client.connection.is_stream = True
            server.connection.send([b"my vote"])
            await client.until(lambda r: b"".join(r.frames) == b"my vote")
            client.connection.send([b"hello"])
            await server.until(lambda r: b"".join(r.frames) == GREETING + b"hello")
            client.connection.close()

    asyncio.run(test())


def test_strangers_that_say_nothing_hold_no_more_than_64_exchanges(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The oldest ends for a new one, which authenticates; the others end when their
    time is over."""
    monkeypatch.setattr(channels, "_PATIENCE_S", 1)
    caplog.set_level(logging.INFO)

    async def test() -> None:
        async with Listening(network(authentication())) as port:
            strangers = [await asyncio.open_connection(HOST, port.listener.port) for _ in range(80)]
            client = await port.connect(network(authentication()))
            async with asyncio.timeout(30):
                for reader, _ in strangers:
                    with suppress(ConnectionResetError):
                        assert await reader.read() == b""
            client.connection.send([b"hello"])
            server = await port.until_accepted()
            await server.until(lambda r: b"".join(r.frames) == GREETING + b"hello")
            for _, writer in strangers:
                writer.close()
            client.connection.close()

    asyncio.run(test())
    assert "too many others wait to authenticate" in caplog.text


@pytest.mark.parametrize("size", [-2, 4097, 1 << 30, (1 << 31) - 1])
def test_a_token_longer_than_any_of_the_mechanism_ends_the_exchange_by_its_length(size: int) -> None:
    """Before a byte of it has come, on either side."""
    head = encode_auth_packet(0, b"")[:-4] + size.to_bytes(4, "big", signed=True)
    server = QuorumAuthServer(authentication())
    server.feed(head)
    assert "is not the length of a token" in server.failure
    new_learner = authentication().new_learner
    assert new_learner is not None
    learner = QuorumAuthLearner(new_learner())
    learner.feed(head)
    assert "is not the length of a token" in learner.failure
