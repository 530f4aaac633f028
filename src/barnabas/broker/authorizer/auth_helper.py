"""What API handlers ask before they do something for a client (Kafka's `AuthHelper`). Lines of the
audit log say what was decided.

A request of this broker to itself needs no right: no client can send one.
"""

import ipaddress
import logging
from collections.abc import Container, Iterable
from functools import lru_cache

from barnabas.base.tasks import Task
from barnabas.broker.authorizer.administration import CHANGING_OPERATIONS
from barnabas.broker.authorizer.audit_log import AuthorizerLog, RequestedAction, authorizer_logger, log_decision
from barnabas.broker.authorizer.authorizer import Authorizer
from barnabas.broker.requests.request import ClientFacts, Request
from barnabas.security.acls import (
    CLUSTER_NAME,
    SUPPORTED_BITS,
    AclOperation,
    ResourceType,
)
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.errors import ErrorCode, KafkaError

__all__ = ["EVERY_NAME", "AuthHelper"]

_TRACE = 5
"""Below DEBUG: what was asked only to say what is allowed, or to leave things out."""


class _EveryName:
    """Contains all names."""

    def __contains__(self, _: object) -> bool:
        return True


EVERY_NAME: Container[str] = _EveryName()


class AuthHelper:
    """Whether clients may do what they ask for."""

    __slots__ = ("_audit_log", "_authorizer", "is_enabled")

    def __init__(self, authorizer: Authorizer | None, audit_log: AuthorizerLog | None = None) -> None:
        self._authorizer = authorizer
        self._audit_log = audit_log or AuthorizerLog()
        self.is_enabled = authorizer is not None
        """Whether there is an authorizer; without one everything is allowed."""

    @property
    def rights_version(self) -> int:
        """A number that changes whenever what is allowed may change."""
        return 0 if self._authorizer is None else self._authorizer.version

    @property
    def caches_allowed(self) -> bool:
        """Whether an allowed operation need not be asked for again while the rights have this
        version; otherwise each time leaves a trace."""
        return not authorizer_logger.isEnabledFor(logging.DEBUG)

    @property
    def authorizer(self) -> Authorizer | None:
        """What decides; None where everything is allowed."""
        return self._authorizer

    def _authorizer_for(self, client: ClientFacts) -> Authorizer | None:
        """What decides about a client; None if it may do everything: all may where there is no
        authorizer, and this broker itself may."""
        return None if client.is_this_broker else self._authorizer

    def authorize(
        self,
        request: Request,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
        *,
        log_if_denied: bool = True,
        log_if_allowed: bool = True,
        count: int = 1,
    ) -> bool:
        """Whether the client of a request may do an operation on a resource.

        ``count`` is how often the request names the resource."""
        client = request.client
        authorizer = self._authorizer_for(client)
        if authorizer is None:
            return True
        action = request.api_key, operation, resource_type, name, count
        is_allowed = self._decide(authorizer, client, action, log_if_denied, log_if_allowed)
        if (
            is_allowed
            and log_if_allowed
            and request.administrative_actions is not None
            and operation in CHANGING_OPERATIONS
        ):
            self._audit_log.log_when_answered(request, _host(client), RequestedAction(*action))
        return is_allowed

    def authorize_client(
        self, client: ClientFacts, api_key: ApiKey, operation: AclOperation, resource_type: ResourceType, name: str
    ) -> bool:
        """As `authorize`, for readers that have no `Request`."""
        authorizer = self._authorizer_for(client)
        return authorizer is None or self._decide(
            authorizer, client, (api_key, operation, resource_type, name, 1), True, True
        )

    def _decide(
        self,
        authorizer: Authorizer,
        client: ClientFacts,
        action: tuple[ApiKey, AclOperation, ResourceType, str, int],
        log_if_denied: bool,
        log_if_allowed: bool,
    ) -> bool:
        """Decide, and write it down.

        ``action`` has the fields of a `RequestedAction`, which takes longer to make than the
        decision."""
        _, operation, resource_type, name, _ = action
        host = _host(client)
        is_allowed = authorizer.authorize(client.principal, host, operation, resource_type, name)
        if is_allowed:
            level = logging.DEBUG if log_if_allowed else _TRACE
        elif log_if_denied:
            self._audit_log.log_denial(client.principal, host, action)
            return False
        else:
            level = _TRACE
        if authorizer_logger.isEnabledFor(level):
            log_decision(level, client.principal, host, RequestedAction(*action), is_allowed=is_allowed)
        return is_allowed

    def authorize_cluster_action(self, request: Request) -> None:
        """Only brokers may send the request.

        Raises `KafkaError` with CLUSTER_AUTHORIZATION_FAILED."""
        self.authorize_cluster_operation(request, AclOperation.CLUSTER_ACTION)

    def authorize_cluster_operation(self, request: Request, operation: AclOperation) -> None:
        """Raises `KafkaError` with CLUSTER_AUTHORIZATION_FAILED."""
        if not self.authorize(request, operation, ResourceType.CLUSTER, CLUSTER_NAME):
            raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)

    def authorize_by_resource_type(
        self, request: Request, operation: AclOperation, resource_type: ResourceType
    ) -> Task[bool]:
        """Whether the client may do an operation on any resource of a type (KIP-679)."""
        client = request.client
        authorizer = self._authorizer_for(client)
        if authorizer is None:
            return True
        host = _host(client)
        is_allowed = yield from authorizer.authorize_by_resource_type(client.principal, host, operation, resource_type)
        action = RequestedAction(request.api_key, operation, resource_type, "NONE", 0, "UNKNOWN")
        if not is_allowed:
            self._audit_log.log_denial(client.principal, host, action)
        elif authorizer_logger.isEnabledFor(logging.DEBUG):
            log_decision(logging.DEBUG, client.principal, host, action, is_allowed=True)
        return is_allowed

    def filter_by_authorized(
        self,
        request: Request,
        operation: AclOperation,
        resource_type: ResourceType,
        names: Iterable[str],
        *,
        log_if_denied: bool = True,
    ) -> Task[Container[str]]:
        """Those of some names on which the client may do an operation (Kafka's
        `filterByAuthorized`).

        A request may name a resource a thousand times, and a hundred thousand resources: each is
        decided once, and others have their turn meanwhile. Nothing is looked at for a client that
        may do everything."""
        if self._authorizer_for(request.client) is None:
            return EVERY_NAME
        counts: dict[str, int] = {}
        for name in names:
            counts[name] = counts.get(name, 0) + 1
            yield None
        found = set()
        for name, count in counts.items():
            if self.authorize(request, operation, resource_type, name, log_if_denied=log_if_denied, count=count):
                found.add(name)
            yield None
        return found

    def authorized_operations(self, request: Request, resource_type: ResourceType, name: str) -> int:
        """What the client may do on a resource, as the bit field of KIP-430; all that can be done
        with it where there is no authorizer."""
        supported = SUPPORTED_BITS[resource_type]
        client = request.client
        authorizer = self._authorizer_for(client)
        if authorizer is None:
            return supported
        return supported & authorizer.authorized_operations(client.principal, _host(client), resource_type, name)


def _host(client: ClientFacts) -> str:
    """The address as entries have it."""
    host = client.host
    return _java_address(host) if ":" in host else host


@lru_cache(maxsize=1024)
def _java_address(text: str) -> str:
    """An IPv6 address as Java writes it (`InetAddress.getHostAddress`): eight groups without
    leading zeros; one that is mapped from IPv4 is the IPv4 address."""
    address, percent, zone = text.partition("%")
    try:
        parsed = ipaddress.IPv6Address(address)
    except ValueError:
        return text
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    groups = (f"{int(group, 16):x}" for group in parsed.exploded.split(":"))
    return ":".join(groups) + percent + zone
