"""The controller of the cluster, as far as it waits (Kafka's `KafkaController` and
its event thread).

Every broker runs a `Controller`. One of them is elected: see `controller_election`. There is
one queue of events and one task that handles them in order. What an event leads to is decided
in the other modules of this folder, as steps; here they are performed, under the fence of this
broker's controller epoch.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from barnabas.base.errors import BarnabasError
from barnabas.base.ids import NO_BROKER, TopicPartition, Uuid
from barnabas.broker.cluster.service import Interpreter
from barnabas.broker.cluster.steps import ControllerMovedError, Done, Steps
from barnabas.broker.cluster.znodes import BROKER_TOPICS
from barnabas.broker.configuration.protocol_version import CURRENT, FeatureVersioning
from barnabas.broker.controller import failover, replica_leader_election, topic_change
from barnabas.broker.controller.channel_manager import ChannelsToBrokers, ControllerChannelManager
from barnabas.broker.controller.commands import ControllerCommands
from barnabas.broker.controller.context import ControllerContext
from barnabas.broker.controller.controller_election import (
    MustElect,
    OtherController,
    StillController,
    Term,
    find_controller,
    register_controller,
    resign,
)
from barnabas.broker.controller.event_queue import (
    AutoPreferredLeaderElection,
    Command,
    ControllerEvent,
    ControllerEventQueue,
    Decide,
    Hint,
    Reelect,
    RegisterBrokerAndReelect,
    ResponseReceived,
    Startup,
    TopicsCreated,
)
from barnabas.broker.controller.request_batch import RequestBatch
from barnabas.broker.controller.responses import decision_about
from barnabas.broker.controller.znode_handlers import ZnodeHandlers
from barnabas.broker.metadata.features import FeatureCache
from barnabas.coordination.client import SessionEvent
from barnabas.coordination.client.operations import WatchCallback, WatchEvent
from barnabas.wire.jute.errors import ErrorCode as Keeper
from barnabas.wire.jute.errors import KeeperError
from barnabas.wire.jute.opcodes import EventType
from barnabas.wire.kafka.errors import ErrorCode, KafkaError

__all__ = ["Controller", "ControllerSettings"]

logger = logging.getLogger(__name__)
T = TypeVar("T")

_FIRST_BALANCE_S = 5
_RETRY_S = 0.5
_REGISTER_AGAIN_S = 2
_MOVED = "The controller moved to another broker."


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    """The broker's settings that matter to a controller."""

    inter_broker_listener: str = "PLAINTEXT"
    delete_topic_enabled: bool = True
    unclean_leader_election: bool = False
    auto_leader_rebalance: bool = True
    imbalance_check_interval_s: int = 300
    imbalance_percent: int = 10
    feature_versioning: FeatureVersioning = CURRENT
    new_cluster_features: Mapping[str, int] = field(default_factory=dict)


class _ActiveTerm:
    """Performs the steps that only the active controller may yield.

    Ends when the controller's context is another."""

    def __init__(self, controller: "Controller", context: ControllerContext, listener: str) -> None:
        self._controller = controller
        self._context = context
        self._listener = listener

    @property
    def epoch_version(self) -> int:
        return self._context.epoch_version

    def send(self, requests: Sequence[tuple[int, Any]]) -> None:
        self._controller.channel_manager.send(self._context, requests, self._listener)

    def check(self) -> None:
        if self._controller.context is not self._context:
            raise ControllerMovedError("This broker ceased to be controller meanwhile")


class Controller:
    """This broker's part in controlling the cluster, on the running loop."""

    def __init__(
        self,
        broker_id: int,
        interpreter: Interpreter,
        channels: ChannelsToBrokers,
        register: Callable[[], Awaitable[int]],
        *,
        wall_ms: Callable[[], int],
        new_topic_id: Callable[[], Uuid],
        settings: Callable[[], ControllerSettings],
        features: FeatureCache,
    ) -> None:
        """``register`` creates this broker's own znode (again) and comes before every candidacy.

        ``settings`` is called at each election and check, because some settings change while the
        broker runs. The coordination client must call `session_changed`.
        """
        self._broker_id = broker_id
        self._interpreter = interpreter
        self._register = register
        self._wall_ms = wall_ms
        self._new_topic_id = new_topic_id
        self._settings = settings
        self._features = features
        self._handlers = ZnodeHandlers(new_topic_id)
        self._controller_id = NO_BROKER
        self._context = ControllerContext(broker_id)
        self._active = False
        self._is_registered = False
        self._wake = asyncio.Event()
        self._queue = ControllerEventQueue(self._wake.set)
        self._watchers: dict[Hashable, WatchCallback] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._progress_listeners: list[Callable[[], None]] = []
        self._task: asyncio.Task[None] | None = None
        self._balance_timer: asyncio.TimerHandle | None = None
        self.channel_manager = ControllerChannelManager(channels, self._on_response, self._spawn, asyncio.sleep)
        self.commands = ControllerCommands(self._queue.put, lambda: self._active, lambda: self._context)

    # What others see

    @property
    def controller_id(self) -> int:
        """The broker that is controller as far as this broker knows, `NO_BROKER` for none."""
        return self._controller_id

    @property
    def is_active(self) -> bool:
        """Whether this broker is controller. Commands wait until it has taken over."""
        return self._active

    @property
    def epoch(self) -> int:
        """The controller epoch of this broker's term; 0 while it is not controller."""
        return self._context.epoch

    @property
    def context(self) -> ControllerContext:
        """The controller's context. For reading; it changes between events."""
        return self._context

    def on_progress(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` after each decision that this broker made as controller."""
        self._progress_listeners.append(listener)

    def register_again(self) -> None:
        """The broker's own znode was removed though its session lives: create it
        again, under a new epoch."""
        self._queue.put(RegisterBrokerAndReelect())

    def retry_leaders(self) -> None:
        """Unclean elections were allowed by a change of configuration: elect leaders
        where there are none."""
        self._queue.put(Hint("unclean elections", replica_leader_election.process_unclean_leader_election_enable))

    async def shut_down_broker(self, broker: int, broker_epoch: int) -> list[TopicPartition]:
        """See `ControllerCommands.shut_down_broker`; for this broker's own shutdown."""
        return await self._interpreter.perform(self.commands.shut_down_broker(broker, broker_epoch))

    async def start(self) -> None:
        """Register the broker and stand for election; returns when the first election is over."""
        await self._register()
        self._is_registered = True
        self._task = asyncio.get_running_loop().create_task(self._run())
        over = asyncio.Event()
        self._queue.put(Startup(lambda *_: over.set()))
        await over.wait()

    async def close(self) -> None:
        """Stop; the session's end removes the znodes."""
        self._resign()
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None
        for task in list(self._tasks):
            task.cancel()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # Events

    async def _run(self) -> None:
        while True:
            event = self._queue.take()
            if event is None:
                self._wake.clear()
                await self._wake.wait()
                continue
            try:
                await self._process(event)
            except ControllerMovedError as error:
                logger.warning("%s", error)
                self._resign()
                self._queue.put(Reelect())
            except KeeperError as error:
                if error.code is Keeper.SESSION_EXPIRED:
                    self._resign()  # the new session brings the next election
                else:
                    logger.error("The controller could not continue: %s", error)
                    await self._abdicate()
            except Exception as error:
                if isinstance(error, BarnabasError) and not self._is_registered:
                    logger.error(
                        "This broker could not be registered, and does not take part in controller elections: %s", error
                    )
                else:
                    logger.exception("The controller failed at %r and resigns", event)
                await self._abdicate()
            await asyncio.sleep(0)  # thousands of responses may wait, and most need no step

    async def _process(self, event: ControllerEvent) -> None:
        match event:
            case Reelect():
                await self._elect()
            case RegisterBrokerAndReelect():
                self._is_registered = False
                await self._register()
                self._is_registered = True
                await self._elect()
            case Startup(done):
                try:
                    await self._elect()
                finally:
                    done(None, None)
            case Hint(decide=decide):
                if self._active:
                    await self._perform(decide)
            case ResponseReceived(epoch, decide):
                if self._context.epoch == epoch:
                    await self._perform(decide)
            case Command(decide, done):
                await self._obey(decide, [done])
            case TopicsCreated(topics, done):
                await self._obey(
                    lambda context, batch: topic_change.process_created_topics(context, batch, topics), done
                )
            case AutoPreferredLeaderElection():
                if self._active:
                    await self._balance()

    async def _obey(self, decide: Decide, done: Iterable[Done]) -> None:
        """Carry out a command, and answer it whatever happens."""
        try:
            self.commands.require_active()
            result = await self._perform(decide)
        except KafkaError as error:
            _finish(done, None, error)
        except BaseException:
            _finish(done, None, KafkaError(ErrorCode.NOT_CONTROLLER, _MOVED))
            raise
        else:
            _finish(done, result, None)

    async def _perform(self, decide: Callable[[ControllerContext, RequestBatch], Steps[T]]) -> T:
        settings = self._settings()
        context, listener = self._context, settings.inter_broker_listener
        context.unclean_default = settings.unclean_leader_election
        steps = decide(context, RequestBatch(context, listener))
        term = _ActiveTerm(self, context, listener)
        result = await self._interpreter.perform(steps, watch_for=self._watch_for, term=term)
        for listener_ in self._progress_listeners:
            listener_()
        return result

    async def _abdicate(self) -> None:
        """Give up the controllership after an error, so that another broker, or this one,
        takes over from the znodes.

        A broker whose registration failed tries that again, and takes no part in
        elections before it succeeds.
        """
        was_active, version = self._controller_id == self._broker_id, self._context.epoch_version
        self._resign()
        if was_active:
            await self._interpreter.perform(resign(version))
        if self._is_registered:
            await asyncio.sleep(_RETRY_S)
        else:
            asyncio.get_running_loop().call_later(_REGISTER_AGAIN_S, self._register_if_needed)
        self._queue.put(Reelect())

    def _register_if_needed(self) -> None:
        if not self._is_registered and self._task is not None:
            self._queue.put(RegisterBrokerAndReelect())

    def _watch_for(self, path: str) -> WatchCallback | None:
        """The one callback for an event, so that asking twice watches once."""
        event = self._handlers.event(path)
        if event is None:
            return None
        key = event.key
        callback = self._watchers.get(key)
        if callback is None:

            def callback(fired: WatchEvent) -> None:
                if isinstance(key, tuple) and key[0] == BROKER_TOPICS and fired.type is EventType.NODE_DELETED:
                    self._watchers.pop(key, None)  # the watch of the parent reports the topic
                    return
                self._queue.put(event)

            self._watchers[key] = callback
        return callback

    # Election

    def session_changed(self, event: SessionEvent) -> None:
        """Take part in the next election when there is a new session.

        Subscribed to the coordination client."""
        if self._task is None:
            return
        if event is SessionEvent.EXPIRED:
            self._is_registered = False
            self._resign()
        elif event is SessionEvent.CREATED:
            self._watchers.clear()
            self._queue.put(RegisterBrokerAndReelect())

    async def _elect(self) -> None:
        """Become controller if there is none; otherwise learn which broker is."""
        try:
            outlook = await self._interpreter.perform(
                find_controller(is_active=self._active), watch_for=self._watch_for
            )
            match outlook:
                case OtherController(broker):
                    self._controller_id = broker
                    self._resign(keep_id=True)
                    return
                case StillController():
                    return
                case MustElect(is_znode_ours):
                    self._resign()
                    if not self._is_registered:
                        return  # the controller must be a member of the cluster
                    steps = register_controller(self._broker_id, self._wall_ms, is_znode_ours=is_znode_ours)
                    term = await self._interpreter.perform(steps)
        except ControllerMovedError:
            self._queue.put(Reelect())
            return
        await self._begin_term(term)

    async def _begin_term(self, term: Term) -> None:
        settings = self._settings()
        self._controller_id = self._broker_id
        self._context = ControllerContext(
            self._broker_id,
            *term,
            delete_topic_enabled=settings.delete_topic_enabled,
            feature_versioning=settings.feature_versioning,
            new_cluster_features=settings.new_cluster_features,
            features=self._features,
        )
        logger.info("Broker %d is controller, in epoch %d", self._broker_id, term.epoch)
        self.channel_manager.open()
        # Active from now on: what clients send as soon as they learn of the new controller
        # waits its turn in the queue.
        self._active = True
        await self._perform(lambda context, batch: failover.on_controller_failover(context, batch, self._new_topic_id))
        if settings.auto_leader_rebalance:
            self._plan_balance(_FIRST_BALANCE_S)

    def _resign(self, *, keep_id: bool = False) -> None:
        if self._controller_id == self._broker_id and self._context.epoch:
            logger.info("Broker %d is no longer controller", self._broker_id)
        if not keep_id:
            self._controller_id = NO_BROKER
        self._active = False
        self.channel_manager.close()
        if self._balance_timer is not None:
            self._balance_timer.cancel()
            self._balance_timer = None
        _finish(self._queue.withdraw_created_topics(), None, KafkaError(ErrorCode.NOT_CONTROLLER, _MOVED))
        self._context = ControllerContext(self._broker_id)

    def _plan_balance(self, delay_s: float) -> None:
        loop = asyncio.get_running_loop()
        self._balance_timer = loop.call_later(delay_s, self._queue.put, AutoPreferredLeaderElection())

    async def _balance(self) -> None:
        settings = self._settings()
        await self._perform(
            lambda context, batch: replica_leader_election.process_auto_preferred_leader_election(
                context, batch, settings.imbalance_percent
            )
        )
        self._plan_balance(settings.imbalance_check_interval_s)

    def _on_response(self, broker: int, epoch: int, request: Any, response: Any) -> None:
        """A broker's response to a request of the term with this epoch."""
        if epoch != self._context.epoch or self._controller_id != self._broker_id:
            return
        decide = decision_about(self._context, broker, request, response)
        if decide is not None:
            self._queue.put(ResponseReceived(epoch, decide))


def _finish(waiting: Iterable[Done], result: Any, error: Exception | None) -> None:
    for done in waiting:
        done(result, error)
