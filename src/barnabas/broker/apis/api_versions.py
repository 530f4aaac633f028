"""ApiVersions (key 18), versions 0 to 4.

What this broker serves, from the table that also dispatches. A request in an unknown version gets a response in
version 0 with UNSUPPORTED_VERSION, so that newer clients can step down. There are no finalized features in ZooKeeper
mode.

- 3: the client's name and version, words of letters, digits, dots and dashes (KIP-511).
- 4: features may begin at version 0 (KIP-1022).

Errors: UNSUPPORTED_VERSION, INVALID_REQUEST.
"""

import re
from collections.abc import Iterable, Sequence

from barnabas.broker.apis.api_handler import ApiHandler
from barnabas.broker.apis.services import Services
from barnabas.broker.requests.request import Request
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse

__all__ = ["API", "advertised", "unsupported_version"]

_WORD = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
_MOST_LETTERS = (
    256  # of a client's name or version, which Kafka does not limit; a pattern goes through it, and it is kept
)
_CLIENT_NAMES = 3
_NO_FEATURES_EPOCH = 0  # of the znode /feature, which lists none in ZooKeeper mode


def advertised(handlers: Iterable[ApiHandler]) -> Sequence[ApiVersion]:
    """The table as the response lists it."""
    return [
        ApiVersion(
            api_key=int(handler.key),
            min_version=0 if handler.key is ApiKey.PRODUCE else handler.min_version,
            max_version=handler.max_version,
        )
        for handler in handlers
    ]


def unsupported_version(max_version: int) -> ApiVersionsResponse:
    """The answer, in version 0, to a version that is not known, with the highest one that is."""
    return ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION,
        api_keys=[ApiVersion(api_key=int(API.key), min_version=API.min_version, max_version=max_version)],
    )


def handle(services: Services, request: Request) -> None:
    """Check the client's name and answer with the table."""
    message: ApiVersionsRequest = request.message
    if request.version >= _CLIENT_NAMES:
        name, version = message.client_software_name, message.client_software_version
        if not all(len(word) <= _MOST_LETTERS and _WORD.fullmatch(word) for word in (name, version)):
            request.fail(ErrorCode.INVALID_REQUEST)
            return
        request.client.software_name = name
        request.client.software_version = version
    if request.client.authentication is not None:
        request.client.authentication.versions_answered()
    request.reply(
        ApiVersionsResponse(api_keys=list(services.api_versions), finalized_features_epoch=_NO_FEATURES_EPOCH)
    )


API = ApiHandler(ApiKey.API_VERSIONS, 0, 4, handle)
