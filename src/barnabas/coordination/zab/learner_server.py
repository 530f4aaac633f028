"""The server of a follower or an observer: between `Learner`, the leader's packets, and the
processor of clients' requests.

    clients --> Processor --forward--> leader
                Processor <--apply---- Learner <-- packets of the leader

It is synchronous: the edge makes the connection, of which this is the handler, and
brings ticks and the end.

In ZooKeeper: FollowerZooKeeperServer and ObserverZooKeeperServer.
"""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby
from operator import itemgetter

from barnabas.base.errors import CorruptDataError
from barnabas.base.tasks import Task
from barnabas.coordination.core.commit_pieces import take_piece
from barnabas.coordination.core.database import Database
from barnabas.coordination.core.processor import Processor
from barnabas.coordination.core.sessions import LearnerSessionTracker
from barnabas.coordination.zab.catch_up import RunsInThread
from barnabas.coordination.zab.configurations import parse_configuration
from barnabas.coordination.zab.history import CommittedLog
from barnabas.coordination.zab.learner import Learner, LearnerPhase
from barnabas.coordination.zab.member import EnsembleMember
from barnabas.wire.jute.codec import MalformedRecordError
from barnabas.wire.jute.quorum import (
    SNAPSHOT_SIGNATURE,
    PacketReader,
    PacketType,
    QuorumPacket,
    SnapshotScanner,
    decode_session_answer,
    encode_forwarded_frames,
    encode_forwarded_request,
    encode_revalidation,
    encode_touched_sessions,
)
from barnabas.wire.jute.records import Id
from barnabas.wire.jute.transactions import decision_time_ms, decode_transaction

__all__ = ["LearnerServer"]

logger = logging.getLogger(__name__)


class LearnerServer:
    """The environment of a `Learner`, the handler of its connection, and the
    forwarder of its processor."""

    is_read_only = False

    def __init__(
        self, member: EnsembleMember, leader_id: int, when_logged: RunsInThread, on_end: Callable[[], None]
    ) -> None:
        """``when_logged`` runs work in a thread once the log has everything.

        ``on_end`` is called when the role has ended."""
        self._member = member
        self.leader_id = leader_id
        self._when_logged = when_logged
        self._on_end = on_end
        self.send: Callable[[bytes], None] = lambda data: None  # noqa: ARG005  # until there is a connection
        """Sends to the leader. The edge sets it."""
        self.pause: Callable[[], None] = lambda: None
        self.resume: Callable[[], None] = lambda: None
        """Take nothing from the leader, and take it again. The edge sets them."""
        self.processor: Processor | None = None
        self.has_ended = False
        self.heard_ms = self._since_ms = member.now_ms()
        self._heard_wall_ms = member.wall_ms()
        self._unsynced: deque[tuple[int, int, int]] = deque()
        """Proposals that are not on stable storage: the first and the last zxid of those that were
        decided at a time, and when."""
        self._reader = PacketReader(member.max_packet_bytes)
        self._scanner: SnapshotScanner | None = None
        self._snapshot_zxid = 0
        self._tracker: LearnerSessionTracker | None = None
        self._is_replacing = False
        self._is_paused = False
        self.is_observer = member.configurations.is_observer
        self.learner = Learner(
            member.my_id,
            member.configuration.version,
            member.epochs,
            member.database.last_zxid,
            self,
            is_observer=self.is_observer,
        )
        self.learner.piece_changes = member.piece_changes

    def start(self) -> None:
        """The connection to the leader stands: begin with the discovery."""
        self._member.log.on_logged = self._logged
        self.learner.start()

    def _logged(self, zxid: int) -> None:
        wall_ms, unsynced = self._member.wall_ms(), self._unsynced
        while unsynced and unsynced[0][0] <= zxid:
            first, last, decided_ms = unsynced.popleft()
            if last > zxid:  # within one epoch, for others are not decided in the same millisecond
                unsynced.appendleft((zxid + 1, last, decided_ms))
                last = zxid
            self._member.counts.acknowledgement_ms.add(wall_ms - decided_ms, last - first + 1)
        self.learner.logged(zxid)

    def close(self) -> None:
        """The role ends."""
        self.learner.close()

    @property
    def phase(self) -> str:
        """The phase of Zab."""
        return self.learner.phase.value

    def figures(self) -> dict[str, object]:
        """The role's own figures, by the names of `mntr`."""
        state = f"{'observing' if self.is_observer else 'following'} - {self.learner.phase.value}"
        return {"peer_state": state, "synced_observers": 0}

    def tick(self) -> None:
        """To be called every half tick."""
        timing = self._member.timing
        is_broadcast = self.learner.phase is LearnerPhase.BROADCAST
        limit_ms = timing.sync_ms if is_broadcast else timing.init_ms
        if not self._is_replacing and self._member.now_ms() - self.heard_ms > limit_ms:
            self.fail(f"the leader was not heard for {limit_ms} ms")

    # From the network

    def frame(self, data: memoryview) -> None:
        if self._scanner is not None:
            self._guard(partial(self._scan, data))
        else:
            self._reader.feed(data)
            self._guard(self._read)

    def _guard(self, work: Callable[[], None]) -> None:
        """Do what packets of the leader ask for."""
        self._hear()
        try:
            work()
        except (MalformedRecordError, CorruptDataError, OSError) as error:
            self._failed(None, error)

    def _hear(self) -> None:
        self.heard_ms = self._member.now_ms()
        self._heard_wall_ms = self._member.wall_ms()

    def _failed(self, _: object, error: Exception) -> None:
        if isinstance(error, MalformedRecordError | CorruptDataError):
            self.fail(f"the leader sent what cannot be read: {error}")
        elif isinstance(error, OSError):
            # An epoch could not be written: what is on the disk is unknown, so the server stops.
            self._end()
            self._member.service.member_failed(error)
        else:
            raise error

    def run(self, task: Task[None]) -> None:
        self._member.commits.start(self._rest_between(task), failed=self._failed)
        if self.learner.is_resting:
            self._is_paused = True
            self.pause()

    def _rest_between(self, task: Task[None]) -> Task[None]:
        for step in task:
            yield step
            self._hear()  # the leader is not silent: what came from it is still being handled
        if self._is_paused:
            self._is_paused = False
            self.resume()

    def _read(self) -> None:
        packets = self._reader.runs()
        snapshot = packets[-1] if packets else None
        if isinstance(snapshot, QuorumPacket) and snapshot.type == PacketType.SNAP:
            packets.pop()
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
            self._replace(lambda: self._member.install(state, zxid))

    def bad_length(self, prefix: bytes) -> None: ...  # a stream has no lengths

    def closed(self, error: Exception | None) -> None:
        self.fail(f"the connection to the leader is closed ({error or 'by it or by us'})")

    # From the learner

    def truncate(self, zxid: int) -> None:
        self._replace(lambda: self._member.truncate(zxid))

    def _replace(self, work: Callable[[], tuple[Database, CommittedLog]]) -> None:
        self._is_replacing = True
        self._when_logged(work, self._replaced)

    def _replaced(self, result: tuple[Database, CommittedLog] | Exception) -> None:
        member = self._member
        if isinstance(result, Exception):
            self.fail(f"the state of the leader cannot be taken over: {result}")
            member.service.member_failed(result)
            return
        member.database, member.history = result
        self._is_replacing = False

        def go_on() -> None:
            self.learner.replaced()
            self._read()

        self._guard(go_on)

    def log(self, zxids: Sequence[int], payloads: Sequence[bytes]) -> None:
        member = self._member
        counts = member.counts
        counts.proposals_received += len(zxids)
        if self.processor is not None:
            for decided_ms, same in groupby(zip(zxids, map(decision_time_ms, payloads), strict=True), itemgetter(1)):
                decided = [zxid for zxid, _ in same]
                counts.proposal_ms.add(self._heard_wall_ms - decided_ms, len(decided))
                self._unsynced.append((decided[0], decided[-1], decided_ms))
        member.log.extend(zxids, payloads)
        member.service.wake_log()

    def apply(self, entries: Sequence[tuple[int, bytes]]) -> None:
        member = self._member
        database = member.database
        member.counts.commits_received += len(entries)
        before = database.digest_mismatches
        if self.processor is not None:
            self.processor.apply([payload for _, payload in entries], self.heard_ms, self._heard_wall_ms)
        else:
            for _, payload in entries:
                database.apply(*decode_transaction(payload))
        member.history.extend(entries)
        if database.digest_mismatches and not before:
            logger.error(
                "The digest of transaction 0x%x does not match the tree: it differs from the leader's",
                database.first_mismatch_zxid,
            )

    def serve(self, first_zxid: int) -> None:
        member = self._member
        database = member.database
        database.last_zxid = max(database.last_zxid, first_zxid)
        # A snapshot of the leader may have been ahead of its zxid; what comes from
        # now on is not in it.
        database.exact_from_zxid = database.last_zxid + 1
        self._tracker, counts = LearnerSessionTracker(member.first_session_id()), member.counts
        self.processor = Processor(
            member.database,
            self._tracker,
            member.limits,
            member.now_ms(),
            self,
            metrics=member.metrics,
            latency=counts.commit_ms,
            runner=member.runner,
        )
        sync_ms = counts.observer_sync_ms if self.is_observer else counts.follower_sync_ms
        sync_ms.add(member.now_ms() - self._since_ms)
        member.serve(self.processor, "observer" if self.is_observer else "follower")

    def received(self, packet: QuorumPacket) -> None:
        assert self.processor is not None
        assert self._tracker is not None
        if packet.type == PacketType.PING:
            self.send(encode_touched_sessions(packet.zxid, self._tracker.take_touched()))
        elif packet.type == PacketType.SYNC:
            self.processor.synced(self._member.now_ms())
        else:
            self.processor.revalidated(*decode_session_answer(packet), self._member.now_ms())

    def see(self, configuration: bytes | None) -> None:
        configurations = self._member.configurations
        if configuration and configurations.can_reconfigure:
            configurations.see(parse_configuration(configuration))

    def activate(self, configuration: bytes | None, leader_id: int | None) -> bool:
        configurations = self._member.configurations
        if not configuration:
            return False
        if not configurations.can_reconfigure:
            if leader_id is not None:
                logger.error(
                    "The ensemble is reconfigured: restart this server with the new lines and reconfigEnabled=true"
                )
            return leader_id is not None
        return configurations.activate(parse_configuration(configuration), leader_id, self.leader_id)

    def fail(self, reason: str) -> None:
        if not self.has_ended:
            logger.warning("Shutting down as follower of server %d: %s", self.leader_id, reason)
            self.learner.close()
            self._end()

    def _end(self) -> None:
        self.has_ended = True
        self._on_end()

    # From the processor

    def forward(self, session_id: int, xid: int, opcode: int, body: bytes, ids: list[Id]) -> None:
        self.send(encode_forwarded_request(session_id, xid, opcode, body, ids))

    def forward_frames(self, session_id: int, frames: list[bytes], ids: list[Id]) -> None:
        self.send(encode_forwarded_frames(session_id, frames, ids))

    def revalidate(self, session_id: int, timeout_ms: int) -> None:
        self.send(encode_revalidation(session_id, timeout_ms))

    def fast_forward(self) -> Task[None]:
        """Apply what is logged and not committed.

        The role has ended: others may run where it yields, and none reads the state."""
        self.processor = None
        left = deque(self.learner.uncommitted)
        while left:
            self.apply(take_piece(left))
            yield None
