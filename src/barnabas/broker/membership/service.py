"""The edge of membership: does what `joining` and `controlled_shutdown` decide, with
the interpreter of steps.

`BrokerLifecycle` keeps this broker registered, waits for the first metadata, and
leaves the cluster in order.

In Kafka: `KafkaServer`, and `BrokerLifecycleManager` in KRaft mode.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from barnabas.base.clock import Clock
from barnabas.base.errors import BarnabasError
from barnabas.base.files import Files
from barnabas.base.ids import TopicPartition
from barnabas.broker.cluster.channels import Channels
from barnabas.broker.cluster.service import Interpreter
from barnabas.broker.cluster.znodes import (
    BrokerInfo,
    broker_path,
)
from barnabas.broker.configuration.broker_config import BrokerConfig
from barnabas.broker.controller.service import Controller
from barnabas.broker.membership import controlled_shutdown, joining
from barnabas.broker.membership.controlled_shutdown import Answer, KnownControllers, ShutdownOptions, ShutdownSteps
from barnabas.broker.membership.joining import OnChange
from barnabas.broker.metadata.cache import MetadataCache
from barnabas.coordination.client import CoordinationClient, SessionEvent
from barnabas.coordination.client.operations import WatchEvent
from barnabas.log.dirs.boot import has_kept_its_pages, note_boot
from barnabas.log.lost_data import LostData
from barnabas.wire.jute.errors import ErrorCode as KeeperCode
from barnabas.wire.jute.errors import KeeperError
from barnabas.wire.kafka.errors import ErrorCode, KafkaError
from barnabas.wire.kafka.messages.controlled_shutdown import ControlledShutdownRequest

__all__ = ["BrokerLifecycle", "LifecycleDependencies"]

logger = logging.getLogger(__name__)

_METADATA_TIMEOUT_S = 60
_COORDINATION_AWAY_MS = 2000


@dataclass(frozen=True, slots=True)
class LifecycleDependencies:
    """The constructor arguments of `BrokerLifecycle`."""

    broker_id: int
    info: Callable[[], BrokerInfo]
    """The registration; called when the listeners are open."""
    client: CoordinationClient
    interpreter: Interpreter
    channels: Channels
    metadata: MetadataCache
    config: BrokerConfig
    files: Files
    clock: Clock
    log_dirs: Callable[[], Sequence[str]]
    """The log dirs that are online; asked when the logs are loaded, as is `lost_data`."""
    lost_data: Callable[[], Mapping[TopicPartition, LostData]]
    """The logs that have lost records."""
    has_new_dir: Callable[[], bool]
    """Whether a log dir was empty at the start."""
    note_gone: Callable[[Iterable[TopicPartition]], Mapping[TopicPartition, LostData]]
    """Takes the replicas of this broker; notes, and returns, those without a log."""
    note_dirs_checked: Callable[[], None]
    """Log dirs that were empty at the start are like all others from now on."""
    controller: Callable[[], Controller]
    is_closing: Callable[[], bool]
    """Whether the broker stops; then a lost registration is not made again."""
    spawn: Callable[[Coroutine[Any, Any, None]], None]


class BrokerLifecycle:
    """One broker's way into its cluster and out of it. Made on the loop."""

    def __init__(self, dependencies: LifecycleDependencies) -> None:
        self._broker_id = dependencies.broker_id
        self._info = dependencies.info
        self._client = dependencies.client
        self._interpreter = dependencies.interpreter
        self._channels = dependencies.channels
        self._metadata = dependencies.metadata
        self._config = dependencies.config
        self._files = dependencies.files
        self._clock = dependencies.clock
        self._log_dirs = dependencies.log_dirs
        self._lost_data = dependencies.lost_data
        self._has_new_dir = dependencies.has_new_dir
        self._note_gone = dependencies.note_gone
        self._note_dirs_checked = dependencies.note_dirs_checked
        self._controller = dependencies.controller
        self._is_closing = dependencies.is_closing
        self._spawn = dependencies.spawn
        self._has_kept_its_pages: bool | None = None
        self._has_registered = False
        self._is_known = asyncio.Event()
        self._metadata_changed = asyncio.Event()
        self.broker_epoch = -1
        """The czxid of our znode in /brokers/ids; -1 while not registered."""
        self.is_of_this_session = False
        """Whether the present session has made it. A former one has ended with its znode, so this
        broker may have been replaced."""

    # Joining

    async def register(self) -> int:
        """Make the broker's znode (again) and watch it; returns the broker epoch.

        Raises `BrokerIdTakenError`, `BarnabasError` where ACLs forbid it. At the start, a session
        that expires meanwhile is no end: the first registration begins again in the next one.
        """
        while True:
            try:
                epoch = await self._join()
                await self._watch_registration()
            except KeeperError as error:
                if error.code is KeeperCode.NO_AUTH:
                    raise BarnabasError(
                        f"Broker {self._broker_id} has no permission to register: check the ACLs of /brokers/ids, "
                        "/brokers/topics and /controller in the coordination service"
                    ) from error
                if error.code is not KeeperCode.SESSION_EXPIRED or self._has_registered:
                    raise
                logger.warning(
                    "The session expired before broker %d was registered; registering again", self._broker_id
                )
                await self._client.wait_connected(self._config["zookeeper.session.timeout.ms"])
            else:
                self._has_registered = True
                return epoch

    async def _join(self) -> int:
        if self._has_kept_its_pages is None:
            self._has_kept_its_pages = has_kept_its_pages(self._files, self._log_dirs())
        # What is lost was lost before the start: a broker that registers again has
        # been a follower meanwhile.
        lost = {} if self._has_registered else self._lost_data()
        own = joining.OwnState(
            self._clock.wall_ms, self._set_epoch, self._note_boot, self._note_gone, self._note_dirs_checked
        )
        steps = joining.join(
            self._info(), own, has_kept_its_pages=self._has_kept_its_pages, lost=lost, has_new_dir=self._has_new_dir()
        )
        return await self._interpreter.perform(steps)

    def _set_epoch(self, epoch: int) -> None:
        self.broker_epoch = epoch
        self.is_of_this_session = True

    def session_changed(self, event: SessionEvent) -> None:
        """The broker has to register again in a new session."""
        if event is SessionEvent.CREATED:
            self.is_of_this_session = False

    def _note_boot(self) -> None:
        self._has_kept_its_pages = True
        note_boot(self._files, self._log_dirs())

    async def _watch_registration(self) -> None:
        await self._client.exists(broker_path(self._broker_id), self._registration_changed)

    def _registration_changed(self, event: WatchEvent) -> None:
        match joining.on_registration_changed(event.type, is_closing=self._is_closing()):
            case OnChange.REGISTER_AGAIN:
                logger.warning("The registration of broker %d was removed; registering again", self._broker_id)
                self._controller().register_again()
            case OnChange.WATCH_AGAIN:
                self._spawn(self._watch_registration())

    def metadata_changed(self, *_: object) -> None:
        """The controller has sent metadata."""
        self._metadata_changed.set()
        if self._metadata.alive_broker(self._broker_id) is not None:
            self._is_known.set()

    async def await_metadata(self, listener: str) -> None:
        """Return when the controller has sent metadata that names this broker.

        ``listener`` is the one that the controller connects to. Raises
        `BarnabasError` when nothing comes.
        """
        try:
            async with asyncio.timeout(_METADATA_TIMEOUT_S):
                await self._is_known.wait()
        except TimeoutError:
            raise BarnabasError(
                f"The controller (broker {self._controller().controller_id}) sent no metadata within "
                f"{_METADATA_TIMEOUT_S} s: check whether it can reach this broker's listener {listener}"
            ) from None

    # Leaving

    async def leave(self) -> None:
        """Controlled shutdown: return when the leaders have moved, as far as that is possible."""
        config = self._config
        options = ShutdownOptions(
            enabled=config["controlled.shutdown.enable"],
            max_retries=config["controlled.shutdown.max.retries"],
            retry_backoff_ms=config["controlled.shutdown.retry.backoff.ms"],
            controller_timeout_ms=config["controller.socket.timeout.ms"],
        )
        alive_brokers = len(tuple(self._metadata.alive_brokers()))
        steps = controlled_shutdown.leave(options, alive_brokers=alive_brokers, controllers=self._known_controllers)
        leaving, cut_off = (asyncio.ensure_future(work) for work in (self._shut_down(steps), self._cut_off()))
        await asyncio.wait((leaving, cut_off), return_when=asyncio.FIRST_COMPLETED)
        if leaving.done():
            leaving.result()
        else:
            logger.warning("Stopping without controlled shutdown: the coordination service cannot be reached")
        leaving.cancel()
        cut_off.cancel()
        await asyncio.wait((leaving, cut_off))

    def _known_controllers(self) -> KnownControllers:
        return KnownControllers(self._controller().controller_id, self._metadata.controller_id)

    async def _shut_down(self, steps: ShutdownSteps) -> None:
        result: Answer | None = None
        while True:
            try:
                step = steps.send(result)
            except StopIteration:
                return
            match step:
                case controlled_shutdown.AskController(asked, timeout_ms):
                    result = await self._ask_to_leave(asked, timeout_ms / 1000)
                case controlled_shutdown.AwaitController(known, timeout_ms):
                    result = None
                    await self._another_controller(known, timeout_ms / 1000)

    async def _ask_to_leave(self, asked: int, timeout_s: float) -> Answer:
        """Ask the controller, which may be this broker, to move our leaders."""

        async def ask() -> int:
            if self._controller().is_active:
                return len(await self._controller().shut_down_broker(self._broker_id, self.broker_epoch))
            request = ControlledShutdownRequest(broker_id=self._broker_id, broker_epoch=self.broker_epoch)
            response = await self._channels.send(asked, request)
            if response.error_code:
                raise KafkaError(ErrorCode(response.error_code))
            return len(response.remaining_partitions)

        asking = asyncio.ensure_future(ask())
        try:
            await asyncio.wait((asking,), timeout=timeout_s)
            if not asking.done():
                return Answer(f"no answer within {timeout_s} s")
            error = asking.exception()
            return Answer(str(error) or repr(error)) if error is not None else Answer(None, asking.result())
        finally:
            asking.cancel()

    async def _another_controller(self, known: KnownControllers, timeout_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self._known_controllers() == known:
                    self._metadata_changed.clear()
                    await self._metadata_changed.wait()

    async def _cut_off(self) -> None:
        """Return when the coordination service cannot be reached any more: no leader
        can be moved then."""
        with contextlib.suppress(KeeperError):
            while True:
                await self._client.wait_connected(_COORDINATION_AWAY_MS)
                await asyncio.sleep(_COORDINATION_AWAY_MS / 1000)
