"""What one client of a coordination server may have: connections, bytes of a frame,
replies that it does not read."""

from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.base.network import Part
from barnabas.coordination.core.access import AccessRules
from barnabas.coordination.core.sessions import Session
from barnabas.coordination.server.client_connections import ClientConnections
from barnabas.coordination.server.client_transport import ClientTransport
from barnabas.coordination.server.four_letter_words import answer
from barnabas.coordination.server.server_metrics import ServerMetrics
from barnabas.coordination.server.settings import parse_settings
from barnabas.wire.jute.records import Id

MAX_FRAME_BYTES = 1 << 20


class Wire:
    """A connection whose other side reads as much as the test says."""

    is_stream = False
    on_drained = None
    on_secured: Callable[[], None]
    """Called when the handshake is done."""

    def __init__(self, address: str = "10.0.0.1", certificate: object = None) -> None:
        self.peer = (address, 5000)
        self.local = ("10.0.0.9", 2181)
        self.max_frame_bytes = 1024
        self.unsent_bytes = 0
        self.is_paused = False
        self.is_closed = False
        self.peer_certificate = certificate

    def send(self, parts: Sequence[Part]) -> None:
        self.unsent_bytes += sum(len(bytes(part)) for part in parts)  # type: ignore[arg-type]  # no files here

    def pause(self) -> None:
        self.is_paused = True

    def resume(self) -> None:
        self.is_paused = False

    def close(self, *, after_sending: bool = False) -> None:
        self.is_closed = True


class Host:
    """A server that only keeps what a connection asks of it."""

    def __init__(self) -> None:
        self.later: list[Callable[[], None]] = []

    def received(self, client: object, frames: list[bytes]) -> int:
        return len(frames)

    def closed(self, peer: ClientTransport) -> None: ...

    def to_flush(self, peer: ClientTransport) -> None: ...


class Clients:
    """The connections of a server, on a clock that the test moves."""

    def __init__(self, tmp_path: Path, **settings: int) -> None:
        texts = {"dataDir": str(tmp_path), "clientPort": "0", **{name: str(value) for name, value in settings.items()}}
        self.connections = ClientConnections(parse_settings(texts), ServerMetrics())
        self.host = Host()
        self.now_ms = 1_000_000
        self.rules = AccessRules(super_users=frozenset((Id("x509", "CN=admin"),)))

    def open(self, wire: Wire, *, is_secure: bool = False) -> ClientTransport:
        transport = ClientTransport(
            self.host, wire, MAX_FRAME_BYTES, lambda: self.now_ms, lambda _, work: self.host.later.append(work)
        )  # type: ignore[arg-type]  # what it needs of a server
        self.connections.accept(transport, wire, self.rules, is_secure=is_secure, is_closing=False)
        return transport


def test_an_address_has_as_many_connections_as_maxclientcnxns_says(tmp_path: Path) -> None:
    """Other addresses have their own; one that closes makes room, whether it was
    accepted or refused."""
    clients = Clients(tmp_path, maxClientCnxns=2)
    wires = [Wire() for _ in range(3)]
    opened = [clients.open(wire) for wire in wires]
    assert [wire.is_closed for wire in wires] == [False, False, True]
    other = Wire("10.0.0.2")
    clients.open(other)
    assert not other.is_closed
    clients.connections.closed(opened[2])
    clients.connections.closed(opened[0])
    again, more = Wire(), Wire()
    clients.open(again)
    clients.open(more)
    assert (again.is_closed, more.is_closed) == (False, True)


def test_a_server_has_as_many_connections_as_maxcnxns_says(tmp_path: Path) -> None:
    """From all addresses together."""
    clients = Clients(tmp_path, maxClientCnxns=0, maxCnxns=2)
    wires = [Wire(f"10.0.0.{number}") for number in range(3)]
    opened = [clients.open(wire) for wire in wires]
    assert [wire.is_closed for wire in wires] == [False, False, True]
    clients.connections.closed(opened[2])
    clients.connections.closed(opened[0])
    again = Wire()
    clients.open(again)
    assert not again.is_closed


def test_a_connection_without_a_session_is_closed_after_its_time(tmp_path: Path) -> None:
    """One with a session stays."""
    clients = Clients(tmp_path)
    idle, served = Wire(), Wire()
    clients.open(idle)
    clients.open(served).client.session = Session(1, 4000)
    clients.now_ms += 10_000
    clients.connections.close_sessionless(clients.now_ms)
    assert not idle.is_closed
    clients.now_ms += 1
    clients.connections.close_sessionless(clients.now_ms)
    assert (idle.is_closed, served.is_closed) == (True, False)


@pytest.mark.parametrize(
    ("subject", "ids"),
    [
        (((("commonName", "bob"),),), [Id("x509", "CN=bob")]),
        (((("commonName", "admin"),),), [Id("super", ""), Id("x509", "CN=admin")]),
        (((("serialNumber", "5"),), (("commonName", "admin"),)), None),
    ],
)
def test_a_certificate_gives_its_subjects_identity_or_none_and_no_connection(
    tmp_path: Path, subject: object, ids: list[Id] | None
) -> None:
    """A subject that cannot be named might be mistaken for another."""
    clients = Clients(tmp_path)
    wire = Wire(certificate={"subject": subject})
    client = clients.open(wire, is_secure=True).client
    wire.on_secured()
    assert wire.is_closed == (ids is None)
    assert client.ids[1:] == (ids or [])


def test_a_frame_is_small_before_there_is_a_session_and_at_most_jute_maxbuffer_then(tmp_path: Path) -> None:
    """Bytes of strangers are not kept."""
    wire = Wire()
    transport = Clients(tmp_path).open(wire)
    transport.take_frames([b"connect"])
    assert wire.max_frame_bytes == 1024
    transport.client.session = Session(1, 4000)
    transport.take_frames([b"request"])
    assert wire.max_frame_bytes == MAX_FRAME_BYTES


def test_a_client_that_does_not_read_its_replies_sends_no_more_requests_until_it_does(tmp_path: Path) -> None:
    """Its replies wait in the memory of the server."""
    clients = Clients(tmp_path)
    wire = Wire()
    transport = clients.open(wire)
    for _ in range(17):
        transport.send(bytes(256 << 10))
        transport.flush()
    assert wire.is_paused
    assert not transport.takes_requests
    wire.unsent_bytes = 0
    while clients.host.later:
        clients.host.later.pop()()
    assert not wire.is_paused
    assert transport.takes_requests


WORDS_WITHOUT_SERVICE = {"ruok", "conf", "envi", "gtmk", "stmk"}
WORDS = {"isro", "srvr", "stat", "cons", "mntr", "dirs", "hash", "dump", "wchs", "wchp", "wchc", "srst", "crst"}


def said(word: str, whitelist: list[str], *, is_serving: bool = True) -> str:
    """The answer of a server of which only this is known; what a word shows would need more."""
    view: Any = SimpleNamespace(
        settings={"4lw.commands.whitelist": whitelist}, state=SimpleNamespace(is_serving=is_serving)
    )
    words = answer(word.encode(), view)
    assert words is not None
    try:
        while True:
            next(words)
    except StopIteration as done:
        return done.value.decode()
    except AttributeError:
        return "served"


@pytest.mark.parametrize("word", sorted(WORDS | WORDS_WITHOUT_SERVICE))
def test_a_word_outside_the_whitelist_is_refused(word: str) -> None:
    """Also beside one that is in it."""
    refused = f"{word} is not executed because it is not in the whitelist.\n"
    assert said(word, []) == said(word, ["xxxx"]) == refused
    assert said(word, [word]) != refused
    assert said(word, ["*"]) != refused


@pytest.mark.parametrize("word", sorted(WORDS))
def test_a_word_about_the_state_is_refused_while_the_server_does_not_serve(word: str) -> None:
    """Its state may be another one by the time at which it serves again."""
    assert "not currently serving requests" in said(word, ["*"], is_serving=False)
    assert "not currently serving requests" not in said(word, ["*"])
