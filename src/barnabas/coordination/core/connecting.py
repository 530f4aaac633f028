"""The first request of a connection: a client wants a session, or goes on with the one that it has.

    no session id    a new session: of this server alone if sessions are local,
                     otherwise created for everyone
    a session id     taken over from its earlier connection; a learner asks its leader
                     whether the session is alive
    read-only        taken as it comes, if the client accepts a server without a quorum. A session
                     that the ensemble knows is refused: only a leader keeps it alive, so its client
                     must find a server with a quorum

In ZooKeeper: ZooKeeperServer.processConnectRequest, reopenSession and finishSessionInit.
"""

import logging
from collections.abc import Callable

from barnabas.coordination.core.access import SUPER
from barnabas.coordination.core.connections import Forwarder, Limits, ServerConnection
from barnabas.coordination.core.database import Database
from barnabas.coordination.core.local_sessions import UpgradeableSessionTracker
from barnabas.coordination.core.sessions import LearnerSessionTracker, Session, SessionTracker, session_password
from barnabas.coordination.core.statistics import Statistics
from barnabas.wire.jute.frames import decode_connect_request, encode_connect_response
from barnabas.wire.jute.records import ConnectRequest, ConnectResponse

__all__ = ["SessionConnector"]

logger = logging.getLogger(__name__)
_NO_PASSWORD = bytes(16)


def _take_over(client: ServerConnection, session: Session) -> None:
    before = session.owner
    if isinstance(before, ServerConnection):
        before.transport.close()
    session.owner = client
    client.session = session


def _response(
    client: ServerConnection, timeout_ms: int, session_id: int, password: bytes, *, is_read_only: bool = False
) -> bytearray:
    response = ConnectResponse(0, timeout_ms, session_id, password)
    return encode_connect_response(response, None if client.old_protocol else is_read_only)


class SessionConnector:
    """Opens sessions, and moves them to a new connection."""

    def __init__(
        self,
        database: Database,
        tracker: SessionTracker | LearnerSessionTracker | UpgradeableSessionTracker,
        limits: Limits,
        local: UpgradeableSessionTracker | None,
        forwarder: Forwarder | None,
        statistics: Statistics,
        create: Callable[[ServerConnection, Session, int, int], None],
    ) -> None:
        """``create`` has a session created for everyone, and calls `established` when it is."""
        self._database = database
        self._tracker = tracker
        self._limits = limits
        self._local = local
        self._forwarder = forwarder
        self._statistics = statistics
        self._create = create
        self._revalidating: dict[int, list[tuple[ServerConnection, int]]] = {}

    def connect(self, client: ServerConnection, data: bytes, now_ms: int, wall_ms: int) -> None:
        """Handle a connection's first frame. Raises `MalformedRecordError`."""
        request, read_only = decode_connect_request(data)
        client.old_protocol = read_only is None
        limits = self._limits
        if limits.access.skip_acl:
            client.add_ids([SUPER])
        if request.last_zxid_seen > self._database.last_zxid:
            logger.info(
                "Refusing %s: it has seen zxid 0x%x, and the last one here is 0x%x; it must try another server",
                client.address,
                request.last_zxid_seen,
                self._database.last_zxid,
            )
            client.transport.close()
            return
        if request.session_id:
            self._statistics.reconnections += 1
        timeout_ms = min(max(request.timeout_ms, limits.min_session_timeout_ms), limits.max_session_timeout_ms)
        client.transport.hold()
        if self._forwarder is not None and self._forwarder.is_read_only:
            self._connect_read_only(client, request, timeout_ms, now_ms, accepts=bool(read_only))
        elif request.session_id:
            self._reopen(client, request, timeout_ms, now_ms)
        elif self._local is not None:
            session = self._local.track_local(self._local.new_id(), timeout_ms, now_ms)
            _take_over(client, session)
            self.established(client, session)
        else:
            session = self._tracker.track(self._tracker.new_id(), timeout_ms, now_ms)
            _take_over(client, session)
            self._create(client, session, now_ms, wall_ms)

    def _connect_read_only(
        self, client: ServerConnection, request: ConnectRequest, timeout_ms: int, now_ms: int, *, accepts: bool
    ) -> None:
        is_owner = request.password == session_password(request.session_id)
        if not accepts or (request.session_id and not is_owner):
            logger.info("Refusing %s: this server is read-only, and the client does not accept that", client.address)
            client.transport.close()
            return
        if request.session_id in self._database.session_timeouts_ms:
            logger.info(
                "Refusing %s: this server is read-only, and cannot keep session 0x%x alive; it must try another server",
                client.address,
                request.session_id & (1 << 64) - 1,
            )
            client.transport.close()
            return
        session = self._tracker.track(request.session_id or self._tracker.new_id(), timeout_ms, now_ms)
        _take_over(client, session)
        self.established(client, session)

    def _reopen(self, client: ServerConnection, request: ConnectRequest, timeout_ms: int, now_ms: int) -> None:
        session_id = request.session_id
        is_owner = request.password == session_password(session_id)
        is_local = self._local is not None and self._local.is_local(session_id)
        if self._forwarder is not None and is_owner and not is_local:
            self._revalidating.setdefault(session_id, []).append((client, timeout_ms))
            self._forwarder.revalidate(session_id, timeout_ms)
            return
        found = self._tracker.live(session_id)
        if found is None or not is_owner:
            self._refuse(client, session_id)
            return
        found.timeout_ms = timeout_ms
        self._tracker.touch(found, now_ms)
        _take_over(client, found)
        self.established(client, found)

    def revalidated(self, session_id: int, is_alive: bool, now_ms: int) -> None:
        """The leader's answer for a client that wants to reopen its session here."""
        waiting = self._revalidating.get(session_id)
        if not waiting:
            return
        client, timeout_ms = waiting.pop(0)
        if not waiting:
            del self._revalidating[session_id]
        if client.is_closed:
            return
        if not is_alive:
            self._refuse(client, session_id)
            return
        session = self._tracker.track(session_id, timeout_ms, now_ms)
        self._tracker.touch(session, now_ms)
        _take_over(client, session)
        self.established(client, session)

    def _refuse(self, client: ServerConnection, session_id: int) -> None:
        logger.info("Refusing %s: session 0x%x has expired or is unknown", client.address, session_id & (1 << 64) - 1)
        client.transport.send(_response(client, 0, 0, _NO_PASSWORD))
        client.transport.close()

    def established(self, client: ServerConnection, session: Session) -> None:
        """The session exists: answer, and take requests from now on."""
        client.statistics.sent += 1
        self._statistics.sent += 1
        is_read_only = self._forwarder is not None and self._forwarder.is_read_only
        password = session_password(session.id)
        client.transport.send(_response(client, session.timeout_ms, session.id, password, is_read_only=is_read_only))
        client.transport.release()
