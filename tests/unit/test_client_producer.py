"""What a producer does when its queue is full, no broker answers, or a topic is missing."""

import asyncio
import os
import time

import pytest

from barnabas.base.errors import ConfigError
from barnabas.client import (
    AsyncProducer,
    BufferFullError,
    ClientError,
    ConfigurationError,
    Consumer,
    DeliveryError,
    DroppedError,
    Producer,
    UnknownTopicError,
)
from barnabas.client.producer.producer import _METADATA_S
from barnabas.testing import Cluster
from support.promptness import promptly
from support.waiting import eventually

NO_BROKER = {"bootstrap.servers": "127.0.0.1:1", "queue.buffering.max.messages": 3, "delivery.timeout.ms": 300}


def fill(producer: Producer) -> list[object]:
    """Three records, which fill the queue."""
    return [producer.send("t", "x") for _ in range(3)]


def abandon(producer: Producer) -> None:
    """Forget what waits, so that the test need not."""
    producer.librdkafka.purge()
    producer.librdkafka.flush(1)


def test_a_full_queue_drops_at_once_and_counts_with_0() -> None:
    """queue.enqueue.timeout.ms=0: no waiting, no exception, a number."""
    producer = Producer({**NO_BROKER, "delivery.timeout.ms": 60_000, "queue.enqueue.timeout.ms": 0})
    fill(producer)
    with promptly(os.getpid(), "four sends", limit_s=0.2):
        receipts = [producer.send("t", "x") for _ in range(4)]
    assert producer.dropped == 4
    assert all(receipt.done for receipt in receipts)
    with pytest.raises(DroppedError, match="the queue was full for 0 ms"):
        receipts[0].result()
    abandon(producer)


def test_a_full_queue_waits_and_then_drops_with_n() -> None:
    """queue.enqueue.timeout.ms=N: N milliseconds of patience."""
    producer = Producer({**NO_BROKER, "delivery.timeout.ms": 60_000, "queue.enqueue.timeout.ms": 150})
    fill(producer)
    started = time.monotonic()
    producer.send("t", "x")
    assert 0.14 < time.monotonic() - started < 30
    assert producer.dropped == 1
    abandon(producer)


def test_a_full_queue_waits_for_room_with_minus_1() -> None:
    """queue.enqueue.timeout.ms=-1: the send comes back when there is room, here
    because records timed out."""
    producer = Producer({**NO_BROKER, "queue.enqueue.timeout.ms": -1})
    fill(producer)
    producer.send("t", "x")
    assert producer.dropped == 0
    abandon(producer)


def test_a_full_buffer_fails_after_max_block_ms() -> None:
    """Today's semantics: wait, then raise, and the record was not taken."""
    producer = Producer({**NO_BROKER, "delivery.timeout.ms": 60_000, "max.block.ms": 100})
    fill(producer)
    with pytest.raises(BufferFullError, match="max.block.ms"):
        producer.send("t", "x")
    producer.poll()  # librdkafka counts problems that wait to be reported
    assert len(producer) == 3
    abandon(producer)


def test_a_failure_that_was_not_reported_yet_is_raised_by_flush() -> None:
    """Lost records do not go by in silence; those whose receipt was looked at do not come twice."""
    producer = Producer(NO_BROKER)
    first, *_ = fill(producer)
    with pytest.raises(DeliveryError, match="delivery.timeout.ms"):
        first.result(timeout_s=60)
    with pytest.raises(DeliveryError, match=r"\(1 more failed\)"):
        producer.flush()
    producer.close()
    with pytest.raises(ClientError, match="closed"):
        producer.send("t", "x")


def test_a_callback_hears_of_the_failure_instead() -> None:
    """With a callback for each record flush has nothing to report."""
    heard = []
    with Producer(NO_BROKER) as producer:
        producer.send("t", "x", on_delivery=lambda delivery, error: heard.append((delivery, error)))
    ((delivery, error),) = heard
    assert delivery is None
    assert error.name == "_MSG_TIMED_OUT"


def test_a_listener_for_failures_hears_of_those_without_a_callback() -> None:
    """on_failure takes the place of the error that flush would raise."""
    heard: list[ClientError] = []
    with Producer(NO_BROKER, on_failure=heard.append) as producer:
        fill(producer)
    assert [error.name for error in heard] == ["_MSG_TIMED_OUT"] * 3


def test_problems_with_brokers_are_no_records_that_are_given_up() -> None:
    """librdkafka counts them among what waits until they are reported."""
    producer = Producer({"bootstrap.servers": "127.0.0.1:1"})
    eventually(lambda: len(producer), what="a problem waits to be reported")
    assert producer.purge() == 0


def test_a_sync_producer_raises_from_send() -> None:
    """producer.type=sync: the answer, or the failure, of each record."""
    with Producer({**NO_BROKER, "producer.type": "sync"}) as producer, pytest.raises(DeliveryError):
        producer.send("t", "x")


def test_an_asyncio_producer_drops_and_fails_alike() -> None:
    """The same policies, without blocking the loop."""

    async def scenario() -> None:
        producer = AsyncProducer({**NO_BROKER, "delivery.timeout.ms": 2000, "queue.enqueue.timeout.ms": 50})
        waiting = [await producer.submit("t", "x") for _ in range(4)]
        assert producer.dropped == 1
        results = await asyncio.gather(*waiting, return_exceptions=True)
        assert sorted(type(result).__name__ for result in results) == ["DeliveryError"] * 3 + ["DroppedError"]
        await producer.close()

    asyncio.run(scenario())


def test_properties_that_librdkafka_refuses_are_a_config_error() -> None:
    """The name that is wrong is in the message."""
    with pytest.raises(ConfigError, match=r'"no\.such\.property"'):
        Producer({**NO_BROKER, "no.such.property": 1})
    with pytest.raises(ConfigError, match=r'"no\.such\.property"'):
        Consumer({"bootstrap.servers": "127.0.0.1:1", "no.such.property": 1})


def test_a_subscription_to_nothing_is_none_and_a_wrong_name_is_an_error() -> None:
    """As in Kafka's client; what librdkafka raises is an error of ours."""
    with Consumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "g"}, close_timeout_s=0.5) as consumer:
        consumer.subscribe([])
        assert consumer.librdkafka.assignment() == []
        with pytest.raises(ConfigurationError, match=r"cannot subscribe to '\^\['"):
            consumer.subscribe(["^["])


def test_a_consumer_without_a_group_cannot_subscribe() -> None:
    """It may assign."""
    with (
        Consumer({"bootstrap.servers": "127.0.0.1:1"}) as consumer,
        pytest.raises(ConfigError, match="group.id is missing"),
    ):
        consumer.subscribe(["t"])


@pytest.mark.barnabas(settings={"auto.create.topics.enable": "false"})
def test_the_partitions_of_a_topic_that_is_not_there_are_refused_soon(barnabas_cluster: Cluster) -> None:
    """After the time in which news of a new topic spreads, rather than after that of
    a leader's election."""
    with Producer({"bootstrap.servers": barnabas_cluster.bootstrap_servers}) as producer:
        barnabas_cluster.create_topic("here", partitions=3)
        assert producer.partitions_for("here") == 3
        began = time.monotonic()
        with pytest.raises(UnknownTopicError, match="cannot learn the partitions of absent.*create it first"):
            producer.partitions_for("absent")
        assert time.monotonic() - began < _METADATA_S


@pytest.mark.barnabas(settings={"auto.create.topics.enable": "false"})
def test_a_record_for_a_topic_that_is_not_there_fails_before_its_delivery_timeout(barnabas_cluster: Cluster) -> None:
    """That would be two minutes; the cause has its class."""
    with Producer({"bootstrap.servers": barnabas_cluster.bootstrap_servers}) as producer:
        with pytest.raises(DeliveryError) as failed:
            producer.send("absent", "x").result(60)
        assert isinstance(failed.value.__cause__, UnknownTopicError)
