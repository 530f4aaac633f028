"""Group commit when no file descriptor is free: the log stays online, and the next
request syncs what waits."""

import errno
import os
import random
from pathlib import Path

from barnabas.base.files import File, OsFiles
from barnabas.base.ids import TopicPartition, Uuid
from barnabas.log.dirs.log_dirs import LogDirs
from barnabas.log.group_sync import GroupSync
from barnabas.log.settings import LogConfig
from barnabas.wire.kafka.records.records import Record, build_batch

TP = TopicPartition("topic", 0)
NOW = 1_700_000_000_000
CONFIG = LogConfig({"index.interval.bytes": "0"})


class NoDescriptors(OsFiles):
    """Opens nothing while it is short."""

    __slots__ = ("is_short",)

    def __init__(self) -> None:
        self.is_short = False

    def open(self, path: str, *, create: bool = False, read_only: bool = False, keep: bool = False) -> File:
        if self.is_short:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return super().open(path, create=create, read_only=read_only, keep=keep)


def test_a_sync_that_finds_no_descriptor_is_made_at_the_next_request(tmp_path: Path) -> None:
    """Whether the shortage comes while the sync is prepared or while it runs; those
    that wait hear of it then."""
    files = NoDescriptors()
    dirs = LogDirs(files, [str(tmp_path)], CONFIG, broker_id=0, cluster_id="c", rng=random.Random(1))
    dirs.load(NOW, {})
    log = dirs.get_or_create(TP, Uuid(bytes(range(16))), CONFIG, NOW)
    syncs = GroupSync(lambda _: None, lambda _: None)
    heard: list[int] = []
    for offset in (1, 2, 3):
        for _ in range(2):
            log.append_as_leader(build_batch([Record(0, NOW + offset, None, b"v")]), leader_epoch=0, now_ms=NOW)
        files.is_short = True
        sync = syncs.when_durable(log, log.log_end_offset, lambda offset=offset: heard.append(offset))  # type: ignore[misc]
        assert sync is not None
        error: OSError | None = None
        if sync.task is not None:
            try:
                sync.task.run()
            except OSError as shortage:
                error = shortage
        assert syncs.done(sync, error, NOW) is None
        assert log.offline is None
        assert log.durability.durable_offset < log.log_end_offset
        assert offset not in heard
        files.is_short = False
        sync = syncs.request(log)
        assert sync is not None
        assert sync.task is not None
        sync.task.run()
        syncs.done(sync, None, NOW)
        assert heard[-1] == offset
        assert log.durability.durable_offset == log.log_end_offset
    dirs.close(clean=True)
