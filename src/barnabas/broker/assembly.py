"""What the parts of a broker are made of, and which part is informed of what.

In Kafka this is spread over `KafkaServer.startup` and `BrokerServer`; ZooKeeper's `setupRequestProcessors` is the model.
`make_parts` makes everything without I/O, so an API handler never meets a part that is not there yet. `Parts.subscribe`
contains all subscriptions. `barnabas.broker.server` starts and stops the parts in order.
"""

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any

from barnabas.base.clock import CallLater, Clock
from barnabas.base.files import Files
from barnabas.base.network import Network
from barnabas.base.randomness import Random, random_uuid
from barnabas.base.settings import Values
from barnabas.base.threads import InThread
from barnabas.broker.apis import load_handlers
from barnabas.broker.apis.api_versions import advertised, unsupported_version
from barnabas.broker.apis.services import Services
from barnabas.broker.cluster.channels import Channels
from barnabas.broker.cluster.service import Interpreter
from barnabas.broker.cluster.znodes import BrokerInfo
from barnabas.broker.configuration import definitions
from barnabas.broker.configuration.broker_config import BrokerConfig
from barnabas.broker.configuration.dynamic_config import DynamicConfig
from barnabas.broker.configuration.repository import ConfigRepository
from barnabas.broker.configuration.service import ConfigManager
from barnabas.broker.controller.service import Controller, ControllerSettings
from barnabas.broker.groups.service import GroupService
from barnabas.broker.membership.service import BrokerLifecycle, DeathWatch
from barnabas.broker.metadata.cache import MetadataCache
from barnabas.broker.replication.delayed_fetch import Fetches
from barnabas.broker.replication.fetch_sessions import FetchSessions
from barnabas.broker.replication.quotas import ReplicationQuotas
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.broker.replication.selection import PreferredReadReplica, replica_selector
from barnabas.broker.replication.service import AlterPartitionSender, FetcherParts, ReplicaFetcherManager
from barnabas.broker.requests.connection_quotas import ConnectionLimits, ConnectionQuotas
from barnabas.broker.requests.dispatch import Dispatcher
from barnabas.broker.requests.purgatory import Purgatory
from barnabas.broker.requests.request import Node
from barnabas.broker.storage.log_cleaner import LogCleaner
from barnabas.broker.storage.replica_alter_log_dirs import ReplicaAlterLogDirsManager
from barnabas.broker.storage.schedule import StorageSchedule
from barnabas.broker.storage.service import Background, LogSyncs, StorageService
from barnabas.broker.topics.service import Topics
from barnabas.broker.transactions.producer_ids import ProducerIds
from barnabas.coordination.client import CoordinationClient
from barnabas.log.dirs.log_dirs import LogDirs
from barnabas.log.settings import LogConfig

__all__ = ["Environment", "Parts", "make_parts"]


@dataclass(frozen=True, slots=True)
class Environment:
    """What the server gives to the parts: who this broker is, and its connections to the outside."""

    broker_id: int
    cluster_id: str
    config: BrokerConfig
    inter_broker_listener: str
    """The name of the listener that brokers use among themselves."""
    broker_info: Callable[[], BrokerInfo]
    """What is registered; known when the listeners are open."""
    is_closing: Callable[[], bool]

    clock: Clock
    rng: Random
    files: Files
    network: Network
    fetch_network: Network
    """For the connections over which this broker copies from leaders."""
    coordination: CoordinationClient
    log_dirs: LogDirs
    call_later: CallLater
    spawn: Callable[[Coroutine[Any, Any, None]], None]
    """Start work that waits. Its exceptions are logged, and it is cancelled when the broker stops."""
    in_thread: InThread


@dataclass(frozen=True, slots=True)
class Parts:
    """All parts of a broker."""

    node: Node
    environment: Environment
    purgatory: Purgatory
    metadata: MetadataCache
    interpreter: Interpreter
    configs: DynamicConfig
    config_manager: ConfigManager
    log_dirs: LogDirs
    replicas: ReplicaManager
    replication_quotas: ReplicationQuotas
    fetch_sessions: FetchSessions
    fetchers: ReplicaFetcherManager
    alter_partition_sender: AlterPartitionSender
    channels: Channels
    controller: Controller
    lifecycle: BrokerLifecycle
    death_watch: DeathWatch
    topics: Topics
    groups: GroupService
    producer_ids: ProducerIds
    storage: StorageService
    connection_quotas: ConnectionQuotas
    dispatcher: Dispatcher

    @property
    def coordination(self) -> CoordinationClient:
        return self.environment.coordination

    @property
    def broker_id(self) -> int:
        return self.environment.broker_id

    @property
    def broker_epoch(self) -> int:
        """The czxid of this broker's znode in /brokers/ids; -1 while it is not registered."""
        return self.lifecycle.broker_epoch

    async def load_configuration(self) -> None:
        """Read the dynamic configuration; before any log is opened."""
        await self.config_manager.load()
        for topic in self.configs.known_topics():
            self.configure_quotas(topic, self.configs.log_config(topic))

    def subscribe(self) -> None:
        """Which part is informed of what, in this order."""
        coordination = self.environment.coordination
        coordination.on_session(self.config_manager.session_changed)
        coordination.on_session(self.controller.session_changed)

        configs = self.configs
        configs.on_settings(self._limit_connections)
        configs.on_settings(self.replication_quotas.configure_broker)
        configs.on_settings(self.topics.settings_changed)
        configs.on_topic(self.replicas.configure)
        configs.on_topic(self.configure_quotas)
        configs.on_topic(self.topics.topic_configured)
        configs.on_unknown_topic(self.config_manager.learn_topic)

        metadata = self.metadata
        metadata.on_update(self.fetchers.brokers_changed)
        metadata.on_update(self.death_watch.metadata_changed)
        metadata.on_update(self.lifecycle.metadata_changed)
        metadata.on_update(self._connect_to_brokers)
        metadata.on_update(self.topics.metadata_changed)
        metadata.on_update(self.groups.metadata_changed)

        replicas = self.replicas
        replicas.on_roles(self.fetchers.roles_changed)
        replicas.on_roles(self.storage.roles_changed)
        replicas.on_leadership(self.groups.leadership_changed)
        replicas.alter_partition.on_pending = self.alter_partition_sender.changes_waiting

        self.controller.on_progress(self.topics.controller_progressed)

    def configure_quotas(self, topic: str, config: LogConfig) -> None:
        """Take the throttled replicas of a topic from its configuration."""
        self.replication_quotas.configure_topic(
            topic,
            config.values["leader.replication.throttled.replicas"],
            config.values["follower.replication.throttled.replicas"],
        )

    def _limit_connections(self, settings: Values) -> None:
        self.connection_quotas.limits = _connection_limits(settings)

    def _connect_to_brokers(self, *_: object) -> None:
        """Keep channels to the brokers where they are now. The active controller, which learns it first, does so itself."""
        environment = self.environment
        if self.controller.controller_id != environment.broker_id:
            self.channels.set_brokers(
                {
                    broker.broker_id: (endpoint.host, endpoint.port)
                    for broker in self.metadata.alive_brokers()
                    if (endpoint := broker.endpoint(environment.inter_broker_listener)) is not None
                }
            )


def make_parts(environment: Environment) -> Parts:
    """Make all parts, each from what it needs. Nothing starts, and nothing is informed, before `Parts.subscribe`."""
    config, clock, rng, call_later = environment.config, environment.clock, environment.rng, environment.call_later
    log_dirs = environment.log_dirs
    node = _node(environment)

    purgatory = node.purgatory = Purgatory(call_later)
    metadata = node.metadata = MetadataCache(environment.cluster_id)
    channels = node.channels = Channels(
        environment.broker_id, environment.network, request_timeout_ms=config["request.timeout.ms"]
    )
    interpreter = Interpreter(environment.coordination, channels, environment.spawn)
    configs = node.configs = DynamicConfig(config, lambda: (partition.name.topic for partition in replicas))
    config_repository = ConfigRepository(configs, environment.broker_id, clock.wall_ms)
    config_manager = ConfigManager(config_repository, interpreter, environment.spawn, call_later)
    syncs = LogSyncs(clock, environment.in_thread, lambda log: replicas.synced(log, clock.wall_ms()))
    replicas = node.replicas = ReplicaManager(
        environment.broker_id,
        log_dirs,
        purgatory,
        log_config=configs.log_config,
        is_known=lambda topic_partition: metadata.partition(topic_partition) is not None,
        lag_time_max_ms=config["replica.lag.time.max.ms"],
        lag_max_messages=config["replica.lag.max.messages"],
        is_alive=lambda broker_id: metadata.alive_broker(broker_id) is not None,
        sync=syncs.request,
    )
    replication_quotas = node.replication_quotas = ReplicationQuotas(
        environment.broker_id,
        windows=config["replication.quota.window.num"],
        window_ms=config["replication.quota.window.size.seconds"] * 1000,
    )
    replication_quotas.configure_broker(config.values)
    fetch_sessions = node.fetch_sessions = FetchSessions(
        config["max.incremental.fetch.session.cache.slots"], rng, purgatory
    )
    selector = replica_selector(config["replica.selector.class"])
    fetches = Fetches(
        replicas,
        purgatory,
        clock,
        replication_quotas.leader,
        metadata.topic_name,
        None
        if selector is None
        else PreferredReadReplica(environment.broker_id, config["broker.rack"], selector, metadata.alive_broker),
    )
    fetchers = ReplicaFetcherManager(
        FetcherParts(
            broker_id=environment.broker_id,
            broker_epoch=lambda: node.broker_epoch,
            config=config,
            clock=clock,
            call_later=call_later,
            network=environment.fetch_network,
            listener=environment.inter_broker_listener,
            metadata=metadata,
            when_durable=syncs.when_durable,
            quota=replication_quotas.follower,
            truncate=lambda topic_partition, offset: log_dirs.truncate({topic_partition: offset}),
            changed=purgatory.check_and_complete,
        )
    )

    alter_partition_sender = AlterPartitionSender(
        replicas, metadata, channels, lambda: node.broker_epoch, config, clock, call_later, environment.spawn
    )
    lifecycle = BrokerLifecycle(
        environment.broker_id,
        environment.broker_info,
        environment.coordination,
        channels,
        metadata,
        config,
        environment.files,
        clock,
        log_dirs=lambda: log_dirs.online,
        lost_data=log_dirs.lost_data,
        controller=lambda: controller,
        is_closing=environment.is_closing,
        spawn=environment.spawn,
        set_epoch=partial(setattr, node, "broker_epoch"),
    )
    controller = node.controller = Controller(
        environment.broker_id,
        interpreter,
        channels,
        lifecycle.register,
        wall_ms=clock.wall_ms,
        new_topic_id=partial(random_uuid, rng),
        settings=partial(_controller_settings, config, environment.inter_broker_listener),
    )
    death_watch = DeathWatch(
        environment.broker_id,
        environment.coordination,
        environment.network,
        metadata,
        listener=environment.inter_broker_listener,
        is_controller=lambda: controller.is_active,
    )

    topics = node.topics = Topics(config, metadata, configs, controller, purgatory, rng, interpreter.start)
    groups = GroupService(
        config, replicas, metadata, clock=clock, call_later=call_later, rng=rng, spawn=environment.spawn
    )
    producer_ids = node.producer_ids = ProducerIds(environment.broker_id)
    storage = StorageService(
        Background(clock, call_later, environment.in_thread),
        StorageSchedule(
            log_dirs,
            replicas,
            config,
            environment.files,
            flush=syncs.flush,
            partition_changed=purgatory.check_and_complete,
            close_idle=lambda now_ms, max_idle_ms: dispatcher.close_idle(now_ms, max_idle_ms),
        ),
        LogCleaner(log_dirs, config),
        ReplicaAlterLogDirsManager(log_dirs, replicas, config),
    )

    apis = load_handlers()
    services = Services(
        broker_id=environment.broker_id,
        broker_epoch=lambda: lifecycle.broker_epoch,
        config=config,
        api_versions=advertised(apis.values()),
        clock=clock,
        call_later=call_later,
        start=interpreter.start,
        files=environment.files,
        purgatory=purgatory,
        metadata=metadata,
        replicas=replicas,
        log_dirs=log_dirs,
        storage=storage,
        fetch_sessions=fetch_sessions,
        fetches=fetches,
        groups=groups,
        producer_ids=producer_ids,
        configs=configs,
        config_repository=config_repository,
        topics=topics,
        controller=controller,
    )
    connection_quotas = ConnectionQuotas(_connection_limits(config.values))
    dispatcher = Dispatcher(
        {key: api.bind(services) for key, api in apis.items()},
        purgatory,
        connection_quotas,
        clock,
        client_id=f"broker-{environment.broker_id}",
        unsupported_version=unsupported_version(),
    )
    channels.call_self = dispatcher.call
    return Parts(
        node=node,
        environment=environment,
        purgatory=purgatory,
        metadata=metadata,
        interpreter=interpreter,
        configs=configs,
        config_manager=config_manager,
        log_dirs=log_dirs,
        replicas=replicas,
        replication_quotas=replication_quotas,
        fetch_sessions=fetch_sessions,
        fetchers=fetchers,
        alter_partition_sender=alter_partition_sender,
        channels=channels,
        controller=controller,
        lifecycle=lifecycle,
        death_watch=death_watch,
        topics=topics,
        groups=groups,
        producer_ids=producer_ids,
        storage=storage,
        connection_quotas=connection_quotas,
        dispatcher=dispatcher,
    )


def _node(environment: Environment) -> Node:
    node = Node()
    node.broker_id = environment.broker_id
    node.cluster_id = environment.cluster_id
    node.config = environment.config
    node.clock, node.rng, node.files = environment.clock, environment.rng, environment.files
    node.spawn, node.call_later = environment.spawn, environment.call_later
    node.coordination, node.log_dirs = environment.coordination, environment.log_dirs
    return node


def _connection_limits(settings: Values) -> ConnectionLimits:
    return ConnectionLimits(
        max_connections=settings["max.connections"],
        max_connections_per_ip=settings["max.connections.per.ip"],
        overrides=definitions.connection_caps(settings),
    )


def _controller_settings(config: BrokerConfig, inter_broker_listener: str) -> ControllerSettings:
    return ControllerSettings(
        inter_broker_listener=inter_broker_listener,
        delete_topic_enabled=config["delete.topic.enable"],
        unclean_leader_election=config["unclean.leader.election.enable"],
        auto_leader_rebalance=config["auto.leader.rebalance.enable"],
        imbalance_check_interval_s=config["leader.imbalance.check.interval.seconds"],
        imbalance_percent=config["leader.imbalance.per.broker.percentage"],
    )
