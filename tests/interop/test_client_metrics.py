"""Producers and consumers show Kafka's metrics: as values, and to Prometheus."""

from collections.abc import Iterator

import pytest

from barnabas.client import Admin, Consumer, Producer
from barnabas.client.errors import ConfigurationError
from barnabas.client.librdkafka.metric_names import CONSUMER_METRICS, PRODUCER_METRICS, ClientMetric
from barnabas.client.librdkafka.statistics import MetricName
from barnabas.testing import Cluster
from support.metrics import read_metrics
from support.waiting import eventually

pytestmark = [pytest.mark.interop]
SENT, READ = 300, 200
ADDRESS = {"metrics.http.address": "127.0.0.1:0", "statistics.interval.ms": "50"}


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with Cluster() as cluster:
        with Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
            admin.create_topic("orders", partitions=1)
        yield cluster.bootstrap_servers


def of(found: dict[MetricName, float], name: str, **tags: str) -> float | None:
    """One figure, by its name and its tags besides client-id."""
    matching = [value for key, value in found.items() if key.name == name and dict(key.tags[1:]) == tags]
    return matching[0] if matching else None


def lacking(metrics: tuple[ClientMetric, ...], port: int | None) -> set[str]:
    """What is not on a page; the parser puts _total behind each counter."""
    assert port is not None
    shown = set(read_metrics(port))
    return {each.metric.name for each in metrics} - shown - {name.removesuffix("_total") for name in shown}


def test_a_producer_and_a_consumer_count_their_records_under_kafkas_names(servers: str) -> None:
    """The lag is what the consumer has not read; all names are on the page."""
    with Producer({"bootstrap.servers": servers, "client.id": "shop", **ADDRESS}) as producer:
        for number in range(SENT):
            producer.send("orders", f"order {number}")
        producer.flush()
        eventually(lambda: producer.poll(0.05) or of(producer.metrics(), "record-send-total") == SENT, what="a report")
        found = producer.metrics()
        assert of(found, "record-send-total", topic="orders") == SENT
        assert of(found, "connection-count") == 1
        eventually(lambda: producer.poll(0.05) or of(producer.metrics(), "record-send-rate") is not None, what="a rate")
        assert ("client-id", "shop") in next(iter(found)).tags
        # Of the last interval alone: a quiet producer has none of them.
        windows = {"request_latency", "queue_time", "throttle_time"}
        assert {
            each for each in lacking(PRODUCER_METRICS, producer.metrics_port) if not any(w in each for w in windows)
        } <= {
            "kafka_producer_producer_metrics_batch_size_avg",
            "kafka_producer_producer_metrics_records_per_request_avg",
        }
    settings = {"bootstrap.servers": servers, "group.id": "g", "auto.offset.reset": "earliest", **ADDRESS}
    with Consumer(settings) as consumer:
        consumer.subscribe(["orders"])
        for _ in range(READ):
            assert consumer.poll(60) is not None
        consumer.pause(consumer.assignment())

        def has_lag() -> bool:
            consumer.poll(0.05)
            return of(consumer.metrics(), "records-lag", topic="orders", partition="0") is not None

        eventually(has_lag, what="a report with a lag")
        found = consumer.metrics()
        assert of(found, "records-lag-max") == of(found, "records-lag", topic="orders", partition="0")
        assert (of(found, "records-consumed-total") or 0) >= READ
        assert of(found, "assigned-partitions") == 1
        assert {
            each for each in lacking(CONSUMER_METRICS, consumer.metrics_port) if "request_latency" not in each
        } == set()
        port = consumer.metrics_port
    with pytest.raises(OSError, match="refused"):
        read_metrics(port or 0)


def test_a_clients_own_callback_of_statistics_is_called_as_before(servers: str) -> None:
    """And the metrics are there besides."""
    reports: list[str] = []
    settings = {"bootstrap.servers": servers, "statistics.interval.ms": "50", "stats_cb": reports.append}
    with Producer(settings) as producer:
        eventually(lambda: producer.poll(0.05) or reports, what="a report")
        assert producer.metrics()
        assert producer.metrics_port is None


@pytest.mark.parametrize("make", [Producer, Consumer])
def test_metrics_without_reports_say_which_property_is_missing(make: type, servers: str) -> None:
    """Nothing is measured unless it is asked for."""
    client = make({"bootstrap.servers": servers})
    with pytest.raises(ConfigurationError, match=r"statistics\.interval\.ms is 0.*set it, such as to 5000"):
        client.metrics()
    client.close()


@pytest.mark.parametrize("make", [Producer, Consumer])
def test_an_address_that_is_none_is_refused_by_its_name(make: type, servers: str) -> None:
    """Before a connection is made."""
    with pytest.raises(ConfigurationError, match=r"metrics\.http\.address: '7071' is not host:port"):
        make({"bootstrap.servers": servers, "metrics.http.address": "7071"})
