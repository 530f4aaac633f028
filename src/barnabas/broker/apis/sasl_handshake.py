"""SaslHandshake (key 17), versions 0 to 1.

Names the SASL mechanism of a client on a listener with SASL, before it authenticates. On
other listeners, and on a connection that is authenticated already, it is answered with
ILLEGAL_SASL_STATE.

- 1: the tokens that follow have the form of SaslAuthenticate; after version 0 they have no header.

Errors: UNSUPPORTED_SASL_MECHANISM, ILLEGAL_SASL_STATE.
"""

from barnabas.broker.apis.api_handler import ApiHandler, no_parts
from barnabas.broker.requests.request import Request
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

__all__ = ["API"]


def _handle(_: None, request: Request) -> None:
    message: SaslHandshakeRequest = request.message
    authentication = request.client.authentication
    if authentication is None:
        request.fail(ErrorCode.ILLEGAL_SASL_STATE)
        return
    code = authentication.handshake(message.mechanism, request.version)
    if code is ErrorCode.ILLEGAL_SASL_STATE:
        request.fail(code)
        return
    response = SaslHandshakeResponse(error_code=code, mechanisms=list(authentication.mechanisms))
    if code is ErrorCode.NONE:
        request.reply(response)
    else:
        authentication.fail(lambda: request.reply(response))


API = ApiHandler(ApiKey.SASL_HANDSHAKE, 0, 1, _handle, no_parts)
