"""ApiVersions (key 18), versions 0 to 5.

What this broker serves, from the table that also dispatches. A request in an unknown version gets a
response in version 0 with UNSUPPORTED_VERSION, so that newer clients can step down.

- 3: the client's name and version, words of letters, digits, dots and dashes (KIP-511); the
  features that the broker supports and those that the cluster has finalized, with their epoch
  (KIP-584).
- 4: supported features may begin at level 0 (KIP-1022). Older clients may fail at it, so they do
  not see such a feature among those that are supported.
- 5: the cluster and the broker that the client expects at this address, both or neither
  (KIP-1242). A client that has reached another broker asks its bootstrap servers again. As in
  Apache's brokers, nothing is compared before a client that uses SASL has authenticated.

Errors: UNSUPPORTED_VERSION, INVALID_REQUEST, REBOOTSTRAP_REQUIRED.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from barnabas.broker.apis.api_handler import ApiHandler
from barnabas.broker.metadata.cache import MetadataCache
from barnabas.broker.metadata.features import SUPPORTED, FeatureCache
from barnabas.broker.requests.request import Request
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

__all__ = ["API", "advertised", "unsupported_version"]

_WORD = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
_MOST_LETTERS = (
    # Of a client's name or version, which Kafka does not limit; a pattern goes
    # through it, and it is kept.
    256
)
_CLIENT_NAMES = 3
_LEVEL_0_SINCE_VERSION = 4
_EXPECTED_BROKER = 5
_NO_NODE = -1


class Parts(NamedTuple):
    """What the handler uses."""

    api_versions: Sequence[ApiVersion]
    features: FeatureCache
    metadata: MetadataCache
    broker_id: int


def advertised(handlers: Iterable[ApiHandler[Any]]) -> Sequence[ApiVersion]:
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


def handle(parts: Parts, request: Request) -> None:
    """Check the client's name and answer with the table."""
    message: ApiVersionsRequest = request.message
    if request.version >= _EXPECTED_BROKER and (message.cluster_id is None) is not (message.node_id == _NO_NODE):
        request.fail(ErrorCode.INVALID_REQUEST)
        return
    if request.version >= _CLIENT_NAMES:
        name, version = message.client_software_name, message.client_software_version
        if not all(len(word) <= _MOST_LETTERS and _WORD.fullmatch(word) for word in (name, version)):
            request.fail(ErrorCode.INVALID_REQUEST)
            return
        request.client.software_name = name
        request.client.software_version = version
    if _is_elsewhere(parts, request, message):
        request.fail(ErrorCode.REBOOTSTRAP_REQUIRED)
        return
    if request.client.authentication is not None:
        request.client.authentication.versions_answered()
    features = parts.features
    request.reply(
        ApiVersionsResponse(
            api_keys=list(parts.api_versions),
            supported_features=_supported(request.version),
            finalized_features_epoch=features.epoch,
            finalized_features=[
                FinalizedFeatureKey(name=feature, max_version_level=level, min_version_level=level)
                for feature, level in features.levels.items()
            ],
        )
    )


def _is_elsewhere(parts: Parts, request: Request, message: ApiVersionsRequest) -> bool:
    """Whether the client has reached another broker than it expects."""
    authentication = request.client.authentication
    if message.cluster_id is None or (authentication is not None and not authentication.is_complete):
        return False
    return (message.cluster_id, message.node_id) != (parts.metadata.cluster_id, parts.broker_id)


def _supported(version: int) -> list[SupportedFeatureKey]:
    return [
        SupportedFeatureKey(name=feature, min_version=levels.lowest, max_version=levels.highest)
        for feature, levels in SUPPORTED.items()
        if levels.lowest > 0 or version >= _LEVEL_0_SINCE_VERSION
    ]


API = ApiHandler(
    ApiKey.API_VERSIONS,
    0,
    5,
    handle,
    lambda services: Parts(services.api_versions, services.features, services.metadata, services.broker_id),
)
