"""AlterUserScramCredentials (key 51), version 0.

Sets and deletes SCRAM credentials of users (KIP-554), at the controller. A client sends salted
passwords; the passwords themselves never leave it.

Each user has one result, whatever the number of its entries: an error in one entry is the
result of the user, and nothing is changed. The results of users with errors come first, in the
order of Apache's broker.

Rights: ALTER on the cluster.

Errors: CLUSTER_AUTHORIZATION_FAILED, UNACCEPTABLE_CREDENTIAL, UNSUPPORTED_SASL_MECHANISM,
RESOURCE_NOT_FOUND, DUPLICATE_RESOURCE, NOT_CONTROLLER, REQUEST_TIMED_OUT.
"""

from collections.abc import Iterator
from typing import NamedTuple

from barnabas.base.tasks import list_of
from barnabas.broker.apis.api_handler import ApiHandler
from barnabas.broker.apis.later import AtController, LaterAnswers, keeper_failure, reply_once
from barnabas.broker.authorizer.auth_helper import AuthHelper
from barnabas.broker.cluster.steps import Steps
from barnabas.broker.configuration.repository import ConfigRepository
from barnabas.broker.configuration.scram_credentials import ScramChange, check_changes
from barnabas.broker.requests.request import Request
from barnabas.security.acls import AclOperation
from barnabas.wire.jute.errors import KeeperError
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.errors import ErrorCode, KafkaError
from barnabas.wire.kafka.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)

__all__ = ["API"]

_ORDER = {
    ErrorCode.UNACCEPTABLE_CREDENTIAL: 0,
    ErrorCode.UNSUPPORTED_SASL_MECHANISM: 0,
    ErrorCode.DUPLICATE_RESOURCE: 1,
    ErrorCode.RESOURCE_NOT_FOUND: 2,
    ErrorCode.NONE: 4,
}
_OF_OTHER_ERRORS = 3


class Parts(NamedTuple):
    """What the handler uses."""

    later: LaterAnswers
    at_controller: AtController
    config_repository: ConfigRepository
    auth_helper: AuthHelper


def _handle(parts: Parts, request: Request) -> None:
    parts.at_controller.do(request, lambda: _begin(parts, request))


def _begin(parts: Parts, request: Request) -> None:
    parts.auth_helper.authorize_cluster_operation(request, AclOperation.ALTER)
    parts.later.answer(request, _alter(parts, request))


def _changes(message: AlterUserScramCredentialsRequest) -> Iterator[ScramChange]:
    for deletion in message.deletions:
        yield ScramChange(deletion.name, deletion.mechanism)
    for each in message.upsertions:
        yield ScramChange(each.name, each.mechanism, each.iterations, bytes(each.salt), bytes(each.salted_password))


def _alter(parts: Parts, request: Request) -> Steps[None]:
    changes: dict[str, list[ScramChange]] = {}
    for change in (yield from list_of(_changes(request.message))):
        changes.setdefault(change.user, []).append(change)
    results = []
    for user, mine in changes.items():
        yield None
        error: KafkaError | None = None
        try:
            check_changes(mine)
            yield from parts.config_repository.alter_user(user, mine)
        except KafkaError as failure:
            error = failure
        except KeeperError as failure:
            error = keeper_failure(failure)
        results.append(_result(user, error))
    results.sort(key=_order)
    reply_once(request, AlterUserScramCredentialsResponse(results=results))


def _order(result: AlterUserScramCredentialsResult) -> int:
    return _ORDER.get(ErrorCode(result.error_code), _OF_OTHER_ERRORS)


def _result(user: str, error: KafkaError | None) -> AlterUserScramCredentialsResult:
    if error is None:
        return AlterUserScramCredentialsResult(user=user, error_code=ErrorCode.NONE, error_message="")
    return AlterUserScramCredentialsResult(user=user, error_code=error.code, error_message=error.message)


def _fail(
    message: AlterUserScramCredentialsRequest, _version: int, code: ErrorCode
) -> AlterUserScramCredentialsResponse:
    users = sorted({change.user for change in _changes(message)})
    return AlterUserScramCredentialsResponse(results=[_result(user, KafkaError(code)) for user in users])


API = ApiHandler(
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
    0,
    0,
    _handle,
    lambda services: Parts(services.later, services.at_controller, services.config_repository, services.auth_helper),
    _fail,
    administrative=True,
)
