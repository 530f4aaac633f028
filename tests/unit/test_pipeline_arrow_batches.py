"""Batches encoded from Arrow columns hold exactly the rows that the simple decoder gives."""

from collections.abc import Sequence

import numpy as np
import pytest

pa = pytest.importorskip("pyarrow")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from barnabas.base.errors import BarnabasError  # noqa: E402
from barnabas.pipelines.connector.arrow_batches import (  # noqa: E402
    EncodedRows,
    Rows,
    choose_partitions,
    encode_rows,
    pieces_of,
)
from barnabas.wire.kafka.records.batch_header import check_batch  # noqa: E402
from barnabas.wire.kafka.records.compression import CompressionType  # noqa: E402
from barnabas.wire.kafka.records.framing import murmur2  # noqa: E402
from barnabas.wire.kafka.records.records import read_records  # noqa: E402

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
Fields = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]

some_bytes = st.none() | st.binary(max_size=300)
some_headers = st.lists(st.tuples(st.text(max_size=5), some_bytes), max_size=3)
many_rows = st.lists(st.tuples(some_bytes, some_bytes, some_headers), min_size=1, max_size=60)


def columns(rows: Sequence[Fields], *, with_headers: bool = True) -> Rows:
    """Rows as columns, which begin behind a row that is sliced off: positions must not be taken
    for those of the buffer."""
    key = pa.array([b"before", *(row[0] for row in rows)], pa.binary())
    value = pa.array([b"before", *(row[1] for row in rows)], pa.binary())
    lists = [[{"key": name, "value": content} for name, content in row[2]] or None for row in rows]
    headers = pa.array([[{"key": "before", "value": None}], *lists], HEADERS) if with_headers else None
    return Rows(key, value, headers).slice(1, len(rows))


def by_partition(encoded: EncodedRows, compression: CompressionType = CompressionType.NONE) -> dict[int, list[Fields]]:
    """What a consumer gets.

    Each batch is whole, counts its offsets from 0, and carries the producer's fields."""
    found: dict[int, list[Fields]] = {}
    for batch in encoded.batches:
        packed = encoded.pack(batch, compression, 7, 3, 11)
        header = check_batch(packed, 0, len(packed))
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 3, 11)
        records = list(read_records(packed))
        assert records
        assert [each.offset for each in records] == list(range(batch.row_count))
        assert {each.timestamp for each in records} == {header.max_timestamp}
        found.setdefault(batch.partition, []).extend((each.key, each.value, list(each.headers)) for each in records)
    return found


@settings(max_examples=100, deadline=None)
@given(
    rows=many_rows,
    with_headers=st.booleans(),
    count=st.integers(1, 5),
    batch_bytes=st.integers(1, 5000),
    compression=st.sampled_from(list(CompressionType)),
)
def test_each_partition_gets_its_rows_in_their_order(
    rows: list[Fields], with_headers: bool, count: int, batch_bytes: int, compression: CompressionType
) -> None:
    """With nulls, headers and sizes of every width, in batches of any size."""
    if not with_headers:
        rows = [(key, value, []) for key, value, _ in rows]
    given_rows = columns(rows, with_headers=with_headers)
    partitions, _ = choose_partitions(given_rows, None, count, 0, batch_bytes)
    wanted: dict[int, list[Fields]] = {}
    for partition, row in zip(partitions.tolist(), rows, strict=True):
        wanted.setdefault(partition, []).append(row)
    assert by_partition(encode_rows(given_rows, partitions, batch_bytes), compression) == wanted


@pytest.mark.parametrize("size", [0, 63, 64, 8191, 8192, 1_048_575, 1_048_576])
def test_sizes_at_the_edges_of_varints_are_encoded(size: int) -> None:
    """Beside a row of another width, and offsets of one and two bytes."""
    rows: list[Fields] = [(None, b"x" * size, []), (b"k" * size, b"", []), *[(b"", b"", [])] * 100]
    encoded = encode_rows(columns(rows), np.zeros(len(rows), np.int32), 1 << 30)
    assert len(encoded.batches) == 1
    assert by_partition(encoded) == {0: rows}


def test_a_batch_that_is_too_large_becomes_two_with_the_same_rows() -> None:
    """Their offsets begin at 0 again."""
    rows: list[Fields] = [(b"%d" % n, b"v", []) for n in range(9)]
    encoded = encode_rows(columns(rows), np.repeat(np.int32([0, 1]), [4, 5]), 1 << 20)
    halves = encoded.halves(encoded.batches[1])
    assert [each.row_count for each in halves.batches] == [2, 3]
    assert by_partition(halves) == {1: rows[4:]}


def test_batches_have_about_the_size_that_was_asked_for() -> None:
    """None is larger by more than a row; a large row has a batch of its own."""
    rows: list[Fields] = [(None, b"v" * size, []) for size in [100] * 50 + [5000] + [100] * 50]
    encoded = encode_rows(columns(rows, with_headers=False), np.zeros(101, np.int32), 1000)
    sizes = [len(encoded.pack(each, CompressionType.NONE, 1, 0, 0)) for each in encoded.batches]
    assert max(sizes) > 5000 > 1100 > sorted(sizes)[-2]
    assert len(sizes) < 20


@pytest.mark.parametrize(
    ("key", "hashed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_keys_hash_as_javas_producers_hash_them(key: bytes, hashed: int) -> None:
    """The values of Kafka's own test, alone and among keys of other lengths."""
    assert murmur2(key, np.array([0]), np.array([len(key)])).view(np.int32).tolist() == [hashed]
    several = murmur2(b"x" + key + b"yz", np.array([0, 1, 1 + len(key)]), np.array([1, len(key), 2]))
    assert several.view(np.int32)[1] == hashed


def test_rows_without_a_key_fill_one_partition_after_the_other() -> None:
    """A batch each; few rows stay together, and the next ones go on with another partition."""
    rows = columns([(None, b"v" * 76, [])] * 100, with_headers=False)
    chosen, turn = choose_partitions(rows, None, 3, 2, 2500)
    assert chosen.tolist() == [2] * 25 + [0] * 25 + [1] * 25 + [2] * 25
    few, after = choose_partitions(rows.slice(0, 5), None, 3, turn, 2500)
    assert (set(few.tolist()), after) == ({0}, 1)


def test_a_wanted_partition_wins_over_the_key() -> None:
    """A null asks for none."""
    rows = columns([(b"21", b"", []), (b"21", b"", []), (b"abc", b"", [])])
    chosen, _ = choose_partitions(rows, pa.array([3, None, 0], pa.int32()), 4, 0, 1000)
    assert chosen.tolist() == [3, (-973932308 & 0x7FFFFFFF) % 4, 0]


@pytest.mark.parametrize("wanted", [-1, 4])
def test_a_partition_that_the_topic_does_not_have_is_an_error(wanted: int) -> None:
    """It is named."""
    with pytest.raises(BarnabasError, match=f"wants partition {wanted}, and the topic has 4"):
        choose_partitions(columns([(b"k", b"", [])]), pa.array([wanted], pa.int32()), 4, 0, 1000)


def test_a_header_without_a_key_is_an_error() -> None:
    """Kafka has none."""
    rows = Rows(
        pa.array([b"k"], pa.binary()),
        pa.array([b"v"], pa.binary()),
        pa.array([[{"key": None, "value": b"x"}]], HEADERS),
    )
    with pytest.raises(BarnabasError, match="header without a key"):
        encode_rows(rows, np.zeros(1, np.int32), 1000)


def test_a_large_frame_is_taken_in_pieces_with_every_row() -> None:
    """At least a row each."""
    batch = pa.RecordBatch.from_pydict({"value": pa.array([b"v" * 1000] * 50, pa.binary())})
    pieces = list(pieces_of(batch, 5000))
    assert sum(each.num_rows for each in pieces) == 50
    assert len(pieces) >= 10
    assert [each.num_rows for each in pieces_of(batch, 1)] == [1] * 50
