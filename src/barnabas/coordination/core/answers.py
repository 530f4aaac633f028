"""Answers to clients: of the general path from an outcome, of the fast paths many in one piece; and the events of a fast one.

In ZooKeeper: `FinalRequestProcessor.processRequest`.
"""

from barnabas.coordination.core.connections import ServerConnection
from barnabas.coordination.core.operations import WRITES
from barnabas.coordination.core.operations.base import Outcome
from barnabas.coordination.core.request_metrics import RequestMetrics
from barnabas.coordination.core.statistics import Statistics
from barnabas.coordination.core.tree import Event, Events
from barnabas.coordination.core.znode import DataNode
from barnabas.wire.jute.frames import encode_multi_response, encode_reply
from barnabas.wire.jute.opcodes import EventType, OpCode
from barnabas.wire.jute.records import OPEN_ACL

__all__ = ["answer_together", "encode_answer", "events_of", "stat_fields"]


def encode_answer(xid: int, zxid: int, opcode: int, outcome: Outcome) -> bytearray:
    """The frame that answers a write; ``opcode`` is that of the request."""
    if outcome.type == OpCode.ERROR:
        return encode_reply(xid, zxid, outcome.err)
    parts = WRITES[opcode].reply(outcome)
    if outcome.type == OpCode.MULTI:
        return encode_multi_response(xid, zxid, 0, parts)  # type: ignore[arg-type]  # multi's reply
    return encode_reply(xid, zxid, 0, parts)


def answer_together(
    client: ServerConnection,
    replies: list[bytes],
    since_ms: int,
    now_ms: int,
    all_clients: Statistics,
    metrics: RequestMetrics,
) -> None:
    """Send replies to requests of the same millisecond, as `Processor` does with each by itself."""
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


def events_of(path: str, node: DataNode | None, parent_path: str) -> Events:
    """What watchers learn of a change."""
    if not parent_path:
        return [Event(EventType.NODE_DATA_CHANGED, path, OPEN_ACL)]
    kind = EventType.NODE_DELETED if node is None else EventType.NODE_CREATED
    return [Event(kind, path, OPEN_ACL), Event(EventType.NODE_CHILDREN_CHANGED, parent_path, OPEN_ACL)]


def stat_fields(node: DataNode) -> tuple[int, ...]:
    """The fields of `DataNode.stat`, whose cversion cannot overflow here."""
    data, num_children, owner = node.data, node.num_children, node.owner
    return (
        node.czxid,
        node.mzxid,
        node.ctime,
        node.mtime,
        node.version,
        node.cversion * 2 - num_children,
        node.aversion,
        owner if owner and node.is_ephemeral else 0,
        0 if data is None else len(data),
        num_children,
        node.pzxid,
    )
