"""A learner's writes: they go to the leader, and are answered when it has committed them.

In ZooKeeper: FollowerRequestProcessor and ObserverRequestProcessor.
"""

from collections import deque
from collections.abc import Sequence

from barnabas.coordination.core.client_replies import ClientReplies
from barnabas.coordination.core.connections import (
    Auditor,
    ForwardedWrite,
    Forwarder,
    ServerConnection,
    WaitingRequests,
)
from barnabas.coordination.core.database import Database
from barnabas.coordination.core.forwarded_requests import usual_writes
from barnabas.wire.jute.codec import decode
from barnabas.wire.jute.errors import KeeperError
from barnabas.wire.jute.frames import encode_reply
from barnabas.wire.jute.layouts import REQUEST_HEADER
from barnabas.wire.jute.opcodes import OpCode
from barnabas.wire.jute.records import SyncRequest, SyncResponse

__all__ = ["FollowerRequestProcessor"]


class FollowerRequestProcessor:
    """See the module. It shares the state of its processor."""

    def __init__(
        self,
        database: Database,
        forwarder: Forwarder,
        auditor: Auditor | None,
        waiting: WaitingRequests,
        replies: ClientReplies,
    ) -> None:
        self._database = database
        self._forwarder = forwarder
        self._auditor = auditor
        self._waiting = waiting
        self._replies = replies
        self._syncs: deque[ServerConnection] = deque()

    def forward_usual(
        self, client: ServerConnection, session_id: int, frames: Sequence[bytes], start: int, most: int, now_ms: int
    ) -> list[bytes]:
        """Forward the writes at the head of the frames from ``start`` on, at most ``most``.

        Returns them."""
        writes = usual_writes(frames, start, most)
        if writes:
            self._forwarder.forward_frames(session_id, writes, client.ids)
            headers = map(REQUEST_HEADER.unpack_from, writes)
            client.waiting.extend([ForwardedWrite(xid, opcode, now_ms) for xid, opcode in headers])
            self._waiting.count += len(writes)
        return writes

    def forward(
        self, client: ServerConnection, session_id: int, xid: int, opcode: int, body: bytes, now_ms: int
    ) -> None:
        """Forward a write or a sync."""
        path = decode(SyncRequest, body).path if opcode == OpCode.SYNC else ""
        try:
            self._forwarder.forward(session_id, xid, opcode, body, client.ids)
        except KeeperError as error:
            if self._auditor is not None:
                self._auditor.refused(client)
            self._replies.reply(client, encode_reply(xid, self._database.last_zxid, error.code), now_ms, now_ms)
            return
        if opcode == OpCode.SYNC:
            self._syncs.append(client)
        client.waiting.append(ForwardedWrite(xid, opcode, now_ms, path))
        self._waiting.count += 1
        self._replies.throttle(client)

    def synced(self, now_ms: int) -> None:
        """The leader has committed all that it had when the oldest sync reached it: answer the
        sync."""
        client = self._syncs.popleft()
        request = client.waiting[0] if client.waiting else None
        if client.is_closed or not isinstance(request, ForwardedWrite) or request.opcode != OpCode.SYNC:
            return
        client.waiting.popleft()
        self._waiting.count -= 1
        frame = encode_reply(request.xid, self._database.last_zxid, 0, SyncResponse(request.path))
        self._replies.reply(client, frame, now_ms, request.since_ms)
        self._replies.read_on(client, now_ms)
