"""What the three ACL APIs share: the forms of entries and filters on the wire, and who may use the
APIs.

A code of 0 (UNKNOWN) in a request closes the connection, as in Apache's brokers. A number without a
meaning stands for UNKNOWN, too, and matches nothing.

In Kafka: `AclApis`, `CreateAclsRequest`, `DeleteAclsRequest`, `DescribeAclsRequest`.
"""

from typing import NamedTuple

from barnabas.broker.apis.later import LaterAnswers, keeper_failure
from barnabas.broker.apis.services import Services
from barnabas.broker.authorizer.auth_helper import AuthHelper
from barnabas.broker.authorizer.service import AclManager
from barnabas.security.acls import (
    AccessControlEntryFilter,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourcePatternFilter,
    ResourceType,
    of_code,
)
from barnabas.wire.jute.errors import KeeperError
from barnabas.wire.kafka.errors import ErrorCode, KafkaError
from barnabas.wire.kafka.messages.delete_acls import DeleteAclsFilter
from barnabas.wire.kafka.messages.describe_acls import DescribeAclsRequest

__all__ = ["NO_AUTHORIZER", "AclParts", "error_fields", "filter_of", "is_malformed"]

NO_AUTHORIZER = "No Authorizer is configured."
"""The text of SECURITY_DISABLED."""


class AclParts(NamedTuple):
    """What the handlers that change entries use."""

    later: LaterAnswers
    auth_helper: AuthHelper
    acls: AclManager | None

    @classmethod
    def of(cls, services: Services) -> "AclParts":
        """Take them."""
        return cls(services.later, services.auth_helper, services.acls)


def is_malformed(wanted: DescribeAclsRequest | DeleteAclsFilter) -> bool:
    """Whether a filter has a code that no request may have."""
    return 0 in (wanted.resource_type_filter, wanted.pattern_type_filter, wanted.operation, wanted.permission_type)


def filter_of(wanted: DescribeAclsRequest | DeleteAclsFilter) -> AclBindingFilter:
    """The filter that a message has."""
    return AclBindingFilter(
        ResourcePatternFilter(
            of_code(ResourceType, wanted.resource_type_filter),
            wanted.resource_name_filter,
            of_code(PatternType, wanted.pattern_type_filter),
        ),
        AccessControlEntryFilter(
            wanted.principal_filter,
            wanted.host_filter,
            of_code(AclOperation, wanted.operation),
            of_code(AclPermissionType, wanted.permission_type),
        ),
    )


def error_fields(failure: KafkaError | KeeperError) -> tuple[ErrorCode, str | None]:
    """The code and the text of an answer; a failure of the server has no text, as in Kafka."""
    error = keeper_failure(failure) if isinstance(failure, KeeperError) else failure
    return error.code, None if error.code is ErrorCode.UNKNOWN_SERVER_ERROR else error.message
