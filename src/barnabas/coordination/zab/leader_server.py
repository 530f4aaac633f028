"""The server of a leader: between `Leader`, which decides what is committed, and the processor
of the clients' requests.

    clients, learners --> Processor --propose--> Leader, and this member's log
                          Processor <--commit--- Leader

It is synchronous: the edge brings connections, ticks and the end.

In ZooKeeper: LeaderZooKeeperServer.
"""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby

from barnabas.base.tasks import Task
from barnabas.coordination.core.commit_pieces import take_piece
from barnabas.coordination.core.database import Database
from barnabas.coordination.core.operations.reconfig import leader_operation
from barnabas.coordination.core.processor import Processor
from barnabas.coordination.core.sessions import SessionTracker
from barnabas.coordination.quorum.configuration import QuorumConfiguration
from barnabas.coordination.quorum.reconfiguration import plan_reconfiguration
from barnabas.coordination.zab.catch_up import RunsInThread, seek_history
from barnabas.coordination.zab.figures import leader_figures
from barnabas.coordination.zab.leader import Leader
from barnabas.coordination.zab.learner_handler import LearnerHandler
from barnabas.coordination.zab.member import EnsembleMember
from barnabas.wire.jute.errors import ErrorCode, KeeperError
from barnabas.wire.jute.quorum import (
    PacketType,
    QuorumPacket,
    decode_revalidation,
    decode_touched_sessions,
    encode_session_answer,
    encode_signal,
    is_forwarded_sync,
)
from barnabas.wire.jute.records import Id, ReconfigRequest
from barnabas.wire.jute.transactions import decision_time_ms

__all__ = ["LeaderServer"]

logger = logging.getLogger(__name__)


class LeaderServer:
    """The environment of a `Leader`, and what its connections need."""

    def __init__(self, member: EnsembleMember, run_reads: RunsInThread, on_end: Callable[[], None]) -> None:
        """``run_reads`` runs what reads the log.

        ``on_end`` is called when the role has ended, maybe twice."""
        self._member = member
        self.run_reads = run_reads
        self._on_end = on_end
        self.processor: Processor | None = None
        last_zxid, now_ms = member.database.last_zxid, member.now_ms()
        self._since_ms = now_ms
        self._planned: tuple[int, QuorumConfiguration] | None = None
        """A reconfiguration that is decided and not proposed yet, with its zxid."""
        self.leader = Leader(
            member.my_id,
            member.configuration,
            member.epochs,
            member.history,
            last_zxid,
            member.timing,
            self,
            now_ms,
            following=member.configurations.following,
            can_reconfigure=member.configurations.can_reconfigure,
        )
        self.leader.forces_snapshots = member.forces_snapshots
        self.leader.piece_changes = member.piece_changes
        self.leader.syncs = member.counts.syncs

    def start(self) -> None:
        """Connections are accepted: begin with the discovery."""
        self._member.log.on_logged = self.leader.logged
        self.leader.discover()

    def close(self) -> None:
        """The role ends: decided transactions are logged, and all connections are closed."""
        self.propose()
        self.leader.close()

    def figures(self) -> dict[str, object]:
        """The role's own figures, by the names of `mntr`."""
        return leader_figures(self.leader, self._member.now_ms() - self._since_ms)

    @property
    def leader_id(self) -> int:
        return self._member.my_id

    @property
    def phase(self) -> str:
        """The phase of Zab."""
        return self.leader.phase.value

    @property
    def observers(self) -> list[LearnerHandler]:
        """The learners that are up to date and acknowledge nothing."""
        return [each for each in self.leader.handlers if each.is_synced and not each.is_participant]

    @property
    def database(self) -> Database:
        return self._member.database

    @property
    def max_packet_bytes(self) -> int:
        return self._member.max_packet_bytes

    def now_ms(self) -> int:
        return self._member.now_ms()

    def tick(self) -> None:
        """To be called every half tick."""
        self.leader.tick(self._member.now_ms())

    def disk_failed(self, error: OSError) -> None:
        """An epoch could not be written: what is on the disk is unknown, so the server stops."""
        self._on_end()
        self._member.service.member_failed(error)

    # From the leader

    def serve(self, first_zxid: int) -> None:
        member = self._member
        member.database.last_zxid = first_zxid
        now_ms = member.now_ms()
        tracker = SessionTracker(member.timing.tick_ms, member.first_session_id(), now_ms)
        reconfig = leader_operation(self._plan, self._proposed) if member.configurations.can_reconfigure else None
        self.processor = Processor(
            member.database,
            tracker,
            member.limits,
            now_ms,
            reconfig=reconfig,
            metrics=member.metrics,
            latency=member.counts.quorum_ms,
            runner=member.runner,
        )
        member.serve(self.processor, "leader")

    def commit(self, count: int) -> None:
        processor, counts = self.processor, self._member.counts
        assert processor is not None
        counts.commits += count
        processor.commit(count, self._member.now_ms())

    def run(self, task: Task[None]) -> None:
        self._member.commits.start(task, failed=self._failed)

    def _failed(self, _: object, error: Exception) -> None:
        if not isinstance(error, OSError):
            raise error
        self.disk_failed(error)

    def seek_history(self, handler: LearnerHandler, zxid: int) -> bool:
        factor, found = self._member.snapshot_size_factor, partial(self.leader.history_sought, handler)
        if factor >= 0:
            seek_history(partial(self._member.storage.history_behind, zxid, factor), self.run_reads, found)
        return factor >= 0

    def received(self, handler: LearnerHandler, packet: QuorumPacket) -> None:
        processor, member = self.processor, self._member
        assert processor is not None
        now_ms = member.now_ms()
        if packet.type == PacketType.PING:
            tracker = processor.tracker
            for session_id, _ in decode_touched_sessions(packet):
                if (session := tracker.live(session_id)) is not None:
                    tracker.touch(session, now_ms)
        elif packet.type == PacketType.REVALIDATE:
            session_id, timeout_ms = decode_revalidation(packet)
            member.counts.revalidations += 1
            is_alive = processor.revalidate(handler, session_id, timeout_ms, now_ms)
            handler.link.send(encode_session_answer(session_id, is_alive))
        else:
            self.requested(handler, (packet.data or b"",), packet.authinfo or [])

    def requested(self, handler: LearnerHandler, requests: Sequence[bytes], ids: list[Id]) -> None:
        processor, member = self.processor, self._member
        assert processor is not None
        handler.statistics.requests += len(requests)
        now_ms, wall_ms = member.now_ms(), member.wall_ms()
        try:
            for is_sync, together in groupby(requests, is_forwarded_sync):
                if not is_sync:
                    processor.propose_forwarded(handler, list(together), ids, now_ms, wall_ms)
                    continue
                self.propose()
                for _ in together:
                    self.leader.sync(lambda: handler.link.send(encode_signal(PacketType.SYNC, 0)))
        finally:
            member.service.wake_log()

    def acknowledged(self, server_id: int, payload: bytes | bytearray) -> None:
        latency_ms = self._member.wall_ms() - decision_time_ms(payload)
        self._member.counts.acknowledged(server_id, latency_ms)

    def see(self, configuration: QuorumConfiguration) -> None:
        self._member.configurations.see(configuration)

    def activate(self, configuration: QuorumConfiguration, leader_id: int) -> None:
        self._member.configurations.activate(configuration, leader_id, self._member.my_id)

    def resign(self, reason: str) -> None:  # noqa: ARG002  # the leader has logged it
        self._on_end()

    # Reconfiguration

    def _plan(self, request: ReconfigRequest, zxid: int) -> QuorumConfiguration:
        if self.leader.quorums.is_reconfiguring or self._planned is not None:
            raise KeeperError(ErrorCode.RECONFIG_IN_PROGRESS)
        member = self._member
        planned = plan_reconfiguration(request, member.configuration, zxid, least_voters=member.least_voters)
        followers = {each.server_id for each in self.leader.handlers if each.is_participant and each.is_synced}
        if not planned.verifier.contains_quorum(followers | {member.my_id}):
            logger.warning("Reconfig failed - there must be a connected and synced quorum in new configuration")
            raise KeeperError(ErrorCode.NEW_CONFIG_NO_QUORUM)
        return planned

    def _proposed(self, zxid: int, configuration: QuorumConfiguration) -> None:
        self._planned = zxid, configuration

    def adopt(self, configuration: QuorumConfiguration) -> None:
        """The configuration in force has a newer version, with the same members."""
        self.leader.quorums.current = configuration

    # The log

    def propose(self) -> None:
        """Broadcast and log what the processor has decided."""
        processor = self.processor
        if processor is None or not processor.unlogged:
            return
        first_zxid = processor.first_unlogged_zxid
        payloads, processor.unlogged = processor.unlogged, []
        log = self._member.log
        log.extend(range(first_zxid, first_zxid + len(payloads)), payloads)
        if self._planned is not None:
            planned, self._planned = self._planned, None
            try:
                self.leader.reconfigure(*planned)
            except OSError as error:
                self.disk_failed(error)
                return
        self._member.counts.proposals += len(payloads)
        self.leader.propose(first_zxid, payloads)

    def fast_forward(self) -> Task[None]:
        """Apply what is logged and not committed.

        The role has ended: others may run where it yields, and none reads the state."""
        member, left = self._member, deque(self.leader.uncommitted)
        while left:
            piece = take_piece(left)
            member.history.extend(piece)
            if self.processor is not None:
                self.processor.commit(len(piece), member.now_ms())
            yield None
