"""The source's readers on brokers of Apache Kafka's: quotas, transactions, compaction,
records that are deleted."""

import os
import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytestmark = [pytest.mark.interop, pytest.mark.java, pytest.mark.timeout(300)]
pa = pytest.importorskip("pyarrow")

from confluent_kafka import Producer, TopicPartition  # noqa: E402
from confluent_kafka.admin import AdminClient, NewTopic  # noqa: E402

from barnabas.base.errors import BarnabasError  # noqa: E402
from barnabas.pipelines.cluster.offsets import Range  # noqa: E402
from barnabas.pipelines.cluster.options import SourceOptions  # noqa: E402
from barnabas.pipelines.connector.range_reader import RangeReader  # noqa: E402
from barnabas.pipelines.connector.ranges import read_arrow  # noqa: E402
from barnabas.pipelines.errors import DataLossError  # noqa: E402
from support.needs import fetch_reference, needs_reference  # noqa: E402
from support.quotas import set_quota  # noqa: E402
from support.reference import apache_broker  # noqa: E402
from support.waiting import eventually  # noqa: E402

SCHEMA = pa.schema([("value", pa.binary()), ("offset", pa.int64())])
COMMITTED = {"kafka.isolation.level": "read_committed"}
ONLY_LIBRDKAFKA = {"kafka.fetch.error.backoff.ms": "50"}
_NOW_MS = int(time.time() * 1000) - 3_600_000
VERSIONS = [each for each in os.environ.get("BARNABAS_BROKERS", "3.9.1 4.4.0").split() if each != "barnabas"]


@pytest.fixture(scope="module", params=VERSIONS)
def bootstrap(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A running broker of each version."""
    fetch_reference()
    quick = {"log.cleaner.backoff.ms": "200", "quota.window.num": "2"}
    with apache_broker(tmp_path_factory.mktemp("apache") / "data", request.param, quick) as address:
        yield address


@pytest.fixture
def topic(bootstrap: str, request: pytest.FixtureRequest) -> Callable[..., str]:
    """Makes topics with one partition."""
    name = re.sub(r"\W+", "-", request.node.name)[-100:].strip("-")

    def make(**config: str) -> str:
        admin = AdminClient({"bootstrap.servers": bootstrap})
        settings = {key.replace("_", "."): value for key, value in config.items()}
        admin.create_topics([NewTopic(name, 1, 1, config=settings)])[name].result(60)
        return name

    return make


def produce(bootstrap: str, topic: str, first: int, end: int, outcome: str = "", **settings: Any) -> None:
    """Values are numbers; ``outcome`` ends a transaction, or leaves it open."""
    extra = {"transactional.id": f"{topic}-{outcome}-{first}"} if outcome else {}
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, **extra, **settings})
    if outcome:
        producer.init_transactions(60)
        producer.begin_transaction()
    for number in range(first, end):
        # A hundred records later the time is another, so that segments of such topics end.
        producer.produce(topic, b"%060d" % number, b"k%d" % (number % 10), timestamp=_NOW_MS + number // 100 * 5000)
    assert producer.flush(60) == 0
    if outcome in ("commit", "abort"):
        (producer.commit_transaction if outcome == "commit" else producer.abort_transaction)(60)


def read(bootstrap: str, topic: str, start: int, end: int, *given: dict[str, str]) -> list[tuple[int, int]]:
    """Offset and value of each record; at first by the reader that the options ask for."""
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "fetchTimeoutMs": "60000"}
    for each in given:
        options |= each
    found: list[tuple[int, int]] = []
    for batch in read_arrow(SourceOptions.parse(options, streaming=True), SCHEMA, Range(topic, 0, start, end)):
        found += zip(batch.column("offset").to_pylist(), map(int, batch.column("value").to_pylist()), strict=True)
    return found


@needs_reference
@pytest.mark.parametrize("options", [{"fetchTimeoutMs": "2000"}, ONLY_LIBRDKAFKA], ids=["own", "librdkafka"])
def test_a_consumer_whose_quota_is_used_up_reads_all(
    bootstrap: str, topic: Callable[..., str], options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker lets one second of the quota through at once; then it answers without
    partitions (KIP-219)."""
    empty: list[int] = []
    real = RangeReader._fetch

    def fetch(self: RangeReader, *args: Any, **keywords: Any) -> Any:
        came = real(self, *args, **keywords)
        empty.extend([came.throttle_ms] if came.partition is None else [])
        return came

    monkeypatch.setattr(RangeReader, "_fetch", fetch)
    name = topic()
    produce(bootstrap, name, 0, 3_000, **{"batch.size": 16_384})
    set_quota(bootstrap, name, 100_000)
    small = {"kafka.client.id": name, "kafka.max.partition.fetch.bytes": "50000"}
    assert read(bootstrap, name, 0, 3_000, small, options) == [(number, number) for number in range(3_000)]
    assert min(empty, default=0) > 0 or options == ONLY_LIBRDKAFKA


@needs_reference
def test_transactions_are_read_as_the_isolation_level_says(bootstrap: str, topic: Callable[..., str]) -> None:
    """Committed, aborted, markers alone, and one that is open: up to the last stable
    offset, and not beyond."""
    name = topic()
    produce(bootstrap, name, 0, 50, "commit")  # the marker is at 50
    produce(bootstrap, name, 51, 101, "abort", **{"compression.type": "lz4"})  # 101
    produce(bootstrap, name, 102, 110)
    produce(bootstrap, name, 110, 111, "abort")  # 111
    produce(bootstrap, name, 112, 120, "open")
    committed = [(number, number) for number in (*range(50), *range(102, 110))]
    everything = sorted([*committed, *((number, number) for number in (*range(51, 101), 110, *range(112, 120)))])
    for small in ({}, {"kafka.max.partition.fetch.bytes": "100"}):
        assert read(bootstrap, name, 0, 112, COMMITTED, small) == committed
        assert read(bootstrap, name, 101, 102, COMMITTED, small) == []
        assert read(bootstrap, name, 110, 112, COMMITTED, small) == []
        assert read(bootstrap, name, 0, 120, small) == everything
    with pytest.raises(BarnabasError, match="last stable offset 112"):
        read(bootstrap, name, 0, 120, COMMITTED, {"fetchTimeoutMs": "500"})


@needs_reference
def test_holes_that_compaction_left_are_passed(bootstrap: str, topic: Callable[..., str]) -> None:
    """Within batches, between them, and at the end of a range; an open transaction behind
    the hole is no obstacle."""
    name = topic(cleanup_policy="compact", segment_ms="1000", min_cleanable_dirty_ratio="0.01")
    for first in range(0, 400, 100):
        produce(bootstrap, name, first, first + 100)
    produce(bootstrap, name, 400, 410, "open")

    def found() -> list[tuple[int, int]]:
        return read(bootstrap, name, 0, 400, COMMITTED)

    eventually(lambda: len(found()) < 200, timeout_s=60)
    left = found()
    assert set(left) <= {(number, number) for number in range(400)}
    assert {number % 10 for number, _ in left} == set(range(10))
    first_hole = next(number for number in range(400) if (number, number) not in left)
    assert read(bootstrap, name, first_hole, first_hole + 1, COMMITTED) == []
    assert read(bootstrap, name, 0, 400) == left


@needs_reference
def test_records_that_are_deleted_are_an_error_or_passed(bootstrap: str, topic: Callable[..., str]) -> None:
    """By each of the readers."""
    name = topic()
    produce(bootstrap, name, 0, 100)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.delete_records([TopicPartition(name, 0, 40)]).values():
        future.result(30)
    for reader in ({}, ONLY_LIBRDKAFKA):
        with pytest.raises(DataLossError, match=f"{name}-0 has no offset 7 any more"):
            read(bootstrap, name, 7, 100, reader)
        lax = {**reader, "failOnDataLoss": "false"}
        assert read(bootstrap, name, 7, 100, lax) == [(number, number) for number in range(40, 100)]
        assert read(bootstrap, name, 200, 300, lax) == []
