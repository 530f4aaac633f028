"""A clean stop whose syncs run elsewhere, many at once."""

import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from barnabas.base.files import OsFiles
from barnabas.base.ids import TopicPartition, Uuid
from barnabas.base.tasks import done_here
from barnabas.log.checkpoints import CLEAN_SHUTDOWN, RECOVERY_POINTS, read_offsets
from barnabas.log.dirs.log_dirs import LogDirs
from barnabas.log.settings import LogConfig
from barnabas.wire.kafka.records.records import Record, build_batch

NOW = 1_700_000_000_000


def opened(*directories: Path, partitions: int) -> LogDirs:
    """Log dirs with partitions that hold one unsynced record each."""
    config = LogConfig()
    dirs = LogDirs(OsFiles(), [str(path) for path in directories], config, broker_id=0, cluster_id="c",
                   rng=random.Random(1))  # fmt: skip
    dirs.load(NOW, {})
    for number in range(partitions):
        log = dirs.get_or_create(TopicPartition("t", number), Uuid(bytes(15) + b"1"), config, NOW)
        log.append_as_leader(build_batch([Record(0, NOW, None, b"v")]), leader_epoch=0, now_ms=NOW)
    return dirs


def test_syncs_of_a_clean_stop_may_run_in_threads(tmp_path: Path) -> None:
    """All is on disk before the recovery points and the marker say so."""
    dirs = opened(tmp_path, partitions=20)
    works = done_here(dirs.prepare_close())
    assert len(works) == 20
    with ThreadPoolExecutor(8) as pool:
        errors = [future.exception() for future in [pool.submit(work) for work in works]]
    assert not (tmp_path / CLEAN_SHUTDOWN).exists()
    dirs.close(clean=True, errors=errors)
    assert (tmp_path / CLEAN_SHUTDOWN).exists()
    points = read_offsets(OsFiles(), str(tmp_path / RECOVERY_POINTS))
    assert points == {TopicPartition("t", number): 1 for number in range(20)}


def test_a_log_dir_whose_sync_fails_gets_no_marker_and_the_others_do(tmp_path: Path) -> None:
    """The next start recovers it."""
    first, second = tmp_path / "a", tmp_path / "b"
    dirs = opened(first, second, partitions=4)
    broken = dirs.logs()[TopicPartition("t", 0)].directory
    errors: list[BaseException | None] = [None] * len(done_here(dirs.prepare_close()))
    errors[0] = OSError(5, "Input/output error")
    dirs.close(clean=True, errors=errors)
    marked = {path for path in (first, second) if (path / CLEAN_SHUTDOWN).exists()}
    assert marked == {first, second} - {Path(broken).parent}


def test_logs_without_anything_new_need_no_sync(tmp_path: Path) -> None:
    """An idle broker stops at once."""
    dirs = opened(tmp_path, partitions=3)
    for log in dirs.logs().values():
        log.flusher.flush(NOW)
    assert done_here(dirs.prepare_close()) == []
    dirs.close(clean=True, errors=[])
    assert (tmp_path / CLEAN_SHUTDOWN).exists()


def test_a_clean_stop_gives_way_after_each_log(tmp_path: Path) -> None:
    """While its files are completed and when they are synced: the broker's session goes on."""
    dirs = opened(tmp_path, partitions=20)
    preparing = dirs.prepare_close()
    assert sum(step is None for step in preparing) == 20
    steps = list(dirs.close_in_slices(clean=True, errors=[None] * 20))
    assert len(steps) >= 20
    assert (tmp_path / CLEAN_SHUTDOWN).exists()
