"""A run of batches leaves what its batches would leave one by one, and refuses
nothing that is right."""

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_log_partition import NOW, new_log

from barnabas.log.append_checks import unpack_header
from barnabas.log.append_run import MOST_BATCHES
from barnabas.log.partition_log import PartitionLog
from barnabas.log.producer_state import WITHOUT_VERIFICATION, encode_producer_snapshot
from barnabas.wire.kafka.errors import ErrorCode, KafkaError
from barnabas.wire.kafka.records.batch_header import seal
from barnabas.wire.kafka.records.compression import CompressionType
from barnabas.wire.kafka.records.records import Record, build_batch

SETTINGS = st.sampled_from(
    [
        {},
        {},
        {"segment_bytes": "600"},
        {"segment_ms": "400"},
        {"segment_index_bytes": "840", "index_interval_bytes": "100"},
        {"index_interval_bytes": "100"},
        {"max_message_bytes": "180"},
        {"compression_type": "lz4"},
        {"cleanup_policy": "compact"},
        {"flush_messages": "5"},
        {"message_timestamp_before_max_ms": "1000"},
        {"message_timestamp_after_max_ms": "1000"},
    ]
)
USUAL = st.fixed_dictionaries(
    {
        "values": st.lists(st.binary(max_size=40), min_size=1, max_size=3),
        "has_keys": st.booleans(),
        "age_ms": st.sampled_from([0, 0, 1, 500, 2_000, -2_000]),
        "producer": st.sampled_from([(-1, -1, -1), (7, 0, None), (7, 0, None), (8, 0, None), (7, 1, 0)]),
        "codec": st.sampled_from([CompressionType.NONE, CompressionType.NONE, *CompressionType]),
        "change": st.none(),
    }
)
HOSTILE = st.fixed_dictionaries(
    {
        "values": st.lists(st.binary(max_size=40), min_size=1, max_size=3),
        "has_keys": st.booleans(),
        "age_ms": st.just(0),
        "producer": st.tuples(st.sampled_from([-1, 7, 7]), st.sampled_from([0, 0, 1, -1]), st.integers(-2, 6)),
        "codec": st.sampled_from([CompressionType.NONE, CompressionType.LZ4]),
        # Where bytes stand that are replaced, with which, and whether the CRC is made right.
        "change": st.tuples(
            st.sampled_from([0, 8, 11, 12, 16, 17, 21, 22, 23, 26, 35, 43, 51, 53, 57, 60, 61, 62, 65]),
            st.binary(min_size=1, max_size=2),
            st.booleans(),
        ),
    }
)


def encoded(what: dict[str, object], sequences: dict[tuple[int, int], int]) -> bytearray:
    """The batch; ``sequences`` has the next one of each producer and epoch, which a
    None stands for."""
    producer_id, epoch, sequence = what["producer"]
    if sequence is None:
        sequence = sequences.get((producer_id, epoch), 0)
    sequences[producer_id, epoch] = sequence + len(what["values"])
    key = b"k" if what["has_keys"] else None
    records = [Record(at, NOW - what["age_ms"], key, value) for at, value in enumerate(what["values"])]
    batch = build_batch(
        records, compression=what["codec"], producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence
    )
    if what["change"] is not None:
        at, data, is_sealed = what["change"]
        batch[at : at + len(data)] = data
        if is_sealed:
            seal(batch)
    return batch


def append_alone(log: PartitionLog, batch: bytearray) -> tuple[int, int] | ErrorCode:
    """Append one batch by itself. Returns its offsets, or why it is refused."""
    try:
        info = log.append_as_leader(bytearray(batch), leader_epoch=0, now_ms=NOW)
    except KafkaError as error:
        return error.code
    return info.first_offset, info.last_offset


def append_in_runs(log: PartitionLog, batches: list[bytearray]) -> Iterator[tuple[int, int] | ErrorCode]:
    """Append batches that came together, as few writes as they allow."""
    run = log.begin_run(0, NOW)
    for batch in batches:
        header = unpack_header(batch)
        first_offset = run.add(memoryview(batch), header)
        if first_offset >= 0:
            yield first_offset, first_offset + header[6]
            continue
        run.write()
        yield append_alone(log, batch)
        run = log.begin_run(0, NOW)
    run.write()


def state_of(log: PartitionLog) -> dict[str, object]:
    """The files of a log, and its producers."""
    for segment in log.segments:
        segment.write_indexes()
    entries = sorted(log.producers.entries.values(), key=lambda entry: entry.producer_id)
    return {
        "files": {path.name: path.read_bytes() for path in sorted(Path(log.directory).iterdir())},
        "producers": encode_producer_snapshot(entries),
        "batches": [entry.batches for entry in entries],
        "end": log.log_end_offset,
        "epochs": log.leader_epochs.latest_epoch,
    }


@pytest.fixture(scope="module")
def directory() -> Iterator[Path]:
    with contextlib.ExitStack() as stack:
        path = tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None)
        stack.callback(shutil.rmtree, path)
        yield Path(path)


@given(SETTINGS, st.lists(st.lists(st.one_of(USUAL, USUAL, USUAL, HOSTILE), min_size=1, max_size=6), max_size=6))
@settings(max_examples=200, deadline=None)
def test_a_run_leaves_the_log_that_its_batches_leave_one_by_one(
    directory: Path, overrides: dict[str, str], together: list[list[dict[str, object]]]
) -> None:
    """Offsets, errors, bytes, indexes and producer state: of usual and of hostile batches,
    in topics of every kind."""
    logs, sequences = [], {}
    for name in ("together", "alone"):
        shutil.rmtree(directory / name, ignore_errors=True)
        logs.append(new_log(directory / name, **overrides))
    for whats in together:
        batches = [encoded(what, sequences) for what in whats]
        alone = [append_alone(logs[1], batch) for batch in batches]
        assert list(append_in_runs(logs[0], batches)) == alone
    assert state_of(logs[0]) == state_of(logs[1])


def usual(number: int, *, producer_id: int = 7, **options: int) -> bytearray:
    """The batch of one record with a sequence number."""
    return build_batch(
        [Record(0, NOW, None, b"v")], producer_id=producer_id, producer_epoch=0, base_sequence=number, **options
    )


def taken(log: PartitionLog, batches: list[bytearray], *, leader_epoch: int = 0) -> list[int]:
    """What a run takes, which is written then: first offsets, and -1."""
    run = log.begin_run(leader_epoch, NOW)
    found = [run.add(memoryview(batch), unpack_header(batch)) for batch in batches]
    run.write()
    return found


def test_usual_batches_of_a_producer_are_taken_together(tmp_path: Path) -> None:
    """Behind the first batch of a segment, with which its time begins."""
    log = new_log(tmp_path)
    assert taken(log, [usual(0), usual(1)]) == [-1, -1]
    append_alone(log, usual(0))
    assert taken(log, [usual(1), usual(2), usual(3)]) == [1, 2, 3]
    assert [batch.last_sequence for batch in log.producers.entries[7].batches] == [0, 1, 2, 3]


def test_a_run_begins_the_epoch_of_its_leader(tmp_path: Path) -> None:
    """The first batches of a new leader need no append of their own."""
    log = new_log(tmp_path)
    append_alone(log, usual(0))
    assert taken(log, [usual(1), usual(2)], leader_epoch=4) == [1, 2]
    assert log.leader_epochs.epochs.end_offset_for(4, 3).end_offset == 3


@pytest.mark.parametrize(
    "batch",
    [
        usual(0),
        usual(5),
        usual(2, producer_id=-1) + b"x",
        usual(0, producer_id=8),
        build_batch(
            [Record(0, NOW, None, b"v")], producer_id=7, producer_epoch=0, base_sequence=2, is_transactional=True
        ),
    ],
    ids=["duplicate", "gap", "bytes behind it", "another producer", "transaction"],
)
def test_a_batch_of_which_more_is_to_be_decided_is_left_to_an_append_of_its_own(
    tmp_path: Path, batch: bytearray
) -> None:
    """What the run has taken stays, and nothing is changed by the rest."""
    log = new_log(tmp_path)
    append_alone(log, usual(0))
    assert taken(log, [usual(1), batch, usual(2)]) == [1, -1, 2]


@pytest.mark.parametrize(("at", "data"), [(7, b"\1"), (22, b"\5"), (22, b"\x08"), (21, b"\x80")])
def test_a_batch_with_another_base_offset_or_other_attributes_is_left_to_an_append_of_its_own(
    tmp_path: Path, at: int, data: bytes
) -> None:
    """A codec that does not exist, the log's own time, and a bit that means nothing."""
    log = new_log(tmp_path)
    append_alone(log, usual(0))
    batch = usual(1)
    batch[at : at + 1] = data
    seal(batch)
    assert taken(log, [batch]) == [-1]


def test_a_batch_that_is_too_large_for_the_topic_or_the_segment_is_left_to_an_append_of_its_own(tmp_path: Path) -> None:
    """The segment has room for what is left behind the batches that are taken."""
    size = len(usual(0))
    for name, setting, found in (
        ("topic", {"max_message_bytes": str(size)}, [1, 2, 3, -1]),
        ("segment", {"segment_bytes": str(3 * size)}, [1, 2, -1, -1]),
    ):
        log = new_log(tmp_path / name, **setting)
        append_alone(log, usual(0))
        large = build_batch([Record(0, NOW, None, b"vv")], producer_id=7, producer_epoch=0, base_sequence=4)
        assert taken(log, [usual(1), usual(2), usual(3), large]) == found


def test_a_run_takes_no_more_batches_than_one_write_may_have(tmp_path: Path) -> None:
    """The rest is for another run."""
    log = new_log(tmp_path)
    append_alone(log, usual(0))
    found = taken(log, [usual(number) for number in range(1, MOST_BATCHES + 3)])
    assert found == [*range(1, MOST_BATCHES + 1), -1, -1]


def test_a_log_that_gives_records_its_own_time_takes_each_batch_alone(tmp_path: Path) -> None:
    """Their answers have the time of the append."""
    log = new_log(tmp_path, message_timestamp_type="LogAppendTime")
    append_alone(log, usual(0))
    assert taken(log, [usual(1)]) == [-1]


def test_nothing_is_taken_behind_a_batch_that_is_alone(tmp_path: Path) -> None:
    """It may begin a segment, or be part of a transaction."""
    log = new_log(tmp_path)
    append_alone(log, usual(0))
    first, second = usual(1, producer_id=-1), usual(2, producer_id=-1)
    run = log.begin_run(0, NOW)
    run.add_alone(memoryview(first), unpack_header(first))
    assert run.add(memoryview(second), unpack_header(second)) == -1
    run.write()
    assert log.log_end_offset == 2


def test_a_run_is_not_written_when_its_log_went_offline_meanwhile(tmp_path: Path) -> None:
    """A write to another log of the same log dir may have failed."""
    log = new_log(tmp_path)
    append_alone(log, usual(0))
    run = log.begin_run(0, NOW)
    batch = usual(1)
    assert run.add(memoryview(batch), unpack_header(batch)) == 1
    log.availability.take_offline("its disk has failed")
    with pytest.raises(KafkaError) as error:
        run.write()
    assert error.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert log.log_end_offset == 1
    with pytest.raises(KafkaError):
        log.begin_run(0, NOW)


def test_a_transaction_that_is_open_takes_no_batch_outside_of_it(tmp_path: Path) -> None:
    """Not by a run either, though the batch is in sequence."""
    log = new_log(tmp_path)
    begun = build_batch(
        [Record(0, NOW, None, b"v")], producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True
    )
    log.append_as_leader(begun, leader_epoch=0, now_ms=NOW, guard=WITHOUT_VERIFICATION)
    assert taken(log, [usual(1)]) == [-1]
    assert append_alone(log, usual(1)) == ErrorCode.INVALID_TXN_STATE
