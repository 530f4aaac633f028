"""The cluster's features over an `AdminConnection`: which are supported and
finalized, and changes (KIP-584).

In Kafka: `Admin.describeFeatures` and `Admin.updateFeatures`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

from barnabas import __version__
from barnabas.client.cluster.admin_connection import AdminConnection
from barnabas.client.errors import RefusedError, refusal
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.wire.kafka.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

__all__ = ["FeatureDescription", "Features", "LevelChange", "describe_features", "update_features"]

# The version of UpdateFeatures with kinds of downgrades, and with validation.
_UPGRADE_TYPES_FROM = 1
_WITHOUT_RESULTS_FROM = 2


class LevelChange(IntEnum):
    """What a change of a level may do; the protocol's numbers."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


@dataclass(frozen=True, slots=True)
class FeatureDescription:
    """A feature: the levels that a broker supports, and the one that is finalized (0: none)."""

    name: str
    lowest: int
    highest: int
    finalized: int


@dataclass(frozen=True, slots=True)
class Features:
    """All features, by name; ``epoch`` is None where nothing can be finalized."""

    features: list[FeatureDescription]
    epoch: int | None


def describe_features(connection: AdminConnection) -> Features:
    """The features, as a broker knows them."""
    request = ApiVersionsRequest(client_software_name="barnabas", client_software_version=_word(__version__))
    response = connection.send(request, ApiVersionsResponse)
    if response.error_code:
        raise refusal(response.error_code)
    supported = {each.name: (each.min_version, each.max_version) for each in response.supported_features}
    finalized = {each.name: each.max_version_level for each in response.finalized_features}
    return Features(
        [
            FeatureDescription(name, *supported.get(name, (0, 0)), finalized.get(name, 0))
            for name in sorted({**supported, **finalized})
        ],
        response.finalized_features_epoch if response.finalized_features_epoch >= 0 else None,
    )


def _word(version: str) -> str:
    """Brokers take letters, digits, dots and dashes only."""
    return version.replace("+", "-")


def update_features(
    connection: AdminConnection, levels: Mapping[str, int], kind: LevelChange, *, validate_only: bool = False
) -> dict[str, RefusedError | None]:
    """Finalize these levels; each feature's error, None for one that was changed.

    Level 0 removes a feature. Raises what concerns the request as a whole.
    """
    controller = connection.describe_cluster().controller_id
    version = connection.negotiated(UpdateFeaturesRequest, controller if controller >= 0 else None)
    if version < _UPGRADE_TYPES_FROM and (validate_only or kind is LevelChange.UNSAFE_DOWNGRADE):
        raise refusal(ErrorCode.UNSUPPORTED_VERSION, "the brokers are too old for a validation, or an unsafe downgrade")
    updates = [
        FeatureUpdateKey(
            feature=name,
            max_version_level=level,
            allow_downgrade=version < _UPGRADE_TYPES_FROM and kind is not LevelChange.UPGRADE,
            upgrade_type=kind if version >= _UPGRADE_TYPES_FROM else LevelChange.UPGRADE,
        )
        for name, level in levels.items()
    ]
    request = UpdateFeaturesRequest(
        timeout_ms=connection.request_timeout_ms, feature_updates=updates, validate_only=validate_only
    )
    response = connection.send_to_controller(request, UpdateFeaturesResponse, lambda answer: [answer.error_code])
    if response.error_code:
        raise refusal(response.error_code, response.error_message)
    results = {
        each.feature: refusal(each.error_code, each.error_message) if each.error_code else None
        for each in response.results
    }
    return dict.fromkeys(levels) if version >= _WITHOUT_RESULTS_FROM else results
