"""Stands for the transaction coordinators that a broker asks: the test answers."""

from collections import deque
from collections.abc import Mapping

from barnabas.base.ids import TopicPartition
from barnabas.broker.cluster.steps import Ask, Steps
from barnabas.broker.metadata.cache import MetadataCache
from barnabas.broker.metadata.internal_topics import TRANSACTIONS_TOPIC
from barnabas.broker.replication.transaction_verification import AddPartitionsToTxnManager
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from barnabas.wire.kafka.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)

NO_CODES: Mapping[TopicPartition, ErrorCode] = {}


def name_coordinators(metadata: MetadataCache, *leaders: int) -> None:
    """Let the metadata name the leaders of the partitions of
    ``__transaction_state``, all of them alive."""
    states = [
        UpdateMetadataPartitionState(partition_index=index, leader=leader, replicas=[leader], isr=[leader])
        for index, leader in enumerate(leaders)
    ]
    metadata.update(
        UpdateMetadataRequest(
            live_brokers=[UpdateMetadataBroker(id=leader) for leader in sorted({0, *leaders})],
            topic_states=[UpdateMetadataTopicState(topic_name=TRANSACTIONS_TOPIC, partition_states=states)],
        )
    )


class Coordinators:
    """Performs the steps of a verifier."""

    def __init__(self, metadata: MetadataCache, *, is_enabled: bool = True) -> None:
        self.transaction_version = 1
        self.verifier = AddPartitionsToTxnManager(
            metadata, self._start, lambda: self.transaction_version, is_enabled=is_enabled
        )
        self.asked: deque[tuple[int, AddPartitionsToTxnRequest]] = deque()
        """The requests without an answer: the broker that each is for, and its message."""
        self.turns = 0
        """How often others had their turn."""
        self._waiting: deque[Steps[None]] = deque()

    def _start(self, steps: Steps[None]) -> None:
        self._take(steps, next(steps))

    def _take(self, steps: Steps[None], step: object) -> None:
        while step is None:
            self.turns += 1
            try:
                step = next(steps)
            except StopIteration:
                return
        assert isinstance(step, Ask)
        self.asked.append((step.broker, step.request))
        self._waiting.append(steps)

    def respond(self, response: AddPartitionsToTxnResponse | Exception) -> None:
        """Answer the oldest request."""
        self.asked.popleft()
        steps = self._waiting.popleft()
        try:
            step = steps.throw(response) if isinstance(response, Exception) else steps.send(response)
        except StopIteration:
            return
        self._take(steps, step)

    def confirm(self, codes: Mapping[TopicPartition, ErrorCode] = NO_CODES) -> None:
        """Answer the oldest request: these partitions have errors, all others are
        part of their transactions."""
        _, request = self.asked[0]
        self.respond(
            AddPartitionsToTxnResponse(
                results_by_transaction=[
                    AddPartitionsToTxnResult(
                        transactional_id=transaction.transactional_id,
                        topic_results=[
                            AddPartitionsToTxnTopicResult(
                                name=topic.name,
                                results_by_partition=[
                                    AddPartitionsToTxnPartitionResult(
                                        partition_index=index,
                                        partition_error_code=codes.get(TopicPartition(topic.name, index), 0),
                                    )
                                    for index in topic.partitions
                                ],
                            )
                            for topic in transaction.topics
                        ],
                    )
                    for transaction in request.transactions
                ]
            )
        )
