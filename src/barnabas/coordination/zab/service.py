"""The edge of an ensemble's member: its connections to the other members, and its way from election to a role and back.

    LOOKING --elected--> LEADING: listen on the quorum port, run a `Leader`
       ^  \\--elected--> FOLLOWING or OBSERVING: connect to the leader, run a `Learner`
       |                                   |
       +------ the role has ended ---------+   close the clients, finish the log, apply what is logged

The server for clients (`barnabas.coordination.server`) gets a `Processor` when a role is established, and loses it when
the role ends. Its log writer takes transactions from `MemberLog`.

At the end of a role the state is that of the log again: what is logged and not committed is applied. The next leader
keeps it or truncates it.

In ZooKeeper: QuorumPeer.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial

from barnabas.base.clock import Clock
from barnabas.base.errors import BarnabasError, ConfigError, CorruptDataError
from barnabas.base.network import Connection, Network
from barnabas.coordination.core.connections import Limits
from barnabas.coordination.core.database import Database
from barnabas.coordination.core.operations.reconfig import leader_operation
from barnabas.coordination.core.processor import Processor
from barnabas.coordination.core.sessions import LearnerSessionTracker, SessionTracker, first_session_id
from barnabas.coordination.quorum.configuration import QuorumConfiguration
from barnabas.coordination.quorum.members import HostAndPort
from barnabas.coordination.quorum.reconfiguration import plan_reconfiguration
from barnabas.coordination.storage.snapshot import read_snapshot_of_leader
from barnabas.coordination.storage.storage import Storage
from barnabas.coordination.zab.catch_up import seek_history
from barnabas.coordination.zab.channels import Elector, FileReads, LearnerConnection, QuorumOutbox
from barnabas.coordination.zab.configurations import Configurations, parse_configuration
from barnabas.coordination.zab.epochs import Epochs
from barnabas.coordination.zab.figures import MemberFigures, leader_figures
from barnabas.coordination.zab.history import COMMIT_LOG_COUNT, CommittedLog
from barnabas.coordination.zab.leader import Leader, LearnerHandler, Timing
from barnabas.coordination.zab.learner import Learner, LearnerPhase
from barnabas.coordination.zab.member_log import ClientService, MemberLog, ReadOnlyForwarder
from barnabas.wire.jute.codec import MalformedRecordError
from barnabas.wire.jute.errors import ErrorCode, KeeperError
from barnabas.wire.jute.opcodes import OpCode
from barnabas.wire.jute.quorum import (
    SNAPSHOT_SIGNATURE,
    PacketReader,
    PacketType,
    QuorumPacket,
    SnapshotScanner,
    decode_forwarded_request,
    decode_revalidation,
    decode_session_answer,
    decode_touched_sessions,
    encode_forwarded_request,
    encode_revalidation,
    encode_session_answer,
    encode_signal,
    encode_touched_sessions,
)
from barnabas.wire.jute.records import Id, ReconfigRequest
from barnabas.wire.jute.transactions import decode_transaction

__all__ = ["QuorumPeer"]

logger = logging.getLogger(__name__)
_CONNECT_PAUSE_S = 0.05
_ROLE_PAUSE_S = 0.05
_FRAMES_HAVE_NO_LENGTH = 4
_READ_ONLY_AFTER_MS = 2000


class _Role:
    """What leading and following have in common."""

    def __init__(self, peer: "QuorumPeer") -> None:
        self.peer = peer
        self.processor: Processor | None = None
        self.ended = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None

    def tick(self) -> None:
        """To be called every half tick."""
        raise NotImplementedError

    def figures(self) -> dict[str, object]:
        """The role's own figures, by the names of `mntr`."""
        raise NotImplementedError

    def disk_failed(self, error: OSError) -> None:
        """An epoch could not be written: what is on the disk is unknown, so the server stops."""
        self.ended.set()
        self.peer.service.member_failed(error)

    def _tick(self) -> None:
        self.tick()
        if not self.ended.is_set():
            self.start_timer()

    def start_timer(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self.peer.timing.tick_ms / 2000, self._tick)

    def stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


class _Leading(_Role):
    """The leader's environment."""

    def __init__(self, peer: "QuorumPeer") -> None:
        super().__init__(peer)
        self.in_thread = FileReads(peer.executor)
        last_zxid, now_ms = peer.database.last_zxid, peer.now_ms()
        self._since_ms = now_ms
        self._planned: tuple[int, QuorumConfiguration] | None = None
        """A reconfiguration that is decided and not proposed yet, with its zxid."""
        self.leader = Leader(
            peer.my_id,
            peer.configuration,
            peer.epochs,
            peer.history,
            last_zxid,
            peer.timing,
            self,
            now_ms,
            following=peer.configurations.following,
            can_reconfigure=peer.configurations.can_reconfigure,
        )

    def figures(self) -> dict[str, object]:
        return leader_figures(self.leader, self.peer.now_ms() - self._since_ms)

    async def run(self) -> None:
        """Lead until it ends."""
        peer = self.peer
        me = peer.configurations.server(peer.my_id)
        if me is None:
            logger.warning("This server was elected, and the configuration does not name it")
            return
        address = me.quorum_address
        host = "" if peer.listen_on_all else address.host
        try:
            listener = await peer.network.listen(
                host,
                address.port,
                partial(LearnerConnection, self.leader, self),
                max_frame_bytes=_FRAMES_HAVE_NO_LENGTH,
            )
        except OSError as error:
            raise ConfigError(f"cannot listen on the quorum port {address}: {error.strerror or error}") from error
        try:
            peer.log.on_logged = self.leader.logged
            self.leader.discover()
            self.start_timer()
            await self.ended.wait()
        finally:
            self.stop_timer()
            await listener.close()
            self.propose()
            self.leader.close()

    @property
    def database(self) -> Database:
        return self.peer.database

    @property
    def max_packet_bytes(self) -> int:
        return self.peer.max_packet_bytes

    def now_ms(self) -> int:
        return self.peer.now_ms()

    def tick(self) -> None:
        self.leader.tick(self.peer.now_ms())

    def serve(self, first_zxid: int) -> None:
        peer = self.peer
        peer.database.last_zxid = first_zxid
        now_ms = peer.now_ms()
        tracker = SessionTracker(peer.timing.tick_ms, peer.first_session_id(), now_ms)
        reconfig = leader_operation(self._plan, self._proposed) if peer.configurations.can_reconfigure else None
        self.processor = Processor(peer.database, tracker, peer.limits, now_ms, reconfig=reconfig)
        peer.serve(self.processor, "leader")

    # Reconfiguration

    def _plan(self, request: ReconfigRequest, zxid: int) -> QuorumConfiguration:
        if self.leader.quorums.is_reconfiguring or self._planned is not None:
            raise KeeperError(ErrorCode.RECONFIG_IN_PROGRESS)
        peer = self.peer
        planned = plan_reconfiguration(request, peer.configuration, zxid, least_voters=peer.least_voters)
        followers = {each.server_id for each in self.leader.handlers if each.is_participant and each.is_synced}
        if not planned.verifier.contains_quorum(followers | {peer.my_id}):
            logger.warning("Reconfig failed - there must be a connected and synced quorum in new configuration")
            raise KeeperError(ErrorCode.NEW_CONFIG_NO_QUORUM)
        return planned

    def _proposed(self, zxid: int, configuration: QuorumConfiguration) -> None:
        self._planned = zxid, configuration

    def see(self, configuration: QuorumConfiguration) -> None:
        self.peer.configurations.see(configuration)

    def activate(self, configuration: QuorumConfiguration, leader_id: int) -> None:
        self.peer.configurations.activate(configuration, leader_id, self.peer.my_id)

    def propose(self) -> None:
        """Broadcast and log what the processor has decided."""
        processor = self.processor
        if processor is None or not processor.unlogged:
            return
        first_zxid = processor.first_unlogged_zxid
        payloads, processor.unlogged = processor.unlogged, []
        log = self.peer.log
        for zxid, payload in enumerate(payloads, first_zxid):
            log.add(zxid, payload)
        if self._planned is not None:
            planned, self._planned = self._planned, None
            try:
                self.leader.reconfigure(*planned)
            except OSError as error:
                self.disk_failed(error)
                return
        self.leader.propose(first_zxid, payloads)

    def seek_history(self, handler: LearnerHandler, zxid: int) -> bool:
        factor, found = self.peer.snapshot_size_factor, partial(self.leader.history_sought, handler)
        if factor >= 0:
            seek_history(partial(self.peer.storage.history_behind, zxid, factor), self.in_thread, found)
        return factor >= 0

    def commit(self, count: int) -> None:
        assert self.processor is not None
        self.processor.commit(count, self.peer.now_ms())

    def received(self, handler: LearnerHandler, packet: QuorumPacket) -> None:
        processor, peer = self.processor, self.peer
        assert processor is not None
        now_ms = peer.now_ms()
        if packet.type == PacketType.PING:
            tracker = processor.tracker
            for session_id, _ in decode_touched_sessions(packet):
                if (session := tracker.live(session_id)) is not None:
                    tracker.touch(session, now_ms)
        elif packet.type == PacketType.REVALIDATE:
            session_id, timeout_ms = decode_revalidation(packet)
            peer.counts.revalidations += 1
            is_alive = processor.revalidate(handler, session_id, timeout_ms, now_ms)
            handler.link.send(encode_session_answer(session_id, is_alive))
        else:
            request = decode_forwarded_request(packet)
            if request.opcode == OpCode.SYNC:
                self.propose()
                self.leader.sync(lambda: handler.link.send(encode_signal(PacketType.SYNC, 0)))
            else:
                processor.propose_forwarded(handler, request, packet.authinfo or [], now_ms, peer.clock.wall_ms())
                peer.service.wake_log()

    def resign(self, reason: str) -> None:  # noqa: ARG002  # the leader has logged it
        self.ended.set()

    def fast_forward(self) -> None:
        """Apply what is logged and not committed."""
        for zxid, payload in self.leader.uncommitted:
            self.peer.history.add(zxid, payload)
        if self.processor is not None:
            self.processor.commit(self.processor.outstanding, self.peer.now_ms())


class _Following(_Role):
    """The learner's environment, its connection, and the forwarder of its processor."""

    is_read_only = False

    def __init__(self, peer: "QuorumPeer", leader_id: int) -> None:
        super().__init__(peer)
        self._leader_id = leader_id
        self._connection: Connection | None = None
        self._outbox: QuorumOutbox | None = None
        self._reader = PacketReader(peer.max_packet_bytes)
        self._scanner: SnapshotScanner | None = None
        self._snapshot_zxid = 0
        self._heard_ms = peer.now_ms()
        self._tracker: LearnerSessionTracker | None = None
        self._replacing: asyncio.Task[None] | None = None
        self.is_observer = peer.configurations.is_observer
        self.learner = Learner(
            peer.my_id,
            peer.configuration.version,
            peer.epochs,
            peer.database.last_zxid,
            self,
            is_observer=self.is_observer,
        )

    def figures(self) -> dict[str, object]:
        state = f"{'observing' if self.is_observer else 'following'} - {self.learner.phase.value}"
        return {"peer_state": state, "synced_observers": 0}

    async def run(self) -> None:
        """Follow until it ends."""
        peer = self.peer
        leader = peer.configurations.server(self._leader_id)
        if leader is None:
            logger.warning("The configuration does not name the leader, server %d", self._leader_id)
            return
        connection = await self._connect(leader.quorum_address)
        if connection is None:
            return
        try:
            peer.log.on_logged = self.learner.logged
            self.learner.start()
            self.start_timer()
            await self.ended.wait()
        finally:
            self.stop_timer()
            self.learner.close()
            connection.close()
            if self._replacing is not None:
                with contextlib.suppress(asyncio.CancelledError):
                    await self._replacing

    async def _connect(self, address: HostAndPort) -> Connection | None:
        """Connect to the leader, which may not listen yet."""
        peer = self.peer
        deadline_ms = peer.now_ms() + peer.timing.init_ms
        while True:
            left_ms = deadline_ms - peer.now_ms()
            try:
                return await peer.network.connect(
                    address.host,
                    address.port,
                    self._connected,
                    max_frame_bytes=_FRAMES_HAVE_NO_LENGTH,
                    timeout_ms=max(1, min(left_ms, peer.timing.sync_ms)),
                )
            except OSError as error:
                if peer.now_ms() + _CONNECT_PAUSE_S * 1000 >= min(deadline_ms, self._heard_ms + peer.patience_ms):
                    logger.warning("Cannot connect to the leader, server %d at %s: %s", self._leader_id, address, error)
                    return None
            await asyncio.sleep(_CONNECT_PAUSE_S)

    def _connected(self, connection: Connection) -> "_Following":
        connection.is_stream = True
        self._connection = connection
        self._outbox = QuorumOutbox(connection)
        return self

    def tick(self) -> None:
        timing = self.peer.timing
        is_broadcast = self.learner.phase is LearnerPhase.BROADCAST
        limit_ms = timing.sync_ms if is_broadcast else timing.init_ms
        if self._replacing is None and self.peer.now_ms() - self._heard_ms > limit_ms:
            self.fail(f"the leader was not heard for {limit_ms} ms")

    # From the network

    def frame(self, data: memoryview) -> None:
        self._heard_ms = self.peer.now_ms()
        try:
            if self._scanner is not None:
                self._scan(data)
            else:
                self._reader.feed(data)
                self._read()
        except (MalformedRecordError, CorruptDataError) as error:
            self.fail(f"the leader sent what cannot be read: {error}")
        except OSError as error:
            self.disk_failed(error)

    def _read(self) -> None:
        packets = self._reader.packets()
        if packets and packets[-1].type == PacketType.SNAP:
            snapshot = packets.pop()
            self.learner.packets(packets)
            if not self.learner.expects_snapshot(snapshot):
                self.fail("the leader sent a snapshot in the middle")
                return
            self._snapshot_zxid = snapshot.zxid
            self._scanner = SnapshotScanner()
            self._scan(self._reader.take_all())
        else:
            self.learner.packets(packets)

    def _scan(self, data: memoryview | bytearray) -> None:
        scanner = self._scanner
        assert scanner is not None
        end = scanner.feed(data)
        if end is not None:
            self._scanner = None
            self._reader.feed(memoryview(scanner.data)[end:])
            state = bytes(memoryview(scanner.data)[: end - len(SNAPSHOT_SIGNATURE)])
            zxid = self._snapshot_zxid
            self._replace(lambda: self.peer.install(state, zxid))

    def bad_length(self, prefix: bytes) -> None: ...  # a stream has no lengths

    def closed(self, error: Exception | None) -> None:
        self.fail(f"the connection to the leader is closed ({error or 'by it or by us'})")

    # From the learner

    def send(self, data: bytes) -> None:
        if self._outbox is not None and data:
            self._outbox.send(data)

    def truncate(self, zxid: int) -> None:
        self._replace(lambda: self.peer.truncate(zxid))

    def _replace(self, work: Callable[[], tuple[Database, CommittedLog]]) -> None:
        self._replacing = asyncio.get_running_loop().create_task(self._replace_state(work))

    async def _replace_state(self, work: Callable[[], tuple[Database, CommittedLog]]) -> None:
        peer = self.peer
        try:
            await peer.log_is_idle()
            database, history = await asyncio.get_running_loop().run_in_executor(peer.executor, work)
        except (OSError, BarnabasError) as error:
            self.fail(f"the state of the leader cannot be taken over: {error}")
            peer.service.member_failed(error)
            return
        peer.database, peer.history = database, history
        self._replacing = None
        self._heard_ms = peer.now_ms()
        self.learner.replaced()
        try:
            self._read()
        except MalformedRecordError as error:
            self.fail(f"the leader sent what cannot be read: {error}")
        except OSError as error:
            self.disk_failed(error)

    def log(self, zxid: int, payload: bytes) -> None:
        self.peer.log.add(zxid, payload)
        self.peer.service.wake_log()

    def apply(self, zxid: int, payload: bytes) -> None:
        peer = self.peer
        header, txn, digest = decode_transaction(payload)
        before = peer.database.digest_mismatches
        if self.processor is not None:
            self.processor.apply(header, txn, digest, peer.now_ms())
        else:
            peer.database.apply(header, txn, digest)
        peer.history.add(zxid, payload)
        if peer.database.digest_mismatches == 1 and not before:
            logger.error("The digest of transaction 0x%x does not match the tree: it differs from the leader's", zxid)

    def serve(self, first_zxid: int) -> None:
        peer = self.peer
        database = peer.database
        database.last_zxid = max(database.last_zxid, first_zxid)
        # A snapshot of the leader may have been ahead of its zxid; what comes from now on is not in it.
        database.exact_from_zxid = database.last_zxid + 1
        self._tracker = LearnerSessionTracker(peer.first_session_id())
        self.processor = Processor(peer.database, self._tracker, peer.limits, peer.now_ms(), self)
        peer.serve(self.processor, "observer" if self.is_observer else "follower")

    def received(self, packet: QuorumPacket) -> None:
        assert self.processor is not None
        assert self._tracker is not None
        if packet.type == PacketType.PING:
            self.send(encode_touched_sessions(packet.zxid, self._tracker.take_touched()))
        elif packet.type == PacketType.SYNC:
            self.processor.synced(self.peer.now_ms())
        else:
            self.processor.revalidated(*decode_session_answer(packet), self.peer.now_ms())

    def see(self, configuration: bytes | None) -> None:
        configurations = self.peer.configurations
        if configuration and configurations.can_reconfigure:
            configurations.see(parse_configuration(configuration))

    def activate(self, configuration: bytes | None, leader_id: int | None) -> bool:
        configurations = self.peer.configurations
        if not configuration:
            return False
        if not configurations.can_reconfigure:
            if leader_id is not None:
                logger.error(
                    "The ensemble is reconfigured: restart this server with the new lines and reconfigEnabled=true"
                )
            return leader_id is not None
        return configurations.activate(parse_configuration(configuration), leader_id, self._leader_id)

    def fail(self, reason: str) -> None:
        if not self.ended.is_set():
            logger.warning("Shutting down as follower of server %d: %s", self._leader_id, reason)
            self.learner.close()
            self.ended.set()

    # From the processor

    def forward(self, session_id: int, xid: int, opcode: int, body: bytes, ids: list[Id]) -> None:
        self.send(encode_forwarded_request(session_id, xid, opcode, body, ids))

    def revalidate(self, session_id: int, timeout_ms: int) -> None:
        self.send(encode_revalidation(session_id, timeout_ms))

    def fast_forward(self) -> None:
        """Apply what is logged and not committed."""
        self.processor = None
        for zxid, payload in self.learner.uncommitted:
            self.apply(zxid, payload)


class QuorumPeer:
    """A member of an ensemble."""

    def __init__(
        self,
        my_id: int,
        configurations: Configurations,
        timing: Timing,
        limits: Limits,
        storage: Storage,
        service: ClientService,
        *,
        network: Network,
        clock: Clock,
        executor: Executor | None,
        max_packet_bytes: int,
    ) -> None:
        self.my_id = my_id
        self.configurations = configurations
        configurations.on_change = self._configuration_changed
        self.least_voters = 2
        """How many voters a configuration must have; 1 where an ensemble of one is allowed."""
        self.timing = timing
        self.limits = limits
        self.service = service
        self.network = network
        self.clock = clock
        self.executor = executor
        self.max_packet_bytes = max_packet_bytes
        self.commit_log_count = COMMIT_LOG_COUNT  # for `load`
        self.listen_on_all = False
        self.reads_without_quorum = False
        self.patience_ms = min(timing.init_ms, 3000)
        """How long to try to reach an elected leader."""
        self._is_log_idle = asyncio.Event()
        self._is_log_idle.set()
        self.counts = MemberFigures()
        self.log = MemberLog(self._log_changed)
        self.history = CommittedLog()
        self.database: Database
        self.epochs: Epochs
        self.snapshot_size_factor = 0.33  # as in `Storage.history_behind`; negative for no history
        self.storage = storage
        self._role: _Leading | _Following | None = None
        self._task: asyncio.Task[None] | None = None
        self._elector: Elector | None = None

    def figures(self) -> dict[str, object]:
        """What monitors ask of a member, by the names of `mntr`."""
        role = self._role.figures() if self._role is not None else {"peer_state": "looking"}
        return {**self.counts.values(), "quorum_size": len(self.configuration.voters), **role}

    @property
    def configuration(self) -> QuorumConfiguration:
        """The configuration in force."""
        return self.configurations.current

    def _configuration_changed(self) -> None:
        if self._elector is not None:
            self._elector.reconfigure(self.configurations.current, self.configurations.following)
        self.service.reconfigured()

    def now_ms(self) -> int:
        return self.clock.monotonic_ms()

    def _log_changed(self, is_idle: bool) -> None:
        if is_idle:
            self._is_log_idle.set()
        else:
            self._is_log_idle.clear()

    async def log_is_idle(self) -> None:
        """Wait until everything is on stable storage."""
        await self._is_log_idle.wait()

    def first_session_id(self) -> int:
        """Where the sessions that are created here begin."""
        return first_session_id(self.my_id, self.clock.wall_ms())

    def load(self) -> tuple[Database, int]:
        """Read the state; the number of transactions replayed. Raises `BarnabasError` and OSError."""
        self.history = CommittedLog(self.commit_log_count)
        self.database, replayed = self.storage.load(self.history.add)
        self.epochs = Epochs(self.storage.files, self.storage.snapshots_dir, self.database.last_zxid)
        return self.database, replayed

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

    def serve(self, processor: Processor, mode: str) -> None:
        """The role is established: serve clients with its processor."""
        if self._elector is not None:
            self._elector.establish_epoch(self.epochs.current)
        self.service.serve(processor, mode)

    def adopt(self, configuration: QuorumConfiguration) -> None:
        """Another member has a newer configuration; without reconfigEnabled with the same members."""
        if self.configurations.can_reconfigure:
            try:
                self.configurations.activate(configuration, None, None)
            except OSError as error:
                self.service.member_failed(error)
            return
        self.configurations.adopt_version(configuration)
        if isinstance(self._role, _Leading):
            self._role.leader.quorums.current = configuration

    def propose(self) -> None:
        """Take what the leader's processor has decided; a learner's decides nothing."""
        if isinstance(self._role, _Leading):
            self._role.propose()

    async def _run(self, elector: Elector) -> None:
        try:
            while True:
                self.epochs.reach(self.database.last_zxid)
                leader_id = self.configurations.take_suggested_leader()
                if leader_id is None:
                    leader_id = await self._elect(elector)
                else:
                    elector.designate(leader_id, self.database.last_zxid, self.epochs.current)
                await self._take_role(leader_id)
                await asyncio.sleep(_ROLE_PAUSE_S)
        except (OSError, BarnabasError) as error:
            self.service.member_failed(error)

    async def _elect(self, elector: Elector) -> int:
        """Elect; meanwhile serve reads to clients that accept this, if it is configured and the election lasts."""
        timer: asyncio.TimerHandle | None = None
        if self.reads_without_quorum:
            delay_ms = max(self.timing.tick_ms, _READ_ONLY_AFTER_MS)
            timer = asyncio.get_running_loop().call_later(delay_ms / 1000, self._serve_read_only)
        began_ms = self.now_ms()
        try:
            leader_id = await elector.elect(self.database.last_zxid, self.epochs.current)
            self.counts.elected(self.now_ms() - began_ms)
            return leader_id
        finally:
            if timer is not None:
                timer.cancel()
                self.service.stop_serving()

    def _serve_read_only(self) -> None:
        tracker = LearnerSessionTracker(self.first_session_id())
        self.service.serve(
            Processor(self.database, tracker, self.limits, self.now_ms(), ReadOnlyForwarder()), "read-only"
        )

    async def _take_role(self, leader_id: int) -> None:
        role: _Leading | _Following
        if leader_id == self.my_id:
            role = _Leading(self)
        else:
            role = _Following(self, leader_id)
        self._role = role
        try:
            await role.run()
        finally:
            self._role = None
            self.service.stop_serving()
            self.service.wake_log()
        await self.log_is_idle()
        self.log.on_logged = lambda _: None
        role.fast_forward()

    def truncate(self, zxid: int) -> tuple[Database, CommittedLog]:
        """Cut the log, and read the state again; in a thread."""
        self.storage.truncate(zxid)
        history = CommittedLog(self.commit_log_count)
        database, _ = self.storage.load(history.add)
        return database, history

    def install(self, state: bytes, zxid: int) -> tuple[Database, CommittedLog]:
        """Replace the state by the leader's, on disk first; in a thread."""
        database = read_snapshot_of_leader(state, zxid)
        database.exact_from_zxid = 1 << 63
        self.storage.replace(database)
        return database, CommittedLog(self.commit_log_count)
