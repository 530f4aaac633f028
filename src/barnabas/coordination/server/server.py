"""The edge of the coordination server: connections, timers, and the threads that write files.

One event loop runs the `Processor`; a thread logs its transactions (`SyncRequestProcessor`).
Replies are collected while the loop works on the requests that have arrived, and each connection
sends them in one piece.

`SERVER_TRANSITIONS` in `server_state` says which states a server has, and what moves it from one to
another.

In ZooKeeper: ZooKeeperServer and NIOServerCnxnFactory.
"""

import asyncio
import logging
import os
import pwd
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial

from barnabas.base.clock import Clock, SystemClock
from barnabas.base.errors import BarnabasError, ConfigError
from barnabas.base.files import Files, OsFiles
from barnabas.base.network import Connection, FrameHandler, Network
from barnabas.base.randomness import Random, new_random
from barnabas.base.settings import Values
from barnabas.base.tasks import Runner, Task
from barnabas.base.threads import InThread, WorkerThread
from barnabas.coordination.core.commit_pieces import MOST_CHANGES, CommitPieces
from barnabas.coordination.core.connections import Limits, ServerConnection
from barnabas.coordination.core.database import Database
from barnabas.coordination.core.operations.reconfig import ALONE
from barnabas.coordination.core.processor import Processor
from barnabas.coordination.core.sessions import SessionTracker, first_session_id
from barnabas.coordination.election.peers import ElectionPeers
from barnabas.coordination.quorum.channels import AuthenticatedNetwork
from barnabas.coordination.server.assembly import MemberAssembly, client_limits
from barnabas.coordination.server.channels import ClientPorts, networks
from barnabas.coordination.server.client_connections import ClientConnections
from barnabas.coordination.server.client_transport import ClientTransport
from barnabas.coordination.server.peer_config import PeerConfig, read_peer_config
from barnabas.coordination.server.server_metrics import ServerMetrics
from barnabas.coordination.server.server_state import ServerEvent, ServerState, ServerStates
from barnabas.coordination.server.settings import LEAST_SNAPSHOTS
from barnabas.coordination.server.snapshot_schedule import SnapshotSchedule
from barnabas.coordination.server.sync_request_processor import Entries, SyncRequestProcessor
from barnabas.coordination.server.view import ServerFigures, ServerView
from barnabas.coordination.storage.service import SnapshotService
from barnabas.coordination.storage.storage import Storage
from barnabas.coordination.zab.channels import Elector
from barnabas.coordination.zab.service import QuorumPeer

__all__ = ["CoordinationServer"]

logger = logging.getLogger(__name__)
_SERVER_ID = 0  # a server alone has no myid
# What takes the place of myid in session ids, in ZooKeeper's standalone server too.
_SESSION_SERVER_ID = 1


def _snapshot_service(
    storage: Storage,
    executor: Executor | None,
    database: Callable[[], Database],
    schedule: SnapshotSchedule,
    metrics: ServerMetrics,
    clock: Clock,
) -> SnapshotService:
    return SnapshotService(
        storage,
        executor,
        database,
        now_ms=clock.monotonic_ms,
        on_begin=schedule.restart,
        on_written=lambda zxid, took_ms: metrics.snapshot_written(zxid, took_ms, clock.wall_ms()),
    )


def _append(storage: Storage, first_zxid: int, entries: Entries, roll: bool) -> None:
    """Log a batch, in the thread."""
    if roll:
        storage.log.roll()
    storage.log.append(first_zxid, entries)


def _in_no_thread(*_: object) -> None:
    raise AssertionError("the lists of a coordination server wait for no thread")


def _runner(clock: Clock) -> Runner:
    """For commits, and for long lists that operators ask for. Neither waits for a disk."""

    def call_later(delay_ms: int, work: Callable[[], object]) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(delay_ms / 1000, work)

    return Runner(clock, call_later, _in_no_thread)


def _user() -> str:
    """The user that this process runs as; not what the environment says, which anyone may set."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:  # a number without a name, as in containers
        return str(os.geteuid())


class CoordinationServer:
    """A ZooKeeper server, alone or a member of an ensemble, on the running event loop.

    ``settings`` are those of `barnabas.coordination.server.settings.parse_settings`, and
    ``config_path`` is the absolute path of the zoo.cfg that they come from, which a reconfiguration
    rewrites. ``peer_config`` is what `read_peer_config` makes of the settings; `start` calls it if
    it is not given. `port` is the real port after `start`.
    """

    snapshots: SnapshotService
    """There from `start` on."""
    processor: Processor
    """What serves clients, in the present role or state. There from `start` on."""
    _limits: Limits
    _commits: CommitPieces
    _sync: SyncRequestProcessor

    def __init__(
        self,
        settings: Values,
        *,
        config_path: str | None = None,
        peer_config: PeerConfig | None = None,
        files: Files | None = None,
        clock: Clock | None = None,
        rng: Random | None = None,
        network: Network | None = None,
        executor: Executor | None = None,
        elector: Elector | None = None,
    ) -> None:
        self._config_path = config_path
        self._settings = settings
        self._peer_config = peer_config
        self._files = files or OsFiles()
        self._clock = clock or SystemClock()
        self._rng = rng or new_random()
        self._network, client_network = (network, network) if network is not None else networks(settings)
        self._executor = executor
        self._own_executor: ThreadPoolExecutor | None = None
        self._log_thread: WorkerThread | None = None
        self._storage = Storage(
            self._files,
            settings["dataDir"],
            settings["dataLogDir"] or settings["dataDir"],
            preallocate_bytes=settings["preAllocSize"] * 1024,
            sync=settings["forceSync"] == "yes",
            max_log_file_bytes=max(settings["txnLogSizeLimitInKb"], 0) * 1024,
        )
        self._quorum_peer: QuorumPeer | None = None
        self._elector = elector
        self._election_peers: ElectionPeers | None = None
        self.mode = "standalone"
        """The role in which clients are served, as in the four-letter word ``srvr``."""
        self._server_id = _SERVER_ID
        self._states = ServerStates()
        self._ports = ClientPorts(client_network, self._accept)
        self._flushing: list[ClientTransport] = []
        self._failure: asyncio.Future[None] | None = None
        self._timers: list[asyncio.TimerHandle] = []
        self._schedule = SnapshotSchedule(settings["snapCount"], settings["snapSizeLimitInKb"] * 1024, self._rng)
        self._last_sweep_ms = 0
        self._last_purge_ms = 0
        self._started_ms = self._clock.monotonic_ms()
        self._metrics = ServerMetrics()
        self.runner = _runner(self._clock)
        self._commit_runner = self.runner.apart()
        self.piece_changes = MOST_CHANGES
        """How many changes are committed in one piece."""
        self._ends = self.runner.apart().lane()
        """Ends the sessions and nodes that are due, whatever long lists people ask for."""
        self._connections = ClientConnections(settings, self._metrics)

    # Starting and stopping

    @property
    def port(self) -> int:
        """The port that clients connect to; -1 if there is only one with TLS."""
        assert self._states.is_open, "the server is not started"
        return self._ports.port

    @property
    def secure_port(self) -> int:
        """The port that clients connect to with TLS; -1 if there is none."""
        return self._ports.secure_port

    async def start(self) -> None:
        """Load the state and open the port. Raises `BarnabasError` with what to do."""
        settings, clock = self._settings, self._clock
        config = self._peer_config or read_peer_config(settings, self._files)
        self._loop = asyncio.get_running_loop()
        self._failure = self._loop.create_future()
        if self._executor is None:
            self._executor = self._own_executor = ThreadPoolExecutor(2, "coordination-files")
            self._log_thread = WorkerThread("coordination-log", self._loop.call_soon_threadsafe)
        self.snapshots = _snapshot_service(
            self._storage, self._executor, lambda: self.processor.database, self._schedule, self._metrics, clock
        )
        self._open_storage()
        try:
            is_member = config.ensemble is not None
            limits = self._limits = client_limits(settings, self._files, self._rng, _user(), is_member=is_member)
            peer = self._make_quorum_peer(config, limits) if is_member else None
            load = self._storage.load if peer is None else peer.member.load
            database, replayed = await self._loop.run_in_executor(self._executor, load)
            if not self._storage.any_snapshot():
                began_ms = clock.monotonic_ms()
                await self._loop.run_in_executor(self._executor, self._storage.save_snapshot, database)
                self._metrics.measured("snapshottime", clock.monotonic_ms() - began_ms)
            now_ms = clock.monotonic_ms()
            self.processor = self._new_processor(database)
            self._sync = self._new_sync_processor(peer)
            self._states.on(ServerEvent.OPENED)
            if peer is None:
                self._states.on(ServerEvent.SERVES)
            await self._ports.open(settings, self._files, config.client)
        except OSError as error:
            self._abandon_start()
            raise BarnabasError(f"the state in {settings['dataDir']} cannot be loaded: {error}") from error
        except BaseException:
            await self._ports.close()
            self._abandon_start()
            raise
        if limits.auditor is not None:
            limits.auditor.server_started()
        self._last_sweep_ms = now_ms
        # The first one is due.
        self._last_purge_ms = now_ms - settings["autopurge.purgeInterval"] * 3_600_000
        self._metrics.started(now_ms - self._started_ms, replayed)
        self._schedule.logged(replayed, 0)
        self._tick()
        if peer is not None:
            await self._start_quorum_peer(peer)
        logger.info(
            "Serving on port %d from %s: zxid 0x%x, %d nodes, %d sessions",
            self.port,
            settings["dataDir"],
            database.last_zxid,
            len(database.tree.nodes),
            len(database.session_timeouts_ms),
        )

    def _open_storage(self) -> None:
        """Lock the data directory. Raises `ConfigError`."""
        data_dir = self._settings["dataDir"]
        try:
            self._storage.open()
        except BlockingIOError:
            self._shut_executor()
            raise ConfigError(f"another server uses the data directory {data_dir}") from None
        except OSError as error:
            self._shut_executor()
            raise ConfigError(f"the data directory {data_dir} cannot be used: {error}") from error

    def _abandon_start(self) -> None:
        if self._states.is_open:
            self._states.on(ServerEvent.CLOSED)
        self._storage.close()
        self._shut_executor()

    def _new_sync_processor(self, peer: QuorumPeer | None) -> SyncRequestProcessor:
        """Logs what a server alone decides, or what a member's role has for its log."""

        def in_executor(work: Callable[[], None], done: Callable[[BaseException | None], None]) -> None:
            ended = self._loop.run_in_executor(self._executor, work)
            ended.add_done_callback(lambda future: done(future.exception()))

        in_thread: InThread = self._log_thread or in_executor
        return SyncRequestProcessor(
            self.processor if peer is None else peer.member.log,
            partial(_append, self._storage),
            in_thread,
            self._loop.call_soon,
            self._clock.monotonic_ms,
            self._synced,
            peer.propose if peer is not None else None,
        )

    def _new_processor(self, database: Database) -> Processor:
        """One that decides by itself: that of a standalone server.

        A member has it until it gets a role."""
        settings, now_ms = self._settings, self._clock.monotonic_ms()
        first_id = first_session_id(_SESSION_SERVER_ID, self._clock.wall_ms())
        tracker = SessionTracker(settings["tickTime"], first_id, now_ms)
        reconfig = ALONE if settings["reconfigEnabled"] else None
        processor = Processor(database, tracker, self._limits, now_ms, reconfig=reconfig, runner=self.runner)
        self._commits = CommitPieces(
            lambda count: processor.commit(count, self._clock.monotonic_ms()), self._commit_runner, self.piece_changes
        )
        return processor

    def _make_quorum_peer(self, config: PeerConfig, limits: Limits) -> QuorumPeer:
        """This server as a member of its ensemble."""
        settings, files = self._settings, self._files
        assembly = MemberAssembly(settings, config, self._config_path, files, self._clock, self._rng)
        self._server_id = assembly.my_id
        member = assembly.member(limits, self._storage, self, self.runner)
        member.piece_changes = self.piece_changes
        network = assembly.quorum_network() or self._network
        authentication = assembly.authentication()
        quorum_network = network if authentication is None else AuthenticatedNetwork(network, authentication)
        peer = self._quorum_peer = QuorumPeer(member, network=quorum_network, executor=self._executor)
        peer.listen_on_all = settings["quorumListenOnAllIPs"]
        peer.reads_without_quorum = settings["readonlymode.enabled"]
        if self._elector is None:
            self._election_peers = assembly.election_peers(member, network, authentication, peer.adopt)
        return peer

    async def _start_quorum_peer(self, peer: QuorumPeer) -> None:
        """Open the election port, and begin to elect."""
        if self._elector is None:
            peers = self._election_peers
            assert peers is not None
            try:
                await peers.start()
            except BaseException:
                await self.close()
                raise
            self._elector = peers
        peer.start(self._elector)

    # The role of a member

    def serve(self, processor: Processor, mode: str) -> None:
        """Serve clients with the processor: the server has a role."""
        if self._quorum_peer is not None:
            ensemble, tree = self._quorum_peer.member.configuration, processor.database.tree
            text = ensemble.text().encode()
            tree.set_configuration(text, ensemble.version, self._clock.wall_ms())
            processor.metrics.configured(len(text))
        self.processor = processor
        self.mode = mode
        self._states.on(ServerEvent.SERVES)
        logger.info("Serving as %s from zxid 0x%x", mode, processor.database.last_zxid)

    def stop_serving(self) -> None:
        """Close the clients' connections: the role has ended."""
        self._states.on(ServerEvent.STOPS_SERVING)
        for peer in self._connections.all:
            self.processor.disconnected(peer.client)
            peer.abandon()

    def wake_log(self) -> None:
        """There are transactions for the log, or proposals for the members."""
        self._sync.wake()

    def reconfigured(self) -> None:
        """The ensemble is reconfigured: listen for clients where this server's line says."""
        assert self._quorum_peer is not None
        mine = self._quorum_peer.member.configuration.servers.get(self._server_id)
        endpoint = mine.client if mine is not None else None
        if endpoint is not None and endpoint != self._ports.endpoint and self._states.is_open:
            logger.info("Clients connect to %s from now on", endpoint)
            self._ports.endpoint = endpoint
            self._loop.create_task(self._ports.move(endpoint))

    def member_failed(self, error: BaseException) -> None:
        """The member cannot go on."""
        self._fail(error)

    async def wait_failed(self) -> None:
        """Wait for ever, or raise the error that stopped the server (a failed disk)."""
        assert self._failure is not None
        await asyncio.shield(self._failure)

    async def close(self) -> None:
        """Stop: log and answer what is decided.

        Sessions outlive the server. A second call does nothing."""
        if not self._states.is_open:
            return
        self._states.on(ServerEvent.CLOSED)
        for timer in self._timers:
            timer.cancel()
        await self._ports.close()
        if self._quorum_peer is not None:
            await self._quorum_peer.close()
        if self._election_peers is not None:
            await self._election_peers.close()
        await self._finish_log()
        self._sync.end()
        self._commits.finish()
        self.runner.stop()
        await self.snapshots.cancel()
        self._flush()
        await self._close_connections()
        self._storage.close()
        self._shut_executor()
        if self._limits.auditor is not None:
            self._limits.auditor.server_stopped()

    async def _finish_log(self) -> None:
        """Return when everything that was decided is logged, or nothing is logged any more."""
        written = asyncio.Event()
        self._sync.on_written = written.set
        while self._sync.is_busy:
            written.clear()
            self._sync.write()
            await written.wait()

    async def _close_connections(self) -> None:
        for peer in self._connections.all:
            peer.close()
        for _ in range(20):
            if not self._connections.all:
                return
            await asyncio.sleep(0.001)
        for peer in self._connections.all:
            peer.abort()
        await asyncio.sleep(0)

    def _shut_executor(self) -> None:
        if self._log_thread is not None:
            self._log_thread.close()
            self._log_thread = None
        if self._own_executor is not None:
            self._own_executor.shutdown(wait=True)
            self._own_executor = self._executor = None

    # Connections

    # `ClientPorts` binds the first argument, one value for each kind of port.
    def _accept(self, is_secure: bool, connection: Connection) -> FrameHandler:
        peer = ClientTransport(
            self, connection, self._settings["jute.maxbuffer"], self._clock.monotonic_ms, self._loop.call_later
        )
        access, is_closing = self.processor.limits.access, self._states.is_closing
        self._connections.accept(peer, connection, access, is_secure=is_secure, is_closing=is_closing)
        return peer

    def closed(self, peer: ClientTransport) -> None:
        self._connections.closed(peer)
        if not peer.client.is_closed:
            self.processor.disconnected(peer.client)

    def received(self, client: ServerConnection, frames: list[bytes]) -> int:
        state = self._states.state
        if state is not ServerState.RUNNING:
            if state is ServerState.WAITING:
                self._metrics.counters["cnxn_closed_without_zk_server_running"] += 1
                client.transport.close()
            return len(frames)
        processor, clock = self.processor, self._clock
        taken = processor.receive_frames(client, frames, clock.monotonic_ms(), clock.wall_ms())
        if processor.unlogged:
            self._sync.wake()
        return taken

    def view(self) -> ServerView:
        """The present state, for the four-letter words and the admin server."""
        from barnabas.net import machine
        from barnabas.net.event_loop import loop_figures

        now_ms, metrics, peer = self._clock.monotonic_ms(), self._metrics, self._quorum_peer
        counts = peer.member.counts if peer is not None else None
        figures = ServerFigures(
            mode=self.mode,
            server_id=self._server_id,
            client_port=self.port,
            secure_client_port=self.secure_port,
            is_serving=self._states.is_serving,
            uptime_ms=now_ms - self._started_ms,
            now_ms=now_ms,
            wall_ms=self._clock.wall_ms(),
            last_snapshot=metrics.last_snapshot,
            summaries={**metrics.summaries(), **(counts.summaries() if counts is not None else {})},
            counters={**metrics.counters, **(counts.counters() if counts is not None else {})},
            member=peer.figures() if peer is not None else {},
            quorum=peer.state() if peer is not None else None,
            show_date=machine.show_date,
            environment=machine.environment,
            process=lambda: {**machine.process_figures(), **loop_figures(self._loop)},
            sizes=self._storage.sizes,
        )
        return ServerView(self.processor, [peer.client for peer in self._connections.all], self._settings, figures)

    def to_flush(self, peer: ClientTransport) -> None:
        if not self._flushing:
            self._loop.call_soon(self._flush)
        self._flushing.append(peer)

    def _flush(self) -> None:
        peers, self._flushing = self._flushing, []
        for peer in peers:
            peer.flush()

    # The log

    def _synced(self, entries: Entries, took_ms: int, error: BaseException | None) -> None:
        self._metrics.flushed(len(entries), took_ms)
        if error is not None:
            self._fail(error)
            return
        self._schedule.logged(len(entries), sum(map(len, entries)))
        if self._quorum_peer is None:
            self._commits.add(entries)
        else:  # a member commits what its leader says
            try:
                self._quorum_peer.member.log.synced(len(entries))
            except OSError as failure:  # a member's epoch could not be written
                self._fail(failure)
                return
        if self._schedule.is_due and not self.snapshots.is_writing and self._states.is_serving:
            self._sync.roll_next()
            self.snapshots.begin()

    def _fail(self, error: BaseException) -> None:
        """The disk failed: the content of the log is unknown, so the server stops."""
        logger.critical("Stopping, because the transaction log cannot be written: %s", error)
        self._states.on(ServerEvent.FAILED)
        self._sync.end()
        self._metrics.counters["unrecoverable_error_count"] += 1
        for peer in self._connections.all:
            peer.close()
        assert self._failure is not None
        if not self._failure.done():
            failure = BarnabasError(f"the transaction log in {self._storage.logs_dir} cannot be written: {error}")
            self._failure.set_exception(failure)
            self._failure.exception()  # a caller may not wait for it

    # A snapshot in the place of the state

    async def restore(self, parts: AsyncIterator[bytes], size_bytes: int = 0) -> int:
        """Replace the state by the snapshot that comes in parts; its zxid.

        All connections are closed. ``size_bytes`` is how many come, or 0 if that is not known.

        Raises `BarnabasError` if that cannot be, and OSError.
        """
        if self._quorum_peer is not None:
            raise ConfigError(
                "a member of an ensemble takes its state from the leader: stop all members, move their files in version-2 "
                "aside, put the snapshot there under the name snapshot.ZXID, and start them"
            )
        try:
            database = await self.snapshots.restore(parts, size_bytes, self._stop_writing)
        except Exception as error:
            if self._states.state is ServerState.WAITING:
                self._fail(error)  # the files may be of either state
            raise
        before = self.processor.database.tree
        self._commits.clear()
        self._sync.source = self.processor = self._new_processor(database)
        self._states.on(ServerEvent.SERVES)
        # Cycles may keep the processor before, and need not keep its nodes.
        for _ in before.release():
            await asyncio.sleep(0)
        logger.warning("The state is replaced by a snapshot: zxid 0x%x", database.last_zxid)
        return database.last_zxid

    async def _stop_writing(self) -> None:
        """Return when no client is served and everything that was decided is in the log."""
        self.stop_serving()
        await self._finish_log()
        if self._states.state is not ServerState.WAITING:
            raise BarnabasError("the server stops")

    # Timers

    def _tick(self) -> None:
        now_ms, wall_ms = self._clock.monotonic_ms(), self._clock.wall_ms()
        processor, settings = self.processor, self._settings
        if self._states.is_serving:
            processor.expirations.tick(now_ms)
        decides = self._states.is_serving and self.mode in ("standalone", "leader")
        sweep_ms = settings["znode.container.checkIntervalMs"]
        if decides and now_ms - self._last_sweep_ms >= sweep_ms:
            self._last_sweep_ms = now_ms
            most = max(1, settings["znode.container.maxPerMinute"] * sweep_ms // 60_000)
            processor.expirations.sweep(wall_ms, most, settings["znode.container.maxNeverUsedIntervalMs"])
        if not self._ends.is_busy:
            self._ends.start(self._end_due())
        self._connections.close_sessionless(now_ms)
        interval_ms = settings["autopurge.purgeInterval"] * 3_600_000
        if interval_ms > 0 and now_ms - self._last_purge_ms >= interval_ms and self._states.is_serving:
            self._last_purge_ms = now_ms
            self.snapshots.purge(max(settings["autopurge.snapRetainCount"], LEAST_SNAPSHOTS))
        if not self._states.is_closing:
            self._timers = [self._loop.call_later(min(settings["tickTime"], 1000) / 2000, self._tick)]

    def _end_due(self) -> Task[None]:
        """Propose the ends of sessions and nodes whose time is over.

        Others have their turn between them."""
        processor, clock = self.processor, self._clock
        more = processor.expirations.has_more
        while more and self._states.is_serving and processor is self.processor:
            more = processor.propose_due(clock.monotonic_ms(), clock.wall_ms())
            if processor.unlogged:
                self._sync.wake()
            yield None
