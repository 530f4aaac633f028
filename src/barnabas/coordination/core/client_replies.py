"""What clients are answered, and how long they wait for it.

A write is answered by `FinalRequestProcessor`, through `answers.answer_together`. A read is
answered here, from the committed tree: at once, behind the session's own earlier writes, or in
slices if it takes long.

In ZooKeeper: `FinalRequestProcessor.processRequest`, and `ZooKeeperServer.shouldThrottle`.
"""

import logging
from collections.abc import Callable
from types import GeneratorType

from barnabas.base.tasks import Runner
from barnabas.coordination.core.connections import (
    Limits,
    ServerConnection,
    WaitingRead,
    WaitingRequests,
)
from barnabas.coordination.core.database import Database
from barnabas.coordination.core.operations.base import Reading, ReadOperation
from barnabas.coordination.core.refusals import CLOSE_LOCAL
from barnabas.coordination.core.request_metrics import RequestMetrics
from barnabas.coordination.core.sliced_reads import RepliesBehind, SlicedRead, SlicedReads
from barnabas.coordination.core.statistics import Statistics
from barnabas.coordination.core.watches import Watches
from barnabas.wire.jute.codec import MalformedRecordError, decode
from barnabas.wire.jute.errors import ErrorCode, KeeperError
from barnabas.wire.jute.frames import (
    decode_multi_request,
    encode_encoded_reply,
    encode_multi_response,
    encode_reply,
)
from barnabas.wire.jute.opcodes import OpCode

__all__ = ["ClientReplies"]

logger = logging.getLogger(__name__)


class ClientReplies:
    """See the module. It shares the state of its processor."""

    def __init__(
        self,
        database: Database,
        watches: Watches[ServerConnection],
        statistics: Statistics,
        metrics: RequestMetrics,
        limits: Limits,
        waiting: WaitingRequests,
        end_session: Callable[[int], None],
        runner: Runner,
    ) -> None:
        """``end_session`` ends a session that no transaction ends."""
        self._database = database
        self._watches = watches
        self._statistics = statistics
        self._metrics = metrics
        self._limits = limits
        self._waiting = waiting
        self._end_session = end_session
        self._now_ms = runner.now_ms
        self._sliced = SlicedReads(self._answer_sliced, self._fail_sliced, runner)

    def receive(self, client: ServerConnection, xid: int, operation: ReadOperation, data: bytes, now_ms: int) -> None:
        """Answer a request that changes nothing, once the writes before it on its
        connection are committed."""
        if self._limits.auditor is not None and operation.opcode is OpCode.ERROR:
            self._limits.auditor.refused(client)
        if operation.is_sliced:
            client.transport.hold()  # nothing may come behind it before it is answered
        if client.waiting:
            client.waiting.append(WaitingRead(xid, operation, data, now_ms))
            self._waiting.count += 1
            self.throttle(client)
        else:
            self._read(client, xid, operation, data, now_ms, now_ms)

    def read_on(self, client: ServerConnection, now_ms: int) -> None:
        """Answer the reads that waited for the write before them, and take more from the client."""
        waiting = client.waiting
        while waiting and isinstance(waiting[0], WaitingRead):
            read = waiting.popleft()
            assert isinstance(read, WaitingRead)
            self._waiting.count -= 1
            self._read(client, read.xid, read.operation, read.data, now_ms, read.since_ms)
        if client.is_held and not (waiting and self._waiting.outstanding > self._limits.global_outstanding):
            client.is_held = False
            client.transport.release()

    def _read(
        self, client: ServerConnection, xid: int, operation: ReadOperation, data: bytes, now_ms: int, since_ms: int
    ) -> None:
        zxid = self._database.last_zxid
        metrics = self._metrics
        if now_ms == since_ms:
            metrics.immediate_reads += 1
        else:
            metrics.read_latency.add(now_ms - since_ms)
        reading = Reading(self._database.tree, self._watches, client, self._limits.max_reply_bytes, metrics)
        try:
            if operation.opcode is OpCode.MULTI_READ:
                found = operation.read(reading, decode_multi_request(data, 8, self._limits.max_multi_operations))
            else:
                request = decode(operation.request_type, data, 8) if operation.request_type is not None else None
                found = operation.read(reading, request)
            if type(found) is GeneratorType:
                self._sliced.begin(SlicedRead(client, xid, found, since_ms, None if operation.is_sliced else zxid))
                return
            if type(found) is list:
                frame = encode_multi_response(xid, zxid, 0, found)
            else:
                frame = encode_reply(xid, zxid, 0, found)
        except KeeperError as error:
            frame = encode_reply(xid, zxid, error.code)
        except MalformedRecordError as error:
            logger.info("Refusing %s a request of type %d: %s", client.address, operation.opcode, error)
            frame = encode_reply(xid, zxid, ErrorCode.MARSHALLING_ERROR)
        self.reply(client, frame, now_ms, since_ms)
        if operation.is_sliced:
            client.transport.release()
        elif operation is CLOSE_LOCAL:
            self._end_session(client.session_id)

    def _answer_sliced(self, read: SlicedRead, now_ms: int) -> None:
        client, body = read.client, read.body
        if read.zxid is None:
            self.reply(client, encode_reply(read.xid, self._database.last_zxid, 0, body), now_ms, read.since_ms)
            client.transport.release()
            return
        assert isinstance(body, bytearray)
        frame = encode_encoded_reply(read.xid, read.zxid, body)
        self.reply(client, frame, now_ms, read.since_ms, read.behind.finish if read.behind is not None else None)
        if isinstance(client.transport, RepliesBehind):
            client.transport = client.transport.inner()

    def _fail_sliced(self, read: SlicedRead, error: Exception) -> None:
        if not isinstance(error, KeeperError):
            raise error
        frame = encode_reply(read.xid, self._database.last_zxid, error.code)
        self.reply(read.client, frame, self._now_ms(), read.since_ms)
        if read.zxid is None:
            read.client.transport.release()

    def reply(
        self,
        client: ServerConnection,
        frame: bytearray,
        now_ms: int,
        since_ms: int,
        send: Callable[[bytearray], None] | None = None,
    ) -> None:
        """Send a reply and count it; ``send`` takes the place of the connection's own."""
        latency_ms = now_ms - since_ms
        own, all_clients = client.statistics, self._statistics
        own.answered(latency_ms)
        own.last_reply = frame[4:16]
        own.last_reply_ms = now_ms
        all_clients.answered(latency_ms)
        size_bytes = all_clients.last_reply_bytes = len(frame)
        self._metrics.reply_bytes += size_bytes - 4
        if not all_clients.min_reply_bytes <= size_bytes <= all_clients.max_reply_bytes:
            all_clients.replied(size_bytes)
        (send or client.transport.send)(frame)

    def throttle(self, client: ServerConnection) -> None:
        """Above the global limit take no more from this client until it has no request
        outstanding, or the load ends.

        This is ZooKeeperServer.shouldThrottle: each client goes on, with one request at a time.
        """
        if not client.is_held and self._waiting.outstanding > self._limits.global_outstanding:
            client.is_held = True
            client.transport.hold()
