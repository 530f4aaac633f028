"""The edge of membership: performs the steps that `joining`, `controlled_shutdown` and `death_watch` decide.

`BrokerLifecycle` keeps this broker registered, waits for the first metadata, and leaves the cluster in order. `DeathWatch`
keeps connections to the brokers whose death this one must notice.

In Kafka: `KafkaServer`, and `BrokerLifecycleManager` in KRaft mode.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from barnabas.base.clock import Clock
from barnabas.base.errors import BarnabasError
from barnabas.base.files import Files
from barnabas.base.ids import TopicPartition, uuid_text
from barnabas.base.network import Connection, Network
from barnabas.base.randomness import Random, random_uuid
from barnabas.broker.cluster.channels import Channels
from barnabas.broker.cluster.steps import Pause
from barnabas.broker.cluster.znodes import (
    BROKER_SEQUENCE,
    BROKER_TOPICS,
    CLUSTER_ID,
    CONTROLLER,
    CONTROLLER_EPOCH,
    TOP_LEVEL_PATHS,
    BrokerInfo,
    ZnodeFormatError,
    broker_path,
    decode_cluster_id,
    decode_topic,
    encode_broker,
    encode_cluster_id,
    partition_state_path,
    topic_path,
)
from barnabas.broker.configuration.broker_config import BrokerConfig
from barnabas.broker.controller.service import Controller
from barnabas.broker.membership import controlled_shutdown, death_watch, isr_withdrawal, joining
from barnabas.broker.membership.boot import has_kept_its_pages, note_boot
from barnabas.broker.membership.controlled_shutdown import Answer, KnownControllers, ShutdownOptions, ShutdownSteps
from barnabas.broker.membership.death_watch import ConnectOutcome
from barnabas.broker.membership.joining import OnChange
from barnabas.broker.membership.registration import EphemeralZnode, Removal, SessionZnodes
from barnabas.broker.metadata.cache import MetadataCache
from barnabas.coordination.client import CoordinationClient
from barnabas.coordination.client.operations import WatchEvent, check, create, delete, get, multi, set_data
from barnabas.log.lost_data import LostData
from barnabas.wire.jute.errors import ErrorCode as KeeperCode
from barnabas.wire.jute.errors import KeeperError
from barnabas.wire.kafka.errors import ErrorCode, KafkaError
from barnabas.wire.kafka.messages.controlled_shutdown import ControlledShutdownRequest

__all__ = [
    "BrokerLifecycle",
    "DeathWatch",
    "LifecycleDependencies",
    "ensure_cluster_id",
    "ensure_top_level_paths",
    "generate_broker_id",
]

logger = logging.getLogger(__name__)

_METADATA_TIMEOUT_S = 60
_COORDINATION_AWAY_MS = 2000
_READ_AT_ONCE = 1000
_CONNECT_TIMEOUT_MS = 2000
_MAX_FRAME_BYTES = 1024
_REFUSED = (ConnectionRefusedError, ConnectionResetError)


# The permanent znodes


async def ensure_top_level_paths(client: CoordinationClient) -> None:
    """Make the permanent znodes, those that are missing, in one round trip."""
    paths: dict[str, None] = {}
    for path in TOP_LEVEL_PATHS:
        names = path.split("/")
        paths.update(dict.fromkeys("/".join(names[: n + 1]) for n in range(1, len(names))))
    for result in await client.batch([create(path) for path in paths], retry=True):
        if isinstance(result, KeeperError) and result.code is not KeeperCode.NODE_EXISTS:
            raise result


async def ensure_cluster_id(client: CoordinationClient, rng: Random) -> str:
    """The cluster's id; the first broker of all draws it."""
    await client.ensure_path("/cluster")
    made = uuid_text(random_uuid(rng))
    try:
        await client.run(create(CLUSTER_ID, encode_cluster_id(made)), retry=True)
    except KeeperError as error:
        if error.code is not KeeperCode.NODE_EXISTS:
            raise
    data, _ = await client.get(CLUSTER_ID)
    return decode_cluster_id(data)


async def generate_broker_id(client: CoordinationClient, reserved_max_id: int) -> int:
    """The next broker id above reserved.broker.max.id: the znode's version counts them."""
    stat = await client.set_data(BROKER_SEQUENCE, b"")
    return int(stat.version) + reserved_max_id


# The ephemeral ones


async def _read_session(client: CoordinationClient, broker_id: int) -> SessionZnodes:
    """A broker's registration and /controller, at one moment. Raises `KeeperError`."""
    found: list[EphemeralZnode | None] = []
    for result in await client.batch([get(broker_path(broker_id)), get(CONTROLLER)]):
        if isinstance(result, KeeperError):
            if result.code is not KeeperCode.NO_NODE:
                raise result
            found.append(None)
        else:
            data, stat = result
            found.append(EphemeralZnode(data, stat.version, stat.czxid, stat.ephemeral_owner))
    return SessionZnodes(*found)


async def _remove(client: CoordinationClient, removals: Sequence[Removal], *, retry: bool = False) -> None:
    """All or none; a znode that is gone or changed meanwhile is no error. Raises `KeeperError`."""
    (result,) = await client.batch([multi([delete(path, version) for path, version in removals])], retry=retry)
    if isinstance(result, KeeperError) and result.code not in (KeeperCode.NO_NODE, KeeperCode.BAD_VERSION):
        raise result


async def _read_states(client: CoordinationClient, partitions: Sequence[TopicPartition]) -> isr_withdrawal.States:
    """The states of partitions, after /controller_epoch and /controller. Raises `KeeperError`."""
    found: list[isr_withdrawal.StateZnode | isr_withdrawal.UnreadableZnode | None] = []
    paths = [CONTROLLER_EPOCH, CONTROLLER, *map(partition_state_path, partitions)]
    for znode in await client.batch([get(path) for path in paths], retry=True):
        if not isinstance(znode, KeeperError):
            found.append(isr_withdrawal.StateZnode(znode[0], znode[1].version))
        elif znode.code is KeeperCode.NO_NODE:
            found.append(None)
        elif znode.code is KeeperCode.NO_AUTH:
            found.append(isr_withdrawal.UnreadableZnode("this broker has no permission to read it"))
        else:
            raise znode
    epoch, controller, *states = found
    # Without the version of /controller_epoch no write can be safe: then it is up to a controller.
    has_controller = controller is not None or isinstance(epoch, isr_withdrawal.UnreadableZnode)
    return isr_withdrawal.States(
        epoch.version if isinstance(epoch, isr_withdrawal.StateZnode) else None, has_controller, states
    )


async def _read_replicas(client: CoordinationClient, broker_id: int) -> list[TopicPartition]:
    """The partitions that have a replica on a broker. A topic that cannot be read is left out. Raises `KeeperError`."""
    topics, _ = await client.get_children(BROKER_TOPICS)
    replicas = []
    for first in range(0, len(topics), _READ_AT_ONCE):
        names = sorted(topics)[first : first + _READ_AT_ONCE]
        for name, znode in zip(
            names, await client.batch([get(topic_path(name)) for name in names], retry=True), strict=True
        ):
            if isinstance(znode, KeeperError) and znode.code is KeeperCode.NO_NODE:
                continue
            try:
                if isinstance(znode, KeeperError):
                    raise znode
                assignment = decode_topic(name, znode[0])
            except (KeeperError, ZnodeFormatError) as error:
                if isinstance(error, KeeperError) and error.code is not KeeperCode.NO_AUTH:
                    raise
                logger.error("%s cannot be read before the registration: %s", topic_path(name), error)
                continue
            replicas += [
                TopicPartition(name, number)
                for number, partition in assignment.partitions.items()
                if broker_id in partition.replicas
            ]
    return replicas


async def _write_states(
    client: CoordinationClient, controller_epoch_version: int | None, writes: Sequence[tuple[str, bytes, int]]
) -> None:
    """All or none; a znode that changed meanwhile is no error, and a refusal is logged. Raises `KeeperError`."""
    checks = [] if controller_epoch_version is None else [check(CONTROLLER_EPOCH, controller_epoch_version)]
    sets = [set_data(path, data, version) for path, data, version in writes]
    (result,) = await client.batch([multi([*checks, *sets])], retry=True)
    if not isinstance(result, KeeperError) or result.code in (KeeperCode.NO_NODE, KeeperCode.BAD_VERSION):
        return
    if result.code is not KeeperCode.NO_AUTH:
        raise result
    logger.error(
        "This broker has no permission to write the states of partitions: check the ACLs below /brokers/topics"
    )


@dataclass(frozen=True, slots=True)
class LifecycleDependencies:
    """What `BrokerLifecycle` works with."""

    broker_id: int
    info: Callable[[], BrokerInfo]
    """What gets registered; asked when the listeners are open."""
    client: CoordinationClient
    channels: Channels
    metadata: MetadataCache
    config: BrokerConfig
    files: Files
    clock: Clock
    log_dirs: Callable[[], Sequence[str]]
    """The log dirs that are online; asked when the logs are loaded, as is `lost_data`."""
    lost_data: Callable[[], Mapping[TopicPartition, LostData]]
    """What the logs have lost."""
    has_new_dir: Callable[[], bool]
    """Whether a log dir was empty at the start."""
    note_gone: Callable[[Iterable[TopicPartition]], Mapping[TopicPartition, LostData]]
    """Takes the replicas of this broker; notes, and returns, those without a log."""
    note_dirs_checked: Callable[[], None]
    """Log dirs that were empty at the start are like all others from now on."""
    controller: Callable[[], Controller]
    is_closing: Callable[[], bool]
    """From then on a lost registration is not made again."""
    spawn: Callable[[Coroutine[Any, Any, None]], None]


class BrokerLifecycle:
    """One broker's way into its cluster and out of it. Made on the loop."""

    def __init__(self, dependencies: LifecycleDependencies) -> None:
        self._broker_id = dependencies.broker_id
        self._info = dependencies.info
        self._client = dependencies.client
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

    # Joining

    async def register(self) -> int:
        """Make the broker's znode (again) and watch it; returns the broker epoch.

        Raises `BrokerIdTakenError`, `BarnabasError` where ACLs forbid it. At the start, a session that expires meanwhile
        is no end: the first registration begins again in the next one.
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
        # What is lost was lost before the start: a broker that registers again has been a follower meanwhile.
        lost = {} if self._has_registered else self._lost_data()
        steps = joining.join(
            self._info(),
            has_kept_its_pages=self._has_kept_its_pages,
            lost=lost,
            has_new_dir=self._has_new_dir(),
        )
        result: Any = None
        while True:
            try:
                step = steps.send(result)
            except StopIteration as end:
                epoch: int = end.value
                return epoch
            result = await self._perform(step)

    async def _perform(self, step: joining.JoinStep) -> Any:
        client = self._client
        match step:
            case joining.IsRegistered():
                return await client.exists(broker_path(self._broker_id)) is not None
            case joining.CreateRegistration():
                return await self._create()
            case joining.ReadSession():
                return await _read_session(client, self._broker_id)
            case joining.Remove(removals):
                return await _remove(client, removals, retry=True)
            case joining.SetEpoch(epoch):
                self.broker_epoch = epoch
                return None
            case joining.NoteBoot():
                self._has_kept_its_pages = True
                return note_boot(self._files, self._log_dirs())
            case joining.ReadReplicas():
                return await _read_replicas(client, self._broker_id)
            case joining.FindGone():
                return self._note_gone(await _read_replicas(client, self._broker_id))
            case joining.NoteDirsChecked():
                return self._note_dirs_checked()
            case isr_withdrawal.ReadStates(partitions):
                return await _read_states(client, partitions)
            case isr_withdrawal.WriteStates(version, writes):
                return await _write_states(client, version, writes)
            case Pause(ms):
                return await asyncio.sleep(ms / 1000)

    async def _create(self) -> int | None:
        """The czxid of our new znode; None when there is another session's."""
        data = encode_broker(self._info(), self._clock.wall_ms())
        try:
            stat = await self._client.create_own_ephemeral(broker_path(self._broker_id), data)
        except KeeperError as error:
            if error.code is not KeeperCode.NODE_EXISTS:
                raise
            return None
        return stat.czxid

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

        ``listener`` is the one that the controller connects to. Raises `BarnabasError` when nothing comes.
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
        """Have a controller, this broker or another, move our leaders."""

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
        """Return when the coordination service cannot be reached any more: no leader can be moved then."""
        with contextlib.suppress(KeeperError):
            while True:
                await self._client.wait_connected(_COORDINATION_AWAY_MS)
                await asyncio.sleep(_COORDINATION_AWAY_MS / 1000)


class DeathWatch:
    """This broker's connections to those whose death it must notice."""

    def __init__(
        self,
        broker_id: int,
        client: CoordinationClient,
        network: Network,
        metadata: MetadataCache,
        *,
        listener: str,
        is_controller: Callable[[], bool],
    ) -> None:
        """``listener`` is the name of the listener that brokers use among themselves."""
        self._broker_id = broker_id
        self._client = client
        self._network = network
        self._metadata = metadata
        self._listener = listener
        self._is_controller = is_controller
        self._watches: dict[int, _BrokerWatch] = {}
        self._is_closed = False

    def metadata_changed(self, *_: object) -> None:
        """Keep connections to those that must be watched now, at their present addresses."""
        if self._is_closed:
            return
        alive = {broker.broker_id: broker for broker in self._metadata.alive_brokers()}
        controller = self._broker_id if self._is_controller() else self._metadata.controller_id
        wanted = {
            broker_id: (endpoint.host, endpoint.port)
            for broker_id in death_watch.watched(self._broker_id, alive, controller)
            if broker_id in alive and (endpoint := alive[broker_id].endpoint(self._listener)) is not None
        }
        for broker_id, watch in tuple(self._watches.items()):
            if wanted.get(broker_id) != watch.address:
                watch.close()
                del self._watches[broker_id]
        for broker_id, address in wanted.items():
            if broker_id not in self._watches:
                first = partial(self._is_first_to_act, broker_id)
                self._watches[broker_id] = _BrokerWatch(self, self._network, broker_id, address, first)

    def _is_first_to_act(self, broker_id: int) -> bool:
        """The controller acts first, and for the controller all others do."""
        return self._is_controller() or broker_id == self._metadata.controller_id

    async def read_epoch(self, broker_id: int) -> int | None:
        """The czxid of a broker's registration; None when it is not registered, or that is unknown now."""
        try:
            stat = await self._client.exists(broker_path(broker_id))
        except KeeperError as error:
            logger.debug("Broker %d cannot be watched now: %s", broker_id, error)
            return None
        return None if stat is None else stat.czxid

    async def remove_broker(self, broker_id: int, epoch: int) -> None:
        """Remove the registration of this epoch, and /controller if the same session holds it."""
        try:
            found = await _read_session(self._client, broker_id)
            removals = death_watch.removals_of_dead(broker_id, epoch, found)
            if removals:
                logger.warning(
                    "Broker %d is dead: its port refuses connections. Removing its registration %d", broker_id, epoch
                )
                await _remove(self._client, removals)
        except KeeperError as error:
            logger.debug("The registration of broker %d could not be removed: %s", broker_id, error)

    async def close(self) -> None:
        """Stop watching."""
        self._is_closed = True
        watches, self._watches = list(self._watches.values()), {}
        for watch in watches:
            watch.close()
        await asyncio.gather(*(watch.task for watch in watches), return_exceptions=True)


class _BrokerWatch:
    """The connection to one broker, and its handler: only the connection's end matters."""

    def __init__(
        self,
        watch: DeathWatch,
        network: Network,
        broker_id: int,
        address: tuple[str, int],
        is_first_to_act: Callable[[], bool],
    ) -> None:
        self.address = address
        self._watch = watch
        self._network = network
        self._broker_id = broker_id
        self._steps = death_watch.watch_broker(is_first_to_act)
        self._broken = asyncio.Event()
        self._connection: Connection | None = None
        self.task = asyncio.get_running_loop().create_task(self._run())

    def close(self) -> None:
        self.task.cancel()
        if self._connection is not None:
            self._connection.close()

    async def _run(self) -> None:
        result: Any = None
        while True:
            result = await self._perform(self._steps.send(result))

    async def _perform(self, step: death_watch.WatchStep) -> Any:
        match step:
            case death_watch.ReadEpoch():
                return await self._watch.read_epoch(self._broker_id)
            case death_watch.ConnectToBroker():
                return await self._connect()
            case death_watch.AwaitEnd():
                return await self._await_end()
            case death_watch.RemoveBroker(epoch):
                return await self._watch.remove_broker(self._broker_id, epoch)
            case Pause(ms):
                return await asyncio.sleep(ms / 1000)

    async def _connect(self) -> ConnectOutcome:
        host, port = self.address
        self._broken.clear()
        try:
            self._connection = await self._network.connect(
                host, port, lambda _: self, max_frame_bytes=_MAX_FRAME_BYTES, timeout_ms=_CONNECT_TIMEOUT_MS
            )
        except _REFUSED:
            return ConnectOutcome.REFUSED
        except (OSError, TimeoutError) as error:
            logger.debug("Broker %d cannot be watched now: %s", self._broker_id, error)
            return ConnectOutcome.UNKNOWN
        return ConnectOutcome.ACCEPTED

    async def _await_end(self) -> int:
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        await self._broken.wait()
        self._connection = None
        return int(1000 * (loop.time() - began_s))

    # The connection's handler

    def frame(self, data: memoryview) -> None:
        """Nothing was requested; what comes all the same is ignored."""

    def bad_length(self, prefix: bytes) -> None:
        """As `frame`: only the end of the connection matters."""

    def closed(self, error: Exception | None) -> None:  # noqa: ARG002  # the seam's signature
        """The other side is gone, or closed an idle connection."""
        self._broken.set()
