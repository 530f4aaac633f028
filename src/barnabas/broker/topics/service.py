"""Creating, growing and deleting topics: what is allowed, which znodes it takes, and when it is done.

The controller's broker does this work. It validates against what it knows, writes the znodes, hands what it wrote to
its own `Controller` (the others learn of it by watches), and answers when this broker's metadata shows the result.
"""

import logging
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from barnabas.base.errors import ConfigError
from barnabas.base.ids import ZERO_UUID, TopicPartition, Uuid
from barnabas.base.randomness import Random, random_uuid
from barnabas.base.settings import Values
from barnabas.broker.cluster.znodes import (
    Assignment,
    TopicAssignment,
    ZnodeFormatError,
    config_path,
    decode_topic,
    delete_topic_path,
    encode_config,
    encode_topic,
    topic_path,
)
from barnabas.broker.metadata.cache import INTERNAL_TOPICS
from barnabas.broker.requests.request import Node
from barnabas.broker.topics.placement import assign_replicas
from barnabas.coordination.client.operations import MultiError, create, multi, multi_create, multi_set
from barnabas.log.settings import LogConfig
from barnabas.wire.jute.errors import ErrorCode as Keeper
from barnabas.wire.jute.errors import KeeperError
from barnabas.wire.kafka.errors import ErrorCode, KafkaError
from barnabas.wire.kafka.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest

__all__ = [
    "CreationPlan",
    "Topics",
    "collides",
    "plan_creation",
    "plan_growth",
    "validate_topic_name",
]

logger = logging.getLogger(__name__)


_UNSET = -1
_MAX_NAME_LENGTH = 249
_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+")
_MAX_PARTITIONS_A_REQUEST = 200_000  # far above what a cluster holds; keeps one request from eating the memory


@dataclass(slots=True)
class CreationPlan:
    """A topic that may be created."""

    name: str
    assignment: dict[int, tuple[int, ...]]
    configs: dict[str, str] = field(default_factory=dict)
    topic_id: Uuid = ZERO_UUID


def validate_topic_name(name: str) -> None:
    """Raises `KafkaError` INVALID_TOPIC_EXCEPTION with Kafka's words."""
    if not name:
        wrong = "the empty string is not allowed"
    elif name in (".", ".."):
        wrong = f"'{name}' is not allowed"
    elif len(name) > _MAX_NAME_LENGTH:
        wrong = f"the length of '{name}' is longer than the max allowed length {_MAX_NAME_LENGTH}"
    elif not _LEGAL_NAME.fullmatch(name):
        wrong = f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    else:
        return
    raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {wrong}")


def collides(name: str, other: str) -> bool:
    """Whether two names are one where ``.`` becomes ``_``, as in names of metrics."""
    return name.replace(".", "_") == other.replace(".", "_")


def plan_creation(
    topic: CreatableTopic,
    racks: Mapping[int, str | None],
    rng: Random,
    *,
    existing: Collection[str],
    default_partitions: int,
    default_replication_factor: int,
    config_defaults: Mapping[str, str],
) -> CreationPlan:
    """Check one topic of a CreateTopics request and place its replicas; raises `KafkaError` with Kafka's words."""
    if topic.name in existing:  # whatever else is wrong with the request
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{topic.name}' already exists.")
    missing = [config.name for config in topic.configs if config.value is None]
    if missing:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {','.join(missing)}")
    if topic.assignments and (topic.num_partitions != _UNSET or topic.replication_factor != _UNSET):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "Both numPartitions or replicationFactor and replicasAssignments were set. Both cannot be used at the same "
            "time.",
        )
    if topic.assignments:
        assignment = {entry.partition_index: tuple(entry.broker_ids) for entry in topic.assignments}
    else:
        partitions = default_partitions if topic.num_partitions == _UNSET else topic.num_partitions
        factor = default_replication_factor if topic.replication_factor == _UNSET else topic.replication_factor
        if partitions * max(factor, 1) > _MAX_PARTITIONS_A_REQUEST:
            raise KafkaError(
                ErrorCode.INVALID_PARTITIONS,
                f"More than {_MAX_PARTITIONS_A_REQUEST} replicas cannot be created at once.",
            )
        assignment = assign_replicas(racks, partitions, factor, rng)
    _validate_name(topic.name, existing)
    _validate_assignment(assignment, len(topic.assignments or ()))
    configs = {config.name: config.value or "" for config in topic.configs}
    try:
        if configs:
            LogConfig(configs, config_defaults)
    except ConfigError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from error
    return CreationPlan(topic.name, assignment, configs)


def _validate_name(name: str, existing: Collection[str]) -> None:
    validate_topic_name(name)
    if "." not in name and "_" not in name:
        return
    colliding = [other for other in existing if collides(name, other)]
    if colliding:
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"Topic '{name}' collides with existing topics: {', '.join(sorted(colliding))}",
        )


def _validate_assignment(assignment: Mapping[int, Sequence[int]], given: int) -> None:
    bad = ErrorCode.INVALID_REPLICA_ASSIGNMENT
    if len({len(replicas) for replicas in assignment.values()}) != 1:
        raise KafkaError(bad, "All partitions should have the same number of replicas")
    for replicas in assignment.values():
        if len(replicas) != len(set(replicas)) or not replicas:
            raise KafkaError(bad, f"Duplicate replica assignment found: {_text(assignment)}")
    if given > len(assignment) or sorted(assignment) != list(range(len(assignment))):
        raise KafkaError(bad, "partitions should be a consecutive 0-based integer sequence")


def _text(assignment: Mapping[int, Sequence[int]]) -> str:
    return ", ".join(f"{index} -> ({', '.join(map(str, replicas))})" for index, replicas in assignment.items())


def plan_growth(
    name: str,
    existing: Mapping[int, Assignment],
    racks: Mapping[int, str | None],
    count: int,
    assignments: Sequence[Sequence[int]] | None,
    rng: Random,
) -> dict[int, Assignment]:
    """The new partitions of a topic that is to have ``count``; raises `KafkaError` with Kafka's words."""
    current = len(existing)
    if not existing:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
    if any(assignment.is_reassigning for assignment in existing.values()):
        raise KafkaError(
            ErrorCode.REASSIGNMENT_IN_PROGRESS, f"A partition reassignment is in progress for the topic '{name}'."
        )
    if count < current:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"Topic currently has {current} partitions, which is higher than the requested {count}.",
        )
    if count == current:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {current} partitions.")
    if count - current > _MAX_PARTITIONS_A_REQUEST:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS, f"More than {_MAX_PARTITIONS_A_REQUEST} partitions cannot be added at once."
        )
    first = existing[min(existing)].replicas
    if assignments is None:
        ids = sorted(racks)
        start = max(0, next((index for index, broker in enumerate(ids) if broker >= first[0]), -1))
        placed = assign_replicas(racks, count - current, len(first), rng, fixed_start=start, first_partition=current)
        return {index: Assignment(replicas) for index, replicas in placed.items()}
    unknown = {broker for replicas in assignments for broker in replicas} - racks.keys()
    bad = ErrorCode.INVALID_REPLICA_ASSIGNMENT
    if unknown:
        raise KafkaError(bad, f"Unknown broker(s) in replica assignment: {', '.join(map(str, sorted(unknown)))}.")
    if len(assignments) != count - current:
        raise KafkaError(
            bad,
            f"Increasing the number of partitions by {count - current} but {len(assignments)} assignments provided.",
        )
    for index, replicas in enumerate(assignments, current):
        if not replicas:
            raise KafkaError(bad, f"Cannot have replication factor of 0 for partition id {index}.")
        if len(replicas) != len(set(replicas)):
            raise KafkaError(
                bad,
                f"Duplicate brokers not allowed in replica assignment: {', '.join(map(str, replicas))} for partition id "
                f"{index}.",
            )
    odd = {index: len(replicas) for index, replicas in enumerate(assignments, current) if len(replicas) != len(first)}
    if odd:
        raise KafkaError(
            bad,
            f"Inconsistent replication factor between partitions, partition 0 has {len(first)} while partitions "
            f"[{', '.join(map(str, odd))}] have replication factors [{', '.join(map(str, odd.values()))}], respectively.",
        )
    return {index: Assignment(tuple(replicas)) for index, replicas in enumerate(assignments, current)}


class Topics:
    """The work itself, on the broker that is controller; and automatic creation from any broker."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._creating: set[str] = set()
        self._deleting: set[str] = set()

    def racks(self) -> dict[int, str | None]:
        """Live brokers with their racks, for placement."""
        return {broker.broker_id: broker.rack for broker in self._node.metadata.alive_brokers()}

    # Creation

    def existing(self) -> Collection[str]:
        """The names that are taken."""
        # Metadata knows topics too that a controller which has just been elected is still reading.
        return {*self._node.controller.context.topics, *self._node.metadata.topics()}

    def plan(self, topic: CreatableTopic, existing: Collection[str]) -> CreationPlan:
        """See `plan_creation`."""
        node = self._node
        state = node.controller.context
        if topic.name in state.to_delete:
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{topic.name}' is marked for deletion.")
        return plan_creation(
            topic,
            self.racks(),
            node.rng,
            existing=existing,
            default_partitions=node.settings["num.partitions"],
            default_replication_factor=node.settings["default.replication.factor"],
            config_defaults=node.configs.topic_defaults,
        )

    async def create(self, plans: Sequence[CreationPlan]) -> dict[str, KafkaError]:
        """Write the znodes of topics and have the controller start them; returns what failed, by name."""
        node = self._node
        failed: dict[str, KafkaError] = {}
        created: dict[str, TopicAssignment] = {}
        for plan in plans:
            plan.topic_id = random_uuid(node.rng)
        assigned = {
            plan.name: TopicAssignment(plan.topic_id, {i: Assignment(r) for i, r in plan.assignment.items()})
            for plan in plans
        }
        writes = [
            multi(
                [
                    multi_create(config_path("topics", plan.name), encode_config(plan.configs)),
                    multi_create(topic_path(plan.name), encode_topic(*assigned[plan.name])),
                ]
            )
            for plan in plans
        ]
        for plan, result in zip(plans, await node.coordination.batch(writes), strict=True):
            if isinstance(result, MultiError) and result.errors[0] is Keeper.NODE_EXISTS:
                result = await self._create_over_config(plan, assigned[plan.name])
            if isinstance(result, KeeperError):
                failed[plan.name] = _creation_error(plan.name, result)
            else:
                created[plan.name] = assigned[plan.name]
                node.configs.learn_topic(plan.name, plan.configs)
        if created:
            await node.controller.topics_created(created)
        return failed

    async def _create_over_config(self, plan: CreationPlan, assigned: TopicAssignment) -> object:
        """A configuration is there already, written before the topic or left by one that failed half-way."""
        write = multi(
            [
                multi_set(config_path("topics", plan.name), encode_config(plan.configs)),
                multi_create(topic_path(plan.name), encode_topic(*assigned)),
            ]
        )
        (result,) = await self._node.coordination.batch([write])
        return result

    def when_led(self, counts: Mapping[str, int], done: Callable[[set[str]], None], timeout_ms: int) -> None:
        """Call ``done`` with nothing once this broker knows leaders of all partitions of the topics (name: count);
        after the time, with the topics that still lack one."""
        missing = {name for name, count in counts.items() if not self._is_led(name, count)}
        if not missing or timeout_ms <= 0:
            done(missing)
            return

        def attempt(key: Any) -> bool:
            name = key[1]
            if name in missing and self._is_led(name, counts[name]):
                missing.discard(name)
            if missing:
                return False
            done(missing)
            return True

        keys = tuple(("topic", name) for name in missing)
        self._node.purgatory.watch(keys, attempt, lambda: done(missing), timeout_ms)

    def _is_led(self, topic: str, count: int) -> bool:
        partitions = self._node.metadata.partitions(topic)
        return len(partitions) >= count and all(state.leader >= 0 for state in partitions.values())

    # Automatic creation

    def auto_create(self, names: Iterable[str]) -> None:
        """Begin to create topics that someone asked for, here or through the controller; nobody waits for it."""
        wanted = [name for name in names if name not in self._creating]
        if wanted:
            self._creating.update(wanted)
            self._node.spawn(self._auto_create(wanted))

    async def _auto_create(self, names: Sequence[str]) -> None:
        node = self._node
        topics = [self._automatic(name) for name in names]
        try:
            if node.controller.is_active:
                plans = []
                existing = self.existing()
                for topic in topics:
                    try:
                        plans.append(self.plan(topic, existing))
                    except KafkaError as error:
                        logger.warning("Topic %s could not be created automatically: %s", topic.name, error)
                for name, failure in (await self.create(plans)).items():
                    logger.warning("Topic %s could not be created automatically: %s", name, failure)
            elif node.controller.controller_id >= 0:
                request = CreateTopicsRequest(
                    topics=topics, timeout_ms=node.settings["request.timeout.ms"], validate_only=False
                )
                response = await node.channels.send(node.controller.controller_id, request)
                for result in response.topics:
                    if result.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                        logger.warning("Topic %s could not be created automatically: %s %s", result.name,
                                    ErrorCode(result.error_code).name, result.error_message or "")  # fmt: skip
        except Exception as error:
            # The client that asked will ask again.
            logger.warning("Topics %s could not be created automatically: %s", ", ".join(names), error)
        finally:
            self._creating.difference_update(names)

    def _automatic(self, name: str) -> CreatableTopic:
        settings = self._node.settings
        if name not in INTERNAL_TOPICS:
            return _creatable(name, settings["num.partitions"], settings["default.replication.factor"], {})
        return _creatable(
            name,
            settings["offsets.topic.num.partitions"],
            settings["offsets.topic.replication.factor"],
            {
                "cleanup.policy": "compact",
                "segment.bytes": str(settings["offsets.topic.segment.bytes"]),
                "compression.type": "producer",
            },
        )

    # Growth

    async def grow(
        self, name: str, count: int, assignments: Sequence[Sequence[int]] | None, *, validate_only: bool
    ) -> int:
        """Add partitions; returns how many there are then. Raises `KafkaError`."""
        node = self._node
        if name in node.controller.context.to_delete:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic is queued for deletion.")
        while True:
            try:
                data, stat = await node.coordination.get(topic_path(name))
                found = decode_topic(name, data)
            except KeeperError as error:
                if error.code is Keeper.NO_NODE:
                    raise KafkaError(
                        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist."
                    ) from None
                raise
            except ZnodeFormatError as error:
                raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from error
            added = plan_growth(name, found.partitions, self.racks(), count, assignments, node.rng)
            if validate_only:
                return count
            grown = TopicAssignment(found.topic_id, {**found.partitions, **added})
            try:
                await node.coordination.set_data(topic_path(name), encode_topic(*grown), stat.version)
                break
            except KeeperError as error:
                if error.code is not Keeper.BAD_VERSION:
                    raise
        await node.controller.partitions_added(name)
        return len(grown.partitions)

    # Deletion

    async def delete(self, names: Sequence[str]) -> dict[str, KafkaError]:
        """Order the deletion of topics; returns what failed, by name. An order that stands already is fine."""
        node = self._node
        failed: dict[str, KafkaError] = {}
        known = []
        for name in names:
            if name in node.controller.context.topics or name in node.metadata:
                known.append(name)
            else:
                failed[name] = KafkaError(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic `{name}` to delete does not exist"
                )
        results = await node.coordination.batch([create(delete_topic_path(name)) for name in known], retry=True)
        for name, result in zip(known, results, strict=True):
            if isinstance(result, KeeperError) and result.code is not Keeper.NODE_EXISTS:
                failed[name] = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(result))
        await node.controller.topics_deleted()
        return failed

    def when_deleted(self, names: Iterable[str], done: Callable[[set[str]], None], timeout_ms: int) -> None:
        """Call ``done`` with nothing once the topics are gone (or wait for a broker that is away); after the time,
        with those that are still there."""
        missing = {name for name in names if not self._is_deleted(name)}
        if not missing or timeout_ms <= 0:
            done(missing)
            return
        self._deleting |= missing

        def attempt(key: Any) -> bool:
            if self._is_deleted(key[1]):
                missing.discard(key[1])
            if missing:
                return False
            done(missing)
            return True

        keys = tuple(("topic", name) for name in missing)
        self._node.purgatory.watch(keys, attempt, lambda: done(missing), timeout_ms)

    def _is_deleted(self, topic: str) -> bool:
        state = self._node.controller.context
        if topic in self._node.metadata:
            return False
        return topic not in state.topics or topic in state.ineligible_for_deletion

    # Hearing

    def metadata_changed(self, changed: set[str], deleted: list[TopicPartition]) -> None:
        """Serve requests that wait for topics, and forget the configuration of deleted ones."""
        for topic in changed:
            self._node.purgatory.check_and_complete(("topic", topic))
        for partition in deleted:
            if partition.topic not in self._node.metadata:
                self._node.configs.forget_topic(partition.topic)

    def topic_configured(self, _topic: str, config: LogConfig) -> None:
        """Elect leaders again where unclean elections are allowed now."""
        if config.unclean_leader_election:
            self._node.controller.retry_leaders()

    def settings_changed(self, settings: Values) -> None:
        """Elect leaders again if unclean elections are allowed now."""
        if settings["unclean.leader.election.enable"]:
            self._node.controller.retry_leaders()

    def controller_progressed(self) -> None:
        """Serve requests that wait for a deletion which is over."""
        for topic in [topic for topic in self._deleting if self._is_deleted(topic)]:
            self._deleting.discard(topic)
            self._node.purgatory.check_and_complete(("topic", topic))


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
