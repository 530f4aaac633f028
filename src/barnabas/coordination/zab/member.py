"""What a member of an ensemble keeps through all its roles: its state, its history,
its epochs and its log.

At the end of a role the state follows the log again: transactions that are logged and not committed
are applied. The next leader keeps it or truncates it.

`EnsembleMember.load`, `EnsembleMember.truncate` and `EnsembleMember.install` read and write files,
so the edge calls them in a thread.

In ZooKeeper: the fields of QuorumPeer, and ZKDatabase.
"""

from collections.abc import Callable

from barnabas.base.tasks import Runner
from barnabas.coordination.core.commit_pieces import MOST_CHANGES
from barnabas.coordination.core.connections import Limits
from barnabas.coordination.core.database import Database
from barnabas.coordination.core.processor import Processor
from barnabas.coordination.core.request_metrics import RequestMetrics
from barnabas.coordination.core.sessions import first_session_id
from barnabas.coordination.quorum.configuration import QuorumConfiguration
from barnabas.coordination.storage.snapshot import read_snapshot_of_leader
from barnabas.coordination.storage.storage import Storage
from barnabas.coordination.zab.configurations import Configurations
from barnabas.coordination.zab.epochs import Epochs
from barnabas.coordination.zab.figures import MemberFigures
from barnabas.coordination.zab.history import COMMIT_LOG_COUNT, CommittedLog
from barnabas.coordination.zab.leader import Timing
from barnabas.coordination.zab.member_log import ClientService, MemberLog

__all__ = ["EnsembleMember"]


class EnsembleMember:
    """One server of an ensemble, whichever role it has."""

    database: Database
    epochs: Epochs

    def __init__(
        self,
        my_id: int,
        configurations: Configurations,
        timing: Timing,
        limits: Limits,
        storage: Storage,
        service: ClientService,
        runner: Runner,
        *,
        now_ms: Callable[[], int],
        wall_ms: Callable[[], int],
        max_packet_bytes: int,
    ) -> None:
        """``now_ms`` returns the time that only goes forward, ``wall_ms`` the time of day."""
        self.my_id = my_id
        self.configurations = configurations
        self.timing = timing
        self.limits = limits
        self.storage = storage
        self.service = service
        self.runner = runner
        self.commits = runner.apart()
        """Runs the tasks that commit, in pieces."""
        self.piece_changes = MOST_CHANGES  # as in `next_piece`
        self.now_ms = now_ms
        self.wall_ms = wall_ms
        self.max_packet_bytes = max_packet_bytes
        self.least_voters = 2
        """How many voters a configuration must have; 1 where an ensemble of one is allowed."""
        self.commit_log_count = COMMIT_LOG_COUNT  # for `load`
        self.snapshot_size_factor = 0.33  # as in `Storage.history_behind`; negative for no history
        self.forces_snapshots = False
        """Whether each learner gets a snapshot when it synchronizes."""
        self.counts = MemberFigures()
        self.metrics = RequestMetrics()
        self.log = MemberLog()
        self.history = CommittedLog()
        self.on_serving: Callable[[], None] = lambda: None
        """Called before clients are served in a new role."""

    @property
    def configuration(self) -> QuorumConfiguration:
        """The configuration in force."""
        return self.configurations.current

    def first_session_id(self) -> int:
        """Where the sessions that are created here begin."""
        return first_session_id(self.my_id, self.wall_ms())

    def serve(self, processor: Processor, mode: str) -> None:
        """The role is established: serve clients with its processor."""
        self.on_serving()
        self.counts.serves(self.now_ms(), mode)
        self.service.serve(processor, mode)

    # In a thread

    def load(self) -> tuple[Database, int]:
        """Read the state; the number of transactions replayed.

        Raises `BarnabasError` and OSError."""
        self.history = CommittedLog(self.commit_log_count)
        self.database, replayed = self.storage.load(self.history.add)
        self.epochs = Epochs(self.storage.files, self.storage.snapshots_dir, self.database.last_zxid)
        return self.database, replayed

    def truncate(self, zxid: int) -> tuple[Database, CommittedLog]:
        """Cut the log, and read the state again."""
        self.storage.truncate(zxid)
        history = CommittedLog(self.commit_log_count)
        database, _ = self.storage.load(history.add)
        return database, history

    def install(self, state: bytes, zxid: int) -> tuple[Database, CommittedLog]:
        """Replace the state by the leader's, on disk first."""
        database = read_snapshot_of_leader(state, zxid)
        database.exact_from_zxid = 1 << 63
        self.storage.replace(database)
        return database, CommittedLog(self.commit_log_count)
