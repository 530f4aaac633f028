"""The components that the API handlers of a broker use (the constructor arguments of
Kafka's `KafkaApis`).

The object is complete when it is made, and it never changes. `barnabas.broker.assembly` makes it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from barnabas.base.clock import CallLater, Clock
from barnabas.base.files import Files
from barnabas.base.tasks import Lane, Runner
from barnabas.broker.cluster.steps import Steps
from barnabas.broker.configuration.broker_config import BrokerConfig
from barnabas.broker.configuration.config_admin import ConfigAdmin
from barnabas.broker.configuration.config_helper import ConfigHelper
from barnabas.broker.configuration.dynamic_config import DynamicConfig
from barnabas.broker.configuration.repository import ConfigRepository
from barnabas.broker.controller.service import Controller
from barnabas.broker.groups.service import GroupService
from barnabas.broker.metadata.cache import MetadataCache
from barnabas.broker.metadata.features import FeatureCache
from barnabas.broker.replication.delayed_fetch import FetchHandler
from barnabas.broker.replication.fetch_sessions import FetchSessions
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.broker.requests.purgatory import Purgatory
from barnabas.broker.storage.service import StorageService
from barnabas.broker.topics.topics import Topics
from barnabas.broker.transactions.producer_ids import ProducerIds
from barnabas.log.dirs.log_dirs import LogDirs
from barnabas.wire.kafka.messages.api_versions import ApiVersion

__all__ = ["Services"]


@dataclass(frozen=True, slots=True)
class Services:
    """The components of a running broker that handlers use."""

    broker_id: int
    broker_epoch: Callable[[], int]
    """The czxid of this broker's znode in /brokers/ids; -1 while it is not registered."""
    config: BrokerConfig
    api_versions: Sequence[ApiVersion]
    """The APIs and versions that ApiVersions lists."""
    clock: Clock
    call_later: CallLater
    start: Callable[[Steps[None]], None]
    """Perform steps in the background: what waits for the coordination service or
    for another broker."""
    runner: Runner
    """Does what takes long, some milliseconds at a time."""
    control_requests: Lane
    """For the controller's requests: each begins when those before it are done."""
    files: Files
    purgatory: Purgatory
    metadata: MetadataCache
    features: FeatureCache
    replicas: ReplicaManager
    log_dirs: LogDirs
    storage: StorageService
    fetch_sessions: FetchSessions
    fetch_handler: FetchHandler
    groups: GroupService
    producer_ids: ProducerIds
    configs: DynamicConfig
    config_repository: ConfigRepository
    config_admin: ConfigAdmin
    config_helper: ConfigHelper
    topics: Topics
    controller: Controller
