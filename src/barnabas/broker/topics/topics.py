"""Creating, growing and deleting topics on the controller's broker, and automatic
creation from any broker.

Kafka's `ZkAdminManager` with the delayed operations `DelayedCreatePartitions` and
`DelayedDeleteTopics`, and its `AutoTopicCreationManager`. The work is steps: validate against what
the controller knows, write the znodes, have the controller look at them. The answer leaves when
this broker's metadata shows the result.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from barnabas.base.excerpts import Tally, some_of
from barnabas.base.ids import TopicPartition
from barnabas.base.randomness import Random, random_uuid
from barnabas.base.settings import Values
from barnabas.base.tasks import Task, list_of
from barnabas.broker.cluster.steps import (
    Ask,
    Committed,
    Create,
    Read,
    Refused,
    SetData,
    Steps,
    Transact,
    WriteResult,
    WriteUnfenced,
    Written,
    Znode,
)
from barnabas.broker.cluster.znodes import (
    ReplicaAssignment,
    TopicAssignment,
    ZnodeFormatError,
    config_path,
    decode_topic_in_slices,
    delete_topic_path,
    encode_config,
    encode_topic_in_slices,
    topic_path,
)
from barnabas.broker.configuration.broker_config import BrokerConfig
from barnabas.broker.configuration.dynamic_config import DynamicConfig
from barnabas.broker.controller.service import Controller
from barnabas.broker.metadata.cache import MetadataCache
from barnabas.broker.metadata.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from barnabas.broker.requests.purgatory import DelayedOperation, Purgatory
from barnabas.broker.topics.planning import (
    MAX_REPLICAS_A_REQUEST,
    MAX_TOPICS_A_REQUEST,
    CreationPlan,
    TakenNames,
    plan_creation,
    plan_growth,
)
from barnabas.log.settings import LogConfig
from barnabas.wire.jute.errors import ErrorCode as Keeper
from barnabas.wire.jute.errors import KeeperError
from barnabas.wire.kafka.errors import ErrorCode, KafkaError
from barnabas.wire.kafka.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest

__all__ = ["Topics"]

logger = logging.getLogger(__name__)

_TOPICS_A_STEP = 250
"""How many topics of a request are written at once: some milliseconds."""


class Topics:
    """Creation, growth and deletion of topics."""

    def __init__(
        self,
        config: BrokerConfig,
        metadata: MetadataCache,
        configs: DynamicConfig,
        controller: Controller,
        purgatory: Purgatory,
        rng: Random,
        start: Callable[[Steps[None]], None],
    ) -> None:
        """``start`` performs steps in the background."""
        self._config = config
        self._metadata = metadata
        self._configs = configs
        self._controller = controller
        self._purgatory = purgatory
        self._rng = rng
        self._start = start
        self._creating: set[str] = set()
        self._deleting: set[str] = set()

    def racks(self) -> dict[int, str | None]:
        """Live brokers with their racks, for placement on the controller.

        The controller knows them before any broker's metadata: a client that has seen a new broker
        may place replicas on it. Raises `KafkaError` NOT_CONTROLLER when it has resigned
        meanwhile, and knows none.
        """
        self._controller.commands.require_active()
        return {broker: info.rack for broker, info in self._controller.context.brokers.items()}

    # Creation

    def existing(self) -> TakenNames:
        """The names that are taken."""
        # A topic that is deleted stays in the metadata until this broker receives the update.
        return TakenNames((*self._controller.context.topics, *self._metadata.topics()))

    def plan(
        self,
        topic: CreatableTopic,
        existing: TakenNames,
        max_replicas: int = MAX_REPLICAS_A_REQUEST,
        racks: Mapping[int, str | None] | None = None,
    ) -> Task[CreationPlan]:
        """See `plan_creation`. ``racks`` are of the live brokers; None for what the controller
        knows."""
        if topic.name in self._controller.context.to_delete:
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{topic.name}' is marked for deletion.")
        return (
            yield from plan_creation(
                topic,
                self.racks() if racks is None else racks,
                self._rng,
                existing=existing,
                default_partitions=self._config["num.partitions"],
                default_replication_factor=self._config["default.replication.factor"],
                config_defaults=self._configs.topic_defaults,
                max_replicas=max_replicas,
            )
        )

    def create(self, plans: Sequence[CreationPlan]) -> Steps[dict[str, KafkaError]]:
        """Write the znodes of topics and have the controller elect leaders.

        Returns what failed, by name."""
        failed: dict[str, KafkaError] = {}
        created: dict[str, TopicAssignment] = {}
        for first in range(0, len(plans), _TOPICS_A_STEP):
            yield from self._write(plans[first : first + _TOPICS_A_STEP], created, failed)
        if created:
            yield from self._controller.commands.create_topics(created)
        return failed

    def _write(
        self, plans: Sequence[CreationPlan], created: dict[str, TopicAssignment], failed: dict[str, KafkaError]
    ) -> Steps[None]:
        for plan in plans:
            plan.topic_id = random_uuid(self._rng)
        assigned: dict[str, TopicAssignment] = {}
        groups: list[list[Create]] = []
        for plan in plans:
            partitions: dict[int, ReplicaAssignment] = {}
            for index, replicas in plan.assignment.items():
                yield None
                partitions[index] = ReplicaAssignment(replicas)
            assigned[plan.name] = TopicAssignment(plan.topic_id, partitions)
            groups.append(
                [
                    Create(config_path("topics", plan.name), encode_config(plan.configs)),
                    Create(topic_path(plan.name), (yield from encode_topic_in_slices(*assigned[plan.name]))),
                ]
            )
        outcomes: list[Committed | Refused] = yield Transact(groups)
        for plan, outcome in zip(plans, outcomes, strict=True):
            final = outcome
            if isinstance(outcome, Refused) and outcome.op == 0 and outcome.error.code is Keeper.NODE_EXISTS:
                final = yield from _create_over_config(plan, assigned[plan.name])
            if isinstance(final, Refused):
                failed[plan.name] = _creation_error(plan.name, final.error)
            else:
                created[plan.name] = assigned[plan.name]
                self._configs.update_topic_config(plan.name, plan.configs)

    def when_led(
        self, counts: Mapping[str, int], done: Callable[[set[str]], None], timeout_ms: int
    ) -> DelayedOperation | None:
        """Call ``done`` with nothing once this broker knows leaders of all partitions of the topics
        (name: count); after the time, with the topics that still lack one."""
        missing = {name for name, count in counts.items() if not self._is_led(name, count)}
        if not missing or timeout_ms <= 0:
            done(missing)
            return None

        def attempt(key: Any) -> bool:
            name = key[1]
            if name in missing and self._is_led(name, counts[name]):
                missing.discard(name)
            if missing:
                return False
            done(missing)
            return True

        keys = tuple(("topic", name) for name in missing)
        return self._purgatory.watch(keys, attempt, lambda: done(missing), timeout_ms, "topic")

    def _is_led(self, topic: str, count: int) -> bool:
        partitions = self._metadata.partitions(topic)
        return len(partitions) >= count and all(state.leader >= 0 for state in partitions.values())

    # Automatic creation

    def auto_create(self, names: Iterable[str]) -> None:
        """Begin to create topics that a client asked for, here or through the
        controller, in the background.

        As many as one CreateTopics request may name are created at a time. A client that asks for
        more gets an error for which it asks again.
        """
        wanted = [name for name in names if name not in self._creating]
        room = max(MAX_TOPICS_A_REQUEST - len(self._creating), 0)
        if later := wanted[room:]:
            logger.warning(
                "Topics are created automatically when others are done, if asked for again: %s", some_of(later)
            )
            del wanted[room:]
        if wanted:
            self._creating.update(wanted)
            self._start(self._auto_create(wanted))

    def _auto_create(self, names: Sequence[str]) -> Steps[None]:
        failed: Tally[ErrorCode | None] = Tally()
        try:
            topics = yield from list_of(map(self._automatic, names))
            if self._controller.is_active:
                yield from self._auto_create_here(topics, failed)
            elif self._controller.controller_id >= 0:
                request = CreateTopicsRequest(
                    topics=topics, timeout_ms=self._config["request.timeout.ms"], validate_only=False
                )
                response = yield Ask(self._controller.controller_id, request)
                denied = set()
                for result in response.topics:
                    if result.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                        denied.add(result.name)
                    elif result.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                        error = KafkaError(ErrorCode(result.error_code), result.error_message or "")
                        failed.add(error.code, result.name, error)
                yield from self._auto_create_in_znodes([each for each in topics if each.name in denied], failed)
        except Exception as error:
            # The client that asked will ask again.
            code = error.code if isinstance(error, KafkaError) else None
            for name in names:
                failed.add(code, name, error)
        finally:
            _report_not_created(failed)
            self._creating.difference_update(names)

    def _auto_create_here(self, topics: Sequence[CreatableTopic], failed: Tally[ErrorCode | None]) -> Steps[None]:
        yield from self._controller.commands.await_failover()
        plans = yield from self._automatic_plans(topics, self.existing(), failed)
        refused = yield from self.create(plans)
        for name, failure in refused.items():
            failed.add(failure.code, name, failure)

    def _auto_create_in_znodes(self, topics: Sequence[CreatableTopic], failed: Tally[ErrorCode | None]) -> Steps[None]:
        """Create topics that the controller does not let this broker create, which may have no more
        than CLUSTER_ACTION. The client's right was checked here.

        Apache's brokers always write the znodes themselves; the controller watches them.
        """
        racks = {broker.broker_id: broker.rack for broker in self._metadata.alive_brokers()}
        plans = yield from self._automatic_plans(topics, TakenNames(self._metadata.topics()), failed, racks)
        refused: dict[str, KafkaError] = {}
        for first in range(0, len(plans), _TOPICS_A_STEP):
            yield from self._write(plans[first : first + _TOPICS_A_STEP], {}, refused)
        for name, failure in refused.items():
            failed.add(failure.code, name, failure)

    def _automatic_plans(
        self,
        topics: Sequence[CreatableTopic],
        existing: TakenNames,
        failed: Tally[ErrorCode | None],
        racks: Mapping[int, str | None] | None = None,
    ) -> Task[list[CreationPlan]]:
        plans = []
        replicas_left = MAX_REPLICAS_A_REQUEST
        for topic in topics:
            yield None
            try:
                plan = yield from self.plan(topic, existing, replicas_left, racks)
            except KafkaError as error:
                failed.add(error.code, topic.name, error)
            else:
                replicas_left -= sum(map(len, plan.assignment.values()))
                plans.append(plan)
        return plans

    def _automatic(self, name: str) -> CreatableTopic:
        config = self._config
        if name == OFFSETS_TOPIC:
            return _creatable(
                name,
                config["offsets.topic.num.partitions"],
                config["offsets.topic.replication.factor"],
                {
                    "cleanup.policy": "compact",
                    "segment.bytes": str(config["offsets.topic.segment.bytes"]),
                    "compression.type": "producer",
                },
            )
        if name == TRANSACTIONS_TOPIC:
            return _creatable(
                name,
                config["transaction.state.log.num.partitions"],
                config["transaction.state.log.replication.factor"],
                {
                    "unclean.leader.election.enable": "false",
                    "compression.type": "uncompressed",
                    "cleanup.policy": "compact",
                    "min.insync.replicas": str(config["transaction.state.log.min.isr"]),
                    "segment.bytes": str(config["transaction.state.log.segment.bytes"]),
                },
            )
        return _creatable(name, config["num.partitions"], config["default.replication.factor"], {})

    # Growth

    def grow(
        self, name: str, count: int, assignments: Sequence[Sequence[int]] | None, *, validate_only: bool
    ) -> Steps[int]:
        """Add partitions; returns how many there are then. Raises `KafkaError`."""
        yield from self._controller.commands.await_failover()
        if name in self._controller.context.to_delete:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic is queued for deletion.")
        while True:
            znodes: list[Znode | None] = yield Read([topic_path(name)])
            znode = znodes[0]
            if znode is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
            try:
                found = yield from decode_topic_in_slices(name, znode.data)
            except ZnodeFormatError as error:
                raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from error
            added = yield from plan_growth(name, found.partitions, self.racks(), count, assignments, self._rng)
            if validate_only:
                return count
            grown = TopicAssignment(found.topic_id, {**found.partitions, **added})
            data = yield from encode_topic_in_slices(*grown)
            written: list[Written] = yield WriteUnfenced([SetData(topic_path(name), data, znode.version)])
            if written[0].or_raise(WriteResult.BAD_VERSION) is WriteResult.DONE:
                break
        yield from self._controller.commands.add_partitions(name)
        return len(grown.partitions)

    # Deletion

    def delete(self, names: Sequence[str]) -> Steps[dict[str, KafkaError]]:
        """Queue topics for deletion; returns what failed, by name.

        A topic that is queued already is fine."""
        yield from self._controller.commands.await_failover()
        failed: dict[str, KafkaError] = {}
        known = []
        missing = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        for name in names:
            if name in self._controller.context.topics or name in self._metadata:
                known.append(name)
            else:
                failed[name] = missing
            yield None
        written: list[Written] = yield WriteUnfenced([Create(delete_topic_path(name)) for name in known], repeat=True)
        for name, outcome in zip(known, written, strict=True):
            if outcome.result not in (WriteResult.DONE, WriteResult.EXISTS):
                failed[name] = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(outcome.error))
        yield from self._controller.commands.delete_topics()
        return failed

    def when_deleted(
        self, names: Iterable[str], done: Callable[[set[str]], None], timeout_ms: int
    ) -> DelayedOperation | None:
        """Call ``done`` with nothing once the topics are gone (or wait for a broker that is away).

        After the time, with those that are still there."""
        missing = {name for name in names if not self._is_deleted(name)}
        if not missing or timeout_ms <= 0:
            done(missing)
            return None
        self._deleting |= missing

        def attempt(key: Any) -> bool:
            if self._is_deleted(key[1]):
                missing.discard(key[1])
            if missing:
                return False
            done(missing)
            return True

        keys = tuple(("topic", name) for name in missing)
        return self._purgatory.watch(keys, attempt, lambda: done(missing), timeout_ms, "topic")

    def _is_deleted(self, topic: str) -> bool:
        context = self._controller.context
        if topic in self._metadata:
            return False
        return topic not in context.topics or topic in context.ineligible_for_deletion

    # Subscribed to other components

    def metadata_changed(self, changed: set[str], deleted: list[TopicPartition]) -> None:
        """UpdateMetadata came: answer requests that wait for topics, and forget
        those that are deleted."""
        for topic in sorted(changed):
            self._purgatory.check_and_complete(("topic", topic))
        for topic_partition in deleted:
            if topic_partition.topic not in self._metadata:
                self._configs.forget_topic(topic_partition.topic)

    def topic_configured(self, _topic: str, config: LogConfig) -> None:
        """A topic's configuration changed."""
        if config.unclean_leader_election:
            self._controller.retry_leaders()

    def settings_changed(self, settings: Values) -> None:
        """This broker's settings changed."""
        if settings["unclean.leader.election.enable"]:
            self._controller.retry_leaders()

    def controller_progressed(self) -> None:
        """The controller made a decision: answer requests that wait for a deletion which is
        done as far as it can be."""
        for topic in sorted(topic for topic in self._deleting if self._is_deleted(topic)):
            self._deleting.discard(topic)
            self._purgatory.check_and_complete(("topic", topic))


def _create_over_config(plan: CreationPlan, assigned: TopicAssignment) -> Steps[Committed | Refused]:
    """A configuration exists already: it was written before the topic, or a creation
    failed half-way."""
    outcomes: list[Committed | Refused] = yield Transact(
        [
            [
                SetData(config_path("topics", plan.name), encode_config(plan.configs), -1),
                Create(topic_path(plan.name), (yield from encode_topic_in_slices(*assigned))),
            ]
        ]
    )
    return outcomes[0]


def _report_not_created(failed: Tally[ErrorCode | None]) -> None:
    # The controller moves, or stops: the client that asked will ask again. Or another request
    # has created it meanwhile.
    passing = (ErrorCode.NOT_CONTROLLER, ErrorCode.TOPIC_ALREADY_EXISTS)
    for code, names, error in failed.lines():
        level = logging.INFO if code in passing else logging.WARNING
        logger.log(level, "Topic %s could not be created automatically: %s", names, error)


def _creation_error(name: str, error: KeeperError) -> KafkaError:
    if error.code is Keeper.NODE_EXISTS:
        return KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    if error.code is Keeper.SESSION_EXPIRED:
        return KafkaError(ErrorCode.NOT_CONTROLLER, "This broker lost its session; ask again.")
    if error.code is Keeper.CONNECTION_LOSS:
        return KafkaError(ErrorCode.REQUEST_TIMED_OUT, "The coordination service did not answer; the topic may exist.")
    return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error))


def _creatable(name: str, partitions: int, replication_factor: int, configs: Mapping[str, str]) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication_factor,
        assignments=[],
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
    )
