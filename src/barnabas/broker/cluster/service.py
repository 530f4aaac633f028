"""The interpreter of `steps`: here the broker waits for the coordination service and
for other brokers.

Deciding generators yield what is to be done; `Interpreter.perform` does it and resumes them with
the outcome, or raises in them what went wrong. Many reads or writes travel in one round trip.
Writes of the controller are fenced by the version of ``/controller_epoch`` (Kafka's `KafkaZkClient`
and its `retryRequestsUntilConnected` with the expected epoch).

`ZnodeFollower` reads a znode again when it changes.

`perform_without_broker` is for tools, which write what must be there before the first broker starts
(in Kafka they have a `KafkaZkClient` of their own).

`ensure_top_level_paths`, `ensure_cluster_id` and `generate_broker_id` are for the start of a
broker, before it performs steps.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

from barnabas.base.clock import CallLater, SystemClock
from barnabas.base.ids import uuid_text
from barnabas.base.network import Network
from barnabas.base.randomness import Random, new_random, random_uuid
from barnabas.base.task_futures import result_of, runner_here
from barnabas.base.tasks import Runner
from barnabas.broker.cluster.channels import Channels
from barnabas.broker.cluster.steps import (
    Ask,
    Children,
    Committed,
    CreateOwn,
    Pause,
    Read,
    ReadAllowed,
    Refused,
    Send,
    Step,
    Steps,
    Transact,
    Wait,
    Watch,
    Write,
    WriteOp,
    WriteResult,
    WriteUnfenced,
    Written,
    Znode,
)
from barnabas.broker.cluster.znode_operations import (
    fence,
    grouped,
    operation,
    raise_if_moved,
    refused,
    transacted,
    unfenced_operation,
    written_or_failed,
)
from barnabas.broker.cluster.znodes import (
    BROKER_SEQUENCE,
    CLUSTER_ID,
    TOP_LEVEL_PATHS,
    decode_cluster_id,
    encode_cluster_id,
)
from barnabas.coordination.client import BlockingClient, CoordinationClient
from barnabas.coordination.client.operations import WatchCallback, WatchEvent, create, exists, get, get_children, multi
from barnabas.coordination.client.session import SaslClient
from barnabas.wire.jute.errors import ErrorCode as Keeper
from barnabas.wire.jute.errors import KeeperError
from barnabas.wire.jute.records import Stat

__all__ = [
    "Channel",
    "ControllerTerm",
    "Interpreter",
    "WatchFor",
    "ZnodeFollower",
    "ensure_cluster_id",
    "ensure_top_level_paths",
    "generate_broker_id",
    "perform_without_broker",
]

logger = logging.getLogger(__name__)

_RETRY_MS = 1000
_WITHOUT_BROKER_MS = 10_000
T = TypeVar("T")

WatchFor = Callable[[str], WatchCallback | None]
"""The watch to leave on a path that is read; None for none."""


class Channel(Protocol):
    """How requests reach brokers, this one included."""

    async def send(self, broker_id: int, message: Any, *, timeout_ms: int | None = None) -> Any:
        """The response. Raises `ChannelError`."""
        ...


class ControllerTerm(Protocol):
    """What performs the two steps that only the active controller may yield, for one
    controller epoch."""

    @property
    def epoch_version(self) -> int:
        """The version of ``/controller_epoch`` that every write depends on."""
        ...

    def send(self, requests: Sequence[tuple[int, Any]]) -> None:
        """Queue requests for brokers."""
        ...

    def check(self) -> None:
        """Raises `ControllerMovedError` when the term is over."""
        ...


def _no_watch(_path: str) -> WatchCallback | None:
    return None


class Interpreter:
    """Performs steps for every part of a broker."""

    def __init__(
        self,
        client: CoordinationClient,
        channel: Channel,
        spawn: Callable[[Coroutine[Any, Any, None]], object],
        runner: Runner,
    ) -> None:
        """``runner`` has the turns of all deciding generators.

        What clients ask for should have another one."""
        self._client = client
        self._channel = channel
        self._spawn = spawn
        self._runner = runner

    def start(self, steps: Steps[None]) -> None:
        """Perform steps in the background. What they raise is logged."""
        self._spawn(self.perform(steps))

    async def perform(
        self, steps: Steps[T], *, watch_for: WatchFor = _no_watch, term: ControllerTerm | None = None
    ) -> T:
        """Drive a generator to its end; its result, or what it raises."""
        return await result_of(self._runner, steps, partial(self._perform_in_term, watch_for, term))

    async def _perform_in_term(self, watch_for: WatchFor, term: ControllerTerm | None, step: Step) -> Any:
        if term is None:
            return await self._perform_one(step, watch_for, term)
        term.check()  # it may have ended while others had their turn
        outcome = await self._perform_one(step, watch_for, term)
        term.check()
        return outcome

    async def _perform_one(self, step: Step, watch_for: WatchFor, term: ControllerTerm | None) -> Any:
        match step:
            case Read():
                return await self._read(step, watch_for)
            case ReadAllowed(paths):
                return await self._read_allowed(paths)
            case Children(path):
                return await self._children(path, watch_for)
            case Watch(paths):
                await self._client.batch([exists(path, watch_for(path)) for path in paths])
                return None
            case WriteUnfenced(ops, repeat):
                if not ops:
                    return []
                results = await self._client.batch([unfenced_operation(op) for op in ops], retry=repeat)
                return [written_or_failed(op, result) for op, result in zip(ops, results, strict=True)]
            case Transact(groups, repeat):
                return await self._transact(groups, repeat)
            case CreateOwn(path, data):
                return await self._create_own(path, data)
            case Ask(broker, request):
                return await self._channel.send(broker, request)
            case Wait(begin):
                return await _wait(begin)
            case Pause(ms):
                return await asyncio.sleep(ms / 1000)
            case Write(ops) if term is not None:
                return await self._write(ops, term.epoch_version)
            case Send(requests) if term is not None:
                return term.send(requests)
            case _:
                raise TypeError(f"{type(step).__name__} is for the active controller only")

    async def _read(self, step: Read, watch_for: WatchFor) -> list[Znode | None]:
        paths = step.paths
        if not paths:
            return []
        operations = [get(path, watch_for(path)) for path in paths]
        if step.watch_absent:
            operations += [exists(path, watch_for(path)) for path in paths]
        znodes: list[Znode | None] = []
        for result in (await self._client.batch(operations))[: len(paths)]:
            if isinstance(result, KeeperError):
                if result.code is not Keeper.NO_NODE:
                    raise result
                znodes.append(None)
            else:
                znodes.append(self._znode(*result))
        return znodes

    async def _read_allowed(self, paths: Sequence[str]) -> list[Znode | KeeperError | None]:
        znodes: list[Znode | KeeperError | None] = []
        for result in await self._client.batch([get(path) for path in paths], retry=True):
            if not isinstance(result, KeeperError):
                znodes.append(self._znode(*result))
            elif result.code is Keeper.NO_NODE:
                znodes.append(None)
            elif result.code is Keeper.NO_AUTH:
                znodes.append(result)
            else:
                raise result
        return znodes

    def _znode(self, data: bytes | None, stat: Stat) -> Znode:
        is_own = stat.ephemeral_owner == self._client.session_id
        return Znode(data, stat.version, stat.czxid, is_own, stat.ctime, stat.ephemeral_owner)

    async def _create_own(self, path: str, data: bytes) -> int | None:
        try:
            stat = await self._client.create_own_ephemeral(path, data)
        except KeeperError as error:
            if error.code is not Keeper.NODE_EXISTS:
                raise
            return None
        return stat.czxid

    async def _children(self, path: str, watch_for: WatchFor) -> list[str]:
        (result,) = await self._client.batch([get_children(path, watch_for(path))])
        if isinstance(result, KeeperError):
            if result.code is not Keeper.NO_NODE:
                raise result
            return []
        names: list[str] = result[0]
        return names

    async def _transact(self, groups: Sequence[Sequence[Any]], repeat: bool) -> list[Committed | Refused]:
        if not groups:
            return []
        results = await self._client.batch([multi([operation(op) for op in group]) for group in groups], retry=repeat)
        return [
            refused(result) if isinstance(result, KeeperError) else transacted(group, result)
            for group, result in zip(groups, results, strict=True)
        ]

    async def _write(self, ops: Sequence[WriteOp], epoch_version: int) -> list[Written]:
        """Many ops travel in one multi under our fence; if one of them fails, each
        goes for itself."""
        check = fence(epoch_version)
        groups = grouped(ops)
        results = await self._client.batch([multi([check, *map(operation, group)]) for group in groups])
        done: list[Written] = []
        for group, result in zip(groups, results, strict=True):
            if isinstance(result, KeeperError):
                raise_if_moved(result)
                singly = await self._client.batch([multi([check, operation(op)]) for op in group], retry=True)
                for op, outcome in zip(group, singly, strict=True):
                    if isinstance(outcome, KeeperError):
                        raise_if_moved(outcome)
                    written = written_or_failed(op, outcome if isinstance(outcome, KeeperError) else outcome[1])
                    if written.result is WriteResult.FAILED:
                        logger.error("%s failed: %s", op, written.error)
                    done.append(written)
            else:
                done += [written_or_failed(op, outcome) for op, outcome in zip(group, result[1:], strict=True)]
        return done


async def _wait(begin: Callable[[Callable[[Any, Exception | None], None]], None]) -> Any:
    over: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def done(result: Any, error: Exception | None) -> None:
        if over.done():
            return
        if error is None:
            over.set_result(result)
        else:
            over.set_exception(error)

    begin(done)
    return await over


class ZnodeFollower:
    """Reads what a znode says again whenever it has changed: one reading at a time, and another one
    for what changes meanwhile.
    """

    def __init__(
        self,
        path: str,
        read: Callable[[], Awaitable[None]],
        what: str,
        spawn: Callable[[Coroutine[Any, Any, None]], None],
        call_later: CallLater,
    ) -> None:
        """``read`` performs the reading, and watches the znode with `watch_for`. ``what`` is what
        could not be read, for the log."""
        self._path = path
        self._read = read
        self._what = what
        self._spawn = spawn
        self._call_later = call_later
        self._is_reading = False
        self._changed_meanwhile = False

    def watch_for(self, path: str) -> WatchCallback | None:
        """The watch of the znode, for the steps that read it."""
        return self.changed if path == self._path else None

    def changed(self, _event: WatchEvent | None = None) -> None:
        """It may have changed, or is not watched any more."""
        if self._is_reading:
            self._changed_meanwhile = True
            return
        self._is_reading = True
        self._spawn(self._follow())

    async def _follow(self) -> None:
        try:
            again = True
            while again:
                self._changed_meanwhile = False
                await self._read()
                again = self._changed_meanwhile
        except KeeperError as error:
            logger.warning("%s could not be read; trying again: %s", self._what, error)
            self._call_later(_RETRY_MS, self.changed)
        finally:
            self._is_reading = False


async def ensure_top_level_paths(client: CoordinationClient) -> None:
    """Make the permanent znodes, those that are missing, in one round trip."""
    paths: dict[str, None] = {}
    for path in TOP_LEVEL_PATHS:
        names = path.split("/")
        paths.update(dict.fromkeys("/".join(names[: n + 1]) for n in range(1, len(names))))
    for result in await client.batch([create(path) for path in paths], retry=True):
        if isinstance(result, KeeperError) and result.code is not Keeper.NODE_EXISTS:
            raise result


async def ensure_cluster_id(client: CoordinationClient, rng: Random) -> str:
    """The cluster's id; the first broker of all draws it."""
    await client.ensure_path("/cluster")
    made = uuid_text(random_uuid(rng))
    try:
        await client.run(create(CLUSTER_ID, encode_cluster_id(made)), retry=True)
    except KeeperError as error:
        if error.code is not Keeper.NODE_EXISTS:
            raise
    data, _ = await client.get(CLUSTER_ID)
    return decode_cluster_id(data)


async def generate_broker_id(client: CoordinationClient, reserved_max_id: int) -> int:
    """The next broker id above reserved.broker.max.id: the znode's version counts them."""
    stat = await client.set_data(BROKER_SEQUENCE, b"")
    return int(stat.version) + reserved_max_id


def perform_without_broker(
    network: Callable[[], Network],
    servers: str,
    steps: Callable[[], Steps[T]],
    *,
    paths: Sequence[str] = (),
    timeout_ms: int = _WITHOUT_BROKER_MS,
    new_sasl_client: Callable[[], SaslClient] | None = None,
) -> T:
    """Perform steps in the coordination service at ``servers``, a chroot included, and wait.

    The permanent znodes ``paths`` are made first where they are missing. Raises `KeeperError` where
    no server answers in time, by the last failure to connect, and what the steps raise.
    """

    async def perform(client: CoordinationClient) -> T:
        await client.ensure_chroot()
        for path in paths:
            await client.ensure_path(path)
        no_brokers = Channels(-1, network(), request_timeout_ms=timeout_ms)
        interpreter = Interpreter(client, no_brokers, asyncio.ensure_future, runner_here(SystemClock()))
        return await interpreter.perform(steps())

    with BlockingClient(network, servers, rng=new_random(), new_sasl_client=new_sasl_client) as client:
        try:
            client.start(timeout_ms)
        except KeeperError as error:
            raise error from client.client.connection_error
        return client.call(perform)
