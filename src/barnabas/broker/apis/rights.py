"""The names in a request on which its client may do an operation.

A request may name a resource a thousand times, and a hundred thousand resources: each is decided
once, and others have their turn meanwhile. Without an authorizer nothing is looked at.

In Kafka: `AuthHelper.filterByAuthorized` and `partitionSeqByAuthorized`.
"""

from collections.abc import Container, Iterable

from barnabas.base.tasks import Task
from barnabas.broker.authorizer.auth_helper import AuthHelper
from barnabas.broker.requests.request import Request
from barnabas.security.acls import AclOperation, ResourceType

__all__ = ["EVERY_NAME", "allowed_names"]


class _EveryName:
    """Contains all names."""

    def __contains__(self, _: object) -> bool:
        return True


EVERY_NAME: Container[str] = _EveryName()


def allowed_names(
    auth_helper: AuthHelper,
    request: Request,
    operation: AclOperation,
    resource_type: ResourceType,
    names: Iterable[str],
    *,
    log_if_denied: bool = True,
) -> Task[Container[str]]:
    """Those of some names on which the client may do an operation."""
    if not auth_helper.is_enabled:
        return EVERY_NAME
    return (yield from auth_helper.authorized(request, operation, resource_type, names, log_if_denied=log_if_denied))
