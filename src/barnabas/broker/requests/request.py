"""What a request handler is given: the `Node`, with the parts of a running broker, and the `Request`.

A handler is a synchronous function ``handle(node, request)`` that answers with `Request.reply`, at once or later. What
must wait for the coordination service or another broker goes through `Node.spawn`; what must wait for time through
`Node.call_later`. Nothing here touches the event loop: the server hands those two in.
"""

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from barnabas.base.clock import CallLater, Clock
from barnabas.base.files import Files
from barnabas.base.randomness import Random
from barnabas.base.settings import Values
from barnabas.broker.configuration.broker_config import BrokerConfig
from barnabas.broker.replication.quotas import ReplicationQuotas
from barnabas.broker.requests.purgatory import DelayedOperation, Purgatory
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.broker.cluster.channels import Channels
    from barnabas.broker.configuration.dynamic_config import DynamicConfig
    from barnabas.broker.controller.service import Controller
    from barnabas.broker.groups.service import GroupService
    from barnabas.broker.metadata.cache import MetadataCache
    from barnabas.broker.replication.fetch_sessions import FetchSessions
    from barnabas.broker.replication.replica_manager import ReplicaManager
    from barnabas.broker.topics.service import Topics
    from barnabas.broker.transactions.producer_ids import ProducerIds
    from barnabas.coordination.client import CoordinationClient
    from barnabas.log.dirs.log_dirs import LogDirs

__all__ = ["ClientFacts", "Node", "Request"]

ANONYMOUS = "User:ANONYMOUS"


class ClientFacts:
    """Who is on the other side of a connection."""

    __slots__ = ("host", "listener", "port", "principal", "software_name", "software_version")

    def __init__(self, listener: str, host: str, port: int) -> None:
        self.listener = listener
        self.host = host
        self.port = port
        self.principal = ANONYMOUS
        self.software_name = "unknown"
        self.software_version = "unknown"


class Node:
    """The parts of a running broker. The server fills it in the order of the start; parts keep it and read late."""

    # Set by the server before any other part is made.
    broker_id: int
    cluster_id: str
    config: BrokerConfig
    clock: Clock
    rng: Random
    files: Files
    spawn: Callable[[Coroutine[Any, Any, None]], None]
    """Start work that waits; its exceptions are logged, and it is cancelled when the broker stops."""
    call_later: CallLater
    broker_epoch: int
    """The czxid of our znode in /brokers/ids; -1 while not registered."""

    # The parts.
    log_dirs: "LogDirs"
    purgatory: Purgatory
    replicas: "ReplicaManager"
    channels: "Channels"
    coordination: "CoordinationClient"
    metadata: "MetadataCache"
    configs: "DynamicConfig"
    topics: "Topics"
    controller: "Controller"
    groups: "GroupService"
    producer_ids: "ProducerIds"
    fetch_sessions: "FetchSessions"
    replication_quotas: ReplicationQuotas
    """Without any limit until the server reads the configuration."""

    def __init__(self) -> None:
        self.broker_id = -1
        self.cluster_id = ""
        self.broker_epoch = -1
        self.replication_quotas = ReplicationQuotas(-1)

    @property
    def settings(self) -> Values:
        return self.config.values

    @settings.setter
    def settings(self, values: Values) -> None:
        self.config.replace(values)


class Request:
    """One request of a client: the decoded message, who sent it, and the way back.

    Exactly one of `reply`, `no_reply` and `fail` must follow, now or later; until then the connection delivers no
    further request, so answers leave in order.
    """

    __slots__ = (
        "_answer",
        "api_key",
        "client",
        "client_id",
        "correlation_id",
        "message",
        "received_ms",
        "version",
        "waiter",
    )

    def __init__(
        self,
        api_key: ApiKey,
        version: int,
        correlation_id: int,
        client_id: str | None,
        message: Any,
        client: ClientFacts,
        received_ms: int,
        answer: "Callable[[Request, Any, ErrorCode | None], None]",
    ) -> None:
        self.api_key = api_key
        self.version = version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.message = message
        self.client = client
        self.received_ms = received_ms
        """On the monotonic clock."""
        self.waiter: DelayedOperation | None = None
        """The operation in which the request waits; completed without effect when the client goes away."""
        self._answer: Callable[[Request, Any, ErrorCode | None], None] | None = answer

    @property
    def answered(self) -> bool:
        return self._answer is None

    def reply(self, response: Any) -> None:
        """Send ``response``; raises RuntimeError when an answer was given before."""
        answer, self._answer = self._answer, None
        if answer is None:
            raise RuntimeError(f"{self!r} was answered before")
        answer(self, response, None)

    def no_reply(self) -> None:
        """The protocol foresees no answer (Produce with acks 0); the connection goes on."""
        self.reply(None)

    def fail(self, code: ErrorCode) -> None:
        """Answer with the API's own response that carries ``code``; where the API has none, close the connection."""
        answer, self._answer = self._answer, None
        if answer is None:
            raise RuntimeError(f"{self!r} was answered before")
        answer(self, None, code)

    def __repr__(self) -> str:
        return (
            f"Request({self.api_key.name} v{self.version} correlation_id={self.correlation_id} "
            f"client_id={self.client_id!r} from {self.client.host}:{self.client.port})"
        )
