"""LogDirs: whose the dirs are, checkpoints, creation, deletion, restarts of many
partitions; files byte for byte."""

import random
from pathlib import Path

import pytest

from barnabas.base.errors import BarnabasError, ConfigError, CorruptDataError
from barnabas.base.files import OsFiles
from barnabas.base.ids import ZERO_UUID, TopicPartition, Uuid, uuid_text
from barnabas.base.tasks import done_here
from barnabas.log.checkpoints import read_epochs, read_offsets, read_topic_id
from barnabas.log.dirs.log_dirs import LogDirs
from barnabas.log.leader_epochs import LeaderEpochs
from barnabas.log.names import delete_folder, partition_of_folder
from barnabas.log.producer_state import ProducerBatch, ProducerEntry, decode_snapshot, encode_producer_snapshot
from barnabas.log.segment.offset_index import OffsetIndex
from barnabas.log.segment.time_index import TimeIndex
from barnabas.log.settings import BROKER_SYNONYMS, TOPIC_SETTINGS, LogConfig, defaults_from_broker
from barnabas.wire.kafka.errors import ErrorCode, KafkaError
from barnabas.wire.kafka.records.records import Record, build_batch

TP = TopicPartition("topic", 0)
TOPIC_ID = Uuid(bytes(range(16)))
NOW = 1_700_000_000_000


def open_dirs(*directories: Path, cluster_id: str = "abc", broker_id: int = 1) -> LogDirs:
    dirs = LogDirs(
        OsFiles(), [str(path) for path in directories], LogConfig(), broker_id=broker_id, cluster_id=cluster_id,
        rng=random.Random(7),
    )  # fmt: skip
    dirs.load(NOW, {})
    return dirs


def put(dirs: LogDirs, partition: TopicPartition = TP, count: int = 1) -> None:
    log = dirs.get_or_create(partition, TOPIC_ID, LogConfig(), NOW)
    for _ in range(count):
        log.append_as_leader(build_batch([Record(0, NOW, None, b"v")]), leader_epoch=3, now_ms=NOW)
    log.update_high_watermark(log.log_end_offset)


def test_files_of_a_dir_are_kafkas_byte_for_byte(tmp_path: Path) -> None:
    """Metadata, checkpoints, epochs and the marker, as a 3.9 broker in ZooKeeper
    mode writes them."""
    dirs = open_dirs(tmp_path)
    put(dirs, count=2)
    dirs.close(clean=True, broker_epoch=77)

    def text(name: str) -> str:
        return (tmp_path / name).read_text()

    assert text("meta.properties").splitlines()[-3:] == ["broker.id=1", "version=0", "cluster.id=abc"]
    assert text("recovery-point-offset-checkpoint") == "0\n1\ntopic 0 2\n"
    assert text("replication-offset-checkpoint") == "0\n1\ntopic 0 2\n"
    assert text("log-start-offset-checkpoint") == "0\n0\n"
    assert text(".kafka_cleanshutdown") == '{"version":0,"brokerEpoch":77}'
    assert text("topic-0/leader-epoch-checkpoint") == "0\n1\n3 0\n"
    assert text("topic-0/partition.metadata") == f"version: 0\ntopic_id: {uuid_text(TOPIC_ID)}"
    assert (tmp_path / "topic-0" / f"{0:020d}.index").read_bytes() == b""
    assert (tmp_path / "topic-0" / f"{0:020d}.timeindex").read_bytes() == NOW.to_bytes(8, "big") + bytes(4)
    assert (tmp_path / "topic-0" / f"{2:020d}.snapshot").read_bytes()[:2] == b"\0\1"


def test_the_clean_marker_is_gone_while_the_broker_runs(tmp_path: Path) -> None:
    """So a crash during the start counts as one; the broker epoch of the last stop is kept."""
    open_dirs(tmp_path).close(clean=True, broker_epoch=5)
    dirs = open_dirs(tmp_path)
    assert dirs.previous_broker_epoch == 5
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    dirs.close(clean=False)
    assert open_dirs(tmp_path).previous_broker_epoch == -1


def test_dirs_of_other_brokers_clusters_and_processes_are_refused(tmp_path: Path) -> None:
    """With what to do about it."""
    dirs = open_dirs(tmp_path)
    with pytest.raises(BarnabasError, match="another process"):
        open_dirs(tmp_path)
    dirs.close(clean=True)
    with pytest.raises(BarnabasError, match=r"broker\.id"):
        open_dirs(tmp_path, broker_id=2)
    with pytest.raises(BarnabasError, match="cluster"):
        open_dirs(tmp_path, cluster_id="xyz")
    (tmp_path / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=abc\ndirectory.id=x\n")
    with pytest.raises(CorruptDataError, match="version 1"):
        open_dirs(tmp_path)


def test_new_partitions_go_to_the_dir_with_the_fewest(tmp_path: Path) -> None:
    """And a partition that is in two dirs stops the start."""
    paths = [tmp_path / name for name in "abc"]
    dirs = open_dirs(*paths)
    for number in range(7):
        dirs.get_or_create(TopicPartition("t", number), TOPIC_ID, LogConfig(), NOW)
    assert sorted(len(described.partitions) for described in done_here(dirs.describe())) == [2, 2, 3]
    dirs.close(clean=True)
    (tmp_path / "b" / "t-0").mkdir(exist_ok=True)
    (tmp_path / "a" / "t-0").mkdir(exist_ok=True)
    with pytest.raises(BarnabasError, match="Duplicate"):
        open_dirs(*paths)


def test_a_folder_of_another_topic_with_the_same_name_is_not_taken(tmp_path: Path) -> None:
    """INCONSISTENT_TOPIC_ID; a log without an id learns it."""
    dirs = open_dirs(tmp_path)
    put(dirs)
    with pytest.raises(KafkaError, match=r"partition.metadata in it holds the id .* remove the file") as error:
        dirs.get_or_create(TP, Uuid(bytes(15) + b"\1"), LogConfig(), NOW)
    assert error.value.code == ErrorCode.INCONSISTENT_TOPIC_ID
    other = TopicPartition("old", 0)
    dirs.get_or_create(other, ZERO_UUID, LogConfig(), NOW)
    assert dirs.get_or_create(other, TOPIC_ID, LogConfig(), NOW).topic_id == TOPIC_ID
    assert read_topic_id(OsFiles(), str(tmp_path / "old-0" / "partition.metadata")) == TOPIC_ID


@pytest.mark.parametrize(
    ("topic", "partition"),
    [("../outside", 0), ("a/b", 0), ("", 0), (".", 0), ("..", 0), ("a b", 0), ("a\nb", 0), ("a\0", 0), ("t", -1),
     ("x" * 250, 0), ("x" * 249, 100_000)],
)  # fmt: skip
def test_a_name_that_is_no_folders_is_refused_and_costs_nothing(tmp_path: Path, topic: str, partition: int) -> None:
    """A controller, or who plays one, says it: nothing is made elsewhere, and the
    dir stays online."""
    directory = tmp_path / "dir"
    dirs = open_dirs(directory)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(KafkaError) as refused:
        put(dirs, TopicPartition(topic, partition))
    assert refused.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert (sorted(tmp_path.rglob("*")), dirs.online) == (before, [str(directory)])
    dirs.close(clean=False, broker_epoch=1)


def test_a_deleted_partition_is_renamed_first_and_removed_after_its_delay(tmp_path: Path) -> None:
    """A topic of the same name can be created at once; a restart removes what waits."""
    dirs = open_dirs(tmp_path)
    put(dirs)
    dirs.delete(TP, NOW)
    assert dirs.get(TP) is None
    waiting = [path.name for path in tmp_path.iterdir() if path.name.endswith("-delete")]
    assert len(waiting) == 1
    assert waiting[0].startswith("topic-0.")
    put(dirs)
    done_here(dirs.purge_deleted(NOW + 59_999))
    assert (tmp_path / waiting[0]).exists()
    done_here(dirs.purge_deleted(NOW + 60_000))
    assert not (tmp_path / waiting[0]).exists()
    dirs.delete(TP, NOW)
    dirs.close(clean=False)
    dirs = open_dirs(tmp_path)
    done_here(dirs.purge_deleted(NOW))
    assert not any(path.name.endswith("-delete") for path in tmp_path.iterdir())


def test_what_a_crash_of_compaction_or_deletion_left_is_cleared(tmp_path: Path) -> None:
    """.deleted and .cleaned go; .swap replaces the segments it stands for; an index
    without a log goes."""
    dirs = open_dirs(tmp_path)
    put(dirs, count=4)
    dirs.close(clean=True)
    folder = tmp_path / "topic-0"
    log = folder / f"{0:020d}.log"
    size = len(log.read_bytes()) // 4
    compacted = log.read_bytes()[: 2 * size] + log.read_bytes()[3 * size :]
    (folder / f"{0:020d}.log.swap").write_bytes(compacted)
    (folder / f"{7:020d}.log.deleted").write_bytes(b"x")
    (folder / f"{9:020d}.log.cleaned").write_bytes(b"x")
    (folder / f"{9:020d}.log.swap").write_bytes(b"x")
    (folder / f"{5:020d}.timeindex").write_bytes(b"x")
    dirs = open_dirs(tmp_path)
    assert log.read_bytes() == compacted
    reloaded = dirs.get(TP)
    assert reloaded is not None
    assert reloaded.log_end_offset == 4
    assert reloaded.read(2, 1000, upper_bound=4).size_bytes == size
    names = {path.name for path in folder.iterdir()}
    assert not {name for name in names if name.endswith((".deleted", ".cleaned", ".swap"))}
    assert f"{5:020d}.timeindex" not in names


def test_truncations_move_the_checkpointed_recovery_point(tmp_path: Path) -> None:
    """Else records that come after would be trusted without having been synced."""
    dirs = open_dirs(tmp_path)
    put(dirs, count=5)
    log = dirs.get(TP)
    assert log is not None
    log.flusher.flush()
    dirs.checkpoint_recovery_points()
    dirs.truncate({TP: 2, TopicPartition("none", 1): 0})
    assert read_offsets(OsFiles(), str(tmp_path / "recovery-point-offset-checkpoint")) == {TP: 2}


def test_a_flush_moves_the_recovery_point_and_recovery_begins_there(tmp_path: Path) -> None:
    """Rolled segments and the active one; what lies below is not read again at a start."""
    dirs = open_dirs(tmp_path)
    config = LogConfig({"segment.bytes": "200"})
    log = dirs.get_or_create(TP, TOPIC_ID, config, NOW)
    for _ in range(5):
        log.append_as_leader(build_batch([Record(0, NOW, None, b"v")]), leader_epoch=0, now_ms=NOW)
    assert done_here(dirs.flush_due(NOW)) == [log]
    log.flusher.flush(NOW, include_active=False)
    assert log.durability.recovery_point == 4
    assert done_here(dirs.flush_due(NOW)) == []
    task = log.flusher.prepare_flush()
    assert task is not None
    task.run()
    log.flusher.done(task, NOW)
    assert log.durability.recovery_point == 5
    assert log.flusher.prepare_flush() is None
    dirs.checkpoint_recovery_points()
    dirs.close(clean=False)
    first = tmp_path / "topic-0" / f"{0:020d}.log"
    data = bytearray(first.read_bytes())
    data[65] ^= 1
    first.write_bytes(data)
    reloaded = open_dirs(tmp_path).get(TP)
    assert reloaded is not None
    assert reloaded.log_end_offset == 5


def test_a_sync_that_began_before_a_truncation_proves_nothing(tmp_path: Path) -> None:
    """The records that came in place of those cut off were not synced by it."""
    dirs = open_dirs(tmp_path)
    put(dirs, count=5)
    log = dirs.get(TP)
    assert log is not None
    task = log.flusher.prepare_flush()
    assert task is not None
    dirs.truncate({TP: 1})
    put(dirs, count=6)
    task.run()
    log.flusher.done(task, NOW)
    assert log.durability.recovery_point == 0


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        ({}, [False, False, False, False]),
        ({"flush.messages": "2"}, [False, True, False, True]),
        ({"flush.messages": "1"}, [True, True, True, True]),
        ({"flush.before.ack": "true"}, [True, True, True, True]),
    ],
)
def test_an_append_awaits_a_sync_as_the_topic_asks(tmp_path: Path, texts: dict[str, str], expected: list[bool]) -> None:
    """flush.messages=1 is sync before the acknowledgement, as flush.before.ack is; 2 lets
    every second append wait."""
    log = open_dirs(tmp_path).get_or_create(TP, TOPIC_ID, LogConfig(texts), NOW)
    waits = []
    for _ in expected:
        info = log.append_as_leader(build_batch([Record(0, NOW, None, b"v")]), leader_epoch=0, now_ms=NOW)
        waits.append(log.awaits_sync(info.last_offset))
        if waits[-1]:
            task = log.flusher.prepare_sync()
            assert task is not None
            task.run()
            log.flusher.done(task, NOW)
            assert not log.awaits_sync(info.last_offset)
    assert waits == expected


def test_broken_checkpoints_cost_time_but_no_data(tmp_path: Path) -> None:
    """Each replaced by garbage, by nothing, by other versions."""
    for garbage in (b"", b"x", b"0\n5\ntopic 0 1\n", b"1\n0\n", b"0\n1\ntopic zero 1\n", b"\xff\xfe"):
        directory = tmp_path / garbage.hex()
        dirs = open_dirs(directory)
        put(dirs, count=3)
        dirs.close(clean=True)
        for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint",
                     "log-start-offset-checkpoint", "topic-0/leader-epoch-checkpoint",
                     "topic-0/partition.metadata"):  # fmt: skip
            (directory / name).write_bytes(garbage)
        log = open_dirs(directory).get(TP)
        assert log is not None
        assert (log.log_start_offset, log.log_end_offset, log.leader_epochs.latest_epoch) == (0, 3, 3)
        assert log.topic_id == ZERO_UUID


def test_old_message_formats_are_not_cut_off_but_named(tmp_path: Path) -> None:
    """A sound message of format 1 past the recovery point stops the start."""
    import zlib

    dirs = open_dirs(tmp_path)
    put(dirs)
    log = dirs.get(TP)
    assert log is not None
    path = Path(log.segments.active.path)
    dirs.close(clean=False)
    body = b"\1\0" + NOW.to_bytes(8, "big") + b"\xff\xff\xff\xff" + (60).to_bytes(4, "big") + b"v" * 60
    message = (1).to_bytes(8, "big") + (len(body) + 4).to_bytes(4, "big") + zlib.crc32(body).to_bytes(4, "big") + body
    path.write_bytes(path.read_bytes() + message)
    with pytest.raises(CorruptDataError, match="format 1"):
        open_dirs(tmp_path)


def test_many_partitions_restart_with_few_descriptors(tmp_path: Path) -> None:
    """Descriptors are bounded whatever the number of partitions."""
    dirs = open_dirs(tmp_path)
    dirs.open_files.max_files = 10
    for number in range(100):
        put(dirs, TopicPartition("t", number), count=2)
    assert len(dirs.open_files) <= 10
    dirs.close(clean=False)
    dirs = open_dirs(tmp_path)
    assert len(dirs.logs()) == 100
    assert all(log.log_end_offset == 2 for log in dirs.logs().values())


# ---- parts


def test_folder_names_are_kafkas() -> None:
    """Long topics are cut so that the folder's name fits a file system."""
    assert partition_of_folder("a.b-c_d-12") == TopicPartition("a.b-c_d", 12)
    for other in ("a", "a-", "-1", "a-x", "t-0.abc-delete", "t-0.abc-future", "..-0", "remote-log-index-cache"):
        assert partition_of_folder(other) is None
    assert delete_folder(TopicPartition("t", 0), bytes(16)) == f"t-0.{'0' * 32}-delete"
    assert len(delete_folder(TopicPartition("x" * 249, 1000), bytes(16))) == 255


def test_indexes_survive_coding_and_zero_padding() -> None:
    """The longest rising prefix that lies in the log is kept."""
    index = OffsetIndex()
    times = TimeIndex()
    for number in range(1, 50):
        index.append(number * 3, number * 100)
        times.append(NOW + number, number * 3)
    decoded = OffsetIndex.decode(index.encode() + bytes(800), 1 << 20)
    assert (decoded.offsets, decoded.positions) == (index.offsets, index.positions)
    assert len(OffsetIndex.decode(index.encode(), 1000)) == 9
    again = TimeIndex.decode(times.encode() + bytes(1200), 1 << 30)
    assert (again.timestamps, again.offsets) == (times.timestamps, times.offsets)
    assert decoded.floor(2) == (0, 0)
    assert decoded.floor(3) == (3, 100)
    assert decoded.floor(10_000) == (147, 4900)
    assert again.floor(NOW) == 0
    assert again.floor(NOW + 10) == 30


def test_snapshots_survive_coding_and_corrupt_ones_are_named() -> None:
    """The last batch, the epochs and the open transaction of each producer."""
    entry = ProducerEntry(5, 2)
    entry.batches = [ProducerBatch(1, 2, 0, NOW), ProducerBatch(9, 12, 4, NOW + 1)]
    entry.timestamp_ms, entry.coordinator_epoch, entry.transaction_first_offset = NOW + 1, 8, 2
    data = encode_producer_snapshot([entry, ProducerEntry(6, 0)])
    first, second = decode_snapshot(data)
    assert first.batches == entry.batches[-1:]
    assert (first.epoch, first.coordinator_epoch, first.transaction_first_offset) == (2, 8, 2)
    assert second.batches == []
    for at in range(len(data)):
        with pytest.raises(CorruptDataError):
            decode_snapshot(data[:at])
        flipped = bytearray(data)
        flipped[at] ^= 1
        with pytest.raises(CorruptDataError):
            decode_snapshot(bytes(flipped))


def test_epochs_that_contradict_a_new_one_are_dropped() -> None:
    """Both columns rise always."""
    epochs = LeaderEpochs([(1, 0), (3, 10), (5, 20)])
    assert epochs.assign(4, 15)
    assert epochs.entries == [(1, 0), (3, 10), (4, 15)]
    assert not epochs.assign(4, 18)
    assert epochs.assign(6, 15)
    assert epochs.entries == [(1, 0), (3, 10), (6, 15)]
    assert epochs.truncate_from_start(12)
    assert epochs.entries == [(3, 12), (6, 15)]
    assert epochs.epoch_for(13) == 3
    assert epochs.epoch_for(11) == -1
    assert epochs.truncate_from_end(15)
    assert epochs.entries == [(3, 12)]


def test_topic_configurations_have_kafkas_names_defaults_and_checks() -> None:
    """Unknown names and bad values are refused; what does not exist here is refused
    when it is asked for."""
    config = LogConfig()
    assert config.max_message_bytes == 1_048_588
    assert config.segment_bytes == 1 << 30
    assert config.retention_ms == config.segment_ms == 604_800_000
    assert config.codec is None
    assert set(BROKER_SYNONYMS) <= {setting.name for setting in TOPIC_SETTINGS}
    for name, value in {
        "no.such": "1", "cleanup.policy": "shred", "segment.bytes": "1", "retention.ms": "-2",
        "compression.type": "rar", "remote.storage.enable": "true", "min.cleanable.dirty.ratio": "2",
        "leader.replication.throttled.replicas": "x", "max.message.bytes": "much", "compression.gzip.level": "0",
    }.items():  # fmt: skip
        with pytest.raises(ConfigError):
            LogConfig({name: value})
    with pytest.raises(ConfigError, match="conflict"):
        LogConfig({"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"})
    both = LogConfig({"cleanup.policy": "compact,delete", "compression.type": "zstd"})
    assert (both.cleanup_compact, both.cleanup_delete, both.codec, both.compression_level) == (True, True, 4, 3)
    assert LogConfig({"leader.replication.throttled.replicas": "*"}) != config


def test_broker_properties_give_topic_defaults_by_precedence_and_unit() -> None:
    """log.retention.ms before minutes before hours, and a negative retention is none."""
    given = {"log.retention.hours": "2", "log.roll.hours": "3", "message.max.bytes": "5", "log.segment.bytes": "100"}
    assert defaults_from_broker(given) == {
        "retention.ms": "7200000", "segment.ms": "10800000", "max.message.bytes": "5", "segment.bytes": "100",
    }  # fmt: skip
    assert defaults_from_broker({**given, "log.retention.minutes": "1"})["retention.ms"] == "60000"
    assert defaults_from_broker({"log.retention.hours": "-1"})["retention.ms"] == "-1"
    config = LogConfig({"retention.ms": "5"}, defaults_from_broker(given))
    assert (config.retention_ms, config.segment_bytes) == (5, 100)
    assert config.replace({}).retention_ms == 7_200_000


def test_epoch_and_offset_checkpoints_of_apache_are_read(tmp_path: Path) -> None:
    """An empty file, which Apache's broker makes before the first write, is an empty checkpoint."""
    path = tmp_path / "file"
    path.write_text("")
    assert read_offsets(OsFiles(), str(path)) == {}
    path.write_text("0\n2\na-b 1 5\nc 0 7\n")
    assert read_offsets(OsFiles(), str(path)) == {TopicPartition("a-b", 1): 5, TopicPartition("c", 0): 7}
    path.write_text("0\n2\n0 0\n4 17\n")
    assert read_epochs(OsFiles(), str(path)) == [(0, 0), (4, 17)]
