"""TLS over any network keeps the promises of plain connections.

What is not TLS, or not trusted, ends."""

import asyncio
import os
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from random import Random

import pytest

from barnabas.base.errors import ConfigError
from barnabas.base.files import FileSlice, OsFiles
from barnabas.base.network import Connection, Network
from barnabas.net import cold_reads, tls_layer
from barnabas.net.sockets import SocketNetwork
from barnabas.net.ssl_contexts import SslSettings, client_context, server_context
from barnabas.net.tls_layer import TlsLayer, TlsLink
from barnabas.security.key_stores import KeyStore
from support.certificates import make_certificate
from support.needs import needs
from support.network_contract import HOST, LIMIT, NetworkContract, Recorder, framed, some_bytes

pytestmark = needs("openssl")


@pytest.fixture(scope="module", autouse=True)
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Certificates of a server and of a client."""
    folder = tmp_path_factory.mktemp("tls")
    make_certificate(folder, "server", "/CN=server")
    make_certificate(folder, "client", "/O=Barnabas/CN=client")
    TestTlsLayer.folder = folder
    return folder


def stores(folder: Path, **changes: object) -> SslSettings:
    """A server's, with changes."""
    values: dict[str, object] = {
        "key_store": KeyStore(str(folder / "server.pem"), type="PEM"),
        "key_text": "",
        "chain_text": "",
        "key_password": "",
        "trust_store": KeyStore(str(folder / "server.crt"), type="PEM"),
        "trust_text": "",
        "client_auth": "none",
        "protocols": ("TLSv1.2", "TLSv1.3"),
        "verifies_host": True,
    }
    return SslSettings(lambda name: f"listener.name.x.{name}", **{**values, **changes})  # type: ignore[arg-type]


def layer(folder: Path, handshake_timeout_s: float = 10, **changes: object) -> TlsLayer:
    server = server_context(stores(folder, **changes))
    client = client_context(stores(folder, key_store=KeyStore(str(folder / "client.pem"))))
    return TlsLayer(SocketNetwork(), server=server, client=client, handshake_timeout_s=handshake_timeout_s)


class TestTlsLayer(NetworkContract):
    """The contract of every network, over TLS over sockets."""

    takes_frames = False
    drops_frames = True

    folder: Path

    def run(self, test: Callable[[Network], Coroutine[object, object, None]]) -> None:
        self.loop(test(layer(self.folder)))

    def loop(self, running: Coroutine[object, object, None]) -> None:
        asyncio.run(running)


class TestTlsLayerOnUvloop(TestTlsLayer):
    """The same on the event loop of the servers."""

    def loop(self, running: Coroutine[object, object, None]) -> None:
        pytest.importorskip("uvloop").run(running)


async def listening(network: TlsLayer) -> tuple[list[Recorder], Callable[[], int], Callable[[], Coroutine]]:
    handlers: list[Recorder] = []

    def accept(connection: Connection) -> Recorder:
        handlers.append(Recorder(connection, echo=True))
        return handlers[-1]

    listener = await network.listen(HOST, 0, accept, max_frame_bytes=LIMIT)
    return handlers, lambda: listener.port, listener.close


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110  # what is watched has no event
            await asyncio.sleep(0.001)


def test_the_names_of_a_client_are_those_of_its_certificate(folder: Path) -> None:
    """They are known at the end of the handshake, before the first frame."""

    async def run() -> None:
        network = layer(folder, client_auth="required", trust_store=KeyStore(str(folder / "client.crt")))
        seen: list[object] = []

        def accept(connection: Connection) -> Recorder:
            assert isinstance(connection, TlsLink)
            connection.on_secured = lambda: seen.append(connection.peer_certificate)
            return Recorder(connection, echo=True)

        listener = await network.listen(HOST, 0, accept, max_frame_bytes=LIMIT)
        made: list[Recorder] = []
        connection = await network.connect(
            HOST,
            listener.port,
            lambda c: made.append(Recorder(c)) or made[-1],
            max_frame_bytes=LIMIT,
            timeout_ms=5000,
        )
        connection.send([framed(b"x")])
        await made[0].until(lambda r: r.frames)
        assert [dict(pair for (pair,) in each["subject"]) for each in seen] == [  # type: ignore[index]
            {"organizationName": "Barnabas", "commonName": "client"}
        ]
        connection.close()
        await made[0].until(lambda r: r.ended)
        await listener.close()

    asyncio.run(run())


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_a_client_without_the_certificate_that_is_asked_for_is_refused(folder: Path, version: str) -> None:
    """In TLS 1.3 it learns so after its own handshake: no frame of it arrives."""

    async def run() -> None:
        network = layer(
            folder, client_auth="required", trust_store=KeyStore(str(folder / "client.crt")), protocols=(version,)
        )
        handlers, port, close = await listening(network)
        nameless = TlsLayer(SocketNetwork(), client=client_context(stores(folder, key_store=None)))
        made: list[Recorder] = []
        try:
            connection = await nameless.connect(
                HOST, port(), lambda c: made.append(Recorder(c)) or made[-1], max_frame_bytes=LIMIT, timeout_ms=5000
            )
        except OSError:
            assert version == "TLSv1.2"
        else:
            connection.send([framed(b"x")])
            await made[0].until(lambda r: r.ended)
        await until(lambda: handlers[0].ended)
        assert handlers[0].frames == []
        assert isinstance(handlers[0].ended[0], ssl.SSLError)
        await close()

    asyncio.run(run())


@pytest.mark.parametrize(
    ("trusted", "host"), [("client.crt", HOST), ("server.crt", "localhost")], ids=["unknown", "another host"]
)
def test_a_server_that_is_not_trusted_is_not_connected_to(folder: Path, trusted: str, host: str) -> None:
    """Its certificate is unknown, or for another host."""

    async def run() -> None:
        handlers, port, close = await listening(layer(folder))
        wary = TlsLayer(
            SocketNetwork(), client=client_context(stores(folder, trust_store=KeyStore(str(folder / trusted))))
        )
        with pytest.raises(ssl.SSLCertVerificationError):
            await wary.connect(host, port(), Recorder, max_frame_bytes=LIMIT, timeout_ms=5000)
        await until(lambda: all(handler.ended for handler in handlers))
        await close()

    asyncio.run(run())


@pytest.mark.parametrize(
    "sent", [b"\0\0\0\x12\0\x12\0\3\0\0\0\1\0\4evil", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x40\0" + bytes(500)]
)
def test_bytes_that_are_not_tls_end_the_connection(folder: Path, sent: bytes) -> None:
    """A Kafka request, one of HTTP, noise that begins as a handshake does: an alert,
    and the end."""

    async def run() -> None:
        handlers, port, close = await listening(layer(folder, handshake_timeout_s=0.3))
        reader, writer = await asyncio.open_connection(HOST, port())
        writer.write(sent)
        async with asyncio.timeout(30):
            said = await reader.read()
        assert said[:1] in (b"", b"\x15")
        await until(lambda: handlers[0].ended)
        assert handlers[0].frames == []
        writer.close()
        await close()

    asyncio.run(run())


def test_a_handshake_has_a_time_limit_and_its_connection_counts_before(folder: Path) -> None:
    """The handler of a silent client exists, so that limits of connections see it, and ends."""

    async def run() -> None:
        handlers, port, close = await listening(layer(folder, handshake_timeout_s=0.2))
        reader, writer = await asyncio.open_connection(HOST, port())
        await until(lambda: handlers)
        assert handlers[0].ended == []
        async with asyncio.timeout(30):
            assert await reader.read() == b""
        assert handlers[0].ended == [None]
        writer.close()
        await close()

    asyncio.run(run())


def test_a_large_answer_is_encrypted_no_further_than_the_network_takes_it(folder: Path) -> None:
    """A client that does not read an answer of 40 MB from a file holds a little of
    it in memory, not all."""

    class CountedFile:
        read_bytes = 0

        def read_at(self, offset: int, size: int) -> bytes:
            self.read_bytes += size
            return bytes(size)

        def fileno(self) -> int | None:
            return None

    async def run() -> None:
        handlers, port, close = await listening(layer(folder))
        made: list[Recorder] = []
        connection = await layer(folder).connect(
            HOST, port(), lambda c: made.append(Recorder(c)) or made[-1], max_frame_bytes=1 << 26, timeout_ms=5000
        )
        connection.pause()
        file, size = CountedFile(), 40_000_000
        handlers[0].connection.send([struct.pack(">i", size), FileSlice(file, 0, size)])
        for _ in range(300):
            await asyncio.sleep(0)
        assert file.read_bytes < size // 2
        assert handlers[0].connection.unsent_bytes > size // 2
        handlers[0].connection.close(after_sending=True)
        connection.resume()
        await made[0].until(lambda r: r.ended)
        assert [len(frame) for frame in made[0].frames] == [size]
        await close()

    asyncio.run(run())


def test_while_a_file_is_read_from_disk_other_tls_clients_are_served_and_then_it_arrives_whole(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread waits for the disk, the event loop does not.

    What follows comes behind it; a file that ends early ends the connection."""
    content = os.urandom(1_500_000)
    (tmp_path / "cold").write_bytes(content)
    file = OsFiles().open(str(tmp_path / "cold"))
    disk = threading.Event()
    monkeypatch.setattr(tls_layer, "read_at_once", lambda _: None)

    def wait_for_disk(piece: FileSlice) -> bytes:
        disk.wait(60)
        return cold_reads.read_whole(piece)

    monkeypatch.setattr(tls_layer, "read_whole", wait_for_disk)

    async def run() -> None:
        handlers, port, close = await listening(layer(folder))
        made: list[Recorder] = []
        for _ in range(3):
            await layer(folder).connect(
                HOST, port(), lambda c: made.append(Recorder(c)) or made[-1], max_frame_bytes=1 << 26, timeout_ms=5000
            )
        cold, warm, short = (handler.connection for handler in handlers)
        cold.send([struct.pack(">i", len(content) + 5), FileSlice(file, 0, len(content)), b"after"])
        cold.send([struct.pack(">i", 4), b"next"])
        short.send([struct.pack(">i", 10), FileSlice(file, len(content) - 5, 10)])
        warm.send([struct.pack(">i", 5), b"hello"])
        await made[1].until(lambda r: r.frames)
        assert made[1].frames == [b"hello"]
        assert not made[0].frames
        disk.set()
        await made[0].until(lambda r: len(r.frames) == 2)
        assert made[0].frames == [content + b"after", b"next"]
        await made[2].until(lambda r: r.ended)
        assert made[2].frames == []
        cold.close()
        warm.close()
        await until(lambda: all(handler.ended for handler in (*handlers, *made)))
        await close()

    asyncio.run(run())


def test_damaged_bytes_of_an_open_connection_end_it(folder: Path) -> None:
    """A random byte of the ciphertext is changed: no frame of it arrives, and the
    handler gets the failure."""

    async def run(seed: int) -> None:
        handlers, port, close = await listening(layer(folder))
        context = client_context(stores(folder))
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = context.wrap_bio(incoming, outgoing, server_hostname=HOST)
        reader, writer = await asyncio.open_connection(HOST, port())
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                writer.write(outgoing.read())
                incoming.write(await reader.read(65536))
        writer.write(outgoing.read())
        tls.write(framed(some_bytes(1000)))
        damaged = bytearray(outgoing.read())
        damaged[Random(seed).randrange(5, len(damaged))] ^= 1 << seed % 8
        writer.write(damaged)
        await until(lambda: handlers[0].ended)
        assert handlers[0].frames == []
        assert isinstance(handlers[0].ended[0], ssl.SSLError)
        writer.close()
        await close()

    for seed in range(8):
        asyncio.run(run(seed))


def test_a_tls_client_at_a_plain_port_ends_at_once(folder: Path) -> None:
    """The first bytes of its handshake are no length of a frame."""

    async def run() -> None:
        handlers: list[Recorder] = []
        plain = await SocketNetwork().listen(
            HOST, 0, lambda c: handlers.append(Recorder(c)) or handlers[-1], max_frame_bytes=104_857_600
        )
        with pytest.raises(OSError, match=r"closed|reset|EOF"):
            await layer(folder).connect(HOST, plain.port, Recorder, max_frame_bytes=LIMIT, timeout_ms=5000)
        assert (
            handlers[0].bad[:3] == b"\x16\x03\x01"
        )  # the fourth byte depends on OpenSSL: it is of the message's length
        await plain.close()

    asyncio.run(run())


def test_a_store_that_cannot_be_used_is_named_with_its_property(folder: Path, tmp_path: Path) -> None:
    """Missing, not PEM, a wrong password, a key of another certificate, nothing to verify
    clients with, old protocols."""
    locked = make_certificate(tmp_path, "locked", "/CN=locked", password="geheim")
    (tmp_path / "junk.pem").write_text("junk")
    junk = str(tmp_path / "junk.pem")
    for name, changes in (
        ("ssl.keystore.location", {"key_store": None}),
        ("ssl.keystore.location", {"key_store": KeyStore(str(tmp_path / "missing.pem"))}),
        ("ssl.keystore.location", {"key_store": KeyStore(junk)}),
        ("ssl.keystore.location", {"key_store": KeyStore(str(locked), key_password="wrong")}),
        ("ssl.keystore.location", {"key_store": KeyStore(str(locked))}),
        ("ssl.keystore.key", {"key_store": None, "key_text": "junk", "chain_text": "junk"}),
        ("ssl.truststore.location", {"client_auth": "required", "trust_store": None}),
        ("ssl.truststore.location", {"client_auth": "requested", "trust_store": KeyStore(junk)}),
        ("ssl.truststore.certificates", {"client_auth": "required", "trust_store": None, "trust_text": "junk"}),
        ("ssl.enabled.protocols", {"protocols": ("TLSv1.1",)}),
    ):
        with pytest.raises(ConfigError, match=rf"listener\.name\.x\.{name}") as refused:
            server_context(stores(folder, **changes))
        assert "geheim" not in str(refused.value)
    server_context(stores(folder, key_store=KeyStore(str(locked), key_password="geheim")))


def test_a_store_with_a_key_too_small_for_openssl_is_refused_with_the_reason(folder: Path, tmp_path: Path) -> None:
    """The password is right and the file whole, so the error says what is wrong instead."""
    small = make_certificate(tmp_path, "small", "/CN=small", bits=1024)
    with pytest.raises(ConfigError, match=r"ssl\.keystore\.location\) cannot be used \(ee key too small\)"):
        server_context(stores(folder, key_store=KeyStore(str(small))))


def test_keys_and_certificates_may_be_text_in_one_line(folder: Path, tmp_path: Path) -> None:
    """As Kafka's properties hold them; a key with a password too."""
    make_certificate(tmp_path, "locked", "/CN=locked", password="geheim")

    def line(path: Path) -> str:
        return " ".join(path.read_text().split("\n"))

    trust = line(folder / "client.crt")
    for where, name, password in ((folder, "server", ""), (tmp_path, "locked", "geheim")):
        server_context(
            stores(
                folder,
                key_store=None,
                key_text=line(where / f"{name}.key"),
                chain_text=line(where / f"{name}.crt"),
                key_password=password,
                trust_store=None,
                trust_text=trust,
                client_auth="required",
            )
        )


def test_a_peer_that_resets_during_the_handshake_is_an_error_of_the_network(folder: Path) -> None:
    """Not a refused connection, which would mean that no process listens."""

    async def run() -> None:
        with socket.create_server((HOST, 0)) as server:
            connecting = asyncio.create_task(
                layer(folder).connect(HOST, server.getsockname()[1], Recorder, max_frame_bytes=9, timeout_ms=5000)
            )
            accepted, _ = await asyncio.to_thread(server.accept)
            accepted.close()
            with pytest.raises(OSError) as raised:
                await connecting
            assert not isinstance(raised.value, ConnectionRefusedError | ConnectionResetError)

    asyncio.run(run())


def test_many_small_requests_at_once_leave_turns_to_others(folder: Path) -> None:
    """A client that sends thousands together is answered in turns of the loop, in order."""

    async def run() -> None:
        loop, turns = asyncio.get_running_loop(), [0]
        now_s = [0.0]
        handlers: list[Recorder] = []

        class Slow(Recorder):
            def frame(self, data: memoryview) -> None:
                now_s[0] += 0.001
                super().frame(data)

        listener = await layer(folder).listen(
            HOST, 0, lambda c: handlers.append(Slow(c, echo=True)) or handlers[-1], max_frame_bytes=LIMIT
        )
        made: list[Recorder] = []
        connection = await layer(folder).connect(
            HOST, listener.port, lambda c: made.append(Recorder(c)) or made[-1], max_frame_bytes=LIMIT, timeout_ms=5000
        )
        await until(lambda: handlers and not handlers[0].ended)
        handlers[0].connection._loop = SlowLoop(loop, now_s, turns)
        connection.send([b"".join(framed(b"%d" % number) for number in range(1000))])
        await made[0].until(lambda r: len(r.frames) == 1000)
        assert made[0].frames == [b"%d" % number for number in range(1000)]
        assert turns[0] >= 100
        connection.close()
        await listener.close()

    class SlowLoop:
        def __init__(self, loop: asyncio.AbstractEventLoop, now_s: list[float], turns: list[int]) -> None:
            self.loop, self.now_s, self.turns = loop, now_s, turns

        def time(self) -> float:
            return self.now_s[0]

        def call_soon(self, callback: Callable[[], object], *arguments: object) -> object:
            self.turns[0] += 1
            return self.loop.call_soon(callback, *arguments)

    asyncio.run(run())
