"""`AdminConnection`: a small blocking Kafka client for tools, on our own codec.

It asks any broker for the cluster's members, negotiates each API's version, and sends requests
where they belong: to any broker, to the controller, to a group's coordinator, to one broker.
Requests that reached the wrong broker or came too early are repeated with fresh metadata until
``default.api.timeout.ms``; all other answers go to the caller. A tool lives too briefly to need
more than one request in flight.

With a `Deadline` all of this ends by it: names, connections, answers, repetitions. A request that
changes something is the exception once it is sent: it keeps ``request.timeout.ms``, and the
deadline starts again after its answer. A question whose broker is away is repeated for a moment
only, for an election takes longer than its reader waits. Several brokers are asked at the same time
by `each_broker.ask_each`.

In Kafka: `KafkaAdminClient`.
"""

import contextlib
import copy
import itertools
import queue
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar

from barnabas.client.cluster.retry_ends import RetryEnds
from barnabas.client.errors import ClientError, ClosedError, ConfigurationError, ConnectError, ProtocolError, refusal
from barnabas.client.network.broker_link import BrokerLink, parse_servers
from barnabas.client.network.deadline import Deadline
from barnabas.client.properties.config_providers import resolved
from barnabas.client.properties.translation import CONNECT_TIMEOUT_PROPERTY, refuse_unprotected, renamed_for_all
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.errors import ErrorCode, KafkaError
from barnabas.wire.kafka.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.wire.kafka.messages.metadata import MetadataRequest, MetadataResponse
from barnabas.wire.kafka.schema import Message

if TYPE_CHECKING:
    from barnabas.client.security.link_security import LinkSecurity

__all__ = [
    "GROUP",
    "ROUTING_ERRORS",
    "TRANSACTIONAL_ID",
    "AdminConnection",
    "Broker",
    "ClusterDescription",
    "ConnectError",
]

ResponseType = TypeVar("ResponseType", bound=Message)

# The request went to the wrong broker, or came too early: look its destination up
# again, and repeat it.
ROUTING_ERRORS = frozenset(
    (
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.STALE_CONTROLLER_EPOCH,
    )
)

# They change something, and may take long; what they do is not known until they answer.
_CHANGES = frozenset(
    (
        *(ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS, ApiKey.CREATE_PARTITIONS, ApiKey.DELETE_RECORDS),
        *(ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS, ApiKey.ALTER_CLIENT_QUOTAS),
        *(ApiKey.CREATE_ACLS, ApiKey.DELETE_ACLS, ApiKey.ALTER_USER_SCRAM_CREDENTIALS),
        *(ApiKey.ELECT_LEADERS, ApiKey.ALTER_PARTITION_REASSIGNMENTS, ApiKey.ALTER_REPLICA_LOG_DIRS),
        *(ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_DELETE, ApiKey.DELETE_GROUPS, ApiKey.LEAVE_GROUP),
        *(ApiKey.PRODUCE, ApiKey.UNREGISTER_BROKER, ApiKey.UPDATE_FEATURES),
        *(ApiKey.INIT_PRODUCER_ID, ApiKey.WRITE_TXN_MARKERS),
    )
)

GROUP, TRANSACTIONAL_ID = 0, 1
"""What a coordinator is asked for: FindCoordinator's key types."""
_FIND_COORDINATORS_FROM = 4  # the version from which it asks for several at once
_STAGGER_S = 0.25  # between the first attempts to several addresses, as RFC 8305 has it


class Broker(NamedTuple):
    """A member of the cluster, at the address it gives to clients."""

    id: int
    host: str
    port: int
    rack: str | None = None


class ClusterDescription(NamedTuple):
    """The cluster's members. ``controller_id`` is -1 while there is none."""

    cluster_id: str | None
    controller_id: int
    brokers: list[Broker]


@dataclass
class _Shared:
    """What a connection and its views with other deadlines know in common."""

    cluster: ClusterDescription | None = None
    closed: bool = False


class AdminConnection:
    """Connections to a cluster's brokers.

    Close after use, or use as a context manager. Not for several threads. ``bootstrap`` is
    ``host:port,host:port``. Supported properties: ``client.id``, ``request.timeout.ms`` (one
    answer), ``default.api.timeout.ms`` (a call with its repetitions),
    ``socket.connection.setup.timeout.ms``, and those for TLS and SASL that `LinkSecurity` has.
    ``deadline`` is the end of everything that the caller wants to know.
    """

    def __init__(
        self, bootstrap: str, properties: Mapping[str, str] | None = None, deadline: Deadline | None = None
    ) -> None:
        properties = resolved(properties or {})
        self._deadline = deadline
        self._unreachable: dict[int, ClientError] = {}
        self._security = _security(properties)
        self._servers = parse_servers(bootstrap)
        self.client_id = properties.get("client.id", "barnabas-admin")
        self.request_timeout_ms = _milliseconds(properties, "request.timeout.ms", 30_000)
        self.api_timeout_ms = _milliseconds(properties, "default.api.timeout.ms", 60_000)
        self._connect_timeout_ms = _milliseconds(properties, CONNECT_TIMEOUT_PROPERTY, 10_000)
        self._links: dict[tuple[str, int], BrokerLink] = {}
        self._branches: dict[int, AdminConnection] = {}
        self._shared = _Shared()

    @property
    def deadline(self) -> Deadline | None:
        """The end of everything that the caller wants to know."""
        return self._deadline

    @property
    def unreachable(self) -> Mapping[int, ClientError]:
        """The brokers that `each_broker.ask_each` did not reach by the deadline, with why.

        It does not ask them again."""
        return MappingProxyType(self._unreachable)

    # Where to send

    def send(
        self, request: Message, answer: type[ResponseType], broker_id: int | None = None, *, max_version: int = 32767
    ) -> ResponseType:
        """Send to one broker, or to whichever answers.

        Returns the response, whatever errors it holds. Raises `ConnectError`, and `KafkaError` with
        UNSUPPORTED_VERSION when the broker does not have the API.
        """
        if broker_id is None:
            response = self._send_to_any(request, answer, max_version)
        else:
            response = self._send_to(self._address(broker_id), request, answer, max_version)
        if self._deadline is not None and request.API_KEY in _CHANGES:
            self._deadline.restart()
        return response

    def _send_to(
        self, address: tuple[str, int], request: Message, answer: type[ResponseType], max_version: int
    ) -> ResponseType:
        end = self._end_of(request)
        try:
            return self._link(address).exchange(request, answer, max_version, end)
        except ProtocolError:
            raise
        except ConnectError:
            self._drop(address)
            if self._deadline is not None and self._deadline.is_over:
                raise
        # A connection kept from before may have ended long ago; a new one shows
        # whether the broker is there.
        return self._link(address).exchange(request, answer, max_version, end)

    def _send_to_any(self, request: Message, answer: type[ResponseType], max_version: int) -> ResponseType:
        link = self._any_link()
        end = self._end_of(request)
        others = [address for address in self._addresses() if address != link.address]
        try:
            # A broker that stopped answering leaves time for another one.
            return link.exchange(request, answer, max_version, end.patience() if end and others else end)
        except ConnectError as error:
            self._drop(link.address)
            if not others:
                raise
            first = error
        try:
            return self._first_link(others).exchange(request, answer, max_version, end)
        except ConnectError as error:
            raise ConnectError(f"{first}; {error}") from None

    def _end_of(self, request: Message) -> Deadline | None:
        """When an answer must be there; what changes something has its own time."""
        return None if request.API_KEY in _CHANGES else self._deadline

    def negotiated(self, request_type: type[Message], broker_id: int | None = None, *, max_version: int = 32767) -> int:
        """The version in which `send` would send; raises as it does."""
        link = self._any_link() if broker_id is None else self._link(self._address(broker_id))
        return link.version(request_type, max_version)

    def offers(self, request_type: type[Message]) -> bool:
        """Whether some broker of the cluster, the next one that is asked, serves this API in a
        version that is known here."""
        return self._any_link().offers(request_type)

    def send_to_controller(
        self, request: Message, answer: type[ResponseType], codes: Callable[[ResponseType], Iterable[int]]
    ) -> ResponseType:
        """Send to the controller, wherever it is by now.

        ``codes`` picks the error codes out of a response."""

        def attempt() -> ResponseType:
            controller_id = self.describe_cluster().controller_id
            if controller_id < 0:
                raise refusal(ErrorCode.NOT_CONTROLLER, "the cluster has no controller at the moment")
            return self.send(request, answer, controller_id)

        return self.retry(attempt, codes, changes=request.API_KEY in _CHANGES)

    def send_to_coordinator(
        self,
        group_id: str,
        request: Message,
        answer: type[ResponseType],
        codes: Callable[[ResponseType], Iterable[int]],
        *,
        max_version: int = 32767,
        key_type: int = GROUP,
    ) -> ResponseType:
        """Send to the coordinator of a group, or of a transactional id, wherever it is by now."""

        def attempt() -> ResponseType:
            coordinator = self.find_coordinator(group_id, key_type)
            return self.send(request, answer, coordinator.id, max_version=max_version)

        return self.retry(attempt, codes, changes=request.API_KEY in _CHANGES)

    def retry(
        self,
        attempt: Callable[[], ResponseType],
        codes: Callable[[ResponseType], Iterable[int]],
        *,
        changes: bool = False,
        second_look_s: float | None = None,
    ) -> ResponseType:
        """Repeat ``attempt`` while its errors are of the kind that pass, as `RetryEnds`; then
        return or raise what came last.

        ``codes`` picks the error codes out of a response. ``changes`` says that the
        request changes something.
        """
        ends = RetryEnds(self._deadline, self.api_timeout_ms / 1000, changes=changes, second_look_s=second_look_s)
        for tries in itertools.count(1):
            try:
                response = attempt()
                wrong = [code for code in codes(response) if code in ROUTING_ERRORS]
                pause_s = ends.pause_s(tries, wrong) if wrong else None
                if pause_s is None:
                    return response
            except KafkaError as error:
                pause_s = ends.pause_s(tries, [error.code]) if error.code in ROUTING_ERRORS else None
                if pause_s is None:
                    raise
            except ProtocolError:
                raise
            except ConnectError:
                pause_s = ends.pause_s(tries, ())
                if pause_s is None or not self._any_broker_is_there():
                    raise
            self._shared.cluster = None
            time.sleep(pause_s)
        raise AssertionError("it counts for ever")

    def _any_broker_is_there(self) -> bool:
        try:
            self._shared.cluster = None
            self.describe_cluster()
        except ConnectError:
            return False
        return True

    # The cluster

    def describe_cluster(self, *, fresh: bool = False) -> ClusterDescription:
        """The brokers and the controller, from the metadata of any broker."""
        if self._shared.cluster is None or fresh:
            response = self.send(MetadataRequest(topics=[]), MetadataResponse)
            if response.error_code:
                raise refusal(response.error_code)
            self._shared.cluster = cluster_of(response)
        return self._shared.cluster

    def metadata(self, topics: Iterable[str] | None = None) -> MetadataResponse:
        """What any broker knows of these topics, or of all; no topic is created by asking."""
        wanted = None if topics is None else [_metadata_topic(topic) for topic in topics]
        response = self.send(MetadataRequest(topics=wanted, allow_auto_topic_creation=False), MetadataResponse)
        if response.error_code:
            raise refusal(response.error_code)
        self._shared.cluster = cluster_of(response)
        return response

    def find_coordinator(self, group_id: str, key_type: int = GROUP) -> Broker:
        """The coordinator of a group, or of a transactional id.

        Waits while the cluster makes room for them."""

        found: Any = self.retry(
            lambda: self.ask_for_coordinator(group_id, key_type), lambda answer: [answer.error_code]
        )
        if found.error_code:
            what = "group" if key_type == GROUP else "transactional id"
            raise refusal(found.error_code, found.error_message, about=f"{what} {group_id}")
        broker = Broker(found.node_id, found.host, found.port)
        if broker.id not in {known.id for known in self.describe_cluster().brokers}:
            self._shared.cluster = None
        return broker

    def ask_for_coordinator(self, group_id: str, key_type: int = GROUP) -> Any:
        """The answer of any broker at present, with its error code: the part of FindCoordinator's
        response about the group."""
        if self.negotiated(FindCoordinatorRequest) >= _FIND_COORDINATORS_FROM:
            request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[group_id])
        else:
            request = FindCoordinatorRequest(key=group_id, key_type=key_type)
        response = self.send(request, FindCoordinatorResponse)
        return response.coordinators[0] if response.coordinators else response

    def _address(self, broker_id: int) -> tuple[str, int]:
        for fresh in (False, True):
            for broker in self.describe_cluster(fresh=fresh).brokers:
                if broker.id == broker_id:
                    return broker.host, broker.port
        known = ", ".join(str(broker.id) for broker in self.describe_cluster().brokers)
        raise ConnectError(f"broker {broker_id} is not there; the cluster's brokers are {known or 'none'}")

    # Connections

    def check_open(self) -> None:
        """Raise `ClosedError` after `close`."""
        if self._shared.closed:
            self.close()  # what another thread has connected since
            raise ClosedError("admin client")

    def _any_link(self) -> "BrokerLink":
        self.check_open()
        for link in self._links.values():
            if link.is_alive():
                return link
        return self._first_link(self._addresses())

    def _addresses(self) -> list[tuple[str, int]]:
        known = (
            []
            if self._shared.cluster is None
            else [(broker.host, broker.port) for broker in self._shared.cluster.brokers]
        )
        return list(dict.fromkeys([*self._servers, *known]))

    def _first_link(self, addresses: list[tuple[str, int]]) -> "BrokerLink":
        """A connection to the first broker that answers.

        A dead address costs a quarter of a second, not its timeout."""
        if len(addresses) == 1:
            return self._link(addresses[0])
        stagger_s = _STAGGER_S
        if self._deadline is not None:
            stagger_s = min(stagger_s, self._deadline.left_s() / (2 * len(addresses)))
        outcomes: queue.Queue[BrokerLink | Exception] = queue.Queue()
        is_over = threading.Event()
        choice = threading.Lock()
        """A link is either offered or closed by its thread: the chosen one must stay
        open, and no other one may."""

        def attempt(address: tuple[str, int]) -> None:
            outcome: BrokerLink | Exception
            try:
                outcome = self._connect(address)
            except Exception as error:  # reported by the thread that waits
                outcome = error
            with choice:
                if not is_over.is_set():
                    outcomes.put(outcome)
                    return
            if isinstance(outcome, BrokerLink):
                outcome.close()

        failures: list[Exception] = []
        waiting = 0
        remaining = list(addresses)
        try:
            while remaining or waiting:
                if remaining:
                    threading.Thread(target=attempt, args=(remaining.pop(0),), daemon=True).start()
                    waiting += 1
                try:
                    outcome = outcomes.get(timeout=stagger_s if remaining else None)
                except queue.Empty:
                    continue
                waiting -= 1
                if isinstance(outcome, BrokerLink):
                    self._drop(outcome.address)  # one that has ended
                    self._links[outcome.address] = outcome
                    self.check_open()  # another thread may have closed this while it connected
                    return outcome
                if not isinstance(outcome, ConnectError):
                    raise outcome
                failures.append(outcome)
        finally:
            with choice:
                is_over.set()
            _close_all(outcomes)
        raise ConnectError(f"no broker answers: {'; '.join(dict.fromkeys(map(str, failures)))}")

    def _link(self, address: tuple[str, int]) -> "BrokerLink":
        self.check_open()
        link = self._links.get(address)
        if link is None or not link.is_alive():
            self._drop(address)
            link = self._links[address] = self._connect(address)
            self.check_open()  # another thread may have closed this while it connected
        return link

    def _connect(self, address: tuple[str, int]) -> "BrokerLink":
        return BrokerLink(
            address, self.client_id, self._connect_timeout_ms, self.request_timeout_ms, self._security, self._deadline
        )

    # Several brokers at the same time

    def restart(self) -> None:
        """Begin another round, as ``--watch`` does: the deadline starts again, and all
        brokers are asked again."""
        self._unreachable.clear()
        if self._deadline is not None:
            self._deadline.restart()

    def note_unreachable(self, broker_id: int, error: ClientError) -> None:
        """Keep a broker from being asked again in this round."""
        self._unreachable[broker_id] = error

    def with_deadline(self, deadline: Deadline | None) -> "AdminConnection":
        """This connection with another end: the links are the same, and so is what
        is known of the cluster."""
        view = copy.copy(self)
        view._deadline = deadline
        return view

    def branch(self, broker_id: int, deadline: Deadline | None) -> "AdminConnection":
        """A connection with links of its own, for the thread that asks one broker by the deadline.

        Closed with this one."""
        branch = self._branches.get(broker_id)
        if branch is None:
            branch = self._branches[broker_id] = copy.copy(self)
            branch._links, branch._branches, branch._unreachable, branch._shared = {}, {}, {}, _Shared()
        # A broker that has answered is asked first for what any broker knows.
        answered = [link.address for link in self._links.values()]
        branch._servers = list(dict.fromkeys([*answered, *self._servers]))
        branch._shared.cluster = self._shared.cluster
        return branch.with_deadline(deadline)

    def _drop(self, address: tuple[str, int]) -> None:
        link = self._links.pop(address, None)
        if link is not None:
            link.close()

    def close(self) -> None:
        """Close all connections; nothing can be sent after it."""
        self._shared.closed = True
        for branch in self._branches.values():
            branch.close()
        for address in list(self._links):
            self._drop(address)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _close_all(outcomes: "queue.Queue[BrokerLink | Exception]") -> None:
    with contextlib.suppress(queue.Empty):
        while True:
            outcome = outcomes.get_nowait()
            if isinstance(outcome, BrokerLink):
                outcome.close()


def _security(properties: Mapping[str, str]) -> "LinkSecurity | None":
    given = renamed_for_all(properties)
    refuse_unprotected(given)
    if given.get("security.protocol", "PLAINTEXT").upper() == "PLAINTEXT":
        return None
    from barnabas.client.security.link_security import (
        LinkSecurity,
    )  # most connections need none, and the tools are to start fast

    return LinkSecurity(properties)


def cluster_of(response: MetadataResponse) -> ClusterDescription:
    """The cluster in a Metadata response."""
    brokers = sorted(Broker(item.node_id, item.host, item.port, item.rack) for item in response.brokers)
    return ClusterDescription(response.cluster_id, response.controller_id, brokers)


def _metadata_topic(name: str) -> Any:
    from barnabas.wire.kafka.messages.metadata import MetadataRequestTopic

    return MetadataRequestTopic(name=name)


def _milliseconds(properties: Mapping[str, str], name: str, default: int) -> int:
    text = properties.get(name)
    if text is None:
        return default
    if not text.strip().isdecimal() or int(text) < 1:
        raise ConfigurationError(f"Invalid value {text} for configuration {name}: a number of milliseconds is expected")
    return int(text)
