"""DescribeUserScramCredentials (key 50), version 0.

The mechanisms for which users have SCRAM credentials, and their iterations (KIP-554); of all users,
or of those that are named. Any broker reads them from the coordination service.

Rights: DESCRIBE on the cluster.

Errors: CLUSTER_AUTHORIZATION_FAILED, RESOURCE_NOT_FOUND, DUPLICATE_RESOURCE, REQUEST_TIMED_OUT.
"""

from typing import NamedTuple

from barnabas.base.tasks import list_of
from barnabas.broker.apis.api_handler import ApiHandler
from barnabas.broker.apis.later import LaterAnswers, reply_once
from barnabas.broker.authorizer.auth_helper import AuthHelper
from barnabas.broker.cluster.steps import Steps
from barnabas.broker.configuration.repository import ConfigRepository
from barnabas.broker.requests.request import Request
from barnabas.security.acls import AclOperation
from barnabas.security.mechanisms import SCRAM_MECHANISMS
from barnabas.security.scram import ScramCredential
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.errors import ErrorCode, error_text
from barnabas.wire.kafka.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)

__all__ = ["API"]


class Parts(NamedTuple):
    """What the handler uses."""

    later: LaterAnswers
    config_repository: ConfigRepository
    auth_helper: AuthHelper


def _handle(parts: Parts, request: Request) -> None:
    parts.auth_helper.authorize_cluster_operation(request, AclOperation.DESCRIBE)
    parts.later.answer(request, _describe(parts, request))


def _describe(parts: Parts, request: Request) -> Steps[None]:
    message: DescribeUserScramCredentialsRequest = request.message
    named: dict[str, int] = {}
    for user in message.users or ():
        yield None
        named[user.name] = named.get(user.name, 0) + 1
    known = yield from parts.config_repository.read_users(list(named) or None)
    if not named:
        results = yield from list_of(_result(user, credentials) for user, credentials in known.items() if credentials)
    else:
        results = yield from list_of(
            _twice(user) if count > 1 else _result(user, known.get(user, {})) for user, count in named.items()
        )
    reply_once(request, DescribeUserScramCredentialsResponse(results=results))


def _twice(user: str) -> DescribeUserScramCredentialsResult:
    return DescribeUserScramCredentialsResult(
        user=user,
        error_code=ErrorCode.DUPLICATE_RESOURCE,
        error_message=error_text(
            f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}"
        ),
        credential_infos=[],
    )


def _result(user: str, credentials: dict[str, ScramCredential]) -> DescribeUserScramCredentialsResult:
    if not credentials:
        return DescribeUserScramCredentialsResult(
            user=user,
            error_code=ErrorCode.RESOURCE_NOT_FOUND,
            error_message=error_text(f"Attempt to describe a user credential that does not exist: {user}"),
            credential_infos=[],
        )
    infos = [
        CredentialInfo(mechanism=SCRAM_MECHANISMS[mechanism].number, iterations=credential.iterations)
        for mechanism, credential in credentials.items()
    ]
    return DescribeUserScramCredentialsResult(
        user=user, error_code=ErrorCode.NONE, error_message=None, credential_infos=infos
    )


def _fail(
    message: DescribeUserScramCredentialsRequest, _version: int, code: ErrorCode
) -> DescribeUserScramCredentialsResponse:
    """For the request as a whole; a result for each user has no name, as of Apache's brokers."""
    return DescribeUserScramCredentialsResponse(
        error_code=code,
        error_message=code.message,
        results=[
            DescribeUserScramCredentialsResult(error_code=code, error_message=code.message, credential_infos=[])
            for _ in message.users or ()
        ],
    )


API = ApiHandler(
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
    0,
    0,
    _handle,
    lambda services: Parts(services.later, services.config_repository, services.auth_helper),
    _fail,
)
