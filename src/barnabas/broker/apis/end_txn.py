"""EndTxn (key 26), versions 0 to 5.

Commits or aborts a producer's transaction (KIP-98). The answer says that this is decided; markers
are written to all partitions afterwards, and the next transaction begins when they are.

- 2: PRODUCER_FENCED, INVALID_PRODUCER_EPOCH before.
- 5: the answer has the epoch, and perhaps the producer id, for the next transaction (KIP-890).
  Clients send it where transaction.version 2 is finalized, and after a downgrade until they connect
  again.

Rights: WRITE on the transactional id.

Errors: TRANSACTIONAL_ID_AUTHORIZATION_FAILED, INVALID_REQUEST, NOT_COORDINATOR,
COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, INVALID_PRODUCER_ID_MAPPING,
PRODUCER_FENCED, CONCURRENT_TRANSACTIONS, INVALID_TXN_STATE.
"""

from typing import NamedTuple

from barnabas.broker.apis.add_partitions_to_txn import FENCED_SINCE_VERSION, old_fencing_error
from barnabas.broker.apis.api_handler import ApiHandler
from barnabas.broker.authorizer.auth_helper import AuthHelper
from barnabas.broker.requests.request import Request
from barnabas.broker.transactions.effects import ProducerAnswer, TransactionSender
from barnabas.broker.transactions.service import TransactionService
from barnabas.security.acls import AclOperation, ResourceType
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.messages.end_txn import EndTxnRequest, EndTxnResponse

_EPOCHS_SINCE_VERSION = 5


class Parts(NamedTuple):
    """What the handler uses."""

    transactions: TransactionService
    auth_helper: AuthHelper


def handle(parts: Parts, request: Request) -> None:
    """Decide the outcome."""
    message: EndTxnRequest = request.message
    if not parts.auth_helper.authorize(
        request, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, message.transactional_id
    ):
        request.fail(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        return

    def decided(answer: ProducerAnswer) -> None:
        code = old_fencing_error(answer.error, request.version, FENCED_SINCE_VERSION)
        request.reply(
            EndTxnResponse(error_code=code, producer_id=answer.producer_id, producer_epoch=answer.producer_epoch)
        )

    parts.transactions.end(
        TransactionSender(message.transactional_id, message.producer_id, message.producer_epoch),
        committed=message.committed,
        to=decided,
        raises_epoch=request.version >= _EPOCHS_SINCE_VERSION,
    )


API = ApiHandler(ApiKey.END_TXN, 0, 5, handle, lambda services: Parts(services.transactions, services.auth_helper))
