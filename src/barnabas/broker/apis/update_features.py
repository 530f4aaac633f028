"""UpdateFeatures (key 57), versions 0 to 1.

Finalizes features of the cluster, lowers or removes them (KIP-584). Answered by the controller,
when the znode ``/feature`` is written; each update succeeds or fails for itself.

- 1: the kind of downgrade, and requests that only validate (KIP-778). Apache's brokers in ZooKeeper
  mode write what they should only validate.

Rights: ALTER on the cluster.

Errors: CLUSTER_AUTHORIZATION_FAILED, NOT_CONTROLLER, INVALID_REQUEST (also where
inter.broker.protocol.version is lower than 2.7), FEATURE_UPDATE_FAILED.
"""

from typing import NamedTuple

from barnabas.base.tasks import list_of
from barnabas.broker.apis.api_handler import ApiHandler
from barnabas.broker.apis.later import AtController, reply_once
from barnabas.broker.authorizer.auth_helper import AuthHelper
from barnabas.broker.cluster.steps import Steps
from barnabas.broker.controller.features import FeatureUpdate, UpgradeType
from barnabas.broker.controller.service import Controller
from barnabas.broker.requests.request import Request
from barnabas.security.acls import AclOperation
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.errors import ErrorCode, KafkaError
from barnabas.wire.kafka.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

__all__ = ["API"]

_UPGRADE_TYPES_SINCE_VERSION = 1


class Parts(NamedTuple):
    """What the handler uses."""

    at_controller: AtController
    controller: Controller
    auth_helper: AuthHelper


def _handle(parts: Parts, request: Request) -> None:
    parts.auth_helper.authorize_cluster_operation(request, AclOperation.ALTER)
    parts.at_controller.answer(request, _update(parts, request, request.message))


def _update(parts: Parts, request: Request, message: UpdateFeaturesRequest) -> Steps[None]:
    updates = yield from list_of(
        FeatureUpdate(each.feature, each.max_version_level, _upgrade_type(each, request.version))
        for each in message.feature_updates
    )
    try:
        answers = yield from parts.controller.commands.update_features(updates, validate_only=message.validate_only)
    except KafkaError as error:
        reply_once(request, UpdateFeaturesResponse(error_code=error.code, error_message=error.message))
        return
    results = yield from list_of(_result(name, error) for name, error in answers.items())
    reply_once(request, UpdateFeaturesResponse(results=results))


def _upgrade_type(update: FeatureUpdateKey, version: int) -> UpgradeType:
    if version < _UPGRADE_TYPES_SINCE_VERSION:
        return UpgradeType.SAFE_DOWNGRADE if update.allow_downgrade else UpgradeType.UPGRADE
    try:
        return UpgradeType(update.upgrade_type)
    except ValueError:
        return UpgradeType.UNKNOWN


def _result(feature: str, error: KafkaError | None) -> UpdatableFeatureResult:
    if error is None:
        return UpdatableFeatureResult(feature=feature)
    return UpdatableFeatureResult(feature=feature, error_code=error.code, error_message=error.message)


def _fail(_: UpdateFeaturesRequest, __: int, code: ErrorCode) -> UpdateFeaturesResponse:
    return UpdateFeaturesResponse(error_code=code, error_message=code.message)


API = ApiHandler(
    ApiKey.UPDATE_FEATURES,
    0,
    1,
    _handle,
    lambda services: Parts(services.at_controller, services.controller, services.auth_helper),
    _fail,
    administrative=True,
)
