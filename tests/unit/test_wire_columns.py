"""Records as columns and the check of a batch's contents, against a reader that takes
one field after the other."""

import random
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.base.errors import CorruptDataError
from barnabas.base.files import Buffer
from barnabas.wire.kafka.records import columns, contents
from barnabas.wire.kafka.records.batch_header import HEADER_BYTES, read_header
from barnabas.wire.kafka.records.columns import Body, damaged_headers, find_records, read_columns
from barnabas.wire.kafka.records.compression import LARGE_BYTES
from barnabas.wire.kafka.records.contents import MOST_OBJECTS, Contents, TooManyObjectsError, check_contents
from barnabas.wire.kafka.records.records import Record, build_batch, read_records
from barnabas.wire.kafka.records.varints import put_varint

NOW_MS = 1_700_000_000_000
optional = st.none() | st.binary(max_size=200)
headers = st.lists(st.tuples(st.text(max_size=5), optional), max_size=3)
rows = st.lists(st.tuples(st.integers(-5000, 1 << 42), optional, optional, headers), min_size=1, max_size=20)


def varint(value: int, *, padding: int = 0) -> bytes:
    """A zigzag varint; padded ones are longer than they must be."""
    out = bytearray()
    put_varint(out, value)
    for _ in range(padding):
        out[-1] |= 0x80
        out.append(0)
    return bytes(out)


class Reader:
    """The model: no position, size or number is believed."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, size: int) -> bytes:
        if not 0 <= size <= len(self.data) - self.at:
            raise ValueError("cut off")
        self.at += size
        return self.data[self.at - size : self.at]

    def varint(self, bits: int = 32) -> int:
        value = 0
        for number in range(5 if bits == 32 else 10):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << 7 * number
            if byte < 0x80:
                if bits == 32 and value >= 1 << 32:
                    raise ValueError("too large")
                value %= 1 << bits
                return (value >> 1) ^ -(value & 1)
        raise ValueError("too long")

    def field(self) -> bytes | None:
        size = self.varint()
        return None if size == -1 else self.take(size)


def model(data: bytes, count: int) -> Contents:
    """Raises `ValueError` for what must be refused."""
    whole = Reader(data)
    deltas, keyless = [], False
    for number in range(count):
        record = Reader(whole.take(whole.varint()))
        record.take(1)
        deltas.append(record.varint(64))
        if record.varint() != number:
            raise ValueError("another offset delta")
        keyless |= record.field() is None
        record.field()
        header_count = record.varint()
        if header_count < 0:
            raise ValueError("a negative number of headers")
        for _ in range(header_count):
            if record.field() is None:
                raise ValueError("a header without a key")
            record.field()
        if record.at != len(record.data):
            raise ValueError("bytes left in a record")
    if whole.at != len(data):
        raise ValueError("bytes left")
    return Contents(min(deltas), max(deltas), keyless)


def verdicts(data: bytes, count: int) -> tuple[Contents | None, Contents | None, Contents | None]:
    """What the model says, the walk, and the columns; None for a refusal."""

    def of(check, *refusals) -> Contents | None:
        try:
            return check(data, count)
        except refusals:
            return None

    expected = of(model, ValueError)
    assert expected is not None or not contents.are_plain(data, count)
    return (
        expected,
        of(contents._check_one_by_one, CorruptDataError),
        of(contents._check_columns, CorruptDataError),
    )


def body_of(found: list) -> bytes:
    return bytes(build_batch([Record(n, NOW_MS + row[0], *row[1:]) for n, row in enumerate(found)])[HEADER_BYTES:])


@given(rows)
def test_sound_contents_are_accepted_with_their_timestamps_and_keys(found: list) -> None:
    """The walk and the columns agree with the model."""
    expected, walked, columns = verdicts(body_of(found), len(found))
    assert expected is not None
    assert walked == columns == expected


@settings(max_examples=500)
@given(rows, st.data())
def test_damaged_contents_are_refused_where_the_model_refuses_them(found: list, draw: st.DataObject) -> None:
    """Bytes may be any others, the end may be anywhere, the count may lie."""
    data = bytearray(body_of(found))
    for _ in range(draw.draw(st.integers(0, 3))):
        data[draw.draw(st.integers(0, len(data) - 1))] = draw.draw(st.integers(0, 255))
    del data[draw.draw(st.integers(1, len(data))) :]
    data += draw.draw(st.binary(max_size=4))
    count = max(1, len(found) + draw.draw(st.sampled_from((0, 0, 0, -1, 1))))
    expected, walked, columns = verdicts(bytes(data), count)
    assert walked == expected
    assert columns == expected


sizes = st.integers(-3, 6) | st.sampled_from((63, 64, 8191, 8192, 1 << 20, (1 << 31) - 1, -(1 << 31), 1 << 31, 1 << 34))
padded = st.tuples(sizes, st.integers(0, 6))


@settings(max_examples=1000)
@given(
    st.lists(
        st.tuples(st.none() | padded, padded, st.integers(0, 9), padded, padded, st.binary(max_size=9)),
        min_size=1,
        max_size=4,
    ),
    st.binary(max_size=12),
)
def test_lying_and_overlong_varints_are_refused_where_the_model_refuses_them(forged: list, tail: bytes) -> None:
    """Lengths, deltas and counts of any size and written with needless bytes, in
    records made field by field."""
    data = bytearray()
    for number, (length, key_size, padding, value_size, header_count, rest) in enumerate(forged):
        inner = b"\0" + varint(NOW_MS, padding=max(0, padding - 5)) + varint(number, padding=padding % 5)
        for value, more in (key_size, value_size, header_count):
            inner += varint(value, padding=more) + rest[: max(value, 0)]
        size, more = length or (len(inner), 0)
        data += varint(size, padding=more) + inner
    expected, walked, columns = verdicts(bytes(data + tail), len(forged))
    assert walked == expected
    assert columns == expected


@pytest.mark.parametrize("count", [1, 4, 63, 64, 65, 200, 8191, 8192, 8193, 16_385, 40_961])
@pytest.mark.parametrize(("key", "size"), [(None, 0), (None, 100), (b"", 5), (b"key", 9000), (b"k" * 70, 63)])
def test_records_of_one_size_are_recognised_in_one_step(count: int, key: bytes | None, size: int) -> None:
    """What they contain, and timestamps, may differ."""
    if count * size > 1 << 20:
        return
    draw = random.Random(count)
    records = [
        Record(number, NOW_MS + draw.randrange(60), key and draw.randbytes(len(key)), draw.randbytes(size))
        for number in range(count)
    ]
    assert contents.are_uniform(bytes(build_batch(records)[HEADER_BYTES:]), count)


def test_a_large_body_of_records_of_one_size_is_checked_without_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither are its records read one by one; with one bit changed they are, and refused."""
    records = [Record(number, NOW_MS, None, bytes(10_000)) for number in range(200)]
    body = memoryview(bytearray(build_batch(records)[HEADER_BYTES:]))
    assert len(body) > LARGE_BYTES
    asked: list[int] = []
    check = contents.check_contents

    def counted(data: Buffer, count: int, most_objects: int) -> contents.Contents:
        asked.append(count)
        return check(data, count, most_objects)

    monkeypatch.setattr(contents, "check_contents", counted)
    contents.check_body(body, 200)
    assert not asked
    body[len(body) - 1] ^= 1
    with pytest.raises(CorruptDataError):
        contents.check_body(body, 200)
    assert asked == [200]


@settings(max_examples=500)
@given(
    st.integers(1, 70),
    st.none() | st.integers(0, 3),
    st.none() | st.integers(0, 70),
    st.integers(0, 2),
    st.randoms(),
    st.data(),
)
def test_records_of_one_size_are_never_accepted_where_the_model_refuses_them(
    count: int, key_size: int | None, value_size: int | None, changes: int, rng: random.Random, draw: st.DataObject
) -> None:
    """Whatever bytes are changed, and however the count or the end lies."""

    def field(size: int | None) -> bytes | None:
        return None if size is None else rng.randbytes(size)

    records = [Record(n, NOW_MS + rng.randrange(64), field(key_size), field(value_size)) for n in range(count)]
    data = bytearray(build_batch(records)[HEADER_BYTES:])
    for _ in range(changes):
        data[draw.draw(st.integers(0, len(data) - 1))] = draw.draw(st.integers(0, 255))
    del data[draw.draw(st.sampled_from((len(data), len(data), len(data) - 1, len(data) - len(data) // count))) :]
    count = max(1, count + draw.draw(st.sampled_from((0, 0, 0, -1, 1))))
    is_uniform = contents.are_uniform(bytes(data), count)
    assert contents.are_uniform(memoryview(data), count) == is_uniform
    if is_uniform:
        found = model(bytes(data), count)
        assert contents.are_uniform(bytes(data), count, with_keys=True) == (not found.has_keyless)


@pytest.mark.parametrize(
    ("recognise", "count"),
    [(contents.are_uniform, 8200), (contents.are_plain, 8200), (contents.are_uniform, 24_580)],
)
def test_a_changed_byte_behind_8192_records_is_not_accepted_where_the_model_refuses_it(recognise, count: int) -> None:
    """Their offset deltas have three bytes, the last of them another one for each 8,192 records."""
    records = [Record(n, NOW_MS, None, b"v") for n in range(count)]
    data = bytes(build_batch(records)[HEADER_BYTES:])
    assert recognise(data, count)
    assert not recognise(data, count - 1)
    draw = random.Random(1)
    size = len(data) // count + 1
    for at in range(len(data) - 2 * size, len(data)):
        changed = bytearray(data)
        changed[at] ^= 1 << draw.randrange(8)
        if recognise(bytes(changed), count):
            model(bytes(changed), count)


some_bytes = st.integers(0, 70).flatmap(lambda size: st.binary(min_size=size, max_size=size))
small = st.lists(st.tuples(st.integers(0, 200), st.none() | some_bytes, some_bytes), min_size=1, max_size=80)


@settings(max_examples=500)
@given(small, st.integers(0, 2), st.data())
def test_small_records_of_any_sizes_are_recognised_and_never_accepted_where_the_model_refuses_them(
    found: list, changes: int, draw: st.DataObject
) -> None:
    """Whatever bytes are changed, and however the count or the end lies."""
    records = [Record(n, NOW_MS + since_ms, key, value) for n, (since_ms, key, value) in enumerate(found)]
    data = bytearray(build_batch(records)[HEADER_BYTES:])
    assert contents.are_plain(bytes(data), len(found)) == all(key is None or len(key) < 64 for _, key, _ in found)
    for _ in range(changes):
        data[draw.draw(st.integers(0, len(data) - 1))] = draw.draw(st.integers(0, 255))
    del data[draw.draw(st.sampled_from((len(data), len(data), len(data) - 1))) :]
    count = max(1, len(found) + draw.draw(st.sampled_from((0, 0, 0, -1, 1))))
    if contents.are_plain(bytes(data), count):
        seen = model(bytes(data), count)
        assert contents.are_plain(bytes(data), count, with_keys=True) == (not seen.has_keyless)


sizes = st.one_of(*(st.integers(max(edge - 12, 0), edge + 12) for edge in (0, 64, 8_192, 1 << 20)))


@settings(max_examples=300, deadline=None)
@given(st.none() | some_bytes, sizes, st.booleans(), st.integers(0, 2), st.data())
def test_a_record_alone_is_recognised_by_its_size_and_never_accepted_where_the_model_refuses_it(
    key: bytes | None, size: int, has_header: bool, changes: int, draw: st.DataObject
) -> None:
    """With values at the edges of what a size takes one, two, three or four bytes for;
    whatever is changed or cut off."""
    record = Record(0, NOW_MS, key, b"v" * size, [("h", b"v")] if has_header else [])
    data = bytearray(build_batch([record])[HEADER_BYTES:])
    is_plain = not has_header and (key is None or len(key) < 64)
    assert contents.is_plain_record(memoryview(data)) == is_plain
    for _ in range(changes):
        data[draw.draw(st.integers(0, min(len(data), 90) - 1))] = draw.draw(st.integers(0, 255))
    data = draw.draw(st.sampled_from((data, data, data[:-1], data + b"\0", data[:4], data[:0])))
    if contents.is_plain_record(data):
        model(bytes(data), 1)


@pytest.mark.parametrize("byte", [0xFF, 0x00, 0x80])
def test_a_size_that_no_record_and_no_value_has_is_never_accepted(byte: int) -> None:
    """65 bytes are one too many for a length of one byte and one too few for a length of
    two; so it is with values."""
    for size in range(1, 200):
        hostile = bytearray([byte] * 11 + [0] * size)[:size]
        assert not contents.is_plain_record(bytes(hostile))
        whole = bytearray(build_batch([Record(0, NOW_MS, None, b"v" * size)])[HEADER_BYTES:])
        for at in range(4, 9):
            for cut in (whole, whole[:-1], whole + b"\0"):
                changed = bytes(cut[:at] + bytes([byte] * 11) + cut[at + 11 :])
                if contents.is_plain_record(changed):
                    model(changed, 1)


def starts_by_walking(data: bytes, count: int) -> list[int]:
    """The model of `find_records`: where each record begins, one after the other.

    Raises `ValueError`, and `ArithmeticError` for a negative length, of which only
    `read_columns` must take notice.
    """
    reader, starts = Reader(data), []
    for _ in range(count):
        starts.append(reader.at)
        size = reader.varint()
        if size < 0:
            raise ArithmeticError
        reader.take(size)
    if reader.at != len(data):
        raise ValueError("bytes left")
    return starts


runs = st.lists(
    st.tuples(
        st.integers(1, 90) | st.integers(60, 400), st.sampled_from((0, 1, 7, 63, 64, 65, 300)), st.integers(0, 2)
    ),
    max_size=6,
)


@pytest.mark.parametrize("padding", [0, 3])
def test_many_short_runs_are_found_in_time_in_proportion_to_their_number(
    padding: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight records of one size and one of another, again and again: no look goes
    over all that are left."""
    looked_at = 0
    look = columns._run

    def counted(data: bytes, position: int, stop: int, most: int) -> tuple[int, int]:
        nonlocal looked_at
        looked_at += most
        return look(data, position, stop, most)

    monkeypatch.setattr(columns, "_run", counted)
    part = (varint(6, padding=padding) + bytes(6)) * 8 + varint(7, padding=padding) + bytes(7)
    data, count = part * 1000, 9000
    assert find_records(data, [Body(0, len(data), count)]).start.tolist() == starts_by_walking(data, count)
    assert looked_at < 10 * count


@settings(max_examples=200)
@given(st.integers(0, 30), st.integers(1, 9), st.integers(0, 3), st.randoms())
def test_records_of_many_bodies_are_found_together_where_a_walk_finds_them(
    bodies: int, most: int, changes: int, rng: random.Random
) -> None:
    """Bodies of about as many records, some large ones, gaps between them, changed bytes,
    and counts that do not fit."""
    data = bytearray(rng.randbytes(3))
    found: list[Body] = []
    for _ in range(24 + bodies):
        count = rng.randint(max(1, most - 2), most)
        start = len(data)
        for _ in range(count):
            size = rng.choice([6, 6, 40, 63, 64, 200] + [9000] * (rng.random() < 0.001))
            data += varint(size, padding=3 * (rng.random() < 0.001)) + rng.randbytes(size)
        found.append(Body(start, len(data), count + (rng.random() < 0.001)))
        data += rng.randbytes(rng.randint(0, 2))
    for _ in range(changes):
        data[rng.randrange(len(data))] = rng.randrange(256)
    columns_of_bodies = np.array(found, np.int64).T
    together = columns.find_rows(bytes(data), *columns_of_bodies)
    in_turn = columns._find_in_turn(bytes(data), found)
    assert together.start.tolist() == in_turn.start.tolist()
    assert together.stop.tolist() == in_turn.stop.tolist()
    assert (together.ends, together.damaged) == (in_turn.ends, in_turn.damaged)


def test_counts_that_cannot_be_true_cost_no_memory() -> None:
    """Bodies of a few bytes that claim millions of records are damaged, and so is one
    past the end of the data."""
    data = (varint(6) + bytes(6)) * 100
    lying = [Body(0, 14, 200_000_000)] * 100
    assert [number for number, _ in find_records(data, lying).damaged] == list(range(100))
    cut_off = [Body(7 * at, 7 * at + 7, 1) for at in range(99)] + [Body(693, 707, 2)]
    assert [number for number, _ in find_records(data, cut_off).damaged] == [99]


@settings(max_examples=500)
@given(runs, st.integers(0, 2), st.randoms(), st.data())
def test_runs_of_records_of_one_size_are_found_where_a_walk_finds_them(
    found: list, changes: int, rng: random.Random, draw: st.DataObject
) -> None:
    """Long and short runs, lengths in more bytes than they need, changed bytes, and
    counts that do not fit."""
    data = bytearray()
    count = 0
    for length, size, padding in found:
        data += b"".join([varint(size, padding=padding) + rng.randbytes(size) for _ in range(length)])
        count += length
    for _ in range(changes if data else 0):
        data[draw.draw(st.integers(0, len(data) - 1))] = draw.draw(st.integers(0, 255))
    count = max(0, count + draw.draw(st.sampled_from((0, 0, 0, -1, 1))))
    expected, is_known = None, True
    try:
        expected = starts_by_walking(bytes(data), count)
    except ValueError:
        pass
    except ArithmeticError:
        is_known = False
    for buffer in (bytes(data), memoryview(data)):
        rows_found = find_records(buffer, [Body(0, len(data), count)])
        if is_known:
            assert (None if rows_found.damaged else rows_found.start.tolist()) == expected
        elif not rows_found.damaged:
            assert read_columns(buffer, rows_found.start, rows_found.stop)[1]


def test_threads_that_need_more_offset_deltas_at_once_each_find_what_they_need(monkeypatch: pytest.MonkeyPatch) -> None:
    """The table of deltas is replaced by one thread while another compares with it."""
    sizes = (100, 2000, 16_000)
    bodies = [
        bytes(build_batch([Record(n, NOW_MS, None, b"v" * (n % 5)) for n in range(count)])[HEADER_BYTES:])
        for count in sizes
    ]
    damaged = bytearray(bodies[1])
    damaged[-1] ^= 2
    small = contents._deltas[:64]
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(5):
            monkeypatch.setattr(contents, "_deltas", small)
            barrier = threading.Barrier(len(sizes))

            def check(body: bytes, count: int, barrier: threading.Barrier = barrier) -> tuple[bool, bool]:
                barrier.wait(30)
                return contents.are_plain(body, count), contents.are_plain(bytes(damaged), sizes[1])

            with ThreadPoolExecutor(len(sizes)) as pool:
                assert list(pool.map(check, bodies, sizes)) == [(True, False)] * len(sizes)
            assert len(contents._deltas) >= sizes[0]
            assert contents._deltas == [varint(delta) for delta in range(len(contents._deltas))]
        assert len(small) == 64, "a table that others may read is never changed"
    finally:
        sys.setswitchinterval(interval_s)


@given(st.lists(rows, min_size=1, max_size=4), st.binary(max_size=10))
def test_columns_of_several_batches_say_where_the_fields_of_each_record_are(batches: list, gap: bytes) -> None:
    """Keys, values, timestamps and offsets are those that the reader of objects finds, in
    the order of the batches."""
    data, bodies, records = bytearray(), [], []
    for found in batches:
        batch = build_batch([Record(3 * n, NOW_MS + row[0], *row[1:]) for n, row in enumerate(found)])
        data += gap
        bodies.append(Body(len(data), len(data) + len(batch) - HEADER_BYTES, len(found)))
        data += batch[HEADER_BYTES:]
        base_timestamp = read_header(batch).base_timestamp
        records += [record._replace(timestamp=record.timestamp - base_timestamp) for record in read_records(batch)]
    located = find_records(data, bodies)
    columns, damaged = read_columns(data, located.start, located.stop)
    assert not located.damaged
    assert not damaged
    assert not damaged_headers(data, located.stop, columns)
    assert located.ends == np.cumsum([len(found) for found in batches]).tolist()

    def field(starts: np.ndarray, sizes: np.ndarray) -> list[bytes | None]:
        pairs = zip(starts.tolist(), sizes.tolist(), strict=True)
        return [None if size < 0 else bytes(data[start : start + size]) for start, size in pairs]

    assert columns.timestamp_delta.tolist() == [record.timestamp for record in records]
    assert columns.offset_delta.tolist() == [record.offset for record in records]
    assert field(columns.key_start, columns.key_size) == [record.key for record in records]
    assert field(columns.value_start, columns.value_size) == [record.value for record in records]
    assert columns.header_count.tolist() == [len(record.headers) for record in records]


def test_a_damaged_batch_has_no_rows_and_the_others_have_theirs() -> None:
    """One batch that ends early does not hide its neighbours."""
    sound = body_of([(0, b"k", b"v", [])])
    data = sound + sound[:-1] + sound
    bodies = [Body(0, len(sound), 1), Body(len(sound), 2 * len(sound) - 1, 1), Body(2 * len(sound) - 1, len(data), 1)]
    located = find_records(data, bodies)
    assert [number for number, _ in located.damaged] == [1]
    assert located.ends == [1, 1, 2]
    assert located.start.tolist() == [0, 2 * len(sound) - 1]


@pytest.mark.parametrize("check", [contents._check_one_by_one, contents._check_columns])
def test_many_records_of_all_shapes_are_accepted(check) -> None:
    """Offsets of one, two and three bytes, headers in some records, more records
    than a piece has."""
    draw = random.Random(1)
    found = [
        (draw.choice((0, 1, 70, 9000)), draw.choice((None, b"k" * draw.randrange(90))), draw.randbytes(draw.randrange(90)),
         [("h", b"x")] * draw.choice((0, 0, 2, 200 if number < 3 else 0)))
        for number in range(20_000)
    ]  # fmt: skip
    data = body_of(found)
    assert check(data, len(found)) == model(data, len(found))


@pytest.mark.parametrize(
    ("data", "count"),
    [
        (b"\x0c\0\0\0\0\0\0" * (MOST_OBJECTS + 1), MOST_OBJECTS + 1),
        (varint(4_000_009) + b"\0\0\0\0\0" + varint(2_000_000) + bytes(4_000_000), 1),
    ],
    ids=["records", "headers"],
)
def test_more_objects_than_a_batch_may_have_are_refused_at_once(data: bytes, count: int) -> None:
    """Megabytes of empty headers, which a few kilobytes of gzip hold, cost no time in
    proportion to their number."""
    for check in (check_contents, contents._check_columns) if count == 1 else (check_contents,):
        started = time.thread_time()
        with pytest.raises(TooManyObjectsError):
            check(data, count)
        assert time.thread_time() - started < 0.2


def test_a_server_starts_without_numpy() -> None:
    """It is imported at the first compaction; until then its time and memory are saved."""
    program = "import sys, barnabas.broker.server, barnabas.cli.local.up; sys.exit('numpy' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)
