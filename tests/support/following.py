"""A leader behind its dispatch and a follower with a fetcher: real logs and messages,
no sockets, manual time."""

from pathlib import Path

from barnabas.base.files import OsFiles
from barnabas.base.ids import ZERO_UUID, TopicPartition
from barnabas.base.randomness import Random
from barnabas.base.tasks import done_here
from barnabas.broker.replication.fetcher import Fetcher, FetchLimits
from barnabas.broker.replication.log_alignment import EARLIEST, LATEST
from barnabas.broker.replication.partition import Partition, StateChange
from barnabas.broker.replication.quotas import ReplicationQuota
from barnabas.log.dirs.log_dirs import LogDirs
from barnabas.log.partition_log import PartitionLog
from barnabas.log.settings import LogConfig
from support.broker import START_MS, DataPath, batch

T0 = TopicPartition("t", 0)
VERSION = 12
LIMITS = FetchLimits(partition_bytes=1 << 20, response_bytes=10 << 20, min_bytes=1, wait_ms=0, backoff_ms=100)


def change(epoch: int, leader: int = 0) -> StateChange:
    return StateChange(leader, epoch, epoch, 1, (0, 1), (0, 1))


class Pair:
    """A leader (broker 0) behind its dispatch and a follower (broker 1) with a fetcher."""

    def __init__(
        self,
        directory: Path,
        quota: ReplicationQuota | None = None,
        *,
        limits: FetchLimits = LIMITS,
        version: int = VERSION,
        for_in_sync: bool | None = None,
    ) -> None:
        """``version`` of Fetch is what the source speaks."""
        self.version = version
        self.leader = DataPath(directory / "leader")
        self.wire = self.leader.connect()
        self.log_dirs = LogDirs(
            OsFiles(), [str(directory / "follower")], LogConfig(), broker_id=1, cluster_id="c", rng=Random(1)
        )
        self.log_dirs.load(START_MS, {})
        self.partitions: dict[TopicPartition, Partition] = {}
        self.changed: list[TopicPartition] = []
        self.limits = limits
        self.fetcher = self.another_fetcher(quota, for_in_sync=for_in_sync)
        self.now_ms = 0

    def another_fetcher(
        self,
        quota: ReplicationQuota | None = None,
        *,
        for_in_sync: bool | None = None,
        limits: FetchLimits | None = None,
    ) -> Fetcher:
        """A fetcher of the same follower."""
        return Fetcher(
            1,
            limits or self.limits,
            lambda name, offset: self.log_dirs.truncate({name: offset}),
            self.changed.append,
            quota,
            for_in_sync=for_in_sync,
        )

    def lead(self, epoch: int, name: TopicPartition = T0, *, isr: tuple[int, ...] = (0, 1)) -> PartitionLog:
        """The leader leads in an epoch."""
        return self.leader.lead(name.topic, name.partition, epoch=epoch, replicas=(0, 1), isr=isr).log

    def follower_log(self, name: TopicPartition = T0) -> PartitionLog:
        return self.log_dirs.get_or_create(name, ZERO_UUID, LogConfig(), START_MS)

    def follow(self, epoch: int, name: TopicPartition = T0) -> None:
        """The follower hears of it."""
        partition = self.partitions.setdefault(name, Partition(name, 1, self.follower_log(name)))
        partition.follow(change(epoch))
        self.fetcher.follow(partition)

    def turn(self) -> None:
        """One fetch and its answer, and before it what an old source must be asked."""
        fetcher = self.fetcher
        fetcher.speak(self.version)
        while fetcher.epochs.is_wanted:
            fetcher.epochs.handle_response(self.wire.ask(fetcher.epochs.request(), 4), self.now_ms)
        if fetcher.wants_fetch:
            response = self.wire.ask(done_here(fetcher.request(self.version, -1, 0)), self.version)
            done_here(fetcher.handle_response(response, self.version, self.now_ms, START_MS))

    def append(self, name: TopicPartition, *values: bytes) -> None:
        """The leader takes records, as from a producer."""
        self.leader.replicas.append(name, batch(*values), acks=1, now_ms=START_MS)

    def locate(self) -> None:
        """The two questions after OFFSET_OUT_OF_RANGE."""
        for timestamp in (EARLIEST, LATEST):
            self.fetcher.offsets.handle_response(
                timestamp, self.wire.ask(self.fetcher.offsets.request(timestamp), 7), self.now_ms, START_MS
            )
