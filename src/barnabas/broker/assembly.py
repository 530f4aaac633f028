"""Makes the components of a broker, and subscribes them to each other's changes.

In Kafka: `KafkaServer.startup`. ZooKeeper's `setupRequestProcessors` is the model.

`BrokerComponents` makes everything without I/O, so an API handler never meets a component that is
not there yet. `BrokerComponents.subscribe` contains all subscriptions. `barnabas.broker.server`
starts and stops the components in order.
"""

import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from barnabas.base.clock import CallLater, Clock
from barnabas.base.errors import ConfigError
from barnabas.base.files import Files
from barnabas.base.network import Connection, FrameHandler, Network, Standing
from barnabas.base.processes import StartProcess
from barnabas.base.randomness import Random, random_uuid
from barnabas.base.settings import Values
from barnabas.base.tasks import Runner
from barnabas.base.threads import InThread
from barnabas.broker.apis import load_handlers
from barnabas.broker.apis.api_versions import advertised, unsupported_version
from barnabas.broker.apis.byte_readers import byte_readers
from barnabas.broker.apis.control_requests import ControlRequests
from barnabas.broker.apis.first_updates import FirstUpdates
from barnabas.broker.apis.later import AtController, LaterAnswers
from barnabas.broker.apis.releases import limit_to_release
from barnabas.broker.apis.services import Services
from barnabas.broker.authorizer.acl_store import AclStore
from barnabas.broker.authorizer.audit_log import AuthorizerLog
from barnabas.broker.authorizer.auth_helper import AuthHelper
from barnabas.broker.authorizer.authorizer import Authorizer
from barnabas.broker.authorizer.recording import RecordingAuthHelper
from barnabas.broker.authorizer.service import AclManager
from barnabas.broker.cluster.channels import Channels
from barnabas.broker.cluster.service import Interpreter
from barnabas.broker.cluster.znodes import BrokerInfo
from barnabas.broker.configuration import definitions
from barnabas.broker.configuration.authorizer_settings import super_users
from barnabas.broker.configuration.broker_config import BrokerConfig
from barnabas.broker.configuration.channel_builder import ChannelBuilder, channel_login, enables_scram
from barnabas.broker.configuration.config_admin import ConfigAdmin
from barnabas.broker.configuration.config_helper import ConfigHelper
from barnabas.broker.configuration.dynamic_config import DynamicConfig
from barnabas.broker.configuration.listener_security import ListenerSecurity
from barnabas.broker.configuration.listeners import listeners
from barnabas.broker.configuration.protocol_version import FeatureVersioning, feature_versioning, has_prefixed_acls
from barnabas.broker.configuration.repository import ConfigRepository
from barnabas.broker.configuration.scram_credentials import ScramCredentials
from barnabas.broker.configuration.service import ConfigManager
from barnabas.broker.configuration.stand_in_credentials import SECRET_BYTES
from barnabas.broker.controller.service import Controller, ControllerSettings
from barnabas.broker.coordinators.confirmation import LeadershipConfirmation
from barnabas.broker.groups.service import GroupService
from barnabas.broker.membership.death_watch.service import DeathWatch
from barnabas.broker.membership.service import BrokerLifecycle, LifecycleDependencies
from barnabas.broker.metadata.cache import MetadataCache
from barnabas.broker.metadata.features import TRANSACTION_VERSION, FeatureCache, parse_levels
from barnabas.broker.metadata.service import FeatureListener
from barnabas.broker.monitoring.figures import Monitored
from barnabas.broker.monitoring.service import MetricsServer
from barnabas.broker.replication.delayed_fetch import FetchHandler
from barnabas.broker.replication.fetch_sessions import FetchSessions
from barnabas.broker.replication.log_dir_failures import LogDirFailures
from barnabas.broker.replication.quotas import ReplicationQuotas
from barnabas.broker.replication.replica_manager import ReplicaManager, write_leader_epochs
from barnabas.broker.replication.selection import PreferredReadReplica, replica_selector
from barnabas.broker.replication.service import AlterPartitionSender, FetcherDependencies, ReplicaFetcherManager
from barnabas.broker.replication.transaction_verification import QUESTIONS_OF_BROKERS, AddPartitionsToTxnManager
from barnabas.broker.requests.connection_quotas import ConnectionLimits, ConnectionQuotas, canonical_address
from barnabas.broker.requests.dispatch import Dispatcher
from barnabas.broker.requests.purgatory import Purgatory
from barnabas.broker.storage.log_cleaner import LogCleaner
from barnabas.broker.storage.replica_alter_log_dirs import ReplicaAlterLogDirsManager
from barnabas.broker.storage.schedule import StorageSchedule
from barnabas.broker.storage.service import Background, LogSyncs, StorageService
from barnabas.broker.topics.topics import Topics
from barnabas.broker.transactions.producer_ids import ProducerIds
from barnabas.broker.transactions.service import TransactionDependencies, TransactionService
from barnabas.coordination.client import CoordinationClient
from barnabas.log.dirs.log_dirs import LogDirs
from barnabas.log.settings import LogConfig
from barnabas.net.waiting_bytes import WaitingBytes
from barnabas.security.needed_acls import NeededAcls
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.messages.api_versions import ApiVersion

__all__ = ["BrokerComponents", "Environment", "connection_limits"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Environment:
    """The server's arguments for the components: the broker's identity, and its
    connections to the outside."""

    broker_id: int
    cluster_id: str
    config: BrokerConfig
    inter_broker_listener: str
    """The name of the listener that brokers use among themselves."""
    security: Mapping[str, ListenerSecurity]
    """By the names of the listeners."""
    broker_info: Callable[[], BrokerInfo]
    """The registration; known when the listeners are open."""
    is_closing: Callable[[], bool]
    shut_down: Callable[[], None]
    """Stop the broker, because it cannot continue."""

    clock: Clock
    rng: Random
    files: Files
    network: Network
    """For connections to other brokers."""
    fetch_network: Network
    """For the connections over which this broker copies from leaders."""
    waiting: Mapping[Standing, WaitingBytes]
    """What waits in memory for accepted connections."""
    coordination: CoordinationClient
    log_dirs: LogDirs
    resolve: Callable[[str], str]
    """The first address of a host name. Raises `OSError`."""
    descriptor_limit: int
    kafka_version: str | None
    """The release of Kafka whose versions of APIs clients get at most; None for all
    that there are."""
    call_later: CallLater
    spawn: Callable[[Coroutine[Any, Any, None]], None]
    """Start work that waits. Its exceptions are logged, and it is cancelled when the
    broker stops."""
    in_thread: InThread
    start_worker: StartProcess | None
    """None where there are no processes."""
    needed_acls: NeededAcls | None
    """Where the authorizer notes what it is asked for, and allows it; None for one that decides."""


_HANDLERS = load_handlers()
"""Imported with this module, before a loop runs: these modules and their messages take 40 ms."""


class BrokerComponents:
    """All components of a broker, each made from what it needs.

    Nothing starts, and none informs another, before `subscribe`."""

    def __init__(self, environment: Environment) -> None:
        self.environment = environment
        self.log_dirs = environment.log_dirs
        self.purgatory = Purgatory(environment.call_later)
        self.runner = Runner(environment.clock, environment.call_later, environment.in_thread)
        self.metadata = MetadataCache(environment.cluster_id)
        self.features = FeatureCache()
        self._login = channel_login(environment.security[environment.inter_broker_listener].login, environment.rng)
        self.credentials = ScramCredentials(environment.rng.randbytes(SECRET_BYTES))
        self.channels = self._make_channels()
        # A marker is answered when it is replicated, which may need what the controller sends to
        # the same broker: on one connection the one would wait behind the other.
        self.marker_channels = self._make_channels()
        self.interpreter = Interpreter(environment.coordination, self.channels, environment.spawn, self.runner.apart())
        self.feature_listener = FeatureListener(
            self.features,
            self.interpreter,
            environment.spawn,
            environment.call_later,
            environment.shut_down,
            is_enabled=_feature_versioning(environment.config).is_enabled,
        )
        self.audit_log = AuthorizerLog(environment.call_later)
        self._make_authorizer()
        self.first_updates = FirstUpdates(self.metadata, self.purgatory, self.auth_helper)
        self._make_configuration()
        self._make_replication()
        self._make_controller()
        self.transaction_verifier = AddPartitionsToTxnManager(
            self.metadata,
            self.interpreter.start,
            lambda: self.features.level(TRANSACTION_VERSION),
            is_enabled=environment.config["transaction.partition.verification.enable"],
        )
        self._make_groups_and_topics()
        self._make_storage()
        self._make_dispatcher()
        self._make_metrics()

    def _make_authorizer(self) -> None:
        environment = self.environment
        self._authorizer_settings: tuple[frozenset[str], bool] | None = None
        self.acls: AclManager | None = None
        """None where everything is allowed."""
        if not environment.config["authorizer.class.name"]:
            self.auth_helper = AuthHelper(None, self.audit_log)
            return
        authorizer = Authorizer()
        needed = environment.needed_acls
        self.auth_helper = (
            AuthHelper(authorizer, self.audit_log)
            if needed is None
            else RecordingAuthHelper(authorizer, self.audit_log, needed)
        )
        store = AclStore(
            authorizer,
            environment.clock.wall_ms,
            environment.rng,
            has_prefixes=has_prefixed_acls(environment.config["inter.broker.protocol.version"]),
        )
        self.acls = AclManager(authorizer, store, self.interpreter, environment.spawn, environment.call_later)

    def configure_authorizer(self) -> None:
        """Take the settings of the authorizer, with which it remains until the broker stops."""
        if self.acls is not None:
            users, allow_everyone = self._authorizer_settings = _authorizer_settings(self.environment.config.values)
            self.acls.authorizer.configure(users, allow_everyone_if_no_acl_found=allow_everyone)

    def _make_configuration(self) -> None:
        environment = self.environment
        self.configs = DynamicConfig(environment.config, lambda: self.replicas.topics())
        self.config_repository = ConfigRepository(
            self.configs,
            self.credentials if enables_scram(environment.security.values()) else None,
            environment.broker_id,
            environment.clock.wall_ms,
        )
        self.config_manager = ConfigManager(
            self.config_repository, self.interpreter, environment.spawn, environment.call_later
        )

    def _make_replication(self) -> None:
        environment, config, clock = self.environment, self.environment.config, self.environment.clock
        metadata, log_dirs = self.metadata, self.log_dirs
        self.syncs = LogSyncs(
            clock,
            environment.call_later,
            environment.in_thread,
            lambda log: self.replicas.synced(log, clock.wall_ms()),
        )
        self.replicas = ReplicaManager(
            environment.broker_id,
            log_dirs,
            self.purgatory,
            log_config=self.configs.log_config,
            is_known=metadata.may_have,
            lag_time_max_ms=config["replica.lag.time.max.ms"],
            lag_max_messages=config["replica.lag.max.messages"],
            is_alive=lambda broker_id: metadata.alive_broker(broker_id) is not None,
            sync=self.syncs.request,
        )
        self.replication_quotas = ReplicationQuotas(
            environment.broker_id,
            windows=config["replication.quota.window.num"],
            window_ms=config["replication.quota.window.size.seconds"] * 1000,
        )
        self.replication_quotas.configure_broker(config.values)
        self.fetch_sessions = FetchSessions(
            config["max.incremental.fetch.session.cache.slots"], environment.rng, self.purgatory
        )
        self._make_fetching()
        self.alter_partition_sender = AlterPartitionSender(
            self.replicas,
            metadata,
            self.channels,
            lambda: self.broker_epoch,
            config,
            clock,
            environment.call_later,
            environment.spawn,
            self.runner,
        )

    def _make_fetching(self) -> None:
        """Serving the fetches of others, and fetching from leaders."""
        environment, config, metadata = self.environment, self.environment.config, self.metadata
        selector = replica_selector(config["replica.selector.class"])
        self.fetch_handler = FetchHandler(
            self.replicas,
            self.purgatory,
            environment.clock,
            self.replication_quotas.leader,
            metadata.topic_name,
            None
            if selector is None
            else PreferredReadReplica(environment.broker_id, config["broker.rack"], selector, metadata.alive_broker),
        )
        self.fetchers = ReplicaFetcherManager(
            FetcherDependencies(
                broker_id=environment.broker_id,
                broker_epoch=lambda: self.broker_epoch,
                config=config,
                clock=environment.clock,
                call_later=environment.call_later,
                runner=self.runner,
                network=environment.fetch_network,
                listener=environment.inter_broker_listener,
                login=self._login,
                metadata=metadata,
                when_durable=self.syncs.when_durable,
                quota=self.replication_quotas.follower,
                truncate=lambda topic_partition, offset: self.log_dirs.truncate({topic_partition: offset}),
                on_change=self.purgatory.check_and_complete,
                write_leader_epochs=lambda logs: self.runner.start(write_leader_epochs(logs)),
            )
        )

    def _make_controller(self) -> None:
        """The controller, and this broker's membership in the cluster."""
        environment, config = self.environment, self.environment.config
        self.lifecycle = BrokerLifecycle(
            LifecycleDependencies(
                broker_id=environment.broker_id,
                info=environment.broker_info,
                client=environment.coordination,
                interpreter=self.interpreter,
                channels=self.channels,
                metadata=self.metadata,
                config=config,
                files=environment.files,
                clock=environment.clock,
                log_dirs=lambda: self.log_dirs.online,
                lost_data=self.log_dirs.lost_data,
                has_new_dir=lambda: self.log_dirs.missing.has_new_dir,
                note_gone=self.log_dirs.missing.note_gone,
                note_dirs_checked=self.log_dirs.missing.note_checked,
                controller=lambda: self.controller,
                is_closing=environment.is_closing,
                spawn=environment.spawn,
            )
        )
        self.controller = Controller(
            environment.broker_id,
            self.interpreter,
            self.channels,
            self.lifecycle.register,
            wall_ms=environment.clock.wall_ms,
            new_topic_id=partial(random_uuid, environment.rng),
            settings=partial(_controller_settings, config, environment.inter_broker_listener),
            features=self.features,
        )
        self.death_watch = DeathWatch(
            environment.broker_id,
            self.interpreter,
            environment.network,
            self.metadata,
            listener=environment.inter_broker_listener,
            is_controller=lambda: self.controller.is_active,
        )

        self.log_dir_failures = LogDirFailures(
            environment.broker_id,
            self.log_dirs,
            self.replicas,
            is_registered=lambda: self.broker_epoch >= 0,
            call_later=environment.call_later,
            start=self.interpreter.start,
            shut_down=environment.shut_down,
        )

    def _make_groups_and_topics(self) -> None:
        environment, config = self.environment, self.environment.config
        self.topics = Topics(
            config,
            self.metadata,
            self.configs,
            self.controller,
            self.purgatory,
            environment.rng,
            self.interpreter.start,
        )
        self.groups = GroupService(
            config,
            self.replicas,
            self.purgatory,
            self.metadata,
            clock=environment.clock,
            call_later=environment.call_later,
            rng=environment.rng,
            spawn=environment.spawn,
            runner=self.runner,
            verifier=self.transaction_verifier,
        )
        self.producer_ids = ProducerIds(environment.broker_id)
        self.transactions = TransactionService(
            TransactionDependencies(
                config=config,
                replicas=self.replicas,
                purgatory=self.purgatory,
                metadata=self.metadata,
                channels=self.marker_channels,
                producer_ids=self.producer_ids,
                clock=environment.clock,
                call_later=environment.call_later,
                spawn=environment.spawn,
                start=self.interpreter.start,
                runner=self.runner,
                transaction_version=lambda: self.features.level(TRANSACTION_VERSION),
            )
        )

    def _make_storage(self) -> None:
        environment, config, log_dirs = self.environment, self.environment.config, self.log_dirs
        self.log_cleaner = LogCleaner(log_dirs, config, environment.clock.worked_ms, environment.start_worker)
        self.storage = StorageService(
            Background(environment.clock, environment.call_later, environment.in_thread, self.runner),
            StorageSchedule(
                log_dirs,
                config,
                flush=self.syncs.flush,
                partition_changed=self.purgatory.check_and_complete,
                close_idle=lambda now_ms, max_idle_ms: self.dispatcher.close_idle(now_ms, max_idle_ms),
            ),
            self.log_cleaner,
            ReplicaAlterLogDirsManager(log_dirs, self.replicas, config),
        )

    def _make_dispatcher(self) -> None:
        environment = self.environment
        handlers = limit_to_release(_HANDLERS, environment.kafka_version) if environment.kafka_version else _HANDLERS
        questions = handlers.get(ApiKey.ADD_PARTITIONS_TO_TXN)
        self.transaction_verifier.can_ask = questions is not None and questions.max_version >= QUESTIONS_OF_BROKERS
        services = self._services(advertised(handlers.values()))
        has_other_listeners = len(listeners(environment.config.values)) > 1
        self.connection_quotas = ConnectionQuotas(
            connection_limits(environment.config.values, environment.resolve, environment.descriptor_limit),
            environment.inter_broker_listener if has_other_listeners else None,
        )
        self.dispatcher = Dispatcher(
            {key: api.bind(services) for key, api in handlers.items()},
            self.purgatory,
            self.connection_quotas,
            environment.clock,
            client_id=f"broker-{environment.broker_id}",
            unsupported_version=unsupported_version(handlers[ApiKey.API_VERSIONS].max_version),
            runner=self.runner,
            has_room=lambda _: environment.waiting[Standing.CLIENT].has_room,
            fast_paths=byte_readers(services, handlers),
        )
        self.channels.call_self = self.marker_channels.call_self = self.dispatcher.call
        self._channel_builder = ChannelBuilder(
            environment.security, self.credentials, self.dispatcher, environment.call_later, environment.rng
        )

    def _services(self, api_versions: Sequence[ApiVersion]) -> Services:
        """What the modules of `barnabas.broker.apis` take their parts from."""
        environment = self.environment
        later = LaterAnswers(self.interpreter.start, environment.call_later, environment.config)
        control_requests = ControlRequests(
            self.runner.lane(),
            lambda: self.broker_epoch,
            self.replicas,
            self.interpreter.start,
            now_ms=environment.clock.monotonic_ms,
            timeout_ms=environment.config["request.timeout.ms"],
            call_later=environment.call_later,
        )
        leadership_confirmation = LeadershipConfirmation(
            environment.broker_id,
            self.replicas,
            self.metadata,
            lambda: (
                environment.coordination.is_connected
                and self.lifecycle.is_of_this_session
                and control_requests.has_addressed
            ),
        )
        return Services(
            broker_id=environment.broker_id,
            config=environment.config,
            api_versions=api_versions,
            clock=environment.clock,
            runner=self.runner,
            later=later,
            auth_helper=self.auth_helper,
            acls=self.acls,
            first_updates=self.first_updates,
            at_controller=AtController(self.first_updates, later, lambda: self.controller.is_active),
            control_requests=control_requests,
            leadership_confirmation=leadership_confirmation,
            files=environment.files,
            purgatory=self.purgatory,
            metadata=self.metadata,
            features=self.features,
            replicas=self.replicas,
            transaction_verifier=self.transaction_verifier,
            log_dirs=self.log_dirs,
            storage=self.storage,
            fetch_sessions=self.fetch_sessions,
            fetch_handler=self.fetch_handler,
            groups=self.groups,
            producer_ids=self.producer_ids,
            configs=self.configs,
            config_repository=self.config_repository,
            config_admin=ConfigAdmin(environment.broker_id, self.config_repository, self.metadata.__contains__),
            config_helper=ConfigHelper(environment.broker_id, environment.config, self.configs),
            topics=self.topics,
            transactions=self.transactions,
            controller=self.controller,
        )

    def _make_metrics(self) -> None:
        self.metrics = MetricsServer(
            Monitored(
                self.replicas,
                self.log_dirs,
                self.log_cleaner,
                self.controller,
                self.groups.coordinator,
                self.dispatcher,
                self.purgatory,
                self.transactions,
                self.environment.config["transaction.max.timeout.ms"],
                self.environment.clock.wall_ms,
                self.environment.waiting,
                self.environment.config["metrics.http.topics"],
            ),
            self.runner,
        )

    # Connections

    def accept(self, listener: str, connection: Connection) -> FrameHandler:
        """The frame handler of a new connection."""
        return self._channel_builder.accept(listener, connection)

    def close_logs(self) -> None:
        """Write what was counted of events that are summed up."""
        self.audit_log.close()
        self._channel_builder.close()

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

    def subscribe(self) -> None:
        """Which component is informed of what, in this order."""
        coordination = self.environment.coordination
        coordination.on_session(self.lifecycle.session_changed)
        coordination.on_session(self.config_manager.session_changed)
        coordination.on_session(self.feature_listener.session_changed)
        if self.acls is not None:
            coordination.on_session(self.acls.session_changed)
        coordination.on_session(self.controller.session_changed)

        configs = self.configs
        configs.on_settings(self._limit_connections)
        configs.on_settings(self._compare_authorizer)
        configs.on_settings(self.replication_quotas.configure_broker)
        configs.on_settings(self.topics.settings_changed)
        configs.on_settings(self.transaction_verifier.settings_changed)
        configs.on_topic(self.replicas.configure)
        configs.on_topic(self._configure_throttle)
        configs.on_topic(self.topics.topic_configured)
        configs.on_unknown_topic(self.config_manager.load_topic_config)

        metadata = self.metadata
        metadata.on_update(self.fetchers.brokers_changed)
        metadata.on_update(self.death_watch.metadata_changed)
        metadata.on_update(self.lifecycle.metadata_changed)
        metadata.on_update(self._connect_to_brokers)
        metadata.on_update(self.topics.metadata_changed)
        metadata.on_update(self.groups.metadata_changed)
        metadata.on_update(self.transactions.metadata_changed)

        self.log_dirs.on_offline(self.log_dir_failures.dir_failed)

        replicas = self.replicas
        replicas.on_roles(self.fetchers.roles_changed)
        replicas.on_roles(self.storage.roles_changed)
        replicas.on_leadership(self.groups.leadership_changed)
        replicas.on_leadership(self.transactions.leadership_changed)
        replicas.alter_partition.on_pending = self.alter_partition_sender.changes_waiting

        self.controller.on_progress(self.topics.controller_progressed)

    def configure_throttles(self) -> None:
        """Take the throttled replicas of all topics whose configuration is known."""
        for topic in self.configs.known_topics():
            self._configure_throttle(topic, self.configs.log_config(topic))

    def _configure_throttle(self, topic: str, config: LogConfig) -> None:
        """Take the throttled replicas of a topic from its configuration."""
        self.replication_quotas.configure_topic(
            topic,
            config.values["leader.replication.throttled.replicas"],
            config.values["follower.replication.throttled.replicas"],
        )

    def _limit_connections(self, settings: Values) -> None:
        try:
            self.connection_quotas.limits = connection_limits(
                settings, self.environment.resolve, self.environment.descriptor_limit
            )
        except ConfigError as error:
            logger.error("The limits of connections stay as they were: %s", error)

    def _compare_authorizer(self, settings: Values) -> None:
        """Say that the authorizer keeps the settings with which it has started."""
        if self._authorizer_settings not in (None, _authorizer_settings(settings)):
            logger.warning(
                "super.users or allow.everyone.if.no.acl.found has changed: this counts from the next start of the broker"
            )

    def _connect_to_brokers(self, *_: object) -> None:
        """Keep channels to the brokers where they are now.

        The active controller, which learns it first, does so itself."""
        environment = self.environment
        endpoints = {
            broker.broker_id: (endpoint.host, endpoint.port)
            for broker in self.metadata.alive_brokers()
            if (endpoint := broker.endpoint(environment.inter_broker_listener)) is not None
        }
        self.marker_channels.set_brokers(endpoints)
        if self.controller.controller_id != environment.broker_id:
            self.channels.set_brokers(endpoints)

    def _make_channels(self) -> Channels:
        environment = self.environment
        timeout_ms = environment.config["request.timeout.ms"]
        return Channels(environment.broker_id, environment.network, request_timeout_ms=timeout_ms, login=self._login)


def connection_limits(settings: Values, resolve: Callable[[str], str], descriptor_limit: int) -> ConnectionLimits:
    """The limits of connections; those that are not configured are lower where descriptors are few.

    So one address cannot take all connections, and clients on another listener do not keep the
    brokers out. Raises `ConfigError` for a host name without an address.
    """
    overrides = {}
    for host, count in definitions.connection_caps(settings).items():
        address = canonical_address(host.removeprefix("[").removesuffix("]"))
        try:
            overrides[address or canonical_address(resolve(host)) or host] = count
        except OSError as error:
            raise ConfigError(
                f"max.connections.per.ip.overrides: the host name {host} cannot be resolved ({error.strerror or error}). "
                "Correct it, or give the address"
            ) from error

    def limit(name: str, most: int) -> int:
        configured: int = settings[name]
        return configured if name in settings.texts else min(configured, most)

    return ConnectionLimits(
        max_connections=limit("max.connections", descriptor_limit // 2),
        max_connections_per_ip=limit("max.connections.per.ip", descriptor_limit // 4),
        overrides=overrides,
    )


def _authorizer_settings(values: Values) -> tuple[frozenset[str], bool]:
    return super_users(values["super.users"]), values["allow.everyone.if.no.acl.found"]


def _controller_settings(config: BrokerConfig, inter_broker_listener: str) -> ControllerSettings:
    return ControllerSettings(
        inter_broker_listener=inter_broker_listener,
        delete_topic_enabled=config["delete.topic.enable"],
        unclean_leader_election=config["unclean.leader.election.enable"],
        auto_leader_rebalance=config["auto.leader.rebalance.enable"],
        imbalance_check_interval_s=config["leader.imbalance.check.interval.seconds"],
        imbalance_percent=config["leader.imbalance.per.broker.percentage"],
        feature_versioning=_feature_versioning(config),
        new_cluster_features=parse_levels(config["new.cluster.features"]),
    )


def _feature_versioning(config: BrokerConfig) -> FeatureVersioning:
    return feature_versioning(config["inter.broker.protocol.version"])
