"""A range is read whole, or the reader says why not, whatever a broker may answer."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")

from hypothesis import HealthCheck, given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from barnabas.base.errors import BarnabasError  # noqa: E402
from barnabas.pipelines.cluster.offsets import Range  # noqa: E402
from barnabas.pipelines.cluster.options import SourceOptions  # noqa: E402
from barnabas.pipelines.connector import range_progress  # noqa: E402
from barnabas.pipelines.connector.range_progress import MOST_USELESS, Lost  # noqa: E402
from barnabas.pipelines.connector.range_reader import RangeReader, UnreadableRangeError  # noqa: E402
from barnabas.pipelines.errors import DataLossError  # noqa: E402
from barnabas.wire.kafka.api import ApiKey  # noqa: E402
from barnabas.wire.kafka.errors import ErrorCode  # noqa: E402
from barnabas.wire.kafka.records.compression import CompressionType  # noqa: E402
from support.scripted_broker import (  # noqa: E402
    TOPIC,
    ScriptedBroker,
    Turn,
    batch,
    closed,
    cut,
    empty,
    error,
    fields,
    honest,
    marker,
    old_batch,
    records,
    throttled,
    whole_error,
)

SCHEMA = pa.schema([("value", pa.binary()), ("offset", pa.int64())])
BATCHES = [batch(first, first + 9) for first in range(0, 40, 10)]


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(range_progress, "_PAUSE_MS", 1)
    monkeypatch.setattr(range_progress, "_LONGEST_PAUSE_MS", 2)


@pytest.fixture
def broker() -> Iterator[ScriptedBroker]:
    with ScriptedBroker(BATCHES) as running:
        yield running


def reader_of(broker: ScriptedBroker, *given: Mapping[str, str]) -> RangeReader:
    options = {"kafka.bootstrap.servers": broker.address, "subscribe": TOPIC, "fetchTimeoutMs": "20000"}
    for each in given:
        options |= each
    return RangeReader(SourceOptions.parse(options, streaming=True))


def read(
    broker: ScriptedBroker, start: int, end: int, *options: Mapping[str, str], lost: list[Lost] | None = None
) -> list[int]:
    """The offsets of a range; each record's value says the same."""
    reader = reader_of(broker, *options)
    found: list[int] = []
    try:
        for each in reader.read(Range(TOPIC, 0, start, end), SCHEMA, ([] if lost is None else lost).append):
            found += each.column("offset").to_pylist()
            assert [int(value) for value in each.column("value").to_pylist()] == each.column("offset").to_pylist()
    finally:
        reader.close()
    return found


ALL = list(range(40))
COMMITTED = {"kafka.isolation.level": "read_committed"}
LAX = {"failOnDataLoss": "false"}
_SMALL = {"kafka.max.partition.fetch.bytes": "100"}  # one batch an answer

GOOD = ("the last batch cut off", "throttled and full")
PASSING = (
    *(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    *(ErrorCode.REPLICA_NOT_AVAILABLE, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.FENCED_LEADER_EPOCH),
    *(ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.OFFSET_NOT_AVAILABLE, ErrorCode.UNKNOWN_TOPIC_ID),
    *(ErrorCode.INCONSISTENT_TOPIC_ID, ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.CORRUPT_MESSAGE),
    *(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.OFFSET_OUT_OF_RANGE),
)
ODD: dict[str, Turn] = {
    **{f"error {code.name}": error(code) for code in PASSING},
    "error of a code that is not known": error(9999),
    **{
        f"error of the request {code.name}": whole_error(code)
        for code in (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH)
    },
    "throttled and empty": throttled(30),
    "throttled, with the partition and no records": lambda answer: throttled(30, empty=False)(empty(answer)),
    "throttled and full": throttled(30, empty=False),
    "empty": empty,
    "records that are null": fields(records=None),
    "empty, with an end below the range": fields(records=b"", high_watermark=7, last_stable_offset=7),
    "no partition": throttled(0),
    "another partition": fields(partition_index=3),
    "a batch that is cut off": records(lambda data: data[:50]),
    "a header that is cut off": records(lambda data: data[:14]),
    "the last batch cut off": records(lambda data: data[:-20]),
    "a wrong checksum": records(lambda data: data[:70] + b"\xff" + data[71:]),
    "a batch whose offset is damaged, which no checksum covers": records(lambda data: b"\0\xff" + data[2:]),
    "a batch of an unknown format": records(lambda data: data[:16] + b"\x09" + data[17:]),
    "garbage": records(lambda _: b"\xff" * 300),
    "zeroes": records(lambda _: bytes(16) + b"\2" + bytes(300)),
    "batches before the offset": records(lambda _: batch(-20, -11)),
    "a batch that came already, again": records(lambda data: data[: len(data) // 4] + data),
    "a connection that ends inside the answer": cut,
    "a connection that ends before the answer": closed,
    "another leader that is none": error(ErrorCode.NOT_LEADER_OR_FOLLOWER, leader=1),
    "a leader that is not known": error(ErrorCode.NOT_LEADER_OR_FOLLOWER, leader=77),
    "a preferred replica": fields(preferred_read_replica=1, records=b""),
}


@pytest.mark.parametrize("name", ODD)
def test_an_odd_answer_between_honest_ones_costs_no_record(broker: ScriptedBroker, name: str) -> None:
    """At the beginning, and between two batches; and several in a row."""
    for turns in ([ODD[name]], [honest, ODD[name]], [ODD[name]] * 2, [honest, ODD[name], honest, ODD[name]]):
        broker.script(*turns)
        assert read(broker, 0, 40, _SMALL) == ALL
        broker.script(*turns)
        assert read(broker, 5, 33, COMMITTED) == list(range(5, 33))


@pytest.mark.parametrize("name", [name for name in ODD if name not in GOOD and not name.startswith("throttled")])
@pytest.mark.parametrize("options", [{}, LAX, COMMITTED])
def test_an_answer_that_never_gets_better_ends_the_range_with_the_reason(
    broker: ScriptedBroker, name: str, options: dict[str, str]
) -> None:
    """Never as if it were read: what came before it is kept, and librdkafka or an error is next."""
    if "ends" in name:  # a connection; these are not counted
        options = {**options, "fetchTimeoutMs": "200"}
    broker.script(honest, then=ODD[name])
    with pytest.raises(BarnabasError) as raised:
        assert read(broker, 0, 40, _SMALL, options) == []
    assert str(raised.value)
    if isinstance(raised.value, UnreadableRangeError):
        assert raised.value.offset == 10
    assert len(broker.fetches) < 400


def test_a_throttled_answer_is_waited_for_as_long_as_it_says(broker: ScriptedBroker) -> None:
    """However often, and longer than fetchTimeoutMs; the broker does not read
    requests before (KIP-219)."""
    broker.script(*[throttled(60)] * (MOST_USELESS + 3))
    assert read(broker, 0, 40, {"fetchTimeoutMs": "500"}) == ALL
    waits = [after - before for before, after in zip(broker.times_s, broker.times_s[1:], strict=False)]
    assert len(waits) == MOST_USELESS + 3
    assert min(waits) > 0.055
    broker.times_s.clear()
    broker.script(throttled(100, empty=False))
    assert read(broker, 0, 40, _SMALL) == ALL
    assert broker.times_s[1] - broker.times_s[0] > 0.095


def test_brokers_before_kip_219_have_waited_themselves(broker: ScriptedBroker) -> None:
    """Up to version 7 the answer comes after the pause that it names."""
    broker.offered[ApiKey.FETCH] = (4, 7)
    broker.script(throttled(60_000))
    assert read(broker, 0, 40) == ALL


def test_a_broker_that_throttles_for_ever_in_no_time_ends_the_range(broker: ScriptedBroker) -> None:
    """Only the time outside of its pauses counts."""
    broker.script(then=throttled(1))
    with pytest.raises(UnreadableRangeError, match="quota"):
        read(broker, 0, 40, {"fetchTimeoutMs": "30"})


def test_a_reader_that_is_left_while_it_is_throttled_does_not_hang(broker: ScriptedBroker) -> None:
    """As under LIMIT."""
    broker.script(throttled(600_000, empty=False))
    reader = reader_of(broker, _SMALL)
    batches = reader.read(Range(TOPIC, 0, 0, 40), SCHEMA)
    assert next(iter(batches)).num_rows == 10
    batches.close()  # type: ignore[attr-defined]  # it is a generator
    reader.close()


def test_the_leader_is_followed(broker: ScriptedBroker) -> None:
    """By the name in the answer, and by metadata where there is none."""
    assert read(broker, 0, 10) == ALL[:10]
    broker.leader = 1
    reader = reader_of(broker)
    assert sum(each.num_rows for each in reader.read(Range(TOPIC, 0, 0, 10), SCHEMA)) == 10
    broker.leader = 0
    assert sum(each.num_rows for each in reader.read(Range(TOPIC, 0, 0, 40), SCHEMA)) == 40
    reader.close()


@pytest.mark.parametrize("code", [ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.INVALID_TOPIC_EXCEPTION])
def test_an_error_that_waiting_cannot_mend_ends_the_range_at_once(broker: ScriptedBroker, code: ErrorCode) -> None:
    """With topic, partition, offset, and what the broker said."""
    broker.script(then=error(code))
    with pytest.raises(BarnabasError, match=rf"cannot read t-0 from offset 0 \(up to 40\): .*{code.name}"):
        read(broker, 0, 40)
    assert len(broker.fetches) == 1


def test_metadata_may_lack_the_topic_or_its_leader_for_a_moment(broker: ScriptedBroker) -> None:
    """After an election, or on a broker that has just started."""

    def without_topic(answer: Any) -> Any:
        answer.topics = []
        return answer

    def unknown(answer: Any) -> Any:
        answer.topics[0].error_code, answer.topics[0].partitions = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, []
        return answer

    def without_leader(answer: Any) -> Any:
        answer.topics[0].partitions[0].leader_id = -1
        answer.topics[0].partitions[0].error_code = ErrorCode.LEADER_NOT_AVAILABLE
        return answer

    broker.metadata_turns.extend([without_topic, unknown, without_leader])
    assert read(broker, 0, 40) == ALL


# Records that are not there


def test_records_that_are_gone_are_an_error_or_counted(broker: ScriptedBroker) -> None:
    """Retention took the first ones."""
    broker.start = 15
    with pytest.raises(DataLossError, match=r"t-0 has no offset 0 any more: retention .* before 15"):
        read(broker, 0, 40)
    lost: list[Lost] = []
    assert read(broker, 0, 40, LAX, lost=lost) == list(range(15, 40))
    assert lost == [Lost(0, 15)]
    lost.clear()
    broker.start = 40
    assert read(broker, 3, 30, LAX, lost=lost) == []
    assert lost == [Lost(3, 30)]


def test_a_log_that_ends_before_the_range_is_an_error_or_counted(broker: ScriptedBroker) -> None:
    """Its topic was made again: the offset is above the end, or the end itself."""
    with pytest.raises(DataLossError, match=r"t-0 has no offset 60 any more, and ends at 40: .*made again\?"):
        read(broker, 60, 70)
    lost: list[Lost] = []
    assert read(broker, 60, 70, LAX, lost=lost) == []
    assert read(broker, 30, 70, LAX, lost=lost) == list(range(30, 40))
    assert lost == [Lost(60, 70), Lost(40, 70)]
    with pytest.raises(UnreadableRangeError, match="without records, with high watermark 40"):
        read(broker, 30, 70)


def test_an_offset_that_is_out_of_range_for_a_moment_is_asked_for_again(broker: ScriptedBroker) -> None:
    """A leader of before may say so."""
    broker.script(error(ErrorCode.OFFSET_OUT_OF_RANGE))
    assert read(broker, 0, 40) == ALL

    def short(answer: Any) -> Any:
        answer.topics[0].partitions[0].offset = 0
        return answer

    broker.script(*[error(ErrorCode.OFFSET_OUT_OF_RANGE)] * 2)
    broker.offsets_turns.extend([honest, short, honest, short])
    assert read(broker, 5, 40, LAX) == ALL[5:]


def test_batches_behind_the_end_prove_that_compaction_took_the_rest() -> None:
    """Holes within a batch, between batches, at the beginning and at the end of the range."""
    batches = [batch(10, 19, offsets=[12, 15]), batch(30, 39, offsets=[31]), batch(60, 69)]
    with ScriptedBroker(batches) as broker:
        assert read(broker, 0, 60) == [12, 15, 31]
        assert read(broker, 16, 31) == []
        assert read(broker, 40, 55) == []
        assert read(broker, 0, 62, COMMITTED) == [12, 15, 31, 60, 61]


def test_an_empty_end_is_proved_by_an_open_transaction_behind_it() -> None:
    """At read_committed all answers are empty up to the transaction's first record."""
    batches = [batch(0, 9), batch(20, 29, producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)]
    with ScriptedBroker(batches) as broker:
        broker.last_stable = 20
        assert read(broker, 0, 20, COMMITTED) == list(range(10))
        with pytest.raises(UnreadableRangeError, match="last stable offset 20"):
            read(broker, 0, 25, COMMITTED)
        broker.last_stable = None
        broker.batches.append(marker(30, 7, is_abort=False))
        broker.end = 31
        assert read(broker, 0, 31, COMMITTED) == [*range(10), *range(20, 30)]


def test_markers_alone_and_aborted_transactions_take_the_reader_further() -> None:
    """They have offsets, and no records."""

    def part(first: int, last: int) -> bytes:
        return batch(first, last, producer_id=7, is_transactional=True, producer_epoch=0)

    batches = [part(0, 9), marker(10, 7, is_abort=True), marker(11, 8, is_abort=True), part(12, 14)]
    batches += [marker(15, 7, is_abort=False)]
    with ScriptedBroker(batches) as broker:
        broker.aborted = [(7, 0, 10)]
        for options in (_SMALL, {}):
            assert read(broker, 0, 16, COMMITTED, options) == [12, 13, 14]
            assert read(broker, 10, 12, COMMITTED, options) == []
            assert read(broker, 0, 16, options) == [*range(10), 12, 13, 14]


def test_a_first_batch_above_the_limit_is_read_whole_or_part_after_part() -> None:
    """KIP-74 gives it whole; where only a part comes, the next request has room for it."""
    with ScriptedBroker([batch(0, 999), batch(1000, 1009)]) as broker:
        assert read(broker, 0, 1010, _SMALL) == list(range(1010))
        broker.script(records(lambda data: data[:100]), records(lambda data: data[:100]))
        assert read(broker, 0, 1010, _SMALL) == list(range(1010))


def test_records_of_an_old_format_are_for_librdkafka() -> None:
    """At once, from the first of them on."""
    with ScriptedBroker([old_batch(each) for each in range(5)], end=5) as broker:
        with pytest.raises(UnreadableRangeError) as raised:
            read(broker, 2, 5)
        assert raised.value.offset == 2
        assert len(broker.fetches) == 1


# Any log, and any answers

HARMLESS = [name for name in ODD if "throttled" not in name and "connection" not in name]


@st.composite
def logs(draw: st.DrawFn) -> tuple[list[bytes], list[tuple[int, bool]], list[tuple[int, int, int]]]:
    """Batches with holes, transactions and markers.

    The offsets of records and whether they are committed; aborted ones."""
    batches: list[bytes] = []
    there: list[tuple[int, bool]] = []
    aborted: list[tuple[int, int, int]] = []
    offset = draw(st.integers(0, 5))
    for _ in range(draw(st.integers(1, 6))):
        last = offset + draw(st.integers(0, 9))
        kept = sorted(draw(st.sets(st.integers(offset, last), min_size=1)))
        outcome = draw(st.sampled_from(["none", "commit", "abort"]))
        compression = draw(st.sampled_from([CompressionType.NONE, CompressionType.LZ4]))
        extra = {} if outcome == "none" else {"producer_id": 7, "producer_epoch": 0, "is_transactional": True}
        batches.append(batch(offset, last, offsets=kept, compression=compression, **extra))
        there += [(each, outcome != "abort") for each in kept]
        if outcome != "none":
            batches.append(marker(last + 1, 7, is_abort=outcome == "abort"))
            aborted += [(7, offset, last + 1)] if outcome == "abort" else []
            last += 1
        offset = last + 1 + draw(st.integers(0, 4))
    return batches, there, aborted


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    log=logs(),
    turns=st.lists(st.sampled_from(["honest", *HARMLESS]), max_size=14),
    bounds=st.tuples(st.integers(0, 70), st.integers(0, 70)),
    options=st.sampled_from([{}, COMMITTED, LAX, {**LAX, **COMMITTED}]),
    most=st.sampled_from([80, 200, 100_000]),
)
def test_a_range_is_what_a_simple_model_says_or_an_error(
    log: tuple[list[bytes], list[tuple[int, bool]], list[tuple[int, int, int]]],
    turns: list[str],
    bounds: tuple[int, int],
    options: dict[str, str],
    most: int,
) -> None:
    """Whatever the log holds and the broker answers; what came before an error is
    the beginning of the range."""
    batches, there, aborted = log
    with ScriptedBroker(batches) as broker:
        broker.aborted = aborted
        start, end = min(bounds), min(max(bounds), broker.end)
        broker.script(*(ODD.get(name, honest) for name in turns))
        is_committed = options.get("kafka.isolation.level") == "read_committed"
        expected = [each for each, committed in there if start <= each < end and (committed or not is_committed)]
        found: list[int] = []
        lost: list[Lost] = []
        reached = end
        reader = reader_of(broker, options, {"kafka.max.partition.fetch.bytes": str(most)})
        try:
            for each in reader.read(Range(TOPIC, 0, start, end), SCHEMA, lost.append):
                found += each.column("offset").to_pylist()
        except UnreadableRangeError as error:
            reached = error.offset
        finally:
            reader.close()
        assert found == [offset for offset in expected if offset < reached]
        assert reached == end or len(turns) >= MOST_USELESS // 4
        assert lost == []
