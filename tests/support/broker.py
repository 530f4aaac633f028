"""A broker's data path without sockets: real logs, real codecs, manual time; frames
in, frames out."""

from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from random import Random
from typing import Any

from barnabas.base.files import FileSlice, OsFiles
from barnabas.base.ids import ZERO_UUID, TopicPartition, Uuid
from barnabas.base.network import Standing
from barnabas.base.tasks import Runner
from barnabas.broker.apis import load_handlers
from barnabas.broker.apis.api_versions import advertised, unsupported_version
from barnabas.broker.apis.byte_readers import byte_readers
from barnabas.broker.apis.control_requests import ControlRequests
from barnabas.broker.apis.first_updates import FirstUpdates
from barnabas.broker.apis.later import AtController, LaterAnswers
from barnabas.broker.apis.services import Services
from barnabas.broker.authorizer.auth_helper import AuthHelper
from barnabas.broker.cluster.steps import Steps
from barnabas.broker.cluster.znodes import CONTROLLER_EPOCH
from barnabas.broker.configuration import definitions as broker_settings
from barnabas.broker.configuration.broker_config import BrokerConfig
from barnabas.broker.coordinators.confirmation import LeadershipConfirmation
from barnabas.broker.metadata.cache import MetadataCache
from barnabas.broker.metadata.features import FeatureCache
from barnabas.broker.replication.delayed_fetch import FetchHandler
from barnabas.broker.replication.fetch_sessions import FetchSessions
from barnabas.broker.replication.partition import Partition, StateChange
from barnabas.broker.replication.quotas import ReplicationQuotas
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.broker.requests.connection_quotas import ConnectionLimits, ConnectionQuotas
from barnabas.broker.requests.dispatch import ClientConnection, Dispatcher
from barnabas.broker.requests.purgatory import Purgatory
from barnabas.log.dirs.log_dirs import LogDirs
from barnabas.log.settings import LogConfig
from barnabas.wire.kafka.api import api
from barnabas.wire.kafka.codec import decode
from barnabas.wire.kafka.frames import decode_response_header, encode_request
from barnabas.wire.kafka.records.records import Record, build_batch
from support.slicing import thread_at_once
from support.transaction_coordinators import Coordinators
from support.znode_steps import Znodes

DATA_PATH_APIS = (
    "alter_replica_log_dirs",
    "api_versions",
    "delete_records",
    "describe_log_dirs",
    "describe_producers",
    "fetch",
    "init_producer_id",
    "leader_and_isr",
    "list_offsets",
    "offset_for_leader_epoch",
    "produce",
    "stop_replica",
    "update_metadata",
)
START_MS = 1_700_000_000_000


def batch(*values: bytes, timestamp_ms: int = START_MS, **options: Any) -> bytearray:
    """A record batch of values without keys."""
    return build_batch([Record(n, timestamp_ms, None, value, []) for n, value in enumerate(values)], **options)


class ManualClock:
    """Both clocks advance when the test says so."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000
        self.thread_ms = 0.0

    def wall_ms(self) -> int:
        return START_MS + self.now_ms

    def monotonic_ms(self) -> int:
        return self.now_ms

    def time_slice(self) -> Callable[[], bool]:
        return lambda: False

    def worked_ms(self) -> float:
        return self.thread_ms


class ManualTimers:
    """A `CallLater` that fires when the clock is moved."""

    class Timer:
        """One call to come."""

        def __init__(self, due_ms: int, callback: Callable[[], object]) -> None:
            self.due_ms = due_ms
            self.callback: Callable[[], object] | None = callback

        def cancel(self) -> None:
            self.callback = None

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.pending: list[ManualTimers.Timer] = []

    def __call__(self, delay_ms: int, callback: Callable[[], object]) -> "ManualTimers.Timer":
        timer = ManualTimers.Timer(self.clock.now_ms + delay_ms, callback)
        self.pending.append(timer)
        return timer

    def advance(self, by_ms: int) -> None:
        self.clock.now_ms += by_ms
        due = [timer for timer in self.pending if timer.due_ms <= self.clock.now_ms]
        self.pending = [timer for timer in self.pending if timer.due_ms > self.clock.now_ms]
        for timer in due:
            if timer.callback is not None:
                timer.callback()


class Wire:
    """A client's connection: requests as messages in, responses as messages out."""

    peer = ("127.0.0.1", 50000)
    local = ("127.0.0.1", 9092)
    unsent_bytes = 0
    max_frame_bytes = 1 << 20
    standing = Standing.CLIENT
    served_bytes = 0
    has_room = True

    def __init__(self) -> None:
        self.handler: ClientConnection | None = None
        self.sent: list[bytes] = []
        self.is_closed = False
        self.is_paused = False
        self.asked: list[tuple[int, int]] = []
        self.correlation_id = 0

    # The Connection protocol

    def send(self, parts: Sequence[Any]) -> None:
        self.sent.append(b"".join(part.read() if isinstance(part, FileSlice) else bytes(part) for part in parts))

    def pause(self) -> None:
        self.is_paused = True

    def resume(self) -> None:
        self.is_paused = False

    def close(self, *, after_sending: bool = False) -> None:
        if not self.is_closed:
            self.is_closed = True
            if self.handler is not None:
                self.handler.closed(None)

    # For tests

    def post(self, message: Any, version: int) -> None:
        """Hand a request in."""
        self.correlation_id += 1
        frame = b"".join(bytes(part) for part in encode_request(message, version, self.correlation_id, "test"))
        self.asked.append((message.API_KEY, version))
        self.handler.frame(memoryview(bytearray(frame[4:])))

    def answer(self) -> Any:
        """The oldest response that was not taken yet; None when there is none."""
        if not self.sent:
            return None
        frame = self.sent.pop(0)
        assert int.from_bytes(frame[:4], "big") == len(frame) - 4
        api_key, version = self.asked.pop(0)
        header = decode_response_header(frame[4:], api_key, version)
        return decode(api(api_key).response, version, memoryview(frame), 4 + header.body_offset)

    def ask(self, message: Any, version: int) -> Any:
        """A request and its response, which must come at once."""
        self.post(message, version)
        response = self.answer()
        assert response is not None, "no answer yet"
        return response


def nobody_performs(steps: Steps[None]) -> None:
    """There is no coordination service, nor another broker."""
    raise AssertionError(f"nothing performs {steps!r}")


class Absent:
    """Stands for a part that a test does without."""


class DataPath:
    """The parts of one broker (id 0) between its dispatcher and its log dirs.

    ``parts`` go to its `ReplicaManager`."""

    def __init__(
        self,
        directory: Path,
        settings: dict[str, str] | None = None,
        *,
        more_dirs: Sequence[Path] = (),
        seed: int = 7,
        **parts: Any,
    ) -> None:
        self.broker_epoch = -1
        self.znodes = Znodes()
        self.znodes.put(CONTROLLER_EPOCH, b"9")
        self.perform: Callable[[Steps[None]], object] = self.znodes.perform
        """Performs steps that read znodes."""
        self.config = BrokerConfig(
            broker_settings.DEFINITIONS.parse({"zookeeper.connect": "nowhere:1", **(settings or {})})
        )
        self.clock = ManualClock()
        self.rng = Random(seed)
        self.files = OsFiles()
        self.timers = ManualTimers(self.clock)
        self.purgatory = Purgatory(self.timers)
        self.metadata = MetadataCache("cluster")
        self.configs: dict[str, LogConfig] = {}
        paths = [str(path) for path in (directory, *more_dirs)]
        self.log_dirs = LogDirs(self.files, paths, LogConfig(), broker_id=0, cluster_id="cluster", rng=self.rng)
        self.log_dirs.load(self.clock.wall_ms(), self.configs)
        self.replicas = ReplicaManager(
            0,
            self.log_dirs,
            self.purgatory,
            log_config=lambda topic: self.configs.get(topic, LogConfig()),
            is_known=lambda name: self.metadata.partition(name) is not None,
            lag_time_max_ms=30_000,
            **parts,
        )
        self.replication_quotas = ReplicationQuotas(-1)
        self.fetch_sessions = FetchSessions(10, self.rng, self.purgatory)
        self.fetch_handler = FetchHandler(
            self.replicas,
            self.purgatory,
            self.clock,
            self.replication_quotas.leader,
            self.metadata.topic_name,
            None,
        )
        self.coordinators = Coordinators(self.metadata)
        self.serve(DATA_PATH_APIS)

    def serve(
        self, apis: tuple[str, ...], *, start: Callable[[Steps[None]], object] = nobody_performs, **parts: Any
    ) -> None:
        """Serve these APIs, with the parts that the data path does not have: see `Services`.

        ``start`` performs steps of handlers.
        """
        handlers = load_handlers(apis)
        absent = Absent()
        runner = Runner(self.clock, self.timers, thread_at_once)
        auth_helper = parts.setdefault("auth_helper", AuthHelper(None))
        first_updates = FirstUpdates(self.metadata, self.purgatory, auth_helper)
        later = LaterAnswers(start, self.timers, self.config)
        found: dict[str, Any] = {
            "broker_id": 0,
            "config": self.config,
            "api_versions": advertised(handlers.values()),
            "clock": self.clock,
            "runner": runner,
            "later": later,
            "first_updates": first_updates,
            "at_controller": AtController(first_updates, later, lambda: parts["controller"].is_active),
            "control_requests": ControlRequests(
                runner.lane(),
                lambda: self.broker_epoch,
                self.replicas,
                lambda steps: self.perform(steps),
                now_ms=self.clock.monotonic_ms,
                timeout_ms=self.config["request.timeout.ms"],
                call_later=self.timers,
            ),
            "leadership_confirmation": LeadershipConfirmation(0, self.replicas, self.metadata, lambda: True),
            "files": self.files,
            "purgatory": self.purgatory,
            "metadata": self.metadata,
            "features": FeatureCache(),
            "replicas": self.replicas,
            "transaction_verifier": self.coordinators.verifier,
            "log_dirs": self.log_dirs,
            "fetch_sessions": self.fetch_sessions,
            "fetch_handler": self.fetch_handler,
            **parts,
        }
        services = Services(**{field.name: found.get(field.name, absent) for field in fields(Services)})
        self.dispatcher = Dispatcher(
            {key: handler.bind(services) for key, handler in handlers.items()},
            self.purgatory,
            ConnectionQuotas(ConnectionLimits(self.config["max.connections"], self.config["max.connections.per.ip"])),
            self.clock,
            client_id="broker-0",
            unsupported_version=unsupported_version(5),
            runner=runner,
            fast_paths=byte_readers(services, handlers),
        )

    def connect(self) -> Wire:
        wire = Wire()
        wire.handler = self.dispatcher.accept("PLAINTEXT", wire)
        # Refused while it was being accepted; a real connection reports it later.
        if wire.is_closed:
            wire.handler.closed(None)
        return wire

    def lead(
        self,
        topic: str,
        partition: int = 0,
        *,
        epoch: int = 0,
        leader: int = 0,
        replicas: tuple[int, ...] = (0,),
        isr: tuple[int, ...] | None = None,
        topic_id: Uuid = ZERO_UUID,
    ) -> Partition:
        """Give a partition its leader, as the controller would."""
        change = StateChange(leader, epoch, epoch, 1, replicas, replicas if isr is None else isr)
        name = TopicPartition(topic, partition)
        outcome = self.replicas.become_leader_or_follower([(name, topic_id, change)], self.clock.wall_ms())
        assert outcome.codes == [0]
        return self.replicas.partition(name)
