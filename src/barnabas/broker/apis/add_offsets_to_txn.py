"""AddOffsetsToTxn (key 25), versions 0 to 4.

Adds the partition of ``__consumer_offsets`` that a group's offsets are in to a producer's
transaction (KIP-98); TxnOffsetCommit follows, at the group's coordinator.

- 2: PRODUCER_FENCED, INVALID_PRODUCER_EPOCH before.

Rights: WRITE on the transactional id and READ on the group.

Errors: TRANSACTIONAL_ID_AUTHORIZATION_FAILED, GROUP_AUTHORIZATION_FAILED, INVALID_REQUEST,
NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE,
INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS.
"""

from typing import NamedTuple

from barnabas.broker.apis.add_partitions_to_txn import FENCED_SINCE_VERSION, old_fencing_error
from barnabas.broker.apis.api_handler import ApiHandler
from barnabas.broker.authorizer.auth_helper import AuthHelper
from barnabas.broker.groups.service import GroupService
from barnabas.broker.metadata.internal_topics import OFFSETS_TOPIC
from barnabas.broker.requests.request import Request
from barnabas.broker.transactions.effects import TransactionSender
from barnabas.broker.transactions.service import TransactionService
from barnabas.security.acls import AclOperation, ResourceType
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse


class Parts(NamedTuple):
    """What the handler uses."""

    groups: GroupService
    transactions: TransactionService
    auth_helper: AuthHelper


def handle(parts: Parts, request: Request) -> None:
    """Add the one partition."""
    message: AddOffsetsToTxnRequest = request.message
    auth_helper = parts.auth_helper
    if not auth_helper.authorize(request, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, message.transactional_id):
        request.fail(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        return
    if not auth_helper.authorize(request, AclOperation.READ, ResourceType.GROUP, message.group_id):
        request.fail(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        return

    def decided(error: ErrorCode) -> None:
        code = old_fencing_error(error, request.version, FENCED_SINCE_VERSION)
        request.reply(AddOffsetsToTxnResponse(error_code=code))

    number = parts.groups.coordinator.partition_for(message.group_id)
    parts.transactions.add_partitions(
        TransactionSender(message.transactional_id, message.producer_id, message.producer_epoch),
        {OFFSETS_TOPIC: frozenset({number})},
        decided,
    )


API = ApiHandler(
    ApiKey.ADD_OFFSETS_TO_TXN,
    0,
    4,
    handle,
    lambda services: Parts(services.groups, services.transactions, services.auth_helper),
)
