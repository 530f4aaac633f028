"""Zab's leader and learners without sockets: what each sends, when it may, and what survives."""

import asyncio
import logging
import tracemalloc
from collections import deque
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.base.errors import CorruptDataError
from barnabas.base.files import OsFiles
from barnabas.base.tasks import Runner, Task
from barnabas.coordination.core.connections import Limits
from barnabas.coordination.core.database import Database
from barnabas.coordination.core.znode import DataNode
from barnabas.coordination.quorum.configuration import QuorumConfiguration
from barnabas.coordination.storage.log_history import LoggedHistory
from barnabas.coordination.storage.snapshot import encode_snapshot_for_learner
from barnabas.coordination.storage.storage import Storage
from barnabas.coordination.storage.transaction_log import TransactionLog, logs_from
from barnabas.coordination.zab.channels import LearnerConnection
from barnabas.coordination.zab.configurations import Configurations
from barnabas.coordination.zab.epochs import Epochs
from barnabas.coordination.zab.history import CommittedLog, plan_sync
from barnabas.coordination.zab.leader import Leader, LeaderPhase, Timing
from barnabas.coordination.zab.learner import Learner, LearnerPhase
from barnabas.coordination.zab.learner_handler import LearnerHandler
from barnabas.coordination.zab.learner_server import LearnerServer
from barnabas.coordination.zab.member import EnsembleMember
from barnabas.wire.jute.codec import encode
from barnabas.wire.jute.opcodes import OpCode
from barnabas.wire.jute.quorum import (
    SNAPSHOT_SIGNATURE,
    PacketReader,
    PacketType,
    QuorumPacket,
    encode_packet,
    encode_signal,
)
from barnabas.wire.jute.records import OPEN_ACL, Id
from barnabas.wire.jute.transactions import ErrorTxn, TxnHeader, encode_transaction
from support.broker import ManualClock, ManualTimers
from support.slicing import thread_at_once

TIMING = Timing(2000, 5, 2)


def ensemble(count: int = 3, observers: tuple[int, ...] = ()) -> QuorumConfiguration:
    """Servers 1 to ``count``."""
    return QuorumConfiguration.parse(
        {
            f"server.{each}": f"127.0.0.1:{2000 + each}:{3000 + each}" + (":observer" if each in observers else "")
            for each in range(1, count + 1)
        }
    )


class MemoryFiles:
    """What `Epochs` needs of a file system."""

    def __init__(self) -> None:
        self.content: dict[str, bytes] = {}

    def exists(self, path: str) -> bool:
        return path in self.content

    def read(self, path: str) -> bytes:
        return self.content[path]

    def write_atomically(self, path: str, data: bytes) -> None:
        self.content[path] = data


def epochs(accepted: int = 0, current: int = 0) -> Epochs:
    """Epochs of a server that has taken part before."""
    files = MemoryFiles()
    files.content = {"/acceptedEpoch": b"%d" % accepted, "/currentEpoch": b"%d" % current}
    return Epochs(files, "/", 0)  # type: ignore[arg-type]  # what it needs of Files


def test_a_log_that_is_ahead_of_the_current_epoch_raises_it() -> None:
    """A crash between the log and the file leaves it behind; a transaction of the epoch proves
    that the server is in it."""
    found = epochs(accepted=4, current=3)
    found.reach(3 << 32 | 9)
    assert found.current == 3
    found.reach(4 << 32 | 1)
    assert (found.current, found.accepted) == (4, 4)


def stored_epochs(accepted: int, current: int) -> MemoryFiles:
    """The files of a server of ours that has accepted one epoch and entered another."""
    files = MemoryFiles()
    found = Epochs(files, "/", 0)  # type: ignore[arg-type]  # what it needs of Files
    found.accept(accepted)
    found.enter(current)
    return files


@pytest.mark.parametrize("text", [b"many", b"", b"-1", b"1_0", b"4294967296", b"1\n2\n", b"1\ncrc32 00000000\n"])
@pytest.mark.parametrize("name", ["acceptedEpoch", "currentEpoch"])
def test_an_epoch_that_cannot_be_read_is_refused_with_a_remedy(name: str, text: bytes) -> None:
    """The server does not take part with a forgotten promise."""
    files = MemoryFiles()
    files.content = {"/" + name: text}
    with pytest.raises(
        CorruptDataError, match=rf"/{name} holds .*Restore it from a backup .*or move this server's data"
    ):
        Epochs(files, "/", 0)  # type: ignore[arg-type]  # what it needs of Files


@pytest.mark.parametrize("name", ["acceptedEpoch", "currentEpoch"])
def test_each_changed_bit_of_an_epoch_file_stops_the_start_or_changes_nothing(name: str) -> None:
    """One flipped bit made a stale server leader, and the others cut their logs."""
    whole = stored_epochs(13, 12).content
    data = whole["/" + name]
    for at in range(len(data)):
        for bit in range(8):
            files = MemoryFiles()
            files.content = {**whole, "/" + name: data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :]}
            try:
                found = Epochs(files, "/", 12 << 32)  # type: ignore[arg-type]  # what it needs of Files
            except CorruptDataError:
                continue
            assert (found.accepted, found.current) == (13, 12)


def test_a_current_epoch_above_the_accepted_one_stops_the_start() -> None:
    """A server accepts an epoch before it enters it; so Apache's servers refuse to start."""
    with pytest.raises(CorruptDataError, match="/acceptedEpoch holds the epoch 1, but /currentEpoch holds the epoch 5"):
        epochs(accepted=1, current=5)


def test_an_accepted_epoch_below_that_of_the_log_stops_the_start() -> None:
    """No server logs a transaction of an epoch that it has not accepted."""
    files = MemoryFiles()
    files.content = {"/acceptedEpoch": b"1", "/currentEpoch": b"1"}
    with pytest.raises(CorruptDataError, match="but the log has transactions of the epoch 2"):
        Epochs(files, "/", 2 << 32 | 1)  # type: ignore[arg-type]  # what it needs of Files


def test_epochs_that_apache_or_an_earlier_version_wrote_are_taken_as_they_are() -> None:
    """They have no second line; neither has a directory in which a server of
    Apache's ran in between."""
    files = stored_epochs(4, 3)
    for name, text in {"/acceptedEpoch": b"6", "/currentEpoch": b"6\n"}.items():
        files.content[name] = text
        found = Epochs(files, "/", 3 << 32)  # type: ignore[arg-type]  # what it needs of Files
    assert (found.accepted, found.current) == (6, 6)


def test_the_first_line_of_an_epoch_file_is_what_apache_reads() -> None:
    """QuorumPeer.readLongFromFile parses one line."""
    files = stored_epochs(4, 3)
    assert files.content["/acceptedEpoch"].split(b"\n")[0] == b"4"
    assert files.content["/currentEpoch"].split(b"\n")[0] == b"3"


def test_epoch_files_that_changed_places_stop_the_start() -> None:
    """The checksum covers the name."""
    files = stored_epochs(4, 3)
    files.content["/currentEpoch"] = files.content["/acceptedEpoch"]
    with pytest.raises(CorruptDataError, match="/currentEpoch holds the epoch 4, and its checksum"):
        Epochs(files, "/", 3 << 32)  # type: ignore[arg-type]  # what it needs of Files


def transaction(zxid: int) -> bytes:
    """A transaction that changes nothing."""
    return bytes(encode_transaction(TxnHeader(1, 1, zxid, 0, OpCode.ERROR), ErrorTxn(-101), None))


def zxid(epoch: int, counter: int) -> int:
    return epoch << 32 | counter


def write_log(directory: Path, zxids: list[int]) -> None:
    """A transaction log, a new file with each epoch."""
    log = TransactionLog(OsFiles(), str(directory), preallocate_bytes=4096)
    for each in zxids:
        if each & 0xFFFFFFFF == 1:
            log.roll()
        log.append(each, [transaction(each)])
    log.close()


def logged_history(directory: Path, learner_zxid: int, max_bytes: int | None = None) -> LoggedHistory:
    """Sought to the end."""
    names = [name for _, name in logs_from([path.name for path in directory.iterdir()], learner_zxid - 1)]
    sizes = [(name, (directory / name).stat().st_size) for name in names]
    found = LoggedHistory(OsFiles(), str(directory), sizes, learner_zxid, max_bytes)
    while not found.seek():
        pass
    return found


def history(*zxids: int) -> CommittedLog:
    """Committed transactions."""
    log = CommittedLog()
    for each in zxids:
        log.add(each, transaction(each))
    return log


class Pipe:
    """The connection of one learner with the leader: packets wait until the test delivers them."""

    def __init__(self) -> None:
        self.reader = PacketReader(1 << 20)
        self.packets: deque[QuorumPacket] = deque()
        self.closed: str | None = None
        self.snapshots = 0
        self.histories: list[tuple[LoggedHistory, int]] = []

    def send(self, data: bytes) -> None:
        self.reader.feed(data)
        self.packets += self.reader.packets()

    def send_snapshot(self) -> None:
        self.snapshots += 1

    def send_history(self, history: LoggedHistory, before_zxid: int) -> None:
        self.histories.append((history, before_zxid))

    def close(self, reason: str) -> None:
        self.closed = reason


class Turns(ManualClock):
    """Slices that end when the test says so, and what is to have its turn then."""

    def __init__(self) -> None:
        super().__init__()
        self.pieces_left = 1_000_000
        self.later: list[Callable[[], object]] = []
        self.runner = Runner(self, self._call_later, thread_at_once)

    def _call_later(self, _: int, work: Callable[[], object]) -> ManualTimers.Timer:
        self.later.append(work)
        return ManualTimers.Timer(0, work)

    def time_slice(self) -> Callable[[], bool]:
        return self.is_over

    def is_over(self) -> bool:
        self.pieces_left -= 1
        return self.pieces_left < 0

    def next(self) -> None:
        """The next turn."""
        later, self.later[:] = list(self.later), []
        for work in later:
            work()


class LeaderSide:
    """A leader with an environment that records."""

    def __init__(
        self,
        configuration: QuorumConfiguration,
        log: CommittedLog | None = None,
        *,
        accepted: int = 0,
        current: int = 0,
    ) -> None:
        self.log = log or CommittedLog()
        self.epochs = epochs(accepted, current)
        self.served: list[int] = []
        self.logged = False
        self.sought: list[tuple[LearnerHandler, int]] = []
        self.committed = 0
        self.resigned: str | None = None
        self.got: list[QuorumPacket] = []
        self.measured: list[tuple[int, bytes | bytearray]] = []
        self.now_ms = 0
        last = self.log.last_zxid or 0
        self.turns = Turns()
        self.leader = Leader(1, configuration, self.epochs, self.log, last, TIMING, self, 0)
        self.pipes: dict[LearnerHandler, Pipe] = {}
        self.leader.discover()

    def serve(self, first_zxid: int) -> None:
        self.served.append(first_zxid)

    def commit(self, count: int) -> None:
        self.committed += count

    def run(self, task: Task[None]) -> None:
        self.turns.runner.start(task)

    def seek_history(self, handler: LearnerHandler, zxid: int) -> bool:
        if self.logged:
            self.sought.append((handler, zxid))
        return bool(self.logged)

    def received(self, handler: LearnerHandler, packet: QuorumPacket) -> None:
        del handler
        self.got.append(packet)

    def requested(self, handler: LearnerHandler, requests: Sequence[bytes], ids: list[Id]) -> None:
        del handler
        self.got += [QuorumPacket(PacketType.REQUEST, -1, data, ids) for data in requests]

    def acknowledged(self, server_id: int, payload: bytes | bytearray) -> None:
        self.measured.append((server_id, payload))

    def resign(self, reason: str) -> None:
        self.resigned = reason

    def connect(self) -> LearnerHandler:
        pipe = Pipe()
        handler = self.leader.connected(pipe, self.now_ms)
        self.pipes[handler] = pipe
        return handler

    def sent(self, handler: LearnerHandler) -> list[QuorumPacket]:
        """What the learner has got since the last call."""
        pipe = self.pipes[handler]
        packets = list(pipe.packets)
        pipe.packets.clear()
        return packets

    def receive(self, handler: LearnerHandler, kind: PacketType, zxid: int, data: bytes | None = None) -> None:
        self.leader.packets(handler, [QuorumPacket(kind, zxid, data)], self.now_ms)

    def introduce(
        self, server_id: int, accepted: int = 0, kind: PacketType = PacketType.FOLLOWERINFO
    ) -> LearnerHandler:
        handler = self.connect()
        self.receive(handler, kind, accepted << 32, server_id.to_bytes(8, "big") + b"\0\1\0\0" + bytes(8))
        return handler

    def join(self, server_id: int, last: int = 0, kind: PacketType = PacketType.FOLLOWERINFO) -> LearnerHandler:
        """A learner that goes through all steps."""
        handler = self.introduce(server_id, kind=kind)
        self.receive(handler, PacketType.ACKEPOCH, last, bytes(4))
        self.receive(handler, PacketType.ACK, self.leader.epoch << 32)
        return handler

    def propose(self, *zxids: int) -> None:
        for each in zxids:
            self.leader.propose(each, [transaction(each)])


def kinds(packets: list[QuorumPacket]) -> list[int]:
    return [packet.type for packet in packets]


class TestLeader:
    """The leader of three servers, with the id 1."""

    def test_its_log_says_which_phase_begins(self, caplog: pytest.LogCaptureFixture) -> None:
        """In the words of Apache's servers."""
        caplog.set_level(logging.INFO)
        side = LeaderSide(ensemble())
        handler = side.introduce(2)
        side.receive(handler, PacketType.ACKEPOCH, 0, bytes(4))
        side.receive(handler, PacketType.ACK, side.leader.epoch << 32)
        assert [line for line in caplog.messages if line.startswith("Peer state changed")] == [
            "Peer state changed: leading - synchronization",
            "Peer state changed: leading - broadcast",
        ]

    def test_the_epoch_is_above_all_that_a_quorum_has_accepted(self) -> None:
        """It is chosen when a quorum is there, and durable before the learners hear of it."""
        side = LeaderSide(ensemble(), accepted=4)
        assert side.leader.epoch == -1
        handler = side.introduce(2, accepted=7)
        assert side.leader.epoch == side.epochs.accepted == 8
        (info,) = side.sent(handler)
        assert (info.type, info.zxid, info.data) == (PacketType.LEADERINFO, 8 << 32, b"\0\1\0\0")

    def test_a_learner_whose_history_was_not_compared_does_not_make_the_quorum(self) -> None:
        """One that had accepted the epoch before, maybe from another leader,
        acknowledges it with -1."""
        side = LeaderSide(ensemble())
        handler = side.introduce(2)
        side.sent(handler)
        side.receive(handler, PacketType.ACKEPOCH, zxid(9, 9), b"\xff\xff\xff\xff")
        assert side.sent(handler) == []
        side.receive(side.introduce(3), PacketType.ACKEPOCH, 0, bytes(4))
        assert kinds(side.sent(handler))[-1] == PacketType.NEWLEADER

    def test_without_a_quorum_there_is_no_epoch(self) -> None:
        """Observers do not count, nor does a learner that has connected twice."""
        side = LeaderSide(ensemble(5, observers=(4, 5)))
        side.introduce(4, kind=PacketType.OBSERVERINFO)
        side.introduce(5, kind=PacketType.OBSERVERINFO)
        assert side.leader.epoch == -1

    def test_a_follower_with_a_more_recent_history_ends_the_leader(self) -> None:
        """It must be elected itself: this leader lacks committed transactions."""
        side = LeaderSide(ensemble(), history(zxid(1, 5)), accepted=1, current=1)
        handler = side.introduce(2, accepted=1)
        side.receive(handler, PacketType.ACKEPOCH, zxid(1, 6), b"\0\0\0\1")
        assert side.resigned is not None
        assert side.leader.phase is LeaderPhase.ENDED

    @pytest.mark.parametrize("last", [zxid(1, 5), zxid(1, 4), zxid(0, 0)])
    def test_every_learner_gets_a_snapshot_if_that_is_forced(self, last: int) -> None:
        """One that lacks nothing, too."""
        side = LeaderSide(ensemble(), history(zxid(1, 4), zxid(1, 5)), accepted=1, current=1)
        for forces, kind in ((True, PacketType.SNAP), (False, PacketType.DIFF)):
            side.leader.forces_snapshots = forces
            handler = side.introduce(3 if forces else 2, accepted=1)
            side.receive(handler, PacketType.ACKEPOCH, last, b"\0\0\0\1")
            sent = kinds(side.sent(handler))
            assert (kind in sent) is (forces or last != 0)
        assert side.leader.syncs[PacketType.SNAP] == (1 if last else 2)

    def test_it_serves_when_a_quorum_has_its_history(self) -> None:
        """The acknowledgement of NEWLEADER by one of two followers is enough; UPTODATE follows."""
        side = LeaderSide(ensemble())
        handler = side.introduce(2)
        side.receive(handler, PacketType.ACKEPOCH, 0, bytes(4))
        assert kinds(side.sent(handler)) == [PacketType.LEADERINFO, PacketType.DIFF, PacketType.NEWLEADER]
        assert side.epochs.current == 1
        assert not side.served
        side.receive(handler, PacketType.ACK, 1 << 32)
        assert side.served == [1 << 32]
        assert kinds(side.sent(handler)) == [PacketType.UPTODATE]

    def test_a_proposal_is_committed_by_a_majority_with_the_leader(self) -> None:
        """Its own log counts only when it is synced."""
        side = LeaderSide(ensemble())
        handler = side.join(2)
        side.sent(handler)
        side.propose(zxid(1, 1))
        assert kinds(side.sent(handler)) == [PacketType.PROPOSAL]
        side.receive(handler, PacketType.ACK, zxid(1, 1))
        assert side.committed == 0
        side.leader.logged(zxid(1, 1))
        assert side.committed == 1
        assert kinds(side.sent(handler)) == [PacketType.COMMIT]

    def test_two_followers_commit_without_the_leaders_disk(self) -> None:
        """Any majority will do."""
        side = LeaderSide(ensemble())
        first, second = side.join(2), side.join(3)
        side.propose(zxid(1, 1))
        side.receive(first, PacketType.ACK, zxid(1, 1))
        side.receive(second, PacketType.ACK, zxid(1, 1))
        assert side.committed == 1

    @pytest.mark.parametrize("count", [3, 5, 7])
    def test_more_servers_make_a_write_cost_more(self, count: int) -> None:
        """All followers get each write and its commit, and a larger majority has to
        log it first."""
        side = LeaderSide(ensemble(count))
        followers = [side.introduce(number) for number in range(2, count + 1)]
        for each in followers:
            side.receive(each, PacketType.ACKEPOCH, 0, bytes(4))
        for each in followers:
            side.receive(each, PacketType.ACK, side.leader.epoch << 32)
        for each in followers:
            side.sent(each)
        side.propose(zxid(1, 1))
        side.leader.logged(zxid(1, 1))
        waited_for = 0
        while not side.committed:
            side.receive(followers[waited_for], PacketType.ACK, zxid(1, 1))
            waited_for += 1
        assert waited_for == count // 2
        sent = [kinds(side.sent(each)) for each in followers]
        assert sent == [[PacketType.PROPOSAL, PacketType.COMMIT]] * (count - 1)

    def test_an_observer_does_not_count_and_is_informed(self) -> None:
        """It gets the transaction when it is committed, not before."""
        side = LeaderSide(ensemble(4, observers=(4,)))
        follower = side.join(2)
        observer = side.join(4, kind=PacketType.OBSERVERINFO)
        side.sent(observer)
        side.propose(zxid(1, 1))
        side.leader.logged(zxid(1, 1))
        side.receive(observer, PacketType.ACK, zxid(1, 1))
        assert side.committed == 0
        assert side.sent(observer) == []
        side.receive(follower, PacketType.ACK, zxid(1, 1))
        assert side.committed == 1
        assert kinds(side.sent(observer)) == [PacketType.INFORM]

    def test_an_acknowledgement_before_newleader_is_no_vote(self) -> None:
        """A learner that is not synchronised cannot help to commit."""
        side = LeaderSide(ensemble())
        side.join(2)
        late = side.introduce(3)
        side.receive(late, PacketType.ACKEPOCH, 0, bytes(4))
        side.propose(zxid(1, 1))
        side.receive(late, PacketType.ACK, zxid(1, 1))
        side.leader.logged(zxid(1, 1))
        assert side.committed == 0
        assert side.pipes[late].closed is not None

    def test_a_late_follower_gets_what_is_committed_and_what_is_proposed(self) -> None:
        """Each transaction once, in order, before NEWLEADER; later ones behind it."""
        side = LeaderSide(ensemble())
        follower = side.join(2)
        side.propose(zxid(1, 1))
        side.leader.logged(zxid(1, 1))
        side.receive(follower, PacketType.ACK, zxid(1, 1))
        side.propose(zxid(1, 2))
        late = side.introduce(3)
        side.receive(late, PacketType.ACKEPOCH, zxid(1, 0), bytes(4))
        side.propose(zxid(1, 3))
        packets = side.sent(late)[1:]
        assert [(packet.type, packet.zxid & 0xFF) for packet in packets if packet.type != PacketType.NEWLEADER] == [
            (PacketType.SNAP, 1),
            (PacketType.PROPOSAL, 2),
            (PacketType.PROPOSAL, 3),
        ]

    def test_a_follower_behind_the_recent_transactions_gets_those_of_the_log_first(self, tmp_path: Path) -> None:
        """DIFF, the log's part below the recent ones, the recent ones as they are by then,
        what is proposed, NEWLEADER."""
        side = LeaderSide(ensemble(), history(zxid(1, 8), zxid(1, 9)), current=1, accepted=1)
        side.logged = True
        side.join(2, zxid(1, 9))
        late = side.introduce(3, 1)
        side.receive(late, PacketType.ACKEPOCH, zxid(1, 3), bytes(4))
        assert side.sought == [(late, zxid(1, 3))]
        side.propose(zxid(2, 1))
        assert kinds(side.sent(late)) == [PacketType.LEADERINFO]
        write_log(tmp_path, [zxid(1, number) for number in range(1, 10)])
        found = logged_history(tmp_path, zxid(1, 3))
        side.leader.history_sought(late, found)
        assert side.pipes[late].histories == [(found, zxid(1, 8))]
        sent = side.sent(late)
        assert [(packet.type, packet.zxid) for packet in sent] == [
            (PacketType.DIFF, zxid(1, 3)),
            (PacketType.PROPOSAL, zxid(1, 8)),
            (PacketType.COMMIT, zxid(1, 8)),
            (PacketType.PROPOSAL, zxid(1, 9)),
            (PacketType.COMMIT, zxid(1, 9)),
            (PacketType.PROPOSAL, zxid(2, 1)),
            (PacketType.NEWLEADER, zxid(2, 0)),
        ]
        found.close()

    def test_a_follower_whose_place_is_not_in_the_log_gets_a_snapshot(self) -> None:
        """And one that is gone by then gets nothing."""
        side = LeaderSide(ensemble(), history(zxid(1, 8), zxid(1, 9)), current=1, accepted=1)
        side.logged = True
        side.join(2, zxid(1, 9))
        late, gone = side.introduce(3, 1), None
        side.receive(late, PacketType.ACKEPOCH, zxid(1, 3), bytes(4))
        side.leader.history_sought(late, None)
        assert side.pipes[late].snapshots == 1
        gone = side.introduce(3, 1)
        side.receive(gone, PacketType.ACKEPOCH, zxid(1, 3), bytes(4))
        side.leader.disconnected(gone, 0)
        side.leader.history_sought(gone, None)
        assert side.pipes[gone].snapshots == 0

    def test_it_resigns_without_a_quorum_of_followers(self) -> None:
        """A closed connection is known at once; silence is known after syncLimit."""
        side = LeaderSide(ensemble())
        first, second = side.join(2), side.join(3)
        side.leader.disconnected(first, 0)
        assert side.resigned is None
        side.now_ms = TIMING.sync_ms
        side.leader.tick(side.now_ms)
        assert side.resigned is None
        side.leader.tick(side.now_ms + 1)
        assert side.pipes[second].closed is not None
        assert side.resigned is not None

    def test_it_resigns_when_no_quorum_comes_within_init_limit(self) -> None:
        """Nothing was served."""
        side = LeaderSide(ensemble())
        side.introduce(2)
        side.leader.tick(TIMING.init_ms)
        assert side.resigned is None
        side.leader.tick(TIMING.init_ms + 1)
        assert side.resigned is not None

    def test_a_sync_waits_for_all_that_is_proposed(self) -> None:
        """Without proposals it is answered at once."""
        side = LeaderSide(ensemble())
        follower = side.join(2)
        done: list[int] = []
        side.leader.sync(lambda: done.append(1))
        side.propose(zxid(1, 1))
        side.leader.sync(lambda: done.append(2))
        assert done == [1]
        side.leader.logged(zxid(1, 1))
        side.receive(follower, PacketType.ACK, zxid(1, 1))
        assert done == [1, 2]

    @pytest.mark.parametrize("server_id", [1, 9])
    def test_an_uninvited_server_is_dropped(self, server_id: int) -> None:
        """Ids that no member has, and the leader's own."""
        side = LeaderSide(ensemble())
        handler = side.introduce(server_id)
        assert side.pipes[handler].closed is not None
        assert side.leader.epoch == -1

    def test_the_second_connection_of_a_server_replaces_the_first(self) -> None:
        """The older one is closed; the acknowledgements of one server count once."""
        side = LeaderSide(ensemble())
        first = side.join(2)
        side.join(2)
        assert side.pipes[first].closed is not None
        side.propose(zxid(1, 1))
        side.receive(first, PacketType.ACK, zxid(1, 1))
        side.leader.logged(zxid(1, 1))
        assert side.committed == 0

    def test_a_connection_that_only_says_a_members_name_replaces_none(self) -> None:
        """The follower keeps its connection until another one has acknowledged
        NEWLEADER in its name."""
        side = LeaderSide(ensemble())
        first = side.join(2)
        strangers = [side.introduce(2), side.introduce(2)]
        assert side.pipes[first].closed is None
        assert side.pipes[strangers[0]].closed is not None  # one of them at a time
        side.propose(zxid(1, 1))
        side.leader.logged(zxid(1, 1))
        side.receive(first, PacketType.ACK, zxid(1, 1))
        assert side.committed == 1

    def test_a_member_that_accepted_a_higher_epoch_makes_the_leader_accept_it_and_resign(self) -> None:
        """The member could follow no leader of this epoch; the next epoch is above
        the one it has accepted."""
        side = LeaderSide(ensemble())
        side.join(2)
        assert side.leader.epoch == 1
        side.introduce(3, accepted=4)
        assert side.resigned is not None
        assert "above this one" in side.resigned
        assert side.epochs.accepted == 4
        again = LeaderSide(ensemble(), accepted=side.epochs.accepted, current=1)
        again.introduce(2)
        assert again.leader.epoch == 5

    @pytest.mark.parametrize("accepted", [-1, 1 << 21, 0x7FFFFFFF])
    def test_an_accepted_epoch_that_cannot_be_ends_the_connection_only(self, accepted: int) -> None:
        """Neither before nor after the discovery does a lie use up the epochs."""
        side = LeaderSide(ensemble())
        early = side.introduce(3, accepted=accepted)
        side.join(2)
        late = side.introduce(3, accepted=accepted)
        assert side.leader.epoch == 1
        assert side.resigned is None
        assert side.pipes[early].closed is not None
        assert side.pipes[late].closed is not None

    def test_a_higher_epoch_in_the_name_of_a_member_that_follows_is_a_lie(self) -> None:
        """A follower has accepted the leader's epoch; its connection and the leader stay."""
        side = LeaderSide(ensemble())
        follower = side.join(2)
        liar = side.introduce(2, accepted=4)
        assert side.resigned is None
        assert side.pipes[follower].closed is None
        assert side.pipes[liar].closed is not None


class TestPlan:
    """How a learner gets the leader's history."""

    LOG = history(zxid(1, 2), zxid(1, 3), zxid(1, 4), zxid(2, 1), zxid(2, 2))

    @pytest.mark.parametrize(
        ("last", "kind", "target", "behind"),
        [
            (zxid(2, 2), PacketType.DIFF, zxid(2, 2), []),
            (zxid(1, 3), PacketType.DIFF, zxid(2, 2), [zxid(1, 4), zxid(2, 1), zxid(2, 2)]),
            (zxid(1, 9), PacketType.TRUNC, zxid(1, 4), [zxid(2, 1), zxid(2, 2)]),
            (zxid(2, 5), PacketType.TRUNC, zxid(2, 2), []),
            (zxid(1, 1), PacketType.SNAP, zxid(2, 2), []),
            (0, PacketType.SNAP, zxid(2, 2), []),
            (zxid(2, 0), PacketType.DIFF, zxid(2, 2), [zxid(2, 1), zxid(2, 2)]),
        ],
    )
    def test_a_plan_leads_to_the_leaders_history(
        self, last: int, kind: PacketType, target: int, behind: list[int]
    ) -> None:
        """DIFF, TRUNC or SNAP, and the transactions behind."""
        plan = plan_sync(last, self.LOG, zxid(2, 2))
        assert (plan.type, plan.zxid, [each for each, _ in plan.transactions]) == (kind, target, behind)

    def test_a_fresh_ensemble_needs_nothing(self) -> None:
        """All logs are empty."""
        assert plan_sync(0, CommittedLog(), 0).type is PacketType.DIFF

    def test_the_log_is_bounded(self) -> None:
        """By count and by bytes; the newest stay."""
        log = CommittedLog(max_count=3, max_bytes=1000)
        for each in range(1, 10):
            log.add(each, bytes(10))
        assert log.zxids() == [7, 8, 9]
        log.add(10, bytes(2000))
        assert log.zxids() == [10]


class TestLoggedHistory:
    """The log behind a learner's last zxid."""

    ZXIDS = [zxid(1, number) for number in range(1, 40)] + [zxid(3, number) for number in range(1, 30)]

    @pytest.mark.parametrize(
        ("last", "common"),
        [
            (zxid(1, 1), zxid(1, 1)),
            (zxid(1, 20), zxid(1, 20)),
            (zxid(1, 39), zxid(1, 39)),
            (zxid(1, 44), zxid(1, 39)),
            (zxid(2, 0), zxid(2, 0)),
            (zxid(3, 0), zxid(3, 0)),
            (zxid(3, 4), zxid(3, 4)),
            (zxid(2, 5), None),
            (0, None),
            (zxid(0, 9), None),
            (zxid(3, 29), None),
        ],
    )
    def test_it_finds_what_both_have_and_gives_all_behind_it(
        self, tmp_path: Path, last: int, common: int | None
    ) -> None:
        """A learner whose last transaction is unknown is cut back to the one below,
        within its epoch only."""
        write_log(tmp_path, self.ZXIDS)
        found = logged_history(tmp_path, last)
        assert found.common_zxid == common
        if common is None:
            return
        assert found.must_truncate == (common != last)
        before = zxid(3, 25)
        got: list[tuple[int, bytes]] = []
        while piece := found.read(before):
            got += piece
        assert got == [(each, transaction(each)) for each in self.ZXIDS if common < each < before]
        found.close()

    def test_it_is_read_in_pieces_while_the_log_grows(self, tmp_path: Path) -> None:
        """Each call reads a part of the log; the reserved room at the end is no transaction."""
        log = TransactionLog(OsFiles(), str(tmp_path), preallocate_bytes=1 << 20)
        for first in range(1, 12_001, 1000):
            log.append(zxid(1, first), [transaction(zxid(1, each)) for each in range(first, first + 1000)])
        found = logged_history(tmp_path, zxid(1, 10))
        log.append(zxid(1, 12_001), [transaction(zxid(1, 12_001))])
        sizes = []
        while piece := found.read(zxid(1, 12_001)):
            sizes.append(len(piece))
        assert sum(sizes) == 11_990
        assert max(sizes) < 6000
        found.close()
        log.close()

    def test_a_log_that_is_longer_than_allowed_is_not_used(self, tmp_path: Path) -> None:
        """A snapshot is less then."""
        write_log(tmp_path, self.ZXIDS)
        whole = sum(path.stat().st_size for path in tmp_path.iterdir())
        assert logged_history(tmp_path, zxid(1, 2), whole).common_zxid is not None
        assert logged_history(tmp_path, zxid(1, 2), 1000).common_zxid is None
        assert logged_history(tmp_path, zxid(3, 28), 1000).common_zxid is not None

    def test_a_gap_in_the_log_is_an_error_and_not_a_history(self, tmp_path: Path) -> None:
        """Within an epoch, at the beginning of one, and before the recent transactions."""
        write_log(tmp_path, [zxid(1, 1), zxid(1, 2), zxid(1, 4)])
        with pytest.raises(CorruptDataError, match="gap"):
            logged_history(tmp_path, zxid(1, 2))
        (tmp_path / "other").mkdir()
        write_log(tmp_path / "other", [zxid(1, 1), zxid(1, 2)])
        found = logged_history(tmp_path / "other", zxid(1, 1))
        assert [each for each, _ in found.read(zxid(1, 9))] == [zxid(1, 2)]
        with pytest.raises(CorruptDataError, match="not in the log"):
            found.read(zxid(1, 9))


class LearnerSide:
    """A learner with an environment that records; its disk syncs when the test says so."""

    def __init__(self, *, accepted: int = 0, current: int = 0, last: int = 0, is_observer: bool = False) -> None:
        self.epochs = epochs(accepted, current)
        self.pipe = Pipe()
        self.truncated: list[int] = []
        self.unsynced: list[int] = []
        self.applied: list[int] = []
        self.served: list[int] = []
        self.got: list[QuorumPacket] = []
        self.failed: str | None = None
        self.seen: list[bytes | None] = []
        self.activated: list[tuple[bytes | None, int | None]] = []
        self.ends = False
        self.turns = Turns()
        self.learner = Learner(2, 0, self.epochs, last, self, is_observer=is_observer)
        self.learner.start()

    def send(self, data: bytes) -> None:
        self.pipe.send(data)

    def truncate(self, zxid: int) -> None:
        self.truncated.append(zxid)

    def run(self, task: Task[None]) -> None:
        self.turns.runner.start(task)

    def log(self, zxids: Sequence[int], payloads: Sequence[bytes]) -> None:
        assert len(zxids) == len(payloads)
        self.unsynced += zxids

    def apply(self, entries: Sequence[tuple[int, bytes]]) -> None:
        self.applied += [zxid for zxid, _ in entries]

    def serve(self, first_zxid: int) -> None:
        self.served.append(first_zxid)

    def received(self, packet: QuorumPacket) -> None:
        self.got.append(packet)

    def see(self, configuration: bytes | None) -> None:
        self.seen.append(configuration)

    def activate(self, configuration: bytes | None, leader_id: int | None) -> bool:
        self.activated.append((configuration, leader_id))
        return self.ends

    def fail(self, reason: str) -> None:
        self.failed = reason

    def sent(self) -> list[QuorumPacket]:
        packets = list(self.pipe.packets)
        self.pipe.packets.clear()
        return packets

    def receive(self, kind: PacketType, zxid: int = -1, data: bytes | None = None) -> None:
        self.learner.packets([QuorumPacket(kind, zxid, data)])

    def propose(self, *zxids: int) -> None:
        for each in zxids:
            self.receive(PacketType.PROPOSAL, each, transaction(each))

    def sync(self) -> None:
        """The disk has everything."""
        last, self.unsynced = self.unsynced[-1], []
        self.learner.logged(last)

    def synchronise(self, epoch: int = 1) -> None:
        """Follow a leader without news."""
        self.receive(PacketType.LEADERINFO, epoch << 32, b"\0\1\0\0")
        self.receive(PacketType.DIFF, 0)
        self.receive(PacketType.NEWLEADER, epoch << 32)
        self.receive(PacketType.UPTODATE)
        self.sent()


class TestLearner:
    """A follower with the id 2."""

    @pytest.mark.parametrize(("is_observer", "role"), [(False, "following"), (True, "observing")])
    def test_its_log_says_which_phase_begins(
        self, is_observer: bool, role: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        """In the words of Apache's servers, with how it is synchronized."""
        caplog.set_level(logging.INFO)
        LearnerSide(is_observer=is_observer).synchronise()
        assert [line for line in caplog.messages if line.startswith("Peer state changed")] == [
            f"Peer state changed: {role} - synchronization",
            f"Peer state changed: {role} - synchronization - diff",
            f"Peer state changed: {role} - broadcast",
        ]

    def test_it_says_who_it_is_and_what_it_has(self) -> None:
        """FOLLOWERINFO with the accepted epoch; ACKEPOCH with the current epoch and
        the last zxid."""
        side = LearnerSide(accepted=3, current=2, last=zxid(2, 9))
        (info,) = side.sent()
        assert (info.type, info.zxid, (info.data or b"")[:12]) == (11, 3 << 32, (2).to_bytes(8, "big") + b"\0\1\0\0")
        side.receive(PacketType.LEADERINFO, 4 << 32, b"\0\1\0\0")
        (ack,) = side.sent()
        assert (ack.type, ack.zxid, ack.data) == (PacketType.ACKEPOCH, zxid(2, 9), b"\0\0\0\2")
        assert (side.epochs.accepted, side.epochs.current) == (4, 2)

    def test_an_epoch_that_it_has_accepted_before_does_not_count_again(self) -> None:
        """ACKEPOCH has -1 instead of the current epoch."""
        side = LearnerSide(accepted=4, current=2)
        side.sent()
        side.receive(PacketType.LEADERINFO, 4 << 32, b"\0\1\0\0")
        assert side.sent()[0].data == b"\xff\xff\xff\xff"

    def test_an_older_epoch_is_refused(self) -> None:
        """The leader of an older epoch has lost its quorum."""
        side = LearnerSide(accepted=4, current=2)
        side.sent()
        side.receive(PacketType.LEADERINFO, 3 << 32, b"\0\1\0\0")
        assert side.failed is not None
        assert side.sent() == []

    def test_newleader_is_acknowledged_only_when_all_before_it_is_on_disk(self) -> None:
        """Then the epoch is the current one, and the proposals without a commit are
        acknowledged too."""
        side = LearnerSide()
        side.receive(PacketType.LEADERINFO, 1 << 32, b"\0\1\0\0")
        side.receive(PacketType.DIFF, 2)
        side.propose(1, 2)
        side.receive(PacketType.COMMIT, 1)
        side.sent()
        side.receive(PacketType.NEWLEADER, 1 << 32)
        assert side.sent() == []
        assert side.epochs.current == 0
        side.sync()
        assert [(packet.type, packet.zxid) for packet in side.sent()] == [
            (PacketType.ACK, 1 << 32),
            (PacketType.ACK, 2),
        ]
        assert side.epochs.current == 1
        assert side.applied == [1]
        assert not side.served
        side.receive(PacketType.UPTODATE)
        assert side.served == [1 << 32]

    def test_a_proposal_is_acknowledged_after_the_sync_and_applied_after_the_commit(self) -> None:
        """Many proposals share one sync, and each gets its acknowledgement."""
        side = LearnerSide()
        side.synchronise()
        side.propose(zxid(1, 1), zxid(1, 2))
        assert side.sent() == []
        side.sync()
        assert [packet.zxid for packet in side.sent()] == [zxid(1, 1), zxid(1, 2)]
        assert side.applied == []
        side.receive(PacketType.COMMIT, zxid(1, 1))
        assert side.applied == [zxid(1, 1)]

    def test_a_commit_out_of_order_ends_the_connection(self) -> None:
        """Nothing is applied."""
        side = LearnerSide()
        side.synchronise()
        side.propose(zxid(1, 1), zxid(1, 2))
        side.receive(PacketType.COMMIT, zxid(1, 2))
        assert side.failed is not None
        assert side.applied == []
        assert side.learner.phase is LearnerPhase.ENDED

    def test_what_follows_trunc_waits_until_the_log_is_cut(self) -> None:
        """Then it is handled in order."""
        side = LearnerSide(accepted=1, current=1, last=zxid(1, 9))
        side.receive(PacketType.LEADERINFO, 2 << 32, b"\0\1\0\0")
        side.sent()
        side.receive(PacketType.TRUNC, zxid(1, 4))
        side.propose(zxid(1, 5))
        side.receive(PacketType.COMMIT, zxid(1, 5))
        side.receive(PacketType.NEWLEADER, 2 << 32)
        assert side.truncated == [zxid(1, 4)]
        assert side.unsynced == []
        side.learner.replaced()
        assert side.unsynced == [zxid(1, 5)]
        assert side.sent() == []
        side.sync()
        assert kinds(side.sent()) == [PacketType.ACK]

    def test_an_observer_logs_and_applies_what_it_is_informed_of(self) -> None:
        """It acknowledges NEWLEADER and nothing else."""
        side = LearnerSide(is_observer=True)
        assert side.sent()[0].type == PacketType.OBSERVERINFO
        side.synchronise()
        side.receive(PacketType.INFORM, zxid(1, 1), transaction(zxid(1, 1)))
        side.sync()
        assert side.applied == [zxid(1, 1)]
        assert side.sent() == []

    @pytest.mark.parametrize(
        ("kind", "data"),
        [
            (PacketType.PROPOSAL, b"short"),
            (PacketType.PROPOSAL, None),
            (PacketType.LEADERINFO, b"\0\1\0\0"),
            (PacketType.SNAP, None),
            (99, b""),
        ],
    )
    def test_a_packet_that_makes_no_sense_ends_the_connection(self, kind: PacketType, data: bytes | None) -> None:
        """A leader that lies gets no acknowledgement."""
        side = LearnerSide()
        side.synchronise()
        side.receive(kind, zxid(1, 1), data)
        assert side.failed is not None
        assert side.sent() == []

    def test_it_answers_a_ping_before_it_serves(self) -> None:
        """The answer has no sessions."""
        side = LearnerSide()
        side.receive(PacketType.LEADERINFO, 1 << 32, b"\0\1\0\0")
        side.receive(PacketType.DIFF, 0)
        side.sent()
        side.receive(PacketType.PING, 5)
        (pong,) = side.sent()
        assert encode(pong) == encode_packet(PacketType.PING, 5, b"")


class SlowReader:
    """A connection whose peer does not read."""

    peer, local, is_stream, max_frame_bytes = ("127.0.0.1", 1), ("127.0.0.1", 2), False, 0

    def __init__(self) -> None:
        self.unsent_bytes = 0

    def send(self, parts: Sequence[bytes]) -> None:
        self.unsent_bytes += sum(map(len, parts))

    def close(self, *, after_sending: bool = False) -> None: ...


class LeaderServer:
    """What the leader's connections need of its server."""

    max_packet_bytes = 1 << 20

    def __init__(self, nodes: int) -> None:
        self.database = Database()
        for zxid in range(1, nodes + 1):
            path = f"/n{zxid}"
            self.database.tree.put(path, DataNode.new(path, bytes(1000), OPEN_ACL, 0, zxid, 5))

    def now_ms(self) -> int:
        return 0


def test_a_learner_that_is_gone_in_the_middle_of_a_snapshot_leaves_nothing_behind() -> None:
    """The tree keeps nodes as they were only for snapshots that someone still reads."""

    async def run() -> None:
        server, side = LeaderServer(20_000), LeaderSide(ensemble())
        tree = server.database.tree
        link = LearnerConnection(side.leader, server, SlowReader())  # type: ignore[arg-type]  # what is needed of both
        link.send_snapshot()
        tree.remove("/n1")
        assert tree._images
        link.closed(None)
        assert not tree._images

    asyncio.run(run())


class SlowLeaderServer(LeaderServer):
    """One on which all takes long: a millisecond passes between any two looks at the clock."""

    def __init__(self, nodes: int) -> None:
        super().__init__(nodes)
        self.time_ms = 0

    def now_ms(self) -> int:
        self.time_ms += 1
        return self.time_ms


class FastReader(SlowReader):
    """A connection whose peer reads at once."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[bytes] = []

    def send(self, parts: Sequence[bytes]) -> None:
        self.sent += parts


def test_a_snapshot_goes_to_a_learner_in_steps_of_some_milliseconds_with_the_work_of_others_between() -> None:
    """However fast it reads; and nothing of the snapshot is left out."""

    async def run() -> None:
        server, side, reader = SlowLeaderServer(20_000), LeaderSide(ensemble()), FastReader()
        link = LearnerConnection(side.leader, server, reader)  # type: ignore[arg-type]  # what is needed of both
        slices = list(encode_snapshot_for_learner(server.database))
        assert len(slices) > 20
        steps: list[int] = []
        is_sent = asyncio.Event()

        def other_work() -> None:
            steps.append(len(reader.sent))
            if len(reader.sent) <= len(slices):
                asyncio.get_running_loop().call_soon(other_work)
            else:
                is_sent.set()

        link.send_snapshot()
        other_work()
        async with asyncio.timeout(30):
            await is_sent.wait()
        assert b"".join(reader.sent) == b"".join(slices) + SNAPSHOT_SIGNATURE
        assert max(after - before for before, after in pairwise([0, *steps])) <= 5

    asyncio.run(run())


def test_a_follower_that_hears_nothing_from_its_leader_ends_its_role_after_sync_limit(tmp_path: Path) -> None:
    """Its clients see nothing older than that: it closes their connections.

    Until it serves, it waits for initLimit."""
    for phase, limit_ms in ((LearnerPhase.BROADCAST, TIMING.sync_ms), (LearnerPhase.SYNCHRONIZATION, TIMING.init_ms)):
        now_ms = 0
        ended: list[int] = []
        member = EnsembleMember(
            2,
            Configurations(2, ensemble(), None),
            TIMING,
            Limits(min_session_timeout_ms=4000, max_session_timeout_ms=40_000),
            Storage(OsFiles(), str(tmp_path), str(tmp_path), preallocate_bytes=0),
            None,  # type: ignore[arg-type]  # it serves no clients
            Turns().runner,
            now_ms=lambda: now_ms,  # noqa: B023  # called here
            wall_ms=lambda: 0,
            max_packet_bytes=1 << 20,
        )
        member.database, member.epochs = Database(), epochs()
        follower = LearnerServer(member, 1, lambda work, done: None, lambda: ended.append(now_ms))  # noqa: B023  # called here
        follower.start()
        follower.learner.phase = phase
        now_ms = limit_ms
        follower.tick()
        assert ended == []
        now_ms += 1
        follower.tick()
        assert ended == [limit_ms + 1]


def received_together(side: LeaderSide | LearnerSide, handler: LearnerHandler | None, data: bytes) -> None:
    """Bytes arrive in one piece, and are read as runs."""
    reader = PacketReader(1 << 20)
    reader.feed(data)
    if isinstance(side, LeaderSide):
        assert handler is not None
        side.leader.packets(handler, reader.runs(), side.now_ms)
    else:
        side.learner.packets(reader.runs())


steps_of_leader = st.lists(
    st.tuples(
        st.sampled_from([PacketType.PROPOSAL] * 4 + [PacketType.COMMIT] * 4 + [PacketType.PING]), st.integers(0, 30)
    ),
    max_size=12,
)


@settings(max_examples=60, deadline=None)
@given(steps_of_leader, st.booleans())
def test_a_learner_takes_packets_together_as_it_takes_each(script: list[tuple[int, int]], in_order: bool) -> None:
    """What it logs, applies, sends and refuses; a proposal or a commit may be out of place."""
    packets: list[QuorumPacket] = []
    proposed = committed = 1 << 32
    for kind, place in script:
        for _ in range(1 if kind == PacketType.PING else 3):
            if kind == PacketType.PROPOSAL:
                proposed += 1 if in_order or place else 2
                packets.append(QuorumPacket(kind, proposed, transaction(proposed)))
            elif kind == PacketType.COMMIT and (committed < proposed or not in_order):
                committed += 1 if in_order or place else 2
                packets.append(QuorumPacket(kind, committed))
            else:
                packets.append(QuorumPacket(PacketType.PING, proposed))
    together, single = LearnerSide(), LearnerSide()
    for side in (together, single):
        side.synchronise()
    received_together(together, None, b"".join(bytes(encode(packet)) for packet in packets))
    single.learner.packets(packets)
    for side in (together, single):
        if side.unsynced and side.failed is None:
            side.sync()
    assert together.sent() == single.sent()
    for name in ("unsynced", "applied", "got", "failed"):
        assert getattr(together, name) == getattr(single, name)
    if in_order:
        assert together.failed is None


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 2), st.integers(0, 6), st.integers(1, 5)), max_size=8))
def test_a_leader_takes_acknowledgements_together_as_it_takes_each(runs: list[tuple[int, int, int]]) -> None:
    """Also those that are out of order, come twice, or are of another epoch."""
    acks = [zxid(epoch, first + each) for epoch, first, count in runs for each in range(count)]
    together, single = LeaderSide(ensemble()), LeaderSide(ensemble())
    handlers = []
    for side in (together, single):
        handlers.append(side.join(2))
        side.propose(*(zxid(1, each) for each in range(1, 11)))
        side.leader.logged(zxid(1, 10))
    received_together(
        together, handlers[0], b"".join(bytes(encode(QuorumPacket(PacketType.ACK, each))) for each in acks)
    )
    for each in acks:
        single.receive(handlers[1], PacketType.ACK, each)
    assert handlers[0].acked_zxid == handlers[1].acked_zxid
    assert (together.committed, together.resigned, together.measured) == (
        single.committed,
        single.resigned,
        single.measured,
    )
    assert [each.closed for each in together.pipes.values()] == [each.closed for each in single.pipes.values()]


def test_two_acknowledgements_far_apart_take_no_memory_for_those_between() -> None:
    """A learner may send any zxid, such as the last one of the epoch."""
    side = LeaderSide(ensemble())
    handler = side.join(2)
    first = zxid(1, 1)
    tracemalloc.start()
    try:
        assert not handler.acknowledge([first, first + 3_000_000], 1)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 100_000
    assert handler.acknowledge([first, first + 1], 1)


def test_acknowledgements_that_come_together_are_measured_once_in_a_thousand() -> None:
    """As each by itself: those of zxids that are multiples of 1,000 and still wait."""
    side = LeaderSide(ensemble())
    handler = side.join(2)
    first = next(each for each in range(zxid(1, 1), zxid(1, 2000)) if not each % 1000)
    side.propose(*range(zxid(1, 1), first + 1005))
    acks = range(zxid(1, 1), first + 1005)
    received_together(side, handler, b"".join(bytes(encode(QuorumPacket(PacketType.ACK, each))) for each in acks))
    assert side.measured == [(2, transaction(first)), (2, transaction(first + 1000))]


# Commits in pieces


def proposing(count: int) -> tuple[LeaderSide, LearnerHandler, LearnerHandler]:
    """A leader with a follower and an observer, that has proposed and logged so much.

    Slices are one piece of one transaction."""
    side = LeaderSide(ensemble(4, observers=(4,)))
    follower, observer = side.join(2), side.join(4, kind=PacketType.OBSERVERINFO)
    side.propose(*(zxid(1, each) for each in range(1, count + 1)))
    side.leader.logged(zxid(1, count))
    for handler in (follower, observer):
        side.sent(handler)
    side.leader.piece_changes, side.turns.pieces_left = 1, 0
    return side, follower, observer


def test_a_leader_commits_what_one_acknowledgement_covers_in_pieces_and_others_see_no_more() -> None:
    """Packets, the own tree and syncs go together; acknowledgements that come
    meanwhile commit nothing earlier."""
    side, follower, observer = proposing(3)
    synced: list[int] = []
    for _ in range(2):
        side.leader.sync(lambda: synced.append(side.committed))
    side.receive(follower, PacketType.ACK, zxid(1, 3))
    for count in (1, 2, 3):
        assert side.committed == count
        assert [(packet.type, packet.zxid) for packet in side.sent(follower)] == [(PacketType.COMMIT, zxid(1, count))]
        assert [(packet.type, packet.zxid) for packet in side.sent(observer)] == [(PacketType.INFORM, zxid(1, count))]
        assert side.log.last_zxid == zxid(1, count)
        assert synced == ([3, 3] if count == 3 else [])
        side.receive(follower, PacketType.ACK, zxid(1, 3))
        side.turns.next()
    assert not side.turns.later


def test_a_leader_that_ends_between_two_pieces_leaves_the_rest_to_its_log() -> None:
    """As if the acknowledgement of the rest had not come: the next leader decides about it."""
    side, follower, _ = proposing(3)
    side.receive(follower, PacketType.ACK, zxid(1, 3))
    side.leader.close()
    side.turns.next()
    assert side.committed == 1
    assert [each for each, _ in side.leader.uncommitted] == [zxid(1, 2), zxid(1, 3)]


@settings(max_examples=60, deadline=None)
@given(steps_of_leader, st.integers(1, 4), st.lists(st.integers(0, 3), max_size=20))
def test_a_learner_takes_packets_in_pieces_as_it_takes_them_at_once(
    script: list[tuple[int, int]], most: int, slices: list[int]
) -> None:
    """In the same order, whatever comes between two pieces; nothing is left."""
    packets: list[QuorumPacket] = []
    proposed = committed = 1 << 32
    for kind, count in script:
        for _ in range(count % 5 + 1):
            if kind == PacketType.PROPOSAL:
                proposed += 1
                packets.append(QuorumPacket(kind, proposed, transaction(proposed)))
            elif kind == PacketType.COMMIT and committed < proposed:
                committed += 1
                packets.append(QuorumPacket(kind, committed))
            else:
                packets.append(QuorumPacket(PacketType.PING, proposed))
    sliced, whole = LearnerSide(), LearnerSide()
    for side in (sliced, whole):
        side.synchronise()
    data = [bytes(encode(packet)) for packet in packets]
    sliced.learner.piece_changes = most
    half = len(data) // 2
    for part in (data[:half], data[half:]):
        sliced.turns.pieces_left = slices.pop() if slices else 0
        received_together(sliced, None, b"".join(part))
    while sliced.turns.later:
        assert sliced.learner.is_resting
        sliced.turns.pieces_left = slices.pop() if slices else 0
        sliced.turns.next()
    received_together(whole, None, b"".join(data))
    for name in ("unsynced", "applied", "got", "failed"):
        assert getattr(sliced, name) == getattr(whole, name)
    assert not sliced.learner.is_resting


def test_a_learner_holds_what_comes_behind_commits_that_wait_for_their_turn() -> None:
    """A ping, a sync and a proposal are answered and logged behind them; with the end of the role
    the rest stays in the log."""
    side = LearnerSide()
    side.synchronise()
    side.propose(*(zxid(1, each) for each in range(1, 5)))
    side.learner.piece_changes, side.turns.pieces_left = 1, 0
    commits = b"".join(encode_signal(PacketType.COMMIT, zxid(1, each)) for each in range(1, 4))
    received_together(side, None, commits)
    assert side.applied == [zxid(1, 1)]
    side.receive(PacketType.SYNC)
    side.propose(zxid(1, 5))
    assert side.got == []
    assert side.unsynced[-1] == zxid(1, 4)
    side.turns.next()
    assert side.applied == [zxid(1, 1), zxid(1, 2)]
    side.learner.close()
    side.turns.next()
    assert side.applied == [zxid(1, 1), zxid(1, 2)]
    assert [each for each, _ in side.learner.uncommitted] == [zxid(1, 3), zxid(1, 4)]
