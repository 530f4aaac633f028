"""Transactions of a producer in virtual time: its coordinator, its state, the requests of a
transaction.

With version 1 of transactions each partition is added before its first record, and the epoch stays
for the next transaction unless a batch of the last one has an unknown fate. Then the epoch is
raised after the abort (KIP-360), so that no late copy of the batch can join a later transaction.

With version 2 (KIP-890) brokers add the partitions, and the answer to EndTxn has another epoch for
the next transaction. A transaction keeps the version that it began with: version 2 where the
cluster has finalized ``transaction.version`` 2. Like other clients, this one learns that from the
brokers when it connects to a coordinator. Before its first transaction of version 2 it raises the
epoch, as Java's producer does: the last one of version 1 may still wait for its markers, and
leaders would take records of the same epoch for a part of it.

Counterpart: ``TransactionManager`` of Kafka's producer.
"""

import asyncio
import enum
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

from barnabas.base.ids import TopicPartition
from barnabas.broker.cluster.channels import ChannelError
from barnabas.broker.metadata.features import NO_EPOCH, TRANSACTION_V2, TRANSACTION_VERSION
from barnabas.client.cluster.admin_connection import GROUP, TRANSACTIONAL_ID
from barnabas.client.errors import ClientError, ConfigurationError, RefusedError, TransactionError, refusal
from barnabas.testing.virtual.link import ClusterLink, by_topic
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from barnabas.wire.kafka.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from barnabas.wire.kafka.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.wire.kafka.messages.end_txn import EndTxnRequest, EndTxnResponse
from barnabas.wire.kafka.messages.init_producer_id import InitProducerIdRequest
from barnabas.wire.kafka.messages.produce import ProduceRequest
from barnabas.wire.kafka.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

__all__ = ["GroupMetadata", "TransactionManager", "TransactionState"]

_LAST_VERSIONS = {
    InitProducerIdRequest.API_KEY: 5,
    AddPartitionsToTxnRequest.API_KEY: 3,
    AddOffsetsToTxnRequest.API_KEY: 4,
    TxnOffsetCommitRequest.API_KEY: 4,
    EndTxnRequest.API_KEY: 4,
    ProduceRequest.API_KEY: 11,
}
"""The last ones of transactions of version 1; later ones are of version 2, or of brokers."""
_LAST_VERSIONS_V2 = {
    InitProducerIdRequest.API_KEY: 5,
    TxnOffsetCommitRequest.API_KEY: 5,
    EndTxnRequest.API_KEY: 5,
    ProduceRequest.API_KEY: 13,
}
_FEATURES_SINCE_VERSION = 3
_CLIENT = "barnabas-virtual"
_NEW_PRODUCER = (-1, -1)
_FATAL = frozenset(
    (
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.INVALID_TRANSACTION_TIMEOUT,
    )
)
_COORDINATOR_GONE = frozenset((ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE))


class TransactionState(enum.Enum):
    """Where a transactional producer is; ``TransactionManager.State`` in Kafka."""

    UNINITIALIZED = "init_transactions was not called"
    READY = "no transaction has begun"
    IN_TRANSACTION = "a transaction is open"
    COMMITTING_TRANSACTION = "the transaction is being committed"
    ABORTING_TRANSACTION = "the transaction is being aborted"
    ABORTABLE_ERROR = "the transaction must be aborted"
    FATAL_ERROR = "the producer must be created again"


_STATE = TransactionState
_FROM: dict[TransactionState, frozenset[TransactionState]] = {
    _STATE.READY: frozenset((_STATE.UNINITIALIZED, _STATE.COMMITTING_TRANSACTION, _STATE.ABORTING_TRANSACTION)),
    _STATE.IN_TRANSACTION: frozenset((_STATE.READY,)),
    _STATE.COMMITTING_TRANSACTION: frozenset((_STATE.IN_TRANSACTION, _STATE.COMMITTING_TRANSACTION)),
    _STATE.ABORTING_TRANSACTION: frozenset(
        (_STATE.IN_TRANSACTION, _STATE.ABORTABLE_ERROR, _STATE.ABORTING_TRANSACTION)
    ),
    _STATE.ABORTABLE_ERROR: frozenset((_STATE.IN_TRANSACTION, _STATE.COMMITTING_TRANSACTION, _STATE.ABORTABLE_ERROR)),
    _STATE.FATAL_ERROR: frozenset(_STATE),
}
"""From which states each may be entered; none leads out of a fatal error."""


class GroupMetadata(NamedTuple):
    """A consumer's membership, for offsets that are committed with a transaction (KIP-447)."""

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


class TransactionManager:
    """One ``transactional.id``: its producer id and epoch, and what the open transaction has so
    far."""

    def __init__(self, link: ClusterLink, transactional_id: str, timeout_ms: int) -> None:
        self._link = link
        self._channels = link.channels()
        self.transactional_id = transactional_id
        self._timeout_ms = timeout_ms
        self.state = _STATE.UNINITIALIZED
        self.identity = _NEW_PRODUCER
        """The producer id and its epoch."""
        self.on_new_epoch: Callable[[], None] = lambda: None
        """Called when sequence numbers begin again."""
        self._coordinators: dict[tuple[int, str], int] = {}
        self._added: set[TopicPartition] = set()
        self._adding = asyncio.Lock()
        self._has_offsets = False
        self._raises_epoch = False
        self._failure: ClientError | None = None
        self._features_epoch = NO_EPOCH
        self._finalized = 0
        self._is_version_2 = False

    # The state

    def _enter(self, state: TransactionState) -> None:
        """Raises `ConfigurationError` for a call that does not fit, and what has failed before."""
        if self.state in _FROM[state]:
            self.state = state
            return
        if self._failure is not None:
            raise self._failure
        raise ConfigurationError(f"{self.transactional_id}: {self.state.value}", remedy="see the order of the calls")

    def begin(self) -> None:
        """Begin a transaction."""
        self._enter(_STATE.IN_TRANSACTION)
        self._added.clear()
        self._has_offsets = False

    @property
    def is_open(self) -> bool:
        """Whether a transaction has begun that is not over."""
        return self.state in (_STATE.IN_TRANSACTION, _STATE.ABORTABLE_ERROR)

    @property
    def takes_batches(self) -> bool:
        """Whether what waits may leave."""
        return self.state is _STATE.IN_TRANSACTION

    @property
    def failure(self) -> ClientError | None:
        """Why the transaction, or the producer, is of no use any more."""
        return self._failure

    def check_sending(self) -> None:
        """Raise what stands against another record."""
        if self.state is not _STATE.IN_TRANSACTION:
            if self._failure is not None:
                raise self._failure
            raise ConfigurationError(f"{self.transactional_id}: {self.state.value}", remedy="begin a transaction first")

    def batch_failed(self, error: ClientError) -> None:
        """A batch was refused, or its fate is not known: the transaction cannot be committed."""
        if isinstance(error, RefusedError) and error.code is ErrorCode.PRODUCER_FENCED:
            self._fail(error.code, error.message)
            return
        self._raises_epoch = True
        if self.state in _FROM[_STATE.ABORTABLE_ERROR]:
            code = error.code if isinstance(error, RefusedError) else ErrorCode.TRANSACTION_ABORTABLE
            self._abortable(code, str(error))

    def _abortable(self, code: ErrorCode, message: str) -> TransactionError:
        made = TransactionError(code, message, remedy="abort it, and begin another")
        self._failure = made
        if self.state in _FROM[_STATE.ABORTABLE_ERROR]:
            self.state = _STATE.ABORTABLE_ERROR
        return made

    def _fail(self, code: ErrorCode, message: str) -> RefusedError:
        made = refusal(code, message)
        made.fatal = True
        self._failure = made
        self.state = _STATE.FATAL_ERROR
        return made

    # The calls

    async def init(self, timeout_s: float) -> None:
        """Get a producer id, which fences older producers and aborts what they left open."""
        if self.state is not _STATE.UNINITIALIZED:
            raise ConfigurationError(f"{self.transactional_id}: init_transactions is called once")
        await self._init_producer_id(_NEW_PRODUCER, timeout_s)
        self._is_version_2 = self._finalized >= TRANSACTION_V2
        self._enter(_STATE.READY)

    async def _init_producer_id(self, known: tuple[int, int], timeout_s: float) -> None:
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self._timeout_ms,
            producer_id=known[0],
            producer_epoch=known[1],
        )
        response = await self._call(request, lambda response: [response.error_code], timeout_s)
        self.identity = response.producer_id, response.producer_epoch
        self._raises_epoch = False
        self.on_new_epoch()

    async def add_partition(self, topic_partition: TopicPartition, timeout_s: float) -> None:
        """Make a partition part of the transaction, before its first record is sent.

        In version 2 the broker adds it, when the record arrives."""
        if self._is_version_2:
            self._added.add(topic_partition)
            return
        async with self._adding:
            if topic_partition in self._added:
                return
            request = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self.transactional_id,
                v3_and_below_producer_id=self.identity[0],
                v3_and_below_producer_epoch=self.identity[1],
                v3_and_below_topics=[
                    AddPartitionsToTxnTopic(name=topic_partition.topic, partitions=[topic_partition.partition])
                ],
            )
            await self._call(
                request,
                lambda response: [
                    each.partition_error_code
                    for topic in response.results_by_topic_v3_and_below
                    for each in topic.results_by_partition
                ],
                timeout_s,
            )
            self._added.add(topic_partition)

    async def send_offsets(self, offsets: Mapping[TopicPartition, int], group: GroupMetadata, timeout_s: float) -> None:
        """Commit a group's offsets with the transaction."""
        self.check_sending()
        offsets = {TopicPartition(*topic_partition): offset for topic_partition, offset in offsets.items()}
        producer_id, producer_epoch = self.identity
        if not self._is_version_2:
            added = AddOffsetsToTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                group_id=group.group_id,
            )
            await self._call(added, lambda response: [response.error_code], timeout_s)
        self._has_offsets = True
        topics = [
            TxnOffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    TxnOffsetCommitRequestPartition(
                        partition_index=number,
                        committed_offset=offsets[TopicPartition(topic, number)],
                        committed_metadata="",
                    )
                    for number in numbers
                ],
            )
            for topic, numbers in by_topic(offsets).items()
        ]
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group.group_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            generation_id=group.generation_id,
            member_id=group.member_id,
            group_instance_id=group.group_instance_id,
            topics=topics,
        )
        await self._call(
            request,
            lambda response: [each.error_code for topic in response.topics for each in topic.partitions],
            timeout_s,
            (GROUP, group.group_id),
        )

    async def commit(self, flush: Callable[[], Awaitable[None]], timeout_s: float) -> None:
        """End the transaction; after `TimedOutError` the call may be made again."""
        if self.state is not _STATE.COMMITTING_TRANSACTION:
            self.check_sending()
            await flush()
        self._enter(_STATE.COMMITTING_TRANSACTION)
        await self._end(is_commit=True, timeout_s=timeout_s)

    async def abort(self, purge: Callable[[], bool], timeout_s: float) -> None:
        """Give the transaction up; after `TimedOutError` the call may be made again.

        ``purge`` empties the queue, and returns whether something was on its way: copies of it may
        still come to brokers.
        """
        self._enter(_STATE.ABORTING_TRANSACTION)
        if purge():
            self._raises_epoch = True
        await self._end(is_commit=False, timeout_s=timeout_s)
        self._failure = None

    async def _end(self, *, is_commit: bool, timeout_s: float) -> None:
        if self._added or self._has_offsets:
            request = EndTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=self.identity[0],
                producer_epoch=self.identity[1],
                committed=is_commit,
            )
            response = await self._call(request, lambda response: [response.error_code], timeout_s)
            self._added.clear()
            self._has_offsets = False
            self._take_next_identity(response)
        self._choose_version()
        if self._raises_epoch:
            await self._init_producer_id(self.identity, timeout_s)
        self._enter(_STATE.READY)

    def _choose_version(self) -> None:
        """The version of the next transaction."""
        was_version_2, self._is_version_2 = self._is_version_2, self._finalized >= TRANSACTION_V2
        if self._is_version_2 and not was_version_2:
            self._raises_epoch = True

    def _take_next_identity(self, response: EndTxnResponse) -> None:
        """In version 2 the answer has the epoch of the next transaction."""
        identity = response.producer_id, response.producer_epoch
        if identity not in (_NEW_PRODUCER, self.identity):
            self.identity = identity
            self._raises_epoch = False
            self.on_new_epoch()

    # Requests

    async def version(self, broker_id: int, api_key: int) -> int:
        """The version in which a request of the transaction is sent to a broker.

        Raises `ChannelError`."""
        last = (_LAST_VERSIONS_V2 if self._is_version_2 else _LAST_VERSIONS)[api_key]
        return min(await self._channels.version(broker_id, api_key), last)

    async def _call(
        self,
        request: Any,
        codes: Callable[[Any], list[int]],
        timeout_s: float,
        key: tuple[int, str] | None = None,
    ) -> Any:
        """Ask the coordinator until it answers without an error. Raises `ClientError`."""
        what = f"{self.transactional_id}: {type(request).__name__.removesuffix('Request')}"
        of = (TRANSACTIONAL_ID, self.transactional_id) if key is None else key

        async def attempt() -> Any:
            coordinator = await self._coordinator(of, what)
            if coordinator is None:
                return None
            try:
                version = await self.version(coordinator, request.API_KEY)
                response = await self._channels.send(coordinator, request, version=version)
            except ChannelError:
                self._coordinators.pop(of, None)
                raise
            code = next((ErrorCode.of(each) for each in codes(response) if each), ErrorCode.NONE)
            if code:
                self._refused(code, of, what)
                return None
            return response

        return await self._link.retry(attempt, timeout_s, what)

    def _refused(self, code: ErrorCode, of: tuple[int, str], what: str) -> None:
        """Return for another try; raise where that changes nothing."""
        if code in _COORDINATOR_GONE:
            self._coordinators.pop(of, None)
        elif code in _FATAL:
            raise self._fail(code, f"{what}: {code.message}")
        elif not code.retriable and code is not ErrorCode.CONCURRENT_TRANSACTIONS:
            raise self._abortable(code, f"{what}: {code.message}")

    async def _coordinator(self, of: tuple[int, str], what: str) -> int | None:
        if of not in self._coordinators:
            code, node_id = await self._link.find_coordinator(*of)
            if code:
                self._refused(code, of, what)
                return None
            await self._learn_features(node_id)
            self._coordinators[of] = node_id
        return self._coordinators[of]

    async def _learn_features(self, broker_id: int) -> None:
        """Ask a broker what the cluster has finalized. Raises `ChannelError`."""
        request = ApiVersionsRequest(client_software_name=_CLIENT, client_software_version="1")
        response: ApiVersionsResponse = await self._channels.send(broker_id, request, version=_FEATURES_SINCE_VERSION)
        if response.finalized_features_epoch > self._features_epoch:  # other brokers may be behind
            self._features_epoch = response.finalized_features_epoch
            levels = {each.name: each.max_version_level for each in response.finalized_features}
            self._finalized = levels.get(TRANSACTION_VERSION, 0)
