"""AddPartitionsToTxn (key 24), versions 0 to 5.

Adds partitions to a producer's transaction before it writes to them (KIP-98). One partition that
does not exist, or that no client may write to, fails the request: the others get
OPERATION_NOT_ATTEMPTED.

- 2: PRODUCER_FENCED, INVALID_PRODUCER_EPOCH before.
- 4: several transactions, from brokers alone; and the question whether the partitions are part of
  the transaction already (KIP-890).
- 5: TRANSACTION_ABORTABLE for one that is not.

Rights: WRITE on the transactional id and on each topic below version 4; CLUSTER_ACTION from there
on.

Errors: TRANSACTIONAL_ID_AUTHORIZATION_FAILED, CLUSTER_AUTHORIZATION_FAILED,
UNKNOWN_TOPIC_OR_PARTITION, TOPIC_AUTHORIZATION_FAILED (also: an internal topic, below version 4),
OPERATION_NOT_ATTEMPTED, INVALID_REQUEST, NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS,
COORDINATOR_NOT_AVAILABLE, INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS,
TRANSACTION_ABORTABLE.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import NamedTuple

from barnabas.base.tasks import Runner, Task, list_of
from barnabas.broker.apis.api_handler import ApiHandler
from barnabas.broker.apis.later import serve
from barnabas.broker.authorizer.auth_helper import AuthHelper
from barnabas.broker.metadata.cache import MetadataCache
from barnabas.broker.metadata.internal_topics import INTERNAL_TOPICS
from barnabas.broker.requests.request import Request
from barnabas.broker.transactions.effects import TransactionSender
from barnabas.broker.transactions.service import TransactionService
from barnabas.broker.transactions.transaction import Partitions
from barnabas.security.acls import AclOperation, ResourceType
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)

FENCED_SINCE_VERSION = 2
_BATCHED_SINCE_VERSION = 4
_PARTITIONS_A_STEP = 256

_Code = Callable[[str, int], ErrorCode]
_Done = Callable[[AddPartitionsToTxnResult], None]


class Parts(NamedTuple):
    """What the handler uses."""

    runner: Runner
    metadata: MetadataCache
    transactions: TransactionService
    auth_helper: AuthHelper


def handle(parts: Parts, request: Request) -> None:
    """Decide on each transaction for itself; answer when all are decided."""
    auth_helper = parts.auth_helper
    if request.version >= _BATCHED_SINCE_VERSION:
        auth_helper.authorize_cluster_action(request)
    elif not auth_helper.authorize(
        request,
        AclOperation.WRITE,
        ResourceType.TRANSACTIONAL_ID,
        request.message.v3_and_below_transactional_id,
    ):
        request.fail(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        return
    serve(parts.runner, request, _add_all(parts, request))


def _add_all(parts: Parts, request: Request) -> Task[None]:
    transactions = _transactions(request.message, request.version)
    results: dict[int, AddPartitionsToTxnResult] = {}

    def done(number: int, result: AddPartitionsToTxnResult) -> None:
        results[number] = result
        if len(results) == len(transactions):
            _reply(request, [results[each] for each in range(len(results))])

    if not transactions:
        _reply(request, [])
    for number, transaction in enumerate(transactions):
        yield None
        yield from _add(parts, request, transaction, partial(done, number))


def _transactions(message: AddPartitionsToTxnRequest, version: int) -> list[AddPartitionsToTxnTransaction]:
    """The transactions of a request, each transactional id once."""
    if version >= _BATCHED_SINCE_VERSION:
        return list({each.transactional_id: each for each in message.transactions}.values())
    return [
        AddPartitionsToTxnTransaction(
            transactional_id=message.v3_and_below_transactional_id,
            producer_id=message.v3_and_below_producer_id,
            producer_epoch=message.v3_and_below_producer_epoch,
            topics=message.v3_and_below_topics,
        )
    ]


def _reply(request: Request, results: list[AddPartitionsToTxnResult]) -> None:
    if request.version >= _BATCHED_SINCE_VERSION:
        request.reply(AddPartitionsToTxnResponse(results_by_transaction=results))
    else:
        request.reply(AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results[0].topic_results))


def _add(parts: Parts, request: Request, transaction: AddPartitionsToTxnTransaction, done: _Done) -> Task[None]:
    version = request.version
    asked = yield from _partitions(transaction.topics)
    name = transaction.transactional_id
    authorized = yield from _authorized(parts.auth_helper, request, asked)
    missing = yield from _missing(parts.metadata, asked)
    if missing or len(authorized) < len(asked):

        def refused(topic: str, number: int) -> ErrorCode:
            if topic not in authorized:
                return ErrorCode.TOPIC_AUTHORIZATION_FAILED
            is_missing = number in missing.get(topic, frozenset())
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_missing else ErrorCode.OPERATION_NOT_ATTEMPTED

        done((yield from _result(name, asked, refused)))
        return
    sender = TransactionSender(name, transaction.producer_id, transaction.producer_epoch)
    if transaction.verify_only:
        verified = parts.transactions.coordinator.verify_partitions(sender, asked)
        done((yield from _result(name, asked, lambda topic, number: verified[topic][number])))
        return

    def decided(error: ErrorCode) -> None:
        code = old_fencing_error(error, version, FENCED_SINCE_VERSION)
        parts.runner.start(_report(_result(name, asked, lambda *_: code), done))

    parts.transactions.add_partitions(sender, asked, decided, may_wait=version < _BATCHED_SINCE_VERSION)


def _authorized(auth_helper: AuthHelper, request: Request, asked: Partitions) -> Task[Collection[str]]:
    """The topics that the transaction may write to. Brokers ask for clients that had the right."""
    if request.version >= _BATCHED_SINCE_VERSION:
        return asked.keys()
    names = yield from list_of(topic for topic in asked if topic not in INTERNAL_TOPICS)
    authorized = yield from auth_helper.filter_by_authorized(request, AclOperation.WRITE, ResourceType.TOPIC, names)
    return frozenset((yield from list_of(name for name in names if name in authorized)))


def _report(making: Task[AddPartitionsToTxnResult], done: _Done) -> Task[None]:
    done((yield from making))


def _partitions(topics: Iterable[AddPartitionsToTxnTopic]) -> Task[Partitions]:
    asked: dict[str, set[int]] = {}
    for topic in topics:
        yield None
        if topic.partitions:
            # One set grows, since a request may repeat the topic for each of its partitions.
            asked.setdefault(topic.name, set()).update(topic.partitions)
    found = {}
    for name, numbers in asked.items():
        yield None
        found[name] = frozenset(numbers)
    return found


def _missing(metadata: MetadataCache, asked: Partitions) -> Task[Mapping[str, frozenset[int]]]:
    """The partitions that do not exist."""
    missing = {}
    for topic, numbers in asked.items():
        yield None
        known = metadata.partitions(topic)
        gone = numbers - known.keys() if known else numbers
        if gone:
            missing[topic] = frozenset(gone)
    return missing


def _result(transactional_id: str, asked: Partitions, code_of: _Code) -> Task[AddPartitionsToTxnResult]:
    topics = []
    for topic, numbers in asked.items():
        results = []
        for at, number in enumerate(sorted(numbers)):
            results.append(
                AddPartitionsToTxnPartitionResult(partition_index=number, partition_error_code=code_of(topic, number))
            )
            if at % _PARTITIONS_A_STEP == _PARTITIONS_A_STEP - 1:
                yield None
        yield None
        topics.append(AddPartitionsToTxnTopicResult(name=topic, results_by_partition=results))
    return AddPartitionsToTxnResult(transactional_id=transactional_id, topic_results=topics)


def old_fencing_error(error: ErrorCode, version: int, fenced_since: int) -> ErrorCode:
    """The error as a version knows it: old clients do not know PRODUCER_FENCED."""
    is_unknown = error is ErrorCode.PRODUCER_FENCED and version < fenced_since
    return ErrorCode.INVALID_PRODUCER_EPOCH if is_unknown else error


def fail(message: AddPartitionsToTxnRequest, version: int, code: ErrorCode) -> AddPartitionsToTxnResponse:
    """The response for a request that failed as a whole."""
    if version >= _BATCHED_SINCE_VERSION:
        return AddPartitionsToTxnResponse(error_code=code)
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(partition_index=number, partition_error_code=code)
                    for number in topic.partitions
                ],
            )
            for topic in message.v3_and_below_topics
        ]
    )


API = ApiHandler(
    ApiKey.ADD_PARTITIONS_TO_TXN,
    0,
    5,
    handle,
    lambda services: Parts(services.runner, services.metadata, services.transactions, services.auth_helper),
    fail,
)
