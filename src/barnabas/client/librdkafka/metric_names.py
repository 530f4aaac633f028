"""The metrics of producers and consumers: their names, and what they are.

The names for Prometheus are those that its JMX exporter makes of the clients' MBeans by default.

In Kafka: the metrics of `KafkaProducerMetrics`, `FetchMetricsRegistry` and `AbstractCoordinator`.
"""

from typing import NamedTuple

from barnabas.base.metric import Metric

__all__ = ["CONSUMER_METRICS", "PRODUCER_METRICS", "ClientMetric", "consumer_metric", "producer_metric"]


class ClientMetric(NamedTuple):
    """A metric by Kafka's name of its group and of itself."""

    client: str
    """producer or consumer"""
    group: str
    name: str
    kind: str
    help_text: str
    tags: tuple[str, ...] = ()
    """Besides client-id."""

    @property
    def metric(self) -> Metric:
        """The same for Prometheus."""
        plain = f"kafka_{self.client}_{self.group}_{self.name}".replace("-", "_")
        return Metric(plain, self.kind, self.help_text, ("client_id", *self.tags))


_TOPIC = ("topic",)
_PARTITION = ("topic", "partition")


def _of_connections(client: str) -> tuple[ClientMetric, ...]:
    """What both have."""
    group = f"{client}-metrics"
    return (
        ClientMetric(client, group, "request-total", "counter", "Requests that were sent"),
        ClientMetric(client, group, "request-rate", "gauge", "The same a second, between the last two reports"),
        ClientMetric(client, group, "request-latency-avg", "gauge", "Time from a request to its answer, in ms"),
        ClientMetric(client, group, "request-latency-max", "gauge", "The longest, in ms"),
        ClientMetric(client, group, "requests-in-flight", "gauge", "Requests that wait for an answer"),
        ClientMetric(client, group, "outgoing-byte-total", "counter", "Bytes that were sent"),
        ClientMetric(client, group, "incoming-byte-total", "counter", "Bytes that were received"),
        ClientMetric(client, group, "connection-count", "gauge", "Connections that are open"),
    )


_PRODUCER, _TOPICS = ("producer", "producer-metrics"), ("producer", "producer-topic-metrics")
PRODUCER_METRICS = (
    *_of_connections("producer"),
    ClientMetric(*_PRODUCER, "record-send-total", "counter", "Records that were sent"),
    ClientMetric(*_PRODUCER, "record-send-rate", "gauge", "The same a second, between the last two reports"),
    ClientMetric(*_PRODUCER, "record-size-avg", "gauge", "Bytes of a record, with its framing"),
    ClientMetric(*_PRODUCER, "record-queue-time-avg", "gauge", "Time of a record in the queue, in ms"),
    ClientMetric(*_PRODUCER, "record-queue-time-max", "gauge", "The longest, in ms"),
    ClientMetric(*_PRODUCER, "batch-size-avg", "gauge", "Bytes of a batch"),
    ClientMetric(*_PRODUCER, "records-per-request-avg", "gauge", "Records of a batch"),
    ClientMetric(*_PRODUCER, "produce-throttle-time-avg", "gauge", "Time for which quotas delayed answers, in ms"),
    ClientMetric(*_PRODUCER, "buffer-available-bytes", "gauge", "Room that is left in the queue"),
    ClientMetric(*_TOPICS, "record-send-total", "counter", "Records that were sent", _TOPIC),
    ClientMetric(*_TOPICS, "byte-total", "counter", "Bytes of them", _TOPIC),
)
"""Those of a `Producer`."""

_FETCHES, _GROUP = ("consumer", "consumer-fetch-manager-metrics"), ("consumer", "consumer-coordinator-metrics")
CONSUMER_METRICS = (
    *_of_connections("consumer"),
    ClientMetric(*_FETCHES, "records-consumed-total", "counter", "Records that were fetched"),
    ClientMetric(*_FETCHES, "records-consumed-rate", "gauge", "The same a second, between the last two reports"),
    ClientMetric(*_FETCHES, "bytes-consumed-total", "counter", "Bytes of them"),
    ClientMetric(*_FETCHES, "bytes-consumed-rate", "gauge", "The same a second, between the last two reports"),
    ClientMetric(*_FETCHES, "fetch-total", "counter", "Fetch requests that were sent"),
    ClientMetric(*_FETCHES, "records-lag-max", "gauge", "The greatest lag of its partitions, in records"),
    ClientMetric(*_FETCHES, "records-lag", "gauge", "Records of a partition that were not read", _PARTITION),
    ClientMetric(*_GROUP, "assigned-partitions", "gauge", "Partitions that it reads"),
    ClientMetric(*_GROUP, "rebalance-total", "counter", "Rebalances that it took part in"),
    ClientMetric(*_GROUP, "last-rebalance-seconds-ago", "gauge", "How long ago the last one was"),
)
"""Those of a `Consumer`."""


def producer_metric(name: str, *tags: str) -> ClientMetric:
    """A producer's, by Kafka's name and its tags. Raises KeyError."""
    return {(each.name, *each.tags): each for each in PRODUCER_METRICS}[name, *tags]


def consumer_metric(name: str, *tags: str) -> ClientMetric:
    """A consumer's, by Kafka's name and its tags. Raises KeyError."""
    return {(each.name, *each.tags): each for each in CONSUMER_METRICS}[name, *tags]
