"""An `AuthHelper` that allows everything, and notes what it was asked for: from it follows which
access control lists a program needs.

Where a right to the whole cluster is only one of two ways (to create a topic, to be an idempotent
producer, to ask for the end of an epoch), it is not given, so that the narrower right is asked for
and noted. What is asked only to leave things out of a list is allowed, and noted as such.

Kafka has no counterpart.
"""

from barnabas.base.tasks import Task
from barnabas.broker.authorizer.audit_log import AuthorizerLog
from barnabas.broker.authorizer.auth_helper import AuthHelper
from barnabas.broker.authorizer.authorizer import Authorizer
from barnabas.broker.requests.request import ClientFacts, Request
from barnabas.security.acls import SUPPORTED_BITS, AclOperation, ResourceType
from barnabas.security.needed_acls import NeededAcls
from barnabas.wire.kafka.api import ApiKey

__all__ = ["RecordingAuthHelper"]

_WIDER = (AclOperation.CREATE, AclOperation.IDEMPOTENT_WRITE, AclOperation.CLUSTER_ACTION)
"""On the cluster: where it is asked whether this is allowed and nothing is said if not, a narrower
right is asked for next."""


class RecordingAuthHelper(AuthHelper):
    """Super users are authorized as usual: they need no entries."""

    __slots__ = ("_needed",)

    def __init__(self, authorizer: Authorizer, audit_log: AuthorizerLog, needed: NeededAcls) -> None:
        super().__init__(authorizer, audit_log)
        self._needed = needed

    @property
    def caches_allowed(self) -> bool:
        """No: each operation is noted."""
        return False

    def _decide(
        self,
        authorizer: Authorizer,
        client: ClientFacts,
        action: tuple[ApiKey, AclOperation, ResourceType, str, int],
        log_if_denied: bool,
        log_if_allowed: bool,
    ) -> bool:
        """Allowed, but for the wider of two ways."""
        del log_if_allowed
        _, operation, resource_type, name, _ = action
        if authorizer.is_super_user(client.principal):
            return True
        if log_if_denied:
            self._needed.note(client.principal, operation, resource_type, name)
            return True
        if resource_type is ResourceType.CLUSTER:
            return operation not in _WIDER
        self._needed.note_listed(client.principal, operation, resource_type, name)
        return True

    def authorize_by_resource_type(
        self, request: Request, operation: AclOperation, resource_type: ResourceType
    ) -> Task[bool]:
        """Allowed."""
        yield None
        authorizer = self._authorizer_for(request.client)
        if authorizer is not None and not authorizer.is_super_user(request.client.principal):
            self._needed.note_any(request.client.principal, operation, resource_type)
        return True

    def authorized_operations(self, request: Request, resource_type: ResourceType, name: str) -> int:
        """All that can be done with the resource."""
        del request, name
        return SUPPORTED_BITS[resource_type]
