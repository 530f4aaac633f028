"""Answers to writes, from their changes; those of one client that are committed together leave in
one piece.

In ZooKeeper: `FinalRequestProcessor.processRequest`.
"""

from collections.abc import Callable

from barnabas.coordination.core.changes import Change
from barnabas.coordination.core.connections import ServerConnection
from barnabas.coordination.core.request_metrics import RequestMetrics
from barnabas.coordination.core.statistics import Statistics
from barnabas.wire.jute.layouts import LENGTH_AND_REPLY, REPLY_BYTES
from barnabas.wire.jute.opcodes import OpCode

__all__ = ["answer_together", "encode_answer"]


def encode_answer(xid: int, zxid: int, answer: Callable[[Change], bytes], change: Change) -> bytes:
    """The frame that answers a write; ``answer`` is that of the request's operation."""
    if change.err and change.type != OpCode.MULTI:
        return LENGTH_AND_REPLY.pack(REPLY_BYTES, xid, zxid, change.err)
    body = answer(change)
    return LENGTH_AND_REPLY.pack(REPLY_BYTES + len(body), xid, zxid, 0) + body


def answer_together(
    client: ServerConnection,
    replies: list[bytes],
    since_ms: int,
    now_ms: int,
    all_clients: Statistics,
    metrics: RequestMetrics,
) -> None:
    """Send replies to requests of the same millisecond, and count them as one by one."""
    latency_ms, count = now_ms - since_ms, len(replies)
    own = client.statistics
    metrics.update_latency.add(latency_ms, count)
    own.answered(latency_ms, count)
    own.last_reply = replies[-1][4:16]
    own.last_reply_ms = now_ms
    all_clients.answered(latency_ms, count)
    sizes = list(map(len, replies))
    all_clients.last_reply_bytes = sizes[-1]
    all_clients.replied(min(sizes))
    all_clients.replied(max(sizes))
    metrics.reply_bytes += sum(sizes) - 4 * count
    client.transport.send(replies[0] if count == 1 else b"".join(replies))
