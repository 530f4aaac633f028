"""Arrow columns hold exactly the records that the simple decoder gives."""

from collections.abc import Sequence

import pytest

pa = pytest.importorskip("pyarrow")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from barnabas.base.errors import CorruptDataError  # noqa: E402
from barnabas.pipelines.connector.arrow_records import arrow_records  # noqa: E402
from barnabas.wire.kafka.errors import KafkaError  # noqa: E402
from barnabas.wire.kafka.messages.fetch import AbortedTransaction  # noqa: E402
from barnabas.wire.kafka.records.batch_header import seal  # noqa: E402
from barnabas.wire.kafka.records.compression import CompressionType  # noqa: E402
from barnabas.wire.kafka.records.control import EndMarker, build_end_marker  # noqa: E402
from barnabas.wire.kafka.records.records import Record, build_batch, read_records  # noqa: E402

SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("timestampType", pa.int32()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)
NOW_MS = 1_700_000_000_000
ALL = 1 << 62

some_bytes = st.none() | st.binary(max_size=200)
some_headers = st.lists(st.tuples(st.text(max_size=5), some_bytes), max_size=3)
bodies = st.lists(st.tuples(some_bytes, some_bytes, st.integers(0, 100_000), some_headers), min_size=1, max_size=30)


def batch_at(base_offset: int, values: Sequence[bytes], **options: object) -> bytes:
    """A batch of values without keys, whose offsets begin at ``base_offset``."""
    records = [Record(base_offset + n, NOW_MS + n, None, value) for n, value in enumerate(values)]
    return bytes(build_batch(records, base_offset=base_offset, **options))  # type: ignore[arg-type]


def read(
    data: bytes, first: int = 0, end: int = ALL, aborted: Sequence[AbortedTransaction] = ()
) -> tuple[list[bytes], int]:
    """The values that come out, and the next offset."""
    found = arrow_records(memoryview(data), aborted, "t", 0, first, end, SCHEMA)
    return ([] if found.columns is None else found.columns.column("value").to_pylist()), found.next_offset


@settings(max_examples=60, deadline=None)
@given(
    batches=st.lists(st.tuples(bodies, st.sampled_from(list(CompressionType))), min_size=1, max_size=4),
    log_append=st.booleans(),
    bounds=st.tuples(st.integers(0, 60), st.integers(0, 60)),
)
def test_columns_hold_what_the_simple_decoder_gives(
    batches: list[tuple[list[tuple[bytes | None, bytes | None, int, list[tuple[str, bytes | None]]]], CompressionType]],
    log_append: bool,
    bounds: tuple[int, int],
) -> None:
    """Nulls, headers, codecs mixed, both kinds of timestamps, and any range of offsets."""
    data, offset = b"", 0
    for body, compression in batches:
        records = [
            Record(offset + n, NOW_MS + after, key, value, headers)
            for n, (key, value, after, headers) in enumerate(body)
        ]
        data += bytes(build_batch(records, base_offset=offset, compression=compression))
        offset += len(body)
    if log_append:
        data = _with_append_times(data)
    first, end = min(bounds), max(bounds)
    expected, position = [], 0
    while position < len(data):
        expected += [each for each in read_records(data, position) if first <= each.offset < end]
        position += 12 + int.from_bytes(data[position + 8 : position + 12], "big")
    found = arrow_records(memoryview(data), (), "t", 3, first, end, SCHEMA)
    rows = [] if found.columns is None else found.columns.to_pylist()
    assert [
        (row["offset"], row["key"], row["value"], int(row["timestamp"].timestamp() * 1000), row["headers"])
        for row in rows
    ] == [
        (each.offset, each.key, each.value, each.timestamp, [{"key": k, "value": v} for k, v in each.headers] or None)
        for each in expected
    ]
    assert all((row["topic"], row["partition"], row["timestampType"]) == ("t", 3, int(log_append)) for row in rows)
    if first < offset:
        assert found.next_offset == offset


def _with_append_times(data: bytes) -> bytes:
    """The batches as a broker stores them with message.timestamp.type=LogAppendTime."""
    result, position = bytearray(data), 0
    while position < len(data):
        size = 12 + int.from_bytes(data[position + 8 : position + 12], "big")
        batch = memoryview(result)[position : position + size]
        batch[22] |= 8
        seal(batch)
        position += size
    return bytes(result)


def test_a_batch_that_is_cut_off_is_left_for_the_next_fetch() -> None:
    """Brokers fill their answer to the byte."""
    first, second = batch_at(0, [b"a", b"b"]), batch_at(2, [b"c"])
    assert read(first + second[:-1]) == ([b"a", b"b"], 2)
    assert read(first[:-1]) == ([], 0)


def test_aborted_transactions_and_their_markers_are_left_out() -> None:
    """Of two producers whose batches are mixed one aborts, and commits its next transaction."""
    mine = {"producer_id": 7, "producer_epoch": 0, "is_transactional": True}
    data = (
        batch_at(0, [b"lost"], base_sequence=0, **mine)
        + batch_at(1, [b"other"], base_sequence=0, producer_id=8, producer_epoch=0, is_transactional=True)
        + batch_at(2, [b"lost too"], base_sequence=1, **mine)
        + bytes(_marker(3, is_abort=True))
        + batch_at(4, [b"kept"], base_sequence=2, **mine)
        + bytes(_marker(5, is_abort=False))
    )
    aborted = [AbortedTransaction(producer_id=7, first_offset=0)]
    assert read(data, aborted=aborted) == ([b"other", b"kept"], 6)
    assert read(data) == ([b"lost", b"other", b"lost too", b"kept"], 6)


def _marker(offset: int, *, is_abort: bool) -> bytearray:
    return build_end_marker(
        EndMarker(is_abort, 0), offset=offset, timestamp_ms=NOW_MS, producer_id=7, producer_epoch=0, leader_epoch=0
    )


def test_a_damaged_batch_is_an_error_that_names_it() -> None:
    """By its checksum, or by its contents where the checksum is right."""
    whole = bytearray(batch_at(0, [b"a"]) + batch_at(1, [b"b" * 50]))
    flipped = bytearray(whole)
    flipped[-5] ^= 1
    with pytest.raises(KafkaError, match="CRC32C"):
        read(bytes(flipped))
    second = memoryview(whole)[len(batch_at(0, [b"a"])) :]
    second[61] += 2  # the record's length
    seal(second)
    with pytest.raises(CorruptDataError, match="t-0: the batch with offsets 1 to 1 is damaged"):
        read(bytes(whole))
