"""The components of which API handlers take their parts (the constructor arguments of Kafka's
`KafkaApis`).

The object is complete when it is made, and it never changes. `barnabas.broker.assembly` makes it,
and `ApiHandler.bind` gives each handler the parts that its module declares. No handler gets the
whole.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from barnabas.base.clock import Clock
from barnabas.base.files import Files
from barnabas.base.tasks import Runner
from barnabas.broker.apis.control_requests import ControlRequests
from barnabas.broker.apis.first_updates import FirstUpdates
from barnabas.broker.apis.later import AtController, LaterAnswers
from barnabas.broker.authorizer.auth_helper import AuthHelper
from barnabas.broker.authorizer.service import AclManager
from barnabas.broker.configuration.broker_config import BrokerConfig
from barnabas.broker.configuration.config_admin import ConfigAdmin
from barnabas.broker.configuration.config_helper import ConfigHelper
from barnabas.broker.configuration.dynamic_config import DynamicConfig
from barnabas.broker.configuration.repository import ConfigRepository
from barnabas.broker.controller.service import Controller
from barnabas.broker.coordinators.confirmation import LeadershipConfirmation
from barnabas.broker.groups.service import GroupService
from barnabas.broker.metadata.cache import MetadataCache
from barnabas.broker.metadata.features import FeatureCache
from barnabas.broker.replication.delayed_fetch import FetchHandler
from barnabas.broker.replication.fetch_sessions import FetchSessions
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.broker.replication.transaction_verification import AddPartitionsToTxnManager
from barnabas.broker.requests.purgatory import Purgatory
from barnabas.broker.storage.service import StorageService
from barnabas.broker.topics.topics import Topics
from barnabas.broker.transactions.producer_ids import ProducerIds
from barnabas.broker.transactions.service import TransactionService
from barnabas.log.dirs.log_dirs import LogDirs
from barnabas.wire.kafka.messages.api_versions import ApiVersion

__all__ = ["Services"]


@dataclass(frozen=True, slots=True)
class Services:
    """The components of a running broker that handlers use; each takes a few."""

    broker_id: int
    config: BrokerConfig
    api_versions: Sequence[ApiVersion]
    """The APIs and versions that ApiVersions lists."""
    clock: Clock
    runner: Runner
    """Does what takes long, some milliseconds at a time."""
    later: LaterAnswers
    auth_helper: AuthHelper
    acls: AclManager | None
    """None where there is no authorizer."""
    first_updates: FirstUpdates
    at_controller: AtController
    control_requests: ControlRequests
    leadership_confirmation: LeadershipConfirmation
    files: Files
    purgatory: Purgatory
    metadata: MetadataCache
    features: FeatureCache
    replicas: ReplicaManager
    transaction_verifier: AddPartitionsToTxnManager
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
    transactions: TransactionService
    controller: Controller
