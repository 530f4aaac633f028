"""Election of the controller, and the performance of its steps.

Every broker runs a `Controller`. One of them creates the ephemeral ``/controller`` and, in the same transaction, raises
``/controller_epoch``; the version of that znode fences it: every later write is a multi that checks it, so a controller
that was replaced without noticing (a pause, a lost session) can write nothing more. The others watch ``/controller``
and try again when it goes.

There is one queue of events and one task that handles them in order. Watches only put hints into it ("look at the
brokers"), equal hints that wait are one. What needs an answer (a broker's shutdown, a change of an ISR, topics that
this broker just wrote) is a command with a future.
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Coroutine, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from barnabas.base.clock import Clock
from barnabas.base.ids import NO_BROKER, TopicPartition
from barnabas.base.randomness import Random, random_uuid
from barnabas.broker.cluster.steps import (
    Children,
    ControllerMovedError,
    Read,
    Send,
    Steps,
    Write,
)
from barnabas.broker.cluster.znodes import BROKER_TOPICS, Assignment, ProducerIdBlock, TopicAssignment, topic_path
from barnabas.broker.controller import (
    broker_change,
    failover,
    isr_change,
    reassignment,
    replica_leader_election,
    topic_change,
)
from barnabas.broker.controller.answers import deletion_errors, role_errors
from barnabas.broker.controller.channel_manager import Channels, Outboxes
from barnabas.broker.controller.context import ControllerContext
from barnabas.broker.controller.controller_election import Candidacy, Term
from barnabas.broker.controller.request_batch import RequestBatch
from barnabas.broker.controller.znode_access import ZnodeAccess
from barnabas.broker.controller.znode_handlers import Decision, Reactions
from barnabas.broker.transactions.producer_id_blocks import claim_block
from barnabas.coordination.client import CoordinationClient, SessionEvent
from barnabas.coordination.client.operations import WatchCallback, WatchEvent, exists
from barnabas.wire.jute.errors import ErrorCode as Keeper
from barnabas.wire.jute.errors import KeeperError
from barnabas.wire.jute.opcodes import EventType
from barnabas.wire.kafka.errors import ErrorCode, KafkaError

__all__ = ["Controller", "ControllerSettings"]

logger = logging.getLogger(__name__)
T = TypeVar("T")

_FIRST_BALANCE_S = 5
_RETRY_S = 0.5
_MOVED = "The controller moved to another broker."


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    """The broker's settings that a controller goes by."""

    inter_broker_listener: str = "PLAINTEXT"
    delete_topic_enabled: bool = True
    unclean_leader_election: bool = False
    auto_leader_rebalance: bool = True
    imbalance_check_interval_s: int = 300
    imbalance_percent: int = 10


class Controller:
    """This broker's part in controlling the cluster, on the running loop."""

    def __init__(
        self,
        broker_id: int,
        client: CoordinationClient,
        channels: Channels,
        register: Callable[[], Awaitable[int]],
        *,
        clock: Clock,
        rng: Random,
        settings: Callable[[], ControllerSettings],
    ) -> None:
        """``register`` makes this broker's own znode (again) and comes before every candidacy.

        ``settings`` is asked at each election and check, for some settings change while the broker runs.
        """
        self._broker_id = broker_id
        self._client = client
        self._channels = channels
        self._register = register
        self._rng = rng
        self._settings = settings
        self._candidacy = Candidacy(broker_id, client, clock)
        self._reactions = Reactions(self._new_id)
        self._controller_id = NO_BROKER
        self._context = ControllerContext(broker_id)
        self._active = False
        self._queue: deque[tuple[Hashable, Callable[[], Awaitable[None]]]] = deque()
        self._waiting: set[Hashable] = set()
        self._wake = asyncio.Event()
        self._watchers: dict[Hashable, WatchCallback] = {}
        self._created: dict[str, TopicAssignment] = {}
        self._created_done: list[asyncio.Future[None]] = []
        self._outboxes = Outboxes(channels, self._answered, self._spawn, asyncio.sleep)
        self._tasks: set[asyncio.Task[None]] = set()
        self._progress_listeners: list[Callable[[], None]] = []
        self._znodes = ZnodeAccess(client, self._watch_for)
        self._task: asyncio.Task[None] | None = None
        self._balance_timer: asyncio.TimerHandle | None = None

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
        return self._context.epoch

    @property
    def context(self) -> ControllerContext:
        """To look at; it changes between events."""
        return self._context

    def on_progress(self, listener: Callable[[], None]) -> None:
        """Have ``listener`` called after each event that this broker handled as controller."""
        self._progress_listeners.append(listener)

    async def start(self) -> None:
        """Register the broker and stand for election; returns when the first election is over."""
        await self._register()
        self._task = asyncio.get_running_loop().create_task(self._run())
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def first() -> None:
            try:
                await self._elect()
            finally:
                _resolve(done, None)

        self._put(("elect",), first)
        await done

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

    # Commands. All raise `KafkaError` NOT_CONTROLLER when this broker is not controller, or ceases to be.

    async def topics_created(self, topics: Mapping[str, TopicAssignment]) -> None:
        """Give leaders to topics whose znodes this broker just wrote; returns when brokers are being told."""
        self._require_active()
        self._created.update(topics)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._created_done.append(done)
        self._hint(("created",), self._create_topics)
        await done

    async def partitions_added(self, topic: str) -> None:
        """Look at a topic whose assignment this broker just rewrote."""
        await self._command(lambda context, batch: topic_change.process_partition_modifications(context, batch, topic))

    async def topics_deleted(self) -> None:
        """Look at the orders of deletion that this broker just wrote; returns when the brokers are being told."""
        await self._command(topic_change.process_topic_deletion)

    async def shut_down_broker(self, broker: int, broker_epoch: int) -> list[TopicPartition]:
        """See `broker_change.process_controlled_shutdown`."""
        return await self._command(
            lambda context, batch: broker_change.process_controlled_shutdown(context, batch, broker, broker_epoch)
        )

    async def alter_isr(
        self, broker: int, broker_epoch: int, changes: Sequence[isr_change.IsrChange]
    ) -> dict[TopicPartition, Any]:
        """See `isr_change.process_alter_partition`."""
        answers = await self._command(
            lambda context, batch: isr_change.process_alter_partition(context, batch, broker, broker_epoch, changes)
        )
        if not self._context.reassigning.isdisjoint(answers):
            self._hint(("reassigned",), self._decide(reassignment.maybe_complete))  # the leader need not wait for that
        return answers

    async def elect_leaders(
        self, partitions: Sequence[TopicPartition], *, unclean: bool
    ) -> dict[TopicPartition, int | KafkaError]:
        """See `replica_leader_election.process_replica_leader_election`."""
        return await self._command(
            lambda context, batch: replica_leader_election.process_replica_leader_election(
                context, batch, partitions, unclean=unclean
            )
        )

    async def alter_reassignments(
        self, targets: Mapping[TopicPartition, Sequence[int] | None]
    ) -> dict[TopicPartition, KafkaError | None]:
        """See `reassignment.process_api_reassignment`."""
        return await self._command(
            lambda context, batch: reassignment.process_api_reassignment(context, batch, targets)
        )

    async def reassignments(
        self, partitions: Collection[TopicPartition] | None = None
    ) -> dict[TopicPartition, Assignment]:
        """See `reassignment.process_list_reassignments`; answered in its turn."""
        return await self._command(lambda context, _: reassignment.process_list_reassignments(context, partitions))

    def register_again(self) -> None:
        """The broker's own znode was removed though its session lives: make it again, under a new epoch."""
        self._hint(("session",), self._new_session)

    def retry_leaders(self) -> None:
        """Unclean elections were allowed by a change of configuration: see `replica_leader_election.process_unclean_leader_election_enable`."""

        self._hint(("retry",), self._decide(replica_leader_election.process_unclean_leader_election_enable))

    async def allocate_producer_ids(self, broker: int) -> ProducerIdBlock:
        """The next block of producer ids for a broker (KIP-730), of which no other broker gets one."""
        self._require_active()
        while True:
            block = await claim_block(self._client, broker)
            if block is not None:
                return block

    def _require_active(self) -> None:
        if not self._active:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "This is not the correct controller for this cluster.")

    async def _command(self, decide: Callable[[ControllerContext, RequestBatch], Steps[T]]) -> T:
        self._require_active()
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        async def run() -> None:
            try:
                self._require_active()
                result = await self._perform(decide)
            except KafkaError as error:
                _refuse(done, error)
            except BaseException:
                _refuse(done, KafkaError(ErrorCode.NOT_CONTROLLER, _MOVED))
                raise
            else:
                _resolve(done, result)

        self._put(object(), run)
        return await done

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # The queue

    def _put(self, key: Hashable, run: Callable[[], Awaitable[None]]) -> None:
        self._queue.append((key, run))
        self._wake.set()

    def _hint(self, key: Hashable, run: Callable[[], Awaitable[None]]) -> None:
        """As `_put`, unless the same waits already."""
        if key not in self._waiting:
            self._waiting.add(key)
            self._put(key, run)

    async def _run(self) -> None:
        while True:
            while not self._queue:
                self._wake.clear()
                await self._wake.wait()
            key, run = self._queue.popleft()
            self._waiting.discard(key)
            try:
                await run()
            except ControllerMovedError as error:
                logger.warning("%s", error)
                self._resign()
                self._hint(("controller",), self._controller_changed)
            except KeeperError as error:
                await self._keeper_failed(error)
            except Exception:
                logger.exception("The controller failed at %r and resigns", key)
                await self._abdicate()

    async def _keeper_failed(self, error: KeeperError) -> None:
        if error.code is Keeper.SESSION_EXPIRED:
            self._resign()  # the new session brings the next election
            return
        logger.error("The controller could not go on: %s", error)
        await self._abdicate()

    async def _abdicate(self) -> None:
        """Give the office up after an error, so that someone, perhaps this broker, takes over from the znodes."""
        was_active, version = self._controller_id == self._broker_id, self._context.epoch_version
        self._resign()
        if was_active:
            await self._candidacy.give_up(version)
        await asyncio.sleep(_RETRY_S)
        self._hint(("controller",), self._controller_changed)

    # Election

    def session_changed(self, event: SessionEvent) -> None:
        """Resign with the session, and stand for election in the next one."""
        if self._task is None:
            return
        if event is SessionEvent.EXPIRED:
            self._resign()
        elif event is SessionEvent.CREATED:
            self._watchers.clear()
            self._hint(("session",), self._new_session)

    async def _new_session(self) -> None:
        await self._register()
        await self._elect()

    async def _controller_changed(self) -> None:
        """``/controller`` came, went or changed."""
        await self._elect()

    def _watch_controller(self) -> WatchCallback:
        return self._watcher(("controller",), self._controller_changed)

    async def _elect(self) -> None:
        """Become controller if there is none; otherwise learn who it is."""
        try:
            incumbent = await self._candidacy.incumbent(self._watch_controller())
            if incumbent is not None:
                self._controller_id = incumbent.broker
                if not incumbent.is_this_session:
                    self._resign(keep_id=True)
                    return
                if self._active:
                    return
            self._resign()
            term = await self._candidacy.claim(made_already=incumbent is not None)
        except ControllerMovedError:
            self._hint(("controller",), self._controller_changed)
            return
        await self._take_office(term)

    async def _take_office(self, term: Term) -> None:
        settings = self._settings()
        self._controller_id = self._broker_id
        self._context = ControllerContext(self._broker_id, *term, delete_topic_enabled=settings.delete_topic_enabled)
        logger.info("Broker %d is controller, in epoch %d", self._broker_id, term.epoch)
        self._outboxes.open()
        # Active from now on: what clients send as soon as they hear of the new controller waits its turn in the queue.
        self._active = True
        await self._perform(lambda context, batch: failover.on_controller_failover(context, batch, self._new_id))
        if settings.auto_leader_rebalance:
            self._plan_balance(_FIRST_BALANCE_S)

    def _resign(self, *, keep_id: bool = False) -> None:
        if self._controller_id == self._broker_id and self._context.epoch:
            logger.info("Broker %d is no longer controller", self._broker_id)
        if not keep_id:
            self._controller_id = NO_BROKER
        self._active = False
        self._outboxes.close()
        if self._balance_timer is not None:
            self._balance_timer.cancel()
            self._balance_timer = None
        self._created.clear()
        waiting, self._created_done = self._created_done, []
        for done in waiting:
            _refuse(done, KafkaError(ErrorCode.NOT_CONTROLLER, _MOVED))
        self._context = ControllerContext(self._broker_id)

    def _new_id(self) -> Any:
        return random_uuid(self._rng)

    # Events

    def _watcher(self, key: Hashable, run: Callable[[], Awaitable[None]]) -> WatchCallback:
        """The one callback for a hint, so that asking twice watches once."""
        callback = self._watchers.get(key)
        if callback is None:

            def callback(event: WatchEvent) -> None:
                if isinstance(key, tuple) and key[0] == BROKER_TOPICS and event.type is EventType.NODE_DELETED:
                    self._watchers.pop(key, None)
                    return
                self._hint(key, run)

            self._watchers[key] = callback
        return callback

    def _decide(self, decide: Decision) -> Callable[[], Awaitable[None]]:
        async def run() -> None:
            if self._active:
                await self._perform(decide)

        return run

    def _watch_for(self, path: str) -> WatchCallback | None:
        """What to do when a znode changes that a step looked at."""
        reaction = self._reactions.to(path)
        return None if reaction is None else self._watcher(reaction.key, self._decide(reaction.decide))

    async def _create_topics(self) -> None:
        created, self._created = self._created, {}
        waiting, self._created_done = self._created_done, []
        try:
            self._require_active()
            new = await self._perform(
                lambda context, batch: topic_change.process_created_topics(context, batch, created)
            )
            await self._client.batch([exists(topic_path(t), self._watch_for(topic_path(t))) for t in new])
        except KafkaError as error:
            for done in waiting:
                _refuse(done, error)
        except BaseException:
            for done in waiting:
                _refuse(done, KafkaError(ErrorCode.NOT_CONTROLLER, _MOVED))
            raise
        for done in waiting:
            _resolve(done, None)

    def _plan_balance(self, delay_s: float) -> None:
        loop = asyncio.get_running_loop()
        self._balance_timer = loop.call_later(delay_s, lambda: self._hint(("balance",), self._balance))

    async def _balance(self) -> None:
        if not self._active:
            return
        settings = self._settings()
        await self._perform(
            lambda context, batch: replica_leader_election.process_auto_preferred_leader_election(
                context, batch, settings.imbalance_percent
            )
        )
        self._plan_balance(settings.imbalance_check_interval_s)

    def _answered(self, broker: int, epoch: int, request: Any, response: Any) -> None:
        """A broker's answer to one of our requests; most ask for nothing further."""
        if epoch != self._context.epoch or self._controller_id != self._broker_id:
            return
        kind = type(request).__name__
        if kind == "LeaderAndIsrRequest":
            self._roles_taken(broker, response)
        elif kind == "StopReplicaRequest":
            self._replicas_stopped(broker, request, response)
        elif response.error_code:
            logger.error("Broker %d refused UpdateMetadata: %s", broker, ErrorCode(response.error_code).name)

    def _roles_taken(self, broker: int, response: Any) -> None:
        if response.error_code:
            logger.error("Broker %d refused LeaderAndIsr: %s", broker, ErrorCode(response.error_code).name)
            return
        errors = role_errors(self._context.topic_ids, response)
        if any(errors.values()) or self._context.offline_dirs.get(broker):
            self._put_steps(
                lambda context, batch: broker_change.process_leader_and_isr_response(context, batch, broker, errors)
            )

    def _replicas_stopped(self, broker: int, request: Any, response: Any) -> None:
        errors = deletion_errors(request, response)
        if errors:
            self._put_steps(
                lambda context, batch: topic_change.process_stop_replica_response(context, batch, broker, errors)
            )

    def _put_steps(self, decide: Decision) -> None:
        epoch = self._context.epoch

        async def run() -> None:
            if self._context.epoch == epoch:
                await self._perform(decide)

        self._put(object(), run)

    # Steps

    async def _perform(self, decide: Callable[[ControllerContext, RequestBatch], Steps[T]]) -> T:
        """Drive a generator to its end."""
        settings = self._settings()
        listener = settings.inter_broker_listener
        context = self._context
        context.unclean_default = settings.unclean_leader_election
        batch = RequestBatch(context, listener)
        running = decide(context, batch)
        outcome: Any = None
        try:
            while True:
                step = running.send(outcome)
                match step:
                    case Read(paths):
                        outcome = await self._znodes.read(paths)
                    case Children(path):
                        outcome = await self._znodes.children(path)
                    case Write(ops):
                        outcome = await self._znodes.write(ops, context.epoch_version)
                    case Send(requests):
                        self._outboxes.send(context, requests, listener)
                        outcome = None
                if context is not self._context:
                    raise ControllerMovedError(f"Broker {self._broker_id} lost the office of controller meanwhile")
        except StopIteration as end:
            result: T = end.value
            for told in self._progress_listeners:
                told()
            return result
        finally:
            running.close()


def _resolve(done: "asyncio.Future[T]", result: T) -> None:
    if not done.done():
        done.set_result(result)


def _refuse(done: "asyncio.Future[Any]", error: Exception) -> None:
    if not done.done():
        done.set_exception(error)
