"""What API handlers ask before they do something for a client (Kafka's `AuthHelper`), and the lines
that say what was decided (`AclAuthorizer.logAuditMessage`).

A request of this broker to itself needs no right: nobody else can send one.
"""

import ipaddress
import logging
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache

from barnabas.base.tasks import Task
from barnabas.broker.authorizer.authorizer import Authorizer
from barnabas.broker.requests.request import ClientFacts, Request
from barnabas.security.acls import (
    CLUSTER_NAME,
    SUPPORTED_OPERATIONS,
    AclOperation,
    ResourceType,
    pascal_case,
)
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.errors import ErrorCode, KafkaError

__all__ = ["AuthHelper"]

audit_logger = logging.getLogger("kafka.authorizer.logger")

_TRACE = 5
"""Below DEBUG: what was asked only to say what is allowed, or to leave things out."""

_SUPPORTED = {
    kind: sum(1 << operation for operation in operations) for kind, operations in SUPPORTED_OPERATIONS.items()
}


class AuthHelper:
    """Whether clients may do what they ask for."""

    __slots__ = ("_authorizer", "is_enabled")

    def __init__(self, authorizer: Authorizer | None) -> None:
        self._authorizer = authorizer
        self.is_enabled = authorizer is not None
        """Whether there is an authorizer; without one everything is allowed."""

    @property
    def authorizer(self) -> Authorizer | None:
        """What decides; None where everything is allowed."""
        return self._authorizer

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
        if self._authorizer is None:
            return True
        return self.authorize_client(
            request.client,
            request.api_key,
            operation,
            resource_type,
            name,
            log_if_denied=log_if_denied,
            log_if_allowed=log_if_allowed,
            count=count,
        )

    def authorize_client(
        self,
        client: ClientFacts,
        api_key: ApiKey,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
        *,
        log_if_denied: bool = True,
        log_if_allowed: bool = True,
        count: int = 1,
    ) -> bool:
        """As `authorize`, for readers that have no `Request`."""
        authorizer = self._authorizer
        if authorizer is None or client.is_this_broker:
            return True
        host = _host(client)
        is_allowed = authorizer.authorize(client.principal, host, operation, resource_type, name)
        if is_allowed:
            level = logging.DEBUG if log_if_allowed else _TRACE
        else:
            level = logging.INFO if log_if_denied else _TRACE
        if audit_logger.isEnabledFor(level):
            _log(level, is_allowed, client.principal, host, operation, resource_type, "LITERAL", name, api_key, count)
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
    ) -> bool:
        """Whether the client may do an operation on any resource of a type (KIP-679)."""
        authorizer, client = self._authorizer, request.client
        if authorizer is None or client.is_this_broker:
            return True
        host = _host(client)
        is_allowed = authorizer.authorize_by_resource_type(client.principal, host, operation, resource_type)
        level = logging.DEBUG if is_allowed else logging.INFO
        if audit_logger.isEnabledFor(level):
            key = request.api_key
            _log(level, is_allowed, client.principal, host, operation, resource_type, "UNKNOWN", "NONE", key, 0)
        return is_allowed

    def authorized(
        self,
        request: Request,
        operation: AclOperation,
        resource_type: ResourceType,
        names: Iterable[str],
        *,
        log_if_denied: bool = True,
        log_if_allowed: bool = True,
    ) -> Task[set[str]]:
        """Those of some resources on which the client may do an operation; each is asked for once
        (Kafka's `filterByAuthorized`)."""
        if self._authorizer is None:
            return set(names)
        counts = Counter(names)
        found = set()
        for name, count in counts.items():
            if self.authorize(
                request,
                operation,
                resource_type,
                name,
                log_if_denied=log_if_denied,
                log_if_allowed=log_if_allowed,
                count=count,
            ):
                found.add(name)
            yield None
        return found

    def authorized_operations(self, request: Request, resource_type: ResourceType, name: str) -> int:
        """What the client may do on a resource, as the bit field of KIP-430; all that can be done
        with it where there is no authorizer."""
        supported = _SUPPORTED[resource_type]
        authorizer, client = self._authorizer, request.client
        if authorizer is None or client.is_this_broker:
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


def _log(
    level: int,
    is_allowed: bool,
    principal: str,
    host: str,
    operation: AclOperation,
    resource_type: ResourceType,
    pattern: str,
    name: str,
    api_key: ApiKey,
    count: int,
) -> None:
    audit_logger.log(
        level,
        "Principal = %s is %s Operation = %s from host = %s on resource = %s:%s:%s for request = %s "
        "with resourceRefCount = %d",
        principal,
        "Allowed" if is_allowed else "Denied",
        pascal_case(operation),
        host,
        pascal_case(resource_type),
        pattern,
        name,
        "".join(part.capitalize() for part in api_key.name.split("_")),
        count,
    )
