"""Producers and the limits of topics: batches that fit, and words for a record that does not."""

import asyncio
import hashlib
import re
import socket
import threading
from collections.abc import Iterator
from typing import Any

import confluent_kafka
import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.client import Admin, AsyncProducer, Consumer, DeliveryError, Producer, RefusedError, TopicPartition
from barnabas.client.cluster.admin_connection import AdminConnection
from barnabas.client.producer.batch_limits import BatchLimit, TopicLimits, batch_bytes, in_any_codec, size_of, too_large
from barnabas.client.producer.pool import OneBatchInFlight, ProducerPool
from barnabas.testing import Cluster, VirtualCluster, simulate
from barnabas.wire.kafka.records.compression import CompressionType
from barnabas.wire.kafka.records.records import Record, build_batch
from support.waiting import eventually

BROKERS_SEGMENT_BYTES = 100_000
LIMITS = {
    "segments": {"segment.bytes": "90000"},
    "messages": {"max.message.bytes": "3000"},
    "tiny": {"max.message.bytes": "300"},
    "compressed": {"max.message.bytes": "3000", "compression.type": "gzip"},
    "uncompressed": {"max.message.bytes": "3000", "compression.type": "uncompressed"},
}
RECORDS = 3000


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Brokers whose own limit on batches is small, with topics that have smaller ones."""
    with Cluster(settings={"log.segment.bytes": str(BROKERS_SEGMENT_BYTES)}) as cluster:
        with admin(cluster) as manager:
            for topic, configs in LIMITS.items():
                manager.create_topic(topic, configs=configs)
        yield cluster


def servers(cluster: Cluster) -> dict[str, Any]:
    return {"bootstrap.servers": cluster.bootstrap_servers}


def admin(cluster: Cluster) -> Admin:
    return Admin(servers(cluster))


def values(prefix: str, count: int = RECORDS) -> list[str]:
    """Texts of 100 characters that do not compress away."""
    return [
        f"{prefix}-{n:06d}-".ljust(60, "x") + hashlib.sha1(f"{prefix}{n}".encode()).hexdigest() for n in range(count)
    ]


def read(cluster: Cluster, topic: str, prefix: str) -> list[str]:
    """All values of a topic that begin so, in order."""
    partition = TopicPartition(topic, 0)
    with Consumer({**servers(cluster), "group.id": "reader"}) as consumer:
        consumer.assign({partition: 0})
        left = consumer.watermarks(topic, 0)[1]
        found: list[str] = []
        while left:
            batch = consumer.consume(left, 10)
            assert batch
            left -= len(batch)
            found += [str(record.value) for record in batch]
    return [value for value in found if value.startswith(f"{prefix}-")]


@pytest.mark.parametrize("topic", [*LIMITS, "made-by-the-first-record"])
@pytest.mark.parametrize(
    "properties",
    [{}, {"enable.idempotence": True}, {"compression.type": "lz4"}],
    ids=["plain", "idempotent", "compressing"],
)
def test_batches_fit_the_limits_of_the_topic_and_of_the_brokers(
    cluster: Cluster, topic: str, properties: dict[str, Any], request: pytest.FixtureRequest
) -> None:
    """Every record arrives, once and in order, whatever is smaller: the topic's
    setting or the brokers'."""
    prefix = request.node.callspec.id.partition("-")[0]
    sent = values(prefix)
    with Producer({**servers(cluster), **properties}) as producer:
        producer.send_many(topic, sent)
    assert read(cluster, topic, prefix) == sent


def test_a_sync_producer_and_one_with_two_kinds_of_topics_wait_for_each_record(cluster: Cluster) -> None:
    """Receipts of topics with small and with large batches come through the same poll."""
    with Producer({**servers(cluster), "producer.type": "sync"}) as producer:
        for n in range(20):
            assert producer.send("messages" if n % 2 else "large-enough", f"sync-{n}").done
        assert len(producer) == 0


def test_records_sent_in_an_event_loop_fit_and_keep_their_order(cluster: Cluster) -> None:
    """Those that are sent while the limits are being asked for, and while such records
    wait for their turn, too."""

    async def send() -> list[int]:
        async with AsyncProducer(servers(cluster)) as producer:
            sending = []
            for number, value in enumerate(values("async")):
                sending.append(asyncio.create_task(producer.send("async", value)))
                if number % 10 == 0:
                    await asyncio.sleep(0)
            sent = await asyncio.gather(*sending)
        return [delivery.offset for delivery in sent]

    assert asyncio.run(send()) == list(range(RECORDS))


@pytest.mark.parametrize(
    ("configs", "size", "setting"),
    [
        ({"max.message.bytes": 3000}, 5000, "max.message.bytes=3000"),
        ({"segment.bytes": 90_000}, 95_000, "segment.bytes=90000"),
        ({}, 150_000, "segment.bytes=100000"),
    ],
    ids=["message", "segment", "brokers"],
)
@pytest.mark.parametrize("properties", [{}, {"batch.size": 2500}], ids=["", "own-batch.size"])
def test_a_record_above_a_limit_is_refused_with_its_size_the_setting_and_the_remedy(
    cluster: Cluster,
    configs: dict[str, Any],
    size: int,
    setting: str,
    properties: dict[str, Any],
    request: pytest.FixtureRequest,
) -> None:
    """The remedy is a command, whose setting is enough; records around it arrive."""
    topic = f"refusing-{request.node.callspec.id}"
    with admin(cluster) as manager, Producer({**servers(cluster), **properties}) as producer:
        manager.create_topic(topic, configs=configs)
        receipts = producer.send_many(topic, ["before", "x" * size, "after"])
        with pytest.raises(DeliveryError) as error:
            receipts[1].result()
        what = rf"it has {size} bytes, and a batch of its own up to \d+; the topic's {setting} is smaller \(make it smaller, or raise the limit: "
        found = re.search(
            rf"{what}barnabas configs --alter --topic {topic} --add-config (.*)=(\d+)\)$", str(error.value)
        )
        assert found, str(error.value)
        assert error.value.remedy in str(error.value)
        for receipt in (receipts[0], receipts[2]):
            receipt.result()
        manager.alter_topic_configs(topic, {found[1]: found[2]})
        eventually(lambda: is_taken(cluster, topic, size), what="the limit is raised")


def is_taken(cluster: Cluster, topic: str, size: int) -> bool:
    """Whether a topic takes a record of this size now: its leader hears of a changed
    limit a moment later."""
    producer = Producer({**servers(cluster), "batch.size": 1000})
    try:
        producer.send(topic, "x" * size).result()
    except DeliveryError:
        return False
    return True


def test_a_record_above_the_producers_own_limit_is_refused_with_both_sizes(cluster: Cluster) -> None:
    """librdkafka refuses it before any broker sees it."""
    with Producer({**servers(cluster), "max.request.size": 2000}) as producer:
        with pytest.raises(
            RefusedError, match=r"it has 2503 bytes, .* max\.request\.size=2000 allows no larger"
        ) as error:
            producer.send("plain", "x" * 2500, key="key")
        assert error.value.name == "MESSAGE_TOO_LARGE"


def test_a_batch_size_of_the_users_is_kept_and_named_where_it_is_too_large(cluster: Cluster) -> None:
    """What the user says is done; the error says which of the two settings to change."""
    producer = Producer({**servers(cluster), "batch.size": 200_000, "linger.ms": 60_000})
    receipts = producer.send_many("segments", values("own"))
    with pytest.raises(
        DeliveryError,
        match=r"larger than the topic's segment\.bytes=90000 \(set the producer's batch\.size below.*200000 now",
    ):
        receipts[0].result()
    with pytest.raises(DeliveryError, match="more failed"):
        producer.close()


def test_a_limit_that_is_lowered_costs_the_batches_under_way_and_no_others(cluster: Cluster) -> None:
    """The first refusal says that the next batches fit, and they do, in order."""
    with admin(cluster) as manager:
        manager.create_topic("lowered")
        producer = Producer({**servers(cluster), "linger.ms": 60_000})
        producer.send("lowered", "one")
        producer.flush()
        manager.alter_topic_configs("lowered", {"max.message.bytes": "2000"})
    eventually(lambda: not is_taken(cluster, "lowered", 3000), what="the limit is lowered")
    refused = producer.send_many("lowered", values("refused", 100))
    with pytest.raises(DeliveryError, match="99 more failed"):
        producer.flush()
    for receipt in refused:
        with pytest.raises(DeliveryError, match=r"max\.message\.bytes=2000 \(send it again"):
            receipt.result()
    sent = values("again")
    producer.send_many("lowered", sent)
    producer.close()
    assert read(cluster, "lowered", "again") == sent


def test_what_is_under_way_to_a_topic_fits_in_one_batch_where_batches_are_larger(cluster: Cluster) -> None:
    """As for a transactional producer: without lingering, in order, and again after a
    record that was refused."""
    librdkafka = confluent_kafka.Producer({**servers(cluster), "linger.ms": 60_000})
    one_batch = OneBatchInFlight(librdkafka, 2048)
    codes = []

    def send(value: str) -> None:
        def report(error: Any, _: Any) -> None:
            codes.append(None if error is None else error.name())

        while True:
            try:
                return one_batch.produce("messages", value.encode(), b"key", 0, report, headers=[("name", b"content")])
            except BufferError:
                librdkafka.poll(0.05)

    sent = values("one", 300)
    for value in [*sent[:100], "x" * 5000, *sent[100:]]:
        send(value)
    with pytest.raises(TypeError):
        one_batch.produce("messages", b"x", b"key", 0, print, headers=[("name", 7)])
    librdkafka.flush(30)
    assert one_batch._bytes == 0
    assert codes == [None] * 100 + ["MSG_SIZE_TOO_LARGE"] + [None] * 200
    assert read(cluster, "messages", "one") == sent


def test_limits_are_asked_for_once_for_a_topic_and_not_with_a_batch_size(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cost of a start is one request on a connection."""
    asked = []
    send = AdminConnection.send

    def counting(self: AdminConnection, request: Any, *rest: Any, **options: Any) -> Any:
        asked.append(type(request).__name__)
        return send(self, request, *rest, **options)

    monkeypatch.setattr(AdminConnection, "send", counting)
    with Producer(servers(cluster)) as producer:
        for _ in range(100):
            producer.send("messages", "x")
    assert asked == ["DescribeConfigsRequest"]
    with Producer({**servers(cluster), "batch.size": 1000}) as producer:
        producer.send("messages", "x")
    assert asked == ["DescribeConfigsRequest"]


def test_topics_with_limits_near_each_other_share_one_producer_of_librdkafka(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hundreds of topics with as many limits need some twenty producers at most."""
    monkeypatch.setattr(
        TopicLimits, "of", lambda _, topic, max_age_s=0.0: BatchLimit("segment.bytes", int(topic)) if topic else None
    )
    pool = ProducerPool(servers(cluster))
    for limit in [14, 300, *range(5000, 1_500_000, 997)]:
        pool.route(str(limit))
    assert len(pool._by_size) <= 20
    for topic, size in pool._batch_size_of.items():
        assert size <= int(topic)
        assert int(topic) < 64 or size >= int(topic) / 2.5 or size == 1_000_000


def test_a_limit_on_requests_that_batches_exceed_is_named() -> None:
    """Brokers close the connection without a word; the records time out."""
    with Cluster(settings={"socket.request.max.bytes": "50000"}) as cluster:
        # The records wait for each other, so that they make one large batch on a busy machine, too.
        producer = Producer({**servers(cluster), "linger.ms": 500, "delivery.timeout.ms": 2000})
        receipts = producer.send_many("orders", values("large"))
        with pytest.raises(
            DeliveryError, match=r"larger than their socket\.request\.max\.bytes=50000 \(set the producer's"
        ) as error:
            receipts[0].result()
        assert error.value.name == "_MSG_TIMED_OUT"
        producer.purge()
        with Producer({**servers(cluster), "batch.size": 40_000}) as smaller:
            smaller.send_many("orders", values("large"))


def test_limits_that_cannot_be_had_are_asked_for_again_only_after_some_time() -> None:
    """What cannot be asked is unknown meanwhile, for all topics, and records wait in
    the queue as ever."""
    asked: list[int] = []
    now_s = 1000.0

    def accept() -> None:
        while True:
            try:
                connected, _ = listening.accept()
            except OSError:
                return
            with connected:
                asked.append(len(connected.recv(1000)))

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=accept, daemon=True).start()
        limits = TopicLimits({"bootstrap.servers": f"127.0.0.1:{listening.getsockname()[1]}"}, lambda: now_s)
        assert limits.of("topic") is None
        at_first = len(asked)
        assert at_first
        now_s += 29
        assert limits.of("topic") is None
        assert limits.of("other") is None
        assert len(asked) == at_first
        now_s += 2
        assert limits.of("topic") is None
        assert len(asked) > at_first
        listening.shutdown(socket.SHUT_RDWR)


OPTIONAL_BYTES = st.none() | st.binary(max_size=300)


@given(
    OPTIONAL_BYTES,
    OPTIONAL_BYTES,
    st.lists(st.tuples(st.text(st.characters(exclude_categories=["Cs"]), max_size=80), OPTIONAL_BYTES), max_size=30),
    st.sampled_from(list(CompressionType)),
    st.integers(-200, 400),
)
def test_a_record_is_sent_again_only_if_its_batch_fits_alone_in_any_codec(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]], codec: CompressionType, more: int
) -> None:
    """Random bytes do not compress; a batch as encoded is never larger than the words assume."""
    size_bytes = size_of(key, value, headers)
    record = Record(0, 1_700_000_000_000, key, value, headers)
    stored = len(build_batch([record], compression=codec))
    assert len(build_batch([record])) <= batch_bytes(size_bytes)
    assert stored <= in_any_codec(batch_bytes(size_bytes))
    limit = BatchLimit("max.message.bytes", max(1, stored + more))
    what, remedy = too_large("MESSAGE_TOO_LARGE", "topic", size_bytes, limit, "")
    if "send it again" in remedy:
        assert stored <= limit.size_bytes
    else:
        found = re.fullmatch(
            rf"it has \d+ bytes?, and a batch of its own up to (\d+); the topic's max\.message\.bytes={limit.size_bytes} is smaller",
            what,
        )
        assert found, what
        assert int(found[1]) > limit.size_bytes
        assert remedy.endswith(f"max.message.bytes={found[1]}")


@pytest.mark.parametrize("idempotent", [False, True])
def test_a_producer_in_virtual_time_divides_batches_that_are_refused(*, idempotent: bool) -> None:
    """All records arrive in order; a single record that is too large fails with the
    setting's name."""

    async def scenario(cluster: VirtualCluster) -> tuple[list[str], str]:
        await cluster.create_topic("orders", config={"max.message.bytes": "1000"})
        sent = values("virtual", 200)
        async with cluster.producer({"enable.idempotence": idempotent}) as producer:
            await producer.send_many("orders", sent)
            with pytest.raises(DeliveryError) as error:
                await producer.send("orders", "x" * 2000)
            await producer.send("orders", "last")
        return [record.value for record in await cluster.records("orders")], str(error.value)

    stored, refused = simulate(scenario, seed=3).value
    assert stored == [*values("virtual", 200), "last"]
    assert "max.message.bytes allows 1000" in refused
