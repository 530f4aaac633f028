"""The requests of this broker's other components to the controller, each an event in
the controller's queue.

A command is a generator of steps for the `Interpreter`. All raise `KafkaError` NOT_CONTROLLER when
this broker is not controller, or ceases to be before the command is done.

In Kafka: the public methods of `KafkaController` that put an event into its queue.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeVar

from barnabas.base.ids import TopicPartition
from barnabas.broker.cluster.steps import Done, Steps, Wait
from barnabas.broker.cluster.znodes import LeaderAndIsr, ReplicaAssignment, TopicAssignment
from barnabas.broker.controller import (
    broker_change,
    isr_change,
    reassignment,
    replica_leader_election,
    topic_change,
)
from barnabas.broker.controller.context import ControllerContext
from barnabas.broker.controller.event_queue import Command, ControllerEvent, Hint, TopicsCreated
from barnabas.broker.controller.features import FeatureUpdate, process_feature_updates
from barnabas.broker.controller.request_batch import RequestBatch
from barnabas.wire.kafka.errors import ErrorCode, KafkaError

__all__ = ["ControllerCommands"]

T = TypeVar("T")


class ControllerCommands:
    """Puts commands into the controller's queue and waits for their results."""

    def __init__(
        self,
        put: Callable[[ControllerEvent], None],
        is_active: Callable[[], bool],
        context: Callable[[], ControllerContext],
    ) -> None:
        self._put = put
        self._is_active = is_active
        self._context = context

    def require_active(self) -> None:
        """Raises `KafkaError` NOT_CONTROLLER unless this broker is the active controller."""
        if not self._is_active():
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "This is not the correct controller for this cluster.")

    def await_failover(self) -> Steps[None]:
        """Wait until the controller has read the znodes after its election."""
        self.require_active()
        if not self._context().has_read_znodes:
            yield from self._command(_nothing)

    def create_topics(self, topics: Mapping[str, TopicAssignment]) -> Steps[None]:
        """Elect leaders of topics whose znodes this broker just wrote.

        Done when the requests to brokers are queued."""
        self.require_active()
        yield Wait(lambda done: self._put(TopicsCreated(dict(topics), [done])))

    def add_partitions(self, topic: str) -> Steps[None]:
        """Look at a topic whose assignment this broker just rewrote."""
        return (
            yield from self._command(
                lambda context, batch: topic_change.process_partition_modifications(context, batch, topic)
            )
        )

    def delete_topics(self) -> Steps[None]:
        """Look at the requests for deletion that this broker has just written.

        Done when the requests to brokers are queued."""
        return (yield from self._command(topic_change.process_topic_deletion))

    def shut_down_broker(self, broker: int, broker_epoch: int) -> Steps[list[TopicPartition]]:
        """See `broker_change.process_controlled_shutdown`."""
        return (
            yield from self._command(
                lambda context, batch: broker_change.process_controlled_shutdown(context, batch, broker, broker_epoch)
            )
        )

    def alter_partitions(
        self, broker: int, broker_epoch: int, changes: Sequence[isr_change.IsrChange]
    ) -> Steps[dict[TopicPartition, LeaderAndIsr | ErrorCode]]:
        """See `isr_change.process_alter_partition`."""
        answers = yield from self._command(
            lambda context, batch: isr_change.process_alter_partition(context, batch, broker, broker_epoch, changes)
        )
        if not self._context().reassigning.isdisjoint(answers):
            # The leader need not wait for this.
            self._put(Hint("reassigned", reassignment.maybe_complete))
        return answers

    def elect_leaders(
        self, partitions: Sequence[TopicPartition], *, unclean: bool
    ) -> Steps[dict[TopicPartition, int | KafkaError]]:
        """See `replica_leader_election.process_replica_leader_election`."""
        return (
            yield from self._command(
                lambda context, batch: replica_leader_election.process_replica_leader_election(
                    context, batch, partitions, unclean=unclean
                )
            )
        )

    def alter_reassignments(
        self, targets: Mapping[TopicPartition, Sequence[int] | None]
    ) -> Steps[dict[TopicPartition, KafkaError | None]]:
        """See `reassignment.process_api_reassignment`."""
        return (
            yield from self._command(
                lambda context, batch: reassignment.process_api_reassignment(context, batch, targets)
            )
        )

    def list_reassignments(
        self, partitions: Collection[TopicPartition] | None = None
    ) -> Steps[dict[TopicPartition, ReplicaAssignment]]:
        """See `reassignment.process_list_reassignments`."""
        return (
            yield from self._command(lambda context, _: reassignment.process_list_reassignments(context, partitions))
        )

    def update_features(
        self, updates: Sequence[FeatureUpdate], *, validate_only: bool
    ) -> Steps[dict[str, KafkaError | None]]:
        """See `features.process_feature_updates`."""
        return (
            yield from self._command(
                lambda context, batch: process_feature_updates(context, batch, updates, validate_only=validate_only)
            )
        )

    def _command(self, decide: Callable[[ControllerContext, RequestBatch], Steps[T]]) -> Steps[T]:
        self.require_active()

        def begin(done: Done) -> None:
            self._put(Command(decide, done))

        result: T = yield Wait(begin)
        return result


def _nothing(_context: ControllerContext, _batch: RequestBatch) -> Steps[None]:
    yield from ()
