"""One step of a client's authentication with SASL.

In ZooKeeper: `ZooKeeperServer.processSasl`.
"""

import logging

from barnabas.coordination.core.access import AccessRules
from barnabas.coordination.core.connections import ServerConnection
from barnabas.coordination.core.statistics import Statistics
from barnabas.security.errors import SaslError
from barnabas.wire.jute.errors import ErrorCode
from barnabas.wire.jute.frames import encode_reply
from barnabas.wire.jute.records import GetSASLRequest, Id, SetSASLResponse

__all__ = ["step_sasl"]

logger = logging.getLogger(__name__)


def step_sasl(
    client: ServerConnection, xid: int, request: GetSASLRequest, rules: AccessRules, statistics: Statistics
) -> None:
    """One step of an authentication. A client may repeat it, with a mechanism of its own each time."""
    if rules.new_sasl_server is None:
        client.transport.send(encode_reply(xid, 0, ErrorCode.OK, SetSASLResponse(None)))
        return
    if client.sasl is None or client.sasl.is_complete:
        client.sasl = rules.new_sasl_server()
    answer: bytes | None = None
    try:
        answer = client.sasl.evaluate(request.token or b"")
        if client.sasl.is_complete:
            logger.info("Session 0x%x: SASL user %s", client.session_id & (1 << 64) - 1, client.sasl.user)
            client.add_ids(rules.with_super(Id("sasl", client.sasl.user)))
    except SaslError as error:
        logger.warning("Client %s failed to authenticate with SASL: %s", client.address, error)
        statistics.failed_authentications += 1
        client.sasl = None
        is_required = "sasl" in rules.required_schemes
        if is_required or not rules.maintains_failed_sasl_clients:
            code = ErrorCode.SESSION_CLOSED_REQUIRE_SASL_AUTH if is_required else ErrorCode.AUTH_FAILED
            client.transport.send(encode_reply(xid, 0, code, SetSASLResponse(None)))
            client.transport.close()
            return
    client.transport.send(encode_reply(xid, 0, ErrorCode.OK, SetSASLResponse(answer)))
