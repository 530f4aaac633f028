"""Compaction against a dumb model, and each of its rules by itself."""

import contextlib
import random
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from barnabas.base.errors import CorruptDataError
from barnabas.base.files import Files, FileSlice, OsFiles
from barnabas.base.ids import TopicPartition, Uuid
from barnabas.base.tasks import done_here
from barnabas.log.checkpoints import CLEANER_OFFSETS
from barnabas.log.compaction import cleaner, ordinary_batches, worker
from barnabas.log.compaction.cleanable import cleanable
from barnabas.log.compaction.compaction import Compaction
from barnabas.log.compaction.offset_map import MOST_HASHED_BYTES, SLOT_BYTES, Digests, OffsetMap, digests
from barnabas.log.compaction.ordinary_batches import Block
from barnabas.log.compaction.plan import CompactionLimits
from barnabas.log.dirs.log_dirs import LogDirs
from barnabas.log.partition_log import Origin, PartitionLog
from barnabas.log.producer_state import WITHOUT_VERIFICATION
from barnabas.log.settings import LogConfig
from barnabas.wire.kafka.records.batch_header import HEADER, BatchHeader, read_headers, seal
from barnabas.wire.kafka.records.compression import CompressionType, compress
from barnabas.wire.kafka.records.control import EndMarker, build_end_marker
from barnabas.wire.kafka.records.records import Record, build_batch, read_records
from barnabas.wire.kafka.records.varints import put_varint

TP = TopicPartition("t", 0)
NOW = 1_700_000_000_000
DAY = 86_400_000
LIMITS = CompactionLimits(map_bytes=1 << 20, map_load_factor=0.9, chunk_bytes=4096)
COMPACT = {"cleanup.policy": "compact", "file.delete.delay.ms": "0", "min.cleanable.dirty.ratio": "0"}


class Batch(NamedTuple):
    """A batch as it is read back."""

    header: BatchHeader
    records: list[Record]


def open_dirs(directory: Path | str, config: LogConfig, now_ms: int = NOW, files: Files | None = None) -> LogDirs:
    dirs = LogDirs(files or OsFiles(), [str(directory)], config, broker_id=0, cluster_id="c", rng=random.Random(3))
    dirs.load(now_ms, {})
    return dirs


def new_log(directory: Path, files: Files | None = None, **overrides: str) -> tuple[LogDirs, PartitionLog]:
    config = LogConfig({**COMPACT, **{name.replace("_", "."): value for name, value in overrides.items()}})
    dirs = open_dirs(directory, config, files=files)
    return dirs, dirs.get_or_create(TP, Uuid(bytes(16)), config, NOW)


def put(log: PartitionLog, *pairs: tuple[str, str | None], now_ms: int = NOW, **options: Any) -> int:
    """Append one batch of key-value pairs; the first offset."""
    records = [
        Record(number, now_ms, key.encode(), None if value is None else value.encode())
        for number, (key, value) in enumerate(pairs)
    ]
    info = log.append_as_leader(
        build_batch(records, **options), leader_epoch=0, now_ms=now_ms, guard=WITHOUT_VERIFICATION
    )
    log.update_high_watermark(log.log_end_offset)
    return info.first_offset


def end(log: PartitionLog, producer_id: int, *, abort: bool, now_ms: int = NOW) -> None:
    marker = build_end_marker(
        EndMarker(abort, 1), offset=0, timestamp_ms=now_ms, producer_id=producer_id, producer_epoch=0, leader_epoch=0
    )
    log.append_as_leader(marker, leader_epoch=0, now_ms=now_ms, origin=Origin.COORDINATOR)
    log.update_high_watermark(log.log_end_offset)


def compact(dirs: LogDirs, log: PartitionLog, now_ms: int = NOW, limits: CompactionLimits = LIMITS) -> Compaction:
    """A whole compaction, from the choice of the range to the checkpoint."""
    found = cleanable(log, now_ms)
    compaction = Compaction(log, found.first_dirty_offset, found.upto_offset, limits, now_ms)
    while compaction.outcome is None:
        assert compaction.is_possible()
        compaction.step()
        if compaction.wants_swap:
            compaction.swap(now_ms)
    dirs.compacted(log, end_of(compaction))
    done_here(log.purge_deleted(now_ms))
    return compaction


def end_of(compaction: Compaction) -> int:
    """Where the next one begins."""
    assert compaction.outcome is not None
    return compaction.outcome.end_offset


def batches(log: PartitionLog) -> Iterator[Batch]:
    at = log.log_start_offset
    while True:
        part = log.read(at, 1 << 20, upper_bound=log.log_end_offset)
        if not part.size_bytes:
            return
        assert isinstance(part.records, FileSlice)
        data = part.records.read()
        for position, header in read_headers(data):
            yield Batch(header, list(read_records(data, position)))
            at = header.last_offset + 1


def contents(log: PartitionLog) -> list[tuple[int, str, str | None]]:
    """(offset, key, value) of all data records."""
    return [
        (record.offset, (record.key or b"").decode(), None if record.value is None else record.value.decode())
        for batch in batches(log)
        if not batch.header.is_control
        for record in batch.records
    ]


def test_only_the_newest_record_of_each_key_stays_and_offsets_never_change(tmp_path: Path) -> None:
    """Below the active segment; what lies in it is untouched."""
    dirs, log = new_log(tmp_path)
    put(log, ("a", "1"), ("b", "1"), ("a", "2"))
    put(log, ("b", "2"))
    log.roll(NOW)
    put(log, ("a", "3"), ("c", "1"))
    log.roll(NOW)
    put(log, ("c", "2"), ("c", "3"))
    compact(dirs, log)
    assert contents(log) == [(3, "b", "2"), (4, "a", "3"), (5, "c", "1"), (6, "c", "2"), (7, "c", "3")]
    assert (log.log_start_offset, log.log_end_offset) == (0, 8)
    assert [segment.base_offset for segment in log.segments] == [0, 6]
    assert (tmp_path / CLEANER_OFFSETS).read_text() == "0\n1\nt 0 6\n"


@pytest.mark.parametrize("codec", list(CompressionType))
def test_a_rewritten_batch_keeps_its_codec_producer_and_range(tmp_path: Path, codec: CompressionType) -> None:
    """Base and last offset, sequence, epochs and timestamps stand as they did."""
    dirs, log = new_log(tmp_path)
    fields = {"producer_id": 7, "producer_epoch": 2, "base_sequence": 0, "compression": codec}
    put(log, ("a", "x" * 100), ("b", "y" * 100), ("c", "z"), ("a", "2"), **fields)
    put(log, ("c", "3"), ("b", "3"))
    before = next(batches(log))
    log.roll(NOW)
    compact(dirs, log)
    after = next(batches(log))
    assert after.header[0] == 0
    same = ("base_offset", "leader_epoch", "magic", "attributes", "last_offset_delta", "base_timestamp",
            "producer_id", "producer_epoch", "base_sequence")  # fmt: skip
    assert [getattr(after.header, name) for name in same] == [getattr(before.header, name) for name in same]
    assert after.records == [before.records[3]]


def test_a_delete_marker_stays_until_its_horizon_and_then_goes(tmp_path: Path) -> None:
    """The first pass that meets it writes the horizon; a pass after that time drops
    it (KIP-534)."""
    dirs, log = new_log(tmp_path, delete_retention_ms="1000")
    put(log, ("a", "1"), ("b", "1"))
    put(log, ("a", None))
    log.roll(NOW)
    compact(dirs, log)
    assert contents(log) == [(1, "b", "1"), (2, "a", None)]
    assert [batch.header.delete_horizon_ms for batch in batches(log)] == [None, NOW + 1000]
    assert [record.timestamp for batch in batches(log) for record in batch.records] == [NOW, NOW]
    put(log, ("c", "1"))
    log.roll(NOW)
    compact(dirs, log, NOW + 999)
    assert (2, "a", None) in contents(log)
    put(log, ("c", "2"))
    log.roll(NOW)
    compact(dirs, log, NOW + 1000)
    assert contents(log) == [(1, "b", "1"), (4, "c", "2")]


def test_aborted_records_go_at_once_and_their_marker_later(tmp_path: Path) -> None:
    """A marker outlives the records of its transaction by delete.retention.ms;
    committed records are kept."""
    dirs, log = new_log(tmp_path, delete_retention_ms="1000")
    transaction = {"producer_epoch": 0, "base_sequence": 0, "is_transactional": True}
    put(log, ("a", "good"))
    put(log, ("a", "bad"), ("b", "bad"), producer_id=5, **transaction)
    put(log, ("c", "good"), producer_id=6, **transaction)
    end(log, 5, abort=True)
    end(log, 6, abort=False)
    log.roll(NOW)
    log.producers.remove_expired(NOW + DAY, 1)
    for pass_number, now_ms in enumerate((NOW, NOW + 1, NOW + 500, NOW + 2000)):
        put(log, ("z", str(pass_number)))
        log.roll(NOW)
        compact(dirs, log, now_ms)
        assert [item for item in contents(log) if item[1] != "z"] == [(0, "a", "good"), (3, "c", "good")]
        markers = [batch.header.base_offset for batch in batches(log) if batch.header.is_control]
        assert markers == ([4, 5] if pass_number < 3 else [5])
    horizons = [batch.header.delete_horizon_ms for batch in batches(log) if batch.header.is_control]
    assert horizons == [None]  # the committed transaction still has its record


def test_an_open_transaction_stops_compaction_before_it(tmp_path: Path) -> None:
    """Nothing at or past the last stable offset's segment is touched."""
    dirs, log = new_log(tmp_path)
    put(log, ("a", "1"), ("a", "2"))
    log.roll(NOW)
    put(log, ("a", "3"), producer_id=5, producer_epoch=0, base_sequence=0, is_transactional=True)
    put(log, ("a", "4"))
    log.roll(NOW)
    assert end_of(compact(dirs, log)) == 2
    assert contents(log) == [(1, "a", "2"), (2, "a", "3"), (3, "a", "4")]


def test_the_last_batch_of_a_producer_stays_as_a_header(tmp_path: Path) -> None:
    """So its last sequence is known after a start without snapshots, and a retry is recognized."""
    dirs, log = new_log(tmp_path)
    put(log, ("a", "1"), ("a", "2"), producer_id=9, producer_epoch=1, base_sequence=4)
    put(log, ("a", "3"))
    log.roll(NOW)
    compact(dirs, log)
    first = next(batches(log))
    assert (first.records, first.header.record_count, first.header.last_sequence) == ([], 0, 5)
    dirs.close(clean=False)
    for snapshot in (tmp_path / str(TP)).glob("*.snapshot"):
        snapshot.unlink()
    again = open_dirs(tmp_path, LogConfig(COMPACT)).get(TP)
    assert again is not None
    assert again.producers.entries[9].last_sequence == 5
    assert again.log_end_offset == 3
    assert again.bounds.cleaned_offset == 3


def test_a_full_map_ends_the_pass_early_and_the_next_goes_on(tmp_path: Path) -> None:
    """Bounded memory: nothing is lost, only later."""
    dirs, log = new_log(tmp_path)
    for number in range(300):
        put(log, (f"k{number}", "old"), (f"k{number}", "new"))
    log.roll(NOW)
    tiny = CompactionLimits(map_bytes=1, map_load_factor=0.9, chunk_bytes=4096)
    ends = [end_of(compact(dirs, log, limits=tiny)) for _ in range(6)]
    assert ends[0] == 114
    assert ends[-1] == 600
    assert ends == sorted(ends)
    assert contents(log) == [(2 * number + 1, f"k{number}", "new") for number in range(300)]


def test_a_batch_that_the_map_cannot_hold_is_an_error_that_names_the_setting(tmp_path: Path) -> None:
    """Without room for one batch there would be no progress, ever."""
    dirs, log = new_log(tmp_path)
    put(log, *((f"k{number}", "v") for number in range(100)))
    log.roll(NOW)
    with pytest.raises(CorruptDataError, match=r"log\.cleaner\.dedupe\.buffer\.size"):
        compact(dirs, log, limits=CompactionLimits(1, 0.9, 4096))


def test_a_batch_that_cannot_be_read_stays_as_it_is_and_compaction_goes_on_behind_it(tmp_path: Path) -> None:
    """A wrong CRC: the batch keeps its bytes, the reason is reported, and the keys of
    other batches are compacted."""
    dirs, log = new_log(tmp_path)
    put(log, ("a", "1"), ("b", "1"))
    damaged_at = log.segments[0].size
    put(log, ("a", "2"), ("c", "1"))
    damaged_end = log.segments[0].size
    put(log, ("b", "2"), ("c", "2"))
    log.roll(NOW)
    log.segments[0].file.write_at(damaged_at + 70, b"\xff")
    before = log.segments[0].file.read_at(damaged_at, damaged_end - damaged_at)
    compaction = compact(dirs, log)
    outcome = compaction.outcome
    assert outcome is not None
    assert outcome.end_offset == 6
    assert outcome.unreadable == ("offset 2: a wrong CRC",)
    assert bytes(before) in bytes(log.segments[0].file.read_at(0, log.segments[0].size))
    kept = {header.base_offset: header.record_count for _, header in log.segments[0].headers(0)}
    assert kept == {0: 1, 2: 2, 4: 2}, "a stays at offset 0: no sound batch has a newer one"


@pytest.mark.parametrize("codec", [CompressionType.NONE, CompressionType.GZIP])
def test_batches_with_damaged_or_too_large_contents_stay_as_they_are(tmp_path: Path, codec: CompressionType) -> None:
    """Their CRC is right.

    Records that do not fill the batch, or grow past what a leader takes, are left alone."""
    dirs, log = new_log(tmp_path, max_message_bytes="100000000", segment_bytes="100000000")
    put(log, ("a", "1"), ("b", "1"))
    body = bytes(build_batch([Record(0, NOW, b"a", b"2"), Record(1, NOW, b"b", b"2")])[61:])
    forged = [body[:-1], body + b"\0", bytes([body[0] | 1]) + body[1:], body[:4] + b"\x40" + body[5:]]
    if codec is CompressionType.GZIP:
        forged.append(bytes(20 << 20))
    for contents_of_batch in forged:
        packed = bytes(compress(codec, contents_of_batch))
        base_offset = log.log_end_offset
        fields = (base_offset, 49 + len(packed), 0, 2, 0, int(codec), 1, NOW, NOW, -1, -1, -1, 2)
        batch = bytearray(HEADER.pack(*fields)) + packed
        seal(batch)
        log.append_as_follower(batch, now_ms=NOW)
        log.update_high_watermark(log.log_end_offset)
    put(log, ("b", "3"))
    log.configure(LogConfig({**COMPACT, "max.message.bytes": "1000", "segment.bytes": "100000000"}))
    log.roll(NOW)
    compaction = compact(dirs, log)
    assert compaction.outcome is not None
    assert compaction.outcome.unreadable_count == len(forged)
    kept = {header.base_offset: header.record_count for _, header in log.segments[0].headers(0)}
    assert kept == {0: 1, **{2 + 2 * number: 2 for number in range(len(forged))}, 2 + 2 * len(forged): 1}


@pytest.mark.parametrize("batch_by_batch", [False, True])
@pytest.mark.parametrize(
    ("base", "delta", "value"),
    [
        (-(1 << 63), 0, None),
        (NOW, (1 << 63) - 1, None),
        (-(1 << 63), -1, b"v"),
        ((1 << 63) - 1, (1 << 63) - 1, b"v"),
        (NOW, -(1 << 63), b"v"),
    ],
)
def test_timestamps_that_cannot_be_written_again_keep_their_batch_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, base: int, delta: int, value: bytes | None, batch_by_batch: bool
) -> None:
    """Any producer can send them.

    The batch is reported where it would have to change; compaction goes on behind it."""
    if batch_by_batch:
        monkeypatch.setattr("barnabas.log.compaction.ordinary_batches.MOST_ROWS", -1)
    dirs, log = new_log(tmp_path)
    fields = bytearray(b"\0")
    put_varint(fields, delta)
    body = bytearray()
    for offset_delta, key in enumerate((b"x", b"a")):
        record = bytearray(fields)
        put_varint(record, offset_delta)
        put_varint(record, 1)
        record += key
        put_varint(record, -1 if value is None else len(value))
        record += (value or b"") + b"\0"
        put_varint(body, len(record))
        body += record
    size = HEADER.size - 12 + len(body)
    batch = bytearray(HEADER.pack(0, size, 0, 2, 0, 0, 1, base, NOW, -1, -1, -1, 2)) + body
    seal(batch)
    log.append_as_follower(batch, now_ms=NOW)
    put(log, ("a", "1"), ("b", "2"), ("b", "3"))
    log.roll(NOW)
    before = log.segments[0].file.read_at(0, len(batch))
    outcome = compact(dirs, log).outcome
    assert outcome is not None
    overflows = value is None or base + delta not in range(-(1 << 63), 1 << 63)
    assert outcome.unreadable_count == overflows
    if overflows:
        assert log.segments[0].file.read_at(0, len(before)) == before
    assert [(batch.header.base_offset, batch.header.record_count) for batch in batches(log)][-1] == (2, 2)


@pytest.mark.parametrize("codec", [CompressionType.NONE, CompressionType.LZ4])
@pytest.mark.parametrize("delta", [-1, 2, 1 << 30])
def test_a_batch_with_an_offset_outside_of_it_stays_as_it_is(
    tmp_path: Path, codec: CompressionType, delta: int
) -> None:
    """A follower takes what its leader has.

    The offset says nothing of a record, so its keys replace no others."""
    dirs, log = new_log(tmp_path)
    put(log, ("a", "1"), ("b", "1"))
    forged = bytearray(build_batch([Record(0, NOW, b"a", b"2"), Record(delta, NOW, b"b", b"2")], base_offset=0,
                                   compression=codec))  # fmt: skip
    fields = list(HEADER.unpack_from(forged))
    fields[0], fields[6] = 2, 1
    forged[: HEADER.size] = HEADER.pack(*fields)
    seal(forged)
    log.append_as_follower(forged, now_ms=NOW)
    put(log, ("b", "3"))
    log.roll(NOW)
    outcome = compact(dirs, log).outcome
    assert outcome is not None
    assert outcome.unreadable_count == 1
    assert [(found.header.base_offset, found.header.record_count) for found in batches(log)] == [(0, 1), (2, 2), (4, 1)]


def test_keys_that_are_put_into_the_map_twice_have_the_offsets_of_their_last_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A piece of which the short way has put a part goes batch by batch from its beginning: damage
    far behind, or a full map."""
    monkeypatch.setattr("barnabas.log.compaction.ordinary_batches._BODY_BYTES", 100)
    for name, map_bytes in (("damaged", 1 << 20), ("full", 64 * SLOT_BYTES)):
        dirs, log = new_log(tmp_path / name)
        for number in range(40):
            put(log, (f"k{number % 4}", str(number)), (f"l{number}", ""), compression=CompressionType.LZ4)
        if name == "damaged":
            body = compress(CompressionType.LZ4, b"\1" * 9)
            size = HEADER.size - 12 + len(body)
            batch = bytearray(HEADER.pack(80, size, 0, 2, 0, CompressionType.LZ4, 0, NOW, NOW, -1, -1, -1, 1)) + body
            seal(batch)
            log.append_as_follower(batch, now_ms=NOW)
            log.update_high_watermark(log.log_end_offset)
        log.roll(NOW)
        while cleanable(log, NOW).dirty_bytes:
            compact(dirs, log, limits=LIMITS._replace(map_bytes=map_bytes))
        kept: dict[bytes | None, bytes | None] = {}
        with contextlib.suppress(CorruptDataError):  # the last batch
            for found in batches(log):
                kept.update((record.key, record.value) for record in found.records)
        assert [kept[f"k{number}".encode()] for number in range(4)] == [b"36", b"37", b"38", b"39"]
        assert len(kept) == 44


def test_offsets_that_no_batch_of_the_segment_can_have_end_the_compaction(tmp_path: Path) -> None:
    """A header that lies about its place says nothing about the next one either.

    No files are left."""
    dirs, log = new_log(tmp_path)
    put(log, ("a", "1"), ("a", "2"))
    log.roll(NOW)
    log.segments[0].file.write_at(23, b"\x7f")
    with pytest.raises(CorruptDataError, match="offsets 0 to"):
        compact(dirs, log)
    assert not list((tmp_path / str(TP)).glob("*.cleaned"))


@pytest.mark.parametrize(
    ("codec", "room_bytes"),
    [
        (CompressionType.NONE, 0),
        (CompressionType.ZSTD, 1 << 20),
        (CompressionType.LZ4, 1000),
        (CompressionType.GZIP, 1000),
    ],
)
def test_batches_of_every_size_are_compacted_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, codec: CompressionType, room_bytes: int
) -> None:
    """Thousands of records in one batch, batches of one record, more than a step takes or than is
    unpacked together: as a dict does it."""
    monkeypatch.setattr(ordinary_batches, "_BODY_BYTES", room_bytes // 2)
    monkeypatch.setattr(ordinary_batches, "_ROOM_BYTES", room_bytes)
    dirs, log = new_log(tmp_path, segment_bytes="100000000")
    rng = random.Random(8)
    newest: dict[str, tuple[int, str | None]] = {}
    for count in (1, 5000, 1, 1, 700, 1, 2048, *(1,) * 300):
        pairs = [
            (f"k{rng.randrange(2500)}", None if rng.random() < 0.1 else "v" * rng.randrange(90)) for _ in range(count)
        ]
        base_offset = put(log, *pairs, compression=codec)
        newest.update({key: (base_offset + at, value) for at, (key, value) in enumerate(pairs)})
    log.roll(NOW)
    compact(dirs, log, limits=CompactionLimits(map_bytes=1 << 20, map_load_factor=0.9, chunk_bytes=1 << 18))
    assert {key: (offset, value) for offset, key, value in contents(log)} == newest
    assert len(contents(log)) == len(newest)


def digests_of(keys: list[bytes], before: bytes = b"", between: bytes = b"") -> Digests:
    """The digests of keys that lie one behind the other."""
    sizes = np.array([len(key) for key in keys], np.int64)
    starts = len(before) + np.cumsum(sizes + len(between)) - sizes - len(between)
    return digests(before + between.join(keys), starts, sizes)


@settings(max_examples=300)
@given(
    st.lists(
        st.binary(max_size=20)
        | st.builds(lambda size, last: bytes(size) + last, st.integers(0, 300), st.binary(max_size=1))
        | st.builds(lambda size: b"k" * size, st.integers(MOST_HASHED_BYTES - 9, MOST_HASHED_BYTES + 9)),
        max_size=30,
    ),
    st.binary(max_size=9),
    st.binary(max_size=9),
)
def test_digests_are_equal_where_keys_are_wherever_they_lie(keys: list[bytes], before: bytes, between: bytes) -> None:
    """Zeros at the end of a key count, and what stands behind it does not."""
    found = digests_of(keys, before, between)
    known = [digests_of([key]) for key in keys]
    pairs = list(zip(found.first.tolist(), found.second.tolist(), strict=True))
    assert pairs == [(one.first[0], one.second[0]) for one in known]
    assert len(set(pairs)) == len(set(keys))


def test_the_map_agrees_with_a_dict() -> None:
    """At any load up to its bound, many keys at once; none of them finds room past it."""
    rng = random.Random(5)
    offsets = OffsetMap(64 * SLOT_BYTES, 0.9, 10_000)
    known: dict[bytes, int] = {}
    markers: set[int] = set()
    for offset in range(0, 4000, 10):
        keys = [
            rng.randbytes(rng.randrange(3)) if rng.random() < 0.1 else b"%d" % rng.randrange(60)
            for _ in range(rng.randrange(10))
        ]
        at = np.arange(offset, offset + len(keys))
        is_marker = np.array([rng.random() < 0.3 for _ in keys], np.bool_)
        fits = offsets.put(digests_of(keys), at, is_marker)
        assert fits == (len({*known, *keys}) <= 57)
        if fits:
            known.update(zip(keys, at.tolist(), strict=True))
            markers.update(at[is_marker].tolist())
        probes = [rng.randbytes(rng.randrange(3)), *keys]
        assert offsets.get(digests_of(probes)).tolist() == [known.get(probe, -1) for probe in probes]
    assert offsets.size == len(known) > 50
    newest = done_here(offsets.newest())
    every = np.arange(4000)
    stay = sorted(known.values())
    assert every[newest.holds(every)].tolist() == stay
    first = np.array([rng.randrange(4000) for _ in range(200)])
    last = first + [rng.randrange(300) for _ in range(200)]
    counts, marker_counts = newest.count(first, last)
    ranges = list(zip(first.tolist(), last.tolist(), strict=True))
    assert counts.tolist() == [sum(low <= at <= high for at in stay) for low, high in ranges]
    assert marker_counts.tolist() == [
        sum(low <= at <= high for at in markers.intersection(stay)) for low, high in ranges
    ]


@pytest.mark.parametrize("codec", [CompressionType.NONE, CompressionType.LZ4])
def test_batches_that_are_not_read_twice_or_not_one_by_one_come_out_as_if_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, codec: CompressionType
) -> None:
    """Byte for byte, over several compactions: with deletions, aborted transactions and
    maps that are too small.

    The same without the short way for ordinary batches.
    """

    def segments(name: str) -> list[dict[str, bytes]]:
        rng = random.Random(11)
        sequence = 0
        dirs, log = new_log(tmp_path / f"{codec.name}-{name}", delete_retention_ms="1000")
        rounds = []
        for number in range(6):
            for _ in range(60):
                pairs = [
                    (f"k{rng.randrange(150)}", None if rng.random() < 0.2 else "v" * rng.randrange(30))
                    for _ in range(rng.choice([1, 1, 2, 5, 40]))
                ]
                kind = rng.random()
                if kind < 0.2:
                    put(log, *pairs, compression=codec, producer_id=5, producer_epoch=0, is_transactional=True,
                        base_sequence=sequence)  # fmt: skip
                    sequence += len(pairs)
                    end(log, 5, abort=rng.random() < 0.5)
                else:
                    put(log, *pairs, compression=codec)
                if rng.random() < 0.1:
                    log.roll(NOW)
            log.roll(NOW)
            limits = LIMITS._replace(map_bytes=rng.choice([1 << 20, 128 * SLOT_BYTES]))
            compact(dirs, log, NOW + number * 700, limits)
            rounds.append({path.name: path.read_bytes() for path in sorted(Path(log.directory).glob("*.log"))})
        return rounds

    blocks: list[Block | None] = []
    filter_ordinary = ordinary_batches.filter_ordinary

    def noted(*args: Any) -> Block | None:
        blocks.append(filter_ordinary(*args))
        return blocks[-1]

    monkeypatch.setattr(cleaner, "filter_ordinary", noted)
    known = segments("known")
    assert any(block is not None and len(block.sizes) > 1 for block in blocks)
    monkeypatch.setattr("barnabas.log.compaction.ordinary_batches.MOST_ROWS", -1)
    assert known == segments("batch by batch")
    monkeypatch.setattr("barnabas.log.compaction.cleaner._MOST_DAMAGED", 0)
    assert known == segments("read again")


def test_a_process_joins_steps_but_waits_before_it_writes_what_another_broker_might(tmp_path: Path) -> None:
    """Between the sync of the records, which takes long, and the indexes; and until
    the segment was swapped in."""
    dirs, log = new_log(tmp_path)
    for _ in range(50):
        put(log, ("a", "1" * 500))
    log.roll(NOW)
    found = cleanable(log, NOW)
    limits = LIMITS._replace(may_join_steps=True)
    work = worker.begin(Compaction(log, found.first_dirty_offset, found.upto_offset, limits, NOW).plan)
    reports = [work.step()]
    while not reports[-1].must_wait:  # on a busy machine it answers earlier
        assert reports[-1].ready is reports[-1].outcome is None
        reports.append(work.step())
    assert {path.name for path in Path(log.directory).glob("*.cleaned")} == {"00000000000000000000.log.cleaned"}
    report = work.step()
    assert report.ready is not None
    assert report.ready.replaces == (0,)
    assert len(list(Path(log.directory).glob("*.cleaned"))) == 3
    work.close()
    dirs.close(clean=False)


def test_a_log_is_due_by_its_ratio_or_by_the_age_of_its_dirty_part(tmp_path: Path) -> None:
    """min.cleanable.dirty.ratio, min.compaction.lag.ms and max.compaction.lag.ms."""
    _, log = new_log(tmp_path, min_cleanable_dirty_ratio="0.5", max_compaction_lag_ms="10000", segment_ms="100000000")
    put(log, ("a", "1" * 1000))
    log.roll(NOW)
    put(log, ("b", "1" * 100))
    log.roll(NOW)
    assert cleanable(log, NOW).ratio == 1.0
    log.bounds.set_cleaned(1)
    found = cleanable(log, NOW)
    assert (found.first_dirty_offset, found.upto_offset, found.is_due) == (1, 2, False)
    assert cleanable(log, NOW + 10_001).is_due
    log.configure(LogConfig({**COMPACT, "min.compaction.lag.ms": "500"}))
    assert cleanable(log, NOW + 499).upto_offset == 1
    assert cleanable(log, NOW + 500).upto_offset == 2


def test_a_truncation_takes_the_first_dirty_offset_back(tmp_path: Path) -> None:
    """In memory, in the checkpoint, and for a compaction under way: it is not possible any more."""
    dirs, log = new_log(tmp_path)
    put(log, ("a", "1"))
    put(log, ("a", "2"))
    log.roll(NOW)
    compact(dirs, log)
    put(log, ("a", "3"))
    log.roll(NOW)
    found = cleanable(log, NOW)
    compaction = Compaction(log, found.first_dirty_offset, found.upto_offset, LIMITS, NOW)
    compaction.step()
    dirs.truncate({TP: 1})
    assert not compaction.is_possible()
    compaction.abandon()
    assert (tmp_path / CLEANER_OFFSETS).read_text() == "0\n1\nt 0 1\n"
    assert log.bounds.cleaned_offset == 1


def test_retention_under_way_ends_the_compaction_of_segments_that_it_took(tmp_path: Path) -> None:
    """cleanup.policy=compact,delete: what is too old goes as a whole, and the next
    compaction does the rest."""
    dirs, log = new_log(tmp_path, cleanup_policy="compact,delete", retention_ms="1000")
    put(log, ("a", "1"), ("a", "2"))
    log.roll(NOW)
    put(log, ("b", "1"), ("b", "2"), now_ms=NOW + 900)
    log.roll(NOW + 900)
    found = cleanable(log, NOW + 900)
    compaction = Compaction(log, found.first_dirty_offset, found.upto_offset, LIMITS, NOW + 900)
    while not compaction.wants_swap:
        compaction.step()
    assert log.apply_retention(NOW + 1500) == 1
    assert not compaction.is_possible()
    compaction.abandon()
    assert contents(log) == [(2, "b", "1"), (3, "b", "2")]
    assert end_of(compact(dirs, log, NOW + 1500)) == 4
    assert contents(log) == [(3, "b", "2")]
    dirs.close(clean=False)
    again = open_dirs(tmp_path, log.config).get(TP)
    assert again is not None
    assert contents(again) == [(3, "b", "2")]


def test_slices_that_are_on_their_way_to_a_socket_outlive_the_swap(tmp_path: Path) -> None:
    """A fetch that was answered before reads the bytes of then."""
    dirs, log = new_log(tmp_path)
    put(log, ("a", "1"), ("a", "2"))
    log.roll(NOW)
    part = log.read(0, 1 << 20, upper_bound=2)
    assert isinstance(part.records, FileSlice)
    compact(dirs, log)
    assert [record.value for record in read_records(part.records.read())] == [b"1", b"2"]
    assert contents(log) == [(1, "a", "2")]


class _PowerCutError(Exception):
    """The process dies before an operation."""


class _CuttingFiles(OsFiles):
    """Dies at the n-th change of the folder, from then on."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = 1 << 30

    def rename(self, old: str, new: str) -> None:
        self.left -= 1
        if self.left < 0:
            raise _PowerCutError
        super().rename(old, new)


def test_a_crash_at_every_step_of_a_swap_loses_and_revives_nothing(tmp_path: Path) -> None:
    """The newest state by key is the same, whichever rename was the last; deleted
    values stay deleted."""
    cut = 0
    while True:
        directory = tmp_path / str(cut)
        files = _CuttingFiles()
        dirs, log = new_log(directory, files, delete_retention_ms="0")
        transaction = {"producer_id": 5, "producer_epoch": 0, "base_sequence": 0, "is_transactional": True}
        put(log, ("a", "1"), ("b", "1"))
        put(log, ("x", "bad"), **transaction)
        log.roll(NOW)
        end(log, 5, abort=True)
        put(log, ("a", None), ("c", "1"))
        log.roll(NOW)
        put(log, ("b", "2"))
        log.roll(NOW)
        compact(dirs, log)
        put(log, ("d", "1"))
        log.roll(NOW)
        put(log, ("c", "2"))
        files.left = cut
        try:
            compact(dirs, log, NOW + 1)
        except _PowerCutError:
            is_last = False
        else:
            is_last = True
        dirs.close(clean=False)
        again = open_dirs(directory, LogConfig(COMPACT)).get(TP)
        assert again is not None
        assert latest(again) == {"b": "2", "c": "2", "d": "1"}
        assert again.log_end_offset == 9
        names = {path.name for path in (directory / str(TP)).iterdir()}
        assert not {name for name in names if name.endswith((".cleaned", ".swap", ".deleted"))}
        if is_last:
            break
        cut += 1
    assert cut > 6


def latest(log: PartitionLog) -> dict[str, str]:
    """The newest committed value of each key, as a consumer at read_committed sees it."""
    aborted = log.aborted_transactions(log.log_start_offset, log.log_end_offset)
    state: dict[str, str] = {}
    for batch in batches(log):
        if batch.header.is_control or any(
            transaction.producer_id == batch.header.producer_id
            and transaction.first_offset <= batch.header.base_offset <= transaction.last_offset
            and batch.header.is_transactional
            for transaction in aborted
        ):
            continue
        for record in batch.records:
            key = (record.key or b"").decode()
            if record.value is None:
                state.pop(key, None)
            else:
                state[key] = record.value.decode()
    return state


class CompactionMachine(RuleBasedStateMachine):
    """The model: every record ever written, the newest committed state, and what
    each producer wrote last."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.mkdtemp(prefix="compaction-model-")
        self.config = LogConfig({**COMPACT, "segment.bytes": "600", "index.interval.bytes": "100",
                                 "delete.retention.ms": "50"})  # fmt: skip
        self.now = NOW
        self.state: dict[str, str] = {}
        self.written: dict[int, tuple[str, str | None, int]] = {}
        self.sequences: dict[int, int] = {}

    @initialize()
    def open(self) -> None:
        self.dirs = open_dirs(self.directory, self.config)
        self.log = self.dirs.get_or_create(TP, Uuid(bytes(16)), self.config, self.now)

    def teardown(self) -> None:
        self.dirs.close(clean=False)
        shutil.rmtree(self.directory)

    pairs = st.lists(
        st.tuples(st.sampled_from("abcdefgh"), st.one_of(st.none(), st.text("xyz", max_size=40))),
        min_size=1,
        max_size=5,
    )

    def _write(self, pairs: list[tuple[str, str | None]], **options: Any) -> None:
        self.now += 3
        first = put(self.log, *pairs, now_ms=self.now, **options)
        for number, (key, value) in enumerate(pairs):
            self.written[first + number] = (key, value, self.now)

    def _apply(self, pairs: list[tuple[str, str | None]]) -> None:
        for key, value in pairs:
            if value is None:
                self.state.pop(key, None)
            else:
                self.state[key] = value

    @rule(pairs=pairs, codec=st.sampled_from(CompressionType), producer_id=st.sampled_from([-1, 1, 2]))
    def append(self, pairs: list[tuple[str, str | None]], codec: CompressionType, producer_id: int) -> None:
        options: dict[str, Any] = {"compression": codec}
        if producer_id >= 0:
            sequence = self.sequences.get(producer_id, 0)
            options |= {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": sequence}
            self.sequences[producer_id] = sequence + len(pairs)
        self._write(pairs, **options)
        self._apply(pairs)

    @rule(parts=st.lists(pairs, min_size=1, max_size=3), aborted=st.booleans(), producer_id=st.sampled_from([11, 12]))
    def transact(self, parts: list[list[tuple[str, str | None]]], aborted: bool, producer_id: int) -> None:
        for pairs in parts:
            sequence = self.sequences.get(producer_id, 0)
            self._write(pairs, producer_id=producer_id, producer_epoch=0, base_sequence=sequence, is_transactional=True)
            self.sequences[producer_id] = sequence + len(pairs)
            if not aborted:
                self._apply(pairs)
        end(self.log, producer_id, abort=aborted, now_ms=self.now)

    @rule()
    def roll(self) -> None:
        self.log.roll(self.now)

    @rule(passed_ms=st.sampled_from([0, 20, 100]), slots=st.sampled_from([1, 1 << 20]))
    def compact(self, passed_ms: int, slots: int) -> None:
        self.now += passed_ms
        found = cleanable(self.log, self.now)
        if found.dirty_bytes:
            compact(self.dirs, self.log, self.now, CompactionLimits(slots, 0.9, 300))

    @rule(clean=st.booleans(), without_snapshots=st.booleans())
    def reopen(self, clean: bool, without_snapshots: bool) -> None:
        if clean:
            self.dirs.checkpoint_recovery_points()
        self.dirs.close(clean=clean)
        if without_snapshots:
            for snapshot in Path(self.directory, str(TP)).glob("*.snapshot"):
                snapshot.unlink()
        self.dirs = open_dirs(self.directory, self.config, self.now)
        log = self.dirs.get(TP)
        assert log is not None
        self.log = log
        log.update_high_watermark(log.log_end_offset)

    @invariant()
    def the_newest_state_is_that_of_the_model(self) -> None:
        assert latest(self.log) == self.state

    @invariant()
    def every_record_is_one_that_was_written(self) -> None:
        for batch in batches(self.log):
            if not batch.header.is_control:
                for record in batch.records:
                    key, value, timestamp = self.written[record.offset]
                    assert record.key == key.encode()
                    assert record.value == (None if value is None else value.encode())
                    assert record.timestamp == timestamp

    @invariant()
    def keys_are_unique_below_the_first_dirty_offset(self) -> None:
        cleaned_to = self.log.bounds.cleaned_offset or 0
        keys = [key for offset, key, _ in contents(self.log) if offset < cleaned_to]
        assert len(keys) == len(set(keys))

    @invariant()
    def producers_go_on_where_they_were(self) -> None:
        for producer_id, sequence in self.sequences.items():
            assert self.log.producers.entries[producer_id].last_sequence == sequence - 1

    @invariant()
    def no_index_lies(self) -> None:
        for segment in self.log.segments[:-1]:
            for batch_offset in [header.base_offset for _, header in segment.headers(0)]:
                located = segment.locate(batch_offset)
                assert located is not None
                assert located.base_offset == batch_offset


CompactionMachine.TestCase.settings = settings(
    max_examples=60, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
TestCompactionMachine = CompactionMachine.TestCase
