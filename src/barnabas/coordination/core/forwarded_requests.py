"""Requests on their way between a learner and its leader: which ones go together, and what
the leader makes of one.

In ZooKeeper: FollowerRequestProcessor, and the part of `LeaderRequestProcessor` and
`PrepRequestProcessor` that looks at sessions.
"""

import logging
from collections.abc import Sequence
from itertools import islice

from barnabas.coordination.core.connections import Limits
from barnabas.coordination.core.local_sessions import UpgradeableSessionTracker, creates_ephemeral
from barnabas.coordination.core.operations import CLIENT_WRITES
from barnabas.coordination.core.operations.base import PlainValues, WriteOperation
from barnabas.coordination.core.operations.multi import decode_part_values
from barnabas.coordination.core.refusals import EXPIRED, MALFORMED, MOVED
from barnabas.coordination.core.sessions import LearnerSessionTracker, SessionTracker
from barnabas.wire.jute.codec import MalformedRecordError, decode
from barnabas.wire.jute.layouts import JUTE_INT, REQUEST_HEADER
from barnabas.wire.jute.opcodes import OpCode
from barnabas.wire.jute.quorum import ForwardedRequest
from barnabas.wire.jute.transactions import CreateSessionTxn

__all__ = ["admit", "usual_writes"]

logger = logging.getLogger(__name__)

_USUAL = frozenset(map(JUTE_INT.pack, CLIENT_WRITES))


def usual_writes(frames: Sequence[bytes], start: int, most: int) -> list[bytes]:
    """The frames from ``start`` on, up to the first that is not a write of a client,
    and at most ``most``."""
    found: list[bytes] = []
    for frame in islice(frames, start, start + most):
        if len(frame) < REQUEST_HEADER.size or frame[4:8] not in _USUAL:
            break
        found.append(frame)
    return found


def admit(
    tracker: SessionTracker | LearnerSessionTracker | UpgradeableSessionTracker,
    writes: dict[int, WriteOperation],
    limits: Limits,
    owner: object,
    request: ForwardedRequest,
    now_ms: int,
) -> tuple[WriteOperation, PlainValues]:
    """The operation that decides a learner's request, and its values.

    A session belongs to the learner through which its client came last.
    """
    session_id, opcode = request.session_id, request.opcode
    found = writes.get(opcode)
    operation = MALFORMED
    values: PlainValues = ()
    try:
        if found is None:
            raise MalformedRecordError(f"{opcode} is not the opcode of a write")
        if opcode == OpCode.CREATE_SESSION:
            body = decode(CreateSessionTxn, request.body)
            tracker.track(session_id, body.timeout_ms, now_ms).owner = owner
            values = found.values(body)
        elif found.is_internal:
            raise MalformedRecordError(f"{opcode} is not a client's write")
        else:
            values = decode_part_values(found, request.body, 0, limits.max_multi_operations)
        operation = found
    except MalformedRecordError as error:
        logger.info("Refusing a forwarded request of type %d: %s", opcode, error)
    session = tracker.live(session_id)
    if session is None:
        # A session that is unknown here may be local on the learner; then it may do all
        # but own an ephemeral node.
        if limits.local_sessions is None or creates_ephemeral(opcode, request.body, limits.max_multi_operations):
            operation = EXPIRED
    else:
        tracker.touch(session, now_ms)
        if session.owner is None:
            session.owner = owner
        elif session.owner is not owner and opcode != OpCode.CLOSE_SESSION:
            # Its client may end it from anywhere.
            operation = MOVED
    return operation, values
