"""The edge of elections: the election port, the connections to the other members, and the timer.

It carries out what `FastLeaderElection` and `Links` decide. What others can make it hold is
bounded: a connection must send its greeting within a second, only a limited number may be
without one, a message that has begun must be whole within a second, and a peer that does not
read is cut off.

In ZooKeeper: `QuorumCnxManager`, with its `Listener`, `SendWorker` and `RecvWorker`.
"""

import asyncio
import logging
from collections.abc import Callable

from barnabas.base.clock import Clock
from barnabas.base.errors import ConfigError
from barnabas.base.network import Connection, Listener, Network
from barnabas.coordination.election.fast_leader_election import (
    Elected,
    ElectionEffect,
    FastLeaderElection,
    NewerConfiguration,
    SendNotification,
)
from barnabas.coordination.election.links import CloseLink, ConnectTo, LinkEffect, Links, SendOver
from barnabas.coordination.election.messages import (
    Greeting,
    MalformedNotificationError,
    MessageStream,
    encode_greeting,
    encode_notification,
    find_greeting,
)
from barnabas.coordination.quorum.authentication import QuorumAuthentication
from barnabas.coordination.quorum.channels import AuthenticatedNetwork
from barnabas.coordination.quorum.configuration import QuorumConfiguration
from barnabas.coordination.quorum.members import ANY_ADDRESS, HostAndPort, QuorumServer

__all__ = ["ElectionPeers"]

logger = logging.getLogger(__name__)
_MAX_UNKNOWN = 64
_MAX_UNSENT_BYTES = 1 << 20
_CHECK_MS = 200
_PATIENCE_MS = 750
_RETRY_MS = 1000
_SILENCE_MS = 10_000
_BIND_PAUSE_S = 1.0
_MAX_FRAME_BYTES = 1 << 20  # has no effect on a stream


class _Link:
    """One connection, to or from a peer."""

    __slots__ = ("_peers", "connection", "heard_ms", "is_closing", "peer_id", "stream", "waits_since_ms")

    def __init__(self, peers: "ElectionPeers", connection: Connection, peer_id: int | None, now_ms: int) -> None:
        self._peers = peers
        self.connection = connection
        self.peer_id = peer_id
        """None until the greeting has come"""
        self.stream = MessageStream(expects_greeting=peer_id is None)
        self.heard_ms = now_ms
        self.waits_since_ms: int | None = now_ms if peer_id is None else None
        self.is_closing = False
        connection.is_stream = True

    def frame(self, data: memoryview) -> None:
        if not self.is_closing:
            self._peers._received(self, data)

    def bad_length(self, prefix: bytes) -> None:  # noqa: ARG002  # a stream has no lengths
        self.connection.close()

    def closed(self, error: Exception | None) -> None:
        self._peers._closed(self, error)


def _parse_address(text: str) -> HostAndPort | None:
    """The first address in a greeting."""
    host, _, port = text.partition("|")[0].rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    return HostAndPort(host, int(port)) if host and port.isdecimal() and 0 < int(port) < 65536 else None


class ElectionPeers:
    """This server's part in elections, on the running event loop.

    `elect` runs an election; between elections it answers the servers that look for a leader.
    ``on_configuration`` is called when another member has the same configuration under a
    newer version.
    """

    def __init__(
        self,
        election: FastLeaderElection,
        *,
        network: Network,
        clock: Clock,
        on_configuration: Callable[[QuorumConfiguration], None] = lambda _configuration: None,
        listens_on_all: bool = False,
        connect_timeout_ms: int = 5000,
        bind_tries: int = 3,
        can_reconfigure: bool = False,
        authentication: QuorumAuthentication | None = None,
    ) -> None:
        self.election = election
        self._clock = clock
        self._on_configuration = on_configuration
        self._listens_on_all = listens_on_all
        self._connect_timeout_ms = connect_timeout_ms
        self._bind_tries = bind_tries
        me = self._server(election.my_id)
        assert me is not None, "a server is a member of its own configuration"
        self._me = me
        greeting = encode_greeting(me.id, str(me.election_address))
        if authentication is not None:
            network = AuthenticatedNetwork(network, authentication, greeting=greeting, find_greeting=find_greeting)
            greeting = b""
        self._network = network
        self._links: Links[_Link] = Links(
            me.id, greeting, self._is_member, self._first_words, calls_back=can_reconfigure
        )
        self._open: dict[_Link, None] = {}
        self._connects: set[asyncio.Task[None]] = set()
        self._listener: Listener | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._checks: asyncio.TimerHandle | None = None
        self._elected: asyncio.Future[Elected] | None = None
        self._looking_since_ms = 0
        self._last_retry_ms = 0
        self._is_closed = False

    # Starting and stopping

    async def start(self) -> None:
        """Open the election port. Raises `ConfigError` if it cannot be had."""
        self._loop = asyncio.get_running_loop()
        me = self._me
        host = "" if self._listens_on_all or me.host == ANY_ADDRESS else me.host
        tries = 0
        while self._listener is None:
            tries += 1
            try:
                self._listener = await self._network.listen(
                    host, me.election_port, self._accept, max_frame_bytes=_MAX_FRAME_BYTES
                )
            except OSError as error:
                reason = f"{error.strerror or error} (the election port of server.{me.id})"
                if self._bind_tries and tries >= self._bind_tries:
                    raise ConfigError(f"cannot listen on {host or '*'}:{me.election_port}: {reason}") from error
                logger.warning("Cannot listen on %s:%d, trying again: %s", host or "*", me.election_port, reason)
                await asyncio.sleep(_BIND_PAUSE_S)
        logger.info("My election bind port: %s:%d", host or "*", self._listener.port)
        self._check()

    async def close(self) -> None:
        """Close the port and all connections. A second call does nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        self.election.stop()
        for timer in (self._timer, self._checks):
            if timer is not None:
                timer.cancel()
        for task in self._connects:
            task.cancel()
        for link in list(self._open):
            link.connection.close()
        if self._listener is not None:
            await self._listener.close()

    # Elections

    async def elect(self, last_zxid: int, current_epoch: int) -> int:
        """Run an election to its end; the id of the leader.

        ``last_zxid`` is that of the last transaction in this server's log, ``current_epoch`` the
        last epoch it has joined.
        """
        now_ms = self._looking_since_ms = self._clock.monotonic_ms()
        elected: asyncio.Future[Elected] = self._loop.create_future()
        self._elected = elected
        self._perform(self.election.look(last_zxid, current_epoch, now_ms))
        try:
            return (await elected).leader_id
        except asyncio.CancelledError:
            self.election.stop()
            raise

    def establish_epoch(self, epoch: int) -> None:
        """The leader has begun an epoch, and this server is in it.

        See `FastLeaderElection.establish_epoch`."""
        self.election.establish_epoch(epoch)

    def designate(self, leader_id: int, zxid: int, epoch: int) -> None:
        """A reconfiguration has chosen the leader; see `FastLeaderElection.designate`."""
        self.election.designate(leader_id, zxid, epoch)

    def reconfigure(self, configuration: QuorumConfiguration, following: QuorumConfiguration | None = None) -> None:
        """Use another configuration; connections with servers that it does not name end."""
        self.election.reconfigure(configuration, following)
        for peer_id in [peer_id for peer_id in self._links.by_peer if not self._is_member(peer_id)]:
            self._carry_out(self._links.forget(peer_id))

    def _perform(self, effects: list[ElectionEffect]) -> None:
        for effect in effects:
            match effect:
                case SendNotification(receiver, notification):
                    self._send(receiver, encode_notification(notification))
                case Elected():
                    # Votes that were never sent; servers that still look will ask.
                    self._links.pending.clear()
                    if self._elected is not None and not self._elected.done():
                        self._elected.set_result(effect)
                case NewerConfiguration(configuration):
                    self._on_configuration(configuration)
        self._set_timer()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        wakes_at_ms = self.election.wakes_at_ms
        if wakes_at_ms is not None and not self._is_closed:
            delay_ms = max(wakes_at_ms - self._clock.monotonic_ms(), 0)
            self._timer = self._loop.call_later(delay_ms / 1000, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._perform(self.election.tick(self._clock.monotonic_ms()))

    def _first_words(self) -> bytes | None:
        return encode_notification(self.election.notification()) if self.election.is_looking else None

    # Members

    def _is_member(self, peer_id: int) -> bool:
        return self._server(peer_id) is not None

    def _server(self, server_id: int) -> QuorumServer | None:
        return self.election.server(server_id)

    # Connections

    def _send(self, peer_id: int, data: bytes) -> None:
        link = self._links.by_peer.get(peer_id)
        if link is not None and link.connection.unsent_bytes > _MAX_UNSENT_BYTES:
            logger.info("Server %d does not read its notifications; connecting again", peer_id)
            self._carry_out(self._links.forget(peer_id, data))
        else:
            self._carry_out(self._links.send(peer_id, data))

    def _carry_out(self, effects: list[LinkEffect[_Link]]) -> None:
        for effect in effects:
            match effect:
                case ConnectTo(peer_id, address):
                    task = self._loop.create_task(self._connect(peer_id, address))
                    self._connects.add(task)
                    task.add_done_callback(self._connects.discard)
                case SendOver(link, data):
                    link.connection.send([data])
                case CloseLink(link):
                    self._end(link)

    def _end(self, link: _Link) -> None:
        """Close a link; one whose peer does not read what is left is cut off later."""
        link.is_closing = True
        link.waits_since_ms = self._clock.monotonic_ms()
        link.connection.close(after_sending=True)

    async def _connect(self, peer_id: int, given_address: str | None = None) -> None:
        server = self._server(peer_id)
        address = server.election_address if server is not None else _parse_address(given_address or "")
        links: list[_Link] = []

        def opened(connection: Connection) -> _Link:
            links.append(_Link(self, connection, peer_id, self._clock.monotonic_ms()))
            self._open[links[0]] = None
            return links[0]

        try:
            if address is None:
                raise ConnectionRefusedError("the configuration no longer names it")
            await self._network.connect(
                address.host,
                address.port,
                opened,
                max_frame_bytes=_MAX_FRAME_BYTES,
                timeout_ms=self._connect_timeout_ms,
            )
        except OSError as error:
            self._links.not_connected(peer_id)
            logger.info(
                "Cannot open channel to %d at election address %s: %s",
                *(peer_id, address or "?", error),
            )
            return
        if self._is_closed:
            links[0].connection.close()
        else:
            self._carry_out(self._links.connected(peer_id, links[0]))

    def _accept(self, connection: Connection) -> _Link:
        link = _Link(self, connection, None, self._clock.monotonic_ms())
        unknown = sum(other.peer_id is None for other in self._open)
        self._open[link] = None
        if self._is_closed or unknown >= _MAX_UNKNOWN:
            link.is_closing = True
            connection.close()
        return link

    def _received(self, link: _Link, data: memoryview) -> None:
        now_ms = self._clock.monotonic_ms()
        link.heard_ms = now_ms
        try:
            for message in link.stream.feed(data):
                if isinstance(message, Greeting):
                    link.peer_id = message.server_id
                    logger.info("Received connection request from %s:%d", *link.connection.peer)
                    self._carry_out(self._links.greeted(message.server_id, link, message.addresses))
                elif link.peer_id is not None:
                    self._perform(self.election.receive(link.peer_id, message, now_ms))
                if link.is_closing:
                    return
        except MalformedNotificationError as error:
            logger.warning("Closing the connection of %s to the election port: %s", link.connection.peer[0], error)
            link.is_closing = True
            link.connection.close()
            return
        if (
            link.peer_id is not None
            and self._links.by_peer.get(link.peer_id) is link
            and not link.stream.is_amid_message
        ):
            link.waits_since_ms = None
        elif link.waits_since_ms is None:
            link.waits_since_ms = now_ms

    def _closed(self, link: _Link, error: Exception | None) -> None:
        self._open.pop(link, None)
        peer_id = self._links.peer_of(link)
        self._links.closed(link)
        if peer_id is not None and not self._is_closed:
            logger.info("Connection broken for id %d, my id = %d: %s", peer_id, self._me.id, error or "closed")

    def _check(self) -> None:
        """Cut off those that keep the server waiting, and try again to reach the
        others during an election."""
        now_ms = self._clock.monotonic_ms()
        for link in list(self._open):
            if link.waits_since_ms is not None and now_ms - link.waits_since_ms >= _PATIENCE_MS:
                link.is_closing = True
                link.connection.close()
        if self.election.is_looking and now_ms - self._last_retry_ms >= _RETRY_MS:
            self._last_retry_ms = now_ms
            for peer_id, link in list(self._links.by_peer.items()):
                if now_ms - max(link.heard_ms, self._looking_since_ms) >= _SILENCE_MS:
                    self._carry_out(self._links.forget(peer_id, self._first_words()))
            self._carry_out(self._links.retry())
        self._checks = self._loop.call_later(_CHECK_MS / 1000, self._check)
