"""The edge of an ensemble's member: its connections to the other members, and its way from
election to a role and back.

    LOOKING --elected--> LEADING: listen on the quorum port, run a `LeaderServer`
       ^  \\--elected--> FOLLOWING or OBSERVING: connect to the leader, run a `LearnerServer`
       |                                   |
       +------ the role has ended ---------+   close the clients, finish the log,
                                               apply what is logged

The server for clients (`barnabas.coordination.server`) gets a `Processor` when a role is
established, and loses it when the role ends. Its log writer takes transactions from `MemberLog`.

In ZooKeeper: QuorumPeer.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial

from barnabas.base.errors import BarnabasError, ConfigError
from barnabas.base.network import Connection, FrameHandler, Network
from barnabas.base.task_futures import result_of
from barnabas.coordination.core.metric_table import CoordinationMetrics
from barnabas.coordination.core.processor import Processor
from barnabas.coordination.core.sessions import LearnerSessionTracker
from barnabas.coordination.quorum.configuration import QuorumConfiguration
from barnabas.coordination.quorum.members import HostAndPort
from barnabas.coordination.zab.channels import Elector, FileReads, LearnerConnection, QuorumOutbox
from barnabas.coordination.zab.figures import QuorumState
from barnabas.coordination.zab.leader_server import LeaderServer
from barnabas.coordination.zab.learner import LearnerPhase
from barnabas.coordination.zab.learner_server import LearnerServer
from barnabas.coordination.zab.member import EnsembleMember
from barnabas.coordination.zab.member_log import ReadOnlyForwarder
from barnabas.coordination.zab.phases import log_phase

__all__ = ["QuorumPeer"]

logger = logging.getLogger(__name__)
_CONNECT_PAUSE_S = 0.05
_ROLE_PAUSE_S = 0.05
_FRAMES_HAVE_NO_LENGTH = 4
_READ_ONLY_AFTER_MS = 2000


class _Ticks:
    """Calls a role every half tick."""

    def __init__(self, tick_ms: int) -> None:
        self._period_s = tick_ms / 2000
        self._timer: asyncio.TimerHandle | None = None

    def start(self, tick: Callable[[], None]) -> None:
        def ticked() -> None:
            self.start(tick)
            tick()

        self._timer = asyncio.get_running_loop().call_later(self._period_s, ticked)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


class QuorumPeer:
    """Runs a `EnsembleMember` through elections and roles."""

    def __init__(self, member: EnsembleMember, *, network: Network, executor: Executor | None) -> None:
        self.member = member
        member.on_serving = self._establish_epoch
        member.log.on_idle = self._log_changed
        member.configurations.on_change = self._configuration_changed
        self._network = network
        self._executor = executor
        self.listen_on_all = False
        self.reads_without_quorum = False
        self._patience_ms = min(member.timing.init_ms, 3000)
        """How long to try to reach an elected leader."""
        self._is_log_idle = asyncio.Event()
        self._is_log_idle.set()
        self._role: LeaderServer | LearnerServer | None = None
        self._task: asyncio.Task[None] | None = None
        self._elector: Elector | None = None

    def figures(self) -> dict[str, object]:
        """What monitors ask of a member, by the names of `mntr`."""
        role = self._role.figures() if self._role is not None else {"peer_state": "looking"}
        member = self.member
        return {CoordinationMetrics.QUORUM_SIZE.name: len(member.configuration.voters), **role}

    def state(self) -> QuorumState:
        """What this server knows of its ensemble."""
        member, role = self.member, self._role
        observers = role.observers if isinstance(role, LeaderServer) else ()
        leader_id, phase = (role.leader_id, role.phase) if role is not None else (-1, "election")
        return QuorumState(member.configuration, member.my_id, leader_id, phase, observers)

    def start(self, elector: Elector) -> None:
        """Begin to elect; the state is loaded."""
        self._elector = elector
        self._task = asyncio.get_running_loop().create_task(self._run(elector))

    async def close(self) -> None:
        """Leave the role and stop."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    def adopt(self, configuration: QuorumConfiguration) -> None:
        """Another member has a newer configuration.

        Without reconfigEnabled with the same members."""
        configurations = self.member.configurations
        if configurations.can_reconfigure:
            try:
                configurations.activate(configuration, None, None)
            except OSError as error:
                self.member.service.member_failed(error)
            return
        configurations.adopt_version(configuration)
        if isinstance(self._role, LeaderServer):
            self._role.adopt(configuration)

    def propose(self) -> None:
        """Take what the leader's processor has decided; a learner's decides nothing."""
        if isinstance(self._role, LeaderServer):
            self._role.propose()

    # What the member reports

    def _establish_epoch(self) -> None:
        if self._elector is not None:
            self._elector.establish_epoch(self.member.epochs.current)

    def _configuration_changed(self) -> None:
        if self._elector is not None:
            configurations = self.member.configurations
            self._elector.reconfigure(configurations.current, configurations.following)
        self.member.service.reconfigured()

    def _log_changed(self, is_idle: bool) -> None:
        if is_idle:
            self._is_log_idle.set()
        else:
            self._is_log_idle.clear()

    async def _log_is_idle(self) -> None:
        """Wait until everything is on stable storage."""
        await self._is_log_idle.wait()

    # Elections

    async def _run(self, elector: Elector) -> None:
        member = self.member
        try:
            while True:
                member.epochs.reach(member.database.last_zxid)
                leader_id = member.configurations.take_suggested_leader()
                if leader_id is None:
                    leader_id = await self._elect(elector)
                else:
                    elector.designate(leader_id, member.database.last_zxid, member.epochs.current)
                await self._take_role(leader_id)
                await asyncio.sleep(_ROLE_PAUSE_S)
        except (OSError, BarnabasError) as error:
            member.service.member_failed(error)

    async def _elect(self, elector: Elector) -> int:
        """Elect; meanwhile serve reads to clients that accept this, if it is
        configured and the election lasts."""
        member = self.member
        timer: asyncio.TimerHandle | None = None
        if self.reads_without_quorum:
            delay_ms = max(member.timing.tick_ms, _READ_ONLY_AFTER_MS)
            timer = asyncio.get_running_loop().call_later(delay_ms / 1000, self._serve_read_only)
        member.counts.looking(member.now_ms())
        try:
            leader_id = await elector.elect(member.database.last_zxid, member.epochs.current)
            member.counts.elected(member.now_ms())
            return leader_id
        finally:
            if timer is not None:
                timer.cancel()
                member.service.stop_serving()

    def _serve_read_only(self) -> None:
        member = self.member
        tracker = LearnerSessionTracker(member.first_session_id())
        forwarder, metrics = ReadOnlyForwarder(), member.metrics
        processor = Processor(
            member.database, tracker, member.limits, member.now_ms(), forwarder, metrics=metrics, runner=member.runner
        )
        member.service.serve(processor, "read-only")

    # Roles

    async def _take_role(self, leader_id: int) -> None:
        member = self.member
        role = await (self._lead() if leader_id == member.my_id else self._follow(leader_id))
        await self._log_is_idle()
        member.log.on_logged = lambda _: None
        await result_of(member.commits, role.fast_forward())

    def _role_ended(self) -> None:
        self._role = None
        self.member.service.stop_serving()
        self.member.service.wake_log()

    async def _lead(self) -> LeaderServer:
        """Lead until it ends."""
        ended = asyncio.Event()
        role = self._role = LeaderServer(self.member, FileReads(self._executor), ended.set)
        try:
            me = self.member.configurations.server(self.member.my_id)
            if me is None:
                logger.warning("This server was elected, and the configuration does not name it")
            else:
                await self._serve_learners(role, me.quorum_address, ended)
        finally:
            self._role_ended()
        return role

    async def _serve_learners(self, role: LeaderServer, address: HostAndPort, ended: asyncio.Event) -> None:
        try:
            listener = await self._network.listen(
                "" if self.listen_on_all else address.host,
                address.port,
                partial(LearnerConnection, role.leader, role),
                max_frame_bytes=_FRAMES_HAVE_NO_LENGTH,
            )
        except OSError as error:
            raise ConfigError(f"cannot listen on the quorum port {address}: {error.strerror or error}") from error
        ticks = _Ticks(self.member.timing.tick_ms)
        log_phase("leading", role.phase)
        try:
            role.start()
            ticks.start(role.tick)
            await ended.wait()
        finally:
            ticks.stop()
            await listener.close()
            role.close()

    async def _follow(self, leader_id: int) -> LearnerServer:
        """Follow until it ends."""
        ended = asyncio.Event()
        in_thread = FileReads(self._executor, self._log_is_idle)
        role = self._role = LearnerServer(self.member, leader_id, in_thread, ended.set)
        ticks = _Ticks(self.member.timing.tick_ms)
        role.learner.enter(LearnerPhase.DISCOVERY)
        try:
            connection = await self._connect(role, leader_id)
            if connection is None:
                return role
            try:
                role.start()
                ticks.start(role.tick)
                await ended.wait()
            finally:
                ticks.stop()
                role.close()
                connection.close()
                await in_thread.wait()
        finally:
            self._role_ended()
        return role

    async def _connect(self, role: LearnerServer, leader_id: int) -> Connection | None:
        """Connect to the leader, which may not listen yet."""
        member = self.member
        leader = member.configurations.server(leader_id)
        if leader is None:
            logger.warning("The configuration does not name the leader, server %d", leader_id)
            return None
        address = leader.quorum_address

        def connected(connection: Connection) -> FrameHandler:
            connection.is_stream = True
            outbox = QuorumOutbox(connection)
            role.send, role.pause, role.resume = outbox.send, connection.pause, connection.resume
            return role

        deadline_ms = member.now_ms() + member.timing.init_ms
        while True:
            left_ms = deadline_ms - member.now_ms()
            try:
                return await self._network.connect(
                    address.host,
                    address.port,
                    connected,
                    max_frame_bytes=_FRAMES_HAVE_NO_LENGTH,
                    timeout_ms=max(1, min(left_ms, member.timing.sync_ms)),
                )
            except PermissionError as error:  # trying again does not help
                logger.warning("Cannot follow the leader, server %d at %s: %s", leader_id, address, error)
                return None
            except OSError as error:
                if member.now_ms() + _CONNECT_PAUSE_S * 1000 >= min(deadline_ms, role.heard_ms + self._patience_ms):
                    logger.warning("Cannot connect to the leader, server %d at %s: %s", leader_id, address, error)
                    return None
            await asyncio.sleep(_CONNECT_PAUSE_S)
