"""How a client's connection gets its identities: by an auth packet, or by steps of SASL.

In ZooKeeper: `ZooKeeperServer.processPacket` and `processSasl`.
"""

import logging

from barnabas.coordination.core.access import AccessRules, authenticate
from barnabas.coordination.core.connections import ServerConnection
from barnabas.coordination.core.statistics import Statistics
from barnabas.security.errors import SaslError
from barnabas.wire.jute.errors import ErrorCode, KeeperError
from barnabas.wire.jute.frames import encode_reply
from barnabas.wire.jute.opcodes import OpCode
from barnabas.wire.jute.records import AuthPacket, GetSASLRequest, Id, RequestHeader, SetSASLResponse

__all__ = ["authenticate_client", "may_request", "step_sasl"]

logger = logging.getLogger(__name__)
_MAX_IDENTITIES = 100


def may_request(client: ServerConnection, header: RequestHeader, rules: AccessRules) -> bool:
    """Whether the client has authenticated, or is about to; else it gets the reason, and
    its connection is closed."""
    if header.type in (OpCode.AUTH, OpCode.SASL) or rules.is_authenticated(client.ids):
        return True
    logger.warning(
        "Closing the connection of %s: it has not authenticated with any of the schemes %s",
        client.address,
        ", ".join(sorted(rules.required_schemes)),
    )
    client.transport.send(encode_reply(header.xid, 0, ErrorCode.SESSION_CLOSED_REQUIRE_SASL_AUTH))
    client.transport.close()
    return False


def authenticate_client(
    client: ServerConnection, xid: int, packet: AuthPacket, rules: AccessRules, statistics: Statistics
) -> None:
    """Add the identities that an auth packet proves.

    The connection of a client that proves none is closed."""
    try:
        if len(client.ids) >= _MAX_IDENTITIES:
            raise KeeperError(ErrorCode.AUTH_FAILED)
        identities = authenticate(rules, packet.scheme, packet.auth)
    except KeeperError as error:
        logger.warning("Client %s failed to authenticate with the scheme %r", client.address, packet.scheme[:20])
        statistics.failed_authentications += 1
        client.transport.send(encode_reply(xid, 0, error.code))
        client.transport.close()
        return
    client.add_ids(identities)
    client.transport.send(encode_reply(xid, 0, ErrorCode.OK))


def step_sasl(
    client: ServerConnection, xid: int, request: GetSASLRequest, rules: AccessRules, statistics: Statistics
) -> None:
    """One step of an authentication.

    A client may repeat it, with a mechanism of its own each time."""
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
