"""Where our own reader cannot read a range, librdkafka does, or the error has both reasons."""

import time
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")

from barnabas.base.errors import BarnabasError  # noqa: E402
from barnabas.pipelines.cluster.offsets import Range  # noqa: E402
from barnabas.pipelines.cluster.options import SourceOptions  # noqa: E402
from barnabas.pipelines.connector import range_progress, record_reader  # noqa: E402
from barnabas.pipelines.connector.range_progress import MOST_USELESS  # noqa: E402
from barnabas.pipelines.connector.ranges import read_arrow  # noqa: E402
from barnabas.pipelines.errors import DataLossError  # noqa: E402
from barnabas.wire.kafka.errors import ErrorCode  # noqa: E402
from support.scripted_broker import (  # noqa: E402
    TOPIC,
    ScriptedBroker,
    batch,
    empty,
    error,
    honest,
    old_batch,
    throttled,
)

SCHEMA = pa.schema([("value", pa.binary()), ("offset", pa.int64())])
ONLY_LIBRDKAFKA = {"kafka.fetch.error.backoff.ms": "50"}
LAX = {"failOnDataLoss": "false"}


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(range_progress, "_PAUSE_MS", 1)
    monkeypatch.setattr(range_progress, "_LONGEST_PAUSE_MS", 2)
    monkeypatch.setattr(record_reader, "_SHORT_S", 1.0)


@pytest.fixture
def broker() -> Iterator[ScriptedBroker]:
    with ScriptedBroker([batch(first, first + 9) for first in range(0, 40, 10)]) as running:
        yield running


def read(broker: ScriptedBroker, start: int, end: int, *given: Mapping[str, str]) -> list[int]:
    """The offsets of a range; each record's value says the same."""
    options = {"kafka.bootstrap.servers": broker.address, "subscribe": TOPIC, "fetchTimeoutMs": "20000"}
    for each in given:
        options |= each
    batches = list(read_arrow(SourceOptions.parse(options, streaming=True), SCHEMA, Range(TOPIC, 0, start, end)))
    found = [offset for each in batches for offset in each.column("offset").to_pylist()]
    assert [int(value) for each in batches for value in each.column("value").to_pylist()] == found
    return found


def test_librdkafka_reads_the_rest_after_too_many_useless_answers(
    broker: ScriptedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """From the record on that is missing; the next range is for our own reader again."""
    broker.script(honest, *[empty] * MOST_USELESS)
    assert read(broker, 3, 40, {"kafka.max.partition.fetch.bytes": "100"}) == list(range(3, 40))
    assert "t-0, from offset 10 on: the broker answered without records, " in caplog.text
    caplog.clear()
    assert read(broker, 0, 40) == list(range(40))
    assert not caplog.text


def test_records_of_an_old_format_are_read(broker: ScriptedBroker) -> None:
    """And those of today behind them."""
    broker.batches = [*(old_batch(each) for each in range(10)), *broker.batches[1:]]
    assert read(broker, 1, 40) == list(range(1, 40))


def test_the_error_of_a_range_that_neither_can_read_has_both_reasons(broker: ScriptedBroker) -> None:
    """Topic, partition, offset, and what the broker answered."""
    broker.script(then=empty)
    expected = (
        r"librdkafka cannot read t-0 from offset 5 \(up to 40\): no record came .*; "
        r"before that, the broker answered without records, with high watermark 40$"
    )
    with pytest.raises(BarnabasError, match=expected):
        read(broker, 5, 40, {"fetchTimeoutMs": "300"})
    broker.script(then=error(ErrorCode.KAFKA_STORAGE_ERROR))
    with pytest.raises(BarnabasError, match="before that, the broker answered KAFKA_STORAGE_ERROR"):
        read(broker, 5, 40, {"fetchTimeoutMs": "300"})


@pytest.mark.parametrize("options", [{}, ONLY_LIBRDKAFKA, LAX])
def test_a_damaged_batch_is_never_passed_over(broker: ScriptedBroker, options: dict[str, str]) -> None:
    """librdkafka alone would report it, and go on behind it."""
    broker.batches[2] = broker.batches[2][:70] + b"\xff" + broker.batches[2][71:]
    with pytest.raises(BarnabasError, match=r"librdkafka cannot read t-0 .*CRC32C"):
        read(broker, 0, 40, options)
    assert read(broker, 0, 20, options) == list(range(20))


def test_librdkafka_finds_records_gone_as_our_own_reader_does(broker: ScriptedBroker) -> None:
    """Taken by retention, or with the topic."""
    broker.start = 20
    with pytest.raises(DataLossError, match="t-0 has no offset 3 any more, but 20 to 40"):
        read(broker, 3, 40, ONLY_LIBRDKAFKA)
    assert read(broker, 3, 40, ONLY_LIBRDKAFKA, LAX) == list(range(20, 40))
    assert read(broker, 3, 10, ONLY_LIBRDKAFKA, LAX) == []
    with pytest.raises(DataLossError, match="t-0 has no offset 60 any more"):
        read(broker, 60, 70, ONLY_LIBRDKAFKA)
    assert read(broker, 60, 70, ONLY_LIBRDKAFKA, LAX) == []
    assert read(broker, 30, 70, ONLY_LIBRDKAFKA, LAX) == list(range(30, 40))
    with pytest.raises(BarnabasError, match="the partition ends at 40"):
        read(broker, 30, 70, ONLY_LIBRDKAFKA, {"fetchTimeoutMs": "300"})


def test_librdkafka_has_the_time_that_a_broker_throttles_it(broker: ScriptedBroker) -> None:
    """The broker answers at once, and reads no request until the pause is over."""

    def silent(answer: Any) -> Any:
        time.sleep(1.2)  # what a broker does with a channel that it has muted
        return empty(answer)

    broker.script(throttled(1000), silent)
    assert read(broker, 0, 40, ONLY_LIBRDKAFKA, {"fetchTimeoutMs": "600"}) == list(range(40))
