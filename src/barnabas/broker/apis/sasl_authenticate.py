"""SaslAuthenticate (key 36), versions 0 to 2.

Carries the tokens of the mechanism that SaslHandshake named. An authentication that fails is
answered after connection.failed.authentication.delay.ms, and the connection is closed.

- 1: for how long the authentication holds (connections.max.reauth.ms, KIP-368).

Errors: SASL_AUTHENTICATION_FAILED, ILLEGAL_SASL_STATE.
"""

from barnabas.broker.apis.api_handler import ApiHandler, no_parts
from barnabas.broker.requests.request import Request
from barnabas.broker.requests.sasl_server_authenticator import AuthenticationFailedError
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse

__all__ = ["API"]


def _handle(_: None, request: Request) -> None:
    message: SaslAuthenticateRequest = request.message
    authentication = request.client.authentication
    if authentication is None or authentication.is_complete:
        request.reply(
            SaslAuthenticateResponse(
                error_code=ErrorCode.ILLEGAL_SASL_STATE,
                error_message="SaslAuthenticate request received after successful authentication",
            )
        )
        return
    try:
        token, lifetime_ms = authentication.authenticate(bytes(message.auth_bytes))
    except AuthenticationFailedError as error:
        refused = SaslAuthenticateResponse(
            error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=str(error), auth_bytes=b""
        )
        authentication.fail(lambda: request.reply(refused))
        return
    request.reply(SaslAuthenticateResponse(auth_bytes=token, session_lifetime_ms=lifetime_ms))


API = ApiHandler(ApiKey.SASL_AUTHENTICATE, 0, 2, _handle, no_parts)
