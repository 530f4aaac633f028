"""Records as slices, against the reader that makes objects of them."""

from hypothesis import given
from hypothesis import strategies as st

from barnabas.base.errors import CorruptDataError
from barnabas.log.compaction.record_slices import scan_records, with_timestamp_delta
from barnabas.wire.kafka.records.batch_header import HEADER_BYTES, read_header
from barnabas.wire.kafka.records.records import Record, build_batch, read_records

NOW = 1_700_000_000_000
contents = st.one_of(st.none(), st.binary(max_size=200))
headers = st.lists(st.tuples(st.text(max_size=5), contents), max_size=3)
rows = st.lists(st.tuples(st.integers(-5000, 5000), contents, contents, headers), min_size=1, max_size=20)


def batch_of(found: list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]]) -> bytearray:
    return build_batch([Record(3 * at, NOW + row[0], *row[1:]) for at, row in enumerate(found)])


@given(rows)
def test_slices_say_what_the_records_are(
    found: list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]],
) -> None:
    """Keys, offsets, timestamps, and whether there is a value; and the slices are the whole of the bytes."""
    batch = batch_of(found)
    header = read_header(batch)
    data = memoryview(batch)[HEADER_BYTES:]
    slices = list(scan_records(data, header.record_count))
    assert [
        (part.offset_delta, header.base_timestamp + part.timestamp_delta, part.key, part.has_value) for part in slices
    ] == [(record.offset, record.timestamp, record.key, record.value is not None) for record in read_records(batch)]
    assert b"".join(data[part.start : part.stop] for part in slices) == data


@given(rows, st.integers(-(1 << 40), 1 << 40))
def test_only_the_timestamp_changes_with_its_delta(
    found: list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]], delta: int
) -> None:
    """Offset, key, value and headers are the same bytes."""
    batch = batch_of(found)
    data = memoryview(batch)[HEADER_BYTES:]
    for part in scan_records(data, read_header(batch).record_count):
        changed = memoryview(with_timestamp_delta(data, part, delta))
        (again,) = scan_records(changed, 1)
        assert again.timestamp_delta == delta
        assert changed[again.after_timestamp :] == data[part.after_timestamp : part.stop]


@given(rows, st.data())
def test_damaged_records_are_an_error_and_nothing_else(
    found: list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]], draw: st.DataObject
) -> None:
    """Any byte may be any other; the bytes may end anywhere."""
    batch = batch_of(found)
    data = bytearray(batch[HEADER_BYTES:])
    data[draw.draw(st.integers(0, len(data) - 1))] = draw.draw(st.integers(0, 255))
    del data[draw.draw(st.integers(1, len(data))) :]
    try:
        for part in scan_records(memoryview(data), read_header(batch).record_count):
            assert 0 <= part.start < part.after_timestamp <= part.stop <= len(data)
    except CorruptDataError:
        pass
